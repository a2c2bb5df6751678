//! Decides whether the gateway's edits or additions are to blame for a refusal, and records that.

use http::StatusCode;

use super::super::acceptance::TOLERATED_REFUSALS;
use super::Follow;
use crate::protocol::{self, Answer, Framing, Refused};
use crate::server::{Form, Remedy};

impl Follow {
    /// Records what the form that was sent last says about edits and additions, given whether it was accepted.
    pub(super) fn judge_form(&self, is_accepted: bool) {
        let (acceptance, upstream) = (&self.core.learned.acceptance, self.upstream.name());
        if !is_accepted {
            if self.has_dropped_edits() {
                acceptance.acquit(&self.facts);
            }
            return;
        }
        if !self.is_original() {
            if self.adds() {
                acceptance.record_accepted_additions(upstream, &self.facts);
            }
            return;
        }
        // Doing without the additions costs nothing, so they are blamed before the edits.
        let are_additions_blamed = self.adds() && self.blame_additions();
        if !are_additions_blamed && self.has_dropped_edits() {
            acceptance.record_answer(upstream, &self.facts, Form::Original);
        }
    }

    /// Has the original sent, and keeps what the provider says about the edited form.
    pub(super) fn send_original(&mut self, status: StatusCode, body: &[u8]) -> Remedy {
        let mut reader = self.protocol.answer(Framing::Document);
        reader.push(body);
        let error = reader.finish().error.map(|text| self.recorded(text));
        let error = error.unwrap_or_else(|| format!("status {}", status.as_u16()));
        self.refusal = Some(format!("the edited form was refused: {error}"));
        Remedy::SendOriginal
    }

    /// Leaves the thread alone from now on: it continues with the original that was sent. What the provider said is in
    /// the record and not logged, since some repeat the prompt in it.
    pub(super) fn set_thread_aside(&self) {
        let Some(place) = &self.facts.place else { return };
        tracing::warn!(
            conversation = place.thread.conversation,
            thread = place.thread.id,
            "an edited request was refused, its original was not: this thread is no longer edited"
        );
        self.core.tally.stored(self.core.lineage.set_aside(place, self.at_ms));
    }

    /// Counts that the request was refused with its additions and answered without them. Returns whether the additions
    /// may be the reason; they are not if they were accepted before.
    fn blame_additions(&self) -> bool {
        let refused = self.core.learned.acceptance.count_refused_additions(self.upstream.name(), &self.facts);
        if refused == Some(TOLERATED_REFUSALS) {
            tracing::warn!(
                upstream = self.upstream.name(),
                model = self.facts.model,
                "what is added to requests was refused, and requests without it were not: nothing is added from now on \
                 (`cache_key`, `include_usage`)"
            );
        }
        refused.is_some()
    }

    /// If an answer with a good status reports an error, counts that error against the edits, once for each answer.
    /// Returns whether the edits may be the reason.
    pub(super) fn blame_edits_within(&mut self, answer: &Answer) -> bool {
        if answer.error.is_none() || self.is_original() || std::mem::replace(&mut self.is_error_counted, true)
        {
            return false;
        }
        let status = protocol::status_within(answer);
        self.core.learned.acceptance.count_error_within(self.upstream.name(), &self.facts, status)
    }

    /// Learns from a whole answer with a good status whether the edits were accepted: it may still report an error.
    pub(super) fn learn_acceptance(&mut self, answer: &Answer) {
        if !self.status.is_some_and(|status| status.is_success()) || self.is_original() || self.overflow {
            return;
        }
        if answer.error.is_none() {
            self.core.learned.acceptance.record_answer(self.upstream.name(), &self.facts, Form::Edited);
        } else if protocol::refused_within(answer) == Refused::Other {
            self.blame_edits_within(answer);
        }
    }
}
