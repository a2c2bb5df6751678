//! Reads JSON that the parser refuses, without the values for which it is refused.
//!
//! Servers write `NaN`, numbers beyond any float, half a character, or nesting without end. One such value must not
//! cost the other figures. The end of a value is found by brackets and quotes alone. Only documents that the parser has
//! refused are read here, so that an ordinary answer is parsed once. The cost is linear.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, Error, Visitor};

use super::pruned::{Value, is_content};

/// The depth down to which the neighbours of a refused value are read. No dialect has figures deeper than that.
const MAX_DEPTH: u32 = 8;

/// Reads a document. What cannot be read in it is missing, or null in an array; texts are read with replacement
/// characters. `None` if it is no object or array, is cut off, or is followed by anything.
pub(super) fn document(text: &[u8]) -> Option<Value<'_>> {
    let (value, after) = first(text)?;
    after.trim_ascii_start().is_empty().then_some(value)
}

/// Reads the object or array at the beginning of a text like [`document`], and returns what follows it.
pub(super) fn first(text: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (value, after) = split(text.trim_ascii_start())?;
    Some((container(value, 0)?, after))
}

fn value(text: &[u8], depth: u32) -> Option<Value<'_>> {
    if let Ok(value) = serde_json::from_slice(text) {
        return Some(value);
    }
    if text.starts_with(b"\"") { self::text(text).map(Value::Text) } else { container(text, depth) }
}

fn container(text: &[u8], depth: u32) -> Option<Value<'_>> {
    if depth == MAX_DEPTH {
        return None;
    }
    match text {
        [b'{', inside @ .., b'}'] => members(inside, depth + 1),
        [b'[', inside @ .., b']'] => items(inside, depth + 1),
        _ => None,
    }
}

fn members(mut inside: &[u8], depth: u32) -> Option<Value<'_>> {
    let mut kept = Vec::new();
    loop {
        let (name, after) = split(inside.trim_ascii_start())?;
        let name = text(name)?;
        let (member, after) = split(after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())?;
        if !is_content(&name)
            && let Some(member) = value(member, depth)
        {
            kept.push((name, member));
        }
        match after.trim_ascii_start() {
            [] => return Some(Value::Object(kept)),
            [b',', next @ ..] => inside = next,
            _ => return None,
        }
    }
}

fn items(mut inside: &[u8], depth: u32) -> Option<Value<'_>> {
    let mut kept = Vec::new();
    loop {
        let (item, after) = split(inside.trim_ascii_start())?;
        kept.push(value(item, depth).unwrap_or(Value::Null));
        match after.trim_ascii_start() {
            [] => return Some(Value::List(kept)),
            [b',', next @ ..] => inside = next,
            _ => return None,
        }
    }
}

/// Splits a text after the value that it begins with. `None` if that value is empty or cut off.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut open, mut at) = (Vec::new(), 0);
    loop {
        match *text.get(at)? {
            b'"' => at += quoted(&text[at..])?,
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            closing @ (b'}' | b']') => drop(open.pop().filter(|expected| *expected == closing)?),
            _ if open.is_empty() => {
                at = text.iter().position(|byte| is_delimiter(*byte)).unwrap_or(text.len());
                return (at > 0).then(|| text.split_at(at));
            }
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            return Some(text.split_at(at));
        }
    }
}

const fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
}

