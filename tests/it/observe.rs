//! Observing: a gateway that changes nothing, compared with one that does what the first one says it would do.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::cli::{done, json as printed};
use crate::support::{Answer, Gateway, Received, Upstream};

/// The window has room for some of the results, which are shortened. The oldest are cleared when it is full.
const SETTINGS: &str = "[listen]\nadmin = 'off'\n[window]\nsize = 13000\n[truncate]\nmax_lines = 20\n\
                        [clear]\ngate = ['window', 'break-even']\n[summarize]\nenabled = false\n";

/// A dialect under test.
struct Dialect {
    path: &'static str,
    /// The body of a conversation with these results.
    body: fn(&[String]) -> Value,
    /// An answer to a prompt of this many tokens, of which some were read from the cache.
    answer: fn(usize, usize) -> Value,
}

const DIALECTS: [Dialect; 4] = [
    Dialect {
        path: "/v1/messages",
        body: |results| {
            let said = |(at, result): (usize, &String)| {
                let call = json!({"type": "tool_use", "id": at.to_string(), "name": "Bash", "input": {"command": at}});
                let result = json!({"type": "tool_result", "tool_use_id": at.to_string(), "content": result});
                [
                    json!({"role": "assistant", "content": [call]}),
                    json!({"role": "user", "content": [result]}),
                ]
            };
            let begin = json!({"role": "user", "content": "Find the bug"});
            let messages: Vec<Value> = listed(begin, results, said);
            json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages})
        },
        answer: |tokens, _| {
            json!({"type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "content": [],
                "stop_reason": "end_turn", "usage": {"input_tokens": tokens, "output_tokens": 7}})
        },
    },
    Dialect {
        path: "/v1/chat/completions",
        body: |results| {
            let said = |(at, result): (usize, &String)| {
                let function = json!({"name": "Bash", "arguments": json!({"command": at}).to_string()});
                let call = json!({"id": at.to_string(), "type": "function", "function": function});
                [
                    json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                    json!({"role": "tool", "tool_call_id": at.to_string(), "content": result}),
                ]
            };
            let begin = json!({"role": "user", "content": "Find the bug"});
            let messages: Vec<Value> = listed(begin, results, said);
            json!({"model": "gpt-4o", "max_tokens": 1000, "messages": messages})
        },
        answer: |tokens, cached| {
            let choice = json!({"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"});
            json!({"id": "c", "object": "chat.completion", "model": "gpt-4o", "choices": [choice],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 7, "total_tokens": tokens + 7,
                    "prompt_tokens_details": {"cached_tokens": cached}}})
        },
    },
    Dialect {
        path: "/v1/responses",
        body: |results| {
            let said = |(at, result): (usize, &String)| {
                let arguments = json!({"command": at}).to_string();
                [
                    json!({"type": "function_call", "call_id": at.to_string(), "name": "Bash", "arguments": arguments}),
                    json!({"type": "function_call_output", "call_id": at.to_string(), "output": result}),
                ]
            };
            let begin = json!({"type": "message", "role": "user", "content": "Find the bug"});
            let input: Vec<Value> = listed(begin, results, said);
            json!({"model": "gpt-5", "max_output_tokens": 1000, "input": input, "store": false})
        },
        answer: |tokens, _| {
            let said = json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "ok"}]});
            json!({"id": "r", "object": "response", "status": "completed", "model": "gpt-5", "output": [said],
                "usage": {"input_tokens": tokens, "output_tokens": 7}})
        },
    },
    Dialect {
        path: "/v1beta/models/gemini-2.5-pro:generateContent",
        body: |results| {
            let said = |(at, result): (usize, &String)| {
                let call = json!({"functionCall": {"name": "Bash", "args": {"command": at}}});
                let result = json!({"functionResponse": {"name": "Bash", "response": {"output": result}}});
                [json!({"role": "model", "parts": [call]}), json!({"role": "user", "parts": [result]})]
            };
            let begin = json!({"role": "user", "parts": [{"text": "Find the bug"}]});
            let contents: Vec<Value> = listed(begin, results, said);
            json!({"contents": contents, "generationConfig": {"maxOutputTokens": 1000}})
        },
        answer: |tokens, _| {
            let said =
                json!({"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"});
            json!({"candidates": [said], "modelVersion": "gemini-2.5-pro",
                "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 7}})
        },
    },
];

fn listed(begin: Value, results: &[String], said: fn((usize, &String)) -> [Value; 2]) -> Vec<Value> {
    std::iter::once(begin).chain(results.iter().enumerate().flat_map(said)).collect()
}

/// The output of commands.
fn result(at: usize) -> String {
    let line = |line: usize| format!("step {at}, line {line}: {}", line * 7919 % 1009);
    (0..60).map(line).collect::<Vec<_>>().join("\n")
}

/// The records of a conversation that grows by one result with each request, and the bodies received.
fn records(
    home: &Path,
    mode: &str,
    dialect: &'static Dialect,
    bodies: &[String],
) -> (Vec<Value>, Vec<String>) {
    // A provider that counts one token per four bytes and caches the beginnings of prompts.
    let kept: Mutex<Vec<Vec<u8>>> = Mutex::default();
    let answer = move |request: &Received| -> Answer {
        let mut kept = kept.lock().unwrap();
        let common = |other: &Vec<u8>| other.iter().zip(&request.body).take_while(|(a, b)| a == b).count();
        let cached = kept.iter().map(common).max().unwrap_or(0) / 4 / 128 * 128;
        kept.push(request.body.clone());
        (200, (dialect.answer)(request.body.len() / 4, if cached < 1024 { 0 } else { cached }).to_string())
    };
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home, &format!("mode = '{mode}'\n{SETTINGS}"), &upstream.url());
    for body in bodies {
        let headers = [("x-api-key", "k"), ("x-plimsoll-session-id", "one")];
        assert_eq!(gateway.post(dialect.path, &headers, body).0, 200);
    }
    gateway.stop();
    let log = fs::read_to_string(home.join("plimsoll/conversations/one.jsonl")).unwrap();
    let records = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (records, upstream.received().iter().map(Received::text).collect())
}

