//! The whole binary between a raw client and a raw upstream: what is sent, remembered and booked.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream, booked, records, send};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";

/// A conversation with the tool results so far, growing like an agent's.
fn request(model: &str, results: &[&str]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for (at, result) in results.iter().enumerate() {
        let id = format!("toolu_{at}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Grep", "input": {"pattern": format!("p{at}")}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": result}]}));
    }
    json!({"model": model, "max_tokens": 1000, "messages": messages}).to_string()
}

fn log(name: &str, lines: usize) -> String {
    let lines: Vec<String> = (0..lines).map(|line| format!("{name} line {line:06} of a long log")).collect();
    lines.join("\n")
}

fn answer(_: &Received) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10,
                  "output_tokens": 7}});
    (200, body.to_string())
}

/// A body without cache marks, and without the list form that a marked text needs.
fn unmarked(received: &Received) -> String {
    let text = received.text().replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    text.replace(r#"[{"type":"text","text":"Find the bug"}]"#, r#""Find the bug""#)
}

/// The messages of a body as bytes, without cache marks and without the closing bracket of the list.
fn messages(received: &Received) -> String {
    let text = unmarked(received);
    let start = text.find("\"messages\":[").expect("a list of messages");
    let end = text.rfind(']').expect("its end");
    text[start..end].to_owned()
}

fn assert_appended(upstream: &Upstream) {
    let sent: Vec<String> = upstream.received().iter().map(messages).collect();
    assert!(sent.len() > 1);
    for pair in sent.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "the second request does not begin with the first");
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).map(|dir| dir.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default();
    files.sort();
    files
}

/// Two turns, with an action between them.
fn two_turns(between: impl FnOnce(&Path, Gateway, &Upstream) -> Gateway) {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let (first, second) = (log("first", 4000), log("second", 4000));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post("/v1/messages", &[], &request("claude-sonnet-4-6", &[&first])).0, 200);
    let gateway = between(home.path(), gateway, &upstream);
    assert_eq!(gateway.post("/v1/messages", &[], &request("claude-sonnet-4-6", &[&first, &second])).0, 200);
    assert_appended(&upstream);
    let last = upstream.received().pop().unwrap().text();
    assert_eq!(last.matches("bytes removed here").count(), 2, "both results are shortened");
}

#[test]
fn sent_prefixes_survive_a_kill() {
    two_turns(|home, gateway, upstream| {
        gateway.kill();
        Gateway::start(home, CONFIG, &upstream.url())
    });
}

#[test]
fn sent_prefixes_survive_a_changed_configuration() {
    two_turns(|home, gateway, upstream| {
        gateway.stop();
        let config = format!(
            "{CONFIG}[truncate]\nmax_bytes = '4KiB'\nkeep = 'tail'\nmarker = '[cut {{removed}}]bytes removed here'\n"
        );
        Gateway::start(home, &config, &upstream.url())
    });
}

#[test]
fn sent_prefixes_survive_a_change_to_observe_mode() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (first, second) = (log("first", 4000), log("second", 4000));
    gateway.post("/v1/messages", &[], &request("m", &[&first]));
    gateway.stop();
    let gateway = Gateway::start(home.path(), &format!("mode = 'observe'\n{CONFIG}"), &upstream.url());
    gateway.post("/v1/messages", &[], &request("m", &[&first, &second]));
    assert_appended(&upstream);
    let last = upstream.received().pop().unwrap().text();
    assert_eq!(last.matches("bytes removed here").count(), 1, "nothing new is shortened");
}

#[test]
fn two_gateways_on_one_store_send_the_same_prefixes() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateways: Vec<Gateway> =
        (0..2).map(|_| Gateway::start(home.path(), CONFIG, &upstream.url())).collect();
    let texts: Vec<String> = (0..6).map(|at| log(&format!("step {at}"), 3000)).collect();
    for count in 1..=texts.len() {
        let results: Vec<&str> = texts[..count].iter().map(String::as_str).collect();
        let (status, _) =
            gateways[count % 2].post("/v1/messages", &[], &request("claude-sonnet-4-6", &results));
        assert_eq!(status, 200);
    }
    assert_appended(&upstream);
}

/// Results that one of two configurations leaves unchanged, alternating.
fn left_whole(mut next: impl FnMut(Option<Gateway>, &Path, &Upstream, usize) -> Gateway) {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let texts: Vec<String> = (0..6).map(|at| log(&format!("step {at}"), 200)).collect();
    let mut gateway = None;
    for count in 1..=texts.len() {
        let results: Vec<&str> = texts[..count].iter().map(String::as_str).collect();
        let body = request("claude-sonnet-4-6", &results);
        let turned = next(gateway.take(), home.path(), &upstream, count);
        assert_eq!(turned.post("/v1/messages", &[], &body).0, 200);
        gateway = Some(turned);
    }
    assert_appended(&upstream);
    let last = upstream.received().pop().unwrap().text();
    assert_eq!(last.matches("bytes removed here").count(), 3, "every other result is shortened");
}

fn truncating(count: usize) -> String {
    let max = if count.is_multiple_of(2) { "2KiB" } else { "64KiB" };
    format!("{CONFIG}[truncate]\nmax_bytes = '{max}'\n")
}

