//! The sections of a summary, and whether what a model wrote is one.

use std::collections::HashSet;
use std::fmt::Write as _;

/// The sections of a summary, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    /// What the user wants, in the user's own words.
    Goal,
    /// What the user or the environment demands or forbids.
    Constraints,
    /// What is being done right now.
    Current,
    /// What comes next.
    Next,
    /// What failed, with the exact messages, and whether it is solved.
    Errors,
    /// What was decided, and why.
    Decisions,
    /// What is finished.
    Done,
    /// Files and their state.
    Files,
    /// Numbers, names, paths and URLs that will be needed again.
    Facts,
}

impl Section {
    /// All of them, in order.
    pub const ALL: &[Self] = &[
        Self::Goal,
        Self::Constraints,
        Self::Current,
        Self::Next,
        Self::Errors,
        Self::Decisions,
        Self::Done,
        Self::Files,
        Self::Facts,
    ];

    /// The title of the section.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Goal => "Goal",
            Self::Constraints => "Constraints",
            Self::Current => "Current",
            Self::Next => "Next",
            Self::Errors => "Errors",
            Self::Decisions => "Decisions",
            Self::Done => "Done",
            Self::Files => "Files",
            Self::Facts => "Facts",
        }
    }

    /// What the writer is told to put into the section.
    pub(super) const fn asks_for(self) -> &'static str {
        match self {
            Self::Goal => "what the user wants now, quoted word for word",
            Self::Constraints => "everything the user or the environment demands or forbids, as it was said",
            Self::Current => "what is being worked on at the end of the transcript, and how far it is",
            Self::Next => "the steps that are to follow, in order",
            Self::Errors => "failures with their exact messages, what caused them, solved or not",
            Self::Decisions => "each decision with its reason, and what was rejected",
            Self::Done => "what is finished and verified, and how it was verified",
            Self::Files => "each file by its full path: what was read, created, changed, and its state",
            Self::Facts => {
                "names, numbers, paths, addresses, versions and commands that may be needed again, exactly"
            }
        }
    }
}

/// Why a text is not a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Useless {
    /// Its tags are missing: it was cut off, or is something else.
    #[error("no summary between its tags")]
    Untagged,
    /// It lacks the sections that are needed to continue the work.
    #[error("it does not say what was done, or what is next")]
    Unstructured,
    /// It is longer than the requested length allows.
    #[error("too long")]
    TooLong,
    /// It repeats itself.
    #[error("it repeats itself")]
    Repeats,
}

/// A summary, section by section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    sections: [String; Section::ALL.len()],
}

/// The tags around a summary.
pub(super) const OPEN: &str = "<summary>";
pub(super) const CLOSE: &str = "</summary>";

impl Outline {
    /// The text of a section; empty if it has none.
    pub fn get(&self, section: Section) -> &str {
        &self.sections[section as usize]
    }

    /// The items of a section: its lines without list markers.
    pub fn items(&self, section: Section) -> Vec<&str> {
        let lines = self.get(section).lines();
        let items = lines.map(|line| line.trim().trim_start_matches(['-', '*', '•']).trim());
        items.filter(|item| !item.is_empty()).collect()
    }

    /// Parses what a model wrote, up to `most` bytes of it.
    ///
    /// # Errors
    /// Returns why the text is not a summary.
    pub fn parse(written: &str, most: usize) -> Result<Self, Useless> {
        let (_, after) = written.split_once(OPEN).ok_or(Useless::Untagged)?;
        let (inner, _) = after.rsplit_once(CLOSE).ok_or(Useless::Untagged)?;
        if inner.len() > most {
            return Err(Useless::TooLong);
        }
        let outline = Self::read(inner);
        outline.judge()?;
        Ok(outline)
    }

    /// Reads the sections of a text written by [`Self::to_text`] or by a model. A heading below a section's own level
    /// is part of that section, unless it is the heading of another; one on the same level or above ends the section.
    pub fn read(text: &str) -> Self {
        let mut reader = Reader { lines: text.lines().collect(), ..Reader::default() };
        for at in 0..reader.lines.len() {
            reader.read_line(at);
        }
        let mut outline = reader.outline;
        for section in &mut outline.sections {
            let text = section.trim();
            *section = if says_nothing(text) { String::new() } else { text.to_owned() };
        }
        outline
    }

