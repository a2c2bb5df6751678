//! Threads with little room: what is put in force when, that it stays so, and what bound reasoning makes of it.

use super::*;
use crate::plan::LeafEdit;

/// A thread whose window is small, and what its requests look like.
#[derive(Clone, Default)]
struct Thread {
    binding: Option<Binding>,
    sent: usize,
    applied: Vec<Applied>,
    standing: Option<Box<Standing>>,
    splice: Option<Arc<Splice>>,
    window: window::Settings,
    ladder: ladder::Settings,
    /// Where the window lets results go, if it does.
    clears: Option<f64>,
}

impl Thread {
    fn send(&mut self, conversation: &Conversation, window: Option<u64>, ready: Option<Splice>) -> Outcome {
        let past = Past {
            sent: self.sent,
            applied: &self.applied,
            standing: self.standing.take(),
            splice: self.splice.clone(),
            ready,
            ..Past::nothing()
        };
        let mut policy = Policy::default();
        policy.shape.repeat = false;
        policy.clear.gate = vec![if self.clears.is_some() { Reason::Window } else { Reason::Cold }];
        policy.clear.trigger = self.clears;
        policy.marks = marks::Settings::default();
        (policy.window, policy.ladder) = (self.window, self.ladder);
        let facts = Facts { window, bound: self.binding, ..Facts::default() };
        let outcome = plan(conversation, past, &policy, &facts, &|_| "full output: /o".to_owned());
        self.sent = conversation.messages.len();
        self.applied.clone_from(&outcome.applied);
        self.splice.clone_from(&outcome.splice);
        self.standing = outcome.standing.clone();
        outcome
    }
}

fn ready(conversation: &Conversation, end: usize) -> Option<Splice> {
    let cut = cuts(conversation, None, None, usize::MAX).into_iter().find(|cut| cut.end == end)?;
    cut.splice(conversation, SUMMARY, "THE TEXT", &Layout::Answer)
}

/// A prepared splice is applied when the window demands it, once, and stays.
#[test]
fn a_ready_splice_is_applied_when_the_window_demands_it() {
    const BEFORE: &str = "u c1 r1 c2 r2 a u c3 r3";
    let grown = format!("{BEFORE} c4 r4");
    for (window, expected) in [(None, false), (Some(100_000), false), (Some(2_000), true)] {
        let mut thread = Thread::default();
        thread.send(&talk(BEFORE), window, None);
        let request = talk(&grown);
        let outcome = thread.send(&request, window, ready(&request, 6));
        assert_eq!((outcome.spliced, outcome.splice.is_some()), (expected, expected), "{window:?}");
        let event = outcome.event.as_ref().map(|event| (event.rung, event.dropped, event.first_message));
        assert_eq!(event, expected.then_some((Rung::Summary, 5, 1)));
        assert_eq!(
            shown(&request, &outcome.plan),
            if expected { "u aN u c r c r" } else { "u c r c r a u c r c r" }
        );
    }
}

/// If there are too many messages, a prepared splice is applied, whatever is known about the window.
#[test]
fn a_ready_splice_is_applied_at_the_message_limit() {
    let request = talk("u c1 r1 c2 r2 a u c3 r3 c4 r4");
    for (most, window, expected) in [
        (None, None, false),
        (Some(12), None, false),
        (Some(11), None, true),
        (Some(11), Some(100_000), true),
    ] {
        let window_of = window::Settings { messages: most, ..window::Settings::default() };
        let mut thread = Thread { window: window_of, ..Thread::default() };
        thread.send(&talk("u c1 r1 c2 r2 a u c3 r3"), window, None);
        let outcome = thread.send(&request, window, ready(&request, 6));
        assert_eq!(outcome.spliced, expected, "{most:?} {window:?}");
        // Without one nothing happens.
        let mut thread = Thread { window: window_of, ..Thread::default() };
        thread.send(&talk("u c1 r1 c2 r2 a u c3 r3"), window, None);
        assert!(thread.send(&request, window, None).event.is_none());
    }
}

