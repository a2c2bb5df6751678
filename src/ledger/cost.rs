//! What a request cost, and what it would have cost without the gateway, as stored in its record.

use serde::{Deserialize, Serialize};

use super::record::Word;
use crate::usage::{Bill, Money, Tokens};

/// An amount in pico-dollars (10⁻¹² US dollars), by kind; exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The total in dollars, as text for human readers.
    pub usd: String,
    /// The cost of uncached prompt tokens.
    pub input: i64,
    /// The cost of tokens read from the provider's cache.
    pub cache_read: i64,
    /// The cost of tokens written to the provider's cache.
    pub cache_write: i64,
    /// The cost of output tokens.
    pub output: i64,
    /// The cost of searches that the provider made.
    pub searches: i64,
    /// The total. If the provider states only a total of its own, the kinds above are 0.
    pub total: i64,
    /// The source of the price: `catalogue 2026-11-21`, `configuration`, `provider`.
    pub price: Word,
    /// What the provider's cache saved: the price of the cached tokens (read and written) as plain input, less what
    /// they cost. Negative if writing cost more than reading saved; null if only the provider's own total is known, or
    /// if it was not recorded. No other figure includes it.
    pub cache_saved: Option<i64>,
}

impl Cost {
    /// The bill in the form that the books store.
    pub fn of(bill: &Bill) -> Self {
        let lines = bill.lines.unwrap_or_default();
        Self {
            usd: bill.total.usd(),
            input: pico(lines.input),
            cache_read: pico(lines.cache_read),
            cache_write: pico(lines.cache_write),
            output: pico(lines.output),
            searches: pico(lines.searches),
            total: pico(bill.total),
            price: bill.source.name(),
            cache_saved: bill.cache_saved.map(pico),
        }
    }
}

/// An amount in pico-dollars. An i64 holds up to nine million dollars per request.
pub(super) fn pico(money: Money) -> i64 {
    i64::try_from(money.picodollars()).unwrap_or(i64::MAX)
}

/// The request as it would have been without the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counterfactual {
    /// Its tokens; the output is assumed to be the same.
    pub tokens: Tokens,
    /// What they would have cost, in pico-dollars; null if the price is unknown.
    pub cost: Option<i64>,
    /// Whether the prompt's size is an estimate. Otherwise it is the provider's figure, because neither the request nor
    /// the history that the provider holds for it was changed.
    pub estimated: bool,
}
