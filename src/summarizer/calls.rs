//! The calls of a job, recorded as they are made, so that the bill of a job that is cut short is known.
//!
//! A call is reported before the job waits or asks again, so that nothing that happens to the job later loses it. The
//! last call is reported with the end of the job, whose outcome belongs to it.
//!
//! A call without an answer may have been billed all the same. It is recorded without figures, and counts towards the
//! spending of the hour with the price of a prompt of its size.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::purse::Purse;
use super::retry::Missed;
use super::transport::Reply;
use super::{Called, Done, Failure, Job, Progress, Report, vendor};
use crate::store::Summary;
use crate::usage::{self, Tokens, Usage};

/// The calls made so far.
pub(super) struct Calls<'a> {
    report: &'a Report,
    made: Vec<Called>,
    /// How many of them were reported.
    reported: usize,
    /// When the call in progress was sent, and its size in bytes.
    in_progress: Option<(Instant, u64)>,
}

impl<'a> Calls<'a> {
    pub(super) const fn new(report: &'a Report) -> Self {
        Self { report, made: Vec::new(), reported: 0, in_progress: None }
    }

    /// Records that a call of `bytes` bytes is sent now, and reports those before.
    pub(super) fn begin(&mut self, job: &Job, bytes: u64) {
        self.report_ended(job);
        self.in_progress = Some((Instant::now(), bytes));
    }

    /// Forgets the call in progress, which was never sent.
    pub(super) fn forget(&mut self) {
        self.in_progress = None;
    }

    /// Records the answer to the call in progress.
    pub(super) fn record_answer(&mut self, reply: &Reply, job: &Job, purse: &Purse) {
        let Some((took, bytes)) = self.take_in_progress() else { return };
        let call = Called { took, bytes, ..reply.called(&job.call, &purse.prices) };
        if let Some(min_cost) = call.min_cost {
            purse.spend(min_cost);
        }
        self.made.push(call);
    }

    /// Records why the last answer is of no use.
    pub(super) fn record_missed(&mut self, why: &Missed) {
        let why = match why {
            Missed::Retryable(failure, _) | Missed::Permanent(failure) => failure.clone(),
            Missed::Overflow => Failure::TooLong,
        };
        if let Some(last) = self.made.last_mut() {
            last.missed = Some(why);
        }
    }

    /// Records that the call in progress, if there is one, will not be answered.
    pub(super) fn record_lost(&mut self, why: Failure, job: &Job, purse: &Purse) {
        let Some((took, bytes)) = self.take_in_progress() else { return };
        let input = (bytes as f64 / job.task.bytes_per_token.max(1.0)) as u64;
        let usage = Usage { tokens: Tokens { input, ..Tokens::default() }, ..Usage::default() };
        if let Some(bill) = usage::bill(&purse.prices, &usage, &job.call.model, vendor(&job.call)) {
            purse.spend(bill.total);
        }
        self.made.push(Called { lost: Some(why), took, bytes, ..Called::default() });
    }

    /// The calls that have ended.
    pub(super) fn made(&self) -> &[Called] {
        &self.made
    }

    /// Reports the calls that have ended.
    pub(super) fn report_ended(&mut self, job: &Job) {
        for call in &self.made[self.reported..] {
            (self.report)(Progress::Called(job, call));
        }
        self.reported = self.made.len();
    }

    /// How a job with these calls ended.
    pub(super) fn done(&mut self, job: Arc<Job>, outcome: Result<Arc<Summary>, Failure>) -> Done {
        Done { job, calls: std::mem::take(&mut self.made), reported: self.reported, outcome }
    }

    /// Ends the call in progress. Returns how long it took, and its size in bytes.
    fn take_in_progress(&mut self) -> Option<(Duration, u64)> {
        self.in_progress.take().map(|(since, bytes)| (since.elapsed(), bytes))
    }
}
