//! Numbers of bytes as users write them: `"50KiB"`, `"1MB"`, `4096`.

use std::fmt;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(usize);

/// The units in which sizes are shown, largest first.
const UNITS: &[(&str, usize)] = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// A size of this many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }

    /// Reads `50KiB`, `50 kib` or `51200`; `None` if it is not a size, or is more than this machine can address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let factor = match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return None,
        };
        Some(Self(number.parse::<usize>().ok()?.checked_mul(factor)?))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor));
        let (name, factor) = whole.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_parsed_or_refused() {
        let cases: &[(&str, Option<usize>)] = &[
            ("50KiB", Some(51_200)),
            ("1MB", Some(1_000_000)),
            ("64 MiB", Some(64 << 20)),
            ("2gib", Some(2 << 30)),
            (" 512 ", Some(512)),
            ("512B", Some(512)),
            ("0", Some(0)),
            ("", None),
            ("KiB", None),
            ("50K", None),
            ("1.5MiB", None),
            ("-1", None),
            ("+1", None),
            ("1 0", None),
            ("50 bananas", None),
            ("99999999999999999999", None),
            ("18446744073709551615GiB", None),
            ("５KiB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(ByteSize::parse(text).map(ByteSize::bytes), *expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn shown_sizes_round_trip(bytes in any::<usize>(), unit in 0..UNITS.len()) {
            for size in [ByteSize(bytes), ByteSize((bytes % 10_000) * UNITS[unit].1)] {
                prop_assert_eq!(ByteSize::parse(&size.to_string()), Some(size));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = ByteSize::parse(&text);
        }
    }
}
