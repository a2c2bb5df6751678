//! The settings for clearing.

use crate::conversation::NamePatterns;
use crate::strategy::gate::Reason;

/// Which results go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Those least likely to be needed again in proportion to their cost.
    Worth,
    /// The oldest.
    Oldest,
    /// Those that no call has named for the longest time.
    Lru,
    /// The least important, by age, kind and references.
    Priority,
    /// Those older than the lifetime of their kind.
    TypeTtl,
    /// Those whose text is repeated further down.
    Duplicate,
    /// A weighted sum of the others.
    Hybrid,
}

/// How many of the newest results stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protect {
    /// Tokens of file views.
    pub view_tokens: u64,
    /// Tokens of everything else.
    pub other_tokens: u64,
    /// Turns, the present one included.
    pub turns: u32,
}

/// Which results that came with the same request count as newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The last one counts as the newest.
    Backward,
    /// The first one counts as the newest.
    Forward,
}

/// When long texts in the arguments of old calls are abridged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// Never.
    Never,
    /// If the window demands room and clearing results frees too little.
    Window,
    /// In that case, and in any other event.
    Always,
}

/// The weight of each policy in [`Policy::Hybrid`]; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// By age.
    pub oldest: f64,
    /// By idle time.
    pub lru: f64,
    /// By importance.
    pub priority: f64,
    /// By the lifetime of the kind.
    pub type_ttl: f64,
    /// For results that are not repeated further down.
    pub duplicate: f64,
}

/// All settings for clearing.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether old results are ever cleared.
    pub enabled: bool,
    /// Which results go first.
    pub policy: Policy,
    /// How many of the newest results stay.
    pub protect: Protect,
    /// How many of the newest results with images or documents stay, unless the window demands their room.
    pub protect_images: u32,
    /// Views and everything else are counted together, each against its own limit.
    pub protect_together: bool,
    /// Which results of the same request count as newer.
    pub within_step: Within,
    /// Texts that protect the results they occur in.
    pub protected_texts: Vec<String>,
    /// Tools whose results are never cleared.
    pub protected_tools: NamePatterns,
    /// Whether error results may be cleared like any others.
    pub errors: bool,
    /// Whether the model's reasoning in earlier turns may be removed too.
    pub reasoning: bool,
    /// When long texts in the arguments of old calls are abridged.
    pub arguments: Arguments,
    /// Results of fewer tokens stay, because a placeholder would be no shorter.
    pub smallest: u64,
    /// The number of tokens that an event must exceed in what it clears, unless the window demands it.
    pub minimum_tokens: u64,
    /// The reasons for which an event may happen.
    pub gate: Vec<Reason>,
    /// Whether events happen only at the start of a user's turn, unless the window demands them.
    pub at_turns: bool,
    /// The share of the window from which on results are cleared to make room early; `None`: only when room must be
    /// made.
    pub trigger: Option<f64>,
    /// Requests of a thread before which nothing is cleared for `break-even`: most threads that short end soon.
    pub settle: u32,
    /// The share of the price of a cut that the stale tokens must have cost for `break-even`.
    pub patience: f64,
    /// Lifetime of a result in turns, for [`Policy::TypeTtl`].
    pub ttl_turns: u32,
    /// The weights of [`Policy::Hybrid`].
    pub weights: Weights,
    /// How much more than untouched a thread may cost at the worst moment, as a share of what it would have cost.
    pub most_loss: f64,
    /// The cost of losing a text that is quoted later, in tokens of input, for [`Policy::Worth`].
    pub regret_tokens: u64,
}

/// Tools whose results are the agent's memory rather than its reading.
const PROTECTED: &[&str] = &["skill*", "task", "*subtask*", "*todo*", "*plan*", "*memory*", "*ask*user*"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            policy: Policy::Worth,
            protect: Protect { view_tokens: 20_000, other_tokens: 1_000, turns: 0 },
            protect_images: 3,
            protect_together: false,
            within_step: Within::Backward,
            protected_texts: vec!["DO_NOT_EVICT".to_owned()],
            protected_tools: NamePatterns::new(PROTECTED.iter().copied())
                .expect("the shipped patterns are globs"),
            errors: false,
            reasoning: true,
            arguments: Arguments::Window,
            smallest: 60,
            minimum_tokens: 0,
            gate: vec![Reason::Window, Reason::Cold, Reason::Uncached, Reason::BreakEven, Reason::Budget],
            at_turns: false,
            trigger: None,
            settle: 12,
            patience: 0.85,
            ttl_turns: 8,
            weights: Weights { oldest: 0.15, lru: 0.15, priority: 0.40, type_ttl: 0.30, duplicate: 0.0 },
            regret_tokens: 240_000,
            most_loss: 0.05,
        }
    }
}

impl Settings {
    /// Whether a result, as written in a request, contains one of the protected texts.
    pub fn protects(&self, raw: &[u8]) -> bool {
        let texts = self.protected_texts.iter().filter(|text| !text.is_empty());
        texts.into_iter().any(|text| memchr::memmem::find(raw, text.as_bytes()).is_some())
    }

    pub(super) fn smallest_bytes(&self) -> u32 {
        u32::try_from(self.smallest.saturating_mul(super::BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
    }
}
