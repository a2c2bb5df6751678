//! What a gateway logs about itself, for people and for programs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::json as printed;
use crate::support::{Gateway, LOG, Upstream};

const CONFIG: &str = "listen.admin = 'off'\nlog.format = 'json'\n";
const ANSWER: &str = r#"{"type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":7}}"#;

/// The fields of the log lines with this message. No key occurs twice in a line.
fn told(home: &Path, message: &str) -> Vec<Value> {
    let log = fs::read_to_string(home.join(LOG)).unwrap();
    let lines = log.lines().map(|line| {
        assert_eq!(line.matches("\"message\":").count(), 1, "{line}");
        serde_json::from_str::<Value>(line).unwrap()["fields"].take()
    });
    lines.filter(|fields| fields["message"] == message).collect()
}

/// The record of the first request of the only conversation.
fn only_record(home: &Path) -> Value {
    let found = printed(home, &["conversations", "-c", "gateway.toml", "--json"]);
    let id = found["conversations"][0]["id"].as_str().unwrap();
    printed(home, &["inspect", id, "-c", "gateway.toml", "--json"])["requests"][0]["record"].take()
}

/// The body of a turn in which the same call was made this many times, with the same result.
fn circling(calls: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for at in 0..calls {
        let call =
            json!({"type": "tool_use", "id": at.to_string(), "name": "Bash", "input": {"command": "make"}});
        let result = json!({"type": "tool_result", "tool_use_id": at.to_string(), "content": "no"});
        messages.push(json!({"role": "assistant", "content": [call]}));
        messages.push(json!({"role": "user", "content": [result]}));
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 10, "messages": messages}).to_string()
}

#[test]
fn an_unanswered_request_is_logged_with_its_reason() {
    let home = tempfile::tempdir().unwrap();
    let config = format!("{CONFIG}state.dir = '{}'\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, "http://127.0.0.1:1");
    assert_eq!(gateway.post("/v1/messages", &[], &circling(0)).0, 502);
    gateway.stop();
    let record = only_record(home.path());
    assert_eq!((&record["outcome"], &record["bytes"]["sent"]), (&"failed".into(), &0.into()), "{record}");
    let told = told(home.path(), "not answered");
    let why = told[0]["why"].as_str().unwrap();
    assert!(told.len() == 1 && told[0]["status"] == 502 && why.starts_with("upstream `"), "{told:?}");
}

/// What an upstream does with a request, if it exists.
#[derive(Debug)]
enum Does {
    Nothing,
    Breaks,
    Waits,
    Fails,
}

/// A provider bills an answer that it made, whether it arrived or not: its cost is unknown, not zero.
#[test]
fn a_request_that_left_without_an_answer_may_have_cost_something() {
    for (does, status, expected) in [
        (None, 502, ("failed", 0)),
        (Some(Does::Nothing), 504, ("failed", 0)),
        (Some(Does::Fails), 500, ("complete", 0)),
        (Some(Does::Breaks), 502, ("upstream_broke", 1)),
        (Some(Does::Waits), 504, ("upstream_broke", 1)),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if matches!(does, Some(Does::Nothing)) { "https" } else { "http" };
        let url = format!("{scheme}://{}", upstream.local_addr().unwrap());
        let case = format!("{does:?}");
        let (done, until) = std::sync::mpsc::channel::<()>();
        let server = does.map(|does| {
            thread::spawn(move || {
                let mut asked = upstream.accept().unwrap().0;
                let mut read = Vec::new();
                while !matches!(does, Does::Nothing) && !read.ends_with(b"-4-6\"}") {
                    read.push(0);
                    asked.read_exact(read.last_mut().map(std::slice::from_mut).unwrap()).unwrap();
                }
                match does {
                    Does::Breaks => return,
                    Does::Fails => {
                        asked.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                    }
                    Does::Nothing | Does::Waits => {}
                }
                let _ = until.recv();
            })
        });
        let times = "response_timeout = '1s', connect_timeout = '1s'";
        let upstream = format!("upstream.anthropic = {{ base_url = '{url}', {times} }}");
        let gateway = Gateway::configured(
            home.path(),
            &format!("{CONFIG}state.dir = '{}'\n{upstream}", home.path().display()),
        );
        assert_eq!(gateway.post("/v1/messages", &[], &circling(0)).0, status, "{case}");
        drop(done);
        server.map(thread::JoinHandle::join).transpose().unwrap();
        gateway.stop();
        let (outcome, unknown) = expected;
        let record = only_record(home.path());
        assert_eq!(
            (&record["outcome"], &record["cost"]),
            (&outcome.into(), &Value::Null),
            "{case}: {record}"
        );
        let totals = &printed(home.path(), &["report", "-c", "gateway.toml", "--json"])["total"];
        assert_eq!((&totals["failed"], &totals["unknown_usage"]), (&1.into(), &unknown.into()), "{case}");
    }
}

#[test]
fn a_doom_loop_is_logged_with_its_tool() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, ANSWER.to_owned()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    assert_eq!(gateway.post("/v1/messages", &[], &circling(3)).0, 200);
    gateway.stop();
    let told = told(home.path(), "the agent makes the same call again and again, and gets the same result");
    assert_eq!((told.len(), &told[0]["tool"], &told[0]["calls"]), (1, &json!("Bash"), &json!(3)));
}

