//! Clients that make room themselves before a summary of their history is used.
//!
//! A client may drop its oldest messages somewhat below the window. Each summary that is written just before is paid
//! for in vain. Where a client has cut a history for which a summary was begun, it is likely to cut the thread that
//! goes on from there at the same length of the prompt. Such a thread branches from the one before and brings many
//! other messages with its first request; whoever edits a message, or has a sub-agent go on, brings few. All of this is
//! kept in memory only.

use crate::lineage::{Place, Relation};
use crate::planner::Level;
use crate::store::Recent;

/// For how many threads this is remembered.
const THREADS: u64 = 65_536;
/// The assumed growth of a prompt by one request, as a share of the prompt, if it is unknown for all of its threads.
const GROWTH: f64 = 0.05;
/// The most new messages with which a branch is not taken for a history that was cut.
const FEW: usize = 4;
/// For how many more requests there must be room, for a summary that is begun then to be ready in time.
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
    /// The most tokens that one of its requests has added, or one of the threads' before, if known.
    growth: Option<u64>,
    /// Whether a summary was begun and not used.
    is_begun: bool,
    /// The longest prompt of the threads that the client has cut before, if a summary of one was begun in vain.
    cut_at: Option<u64>,
}

impl Near {
    fn new(now_ms: i64) -> Self {
        Self { first_ms: now_ms, last_ms: now_ms, longest: 0, growth: None, is_begun: false, cut_at: None }
    }

    /// Where the client has cut, if it cuts this thread now.
    fn if_cut(self) -> Option<u64> {
        self.cut_at.max(self.is_begun.then_some(self.longest))
    }
}

impl Outdated {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(THREADS))
    }

    /// Records a request of so many messages, if it is the first of a branch.
    pub(super) fn sees(&self, place: &Place, messages: usize, now_ms: i64) {
        let is_cut = place.relation == Relation::Fork && messages > place.sent + FEW;
        let parent = place.thread.parent.as_ref().filter(|_| is_cut);
        let Some(parent) = parent.and_then(|parent| self.0.get(parent)) else { return };
        if let Some(cut_at) = parent.if_cut() {
            let near = Near { cut_at: Some(cut_at), growth: parent.growth, ..Near::new(now_ms) };
            self.0.insert(place.thread.id.clone(), near);
        }
    }

    /// Records that a request brings its thread near the window.
    pub(super) fn comes_near(&self, place: &Place, level: &Level, now_ms: i64) {
        let near = self.0.get(&place.thread.id).unwrap_or_else(|| Near::new(now_ms));
        let growth = level.growth.map(|growth| growth.largest).or(near.growth);
        let near = Near { last_ms: now_ms, longest: near.longest.max(level.prompt_tokens), growth, ..near };
        self.0.insert(place.thread.id.clone(), near);
    }

    /// Records that a summary of a thread is begun.
    pub(super) fn begins(&self, thread: &str) {
        if let Some(near) = self.0.get(thread) {
            self.0.insert(thread.to_owned(), Near { is_begun: true, ..near });
        }
    }

    /// Records that a request was sent with a summary, of its own thread or of the one that it branched from.
    pub(super) fn note_use(&self, place: &Place) {
        for thread in [Some(&place.thread.id), place.thread.parent.as_ref()].into_iter().flatten() {
            if let Some(near) = self.0.get(thread).filter(|near| near.if_cut().is_some()) {
                self.0.insert(thread.clone(), Near { is_begun: false, cut_at: None, ..near });
            }
        }
    }

    /// Whether the client is likely to cut a request's history before a summary of it is used: it did so before, and
    /// this prompt is hardly longer than the longest was then. If the thread that was left goes on, nothing was cut; and
    /// near the end of the window a summary is needed whatever the client does.
    pub(super) fn is_likely(&self, place: &Place, level: &Level) -> bool {
        let Some((near, gauge)) = self.0.get(&place.thread.id).zip(level.gauge) else { return false };
        let parent = place.thread.parent.as_ref().and_then(|parent| self.0.get(parent));
        let goes_on = parent.is_some_and(|parent| parent.last_ms > near.first_ms);
        let Some(cut_at) = near.cut_at.filter(|_| !goes_on) else { return false };
        let growth = near.growth.unwrap_or((cut_at as f64 * GROWTH) as u64);
        let latest = gauge.usable().saturating_sub(REQUESTS_LEFT * growth);
        gauge.prompt <= (cut_at + growth).min(latest)
    }
}
