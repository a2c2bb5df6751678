//! Learns which kinds of edits each upstream and model accepts, to judge refusals that do not say what is wrong with
//! the request.
//!
//! A server may fail on an edit that it does not know, however often the client retries; then the original must be
//! sent. What is learned is bounded and lost with the process: the next process learns it again.

use http::StatusCode;

use super::learned::PerModel;
use super::rewritten::RequestFacts;
use crate::conversation::{Chain, Hashed};
use crate::ledger::words::State;
use crate::lineage::Place;
use crate::plan::Kinds;
use crate::server::Form;
use crate::store::Recent;

/// How many refused histories are remembered.
const MAX_HISTORIES: u64 = 1024;
/// How many refusals of a history are put down to faults of the provider before its edits are suspected. SDKs try three
/// times, so their last attempt is judged. It is also the number of requests that were refused with additions and
/// answered without them after which nothing is added any more.
pub(super) const TOLERATED_REFUSALS: u32 = 2;

/// Statuses that never concern the edits: they are about the sender, the timing or the load. 529 is Anthropic's
/// `overloaded_error`.
const UNRELATED_STATUSES: [u16; 10] = [401, 402, 407, 408, 409, 425, 429, 503, 504, 529];

/// What upstreams are known to accept, by model.
pub(super) struct Acceptance {
    by_model: PerModel<Compatibility>,
    /// The histories whose edited form was refused without an explanation.
    refused: Recent<Chain, Refusals, Hashed>,
}

/// What is known about a history whose edited form was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusals {
    /// The edited form was refused this many times.
    Edited(u32),
    /// Its original was refused too, so the edits are not the reason.
    Original,
}

/// What became of the requests that were sent with additions.
#[derive(Debug, Clone, Copy)]
enum Additions {
    /// One was answered.
    Taken,
    /// This many were refused with the additions and answered without them; none was answered with them.
    Refused(u32),
}

impl Default for Refusals {
    fn default() -> Self {
        Self::Edited(0)
    }
}

impl Default for Additions {
    fn default() -> Self {
        Self::Refused(0)
    }
}

/// What is known of a model at an upstream.
#[derive(Debug, Clone, Copy, Default)]
struct Compatibility {
    /// Kinds of edits in requests that were answered.
    taken: Kinds,
    /// Kinds of edits in requests that were refused while their originals were answered.
    refused: Kinds,
    additions: Additions,
}

impl Acceptance {
    pub(super) fn new() -> Self {
        Self { by_model: PerModel::new(), refused: Recent::of_entries(MAX_HISTORIES) }
    }

    /// Records that a request was answered with its additions.
    pub(super) fn record_accepted_additions(&self, upstream: &str, facts: &RequestFacts) {
        self.by_model.update(upstream, model(facts), |known| known.additions = Additions::Taken);
    }

    /// Records that a request was refused with its additions and answered without them. Returns how often that has
    /// happened so far, or `None` if additions were accepted before, so that they cannot be the reason.
    pub(super) fn count_refused_additions(&self, upstream: &str, facts: &RequestFacts) -> Option<u32> {
        self.by_model.update(upstream, model(facts), |known| match &mut known.additions {
            Additions::Taken => None,
            Additions::Refused(times) => {
                *times += 1;
                Some(*times)
            }
        })
    }

    /// Whether additions are accepted as far as is known. The first refusals do not count, as they may have had another
    /// reason.
    pub(super) fn takes_additions(&self, upstream: &str, facts: &RequestFacts) -> bool {
        match self.known(upstream, facts).additions {
            Additions::Taken => true,
            Additions::Refused(times) => times < TOLERATED_REFUSALS,
        }
    }

    /// Records that the original of an edited request was refused as well: the edits were not the reason.
    pub(super) fn acquit(&self, facts: &RequestFacts) {
        if let Some(place) = &facts.place {
            self.refused.insert(place.head(), Refusals::Original);
        }
    }

    /// Records that a request was answered in this form, if it was edited. [`Form::Original`] means that its edited
    /// form was refused before.
    pub(super) fn record_answer(&self, upstream: &str, facts: &RequestFacts, form: Form) {
        if facts.state == State::Edited {
            self.by_model.update(upstream, model(facts), |known| {
                let kinds = match form {
                    Form::Original => &mut known.refused,
                    Form::Edited => &mut known.taken,
                };
                *kinds = kinds.with(facts.decided.kinds);
            });
        }
    }

