//! Figures of the ledger that the provider does not report: what requests would have cost without the gateway, and what
//! they consist of.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll::store::Bodies;
use plimsoll::store::bodies::Form;
use serde_json::{Value, json};

use crate::cli::{done, json as printed};
use crate::support::{Answer, Gateway, Received, Upstream, records, send};

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

/// If the provider clears parts of a prompt itself, it is unknown what would have been left of the original.
#[test]
fn clearing_by_the_provider_is_no_saving() {
    let clear = |from: u64| {
        let trigger = json!({"type": "input_tokens", "value": from});
        json!({"edits": [{"type": "clear_tool_uses_20250919", "trigger": trigger}]})
    };
    let cleared =
        json!([{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 9}]);
    let thoughts = json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]});
    let (long, short) = (log("long", 4000), log("short", 10));
    for (result, asked, made, is_known) in [
        (&long, Value::Null, json!([]), true),
        (&long, thoughts, json!([]), true),
        (&long, clear(1_000_000), json!([]), true),
        (&long, clear(20_000), json!([]), false),
        (&long, clear(1_000_000), cleared.clone(), false),
        // An unedited request costs the same without the gateway.
        (&short, clear(20), cleared, true),
    ] {
        let home = tempfile::tempdir().unwrap();
        let applied = made.clone();
        let upstream = Upstream::start(move |request| {
            let usage = json!({"input_tokens": request.body.len() / 4, "output_tokens": 7});
            let edits = json!({"applied_edits": applied});
            let answer = json!({"id": "msg_1", "type": "message", "model": "claude-sonnet-4-6",
                "stop_reason": "end_turn", "usage": usage, "context_management": edits});
            (200, answer.to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body: Value = serde_json::from_str(&request(&[result])).unwrap();
        if !asked.is_null() {
            body["context_management"] = asked.clone();
        }
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
        gateway.stop();
        assert_eq!(upstream.received()[0].body.len() < body.to_string().len(), result == &long);
        let record = &records(home.path())[0];
        let is_told = [&record["counterfactual"], &record["net_saved"]].map(|figure| !figure.is_null());
        assert_eq!(is_told, [is_known; 2], "{asked} {made}");
    }
}

/// If the provider summarises what the gateway has cut, only the summary is billed, so the cost of the original is
/// unknown.
#[test]
fn compaction_by_the_provider_leaves_the_counterfactual_unknown() {
    for (result, is_known) in [(log("long", 4000), false), (log("short", 10), true)] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |request| {
            let call =
                json!({"type": "compaction", "input_tokens": request.body.len() / 4, "output_tokens": 300});
            let usage = json!({"input_tokens": 0, "output_tokens": 0, "iterations": [call]});
            let block = json!({"type": "compaction", "content": "so far", "signature": "seal"});
            let answer = json!({"id": "msg_1", "type": "message", "model": "claude-sonnet-4-6",
                "stop_reason": "compaction", "content": [block], "usage": usage});
            (200, answer.to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body: Value = serde_json::from_str(&request(&[&result])).unwrap();
        body["compaction"] = json!({"type": "summarize"});
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(record["edits"]["state"] == "unchanged", is_known, "{record}");
        assert!(record["cost"]["total"].is_i64(), "{record}");
        for figure in ["counterfactual", "net_saved"] {
            assert_eq!(!record[figure].is_null(), is_known, "{record}");
        }
    }
}

/// If the provider does not report for how long something is written to the cache, the time to live in the request is
/// assumed.
#[test]
fn an_unstated_cache_ttl_is_the_requested_one() {
    for (system, result, expected) in [
        (None, "5m", (900, 0)),
        (None, "1h", (0, 900)),
        (Some("1h"), "1h", (0, 900)),
        (Some("1h"), "5m", (900, 0)),
    ] {
        let home = tempfile::tempdir().unwrap();
        let usage = json!({"input_tokens": 9, "cache_creation_input_tokens": 900, "output_tokens": 7});
        let answer = json!({"id": "msg_1", "type": "message", "model": "claude-sonnet-4-6",
            "stop_reason": "end_turn", "usage": usage});
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body: Value = serde_json::from_str(&request(&["short"])).unwrap();
        let mark = |ttl: &str| json!({"type": "ephemeral", "ttl": ttl});
        body["messages"][2]["content"][0]["cache_control"] = mark(result);
        if let Some(system) = system {
            body["system"] = json!([{"type": "text", "text": "Be brief", "cache_control": mark(system)}]);
        }
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
        gateway.stop();
        let tokens = &records(home.path())[0]["tokens"];
        let found = (&tokens["cache_write_5m"], &tokens["cache_write_1h"]);
        assert_eq!(found, (&json!(expected.0), &json!(expected.1)), "{system:?} {result}");
    }
}

/// An upstream that speaks Anthropic's dialect but caches prompts by itself gets no marks, and its cache hits do not
/// count as savings of the gateway.
#[test]
fn automatic_caching_of_an_upstream_is_no_saving() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let (tokens, read) =
            (request.body.len() / 4, if request.text().contains("toolu_1") { 2000 } else { 0 });
        let usage =
            json!({"input_tokens": tokens - read, "cache_read_input_tokens": read, "output_tokens": 7});
        (200, json!({"type": "message", "model": "deepseek-v4-pro", "usage": usage}).to_string())
    });
    let config =
        format!("{CONFIG}[prices.model.'deepseek-v4-pro']\ninput = 1\noutput = 2\ncache_read = 0.1\n");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let first = "short ".repeat(2000);
    for results in [&[&*first][..], &[&*first, "short"]] {
        let mut body: Value = serde_json::from_str(&request(results)).unwrap();
        body["model"] = json!("deepseek-v4-pro");
        let last = body["messages"].as_array_mut().unwrap().last_mut().unwrap();
        last["content"][0].as_object_mut().unwrap().remove("cache_control");
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
    }
    gateway.stop();
    assert!(upstream.received().iter().all(|request| !request.text().contains("cache_control")));
    assert_eq!(nets(home.path()), [json!(0), json!(0)]);
    assert_eq!(records(home.path())[1]["counterfactual"]["tokens"]["cache_read"], 2000);
}

