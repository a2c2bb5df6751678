//! Tables of text: a header and rows, with aligned columns and two spaces between them.
//!
//! Written here because it is so small: the crates for tables bring colours, borders and terminal handling, none of
//! which is wanted in output that `grep` reads, too.

/// The gap between columns.
const GAP: &str = "  ";
/// The gap if there is little space.
const NARROW_GAP: &str = " ";
/// Separates a title from its short form.
const SHORT_FORM: char = '|';
/// The minimum width of a column that is shortened.
const MIN_WIDTH: usize = 20;

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// For words.
    Left,
    /// For figures.
    Right,
}

/// A table. Its cells never contain control characters, since names come from outside.
#[derive(Debug, Clone)]
pub(super) struct Table {
    align: Vec<Align>,
    titles: Vec<String>,
    /// The short forms of the titles.
    short: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The index of the column that is shortened if there is too little space.
    shrinks: usize,
}

impl Table {
    /// A table with a header and no rows. A title may have a short form for when there is little space: `cache
    /// read|cached`.
    pub(super) fn new(columns: &[(&str, Align)]) -> Self {
        let forms = columns.iter().map(|(title, _)| title.split_once(SHORT_FORM).unwrap_or((title, title)));
        let (titles, short) = forms.map(|(title, short)| (title.to_owned(), short.to_owned())).unzip();
        Self {
            align: columns.iter().map(|(_, align)| *align).collect(),
            titles,
            short,
            rows: Vec::new(),
            shrinks: 0,
        }
    }

    /// Sets the column that is shortened if necessary; by default it is the first.
    pub(super) fn shrinking(self, column: usize) -> Self {
        Self { shrinks: column, ..self }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: &[String]) {
        debug_assert_eq!(cells.len(), self.align.len());
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The lines, the header first.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines_within(usize::MAX)
    }

    /// The lines in at most `most` columns of the terminal, if possible: first by the short forms of titles, then by
    /// narrower gaps, and finally by shortening one column. Figures are not shortened.
    pub(super) fn lines_within(&self, most: usize) -> Vec<String> {
        let narrow = if self.short == self.titles { GAP } else { NARROW_GAP };
        for (titles, gap) in [(&self.titles, GAP), (&self.short, GAP), (&self.short, narrow)] {
            let widths = self.widths(titles);
            if room(&widths, gap) <= most {
                return self.lines_with(titles, &widths, gap);
            }
        }
        let mut widths = self.widths(&self.short);
        let over = room(&widths, narrow).saturating_sub(most);
        if let Some(width) = widths.get_mut(self.shrinks) {
            *width = (*width).min(width.saturating_sub(over).max(MIN_WIDTH));
        }
        self.lines_with(&self.short, &widths, narrow)
    }

    fn widths(&self, titles: &[String]) -> Vec<usize> {
        let width = |(column, title): (usize, &String)| {
            self.rows
                .iter()
                .map(|row| &row[column])
                .chain([title])
                .map(|cell| length(cell))
                .max()
                .unwrap_or(0)
        };
        titles.iter().enumerate().map(width).collect()
    }

    fn lines_with(&self, titles: &[String], widths: &[usize], gap: &str) -> Vec<String> {
        let line = |row: &[String]| {
            let cells = row.iter().zip(&self.align).zip(widths);
            let padded: Vec<String> =
                cells.map(|((cell, align), width)| pad(&cut(cell, *width), *align, *width)).collect();
            padded.join(gap).trim_end().to_owned()
        };
        std::iter::once(titles).chain(self.rows.iter().map(Vec::as_slice)).map(line).collect()
    }
}

/// The columns of the terminal that a row takes.
fn room(widths: &[usize], gap: &str) -> usize {
    widths.iter().sum::<usize>() + gap.len() * widths.len().saturating_sub(1)
}

