//! The gateway's own marks, and time: what is written to the cache expires after a while, read or not.

mod bills;
mod provider;
mod talks;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::rig::{Rig, headers, prices, wait};
use crate::planner::{Fate, Policy};
use crate::protocol;

use bills::{beginnings_at, routed, shares, shares_at};
use provider::{Forgets, Provider};

const MINUTE: i64 = 60_000;

/// The most that a client has paid at any time, as a share of what it would have paid without the gateway's marks: 15 %
/// more. A thousandth is for rounding.
const BOUND: f64 = 1.151;
/// The same if an entry is expected that is not there: it costs its premium once more until the answer shows that.
const BOUND_WITH_ONE_MORE_WRITE: f64 = 1.2;
/// The most that thirty requests have cost if nothing of what they wrote was there the next time.
const NOTHING_KEPT: f64 = 1.04;

/// The instructions of each request.
type Instructions<'a> = &'a dyn Fn(usize) -> Value;

/// A client's requests: a name, whether they are one session, and the bodies.
type Requests<'a> = (&'static str, bool, &'a dyn Fn(usize) -> Bytes);

/// A request with these messages.
fn body_of(messages: &[impl Serialize]) -> Bytes {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string().into()
}

/// A request with these messages after instructions.
fn body_after(instructions: &impl Serialize, messages: &[impl Serialize]) -> Bytes {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": instructions, "messages": messages})
        .to_string()
        .into()
}

/// Whether each beginning of a conversation, which cost these shares, is within its bound.
fn are_within_bound(shares: &[f64]) -> bool {
    let bound = |count: usize| if count <= 3 { BOUND_WITH_ONE_MORE_WRITE } else { BOUND };
    shares.iter().zip(1..).all(|(share, count)| *share <= bound(count))
}

