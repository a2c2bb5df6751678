//! Conversations that never end: many times the window through the gateway, in every dialect, whatever becomes of the
//! summaries.
//!
//! `PLIMSOLL_STEPS=600` plays them at full size: this many steps of 5,000 tokens in a window of 200,000 tokens. That is
//! for a release build (`PLIMSOLL_STEPS=600 cargo test --release --test it endless`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use plimsoll::conversation::NoMemo;
use plimsoll::protocol;
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream};

const CONFIG: &str = "[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '30s'\n";

/// The sizes of a session.
#[derive(Clone, Copy)]
struct Scale {
    /// The model's window, in tokens.
    model: &'static str,
    window: u64,
    /// The number of sentences in a tool result.
    sentences: usize,
    /// The number of steps, unless a case needs more.
    steps: usize,
    summarize: &'static str,
}

impl Scale {
    fn of_environment() -> Self {
        let steps =
            std::env::var("PLIMSOLL_STEPS").ok().map(|steps| steps.parse().expect("a number of steps"));
        let small = Self {
            model: "gpt-3.5-turbo",
            window: 16_385,
            sentences: 90,
            steps: 50,
            summarize: "keep_tokens = 1500\nlength = 300\nminimum_gain = 500\nmax_attempts = 1\nrest = '1s'\n",
        };
        let full = Self {
            model: "claude-3-5-haiku-20241022",
            window: 200_000,
            sentences: 740,
            steps: 0,
            summarize: "max_attempts = 1\nrest = '1s'\n",
        };
        steps.map_or(small, |steps| Self { steps, ..full })
    }
}

const GOAL: &str = "Port the scheduler to ARCH-9920 without a downtime";
const USER_DECISION: &str = "We must never touch vendor/zlib-1.2.13";
const MODEL_DECISION: &str = "DECISION: the queue holds 4711 entries because of KEEPALIVE_MS";

/// How the server answers the gateway's own requests for summaries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Good,
    FailsHalf,
    Garbage,
    Silent,
    /// Answers after this many more requests of the agent.
    Late(u64),
}

#[derive(Clone, Copy)]
struct Case {
    dialect: &'static str,
    writer: Writer,
    /// The number of steps between two messages of the user.
    turn: usize,
    /// Whether old results may be cleared; if not, only summaries can make room.
    clears: bool,
    scale: Scale,
}

/// What the server received.
#[derive(Default)]
struct Seen {
    peak: AtomicU64,
    summaries: AtomicU64,
    /// The agent's own requests.
    requests: Mutex<u64>,
    more: Condvar,
    last: Mutex<String>,
    wrong: Mutex<Vec<String>>,
}

/// Gemini's dialect with requests and answers in an envelope.
const ENVELOPED: &str = "code-assist";

/// A dialect under test.
fn spoken(dialect: &str) -> &str {
    if dialect == ENVELOPED { "gemini" } else { dialect }
}

