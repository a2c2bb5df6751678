//! Makes more room in a request that was refused as too long.
//!
//! Several copies of a request may be under way at once: a client retries, or asks for several answers. Room is made
//! for one copy at a time. The form that was made for one copy is tried for the next before more of the history is
//! removed.

use super::rewrite::{Request, SummaryWait};
use super::rewritten::Rewritten;
use crate::lineage::Place;
use crate::server::Deadline;
use crate::store::CommitError;

/// By how many bytes two forms of a request may differ although their history is the same, because of cache marks.
const MARKS_TOLERANCE_BYTES: u64 = 512;

impl Request<'_> {
    /// Shortens the request further than the refused form. [`Rewritten::has_room`] tells whether that succeeded.
    ///
    /// # Errors
    /// [`CommitError::Withdrawn`] if the request has left already; any other error of the store.
    pub(super) async fn make_room(&self) -> Result<Rewritten, CommitError> {
        let head = self.place()?.head();
        // Waiting for other copies may take long: the deadline applies to that.
        if !self.context.until.is_none_or(Deadline::release) {
            return Err(CommitError::Withdrawn);
        }
        let windows = &self.core.learned.windows;
        let _alone = windows.lock_room(head).await;
        if let Some(refused) = windows.shortest_refused(head)
            && let Some(made) = self.room_made_meanwhile(&self.place()?, refused).await
        {
            return Ok(Rewritten { has_room: true, ..made });
        }
        let made = match self.attempt(SummaryWait::Never).await {
            Err(CommitError::Raced) => self.attempt(SummaryWait::Never).await,
            done => done,
        }?;
        Ok(Rewritten { has_room: made.body.is_some() && made.facts.event.is_some(), ..made })
    }

    /// The form that the decisions stored by now give the request, if it is shorter than the shortest form that was
    /// refused (`refused` bytes).
    async fn room_made_meanwhile(&self, place: &Place, refused: u64) -> Option<Rewritten> {
        if place.thread.observe {
            return None;
        }
        let outcome = self.plan(place, SummaryWait::Never).await;
        let form = self.apply_stored(place.clone(), outcome, None).await;
        let bytes = form.body.as_ref()?.len() as u64;
        (bytes + MARKS_TOLERANCE_BYTES < refused).then_some(form)
    }
}