/// A window that is counted by an estimate counts what would be sent; a prompt too long by the provider's figure is too
/// long.
#[test]
fn configured_estimates_count_the_prompt_to_be_sent() {
    let request = talk("u c1 r1 a u c2 r2 a u");
    for (count, window, expected) in [
        // Two results of 1,000 characters, and little else.
        (Estimate::Chars4Floor, 100_000, 504..=512),
        (Estimate::Bytes4Ceil, 100_000, 512..=530),
        (Estimate::Usage, 100_000, 600..=900),
        (Estimate::Chars4Floor, 400, 600..=900),
    ] {
        let settings = window::Settings { count, ..window::Settings::default() };
        let mut thread = Thread { window: settings, ..Thread::default() };
        let level = thread.send(&request, Some(window), None).level.unwrap();
        let prompt = level.gauge.unwrap().prompt;
        assert!(expected.contains(&prompt), "{count:?} {prompt}");
    }
    let settings = window::Settings { count: Estimate::Chars4Floor, ..window::Settings::default() };
    let mut thread =
        Thread { window: settings, splice: ready(&request, 4).map(Arc::new), ..Thread::default() };
    thread.sent = 7;
    let prompt = thread.send(&request, Some(100_000), None).level.unwrap().gauge.unwrap().prompt;
    assert!((250..=262).contains(&prompt), "what is not sent is not counted: {prompt}");
}

/// The oldest messages are dropped as soon as there are more than the limit; pairs stay together, and a note counts as
/// one.
#[test]
fn the_number_of_messages_is_bounded() {
    let words: Vec<&str> = "u c1 r1 a u c2 r2 a u c3 r3 a u".split(' ').collect();
    for (most, at, expected) in [
        (13, 13, "u c r a u c r a u c r a u"),
        (12, 13, "u aN u c r a u c r a u"),
        (10, 13, "u aN u c r a u"),
        // Where that is enough, what was asked last stays with its answer.
        (6, 13, "u aN u a u"),
        (4, 13, "u aN u"),
        // More than that must stay.
        (4, 11, "u aN u c r"),
        (4, 7, "u aN u c r"),
    ] {
        let bound = ladder::Settings { messages: Some(most), ..ladder::Settings::default() };
        let mut thread = Thread { ladder: bound, ..Thread::default() };
        let before = words[..at].iter().rposition(|word| *word == "a").unwrap_or(0);
        thread.sent = before;
        let request = talk(&words[..at].join(" "));
        let outcome = thread.send(&request, None, None);
        let note = |text: String| text.replace("aN", "a");
        assert_eq!(note(shown(&request, &outcome.plan)), note(expected.to_owned()), "{most} {at}");
        assert_eq!(outcome.event.is_some(), expected.contains('N'), "{most} {at}");
        // Sent again, it is the same.
        let again = thread.send(&request, None, None);
        assert_eq!(shown(&request, &again.plan), shown(&request, &outcome.plan));
    }
}

/// However short messages are, there are never more than the limit: the note is as short as it must be.
#[test]
fn the_message_limit_holds_for_short_messages_with_shorter_notes() {
    let words = "u ".to_owned() + &"a u ".repeat(40);
    let words: Vec<&str> = words.split_whitespace().collect();
    for most in [4, 10, 25] {
        let bound = ladder::Settings { messages: Some(most), ..ladder::Settings::default() };
        let mut thread = Thread { ladder: bound, ..Thread::default() };
        for end in (1..words.len()).step_by(2) {
            let request = talk(&words[..end].join(" "));
            let outcome = thread.send(&request, None, None);
            let splice = outcome.splice.iter().flat_map(|splice| splice.operations());
            let plan = Plan { ops: splice.collect() };
            let after =
                protocol::apply_verified(protocol::named("anthropic").unwrap(), &request, &plan, &NoMemo);
            let after = after.unwrap();
            assert!(after.messages.len() <= most as usize, "{most}: {} of {end}", after.messages.len());
            assert!(outcome.event.is_none() || after.body.len() < request.body.len(), "{most} {end}");
        }
    }
}

/// Messages stay until the configured share of the window is reached, and are dropped then.
#[test]
fn the_ladder_drops_messages_only_from_its_configured_share_on() {
    let request = talk("u c1 r1 a u c2 r2 a u a u");
    for (from, expected) in [(0.0, true), (0.5, true), (1.0, false)] {
        let ladder = ladder::Settings { from, keep_turns: 1, ..ladder::Settings::default() };
        let window = window::Settings { trigger: 0.1, target: 0.05, ..window::Settings::default() };
        let mut thread = Thread { window, ladder, ..Thread::default() };
        thread.send(&talk("u c1 r1 a u c2 r2 a u"), Some(2_000), None);
        assert_eq!(thread.send(&request, Some(2_000), None).event.is_some(), expected, "{from}");
    }
}

