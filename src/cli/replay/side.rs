//! One side of the comparison: what a provider bills for the prompts that it receives.

use std::sync::Arc;

use crate::protocol::{Prompt, Scale};
use crate::usage::cache_model::{Block, CacheModel};
use crate::usage::{Money, Price, Tokens, Usage, cost};

/// Bytes of text per token, as a rule of thumb.
pub(super) const BYTES_PER_TOKEN: f64 = 4.0;

/// A provider's cache and bill.
pub(super) struct Side {
    cache: CacheModel,
    price: Option<Arc<Price>>,
    last_prompt: u64,
    pub(super) bill: Bill,
}

/// What was billed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bill {
    /// The cost of prompts; `None` without a price.
    pub(super) prompts: Option<Money>,
    /// The cost of answers; `None` without a price.
    pub(super) output: Option<Money>,
    /// Tokens by kind.
    pub(super) tokens: Tokens,
    /// The number of requests that did not continue where the previous one ended.
    pub(super) broken: u64,
}

impl Bill {
    /// The sum of two bills; its costs are known only if those of both are.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        let sum = |one: Option<Money>, other: Option<Money>| one.zip(other).map(|(one, other)| one + other);
        let mut tokens = self.tokens;
        tokens += other.tokens;
        Self {
            prompts: sum(self.prompts, other.prompts),
            output: sum(self.output, other.output),
            tokens,
            broken: self.broken + other.broken,
        }
    }
}

/// The blocks of a thread's last prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct Last(Vec<u128>);

/// What determines the bill, besides the recorded prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Billed {
    pub(super) scale: Scale,
    /// Tokens before the prompt that were not recorded.
    pub(super) hidden: u64,
    /// Tokens of the answer.
    pub(super) output: u64,
    pub(super) now_ms: u64,
}

impl Side {
    /// A side with an empty cache and bill.
    pub(super) fn new(cache: CacheModel, price: Option<Arc<Price>>) -> Self {
        let nothing = price.as_ref().map(|_| Money::ZERO);
        let bill = Bill { prompts: nothing, output: nothing, ..Bill::default() };
        Self { cache, price, last_prompt: 0, bill }
    }

    /// The tokens of the last prompt.
    pub(super) fn last_prompt(&self) -> u64 {
        self.last_prompt
    }

    /// Sends a prompt, and returns the bill for it and its answer, which is not booked yet.
    pub(super) fn send(&mut self, prompt: &Prompt, billed: Billed, last: &mut Last) -> Bill {
        let mut shape = prompt.shape(billed.scale);
        if billed.hidden > 0 {
            shape.blocks.insert(0, Block::hidden(billed.hidden));
        }
        let tokens = self.cache.observe(0, &shape, billed.now_ms).with_output(billed.output);
        self.last_prompt = tokens.prompt();
        let usage = Usage { tokens, ..Usage::default() };
        let lines = self.price.as_ref().and_then(|price| cost(&usage, price));
        let keys: Vec<u128> = shape.blocks.iter().map(|block| block.key).collect();
        let broken = u64::from(!keys.starts_with(&last.0));
        last.0 = keys;
        Bill {
            prompts: lines.map(|lines| lines.total() - lines.output),
            output: lines.map(|lines| lines.output),
            tokens,
            broken,
        }
    }

    /// Adds to the bill.
    pub(super) fn book(&mut self, bill: Bill) {
        self.bill = self.bill.and(bill);
    }
}
