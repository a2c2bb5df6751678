//! Streams state their usage only when they are asked to.

use bytes::Bytes;

use crate::json::scan::{self, Kind};
use crate::json::{Edit, Edits};
use crate::protocol::Unread;
use crate::protocol::body::{Document, Object};

/// The body with the question, if it is a stream's and leaves it open.
pub(super) fn ask(body: &Bytes) -> Option<Bytes> {
    let edit = question(body).ok()??;
    Some(Bytes::from(Edits::new(vec![edit]).ok()?.apply(body)))
}

fn question(body: &Bytes) -> Result<Option<Edit>, Unread> {
    const ASKED: &str = r#""include_usage":true"#;
    let frame = Document::frame(body, "messages")?;
    if !frame.has_list() || !frame.is_true("stream") {
        return Ok(None);
    }
    let Some(options) = frame.get("stream_options") else {
        let end = scan::document(body)?.span.end - 1;
        return Ok(Some(Edit::insert(end, format!(r#","stream_options":{{{ASKED}}}"#))));
    };
    match options.kind {
        Kind::Null => Ok(Some(Edit::replace(options.span, format!("{{{ASKED}}}")))),
        Kind::Object => {
            let object = Object::read(body, options)?;
            let comma = if object.values().next().is_some() { "," } else { "" };
            let asked = Edit::insert(options.span.start + 1, format!("{ASKED}{comma}"));
            Ok(object.get("include_usage").is_none().then_some(asked))
        }
        _ => Ok(None),
    }
}

/// A chunk without choices that has figures.
pub(super) fn only_states_usage(event: &[u8]) -> bool {
    let Ok(chunk) = serde_json::from_slice::<serde_json::Value>(event) else { return false };
    let no_choices = chunk.get("choices").and_then(serde_json::Value::as_array).is_some_and(Vec::is_empty);
    no_choices && chunk.get("usage").is_some_and(serde_json::Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_put_where_it_is_open() {
        for (body, expected) in [
            (
                r#"{"messages":[],"stream":true}"#,
                Some(r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#),
            ),
            (
                "{\"messages\":[], \"stream\": true }\n",
                Some("{\"messages\":[], \"stream\": true ,\"stream_options\":{\"include_usage\":true}}\n"),
            ),
            (
                r#"{"stream_options":{},"messages":[],"stream":true}"#,
                Some(r#"{"stream_options":{"include_usage":true},"messages":[],"stream":true}"#),
            ),
            (
                r#"{"stream_options":null,"messages":[],"stream":true}"#,
                Some(r#"{"stream_options":{"include_usage":true},"messages":[],"stream":true}"#),
            ),
            (
                r#"{"stream_options":{"include_obfuscation":false},"messages":[],"stream":true}"#,
                Some(
                    r#"{"stream_options":{"include_usage":true,"include_obfuscation":false},"messages":[],"stream":true}"#,
                ),
            ),
            (r#"{"stream_options":{"include_usage":false},"messages":[],"stream":true}"#, None),
            (r#"{"stream_options":{"include_usage":true},"messages":[],"stream":true}"#, None),
            (r#"{"stream_options":7,"messages":[],"stream":true}"#, None),
            (r#"{"messages":[],"stream":false}"#, None),
            (r#"{"messages":[]}"#, None),
            (r#"{"input":[],"stream":true}"#, None),
            (r#"{"messages":[],"stream":true,"stream":true}"#, None),
        ] {
            let asked = ask(&Bytes::from(body));
            assert_eq!(asked.as_deref(), expected.map(str::as_bytes), "{body}");
        }
    }
}
