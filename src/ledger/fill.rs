//! How a conversation's newest prompt fills the model's window, region by region, and for how many more turns there is
//! room.
//!
//! For information only: it holds nothing back. Pure, computed from the history alone.

use std::collections::VecDeque;

use serde::Serialize;

use super::history::History;
use super::record::{Record, Shares};

/// Each region's limit, in per cent of the window.
const SYSTEM_LIMIT: u64 = 6;
const TOOLS_LIMIT: u64 = 4;
const HISTORY_LIMIT: u64 = 65;
const RESULTS_LIMIT: u64 = 12;
const MEMORY_LIMIT: u64 = 8;
const OUTPUT_LIMIT: u64 = 5;
/// The soft limit, in tenths of the hard one.
const SOFT_TENTHS: u64 = 8;
/// The number of turns that the rate is averaged over: the last ones.
const AVERAGED_TURNS: usize = 20;
/// With fewer turns left than this, the urgency is critical.
const CRITICAL_TURNS: f64 = 3.0;
/// With fewer turns left than this, the urgency is a warning.
const WARNING_TURNS: f64 = 10.0;

/// The window and what fills it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fill {
    /// The size of the model's window, in tokens.
    pub window: u64,
    /// Its regions.
    pub regions: [Region; 6],
    /// How fast it fills; `None` if nothing has grown.
    pub burn: Option<Burn>,
}

/// A region of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Region {
    /// `system`, `tools`, `history`, `results`, `memory` (the summary or note that replaces omitted messages), or
    /// `output`.
    pub name: &'static str,
    /// The tokens it takes. All regions except `output` are parts of the prompt.
    pub tokens: u64,
    /// Its limit, in tokens.
    pub limit: u64,
    /// How it relates to its limit; for `output`, whether the prompt leaves room for it.
    pub state: Limit,
}

/// How a figure relates to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Below four fifths of the limit.
    Ok,
    /// At or above four fifths of it.
    Soft,
    /// At or above the limit.
    Hard,
}

/// How fast a conversation fills the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Burn {
    /// Tokens added per turn, averaged over the last turns.
    pub tokens_per_turn: u64,
    /// Turns until the window is full, at that rate.
    pub turns_left: f64,
    /// How urgent that is.
    pub urgency: Urgency,
}

/// How soon the window will be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// Ten turns or more are left.
    Normal,
    /// Fewer than ten turns are left.
    Warning,
    /// Fewer than three turns are left.
    Critical,
}

impl Fill {
    /// How the newest prompt of a conversation fills the window; `None` if its prompt or its window is unknown.
    pub fn of(history: &History) -> Option<Self> {
        let records = || history.entries.iter().map(|entry| &entry.record).filter(|one| one.own.is_none());
        let newest = records().rev().find(|record| record.prompt.is_some())?;
        let (prompt, window) = (newest.prompt?, newest.window.as_ref()?);
        let (size, reserved) = (window.tokens?, window.reserved.unwrap_or(0));
        let thread = records().filter(|record| record.thread == newest.thread);
        let used = newest.prompt_tokens().unwrap_or_else(|| prompt.all()) + reserved;
        let burn = burn(&added_per_turn(thread), size.saturating_sub(used));
        let left = size.saturating_sub(used - reserved);
        let mut regions = regions(size, &prompt, newest.memory(), reserved);
        let [.., output] = &mut regions;
        // This region is kept free and does not grow, so what matters is whether the prompt leaves room for it.
        output.state = Limit::of(reserved, left);
        Some(Self { window: size, regions, burn })
    }
}

impl Limit {
    /// How `tokens` relate to `limit`.
    pub const fn of(tokens: u64, limit: u64) -> Self {
        match tokens {
            _ if tokens >= limit => Self::Hard,
            _ if tokens >= limit * SOFT_TENTHS / 10 => Self::Soft,
            _ => Self::Ok,
        }
    }