/// Old results may be cleared before the window demands room by other means: alone, and if that frees enough.
#[test]
fn results_are_cleared_first_at_their_own_share_of_the_window() {
    let request = talk("u c1 r1 a u c2 r2 a u c3 r3 a u a u");
    for (clears, least, trigger, expected) in [
        (0.5, 0.1, 0.9, Some((Rung::Clear, 3))),
        // Not yet, or not enough.
        (0.8, 0.1, 0.9, None),
        (0.5, 0.6, 0.9, None),
        // If room must be made, the result is the same as without it.
        (0.9, 0.1, 0.5, Some((Rung::Summary, 0))),
        (0.4, 0.1, 0.5, Some((Rung::Summary, 0))),
    ] {
        let ladder = ladder::Settings { least, keep_turns: 1, ..ladder::Settings::default() };
        let window = window::Settings { trigger, target: 0.05, ..window::Settings::default() };
        let mut thread = Thread { window, ladder, clears: Some(clears), ..Thread::default() };
        thread.send(&talk("u c1 r1 a u c2 r2 a u c3 r3 a u"), Some(3_000), None);
        let outcome = thread.send(&request, Some(3_000), ready(&request, 4));
        let event = outcome.event.as_ref().map(|event| (event.rung, event.cleared));
        assert_eq!(event, expected, "{clears} {least} {trigger}: {:?}", outcome.level);
    }
}

/// A note replaces reasoning that led to nothing, and no more is dropped than necessary.
#[test]
fn the_ladder_can_cut_after_reasoning_without_an_answer() {
    let (before, grown) = ("u a u c1 r1 T u c2 r2 a u", "u a u c1 r1 T u c2 r2 a u a u");
    let request = talk(grown);
    let places = cuts(&request, None, None, usize::MAX);
    let stands = |cut: &Cut| cut.splice(&request, NOTE, "THE TEXT", &Layout::Answer).is_some();
    let places: Vec<(usize, bool)> = places.iter().map(|cut| (cut.end, stands(cut))).collect();
    assert_eq!(places, [(2, true), (6, true), (10, true), (12, true)]);
    let ladder = ladder::Settings { keep_turns: 1, ..ladder::Settings::default() };
    let window = window::Settings { trigger: 0.1, target: 0.45, ..window::Settings::default() };
    let mut thread = Thread { window, ladder, ..Thread::default() };
    thread.send(&talk(before), Some(2_000), None);
    let outcome = thread.send(&request, Some(2_000), None);
    assert_eq!(shown(&request, &outcome.plan), "u a u c r a u a u", "{:?}", outcome.event);
}

/// A message with a cleared result frees no more than the placeholder when it is dropped, whether the whole history is
/// known or not.
#[test]
fn dropping_a_cleared_result_frees_only_its_placeholder() {
    let request = talk("u c1 r1 a u c2 r2 a u a u");
    let (id, part) = request.parts_of(2).next().unwrap();
    let content = part.content().unwrap();
    let decision = Arc::new(Decision {
        cause: Cause::Cleared,
        leaves: vec![(0, LeafEdit::Replace("cleared".into()))],
        content,
        key: PartKey::of(part.call_id(), content),
        bytes_before: 1000,
        bytes_after: 7,
        output: None,
    });
    let known = |key: &PartKey| (Some(*key) == decision.key).then(|| Arc::clone(&decision));
    let known_decisions = |keys: &[PartKey]| keys.iter().map(known).collect();
    let applied = [Applied { part: id, decision: Arc::clone(&decision) }];
    let mut policy = Policy {
        window: window::Settings { trigger: 0.1, target: 0.05, ..window::Settings::default() },
        ladder: ladder::Settings { keep_turns: 1, ..ladder::Settings::default() },
        ..Policy::default()
    };
    policy.clear.gate = vec![Reason::Cold];
    let facts = Facts { window: Some(2_000), ..Facts::default() };
    let freed = |past: Past<'_>| {
        let outcome = plan(&request, past, &policy, &facts, &|_| "full output: /o".to_owned());
        outcome.event.map(|event| (event.rung, event.dropped, event.freed_bytes)).unwrap()
    };
    let known = freed(Past { sent: 9, applied: &applied, ..Past::nothing() });
    assert_eq!((known.0, known.1), (Rung::Turns, 9));
    assert_eq!(freed(Past { sent: 1, known_decisions: &known_decisions, ..Past::nothing() }), known);
}

