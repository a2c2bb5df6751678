//! Requests that the gateway itself makes: they carry any text unchanged, and only a complete answer is accepted.

use bytes::Bytes;
use proptest::prelude::*;

use crate::conversation::{NoMemo, PartId, PartKind, Role};
use crate::protocol::{Ask, Cause, Framing};

use super::{SUBJECTS, for_all};

#[test]
fn own_calls_can_be_indexed_and_are_valid() {
    let strategy = |_| ("\\PC{1,80}|[\"\\\\\n\u{0}-\u{1f}x]{1,20}", 1..100_000_u64).boxed();
    for_all(64, strategy, |subject, (text, max_tokens)| {
        let protocol = subject.protocol();
        let text = format!("{text}.");
        let asked = protocol.ask(&Ask { model: "some-model", text: &text, max_tokens, like: None });
        let conversation = protocol.index(&Bytes::from(asked.body), &NoMemo);
        let conversation = conversation.map_err(|unread| TestCaseError::fail(unread.to_string()))?;
        prop_assert_eq!(conversation.messages.len(), 1);
        prop_assert_eq!(conversation.messages[0].index.role, Role::User);
        prop_assert_eq!(conversation.messages[0].index.parts[0].kind(), PartKind::Text);
        let id = PartId { message: 0, part: 0 };
        let said = conversation.text(id, 0);
        prop_assert_eq!(said.as_deref(), Some(&*text));
        let valid = protocol.valid(&conversation);
        prop_assert_eq!(valid, Ok(()));
        prop_assert!(!conversation.stream && conversation.continues.is_none());
        let model = conversation.model.as_deref().or_else(|| protocol.model_of_path(&asked.path));
        prop_assert_eq!(model, Some("some-model"));
        Ok(())
    });
}

#[test]
fn the_text_of_an_answer_is_returned_only_if_complete() {
    let strategy = |_| "\\PC{0,60}[a-z]".boxed();
    for_all(64, strategy, |subject, text| {
        let protocol = subject.protocol();
        let whole = subject.says(&text, true);
        let said = protocol.text_of_answer(whole.as_bytes());
        prop_assert_eq!(said.as_deref(), Some(&*text), "{}", &whole);
        let cut_off = subject.says(&text, false);
        for (answer, cause) in [(&whole, Cause::Other), (&cut_off, Cause::Length)] {
            let mut reader = protocol.answer(Framing::Document);
            reader.push(answer.as_bytes());
            let read = reader.finish();
            prop_assert!(read.usage.is_some(), "{}", answer);
            prop_assert_eq!(read.stop.map(|stop| stop.cause()), Some(cause), "{}", answer);
        }
        prop_assert_eq!(protocol.text_of_answer(cut_off.as_bytes()), None);
        for cut in (0..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
            prop_assert_eq!(protocol.text_of_answer(&whole.as_bytes()[..cut]), None);
        }
        Ok(())
    });
    for subject in SUBJECTS {
        for nonsense in
            ["", "null", "[]", "{}", r#"{"error":{"message":"no"}}"#, r#"{"content":3,"choices":[1]}"#]
        {
            assert_eq!(subject.protocol().text_of_answer(nonsense.as_bytes()), None, "{nonsense}");
        }
        assert_eq!(subject.protocol().text_of_answer(subject.says("  \n", true).as_bytes()), None, "blank");
    }
}

#[test]
fn own_calls_use_the_paths_of_clients() {
    // A model may be named by the segments of its address, which are escaped in a path.
    let arn = "/model/arn%3Aaws%3Abedrock%3Ainference-profile%2Fx/invoke";
    let bedrock = crate::protocol::named("anthropic").unwrap();
    let ask = Ask { model: "arn:aws:bedrock:inference-profile/y", text: "x", max_tokens: 9, like: Some(arn) };
    assert_eq!(bedrock.ask(&ask).path, "/model/arn:aws:bedrock:inference-profile%2Fy/invoke");
    for (dialect, like, expected) in [
        ("anthropic", "/v1/messages?beta=true", "/v1/messages?beta=true"),
        (
            "anthropic",
            "/v1/projects/p/publishers/anthropic/models/claude-x@1:streamRawPredict",
            "/v1/projects/p/publishers/anthropic/models/mine:rawPredict",
        ),
        ("anthropic", "/model/claude-x/invoke-with-response-stream", "/model/mine/invoke"),
        ("openai-chat", "/gw/chat/completions", "/gw/chat/completions"),
        ("openai-responses", "/v1/responses", "/v1/responses"),
        (
            "gemini",
            "/v1beta/models/g-1:streamGenerateContent?alt=sse&key=k",
            "/v1beta/models/mine:generateContent?key=k",
        ),
        (
            "gemini",
            "/v1beta/models/g-1:generateContent?%24alt=json%3Benum-encoding%3Dint",
            "/v1beta/models/mine:generateContent",
        ),
        (
            "gemini",
            "/v1beta/models/g-1:streamGenerateContent?key=k&$alt=json;enum-encoding=int",
            "/v1beta/models/mine:generateContent?key=k",
        ),
        (
            "gemini",
            "/v1beta/models/mine:streamGenerateContent?alt=sse",
            "/v1beta/models/mine:generateContent",
        ),
    ] {
        let protocol = crate::protocol::named(dialect).unwrap();
        let asked = protocol.ask(&Ask { model: "mine", text: "x", max_tokens: 9, like: Some(like) });
        assert_eq!(asked.path, expected);
    }
}
