//! The real binary: what it prints, what it leaves behind, how it exits.

mod mistakes;
mod reading;
mod serving;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::Value;
use tempfile::TempDir;

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
    for name in ["PLIMSOLL_CONFIG", "XDG_STATE_HOME", "RUST_LOG", "NODE_EXTRA_CA_CERTS"] {
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

pub(crate) fn ran(command: Command) -> Ran {
    ran_with(command, Stdio::piped())
}

/// The same, with its standard output elsewhere.
fn ran_with(mut command: Command, out: impl Into<Stdio>) -> Ran {
    let output = command.stdout(out).output().expect("the binary runs");
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

/// A gateway that is stopped when its test ends, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
