//! Sends a request with the decisions that are stored already, when nothing new is decided about it.

use super::rewrite::{Request, SummaryWait};
use super::rewritten::{InForce, Rewritten};
use crate::ledger::words::State;
use crate::lineage::Place;
use crate::planner::Outcome;
use crate::store::CommitError;

impl Request<'_> {
    /// Decides again after another gateway on the same store has decided first: its decisions are stored by now. If
    /// that is outrun as well, the request leaves with what is stored.
    pub(super) async fn attempt_after_race(&self) -> Result<Rewritten, CommitError> {
        match self.attempt(SummaryWait::Never).await {
            Err(CommitError::Raced) => {
                let place = self.place()?;
                if place.thread.observe {
                    return Ok(self.leave_alone(place, State::SetAside));
                }
                let outcome = self.plan(&place, SummaryWait::Never).await;
                Ok(self.apply_stored(place, outcome, Some(CommitError::Raced.to_string())).await)
            }
            done => done,
        }
    }

    /// Applies what is stored already and nothing new: whatever happens, an old part must look as it did. `why` says
    /// why nothing new is decided, if that is a fault.
    pub(super) async fn apply_stored(
        &self,
        place: Place,
        mut outcome: Outcome,
        why: Option<String>,
    ) -> Rewritten {
        outcome.forget_fresh();
        let has_begun = place.sent > 0 || outcome.applied.iter().any(|applied| applied.decision.is_opening());
        if let Some(refused) = self.refuse_unstored_opening(why.as_deref()).filter(|_| !has_begun) {
            return refused;
        }
        let (level, recalls) = (outcome.level, outcome.recalls);
        let mut decided = InForce::of(&outcome);
        self.record_sent(&place, &decided);
        if outcome.plan.is_empty() {
            let facts = self.facts(Some(place), State::Unchanged, why, decided);
            return Rewritten::of(facts).with(None, level, recalls);
        }
        let carried_out = self.carry_out(&outcome).or_else(|error| {
            // Decisions must be repeated; marks only save money, so they are given up first.
            outcome.leave_unmarked();
            decided = InForce::of(&outcome);
            if outcome.plan.is_empty() { Err(error) } else { self.carry_out(&outcome) }
        });
        match carried_out {
            Ok(edited) => {
                self.keep_alive(&place, &decided).await;
                self.edited(place, edited, why, decided).with(None, level, recalls)
            }
            Err(error) => {
                let why = Some(error.to_string());
                let facts = self.facts(Some(place), State::Unchanged, why, InForce::default());
                Rewritten::of(facts)
            }
        }
    }

    /// The request as it came, without a place in a thread, after an error that `why` states.
    pub(super) fn untouched(&self, why: String) -> Rewritten {
        if let Some(refused) = self.refuse_unstored_opening(Some(&why)) {
            return refused;
        }
        let facts = self.facts(None, State::Unchanged, Some(why), InForce::default());
        Rewritten::of(facts)
    }
}
