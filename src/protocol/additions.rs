//! Members that the gateway adds to a request: a cache key, and the request for usage figures.
//!
//! A request that was indexed is not scanned again: the positions of its members are known.

use bytes::Bytes;

use super::Protocol;
use super::body::{Document, Object};
use crate::conversation::Conversation;
use crate::json::Edits;

/// A request that is about to leave.
#[derive(Debug, Clone, Copy)]
pub enum Leaving<'a> {
    /// It was indexed.
    Read(&'a Conversation),
    /// It was not indexed, or could not be.
    Unread(&'a Bytes),
}

/// What to add to a request that does not have it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'k> {
    /// A key by which the provider routes requests of one conversation to the same cache.
    pub cache_key: Option<&'k str>,
    /// Whether to ask for usage figures, if the request asks for a stream.
    pub usage: bool,
}

/// What was added.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The body with the additions; `None` if nothing was added.
    pub body: Option<Bytes>,
    /// Whether the cache key was added.
    pub has_key: bool,
    /// Whether a request for usage was added.
    pub asks_for_usage: bool,
}

impl Added {
    /// The names of the members that were added or extended.
    pub fn names(&self) -> Vec<&'static str> {
        let names = [(self.has_key, "prompt_cache_key"), (self.asks_for_usage, "stream_options")];
        names.into_iter().filter(|(is_added, _)| *is_added).map(|(_, name)| name).collect()
    }
}

/// Adds to a request what is wanted, as far as its dialect has members for it.
pub fn add(protocol: &dyn Protocol, leaving: Leaving<'_>, wanted: &Wanted<'_>) -> Added {
    if *wanted == (Wanted { cache_key: None, usage: false }) {
        return Added::default();
    }
    match leaving {
        Leaving::Read(request) => {
            add_to(&Object::outermost(&request.body, &request.members), protocol, wanted)
        }
        Leaving::Unread(body) => match Document::outermost(body, protocol.list()) {
            Ok(document) => add_to(&document.object(), protocol, wanted),
            Err(_) => Added::default(),
        },
    }
}

