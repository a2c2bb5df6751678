//! When old parts change, which, and what that may cost.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use crate::conversation::NoMemo;
use crate::plan::LeafEdit;
use crate::protocol;
use crate::strategy::gate::{Rates, Reason};
use crate::strategy::ladder::Rung;
use crate::usage::Binding;

/// A talk in the dialect that needs no marks: `u` the user, `a` the model, `300` a call and a result of so many
/// bytes, `x300` the user with as many,
/// `1=300` the first call made again.
pub(in crate::planner) fn talk(words: &[String]) -> Conversation {
    let mut call = 0;
    let message = |word: &String| match word.as_str() {
        "u" => r#"{"role":"user","content":"go on"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"done"}"#.to_owned(),
        word if word.starts_with('x') => {
            let text = "x".repeat(word[1..].parse().unwrap());
            format!(r#"{{"role":"user","content":"{text}"}}"#)
        }
        size => {
            call += 1;
            let (arguments, size) =
                size.split_once('=').map_or((call, size), |(n, size)| (n.parse().unwrap(), size));
            let text = format!("{call} ").repeat(size.parse::<usize>().unwrap() / 2);
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"t{call}","type":"function","function":{{"name":"run","arguments":"{{\"n\":{arguments}}}"}}}}]}},{{"role":"tool","tool_call_id":"t{call}","content":"{text}"}}"#
            )
        }
    };
    let messages: Vec<String> = words.iter().map(message).collect();
    let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
    protocol::named("openai-chat").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

pub(in crate::planner) fn words(short: &str) -> Vec<String> {
    short.split_whitespace().map(str::to_owned).collect()
}

/// Shapes nothing; clears whatever is old, the oldest first.
pub(in crate::planner) fn policy(reason: Reason) -> Policy {
    let mut policy = Policy::default();
    policy.shape.repeat = false;
    policy.shape.truncate.base.max_bytes = 1 << 20;
    policy.shape.truncate.base.max_lines = 1 << 20;
    policy.clear = clear::Settings {
        policy: clear::Policy::Oldest,
        protect: clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 },
        smallest: 60,
        settle: 0,
        gate: vec![reason],
        ..clear::Settings::default()
    };
    policy.ladder.enabled = false;
    policy
}

/// A thread, request by request.
#[derive(Default)]
pub(in crate::planner) struct Thread {
    pub(in crate::planner) sent: usize,
    pub(in crate::planner) applied: Vec<Applied>,
    pub(in crate::planner) standing: Option<Box<Standing>>,
    pub(in crate::planner) splice: Option<Arc<Splice>>,
    pub(in crate::planner) ready: Option<Splice>,
}

impl Thread {
    /// Sends a request. Without its `memory`, the plan is made from the history alone.
    pub(in crate::planner) fn send(
        &mut self,
        talk: &Conversation,
        policy: &Policy,
        facts: &Facts,
        memory: bool,
    ) -> Outcome {
        let standing = self.standing.take().filter(|_| memory);
        let (splice, ready) = (self.splice.clone(), self.ready.take());
        let past =
            Past { sent: self.sent, applied: &self.applied, standing, splice, ready, ..Past::nothing() };
        let outcome = plan(talk, past, policy, facts, &|_| "full output: /o".to_owned());
        self.sent = talk.messages.len();
        self.applied.clone_from(&outcome.applied);
        self.standing = outcome.standing.clone();
        self.splice.clone_from(&outcome.splice);
        outcome
    }
}

/// The reason of the event that the last words bring, and the messages that it clears.
fn event(before: &str, then: &str, policy: &Policy, facts: &Facts) -> (Option<Reason>, Vec<u32>) {
    let mut thread = Thread::default();
    thread.send(&talk(&words(before)), policy, facts, true);
    let outcome = thread.send(&talk(&words(&format!("{before} {then}"))), policy, facts, true);
    let cleared = outcome.applied.iter().filter(|applied| applied.decision.is_clearing());
    (outcome.event.map(|event| event.reason), cleared.map(|applied| applied.part.message).collect())
}

