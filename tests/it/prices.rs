//! The prices of models, from the command line and in the ledger.

use std::collections::BTreeSet;
use std::fs;

use plimsoll::usage::Rate;
use serde_json::{Value, json};

use crate::cli::{done, json as printed, run};
use crate::support::{Gateway, Upstream, records};

const CONFIG: &str = "\
[listen]
admin = 'off'
[upstream.fast]
base_url = 'https://api.groq.com/openai'
protocols = ['openai-chat']
[prices.model.'own-model']
input = 1.5
output = '0.000001'
[prices.model.'local/*']
input = 0
output = 0
[prices.model.'claude-sonnet-4-6']
cache_read = 0.2
";

/// A name is looked up by the rules by which its requests are billed.
#[test]
fn the_prices_command_shows_billed_prices() {
    let home = tempfile::tempdir().unwrap();
    let names = [
        "claude-haiku-4-5-20251001",
        "anthropic/claude-opus-5-5",
        "claude-sonnet-4-6",
        "gpt-5.5-2026-04-23",
        "us.anthropic.claude-opus-5-20260801-v1:0",
        "openrouter/moonshotai/kimi-k2.5",
        "local/anything",
        "own-model",
        "moonshotai/kimi-k2.5",
        "deepseek/deepseek-r1",
        "mistral-small-latest",
        "nobodys-model",
    ];
    let upstream = Upstream::start(|request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let usage = json!({"input_tokens": 10_000, "cache_read_input_tokens": 20_000,
            "cache_creation_input_tokens": 30_000, "output_tokens": 1000});
        let answer =
            json!({"type": "message", "model": asked["model"], "stop_reason": "end_turn", "usage": usage});
        (200, answer.to_string())
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for name in names {
        let body = json!({"model": name, "max_tokens": 2, "messages": [{"role": "user", "content": name}]});
        assert_eq!(gateway.post("/v1/messages", &[], &body.to_string()).0, 200);
    }
    gateway.stop();
    let logs = fs::read_dir(home.path().join("plimsoll/conversations")).unwrap();
    let logs: String = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap()).collect();
    let records: Vec<Value> = logs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let priced = records.iter().filter(|record| !record["cost"].is_null()).count();
    assert_eq!((records.len(), priced), (names.len(), names.len() - 4));
    for record in records {
        let name = record["model"].as_str().unwrap();
        let ran = run(home.path(), &["prices", name, "--json", "-c", "gateway.toml"]);
        let said: Value = serde_json::from_str(&ran.out).unwrap();
        let [price] = &said["prices"].as_array().unwrap()[..] else { panic!("one price: {said}") };
        assert_eq!((&price["model"], &price["upstream"]), (&json!(name), &Value::Null));
        let cost = &record["cost"];
        assert_eq!(price["source"], cost["price"], "{name}");
        assert_eq!(ran.code, Some(i32::from(cost.is_null())), "{name}");
        for (rate, tokens, line) in [
            ("input", 10_000, "input"),
            ("cache_read", 20_000, "cache_read"),
            ("cache_write_5m", 30_000, "cache_write"),
            ("output", 1000, "output"),
        ] {
            let rate = price["rates"][rate].as_str().map(|usd| Rate::from_usd_per_million_str(usd).unwrap());
            let expected = rate.map(|rate| rate.picodollars() * tokens);
            assert_eq!(cost[line].as_u64(), expected, "{name} {line}");
        }
    }
}

