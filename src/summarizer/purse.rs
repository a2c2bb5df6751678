//! Limits the money that summaries may cost in an hour.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::usage::{Catalogue, Money};

const HOUR: Duration = Duration::from_secs(3600);

/// The prices of calls, and what was spent on them in the last hour. Calls without a known price are not counted: the
/// number of jobs bounds them.
pub(super) struct Purse {
    pub(super) prices: Arc<Catalogue>,
    limit: Option<Money>,
    spent: Mutex<VecDeque<(Instant, Money)>>,
}

impl Purse {
    /// A limit for each hour; `None` for no limit.
    pub(super) fn new(prices: Arc<Catalogue>, limit: Option<Money>) -> Self {
        Self { prices, limit, spent: Mutex::default() }
    }

    /// Records that an amount was spent. A warning is logged when it reaches the limit.
    pub(super) fn spend(&self, amount: Money) {
        if self.record(amount) {
            tracing::warn!(
                "summaries have cost what they may in an hour (`summarize.per_hour`): until some of it is longer ago, \
                 none is begun"
            );
        }
    }

    /// Whether nothing more may be spent now.
    pub(super) fn is_exhausted(&self) -> bool {
        self.limit.is_some_and(|limit| self.spent_in_hour(None) >= limit)
    }

    /// Records an amount that is spent now, and returns whether it is the one that reaches the limit.
    fn record(&self, amount: Money) -> bool {
        let Some(limit) = self.limit else { return false };
        let (before, after) = (self.spent_in_hour(None), self.spent_in_hour(Some(amount)));
        before < limit && after >= limit
    }

    /// What was spent in the last hour, including `more`, which is spent now.
    fn spent_in_hour(&self, more: Option<Money>) -> Money {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.extend(more.map(|amount| (Instant::now(), amount)));
        while spent.front().is_some_and(|(at, _)| at.elapsed() >= HOUR) {
            spent.pop_front();
        }
        spent.iter().fold(Money::ZERO, |sum, (_, amount)| sum + *amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spend_limit_covers_the_last_hour_and_is_reported_once() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let dollars = |amount: &str| Money::from_usd_str(amount).unwrap();
        let purse = |limit| Purse::new(Arc::new(Catalogue::with_overrides(Vec::new()).unwrap()), limit);
        runtime.block_on(async {
            let purse = purse(Some(dollars("1.00")));
            for (minutes, amount, reaches, is_reached) in [
                (0, "0.60", false, false),
                (10, "0.50", true, true),
                (10, "0.30", false, true),
                // The first is more than an hour ago.
                (45, "0.30", true, true),
                (60, "0.10", false, false),
            ] {
                tokio::time::advance(Duration::from_secs(60 * minutes)).await;
                let found = (purse.record(dollars(amount)), purse.is_exhausted());
                assert_eq!(found, (reaches, is_reached), "{minutes} {amount}");
            }
        });
        assert!(!purse(None).record(dollars("9")));
    }
}