#[test]
fn a_busy_store_prevents_only_new_decisions() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("{CONFIG}[limits]\nrewrite_timeout = '1s'\n");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let texts: Vec<String> = (0..3).map(|at| log(&format!("step {at}"), 3000)).collect();
    let post = |count: usize| {
        let results: Vec<&str> = texts[..count].iter().map(String::as_str).collect();
        assert_eq!(gateway.post("/v1/messages", &[], &request("claude-sonnet-4-6", &results)).0, 200);
        upstream.received().pop().unwrap().text().matches("bytes removed here").count()
    };
    assert_eq!(post(1), 1);
    let other = rusqlite::Connection::open(home.path().join("plimsoll/plimsoll.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(post(2), 1, "what was decided before looks as it did");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(post(3), 2, "what was left whole stays so");
    assert_appended(&upstream);
}

/// The time in the instructions differs in each request, and conversations that begin alike are not continuations of
/// each other.
#[test]
fn conversations_are_identified_without_their_instructions() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| {
        let body = json!({"id": "c", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}});
        (200, body.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let post = |time: u32, goal: &str, results: u32| {
        let mut messages = vec![
            json!({"role": "system", "content": format!("Be brief. It is {time}:00.")}),
            json!({"role": "user", "content": goal}),
        ];
        for at in 0..results {
            let call = json!({"id": format!("c{at}"), "type": "function",
                "function": {"name": "grep", "arguments": "{}"}});
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            let result = log(&format!("step {at}"), 3_000);
            messages.push(json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": result}));
        }
        let body = json!({"model": "gpt-4o", "messages": messages}).to_string();
        assert_eq!(gateway.post("/v1/chat/completions", &[], &body).0, 200);
    };
    post(10, "Find the bug", 0);
    post(10, "Write a poem", 0);
    (1..4).for_each(|results| post(10 + results, "Find the bug", results));
    gateway.stop();
    let logs = fs::read_dir(home.path().join("plimsoll/conversations")).unwrap();
    let lines = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap().lines().count());
    let mut lines: Vec<usize> = lines.collect();
    lines.sort_unstable();
    assert_eq!(lines, [1, 4], "two conversations");
    let history = |received: &Received| {
        let text = received.text();
        text[text.find("Find the bug").unwrap()..text.rfind(']').unwrap()].to_owned()
    };
    let sent: Vec<String> = upstream.received()[2..].iter().map(history).collect();
    assert!(sent.iter().all(|sent| sent.contains("bytes removed here")));
    for pair in sent.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "what was sent before is sent again");
    }
}

/// A gateway that is out of time sends the request whole. It stays whole for all gateways, and is booked.
#[test]
fn a_request_past_rewrite_timeout_is_booked_and_stays_unedited() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let texts = [log("a", 10), log("b", 200_000), log("c", 3_000)];
    for (count, timeout) in [(1, "60s"), (2, "1ms"), (3, "60s")] {
        let config = format!(
            "{CONFIG}[limits]\nrewrite_timeout = '{timeout}'\n[clear]\nenabled = false\n[ladder]\nenabled = false\n\
             [summarize]\nenabled = false\n"
        );
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        let results: Vec<&str> = texts[..count].iter().map(String::as_str).collect();
        let body = request("claude-sonnet-4-6", &results);
        let session = [("x-plimsoll-session-id", "one")];
        assert_eq!(gateway.post("/v1/messages", &session, &body).0, 200);
        gateway.stop();
    }
    assert_appended(&upstream);
    let log = fs::read_to_string(home.path().join("plimsoll/conversations/one.jsonl")).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cuts = |received: &Received| received.text().matches("bytes removed here").count();
    let cuts: Vec<usize> = upstream.received().iter().map(cuts).collect();
    assert_eq!(cuts, [0, 0, 1], "what left whole stays so");
    assert_eq!(records.len(), 3);
    assert!(records[1]["cost"]["total"].is_u64(), "{}", records[1]);
    assert_eq!(records[1]["edits"]["why"], "it took longer than `limits.rewrite_timeout`");
}

#[test]
fn unshortened_results_stay_so_after_a_kill_and_a_changed_configuration() {
    left_whole(|gateway, home, upstream, count| {
        if let Some(gateway) = gateway {
            gateway.kill();
        }
        Gateway::start(home, &truncating(count), &upstream.url())
    });
}

#[test]
fn unshortened_results_are_known_to_another_gateway_at_once() {
    let mut other: Option<Gateway> = None;
    left_whole(|gateway, home, upstream, count| {
        let idle = std::mem::replace(&mut other, gateway);
        idle.unwrap_or_else(|| Gateway::start(home, &truncating(count), &upstream.url()))
    });
}

#[test]
fn regional_endpoints_are_booked_at_their_surcharge() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for location in ["global", "us-east5"] {
        let path = format!(
            "/v1/projects/p/locations/{location}/publishers/anthropic/models/claude-sonnet-4-6@default:rawPredict"
        );
        assert_eq!(gateway.post(&path, &[], &request("claude-sonnet-4-6@default", &[])).0, 200);
    }
    gateway.stop();
    // (100 × 3 + 1000 × 0.3 + 10 × 3.75 + 7 × 15) dollars per million, plus 10 %.
    let mut costs: Vec<i64> =
        records(home.path()).iter().filter_map(|record| record["cost"]["total"].as_i64()).collect();
    costs.sort_unstable();
    assert_eq!(costs, [742_500_000, 816_750_000]);
}

#[test]
fn the_full_text_is_saved_before_the_request_leaves() {
    let home = tempfile::tempdir().unwrap();
    let text = log("whole", 5000);
    let (expected, outputs) = (text.clone(), home.path().join("plimsoll/outputs"));
    let upstream = Upstream::start(move |received| {
        let saved: Vec<String> =
            files(&outputs).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(saved, [expected.as_str()]);
        let path = files(&outputs)[0].display().to_string();
        assert!(received.text().contains(&format!("full output: {path}")), "the mark names the file");
        answer(received)
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post("/v1/messages", &[], &request("m", &[&text])).0, 200);
}

#[test]
fn observe_mode_changes_nothing_and_books_what_it_would_have_done() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), &format!("mode = 'observe'\n{CONFIG}"), &upstream.url());
    let body = request("claude-sonnet-4-6", &[&log("long", 4000)]);
    assert_eq!(gateway.post("/v1/messages", &[], &body).0, 200);
    gateway.stop();
    assert_eq!(upstream.received()[0].text(), body);
    let record = &records(home.path())[0];
    assert_eq!(
        (&record["edits"]["state"], &record["edits"]["parts"]["truncate"]),
        (&json!("observed"), &json!(1))
    );
    assert_eq!(record["bytes"]["saved"], json!(0));
    assert!(record["bytes"]["would_have_saved"].as_u64() > Some(50_000));
    assert!(files(&home.path().join("plimsoll/outputs")).is_empty());
}

