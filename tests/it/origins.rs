//! Web pages in the user's browser: none from another machine can use the credentials that the gateway adds to a
//! request.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, send};

const MESSAGE: &str =
    r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;

/// The built-in upstreams, one of them with a key of the gateway's own.
fn config(upstream: &str, origins: &str) -> String {
    format!(
        "[listen]\nadmin = 'off'\norigins = [{origins}]\n\
         [upstream.anthropic]\nbase_url = '{upstream}'\nheaders = {{ x-api-key = 'the-gateways-own' }}\n\
         [upstream.openai]\nbase_url = '{upstream}'\n[upstream.gemini]\nbase_url = '{upstream}'\n"
    )
}

/// Method, path and headers of a request, and whether it is passed on.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], bool);

fn check(origins: &str, cases: &[Case<'_>]) {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let gateway = Gateway::configured(home.path(), &config(&upstream.url(), origins));
    for (method, path, headers, passes) in cases {
        let before = upstream.received().len();
        let (status, _) = send(gateway.address, method, path, headers, MESSAGE);
        let expected = if *passes { (200, 1) } else { (403, 0) };
        assert_eq!((status, upstream.received().len() - before), expected, "{method} {path} {headers:?}");
    }
}

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const MODELS: &str = "/anthropic/v1/models";
const EVIL: (&str, &str) = ("origin", "https://evil.test");
const PREFLIGHT: (&str, &str) = ("access-control-request-method", "POST");

#[test]
fn foreign_origins_do_not_get_the_gateways_headers() {
    check(
        "",
        &[
            ("POST", MESSAGES, &[], true),
            ("POST", MESSAGES, &[EVIL], false),
            ("POST", MESSAGES, &[EVIL, ("content-type", "text/plain")], false),
            ("POST", MESSAGES, &[EVIL, ("x-api-key", "the-pages-own")], false),
            ("POST", COUNT, &[EVIL], false),
            ("GET", MODELS, &[EVIL], false),
            ("GET", MODELS, &[], true),
            ("OPTIONS", "/anthropic/v1/messages", &[EVIL, PREFLIGHT], false),
            ("OPTIONS", MODELS, &[EVIL, PREFLIGHT], false),
            ("OPTIONS", MESSAGES, &[EVIL, PREFLIGHT], false),
            ("OPTIONS", MESSAGES, &[("origin", "http://localhost:3000"), PREFLIGHT], true),
            (
                "OPTIONS",
                "/v1/models",
                &[EVIL, PREFLIGHT, ("access-control-request-headers", "x-api-key")],
                false,
            ),
            ("POST", MESSAGES, &[("origin", "null")], false),
            // After DNS rebinding, the page has the same origin as the gateway.
            (
                "POST",
                MESSAGES,
                &[("origin", "http://evil.test:8787"), ("sec-fetch-site", "same-origin")],
                false,
            ),
            ("POST", MESSAGES, &[("origin", "http://localhost:3000"), EVIL], false),
            // Its requests to read have no origin then.
            ("GET", MODELS, &[("host", "evil.test:8787")], false),
            ("HEAD", MODELS, &[("host", "evil.test:8787"), ("sec-fetch-site", "same-origin")], false),
            ("GET", "/openai/v1/models", &[("host", "evil.test:8787")], true),
            // A proxy on this machine may pass on the host name that it was asked for.
            ("POST", MESSAGES, &[("host", "gateway.test")], true),
            // Resources and links of a page are requested without an origin.
            ("GET", MODELS, &[("sec-fetch-site", "cross-site")], false),
            ("GET", MODELS, &[("sec-fetch-site", "same-site")], true),
            ("GET", MODELS, &[("sec-fetch-site", "none")], true),
            ("POST", MESSAGES, &[("sec-fetch-mode", "cors")], true),
            (
                "POST",
                MESSAGES,
                &[("origin", "http://localhost:3000"), ("sec-fetch-site", "cross-site")],
                true,
            ),
            (
                "POST",
                MESSAGES,
                &[("origin", "vscode-webview://1c2d"), ("sec-fetch-site", "cross-site")],
                true,
            ),
            // The gateway adds no credentials there.
            ("POST", "/v1/chat/completions", &[EVIL], true),
            ("POST", "/v1/chat/completions", &[("origin", "null")], true),
            ("OPTIONS", "/openai/v1/models", &[EVIL, PREFLIGHT], true),
            ("OPTIONS", "/v1/chat/completions", &[EVIL, PREFLIGHT], true),
            ("GET", "/openai/v1/models", &[("sec-fetch-site", "cross-site")], true),
        ],
    );
}

#[test]
fn allowed_origins_get_the_gateways_headers() {
    check(
        "'https://*.evil.test', 'null'",
        &[
            ("GET", MODELS, &[("host", "my.evil.test")], true),
            ("GET", MODELS, &[("host", "evil.test")], false),
            ("POST", MESSAGES, &[("origin", "https://my.evil.test")], true),
            ("OPTIONS", "/anthropic/v1/messages", &[("origin", "https://my.evil.test"), PREFLIGHT], true),
            ("POST", MESSAGES, &[("origin", "null")], true),
            ("POST", MESSAGES, &[EVIL], false),
            ("GET", MODELS, &[("sec-fetch-site", "cross-site")], false),
        ],
    );
    check(
        "'*'",
        &[("POST", MESSAGES, &[EVIL], true), ("GET", MODELS, &[("sec-fetch-site", "cross-site")], true)],
    );
}

/// The refusal is in the caller's dialect and says which setting would allow the request. It is not booked, because
/// nothing was sent.
#[test]
fn the_refusal_names_the_key_that_allows_it() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let config = config(&upstream.url(), "")
        + "headers = { x-goog-api-key = 'the-gateways-own' }\n[upstream.local]\nprotocols = ['openai-chat']\n\
           base_url = 'http://127.0.0.1:9'\nheaders = { authorization = 'the-gateways-own' }\n";
    let gateway = Gateway::configured(home.path(), &config);
    for (path, name, kind) in [
        (MESSAGES, "anthropic", "/error/type"),
        (MODELS, "anthropic", "/error/type"),
        ("/local/v1/chat/completions", "local", "/error/type"),
        ("/v1beta/models/m:generateContent", "gemini", "/error/status"),
    ] {
        let (status, body) = gateway.post(path, &[EVIL], MESSAGE);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let message = body.pointer("/error/message").and_then(Value::as_str).unwrap();
        assert!(body.pointer(kind).is_some_and(Value::is_string), "{body}");
        let expected = format!(
            "plimsoll: a web page (origin `https://evil.test`) may not use what `upstream.{name}.headers` adds to \
             requests; `listen.origins` of the configuration names pages that may (client at fault)"
        );
        assert_eq!((status, message), (403, &*expected), "{path}");
    }
    gateway.stop();
    assert!(upstream.received().is_empty());
    assert!(!home.path().join("plimsoll/conversations").exists());
}

/// If a page may use an upstream with its own credentials, no summaries are written with those of the gateway.
#[test]
fn foreign_origins_get_no_summaries_with_the_gateways_headers() {
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
    let config = "preset = 'picoclaw'\n".to_owned()
        + &config(&upstream.url(), "")
        + "[summarize]\nupstream = 'anthropic'\nmodel = 'claude-haiku-4-5'\n";
    let gateway = Gateway::configured(home.path(), &config);
    for (who, headers) in [("a page", &[EVIL][..]), ("an agent", &[])] {
        let says = |at| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": format!("{who} {at} {}", "and so on ".repeat(200))});
        let body = json!({"model": "gpt-4o", "messages": (0..31).map(says).collect::<Vec<_>>()}).to_string();
        assert_eq!(gateway.post("/v1/chat/completions", headers, &body).0, 200);
    }
    let asked = asked.recv_timeout(Duration::from_secs(60)).expect("a summary is written for the agent");
    assert!(asked.contains("an agent 1") && !asked.contains("a page"), "it is of the agent's words alone");
}
