//! What the commands say of books that were written down here, record by record.

use std::fs;
use std::path::Path;

use plimsoll::conversation::{Chain, Digest};
use plimsoll::ledger::{Edits, Made, Own, Record};
use plimsoll::store::{Batch, Outputs, Sqlite, Store, Summary, ledger};
use serde_json::{Value, json};

use crate::cli::{done, json as printed, run};

/// A record of the conversation `c`.
fn record(id: &str) -> Record {
    Record {
        id: id.to_owned(),
        conversation: "c".to_owned(),
        thread: Some("t".to_owned()),
        outcome: "complete".to_owned(),
        messages: 9,
        ..Record::default()
    }
}

/// A store in `home`, and a configuration that leads to it.
fn keep(home: &Path, batch: Batch) {
    let path = home.join(ledger::FILE_NAME);
    let store = Sqlite::open(&path, Outputs::new(home.join("outputs")), home.join("logs"), 8).unwrap();
    let stored = store.commit(batch);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored).unwrap();
    fs::write(home.join("gateway.toml"), format!("[state]\ndir = '{}'\n", home.display())).unwrap();
}

fn rows(records: Vec<Record>) -> Batch {
    let rows = records.iter().enumerate().map(|(at, record)| record.row(at as i64 * 1000));
    Batch { ledger: rows.collect(), ..Batch::default() }
}

const CONFIG: [&str; 2] = ["-c", "gateway.toml"];

#[test]
fn the_clients_requests_are_counted_alone() {
    let home = tempfile::tempdir().unwrap();
    let made = Made { message: 2, rules: "fold".to_owned(), before: 900, after: 90, ..Made::default() };
    let edited = Edits { state: "edited".to_owned(), made: vec![made], ..Edits::default() };
    let own = Own { purpose: "summary".to_owned(), messages: 4, generation: 1, ..Own::default() };
    keep(
        home.path(),
        rows(vec![
            record("r1"),
            Record { own: Some(own), ..record("r2") },
            Record { edits: edited, ..record("r3") },
        ]),
    );
    let inspected = printed(home.path(), &[&["inspect", "c", "--json"], &CONFIG[..]].concat());
    let listed: Vec<(Value, Value)> = inspected["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["n"].clone(), one["record"]["id"].clone()))
        .collect();
    assert_eq!(listed, [(json!(1), json!("r1")), (Value::Null, json!("r2")), (json!(2), json!("r3"))]);
    let text = done(home.path(), &[&["inspect", "c", "--utc"], &CONFIG[..]].concat());
    let starts: Vec<String> =
        text.lines().skip(3).take(6).map(|line| line.chars().take(4).collect()).collect();
    assert_eq!(starts, ["  n ", "  1 ", "    ", "own ", "    ", "  2 "], "{text}");
    assert!(text.contains("\n       summary 1 of 4 messages\n"), "{text}");

    let diff = printed(home.path(), &[&["diff", "c", "2", "--json"], &CONFIG[..]].concat());
    assert_eq!((&diff["record"], &diff["changes"][0]["decided_in"]), (&json!("r3"), &json!(2)));
    let beyond = run(home.path(), &[&["diff", "c", "3"], &CONFIG[..]].concat());
    assert_eq!(beyond.err, "c: there is no request 3, the conversation has 2 requests\n");
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    let digest = Digest::of(&[b"history"]);
    let summary = Summary {
        chain: Chain(digest),
        end: 4,
        thread: "t".to_owned(),
        conversation: "c".to_owned(),
        goal: "Find the bug".to_owned(),
        text: "Found".to_owned(),
        outline: String::new(),
        model: "m".to_owned(),
        recipe: digest,
        generation: 1,
        score: None,
        at_ms: 0,
    };
    keep(home.path(), Batch { summaries: vec![summary], ..rows(vec![record("r1")]) });
    fs::write(home.path().join("taken"), "").unwrap();
    let refused = run(home.path(), &[&["checkpoint", "c", "--dir", "taken"], &CONFIG[..]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.starts_with("taken/c.checkpoint.json: "), "{}", refused.err);
}