#[test]
fn records_have_the_figures_of_the_provider() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let headers =
        [("x-claude-code-session-id", "run-7"), ("user-agent", "agent/1.2 (x)"), ("x-api-key", "sk-secret")];
    gateway.post("/v1/messages", &headers, &request("claude-sonnet-4-6", &[]));
    gateway.post("/v1/messages", &headers, &request("claude-sonnet-4-6", &["short"]));
    gateway.stop();
    let log = home.path().join("plimsoll/conversations/run-7.jsonl");
    let text = fs::read_to_string(log).unwrap();
    assert!(!text.contains("sk-secret"));
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let relations: Vec<&Value> = records.iter().map(|record| &record["relation"]).collect();
    assert_eq!(relations, ["new", "continue"]);
    let record = &records[1];
    assert_eq!(
        (&record["client"], &record["status"], &record["outcome"]),
        (&json!("agent/1.2"), &json!(200), &json!("complete"))
    );
    let tokens =
        (&record["tokens"]["input"], &record["tokens"]["cache_read"], &record["tokens"]["cache_write_5m"]);
    assert_eq!(tokens, (&json!(100), &json!(1000), &json!(10)));
    // 100 at $3, 1000 at $0.30, 10 at $3.75 and 7 at $15 per million.
    assert_eq!(record["cost"]["total"], json!(300_000_000 + 300_000_000 + 37_500_000 + 105_000_000));
    assert_eq!(record["cost"]["usd"], json!("0.0007425"));
}

#[test]
fn the_cost_of_an_unknown_model_is_null() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| {
        (
            200,
            json!({"id": "m", "model": "nobody-knows", "stop_reason": "end_turn", "content": [],
            "usage": {"input_tokens": 5, "output_tokens": 1}})
            .to_string(),
        )
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    gateway.post("/v1/messages", &[], &request("nobody-knows", &[]));
    gateway.stop();
    let record = &records(home.path())[0];
    assert_eq!((&record["cost"], &record["tokens"]["input"]), (&Value::Null, &json!(5)));
}