/// What the provider is asked to do is not done here too, unless its own figure says that the window is full.
#[test]
fn the_providers_own_edits_come_first() {
    const BEFORE: &str = "u 4000 4000 100 4000";
    let usual = Facts::default();
    let refused = Facts { overflow: Some(Overflow::default()), ..usual };
    let full = |tokens| Facts { window: Some(10_000), measured: Some((9, tokens)), ..usual };
    for (reason, facts, is_forced) in [
        (Reason::Eager, usual, false),
        (Reason::Cold, Facts { cold: true, ..usual }, false),
        (Reason::Budget, Facts { over_budget: true, ..usual }, false),
        // An estimate knows nothing of what the provider takes out.
        (Reason::Window, Facts { window: Some(2_000), ..usual }, false),
        // Beyond the trigger, and not beyond what fits.
        (Reason::Window, full(5_500), false),
        (Reason::Window, full(5_900), true),
        (Reason::Window, refused, true),
    ] {
        for (defers, is_due) in [(false, true), (true, is_forced)] {
            let asked = |words: &str| Conversation { asks_for_edits: defers, ..talk(&self::words(words)) };
            let mut thread = Thread::default();
            thread.send(&asked(BEFORE), &policy(reason), &usual, true);
            let outcome = thread.send(&asked(&format!("{BEFORE} a u")), &policy(reason), &facts, true);
            assert_eq!(outcome.event.is_some(), is_due, "{reason:?} {defers} {facts:?}");
            assert_eq!(outcome.level.unwrap().defers, defers);
        }
    }
}

/// A client that asks the provider later on gets what was decided before, and nothing more.
#[test]
fn what_was_cleared_before_the_provider_was_asked_stays_so() {
    let (policy, facts, mut thread) = (policy(Reason::Eager), Facts::default(), Thread::default());
    let mut sent = Vec::new();
    for (words, defers) in
        [("u 4000", false), ("u 4000 300", false), ("u 4000 300 300", true), ("u 4000 300 300 300", false)]
    {
        let talk = Conversation { asks_for_edits: defers, ..talk(&self::words(words)) };
        let outcome = thread.send(&talk, &policy, &facts, true);
        sent.push((outcome.event.is_some(), outcome.applied.len()));
    }
    assert_eq!(sent, [(false, 0), (true, 1), (false, 1), (true, 3)]);
}

#[test]
fn reasons() {
    const BEFORE: &str = "u 4000 4000 100 4000";
    let usual = Facts::default();
    let uncached = Facts { rates: Some(Rates { read: 1.0, write: 1.0 }), ..usual };
    let narrow = |window| Facts { window: Some(window), ..usual };
    let at_turns = |reason| {
        let mut policy = policy(reason);
        policy.clear.at_turns = true;
        policy
    };
    let all: &[u32] = &[2, 4, 8];
    for (reason, facts, expected) in [
        (Reason::Eager, usual, all),
        (Reason::Eager, Facts { bound: Some(Binding::Dropped), ..usual }, &[]),
        (Reason::Cold, usual, &[]),
        (Reason::Cold, Facts { cold: true, ..usual }, all),
        (Reason::Cold, Facts { cold: true, bound: Some(Binding::Refused), ..usual }, all),
        (Reason::Uncached, usual, &[]),
        (Reason::Uncached, uncached, all),
        (Reason::Budget, usual, &[]),
        (Reason::Budget, Facts { over_budget: true, ..usual }, all),
        (Reason::Window, usual, &[]),
        // Some 3,400 tokens. What goes first goes until the target is met, and no more.
        (Reason::Window, narrow(20_000), &[]),
        (Reason::Window, narrow(6_800), &[2, 4]),
        (Reason::Window, narrow(2_000), all),
        (Reason::Window, Facts { bound: Some(Binding::Dropped), ..narrow(2_000) }, all),
        // The provider's own figure counts for more than the estimate.
        (Reason::Window, Facts { measured: Some((9, 100)), ..narrow(6_800) }, &[]),
    ] {
        let found = event(BEFORE, "a u", &policy(reason), &facts);
        let due = (!expected.is_empty()).then_some(reason);
        assert_eq!(found, (due, expected.to_vec()), "{reason:?} {facts:?}");
        // Within a turn, only the window acts when events are for the start of turns.
        let within = event(BEFORE, "100", &at_turns(reason), &facts).0;
        assert_eq!(within, due.filter(|reason| *reason == Reason::Window), "{reason:?} {facts:?}");
    }
    assert_eq!(event(BEFORE, "a u", &at_turns(Reason::Eager), &usual).0, Some(Reason::Eager));
}

