//! What was sent once is sent the same way ever after, through kills, new configurations and other gateways.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream, records};

use super::{CONFIG, answer, assert_appended, log, request};

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

/// To make room, an event cuts a new result that is too long: what was sent before is still a prefix.
#[test]
fn an_event_that_only_cuts_new_results_keeps_the_prefix() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config =
        format!("{CONFIG}[truncate]\nmax_bytes = '1GiB'\nmax_lines = 1000000\n[window]\nsize = 30000\n");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let long = log("long", 4000);
    // There is nothing in the history that would be worth dropping.
    for results in [&["x"][..], &["x", &*long]] {
        assert_eq!(gateway.post("/v1/messages", &[], &request("claude-sonnet-4-6", results)).0, 200);
    }
    gateway.stop();
    assert_appended(&upstream);
    let records = records(home.path());
    let event = &records[1]["edits"]["event"];
    assert_eq!((&event["rung"], &event["first_message"]), (&json!("cut"), &json!(4)), "{event}");
    assert_eq!((&records[1]["prior"], &records[1]["prefix"]), (&json!(3), &json!("kept")));
}
