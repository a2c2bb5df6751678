//! What the commands print about a ledger that these tests write record by record.

use std::fs;
use std::path::Path;

use plimsoll::conversation::{Chain, Digest};
use plimsoll::ledger::words::{Outcome, State};
use plimsoll::ledger::{Cost, Counterfactual, Edits, Made, OwnCall, Record, Shares, Splice};
use plimsoll::store::{Batch, Outputs, Sqlite, Store, Summary, ledger};
use serde_json::{Value, json};

use crate::cli::{done, json as printed, run};
use crate::support::{Answer, Gateway, Received, Upstream};

/// A record of the conversation `c`.
fn record(id: &str) -> Record {
    Record {
        id: id.to_owned(),
        conversation: "c".to_owned(),
        thread: Some("t".to_owned()),
        outcome: Outcome::Complete.into(),
        messages: 9,
        ..Record::default()
    }
}

/// A store in `home`, and a configuration file that points to it.
fn keep(home: &Path, batch: Batch) {
    let path = home.join(ledger::FILE_NAME);
    let store = Sqlite::open(&path, Outputs::new(home.join("outputs")), home.join("logs"), 8).unwrap();
    let stored = store.commit(batch);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored).unwrap();
    fs::write(home.join("gateway.toml"), format!("[state]\ndir = '{}'\n", home.display())).unwrap();
}

/// The records are a second apart.
fn rows(records: &[Record]) -> Batch {
    let rows =
        (0..).step_by(1000).zip(records).map(|(at_ms, record)| Box::new(record.clone()).into_row(at_ms));
    Batch { ledger: rows.collect(), ..Batch::default() }
}

const CONFIG: [&str; 2] = ["-c", "gateway.toml"];

#[test]
fn own_calls_are_not_counted_as_requests() {
    let home = tempfile::tempdir().unwrap();
    let made = Made { message: 2, rules: "fold".to_owned(), before: 900, after: 90, ..Made::default() };
    let edited = Edits { state: State::Edited.into(), made: vec![made], ..Edits::default() };
    let own = OwnCall { purpose: "summary".to_owned(), messages: 4, generation: 1, ..OwnCall::default() };
    keep(
        home.path(),
        rows(&[
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
    // Which books were read depends on the configuration.
    for command in ["inspect", "fidelity"] {
        let none = run(home.path(), &[&[command, "z"], &CONFIG[..]].concat());
        let said = format!("no conversation id starts with `z` in {}\n", home.path().display());
        assert_eq!((none.code, none.err), (Some(1), said));
    }
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

/// A conversation with this many commands run so far.
fn request(results: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for at in 0..results {
        let lines: Vec<String> =
            (0..60).map(|line| format!("step {at}, line {line}: {}", line * 7919 % 1009)).collect();
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": at.to_string(), "name": "Bash", "input": {"command": format!("run {at}")}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": at.to_string(), "content": lines.join("\n")}]}));
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
}

/// A provider that counts one token per four bytes.
fn answer(request: &Received) -> Answer {
    let body = json!({"type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "content": [],
        "stop_reason": "end_turn", "usage": {"input_tokens": request.body.len() / 4, "output_tokens": 7}});
    (200, body.to_string())
}

