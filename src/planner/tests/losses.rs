//! What conversations that just grow may lose by events for the money's sake, wherever they end.

use proptest::prelude::*;

use super::super::*;
use super::events::{Thread, policy, talk, words};
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::{Rates, Reason};

/// Words of a talk that grows: results of any size, and turns.
fn lives() -> impl Strategy<Value = Vec<Vec<String>>> {
    let request = prop_oneof![
        6 => (50_usize..8000).prop_map(|size| vec![size.to_string()]),
        1 => (50_usize..8000, 50_usize..8000).prop_map(|(a, b)| vec![a.to_string(), b.to_string()]),
        2 => Just(words("a u")),
    ];
    prop::collection::vec(request, 5..60)
}

fn busy(alpha: f64, loss: f64, kind: clear::Policy) -> Policy {
    let mut policy = policy(Reason::BreakEven);
    policy.clear.patience = alpha;
    policy.clear.most_loss = loss;
    policy.clear.policy = kind;
    policy
}

const KINDS: &[clear::Policy] = &[clear::Policy::Worth, clear::Policy::Oldest, clear::Policy::Hybrid];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// At every moment, a thread with events for break-even has cost at most the allowed share more than it would
    /// have cost untouched.
    #[test]
    fn losses_of_break_even_events_are_bounded(life in lives(), alpha in 0.01..2.0_f64, loss in 0.0..0.3_f64, kind in 0..3_usize) {
        let policy = busy(alpha, loss, KINDS[kind]);
        let (mut thread, mut so_far) = (Thread::default(), words("u"));
        for request in life {
            so_far.extend(request);
            thread.send(&talk(&so_far), &policy, &Facts::default(), true);
            let account = thread.standing.as_ref().unwrap().account();
            prop_assert!(account.paid <= (1.0 + loss) * account.direct + 1e-6, "{:?}", account);
        }
    }

    /// Until the first event, what is remembered of a thread is for speed only.
    #[test]
    fn a_rebuilt_standing_plans_the_same_until_the_first_event(life in lives(), alpha in 0.01..2.0_f64, kind in 0..3_usize) {
        let policy = busy(alpha, 0.1, KINDS[kind]);
        let (mut one, mut other, mut so_far) = (Thread::default(), Thread::default(), words("u"));
        for request in life {
            so_far.extend(request);
            let talk = talk(&so_far);
            let kept = one.send(&talk, &policy, &Facts::default(), true);
            let rebuilt = other.send(&talk, &policy, &Facts::default(), false);
            prop_assert_eq!(&kept.event, &rebuilt.event);
            prop_assert_eq!(&kept.plan, &rebuilt.plan);
            if kept.event.is_some() {
                break;
            }
        }
    }
}

/// If making room would cost more than the thread may lose, it is made only when it must be. The same holds for room
/// that drops messages while a summary may still come, judged by the estimated prompt.
#[test]
fn costly_room_is_made_only_when_needed() {
    // A prompt may have 95,904 tokens, of which nine tenths are 86,313. The first has some 74,000, and each after it
    // 2,000 more, which may be as many again.
    let first: Vec<String> = (0..29).flat_map(|_| words("x10000 a")).collect();
    let usual = Facts { window: Some(100_000), max_output: Some(4_096), ..Facts::default() };
    let by_worth = Policy::default();
    let mut oldest = by_worth.clone();
    oldest.clear.policy = clear::Policy::Oldest;
    let mut guessed = by_worth.clone();
    guessed.window.count = Estimate::Chars4Floor;
    let elsewhere = Facts { measured_elsewhere: true, ..usual };
    let uncached = Facts { rates: Some(Rates { read: 1.0, write: 1.0 }), ..usual };
    let awaits = |facts| Facts { awaits_summary: true, ..facts };
    for (name, policy, facts, is_counted, expected) in [
        ("a summary may come", &by_worth, awaits(uncached), true, 11),
        ("a summary may come, and nobody has counted", &by_worth, awaits(usual), false, 4),
        ("a known agent's policy, and a summary may come", &oldest, awaits(usual), true, 6),
        ("by worth", &by_worth, usual, true, 10),
        ("nothing is cached", &by_worth, uncached, true, 6),
        ("nobody has counted the prompt", &by_worth, usual, false, 4),
        ("nobody says how long an answer may be", &by_worth, Facts { max_output: None, ..usual }, true, 6),
        ("another model's count", &by_worth, elsewhere, true, 6),
        ("a known agent's policy", &oldest, usual, true, 6),
        ("a known agent's count", &guessed, usual, true, 6),
    ] {
        let (mut thread, mut so_far) = (Thread::default(), [words("u a"), first.clone()].concat());
        let event = (0..20).find(|request| {
            so_far.extend(words("x8000 a"));
            let talk = talk(&so_far);
            let counted = (thread.sent, talk.body.len() as u64 / 4 - 2_000);
            let measured = Some(counted).filter(|_| is_counted && *request > 0);
            let outcome = thread.send(&talk, policy, &Facts { measured, ..facts }, request % 2 > 0);
            let (level, is_due) = (outcome.level.unwrap(), outcome.event.is_some());
            assert_eq!(level.can_wait, !is_due && *request >= 6, "{name} {request}");
            assert!(is_due || !outcome.lacks_summary(&policy.window), "{name} {request}");
            is_due
        });
        assert_eq!(event, Some(expected), "{name}");
    }
}
