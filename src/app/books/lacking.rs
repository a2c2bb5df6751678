//! What is missing from histories that the provider holds: whatever was cut from one request is absent from the
//! prompts of all requests that continue it without sending it again.
//!
//! Stored wherever something is missing. A bounded memory sits on top, since writes to the store are queued. Gateways
//! may share a store: of memory and store, the one that knows of the later request is right.

use std::sync::Arc;

use super::Ended;
use crate::conversation::{Digest, Hashed};
use crate::ledger::Record;
use crate::store::{Recent, Store, StoredLacking};

/// Histories that are remembered; beyond that the least recently continued are dropped.
const HISTORIES: u64 = 4096;

/// Missing tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    /// Tokens of what came that are missing from what was sent.
    pub(super) sent: u64,
    /// Tokens of what was sent that are missing from what an observing gateway would have sent. Not stored: what it
    /// would have decided is lost with the process, too.
    pub(super) planned: u64,
}

impl Lacking {
    pub(super) const NOTHING: Self = Self { sent: 0, planned: 0 };
}

/// What is missing from a history (`None`: that is unknown), and the time of the request after which it was missing.
type Said = (Option<Lacking>, i64);

/// What is missing from histories, by upstream and by the id that a request continues from: an answer's, or the
/// history's own.
pub(super) struct Histories {
    store: Arc<dyn Store>,
    recent: Recent<Digest, Said, Hashed>,
    /// Entries that are yet to be stored.
    fresh: Vec<StoredLacking>,
}

impl Histories {
    pub(super) fn of(store: Arc<dyn Store>) -> Self {
        Self { store, recent: Recent::of_entries(HISTORIES), fresh: Vec::new() }
    }

    /// What is missing from a history at a time in milliseconds since 1970; `None` if that is unknown.
    pub(super) fn lacking(&self, upstream: &str, name: &str, now_ms: i64) -> Option<Lacking> {
        let history = history(upstream, name);
        let recent = self.recent.get(&history);
        match (self.store.lacking(history, now_ms), recent) {
            (Ok(Some(stored)), recent) if recent.is_none_or(|(_, at_ms)| at_ms < stored.at_ms) => {
                stored.tokens.map(|sent| Lacking { sent, ..Lacking::NOTHING })
            }
            (_, Some((lacking, _))) => lacking,
            (Ok(_), None) => Some(Lacking::NOTHING),
            (Err(_), None) => None,
        }
    }

    /// What is missing from the history that a request continues by its id; nothing if it sends its whole history.
    pub(super) fn before(&self, record: &Record, name: Option<&str>, now_ms: i64) -> Option<Lacking> {
        name.map_or(Some(Lacking::NOTHING), |name| self.lacking(&record.upstream, name, now_ms))
    }

    /// Records what is missing behind a request that came at this time: from its answer on, and from the history
    /// `grown` with it, from which so much was missing before.
    pub(super) fn keep(
        &mut self,
        record: &Record,
        grown: Option<(&str, Option<Lacking>)>,
        lacking: Option<Lacking>,
        at_ms: i64,
    ) {
        let is_missing = |lacking: Option<Lacking>| lacking.is_none_or(|lacking| lacking.sent > 0);
        let answer = record.answer.as_deref().map(|answer| (answer, Some(Lacking::NOTHING)));
        for (name, before) in [answer, grown].into_iter().flatten().filter(|(name, _)| !name.is_empty()) {
            let history = history(&record.upstream, name);
            let said = self.recent.get(&history).map_or(before, |(said, _)| said);
            let was_missing = is_missing(before) || is_missing(said);
            if lacking == Some(Lacking::NOTHING) && !was_missing {
                self.recent.remove(&history);
                continue;
            }
            self.recent.insert(history, (lacking, at_ms));
            if was_missing || is_missing(lacking) {
                let tokens = lacking.map(|lacking| lacking.sent);
                self.fresh.push(StoredLacking { history, tokens, at_ms });
            }
        }
    }

    /// Takes the entries to store since the last call.
    pub(super) fn fresh(&mut self) -> Vec<StoredLacking> {
        std::mem::take(&mut self.fresh)
    }
}

/// The entries to store for a request that was not measured. If it was edited, or continues a history from which
/// something may be missing, what is missing behind it is unknown.
pub(super) fn unseen(ended: &Ended) -> Vec<StoredLacking> {
    let record = &ended.record;
    let (name, is_edited) = (ended.continues.as_deref(), record.edits.were_sent());
    let is_taken = record.status.is_some_and(|status| (200..300).contains(&status));
    let answer = record.answer.as_deref().filter(|_| is_edited || name.is_some());
    let grown = name.filter(|_| ended.grows && is_edited);
    let left = [answer, grown].into_iter().flatten().filter(|name| is_taken && !name.is_empty());
    let at_ms = ended.at_ms;
    left.map(|name| StoredLacking { history: history(&record.upstream, name), tokens: None, at_ms }).collect()
}

/// The key of a history.
fn history(upstream: &str, name: &str) -> Digest {
    Digest::of(&[b"lacking\0", upstream.as_bytes(), b"\0", name.as_bytes()])
}