/// What is done when the window is full: the rung, results cleared, messages dropped, results cut; and whether the
/// target is met.
#[test]
fn rungs() {
    const TURNS: &str = "u 4000 a u 4000 a u 4000 a u 4000";
    const STEPS: &str = "u 4000 4000 4000 4000";
    for (reason, before, then, window, expected) in [
        (Reason::Window, TURNS, "a u", 100_000, None),
        (Reason::Window, TURNS, "a u", 8_000, Some((Rung::Clear, 3, 0, 0))),
        // Without clearing: turns, as few as meet the target.
        (Reason::Cold, TURNS, "a u", 8_000, Some((Rung::Turns, 0, 11, 0))),
        (Reason::Cold, TURNS, "a u", 3_000, Some((Rung::Turns, 0, 15, 0))),
        // Within one turn: steps.
        (Reason::Cold, STEPS, "4000", 8_000, Some((Rung::Half, 0, 6, 0))),
        (Reason::Cold, STEPS, "4000", 100_000, None),
        // What is new is cut, if all that is old is not enough.
        (Reason::Cold, "u 100", "40000", 8_000, Some((Rung::Cut, 0, 2, 1))),
        (Reason::Cold, "u", "40000", 8_000, Some((Rung::Cut, 0, 0, 1))),
        (Reason::Window, "u 4000 4000", "40000", 8_000, Some((Rung::Cut, 0, 4, 1))),
        // There is nothing to free.
        (Reason::Cold, "u", "a u", 10, None),
    ] {
        let mut policy = policy(reason);
        policy.ladder = ladder::Settings { keep_turns: 1, ..ladder::Settings::default() };
        let facts = Facts { window: Some(window), ..Facts::default() };
        let mut thread = Thread::default();
        thread.send(&talk(&words(before)), &policy, &Facts::default(), true);
        let request = talk(&words(&format!("{before} {then}")));
        let outcome = thread.send(&request, &policy, &facts, true);
        let event = outcome.event.as_ref();
        let found = event.map(|event| (event.rung, event.cleared, event.dropped, event.cut));
        assert_eq!(found, expected, "{before} {then} {window}");
        let protocol = protocol::named("openai-chat").unwrap();
        let after = protocol::rewritten(protocol, &request, &outcome.plan, &NoMemo).unwrap();
        protocol.valid(&after).unwrap();
        let usable = window - 4096.min(window / 2);
        let tokens = after.body.len() as u64 / 4;
        assert!(expected.is_none() || tokens <= usable * 65 / 100, "{tokens} of {usable}: {before} {then}");
        let freed = request.body.len() as u64 - after.body.len() as u64;
        assert!(
            event.is_none_or(|event| freed.abs_diff(event.freed_bytes) <= freed / 10),
            "{event:?} {freed}"
        );
        for id in
            after.body.windows(8).enumerate().filter(|(_, piece)| piece == b"output: ").map(|(at, _)| at)
        {
            assert!(after.body[id..].starts_with(b"output: /o"));
        }
        for save in &outcome.saves {
            assert_eq!(save.id, decision::output_id(&[save.text.as_str().into()]));
        }
        // Where it is switched off nothing of the kind is done.
        policy.ladder.enabled = false;
        let mut thread = Thread::default();
        thread.send(&talk(&words(before)), &policy, &Facts::default(), true);
        let off = thread.send(&request, &policy, &facts, true).event.map(|event| event.rung);
        assert!(off.is_none_or(|rung| rung == Rung::Clear), "{off:?}");
    }
}

