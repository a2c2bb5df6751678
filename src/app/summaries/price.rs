//! What summaries cost, as the gate reckons: in bytes of what the conversation's own model takes for plain input.
//!
//! It is known beforehand what a writer will read, and how much it is asked to write; what the calls have cost takes the
//! place of that once they are made. It is remembered in memory alone.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Seen, Terms};
use crate::conversation::PartId;
use crate::planner::Cut;
use crate::store::{Recent, Summary};
use crate::strategy::summary::{prompt, transcript};
use crate::summarizer::{Called, Done};
use crate::upstream::Upstream;
use crate::usage::{Catalogue, Price, Vendor};

/// Threads of which it is remembered what summaries have cost.
const THREADS: u64 = 65_536;
/// What a token of an answer costs where no price is known, in tokens of plain input.
const ANSWER: f64 = 5.0;

/// What a summary is expected to cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    /// In bytes of plain input.
    pub(super) bytes: f64,
    /// Bytes of plain input that a picodollar pays for, where that is known.
    per_picodollar: Option<f64>,
}

/// What is known of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    spent: f64,
    /// What the next one will cost; it counts as spent while that is being made.
    expected: Option<Expected>,
    /// The last request whose prompt came near the window had none begun, for another reason than that it is dear.
    is_closed: bool,
}

/// What the threads' summaries have cost, and whose may be begun when room is wanted.
#[derive(Clone)]
pub(super) struct Spending(Arc<Recent<String, Account>>);

impl Expected {
    /// What one of a history up to a cut will cost, made from the `previous` one where that is not due to be made anew.
    /// Of a model of unknown price that is not the conversation's own, nothing is known: it is taken to be free.
    pub(super) fn of(
        seen: &Seen<'_>,
        cut: &Cut,
        previous: Option<&Summary>,
        prices: &Catalogue,
    ) -> Option<Self> {
        let (terms, settings) = (seen.terms, &seen.terms.settings);
        let own = seen.price.filter(|price| input(price) > 0.0);
        let (reads, writes) = match (terms.writer(seen.vendor), own) {
            (None, None) => (1.0, ANSWER),
            (None, Some(own)) => (1.0, output(own) / input(own)),
            (Some((model, vendor)), own) => {
                let (writer, own) = (prices.find(model, vendor)?, input(own?));
                (input(&writer.price) / own, output(&writer.price) / own)
            }
        };
        let previous = previous.filter(|last| !settings.is_rebased(last.generation + 1));
        let from = previous.map_or(0, |last| last.end).max(cut.messages().next()?);
        let spared = seen.applied.iter().map(|applied| (applied.part, applied.decision.bytes_spared()));
        let spared: HashMap<PartId, u64> = spared.collect();
        let spared = |part| spared.get(&part).copied().unwrap_or(0);
        let told = transcript::about(seen.conversation, from..cut.end, &spared, settings.result_bytes);
        let material = prompt::Material { goal: "", previous: None, transcript: "" };
        let task = prompt::write(material, settings).len() + previous.map_or(0, |last| last.outline.len());
        let written = settings.length as f64 * seen.bytes_per_token;
        Some(Self {
            bytes: (told + task as u64) as f64 * reads + written * writes,
            per_picodollar: own.map(|own| seen.bytes_per_token / input(own)),
        })
    }

    /// What calls have cost, if that is known of all of them.
    fn paid(&self, calls: &[Called]) -> Option<f64> {
        let mut bills = calls.iter().map(|call| Some(call.bill.as_ref()?.total.picodollars() as f64));
        Some(bills.try_fold(0.0, |sum, bill| Some(sum + bill?))? * self.per_picodollar?)
    }
}

impl Terms {
    /// The model that writes where it is not the request's own, and who sells it. `vendor` sells the request's.
    fn writer(&self, vendor: Option<Vendor>) -> Option<(&str, Option<Vendor>)> {
        let sold_by = |upstream: &Upstream| Vendor::of_host(upstream.base_url().domain());
        let vendor = self.writer.as_ref().map_or(vendor, |writer| sold_by(&writer.upstream));
        Some((self.model.as_deref()?, vendor))
    }
}

