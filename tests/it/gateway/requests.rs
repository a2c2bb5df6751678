//! Kinds of requests, and settings that apply to some of them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, records, send};

use super::{CONFIG, answer, files, log, request, unmarked};

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
fn new_results_after_a_held_history_are_shortened() {
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
