//! Decoding and encoding of string literals.
//!
//! A literal is given as written in the document, quotes included. Decoding is exact or refused: no character is
//! substituted for one that cannot be read.

use std::borrow::Cow;
use std::fmt::Write as _;

use memchr::memchr;

/// The text of a literal (quotes included); `None` if it is not valid text: a lone surrogate, an unknown escape, a raw
/// control character, or bytes that are not UTF-8.
pub fn decode(literal: &[u8]) -> Option<Cow<'_, str>> {
    let inner = literal.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.iter().any(|byte| *byte < 0x20) {
        return None;
    }
    let inner = std::str::from_utf8(inner).ok()?;
    if memchr(b'\\', inner.as_bytes()).is_none() {
        return if memchr(b'"', inner.as_bytes()).is_none() { Some(Cow::Borrowed(inner)) } else { None };
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr2(b'\\', b'"', rest.as_bytes()) {
        if rest.as_bytes()[at] == b'"' {
            return None;
        }
        text.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], &mut text)?;
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// Whether the first thing in a literal other than white space is an unescaped ASCII character. What follows is not
/// examined.
pub fn begins_with_words(literal: &[u8]) -> bool {
    let mut rest = literal.get(1..).unwrap_or_default();
    loop {
        rest = match rest {
            [b' ', rest @ ..] | [b'\\', b'n' | b'r' | b't', rest @ ..] => rest,
            [b'"' | b'\\', ..] | [] => return false,
            [byte, ..] => return byte.is_ascii_graphic(),
        };
    }
}

/// Whether the text of a literal begins with these ASCII words, however they are spelled. What follows is not examined.
pub fn begins_with(literal: &[u8], words: &str) -> bool {
    let inner = literal.strip_prefix(b"\"").unwrap_or_default();
    // No spelling of a character is longer than `\u0041`.
    let head = &inner[..inner.len().min(words.len() * 6)];
    let valid = std::str::from_utf8(head).map_or_else(|error| error.valid_up_to(), str::len);
    let mut rest = std::str::from_utf8(&head[..valid]).unwrap_or_default();
    let mut text = String::new();
    while text.len() < words.len() {
        let plain = memchr::memchr2(b'\\', b'"', rest.as_bytes()).unwrap_or(rest.len());
        text.push_str(&rest[..plain]);
        match rest[plain..].strip_prefix('\\').and_then(|escaped| escape(escaped, &mut text)) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    text.starts_with(words)
}

/// The offset in a literal at which the first `bytes` bytes of its text end; `None` if there is no such place.
pub fn offset(literal: &[u8], bytes: usize) -> Option<usize> {
    let inner = std::str::from_utf8(literal.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()?;
    let (mut rest, mut left) = (inner, bytes);
    while left > 0 {
        let plain = memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
        if left <= plain {
            rest = rest.get(left..)?;
            break;
        }
        let mut text = String::new();
        rest = escape(rest.get(plain + 1..)?, &mut text)?;
        left = left.checked_sub(plain + text.len())?;
    }
    Some(1 + inner.len() - rest.len())
}

/// Decodes the escape whose backslash precedes `rest`, appends the character to `text` and returns what follows. `None`
/// if it is no valid escape; then `text` is unchanged.
pub(crate) fn escape<'a>(rest: &'a str, text: &mut String) -> Option<&'a str> {
    let plain = match rest.as_bytes().first()? {
        byte @ (b'"' | b'\\' | b'/') => *byte as char,
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(&rest[1..], text),
        _ => return None,
    };
    text.push(plain);
    rest.get(1..)
}

fn unicode<'a>(rest: &'a str, text: &mut String) -> Option<&'a str> {
    let first = hex4(rest)?;
    let rest = rest.get(4..)?;
    if !(0xd800..0xe000).contains(&first) {
        text.push(char::from_u32(first)?);
        return Some(rest);
    }
    let pair = rest.strip_prefix("\\u")?;
    let second = hex4(pair)?;
    if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    text.push(char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?);
    pair.get(4..)
}

