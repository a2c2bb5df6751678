//! Where a text may be cut: between two characters, never within one.

/// The last character boundary at or before `at`.
pub fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first character boundary at or after `at`; the end of the text if `at` is beyond it.
pub fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_moved_to_character_boundaries() {
        for (text, at, expected) in [
            ("", 0, (0, 0)),
            ("", 3, (0, 0)),
            ("ab", 1, (1, 1)),
            ("ab", 2, (2, 2)),
            ("ab", 9, (2, 2)),
            ("aüb", 2, (1, 3)),
            ("🦀", 1, (0, 4)),
            ("🦀", 3, (0, 4)),
        ] {
            assert_eq!((floor(text, at), ceil(text, at)), expected, "{text} {at}");
        }
    }
}
