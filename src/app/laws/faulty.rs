//! Stores and dialects that fail.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::conversation::{Chain, Conversation, Digest, Memo, Role};
use crate::json::{Edit, Edits};
use crate::plan::{Op, Plan, Refusal};
use crate::planner::PartKey;
use crate::protocol::{
    AnswerReader, Ask, Asked, Dialect, Document, Fault, Framing, Lowering, Protocol, Unread,
};
use crate::store::{
    Batch, Boundary, CommitError, Spent, Store, StoreError, Stored, StoredDecision, StoredLacking,
    StoredSplice, StoredWindow, Summary, Thread,
};

/// The number of different failures.
pub(super) const FAILURES: u8 = 6;
/// Those failures that only writing encounters.
pub(super) const WRITES: std::ops::RangeInclusive<u8> = 3..=5;

/// A store that fails on demand.
pub(super) struct Faulty {
    inner: Arc<dyn Store>,
    failure: AtomicU8,
}

impl Faulty {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, failure: AtomicU8::new(0) }
    }

    /// Sets how the store fails from now on: 0 not at all, 1 nothing can be read, 2 only what was sent can be read, 3
    /// nothing can be written, 4 the writer is gone, 5 another process is always first, 6 it panics.
    pub(super) fn fail(&self, failure: u8) {
        self.failure.store(failure, Ordering::Relaxed);
    }

    fn is(&self, failures: &[u8]) -> bool {
        let now = self.failure.load(Ordering::Relaxed);
        assert!(now != 6, "a store that panics");
        failures.contains(&now)
    }

    fn read<T>(
        &self,
        failures: &[u8],
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is(failures) { Err(StoreError::Damaged) } else { read(&*self.inner) }
    }
}

impl Store for Faulty {
    fn boundaries(
        &self,
        chains: &[Chain],
        session: Option<&str>,
    ) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError> {
        self.read(&[1], |store| store.boundaries(chains, session))
    }

    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError> {
        self.read(&[1, 2], |store| store.decisions(chains))
    }

    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError> {
        self.read(&[1, 2], |store| store.splices(chains))
    }

    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError> {
        self.read(&[1, 2], |store| store.known_decisions(root, keys))
    }

    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError> {
        self.read(&[1], |store| store.thread(id))
    }

    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError> {
        self.read(&[1, 2], |store| store.session(session))
    }

    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError> {
        self.read(&[1], |store| store.windows(now_ms))
    }

    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError> {
        self.read(&[1], |store| store.lacking(history, now_ms))
    }

    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError> {
        self.read(&[1], |store| store.record(conversation, answer))
    }

    fn last_request(
        &self,
        conversation: &str,
        thread: &str,
        model: &str,
    ) -> Result<Option<(String, i64)>, StoreError> {
        self.read(&[1], |store| store.last_request(conversation, thread, model))
    }

    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError> {
        self.read(&[1], |store| store.spent(conversation, within_ms))
    }

    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError> {
        self.read(&[1], |store| store.summary(thread))
    }

    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError> {
        self.read(&[1], |store| store.summaries(conversation))
    }

    fn commit(&self, batch: Batch) -> Stored {
        match self.failure.load(Ordering::Relaxed) {
            _ if !batch.decides() => self.inner.commit(batch),
            3 => Stored::done(Err(StoreError::Damaged.into())),
            4 => Stored::done(Err(CommitError::TimedOut)),
            5 => Stored::done(Err(CommitError::Raced)),
            _ => self.inner.commit(batch),
        }
    }

    /// Outside of any runtime: a paused clock would advance with the work that accumulates there.
    fn later(&self, batch: Batch) -> bool {
        let later = || self.inner.later(batch);
        !self.is(&[3, 4]) && std::thread::scope(|scope| scope.spawn(later).join().expect("it is queued"))
    }

    fn count_lost(&self, at_ms: i64) {
        self.inner.count_lost(at_ms);
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }
}

/// A dialect that carries plans out wrongly, or not at all.
#[derive(Debug)]
pub(super) struct Clumsy {
    inner: &'static dyn Protocol,
    how: u8,
}

impl Clumsy {
    /// The number of ways to be wrong.
    pub(super) const WAYS: u8 = 4;
    /// One more: no marks can be put.
    pub(super) const NO_MARKS: u8 = Self::WAYS;

    /// A dialect lives as long as the process.
    pub(super) fn new(inner: &'static dyn Protocol, how: u8) -> &'static Self {
        Box::leak(Box::new(Self { inner, how }))
    }
}

impl Protocol for Clumsy {
    fn dialect(&self) -> &'static Dialect {
        self.inner.dialect()
    }

    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
        self.inner.conversation(document, memo)
    }

    fn message(&self, role: Role, text: &str) -> String {
        self.inner.message(role, text)
    }

    fn answer(&self, framing: Framing) -> Box<dyn AnswerReader> {
        self.inner.answer(framing)
    }

    fn ask(&self, ask: &Ask<'_>) -> Asked {
        self.inner.ask(ask)
    }

    fn text_of_answer(&self, answer: &[u8]) -> Option<String> {
        self.inner.text_of_answer(answer)
    }

    fn fault(&self, fault: &Fault<'_>) -> String {
        self.inner.fault(fault)
    }

    fn lower(&self, conversation: &Conversation, plan: &Plan) -> Result<Edits, Lowering> {
        let edits = self.inner.lower(conversation, plan)?;
        if self.how == Self::NO_MARKS {
            let marks = |op: &Op| {
                matches!(op, Op::Mark { .. } | Op::MarkFrame { .. } | Op::Split { mark: Some(_), .. })
            };
            return if plan.ops.iter().any(marks) { Err(Refusal::Conflict.into()) } else { Ok(edits) };
        }
        let mut wrong: Vec<Edit> = edits.iter().cloned().collect();
        match (self.how, wrong.last_mut()) {
            (0, _) => return Err(Refusal::Conflict.into()),
            (1, Some(edit)) => edit.text.push('"'),
            (2, Some(edit)) if !edit.text.is_empty() => edit.text.insert(1, 'x'),
            _ => drop(wrong.pop()),
        }
        Edits::new(wrong).map_err(|_| Lowering::Overlap)
    }
}
