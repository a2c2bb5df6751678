//! What a whole answer tells about provider, prompt and thread, passed on to what remembers it.

use std::sync::Arc;

use http::StatusCode;

use super::super::Core;
use super::super::meter::Figure;
use super::{BLAME_FROM, Follow};
use crate::planner::Fate;
use crate::protocol::{self, Answer, Refused};
use crate::server::End;
use crate::store::Batch;
use crate::usage::Own;

impl Follow {
    /// Passes on what the whole answer tells. The order matters twice: whether the edits or the waiting are to blame
    /// depends on whether the prompt was too long, and [`Self::tell`] goes by the prompt sizes that were known before
    /// [`Self::learn`].
    pub(super) fn teach(&mut self, how: &End, answer: &Answer) {
        self.overflowed_within(answer);
        self.learn_acceptance(answer);
        self.doubt_waiting(self.status.is_some_and(|status| status.is_success()) && answer.error.is_none());
        self.tell(how, answer);
        let learned = &self.core.learned;
        let usage = answer.usage.as_ref().filter(|_| !self.is_original());
        learned.frame_told(&self.facts, self.status.is_some(), usage, self.core.unix_ms());
        if let Some(place) = self.facts.place.as_ref().filter(|_| self.is_cut_off(answer, BLAME_FROM)) {
            learned.windows.fill(place.head());
        }
        self.name_answer(answer);
        self.learn(answer);
    }

    /// Handles an overflow that is reported inside an answer which was already passed on to the client. If the prompt
    /// seemed to be far from the window and the error names no limit, the beginnings of later answers are checked
    /// first. The client's own retry will have more room.
    fn overflowed_within(&mut self, answer: &Answer) {
        let is_answered = self.status.is_some_and(|status| status.is_success()) && !self.overflow;
        let said = Some(answer).filter(|_| is_answered).map(protocol::refused_within);
        let Some(Refused::Overflow { limit, .. }) = said else { return };
        self.overflow = true;
        if !self.recovers() {
            return;
        }
        let model = self.facts.model.as_deref();
        match limit {
            Some(limit) => self.core.window_told(&self.upstream, model, limit),
            None if !self.is_nearly_full() => self.core.learned.windows.surprise(self.upstream.name(), model),
            None => {}
        }
    }

    /// Teaches the meter the real size of the prompt, as the answer reports it.
    fn learn(&self, answer: &Answer) {
        let known = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        let Some(place) = &self.facts.place else { return };
        let meter = &self.core.learned.meter;
        let Some(usage) = known else {
            if answer.complete && self.status.is_some_and(|status| status.is_success()) {
                let observed = self.core.shadow.iter().map(|shadow| &shadow.meter);
                observed.chain([meter]).for_each(|meter| meter.learn_nothing(place.head()));
            }
            return;
        };
        let sent = if self.is_original() { self.start.received } else { self.start.sent };
        let read = text(sent, self.facts.encoded, self.is_unedited() && self.facts.decided.splice.is_some());
        let (model, messages) = (self.facts.model.as_deref(), self.facts.messages as usize);
        let reported = usage.own_tokens();
        if let Some(tokens) = reported {
            self.core.prompt_fitted(&self.upstream, model, tokens);
        }
        let Some(tokens) = reported.or_else(|| self.supposed(usage.asked_tokens())) else { return };
        let figure = Figure { messages, tokens, model: model.map(Arc::from) };
        // An assumed size says nothing about the size of tokens.
        let if_reported = |bytes: Option<u64>| bytes.filter(|_| reported.is_some());
        meter.learn(place.head(), figure.clone(), if_reported(read));
        let observed = self.core.shadow.as_ref().zip(self.facts.would).filter(|_| !self.is_unedited());
        let Some((shadow, would)) = observed else { return };
        // What the provider would have reported for the form that an observing gateway would have sent.
        let planned = (sent + would.bytes).saturating_sub(self.start.rewritten_to);
        let planned_read = text(planned, would.encoded, false);
        let (now, then) = read.zip(planned_read).unwrap_or((sent, planned));
        let less = (now as f64 - then as f64) / meter.bytes_per_token(model);
        let tokens = (tokens as f64 - less).round().max(1.0) as u64;
        shadow.meter.learn(place.head(), Figure { tokens, ..figure }, if_reported(planned_read));
    }