/// Two conversations with the same results, of another tool or shortened otherwise: for each, the commands show what
/// was sent in it.
#[test]
fn history_shows_no_edits_of_another_conversation() {
    const CLEAR: &str = "clear.gate = ['eager']\nclear.minimum_tokens = 0\nclear.settle = 1\n\
                         clear.protect_tokens = { view = 0, other = 0 }\n";
    for (what, rules, begun) in [
        ("cut", "truncate", [("Bash", "truncate.max_lines = 20\n"), ("Bash", "truncate.max_lines = 12\n")]),
        ("cleared", "clear", [("Bash", CLEAR), ("Grep", CLEAR)]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let mut sent = Vec::new();
        for (at, (tool, settings)) in begun.into_iter().enumerate() {
            let config = format!("listen.admin = 'off'\nstate.dir = '{}'\n{settings}", home.path().display());
            let gateway = Gateway::start(home.path(), &config, &upstream.url());
            let headers = [("x-api-key", "k"), ("x-plimsoll-session-id", ["one", "two"][at])];
            for results in 1..=5 {
                let body = request(results).replace("Bash", tool).replace("bug", &format!("bug {at}"));
                assert_eq!(gateway.post("/v1/messages", &headers, &body).0, 200);
            }
            gateway.stop();
            let last: Value = serde_json::from_slice(&upstream.received().pop().unwrap().body).unwrap();
            let content = &last["messages"][2]["content"][0]["content"];
            sent.push(content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned());
        }
        assert_ne!(sent[0], sent[1], "{what}");
        for ((id, sent), (tool, _)) in ["one", "two"].iter().zip(&sent).zip(begun) {
            let diff = printed(home.path(), &[&["diff", id, "5", "--json"], &CONFIG[..]].concat());
            let change = diff["changes"].as_array().unwrap().iter().find(|one| one["message"] == 2).unwrap();
            assert_eq!((&change["after"], &change["rules"]), (&json!(sent), &json!(rules)), "{what} {id}");
            assert_eq!(change["what"], format!("result of {tool}"), "{what} {id}");
        }
    }
}

/// Records name the tools whose new results were shortened.
#[test]
fn truncations_are_shown_with_their_tools() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("[truncate]\nmax_lines = 20\n[state]\ndir = '{}'\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let other = request(1).replace("Bash", "Other").replace("Find", "Fix");
    for body in [request(1), request(2), other] {
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &body).0, 200);
    }
    gateway.stop();
    let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
    let mut tools = Vec::new();
    for one in listed["conversations"].as_array().unwrap() {
        let id = one["id"].as_str().unwrap();
        let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
        for one in inspected["requests"].as_array().unwrap() {
            let made = one["record"]["edits"]["made"].as_array().unwrap();
            tools.extend(made.iter().map(|made| made["tool"].as_str().unwrap().to_owned()));
        }
    }
    tools.sort_unstable();
    assert_eq!(tools, ["Bash", "Bash", "Other"]);
}

/// How full the window was depends on what was sent, not on earlier measurements.
#[test]
fn zones_are_those_of_the_sent_prompt() {
    const SETTINGS: &str = "[listen]\nadmin = 'off'\n[window]\nsize = 13000\n[truncate]\nmax_lines = 20\n\
                            [clear]\ngate = ['window']\n";
    for (mode, says) in [
        ("rewrite", ["before the event it was in zone red", "event (window)"]),
        ("observe", ["if shortened, it would be in zone green", "would be cleared"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!("mode = '{mode}'\n{SETTINGS}[state]\ndir = '{}'\n", home.path().display());
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for results in 0..40 {
            assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &request(results)).0, 200);
        }
        gateway.stop();
        let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
        let id = listed["conversations"][0]["id"].as_str().unwrap();
        let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
        let text = done(home.path(), &[&["inspect", id], &CONFIG[..]].concat());
        let mut others = 0;
        for one in inspected["requests"].as_array().unwrap() {
            let (window, record) = (&one["record"]["window"], &one["record"]);
            let share = record["tokens"]["input"].as_f64().unwrap()
                / (window["tokens"].as_f64().unwrap() - window["reserved"].as_f64().unwrap());
            let bounds = [(0.9, "red"), (0.75, "orange"), (0.5, "yellow"), (0.0, "green")];
            let zone = bounds.iter().find(|(bound, _)| share >= *bound).unwrap().1;
            assert_eq!(window["zone_sent"], zone, "{record}");
            let row = format!("\n{:>2} ", one["n"].as_u64().unwrap());
            let row = text[text.find(&row).unwrap() + 1..].lines().next().unwrap();
            assert_eq!(row.split_whitespace().nth(5), Some(zone), "{row}");
            others += usize::from(window["zone"] != zone);
        }
        let fill = &inspected["fill"];
        let regions =
            fill["regions"].as_array().unwrap().iter().map(|region| region["name"].as_str().unwrap());
        assert_eq!(fill["window"], 13_000);
        assert_eq!(
            regions.collect::<Vec<_>>(),
            ["system", "tools", "history", "results", "memory", "output"]
        );
        assert!(text.contains("\nof the window ") && text.contains(" tokens come with a turn: "), "{text}");
        assert!(others > 0 && says.iter().all(|says| text.contains(says)), "{text}");
    }
}

