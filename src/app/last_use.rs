//! Reports to the store, thread by thread, that full texts are in use, so that they are not removed.

use super::rewrite::Request;
use super::rewritten::InForce;
use crate::lineage::Place;
use crate::planner::{self, Save};
use crate::store::Batch;

impl Request<'_> {
    /// If it is due, reports to the store that the full texts of this thread are in use. Saves those again that were
    /// removed meanwhile, from the originals in this request, and waits until they are saved: they must be there before
    /// the request tells the model where they are.
    pub(super) async fn keep_alive(&self, place: &Place, decided: &InForce) {
        let full_texts = &self.core.full_texts;
        let (uses, thread) = (&full_texts.uses, &*place.thread.id);
        if !full_texts.are_kept() || !uses.is_due(thread, self.now_ms) {
            return;
        }
        uses.note(thread, self.now_ms);
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
