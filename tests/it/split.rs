//! Instructions that end otherwise in every conversation: what is always the same is marked, and read from the cache.

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream};

const CONFIG: &str = "[listen]\nadmin = 'off'\n[summarize]\nenabled = false\n";

fn rules() -> String {
    (0..300)
        .map(|at| format!("Rule {at}: \"quote\" what you read, in \u{e9}\\n.\n"))
        .collect::<Vec<_>>()
        .concat()
}

fn system(tail: &str) -> String {
    format!("{}<env>\n{tail}\n</env>", rules())
}

/// A conversation with so many answers.
fn body(goal: &str, system: &Value, answers: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": goal})];
    for at in 0..answers {
        messages.push(json!({"role": "assistant", "content": format!("answer {at}")}));
        messages.push(json!({"role": "user", "content": "go on"}));
    }
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages}).to_string()
}

/// What was sent last: the texts of the instructions, which of them are marked, and the marks in all.
fn last(upstream: &Upstream) -> (Vec<String>, Vec<bool>, usize) {
    let text = upstream.received().last().unwrap().text();
    let marks = text.matches("cache_control").count();
    let body: Value = serde_json::from_str(&text).unwrap();
    let (texts, marked) = match &body["system"] {
        Value::String(text) => (vec![text.clone()], vec![false]),
        blocks => {
            let blocks = blocks.as_array().unwrap();
            let text = |block: &Value| block["text"].as_str().unwrap().to_owned();
            (
                blocks.iter().map(text).collect(),
                blocks.iter().map(|block| !block["cache_control"].is_null()).collect(),
            )
        }
    };
    (texts, marked, marks)
}

#[test]
fn what_is_always_the_same_is_marked() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| {
        (200, json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}).to_string())
    });
    let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let blocks = json!([{"type": "text", "text": system("6"), "cache_control": {"type": "ephemeral"}}]);
    let text = |tail: &str| json!(system(tail));
    let whole = |tail: &str| vec![system(tail)];
    let split = |tail: &str| vec![format!("{}<env>\n", rules()), format!("{tail}\n</env>")];
    let other = format!("!{}", system("4"));
    for (goal, system, answers, restart, expected, marked) in [
        ("one", text("1"), 0, false, whole("1"), false),
        // Where they differ is known now; what has begun otherwise stays so.
        ("two", text("2"), 0, false, split("2"), true),
        ("one", text("1"), 1, false, whole("1"), false),
        ("two", text("2"), 1, false, split("2"), true),
        // What was decided outlives a restart; what was learned is learned again.
        ("two", text("2"), 2, true, split("2"), true),
        ("three", text("3"), 0, false, split("3"), true),
        ("four", text("4"), 0, false, split("4"), true),
        // The rest may change; the beginning may not.
        ("four", text("5"), 1, false, split("5"), true),
        ("four", json!(other), 2, false, vec![other.clone()], false),
        ("four", text("4"), 3, false, split("4"), true),
        // Clients that mark are left alone, and other models are others.
        ("six", blocks, 0, false, whole("6"), true),
    ] {
        if restart {
            gateway.stop();
            gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        }
        let headers = [("x-api-key", "k"), ("user-agent", "agent/1")];
        assert_eq!(gateway.post("/v1/messages", &headers, &body(goal, &system, answers)).0, 200);
        let (texts, marks, count) = last(&upstream);
        assert_eq!((&texts, marks[0]), (&expected, marked), "{goal} {answers}");
        assert!(count <= 4 && !marks[1..].contains(&true), "{goal} {answers}: {marks:?}");
    }
    gateway.stop();
    // Where it is turned off nothing of the kind is done.
    let gateway = Gateway::start(home.path(), &format!("{CONFIG}[cache]\nsplit = false\n"), &upstream.url());
    for tail in ["7", "8", "9"] {
        assert_eq!(gateway.post("/v1/messages", &[], &body(tail, &json!(system(tail)), 0)).0, 200);
        assert_eq!(last(&upstream).0, whole(tail));
    }
}
