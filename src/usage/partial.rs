//! Usage as it trickles in.
//!
//! A stream repeats its usage figures in several events, each with some of the fields, each cumulative. They
//! are folded field by field, the last stated value winning, and only then turned into disjoint buckets:
//! subtracting event by event would mix figures of different events. Nothing is ever added up over events.

use super::money::Money;
use super::tokens::{Extra, Geo, Speed, Tier, Tokens, Usage};

/// The figures of one response as the provider stated them so far. `None` is "not stated", which is not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// The prompt figure, and what the provider means by it.
    pub prompt: Option<Prompt>,
    /// Uncached prompt tokens that the provider states beside `prompt` (Gemini's `toolUsePromptTokenCount`).
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
    /// Reasoning tokens, and whether `output` contains them.
    pub reasoning: Option<Reasoning>,
    /// Server-side web searches.
    pub web_searches: Option<u64>,
    /// Prompt tokens of the last model call, see [`Usage::last_prompt`].
    pub last_prompt: Option<u64>,
    /// The service tier.
    pub tier: Option<Tier>,
    /// The speed.
    pub speed: Option<Speed>,
    /// The region.
    pub geo: Option<Geo>,
    /// The provider's own figure for the cost.
    pub provider_cost: Option<Money>,
    /// Model calls outside these figures; a newer list replaces an older one.
    pub extra: Option<Vec<Extra>>,
}

/// A prompt figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// What was neither read from nor written to the cache (Anthropic, Bedrock).
    Uncached(u64),
    /// All of it, cache reads and writes included (`OpenAI`, Gemini and most others).
    Total(u64),
}

/// A reasoning figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// The output figure contains it (Anthropic, `OpenAI`).
    Inside(u64),
    /// It is stated beside the output figure (Gemini).
    Beside(u64),
}

impl Partial {
    /// Figures of a provider whose prompt figure includes cache reads and writes. Subtraction saturates: where
    /// a server claims more cached than prompt tokens, nothing is left uncached and its claims stand.
    pub fn from_inclusive(
        prompt: Option<u64>,
        cached: Option<u64>,
        written: Option<u64>,
        output: Option<u64>,
    ) -> Self {
        let prompt = prompt.map(Prompt::Total);
        Self { prompt, cache_read: cached, cache_write: written, output, ..Self::default() }
    }

    /// Figures of a provider that states the uncached rest, cache reads and cache writes side by side.
    pub fn from_disjoint(
        uncached: Option<u64>,
        read: Option<u64>,
        written: Option<u64>,
        output: Option<u64>,
    ) -> Self {
        let prompt = uncached.map(Prompt::Uncached);
        Self { prompt, cache_read: read, cache_write: written, output, ..Self::default() }
    }

    /// Takes over every figure that `newer` states.
    pub fn fold(&mut self, newer: Self) {
        fn last<T>(older: &mut Option<T>, newer: Option<T>) {
            if newer.is_some() {
                *older = newer;
            }
        }
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
        last(&mut self.last_prompt, newer.last_prompt);
        last(&mut self.tier, newer.tier);
        last(&mut self.speed, newer.speed);
        last(&mut self.geo, newer.geo);
        last(&mut self.provider_cost, newer.provider_cost);
        last(&mut self.extra, newer.extra);
    }

