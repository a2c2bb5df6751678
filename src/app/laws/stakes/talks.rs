//! Several conversations: what one has learned about a cache applies to the others.

use bytes::Bytes;
use serde_json::{Value, json};

use super::MINUTE;
use super::bills::{beginnings_at, beginnings_of, bills_in, routed, shares};
use super::provider::{Forgets, Provider};
/// A client that has found something to be cached begins its other conversations with that knowledge; if it no longer
/// holds, each is within its bound.
#[test]
fn cache_knowledge_is_shared_by_conversations_of_a_client() {
    let request = |talk: usize, at: usize| {
        let role = |message: usize| ["user", "assistant"][message % 2];
        let text = |message: usize| format!("{talk} {message} {}", "words ".repeat(200));
        let said = |message: usize| json!({"role": role(message), "content": text(message)});
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let system = format!("{talk} {}", "Be brief. ".repeat(900));
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        (0, (MINUTE / 6, talk.to_string(), Bytes::from(body.to_string())))
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
                let bound = |count: usize| if count <= 3 { 1.2 } else { 1.151 };
                let is_within = all.iter().zip(1..).all(|(share, count)| *share <= bound(count));
                assert!(is_within, "{others} {seed}: {all:.3?}");
            }
            *beginnings_of(&bills).last().unwrap()
        });
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!(mean <= most, "{others}: {shares:.3?}");
    }
}

/// A server that keeps nothing is only tried once, not by each conversation with it, nor by each branch.
#[test]
fn a_server_without_a_cache_is_not_tried_by_each_conversation() {
    let said = |talk: usize, message: usize| {
        let role = ["user", "assistant"][message % 2];
        json!({"role": role, "content": format!("{talk} {message} {}", "words ".repeat(900))})
    };
    let request = |session: usize, messages: Vec<Value>| {
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages});
        (MINUTE / 60, session.to_string(), Bytes::from(body.to_string()))
    };
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
                late <= 1.151 && all.last().is_some_and(|all| *all <= most),
                "{case} {forgets:?}: {all:.3?}"
            );
        }
    }
}

/// What one upstream, or the cache for one model, does not keep says nothing about another, neither to other
/// conversations nor to one that continues there.
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
            assert!(first <= most && late <= 1.151, "{case} {dialect} {by_model}: {first:.3} {all:.3?}");
        }
    }
}

/// Conversations that end before anything of theirs could be read cost more for being written: a few of them show it,
/// and it is not done again until one continues. Those that do continue are written as ever.
#[test]
fn marks_for_many_short_conversations_stay_within_the_cost_bound() {
    let request = |talk: usize, at: usize| {
        let said = |message: usize| {
            let text = format!("{talk} {message} {}", "words ".repeat(900));
            let role = ["user", "assistant"][message % 2];
            json!({"role": role, "content": text})
        };
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages});
        (MINUTE / 60, talk.to_string(), Bytes::from(body.to_string()))
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
        assert!(worst <= 1.151 && all <= most, "{lengths:?} {beside}: {worst:.3} {all:.3}");
    }
    // A request that is rejected and tried again has one stake.
    let tries = (0..8).flat_map(|at| std::iter::repeat_n(at, if at == 1 { 5 } else { 1 }));
    let requests: Vec<_> = tries.map(|at| request(0, at)).collect();
    let (worst, all) = shares(&requests, &|at| !(1..5).contains(&at));
    assert!(worst <= 1.151 && all <= 0.4, "{worst:.3} {all:.3}");
}
