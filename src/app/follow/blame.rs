//! Decides whether the gateway's edits or additions are to blame for a refusal, and remembers it.

use super::super::acceptance::TRIES;
use super::Follow;
use crate::protocol::{self, Answer, Refused};
use crate::server::Form;

impl Follow {
    /// Counts that the request was refused with its additions and answered without them. Returns whether the additions
    /// may be the reason; they are not if they were accepted before.
    pub(super) fn blame_additions(&self) -> bool {
        let refused = self.core.learned.acceptance.refuse_additions(self.upstream.name(), &self.facts);
        if refused == Some(TRIES) {
            tracing::warn!(
                upstream = self.upstream.name(),
                model = self.facts.model,
                "what is added to requests was refused, and requests without it were not: nothing is added from now on \
                 (`cache_key`, `include_usage`)"
            );
        }
        refused.is_some()
    }

    /// If an answer with a good status reports an error, counts it against the edits, once for each answer. Returns
    /// whether the edits may be the reason.
    pub(super) fn blame_edits_within(&mut self, answer: &Answer) -> bool {
        if answer.error.is_none() || self.is_original() || std::mem::replace(&mut self.is_error_counted, true)
        {
            return false;
        }
        let status = protocol::status_within(answer);
        self.core.learned.acceptance.count_error_within(self.upstream.name(), &self.facts, status)
    }

    /// Learns whether the edits were accepted, from an answer with a good status: it may still have ended in an
    /// error.
    pub(super) fn learn_acceptance(&mut self, answer: &Answer) {
        if !self.status.is_some_and(|status| status.is_success()) || self.is_original() || self.overflow {
            return;
        }
        if answer.error.is_none() {
            self.core.learned.acceptance.answered(self.upstream.name(), &self.facts, Form::Edited);
        } else if protocol::refused_within(answer) == Refused::Other {
            self.blame_edits_within(answer);
        }
    }
}
