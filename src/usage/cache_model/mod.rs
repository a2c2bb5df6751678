//! The provider's prompt cache, as documented: what a request would read, write and pay in full.
//!
//! A model of a prefix cache over the hashes of a prompt's blocks. Anthropic's kind writes entries only at
//! marks and looks back a few blocks from each; the automatic kind remembers whole prompts and counts in
//! steps. It says what requests would have cost untouched, and whether a cache is still warm; what was really
//! read is in the provider's usage figures, which always win.
//!
//! Pure and deterministic: the clock reading is an argument, and one that runs backwards counts as no time.
//! Memory is bounded; entries leave when they expire, then the least recently used. An entry is readable
//! once the answer to the request that wrote it has begun, where that is known ([`Flight`]): identical
//! requests that are sent at the same moment all miss.

mod automatic;
mod chain;
mod marked;
mod pauses;
#[cfg(test)]
mod tests;

use self::automatic::Automatic;
use self::chain::Chain;
use self::marked::Marked;
pub use self::pauses::{Pause, Pauses};
use super::price::{Price, Rates};
use super::tokens::Tokens;

/// How long Anthropic keeps an entry after its last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ttl {
    /// Five minutes, the default.
    FiveMinutes,
    /// An hour, at a higher write price.
    OneHour,
}

impl Ttl {
    /// The time in milliseconds.
    pub const fn millis(self) -> u64 {
        match self {
            Self::FiveMinutes => 5 * 60 * 1000,
            Self::OneHour => HOUR_MS,
        }
    }
}

/// One block of a prompt, in the provider's order: tools, system, messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// A hash of the block alone, cache mark excluded. The blocks before it are accounted for by the model.
    pub key: u128,
    /// Its tokens.
    pub tokens: u64,
    /// The cache mark it carries.
    pub mark: Option<Ttl>,
    /// A hash of parameters of the request that entries depend on from this block on, at providers that document it; 0
    /// if there are none.
    pub bound: u64,
}

impl Block {
    /// A part of a prompt that the provider holds, before everything in the body.
    pub const fn hidden(tokens: u64) -> Self {
        Self { key: 0, tokens, mark: None, bound: 0 }
    }
}

/// A prompt as the cache sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptShape {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// A mark that the provider puts on the last block itself (Anthropic's top-level `cache_control`).
    pub automatic: Option<Ttl>,
    /// Blocks after all others that are never cached.
    pub late: Vec<Block>,
}

/// The kind of a provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// No cache, or none that is known.
    None,
    /// Entries at marks (Anthropic).
    Marked {
        /// The shortest prefix, in tokens, that is cached; marks before it are ignored.
        min_tokens: u64,
    },
    /// Every prompt, without marks (`OpenAI`, Gemini).
    Automatic {
        /// The shortest prefix, in tokens, that is read.
        min_tokens: u64,
        /// Reads are whole multiples of this many tokens.
        step: u64,
        /// How long a prompt is kept after its last use, in milliseconds.
        ttl_ms: u64,
        /// Whether what was not read is billed as written.
        writes: Writes,
    },
}

/// Whether an automatic cache charges for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Writing is free, the tokens are plain input.
    Free,
    /// Written tokens have a rate of their own.
    Billed,
}

/// The share of the expected tokens that must be read for a prompt to count as cached.
pub(super) const MIN_READ_SHARE: f64 = 0.5;

/// An hour in milliseconds.
pub(super) const HOUR_MS: u64 = 60 * 60 * 1000;

impl CacheKind {
    /// The cache of a model: by dialect, by whether the server honours marks, and by price. If cached tokens cost as
    /// much as others, it is [`CacheKind::None`]. Providers that speak Anthropic's dialect but have no price for writes
    /// cache without marks, unless the model is a Claude.
    pub fn of(dialect: &str, reads_marks: bool, model: &str, price: Option<&Price>) -> Self {
        let min_tokens = price.and_then(|price| price.cache_min).unwrap_or(1024);
        let rates = price.map(|price| &price.base);
        if rates.is_some_and(|rates| rates.cache_read.is_none_or(|read| read >= rates.input)) {
            return Self::None;
        }
        let is_marked =
            rates.is_none_or(Rates::lists_writes) || model.to_ascii_lowercase().contains("claude");
        match dialect {
            _ if reads_marks && is_marked => Self::anthropic(min_tokens),
            "gemini" => Self::gemini(min_tokens),
            _ if rates.is_some_and(|rates| rates.cache_write_5m.is_some()) => Self::openai(Writes::Billed),
            _ => Self::openai(Writes::Free),
        }
    }

    /// How long an unused prompt stays cached, in milliseconds: as long as was requested, but never shorter than by
    /// default.
    pub fn ttl_ms(self, requested_ttl_ms: Option<u64>) -> Option<u64> {
        self.default_ttl_ms().map(|ttl| ttl.max(requested_ttl_ms.unwrap_or(0)))
    }

