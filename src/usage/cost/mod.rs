//! What a response cost, and what the provider's cache was worth.
//!
//! Exact: rates are integers, modifiers fractions, and each line of a bill (one kind of token) is rounded
//! once, half up to the pico-dollar. Whatever has no known price makes the whole cost unknown: a bill is
//! complete or absent.

mod million;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::charge::Charge;
use super::fraction::Fraction;
use super::money::Money;
use super::price::{Kind, Price, Rates, Source};
use super::rate::Factor;
use super::tokens::{Geo, Speed, Tier, Tokens, Usage};
use super::vendor::Vendor;

pub use million::PerMillion;

/// A cost by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostBreakdown {
    /// Uncached input.
    pub input: Money,
    /// Cache reads.
    pub cache_read: Money,
    /// Cache writes of every lifetime.
    pub cache_write: Money,
    /// Output, reasoning included.
    pub output: Money,
    /// Server-side web searches.
    pub searches: Money,
}

impl CostBreakdown {
    /// The sum.
    pub fn total(&self) -> Money {
        [self.input, self.cache_read, self.cache_write, self.output, self.searches].into_iter().sum()
    }

    fn plus(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            cache_read: self.cache_read + other.cache_read,
            cache_write: self.cache_write + other.cache_write,
            output: self.output + other.output,
            searches: self.searches + other.searches,
        }
    }
}

/// A cost and where its figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bill {
    /// The cost.
    pub total: Money,
    /// The cost by kind; `None` where the provider states only a total.
    pub lines: Option<CostBreakdown>,
    /// What the provider's cache saved: what the tokens that were read from it and written to it would have cost as
    /// plain input, less what they cost. Negative if writing cost more than reading saved; `None` if the provider
    /// states only a total.
    pub cache_saved: Option<Money>,
    /// Whose prices.
    pub source: Source,
}

/// What `usage` costs at `price`, extra calls of the same model included.
///
/// `None` if it is not known how long the prompt or the output was, or the price does not say: a service tier or fast
/// mode it does not list, searches without a price, or an extra call of another model ([`bill`] looks those up). `None`
/// as well if only the sum of several prompts is known, and long prompts have a price of their own that one of them may
/// have reached. Where inference bound to a region has no factor, there is no surcharge.
///
/// Rates that the price does not list: cache reads and short writes are plain input; long writes, where short
/// ones carry a surcharge, are twice the input rate for an hour and two and a half times for twelve;
/// reasoning is output. A rate missing from a service tier or a long-context list moves as its input rate
/// does. Where the base rates are not the list's own, the other lists move them in the list's proportions.
pub fn cost(usage: &Usage, price: &Price) -> Option<CostBreakdown> {
    cost_with(usage, price, |_| None).map(|(lines, _)| lines)
}

/// The bill of a response of `model`: the provider's own figure if it states one, else the catalogue's.
///
/// `vendor` is who bills, see [`Catalogue::billed`]. `None` if any part of the price is unknown.
pub fn bill(catalogue: &Catalogue, usage: &Usage, model: &str, vendor: Option<Vendor>) -> Option<Bill> {
    if let Some(total) = usage.provider_cost {
        return Some(Bill { total, lines: None, cache_saved: None, source: Source::Provider });
    }
    let priced = catalogue.billed(model, vendor)?;
    let lookup = |model: &str| catalogue.billed(model, vendor).map(|priced| priced.price);
    let (lines, saved) = cost_with(usage, &priced.price, lookup)?;
    let (total, lines, cache_saved) = (lines.total(), Some(lines), Some(saved));
    Some(Bill { total, lines, cache_saved, source: priced.source })
}

/// The least that a response of `model` cost if it has no [`bill`]: what is known of it, and what of that has a known
/// price. A prompt of unknown length counts as a short one, for which no list asks more than for a long one. `None` if
/// the price of the model or of the service is unknown.
pub fn min_cost(catalogue: &Catalogue, usage: &Usage, model: &str, vendor: Option<Vendor>) -> Option<Money> {
    let price = catalogue.billed(model, vendor)?.price;
    let lookup = |model: &str| catalogue.billed(model, vendor).map(|priced| priced.price);
    cost_with(&known_part(usage, lookup), &price, lookup).map(|(lines, _)| lines.total())
}

