//! The cost of summaries, on the bill of their conversation and in its budget.

use std::collections::HashMap;

use super::*;
use crate::app::tally::Tally;
use crate::ledger::words::Used;
use crate::summarizer::{Called, Progress};
use crate::usage::{Tokens, Usage, bill};

/// The cost of a summary counts towards the limits at once, and only once after a restart.
#[test]
fn summaries_are_paid_from_the_budget() {
    use crate::config::BudgetLimits;
    use crate::summarizer::{Done, Failure};
    use crate::usage::{Charge, Money};

    let home = tempfile::tempdir().unwrap();
    let store = || open(home.path());
    let limits = BudgetLimits { usd: Money::from_usd_str("2").ok(), tokens: None };
    let settings = crate::config::Budget { conversation: limits, day: limits, ..Default::default() };
    let budget = |store| Arc::new(Budget::new(settings.clone(), store));
    let tokens = Tokens { input: 1_000_000, ..Tokens::default() };
    let usage = Usage { tokens, unpriced: vec![Charge::Grounding], ..Usage::default() };
    let prices = Catalogue::with_overrides(Vec::new()).unwrap();
    let call = Called {
        answer: Some("msg_1".to_owned()),
        status: Some(200),
        bill: bill(&prices, &usage, "claude-haiku-4-5", None),
        usage: Some(usage),
        bytes: 9,
        ..Called::default()
    };
    let job = Arc::new(job(talk("ucc", &[])));
    let done = Done { job, calls: vec![call.clone(), call], reported: 0, outcome: Err(Failure::NoGain) };
    let used = |budget: &Budget| {
        let reached = budget.reached("c", clock::now_ms()).map(|reached| reached.record());
        reached.map(|record| (record.state, record.used))
    };
    let expected = Some((Used::Spent.into(), "$2.00 of $2.00".to_owned()));
    let tally = Arc::new(Tally::default());
    {
        let store = store();
        let budget = budget(Arc::clone(&store));
        let report = bill::report(store, Arc::clone(&tally), Arc::clone(&budget), Spending::new());
        assert_eq!(used(&budget), None);
        report(Progress::Done(&done));
        assert_eq!(used(&budget), expected);
    }
    assert_eq!(used(&budget(store())), expected);
    assert_eq!(tally.sums().totals.own_calls, 2);
    let log = std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 2);
    for told in [r#""unpriced_charges":["grounding"]"#, r#""answer":"msg_1""#] {
        assert!(log.lines().all(|record| record.contains(told)), "{told}: {log}");
    }
}

/// A call is booked when it has ended, at the time it was sent, and not again with the end of its job.
#[test]
fn calls_are_booked_before_the_summary_is_done() {
    use std::time::Duration;

    use crate::ledger::{Record, when};
    use crate::summarizer::{Done, Failure};

    const HOUR_MS: i64 = 3_600_000;
    let (home, store) = on_disk();
    let tally = Arc::new(Tally::default());
    let budget = Arc::new(Budget::new(crate::config::Budget::default(), Arc::clone(&store)));
    let report = bill::report(Arc::clone(&store), Arc::clone(&tally), budget, Spending::new());
    let job = Arc::new(job(talk("ucc", &[])));
    let call = |hours| Called { took: Duration::from_millis(HOUR_MS as u64 * hours), ..Called::default() };
    let begun_ms = clock::now_ms();
    report(Progress::Called(&job, &call(3)));
    assert_eq!(tally.sums().totals.own_calls, 1);
    let calls = vec![call(3), call(1)];
    report(Progress::Done(&Done { job, calls, reported: 1, outcome: Err(Failure::NoGain) }));
    let ended_ms = clock::now_ms();
    assert_eq!(tally.sums().totals.own_calls, 2);
    drop((report, store));
    let log = std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap();
    let records: Vec<Record> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (record, (hours, error)) in records.iter().zip([(3, None), (1, Some(Failure::NoGain.to_string()))]) {
        let sent = [begun_ms, ended_ms].map(|ms| when::rfc3339(ms - HOUR_MS * hours));
        assert!(sent[0] <= record.time && record.time <= sent[1], "{sent:?} {}", record.time);
        assert_eq!(record.error, error);
    }
    assert_eq!(records.len(), 2);
}

