//! Recognises clients that make room themselves before a summary of their history is used.
//!
//! A client may drop its oldest messages somewhat below the window. Each summary that is written just before is wasted.
//! Where a client has cut a history for which a summary was begun, it is likely to cut the thread that goes on from
//! there at the same length of the prompt. Such a thread branches from the one before and brings many other messages
//! with its first request. A branch that begins with an edited message or a sub-agent brings few. All of this is kept
//! in memory only.

use crate::lineage::{Place, Relation};
use crate::planner::Level;
use crate::store::Recent;

/// The most threads that are remembered.
const MAX_THREADS: u64 = 65_536;
/// The assumed growth of a prompt by one request, as a share of the prompt, if none is known of the thread or of those
/// before it.
const DEFAULT_GROWTH: f64 = 0.05;
/// A branch whose first request brings more new messages than this is taken for a history that was cut.
const MAX_NEW_MESSAGES: usize = 4;
/// A summary is ready in time if there is room for this many more requests when it is begun.
const REQUESTS_LEFT: u64 = 3;

/// What is known of threads that came near the window.
pub(super) struct Outdated(Recent<String, Near>);

/// The requests of a thread that came near the window.
#[derive(Debug, Clone, Copy)]
struct Near {
    first_ms: i64,
    last_ms: i64,
    /// The longest prompt, in tokens.
    longest: u64,
    /// The most tokens that one request of it, or of the threads before it, has added, if known.
    growth: Option<u64>,
    /// Whether a summary was begun and not used.
    is_begun: bool,
    /// The longest prompt of the earlier threads that the client has cut, if a summary of one was wasted.
    cut_at: Option<u64>,
}

impl Near {
    fn new(now_ms: i64) -> Self {
        Self { first_ms: now_ms, last_ms: now_ms, longest: 0, growth: None, is_begun: false, cut_at: None }
    }

    /// The value of `cut_at` for the next thread, if the client cuts this one now.
    fn if_cut(self) -> Option<u64> {
        self.cut_at.max(self.is_begun.then_some(self.longest))
    }
}

impl Outdated {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(MAX_THREADS))
    }

    /// Records a request of `messages` messages, if it begins a branch that looks like a history that was cut.
    pub(super) fn record_branch(&self, place: &Place, messages: usize, now_ms: i64) {
        let is_cut = place.relation == Relation::Fork && messages > place.sent + MAX_NEW_MESSAGES;
        let parent = place.thread.parent.as_ref().filter(|_| is_cut);
        let Some(parent) = parent.and_then(|parent| self.0.get(parent)) else { return };
        if let Some(cut_at) = parent.if_cut() {
            let near = Near { cut_at: Some(cut_at), growth: parent.growth, ..Near::new(now_ms) };
            self.0.insert(place.thread.id.clone(), near);
        }
    }

    /// Records that a request brings its thread near the window.
    pub(super) fn record_near(&self, place: &Place, level: &Level, now_ms: i64) {
        let near = self.0.get(&place.thread.id).unwrap_or_else(|| Near::new(now_ms));
        let growth = level.growth.map(|growth| growth.largest).or(near.growth);
        let near = Near { last_ms: now_ms, longest: near.longest.max(level.prompt_tokens), growth, ..near };
        self.0.insert(place.thread.id.clone(), near);
    }

    /// Records that a summary of a thread is begun.
    pub(super) fn record_begun(&self, thread: &str) {
        if let Some(near) = self.0.get(thread) {
            self.0.insert(thread.to_owned(), Near { is_begun: true, ..near });
        }
    }

    /// Records that a request was sent with a summary of its own thread or of the one that it branched from.
    pub(super) fn record_use(&self, place: &Place) {
        for thread in place.threads() {
            if let Some(near) = self.0.get(thread).filter(|near| near.if_cut().is_some()) {
                self.0.insert(thread.clone(), Near { is_begun: false, cut_at: None, ..near });
            }
        }
    }

    /// Whether the client is likely to cut a request's history before a summary of it is used. It is if it did so
    /// before and this prompt is at most one request longer than the longest was then. It is not if the earlier thread
    /// goes on, because then nothing was cut, nor close to the end of the window, where a summary is needed whatever
    /// the client does.
    pub(super) fn is_cut_likely(&self, place: &Place, level: &Level) -> bool {
        let Some((near, gauge)) = self.0.get(&place.thread.id).zip(level.gauge) else { return false };
        let parent = place.thread.parent.as_ref().and_then(|parent| self.0.get(parent));
        let parent_goes_on = parent.is_some_and(|parent| parent.last_ms > near.first_ms);
        let Some(cut_at) = near.cut_at.filter(|_| !parent_goes_on) else { return false };
        let growth = near.growth.unwrap_or((cut_at as f64 * DEFAULT_GROWTH) as u64);
        let last_chance = gauge.usable().saturating_sub(REQUESTS_LEFT * growth);
        gauge.prompt <= (cut_at + growth).min(last_chance)
    }
}
