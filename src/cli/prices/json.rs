//! Prices as JSON: each figure is an exact decimal number in a string, or null if it is unknown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Quote, TIERS, long, usual};
use crate::usage::{CATALOGUE_DATE, Factor, Listed, Money, PerMillion, Price, Rates};

#[derive(Serialize)]
pub(super) struct Document<'a> {
    catalogue: &'static str,
    prices: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    model: &'a str,
    upstream: Option<&'a str>,
    source: Option<String>,
    listed: Option<Row>,
    #[serde(flatten)]
    schedule: Schedule,
}

#[derive(Serialize)]
struct Row {
    seller: &'static str,
    name: &'static str,
}

#[derive(Serialize, Default)]
struct Schedule {
    rates: Option<Costs>,
    not_listed: Vec<&'static str>,
    audio_input: Option<String>,
    long_prompts: Vec<Long>,
    tiers: BTreeMap<&'static str, Costs>,
    factors: Factors,
    web_search: Option<String>,
    window: Option<u64>,
}

#[derive(Serialize)]
struct Long {
    above: u64,
    rates: Costs,
}

#[derive(Serialize)]
struct Costs {
    input: String,
    cache_read: String,
    cache_write_5m: String,
    cache_write_1h: String,
    cache_write_12h: String,
    output: String,
    reasoning: String,
}

#[derive(Serialize, Default)]
struct Factors {
    us: Option<String>,
    region: Option<String>,
    fast: Option<String>,
}

/// The document of all quotes.
pub(super) fn of(quotes: &[Quote]) -> Document<'_> {
    Document { catalogue: CATALOGUE_DATE, prices: quotes.iter().map(entry).collect() }
}

fn entry(quote: &Quote) -> Entry<'_> {
    let priced = quote.priced.as_ref();
    let row = |Listed { seller, name }| Row { seller: seller.as_str(), name };
    Entry {
        model: &quote.model,
        upstream: quote.upstream.as_deref(),
        source: priced.map(|priced| priced.source.to_string()),
        listed: priced.and_then(|priced| priced.listed).map(row),
        schedule: priced.map(|priced| schedule(&priced.price)).unwrap_or_default(),
    }
}

fn schedule(price: &Price) -> Schedule {
    let long = long(price);
    let long_prompts = long.iter().map(|(above, costs)| Long { above: above.gt, rates: Costs::of(costs) });
    let tiers = TIERS
        .into_iter()
        .filter_map(|(name, tier)| Some((name, Costs::of(&PerMillion::of(price, tier, 0)?))));
    let factor = |factor: Option<Factor>| factor.map(|factor| factor.to_string());
    Schedule {
        rates: Some(Costs::of(&usual(price))),
        not_listed: not_listed(&price.base),
        audio_input: price.base.audio.map(|rate| rate.to_string()),
        long_prompts: long_prompts.collect(),
        tiers: tiers.collect(),
        factors: Factors { us: factor(price.us), region: factor(price.region), fast: factor(price.fast) },
        web_search: price.web_search.map(Money::usd),
        window: price.context_window,
    }
}

fn not_listed(rates: &Rates) -> Vec<&'static str> {
    let kinds = [
        ("cache_read", rates.cache_read),
        ("cache_write_5m", rates.cache_write_5m),
        ("cache_write_1h", rates.cache_write_1h),
        ("cache_write_12h", rates.cache_write_12h),
        ("reasoning", rates.reasoning),
    ];
    kinds.into_iter().filter(|(_, rate)| rate.is_none()).map(|(kind, _)| kind).collect()
}

impl Costs {
    fn of(costs: &PerMillion) -> Self {
        Self {
            input: costs.input.usd(),
            cache_read: costs.cache_read.usd(),
            cache_write_5m: costs.cache_write_5m.usd(),
            cache_write_1h: costs.cache_write_1h.usd(),
            cache_write_12h: costs.cache_write_12h.usd(),
            output: costs.output.usd(),
            reasoning: costs.reasoning.usd(),
        }
    }
}