/// Results before the dropped messages may be cleared with them: the event begins there.
#[test]
fn an_event_begins_at_a_cleared_result_before_dropped_messages() {
    let request = talk("u h1 r1 c2 r2 u a u");
    let mut policy = Policy {
        window: window::Settings { trigger: 0.1, target: 0.05, ..window::Settings::default() },
        ladder: ladder::Settings { keep_turns: 1, ..ladder::Settings::default() },
        ..Policy::default()
    };
    policy.clear.protect = clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 };
    let facts = Facts { overflow: Some(Overflow::default()), window: Some(300), ..Facts::default() };
    for (gate, expected) in [(Reason::Window, (1, 4, 2)), (Reason::Cold, (0, 4, 3))] {
        policy.clear.gate = vec![gate];
        let past = Past { sent: 6, ..Past::nothing() };
        let outcome = plan(&request, past, &policy, &facts, &|_| "full output: /o".to_owned());
        let event = outcome.event.as_ref().unwrap();
        assert_eq!((event.cleared, event.dropped, event.first_message), expected, "{event:?}");
    }
}

/// From its event on, what is sent only grows; the account, the window and the marks know what is gone.
#[test]
fn a_splice_is_applied_to_all_later_requests() {
    let mut thread = Thread::default();
    let words = "u c1 r1 c2 r2 a u c3 r3 c4 r4 c5 r5 a u c6 r6 c7 r7";
    let words: Vec<&str> = words.split(' ').collect();
    let mut shown_before = String::new();
    let mut levels = Vec::new();
    for end in [1, 3, 5, 7, 9, 11, 13, 15, 17, 19] {
        let request = talk(&words[..end].join(" "));
        let ready = (end == 11).then(|| ready(&request, 6)).flatten();
        let window = if end == 11 { 2_000 } else { 100_000 };
        let outcome = thread.send(&request, Some(window), ready);
        assert_eq!(outcome.event.is_some(), end == 11);
        let now = shown(&request, &outcome.plan);
        assert!(end == 11 || now.starts_with(&shown_before), "{now} after {shown_before}");
        let rebuilt = Thread {
            sent: thread.sent,
            applied: thread.applied.clone(),
            splice: thread.splice.clone(),
            ..Thread::default()
        }
        .send(&request, Some(100_000), None);
        assert_eq!(
            rebuilt.plan.ops.iter().filter(|op| !matches!(op, Op::Mark { .. })).count(),
            outcome.plan.ops.iter().filter(|op| !matches!(op, Op::Mark { .. })).count()
        );
        levels.push(outcome.level.unwrap().prompt_tokens);
        let gone = outcome.splice.as_ref();
        assert!(outcome.applied.iter().all(|a| gone.is_none_or(|gone| !gone.drops(a.part.message as usize))));
        let items = outcome.standing.as_ref().unwrap().history().items();
        assert!(
            items
                .iter()
                .all(|item| gone.is_none_or(|g| !g.drops(item.part.message as usize) || item.bytes == 0))
        );
        shown_before = now;
    }
    assert!(levels[6] < levels[5] && levels[9] > levels[6], "{levels:?}");
}

/// Reasoning bound to what is dropped is left out, all of it, and stays so; where it cannot be, it is dropped with its
/// message or nothing happens. A model that binds reasoning without refusing any is the provider's own business.
#[test]
fn a_splice_omits_reasoning_bound_to_what_it_replaces() {
    const THREE: &str = "u t1 r1 a u t2 r2 a u t3 r3 t4 r4";
    let (refused, dropped) = (Some(Binding::Refused), Some(Binding::Dropped));
    for (binding, before, then, end, expected) in [
        (None, THREE, "t5 r5", 4, Some((0, "u aN u t r a u t r t r t r"))),
        (dropped, THREE, "t5 r5", 4, Some((0, "u aN u t r a u t r t r t r"))),
        (refused, THREE, "t5 r5", 4, Some((4, "u aN u c r a u c r c r c r"))),
        // There is none after the cut, or none at all.
        (refused, "u t1 r1 a u a u", "a u", 4, Some((0, "u aN u a u a u"))),
        (refused, "u c1 r1 a u c2 r2", "a u", 4, Some((0, "u aN u c r a u"))),
        // A message that says nothing else.
        (refused, "u t1 r1 a u T c2 r2 a u", "a u", 4, None),
        (refused, "u t1 r1 a u T c2 r2 a u", "a u", 9, Some((0, "u aN u a u"))),
        (dropped, "u t1 r1 a u T c2 r2 a u", "a u", 4, Some((0, "u aN u T c r a u a u"))),
    ] {
        let mut thread = Thread { binding, ..Thread::default() };
        thread.send(&talk(before), None, None);
        let grown = format!("{before} {then}");
        let request = talk(&grown);
        // The prepared splice is tried first, and frees enough.
        let window = request.body.len() as u64 / 2;
        let outcome = thread.send(&request, Some(window), ready(&request, end));
        let found = outcome.event.as_ref().filter(|event| event.rung == Rung::Summary);
        let told = found.map(|event| (event.reasoning, shown(&request, &outcome.plan)));
        assert_eq!(told.as_ref().map(|(gone, shown)| (*gone, &**shown)), expected, "{binding:?} {grown}");
        let Some((_, now)) = told else { continue };
        let more = talk(&format!("{grown} t9 r9"));
        for memory in [true, false] {
            thread.standing = thread.standing.filter(|_| memory);
            let next = thread.send(&more, None, None);
            assert_eq!((shown(&more, &next.plan), next.fresh), (format!("{now} t r"), 0));
        }
    }
}

