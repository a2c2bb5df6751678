//! The behaviour of presets, compared with the figures of the systems that they are modelled on: each with its own
//! settings, in the code that a request passes through.

use std::borrow::Cow;
use std::fs::{self, DirEntry};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::config::{Config, Tuning};
use plimsoll::plan::LeafEdit;
use plimsoll::planner::{Layout, Level};
use plimsoll::shape::{Shaped, Subject, shape};
use plimsoll::strategy::estimate::Estimate;
use plimsoll::strategy::gate::Account;
use plimsoll::strategy::summary::split::{self, Message};
use plimsoll::strategy::window::{Gauge, Settings};
use serde_json::{Value, json};

use crate::support::{Gateway, Received, Upstream};

const ALL: &[&str] = &[
    "default",
    "passthrough",
    "opencode",
    "opencode-2026",
    "window-manager",
    "pulse",
    "pulse-2026",
    "gemini",
    "temporal",
    "dyad",
    "openmanus",
    "open-interpreter",
    "codex",
    "picoclaw",
];

fn tuning(text: &str) -> Tuning {
    let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    Config::from_toml(text, &home).unwrap_or_else(|problems| panic!("{text}\n{problems}")).tuning
}

fn preset(name: &str) -> Tuning {
    tuning(&format!("preset = '{name}'"))
}

/// A tool name with an exclamation mark denotes a tool whose result reports an error.
fn shaped(tuning: &Tuning, tool: &str, text: &str) -> Option<Shaped> {
    let leaves = [Cow::Borrowed(text)];
    let recall = "full output: /o/1.txt";
    let (tool, is_error) = (tool.trim_end_matches('!'), tool.ends_with('!'));
    let subject =
        Subject { leaves: &leaves, members: false, tool: Some(tool), arguments: None, is_error, recall };
    shape(&subject, &tuning.policy.shape)
}

/// How much is kept of each end of a result of one long line.
fn ends(tuning: &Tuning, tool: &str, bytes: usize) -> Option<(usize, usize)> {
    let digits: String = (0..bytes).map(|at| char::from(b'a' + (at % 7) as u8)).collect();
    let shaped = shaped(tuning, tool, &digits)?;
    let [Some(LeafEdit::Replace(text))] = &shaped.leaves[..] else { panic!("one text") };
    assert_eq!(self::shaped(tuning, tool, text), None, "what was cut is not cut again");
    let head = digits.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let tail = digits.bytes().rev().zip(text.bytes().rev()).take_while(|(a, b)| a == b).count();
    Some((head, tail))
}

#[test]
fn presets_truncate_results_like_their_systems() {
    for (name, tool, bytes, expected) in [
        ("opencode", "grep", 51_200, None),
        ("opencode", "grep", 60_000, Some((51_200, 0))),
        ("opencode", "bash", 60_000, Some((51_200, 0))),
        ("openmanus", "browse", 10_000, None),
        // Results that would become longer stay unchanged.
        ("openmanus", "browse", 10_001, None),
        ("openmanus", "browse", 20_000, Some((10_000, 0))),
        ("open-interpreter", "execute", 2_800, None),
        ("open-interpreter", "execute", 2_801, None),
        ("open-interpreter", "execute", 9_000, Some((0, 2_800))),
        ("open-interpreter", "read", 9_000, None),
        ("codex", "shell", 12_000, None),
        ("codex", "shell", 12_001, None),
        ("codex", "shell", 24_000, Some((6_000, 6_000))),
        ("codex", "grep", 24_000, Some((6_000, 6_000))),
        ("gemini", "run_shell_command", 40_000, None),
        ("gemini", "run_shell_command", 48_000, Some((8_000, 32_000))),
        ("gemini", "read_file", 48_000, None),
        ("pulse-2026", "bash", 60_000, Some((30_000, 0))),
        ("pulse", "bash", 60_000, None),
        ("passthrough", "bash", 600_000, None),
        // Errors keep the same amount at both ends.
        ("opencode", "bash!", 51_200, None),
        ("opencode", "bash!", 60_000, Some((25_600, 25_600))),
        ("opencode-2026", "grep!", 60_000, Some((25_600, 25_600))),
        ("gemini", "run_shell_command!", 40_000, None),
        ("gemini", "run_shell_command!", 48_000, Some((20_000, 20_000))),
        ("open-interpreter", "execute!", 40_000, Some((1_400, 1_400))),
        ("openmanus", "bash!", 40_000, Some((5_000, 5_000))),
        ("codex", "shell!", 40_000, Some((6_000, 6_000))),
        ("pulse-2026", "bash!", 40_000, Some((15_000, 15_000))),
        ("pulse", "bash!", 40_000, None),
    ] {
        assert_eq!(ends(&preset(name), tool, bytes), expected, "{name} {tool} {bytes}");
    }
}

