//! What is protected, what may be cleared, and in which order: worked examples, in tokens.

use std::sync::Arc;

use super::*;
use crate::conversation::PartId;
use crate::strategy::{Action, View};

const TOKENS: u32 = BYTES_PER_TOKEN as u32;

/// A history in short form: `u` the user, `a` an answer without calls, and steps of the model with the results of its
/// calls, as in `r1=30000+v2=500`. `r` is any result, `v` a view of a file, `e` an error, `p` one that a rule protects.
fn history(short: &str) -> History {
    let mut history = History::default();
    for (message, word) in short.split_whitespace().enumerate() {
        match word {
            "u" => {
                history.begin_turn();
                history.add_part(part(message, 0), 4);
            }
            "a" => {
                history.begin_step();
                history.add_part(part(message, 0), 4);
            }
            results => {
                history.begin_step();
                for (at, result) in results.split('+').enumerate() {
                    add(&mut history, part(message, at), result);
                }
            }
        }
    }
    history
}

fn part(message: usize, part: usize) -> PartId {
    PartId { message: message as u32, part: part as u32 }
}

fn add(history: &mut History, id: PartId, short: &str) {
    let (name, tokens) = short.split_once('=').unwrap();
    let (kind, number) = name.split_at(1);
    let call = number.parse().unwrap();
    let action = match kind {
        "v" => Action {
            class: Class::View,
            views: [View::of(name.into(), View::ALL)].into(),
            mentions: [name.into()].into(),
            call,
            ..Action::default()
        },
        _ => Action { class: Class::Run, call, ..Action::default() },
    };
    let action = Arc::new(action);
    history.record_call(&action);
    let outcome = ToolResult {
        action,
        content: u128::from(call),
        is_error: kind == "e",
        has_media: kind == "i",
        tokens: tokens.parse().unwrap(),
        clearable: kind != "p",
        ..ToolResult::default()
    };
    history.add_result(id, tokens.parse::<u32>().unwrap() * TOKENS, outcome);
}

/// The pruning of an agent that writes its own history: the newest 40,000 tokens of results stay, in addition to those
/// of this turn and the one before; it acts when more than 20,000 may be removed, as the user speaks.
pub(crate) fn forty_and_twenty() -> Settings {
    Settings {
        policy: Policy::Oldest,
        protect: Protect { view_tokens: 40_000, other_tokens: 40_000, turns: 2 },
        protect_together: true,
        minimum_tokens: 20_000,
        smallest: 0,
        gate: vec![Reason::Eager],
        at_turns: true,
        ..Settings::default()
    }
}

/// The numbers of the results that may be cleared, oldest first.
fn open_in(history: &History, settings: &Settings) -> Vec<u64> {
    let found = candidates(history, &|_| false, Rates::USUAL, settings);
    found.iter().map(|candidate| number(history, candidate)).collect()
}

fn number(history: &History, candidate: &Candidate) -> u64 {
    history.items()[candidate.item].result.as_ref().unwrap().action.call
}

fn tokens(history: &History, candidate: &Candidate) -> u32 {
    history.items()[candidate.item].result.as_ref().unwrap().tokens
}

