//! What a model costs, as its seller lists it.
//!
//! A list price is rarely complete. What is missing is derived here only where a provider documents the rule;
//! otherwise it stays unknown.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::cache_model::HOUR_MS;
use super::money::Money;
use super::rate::{Factor, Rate};
use super::tokens::Tier;

/// The longest answer to be expected if no limit is requested, in tokens: models could give half their window, but no
/// agent's step takes that.
const MAX_OUTPUT_WITHOUT_LIMIT: u64 = 32_000;

/// The price of a model and the limits that come with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The standard rates.
    pub base: Rates,
    /// The base rates that all other lists refer to, if `base` is not the seller's own list.
    #[serde(skip)]
    pub listed: Option<Rates>,
    /// Rates for long prompts, in any order.
    #[serde(default)]
    pub above: Vec<Above>,
    /// Rates for batches.
    pub batch: Option<Rates>,
    /// Rates of the priority tier.
    pub priority: Option<Rates>,
    /// Rates of the flex tier.
    pub flex: Option<Rates>,
    /// Rates of the ultrafast tier.
    pub ultrafast: Option<Rates>,
    /// The factor for inference bound to the United States; `None`: no surcharge.
    pub us: Option<Factor>,
    /// The factor for inference in one region of a seller of others' models; `None`: no surcharge.
    #[serde(skip)]
    pub region: Option<Factor>,
    /// The factor of fast mode.
    pub fast: Option<Factor>,
    /// The price of one server-side web search.
    #[serde(rename = "search")]
    pub web_search: Option<Money>,
    /// The most prompt tokens.
    #[serde(rename = "context")]
    pub context_window: Option<u64>,
    /// The most output tokens.
    pub max_output: Option<u64>,
    /// The shortest prompt prefix, in tokens, that the provider caches.
    pub cache_min: Option<u64>,
}

impl Price {
    /// The prices of reading a token from the cache and of writing it there, as shares of plain input, for the
    /// requested time to live in milliseconds; `None` if input is free. A rate that is not listed is that of plain
    /// input.
    pub fn shares(&self, requested_ttl_ms: Option<u64>) -> Option<(f64, f64)> {
        let input = self.base.input.picodollars();
        let share = |kind: Kind| self.base.full(kind).picodollars() as f64 / input as f64;
        let write = match requested_ttl_ms.unwrap_or(0) / HOUR_MS {
            0 => Kind::CacheWrite5m,
            1..12 => Kind::CacheWrite1h,
            _ => Kind::CacheWrite12h,
        };
        (input > 0).then(|| (share(Kind::CacheRead), share(write)))
    }

    /// The longest answer to be expected, in tokens: what is requested, limited to what the model can give.
    pub fn most_output(price: Option<&Self>, asked: Option<u64>) -> Option<u64> {
        match (asked, price.and_then(|price| price.max_output)) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or_else(|| most.map(|most| most.min(MAX_OUTPUT_WITHOUT_LIMIT))),
        }
    }

    /// The rates that replace [`Self::listed`] for the whole request with a prompt of that many tokens.
    pub(super) fn long_context(&self, prompt: u64) -> Option<&Rates> {
        let crossed = self.above.iter().filter(|above| prompt > above.gt);
        crossed.max_by_key(|above| above.gt).map(|above| &above.rates)
    }

    /// The base rates that those of long prompts and service tiers refer to.
    pub(super) fn listed(&self) -> &Rates {
        self.listed.as_ref().unwrap_or(&self.base)
    }

    /// The rates of a service tier, which relate to those of [`Tier::Standard`]; `None` if the price does not list the
    /// tier.
    pub fn tier(&self, tier: Tier) -> Option<&Rates> {
        match tier {
            Tier::Standard => Some(self.listed()),
            Tier::Batch => self.batch.as_ref(),
            Tier::Priority => self.priority.as_ref(),
            Tier::Flex => self.flex.as_ref(),
            Tier::Ultrafast => self.ultrafast.as_ref(),
            Tier::Other => None,
        }
    }
}

/// Rates for prompts beyond a length.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Above {
    /// They apply when the prompt, cached tokens included, has more tokens than this.
    pub gt: u64,
    /// What every token of the request then costs, not only those beyond.
    pub rates: Rates,
}