    /// The word in documents and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

impl Urgency {
    /// The word in documents and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

fn regions(window: u64, prompt: &Shares, memory: u64, reserved: u64) -> [Region; 6] {
    // The summary or note is part of a user's or an assistant's message.
    let memory = memory.min(prompt.user + prompt.assistant);
    let history = prompt.user + prompt.assistant + prompt.reasoning - memory;
    [
        ("system", SYSTEM_LIMIT, prompt.system),
        ("tools", TOOLS_LIMIT, prompt.tools),
        ("history", HISTORY_LIMIT, history),
        ("results", RESULTS_LIMIT, prompt.results),
        ("memory", MEMORY_LIMIT, memory),
        ("output", OUTPUT_LIMIT, reserved),
    ]
    .map(|(name, percent, tokens)| {
        let limit = window.saturating_mul(percent) / 100;
        Region { name, tokens, limit, state: Limit::of(tokens, limit) }
    })
}

/// The tokens that each of the last turns of a thread added. What was removed in the meantime is not subtracted: what a
/// request added that became shorter is unknown, and a turn of such requests alone is left out.
fn added_per_turn<'r>(thread: impl Iterator<Item = &'r Record>) -> Vec<u64> {
    let (mut turns, mut last_prompt) = (VecDeque::new(), None);
    for record in thread {
        let Some(prompt) = record.prompt_tokens().filter(|_| record.turn > 0) else { continue };
        let frame = record.prompt.map_or(0, |shares| shares.system + shares.tools);
        let added = prompt.checked_sub(last_prompt.unwrap_or(frame));
        last_prompt = Some(prompt);
        let Some(added) = added else { continue };
        match turns.back_mut() {
            Some((turn, sum)) if *turn == record.turn => *sum += added,
            _ => turns.push_back((record.turn, added)),
        }
        if turns.len() > AVERAGED_TURNS {
            turns.pop_front();
        }
    }
    turns.into_iter().map(|(_, sum)| sum).collect()
}

/// How fast the window fills, given the tokens that each turn added and the tokens that are left; `None` if nothing was
/// added.
fn burn(turns: &[u64], left: u64) -> Option<Burn> {
    let rate = turns.iter().sum::<u64>() as f64 / turns.len().max(1) as f64;
    if rate <= 0.0 {
        return None;
    }
    let turns_left = left as f64 / rate;
    let urgency = match turns_left {
        few if few < CRITICAL_TURNS => Urgency::Critical,
        few if few < WARNING_TURNS => Urgency::Warning,
        _ => Urgency::Normal,
    };
    let tenths = (turns_left * 10.0).round() / 10.0;
    Some(Burn { tokens_per_turn: rate.round() as u64, turns_left: tenths, urgency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::words::State;
    use crate::ledger::{Edits, Entry, OwnCall, Splice, Window};
    use crate::usage::Tokens;

    #[test]
    fn region_limits_are_shares_of_the_window() {
        let limits = |window| regions(window, &Shares::default(), 0, 0).map(|region| region.limit);
        assert_eq!(limits(128_000), [7_680, 5_120, 83_200, 15_360, 10_240, 6_400]);
        assert_eq!(limits(128_000).iter().sum::<u64>(), 128_000);
        assert_eq!(limits(0), [0; 6]);
    }

    #[test]
    fn splices_are_counted_as_memory_and_not_as_history() {
        let prompt =
            Shares { tools: 1, system: 2, user: 30, assistant: 40, reasoning: 500, ..Shares::default() };
        for (memory, history, expected) in [(0, 570, 0), (60, 510, 60), (99, 500, 70)] {
            let tokens = regions(128_000, &prompt, memory, 9).map(|region| region.tokens);
            assert_eq!(tokens, [2, 1, history, 0, expected, 9], "{memory}");
        }
        let splice = Splice { after: 401, ..Splice::default() };
        for (state, original_resent, expected) in
            [(State::Edited, false, 100), (State::Edited, true, 0), (State::Observed, false, 0)]
        {
            let splice = Some(splice.clone());
            let edits = Edits { state: state.into(), splice, original_resent, ..Edits::default() };
            assert_eq!(
                Record { edits, ..Record::default() }.memory(),
                expected,
                "{state:?} {original_resent}"
            );
        }
    }

    #[test]
    fn limits_are_soft_from_four_fifths_and_hard_when_reached() {
        let limit = 15_360;
        for (used, state) in [
            (8_000, Limit::Ok),
            (12_287, Limit::Ok),
            (12_288, Limit::Soft),
            (15_359, Limit::Soft),
            (15_360, Limit::Hard),
            (u64::MAX, Limit::Hard),
        ] {
            assert_eq!(Limit::of(used, limit), state, "{used}");
        }
    }

    #[test]
    fn turns_left_are_estimated_from_tokens_per_turn() {
        let turns: &[u64] = &[2_000, 3_500, 2_800, 5_200, 3_100];
        let left = |tokens_per_turn, turns_left, urgency| Some(Burn { tokens_per_turn, turns_left, urgency });
        for (turns, remaining, expected) in [
            (turns, 128_000 - 53_000, left(3_320, 22.6, Urgency::Normal)),
            (turns, 33_200, left(3_320, 10.0, Urgency::Normal)),
            (turns, 33_100, left(3_320, 10.0, Urgency::Warning)),
            (turns, 9_960, left(3_320, 3.0, Urgency::Warning)),
            (turns, 9_000, left(3_320, 2.7, Urgency::Critical)),
            (turns, 0, left(3_320, 0.0, Urgency::Critical)),
            (&[], 1_000, None),
            (&[0, 0], 1_000, None),
        ] {
            assert_eq!(burn(turns, remaining), expected, "{turns:?} {remaining}");
        }
    }

    /// A history of requests, each with its thread, its turn and the tokens of its prompt.
    fn history(requests: &[(&str, u32, u64)]) -> History {
        let prompt = Shares { system: 300, tools: 200, user: 100, results: 400, ..Shares::default() };
        let window = Window { tokens: Some(128_000), reserved: Some(8_000), ..Window::default() };
        let entry = |(thread, turn, input): &(&str, u32, u64)| {
            let record = Record {
                thread: Some((*thread).to_owned()),
                turn: *turn,
                tokens: Some(Tokens { input: *input, ..Tokens::default() }),
                prompt: Some(prompt),
                window: Some(window.clone()),
                own: (*turn == 0).then(OwnCall::default),
                ..Record::default()
            };
            Entry { record, ..Entry::default() }
        };
        History { entries: requests.iter().map(entry).collect(), ..History::default() }
    }

    #[test]
    fn growth_is_measured_per_turn() {
        let mut long = vec![("t", 1, 100_000)];
        long.extend((2..30).map(|turn| ("t", turn, 100_000 + 10 * u64::from(turn))));
        for (requests, expected) in [
            (vec![("t", 1, 1_500)], vec![1_000]),
            (vec![("t", 1, 1_500), ("t", 1, 2_500), ("t", 2, 2_600)], vec![2_000, 100]),
            // Tokens that an event removes were added nevertheless. How much a shortened request added is unknown.
            (vec![("t", 1, 1_500), ("t", 2, 700), ("t", 3, 900), ("t", 4, 800)], vec![1_000, 200]),
            (vec![("t", 1, 1_500), ("t", 2, 700), ("t", 2, 900)], vec![1_000, 200]),
            (long, vec![10; AVERAGED_TURNS]),
        ] {
            let history = history(&requests);
            assert_eq!(
                added_per_turn(history.entries.iter().map(|entry| &entry.record)),
                expected,
                "{requests:?}"
            );
        }
    }

    #[test]
    fn the_fill_is_that_of_the_newest_client_prompt() {
        let requests = [("t", 1, 1_500), ("u", 1, 90_000), ("t", 2, 4_000), ("x", 0, 9_000)];
        let fill = Fill::of(&history(&requests)).unwrap();
        let taken = fill.regions.map(|region| (region.tokens, region.state));
        let expected = [
            (300, Limit::Ok),
            (200, Limit::Ok),
            (100, Limit::Ok),
            (400, Limit::Ok),
            (0, Limit::Ok),
            (8_000, Limit::Ok),
        ];
        assert_eq!(taken, expected);
        for (input, state) in [(117_000, Limit::Ok), (119_000, Limit::Soft), (120_000, Limit::Hard)] {
            let fill = Fill::of(&history(&[("t", 1, input)])).unwrap();
            assert_eq!(fill.regions[5].state, state, "{input}");
        }
        let burn = Burn { tokens_per_turn: 1_750, turns_left: 66.3, urgency: Urgency::Normal };
        assert_eq!((fill.window, fill.burn), (128_000, Some(burn)));
        assert_eq!(Fill::of(&History::default()), None);
    }
}
