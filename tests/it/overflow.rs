//! Prompts that turn out to be too long: room is made, the request is sent again, and the client does not notice.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use serde_json::{Value, json};

use crate::cli::json as printed;
use crate::support::{Answer, Gateway, Received, Upstream, records};

/// Settings under which nothing is cleared or shortened for other reasons.
const CONFIG: &str = "[listen]\nadmin = 'off'\n[clear]\nenabled = false\n[summarize]\nenabled = false\n[truncate]\nmax_bytes = '1MB'\n";

/// The largest prompt that the provider accepts, in tokens of four bytes.
const LIMIT: usize = 50_000;

/// A dialect as clients and servers see it.
struct Dialect {
    path: &'static str,
    request: fn(usize) -> Value,
    /// The answer to a prompt of this many tokens.
    answer: fn(usize) -> Value,
    /// The refusal of a prompt of this many tokens: status and body.
    overflow: fn(usize) -> Answer,
    /// Whether the refusal names the limit.
    tells: bool,
}

const GOAL: &str = "Find the bug, and keep the password 4711 in mind";

fn output(at: usize) -> String {
    let lines: Vec<String> = (0..500).map(|line| format!("result {at} line {line}")).collect();
    lines.join("\n")
}

const DIALECTS: [Dialect; 4] = [
    Dialect {
        path: "/v1/messages",
        request: anthropic,
        answer: anthropic_answer,
        overflow: |tokens| {
            (
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": format!("prompt is too long: {tokens} tokens > {LIMIT} maximum")}})
                .to_string(),
            )
        },
        tells: true,
    },
    Dialect {
        path: "/v1/chat/completions",
        request: chat,
        answer: chat_answer,
        overflow: |tokens| {
            (400, json!({"error": {"message": format!("This model's maximum context length is {LIMIT} tokens. However, \
            your messages resulted in {tokens} tokens. Please reduce the length of the messages."),
            "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}).to_string())
        },
        tells: true,
    },
    Dialect {
        path: "/v1/responses",
        request: responses,
        answer: responses_answer,
        overflow: |_| {
            let failed = json!({"type": "response.failed", "response": {"status": "failed", "error":
            {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model. \
             Please adjust your input and try again."}}});
            (
                200,
                format!(
                    "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{}}}}\n\n\
                       event: response.failed\ndata: {failed}\n\n"
                ),
            )
        },
        tells: false,
    },
    Dialect {
        path: "/v1beta/models/m:generateContent",
        request: gemini,
        answer: gemini_answer,
        overflow: |tokens| {
            (400, json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": format!("The input token count \
            ({tokens}) exceeds the maximum number of tokens allowed ({LIMIT}).")}}).to_string())
        },
        tells: true,
    },
];

fn anthropic(steps: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": GOAL})];
    for at in 0..steps {
        let id = format!("t{at}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "run", "input": {"at": at}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": output(at)}]}));
    }
    json!({"model": "m", "max_tokens": 1000, "messages": messages})
}

fn chat(steps: usize) -> Value {
    let mut messages =
        vec![json!({"role": "system", "content": "s"}), json!({"role": "user", "content": GOAL})];
    for at in 0..steps {
        let id = format!("t{at}");
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "run", "arguments": format!("{{\"at\":{at}}}")}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output(at)}));
    }
    json!({"model": "m", "messages": messages})
}

fn responses(steps: usize) -> Value {
    let mut input =
        vec![json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": GOAL}]})];
    for at in 0..steps {
        let id = format!("t{at}");
        input.push(json!({"type": "function_call", "call_id": id, "name": "run", "arguments": format!("{{\"at\":{at}}}")}));
        input.push(json!({"type": "function_call_output", "call_id": id, "output": output(at)}));
    }
    json!({"model": "m", "stream": true, "input": input})
}

fn gemini(steps: usize) -> Value {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": GOAL}]})];
    for at in 0..steps {
        contents
            .push(json!({"role": "model", "parts": [{"functionCall": {"name": "run", "args": {"at": at}}}]}));
        contents.push(json!({"role": "user", "parts": [
            {"functionResponse": {"name": "run", "response": {"output": output(at)}}}]}));
    }
    json!({"contents": contents})
}

fn anthropic_answer(tokens: usize) -> Value {
    json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 1}})
}

