//! What an upstream refuses: which of the edits and additions are blamed, and what the client gets.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream, booked, records};

use super::{CONFIG, answer, log, request};

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

/// What was sent before an edit that is refused is still a prefix, unless some of it was edited.
#[test]
fn an_original_breaks_the_prefix_only_after_edits() {
    for (accepted, expected) in [(0, "kept"), (1, "broken")] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |received| {
            if received.text().matches("plimsoll:").count() > accepted {
                let error = json!({"type": "invalid_request_error", "message": "no more edits"});
                return (400, json!({"type": "error", "error": error}).to_string());
            }
            answer(received)
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let texts = [log("first", 4000), log("second", 4000)];
        for count in 0..=accepted + 1 {
            let results: Vec<&str> = texts[..count].iter().map(String::as_str).collect();
            let body = request("claude-sonnet-4-6", &results);
            assert_eq!(gateway.post("/v1/messages", &[], &body).0, 200);
        }
        gateway.stop();
        let records = records(home.path());
        let last = records.last().unwrap();
        assert_eq!(last["edits"]["original_resent"], json!(true));
        assert_eq!(last["prefix"], expected, "{last}");
        if accepted == 0 {
            assert_eq!(last["net_saved"], 0, "{last}");
        }
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
