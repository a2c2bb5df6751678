//! `[shape]` and `[truncate]`: the settings of the shapers.
//!
//! The defaults are those of `shape::Settings`; nothing about shaping is decided here.

use crate::shape::Settings;
use crate::shape::settings::{Keep, NamePatterns, RUNS, SHELLS, Truncate, TruncateRule};

use super::section::Section;
use super::size::ByteSize;
use super::value::{Word, bad_pattern};

/// Which end of a text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Head,
    Tail,
    Both,
}

impl Word for End {
    const WORDS: &'static [(&'static str, Self)] =
        &[("head", Self::Head), ("tail", Self::Tail), ("both", Self::Both)];
}

const ONE: ByteSize = ByteSize::new(1);
const GIBIBYTE: ByteSize = ByteSize::new(1 << 30);
const MAX_LINES: usize = 1_000_000_000;
/// Half, in thousandths.
const HALF: u16 = 500;
/// The placeholders that a marker may contain.
const PLACEHOLDERS: &[&str] = &["removed", "total", "removed_plain", "total_plain", "recall"];
/// The hint for when a marker does not count towards the limits.
const MARKER_HINT: &str =
    "a marker that begins with words of its own and has {removed} once does not count towards the limits";

pub(super) fn shape(section: &mut Section<'_, '_>, default: Settings) -> Settings {
    let least = ByteSize::new(default.repeat_min_bytes);
    Settings {
        escapes: section.value("escapes", default.escapes),
        fold: section.value("fold", default.fold),
        minify: section.value("minify", default.minify),
        base64: section.value("base64", default.base64),
        repeat: section.value("repeat", default.repeat),
        repeat_min_bytes: section.within("repeat_min_bytes", ONE..=GIBIBYTE, least).bytes(),
        views: name_patterns(section, "views", default.views),
        truncate: default.truncate,
    }
}

/// The limits of `[truncate]`. For tools, only the fields that were set, there or in an entry for the same patterns
/// below: the others have the final value of `[truncate]`, whether the file, a preset or a profile sets it.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    base: Limit,
    tools: Vec<(NamePatterns, Given)>,
}

/// All fields of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    lines: usize,
    bytes: usize,
    end: End,
    /// If both ends are kept, the share of the first one in thousandths. It keeps its value if only one end is kept.
    head: u16,
}

/// The fields that a section sets.
#[derive(Debug, Clone, Copy, Default)]
struct Given {
    lines: Option<Lines>,
    bytes: Option<usize>,
    end: Option<End>,
    head: Option<u16>,
}

/// A number of lines.
#[derive(Debug, Clone, Copy)]
enum Lines {
    These(usize),
    TwiceAsMany,
}

/// The built-in entries: both ends are kept, for commands with twice as many lines as for other tools.
const BUILT_IN: [(&[&str], Given); 2] = [
    (SHELLS, Given { lines: Some(Lines::TwiceAsMany), bytes: None, end: Some(End::Both), head: None }),
    (RUNS, Given { lines: None, bytes: None, end: Some(End::Both), head: None }),
];

impl Default for Limits {
    fn default() -> Self {
        let Truncate { base, tools, .. } = Settings::default().truncate;
        let base = Limit::of(&base);
        let tools = tools.into_iter().map(|(patterns, rule)| {
            let given = Given::all_of(Limit::of(&rule)).or_built_in(&patterns, base);
            (patterns, given)
        });
        Self { base, tools: tools.collect() }
    }
}

impl Limits {
    /// Notes of shares of the beginning that no rule uses, since none with that share keeps both ends.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let note = |key: &str| format!("`{key}`: no effect without `keep = \"both\"`");
        let limits = || self.tools.iter().map(|(tools, given)| (tools, given, given.on(self.base)));
        let inherits = limits().any(|(_, given, limit)| given.head.is_none() && limit.end == End::Both);
        let base = self.base.head != HALF && self.base.end != End::Both && !inherits;
        let base = base.then(|| note("truncate.head_share"));
        let unused = limits().filter(|(_, given, limit)| given.head.is_some() && limit.end != End::Both);
        let unused = unused.map(|(tools, ..)| {
            note(&format!("truncate.tool.\"{}\".head_share", tools.patterns().join(", ")))
        });
        base.into_iter().chain(unused).collect()
    }
}