/// Adds what is wanted to the outermost object of a body.
fn add_to(frame: &Object<'_>, protocol: &dyn Protocol, wanted: &Wanted<'_>) -> Added {
    let key = wanted.cache_key.and_then(|key| protocol.add_cache_key(frame, key));
    let usage = if wanted.usage { protocol.ask_for_usage(frame) } else { None };
    let (has_key, asks_for_usage) = (key.is_some(), usage.is_some());
    match Edits::new(key.into_iter().chain(usage).collect()) {
        Ok(edits) if !edits.is_empty() => {
            Added { body: Some(edits.apply(frame.bytes).into()), has_key, asks_for_usage }
        }
        _ => Added::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{NoMemo, PartId};
    use crate::plan::{Op, Plan};
    use crate::protocol;

    const BOTH: Wanted<'_> = Wanted { cache_key: Some("k"), usage: true };

    /// It makes no difference whether a request was read, rewritten, or neither.
    #[test]
    fn read_and_unread_bodies_get_the_same_additions() {
        let messages = r#"[{"role":"user","content":"}"}]"#;
        for (dialect, body, expected, asks) in [
            (
                "openai-chat",
                format!("{{\"messages\":{messages}, \"stream\": true }}\n"),
                format!(
                    "{{\"messages\":{messages}, \"stream\": true ,\"prompt_cache_key\":\"k\",\"stream_options\":{{\"include_usage\":true}}}}\n"
                ),
                true,
            ),
            (
                "openai-chat",
                format!(r#"{{"stream_options":{{}},"messages":{messages},"stream":true}}"#),
                format!(
                    r#"{{"stream_options":{{"include_usage":true}},"messages":{messages},"stream":true,"prompt_cache_key":"k"}}"#
                ),
                true,
            ),
            (
                "openai-chat",
                format!(r#"{{"prompt_cache_key":"own","stream":true,"messages":{messages}}}"#),
                format!(
                    r#"{{"prompt_cache_key":"own","stream":true,"messages":{messages},"stream_options":{{"include_usage":true}}}}"#
                ),
                true,
            ),
            (
                "openai-responses",
                format!(r#"{{"input":{messages},"stream":true}}"#),
                format!(r#"{{"input":{messages},"stream":true,"prompt_cache_key":"k"}}"#),
                false,
            ),
            ("anthropic", format!(r#"{{"messages":{messages},"stream":true}}"#), String::new(), false),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let has_key = expected.contains("prompt_cache_key\":\"k\"");
            let expected = Added {
                body: (!expected.is_empty()).then(|| Bytes::from(expected)),
                has_key,
                asks_for_usage: asks,
            };
            let body = Bytes::from(body);
            assert_eq!(add(protocol, Leaving::Unread(&body), &BOTH), expected, "{dialect} {body:?}");
            let read = protocol.index(&body, &NoMemo).unwrap();
            assert_eq!(add(protocol, Leaving::Read(&read), &BOTH), expected, "{dialect} {body:?}");
            let part = PartId { message: 0, part: 0 };
            let plan = Plan { ops: vec![Op::Append { part, leaf: 0, text: " {once more}".into() }] };
            let edited = protocol::apply_verified(protocol, &read, &plan, &NoMemo).unwrap();
            let whole = add(protocol, Leaving::Unread(&edited.body), &BOTH);
            assert_eq!(add(protocol, Leaving::Read(&edited), &BOTH), whole, "{dialect} {:?}", edited.body);
        }
    }

    /// The body is replaced by one that is no longer JSON, which reading it again would reveal.
    #[test]
    fn an_indexed_body_is_not_parsed_again() {
        let chat = protocol::named("openai-chat").unwrap();
        let body = r#"{"stream":true,"messages":[{"role":"user","content":"xxx"}]}"#;
        let mut read = chat.index(&Bytes::from(body), &NoMemo).unwrap();
        read.body = body.replace("xxx", "\"]{").into();
        let added = add(chat, Leaving::Read(&read), &BOTH);
        let expected = r#"{"stream":true,"messages":[{"role":"user","content":""]{"}],"prompt_cache_key":"k","stream_options":{"include_usage":true}}"#;
        assert_eq!(added.body.as_deref(), Some(expected.as_bytes()));
        assert_eq!(add(chat, Leaving::Unread(&read.body), &BOTH), Added::default());
    }

    /// A request of one dialect on the path of another is not a request of that path's dialect.
    #[test]
    fn nothing_is_added_to_a_body_of_another_dialect() {
        let (chat, responses) =
            (protocol::named("openai-chat").unwrap(), protocol::named("openai-responses").unwrap());
        let body = Bytes::from(r#"{"input":[],"stream":true}"#);
        let read = responses.index(&body, &NoMemo).unwrap();
        for leaving in [Leaving::Read(&read), Leaving::Unread(&body)] {
            assert_eq!(add(chat, leaving, &BOTH), Added::default(), "{leaving:?}");
        }
        for odd in ["", "[]", r#"{"messages":[],"stream":true,"stream":true}"#] {
            assert_eq!(add(chat, Leaving::Unread(&Bytes::from(odd)), &BOTH), Added::default(), "{odd}");
        }
    }

    #[test]
    fn only_requested_members_are_added() {
        let chat = protocol::named("openai-chat").unwrap();
        let body = Bytes::from(r#"{"messages":[],"stream":true}"#);
        for (wanted, expected) in [
            (Wanted { cache_key: None, usage: false }, Added::default()),
            (
                Wanted { cache_key: Some("k"), usage: false },
                Added {
                    body: Some(r#"{"messages":[],"stream":true,"prompt_cache_key":"k"}"#.into()),
                    has_key: true,
                    asks_for_usage: false,
                },
            ),
        ] {
            assert_eq!(add(chat, Leaving::Unread(&body), &wanted), expected, "{wanted:?}");
        }
    }
}