fn chat_answer(tokens: usize) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"finish_reason": "stop", "message": {"content": "ok"}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
}

fn responses_answer(tokens: usize) -> Value {
    json!({"id": "r", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": tokens, "output_tokens": 1}})
}

fn gemini_answer(tokens: usize) -> Value {
    json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 1}})
}

/// A provider that refuses prompts over the limit.
fn provider(dialect: &'static Dialect) -> Upstream {
    Upstream::start(move |received: &Received| {
        let tokens = received.body.len() / 4;
        if tokens > LIMIT { (dialect.overflow)(tokens) } else { (200, (dialect.answer)(tokens).to_string()) }
    })
}

fn too_long(received: &[Received]) -> usize {
    received.iter().filter(|one| one.body.len() / 4 > LIMIT).count()
}

/// Where the provider holds the history, the request's own results are cut, whether or not the refusal says by how much
/// it is too long. A retry is sent in the same form.
#[test]
fn an_overflow_after_a_held_history_cuts_new_results() {
    const HELD: usize = 30_000;
    let result = |at: usize| {
        let lines: Vec<String> = (0..1500).map(|line| format!("result {at} line {line}")).collect();
        lines.join("\n")
    };
    let of_thread = |name: Value| {
        let part =
            |at| json!({"type": "tool_result", "tool_use_id": format!("t{at}"), "content": result(at)});
        let parts: Vec<Value> = (0..4).map(part).collect();
        json!({"model": "m", "max_tokens": 1000, "thread": {"type": "continue", "previous_message_id": name},
            "messages": [{"role": "user", "content": parts}]})
    };
    let of_responses = |key: &str, name: Value| {
        let item =
            |at| json!({"type": "function_call_output", "call_id": format!("t{at}"), "output": result(at)});
        json!({"model": "m", key: name, "input": (0..4).map(item).collect::<Vec<Value>>()})
    };
    let claude = of_thread(json!("msg_1"));
    let (answer, named) =
        (of_responses("previous_response_id", json!("r1")), of_responses("conversation", json!("c1")));
    for (name, dialect, request, told) in [
        ("an answer, with figures", &DIALECTS[2], &answer, DIALECTS[1].overflow),
        ("an answer, without figures", &DIALECTS[2], &answer, |_| {
            (
                400,
                json!({"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}})
                    .to_string(),
            )
        }),
        ("a conversation", &DIALECTS[2], &named, DIALECTS[1].overflow),
        ("a thread, with figures", &DIALECTS[0], &claude, DIALECTS[0].overflow),
        ("a thread, without figures", &DIALECTS[0], &claude, |_| {
            (
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "Input is too long for requested model."}})
                .to_string(),
            )
        }),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received: &Received| {
            let tokens = HELD + received.body.len() / 4;
            if tokens > LIMIT { told(tokens) } else { (200, (dialect.answer)(tokens).to_string()) }
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        for _ in 0..2 {
            let (status, body) = gateway.post(dialect.path, &[], &request.to_string());
            assert_eq!(status, 200, "{name}: {}", String::from_utf8_lossy(&body));
        }
        gateway.stop();
        let received = upstream.received();
        let bodies: Vec<Value> =
            received.iter().map(|one| serde_json::from_slice(&one.body).unwrap()).collect();
        assert_eq!((&bodies[0], bodies.last()), (request, bodies.get(bodies.len() - 2)), "{name}");
        for body in &bodies {
            for key in ["thread", "previous_response_id", "conversation"] {
                assert_eq!(body[key], request[key], "{name}");
            }
        }
        let records = records(home.path());
        let event = &records.iter().find(|one| one["attempt"] == 1).unwrap()["edits"]["event"];
        assert_eq!((&event["rung"], &event["dropped"]), (&json!("cut"), &json!(0)), "{name}: {event}");
    }
}

/// A limit that was reported once is remembered after a restart.
#[test]
fn learned_windows_survive_a_restart() {
    for dialect in DIALECTS.iter().filter(|dialect| dialect.tells) {
        let home = tempfile::tempdir().unwrap();
        let upstream = provider(dialect);
        for steps in [14..30, 30..60] {
            let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
            for steps in steps {
                let (status, _) = gateway.post(dialect.path, &[], &(dialect.request)(steps).to_string());
                assert_eq!(status, 200, "{}: {steps}", dialect.path);
            }
            gateway.stop();
        }
        assert_eq!(too_long(&upstream.received()), 1, "{}", dialect.path);
    }
}

