//! Markers: the text in place of what was cut, which is filled from a template and recognised again.
//!
//! A text that contains our own marker was shaped before, by a gateway between the client and this one or because the
//! agent has sent it back. Recognition is structural: the fixed parts of the template must be where we would put them,
//! and the figures must add up. Tool output cannot pass for a marker by accident.

use std::borrow::Cow;

use memchr::{memchr_iter, memmem};

/// Separates a marker from the text around it.
pub(super) const GAP: &str = "\n\n";

/// A parsed template.
pub(super) struct Template<'a> {
    parts: Vec<Part<'a>>,
    /// Newlines in the filled template.
    pub(super) newlines: usize,
}

/// A part of a template: literal text or a placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    Removed(Digits),
    Total(Digits),
    Recall,
}

/// How a figure is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// With separators: `48,213`.
    Grouped,
    /// Without separators.
    Plain,
}

impl Digits {
    fn write(self, figure: usize) -> String {
        match self {
            Self::Grouped => thousands(figure),
            Self::Plain => figure.to_string(),
        }
    }
}

/// A marker found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) removed: usize,
    /// `None` if the template does not state it.
    pub(super) total: Option<usize>,
}

impl<'a> Template<'a> {
    /// Parses a template. Braces that do not name a placeholder are literal text.
    pub(super) fn parse(template: &'a str) -> Self {
        let places = [
            ("{removed}", Part::Removed(Digits::Grouped)),
            ("{removed_plain}", Part::Removed(Digits::Plain)),
            ("{total}", Part::Total(Digits::Grouped)),
            ("{total_plain}", Part::Total(Digits::Plain)),
            ("{recall}", Part::Recall),
        ];
        let mut parts = Vec::new();
        let (mut literal, mut at) = (0, 0);
        while let Some(offset) = memchr::memchr(b'{', &template.as_bytes()[at..]) {
            at += offset;
            match places.iter().find(|(name, _)| template[at..].starts_with(name)) {
                Some((name, part)) => {
                    parts.extend((literal < at).then_some(Part::Literal(&template[literal..at])));
                    parts.push(*part);
                    at += name.len();
                    literal = at;
                }
                None => at += 1,
            }
        }
        parts.extend((literal < template.len()).then_some(Part::Literal(&template[literal..])));
        Self { parts, newlines: memchr_iter(b'\n', template.as_bytes()).count() }
    }

    /// The marker of a cut that removed `removed` of `total` bytes.
    pub(super) fn fill(&self, removed: usize, total: usize, recall: &str) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => out.push_str(literal),
                Part::Removed(digits) => out.push_str(&digits.write(removed)),
                Part::Total(digits) => out.push_str(&digits.write(total)),
                Part::Recall => out.push_str(&one_line(recall)),
            }
        }
        out
    }

    /// Whether a filled template can be distinguished from other text: it begins with text of its own, contains words,
    /// says how much was removed, and its placeholders are separated.
    pub(super) fn is_recognisable(&self) -> bool {
        let begins = |part: &Part<'_>| match part {
            Part::Literal(first) => !first.contains('\n') && !first.starts_with(char::is_whitespace),
            _ => false,
        };
        let times = |wanted: fn(&Part<'_>) -> bool| self.parts.iter().filter(|part| wanted(part)).count();
        let letters = |part: &Part<'_>| match part {
            Part::Literal(literal) => literal.chars().filter(|letter| letter.is_alphabetic()).count(),
            _ => 0,
        };
        let is_clear = |pair: &[Part<'_>]| match *pair {
            [Part::Literal(_), _] => true,
            [_, Part::Literal(next)] => !next.starts_with(|next: char| next.is_ascii_digit() || next == ','),
            _ => false,
        };
        self.parts.first().is_some_and(begins)
            && times(|part| matches!(part, Part::Removed(_))) == 1
            && times(|part| matches!(part, Part::Total(_))) <= 1
            && times(|part| *part == Part::Recall) <= 1
            && self.parts.iter().map(letters).sum::<usize>() >= 8
            && self.parts.windows(2).all(is_clear)
    }

    /// The places in a text where a marker is as we would have put it: alone, or set off by [`GAP`].
    ///
    /// The template must be recognisable.
    pub(super) fn find_in<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Marker> + 't {
        let first = match self.parts.first() {
            Some(Part::Literal(literal)) => *literal,
            _ => "",
        };
        memmem::find_iter(text.as_bytes(), first.as_bytes()).filter_map(move |start| self.at(text, start))
    }

    /// The marker that starts at this place of a text, if there is one.
    fn at(&self, text: &str, start: usize) -> Option<Marker> {
        if start > 0 && !text[..start].ends_with(GAP) {
            return None;
        }
        let rest = &text[start..];
        let end = memchr_iter(b'\n', rest.as_bytes()).nth(self.newlines).unwrap_or(rest.len());
        if end < rest.len() && !rest[end..].starts_with(GAP) {
            return None;
        }
        let (removed, total) = match_all(&self.parts, &rest[..end], (None, None))?;
        Some(Marker { start, end: start + end, removed: removed?, total })
    }
}

type Figures = (Option<usize>, Option<usize>);

