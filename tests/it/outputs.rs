//! The saved full texts, accessed from the command line.

use std::fs;
use std::path::Path;

use plimsoll::store::Outputs;
use serde_json::{Value, json};

use crate::cli::{done, json as printed, plimsoll, run};
use crate::support::{Gateway, Upstream};

const KEPT: [&str; 2] = ["-c", "kept/gateway.toml"];

fn outputs(home: &Path, arguments: &[&str]) -> Vec<Value> {
    let asked = [&["outputs", "--json"], arguments, &KEPT[..]].concat();
    printed(home, &asked)["outputs"].as_array().expect("a list").clone()
}

/// Exactly the bytes of a text are printed.
fn text(home: &Path, id: &str) -> Vec<u8> {
    let output =
        plimsoll(home, &["outputs", id, "-c", "kept/gateway.toml"]).output().expect("the binary runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{id}");
    output.stdout
}

fn id_of(output: &Value) -> &str {
    output["id"].as_str().expect("an id")
}

/// The texts of a demonstration, listed and printed.
#[test]
fn full_outputs_are_listed_and_printed_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    done(home.path(), &["demo", "--keep", "kept"]);
    let listed = outputs(home.path(), &[]);
    let kept = fs::read_dir(home.path().join("kept/outputs")).unwrap().count();
    assert!(kept > 1);
    assert_eq!(listed.len(), kept);
    let times: Vec<&str> = listed.iter().map(|output| output["last_used"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    let inspected = printed(home.path(), &[&["inspect", "demo", "--json"], &KEPT[..]].concat());
    for output in &listed {
        let file = fs::read(output["path"].as_str().unwrap()).unwrap();
        assert_eq!(output["bytes"], file.len());
        assert_eq!(text(home.path(), id_of(output)), file);
        assert_eq!(
            output["uses"],
            json!([{"conversation": "demo", "requests": requests(&inspected, id_of(output))}])
        );
    }

    let table = done(home.path(), &[&["outputs", "--utc"], &KEPT[..]].concat());
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for (line, output) in table.lines().skip(1).zip(&listed) {
        let (short, rest) = line.split_once("  ").unwrap();
        assert_eq!(text(home.path(), short), text(home.path(), id_of(output)), "{line}");
        let at = output["last_used"].as_str().unwrap()[..16].replace('T', " ");
        assert!(rest.starts_with(&at) && rest.contains("  kept  demo"), "{line}");
    }
    for (arguments, expected) in [
        (&["--conversation", "de"][..], kept),
        (&["--since", "7d"], kept),
        (&["--until", "2001-01-01"], 0),
        (&["--since", "7d", "--conversation", "demo"], kept),
    ] {
        assert_eq!(outputs(home.path(), arguments).len(), expected, "{arguments:?}");
    }
    let none = done(home.path(), &[&["outputs", "--until", "2001-01-01"], &KEPT[..]].concat());
    assert_eq!(none, "no full texts for that time or conversation\n");
}

/// The numbers of the requests with which a text was shortened or cleared.
fn requests(inspected: &Value, id: &str) -> Vec<u64> {
    let decides = |one: &&Value| {
        let edits = &one["record"]["edits"];
        let made = edits["made"].as_array().unwrap().iter().any(|made| made["output"] == id);
        made || (edits["splice"]["output"] == id && edits["splice"]["made"] == true)
    };
    let all = inspected["requests"].as_array().unwrap();
    all.iter().filter(decides).map(|one| one["n"].as_u64().unwrap()).collect()
}

/// Nothing but full texts is printed, and errors are explained.
#[test]
fn a_missing_output_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let nothing = run(home.path(), &["outputs", "0"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(1), ""));
    done(home.path(), &["demo", "--keep", "kept"]);
    let listed = outputs(home.path(), &[]);
    let ids: Vec<&str> = listed.iter().map(id_of).collect();
    let state = home.path().join("kept");
    fs::write(state.join("outputs/notes.txt"), "none of ours").unwrap();
    fs::write(home.path().join("secret.txt"), "secret").unwrap();

    // Removed by hand, and removed by a gateway when its time is over.
    let (taken, removed) = (ids[0], ids[1]);
    for id in [taken, removed] {
        Outputs::new(state.join("outputs")).remove(id).unwrap();
    }
    let database = rusqlite::Connection::open(state.join("plimsoll.db")).unwrap();
    database.execute("DELETE FROM outputs WHERE id = ?1", [removed]).unwrap();
    drop(database);
    let known: Vec<Value> = outputs(home.path(), &[]);
    assert_eq!(known.len(), ids.len(), "what the books name is known");
    for id in [taken, removed] {
        let output = known.iter().find(|output| id_of(output) == id).unwrap();
        assert_eq!((&output["bytes"], &output["path"]), (&Value::Null, &Value::Null), "{output}");
    }
    let all = format!("{} full text ids start with ``:\n", ids.len());
    for (id, says) in [
        (
            "0123456789abcdef0123456789abcdef",
            "no full text id starts with `0123456789abcdef0123456789abcdef`\n",
        ),
        ("notes", "no full text id starts with `notes`\n"),
        ("../../secret", "no full text id starts with `../../secret`\n"),
        ("/etc/passwd", "no full text id starts with `/etc/passwd`\n"),
        ("", &all),
        (taken, "has been removed\n  hint: `plimsoll diff demo "),
        (removed, "or not any more, because of `outputs.retention`\n  hint: `plimsoll diff demo "),
    ] {
        let ran = run(home.path(), &["outputs", id, "-c", "kept/gateway.toml"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{id}");
        assert!(ran.err.contains(says), "{id}: {}", ran.err);
    }
    let table = done(home.path(), &[&["outputs"], &KEPT[..]].concat());
    assert_eq!(table.matches("  not kept  ").count(), 2, "{table}");
    assert!(table.contains("\nnot kept: `outputs.retention` is over, or "), "{table}");
    for arguments in [&["0", "--json"][..], &["0", "--since", "7d"], &["0", "--conversation", "demo"]] {
        let ran = run(home.path(), &[&["outputs"], arguments, &KEPT[..]].concat());
        assert_eq!(ran.code, Some(2), "{arguments:?}");
    }
    let ran = run(home.path(), &[&["outputs", "--conversation", "x"], &KEPT[..]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), "no conversation id starts with `x`\n"));
}

/// This works while a gateway has the store open, too.
#[test]
fn outputs_of_a_running_gateway_are_read() {
    let home = tempfile::tempdir().unwrap();
    let answer = json!({"type": "message", "role": "assistant", "model": "m", "content": [],
        "usage": {"input_tokens": 7, "output_tokens": 1}});
    let upstream = Upstream::start(move |_| (200, answer.to_string()));
    fs::create_dir(home.path().join("kept")).unwrap();
    let config =
        format!("[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n", home.path().join("state").display());
    let gateway = Gateway::start(&home.path().join("kept"), &config, &upstream.url());
    let lines: Vec<String> = (0..4000).map(|line| format!("line {line:06} – of a long log\u{1b}")).collect();
    let (log, call) = (lines.join("\n"), json!({"type": "tool_use", "id": "1", "name": "Bash", "input": {}}));
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": log}]}]});
    assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], &body.to_string()).0, 200);
    let listed = loop {
        let listed = outputs(home.path(), &[]);
        // The text is saved before the request leaves, its record after the answer.
        if listed.iter().any(|output| output["uses"] != json!([])) {
            break listed;
        }
        std::thread::yield_now();
    };
    assert_eq!(listed.len(), 1);
    assert_eq!(text(home.path(), &id_of(&listed[0])[..6]), log.as_bytes());
    gateway.stop();
}

