//! A simulated provider with a cache that depends on marks, and its bills.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::planner::Fate;

/// How long an unread entry is kept, in milliseconds, and the price of writing it, for minutes and for an hour.
const KEPT: [(i64, f64); 2] = [(300_000, 1.25), (3_600_000, 2.0)];
/// How many blocks back from a mark, its own included, an entry is looked for.
const LOOKBACK: usize = 20;

/// What a provider does not have the next time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Forgets {
    #[default]
    Nothing,
    /// Everything after the instructions.
    History,
    All,
}

/// A provider's cache with marks, and its bills, in bytes of plain input.
#[derive(Clone, Default)]
pub(super) struct Provider {
    /// When an entry of a cache was last read, and for how long it is kept.
    pub(super) kept: HashMap<(u64, String), (i64, i64)>,
    pub(super) now: i64,
    /// How many caches there are besides the first, and the seed of the chance by which each request reaches one of
    /// them.
    pub(super) others: u64,
    pub(super) seed: u64,
    /// What it bills as written, but does not have the next time.
    pub(super) forgets: Forgets,
    /// The numbers of the requests before which it drops everything.
    pub(super) drops: Vec<usize>,
    pub(super) billed: usize,
}

impl Provider {
    /// What a prompt costs now, and the usage that it reports.
    pub(super) fn bill(&mut self, body: &[u8]) -> (f64, Fate) {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        if self.drops.contains(&self.billed) {
            self.kept.clear();
        }
        self.billed += 1;
        let cache = chance(self.seed << 32 | self.billed as u64) % (self.others + 1);
        let (mut prompts, mut marked) = (vec![String::new()], Vec::new());
        for message in body["messages"].as_array_mut().unwrap() {
            if let Some(text) = message["content"].as_str() {
                message["content"] = json!([{"type": "text", "text": text}]);
            }
            if let Some(calls) = message["tool_calls"].as_array() {
                message["content"] = json!(calls);
            }
        }
        let whole = body["system"].as_str().map(|text| vec![json!({"type": "text", "text": text})]);
        let mut blocks = body["system"].as_array().cloned().or(whole).unwrap_or_default();
        let leads = |message: &&Value| message["role"] == "system";
        let leading = body["messages"].as_array().unwrap().iter().take_while(leads);
        let leading: usize = leading.map(|message| message["content"].as_array().unwrap().len()).sum();
        let instructions = blocks.len() + leading;
        for message in body["messages"].as_array().unwrap() {
            blocks.extend_from_slice(message["content"].as_array().unwrap());
        }
        for mut block in blocks {
            let mark = block.as_object_mut().unwrap().remove("cache_control");
            prompts.push(format!("{}{block}", prompts[prompts.len() - 1]));
            marked.extend(mark.map(|mark| (prompts.len() - 1, usize::from(mark["ttl"] == "1h"))));
        }
        let is_there = |at: &usize| match self.forgets {
            Forgets::Nothing => true,
            Forgets::History => *at <= instructions,
            Forgets::All => false,
        };
        let kept = |at: usize| self.kept.get(&(cache, prompts[at].clone())).copied();
        let is_fresh = |at: &usize| kept(*at).is_some_and(|(last, kept_ms)| self.now - last < kept_ms);
        let is_kept = |at: &usize| is_there(at) && is_fresh(at);
        let entry = marked
            .iter()
            .filter_map(|(mark, _)| ((mark + 1).saturating_sub(LOOKBACK)..=*mark).rev().find(is_kept))
            .max();
        let len = |at: Option<usize>| at.map_or(0.0, |at| prompts[at].len() as f64);
        let (read, whole) = (len(entry), len(Some(prompts.len() - 1)));
        // What is marked for an hour is written for an hour, and what is marked after it for minutes.
        let (mut written, mut premiums) = (read, 0.0);
        for (hold, (_, rate)) in KEPT.iter().enumerate().rev() {
            let last = marked.iter().filter(|mark| mark.1 == hold).map(|mark| mark.0).max();
            let fresh = (len(last) - written).max(0.0);
            (written, premiums) = (written + fresh, premiums + (rate - 1.0) * fresh);
        }
        let read_ms = entry.and_then(kept).map(|(_, kept_ms)| kept_ms);
        let stays = marked.into_iter().map(|(at, hold)| {
            let within = read_ms.filter(|_| Some(at) <= entry).unwrap_or(i64::MAX);
            let before = kept(at).filter(|_| is_fresh(&at)).map(|(_, kept_ms)| kept_ms);
            (at, before.unwrap_or_else(|| KEPT[hold].0.min(within)))
        });
        let stays: Vec<_> = stays.chain(entry.zip(read_ms)).collect();
        for (at, kept_ms) in stays {
            self.kept.insert((cache, prompts[at].clone()), (self.now, kept_ms));
        }
        let told = Fate::Told { read: read as u64, written: (written - read) as u64 };
        (whole - 0.9 * read + premiums, told)
    }
}

/// A number that looks random, but is the same each time.
fn chance(of: u64) -> u64 {
    let mixed = of.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 33
}