/// What is known of a response and has a price, without figures that mean nothing.
fn known_part(usage: &Usage, lookup: impl Fn(&str) -> Option<Arc<Price>>) -> Usage {
    let mut known = usage.clone();
    let prompt = usage.largest_prompt().filter(|_| !usage.prompt_is_unknown);
    known.largest_prompt = Some(prompt.unwrap_or(0));
    let tokens = &mut known.tokens;
    if usage.prompt_is_unknown {
        *tokens = Tokens { output: tokens.output, reasoning: tokens.reasoning, ..Tokens::default() };
    }
    if usage.output_is_unknown {
        tokens.output = 0;
    }
    tokens.output = tokens.output.saturating_sub(usage.media_output);
    // Audio is part of the uncached input or of what is read from the cache. Of these, the input costs more.
    let read = usage.audio_input.saturating_sub(tokens.input);
    tokens.input = tokens.input.saturating_sub(usage.audio_input);
    tokens.cache_read = tokens.cache_read.saturating_sub(read);
    // Unlike stated ones, searches that are only shown may have no price.
    known.searches_shown = usage.searches_shown.max(usage.web_searches);
    known.extra.retain(|call| call.model.as_deref().is_none_or(|model| lookup(model).is_some()));
    (known.prompt_is_unknown, known.output_is_unknown) = (false, false);
    (known.audio_input, known.media_output, known.web_searches) = (0, 0, 0);
    known
}

/// The names of charges for a response that are not on its bill, because they have no known price.
pub fn unpriced_names(usage: &Usage, bill: Option<&Bill>) -> Vec<String> {
    let searches = bill.and_then(|bill| bill.lines).map_or(Money::ZERO, |lines| lines.searches);
    let is_billed = |charge: &Charge| *charge == Charge::WebSearch && searches > Money::ZERO;
    let unpriced = usage.unpriced.iter().filter(|charge| !is_billed(charge));
    unpriced.map(|charge| charge.as_str().to_owned()).collect()
}

/// The cost, and what the provider's cache saved.
fn cost_with(
    usage: &Usage,
    price: &Price,
    lookup: impl Fn(&str) -> Option<Arc<Price>>,
) -> Option<(CostBreakdown, Money)> {
    if usage.output_is_unknown {
        return None;
    }
    let prompt = match usage.largest_prompt() {
        Some(prompt) => prompt,
        // No prompt is larger than all of them together.
        None => Some(usage.tokens.prompt()).filter(|sum| price.long_context(*sum).is_none())?,
    };
    let schedule = Schedule::of(usage, price, prompt)?;
    let (mut lines, mut saved) = schedule.lines_and_saved(&usage.tokens);
    lines.input += schedule.audio_surcharge(usage)?;
    let (searches, each) = match usage.web_searches {
        // Searches that are only shown cost nothing here if their price is unknown: they are named as a charge
        // without a price.
        0 => (usage.searches_shown, price.web_search.unwrap_or_default()),
        stated => (stated, price.web_search?),
    };
    lines.searches = Money::from_picodollars(each.picodollars().saturating_mul(searches.into()));
    for call in &usage.extra {
        let other = match &call.model {
            Some(model) => Some(lookup(model)?),
            None => None,
        };
        let price = other.as_deref().unwrap_or(price);
        let schedule = Schedule::of(usage, price, call.tokens.prompt())?;
        let (more, more_saved) = schedule.lines_and_saved(&call.tokens);
        lines = lines.plus(more);
        saved += more_saved;
    }
    Some((lines, saved))
}

/// The rates that apply to one model call.
struct Schedule<'a> {
    price: &'a Price,
    /// The list for long context, if the prompt is long enough. It changes the base rates as it relates to the list's
    /// own ([`Price::listed`]).
    long_context: Option<&'a Rates>,
    /// The list of the service tier, which does the same.
    tier: &'a Rates,
    /// The factors of the speed and of the region.
    factors: [Factor; 2],
}

