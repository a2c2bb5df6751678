//! What a request was refused for, as far as its answer tells.

use super::super::acceptance::TRIES;
use super::Follow;
use crate::protocol::{self, Answer, Refused};

impl Follow {
    /// Whether what is added to it may be why it was refused, as it was answered without.
    pub(super) fn is_refused_for_additions(&self) -> bool {
        let refused = self.core.acceptance.refuse_additions(self.upstream.name(), &self.facts);
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

    /// Whether what was edited may be why the answer, which began well, says that the request failed. That is counted once.
    pub(super) fn is_blamed_within(&mut self, answer: &Answer) -> bool {
        if answer.error.is_none() || self.is_original || std::mem::replace(&mut self.is_doubted, true) {
            return false;
        }
        let status = protocol::status_within(answer);
        self.core.acceptance.doubts_within(self.upstream.name(), &self.facts, status)
    }

    /// What became of the edits in an answer that began well: it may have ended otherwise.
    pub(super) fn learn_acceptance(&mut self, answer: &Answer) {
        if !self.status.is_some_and(|status| status.is_success()) || self.is_original || self.overflow {
            return;
        }
        if answer.error.is_none() {
            self.core.acceptance.answered(self.upstream.name(), &self.facts, false);
        } else if protocol::refused_within(answer) == Refused::Other {
            self.is_blamed_within(answer);
        }
    }
}
