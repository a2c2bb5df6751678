//! Follows one request from when it leaves: collects what its record needs while the answer passes, decides whether an
//! answer is a refusal that the gateway can remedy, and hands the record over at the end.

mod blame;
mod lessons;
mod record;
mod start;

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, StatusCode, header};

use super::Core;
use super::books::Ended;
use super::enveloped::Enveloped;
use super::rewritten::RequestFacts;
use crate::ledger::words::State;
use crate::protocol::{self, Answer, AnswerReader, Cause, Framing, Protocol, Refused, Stop};
use crate::server::{End, Exchange, Form, Remedy};
use crate::upstream::Upstream;
use crate::usage::{Usage, Vendor};

pub(super) use start::{Attempt, Start};

/// The beginning of an answer is checked before any of it is passed on if the prompt fills at least this share of the
/// usable window.
const MIN_FILL_TO_CHECK: f64 = 0.7;
/// The prompt size in tokens from which the beginning is checked if the window is not known.
const MIN_TOKENS_TO_CHECK: u64 = 8192;
/// A truncated answer is blamed on the window only if its prompt fills at least this share of the window.
const MIN_FILL_TO_BLAME: f64 = 0.8;
/// A request with a truncated answer is sent again at once only if both together fill at least this share of the
/// window.
const MIN_FILL_TO_RESEND: f64 = 0.97;

/// The form in which a request was last sent, or in which sending it was at least begun.
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
    /// The vendor whose prices apply.
    vendor: Option<Vendor>,
    facts: Box<RequestFacts>,
    start: Start,
    /// When the request left, in milliseconds since 1970.
    at_ms: i64,
    status: Option<StatusCode>,
    reader: Option<Box<dyn AnswerReader>>,
    head_at: Option<Instant>,
    body_at: Option<Instant>,
    sent_form: SentForm,
    /// Whether the provider refused the request because its prompt is too long, or its answer was discarded because the
    /// window was full.
    overflow: bool,
    /// Whether an error inside the answer was counted against the edits.
    is_error_counted: bool,
    /// What the provider said when it refused the edited form, without credentials.
    refusal: Option<String>,
}

impl Follow {
    pub(super) fn new(
        core: &Arc<Core>,
        enveloped: &Enveloped,
        facts: Box<RequestFacts>,
        start: Start,
        at_ms: i64,
    ) -> Self {
        let upstream = &enveloped.inbound.upstream;
        Self {
            core: Arc::clone(core),
            protocol: enveloped.protocol,
            vendor: enveloped.vendor,
            upstream: Arc::clone(upstream),
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
            refusal: None,
        }
    }

    /// Whether the request was edited or added to, was refused, and the original was sent instead.
    const fn is_original(&self) -> bool {
        matches!(self.sent_form, SentForm::Original | SentForm::RefusedOriginal)
    }

    /// Whether the request was edited, was refused, and was sent without the edits.
    fn has_dropped_edits(&self) -> bool {
        self.is_original() && self.facts.state == State::Edited
    }

    /// Whether anything was added besides the messages.
    const fn adds(&self) -> bool {
        !self.start.added.is_empty()
    }

    /// Whether the request was added to, was refused, and was sent without the additions.
    fn has_dropped_additions(&self) -> bool {
        self.is_original() && self.adds()
    }

    /// The answer as far as it came. Its usage is adapted to how this request was sent.
    fn finish(&mut self) -> Answer {
        let mut answer = self.reader.as_mut().map(|reader| reader.finish()).unwrap_or_default();
        answer.usage = answer.usage.map(|usage| usage.at(self.start.head.uri.path()));
        if self.facts.cache.kept_long && !self.is_original() {
            answer.usage = answer.usage.map(Usage::kept_for_an_hour);
        }
        if self.facts.completion_window.is_some() {
            answer.usage = answer.usage.map(Usage::without_price);
        }
        if !answer.complete {
            // The answer broke off: what is known of its output is a lower bound.
            answer.usage = answer.usage.map(Usage::at_least);
        }
        answer
    }

    /// Whether the request may be sent again with more room. If its place is unknown, it left before the place was
    /// found; the next attempt may find it.
    fn recovers(&self) -> bool {
        self.core.recovers() && self.facts.place.as_ref().is_none_or(|place| !place.thread.observe)
    }

    /// Whether the prompt nearly fills the window, or is large if the window is not known.
    fn is_nearly_full(&self) -> bool {
        let Some(level) = self.facts.level else { return false };
        match level.gauge {
            Some(gauge) => gauge.utilisation() >= MIN_FILL_TO_CHECK,
            None => level.prompt_tokens >= MIN_TOKENS_TO_CHECK,
        }
    }

    /// Whether the window may be smaller than assumed, by an unknown amount: a prompt that seemed far from it was too
    /// long, or the window that the provider stated is no longer believed.
    fn window_may_be_smaller(&self) -> bool {
        self.core.learned.windows.may_surprise(self.upstream.name(), self.facts.model.as_deref(), self.at_ms)
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
        input >= window * MIN_FILL_TO_BLAME && input + output >= window * full
    }

