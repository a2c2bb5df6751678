//! Replays of small conversations.

use std::io::Write as _;

use super::bodies::{Bodies, Marks};
use super::played::{self, Played, Setting};
use super::recording::Input;
use super::report::{self, Report};
use super::sweep;
use super::transcript::Transcript;
use crate::planner::Policy;
use crate::store;
use crate::strategy::clear;
use crate::strategy::gate::Reason;
use crate::usage::Catalogue;

/// A line that is long enough to count as a quote.
const LINE: &str = "let answer = compute_the_answer_to_everything(of_all, that_is);";

const SHELLS: &str = "[{\"name\":\"Bash\",\"description\":\"\",\"input_schema\":{\"type\":\"object\"}}]";

/// Lines that no shaper folds, in the form they have in JSON.
fn numbered(what: &str) -> String {
    let line = |n: u32| format!("{n}{what}{}\\n", n * 7919 % 1009);
    (0..200).map(line).collect::<Vec<_>>().concat()
}

/// A conversation of five requests: a file is read, two commands are run, the file is quoted, then read again.
fn anthropic() -> Vec<String> {
    let result = |id: &str, text: &str| {
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}]}}"#
        )
    };
    let call = |id: &str, name: &str, input: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}]}}"#
        )
    };
    let file = format!("     1→{LINE}\\n{}", numbered("→"));
    vec![
        r#"{"role":"user","content":"fix it"}"#.to_owned(),
        call("a", "Read", r#"{"file_path":"/w/a.rs"}"#),
        result("a", &file),
        call("b", "Bash", r#"{"command":"make"}"#),
        result("b", &numbered(" is ok")),
        call("c", "Edit", &format!(r#"{{"old_string":"  {LINE}","new_string":"x"}}"#)),
        result("c", "done"),
        call("d", "Read", r#"{"file_path":"/w/a.rs"}"#),
        result("d", "x"),
        r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}"#.to_owned(),
    ]
}

fn chat() -> Vec<String> {
    vec![
        r#"{"role":"user","content":"fix it"}"#.to_owned(),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"shell","arguments":"{\"cmd\":\"ls\"}"}}]}"#.to_owned(),
        format!(r#"{{"role":"tool","tool_call_id":"a","content":"{}"}}"#, numbered(" file")),
        r#"{"role":"assistant","content":"done"}"#.to_owned(),
    ]
}

fn responses() -> Vec<String> {
    vec![
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}"#.to_owned(),
        r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#.to_owned(),
        r#"{"type":"function_call","call_id":"a","name":"shell","arguments":"{\"cmd\":\"ls\"}"}"#.to_owned(),
        format!(r#"{{"type":"function_call_output","call_id":"a","output":"{}"}}"#, numbered(" file")),
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}"#
            .to_owned(),
    ]
}

fn transcript(protocol: &str, model: &str, requests: &str, lines: &[String]) -> Transcript {
    let header = format!(
        r#"{{"id":"t","protocol":"{protocol}","model":"{model}","system":null,"tools":{SHELLS},"requests":{requests}}}"#
    );
    Transcript::parse([&[header], lines].concat().join("\n").as_bytes()).unwrap()
}

fn recorded() -> Vec<Transcript> {
    vec![
        transcript(
            "anthropic",
            "claude-opus-4-6",
            r#"[{"n":1,"resp":1,"usage":{"output":10}},{"n":3,"resp":1},{"n":5,"resp":1},{"n":7,"resp":1},{"n":9,"resp":1}]"#,
            &anthropic(),
        ),
        transcript("openai-chat", "gpt-4o", r#"[{"n":1,"resp":1},{"n":3,"resp":1}]"#, &chat()),
        transcript("openai-responses", "gpt-5.5", r#"[{"n":1,"resp":2},{"n":4,"resp":1}]"#, &responses()),
    ]
}

/// Clears everything it may, at once.
fn eager() -> Policy {
    let clear = clear::Settings {
        policy: clear::Policy::Oldest,
        protect: clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 },
        gate: vec![Reason::Eager],
        ..clear::Settings::default()
    };
    Policy { clear, ..Policy::default() }
}

fn play(transcript: &Transcript, policy: &Policy, prices: Option<&str>) -> Played {
    let catalogue = Catalogue::embedded();
    let setting = Setting {
        policy,
        catalogue: &catalogue,
        prices,
        marks: Marks::Placed,
        pace_ms: 10_000,
        bodies: &store::Bodies::below(std::path::Path::new("/nowhere")),
        store: std::path::Path::new("/nowhere"),
        recall: &|_| String::new(),
    };
    played::transcript(transcript, &setting).unwrap()
}

const SYSTEM: &str =
    "\"You are a coding agent. (The original system prompt is not part of this recording.)\"";
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

#[test]
fn replayed_bodies_match_those_of_the_agent() {
    let of = |protocol: &str, marks| {
        let lines = ["{\"role\":\"user\",\"content\":\"a\"}", "{\"role\":\"assistant\",\"content\":\"b\"}"];
        let lines = lines.map(str::to_owned);
        let transcript = transcript(protocol, "m", r#"[{"n":1,"resp":1}]"#, &lines);
        let body = Bodies::new(&transcript, marks).unwrap().body(2);
        String::from_utf8(body.to_vec()).unwrap()
    };
    let anthropic = |mark: &str, user: &str| {
        format!(
            r#"{{"model":"m","max_tokens":8192,"system":[{{"type":"text","text":{SYSTEM}{mark}}}],"messages":[{user},{{"role":"assistant","content":"b"}}],"stream":true,"tools":{SHELLS}}}"#
        )
    };
    let plain = r#"{"role":"user","content":"a"}"#;
    let marked = format!(r#"{{"role":"user","content":[{{"type":"text","text":"a"{MARK}}}]}}"#);
    assert_eq!(of("anthropic", Marks::None), anthropic("", plain));
    assert_eq!(of("anthropic", Marks::Placed), anthropic(MARK, &marked));
    assert_eq!(
        of("openai-chat", Marks::Placed),
        format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":{SYSTEM}}},{plain},{{"role":"assistant","content":"b"}}],"stream":true,"tools":{SHELLS}}}"#
        )
    );
}

#[test]
fn a_body_without_messages_is_valid_json() {
    for (protocol, lines) in
        [("anthropic", anthropic()), ("openai-chat", chat()), ("openai-responses", responses())]
    {
        let transcript = transcript(protocol, "m", r#"[{"n":0,"resp":1}]"#, &lines);
        let body = Bodies::new(&transcript, Marks::Placed).unwrap().body(0);
        serde_json::from_slice::<serde_json::Value>(&body)
            .unwrap_or_else(|error| panic!("{protocol}: {error}"));
    }
}

#[test]
fn transcripts_of_other_protocols_are_refused() {
    let transcript = transcript("gemini", "m", r#"[{"n":1,"resp":1}]"#, &anthropic());
    let refused = Bodies::new(&transcript, Marks::Placed).err();
    assert_eq!(
        refused.as_deref(),
        Some(
            "transcripts of protocol `gemini` cannot be replayed, only those of anthropic, openai-chat and \
             openai-responses"
        )
    );
}

#[test]
fn untouched_conversations_cost_the_same() {
    let off =
        Policy { clear: clear::Settings { enabled: false, ..Default::default() }, ..Default::default() };
    for transcript in recorded() {
        let played = play(&transcript, &off, None);
        assert!(played.direct.prompts.is_some(), "{}", transcript.header.protocol);
        assert_eq!(played.direct.prompts, played.gateway.prompts);
        assert_eq!((played.tally.untouched, played.tally.invalid, played.direct.broken), (0, 0, 0));
        assert_eq!((played.counts.lost, played.counts.recalls), (0, 0));
        assert_eq!(played.tally.requests, transcript.header.requests.len() as u64);
    }
}

#[test]
fn clearing_lowers_the_cost_and_loses_quoted_lines() {
    let transcript = &recorded()[0];
    let played = play(transcript, &eager(), Some("gpt-4-turbo"));
    assert!(played.gateway.prompts < played.direct.prompts);
    assert_eq!(played.tally.events.keys().copied().collect::<Vec<_>>(), ["eager"]);
    assert_eq!((played.tally.untouched, played.tally.invalid), (0, 0));
    let counts = played.counts;
    assert_eq!((counts.calls, counts.quoting, counts.lost, counts.recalls), (4, 1, 1, 1));
    assert_eq!(played.gateway.broken, played.tally.events["eager"]);
}

#[test]
fn unpriced_conversations_are_left_out_of_total_costs() {
    let mut report = Report::default();
    let policy = Policy::default();
    report.add(play(&recorded()[1], &policy, None));
    report.add(play(&recorded()[2], &policy, Some("nobody/knows")));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["files"][1]["direct_usd"], serde_json::Value::Null);
    assert_eq!(json["files"][0]["direct_usd"], json["total"]["direct_usd"]);
    assert_eq!((&json["total"]["requests"], &json["total"]["unpriced"]), (&4.into(), &1.into()));
    for key in ["ratio", "worst_ratio", "calls", "lost_quotes", "gateway_usd"] {
        assert!(json["total"][key].is_number(), "{key}");
    }
    let lines = report::table(&report).lines();
    assert_eq!((lines.len(), lines.last().unwrap().starts_with("total")), (4, true));
    assert!(report::notes(&report)[0].starts_with("worst: t at "));
}

#[test]
fn a_sweep_grid_varies_only_clear_settings() {
    let configured = Policy::default();
    let rows = sweep::grid(&configured);
    let same = rows.iter().filter(|row| row.policy.clear == configured.clear).map(|row| &*row.setting);
    assert_eq!(same.collect::<Vec<_>>(), ["as configured", "clear.policy = \"worth\""]);
    assert!(rows.iter().all(|row| row.policy.window == configured.window));
    assert_eq!(sweep::table(&rows).lines().len(), rows.len() + 1);
}

/// Damaged or missing lines are left out and reported, and the rest is replayed.
#[test]
fn damaged_transcripts_are_replayed_without_their_damaged_lines() {
    let header = r#"{"id":"t","protocol":"openai-chat","model":"gpt-4o","requests":[{"n":1,"resp":1},{"n":3,"resp":1},{"n":5,"resp":1}]}"#;
    let lines = ["user", "assistant", "user", "assistant", "user", "assistant"];
    let lines: Vec<String> =
        lines.iter().map(|role| format!(r#"{{"role":"{role}","content":"hello"}}"#)).collect();
    let file = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut all: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
        change(&mut all);
        all.insert(0, header.as_bytes().to_vec());
        all.join(&b'\n')
    };
    let half = lines[5].as_bytes()[..20].to_vec();
    for (content, messages, expected) in [
        (file(&|_| {}), 6, (&[][..], 0, 0)),
        (file(&|all| all[5] = half.clone()), 5, (&[7], 0, 0)),
        (file(&|all| all[5] = b"{\"role\":\"assistant\",\"content\":\"\xd0".to_vec()), 5, (&[7], 0, 0)),
        (file(&|all| all[2] = b"oops".to_vec()), 5, (&[4], 0, 0)),
        (file(&|all| all[2] = b"\n\n[1]".to_vec()), 5, (&[6], 0, 0)),
        (file(&|all| all[2].extend(lines[3].bytes())), 5, (&[4], 0, 0)),
        (file(&|all| all.truncate(5)), 5, (&[], 1, 0)),
        (file(&|all| all.truncate(4)), 4, (&[], 2, 1)),
        (file(&|all| (all[1] = half.clone(), all.truncate(2)).1), 1, (&[3], 4, 2)),
    ] {
        let transcript = Transcript::parse(&content).unwrap();
        let damage = &transcript.damage;
        let text = String::from_utf8_lossy(&content);
        assert_eq!((&*damage.lines, damage.missing, damage.unplayed), expected, "{text}");
        assert_eq!(transcript.messages().len(), messages, "{text}");
        let mut report = Report::default();
        report.add(play(&transcript, &Policy::default(), None));
        let json = serde_json::to_value(&report).unwrap();
        let (lines, missing, unplayed) = expected;
        assert_eq!(json["files"][0]["damaged"], serde_json::json!(lines), "{text}");
        for (key, count) in [
            ("unreadable", lines.len()),
            ("missing", missing),
            ("unplayed", unplayed),
            ("requests", 3 - unplayed),
            ("untouched", 0),
        ] {
            assert_eq!(json["total"][key], count, "{key} {text}");
        }
    }
    for wrong in ["", "oops", &lines[0], &header.replace("\"n\":3", "\"n\":0")] {
        assert!(Transcript::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn input_files_may_be_gzipped_and_are_validated() {
    let dir = tempfile::tempdir().unwrap();
    let header = r#"{"id":"t","protocol":"openai-chat","requests":[{"n":1,"resp":0}]}"#;
    let text = format!("{header}\n{{\"role\":\"user\",\"content\":\"a\"}}\n");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    for (bytes, messages) in [
        (packed.finish().unwrap(), Some(1)),
        (text.clone().into_bytes(), Some(1)),
        (Vec::new(), None),
        (b"{}\n".to_vec(), None),
        (format!("{header}\n").into_bytes(), None),
        (vec![0xff], None),
    ] {
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, &bytes).unwrap();
        let read = Input::read(&path).ok();
        let read = read.map(|read| match read {
            Input::Transcript(transcript) => transcript.messages().len(),
            Input::Recording(_) => 0,
        });
        assert_eq!(read, messages, "{:?}", String::from_utf8_lossy(&bytes));
    }
    let record = r#"{"id":"1","conversation":"c","time":"2026-11-21T10:00:01Z"}"#;
    let earlier = r#"{"id":"0","conversation":"c","time":"2026-11-21T10:00:00.5Z"}"#;
    for (text, expected) in [
        (format!("{record}\n\n{earlier}\n").into_bytes(), ["0", "1"].as_slice()),
        (format!("{record}\n{{}}\n").into_bytes(), &["1"]),
        // A line that is cut off may end within a character.
        ([record.as_bytes(), b"\n{\"id\":\"\xd0\n", earlier.as_bytes()].concat(), &["0", "1"]),
    ] {
        let path = dir.path().join("c.jsonl");
        std::fs::write(&path, text).unwrap();
        let read = match Input::read(&path).unwrap() {
            Input::Recording(all) => all.requests.into_iter().map(|one| one.record.id).collect(),
            Input::Transcript(_) => Vec::new(),
        };
        assert_eq!(read, expected);
    }
    assert!(Input::read(&dir.path().join("none")).is_err());
}
