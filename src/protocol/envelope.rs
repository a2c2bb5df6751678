//! Envelopes: bodies that contain a request among other things.
//!
//! The request inside is read and edited as if it were alone. The rest leaves as it came.

use bytes::Bytes;

use super::Document;
use super::body::Object;
use crate::json::Span;
use crate::json::scan::Kind;

/// A prefix that model names may have.
const MODEL_PREFIX: &str = "models/";

/// A body that contains a request.
#[derive(Debug, Clone)]
pub struct Envelope {
    body: Bytes,
    request: Span,
    model: Option<Box<str>>,
}

impl Envelope {
    /// Reads a body that has no list of messages named `list`, but a request under exactly one of `names`.
    pub(super) fn read(body: &Bytes, list: &str, names: &[&str]) -> Option<Self> {
        let document = Document::outermost(body, list).ok()?;
        let outer = document.object();
        if outer.get(list).is_some() {
            return None;
        }
        let mut found = names.iter().filter_map(|name| outer.get(name));
        let request =
            found.next().filter(|request| request.kind == Kind::Object && found.next().is_none())?;
        let model = outer.text("model").or_else(|| Object::read(body, request).ok()?.text("model"));
        Some(Self { body: body.clone(), request: request.span, model })
    }

    /// The request, sharing the body's memory.
    pub fn request(&self) -> Bytes {
        self.body.slice(self.request.range())
    }

    /// The model named by the request or by the envelope.
    pub fn model(&self) -> Option<&str> {
        let name = self.model.as_deref()?;
        Some(name.strip_prefix(MODEL_PREFIX).unwrap_or(name)).filter(|name| !name.is_empty())
    }

    /// The size of the envelope in bytes.
    pub fn overhead(&self) -> usize {
        self.body.len() - self.request.len()
    }

    /// The body with another request in place of the original one.
    pub fn around(&self, request: &[u8]) -> Bytes {
        let original = self.request.range();
        [&self.body[..original.start], request, &self.body[original.end..]].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<Envelope> {
        Envelope::read(&Bytes::copy_from_slice(body.as_bytes()), "contents", &["request", "other"])
    }

    #[test]
    fn requests_in_an_envelope_are_recognised() {
        for (body, expected) in [
            (r#"{"request":{"model":"m"}}"#, Some((r#"{"model":"m"}"#, Some("m")))),
            (r#" {"x":[], "other" : { } }"#, Some(("{ }", None))),
            (r#"{"model":"a","request":{"model":"b"}}"#, Some((r#"{"model":"b"}"#, Some("a")))),
            (r#"{"request":{"model":"models/a-1"}}"#, Some((r#"{"model":"models/a-1"}"#, Some("a-1")))),
            (r#"{"model":7,"request":{}}"#, Some(("{}", None))),
            (r#"{"model":"","request":{}}"#, Some(("{}", None))),
            (r#"{"contents":[]}"#, None),
            (r#"{"contents":[],"request":{}}"#, None),
            (r#"{"contents":7,"request":{}}"#, None),
            (r#"{"other":{},"request":{}}"#, None),
            (r#"{"request":{},"request":{}}"#, None),
            (r#"{"request":{},"re\u0071uest":{}}"#, None),
            (r#"{"re\u0071uest":{}}"#, None),
            (r#"{"request":{},"c\u006fntents":[]}"#, None),
            (r#"{"model":"a","model":"b","request":{}}"#, None),
            (r#"{"request":null,"other":{}}"#, None),
            ("\u{feff}{\"request\":{}}", None),
            (r#"{"request":[]}"#, None),
            (r#"{"request":{}} "#, Some(("{}", None))),
            (r#"{"request":{}}x"#, None),
            ("{}", None),
            ("[]", None),
            ("{", None),
        ] {
            let envelope = read(body);
            let found = envelope.as_ref().map(|envelope| (envelope.request(), envelope.model()));
            let expected = expected.map(|(request, model)| (Bytes::from_static(request.as_bytes()), model));
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn an_envelope_is_restored_byte_for_byte() {
        let envelope = read(r#" { "model" : "a", "request":{"contents":[]}, "x":"\u00e9" } "#).unwrap();
        assert_eq!(envelope.around(b"{1}"), r#" { "model" : "a", "request":{1}, "x":"\u00e9" } "#);
        assert_eq!(envelope.around(&envelope.request()), envelope.body);
        assert_eq!(envelope.overhead() + envelope.request().len(), envelope.body.len());
    }
}
