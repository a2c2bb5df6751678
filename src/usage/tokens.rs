//! The normalised record of what one response used.
//!
//! Providers count differently: some put cache reads inside the prompt figure, some next to it; some put reasoning next
//! to the output. Here every prompt token is in exactly one bucket, and reasoning is part of the output, so that a sum
//! over buckets never counts a token twice.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::charge::Charge;
use super::money::Money;
use super::vendor::region_of_path;

/// Token counts in disjoint buckets. Sums saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Prompt tokens that were neither read from nor written to the provider's cache.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache for the provider's default time: 5 minutes at Anthropic, 30 minutes
    /// at `OpenAI`.
    pub cache_write_5m: u64,
    /// Prompt tokens written to the cache for an hour (Anthropic).
    pub cache_write_1h: u64,
    /// Prompt tokens written to the cache for twelve hours (`OpenAI`).
    pub cache_write_12h: u64,
    /// All output tokens, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning; informative, never added to it.
    pub reasoning: u64,
}

impl Tokens {
    /// All prompt tokens: what the provider compares with long-context thresholds.
    pub const fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write())
    }

    /// Prompt tokens written to the cache, for whatever time.
    pub const fn cache_write(&self) -> u64 {
        self.cache_write_5m.saturating_add(self.cache_write_1h).saturating_add(self.cache_write_12h)
    }

    /// Prompt and output.
    pub const fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write_5m: self.cache_write_5m.saturating_add(other.cache_write_5m),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
            cache_write_12h: self.cache_write_12h.saturating_add(other.cache_write_12h),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// What one response used, and under which conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The response's own tokens.
    pub tokens: Tokens,
    /// The provider gave figures, but none from which the prompt's length follows: `tokens.input` is meaningless.
    pub prompt_is_unknown: bool,
    /// The provider gave figures, but none from which the output's length follows: `tokens.output` is meaningless.
    pub output_is_unknown: bool,
    /// Server-side web searches, billed per query.
    pub web_searches: u64,
    /// Searches visible in the answer, if their number is not stated: billed if there is a price for them.
    pub searches_shown: u64,
    /// The service tier that served the request.
    pub tier: Tier,
    /// The speed it was served at.
    pub speed: Speed,
    /// Where inference was bound to run.
    pub geo: Geo,
    /// Prompt tokens of the last model call, where server-side tools made several and `tokens` is their sum.
    pub last_prompt: Option<u64>,
    /// Prompt tokens of the largest of these calls, if each is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_prompt: Option<u64>,
    /// The part of `tokens.input` that does not belong to the request: results of tools that the provider ran.
    pub beside_prompt: u64,
    /// The part of `tokens.cache_write_5m` whose time to live the provider did not state.
    pub cache_write_untold: u64,
    /// The provider has removed parts of the prompt by itself: the figures are those of the rest.
    pub prompt_is_cut: bool,
    /// Which prompt tokens are the request's own, if server-side tools made several model calls of it.
    #[serde(skip_serializing_if = "OwnPrompt::is_all")]
    pub own: OwnPrompt,
    /// What the provider itself says the response cost.
    pub provider_cost: Option<Money>,
    /// Other charges without a known price, each once, in order. None if the provider states its cost.
    pub unpriced: Vec<Charge>,
    /// Model calls that are billed with this response but are not inside `tokens`.
    pub extra: Vec<Extra>,
    /// The part of the prompt that is audio, which most models charge more for.
    pub audio_input: u64,
    /// The part of the output that is audio or images: no list price is known for it.
    pub media_output: u64,
}