#[test]
fn presets_use_the_markers_of_their_systems() {
    for (name, tool, expected) in [
        (
            "opencode",
            "grep",
            "\n\n...8800 bytes truncated...\n\nfull output: /o/1.txt\nUse search tools to query the full content or \
             read specific sections.",
        ),
        ("codex", "shell", "\n\n…48000 bytes truncated of 60000; full output: /o/1.txt…\n\n"),
    ] {
        let text = "x".repeat(60_000);
        let shaped = shaped(&preset(name), tool, &text).unwrap();
        let [Some(LeafEdit::Replace(text))] = &shaped.leaves[..] else { panic!("one text") };
        assert_eq!(text.trim_matches('x'), expected, "{name}");
    }
}

#[test]
fn presets_truncate_by_lines_like_their_systems() {
    let line = "0123456789\n";
    for (lines, expected) in [(2_000, None), (2_500, Some(2_000))] {
        let shaped = shaped(&preset("opencode"), "grep", &line.repeat(lines));
        let kept = shaped.map(|shaped| match &shaped.leaves[..] {
            [Some(LeafEdit::Replace(text))] => text.matches("0123456789").count(),
            other => panic!("{other:?}"),
        });
        assert_eq!(kept, expected, "{lines}");
    }
}

fn gauge(prompt: u64, window: u64, max_output: Option<u64>, settings: &Settings) -> Gauge {
    let window = settings.window(Some(window), max_output).expect("it is known");
    Gauge::new(prompt, window, max_output, settings)
}

/// The first prompt size at which room is made, by window and output limit.
#[test]
fn presets_clear_at_the_thresholds_of_their_systems() {
    for (text, window, max_output, first) in [
        ("preset = 'opencode'", 200_000, Some(64_000), 168_001),
        ("preset = 'opencode-2026'", 200_000, Some(64_000), 168_000),
        ("preset = 'opencode-2026'", 65_536, Some(32_000), 33_536),
        ("preset = 'pulse'", 200_000, Some(64_000), 48_000),
        ("preset = 'pulse-2026'", 1_000_000, None, 48_000),
        ("preset = 'gemini'", 1_048_576, Some(65_536), 524_288),
        ("preset = 'gemini'\nwindow.trigger = 0.7", 1_048_576, Some(65_536), 734_004),
        ("preset = 'codex'", 272_000, Some(128_000), 244_800),
        ("preset = 'dyad'", 200_000, Some(64_000), 175_000),
        ("preset = 'dyad'", 1_000_000, Some(64_000), 250_000),
        ("preset = 'dyad'\nwindow.size = 215000", 1_000_000, None, 190_000),
        ("preset = 'dyad'\nwindow.size = 245000", 400_000, None, 220_000),
        ("preset = 'dyad'", 128_000, None, 103_000),
        ("preset = 'dyad'", 20_000, None, 10_000),
        ("preset = 'picoclaw'", 131_072, Some(8_000), 98_304),
    ] {
        let tuning = tuning(text);
        let settings = &tuning.policy.window;
        let is_due = |prompt| gauge(prompt, window, max_output, settings).reaches(settings.trigger, settings);
        assert!(is_due(first) && !is_due(first - 1), "{text}: {first} of {window}");
    }
    let codex = preset("codex").policy.window;
    assert_eq!(gauge(0, 272_000, Some(128_000), &codex).usable(), 258_400);
    let pico = preset("picoclaw").policy.window;
    assert_eq!(pico.window(None, Some(32_768)), Some(131_072), "four times the answer");
}