/// The records of the observing and of the rewriting gateway agree, request by request.
#[test]
fn observed_edits_are_those_of_rewriting() {
    for dialect in &DIALECTS {
        let results: Vec<String> = (0..40).map(result).collect();
        let mut bodies: Vec<String> =
            (0..=results.len()).map(|count| (dialect.body)(&results[..count]).to_string()).collect();
        // A retry makes no new decision.
        bodies.insert(30, bodies[29].clone());
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (observed, arrived) = records(homes[0].path(), "observe", dialect, &bodies);
        assert_eq!(arrived, bodies, "{}", dialect.path);
        let (rewritten, _) = records(homes[1].path(), "rewrite", dialect, &bodies);
        assert_eq!((observed.len(), rewritten.len()), (bodies.len(), bodies.len()));
        let mut events = 0;
        for (at, (seen, sent)) in observed.iter().zip(&rewritten).enumerate() {
            for figure in
                ["/edits/event", "/edits/parts", "/edits/decided", "/edits/splice", "/edits/recalls"]
            {
                assert_eq!(seen.pointer(figure), sent.pointer(figure), "{} {at} {figure}", dialect.path);
            }
            assert_eq!(seen["bytes"]["would_have_saved"], sent["bytes"]["saved"], "{} {at}", dialect.path);
            assert_eq!((&seen["bytes"]["saved"], &sent["bytes"]["would_have_saved"]), (&json!(0), &json!(0)));
            assert!(
                seen["would_have_saved_estimate"].is_i64() && sent["would_have_saved_estimate"].is_null()
            );
            events += usize::from(!sent["edits"]["event"].is_null());
        }
        assert!(events > 1, "{}: hardly an event", dialect.path);
    }
}

