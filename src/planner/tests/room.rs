//! How room is made in a window that fills up: how full it is, what goes first, and what stays.

use bytes::Bytes;

use super::super::*;
use super::events::{Thread, event, policy, talk, words};
use crate::conversation::NoMemo;
use crate::protocol;
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::{Rates, Reason};
use crate::strategy::ladder::Rung;

/// How a thread grows is known after some requests, even if one is repeated; if the requests are not remembered, it is
/// not known.
#[test]
fn growth_is_known_after_some_requests() {
    for memory in [true, false] {
        let (mut thread, mut said) = (Thread::default(), "u".to_owned());
        for at in 1..=8 {
            for _ in 0..2 {
                let request = talk(&words(&said));
                let level =
                    thread.send(&request, &Policy::default(), &Facts::default(), memory).level.unwrap();
                let largest = level.growth.map(|growth| growth.largest >= 1_000);
                assert_eq!(largest, (memory && at >= 6).then_some(true), "{memory} {at}");
            }
            said.push_str(if at == 2 { " a x6000" } else { " a x600" });
        }
    }
}

/// What is done when the window is full: the rung, results cleared, messages dropped, results cut; and whether the
/// target is met.
#[test]
fn the_ladder_clears_then_drops_then_truncates() {
    const TURNS: &str = "u 4000 a u 4000 a u 4000 a u 4000";
    const STEPS: &str = "u 4000 4000 4000 4000";
    for (reason, before, then, window, expected) in [
        (Reason::Window, TURNS, "a u", 100_000, None),
        (Reason::Window, TURNS, "a u", 8_000, Some((Rung::Clear, 3, 0, 0))),
        // Without clearing: turns, as few as meet the target.
        (Reason::Cold, TURNS, "a u", 8_000, Some((Rung::Turns, 0, 11, 0))),
        (Reason::Cold, TURNS, "a u", 3_000, Some((Rung::Turns, 0, 15, 0))),
        // Within one turn: steps.
        (Reason::Cold, STEPS, "4000", 8_000, Some((Rung::Messages, 0, 6, 0))),
        (Reason::Cold, STEPS, "4000", 100_000, None),
        // New results are cut if all old ones are not enough.
        (Reason::Cold, "u 100", "40000", 8_000, Some((Rung::Cut, 0, 2, 1))),
        (Reason::Cold, "u", "40000", 8_000, Some((Rung::Cut, 0, 0, 1))),
        (Reason::Window, "u 4000 4000", "40000", 8_000, Some((Rung::Cut, 0, 4, 1))),
        // So is what came with it from steps of another branch that cannot be dropped, before the step in progress.
        (Reason::Cold, "u 100", "40000 a ? 40000 a u", 8_000, Some((Rung::Cut, 0, 6, 1))),
        (Reason::Cold, "u 100", "? 40000 a u", 8_000, Some((Rung::Cut, 0, 3, 1))),
        (Reason::Cold, "u 100", "? 40000 a u 4000", 8_000, Some((Rung::Cut, 0, 3, 1))),
        (Reason::Cold, "u 100", "? 4000 a u 40000", 8_000, Some((Rung::Cut, 0, 3, 2))),
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
        let after = protocol::apply_verified(protocol, &request, &outcome.plan, &NoMemo).unwrap();
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
        // If it is switched off, nothing of the kind is done.
        policy.ladder.enabled = false;
        let mut thread = Thread::default();
        thread.send(&talk(&words(before)), &policy, &Facts::default(), true);
        let off = thread.send(&request, &policy, &facts, true).event.map(|event| event.rung);
        assert!(off.is_none_or(|rung| rung == Rung::Clear), "{off:?}");
    }
}

#[test]
fn truncated_results_free_only_what_is_left_of_them() {
    let policy = Policy { ladder: ladder::Settings::default(), ..policy(Reason::Window) };
    let facts = Facts { window: Some(8_000), ..Facts::default() };
    let [remembered, read_back] = [true, false].map(|memory| {
        let mut thread = Thread::default();
        let mut send = |short: &str| thread.send(&talk(&words(short)), &policy, &facts, memory).event;
        ["u", "u 40000", "u 40000 9000 9000"].map(|talk| send(talk).map(|event| event.freed_bytes))
    });
    assert_eq!(remembered, read_back);
}

