//! What a text weighs in a prompt, in bytes of ordinary text: what tokenizers make next to nothing of weighs next to
//! nothing.
//!
//! A token is a few bytes of words or of data, but a whole indentation, or a whole ruler of dashes. Where the tokens of
//! a text are told by its share of a prompt, its bytes would make what is mostly white space as dear as what is not.

/// The bytes of a run that count in full: a run is a token, and parts what stands around it in two.
const HEAD: usize = 6;
/// Of the bytes behind them, so many weigh as one.
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

/// The bytes of the white space that a text begins with.
fn spaces(raw: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match space(&raw[at..]) {
            0 => return at,
            len => at += len,
        }
    }
}

/// The bytes of the first character, if that is white space.
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
            // The backslash is no white space, nor is what follows it.
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
