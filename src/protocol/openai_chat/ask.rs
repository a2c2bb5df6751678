//! Requests that the gateway itself makes. Servers disagree about the name of the token limit, so none is sent.

use serde_json::Value;

use crate::json::string;
use crate::protocol::ask::{items, joined};
use crate::protocol::{Ask, Asked};

pub(super) fn ask(ask: &Ask<'_>) -> Asked {
    let path = ask.like.unwrap_or("/v1/chat/completions").to_owned();
    let body = format!(
        r#"{{"model":{},"messages":[{{"role":"user","content":{}}}]}}"#,
        string::encode(ask.model),
        string::encode(ask.text)
    );
    Asked { path, body, headers: &[] }
}

pub(super) fn text_of_answer(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let choice = items(&answer, "choices").first()?;
    if choice.get("finish_reason").and_then(Value::as_str)? != "stop" {
        return None;
    }
    let content = choice.get("message")?.get("content")?;
    match content {
        Value::String(_) => joined(std::iter::once(content)),
        _ => joined(content.as_array()?.iter().filter_map(|block| block.get("text"))),
    }
}
