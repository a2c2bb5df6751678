//! Observing: what rewriting would have made of requests that leave as they came.
//!
//! An observing gateway decides with the same code as a rewriting one, and remembers its decisions in the same way,
//! so that each part is decided about once and each event happens once. All of it stays in memory, is bounded, and is
//! lost with the process. Nothing of it reaches the wire or the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::Core;
use super::books::Planned;
use super::meter::Meter;
use super::rewrite::{Request, SummaryWait};
use super::rewritten::{InForce, RequestFacts, Rewritten, Would};
use crate::ledger::words::State;
use crate::lineage::{Lineage, Memory, Place};
use crate::store::{CommitError, Overlay, Store};

/// The lineage, store and meter that a request is planned with: the real ones, or those of the shadow.
#[derive(Clone, Copy)]
pub(super) struct Track<'a> {
    pub(super) lineage: &'a Lineage,
    pub(super) store: &'a dyn Store,
    pub(super) meter: &'a Meter,
}

/// The decisions that would have been made, and the prompt sizes that would have resulted.
pub(super) struct Shadow {
    lineage: Lineage,
    store: Arc<dyn Store>,
    pub(super) meter: Meter,
}

impl Shadow {
    /// A shadow on top of the real store; it remembers about `bytes` of decisions, several times over.
    pub(super) fn over(store: &Arc<dyn Store>, bytes: u64) -> Self {
        let store: Arc<dyn Store> = Arc::new(Overlay::above(Arc::clone(store), bytes));
        let lineage = Lineage::new(Arc::clone(&store), Memory::new(bytes));
        Self { lineage, store, meter: Meter::new() }
    }

    /// The lineage of the decisions that would have been made.
    pub(super) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn track(&self) -> Track<'_> {
        Track { lineage: &self.lineage, store: &*self.store, meter: &self.meter }
    }
}

impl Core {
    /// The real lineage, store and meter.
    pub(super) fn track(&self) -> Track<'_> {
        Track { lineage: &self.lineage, store: &*self.store, meter: &self.learned.meter }
    }
}

impl Request<'_> {
    /// The request as an observing gateway sends it: without new decisions. A thread that was edited earlier stays as
    /// it was sent, whatever the mode is now.
    pub(super) async fn as_before(&self, place: Place) -> Rewritten {
        if !place.is_edited() {
            return self.left_alone(place, State::Unchanged);
        }
        let tuning = self.tuning(&place);
        let standing = self.track.lineage.standing(&place);
        let mut outcome = self.plan_by(&place, &tuning.policy, standing, None);
        self.bind(&place);
        // What an event leaves behind is valid only if the event is carried out.
        let standing = outcome.standing.take().filter(|_| outcome.event.is_none());
        self.keep(&place, standing);
        outcome.leave_unmarked();
        self.settled(place, outcome, None).await
    }

    /// The request as it came.
    pub(super) fn left_alone(&self, place: Place, state: State) -> Rewritten {
        self.remember(&place, &InForce::default());
        self.done(place, None, state, InForce::default())
    }

    /// Works out what rewriting would have made of a request, once it is known how it leaves. A fault here costs that
    /// information and nothing else.
    pub(super) async fn shadow(&mut self, rewritten: &mut Rewritten) {
        let place = rewritten.facts.place.as_ref().filter(|place| !place.thread.observe);
        let Some((shadow, place)) = self.core.shadow.as_ref().zip(place) else { return };
        self.track = shadow.track();
        // Nothing that is recorded here is worth waiting for.
        self.asked.until = None;
        let planned = match caught(self.planned(place)).await {
            Some(Err(CommitError::Raced)) => caught(self.planned(place)).await,
            done => done,
        };
        let Some(Ok(Rewritten { edited, facts, .. })) = planned else { return };
        let bytes = edited.as_ref().unwrap_or(&self.conversation).body.len() as u64;
        rewritten.facts.would = Some(Would { bytes, encoded: facts.encoded, spared: facts.spared() });
        rewritten.planned = Some(edited.map_or(Planned::AsItCame, |edited| Planned::Edited(edited.into())));
        rewritten.facts.observe(*facts);
    }

    /// The request as it would have been sent.
    async fn planned(&self, place: &Place) -> Result<Rewritten, CommitError> {
        let place = self.track.lineage.decided_at(&self.conversation, place)?;
        self.decide(place, SummaryWait::Never).await
    }
}

impl RequestFacts {
    /// Reports what would have been sent, unless something was changed after all.
    fn observe(&mut self, planned: Self) {
        if self.state != State::Unchanged {
            return;
        }
        (self.level, self.recalls) = (planned.level, planned.recalls);
        let decided = planned.decided;
        // Marks alone do not change what is said.
        if self.why.is_none() && (!decided.applied.is_empty() || decided.splice.is_some()) {
            self.state = State::Observed;
            (self.decided, self.event) = (decided, planned.event);
        }
    }
}

/// The output of some work; `None`: it panicked.
async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}
