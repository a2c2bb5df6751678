//! Models whose reasoning is bound to the messages before it: whatever is removed from a history, no request is
//! rejected for reasoning that does not fit, and reasoning that stays is unchanged.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream, records};

const GOAL: &str = "Find the leak in worker.rs; the ticket is LEAK-77";
/// The largest prompt that the provider accepts, in tokens of four bytes.
const LIMIT: usize = 9_000;
const STEPS: usize = 64;

/// The settings: only what concerns the window.
const CLEARING: &str =
    "[clear]\ngate = ['window']\n[ladder]\nenabled = false\n[summarize]\nenabled = false\n";
const LADDER: &str = "[ledger]\nrecord = 'full'\n[clear]\nenabled = false\n[summarize]\nenabled = false\n";
const SUMMARIES: &str = "[clear]\nenabled = false\n[summarize]\ntrigger = 0.5\nkeep_tokens = 1000\nlength = 300\nminimum_gain = 300\n\
    max_wait = '20s'\nrest = '1s'\n";
const ALL: &str = "[clear]\ngate = ['window', 'break-even']\nsettle = 0\n[summarize]\nenabled = false\n";

/// A provider that remembers its reasoning, and checks the reasoning that clients send back.
#[derive(Default)]
struct Provider {
    /// The model ends its turn with every `turn`-th answer.
    turn: usize,
    /// The ids of the reasoning in each of its answers.
    thought: Vec<String>,
    wrong: Vec<String>,
    /// The messages of each accepted request.
    taken: Vec<Vec<Value>>,
}

/// A dialect with bound reasoning.
struct Dialect {
    path: &'static str,
    list: &'static str,
    model: &'static str,
    judge: fn(&Provider, &[Value]) -> Result<(), String>,
    answer: fn(&mut Provider, &[Value], usize) -> Value,
    /// A complete answer with one text.
    says: fn(&str, usize) -> Value,
    /// What a client appends to its history after an answer.
    follow: fn(&Value, usize) -> Vec<Value>,
    overflow: fn(usize) -> Value,
}

const ANTHROPIC: Dialect = Dialect {
    path: "/v1/messages",
    list: "messages",
    model: "claude-fable-5-2",
    judge: signatures_fit,
    answer: |provider, messages, tokens| {
        let signature = signature(messages);
        provider.thought.push(signature.clone());
        let number = provider.thought.len();
        let thinking = json!({"type": "thinking", "thinking": "", "signature": signature});
        let (then, stop) = if number.is_multiple_of(provider.turn) {
            (json!({"type": "text", "text": format!("part {number} is done")}), "end_turn")
        } else {
            let input = json!({"path": format!("src/worker_{number}.rs")});
            (
                json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": "look", "input": input}),
                "tool_use",
            )
        };
        json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "claude-fable-5-2",
            "stop_reason": stop, "content": [thinking, then], "usage": {"input_tokens": tokens, "output_tokens": 9}})
    },
    says: |text, tokens| {
        json!({"id": "own", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}], "usage": {"input_tokens": tokens, "output_tokens": 9}})
    },
    follow: |answer, number| {
        let content = &answer["content"];
        let said = json!({"role": "assistant", "content": content});
        let next = match content[1]["id"].as_str() {
            Some(id) => json!([{"type": "tool_result", "tool_use_id": id, "content": output(number)}]),
            None => json!("Go on"),
        };
        vec![said, json!({"role": "user", "content": next})]
    },
    overflow: |tokens| {
        json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": format!("prompt is too long: {tokens} tokens > {LIMIT} maximum")}})
    },
};