impl<'a> Schedule<'a> {
    /// The rates for a call whose prompt has `prompt` tokens, which is what thresholds are compared with; if
    /// server-side tools made several calls, for the largest of their prompts. `None` if the price does not list the
    /// tier or the speed, or if the length of the prompt is unknown.
    fn of(usage: &Usage, price: &'a Price, prompt: u64) -> Option<Self> {
        if usage.prompt_is_unknown {
            return None;
        }
        let tier = price.tier(usage.tier)?;
        let speed = match usage.speed {
            Speed::Standard => Factor::ONE,
            Speed::Fast => price.fast?,
        };
        let geo = match usage.geo {
            Geo::Global => Factor::ONE,
            Geo::Us => price.us.unwrap_or(Factor::ONE),
            Geo::Region => price.region.unwrap_or(Factor::ONE),
        };
        Some(Self { price, long_context: price.long_context(prompt), tier, factors: [speed, geo] })
    }

    fn lines(&self, tokens: &Tokens) -> CostBreakdown {
        let reasoning = tokens.reasoning.min(tokens.output);
        CostBreakdown {
            input: self.cost(Kind::Input, tokens.input),
            cache_read: self.cost(Kind::CacheRead, tokens.cache_read),
            cache_write: self.cost(Kind::CacheWrite5m, tokens.cache_write_5m)
                + self.cost(Kind::CacheWrite1h, tokens.cache_write_1h)
                + self.cost(Kind::CacheWrite12h, tokens.cache_write_12h),
            output: self.cost(Kind::Output, tokens.output - reasoning)
                + self.cost(Kind::Reasoning, reasoning),
            searches: Money::ZERO,
        }
    }

    /// The lines, and what tokens that were read from the cache and written to it would have cost as plain input, less
    /// what they cost.
    fn lines_and_saved(&self, tokens: &Tokens) -> (CostBreakdown, Money) {
        let lines = self.lines(tokens);
        let plain = self.cost(Kind::Input, tokens.cache_read.saturating_add(tokens.cache_write()));
        (lines, plain - lines.cache_read - lines.cache_write)
    }

    /// How much more the audio in a prompt costs than text. `None` if that is not listed, as for output, and for
    /// prompts whose rate a tier, long context or the cache changes.
    fn audio_surcharge(&self, usage: &Usage) -> Option<Money> {
        if usage.media_output > 0 {
            return None;
        }
        if usage.audio_input == 0 {
            return Some(Money::ZERO);
        }
        let is_plain = usage.tier == Tier::Standard
            && self.long_context.is_none()
            && usage.tokens.prompt() == usage.tokens.input;
        let audio = self.price.base.audio.filter(|_| is_plain)?;
        let tokens = usage.audio_input.min(usage.tokens.input);
        let plain = self.cost(Kind::Input, tokens);
        let audio = self.factors.into_iter().fold(Fraction::from(audio), Fraction::times).of(tokens);
        Some(audio - plain)
    }

    fn cost(&self, kind: Kind, tokens: u64) -> Money {
        if tokens == 0 {
            return Money::ZERO;
        }
        let mut rate = Fraction::from(self.price.base.full(kind));
        for list in self.long_context.into_iter().chain([self.tier]) {
            rate = self.moved(rate, kind, list);
        }
        self.factors.into_iter().fold(rate, Fraction::times).of(tokens)
    }

    /// A rate for `kind`, moved as a list for long context or a service tier relates to the list's own base rates.
    fn moved(&self, rate: Fraction, kind: Kind, list: &Rates) -> Fraction {
        let (base, listed) = (&self.price.base, self.price.listed());
        match (list.listed(kind), listed.listed(kind)) {
            (Some(to), Some(from)) => rate.scaled(from, to),
            // Only this list states the kind: its rate is moved as the base rates relate to the list's own.
            (Some(to), None) if base.listed(kind).is_none() => {
                Fraction::from(to).scaled(listed.leading(kind), base.leading(kind))
            }
            _ => rate.scaled(listed.leading(kind), list.leading(kind)),
        }
    }
}
