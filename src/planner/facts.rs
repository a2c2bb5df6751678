//! What the caller knows of the world at the time of a request.

use crate::conversation::Prelude;
use crate::strategy::clear;
use crate::strategy::findings::Outlook;
use crate::strategy::gate::Rates;
use crate::usage::Binding;

/// What the caller knows of the world at the time of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// Tokens' prices, as shares of plain input; `None`: not known.
    pub rates: Option<Rates>,
    /// What plain input costs, in any unit that is the same for all models; `None`: not known.
    pub price: Option<f64>,
    /// The provider's cache of this thread has expired, or there never was one.
    pub cold: bool,
    /// What the model takes, in tokens, if that is known.
    pub window: Option<u64>,
    /// The provider's own figure for the last prompt of this thread: how many messages it had, and its tokens.
    pub measured: Option<(usize, u64)>,
    /// That figure is of another model, whose tokens are others.
    pub measured_elsewhere: bool,
    /// The provider refuses a prompt that is too long for the window that is known, for nothing and in words that are known,
    /// and room is made then; and it says how long those are that it answers.
    pub refuses: bool,
    /// Bytes of a request's body to a token, as learned for this model.
    pub bytes_per_token: f64,
    /// The most tokens that the answer may have.
    pub max_output: Option<u64>,
    /// Tokens of the answer that the provider counts with the prompt when it judges whether that fits.
    pub counted_output: u64,
    /// What calls of the gateway's own have cost for the thread, in bytes of plain input.
    pub spent: f64,
    /// A summary is being made, or will be when room is wanted.
    pub awaits_summary: bool,
    /// The money or tokens of the conversation are nearly spent.
    pub over_budget: bool,
    /// Bytes of the prompt that the body does not hold.
    pub hidden_bytes: u64,
    /// What stands before the messages.
    pub prelude: Prelude,
    /// What names the cache that is written and read where the request goes.
    pub cache: u64,
    /// The clock's reading, in milliseconds since 1970.
    pub now_ms: u64,
    /// How long the provider keeps what is not used, in milliseconds.
    pub ttl_ms: u64,
    /// The shortest beginning of a prompt that the provider keeps, in tokens.
    pub min_prefix_tokens: u64,
    /// The provider keeps prompts without marks, and marks add nothing.
    pub caches_without_marks: bool,
    /// What is to be expected of what a thread of the sender's is the first to write to the cache.
    pub outlook: Outlook,
    /// The model's reasoning is bound to what stands before it: where there is some, that is changed only when it must
    /// be, or costs nothing, and the reasoning goes too.
    pub bound: Option<Binding>,
    /// What the model thought in earlier turns is read again, and paid, and may be left out.
    pub reads_reasoning: bool,
    /// The provider has refused this very request because its prompt is too long: room must be made.
    pub overflow: Option<Overflow>,
    /// The client asks for a summary of the whole history: nothing of it may be taken away meanwhile.
    pub compacting: bool,
    /// Full texts are kept where the model can read them.
    pub keeps_outputs: bool,
}

/// What a provider says of a prompt that is too long. What fits is the window that is known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    /// Its tokens, if they are told.
    pub prompt: Option<u64>,
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
            bound: None,
            reads_reasoning: false,
            overflow: None,
            compacting: false,
            keeps_outputs: true,
        }
    }
}

impl Facts {
    /// The rates that hold for a prompt, if it is `cached` at all.
    pub(super) fn rates(&self, cached: bool) -> Rates {
        if cached { self.rates.unwrap_or(Rates::USUAL) } else { Rates { read: 1.0, write: 1.0 } }
    }

    /// Whether the prompt of a body of so many bytes may be long enough for the provider to keep: few tokens are shorter
    /// than two bytes.
    pub(super) fn may_be_kept(&self, bytes: usize) -> bool {
        bytes as u64 + self.hidden_bytes >= 2 * self.min_prefix_tokens
    }
}