impl Usage {
    /// The usage of a request with this path: a region in it is where inference was bound to run.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        match region_of_path(path) {
            Some(_) => Self { geo: Geo::Region, ..self },
            None => self,
        }
    }

    /// The usage of a request in which all marks asked for an hour: cache writes without a stated time to live count
    /// as one-hour writes.
    #[must_use]
    pub fn kept_for_an_hour(self) -> Self {
        let untold = self.cache_write_untold.min(self.tokens.cache_write_5m);
        let tokens = Tokens {
            cache_write_5m: self.tokens.cache_write_5m - untold,
            cache_write_1h: self.tokens.cache_write_1h.saturating_add(untold),
            ..self.tokens
        };
        Self { tokens, cache_write_untold: 0, ..self }
    }

    /// The usage of a request whose price is not known, whichever service tier its answer states.
    #[must_use]
    pub fn without_price(self) -> Self {
        Self { tier: Tier::Other, ..self }
    }

    /// The usage as a lower bound: unknown output counts as none.
    #[must_use]
    pub fn at_least(self) -> Self {
        Self { output_is_unknown: false, ..self }
    }

    /// How much of the context window the prompt took, in tokens: all prompt tokens of the last model call.
    pub fn context_tokens(&self) -> u64 {
        self.last_prompt.unwrap_or_else(|| self.tokens.prompt())
    }

    /// The largest prompt of a model call, which is what long-context thresholds are compared with. If only the first
    /// call is reported, that call's: the others are longer by the results of tools. `None` if none is reported; it is
    /// then smaller than the sum in `tokens`.
    pub fn largest_prompt(&self) -> Option<u64> {
        match (self.largest_prompt, self.own) {
            (None, OwnPrompt::All) => Some(self.context_tokens()),
            (None, OwnPrompt::Some(tokens)) => Some(tokens),
            (largest, _) => largest,
        }
    }

    /// How much of the context window belongs to the request, without what the provider added.
    pub fn asked_tokens(&self) -> u64 {
        self.context_tokens().saturating_sub(self.beside_prompt)
    }

    /// The tokens that the next prompt begins with; `None` if unknown, though never more than [`Self::asked_tokens`].
    pub fn own_tokens(&self) -> Option<u64> {
        match self.own {
            OwnPrompt::All => Some(self.asked_tokens()),
            OwnPrompt::Some(tokens) => Some(tokens),
            OwnPrompt::Unknown => None,
        }
    }

    /// The tokens that are billed: the response's own and those of the extra calls.
    pub fn billed_tokens(&self) -> Tokens {
        self.tokens + self.extra.iter().map(|call| call.tokens).sum()
    }
}

/// Which of the prompt's tokens are the request's own: each model call for server-side tools reads the whole prompt
/// again, with what was added since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnPrompt {
    /// All.
    #[default]
    All,
    /// This many.
    Some(u64),
    /// The figures are a sum over several model calls, none of which is reported.
    Unknown,
}

impl OwnPrompt {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// A model call made by the provider on the side: a server-side compaction, an advisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extra {
    /// The model it is billed as; `None`: the response's own.
    pub model: Option<String>,
    /// Its tokens.
    pub tokens: Tokens,
}

/// A provider's service tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The list price.
    #[default]
    Standard,
    /// Batches.
    Batch,
    /// Served before others.
    Priority,
    /// Served when there is room.
    Flex,
    /// `OpenAI`'s fastest tier.
    Ultrafast,
    /// A tier without a public price, such as provisioned throughput.
    Other,
}

impl Tier {
    /// The tier that a provider's word means: `service_tier`, or Gemini's `trafficType`.
    pub fn from_wire(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            ""
            | "standard"
            | "default"
            | "auto"
            | "on_demand"
            | "unspecified"
            | "service_tier_unspecified"
            | "traffic_type_unspecified" => Self::Standard,
            "batch" => Self::Batch,
            // OpenAI has two names for it.
            "priority" | "fast" | "on_demand_priority" => Self::Priority,
            "flex" | "on_demand_flex" => Self::Flex,
            "ultrafast" => Self::Ultrafast,
            _ => Self::Other,
        }
    }
}

/// The speed a response was served at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// As listed.
    #[default]
    Standard,
    /// Anthropic's fast mode, at a multiple of the list price.
    Fast,
}

impl Speed {
    /// The speed that a provider's word means.
    pub fn from_wire(word: &str) -> Self {
        if word.eq_ignore_ascii_case("fast") { Self::Fast } else { Self::Standard }
    }
}

/// Where inference was bound to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Geo {
    /// Anywhere.
    #[default]
    Global,
    /// The United States only, which some models charge more for.
    Us,
    /// One region of a seller of others' models, which most of those models charge more for.
    Region,
}

impl Geo {
    /// The region that a provider's word means.
    pub fn from_wire(word: &str) -> Self {
        if word.eq_ignore_ascii_case("us") { Self::Us } else { Self::Global }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let tokens = Tokens {
            input: 1,
            cache_read: 20,
            cache_write_5m: 300,
            cache_write_1h: 4000,
            cache_write_12h: 50_000,
            output: 600_000,
            reasoning: 500_000,
        };
        assert_eq!((tokens.prompt(), tokens.cache_write(), tokens.total()), (54_321, 54_300, 654_321));
        assert_eq!([tokens, tokens].into_iter().sum::<Tokens>().total(), 1_308_642);
    }