/// The four points at which results are cleared, and summaries begun, used and given up.
#[test]
fn a_window_manager_acts_in_steps() {
    let tuning = preset("window-manager");
    let (window, ladder) = (tuning.policy.window, tuning.policy.ladder);
    let clears = tuning.policy.clear.trigger.unwrap();
    let bounds = [clears, tuning.summarize.settings.trigger, window.trigger, ladder.from];
    for (share, expected) in [(0.74, 0), (0.76, 1), (0.86, 2), (0.93, 3), (0.96, 4)] {
        let usable = gauge(0, 128_000, None, &window).usable();
        let gauge = gauge((usable as f64 * share) as u64, 128_000, None, &window);
        let passed = bounds.iter().filter(|bound| gauge.reaches(**bound, &window)).count();
        assert_eq!(passed, expected, "{share}");
    }
}

#[test]
fn presets_limit_messages_like_their_systems() {
    for (name, few, many) in [("temporal", 249, 250), ("picoclaw", 20, 21)] {
        let window = preset(name).policy.window;
        let level = |messages| Level {
            prompt_tokens: 0,
            gauge: None,
            reading: None,
            growth: None,
            clearable_bytes: 0,
            messages,
            defers: false,
            waits: false,
            can_wait: false,
            summarised: false,
            patient: true,
            account: Account::default(),
        };
        assert!(!level(few).is_crowded(&window) && level(many).is_crowded(&window), "{name}");
    }
    assert_eq!(preset("openmanus").policy.ladder.messages, Some(100));
}

/// A conversation in short: `u` the user, `m` the model, `c` a call, `r` a result, each with its size in bytes.
fn talk(turns: &[(usize, &str)]) -> Vec<Message> {
    let message = |word: &str| {
        let (kind, bytes) = word.split_at(1);
        let bytes = bytes.parse().unwrap_or(40);
        Message { is_turn: kind == "u", is_answer: kind == "m", bytes, tokens: bytes / 4 }
    };
    let turns = turns.iter().flat_map(|(times, turn)| std::iter::repeat_n(*turn, *times));
    turns.flat_map(|turn| turn.split_whitespace().map(message).collect::<Vec<_>>()).collect()
}

/// What the user and the model are made to say around a summary.
#[test]
fn presets_lay_out_summaries_in_the_words_of_their_systems() {
    let asked = || Layout::Asked("What did we do so far?".into());
    let thanks = || Layout::Acknowledged("Got it. Thanks for the context!".into());
    for (name, expected) in [
        ("opencode", asked()),
        ("opencode-2026", asked()),
        ("gemini", thanks()),
        ("codex", Layout::User),
        ("pulse", Layout::Answer),
    ] {
        assert_eq!(preset(name).summarize.layout, expected, "{name}");
    }
}

/// The first message that is kept after a summary.
#[test]
fn presets_cut_histories_like_their_systems() {
    for (name, turns, expected) in [
        ("pulse", &[(10, "u400 m19200")][..], Some(8)),
        ("pulse-2026", &[(20, "u400 m9600")], Some(32)),
        ("pulse", &[(5, "u20000 m180500")], None),
        ("gemini", &[(5, "u137 m138"), (1, "u9")], Some(8)),
        ("gemini", &[(1, "u39 c57 r1085 c57 r1085"), (1, "u9")], None),
        ("gemini", &[(1, "u39 c57 r1085 m42"), (1, "u9")], Some(4)),
        ("gemini", &[(1, "u937 m40 u38 c57 r135"), (1, "u9")], Some(2)),
        // All but the newest turn.
        ("temporal", &[(128, "u m"), (1, "u c r m"), (1, "u c r")], Some(260)),
        ("opencode", &[(3, "u c r m"), (1, "u")], Some(12)),
        ("dyad", &[(3, "u c r m"), (1, "u")], Some(12)),
        ("codex", &[(3, "u c r m"), (1, "u c r")], Some(12)),
        ("window-manager", &[(9, "u c r m")], Some(16)),
        ("picoclaw", &[(3, "u c r m")], Some(8)),
        ("picoclaw", &[(2, "u c r c r"), (1, "u m")], Some(5)),
        ("picoclaw", &[(1, "u c r c r c r c r c r m")], None),
        ("opencode-2026", &[(3, "u400 m400")], Some(2)),
        ("opencode-2026", &[(3, "u400 m24000")], Some(4)),
    ] {
        let settings = preset(name).summarize.settings;
        assert_eq!(split::point(&talk(turns), 168_000, &settings), expected, "{name} {turns:?}");
    }
}