const RESPONSES: Dialect = Dialect {
    path: "/v1/responses",
    list: "input",
    model: "gpt-6.2",
    judge: reasoning_is_paired,
    answer: |provider, _, tokens| {
        let number = provider.thought.len() + 1;
        provider.thought.push(format!("rs_{number}"));
        let reasoning = json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": "gAAAA"});
        let then = if number.is_multiple_of(provider.turn) {
            json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant",
                "content": [{"type": "output_text", "text": format!("part {number} is done")}]})
        } else {
            let arguments = json!({"path": format!("src/worker_{number}.rs")}).to_string();
            json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
                "name": "look", "arguments": arguments})
        };
        json!({"id": format!("resp_{number}"), "model": "gpt-6.2", "status": "completed",
            "usage": {"input_tokens": tokens, "output_tokens": 9}, "output": [reasoning, then]})
    },
    says: |text, tokens| {
        json!({"id": "own", "model": "m", "status": "completed", "usage": {"input_tokens": tokens, "output_tokens": 9},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]})
    },
    follow: |answer, number| {
        let mut items = answer["output"].as_array().unwrap().clone();
        items.push(match items[1]["call_id"].as_str() {
            Some(id) => json!({"type": "function_call_output", "call_id": id, "output": output(number)}),
            None => json!({"role": "user", "content": "Go on"}),
        });
        items
    },
    overflow: |tokens| {
        json!({"error": {"message": format!("This model's maximum context length is {LIMIT} tokens. However, your \
            messages resulted in {tokens} tokens."), "type": "invalid_request_error", "code": "context_length_exceeded"}})
    },
};

fn output(at: usize) -> String {
    let lines: Vec<String> = (0..60).map(|line| format!("result {at} line {line} of worker.rs")).collect();
    lines.join("\n")
}

/// A message as the provider compares it: without cache marks and without reasoning.
fn plain(message: &Value) -> Value {
    let blocks = match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        other => other.as_array().cloned().unwrap_or_default(),
    };
    let mut said = Vec::new();
    for mut block in blocks.into_iter().filter(|block| block["type"] != "thinking") {
        block.as_object_mut().unwrap().remove("cache_control");
        said.push(block);
    }
    json!({"role": message["role"], "content": said})
}

fn signature(before: &[Value]) -> String {
    let mut hash = DefaultHasher::new();
    for message in before {
        plain(message).to_string().hash(&mut hash);
    }
    format!("{:016x}", hash.finish())
}

/// Each reasoning block must follow exactly the messages that it was made after, and none may be missing between two
/// others.
fn signatures_fit(provider: &Provider, messages: &[Value]) -> Result<(), String> {
    let mut found = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        for block in blocks.iter().filter(|block| block["type"] == "thinking") {
            if block["signature"] != signature(&messages[..at]) {
                return Err(format!("messages.{at}: Invalid `signature` in `thinking` block"));
            }
            found.push(block["signature"].as_str().unwrap().to_owned());
        }
    }
    let is_newest = provider.thought.ends_with(&found);
    if is_newest { Ok(()) } else { Err("messages: a block in the middle is gone".to_owned()) }
}

/// Reasoning comes directly before the part that it led to.
fn reasoning_is_paired(_: &Provider, items: &[Value]) -> Result<(), String> {
    let id = |at: usize| items.get(at).and_then(|item| item["id"].as_str()).unwrap_or_default().to_owned();
    let number = |id: &str| id.split_once('_').map(|(_, number)| number.to_owned());
    for (at, item) in items.iter().enumerate() {
        let (is_reasoning, own) = (item["type"] == "reasoning", id(at));
        if is_reasoning && number(&own) != number(&id(at + 1)) {
            return Err(format!(
                "Item '{own}' of type 'reasoning' was provided without its required following item"
            ));
        }
        if !is_reasoning && !own.is_empty() && (at == 0 || number(&own) != number(&id(at - 1))) {
            return Err(format!("Item '{own}' was provided without its required 'reasoning' item"));
        }
        let answers = |call: &Value| {
            items
                .iter()
                .any(|item| item["type"] == "function_call_output" && item["call_id"] == call["call_id"])
        };
        if item["type"] == "function_call" && !answers(item) {
            return Err(format!("No tool output found for {own}"));
        }
    }
    Ok(())
}