/// A name, shortened if it is too long for its column.
pub(super) fn cut(name: &str, most: usize) -> String {
    if length(name) <= most {
        return name.to_owned();
    }
    name.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A text in lines of at most `most` columns, broken between words.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| length(line) + 1 + length(word) <= most) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn pad(cell: &str, align: Align, width: usize) -> String {
    match align {
        Align::Left => format!("{cell:<width$}"),
        Align::Right => format!("{cell:>width$}"),
    }
}

/// The columns on a terminal, which is right for all scripts that are printed here.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// A text from outside, as a single line that cannot affect a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if is_harmless(character) { character } else { '\u{fffd}' }).collect()
}

/// Whether a character neither controls a terminal, nor changes the direction of adjacent text, nor ends a line.
fn is_harmless(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !character.is_control() && !turns && !matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("day", Align::Left), ("cost", Align::Right), ("note", Align::Left)]);
        table.row(&["2026-11-21".into(), "≥ $1.00".into(), String::new()]);
        table.row(&["a\u{1b}[1m".into(), "–".into(), "x".into()]);
        assert_eq!(
            table.lines(),
            ["day            cost  note", "2026-11-21  ≥ $1.00", "a\u{fffd}[1m             –  x"]
        );
    }

    #[test]
    fn the_first_column_is_truncated_to_fit() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(&["a-rather-long-name-of-a-model".into(), "1".into()]);
        for (most, expected) in [
            (100, "a-rather-long-name-of-a-model  1"),
            (32, "a-rather-long-name-of-a-model  1"),
            (31, "a-rather-long-name-of-a-mod…  1"),
            (9, "a-rather-long-name-…  1"),
        ] {
            assert_eq!(table.lines_within(most)[1], expected);
        }
    }

    #[test]
    fn titles_and_gaps_shrink_before_names() {
        let mut table =
            Table::new(&[("name", Align::Left), ("cache read|cached", Align::Right), ("cost", Align::Right)]);
        table.row(&["a-name-of-21-letters-".into(), "1,234".into(), "$1.00".into()]);
        for (most, header, row) in [
            (40, "name                   cache read   cost", "a-name-of-21-letters-       1,234  $1.00"),
            (39, "name                   cached   cost", "a-name-of-21-letters-   1,234  $1.00"),
            (35, "name                  cached  cost", "a-name-of-21-letters-  1,234 $1.00"),
            (33, "name                 cached  cost", "a-name-of-21-letter…  1,234 $1.00"),
            (9, "name                 cached  cost", "a-name-of-21-letter…  1,234 $1.00"),
        ] {
            assert_eq!(table.lines_within(most), [header, row], "{most}");
        }
    }

    #[test]
    fn a_chosen_column_is_truncated_to_fit() {
        let mut table = Table::new(&[("n", Align::Right), ("what", Align::Left)]).shrinking(1);
        table.row(&["1".into(), "a-rather-long-name-of-a-model".into()]);
        assert_eq!(table.lines_within(31)[1], "1  a-rather-long-name-of-a-mod…");
    }

    #[test]
    fn printed_texts_cannot_affect_the_text_beside_them() {
        let bad =
            "\u{7}\u{1b}\n\u{85}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2028}\u{2029}\u{2066}\u{2069}";
        assert_eq!(printable(bad), "\u{fffd}".repeat(bad.chars().count()));
        for good in ["ä 漢 ع", "a\u{200d}b"] {
            assert_eq!(printable(good), good);
        }
    }

    #[test]
    fn long_texts_are_wrapped() {
        for (text, expected) in [
            ("", &[""][..]),
            ("1,200 bytes", &["1,200", "bytes"]),
            ("a bc 1,234,567 d", &["a bc", "1,234,567", "d"]),
            ("äöü éß", &["äöü éß"]),
        ] {
            assert_eq!(wrapped(text, 6), expected, "{text}");
        }
    }

    #[test]
    fn long_names_are_truncated() {
        for (name, expected) in [("abcd", "abcd"), ("abcde", "abc…"), ("äöüßé", "äöü…"), ("", "")]
        {
            assert_eq!(cut(name, 4), expected);
        }
    }
}