/// How often a summary is requested from a model that does not answer, or answers in the wrong form.
#[test]
fn presets_ask_for_summaries_as_often_as_their_systems() {
    for (name, attempts) in [
        ("opencode", 1),
        ("opencode-2026", 1),
        ("pulse", 2),
        ("pulse-2026", 2),
        ("gemini", 2),
        ("temporal", 3),
        ("picoclaw", 3),
    ] {
        assert_eq!(preset(name).summarize.limits.attempts, attempts, "{name}");
    }
}

/// An agent's request after this many steps, each with a result of its own.
fn request(steps: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Find the bug"})];
    for step in 0..steps {
        let id = format!("toolu_{step}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": format!("make {step}")}}]}));
        let text = format!("step {step} says something else\n").repeat(400);
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": text}]}));
        if step % 3 == 2 {
            messages.push(json!({"role": "assistant", "content": format!("Done {step}")}));
            messages.push(json!({"role": "user", "content": format!("Go on {step}")}));
        }
    }
    json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": messages}).to_string()
}

/// The ids of calls without results, and of results without calls.
fn unpaired(body: &Value) -> usize {
    let blocks = body["messages"].as_array().into_iter().flatten();
    let blocks: Vec<&Value> =
        blocks.flat_map(|message| message["content"].as_array().into_iter().flatten()).collect();
    let ids = |key: &str| -> Vec<&str> { blocks.iter().filter_map(|block| block[key].as_str()).collect() };
    let (calls, results) = (ids("id"), ids("tool_use_id"));
    calls.iter().filter(|id| !results.contains(id)).count()
        + results.iter().filter(|id| !calls.contains(id)).count()
}

fn answer(received: &Received) -> (u16, String) {
    let tokens = received.body.len() / 4;
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 7}});
    (200, body.to_string())
}

#[test]
fn an_empty_history_is_sent_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(answer);
    let gateway = Gateway::start(home.path(), "preset = 'pulse'\n[listen]\nadmin = 'off'\n", &upstream.url());
    let body = r#"{"model": "claude-sonnet-4-6", "max_tokens": 10, "messages": []}"#;
    assert_eq!(gateway.post("/v1/messages", &[], body).0, 200);
    gateway.stop();
    assert_eq!(upstream.received().last().unwrap().text(), body);
}