/// A call without an answer has an unknown cost, and a call that the gateway gave up itself is not blamed on others.
#[test]
fn summary_calls_without_an_answer_are_booked_with_unknown_cost() {
    use crate::ledger::Record;
    use crate::ledger::words::Outcome;
    use crate::summarizer::{Done, Failure};

    let broke = Failure::Call("the answer broke off".to_owned());
    for (lost, missed, failure, outcome, error) in [
        (Some(Failure::Stopped), None, Failure::Stopped, Outcome::Stopped, "the gateway was stopped"),
        (Some(Failure::TimedOut), None, Failure::TimedOut, Outcome::ClientGone, "not done in time"),
        (Some(broke.clone()), None, broke.clone(), Outcome::UpstreamBroke, "the answer broke off"),
        // The last answer came but was useless; before the next call the gateway was stopped.
        (None, Some(broke), Failure::Stopped, Outcome::Complete, "the answer broke off"),
    ] {
        let (home, store) = on_disk();
        let (tally, budget) =
            (Arc::new(Tally::default()), Budget::new(crate::config::Budget::default(), Arc::clone(&store)));
        let call = Called { lost, missed, bytes: 9, ..Called::default() };
        let job = Arc::new(job(talk("ucc", &[])));
        let report = bill::report(Arc::clone(&store), Arc::clone(&tally), Arc::new(budget), Spending::new());
        report(Progress::Done(&Done { job, calls: vec![call], reported: 0, outcome: Err(failure) }));
        drop((report, store));
        let totals = tally.sums().totals;
        assert_eq!(
            (totals.own_calls, totals.own_unknown, totals.unknown_usage, totals.cost),
            (1, 1, 1, None)
        );
        let log = std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap();
        let record: Record = serde_json::from_str(log.trim_end()).unwrap();
        assert_eq!((record.outcome, record.error.as_deref()), (outcome.into(), Some(error)));
    }
}