/// The figures in `text` if all of it matches the parts. There is at most one [`Part::Recall`], and a literal after
/// every other placeholder.
fn match_all(parts: &[Part<'_>], mut text: &str, mut figures: Figures) -> Option<Figures> {
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Literal(literal) => text = text.strip_prefix(literal)?,
            Part::Removed(digits) => (figures.0, text) = take_figure(text, *digits)?,
            Part::Total(digits) => (figures.1, text) = take_figure(text, *digits)?,
            Part::Recall => {
                let rest = &parts[index + 1..];
                let Some(Part::Literal(next)) = rest.first() else { return Some(figures) };
                return memmem::find_iter(text.as_bytes(), next.as_bytes())
                    .find_map(|at| match_all(rest, &text[at..], figures));
            }
        }
    }
    text.is_empty().then_some(figures)
}

/// The figure that the text begins with, if it is written as we write it.
fn take_figure(text: &str, digits: Digits) -> Option<(Option<usize>, &str)> {
    let end = text.find(|next: char| !next.is_ascii_digit() && next != ',').unwrap_or(text.len());
    let (written, rest) = text.split_at(end);
    let figure = written.replace(',', "").parse().ok()?;
    (digits.write(figure) == written).then_some((Some(figure), rest))
}

/// A figure with separators: `48,213`.
pub fn thousands(figure: usize) -> String {
    let digits = figure.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The text without line ends: markers and notes do not spread over more lines.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::settings::MARKER;

    const OPENCODE: &str =
        "...{removed} bytes truncated...\n\nFull output saved to: {recall}\nUse search tools.";

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (figure, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (48213, "48,213"), (1_234_567, "1,234,567")]
        {
            assert_eq!(thousands(figure), expected);
        }
        assert!(thousands(usize::MAX).starts_with("18,446,"));
    }

    #[test]
    fn templates_are_filled() {
        for (template, expected) in [
            (MARKER, "[plimsoll: 48,213 of 61,440 bytes removed here; at a b]"),
            ("{removed_plain}/{total_plain}", "48213/61440"),
            ("", ""),
            ("{{removed}} {other} {", "{48,213} {other} {"),
            ("{recall}{recall}", "at a bat a b"),
        ] {
            assert_eq!(Template::parse(template).fill(48_213, 61_440, "at a\nb"), expected);
        }
    }

    #[test]
    fn only_unambiguous_templates_are_recognisable() {
        for (template, expected) in [
            (MARKER, true),
            (OPENCODE, true),
            ("[removed {removed} bytes]", true),
            ("[removed {removed_plain} of {total_plain} bytes]", true),
            ("[removed {removed} or {removed_plain} bytes]", false),
            ("[removed bytes]", false),
            ("{removed} bytes are gone", false),
            ("\n[removed {removed} bytes]", false),
            ("[cut {removed}]", false),
            ("[removed {removed},{total} bytes]", false),
            ("[removed {removed}{total} bytes]", false),
            ("[removed {recall}{removed} bytes]", false),
            ("[removed {removed} bytes {recall} {recall}]", false),
            ("", false),
        ] {
            assert_eq!(Template::parse(template).is_recognisable(), expected, "{template:?}");
        }
    }

    #[test]
    fn markers_are_found_only_at_an_edge_or_between_blank_lines() {
        let full = "[plimsoll: 1,000 of 2,000 bytes removed here; full output: /a/b]";
        for (text, expected) in [
            (full.to_owned(), Some(0)),
            (format!("head\n\n{full}"), Some(6)),
            (format!("{full}\n\ntail"), Some(0)),
            (format!("head\n\n{full}\n\ntail"), Some(6)),
            (format!("head\n\n{full}{full}"), Some(6)),
            (format!("head\n{full}"), None),
            (format!("head\n\n {full}"), None),
            (format!("{full}\ntail"), None),
            (format!("{full} tail"), None),
            (full.replace("1,000", "1000"), None),
            (full.replace("1,000", "01,000"), None),
            (full.replace("1,000", ""), None),
            (full.replace("2,000", "99,999,999,999,999,999,999"), None),
            (full.replace("; full", ": full"), None),
        ] {
            let template = Template::parse(MARKER);
            let found = template.find_in(&text).next();
            assert_eq!(found.map(|marker| marker.start), expected, "{text}");
            if let Some(marker) = found {
                assert_eq!((marker.removed, marker.total), (1000, Some(2000)));
                assert!(text[marker.start..marker.end].ends_with("/a/b]"));
            }
        }
    }

    #[test]
    fn multi_line_markers_are_found() {
        for (template, figure, other) in [
            (OPENCODE.to_owned(), "1,234", "1234"),
            (OPENCODE.replace("{removed}", "{removed_plain}"), "1234", "1,234"),
        ] {
            let template = Template::parse(&template);
            let text = format!("head\n\n{}\n\ntail", template.fill(1234, 5678, "/a"));
            let marker = template.find_in(&text).next();
            let end = text.len() - "\n\ntail".len();
            assert_eq!(marker, Some(Marker { start: 6, end, removed: 1234, total: None }));
            assert_eq!(template.find_in(&text.replace(figure, other)).next(), None);
        }
    }

    #[test]
    fn adversarial_text_takes_linear_time() {
        let template = Template::parse(MARKER);
        for piece in [
            "[plimsoll: ",
            "\n\n[plimsoll: 1 of 2 bytes removed here; ",
            "\n\n",
            "[plimsoll: 1 of 2 bytes removed here; ]\n\n",
        ] {
            let text = piece.repeat((1 << 20) / piece.len());
            assert!(template.find_in(&text).count() <= text.len() / 40);
        }
    }
}
