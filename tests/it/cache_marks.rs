//! Writing to the cache costs extra: a history is marked only if the next request is expected to read it.

use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream, booked, records};

/// A deadline long enough that no request is sent unread, however busy the machine is.
const CONFIG: &str = "[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '30s'\n";

/// A message of a history of tool calls.
fn message(at: usize) -> Value {
    let id = format!("call_{}", at / 4);
    match at % 4 {
        0 => json!({"role": "user", "content": format!("question {at} {}", "words ".repeat(300))}),
        1 => {
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {"at": at}}]})
        }
        2 => {
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": format!("out {at}")}]})
        }
        _ => json!({"role": "assistant", "content": format!("done {at}")}),
    }
}

/// A request with stable instructions and this many messages of the history.
fn body(stays: &[&str], messages: std::ops::Range<usize>) -> String {
    let role = |at: usize| ["user", "assistant"][at % 2];
    let stays = stays.iter().enumerate().map(|(at, text)| json!({"role": role(at), "content": text}));
    let messages: Vec<Value> = stays.chain(messages.map(message)).collect();
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string()
}

/// The cost of the prompts received, in bytes of plain input, for a cache that keeps what ends with a mark.
fn bill(requests: &[Received]) -> f64 {
    let mut kept = std::collections::HashSet::new();
    let mut paid = 0.0;
    for request in requests {
        let mut body: Value = serde_json::from_str(&request.text()).unwrap();
        let (mut prompt, mut marked) = (String::new(), Vec::new());
        for message in body["messages"].as_array_mut().unwrap() {
            if let Some(text) = message["content"].as_str() {
                message["content"] = json!([{"type": "text", "text": text}]);
            }
            for block in message["content"].as_array_mut().unwrap() {
                let mark = block.as_object_mut().unwrap().remove("cache_control");
                prompt += &block.to_string();
                marked.extend(mark.map(|_| prompt.clone()));
            }
        }
        let longest =
            |prompts: &mut dyn Iterator<Item = &String>| prompts.map(String::len).max().unwrap_or(0);
        let read = longest(&mut marked.iter().filter(|prompt| kept.contains(*prompt)));
        let written = longest(&mut marked.iter()).max(read);
        paid += 0.1 * read as f64 + 1.25 * (written - read) as f64 + (prompt.len() - written) as f64;
        kept.extend(marked);
    }
    paid
}

/// Sends these requests of a client that marks nothing; returns what was received.
fn arriving(requests: &[String]) -> Vec<Received> {
    let upstream = Upstream::start(|_| {
        (200, json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}).to_string())
    });
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for (at, request) in requests.iter().enumerate() {
        assert_eq!(gateway.post("/v1/messages", &[], request).0, 200);
        booked(home.path(), at + 1);
    }
    gateway.stop();
    upstream.received()
}

fn grows(ends: &[usize]) -> Vec<String> {
    ends.iter().map(|end| body(&[], 0..*end)).collect()
}

#[test]
fn histories_that_continue_are_marked() {
    let slides =
        |stays: &[&str]| (3..8).map(|turn| body(stays, turn * 4 - 12..turn * 4 + 1)).collect::<Vec<_>>();
    for (case, requests, expected) in [
        ("grows", grows(&[1, 3, 5, 7, 9]), [0, 1, 2, 2, 2].as_slice()),
        ("joined half-way", grows(&[21, 23, 25, 27]), &[0, 1, 2, 2]),
        ("the newest alone", slides(&[]), &[0; 5]),
        ("the first words and the newest", slides(&["Begin.", "Yes."]), &[0; 5]),
        ("sent once", grows(&[27]), &[0]),
    ] {
        let marks = |request: &Received| request.text().matches("cache_control").count();
        let marks: Vec<usize> = arriving(&requests).iter().map(marks).collect();
        assert_eq!(marks, expected, "{case}");
    }
}

