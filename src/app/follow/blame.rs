//! What was to blame for a refusal, as far as the answer tells.

use super::super::acceptance::TRIES;
use super::Follow;
use crate::protocol::{self, Answer, Refused};
use crate::server::Form;

impl Follow {
    /// Whether the additions to the request may be why it was refused, as it was answered without them.
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

    /// Whether the edits may be why an answer with a good status reports an error. Each answer is counted once.
    pub(super) fn is_blamed_within(&mut self, answer: &Answer) -> bool {
        if answer.error.is_none() || self.is_original() || std::mem::replace(&mut self.is_doubted, true) {
            return false;
        }
        let status = protocol::status_within(answer);
        self.core.acceptance.doubts_within(self.upstream.name(), &self.facts, status)
    }

    /// Learns whether the edits were accepted, from an answer with a good status: it may still have ended in an
    /// error.
    pub(super) fn learn_acceptance(&mut self, answer: &Answer) {
        if !self.status.is_some_and(|status| status.is_success()) || self.is_original() || self.overflow {
            return;
        }
        if answer.error.is_none() {
            self.core.acceptance.answered(self.upstream.name(), &self.facts, Form::Edited);
        } else if protocol::refused_within(answer) == Refused::Other {
            self.is_blamed_within(answer);
        }
    }
}
