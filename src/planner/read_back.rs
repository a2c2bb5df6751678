//! Recognises full texts that an agent reads back from where they were saved: whole or in part, with or without line
//! numbers, and with remarks of the tool above, below or around them.

use std::borrow::Cow;

use memchr::memmem;

use super::decision;
use crate::json::{self, Kind, scan};

/// Letters in the name of a full text.
const NAME: usize = 32;

/// How many names of full texts are checked in one call.
const NAMES: usize = 8;

/// The most bytes that a tool may add above, below and around what it has read.
const REMARK: usize = 1024;

/// Above and below a part, one byte in so many of it is the limit.
const LITTLE: usize = 4;

/// The most bytes that may stand before a line number, spaces aside.
const BEFORE: usize = 2;

/// The most characters that may stand between the number and its line.
const BEHIND: usize = 3;

/// How many lines a tool may add above a text of which only the name is known.
const HEAD: usize = 8;

/// How many styles of line numbers are tried for one text.
const WAYS: usize = 16;

/// Whether a result is, or is part of, the full text that its call names by id. `output` is the result's own id. A
/// result of more than `most` bytes counts only if it is the full text byte for byte. `full_text` looks up a text by
/// its id.
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
    if beside > REMARK || !names(arguments).any(|_| true) {
        return false;
    }
    let inner = within(text);
    let read = || [Some(&**text), inner.as_deref()].into_iter().flatten();
    let mut exact: Vec<&str> = names(arguments).filter(|name| name.len() == NAME).take(NAMES).collect();
    exact.sort_unstable();
    exact.dedup();
    let is_named = |text: &str| arguments.contains(&decision::output_id(&[text.into()]));
    exact.into_iter().filter_map(full_text).any(|full| read().any(|read| is_part(read, full.as_ref())))
        || read().any(|read| is_whole(read, is_named))
}

/// What may be names of full texts.
fn names(arguments: &str) -> impl Iterator<Item = &str> {
    arguments.split(|letter: char| !letter.is_ascii_hexdigit()).filter(|letters| letters.len() >= NAME)
}

/// The text in a document that holds little else: `{"output": "…", "exit_code": 0}`.
fn within(text: &str) -> Option<Cow<'_, str>> {
    let document = text.as_bytes();
    let mut value = scan::document(document).ok()?;
    while text.len() - value.span.len() <= REMARK {
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
    let little = REMARK.min(read.len() / LITTLE);
    let (above, below) = (few(lines.iter(), little), few(lines.iter().rev(), little));
    let lines = lines.get(above..lines.len() - below).unwrap_or_default();
    let full = if full.contains("\r\n") { full.replace("\r\n", "\n").into() } else { Cow::Borrowed(full) };
    let is_in = |lines: &[&str]| memmem::find(full.as_bytes(), lines.join("\n").as_bytes()).is_some();
    // On an empty line, readers may shorten the separator behind its number.
    let longest = lines.iter().max_by_key(|line| line.len());
    longest.is_some_and(|longest| {
        let mut ways = Numbering::of(longest);
        is_in(lines)
            || ways.any(|way| {
                let lines: Option<Vec<&str>> = lines.iter().map(|line| way.without(line)).collect();
                lines.is_some_and(|lines| is_in(&lines))
            })
    })
}

/// How many of the first lines fit into so many bytes.
fn few<'l>(lines: impl Iterator<Item = &'l &'l str>, bytes: usize) -> usize {
    let mut left = bytes;
    let fits = |line: &&&str| left.checked_sub(line.len() + 1).map(|rest| left = rest).is_some();
    lines.take_while(fits).count()
}

/// Whether this is a named full text, possibly below remarks, or its lines with line numbers.
fn is_whole(read: &str, is_named: impl Fn(&str) -> bool) -> bool {
    let is_text = |text: &str| {
        // Some readers leave out the end of the last line, or add something below.
        let trimmed = text.trim_end_matches('\n');
        is_named(&format!("{trimmed}\n")) || is_named(trimmed) || is_named(text)
    };
    let is_any = |read: &str| {
        is_text(read) || behind_a_head(read).any(&is_named) || numbered(read).any(|text| is_text(&text))
    };
    is_any(read) || read.contains("\r\n") && is_any(&read.replace("\r\n", "\n"))
}