    /// Checks that the summary says what was done and what is next, and does not repeat itself.
    fn judge(&self) -> Result<(), Useless> {
        let says = |section: Section| !self.get(section).is_empty();
        let says_what_was_done = says(Section::Done) || says(Section::Decisions) || says(Section::Files);
        let says_what_is_next = says(Section::Current) || says(Section::Next);
        if !says_what_was_done || !says_what_is_next {
            return Err(Useless::Unstructured);
        }
        let lines: Vec<&str> = self
            .sections
            .iter()
            .flat_map(|text| text.lines())
            .map(str::trim)
            .filter(|l| l.len() > 8)
            .collect();
        let distinct = lines.iter().collect::<HashSet<_>>().len();
        if lines.len() >= 12 && distinct * 2 < lines.len() { Err(Useless::Repeats) } else { Ok(()) }
    }

    /// The sections that are not empty, with their headings.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for section in Section::ALL {
            let says = self.get(*section);
            if !says.is_empty() {
                let _ = write!(text, "## {}\n{says}\n\n", section.title());
            }
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// The level of the headings that [`Outline::to_text`] writes, and the deepest level there is.
const LEVEL: usize = 2;
const DEEPEST: usize = 6;

/// Reads the sections of a text line by line.
#[derive(Default)]
struct Reader<'t> {
    lines: Vec<&'t str>,
    outline: Outline,
    /// The section being read, and the level of its heading.
    open: Option<(Section, usize)>,
    /// The first line after the last fence.
    fence_end: usize,
    /// For each level of the open section, what the last fence that is not closed has shown.
    unclosed: [Unclosed; DEEPEST + 1],
}

/// No fence of at least `ticks` backticks that begins before line `until` is closed.
#[derive(Clone, Copy, Default)]
struct Unclosed {
    until: usize,
    ticks: usize,
}

impl Reader<'_> {
    fn read_line(&mut self, at: usize) {
        let line = self.lines[at];
        if at < self.fence_end {
            return self.keep(&[line.trim_end()]);
        }
        match heading(line) {
            Heading::Of(section, level) => self.open = Some((section, level)),
            Heading::Other(level) => {
                self.open = self.open.filter(|(_, of)| *of < level);
                // The heading must stay below the section's when that is written.
                if self.open.is_some_and(|(_, of)| of < LEVEL) && level < DEEPEST {
                    self.keep(&["#", line.trim()]);
                } else {
                    self.keep(&[line.trim_end()]);
                }
            }
            Heading::None => {
                if fence(line).is_none_or(|ticks| self.opens_fence(at, ticks)) {
                    self.keep(&[line.trim_end()]);
                }
            }
        }
    }

    /// Appends a line, given in pieces, to the open section, if there is one.
    fn keep(&mut self, pieces: &[&str]) {
        let Some((section, _)) = self.open else { return };
        let text = &mut self.outline.sections[section as usize];
        text.extend(pieces.iter().copied());
        text.push('\n');
    }

    /// Whether a fence of `ticks` backticks at line `at` is closed further down. If it is, everything up to there is
    /// part of it.
    fn opens_fence(&mut self, at: usize, ticks: usize) -> bool {
        let level = self.open.map(|(_, level)| level);
        let unclosed = &mut self.unclosed[level.unwrap_or(0)];
        if at < unclosed.until && ticks >= unclosed.ticks {
            return false;
        }
        let (end, is_closed) = closing(&self.lines, at + 1, ticks, level);
        if is_closed {
            self.fence_end = end + 1;
        } else {
            *unclosed = Unclosed { until: end, ticks };
        }
        is_closed
    }
}

/// What a line is. The level of a heading is the number of `#` that it begins with.
enum Heading {
    /// The heading of a section.
    Of(Section, usize),
    /// A heading that belongs to no section.
    Other(usize),
    /// No heading.
    None,
}