/// The command needs neither a store nor a gateway, and creates none.
#[test]
fn the_price_list_is_complete() {
    let home = tempfile::tempdir().unwrap();
    let list = printed(home.path(), &["prices", "--json"]);
    let models: Vec<&str> =
        list["prices"].as_array().unwrap().iter().map(|price| price["model"].as_str().unwrap()).collect();
    assert!(models.len() > 600 && models.is_sorted(), "{}", models.len());
    let table = done(home.path(), &["prices"]);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let starts: BTreeSet<&str> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(models.iter().all(|model| starts.contains(model)), "no name is cut");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

    fs::write(home.path().join("gateway.toml"), CONFIG).unwrap();
    for (arguments, expected) in [
        (
            &["groq/*"][..],
            list["prices"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|price| price["listed"]["seller"] == "groq")
                .count(),
        ),
        (
            &["mistral/*"],
            list["prices"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|price| price["listed"]["seller"] == "mistral")
                .count(),
        ),
        (&["own*"], 1),
        (&["claude-opus-5-5", "claude-sonnet-5"], 2),
        (&["local/x"], 1),
    ] {
        let asked = [&["prices", "--json", "-c", "gateway.toml"], arguments].concat();
        assert_eq!(
            printed(home.path(), &asked)["prices"].as_array().unwrap().len(),
            expected,
            "{arguments:?}"
        );
    }
}

/// If one model has no price, the others are still shown.
#[test]
fn models_without_a_price_are_listed_as_such() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("gateway.toml"), CONFIG).unwrap();
    let null = "its requests are booked with a cost of null\n  hint: ";
    for (arguments, code, lines, says) in [
        (&["claude-opus-5-5"][..], 0, 9, String::new()),
        (
            &["claude-opus-5-5", "claude-opus-5-6"],
            1,
            9,
            format!("no price is known for `claude-opus-5-6`: {null}did you mean `claude-opus-5-5`?\n"),
        ),
        (
            &["zzz"],
            1,
            0,
            format!(
                "no price is known for `zzz`: {null}its price can be stated in `[prices.model]` of the configuration\n"
            ),
        ),
        (
            &["moonshotai/kimi-k2.5"],
            1,
            0,
            format!(
                "no price is known for `moonshotai/kimi-k2.5`: {null}what it costs depends on who sells it: \
                 `openrouter/moonshotai/kimi-k2.5`\n"
            ),
        ),
        (
            &["deepseek-r1"],
            1,
            0,
            format!(
                "no price is known for `deepseek-r1`: {null}what it costs depends on who sells it: deepseek at its own \
                 host\n"
            ),
        ),
        (
            &["deepseek/deepseek-r1"],
            1,
            0,
            format!(
                "no price is known for `deepseek/deepseek-r1`: {null}what it costs depends on who sells it: \
                 `openrouter/deepseek/deepseek-r1`, deepseek at its own host\n"
            ),
        ),
        (
            &["claude-opus-5-5", "--upstream", "fast"],
            1,
            0,
            format!(
                "no price is known for `claude-opus-5-5` at `upstream.fast`: {null}its price can be stated in `[prices.model]` of the configuration\n"
            ),
        ),
        // Two resellers have it, and one of them is configured.
        (&["openai/gpt-oss-120b"], 0, 6, String::new()),
        (&["openai/gpt-oss-120b", "--upstream", "fast"], 0, 6, String::new()),
        // A list shows the prices that the ledger uses at that upstream.
        (
            &["deepseek*", "--upstream", "fast"],
            1,
            0,
            "`deepseek*`: no price is known for a model of this name\n".to_owned(),
        ),
        (&["zzz*"], 1, 0, "`zzz*`: no price is known for a model of this name\n".to_owned()),
        (&["zzz["], 2, 0, "`zzz[`: Pattern syntax error near position 3: invalid range pattern\n".to_owned()),
        (
            &["--upstream", "x"],
            2,
            0,
            "`--upstream x`: expected one of anthropic, openai, gemini, code-assist, chatgpt, fast\n"
                .to_owned(),
        ),
    ] {
        let ran = run(home.path(), &[&["prices", "-c", "gateway.toml"], arguments].concat());
        let found = (ran.code, ran.out.lines().count(), ran.err);
        assert_eq!(found, (Some(code), lines, says), "{arguments:?}\n{}", ran.out);
    }
    let at = done(home.path(), &["prices", "-c", "gateway.toml", "openai/gpt-oss-120b"]);
    assert!(
        at.contains("\n  at `upstream.fast`: catalogue 2026-11-21: openai/gpt-oss-120b of groq\n"),
        "{at}"
    );
}