/// Whenever a client that marks nothing stops, it has paid at most 15 % more than without marks, and if it continues it
/// pays much less.
///
/// What a server writes to its cache with each request and never reads may also be tools and instructions: if the
/// history is left unmarked for that reason, so are they.
#[test]
fn instructions_that_are_never_read_are_not_written_repeatedly() {
    let upstream = Upstream::start(|request| {
        let text = request.text();
        let usage = match text.rfind("cache_control") {
            None => json!({"input_tokens": text.len() / 4, "output_tokens": 1}),
            Some(marked) => {
                json!({"input_tokens": 9, "cache_creation_input_tokens": marked / 4, "cache_read_input_tokens": 0, "output_tokens": 1})
            }
        };
        let answer = json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": "end_turn", "usage": usage});
        (200, answer.to_string())
    });
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    for (at, request) in grows(&[1, 3, 5, 7, 9, 11, 13, 15, 17]).iter().enumerate() {
        let mut request: Value = serde_json::from_str(request).unwrap();
        request["system"] = json!("Be brief. ".repeat(2000));
        assert_eq!(gateway.post("/v1/messages", &[], &request.to_string()).0, 200);
        booked(home.path(), at + 1);
    }
    gateway.stop();
    let marks = |request: &Received| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        ["system", "messages"].map(|member| body[member].to_string().matches("cache_control").count())
    };
    let arrived = upstream.received();
    let found: Vec<_> = arrived.iter().map(marks).collect();
    let idle = |[instructions, history]: &[usize; 2]| *history == 0 && *instructions == 0;
    assert!(found[2][1] > 0 && found[3..].iter().filter(|marks| idle(marks)).count() >= 3, "{found:?}");
    // The instructions alone are marked once more when the provider reports that they were missing.
    let alone = |[instructions, history]: &&[usize; 2]| *history == 0 && *instructions > 0;
    assert!(found.iter().filter(alone).count() <= 1, "{found:?}");
}

#[test]
fn marks_cost_little_and_save_much() {
    let result = |size: usize| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out ".repeat(size)}]});
    let with = |stays: &[Value], last: Value| {
        let messages: Vec<&Value> = stays.iter().chain([&last]).collect();
        json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string()
    };
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]});
    let begin = json!({"role": "user", "content": "Begin."});
    let talk: Vec<Value> = (0..80).map(message).collect();
    let state =
        |turn: usize| json!({"role": "user", "content": format!("state {turn} {}", "now ".repeat(400))});
    for (case, requests, most) in [
        ("a huge result", vec![with(&[], begin.clone()), with(&[begin.clone(), call], result(9_000))], 1.15),
        ("two of a kind", grows(&[5, 7]), 1.15),
        ("asked twice", grows(&[1, 1]), 1.15),
        ("asked nine times", grows(&[5; 9]), 0.5),
        ("grows", grows(&(0..30).map(|turn| 2 * turn + 1).collect::<Vec<_>>()), 0.25),
        ("a state at the end", (0..30).map(|turn| with(&talk[..=2 * turn], state(turn))).collect(), 0.5),
        ("branches", (0..9).map(|turn| with(&talk[..36], state(turn))).collect(), 0.6),
    ] {
        let arrived = arriving(&requests);
        for end in 1..=arrived.len() {
            let direct: Vec<Received> = requests[..end]
                .iter()
                .map(|body| Received { line: String::new(), body: body.clone().into_bytes() })
                .collect();
            let ratio = bill(&arrived[..end]) / bill(&direct);
            assert!(ratio <= 1.15, "{case}, {end}: {ratio}");
            assert!(end < arrived.len() || ratio <= most, "{case}: {ratio}");
        }
    }
}

/// The cache of a router's provider: prompt beginnings that end with a mark.
#[derive(Default)]
struct Router {
    kept: std::collections::HashSet<String>,
}