/// Requests without messages are billed too. They are sent unchanged, and booked on their session, or else with others
/// of the same kind and day.
#[test]
fn requests_without_messages_are_booked() {
    const TEXT: &str = r#"{ "model": "gpt-3.5-turbo-instruct", "prompt": ["Say"], "stream": false }"#;
    const STREAM: &str = r#"{"model":"gpt-3.5-turbo-instruct","prompt":"Say","stream":true}"#;
    const EMBED: &str = r#"{"model":"text-embedding-3-small","input":[{"role":"user","content":"Say"}]}"#;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let body = request.text();
        let choice = json!({"text": "hi", "index": 0, "finish_reason": "stop"});
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
        let embedded = json!({"object": "embedding", "index": 0, "embedding": [0.1, 0.2]});
        let answer = match &*body {
            EMBED => json!({"object": "list", "data": [embedded], "model": "text-embedding-3-small",
                "usage": {"prompt_tokens": 8, "total_tokens": 8}})
            .to_string(),
            STREAM => {
                let said = json!({"id": "c", "choices": [choice]});
                let end = json!({"id": "c", "choices": [], "usage": usage});
                format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n")
            }
            _ => json!({"id": "c", "choices": [choice], "usage": usage}).to_string(),
        };
        (200, answer)
    });
    let config = format!(
        "{CONFIG}[prices.model.'gpt-3.5-turbo-instruct']\ninput = 1.5\noutput = 2.0\n\
         [prices.model.'text-embedding-3-small']\ninput = 0.02\noutput = 0\n"
    );
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let asked = [
        ("/v1/completions", &[][..], TEXT, "completions-", 10, 5, 25_000_000),
        ("/v1/completions", &[], STREAM, "completions-", 10, 5, 25_000_000),
        ("/openai/deployments/d/embeddings/?v=1", &[], EMBED, "embeddings-", 8, 0, 160_000),
        ("/v1/embeddings", &[("x-session-id", "mine")], EMBED, "mine", 8, 0, 160_000),
    ];
    for (path, headers, body, ..) in asked {
        assert_eq!(gateway.post(path, headers, body).0, 200, "{path}");
    }
    gateway.stop();
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert_eq!(sent, asked.map(|(_, _, body, ..)| body.to_owned()));
    let mut records = records(home.path());
    records.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
    assert_eq!(records.len(), asked.len());
    for (record, (path, _, body, conversation, input, output, cost)) in records.iter().zip(asked) {
        let found = record["conversation"].as_str().unwrap();
        let day = record["time"].as_str().unwrap().split('T').next().unwrap();
        let expected =
            if conversation.ends_with('-') { conversation.to_owned() + day } else { conversation.to_owned() };
        assert_eq!(found, expected, "{path}");
        let model: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&record["model_asked"], &record["model"]), (&model["model"], &model["model"]), "{path}");
        assert_eq!(
            (prompt(&record["tokens"]), &record["tokens"]["output"]),
            (input, &json!(output)),
            "{path}"
        );
        assert_eq!(record["cost"]["total"], cost, "{path}");
        assert_eq!((&record["edits"]["state"], &record["net_saved"]), (&json!("unchanged"), &json!(0)));
        assert_eq!(record["output_is_lower_bound"], json!(false), "{path}");
        assert_eq!(record["thread"], Value::Null);
    }
}

/// Requests that cannot be read are sent unchanged, and booked on their session, or else with others of the same day.
#[test]
fn unread_requests_are_booked_together() {
    const TWICE: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"messages":[]}"#;
    const NONE: &str = r#"{"model":"m","contents":7}"#;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let asked =
        [(TWICE, &[][..], None), (NONE, &[], None), (TWICE, &[("x-session-id", "mine")], Some("mine"))];
    for (body, headers, _) in asked {
        assert_eq!(gateway.post("/v1/messages", headers, body).0, 200);
    }
    gateway.stop();
    assert!(upstream.received().iter().map(Received::text).eq(asked.map(|(body, ..)| body.to_owned())));
    let mut records = records(home.path());
    records.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
    assert_eq!(records.len(), asked.len());
    for (record, (body, _, session)) in records.iter().zip(asked) {
        let day = record["time"].as_str().unwrap().split('T').next().unwrap();
        let expected = session.map_or_else(|| format!("unread-{day}"), str::to_owned);
        assert_eq!(record["conversation"], expected, "{body}");
        assert_eq!(record["edits"]["state"], "unread");
        assert!(record["edits"]["why"].is_string(), "{record}");
    }
}

