//! Where known agents cut their histories for a summary, if they do not remove just as much as is necessary.
//!
//! Each method only looks at the history. The result is the first message that should stay; whether a history can be
//! cut there is not decided here.

use super::Settings;

/// How the place to cut is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Only as much as is necessary is removed.
    Enough,
    /// The newest `keep_turns` turns stay, and nothing else.
    Turns,
    /// The newest `keep_share` of the bytes stays, in whole turns.
    Share,
    /// The newest `keep_messages` messages stay, with the rest of their turn.
    Messages,
    /// A quarter of the window stays, but at most `keep_tokens` tokens and `keep_turns` turns.
    Budget,
}

/// What the methods look at in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// Whether it begins a turn of the user.
    pub is_turn: bool,
    /// Whether the model answers in it without calling a tool.
    pub is_answer: bool,
    /// Its size as sent, in bytes.
    pub bytes: u64,
    /// Its approximate tokens.
    pub tokens: u64,
}

/// [`Split::Budget`] keeps at most the usable window divided by this.
const BUDGET_DIVISOR: u64 = 4;
/// [`Split::Budget`] keeps this many tokens even if the window is small.
const MIN_BUDGET: u64 = 2_000;

/// The first message that should stay; `None` if nothing should be removed, or if this method does not say.
pub fn point(messages: &[Message], usable: u64, settings: &Settings) -> Option<usize> {
    let starts = || (0..messages.len()).filter(|at| messages[*at].is_turn);
    let found = match settings.split {
        Split::Enough => 0,
        Split::Turns => nth_last_turn(messages, settings.keep_turns),
        Split::Share => {
            // The newest turn is the current question, which does not count.
            let newest = starts().next_back().unwrap_or(0);
            by_share(&messages[..newest], settings.keep_share)
        }
        Split::Messages => {
            let target = messages.len().saturating_sub(settings.keep_messages as usize);
            snap_to_turn(&starts().collect::<Vec<_>>(), messages.len(), target)
        }
        Split::Budget => {
            let tail = by_budget(messages, budget(usable, settings.keep_tokens));
            tail.max(nth_last_turn(messages, settings.keep_turns))
        }
    };
    (found > 0).then_some(found)
}

/// Where the `turns`-th turn from the end begins; 0 if there are fewer.
fn nth_last_turn(messages: &[Message], turns: u32) -> usize {
    let starts = (0..messages.len()).rev().filter(|at| messages[*at].is_turn);
    let nth = (turns as usize).checked_sub(1);
    nth.map_or(messages.len(), |nth| starts.into_iter().nth(nth).unwrap_or(0))
}

/// The first beginning of a turn that comes after the older share of the bytes. If there is none: the end if the
/// model's answer is the last message, otherwise the beginning of the last turn.
fn by_share(messages: &[Message], keep: f64) -> usize {
    let whole: u64 = messages.iter().map(|message| message.bytes).sum();
    let wanted = whole as f64 * (1.0 - keep);
    let (mut before, mut last) = (0_u64, 0);
    for (at, message) in messages.iter().enumerate() {
        if message.is_turn {
            if before as f64 >= wanted {
                return at;
            }
            last = at;
        }
        before += message.bytes;
    }
    if messages.last().is_some_and(|message| message.is_answer) { messages.len() } else { last }
}

/// The last beginning of a turn up to `target`, otherwise the first after it, so that turns stay whole; 0 if there is
/// none.
fn snap_to_turn(starts: &[usize], messages: usize, target: usize) -> usize {
    if target >= messages {
        return messages;
    }
    let before = starts.iter().rev().find(|start| **start <= target && **start > 0);
    before.or_else(|| starts.iter().find(|start| **start > target)).copied().unwrap_or(0)
}

/// The tokens to keep, if a prompt may have `usable` of them.
fn budget(usable: u64, most: u64) -> u64 {
    (usable / BUDGET_DIVISOR).max(MIN_BUDGET).min(most)
}

