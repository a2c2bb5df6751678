//! Replays what a gateway recorded: the same settings give the same bytes, events and figures.

use std::fs;

use serde_json::{Value, json};

use crate::cli::{json as printed, run};
use crate::support::{Answer, Gateway, Received, Upstream};

/// A conversation of a file view, some commands and two turns, with its first `count` results, and a text that the next
/// request omits.
fn request(count: usize, last: Option<&str>) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for at in 0..count {
        let id = format!("toolu_{at}");
        let lines: Vec<String> = (0..200 + at * 50)
            .map(|line| format!("line {line} of step {at}: {}", line * 7919 % 1009))
            .collect();
        let text = if at == 1 { "fn main() {}\n".repeat(900) } else { lines.join("\n") };
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": format!("step {at}")}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": text}]}));
        if at % 4 == 3 {
            messages.push(json!({"role": "assistant", "content": "done"}));
            messages.push(json!({"role": "user", "content": "and now the rest"}));
        }
    }
    messages.extend(last.map(|last| json!({"role": "user", "content": format!("{last} {count}")})));
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
}

/// A provider that counts one token per five bytes.
fn answer(request: &Received) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": request.body.len() / 5, "output_tokens": 7}});
    (200, body.to_string())
}

#[test]
fn a_recording_is_replayed_as_it_was_sent() {
    const EAGER: &str =
        "[clear]\npolicy = 'oldest'\ngate = ['eager']\nprotect_tokens = { view = 500, other = 500 }\n";
    const WHEN_IT_PAYS: &str = "[clear]\nsettle = 2\nmost_loss = 0.5\npatience = 0.3\n";
    for (clear, last) in
        [(EAGER, None), (WHEN_IT_PAYS, None), ("", None), (EAGER, Some("state")), ("", Some("state"))]
    {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!(
            "[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n[ledger]\nrecord = 'full'\n{clear}",
            home.path().display()
        );
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for count in 0..12 {
            assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &request(count, last)).0, 200);
        }
        gateway.stop();
        fs::write(home.path().join("read.toml"), config).unwrap();
        let log = fs::read_dir(home.path().join("conversations")).unwrap().next().unwrap().unwrap().path();
        let records: Vec<Value> = fs::read_to_string(&log)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let events = records.iter().filter(|record| !record["edits"]["event"].is_null()).count() as u64;
        let tokens: u64 = records.iter().map(|record| record["tokens"]["input"].as_u64().unwrap()).sum();
        assert!(clear.is_empty() || events > 0, "{clear}");

        let played =
            printed(home.path(), &["replay", "--json", "-c", "read.toml", &log.display().to_string()]);
        let total = &played["total"];
        assert_eq!((&total["requests"], &total["as_recorded"]), (&json!(12), &json!(12)), "{clear}");
        let found: u64 = total["events"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(
            (found, &total["invalid"], &total["untouched"]),
            (events, &json!(0), &json!(0)),
            "{clear}"
        );
        let billed = &total["tokens"]["gateway"];
        let prompt: u64 =
            ["input", "cache_read", "cache_write_5m"].iter().map(|kind| billed[kind].as_u64().unwrap()).sum();
        assert!(prompt.abs_diff(tokens) < 12 * 40, "{prompt} is not {tokens}");
        assert_eq!(billed["output"], json!(12 * 7));
        assert!(total["gateway_usd"].as_f64() <= total["direct_usd"].as_f64());

        // A request whose body was not recorded does not prevent others from being replayed.
        let other = home.path().join("other.jsonl");
        fs::write(
            &other,
            r#"{"time":"2026-11-21T10:00:00.000Z","id":"x","conversation":"other","protocol":"anthropic"}"#,
        )
        .unwrap();
        let (log, other) = (log.display().to_string(), other.display().to_string());
        let both = run(home.path(), &["replay", "--json", "-c", "read.toml", &other, &log]);
        assert_eq!(
            (both.code, both.out.contains("\"as_recorded\": 12")),
            (Some(0), true),
            "{} {}",
            both.out,
            both.err
        );
        assert!(
            both.err.starts_with(&format!("left out: {other}: no bodies of its requests")),
            "{}",
            both.err
        );
        assert_eq!(run(home.path(), &["replay", "-c", "read.toml", &other]).code, Some(1));

        // Nor does a file that cannot be read, but the command reports that it is incomplete.
        let none = home.path().join("none.jsonl").display().to_string();
        let both = run(home.path(), &["replay", "--json", "-c", "read.toml", &none, &log]);
        assert_eq!((both.code, both.out.contains("\"as_recorded\": 12")), (Some(1), true), "{}", both.err);
        let (first, last) = both.err.split_once('\n').unwrap();
        assert!(first.starts_with(&format!("left out: {none}: ")), "{}", both.err);
        assert_eq!(last, "1 file could not be replayed\n");
        let only = run(home.path(), &["replay", "-c", "read.toml", &none]);
        assert_eq!((only.code, only.err.starts_with(&format!("{none}: "))), (Some(1), true), "{}", only.err);

        // An incomplete line is skipped and reported, whatever is printed, and the others are replayed.
        let mut text = fs::read_to_string(&log).unwrap();
        text.insert_str(text.find('\n').unwrap() + 1, "{\"time\":\"2026-\n");
        fs::write(&log, text).unwrap();
        let played = run(home.path(), &["replay", "--json", "-c", "read.toml", &log]);
        assert_eq!(played.err, format!("left out: {log}: line 2, which is damaged\n"));
        let played: Value = serde_json::from_str(&played.out).unwrap();
        assert_eq!(
            (&played["files"][0]["damaged"], &played["total"]["as_recorded"]),
            (&json!([2]), &json!(12))
        );
        assert!(run(home.path(), &["replay", "-c", "read.toml", &log]).err.contains("line 2"));

        // A request without a body is counted among those that are left out.
        let mut without = records[11].clone();
        without["id"] = json!("ffffffff-ffff-7fff-bfff-ffffffffffff");
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, format!("{text}{without}\n")).unwrap();
        let played = run(home.path(), &["replay", "--json", "-c", "read.toml", &log]);
        let played: Value = serde_json::from_str(&played.out).unwrap();
        assert_eq!((&played["total"]["requests"], &played["total"]["without_body"]), (&json!(12), &json!(1)));
        let said = run(home.path(), &["replay", "-c", "read.toml", &log]).out;
        assert!(
            said.contains("left out: 1 request whose body was not recorded or is no longer kept"),
            "{said}"
        );
    }
}

