//! Conversations that never end: many times the window through the gateway, in every dialect, whatever becomes of
//! the summaries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use plimsoll::conversation::NoMemo;
use plimsoll::protocol;
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream};

/// A model that takes little.
const MODEL: &str = "gpt-3.5-turbo";
const WINDOW: u64 = 16_385;
const CONFIG: &str = "[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '30s'\n[clear]\ngate = ['window']\n[summarize]\nkeep_tokens = 1500\n\
    length = 300\nminimum_gain = 500\nmax_attempts = 1\nrest = '1s'\n";

const GOAL: &str = "Port the scheduler to ARCH-9920 without a downtime";
const USER_DECISION: &str = "We must never touch vendor/zlib-1.2.13";
const MODEL_DECISION: &str = "DECISION: the queue holds 4711 entries because of KEEPALIVE_MS";

/// How the server answers the questions of the gateway's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Good,
    FailsHalf,
    Garbage,
    Silent,
}

#[derive(Clone, Copy)]
struct Case {
    dialect: &'static str,
    writer: Writer,
    /// Steps from one word of the user's to the next.
    turn: usize,
    steps: usize,
}

/// What the server saw.
#[derive(Default)]
struct Seen {
    peak: AtomicU64,
    summaries: AtomicU64,
    last: Mutex<String>,
    wrong: Mutex<Vec<String>>,
}

/// The messages of one step: the model's call, and what the tool answers.
fn step(dialect: &str, at: usize) -> Vec<Value> {
    let (id, said) = (format!("call_{at}"), if at == 3 { MODEL_DECISION } else { "Next one" });
    let result = format!("result {at}: {}", "lorem ipsum dolor sit amet ".repeat(90));
    let input = json!({"path": format!("src/file_{at}.rs")});
    match dialect {
        "anthropic" => vec![
            json!({"role": "assistant", "content": [{"type": "text", "text": said},
                {"type": "tool_use", "id": id, "name": "look", "input": input}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
        ],
        "openai-chat" => vec![
            json!({"role": "assistant", "content": said, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "look", "arguments": input.to_string()}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
        ],
        "openai-responses" => vec![
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}),
            json!({"type": "function_call", "call_id": id, "name": "look", "arguments": input.to_string()}),
            json!({"type": "function_call_output", "call_id": id, "output": result}),
        ],
        _ => vec![
            json!({"role": "model", "parts": [{"text": said}, {"functionCall": {"name": "look", "args": input}}]}),
            json!({"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": result}}}]}),
        ],
    }
}

/// What somebody says.
fn says(dialect: &str, role: &str, text: &str) -> Value {
    match (dialect, role) {
        ("gemini", "assistant") => json!({"role": "model", "parts": [{"text": text}]}),
        ("gemini", _) => json!({"role": "user", "parts": [{"text": text}]}),
        _ => json!({"role": role, "content": text}),
    }
}

fn body(dialect: &str, messages: &[Value]) -> String {
    let list = protocol::named(dialect).unwrap().list();
    let mut body = json!({ list: messages });
    if dialect != "gemini" {
        body["model"] = json!(MODEL);
    }
    if dialect == "anthropic" {
        body["max_tokens"] = json!(1000);
    }
    body.to_string()
}

fn path(dialect: &str) -> String {
    match dialect {
        "anthropic" => "/v1/messages".to_owned(),
        "openai-chat" => "/v1/chat/completions".to_owned(),
        "openai-responses" => "/v1/responses".to_owned(),
        _ => format!("/v1beta/models/{MODEL}:generateContent"),
    }
}

