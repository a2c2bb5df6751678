//! Computes the weight of a text in a prompt: its length in bytes, with long runs of white space or of one punctuation
//! mark counted for little.
//!
//! A token holds a few bytes of words or of data, but a whole indentation, or a whole ruler of dashes. The tokens of a
//! prompt are divided among its texts by weight. By length, a text of mostly white space would get far too many, and so
//! would one whose characters are written as escapes.

/// The first bytes of a run, which count in full: a run is one token, and splits the text around it into two.
const FULL_BYTES: usize = 6;
/// How many of the later bytes of a run count as one.
const BYTES_PER_UNIT: usize = 32;

/// The weight of a text as it is written in a JSON string.
pub(super) fn of(raw: &[u8]) -> u32 {
    let (mut at, mut weight) = (0, 0);
    while let Some(&byte) = raw.get(at) {
        if let Some((written, read)) = escaped(&raw[at..]) {
            weight += read;
            at += written;
            continue;
        }
        let len = if space(&raw[at..]) > 0 {
            spaces(&raw[at..])
        } else if byte.is_ascii_punctuation() && byte != b'\\' {
            raw[at..].iter().take_while(|next| **next == byte).count()
        } else {
            1
        };
        weight += len.min(FULL_BYTES) + len.saturating_sub(FULL_BYTES) / BYTES_PER_UNIT;
        at += len;
    }
    u32::try_from(weight).unwrap_or(u32::MAX)
}

/// If a text begins with an escaped backslash or an escaped character outside ASCII: the lengths of the escape in
/// bytes, as it is written and as UTF-8. Each half of a surrogate pair counts as half of the character.
fn escaped(raw: &[u8]) -> Option<(usize, usize)> {
    match raw {
        [b'\\', b'\\', ..] => Some((2, 2)),
        [b'\\', b'u', digits @ ..] => {
            let digits = digits.get(..4).filter(|four| four.iter().all(u8::is_ascii_hexdigit))?;
            let code = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            if code < 0x80 {
                return None;
            }
            Some((6, if matches!(code, 0x80..0x800 | 0xd800..0xe000) { 2 } else { 3 }))
        }
        _ => None,
    }
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
        fn weights_are_positive_and_at_most_the_bytes(text in r"([ -]{0,70}|\PC|\\[nt]){0,8}") {
            let weight = of(text.as_bytes()) as usize;
            prop_assert!(weight <= text.len() && (weight == 0) == text.is_empty());
        }
    }

    #[test]
    fn repeated_characters_and_escapes_weigh_less() {
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
            // An escaped backslash is no white space, nor is the letter after it.
            (r"C:\\new\\table", 14),
            ("==--==", 6),
            ("aaaaaaaaaaaa", 12),
            ("111111111111", 12),
            ("éééééééé", 16),
            ("\\", 1),
            // The same characters written as escapes.
            (r"\u4f60\u597d", 6),
            (r"\u00e9\ud83d\ude00", 6),
            // Neither an escape, nor a character outside ASCII.
            (r"C:\\u4f60", 9),
            (r"\u001b[0m", 9),
            (r"\u4f6", 5),
            (r"\u+4f6", 6),
        ] {
            assert_eq!(of(text.as_bytes()), expected, "{text:?}");
        }
    }
}
