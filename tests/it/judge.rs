//! `plimsoll fidelity --judge`, with a judge on loopback.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream};

/// Answers as many questions as the transcript allows, and compares literally.
fn judge(received: &Received) -> String {
    let asked: Value = serde_json::from_str(&received.text()).unwrap();
    let text = asked["messages"][0]["content"].as_str().unwrap();
    if text.contains("Two readers answered") {
        return "1. 100\n2. 0\n3. 100\n4. 50".to_owned();
    }
    let whole = text.contains("line 900");
    let goal = if text.contains("ARCH-9920") { "port ARCH-9920" } else { "unknown" };
    format!("1. {goal}\n2. {}\n3. unknown\n4. src/a.rs", if whole { "900 lines" } else { "unknown" })
}

#[test]
fn a_judge_compares_the_original_with_what_was_sent() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let said = if received.text().contains("stands between two lines")
            || received.text().contains("Two readers")
        {
            judge(received)
        } else {
            "ok".to_owned()
        };
        let usage = json!({"prompt_tokens": 1000, "completion_tokens": 10});
        let answer = json!({"id": "m", "model": "gpt-4o", "usage": usage,
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": said}}]});
        (200, answer.to_string())
    });
    let settings = format!(
        "[listen]\nadmin = 'off'\n[truncate]\nmax_lines = 50\n[ledger]\nrecord = 'full'\n[fidelity]\nupstream = 'j'\n\
         model = 'gpt-4o'\n[upstream.j]\nbase_url = '{}'\nprotocols = ['openai-chat']\n",
        upstream.url()
    );
    let lines: Vec<String> = (0..1000).map(|line| format!("line {line}")).collect();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let body = json!({"model": "gpt-4o", "messages": [
        {"role": "user", "content": "Port ARCH-9920"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": lines.join("\n")},
    ]});
    let gateway = Gateway::start(home.path(), &settings, &upstream.url());
    let headers = [("x-session-id", "s"), ("authorization", "Bearer k")];
    assert_eq!(gateway.post("/v1/chat/completions", &headers, &body.to_string()).0, 200);
    gateway.stop();
    let file = home.path().join("g.toml");
    std::fs::write(&file, &settings).unwrap();
    let log = home.path().join("plimsoll/conversations/s.jsonl");
    for id in ["s", log.to_str().unwrap()] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["fidelity", id, "--judge", "--json", "--config", file.to_str().unwrap()]);
        let output = command.env("XDG_STATE_HOME", home.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let agrees: Vec<&Value> =
            found["questions"].as_array().unwrap().iter().map(|one| &one["agrees"]).collect();
        assert_eq!(agrees[..5], [&json!(1.0), &json!(0.0), &Value::Null, &json!(0.5), &Value::Null]);
        assert_eq!((&found["request"], &found["mean"]), (&json!(1), &json!(0.5)));
        assert_eq!(found["questions"][1]["rewritten"], json!("unknown"));
        assert!(found["usd"].as_f64() > Some(0.0));
    }
    // No upstream to ask, or nothing to ask about.
    std::fs::write(&file, "[listen]\nadmin = 'off'\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command
        .args(["fidelity", "s", "--judge", "--config", file.to_str().unwrap()])
        .env("XDG_STATE_HOME", home.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("fidelity.upstream"));
}
