//! Whether a replacement is worth it: fewer bytes, and fewer tokens in any known tokenizer.
//!
//! Bytes alone are misleading: a run of spaces or of `=` is a token or two, a short note is a dozen. So the removed
//! text is counted by a lower bound and the added text by an upper bound. Never used for figures that are shown or
//! stored.

/// Whether the `removed` pieces of text are worth replacing by `added`.
pub(super) fn worth<'a>(removed: impl Iterator<Item = &'a str>, added: &str) -> bool {
    let enough = at_most(added) + 1;
    let (mut bytes, mut tokens) = (0, 0);
    for piece in removed {
        bytes += piece.len();
        if tokens < enough {
            tokens += at_least(piece, enough - tokens);
        }
    }
    bytes > added.len() && tokens >= enough
}

/// An upper bound on the tokens of `text`, if it is a sentence of ours.
pub(super) const fn at_most(text: &str) -> usize {
    text.len().div_ceil(2)
}

/// A lower bound on the tokens of `text`; counting stops soon after `enough`.
///
/// Every run of letters, of digits or of marks is at least one token, white space may cost nothing, and no vocabulary
/// has much longer pieces than assumed here.
pub(super) fn at_least(text: &str, enough: usize) -> usize {
    let (mut tokens, mut run, mut last, mut byte_before) = (0, 0_usize, Class::Space, 0);
    for &byte in text.as_bytes() {
        let class = Class::of(byte);
        let same = class == last;
        run = if same { run + 1 } else { 0 };
        let starts = match class {
            Class::Space => false,
            Class::Letter => run.is_multiple_of(16),
            Class::Digit => run.is_multiple_of(3),
            // Rows of one mark merge into far longer tokens than others.
            Class::Mark if same && byte == byte_before => run.is_multiple_of(64),
            Class::Mark => run.is_multiple_of(8),
            Class::Wide => run.is_multiple_of(12),
        };
        tokens += usize::from(starts);
        if tokens >= enough {
            break;
        }
        (last, byte_before) = (class, byte);
    }
    tokens
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Digit,
    Mark,
    /// Bytes of characters outside ASCII.
    Wide,
}

impl Class {
    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            0..=b' ' | 0x7f => Self::Space,
            0x80.. => Self::Wide,
            _ => Self::Mark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_runs_are_not_worth_a_note() {
        let note = "[plimsoll: the line above repeated 4 more times]";
        let cases = [
            ("", false),
            (&*" ".repeat(4096), false),
            (&"\n".repeat(4096), false),
            (&"=".repeat(1000), false),
            (&"word ".repeat(24), false),
            (&"word ".repeat(25), true),
            (&"7".repeat(75), true),
        ];
        for (removed, expected) in cases {
            assert_eq!(worth([removed].into_iter(), note), expected, "{removed:?}");
        }
        assert!(!worth(["1,2,3,4,5,6,7"].into_iter(), "12345678901234"), "fewer tokens, but more bytes");
    }

    #[test]
    fn counting_stops_at_the_limit() {
        assert_eq!(at_least(&"a ".repeat(1000), 7), 7);
        assert_eq!(at_least("let x = 12345;", usize::MAX), 6);
    }
}
