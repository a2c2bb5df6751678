//! What the model thought in earlier turns: when it goes, how much of it, and what stays as it is.

use bytes::Bytes;

use super::super::*;
use super::events::{Thread, policy};
use crate::conversation::NoMemo;
use crate::protocol;
use crate::strategy::gate::{Rates, Reason};
use crate::usage::Binding;

/// A conversation in short: `u` the user, `a` an answer, `~` an answer of nothing but a thought, `500` a step with a
/// call and a result of that many bytes, `4000~500` the same after a thought of 4,000 bytes.
fn talk(short: &str) -> Conversation {
    let mut call = 0;
    let message = |word: &str| match word {
        "u" => r#"{"role":"user","content":"go on"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"done"}"#.to_owned(),
        "~" => format!(r#"{{"role":"assistant","content":[{}]}}"#, thought(99, 200)),
        step => {
            let (thoughts, result) = step.split_once('~').unwrap_or(("", step));
            let thoughts = thoughts.parse().map_or(String::new(), |bytes| thought(call, bytes) + ",");
            let result = format!("{call} ").repeat(result.parse::<usize>().unwrap() / 2);
            call += 1;
            format!(
                r#"{{"role":"assistant","content":[{thoughts}{{"type":"tool_use","id":"t{call}","name":"run","input":{{"n":{call}}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{call}","content":"{result}"}}]}}"#
            )
        }
    };
    let messages: Vec<String> = short.split_whitespace().map(message).collect();
    let body = format!(r#"{{"model":"m","max_tokens":1,"messages":[{}]}}"#, messages.join(","));
    protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// A thought of `bytes` bytes.
fn thought(name: u32, bytes: usize) -> String {
    let block = |seal: &str| format!(r#"{{"type":"thinking","thinking":"","signature":"{name}/{seal}"}}"#);
    block(&"S".repeat(bytes.saturating_sub(block("").len())))
}

/// The names of the thoughts that are sent, and whether the provider would take it.
fn thoughts(talk: &Conversation, outcome: &Outcome) -> (Vec<u32>, bool) {
    let protocol = protocol::named("anthropic").unwrap();
    let sent = protocol::apply_verified(protocol, talk, &outcome.plan, &NoMemo).unwrap().body;
    let is_valid = protocol.valid(&protocol.index(&sent, &NoMemo).unwrap()).is_ok();
    let text = String::from_utf8(sent.to_vec()).unwrap();
    let names = text.split("\"signature\":\"").skip(1).map(|rest| rest.split('/').next().unwrap().parse());
    (names.collect::<Result<_, _>>().unwrap(), is_valid)
}

/// Sends a conversation with each of its requests, and gives the last one's outcome. What is decided is the same
/// whether the thread is remembered or read anew each time.
fn last(short: &str, policy: &Policy, facts: &Facts) -> (Conversation, Outcome) {
    let words: Vec<&str> = short.split_whitespace().collect();
    let [first, second] = [true, false].map(|memory| {
        let mut thread = Thread::default();
        let ends = (1..=words.len()).filter(|end| !matches!(words[end - 1], "a" | "~"));
        let sent = ends.map(|end| {
            let talk = talk(&words[..end].join(" "));
            let outcome = thread.send(&talk, policy, facts, memory);
            (talk, outcome)
        });
        sent.last().unwrap()
    });
    assert_eq!(first.1.applied, second.1.applied, "{short}");
    first
}

/// The facts if the model reads its reasoning again.
fn reads(bound: Option<Binding>) -> Facts {
    Facts { bound, reads_reasoning: true, ..Facts::default() }
}

/// The reasoning that the last request still sends, the results that are cleared, and the event's own count.
#[test]
fn an_event_omits_reasoning_of_earlier_turns() {
    const TURNS: &str = "u 900~400 900~9 a u 900~9";
    let (reads_all, bound) = (reads(None), reads(Some(Binding::Refused)));
    let uncached = Rates { read: 1.0, write: 1.0 };
    let narrow = |window| Facts { window: Some(window), ..reads_all };
    for (reason, facts, short, expected) in vec![
        // The present turn's reasoning stays, whatever its length.
        (Reason::Eager, reads_all, "u 900~9 900~9", (&[0, 1][..], 0, 0)),
        (Reason::Eager, reads_all, "u 900~9 900~9 a u", (&[], 0, 2)),
        (Reason::Eager, reads_all, TURNS, (&[2], 1, 2)),
        (Reason::Eager, reads_all, &format!("{TURNS} 900~9 a u 9"), (&[], 1, 4)),
        // The user's words next to results continue their turn.
        (Reason::Eager, reads_all, "u 900~9 900~9 u", (&[0, 1], 0, 0)),
        (Reason::Eager, reads_all, "u 900~9 a u 900~9 u", (&[1], 0, 1)),
        (Reason::Eager, reads_all, "u 900~9 900~9 u 9 a u", (&[], 0, 2)),
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~400 u", (&[0], 0, 0)),
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~400 u u", (&[0], 0, 0)),
        // Models that do not read it again pay nothing for it.
        (Reason::Eager, Facts { reads_reasoning: false, ..reads_all }, TURNS, (&[0, 1, 2], 1, 0)),
        (Reason::Cold, reads_all, TURNS, (&[0, 1, 2], 0, 0)),
        (Reason::Cold, Facts { cold: true, ..reads_all }, TURNS, (&[2], 1, 2)),
        (Reason::Budget, Facts { over_budget: true, ..reads_all }, "u 9000~9 a u 9 9 9 9 9", (&[], 0, 1)),
        (Reason::Uncached, Facts { rates: Some(uncached), ..reads_all }, TURNS, (&[2], 1, 2)),
        // Bound reasoning is removed if nothing is cached, since that loses nothing, and for no other gain.
        (Reason::Eager, bound, TURNS, (&[0, 1, 2], 0, 0)),
        (Reason::Eager, reads(Some(Binding::Dropped)), TURNS, (&[0, 1, 2], 0, 0)),
        // It is bound not to earlier reasoning but to the messages: results stay within a turn.
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~9 a u 400 900~9", (&[2], 0, 1)),
        (Reason::Cold, Facts { cold: true, ..reads_all }, "u 900~9 a u 400 900~9", (&[2], 1, 1)),
        // If there are results to clear and no step is in progress, all goes.
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~9 a u", (&[], 0, 1)),
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~400 a u", (&[], 1, 1)),
        (Reason::Cold, Facts { cold: true, ..bound }, "u 900~400 a u 900~9", (&[1], 1, 1)),
        // A message of nothing but reasoning keeps it, and so do all later ones.
        (Reason::Eager, reads_all, "u 900~9 a u ~ u 900~9 a u", (&[99, 1], 0, 1)),
        // It goes before any result if the window demands room, and alone if that is enough.
        (Reason::Window, narrow(20_000), "u 9000~4000 4000~4000 a u", (&[0, 1], 0, 0)),
        (Reason::Window, narrow(9_800), "u 20000~400 a u", (&[], 0, 1)),
        (Reason::Window, narrow(4_000), "u 9000~4000 4000~4000 a u", (&[], 2, 2)),
    ] {
        let (talk, outcome) = last(short, &policy(reason), &facts);
        let cleared = outcome.applied.iter().filter(|applied| applied.decision.is_clearing()).count();
        let omitted = outcome.applied.iter().filter(|applied| applied.decision.is_omission()).count();
        let (left, is_valid) = thoughts(&talk, &outcome);
        assert_eq!((&*left, cleared, omitted), expected, "{reason:?} {short}");
        assert!(is_valid, "{reason:?} {short}");
        let mut keeps = policy(reason);
        keeps.clear.reasoning = false;
        let (talk, outcome) = last(short, &keeps, &Facts { bound: None, ..facts });
        let all = talk.body.windows(11).filter(|piece| piece == b"\"signature\"").count();
        assert_eq!(thoughts(&talk, &outcome).0.len(), all, "{reason:?} {short}");
    }
}

/// The event's record counts blocks of reasoning and results separately, and what both free.
#[test]
fn events_count_omitted_reasoning_apart_from_results() {
    let (_, outcome) = last("u 900~400 900~9 a u", &policy(Reason::Eager), &reads(None));
    let event = outcome.event.unwrap();
    // Two fifths of what is sealed count.
    assert_eq!((event.reasoning, event.cleared, event.freed_bytes, event.first_message), (2, 0, 720, 1));
    assert_eq!(outcome.saves, []);
    // Among results.
    let (policy, mut thread) = (policy(Reason::Cold), Thread::default());
    thread.send(&talk("u 400 900~400 900~9"), &policy, &reads(None), true);
    let cold = Facts { cold: true, ..reads(None) };
    let event = thread.send(&talk("u 400 900~400 900~9 a u"), &policy, &cold, true).event.unwrap();
    assert_eq!((event.reasoning, event.cleared, event.first_message), (2, 2, 2));
}

/// It pays once reading the old reasoning has cost as much as what is written again without it. Two fifths of sealed
/// reasoning count.
#[test]
fn old_reasoning_is_omitted_once_it_has_cost_as_much_as_rewriting() {
    let mut policy = policy(Reason::BreakEven);
    (policy.clear.patience, policy.clear.most_loss) = (1.0, 1.0);
    policy.clear.protected_tools = crate::shape::settings::NamePatterns::new(["run"]).unwrap();
    let steps = |count: usize| format!("u 12000~4000 a u{}", " 9".repeat(count));
    let gone = |count: &usize| {
        let (talk, outcome) = last(&steps(*count), &policy, &reads(None));
        thoughts(&talk, &outcome).0.is_empty()
    };
    let pays = |count: &usize| {
        let (talk, rates) = (talk(&steps(*count)), Rates::USUAL);
        // The last request's own content is not written again, but for the first time.
        let sent = if *count == 0 { 3 } else { 2 * count + 3 };
        let parts = (0..sent).flat_map(|message| talk.parts_of(message));
        let behind: usize = parts.skip(2).map(|(_, part)| part.read_len()).sum();
        let rent = 12_000.0 * 0.4 * rates.read * (1 + count) as f64;
        rent >= behind as f64 * rates.rewrite()
    };
    let due = (0..30).find(pays);
    assert_eq!((0..30).find(gone), due);
    assert!(due.is_some_and(|due| due > 5), "{due:?}");
}

/// The messages that are sent, what was thought aside, and which of them has a thought of which name.
fn sent(talk: &Conversation, outcome: &Outcome) -> Vec<(String, Option<u32>)> {
    let sent = protocol::apply_verified(protocol::named("anthropic").unwrap(), talk, &outcome.plan, &NoMemo)
        .unwrap()
        .body;
    let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
    let messages = sent["messages"].as_array().unwrap().iter();
    let split = |message: &serde_json::Value| {
        let mut message = message.clone();
        let mut name = None;
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| {
                let sealed = block["signature"].as_str().and_then(|sealed| sealed.split('/').next());
                name = name.or_else(|| sealed?.parse().ok());
                sealed.is_none()
            });
        }
        (message.to_string(), name)
    };
    messages.map(split).collect()
}

/// Asks each of these models once. When a model that binds its reasoning is asked, earlier reasoning is sent after what
/// it is bound to. Returns how many requests had an event, and how many had something bound.
fn asks(short: &str, models: &[bool], reason: Reason) -> (usize, usize) {
    let words: Vec<&str> = short.split_whitespace().collect();
    let ends = (1..=words.len()).filter(|end| !matches!(words[end - 1], "a" | "~"));
    let (mut thread, mut found) = (Thread::default(), (0, 0));
    let mut policy = policy(reason);
    policy.marks.marks = false;
    let mut asked: Vec<(u32, Option<Vec<String>>)> = Vec::new();
    for (end, binds) in ends.zip(models.iter().cycle()) {
        let talk = talk(&words[..end].join(" "));
        let facts = reads(binds.then_some(Binding::Refused));
        let outcome = thread.send(&talk, &policy, &facts, true);
        let messages = sent(&talk, &outcome);
        let bare: Vec<String> = messages.iter().map(|(said, _)| said.clone()).collect();
        for (at, (_, name)) in messages.iter().enumerate().filter(|(_, (_, name))| *binds && name.is_some()) {
            // It answers the last request that it can answer.
            let before = asked.iter().rev().find(|(asked, _)| Some(*asked) == *name);
            if let Some((_, Some(before))) = before {
                found.1 += 1;
                assert!(bare[..at] == before[..], "{name:?} of {short} {models:?}");
            }
        }
        found.0 += usize::from(outcome.event.is_some());
        // Thoughts are named by the calls before them.
        let name = talk.messages.iter().filter(|message| message.index.has_results()).count() as u32;
        asked.push((name, binds.then_some(bare)));
    }
    found
}

/// A model that binds its reasoning is not always the only one asked: others are for a while, or for a title.
#[test]
fn bound_reasoning_stays_valid_while_other_models_are_asked() {
    const REQUESTS: u32 = 8;
    let asked = |mask: u32, reason| {
        let models: Vec<bool> = (0..REQUESTS).map(|request| mask & (1 << request) > 0).collect();
        asks("u 900~4000 a u 900~4000 9 a u 9 9", &models, reason)
    };
    let events = |mask| asked(mask, Reason::Eager).0;
    // What another model has thought in earlier turns goes, and keeps nothing from being cleared; in the turn that it
    // has begun, it does.
    let each: Vec<usize> = (0..REQUESTS).map(|request| events(1 << request)).collect();
    assert_eq!((events(0), &each[..]), (3, &[3, 3, 1, 3, 2, 3, 3, 3][..]));
    assert_eq!(events((1 << REQUESTS) - 1), 0);
    let found = (0..1 << REQUESTS).filter(|mask| {
        let (events, bound) = asked(*mask, Reason::Eager);
        events > 0 && bound > 0
    });
    assert!(found.count() > 20);
}

/// The reasoning of a model that binds nothing stays, unless bound reasoning after it goes.
#[test]
fn an_event_omits_all_reasoning_up_to_the_last_bound_block() {
    const REQUESTS: [&str; 7] = [
        "u",
        "u 4000",
        "u 4000 900~9",
        "u 4000 900~9 a u",
        "u 4000 900~9 a u 900~4000",
        "u 4000 900~9 a u 900~4000 9",
        "u 4000 900~9 a u 900~4000 9 a u",
    ];
    for (models, expected) in [
        ([false, false, false, true, true, true, false], &[][..]),
        ([true, true, true, true, true, true, false], &[]),
        ([true, true, true, false, false, false, false], &[2]),
        ([true, false, false, false, false, false, false], &[1, 2]),
        ([false; 7], &[1, 2]),
    ] {
        let mut thread = Thread::default();
        let mut sent = None;
        for (at, (words, binds)) in REQUESTS.iter().zip(models).enumerate() {
            let facts = Facts { bound: binds.then_some(Binding::Refused), ..Facts::default() };
            let reason = if at == 6 { Reason::Eager } else { Reason::Cold };
            let talk = talk(words);
            let outcome = thread.send(&talk, &policy(reason), &facts, true);
            sent = Some((thoughts(&talk, &outcome), outcome.event.map(|event| event.reasoning)));
        }
        let gone = 2 - expected.len() as u32;
        assert_eq!(sent, Some(((expected.to_vec(), true), Some(gone))), "{models:?}");
    }
}

/// What must be written again because of bound reasoning counts too, for events that are meant to save money.
#[test]
fn bound_reasoning_far_before_a_change_counts_towards_its_cost() {
    let mut policy = policy(Reason::BreakEven);
    (policy.clear.patience, policy.clear.most_loss, policy.clear.smallest) = (1.0, 1.0, 4_000);
    for (before, expected) in [("900~400", 1), ("900~400 9000 9000", 0), ("400 9000 9000", 1)] {
        let (mut thread, mut events) = (Thread::default(), 0);
        let mut words = format!("u {before}");
        for (step, binds) in [("20000", true), ("900~9", true), ("a u", true)]
            .into_iter()
            .chain(std::iter::repeat_n(("9", false), 20))
        {
            words = format!("{words} {step}");
            let facts = Facts { bound: binds.then_some(Binding::Refused), ..Facts::default() };
            events += u32::from(thread.send(&talk(&words), &policy, &facts, true).event.is_some());
        }
        assert_eq!(events, expected, "{before}");
    }
}

/// If a client begins to send a thought in a form that cannot be removed, everything after it is sent as well; the plan
/// as a whole is not refused.
#[test]
fn reasoning_after_an_unremovable_block_is_sent_again() {
    const USER: &str = r#"{"role":"user","content":"go on"}"#;
    let protocol = protocol::named("openai-chat").unwrap();
    let claude = |name: u32| format!(r#""thinking_blocks":[{{"signature":"{name}/x"}}]"#);
    let answer = |thought: &str| format!(r#"{{"role":"assistant","content":"done",{thought}}}"#);
    let request = |first: &str, count: usize| {
        let [first, second, third] = [first, &claude(2), r#""name":"m""#].map(answer);
        let messages = [USER, &first, USER, &second, USER, &third, USER];
        let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages[..count].join(","));
        protocol.index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let others = r#""reasoning_content":"1/x""#.to_owned();
    for (first, left) in [(claude(1), 0), (others, 2), (r#""name":"m""#.to_owned(), 0)] {
        let mut thread = Thread::default();
        thread.send(&request(&claude(1), 5), &policy(Reason::Cold), &reads(None), true);
        let event = thread.send(&request(&claude(1), 7), &policy(Reason::Eager), &reads(None), true).event;
        assert_eq!(event.map(|event| event.reasoning), Some(2));
        let again = request(&first, 7);
        let outcome = thread.send(&again, &policy(Reason::Cold), &reads(None), false);
        let sent = protocol::apply_verified(protocol, &again, &outcome.plan, &NoMemo).unwrap().body;
        assert_eq!(String::from_utf8(sent.to_vec()).unwrap().matches("/x").count(), left, "{first}");
    }
}