/// An event names the preset of the settings that it was decided with. A repeated request decides nothing.
#[test]
fn events_are_shown_with_their_preset() {
    let room = "window.size = 13000\nclear.gate = ['window']\ntruncate.max_lines = 20\n";
    let profile = format!("[profile.p]\nmatch.model = '*'\npreset = 'pulse'\n{room}");
    // `opencode` keeps as many lines of command output as of other results, the default preset twice as many.
    let lines = room.replace("max_lines = 20", "max_lines = 40");
    let base = format!("preset = 'opencode'\n[profile.p]\nmatch.model = '*'\n{lines}");
    for (settings, preset) in [(room.to_owned(), "default"), (profile, "pulse"), (base, "opencode")] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!("listen.admin = 'off'\nstate.dir = '{}'\n{settings}", home.path().display());
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for results in 0..40 {
            for _ in 0..2 {
                assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &request(results)).0, 200);
            }
        }
        gateway.stop();
        let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
        let id = listed["conversations"][0]["id"].as_str().unwrap();
        let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
        let records = inspected["requests"].as_array().unwrap().iter().map(|one| &one["record"]);
        let (again, first): (Vec<_>, Vec<_>) = records.partition(|record| record["relation"] == "retry");
        let events = |records: &[&Value]| -> Vec<Value> {
            let events = records.iter().map(|record| &record["edits"]["event"]);
            events.filter(|event| !event.is_null()).map(|event| event["preset"].clone()).collect()
        };
        assert!(!events(&first).is_empty(), "{preset}");
        assert!(events(&first).iter().all(|named| named == preset), "{preset}: {:?}", events(&first));
        assert_eq!((again.len(), events(&again)), (40, Vec::new()), "{preset}");
        let text = done(home.path(), &[&["inspect", id], &CONFIG[..]].concat());
        let named = if preset == "default" { String::new() } else { format!(", preset {preset}") };
        assert!(text.contains(&format!("event (window{named}): ")), "{text}");
    }
}

/// Calls with their ids, tools and arguments, and their results. A result may be an error, or missing.
type Called<'a> = (&'a str, &'a str, Value, Option<(&'a str, bool)>);

fn calling(calls: &[Called<'_>]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for (id, tool, input, result) in calls {
        let call = json!({"type": "tool_use", "id": id, "name": tool, "input": input});
        messages.push(json!({"role": "assistant", "content": [call]}));
        let next = result.map_or_else(
            || json!({"type": "text", "text": "Stop"}),
            |(text, is_error)| {
                json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error})
            },
        );
        messages.push(json!({"role": "user", "content": [next]}));
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
}

