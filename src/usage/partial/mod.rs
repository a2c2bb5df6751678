//! Usage figures that arrive piece by piece in a stream.
//!
//! A stream repeats its usage figures in several events, each with some of the fields, each cumulative. They
//! are folded field by field, the last stated value winning, and only then turned into disjoint buckets:
//! subtracting event by event would mix figures of different events. Nothing is ever added up over events.
//!
//! No prompt is empty. If all figures of a prompt are zero, after an event that stated more or together with output,
//! they are what a server writes if it has no figures, and are ignored.

#[cfg(test)]
mod tests;

use super::charge::Charge;
use super::money::Money;
use super::tokens::{Extra, Geo, OwnPrompt, Speed, Tier, Tokens, Usage};

/// The figures of one response as the provider stated them so far. `None` is "not stated", which is not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// The prompt figure, and what the provider means by it.
    pub prompt: Option<Prompt>,
    /// Uncached prompt tokens that the provider states in addition to `prompt` (Gemini's `toolUsePromptTokenCount`).
    pub tool_prompt: Option<u64>,
    /// Prompt tokens read from the cache.
    pub cache_read: Option<u64>,
    /// Prompt tokens written to the cache, for whatever time.
    pub cache_write: Option<u64>,
    /// The part of `cache_write` for the provider's default time.
    pub cache_write_5m: Option<u64>,
    /// The part of `cache_write` for an hour.
    pub cache_write_1h: Option<u64>,
    /// The part of `cache_write` for twelve hours.
    pub cache_write_12h: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// All tokens of prompt and output. If only one of the two is stated, the other follows from it.
    pub total: Option<u64>,
    /// Reasoning tokens, and whether `output` contains them.
    pub reasoning: Option<Reasoning>,
    /// Server-side web searches.
    pub web_searches: Option<u64>,
    /// Searches that are visible in the answer.
    pub searches_shown: Option<u64>,
    /// Prompt tokens of the last model call, see [`Usage::last_prompt`].
    pub last_prompt: Option<u64>,
    /// Prompt tokens of the largest model call, see [`Usage::largest_prompt`].
    pub largest_prompt: Option<u64>,
    /// Which of the prompt's tokens are the request's own, see [`Usage::own`].
    pub own: Option<OwnPrompt>,
    /// The service tier.
    pub tier: Option<Tier>,
    /// The speed.
    pub speed: Option<Speed>,
    /// The region.
    pub geo: Option<Geo>,
    /// The provider's own figure for the cost.
    pub provider_cost: Option<Money>,
    /// Whether the provider has removed parts of the prompt, as any event may say.
    pub prompt_is_cut: bool,
    /// Charges besides tokens without a known price, as far as any event shows them.
    pub unpriced: Vec<Charge>,
    /// Model calls outside these figures; a newer list replaces an older one.
    pub extra: Option<Vec<Extra>>,
    /// The part of the prompt that is audio.
    pub audio_input: Option<u64>,
    /// The part of the output that is not text.
    pub media_output: Option<u64>,
}

/// A prompt figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// What was neither read from nor written to the cache (Anthropic, Bedrock).
    Uncached(u64),
    /// All of it, cache reads and writes included (`OpenAI`, Gemini and most others). If a server claims that more was
    /// cached, nothing is left uncached, and its claims are kept.
    Total(u64),
}

/// A reasoning figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// The output figure contains it (Anthropic, `OpenAI`).
    Inside(u64),
    /// It is stated in addition to the output figure (Gemini).
    Beside(u64),
}

impl Partial {
    /// Takes over every figure that `newer` states.
    pub fn fold(&mut self, newer: Self) {
        fn last<T>(older: &mut Option<T>, newer: Option<T>) {
            if newer.is_some() {
                *older = newer;
            }
        }
        let had_prompt = self.has_empty_prompt() == Some(false);
        let newer =
            if had_prompt && newer.has_empty_prompt() == Some(true) { newer.without_zeros() } else { newer };
        if newer.prompt.is_some() || newer.output.is_some() {
            // A total of older figures does not apply to newer ones.
            self.total = None;
        }
        self.cap_writes(&newer);
        last(&mut self.total, newer.total);
        last(&mut self.prompt, newer.prompt);
        last(&mut self.tool_prompt, newer.tool_prompt);
        last(&mut self.cache_read, newer.cache_read);
        last(&mut self.cache_write, newer.cache_write);
        last(&mut self.cache_write_5m, newer.cache_write_5m);
        last(&mut self.cache_write_1h, newer.cache_write_1h);
        last(&mut self.cache_write_12h, newer.cache_write_12h);
        last(&mut self.output, newer.output);
        last(&mut self.reasoning, newer.reasoning);
        last(&mut self.web_searches, newer.web_searches);
        last(&mut self.searches_shown, newer.searches_shown);
        last(&mut self.last_prompt, newer.last_prompt);
        last(&mut self.largest_prompt, newer.largest_prompt);
        last(&mut self.own, newer.own);
        last(&mut self.tier, newer.tier);
        last(&mut self.speed, newer.speed);
        last(&mut self.geo, newer.geo);
        last(&mut self.provider_cost, newer.provider_cost);
        last(&mut self.extra, newer.extra);
        self.prompt_is_cut |= newer.prompt_is_cut;
        self.unpriced.extend(newer.unpriced);
        last(&mut self.audio_input, newer.audio_input);
        last(&mut self.media_output, newer.media_output);
    }

