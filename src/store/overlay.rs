//! A store in memory on top of another store, which it only reads.
//!
//! It keeps the decisions that an observing gateway would have made, which must never reach the store below. They are
//! bounded, and lost with the process. Threads and histories are those of the store below.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Batch, Boundary, CommitError, Recent, Spent, Store, StoreError, Stored, StoredDecision, StoredLacking,
    StoredSplice, StoredWindow, Summary, Thread,
};
use crate::conversation::{Chain, Digest, Hashed};
use crate::planner::PartKey;

/// The memory that an entry takes besides its decision, in bytes.
const OVERHEAD: usize = 128;

/// Decisions in memory, above a store.
pub struct Overlay {
    below: Arc<dyn Store>,
    /// Decisions by the history that ends with their message.
    decisions: Recent<Chain, Vec<StoredDecision>, Hashed>,
    /// Splices by the history that they replace.
    splices: Recent<Chain, Vec<StoredSplice>, Hashed>,
    /// A principal's newest decision about each result.
    newest: Recent<(Chain, PartKey), StoredDecision>,
    /// Held while a batch is put in, so that each goes in as a whole.
    writing: Mutex<()>,
}

impl Overlay {
    /// A store above `below` that keeps about `bytes` of decisions, as much of splices, and as much of decisions by the
    /// result that they are about.
    pub fn above(below: Arc<dyn Store>, bytes: u64) -> Self {
        let decisions = |all: &Vec<StoredDecision>| all.iter().map(weight).sum();
        let splices =
            |all: &Vec<StoredSplice>| all.iter().map(|stored| stored.splice.weight() + OVERHEAD).sum();
        Self {
            below,
            decisions: Recent::of_weight(bytes, decisions),
            splices: Recent::of_weight(bytes, splices),
            newest: Recent::of_weight(bytes, weight),
            writing: Mutex::default(),
        }
    }

    /// Puts in all decisions and splices of a batch, or none if there is already one for the same part or range.
    fn put(&self, mut batch: Batch) -> Result<(), CommitError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_decided = |new: &StoredDecision| {
            let known = self.decisions.get(&new.chain).unwrap_or_default();
            known.iter().any(|known| (known.part, known.since) == (new.part, new.since))
        };
        let is_spliced = |new: &StoredSplice| {
            let known = self.splices.get(&new.chain).unwrap_or_default();
            known.iter().any(|known| known.since == new.since)
        };
        if batch.decisions.iter().any(is_decided) || batch.splices.iter().any(is_spliced) {
            return Err(CommitError::Raced);
        }
        // Of decisions about the same result that were made at once, the last in this order is found, as in the
        // database.
        batch.decisions.sort_by_key(|new| (new.chain, new.part, new.since));
        for new in batch.decisions {
            if let Some(key) = new.decision.key {
                self.newest.insert((new.root, key), new.clone());
            }
            let mut all = self.decisions.get(&new.chain).unwrap_or_default();
            let chain = new.chain;
            all.push(new);
            self.decisions.insert(chain, all);
        }
        for new in batch.splices {
            let mut all = self.splices.get(&new.chain).unwrap_or_default();
            let chain = new.chain;
            all.push(new);
            self.splices.insert(chain, all);
        }
        Ok(())
    }
}

fn weight(stored: &StoredDecision) -> usize {
    stored.decision.weight() + OVERHEAD
}

impl Store for Overlay {
    fn boundaries(
        &self,
        chains: &[Chain],
        session: Option<&str>,
    ) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError> {
        self.below.boundaries(chains, session)
    }

    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError> {
        let mut all = self.below.decisions(chains)?;
        all.extend(chains.iter().filter_map(|chain| self.decisions.get(chain)).flatten());
        Ok(all)
    }

    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError> {
        let mut all = self.below.splices(chains)?;
        all.extend(chains.iter().filter_map(|chain| self.splices.get(chain)).flatten());
        Ok(all)
    }

    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError> {
        let below = self.below.known_decisions(root, keys)?;
        let own = keys.iter().map(|key| self.newest.get(&(root, *key)));
        Ok(own.zip(below).map(|(own, below)| own.or(below)).collect())
    }

    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError> {
        self.below.thread(id)
    }

    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError> {
        self.below.session(session)
    }

    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError> {
        self.below.summary(thread)
    }

    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError> {
        self.below.summaries(conversation)
    }

    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError> {
        self.below.windows(now_ms)
    }

    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError> {
        self.below.lacking(history, now_ms)
    }

    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError> {
        self.below.spent(conversation, within_ms)
    }

    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError> {
        self.below.record(conversation, answer)
    }

    fn last_request(
        &self,
        conversation: &str,
        thread: &str,
        model: &str,
    ) -> Result<Option<(String, i64)>, StoreError> {
        self.below.last_request(conversation, thread, model)
    }

    fn commit(&self, batch: Batch) -> Stored {
        Stored::done(self.put(batch))
    }

    /// Does nothing: only decisions are kept here, and these are committed.
    fn later(&self, _: Batch) -> bool {
        true
    }
}
