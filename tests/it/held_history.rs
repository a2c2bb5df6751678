//! Records of requests that continue a history held by the provider: what was cut from one is missing from the prompts
//! of all that continue it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::books::{log, prompt};
use crate::support::{self, Answer, Gateway, Received, Upstream, records, send};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";
/// The tokens of a history that the provider holds and the gateway has not seen.
const UNSEEN: u64 = 30_000;

/// What a request continues.
#[derive(Clone, Copy)]
enum Past {
    Nothing,
    /// The answer to the request this many before this one.
    Answer(usize),
    /// An answer that the gateway has not seen.
    Unseen,
    /// A conversation with a name of its own.
    Named,
}
use Past::{Answer as After, Named, Nothing, Unseen};

fn name(dialect: &str, from: Past) -> Option<String> {
    let kind = if dialect == "anthropic" { "msg" } else { "resp" };
    match from {
        Nothing => None,
        After(request) => Some(format!("{kind}_{request}")),
        Unseen => Some(format!("{kind}_unseen")),
        Named => Some("conv_1".to_owned()),
    }
}

/// A request with a tool result, alone or after its call.
fn request(dialect: &str, from: Past, at: usize, result: &str) -> String {
    let (name, id) = (name(dialect, from), format!("call_{at}"));
    let body = if dialect == "anthropic" {
        let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]});
        let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "bash", "input": {}}]});
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 99});
        let (thread, messages) = match name {
            Some(name) => (json!({"type": "continue", "previous_message_id": name}), json!([result])),
            None => (json!({"type": "create"}), json!([{"role": "user", "content": "go"}, call, result])),
        };
        merged(body, &json!({"thread": thread, "messages": messages}))
    } else {
        let result = json!({"type": "function_call_output", "call_id": id, "output": result});
        let call = json!({"type": "function_call", "call_id": id, "name": "bash", "arguments": "{}"});
        let body = json!({"model": "gpt-5"});
        let more = match name {
            Some(name) if name.starts_with("conv") => json!({"conversation": name, "input": [result]}),
            Some(name) => json!({"previous_response_id": name, "input": [result]}),
            None => json!({"input": [{"role": "user", "content": "go"}, call, result]}),
        };
        merged(body, &more)
    };
    body.to_string()
}

fn merged(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The members of a body that name what it continues.
fn continued(body: &Value) -> Option<String> {
    let named =
        [&body["thread"]["previous_message_id"], &body["previous_response_id"], &body["conversation"]];
    named.into_iter().find_map(|name| name.as_str().map(str::to_owned))
}

/// The tokens of histories, by name.
struct Held(HashMap<String, u64>);

impl Held {
    fn new() -> Self {
        Self(["msg_unseen", "resp_unseen"].map(|name| (name.to_owned(), UNSEEN)).into())
    }

    /// The tokens that a request reads and adds, at one token per four bytes; `id` is the id of its answer.
    fn take(&mut self, body: &str, id: &str) -> (u64, u64) {
        let from = continued(&serde_json::from_str(body).unwrap());
        let read = from.as_ref().and_then(|from| self.0.get(from)).copied().unwrap_or(0);
        let new = body.len() as u64 / 4;
        let names = [Some(id.to_owned()), from.filter(|from| from.starts_with("conv"))];
        self.0.extend(names.into_iter().flatten().map(|name| (name, read + new)));
        (read, new)
    }
}

/// A provider that holds histories, and reads everything that it holds from its cache.
fn provider(dialect: &'static str) -> impl Fn(&Received) -> Answer {
    let (held, count) = (Mutex::new(Held::new()), AtomicUsize::new(0));
    move |request| {
        let id = name(dialect, After(count.fetch_add(1, Ordering::Relaxed))).unwrap();
        let (read, new) = held.lock().unwrap().take(&request.text(), &id);
        let answer = if dialect == "anthropic" {
            json!({"id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
                "stop_reason": "end_turn", "usage": {"input_tokens": new, "cache_read_input_tokens": read,
                "cache_creation_input_tokens": 0, "output_tokens": 7}})
        } else {
            json!({"id": id, "object": "response", "model": "gpt-5", "status": "completed", "output": [],
                "usage": {"input_tokens": read + new, "input_tokens_details": {"cached_tokens": read},
                "output_tokens": 7, "total_tokens": read + new + 7}})
        };
        (200, answer.to_string())
    }
}

/// The records of these requests, in order.
fn booked(dialect: &'static str, config: &str, bodies: &[String]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(provider(dialect));
    let gateway = Gateway::start(home.path(), &format!("{config}{CONFIG}"), &upstream.url());
    for body in bodies {
        assert_eq!(gateway.post(path(dialect), &[], body).0, 200);
    }
    gateway.stop();
    in_order(home.path(), bodies.len())
}

/// The same, with a new gateway for each request.
fn booked_by_many(dialect: &'static str, bodies: &[String]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(provider(dialect));
    for body in bodies {
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        assert_eq!(gateway.post(path(dialect), &[], body).0, 200);
        gateway.stop();
    }
    in_order(home.path(), bodies.len())
}

/// The same, with two gateways that take turns and share a store.
fn booked_by_two(dialect: &'static str, bodies: &[String]) -> Vec<Value> {
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let upstream = Upstream::start(provider(dialect));
    let shared = format!("{CONFIG}[state]\ndir = '{}'\n", home.path().join("plimsoll").display());
    let gateways = [home.path(), other.path()].map(|at| Gateway::start(at, &shared, &upstream.url()));
    for (at, body) in bodies.iter().enumerate() {
        assert_eq!(gateways[at % 2].post(path(dialect), &[], body).0, 200);
        // The other gateway reads what was booked.
        support::booked(home.path(), at + 1);
    }
    gateways.into_iter().for_each(Gateway::stop);
    in_order(home.path(), bodies.len())
}

fn path(dialect: &str) -> &'static str {
    if dialect == "anthropic" { "/v1/messages" } else { "/v1/responses" }
}