impl Router {
    /// The tokens of a prompt: in all, read and written. A token has four bytes.
    fn usage(&mut self, body: &Value) -> [usize; 3] {
        let (mut prompts, mut marked) = (vec![body["tools"].to_string()], Vec::new());
        for message in body["messages"].as_array().unwrap() {
            let content = match message["content"].as_str() {
                Some(text) => json!([{"type": "text", "text": text}]),
                None => message["content"].clone(),
            };
            let blocks = [&content, &message["tool_calls"]].into_iter().filter_map(Value::as_array).flatten();
            for mut block in blocks.cloned() {
                let mark = block.as_object_mut().unwrap().remove("cache_control");
                prompts.push(format!("{}{block}", prompts[prompts.len() - 1]));
                marked.extend(mark.map(|_| prompts.len() - 1));
            }
            // LiteLLM takes this mark for one of the result itself.
            marked.extend(message.get("cache_control").map(|_| prompts.len() - 1));
        }
        let near = |mark: &usize| ((mark + 1).saturating_sub(20)..=*mark).rev();
        let kept = marked.iter().filter_map(|mark| near(mark).find(|at| self.kept.contains(&prompts[*at])));
        let tokens = |at: Option<usize>| at.map_or(0, |at| prompts[at].len() / 4);
        let read = tokens(kept.max());
        let written = tokens(marked.iter().max().copied()).max(read) - read;
        let all = tokens(prompts.len().checked_sub(1));
        self.kept.extend(marked.into_iter().map(|at| prompts[at].clone()));
        [all, read, written]
    }
}

/// The cost of tokens of Claude Sonnet in US dollars: with the cache, and without one.
fn dollars([all, read, written]: [usize; 3], output: usize) -> [f64; 2] {
    let (rest, output) = ((all - read - written) as f64 * 3.0, output as f64 * 15.0);
    [rest + read as f64 * 0.3 + written as f64 * 3.75 + output, all as f64 * 3.0 + output]
        .map(|micros| micros / 1e6)
}

/// Answers chats like the router, with its cost.
fn routes(request: &Received, router: &std::sync::Mutex<Router>) -> (u16, String) {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let tokens = router.lock().unwrap().usage(&body);
    let [all, read, written] = tokens;
    let details = json!({"cached_tokens": read, "cache_write_tokens": written});
    let usage = json!({"prompt_tokens": all, "completion_tokens": 7, "total_tokens": all + 7,
        "prompt_tokens_details": details, "cost": dollars(tokens, 7)[0]});
    let choice =
        json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}});
    (200, json!({"id": "gen-1", "model": body["model"], "choices": [choice], "usage": usage}).to_string())
}

/// This many messages of an agent's history as sent to a router; the last one may be marked by the client.
fn chat(model: &str, messages: usize, mark: bool) -> String {
    let message = |at: usize| {
        let id = format!("call_{}", at / 2);
        let function = json!({"name": "bash", "arguments": format!("{{\"at\":{at}}}")});
        match at {
            0 => json!({"role": "system", "content": "Be brief. ".repeat(1000)}),
            1 => json!({"role": "user", "content": "Find the bug"}),
            at if at % 2 == 0 => {
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
            }
            _ => {
                json!({"role": "tool", "tool_call_id": format!("call_{}", (at - 1) / 2), "content": format!("{at} {}", "out ".repeat(300))})
            }
        }
    };
    let mut all: Vec<Value> = (0..messages).map(message).collect();
    if let Some(last) = all.last_mut().filter(|_| mark) {
        let text = last["content"].take();
        last["content"] = json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    }
    json!({"model": model, "messages": all}).to_string()
}

