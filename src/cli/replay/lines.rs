//! Lines that can be recognised when they are quoted: long ones, without the numbers that tools put before them.

use std::borrow::Cow;

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// The minimum number of characters of such a line.
const MIN_CHARS: usize = 40;

/// The maximum depth to which JSON within texts is searched.
const MAX_DEPTH: usize = 32;

/// Hashes of lines, sorted and without duplicates.
pub(super) type Lines = Box<[u64]>;

/// The lines of several texts.
pub(super) fn of_texts<'t>(texts: impl Iterator<Item = Cow<'t, str>>) -> Lines {
    let mut lines = Vec::new();
    texts.for_each(|text| add(&text, &mut lines));
    finish(lines)
}

/// The lines of the texts in a call's arguments.
pub(super) fn of_arguments(arguments: &str) -> Lines {
    let mut lines = Vec::new();
    add_text(arguments, 0, &mut lines);
    finish(lines)
}

/// Adds the lines of a text; if the text is JSON, those of the texts in it.
fn add_text(text: &str, depth: usize, lines: &mut Vec<u64>) {
    if depth < MAX_DEPTH
        && text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        add_value(&value, depth + 1, lines);
        return;
    }
    add(text, lines);
}

fn add_value(value: &Value, depth: usize, lines: &mut Vec<u64>) {
    match value {
        Value::String(text) => add_text(text, depth, lines),
        Value::Array(items) => items.iter().for_each(|item| add_value(item, depth, lines)),
        Value::Object(members) => members.values().for_each(|member| add_value(member, depth, lines)),
        _ => {}
    }
}

fn add(text: &str, lines: &mut Vec<u64>) {
    let long = text.split('\n').map(|line| without_number(line).trim());
    let long = long.filter(|line| line.len() >= MIN_CHARS && line.chars().nth(MIN_CHARS - 1).is_some());
    lines.extend(long.map(|line| xxh3_64(line.as_bytes())));
}

fn finish(mut lines: Vec<u64>) -> Lines {
    lines.sort_unstable();
    lines.dedup();
    lines.into()
}

/// The line without the number that a tool put before it: `  12→`, `12:`, `12 |`, or `12` and a tab.
fn without_number(line: &str) -> &str {
    let start = line.trim_start();
    let rest = start.trim_start_matches(|digit: char| digit.is_ascii_digit());
    if rest.len() == start.len() {
        return line;
    }
    let behind = rest.trim_start();
    let gap = &rest[..rest.len() - behind.len()];
    match behind.strip_prefix(['→', ':', '|']) {
        Some(text) => text,
        None if gap.contains('\t') => behind,
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_number_prefixes_are_stripped() {
        for (line, expected) in [
            ("fn main()", "fn main()"),
            ("    12→fn main()", "fn main()"),
            ("12:\tfn main()", "\tfn main()"),
            ("12 | fn main()", " fn main()"),
            ("12\t    fn main()", "fn main()"),
            ("12 apples", "12 apples"),
            ("12", "12"),
            ("→x", "→x"),
            ("", ""),
        ] {
            assert_eq!(without_number(line), expected, "{line:?}");
        }
    }

    #[test]
    fn distinct_long_lines_are_counted_once() {
        let long = "a".repeat(MIN_CHARS);
        let short = "a".repeat(MIN_CHARS - 1);
        let wide = "é".repeat(MIN_CHARS - 1);
        for (text, count) in [
            (format!("{long}\n  3→  {long}  \n"), 1),
            (format!("{long}\n{long}b"), 2),
            (format!("{short}\n{wide}"), 0),
            (format!(r#"{{"a":["{long}",{{"b":"{long}b"}}],"c":1}}"#), 2),
            (format!(r#"{{"a":"{{\"b\":\"{long}\"}}"}}"#), 1),
            (format!("{{{long}"), 1),
        ] {
            assert_eq!(of_arguments(&text).len(), count, "{text}");
        }
        let both = of_arguments(&format!("7: {long}"));
        assert_eq!(both, of_texts([Cow::from(&*long)].into_iter()));
    }
}
