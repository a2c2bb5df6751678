//! `plimsoll run`: where it points the agent, what the agent's work costs, how it exits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cli::{plimsoll, ran};
use crate::support::{Upstream, send};

/// A script that prints where it was pointed, waits for a line, and exits as that line says.
const AGENT: &str = r#"echo "$ANTHROPIC_BASE_URL $OPENAI_BASE_URL $OPENAI_API_BASE $CODE_ASSIST_ENDPOINT $NO_PROXY $1"; read how; eval "$how""#;

/// The variables that an agent is pointed to the gateway by, and the path in each.
const VARIABLES: [(&str, &str); 9] = [
    ("ANTHROPIC_BASE_URL", ""),
    ("ANTHROPIC_API_BASE", ""),
    ("ANTHROPIC_HOST", ""),
    ("OPENAI_BASE_URL", "/v1"),
    ("OPENAI_API_BASE", "/v1"),
    ("OPENAI_HOST", ""),
    ("GOOGLE_GEMINI_BASE_URL", ""),
    ("GEMINI_API_BASE", "/v1beta"),
    ("CODE_ASSIST_ENDPOINT", ""),
];

/// A running agent, and its output.
struct Agent {
    child: Child,
    said: Vec<String>,
}

fn command(home: &Path, options: &[&str]) -> Command {
    let mut command = plimsoll(home, &["run"]);
    for (name, _) in VARIABLES {
        command.env_remove(name);
    }
    command.args(options);
    command
}

impl Agent {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .args(["--", "sh", "-c", AGENT, "sh", "--to={url}/v9"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
        Self { child, said: line.split_whitespace().map(str::to_owned).collect() }
    }

    /// The address of the gateway.
    fn address(&self) -> SocketAddr {
        let address = self.said[0].split('/').nth(2).expect("a URL");
        address.parse().expect("an address")
    }

    /// Ends it; returns the exit code and the rest of its output.
    fn end(mut self, how: &str) -> (Option<i32>, String) {
        writeln!(self.child.stdin.take().expect("piped"), "{how}").expect("it listens");
        self.ended()
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        (self.child.wait().expect("it ends").code(), err)
    }
}

const MESSAGE: &str =
    r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
const REPLY: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":900000,"output_tokens":100000}}"#;
const CHAT: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}"#;
const CHATTED: &str = r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#;

#[test]
fn run_points_an_agent_at_a_gateway_and_prints_its_bill() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, REPLY.to_owned()));
    let agent = Agent::start(command(home.path(), &["--upstream", &upstream.url()]));
    let url = format!("http://{}", agent.address());
    let openai = format!("{url}/v1");
    let to = format!("--to={url}/v9");
    assert_eq!(agent.said, [&*url, &*openai, &*openai, &*url, "127.0.0.1,localhost", &*to]);
    assert_eq!(send(agent.address(), "POST", "/v1/messages", &[], MESSAGE).0, 200);
    assert_eq!(
        agent.end("exit 7"),
        (
            Some(7),
            "requests    input  cache read  cache write   output   cost  saved\n\
             \x20      1  900,000           0            0  100,000  $4.20  $0.00\n\
             saved: against the same requests without the gateway\n"
                .to_owned()
        )
    );
}

/// Requests are forwarded to the agent's own address, with the same paths.
#[test]
fn run_forwards_to_the_address_that_was_set_before() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, CHATTED.to_owned()));
    let mut command = command(home.path(), &[]);
    command.env("OPENAI_BASE_URL", upstream.url() + "/base/v1").env("NO_PROXY", "example.test");
    let agent = Agent::start(command);
    let url = format!("http://{}", agent.address());
    let no_proxy = "example.test,127.0.0.1,localhost";
    // The provider's other variables stay unset: an agent may prefer one of them, and would ask another server.
    let expected = [&*url, &format!("{url}/openai_base_url"), &url, no_proxy, &format!("--to={url}/v9")];
    assert_eq!(agent.said, expected);
    assert_eq!(send(agent.address(), "POST", "/openai_base_url/chat/completions", &[], CHAT).0, 200);
    let received: Vec<String> = upstream.received().into_iter().map(|request| request.line).collect();
    assert_eq!(received, ["POST /base/v1/chat/completions HTTP/1.1"]);
    let (code, err) = agent.end("exit 0");
    assert_eq!(code, Some(0));
    assert!(err.contains("\n       1      7           0            0       3  $0.00"), "{err}");
}

