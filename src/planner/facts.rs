//! What the caller knows about the world at the time of a request.

use crate::conversation::Prelude;
use crate::strategy::clear;
use crate::strategy::debt::Debt;
use crate::strategy::findings::Outlook;
use crate::strategy::gate::Rates;
use crate::strategy::marks::CacheClock;
use crate::usage::Binding;

/// What the caller knows about the world at the time of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// Token prices as shares of the price of plain input, if known.
    pub rates: Option<Rates>,
    /// The price of plain input, if known; in any unit, as long as it is the same for all models.
    pub price: Option<f64>,
    /// The provider's cache of this thread has expired, or there was none.
    pub cold: bool,
    /// The model's window in tokens, if known.
    pub window: Option<u64>,
    /// The provider's own figure for the last prompt of this thread: its number of messages, and its tokens.
    pub measured: Option<(usize, u64)>,
    /// That figure is of another model, which counts tokens differently.
    pub measured_elsewhere: bool,
    /// The provider refuses a prompt that is too long, free of charge and in a recognised form, so that room can be
    /// made then; and it reports the sizes of the prompts that it answers.
    pub refuses: bool,
    /// Bytes of request body per token, as learned for this model.
    pub bytes_per_token: f64,
    /// The requested limit of the answer, in tokens.
    pub max_output: Option<u64>,
    /// Tokens of the answer that the provider adds to the prompt when it checks whether the prompt fits.
    pub counted_output: u64,
    /// What the gateway's own calls for the thread have cost, in bytes of plain input.
    pub spent: f64,
    /// A summary is being made, or will be when room is needed.
    pub awaits_summary: bool,
    /// The conversation's budget of money or tokens is nearly spent.
    pub over_budget: bool,
    /// Bytes of the prompt that are not in the body.
    pub hidden_bytes: u64,
    /// What precedes the messages in the prompt.
    pub prelude: Prelude,
    /// Identifies the cache that the request is served from.
    pub cache: u64,
    /// The clock's reading, in milliseconds since 1970.
    pub now_ms: u64,
    /// How long the provider keeps unused cache entries, in milliseconds.
    pub ttl_ms: u64,
    /// The shortest prefix that the provider caches, in tokens.
    pub min_prefix_tokens: u64,
    /// The provider caches prompts without marks, and marks add nothing.
    pub caches_without_marks: bool,
    /// The odds that the first entry which a thread of this sender writes is read again.
    pub outlook: Outlook,
    /// What the sender's threads have lost by marking their histories.
    pub debt: Debt,
    /// How the model's reasoning is bound to what precedes it, if it is. Then a history with reasoning is changed only
    /// if it must be or if the change is free, and the reasoning is removed with it.
    pub bound: Option<Binding>,
    /// The model reads reasoning of earlier turns again, which is billed and may be left out.
    pub reads_reasoning: bool,
    /// Set if the provider has refused this very request as too long: room must be made.
    pub overflow: Option<Overflow>,
    /// The client asks with this request for a summary of the whole history, so nothing may be removed from it.
    pub compacting: bool,
    /// Earlier requests of the thread, or of the one that it branched from, had tools.
    pub had_tools: bool,
    /// Full texts are kept where the model can read them.
    pub keeps_outputs: bool,
}

/// What a provider reported about a prompt that is too long. The limit, if reported, is in [`Facts::window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    /// The prompt's tokens, if reported.
    pub prompt: Option<u64>,
    /// Whether the limit was reported and is believed. Otherwise the window is as assumed before, and may be too large.
    pub has_limit: bool,
    /// Whether a shortened form was refused as well, and only one more attempt is left.
    pub is_last: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            rates: None,
            price: None,
            cold: false,
            window: None,
            measured: None,
            measured_elsewhere: false,
            refuses: false,
            bytes_per_token: clear::BYTES_PER_TOKEN as f64,
            max_output: None,
            counted_output: 0,
            spent: 0.0,
            awaits_summary: false,
            over_budget: false,
            hidden_bytes: 0,
            prelude: Prelude::default(),
            cache: 0,
            now_ms: 0,
            ttl_ms: 300_000,
            min_prefix_tokens: 0,
            caches_without_marks: false,
            outlook: Outlook::Fair,
            debt: Debt::default(),
            bound: None,
            reads_reasoning: false,
            overflow: None,
            compacting: false,
            had_tools: false,
            keeps_outputs: true,
        }
    }
}

impl Facts {
    /// The rates for a prompt that is `cached` or not.
    pub(super) fn rates(&self, cached: bool) -> Rates {
        if cached { self.rates.unwrap_or(Rates::USUAL) } else { Rates { read: 1.0, write: 1.0 } }
    }

    /// The time of the request, as the provider's cache sees it.
    pub(super) fn clock(&self) -> CacheClock {
        CacheClock { now_ms: self.now_ms, ttl_ms: self.ttl_ms }
    }

    /// Whether the prompt in a body of `bytes` bytes may be long enough to be cached. Few tokens are shorter than two
    /// bytes.
    pub(super) fn may_be_kept(&self, bytes: usize) -> bool {
        bytes as u64 + self.hidden_bytes >= 2 * self.min_prefix_tokens
    }
}