#[test]
fn what_was_cut_frees_no_more_than_is_left() {
    let policy = Policy { ladder: ladder::Settings::default(), ..policy(Reason::Window) };
    let facts = Facts { window: Some(8_000), ..Facts::default() };
    let [remembered, read_back] = [true, false].map(|memory| {
        let mut thread = Thread::default();
        let mut send = |short: &str| thread.send(&talk(&words(short)), &policy, &facts, memory).event;
        ["u", "u 40000", "u 40000 9000 9000"].map(|talk| send(talk).map(|event| event.freed_bytes))
    });
    assert_eq!(remembered, read_back);
}

/// A long run in a small window: room is made again and again, never too often, and what was sent stays so
/// between events.
#[test]
fn a_long_run_fits_its_window() {
    let mut policy = policy(Reason::Window);
    policy.ladder = ladder::Settings { enabled: true, ..ladder::Settings::default() };
    policy.clear.protect.turns = 1;
    let facts = Facts { window: Some(20_000), ..Facts::default() };
    let protocol = protocol::named("openai-chat").unwrap();
    let (mut thread, mut so_far, mut events, mut before) = (Thread::default(), words("u"), 0, Vec::new());
    for at in 0..150 {
        so_far.push("4000".to_owned());
        if at % 40 == 39 {
            so_far.extend(words("a u"));
        }
        let request = talk(&so_far);
        let outcome = thread.send(&request, &policy, &facts, at % 7 > 0);
        let after = protocol::rewritten(protocol, &request, &outcome.plan, &NoMemo).unwrap();
        protocol.valid(&after).unwrap();
        assert!(after.body.len() < 15_904 * 4, "{} at {at}", after.body.len());
        let sent: Vec<Vec<u8>> =
            after.messages.iter().map(|message| message.span.of(&after.body).to_vec()).collect();
        assert!(outcome.event.is_some() || sent.starts_with(&before), "{at}");
        events += u32::from(outcome.event.is_some());
        before = sent;
    }
    assert!((10..60).contains(&events), "{events}");
}

/// While a client sums its history up nothing is taken from it, unless the provider takes no more.
#[test]
fn clients_compact_without_us() {
    let mut policy = policy(Reason::Eager);
    policy.clear.gate = vec![Reason::Eager, Reason::Window];
    policy.ladder.enabled = true;
    for (compacting, overflow, expected) in
        [(false, None, true), (true, None, false), (true, Some(Overflow::default()), true)]
    {
        for window in [8_000, 100_000] {
            let facts = Facts { window: Some(window), compacting, overflow, ..Facts::default() };
            let found = event("u 4000 4000 4000 4000", "a u", &policy, &facts).0.is_some();
            assert_eq!(found, expected, "{compacting} {overflow:?} {window}");
        }
    }
}

/// A provider's refusal makes room even for a request that was made before, by what it says of its size.
#[test]
fn overflows_are_made_room_for() {
    let policy = {
        let mut policy = policy(Reason::Cold);
        policy.ladder.enabled = true;
        policy
    };
    let request = talk(&words("u 4000 4000 4000 4000 4000"));
    for (overflow, window, expected) in [
        (None, Some(6_000), None),
        // It holds twice the tokens that are estimated: 10,000 for 20,500 bytes.
        (Some(Overflow { prompt: Some(10_000) }), Some(9_000), Some(8)),
        (Some(Overflow { prompt: None }), Some(9_000), Some(8)),
        (Some(Overflow { prompt: None }), None, Some(8)),
        (Some(Overflow { prompt: Some(10_000) }), Some(15_000), Some(4)),
    ] {
        let facts = Facts { window, overflow, ..Facts::default() };
        let mut thread = Thread { sent: request.messages.len(), ..Thread::default() };
        let outcome = thread.send(&request, &policy, &facts, false);
        assert_eq!(outcome.event.map(|event| event.dropped), expected, "{overflow:?} {window:?}");
    }
}

