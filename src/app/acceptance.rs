//! Which changes providers take, where a refusal does not say what is wrong with a request.
//!
//! A server may fail on what it does not know, and go on doing so however often the client tries. Bounded, and lost with
//! the process: it is found out again.

use http::StatusCode;

use super::models::Models;
use super::rewritten::RequestFacts;
use crate::conversation::{Chain, Hashed};
use crate::ledger::words::State;
use crate::lineage::Place;
use crate::plan::Kinds;
use crate::store::Recent;

/// Histories that are remembered to have been refused.
const REFUSED: u64 = 1024;
/// How often the request of a history is refused before what was edited is in doubt: a provider has faults of its own, and
/// SDKs try three times.
pub(super) const TRIES: u32 = 2;

/// Refusals that are never for what was edited, but about the sender, the time, or how much there is to do; 529 is
/// Anthropic's `overloaded_error`.
const NEVER: [u16; 10] = [401, 402, 407, 408, 409, 425, 429, 503, 504, 529];

/// What models of upstreams have taken so far.
pub(super) struct Acceptance {
    /// By upstream and model.
    by_model: Models<(String, String), Changes>,
    /// How often each was; `None`: so was its original.
    refused: Recent<Chain, Option<u32>, Hashed>,
}

/// What became of requests that something was added to.
#[derive(Debug, Clone, Copy)]
enum Additions {
    /// One was answered.
    Taken,
    /// So many were answered only without it.
    Refused(u32),
}

impl Default for Additions {
    fn default() -> Self {
        Self::Refused(0)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Changes {
    /// Kinds that an answered request had.
    taken: Kinds,
    /// Kinds that a request had whose original alone was answered.
    refused: Kinds,
    additions: Additions,
}

impl Acceptance {
    pub(super) fn new() -> Self {
        Self { by_model: Models::new(), refused: Recent::of_entries(REFUSED) }
    }

    /// A request was answered with what is added to it.
    pub(super) fn take_additions(&self, upstream: &str, facts: &RequestFacts) {
        self.by_model.learn(&key(upstream, facts), |changes| changes.additions = Additions::Taken);
    }

    /// A request was answered without what is added to it, and not with it. How often that has been; `None`: it was taken
    /// before, so that it is not the reason.
    pub(super) fn refuse_additions(&self, upstream: &str, facts: &RequestFacts) -> Option<u32> {
        let refused = match self.known(upstream, facts).additions {
            Additions::Taken => return None,
            Additions::Refused(times) => times + 1,
        };
        let learn = |changes: &mut Changes| changes.additions = Additions::Refused(refused);
        self.by_model.learn(&key(upstream, facts), learn);
        Some(refused)
    }

    /// Whether what is added to requests is taken, as far as that is known: a refusal may have been for something else.
    pub(super) fn takes_additions(&self, upstream: &str, facts: &RequestFacts) -> bool {
        match self.known(upstream, facts).additions {
            Additions::Taken => true,
            Additions::Refused(times) => times < TRIES,
        }
    }

    /// The original of an edited request was refused as well: it was not the editing.
    pub(super) fn acquit(&self, facts: &RequestFacts) {
        if let Some(place) = &facts.place {
            self.refused.insert(place.head(), None);
        }
    }

    /// A request was answered, if it was edited; `original`: only when it came as the client sent it.
    pub(super) fn answered(&self, upstream: &str, facts: &RequestFacts, original: bool) {
        if facts.state == State::Edited {
            self.by_model.learn(&key(upstream, facts), |changes| {
                let kinds = if original { &mut changes.refused } else { &mut changes.taken };
                *kinds = kinds.with(facts.kinds);
            });
        }
    }

    /// An edited request was refused, and nothing says why: whether what was edited may be the reason. That takes a kind
    /// of change that was never taken, and a client that goes on trying or a model that has refused such a one before.
    pub(super) fn doubts(&self, upstream: &str, facts: &RequestFacts, status: StatusCode) -> bool {
        let (Some(place), State::Edited) = (&facts.place, facts.state) else { return false };
        if NEVER.contains(&status.as_u16()) {
            return false;
        }
        let known = self.known(upstream, facts);
        let new = facts.kinds.without(known.taken);
        if new.is_empty() {
            return false;
        }
        let Some(before) = self.refused.get(&place.head()).unwrap_or(Some(0)) else { return false };
        self.refused.insert(place.head(), Some(before + 1));
        before >= TRIES || new.without(known.refused) != new
    }

    /// The same of one whose answer began well and says that the request failed, with this status by its own word: one of a
    /// bad request is sure, and where nothing is known of it the server may be at fault, or overloaded.
    pub(super) fn doubts_within(&self, upstream: &str, facts: &RequestFacts, status: Option<u16>) -> bool {
        let (Some(place), State::Edited) = (&facts.place, facts.state) else { return false };
        if matches!(status, Some(400 | 422)) {
            let is_acquitted = self.refused.get(&place.head()) == Some(None);
            if !is_acquitted {
                self.refused.insert(place.head(), Some(TRIES));
            }
            return !is_acquitted;
        }
        let status = status.filter(|status| (400..=500).contains(status));
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        status.is_some_and(|status| self.doubts(upstream, facts, status))
    }

    /// Whether what was edited of a history is in doubt: it was refused before.
    pub(super) fn is_in_doubt(&self, facts: &RequestFacts) -> bool {
        let head = facts.place.as_ref().filter(|_| facts.state == State::Edited).map(Place::head);
        head.and_then(|head| self.refused.get(&head)).flatten().is_some()
    }

    fn known(&self, upstream: &str, facts: &RequestFacts) -> Changes {
        self.by_model.read(&key(upstream, facts), |changes| *changes).unwrap_or_default()
    }
}

fn key(upstream: &str, facts: &RequestFacts) -> (String, String) {
    (upstream.to_owned(), facts.model.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::models::MODELS;
    use super::*;
    use crate::plan::{Op, Plan};

    #[test]
    fn models_are_learned_however_many_there_were() {
        let acceptance = Acceptance::new();
        let kinds = Plan { ops: vec![Op::Drop { first: 0, end: 1 }] }.kinds();
        let facts = |model: usize| RequestFacts {
            state: State::Edited,
            kinds,
            model: Some(model.to_string()),
            ..RequestFacts::default()
        };
        for model in 0..=MODELS {
            acceptance.answered("a", &facts(model), false);
        }
        let takes = |model| !acceptance.known("a", &facts(model)).taken.is_empty();
        assert_eq!([0, 1, MODELS, MODELS + 1].map(takes), [false, true, true, false]);
    }
}