fn serve(dialect: &Dialect, provider: &Mutex<Provider>, received: &Received) -> Answer {
    let mut provider = provider.lock().unwrap();
    let (text, tokens) = (received.text(), received.body.len() / 4);
    if text.contains("You write the working memory of an AI agent") {
        let summary =
            "<summary>\n## Decisions\n- none\n## Done\n- looked at worker.rs\n## Next\n- look on\n</summary>";
        return (200, (dialect.says)(summary, tokens).to_string());
    }
    let body: Value = serde_json::from_str(&text).unwrap();
    let messages = body[dialect.list].as_array().unwrap();
    if let Err(wrong) = (dialect.judge)(&provider, messages) {
        provider.wrong.push(wrong.clone());
        return (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": wrong}})
                .to_string(),
        );
    }
    if tokens > LIMIT {
        return (400, (dialect.overflow)(tokens).to_string());
    }
    provider.taken.push(messages.iter().map(bare).collect());
    (200, (dialect.answer)(&mut provider, messages, tokens).to_string())
}

/// A message without marks; a marked text may have to be in a list.
fn bare(message: &Value) -> Value {
    let mut message = message.clone();
    let blocks = message["content"].as_array_mut();
    blocks
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .for_each(|block| drop(block.remove("cache_control")));
    if let [block] = &message["content"].as_array().cloned().unwrap_or_default()[..]
        && block["type"] == "text"
    {
        message["content"] = block["text"].clone();
    }
    message
}

/// What was done to a conversation that is many times as long as the window.
#[derive(Debug, Default)]
struct Done {
    events: usize,
    reasoning: u64,
    dropped: u64,
    cleared: u64,
    rungs: std::collections::BTreeSet<String>,
}

fn play(dialect: &'static Dialect, config: &str, turn: usize) -> Done {
    let (home, provider) =
        (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Provider { turn, ..Provider::default() })));
    let shared = Arc::clone(&provider);
    let upstream = Upstream::start(move |received| serve(dialect, &shared, received));
    let config = format!("[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '30s'\n{config}");
    let mut gateway = Gateway::start(home.path(), &config, &upstream.url());
    let mut messages = vec![json!({"role": "user", "content": GOAL})];
    for number in 0..STEPS {
        let mut body = json!({"model": dialect.model, dialect.list: messages});
        if dialect.path == "/v1/messages" {
            body["max_tokens"] = json!(500);
        }
        let headers = [("authorization", "Bearer k"), ("x-session-id", "bound")];
        let (status, answer) = gateway.post(dialect.path, &headers, &body.to_string());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(status, 200, "{} {number}: {answer}", dialect.model);
        messages.extend((dialect.follow)(&answer, number));
        if number == STEPS / 2 {
            // Decisions survive a restart.
            gateway.stop();
            gateway = Gateway::start(home.path(), &config, &upstream.url());
        }
    }
    gateway.stop();
    let provider = provider.lock().unwrap();
    assert_eq!(provider.wrong, Vec::<String>::new(), "{} {config}", dialect.model);
    shows(home.path(), &records(home.path()));
    let done = done(&records(home.path()));
    judge_all(&provider.taken, &messages, &done);
    done
}

