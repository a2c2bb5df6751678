//! The figures of a record, and what is null where the provider does not state it.

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, records};

use super::{CONFIG, log, prompt, request, two_requests};

/// If the provider does not report for how long something is written to the cache, the time to live in the request is
/// assumed.
#[test]
fn an_unstated_cache_ttl_is_the_requested_one() {
    for (system, result, expected) in [
        (None, "5m", (900, 0)),
        (None, "1h", (0, 900)),
        (Some("1h"), "1h", (0, 900)),
        (Some("1h"), "5m", (900, 0)),
    ] {
        let home = tempfile::tempdir().unwrap();
        let usage = json!({"input_tokens": 9, "cache_creation_input_tokens": 900, "output_tokens": 7});
        let answer = json!({"id": "msg_1", "type": "message", "model": "claude-sonnet-4-6",
            "stop_reason": "end_turn", "usage": usage});
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body: Value = serde_json::from_str(&request(&["short"])).unwrap();
        let mark = |ttl: &str| json!({"type": "ephemeral", "ttl": ttl});
        body["messages"][2]["content"][0]["cache_control"] = mark(result);
        if let Some(system) = system {
            body["system"] = json!([{"type": "text", "text": "Be brief", "cache_control": mark(system)}]);
        }
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
        gateway.stop();
        let tokens = &records(home.path())[0]["tokens"];
        let found = (&tokens["cache_write_5m"], &tokens["cache_write_1h"]);
        assert_eq!(found, (&json!(expected.0), &json!(expected.1)), "{system:?} {result}");
    }
}

#[test]
fn records_have_relation_position_and_composition() {
    let records = two_requests("", &log("first", 500), &log("second", 500));
    let places: Vec<_> = records
        .iter()
        .map(|record| ["prior", "turn", "step", "prefix"].map(|key| record[key].clone()))
        .collect();
    assert_eq!(places[0], [json!(0), json!(1), json!(2), Value::Null]);
    assert_eq!(places[1], [json!(3), json!(1), json!(3), json!("kept")]);
    let made = &records[1]["prompt"];
    assert_eq!((&made["tools"], &made["reasoning"]), (&json!(0), &json!(0)));
    let results = made["results"].as_u64().unwrap();
    assert!(results * 10 > prompt(&records[1]["tokens"]) * 9, "{made}");
    assert!(made["system"].as_u64() > Some(0) && made["assistant"].as_u64() > Some(0), "{made}");
    // The window consists of instructions, tools, a summary (there is none here), the answer's reserve and the rest.
    let window = &records[1]["window"];
    let number = |value: &Value| value.as_u64().unwrap();
    let regions = [&made["system"], &made["tools"], &window["reserved"], &window["history_budget_estimate"]];
    assert_eq!(regions.into_iter().map(number).sum::<u64>(), number(&window["tokens"]), "{window}");
}

