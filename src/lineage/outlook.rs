//! Predicts, from what became of a sender's requests, whether it pays when one of its threads is the first to write
//! something to the provider's cache.

use super::memory::{CacheRecord, RequestKey};
use super::{Lineage, Place};
use crate::conversation::{Chain, Digest};
use crate::planner::{Debt, Expected, Fate, Found, Outlook};

/// After a rest, the number of misses that lead to the next rest. It is 1 because each of many short conversations is
/// another try.
const TRIES: u32 = 1;

/// The key of the cache that an upstream keeps for a sender, whose empty history is `root`, and a model. Each model has
/// a cache of its own. A model is identified by the name in the request. Two names of the same model therefore learn
/// separately, which costs a few stakes once; a key that two models share would be wrong with every request.
pub fn cache(root: Chain, upstream: &str, model: Option<&str>) -> Chain {
    Chain(Digest::of(&[&root.0.0, upstream.as_bytes(), b"\0", model.unwrap_or_default().as_bytes()]))
}

impl Lineage {
    /// What to expect when a thread of a sender is the first to write something to the provider's cache.
    pub fn outlook(&self, cache: Chain) -> Outlook {
        let findings = self.memory.of_cache(cache, |known| known.findings);
        if findings.rests() {
            Outlook::SeldomKept
        } else if findings.is_kept() {
            Outlook::Kept
        } else {
            Outlook::Fair
        }
    }

    /// What the threads of a sender have lost by marking their histories in this cache.
    pub fn debt(&self, cache: Chain) -> Debt {
        self.memory.of_cache(cache, |known| known.debt)
    }

    /// Takes back what a request would have lost that does not leave, because it is planned again.
    pub fn withdraw_stake(&self, place: &Place) {
        self.memory.settle(place.request_key(), Debt::refused);
    }

    /// Records what became of a request that has ended.
    pub fn ended(&self, place: &Place, fate: Fate) {
        let settled = match fate {
            // Nothing was there, although writes are reported.
            Fate::Told { read: 0, written: 1.. } => Debt::unread,
            // Not every server reports usage, so an unknown fate mostly is an answer.
            Fate::Billed | Fate::Told { .. } | Fate::Unknown => Debt::billed,
            Fate::Refused => Debt::refused,
        };
        self.memory.settle(place.request_key(), settled);
        if let Fate::Told { read, written } = fate
            && let Some(expected) = self.memory.expected.remove(&place.request_key())
        {
            let found = expected.found(expected.missing(read, written), read);
            self.memory.caches.update(&place.cache, |CacheRecord { findings, .. }| {
                // A miss during a rest says nothing new: what was written before the rest was judged when it began.
                if found != Found::Nothing || !findings.rests() {
                    *findings = findings.found(found, TRIES);
                }
            });
        }
        self.memory.fates.insert(place.head(), fate);
    }

    /// Records what a request that is about to leave should read from the cache; `None` if nothing. It replaces what an
    /// earlier attempt of the request should have read.
    pub(super) fn expect(&self, place: &Place, expected: Option<Expected>) {
        if self.memory.of_cache(place.cache, |known| known.findings.rests()) {
            self.memory.caches.update(&place.cache, |CacheRecord { findings, .. }| {
                *findings = findings.rested().unwrap_or(*findings);
            });
        }
        match expected {
            Some(expected) => self.memory.expected.insert(place.request_key(), expected),
            None => drop(self.memory.expected.remove(&place.request_key())),
        }
    }
}

impl Place {
    pub(super) fn request_key(&self) -> RequestKey {
        RequestKey { head: self.head(), cache: self.cache }
    }
}