/// The messages of a body, without cache marks.
fn messages(dialect: &Dialect, body: &str) -> Vec<Value> {
    let body: Value =
        serde_json::from_str(&body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")).unwrap();
    let list = ["messages", "input", "contents"].iter().find_map(|name| body[*name].as_array());
    let mut messages = list.unwrap_or_else(|| panic!("{}: {body}", dialect.path)).clone();
    // A marked text is in a list.
    if let Some(text) = messages[0]["content"][0].get("text").cloned() {
        messages[0]["content"] = text;
    }
    messages
}

/// Results that were shortened or cleared before the gateway began to observe stay so while the conversation grows;
/// everything new is sent unchanged.
#[test]
fn cleared_results_stay_cleared_in_observe_mode() {
    for dialect in &DIALECTS {
        let results: Vec<String> = (0..40).map(result).collect();
        let bodies: Vec<String> =
            (0..=results.len()).map(|count| (dialect.body)(&results[..count]).to_string()).collect();
        let (before, after) = bodies.split_at(bodies.len() - 5);
        let home = tempfile::tempdir().unwrap();
        let (rewritten, sent) = records(home.path(), "rewrite", dialect, before);
        assert!(rewritten.iter().any(|record| !record["edits"]["event"].is_null()), "{}", dialect.path);
        let (_, observed) = records(home.path(), "observe", dialect, after);
        let mut expected = messages(dialect, &sent[sent.len() - 1]);
        assert_ne!(expected, messages(dialect, &before[before.len() - 1]), "it is changed");
        for (came, left) in after.iter().zip(&observed) {
            let came = messages(dialect, came);
            expected.extend_from_slice(&came[expected.len()..]);
            assert_eq!(messages(dialect, left), expected, "{}", dialect.path);
        }
        assert_eq!(observed.len(), 5);
    }
}

/// The savings that are predicted are those that are made, for a provider that caches by itself and bills both the same
/// way.
#[test]
fn observed_savings_are_those_of_rewriting() {
    let dialect = &DIALECTS[1];
    let results: Vec<String> = (0..40).map(result).collect();
    let bodies: Vec<String> =
        (0..=results.len()).map(|count| (dialect.body)(&results[..count]).to_string()).collect();
    let [observed, rewritten] = ["observe", "rewrite"].map(|mode| {
        let home = tempfile::tempdir().unwrap();
        records(home.path(), mode, dialect, &bodies).0
    });
    let sum = |records: &[Value], figure: &str| -> f64 {
        records.iter().map(|record| record.pointer(figure).and_then(Value::as_f64).unwrap()).sum()
    };
    let saved = sum(&observed, "/cost/total") - sum(&rewritten, "/cost/total");
    let estimate = sum(&observed, "/would_have_saved_estimate");
    assert!(saved > 0.0 && (estimate - saved).abs() < saved / 20.0, "{estimate} is not {saved}");
    assert!(observed.iter().all(|record| record["net_saved"] == 0), "what would have been is no saving");
    let prompts = |records: &[Value]| sum(records, "/tokens/input") + sum(records, "/tokens/cache_read");
    let (less, tokens) =
        (prompts(&observed) - prompts(&rewritten), sum(&observed, "/bytes/would_have_saved_tokens_estimate"));
    assert!(less > 0.0 && (tokens - less).abs() < less / 10.0, "{tokens} is not {less}");
}

/// What was sent before the gateway started is unknown, and so is the hypothetical cost of the conversation.
#[test]
fn observed_savings_are_unknown_for_older_conversations() {
    let dialect = &DIALECTS[0];
    let results: Vec<String> = (0..4).map(result).collect();
    let bodies: Vec<String> = (1..=4).map(|count| (dialect.body)(&results[..count]).to_string()).collect();
    let home = tempfile::tempdir().unwrap();
    records(home.path(), "observe", dialect, &bodies[..2]);
    let (all, _) = records(home.path(), "observe", dialect, &bodies[2..]);
    let known: Vec<bool> = all.iter().map(|record| record["would_have_saved_estimate"].is_i64()).collect();
    assert_eq!(known, [true, true, false, true]);
    let parts: Vec<&Value> = all.iter().map(|record| &record["edits"]["parts"]["truncate"]).collect();
    assert_eq!(parts, [1, 2, 1, 2], "what was sent before stays as it was sent");
}

/// Every report on an observing gateway says what would have been saved.
#[test]
fn the_report_shows_observed_savings() {
    let dialect = &DIALECTS[1];
    let results: Vec<String> = (0..40).map(result).collect();
    let bodies: Vec<String> =
        (0..=results.len()).map(|count| (dialect.body)(&results[..count]).to_string()).collect();
    for (mode, is_told) in [("observe", true), ("rewrite", false)] {
        let home = tempfile::tempdir().unwrap();
        let (records, _) = records(home.path(), mode, dialect, &bodies);
        let state = home.path().join("plimsoll");
        fs::write(home.path().join("gateway.toml"), format!("[state]\ndir = '{}'\n", state.display()))
            .unwrap();
        for command in [&["report"][..], &["conversations"], &["inspect", "one"]] {
            let text = done(home.path(), &[command, &["-c", "gateway.toml"]].concat());
            for said in ["would save", "would have saved: ~$", "would not have been sent: "] {
                assert_eq!(text.contains(said), is_told, "{said}: {text}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            let json = printed(home.path(), &[command, &["--json", "-c", "gateway.toml"]].concat());
            let totals = ["/total", "/totals", "/conversations/0/totals"].map(|at| json.pointer(at));
            let would = &totals.into_iter().flatten().next().expect("totals")["would_have_saved"];
            let sum = |figure: &str| -> Option<i64> {
                let figures: Vec<i64> =
                    records.iter().filter_map(|record| record.pointer(figure)?.as_i64()).collect();
                (!figures.is_empty()).then(|| figures.iter().sum())
            };
            for (figure, of) in [
                ("bytes", "/bytes/would_have_saved"),
                ("tokens_estimate", "/bytes/would_have_saved_tokens_estimate"),
                ("net", "/would_have_saved_estimate"),
            ] {
                assert_eq!(would[figure].as_i64(), sum(of), "{figure}: {json}");
            }
            assert_eq!(would["net"].is_null(), !is_told);
        }
    }
}