/// A screenshot that was cleared: nothing of it is saved, and every comparison counts it at the size of an image.
#[test]
fn removed_screenshots_are_shown() {
    let shot = "iVBORw0KGgoAAAANSUhEUgAB".repeat(500);
    let request = |results: usize| {
        let mut messages = vec![json!({"role": "user", "content": "Book a table"})];
        for at in 0..results {
            let image = json!({"type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": shot}});
            let (call, result) = (json!({"action": "left_click", "coordinate": [at, at]}), json!([image]));
            messages.push(json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": at.to_string(), "name": "computer", "input": call}]}));
            messages.push(json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": at.to_string(), "content": result}]}));
        }
        json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
    };
    for kept in ["usage", "full"] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!(
            "listen.admin = 'off'\nledger.record = '{kept}'\nstate.dir = '{}'\nclear.gate = ['eager']\n",
            home.path().display()
        );
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for results in 1..=8 {
            assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &request(results)).0, 200);
        }
        gateway.stop();
        let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
        let id = listed["conversations"][0]["id"].as_str().unwrap();
        let diff = printed(home.path(), &[&["diff", id, "8", "--json"], &CONFIG[..]].concat());
        assert_eq!(diff["from"], if kept == "full" { "bodies" } else { "store" });
        let is_marked = |change: &&Value| change["rules"] == "cache mark";
        let changes: Vec<&Value> =
            diff["changes"].as_array().unwrap().iter().filter(|one| !is_marked(one)).collect();
        assert!(changes.len() > 3, "{diff}");
        for change in &changes {
            let line = "[plimsoll: result of computer cleared (an image or file is not kept); \
                        run the tool again for a new one]";
            assert_eq!((&change["before"], &change["after"]), (&Value::Null, &json!(line)), "{kept}");
            let sizes = (&change["bytes_before"], &change["bytes_after"]);
            assert_eq!(sizes, (&json!(6400), &json!(line.len())), "{kept}");
            assert_eq!((&change["rules"], &change["output"]), (&json!("clear"), &Value::Null), "{kept}");
        }
        let outputs = printed(home.path(), &[&["outputs", "--json"], &CONFIG[..]].concat());
        assert_eq!(outputs["outputs"], json!([]), "{kept}");
        let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
        assert_eq!(inspected["calls"]["cleared"], json!(changes.len()), "{kept}");
    }
}

/// A cleared result, an uncleared one, an error and a call without a result. Files are listed once each, by the calls
/// that did not fail.
#[test]
fn calls_and_files_are_shown() {
    const SETTINGS: &str = "clear.gate = ['eager']\nclear.minimum_tokens = 0\n\
                            clear.protect_tokens = { view = 0, other = 0 }\n";
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("listen.admin = 'off'\nstate.dir = '{}'\n{SETTINGS}", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let lines: Vec<String> = (0..800).map(|line| format!("line {line}: {}", line * 7919 % 100_003)).collect();
    let long = lines.join("\n");
    let edit = |path: &str| json!({"file_path": path, "old_string": "a", "new_string": "b"});
    let calls: &[Called<'_>] = &[
        ("1", "Bash", json!({"command": "make"}), Some((&long, false))),
        ("2", "Edit", edit("/w/src/B.rs"), Some(("ok", false))),
        ("3", "Write", json!({"file_path": "/w/denied.rs", "content": "x"}), Some(("denied", true))),
        ("4", "Bash", json!({"command": "make test"}), None),
    ];
    for count in 1..=calls.len() {
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &calling(&calls[..count])).0, 200);
    }
    let files: &[Called<'_>] = &[
        ("5", "Write", json!({"file_path": "a.rs", "content": "x"}), Some(("ok", false))),
        ("6", "Edit", edit("/w/src/B.rs"), Some(("ok", false))),
    ];
    let all = [calls, files].concat();
    for count in [calls.len() + 1, calls.len() + 2] {
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &calling(&all[..count])).0, 200);
    }
    gateway.stop();
    let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
    let id = listed["conversations"][0]["id"].as_str().unwrap();
    let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
    let requests = inspected["requests"].as_array().unwrap();
    let states =
        |calls: &Value| ["pending", "completed", "error", "cleared"].map(|state| calls[state].clone());
    assert_eq!(states(&requests[3]["record"]["calls"]), [1, 1, 1, 1].map(Value::from), "{inspected:#}");
    assert_eq!(states(&inspected["calls"]), [1, 3, 1, 1].map(Value::from));
    let written: Vec<&Value> = requests.iter().map(|one| &one["record"]["files"]).collect();
    assert_eq!(json!(written), json!([[], ["/w/src/B.rs"], [], [], ["a.rs"], ["/w/src/B.rs"]]));
    let files =
        json!([{"path": "/w/src/B.rs", "n": 2, "requests": 2}, {"path": "a.rs", "n": 5, "requests": 1}]);
    assert_eq!(inspected["files"], files);
    let text = done(home.path(), &[&["inspect", id], &CONFIG[..]].concat());
    for says in [
        "\ncalls of tools: 1 pending, 3 completed, 1 error, 1 cleared\n",
        "\nfiles written  first in  requests\n/w/src/B.rs           2         2\na.rs                  5         1\n",
    ] {
        assert!(text.contains(says), "{text}");
    }
}

