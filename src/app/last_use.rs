//! Reports to the store, thread by thread, that full texts are in use, so that they are not removed.

use std::time::Duration;

use super::rewrite::Request;
use super::rewritten::InForce;
use crate::lineage::Place;
use crate::planner::{self, Save};
use crate::store::{Batch, Recent};

/// How often a thread's use is reported. The store may learn of a use this much later.
pub(super) const REPORTED_EVERY: Duration = Duration::from_secs(3600);

/// When each thread's use was last reported, in milliseconds since 1970. Bounded.
pub(super) struct LastUse(Recent<String, i64>);

impl LastUse {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(4096))
    }

    /// Whether a thread's use is to be reported now. If so, it counts as reported.
    pub(super) fn take_due(&self, thread: &str, now_ms: i64) -> bool {
        let due =
            self.0.get(thread).is_none_or(|last| now_ms.abs_diff(last) >= REPORTED_EVERY.as_millis() as u64);
        if due {
            self.0.insert(thread.to_owned(), now_ms);
        }
        due
    }
}

impl Request<'_> {
    /// If it is due, reports to the store that the full texts of this thread are in use. Saves those again that were
    /// removed meanwhile, from the originals in this request, and waits until they are saved: they must be there before
    /// the request tells the model where they are.
    pub(super) async fn keep_alive(&self, place: &Place, decided: &InForce) {
        let full_texts = &self.core.full_texts;
        if !full_texts.are_kept() || !full_texts.last_use.take_due(&place.thread.id, self.now_ms) {
            return;
        }
        let mut batch = Batch { at_ms: self.now_ms, ..Batch::default() };
        let is_gone = |id: &str| !full_texts.outputs.path(id).exists();
        if let Some(splice) = &decided.splice
            && let Some(id) = &splice.output
        {
            if is_gone(id) {
                let text = planner::left_out(&self.conversation, splice, &decided.applied);
                batch.saves.push(Save { id: id.clone(), text });
            } else {
                batch.touch.push(id.clone());
            }
        }
        for applied in decided.applied.iter() {
            let Some(id) = &applied.decision.output else { continue };
            let original = || planner::full_text(&self.conversation, applied);
            match is_gone(id).then(original).flatten() {
                Some(text) => batch.saves.push(Save { id: id.clone(), text }),
                None => batch.touch.push(id.clone()),
            }
        }
        if batch.saves.is_empty() {
            self.core.tally.stored(self.track.store.later(batch));
        } else if let Err(error) = self.commit(batch).await {
            tracing::warn!(%error, "a request leaves before full texts of its conversation are saved again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_reported_hourly_even_if_the_clock_goes_back() {
        const MINUTE: i64 = 60_000;
        let last_use = LastUse::new();
        for (minutes, expected) in
            [(600, true), (659, false), (660, true), (610, false), (600, true), (601, false)]
        {
            assert_eq!(last_use.take_due("t", minutes * MINUTE), expected, "{minutes}");
        }
    }
}