/// What a line is. A heading begins with `#` and a space, and is short.
fn heading(line: &str) -> Heading {
    let line = line.trim();
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    if !(1..=DEEPEST).contains(&level) || !title.starts_with(char::is_whitespace) {
        return Heading::None;
    }
    let title = title.trim().trim_matches(['*', ':', ' ']);
    if title.is_empty() || title.len() > 80 {
        return Heading::None;
    }
    let said = title.to_ascii_lowercase();
    // `Next.js` and `Errors/x.ts` are names, not titles of sections.
    let first = said.split_whitespace().next().unwrap_or_default();
    if first.trim_end_matches(['.', ':', '*']).contains('.') {
        return Heading::Other(level);
    }
    let is = |section: &&Section| {
        let name = section.title().to_ascii_lowercase();
        said.strip_prefix(&name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    Section::ALL.iter().find(is).map_or(Heading::Other(level), |section| Heading::Of(*section, level))
}

/// The number of backticks if a line opens a fence, at its beginning or after list or quote markers.
fn fence(line: &str) -> Option<usize> {
    let is_mark = |c: char| c.is_whitespace() || c.is_ascii_digit() || "-*+•>.)".contains(c);
    let line = line.trim_start_matches(is_mark);
    let rest = line.trim_start_matches('`');
    let ticks = line.len() - rest.len();
    (ticks >= 3 && !rest.contains('`')).then_some(ticks)
}

/// The line where a fence of `ticks` backticks ends whose contents begin at line `first`, and whether that line closes
/// it. A fence is never closed if a section heading of the open section's level, or of the level that is written, comes
/// first.
fn closing(lines: &[&str], first: usize, ticks: usize, open: Option<usize>) -> (usize, bool) {
    let opens = |line: &str| match heading(line) {
        Heading::Of(_, level) => open.is_none_or(|of| [of, LEVEL].contains(&level)),
        Heading::Other(_) | Heading::None => false,
    };
    let closes = |line: &str| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '>').trim_end();
        line.len() >= ticks && line.bytes().all(|byte| byte == b'`')
    };
    let end = (first..lines.len()).find(|at| closes(lines[*at]) || opens(lines[*at]));
    end.map_or((lines.len(), false), |end| (end, closes(lines[end])))
}

