//! What is least likely to be needed again for what it costs.
//!
//! Every result has a rate at which agents quote it in later calls: it depends on what the result is, and falls
//! with its age and with the time since one of its files was named. A result may go when reading it on and on
//! costs more than losing it is expected to. Its rent is what it has cost beyond its worth so far, so that
//! results that are doubtful to clear do not push for an event.
//!
//! The rates were fitted to recorded sessions of many agents: views of files make nearly all quotes, those of
//! files that were changed since a tenth as many, and outputs of commands next to none.

use std::sync::LazyLock;

use super::settings::Settings;
use super::{BYTES_PER_TOKEN, PLACEHOLDER, may_go};
use crate::strategy::gate::Rates;
use crate::strategy::history::{Class, Deed, History, Outcome};

/// Quotes a request of a result of a thousand tokens, at its first request.
const VIEW: f64 = 0.12;
const VIEW_OF_CHANGED: f64 = 0.16;
const SUPERSEDED: f64 = 0.004;
const LISTING: f64 = 0.03;
const REST: f64 = 0.001;
/// What is left of the rate where the file had been changed before it was read.
const AFTER_CHANGE: f64 = 0.5;
/// What is left of the rate for views of a part of a file.
const PART: f64 = 0.5;
const PART_OF_CHANGED: f64 = 0.25;
/// What is left of it for documents, data, and files that are not the project's own.
const DOCUMENT: f64 = 0.5;
const FOREIGN: f64 = 0.4;
/// How the rate grows with size, and falls with idle time and age.
const BY_SIZE: f64 = 0.8;
const BY_IDLE: f64 = -1.3;
const BY_AGE: f64 = -0.5;
/// A thread is expected to go on for as many requests as it has had, within bounds.
const HORIZON: (f64, f64) = (5.0, 60.0);
/// Losing a result must be this much cheaper than keeping it.
const MARGIN: f64 = 1.3;
/// The read rate that `regret_tokens` is stated for.
const USUAL_READ: f64 = 0.1;

const DOCUMENTS: &[&str] = &["md", "mdx", "txt", "rst", "json", "yaml", "yml", "toml", "lock", "log", "csv"];
const FOREIGN_PLACES: &[&str] = &[
    "node_modules",
    "vendor",
    "site-packages",
    ".cargo",
    "mod",
    ".claude",
    ".codex",
    ".agents",
    "skills",
    "tmp",
];

/// Powers of the whole numbers that idle times and ages are.
struct Powers(Vec<f64>);

static IDLE: LazyLock<Powers> = LazyLock::new(|| Powers::new(BY_IDLE));
static AGE: LazyLock<Powers> = LazyLock::new(|| Powers::new(BY_AGE));

impl Powers {
    const MOST: usize = 2048;

    fn new(exponent: f64) -> Self {
        Self((0..Self::MOST).map(|n| (n.max(1) as f64).powf(exponent)).collect())
    }

    fn of(&self, n: u32) -> f64 {
        self.0[(n as usize).min(Self::MOST - 1)]
    }
}

/// How much of a result can be quoted: by its size, and, apart, by what its file is.
pub fn weight(bytes: u32, deed: &Deed) -> (f64, f64) {
    let size = (f64::from(bytes) / BYTES_PER_TOKEN as f64 / 1000.0).powf(BY_SIZE);
    let Some(view) = deed.views.first() else { return (size, 1.0) };
    let ending = view.path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let document = if DOCUMENTS.contains(&ending) { DOCUMENT } else { 1.0 };
    let mut places = view.path.split('/');
    let foreign = if places.any(|place| FOREIGN_PLACES.contains(&place)) { FOREIGN } else { 1.0 };
    (size, document * foreign)
}

/// A result's rate of quotes now, and the requests since it was last of use.
///
/// `busy` grows with the edits of the last requests: an agent that edits quotes.
fn rate(result: &Outcome, now: u32, busy: f64) -> (f64, u32) {
    let born = result.shown;
    let (size, file) = result.weight;
    let is_view = result.deed.class == Class::View;
    let is_part = result.deed.views.iter().any(super::super::View::is_range);
    let part = |share: f64| if is_part { share } else { 1.0 };
    let first = match result.deed.class {
        _ if result.superseded => SUPERSEDED * size,
        Class::View if result.edited => {
            let again = if result.of_edited { AFTER_CHANGE } else { 1.0 };
            VIEW_OF_CHANGED * size * file * part(PART_OF_CHANGED) * again
        }
        Class::View => VIEW * size * file * part(PART) * busy,
        Class::Search | Class::Versions => LISTING * size * busy,
        _ => REST * size * busy,
    };
    let last = if is_view && !result.superseded { result.named.max(born) } else { born };
    let (idle, age) = (1 + now.saturating_sub(last), 1 + now.saturating_sub(born));
    (first * IDLE.of(idle) * AGE.of(age), idle)
}

fn busy(history: &History) -> f64 {
    f64::from(1 + history.recent_edits()).sqrt()
}

/// What a lost quote costs, in bytes of plain input.
fn regret(rates: Rates, settings: &Settings) -> f64 {
    (settings.regret_tokens.saturating_mul(BYTES_PER_TOKEN)) as f64 * rates.read / USUAL_READ
}

/// Adds to every old result's rent what this request paid for it beyond its worth.
pub(super) fn step(history: &mut History, rates: Rates, settings: &Settings) {
    let (now, regret, busy) = (history.step(), regret(rates, settings), busy(history));
    for (_, _, bytes, result) in history.results_mut() {
        if result.shown < now && bytes > PLACEHOLDER {
            let (rate, _) = rate(result, now, busy);
            let paid = rates.read * f64::from(bytes - PLACEHOLDER);
            result.rent += (paid - regret * rate).max(0.0);
        }
    }
}

/// The places of the results that are cheaper to lose than to keep, in order.
pub(super) fn open(history: &History, rates: Rates, settings: &Settings) -> Vec<usize> {
    let (now, regret, busy) = (history.step(), regret(rates, settings), busy(history));
    let horizon = f64::from(now).clamp(HORIZON.0, HORIZON.1);
    let is_open = |item: &super::super::Item, result: &Outcome| {
        let (rate, idle) = rate(result, now, busy);
        let idle = f64::from(idle);
        // The rate, summed up over the horizon.
        let quotes = rate * idle / 0.25 * (1.0 - (idle / (idle + horizon)).sqrt().sqrt());
        let frees = f64::from(item.bytes.saturating_sub(PLACEHOLDER));
        frees * (rates.read * horizon + rates.rewrite()) > MARGIN * regret * quotes
    };
    let old = history.items().iter().enumerate().filter_map(|(at, item)| {
        let result = item.result.as_deref()?;
        let due = result.shown < now && may_go(item.bytes, result, settings) && is_open(item, result);
        due.then_some(at)
    });
    old.collect()
}
