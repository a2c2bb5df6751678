//! The cost of summaries in the unit of the gate: bytes of plain input of the conversation's own model.
//!
//! The cost is estimated from what the model that writes will read, and from how much it is asked to write. Once the
//! calls are made, their actual cost replaces the estimate. All of this is kept in memory only.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Seen, Terms};
use crate::conversation::PartId;
use crate::planner::Cut;
use crate::store::{Recent, Summary};
use crate::strategy::summary::{prompt, transcript};
use crate::summarizer::{Allowance, Called, Done, Expected};
use crate::upstream::Upstream;
use crate::usage::{Catalogue, Price, Vendor};

/// The most threads for which the cost of summaries is remembered.
const MAX_THREADS: u64 = 65_536;
/// The price of an output token, in tokens of plain input, if no price is known.
const DEFAULT_OUTPUT_PRICE: f64 = 5.0;

/// What is known of the summaries of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// In bytes of plain input. A summary that is being written counts with its expected cost.
    spent: f64,
    /// The most that a job without a result has cost since the last summary, in bytes of plain input.
    failed: f64,
    /// Whether no summary may be begun when room is needed: the last request near the window began none, for another
    /// reason than its price.
    is_closed: bool,
}

/// What the summaries of each thread have cost, and whether one may be begun when room is needed.
#[derive(Clone)]
pub(super) struct Spending(Arc<Recent<String, Account>>);

impl Expected {
    /// The expected cost of a summary of a history up to a cut. It is written from the `previous` one, unless it is due
    /// to be written from the original messages. `None` if the price of the model that writes is unknown and it is not
    /// the conversation's own: the summary then counts as free.
    pub(super) fn of(
        seen: &Seen<'_>,
        cut: &Cut,
        previous: Option<&Summary>,
        prices: &Catalogue,
    ) -> Option<Self> {
        let (terms, settings) = (seen.terms, &seen.terms.settings);
        let own_price = seen.price.filter(|price| input(price) > 0.0);
        let (reads, writes) = match (terms.writer(seen.vendor), own_price) {
            (None, None) => (1.0, DEFAULT_OUTPUT_PRICE),
            (None, Some(own_price)) => (1.0, output(own_price) / input(own_price)),
            (Some((model, vendor)), own_price) => {
                let (writer, own_input) = (prices.find(model, vendor)?, input(own_price?));
                (input(&writer.price) / own_input, output(&writer.price) / own_input)
            }
        };
        let previous = previous.filter(|last| !settings.is_rebased(last.generation + 1));
        let from = previous.map_or(0, |last| last.end).max(cut.messages().next()?);
        let spared =
            seen.applied.iter().map(|applied| (applied.part, applied.bytes_spared_of(seen.conversation)));
        let spared: HashMap<PartId, u64> = spared.collect();
        let spared = |part| spared.get(&part).copied().unwrap_or(0);
        let transcript = transcript::about(seen.conversation, from..cut.end, &spared, settings.result_bytes);
        let material = prompt::Material { goal: "", previous: None, transcript: "" };
        let task = prompt::write(material, settings).len() + previous.map_or(0, |last| last.outline.len());
        let written = settings.length as f64 * seen.bytes_per_token;
        Some(Self {
            bytes: (transcript + task as u64) as f64 * reads + written * writes,
            per_picodollar: own_price.map(|price| seen.bytes_per_token / input(price)),
        })
    }

    /// The allowance of a job that may cost at most `most` bytes of plain input; `None` if there is no limit.
    pub(super) fn within(&self, most: f64) -> Option<Allowance> {
        let Self { bytes: expected, per_picodollar } = *self;
        most.is_finite().then_some(Allowance { most, expected, per_picodollar })
    }

    /// The actual cost of the calls. If it is not known for all that were not refused, it is at least the expected one.
    fn paid(&self, calls: &[Called]) -> Option<f64> {
        let bills = calls.iter().filter_map(|call| call.bill.as_ref());
        let known = bills.map(|bill| bill.total.picodollars() as f64).sum::<f64>() * self.per_picodollar?;
        let is_known = calls.iter().all(|call| call.bill.is_some() || call.is_refused());
        Some(if is_known { known } else { known.max(self.bytes) })
    }
}

impl Terms {
    /// The model that writes, if it is not the request's own, and its vendor. `vendor` is that of the request.
    fn writer(&self, vendor: Option<Vendor>) -> Option<(&str, Option<Vendor>)> {
        let sold_by = |upstream: &Upstream| Vendor::of_host(upstream.base_url().domain());
        let vendor = self.writer.as_ref().map_or(vendor, |writer| sold_by(&writer.upstream));
        Some((self.model.as_deref()?, vendor))
    }
}

