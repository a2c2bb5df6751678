//! Records of requests, and the usage that is asked for to complete them.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream, read_message, records};

use super::{CONFIG, answer, files, log, request};

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

/// Some servers declare their streams as something else, or not at all.
#[test]
fn the_chunk_is_removed_from_streams_that_are_not_declared_as_such() {
    let home = tempfile::tempdir().unwrap();
    let document = r#"{"model":"gpt-4o","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}}"#;
    let plain = |kind: &str, answer: &str| {
        let length = answer.len();
        let head =
            format!("HTTP/1.1 200 OK\r\n{kind}connection: close\r\ntransfer-encoding: chunked\r\n\r\n");
        format!("{head}{length:x}\r\n{answer}\r\n0\r\n\r\n")
    };
    let kinds = ["application/octet-stream", "text/plain", "application/json", "application/x-ndjson", ""];
    let kinds =
        kinds.map(|kind| if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") });
    let mut answers: Vec<String> =
        kinds.iter().flat_map(|kind| [plain(kind, &chat_stream(true)), plain(kind, document)]).collect();
    answers.push(plain("content-type: text/event-stream\r\ncontent-encoding: utf8\r\n", &chat_stream(true)));
    let expected: Vec<String> = (0..answers.len())
        .map(|at| if at % 2 == 0 { chat_stream(false) } else { document.to_owned() })
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = format!(
        "{CONFIG}[upstream.local]\nbase_url = 'http://{}'\nprotocols = ['openai-chat']\ninclude_usage = true\n",
        listener.local_addr().unwrap()
    );
    let serving = thread::spawn(move || {
        for answer in answers {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            read_message(&mut reader).unwrap();
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let gateway = Gateway::configured(home.path(), &local);
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    let seen: Vec<String> = (0..expected.len())
        .map(|_| String::from_utf8(gateway.post("/local/v1/chat/completions", &[], body).1).unwrap())
        .collect();
    serving.join().unwrap();
    gateway.stop();
    assert_eq!(seen, expected);
    let records = records(home.path());
    let figures: Vec<&Value> = records.iter().map(|record| &record["tokens"]["input"]).collect();
    assert_eq!(figures, vec![&json!(12); expected.len()]);
}

/// Whatever has arrived of an answer reaches the client before the break: the end of a stream may be there except for
/// its last empty line.
#[test]
fn a_broken_answer_keeps_what_the_filter_has_held_back() {
    let home = tempfile::tempdir().unwrap();
    let stream = chat_stream(false);
    let stream = stream.trim_end();
    let begun = "data: {\"choices\":";
    let answers = [("content-type: text/event-stream\r\n", stream), ("", stream), ("", begun), ("", "dat")]
        .map(|(kind, answer)| (kind, answer.to_owned()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = format!(
        "{CONFIG}[upstream.local]\nbase_url = 'http://{}'\nprotocols = ['openai-chat']\ninclude_usage = true\n",
        listener.local_addr().unwrap()
    );
    let given = answers.clone();
    let serving = thread::spawn(move || {
        for (kind, answer) in given {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            read_message(&mut reader).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n");
            let whole = format!("{head}{:x}\r\n{answer}\r\n", answer.len());
            reader.get_mut().write_all(whole.as_bytes()).unwrap();
        }
    });
    let gateway = Gateway::configured(home.path(), &local);
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    for (kind, answer) in answers {
        let mut client = TcpStream::connect(gateway.address).unwrap();
        let head = "POST /local/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n";
        write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut seen = Vec::new();
        // It ends with a reset, which says that it is broken.
        let _ = client.read_to_end(&mut seen);
        let seen = String::from_utf8(seen).unwrap();
        let (_, chunks) = seen.split_once("\r\n\r\n").unwrap();
        let passed: String = chunks.split("\r\n").skip(1).step_by(2).collect();
        assert_eq!(passed, answer, "{kind}");
        assert!(!seen.ends_with("0\r\n\r\n"), "{seen}");
    }
    serving.join().unwrap();
    gateway.stop();
}
