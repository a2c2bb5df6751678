//! Where to cut a sequence of texts so that its beginning or end fits a budget.
//!
//! Whole lines are kept. Only a line that is longer than the whole budget is cut inside: never within a character, a
//! `\r\n` or, as far as that is cheap to see, a sequence that is displayed as one character. Such a cut is made between
//! words, numbers or items of a list if there is such a place nearby, because half a number is a different number.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

/// A budget, or the size of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

impl Size {
    pub(super) const fn fits(self, budget: Self) -> bool {
        self.lines <= budget.lines && self.bytes <= budget.bytes
    }

    /// This many thousandths of it.
    pub(super) fn part(self, thousandths: u16) -> Self {
        let of = |all: usize| (all as u128 * u128::from(thousandths) / 1000) as usize;
        Self { lines: of(self.lines), bytes: of(self.bytes) }
    }

    pub(super) const fn plus(self, more: Self) -> Self {
        Self { lines: self.lines + more.lines, bytes: self.bytes + more.bytes }
    }

    pub(super) const fn minus(self, used: Self) -> Self {
        Self { lines: self.lines.saturating_sub(used.lines), bytes: self.bytes.saturating_sub(used.bytes) }
    }
}

/// How lines are counted. Newlines count as bytes in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// Nothing follows a final newline.
    Plain,
    /// An empty line follows a final newline.
    CountTrailing,
}

impl Lines {
    pub(super) fn size(self, text: &str) -> Size {
        Size { lines: self.of(memchr_iter(b'\n', text.as_bytes()).count(), text), bytes: text.len() }
    }

    /// The number of lines of a text with this many newlines.
    pub(super) fn of(self, newlines: usize, text: &str) -> usize {
        let unfinished = !text.is_empty() && (self == Self::CountTrailing || !text.ends_with('\n'));
        newlines + usize::from(unfinished)
    }
}

/// An offset into a sequence of texts: before byte `at` of a text, or after the last text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offset {
    pub(super) text: usize,
    pub(super) at: usize,
}

