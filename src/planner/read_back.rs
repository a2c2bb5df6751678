//! Recognises full texts that an agent reads back from where they were saved: whole or in part, with or without line
//! numbers, and with remarks of the tool above, below or around them.

use std::borrow::Cow;

use memchr::memmem;

use super::decision;
use crate::json::{self, Kind, scan};

/// The length of a full text's name, which is a number of hexadecimal digits.
const NAME_LEN: usize = 32;

/// How many names of full texts are looked up for one call.
const MAX_NAMES: usize = 8;

/// The most bytes that a tool may add above, below and around what it has read.
const MAX_REMARK: usize = 1024;

/// Remarks above and below a part of a text must also be no longer than that part divided by this.
const REMARK_DIVISOR: usize = 4;

/// The most bytes that may precede a line number, not counting spaces.
const MAX_BEFORE_NUMBER: usize = 2;

/// The most characters between a line number and its line.
const MAX_BEHIND_NUMBER: usize = 3;

/// How many lines a tool may add above a text of which only the name is known.
const MAX_HEAD_LINES: usize = 8;

/// How many styles of line numbers are tried for one text.
const MAX_STYLES: usize = 16;

/// Whether a result is the full text that its call names by id, or a part of that text.
///
/// `output` is the id that the result itself has. `full_text` looks up a text by its id. A result of more than `most`
/// bytes counts only if it is the full text byte for byte.
pub(super) fn is_read_back<T: AsRef<str>>(
    arguments: &str,
    texts: &[Cow<'_, str>],
    output: &str,
    most: usize,
    full_text: impl Fn(&str) -> Option<T>,
) -> bool {
    if arguments.contains(output) {
        return true;
    }
    let Some(text) = texts.iter().max_by_key(|text| text.len()).filter(|text| text.len() <= most) else {
        return false;
    };
    let beside = texts.iter().map(|text| text.len()).sum::<usize>() - text.len();
    if beside > MAX_REMARK || names(arguments).next().is_none() {
        return false;
    }
    let inner = text_in_document(text);
    let read = || [Some(&**text), inner.as_deref()].into_iter().flatten();
    let mut exact: Vec<&str> =
        names(arguments).filter(|name| name.len() == NAME_LEN).take(MAX_NAMES).collect();
    exact.sort_unstable();
    exact.dedup();
    let is_named = |text: &str| arguments.contains(&decision::output_id(&[text.into()]));
    exact.into_iter().filter_map(full_text).any(|full| read().any(|read| is_part(read, full.as_ref())))
        || read().any(|read| is_whole(read, is_named))
}

/// The runs of hexadecimal digits that are long enough to contain the name of a full text.
fn names(arguments: &str) -> impl Iterator<Item = &str> {
    arguments.split(|letter: char| !letter.is_ascii_hexdigit()).filter(|digits| digits.len() >= NAME_LEN)
}

/// The text in a JSON document that contains little else: `{"output": "…", "exit_code": 0}`.
fn text_in_document(text: &str) -> Option<Cow<'_, str>> {
    let document = text.as_bytes();
    let mut value = scan::document(document).ok()?;
    while text.len() - value.span.len() <= MAX_REMARK {
        let parts = match value.kind {
            Kind::String => return json::string::decode(value.span.of(document)),
            Kind::Object => {
                let members = scan::members_unchecked(document, value.span).ok()?;
                members.into_iter().map(|member| member.value).collect()
            }
            Kind::Array => scan::items(document, value.span).ok()?,
            Kind::Number | Kind::Bool | Kind::Null => return None,
        };
        value = parts.into_iter().max_by_key(|part| part.span.len())?;
    }
    None
}

/// Whether all lines but a few at both ends occur consecutively in a full text, with line numbers or without.
fn is_part(read: &str, full: &str) -> bool {
    let lines: Vec<&str> = read.lines().collect();
    let remark = MAX_REMARK.min(read.len() / REMARK_DIVISOR);
    let (above, below) = (count_within(lines.iter(), remark), count_within(lines.iter().rev(), remark));
    let lines = lines.get(above..lines.len() - below).unwrap_or_default();
    let full = if full.contains("\r\n") { full.replace("\r\n", "\n").into() } else { Cow::Borrowed(full) };
    let is_in = |lines: &[&str]| memmem::find(full.as_bytes(), lines.join("\n").as_bytes()).is_some();
    // The longest line shows the style of the numbers, because readers may shorten the separator on an empty line.
    let Some(longest) = lines.iter().max_by_key(|line| line.len()) else { return false };
    let is_in_without_numbers = |style: Numbering<'_>| {
        let lines: Option<Vec<&str>> = lines.iter().map(|line| style.without(line)).collect();
        lines.is_some_and(|lines| is_in(&lines))
    };
    is_in(lines) || Numbering::of(longest).any(is_in_without_numbers)
}