    /// Counts an unexplained refusal of a request, and returns whether its edits may be the reason. They are suspected
    /// only if they are of a kind that was never accepted, and either the client keeps retrying or the model has
    /// refused that kind before.
    pub(super) fn count_refusal(&self, upstream: &str, facts: &RequestFacts, status: StatusCode) -> bool {
        let (Some(place), State::Edited) = (&facts.place, facts.state) else { return false };
        if UNRELATED_STATUSES.contains(&status.as_u16()) {
            return false;
        }
        let known = self.known(upstream, facts);
        let unproven = facts.decided.kinds.without(known.taken);
        if unproven.is_empty() {
            return false;
        }
        let has_refused_kind = unproven.without(known.refused) != unproven;
        self.refused.update(&place.head(), |refusals| match refusals {
            Refusals::Edited(times) => {
                *times += 1;
                *times > TOLERATED_REFUSALS || has_refused_kind
            }
            Refusals::Original => false,
        })
    }

    /// Counts an error that an answer with a good status reports, and returns whether the edits may be the reason.
    /// `status` is the one that the error itself states. If it means a bad request, the edits are suspected at once. If
    /// it is unknown, they are not: the server may be at fault or overloaded.
    pub(super) fn count_error_within(
        &self,
        upstream: &str,
        facts: &RequestFacts,
        status: Option<u16>,
    ) -> bool {
        let (Some(place), State::Edited) = (&facts.place, facts.state) else { return false };
        if matches!(status, Some(400 | 422)) {
            return self.refused.update(&place.head(), |refusals| match refusals {
                Refusals::Edited(times) => {
                    *times = TOLERATED_REFUSALS;
                    true
                }
                Refusals::Original => false,
            });
        }
        let status = status.filter(|status| (400..=500).contains(status));
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        status.is_some_and(|status| self.count_refusal(upstream, facts, status))
    }

    /// Whether the edited form of a request's history was refused before, and its original was not.
    pub(super) fn was_refused(&self, facts: &RequestFacts) -> bool {
        let head = facts.place.as_ref().filter(|_| facts.state == State::Edited).map(Place::head);
        head.and_then(|head| self.refused.get(&head)).is_some_and(|known| known != Refusals::Original)
    }

    fn known(&self, upstream: &str, facts: &RequestFacts) -> Compatibility {
        self.by_model.get(upstream, model(facts))
    }
}

fn model(facts: &RequestFacts) -> &str {
    facts.model.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;
    use crate::app::rewritten::InForce;
    use crate::lineage::Relation;
    use crate::plan::{Op, Plan};
    use crate::store::Thread;

    /// An edited request with a history of its own.
    fn facts(history: u32) -> RequestFacts {
        let root = Chain::root("x", &history.to_le_bytes());
        let thread = Thread {
            id: "t".to_owned(),
            conversation: "c".to_owned(),
            session: None,
            parent: None,
            head: root,
            observe: false,
            refused: None,
            at_ms: 0,
        };
        let place = Place {
            root,
            cache: root,
            thread,
            relation: Relation::New,
            sent: 0,
            left_out: None,
            chains: vec![root],
            answered: 0,
            event: 0,
            ends: Vec::new(),
            applied: Arc::default(),
            splice: None,
        };
        let kinds = Plan { ops: vec![Op::Drop { first: 0, end: 1 }] }.kinds();
        let decided = InForce { kinds, ..InForce::default() };
        RequestFacts { place: Some(place), state: State::Edited, decided, ..RequestFacts::default() }
    }

    #[test]
    fn what_several_threads_learn_at_once_is_all_kept() {
        const TIMES: u32 = 20_000;
        let (known, facts) = (Acceptance::new(), RequestFacts::default());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        known.count_refused_additions("a", &facts);
                    }
                });
            }
        });
        assert_eq!(known.count_refused_additions("a", &facts), Some(2 * TIMES + 1));

        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                for history in 0..TIMES {
                    start.wait();
                    known.acquit(&self::facts(history));
                    start.wait();
                }
            });
            for history in 0..TIMES {
                let facts = self::facts(history);
                start.wait();
                known.count_refusal("a", &facts, StatusCode::INTERNAL_SERVER_ERROR);
                start.wait();
                assert!(!known.was_refused(&facts), "the edits were acquitted: {history}");
            }
        });
    }
}
