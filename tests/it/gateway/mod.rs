//! The whole binary between a raw client and a raw upstream: what is sent, remembered and booked.

mod prefixes;
mod records;
mod refusals;
mod requests;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Answer, Received, Upstream};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";

/// A conversation with the tool results so far, growing like an agent's.
fn request(model: &str, results: &[&str]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for (at, result) in results.iter().enumerate() {
        let id = format!("toolu_{at}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Grep", "input": {"pattern": format!("p{at}")}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": result}]}));
    }
    json!({"model": model, "max_tokens": 1000, "messages": messages}).to_string()
}

fn log(name: &str, lines: usize) -> String {
    let lines: Vec<String> = (0..lines).map(|line| format!("{name} line {line:06} of a long log")).collect();
    lines.join("\n")
}

fn answer(_: &Received) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10,
                  "output_tokens": 7}});
    (200, body.to_string())
}

/// A body without cache marks, and without the list form that a marked text needs.
fn unmarked(received: &Received) -> String {
    let text = received.text().replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    text.replace(r#"[{"type":"text","text":"Find the bug"}]"#, r#""Find the bug""#)
}

/// The messages of a body as bytes, without cache marks and without the closing bracket of the list.
fn messages(received: &Received) -> String {
    let text = unmarked(received);
    let start = text.find("\"messages\":[").expect("a list of messages");
    let end = text.rfind(']').expect("its end");
    text[start..end].to_owned()
}

fn assert_appended(upstream: &Upstream) {
    let sent: Vec<String> = upstream.received().iter().map(messages).collect();
    assert!(sent.len() > 1);
    for pair in sent.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "the second request does not begin with the first");
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).map(|dir| dir.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default();
    files.sort();
    files
}