impl Limit {
    fn of(rule: &TruncateRule) -> Self {
        let (end, head) = match rule.keep {
            Keep::Head => (End::Head, HALF),
            Keep::Tail => (End::Tail, HALF),
            Keep::Both => (End::Both, HALF),
            Keep::Parts(thousandths) => (End::Both, thousandths),
        };
        Self { lines: rule.max_lines, bytes: rule.max_bytes, end, head }
    }

    fn rule(self) -> TruncateRule {
        let keep = match self.end {
            End::Head => Keep::Head,
            End::Tail => Keep::Tail,
            End::Both if self.head == HALF => Keep::Both,
            End::Both => Keep::Parts(self.head),
        };
        TruncateRule { max_lines: self.lines, max_bytes: self.bytes, keep }
    }
}

impl Given {
    const fn all_of(limit: Limit) -> Self {
        let Limit { lines, bytes, end, head } = limit;
        Self { lines: Some(Lines::These(lines)), bytes: Some(bytes), end: Some(end), head: Some(head) }
    }

    fn read(section: &mut Section<'_, '_>) -> Self {
        let bytes = section.optional_within("max_bytes", ONE..=GIBIBYTE).map(ByteSize::bytes);
        let head = section.optional_within("head_share", 0.0..=1.0);
        Self {
            lines: section.optional_within("max_lines", 1..=MAX_LINES).map(Lines::These),
            bytes,
            end: section.optional("keep"),
            head: head.map(|share| (share * 1000.0).round() as u16),
        }
    }

    /// Returns these fields, and those of an entry below for the fields that are missing. What belongs to keeping both
    /// ends, the share of the beginning and the double number of lines, goes if only one is kept.
    fn or(self, below: Self) -> Self {
        let keeps_both = self.end.is_none_or(|end| end == End::Both);
        let goes_with_both = |lines: &Lines| matches!(lines, Lines::TwiceAsMany);
        Self {
            lines: self.lines.or_else(|| below.lines.filter(|lines| keeps_both || !goes_with_both(lines))),
            bytes: self.bytes.or(below.bytes),
            end: self.end.or(below.end),
            head: self.head.or_else(|| below.head.filter(|_| keeps_both)),
        }
    }

    const fn is_empty(&self) -> bool {
        matches!(self, Self { lines: None, bytes: None, end: None, head: None })
    }

    fn on(self, base: Limit) -> Limit {
        let lines = match self.lines {
            None => base.lines,
            Some(Lines::These(lines)) => lines,
            Some(Lines::TwiceAsMany) => base.lines.saturating_mul(2).min(MAX_LINES),
        };
        Limit {
            lines,
            bytes: self.bytes.unwrap_or(base.bytes),
            end: self.end.unwrap_or(base.end),
            head: self.head.unwrap_or(base.head),
        }
    }

    /// Returns the built-in entry if this is the same one, written out.
    fn or_built_in(self, patterns: &NamePatterns, base: Limit) -> Self {
        let is_it = |(names, given): &&(&[&str], Self)| {
            patterns.patterns() == *names && self.on(base) == given.on(base)
        };
        BUILT_IN.iter().find(is_it).map_or(self, |(_, given)| *given)
    }
}

