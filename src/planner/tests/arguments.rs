//! Long texts in the arguments of old calls: when they go, which, and what stays.

use super::super::*;
use super::events::{Thread, policy, talk, words};
use crate::conversation::NoMemo;
use crate::protocol;
use crate::strategy::gate::{Rates, Reason};
use crate::strategy::ladder::Rung;

/// What became of a conversation: its last request, and all events and full texts.
struct Run {
    talk: Conversation,
    outcome: Outcome,
    events: Vec<Event>,
    saves: Vec<Save>,
}

/// Sends a conversation with each of its requests. What is decided is the same whether the thread is remembered or read
/// anew each time, and between events what was sent stays.
fn run(short: &str, policy: &Policy, facts: &Facts) -> Run {
    let words = words(short);
    let chat = protocol::named("openai-chat").unwrap();
    let [first, second] = [true, false].map(|memory| {
        let (mut thread, mut before, mut events, mut saves) =
            (Thread::default(), Vec::new(), Vec::new(), Vec::new());
        let mut last = None;
        for end in (1..=words.len()).filter(|end| words[end - 1] != "a") {
            let talk = talk(&words[..end]);
            let outcome = thread.send(&talk, policy, facts, memory);
            let after = protocol::apply_verified(chat, &talk, &outcome.plan, &NoMemo).unwrap();
            chat.valid(&after).unwrap();
            let messages = after.messages.iter().map(|message| message.span.of(&after.body).to_vec());
            let now: Vec<Vec<u8>> = messages.collect();
            assert!(outcome.event.is_some() || now.starts_with(&before), "{short}");
            if let Some(event) = outcome.event.as_ref().filter(|event| event.rung == Rung::Arguments) {
                let again = &now[event.first_message as usize..before.len()];
                let again: u64 = again.iter().map(|message| message.len() as u64).sum();
                assert!(event.rewritten_bytes.abs_diff(again) <= again / 10, "{again} {event:?} {short}");
            }
            before = now;
            events.extend(outcome.event.clone());
            saves.extend(outcome.saves.iter().cloned());
            last = Some((talk, outcome));
        }
        let (talk, outcome) = last.unwrap();
        Run { talk, outcome, events, saves }
    });
    assert_eq!(first.outcome.applied, second.outcome.applied, "{short}");
    assert_eq!(first.events, second.events, "{short}");
    first
}

/// The messages of the calls that are sent without their long texts.
fn abridged(outcome: &Outcome) -> Vec<u32> {
    let calls = outcome.applied.iter().filter(|applied| applied.decision.is_abridgement());
    calls.map(|applied| applied.part.message).collect()
}

#[test]
fn long_arguments_are_abridged_before_messages_are_dropped() {
    const CALLS: &str = "u 6000>20 6000>20 6000>20 6000>20";
    let ladder = ladder::Settings::default();
    for (window, short, expected) in [
        (100_000, CALLS, (None, &[][..], 0)),
        // The oldest, as many as meet the target.
        (11_000, CALLS, (Some(Rung::Arguments), &[1, 3], 0)),
        // The results cleared first may be enough.
        (11_000, "u 9000 6000>9000 6000>20 6000>20", (Some(Rung::Clear), &[], 2)),
        (9_000, "u 4000 6000>20 6000>20 6000>20 20", (Some(Rung::Arguments), &[3, 5], 1)),
        // Short ones free nothing.
        (9_000, &format!("u{}", " 600>20".repeat(26)), (Some(Rung::Messages), &[], 0)),
    ] {
        let policy = Policy { ladder, ..policy(Reason::Window) };
        let facts = Facts { window: Some(window), ..Facts::default() };
        let Run { talk, outcome, events, .. } = run(short, &policy, &facts);
        let event = events.last();
        let cleared = outcome.applied.iter().filter(|applied| applied.decision.is_clearing()).count();
        assert_eq!((event.map(|event| event.rung), &*abridged(&outcome), cleared), expected, "{short}");
        let Some(event) = event.filter(|event| event.rung == Rung::Arguments) else { continue };
        let sum = |count: fn(&Event) -> u32| events.iter().map(count).sum::<u32>() as usize;
        let counts = (sum(|event| event.abridged), sum(|event| event.cleared), sum(|event| event.dropped));
        assert_eq!(counts, (expected.1.len(), cleared, 0), "{short}");
        let chat = protocol::named("openai-chat").unwrap();
        let after = protocol::apply_verified(chat, &talk, &outcome.plan, &NoMemo).unwrap().body;
        let freed = (talk.body.len() - after.len()) as u64;
        let all = events.iter().map(|event| event.freed_bytes).sum::<u64>();
        assert!(freed.abs_diff(all) <= freed / 10, "{freed} {events:?}");
        assert!(event.rewritten_bytes > 0 && expected.1.contains(&event.first_message), "{event:?}");
        let mut never = policy.clone();
        never.clear.arguments = clear::Arguments::Never;
        assert!(abridged(&run(short, &never, &facts).outcome).is_empty(), "{short}");
        // If the ladder is off, only results are cleared.
        let off = Policy { ladder: ladder::Settings { enabled: false, ..ladder }, ..policy };
        assert!(abridged(&run(short, &off, &facts).outcome).is_empty(), "{short}");
    }
}

