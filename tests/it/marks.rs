//! What is written to the cache costs more than what is not: a history is marked where the next request will read it.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream};

/// However busy the machine is, no request leaves unread.
const CONFIG: &str = "[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '30s'\n";

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

/// What the prompts cost that arrived, in bytes of plain input, where those are kept that end with a mark.
fn bill(requests: &[Received]) -> f64 {
    let mut kept = std::collections::HashSet::new();
    let mut paid = 0.0;
    for request in requests {
        let mut body: Value = serde_json::from_str(&request.text()).unwrap();
        let (mut prompt, mut marked) = (String::new(), Vec::new());
        for message in body["messages"].as_array_mut().unwrap() {
            if let Some(text) = message["content"].as_str() {
                message["content"] = json!([{"type": "text", "text": text}]);
            }
            for block in message["content"].as_array_mut().unwrap() {
                let mark = block.as_object_mut().unwrap().remove("cache_control");
                prompt += &block.to_string();
                marked.extend(mark.map(|_| prompt.clone()));
            }
        }
        let longest =
            |prompts: &mut dyn Iterator<Item = &String>| prompts.map(String::len).max().unwrap_or(0);
        let read = longest(&mut marked.iter().filter(|prompt| kept.contains(*prompt)));
        let written = longest(&mut marked.iter()).max(read);
        paid += 0.1 * read as f64 + 1.25 * (written - read) as f64 + (prompt.len() - written) as f64;
        kept.extend(marked);
    }
    paid
}

/// The client sends these requests, and marks nothing: what arrives.
fn arriving(requests: &[String]) -> Vec<Received> {
    let upstream = Upstream::start(|_| {
        (200, json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}).to_string())
    });
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for (at, request) in requests.iter().enumerate() {
        assert_eq!(gateway.post("/v1/messages", &[], request).0, 200);
        booked(home.path(), at + 1);
    }
    gateway.stop();
    upstream.received()
}

/// Waits until so many requests are in the books: what is known of a history from its middle on is stored before that,
/// but behind the request.
fn booked(home: &Path, requests: usize) {
    let began = Instant::now();
    let lines = |log: fs::DirEntry| fs::read_to_string(log.path()).unwrap().lines().count();
    let count = || -> Option<usize> {
        Some(fs::read_dir(home.join("plimsoll/conversations")).ok()?.map(|log| lines(log.unwrap())).sum())
    };
    while count() != Some(requests) {
        assert!(began.elapsed() < Duration::from_secs(60), "{requests}: {:?}", count());
        thread::yield_now();
    }
}

fn grows(ends: &[usize]) -> Vec<String> {
    ends.iter().map(|end| body(&[], 0..*end)).collect()
}

#[test]
fn histories_are_marked_where_they_go_on() {
    let slides =
        |stays: &[&str]| (3..8).map(|turn| body(stays, turn * 4 - 12..turn * 4 + 1)).collect::<Vec<_>>();
    for (case, requests, expected) in [
        ("grows", grows(&[1, 3, 5, 7, 9]), [0, 1, 2, 2, 2].as_slice()),
        ("joined half-way", grows(&[21, 23, 25, 27]), &[0, 1, 2, 2]),
        ("the newest alone", slides(&[]), &[0; 5]),
        ("the first words and the newest", slides(&["Begin.", "Yes."]), &[0; 5]),
        ("sent once", grows(&[27]), &[0]),
    ] {
        let marks = |request: &Received| request.text().matches("cache_control").count();
        let marks: Vec<usize> = arriving(&requests).iter().map(marks).collect();
        assert_eq!(marks, expected, "{case}");
    }
}

/// Whenever a client that marks nothing stops, it has paid 15 % more than without marks at most; and who goes on pays
/// much less.
#[test]
fn marks_cost_little_and_save_much() {
    let result = |size: usize| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out ".repeat(size)}]});
    let with = |stays: &[Value], last: Value| {
        let messages: Vec<&Value> = stays.iter().chain([&last]).collect();
        json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string()
    };
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]});
    let begin = json!({"role": "user", "content": "Begin."});
    let talk: Vec<Value> = (0..80).map(message).collect();
    let state =
        |turn: usize| json!({"role": "user", "content": format!("state {turn} {}", "now ".repeat(400))});
    for (case, requests, most) in [
        ("a huge result", vec![with(&[], begin.clone()), with(&[begin.clone(), call], result(9_000))], 1.15),
        ("two of a kind", grows(&[5, 7]), 1.15),
        ("asked twice", grows(&[1, 1]), 1.15),
        ("asked nine times", grows(&[5; 9]), 0.5),
        ("grows", grows(&(0..30).map(|turn| 2 * turn + 1).collect::<Vec<_>>()), 0.25),
        ("a state at the end", (0..30).map(|turn| with(&talk[..=2 * turn], state(turn))).collect(), 0.5),
        ("branches", (0..9).map(|turn| with(&talk[..36], state(turn))).collect(), 0.6),
    ] {
        let arrived = arriving(&requests);
        for end in 1..=arrived.len() {
            let direct: Vec<Received> = requests[..end]
                .iter()
                .map(|body| Received { line: String::new(), body: body.clone().into_bytes() })
                .collect();
            let ratio = bill(&arrived[..end]) / bill(&direct);
            assert!(ratio <= 1.15, "{case}, {end}: {ratio}");
            assert!(end < arrived.len() || ratio <= most, "{case}: {ratio}");
        }
    }
}
