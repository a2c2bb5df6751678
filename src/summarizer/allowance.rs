//! What a job that is begun before its summary is needed may cost: answers of no use are paid for like any other.

use super::{Called, Job};

/// What a job may cost, in bytes of plain input of the conversation's own model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// The most that the job may cost.
    pub most: f64,
    /// What the job is expected to cost.
    pub expected: f64,
    /// The bytes of plain input that a picodollar buys, if known.
    pub per_picodollar: Option<f64>,
}

/// The expected cost of a summary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// In bytes of plain input of the conversation's own model.
    pub bytes: f64,
    /// The bytes of plain input that a picodollar buys, if known.
    pub per_picodollar: Option<f64>,
}

impl Allowance {
    /// Whether the last of the `calls` may be made again, if `more` calls like it follow. A call that cost nothing may.
    pub(super) fn allows_another(&self, calls: &[Called], more: usize) -> bool {
        let cost = |call: &Called| self.cost_of(call);
        let last = calls.last().map_or(0.0, cost);
        last <= 0.0 || calls.iter().map(cost).sum::<f64>() + last * (1 + more) as f64 <= self.most
    }

    /// Whether a job whose `calls` were wasted may be begun again. The next one may cost as much, and is not expected
    /// to cost less than a whole one. A job that cost nothing may.
    fn allows_another_job(&self, calls: &[Called]) -> bool {
        let spent = calls.iter().map(|call| self.cost_of(call)).sum::<f64>();
        spent <= 0.0 || spent + spent.max(self.expected) <= self.most
    }

    /// What a call has cost. An answer without a known price counts as much as a whole job, and a call without an
    /// answer as nothing.
    fn cost_of(&self, call: &Called) -> f64 {
        match (&call.bill, self.per_picodollar) {
            (Some(bill), Some(per_picodollar)) => bill.total.picodollars() as f64 * per_picodollar,
            _ if call.is_refused() || call.status.is_none() => 0.0,
            _ => self.expected,
        }
    }
}

impl Job {
    /// Whether the last of the `calls` may be made again, if `more` calls like it follow. Without an allowance, it may,
    /// unless the writer is doubted and has answered.
    pub(super) fn affords_another(&self, calls: &[Called], more: usize) -> bool {
        match self.task.allowance {
            Some(allowance) => allowance.allows_another(calls, more),
            None => !self.is_doubted || !calls.last().is_some_and(Called::is_answered),
        }
    }

    /// Whether another job like this one, whose `calls` were wasted, may be begun within its allowance.
    pub(super) fn affords_another_job(&self, calls: &[Called]) -> bool {
        self.task.allowance.is_none_or(|allowance| allowance.allows_another_job(calls))
    }
}

impl Called {
    /// Whether the server has refused the call, so that nothing is billed.
    pub fn is_refused(&self) -> bool {
        self.bill.is_none() && self.status.is_some_and(|status| !(200..300).contains(&status))
    }

    /// Whether the model has answered, so that something is billed.
    pub(super) fn is_answered(&self) -> bool {
        self.status.is_some() && !self.is_refused()
    }
}