/// Where the longest beginning that fits the budget ends, and its size.
pub(super) fn head(texts: &[Cow<'_, str>], budget: Size, lines: Lines) -> (Offset, Size) {
    let mut left = budget;
    for (index, text) in texts.iter().enumerate() {
        let size = lines.size(text);
        if !size.fits(left) {
            let at = head_of(text, left, budget.bytes);
            // What follows is cut from the next line on, so an empty last line counts.
            left = left.minus(Lines::CountTrailing.size(&text[..at]));
            return (Offset { text: index, at }, budget.minus(left));
        }
        left = left.minus(size);
    }
    (Offset { text: texts.len(), at: 0 }, budget.minus(left))
}

/// Where the longest end that fits the budget starts.
pub(super) fn tail(texts: &[Cow<'_, str>], budget: Size, lines: Lines) -> Offset {
    let mut left = budget;
    for (index, text) in texts.iter().enumerate().rev() {
        let size = lines.size(text);
        if !size.fits(left) {
            let at = tail_of(text, left, budget.bytes, lines);
            return if at < text.len() {
                Offset { text: index, at }
            } else {
                Offset { text: index + 1, at: 0 }
            };
        }
        left = left.minus(size);
    }
    Offset { text: 0, at: 0 }
}

/// Where to end the beginning of a text that does not fit `left`: at the last line end that fits. Only a line of more
/// than `whole` bytes, which could never be kept whole, is cut inside.
fn head_of(text: &str, left: Size, whole: usize) -> usize {
    let bytes = text.as_bytes();
    if left.lines == 0 || left.bytes == 0 {
        return 0;
    }
    let by_lines = memchr_iter(b'\n', bytes).nth(left.lines - 1).unwrap_or(bytes.len());
    if by_lines <= left.bytes {
        return before_carriage_return(bytes, by_lines);
    }
    // `left.bytes < by_lines`: there is a byte after the budget.
    let last_end = memrchr(b'\n', &bytes[..=left.bytes]);
    let line = last_end.map_or(0, |end| end + 1);
    let line_end = memchr(b'\n', &bytes[line..]).map_or(bytes.len(), |len| line + len);
    if line_end - line > whole {
        let inside = floor(text, line, left.bytes);
        if inside > line {
            let near = near(inside - line);
            return between(text, &(inside - near..=inside).rev()).unwrap_or(inside);
        }
    }
    last_end.map_or(0, |end| before_carriage_return(bytes, end))
}

/// Where to start the end of a text that does not fit `left`. `whole` is as in [`head_of`].
fn tail_of(text: &str, left: Size, whole: usize, lines: Lines) -> usize {
    let bytes = text.as_bytes();
    if left.lines == 0 || left.bytes == 0 {
        return bytes.len();
    }
    // The newline that ends the last line does not start another.
    let body = match lines {
        Lines::Plain if bytes.ends_with(b"\n") => &bytes[..bytes.len() - 1],
        _ => bytes,
    };
    let by_lines = memrchr_iter(b'\n', body).nth(left.lines - 1).map_or(0, |end| end + 1);
    let by_bytes = bytes.len().saturating_sub(left.bytes);
    if by_lines >= by_bytes {
        return by_lines;
    }
    // `by_bytes > by_lines >= 0`: there is a byte before the budget, and the first line end from that byte on precedes
    // the rest.
    let line_end = memchr(b'\n', body.get(by_bytes - 1..).unwrap_or_default());
    let start = line_end.map_or(bytes.len(), |len| by_bytes + len);
    let line = memrchr(b'\n', &bytes[..start.min(body.len()).saturating_sub(1)]).map_or(0, |end| end + 1);
    if start - line <= whole {
        return start;
    }
    let inside = ceil(text, by_bytes, start);
    between(text, &(inside..=inside + near(start - inside))).unwrap_or(inside)
}

fn before_carriage_return(bytes: &[u8], end: usize) -> usize {
    if end > 0 && bytes.get(end) == Some(&b'\n') && bytes[end - 1] == b'\r' { end - 1 } else { end }
}

/// How many places are examined to find one that does not separate characters that are displayed as one.
const MAX_PLACES: usize = 8;

/// The last good place to cut at or before `at`; `line` if there is none after it.
fn floor(text: &str, line: usize, at: usize) -> usize {
    let places = (line + 1..=at).rev().filter(|&place| text.is_char_boundary(place));
    let last = places.clone().next().unwrap_or(line);
    places.take(MAX_PLACES).find(|&place| !joins(text, place)).unwrap_or(last)
}

/// The first good place to cut at or after `at`; `end` if there is none before it.
fn ceil(text: &str, at: usize, end: usize) -> usize {
    let places = (at..end).filter(|&place| text.is_char_boundary(place));
    let first = places.clone().next().unwrap_or(end);
    places.take(MAX_PLACES).find(|&place| !joins(text, place)).unwrap_or(first)
}

/// The most of the `kept` bytes of a line that are given up for a better place to cut it.
const fn near(kept: usize) -> usize {
    const MAX: usize = 128;
    const DIVISOR: usize = 8;
    if kept / DIVISOR < MAX { kept / DIVISOR } else { MAX }
}

/// The first of these places that is between two items of a list; otherwise the first that does not divide a word or a
/// number, as far as that is known.
fn between(text: &str, places: &(impl Iterator<Item = usize> + Clone)) -> Option<usize> {
    let first = |least: Gap| {
        let mut places = places.clone().filter(|&at| text.is_char_boundary(at) && !joins(text, at));
        places.find(|&at| gap(text, at) >= least)
    };
    [Gap::Wide, Gap::Narrow, Gap::Digits].into_iter().find_map(first)
}

/// What a cut at a place would separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    /// Something that belongs together.
    None,
    /// Two numbers, or the digits of one.
    Digits,
    /// Two words.
    Narrow,
    /// Two items of a list.
    Wide,
}

fn gap(text: &str, at: usize) -> Gap {
    let (head, tail) = text.split_at(at);
    let (mut back, mut on) = (head.chars().rev(), tail.chars());
    let (Some(before), Some(after)) = (back.next(), on.next()) else { return Gap::Wide };
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '.' | '+' | '-' | '_' | '/' | '\\');
    // Whether the mark has a digit on both sides, as in a list of numbers, a long number or a time.
    let is_in_digits = |mark: char| match mark {
        _ if mark == before => is_digit(back.clone().next()) && is_digit(Some(after)),
        _ => is_digit(Some(before)) && is_digit(on.clone().next()),
    };
    match [before, after] {
        ['\\', _] => Gap::None,
        // Before a character escape is better than within it.
        [_, '\\'] if on.clone().next() == Some('u') => Gap::Digits,
        pair if pair.iter().any(|c| c.is_whitespace()) => Gap::Wide,
        [',' | '}' | ']', _] if !is_in_digits(before) => Gap::Wide,
        pair if pair.iter().any(|&c| c == ':' && is_in_digits(c)) => Gap::None,
        pair if pair.iter().any(|&c| !is_word(c) && is_in_digits(c)) => Gap::Digits,
        pair if pair.iter().all(|&c| is_word(c)) => Gap::None,
        _ => Gap::Narrow,
    }
}

