//! A canonical form of values for hashing.
//!
//! White space, escapes in strings and the order of keys make no difference; everything else does. The form is fed to a
//! sink piece by piece and is unambiguous: every piece is tagged, and text is preceded by its length.

use super::scan::{self, Kind, ScanError, Value};
use super::string;

/// Feeds the canonical form of `value` to `sink`, leaving out members named in `skip`, at any depth.
///
/// # Errors
/// Returns [`ScanError`] if the bytes are not what `value` says.
pub fn feed(
    document: &[u8],
    value: Value,
    skip: &[&str],
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), ScanError> {
    let bytes = value.span.of(document);
    match value.kind {
        Kind::String => {
            match string::decode(bytes) {
                Some(text) => text_piece(&text, sink),
                None => piece(b'r', bytes, sink),
            }
            Ok(())
        }
        Kind::Number | Kind::Bool | Kind::Null => {
            piece(b'n', bytes, sink);
            Ok(())
        }
        Kind::Array => {
            sink(b"[");
            for item in scan::items(document, value.span)? {
                feed(document, item, skip, sink)?;
            }
            sink(b"]");
            Ok(())
        }
        Kind::Object => {
            let mut members = scan::members_unchecked(document, value.span)?;
            members.retain(|member| !skip.iter().any(|name| name.as_bytes() == member.name(document)));
            members.sort_by_key(|member| member.name(document));
            sink(b"{");
            for member in members {
                piece(b'k', member.name(document), sink);
                feed(document, member.value, skip, sink)?;
            }
            sink(b"}");
            Ok(())
        }
    }
}

/// Feeds a text in the same form as a string value of the same text.
pub fn text_piece(text: &str, sink: &mut dyn FnMut(&[u8])) {
    piece(b's', text.as_bytes(), sink);
}

fn piece(tag: u8, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
    sink(&[tag]);
    sink(&(bytes.len() as u64).to_le_bytes());
    sink(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let root = scan::document(text.as_bytes()).unwrap();
        feed(text.as_bytes(), root, &["skip"], &mut |bytes| out.extend_from_slice(bytes)).unwrap();
        out
    }

    #[test]
    fn canonical_forms_ignore_spacing_order_and_escapes() {
        let same = [
            r#"{"a":1,"b":["x","é"]}"#,
            r#" { "b" : [ "x" , "\u00e9" ] , "a" : 1 } "#,
            r#"{"skip":{"ttl":1},"a":1,"b":["x","é"]}"#,
        ];
        for text in same {
            assert_eq!(form(text), form(same[0]), "{text}");
        }
        for text in
            [r#"{"a":1.0,"b":["x","é"]}"#, r#"{"a":1,"b":["é","x"]}"#, r#"{"a":1,"b":["xé"]}"#, r#"{"a":1}"#]
        {
            assert_ne!(form(text), form(same[0]), "{text}");
        }
    }
}
