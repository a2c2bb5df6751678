//! Usage and bytes that are not part of the prompt: what the provider's own tools read, and the encodings of images.
//! None of it fills the window, so nothing is removed because of it.

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream, records};

/// A small window that the history fills by half.
const CONFIG: &str = "[listen]\nadmin = 'off'\n[summarize]\nenabled = false\n[clear]\nenabled = false\n\
                      [window]\nsize = 40000\n";
/// The requests of a conversation, each one turn longer.
const TURNS: usize = 8;

/// A request with this many turns, and what the last one contains besides text.
type Request = fn(usize, &[Value]) -> Value;
/// A provider's answer to a prompt of this many tokens; `true` if its own tools ran first.
type Answer = fn(u64, bool) -> Value;

fn said(at: usize) -> String {
    let lines: Vec<String> = (0..300).map(|line| format!("answer {at} line {line}\n")).collect();
    lines.concat()
}

/// A turn of the history; `more` is part of the answer.
fn anthropic(turns: usize, more: &[Value]) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "Go"})];
    for at in 0..turns {
        let mut content = vec![json!({"type": "text", "text": said(at)})];
        content.extend(more.iter().filter(|_| at + 1 == turns).cloned());
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": "On"}));
    }
    json!({"model": "m", "max_tokens": 1000, "messages": messages})
}

fn responses(turns: usize, more: &[Value]) -> Value {
    let mut input = vec![json!({"role": "user", "content": "Go"})];
    for at in 0..turns {
        input.push(json!({"role": "assistant", "content": said(at)}));
        input.push(json!({"role": "user", "content": "On"}));
    }
    input.extend(more.iter().cloned());
    json!({"model": "m", "input": input})
}

fn chat(turns: usize, more: &[Value]) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "Go"})];
    for at in 0..turns {
        let images: Vec<&Value> = more.iter().filter(|_| at + 1 == turns).collect();
        messages.push(json!({"role": "assistant", "content": said(at), "images": images}));
        messages.push(json!({"role": "user", "content": "On"}));
    }
    json!({"model": "m", "messages": messages})
}

fn gemini(turns: usize, more: &[Value]) -> Value {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "Go"}]})];
    for at in 0..turns {
        let mut parts = vec![json!({"text": said(at)})];
        parts.extend(more.iter().filter(|_| at + 1 == turns).cloned());
        contents.push(json!({"role": "model", "parts": parts}));
        contents.push(json!({"role": "user", "parts": [{"text": "On"}]}));
    }
    json!({"contents": contents})
}

fn anthropic_answer(tokens: u64, served: bool) -> Value {
    let (read, searches) = if served { (tokens * 6, 5) } else { (tokens, 0) };
    json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "cache_read_input_tokens": read, "output_tokens": 1,
            "server_tool_use": {"web_search_requests": searches}}})
}

fn responses_answer(tokens: u64, served: bool) -> Value {
    let output = if served { json!([{"type": "web_search_call", "id": "w"}]) } else { json!([]) };
    json!({"id": "r", "model": "m", "status": "completed", "output": output,
        "usage": {"input_tokens": if served { tokens * 6 } else { tokens }, "output_tokens": 1}})
}

fn chat_answer(tokens: u64, _: bool) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"finish_reason": "stop", "message": {"content": "ok"}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
}

fn gemini_answer(tokens: u64, served: bool) -> Value {
    json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": tokens,
        "toolUsePromptTokenCount": if served { tokens * 5 } else { 0 }, "candidatesTokenCount": 1}})
}

#[test]
fn tokens_outside_the_prompt_do_not_fill_the_window() {
    let data = "iVBORw0KGgoAAA/+".repeat(20_000);
    let url = format!("data:image/png;base64,{data}");
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": data});
    let fetched = json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {"type": "web_fetch_result",
        "url": "u", "content": {"type": "document", "source": source}}});
    let fetch = json!({"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"url": "u"}});
    let look = json!({"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}});
    let seen = json!({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}});
    let made = json!({"type": "image_generation_call", "id": "i", "status": "completed", "result": data});
    let cases: [(&str, Request, Answer, Vec<Value>); 4] = [
        ("/v1/messages", anthropic, anthropic_answer, vec![fetch, fetched]),
        ("/v1/responses", responses, responses_answer, vec![made, look, seen]),
        ("/v1/chat/completions", chat, chat_answer, vec![json!({"image_url": {"url": url}})]),
        (
            "/v1beta/models/m:generateContent",
            gemini,
            gemini_answer,
            vec![json!({"toolResponse": {"response": {"image": {"mimeType": "image/png", "data": data}}}})],
        ),
    ];
    for (path, request, answer, more) in cases {
        let home = tempfile::tempdir().unwrap();
        // The provider's tools run for every second request from the third on.
        let upstream = Upstream::start(move |received: &Received| {
            let text = received.text();
            let (tokens, turns) =
                (text.replace(&"iVBORw0KGgoAAA/+".repeat(20_000), "").len() / 4, text.matches("On").count());
            (200, answer(tokens as u64, turns >= 3 && turns % 2 == 1).to_string())
        });
        let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
        for turns in 0..=TURNS {
            let more = if turns == TURNS { &more[..] } else { &[] };
            let (status, _) = gateway.post(path, &[], &request(turns, more).to_string());
            assert_eq!(status, 200, "{path}");
        }
        gateway.stop();
        let records = records(home.path());
        assert_eq!(records.len(), TURNS + 1, "{path}");
        for record in &records {
            assert!(record["edits"]["event"].is_null(), "{path}: {record}");
            let estimate = record["window"]["prompt_tokens_estimate"].as_u64().unwrap();
            assert!(estimate < 25_000, "{path}: {estimate}");
        }
        assert!(upstream.received().iter().all(|one| !one.text().contains("plimsoll:")), "{path}");
    }
}