#[test]
fn unknown_figures_are_null() {
    let refused = json!({"type": "error", "error": {"type": "overloaded_error"}});
    let silent = json!({"id": "msg_1", "model": "claude-sonnet-4-6", "stop_reason": "end_turn",
        "usage": {"output_tokens": 7}});
    for (status, answer, output, unknown) in
        [(529, refused, Value::Null, false), (200, silent, json!(7), true)]
    {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |_| (status, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post("/v1/messages", &[], &request(&[&log("first", 4000)]));
        gateway.stop();
        let record = &records(home.path())[0];
        for key in ["cost", "counterfactual", "net_saved"] {
            assert_eq!(record[key], Value::Null, "{key} {record}");
        }
        assert_eq!(record["tokens"]["output"], output);
        assert_eq!(record["prompt_is_unknown"], unknown);
    }
}

/// An answer that ended without an output figure has an unknown cost. One that broke off costs at least its prompt.
#[test]
fn an_unstated_output_is_unknown() {
    const MODEL: &str = "claude-sonnet-4-6";
    let claude = |stop| {
        json!({"id": "msg_1", "model": MODEL, "stop_reason": stop, "usage": {"input_tokens": 1000}})
            .to_string()
    };
    let chat = |usage: Value| {
        json!({"id": "c", "model": MODEL, "choices": [{"finish_reason": "stop"}], "usage": usage}).to_string()
    };
    let start = json!({"type": "message_start",
        "message": {"id": "msg_1", "model": MODEL, "usage": {"input_tokens": 1000}}});
    let cut = format!("event: message_start\ndata: {start}\n\n");
    let (messages, completions) = ("/v1/messages", "/v1/chat/completions");
    let prompt = Some(3_000_000_000_u64);
    for (path, answer, unknown, lower_bound, cost) in [
        (messages, claude(Some("end_turn")), true, false, None),
        (messages, claude(None), false, true, prompt),
        (messages, cut, false, true, prompt),
        (completions, chat(json!({"prompt_tokens": 1000})), true, false, None),
        (completions, chat(json!({"prompt_tokens": 1000, "total_tokens": 1000})), false, false, prompt),
        (completions, chat(json!({"prompt_tokens": 1000, "cost": 0.003})), true, false, prompt),
    ] {
        let (home, said) = (tempfile::tempdir().unwrap(), answer.clone());
        let upstream = Upstream::start(move |_| (200, said.clone()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post(
            path,
            &[],
            &json!({"model": MODEL, "messages": [{"role": "user", "content": "x"}]}).to_string(),
        );
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(record["output_is_unknown"], unknown, "{answer}");
        assert_eq!(record["output_is_lower_bound"], lower_bound, "{answer}");
        assert_eq!(record["cost"]["total"].as_u64(), cost, "{answer} {record}");
        assert_eq!(record["net_saved"].is_null(), cost.is_none(), "{answer} {record}");
    }
}

/// The cost may be reported by any upstream: the cost without the gateway is in proportion to it.
#[test]
fn a_cost_stated_by_any_upstream_has_a_net_saving() {
    const MODEL: &str = "moonshotai/kimi-k2.5";
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|request| {
        let tokens = request.body.len() / 4;
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 0, "cost": 0.02});
        let choices = json!([{"finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]);
        (200, json!({"id": "c", "model": MODEL, "choices": choices, "usage": usage}).to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let call = json!({"id": "1", "type": "function", "function": {"name": "Grep", "arguments": "{}"}});
    let messages = json!([{"role": "user", "content": "Find the bug"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": log("first", 4000)}]);
    gateway.post("/v1/chat/completions", &[], &json!({"model": MODEL, "messages": messages}).to_string());
    gateway.stop();
    let record = &records(home.path())[0];
    let (untouched, sent) = (prompt(&record["counterfactual"]["tokens"]), prompt(&record["tokens"]));
    let cost = record["counterfactual"]["cost"].as_u64().unwrap_or(0);
    assert!(untouched > sent, "{record}");
    assert!((cost as f64 / 2e10 - untouched as f64 / sent as f64).abs() < 0.01, "{record}");
}

/// Charges without a price are named, and make every sum a lower bound. A cost that the provider states is complete.
#[test]
fn charges_without_a_price_make_sums_lower_bounds() {
    let usage = |more: Value| {
        let mut usage = json!({"input_tokens": 1000, "output_tokens": 0});
        usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"id": "resp_1", "status": "completed", "model": "gpt-4o", "usage": usage,
            "output": [{"type": "code_interpreter_call"}]})
    };
    let ticks = json!({"num_server_side_tools_used": 1, "cost_in_usd_ticks": 37_756_000});
    for (answer, charges, cost) in [
        (usage(json!({})), json!(["code_execution"]), 2_500_000_000_u64),
        (
            usage(json!({"num_server_side_tools_used": 1})),
            json!(["code_execution", "server_tools"]),
            2_500_000_000,
        ),
        (usage(ticks), json!([]), 3_775_600_000),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        gateway.post("/v1/responses", &[], &json!({"model": "gpt-4o", "input": "x"}).to_string());
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(
            (&record["unpriced_charges"], &record["cost"]["total"]),
            (&charges, &json!(cost)),
            "{record}"
        );
    }
}

/// The billed model is the one that answered, unless its name is empty or the path names an inference profile.
#[test]
fn the_billed_model_is_the_one_that_answered() {
    const KNOWN: &str = "claude-sonnet-4-6";
    const PROFILE: &str = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc";
    let escaped = PROFILE.replace(':', "%3A").replace('/', "%2F");
    let messages = "/v1/messages".to_owned();
    let price = Some(3_000_000_000_u64);
    for (path, asked, answered, billed, cost) in [
        (
            messages.clone(),
            json!(KNOWN),
            json!("claude-haiku-4-5"),
            json!("claude-haiku-4-5"),
            Some(1_000_000_000),
        ),
        (messages.clone(), json!(KNOWN), json!(""), json!(KNOWN), price),
        (messages.clone(), json!(KNOWN), Value::Null, json!(KNOWN), price),
        (messages.clone(), json!(""), json!(KNOWN), json!(KNOWN), price),
        (messages, json!(""), json!(""), Value::Null, None),
        // The path contains escapes, the books do not.
        (format!("/model/{escaped}/invoke"), Value::Null, json!(KNOWN), json!(PROFILE), None),
    ] {
        let home = tempfile::tempdir().unwrap();
        let answer = json!({"id": "msg_1", "model": answered, "stop_reason": "end_turn",
            "usage": {"input_tokens": 1000, "output_tokens": 0}});
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
        if !asked.is_null() {
            body["model"] = asked.clone();
        }
        gateway.post(&path, &[], &body.to_string());
        gateway.stop();
        let record = &records(home.path())[0];
        assert_eq!(record["model"], billed, "{asked} {answered}");
        assert_eq!(record["cost"]["total"].as_u64(), cost, "{asked} {answered} {record}");
        let named = asked.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let named = named.or_else(|| path.contains("arn").then(|| PROFILE.to_owned()));
        assert_eq!(record["model_asked"], json!(named), "{asked} {answered}");
    }
}
