//! What is written to disk besides records: bodies if configured, credentials never.

use std::fs;

use plimsoll::store::Bodies;
use plimsoll::store::bodies::Form;
use serde_json::json;

use crate::cli::{done, json as printed};
use crate::support::{Gateway, Upstream, records};

use super::{CONFIG, answer, log, request};

#[test]
fn no_credential_is_written_to_disk() {
    const KEY: &str = "sk-0123456789abcdef";
    let home = tempfile::tempdir().unwrap();
    let refusal = json!({"type": "error", "error": {"type": "authentication_error",
        "message": format!("invalid x-api-key: {KEY}")}})
    .to_string();
    let said = refusal.clone();
    let upstream = Upstream::start(move |_| (401, said.clone()));
    let gateway = Gateway::start(home.path(), CONFIG, &upstream.url());
    let (_, body) = gateway.post("/v1/messages", &[("x-api-key", KEY)], &request(&[&log("long", 10)]));
    assert_eq!(body, refusal.as_bytes(), "the client sees what the provider said");
    gateway.stop();
    assert_eq!(records(home.path())[0]["error"], "invalid x-api-key: [credential]");
}

#[test]
fn bodies_are_kept_only_when_asked_for() {
    let (long, short) = (log("first", 4000), log("first", 10));
    for (config, result, expected) in [
        ("", &long, &[][..]),
        ("ledger.record = 'full'\n", &long, &["in", "out"]),
        ("ledger.record = 'full'\n", &short, &["in"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let gateway = Gateway::start(home.path(), &format!("{config}{CONFIG}"), &upstream.url());
        let body = request(&[result]);
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "sk-secret")], &body).0, 200);
        gateway.stop();
        let record = &records(home.path())[0];
        let bodies = Bodies::below(&home.path().join("plimsoll"));
        let (conversation, id) = (record["conversation"].as_str().unwrap(), record["id"].as_str().unwrap());
        let read =
            |form| bodies.read(conversation, id, form).unwrap().map(|body| String::from_utf8(body).unwrap());
        let kept = [(Form::Came, "in", body), (Form::Sent, "out", upstream.received()[0].text())];
        for (form, name, body) in kept {
            assert_eq!(read(form), expected.contains(&name).then_some(body), "{config} {name}");
        }
        let folder = home.path().join("plimsoll/bodies");
        assert_eq!(folder.exists(), !expected.is_empty());
    }
}

#[test]
fn recorded_bodies_are_compared_as_a_whole() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("{CONFIG}[state]\ndir = '{}'\n[ledger]\nrecord = 'full'\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let (first, second) = (log("first", 4000), log("second", 10));
    for body in [request(&[&first]), request(&[&first, &second])] {
        gateway.post("/v1/messages", &[], &body);
    }
    gateway.stop();
    fs::write(home.path().join("read.toml"), config).unwrap();
    let listed = printed(home.path(), &["conversations", "--json", "-c", "read.toml"]);
    let id = listed["conversations"][0]["id"].as_str().unwrap();
    for number in ["1", "2"] {
        let diff = printed(home.path(), &["diff", &id[..30], number, "--json", "-c", "read.toml"]);
        assert_eq!((&diff["from"], &diff["notes"]), (&json!("bodies"), &json!([])));
        let change = &diff["changes"][0];
        assert_eq!(diff["changes"].as_array().unwrap().len(), 1, "{diff}");
        assert_eq!(
            (&change["message"], &change["part"], &change["decided_in"]),
            (&json!(2), &json!(0), &json!(1))
        );
        assert_eq!((&change["what"], &change["rules"]), (&json!("result of Grep"), &json!("truncate")));
        assert_eq!(change["before"], first);
        let sent = &upstream.received()[0].text();
        assert!(sent.contains(change["after"].as_str().unwrap().lines().last().unwrap()), "{sent}");
        let output = fs::read_to_string(change["output"].as_str().unwrap()).unwrap();
        assert_eq!(output, first);
    }
    let text = done(home.path(), &["diff", id, "2", "-c", "read.toml"]);
    assert!(text.contains("message 2, part 0: result of Grep, truncate, "), "{text}");
}
