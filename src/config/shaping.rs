//! `[shape]` and `[truncate]`: what the shapers are told.
//!
//! The defaults are those that `shape::Settings` has; nothing about shaping is decided here.

use crate::shape::Settings;
use crate::shape::settings::{Keep, NamePatterns, SHELLS, Truncate, TruncateRule};

use super::section::Section;
use super::size::ByteSize;
use super::value::{Share, Word, bad_pattern};

/// Which end is kept, in a word.
#[derive(Clone, Copy)]
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
const MOST_LINES: usize = 1_000_000_000;
const HALF: f64 = 0.5;
/// What a marker may have filled in.
const PLACEHOLDERS: &[&str] = &["removed", "total", "removed_plain", "total_plain", "recall"];

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

pub(super) fn truncate(section: &mut Section<'_, '_>, default: Truncate) -> Truncate {
    let base = rule(section, &default.base);
    let largest = ByteSize::new(default.error_max_bytes);
    let error_max_bytes = section.within("error_max_bytes", ONE..=GIBIBYTE, largest).bytes();
    let exempt = name_patterns(section, "exempt", default.exempt);
    let count_trailing_newline = section.value("count_trailing_newline", default.count_trailing_newline);
    let marker = marker(section, default.marker);
    let own = section.entries("tool", "GLOB", |names, section| entry(names, section, &base));
    let mut tools: Vec<_> = own.into_iter().flatten().collect();
    // The entries that are there already stay, behind the section's own, unless it has the very same patterns. The
    // shipped one follows the limits of the others: it has both ends, and of each end as many lines as they of one.
    let shipped = shipped(&default.base);
    let entries = default.tools.into_iter().map(|(patterns, rule)| {
        let follows = patterns.patterns() == SHELLS && rule == shipped;
        (patterns, if follows { self::shipped(&base) } else { rule })
    });
    for entry in entries {
        if tools.iter().all(|(patterns, _)| *patterns != entry.0) {
            tools.push(entry);
        }
    }
    Truncate { base, tools, exempt, error_max_bytes, count_trailing_newline, marker }
}

fn rule(section: &mut Section<'_, '_>, default: &TruncateRule) -> TruncateRule {
    let most = ByteSize::new(default.max_bytes);
    TruncateRule {
        max_lines: section.within("max_lines", 1..=MOST_LINES, default.max_lines),
        max_bytes: section.within("max_bytes", ONE..=GIBIBYTE, most).bytes(),
        keep: keep(section, default.keep),
    }
}

/// `keep`, and how much of both ends is the first one.
fn keep(section: &mut Section<'_, '_>, default: Keep) -> Keep {
    let (end, share) = match default {
        Keep::Head => (End::Head, HALF),
        Keep::Tail => (End::Tail, HALF),
        Keep::Both => (End::Both, HALF),
        Keep::Parts(thousandths) => (End::Both, f64::from(thousandths) / 1000.0),
    };
    let end = section.value("keep", end);
    let share = section.within("head_share", Share(0.0)..=Share(1.0), Share(share)).0;
    match end {
        End::Head => Keep::Head,
        End::Tail => Keep::Tail,
        End::Both if (share - HALF).abs() < 0.0005 => Keep::Both,
        End::Both => Keep::Parts((share * 1000.0).round() as u16),
    }
}

/// The rule of the shipped override.
fn shipped(base: &TruncateRule) -> TruncateRule {
    TruncateRule { keep: Keep::Both, max_lines: base.max_lines.saturating_mul(2), ..base.clone() }
}

/// One override. Its name is a list of patterns, with commas between them.
fn entry(
    names: &str,
    section: &mut Section<'_, '_>,
    base: &TruncateRule,
) -> Option<(NamePatterns, TruncateRule)> {
    let rule = rule(section, base);
    match NamePatterns::new(patterns(names)) {
        Ok(tools) => Some((tools, rule)),
        Err(error) => {
            section.problem_here(bad_pattern(names, &error), None);
            None
        }
    }
}

/// The patterns of a list.
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
            section.problem(key, error.to_string(), None);
            default
        }
    }
}

fn marker(section: &mut Section<'_, '_>, default: String) -> String {
    let marker = section.value("marker", default);
    let names = marker.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let unknown: Vec<&str> = names.filter(|name| !PLACEHOLDERS.contains(name)).collect();
    if let Some(name) = unknown.first() {
        let hint =
            "the placeholders are {removed}, {total}, {removed_plain}, {total_plain} and {recall}".to_owned();
        section.problem("marker", format!("unknown placeholder {{{name}}}"), Some(hint));
    } else if marker.trim().is_empty() {
        section.problem("marker", "a cut must be marked, got an empty text", None);
    }
    marker
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_lists() {
        let cases: &[(&str, &[&str])] =
            &[("Bash", &["Bash"]), ("*bash*, *shell*", &["*bash*", "*shell*"]), ("}a,b", &["}a", "b"])];
        for (names, expected) in cases {
            assert_eq!(patterns(names), *expected, "{names}");
        }
    }
}
