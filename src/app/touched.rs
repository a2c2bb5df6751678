//! When each thread's texts were last reported to be in use.

use super::rewrite::Request;
use super::rewritten::InForce;
use crate::lineage::Place;
use crate::planner::Save;
use crate::store::{Batch, Recent};

/// How often a thread reports, in milliseconds. Far below any sensible retention.
const INTERVAL_MS: i64 = 3_600_000;

/// A bounded memory of reports.
pub(super) struct Touched(Recent<String, i64>);

impl Touched {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(4096))
    }

    /// Whether a thread should report now; if so, it is taken to have done it.
    pub(super) fn is_due(&self, thread: &str, now_ms: i64) -> bool {
        let due = self.0.get(thread).is_none_or(|last| now_ms - last >= INTERVAL_MS);
        if due {
            self.0.insert(thread.to_owned(), now_ms);
        }
        due
    }
}

impl Request<'_> {
    /// Now and then, tells the store that the texts this thread refers to are in use, and saves again what has
    /// been removed meanwhile: the client sent the originals with this request.
    pub(super) fn keep_alive(&self, place: &Place, decided: &InForce) {
        if !self.core.keeps_outputs() || !self.core.touched.is_due(&place.thread.id, self.now_ms) {
            return;
        }
        let mut batch = Batch { at_ms: self.now_ms, ..Batch::default() };
        batch.touch.extend(decided.splice.as_ref().and_then(|splice| splice.output.clone()));
        for applied in decided.applied.iter() {
            let Some(id) = &applied.decision.output else { continue };
            let texts = self.conversation.texts(applied.part);
            match texts.filter(|_| !self.core.outputs.path(id).exists()) {
                Some(texts) => batch.saves.push(Save { id: id.clone(), text: texts.concat() }),
                None => batch.touch.push(id.clone()),
            }
        }
        self.core.tally.stored(self.track.store.later(batch));
    }
}
