//! Follows one request from when it leaves: collects what its record needs while the answer passes, decides whether an
//! answer is a refusal that the gateway can remedy, and hands the record over at the end.

mod blame;
mod record;
mod start;

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, StatusCode, header};

use super::Core;
use super::books::Ended;
use super::meter::Figure;
use super::rewritten::RequestFacts;
use crate::ledger::words::State;
use crate::planner::Fate;
use crate::protocol::{self, Answer, AnswerReader, Cause, Framing, Protocol, Refused, Stop};
use crate::server::{End, Exchange, Form, Remedy};
use crate::store::Batch;
use crate::upstream::Upstream;
use crate::usage::{Own, Usage, Vendor};

pub(super) use start::{Attempt, Start};

/// The share of the usable window that a prompt must fill for the beginning of its answer to be checked before any of
/// it is passed on.
const CHECK_FROM: f64 = 0.7;
/// The same in tokens of the prompt, if the window is not known.
const CHECK_FROM_TOKENS: u64 = 8192;
/// The share of the window that a prompt must fill for a truncated answer to be blamed on the window.
const BLAME_FROM: f64 = 0.8;
/// The share of the window that prompt and answer must fill together for the request to be sent again at once.
const RESEND_FROM: f64 = 0.97;

/// The form of a request that was sent last, or was at least begun to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentForm {
    Nothing,
    /// The request as it was prepared.
    Prepared,
    /// The original, after the edits or additions were refused.
    Original,
    /// The original, which was refused too, by an error in an answer with a good status.
    RefusedOriginal,
}

/// Follows one exchange.
pub(super) struct Follow {
    core: Arc<Core>,
    protocol: &'static dyn Protocol,
    upstream: Arc<Upstream>,
    /// Who bills it.
    vendor: Option<Vendor>,
    facts: Box<RequestFacts>,
    start: Start,
    /// When it left, in milliseconds since 1970.
    at_ms: i64,
    status: Option<StatusCode>,
    reader: Option<Box<dyn AnswerReader>>,
    head_at: Option<Instant>,
    body_at: Option<Instant>,
    sent_form: SentForm,
    /// Whether the provider refused it because the prompt is too long.
    overflow: bool,
    /// Whether an error inside its answer was counted against the edits.
    is_error_counted: bool,
}

impl Follow {
    pub(super) fn new(
        core: Arc<Core>,
        protocol: &'static dyn Protocol,
        upstream: Arc<Upstream>,
        facts: Box<RequestFacts>,
        start: Start,
    ) -> Self {
        let at_ms = (core.now_ms)();
        Self {
            core,
            protocol,
            vendor: Vendor::of_host(upstream.base_url().domain()),
            upstream,
            facts,
            start,
            at_ms,
            status: None,
            reader: None,
            head_at: None,
            body_at: None,
            sent_form: SentForm::Nothing,
            overflow: false,
            is_error_counted: false,
        }
    }

    /// Whether it was edited or added to, was refused, and the original was sent in its place.
    const fn is_original(&self) -> bool {
        matches!(self.sent_form, SentForm::Original | SentForm::RefusedOriginal)
    }

    /// Whether it was edited, was refused, and its original was sent.
    fn is_unedited(&self) -> bool {
        self.is_original() && self.facts.state == State::Edited
    }

    /// Whether anything was added to it beside its messages.
    const fn adds(&self) -> bool {
        !self.start.added.is_empty()
    }

    /// Whether it was refused with the additions, and sent without them.
    fn is_bare(&self) -> bool {
        self.is_original() && self.adds()
    }

    /// The answer as far as it came, with usage that is read as this request needs it.
    fn finish(&mut self) -> Answer {
        let mut answer = self.reader.as_mut().map(|reader| reader.finish()).unwrap_or_default();
        answer.usage = answer.usage.map(|usage| usage.at(self.start.head.uri.path()));
        if self.facts.cache.kept_long && !self.is_original() {
            answer.usage = answer.usage.map(Usage::kept_for_an_hour);
        }
        if !answer.complete {
            // The output of an answer that broke off is a lower bound, whatever is known of it.
            answer.usage = answer.usage.map(Usage::at_least);
        }
        answer
    }