#[test]
fn a_refused_edit_is_resent_unedited_and_not_repeated() {
    for (status, error) in [
        (400, json!({"type": "invalid_request_error", "message": "no edits here"})),
        (
            500,
            json!({"code": 500, "type": "server_error", "message": "\n---\nError: Jinja Exception: Conversation roles must alternate user/assistant"}),
        ),
        (200, json!({"message": "Error rendering prompt with jinja template: \"No user query found\""})),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received| {
            if received.text().contains("plimsoll:") {
                return (status, json!({"type": "error", "error": error}).to_string());
            }
            answer(received)
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let (first, second) = (log("first", 4000), log("second", 4000));
        let one = request("m", &[&first]);
        let two = request("m", &[&first, &second]);
        assert_eq!(gateway.post("/v1/messages", &[], &one).0, 200);
        assert_eq!(gateway.post("/v1/messages", &[], &two).0, 200);
        gateway.stop();
        let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
        assert_eq!(sent.len(), 3, "the edited one, its original, and the next request untouched");
        assert!(sent[0].contains("plimsoll:") && sent[1] == one && sent[2] == two);
        let records = records(home.path());
        assert_eq!(records[0]["edits"]["original_resent"], json!(true));
        assert_eq!(records[1]["edits"]["state"], json!("set_aside"));
    }
}

/// If one edit was accepted and the next one refused, a client that goes back before the second one gets the first one,
/// also after a restart.
#[test]
fn a_rewind_before_a_refused_edit_is_sent_as_it_was_accepted() {
    let home = tempfile::tempdir().unwrap();
    let edits = |text: &str| text.matches("plimsoll:").count();
    let upstream = Upstream::start(move |received| {
        if edits(&received.text()) > 1 {
            let error = json!({"type": "invalid_request_error", "message": "no more edits"});
            return (400, json!({"type": "error", "error": error}).to_string());
        }
        answer(received)
    });
    let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (first, second) = (log("first", 4000), log("second", 4000));
    let bodies = [
        request("m", &[&first]),
        request("m", &[&first, &second]),
        request("m", &[&first, &second, "more"]),
        request("m", &[&first, "other"]),
        request("m", &[&first, "other", "more"]),
        request("m", &[&first]),
    ];
    for body in &bodies {
        assert_eq!(gateway.post("/v1/messages", &[], body).0, 200);
        gateway.stop();
        gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    }
    gateway.stop();
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    let is_whole = |at: usize| sent[at] == bodies[at - 1];
    assert!(is_whole(2) && is_whole(3), "the original, and what goes on from it");
    assert_eq!(sent.iter().map(|text| edits(text)).collect::<Vec<_>>(), [1, 2, 0, 0, 1, 1, 1]);
    let states: Vec<Value> = records(home.path()).iter().map(|one| one["edits"]["state"].clone()).collect();
    assert_eq!(states, ["edited", "edited", "set_aside", "edited", "edited", "edited"]);
}

/// If the original is refused too, the client gets that refusal. With bound reasoning it gets the first one, because
/// such models refuse an original that differs from what was sent before, unless the prompt is too long: the client
/// must be told that.
#[test]
fn if_the_original_is_refused_too_the_client_gets_its_refusal() {
    const TOO_LONG: &str = "prompt is too long: 210000 tokens > 200000 maximum";
    const LIMITS: &str = "You have reached your specified API usage limits";
    const SIGNATURE: &str = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let (first, second) = (log("first", 4000), log("second", 4000));
    for (model, before, of_the_original, expected) in [
        ("claude-fable-5-2", Some(&first), SIGNATURE, LIMITS),
        ("claude-fable-5-2", Some(&first), TOO_LONG, TOO_LONG),
        ("claude-fable-5-2", None, SIGNATURE, SIGNATURE),
        ("claude-sonnet-4-6", Some(&first), SIGNATURE, SIGNATURE),
        ("claude-sonnet-4-6", Some(&first), TOO_LONG, TOO_LONG),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received| {
            if !received.text().contains("second line") {
                return answer(received);
            }
            let message = if received.text().contains("plimsoll:") { LIMITS } else { of_the_original };
            let error = json!({"type": "invalid_request_error", "message": message});
            (400, json!({"type": "error", "error": error}).to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut results: Vec<&str> = before.into_iter().map(String::as_str).collect();
        if before.is_some() {
            assert_eq!(gateway.post("/v1/messages", &[], &request(model, &results)).0, 200);
        }
        results.push(&second);
        let (status, body) = gateway.post("/v1/messages", &[], &request(model, &results));
        let body = String::from_utf8(body).unwrap();
        assert!(status == 400 && body.contains(expected), "{status} {body}");
        gateway.stop();
        assert_eq!(upstream.received().len(), results.len() + 1);
        let records = records(home.path());
        let record = records.last().unwrap();
        assert_eq!((records.len(), &record["status"]), (results.len(), &json!(400)));
        assert!(record["error"].as_str().unwrap().contains(expected), "{}", record["error"]);
        assert_eq!(record["edits"]["original_resent"], json!(true));
    }
}

/// A server or model may fail for its own reasons: the edit is not blamed, and the client gets the error.
#[test]
fn an_upstream_fault_is_not_blamed_on_an_edit() {
    for (said, fault) in [
        (500, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#),
        (
            400,
            r#"{"error":{"message":"Failed to call a function. See 'failed_generation' for more details.","type":"invalid_request_error","code":"tool_use_failed"}}"#,
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |_| (said, fault.to_owned()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let (status, body) = gateway.post("/v1/messages", &[], &request("m", &[&log("long", 4000)]));
        assert_eq!((status, String::from_utf8(body).unwrap().as_str()), (said, fault));
        let sent = upstream.received();
        assert!(sent.len() == 1 && sent[0].text().contains("plimsoll:"), "{}", sent.len());
    }
}

/// Some servers fail on anything unknown without saying so: the client's third attempt goes through.
#[test]
fn an_edit_refused_without_a_reason_is_dropped_at_the_third_attempt() {
    for (status, takes_it) in
        [(500, false), (403, false), (404, false), (401, false), (503, false), (529, false), (500, true)]
    {
        let home = tempfile::tempdir().unwrap();
        let asked = AtomicUsize::new(0);
        let upstream = Upstream::start(move |received| {
            let fails = received.text().contains("plimsoll:")
                && (!takes_it || asked.fetch_add(1, Ordering::Relaxed) > 0);
            if fails { (status, "Internal error".to_owned()) } else { answer(received) }
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let (first, second) = (log("first", 4000), log("second", 4000));
        let (one, two) = (request("m", &[&first]), request("m", &[&first, &second]));
        let other = one.replace("bug", "error");
        let seen =
            [&one, &one, &one, &two, &other, &other].map(|body| gateway.post("/v1/messages", &[], body).0);
        let expected = match (status, takes_it) {
            (_, true) => [200, 500, 500, 500, 500, 500],
            (401 | 503 | 529, _) => [status; 6],
            (status, _) => [status, status, 200, 200, 200, 200],
        };
        assert_eq!(seen, expected, "{status} {takes_it}");
        gateway.stop();
        let originals =
            records(home.path()).iter().filter(|record| record["edits"]["original_resent"] == true).count();
        assert_eq!(originals, if expected[2] == 200 { 2 } else { 0 }, "{status} {takes_it}");
    }
}

/// Some servers report errors in answers with a good status, as a whole or at the beginning of a stream. An error that
/// says the request was bad counts as a refusal, although it was passed on to the client; one that names a server fault
/// does not.
#[test]
fn an_error_within_a_successful_answer_drops_the_edit() {
    let of_router = r#"{"id":"x","error":{"code":400,"message":"Provider returned error"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#;
    let bad = r#"{"error":{"message":"Provider returned error","code":400}}"#;
    for (model, said, expected) in [
        ("gpt-5", bad.to_owned(), 1),
        // If the window is not known, the beginnings of answers to long prompts are checked before they are passed on.
        ("m", bad.to_owned(), 0),
        ("gpt-5", format!("data: {of_router}\n\ndata: [DONE]\n\n"), 1),
        ("m", format!("data: {of_router}\n\ndata: [DONE]\n\n"), 0),
        (
            "gpt-5",
            r#"{"base_resp":{"status_code":2013,"status_msg":"invalid params"},"choices":null}"#.to_owned(),
            1,
        ),
        (
            "gpt-5",
            r#"{"base_resp":{"status_code":1002,"status_msg":"rate limit"},"choices":null}"#.to_owned(),
            4,
        ),
        ("gpt-5", r#"{"error":{"message":"Provider returned error","code":500}}"#.to_owned(), 2),
        ("gpt-5", r#"{"error":{"message":"Provider returned error","code":502}}"#.to_owned(), 4),
        ("gpt-5", r#"{"error":{"message":"busy","code":"server_is_overloaded"}}"#.to_owned(), 4),
        ("gpt-5", r#"{"error":{"message":"slow down","code":429}}"#.to_owned(), 4),
    ] {
        const GOOD: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}"#;
        let home = tempfile::tempdir().unwrap();
        let fault = said.clone();
        let upstream = Upstream::start(move |received| {
            (200, if received.text().contains("plimsoll:") { fault.clone() } else { GOOD.to_owned() })
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let result = log("long", 4000);
        let call = json!({"id": "c", "type": "function", "function": {"name": "grep", "arguments": "{}"}});
        let body = json!({"model": model, "messages": [
            {"role": "user", "content": "Find the bug"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": result},
        ]})
        .to_string();
        let mut seen = Vec::new();
        for at in 0..4 {
            let (_, answer) = gateway.post("/v1/chat/completions", &[], &body);
            seen.push(String::from_utf8(answer).unwrap() == said);
            booked(home.path(), at + 1);
        }
        let failed = seen.iter().take_while(|failed| **failed).count();
        assert_eq!(
            (failed, seen.iter().filter(|failed| **failed).count()),
            (expected, expected),
            "{model} {said}"
        );
    }
}

#[test]
fn an_unedited_attempt_is_made_once_while_the_upstream_fails() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (500, "Internal error".to_owned()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let body = request("m", &[&log("long", 4000)]);
    for _ in 0..5 {
        assert_eq!(gateway.post("/v1/messages", &[], &body).0, 500);
    }
    let edited = upstream.received().iter().map(|sent| sent.text().contains("plimsoll:")).collect::<Vec<_>>();
    assert_eq!(edited, [true, true, true, false, true, true]);
}

#[test]
fn a_prompt_that_is_too_long_is_never_resent_unedited() {
    let home = tempfile::tempdir().unwrap();
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let upstream = Upstream::start(move |_| (400, refusal.to_owned()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let request = request("m", &[&log("long", 4000)]);
    let (status, body) = gateway.post("/v1/messages", &[], &request);
    assert_eq!((status, String::from_utf8(body).unwrap().as_str()), (400, refusal));
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert_eq!(sent.len(), 4, "once, and three times with more room");
    assert!(sent.windows(2).all(|pair| pair[1].len() < pair[0].len()) && sent[0] != request);
}

/// A Gemini request after a long result.
fn contents(long: &str) -> Value {
    json!([
        {"role": "user", "parts": [{"text": "Find the bug"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "grep", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "grep", "response": {"output": long}}}]},
    ])
}

#[test]
fn token_counts_are_those_of_the_edited_prompt() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, r#"{"input_tokens":1}"#.to_owned()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let long = log("long", 4000);
    let contents = contents(&long);
    let input = json!([
        {"role": "user", "content": "Find the bug"},
        {"type": "function_call", "call_id": "c", "name": "grep", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": long},
    ]);
    for (count, generate, body) in [
        ("/v1/messages/count_tokens", "/v1/messages", request("m", &[&long])),
        (
            "/v1beta/models/m:countTokens",
            "/v1beta/models/m:generateContent",
            json!({"contents": contents}).to_string(),
        ),
        ("/v1/responses/input_tokens", "/v1/responses", json!({"model": "m", "input": input}).to_string()),
    ] {
        let before = upstream.received().len();
        for path in [count, generate, count] {
            gateway.post(path, &[], &body);
        }
        let sent: Vec<String> = upstream.received()[before..].iter().map(unmarked).collect();
        assert!(sent[0].contains("bytes removed here"), "{count}");
        assert!(sent.len() == 3 && sent.iter().all(|text| *text == sent[0]), "{count}");
    }
}

/// Decisions belong to the API key that their history was sent with, wherever a request carries that key.
#[test]
fn a_key_in_the_path_identifies_the_sender() {
    let upstream = Upstream::start(|_| (200, r#"{"candidates":[]}"#.to_owned()));
    let long = log("long", 4000);
    let begun = contents(&long);
    let mut gone_on = begun.clone();
    let turn = |role: &str| json!({"role": role, "parts": [{"text": "go on"}]});
    gone_on.as_array_mut().unwrap().extend([turn("model"), turn("user")]);
    let path = "/v1beta/models/m:generateContent";
    for (other_query, other_header, is_cut) in [
        ("?key=first-key", "", true),
        ("?alt=json&key=first-key", "", true),
        ("?key=other-key", "", false),
        ("", "first-key", true),
        ("", "other-key", false),
        ("", "", false),
    ] {
        let home = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let sends = |contents: &Value, query: &str, header: &str| {
            let headers = [("x-goog-api-key", header)];
            let headers = if header.is_empty() { &[][..] } else { &headers };
            gateway.post(&format!("{path}{query}"), headers, &json!({"contents": contents}).to_string());
            upstream.received().last().unwrap().text().contains("bytes removed here")
        };
        let (query, header) =
            if other_header.is_empty() { ("?key=first-key", "") } else { ("", "first-key") };
        assert!(sends(&begun, query, header));
        assert_eq!(sends(&gone_on, other_query, other_header), is_cut, "{other_query} {other_header}");
    }
}

#[test]
fn a_refused_token_count_is_resent_unedited() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let is_edited = received.text().contains("bytes removed here");
        if is_edited { (400, "no".to_owned()) } else { (200, r#"{"input_tokens":1}"#.to_owned()) }
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let body = request("m", &[&log("long", 4000)]);
    assert_eq!(gateway.post("/v1/messages/count_tokens", &[], &body).0, 200);
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert!(sent.len() == 2 && sent[0] != body && sent[1] == body, "{}", sent.len());
}

/// The shortened prompt fits; the original may not.
#[test]
fn compaction_requests_are_sent_with_their_edits() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let usage = json!({"input_tokens": 100, "output_tokens": 7});
        let answer = if received.text().contains("Found") {
            json!({"id": "c", "object": "response.compaction", "output": [], "usage": usage})
        } else {
            json!({"id": "r", "status": "completed", "model": "m", "output": [], "usage": usage})
        };
        (200, answer.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let mut input = vec![
        json!({"role": "user", "content": "Find the bug"}),
        json!({"type": "function_call", "call_id": "c", "name": "grep", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c", "output": log("long", 4000)}),
    ];
    let said = json!({"role": "assistant", "content": "Found"});
    for path in ["/v1/responses", "/v1/responses/compact"] {
        gateway.post(path, &[], &json!({"model": "m", "input": input}).to_string());
        input.push(said.clone());
    }
    gateway.stop();
    let sent = upstream.received();
    let [first, compacted] = [0, 1].map(|at| {
        let body: Value = serde_json::from_slice(&sent[at].body).unwrap();
        body["input"].as_array().unwrap().clone()
    });
    assert!(first[2].to_string().contains("bytes removed here"));
    assert_eq!(compacted[..], [&first[..], &[said]].concat());
    let records = records(home.path());
    assert_eq!(records.len(), 2);
    assert_eq!(records[0]["conversation"], records[1]["conversation"]);
    let booked = ["/compaction", "/outcome", "/tokens/input", "/tokens/output", "/output_is_lower_bound"];
    let booked = booked.map(|key| records[1].pointer(key).unwrap());
    assert_eq!(booked, [&json!("asked"), &json!("complete"), &json!(100), &json!(7), &json!(false)]);
}

#[test]
fn full_texts_can_be_fetched_from_the_admin_listener() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = "[listen]\nadmin = '127.0.0.1:0'\n[outputs]\nrecall = 'http'\n";
    let gateway = Gateway::start(home.path(), config, &upstream.url());
    let text = log("long", 4000);
    gateway.post("/v1/messages", &[], &request("m", &[&text]));
    let sent = upstream.received()[0].text();
    let url =
        sent.split("full output: http://").nth(1).and_then(|rest| rest.split(']').next()).expect("a URL");
    let (address, path) = url.split_once('/').unwrap();
    let address = address.parse().unwrap();
    assert_eq!(send(address, "GET", &format!("/{path}"), &[], ""), (200, text.into_bytes()));
    let unknown = path.replace(|digit: char| digit.is_ascii_digit(), "0");
    assert_eq!(send(address, "GET", &format!("/{unknown}x"), &[], "").0, 404);
    assert_eq!(send(address, "GET", "/health", &[], ""), (200, b"{\"status\":\"ok\"}\n".to_vec()));
    for (method, path, status, message) in [
        (
            "GET",
            "/dashboard",
            404,
            "not found; there are /, /api/conversations, /api/conversations/ID, /api/report, /health, /metrics, \
             /outputs/ID",
        ),
        ("GET", "/outputs/none", 404, "no such output; it may have been removed with age"),
        ("POST", "/health", 405, "only GET"),
    ] {
        let (found, body) = send(address, method, path, &[], "");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((found, body), (status, json!({"error": {"message": message}})), "{path}");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"DELETE / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(refused.contains("\r\nallow: GET, HEAD\r\n"), "{refused}");
    let metrics = String::from_utf8(send(address, "GET", "/metrics", &[], "").1).unwrap();
    assert!(metrics.contains("plimsoll_requests_edited_total 1\n"), "{metrics}");
}

#[test]
fn gateway_errors_name_the_fault_in_the_callers_dialect() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(home.path(), CONFIG, "http://127.0.0.1:9");
    for (path, pointer) in [("/v1/messages", "/error/type"), ("/v1/chat/completions", "/error/code")] {
        let (status, body) = gateway.post(path, &[], r#"{"messages":[]}"#);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 502);
        assert!(body.pointer(pointer).is_some_and(Value::is_string), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains("upstream")), "{body}");
    }
}

#[test]
fn a_broken_stream_is_booked_as_a_lower_bound() {
    let home = tempfile::tempdir().unwrap();
    let start = json!({"type": "message_start", "message": {"id": "m", "model": "claude-sonnet-4-6",
        "usage": {"input_tokens": 9, "output_tokens": 1}}});
    let stream = format!("event: message_start\ndata: {start}\n\n");
    let upstream = Upstream::start(move |_| (200, stream.clone()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    gateway.post("/v1/messages", &[], &request("claude-sonnet-4-6", &[]));
    gateway.stop();
    let record = &records(home.path())[0];
    assert_eq!((&record["output_is_lower_bound"], &record["tokens"]["input"]), (&json!(true), &json!(9)));
}

/// A stream that reports its usage in an additional chunk, if asked to.
fn chat_stream(asked: bool) -> String {
    let chunk = |rest: &str| format!("data: {{\"id\":\"c\",\"model\":\"gpt-4o\",{rest}}}\n\n");
    let usage = chunk(r#""choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}"#);
    chunk(r#""choices":[{"delta":{"content":"hi"}}]"#)
        + &chunk(r#""choices":[{"delta":{},"finish_reason":"stop"}]"#)
        + if asked { &usage } else { "" }
        + "data: [DONE]\n\n"
}

#[test]
fn include_usage_is_added_and_its_chunk_removed() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let asked = received.text().contains("\"include_usage\":true");
        if asked && received.text().contains("\"model\":\"strict\"") {
            return (400, r#"{"error":{"message":"unknown field","code":null}}"#.to_owned());
        }
        (200, chat_stream(asked))
    });
    let local = format!(
        "{CONFIG}[upstream.local]\nbase_url = '{}'\nprotocols = ['openai-chat']\ninclude_usage = true\n",
        upstream.url()
    );
    let gateway = Gateway::configured(home.path(), &local);
    let post = |body: &str| {
        let (status, answer) =
            gateway.post("/local/v1/chat/completions", &[("accept-encoding", "gzip")], body);
        (status, String::from_utf8(answer).unwrap())
    };
    let messages = r#""messages":[{"role":"user","content":"hi"}],"stream":true"#;
    let open = format!("{{{messages}}}");
    assert_eq!(post(&open), (200, chat_stream(false)));
    let own = format!(r#"{{{messages},"stream_options":{{"include_usage":true}}}}"#);
    assert_eq!(post(&own), (200, chat_stream(true)));
    let strict = format!(r#"{{"model":"strict",{messages}}}"#);
    assert_eq!(post(&strict), (200, chat_stream(false)));
    gateway.stop();
    let asked = format!(r#"{{{messages},"stream_options":{{"include_usage":true}}}}"#);
    let asked_in_vain =
        format!(r#"{{"model":"strict",{messages},"stream_options":{{"include_usage":true}}}}"#);
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert_eq!(sent, [asked, own, asked_in_vain, strict]);
    let records = records(home.path());
    let figures: Vec<&Value> = records.iter().map(|record| &record["tokens"]["input"]).collect();
    assert_eq!(figures, [&json!(12), &json!(12), &Value::Null]);
    assert!(records.iter().all(|record| record["edits"]["state"] == json!("unchanged")));
}

#[test]
fn new_results_behind_a_held_history_are_shortened() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let id = format!("resp_{}", received.text().matches("function_call_output").count());
        let usage = json!({"input_tokens": 5, "output_tokens": 1});
        (200, json!({"id": id, "status": "completed", "model": "gpt-5", "usage": usage}).to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let result = |at: usize, text: &str| json!({"type": "function_call_output", "call_id": at.to_string(), "output": text});
    let call = |at: usize| json!({"type": "function_call", "call_id": at.to_string(), "name": "f", "arguments": "{}"});
    let user = json!({"role": "user", "content": "hi"});
    let (first, second) = (log("first", 4000), log("second", 4000));
    let all = json!([user, call(1), result(1, &first), call(2), result(2, &second)]);
    let requests = [
        json!({"model": "gpt-5", "input": [user]}),
        json!({"model": "gpt-5", "previous_response_id": "resp_0", "input": [result(1, &first)]}),
        json!({"model": "gpt-5", "previous_response_id": "resp_1", "input": [result(2, &second)]}),
        // The provider no longer has the answer: the whole history is sent, in the form in which its parts were sent
        // before.
        json!({"model": "gpt-5", "input": all}),
    ];
    for request in &requests {
        assert_eq!(gateway.post("/v1/responses", &[], &request.to_string()).0, 200);
    }
    gateway.stop();
    let sent: Vec<Value> =
        upstream.received().iter().map(|received| serde_json::from_slice(&received.body).unwrap()).collect();
    for (at, request) in [(1, &sent[1]), (2, &sent[2])] {
        let output = &request["input"][0]["output"];
        assert!(output.as_str().unwrap().contains("bytes removed here"), "{at}");
        assert_eq!(&sent[3]["input"][at * 2]["output"], output);
    }
    let records = records(home.path());
    let of = |key: &str| records.iter().map(|record| record[key].clone()).collect::<Vec<_>>();
    assert!(of("conversation")[..3].iter().all(|name| *name == records[0]["conversation"]));
    assert_eq!(of("relation")[..3], [json!("new"), json!("continue"), json!("continue")]);
}

/// If a server refuses the additions to requests, they are omitted from then on. Edits sent together with them are not
/// blamed, and a thread whose original was sent stays unedited. A single refusal may have another reason.
#[test]
fn a_refused_addition_is_not_repeated() {
    for lines in [1, 4_000] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|received| {
            let refusal = json!({"error": {"message": "unknown field", "type": "invalid_request_error"}});
            if received.text().contains("prompt_cache_key") {
                (400, refusal.to_string())
            } else {
                (200, r#"{"id":"c","choices":[]}"#.to_owned())
            }
        });
        let config =
            format!("{CONFIG}[upstream.openai]\nbase_url = '{}'\ncache_key = 'shared'\n", upstream.url());
        let gateway = Gateway::configured(home.path(), &config);
        for talk in [0, 1, 2, 3, 0] {
            let call = json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "t", "type": "function", "function": {"name": "run", "arguments": "{}"}}]});
            let mut messages = vec![json!({"role": "user", "content": format!("talk {talk}")}), call];
            messages.push(json!({"role": "tool", "tool_call_id": "t", "content": log("a", lines)}));
            if upstream.received().len() == 6 {
                messages.push(json!({"role": "assistant", "content": "ho"}));
                messages.push(json!({"role": "user", "content": "and now"}));
            }
            let body = json!({"model": "m", "messages": messages}).to_string();
            assert_eq!(gateway.post("/v1/chat/completions", &[], &body).0, 200);
        }
        gateway.stop();
        let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
        let keyed: Vec<bool> = sent.iter().map(|body| body.contains("prompt_cache_key")).collect();
        assert_eq!(keyed, [true, false, true, false, false, false, false], "{lines}");
        let original = sent[1].strip_suffix(r#"],"model":"m"}"#).unwrap();
        assert!(sent[6].starts_with(original), "{lines}: what was sent is sent again");
        let records = records(home.path());
        let last = &records[3]["edits"];
        let state = if lines > 1 { "edited" } else { "unchanged" };
        assert_eq!((&last["state"], &last["original_resent"]), (&json!(state), &json!(false)));
        assert_eq!(records[0]["bytes"]["sent"], json!(sent[1].len()), "{lines}");
    }
}

/// Additions that were accepted once are not blamed for a later refusal: the edit is.
#[test]
fn an_accepted_addition_is_not_blamed() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        if received.text().contains("plimsoll:") {
            return (400, json!({"error": {"message": "no", "type": "invalid_request_error"}}).to_string());
        }
        (200, r#"{"id":"c","choices":[]}"#.to_owned())
    });
    let config =
        format!("{CONFIG}[upstream.openai]\nbase_url = '{}'\ncache_key = 'shared'\n", upstream.url());
    let gateway = Gateway::configured(home.path(), &config);
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "t", "type": "function", "function": {"name": "run", "arguments": "{}"}}]});
    let user = json!({"role": "user", "content": "go"});
    let result = json!({"role": "tool", "tool_call_id": "t", "content": log("a", 4_000)});
    let other = json!({"role": "user", "content": "something else"});
    let more = json!([user, call, result, {"role": "assistant", "content": "ho"}, user]);
    for messages in [json!([user]), json!([user, call, result]), more, json!([other])] {
        let body = json!({"model": "m", "messages": messages}).to_string();
        assert_eq!(gateway.post("/v1/chat/completions", &[], &body).0, 200);
    }
    gateway.stop();
    let keyed = |one: &Received| one.text().contains("prompt_cache_key");
    assert_eq!(upstream.received().iter().map(keyed).collect::<Vec<_>>(), [true, true, false, false, true]);
    let states: Vec<Value> = records(home.path()).iter().map(|one| one["edits"]["state"].clone()).collect();
    assert_eq!(states, ["unchanged", "edited", "set_aside", "unchanged"]);
}

#[test]
fn requests_have_the_configured_cache_key() {
    let hi = json!({"role": "user", "content": "hi"});
    let more = json!([hi, {"role": "assistant", "content": "ho"}, hi]);
    let bodies = [
        ("one", json!({"messages": [hi]})),
        ("one", json!({"messages": more})),
        ("one", json!({"messages": more, "prompt_cache_key": "own"})),
        ("two", json!({"messages": [hi]})),
    ];
    for (setting, is_keyed, is_shared) in [
        ("", false, true),
        ("cache_key = 'none'\n", false, true),
        ("cache_key = 'shared'\n", true, true),
        ("cache_key = 'conversation'\n", true, false),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|_| (200, r#"{"id":"c","choices":[]}"#.to_owned()));
        let config = format!("{CONFIG}[upstream.openai]\nbase_url = '{}'\n{setting}", upstream.url());
        let gateway = Gateway::configured(home.path(), &config);
        for (session, body) in &bodies {
            let headers = [("x-session-id", *session)];
            assert_eq!(gateway.post("/v1/chat/completions", &headers, &body.to_string()).0, 200);
        }
        let received = upstream.received();
        let bodies = received.iter().map(|one| serde_json::from_str::<Value>(&one.text()).unwrap());
        let keys: Vec<Value> = bodies.map(|body| body["prompt_cache_key"].clone()).collect();
        assert_eq!((keys[0].is_string(), &keys[2]), (is_keyed, &json!("own")), "{keys:?}");
        assert_eq!((keys[0] == keys[1], keys[0] == keys[3]), (true, is_shared), "{keys:?}");
    }
}

/// For Gemini, instructions and tools are counted only in requests inside an envelope. A profile that matches on the
/// envelope's members applies there too.
#[test]
fn an_enveloped_token_count_is_edited_like_its_request() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let url = upstream.url();
    let config = format!(
        "{CONFIG}[upstream.up]\nbase_url = '{url}'\nprotocols = ['gemini']\n\
         [upstream.raw]\nbase_url = '{url}'\nprotocols = ['gemini']\n\
         [profile.model]\nmatch.model = '*raw*'\npreset = 'passthrough'\n\
         [profile.upstream]\nmatch.upstream = 'raw'\npreset = 'passthrough'\n"
    );
    let gateway = Gateway::configured(home.path(), &config);
    let request = json!({"contents": contents(&log("long", 4000)), "tools": []}).to_string();
    let within = |request: &str| format!(r#"{{ "generateContentRequest": {request}, "n": 1.0 }}"#);
    for (path, is_cut) in
        [("up/v1beta/models/m", true), ("up/v1beta/models/raw", false), ("raw/v1beta/models/m", false)]
    {
        let key = [("x-goog-api-key", path)];
        let post = |verb: &str, body: &str| {
            gateway.post(&format!("/{path}:{verb}"), &key, body);
            upstream.received().last().unwrap().text()
        };
        for round in ["before", "after"] {
            let [alone, inner] = [request.clone(), within(&request)].map(|body| post("countTokens", &body));
            assert_eq!(alone.contains("bytes removed here"), is_cut, "{path} {round}");
            assert_eq!(inner, within(&alone), "{path} {round}");
            assert_eq!(post("generateContent", &request), alone, "{path} {round}");
        }
    }
}

/// A profile applies to the conversations whose first request matches it, and to no others.
#[test]
fn a_profile_applies_to_conversations_that_begin_with_a_match() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("{CONFIG}[profile.raw]\nmatch.model = '*haiku*'\npreset = 'passthrough'\n");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let post = |model: &str, session: &str, results: &[&str]| {
        let body = request(model, results);
        let headers = [("x-session-id", session)];
        assert_eq!(gateway.post("/v1/messages", &headers, &body).0, 200);
        upstream.received().last().unwrap().text() == body
    };
    let (first, second) = (log("first", 4000), log("second", 4000));
    assert!(post("claude-haiku-4-5", "a", &[&first]), "nothing is done");
    assert!(!post("claude-sonnet-4-6", "b", &[&first]), "the file's settings hold");
    assert!(post("claude-sonnet-4-6", "a", &[&first, &second]), "the conversation keeps its profile");
    gateway.stop();
    let profiles: Vec<Value> = records(home.path()).iter().map(|record| record["profile"].clone()).collect();
    assert_eq!(profiles.iter().filter(|profile| **profile == json!("raw")).count(), 2, "{profiles:?}");
    assert_eq!(profiles.iter().filter(|profile| profile.is_null()).count(), 1, "{profiles:?}");
}
