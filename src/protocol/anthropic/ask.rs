//! Requests that the gateway itself makes.

use serde_json::Value;

use crate::json::string;
use crate::protocol::ask::{items, joined, with_model};
use crate::protocol::{Ask, Asked, Protocol as _};

/// Resellers have the model in the path and require a version in the body. For each: a part of its paths, and the
/// version.
const VERSIONS: &[(&str, &str)] = &[("/publishers/", "vertex-2023-10-16"), ("/model/", "bedrock-2023-05-31")];

/// The header that the provider's own API requires. Resellers ignore it.
const VERSION: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

pub(super) fn ask(ask: &Ask<'_>) -> Asked {
    let path = ask.like.unwrap_or("/v1/messages");
    let named = super::Anthropic.model_of_path(path.split('?').next().unwrap_or(path));
    let head = match named {
        Some(_) => VERSIONS
            .iter()
            .find(|(part, _)| path.contains(part))
            .map_or_else(String::new, |(_, version)| format!(r#""anthropic_version":"{version}","#)),
        None => format!(r#""model":{},"#, string::encode(ask.model)),
    };
    let body = format!(
        r#"{{{head}"max_tokens":{},"messages":[{{"role":"user","content":{}}}]}}"#,
        ask.max_tokens,
        string::encode(ask.text)
    );
    let path = with_model(path, named, ask.model)
        .replace(":streamRawPredict", ":rawPredict")
        .replace("/invoke-with-response-stream", "/invoke");
    Asked { path, body, headers: VERSION }
}

pub(super) fn text_of_answer(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let stop = answer.get("stop_reason").and_then(Value::as_str)?;
    let texts = items(&answer, "content").iter().filter(|block| block["type"] == "text");
    joined(texts.filter_map(|block| block.get("text")))
        .filter(|_| stop == "end_turn" || stop == "stop_sequence")
}