/// A variable that leads to the server of the configuration uses its settings; a setting that does not apply elsewhere
/// is reported.
#[test]
fn upstream_settings_apply_to_an_address_from_a_variable() {
    let home = tempfile::tempdir().unwrap();
    let [own, other] = [(); 2].map(|()| Upstream::start(|_| (200, CHATTED.to_owned())));
    let config = format!("upstream.openai = {{ base_url = '{}', include_usage = true }}", own.url());
    std::fs::write(home.path().join("own.toml"), config).unwrap();
    for (upstream, path, asks_usage, told) in [
        (&own, "/openai/v1", true, ""),
        (
            &other,
            "/openai_base_url",
            false,
            "plimsoll: `OPENAI_BASE_URL` is set, so requests go to that address, ignoring `upstream.openai.base_url`, \
             `upstream.openai.include_usage` of the file\n",
        ),
    ] {
        let mut command = command(home.path(), &["-c", "own.toml"]);
        command.env("OPENAI_BASE_URL", upstream.url() + "/v1");
        let agent = Agent::start(command);
        assert!(agent.said[1].ends_with(path), "{:?}", agent.said);
        // The others lead to the gateway unless this one leads to another server than usual.
        assert_eq!(agent.said[2].ends_with("/v1"), asks_usage, "{:?}", agent.said);
        let (to, body) = (format!("{path}/chat/completions"), CHAT.replacen('{', "{\"stream\":true,", 1));
        assert_eq!(send(agent.address(), "POST", &to, &[], &body).0, 200);
        let asked = upstream.received().remove(0);
        assert_eq!(asked.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(asked.text().contains("include_usage"), asks_usage, "{}", asked.text());
        let (code, err) = agent.end("exit 0");
        assert_eq!((code, err.split("requests  ").next()), (Some(0), Some(told)));
    }
}

#[test]
fn a_preset_that_the_file_overrides_is_reported_before_the_agent_starts() {
    let home = tempfile::tempdir().unwrap();
    let config = "preset = 'openmanus'\nshape = { escapes = true, fold = true, minify = true, base64 = true, repeat = true }\n\
                  truncate = { max_lines = 9, max_bytes = 9000, keep = 'tail' }";
    std::fs::write(home.path().join("own.toml"), config).unwrap();
    let (code, err) = Agent::start(command(home.path(), &["-c", "own.toml"])).end("exit 0");
    assert_eq!(code, Some(0));
    assert!(err.starts_with("plimsoll: `preset`: the file itself sets 8 of the 15 keys"), "{err}");
}

/// One gateway books each request: the one that the agent would have asked anyway.
#[test]
fn an_agent_is_left_to_a_running_gateway_with_the_same_books() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, REPLY.to_owned()));
    let outer = Agent::start(command(home.path(), &["--upstream", &upstream.url()]));
    let url = format!("http://{}", outer.address());
    let inner = |own_books: bool| {
        let mut inner = command(home.path(), &[]);
        inner.env("ANTHROPIC_BASE_URL", &url).env("OPENAI_BASE_URL", url.clone() + "/v1");
        if own_books {
            inner.env("XDG_STATE_HOME", home.path().join("other"));
        }
        Agent::start(inner)
    };
    let agent = inner(false);
    assert_eq!((&*agent.said[0], &*agent.said[1]), (&*url, &*format!("{url}/v1")));
    // The variables of a provider of which none was set lead to the new gateway.
    assert_ne!(agent.said[2], url);
    assert_eq!(send(outer.address(), "POST", "/v1/messages", &[], MESSAGE).0, 200);
    let told = "plimsoll: `ANTHROPIC_BASE_URL`, `OPENAI_BASE_URL`: the address of a running gateway with the same books, \
                which the agent is left to ask; the bill below has none of these requests, `plimsoll report` has them\n\
                plimsoll: no request to a model came through this gateway; `plimsoll report` has those to the other\n";
    assert_eq!(agent.end("exit 4"), (Some(4), told.to_owned()));
    // With other books it is an upstream like any other.
    let agent = inner(true);
    assert!(agent.said[0].ends_with("/anthropic_base_url"), "{:?}", agent.said);
    assert_eq!(agent.end("exit 0"), (Some(0), NONE.to_owned()));
    assert!(outer.end("exit 0").1.contains("\n       1  900,000 "));
    // Once it has ended, whatever listens there now is asked.
    let agent = inner(false);
    assert!(agent.said[0].ends_with("/anthropic_base_url"), "{:?}", agent.said);
    assert_eq!(agent.end("exit 0"), (Some(0), NONE.to_owned()));
}