/// The offset of the quote that ends a literal.
fn quoted(literal: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', literal.get(at..)?)?;
        if literal[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// The text of a literal, with replacement characters for bytes that are not UTF-8. `None` if an escape is unknown.
fn text(literal: &[u8]) -> Option<Cow<'_, str>> {
    struct Text;

    impl<'d> Visitor<'d> for Text {
        type Value = Cow<'d, str>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a text")
        }

        fn visit_borrowed_bytes<E: Error>(self, bytes: &'d [u8]) -> Result<Cow<'d, str>, E> {
            Ok(String::from_utf8_lossy(bytes))
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Cow<'d, str>, E> {
            Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
        }
    }

    serde_json::Deserializer::from_slice(literal).deserialize_bytes(Text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_invalid_value_is_skipped_alone() {
        let deep = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
        for (text, expected) in [
            (r#"{"a":NaN,"b":1}"#, Some(r#"{"b":1}"#)),
            (r#" { "a" : [ -Infinity , 2 ] , "b" : 1 } "#, Some(r#"{"a":[null,2],"b":1}"#)),
            (r#"{"a":{"c":1e999,"d":3},"b":1}"#, Some(r#"{"a":{"d":3},"b":1}"#)),
            (r#"{"a":"x\ud83d y","b":1}"#, Some(r#"{"a":"x��� y","b":1}"#)),
            (r#"{"a":"x\q","b":"\"}","c":01}"#, Some(r#"{"b":"\"}"}"#)),
            (r#"{"a":{},"b":[],"c":undefined}"#, Some(r#"{"a":{},"b":[]}"#)),
            (r#"{"content":[NaN,{"a":1}],"b":NaN}"#, Some("{}")),
            (&format!(r#"{{"a":{},"b":1}}"#, deep(300)), Some(r#"{"a":[[[[[[[null]]]]]]],"b":1}"#)),
            (r#"[NaN,{"a":1}]"#, Some(r#"[null,{"a":1}]"#)),
            // What is no document at all is not guessed at.
            (r#"{"a":NaN,"b":1"#, None),
            (r#"{"a":NaN,"b":1}}"#, None),
            (r#"{"a":NaN,"b":1} x"#, None),
            (r#"{"a":[NaN},"b":1}"#, None),
            (r#"{"a":NaN,"b"}"#, None),
            (r#"{"a":NaN "b":1}"#, None),
            (r#"{"a":NaN,}"#, None),
            (r#"{"a":"x,"b":1}"#, None),
            ("[NaN,]", None),
            ("NaN", None),
            ("\"a\"", None),
            ("", None),
        ] {
            let read = document(text.as_bytes()).map(|value| value.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
        assert_eq!(
            document(b"{\"a\":\"\xff\",\"b\":1}").map(|value| value.to_string()).as_deref(),
            Some(r#"{"a":"�","b":1}"#)
        );
        let (value, after) = first(b" {\"a\":NaN,\"b\":1} , {\"c\"").unwrap();
        assert_eq!((&*value.to_string(), after), (r#"{"b":1}"#, &b" , {\"c\""[..]));
    }

    proptest! {
        /// The other members are read as the parser reads them, wherever the odd value is.
        #[test]
        fn members_beside_an_invalid_value_are_read_like_a_strict_parser(
            values in proptest::collection::vec("[a-c1\\[\\]{}:,\"\\\\ ]{0,9}", 1..6),
            odd in 0usize..6,
        ) {
            let members = |odd: Option<usize>| {
                let member = |(at, value): (usize, &String)| {
                    let value = if odd == Some(at) { "NaN".to_owned() } else { crate::json::string::encode(value) };
                    format!("\"k{at}\":{value}")
                };
                format!("{{{}}}", values.iter().enumerate().map(member).collect::<Vec<_>>().join(", "))
            };
            let odd = odd % values.len();
            let (strict, text) = (members(None), members(Some(odd)));
            let mut expected: serde_json::Value = serde_json::from_str(&strict).unwrap();
            expected.as_object_mut().unwrap().remove(&format!("k{odd}"));
            prop_assert_eq!(document(text.as_bytes()).map(|value| (&value).into()), Some(expected));
        }

        #[test]
        fn agrees_with_strict_parsing_and_never_panics(text in "[\\[\\]{}:,\"\\\\ a1N]{0,40}") {
            if let Ok(strict) = serde_json::from_str::<Value<'_>>(&text) {
                let is_container = matches!(strict, Value::List(_) | Value::Object(_));
                let is_empty = strict.to_string().len() == 2;
                prop_assert!(!is_container || is_empty || document(text.as_bytes()) == Some(strict), "{}", text);
            } else {
                let _ = document(text.as_bytes());
            }
        }
    }
}