    /// Passes on what the whole answer tells. The order matters twice: whether the edits or the waiting are to blame
    /// depends on whether the prompt was too long, and [`Self::tell`] goes by the prompt sizes that were known before
    /// [`Self::learn`].
    fn teach(&mut self, how: &End, answer: &Answer) {
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

    /// Whether more room could be made and the request sent again. A request whose place in its thread is unknown
    /// left before that was found, and it may be found now.
    fn recovers(&self) -> bool {
        self.core.recovers() && self.facts.place.as_ref().is_none_or(|place| !place.thread.observe)
    }

    /// Whether the prompt is near the window, or large if the window is not known.
    fn is_nearly_full(&self) -> bool {
        let Some(level) = self.facts.level else { return false };
        match level.gauge {
            Some(gauge) => gauge.utilisation() >= CHECK_FROM,
            None => level.prompt_tokens >= CHECK_FROM_TOKENS,
        }
    }

    /// Whether the window was found to be smaller than assumed, or may be again, by an unknown amount.
    fn may_be_less(&self) -> bool {
        self.core.learned.windows.surprises(self.upstream.name(), self.facts.model.as_deref(), self.at_ms)
    }

    /// Whether an answer was truncated because the window was full: most of the window is the prompt, and both
    /// together fill the share `full` of it.
    fn is_cut_off(&self, answer: &Answer, full: f64) -> bool {
        match answer.stop.as_ref().map(Stop::cause) {
            Some(Cause::Window) => return true,
            Some(Cause::Length) => {}
            Some(Cause::Other) | None => return false,
        }
        let Some(gauge) = self.facts.level.and_then(|level| level.gauge) else { return false };
        let Some(usage) = &answer.usage else { return false };
        // A sum over several calls says nothing about this.
        let Some(input) = usage.own_tokens().map(|tokens| tokens as f64) else { return false };
        let (output, window) = (usage.tokens.output as f64, gauge.window as f64);
        input >= window * BLAME_FROM && input + output >= window * full
    }

    /// If a prompt that may be too long was sent all the same, to see whether the provider refuses it as too long, any
    /// other failure may mean just that. Later requests to this upstream do not rely on such a refusal; otherwise every
    /// retry would fail in the same way.
    fn doubt_waiting(&self, is_answered: bool) {
        let waits = self.facts.level.is_some_and(|level| level.waits);
        if waits && !is_answered && !self.overflow {
            self.core.learned.windows.refuse_unclearly(self.upstream.name());
        }
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

    /// What to do about a successful answer of which `body` has come: a whole document, or some of a stream.
    fn remedy(&mut self, body: &[u8], is_document: bool) -> Remedy {
        // This reader also recognises a stream of events.
        let protocol = self.protocol;
        let answer = LazyCell::new(|| {
            let mut reader = protocol.answer(Framing::Document);
            reader.push(body);
            reader.finish()
        });
        if self.is_original() {
            self.sent_form =
                if answer.error.is_some() { SentForm::RefusedOriginal } else { SentForm::Original };
            return Remedy::Deliver;
        }
        match protocol::refused(200, body) {
            Refused::Malformed => return Remedy::SendOriginal,
            Refused::Overflow { .. } => {}
            _ if is_document && self.is_cut_off(&answer, RESEND_FROM) => {}
            Refused::Other if self.blame_edits_within(&answer) => return Remedy::SendOriginal,
            Refused::Answer | Refused::Unanswered | Refused::Other => return Remedy::Deliver,
        }
        self.overflowed();
        Remedy::Again
    }

    /// Records that the prompt was too long.
    fn overflowed(&mut self) {
        self.overflow = true;
        if let Some(place) = &self.facts.place {
            self.core.learned.windows.refuse(place.head(), self.start.rewritten_to);
        }
    }
}

impl Exchange for Follow {
    fn sent(&mut self, form: Form) {
        if self.is_original() {
            return;
        }
        let differs = self.facts.state == State::Edited || self.adds();
        self.sent_form =
            if form == Form::Original && differs { SentForm::Original } else { SentForm::Prepared };
    }

    /// Has the original sent if the edits may be the reason for the refusal: they must not cost the user a turn. The
    /// exception is a prompt that is too long, alone or with its answer: the original is even longer.
    fn rejected(&mut self, status: StatusCode, _: &HeaderMap, body: &[u8]) -> Remedy {
        let is_malformed = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        match protocol::refused(status.as_u16(), body) {
            Refused::Overflow { .. } => {
                self.overflowed();
                if self.recovers() { Remedy::Again } else { Remedy::Deliver }
            }
            Refused::Malformed => Remedy::SendOriginal,
            Refused::Other => {
                let acceptance = &self.core.learned.acceptance;
                let is_suspected =
                    is_malformed || acceptance.count_refusal(self.upstream.name(), &self.facts, status);
                if is_suspected { Remedy::SendOriginal } else { Remedy::Deliver }
            }
            Refused::Answer | Refused::Unanswered => Remedy::Deliver,
        }
    }

    /// A model with bound reasoning refuses an original that differs from what it was sent before. The client then
    /// gets the first refusal, unless the original is too long.
    fn rejected_again(&mut self, status: StatusCode, body: &[u8]) -> Form {
        let is_too_long = matches!(protocol::refused(status.as_u16(), body), Refused::Overflow { .. });
        if self.facts.is_bound() && !is_too_long { Form::Edited } else { Form::Original }
    }

    /// Holds an answer back only if the window may be full, if a splice has just brought messages next to each other
    /// that were apart before, or if edits are suspected.
    fn holds(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let is_doubtful =
            || self.recovers() && (self.is_nearly_full() || self.facts.decided.spliced || self.may_be_less());
        status == StatusCode::OK
            && (self.is_original() || is_doubtful() || self.core.learned.acceptance.was_refused(&self.facts))
            && framing(headers).is_some_and(|framing| framing != Framing::Frames)
    }

    /// A document is checked as a whole, a stream once an event tells how it continues.
    fn check_beginning(&mut self, body: &[u8]) -> Option<Remedy> {
        let is_document = first_byte(body) == Some(b'{');
        (!is_document && protocol::has_opened(body)).then(|| self.remedy(body, false))
    }

    fn check_whole(&mut self, body: &[u8]) -> Remedy {
        self.remedy(body, matches!(first_byte(body), Some(b'{' | b'[')))
    }

    fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.doubt_waiting(status.is_success());
        self.head_at = Some(Instant::now());
        self.reader = Some(self.protocol.answer(framing(headers).unwrap_or(Framing::Document)));
        let job = self.start.job.take().filter(|_| status.is_success());
        if let (Some(job), Some(summaries)) = (job, &self.core.summaries) {
            summaries.begin(*job);
        }
        // An answer with a good status that reports an error means that the request was not accepted.
        let is_taken = status.is_success() && self.sent_form != SentForm::RefusedOriginal && !self.overflow;
        let is_kept = is_taken && !self.is_original();
        self.core.learned.frame_answered(&self.facts, is_kept, self.core.unix_ms());
        // Losing the additions costs nothing, so they are blamed before the edits. The original was sent all the
        // same, and the thread continues with it.
        let is_blamed = is_taken && self.is_bare() && self.blame_additions();
        let acceptance = &self.core.learned.acceptance;
        if is_taken && !is_blamed {
            if self.adds() && !self.is_bare() {
                acceptance.take_additions(self.upstream.name(), &self.facts);
            }
            if self.is_unedited() {
                acceptance.answered(self.upstream.name(), &self.facts, Form::Original);
            }
        } else if self.is_unedited() && !is_taken {
            acceptance.acquit(&self.facts);
        }
        if self.is_unedited()
            && is_taken
            && let Some(place) = &self.facts.place
        {
            tracing::warn!(
                thread = place.thread.id,
                "an edited request was refused, its original was not: the thread is left alone from now on"
            );
            self.core.tally.stored(self.core.lineage.set_aside(place, self.at_ms));
        }
    }

    fn is_over(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_over())
    }

