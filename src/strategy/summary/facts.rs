//! Finds facts in a text that can be looked for in another: paths, identifiers, numbers, error messages.

use crate::conversation::boundary;

/// The kind of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A file or a URL.
    Path,
    /// A name chosen by somebody.
    Identifier,
    /// A number of at least two digits.
    Number,
    /// A line that reports a failure.
    Error,
}

/// Bytes of an error line that are compared.
const COMPARED_LEN: usize = 160;
/// The longest word that is examined, in bytes.
const MAX_WORD: usize = 200;

/// Calls `found` with each fact of a text, as spelled there.
pub(super) fn each(text: &str, found: &mut dyn FnMut(Kind, &str)) {
    for line in text.lines() {
        errors_in(line, found);
        for word in line.split(is_separator) {
            let word = word.trim_matches(|c: char| matches!(c, '.' | ':' | '!' | '?' | '*' | '#' | '-'));
            if word.len() <= MAX_WORD
                && let Some(kind) = kind(word)
            {
                found(kind, word);
            }
        }
    }
}

/// Calls `found` with the lines of a text that report failures.
pub(super) fn errors_in(text: &str, found: &mut dyn FnMut(Kind, &str)) {
    const WORDS: &[&str] = &["error", "panicked", "exception", "traceback", "failed", "fatal"];
    for line in text.lines().map(str::trim).filter(|line| (8..=4 * COMPARED_LEN).contains(&line.len())) {
        let lower = line.to_ascii_lowercase();
        if WORDS.iter().any(|word| lower.contains(word)) {
            found(Kind::Error, &line[..boundary::floor(line, COMPARED_LEN)]);
        }
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | ',' | ';' | '=' | '|'
        )
}

fn kind(word: &str) -> Option<Kind> {
    if is_number(word) {
        return Some(Kind::Number);
    }
    if word.len() < 4 || !word.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    if is_path(word) {
        return Some(Kind::Path);
    }
    is_identifier(word).then_some(Kind::Identifier)
}

fn is_number(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let rest = word.bytes().filter(|byte| !byte.is_ascii_digit());
    (2..=18).contains(&digits) && rest.into_iter().all(|byte| matches!(byte, b'.' | b'_' | b'%' | b'$'))
}

fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_alphanumeric() || "/._-~:@+#?&%".contains(c));
    // A word with only a leading slash may be the end of a tag.
    let has_folder = word.rfind('/').is_some_and(|at| at > 0) && !word.starts_with("//") && word != "and/or";
    let extension = word.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && (1..=5).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
    });
    plain && (has_folder || extension)
}

fn is_identifier(word: &str) -> bool {
    let plain =
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.' | b'-'));
    let hump =
        word.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let mixed = word.bytes().any(|byte| byte.is_ascii_digit()) && word.len() >= 6;
    plain && (word.contains('_') || word.contains("::") || hump || mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_paths_identifiers_numbers_and_errors() {
        for (text, expected) in [
            (
                "see src/main.rs, then Cargo.toml.",
                &[(Kind::Path, "src/main.rs"), (Kind::Path, "Cargo.toml")][..],
            ),
            ("https://h.test/a?b=1", &[(Kind::Path, "https://h.test/a?b")]),
            ("set max_retries to 250 (not 7)", &[(Kind::Identifier, "max_retries"), (Kind::Number, "250")]),
            (
                "`json::scan` and parseBody()",
                &[(Kind::Identifier, "json::scan"), (Kind::Identifier, "parseBody")],
            ),
            ("it cost 12.50% more", &[(Kind::Number, "12.50%")]),
            ("commit 3f2a91c", &[(Kind::Identifier, "3f2a91c")]),
            ("a plain sentence, no more: e.g. this and/or that", &[]),
            ("ERROR: no such table", &[(Kind::Error, "ERROR: no such table")]),
        ] {
            let mut found = Vec::new();
            each(text, &mut |kind, fact| found.push((kind, fact.to_owned())));
            let found: Vec<(Kind, &str)> = found.iter().map(|(kind, fact)| (*kind, fact.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
