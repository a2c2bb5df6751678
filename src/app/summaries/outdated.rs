//! Clients that make room themselves before a summary of their history is used.
//!
//! A client may drop its oldest messages, or begin anew, somewhat below the window. Each summary that is written just
//! before is paid for in vain. Where that has happened once in a conversation, it is likely to happen again at the same
//! length of the prompt. All of this is kept in memory only.

use crate::planner::Level;
use crate::store::Recent;

/// For how many threads, and for how many conversations, this is remembered.
const THREADS: u64 = 65_536;
/// The assumed growth of a prompt by one request, as a share of the prompt, if it is unknown.
const GROWTH: f64 = 0.05;

/// Summaries that were begun and not used.
pub(super) struct Outdated {
    near: Recent<String, Near>,
    /// The thread of each conversation for which one was begun last, until one is used.
    begun: Recent<String, String>,
}

/// The requests of a thread that came near the window.
#[derive(Debug, Clone, Copy)]
struct Near {
    first_ms: i64,
    last_ms: i64,
    /// The longest prompt, in tokens.
    prompt: u64,
}

impl Outdated {
    pub(super) fn new() -> Self {
        Self { near: Recent::of_entries(THREADS), begun: Recent::of_entries(THREADS) }
    }

    /// Records that a request brings a thread near the window.
    pub(super) fn comes_near(&self, thread: &str, prompt: u64, now_ms: i64) {
        let before = self.near.get(thread).unwrap_or(Near { first_ms: now_ms, last_ms: now_ms, prompt });
        let near = Near { last_ms: now_ms, prompt: before.prompt.max(prompt), ..before };
        self.near.insert(thread.to_owned(), near);
    }

    /// Records that a summary is begun.
    pub(super) fn begins(&self, conversation: &str, thread: &str) {
        self.begun.insert(conversation.to_owned(), thread.to_owned());
    }

    /// Records that a request of a conversation was sent with a summary.
    pub(super) fn is_used(&self, conversation: &str) {
        self.begun.remove(conversation);
    }

    /// Whether the client is likely to cut a thread's history before a summary of it is used: it did so with the
    /// thread before, after a summary was begun, and this prompt is hardly longer than the longest was then. A thread
    /// that goes on beside the other one is not its successor.
    pub(super) fn is_likely(&self, conversation: &str, thread: &str, level: &Level) -> bool {
        let successor_of = |before: String| {
            let (own, before) = (self.near.get(thread)?, self.near.get(&before)?);
            (own.first_ms > before.last_ms).then_some(before.prompt)
        };
        let before = self.begun.get(conversation).filter(|before| before != thread);
        let (Some(longest), Some(gauge)) = (before.and_then(successor_of), level.gauge) else { return false };
        let growth = level.growth.map_or(longest as f64 * GROWTH, |growth| growth.largest as f64);
        let halfway = gauge.usable().saturating_sub(longest) / 2;
        gauge.prompt <= longest + (growth as u64).min(halfway)
    }
}
