//! What threads go on relying on, how long memories of them are true, and since when they have rested.
//!
//! The store removes what was decided about a thread when nobody has gone on with it for long. So each thread says now
//! and then that it is in use, and of what; and what is remembered of one that has rested is believed only if the store
//! still knows the thread.

use std::time::Duration;

use super::{Lineage, Place, Relation};
use crate::conversation::Chain;
use crate::store::{Batch, StoreError, Used};

/// How often a thread says what it relies on: the store may know of a use so much later.
pub const NOTED_EVERY: Duration = Duration::from_secs(3600);
/// For so many milliseconds nothing is removed that a request has relied on, however short things are kept: nowhere is
/// that less than a day.
const KEPT_MS: i64 = 12 * 3_600_000;

impl Lineage {
    /// What to store for a request that was made before, if it is time to say that its thread is in use.
    pub fn again(&self, place: &Place, now_ms: i64) -> Option<Batch> {
        let used = self.used(place, now_ms)?;
        Some(Batch { used: Some(used), at_ms: now_ms, ..Batch::default() })
    }

    /// What to store before anybody goes by what was decided about a request's history, and the place looked up again
    /// after that: its threads have rested for so long that the store may be removing it just now, a little at a time.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn resumed(&self, place: &Place, now_ms: i64) -> Result<Option<Batch>, StoreError> {
        if !place.is_edited() {
            return Ok(None);
        }
        let last = match (place.relation, &place.thread.parent) {
            (Relation::Continue | Relation::Retry, _) => Some(place.thread.at_ms),
            (Relation::Fork, Some(parent)) => self.known(parent)?.map(|known| known.thread.at_ms),
            (Relation::Fork | Relation::New, _) => None,
        };
        let is_rested = last.is_none_or(|last| now_ms - last >= KEPT_MS);
        Ok(if is_rested { self.again(place, now_ms) } else { None })
    }

    /// What a request relies on of what was decided before, if its thread has not said so for long.
    pub(super) fn used(&self, place: &Place, now_ms: i64) -> Option<Used> {
        let last = self.memory.noted(&place.thread.id);
        // Clocks are set back, too.
        if last.is_some_and(|last| now_ms.abs_diff(last) < NOTED_EVERY.as_millis() as u64) {
            return None;
        }
        let decided = place.applied.iter().map(|applied| applied.part.message as usize + 1);
        let spliced = place.splice.iter().map(|splice| splice.end());
        let mut chains: Vec<Chain> =
            decided.chain(spliced).filter_map(|messages| place.chains.get(messages)).copied().collect();
        // Several parts of a message stand next to each other.
        chains.dedup();
        // That nothing was decided is relied on, too.
        Some(Used { thread: place.thread.id.clone(), chains })
    }

    /// When the newest request of a place's thread left that the provider may have read, in milliseconds since 1970: one that
    /// it has refused leaves nothing in its cache.
    pub fn last_read_ms(&self, place: &Place) -> i64 {
        self.memory.last_read_ms(&place.thread)
    }

    /// Whether what is remembered of a history is still in the store, as far as it ever was, when these threads have sent
    /// it.
    pub(super) fn are_kept(&self, threads: &[String], now_ms: i64) -> Result<bool, StoreError> {
        let is_recent = |at_ms: i64| now_ms - at_ms < KEPT_MS;
        let is_noted = |id: &String| self.memory.noted(id).is_some_and(is_recent);
        let is_known =
            |id: &String| self.memory.thread(id).is_some_and(|known| is_recent(known.thread.at_ms));
        // What was noted costs no copy of a thread.
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

    /// Forgets all that is remembered of a history.
    pub(super) fn forget(&self, chains: &[Chain]) {
        for &chain in chains {
            self.memory.forget(chain);
            self.memory.take_standing(chain);
        }
    }
}
