//! Figures of the ledger that the provider does not report: what requests would have cost without the gateway, and what
//! they consist of.

mod counterfactual;
mod coverage;
mod figures;
mod files;

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream, records};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";

/// A conversation with the given tool results.
fn request(results: &[&str]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for (at, result) in results.iter().enumerate() {
        let id = format!("toolu_{at}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Grep", "input": {"pattern": format!("p{at}")}}]}));
        let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": result});
        if at + 1 == results.len() {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        messages.push(json!({"role": "user", "content": [block]}));
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "system": "Be brief", "messages": messages})
        .to_string()
}

/// A provider that counts one token per four bytes. What was sent before is read from the cache, the rest is written.
fn answer(request: &Received) -> Answer {
    let (tokens, read) = (request.body.len() / 4, if request.text().contains("toolu_1") { 2000 } else { 0 });
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 0, "cache_read_input_tokens": read,
                  "cache_creation_input_tokens": tokens - read, "output_tokens": 7}});
    (200, body.to_string())
}

pub(crate) fn log(name: &str, lines: usize) -> String {
    let lines: Vec<String> = (0..lines).map(|line| format!("{name} line {line:06} of a long log")).collect();
    lines.join("\n")
}

/// The records of two requests of a conversation.
fn two_requests(config: &str, first: &str, second: &str) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), &format!("{config}{CONFIG}"), &upstream.url());
    for body in [request(&[first]), request(&[first, second])] {
        assert_eq!(gateway.post("/v1/messages", &[], &body).0, 200);
    }
    gateway.stop();
    records(home.path())
}

pub(crate) fn prompt(tokens: &Value) -> u64 {
    let kinds = ["input", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_12h"];
    kinds.iter().map(|kind| tokens[kind].as_u64().unwrap()).sum()
}

/// The record of a request. The provider's prompt has `hidden` tokens that the body does not contain, and `read` tokens
/// are read from the cache.
fn record_of_kept((hidden, read): (usize, u64), body: &Value) -> Value {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(move |request| {
        let tokens = hidden + request.body.len() / 4;
        let body = json!({"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed",
            "output": [], "usage": {"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7,
            "input_tokens_details": {"cached_tokens": read}}});
        (200, body.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post("/v1/responses", &[], &body.to_string()).0, 200);
    gateway.stop();
    records(home.path()).remove(0)
}
