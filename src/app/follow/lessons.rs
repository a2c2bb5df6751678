//! Passes on to the gateway's memories what a whole answer shows about provider, prompt and thread.

use std::sync::Arc;

use http::StatusCode;

use super::super::Core;
use super::super::meter::Figure;
use super::{Follow, MIN_FILL_TO_BLAME};
use crate::planner::Fate;
use crate::protocol::{self, Answer, Refused};
use crate::server::End;
use crate::store::Batch;
use crate::usage::OwnPrompt;

impl Follow {
    /// Passes on what the whole answer shows. The order matters twice: an overflow must be known before the edits or
    /// the provider's refusals are doubted, and [`Self::tell_lineage`] compares with the prompt sizes that were known
    /// before [`Self::learn_prompt_size`].
    pub(super) fn teach(&mut self, how: &End, answer: &Answer) {
        self.handle_overflow_within(answer);
        self.learn_acceptance(answer);
        self.doubt_refusals(self.status.is_some_and(|status| status.is_success()) && answer.error.is_none());
        self.tell_lineage(how, answer);
        let learned = &self.core.learned;
        let usage = answer.usage.as_ref().filter(|_| !self.is_original());
        learned.learn_frame_usage(&self.facts, self.status.is_some(), usage, || self.core.unix_ms());
        if let Some(place) = self.facts.place.as_ref().filter(|_| self.is_cut_off(answer, MIN_FILL_TO_BLAME))
        {
            learned.windows.record_full(place.head());
        }
        self.record_answer_ids(answer);
        self.learn_prompt_size(answer);
    }

    /// Handles an overflow that is reported inside an answer which was already passed on to the client, whose own retry
    /// will get more room. If the prompt seemed far from the window and the error states no limit that is believed, the
    /// beginnings of later answers are checked before they are passed on.
    fn handle_overflow_within(&mut self, answer: &Answer) {
        let is_answered = self.status.is_some_and(|status| status.is_success()) && !self.overflow;
        if !is_answered {
            return;
        }
        let Refused::Overflow { limit, .. } = protocol::refused_within(answer) else { return };
        self.overflow = true;
        if !self.recovers() {
            return;
        }
        let model = self.facts.model.as_deref();
        let is_believed = |limit| self.core.learn_window(&self.upstream, model, limit);
        if !limit.is_some_and(is_believed) && !self.is_nearly_full() {
            self.core.learned.windows.record_surprise(self.upstream.name(), model);
        }
    }

    /// Teaches the meter the real size of the prompt, as the answer reports it.
    fn learn_prompt_size(&self, answer: &Answer) {
        let Some(place) = &self.facts.place else { return };
        let meter = &self.core.learned.meter;
        let Some(usage) = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown) else {
            if answer.complete && self.status.is_some_and(|status| status.is_success()) {
                let shadow = self.core.shadow.iter().map(|shadow| &shadow.meter);
                shadow.chain([meter]).for_each(|meter| meter.learn_nothing(place.head()));
            }
            return;
        };
        let (model, messages) = (self.facts.model.as_deref(), self.facts.messages as usize);
        let reported = usage.own_tokens();
        if let Some(tokens) = reported {
            self.core.record_fitting_prompt(&self.upstream, model, tokens);
        }
        let Some(tokens) = reported.or_else(|| self.assumed_tokens(usage.asked_tokens())) else { return };
        let figure = Figure { messages, tokens, model: model.map(Arc::from) };
        // An assumed size says nothing about the bytes per token.
        let teaches_ratio = reported.is_some();
        let text = self.sent_text_bytes();
        meter.learn(place.head(), figure.clone(), text.filter(|_| teaches_ratio));
        let Some(shadow) = self.core.shadow.as_ref().filter(|_| !self.has_dropped_edits()) else { return };
        let Some(would) = self.facts.would else { return };
        let sent_bytes = self.sent_bytes();
        let planned_bytes = (sent_bytes + would.bytes).saturating_sub(self.start.rewritten_to);
        let planned_text = text_bytes(planned_bytes, would.encoded, false);
        let (sent, planned) = text.zip(planned_text).unwrap_or((sent_bytes, planned_bytes));
        // What the provider would have reported for the form that an observing gateway would have sent.
        let fewer_tokens = (sent as f64 - planned as f64) / meter.bytes_per_token(model);
        let tokens = (tokens as f64 - fewer_tokens).round().max(1.0) as u64;
        shadow.meter.learn(place.head(), Figure { tokens, ..figure }, planned_text.filter(|_| teaches_ratio));
    }

    /// Bytes of the body that was sent last, with the envelope.
    pub(super) fn sent_bytes(&self) -> u64 {
        if self.is_original() { self.start.received } else { self.start.sent }
    }

    /// Those of them that are text, if known.
    fn sent_text_bytes(&self) -> Option<u64> {
        let is_unspliced = self.has_dropped_edits() && self.facts.decided.splice.is_some();
        text_bytes(self.sent_bytes(), self.facts.encoded, is_unspliced)
    }

    /// The size in tokens to assume for the prompt if the provider reports only a `sum` over several calls, which is an
    /// upper bound. An estimate from an earlier figure is believed up to that bound. Any other estimate is not: the sum
    /// itself is assumed if it is not larger than the estimate. Otherwise returns `None`, and the next prompt is
    /// estimated without a figure.
    fn assumed_tokens(&self, sum: u64) -> Option<u64> {
        let level = self.facts.level?;
        let freed = self.facts.event.as_ref().map_or(0, |event| event.freed_bytes) as f64;
        let freed = freed / self.core.learned.meter.bytes_per_token(self.facts.model.as_deref());
        let estimate = level.prompt_tokens.saturating_sub(freed as u64);
        let is_measured = level.gauge.is_none_or(|gauge| gauge.margin == 0);
        (is_measured || sum <= estimate).then(|| sum.min(estimate))
    }

    /// Tells the lineage what became of the prompt: billed, read from the cache, or refused.
    fn tell_lineage(&self, how: &End, answer: &Answer) {
        let Some(place) = &self.facts.place else { return };
        // A request that was never sent is treated like a refused one: it is not billed, and nothing of it is cached.
        let is_unsent = matches!(how, End::Unsent(_));
        let fate = if is_unsent { Fate::Refused } else { fate(self.status, answer) };
        if let (Fate::Told { read, .. }, false) = (fate, self.is_original()) {
            let Core { lineage, learned, .. } = &*self.core;
            learned.learn_pause(lineage, self.upstream.name(), &self.facts, self.at_ms, read);
        }
        // A form without the gateway's marks says nothing about what they would have kept.
        let without_marks = if let Fate::Told { .. } = fate { Fate::Billed } else { fate };
        self.core.lineage.ended(place, if self.has_dropped_edits() { without_marks } else { fate });
        if let Some(shadow) = &self.core.shadow {
            shadow.lineage.ended(place, without_marks);
        }
    }

    /// Records the ids by which a client may continue this thread without sending its history again. They are known to
    /// all gateways on the same store.
    fn record_answer_ids(&self, answer: &Answer) {
        let (Some((root, thread)), Some(id)) = (self.facts.thread(), &answer.id) else { return };
        let lineage = &self.core.lineage;
        let mut boundaries = lineage.summed_up(root, &thread.id, &answer.seals);
        // The id is remembered in any case, but stored only if the provider keeps the history under it.
        let answered = lineage.answered(root, &thread.id, id);
        if self.facts.history.is_kept {
            boundaries.push(answered);
        }
        if !boundaries.is_empty() {
            let batch = Batch { boundaries, at_ms: self.at_ms, ..Batch::default() };
            self.core.tally.stored(self.core.store.later(batch));
        }
    }
}