/// The expected cost of a summary, in bytes of the conversation's plain input: what its writer reads and writes, at the
/// writer's price. The actual cost of its calls replaces it.
#[test]
fn the_expected_cost_of_a_summary_is_replaced_by_the_actual() {
    use crate::summarizer::{Done, Failure};
    use crate::usage::Stated;

    let rate = |millionths: u64| Some(crate::usage::Rate::from_picodollars(millionths));
    let stated = |model: &str, input, output| {
        (model.to_owned(), Stated { input: rate(input), output: rate(output), ..Stated::default() })
    };
    let prices = vec![stated("own", 1_000_000, 4_000_000), stated("cheap", 100_000, 200_000)];
    let prices = Catalogue::with_overrides(prices).unwrap();
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let cut = cuts(&conversation, None, None, ours.sent).pop().unwrap();
    let policy = Policy::default();
    let priced = |model: &str| prices.find(model, None).map(|priced| Price::clone(&priced.price));
    let own: Option<Price> = priced("own");
    let free = own.clone().map(|mut price| {
        price.base.input = crate::usage::Rate::from_picodollars(0);
        price
    });
    // 2,500 tokens of four bytes are written, and results are read up to 2,000 bytes.
    for (price, writer, shares) in [
        (&own, None, Some((1.0, 4.0))),
        (&None, None, Some((1.0, 5.0))),
        (&free, None, Some((1.0, 5.0))),
        (&own, Some("cheap"), Some((0.1, 0.2))),
        (&own, Some("of unknown price"), None),
        (&None, Some("cheap"), None),
    ] {
        let terms = terms(writer, &policy);
        let seen = Seen { price: price.as_ref(), ..seen(&conversation, &ours, &terms, "own") };
        let expected = Expected::of(&seen, &cut, None, &prices).map(|expected| expected.bytes);
        let within = |(reads, writes): (f64, f64)| {
            let (told, written) = (7.0 * 2_000.0, 10_000.0 * writes);
            let least = told * reads + written;
            least..least + 7_000.0 * reads
        };
        let is_right = match (expected, shares) {
            (Some(bytes), Some(shares)) => within(shares).contains(&bytes),
            (expected, shares) => expected.is_none() && shares.is_none(),
        };
        assert!(is_right, "{writer:?} {expected:?} {shares:?}");
    }

    let terms = terms(None, &policy);
    let seen = Seen { price: own.as_ref(), ..seen(&conversation, &ours, &terms, "own") };
    let expected = Expected::of(&seen, &cut, None, &prices).unwrap();
    let call = |input: Option<u64>| called(&prices, "own", input);
    let refused = || Called { status: Some(503), ..call(None) };
    // Tokens of four bytes.
    for (calls, paid) in [
        (vec![], Some(0.0)),
        (vec![call(Some(1_000))], Some(4_000.0)),
        (vec![call(Some(1_000)), call(Some(500))], Some(6_000.0)),
        (vec![call(Some(1_000)), call(None)], None),
        // What the server has refused is not billed, and does not hide what the others have cost.
        (vec![refused()], Some(0.0)),
        (vec![call(Some(100_000)), refused(), call(Some(100_000))], Some(800_000.0)),
        (vec![call(Some(100_000)), call(None)], Some(400_000.0)),
    ] {
        let (spending, mut job) = (Spending::new(), job(talk("ucc", &[])));
        job.task.expected = Some(expected);
        assert!(spending.spent("t") <= 0.0);
        spending.book_expected("t", Some(expected));
        assert!((spending.spent("t") - expected.bytes).abs() < 1e-6);
        let job = Arc::new(job);
        spending.book_actual(&Done { job, calls, reported: 0, outcome: Err(Failure::NoGain) });
        let total = paid.unwrap_or(expected.bytes);
        assert!((spending.spent("t") - total).abs() < 1e-6, "{paid:?} {}", spending.spent("t"));
        // The next one is added, unless it is not begun.
        spending.book_expected("t", Some(expected));
        spending.take_back("t", Some(expected));
        assert!((spending.spent("t") - total).abs() < 1e-6, "{paid:?} {}", spending.spent("t"));
    }
}

/// A call whose prompt is billed with this many tokens, or with an unknown number.
pub(super) fn called(prices: &Catalogue, model: &str, input: Option<u64>) -> Called {
    let usage =
        Usage { tokens: Tokens { input: input.unwrap_or(0), ..Tokens::default() }, ..Usage::default() };
    let bill = input.and_then(|_| bill(prices, &usage, model, None));
    Called { status: Some(200), bill, usage: Some(usage), bytes: 9, ..Called::default() }
}

pub(super) fn job(conversation: Conversation) -> Job {
    let upstream = crate::upstream::Settings::new("u", "http://127.0.0.1:9".parse().unwrap());
    let task = Task {
        thread: "t".to_owned(),
        conversation_id: "c".to_owned(),
        chain: Chain::root("x", b""),
        end: 1,
        conversation,
        messages: Vec::new(),
        sent: HashMap::new(),
        previous: None,
        generation: 1,
        bytes: 0,
        bytes_per_token: 4.0,
        settings: Arc::default(),
        allowance: None,
        expected: None,
        now_ms: 0,
    };
    Job {
        task,
        call: Call {
            upstream: Arc::new(Upstream::new(upstream)),
            protocol: protocol::named("openai-chat").unwrap(),
            model: "m".to_owned(),
            like: None,
            headers: HeaderMap::new(),
            window: DEFAULT_WINDOW,
        },
        is_doubted: false,
    }
}
