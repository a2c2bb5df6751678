//! Conversations that start from the checkpoint of another.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use plimsoll::store::Checkpoints;
use plimsoll::strategy::summary::Checkpoint;
use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, records};

const CONFIG: &str = "[listen]\nadmin = 'off'\n";
const HEADERS: [(&str, &str); 2] = [("x-plimsoll-checkpoint", "the old/one"), ("x-api-key", "k")];

fn gateway(home: &Path, upstream: &Upstream) -> Gateway {
    Gateway::start(home, CONFIG, &upstream.url())
}

fn provider() -> Upstream {
    let usage = json!({"input_tokens": 9, "output_tokens": 9});
    let answer = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage,
        "stop_reason": "end_turn", "content": [{"type": "text", "text": "yes"}]});
    Upstream::start(move |_| (200, answer.to_string()))
}

/// Writes a checkpoint where the gateway looks for it.
fn save(home: &Path, text: &str) {
    Checkpoints::below(&home.join("plimsoll")).write(HEADERS[0].1, "json", text).unwrap();
}

fn checkpoint() -> String {
    Checkpoint { version: 1, goal: "Port ARCH-9920".to_owned(), ..Checkpoint::default() }.to_json()
}

fn body(messages: &[Value]) -> String {
    json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string()
}

fn first_words(sent: &str) -> String {
    let sent: Value = serde_json::from_str(sent).unwrap();
    let content = &sent["messages"][0]["content"];
    content.as_str().map_or_else(|| content[0]["text"].as_str().unwrap().to_owned(), str::to_owned)
}

#[test]
fn a_checkpoint_stays_below_the_first_message() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    save(home.path(), &checkpoint());
    let says = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut messages = vec![says("user", "go on")];
    let mut begins = String::new();
    for turn in 0..3 {
        // Each request is sent through a new gateway; the checkpoint is gone by then.
        let gateway = gateway(home.path(), &upstream);
        assert_eq!(gateway.post("/v1/messages", &HEADERS, &body(&messages)).0, 200);
        gateway.stop();
        let first = first_words(&upstream.received().last().unwrap().text());
        assert!(
            first.starts_with("go on\n\n<checkpoint>") && first.contains("**Goal:** Port ARCH-9920"),
            "{first}"
        );
        if turn == 0 {
            begins = first;
            fs::remove_dir_all(home.path().join("plimsoll/checkpoints")).unwrap();
            // A checkpoint made again is the same as before.
            let gateway = self::gateway(home.path(), &upstream);
            assert_eq!(gateway.post("/v1/messages", &HEADERS, &body(&messages)).0, 200);
            gateway.stop();
            assert_eq!(first_words(&upstream.received().last().unwrap().text()), begins);
        } else {
            assert_eq!(first, begins);
        }
        messages.extend([says("assistant", "yes"), says("user", "and now")]);
    }
    // The same messages without the header are another conversation.
    let gateway = gateway(home.path(), &upstream);
    assert_eq!(gateway.post("/v1/messages", &HEADERS[1..], &body(&messages[..1])).0, 200);
    gateway.stop();
    assert_eq!(first_words(&upstream.received().last().unwrap().text()), "go on");
}

#[test]
fn an_unusable_checkpoint_is_the_clients_fault() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    let gateway = gateway(home.path(), &upstream);
    let request = body(&[json!({"role": "user", "content": "go on"})]);
    for (saved, why) in [
        (None, "`the old/one`: there is none; `plimsoll checkpoint CONVERSATION` writes one"),
        (Some("{}".to_owned()), "not a checkpoint"),
        (Some(checkpoint().replace("\"version\": 1", "\"version\": 2")), "newer"),
    ] {
        if let Some(text) = &saved {
            save(home.path(), text);
        }
        let (status, answer) = gateway.post("/v1/messages", &HEADERS, &request);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((status, &answer["type"]), (400, &json!("error")));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(why) && message.contains("client at fault"), "{message}");
    }
    gateway.stop();
    assert_eq!(upstream.received().len(), 0);
    // An observing gateway refuses nothing.
    let config = format!("mode = 'observe'\n{CONFIG}");
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    assert_eq!(gateway.post("/v1/messages", &HEADERS, &request).0, 200);
    gateway.stop();
}

/// If the checkpoint cannot be stored, the conversation does not begin; it does when the client tries again.
#[test]
fn a_checkpoint_that_cannot_be_stored_is_the_gateways_fault() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    save(home.path(), &checkpoint());
    let gateway = gateway(home.path(), &upstream);
    let request = body(&[json!({"role": "user", "content": "go on"})]);
    let other = rusqlite::Connection::open(home.path().join("plimsoll/plimsoll.db")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (status, answer) = gateway.post("/v1/messages", &HEADERS, &request);
    other.execute_batch("COMMIT").unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 503 && message.contains("try again (gateway at fault)"), "{status} {message}");
    assert_eq!(upstream.received().len(), 0);
    assert_eq!(gateway.post("/v1/messages", &HEADERS, &request).0, 200);
    gateway.stop();
    assert!(first_words(&upstream.received()[0].text()).contains("**Goal:** Port ARCH-9920"));
}

