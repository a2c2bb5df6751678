//! The admin listener: the ledger as JSON and as a page, and who may see it.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{done, json as printed};
use crate::support::{Answer, Gateway, Received, Upstream, exchange, send};

/// A provider that reports its charges for half of its models.
fn answer(request: &Received) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": if request.text().contains("known") { "claude-sonnet-4-6" } else { "nobody-sells-it" },
        "stop_reason": "end_turn", "usage": {"input_tokens": request.body.len() / 4, "output_tokens": 7}});
    (200, body.to_string())
}

/// Two conversations of two clients and two models. The first one has two requests, and its file view is shortened.
const REQUESTS: [(&str, &str, usize); 3] =
    [("known", "claude-cli/2.1.305", 1), ("other", "<b>agent</b>", 1), ("known", "claude-cli/2.1.305", 2)];

fn request(about: &str, results: usize) -> String {
    let long: Vec<String> = (0..4000).map(|line| format!("{about} line {line:06} of a long log")).collect();
    let mut messages = vec![json!({"role": "user", "content": format!("Look at {about}")})];
    for at in 0..results {
        let id = format!("toolu_{at}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": format!("show {at}")}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": long.join("\n")}]}));
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
}

/// A gateway that has recorded the conversations, and the address of its admin listener.
struct Recorded {
    home: TempDir,
    _gateway: Gateway,
    admin: SocketAddr,
}

impl Recorded {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        let config = |admin: &str| {
            format!(
                "[listen]\nadmin = '{admin}'\nadmin_names = ['*.own.example']\n[state]\ndir = '{}/state'\n",
                home.path().display()
            )
        };
        let gateway = Gateway::start(home.path(), &config("off"), &upstream.url());
        for (about, client, results) in REQUESTS {
            let headers = [("user-agent", client), ("x-api-key", about)];
            assert_eq!(gateway.post("/v1/messages", &headers, &request(about, results)).0, 200);
        }
        // All records are written when it has stopped.
        gateway.stop();
        let mut gateway = Gateway::start(home.path(), &config("127.0.0.1:0"), &upstream.url());
        let admin = gateway.admin();
        Self { home, _gateway: gateway, admin }
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = send(self.admin, "GET", path, &[], "");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    fn printed(&self, arguments: &str) -> Value {
        printed(self.home.path(), &arguments.split(' ').chain(["-c", "gateway.toml"]).collect::<Vec<_>>())
    }

    /// The ids of the conversations, the newest first.
    fn ids(&self) -> [String; 2] {
        let listed = self.get("/api/conversations").1;
        [0, 1].map(|at| listed["conversations"][at]["id"].as_str().unwrap().to_owned())
    }
}

#[test]
fn the_api_says_what_the_commands_print() {
    let recorded = Recorded::new();
    let [id, other] = recorded.ids();
    let short = &id[..id.len() - 1];
    for (path, arguments) in [
        ("/api/conversations", "conversations --json"),
        ("/api/conversations?limit=1", "conversations --json --limit 1"),
        ("/api/conversations?since=2001-01-01&until=2100-01-01", "conversations --json"),
        (&format!("/api/conversations/{id}"), &format!("inspect {id} --json")),
        (&format!("/api/conversations/{}", short.replace('-', "%2d")), &format!("inspect {short} --json")),
        (&format!("/api/conversations/{other}?limit=7"), &format!("inspect {other} --json")),
        (&format!("/api/conversations?id={other}"), &format!("inspect {other} --json")),
        (&format!("/api/conversations?limit=7&id={short}"), &format!("inspect {short} --json")),
        ("/api/report", "report --json"),
        ("/api/report?by=model&utc=true", "report --json --utc --by model"),
        ("/api/report?by=client&utc=false", "report --json --by client"),
        (
            "/api/report?by=conversation&since=2001-01-01",
            "report --json --by conversation --since 2001-01-01",
        ),
        ("/api/report?until=2001-01-01T10:00%2B02:00", "report --json --until 2001-01-01T10:00+02:00"),
    ] {
        let (status, mut said) = recorded.get(path);
        let listed = said.get_mut("conversations").and_then(Value::as_array_mut);
        for one in listed.into_iter().flatten() {
            let zone = one.as_object_mut().unwrap().remove("zone").expect("a zone");
            assert_eq!(zone["estimated"], false, "{zone}");
            assert!(["green", "yellow"].contains(&zone["name"].as_str().unwrap()), "{zone}");
        }
        assert_eq!((status, &said), (200, &recorded.printed(arguments)), "{path}");
    }
}

/// The page shows these words.
#[test]
fn the_api_tells_what_happened_as_inspect_does() {
    let recorded = Recorded::new();
    let [id, _] = recorded.ids();
    let said = recorded.get(&format!("/api/conversations/{id}")).1;
    let told = |name: &str| json!([said["requests"][0][name], said["requests"][1][name]]);
    assert_eq!(told("happened"), json!([["shortened: truncate 1"], ["shortened: repeat 1"]]));
    assert_eq!(told("standing"), json!([[], ["as decided before: truncate 1"]]));
    let text = done(recorded.home.path(), &["inspect", &id, "-c", "gateway.toml"]);
    assert_eq!(text.matches("\n       shortened: ").count(), 2, "{text}");
}

#[test]
fn api_answers_are_bounded() {
    let recorded = Recorded::new();
    let [id, other] = recorded.ids();
    let none = recorded.get("/api/conversations?until=2001-01-01").1;
    assert_eq!(none, json!({"conversations": [], "of": 0, "unreadable": 0, "missing": 0}));
    let listed = recorded.get("/api/conversations?limit=1").1;
    assert_eq!((&listed["of"], &listed["conversations"][0]["id"]), (&json!(2), &json!(id)));
    let (all, newest) = (
        recorded.get(&format!("/api/conversations/{id}")).1,
        recorded.get(&format!("/api/conversations/{id}?limit=1")).1,
    );
    assert_eq!((&all["requests"][1], &all["of"]), (&newest["requests"][0], &Value::Null));
    assert_eq!((newest["requests"].as_array().unwrap().len(), &newest["of"]), (1, &json!(2)));
    assert_eq!((&newest["totals"], &newest["requests"][0]["n"]), (&all["totals"], &json!(2)));

    let several: String = id.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let (status, said) = recorded.get(&format!("/api/conversations/{several}"));
    assert!(status == 409 && !several.is_empty(), "{said}");
    let mut ids = [id, other];
    ids.sort();
    assert_eq!(said["error"]["conversations"], json!(ids));
    let message = format!("2 conversation ids start with `{several}`");
    assert_eq!(said["error"]["message"], message);
}

#[test]
fn wrong_parameters_are_named() {
    let recorded = Recorded::new();
    let since = "expected a date such as 2026-11-21";
    for (path, status, parameter, says) in [
        (
            "/api/conversations?limit=0",
            400,
            "limit",
            "`limit`: expected a whole number from 1 to 500, got \"0\"",
        ),
        ("/api/conversations?limit=501", 400, "limit", "from 1 to 500"),
        ("/api/conversations?limit=", 400, "limit", "got \"\""),
        ("/api/conversations/x?limit=1001", 400, "limit", "from 1 to 1000"),
        ("/api/conversations?since=someday", 400, "since", since),
        ("/api/conversations?limit=1&limit=1", 400, "limit", "more than once"),
        (
            "/api/conversations?offset=1",
            400,
            "offset",
            "no such parameter, only `id`, `utc`, `since`, `until`, `limit`",
        ),
        ("/api/conversations/x?since=7d", 400, "since", "no such parameter, only `limit`"),
        ("/api/report?by=year", 400, "by", "expected one of day, model, client, conversation, got \"year\""),
        ("/api/report?until=-7d", 400, "until", since),
        ("/api/report?since=2026-11-21&until=2026-11-19", 400, "since", "later than `until`"),
        ("/api/report?utc=yes", 400, "utc", "expected true or false"),
        ("/api/report?by=%ff", 400, "by", "not UTF-8"),
        ("/api/report?limit=1", 400, "limit", "no such parameter, only `by`, `utc`, `since`, `until`"),
        ("/api/conversations/none", 404, "", "no conversation id starts with `none`"),
        // Browsers cannot send these in a path.
        ("/api/conversations?id=.", 404, "", "no conversation id starts with `.`"),
        ("/api/conversations?id=..&limit=200", 404, "", "no conversation id starts with `..`"),
        ("/api/conversations?id=x&since=7d", 400, "since", "no such parameter, only `id`, `limit`"),
        ("/api/conversations/%ff", 404, "", "not UTF-8"),
        ("/api/report/day", 404, "", "there are /api/conversations, "),
        ("/api/", 404, "", "there are /api/conversations, "),
    ] {
        let (found, said) = recorded.get(path);
        assert_eq!((found, said["error"]["parameter"].as_str().unwrap_or("")), (status, parameter), "{path}");
        assert!(said["error"]["message"].as_str().unwrap().contains(says), "{path}: {said}");
    }
}

/// A page from another host or origin gets nothing; probes get the usual answers.
#[test]
fn access_depends_on_origin_and_token() {
    let recorded = Recorded::new();
    let own = recorded.admin.to_string();
    let (origin, local) = (format!("http://{own}"), format!("localhost:{}", recorded.admin.port()));
    let output = std::fs::read_dir(recorded.home.path().join("state/outputs")).unwrap().next().unwrap();
    let output = output.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
    let paths = ["/health", "/metrics", "/", "/api/report", &format!("/outputs/{output}")];
    let (all, probes) = ([200; 5], [200, 200, 403, 403, 403]);
    let (link, embedded) = ([200, 200, 200, 403, 200], [200, 200, 403, 403, 403]);
    for (headers, expected) in [
        (&[][..], all),
        (&[("host", &*local)], all),
        (&[("host", "PLIMSOLL.localhost:1")], all),
        (&[("host", "10.0.0.7:8788")], all),
        (&[("host", "plimsoll:8788")], probes),
        (&[("host", "rebound.example:8788")], probes),
        // The user has named this host.
        (&[("host", "laptop.own.example:8788")], all),
        (&[("host", "laptop.own.example"), ("origin", "https://laptop.own.example")], all),
        (&[("host", "laptop.own.example"), ("origin", "https://rebound.example")], embedded),
        (&[("host", "rebound.example:8788"), ("origin", "http://rebound.example:8788")], probes),
        (&[("host", "")], probes),
        (&[("origin", &*origin), ("sec-fetch-site", "same-origin")], all),
        (&[("sec-fetch-site", "none"), ("sec-fetch-dest", "document")], all),
        (&[("origin", "https://evil.example")], embedded),
        (&[("origin", "null")], embedded),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "empty")], embedded),
        (&[("sec-fetch-site", "same-site"), ("sec-fetch-dest", "iframe")], embedded),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")], link),
    ] {
        for (path, status) in paths.iter().zip(expected) {
            let (found, head, body) = exchange(recorded.admin, "GET", path, headers, "");
            let body = String::from_utf8_lossy(&body);
            assert_eq!(found, status, "{path} {headers:?}: {body}");
            assert!(!head.to_lowercase().contains("access-control"), "{path}: {head}");
            if found == 403 {
                assert!(body.contains("requested by a ") && body.len() < 160, "{path}: {body}");
            }
        }
    }
    for (method, path, allowed) in
        [("OPTIONS", "/api/report", 405), ("POST", "/", 405), ("HEAD", "/api/report", 200)]
    {
        let (status, head, body) = exchange(recorded.admin, method, path, &[], "");
        assert_eq!(status, allowed, "{method} {path}");
        assert!(!head.to_lowercase().contains("access-control"), "{head}");
        assert!(method != "HEAD" || body.is_empty());
    }
}