/// How many of the first lines fit into `bytes` bytes.
fn count_within<'l>(lines: impl Iterator<Item = &'l &'l str>, bytes: usize) -> usize {
    let mut left = bytes;
    let fits = |line: &&&str| left.checked_sub(line.len() + 1).map(|rest| left = rest).is_some();
    lines.take_while(fits).count()
}

/// Whether a text that was read is a named full text, possibly below remarks, or its lines with line numbers.
fn is_whole(read: &str, is_named: impl Fn(&str) -> bool) -> bool {
    let is_text = |text: &str| {
        // Some readers leave out the end of the last line, or add something below.
        let trimmed = text.trim_end_matches('\n');
        is_named(&format!("{trimmed}\n")) || is_named(trimmed) || is_named(text)
    };
    let is_any = |read: &str| {
        is_text(read) || without_head(read).any(&is_named) || without_numbers(read).any(|text| is_text(&text))
    };
    is_any(read) || read.contains("\r\n") && is_any(&read.replace("\r\n", "\n"))
}

/// The text without its first lines, for each number of them that may be a tool's remarks.
fn without_head(read: &str) -> impl Iterator<Item = &str> {
    let ends = read.match_indices('\n').map(|(at, _)| at + 1);
    ends.take(MAX_HEAD_LINES).take_while(|end| *end <= MAX_REMARK).map(|end| &read[end..])
}

/// The numbered lines of a text without their numbers, for each possible style of numbers. They must be consecutive,
/// with no more than a remark above and below.
fn without_numbers(read: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = read.split('\n').collect();
    let styles = numbering_styles(&lines);
    styles.into_iter().filter_map(move |(first, style)| {
        // Blank lines above belong to the text, because `nl` does not number them.
        let is_blank_above = lines[..first].iter().all(|line| line.trim_start_matches(' ').is_empty());
        let numbered = &lines[if is_blank_above { 0 } else { first }..];
        let texts: Vec<&str> = numbered.iter().map_while(|line| style.without(line)).collect();
        let below: usize = numbered[texts.len()..].iter().map(|line| line.len() + 1).sum();
        (below <= MAX_REMARK).then(|| texts.join("\n"))
    })
}

/// The styles that the numbers of these lines may have, each with the index of the first line in it. Only lines below
/// no more than a remark are looked at.
fn numbering_styles<'l>(lines: &[&'l str]) -> Vec<(usize, Numbering<'l>)> {
    let mut styles: Vec<(usize, Numbering<'_>)> = Vec::new();
    let mut above = 0;
    for (at, line) in lines.iter().enumerate() {
        if above > MAX_REMARK {
            break;
        }
        above += line.len() + 1;
        for style in Numbering::of(line) {
            if styles.len() < MAX_STYLES && !styles.iter().any(|(_, known)| *known == style) {
                styles.push((at, style));
            }
        }
    }
    styles
}

/// A style of line numbers: what precedes and follows the number, as in `cat -n`, `nl`, `grep -n` and the file readers
/// of agents.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Numbering<'l> {
    before: &'l str,
    behind: &'l str,
}

impl<'l> Numbering<'l> {
    /// The styles that a line may have.
    fn of(line: &'l str) -> impl Iterator<Item = Self> {
        let line = line.trim_start_matches(' ');
        let digits =
            line.find(|letter: char| letter.is_ascii_digit()).filter(|digits| *digits <= MAX_BEFORE_NUMBER);
        let (before, numbered) = line.split_at(digits.unwrap_or(line.len()));
        let rest = numbered.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let signs =
            rest.char_indices().take(MAX_BEHIND_NUMBER).take_while(|(_, sign)| !sign.is_alphanumeric());
        let ends = signs.map(move |(at, sign)| &rest[..at + sign.len_utf8()]);
        ends.filter(|behind| !behind.trim_start_matches(' ').is_empty())
            .map(move |behind| Self { before, behind })
    }