#[test]
fn results_outside_the_protected_newest_are_candidates() {
    const TALK: &str = "u r1=30000 a u r2=25000+r3=20000 a u r4=10000 a u";
    const SCREENS: &str = "u i1=50000 i2=50000 r3=50000 i4=50000 a u a u";
    let usual = forty_and_twenty();
    let forward = Settings { within_step: Within::Forward, ..usual.clone() };
    let apart = Settings { protect_together: false, ..usual.clone() };
    let masking = Settings {
        protect: Protect { view_tokens: 50_000, other_tokens: 50_000, turns: 1 },
        ..usual.clone()
    };
    let expired = Settings { policy: Policy::TypeTtl, ttl_turns: 2, ..usual.clone() };
    let of_images = |protect_images| Settings { protect_images, ..usual.clone() };
    let (none, two) = (of_images(0), of_images(2));
    let worth = Settings::default();
    let of_turns = |turns| Settings { protect: Protect { turns, ..worth.protect }, ..worth.clone() };
    let (four, five) = (of_turns(4), of_turns(5));
    let long = format!("u r1=30000 {}u r2=30000 {}u a u a u a", "a ".repeat(40), "a ".repeat(40));
    for (talk, settings, expected) in [
        // The newest images stay, however large they are; what is between them does not.
        (SCREENS, &none, &[1, 2, 3, 4][..]),
        (SCREENS, &two, &[1, 3]),
        (SCREENS, &usual, &[3]),
        // Turns are protected whatever the policy.
        (&*long, &worth, &[1, 2]),
        (&*long, &four, &[1]),
        (&*long, &five, &[]),
        // The result that crosses the limit is cleared as a whole; which one it is depends on the direction in a step.
        (TALK, &usual, &[1, 2]),
        (TALK, &forward, &[1, 3]),
        // The limit is strict.
        ("u r1=20000 a u r2=40000 a u a u", &usual, &[1]),
        ("u r1=1 a u r2=39999 a u a u", &usual, &[]),
        ("u r1=1 a u r2=40000 a u a u", &usual, &[1]),
        // A turn of many steps is protected as a whole, and so is the one before it.
        ("u a u r1=30000 r2=30000 a u r3=30000 r4=30000 r5=30000", &usual, &[]),
        ("u r1=30000 r2=30000 a u a u r3=30000 r4=30000", &usual, &[1]),
        // Errors and protected results are neither counted nor cleared.
        ("u p1=50000 r2=30000 a u e3=30000 r4=30000 a u a u", &usual, &[2]),
        ("u p1=50000 e2=50000 r3=30000 a u a u", &usual, &[]),
        // Views and the rest have separate windows, or share one.
        ("u v1=30000 r2=30000 a u v3=30000 r4=5000 a u a u", &usual, &[1, 2]),
        ("u v1=30000 r2=30000 a u v3=30000 r4=5000 a u a u", &apart, &[1]),
        // Apart from the newest turn, the result that crosses 50,000 is cleared, and all before it.
        ("u r1=25000 a u r2=35000 a u r3=20000 a u", &masking, &[1, 2]),
        ("u r1=30000 a u r2=20000 a u", &masking, &[]),
        ("u r1=30000 a u r2=300 a u r3=300 a u r4=300 a u", &expired, &[1, 2]),
    ] {
        assert_eq!(open_in(&history(talk), settings), expected, "{talk}");
    }
}

/// A cleared result is skipped: those before it are still considered, and it is not one of the newest.
#[test]
fn the_walk_skips_cleared_results() {
    let settings = forty_and_twenty();
    for (cleared, expected) in [(&[][..], &[1, 2][..]), (&[2], &[1]), (&[3], &[1]), (&[2, 3], &[])] {
        let history = history("u r1=30000 a u r2=25000 a u r3=20000 a u a u");
        let items = history.items();
        let gone =
            |at: usize| items[at].result.as_ref().is_some_and(|result| cleared.contains(&result.action.call));
        let open = candidates(&history, &gone, Rates::USUAL, &settings);
        let open: Vec<u64> = open.iter().map(|candidate| number(&history, candidate)).collect();
        assert_eq!(open, expected, "{cleared:?}");
    }
}

/// One result of 15,000 tokens a turn: cleared ones are not counted again, so that an event comes every other turn and
/// not every turn.
#[test]
fn cleared_results_do_not_count_towards_the_next_event() {
    let settings = forty_and_twenty();
    let (mut cleared, mut events) = (Vec::new(), Vec::new());
    for turn in 1..=14 {
        let before: Vec<String> = (1..turn).map(|at| format!("u r{at}=15000 a")).collect();
        let history = history(&format!("{} u", before.join(" ")));
        let gone = |at: usize| cleared.contains(&history.items()[at].part);
        let open = candidates(&history, &gone, Rates::USUAL, &settings);
        let size: u32 = open.iter().map(|candidate| tokens(&history, candidate)).sum();
        if u64::from(size) > settings.minimum_tokens {
            events.push((turn, open.iter().map(|candidate| number(&history, candidate)).collect::<Vec<_>>()));
            cleared.extend(open.iter().map(|candidate| history.items()[candidate.item].part));
        }
    }
    let expected: Vec<(u64, Vec<u64>)> =
        [6, 8, 10, 12, 14].map(|turn| (turn, vec![turn - 5, turn - 4])).into();
    assert_eq!(events, expected);
}

