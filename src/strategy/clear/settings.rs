//! What a user may say about clearing.

use crate::conversation::NamePatterns;
use crate::strategy::gate::Reason;

/// What goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// What is least likely to be needed again for what it costs.
    Worth,
    /// The oldest.
    Oldest,
    /// What no call has named for the longest time.
    Lru,
    /// The least important: by age, kind and references.
    Priority,
    /// What is older than its kind lives.
    TypeTtl,
    /// What stands further down again.
    Duplicate,
    /// A weighted sum of the others.
    Hybrid,
}

/// The newest results, which stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protect {
    /// Tokens of views of files.
    pub view_tokens: u64,
    /// Tokens of all else.
    pub other_tokens: u64,
    /// Turns, the present one included.
    pub turns: u32,
}

/// In which order the results that came with one request are counted as the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The last one first.
    Backward,
    /// The first one first.
    Forward,
}

/// When long texts in the arguments of old calls go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// Never.
    Never,
    /// Where the window demands room, and clearing results makes too little.
    Window,
    /// Then, and in any other event.
    Always,
}

/// How much each policy counts in [`Policy::Hybrid`]; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Age.
    pub oldest: f64,
    /// Idleness.
    pub lru: f64,
    /// Importance.
    pub priority: f64,
    /// Lifetime of the kind.
    pub type_ttl: f64,
    /// That it does not stand further down again.
    pub duplicate: f64,
}

/// Everything about clearing.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether old results are ever cleared.
    pub enabled: bool,
    /// What goes first.
    pub policy: Policy,
    /// The newest results, which stay.
    pub protect: Protect,
    /// The newest results with images or documents, which stay unless the window demands their room.
    pub protect_images: u32,
    /// Views and all else share one window, and each has its own limit in it.
    pub protect_together: bool,
    /// What counts as newest among the results of one request.
    pub within_step: Within,
    /// Texts that protect the results they stand in.
    pub protected_texts: Vec<String>,
    /// Tools whose results stay.
    pub protected_tools: NamePatterns,
    /// Results of errors may go like any others.
    pub errors: bool,
    /// What the model thought in earlier turns may go too.
    pub reasoning: bool,
    /// When long texts in the arguments of old calls may go too.
    pub arguments: Arguments,
    /// Results of fewer tokens stay: a placeholder would be no shorter.
    pub smallest: u64,
    /// An event clears results of more than this many tokens in all, unless the window demands it.
    pub minimum_tokens: u64,
    /// Why an event may happen.
    pub gate: Vec<Reason>,
    /// Events happen only at the start of a user's turn, unless the window demands them.
    pub at_turns: bool,
    /// The share of the window from which on results go to make room, if that is to be before it must be made.
    pub trigger: Option<f64>,
    /// Requests of a thread before which nothing is cleared for `break-even`: most that short end soon.
    pub settle: u32,
    /// How much of the price of a cut the stale tokens must have cost for `break-even`.
    pub patience: f64,
    /// Turns that a result lives, for [`Policy::TypeTtl`].
    pub ttl_turns: u32,
    /// The weights of [`Policy::Hybrid`].
    pub weights: Weights,
    /// The share of what a thread would have cost untouched that it may cost more, at the worst moment.
    pub most_loss: f64,
    /// Tokens of input that losing what is quoted later counts as, for [`Policy::Worth`].
    pub regret_tokens: u64,
}

/// Tools whose results are the agent's memory, not its reading.
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
    /// Whether one of the protected texts stands in a result, as it is written in a request.
    pub fn protects(&self, raw: &[u8]) -> bool {
        let texts = self.protected_texts.iter().filter(|text| !text.is_empty());
        texts.into_iter().any(|text| memchr::memmem::find(raw, text.as_bytes()).is_some())
    }

    pub(super) fn smallest_bytes(&self) -> u32 {
        u32::try_from(self.smallest.saturating_mul(super::BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
    }
}
