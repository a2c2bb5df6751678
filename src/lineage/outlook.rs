//! What has become of requests, and what that tells of what their sender's other threads are the first to write to the
//! provider's cache.

use super::{Lineage, Place};
use crate::conversation::{Chain, Digest};
use crate::planner::{Expected, Fate, Found, Outlook};

/// First stakes of a sender's threads that may be lost. Those of agents that work side by side are made at the same time and
/// won; those of a batch of short talks are not.
const MOST_WAGERS: u32 = 3;
/// A sender that has rested tries once: each of many short talks is another try.
const TRIES: u32 = 1;

/// What names the cache that an upstream keeps for a sender, with this empty history, and a model. Each model has one of its
/// own. It is taken by the name that is asked for: names of which nobody can tell that they are the same model's learn by
/// themselves, which costs a few stakes once, while one for two models would be wrong with every request.
pub fn cache(root: Chain, upstream: &str, model: Option<&str>) -> Chain {
    root.then(Digest::of(&[upstream.as_bytes(), b"\0", model.unwrap_or_default().as_bytes()]))
}

impl Lineage {
    /// What is to be expected of what a thread of a sender's is the first to write to the provider's cache: too many of the
    /// first stakes were for nothing, or what was to be read was not there.
    pub fn outlook(&self, cache: Chain) -> Outlook {
        let findings = self.memory.findings(cache);
        if findings.rests() {
            Outlook::SeldomKept
        } else if self.memory.wagers(cache) >= MOST_WAGERS {
            Outlook::SeldomGoesOn
        } else if findings.is_kept() {
            Outlook::Kept
        } else {
            Outlook::Fair
        }
    }

    /// A request has ended, and this has become of it.
    pub fn ended(&self, place: &Place, fate: Fate) {
        let cache = place.cache;
        if let Fate::Told { read, written } = fate
            && let Some(expected) = self.memory.take_expected(place.asks())
        {
            let found = expected.found(expected.missing(read, written), read);
            let findings = self.memory.findings(cache);
            // What was written before the rest began has been judged with that.
            if found != Found::Nothing || !findings.rests() {
                self.memory.find(cache, findings.found(found, TRIES));
            }
        }
        self.memory.end(place.head(), fate);
    }

    /// A request leaves that is to read this, whatever it was to read when it was made before.
    pub(super) fn expect(&self, place: &Place, expected: Option<Expected>) {
        if let Some(rested) = self.memory.findings(place.cache).rested() {
            self.memory.find(place.cache, rested);
        }
        match expected {
            Some(expected) => self.memory.expect(place.asks(), expected),
            None => drop(self.memory.take_expected(place.asks())),
        }
    }
}

impl Place {
    /// What names the request: others may ask the same history of another cache at the same time.
    fn asks(&self) -> Chain {
        self.head().then(self.cache.0)
    }
}
