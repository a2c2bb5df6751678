//! What has become of requests, and what that tells of what their sender's other threads are the first to write to the
//! provider's cache.

use super::{Lineage, Place};
use crate::conversation::Chain;
use crate::planner::{Expected, Fate, Outlook};

/// First stakes of a sender's threads that may be lost. Those of agents that work side by side are made at the same time and
/// won; those of a batch of short talks are not.
const MOST_WAGERS: u32 = 3;
/// A sender that has rested tries once: each of many short talks is another try.
const TRIES: u32 = 1;

impl Lineage {
    /// What is to be expected of what a thread of a sender's is the first to write to the provider's cache: too many of the
    /// first stakes were for nothing, or what was to be read was not there.
    pub fn outlook(&self, root: Chain) -> Outlook {
        if self.memory.findings(root).rests() {
            Outlook::SeldomKept
        } else if self.memory.wagers(root) >= MOST_WAGERS {
            Outlook::SeldomGoesOn
        } else {
            Outlook::Fair
        }
    }

    /// A request with this history has ended, and this has become of it.
    pub fn ended(&self, head: Chain, fate: Fate) {
        if let Fate::Told { read, written } = fate
            && let Some((root, expected)) = self.memory.take_expected(head)
        {
            let found = expected.found(expected.missing(read, written), read);
            self.memory.find(root, self.memory.findings(root).found(found, TRIES));
        }
        self.memory.end(head, fate);
    }

    /// A request leaves that is to read this, whatever it was to read when it was made before.
    pub(super) fn expect(&self, place: &Place, expected: Option<Expected>) {
        if let Some(rested) = self.memory.findings(place.root).rested() {
            self.memory.find(place.root, rested);
        }
        match expected {
            Some(expected) => self.memory.expect(place.head(), (place.root, expected)),
            None => drop(self.memory.take_expected(place.head())),
        }
    }
}
