//! Keeps what is in use in the store, and what is remembered in step with the store.
//!
//! The store removes what was decided about a thread that nobody has continued for long. So each thread records now and
//! then that it is in use, and on which histories it relies. What is remembered of a thread that was idle for long is
//! believed only if the store still has the thread.

use std::time::Duration;

use super::{Lineage, Place, Relation};
use crate::conversation::Chain;
use crate::store::{Batch, Recent, StoreError, Used};

/// How often a thread records what it relies on. The store may learn of a use this much later.
pub const NOTED_EVERY: Duration = Duration::from_secs(3600);
/// The most threads whose records are remembered.
const MAX_THREADS: u64 = 4096;
/// What a request has relied on is not removed for at least this long after it, in milliseconds: the shortest retention
/// that can be configured is a day.
const KEPT_MS: i64 = 12 * 3_600_000;

/// When threads last recorded that something they rely on is in use, in milliseconds since 1970. Bounded.
pub struct NotedUses(Recent<String, i64>);

impl Default for NotedUses {
    fn default() -> Self {
        Self(Recent::of_entries(MAX_THREADS))
    }
}

impl NotedUses {
    /// When a thread last did.
    fn last_ms(&self, thread: &str) -> Option<i64> {
        self.0.get(thread)
    }

    /// Whether a thread has to do so now.
    pub fn is_due(&self, thread: &str, now_ms: i64) -> bool {
        // Clocks are set back, too.
        self.last_ms(thread).is_none_or(|last| now_ms.abs_diff(last) >= NOTED_EVERY.as_millis() as u64)
    }

    /// Remembers that a thread does so now.
    pub fn note(&self, thread: &str, now_ms: i64) {
        self.0.insert(thread.to_owned(), now_ms);
    }
}

impl Lineage {
    /// A batch for a request that has nothing else to store: it records what the request relies on. `None` if its
    /// thread has done so recently.
    pub fn again(&self, place: &Place, now_ms: i64) -> Option<Batch> {
        let used = self.due_use(place, now_ms)?;
        Some(Batch { used: Some(used), at_ms: now_ms, ..Batch::default() })
    }

    /// A batch to store before the request is sent by what was decided about its history; the place must be looked up
    /// again after that. Its thread was idle for so long that the store may just be removing these decisions, a little
    /// at a time. `None` if it was not, or if nothing was decided.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn resumed(&self, place: &Place, now_ms: i64) -> Result<Option<Batch>, StoreError> {
        if !place.is_edited() {
            return Ok(None);
        }
        let last = match (place.relation, &place.thread.parent) {
            (Relation::Continue | Relation::Retry, _) => Some(place.thread.at_ms),
            (Relation::Fork, Some(parent)) => self.known(parent)?.map(|known| known.thread.at_ms),
            (Relation::Fork | Relation::New, _) => None,
        };
        let was_idle = last.is_none_or(|last| now_ms - last >= KEPT_MS);
        Ok(if was_idle { self.again(place, now_ms) } else { None })
    }

    /// The histories whose decisions a request relies on; `None` if its thread has recorded that recently.
    pub(super) fn due_use(&self, place: &Place, now_ms: i64) -> Option<Used> {
        if !self.memory.noted.is_due(&place.thread.id, now_ms) {
            return None;
        }
        let decided = place.applied.iter().map(|applied| applied.part.message as usize + 1);
        let spliced = place.splice.iter().map(|splice| splice.end());
        let mut chains: Vec<Chain> =
            decided.chain(spliced).filter_map(|messages| place.chains.get(messages)).copied().collect();
        // The decisions about the parts of a message are next to each other.
        chains.dedup();
        // A thread about which nothing was decided is in use, too.
        Some(Used { thread: place.thread.id.clone(), chains })
    }

    /// When the newest request of the place's thread left that the provider may have read, in milliseconds since 1970.
    /// A request that was refused does not count: it leaves nothing in the provider's cache.
    pub fn last_read_ms(&self, place: &Place) -> i64 {
        self.memory.last_read_ms(&place.thread)
    }

    /// Whether the store still keeps what was decided about a history that these threads have sent: one of them was in
    /// use recently, or is still stored.
    pub(super) fn are_kept(&self, threads: &[String], now_ms: i64) -> Result<bool, StoreError> {
        let is_recent = |at_ms: i64| now_ms - at_ms < KEPT_MS;
        let is_noted = |id: &String| self.memory.noted.last_ms(id).is_some_and(is_recent);
        let is_known =
            |id: &String| self.memory.thread(id).is_some_and(|known| is_recent(known.thread.at_ms));
        // The noted times come first, since looking up a thread copies it.
        if threads.iter().any(is_noted) || threads.iter().any(is_known) {
            return Ok(true);
        }
        for id in threads {
            if self.store.thread(id)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets everything that is remembered of these histories.
    pub(super) fn forget(&self, chains: &[Chain]) {
        for &chain in chains {
            self.memory.sent.remove(&chain);
            self.memory.standings.remove(&chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_reported_hourly_even_if_the_clock_goes_back() {
        const MINUTE: i64 = 60_000;
        let uses = NotedUses::default();
        for (minutes, expected) in
            [(600, true), (659, false), (660, true), (610, false), (600, true), (601, false)]
        {
            let now_ms = minutes * MINUTE;
            assert_eq!(uses.is_due("t", now_ms), expected, "{minutes}");
            if expected {
                uses.note("t", now_ms);
            }
        }
    }
}
