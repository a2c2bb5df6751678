//! Whole conversations, request by request: when old results are cleared, which, and that nothing else changes.
//!
//! The settings are those of agents that prune their own history; see `forty_and_twenty`.

use bytes::Bytes;

use super::super::*;
use super::events::Thread;
use crate::conversation::NoMemo;
use crate::protocol;
use crate::strategy::clear::tests::forty_and_twenty;
use crate::strategy::gate::Reason;
use crate::usage::Binding;

/// A conversation in short: `u` the user, `a` an answer without calls, and steps of the model with the results of its
/// calls in tokens, as in `run=30000+read=500`. `!` is an error, `&` text of the client's after the results, `~` a
/// thought before the calls.
fn body(words: &[&str]) -> Bytes {
    let mut call = 0;
    let mut messages = Vec::new();
    for word in words {
        match *word {
            "u" => messages.push(r#"{"role":"user","content":"go on"}"#.to_owned()),
            "a" => messages.push(r#"{"role":"assistant","content":"done"}"#.to_owned()),
            step => messages.extend(calls(step, &mut call)),
        }
    }
    format!(r#"{{"model":"m","max_tokens":1,"messages":[{}]}}"#, messages.join(",")).into()
}

fn calls(step: &str, call: &mut u32) -> [String; 2] {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    let thoughts = step.strip_prefix('~');
    if thoughts.is_some() {
        asked.push(format!(r#"{{"type":"thinking","thinking":"hm","signature":"before {call}"}}"#));
    }
    for one in thoughts.unwrap_or(step).trim_end_matches('&').split('+') {
        *call += 1;
        let (name, tokens) = one.split_once('=').unwrap();
        let (name, is_error) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
        let start = format!("{call:07} ");
        let text = start.repeat(tokens.parse::<usize>().unwrap() / 2 + 1);
        let text = &text[..tokens.parse::<usize>().unwrap() * 4];
        asked.push(format!(r#"{{"type":"tool_use","id":"t{call}","name":"{name}","input":{{"n":{call}}}}}"#));
        answered.push(format!(
            r#"{{"type":"tool_result","tool_use_id":"t{call}","content":"{text}","is_error":{is_error}}}"#
        ));
    }
    if step.ends_with('&') {
        answered.push(r#"{"type":"text","text":"by the way"}"#.to_owned());
    }
    [("assistant", asked), ("user", answered)]
        .map(|(role, blocks)| format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(",")))
}

/// What happened to a request.
struct Passed {
    /// The word that it ended with, counted from 0.
    word: usize,
    outcome: Outcome,
    talk: Conversation,
}

/// Sends every request that the conversation had.
fn live(short: &str, policy: &Policy, facts: &Facts) -> Vec<Passed> {
    let words: Vec<&str> = short.split_whitespace().collect();
    let mut thread = Thread::default();
    let ends = (0..words.len()).filter(|at| words[*at] != "a");
    ends.map(|word| {
        let talk = protocol::named("anthropic").unwrap().index(&body(&words[..=word]), &NoMemo).unwrap();
        let outcome = thread.send(&talk, policy, facts, true);
        Passed { word, outcome, talk }
    })
    .collect()
}

/// Shapes nothing, and clears as the settings say.
fn policy(clear: clear::Settings) -> Policy {
    let mut policy = Policy { clear, ..Policy::default() };
    policy.shape = crate::shape::Settings { repeat: false, fold: false, ..policy.shape };
    policy.shape.truncate.tools.clear();
    policy.shape.truncate.base.max_bytes = 1 << 30;
    policy.shape.truncate.base.max_lines = 1 << 30;
    policy
}

/// The numbers of the calls whose results an event cleared with a request.
fn cleared(passed: &Passed) -> Vec<u32> {
    let all = passed.outcome.applied.iter();
    let new = all.skip(passed.outcome.applied.len() - passed.outcome.fresh);
    let mut calls: Vec<u32> = new
        .filter(|applied| applied.decision.is_clearing())
        .map(|applied| passed.talk.part(applied.part).unwrap().call_id().unwrap()[1..].parse().unwrap())
        .collect();
    calls.sort_unstable();
    calls
}

/// The words that brought events, and what these cleared. Every other request is the one before it and what is new.
fn events(short: &str, policy: &Policy, facts: &Facts) -> Vec<(usize, Vec<u32>)> {
    let mut events = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    for passed in live(short, policy, facts) {
        let protocol = protocol::named("anthropic").unwrap();
        let mut plan = Plan { ops: passed.outcome.applied.iter().map(operation).collect() };
        plan.ops.sort_by_key(|op| {
            if let Op::Text { part, .. } = op { *part } else { PartId { message: 0, part: 0 } }
        });
        let sent = protocol::apply_verified(protocol, &passed.talk, &plan, &NoMemo).unwrap().body;
        let kept = before.as_ref().is_none_or(|before| sent.starts_with(before));
        match &passed.outcome.event {
            Some(event) => {
                let cleared = cleared(&passed);
                assert_eq!(event.cleared as usize, cleared.len());
                assert!(!kept, "an event changes what was sent");
                events.push((passed.word, cleared));
            }
            None => assert!(kept && passed.outcome.fresh == 0, "{short}: word {} changes", passed.word),
        }
        before = Some(sent[..sent.len() - 2].to_vec());
    }
    events
}

#[test]
fn results_are_pruned_by_turns_and_strict_token_limits() {
    let usual = policy(forty_and_twenty());
    let mut forward = usual.clone();
    forward.clear.within_step = clear::Within::Forward;
    let none: &[(usize, &[u32])] = &[];
    for (talk, policy, expected) in [
        ("u run=30000 a u run=25000+run=20000 a u run=10000 a u", &usual, &[(9, &[1, 2][..])][..]),
        ("u run=30000 a u run=25000+run=20000 a u run=10000 a u", &forward, &[(9, &[1, 3])]),
        // Both limits are strict, in tokens of the text.
        ("u run=20000 a u run=40000 a u a u", &usual, none),
        ("u run=20001 a u run=40000 a u a u", &usual, &[(8, &[1])]),
        // If the minimum is reached within a turn, clearing waits for the user's next one.
        ("u run=30000 a u run=45000 run=30000 run=30000 a u a u", &usual, &[(10, &[1, 2, 3])]),
        // Results do not begin a turn, whatever the client says with them.
        ("u run=9000& run=9000& run=9000& run=9000& run=9000& run=9000& run=9000 run=9000 a u", &usual, none),
        // Errors and the agent's memory stay, and do not count.
        ("u run=30000 !run=50000 skill_use=50000 a u run=5000 a u a u", &usual, none),
        ("u run=30000 !run=50000 skill_use=50000 a u run=45000 a u a u", &usual, &[(10, &[1, 4])]),
        // The turn before the newest is protected too.
        ("u run=60000 a u a u", &usual, &[(5, &[1])]),
    ] {
        let found = events(talk, policy, &Facts::default());
        let found: Vec<(usize, &[u32])> = found.iter().map(|(word, calls)| (*word, &**calls)).collect();
        assert_eq!(found, expected, "{talk}");
    }
}

/// One result of 15,000 tokens a turn: an agent's own pruning comes every other turn, the gate allows it once it pays
/// off. Every other request extends the one before it.
#[test]
fn eager_pruning_comes_every_other_turn_and_gated_only_if_it_pays() {
    let talk = ["u run=15000 a"; 13].join(" ") + " u";
    let turn = |word: usize| word as u32 / 3 + 1;
    let eager = events(&talk, &policy(forty_and_twenty()), &Facts::default());
    let turns: Vec<(u32, Vec<u32>)> = eager.into_iter().map(|(word, calls)| (turn(word), calls)).collect();
    let expected: Vec<(u32, Vec<u32>)> =
        [6, 8, 10, 12, 14].map(|turn| (turn, vec![turn - 5, turn - 4])).into();
    assert_eq!(turns, expected);

    let gated = clear::Settings { gate: vec![Reason::BreakEven], settle: 0, ..forty_and_twenty() };
    // Protected results follow every cut, and writing them again would cost too much in such a short talk; without any,
    // each result goes as the next turn begins, with next to nothing after it.
    for (clear, expected) in [(gated, 0), (clear::Settings::default(), 8)] {
        let found = events(&talk, &policy(clear.clone()), &Facts::default());
        assert_eq!(found.len(), expected, "{found:?}");
        assert!(found.iter().all(|(word, _)| word % 3 == 0), "{found:?}");
        let account =
            live(&talk, &policy(clear), &Facts::default()).pop().unwrap().outcome.standing.unwrap().account();
        assert!(account.paid <= account.direct, "{account:?}");
    }
}

/// A cleared result keeps its call, its place and everything that the client says about it; every later request has the
/// same bytes there.
#[test]
fn a_cleared_result_is_replaced_by_a_stable_placeholder() {
    let mut clear = forty_and_twenty();
    (clear.protect, clear.minimum_tokens) = (clear::Protect { view_tokens: 0, other_tokens: 0, turns: 1 }, 0);
    let sent = |now_ms| {
        let facts = Facts { now_ms, ..Facts::default() };
        let mut policy = policy(clear.clone());
        policy.marks.marks = false;
        let last = live("u run=100+run=5 a u", &policy, &facts).pop().unwrap();
        protocol::apply_verified(
            protocol::named("anthropic").unwrap(),
            &last.talk,
            &last.outcome.plan,
            &NoMemo,
        )
        .unwrap()
        .body
    };
    let whole = String::from_utf8(body(&["u", "run=100+run=5", "a", "u"]).to_vec()).unwrap();
    let text = format!("\"{}\"", "0000001 ".repeat(50));
    let left = r#""[plimsoll: result of run cleared (1 line); full output: /o]""#;
    assert_eq!(sent(1), whole.replace(&text, left).as_bytes());
    assert_eq!(sent(1), sent(1_000_000_000));
}

/// Where reasoning is bound to its prefix, all reasoning from the first changed part on is removed; what is thought
/// afterwards stays.
#[test]
fn bound_reasoning_is_omitted_after_a_changed_part() {
    let mut clear = forty_and_twenty();
    clear.protect = clear::Protect { view_tokens: 0, other_tokens: 0, turns: 1 };
    (clear.minimum_tokens, clear.gate) = (0, vec![Reason::Cold, Reason::Window]);
    let mut policy = policy(clear);
    policy.ladder.enabled = false;
    let refused = Facts { bound: Some(Binding::Refused), ..Facts::default() };
    let cold = Facts { cold: true, ..refused };
    let narrow = Facts { window: Some(12_000), ..refused };
    let thoughts = |passed: &Passed| -> (Vec<String>, bool) {
        let protocol = protocol::named("anthropic").unwrap();
        let sent =
            protocol::apply_verified(protocol, &passed.talk, &passed.outcome.plan, &NoMemo).unwrap().body;
        let read = protocol.index(&sent, &NoMemo).unwrap();
        let text = String::from_utf8(sent.to_vec()).unwrap();
        let found =
            text.split("\"signature\":\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        (found.collect(), protocol.valid(&read).is_ok())
    };
    for (talk, facts, expected) in [
        // Within a turn nothing changes, to preserve the cache.
        ("u ~run=500 ~run=500", cold, &["before 0", "before 1"][..]),
        ("u ~run=500 ~run=500 a u", cold, &[]),
        ("u ~run=500 ~run=500 a u ~run=9", cold, &["before 2"]),
        ("u ~run=500 ~run=500 a u ~run=9 ~run=9", cold, &["before 2", "before 3"]),
        ("u ~run=500 a u ~run=500 a u", Facts { bound: None, ..cold }, &["before 0", "before 1"]),
        (
            "u ~run=500 a u ~run=500 a u",
            Facts { bound: Some(Binding::Dropped), ..cold },
            &["before 0", "before 1"],
        ),
        ("u ~run=9000 ~run=9", narrow, &[]),
        ("u ~run=9000 ~run=9 ~run=9", narrow, &["before 2"]),
    ] {
        let last = live(talk, &policy, &facts).pop().unwrap();
        let (found, is_valid) = thoughts(&last);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), is_valid),
            (expected, true),
            "{talk}"
        );
    }
    // A message of nothing but reasoning cannot lose it: then nothing changes.
    let only = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]}"#;
    let whole = String::from_utf8(body(&["u", "run=500", "a", "u"]).to_vec()).unwrap();
    let whole = whole.replace(r#"{"role":"assistant","content":"done"}"#, only);
    let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(whole), &NoMemo).unwrap();
    let mut thread = Thread { sent: 3, ..Thread::default() };
    assert_eq!(thread.send(&talk, &policy, &cold, true).event, None);
}