/// A long turn in a window unknown to the gateway continues, in every dialect.
#[test]
fn clients_never_see_an_overflow() {
    for dialect in &DIALECTS {
        let home = tempfile::tempdir().unwrap();
        let upstream = provider(dialect);
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        for steps in 14..60 {
            let (status, body) = gateway.post(dialect.path, &[], &(dialect.request)(steps).to_string());
            let body = String::from_utf8(body).unwrap();
            assert!(status == 200 && !body.contains("exceeds"), "{}: {status} {body}", dialect.path);
        }
        gateway.stop();
        let received = upstream.received();
        let refused = too_long(&received);
        assert!((1..6).contains(&refused), "{}: {refused} refused", dialect.path);
        assert_eq!(received.len(), 46 + refused);
        // A provider that names its limit has to do so only once.
        assert!(!dialect.tells || refused == 1, "{}: {refused}", dialect.path);
        assert!(received.iter().all(|one| one.text().contains(GOAL)), "{}", dialect.path);
        let last = received.last().unwrap().text();
        assert!(last.contains("[plimsoll: ") && last.contains("removed here to fit"), "{}", dialect.path);
        let records = records(home.path());
        let of = |key: &str, value: Value| records.iter().filter(|one| one[key] == value).count();
        assert_eq!(
            (records.len(), of("overflow", json!(true)), of("attempt", json!(1))),
            (received.len(), refused, refused)
        );
        let event = records.iter().find(|one| one["attempt"] == 1).unwrap();
        assert_eq!(event["edits"]["event"]["rung"], "half", "{event}");
        // Any longer request would have been refused.
        let untouched = |one: &Value| {
            let counts = one["counterfactual"]["tokens"].as_object().into_iter().flatten();
            let prompt = counts.filter(|(kind, _)| !["output", "reasoning"].contains(&kind.as_str()));
            prompt.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
        };
        assert!(
            records.iter().all(|one| untouched(one) <= LIMIT as u64 || !dialect.tells),
            "{}",
            dialect.path
        );
        for one in &records {
            assert!(one["attempt"] != 1 || one["counterfactual"].is_null(), "{one}");
            assert!(one["overflow"] != true || one["bytes"]["saved"] == 0, "{one}");
        }
        let output = event["edits"]["splice"]["output"].as_str().unwrap();
        let path = last.split("full output: ").nth(1).unwrap().split([';', ']']).next().unwrap();
        assert!(
            Path::new(path).exists() && home.path().join(format!("plimsoll/outputs/{output}.txt")).exists()
        );
        assert!(fs::read_to_string(path).unwrap().contains("result 3 line 7\n"), "the full text is there");
    }
}

/// The parts of the newest prompt add up to what the provider counted, region by region; a note is a region of its own.
#[test]
fn regions_of_a_window_add_up_to_the_prompt() {
    for dialect in &DIALECTS {
        let home = tempfile::tempdir().unwrap();
        let upstream = provider(dialect);
        let config =
            format!("{CONFIG}[state]\ndir = '{}'\n[window]\nsize = {LIMIT}\n", home.path().display());
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for steps in [3, 14, 30] {
            let mut request = (dialect.request)(steps);
            let tool = json!({"name": "run", "description": "runs", "parameters": {"type": "object"}});
            request["tools"] = json!([tool]);
            gateway.post(dialect.path, &[], &request.to_string());
        }
        gateway.stop();
        let command =
            |words: &[&str]| printed(home.path(), &[words, &["--json", "-c", "gateway.toml"]].concat());
        let id = command(&["conversations"])["conversations"][0]["id"].as_str().unwrap().to_owned();
        let inspected = command(&["inspect", &id]);
        let number = |value: &Value| value.as_u64().unwrap();
        let requests = inspected["requests"].as_array().unwrap();
        let prompts: Vec<u64> =
            requests.iter().map(|one| number(&one["record"]["tokens"]["input"])).collect();
        for (one, prompt) in requests.iter().zip(&prompts) {
            let made = &one["record"]["prompt"];
            let shares = ["tools", "system", "user", "assistant", "reasoning", "results"];
            let sum: u64 = shares.iter().map(|share| number(&made[share])).sum();
            assert_eq!(sum, *prompt, "{}: {made}", dialect.path);
        }
        let regions = inspected["fill"]["regions"].as_array().unwrap();
        let tokens = |region: &&Value| number(&region["tokens"]);
        let (memory, output) = (&regions[4], &regions[5]);
        assert_eq!((&memory["name"], &output["name"]), (&json!("memory"), &json!("output")));
        assert!(tokens(&memory) > 0, "{}: {memory}", dialect.path);
        assert_eq!(
            Some(&regions[..5].iter().map(|region| tokens(&region)).sum()),
            prompts.last(),
            "{regions:?}"
        );
    }
}

