//! Requests that are sent again and again for longer than things are kept.

use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use proptest::prelude::*;

use super::client::{Client, sittings};
use super::keys;
use super::rig::{self, Rig, headers, policy, prices};
use crate::app::Core;
use crate::conversation::{Chain, Digest};
use crate::lineage::NOTED_EVERY;
use crate::planner::PartKey;
use crate::protocol::conformance::for_all;
use crate::store::{
    Batch, Boundary, Spent, Store, StoreError, Stored, StoredDecision, StoredLacking, StoredSplice,
    StoredWindow, Summary, Thread,
};

const HOUR_MS: i64 = 3_600_000;
/// How long things are kept.
const KEPT_MS: i64 = 48 * HOUR_MS;
/// The turns that the store is given for a sweep: a few for each table.
const TURNS: usize = 40;

/// The batch that asks for a sweep at the present time.
fn sweep() -> Batch {
    let before = rig::clock() - KEPT_MS - NOTED_EVERY.as_millis() as i64;
    Batch { forget_threads: Some(before), at_ms: rig::clock(), ..Batch::default() }
}

/// A store that, on demand, is swept right after decisions were read.
struct Swept {
    inner: Arc<dyn Store>,
    is_due: AtomicBool,
}

impl Swept {
    fn store_now(&self, batch: Batch) {
        let mut stored = pin!(self.inner.commit(batch));
        while stored.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
    }
}

impl Store for Swept {
    fn boundaries(
        &self,
        chains: &[Chain],
        session: Option<&str>,
    ) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError> {
        self.inner.boundaries(chains, session)
    }

    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError> {
        let found = self.inner.decisions(chains);
        if self.is_due.swap(false, Ordering::Relaxed) {
            self.store_now(sweep());
            (0..TURNS).for_each(|_| self.store_now(Batch::default()));
        }
        found
    }

    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError> {
        self.inner.splices(chains)
    }

    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError> {
        self.inner.known_decisions(root, keys)
    }

    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError> {
        self.inner.thread(id)
    }

    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError> {
        self.inner.session(session)
    }

    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError> {
        self.inner.summary(thread)
    }

    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError> {
        self.inner.summaries(conversation)
    }

    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError> {
        self.inner.windows(now_ms)
    }

    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError> {
        self.inner.lacking(history, now_ms)
    }

    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError> {
        self.inner.record(conversation, answer)
    }

    fn last_request(
        &self,
        conversation: &str,
        thread: &str,
        model: &str,
    ) -> Result<Option<(String, i64)>, StoreError> {
        self.inner.last_request(conversation, thread, model)
    }

    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError> {
        self.inner.spent(conversation, within_ms)
    }

    fn commit(&self, batch: Batch) -> Stored {
        self.inner.commit(batch)
    }

    fn later(&self, batch: Batch) -> bool {
        self.inner.later(batch)
    }
}

/// A request that is made again and again is sent the same way, whatever the store removes in the meantime, whichever
/// gateway sends it and whatever that gateway would decide now. After a long pause nothing fails.
#[test]
fn law_07_append_only_while_requests_recur() {
    let (rig, key, edited) = (Rig::new(), keys(), Cell::new(0));
    let store = rig.store("laws.db");
    let sweep = || {
        rig.store_now(&*store, sweep());
        (0..TURNS).for_each(|_| rig.store_now(&*store, Batch::default()));
    };
    for_all(
        12,
        |_| sittings().boxed(),
        |subject, (script, requests)| {
            let gateway = |variant| rig.core(store.clone(), policy(variant), prices(variant));
            let headers = headers(&key(), "s");
            let mut client = Client::new(subject, script, 0);
            let Some(body) = client.requests(requests).last() else { return Ok(()) };
            let (first, other) = (gateway(0), gateway(1));
            let send = |gateway: &Core| rig.send(gateway, subject.protocol(), &headers, &body);
            let sent = send(&first);
            edited.set(edited.get() + u32::from(!sent.facts.decided.applied.is_empty()));
            for _ in 0..3 * KEPT_MS / (12 * HOUR_MS) {
                rig::wait(12 * HOUR_MS);
                let again = send(&other);
                prop_assert_eq!(&again.facts.decided.applied, &sent.facts.decided.applied);
                sweep();
            }
            for _ in 0..2 * KEPT_MS / (12 * HOUR_MS) {
                rig::wait(12 * HOUR_MS);
                sweep();
            }
            for gateway in [&first, &other] {
                let late = send(gateway);
                prop_assert!(late.facts.why.is_none(), "{:?}", late.facts.why);
            }
            Ok(())
        },
    );
    assert!(edited.get() > 5, "hardly anything is decided: {}", edited.get());
}

/// What is removed while a rested thread is taken up again no longer applies, in this gateway or any other.
#[test]
fn law_07_append_only_while_idle_threads_are_swept() {
    let (rig, key, edited) = (Rig::new(), keys(), Cell::new(0));
    let store = Arc::new(Swept { inner: rig.store("laws.db"), is_due: AtomicBool::new(false) });
    for_all(
        12,
        |_| sittings().boxed(),
        |subject, (script, requests)| {
            let gateway = |variant| rig.core(store.clone(), policy(variant), prices(variant));
            let headers = headers(&key(), "s");
            let mut client = Client::new(subject, script, 0);
            let Some(body) = client.requests(requests).last() else { return Ok(()) };
            let send = |gateway: &Core| rig.send(gateway, subject.protocol(), &headers, &body);
            let first = gateway(0);
            let sent = send(&first);
            edited.set(edited.get() + u32::from(!sent.facts.decided.applied.is_empty()));
            for anew in [gateway(1), first] {
                for _ in 0..3 {
                    store.store_now(sweep());
                    (0..TURNS).for_each(|_| store.store_now(Batch::default()));
                    rig::wait(24 * HOUR_MS);
                }
                store.is_due.store(true, Ordering::Relaxed);
                let late = send(&anew);
                store.is_due.store(false, Ordering::Relaxed);
                let again = send(&gateway(2));
                prop_assert_eq!(&again.facts.decided.applied, &late.facts.decided.applied);
            }
            Ok(())
        },
    );
    assert!(edited.get() > 5, "hardly anything is decided: {}", edited.get());
}
