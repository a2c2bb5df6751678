//! What requests would have cost without the gateway.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, records};

use super::{CONFIG, answer, log, prompt, record_of_kept, request, two_requests};

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

/// A prefix that is cached under a name is read in full, edited or not. Whether the history after it is read as well
/// shows before the first event.
#[test]
fn prefixes_cached_under_a_name_are_no_share_of_the_history() {
    const NAMED: u64 = 30_000;
    const CLEARING: &str = "[window]\nsize = 64_000\nreserve_output = 2_000\n[clear]\ngate = ['window']\n[summarize]\nenabled = false\n";
    let sizes = |contents: &[Value]| -> Vec<(String, u64)> {
        contents.iter().map(|content| (content.to_string(), content.to_string().len() as u64 / 4)).collect()
    };
    let common = |before: &[(String, u64)], now: &[(String, u64)]| -> u64 {
        let same = before.iter().zip(now).take_while(|(before, now)| before == now);
        same.map(|(_, (_, tokens))| tokens).sum()
    };
    for reads_history in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let before = Mutex::new(Vec::new());
        let upstream = Upstream::start(move |request| {
            let body: Value = serde_json::from_str(&request.text()).unwrap();
            let now = sizes(body["contents"].as_array().unwrap());
            let tokens = NAMED + now.iter().map(|(_, tokens)| tokens).sum::<u64>();
            let mut before = before.lock().unwrap();
            let read = NAMED + if reads_history { common(&before, &now) } else { 0 };
            *before = now;
            let usage = json!({"promptTokenCount": tokens, "cachedContentTokenCount": read,
                "candidatesTokenCount": 7, "totalTokenCount": tokens + 7});
            let answer =
                json!({"content": {"role": "model", "parts": [{"text": "so"}]}, "finishReason": "STOP"});
            let body =
                json!({"candidates": [answer], "usageMetadata": usage, "modelVersion": "gemini-2.5-pro"});
            (200, body.to_string())
        });
        let gateway = Gateway::start(home.path(), &format!("{CLEARING}{CONFIG}"), &upstream.url());
        let mut contents = vec![json!({"role": "user", "parts": [{"text": "Find the bug. ".repeat(200)}]})];
        let (mut direct, mut sent) = (Vec::new(), 0);
        for at in 0..24 {
            let (call, result) = (json!({"pattern": at}), json!({"output": log(&format!("log {at}"), 200)}));
            contents.extend([
                json!({"role": "model", "parts": [{"functionCall": {"name": "grep", "args": call}}]}),
                json!({"role": "user", "parts": [{"functionResponse": {"name": "grep", "response": result}}]}),
            ]);
            let whole = NAMED + sizes(&contents).iter().map(|(_, tokens)| tokens).sum::<u64>();
            direct.push((whole, NAMED + if reads_history { sent } else { 0 }));
            sent = whole - NAMED;
            let body = json!({"cachedContent": "cachedContents/a", "contents": contents}).to_string();
            let path = "/v1beta/models/gemini-2.5-pro:generateContent";
            assert_eq!(gateway.post(path, &[("x-session-id", "s")], &body).0, 200);
        }
        gateway.stop();
        let records = records(home.path());
        let events = records.iter().filter(|record| !record["edits"]["event"].is_null());
        assert!(events.count() > 1, "{records:?}");
        for (record, (whole, read)) in records.iter().zip(direct) {
            let untouched = &record["counterfactual"]["tokens"];
            let found = [prompt(untouched), untouched["cache_read"].as_u64().unwrap()];
            for (found, expected) in found.into_iter().zip([whole, read]) {
                assert!(found.abs_diff(expected) <= expected / 50, "{found} is not {expected}: {record}");
            }
        }
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

/// A provider that caches prompts as they come; `before` is the last one, by message.
fn caching_provider(before: Arc<Mutex<Vec<String>>>) -> Upstream {
    const MARK: &str = r#""cache_control":{"type":"ephemeral"},"#;
    Upstream::start(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let messages = body["messages"].as_array().unwrap().iter();
        let frame = [format!("{}{}", body["tools"], body["system"])];
        let messages = messages.map(|message| message.to_string().replace(MARK, ""));
        let now: Vec<String> = frame.into_iter().chain(messages).collect();
        let tokens = |messages: &[String]| messages.iter().map(String::len).sum::<usize>() / 4;
        let mut before = before.lock().unwrap();
        let common = before.iter().zip(&now).take_while(|(before, now)| before == now).count();
        let (read, all) = (tokens(&now[..common]), tokens(&now));
        *before = now;
        let model = &body["model"];
        let answer = if request.line.contains("/v1/messages") {
            let usage = json!({"input_tokens": 0, "cache_read_input_tokens": read,
                "cache_creation_input_tokens": all - read, "output_tokens": 7});
            json!({"id": "msg_1", "type": "message", "model": model, "stop_reason": "end_turn", "usage": usage})
        } else {
            let usage = json!({"prompt_tokens": all, "completion_tokens": 7, "total_tokens": all + 7,
                "prompt_tokens_details": {"cached_tokens": read}});
            json!({"id": "c1", "object": "chat.completion", "model": model, "choices": [], "usage": usage})
        };
        (200, answer.to_string())
    })
}

