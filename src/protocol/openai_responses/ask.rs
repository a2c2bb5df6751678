//! Requests that the gateway itself makes. They ask the provider not to store them.

use serde_json::Value;

use crate::json::string;
use crate::protocol::ask::{items, joined};
use crate::protocol::{Ask, Asked};

pub(super) fn ask(ask: &Ask<'_>) -> Asked {
    let path = ask.like.unwrap_or("/v1/responses").to_owned();
    let body = format!(
        r#"{{"model":{},"max_output_tokens":{},"store":false,"input":[{{"role":"user","content":{}}}]}}"#,
        string::encode(ask.model),
        ask.max_tokens,
        string::encode(ask.text)
    );
    Asked { path, body, headers: &[] }
}

pub(super) fn text_of_answer(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    if answer.get("status").and_then(Value::as_str)? != "completed" {
        return None;
    }
    let messages = items(&answer, "output").iter().filter(|item| item["type"] == "message");
    let parts = messages.flat_map(|message| items(message, "content"));
    joined(parts.filter(|part| part["type"] == "output_text").filter_map(|part| part.get("text")))
}