/// Whatever the ladder does about bound reasoning, what remains is none, or only reasoning that came later.
#[test]
fn the_ladder_leaves_no_reasoning_bound_to_what_it_changed() {
    for (before, then, window) in [
        ("u t1 r1 a u t2 r2 a u t3 r3", "t4 r4", 1_000),
        ("u t1 r1 t2 r2 t3 r3 t4 r4", "t5 r5", 1_000),
        ("u t1 r1 t2 r2 t3 r3 t4 r4 x u t5 r5", "t6 r6", 900),
        ("u t1 r1 T t2 r2 T t3 r3 t4 r4", "t5 r5", 1_000),
    ] {
        let mut thread = Thread { binding: Some(Binding::Refused), ..Thread::default() };
        thread.send(&talk(before), None, None);
        let grown = format!("{before} {then}");
        let request = talk(&grown);
        let outcome = thread.send(&request, Some(window), None);
        let event = outcome.event.as_ref().unwrap_or_else(|| panic!("{grown}"));
        let now = shown(&request, &outcome.plan);
        assert!(!now.contains(['t', 'T']) && event.dropped > 0, "{event:?} {now}");
        let more = talk(&format!("{grown} t9 r9"));
        let next = thread.send(&more, None, None);
        assert_eq!(shown(&more, &next.plan), format!("{now} t r"));
    }
}

/// Clients may send less reasoning than they once did.
#[test]
fn omitted_reasoning_stays_omitted_however_much_clients_send() {
    let mut thread = Thread { binding: Some(Binding::Refused), ..Thread::default() };
    let grown = "u t1 r1 a u t2 r2 a u t3 r3";
    thread.send(&talk("u t1 r1 a u t2 r2 a u"), None, None);
    let request = talk(grown);
    let (window, cut) = (request.body.len() as u64 / 2, ready(&request, 4));
    assert_eq!(thread.send(&request, Some(window), cut).event.map(|event| event.reasoning), Some(2));
    for (body, expected) in [
        (grown.to_owned(), "u aN u c r a u c r"),
        (grown.replace("t2", "c2"), "u aN u c r a u c r"),
        (grown.replace("t3", "c3"), "u aN u c r a u c r"),
        (grown.replace('t', "c"), "u aN u c r a u c r"),
    ] {
        let request = talk(&body);
        assert_eq!(shown(&request, &thread.clone().send(&request, None, None).plan), expected, "{body}");
    }
    // More blocks, elsewhere in the message.
    let block = r#"{"type":"thinking","thinking":"","signature":"x"}"#;
    let body = String::from_utf8(talk(grown).body.to_vec()).unwrap();
    let body = body.replacen(block, &format!(r#"{block},{{"type":"text","text":"so"}},{block}"#), 3);
    let request = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
    assert_eq!(shown(&request, &thread.send(&request, None, None).plan), "u aN u c r a u c r");
}

/// A request that fails leaves no trace of the event.
#[test]
fn forgetting_a_failed_request_undoes_its_whole_event() {
    let mut thread = Thread::default();
    thread.send(&talk("u c1 r1 a u"), Some(1_000), None);
    let request = talk("u c1 r1 a u a u");
    let mut outcome = thread.send(&request, Some(300), ready(&request, 4));
    assert!(outcome.spliced && outcome.is_fresh() && outcome.former.is_none());
    outcome.forget_fresh();
    assert!(!outcome.spliced && outcome.splice.is_none() && !outcome.is_fresh());
    assert_eq!(shown(&request, &outcome.plan), "u c r a u a u");
}
