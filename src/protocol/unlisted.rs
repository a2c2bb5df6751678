//! Requests without a list of messages, which continue a history that only the provider has.

use bytes::Bytes;

use super::Protocol;
use super::body::Document;

/// A request without a list of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlisted {
    /// The model that is asked for.
    pub model: Option<Box<str>>,
    /// The session id in the body.
    pub session: Option<Box<str>>,
    /// The id of the earlier answer that it continues, or of a history that the provider keeps.
    pub continues: Box<str>,
    /// Whether the provider keeps the history with the new answer.
    pub is_kept: bool,
    /// How long the provider may take to answer, as in a [`Conversation`](crate::conversation::Conversation).
    pub completion_window: Option<Box<str>>,
}

/// Reads a request without a list of messages. `None` if there is a list, even if that cannot be read.
pub fn unlisted(protocol: &dyn Protocol, body: &Bytes) -> Option<Unlisted> {
    let document = Document::outermost(body, protocol.list()).ok()?;
    let frame = document.object();
    if frame.given(protocol.list()).is_some() { None } else { protocol.unlisted(&frame) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    #[test]
    fn requests_that_continue_a_held_history_without_a_list() {
        let read = |model: Option<&str>, session: Option<&str>, continues: &str| Unlisted {
            model: model.map(Box::from),
            session: session.map(Box::from),
            continues: continues.into(),
            is_kept: true,
            completion_window: None,
        };
        for (dialect, body, expected) in [
            (
                "openai-responses",
                r#"{"model":"m","previous_response_id":"resp_1"}"#,
                Some(read(Some("m"), None, "resp_1")),
            ),
            (
                "openai-responses",
                r#"{"conversation":{"id":"conv_1"},"input":null,"prompt_cache_key":"k"}"#,
                Some(read(None, Some("k"), "conv_1")),
            ),
            (
                "openai-responses",
                r#"{"model":"m","previous_response_id":"resp_1","store":false}"#,
                Some(Unlisted { is_kept: false, ..read(Some("m"), None, "resp_1") }),
            ),
            (
                "openai-responses",
                r#"{"model":"m","previous_response_id":"resp_1","background_options":{"completion_window":"2h"}}"#,
                Some(Unlisted { completion_window: Some("2h".into()), ..read(Some("m"), None, "resp_1") }),
            ),
            ("openai-responses", r#"{"model":"m","previous_response_id":"resp_1","input":[]}"#, None),
            ("openai-responses", r#"{"model":"m","previous_response_id":"resp_1","input":7}"#, None),
            ("openai-responses", r#"{"model":"m","previous_response_id":7}"#, None),
            ("openai-responses", r#"{"model":"m"}"#, None),
            ("openai-responses", r#"{"model":"m","model":"n","previous_response_id":"resp_1"}"#, None),
            ("openai-chat", r#"{"model":"m","previous_response_id":"resp_1"}"#, None),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            assert_eq!(unlisted(protocol, &Bytes::from(body)), expected, "{dialect} {body}");
        }
    }
}
