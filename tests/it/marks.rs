//! What is written to the cache costs more than what is not: a history is marked where the next request will read it.

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream};

/// A message of a history of calls.
fn message(at: usize) -> Value {
    let id = format!("call_{}", at / 4);
    match at % 4 {
        0 => json!({"role": "user", "content": format!("question {at} {}", "words ".repeat(300))}),
        1 => {
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {"at": at}}]})
        }
        2 => {
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": format!("out {at}")}]})
        }
        _ => json!({"role": "assistant", "content": format!("done {at}")}),
    }
}

/// A request with what stays and so many messages of the history.
fn body(stays: &[&str], messages: std::ops::Range<usize>) -> String {
    let role = |at: usize| ["user", "assistant"][at % 2];
    let stays = stays.iter().enumerate().map(|(at, text)| json!({"role": role(at), "content": text}));
    let messages: Vec<Value> = stays.chain(messages.map(message)).collect();
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string()
}

#[test]
fn histories_are_marked_where_they_go_on() {
    let upstream = Upstream::start(|_| {
        (200, json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}).to_string())
    });
    let grows = |ends: &[usize]| ends.iter().map(|end| body(&[], 0..*end)).collect::<Vec<_>>();
    let slides =
        |stays: &[&str]| (3..8).map(|turn| body(stays, turn * 4 - 12..turn * 4 + 1)).collect::<Vec<_>>();
    for (case, requests, expected) in [
        ("grows", grows(&[1, 3, 5, 7, 9]), [0, 1, 2, 2, 2].as_slice()),
        ("joined half-way", grows(&[21, 23, 25]), &[0, 1, 2]),
        ("the newest alone", slides(&[]), &[0; 5]),
        ("the first words and the newest", slides(&["Begin.", "Yes."]), &[0; 5]),
        ("sent once", grows(&[27]), &[0]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(home.path(), "[listen]\nadmin = 'off'\n", &upstream.url());
        let before = upstream.received().len();
        for request in &requests {
            assert_eq!(gateway.post("/v1/messages", &[], request).0, 200, "{case}");
        }
        gateway.stop();
        let marks = |request: &Received| request.text().matches("cache_control").count();
        let marks: Vec<usize> = upstream.received()[before..].iter().map(marks).collect();
        assert_eq!(marks, expected, "{case}");
    }
}