/// The window may be smaller than assumed, and the error may be in an answer that was not checked before it was passed
/// on, as a text or only as a code: the client's retry is answered, and so is the rest of the conversation.
#[test]
fn a_smaller_window_is_learned_by_the_second_request() {
    let dialect = &DIALECTS[2];
    let by_code = [
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"It exceeds what is set up."}}}"#,
        r#"{"type":"error","code":"context_length_exceeded","message":"It exceeds what is set up.","param":null}"#,
    ];
    let by_code = by_code.map(|event| {
        format!("data: {{\"type\":\"response.created\",\"response\":{{}}}}\n\ndata: {event}\n\n")
    });
    for told in [(dialect.overflow)(0).1].into_iter().chain(by_code) {
        let home = tempfile::tempdir().unwrap();
        let refusal = told.clone();
        let upstream = Upstream::start(move |received: &Received| {
            let tokens = received.body.len() / 4;
            (200, if tokens > LIMIT { refusal.clone() } else { (dialect.answer)(tokens).to_string() })
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let answers = [14, 30, 30, 31].map(|steps| {
            let mut request = (dialect.request)(steps);
            request["model"] = json!("gpt-5");
            let (status, body) = gateway.post(dialect.path, &[], &request.to_string());
            (status, String::from_utf8(body).unwrap().contains("exceeds"))
        });
        assert_eq!(answers, [(200, false), (200, true), (200, false), (200, false)], "{told}");
        gateway.stop();
        let records = records(home.path());
        let overflows = records.iter().filter(|record| record["overflow"] == true).count();
        let received = upstream.received();
        assert_eq!((overflows, records.len()), (too_long(&received), received.len()), "{told}");
    }
}

/// The limit is learned from an error within an answer too, but only if room is to be made for that request.
#[test]
fn an_overflow_within_an_answer_teaches_the_window_if_enabled() {
    let dialect = &DIALECTS[1];
    for (enabled, expected) in [(true, LIMIT), (false, 128_000)] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received: &Received| {
            let tokens = received.body.len() / 4;
            let (_, refusal) = (dialect.overflow)(tokens);
            (
                200,
                if tokens > LIMIT {
                    format!("data: {refusal}\n\n")
                } else {
                    (dialect.answer)(tokens).to_string()
                },
            )
        });
        let config = format!("{CONFIG}[recover]\nenabled = {enabled}\n");
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for steps in [30, 2] {
            let mut request = (dialect.request)(steps);
            request["model"] = json!("gpt-4o");
            request["stream"] = json!(true);
            gateway.post(dialect.path, &[], &request.to_string());
        }
        gateway.stop();
        let records = records(home.path());
        assert!(records.iter().any(|record| record["overflow"] == true), "{enabled}");
        let last = records.iter().map(|record| record["window"]["tokens"].as_u64()).next_back().flatten();
        assert_eq!(last, Some(expected as u64), "{enabled}");
    }
}

