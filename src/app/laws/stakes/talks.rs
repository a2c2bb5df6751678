//! Several conversations: what one has learned about a cache applies to the others.

use bytes::Bytes;
use serde_json::{Value, json};

use super::bills::{beginnings_at, beginnings_of, bills_in, routed, shares};
use super::provider::{Forgets, Provider};
use super::{BOUND, MINUTE, are_within_bound, body_after, body_of};

/// A client for which something was cached starts its other conversations with that knowledge; if it no longer holds,
/// each of them stays within its bound.
#[test]
fn cache_knowledge_is_shared_by_conversations_of_a_client() {
    let request = |talk: usize, at: usize| {
        let role = |message: usize| ["user", "assistant"][message % 2];
        let text = |message: usize| format!("{talk} {message} {}", "words ".repeat(200));
        let said = |message: usize| json!({"role": role(message), "content": text(message)});
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let system = format!("{talk} {}", "Be brief. ".repeat(900));
        (0, (MINUTE / 6, talk.to_string(), body_after(&system, &messages)))
    };
    let requests: Vec<_> = (0..8 * 12).map(|at| request(at / 12, at % 12)).collect();
    // From the third conversation on, everything is dropped before each request.
    let dropped: Vec<usize> = (24..8 * 12).collect();
    for (others, drops, most) in [(3, &[][..], 0.69), (0, &dropped, 0.87)] {
        let shares = [0, 1, 2, 3].map(|seed| {
            let provider = Provider { others, seed, drops: drops.to_vec(), ..Provider::default() };
            let bills = bills_in("anthropic", vec![("", provider)], &requests, &|_| true);
            for talk in bills.chunks(12) {
                let all = beginnings_of(talk);
                let is_within = are_within_bound(&all);
                assert!(is_within, "{others} {seed}: {all:.3?}");
            }
            *beginnings_of(&bills).last().unwrap()
        });
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!(mean <= most, "{others}: {shares:.3?}");
    }
}

/// A server that caches nothing is tried only once, not by each conversation with it, nor by each branch.
#[test]
fn a_server_without_a_cache_is_not_tried_by_each_conversation() {
    let said = |talk: usize, message: usize| {
        let role = ["user", "assistant"][message % 2];
        json!({"role": role, "content": format!("{talk} {message} {}", "words ".repeat(900))})
    };
    let request =
        |session: usize, messages: Vec<Value>| (MINUTE / 60, session.to_string(), body_of(&messages));
    let short = |length: usize| {
        let talk = move |talk: usize| {
            (0..length)
                .map(move |at| request(talk, (0..=2 * at).map(|message| said(talk, message)).collect()))
        };
        (0..20).flat_map(talk).collect::<Vec<_>>()
    };
    // Each goes back to the same answer and continues from there.
    let branches = |length: usize| {
        let branch = move |branch: usize| {
            let talk = move |message: usize| said(if message < 4 { 0 } else { branch }, message);
            (1..=length).map(move |at| request(0, (0..=2 * at).map(talk).collect()))
        };
        (0..20).flat_map(branch).collect::<Vec<_>>()
    };
    for (case, requests) in
        [("3", short(3)), ("4", short(4)), ("branches", branches(3)), ("longer", branches(5))]
    {
        for forgets in [Forgets::All, Forgets::Nothing] {
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            let most = if forgets == Forgets::All { 1.08 } else { 0.95 };
            let late = all.iter().skip(8).copied().fold(0.0, f64::max);
            assert!(
                late <= BOUND && all.last().is_some_and(|all| *all <= most),
                "{case} {forgets:?}: {all:.3?}"
            );
        }
    }
}

