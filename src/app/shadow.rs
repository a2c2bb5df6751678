//! Observing: works out what rewriting would have made of requests that leave as they came.
//!
//! An observing gateway decides with the same code as a rewriting one, and remembers its decisions in the same way, so
//! that each part is decided about once and each event happens once. It keeps them in bounded memory and loses them
//! with the process. None of them reaches the wire or the store.

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
    pub(super) lineage: Lineage,
    store: Arc<dyn Store>,
    pub(super) meter: Meter,
}

impl Shadow {
    /// A shadow on top of the real store. Each of its memories holds about `bytes` of decisions.
    pub(super) fn over(store: &Arc<dyn Store>, bytes: u64) -> Self {
        let store: Arc<dyn Store> = Arc::new(Overlay::above(Arc::clone(store), bytes));
        let lineage = Lineage::new(Arc::clone(&store), Memory::new(bytes));
        Self { lineage, store, meter: Meter::new() }
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
    pub(super) async fn repeat_as_before(&self, place: Place) -> Rewritten {
        if !place.is_edited() {
            return self.leave_alone(place, State::Unchanged);
        }
        let tuning = self.tuning(&place);
        let standing = self.track.lineage.standing(&place);
        let mut outcome = self.plan_by(&place, &tuning.policy, standing, None);
        self.record_frame(&place);
        // An event is not carried out here, so the standing after it is not kept.
        let standing = outcome.standing.take().filter(|_| outcome.event.is_none());
        self.keep_standing(&place, standing);
        outcome.leave_unmarked();
        self.apply_stored(place, outcome, None).await
    }

    /// The request as it came, although its place is known.
    pub(super) fn leave_alone(&self, place: Place, state: State) -> Rewritten {
        self.record_sent(&place, &InForce::default());
        Rewritten::of(self.facts(Some(place), state, None, InForce::default()))
    }

    /// Works out what rewriting would have made of a request, once it is known how it leaves, and adds that to its
    /// facts. If this fails, the facts lack it and nothing else is lost.
    pub(super) async fn plan_shadow(&mut self, rewritten: &mut Rewritten) {
        let place = rewritten.facts.place.as_ref().filter(|place| !place.thread.observe);
        let Some((shadow, place)) = self.core.shadow.as_ref().zip(place) else { return };
        self.track = shadow.track();
        // Nothing that is recorded here is worth waiting for.
        self.context.until = None;
        let planned = match catch_panic(self.plan_as_rewriting(place)).await {
            Some(Err(CommitError::Raced)) => catch_panic(self.plan_as_rewriting(place)).await,
            done => done,
        };
        let Some(Ok(Rewritten { edited, facts, .. })) = planned else { return };
        let bytes = edited.as_deref().unwrap_or(&self.conversation).body.len() as u64;
        rewritten.facts.would = Some(Would { bytes, encoded: facts.encoded, spared: facts.spared() });
        rewritten.planned = Some(edited.map_or(Planned::AsItCame, Planned::Edited));
        rewritten.facts.take_planned(*facts);
    }

    /// The request as a rewriting gateway would have sent it.
    async fn plan_as_rewriting(&self, place: &Place) -> Result<Rewritten, CommitError> {
        let place = self.track.lineage.decided_at(&self.conversation, place)?;
        self.decide(place, SummaryWait::Never).await
    }
}

impl RequestFacts {
    /// Takes over what was `planned`, unless the request was edited after all.
    fn take_planned(&mut self, planned: Self) {
        if self.state != State::Unchanged {
            return;
        }
        (self.level, self.recalls) = (planned.level, planned.recalls);
        let decided = planned.decided;
        // Cache marks alone do not change what the model reads.
        if self.why.is_none() && (!decided.applied.is_empty() || decided.splice.is_some()) {
            self.state = State::Observed;
            (self.decided, self.event) = (decided, planned.event);
        }
    }
}

/// Awaits some work. Returns its output, or `None` if it panicked.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}