/// Rates per token by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Uncached input.
    #[serde(rename = "in")]
    pub input: Rate,
    /// Output.
    #[serde(rename = "out")]
    pub output: Rate,
    /// Input read from the cache.
    #[serde(rename = "read")]
    pub cache_read: Option<Rate>,
    /// Input written to the cache for the provider's default time.
    #[serde(rename = "write_5m")]
    pub cache_write_5m: Option<Rate>,
    /// Input written to the cache for an hour.
    #[serde(rename = "write_1h")]
    pub cache_write_1h: Option<Rate>,
    /// Input written to the cache for twelve hours.
    #[serde(rename = "write_12h")]
    pub cache_write_12h: Option<Rate>,
    /// Reasoning output, where it is billed apart from other output.
    pub reasoning: Option<Rate>,
    /// Uncached audio input; only the standard list has it.
    pub audio: Option<Rate>,
}

/// A kind of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Input,
    CacheRead,
    CacheWrite5m,
    CacheWrite1h,
    CacheWrite12h,
    Output,
    Reasoning,
}

/// What long cache writes cost, in thousandths of the input rate, if short ones carry a surcharge.
const WRITE_1H: u64 = 2000;
const WRITE_12H: u64 = 2500;

impl Rates {
    /// Whether writing to the cache has a price of its own, for whatever time.
    pub(super) fn lists_writes(&self) -> bool {
        [self.cache_write_5m, self.cache_write_1h, self.cache_write_12h].iter().any(Option::is_some)
    }

    /// The rate that the list states for `kind`.
    pub(super) fn listed(&self, kind: Kind) -> Option<Rate> {
        match kind {
            Kind::Input => Some(self.input),
            Kind::CacheRead => self.cache_read,
            Kind::CacheWrite5m => self.cache_write_5m,
            Kind::CacheWrite1h => self.cache_write_1h,
            Kind::CacheWrite12h => self.cache_write_12h,
            Kind::Output => Some(self.output),
            Kind::Reasoning => self.reasoning,
        }
    }

    /// The rate for `kind`, listed or by rule:
    ///
    /// - no rate for cache reads: no discount is known, the input rate applies;
    /// - no rate for cache writes: the provider charges nothing extra (`OpenAI` before GPT-5.6), the tokens
    ///   are plain input;
    /// - a rate for short writes, with a surcharge on input, but none for long ones: twice the input rate for
    ///   an hour (Anthropic's rule), two and a half times for twelve hours (`OpenAI`'s);
    /// - no rate for reasoning: it is output.
    pub(super) fn full(&self, kind: Kind) -> Rate {
        self.listed(kind).unwrap_or_else(|| match kind {
            Kind::CacheWrite1h => self.long_write(WRITE_1H),
            Kind::CacheWrite12h => self.long_write(WRITE_12H),
            Kind::Reasoning => self.output,
            Kind::Input | Kind::Output | Kind::CacheRead | Kind::CacheWrite5m => self.input,
        })
    }

    /// The rate of long writes where the list states none. `thousandths`: of the input rate, if short writes carry a
    /// surcharge.
    fn long_write(&self, thousandths: u64) -> Rate {
        match self.cache_write_5m {
            Some(short) if short > self.input => {
                Rate::from_picodollars(self.input.picodollars().saturating_mul(thousandths) / 1000)
            }
            other => other.unwrap_or(self.input),
        }
    }

    /// The rate that every list states and that a rate for `kind` moves with if it is not listed.
    pub(super) fn leading(&self, kind: Kind) -> Rate {
        match kind {
            Kind::Output | Kind::Reasoning => self.output,
            _ => self.input,
        }
    }
}

/// Where a price comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The embedded catalogue of that date (`YYYY-MM-DD`).
    Embedded(&'static str),
    /// The configuration.
    Config,
    /// The provider's own figure in the response.
    Provider,
}

impl Source {
    /// Its name in the books: `catalogue 2026-11-21`, `configuration`, `provider`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Embedded(date) => ["catalogue ", date].concat().into(),
            Self::Config => "configuration".into(),
            Self::Provider => "provider".into(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_limit_is_the_smaller_of_requested_and_model_limit() {
        for (asked, most, expected) in [
            (None, None, None),
            (Some(8), None, Some(8)),
            (None, Some(64), Some(64)),
            (None, Some(100_000), Some(32_000)),
            (Some(90_000), Some(100_000), Some(90_000)),
            (Some(8), Some(64), Some(8)),
            (Some(99), Some(64), Some(64)),
        ] {
            let price = Price { max_output: most, ..Price::default() };
            assert_eq!(Price::most_output(Some(&price), asked), expected, "{asked:?} {most:?}");
        }
    }
}