#[test]
fn minimum_is_of_what_is_cleared() {
    for (minimum_tokens, expected) in [(0, true), (1_999, true), (2_000, false)] {
        let mut policy = policy(Reason::Eager);
        policy.clear.minimum_tokens = minimum_tokens;
        let found = event("u 4000 4000", "a u", &policy, &Facts::default());
        assert_eq!(found.0.is_some(), expected, "{minimum_tokens}");
        // The window cannot wait for more.
        policy.clear.gate = vec![Reason::Window];
        let narrow = Facts { window: Some(2_000), ..Facts::default() };
        assert_eq!(event("u 4000 4000", "a u", &policy, &narrow).0, Some(Reason::Window));
    }
}

/// The provider's own figure holds for what it has seen; the rest is estimated, and an estimate needs a margin.
#[test]
fn how_full_the_window_is() {
    let request = talk(&words("u 4000 4000"));
    let tail: u64 = request.messages[3..].iter().map(|message| message.span.len() as u64).sum();
    for (measured, tokens, margin) in [
        (Some((3, 90_000)), 90_000 + tail / 4, 0),
        (Some((9, 90_000)), request.body.len() as u64 / 4, 6_400),
        (None, request.body.len() as u64 / 4, 6_400),
    ] {
        let facts = Facts { measured, window: Some(128_000), ..Facts::default() };
        let outcome = Thread::default().send(&request, &policy(Reason::Window), &facts, true);
        let level = outcome.level.unwrap();
        assert_eq!((level.prompt_tokens, level.gauge.unwrap().margin), (tokens, margin), "{measured:?}");
    }
}

