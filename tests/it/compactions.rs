//! Clients that ask for a summary of their own history.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream};

/// No summary is paid for after a request that seems to ask for one itself.
#[test]
fn no_summary_is_begun_once_the_tools_are_gone() {
    let home = tempfile::tempdir().unwrap();
    let (told, asked) = mpsc::channel();
    let told = Mutex::new(told);
    let upstream = Upstream::start(move |request| {
        if request.line.starts_with("POST /v1/messages ") {
            told.lock().unwrap().send(request.text()).unwrap();
        }
        let reply = json!({"role": "assistant", "content": "hello"});
        let choice = json!({"index": 0, "finish_reason": "stop", "message": reply});
        (200, json!({"id": "c", "model": "gpt-4o", "choices": [choice]}).to_string())
    });
    let url = upstream.url();
    let config = format!(
        "preset = 'picoclaw'\n[listen]\nadmin = 'off'\n\
         [upstream.anthropic]\nbase_url = '{url}'\nheaders = {{ x-api-key = 'own' }}\n\
         [upstream.openai]\nbase_url = '{url}'\n\
         [summarize]\nupstream = 'anthropic'\nmodel = 'claude-haiku-4-5'\n"
    );
    let gateway = Gateway::configured(home.path(), &config);
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    for (who, last) in [("without", json!({})), ("an agent", json!({"tools": tools}))] {
        let call = json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        let mut messages = vec![
            json!({"role": "user", "content": format!("{who}: find it")}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "c", "content": "here"}),
        ];
        let post = |messages: &[Value], mut body: Value| {
            body["model"] = json!("gpt-4o");
            body["messages"] = json!(messages);
            assert_eq!(gateway.post("/v1/chat/completions", &[], &body.to_string()).0, 200);
        };
        post(&messages, json!({"tools": tools}));
        let says = |at| json!({"role": if at % 2 == 0 { "assistant" } else { "user" }, "content": format!("{who} {at} {}", "and so on ".repeat(200))});
        messages.extend((0..30).map(says));
        post(&messages, last);
    }
    let asked = asked.recv_timeout(Duration::from_secs(60)).expect("a summary is written for the agent");
    assert!(asked.contains("an agent 1") && !asked.contains("without 1"));
    gateway.stop();
}
