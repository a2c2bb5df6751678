//! The weight of a text in a prompt: its length in bytes, with long runs of white space or of one punctuation mark
//! counted for little.
//!
//! A token holds a few bytes of words or of data, but a whole indentation, or a whole ruler of dashes. The tokens of a
//! prompt are divided among its texts by weight. By length, a text of mostly white space would get far too many.

/// Bytes of a run that count in full: a run is one token, and splits the text around it into two.
const HEAD: usize = 6;
/// How many of the bytes behind these count as one.
const TAIL: usize = 32;

/// The weight of a text as it is written in a JSON string.
pub(super) fn of(raw: &[u8]) -> u32 {
    let (mut at, mut weight) = (0, 0);
    while let Some(&byte) = raw.get(at) {
        let len = if space(&raw[at..]) > 0 {
            spaces(&raw[at..])
        } else if byte.is_ascii_punctuation() && byte != b'\\' {
            raw[at..].iter().take_while(|next| **next == byte).count()
        } else {
            1
        };
        weight += len.min(HEAD) + len.saturating_sub(HEAD) / TAIL;
        at += len;
    }
    u32::try_from(weight).unwrap_or(u32::MAX)
}

/// How many bytes of white space a text begins with.
fn spaces(raw: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match space(&raw[at..]) {
            0 => return at,
            len => at += len,
        }
    }
}

/// The length of the first character in bytes, escaped or not, if it is white space; else 0.
fn space(raw: &[u8]) -> usize {
    match raw {
        [b' ' | b'\n' | b'\t' | b'\r', ..] => 1,
        [b'\\', b'n' | b't' | b'r', ..] => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn anything_weighs_something_and_no_more_than_its_bytes(text in r"([ -]{0,70}|\PC|\\[nt]){0,8}") {
            let weight = of(text.as_bytes()) as usize;
            prop_assert!(weight <= text.len() && (weight == 0) == text.is_empty());
        }
    }

    #[test]
    fn runs_weigh_little() {
        for (text, expected) in [
            ("", 0),
            ("hello world", 11),
            (r"hello\nworld", 12),
            (r"a\n    b", 8),
            (r"a\n                b", 8),
            (r"a\n\t\r\n    b", 8),
            (&" ".repeat(38), 7),
            (&"-".repeat(80), 8),
            (r#"{\"a\":1}"#, 9),
            // An escaped backslash is no white space, nor is the letter behind it.
            (r"C:\\new\\table", 14),
            ("==--==", 6),
            ("aaaaaaaaaaaa", 12),
            ("111111111111", 12),
            ("éééééééé", 16),
            ("\\", 1),
        ] {
            assert_eq!(of(text.as_bytes()), expected, "{text:?}");
        }
    }
}