/// Servers report an overflow in many ways, some of them as a server error.
#[test]
fn overflows_of_compatible_servers_are_recovered_too() {
    let overflows: [fn(usize) -> Answer; 5] = [
        |_| {
            (
                400,
                json!({"error": {"message": "invalid params, context window exceeds limit (2013)"}})
                    .to_string(),
            )
        },
        |tokens| {
            let message = format!(
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {LIMIT}. Given: {tokens} \
                 `inputs` tokens and 1024 `max_new_tokens`"
            );
            (422, json!({"error": message, "error_type": "validation"}).to_string())
        },
        |_| {
            let message = "Context size has been exceeded.";
            (500, json!({"error": {"code": 500, "message": message, "type": "server_error"}}).to_string())
        },
        |tokens| {
            let message = format!("prompt is too long: {tokens} tokens > {LIMIT} maximum");
            let raw = json!({"type": "error", "error": {"message": message}}).to_string();
            let error = json!({"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}});
            (400, json!({"error": error}).to_string())
        },
        |_| {
            let message = format!(
                "Trying to keep the first 60000 tokens when context the overflows. However, the \
                model is loaded with context length of only {LIMIT} tokens, which is not enough."
            );
            (200, json!({"error": {"message": message}}).to_string())
        },
    ];
    let dialect = &DIALECTS[1];
    for overflow in overflows {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received: &Received| {
            let tokens = received.body.len() / 4;
            if tokens > LIMIT { overflow(tokens) } else { (200, (dialect.answer)(tokens).to_string()) }
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        for steps in [14, 30, 31] {
            let (status, body) = gateway.post(dialect.path, &[], &(dialect.request)(steps).to_string());
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        }
        let received = upstream.received();
        let refused = too_long(&received);
        assert!((1..3).contains(&refused) && received.len() == 3 + refused, "{refused} refused");
    }
}

/// Room is also made in prompts that seem far from the window, and by dropping messages. A template may not accept what
/// remains.
#[test]
fn a_chat_template_that_rejects_the_rest_gets_the_original() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received: &Received| {
        if received.text().contains("plimsoll") {
            let error =
                json!({"message": "Error rendering prompt with jinja template: \"roles must alternate\""});
            return (200, format!("event: error\ndata: {}\n\n", json!({"error": error})));
        }
        (200, chat_answer(9).to_string())
    });
    let gateway = Gateway::start(home.path(), &format!("{CONFIG}[ladder]\nmessages = 6\n"), &upstream.url());
    let bodies = [1, 2, 3, 4].map(|turns| {
        let said =
            |at| [json!({"role": "assistant", "content": "a"}), json!({"role": "user", "content": at})];
        let turns = (0..turns).flat_map(|at| said(output(at)[..4000].to_owned()));
        let goal = json!({"role": "user", "content": GOAL});
        json!({"model": "m", "messages": std::iter::once(goal).chain(turns).collect::<Vec<_>>()}).to_string()
    });
    for body in &bodies {
        let (status, answer) = gateway.post("/v1/chat/completions", &[], body);
        assert!(status == 200 && !String::from_utf8_lossy(&answer).contains("jinja"));
    }
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    let edited = sent.iter().filter(|text| !bodies.contains(text)).count();
    assert!(edited == 1 && bodies.iter().all(|body| sent.contains(body)), "{edited} edited");
}

/// If the original is refused too, the edit is not blamed: the next request is shortened again.
#[test]
fn a_refusal_of_any_form_of_a_request_does_not_end_editing() {
    let error = json!({"error": {"message": "Error rendering prompt with jinja template"}}).to_string();
    for refusal in [error.clone(), format!("event: error\ndata: {error}\n\n")] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received: &Received| {
            let is_first = !received.text().contains("result 1");
            (200, if is_first { refusal.clone() } else { chat_answer(9).to_string() })
        });
        let gateway = Gateway::start(home.path(), &CONFIG.replace("1MB", "40KiB"), &upstream.url());
        let bodies = [1, 2].map(|steps| chat(steps).to_string().replace("line", &"line".repeat(40)));
        for body in &bodies {
            assert_eq!(gateway.post("/v1/chat/completions", &[], body).0, 200);
        }
        let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
        assert!(sent.len() == 3 && sent[1] == bodies[0], "{}", sent.len());
        assert!(!bodies.contains(&sent[0]) && !bodies.contains(&sent[2]));
    }
}

/// What was sent after an overflow is sent from then on, also after a restart.
#[test]
fn recovered_conversations_continue_to_grow() {
    let dialect = &DIALECTS[0];
    let home = tempfile::tempdir().unwrap();
    let upstream = provider(dialect);
    let mut gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for steps in [20, 24, 25, 26, 27] {
        assert_eq!(gateway.post(dialect.path, &[], &(dialect.request)(steps).to_string()).0, 200);
        gateway.stop();
        gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    }
    let messages = |one: &Received| -> Vec<Value> {
        let body: Value = serde_json::from_slice(&one.body).unwrap();
        let mut list = body["messages"].as_array().unwrap().clone();
        for block in list.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
        if let [block] = &list[0]["content"].as_array().cloned().unwrap_or_default()[..] {
            list[0]["content"] = block["text"].clone();
        }
        list
    };
    let sent: Vec<Vec<Value>> =
        upstream.received().iter().filter(|one| one.body.len() / 4 <= LIMIT).map(messages).collect();
    assert_eq!((sent.len(), too_long(&upstream.received())), (5, 1));
    for pair in sent[1..].windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "what was sent is sent again");
    }
}