/// Removed messages can be shown afterwards, from the store or from recorded bodies.
fn shows(home: &Path, records: &[Value]) {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.args(arguments).current_dir(home).env("XDG_STATE_HOME", home).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let inspected = run(&["inspect", "bound"]);
    let Some(record) = records.iter().rfind(|record| record["edits"]["state"] == "edited") else { return };
    let listed: Value = serde_json::from_str(&run(&["inspect", "bound", "--json"])).unwrap();
    let mut listed = listed["requests"].as_array().unwrap().iter();
    let number = listed.find(|one| one["record"]["id"] == record["id"]).unwrap()["n"].to_string();
    let diff: Value = serde_json::from_str(&run(&["diff", "bound", &number, "--json"])).unwrap();
    let edits = &record["edits"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    assert_eq!(count(&diff["reasoning"]), count(&edits["parts"]["reasoning"]), "{diff}");
    assert_eq!(diff["gone"]["messages"], edits["splice"]["messages"]);
    if !edits["splice"].is_null() {
        let text = diff["gone"]["text"].as_str().unwrap();
        assert_eq!(Some(text.len() as u64), edits["splice"]["after"].as_u64());
        let is_kept = diff["from"] == "bodies" || !diff["gone"]["output"].is_null();
        assert_eq!(diff["gone"]["before"].as_str().is_some_and(|text| !text.is_empty()), is_kept, "{diff}");
        let what = edits["splice"]["rule"].as_str().unwrap();
        assert!(inspected.contains(&format!("a {what} stands for ")), "{inspected}");
        assert!(run(&["diff", "bound", &number]).contains(&format!("a {what} stands for them")));
    }
    if count(&edits["parts"]["reasoning"]) > 0 {
        assert!(inspected.contains("of reasoning left out"), "{inspected}");
    }
    let known = |rules: &Value| rules != "not recorded";
    assert!(diff["changes"].as_array().unwrap().iter().all(|change| known(&change["rules"])), "{diff}");
}

fn done(records: &[Value]) -> Done {
    let mut done = Done::default();
    for event in records.iter().map(|record| &record["edits"]["event"]).filter(|event| !event.is_null()) {
        let count = |key: &str| event[key].as_u64().unwrap();
        done.events += 1;
        done.reasoning += count("reasoning");
        done.dropped += count("dropped");
        done.cleared += count("cleared");
        done.rungs.insert(event["rung"].as_str().unwrap().to_owned());
    }
    done
}

/// Requests only grow, except in events. A sent message is the original one, or the original without its reasoning.
fn judge_all(taken: &[Vec<Value>], messages: &[Value], done: &Done) {
    let broken = taken.windows(2).filter(|pair| !pair[1].starts_with(&pair[0])).count();
    assert!(broken <= done.events, "{broken} prefixes broken by {done:?}");
    let known: Vec<Value> = messages.iter().map(bare).collect();
    let said: Vec<Value> = messages.iter().map(plain).collect();
    for message in taken.iter().flatten() {
        let is_own = message.to_string().contains("[plimsoll: ") || message.to_string().contains("summary");
        let without = message["role"] == "assistant" && said.contains(&plain(message));
        assert!(is_own || known.contains(message) || without, "{message}");
    }
    let last = Value::from(taken.last().unwrap().clone()).to_string();
    assert!(last.contains("LEAK-77"), "the goal is gone");
}

#[test]
fn clearing_keeps_bound_reasoning_valid() {
    let done = play(&ANTHROPIC, CLEARING, 3);
    assert!(done.cleared > 10 && done.reasoning > 10 && done.dropped == 0, "{done:?}");
    let done = play(&RESPONSES, CLEARING, 3);
    assert!(done.cleared > 10 && done.reasoning == 0, "{done:?}");
}

#[test]
fn the_ladder_keeps_bound_reasoning_valid() {
    for (turn, rung) in [(3, "turns"), (1000, "half")] {
        let done = play(&ANTHROPIC, LADDER, turn);
        assert!(done.dropped > 20 && done.reasoning > 4 && done.rungs.contains(rung), "{done:?}");
        let done = play(&RESPONSES, LADDER, turn);
        assert!(done.dropped > 20 && done.reasoning == 0 && done.rungs.contains(rung), "{done:?}");
    }
}

#[test]
fn summaries_keep_bound_reasoning_valid() {
    for dialect in [&ANTHROPIC, &RESPONSES] {
        let done = play(dialect, SUMMARIES, 3);
        assert!(done.rungs.contains("ready"), "{}: {done:?}", dialect.model);
    }
}

#[test]
fn all_edits_together_keep_bound_reasoning_valid() {
    for dialect in [&ANTHROPIC, &RESPONSES] {
        let done = play(dialect, ALL, 7);
        assert!(done.cleared > 0, "{}: {done:?}", dialect.model);
    }
}
