//! Prices as people compare them: what a million tokens cost.

use super::{Kind, Money, Price, Schedule, Tier, Usage};

const MILLION: u64 = 1_000_000;

/// What a million tokens of each kind cost, as a bill has it: a rate that no list states follows its rule, see
/// [`super::cost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerMillion {
    /// Uncached input.
    pub input: Money,
    /// Input read from the cache.
    pub cache_read: Money,
    /// Input written to the cache for the provider's default time.
    pub cache_write_5m: Money,
    /// Input written to the cache for an hour.
    pub cache_write_1h: Money,
    /// Input written to the cache for twelve hours.
    pub cache_write_12h: Money,
    /// Output.
    pub output: Money,
    /// Reasoning.
    pub reasoning: Money,
}

impl PerMillion {
    /// What they cost in requests of a service tier with prompts of `prompt` tokens; `None` if the price does not list
    /// the tier.
    pub fn of(price: &Price, tier: Tier, prompt: u64) -> Option<Self> {
        let usage = Usage { tier, ..Usage::default() };
        let schedule = Schedule::of(&usage, price, prompt)?;
        let cost = |kind| schedule.cost(kind, MILLION);
        Some(Self {
            input: cost(Kind::Input),
            cache_read: cost(Kind::CacheRead),
            cache_write_5m: cost(Kind::CacheWrite5m),
            cache_write_1h: cost(Kind::CacheWrite1h),
            cache_write_12h: cost(Kind::CacheWrite12h),
            output: cost(Kind::Output),
            reasoning: cost(Kind::Reasoning),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost;
    use super::*;
    use crate::usage::{Catalogue, Rate, Stated, Tokens};

    /// The prices shown are those that are billed, whatever the list says and whoever overrides a rate.
    #[test]
    fn prices_per_million_equal_bills_of_a_million_tokens() {
        let stated = Stated { input: Some(Rate::from_picodollars(7_000_000)), ..Stated::default() };
        let stated = Catalogue::with_overrides(vec![("*".to_owned(), stated)]).unwrap();
        let mut compared = 0;
        for catalogue in [Catalogue::embedded(), stated] {
            for name in catalogue.names(None, None).unwrap() {
                let price = catalogue.quoted(&name, None).unwrap().price;
                let bounds = price.above.iter().flat_map(|above| [above.gt, above.gt + 1]);
                for prompt in bounds.chain([0]) {
                    compared += compare(&price, prompt);
                }
            }
        }
        assert!(compared > 10_000, "{compared}");
    }

    /// How many figures were compared.
    fn compare(price: &Price, prompt: u64) -> usize {
        let tiers = [Tier::Standard, Tier::Batch, Tier::Priority, Tier::Flex, Tier::Ultrafast, Tier::Other];
        let mut compared = 0;
        for tier in tiers {
            let shown = PerMillion::of(price, tier, prompt);
            let billed = |tokens| {
                let usage = Usage { tokens, tier, last_prompt: Some(prompt), ..Usage::default() };
                cost(&usage, price).map(|lines| lines.total())
            };
            let none = Tokens::default();
            for (tokens, of) in [
                (Tokens { input: MILLION, ..none }, (|shown| shown.input) as fn(PerMillion) -> Money),
                (Tokens { cache_read: MILLION, ..none }, |shown| shown.cache_read),
                (Tokens { cache_write_5m: MILLION, ..none }, |shown| shown.cache_write_5m),
                (Tokens { cache_write_1h: MILLION, ..none }, |shown| shown.cache_write_1h),
                (Tokens { cache_write_12h: MILLION, ..none }, |shown| shown.cache_write_12h),
                (Tokens { output: MILLION, ..none }, |shown| shown.output),
                (Tokens { output: MILLION, reasoning: MILLION, ..none }, |shown| shown.reasoning),
            ] {
                assert_eq!(shown.map(of), billed(tokens), "{tier:?} {prompt} {tokens:?}");
                compared += usize::from(shown.is_some());
            }
        }
        compared
    }
}
