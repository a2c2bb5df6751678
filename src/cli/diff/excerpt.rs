//! Two texts compared in a few lines: what is gone, and what replaced it.

use crate::cli::books;
use crate::cli::table::{cut, printable};

/// The maximum number of lines shown of each.
const MAX_LINES: usize = 8;
/// The maximum number of characters shown of a line.
const MAX_WIDTH: usize = 96;
/// The same on the narrowest terminal.
const MIN_WIDTH: usize = 32;
/// The minimum number of characters shown of a long line on each side of the place where it begins to differ, as far as
/// there are that many.
const AROUND: usize = 24;
/// The columns before each line.
const SIGNS: usize = 4;

/// The first of the lines in which two texts differ. An unknown text is reported as such.
pub(super) fn excerpt(before: Option<&str>, after: Option<&str>) -> Vec<String> {
    excerpt_within(before, after, books::width().saturating_sub(SIGNS).clamp(MIN_WIDTH, MAX_WIDTH))
}

/// The same with at most `most` characters of a line.
fn excerpt_within(before: Option<&str>, after: Option<&str>, most: usize) -> Vec<String> {
    let (Some(before), Some(after)) = (before, after) else {
        let mut lines = Vec::new();
        for (sign, text) in [('-', before), ('+', after)] {
            match text {
                Some(text) => lines.extend(show(sign, &text.lines().collect::<Vec<_>>(), &[], most)),
                None => lines.push(format!("  {sign} (not kept)")),
            }
        }
        return lines;
    };
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[same..], &after[same..]);
    let end = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[..before.len() - end], &after[..after.len() - end]);
    let mut lines = Vec::new();
    lines.extend(unchanged(same));
    lines.extend(show('-', before, after, most));
    lines.extend(show('+', after, before, most));
    lines.extend(unchanged(end));
    lines
}

fn unchanged(lines: usize) -> Option<String> {
    match lines {
        0 => None,
        1 => Some("    (1 line the same)".to_owned()),
        lines => Some(format!("    ({lines} lines the same)")),
    }
}

/// The first of the lines, each where it begins to differ from its counterpart among the `others`.
fn show(sign: char, lines: &[&str], others: &[&str], most: usize) -> Vec<String> {
    let whole = |line: &str| printable(&line.replace('\t', " "));
    let others = others.iter().map(|other| Some(whole(other))).chain(std::iter::repeat(None));
    let shown = lines.iter().take(MAX_LINES).zip(others).map(|(line, other)| {
        let line = whole(line);
        let from = other.map_or(0, |other| first_shown(&line, &other, most));
        let before = if from > 0 { "…" } else { "" };
        let rest: String = before.chars().chain(line.chars().skip(from)).collect();
        format!("  {sign} {}", cut(&rest, most))
    });
    let rest = lines.len().saturating_sub(MAX_LINES);
    let more = (rest > 0).then(|| format!("  {sign} … {rest} more"));
    shown.chain(more).collect()
}

/// The first character of a line to show, so that the place where it begins to differ from the other one is shown; 0 if
/// that is shown anyway, or if they do not differ.
fn first_shown(line: &str, other: &str, most: usize) -> usize {
    let same = line.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    if line == other || same + AROUND <= most { 0 } else { same.saturating_sub(AROUND) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_lines_are_shown() {
        let long = "x".repeat(200);
        let many = "line\n".repeat(20);
        for (before, after, expected) in [
            (
                Some("a\nb\nc"),
                Some("a\nB\nc"),
                vec!["    (1 line the same)", "  - b", "  + B", "    (1 line the same)"],
            ),
            (Some("a\na"), Some("a"), vec!["    (1 line the same)", "  - a"]),
            (Some("\u{1b}[1m\tb"), Some(""), vec!["  - \u{fffd}[1m b"]),
            (None, Some("b"), vec!["  - (not kept)", "  + b"]),
            (Some("a"), None, vec!["  - a", "  + (not kept)"]),
            (Some("a"), Some("a"), vec!["    (1 line the same)"]),
        ] {
            assert_eq!(excerpt(before, after), expected, "{before:?} {after:?}");
        }
        // A line is shown where it begins to differ.
        let words = "some words ".repeat(40);
        let (colored, plain) = (format!("{words}\u{1b}[32mok"), format!("{words}ok"));
        let lines = excerpt(Some(&colored), Some(&plain));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("  - …") && lines[0].ends_with(" some words \u{fffd}[32mok"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("  + …") && lines[1].ends_with(" some words ok"), "{lines:?}");
        let (one, other) = (format!("{words}{words}a{words}"), format!("{words}{words}b{words}"));
        for most in [MIN_WIDTH, 72, MAX_WIDTH] {
            let lines = excerpt_within(Some(&one), Some(&other), most);
            assert_ne!(lines[0][4..], lines[1][4..], "{most}");
            assert!(lines.iter().all(|line| line.chars().count() == SIGNS + most), "{lines:?}");
        }
        let lines = excerpt(Some(&many), Some(&long));
        assert_eq!((lines.len(), lines[8].as_str()), (10, "  - … 12 more"));
        assert_eq!(lines[9].chars().count(), 4 + MAX_WIDTH);
    }
}