/// A router that passes marks on to Claude's provider gets them; other servers get neither marks nor anything else.
#[test]
fn histories_are_marked_behind_routers_that_pass_marks_on() {
    const CLAUDE: &str = "anthropic/claude-sonnet-4.5";
    // The host, its settings in the file, the model, whether the client marks, and the marks received with each
    // request.
    for (host, more, model, own, expected) in [
        ("openrouter.ai", "", CLAUDE, false, [0, 2, 3, 3, 3, 3]),
        ("openrouter.ai", "", CLAUDE, true, [1, 2, 2, 2, 2, 2]),
        ("openrouter.ai", "", "openai/gpt-5", false, [0; 6]),
        ("openrouter.ai", "", "google/gemini-3-pro-preview", false, [0; 6]),
        ("openrouter.ai", "cache_marks = false", CLAUDE, false, [0; 6]),
        ("litellm.test", "", CLAUDE, false, [0; 6]),
        ("litellm.test", "cache_marks = true", "claude-sonnet-4-5", false, [0, 2, 3, 3, 3, 3]),
        ("litellm.test", "cache_marks = true", "gpt-5", false, [0; 6]),
    ] {
        let router = std::sync::Mutex::new(Router::default());
        let upstream = Upstream::start(move |request| routes(request, &router));
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "{CONFIG}[upstream.router]\nbase_url = 'http://{host}/api'\nprotocols = ['openai-chat']\nproxy = '{}'\n{more}\n",
            upstream.url()
        );
        let gateway = Gateway::configured(home.path(), &config);
        let requests: Vec<String> = (0..6).map(|at| chat(model, 2 * at + 2, own)).collect();
        for (at, request) in requests.iter().enumerate() {
            assert_eq!(gateway.post("/router/v1/chat/completions", &[], request).0, 200);
            booked(home.path(), at + 1);
        }
        gateway.stop();
        let arrived = upstream.received();
        let marks = |request: &Received| request.text().matches("cache_control").count();
        assert_eq!(arrived.iter().map(marks).collect::<Vec<_>>(), expected, "{host} {more} {model} {own}");
        if expected == [0; 6] {
            assert!(
                arrived.iter().zip(&requests).all(|(arrived, sent)| arrived.text() == *sent),
                "{host} {model}"
            );
            continue;
        }
        // Claude's provider accepts no marks within a result: OpenRouter moves them out, LiteLLM does not.
        let bodies = arrived.iter().map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
        let all: Vec<Value> = bodies.flat_map(|body| body["messages"].as_array().unwrap().clone()).collect();
        let results = || all.iter().filter(|message| message["role"] == "tool");
        let within = results().any(|result| result["content"].to_string().contains("cache_control"));
        let beside = results().any(|result| result.get("cache_control").is_some());
        assert_eq!((within, beside), (host == "openrouter.ai", host != "openrouter.ai"), "{host}");
        // Marks aside, the requests are the same.
        let plain = |text: &str| {
            let mut body: Value = serde_json::from_str(text).unwrap();
            for message in body["messages"].as_array_mut().unwrap() {
                message.as_object_mut().unwrap().remove("cache_control");
                if let Some([only]) = message["content"].as_array().map(Vec::as_slice) {
                    message["content"] = only["text"].clone();
                }
            }
            body
        };
        assert!(arrived.iter().zip(&requests).all(|(arrived, sent)| plain(&arrived.text()) == plain(sent)));
        let mut direct = Router::default();
        let mut paid = [0.0; 2];
        for (record, sent) in records(home.path()).iter().zip(&requests) {
            let usd = |value: &Value| value.as_f64().unwrap() / 1e12;
            let untouched = direct.usage(&serde_json::from_str(sent).unwrap());
            let found = [usd(&record["cost"]["total"]), usd(&record["counterfactual"]["cost"])];
            let bound = [found[1] * 1.15, dollars(untouched, 7)[0]];
            assert!((found[1] - bound[1]).abs() < 0.03 * bound[1], "{host} {own}: {found:?} {bound:?}");
            paid = [paid[0] + found[0], paid[1] + found[1]];
            assert!(paid[0] <= 1.15 * paid[1], "{own}: {paid:?}");
        }
        assert!(
            if own { (paid[0] - paid[1]).abs() < 1e-3 } else { paid[0] < 0.75 * paid[1] },
            "{own}: {paid:?}"
        );
    }
}
