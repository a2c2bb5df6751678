//! What is missing from histories that the provider holds: whatever was cut from one request is absent from the
//! prompts of all requests that continue it without sending it again.
//!
//! An entry is stored for each history from which something is missing. Since writes to the store are queued, a bounded
//! cache of them is kept in memory. Gateways may share a store, so if the two disagree, the entry of the later request
//! is right.

use std::sync::Arc;

use super::Ended;
use crate::conversation::{Digest, Hashed};
use crate::ledger::Record;
use crate::store::{Recent, Store, StoredLacking};

/// How many histories are remembered: the most recently continued.
const MAX_HISTORIES: u64 = 4096;

/// How many tokens are missing from a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    /// Tokens of the original that are missing from what was sent.
    pub(super) sent: u64,
    /// Tokens of what was sent that are missing from what an observing gateway would have sent. This is not stored,
    /// since what the gateway would have decided is lost with the process, too.
    pub(super) planned: u64,
}

impl Lacking {
    pub(super) const NOTHING: Self = Self { sent: 0, planned: 0 };
}

/// What is known of a history.
#[derive(Clone, Copy)]
struct Entry {
    /// What is missing from it; `None` if that is unknown.
    lacking: Option<Lacking>,
    /// When the request came that left it like this, in milliseconds since 1970.
    at_ms: i64,
}

/// What is missing from histories, by upstream and by the id that a request continues from: an answer's, or the
/// history's own.
pub(super) struct Histories {
    store: Arc<dyn Store>,
    recent: Recent<Digest, Entry, Hashed>,
    /// Entries that are yet to be stored.
    unstored: Vec<StoredLacking>,
}

impl Histories {
    pub(super) fn of(store: Arc<dyn Store>) -> Self {
        Self { store, recent: Recent::of_entries(MAX_HISTORIES), unstored: Vec::new() }
    }

    /// What is missing from a history at a time in milliseconds since 1970; `None` if that is unknown.
    pub(super) fn lacking(&self, upstream: &str, name: &str, now_ms: i64) -> Option<Lacking> {
        let history = history(upstream, name);
        let recent = self.recent.get(&history);
        match (self.store.lacking(history, now_ms), recent) {
            (Ok(Some(stored)), recent) if recent.is_none_or(|recent| recent.at_ms < stored.at_ms) => {
                stored.tokens.map(|sent| Lacking { sent, ..Lacking::NOTHING })
            }
            (_, Some(recent)) => recent.lacking,
            (Ok(_), None) => Some(Lacking::NOTHING),
            (Err(_), None) => None,
        }
    }

    /// What is missing from the history that a request continues by its id; nothing if it sends its whole history.
    pub(super) fn before(&self, record: &Record, name: Option<&str>, now_ms: i64) -> Option<Lacking> {
        name.map_or(Some(Lacking::NOTHING), |name| self.lacking(&record.upstream, name, now_ms))
    }

    /// Records what is missing after a request that came at `at_ms`: from the history that ends with its answer, and
    /// from the one that `grown` names, which grows with the request. `grown` comes with what was missing from that
    /// history before. `None` means unknown.
    pub(super) fn keep(
        &mut self,
        record: &Record,
        grown: Option<(&str, Option<Lacking>)>,
        lacking: Option<Lacking>,
        at_ms: i64,
    ) {
        let may_be_missing = |lacking: Option<Lacking>| lacking.is_none_or(|lacking| lacking.sent > 0);
        let answer = record.answer.as_deref().map(|answer| (answer, Some(Lacking::NOTHING)));
        for (name, before) in [answer, grown].into_iter().flatten().filter(|(name, _)| !name.is_empty()) {
            let history = history(&record.upstream, name);
            let known = self.recent.get(&history).map_or(before, |entry| entry.lacking);
            // There may be an entry in the store, which has to be replaced even if nothing is missing now.
            let may_be_stored = may_be_missing(before) || may_be_missing(known);
            if lacking == Some(Lacking::NOTHING) && !may_be_stored {
                self.recent.remove(&history);
                continue;
            }
            self.recent.insert(history, Entry { lacking, at_ms });
            if may_be_stored || may_be_missing(lacking) {
                let tokens = lacking.map(|lacking| lacking.sent);
                self.unstored.push(StoredLacking { history, tokens, at_ms });
            }
        }
    }

    /// Takes the entries to store since the last call.
    pub(super) fn take_unstored(&mut self) -> Vec<StoredLacking> {
        std::mem::take(&mut self.unstored)
    }
}

/// The entries to store for a request that was not measured. If it was edited, or continues a history from which
/// something may be missing, what is missing after it is unknown.
pub(super) fn of_unmeasured(ended: &Ended) -> Vec<StoredLacking> {
    let record = &ended.record;
    if !record.status.is_some_and(|status| (200..300).contains(&status)) {
        return Vec::new();
    }
    let (continues, is_edited) = (ended.continues.as_deref(), record.edits.were_sent());
    let answer = record.answer.as_deref().filter(|_| is_edited || continues.is_some());
    let grown = continues.filter(|_| ended.grows && is_edited);
    let names = [answer, grown].into_iter().flatten().filter(|name| !name.is_empty());
    let at_ms = ended.at_ms;
    names
        .map(|name| StoredLacking { history: history(&record.upstream, name), tokens: None, at_ms })
        .collect()
}

/// The key of a history.
fn history(upstream: &str, name: &str) -> Digest {
    Digest::of(&[b"lacking\0", upstream.as_bytes(), b"\0", name.as_bytes()])
}