    /// The record, or `None` if no figure was ever stated: unknown usage is not zero usage.
    pub fn finish(self) -> Option<Usage> {
        self.states_anything().then(|| {
            let tokens = self.tokens();
            Usage {
                tokens,
                web_searches: self.web_searches.unwrap_or(0),
                tier: self.tier.unwrap_or_default(),
                speed: self.speed.unwrap_or_default(),
                geo: self.geo.unwrap_or_default(),
                last_prompt: self.last_prompt,
                provider_cost: self.provider_cost,
                extra: self.extra.unwrap_or_default(),
            }
        })
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

    fn tokens(&self) -> Tokens {
        let (output, reasoning) = self.output_and_reasoning();
        let mut tokens = self.cache_writes();
        tokens.cache_read = self.cache_read.unwrap_or(0);
        let cached = tokens.prompt();
        let tool_prompt = self.tool_prompt.unwrap_or(0);
        tokens.input = match self.prompt {
            Some(Prompt::Total(total)) => total.saturating_add(tool_prompt).saturating_sub(cached),
            Some(Prompt::Uncached(uncached)) => uncached.saturating_add(tool_prompt),
            None => tool_prompt,
        };
        Tokens { output, reasoning, ..tokens }
    }

    /// The writes by lifetime. What the total has beyond the stated parts went in for the default time: later
    /// events repeat the total, but not the split.
    fn cache_writes(&self) -> Tokens {
        let cache_write_1h = self.cache_write_1h.unwrap_or(0);
        let cache_write_12h = self.cache_write_12h.unwrap_or(0);
        let rest =
            self.cache_write.unwrap_or(0).saturating_sub(cache_write_1h.saturating_add(cache_write_12h));
        let cache_write_5m = self.cache_write_5m.unwrap_or(0).max(rest);
        Tokens { cache_write_5m, cache_write_1h, cache_write_12h, ..Tokens::default() }
    }

    /// The whole output and the reasoning in it. Reasoning said to be inside an output smaller than itself
    /// cannot be: some servers state it beside while using the other's field names.
    fn output_and_reasoning(&self) -> (u64, u64) {
        let output = self.output.unwrap_or(0);
        match self.reasoning {
            None => (output, 0),
            Some(Reasoning::Inside(reasoning)) if reasoning <= output => (output, reasoning),
            Some(Reasoning::Inside(reasoning) | Reasoning::Beside(reasoning)) => {
                (output.saturating_add(reasoning), reasoning)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(events: impl IntoIterator<Item = Partial>, expected: Tokens) {
        let mut folded = Partial::default();
        for event in events {
            folded.fold(event);
        }
        assert_eq!(folded.finish().map(|usage| usage.tokens), Some(expected));
    }

    /// The same response as three providers report it: 904 uncached, 4096 read, 420 out of which 300 reasoning.
    #[test]
    fn meanings_agree() {
        let expected =
            Tokens { input: 904, cache_read: 4096, output: 420, reasoning: 300, ..Tokens::default() };
        // {"prompt_tokens":5000,"completion_tokens":420,"prompt_tokens_details":{"cached_tokens":4096},
        //  "completion_tokens_details":{"reasoning_tokens":300}}
        let openai = Partial {
            reasoning: Some(Reasoning::Inside(300)),
            ..Partial::from_inclusive(Some(5000), Some(4096), None, Some(420))
        };
        // {"input_tokens":904,"cache_read_input_tokens":4096,"cache_creation_input_tokens":0,
        //  "output_tokens":420,"output_tokens_details":{"thinking_tokens":300}}
        let anthropic = Partial {
            reasoning: Some(Reasoning::Inside(300)),
            ..Partial::from_disjoint(Some(904), Some(4096), Some(0), Some(420))
        };
        // {"promptTokenCount":4900,"toolUsePromptTokenCount":100,"cachedContentTokenCount":4096,
        //  "candidatesTokenCount":120,"thoughtsTokenCount":300}
        let gemini = Partial {
            tool_prompt: Some(100),
            reasoning: Some(Reasoning::Beside(300)),
            ..Partial::from_inclusive(Some(4900), Some(4096), None, Some(120))
        };
        let records = [openai, anthropic, gemini].map(Partial::finish);
        assert!(records.iter().all(|record| *record == records[0]));
        assert_eq!(records[0].as_ref().map(|usage| usage.tokens), Some(expected));
    }

    #[test]
    fn anthropic_stream_keeps_the_split_of_its_start() {
        let start = Partial {
            cache_write_5m: Some(300),
            cache_write_1h: Some(600),
            tier: Some(Tier::Batch),
            ..Partial::from_disjoint(Some(12), Some(41_000), Some(900), Some(1))
        };
        let delta = Partial::from_disjoint(None, None, Some(900), Some(310));
        let expected = Tokens {
            input: 12,
            cache_read: 41_000,
            cache_write_5m: 300,
            cache_write_1h: 600,
            output: 310,
            ..Tokens::default()
        };
        check([start.clone(), delta.clone()], expected);
        // A total that grew later was for the default time.
        let grown = Partial { cache_write: Some(1000), ..delta };
        check([start.clone(), grown], Tokens { cache_write_5m: 400, ..expected });
        // Cut off before any delta: what the start said.
        check([start.clone()], Tokens { output: 1, ..expected });
        assert_eq!(start.finish().map(|usage| usage.tier), Some(Tier::Batch));
    }

    #[test]
    fn inclusive_streams_subtract_after_folding() {
        let first = Partial::from_inclusive(Some(5000), Some(4096), None, None);
        let last = Partial {
            reasoning: Some(Reasoning::Beside(300)),
            ..Partial::from_inclusive(Some(5000), None, None, Some(120))
        };
        let expected =
            Tokens { input: 904, cache_read: 4096, output: 420, reasoning: 300, ..Tokens::default() };
        check([first, last], expected);
    }

    #[test]
    fn odd_figures_saturate() {
        let tokens = |partial: Partial| partial.finish().map(|usage| usage.tokens);
        for (partial, expected) in [
            // More cached than there was.
            (
                Partial::from_inclusive(Some(100), Some(150), Some(10), Some(1)),
                Tokens { cache_read: 150, cache_write_5m: 10, output: 1, ..Tokens::default() },
            ),
            // Reasoning that cannot be inside the output.
            (
                Partial {
                    reasoning: Some(Reasoning::Inside(50)),
                    ..Partial::from_inclusive(Some(10), None, None, Some(20))
                },
                Tokens { input: 10, output: 70, reasoning: 50, ..Tokens::default() },
            ),
            // Parts beyond the total.
            (
                Partial {
                    cache_write_5m: Some(7),
                    cache_write_12h: Some(9),
                    ..Partial::from_disjoint(None, None, Some(3), None)
                },
                Tokens { cache_write_5m: 7, cache_write_12h: 9, ..Tokens::default() },
            ),
        ] {
            assert_eq!(tokens(partial), Some(expected));
        }
    }

    #[test]
    fn nothing_stated_is_unknown() {
        let silent = Partial { tier: Some(Tier::Flex), web_searches: Some(0), ..Partial::default() };
        assert_eq!(silent.finish(), None);
        let zero = Partial::from_disjoint(Some(0), None, None, None);
        assert_eq!(zero.finish(), Some(Usage::default()));
        let cost = Partial { provider_cost: Some(Money::ZERO), ..Partial::default() };
        assert!(cost.finish().is_some());
    }

    #[test]
    fn newer_lists_replace_older_ones() {
        let call = |output| Extra { model: None, tokens: Tokens { output, ..Tokens::default() } };
        let mut folded = Partial { extra: Some(vec![call(1)]), ..Partial::default() };
        folded.fold(Partial { extra: Some(vec![call(1), call(2)]), ..Partial::default() });
        folded.fold(Partial::default());
        assert_eq!(folded.finish().map(|usage| usage.billed_tokens().output), Some(3));
    }

    proptest! {
        #[test]
        fn every_prompt_token_is_in_one_bucket(
            uncached in 0..1_u64 << 40,
            read in 0..1_u64 << 40,
            written in 0..1_u64 << 40,
        ) {
            let disjoint = Partial::from_disjoint(Some(uncached), Some(read), Some(written), None);
            let total = uncached + read + written;
            let inclusive = Partial::from_inclusive(Some(total), Some(read), Some(written), None);
            let record = inclusive.finish();
            prop_assert_eq!(&disjoint.finish(), &record);
            prop_assert_eq!(record.map(|usage| usage.tokens.prompt()), Some(total));
        }

        #[test]
        fn any_figures_finish(counts in any::<[Option<u64>; 6]>(), beside in any::<u64>()) {
            let [prompt, cached, written, output, hour, tool] = counts;
            let partial = Partial {
                cache_write_1h: hour,
                tool_prompt: tool,
                reasoning: Some(Reasoning::Beside(beside)),
                ..Partial::from_inclusive(prompt, cached, written, output)
            };
            let tokens = partial.finish().map(|usage| usage.tokens);
            prop_assert!(tokens.is_some_and(|tokens| tokens.reasoning <= tokens.output));
        }
    }
}
