//! One side of a comparison: what a provider bills for the prompts that it is sent.

use std::sync::Arc;

use crate::protocol::Prompt;
use crate::usage::cache_model::{Block, CacheModel};
use crate::usage::{Money, Price, Tokens, Usage, cost};

/// Bytes of text in a token, as a rule of thumb.
pub(super) const BYTES_PER_TOKEN: f64 = 4.0;

/// A provider's cache and bill.
pub(super) struct Side {
    cache: CacheModel,
    price: Option<Arc<Price>>,
    last: Vec<u128>,
    last_prompt: u64,
    /// What prompts cost; `None` without a price.
    pub(super) prompts: Option<Money>,
    /// What answers cost; `None` without a price.
    pub(super) output: Option<Money>,
    /// Tokens by kind.
    pub(super) tokens: Tokens,
    /// Requests that did not go on where the one before ended.
    pub(super) broken: u64,
}

impl Side {
    /// An empty cache and bill.
    pub(super) fn new(cache: CacheModel, price: Option<Arc<Price>>) -> Self {
        let nothing = price.as_ref().map(|_| Money::ZERO);
        let (last, tokens) = (Vec::new(), Tokens::default());
        Self { cache, price, last, last_prompt: 0, prompts: nothing, output: nothing, tokens, broken: 0 }
    }

    /// Tokens of the last prompt.
    pub(super) fn last_prompt(&self) -> u64 {
        self.last_prompt
    }

    /// Bills a prompt, with `hidden` tokens in front that were not recorded, and an answer.
    pub(super) fn send(&mut self, prompt: &Prompt, hidden: u64, output: u64, now_ms: u64) {
        let mut shape = prompt.shape(BYTES_PER_TOKEN);
        if hidden > 0 {
            shape.blocks.insert(0, Block { key: 0, tokens: hidden, mark: None });
        }
        let tokens = self.cache.observe(0, &shape, now_ms).with_output(output, 0);
        self.tokens += tokens;
        self.last_prompt = tokens.prompt();
        let usage = Usage { tokens, ..Usage::default() };
        let lines = self.price.as_ref().and_then(|price| cost(&usage, price));
        let add = |sum: Option<Money>, more: Option<Money>| sum.zip(more).map(|(sum, more)| sum + more);
        self.output = add(self.output, lines.map(|lines| lines.output));
        self.prompts = add(self.prompts, lines.map(|lines| lines.total() - lines.output));
        let keys: Vec<u128> = shape.blocks.iter().map(|block| block.key).collect();
        self.broken += u64::from(!keys.starts_with(&self.last));
        self.last = keys;
    }
}
