//! Stores that cannot be written: on a read-only file system, owned by another user, a copy, or at the size limit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

use crate::cli::{Ran, done, json, plimsoll, ran, run};
use crate::support::{Gateway, Upstream, limited, send};

/// Drops the capabilities that let root ignore file modes.
const BOUND: [&str; 3] = ["--bounding-set=-all", "--inh-caps=-all", "--"];

/// A directory tree that nobody may write to for a while.
struct Frozen(PathBuf);

impl Frozen {
    fn new(dir: &Path) -> Self {
        set_modes(dir, 0o555, 0o444);
        Self(dir.to_owned())
    }

    /// Every file with its content and modification time.
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
        let mut found = Vec::new();
        walk(&self.0, &mut |path| {
            let written = fs::metadata(path).and_then(|file| file.modified()).expect("a time");
            let content = if path.is_dir() { Vec::new() } else { fs::read(path).expect("a file") };
            found.push((path.to_owned(), content, written));
        });
        found.sort();
        found
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        set_modes(&self.0, 0o755, 0o644);
    }
}

fn set_modes(dir: &Path, of_dirs: u32, of_files: u32) {
    // A directory is listed before its mode is changed.
    walk(dir, &mut |path| {
        let mode = if path.is_dir() { of_dirs } else { of_files };
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    });
}

fn walk(path: &Path, each: &mut dyn FnMut(&Path)) {
    if path.is_dir() {
        let inside: Vec<_> = fs::read_dir(path).expect("a directory").collect();
        for entry in inside {
            walk(&entry.expect("an entry").path(), each);
        }
    }
    each(path);
}