/// A conversation with the given tool results, for [`caching_provider`].
fn conversation(path: &str, results: &[String]) -> String {
    if path == "/v1/messages" {
        let results: Vec<&str> = results.iter().map(String::as_str).collect();
        let mut body: Value = serde_json::from_str(&request(&results)).unwrap();
        body["tools"] = json!([{"name": "Grep", "input_schema": {"type": "object"}}]);
        return body.to_string();
    }
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for (at, result) in results.iter().enumerate() {
        let (id, called) = (format!("call_{at}"), json!({"name": "grep", "arguments": "{}"}));
        let call = json!({"id": id, "type": "function", "function": called});
        messages.push(json!({"role": "assistant", "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    let tools = [json!({"type": "function", "function": {"name": "grep"}})];
    json!({"model": "gpt-5", "tools": tools, "messages": messages}).to_string()
}

/// The record of the last request of a conversation with such results. `pause`: what happens before it.
fn last_record(
    path: &str,
    config: &str,
    lines: &[usize],
    pause: impl FnOnce(&Path, &Mutex<Vec<String>>, &mut dyn FnMut()),
) -> Value {
    let (home, cached) = (tempfile::tempdir().unwrap(), Arc::default());
    let upstream = caching_provider(Arc::clone(&cached));
    let config = format!("{config}{CONFIG}");
    let start = || Gateway::start(home.path(), &config, &upstream.url());
    let results: Vec<String> =
        lines.iter().enumerate().map(|(at, lines)| log(&format!("log {at}"), *lines)).collect();
    let mut gateway = Some(start());
    for count in 1..lines.len() {
        let body = conversation(path, &results[..count]);
        assert_eq!(gateway.as_ref().unwrap().post(path, &[], &body).0, 200);
    }
    pause(home.path(), &cached, &mut || {
        if let Some(gateway) = gateway.take() {
            gateway.stop();
        }
    });
    let gateway = gateway.unwrap_or_else(start);
    assert_eq!(gateway.post(path, &[], &conversation(path, &results)).0, 200);
    gateway.stop();
    records(home.path()).pop().unwrap()
}

/// What was sent before a restart would have been read from the cache, with or without an event.
#[test]
fn conversations_have_the_same_counterfactual_after_a_restart() {
    const EVENT: &str = "[window]\nsize = 22_000\nreserve_output = 1000\n[clear]\ngate = ['window']\n\
                         protect_tokens = { view = 0, other = 0 }\n[summarize]\nenabled = false\n";
    for (path, config, lines, is_edited) in [
        ("/v1/messages", "", &[4000, 300, 4000][..], true),
        ("/v1/messages", "", &[4000, 300, 200], true),
        ("/v1/messages", "", &[300, 200, 100], false),
        ("/v1/messages", EVENT, &[300; 7], true),
        ("/v1/chat/completions", "", &[4000, 300, 4000], true),
        ("/v1/chat/completions", "", &[4000, 300, 200], true),
        ("/v1/chat/completions", EVENT, &[300; 7], true),
    ] {
        let steady = last_record(path, config, lines, |_, _, _| {});
        let resumed = last_record(path, config, lines, |_, _, stop| stop());
        for record in [&steady, &resumed] {
            assert_eq!(record["counterfactual"]["estimated"], is_edited, "{record}");
            assert_eq!(record["edits"]["event"].is_null(), config.is_empty(), "{record}");
            assert!(record["net_saved"].is_i64(), "{record}");
        }
        let counterfactuals = [&steady, &resumed].map(|record| &record["counterfactual"]);
        let check = |name: &str, whole: u64| {
            let [expected, found] = counterfactuals.map(|one| one.pointer(name).unwrap().as_u64().unwrap());
            assert!(expected.abs_diff(found) <= whole / 50, "{name}: {found} is not {expected}: {resumed}");
        };
        check("/cost", counterfactuals[0]["cost"].as_u64().unwrap());
        for kind in ["/tokens/input", "/tokens/cache_read", "/tokens/cache_write_5m"] {
            check(kind, prompt(&counterfactuals[0]["tokens"]));
        }
    }
}

/// What is no longer cached after a pause would have had to be sent in full.
#[test]
fn a_conversation_resumed_after_the_cache_expired_saves_what_would_have_been_written() {
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let record = last_record(path, "", &[4000, 300, 200], |home, cached, stop| {
            stop();
            cached.lock().unwrap().clear();
            let database = rusqlite::Connection::open(home.join("plimsoll/plimsoll.db")).unwrap();
            let aged = database.execute("UPDATE ledger SET at_ms = at_ms - 7200000", []).unwrap();
            assert_eq!(aged, 2);
        });
        let untouched = &record["counterfactual"]["tokens"];
        assert_eq!((&record["tokens"]["cache_read"], &untouched["cache_read"]), (&json!(0), &json!(0)));
        assert!(prompt(untouched) > prompt(&record["tokens"]) * 3 / 2, "{record}");
        let cost = record["cost"]["total"].as_i64().unwrap();
        assert!(record["net_saved"].as_i64().unwrap() > cost / 2, "{record}");
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
