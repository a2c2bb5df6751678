//! Requests that the gateway itself makes. The model and the verb are part of the path.

use serde_json::Value;

use super::answer::{STOP, STOP_NUMBER};
use crate::json::string;
use crate::protocol::ask::{items, joined, with_model};
use crate::protocol::{Ask, Asked, Protocol as _};

pub(super) fn ask(ask: &Ask<'_>) -> Asked {
    let default = format!("/v1beta/models/{}:generateContent", ask.model);
    let (path, query) =
        ask.like.map_or((default.as_str(), ""), |like| like.split_once('?').unwrap_or((like, "")));
    let path = with_model(path, super::Gemini.model_of_path(path), ask.model)
        .replace(":streamGenerateContent", ":generateContent");
    let query: Vec<&str> =
        query.split('&').filter(|pair| !pair.is_empty() && !chooses_format(pair)).collect();
    let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    let body = format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":{}}}]}}],"generationConfig":{{"maxOutputTokens":{}}}}}"#,
        string::encode(ask.text),
        ask.max_tokens
    );
    Asked { path, body, headers: &[] }
}

/// Whether a parameter of a query chooses the format of the answer.
fn chooses_format(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or(pair);
    pair == "alt=sse" || name == "$alt" || name.eq_ignore_ascii_case("%24alt")
}

pub(super) fn text_of_answer(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let candidate = items(&answer, "candidates").first()?;
    let stop = candidate.get("finishReason")?;
    if stop.as_str() != Some(STOP) && stop.as_u64() != Some(STOP_NUMBER) {
        return None;
    }
    let parts = items(candidate.get("content")?, "parts").iter();
    joined(parts.filter(|part| part["thought"] != true).filter_map(|part| part.get("text")))
}