/// Reads the section, on top of the limits below it. An entry for a tool takes the fields that it lacks from one for
/// the same patterns below.
pub(super) fn truncate(
    section: &mut Section<'_, '_>,
    default: Truncate,
    below: &Limits,
) -> (Truncate, Limits) {
    let base = Given::read(section).on(below.base);
    let largest = ByteSize::new(default.error_max_bytes);
    let mut truncate = Truncate {
        base: base.rule(),
        tools: Vec::new(),
        error_max_bytes: section.within("error_max_bytes", ONE..=GIBIBYTE, largest).bytes(),
        exempt: name_patterns(section, "exempt", default.exempt),
        count_trailing_newline: section.value("count_trailing_newline", default.count_trailing_newline),
        marker: marker(section, default.marker),
    };
    let marker = MarkerSize::of(&truncate);
    let mut seen = Vec::new();
    let mut is_reported = false;
    let own = section.entries("tool", "GLOB", |names, section| {
        check_distinct(names, section, &mut seen);
        let entry = entry(names, section, base, &below.tools);
        if let Some((_, Some(given))) = &entry {
            is_reported |= marker.check(section, given.on(base));
        }
        entry
    });
    let tools = on_top(own.into_iter().flatten(), &below.tools);
    is_reported |= marker.check(section, base);
    if section.has("error_max_bytes") {
        marker.check_bytes(section, "error_max_bytes", truncate.error_max_bytes);
    }
    if !is_reported {
        let limits = tools.iter().map(|(_, given)| given.on(base));
        marker.check_marker(section, std::iter::once(base).chain(limits));
    }
    truncate.tools =
        tools.iter().map(|(patterns, given)| (patterns.clone(), given.on(base).rule())).collect();
    (truncate, Limits { base, tools })
}

/// The lines and bytes that the marker alone takes of each limit; zero if it does not count towards the limits.
#[derive(Clone, Copy)]
struct MarkerSize {
    lines: usize,
    bytes: usize,
}

impl MarkerSize {
    fn of(truncate: &Truncate) -> Self {
        let (lines, bytes) = truncate.least_of_marker().unwrap_or_default();
        Self { lines, bytes }
    }

    /// Reports limits that the section sets and that have no room for the marker. Returns whether there are any.
    fn check(self, section: &mut Section<'_, '_>, limit: Limit) -> bool {
        let has_few_lines = section.has("max_lines") && limit.lines < self.lines;
        if has_few_lines {
            let message =
                format!("too small: the marker alone takes {} lines, so nothing would be cut", self.lines);
            section.problem_with_hint("max_lines", message, MARKER_HINT);
        }
        let has_few_bytes = section.has("max_bytes") && self.check_bytes(section, "max_bytes", limit.bytes);
        has_few_lines || has_few_bytes
    }

    fn check_bytes(self, section: &mut Section<'_, '_>, key: &'static str, bytes: usize) -> bool {
        let is_few = bytes < self.bytes;
        if is_few {
            let message =
                format!("too small: the marker alone takes {} bytes, so nothing would be cut", self.bytes);
            section.problem_with_hint(key, message, MARKER_HINT);
        }
        is_few
    }

    /// Reports the marker if the section sets it, and limits that it does not set have no room for it.
    fn check_marker(self, section: &mut Section<'_, '_>, mut limits: impl Iterator<Item = Limit>) {
        let has_no_room = |limit: Limit| limit.lines < self.lines || limit.bytes < self.bytes;
        if section.has("marker") && limits.any(has_no_room) {
            let message = "is longer than the limits, so nothing would be cut";
            section.problem_with_hint("marker", message, MARKER_HINT);
        }
    }
}

/// Puts the entries of a section on top of those below it. The order matters, since the first that matches applies:
///
/// - An entry from below goes if the section sets something for the same patterns. The others keep their order.
/// - The section's entries keep the order of the file, and come before those from below.
/// - But one that replaces an entry from below comes after those that the file names before it without setting
///   anything: what the file changes of one entry does not overtake another.
fn on_top(own: impl Iterator<Item = Entry>, below: &[(NamePatterns, Given)]) -> Vec<(NamePatterns, Given)> {
    let own: Vec<Entry> = own.collect();
    let is_replaced = |tools: &NamePatterns| own.iter().any(|(own, given)| given.is_some() && own == tools);
    let stay: Vec<_> = below.iter().filter(|(tools, _)| !is_replaced(tools)).cloned().collect();
    let place = |tools: &NamePatterns| stay.iter().position(|(other, _)| other == tools);
    // Each with the number of entries that stay and come before it, and with whether it is one of these.
    let mut all: Vec<((usize, bool), (NamePatterns, Given))> = Vec::new();
    let (mut before, mut before_replacing) = (0, 0);
    for (tools, given) in own {
        let Some(given) = given else {
            before_replacing = before_replacing.max(place(&tools).map_or(0, |place| place + 1));
            continue;
        };
        if below.iter().any(|(other, _)| *other == tools) {
            before = before.max(before_replacing);
        }
        all.push(((before, false), (tools, given)));
    }
    all.extend(stay.into_iter().enumerate().map(|(place, entry)| ((place, true), entry)));
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, entry)| entry).collect()
}

