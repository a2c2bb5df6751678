//! When old parts change, which, and what that may cost.

use bytes::Bytes;

use super::super::*;
use crate::conversation::NoMemo;
use crate::plan::LeafEdit;
use crate::protocol;
use crate::shape::Rule;
use crate::shape::settings::NamePatterns;
use crate::strategy::gate::{Rates, Reason};
use crate::usage::Binding;

/// A talk in the dialect that needs no marks: `u` the user, `a` the model, `~` the model after a thought, `300` a call
/// and a result of that many bytes, `x300` the user with as many, `1=300` the first call made again, `2000>300` a call
/// that says 2,000 bytes.
pub(in crate::planner) fn talk(words: &[String]) -> Conversation {
    let mut call = 0;
    let message = |word: &String| match word.as_str() {
        "u" => r#"{"role":"user","content":"go on"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"done"}"#.to_owned(),
        "~" => r#"{"role":"assistant","content":"done","reasoning_content":"hm"}"#.to_owned(),
        "?" => r#"{"role":"user","content":[{"type":"unheard_of"}]}"#.to_owned(),
        word if word.starts_with('x') => {
            let text = "x".repeat(word[1..].parse().unwrap());
            format!(r#"{{"role":"user","content":"{text}"}}"#)
        }
        size => {
            call += 1;
            let (said, size) = size.split_once('>').unwrap_or(("0", size));
            let more = match said.parse().unwrap() {
                0 => String::new(),
                bytes => format!(r#",\"text\":\"{}\""#, format!("{call}.").repeat(bytes / 2)),
            };
            let (arguments, size) =
                size.split_once('=').map_or((call, size), |(n, size)| (n.parse().unwrap(), size));
            let text = format!("{call} ").repeat(size.parse::<usize>().unwrap() / 2);
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"t{call}","type":"function","function":{{"name":"run","arguments":"{{\"n\":{arguments}{more}}}"}}}}]}},{{"role":"tool","tool_call_id":"t{call}","content":"{text}"}}"#
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
    pub(in crate::planner) bound: usize,
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
        let (sent, bound) = (self.sent, self.bound);
        let past = Past { sent, applied: &self.applied, standing, splice, ready, bound, ..Past::nothing() };
        if facts.bound == Some(Binding::Refused) {
            self.bound = talk.messages.len();
        }
        let outcome = plan(talk, past, policy, facts, &|_| "full output: /o".to_owned());
        self.sent = talk.messages.len();
        self.applied.clone_from(&outcome.applied);
        self.standing = outcome.standing.clone();
        self.splice.clone_from(&outcome.splice);
        outcome
    }
}

/// The reason of the event that the last words bring, and the messages that it clears.
pub(super) fn event(before: &str, then: &str, policy: &Policy, facts: &Facts) -> (Option<Reason>, Vec<u32>) {
    let mut thread = Thread::default();
    thread.send(&talk(&words(before)), policy, facts, true);
    let outcome = thread.send(&talk(&words(&format!("{before} {then}"))), policy, facts, true);
    let cleared = outcome.applied.iter().filter(|applied| applied.decision.is_clearing());
    (outcome.event.map(|event| event.reason), cleared.map(|applied| applied.part.message).collect())
}