/// The cost that OpenRouter states is booked. If it states none, the configuration's prices apply, or known list
/// prices. The cost without the gateway is in proportion.
#[test]
fn models_of_a_router_have_known_prices() {
    const HALF_A_CENT: i64 = 5_000_000_000;
    let log = (0..4000).map(|at| format!("line {at} of a long log\n")).collect::<Vec<_>>().concat();
    // The model requested, the one that answered and the stated cost in dollars; the model booked, its cost, and
    // whether the cost without the gateway is known.
    for (asked, answered, stated, booked, cost, is_known) in [
        (
            "anthropic/claude-sonnet-4.5",
            "anthropic/claude-4.5-sonnet-20250929",
            json!(0.005),
            "anthropic/claude-4.5-sonnet-20250929",
            Some(HALF_A_CENT),
            true,
        ),
        (
            "openai/gpt-5:nitro",
            "openai/gpt-5:nitro",
            json!(0.005),
            "openai/gpt-5:nitro",
            Some(HALF_A_CENT),
            true,
        ),
        ("openai/gpt-5:nitro", "openai/gpt-5", Value::Null, "openai/gpt-5:nitro", None, false),
        (
            "openai/gpt-5",
            "openai/gpt-5-2025-08-07",
            Value::Null,
            "openai/gpt-5-2025-08-07",
            Some(1_350_000_000),
            true,
        ),
        (
            "openai/gpt-5:online",
            "openai/gpt-5",
            json!(0.005),
            "openai/gpt-5:online",
            Some(HALF_A_CENT),
            false,
        ),
        ("z-ai/glm-4.7:free", "z-ai/glm-4.7:free", json!(0), "z-ai/glm-4.7:free", Some(0), true),
        ("z-ai/glm-4.7:free", "z-ai/glm-4.7:free", Value::Null, "z-ai/glm-4.7:free", Some(0), true),
        ("z-ai/glm-4.7:free", "z-ai/glm-4.7-20251222", json!(0), "z-ai/glm-4.7-20251222", Some(0), true),
        ("openai/gpt-5:free", "openai/gpt-5", Value::Null, "openai/gpt-5", Some(1_350_000_000), true),
        ("openai/gpt-5:nitro", "openai/gpt-5-2025-08-07", Value::Null, "openai/gpt-5:nitro", None, false),
        (
            "moonshotai/kimi-k2.5",
            "moonshotai/kimi-k2.5-0127",
            Value::Null,
            "moonshotai/kimi-k2.5-0127",
            None,
            false,
        ),
        ("own/model", "own/model-0127", Value::Null, "own/model-0127", Some(7_070_000_000), true),
        ("own/model:nitro", "own/model-0127", Value::Null, "own/model-0127", Some(7_070_000_000), true),
        ("z-ai/glm-4.7:free", "another/model", Value::Null, "another/model", None, false),
    ] {
        let answer = json!({"id": "gen-1", "object": "chat.completion", "model": answered,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "cost": stated}});
        let upstream = Upstream::start(move |_| (200, answer.to_string()));
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "[listen]\nadmin = 'off'\n[upstream.router]\nbase_url = 'http://openrouter.ai/api'\nprotocols = ['openai-chat']\nproxy = '{}'\n[prices.model.'own/model-0127']\ninput = 7\noutput = 7\n",
            upstream.url()
        );
        let gateway = Gateway::configured(home.path(), &config);
        let call = json!({"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
        let body = json!({"model": asked, "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": log}]});
        assert_eq!(gateway.post("/router/v1/chat/completions", &[], &body.to_string()).0, 200);
        gateway.stop();
        let record = &records(home.path())[0];
        let told = (record["model"].as_str().unwrap(), record["cost"]["total"].as_i64());
        assert_eq!(told, (booked, cost), "{asked} {answered}: {record}");
        assert_eq!(record["net_saved"].as_i64().is_some(), is_known, "{asked} {answered}: {record}");
        let untouched = &record["counterfactual"];
        assert_eq!(untouched["estimated"], true, "{record}");
        assert_eq!(untouched["cost"].as_i64() > cost, is_known && cost > Some(0), "{record}");
    }
}