/// What became of a request with this answer.
pub(super) fn fate(status: Option<StatusCode>, answer: &Answer) -> Fate {
    let is_refusal = status.is_some_and(|status| !status.is_success()) || answer.error.is_some();
    let Some(usage) = &answer.usage else {
        return if is_refusal { Fate::Refused } else { Fate::Unknown };
    };
    let (read, written) = (usage.tokens.cache_read, usage.tokens.cache_write());
    // Reads in a sum over several calls say nothing: each call reads what the call before has written.
    let is_sum = usage.own != OwnPrompt::All && read > 0;
    let is_unknown = usage.prompt_is_unknown && read == 0 && written == 0;
    if is_sum || is_unknown { Fate::Billed } else { Fate::Told { read, written } }
}

/// Bytes of text in a prompt of `sent` bytes, of which `encoded` are not text. `None` if `encoded` is unknown, or if
/// messages that a splice had left out were sent after all (`is_unspliced`): those were not searched for media.
fn text_bytes(sent: u64, encoded: Option<u64>, is_unspliced: bool) -> Option<u64> {
    encoded.filter(|_| !is_unspliced).map(|encoded| sent.saturating_sub(encoded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Framing;

    #[test]
    fn answers_with_usage_are_billed_and_errors_are_refusals() {
        let anthropic = protocol::named("anthropic").unwrap();
        let start =
            r#"data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let written =
            r#"data: {"type":"message_start","message":{"usage":{"cache_creation_input_tokens":9}}}"#;
        let read = r#"data: {"type":"message_start","message":{"usage":{"cache_creation_input_tokens":9,"cache_read_input_tokens":8}}}"#;
        let told = |read, written| Fate::Told { read, written };
        let both = format!("{start}\n\n{error}");
        for (status, body, expected) in [
            (Some(200), start, told(0, 0)),
            (Some(200), written, told(0, 9)),
            (Some(200), read, told(8, 9)),
            (Some(200), &*both, told(0, 0)),
            (Some(200), error, Fate::Refused),
            (Some(429), "", Fate::Refused),
            (Some(529), "busy", Fate::Refused),
            (Some(200), "", Fate::Unknown),
            (None, "", Fate::Unknown),
        ] {
            let mut reader = anthropic.answer(Framing::Events);
            reader.push(format!("{body}\n\n").as_bytes());
            let status = status.map(|status| StatusCode::from_u16(status).unwrap());
            assert_eq!(fate(status, &reader.finish()), expected, "{status:?} {body}");
        }
    }

    #[test]
    fn text_size_is_learned_only_if_pictures_are_known_and_no_splice_undone() {
        for (pictures, is_unspliced, expected) in [
            (Some(0), false, Some(9_000)),
            (Some(8_000), false, Some(1_000)),
            (Some(10_000), false, Some(0)),
            (Some(8_000), true, None),
            (None, false, None),
        ] {
            assert_eq!(text_bytes(9_000, pictures, is_unspliced), expected, "{pictures:?} {is_unspliced}");
        }
    }
}