/// Edits that the provider is asked to make are not made here too, unless its own figure says that the window is full.
#[test]
fn events_defer_to_the_providers_own_edits_unless_the_window_is_full() {
    const BEFORE: &str = "u 4000 4000 100 4000";
    let usual = Facts::default();
    let refused = Facts { overflow: Some(Overflow::default()), ..usual };
    let full = |tokens| Facts { window: Some(10_000), measured: Some((9, tokens)), ..usual };
    for (reason, facts, is_forced) in [
        (Reason::Eager, usual, false),
        (Reason::Cold, Facts { cold: true, ..usual }, false),
        (Reason::Budget, Facts { over_budget: true, ..usual }, false),
        // An estimate does not know what the provider removes.
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

/// If a client asks the provider for edits later, earlier decisions stay and no new ones are made.
#[test]
fn earlier_clearings_stay_when_the_provider_is_asked_to_edit() {
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
fn each_event_reason_is_due_under_its_condition() {
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
        // Without reasoning nothing is bound.
        (Reason::Eager, Facts { bound: Some(Binding::Refused), ..usual }, all),
        (Reason::Cold, Facts { cold: true, bound: Some(Binding::Refused), ..usual }, all),
        (Reason::Uncached, usual, &[]),
        (Reason::Uncached, uncached, all),
        (Reason::Budget, usual, &[]),
        (Reason::Budget, Facts { over_budget: true, ..usual }, all),
        (Reason::Window, usual, &[]),
        // Some 3,400 tokens. Results are cleared in order until the target is met, and no further.
        (Reason::Window, narrow(20_000), &[]),
        (Reason::Window, narrow(6_800), &[2, 4]),
        (Reason::Window, narrow(2_000), all),
        (Reason::Window, Facts { bound: Some(Binding::Dropped), ..narrow(2_000) }, all),
        // The provider's own figure counts for more than the estimate.
        (Reason::Window, Facts { measured: Some((9, 100)), ..narrow(6_800) }, &[]),
    ] {
        let then = if facts.bound == Some(Binding::Dropped) { "~ u" } else { "a u" };
        let found = event(BEFORE, then, &policy(reason), &facts);
        let due = (!expected.is_empty()).then_some(reason);
        assert_eq!(found, (due, expected.to_vec()), "{reason:?} {facts:?}");
        // Within a turn, only the window acts when events are for the start of turns.
        let within = event(BEFORE, "100", &at_turns(reason), &facts).0;
        assert_eq!(within, due.filter(|reason| *reason == Reason::Window), "{reason:?} {facts:?}");
    }
    assert_eq!(event(BEFORE, "a u", &at_turns(Reason::Eager), &usual).0, Some(Reason::Eager));
}

#[test]
fn minimum_tokens_limits_what_an_event_clears_except_for_the_window() {
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

/// A call that is made again after its result was cleared is counted once; the pace is updated once per request.
#[test]
fn repeated_calls_of_cleared_results_are_counted_once() {
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
fn only_sent_and_answered_results_are_cleared() {
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
fn a_nearly_spent_budget_triggers_only_events_that_pay() {
    let facts = Facts { over_budget: true, ..Facts::default() };
    for (before, expected) in [("u 4000 400", &[2, 4][..]), ("u 400 u x30000 a", &[])] {
        let policy = policy(Reason::Budget);
        assert_eq!(event(before, "a u", &policy, &facts).1, expected, "{before}");
    }
}

/// A result is cleared only if the placeholder is shorter than what is currently sent of it.
#[test]
fn results_are_cleared_only_for_a_shorter_placeholder() {
    let mut policy = policy(Reason::Eager);
    policy.clear.smallest = 0;
    for (size, expected) in [("40", &[][..]), ("62", &[]), ("90", &[]), ("400", &[2])] {
        assert_eq!(event(&format!("u {size}"), "a u", &policy, &Facts::default()).1, expected, "{size}");
    }
    let decided = |sent: u64| {
        let request = talk(&words("u 4000 a u"));
        let part = PartId { message: 2, part: 0 };
        let content = request.part(part).unwrap().content().unwrap();
        let leaves = vec![(0, LeafEdit::Replace("x".repeat(sent as usize).into()))];
        let decision = Decision {
            cause: Cause::Shaped(Rule::Truncate.into()),
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

/// A repetition of a cleared result is sent in full; a pointer protects its target from being cleared.
#[test]
fn pointer_targets_are_not_cleared_and_cleared_results_not_targets() {
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
        all.map(|applied| (applied.part.message, applied.decision.cause.to_string())).collect()
    };
    let clear = |message| (message, "clear".to_owned());
    let mut thread = Thread::default();
    thread.send(&talk(&words("u 4000 4000")), &policy, &Facts::default(), true);
    assert_eq!(
        rules(&thread.send(&talk(&words("u 4000 4000 300")), &policy, &Facts::default(), true)).len(),
        2
    );
    // The text of a cleared result once more.
    let again = thread.send(&same("u 4000 4000 300 4000", 4), &policy, &Facts::default(), true);
    assert_eq!(rules(&again), [clear(2), clear(4), clear(6)]);

    let mut thread = Thread::default();
    thread.send(&talk(&words("u 4000")), &policy, &Facts::default(), true);
    let pointed = thread.send(&same("u 4000 4000", 2), &policy, &Facts::default(), true);
    assert_eq!((rules(&pointed), pointed.event), (vec![(4, "repeat".to_owned())], None));
}

/// A request that is made again causes no event and no rent.
#[test]
fn retries_cause_no_event_and_no_cost() {
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

/// Calls with one id, as some servers make them: each result belongs to the call at the same position.
#[test]
fn results_of_protected_tools_stay_though_calls_share_an_id() {
    let calls = |tools: &[&str]| {
        let call = |tool: &&str| {
            format!(r#"{{"id":"","type":"function","function":{{"name":"{tool}","arguments":"{{}}"}}}}"#)
        };
        let calls: Vec<String> = tools.iter().map(call).collect();
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
    };
    let result = |of: &str| {
        let text = format!("{of} ").repeat(500);
        format!(r#"{{"role":"tool","tool_call_id":"","content":"{text}"}}"#)
    };
    let user = r#"{"role":"user","content":"go on"}"#.to_owned();
    let mut policy = policy(Reason::Eager);
    policy.clear.protected_tools = NamePatterns::new(["grep"]).unwrap();
    for (tools, expected) in [(["grep", "run"], &[3][..]), (["run", "grep"], &[2]), (["grep", "grep"], &[])] {
        for memory in [true, false] {
            let (mut messages, mut thread) = (vec![user.clone(), calls(&tools)], Thread::default());
            messages.extend(tools.map(result));
            let mut cleared = Vec::new();
            for _ in 0..2 {
                let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
                let talk =
                    protocol::named("openai-chat").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
                let outcome = thread.send(&talk, &policy, &Facts::default(), memory);
                cleared = outcome.applied.iter().map(|applied| applied.part.message).collect();
                messages.extend([r#"{"role":"assistant","content":"done"}"#.to_owned(), user.clone()]);
            }
            assert_eq!(cleared, expected, "{tools:?} {memory}");
        }
    }
}