/// A miss at one upstream, or in one model's cache, says nothing about another, neither to other conversations nor to
/// one that continues there.
#[test]
fn misses_of_one_upstream_or_model_do_not_affect_another() {
    let request = |talk: usize, at: usize, model: &str| {
        let role = |message: usize| ["user", "assistant"][message % 2];
        let text = |message: usize| format!("{talk} {message} {}", "words ".repeat(400));
        let said = |message: usize| json!({"role": role(message), "content": text(message)});
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body = json!({"model": model, "max_tokens": 9, "system": "Be brief. ".repeat(900), "messages": messages});
        (MINUTE / 60, talk.to_string(), Bytes::from(body.to_string()))
    };
    // Conversations by their number and where each of their requests goes; what the second upstream does; and the most
    // that everything costs at the first one.
    let one_then = |count: usize, to: usize, then: usize| [vec![to; count], vec![then; 20]].concat();
    for (case, talks, forgets, most) in [
        ("another talk", vec![vec![1; 20], vec![0; 20]], Forgets::All, 0.3),
        ("short talks", [vec![vec![1; 3]; 12], vec![vec![0; 20]]].concat(), Forgets::All, 0.3),
        ("talks that end", [vec![vec![1; 2]; 12], vec![vec![0; 4]]].concat(), Forgets::Nothing, 0.75),
        ("the same talk", vec![one_then(14, 1, 0)], Forgets::All, 0.3),
        ("the same talk, later", vec![one_then(20, 1, 0)], Forgets::All, 0.3),
        ("the same talk, the other way", vec![one_then(5, 0, 1)], Forgets::All, 0.65),
        ("in turns", vec![[0, 1].repeat(15)], Forgets::Nothing, 0.35),
        ("in turns with one that forgets", vec![[0, 1].repeat(15)], Forgets::All, 0.4),
    ] {
        for (dialect, by_model) in
            [("anthropic", false), ("anthropic", true), ("openai-chat", false), ("openai-chat", true)]
        {
            let models =
                ["claude-sonnet-4-5", if by_model { "claude-opus-4-5" } else { "claude-sonnet-4-5" }];
            let upstreams = ["first", if by_model { "first" } else { "second" }];
            let mut requests = Vec::new();
            for (talk, tos) in talks.iter().enumerate() {
                for (at, to) in tos.iter().enumerate() {
                    let (pause, session, body) = request(talk, at, models[*to]);
                    let body = if dialect == "anthropic" { body } else { routed(&body) };
                    requests.push((*to, (pause, session, body)));
                }
            }
            let forgetting = Provider { forgets, ..Provider::default() };
            let providers = vec![(upstreams[0], Provider::default()), (upstreams[1], forgetting)];
            let bills = bills_in(dialect, providers, &requests, &|_| true);
            let to = requests.iter().map(|request| request.0);
            let first: Vec<_> =
                bills.iter().zip(to).filter(|(_, to)| *to == 0).map(|(bill, _)| *bill).collect();
            let (all, first) = (beginnings_of(&bills), *beginnings_of(&first).last().unwrap());
            // Each of the first conversations has a stake of its own.
            let late = all.iter().skip(12).copied().fold(0.0, f64::max);
            assert!(first <= most && late <= BOUND, "{case} {dialect} {by_model}: {first:.3} {all:.3?}");
        }
    }
}

/// In conversations that end before anything of theirs could be read, writing only costs: a few of them show this, and
/// nothing more is written until one continues. Those that do continue are written as usual.
#[test]
fn marks_for_many_short_conversations_stay_within_the_cost_bound() {
    let request = |talk: usize, at: usize| {
        let said = |message: usize| {
            let text = format!("{talk} {message} {}", "words ".repeat(900));
            let role = ["user", "assistant"][message % 2];
            json!({"role": role, "content": text})
        };
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        (MINUTE / 60, talk.to_string(), body_of(&messages))
    };
    // The number of requests of each conversation, how many conversations run at the same time, and the most that all
    // may cost.
    for (lengths, beside, most) in [
        (&[2; 40][..], 1, 1.01),
        (&[2; 40], 8, 1.01),
        (&[1; 40], 1, 1.0),
        (&[8; 8], 1, 0.4),
        (&[8; 8], 8, 0.42),
        // One in five continues, once or for long.
        (&[2, 2, 2, 2, 3].repeat(8), 1, 1.05),
        (&[2, 2, 2, 2, 8].repeat(8), 4, 0.6),
    ] {
        let mut requests = Vec::new();
        for (group, lengths) in lengths.chunks(beside).enumerate() {
            for at in 0..lengths.iter().copied().max().unwrap_or_default() {
                let talks = (0..lengths.len()).filter(|talk| at < lengths[*talk]);
                requests.extend(talks.map(|talk| request(group * beside + talk, at)));
            }
        }
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{lengths:?} {beside}: {worst:.3} {all:.3}");
    }
    // A request that is rejected and tried again has one stake.
    let tries = (0..8).flat_map(|at| std::iter::repeat_n(at, if at == 1 { 5 } else { 1 }));
    let requests: Vec<_> = tries.map(|at| request(0, at)).collect();
    let (worst, all) = shares(&requests, &|at| !(1..5).contains(&at));
    assert!(worst <= BOUND && all <= 0.4, "{worst:.3} {all:.3}");
}

