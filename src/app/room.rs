//! Makes more room in a request that was refused as too long.
//!
//! The same request may be under way several times: as a client's retry, or because several answers were asked for at
//! once. Room is made for all copies one after the other: what was made for one is tried for the next before more of
//! the history is removed.

use super::rewrite::{Request, SummaryWait};
use super::rewritten::Rewritten;
use crate::lineage::Place;
use crate::server::Deadline;
use crate::store::CommitError;

/// How many bytes two forms may differ by without any change to the history: cache marks come and go.
const MARKS: u64 = 512;

impl Request<'_> {
    /// The request with more room than the refused form, if [`Rewritten::has_room`] is set.
    pub(super) async fn make_room(&self) -> Result<Rewritten, CommitError> {
        let head = self.place()?.head();
        // Other copies may take long.
        if !self.asked.until.is_none_or(Deadline::release) {
            return Err(CommitError::Withdrawn);
        }
        let windows = &self.core.learned.windows;
        let _alone = windows.alone(head).await;
        if let Some(refused) = windows.refused(head)
            && let Some(made) = self.made_meanwhile(&self.place()?, refused).await
        {
            return Ok(Rewritten { has_room: true, ..made });
        }
        let made = match self.attempt(SummaryWait::Never).await {
            Err(CommitError::Raced) => self.attempt(SummaryWait::Never).await,
            done => done,
        }?;
        Ok(Rewritten { has_room: made.body.is_some() && made.facts.event.is_some(), ..made })
    }

    /// The form that is stored by now, if it is shorter than the shortest that was refused.
    async fn made_meanwhile(&self, place: &Place, refused: u64) -> Option<Rewritten> {
        if place.thread.observe {
            return None;
        }
        let outcome = self.plan(place, SummaryWait::Never).await;
        let stored = self.settled(place.clone(), outcome, None).await;
        stored.body.as_ref().is_some_and(|body| body.len() as u64 + MARKS < refused).then_some(stored)
    }
}
