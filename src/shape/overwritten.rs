//! Which states of an overwritten line can be dropped in favour of a later one.
//!
//! Progress on a terminal is one line that is drawn again and again after carriage returns. A file whose lines end with
//! carriage returns looks the same, and must not lose any line. So states are dropped only if they are recognised as
//! progress: they have the same label and say how far something is, and none of them goes back.

use memchr::memmem;

/// The states of a line that stay, in order: the last one of each run of progress, and all others.
pub(super) fn lasting(line: &str) -> Vec<&str> {
    // A carriage return at the beginning of a line overwrites nothing.
    let states: Vec<&str> = line.trim_start_matches('\r').split('\r').collect();
    if states.len() == 1 {
        return states;
    }
    let mut kept = Vec::with_capacity(states.len());
    let mut at = 0;
    while at < states.len() {
        let (length, goes_on) = run(&states[at..]);
        let end = at + length;
        kept.extend_from_slice(&states[if goes_on { end - 1 } else { at }..end]);
        at = end;
    }
    kept
}

/// How many of the first states belong to the same progress, and whether none of them goes back. The number is 1 if the
/// first state is not progress.
fn run(states: &[&str]) -> (usize, bool) {
    let Some(mut last) = states.first().and_then(|state| Progress::of(state)) else { return (1, true) };
    let (mut length, mut goes_on) = (1, true);
    for (at, state) in states.iter().enumerate().skip(1) {
        // Blanks that wipe a state before the next one are not a state of their own.
        if state.trim_start_matches(' ').is_empty() {
            continue;
        }
        let Some(next) = Progress::of(state).filter(|next| next.label == last.label) else { break };
        goes_on &= next.part >= last.part;
        (length, last) = (at + 1, next);
    }
    (length, goes_on)
}

/// Whether a state of a line that was written for a terminal says how far something is. A bar that has just begun
/// counts, too: `[>      ]`.
pub(super) fn is_progress(state: &str) -> bool {
    let begins = || {
        let (_, rest) = state.split_once("[>")?;
        let (blanks, _) = rest.split_once(']')?;
        Some(!blanks.is_empty() && blanks.bytes().all(|byte| byte == b' '))
    };
    Progress::of(state).is_some() || begins().unwrap_or_default()
}

/// What a state says about progress.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Progress<'a> {
    /// The label before the figure or the bar.
    label: &'a str,
    /// How far it is; 0 if only a bar, a speed or a spinner shows it.
    part: f64,
}

/// What separates the columns of a table.
const COLUMNS: [char; 5] = [',', ';', '\t', '|', '"'];
/// The frames of a spinner.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

impl<'a> Progress<'a> {
    fn of(state: &'a str) -> Option<Self> {
        let state = state.trim();
        let begins =
            |letter: char| letter.is_ascii_digit() || is_block(letter) || matches!(letter, '[' | '(' | '%');
        let label = &state[..state.find(begins).unwrap_or(state.len())];
        if let Some(part) = percentage(state).or_else(|| counted(state)) {
            return Self::with(label, part);
        }
        if state.contains(is_block) || has_bar(state) || is_meter(state) {
            return Self::with(label, 0.0);
        }
        let turned = state.strip_suffix(SPINNER).filter(|rest| rest.is_empty() || rest.ends_with(' '));
        Self::with(turned?, 0.0)
    }

    fn with(label: &'a str, part: f64) -> Option<Self> {
        (!label.contains(COLUMNS)).then(|| Self { label: label.trim_end(), part })
    }
}

/// Whether bars and spinners are drawn with this character.
const fn is_block(letter: char) -> bool {
    matches!(letter, '\u{2580}'..='\u{259f}' | '\u{2800}'..='\u{28ff}')
}