/// A conversation of an agent that calls a tool, with its first `count` results.
fn chat(count: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for at in 0..count {
        let id = format!("call_{at}");
        let lines: Vec<String> =
            (0..700).map(|line| format!("line {line} of step {at}: {}", line * 7919 % 1009)).collect();
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "run", "arguments": "{}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": lines.join("\n")}));
    }
    json!({"model": "gpt-4", "messages": messages}).to_string()
}

/// Requests that would have exceeded the model's window without the gateway are left out by the ledger and by a replay
/// alike, so both report the same savings.
#[test]
fn overflowing_requests_are_in_no_sum() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let usage = json!({"prompt_tokens": request.body.len() / 5, "completion_tokens": 7});
        let choice =
            json!({"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"});
        (200, json!({"id": "c", "model": "gpt-4", "choices": [choice], "usage": usage}).to_string())
    });
    let config = format!(
        "[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n[ledger]\nrecord = 'full'\n[truncate]\nmax_bytes = '2KiB'\n\
         [clear]\nenabled = false\n",
        home.path().display()
    );
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    for count in 0..6 {
        assert_eq!(gateway.post("/v1/chat/completions", &[("x-session-id", "s")], &chat(count)).0, 200);
    }
    gateway.stop();
    fs::write(home.path().join("read.toml"), config).unwrap();
    let log = home.path().join("conversations/s.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let left_out = records.iter().filter(|record| record["counterfactual"].is_null()).count();
    assert!((2..5).contains(&left_out), "{left_out}");
    let nets = records.iter().filter_map(|record| record["net_saved"].as_i64());
    let saved = nets.sum::<i64>() as f64 / 1e12;

    let log = log.display().to_string();
    let played = printed(home.path(), &["replay", "--json", "-c", "read.toml", &log]);
    let total = &played["total"];
    assert_eq!((&total["requests"], &total["beyond_window"]), (&json!(6), &json!(left_out)));
    assert_eq!(total["tokens"]["gateway"]["output"], json!(7 * (6 - left_out)));
    let usd = |side: &str| total[side].as_f64().unwrap();
    let spared = usd("direct_usd") - usd("gateway_usd");
    assert!(saved > 0.0 && (spared / saved - 1.0).abs() < 0.01, "{spared} and {saved}");
    let said = run(home.path(), &["replay", "-c", "read.toml", &log]).out;
    assert!(said.contains("longer than the window without the gateway"), "{said}");
}

/// The size of a history held by the provider is not visible in any body: neither the ledger nor a replay assumes more
/// tokens than were billed and cut.
#[test]
fn a_held_history_does_not_count_as_cut() {
    const HELD: usize = 60_000;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let held = if request.text().contains("previous_response_id") { HELD } else { 0 };
        let usage = json!({"input_tokens": held + request.body.len() / 4,
            "input_tokens_details": {"cached_tokens": held}, "output_tokens": 7});
        let answer = json!({"id": "resp_1", "model": "gpt-5", "status": "completed", "usage": usage});
        (200, answer.to_string())
    });
    let config = format!(
        "[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n[ledger]\nrecord = 'full'\n[truncate]\nmax_bytes = '2KiB'\n",
        home.path().display()
    );
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let first = json!({"model": "gpt-5", "input": "go"});
    let lines: Vec<String> = (0..2000).map(|line| format!("line {line}: {}", line * 7919 % 1009)).collect();
    let output = json!([{"type": "function_call_output", "call_id": "c", "output": lines.join("\n")}]);
    let next = json!({"model": "gpt-5", "previous_response_id": "resp_1", "input": output});
    let (mut came, mut sent) = (0, 0);
    for body in [first, next.clone(), next] {
        assert_eq!(gateway.post("/v1/responses", &[("x-session-id", "s")], &body.to_string()).0, 200);
        let left = upstream.received().pop().unwrap().body.len();
        let held = if body.get("previous_response_id").is_some() { HELD } else { 0 };
        (came, sent) = (came + held + body.to_string().len() / 4, sent + held + left / 4);
    }
    gateway.stop();
    fs::write(home.path().join("read.toml"), config).unwrap();
    let log = home.path().join("conversations/s.jsonl").display().to_string();
    let total = printed(home.path(), &["replay", "--json", "-c", "read.toml", &log])["total"].clone();
    assert_eq!((&total["requests"], &total["beyond_window"]), (&json!(3), &json!(0)));
    for (side, expected) in [("direct", came), ("gateway", sent)] {
        let tokens = total["tokens"][side].as_object().unwrap();
        let prompts: u64 = tokens
            .iter()
            .filter(|(kind, _)| *kind != "output")
            .map(|(_, count)| count.as_u64().unwrap())
            .sum();
        assert!(
            prompts.abs_diff(expected as u64) < expected as u64 / 20,
            "{side}: {prompts} is not {expected}"
        );
    }
}
