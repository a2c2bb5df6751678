//! `plimsoll serve`: signals, limits, and what it logs about its configuration and its clients.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Upstream, send};

use super::{Running, done, home, json, log_of, log_while, plimsoll, run, tell, terminate};

/// Starts a gateway as a user does, and waits until it reports that it is listening.
fn serve(home: &Path, upstream: &str) -> Running {
    fs::write(home.join("serve.toml"), "[listen]\nadmin = \"off\"\n").expect("written");
    let listen = ["--listen", "127.0.0.1:0", "--port-file", "port"];
    let options = [&["serve", "-c", "serve.toml", "--upstream", upstream], &listen[..]].concat();
    started(plimsoll(home, &options))
}

fn started(mut command: Command) -> Running {
    let log = fs::File::create(command.get_current_dir().expect("set").join("log")).expect("a file");
    let child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs");
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    running
}

/// A browser that is pointed at the clients' address learns where the dashboard is, if there is one.
#[test]
fn the_root_leads_to_the_dashboard() {
    for (admin, is_there) in [("127.0.0.1:0", true), ("off", false)] {
        let home = home();
        fs::write(home.path().join("serve.toml"), format!("listen.admin = \"{admin}\"\n")).expect("written");
        let options = ["serve", "-c", "serve.toml", "--listen", "127.0.0.1:0", "--port-file", "port"];
        let _gateway = started(plimsoll(home.path(), &options));
        let port = fs::read_to_string(home.path().join("port")).expect("a port");
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        for (method, path, is_told) in [("GET", "/", true), ("GET", "/nowhere", false), ("POST", "/", false)]
        {
            let (status, body) = send(address, method, path, &[], "");
            let told = String::from_utf8_lossy(&body).contains("; the dashboard is at http://127.0.0.1:");
            assert_eq!((status, told), (404, is_told && is_there), "{admin} {method} {path}");
        }
    }
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

/// In a copy of the shipped file a preset does nothing, which a user would not notice for long.
#[test]
fn a_preset_that_the_file_overrides_is_warned_about() {
    let home = home();
    let shipped = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml")).expect("shipped");
    let preset = shipped.replace("preset = \"default\"", "preset = \"passthrough\"");
    let preset = preset.replace("admin = \"127.0.0.1:8788\"", "admin = \"off\"");
    fs::write(home.path().join("copy.toml"), preset).expect("written");
    let note = "`preset`: the file itself sets 15 of the 15 keys that this preset sets";
    assert!(done(home.path(), &["check", "copy.toml"]).contains(&format!("\nnote: {note}")));
    let log =
        log_of(plimsoll(home.path(), &["serve", "-c", "copy.toml", "--listen", "127.0.0.1:0"]), home.path());
    assert!(log.contains("WARN") && log.contains(note), "{log}");
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
        // Without its terminal, nobody sends a second one.
        let log = fs::read_to_string(home.path().join("log")).expect("a log");
        assert!(log.contains("stopping when these are answered"), "{log}");
        assert_eq!(log.contains("ends it at once"), signal != "HUP", "{log}");
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
    for warning in ["exceeds `limits.max_body`", "budgets in dollars count no more than its known part"] {
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
