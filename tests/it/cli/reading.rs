//! Commands that read what a gateway recorded.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{done, home, json, plimsoll, ran, run};

#[test]
fn reading_without_a_store_creates_none() {
    let home = home();
    for arguments in [&["report"][..], &["conversations"], &["report", "--by", "client"], &["outputs"]] {
        let place = home.path().join(".local/state/plimsoll").display().to_string();
        assert_eq!(done(home.path(), arguments), format!("nothing recorded yet in {place}\n"));
    }
    assert_eq!(json(home.path(), &["report", "--json"])["total"]["requests"], 0);
    assert_eq!(json(home.path(), &["conversations", "--json"])["of"], 0);
    assert_eq!(fs::read_dir(home.path()).expect("a directory").count(), 0);
}

/// The shown beginning of an id is unique among all ids, including those not shown, because `inspect` looks among all
/// of them.
#[test]
fn conversations_are_filtered_by_time() {
    let home = home();
    done(home.path(), &["demo", "--keep", "kept"]);
    let database = rusqlite::Connection::open(home.path().join("kept/plimsoll.db")).expect("a database");
    for (id, at_ms) in [("abcdefghij-1", 1_i64), ("abcdefghij-2", 4_102_444_800_000)] {
        database
            .execute(
                "INSERT INTO ledger SELECT ?1, ?2, ?1, model, client, cost,
                   replace(record, '\"conversation\":\"demo\"', '\"conversation\":\"' || ?1 || '\"')
                 FROM ledger LIMIT 1",
                rusqlite::params![id, at_ms],
            )
            .expect("written");
    }
    let asked = |arguments: &[&'static str]| [arguments, &["-c", "kept/gateway.toml"]].concat();
    for arguments in [&["report", "--by", "conversation"][..], &["conversations"]] {
        let of_then = asked(&[arguments, &["--since", "2099-01-01"]].concat());
        let said = done(home.path(), &of_then);
        assert!(said.contains("\nabcdefghij-2 ") && !said.contains("\ndemo "), "{arguments:?}: {said}");
        let of_before = asked(&[arguments, &["--until", "1960-01-01"]].concat());
        assert_eq!(done(home.path(), &of_before), "nothing was recorded in that time\n", "{arguments:?}");
    }
    let listed = json(home.path(), &asked(&["conversations", "--since", "2099-01-01", "--json"]));
    assert_eq!((&listed["of"], &listed["conversations"][0]["id"]), (&1.into(), &"abcdefghij-2".into()));
}

/// The file may be a pipe, which is empty when read again.
#[test]
fn a_configuration_from_a_pipe_is_read_once() {
    let home = home();
    done(home.path(), &["demo", "--keep", "kept"]);
    for arguments in [&["report", "--by", "conversation"][..], &["conversations"], &["outputs"]] {
        let expected = done(home.path(), &[arguments, &["-c", "kept/gateway.toml"]].concat());
        let mut cat = Command::new("cat");
        let cat = cat.arg(home.path().join("kept/gateway.toml")).stdout(Stdio::piped()).spawn();
        let mut command = plimsoll(home.path(), &[arguments, &["-c", "/dev/stdin"]].concat());
        command.stdin(cat.expect("it runs").stdout.expect("piped"));
        assert_eq!(ran(command).out, expected, "{arguments:?}");
    }
}

/// Sums say what they lack, with or without other notes.
#[test]
fn missing_records_are_reported() {
    let home = home();
    done(home.path(), &["demo", "--keep", "kept"]);
    let database = rusqlite::Connection::open(home.path().join("kept/plimsoll.db")).expect("a database");
    database
        .execute_batch("INSERT INTO missing VALUES (4102444800000, 2), (4102444800001, 1)")
        .expect("written");
    let note = "missing: 3 records could not be written and are in no sum\n";
    let asked = |arguments: &[&'static str]| [arguments, &["-c", "kept/gateway.toml"]].concat();
    for (arguments, expected) in [
        (&["report"][..], 3),
        (&["conversations"], 3),
        (&["report", "--since", "2100-01-01"], 3),
        (&["report", "--until", "2099-12-31"], 0),
    ] {
        let said = done(home.path(), &asked(arguments));
        assert_eq!(said.contains(note), expected > 0, "{arguments:?}: {said}");
        let json = json(home.path(), &asked(&[arguments, &["--json"]].concat()));
        assert_eq!(json["missing"], expected, "{arguments:?}");
    }
}

#[test]
fn demo_ends_with_the_bill_and_leaves_nothing() {
    let home = home();
    let tmp = home.path().join("tmp");
    fs::create_dir(&tmp).expect("made");
    let output = plimsoll(home.path(), &["demo"]).env("TMPDIR", &tmp).output().expect("the binary runs");
    let out = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && output.stderr.is_empty(), "{out}");
    let last = out.lines().last().expect("a last line");
    assert!(last.starts_with("total ") && last.ends_with(" %"), "{last}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert_eq!(fs::read_dir(&tmp).expect("a directory").count(), 0);
}

/// The records of a demonstration, shown by every command.
#[test]
fn every_command_reads_what_a_gateway_recorded() {
    let home = home();
    let shown = done(home.path(), &["demo", "--keep", "kept"]);
    let again = run(home.path(), &["demo", "--keep", "kept"]);
    assert_eq!(again.code, Some(1), "a store is not written over: {}", again.err);

    let config = ["-c", "kept/gateway.toml"];
    let report = json(home.path(), &[&["report", "--json", "--by", "model"], &config[..]].concat());
    let log = fs::read_to_string(home.path().join("kept/conversations/demo.jsonl")).expect("a log");
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let sum =
        |path: &str| -> u64 { records.iter().filter_map(|record| record.pointer(path)?.as_u64()).sum() };
    assert_eq!(report["total"]["requests"], records.len());
    assert_eq!(report["total"]["cost"]["total"], sum("/cost/total"));
    assert_eq!(report["total"]["tokens"]["cache_read"], sum("/tokens/cache_read"));
    assert_eq!(report["total"]["saved"]["bytes"], sum("/bytes/saved"));
    assert_eq!(report["groups"][0]["totals"], report["total"]);
    assert_eq!(report["groups"][0]["name"], records[0]["model"]);

    let conversations = json(home.path(), &[&["conversations", "--json"], &config[..]].concat());
    assert_eq!(conversations["conversations"][0]["id"], "demo");
    assert_eq!(conversations["conversations"][0]["log"], "demo.jsonl");
    assert_eq!(conversations["conversations"][0]["started"], records[0]["time"]);
    assert_eq!(conversations["conversations"][0]["totals"], report["total"]);

    for by in ["day", "model", "client", "conversation"] {
        let table = done(home.path(), &[&["report", "--by", by], &config[..]].concat());
        assert!(table.starts_with(by) && table.contains("\ntotal "), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    }
    let none = done(home.path(), &[&["report", "--until", "2001-01-01"], &config[..]].concat());
    assert_eq!(none, "nothing was recorded in that time\n");
    let listed = done(home.path(), &[&["conversations"], &config[..]].concat());
    assert!(listed.lines().all(|line| line.chars().count() <= 100), "{listed}");
    assert!(listed.contains("\ndemo "), "{listed}");
    assert_inspected(home.path(), &records, &report["total"]);
    let output = fs::read_dir(home.path().join("kept/outputs")).expect("outputs").next();
    assert!(output.is_some() && shown.contains("kept/outputs"));
}

/// The commands that show the books do not need the keys that the gateway sends.
#[test]
fn commands_that_send_nothing_need_no_keys() {
    let home = home();
    done(home.path(), &["demo", "--keep", "kept"]);
    let config = fs::read_to_string(home.path().join("kept/gateway.toml")).expect("a configuration");
    let with_keys = "\n[upstream.openai]\nheaders = { x-api-key = 'env:NOT_SET_HERE' }\n";
    fs::write(home.path().join("keys.toml"), config + with_keys).expect("written");
    let log = fs::read_dir(home.path().join("kept/conversations")).expect("logs").next();
    let log = log.expect("a log").expect("a file").path().display().to_string();
    for (arguments, code) in [
        (&["report"][..], 0),
        (&["conversations"], 0),
        (&["inspect", "demo"], 0),
        (&["diff", "demo", "1"], 0),
        (&["outputs"], 0),
        (&["prices", "claude-opus-5"], 0),
        (&["fidelity", "demo"], 0),
        (&["checkpoint", "demo"], 1),
        (&["replay", &log], 1),
        (&["fidelity", "--judge", "demo"], 2),
        (&["serve"], 2),
    ] {
        let ran = run(home.path(), &[arguments, &["-c", "keys.toml"]].concat());
        assert_eq!(ran.code, Some(code), "{arguments:?} {}", ran.err);
        assert_eq!(ran.err.contains("NOT_SET_HERE"), code == 2, "{arguments:?} {}", ran.err);
    }
    let checked = run(home.path(), &["check", "keys.toml"]);
    assert_eq!(checked.code, Some(2), "{}", checked.err);
    let says = "`upstream.openai.headers.x-api-key`: the environment variable `NOT_SET_HERE` is not set";
    assert!(checked.err.contains(says), "{}", checked.err);
}

/// The timeline, and the changes to each of its requests.
fn assert_inspected(home: &Path, records: &[Value], total: &Value) {
    let config = ["-c", "kept/gateway.toml"];
    let inspected = json(home, &[&["inspect", "de", "--json"], &config[..]].concat());
    assert_eq!((&inspected["conversation"], &inspected["log"]), (&"demo".into(), &"demo.jsonl".into()));
    assert_eq!(&inspected["totals"], total);
    let requests = inspected["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), records.len());
    let text = done(home, &[&["inspect", "demo"], &config[..]].concat());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for (number, record) in records.iter().enumerate() {
        assert_eq!((&requests[number]["n"], &requests[number]["record"]), (&(number + 1).into(), record));
        assert!(text.contains(&format!("\n{:>2} ", number + 1)), "{text}");

        let number = (number + 1).to_string();
        let diff = json(home, &[&["diff", "demo", &number, "--json"], &config[..]].concat());
        let changes = diff["changes"].as_array().expect("changes");
        assert_eq!((&diff["state"], &diff["from"]), (&record["edits"]["state"], &"store".into()));
        assert_eq!(changes.is_empty(), record["edits"]["state"] != "edited", "{diff}");
        for made in record["edits"]["made"].as_array().expect("decisions") {
            let is_it = |change: &&Value| ["message", "part"].iter().all(|key| change[key] == made[key]);
            let change = changes.iter().find(is_it).expect("what is decided is shown");
            assert!(made["tool"].is_string(), "{made}");
            assert_eq!((&change["rules"], &change["decided_in"].to_string()), (&made["rules"], &number));
            let lengths = ["before", "after"].map(|text| change[text].as_str().map(str::len));
            assert_eq!(lengths[1].map(|length| length as u64), made["after"].as_u64(), "{change}");
            let output = made["output"].as_str().map(|_| made["before"].as_u64()).unwrap_or_default();
            assert_eq!(lengths[0].map(|length| length as u64), output, "{change}");
        }
        let text = done(home, &[&["diff", "demo", &number], &config[..]].concat());
        assert!(text.starts_with(&format!("request {number} of demo: ")), "{text}");
    }
    assert!(text.contains("\n       event (") && text.contains("\n       shortened: "), "{text}");
}