    /// The same if no time was requested.
    pub const fn default_ttl_ms(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Marked { .. } => Some(Ttl::FiveMinutes.millis()),
            Self::Automatic { ttl_ms, .. } => Some(ttl_ms),
        }
    }

    /// How long a prompt must be unused, in milliseconds, before it may be assumed to be gone. Caches that do not bill
    /// writes may keep prompts for longer than promised. There it is not assumed within the hour, and after that only
    /// if the provider's figures say so ([`Pauses`]).
    pub fn gone_ms(self, requested_ttl_ms: Option<u64>) -> Option<u64> {
        let least = if matches!(self, Self::Automatic { writes: Writes::Free, .. }) { HOUR_MS } else { 0 };
        self.ttl_ms(requested_ttl_ms).map(|ttl| ttl.max(least))
    }

    /// Whether prompts are kept without marks.
    pub const fn is_automatic(self) -> bool {
        matches!(self, Self::Automatic { .. })
    }

    /// Whether entries are known to depend on parameters of the request as well as on the text. Caches that do not
    /// bill writes document nothing about it.
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Marked { .. } | Self::Automatic { writes: Writes::Billed, .. })
    }

    /// The shortest beginning of a prompt that is kept, in tokens.
    pub const fn min_prefix_tokens(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Marked { min_tokens, .. } | Self::Automatic { min_tokens, .. } => min_tokens,
        }
    }

    /// Anthropic's, for a model with that minimum.
    pub const fn anthropic(min_tokens: u64) -> Self {
        Self::Marked { min_tokens }
    }

    /// `OpenAI`'s. Models that bill writes keep prompts for half an hour, others for about ten minutes.
    pub const fn openai(writes: Writes) -> Self {
        let minutes = match writes {
            Writes::Free => 10,
            Writes::Billed => 30,
        };
        Self::Automatic { min_tokens: 1024, step: 128, ttl_ms: minutes * 60 * 1000, writes }
    }

    /// Gemini's implicit cache, for a model with that minimum. How long it lasts is not documented; ten
    /// minutes are assumed.
    pub const fn gemini(min_tokens: u64) -> Self {
        Self::Automatic { min_tokens, step: 1, ttl_ms: 10 * 60 * 1000, writes: Writes::Free }
    }
}

/// How the cache serves a prompt's tokens; the first four figures are disjoint and add up to the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Read from the cache.
    pub read: u64,
    /// Written for the default time.
    pub write_5m: u64,
    /// Written for an hour.
    pub write_1h: u64,
    /// Neither read nor written.
    pub uncached: u64,
    /// How much more would be read if the provider kept prompts for as long as it may, rather than as long as it
    /// promises, or, with marks, if its entries depended on nothing but the text.
    pub lapsed: u64,
    /// The cache works by marks and the prompt has none: nothing of it is read, whatever is cached of others.
    pub is_unmarked: bool,
}

impl CacheUse {
    /// The same without the first `tokens` of the prompt.
    #[must_use]
    pub fn behind(self, tokens: u64) -> Self {
        let unread = tokens.saturating_sub(self.read);
        Self {
            read: self.read.saturating_sub(tokens),
            uncached: self.uncached.saturating_sub(unread),
            lapsed: self.lapsed.saturating_sub(unread),
            ..self
        }
    }

    /// The usage record of a response with this prompt.
    pub const fn with_output(self, output: u64) -> Tokens {
        Tokens {
            input: self.uncached,
            cache_read: self.read,
            cache_write_5m: self.write_5m,
            cache_write_1h: self.write_1h,
            cache_write_12h: 0,
            output,
            reasoning: 0,
        }
    }
}

/// When a request was sent and when its answer began, on a clock that never runs backwards, in any unit. By default,
/// answers begin at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flight {
    /// When it was sent.
    pub sent: u64,
    /// When its answer began.
    pub answered: u64,
}

/// The cache of one model at one provider.
#[derive(Debug, Clone)]
pub struct CacheModel {
    state: State,
    is_bound: bool,
}

#[derive(Debug, Clone)]
enum State {
    None,
    Marked {
        cache: Marked,
        /// The same cache, if its entries depended on nothing but the text.
        unbound: Marked,
    },
    Automatic(Automatic),
}

impl CacheModel {
    /// An empty cache.
    pub fn new(kind: CacheKind) -> Self {
        let state = match kind {
            CacheKind::None => State::None,
            CacheKind::Marked { min_tokens } => {
                State::Marked { cache: Marked::new(min_tokens), unbound: Marked::new(min_tokens) }
            }
            CacheKind::Automatic { min_tokens, step, ttl_ms, writes } => {
                State::Automatic(Automatic::new(min_tokens, step, ttl_ms, writes))
            }
        };
        Self { state, is_bound: kind.is_bound() }
    }

    /// Sends a prompt through the cache at `now_ms`, and returns how the cache serves it. Prompts of different `scope`s
    /// (workspaces, keys) never share entries. The answer is taken to begin at once.
    pub fn observe(&mut self, scope: u64, shape: &PromptShape, now_ms: u64) -> CacheUse {
        self.observe_in_flight(scope, shape, now_ms, Flight::default())
    }

    /// The same for a prompt whose answer takes time to begin: it reads what was readable when it was sent.
    pub fn observe_in_flight(
        &mut self,
        scope: u64,
        shape: &PromptShape,
        now_ms: u64,
        flight: Flight,
    ) -> CacheUse {
        let chain = Chain::of(scope, &shape.blocks, self.is_bound);
        let used = match &mut self.state {
            State::None => uncached(&chain),
            State::Marked { cache, unbound } => {
                let used = cache.observe(&chain, shape, now_ms, flight);
                let unbound_chain = Chain::of(scope, &shape.blocks, false);
                let if_unbound = unbound.observe(&unbound_chain, shape, now_ms, flight);
                CacheUse { lapsed: if_unbound.read.saturating_sub(used.read), ..used }
            }
            State::Automatic(cache) => cache.observe(&chain, now_ms, flight),
        };
        let late: u64 = shape.late.iter().map(|block| block.tokens).sum();
        CacheUse { uncached: used.uncached.saturating_add(late), ..used }
    }
}

fn uncached(chain: &Chain) -> CacheUse {
    CacheUse { uncached: chain.tokens(), ..CacheUse::default() }
}