/// Whether a text is what models write if there is nothing to say.
fn says_nothing(text: &str) -> bool {
    let word = text.trim_matches(['-', '*', '(', ')', '.', ' ', '_']).to_ascii_lowercase();
    ["", "none", "n/a", "nothing", "none yet", "not applicable", "no errors"].contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "Sure!\n<summary>\n## Goal\n\"Fix it\"\n## Constraints:\n- none\n## Current\nrunning \
        tests\n### Next steps\n1. commit\n## Weather\nfine\n## **Files**\n- /a.rs changed\n</summary>\nbye";

    #[test]
    fn a_written_summary_is_parsed_into_sections() {
        let outline = Outline::parse(GOOD, 1000).unwrap();
        assert_eq!(outline.get(Section::Goal), "\"Fix it\"");
        assert_eq!(outline.get(Section::Constraints), "");
        assert_eq!(outline.get(Section::Next), "1. commit");
        assert_eq!(outline.items(Section::Files), ["/a.rs changed"]);
        assert!(!outline.to_text().contains("fine"));
        assert_eq!(Outline::read(&outline.to_text()), outline);
    }

    #[test]
    fn sections_include_subheadings_and_fences() {
        for (text, expected) in [
            (
                "## Done\n- a\n### Backend\n- b\n#### api\n- c\n## Next\n- d",
                "Next: - d; Done: - a|### Backend|- b|#### api|- c",
            ),
            ("## Done\n### Backend\n- b", "Done: ### Backend|- b"),
            ("## Done\n- a\n## Backend\n- b\n### api\n- c\n## Next\n- d", "Next: - d; Done: - a"),
            ("## Done\n- a\n# Backend\n- b", "Done: - a"),
            ("### Done\n- a\n### Backend\n- b", "Done: - a"),
            ("# Done\n- a\n ## Backend\n- b\n###### x", "Done: - a|### Backend|- b|###### x"),
            ("## Done\n- a\n### Next steps\n- b\n#### c\n### d\n- e", "Next: - b|#### c; Done: - a"),
            (
                "## Done\n### Next.js: routes\n- a\n### **Errors/x.ts**\n- b\n## Next.\n- c\n## Files/Artifacts\n- d",
                "Next: - c; Done: ### Next.js: routes|- a|### **Errors/x.ts**|- b; Files: - d",
            ),
            // No headings.
            (
                "## Done\n#1234 fixed\n#include <a>\n#!/bin/sh\n#\n####### x",
                "Done: #1234 fixed|#include <a>|#!/bin/sh|#|####### x",
            ),
            ("##Done\n- a\n## Next\n- b", "Next: - b"),
            // Fences.
            ("## Facts\n```\n# a\n## b\n# Next\n```\n- c", "Facts: ```|# a|## b|# Next|```|- c"),
            ("## Facts\n1. ```sh\n   # a\n   ```\n- c", "Facts: 1. ```sh|   # a|   ```|- c"),
            ("## Facts\n````\n```\n# a\n````\n- c", "Facts: ````|```|# a|````|- c"),
            ("## Facts\n```a``` b\n# c\n```", "Facts: ```a``` b"),
            ("## Facts\n```sh\na\n## Done\n- b\n```\n# c\n```", "Done: - b|```|# c|```; Facts: a"),
            ("### Facts\n```\na\n### Done\n- b", "Done: - b; Facts: a"),
            ("## Facts\n```sh\na\n# b\nc", "Facts: a"),
            ("## Facts\n````\n```a\n```\n- b\n```c\n- d", "Facts: ```a|```|- b|- d"),
            ("## Facts\n```a\n### Done\n```b\n- c\n## Next\n```d\n```", "Next: ```d|```; Done: - c"),
            ("```markdown\n### Done\n- a\n### Next\n- b\n```", "Next: - b; Done: - a"),
        ] {
            let outline = Outline::read(text);
            let says = Section::ALL.iter().filter(|section| !outline.get(**section).is_empty());
            let said = says
                .map(|section| format!("{}: {}", section.title(), outline.get(*section).replace('\n', "|")));
            assert_eq!(said.collect::<Vec<_>>().join("; "), expected, "{text}");
            assert_eq!(Outline::read(&outline.to_text()), outline, "{text}");
        }
    }

    #[test]
    fn useless_summaries_are_refused() {
        let lines = "- the same again and again\n- and once more the same\n".repeat(20);
        for (written, expected) in [
            (String::new(), Useless::Untagged),
            ("## Goal\nx\n## Done\ny\n## Next\nz".to_owned(), Useless::Untagged),
            ("<summary>\n## Done\ny\n## Next\nz".to_owned(), Useless::Untagged),
            ("<summary>I cannot help with that.</summary>".to_owned(), Useless::Unstructured),
            ("<summary>\n## Done\nall\n## Next\nnone\n</summary>".to_owned(), Useless::Unstructured),
            ("<summary>\n## Done\nN/A\n## Next\ngo on\n</summary>".to_owned(), Useless::Unstructured),
            (format!("<summary>\n## Done\n{}\n## Next\nx</summary>", "y ".repeat(600)), Useless::TooLong),
            (format!("<summary>\n## Done\n{lines}\n## Next\nx</summary>"), Useless::Repeats),
        ] {
            let most = if expected == Useless::Repeats { 10_000 } else { 1000 };
            assert_eq!(Outline::parse(&written, most), Err(expected), "{written}");
        }
    }

    proptest! {
        #[test]
        fn outlines_round_trip(text in "((#{1,4} )?(Goal|Done|Next|Facts|x|- none|#|(- )?`{3,4}(sh)?)\n?){0,30}") {
            let once = Outline::read(&text);
            prop_assert_eq!(Outline::read(&once.to_text()), once);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = Outline::parse(&format!("<summary>{text}</summary>"), 10_000);
        }
    }
}
