//! What the histories lack that providers hold: what was cut of one request is missing from the prompts of all that go on
//! from it without sending it again.
//!
//! In memory, and bounded: of a history that was begun before a restart, or is one of too many, nothing is known to be
//! missing.

use super::measure::Measured;
use crate::ledger::Record;
use crate::store::Recent;

/// Histories of which something is missing: those that were gone on with last.
const HISTORIES: u64 = 4096;

/// Tokens that are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    /// Of what came, from what was sent.
    pub(super) sent: u64,
    /// Of what was sent, from what an observing gateway would have sent.
    pub(super) planned: u64,
}

impl Lacking {
    pub(super) const NOTHING: Self = Self { sent: 0, planned: 0 };
}

/// What is missing from histories, by upstream and by the name that a request goes on from: an answer's, or the history's
/// own.
pub(super) struct Histories(Recent<(String, String), Option<Lacking>>);

impl Default for Histories {
    fn default() -> Self {
        Self(Recent::of_entries(HISTORIES))
    }
}

impl Histories {
    /// What is missing from the history with this name; `None`: that cannot be told.
    pub(super) fn lacking(&self, upstream: &str, name: &str) -> Option<Lacking> {
        self.0.get(&(upstream.to_owned(), name.to_owned())).unwrap_or(Some(Lacking::NOTHING))
    }

    /// What is missing from the history that a request goes on from; nothing, if it sends all of it.
    pub(super) fn before(&self, record: &Record, measured: &Measured) -> Option<Lacking> {
        let name = measured.continues.as_deref();
        name.map_or(Some(Lacking::NOTHING), |name| self.lacking(&record.upstream, name))
    }

    /// So much is missing from the history that a request has left: from its answer on, and from the one that has `grown`
    /// with it.
    pub(super) fn keep(&self, record: &Record, grown: Option<&str>, lacking: Option<Lacking>) {
        for name in [record.answer.as_deref(), grown].into_iter().flatten().filter(|name| !name.is_empty()) {
            let key = (record.upstream.clone(), name.to_owned());
            if lacking == Some(Lacking::NOTHING) {
                self.0.remove(&key);
            } else {
                self.0.insert(key, lacking);
            }
        }
    }
}