/// The requests of a talk that have events. It begins with `floor` tokens that have to stay, and each request adds 200;
/// the answers may have `asked`, of which `counted` are counted with the prompt.
fn events_beside(floor: usize, asked: Option<u64>, counted: u64) -> Vec<usize> {
    let said = |role: &str, bytes: usize| format!(r#"{{"role":"{role}","content":"{}"}}"#, "x".repeat(bytes));
    let policy = Policy { ladder: ladder::Settings::default(), ..policy(Reason::Window) };
    let facts =
        Facts { window: Some(20_000), max_output: asked, counted_output: counted, ..Facts::default() };
    let (mut thread, mut messages, mut events) =
        (Thread::default(), vec![said("user", floor * 4)], Vec::new());
    let max_tokens = asked.map_or_else(String::new, |asked| format!(r#","max_tokens":{asked}"#));
    // Answers of 500 bytes of which a note repeats nothing.
    let reminder = format!("<system-reminder>{}</system-reminder>", "x".repeat(500 - 35));
    let answer = format!(r#"{{"role":"assistant","content":"{reminder}"}}"#);
    for request in 0..24 {
        let body = format!(r#"{{"model":"m"{max_tokens},"messages":[{}]}}"#, messages.join(","));
        let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        let outcome = thread.send(&talk, &policy, &facts, request % 5 > 0);
        events.extend(outcome.event.map(|_| request));
        messages.extend([answer.clone(), said("user", 236)]);
    }
    events
}

/// If what has to stay is too long by itself, the rest is not dropped at every request for nothing.
#[test]
fn an_unremovable_excess_does_not_drop_the_rest_at_each_request() {
    for (floor, asked, counted, expected) in [
        // Half of the window is kept free for the answer, and the estimate may be wrong by 1,000: 9,000 tokens are
        // left. Dropping messages does not achieve that, but frees 15 % of it.
        (12_000, Some(64_000), 0, &[9, 17][..]),
        // There is room for a short answer for a while.
        (16_000, Some(1_000), 1_000, &[10, 20]),
        (15_000, None, 0, &[5, 10, 15, 20]),
        // There is no room, or the prompt is refused: whatever helps is done.
        (16_000, None, 0, &[3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]),
        (10_500, Some(8_000), 8_000, &[3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]),
        // Enough goes for some requests.
        (14_000, None, 0, &[5, 10, 15, 20]),
    ] {
        assert_eq!(events_beside(floor, asked, counted), expected, "{floor} {asked:?} {counted}");
    }
}

/// A long run in a small window: room is made again and again, but not too often, and between events nothing that was
/// sent changes.
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
        let after = protocol::apply_verified(protocol, &request, &outcome.plan, &NoMemo).unwrap();
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

/// If clearing the oldest results costs too much for what the thread has paid so far, later ones that free as much go:
/// the message of the first of them.
#[test]
fn results_too_costly_to_clear_are_passed_over_for_later_ones() {
    const PLAIN: Rates = Rates { read: 1.0, write: 1.0 };
    for (kind, size, first, rates, expected) in [
        // A long thread has paid enough.
        (clear::Policy::Worth, 400, 1, Rates::USUAL, 2),
        (clear::Policy::Worth, 800, 1, Rates::USUAL, 22),
        (clear::Policy::Worth, 8_000, 9, Rates::USUAL, 6),
        (clear::Policy::Worth, 8_000, 9, PLAIN, 2),
        (clear::Policy::Oldest, 8_000, 9, Rates::USUAL, 2),
    ] {
        let mut policy = policy(Reason::Window);
        policy.clear.policy = kind;
        let facts = Facts { window: Some(25_000), rates: Some(rates), ..Facts::default() };
        let (mut thread, mut so_far) = (Thread::default(), words("u"));
        so_far.extend(std::iter::repeat_n(size.to_string(), first));
        let event = (0..200).find_map(|_| {
            let event = thread.send(&talk(&so_far), &policy, &facts, true).event;
            so_far.push(size.to_string());
            event
        });
        let event = event.unwrap();
        let case = format!("{kind:?} {size} {first} {rates:?}");
        assert_eq!(event.first_message, expected, "{case}: {event:?}");
        let account = thread.standing.as_ref().unwrap().account();
        let is_bounded = account.paid <= 1.2 * account.direct;
        assert_eq!(is_bounded, kind == clear::Policy::Worth, "{case}: {account:?}");
    }
}

/// While a client summarises its history, nothing is removed from it, unless the provider refuses it.
#[test]
fn nothing_is_removed_from_a_clients_compaction_unless_it_overflows() {
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

/// A request without the tools that earlier ones had may be a request for a summary too, whatever it says. If the
/// thread continues without them, it was not.
#[test]
fn nothing_is_removed_once_the_tools_are_gone_unless_it_overflows() {
    let mut policy = policy(Reason::Eager);
    policy.clear.gate = vec![Reason::Eager, Reason::Window];
    policy.ladder.enabled = true;
    let refused = Facts { overflow: Some(Overflow::default()), ..Facts::default() };
    for (had_tools, facts, expected) in [
        (false, Facts::default(), [true, false, false]),
        (true, Facts::default(), [false, false, true]),
        (true, Facts { window: Some(8_000), ..Facts::default() }, [false, false, true]),
        (true, refused, [true, true, false]),
    ] {
        let with_tools = |words: &str| Conversation { has_tools: true, ..talk(&self::words(words)) };
        let mut thread = Thread::default();
        thread.send(&with_tools("u 4000 4000 4000 4000"), &policy, &Facts::default(), true);
        let facts = Facts { had_tools, ..facts };
        let asked = ["a u", "a u", "a u a u"];
        let found = asked.map(|then| {
            let request = talk(&words(&format!("u 4000 4000 4000 4000 {then}")));
            thread.send(&request, &policy, &facts, true).event.is_some()
        });
        assert_eq!(found, expected, "{facts:?}");
    }
}

/// After a provider's refusal, room is made even for a request that was made before, by the size that the refusal
/// states.
#[test]
fn room_is_made_by_the_size_stated_in_an_overflow() {
    let policy = {
        let mut policy = policy(Reason::Cold);
        policy.ladder.enabled = true;
        policy
    };
    let request = talk(&words("u 4000 4000 4000 4000 4000"));
    let stated = |prompt| Some(Overflow { prompt, has_limit: true, is_last: false });
    let unstated = |prompt| Some(Overflow { prompt, ..Overflow::default() });
    let last = |overflow: Option<Overflow>| overflow.map(|told| Overflow { is_last: true, ..told });
    for (overflow, window, expected) in [
        (None, Some(6_000), None),
        // It holds twice the tokens that are estimated: 10,000 for 20,500 bytes.
        (stated(Some(10_000)), Some(9_000), Some(8)),
        (stated(None), Some(9_000), Some(8)),
        (unstated(None), None, Some(8)),
        (stated(Some(10_000)), Some(15_000), Some(4)),
        // It should have fitted.
        (stated(Some(10_000)), Some(272_000), Some(6)),
        (unstated(Some(10_000)), Some(272_000), Some(6)),
        (unstated(Some(10_000)), Some(15_000), Some(8)),
        // The window is far smaller than assumed.
        (last(stated(None)), Some(272_000), Some(6)),
        (last(unstated(None)), Some(272_000), Some(8)),
    ] {
        let facts = Facts { window, overflow, ..Facts::default() };
        let mut thread = Thread { sent: request.messages.len(), ..Thread::default() };
        let outcome = thread.send(&request, &policy, &facts, false);
        assert_eq!(outcome.event.map(|event| event.dropped), expected, "{overflow:?} {window:?}");
    }
}

/// Where the provider holds the history, only the request's own results can be cut: by as much as it is too long, or by
/// half each time if that is not known.
#[test]
fn results_are_truncated_if_the_provider_holds_the_history() {
    let stated = |prompt| Some(Overflow { prompt: Some(prompt), has_limit: true, is_last: false });
    let unstated = Some(Overflow::default());
    for (name, sizes, overflow, window, times, expected) in [
        ("it is not refused", &[40_000][..], None, Some(5_000), 1, None),
        ("a little too long", &[40_000, 40_000], stated(22_000), Some(25_096), 1, Some(75_000..76_500)),
        ("the largest give", &[40_000, 5_000], stated(22_000), Some(25_096), 1, Some(40_000..41_500)),
        ("it does not help", &[40_000], stated(99_000), Some(25_096), 1, None),
        ("nothing is long", &[1_000, 1_000], unstated, Some(25_096), 1, None),
        ("no figures", &[40_000, 40_000], unstated, Some(200_000), 1, Some(39_000..41_000)),
        ("no figures, again", &[40_000, 40_000], unstated, Some(200_000), 2, Some(19_000..21_000)),
        ("no window", &[40_000], unstated, None, 1, Some(19_000..21_000)),
        (
            "a prompt as long as known to fit",
            &[40_000],
            stated(9_000),
            Some(200_000),
            1,
            Some(19_000..21_000),
        ),
    ] {
        let result = |(at, size): (usize, &usize)| {
            let output = format!("wor{at} ").repeat(size / 5);
            format!(r#"{{"type":"function_call_output","call_id":"c{at}","output":"{output}"}}"#)
        };
        let input: Vec<String> = sizes.iter().enumerate().map(result).collect();
        let input = input.join(",");
        let body = format!(r#"{{"model":"m","previous_response_id":"r","input":[{input}]}}"#);
        let dialect = protocol::named("openai-responses").unwrap();
        let request = dialect.index(&Bytes::from(body), &NoMemo).unwrap();
        let facts = Facts { window, overflow, bytes_per_token: 4.0, ..Facts::default() };
        let (mut applied, mut found) = (Vec::new(), None);
        for attempt in 0..times {
            let sent = if attempt > 0 { request.messages.len() } else { 0 };
            let past = Past { sent, applied: &applied, ..Past::nothing() };
            let outcome = plan(&request, past, &Policy::default(), &facts, &|_| "x".into());
            let after = protocol::apply_verified(dialect, &request, &outcome.plan, &NoMemo).unwrap();
            assert_eq!(after.continues, request.continues, "{name}");
            let texts = (0..after.messages.len()).flat_map(|message| after.parts_of(message));
            let texts = texts.filter_map(|(id, _)| after.text(id, 0)).map(|text| text.len());
            found = outcome.event.as_ref().map(|event| (texts.sum::<usize>(), event.rung, event.dropped));
            applied = outcome.applied;
        }
        let is_expected = match (&found, &expected) {
            (Some((bytes, Rung::Cut, 0)), Some(expected)) => expected.contains(bytes),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{name}: {found:?} is not {expected:?}");
    }
}

/// The provider's own figure applies to what it has seen; the rest is estimated, and an estimate needs a margin.
#[test]
fn the_window_level_uses_the_providers_figure_or_an_estimate() {
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

/// An image counts as an image, wherever it is and however it is encoded, and makes no room necessary.
#[test]
fn images_do_not_count_as_text_for_the_window() {
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

/// Where a provider reports that a prompt is too long, no message is dropped because of an estimate that may be far too
/// high.
#[test]
fn messages_are_not_dropped_while_the_prompt_may_fit() {
    // 20,500 bytes: about 10,200 tokens, and 2,600 at least. Half of a window this small is kept free for the answer.
    let request = talk(&words("u 4000 4000 4000 4000 4000"));
    let told = Facts { refuses: true, bytes_per_token: 2.0, ..Facts::default() };
    let sent = request.messages.len() - 2;
    let elsewhere = Facts { measured_elsewhere: true, ..told };
    let by = |measured, facts: Facts| Facts { measured: Some(measured), ..facts };
    let count = Estimate::Bytes4Ceil;
    for (name, facts, window, settings, expected) in [
        ("nobody says", Facts { refuses: false, ..told }, 7_500, window::Settings::default(), true),
        ("it may fit", told, 7_500, window::Settings::default(), false),
        ("it cannot", told, 4_000, window::Settings::default(), true),
        ("it fits", told, 40_000, window::Settings::default(), false),
        (
            "it was refused",
            Facts { overflow: Some(Overflow::default()), ..told },
            7_500,
            window::Settings::default(),
            true,
        ),
        ("most is known", by((sent + 2, 5_100), told), 7_500, window::Settings::default(), true),
        ("much is new", by((sent, 1_500), told), 7_500, window::Settings::default(), false),
        ("much is known", by((sent, 3_300), told), 7_500, window::Settings::default(), true),
        ("by another model", by((sent + 2, 5_100), elsewhere), 7_500, window::Settings::default(), false),
        (
            "the window is the user's",
            told,
            40_000,
            window::Settings { size: Some(7_500), ..window::Settings::default() },
            true,
        ),
        ("so is the count", told, 7_500, window::Settings { count, ..window::Settings::default() }, true),
    ] {
        let mut policy = policy(Reason::Cold);
        (policy.ladder.enabled, policy.window) = (true, settings);
        let facts = Facts { window: Some(window), ..facts };
        let outcome = Thread { sent, ..Thread::default() }.send(&request, &policy, &facts, false);
        assert_eq!(outcome.event.is_some(), expected, "{name}: {:?}", outcome.level);
        let waits = ["it may fit", "much is new", "by another model"].contains(&name);
        assert_eq!(outcome.level.unwrap().waits, waits, "{name}");
        // What is cleared can be read again.
        policy.clear.gate = vec![Reason::Window];
        let event = Thread { sent, ..Thread::default() }.send(&request, &policy, &facts, false).event;
        assert_eq!(event.is_some(), expected || waits, "{name}: {event:?}");
        assert!(
            !waits || event.is_some_and(|event| event.rung == Rung::Clear && event.cleared > 0),
            "{name}"
        );
    }
}