/// Every preset serves an agent to its end: what was sent before changes only in recorded events, pairs stay together,
/// and the user's first message is kept.
#[test]
fn every_preset_serves_an_agent() {
    let mut acting = Vec::new();
    for name in ALL {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(answer);
        // The window is small, so that the presets have something to do.
        let config = format!("preset = '{name}'\n[listen]\nadmin = 'off'\n[window]\nsize = 20000\n");
        let gateway = Gateway::start(home.path(), &config, &upstream.url());
        for steps in 0..24 {
            let (status, _) = gateway.post("/v1/messages", &[("x-session-id", "s")], &request(steps));
            assert_eq!(status, 200, "{name} {steps}");
        }
        gateway.stop();
        let received = upstream.received();
        // The gateway's own calls contain no tool results.
        let sent: Vec<Value> =
            received.iter().map(|one| serde_json::from_slice(&one.body).unwrap()).collect();
        for body in &sent {
            assert_eq!(unpaired(body), 0, "{name}");
            assert!(body.to_string().contains("Find the bug"), "{name}: {body}");
        }
        let logs = std::fs::read_dir(home.path().join("plimsoll/conversations")).unwrap();
        let text: String =
            logs.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let served =
            records.iter().filter(|record| record["status"] == 200 && record["messages"] != 0).count();
        assert!(served >= 24, "{name}: {served}");
        for record in records.iter().filter(|record| record["prefix"] == "broken") {
            assert!(!record["edits"]["event"].is_null(), "{name}: {record}");
        }
        if records.iter().any(|record| !record["edits"]["event"].is_null()) {
            acting.push(*name);
        }
    }
    let idle: Vec<&str> = ALL.iter().copied().filter(|name| !acting.contains(name)).collect();
    assert_eq!(idle, ["passthrough"], "presets that had nothing to do");
}

/// The longest step of an agent, in tokens, for which a summary has to be ready in time.
const STEP: usize = 8_000;
const WRITER: &str = "You write the working memory of an AI agent";
const WRITTEN: &str = "<summary>\n## Done\n- all that was asked\n## Next\n- go on\n</summary>";

/// An agent whose user writes at every step, with its prompts measured as the preset does.
struct Talker {
    messages: Vec<Value>,
    /// Bytes per token, in tenths.
    tenths: usize,
}

impl Talker {
    /// A conversation of this many tokens, in steps of this size.
    fn new(count: Estimate, tokens: usize, step: usize) -> Self {
        let tenths = match count {
            Estimate::Usage => 20,
            Estimate::Chars2In5 => 25,
            _ => 40,
        };
        let mut talker = Self { messages: vec![json!({"role": "user", "content": "Find the bug"})], tenths };
        (1..tokens / step).for_each(|_| talker.say(step * tenths / 10));
        talker
    }

    fn say(&mut self, bytes: usize) {
        let at = self.messages.len();
        self.messages.push(json!({"role": "assistant", "content": "step by step ".repeat(bytes / 13)}));
        self.messages.push(json!({"role": "user", "content": format!("Go on {at}")}));
    }

    fn body(&self) -> String {
        json!({"model": "unknown-1", "max_tokens": 8000, "messages": self.messages}).to_string()
    }

    /// Grows the prompt to this many tokens.
    fn grow(&mut self, tokens: usize) -> String {
        self.say((tokens * self.tenths / 10).saturating_sub(self.body().len() + 100));
        self.body()
    }
}

/// An answer of the model.
fn said(text: &str, tokens: usize) -> String {
    json!({"id": "m", "type": "message", "role": "assistant", "model": "unknown-1",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 7}})
    .to_string()
}