/// The messages of one step: the model's call and the tool's result.
fn step(dialect: &str, at: usize, sentences: usize) -> Vec<Value> {
    let (id, said) = (format!("call_{at}"), if at == 3 { MODEL_DECISION } else { "Next one" });
    let result = format!("result {at}: {}", "lorem ipsum dolor sit amet ".repeat(sentences));
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

/// A text message of a role.
fn says(dialect: &str, role: &str, text: &str) -> Value {
    match (spoken(dialect), role) {
        ("gemini", "assistant") => json!({"role": "model", "parts": [{"text": text}]}),
        ("gemini", _) => json!({"role": "user", "parts": [{"text": text}]}),
        _ => json!({"role": role, "content": text}),
    }
}

fn body(dialect: &str, model: &str, messages: &[Value]) -> String {
    let list = protocol::named(spoken(dialect)).unwrap().list();
    let mut body = json!({ list: messages });
    if dialect == ENVELOPED {
        body = json!({"model": model, "project": "p", "request": body});
    } else if dialect != "gemini" {
        body["model"] = json!(model);
    }
    if dialect == "anthropic" {
        body["max_tokens"] = json!(1000);
    }
    body.to_string()
}

fn path(dialect: &str, model: &str) -> String {
    match dialect {
        "anthropic" => "/v1/messages".to_owned(),
        "openai-chat" => "/v1/chat/completions".to_owned(),
        "openai-responses" => "/v1/responses".to_owned(),
        ENVELOPED => "/v1internal:generateContent".to_owned(),
        _ => format!("/v1beta/models/{model}:generateContent"),
    }
}

/// A complete answer with one text.
fn answer(dialect: &str, model: &str, text: &str, tokens: u64) -> String {
    match dialect {
        "anthropic" => json!({"id": "m", "model": model, "role": "assistant", "type": "message",
            "stop_reason": "end_turn", "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": tokens, "output_tokens": 9}}),
        "openai-chat" => json!({"id": "m", "model": model, "usage": {"prompt_tokens": tokens, "completion_tokens": 9},
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}),
        "openai-responses" => json!({"id": "m", "model": model, "status": "completed",
            "usage": {"input_tokens": tokens, "output_tokens": 9},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}),
        ENVELOPED => {
            let within: Value = serde_json::from_str(&answer("gemini", model, text, tokens)).unwrap();
            json!({"response": within, "traceId": "t"})
        }
        _ => json!({"responseId": "m", "modelVersion": model,
            "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 9},
            "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [{"text": text}]}}]}),
    }
    .to_string()
}

/// A summary that keeps the decisions in the text to be summarised.
fn summary(prompt: &str) -> String {
    let decided = prompt.split(['\n', '"', '\\']).find(|line| line.contains("DECISION:"));
    let decided = decided.and_then(|line| line.find("DECISION:").map(|at| &line[at..])).unwrap_or("none");
    format!(
        "<summary>\n## Decisions\n- {decided}\n## Done\n- looked at files\n## Next\n- look at more\n</summary>"
    )
}

/// The request in the envelope, if the envelope is unchanged.
fn opened(case: &Case, body: &str) -> Option<String> {
    if case.dialect != ENVELOPED {
        return Some(body.to_owned());
    }
    let mut body: Value = serde_json::from_str(body).ok()?;
    let request = body.as_object_mut()?.remove("request")?;
    (body == json!({"model": case.scale.model, "project": "p"})).then(|| request.to_string())
}

fn serve(case: &Case, seen: &Seen, received: &Received) -> Answer {
    let (text, dialect, model) = (received.text(), case.dialect, case.scale.model);
    let tokens = text.len() as u64 / 4;
    let Some(request) = opened(case, &text) else {
        seen.wrong.lock().unwrap().push("nothing within".to_owned());
        return (400, "{}".to_owned());
    };
    if text.contains("You write the working memory of an AI agent") {
        let number = seen.summaries.fetch_add(1, Ordering::Relaxed);
        return match case.writer {
            Writer::FailsHalf if number.is_multiple_of(2) => (503, "{}".to_owned()),
            Writer::Late(requests) => {
                let so_far = seen.requests.lock().unwrap();
                let due = *so_far + requests;
                drop(seen.more.wait_while(so_far, |now| *now < due));
                (200, answer(dialect, model, &summary(&text), tokens))
            }
            Writer::Good | Writer::FailsHalf => (200, answer(dialect, model, &summary(&text), tokens)),
            Writer::Garbage => (200, answer(dialect, model, "As a language model I like trains.", tokens)),
            Writer::Silent => loop {
                std::thread::park();
            },
        };
    }
    *seen.requests.lock().unwrap() += 1;
    seen.more.notify_all();
    seen.peak.fetch_max(tokens, Ordering::Relaxed);
    let protocol = protocol::named(spoken(dialect)).unwrap();
    let valid = protocol.index(&Bytes::from(request), &NoMemo).map_err(|unread| unread.to_string());
    let valid =
        valid.and_then(|conversation| protocol.valid(&conversation).map_err(|wrong| wrong.to_string()));
    if let Err(wrong) = valid {
        seen.wrong.lock().unwrap().push(wrong);
    }
    *seen.last.lock().unwrap() = text;
    if tokens > case.scale.window {
        return (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#.to_owned());
    }
    (200, answer(dialect, model, "ok", tokens))
}

/// Plays a session to its end. Returns what the server received, and the records.
fn play(case: Case) -> (Arc<Seen>, Vec<Value>) {
    let (home, seen) = (tempfile::tempdir().unwrap(), Arc::new(Seen::default()));
    let Case { dialect, writer, turn, clears, scale } = case;
    let shared = Arc::clone(&seen);
    let upstream = Upstream::start(move |received| serve(&case, &shared, received));
    let wait = if matches!(writer, Writer::Silent | Writer::Late(_)) { "50ms" } else { "20s" };
    let config = format!(
        "{CONFIG}[clear]\nenabled = {clears}\ngate = ['window']\n[summarize]\nmax_wait = '{wait}'\n{}",
        scale.summarize
    );
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let mut messages = vec![says(dialect, "user", GOAL)];
    let headers = [("authorization", "Bearer sk-secret"), ("x-session-id", "endless")];
    for at in 0..scale.steps {
        let body = body(dialect, scale.model, &messages);
        let (status, answered) = gateway.post(&path(dialect, scale.model), &headers, &body);
        assert_eq!(status, 200, "{dialect} step {at}: {}", String::from_utf8_lossy(&answered));
        messages.extend(step(dialect, at, scale.sentences));
        if (at + 1) % turn == 0 {
            messages.push(says(dialect, "assistant", "That part is done"));
            let word = if at + 1 == turn { USER_DECISION } else { "Go on" };
            messages.push(says(dialect, "user", word));
        }
    }
    gateway.stop();
    if writer == Writer::Good && !clears {
        read_afterwards(home.path());
    }
    let log = std::fs::read_to_string(home.path().join("plimsoll/conversations/endless.jsonl")).unwrap();
    assert!(!log.contains("sk-secret"));
    (seen, log.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Runs the commands that show the conversation afterwards.
fn read_afterwards(home: &std::path::Path) {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(arguments).current_dir(home).env("XDG_STATE_HOME", home);
        let output = command.env("TZ", "JST-9").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["checkpoint", "endless"]).lines().count(), 2);
    let file = |ending: &str| {
        std::fs::read_to_string(home.join(format!("plimsoll/checkpoints/endless.checkpoint.{ending}")))
            .unwrap()
    };
    let checkpoint = plimsoll::strategy::summary::Checkpoint::from_json(&file("json")).unwrap();
    assert_eq!(checkpoint.goal, GOAL);
    assert!(checkpoint.decisions.iter().any(|decision| decision.contains(MODEL_DECISION)));
    assert!(file("md").contains(&format!("**Goal:** {GOAL}")));
    let table = run(&["fidelity", "endless", "--utc"]);
    let json: Value = serde_json::from_str(&run(&["fidelity", "endless", "--json"])).unwrap();
    let minute = json["summaries"][0]["time"].as_str().unwrap()[..16].replace('T', " ");
    let row = |table: &str| table.lines().nth(1).unwrap().to_owned();
    assert!(row(&table).contains(&format!("  {minute}  ")) && table.contains("mean: "), "{minute}: {table}");
    let local = run(&["fidelity", "endless"]);
    assert!(row(&local) != row(&table) && !row(&local).contains(&minute), "{minute}: {local}");
    assert!(run(&["inspect", "endless"]).contains("summary 1 of"));
}

/// Plays a case and checks what holds for every conversation. Returns what the server received, and the records.
fn play_well(case: Case) -> (String, Vec<Value>) {
    let (dialect, window) = (case.dialect, case.scale.window);
    let (seen, records) = play(case);
    assert_eq!(
        *seen.wrong.lock().unwrap(),
        Vec::<String>::new(),
        "{dialect}: requests that no provider takes"
    );
    let peak = seen.peak.load(Ordering::Relaxed);
    assert!(peak * 100 <= window * 92, "{dialect}: {peak} tokens at most");
    let last = seen.last.lock().unwrap().clone();
    assert!(last.contains(GOAL), "{dialect}: the goal is gone");
    (last, records)
}

fn spliced(record: &Value) -> bool {
    record["edits"]["event"]["rung"] == json!("ready")
}

fn check(dialect: &'static str, writer: Writer, turn: usize) {
    let mut scale = Scale::of_environment();
    if dialect == "openai-chat" && writer == Writer::Good {
        // Enough for a summary made from the originals.
        scale.steps = scale.steps.max(90);
    }
    let (last, records) = play_well(Case { dialect, writer, turn, clears: false, scale });
    let used = records.iter().filter(|record| spliced(record)).count();
    let own: Vec<&Value> = records.iter().filter(|record| !record["own"].is_null()).collect();
    let is_answered = |record: &&Value| !record["status"].is_null();
    assert!(last.contains(MODEL_DECISION), "{dialect}: the model's decision is gone");
    assert!(turn > scale.steps || last.contains(USER_DECISION), "{dialect}: the user's decision is gone");
    if writer == Writer::Good {
        assert!(used >= 2, "{dialect}: {used} summaries were used");
        let made: Vec<_> = own.iter().filter(|record| record["own"]["messages"] != json!(0)).collect();
        assert!(made.len() >= used && made.iter().all(|record| record["own"]["score"].is_number()));
        let (answered, cut_short): (Vec<&Value>, Vec<&Value>) = own.iter().copied().partition(is_answered);
        assert!(answered.iter().all(|record| record["cost"]["total"].as_i64() > Some(0)));
        assert!(answered.iter().all(|record| record["net_saved"].as_i64() < Some(0)));
        // The end of the gateway may interrupt a summary call.
        assert!(cut_short.len() <= 1, "{dialect}: {cut_short:?}");
    }
    if matches!(writer, Writer::Garbage | Writer::Silent) {
        assert_eq!(used, 0, "{dialect}: what is no summary was used");
    }
    assert!(!own.is_empty(), "{dialect}: what was asked is in the books");
    assert_eq!(
        own.iter().any(is_answered),
        writer != Writer::Silent,
        "{dialect}: what was answered is in the books"
    );
}

#[test]
fn anthropic_conversations_grow_without_end() {
    check("anthropic", Writer::Good, 9);
}

#[test]
fn openai_chat_conversations_grow_without_end() {
    check("openai-chat", Writer::Good, 9);
}

#[test]
fn openai_responses_conversations_grow_without_end() {
    check("openai-responses", Writer::Good, 9);
}

#[test]
fn gemini_conversations_grow_without_end() {
    check("gemini", Writer::Good, 9);
}

/// Envelopes are sent with the login of one program, which is used for nothing else.
#[test]
fn enveloped_conversations_grow_without_end() {
    let scale = Scale::of_environment();
    let (_, records) =
        play_well(Case { dialect: ENVELOPED, writer: Writer::Good, turn: 9, clears: true, scale });
    let events = records.iter().filter(|record| !record["edits"]["event"].is_null()).count();
    let own = records.iter().filter(|record| !record["own"].is_null()).count();
    assert!(events >= 2 && own == 0, "{events} events, {own} calls of the gateway's own");
}

#[test]
fn a_single_turn_grows_without_end() {
    check("anthropic", Writer::Good, 1000);
}

#[test]
fn they_survive_a_summariser_that_fails_half_of_the_time() {
    check("openai-responses", Writer::FailsHalf, 9);
}

#[test]
fn they_survive_a_summariser_that_writes_garbage() {
    check("anthropic", Writer::Garbage, 9);
}

#[test]
fn they_survive_a_slow_summariser() {
    check("gemini", Writer::Late(8), 9);
}

#[test]
fn they_survive_a_summariser_that_never_answers() {
    check("openai-chat", Writer::Silent, 9);
}

/// Results are cleared in any order and as often as needed: while that makes enough room, no summary is paid for.
#[test]
fn they_grow_without_end_with_clearing() {
    for dialect in ["anthropic", "openai-chat", "openai-responses", "gemini"] {
        let scale = Scale::of_environment();
        let case = Case { dialect, writer: Writer::Good, turn: 9, clears: true, scale };
        let (last, records) = play_well(case);
        assert!(
            last.contains(MODEL_DECISION) && last.contains(USER_DECISION),
            "{dialect}: a decision is gone"
        );
        let own = records.iter().position(|record| !record["own"].is_null()).unwrap_or(records.len());
        let event = |record: &Value| record["edits"]["event"].clone();
        let events: Vec<Value> = records.iter().map(event).filter(|event| !event.is_null()).collect();
        assert!(events.len() >= 2, "{dialect}: {events:?}");
        let first = records.iter().position(|record| !event(record).is_null()).unwrap();
        assert!(first < own, "{dialect}: a summary was paid for where clearing was enough");
        assert_eq!(events[0]["rung"], json!("clear"), "{dialect}");
    }
}
