//! What summaries cost, on the bill and from the budget.

use super::*;
use crate::app::tally::Tally;
use crate::ledger::words::Used;

/// What a summary costs counts towards the limits at once, and once after a restart.
#[test]
fn summaries_are_paid_from_the_budget() {
    use crate::config::BudgetLimits;
    use crate::summarizer::{Called, Done, Failure};
    use crate::usage::{Catalogue, Charge, Money, Tokens, Usage, bill};

    let home = tempfile::tempdir().unwrap();
    let store = || open(home.path());
    let limits = BudgetLimits { usd: Money::from_usd_str("2").ok(), tokens: None };
    let settings = crate::config::Budget { conversation: limits, day: limits, ..Default::default() };
    let budget = |store| Arc::new(Budget::new(settings.clone(), store));
    let tokens = Tokens { input: 1_000_000, ..Tokens::default() };
    let usage = Usage { tokens, unpriced: vec![Charge::Grounding], ..Usage::default() };
    let prices = Catalogue::with_overrides(Vec::new()).unwrap();
    let call = Called {
        model: None,
        status: Some(200),
        lost: None,
        missed: None,
        bill: bill(&prices, &usage, "claude-haiku-4-5", None),
        usage: Some(usage),
        took: Duration::ZERO,
        bytes: 9,
    };
    let job = Arc::new(job(talk("ucc", &[])));
    let done = Done { job, calls: vec![call.clone(), call], outcome: Err(Failure::NoGain) };
    let used = |budget: &Budget| {
        let reached = budget.reached("c", clock::now_ms()).map(|reached| reached.record());
        reached.map(|record| (record.state, record.used))
    };
    let expected = Some((Used::Spent.into(), "$2.00 of $2.00".to_owned()));
    let tally = Arc::new(Tally::default());
    {
        let store = store();
        let budget = budget(Arc::clone(&store));
        let report = bill::report(store, Arc::clone(&tally), Arc::clone(&budget));
        assert_eq!(used(&budget), None);
        report(&done);
        assert_eq!(used(&budget), expected);
    }
    assert_eq!(used(&budget(store())), expected);
    assert_eq!(tally.sums().totals.own_calls, 2);
    let log = std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 2);
    assert!(log.lines().all(|record| record.contains(r#""unpriced_charges":["grounding"]"#)), "{log}");
}

/// A call that brought no answer is of unknown cost, and nobody else is blamed for what the gateway itself gave up.
#[test]
fn calls_without_an_answer_are_booked() {
    use crate::ledger::Record;
    use crate::ledger::words::Outcome;
    use crate::summarizer::{Called, Done, Failure};

    let broke = Failure::Call("the answer broke off".to_owned());
    for (lost, missed, failure, outcome, error) in [
        (Some(Failure::Stopped), None, Failure::Stopped, Outcome::Stopped, "the gateway was stopped"),
        (Some(Failure::TimedOut), None, Failure::TimedOut, Outcome::ClientGone, "not done in time"),
        (Some(broke.clone()), None, broke.clone(), Outcome::UpstreamBroke, "the answer broke off"),
        // The last one came, and was of no use; before the next the gateway was stopped.
        (None, Some(broke), Failure::Stopped, Outcome::Complete, "the answer broke off"),
    ] {
        let (home, store) = on_disk();
        let (tally, budget) =
            (Arc::new(Tally::default()), Budget::new(crate::config::Budget::default(), Arc::clone(&store)));
        let call = Called {
            model: None,
            status: None,
            lost,
            missed,
            usage: None,
            bill: None,
            took: Duration::ZERO,
            bytes: 9,
        };
        let job = Arc::new(job(talk("ucc", &[])));
        let report = bill::report(Arc::clone(&store), Arc::clone(&tally), Arc::new(budget));
        report(&Done { job, calls: vec![call], outcome: Err(failure) });
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

fn job(conversation: Conversation) -> Job {
    let upstream = crate::upstream::Settings::new("u", "http://127.0.0.1:9".parse().unwrap());
    Job {
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
        call: Call {
            upstream: Arc::new(Upstream::new(upstream)),
            protocol: protocol::named("openai-chat").unwrap(),
            model: "m".to_owned(),
            like: None,
            headers: HeaderMap::new(),
            window: WINDOW,
        },
        now_ms: 0,
    }
}