#[test]
fn the_page_has_a_strict_content_security_policy() {
    let recorded = Recorded::new();
    let (status, head, body) = exchange(recorded.admin, "GET", "/", &[], "");
    let page = String::from_utf8(body).unwrap();
    assert_eq!((status, page.starts_with("<!doctype html>")), (200, true));
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.split_once(": ").filter(|(found, _)| *found == name));
        line.map(|(_, value)| value.to_owned())
    };
    let policy = header("content-security-policy").unwrap();
    let parts: Vec<&str> = policy.split("; ").collect();
    for (part, value) in [
        ("default-src", "'none'"),
        ("script-src", "'sha256-"),
        ("style-src", "'sha256-"),
        ("connect-src", "'self'"),
        ("frame-ancestors", "'none'"),
    ] {
        let found = parts.iter().find_map(|found| found.strip_prefix(part)).unwrap_or_default();
        assert!(found.trim().starts_with(value), "{policy}");
    }
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/api/report", "application/json"),
        ("/api/none", "application/json"),
        ("/outputs/none", "application/json"),
        ("/none", "application/json"),
    ] {
        let (_, head, _) = exchange(recorded.admin, "GET", path, &[], "");
        for line in [
            &format!("content-type: {kind}"),
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.lines().any(|found| found == line), "{path}: {head}");
        }
    }
    assert!(!page.contains("'/api/conversations/"), "an id in a path");
    // Everything that the script requests exists.
    let asked: Vec<&str> = page.split("'/api/").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    for path in asked {
        assert_eq!(recorded.get(&format!("/api/{path}")).0, 200, "{path}");
    }
}

/// If the store of a running gateway is removed, an error is reported and no new store is made.
#[test]
fn a_removed_store_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(home.path(), "[listen]\nadmin = '127.0.0.1:0'\n", "http://127.0.0.1:9");
    let admin = gateway.admin();
    let get = |path: &str| {
        let (status, body) = send(admin, "GET", path, &[], "");
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    assert_eq!(get("/api/report").1["groups"], json!([]));
    let files =
        |dir: &Path| std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    let state = home.path().join("plimsoll");
    for file in files(&state) {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(get("/api/conversations").1["of"], 0);
    assert_eq!(get("/api/conversations/x").0, 404);
    assert_eq!(files(&state), [""; 0].map(std::path::PathBuf::from));
}