impl Spending {
    pub(super) fn new() -> Self {
        Self(Arc::new(Recent::of_entries(MAX_THREADS)))
    }

    /// What a thread's summaries have cost so far, in bytes of plain input.
    pub(super) fn spent(&self, thread: &str) -> f64 {
        self.account(thread).spent
    }

    /// The most that a job without a result has cost since a thread's last summary, in bytes of plain input.
    pub(super) fn failed(&self, thread: &str) -> f64 {
        self.account(thread).failed
    }

    /// Whether a summary of a thread may be begun when room is needed. True if nothing is remembered of the thread.
    pub(super) fn may_begin(&self, thread: &str) -> bool {
        !self.account(thread).is_closed
    }

    /// Records that a request brings a thread near the window. No summary may be begun later, whatever earlier requests
    /// allowed, unless this request allows it again ([`Self::set_may_begin`]).
    pub(super) fn close(&self, thread: &str) {
        self.0.update(thread, |account| account.is_closed = true);
    }

    /// Records whether a summary of a thread `may` be begun when room is needed, if anything is remembered of it.
    pub(super) fn set_may_begin(&self, thread: &str, may: bool) {
        if self.0.get(thread).is_some_and(|account| account.is_closed == may) {
            self.0.update(thread, |account| account.is_closed = !may);
        }
    }

    /// Books the expected cost of a summary that is to be begun.
    pub(super) fn book_expected(&self, thread: &str, expected: Option<Expected>) {
        self.add(thread, expected.map_or(0.0, |expected| expected.bytes));
    }

    /// Replaces the expected cost of a summary by what its calls have cost, and remembers that if they were wasted.
    pub(super) fn book_actual(&self, done: &Done) {
        let task = &done.job.task;
        let paid = task.expected.and_then(|expected| expected.paid(&done.calls));
        let more = task.expected.zip(paid).map_or(0.0, |(expected, paid)| paid - expected.bytes);
        let (is_made, paid) = (done.outcome.is_ok(), paid.unwrap_or(0.0));
        self.0.update(&task.thread, |account| {
            account.spent += more;
            account.failed = if is_made { 0.0 } else { account.failed.max(paid) };
        });
    }

    /// Takes the expected cost of a summary back, because it was not begun after all.
    pub(super) fn take_back(&self, thread: &str, expected: Option<Expected>) {
        self.add(thread, expected.map_or(0.0, |expected| -expected.bytes));
    }

    fn add(&self, thread: &str, bytes: f64) {
        self.0.update(thread, |account| account.spent += bytes);
    }

    fn account(&self, thread: &str) -> Account {
        self.0.get(thread).unwrap_or_default()
    }
}

fn input(price: &Price) -> f64 {
    price.base.input.picodollars() as f64
}

fn output(price: &Price) -> f64 {
    price.base.output.picodollars() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another process has spent on a thread is unknown until a request brings the thread near the window again.
    #[test]
    fn a_summary_may_begin_unless_the_last_request_forbids_it() {
        let spending = Spending::new();
        let close = Spending::close as fn(&Spending, &str);
        let reopen = (|spending, thread| spending.set_may_begin(thread, true)) as fn(&Spending, &str);
        let rests = (|spending, thread| spending.set_may_begin(thread, false)) as fn(&Spending, &str);
        for (thread, happens, expected) in [
            ("new", &[][..], true),
            ("asked", &[close], false),
            ("dear", &[close, reopen], true),
            ("no longer", &[close, reopen, close], false),
            ("rests", &[close, reopen, rests], false),
            ("never near", &[reopen], true),
        ] {
            for happens in happens {
                happens(&spending, thread);
            }
            assert_eq!(spending.may_begin(thread), expected, "{thread}");
        }
    }

    /// A thread that changes something else does not undo a cost that was added meanwhile.
    #[test]
    fn changes_made_while_a_cost_is_booked_are_kept() {
        let spending = Spending::new();
        let expected = |bytes| Some(Expected { bytes, per_picodollar: None });
        let rounds = 2_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..rounds).for_each(|_| spending.close("t")));
            for _ in 0..rounds {
                spending.book_expected("t", expected(10.0));
                spending.take_back("t", expected(9.0));
            }
        });
        assert!((spending.spent("t") - f64::from(rounds)).abs() < 0.5, "{}", spending.spent("t"));
        assert!(!spending.may_begin("t"));
    }
}