/// It may be meant, so the request goes where it always went.
#[test]
fn a_misspelt_name_of_an_upstream_is_warned_of_once() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, ANSWER.to_owned()));
    let [anthropic, local] = ["anthropic", "local"].map(|name| {
        format!("[upstream.{name}]\nbase_url = '{}'\nprotocols = ['anthropic']\n", upstream.url())
    });
    let gateway = Gateway::configured(home.path(), &format!("{CONFIG}{anthropic}{local}"));
    for path in [
        "/v1/messages",
        "/local/v1/messages",
        "/locla/v1/messages",
        "/locla/v1/messages",
        "/team/v1/messages",
    ] {
        assert_eq!(gateway.post(path, &[], &circling(0)).0, 200, "{path}");
    }
    gateway.stop();
    let paths: Vec<String> = upstream.received().iter().map(|asked| asked.line.clone()).collect();
    assert_eq!(
        paths[2..],
        ["locla", "locla", "team"].map(|name| format!("POST /{name}/v1/messages HTTP/1.1"))
    );
    let told = told(home.path(), "the path has an unknown upstream prefix: routed by its protocol instead");
    let told: Vec<_> = told.iter().map(|told| (&told["begins"], &told["upstream"], &told["hint"])).collect();
    assert_eq!(told, [(&"/locla/".into(), &"anthropic".into(), &"did you mean `/local/`?".into())]);
}

#[test]
fn an_admin_address_in_use_is_logged_with_its_config_key() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!("listen.admin = '{}'\nlog.format = 'json'\n", taken.local_addr().unwrap());
    Gateway::start(home.path(), &config, "http://127.0.0.1:1").stop();
    let says = "the admin address is taken: no admin listener; hint: `listen.admin` names another address, port 0 any free \
                port, \"off\" none";
    assert_eq!(told(home.path(), says).len(), 1);
}

/// The only trace of a wrong address that answers. Queries may hold keys.
#[test]
fn answers_of_upstreams_are_logged_for_debugging() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (404, "{}".to_owned()));
    let gateway = Gateway::start(home.path(), &format!("{CONFIG}log.level = 'debug'\n"), &upstream.url());
    assert_eq!(gateway.post("/v1/messages?key=secret", &[], &circling(0)).0, 404);
    gateway.stop();
    let told = told(home.path(), "answered");
    let (method, path, status) = (&told[0]["method"], &told[0]["path"], &told[0]["status"]);
    assert_eq!((method, path, status), (&json!("POST"), &json!("/v1/messages"), &json!(404)), "{told:?}");
    assert!(told[0]["ms"].is_u64() && told[0]["upstream"].is_string(), "{told:?}");
    assert!(!fs::read_to_string(home.path().join(LOG)).unwrap().contains("secret"));
}

