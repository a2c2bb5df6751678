//! Books the cost of summaries on their conversation, and stores the summaries.

use std::sync::Arc;

use super::price::Spending;
use crate::app::budget::Budget;
use crate::app::clock;
use crate::app::tally::Tally;
use crate::ledger::words::Outcome;
use crate::ledger::{BodySizes, Counterfactual, OwnCall, Record, Timing, when};
use crate::store::{Batch, Store};
use crate::summarizer::{Called, Done, Failure, Report};
use crate::usage::Tokens;

/// A report that books the cost of a job's calls and stores its result.
pub(super) fn report(
    store: Arc<dyn Store>,
    tally: Arc<Tally>,
    budget: Arc<Budget>,
    spending: Spending,
) -> Report {
    Box::new(move |done| {
        spending.book_actual(done);
        let now_ms = clock::now_ms();
        let calls = done.calls.iter().enumerate();
        let records = calls.map(|(at, call)| record(done, at, call, now_ms));
        let booked = records.inspect(|record| {
            budget.book(record, now_ms);
            tally.book(record);
        });
        let ledger = booked.map(|record| Box::new(record).into_row(now_ms)).collect();
        let summaries = done.outcome.iter().map(|summary| (**summary).clone()).collect();
        let batch = Batch { ledger, summaries, at_ms: now_ms, ..Batch::default() };
        tally.stored(store.later(batch));
    })
}

/// The record of one call. Without the gateway there would have been no such call.
fn record(done: &Done, at: usize, call: &Called, now_ms: i64) -> Record {
    let job = &done.job;
    let is_last = at + 1 == done.calls.len();
    let made = done.outcome.as_ref().ok().filter(|_| is_last);
    let failure = done.outcome.as_ref().err().filter(|_| is_last);
    let mut record = Record {
        time: when::rfc3339(now_ms),
        id: clock::new_id(),
        conversation: job.task.conversation_id.clone(),
        thread: Some(job.task.thread.clone()),
        protocol: job.call.protocol.name().into(),
        upstream: job.call.upstream.name().to_owned(),
        model_asked: Some(job.call.model.clone()),
        model: call.model.clone().or_else(|| Some(job.call.model.clone())),
        status: call.status,
        answer: call.answer.clone(),
        outcome: outcome(call.lost.as_ref()).into(),
        error: call.lost.as_ref().or(call.missed.as_ref()).or(failure).map(ToString::to_string),
        counterfactual: Some(Counterfactual { tokens: Tokens::default(), cost: Some(0), estimated: false }),
        bytes: BodySizes { sent: call.bytes, ..BodySizes::default() },
        timing: Timing {
            total_ms: u64::try_from(call.took.as_millis()).unwrap_or(u64::MAX),
            ..Timing::default()
        },
        own: Some(OwnCall {
            purpose: "summary".to_owned(),
            messages: made.map_or(0, |_| job.task.messages.len() as u32),
            generation: made.map_or(0, |made| made.generation),
            bytes: made.map_or(0, |made| made.text.len() as u64),
            score: made.and_then(|made| made.score),
        }),
        ..Record::default()
    };
    if let Some(usage) = &call.usage {
        record.put_usage(usage, call.bill.as_ref(), call.min_cost, true);
    }
    record.net_saved = record.cost.as_ref().map(|cost| -cost.total);
    record
}

/// The outcome of a call, given how its answer was lost, if it was. The client of these calls is the gateway itself.
fn outcome(lost: Option<&Failure>) -> Outcome {
    match lost {
        None => Outcome::Complete,
        Some(Failure::Stopped) => Outcome::Stopped,
        Some(Failure::TimedOut) => Outcome::ClientGone,
        Some(_) => Outcome::UpstreamBroke,
    }
}