/// Whether the characters before and after a place form one: line ends, combining marks, emoji sequences.
fn joins(text: &str, at: usize) -> bool {
    let Some(next) = text[at..].chars().next() else { return false };
    let before = text[..at].chars().next_back();
    let extends = |next: char| {
        matches!(next, '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{1f3fb}'..='\u{1f3ff}')
    };
    extends(next) || before == Some('\u{200d}') || (next == '\n' && before == Some('\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(lines: usize, bytes: usize) -> Size {
        Size { lines, bytes }
    }

    const MANY: usize = usize::MAX;

    #[test]
    fn heads_end_at_line_ends() {
        for (text, lines, bytes, expected) in [
            ("a\nb\nc\nd\ne", 3, MANY, "a\nb\nc"),
            ("a\nb\nc\nd\ne", MANY, 3, "a\nb"),
            ("a\nb\nc\nd\ne", MANY, 4, "a\nb"),
            ("a\nb\nc\nd\ne", MANY, 5, "a\nb\nc"),
            ("a\r\nb\r\nc\r\n", 2, MANY, "a\r\nb"),
            ("a\r\nb\r\nc\r\n", MANY, 5, "a\r\nb"),
            ("\n\n\n\n", 3, MANY, "\n\n"),
            ("abc\ndef", 0, MANY, ""),
            ("abc\ndef", MANY, 0, ""),
            // A line that never fits is cut inside; one that would fit alone is not.
            ("xxxxxxxxxx", MANY, 4, "xxxx"),
            ("ab\nxxxxxxxxxx\nc", MANY, 6, "ab\nxxx"),
            ("ab\nxxxxxx\nc", MANY, 6, "ab"),
            ("ab\nxxxxxxxxxx", MANY, 3, "ab"),
            ("ééé", MANY, 3, "é"),
            ("é", MANY, 1, ""),
            ("aae\u{301}eeee", MANY, 3, "aa"),
            ("👩\u{200d}👩\u{200d}👧!", MANY, 13, "👩\u{200d}👩"),
        ] {
            let (place, _) = head(&[text.into()], size(lines, bytes), Lines::Plain);
            assert_eq!(&text[..place.at], expected, "{text:?} {lines} {bytes}");
        }
    }

    #[test]
    fn tails_start_after_line_ends() {
        for (text, lines, bytes, expected) in [
            ("a\nb\nc\nd\ne", 3, MANY, "c\nd\ne"),
            ("a\nb\nc\nd\ne\n", 3, MANY, "c\nd\ne\n"),
            ("a\nb\nc\nd\ne", MANY, 3, "d\ne"),
            ("a\nb\nc\nd\ne", MANY, 4, "d\ne"),
            ("a\nb\nc\nd\ne\n", MANY, 4, "d\ne\n"),
            ("a\r\nb\r\nc\r\n", MANY, 7, "b\r\nc\r\n"),
            ("\n\n\n\n", 3, MANY, "\n\n\n"),
            ("abc\ndef", 0, MANY, ""),
            ("abc\ndef", MANY, 0, ""),
            ("xxxxxxxxxx", MANY, 4, "xxxx"),
            ("c\nxxxxxxxxxx\nab\n", MANY, 6, "xx\nab\n"),
            ("c\nxxxxx\nab", MANY, 6, "ab"),
            ("xxxxxx\nab", MANY, 2, "ab"),
            ("ééé", MANY, 3, "é"),
            ("é", MANY, 1, ""),
            ("eeeee\u{301}aa", MANY, 4, "aa"),
        ] {
            let place = tail(&[text.into()], size(lines, bytes), Lines::Plain);
            let kept = if place.text == 0 { &text[place.at..] } else { "" };
            assert_eq!(kept, expected, "{text:?} {lines} {bytes}");
        }
    }

    /// A line that is too long, cut so that this many bytes are kept of its beginning, and of its end.
    #[test]
    fn long_lines_are_cut_at_boundaries_between_their_items() {
        let rows: Vec<String> = (0..40).map(|at| format!(r#"{{"id":{at}4711,"n":"x{at}"}}"#)).collect();
        let rows = format!("[{}]", rows.join(","));
        let (numbers, blob) = ("123456,".repeat(80), "iVBORw0KGgo".repeat(60));
        let (keys, times) = (r#"{"some_long_key":"#.repeat(40), "12:30:45.678;".repeat(40));
        let (amounts, escapes) = (r#"{"sum":"1,234,567"}"#.repeat(40), r"abcdefgh\n".repeat(60));
        for (text, bytes, head, tail) in [
            (&*rows, 240, r#","n":"x9"},{"id":104711,"#, r#"{"id":304711,"#),
            (&rows, 250, r#""n":"x10"},"#, r#",{"id":304711,"#),
            (&numbers, 240, ",123456,", ",123456,"),
            // A long number is not a list, if there is another place.
            (&amounts, 240, r#""1,234,567"}"#, r#"{"sum":"1,234,567"}"#),
            (&"one two three ".repeat(40), 240, "one two three ", " one two three"),
            (&"Zürich-Öl ".repeat(40), 239, " Zürich-Öl", " Zürich-Öl"),
            (&keys, 240, r#""some_long_key":{""#, r#"":{"some_long_key"#),
            (&times, 240, ";12:30:45.678;", ";12:30:45.678;"),
            // There is not even a place between words.
            (&blob, 240, "BORw0KG", "BORw0KGgo"),
            (&escapes, 240, r"\nabcdefgh\n", r"abcdefgh\n"),
            (&r"\u69d3\u7914".repeat(60), 250, r"\u7914\u69d3", r"\u7914\u69d3"),
        ] {
            let budget = size(MANY, bytes);
            let (from, _) = super::head(&[text.into()], budget, Lines::Plain);
            let to = super::tail(&[text.into()], budget, Lines::Plain);
            let kept = [from.at, text.len() - to.at];
            assert!(kept.iter().all(|kept| (bytes * 7 / 8..=bytes).contains(kept)), "{kept:?} {bytes}");
            let (found, rest) = (&text[..from.at], &text[to.at..]);
            assert!(found.ends_with(head) && rest.starts_with(tail), "{found}\n{rest}");
        }
    }

    #[test]
    fn several_texts_share_one_budget() {
        let texts = ["a\nb\n".into(), "".into(), "c\nd\ne\n".into(), "f".into()];
        for (lines, bytes, head_end, head_size, tail_start) in [
            (MANY, MANY, (4, 0), (6, 11), (0, 0)),
            (1, MANY, (0, 1), (1, 1), (3, 0)),
            (2, MANY, (2, 0), (2, 4), (2, 4)),
            (3, MANY, (2, 1), (3, 5), (2, 2)),
            (5, MANY, (3, 0), (5, 10), (0, 2)),
            (MANY, 9, (2, 5), (5, 9), (0, 2)),
            (MANY, 7, (2, 3), (4, 7), (1, 0)),
        ] {
            let budget = size(lines, bytes);
            let offset = |(text, at)| Offset { text, at };
            assert_eq!(
                head(&texts, budget, Lines::Plain),
                (offset(head_end), size(head_size.0, head_size.1))
            );
            assert_eq!(tail(&texts, budget, Lines::Plain), offset(tail_start), "{budget:?}");
        }
    }

    #[test]
    fn lines_are_counted_with_or_without_a_trailing_one() {
        for (text, plain, counted) in
            [("", 0, 0), ("a", 1, 1), ("a\n", 1, 2), ("a\nb", 2, 2), ("\n", 1, 2), ("a\n\n", 2, 3)]
        {
            assert_eq!(Lines::Plain.size(text).lines, plain, "{text:?}");
            assert_eq!(Lines::CountTrailing.size(text).lines, counted, "{text:?}");
        }
        let tail_of = |lines| tail(&["a\nb\nc\n".into()], size(2, MANY), lines).at;
        assert_eq!((tail_of(Lines::Plain), tail_of(Lines::CountTrailing)), (2, 4));
    }
}