/// A whole answer of one text.
fn answer(dialect: &str, text: &str, tokens: u64) -> String {
    match dialect {
        "anthropic" => json!({"id": "m", "model": MODEL, "role": "assistant", "type": "message",
            "stop_reason": "end_turn", "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": tokens, "output_tokens": 9}}),
        "openai-chat" => json!({"id": "m", "model": MODEL, "usage": {"prompt_tokens": tokens, "completion_tokens": 9},
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}),
        "openai-responses" => json!({"id": "m", "model": MODEL, "status": "completed",
            "usage": {"input_tokens": tokens, "output_tokens": 9},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}),
        _ => json!({"responseId": "m", "modelVersion": MODEL,
            "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 9},
            "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [{"text": text}]}}]}),
    }
    .to_string()
}

/// A summary that keeps the decisions it is shown.
fn summary(prompt: &str) -> String {
    let decided = prompt.split(['\n', '"', '\\']).find(|line| line.contains("DECISION:"));
    let decided = decided.and_then(|line| line.find("DECISION:").map(|at| &line[at..])).unwrap_or("none");
    format!(
        "<summary>\n## Decisions\n- {decided}\n## Done\n- looked at files\n## Next\n- look at more\n</summary>"
    )
}

fn serve(case: &Case, seen: &Seen, received: &Received) -> Answer {
    let (text, dialect) = (received.text(), case.dialect);
    let tokens = text.len() as u64 / 4;
    if text.contains("You write the working memory of an AI agent") {
        let number = seen.summaries.fetch_add(1, Ordering::Relaxed);
        return match case.writer {
            Writer::FailsHalf if number.is_multiple_of(2) => (503, "{}".to_owned()),
            Writer::Good | Writer::FailsHalf => (200, answer(dialect, &summary(&text), tokens)),
            Writer::Garbage => (200, answer(dialect, "As a language model I like trains.", tokens)),
            Writer::Silent => loop {
                std::thread::park();
            },
        };
    }
    seen.peak.fetch_max(tokens, Ordering::Relaxed);
    let protocol = protocol::named(dialect).unwrap();
    let valid = protocol.index(&Bytes::from(text.clone()), &NoMemo).map_err(|unread| unread.to_string());
    let valid =
        valid.and_then(|conversation| protocol.valid(&conversation).map_err(|wrong| wrong.to_string()));
    if let Err(wrong) = valid {
        seen.wrong.lock().unwrap().push(wrong);
    }
    *seen.last.lock().unwrap() = text;
    if tokens > WINDOW {
        return (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#.to_owned());
    }
    (200, answer(dialect, "ok", tokens))
}

/// Plays a session to its end: what the server saw, and the records.
fn play(case: Case) -> (Arc<Seen>, Vec<Value>) {
    let (home, seen) = (tempfile::tempdir().unwrap(), Arc::new(Seen::default()));
    let Case { dialect, writer, turn, steps } = case;
    let shared = Arc::clone(&seen);
    let upstream = Upstream::start(move |received| serve(&case, &shared, received));
    let wait = if writer == Writer::Silent { "50ms" } else { "20s" };
    let gateway = Gateway::start(home.path(), &format!("{CONFIG}max_wait = '{wait}'\n"), &upstream.url());
    let mut messages = vec![says(dialect, "user", GOAL)];
    let headers = [("authorization", "Bearer sk-secret"), ("x-session-id", "endless")];
    for at in 0..steps {
        let (status, answered) = gateway.post(&path(dialect), &headers, &body(dialect, &messages));
        assert_eq!(status, 200, "{dialect} step {at}: {}", String::from_utf8_lossy(&answered));
        messages.extend(step(dialect, at));
        if (at + 1) % turn == 0 {
            messages.push(says(dialect, "assistant", "That part is done"));
            let word = if at + 1 == turn { USER_DECISION } else { "Go on" };
            messages.push(says(dialect, "user", word));
        }
    }
    gateway.stop();
    if writer == Writer::Good {
        read_afterwards(home.path());
    }
    let log = std::fs::read_to_string(home.path().join("plimsoll/conversations/endless.jsonl")).unwrap();
    assert!(!log.contains("sk-secret"));
    (seen, log.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// What can be asked of the conversation then.
fn read_afterwards(home: &std::path::Path) {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.args(arguments).current_dir(home).env("XDG_STATE_HOME", home).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["checkpoint", "endless"]).lines().count(), 2);
    let file =
        |ending: &str| std::fs::read_to_string(home.join(format!("endless.checkpoint.{ending}"))).unwrap();
    let checkpoint = plimsoll::strategy::summary::Checkpoint::from_json(&file("json")).unwrap();
    assert_eq!(checkpoint.goal, GOAL);
    assert!(checkpoint.decisions.iter().any(|decision| decision.contains(MODEL_DECISION)));
    assert!(file("md").contains(&format!("**Goal:** {GOAL}")));
    assert!(run(&["fidelity", "endless"]).contains("mean: "));
    assert!(run(&["inspect", "endless"]).contains("summary 1 of"));
}

fn check(dialect: &'static str, writer: Writer, turn: usize) {
    // Long enough for a summary that goes back to the originals in one of them.
    let steps = if dialect == "openai-chat" && writer == Writer::Good { 90 } else { 50 };
    let (seen, records) = play(Case { dialect, writer, turn, steps });
    assert_eq!(
        *seen.wrong.lock().unwrap(),
        Vec::<String>::new(),
        "{dialect}: requests that no provider takes"
    );
    let peak = seen.peak.load(Ordering::Relaxed);
    assert!(peak * 100 <= WINDOW * 92, "{dialect}: {peak} tokens at most");
    let last = seen.last.lock().unwrap().clone();
    assert!(last.contains(GOAL), "{dialect}: the goal is gone");
    let spliced = |record: &&Value| record["edits"]["event"]["rung"] == json!("ready");
    let used = records.iter().filter(spliced).count();
    let own: Vec<&Value> = records.iter().filter(|record| !record["own"].is_null()).collect();
    if writer == Writer::Good {
        assert!(used >= 2, "{dialect}: {used} summaries were used");
        assert!(last.contains(MODEL_DECISION), "{dialect}: the model's decision is gone");
        assert!(turn > steps || last.contains(USER_DECISION), "{dialect}: the user's decision is gone");
        let made: Vec<_> = own.iter().filter(|record| record["own"]["messages"] != json!(0)).collect();
        assert!(made.len() >= used && made.iter().all(|record| record["own"]["score"].is_number()));
        assert!(own.iter().all(|record| record["cost"]["total"].as_i64() > Some(0)));
        assert!(own.iter().all(|record| record["net_saved"].as_i64() < Some(0)));
    }
    if matches!(writer, Writer::Garbage | Writer::Silent) {
        assert_eq!(used, 0, "{dialect}: what is no summary was used");
    }
    assert_eq!(own.is_empty(), writer == Writer::Silent, "{dialect}: what was answered is on the bill");
}

#[test]
fn anthropic() {
    check("anthropic", Writer::Good, 9);
}

#[test]
fn openai_chat() {
    check("openai-chat", Writer::Good, 9);
}

#[test]
fn openai_responses() {
    check("openai-responses", Writer::Good, 9);
}

#[test]
fn gemini() {
    check("gemini", Writer::Good, 9);
}

#[test]
fn within_one_turn() {
    check("anthropic", Writer::Good, 1000);
}

#[test]
fn with_a_writer_that_fails_half_of_the_time() {
    check("openai-responses", Writer::FailsHalf, 9);
}

#[test]
fn with_a_writer_of_garbage() {
    check("anthropic", Writer::Garbage, 9);
}

#[test]
fn with_a_writer_that_never_answers() {
    check("openai-chat", Writer::Silent, 9);
}