/// Whatever a client without marks sends, and whenever it stops, it has paid at most 15 % more than without the
/// gateway's marks, and much less if its pauses are shorter than its provider's retention.
#[test]
fn marks_for_a_client_without_marks_stay_within_the_cost_bound() {
    let words = |role: &str, text: String| json!({"role": role, "content": text});
    let said = |at: usize| words(["user", "assistant"][at % 2], format!("{at} {}", "words ".repeat(200)));
    let talk: Vec<Value> = (0..80).map(said).collect();
    let body = |messages: usize, last: Option<(&str, usize)>| {
        let last =
            last.map(|(text, at)| words("user", format!("{text} {at} {}", "now ".repeat(9 + 97 * at % 151))));
        let messages: Vec<&Value> = talk[..messages].iter().chain(&last).collect();
        body_of(&messages)
    };
    let marked = |body: Bytes| {
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        let mark = json!({"type": "ephemeral"});
        body["system"] = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
        Bytes::from(body.to_string())
    };
    // Like frameworks that mark what they begin with, and nothing that follows.
    let marked_at = |at: usize, body: Bytes| {
        let mut body: Value = serde_json::from_slice(&marked(body)).unwrap();
        let (text, mark) = (body["messages"][at]["content"].take(), json!({"type": "ephemeral"}));
        body["messages"][at]["content"] = json!([{"type": "text", "text": text, "cache_control": mark}]);
        Bytes::from(body.to_string())
    };
    let begun = |body| marked_at(0, body);
    // Like those that mark what the user said last, or the last of their examples.
    let cases: [Requests<'_>; 17] = [
        ("goes on", true, &|at| body(2 * at + 1, None)),
        ("goes on from half-way", true, &|at| body(2 * at + 31, None)),
        ("a state at the end", true, &|at| body(2 * at + 1, Some(("state", at)))),
        ("a state at the end, from half-way", true, &|at| body(2 * at + 31, Some(("state", at)))),
        ("the same", true, &|_| body(9, None)),
        ("the same in other sessions", false, &|_| body(9, None)),
        ("examples", true, &|at| body(36, Some(("question", at)))),
        ("examples in other sessions", false, &|at| body(36, Some(("question", at)))),
        ("another session each time", false, &|at| body(2 * at + 1, None)),
        ("goes on behind instructions that the client marks", true, &|at| marked(body(2 * at + 1, None))),
        ("the same behind marked instructions", true, &|_| marked(body(9, None))),
        ("the same behind marked instructions in other sessions", false, &|_| marked(body(9, None))),
        ("goes on behind a first message that the client marks", true, &|at| begun(body(2 * at + 1, None))),
        ("goes on from half-way behind a marked first message", true, &|at| begun(body(2 * at + 31, None))),
        ("the same behind a marked first message", true, &|_| begun(body(9, None))),
        ("a state at the end, behind a marked first message", true, &|at| {
            begun(body(2 * at + 1, Some(("state", at))))
        }),
        ("goes on behind a mark that moves now and then", true, &|at| {
            marked_at(at / 10 * 20, body(2 * at + 1, None))
        }),
    ];
    // Here the client already has all that can be had: nothing must be lost.
    let served: [Requests<'_>; 3] = [
        ("marked examples", true, &|at| marked_at(34, body(36, Some(("question", at))))),
        ("marked examples in other sessions", false, &|at| marked_at(34, body(36, Some(("question", at))))),
        ("another session each time, marked half-way", false, &|at| marked_at(at, body(2 * at + 1, None))),
    ];
    // Minutes between the requests, and before each fifth; how many times each is sent until it is answered; and the
    // most that all of them may cost.
    for (pause, fifth, tries, most) in
        [(1, 1, 1, 0.5), (10, 10, 1, BOUND), (10, 1, 1, BOUND), (1, 1, 2, 0.5), (10, 1, 4, BOUND)]
    {
        let cases = cases.iter().map(|case| (case, most)).chain(served.iter().map(|case| (case, BOUND)));
        for ((case, is_one, body), most) in cases {
            let request = |at: usize| {
                let (again, at) = (at % tries, at / tries);
                let session = if *is_one { "one".to_owned() } else { at.to_string() };
                let pause = if at.is_multiple_of(5) { fifth } else { pause };
                (if again > 0 { MINUTE / 60 } else { MINUTE * pause }, session, body(at))
            };
            let requests: Vec<_> = (0..20 * tries).map(request).collect();
            let (worst, all) = shares(&requests, &|at| at % tries + 1 == tries);
            assert!(worst <= BOUND && all <= most, "{case}, {pause} {fifth} {tries}: {worst:.3} {all:.3}");
        }
    }
}

/// A mark that the gateway adds after a client's one-hour mark expires after minutes, and costs no more than any other.
#[test]
fn marks_after_a_clients_hour_mark_stay_within_the_cost_bound() {
    let said = |at: usize| {
        let mut block = json!({"type": "text", "text": format!("{at} {}", "words ".repeat(400))});
        if at == 2 {
            block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
        }
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": [block]})
    };
    let request = |minutes: i64, at: usize| {
        let messages: Vec<Value> = (0..2 * at + 3).map(said).collect();
        (MINUTE * minutes, "one".to_owned(), body_of(&messages))
    };
    for (pauses, most) in [(&[1][..], 0.25), (&[7], 1.03), (&[7, 1], 0.8), (&[7, 1, 1], 0.65)] {
        let requests: Vec<_> = (0..30).map(|at| request(pauses[at % pauses.len()], at)).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{pauses:?}: {worst:.3} {all:.3}");
    }
}

