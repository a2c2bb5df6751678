//! Folds runs of identical lines: the line once, and how often it was repeated.
//!
//! The lines must be equal byte for byte, so nothing is lost but their number, which is stated.

use memchr::memchr;

use super::estimate;
use super::marker::thousands;

/// Shorter runs stay as they are.
const MIN_RUN: usize = 4;
/// The beginning of a note. Notes are never folded, so folding twice changes nothing more.
const NOTE: &str = "[plimsoll: the line above repeated ";
/// The tokens of a note.
const NOTE_TOKENS: usize = 16;

/// The text with its runs folded; `None` if no run is worth it.
pub(super) fn fold(text: &str) -> Option<String> {
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < text.len() {
        let end = memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |len| at + len);
        let line = &text[at..end];
        let Some(first) = text.get(end + 1..) else { break };
        let (more, rest) = repeats(first, line);
        at = text.len() - rest.len();
        if let Some(note) = note(line, more) {
            out.push_str(&text[copied..=end]);
            out.push_str(&note);
            // The last line of the run keeps its line end, if it has one.
            copied = if text[..at].ends_with('\n') { at - 1 } else { at };
        }
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        out
    })
}

/// How many lines equal to `line` the text begins with, and what follows them.
fn repeats<'a>(mut text: &'a str, line: &str) -> (usize, &'a str) {
    let mut times = 0;
    while !text.is_empty() {
        text = match text.strip_prefix(line) {
            Some("") => "",
            Some(after) if after.starts_with('\n') => &after[1..],
            _ => break,
        };
        times += 1;
    }
    (times, text)
}

/// The note that replaces `more` repetitions of a line; `None` if they should stay.
fn note(line: &str, more: usize) -> Option<String> {
    if more + 1 < MIN_RUN || line.starts_with(NOTE) {
        return None;
    }
    let tokens = more.saturating_mul(estimate::at_least(line, NOTE_TOKENS + 1));
    let carriage_return = if line.ends_with('\r') { "\r" } else { "" };
    let note = format!("{NOTE}{} more times]{carriage_return}", thousands(more));
    (tokens > NOTE_TOKENS && more * (line.len() + 1) > note.len() + 1).then_some(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(fold(text).as_deref(), expected, "{text:?}");
        if let Some(folded) = expected {
            assert!(folded.len() < text.len());
            assert_eq!(fold(folded), None, "not a fixed point: {folded:?}");
        }
    }

    const LINE: &str = "retrying in 5 seconds, attempt failed with code 7";

    #[test]
    fn repeated_lines_become_one_line_and_a_count() {
        let run = |times: usize, end: &str| vec![LINE; times].join(end);
        let folded = |more: &str, end: &str| {
            format!("{LINE}{end}[plimsoll: the line above repeated {more} more times]")
        };
        check(&run(3, "\n"), None);
        check(&run(4, "\n"), Some(&folded("3", "\n")));
        check(&format!("{}\n", run(4, "\n")), Some(&format!("{}\n", folded("3", "\n"))));
        check(&run(1235, "\n"), Some(&folded("1,234", "\n")));
        check(
            &format!("before\n{}\nafter\n{}\n\n", run(5, "\n"), run(6, "\n")),
            Some(&format!("before\n{}\nafter\n{}\n\n", folded("4", "\n"), folded("5", "\n"))),
        );
        check(
            &format!("{}\r\nafter\r\n", run(4, "\r\n")),
            Some(&format!("{}\r\nafter\r\n", folded("3", "\r\n"))),
        );
    }

    #[test]
    fn differing_or_cheap_lines_are_not_folded() {
        check("", None);
        check("\n", None);
        check(&"\n".repeat(9000), None);
        check(&"   \n".repeat(9000), None);
        check(&"}\n".repeat(12), None);
        check(&format!("{LINE}\n{LINE} \n").repeat(10), None);
        check(&format!("{LINE}\n{LINE}{LINE}\n").repeat(10), None);
        // The last one has no carriage return, so it is a different line.
        check(&[LINE; 4].join("\r\n"), None);
        check(&["[plimsoll: the line above repeated 1,234 more times]"; 40].join("\n"), None);
    }

    #[test]
    fn adversarial_text_takes_linear_time() {
        let folded =
            |line: &str, more: &str| format!("{line}\n[plimsoll: the line above repeated {more} more times]");
        for (piece, expected) in [
            ("\n", None),
            ("a\n", Some(format!("{}\n", folded("a", "524,287")))),
            ("a", None),
            ("\r\n", None),
            ("ab\nab", Some(format!("ab\n{}\nab", folded("abab", "209,713")))),
            (" \n", None),
        ] {
            check(&piece.repeat((1 << 20) / piece.len()), expected.as_deref());
        }
    }
}
