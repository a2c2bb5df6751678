//! Removes the insignificant white space of a JSON document.
//!
//! Only if the whole text is one strictly valid object or array; the bytes of strings and numbers and the order of keys
//! are never touched.

use memchr::memchr2;
use serde::de::IgnoredAny;

/// The document without white space outside its strings; `None` if the text is no document or has no such white space.
pub(super) fn minify(text: &str) -> Option<String> {
    let document = text.trim_matches([' ', '\t', '\r', '\n']);
    let bytes = document.as_bytes();
    if !matches!((bytes.first()?, bytes.last()?), (b'{', b'}') | (b'[', b']')) {
        return None;
    }
    let gains = document.len() < text.len() || Pieces::of(document).any(|piece| piece.is_none());
    // Parsing `IgnoredAny` does not recurse, so depth is not a danger.
    if !gains || serde_json::from_str::<IgnoredAny>(document).is_err() {
        return None;
    }
    let mut out = String::with_capacity(document.len());
    Pieces::of(document).flatten().for_each(|piece| out.push_str(piece));
    Some(out)
}

/// A document as pieces that stay (`Some`) and white space that is removed (`None`).
struct Pieces<'a> {
    document: &'a str,
    at: usize,
}

impl<'a> Pieces<'a> {
    const fn of(document: &'a str) -> Self {
        Self { document, at: 0 }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Option<&'a str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.document[self.at..];
        let bytes = rest.as_bytes();
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let (len, stays) = match bytes.first()? {
            b'"' => (string_len(bytes), true),
            first if is_space(first) => {
                (bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len()), false)
            }
            _ => {
                let end = |byte: &u8| *byte == b'"' || is_space(byte);
                (bytes.iter().position(end).unwrap_or(bytes.len()), true)
            }
        };
        self.at += len;
        Some(stays.then_some(&rest[..len]))
    }
}

/// The length of the string literal that `bytes` begin with, quotes included.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(offset) = memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += offset;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // An escape: its second byte, whatever it is, ends nothing.
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(minify(text).as_deref(), expected, "{text:?}");
        if let Some(minified) = expected {
            assert_eq!(minify(minified), None, "not a fixed point: {minified:?}");
        }
    }

    #[test]
    fn white_space_outside_strings_is_removed() {
        check(
            "{ \"a b\" : 1.0 ,\r\n\t\"b\": [ 1e3, -0 , 1E+400 ] }\n",
            Some(r#"{"a b":1.0,"b":[1e3,-0,1E+400]}"#),
        );
        check(
            "[\"\\\" : \\\\\", \"\\u00e9 \", \"é, \\ud800\" ]",
            Some("[\"\\\" : \\\\\",\"\\u00e9 \",\"é, \\ud800\"]"),
        );
        check(
            r#"{"z": 1, "a": 2, "z": 18446744073709551616}"#,
            Some(r#"{"z":1,"a":2,"z":18446744073709551616}"#),
        );
        check("  []  ", Some("[]"));
    }

    #[test]
    fn other_text_is_not_minified() {
        for text in [
            "",
            " ",
            "{",
            "[]",
            "{}",
            r#"{"a":"b c"}"#,
            r#""a b""#,
            "1 ",
            "true\n",
            "{a: 1}",
            "[1, ]",
            "[1 2]",
            "[NaN, 1]",
            "[01, 2]",
            "{\"a\": 1} {\"b\": 2}",
            "[1, 2] x]",
            "\u{feff}{\"a\": 1}",
            "{\"a\": \"\n\"}",
            "\u{a0}{\"a\": 1}",
            "[\"\\x\", 1]",
            "{ \"a\\",
            "{ \"a\\\"}",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn deep_and_large_documents_are_minified_safely() {
        let deep = format!("{} 1 {}", "[ ".repeat(200_000), "]".repeat(200_000));
        assert_eq!(minify(&deep), Some(format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000))));
        for text in
            ["{ ".repeat(1 << 19) + "}", format!("[{}]", " ".repeat(1 << 20)), "\"[\"]".repeat(1 << 18)]
        {
            minify(&text);
        }
    }
}