/// Waits until a summary is in the ledger.
fn written(home: &Path) -> bool {
    let began = Instant::now();
    // The calls before the last one are booked earlier, and hold no messages.
    let is_made = |line: &str| line.contains("\"own\":{") && !line.contains("\"summary\",\"messages\":0,");
    let is_there = |log: DirEntry| fs::read_to_string(log.path()).unwrap().lines().any(is_made);
    let logs = || fs::read_dir(home.join("plimsoll/conversations")).ok();
    while !logs().is_some_and(|mut logs| logs.any(|log| is_there(log.unwrap()))) {
        if began.elapsed() > Duration::from_secs(20) {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// Plays a conversation with such steps past the point where a summary is begun, by a little less than one step if the
/// window is small enough for that to matter. Returns what replaces messages first: a summary or a note.
fn played(name: &str, window: u64, step: usize) -> &'static str {
    let tuning = preset(name);
    let settings = tuning.policy.window;
    let window = settings.size.map_or(window, |size| size.min(window));
    let gauge = gauge(0, window, Some(8_000), &settings);
    let share = |share| gauge.share(share, &settings) as usize;
    let (ready, used) = (share(tuning.summarize.settings.trigger), share(settings.trigger));
    // In a conversation first seen at this length, expensive edits wait until room is needed.
    let begun = if tuning.summarize.settings.most_loss < 1.0 { used } else { ready };
    // The first prompt is only estimated; the size of the second is known.
    let before = window as usize / 20 / step + 2;
    let begin = (ready - 100).saturating_sub(before * step).max(used.saturating_sub(6 * step));
    let mut talker = Talker::new(settings.count, begin, step);
    let tenths = talker.tenths;
    let first = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&first);
    let upstream = Upstream::start(move |received| {
        let asked = received.text();
        let is_own = asked.contains(WRITER);
        let found = if asked.contains("all that was asked") { Some("summary") } else { None };
        let found = found.or_else(|| asked.contains("[plimsoll: ").then_some("note"));
        let mut seen = seen.lock().unwrap();
        *seen = seen.or(found.filter(|_| !is_own));
        let text = if is_own { WRITTEN } else { "ok" };
        (200, said(text, received.body.len() * 10 / tenths))
    });
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "preset = '{name}'\n[listen]\nadmin = 'off'\n[limits]\nrewrite_timeout = '60s'\n[window]\nsize = {window}\n\
         guess = false\n"
    );
    let gateway = Gateway::start(home.path(), &config, &upstream.url());
    let mut is_written = false;
    for at in 0..before + 12 {
        let tokens = begin + at * step;
        assert_eq!(gateway.post("/v1/messages", &[("x-session-id", "s")], &talker.grow(tokens)).0, 200);
        if let Some(first) = *first.lock().unwrap() {
            return first;
        }
        if at > 0 && tokens >= begun && !std::mem::replace(&mut is_written, true) && !written(home.path()) {
            return "no summary is begun";
        }
    }
    "nothing"
}

/// If the model writes summaries, every preset that has them uses one before it drops messages without one.
#[test]
fn summaries_are_ready_when_room_is_made() {
    for name in ALL.iter().filter(|name| preset(name).summarize.settings.enabled) {
        // Six turns of that length are more than the target of `pulse-coder`.
        let step = if *name == "pulse" { STEP / 2 } else { STEP };
        for window in [100_000, 128_000, 200_000, 1_000_000] {
            assert_eq!(played(name, window, step), "summary", "{name} {window}");
        }
    }
}

/// A summary is begun with the message that exceeds the limit, even if messages are short.
#[test]
fn summaries_are_begun_among_short_messages() {
    for (spoken, most, summed) in [(1, 21, 15), (2, 22, 15)] {
        let upstream = Upstream::start(|received| {
            let text = if received.text().contains(WRITER) { WRITTEN } else { "ok" };
            (200, said(text, received.body.len() / 4))
        });
        let home = tempfile::tempdir().unwrap();
        let config = "preset = 'picoclaw'\n[listen]\nadmin = 'off'\n[window]\nsize = 200000\n";
        let gateway = Gateway::start(home.path(), config, &upstream.url());
        let mut talker = Talker::new(Estimate::Usage, 0, STEP);
        talker.messages.resize(spoken, json!({"role": "user", "content": "Find the bug"}));
        loop {
            assert_eq!(gateway.post("/v1/messages", &[("x-session-id", "s")], &talker.body()).0, 200);
            if talker.messages.len() == most {
                break;
            }
            for role in ["assistant", "user"] {
                let content = format!("{} {}", talker.messages.len(), "word ".repeat(60));
                talker.messages.push(json!({"role": role, "content": content}));
            }
        }
        assert!(written(home.path()), "{most}");
        gateway.stop();
        let log = fs::read_dir(home.path().join("plimsoll/conversations")).unwrap().next().unwrap().unwrap();
        let log = fs::read_to_string(log.path()).unwrap();
        let own: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let own: Vec<&Value> = own.iter().map(|record| &record["own"]).filter(|own| !own.is_null()).collect();
        assert_eq!((own.len(), &own[0]["messages"]), (1, &json!(summed)), "{own:?}");
    }
}
