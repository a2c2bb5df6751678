//! A request that was refused as too long: its form with more room.
//!
//! The same request may be under way several times: a client's retry, or several answers asked for at once. Room is
//! made once for all of them, one after the other: what was made for one copy is tried for the next before more of the
//! history goes.

use super::rewrite::Request;
use super::rewritten::Rewritten;
use crate::lineage::Place;
use crate::server::Deadline;
use crate::store::StoreError;

/// Bytes that two forms may differ by without a change to the history: cache marks come and go.
const MARKS: u64 = 512;

impl Request<'_> {
    /// The request with more room than it was refused with, if [`Rewritten::has_room`] says so.
    pub(super) async fn make_room(&self) -> Result<Rewritten, StoreError> {
        let head = self.place()?.head();
        // Others may take long.
        if !self.asked.until.is_none_or(Deadline::release) {
            return Err(StoreError::Withdrawn);
        }
        let _alone = self.core.windows.alone(head).await;
        if let Some(refused) = self.core.windows.refused(head)
            && let Some(made) = self.made_meanwhile(&self.place()?, refused).await
        {
            return Ok(Rewritten { has_room: true, ..made });
        }
        let made = match self.attempt(false).await {
            Err(StoreError::Raced) => self.attempt(false).await,
            done => done,
        }?;
        Ok(Rewritten { has_room: made.body.is_some() && made.facts.event.is_some(), ..made })
    }

    /// The form that is stored by now, if it is shorter than the shortest that was refused.
    async fn made_meanwhile(&self, place: &Place, refused: u64) -> Option<Rewritten> {
        if place.thread.observe {
            return None;
        }
        let outcome = self.plan(place, false).await;
        let stored = self.settled(place.clone(), outcome, None);
        stored.body.as_ref().is_some_and(|body| body.len() as u64 + MARKS < refused).then_some(stored)
    }
}
