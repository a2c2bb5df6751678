//! Budgets: what may be spent, across restarts, and what clients are told when a budget is exhausted.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream, booked, records};

/// Costs $0.0007425: 100 tokens at $3, 1000 at $0.30, 10 at $3.75 and 7 at $15 per million.
fn answer(_: &Received) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10,
                  "output_tokens": 7}});
    (200, body.to_string())
}

/// Sends a request in one session through a new gateway, which has written everything when this returns.
fn ask(home: &Path, config: &str, upstream: &Upstream, session: &str) -> (u16, String) {
    let gateway = Gateway::start(home, &format!("[listen]\nadmin = 'off'\n{config}"), &upstream.url());
    let body = json!({"model": "claude-sonnet-4-6", "max_tokens": 10,
        "messages": [{"role": "user", "content": "Find the bug"}]});
    let headers = [("x-claude-code-session-id", session)];
    let (status, body) = gateway.post("/v1/messages", &headers, &body.to_string());
    gateway.stop();
    (status, String::from_utf8(body).unwrap())
}

fn last_record(home: &Path, session: &str) -> Value {
    let log = fs::read_to_string(home.join(format!("plimsoll/conversations/{session}.jsonl"))).unwrap();
    serde_json::from_str(log.lines().last().unwrap()).unwrap()
}

#[test]
fn a_spent_budget_warns_or_refuses() {
    for (mode, status, sent) in [("record", 200, 3), ("refuse", 402, 2)] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!("[budget]\nconversation_usd = 0.0014\nnear = 0.5\non_exceeded = '{mode}'\n");
        for state in [Value::Null, json!("near")] {
            assert_eq!(ask(home.path(), &config, &upstream, "run").0, 200);
            assert_eq!(last_record(home.path(), "run")["budget"]["state"], state);
        }
        let (found, body) = ask(home.path(), &config, &upstream, "run");
        assert_eq!((found, upstream.received().len()), (status, sent), "{body}");
        let record = last_record(home.path(), "run");
        assert_eq!(
            record["budget"],
            json!({"state": "spent", "limit": "budget.conversation_usd", "used": "$0.001485 of $0.0014"})
        );
        if mode == "refuse" {
            let said: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((&said["type"], &said["error"]["type"]), (&json!("error"), &json!("billing_error")));
            let message = said["error"]["message"].as_str().unwrap();
            let says = "the gateway's own budget is spent: $0.001485 of $0.0014; raise `budget.conversation_usd` or begin another \
                        conversation (gateway at fault)";
            assert!(message.ends_with(says), "{message}");
            assert_eq!((&record["outcome"], &record["cost"]), (&json!("failed"), &Value::Null));
            assert_eq!(record["bytes"]["sent"], 0, "nothing of it has left");
        }
        assert_eq!(ask(home.path(), &config, &upstream, "another").0, 200, "a budget of its own");
    }
}

/// A request is booked and refused like any other even if its body cannot be decoded.
#[test]
fn undecodable_requests_count_towards_budgets() {
    const BODY: &str =
        r#"{"model":"claude-sonnet-4-6","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#;
    const CONFIG: &str =
        "[listen]\nadmin = 'off'\n[budget]\nconversation_usd = 0.0007\non_exceeded = 'refuse'\n";
    for (name, headers) in [
        ("an unknown coding", &[("content-encoding", "compress")][..]),
        ("two codings", &[("content-encoding", "gzip, identity")]),
        ("damaged", &[("content-encoding", "gzip")]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let headers = [headers, &[("x-session-id", "run")]].concat();
        assert_eq!(gateway.post("/v1/messages", &headers, BODY).0, 200, "{name}");
        booked(home.path(), 1);
        assert_eq!(gateway.post("/v1/messages", &headers, BODY).0, 402, "{name}");
        gateway.stop();
        assert!(upstream.received().iter().map(Received::text).eq([BODY]), "{name}");
        let records = records(home.path());
        let found = records.iter().map(|record| (&record["edits"]["state"], &record["cost"]["total"]));
        let (unread, cost) = (json!("unread"), json!(742_500_000));
        assert!(found.eq([(&unread, &cost), (&unread, &Value::Null)]), "{name}: {records:?}");
        assert_eq!(records[0]["bytes"]["received"], BODY.len(), "{name}");
    }
}
