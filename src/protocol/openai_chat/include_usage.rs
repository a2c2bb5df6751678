//! Asks for usage figures, which streams report only on request.

use crate::json::Edit;
use crate::json::scan::Kind;
use crate::protocol::body::Object;

/// The edit that asks for usage, if the request asks for a stream and does not say whether it wants usage.
pub(super) fn ask(frame: &Object<'_>) -> Option<Edit> {
    const ASKED: &str = r#""include_usage":true"#;
    frame.of_kind("messages", Kind::Array).filter(|_| frame.is_true("stream"))?;
    let Some(options) = frame.get("stream_options") else {
        return Some(frame.append(&format!(r#""stream_options":{{{ASKED}}}"#)));
    };
    match options.kind {
        Kind::Null => Some(Edit::replace(options.span, format!("{{{ASKED}}}"))),
        Kind::Object => {
            let object = Object::read(frame.bytes, options).ok()?;
            let comma = if object.values().next().is_some() { "," } else { "" };
            let edit = Edit::insert(options.span.start + 1, format!("{ASKED}{comma}"));
            object.get("include_usage").is_none().then_some(edit)
        }
        _ => None,
    }
}

/// Whether an event is a chunk with figures and without choices.
pub(super) fn only_states_usage(event: &[u8]) -> bool {
    let Ok(chunk) = serde_json::from_slice::<serde_json::Value>(event) else { return false };
    let no_choices = chunk.get("choices").and_then(serde_json::Value::as_array).is_some_and(Vec::is_empty);
    no_choices && chunk.get("usage").is_some_and(serde_json::Value::is_object)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::Edits;
    use crate::protocol::Document;

    #[test]
    fn include_usage_is_added_to_streams_that_do_not_set_it() {
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
            let document = Document::outermost(&Bytes::from(body), "messages");
            let edit = document.ok().and_then(|document| ask(&document.object()));
            let asked = edit.map(|edit| Edits::new(vec![edit]).unwrap().apply(body.as_bytes()));
            assert_eq!(asked.as_deref(), expected.map(str::as_bytes), "{body}");
        }
    }
}