/// More requests than a busy gateway receives while the disk stalls.
#[test]
fn answers_during_a_stalled_disk_are_booked() {
    const MEANWHILE: usize = 1200;
    const CLIENTS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let post = || assert_eq!(gateway.post("/v1/messages", &[], &request(&["short"])).0, 200);
    post();
    let other = rusqlite::Connection::open(home.path().join("plimsoll/plimsoll.db")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Several at a time, so that they are done before the store stops waiting.
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| (0..MEANWHILE / CLIENTS).for_each(|_| post()));
        }
    });
    other.execute_batch("COMMIT").unwrap();
    gateway.stop();
    assert_eq!(records(home.path()).len(), MEANWHILE + 1);
}

pub(crate) fn prompt(tokens: &Value) -> u64 {
    let kinds = ["input", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_12h"];
    kinds.iter().map(|kind| tokens[kind].as_u64().unwrap()).sum()
}

#[test]
fn the_counterfactual_includes_what_was_cut() {
    for record in two_requests("", &log("first", 4000), &log("second", 4000)) {
        let (untouched, cost) = (&record["counterfactual"], &record["cost"]["total"]);
        assert_eq!(untouched["estimated"], true);
        assert!(prompt(&untouched["tokens"]) > prompt(&record["tokens"]) * 3 / 2, "{record}");
        assert_eq!(untouched["tokens"]["output"], 7);
        let net = record["net_saved"].as_i64().unwrap();
        assert_eq!(untouched["cost"].as_i64().unwrap() - cost.as_i64().unwrap(), net);
        assert!(net > 0, "{record}");
    }
}

/// After an event the provider drops reasoning and does not bill it. Without the event it would have been read from the
/// cache.
#[test]
fn the_counterfactual_includes_reasoning_lost_to_an_event() {
    const CLEARING: &str =
        "[window]\nsize = 20_000\n[clear]\ngate = ['window']\n[summarize]\nenabled = false\n";
    let size = |item: &Value| {
        let bytes = item.to_string().len();
        if item["type"] == "reasoning" { bytes / 10 } else { bytes / 4 }
    };
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(move |request| {
        let body: Value = serde_json::from_str(&request.text()).unwrap();
        let input = body["input"].as_array().unwrap();
        let changed =
            input.iter().position(|item| item.to_string().contains("cleared")).unwrap_or(input.len());
        let (lost, read): (Vec<_>, Vec<_>) =
            input.iter().enumerate().partition(|(at, item)| *at > changed && item["type"] == "reasoning");
        let tokens: usize = read.into_iter().map(|(_, item)| size(item)).sum();
        let removed = |(_, item): &(usize, &Value)| json!({"type": "reasoning", "id": item["id"], "action": "removed", "reason": "prefix_mismatch"});
        let body = json!({"id": "resp_1", "object": "response", "model": "gpt-6.2-sol", "status": "completed",
            "output": [], "input_transformations": lost.iter().map(removed).collect::<Vec<_>>(),
            "usage": {"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7}});
        (200, body.to_string())
    });
    let gateway = Gateway::start(home.path(), &format!("{CLEARING}{CONFIG}"), &upstream.url());
    let mut input = vec![json!({"role": "user", "content": "Find the bug"})];
    let mut whole = Vec::new();
    for at in 0..16 {
        let (id, name) = (format!("rs_{at}"), format!("log {at}"));
        input.extend([
            json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": format!("{at:04}").repeat(1500)}),
            json!({"type": "function_call", "call_id": name, "name": "exec_command", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": name, "output": log(&name, 120)}),
        ]);
        whole.push(input.iter().map(size).sum::<usize>() as u64);
        let body = json!({"model": "gpt-6.2-sol", "store": false, "input": input}).to_string();
        assert_eq!(gateway.post("/v1/responses", &[("session-id", "s")], &body).0, 200);
    }
    gateway.stop();
    let records = records(home.path());
    let dropped = records.iter().filter(|record| record["edits"]["reasoning_dropped"] != 0);
    assert!(dropped.count() > 3, "{records:?}");
    for (record, whole) in records.iter().zip(whole) {
        let untouched = prompt(&record["counterfactual"]["tokens"]);
        assert!(untouched.abs_diff(whole) <= whole / 50, "{untouched} is not {whole}: {record}");
    }
}

/// The cached history depends on the rest of the request: if that changes, nothing of the history is read, edited or
/// not.
#[test]
fn a_changed_prelude_writes_the_history_in_the_counterfactual_too() {
    let instructions = "Be brief. ".repeat(2000);
    let (whole, frame) = (log("first", 4000), instructions.len() / 4);
    for (second, reads_messages) in [("auto", true), ("any", false)] {
        let home = tempfile::tempdir().unwrap();
        let before = AtomicUsize::new(0);
        let upstream = Upstream::start(move |request| {
            let tokens = request.body.len() / 4;
            let read = match before.swap(tokens, Ordering::Relaxed) {
                0 => 0,
                before if reads_messages => before,
                _ => frame,
            };
            let usage = json!({"input_tokens": 0, "cache_read_input_tokens": read,
                "cache_creation_input_tokens": tokens - read, "output_tokens": 7});
            (200, json!({"type": "message", "model": "claude-sonnet-4-6", "usage": usage}).to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        for (results, choice) in [(&[&*whole][..], "auto"), (&[&*whole, "short"], second)] {
            let mut body: Value = serde_json::from_str(&request(results)).unwrap();
            let mark = json!({"type": "ephemeral"});
            body["system"] = json!([{"type": "text", "text": instructions, "cache_control": mark}]);
            body["tool_choice"] = json!({"type": choice});
            assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
        }
        gateway.stop();
        let record = &records(home.path())[1];
        let [sent, untouched] = [&record["tokens"], &record["counterfactual"]["tokens"]];
        assert!(prompt(untouched) > prompt(sent) * 3 / 2, "{record}");
        let [read, would] = [sent, untouched].map(|tokens| tokens["cache_read"].as_u64().unwrap());
        let most = if reads_messages { u64::MAX } else { read + read / 20 };
        let least = if reads_messages { read * 3 / 2 } else { read - read / 20 };
        assert!((least..most).contains(&would), "{second}: {would} for {read}: {record}");
    }
}

/// The history that the provider holds itself is not affected by edits. If its position among the messages of the body
/// is unknown, it is also unknown what would have been read from the cache, and no saving is claimed.
#[test]
fn a_history_held_by_the_provider_is_no_saving() {
    let item = json!({"type": "function_call_output", "call_id": "c1", "output": log("first", 4000)});
    let reference = json!({"type": "item_reference", "id": "fc_1"});
    let continued = json!({"model": "gpt-5", "previous_response_id": "resp_0", "input": [item]});
    let referring = json!({"model": "gpt-5", "store": true, "input": [reference, item]});
    for (hidden, read, body, is_claimed) in [
        (100_000, 0, &continued, true),
        (12_000, 0, &continued, true),
        (12_000, 6000, &continued, true),
        (12_000, 12_000, &continued, true),
        (12_000, 0, &referring, false),
    ] {
        let record = record_of_kept((hidden, read), body);
        let gone = record["bytes"]["received"].as_u64().unwrap() - record["bytes"]["sent"].as_u64().unwrap();
        let saved = record["bytes"]["saved_tokens_estimate"].as_u64().unwrap();
        assert!(
            gone > 50_000 && (gone / 6..gone * 2 / 5).contains(&saved),
            "{saved} tokens of {gone} bytes: {record}"
        );
        if is_claimed {
            let claimed = prompt(&record["counterfactual"]["tokens"]) - prompt(&record["tokens"]);
            assert!(claimed.abs_diff(saved) <= 2, "{record}");
            // The same amount is read from the cache, and nothing of what was cut.
            let untouched = record["counterfactual"]["tokens"]["cache_read"].as_u64().unwrap();
            assert!(untouched.abs_diff(read) <= read / 50, "{untouched} is not {read}: {record}");
        } else {
            let unknown = ["counterfactual", "net_saved"].map(|key| &record[key]);
            assert_eq!(unknown, [&Value::Null; 2], "{record}");
        }
    }
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

/// The figures of a background request are reported later. The compaction of a history that the provider keeps is
/// booked on that history's conversation.
#[test]
fn compactions_of_a_held_history_are_booked_with_it() {
    const COMPACT: &str = r#"{"model":"gpt-5","previous_response_id":"resp_1"}"#;
    const WITHIN: &str = r#"{"model":"gpt-5","conversation":"conv_1"}"#;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let usage = json!({"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100});
        let answer = if request.line.contains("/compact") {
            json!({"id": "cmp_1", "object": "response.compaction", "output": [], "usage": usage})
        } else if request.text().contains("background") {
            json!({"id": "resp_1", "model": "gpt-5", "status": "queued", "usage": null})
        } else {
            json!({"id": "resp_2", "model": "gpt-5", "status": "completed", "usage": usage})
        };
        (200, answer.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let asked = [
        ("", r#"{"model":"gpt-5","input":"one","background":true}"#),
        ("/compact", COMPACT),
        ("", r#"{"model":"gpt-5","input":"two","conversation":{"id":"conv_1"}}"#),
        ("/compact", WITHIN),
        ("", r#"{"model":"gpt-5","input":"three","conversation":"conv_1"}"#),
    ];
    for (path, body) in asked {
        assert_eq!(gateway.post(&format!("/v1/responses{path}"), &[], body).0, 200, "{body}");
    }
    gateway.stop();
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert_eq!((&*sent[1], &*sent[3]), (COMPACT, WITHIN), "they leave as they came");
    let mut records = records(home.path());
    records.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
    let costs: Vec<_> = records.iter().map(|record| record["cost"]["total"].as_i64()).collect();
    // 1.25 and 10 dollars per million tokens.
    assert_eq!(
        costs,
        [None, Some(2_250_000_000), Some(2_250_000_000), Some(2_250_000_000), Some(2_250_000_000)]
    );
    let of = |key: &str| records.iter().map(|record| record[key].clone()).collect::<Vec<_>>();
    let conversations = of("conversation");
    assert_eq!((&conversations[0], &conversations[2]), (&conversations[1], &conversations[3]));
    assert_eq!(conversations[2], conversations[4]);
    assert_ne!(conversations[0], conversations[2]);
    assert_eq!(of("outcome")[..2], [json!("pending"), json!("complete")]);
    assert_eq!((&records[0]["tokens"], &records[1]["compaction"]), (&Value::Null, &json!("asked")));
    assert_eq!(of("relation")[2..], [json!("new"), Value::Null, json!("continue")]);
}

/// A background answer may be polled, streamed or cancelled, by any process that shares the store: its figures are
/// booked once, and the client gets the provider's bytes.
#[test]
fn background_requests_are_booked_once_their_usage_is_known() {
    let response = |status: &str| {
        let usage = json!({"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100});
        let usage = if matches!(status, "queued" | "in_progress") { Value::Null } else { usage };
        json!({"id": "resp_1", "model": "gpt-5", "status": status, "usage": usage})
    };
    let event = |status: &str| {
        let kind = format!("response.{status}");
        let data = json!({"type": kind, "response": response(status)});
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let streamed = |last: &str| event("in_progress") + &event(last);
    let polled = |status: &str| ("GET", "/v1/responses/resp_1", response(status).to_string());
    let stream = |events: String| ("GET", "/v1/responses/resp_1?stream=true&starting_after=3", events);
    let cancel = ("POST", "/v1/responses/resp_1/cancel", response("cancelled").to_string());
    let begun = response("queued").to_string();
    let cases = [
        (&begun, vec![polled("in_progress"), polled("completed"), polled("completed")], Some("completed")),
        (&begun, vec![polled("incomplete")], Some("incomplete")),
        (&begun, vec![stream(streamed("completed")), polled("completed")], Some("completed")),
        // A stream that broke off is resumed.
        (
            &event("in_progress"),
            vec![stream(event("in_progress")), stream(event("completed"))],
            Some("completed"),
        ),
        (&begun, vec![cancel, polled("cancelled")], Some("cancelled")),
        (&begun, vec![stream(event("in_progress")), polled("queued")], None),
    ];
    for ((begun, later, stop), restarts) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
        let home = tempfile::tempdir().unwrap();
        let answers: Vec<String> =
            std::iter::once((*begun).clone()).chain(later.iter().map(|row| row.2.clone())).collect();
        let (given, at) = (answers.clone(), AtomicUsize::new(0));
        let upstream = Upstream::start(move |_| (200, given[at.fetch_add(1, Ordering::Relaxed)].clone()));
        let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let body = r#"{"model":"gpt-5","input":"one","background":true}"#;
        assert_eq!(gateway.post("/v1/responses", &[], body), (200, answers[0].clone().into_bytes()));
        for (method, path, answer) in later {
            if restarts {
                gateway.stop();
                gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
            }
            let got = send(gateway.address, method, path, &[], "");
            assert_eq!(got, (200, answer.clone().into_bytes()), "{path}");
        }
        gateway.stop();
        let state = format!("state.dir = '{}'\n", home.path().join("plimsoll").display());
        fs::write(home.path().join("read.toml"), state).unwrap();
        let report = printed(home.path(), &["report", "--json", "-c", "read.toml"]);
        let totals = &report["total"];
        let expected = stop.map(|_| 2_250_000_000_u64);
        assert_eq!(totals["cost"]["total"].as_u64(), expected, "{report}");
        assert_eq!(
            (&totals["requests"], &totals["unknown_usage"], &totals["tokens"]["output"]),
            (&json!(1), &json!(u8::from(stop.is_none())), &json!(if stop.is_some() { 100 } else { 0 })),
        );
        let records = records(home.path());
        let (first, last) = (&records[0], &records[records.len() - 1]);
        assert_eq!(records.len(), 1 + usize::from(stop.is_some()));
        assert_eq!((&first["tokens"], &first["id"]), (&Value::Null, &last["id"]));
        assert_eq!(last["stop"], json!(stop));
        assert_eq!(last["net_saved"], stop.map_or(Value::Null, |_| json!(0)));
    }
}

#[test]
fn the_counterfactual_of_an_unedited_request_is_its_cost() {
    for (config, lines) in [("", 150), ("mode = 'observe'\n", 4000)] {
        for record in two_requests(config, &log("first", lines), &log("second", lines)) {
            assert_eq!(record["counterfactual"]["tokens"], record["tokens"], "{record}");
            assert_eq!(record["counterfactual"]["cost"], record["cost"]["total"]);
            assert_eq!(
                (&record["counterfactual"]["estimated"], &record["net_saved"]),
                (&json!(false), &json!(0))
            );
        }
    }
}

#[test]
fn records_have_relation_position_and_composition() {
    let records = two_requests("", &log("first", 500), &log("second", 500));
    let places: Vec<_> = records
        .iter()
        .map(|record| ["prior", "turn", "step", "prefix"].map(|key| record[key].clone()))
        .collect();
    assert_eq!(places[0], [json!(0), json!(1), json!(2), Value::Null]);
    assert_eq!(places[1], [json!(3), json!(1), json!(3), json!("kept")]);
    let made = &records[1]["prompt"];
    assert_eq!((&made["tools"], &made["reasoning"]), (&json!(0), &json!(0)));
    let results = made["results"].as_u64().unwrap();
    assert!(results * 10 > prompt(&records[1]["tokens"]) * 9, "{made}");
    assert!(made["system"].as_u64() > Some(0) && made["assistant"].as_u64() > Some(0), "{made}");
    // The window consists of instructions, tools, a summary (there is none here), the answer's reserve and the rest.
    let window = &records[1]["window"];
    let number = |value: &Value| value.as_u64().unwrap();
    let regions = [&made["system"], &made["tools"], &window["reserved"], &window["history_budget_estimate"]];
    assert_eq!(regions.into_iter().map(number).sum::<u64>(), number(&window["tokens"]), "{window}");
}

#[test]
fn unknown_figures_are_null() {
    let refused = json!({"type": "error", "error": {"type": "overloaded_error"}});
    let silent = json!({"id": "msg_1", "model": "claude-sonnet-4-6", "stop_reason": "end_turn",
        "usage": {"output_tokens": 7}});
    for (status, answer, output, unknown) in
        [(529, refused, Value::Null, false), (200, silent, json!(7), true)]
    {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |_| (status, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post("/v1/messages", &[], &request(&[&log("first", 4000)]));
        gateway.stop();
        let record = &records(home.path())[0];
        for key in ["cost", "counterfactual", "net_saved"] {
            assert_eq!(record[key], Value::Null, "{key} {record}");
        }
        assert_eq!(record["tokens"]["output"], output);
        assert_eq!(record["prompt_is_unknown"], unknown);
    }
}

/// A refused request is in no cache, so what follows it is accounted for from its beginning.
#[test]
fn a_repeated_request_after_a_refusal_has_a_counterfactual() {
    let home = tempfile::tempdir().unwrap();
    let asked = AtomicUsize::new(0);
    let upstream = Upstream::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => (529, json!({"type": "error", "error": {"type": "overloaded_error"}}).to_string()),
        _ => answer(request),
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let body = request(&["a short result"]);
    let statuses: Vec<u16> = (0..3).map(|_| gateway.post("/v1/messages", &[], &body).0).collect();
    gateway.stop();
    let found: Vec<(u16, Value)> = statuses.into_iter().zip(nets(home.path())).collect();
    assert_eq!(found, [(529, Value::Null), (529, Value::Null), (200, json!(0))]);
}

/// Nothing counts as saved unless a request is answered, however often a client retries.
#[test]
fn refused_requests_save_nothing() {
    let home = tempfile::tempdir().unwrap();
    let asked = AtomicUsize::new(0);
    let upstream = Upstream::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => (529, json!({"type": "error", "error": {"type": "overloaded_error"}}).to_string()),
        1 => (429, json!({"type": "error", "error": {"type": "rate_limit_error"}}).to_string()),
        2 => {
            let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
            (200, format!("event: error\ndata: {error}\n\n"))
        }
        _ => answer(request),
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let body = request(&[&log("a", 4_000)]);
    let statuses: Vec<u16> = (0..4).map(|_| gateway.post("/v1/messages", &[], &body).0).collect();
    gateway.stop();
    let saved = |record: &Value| {
        let bytes = &record["bytes"];
        [&bytes["saved"], &bytes["saved_tokens_estimate"]].map(|count| count.as_u64().unwrap() > 0)
    };
    let found: Vec<[bool; 2]> = records(home.path()).iter().map(saved).collect();
    assert_eq!(statuses, [529, 429, 200, 200]);
    assert_eq!(found, [[false; 2], [false; 2], [false; 2], [true; 2]]);
}

/// After a restart the contents of the provider's cache are unknown for a conversation that was edited. For an unedited
/// one they are what the provider reports.
#[test]
fn unedited_conversations_have_a_counterfactual_after_a_restart() {
    for (lines, expected) in [(300, vec![Some(false), Some(false)]), (4_000, vec![Some(true), None])] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let first = log("first", lines);
        for body in [request(&[&first]), request(&[&first, "short"])] {
            let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
            assert_eq!(gateway.post("/v1/messages", &[], &body).0, 200);
            gateway.stop();
        }
        let saves: Vec<Option<bool>> = nets(home.path()).iter().map(|net| Some(net.as_i64()? != 0)).collect();
        assert_eq!(saves, expected, "{lines}");
    }
}

/// If a conversation continues with another model, that model has nothing cached: what the edits remove would have been
/// paid in full. After a restart it is unknown which models it used.
#[test]
fn a_change_of_model_saves_uncached_tokens() {
    for restarts in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|request| {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"],
                "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": request.body.len() / 4, "output_tokens": 7}});
            (200, body.to_string())
        });
        let (first, second) = (log("first", 4000), log("second", 4000));
        let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        assert_eq!(gateway.post("/v1/messages", &[], &request(&[&first])).0, 200);
        if restarts {
            gateway.stop();
            gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        }
        let body = request(&[&first, &second]).replace("claude-sonnet-4-6", "claude-haiku-4-5");
        assert_eq!(gateway.post("/v1/messages", &[], &body).0, 200);
        gateway.stop();
        let nets = nets(home.path());
        assert!(nets[0].as_i64() > Some(0), "{nets:?}");
        if restarts {
            assert_eq!(nets[1], Value::Null);
        } else {
            // The first result is removed for it as well.
            assert!(nets[1].as_i64() > nets[0].as_i64().map(|net| net / 2), "{nets:?}");
        }
    }
}

fn nets(home: &Path) -> Vec<Value> {
    records(home).into_iter().map(|record| record["net_saved"].clone()).collect()
}

/// An answer that ended without an output figure has an unknown cost. One that broke off costs at least its prompt.
#[test]
fn an_unstated_output_is_unknown() {
    const MODEL: &str = "claude-sonnet-4-6";
    let claude = |stop| {
        json!({"id": "msg_1", "model": MODEL, "stop_reason": stop, "usage": {"input_tokens": 1000}})
            .to_string()
    };
    let chat = |usage: Value| {
        json!({"id": "c", "model": MODEL, "choices": [{"finish_reason": "stop"}], "usage": usage}).to_string()
    };
    let start = json!({"type": "message_start",
        "message": {"id": "msg_1", "model": MODEL, "usage": {"input_tokens": 1000}}});
    let cut = format!("event: message_start\ndata: {start}\n\n");
    let (messages, completions) = ("/v1/messages", "/v1/chat/completions");
    let prompt = Some(3_000_000_000_u64);
    for (path, answer, unknown, lower_bound, cost) in [
        (messages, claude(Some("end_turn")), true, false, None),
        (messages, claude(None), false, true, prompt),
        (messages, cut, false, true, prompt),
        (completions, chat(json!({"prompt_tokens": 1000})), true, false, None),
        (completions, chat(json!({"prompt_tokens": 1000, "total_tokens": 1000})), false, false, prompt),
        (completions, chat(json!({"prompt_tokens": 1000, "cost": 0.003})), true, false, prompt),
    ] {
        let (home, said) = (tempfile::tempdir().unwrap(), answer.clone());
        let upstream = Upstream::start(move |_| (200, said.clone()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post(
            path,
            &[],
            &json!({"model": MODEL, "messages": [{"role": "user", "content": "x"}]}).to_string(),
        );
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(record["output_is_unknown"], unknown, "{answer}");
        assert_eq!(record["output_is_lower_bound"], lower_bound, "{answer}");
        assert_eq!(record["cost"]["total"].as_u64(), cost, "{answer} {record}");
        assert_eq!(record["net_saved"].is_null(), cost.is_none(), "{answer} {record}");
    }
}

/// The cost may be reported by any upstream: the cost without the gateway is in proportion to it.
#[test]
fn a_cost_stated_by_any_upstream_has_a_net_saving() {
    const MODEL: &str = "moonshotai/kimi-k2.5";
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let tokens = request.body.len() / 4;
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 0, "cost": 0.02});
        let choices = json!([{"finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]);
        (200, json!({"id": "c", "model": MODEL, "choices": choices, "usage": usage}).to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let call = json!({"id": "1", "type": "function", "function": {"name": "Grep", "arguments": "{}"}});
    let messages = json!([{"role": "user", "content": "Find the bug"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": log("first", 4000)}]);
    gateway.post("/v1/chat/completions", &[], &json!({"model": MODEL, "messages": messages}).to_string());
    gateway.stop();
    let record = &records(home.path())[0];
    let (untouched, sent) = (prompt(&record["counterfactual"]["tokens"]), prompt(&record["tokens"]));
    let cost = record["counterfactual"]["cost"].as_u64().unwrap_or(0);
    assert!(untouched > sent, "{record}");
    assert!((cost as f64 / 2e10 - untouched as f64 / sent as f64).abs() < 0.01, "{record}");
}

/// Charges without a price are named, and make every sum a lower bound. A cost that the provider states is complete.
#[test]
fn charges_without_a_price_make_sums_lower_bounds() {
    let usage = |more: Value| {
        let mut usage = json!({"input_tokens": 1000, "output_tokens": 0});
        usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"id": "resp_1", "status": "completed", "model": "gpt-4o", "usage": usage,
            "output": [{"type": "code_interpreter_call"}]})
    };
    let ticks = json!({"num_server_side_tools_used": 1, "cost_in_usd_ticks": 37_756_000});
    for (answer, charges, cost) in [
        (usage(json!({})), json!(["code_execution"]), 2_500_000_000_u64),
        (
            usage(json!({"num_server_side_tools_used": 1})),
            json!(["code_execution", "server_tools"]),
            2_500_000_000,
        ),
        (usage(ticks), json!([]), 3_775_600_000),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post("/v1/responses", &[], &json!({"model": "gpt-4o", "input": "x"}).to_string());
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(
            (&record["unpriced_charges"], &record["cost"]["total"]),
            (&charges, &json!(cost)),
            "{record}"
        );
    }
}

/// The billed model is the one that answered, unless its name is empty or the path names an inference profile.
#[test]
fn the_billed_model_is_the_one_that_answered() {
    const KNOWN: &str = "claude-sonnet-4-6";
    const PROFILE: &str = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc";
    let escaped = PROFILE.replace(':', "%3A").replace('/', "%2F");
    let messages = "/v1/messages".to_owned();
    let price = Some(3_000_000_000_u64);
    for (path, asked, answered, billed, cost) in [
        (
            messages.clone(),
            json!(KNOWN),
            json!("claude-haiku-4-5"),
            json!("claude-haiku-4-5"),
            Some(1_000_000_000),
        ),
        (messages.clone(), json!(KNOWN), json!(""), json!(KNOWN), price),
        (messages.clone(), json!(KNOWN), Value::Null, json!(KNOWN), price),
        (messages.clone(), json!(""), json!(KNOWN), json!(KNOWN), price),
        (messages, json!(""), json!(""), Value::Null, None),
        // The path contains escapes, the books do not.
        (format!("/model/{escaped}/invoke"), Value::Null, json!(KNOWN), json!(PROFILE), None),
    ] {
        let home = tempfile::tempdir().unwrap();
        let answer = json!({"id": "msg_1", "model": answered, "stop_reason": "end_turn",
            "usage": {"input_tokens": 1000, "output_tokens": 0}});
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
        if !asked.is_null() {
            body["model"] = asked.clone();
        }
        gateway.post(&path, &[], &body.to_string());
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(record["model"], billed, "{asked} {answered}");
        assert_eq!(record["cost"]["total"].as_u64(), cost, "{asked} {answered} {record}");
        let named = asked.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let named = named.or_else(|| path.contains("arn").then(|| PROFILE.to_owned()));
        assert_eq!(record["model_asked"], json!(named), "{asked} {answered}");
    }
}

#[test]
fn no_credential_is_written_to_disk() {
    const KEY: &str = "sk-0123456789abcdef";
    let home = tempfile::tempdir().unwrap();
    let refusal = json!({"type": "error", "error": {"type": "authentication_error",
        "message": format!("invalid x-api-key: {KEY}")}})
    .to_string();
    let said = refusal.clone();
    let upstream = Upstream::start(move |_| (401, said.clone()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (_, body) = gateway.post("/v1/messages", &[("x-api-key", KEY)], &request(&[&log("long", 10)]));
    assert_eq!(body, refusal.as_bytes(), "the client sees what the provider said");
    gateway.stop();
    assert_eq!(records(home.path())[0]["error"], "invalid x-api-key: [credential]");
}

/// A stream of binary frames is booked like a text stream, at the price of the region in the path.
#[test]
fn bedrock_streams_are_booked() {
    const MODEL: &str = "us.anthropic.claude-haiku-4-5-20251001-v1:0";
    let events = |prefix: &str| {
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-haiku-4-5-20251001",
            "usage": {"input_tokens": 1000, "output_tokens": 1}}});
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 100}});
        let events = [start, delta, json!({"type": "message_stop"})];
        events.map(|event| format!("{prefix} {event}\n\n")).concat()
    };
    for (prefix, path, expected) in [
        ("chunk:", format!("/model/{MODEL}/invoke-with-response-stream"), 1_650_000_000_u64),
        ("data:", "/v1/messages".to_owned(), 1_500_000_000),
    ] {
        let home = tempfile::tempdir().unwrap();
        let answer = events(prefix);
        let upstream = Upstream::start(move |_| (200, answer.clone()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let headers = [("authorization", "Bearer key")];
        let body = request(&[&log("first", 10)]);
        let body =
            if prefix == "chunk:" { body.replace("\"model\":\"claude-sonnet-4-6\",", "") } else { body };
        assert_eq!(gateway.post(&path, &headers, &body).0, 200);
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!((&record["tokens"]["input"], &record["tokens"]["output"]), (&json!(1000), &json!(100)));
        assert_eq!((&record["outcome"], &record["stop"]), (&json!("complete"), &json!("end_turn")));
        assert_eq!(record["cost"]["total"], json!(expected), "{record}");
    }
}

#[test]
fn bodies_are_kept_only_when_asked_for() {
    let (long, short) = (log("first", 4000), log("first", 10));
    for (config, result, expected) in [
        ("", &long, &[][..]),
        ("ledger.record = 'full'\n", &long, &["in", "out"]),
        ("ledger.record = 'full'\n", &short, &["in"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let gateway = Gateway::start(home.path(), &format!("{config}{CONFIG}"), &upstream.url());
        let body = request(&[result]);
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "sk-secret")], &body).0, 200);
        gateway.stop();
        let record = &records(home.path())[0];
        let bodies = Bodies::below(&home.path().join("plimsoll"));
        let (conversation, id) = (record["conversation"].as_str().unwrap(), record["id"].as_str().unwrap());
        let read =
            |form| bodies.read(conversation, id, form).unwrap().map(|body| String::from_utf8(body).unwrap());
        let kept = [(Form::Came, "in", body), (Form::Sent, "out", upstream.received()[0].text())];
        for (form, name, body) in kept {
            assert_eq!(read(form), expected.contains(&name).then_some(body), "{config} {name}");
        }
        let folder = home.path().join("plimsoll/bodies");
        assert_eq!(folder.exists(), !expected.is_empty());
    }
}

#[test]
fn recorded_bodies_are_compared_as_a_whole() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("{CONFIG}[state]\ndir = '{}'\n[ledger]\nrecord = 'full'\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let (first, second) = (log("first", 4000), log("second", 10));
    for body in [request(&[&first]), request(&[&first, &second])] {
        gateway.post("/v1/messages", &[], &body);
    }
    gateway.stop();
    fs::write(home.path().join("read.toml"), config).unwrap();
    let listed = printed(home.path(), &["conversations", "--json", "-c", "read.toml"]);
    let id = listed["conversations"][0]["id"].as_str().unwrap();
    for number in ["1", "2"] {
        let diff = printed(home.path(), &["diff", &id[..30], number, "--json", "-c", "read.toml"]);
        assert_eq!((&diff["from"], &diff["notes"]), (&json!("bodies"), &json!([])));
        let change = &diff["changes"][0];
        assert_eq!(diff["changes"].as_array().unwrap().len(), 1, "{diff}");
        assert_eq!(
            (&change["message"], &change["part"], &change["decided_in"]),
            (&json!(2), &json!(0), &json!(1))
        );
        assert_eq!((&change["what"], &change["rules"]), (&json!("result of Grep"), &json!("truncate")));
        assert_eq!(change["before"], first);
        let sent = &upstream.received()[0].text();
        assert!(sent.contains(change["after"].as_str().unwrap().lines().last().unwrap()), "{sent}");
        let output = fs::read_to_string(change["output"].as_str().unwrap()).unwrap();
        assert_eq!(output, first);
    }
    let text = done(home.path(), &["diff", id, "2", "-c", "read.toml"]);
    assert!(text.contains("message 2, part 0: result of Grep, truncate, "), "{text}");
}