/// The gateway's marks last for minutes, and are not mistaken for the client's one-hour marks before them.
#[test]
fn kept_long_is_booked_only_if_all_marks_last_an_hour() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let system = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    let said = |at: usize| {
        let words = json!([{"type": "text", "text": format!("{at} {}", "words ".repeat(200))}]);
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": words})
    };
    for dialect in ["anthropic", "openai-chat"] {
        let rig = Rig::new();
        let core = rig.core(rig.store("store"), Policy::default(), prices(0));
        let told = [1, 3, 5, 7].map(|count| {
            wait(MINUTE);
            let messages: Vec<Value> = (0..count).map(said).collect();
            let body = body_after(&system, &messages);
            let body = if dialect == "anthropic" { body } else { routed(&body) };
            let sent = rig.send(&core, protocol::named(dialect).unwrap(), &headers("k", "one"), &body);
            core.lineage.ended(sent.facts.place.as_ref().unwrap(), Fate::Billed);
            let left = String::from_utf8(sent.body.as_ref().unwrap_or(&body).to_vec()).unwrap();
            let is_all_long = left.matches("cache_control").count() == left.matches(r#""1h""#).count();
            assert_eq!(sent.facts.cache.kept_long, is_all_long, "{dialect} {count} {left}");
            is_all_long
        });
        assert!(told.contains(&true) && told.contains(&false), "{dialect} {told:?}");
    }
}