/// Several first requests at once begin the same conversation.
#[test]
fn concurrent_first_requests_carry_the_checkpoint() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    save(home.path(), &checkpoint());
    let gateway = gateway(home.path(), &upstream);
    for talk in 0..12 {
        let request = body(&[json!({"role": "user", "content": format!("go on {talk}")})]);
        let all = Barrier::new(6);
        let post = || {
            all.wait();
            gateway.post("/v1/messages", &HEADERS, &request).0
        };
        let statuses: Vec<u16> = thread::scope(|scope| {
            let posts: Vec<_> = (0..6).map(|_| scope.spawn(post)).collect();
            posts.into_iter().map(|post| post.join().unwrap()).collect()
        });
        assert_eq!(statuses, [200; 6], "{talk}");
    }
    gateway.stop();
    let sent = upstream.received();
    assert!(sent.iter().all(|one| first_words(&one.text()).contains("**Goal:** Port ARCH-9920")));
}

/// Whatever the first message contains, it carries the checkpoint, or the request is refused.
#[test]
fn a_conversation_never_begins_without_its_checkpoint() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    save(home.path(), &checkpoint());
    let gateway = gateway(home.path(), &upstream);
    let user = |content: Value| json!({"role": "user", "content": content});
    let answer = |text: &str| json!({"role": "assistant", "content": text});
    let image = json!([{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]);
    for (id, messages, expected) in [
        ("the old/one", vec![user(json!("a")), answer("{")], 200),
        ("the old/one", vec![user(json!("2+2?")), answer("4"), user(json!("the task"))], 200),
        ("no such", vec![user(json!("2+3?")), answer("5"), user(json!("the task"))], 400),
        ("задача-1", vec![user(json!("b"))], 400),
        ("the old/one", vec![user(image)], 400),
    ] {
        let before = upstream.received().len();
        let headers = [("x-plimsoll-checkpoint", id), ("x-api-key", "k")];
        assert_eq!(gateway.post("/v1/messages", &headers, &body(&messages)).0, expected, "{messages:?}");
        let sent =
            upstream.received()[before..].iter().map(|one| first_words(&one.text())).collect::<Vec<_>>();
        assert_eq!(sent.len(), usize::from(expected == 200), "{messages:?}");
        assert!(sent.iter().all(|first| first.contains("**Goal:** Port ARCH-9920")), "{sent:?}");
    }
    gateway.stop();
}

/// What cannot be read goes through as it came, whether or not it names a checkpoint: a conversation that is under way
/// must not end with a refusal. Its record says that the checkpoint was not put in, and the next request that can be
/// read carries it.
#[test]
fn unreadable_requests_leave_without_a_checkpoint() {
    let home = tempfile::tempdir().unwrap();
    let upstream = provider();
    save(home.path(), &checkpoint());
    let gateway =
        Gateway::start(home.path(), &format!("{CONFIG}[limits]\nmax_body = '1KiB'\n"), &upstream.url());
    let says = |role: &str, text: &str| json!({"role": role, "content": text});
    let post = |headers: &[(&str, &str)], body: &str| {
        let headers = [&HEADERS[..], headers].concat();
        assert_eq!(gateway.post("/v1/messages", &headers, body).0, 200);
        upstream.received().last().unwrap().text()
    };
    let twice = |messages: &[Value]| body(messages).replacen('{', r#"{"messages":[],"#, 1);
    for (first, is_begun) in [("begun", true), ("new", false)] {
        let begins = [says("user", first)];
        let goes_on = [&begins[..], &[says("assistant", "yes"), says("user", "and now")]].concat();
        if is_begun {
            assert!(first_words(&post(&[], &body(&begins))).contains("<checkpoint>"));
        }
        let long = [&goes_on[..], &[says("assistant", &"long ".repeat(400)), says("user", "so")]].concat();
        for (headers, body) in
            [(&[][..], twice(&goes_on)), (&[("content-encoding", "br")], body(&goes_on)), (&[], body(&long))]
        {
            assert_eq!(post(headers, &body), body);
        }
        assert!(first_words(&post(&[], &body(&goes_on))).contains("<checkpoint>"), "{first}");
    }
    gateway.stop();
    let all = records(home.path());
    let unread = all.iter().filter(|record| record["edits"]["state"] == "unread").collect::<Vec<_>>();
    // Those over the limit are not recorded.
    assert_eq!((all.len(), unread.len()), (7, 4));
    let note = "; the checkpoint that `x-plimsoll-checkpoint` names is not put in";
    assert!(
        unread.iter().all(|record| record["edits"]["why"].as_str().unwrap().ends_with(note)),
        "{unread:?}"
    );
}