/// The first message of the longest tail that has at most `budget` tokens.
fn by_budget(messages: &[Message], budget: u64) -> usize {
    let (mut sum, mut at) = (0_u64, messages.len());
    while at > 0 && sum.saturating_add(messages[at - 1].tokens) <= budget {
        at -= 1;
        sum += messages[at].tokens;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages in short form: `u` the user, `m` the model, `c` a call, `r` a result, each with its bytes.
    fn messages(short: &str) -> Vec<Message> {
        let message = |word: &str| {
            let (kind, bytes) = word.split_at(1);
            let bytes = bytes.parse().unwrap_or(4);
            Message { is_turn: kind == "u", is_answer: kind == "m", bytes, tokens: bytes / 4 }
        };
        short.split_whitespace().map(message).collect()
    }

    fn turns(count: usize, turn: &str) -> String {
        vec![turn; count].join(" ")
    }

    #[test]
    fn the_newest_turns_are_kept() {
        let ten = turns(10, "u m");
        for (talk, keep, expected) in [
            (&*ten, 6, Some(8)),
            (&ten, 4, Some(12)),
            (&ten, 1, Some(18)),
            (&ten, 10, None),
            // Fewer turns than are to stay: nothing is removed, however long they are.
            (&turns(5, "u40000 m160500"), 6, None),
            // Results do not begin turns.
            ("u c r c r", 1, None),
            ("u c r m u c r", 1, Some(4)),
            ("", 1, None),
        ] {
            let settings = Settings { split: Split::Turns, keep_turns: keep, ..Settings::default() };
            assert_eq!(point(&messages(talk), 0, &settings), expected, "{talk} {keep}");
        }
    }

    #[test]
    fn the_newest_share_of_the_bytes_is_kept() {
        for (talk, expected) in [
            (&*turns(5, "u137 m138"), 8),
            // No turn begins late enough.
            ("u39 c57 r1085 c57 r1085", 0),
            ("u39 c57 r1085 m42", 4),
            ("u937 m40 u38 c57 r135", 2),
            ("", 0),
        ] {
            assert_eq!(by_share(&messages(talk), 0.3), expected, "{talk}");
            // The current question is not counted.
            let settings = Settings { split: Split::Share, keep_share: 0.3, ..Settings::default() };
            let now = messages(&format!("{talk} u999999"));
            assert_eq!(point(&now, 0, &settings).unwrap_or(0), expected, "{talk}");
        }
    }

    #[test]
    fn cuts_are_moved_to_the_beginning_of_a_turn() {
        for (starts, messages, target, expected) in [
            (&[0, 4, 8][..], 12, 6, 4),
            (&[0, 4, 8], 12, 3, 4),
            (&[0, 4, 8], 12, 8, 8),
            (&[0, 4, 8], 12, 12, 12),
            (&[0, 5, 10], 12, 8, 5),
            (&[0], 12, 8, 0),
            // Without a turn nothing is cut blindly.
            (&[], 12, 8, 0),
        ] {
            assert_eq!(snap_to_turn(starts, messages, target), expected, "{starts:?} {target}");
        }
        let settings = Settings { split: Split::Messages, keep_messages: 4, ..Settings::default() };
        for (talk, expected) in [
            ("u c r m u c r m u c r m", Some(8)),
            ("u c r c r u c r c r u m", Some(5)),
            ("u c r c r c r c r c r m", None),
        ] {
            assert_eq!(point(&messages(talk), 0, &settings), expected, "{talk}");
        }
    }

    #[test]
    fn a_token_budget_of_the_newest_messages_is_kept() {
        for (usable, expected) in [(168_000, 8_000), (20_000, 5_000), (4_000, 2_000)] {
            assert_eq!(budget(usable, 8_000), expected, "{usable}");
        }
        let settings =
            Settings { split: Split::Budget, keep_turns: 2, keep_tokens: 8_000, ..Settings::default() };
        for (talk, expected) in [
            // Two turns fit, and no more stay.
            ("u40 m40 u40 m40 u40 m40", Some(2)),
            // The turn that does not fit is cut into.
            ("u40 m40 u40 m28000 u4000 m40", Some(4)),
            ("u40 m40 u40 c40 r32000 c40 r40", Some(5)),
        ] {
            assert_eq!(point(&messages(talk), 168_000, &settings), expected, "{talk}");
        }
    }
}