    /// A line without its number. `nl` leaves empty lines blank.
    fn without(self, line: &str) -> Option<&str> {
        let line = line.trim_start_matches(' ');
        if line.is_empty() {
            return Some("");
        }
        let numbered = line.strip_prefix(self.before)?;
        let rest = numbered.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let is_empty = || (rest == self.behind.trim_end()).then_some("");
        if rest.len() < numbered.len() { rest.strip_prefix(self.behind).or_else(is_empty) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_backs_are_recognised_despite_line_numbers() {
        let text = "fn a() {\n\n  1: x\n}\n";
        let named =
            |text: &str| format!(r#"{{"file_path":"/o/{}.txt"}}"#, decision::output_id(&[text.into()]));
        for (read, expected) in [
            (text, true),
            ("     1\tfn a() {\n     2\t\n     3\t  1: x\n     4\t}\n", true),
            ("     1\tfn a() {\n       \n     2\t  1: x\n     3\t}\n", true),
            ("1→fn a() {\n2→\n3→  1: x\n4→}\n5→", true),
            ("     1→fn a() {\n     2→\n     3→  1: x\n     4→}", true),
            ("1:fn a() {\n2:\n3:  1: x\n4:}\n", true),
            (
                "1: fn a() {\n2: \n3:   1: x\n4: }\n\n<system-reminder>\nIt is a file.\n</system-reminder>",
                true,
            ),
            (&*format!("1\tfn a() {{\n2\t\n3\t  1: x\n4\t}}\n{}", "other\n".repeat(170)), true),
            (&*format!("1\tfn a() {{\n2\t\n3\t  1: x\n4\t}}\n{}", "other\n".repeat(171)), false),
            ("     1\tfn a() {\n     2\t\n     3\t  1: x\n", false),
            ("     1\tfn b() {\n     2\t\n     3\t  1: x\n     4\t}\n", false),
            ("1 fn a() {\n2 \n3   1: x\n4 }\n", false),
            ("", false),
            ("\n\n", false),
        ] {
            let texts = [Cow::Borrowed(read)];
            let own = decision::output_id(&texts);
            assert_eq!(
                is_read_back(&named(text), &texts, &own, 2000, |_| None::<String>),
                expected,
                "{read}"
            );
            assert_eq!(
                is_read_back(&named(text), &texts, &own, 9, |_| None::<String>),
                expected && read == text,
                "{read}"
            );
            assert!(
                !is_read_back(r#"{"file_path":"/o/a.txt"}"#, &texts, &own, 2000, |_| None::<String>),
                "{read}"
            );
        }
    }

    /// Some formats are recognised only where the full text is known.
    #[test]
    fn read_backs_are_recognised_within_tool_output_formats() {
        let lines: Vec<String> = (1..=90)
            .map(|at| if at % 9 == 4 { String::new() } else { format!("  line {at} of it") })
            .collect();
        let text = lines.join("\n") + "\n";
        let name = decision::output_id(&[text.as_str().into()]);
        let numbered = |from: usize, line: &dyn Fn(usize, &str) -> String| {
            lines
                .iter()
                .enumerate()
                .skip(from - 1)
                .map(|(at, text)| line(at + 1, text) + "\n")
                .collect::<String>()
        };
        let colons = |from| numbered(from, &|at, line| format!("{at}: {line}"));
        let page = || lines[20..80].join("\n");
        let shell = "Chunk ID: 3f2a91\nWall time: 0.05 seconds\nProcess exited with code 0\nOutput:\n";
        let json = |value: serde_json::Value| value.to_string();
        let remarks = |bytes: usize| "x".repeat(bytes / 2) + "\n" + &"y".repeat(bytes - bytes / 2 - 2) + "\n";
        for (read, (known, unknown)) in [
            // Headers of shells, and their documents.
            (format!("{shell}{text}"), (true, true)),
            (format!("Exit code: 0\nWall time: 0.1 seconds\nOutput:\n{}", page()), (true, false)),
            (json(serde_json::json!({"output": text, "metadata": {"exit_code": 0}})), (true, true)),
            (json(serde_json::json!({"stdout": text.trim_end(), "stderr": ""})), (true, true)),
            (json(serde_json::json!([{"type": "text", "text": text}])), (true, true)),
            (json(serde_json::json!({"output": page()})), (true, false)),
            (json(serde_json::json!({"output": text, "other": remarks(MAX_REMARK)})), (false, false)),
            (json(serde_json::json!({"output": 1})), (false, false)),
            ("{".repeat(200), (false, false)),
            // Readers of agents.
            (format!("<path>/o</path>\n<content>\n{}\n(End of file)\n</content>", colons(1)), (true, true)),
            (format!("<file>\n{}</file>", numbered(1, &|at, line| format!("{at:05}| {line}"))), (true, true)),
            (numbered(1, &|at, line| format!("L{at}: {line}")), (true, true)),
            (numbered(1, &|at, line| format!("{at:6}|{line}")), (true, true)),
            (numbered(1, &|at, line| format!("{at:4} | {line}")), (true, true)),
            (numbered(1, &|at, line| format!("{at}→\t{line}")), (true, true)),
            (numbered(1, &|at, line| format!("{at}: {line}").trim_end().to_owned()), (true, true)),
            (numbered(1, &|at, line| format!("{:6}\t{line}\r", at - 1)), (true, true)),
            (numbered(1, &|at, line| format!("{at} {line}")), (false, false)),
            (numbered(1, &|at, line| format!("{at}x{line}")), (false, false)),
            // Parts.
            (page(), (true, false)),
            (page().replace('\n', "\r\n"), (true, false)),
            (format!("{}\nShowing lines 30 to 90 of 90", colons(30)), (true, false)),
            (format!("Status: Showing lines 21-80 of 90.\n--- FILE CONTENT ---\n{}", page()), (true, false)),
            (page().replace("line 50 ", "line 51 "), (false, false)),
            (colons(30).replace("50: ", "50. "), (false, false)),
            (lines.iter().step_by(2).map(String::as_str).collect::<Vec<_>>().join("\n"), (false, false)),
            // Remarks above and below a text are short, and shorter for a short text.
            (format!("{}{text}{}", remarks(400), remarks(400)), (true, false)),
            (format!("{}{text}", "x\n".repeat(MAX_HEAD_LINES)), (true, true)),
            (format!("{}{text}", "x\n".repeat(MAX_HEAD_LINES + 1)), (true, false)),
            (format!("{}\n{text}", "x".repeat(MAX_REMARK)), (false, false)),
            (format!("{}{text}", remarks(900)), (true, true)),
            (format!("{}{text}", "x\n".repeat(450)), (false, false)),
            (format!("{text}{}", remarks(900)), (false, false)),
            (format!("{}{}{}", remarks(MAX_REMARK), colons(1), remarks(MAX_REMARK - 1)), (true, true)),
            (format!("{}{}", remarks(MAX_REMARK + 2), colons(1)), (false, false)),
        ] {
            let texts = [Cow::Borrowed(&*read)];
            let own = decision::output_id(&texts);
            for (is_known, expected) in [(true, known), (false, unknown)] {
                let full_text = |asked: &str| (is_known && asked == name).then(|| text.clone());
                let call = |name: &str| format!(r#"{{"path":"/o/{name}.txt"}}"#);
                let found = is_read_back(&call(&name), &texts, &own, 9000, full_text);
                assert_eq!(found, expected, "{is_known} {read}");
                assert!(!is_read_back(&call(&name), &texts, &own, 500, full_text), "{read}");
                assert!(!is_read_back(&call(&"0".repeat(NAME_LEN)), &texts, &own, 9000, full_text), "{read}");
            }
        }
    }

    /// There may be short texts besides the one that was read.
    #[test]
    fn read_backs_are_recognised_next_to_short_remarks() {
        let text = "a line\n".repeat(300);
        let call = format!("cat /o/{}.txt", decision::output_id(&[text.as_str().into()]));
        for (beside, expected) in [(0, true), (MAX_REMARK, true), (MAX_REMARK + 1, false)] {
            let beside = "x".repeat(beside);
            let texts = [Cow::Borrowed(&*beside), Cow::Borrowed(&*text)];
            let own = decision::output_id(&texts);
            assert_eq!(
                is_read_back(&call, &texts, &own, 9000, |_| None::<String>),
                expected || beside.is_empty()
            );
        }
    }
}