    #[test]
    fn sums_saturate() {
        let most = Tokens { input: u64::MAX, cache_read: u64::MAX, output: u64::MAX, ..Tokens::default() };
        assert_eq!((most + most).total(), u64::MAX);
    }

    #[test]
    fn context_tokens_are_those_of_the_last_call() {
        let tokens = Tokens { input: 100, cache_read: 900, ..Tokens::default() };
        let extra = vec![Extra { model: None, tokens }];
        let usage = Usage { tokens, extra, ..Usage::default() };
        assert_eq!((usage.context_tokens(), usage.billed_tokens().prompt()), (1000, 2000));
        assert_eq!(Usage { last_prompt: Some(600), ..usage }.context_tokens(), 600);
    }

    #[test]
    fn writes_of_unstated_lifetime_can_be_taken_for_an_hour() {
        for ((short, long, untold), expected) in [
            ((6000, 9000, 6000), (0, 15_000)),
            ((6000, 9000, 0), (6000, 9000)),
            ((6000, 9000, 2000), (4000, 11_000)),
            ((0, 0, 0), (0, 0)),
        ] {
            let tokens = Tokens { cache_write_5m: short, cache_write_1h: long, ..Tokens::default() };
            let usage = Usage { tokens, cache_write_untold: untold, ..Usage::default() }.kept_for_an_hour();
            assert_eq!((usage.tokens.cache_write_5m, usage.tokens.cache_write_1h), expected);
            assert_eq!(usage.clone().kept_for_an_hour(), usage);
        }
    }

    #[test]
    fn own_tokens_are_those_of_the_last_prompt() {
        let tokens = Tokens { input: 100, cache_read: 900, ..Tokens::default() };
        for (last_prompt, beside_prompt, own, expected) in [
            (None, 0, OwnPrompt::All, Some(1000)),
            (None, 30, OwnPrompt::All, Some(970)),
            (Some(600), 0, OwnPrompt::All, Some(600)),
            (None, 0, OwnPrompt::Some(70), Some(70)),
            (None, 0, OwnPrompt::Unknown, None),
        ] {
            let usage = Usage { tokens, last_prompt, beside_prompt, own, ..Usage::default() };
            assert_eq!(usage.own_tokens(), expected, "{last_prompt:?} {own:?}");
        }
    }

    #[test]
    fn the_largest_prompt_is_that_of_a_single_call() {
        let tokens = Tokens { input: 100, cache_read: 900, ..Tokens::default() };
        for (last_prompt, largest_prompt, own, expected) in [
            (None, None, OwnPrompt::All, Some(1000)),
            (Some(400), None, OwnPrompt::All, Some(400)),
            (Some(400), Some(600), OwnPrompt::All, Some(600)),
            (None, None, OwnPrompt::Some(70), Some(70)),
            (None, None, OwnPrompt::Unknown, None),
        ] {
            let usage = Usage { tokens, last_prompt, largest_prompt, own, ..Usage::default() };
            assert_eq!(usage.largest_prompt(), expected, "{usage:?}");
        }
    }

    #[test]
    fn provider_words_for_tier_speed_and_region_are_read() {
        for (word, expected) in [
            ("standard", Tier::Standard),
            ("default", Tier::Standard),
            ("", Tier::Standard),
            ("ON_DEMAND", Tier::Standard),
            ("unspecified", Tier::Standard),
            ("TRAFFIC_TYPE_UNSPECIFIED", Tier::Standard),
            ("batch", Tier::Batch),
            ("priority", Tier::Priority),
            ("fast", Tier::Priority),
            ("ON_DEMAND_FLEX", Tier::Flex),
            ("ultrafast", Tier::Ultrafast),
            ("PROVISIONED_THROUGHPUT", Tier::Other),
            ("scale", Tier::Other),
        ] {
            assert_eq!(Tier::from_wire(word), expected, "{word}");
        }
        assert_eq!((Speed::from_wire("fast"), Speed::from_wire("standard")), (Speed::Fast, Speed::Standard));
        assert_eq!((Geo::from_wire("us"), Geo::from_wire("not_available")), (Geo::Us, Geo::Global));
    }
}