/// Texts that were removed while a conversation was idle are saved again when it continues: those of shortened results,
/// and those of omitted messages.
#[test]
fn a_removed_output_is_saved_again_when_its_conversation_continues() {
    const CONFIG: &str = "[listen]\nadmin = 'off'\n[truncate]\nmax_lines = 10\n[ladder]\n";
    let call = |at: usize| {
        let function = json!({"name": "Bash", "arguments": "{}"});
        let lines: Vec<String> =
            (0..99).map(|line| format!("{at}: {} of a line", line * 7919 % 1009)).collect();
        let id = at.to_string();
        [
            json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}),
            json!({"role": "tool", "tool_call_id": id, "content": lines.join("\n")}),
            json!({"role": "assistant", "content": "done"}),
            json!({"role": "user", "content": "on"}),
        ]
    };
    let body = |turns: usize| {
        // Long enough for the provider to cache the prompt, however short the results are.
        let goal = json!({"role": "user", "content": "Find the bug. ".repeat(800)});
        let messages: Vec<Value> = std::iter::once(goal).chain((0..turns).flat_map(call)).collect();
        json!({"model": "m", "messages": messages}).to_string()
    };
    // The results of each turn are seen as they come.
    let seen = |turns: usize| {
        let whole = body(turns);
        let mut begun: Value = serde_json::from_str(&whole).unwrap();
        begun["messages"].as_array_mut().unwrap().truncate(4 * turns - 1);
        [begun.to_string(), whole]
    };
    // The client repeats the request, or continues with messages for which new decisions are made.
    for (ladder, goes_on, told_of) in [("messages = 6\n", 3, 2), ("enabled = false\n", 4, 3)] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("plimsoll/outputs");
        let begins = format!("{}/", folder.display());
        // When a request arrives, all texts that it names are there.
        let upstream = Upstream::start(move |request| {
            let said = request.text();
            let mut names =
                said.split(&begins).skip(1).filter_map(|rest| rest.split_inclusive(".txt").next());
            let are_there = names.all(|name| Path::new(&format!("{begins}{name}")).exists());
            (if are_there { 200 } else { 404 }, "{}".to_owned())
        });
        let texts = || -> Vec<(String, String)> {
            let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            let text =
                |path: std::path::PathBuf| (path.display().to_string(), fs::read_to_string(path).unwrap());
            let mut texts: Vec<_> = files.map(text).collect();
            texts.sort();
            texts
        };
        let send = |bodies: &[String]| {
            let gateway = Gateway::start(home.path(), &format!("{CONFIG}{ladder}"), &upstream.url());
            for body in bodies {
                assert_eq!(gateway.post("/v1/chat/completions", &[], body).0, 200);
            }
            gateway.stop();
        };
        send(&[1, 2, 3].map(seen).concat());
        let kept = texts();
        for (path, _) in &kept {
            fs::remove_file(path).unwrap();
        }
        send(&seen(goes_on)[..1]);
        let sent = upstream.received().last().unwrap().text();
        let told: Vec<_> = kept.into_iter().filter(|(path, _)| sent.contains(path)).collect();
        let leaves_out = told.iter().any(|(_, text)| text.contains("=== message 1: "));
        assert_eq!((told.len(), leaves_out), (told_of, ladder.contains("messages")), "{told:?}");
        let again = texts();
        assert!(told.iter().all(|one| again.contains(one)), "{again:?}");
    }
}
