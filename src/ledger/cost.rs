//! What a request cost, and what it would have cost without the gateway, as its record has it.

use serde::{Deserialize, Serialize};

use super::record::Word;
use crate::usage::{Bill, Money, Tokens};

/// Money, in pico-dollars (millionths of a millionth of a US dollar), exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The sum, in dollars, for readers.
    pub usd: String,
    /// Uncached prompt tokens.
    pub input: i64,
    /// Tokens read from the provider's cache.
    pub cache_read: i64,
    /// Tokens written to it.
    pub cache_write: i64,
    /// Output tokens.
    pub output: i64,
    /// Searches that the provider made.
    pub searches: i64,
    /// The sum; where only the provider's own total is known, the kinds are 0.
    pub total: i64,
    /// Where the price is from: `catalogue 2026-11-21`, `configuration`, `provider`.
    pub price: Word,
    /// What the provider's cache saved: what the tokens that were read from it and written to it would have cost as plain
    /// input, less what they did cost. Negative where writing cost more than reading spared; null where only the
    /// provider's own total is known, or it was not written down. It is in no other figure.
    pub cache_saved: Option<i64>,
}

impl Cost {
    /// A bill as the books keep it.
    pub fn of(bill: &Bill) -> Self {
        // The integer holds nine million dollars a request.
        let pico = |money: Money| i64::try_from(money.picodollars()).unwrap_or(i64::MAX);
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

/// A request without the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counterfactual {
    /// Its tokens; the output is the same.
    pub tokens: Tokens,
    /// What they cost, in pico-dollars; null when the price is not known.
    pub cost: Option<i64>,
    /// The prompt is an estimate. Otherwise it is the provider's figure: nothing was changed, neither of the request nor of
    /// what the provider holds of its history.
    pub estimated: bool,
}