/// The command, run so that file modes apply even to root, if the system allows that.
fn bound(command: Command) -> Command {
    let drops = Command::new("setpriv").args(BOUND).arg("true").output();
    if !drops.is_ok_and(|tried| tried.status.success()) {
        return command;
    }
    let mut bound = Command::new("setpriv");
    bound.args(BOUND).arg(command.get_program()).args(command.get_args());
    bound.current_dir(command.get_current_dir().expect("a home"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    bound
}

fn read(home: &Path, arguments: &[&str]) -> Ran {
    ran(bound(plimsoll(home, arguments)))
}

#[test]
fn unwritable_stores_are_read_and_left_unchanged() {
    let home = tempfile::tempdir().expect("a directory for the test");
    // Characters with a special meaning in a database URI.
    let kept = "100%25 kept? #1";
    done(home.path(), &["demo", "--keep", kept]);
    let config = format!("{kept}/gateway.toml");
    let commands = [
        &["report", "--json"][..],
        &["conversations", "--json"],
        &["inspect", "demo", "--json"],
        &["diff", "demo", "9", "--json"],
        &["fidelity", "demo", "--json"],
        &["outputs", "--json"],
    ];
    let frozen = Frozen::new(&home.path().join(kept));
    let before = frozen.contents();
    for command in commands {
        let arguments = [command, &["-c", &config]].concat();
        let found = read(home.path(), &arguments);
        assert_eq!((found.code, found.err.as_str()), (Some(0), ""), "{command:?}");
        assert_eq!(found.out, done(home.path(), &arguments), "{command:?}");
        assert!(frozen.contents() == before, "{command:?} leaves all as it is");
    }
}

#[test]
fn records_left_in_the_wal_are_read() {
    let home = tempfile::tempdir().expect("a directory for the test");
    let answer = r#"{"type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":7,"output_tokens":1}}"#;
    let upstream = Upstream::start(|_| (200, answer.to_owned()));
    let state = home.path().join("state");
    let config = format!("[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n", state.display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}"#;
    assert_eq!(gateway.post("/v1/messages", &[("x-api-key", "k")], body).0, 200);
    let report = ["report", "--json", "-c", "gateway.toml"];
    while json(home.path(), &report)["total"]["requests"] != 1 {
        std::thread::yield_now();
    }
    gateway.kill();
    assert!(state.join("plimsoll.db-wal").metadata().expect("a log").len() > 0);

    let frozen = Frozen::new(&state);
    let before = frozen.contents();
    let found = read(home.path(), &report);
    assert_eq!((found.code, found.err.as_str()), (Some(0), ""));
    let found: Value = serde_json::from_str(&found.out).expect("a report");
    assert_eq!(found["total"]["tokens"]["input"], 7);
    let mut touch = Command::new("touch");
    touch.arg(state.join("new")).current_dir(home.path());
    if bound(touch).output().is_ok_and(|touched| touched.status.success()) {
        // If modes do not apply, a reader may write and tidies up like any reader beside a gateway.
        return;
    }
    assert!(frozen.contents() == before);
    // A gateway has to write there.
    let found = read(home.path(), &["serve", "--listen", "127.0.0.1:0", "-c", "gateway.toml"]);
    assert_eq!((found.code, found.out.as_str()), (Some(1), ""));
    assert!(found.err.contains("hint: a gateway has to write there"), "{}", found.err);
    drop(frozen);

    // A copy without the index, where none can be created: an error is reported instead of incomplete results.
    fs::remove_file(state.join("plimsoll.db-shm")).expect("removed");
    let frozen = Frozen::new(&state);
    for of_files in [0o444, 0o644] {
        set_modes(&state, 0o555, of_files);
        let found = read(home.path(), &report);
        assert_eq!((found.code, found.out.as_str()), (Some(1), ""), "{of_files:o}");
        assert!(
            found.err.contains("plimsoll.db: the newest records are in the `-wal` file"),
            "{}",
            found.err
        );
    }
    drop(frozen);
    assert_eq!(run(home.path(), &report).code, Some(0));
}

/// Beside a gateway, a database takes several files.
#[test]
fn a_lack_of_descriptors_is_not_blamed_on_the_store() {
    let home = tempfile::tempdir().expect("a directory for the test");
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let state = home.path().join("state");
    let config = format!("[listen]\nadmin = 'off'\n[state]\ndir = '{}'\n", state.display());
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    for (descriptors, code) in [(4, 1), (5, 1), (99, 0)] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
        command.args([env!("CARGO_BIN_EXE_plimsoll"), "report", "--json", "-c", "gateway.toml"]);
        command.current_dir(home.path());
        let found = ran(command);
        assert_eq!(found.code, Some(code), "{descriptors}: {} {}", found.out, found.err);
        assert!(
            code == 0 || found.err.contains("no more files can be opened"),
            "{descriptors}: {}",
            found.err
        );
    }
    gateway.stop();
}

/// By default the system kills a program that exceeds the file size limit. Records are lost once there is no room for
/// them in memory either.
#[test]
fn a_file_size_limit_loses_records_but_no_request() {
    const ANSWER: &str = r#"{"type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":7,"output_tokens":1}}"#;
    let home = tempfile::tempdir().expect("a directory for the test");
    let upstream = Upstream::start(|_| (200, ANSWER.to_owned()));
    let config = "[listen]\nadmin = '127.0.0.1:0'\n[limits]\nqueue = 16\n";
    // The size of a new store and some records.
    let mut gateway = Gateway::limited(home.path(), config, &upstream.url(), 1000);
    let admin = gateway.admin();
    let lost = || {
        let page = String::from_utf8(send(admin, "GET", "/metrics", &[], "").1).expect("text");
        let lost = page.lines().find_map(|line| line.strip_prefix("plimsoll_records_lost_total "));
        lost.and_then(|lost| lost.parse::<u64>().ok()).expect("a number")
    };
    for number in 0.. {
        assert!(number < 1000, "all of them are stored");
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"hello {number}"}}]}}"#
        );
        let answer = gateway.post("/v1/messages", &[("x-api-key", "k")], &body);
        assert_eq!(answer, (200, ANSWER.as_bytes().to_vec()), "{number}");
        if lost() > 0 {
            break;
        }
    }
    gateway.stop();
}

#[test]
fn a_store_at_its_size_limit_is_refused_with_a_remedy() {
    let home = tempfile::tempdir().expect("a directory for the test");
    done(home.path(), &["demo", "--keep", "kept"]);
    let mut command = limited(1);
    command.args(["serve", "--listen", "127.0.0.1:0", "-c", "kept/gateway.toml"]).current_dir(home.path());
    let found = ran(command);
    assert_eq!((found.code, found.out.as_str()), (Some(1), ""), "{}", found.err);
    assert!(found.err.contains("hint: the disk may be full"), "{}", found.err);
}

/// The limit still kills the agent's own programs, as it would without the gateway.
#[test]
fn an_agent_inherits_the_original_signal_handlers() {
    const AGENT: &str = "ulimit -f 1; head -c 9999 /dev/zero > big; exit $?";
    let home = tempfile::tempdir().expect("a directory for the test");
    let mut direct = Command::new("sh");
    direct.args(["-c", AGENT]).current_dir(home.path());
    assert_eq!(run(home.path(), &["run", "--", "sh", "-c", AGENT]).code, ran(direct).code);
}
