//! The lines of a text, as digests: whether what one view shows is contained in a later one.
//!
//! Lines are compared without the numbers that tools put before them. A few are enough: a text that contains most of a
//! sample of lines taken at even distances contains most of the others.

use memchr::memchr2_iter;
use xxhash_rust::xxh3::xxh3_64;

/// The number of lines that are looked up.
const SAMPLE: usize = 8;
/// How many of every four lines must be found, since some may have been changed.
const MIN_FOUND_OF_FOUR: usize = 3;
/// A line with at least this many letters and digits is telling: it hardly occurs in another text by chance.
const TELLING_LEN: usize = 12;
/// Flag in the digests of telling lines.
const IS_TELLING: u64 = 1;

/// Digests of lines, in order, without blank ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines(Box<[u64]>);

impl Lines {
    /// The lines of a text. If it is JSON, the lines of the strings in it.
    pub fn of(text: &str) -> Self {
        Self(pieces(text).filter_map(digest).collect())
    }

    /// The sample of lines to look up in a later text.
    #[must_use]
    pub fn sample(&self) -> Self {
        let telling: Vec<u64> = self.0.iter().copied().filter(|digest| digest & IS_TELLING > 0).collect();
        let lines = if telling.is_empty() { &*self.0 } else { &telling };
        let count = lines.len().min(SAMPLE);
        // Each is taken from the middle of its share.
        Self((0..count).map(|at| lines[(2 * at + 1) * lines.len() / (2 * count)]).collect())
    }

    /// The lines sorted, to be searched.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_unstable();
        self
    }

    /// Whether most of these lines are among the sorted lines of another text. True if there are none.
    pub fn stand_in(&self, sorted: &Self) -> bool {
        let found = self.0.iter().filter(|digest| sorted.0.binary_search(digest).is_ok()).count();
        4 * found >= MIN_FOUND_OF_FOUR * self.0.len()
    }
}

/// The text between line ends, either literal or escaped in JSON.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let bytes = text.as_bytes();
        let mut breaks = memchr2_iter(b'\n', b'\\', bytes);
        let end = breaks.find(|at| bytes[*at] == b'\n' || bytes.get(at + 1) == Some(&b'n'));
        rest = end.map(|at| &text[at + if bytes[at] == b'\n' { 1 } else { 2 }..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// The digest of a line; `None` for a blank one.
fn digest(line: &str) -> Option<u64> {
    let line = without_number(line.trim()).trim();
    let counts = |c: &char| c.is_alphanumeric();
    let is_telling = line.chars().filter(counts).nth(TELLING_LEN - 1).is_some();
    let digest = xxh3_64(line.as_bytes()) & !IS_TELLING | u64::from(is_telling);
    (!line.is_empty()).then_some(digest)
}

/// A line without its number: `12→`, `12` and a tab, `12:`, `00012|`, `L12:`.
fn without_number(line: &str) -> &str {
    let behind = line.strip_prefix('L').unwrap_or(line);
    let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    let separators = ["→", "\t", r"\t", ":", "|"];
    let is_numbered = line[..line.len() - behind.len()].ends_with(|c: char| c.is_ascii_digit());
    let rest = separators.iter().find_map(|separator| behind.strip_prefix(separator));
    rest.filter(|_| is_numbered).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Telling lines with numbers, counted from the first one on.
    fn code(lines: std::ops::RangeInclusive<u32>, form: impl Fn(u32, &str) -> String) -> String {
        let line = |number| form(number, &format!("let value_{number} = compute({number});"));
        lines.map(line).collect::<Vec<_>>().join("\n")
    }

    fn plain(_: u32, line: &str) -> String {
        format!("    {line}")
    }

    #[test]
    fn repeated_texts_are_recognised_in_other_layouts() {
        let all = code(1..=100, plain);
        let part = code(40..=60, plain);
        let changed =
            |lines: u32| {
                code(1..=100, |number, line| {
                    if number <= lines { format!("// {number} is gone now") } else { line.to_owned() }
                })
            };
        let escaped = format!(r#"{{"output":"{}","exit_code":0}}"#, all.replace('\n', r"\n"));
        let long = "some words and ".repeat(1000);
        for (earlier, later, expected) in [
            (all.as_str(), all.as_str(), true),
            (&all, &code(1..=100, |number, line| format!("{number:>6}\t{line}")), true),
            (&all, &code(1..=100, |number, line| format!("{number:>6}→    {line}")), true),
            (&all, &code(1..=100, |number, line| format!("{number}: {line}")), true),
            (&all, &code(1..=100, |number, line| format!("{number:05}| {line}")), true),
            (&all, &code(1..=100, |number, line| format!("L{number}: {line}")), true),
            (&all, &format!("<file>\n{all}\n</file>\n(End of file)"), true),
            (&all, &escaped, true),
            (&escaped, &all, true),
            (&part, &all, true),
            (&all, &part, false),
            (&all, "File unchanged since last read. The content is still current.", false),
            (&all, "100 src/a.rs\n", false),
            (&all, "", false),
            (&all, &code(201..=300, plain), false),
            // Cut after some of them.
            (&all, &code(1..=90, plain), true),
            (&all, &code(1..=60, plain), false),
            (&all, &changed(20), true),
            (&all, &changed(60), false),
            // What is the same in all files does not count for much.
            (
                &format!("//! Some words about the licence\n{all}"),
                "//! Some words about the licence\n",
                false,
            ),
            // If no line is telling, all count.
            ("{\n}\n", "a {\n}\n", false),
            ("{\n}\n", "{\n}\n", true),
            ("1 x\n2 x\n3 x\n4 x\n", "1 x\n2 x\n", false),
            ("}\n}\nfn main_of_this() {\n", "fn main_of_this() {\n", true),
            (&long, &long, true),
            (&long, &long[1..], false),
            ("", "", true),
            ("\n \n", "anything", true),
        ] {
            let stands = Lines::of(earlier).sample().stand_in(&Lines::of(later).sorted());
            assert_eq!(stands, expected, "{earlier:.60} … in {later:.60} …");
        }
    }

    #[test]
    fn texts_are_split_at_real_or_escaped_line_ends() {
        for (text, expected) in [
            ("", &[""][..]),
            ("a\nb", &["a", "b"]),
            ("a\n", &["a", ""]),
            (r"a\nb\tc\", &["a", r"b\tc\"]),
            ("ä\\nö\n\n", &["ä", "ö", "", ""]),
        ] {
            assert_eq!(pieces(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn samples_are_at_most_eight_evenly_spaced_lines() {
        let taken = |count: u32| {
            let all = Lines::of(&code(1..=count, plain));
            let sample = all.sample();
            let place = |digest: &u64| all.0.iter().position(|other| other == digest).unwrap();
            sample.0.iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(taken(0), Vec::<usize>::new());
        assert_eq!(taken(3), [0, 1, 2]);
        assert_eq!(taken(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(taken(80), [5, 15, 25, 35, 45, 55, 65, 75]);
    }
}