/// At the first signal to stop, requests under way are awaited. At the second, they are broken off and booked as such.
#[test]
fn a_second_signal_ends_the_gateway_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (begun, never) = (mpsc::channel(), mpsc::channel::<()>());
    let (begins, waits) = (Mutex::new(begun.0), Mutex::new(never.1));
    let upstream = Upstream::start(move |_| {
        begins.lock().unwrap().send(()).unwrap();
        let _ = waits.lock().unwrap().recv();
        (200, ANSWER.to_owned())
    });
    let config = format!("{CONFIG}limits.drain_timeout = '1m'\nstate.dir = '{}'\n", home.path().display());
    let mut gateway = Gateway::start(home.path(), &config, &upstream.url());
    let mut client = TcpStream::connect(gateway.address).unwrap();
    let body = circling(0);
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: me\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all((head + &body).as_bytes()).unwrap();
    begun.1.recv().unwrap();
    gateway.tell();
    let since = Instant::now();
    while TcpStream::connect(gateway.address).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(60), "it listens still");
        thread::yield_now();
    }
    // A second signal that comes at once counts as the first one.
    while !gateway.has_ended() {
        assert!(since.elapsed() < Duration::from_secs(60), "it waits still");
        gateway.tell();
    }
    gateway.ended();
    assert!(since.elapsed() < Duration::from_secs(60), "it waits still");
    assert_eq!(client.read(&mut [0]).unwrap_or_default(), 0, "there is no answer");
    let says = told(
        home.path(),
        "stopping when these are answered; another SIGINT or SIGTERM, after half a second, ends it at once",
    );
    assert!(says.len() == 1 && says[0]["requests"] == 1 && says[0]["at_most"] == "60s", "{says:?}");
    assert_eq!(told(home.path(), "stopped; some requests were cut off").len(), 1);
    let report = printed(home.path(), &["report", "--json", "-c", "gateway.toml"]);
    assert_eq!(report["total"]["requests"], 1, "{report}");
    drop(never.0);
}

/// The warning says which conversation is left alone, and its record why: what a provider says may repeat the prompt,
/// which is never logged.
#[test]
fn a_refused_edit_is_logged_and_its_refusal_recorded() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|received| {
        if received.text().contains("plimsoll:") {
            let message = format!("no edits for sk-ant-a-long-credential {}", "because ".repeat(1000));
            let error = json!({"type": "invalid_request_error", "message": message});
            return (400, json!({"type": "error", "error": error}).to_string());
        }
        (200, ANSWER.to_owned())
    });
    let config = format!("{CONFIG}state.dir = '{}'\ntruncate.max_lines = 20\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let body = circling(1).replace("\"no\"", &json!("line\n".repeat(99)).to_string());
    let headers = [("x-api-key", "sk-ant-a-long-credential"), ("x-plimsoll-session-id", "mine")];
    assert_eq!(gateway.post("/v1/messages", &headers, &body).0, 200);
    gateway.stop();
    let message = "an edited request was refused, its original was not: this thread is no longer edited";
    let told = told(home.path(), message);
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!(told["conversation"], "mine");
    assert!(!told.to_string().contains("no edits"), "{told}");
    let record = fs::read_to_string(home.path().join("conversations/mine.jsonl")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let why = record["edits"]["why"].as_str().unwrap();
    assert!(why.starts_with("the edited form was refused: no edits for [credential] because"), "{why}");
    assert!(why.ends_with('…') && why.chars().count() < 2_100, "{why}");
}

/// The log says who is to blame for an incomplete answer: the upstream, or the time limit.
#[test]
fn a_truncated_answer_is_logged_as_one() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    for (breaks, message, field, error) in [
        (true, "an upstream broke off its answer", "error", Value::Null),
        (
            false,
            "an answer is broken off: its upstream sends nothing more",
            "idle_timeout",
            "the upstream sent nothing for 1s (`idle_timeout`)".into(),
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", upstream.local_addr().unwrap());
        let asked = thread::spawn(move || {
            let mut asked = upstream.accept().unwrap().0;
            asked.read_exact(&mut [0]).unwrap();
            asked.write_all(HALF.as_bytes()).unwrap();
            if breaks {
                asked.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let _ = asked.read_to_end(&mut Vec::new());
        });
        let upstream = format!("upstream.anthropic = {{ base_url = '{url}', idle_timeout = '1s' }}");
        let gateway = Gateway::configured(
            home.path(),
            &format!("{CONFIG}state.dir = '{}'\n{upstream}", home.path().display()),
        );
        let mut client = TcpStream::connect(gateway.address).unwrap();
        let body = circling(0);
        let head =
            format!("POST /v1/messages HTTP/1.1\r\nhost: me\r\ncontent-length: {}\r\n\r\n", body.len());
        client.write_all((head + &body).as_bytes()).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
        asked.join().unwrap();
        gateway.stop();
        let said = told(home.path(), message);
        assert!(
            matches!(&said[..], [one] if one["upstream"] == "anthropic" && one[field].is_string()),
            "{said:?}"
        );
        let record = only_record(home.path());
        assert_eq!((&record["outcome"], &record["error"]), (&"upstream_broke".into(), &error), "{record}");
    }
}