/// The same call this many times, with the number of calls in the instructions, and the provider asked to clear
/// results.
fn circling(calls: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Wait for the build"})];
    for at in 0..calls {
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": at.to_string(), "name": "Bash", "input": {"command": "make", "at": 1}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": at.to_string(), "content": "not yet"}]}));
    }
    let edits = json!([{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]);
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "system": format!("Be brief.\nStep {calls}."),
        "context_management": {"edits": edits}, "messages": messages})
    .to_string()
}

/// Only reported: the gateway does nothing about it.
#[test]
fn changes_by_the_client_are_shown() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let config = format!("[state]\ndir = '{}'\n", home.path().display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    for calls in 0..4 {
        assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &circling(calls)).0, 200);
    }
    gateway.stop();
    let listed = printed(home.path(), &[&["conversations", "--json"], &CONFIG[..]].concat());
    let id = listed["conversations"][0]["id"].as_str().unwrap();
    let inspected = printed(home.path(), &[&["inspect", id, "--json"], &CONFIG[..]].concat());
    let told = inspected["requests"].as_array().unwrap().iter().map(|one| {
        let record = &one["record"];
        assert_eq!(record["edits"]["deferred"], "provider");
        (record["prompt"]["volatile_at"].clone(), record["doom_loop"].clone())
    });
    let circles = json!({"tool": "Bash", "calls": 3, "same_results": true});
    let told: Vec<(Value, Value)> = told.collect();
    assert_eq!(
        told,
        [
            (Value::Null, Value::Null),
            (json!(15), Value::Null),
            (json!(15), Value::Null),
            (json!(15), circles)
        ]
    );
    let text = done(home.path(), &[&["inspect", id], &CONFIG[..]].concat());
    for says in [
        "\nthe provider is asked to make room by itself",
        "\n       the instructions change at byte 15 (line 2)",
        "\n       the same call of Bash 3 times in a row, with the same result\n",
    ] {
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn an_invalid_checkpoint_is_named() {
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
    keep(home.path(), Batch { summaries: vec![summary], ..rows(&[record("r1")]) });
    fs::write(home.path().join("taken"), "").unwrap();
    let refused = run(home.path(), &[&["checkpoint", "c", "--dir", "taken"], &CONFIG[..]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.starts_with("taken/c.checkpoint.json: "), "{}", refused.err);
}

/// A request to which only cache marks were added is shown as marked.
#[test]
fn marks_are_shown() {
    let home = tempfile::tempdir().unwrap();
    let edited = |marked, parts: &[(&str, u32)]| Edits {
        state: State::Edited.into(),
        parts: parts.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect(),
        marked,
        ..Edits::default()
    };
    let summed_up = Edits { splice: Some(Splice::default()), ..edited(true, &[]) };
    let edits = [edited(true, &[]), edited(true, &[("fold", 1)]), edited(false, &[("fold", 1)]), summed_up];
    let records: Vec<Record> = edits
        .into_iter()
        .zip(["r1", "r2", "r3", "r4"])
        .map(|(edits, id)| Record { edits, ..record(id) })
        .collect();
    keep(home.path(), rows(&records));
    let said = |arguments: &[&str]| done(home.path(), &[arguments, &CONFIG[..]].concat());
    let inspected = said(&["inspect", "c"]);
    assert_eq!(inspected.matches("only marked for the provider's cache").count(), 1, "{inspected}");
    let marked =
        ["1", "2", "3"].map(|n| said(&["diff", "c", n]).contains("it is marked for the provider's cache"));
    assert_eq!(marked, [true, true, false]);
}

/// Nothing is said to be sent in another form if the original was sent in place of the edits.
#[test]
fn refused_edits_are_not_shown_as_sent() {
    for original_resent in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let made = |rules: &str| Made { rules: rules.to_owned(), before: 900, after: 100, ..Made::default() };
        let edits = |made| Edits {
            state: State::Edited.into(),
            parts: [("fold", 1), ("reasoning", 2)].map(|(rule, count)| (rule.to_owned(), count)).into(),
            made,
            ..Edits::default()
        };
        let splice = Some(Splice { rule: "note".to_owned(), end: 1, ..Splice::default() });
        let [first, last] = [("r1", 0, 1), ("r2", 1, 2)].map(|(id, prior, messages)| Record {
            prior,
            messages,
            prompt: Some(Shares::default()),
            ..record(id)
        });
        let first = Record { edits: edits(vec![made("fold")]), ..first };
        let last = Record { edits: Edits { splice, original_resent, ..edits(Vec::new()) }, ..last };
        keep(home.path(), rows(&[first, last]));
        let inspected = done(home.path(), &[&["inspect", "c"], &CONFIG[..]].concat());
        for said in
            ["in another form: fold 1; 800 bytes less", "a note stands for", "2 blocks of reasoning left out"]
        {
            assert_eq!(inspected.contains(&format!("\n{said}")), !original_resent, "{said}: {inspected}");
        }
    }
}

/// Additions besides the messages are shown for the requests that were sent with them, and for no others.
#[test]
fn additions_are_shown() {
    for kept in ["usage", "full"] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|received| {
            let is_strict = received.text().contains("strict") && received.text().contains("cache_key");
            if is_strict { (400, "{}".to_owned()) } else { (200, r#"{"id":"c","choices":[]}"#.to_owned()) }
        });
        let config = format!(
            "listen.admin = 'off'\nledger.record = '{kept}'\nstate.dir = '{}'\n[upstream.openai]\nbase_url = '{}'\n\
             cache_key = 'shared'\ninclude_usage = true\n",
            home.path().display(),
            upstream.url()
        );
        let gateway = Gateway::configured(home.path(), &config);
        let hi = json!([{"role": "user", "content": "hi"}]);
        let long = json!([hi[0], {"role": "assistant", "content": null, "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "run", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "t", "content": "line\n".repeat(12_000)}]);
        for body in [
            json!({"messages": hi}),
            json!({"messages": hi, "stream": true, "stream_options": {}}),
            json!({"messages": hi, "prompt_cache_key": "own"}),
            json!({"messages": hi, "model": "strict"}),
            json!({"messages": long}),
        ] {
            let headers = [("x-session-id", "c")];
            assert_eq!(gateway.post("/v1/chat/completions", &headers, &body.to_string()).0, 200);
        }
        gateway.stop();
        let beside = |stored: &str, compared: &str| match kept {
            "full" => format!("beside the messages: {compared}"),
            _ => format!("added beside the messages: {stored}"),
        };
        let key = beside("prompt_cache_key", "prompt_cache_key added");
        let both =
            beside("prompt_cache_key, stream_options", "stream_options changed, prompt_cache_key added");
        let (own, other) = ("it was sent as it came", "its messages were sent as they came");
        for (n, said, note) in [
            ("1", other, &*key),
            ("2", other, &*both),
            ("3", own, ""),
            ("4", own, ""),
            ("5", "1 part sent in another form", &*key),
        ] {
            let text = done(home.path(), &[&["diff", "c", n], &CONFIG[..]].concat());
            assert!(text.starts_with(&format!("request {n} of c: {said}\n")), "{kept} {text}");
            assert_eq!(text.lines().find(|line| line.contains("beside")).unwrap_or(""), note, "{kept} {n}");
        }
    }
}

/// A session continued under another name continues what was sent: everything shown about it agrees with its records.
#[test]
fn a_history_that_began_in_another_conversation_is_shown() {
    for kept in ["usage", "full"] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!(
            "listen.admin = 'off'\nledger.record = '{kept}'\ntruncate.max_lines = 20\nclear.gate = []\ncache.marks = false\n\
             state.dir = '{}'\n",
            home.path().display()
        );
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for (session, results) in [("first", 1), ("first", 2), ("again", 2), ("again", 3), ("first", 4)] {
            let headers = [("x-api-key", "k"), ("x-plimsoll-session-id", session)];
            assert_eq!(gateway.post("/v1/messages", &headers, &request(results)).0, 200);
        }
        gateway.stop();
        let said = |arguments: &[&str]| printed(home.path(), &[arguments, &["--json"], &CONFIG[..]].concat());
        let requests = said(&["inspect", "again"])["requests"].clone();
        assert_eq!(requests[0]["record"]["relation"], "fork");
        for (at, decided) in
            [(0, &[("first", 1), ("first", 2)][..]), (1, &[("first", 1), ("first", 2), ("", 2)])]
        {
            let diff = said(&["diff", "again", &(at + 1).to_string()]);
            let changes = diff["changes"].as_array().unwrap();
            let found: Vec<_> = changes
                .iter()
                .map(|one| (one["decided_for"].as_str().unwrap_or(""), one["decided_in"].as_u64().unwrap()))
                .collect();
            assert_eq!(found, decided, "{kept} {at}");
            let less: u64 = changes
                .iter()
                .map(|one| one["bytes_before"].as_u64().unwrap() - one["bytes_after"].as_u64().unwrap())
                .sum();
            let record = &requests[at]["record"];
            assert_eq!(record["edits"]["parts"]["truncate"], decided.len(), "{kept} {at}");
            assert_eq!(record["bytes"]["saved"], less, "{kept} {at}");
        }
        let text = done(home.path(), &[&["diff", "again", "1"], &CONFIG[..]].concat());
        assert!(text.contains("bytes, decided in request 2 of first\n"), "{kept} {text}");
        let saved = requests[1]["record"]["bytes"]["saved"].as_u64().unwrap();
        let foot = done(home.path(), &[&["inspect", "again"], &CONFIG[..]].concat());
        let foot = foot.lines().find(|line| line.starts_with("in another form")).unwrap().replace(',', "");
        assert_eq!(foot, format!("in another form: truncate 3; {saved} bytes less"), "{kept}");
        let of = |id: &str| {
            let outputs = said(&["outputs", "--conversation", id])["outputs"].clone();
            let uses = outputs.as_array().unwrap().iter().flat_map(|one| one["uses"].as_array().unwrap());
            let uses = uses.filter(|one| one["conversation"] == id).map(|one| one["requests"].to_string());
            let mut uses: Vec<String> = uses.collect();
            uses.sort();
            uses
        };
        assert_eq!(of("again"), ["[1]", "[1]", "[2]"], "{kept}");
        assert_eq!(of("first"), ["[1]", "[2]", "[3]", "[3]"], "{kept}");
        if kept == "full" {
            let log = home.path().join("conversations/again.jsonl");
            let replayed = said(&["replay", log.to_str().unwrap()]);
            assert_eq!(replayed["files"][0]["as_recorded"], 2);
        }
    }
}

/// A client that goes back, in the same session or in another one, gets what was sent up to there, without later
/// decisions. Everything shown about all these requests agrees with what was sent.
#[test]
fn a_rewound_request_is_shown_as_it_was_sent() {
    let forked = |results: usize, words: &[&str]| {
        let mut body: Value = serde_json::from_str(&request(results)).unwrap();
        for words in words {
            let said = [("assistant", "Well"), ("user", *words)];
            let said = said.map(|(role, text)| json!({"role": role, "content": text}));
            body["messages"].as_array_mut().unwrap().extend(said);
        }
        body.to_string()
    };
    for kept in ["usage", "full"] {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = format!(
            "listen.admin = 'off'\nledger.record = '{kept}'\nwindow.size = 13000\ntruncate.max_lines = 40\n\
             clear.gate = ['window']\ncache.marks = false\nstate.dir = '{}'\n",
            home.path().display()
        );
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        let mut bodies: Vec<_> = (0..=32).map(|results| ("one", request(results))).collect();
        for session in ["one", "two"] {
            for results in [31, 24, 12] {
                bodies.push((session, forked(results, &[session])));
                bodies.push((session, forked(results, &[session, "go on"])));
            }
        }
        for (session, body) in &bodies {
            let headers = [("x-api-key", "k"), ("x-plimsoll-session-id", session)];
            assert_eq!(gateway.post("/v1/messages", &headers, body).0, 200);
        }
        gateway.stop();
        let said = |arguments: &[&str]| printed(home.path(), &[arguments, &["--json"], &CONFIG[..]].concat());
        let mut wrong = Vec::new();
        for (session, events) in [("one", 2), ("two", 0)] {
            let requests = said(&["inspect", session])["requests"].clone();
            let requests = requests.as_array().unwrap();
            let with_event = requests.iter().filter(|one| !one["record"]["edits"]["event"].is_null());
            assert!(with_event.count() >= events, "{session}");
            for one in requests {
                let diff = said(&["diff", session, &one["n"].to_string()]);
                let bytes = |one: &Value, name: &str| one[name].as_i64().unwrap();
                let less = |one: &Value| bytes(one, "bytes_before") - bytes(one, "bytes_after");
                let less: i64 = diff["changes"].as_array().unwrap().iter().map(less).sum();
                let saved = bytes(&one["record"]["bytes"], "saved");
                wrong.extend((less != saved).then(|| format!("{session} {}: {less}, not {saved}", one["n"])));
            }
        }
        assert!(wrong.is_empty(), "{kept}: {wrong:#?}");
        if kept == "full" {
            let log = home.path().join("conversations/two.jsonl");
            let replayed = said(&["replay", log.to_str().unwrap()]);
            assert_eq!(replayed["files"][0]["as_recorded"], 6, "{replayed}");
        }
    }
}

/// Inexact figures are marked as such row by row, and events are described in words.
#[test]
fn rows_show_what_is_known() {
    let home = tempfile::tempdir().unwrap();
    let cost = Cost { total: 30_000_000_000, ..Cost::default() };
    let broke = Record {
        cost: Some(cost),
        output_is_lower_bound: true,
        status: Some(200),
        outcome: Outcome::UpstreamBroke.into(),
        error: Some("no more".to_owned()),
        ..record("r1")
    };
    let again = Record {
        relation: Some("retry".into()),
        attempt: 1,
        counterfactual: Some(Counterfactual { cost: None, estimated: true, ..Counterfactual::default() }),
        profile: Some("careful".to_owned()),
        outcome: Outcome::ClientGone.into(),
        ..record("r2")
    };
    let unanswered =
        Record { outcome: Outcome::UpstreamBroke.into(), error: Some("too late".to_owned()), ..record("r6") };
    let made = Made { rules: "opening".to_owned(), before: 9, after: 90, ..Made::default() };
    let edits = Edits { state: State::Edited.into(), made: vec![made], ..Edits::default() };
    let (failed, read) =
        (Some("status 500".to_owned()), OwnCall { purpose: "summary".to_owned(), ..OwnCall::default() });
    let own = |id, error| Record { own: Some(read.clone()), error, ..record(id) };
    keep(
        home.path(),
        rows(&[
            broke,
            again,
            Record { edits, ..record("r3") },
            own("r4", failed),
            own("r5", None),
            unanswered,
        ]),
    );
    let text = done(home.path(), &[&["inspect", "c", "--utc"], &CONFIG[..]].concat());
    let told: Vec<&str> = text.lines().map(str::trim).collect();
    for line in [
        "profile: careful",
        "the answer broke off; error: no more",
        "no answer came; error: too late",
        "sent again, as its prompt had been too long",
        "the client did not wait for the end",
        "begins with a checkpoint",
        "a call for a summary that came to nothing",
        "status 500",
        "a part read for a summary",
    ] {
        assert_eq!(told.iter().filter(|one| **one == line).count(), 1, "{line}: {text}");
    }
    assert!(told.iter().any(|line| line.starts_with("1 ") && line.contains("≥ $0.0300")), "{text}");
    assert!(!text.contains("~–") && !text.contains("shortened"), "{text}");
}