fn in_order(home: &Path, count: usize) -> Vec<Value> {
    let mut records = records(home);
    records.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
    assert_eq!(records.len(), count);
    records
}

fn near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= 100 + other / 50
}

#[test]
fn cuts_count_in_all_continuations_of_a_held_history() {
    for (dialect, requests) in chains() {
        let bodies = bodies(dialect, &requests);
        let (rewritten, observed) =
            (booked(dialect, "", &bodies), booked(dialect, "mode = 'observe'\n", &bodies));
        check(dialect, &requests, &bodies, &rewritten);
        // An observing gateway sees the same savings as hypothetical.
        for (at, (record, rewritten)) in observed.iter().zip(&rewritten).enumerate() {
            let would = record["would_have_saved_estimate"].as_i64().unwrap();
            assert_eq!(record["counterfactual"]["estimated"], false, "{dialect} {at}: {record}");
            let (net, would) =
                (rewritten["net_saved"].as_i64().unwrap().unsigned_abs(), would.unsigned_abs());
            assert!(net.abs_diff(would) <= net / 10, "{dialect} {at}: {would} is not {net}: {record}");
        }
    }
}

/// It does not matter which process made the cut.
#[test]
fn cuts_of_a_held_history_are_known_to_all_gateways_on_a_store() {
    for (dialect, mut requests) in chains() {
        // If the history begins like another gateway's, it is unknown whether it was read from the cache.
        requests.truncate(11);
        let bodies = bodies(dialect, &requests);
        for records in [booked_by_many(dialect, &bodies), booked_by_two(dialect, &bodies)] {
            check(dialect, &requests, &bodies, &records);
        }
    }
}

/// Requests: what each continues, its result, and whether its prompt was cut.
type Chains = Vec<(Past, String, bool)>;