/// An entry of a section; without fields, it is for the same patterns as one below and sets nothing.
type Entry = (NamePatterns, Option<Given>);

/// Reads an override for tools. Its name is a list of patterns, separated by commas.
fn entry(
    names: &str,
    section: &mut Section<'_, '_>,
    base: Limit,
    below: &[(NamePatterns, Given)],
) -> Option<Entry> {
    let given = Given::read(section);
    match NamePatterns::new(patterns(names)) {
        Ok(tools) => {
            let below = below.iter().find(|(patterns, _)| *patterns == tools).map(|(_, given)| *given);
            if below.is_some() && given.is_empty() {
                return Some((tools, None));
            }
            let given = given.or(below.unwrap_or_default()).or_built_in(&tools, base);
            Some((tools, Some(given)))
        }
        Err(error) => {
            section.problem_here(bad_pattern(names, &error));
            None
        }
    }
}

/// Reports an override that can apply to no tool. `seen` holds the names of the earlier ones.
fn check_distinct(names: &str, section: &mut Section<'_, '_>, seen: &mut Vec<(String, Vec<String>)>) {
    let patterns: Vec<String> = patterns(names).into_iter().map(str::to_lowercase).collect();
    if patterns.iter().all(String::is_empty) {
        section.problem_here("matches nothing: it is empty");
    } else if let Some((first, _)) = seen.iter().find(|(_, known)| *known == patterns) {
        section.problem_here(format!("never applies: {first:?} comes before it, and case does not matter"));
    }
    seen.push((names.to_owned(), patterns));
}

/// The patterns of a list, which are separated by commas.
fn patterns(names: &str) -> Vec<&str> {
    names.split(',').map(str::trim).collect()
}

pub(super) fn name_patterns(
    section: &mut Section<'_, '_>,
    key: &'static str,
    default: NamePatterns,
) -> NamePatterns {
    let Some(list) = section.list::<NamePatterns>(key) else { return default };
    let patterns = list.iter().flat_map(NamePatterns::patterns).map(String::as_str);
    match NamePatterns::new(patterns) {
        Ok(patterns) => patterns,
        Err(error) => {
            section.problem(key, error.to_string());
            default
        }
    }
}

fn marker(section: &mut Section<'_, '_>, default: String) -> String {
    let marker = section.value("marker", default);
    let begun = || marker.split('{').skip(1);
    let mut names = begun().filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let unclosed = begun().filter(|rest| !rest.contains('}')).find_map(|rest| {
        let end = rest.find(|next: char| !next.is_ascii_lowercase() && next != '_').unwrap_or(rest.len());
        PLACEHOLDERS.contains(&&rest[..end]).then(|| &rest[..end])
    });
    if let Some(name) = names.find(|name| !PLACEHOLDERS.contains(name)) {
        let hint = "the placeholders are {removed}, {total}, {removed_plain}, {total_plain} and {recall}";
        section.problem_with_hint("marker", format!("unknown placeholder {{{name}}}"), hint);
    } else if let Some(name) = unclosed {
        section.problem_with_hint(
            "marker",
            format!("{{{name} has no closing brace"),
            format!("write {{{name}}}"),
        );
    } else if marker.trim().is_empty() {
        section.problem("marker", "must not be empty, since a cut must be marked");
    }
    marker
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_lists_are_split_at_commas() {
        let cases: &[(&str, &[&str])] =
            &[("Bash", &["Bash"]), ("*bash*, *shell*", &["*bash*", "*shell*"]), ("}a,b", &["}a", "b"])];
        for (names, expected) in cases {
            assert_eq!(patterns(names), *expected, "{names}");
        }
    }
}
