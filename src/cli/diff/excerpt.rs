//! Two texts compared in a few lines: what is gone, and what replaced it.

use crate::cli::table::{cut, printable};

/// The maximum number of lines shown of each.
const MAX_LINES: usize = 8;
/// The maximum number of characters shown of a line.
const MAX_WIDTH: usize = 96;

/// The first of the lines in which two texts differ. An unknown text is reported as such.
pub(super) fn excerpt(before: Option<&str>, after: Option<&str>) -> Vec<String> {
    let (Some(before), Some(after)) = (before, after) else {
        let mut lines = Vec::new();
        for (sign, text) in [('-', before), ('+', after)] {
            match text {
                Some(text) => lines.extend(show(sign, &text.lines().collect::<Vec<_>>())),
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
    lines.extend(show('-', before));
    lines.extend(show('+', after));
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

fn show(sign: char, lines: &[&str]) -> Vec<String> {
    let shown = |line: &&str| cut(&printable(&line.replace('\t', " ")), MAX_WIDTH);
    let shown = lines.iter().take(MAX_LINES).map(|line| format!("  {sign} {}", shown(line)));
    let rest = lines.len().saturating_sub(MAX_LINES);
    let more = (rest > 0).then(|| format!("  {sign} … {rest} more"));
    shown.chain(more).collect()
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
        let lines = excerpt(Some(&many), Some(&long));
        assert_eq!((lines.len(), lines[8].as_str()), (10, "  - … 12 more"));
        assert_eq!(lines[9].chars().count(), 4 + MAX_WIDTH);
    }
}