/// A picture counts as a picture, wherever it stands and however it is encoded, and makes no room necessary.
#[test]
fn pictures_are_no_text() {
    let data = "iVBORw0KGgo".repeat(100_000);
    let source = format!(r#"{{"type":"base64","media_type":"image/png","data":"{data}"}}"#);
    let image = format!(r#"{{"type":"image","source":{source}}}"#);
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{}}]}"#;
    let result = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{image}]}}"#);
    let [shown, answered] = [image, result].map(|block| format!(r#"{{"role":"user","content":[{block}]}}"#));
    let turn = r#"{"role":"user","content":"go"},{"role":"assistant","content":"done"}"#;
    for (messages, sent) in [
        (format!("{turn},{shown}"), 2),
        (format!(r#"{{"role":"user","content":"go"}},{call},{answered}"#), 1),
        (
            format!(
                r#"{shown},{{"role":"assistant","content":"done"}},{turn},{{"role":"user","content":"go"}}"#
            ),
            4,
        ),
    ] {
        let body = Bytes::from(format!(r#"{{"model":"m","messages":[{messages}]}}"#));
        let request = protocol::named("anthropic").unwrap().index(&body, &NoMemo).unwrap();
        for measured in [None, Some((sent, 5_000))] {
            let facts = Facts { measured, window: Some(128_000), ..Facts::default() };
            let past = Past { sent, ..Past::nothing() };
            let outcome = plan(&request, past, &Policy::default(), &facts, &|_| String::new());
            let tokens = outcome.level.unwrap().prompt_tokens;
            assert!((1_600..7_000).contains(&tokens), "{tokens} {measured:?}");
            assert_eq!(outcome.event, None);
        }
    }
}

/// A call that is made again after its result was cleared is counted, once; the pace is read once a request.
#[test]
fn calls_made_again() {
    let policy = policy(Reason::Eager);
    for memory in [true, false] {
        let mut thread = Thread::default();
        let mut seen = Vec::new();
        for words in
            ["u 4000 4000", "u 4000 4000 1=300", "u 4000 4000 1=300 a u", "u 4000 4000 1=300 a u 1=300 2=90"]
        {
            for _ in 0..2 {
                let outcome = thread.send(&talk(&self::words(words)), &policy, &Facts::default(), memory);
                seen.push((outcome.recalls, outcome.level.unwrap().reading.is_some()));
            }
        }
        let (recalls, read): (Vec<u32>, Vec<bool>) = seen.into_iter().unzip();
        // The first event comes with the second request, whose own call was made before.
        assert_eq!(recalls, [0, 0, 0, 0, 0, 0, 2, 0], "{memory}");
        assert_eq!(read, [true, !memory, true, !memory, true, !memory, true, !memory]);
    }
}

/// The step in progress stays, and so does all that was not sent before, whatever is at stake.
#[test]
fn only_what_was_sent_and_answered() {
    let narrow = Facts { window: Some(1_000), ..Facts::default() };
    for (before, then, expected) in [
        ("u 4000", "u", &[][..]),
        ("u", "4000 4000", &[]),
        ("u 4000", "4000 4000", &[2]),
        ("u 4000", "4000 a u", &[2]),
    ] {
        for reason in [Reason::Window, Reason::Eager] {
            assert_eq!(event(before, then, &policy(reason), &narrow).1, expected, "{before} | {then}");
        }
    }
}

/// A budget that is nearly spent is no reason to spend more of it.
#[test]
fn a_budget_demands_only_what_saves() {
    let facts = Facts { over_budget: true, ..Facts::default() };
    for (before, expected) in [("u 4000 400", &[2, 4][..]), ("u 400 u x30000 a", &[])] {
        let policy = policy(Reason::Budget);
        assert_eq!(event(before, "a u", &policy, &facts).1, expected, "{before}");
    }
}

/// A result goes only for a placeholder that is shorter than what is sent of it by now.
#[test]
fn placeholders_are_shorter_than_what_is_sent() {
    let mut policy = policy(Reason::Eager);
    policy.clear.smallest = 0;
    for (size, expected) in [("40", &[][..]), ("62", &[]), ("90", &[]), ("400", &[2])] {
        assert_eq!(event(&format!("u {size}"), "a u", &policy, &Facts::default()).1, expected, "{size}");
    }
    let decided = |sent: u64| {
        let request = talk(&words("u 4000 a u"));
        let part = PartId { message: 2, part: 0 };
        let content = request.part(part).unwrap().content.unwrap();
        let leaves = vec![(0, LeafEdit::Replace("x".repeat(sent as usize).into()))];
        let decision = Decision {
            rules: "truncate".into(),
            leaves,
            content,
            key: None,
            bytes_before: 4000,
            bytes_after: sent,
            output: None,
        };
        let mut thread = Thread {
            sent: 3,
            applied: vec![Applied { part, decision: decision.into() }],
            ..Thread::default()
        };
        thread.send(&request, &policy, &Facts::default(), false).event.is_some()
    };
    assert!(decided(300) && !decided(60));
}

/// What says the same as a cleared result is sent in full; a pointer keeps what it points to from being cleared.
#[test]
fn pointers_and_what_they_point_to() {
    let mut policy = policy(Reason::Eager);
    policy.shape.repeat = true;
    policy.shape.repeat_min_bytes = 200;
    let same = |talk: &str, number: usize| {
        let body = String::from_utf8(self::talk(&words(talk)).body.to_vec()).unwrap();
        let text = |call: usize| format!("\"{}\"", format!("{call} ").repeat(2000));
        let body = body.replace(&text(number), &text(1));
        protocol::named("openai-chat").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let rules = |outcome: &Outcome| -> Vec<(u32, String)> {
        let all = outcome.applied.iter();
        all.map(|applied| (applied.part.message, applied.decision.rules.to_string())).collect()
    };
    let clear = |message| (message, "clear".to_owned());
    let mut thread = Thread::default();
    thread.send(&talk(&words("u 4000 4000")), &policy, &Facts::default(), true);
    assert_eq!(
        rules(&thread.send(&talk(&words("u 4000 4000 300")), &policy, &Facts::default(), true)).len(),
        2
    );
    // The same text again, of a result that is cleared by now.
    let again = thread.send(&same("u 4000 4000 300 4000", 4), &policy, &Facts::default(), true);
    assert_eq!(rules(&again), [clear(2), clear(4), clear(6)]);

    let mut thread = Thread::default();
    thread.send(&talk(&words("u 4000")), &policy, &Facts::default(), true);
    let pointed = thread.send(&same("u 4000 4000", 2), &policy, &Facts::default(), true);
    assert_eq!((rules(&pointed), pointed.event), (vec![(4, "repeat".to_owned())], None));
}

/// A request that is made again has no event and costs no rent.
#[test]
fn retries_change_nothing() {
    let policy = policy(Reason::BreakEven);
    let request = talk(&words("u 4000 4000 a u"));
    let mut once = Thread { sent: 5, ..Thread::default() };
    once.send(&request, &policy, &Facts::default(), true);
    let account = once.standing.clone().unwrap().account();
    for _ in 0..5 {
        let again = once.send(&request, &policy, &Facts::default(), true);
        assert!(again.event.is_none() && again.fresh == 0);
        assert_eq!(again.standing.as_ref().unwrap().account(), account);
    }
}

/// Words of a talk that grows: results of any size, and turns.
fn lives() -> impl Strategy<Value = Vec<Vec<String>>> {
    let request = prop_oneof![
        6 => (50_usize..8000).prop_map(|size| vec![size.to_string()]),
        1 => (50_usize..8000, 50_usize..8000).prop_map(|(a, b)| vec![a.to_string(), b.to_string()]),
        2 => Just(words("a u")),
    ];
    prop::collection::vec(request, 5..60)
}

fn busy(alpha: f64, loss: f64, kind: clear::Policy) -> Policy {
    let mut policy = policy(Reason::BreakEven);
    policy.clear.patience = alpha;
    policy.clear.most_loss = loss;
    policy.clear.policy = kind;
    policy
}

const KINDS: &[clear::Policy] = &[clear::Policy::Worth, clear::Policy::Oldest, clear::Policy::Hybrid];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// At every moment, a thread with events for break-even has cost at most the allowed share more than it would
    /// have cost untouched.
    #[test]
    fn losses_are_bounded(life in lives(), alpha in 0.01..2.0_f64, loss in 0.0..0.3_f64, kind in 0..3_usize) {
        let policy = busy(alpha, loss, KINDS[kind]);
        let (mut thread, mut so_far) = (Thread::default(), words("u"));
        for request in life {
            so_far.extend(request);
            thread.send(&talk(&so_far), &policy, &Facts::default(), true);
            let account = thread.standing.as_ref().unwrap().account();
            prop_assert!(account.paid <= (1.0 + loss) * account.direct + 1e-6, "{:?}", account);
        }
    }

    /// Until the first event, what is remembered of a thread is for speed only.
    #[test]
    fn what_is_remembered_decides_nothing(life in lives(), alpha in 0.01..2.0_f64, kind in 0..3_usize) {
        let policy = busy(alpha, 0.1, KINDS[kind]);
        let (mut one, mut other, mut so_far) = (Thread::default(), Thread::default(), words("u"));
        for request in life {
            so_far.extend(request);
            let talk = talk(&so_far);
            let kept = one.send(&talk, &policy, &Facts::default(), true);
            let rebuilt = other.send(&talk, &policy, &Facts::default(), false);
            prop_assert_eq!(&kept.event, &rebuilt.event);
            prop_assert_eq!(&kept.plan, &rebuilt.plan);
            if kept.event.is_some() {
                break;
            }
        }
    }
}