/// The first percentage, unless it is in a column.
fn percentage(state: &str) -> Option<f64> {
    let before = &state[..state.find('%')?];
    let number = before.trim_end().rsplit(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let ahead = before.trim_end().strip_suffix(number)?.chars().next_back();
    if ahead.is_some_and(|ahead| COLUMNS.contains(&ahead)) {
        return None;
    }
    number.parse().ok()
}

/// A count in brackets as a share: `(1/4)`, `[12/345]`.
fn counted(state: &str) -> Option<f64> {
    let (_, rest) = state.split_once(['(', '['])?;
    let (inside, _) = rest.split_once([')', ']'])?;
    let (part, whole) = inside.split_once('/')?;
    let (part, whole): (f64, f64) = (digits(part)?, digits(whole)?);
    Some(part / whole).filter(|share| share.is_finite())
}

fn digits(text: &str) -> Option<f64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whether there is a bar in brackets: `[===>   ]`.
fn has_bar(state: &str) -> bool {
    let Some(inside) = state.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else { return false };
    inside.0.len() > 3
        && inside.0.contains(['#', '='])
        && inside.0.bytes().all(|byte| matches!(byte, b'#' | b'=' | b'>' | b'*' | b'-' | b'.' | b' '))
}

/// Whether it is a row of times spent and left, as curl prints it.
fn is_meter(state: &str) -> bool {
    let is_clock =
        |word: &&str| word.matches(':').count() == 2 && word.bytes().all(|b| b == b':' || b.is_ascii_digit());
    memmem::find(state.as_bytes(), b"--:--").is_some()
        || state.split_whitespace().filter(is_clock).count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_progress_states_are_replaced_by_later_ones() {
        let table = (0..200)
            .map(|row| format!("{row},customer {row},{}.50\r", row * 17 % 1000))
            .collect::<Vec<_>>()
            .concat();
        let numbers = (0..50).map(|row| format!("{row},{}\r", row * 2)).collect::<Vec<_>>().concat();
        let shares = (0..50).map(|row| format!("{row},{}%\r", row * 2)).collect::<Vec<_>>().concat();
        for all in [
            &*table,
            &numbers,
            &shares,
            "id,share\rfoo,5%\rbar,7%",
            "0,0,0\r0,0,0",
            "first paragraph\r\rsecond one",
            "- one\r- two\r* three",
            "| a | b |\r| c | d |",
            "| 0 |\r| 0 |",
            "[ -> ] a\r[ -> ] b\r[    > ] c",
            "[>      ] a\r[>      ] b",
            "[ - ] one\r[ - ] two",
            "2024-01-02 INFO began\r2024-01-03 INFO ended",
            "1 (one)\r2 (two)",
            "[a](b/c)\r[d](e/f)",
            "### One\r### Two",
            "00:00:01,000 --> 00:00:04,000\r00:00:05,000 --> 00:00:06,000",
            "Compiling a\rCompiling b",
            "50%\r40%\r60%",
            "Reading: 100%\rWriting: 10%",
            "a|",
        ] {
            assert_eq!(lasting(all).join("\r"), all);
        }
        for (line, expected) in [
            ("\r\rshown", "shown"),
            (" 10%\r 50%\r100%", "100%"),
            (
                "Updating files:  78% (1/3)\rUpdating files: 100% (3/3)\rUpdating files: 100% (3/3), done.",
                "Updating files: 100% (3/3), done.",
            ),
            (
                "Rebasing (1/2)\rRebasing (2/2)\rAuto-merging README.md",
                "Rebasing (2/2)\rAuto-merging README.md",
            ),
            ("Reading: 10%\rReading: 100%\rWriting: 10%\rWriting: 20%", "Reading: 100%\rWriting: 20%"),
            ("10%\r   \r20%\r   \r30%", "30%"),
            ("work |\rwork /\rwork -\rwork \\\rdone", "work \\\rdone"),
            ("|\r/\r-", "-"),
            ("10% |\r20% /", "20% /"),
            ("[=>  ] 1 MB\r[===>] 2 MB", "[===>] 2 MB"),
            (
                " 9%|█   | 9/99 [00:01<00:09, 9it/s]\r99%|███ | 98/99 [00:10<00:01, 9it/s]",
                "99%|███ | 98/99 [00:10<00:01, 9it/s]",
            ),
            ("⠋ one\r⠙ one\r⠹ one", "⠹ one"),
            (
                "0  0  0 --:--:-- --:--:-- --:--:--  0\r100 12 12 0:00:01 0:00:01 --:--:-- 12",
                "100 12 12 0:00:01 0:00:01 --:--:-- 12",
            ),
            ("[1/30] Building a.o\r[2/30] Building b.o", "[2/30] Building b.o"),
        ] {
            assert_eq!(lasting(line).join("\r"), expected);
            assert_eq!(lasting(expected).join("\r"), expected, "not a fixed point");
        }
    }
}