    /// Makes the written tokens by lifetime add up to a newer total that is smaller and does not state lifetimes. The
    /// missing tokens were read instead. They are at the beginning of the prompt, and so are those with the longest
    /// lifetime, which are therefore reduced first.
    fn cap_writes(&mut self, newer: &Self) {
        let split = [newer.cache_write_5m, newer.cache_write_1h, newer.cache_write_12h];
        let Some(mut left) = newer.cache_write.filter(|_| split.iter().all(Option::is_none)) else { return };
        for part in [&mut self.cache_write_5m, &mut self.cache_write_1h, &mut self.cache_write_12h] {
            *part = part.map(|tokens| tokens.min(left));
            left -= part.unwrap_or(0);
        }
    }

    /// Whether nothing was in the prompt; `None` if none is stated.
    fn has_empty_prompt(&self) -> Option<bool> {
        self.prompt.map(|prompt| self.is_empty(prompt))
    }

    /// Whether a prompt with this figure is empty: none of it was read from the cache or written to it either.
    fn is_empty(&self, prompt: Prompt) -> bool {
        let (Prompt::Uncached(prompt) | Prompt::Total(prompt)) = prompt;
        prompt == 0 && self.cache_read.unwrap_or(0) == 0 && self.cache_writes().cache_write() == 0
    }

    /// The same without a prompt figure, and without figures that are zero.
    fn without_zeros(mut self) -> Self {
        self.prompt = None;
        for figure in [
            &mut self.cache_read,
            &mut self.cache_write,
            &mut self.cache_write_5m,
            &mut self.cache_write_1h,
            &mut self.cache_write_12h,
            &mut self.output,
            &mut self.total,
        ] {
            *figure = figure.filter(|tokens| *tokens > 0);
        }
        self
    }

    /// The record, or `None` if no figure was ever stated: unknown usage is not zero usage.
    pub fn finish(self) -> Option<Usage> {
        self.states_anything().then(|| {
            let tokens = self.tokens();
            let unpriced = self.unpriced();
            let beside_prompt = self.tool_prompt.unwrap_or(0).min(tokens.input);
            let is_stated = self.web_searches.is_some() || self.provider_cost.is_some();
            Usage {
                tokens,
                prompt_is_unknown: self.prompt_stated().is_none(),
                output_is_unknown: self.output_stated().is_none(),
                web_searches: self.web_searches.unwrap_or(0),
                searches_shown: self.searches_shown.filter(|_| !is_stated).unwrap_or(0),
                tier: self.tier.unwrap_or_default(),
                speed: self.speed.unwrap_or_default(),
                geo: self.geo.unwrap_or_default(),
                last_prompt: self.last_prompt,
                largest_prompt: self.largest_prompt,
                beside_prompt,
                prompt_is_cut: self.prompt_is_cut,
                cache_write_untold: tokens.cache_write_5m
                    - self.cache_write_5m.unwrap_or(0).min(tokens.cache_write_5m),
                own: self.own.unwrap_or_default(),
                provider_cost: self.provider_cost,
                unpriced,
                extra: self.extra.unwrap_or_default(),
                audio_input: self.audio_input.unwrap_or(0),
                media_output: self.media_output.unwrap_or(0),
            }
        })
    }

    /// The charges without a known price. There are none if the provider states the cost, which covers all charges.
    /// Searches whose number is stated have a price.
    fn unpriced(&self) -> Vec<Charge> {
        let mut charges = self.unpriced.clone();
        charges.retain(|charge| {
            self.provider_cost.is_none() && (*charge != Charge::WebSearch || self.web_searches.is_none())
        });
        charges.sort_unstable();
        charges.dedup();
        charges
    }

    fn states_anything(&self) -> bool {
        let counts = [
            self.tool_prompt,
            self.cache_read,
            self.cache_write,
            self.cache_write_5m,
            self.cache_write_1h,
            self.cache_write_12h,
            self.output,
        ];
        self.prompt.is_some()
            || self.reasoning.is_some()
            || self.provider_cost.is_some()
            || counts.iter().any(Option::is_some)
            || self.extra.as_ref().is_some_and(|extra| !extra.is_empty())
    }