/// If a request is under way several times at once, room is made only once, and every copy is answered.
#[test]
fn concurrent_copies_share_one_recovery() {
    const COPIES: usize = 4;
    let dialect = &DIALECTS[0];
    let home = tempfile::tempdir().unwrap();
    // All are refused before the first of them is sent again.
    let (together, refused) = (Barrier::new(COPIES), AtomicU32::new(0));
    let upstream = Upstream::start(move |received: &Received| {
        let tokens = received.body.len() / 4;
        if tokens <= LIMIT {
            return (200, (dialect.answer)(tokens).to_string());
        }
        if (refused.fetch_add(1, Ordering::Relaxed) as usize) < COPIES {
            together.wait();
        }
        (dialect.overflow)(tokens)
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for steps in 14..16 {
        assert_eq!(gateway.post(dialect.path, &[], &(dialect.request)(steps).to_string()).0, 200);
    }
    let body = (dialect.request)(30).to_string();
    std::thread::scope(|scope| {
        let copies = [(); COPIES].map(|()| scope.spawn(|| gateway.post(dialect.path, &[], &body).0));
        for copy in copies {
            assert_eq!(copy.join().unwrap(), 200);
        }
    });
    gateway.stop();
    let received = upstream.received();
    assert_eq!((received.len(), too_long(&received)), (2 + 2 * COPIES, COPIES));
    let events = records(home.path()).iter().filter(|one| !one["edits"]["event"].is_null()).count();
    assert_eq!(events, 1);
}

/// If no room can be made, or none may be, the provider's error is passed on unchanged.
#[test]
fn unrecoverable_overflows_are_passed_on() {
    const ERROR: &str =
        r#"{"type": "error",  "error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#;
    for (config, steps, expected) in [
        ("[recover]\nenabled = false\n", 30, 1),
        ("mode = 'observe'\n", 30, 1),
        // A single message cannot be shortened.
        ("", 0, 1),
        ("[recover]\nmax_attempts = 2\n", 30, 3),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|_: &Received| (400, ERROR.to_owned()));
        let config = if config.starts_with("mode") {
            format!("{config}{CONFIG}")
        } else {
            format!("{CONFIG}{config}")
        };
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        let (status, body) = gateway.post("/v1/messages", &[], &anthropic(steps).to_string());
        assert_eq!((status, String::from_utf8(body).unwrap()), (400, ERROR.to_owned()), "{config}");
        assert_eq!(upstream.received().len(), expected, "{config}");
    }
}

/// Other refusals make no room.
#[test]
fn other_refusals_are_not_overflows() {
    const ERROR: &str = r#"{"type":"error","error":{"message":"max_tokens: 9 > 8, which is the maximum"}}"#;
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_: &Received| (400, ERROR.to_owned()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (status, body) = gateway.post("/v1/messages", &[], &anthropic(30).to_string());
    assert_eq!((status, String::from_utf8(body).unwrap()), (400, ERROR.to_owned()));
    let received = upstream.received();
    assert!(
        received.iter().all(|one| !one.text().contains("removed here to fit")),
        "{} sent",
        received.len()
    );
}

/// If an answer ends because the window is full, it is requested again with more room, unless part of it was passed on.
#[test]
fn an_answer_cut_by_a_full_window_is_requested_again() {
    let home = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::start(move |_: &Received| {
        let mut answer = anthropic_answer(10);
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            answer["stop_reason"] = json!("model_context_window_exceeded");
        }
        (200, answer.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (status, body) = gateway.post("/v1/messages", &[], &anthropic(30).to_string());
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["stop_reason"]), (200, &json!("end_turn")));
    let received = upstream.received();
    assert!(received.len() == 2 && received[1].body.len() < received[0].body.len() * 3 / 4);
}

/// If no more room may be made, the client gets the answer that was cut off, which is booked like any other answer.
#[test]
fn an_answer_cut_by_a_full_window_is_no_refusal_if_it_is_delivered() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_: &Received| {
        let mut answer = anthropic_answer(10);
        answer["stop_reason"] = json!("model_context_window_exceeded");
        (200, answer.to_string())
    });
    let config = format!("{CONFIG}[recover]\nmax_attempts = 1\n");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let (status, body) = gateway.post("/v1/messages", &[], &anthropic(30).to_string());
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["stop_reason"]), (200, &json!("model_context_window_exceeded")));
    gateway.stop();
    let records = records(home.path());
    let booked = records.iter().map(|record| {
        (record["overflow"] == true, record["bytes"]["saved"].as_u64().is_some_and(|saved| saved > 0))
    });
    assert_eq!(booked.collect::<Vec<_>>(), [(true, false), (false, true)], "{records:?}");
}