/// A gateway that sends to another one with the same books works, and says what that does to them.
#[test]
fn an_upstream_that_is_a_gateway_with_the_same_books_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, REPLY.to_owned()));
    let outer = Agent::start(command(home.path(), &["--upstream", &upstream.url()]));
    let url = format!("http://{}", outer.address());
    let inner = Agent::start(command(home.path(), &["--upstream", &url]));
    assert_eq!(send(inner.address(), "POST", "/v1/messages", &[], MESSAGE).0, 200);
    let (_, err) = inner.end("exit 0");
    let told = "plimsoll: `--upstream` is a running gateway with the same books, in which each request will be twice\n";
    assert!(err.starts_with(told), "{err}");
    outer.end("exit 0");
}

/// A variable set for another agent must not prevent this one from starting.
#[test]
fn local_addresses_may_omit_the_scheme() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, CHATTED.to_owned()));
    for (host, code) in [(&upstream.url()["http://".len()..], 0), ("elsewhere.test:80", 2)] {
        let mut command = command(home.path(), &["--", "sh", "-c", "echo $OPENAI_HOST"]);
        command.env("OPENAI_HOST", host);
        let ran = ran(command);
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        assert_eq!(ran.out.contains("/openai_host"), code == 0, "{}", ran.out);
        assert_eq!(
            ran.err.contains("`OPENAI_HOST`: the URL must start with `http://`"),
            code == 2,
            "{}",
            ran.err
        );
    }
}

/// A history outlives the gateway, so no URL that is only valid for this run is written into it.
#[test]
fn recall_urls_have_the_configured_address_or_are_omitted() {
    let home = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap();
    let config = "limits.rewrite_timeout = '60s'\noutputs.recall = 'http'\n";
    std::fs::write(home.path().join("http.toml"), format!("{config}listen.admin = '{admin}'\n")).unwrap();
    let upstream = Upstream::start(|_| (200, REPLY.to_owned()));
    let agent = Agent::start(command(home.path(), &["-c", "http.toml", "--upstream", &upstream.url()]));
    let long: Vec<String> = (0..9_000).map(|at| format!("{at}: a line of its own")).collect();
    let body = serde_json::json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": long.join("\n")}]}]});
    assert_eq!(send(agent.address(), "POST", "/v1/messages", &[], &body.to_string()).0, 200);
    let sent = upstream.received()[0].text();
    assert_eq!((sent.contains("run the tool again for the rest"), sent.contains("http:")), (true, false));
    assert_eq!(agent.end("exit 0").0, Some(0));
}

const NONE: &str = "plimsoll: no request to a model came through the gateway; if the agent does not read its address from a \
     variable, {url} in its arguments stands for the gateway's\n";

#[test]
fn run_exits_like_the_agent() {
    let home = tempfile::tempdir().unwrap();
    for (how, code) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)] {
        let agent = Agent::start(command(home.path(), &[]));
        assert_eq!(agent.end(how), (Some(code), NONE.to_owned()), "{how}");
    }
    // A signal sent to the gateway alone is passed on to the agent.
    let agent = Agent::start(command(home.path(), &[]));
    let id = agent.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(agent.ended(), (Some(143), NONE.to_owned()));
}

