//! Books the cost of summaries on their conversation, and stores the summaries.

use std::slice;
use std::sync::Arc;

use super::price::Spending;
use crate::app::budget::Budget;
use crate::app::clock;
use crate::app::tally::Tally;
use crate::ledger::words::Outcome;
use crate::ledger::{BodySizes, Counterfactual, OwnCall, Record, Timing, when};
use crate::store::{Batch, Store, Summary};
use crate::summarizer::{Called, Failure, Job, Progress, Report};
use crate::usage::Tokens;

/// A report that books the cost of a job's calls, each once it has ended, and stores the job's result.
pub(super) fn report(
    store: Arc<dyn Store>,
    tally: Arc<Tally>,
    budget: Arc<Budget>,
    spending: Spending,
) -> Report {
    Box::new(move |progress| {
        let (job, calls, outcome) = match progress {
            Progress::Called(job, call) => (job, slice::from_ref(call), None),
            Progress::Done(done) => {
                spending.book_actual(done);
                (&*done.job, done.unreported(), Some(&done.outcome))
            }
        };
        let now_ms = clock::now_ms();
        let rows = calls.iter().enumerate().map(|(at, call)| {
            // Each is reported when it ends.
            let began_ms = now_ms.saturating_sub(call.took.as_millis() as i64);
            let is_last = at + 1 == calls.len();
            let record = record(job, call, outcome.filter(|_| is_last), began_ms);
            budget.book(&record, began_ms);
            tally.book(&record);
            Box::new(record).into_row(began_ms)
        });
        let ledger = rows.collect();
        let summaries = outcome.into_iter().flatten().map(|summary| (**summary).clone()).collect();
        let batch = Batch { ledger, summaries, at_ms: now_ms, ..Batch::default() };
        tally.stored(store.later(batch));
    })
}

/// The record of a call that began at `at_ms`. `ended`: how the job ended with it, if it did. Without the gateway there
/// would have been no such call.
fn record(job: &Job, call: &Called, ended: Option<&Result<Arc<Summary>, Failure>>, at_ms: i64) -> Record {
    let made = ended.and_then(|outcome| outcome.as_ref().ok());
    let failure = ended.and_then(|outcome| outcome.as_ref().err());
    let mut record = Record {
        time: when::rfc3339(at_ms),
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