#[test]
fn long_arguments_are_replaced_by_their_head_and_a_hint() {
    let policy = Policy { ladder: ladder::Settings::default(), ..policy(Reason::Window) };
    let facts = Facts { window: Some(7_000), ..Facts::default() };
    let Run { talk, outcome, saves, .. } = run("u 6000>20 6000>20 20", &policy, &facts);
    let chat = protocol::named("openai-chat").unwrap();
    let after = protocol::apply_verified(chat, &talk, &outcome.plan, &NoMemo).unwrap();
    let call = PartId { message: 1, part: 0 };
    let head = "1.".repeat(100);
    let line = "[plimsoll: 5800 of 6000 bytes of this argument removed here; full output: /o]";
    let expected = format!(r#"{{"n":1,"text":"{head}\n\n{line}"}}"#);
    assert_eq!(after.arguments(call).as_deref(), Some(&*expected));
    let save = saves.iter().find(|save| save.text.starts_with("1.")).expect("the text is saved");
    assert_eq!(save.text, "1.".repeat(3000));
    assert_eq!(save.id, decision::output_id(&[save.text.as_str().into()]));
    // If the text is gone, it is made from the call again.
    let applied = outcome.applied.iter().find(|applied| applied.part == call).unwrap();
    assert_eq!(full_text(&talk, applied).as_deref(), Some(&*save.text));
    assert_eq!(applied.decision.output.as_deref(), Some(&*save.id));
}

/// Long arguments of one call are saved in one file, each with its label. An older gateway put a blank line between
/// them: texts it saved and named that way are saved in the same form again.
#[test]
fn several_arguments_of_one_call_are_saved_in_one_labelled_text() {
    let [old, new] = ["old ", "new "].map(|word| word.repeat(500));
    let input = format!(r#"{{"path":"a.rs","old":"{old}","new":"{new}"}}"#);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"edit","input":{input}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"ok"}}]}}]}}"#
    );
    let talk = protocol::named("anthropic").unwrap().index(&body.into(), &NoMemo).unwrap();
    let part = PartId { message: 1, part: 0 };
    let (applied, save) = super::super::arguments::decide(&talk, part, &|id| format!("in {id}")).unwrap();
    let whole = format!("[plimsoll: argument 1 of 2]\n{old}\n\n[plimsoll: argument 2 of 2]\n{new}\n");
    assert_eq!(save.text, whole);
    assert_eq!(save.id, decision::output_id(&[save.text.as_str().into()]));
    assert_eq!(full_text(&talk, &applied), Some(whole));
    let sent = sent_arguments(&talk, &applied).unwrap();
    assert_eq!(sent.matches(&format!("in {}", save.id)).count(), 2, "{sent}");
    let before = format!("{old}\n\n{new}");
    let output = Some(decision::output_id(&[before.as_str().into()]));
    let of_old = Decision { output, ..(*applied.decision).clone() };
    assert_eq!(full_text(&talk, &Applied { part, decision: of_old.into() }), Some(before));
}

/// If configured, long arguments are also abridged to save money: those of calls that are no longer fresh, and of tools
/// whose results are not kept.
#[test]
fn long_arguments_of_old_calls_are_abridged_for_cost_if_configured() {
    let steps = |first: &str, count: usize| format!("u {first}{}", " 20".repeat(count));
    let wants = |arguments: bool, reason| {
        let mut policy = policy(reason);
        policy.clear.arguments = if arguments { clear::Arguments::Always } else { clear::Arguments::Window };
        policy
    };
    for (reason, arguments, facts, short, expected) in [
        (Reason::Eager, true, Facts::default(), steps("6000>20", 9), &[][..]),
        (Reason::Eager, true, Facts::default(), steps("6000>20", 10), &[1]),
        (Reason::Eager, false, Facts::default(), steps("6000>20", 20), &[]),
        (Reason::Eager, true, Facts::default(), steps("1000>20", 20), &[]),
        (Reason::BreakEven, true, Facts::default(), steps("20000>20", 20), &[1]),
        (Reason::Cold, true, Facts { cold: true, ..Facts::default() }, steps("6000>20", 20), &[1]),
        (Reason::Cold, true, Facts::default(), steps("6000>20", 20), &[]),
        (
            Reason::Uncached,
            true,
            Facts { rates: Some(Rates { read: 1.0, write: 1.0 }), ..Facts::default() },
            steps("6000>20", 20),
            &[1],
        ),
    ] {
        let Run { outcome, events, .. } = run(&short, &wants(arguments, reason), &facts);
        assert_eq!(abridged(&outcome), expected, "{reason:?} {short}");
        assert_eq!(!events.is_empty(), !expected.is_empty(), "{reason:?} {short}");
        let mut protected = wants(arguments, reason);
        protected.clear.protected_tools = crate::conversation::NamePatterns::new(["run"]).unwrap();
        assert!(abridged(&run(&short, &protected, &facts).outcome).is_empty(), "{reason:?} {short}");
    }
}

/// A client that spells its arguments in another way is sent the same; one that says something else is sent what it
/// says.
#[test]
fn abridged_arguments_apply_only_to_equal_calls() {
    let policy = Policy { ladder: ladder::Settings::default(), ..policy(Reason::Window) };
    let facts = Facts { window: Some(7_000), ..Facts::default() };
    let Run { talk: before, outcome, .. } = run("u 6000>20 6000>20 20", &policy, &facts);
    let again = |from: &str, to: &str| {
        let body = String::from_utf8(before.body.to_vec()).unwrap();
        assert!(body.contains(from));
        let body = bytes::Bytes::from(body.replacen(from, to, 1));
        let talk = protocol::named("openai-chat").unwrap().index(&body, &NoMemo).unwrap();
        let past = Past { sent: talk.messages.len(), applied: &outcome.applied, ..Past::nothing() };
        abridged(&plan(&talk, past, &policy, &facts, &|_| "full output: /o".to_owned()))
    };
    let all = abridged(&outcome);
    assert_eq!(all[0], 1);
    assert_eq!(again(r#"{\"n\":1,"#, r#"{ \"n\" : 1, "#), all);
    assert_eq!(again(r#"{\"n\":1,"#, r#"{\"n\":9,"#), all[1..]);
}