impl Spending {
    pub(super) fn new() -> Self {
        Self(Arc::new(Recent::of_entries(THREADS)))
    }

    /// What a thread's summaries have cost so far, in bytes of plain input.
    pub(super) fn of(&self, thread: &str) -> f64 {
        self.account(thread).spent
    }

    /// Whether one of a thread may be begun when room is wanted, as far as that is known: the last request near the window
    /// tells, and none that was there before.
    pub(super) fn may_begin(&self, thread: &str) -> bool {
        !self.account(thread).is_closed
    }

    /// A request brings a thread near the window: whatever held of one before it, none may be begun unless this one says so.
    pub(super) fn asks(&self, thread: &str) {
        self.0.insert(thread.to_owned(), Account { is_closed: true, ..self.account(thread) });
    }

    /// A thread's summary waits for room to be wanted.
    pub(super) fn waits(&self, thread: &str) {
        self.is_not_asked(thread, true);
    }

    /// A thread is not near the window, or no longer. Whether a job of it `may` begin holds for the next request, which may
    /// be long.
    pub(super) fn is_not_asked(&self, thread: &str, may: bool) {
        let account = self.0.get(thread).filter(|account| account.is_closed == may);
        if let Some(account) = account {
            self.0.insert(thread.to_owned(), Account { is_closed: !may, ..account });
        }
    }

    /// The next one of a thread is expected to cost this.
    pub(super) fn expects(&self, thread: &str, expected: Option<Expected>) {
        self.0.insert(thread.to_owned(), Account { expected, ..self.account(thread) });
    }

    /// Books what the one that is begun is expected to cost.
    pub(super) fn begins(&self, thread: &str) {
        let account = self.account(thread);
        let spent = account.spent + account.expected.map_or(0.0, |expected| expected.bytes);
        self.0.insert(thread.to_owned(), Account { spent, ..account });
    }

    /// Books what the calls for one have cost in place of what it was expected to.
    pub(super) fn ended(&self, done: &Done) {
        self.settle(&done.job.thread, |expected| expected.paid(&done.calls));
    }

    /// One was not begun after all.
    pub(super) fn is_not_begun(&self, thread: &str) {
        self.settle(thread, |_| Some(0.0));
    }

    fn settle(&self, thread: &str, paid: impl FnOnce(&Expected) -> Option<f64>) {
        let account = self.account(thread);
        let Some(expected) = account.expected else { return };
        let spent = account.spent + paid(&expected).map_or(0.0, |paid| paid - expected.bytes);
        self.0.insert(thread.to_owned(), Account { spent, expected: None, ..account });
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

    /// What another process has made of a thread is not known until a request brings it near the window again, and what
    /// held for one request holds for no other.
    #[test]
    fn summaries_may_be_begun_until_a_request_says_otherwise() {
        let spending = Spending::new();
        let (asks, waits) = (Spending::asks as fn(&Spending, &str), Spending::waits as fn(&Spending, &str));
        let (falls, rests) = (
            (|spending, thread| spending.is_not_asked(thread, true)) as fn(&Spending, &str),
            (|spending, thread| spending.is_not_asked(thread, false)) as fn(&Spending, &str),
        );
        for (thread, happens, expected) in [
            ("new", &[][..], true),
            ("asked", &[asks], false),
            ("dear", &[asks, waits], true),
            ("no longer", &[asks, waits, asks], false),
            ("short again", &[asks, falls], true),
            ("rests", &[asks, waits, rests], false),
            ("never near", &[falls], true),
        ] {
            for happens in happens {
                happens(&spending, thread);
            }
            assert_eq!(spending.may_begin(thread), expected, "{thread}");
        }
    }
}