    fn data(&mut self, decoded: &[u8]) {
        self.body_at.get_or_insert_with(Instant::now);
        if let Some(reader) = &mut self.reader {
            reader.push(decoded);
        }
    }

    /// Learns from the answer first: the books state the window that is known by then.
    fn end(mut self: Box<Self>, how: End) {
        let answer = self.finish();
        self.teach(&how, &answer);
        let record = self.record(&how, &answer);
        let Self { core, upstream, vendor, facts, start, at_ms, head_at, .. } = *self;
        core.books.ended(Ended {
            record,
            at_ms,
            sent_at: start.prepared_at,
            answered_at: head_at,
            usage: answer.usage,
            vendor,
            window: core.learned.windows.of(upstream.name(), facts.model.as_deref(), at_ms),
            slot: start.slot,
            continues: facts.history.continues,
            grows: facts.history.grows,
            unbound: answer.reasoning_unbound,
            asked_again: start.attempt.is_paid,
        });
    }
}

/// What became of a request with this answer.
fn fate(status: Option<StatusCode>, answer: &Answer) -> Fate {
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

/// The first byte of a body that is not white space.
fn first_byte(body: &[u8]) -> Option<u8> {
    body.trim_ascii_start().first().copied()
}

/// How the body of an answer is framed, if that is known.
pub(super) fn framing(headers: &HeaderMap) -> Option<Framing> {
    Framing::of_type(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