/// The text without its first lines, for each number of them that may be a tool's remarks.
fn behind_a_head(read: &str) -> impl Iterator<Item = &str> {
    let ends = read.match_indices('\n').map(|(at, _)| at + 1);
    ends.take(HEAD).take_while(|end| *end <= REMARK).map(|end| &read[end..])
}

/// The numbered lines of a text without their numbers, for each possible style of numbers. They must be consecutive,
/// with no more than a remark above and below.
fn numbered(read: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = read.split('\n').collect();
    let mut above = 0;
    let near = |line: &&str| {
        let is_near = above <= REMARK;
        above += line.len() + 1;
        is_near
    };
    let mut ways: Vec<(usize, Numbering<'_>)> = Vec::new();
    for (at, line) in lines.iter().copied().take_while(near).enumerate() {
        for way in Numbering::of(line) {
            if ways.len() < WAYS && !ways.iter().any(|(_, known)| *known == way) {
                ways.push((at, way));
            }
        }
    }
    ways.into_iter().filter_map(move |(at, way)| {
        let is_first = lines[..at].iter().all(|line| line.trim_start_matches(' ').is_empty());
        let numbered = &lines[if is_first { 0 } else { at }..];
        let texts: Vec<&str> = numbered.iter().map_while(|line| way.without(line)).collect();
        let below: usize = numbered[texts.len()..].iter().map(|line| line.len() + 1).sum();
        (below <= REMARK).then(|| texts.join("\n"))
    })
}

/// A style of line numbers: what stands before and behind the number, as in `cat -n`, `nl`, `grep -n` and the readers
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
        let digits = line.find(|letter: char| letter.is_ascii_digit()).filter(|digits| *digits <= BEFORE);
        let (before, numbered) = line.split_at(digits.unwrap_or(line.len()));
        let rest = numbered.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let signs = rest.char_indices().take(BEHIND).take_while(|(_, sign)| !sign.is_alphanumeric());
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
    fn numbers_of_lines_are_no_text() {
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

    /// Some are told where the full text is known alone.
    #[test]
    fn what_tools_say_is_no_text() {
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
            (json(serde_json::json!({"output": text, "other": remarks(REMARK)})), (false, false)),
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
            (format!("{}{text}", "x\n".repeat(HEAD)), (true, true)),
            (format!("{}{text}", "x\n".repeat(HEAD + 1)), (true, false)),
            (format!("{}\n{text}", "x".repeat(REMARK)), (false, false)),
            (format!("{}{text}", remarks(900)), (true, true)),
            (format!("{}{text}", "x\n".repeat(450)), (false, false)),
            (format!("{text}{}", remarks(900)), (false, false)),
            (format!("{}{}{}", remarks(REMARK), colons(1), remarks(REMARK - 1)), (true, true)),
            (format!("{}{}", remarks(REMARK + 2), colons(1)), (false, false)),
        ] {
            let texts = [Cow::Borrowed(&*read)];
            let own = decision::output_id(&texts);
            for (is_known, expected) in [(true, known), (false, unknown)] {
                let full_text = |asked: &str| (is_known && asked == name).then(|| text.clone());
                let call = |name: &str| format!(r#"{{"path":"/o/{name}.txt"}}"#);
                let found = is_read_back(&call(&name), &texts, &own, 9000, full_text);
                assert_eq!(found, expected, "{is_known} {read}");
                assert!(!is_read_back(&call(&name), &texts, &own, 500, full_text), "{read}");
                assert!(!is_read_back(&call(&"0".repeat(NAME)), &texts, &own, 9000, full_text), "{read}");
            }
        }
    }

    /// Beside the text there may be short ones.
    #[test]
    fn texts_beside_the_one_that_is_read_are_remarks() {
        let text = "a line\n".repeat(300);
        let call = format!("cat /o/{}.txt", decision::output_id(&[text.as_str().into()]));
        for (beside, expected) in [(0, true), (REMARK, true), (REMARK + 1, false)] {
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