    /// The figures in disjoint buckets.
    fn tokens(&self) -> Tokens {
        let (output, reasoning) = self.output_and_reasoning();
        let mut tokens = self.cache_writes();
        tokens.cache_read = self.cache_read.unwrap_or(0);
        let cached = tokens.prompt();
        let tool_prompt = self.tool_prompt.unwrap_or(0);
        tokens.input = match self.prompt_stated() {
            Some(Prompt::Total(total)) => total.saturating_add(tool_prompt).saturating_sub(cached),
            Some(Prompt::Uncached(uncached)) => uncached.saturating_add(tool_prompt),
            None => tool_prompt,
        };
        Tokens { output, reasoning, ..tokens }
    }

    /// The prompt figure: the stated one, else what the total has beyond the output. An empty prompt does not count as
    /// stated if there is an output, unless other prompt tokens are stated besides.
    fn prompt_stated(&self) -> Option<Prompt> {
        let stated = self.prompt.or_else(|| {
            self.output?;
            let (output, _) = self.output_and_reasoning();
            self.rest_beside(output).map(Prompt::Total)
        });
        let may_be_empty = self.output.unwrap_or(0) == 0 || self.tool_prompt > Some(0);
        stated.filter(|prompt| may_be_empty || !self.is_empty(*prompt))
    }

    /// The output figure: the stated one, else what the total has beyond the prompt.
    fn output_stated(&self) -> Option<u64> {
        let rest = || match (self.prompt?, self.reasoning) {
            (Prompt::Total(prompt), Some(Reasoning::Beside(reasoning))) => {
                self.rest_beside(prompt.saturating_add(reasoning))
            }
            (Prompt::Total(prompt), _) => self.rest_beside(prompt),
            (Prompt::Uncached(_), _) => None,
        };
        self.output.or_else(rest)
    }

    /// If no reasoning is stated, takes what the total has beyond the prompt and the output for reasoning that is not
    /// part of the output.
    pub fn reason_with_the_rest(&mut self) {
        if let (Some(Prompt::Total(prompt)), Some(output), None) = (self.prompt, self.output, self.reasoning)
        {
            // Some servers count what was read from the cache in addition to the prompt.
            let cached = self.cache_read.unwrap_or(0).saturating_add(self.cache_write.unwrap_or(0));
            let rest =
                self.rest_beside(prompt.saturating_add(output)).filter(|rest| *rest > 0 && *rest != cached);
            self.reasoning = rest.map(Reasoning::Beside);
        }
    }

    /// What the total has beyond `tokens` and the tokens stated in addition to the prompt; `None` if it is not stated,
    /// or smaller.
    fn rest_beside(&self, tokens: u64) -> Option<u64> {
        self.total?.checked_sub(tokens)?.checked_sub(self.tool_prompt.unwrap_or(0))
    }

    /// Whether an output is all that the total has beyond the prompt.
    fn is_the_rest(&self, output: u64) -> bool {
        matches!(self.prompt, Some(Prompt::Total(prompt)) if self.rest_beside(prompt) == Some(output))
    }

    /// The writes by time to live. What all writes have beyond the stated parts was written for the default time: later
    /// events repeat the sum, but not the parts.
    fn cache_writes(&self) -> Tokens {
        let cache_write_1h = self.cache_write_1h.unwrap_or(0);
        let cache_write_12h = self.cache_write_12h.unwrap_or(0);
        let rest =
            self.cache_write.unwrap_or(0).saturating_sub(cache_write_1h.saturating_add(cache_write_12h));
        let cache_write_5m = self.cache_write_5m.unwrap_or(0).max(rest);
        Tokens { cache_write_5m, cache_write_1h, cache_write_12h, ..Tokens::default() }
    }

    /// The whole output, and the reasoning in it.
    ///
    /// Reasoning cannot be inside an output that is smaller: some servers state it outside the output in the fields of
    /// a dialect that states it inside. Nor can it be outside an output that makes up the total with the prompt alone.
    fn output_and_reasoning(&self) -> (u64, u64) {
        let output = self.output_stated().unwrap_or(0);
        match self.reasoning {
            None => (output, 0),
            Some(Reasoning::Inside(reasoning)) if reasoning <= output => (output, reasoning),
            Some(Reasoning::Beside(reasoning)) if reasoning <= output && self.is_the_rest(output) => {
                (output, reasoning)
            }
            Some(Reasoning::Inside(reasoning) | Reasoning::Beside(reasoning)) => {
                (output.saturating_add(reasoning), reasoning)
            }
        }
    }
}
