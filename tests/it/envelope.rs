//! Requests inside another body, as Google's own clients send them after a login.

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Received, Upstream, records};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";
const STREAM: &str = "/v1internal:streamGenerateContent?alt=sse";

/// A history with this many results, in an envelope with other members.
fn body(results: usize) -> String {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "Find the bug"}]})];
    for at in 0..results {
        let lines: Vec<String> = (0..4000).map(|line| format!("{at} line {line:06} of a long log")).collect();
        let call = json!({"functionCall": {"name": "grep", "args": {"n": at}}});
        let result = json!({"functionResponse": {"name": "grep", "response": {"output": lines.join("\n")}}});
        contents.push(json!({"role": "model", "parts": [call]}));
        contents.push(json!({"role": "user", "parts": [result]}));
    }
    let request = json!({"contents": contents, "session_id": "s-1"});
    format!(
        r#"{{"model":"gemini-2.5-pro", "project":"p", "user_prompt_id":"s-1########0","request":{request}, "n":1.0}}"#
    )
}

/// The envelope, and the request in it.
fn around(text: &str) -> ([String; 2], String) {
    let (before, rest) = text.split_once(r#""request":"#).unwrap();
    let (request, behind) = rest.rsplit_once('}').and_then(|(rest, _)| rest.rsplit_once('}')).unwrap();
    ([before.to_owned(), behind.to_owned()], format!("{request}}}"))
}

fn stream() -> String {
    let text = json!({"response": {"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}}],
        "modelVersion": "gemini-2.5-pro", "responseId": "r"}, "traceId": "t"});
    let end = json!({"response": {"candidates": [{"finishReason": "STOP"}], "modelVersion": "gemini-2.5-pro",
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010}}});
    format!("data: {text}\r\n\r\ndata: {end}\r\n\r\n")
}

/// The request is shortened, found again, counted and booked as if it were sent without an envelope, which stays
/// unchanged to the byte.
#[test]
fn an_enveloped_request_is_edited_like_a_bare_one() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        let counted = !received.text().contains("project");
        (200, if counted { r#"{"totalTokens":9}"#.to_owned() } else { stream() })
    });
    let config = format!("{CONFIG}[upstream.code-assist]\nbase_url = '{}'\n", upstream.url());
    let gateway = Gateway::configured(home.path(), &config);
    let agent =
        [("user-agent", "GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64)"), ("authorization", "Bearer ya29.x")];
    for results in [1, 2] {
        let (status, answered) = gateway.post(STREAM, &agent, &body(results));
        assert_eq!((status, String::from_utf8(answered).unwrap()), (200, stream()));
    }
    let contents =
        |results| serde_json::from_str::<Value>(&body(results)).unwrap()["request"]["contents"].clone();
    let count = json!({"request": {"model": "models/gemini-2.5-pro", "contents": contents(2)}}).to_string();
    assert_eq!(gateway.post("/v1internal:countTokens", &agent, &count).0, 200);
    gateway.stop();

    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    for (results, text) in [(1, &sent[0]), (2, &sent[1])] {
        let whole = body(results);
        let ((expected, original), (found, request)) = (around(&whole), around(text));
        assert_eq!(found, expected);
        assert!(
            request.matches("bytes removed here").count() == results && request.len() < original.len() / 2
        );
    }
    let kept = |text: &str| text[..text.rfind(r#"],"session_id""#).unwrap()].to_owned();
    assert!(sent[1].starts_with(&kept(&sent[0])), "the second request does not begin with the first");
    let counted: Value = serde_json::from_str(&sent[2]).unwrap();
    let second: Value = serde_json::from_str(&sent[1]).unwrap();
    assert_eq!(counted["request"]["contents"], second["request"]["contents"]);

    let records = records(home.path());
    assert_eq!(records.len(), 2);
    for (record, (results, text)) in records.iter().zip([(1, &sent[0]), (2, &sent[1])]) {
        assert_eq!(record["model"], json!("gemini-2.5-pro"));
        assert_eq!((&record["tokens"]["input"], &record["tokens"]["output"]), (&json!(1000), &json!(10)));
        assert!(
            record["cost"]["total"].as_i64() > Some(0) && record["net_saved"].as_i64() > Some(0),
            "{record}"
        );
        assert_eq!(record["bytes"]["received"], json!(body(results).len()));
        assert_eq!(record["bytes"]["sent"], json!(text.len()));
    }
}

/// A request that is refused for its edits is sent unchanged, and one that is too long is shortened, in the same
/// envelope.
#[test]
fn enveloped_requests_recover_from_refusals() {
    let error =
        |message: &str| json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}});
    let refusal = move |received: &Received| -> Option<Value> {
        let text = received.text();
        if text.contains("bytes removed here") {
            Some(error("Request contains an invalid argument."))
        } else {
            None
        }
    };
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(move |received| -> Answer {
        refusal(received).map_or_else(|| (200, stream()), |refusal| (400, refusal.to_string()))
    });
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post(STREAM, &[], &body(1)).0, 200);
    gateway.stop();
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert!(sent.len() == 2 && sent[0] != body(1) && sent[1] == body(1));

    let home = tempfile::tempdir().unwrap();
    let too_long =
        error("The input token count (1200023) exceeds the maximum number of tokens allowed (1048576).");
    let upstream = Upstream::start(move |_| (400, too_long.to_string()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post(STREAM, &[], &body(2)).0, 400);
    let sent: Vec<String> = upstream.received().iter().map(Received::text).collect();
    assert!(sent.len() > 1 && sent.windows(2).all(|pair| pair[1].len() < pair[0].len()));
    assert!(sent.iter().all(|text| around(text).0 == around(&body(2)).0));
}