/// For the window, only names and the step in progress protect; the score determines what is cleared first.
#[test]
fn each_policy_orders_results_as_defined() {
    const AGES: &str = "u a u v1=450 a u r2=2800 a u a u a u a u v1=120 a u r3=90 a";
    let of = |policy| Settings { policy, smallest: 0, ..Settings::default() };
    for (talk, policy, expected) in [
        ("u r1=100 r2=200 a u r3=300", Policy::Oldest, &[1, 2][..]),
        ("u p1=100 e2=200 r3=300 a", Policy::Oldest, &[3]),
        (AGES, Policy::Oldest, &[1, 2, 1, 3]),
        // What was named recently comes last, what was never named before it.
        (AGES, Policy::Lru, &[2, 1, 3, 1]),
        (AGES, Policy::TypeTtl, &[1, 2, 1, 3]),
        (AGES, Policy::Hybrid, &[2, 1, 1, 3]),
        ("u r1=100 a u r2=300 r1=100 a", Policy::Duplicate, &[1, 2, 1]),
    ] {
        let history = history(talk);
        let order = order(&history, &|_| false, &of(policy));
        let numbers: Vec<u64> = order.iter().map(|candidate| number(&history, candidate)).collect();
        assert_eq!(numbers, expected, "{policy:?} {talk}");
    }
}

/// The least worth keeping first, until enough is freed: the results of 6, 3 and 2 turns ago.
#[test]
fn hybrid_scores_order_results_by_worth() {
    let settings = Settings { policy: Policy::Hybrid, smallest: 0, ..Settings::default() };
    let history = history("u a u a u r2=450 a u a u a u r3=2800 a u r4=120 a u a u a");
    let order = order(&history, &|_| false, &settings);
    let scores: Vec<(u64, f64)> = order
        .iter()
        .map(|candidate| (number(&history, candidate), score::keep(&history, candidate.item, &settings)))
        .collect();
    for ((result, score), (expected, near)) in scores.iter().zip([(2, 0.3568), (3, 0.5159), (4, 0.5718)]) {
        assert!(*result == expected && (score - near).abs() < 5e-5, "{scores:?}");
    }
    let freed: Vec<u32> = order.iter().map(|candidate| tokens(&history, candidate)).collect();
    assert_eq!(freed, [450, 2800, 120]);
    let weights = Weights { oldest: 0.30, priority: 0.25, type_ttl: 0.20, lru: 0.15, duplicate: 0.10 };
    let five = Settings { weights, ..settings };
    let superseded = self::history("u r1=100 a u r1=100 a");
    let keeps = |at: usize| score::keep(&superseded, at, &five);
    assert!(keeps(4) - keeps(1) > 0.10, "{} {}", keeps(4), keeps(1));
}

#[test]
fn results_with_protected_texts_are_protected() {
    let settings = |texts: &[&str]| Settings {
        protected_texts: texts.iter().map(|&text| text.to_owned()).collect(),
        ..Settings::default()
    };
    for (texts, raw, expected) in [
        (&["DO_NOT_EVICT"][..], "\"a DO_NOT_EVICT b\"", true),
        (&["DO_NOT_EVICT"], "\"do_not_evict\"", false),
        (&["", "x", "y"], "\"only y\"", true),
        (&[""], "\"anything\"", false),
        (&[], "\"DO_NOT_EVICT\"", false),
    ] {
        assert_eq!(settings(texts).protects(raw.as_bytes()), expected, "{texts:?} {raw}");
    }
    assert!(Settings::default().protects(b"DO_NOT_EVICT"));
}