    /// The size in tokens to assume for a prompt if the provider reports only a sum over several calls (`sum`). The sum
    /// is an upper bound; up to it, the estimate from an earlier figure is believed. `None` if there is no such
    /// estimate: the next prompt is then estimated without a figure.
    fn supposed(&self, sum: u64) -> Option<u64> {
        let level = self.facts.level?;
        let freed = self.facts.event.as_ref().map_or(0, |event| event.freed_bytes) as f64;
        let freed = freed / self.core.learned.meter.bytes_per_token(self.facts.model.as_deref());
        let estimate = level.prompt_tokens.saturating_sub(freed as u64);
        let is_measured = level.gauge.is_none_or(|gauge| gauge.margin == 0);
        (is_measured || sum <= estimate).then(|| sum.min(estimate))
    }

    /// Tells lineage what became of the prompt: billed, read from the cache, or refused.
    fn tell(&self, how: &End, answer: &Answer) {
        let Some(place) = &self.facts.place else { return };
        // A request that was never sent is treated like a refused one: it is not billed, and nothing of it is cached.
        let is_unsent = matches!(how, End::Unsent(_));
        let fate = if is_unsent { Fate::Refused } else { fate(self.status, answer) };
        if let (Fate::Told { read, .. }, false) = (fate, self.is_original()) {
            let Core { lineage, learned, .. } = &*self.core;
            learned.pause_told(lineage, self.upstream.name(), &self.facts, self.at_ms, read);
        }
        // A form that carried no marks says nothing about what marks would have kept.
        let plain = if let Fate::Told { .. } = fate { Fate::Billed } else { fate };
        self.core.lineage.ended(place, if self.is_unedited() { plain } else { fate });
        if let Some(shadow) = &self.core.shadow {
            shadow.lineage().ended(place, plain);
        }
    }

    /// Records the ids under which a client may continue this thread without sending its history, for this gateway
    /// and all that share its store.
    fn name_answer(&self, answer: &Answer) {
        let (Some((root, thread)), Some(id)) = (self.facts.thread(), &answer.id) else { return };
        let lineage = &self.core.lineage;
        let mut boundaries = lineage.summed_up(root, &thread.id, &answer.seals);
        // Remembered in any case, and stored if the provider keeps the history under this id.
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
    // If several calls are summed up, each reads what the one before has written, if anything is cached.
    let is_sum = usage.own != Own::All && read > 0;
    let is_unknown = usage.prompt_is_unknown && read == 0 && written == 0;
    if is_sum || is_unknown { Fate::Billed } else { Fate::Told { read, written } }
}

/// Bytes of text in a prompt of `sent` bytes, of which `encoded` are those of media. `None` if that is unknown, or if
/// messages that a splice had left out were sent after all (`is_unspliced`): those were not searched for media.
fn text(sent: u64, encoded: Option<u64>, is_unspliced: bool) -> Option<u64> {
    encoded.filter(|_| !is_unspliced).map(|encoded| sent.saturating_sub(encoded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Framing;

    #[test]
    fn what_has_figures_is_billed_and_errors_are_not() {
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
    fn what_was_not_looked_through_teaches_nothing() {
        for (pictures, is_unspliced, expected) in [
            (Some(0), false, Some(9_000)),
            (Some(8_000), false, Some(1_000)),
            (Some(10_000), false, Some(0)),
            (Some(8_000), true, None),
            (None, false, None),
        ] {
            assert_eq!(text(9_000, pictures, is_unspliced), expected, "{pictures:?} {is_unspliced}");
        }
    }
}