/// What small conversations gain is not lost in large ones, nor what the first requests of each gain in its last one.
/// Conversations that pay off are written again.
#[test]
fn a_small_win_does_not_pay_for_a_large_loss() {
    // The seconds before each request of a conversation, and the words of its messages, from the last request on the
    // same ones: the words of the first, of the middle ones and of the last.
    type Talk = (&'static [i64], [usize; 3]);
    const DOCUMENT: Talk = (&[1, 1], [9_000, 100, 30]);
    const CHAT: Talk = (&[1, 1, 1, 1], [900, 100, 30]);
    const PASTE: Talk = (&[1, 1, 1, 1], [900, 100, 15_000]);
    const SLOW: Talk = (&[5, 5, 400, 5, 400, 400], [3_000, 100, 30]);
    const LONG: Talk = (&[1; 12], [900, 300, 300]);
    const ENDS: Talk = (&[1, 1], [3_000, 100, 30]);
    const GOES_ON: Talk = (&[1, 1, 1], [3_000, 100, 30]);
    let requests = |talks: &[Talk]| {
        let mut requests = Vec::new();
        for (talk, (pauses, [first, middle, last])) in talks.iter().enumerate() {
            for (at, pause) in pauses.iter().enumerate() {
                let said = |message: usize| {
                    let words = match message {
                        0 => *first,
                        _ if message == 2 * pauses.len() - 2 => *last,
                        _ => *middle,
                    };
                    let role = ["user", "assistant"][message % 2];
                    json!({"role": role, "content": format!("{talk} {message} {}", "words ".repeat(words))})
                };
                let messages: Vec<Value> = (0..=2 * at).map(said).collect();
                requests.push((1_000 * pause, talk.to_string(), body_of(&messages)));
            }
        }
        requests
    };
    for (name, talks, most) in [
        ("one chat after three documents", [DOCUMENT, DOCUMENT, DOCUMENT, CHAT].repeat(10), 1.02),
        ("one chat after each document", [DOCUMENT, CHAT].repeat(20), 1.02),
        ("the last request brings much", vec![PASTE; 30], 1.02),
        ("the client pauses now and then", vec![SLOW; 30], 1.02),
        ("every third goes on once", [ENDS, ENDS, GOES_ON].repeat(15), 1.03),
        ("every fourth goes on once", [ENDS, ENDS, ENDS, GOES_ON].repeat(12), 1.02),
        ("small chats alone", vec![CHAT; 30], 0.8),
        ("long ones at the end", [vec![PASTE; 8], vec![LONG; 8]].concat(), 0.8),
        ("documents between long ones", [LONG, DOCUMENT].repeat(8), 0.75),
    ] {
        let (worst, all) = shares(&requests(&talks), &|_| true);
        assert!(worst <= BOUND && all <= most, "{name}: {worst:.3} {all:.3}");
    }
}

/// A conversation by the seconds before each of its requests, and the words of each of its messages.
fn talk(name: &str, pauses: &[i64], words: usize) -> Vec<(i64, String, Bytes)> {
    let said = |message: usize| {
        let role = ["user", "assistant"][message % 2];
        json!({"role": role, "content": format!("{name} {message} {}", "words ".repeat(words))})
    };
    let request = |(at, pause): (usize, &i64)| {
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        (1_000 * pause, name.to_owned(), body_of(&messages))
    };
    pauses.iter().enumerate().map(request).collect()
}

/// Reads count for as long as each renews what it reads, so that conversations that end do not keep slow ones from
/// being written.
#[test]
fn slow_conversations_pay_for_short_ones() {
    for (short, long, pause, most) in [
        (5, 14, 5, 0.5),
        (5, 14, 170, 0.5),
        (5, 14, 290, 0.8),
        (5, 14, 310, 1.01),
        (2, 14, 170, 0.4),
        (20, 8, 170, 0.9),
    ] {
        let round = |round: usize| {
            let ending = (0..short).flat_map(move |at| talk(&format!("{round} {at}"), &[5, 5], 900));
            ending.chain(talk(&format!("{round} long"), &vec![pause; long], 900)).collect::<Vec<_>>()
        };
        let requests: Vec<_> = (0..6).flat_map(round).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{short} {long} {pause}: {worst:.3} {all:.3}");
    }
}

/// Small conversations that an agent has during each step of a large one cost little, and do not keep it from being
/// written.
#[test]
fn conversations_during_each_step_do_not_keep_it_from_being_written() {
    for (beside, words, most) in [(1, 300, 0.4), (2, 300, 0.4), (2, 900, 0.5), (3, 150, 0.4)] {
        let round = |round: usize| {
            let steps = talk(&format!("{round} main"), &[5; 14], 700).into_iter().enumerate();
            let step = move |(at, step): (usize, (i64, String, Bytes))| {
                let side = talk(&format!("{round} side {at}"), &[1, 1, 1][..beside], words);
                std::iter::once(step).chain(side).collect::<Vec<_>>()
            };
            steps.flat_map(step).collect::<Vec<_>>()
        };
        let requests: Vec<_> = (0..4).flat_map(round).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= most, "{beside} {words}: {worst:.3} {all:.3}");
    }
}

/// A refused request counts neither as lost nor as read.
#[test]
fn refused_requests_do_not_keep_later_ones_from_being_written() {
    let tries = 4;
    let again = |(pause, session, body): (i64, String, Bytes)| {
        (0..tries).map(move |at| (if at == 0 { pause } else { 1_000 }, session.clone(), body.clone()))
    };
    let talks = (0..12).flat_map(|at| talk(&at.to_string(), &[5; 6], 900));
    let requests: Vec<_> = talks.flat_map(again).collect();
    let (worst, all) = shares(&requests, &|at| at % tries + 1 == tries);
    assert!(worst <= BOUND && all <= 0.52, "{worst:.3} {all:.3}");
}

/// The same conversation once more is another stake.
#[test]
fn conversations_that_are_repeated_lose_a_few_stakes() {
    for sessions in [1, 40] {
        let again = |at: usize| {
            let session = (at % sessions).to_string();
            let requests = talk("", &[600, 5], 900).into_iter();
            requests.map(move |(pause, _, body)| (pause, session.clone(), body))
        };
        let requests: Vec<_> = (0..40).flat_map(again).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= BOUND && all <= 1.02, "{sessions}: {worst:.3} {all:.3}");
    }
}
