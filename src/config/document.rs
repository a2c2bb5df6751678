//! The text of a configuration, as a table whose keys know their lines.
//!
//! Parsing recovers from mistakes in the syntax, so that an unclosed quote does not hide all other mistakes.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::de::{DeTable, DeValue, Error};

use super::problem::Problem;

/// A text that the parser can read to its end, with the same lines as the original.
pub(super) struct Source {
    text: String,
    lines: Lines,
    /// What was repaired: the line, and the parser's message.
    repaired: Vec<(usize, String)>,
}

/// Syntax errors after which the parser loses what follows, by the parser's wording.
const FATAL: &[(&str, Repair)] = &[
    ("key with no value", Repair::Empty),
    ("unclosed table", Repair::Close),
    ("unclosed array table", Repair::Close),
];

/// How a line is changed so that the parser can read the following ones.
#[derive(Clone, Copy)]
enum Repair {
    /// All of it is removed.
    Empty,
    /// A missing bracket is added.
    Close,
}

/// The maximum number of rounds of repair, after which the text is taken as it is.
const MAX_ROUNDS: usize = 8;

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let mut source = Self { text: text.to_owned(), lines: Lines::of(text), repaired: Vec::new() };
        for _ in 0..MAX_ROUNDS {
            let (_, mut fatal) = DeTable::parse_recoverable(&source.text);
            fatal.retain(|error| repair_for(error).is_some());
            if fatal.is_empty() {
                break;
            }
            source.repair(&fatal);
        }
        source
    }

    /// Repairs from the end to the beginning, so that the positions of the remaining errors stay valid.
    fn repair(&mut self, fatal: &[Error]) {
        let mut places: Vec<_> =
            fatal.iter().filter_map(|error| Some((error.span()?.start, repair_for(error)?, error))).collect();
        places.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        places.dedup_by_key(|(at, ..)| self.lines.line(*at));
        for (at, repair, error) in places {
            let line = self.lines.line(at);
            match repair {
                Repair::Empty => self.text.replace_range(self.lines.range(line, self.text.len()), ""),
                Repair::Close if self.text.is_char_boundary(at) => self.text.insert(at, ']'),
                Repair::Close => {}
            }
            self.repaired.push((line, words(error)));
        }
        self.lines = Lines::of(&self.text);
    }
}

/// The parser's message, on one line.
fn words(error: &Error) -> String {
    let nothing = error.span().is_some_and(|span| span.is_empty());
    match error.message() {
        message if message.starts_with("string values must be quoted") && nothing => {
            "missing value".to_owned()
        }
        message => message.replace('\n', " "),
    }
}

fn repair_for(error: &Error) -> Option<Repair> {
    let message = error.message();
    let kind = message.split_once(',').map_or(message, |(kind, _)| kind);
    FATAL.iter().find(|(words, _)| *words == kind).map(|(_, repair)| *repair)
}

/// A parsed text, as far as it could be read.
pub(super) struct Document<'t> {
    /// The root table.
    pub(super) table: DeTable<'t>,
    /// The mistakes of syntax, at most one per line, and all keys that are set twice.
    pub(super) problems: Vec<Problem>,
    lines: &'t Lines,
    broken: BTreeSet<usize>,
}

impl<'t> Document<'t> {
    pub(super) fn parse(source: &'t Source) -> Self {
        let Source { text, lines, repaired } = source;
        let (table, errors) = DeTable::parse_recoverable(text);
        let table = table.into_inner();
        let mut keys = Vec::new();
        collect_keys(&table, "", &mut keys);

        let mut problems = Vec::new();
        let mut syntax: Vec<_> =
            repaired.iter().map(|(line, message)| (Some(*line), message.clone())).collect();
        for error in &errors {
            match set_twice(error, text, &keys, lines) {
                Some(problem) => problems.push(problem),
                None => syntax.push((error.span().map(|span| lines.line(span.start)), words(error))),
            }
        }
        let mut broken = BTreeSet::new();
        for (line, message) in syntax {
            if line.is_none_or(|line| broken.insert(line)) {
                problems.push(Problem { path: String::new(), line, message, hint: None });
            }
        }
        Self { table, problems, lines, broken }
    }

    /// The line of a byte offset, counted from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.lines.line(offset)
    }

    /// Whether the syntax of a line is wrong: what was recovered from it is a guess, and not reported on.
    pub(super) fn is_broken(&self, line: usize) -> bool {
        self.broken.contains(&line)
    }
}

/// The offsets at which the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after_breaks).collect())
    }

    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    /// The bytes of a line without its line break, in a text of `length` bytes.
    fn range(&self, line: usize, length: usize) -> Range<usize> {
        let start = self.0.get(line - 1).copied().unwrap_or(length);
        let end = self.0.get(line).map_or(length, |next| next - 1);
        start..end.max(start)
    }
}

/// A key, and where it is.
struct KeySpan {
    path: String,
    key: String,
    span: Range<usize>,
}

fn collect_keys(table: &DeTable<'_>, parent: &str, keys: &mut Vec<KeySpan>) {
    for (key, value) in table {
        let path = join(parent, key.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            collect_keys(inner, &path, keys);
        }
        keys.push(KeySpan { path, key: key.get_ref().to_string(), span: key.span() });
    }
}

/// Reports a key that is set twice. The parser reports only the place of the second one; the first is the nearest
/// earlier key of that name, since the keys of a table are next to each other.
fn set_twice(error: &Error, text: &str, keys: &[KeySpan], lines: &Lines) -> Option<Problem> {
    if error.message() != "duplicate key" {
        return None;
    }
    let span = error.span()?;
    let key = text.get(span.clone())?.trim_matches(['"', '\'']);
    let first = keys
        .iter()
        .filter(|known| known.key == key && known.span.start <= span.start)
        .max_by_key(|known| known.span.start);
    let message = match first {
        Some(known) if known.span.start < span.start => {
            format!("set twice, first on line {}", lines.line(known.span.start))
        }
        _ => "set twice".to_owned(),
    };
    let path = first.map_or_else(|| join("", key), |known| known.path.clone());
    Some(Problem { path, line: Some(lines.line(span.start)), message, hint: None })
}

/// A key path extended by one key, which is quoted if TOML requires it.
pub(super) fn join(parent: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}
