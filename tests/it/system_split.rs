//! Instructions that end differently in every conversation: the stable part is marked, and read from the cache.

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

/// A conversation with this many answers.
fn body(goal: &str, system: &Value, answers: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": goal})];
    for at in 0..answers {
        messages.push(json!({"role": "assistant", "content": format!("answer {at}")}));
        messages.push(json!({"role": "user", "content": "go on"}));
    }
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages}).to_string()
}

/// The last request sent: the texts of its instructions, which of them are marked, and the number of all marks.
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
fn the_stable_part_of_instructions_is_marked() {
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
    let [other, unlike, unheard] = ["!", "?", "#"].map(|mark| format!("{mark}{}", system("4")));
    for (goal, system, answers, restart, expected, marked) in [
        ("one", text("1"), 0, false, whole("1"), false),
        // It is known now where they differ. Conversations that began earlier stay as they are.
        ("two", text("2"), 0, false, split("2"), true),
        ("one", text("1"), 1, false, whole("1"), false),
        ("two", text("2"), 1, false, split("2"), true),
        // Decisions survive a restart; the stable part is learned again.
        ("two", text("2"), 2, true, split("2"), true),
        ("three", text("3"), 0, false, split("3"), true),
        ("four", text("4"), 0, false, split("4"), true),
        // The rest may change, the beginning may not: what precedes the history is written with it.
        ("four", text("5"), 1, false, split("5"), true),
        ("four", text("5"), 2, false, split("5"), true),
        ("four", json!(other), 3, false, vec![other.clone()], true),
        ("four", text("4"), 4, false, split("4"), true),
        ("four", json!(unlike), 5, false, vec![unlike.clone()], true),
        // The histories written after the last ones were not read: by now they have cost more than reading has saved.
        ("four", json!(unheard), 6, false, vec![unheard.clone()], false),
        // Requests of clients that set marks are left unchanged, and other models are learned separately.
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
    // If it is turned off, nothing is split or marked.
    let gateway = Gateway::start(home.path(), &format!("{CONFIG}[cache]\nsplit = false\n"), &upstream.url());
    for tail in ["7", "8", "9"] {
        assert_eq!(gateway.post("/v1/messages", &[], &body(tail, &json!(system(tail)), 0)).0, 200);
        assert_eq!(last(&upstream).0, whole(tail));
    }
}

/// A prefix that is the same as a whole, instructions in any form or tools without any, is marked at its end when it
/// comes again.
#[test]
fn stable_instructions_are_marked_at_their_end() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let text = request.text();
        let status = if text.contains("fail") { 529 } else { 200 };
        let read = if text.contains("read") { 9_000 } else { 0 };
        (status, json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "cache_read_input_tokens": read, "output_tokens": 1}}).to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let tool = json!([{"name": "Bash", "description": "d", "input_schema": {"type": "object"}}]);
    let large =
        json!([tool[0], {"name": "Read", "description": rules(), "input_schema": {"type": "object"}}]);
    let deferred =
        json!([{"name": "Read", "description": rules(), "input_schema": {}, "defer_loading": true}]);
    let blocks = json!([{"type": "text", "text": "You are an agent."}, {"type": "text", "text": rules()}]);
    let mark = json!({"type": "ephemeral"});
    let thread = json!({"type": "continue", "previous_message_id": "m"});
    for (name, tools, system, place) in [
        ("a text", &tool, json!(rules()), Some("/system/0/cache_control")),
        ("blocks", &tool, blocks, Some("/system/1/cache_control")),
        ("tools", &large, Value::Null, Some("/tools/1/cache_control")),
        ("a tool that is loaded later", &deferred, Value::Null, None),
        ("too short", &tool, json!("You are an agent."), None),
        ("a thread", &tool, json!(rules()), None),
    ] {
        // Unmarked; written and not read; written; read.
        for (goal, is_marked) in
            [("1", false), ("2 fail", true), ("3", true), ("4 read", true), ("5 read", true)]
        {
            let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "tools": tools,
                "messages": [{"role": "user", "content": format!("{name} {goal}")}]});
            if !system.is_null() {
                body["system"] = system.clone();
            }
            if name == "a thread" {
                body["thread"] = thread.clone();
            }
            let status = gateway.post("/v1/messages", &[("x-api-key", name)], &body.to_string()).0;
            assert_eq!(status, if goal.ends_with("fail") { 529 } else { 200 });
            let sent = upstream.received().last().unwrap().text();
            let expected = usize::from(is_marked && place.is_some());
            assert_eq!(sent.matches("cache_control").count(), expected, "{name}: {goal}");
            if let Some(place) = place.filter(|_| is_marked) {
                let sent: Value = serde_json::from_str(&sent).unwrap();
                assert_eq!(sent.pointer(place), Some(&mark), "{name}: {goal}");
            } else {
                assert_eq!(sent, body.to_string(), "{name}: {goal}");
            }
        }
    }
}