/// There is no log for the message, and it is not written into the agent's own output.
#[test]
fn an_unusable_proxy_is_reported_before_the_agent_starts() {
    let home = tempfile::tempdir().unwrap();
    for (variables, expected) in [
        (&[("HTTPS_PROXY", "https://me:secret@proxy.test"), ("http_proxy", "socks4://unused.test")][..], String::new()),
        (
            &[("HTTPS_PROXY", "socks4://me:secret@proxy.test")],
            "plimsoll: `HTTPS_PROXY` names a proxy that cannot be used, connections are made without one: only proxies of \
             `http://`, `https://`, `socks5://` and `socks5h://` can be used\n"
                .to_owned(),
        ),
    ] {
        let mut command = command(home.path(), &["--", "sh", "-c", "echo agent >&2"]);
        command.envs(variables.iter().copied());
        let ran = ran(command);
        assert_eq!((ran.code, ran.out, ran.err), (Some(0), String::new(), expected + "agent\n" + NONE));
    }
}

/// Programs read one of the two spellings, in either order.
#[test]
fn no_proxy_is_kept_in_either_case() {
    const BOTH: &str = "echo \"$NO_PROXY $no_proxy\"";
    let home = tempfile::tempdir().unwrap();
    for (set, expected) in [
        (&[][..], "127.0.0.1,localhost 127.0.0.1,localhost"),
        (&[("NO_PROXY", "a.test")], "a.test,127.0.0.1,localhost a.test,127.0.0.1,localhost"),
        (&[("no_proxy", "a.test")], "a.test,127.0.0.1,localhost a.test,127.0.0.1,localhost"),
        (
            &[("NO_PROXY", "a.test"), ("no_proxy", "b.test")],
            "a.test,127.0.0.1,localhost b.test,127.0.0.1,localhost",
        ),
        (&[("NO_PROXY", ""), ("no_proxy", "*")], "* *"),
        (&[("NO_PROXY", "*"), ("no_proxy", "b.test")], "* b.test,127.0.0.1,localhost"),
    ] {
        let mut command = command(home.path(), &["--", "sh", "-c", BOTH]);
        command.envs(set.iter().copied());
        assert_eq!(ran(command).out.trim_end(), expected, "{set:?}");
    }
}

/// As with `nohup`: the signals that the gateway ignores are ignored by the agent too.
#[test]
fn ignored_signals_stay_ignored() {
    let home = tempfile::tempdir().unwrap();
    let alone = command(home.path(), &[]);
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(alone.get_program()).args(alone.get_args());
    ignoring.current_dir(home.path()).env("HOME", home.path()).env_remove("ANTHROPIC_BASE_URL");
    let agent = Agent::start(ignoring);
    let id = agent.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    assert_eq!(agent.end("kill -HUP $$; exit 5"), (Some(5), NONE.to_owned()));
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let home = tempfile::tempdir().unwrap();
    for (options, variable, code, says) in [
        (&["--", "no-such-agent"][..], "", 127, "cannot run no-such-agent: No such file or directory"),
        (&["--", "/"], "", 126, "cannot run /: Permission denied"),
        (&["--upstream", "here", "--", "true"], "", 2, "`--upstream here`: "),
        (&["--", "true"], "gopher://me:secret@x", 2, "`ANTHROPIC_BASE_URL`: the URL must start with"),
        (&[], "", 2, "<AGENT>"),
    ] {
        let mut command = command(home.path(), options);
        if !variable.is_empty() {
            command.env("ANTHROPIC_BASE_URL", variable);
        }
        let ran = ran(command);
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        assert!(ran.err.contains(says) && !ran.err.contains("secret"), "{options:?}: {}", ran.err);
    }
}

/// The README names exactly the variables that are set.
#[test]
fn the_readme_lists_the_variables_that_run_sets() {
    const SHOW: &str = r#"env | sed -n "s|^\([A-Z_]*\)=$1|\1=|p""#;
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path(), &[]);
    command.args(["--", "sh", "-c", SHOW, "sh", "{url}"]);
    let out = ran(command).out;
    let mut set: Vec<&str> = out.lines().collect();
    set.sort_unstable();
    let mut expected = VARIABLES.map(|(name, path)| format!("{name}={path}"));
    expected.sort_unstable();
    assert_eq!(set, expected);
    let (_, table) = include_str!("../../README.md").split_once("| provider | variables |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    assert!(table.split('`').skip(1).step_by(2).eq(VARIABLES.map(|(name, _)| name)));
}
