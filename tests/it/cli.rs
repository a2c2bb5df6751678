//! The real binary: what it prints, what it leaves behind, how it exits.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Upstream, send};

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A home directory of its own, so that the machine's configuration has no influence.
fn home() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

pub(crate) fn plimsoll(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).current_dir(home).env("HOME", home).env("TZ", "UTC");
    for name in ["PLIMSOLL_CONFIG", "XDG_STATE_HOME", "RUST_LOG"] {
        command.env_remove(name);
    }
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

pub(crate) fn run(home: &Path, arguments: &[&str]) -> Ran {
    ran(plimsoll(home, arguments))
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn done(home: &Path, arguments: &[&str]) -> String {
    let ran = run(home, arguments);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}\n{}", ran.out);
    ran.out
}

pub(crate) fn json(home: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(home, arguments)).expect("a JSON document")
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let home = home();
    fs::write(home.path().join("latin1.toml"), b"# caf\xe9").expect("written");
    for (arguments, code, says) in [
        (&[][..], 2, "Usage"),
        (&["sail"], 2, "unrecognized subcommand"),
        (&["serve", "--listen", "here"], 2, "--listen"),
        (&["serve", "--upstream", "here"], 2, "`--upstream here`"),
        (&["report", "--by", "year"], 2, "conversation"),
        (&["report", "--since", "someday"], 2, "`--since someday`: expected a date such as 2026-11-21"),
        (&["report", "--until=-7d"], 2, "`--until -7d`"),
        (&["report", "--since", "7d", "--until", "8d"], 2, "`--since` is later than `--until`"),
        (&["conversations", "--limit=-1"], 2, "'-1' for '--limit <N>': expected a whole number, 1 or more"),
        (&["conversations", "--limit", "0"], 2, "'0' for '--limit <N>': expected a whole number, 1 or more"),
        (&["demo", "now"], 2, "now"),
        (&["inspect"], 2, "<ID>"),
        (&["inspect", "x"], 1, "nothing recorded yet in /"),
        (&["outputs", "--conversation", "x"], 1, "nothing recorded yet in /"),
        (&["outputs", "--since", "someday"], 2, "`--since someday`: expected a date"),
        (&["prices", "-c", "none.toml"], 1, "none.toml: No such file"),
        (&["diff", "x"], 2, "<N>"),
        (&["diff", "x", "1"], 1, "nothing recorded yet"),
        (&["check", "none.toml"], 1, "none.toml: No such file"),
        (&["check", "latin1.toml"], 2, "latin1.toml:1: this is not UTF-8"),
        (&["check", "-c", "latin1.toml"], 2, "latin1.toml:1: this is not UTF-8"),
        (&["check", "--config", "none.toml"], 1, "none.toml: No such file"),
        (&["report", "-c", "none.toml"], 1, "none.toml: No such file"),
    ] {
        let ran = run(home.path(), arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{arguments:?} {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
}

/// The variable may have been set long ago.
#[test]
fn a_missing_file_is_reported_with_the_variable_that_names_it() {
    let home = home();
    for (arguments, by) in [
        (&["report"][..], " (`PLIMSOLL_CONFIG` names it)\n"),
        (&["check"], " (`PLIMSOLL_CONFIG` names it)\n"),
        (&["report", "-c", "other.toml"], "\n"),
    ] {
        let mut command = plimsoll(home.path(), arguments);
        command.env("PLIMSOLL_CONFIG", "none.toml");
        let ran = ran(command);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.ends_with(&format!("No such file or directory (os error 2){by}")), "{}", ran.err);
    }
}

/// If no file was read, the error names none.
#[test]
fn without_a_home_directory_the_missing_variables_are_named() {
    let home = home();
    for arguments in [&["report"][..], &["serve"]] {
        let mut command = plimsoll(home.path(), arguments);
        command.env_remove("HOME");
        let ran = ran(command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?} {}", ran.err);
        let says = "no configuration file: `state.dir`: no directory for the state: ";
        assert!(ran.err.starts_with(says), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn an_address_in_use_is_reported_with_a_remedy() {
    let home = home();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let ran = run(home.path(), &["serve", "--listen", &address]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let says = format!("cannot listen on {address}: ");
    assert!(ran.err.starts_with(&says) && ran.err.contains("\n  hint: "), "{}", ran.err);
}

#[test]
fn a_file_that_is_no_store_is_reported_with_a_remedy() {
    let home = home();
    let state = home.path().join(".local/state/plimsoll");
    fs::create_dir_all(&state).expect("made");
    fs::write(
        state.join("plimsoll.db"),
        "something else, and longer than what a database begins with is ".repeat(9),
    )
    .expect("written");
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "--", "true"]] {
        let ran = run(home.path(), arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}: {}", ran.err);
        let says = "plimsoll.db: database: file is not a database\n  hint: it is damaged, or something else: move it away";
        assert!(ran.err.contains("cannot open the store /") && ran.err.contains(says), "{}", ran.err);
    }
}

#[test]
fn a_file_in_place_of_the_state_directory_is_reported_with_a_remedy() {
    let home = home();
    fs::write(home.path().join("file"), "").expect("written");
    for dir in ["file", "file/below"] {
        let config = format!("state.dir = '{}'", home.path().join(dir).display());
        fs::write(home.path().join("some.toml"), config).expect("written");
        let ran = run(home.path(), &["serve", "-c", "some.toml", "--listen", "127.0.0.1:0"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        let says =
            "\n  hint: a file is where a directory has to be: move it away, or name another `state.dir`\n";
        assert!(ran.err.contains("cannot open the store /") && ran.err.contains(says), "{}", ran.err);
    }
}

/// Mistakes that would otherwise appear only with requests are reported together with all others, by `serve` too.
#[test]
fn unusable_upstreams_are_named() {
    let home = home();
    fs::write(home.path().join("empty.pem"), "nothing").expect("written");
    let (loops, no_file, empty) = (
        "some.toml:2: `upstream.openai.base_url`: http://localhost:90/v1 is the gateway itself\n",
        "some.toml:1: `upstream.openai.ca_file`: cannot use `ca_file` /none.pem: ",
        "empty.pem: no certificate in it\n",
    );
    for (config, says) in [
        ("listen.address = '127.0.0.1:90'", &[][..]),
        (
            "listen.address = '127.0.0.1:90'\nupstream.openai.base_url = 'http://localhost:90/v1'",
            &[loops][..],
        ),
        (
            "listen.admin = '127.0.0.1:91'\nupstream.openai.base_url = 'http://127.0.0.1:91'",
            &["some.toml:2: `upstream.openai.base_url`: http://127.0.0.1:91 is the gateway itself\n"],
        ),
        ("upstream.openai.ca_file = '/none.pem'", &[no_file]),
        ("upstream.openai.ca_file = 'HOME/empty.pem'", &[empty]),
        (
            "upstream.openai.ca_file = '/none.pem'\nupstream.openai.base_url = 'http://localhost:90/v1'\n\
             listen.address = '127.0.0.1:90'\nmode = 'x'",
            &[no_file, loops, "some.toml:4: `mode`: "],
        ),
    ] {
        let config = config.replace("HOME", &home.path().display().to_string());
        fs::write(home.path().join("some.toml"), &config).expect("written");
        let checked = run(home.path(), &["check", "some.toml"]);
        assert_eq!(checked.code, Some(if says.is_empty() { 0 } else { 2 }), "{config}: {}", checked.err);
        assert!(says.iter().all(|says| checked.err.contains(says)), "{config}: {}", checked.err);
        if let [says] = says {
            let served = run(home.path(), &["serve", "-c", "some.toml"]);
            let said = says.trim_start_matches(|c| c != '`');
            assert!(served.code == Some(2) && served.err.contains(said), "{}", served.err);
        }
    }
    let looped =
        run(home.path(), &["serve", "--upstream", "http://127.0.0.1:90", "--listen", "127.0.0.1:90"]);
    let said = "`--upstream`: http://127.0.0.1:90 is the gateway itself\n";
    assert_eq!((looped.code, looped.err.as_str()), (Some(2), said));
}

/// These are not mistakes in the file.
#[test]
fn unusable_proxies_of_the_environment_are_notes() {
    let note = |variable: &str, why: &str| {
        format!(
            "note: `{variable}` names a proxy that cannot be used, connections are made without one: {why}\n"
        )
    };
    let scheme = "only proxies of `http://`, `socks5://` and `socks5h://` can be used";
    let home = home();
    for (config, variables, notes) in [
        ("", &[][..], String::new()),
        ("", &[("HTTPS_PROXY", "socks5://proxy.test")], String::new()),
        ("", &[("https_proxy", "https://me:secret@proxy.test")], note("HTTPS_PROXY", scheme)),
        ("", &[("ALL_PROXY", "socks4://me:secret@proxy.test")], note("ALL_PROXY", scheme)),
        (
            "",
            &[("HTTPS_PROXY", "http://me:sec#ret@proxy.test")],
            note("HTTPS_PROXY", "not the URL of a proxy"),
        ),
        ("", &[("HTTPS_PROXY", "http://localhost:8788")], note("HTTPS_PROXY", "it is the gateway itself")),
        ("listen.admin = 'off'", &[("HTTPS_PROXY", "http://localhost:8788")], String::new()),
        // No request uses it.
        ("", &[("HTTP_PROXY", "https://proxy.test")], String::new()),
        ("", &[("HTTPS_PROXY", "https://proxy.test"), ("NO_PROXY", "*")], String::new()),
        (
            "upstream.gemini.base_url = 'http://api.test'",
            &[("HTTP_PROXY", "https://proxy.test"), ("HTTPS_PROXY", "https://proxy.test")],
            note("HTTPS_PROXY", scheme) + &note("HTTP_PROXY", scheme),
        ),
    ] {
        fs::write(home.path().join("some.toml"), config).expect("written");
        let mut command = plimsoll(home.path(), &["check", "some.toml"]);
        command.envs(variables.iter().copied());
        let ran = ran(command);
        let out = "some.toml: no problems\n".to_owned() + &notes;
        assert_eq!((ran.code, ran.out, &*ran.err), (Some(0), out, ""), "{config} {variables:?}");
    }
}

/// Some servers have such paths, and some clients omit what the base URL contains: it is a note, not a mistake.
#[test]
fn a_base_url_that_repeats_the_path_prefix_is_noted() {
    let said = |key: &str, end: &str, path: &str, to: &str| {
        format!("`{key}` ends in `/{end}`, and whole paths are appended: `{path}` to {to}{path}\n")
    };
    let openai = |to: &str| said("upstream.openai.base_url", "v1", "/v1/chat/completions", to);
    let home = home();
    for (config, expected) in [
        ("upstream.openai.base_url = 'https://api.openai.com'", String::new()),
        ("upstream.openai.base_url = 'https://api.openai.com/v1/'", openai("https://api.openai.com/v1")),
        ("upstream.openai.base_url = 'http://h/openai/v1'", openai("http://h/openai/v1")),
        ("upstream.openai.base_url = 'http://h/v1/openai'", String::new()),
        ("upstream.gemini.base_url = 'http://h/v1'", String::new()),
        ("upstream.own = { base_url = 'http://h/v1', protocols = [] }", String::new()),
        (
            "upstream.own = { base_url = 'http://h/v1', protocols = ['gemini', 'anthropic'] }",
            said("upstream.own.base_url", "v1", "/v1/messages", "http://h/v1"),
        ),
    ] {
        let text = format!("listen.admin = 'off'\n{config}");
        fs::write(home.path().join("some.toml"), text).expect("written");
        let notes = if expected.is_empty() { String::new() } else { format!("note: {expected}") };
        assert_eq!(done(home.path(), &["check", "some.toml"]), format!("some.toml: no problems\n{notes}"));
        let ran = run(home.path(), &["run", "-c", "some.toml", "--", "true"]);
        assert!(ran.err.contains(&format!("plimsoll: {expected}")), "{config}: {}", ran.err);
        let mut command = plimsoll(home.path(), &["serve", "-c", "some.toml", "--listen", "127.0.0.1:0"]);
        command.env("NO_COLOR", "1");
        let log = log_of(command, home.path());
        assert_eq!(log.contains("whole paths are appended"), !expected.is_empty(), "{log}");
        assert!(log.contains(&expected), "{log}");
        assert_eq!(log.contains("WARN"), config.contains("api.openai.com/v1"), "{log}");
    }
    let ran = run(home.path(), &["run", "--upstream", "http://127.0.0.1:9/v1", "--", "true"]);
    assert!(ran.err.starts_with("plimsoll: `--upstream` ends in `/v1`"), "{}", ran.err);
}

#[test]
fn no_credential_is_printed() {
    let home = home();
    for url in [
        "http://me:secret@127.0.0.1",
        "me:secret@127.0.0.1",
        "http://127.0.0.1/?key=secret",
        "http://127.0.0.1:0/#secret",
        "ftp://me:secret@127.0.0.1",
    ] {
        let ran = run(home.path(), &["serve", "--upstream", url]);
        assert_eq!(ran.code, Some(2), "{url}: {}", ran.err);
        assert!(ran.err.contains("`--upstream`: ") && !ran.err.contains("secret"), "{url}: {}", ran.err);
        fs::write(home.path().join("wrong.toml"), format!("upstream.openai.base_url = '{url}'"))
            .expect("written");
        let ran = run(home.path(), &["check", "wrong.toml"]);
        assert!(ran.err.contains("base_url") && !ran.err.contains("secret"), "{url}: {}", ran.err);
    }
}

#[test]
fn help_mentions_every_option() {
    let home = home();
    let books = "--json --utc --config";
    for (command, options) in [
        ("serve", "--config --listen --port-file --upstream --observe"),
        ("check", "[FILE] gateway.toml"),
        ("init", "[FILE] gateway.toml"),
        ("report", &format!("--by --since --until day model client conversation tokens_estimate {books}")),
        ("conversations", &format!("--limit started clients {books}")),
        ("inspect", &format!("<ID> untouched \"requests\" {books}")),
        ("diff", "<ID> <N> decided_in --json --config"),
        ("outputs", &format!("[ID] --conversation --since --until last_used {books}")),
        ("prices", "[MODEL] --upstream cache_write_12h long_prompts --json --config"),
        (
            "replay",
            "--sweep --pace --prices \"requests\" openai-responses hidden_prefix_tokens_est --json --config",
        ),
        ("demo", "--keep"),
    ] {
        let help = done(home.path(), &[command, "--help"]);
        for option in options.split(' ') {
            assert!(help.contains(option), "{command} --help says nothing of {option}\n{help}");
        }
        assert!(done(home.path(), &["--help"]).contains(&format!("\n  {command} ")), "{command}");
    }
}

#[test]
fn init_writes_a_valid_file_and_never_overwrites() {
    let home = home();
    assert!(done(home.path(), &["init"]).starts_with("gateway.toml written"));
    assert_eq!(done(home.path(), &["check"]), "gateway.toml: no problems\n");
    fs::write(home.path().join("gateway.toml"), "mode = \"observe\"\n").expect("written");
    let again = run(home.path(), &["init"]);
    assert_eq!((again.code, again.out.as_str()), (Some(1), ""));
    assert!(again.err.contains("gateway.toml exists"), "{}", again.err);
    let text = fs::read_to_string(home.path().join("gateway.toml")).expect("still there");
    assert_eq!(text, "mode = \"observe\"\n");
}

#[test]
fn check_reports_every_mistake() {
    let home = home();
    let wrong = "mode = \"maybe\"\n[listen]\naddress = 3\nadmin = \"x\"\n[limits]\nmax_body = \"much\"\nqueue = 0\n\
                 rewrite_timeout = \"soon\"\n[truncate]\nkeep = \"middle\"\nmax_line = 1\n[outputs]\nrecall = 1\n[oops]\n";
    fs::write(home.path().join("wrong.toml"), wrong).expect("written");
    let ran = run(home.path(), &["check", "wrong.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    let problems: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("wrong.toml:")).collect();
    assert_eq!(problems.len(), 10, "{}", ran.err);
}

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

/// A gateway that is stopped when its test ends, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a gateway as a user does, and waits until it reports that it is listening.
fn serve(home: &Path, upstream: &str) -> Running {
    fs::write(home.join("serve.toml"), "[listen]\nadmin = \"off\"\n").expect("written");
    let listen = ["--listen", "127.0.0.1:0", "--port-file", "port"];
    let options = [&["serve", "-c", "serve.toml", "--upstream", upstream], &listen[..]].concat();
    started(plimsoll(home, &options))
}

fn started(mut command: Command) -> Running {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    running
}

#[test]
fn serve_raises_the_open_file_limit() {
    let home = home();
    fs::write(home.path().join("serve.toml"), "[listen]\nadmin = \"off\"\n").expect("written");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll"), "serve"]);
    command.args(["-c", "serve.toml", "--listen", "127.0.0.1:0", "--port-file", "port"]);
    command.current_dir(home.path()).env("HOME", home.path());
    let _gateway = started(command);
    let port = fs::read_to_string(home.path().join("port")).expect("a port");
    let connections: Vec<_> = (0..100)
        .map(|number| {
            let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            client.write_all(b"GET /nowhere HTTP/1.1\r\nhost: me\r\n\r\n").expect("sent");
            let mut status = [0; 12];
            client.read_exact(&mut status).unwrap_or_else(|error| panic!("connection {number}: {error}"));
            assert_eq!(&status, b"HTTP/1.1 404");
            client
        })
        .collect();
    drop(connections);
}

/// Sends it a signal.
fn tell(running: &Running, signal: &str) {
    let kill = ["-c", "kill -\"$0\" \"$1\"", signal, &running.0.id().to_string()];
    assert!(Command::new("sh").args(kill).status().expect("a shell").success());
}

/// Stops it as a service manager does.
fn terminate(mut running: Running) -> ExitStatus {
    tell(&running, "TERM");
    running.0.wait().expect("it ends")
}

/// Whether the process that runs the tests ignores SIGHUP.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Whatever signal stops the gateway, requests under way are answered to their end and recorded.
#[test]
fn a_stop_drains_requests() {
    for signal in ["INT", "TERM", "HUP"] {
        // Started by a process that ignores SIGHUP, such as nohup, the gateway ignores it too.
        if signal == "HUP" && ignores_hangup() {
            continue;
        }
        let home = home();
        let (begun, go) = (mpsc::channel(), mpsc::channel());
        let (begins, answers) = (Mutex::new(begun.0), Mutex::new(go.1));
        let upstream = Upstream::start(move |_| {
            begins.lock().expect("a lock").send(()).expect("the test waits");
            answers.lock().expect("a lock").recv().expect("the test goes on");
            (200, "{}".to_owned())
        });
        let mut gateway = serve(home.path(), &upstream.url());
        let port = fs::read_to_string(home.path().join("port")).expect("a port");
        let address: SocketAddr = format!("127.0.0.1:{port}").parse().expect("a port");
        let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}"#;
        let client = thread::spawn(move || send(address, "POST", "/v1/messages", &[], body));
        begun.1.recv().expect("the request arrives");
        tell(&gateway, signal);
        let told = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(told.elapsed() < Duration::from_secs(60), "{signal}: it listens still");
            thread::yield_now();
        }
        go.0.send(()).expect("the upstream waits");
        assert_eq!(client.join().expect("an answer"), (200, b"{}".to_vec()), "{signal}");
        assert_eq!(gateway.0.wait().expect("it ends").code(), Some(0), "{signal}");
        assert_eq!(json(home.path(), &["report", "--json"])["total"]["requests"], 1, "{signal}");
    }
}

#[test]
fn serve_answers_at_once_stops_on_a_signal_and_keeps_the_books() {
    const ANSWER: &str = concat!(
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"nobodys-model","content":[],"#,
        r#""stop_reason":"end_turn","usage":{"input_tokens":1200,"output_tokens":34}}"#
    );
    let home = home();
    let upstream = Upstream::start(|_| (200, ANSWER.to_owned()));
    let gateway = serve(home.path(), &upstream.url());
    let port = fs::read_to_string(home.path().join("port")).expect("written before it says that it listens");
    let address = format!("127.0.0.1:{port}").parse().expect("a port");
    let body = r#"{"model":"nobodys-model","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}"#;
    let (status, answer) = send(address, "POST", "/v1/messages", &[("user-agent", "it")], body);
    assert_eq!((status, answer.as_slice()), (200, ANSWER.as_bytes()));
    assert_eq!(upstream.received()[0].text(), body);

    assert_eq!(terminate(gateway).code(), Some(0));

    let table = done(home.path(), &["report", "--by", "model"]);
    assert!(table.contains("nobodys-model") && table.contains("1,200"), "{table}");
    assert!(table.contains("cost: 1 request of unknown price"), "{table}");
    assert!(!table.contains("$0"), "unknown is not nothing: {table}");
    let report = json(home.path(), &["report", "--json"]);
    assert_eq!(report["total"]["cost"], Value::Null);
    assert_eq!(report["total"]["unknown_price"], 1);
    assert_eq!(json(home.path(), &["conversations", "--json"])["conversations"][0]["clients"][0], "it");
}

/// A file that merely lies in the working directory is not read as the configuration, and a note says so.
#[test]
fn a_configuration_applies_only_if_it_is_named() {
    const WARNING: &str =
        "`gateway.toml` is here but is not read: give it with `-c gateway.toml` or `PLIMSOLL_CONFIG`";
    for (is_there, option, variable, warns) in [
        (false, None, None, false),
        (true, None, None, true),
        // A variable that is set to an empty value names no file.
        (true, None, Some(""), true),
        (true, Some("other.toml"), Some(""), false),
        (true, Some("other.toml"), None, false),
        (true, None, Some("other.toml"), false),
    ] {
        let home = home();
        let config = "[listen]\naddress = \"127.0.0.1:0\"\nadmin = \"off\"\n[state]\ndir = \"~/elsewhere\"\n";
        fs::write(home.path().join("other.toml"), config).expect("written");
        if is_there {
            fs::write(home.path().join("gateway.toml"), "no configuration").expect("written");
        }
        let mut command = plimsoll(home.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.args(option.iter().flat_map(|file| ["-c", *file]));
        command.envs(variable.map(|file| ("PLIMSOLL_CONFIG", file)));
        let log = log_of(command, home.path());
        assert_eq!(log.contains(WARNING), warns, "{option:?} {variable:?}\n{log}");
        let elsewhere = home.path().join("elsewhere").exists();
        assert_eq!(
            elsewhere,
            option.or(variable).is_some_and(|file| !file.is_empty()),
            "{option:?} {variable:?}"
        );
    }
}

/// The log of a gateway from its start to its end.
fn log_of(command: Command, home: &Path) -> String {
    log_while(command, home, || ())
}

/// The log of a gateway to which something is done while it runs.
fn log_while(mut command: Command, home: &Path, then: impl FnOnce()) -> String {
    let log = fs::File::create(home.join("log")).expect("a file");
    let child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs");
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    then();
    assert_eq!(terminate(running).code(), Some(0));
    fs::read_to_string(home.join("log")).expect("a log")
}

/// If one upstream gets everything, settings of others are not used, and a note says so.
#[test]
fn unused_upstream_settings_are_noted() {
    for (upstream, expected) in [
        (None, None),
        (
            Some("http://127.0.0.1:9"),
            Some(
                "all requests go to `--upstream`, ignoring `upstream.openai.headers`, `upstream.own` of the file",
            ),
        ),
    ] {
        let home = home();
        let config = "[listen]\naddress = '127.0.0.1:0'\nadmin = 'off'\n[upstream.openai]\nheaders = { a = 'secret' }\n\
                      [upstream.own]\nbase_url = 'http://x'\nprotocols = []\n";
        fs::write(home.path().join("some.toml"), config).expect("written");
        let mut command = plimsoll(home.path(), &["serve", "-c", "some.toml"]);
        command.args(upstream.iter().flat_map(|url| ["--upstream", url]));
        let log = log_of(command, home.path());
        let warning = log.split_once("all requests go to").is_some();
        assert_eq!(warning, expected.is_some(), "{log}");
        assert!(expected.is_none_or(|expected| log.contains(expected)) && !log.contains("secret"), "{log}");
    }
}

/// Requests that are too long to be read, and models without a price under a budget in dollars, are reported once.
#[test]
fn requests_outside_budgets_are_noted_once() {
    const ANSWER: &str = concat!(
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"nobodys-model","content":[],"#,
        r#""stop_reason":"end_turn","usage":{"input_tokens":1200,"output_tokens":34}}"#
    );
    let home = home();
    let upstream = Upstream::start(|_| (200, ANSWER.to_owned()));
    let config =
        "limits.max_body = '1KiB'\n[budget]\nday_usd = 5\non_exceeded = 'refuse'\n[listen]\nadmin = 'off'\n";
    fs::write(home.path().join("some.toml"), config).expect("written");
    let mut command = plimsoll(home.path(), &["serve", "-c", "some.toml", "--listen", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.url(), "--port-file", "port"]);
    let log = log_while(command, home.path(), || {
        let port = fs::read_to_string(home.path().join("port")).expect("a port");
        let address = format!("127.0.0.1:{port}").parse().expect("a port");
        for text in ["hello", "hello again", &"word ".repeat(1000), &"more ".repeat(1000)] {
            let body = format!(
                r#"{{"model":"nobodys-model","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
            );
            assert_eq!(send(address, "POST", "/v1/messages", &[], &body).0, 200);
        }
    });
    for warning in ["longer than `limits.max_body`", "budgets in dollars do not count it"] {
        assert_eq!(log.matches(warning).count(), 1, "{warning}\n{log}");
    }
}

/// Clients choose ids and providers choose model names: all of them reach a terminal only as plain text.
#[test]
fn control_characters_of_others_do_not_reach_the_terminal() {
    let home = home();
    let upstream = Upstream::start(|_| {
        let answer = r#"{"type":"message","role":"assistant","model":"m\u001b[2J","content":[],"usage":{"input_tokens":1,"output_tokens":1}}"#;
        (200, answer.to_owned())
    });
    let gateway = serve(home.path(), &upstream.url());
    let port = fs::read_to_string(home.path().join("port")).expect("a port");
    let user = serde_json::json!({"session_id": "evil\u{1b}]0;title\u{7}\nnext line\u{9b}1m"}).to_string();
    let body = serde_json::json!({"model": "m", "max_tokens": 1, "metadata": {"user_id": user},
        "messages": [{"role": "user", "content": "hello"}]});
    let address = format!("127.0.0.1:{port}").parse().expect("a port");
    assert_eq!(send(address, "POST", "/v1/messages", &[], &body.to_string()).0, 200);
    terminate(gateway);
    for (arguments, code) in [
        (&["conversations"][..], 0),
        (&["report", "--by", "model"], 0),
        (&["report", "--by", "conversation"], 0),
        (&["inspect", "evil"], 0),
        (&["diff", "evil", "1"], 0),
        (&["diff", "evil", "2"], 1),
        (&["checkpoint", "evil"], 1),
        (&["inspect", "\u{1b}"], 1),
        (&["outputs"], 0),
        (&["outputs", "\u{1b}"], 1),
        (&["outputs", "--conversation", "evil"], 0),
        (&["prices", "m\u{1b}"], 1),
    ] {
        let ran = run(home.path(), arguments);
        let printed = ran.out + &ran.err;
        assert_eq!(ran.code, Some(code), "{arguments:?} {printed}");
        assert!(!printed.contains(|c: char| c.is_control() && c != '\n'), "{arguments:?} {printed:?}");
        assert!(!printed.contains("\nnext line"), "{arguments:?} {printed:?}");
    }
    assert_eq!(
        json(home.path(), &["inspect", "evil", "--json"])["requests"][0]["record"]["model"],
        "m\u{1b}[2J"
    );
}