fn chains() -> [(&'static str, Chains); 3] {
    let (one, other, short) = (log("first", 4000), log("second", 3000), "ok".to_owned());
    let kept: &[(Past, &str, bool)] = &[
        (Nothing, "none", false),
        (After(0), &one, true),
        (After(1), &short, true),
        (After(2), &other, true),
        (After(3), &short, true),
        // Continuing from before the first cut, and from between two cuts.
        (After(0), &short, false),
        (After(1), "fork", true),
        (After(6), &short, true),
        (Unseen, &short, false),
        (After(8), &other, true),
        (Unseen, &short, false),
        // The whole history is sent again.
        (Nothing, "again", false),
        (Nothing, &one, true),
        (After(12), &short, true),
        (After(13), &short, true),
    ];
    let named: &[(Past, &str, bool)] = &[
        (Named, &short, false),
        (Named, &one, true),
        (Named, &short, true),
        (Named, &other, true),
        (Named, &short, true),
        (After(2), "fork", true),
        (Unseen, &short, false),
    ];
    [("anthropic", kept), ("openai-responses", kept), ("openai-responses", named)].map(
        |(dialect, requests)| {
            let requests =
                requests.iter().map(|(from, result, is_cut)| (*from, (*result).to_owned(), *is_cut));
            (dialect, requests.collect())
        },
    )
}

fn bodies(dialect: &str, requests: &Chains) -> Vec<String> {
    let all = requests.iter().enumerate();
    all.map(|(at, (from, result, _))| request(dialect, *from, at, result)).collect()
}

fn check(dialect: &str, requests: &Chains, bodies: &[String], records: &[Value]) {
    let mut held = Held::new();
    for (at, (_, _, is_cut)) in requests.iter().enumerate() {
        let (read, new) = held.take(&bodies[at], &name(dialect, After(at)).unwrap());
        let (record, untouched) = (&records[at], &records[at]["counterfactual"]);
        assert_eq!(untouched["estimated"], *is_cut, "{dialect} {at}: {record}");
        let (found, cached) =
            (prompt(&untouched["tokens"]), untouched["tokens"]["cache_read"].as_u64().unwrap());
        assert!(near(found, read + new), "{dialect} {at}: {found} is not {}: {record}", read + new);
        assert!(near(cached, read), "{dialect} {at}: {cached} is not {read}: {record}");
        let net = record["net_saved"].as_i64().unwrap();
        assert_eq!(net > 0, *is_cut, "{dialect} {at}: {net}");
    }
}

/// A request that continues an answer belongs to the conversation of that answer and counts towards its budget, even if
/// the gateway that saw the answer has been restarted. This does not hold with another API key, or if the provider does
/// not store answers.
#[test]
fn a_response_chain_stays_one_conversation_across_restarts() {
    const KEYS: [(&str, &str); 2] = [("authorization", "Bearer one"), ("authorization", "Bearer two")];
    let config = format!("{CONFIG}[budget]\nconversation_tokens = 1\non_exceeded = 'refuse'\n");
    let keep = |body: String, store: bool| {
        merged(serde_json::from_str(&body).unwrap(), &json!({"store": store})).to_string()
    };
    let responses = |from, text: &str| request("openai-responses", from, 0, text);
    let claude = |from, text: &str| request("anthropic", from, 0, text);
    let without_input = json!({"model": "gpt-5", "previous_response_id": "resp_0"}).to_string();
    let in_object = json!({"model": "gpt-5", "conversation": {"id": "conv_1"}, "input": "go on"}).to_string();
    for (dialect, first, next, key, expected) in [
        ("openai-responses", responses(Nothing, "a"), responses(After(0), "b"), 0, 402),
        ("openai-responses", keep(responses(Nothing, "a"), true), responses(After(0), "b"), 0, 402),
        ("openai-responses", responses(Nothing, "a"), without_input, 0, 402),
        ("openai-responses", responses(Named, "a"), in_object, 0, 402),
        ("openai-responses", responses(Unseen, "a"), responses(Unseen, "b"), 0, 402),
        ("anthropic", claude(Nothing, "a"), claude(After(0), "b"), 0, 402),
        ("openai-responses", responses(Nothing, "a"), responses(After(0), "b"), 1, 200),
        ("openai-responses", responses(Nothing, "a"), responses(Unseen, "b"), 0, 200),
        ("openai-responses", keep(responses(Nothing, "a"), false), responses(After(0), "b"), 0, 200),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(provider(dialect));
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        assert_eq!(gateway.post(path(dialect), &KEYS[..1], &first).0, 200);
        support::booked(home.path(), 1);
        gateway.kill();
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        assert_eq!(gateway.post(path(dialect), &KEYS[key..=key], &next).0, expected, "{first} {next}");
        gateway.stop();
        let records = in_order(home.path(), 2);
        let is_one = records[0]["conversation"] == records[1]["conversation"];
        assert_eq!(is_one, expected == 402, "{first} {next}");
    }
}

/// Requests without input of their own can be continued like any other, and can begin a history.
#[test]
fn a_response_chain_continues_after_requests_without_input() {
    let from = |answer: usize| json!({"model": "gpt-5", "previous_response_id": format!("resp_{answer}")});
    let within = json!({"model": "gpt-5", "conversation": "conv_1"});
    let saying = |body: &Value| merged(body.clone(), &json!({"input": "go on"}));
    let first = json!({"model": "gpt-5", "input": "go"});
    for bodies in [
        [first, from(0), saying(&from(1)), from(2)],
        [within.clone(), within.clone(), saying(&within), within.clone()],
        [within.clone(), from(0), saying(&from(1)), within],
    ] {
        let bodies = bodies.map(|body| body.to_string());
        let by_one = booked("openai-responses", "", &bodies);
        for records in [by_one, booked_by_many("openai-responses", &bodies)] {
            let conversations: Vec<_> = records.iter().map(|record| &record["conversation"]).collect();
            assert_eq!(conversations, [conversations[0]; 4], "{bodies:?}");
        }
    }
}

/// If the provider compacts the history it holds, it is unknown what that would have left of what was cut.
#[test]
fn compaction_of_a_held_history_leaves_savings_unknown() {
    let long = log("first", 4000);
    for (threshold, results, expected) in [
        (200_000, ["none", &long, "ok"], [json!(false), json!(true), json!(true)]),
        (20_000, ["none", &long, "ok"], [json!(false), Value::Null, Value::Null]),
        (10, ["none", "some", "ok"], [json!(false), json!(false), json!(false)]),
    ] {
        let edits = json!([{"type": "compaction", "compact_threshold": threshold}]);
        let body = |(at, result): (usize, &&str)| {
            let past = if at == 0 { Nothing } else { After(at - 1) };
            let body = serde_json::from_str(&request("openai-responses", past, at, result)).unwrap();
            merged(body, &json!({"context_management": edits})).to_string()
        };
        let bodies: Vec<String> = results.iter().enumerate().map(body).collect();
        let records = booked("openai-responses", "", &bodies);
        let told: Vec<_> =
            records.iter().map(|record| record["counterfactual"]["estimated"].clone()).collect();
        assert_eq!(told, expected, "{threshold}");
    }
}

/// What was cut earlier is also missing from the prompts of background requests and of requests without messages, so
/// their figures are not claimed as the cost without the gateway.
#[test]
fn usage_of_a_cut_history_is_no_counterfactual() {
    for (result, is_known) in [("ok".to_owned(), true), (log("first", 4000), false)] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|request| {
            let text = request.text();
            let (id, status) = match &*text {
                text if text.contains("background") => ("resp_1", "queued"),
                text if text.contains("cmp_0") => ("resp_2", "completed"),
                _ if request.line.contains("/compact") => ("cmp_0", "completed"),
                "" => ("resp_1", "completed"),
                _ => ("resp_0", "completed"),
            };
            let usage = json!({"input_tokens": 2000, "output_tokens": 100, "total_tokens": 2100});
            let usage = if status == "queued" { Value::Null } else { usage };
            (200, json!({"id": id, "model": "gpt-5", "status": status, "usage": usage}).to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let begun = r#"{"model":"gpt-5","previous_response_id":"resp_0","input":"go on","background":true}"#;
        let compacted = r#"{"model":"gpt-5","previous_response_id":"resp_0"}"#;
        let after = r#"{"model":"gpt-5","previous_response_id":"cmp_0","input":"go on"}"#;
        let first = request("openai-responses", Nothing, 0, &result);
        for (method, path, body) in [
            ("POST", "", &*first),
            ("POST", "", begun),
            ("GET", "/resp_1", ""),
            ("POST", "/compact", compacted),
            ("POST", "", after),
        ] {
            let (status, _) = send(gateway.address, method, &format!("/v1/responses{path}"), &[], body);
            assert_eq!(status, 200, "{body}");
        }
        gateway.stop();
        for answer in ["resp_1", "cmp_0", "resp_2"] {
            let records = records(home.path());
            let told = records.iter().rfind(|record| record["answer"] == answer).unwrap();
            assert!(told["cost"]["total"].is_i64(), "{told}");
            assert_eq!(told["net_saved"].is_i64(), is_known, "{told}");
        }
    }
}

/// A client may send a summary sealed by the provider in place of the history that it summarises: the thread is found
/// by the seal.
#[test]
fn a_history_that_begins_with_a_provider_summary_joins_its_conversation() {
    const KEY: (&str, &str) = ("x-api-key", "one");
    let block = |member: &str, seal: &str| json!({"type": "compaction", "content": "so far", member: seal});
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "iterations": [{"type": "compaction", "input_tokens": 90, "output_tokens": 9}]});
    let whole = |block: &Value| {
        json!({"id": "msg_1", "type": "message", "model": "claude-opus-5-5", "content": [block],
            "stop_reason": "compaction", "usage": usage})
        .to_string()
    };
    let streamed = |start: Value, deltas: &[Value]| {
        let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
        let delta = |delta| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        let message = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-opus-5-5","usage":{"input_tokens":0}}}"#;
        let ended =
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"compaction"}},"usage":{usage}}}"#);
        let events = [message.to_owned(), start].into_iter().chain(deltas.iter().map(delta)).chain([ended]);
        events.map(|event| format!("data: {event}\n\n")).collect::<Vec<_>>().concat()
    };
    let signed = block("signature", "seal");
    let apart = [
        json!({"type": "compaction_delta", "content": "so far"}),
        json!({"type": "signature_delta", "signature": "seal"}),
    ];
    let encrypted = [json!({"type": "compaction_delta", "content": "so far", "encrypted_content": "seal"})];
    let thought = [json!({"type": "signature_delta", "signature": "seal"})];
    // The provider's answer, what the client continues with, its key, and whether that belongs to the same
    // conversation.
    let cases = [
        (whole(&signed), &signed, KEY, true),
        (whole(&block("encrypted_content", "seal")), &block("encrypted_content", "seal"), KEY, true),
        (streamed(json!({"type": "compaction", "content": ""}), &apart), &signed, KEY, true),
        (streamed(json!({"type": "compaction"}), &encrypted), &block("encrypted_content", "seal"), KEY, true),
        (streamed(json!({"type": "thinking", "thinking": ""}), &thought), &signed, KEY, false),
        (whole(&signed), &block("signature", "another"), KEY, false),
        (whole(&signed), &block("signature", ""), KEY, false),
        (whole(&block("signature", "")), &block("signature", ""), KEY, false),
        (whole(&signed), &signed, ("x-api-key", "two"), false),
    ];
    let all = cases.iter().flat_map(|case| [(case, false), (case, true)]);
    for ((answer, begins, key, belongs), restarts) in all {
        let home = tempfile::tempdir().unwrap();
        let told = answer.clone();
        let upstream = Upstream::start(move |_| (200, told.clone()));
        let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let user = |text: &str| json!({"role": "user", "content": text});
        let summary = json!({"role": "assistant", "content": [begins]});
        let body =
            |messages: Value| json!({"model": "claude-opus-5-5", "max_tokens": 9, "messages": messages});
        let asked = merged(body(json!([user("go")])), &json!({"compaction": {"type": "summarize"}}));
        assert_eq!(gateway.post("/v1/messages", &[KEY], &asked.to_string()).0, 200);
        support::booked(home.path(), 1);
        if restarts {
            gateway.kill();
            gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        }
        let after = body(json!([summary, user("next")])).to_string();
        assert_eq!(gateway.post("/v1/messages", &[*key], &after).0, 200);
        gateway.stop();
        let records = in_order(home.path(), 2);
        let [before, after] = [&records[0], &records[1]];
        assert_eq!(before["conversation"] == after["conversation"], *belongs, "{answer} {begins}");
        assert_eq!(before["thread"] == after["parent"], *belongs, "{after}");
        assert_ne!(before["thread"], after["thread"]);
    }
}