fn hex4(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u32::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// The number of UTF-16 code units of a literal's text, for estimates; nothing is checked or decoded.
pub fn utf16_len(literal: &[u8]) -> usize {
    let unit = |byte: u8| usize::from(byte & 0xc0 != 0x80) + usize::from(byte >= 0xf0);
    let mut units = literal.iter().map(|byte| unit(*byte)).sum::<usize>().saturating_sub(2);
    let mut from = 0;
    while let Some(at) = literal.get(from..).and_then(|rest| memchr(b'\\', rest)).map(|at| from + at) {
        let (spelled, length) = if literal.get(at + 1) == Some(&b'u') { (5, 6) } else { (1, 2) };
        units = units.saturating_sub(spelled);
        from = at + length;
    }
    units
}

/// Encodes `text` as a literal, quotes included. Only what JSON requires is escaped.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0x00..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        from = at + 1;
        out.push_str(short);
        if short.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        }
    }
    out.push_str(&text[from..]);
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leading_words_are_distinguished_from_white_space() {
        for (literal, expected) in [
            (r#""""#, false),
            (r#""  ""#, false),
            (r#""\n\t\r ""#, false),
            (r#"" \n<a>""#, true),
            (r##""# A""##, true),
            // Escapes other than these are not decoded here.
            (r#""\u0041""#, false),
            (r#""\"""#, false),
            ("\"é\"", false),
            ("\"\tA\"", false),
            ("\"", false),
            ("", false),
        ] {
            assert_eq!(begins_with_words(literal.as_bytes()), expected, "{literal}");
        }
    }

    #[test]
    fn prefixes_are_recognised_despite_escapes() {
        for (literal, expected) in [
            (r#""data:image/png;base64,""#, true),
            (r#""data:""#, true),
            (r#""\u0064\u0061\u0074\u0061\u003a""#, true),
            (r#""\u0064ata\u003a\x""#, true),
            ("\"data:", true),
            (r#""data""#, false),
            (r#"" data:""#, false),
            (r#""d\u0061t\u0061x:""#, false),
            (r#""data\""#, false),
            (r#""da"ta:""#, false),
            ("data:", false),
            ("\"", false),
            ("", false),
        ] {
            assert_eq!(begins_with(literal.as_bytes(), "data:"), expected, "{literal}");
        }
        assert!(begins_with(b"\"data:\xff\"", "data:") && !begins_with(b"\"da\xffta:\"", "data:"));
    }

    #[test]
    fn string_literals_are_decoded_or_refused() {
        for (literal, text) in [
            (r#""""#, Some("")),
            (r#""plain é""#, Some("plain é")),
            (r#""a\nb\t\"\\\/\b\f\r""#, Some("a\nb\t\"\\/\u{8}\u{c}\r")),
            (r#""\u00e9\ud83e\udd80""#, Some("é🦀")),
            (r#""\ud83e""#, None),
            (r#""\udd80""#, None),
            (r#""\ud83e\u0041""#, None),
            (r#""\x""#, None),
            (r#""\u12""#, None),
            (r#""\u+123""#, None),
            (r#""\"#, None),
            ("\"a\nb\"", None),
            ("\"a", None),
            (r#""a"b""#, None),
            ("a", None),
        ] {
            assert_eq!(decode(literal.as_bytes()).as_deref(), text, "{literal}");
        }
        let units = r#""\u00e9\ud83e\udd80\\u🦀你""#;
        assert_eq!(utf16_len(units.as_bytes()), 8);
        assert_eq!(decode(b"\"\xff\""), None);
        assert_eq!(encode("a\u{1}\"\\\n/é"), r#""a\u0001\"\\\n/é""#);
    }

    proptest! {
        #[test]
        fn encoded_strings_round_trip(text in any::<String>()) {
            let literal = encode(&text);
            let decoded = decode(literal.as_bytes()).map(Cow::into_owned);
            prop_assert_eq!(decoded.as_ref(), Some(&text));
            prop_assert_eq!(utf16_len(literal.as_bytes()), text.encode_utf16().count());
            prop_assert_eq!(serde_json::from_str::<String>(&literal).ok(), Some(text));
        }

        #[test]
        fn decoding_agrees_with_serde_json(inner in "[\\\\\"nu0-9a-fd8x é]{0,16}") {
            let literal = format!("\"{inner}\"");
            prop_assert_eq!(decode(literal.as_bytes()).map(Cow::into_owned), serde_json::from_str::<String>(&literal).ok());
        }
    }
}
