//! Every request is booked: those that are not read, have no messages, run in the background, or end while the disk
//! stalls.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::json as printed;
use crate::support::{Gateway, Received, Upstream, records, send};

use super::{CONFIG, answer, log, prompt, request};

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
    let all = cases.iter().flat_map(|case| [(case, false), (case, true)]);
    for (((begun, later, stop), restarts), window) in
        all.flat_map(|case| [None, Some("soonest"), Some("8h")].map(|window| (case, window)))
    {
        let home = tempfile::tempdir().unwrap();
        let answers: Vec<String> =
            std::iter::once((*begun).clone()).chain(later.iter().map(|row| row.2.clone())).collect();
        let (given, at) = (answers.clone(), AtomicUsize::new(0));
        let upstream = Upstream::start(move |_| (200, given[at.fetch_add(1, Ordering::Relaxed)].clone()));
        let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body = json!({"model": "gpt-5", "input": "one", "background": true});
        if let Some(window) = window {
            body["background_options"] = json!({"completion_window": window});
        }
        let body = body.to_string();
        assert_eq!(gateway.post("/v1/responses", &[], &body), (200, answers[0].clone().into_bytes()));
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
        // A longer window is discounted, and the catalogue has no price for it.
        let has_price = window != Some("8h");
        let expected = stop.filter(|_| has_price).map(|_| 2_250_000_000_u64);
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
        assert_eq!(last["net_saved"], expected.map_or(Value::Null, |_| json!(0)));
        let named = window.filter(|_| !has_price);
        assert_eq!((&first["completion_window"], &last["completion_window"]), (&json!(named), &json!(named)));
    }
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