/// A conversation that never reads what it has written loses one stake, not one with each request.
#[test]
fn a_conversation_that_never_reads_its_cache_loses_one_stake() {
    let long = "Be brief. ".repeat(900);
    let text = |text: String| json!({"type": "text", "text": text});
    let said = |at: usize| {
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": format!("{at} {}", "words ".repeat(400))})
    };
    let request = |system: Value, minutes: f64, at: usize| {
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        ((MINUTE as f64 * minutes) as i64, "one".to_owned(), body_after(&system, &messages))
    };
    let clock = |at: usize| json!(format!("{long}Now {at}."));
    let blocks = |at: usize| json!([text(long.clone()), text(format!("Now {at}."))]);
    let marked = |first: &str, behind: String| {
        let mark = json!({"type": "ephemeral"});
        json!([{"type": "text", "text": first, "cache_control": mark}, text(behind)])
    };
    let in_front = |at: usize| marked(&long, format!("Now {at}."));
    let same = |_: usize| json!(long);
    let few = |_: usize| marked("Be brief.", long.repeat(4));
    let nothing = Forgets::Nothing;
    let cases: [(&str, Instructions<'_>, f64, Forgets); 7] = [
        ("a clock in the instructions", &clock, 1.0, nothing),
        ("a clock in a block of its own", &blocks, 1.0, nothing),
        ("a clock behind what the client marks", &in_front, 1.0, nothing),
        ("each answer is read for long", &same, 7.0, nothing),
        ("each answer is read for long, behind what is marked", &few, 7.0, nothing),
        ("a provider that keeps nothing", &same, 1.0, Forgets::All),
        ("a provider that keeps nothing of what the client marks either", &in_front, 1.0, Forgets::All),
    ];
    for (case, system, minutes, forgets) in cases {
        let requests: Vec<_> = (0..30).map(|at| request(system(at), minutes, at)).collect();
        let provider = Provider { forgets, ..Provider::default() };
        let (worst, all) = shares_at(provider, &requests, &|_| true);
        // An entry that is expected to be there costs its premium once more until the answer shows that it was not.
        let (bound, most) =
            if forgets == nothing { (BOUND, 1.03) } else { (BOUND_WITH_ONE_MORE_WRITE, NOTHING_KEPT) };
        assert!(worst <= bound && all <= most, "{case}: {worst:.3} {all:.3}");
    }
    // What is dropped by chance, now and then, is written again; with two alternating preludes, each has entries of its
    // own.
    let two = |at: usize| json!(format!("{long}{}", at % 2));
    let cases: [(&str, Instructions<'_>, &'static [usize], f64); 3] = [
        ("as ever", &same, &[], 0.25),
        ("dropped twice", &same, &[10, 13], 0.4),
        ("two in turn", &two, &[], 0.4),
    ];
    for (case, system, drops, most) in cases {
        let requests: Vec<_> = (0..30).map(|at| request(system(at), 1.0, at)).collect();
        let provider = Provider { drops: drops.to_vec(), ..Provider::default() };
        let (worst, all) = shares_at(provider, &requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{case}: {worst:.3} {all:.3}");
    }
    // If requests come in pairs, every second one reads; a client that is only slow at times loses little.
    for (pauses, most) in
        [(&[7.0, 1.0][..], 0.8), (&[1.0, 1.0, 7.0], 0.65), (&[7.0, 7.0, 1.0, 1.0, 1.0], 0.8)]
    {
        let requests: Vec<_> = (0..30).map(|at| request(same(at), pauses[at % pauses.len()], at)).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{pauses:?}: {worst:.3} {all:.3}");
    }
}

/// If what was written is not there the next time, it costs its premium once more until the answer shows that. From
/// then on the conversation stays within its bound, even if tools and instructions are read, and if each request leaves
/// out the last words of the one before it.
#[test]
fn marks_for_a_forgetful_cache_stay_within_the_cost_bound() {
    let long = "Be brief. ".repeat(900);
    let text = |text: String| json!({"type": "text", "text": text});
    let marked = |behind: Option<String>| {
        let mark = json!({"type": "ephemeral"});
        let first = json!({"type": "text", "text": long, "cache_control": mark});
        json!([first].into_iter().chain(behind.map(text)).collect::<Vec<_>>())
    };
    let (same, kept) = (|_: usize| json!(long), |_: usize| marked(None));
    let in_front = |at: usize| marked(Some(format!("Now {at}.")));
    let clients: [(&str, Instructions<'_>); 3] =
        [("no marks", &same), ("marked instructions", &kept), ("a clock behind them", &in_front)];
    for (client, system) in clients {
        for (forgets, state) in
            [(Forgets::All, ""), (Forgets::All, "now "), (Forgets::History, ""), (Forgets::History, "now ")]
        {
            let request = |at: usize| {
                let role = |message: usize| ["user", "assistant"][message % 2];
                let said = |message: usize| json!({"role": role(message), "content": format!("{message} {}", "words ".repeat(400))});
                let last = json!({"role": "user", "content": format!("{at} {}", state.repeat(100))});
                let last = Some(last).filter(|_| !state.is_empty());
                let messages: Vec<Value> = (0..=2 * at).map(said).chain(last).collect();
                (MINUTE / 6, "one".to_owned(), body_after(&system(at), &messages))
            };
            let requests: Vec<_> = (0..30).map(request).collect();
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            assert!(are_within_bound(&all) && all[29] <= NOTHING_KEPT, "{client} {state}: {all:.3?}");
        }
    }
}

/// If the last message ends with words that the next request leaves out or replaces, what precedes them is read; if
/// nothing is kept, the conversation stays within its bound.
#[test]
fn the_prefix_before_replaced_last_words_is_read_from_the_cache() {
    let system = json!("Be brief. ".repeat(900));
    let request = |at: usize, every: usize, instead: &str| {
        let block = |text: String| json!({"type": "text", "text": text});
        let said = |message: usize| {
            let state = match message / 2 {
                turn if turn % every + 1 < every => String::new(),
                turn if turn == at => format!("{at} {}", "now ".repeat(100)),
                _ => instead.to_owned(),
            };
            let state = Some(state).filter(|state| !state.is_empty() && message.is_multiple_of(2));
            let text = block(format!("{message} {}", "words ".repeat(1_200)));
            let blocks: Vec<Value> = [text].into_iter().chain(state.map(block)).collect();
            let role = ["user", "assistant"][message % 2];
            json!({"role": role, "content": blocks})
        };
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        (MINUTE / 6, "one".to_owned(), body_after(&system, &messages))
    };
    for (every, instead, most) in
        [(1, "", 0.3), (1, "gone", 0.3), (2, "", 0.35), (2, "gone", 0.35), (5, "", 0.27), (5, "gone", 0.27)]
    {
        let requests: Vec<_> = (0..30).map(|at| request(at, every, instead)).collect();
        for (forgets, most) in
            [(Forgets::Nothing, most), (Forgets::History, NOTHING_KEPT), (Forgets::All, NOTHING_KEPT)]
        {
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            let is_within = are_within_bound(&all);
            assert!(is_within && all[29] <= most, "{every} {instead} {forgets:?}: {all:.3?}");
        }
    }
}

/// If each request reaches one of several caches at random, missing entries are there once all caches are filled.
#[test]
fn marks_pay_when_requests_reach_one_of_several_caches() {
    let mark = json!({"type": "ephemeral"});
    let marked = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    for (client, system) in [("no marks", json!("Be brief. ".repeat(900))), ("marked instructions", marked)] {
        let request = |at: usize| {
            let role = |message: usize| ["user", "assistant"][message % 2];
            let said = |message: usize| json!({"role": role(message), "content": format!("{message} {}", "words ".repeat(200))});
            let messages: Vec<Value> = (0..=2 * at).map(said).collect();
            (MINUTE / 6, "one".to_owned(), body_after(&system, &messages))
        };
        let requests: Vec<_> = (0..30).map(request).collect();
        for (others, most) in [(1, 0.32), (2, 0.42), (3, 0.52), (7, 0.82)] {
            let shares = [0, 1, 2, 3].map(|seed| {
                let provider = Provider { others, seed, ..Provider::default() };
                let all = beginnings_at(provider, &requests, &|_| true);
                let is_within = are_within_bound(&all);
                assert!(is_within, "{client} {others} {seed}: {all:.3?}");
                all[29]
            });
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!(mean <= most, "{client} {others}: {shares:.3?}");
        }
    }
}

/// Rejected requests have cost nothing, however often they are sent, and whether they are sent again or abandoned.
#[test]
fn refused_requests_do_not_raise_the_stake() {
    let text = "words ".repeat(2_000);
    let said = |at: usize, again: usize| json!({"role": "user", "content": format!("{at} {again} {text}")});
    let answer = |at: usize| json!({"role": "assistant", "content": format!("{at} {text}")});
    // The user's next words follow the rejected request, or replace it.
    for (says, is_behind) in [(false, false), (true, false), (true, true)] {
        for tries in 1..6 {
            let mut talk = Vec::new();
            let mut requests = Vec::new();
            for at in 0..4 * tries {
                let (turn, again) = (at / tries, at % tries);
                if again == 0 || is_behind {
                    talk.push(said(turn, again));
                } else if says {
                    talk.pop();
                    talk.push(said(turn, again));
                }
                requests.push((MINUTE / 60, "one".to_owned(), body_of(&talk)));
                if again + 1 == tries {
                    talk.push(answer(turn));
                }
            }
            let (worst, all) = shares(&requests, &|at| at % tries + 1 == tries);
            assert!(worst <= BOUND, "{says} {is_behind} {tries}: {worst:.3} {all:.3}");
        }
    }
}

/// An agent that marks only its instructions, or its first message too, with results that are cut. What the gateway
/// saves may be staked, because until the history is marked all of it is paid for at the plain price.
#[test]
fn savings_from_shortening_may_be_staked() {
    let mark = json!({"type": "ephemeral"});
    let marked = json!([{"type": "text", "text": "Look around.", "cache_control": mark}]);
    for first in [json!("Look around."), marked] {
        stakes_what_is_saved(&first);
    }
}

fn stakes_what_is_saved(first: &Value) {
    let mut talk = vec![json!({"role": "user", "content": first})];
    for (at, lines) in [4_usize, 2_000, 4_000, 100, 10, 10].into_iter().enumerate() {
        let id = format!("toolu_{at}");
        let call =
            json!({"type": "tool_use", "id": id, "name": "bash", "input": {"command": format!("make {at}")}});
        let text: Vec<_> = (0..lines).map(|line| format!("{at} {line} compiled without a warning")).collect();
        talk.push(json!({"role": "assistant", "content": [call]}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": text.join("\n")});
        talk.push(json!({"role": "user", "content": [result]}));
    }
    let mark = json!({"type": "ephemeral"});
    let system = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    let request = |at: usize| {
        let messages = &talk[..=2 * at];
        (MINUTE, "one".to_owned(), body_after(&system, messages))
    };
    let requests: Vec<_> = (0..=6).map(request).collect();
    let (worst, all) = shares(&requests, &|_| true);
    assert!(worst <= BOUND && all <= 0.3, "{worst:.3} {all:.3}");
}