    /// A prompt that may be too long is sent all the same if the provider is expected to refuse it as too long
    /// (`level.waits`). If it fails in any other way, that failure may mean the same. Later requests to this upstream
    /// then no longer rely on such a refusal; otherwise every retry would fail in the same way.
    fn doubt_refusals(&self, is_answered: bool) {
        let relied_on_refusal = self.facts.level.is_some_and(|level| level.waits);
        if relied_on_refusal && !is_answered && !self.overflow {
            self.core.learned.windows.record_unclear_failure(self.upstream.name());
        }
    }

    /// What to do about an answer with a good status of which `body` has come: a whole document (`is_document`), or the
    /// beginning of a stream.
    fn remedy(&mut self, body: &[u8], is_document: bool) -> Remedy {
        // The reader of documents also recognises a stream of events.
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
            Refused::Malformed => return self.send_original(StatusCode::OK, body),
            Refused::Overflow { .. } => self.overflow = true,
            // It is an answer, and is billed as one if it is delivered after all.
            _ if is_document && self.is_cut_off(&answer, MIN_FILL_TO_RESEND) => {}
            Refused::Other if self.blame_edits_within(&answer) => {
                return self.send_original(StatusCode::OK, body);
            }
            Refused::Answer | Refused::Unanswered | Refused::Other => return Remedy::Deliver,
        }
        self.record_too_long();
        Remedy::Again
    }

    /// Records that there was no room in the window for the prompt, or for the prompt and its answer.
    fn record_too_long(&self) {
        if let Some(place) = &self.facts.place {
            self.core.learned.windows.record_refused(place.head(), self.start.rewritten_to);
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

    /// Has the original sent if the edits may be the reason for the refusal: they must not cost the user a turn. If the
    /// prompt is too long, alone or with its answer, the original is not sent, as it is even longer.
    fn rejected(&mut self, status: StatusCode, _: &HeaderMap, body: &[u8]) -> Remedy {
        let is_malformed = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        match protocol::refused(status.as_u16(), body) {
            Refused::Overflow { .. } => {
                self.overflow = true;
                self.record_too_long();
                if self.recovers() { Remedy::Again } else { Remedy::Deliver }
            }
            Refused::Malformed => self.send_original(status, body),
            Refused::Other => {
                let acceptance = &self.core.learned.acceptance;
                let is_suspected =
                    is_malformed || acceptance.count_refusal(self.upstream.name(), &self.facts, status);
                if is_suspected { self.send_original(status, body) } else { Remedy::Deliver }
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

    /// Holds an answer back only if the window may be full, if a splice was made with this request, so that messages
    /// that were apart before are now neighbours, or if the edits are suspected.
    fn holds(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let is_doubtful = || {
            self.recovers()
                && (self.is_nearly_full() || self.facts.decided.spliced || self.window_may_be_smaller())
        };
        status == StatusCode::OK
            && (self.is_original() || is_doubtful() || self.core.learned.acceptance.was_refused(&self.facts))
            && framing(headers).is_some_and(|framing| framing != Framing::Frames)
    }

    /// Checks a stream as soon as one of its events tells whether it is an answer. A document is checked as a whole.
    fn check_beginning(&mut self, body: &[u8]) -> Option<Remedy> {
        let is_document = first_byte(body) == Some(b'{');
        (!is_document && protocol::has_opened(body)).then(|| self.remedy(body, false))
    }

    fn check_whole(&mut self, body: &[u8]) -> Remedy {
        self.remedy(body, matches!(first_byte(body), Some(b'{' | b'[')))
    }

    fn discarded(&mut self) {
        self.overflow = true;
    }

    fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.doubt_refusals(status.is_success());
        self.head_at = Some(Instant::now());
        self.reader = Some(self.protocol.answer(framing(headers).unwrap_or(Framing::Document)));
        let job = self.start.job.take().filter(|_| status.is_success());
        if let (Some(job), Some(summaries)) = (job, &self.core.summaries) {
            summaries.begin(*job);
        }
        // An answer with a good status that reports an error means that the request was not accepted.
        let is_accepted =
            status.is_success() && self.sent_form != SentForm::RefusedOriginal && !self.overflow;
        let is_frame_kept = is_accepted && !self.is_original();
        self.core.learned.record_frame_answer(&self.facts, is_frame_kept, || self.core.unix_ms());
        self.judge_form(is_accepted);
        if is_accepted && self.has_dropped_edits() {
            self.set_thread_aside();
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

/// The first byte of a body that is not white space.
fn first_byte(body: &[u8]) -> Option<u8> {
    body.trim_ascii_start().first().copied()
}

/// How the body of an answer is framed, if that is known.
pub(super) fn framing(headers: &HeaderMap) -> Option<Framing> {
    Framing::of_type(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
}
