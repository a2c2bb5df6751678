//! The money that may be spent in an hour.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::usage::Money;

const HOUR: Duration = Duration::from_secs(3600);

/// What was spent in the last hour. What has no known price is not counted: the number of jobs bounds it.
pub(super) struct SpendLimit {
    most: Option<Money>,
    spent: Mutex<VecDeque<(Instant, Money)>>,
}

impl SpendLimit {
    /// A limit of so much an hour; `None`: for any amount.
    pub(super) fn new(most: Option<Money>) -> Self {
        Self { most, spent: Mutex::default() }
    }

    /// Notes that something was spent.
    pub(super) fn spend(&self, amount: Money) {
        if self.most.is_some() {
            let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            spent.push_back((Instant::now(), amount));
        }
    }

    /// Whether nothing more may be spent now.
    pub(super) fn is_reached(&self) -> bool {
        let Some(most) = self.most else { return false };
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        while spent.front().is_some_and(|(at, _)| at.elapsed() >= HOUR) {
            spent.pop_front();
        }
        spent.iter().fold(Money::ZERO, |sum, (_, amount)| sum + *amount) >= most
    }
}