/// The tokens of a prompt for a provider that counts any run of white space as one character.
fn spaced(body: &[u8]) -> usize {
    let text = String::from_utf8_lossy(body).replace("\\n", " ");
    text.split(' ').filter(|word| !word.is_empty()).map(|word| word.len() + 1).sum::<usize>() / 4
}

/// If a provider reports an overflow in known words, it is asked before anything is removed that might fit.
#[test]
fn nothing_is_removed_before_the_provider_refuses() {
    type Says = fn(usize) -> String;
    const WINDOW: usize = 200_000;
    let known = |tokens: usize| format!("prompt is too long: {tokens} tokens > {WINDOW} maximum");
    let unknown = |_: usize| "The request was not understood.".to_owned();
    let blank = "\n".to_owned() + &" ".repeat(199);
    let text = "some words of a log\n".repeat(10);
    // For the last two requests received: whether each has the whole history, and whether it was answered.
    for (before, pasted, (refusal, says), expected) in [
        (200, blank.repeat(2_800), (400, known as Says), &[(true, true), (true, true)][..]),
        (200, text.repeat(2_800), (400, known), &[(true, false), (false, true), (false, true)]),
        // Text that was marked for the cache is sent unchanged first.
        (200, text.repeat(2_800), (400, unknown), &[(true, false), (true, false), (false, true)]),
        // Any failure may have that reason.
        (200, text.repeat(2_800), (413, unknown), &[(true, false), (false, true)]),
        (200, text.repeat(2_800), (429, unknown), &[(true, false), (false, true)]),
        (200, text.repeat(2_800), (529, unknown), &[(true, false), (false, true)]),
        // Even a low estimate exceeds the limit.
        (340, text.repeat(1_100), (400, known), &[(false, true), (false, true)]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received: &Received| {
            let tokens = spaced(&received.body);
            let error = || json!({"error": {"type": "invalid_request_error", "message": says(tokens)}});
            if tokens > WINDOW {
                (refusal, error().to_string())
            } else {
                (200, anthropic_answer(tokens).to_string())
            }
        });
        let own = format!(
            "[upstream.anthropic]\nbase_url = 'http://api.anthropic.com'\nproxy = '{}'\n",
            upstream.url()
        );
        let gateway = Gateway::configured(home.path(), &format!("{}{own}", CONFIG.replace("1MB", "9MB")));
        let mut said = vec![GOAL.to_owned()];
        let mut messages = Vec::new();
        said.extend((0..9).map(|at| format!("{at}: {}", text.repeat(before))));
        said.extend([pasted, "go on".to_owned()]);
        for (at, said) in said.iter().enumerate() {
            messages.push(json!({"role": "user", "content": said}));
            let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages});
            let (status, _) = gateway.post("/v1/messages", &[], &body.to_string());
            assert_eq!(status == refusal, at == 10 && says(9) == unknown(9), "{at}: {status}");
            messages.push(json!({"role": "assistant", "content": "ok"}));
        }
        gateway.stop();
        let received = &upstream.received()[10..];
        let is_whole = |text: &str| (0..9).all(|at| text.contains(&format!("\"{at}: some words")));
        let found: Vec<(bool, bool)> =
            received.iter().map(|one| (is_whole(&one.text()), spaced(&one.body) <= WINDOW)).collect();
        assert_eq!(found, expected, "{} {refusal} {}", said[10].len(), says(9));
        assert!(received.iter().all(|one| one.text().contains(GOAL)));
    }
}
