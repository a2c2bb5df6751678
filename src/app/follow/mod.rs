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
use super::rewritten::RequestFacts;
use crate::ledger::words::State;
use crate::protocol::{self, Answer, AnswerReader, Cause, Framing, Protocol, Refused, Stop};
use crate::server::{End, Exchange, Form, Remedy};
use crate::upstream::Upstream;
use crate::usage::{Usage, Vendor};

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

/// The first byte of a body that is not white space.
fn first_byte(body: &[u8]) -> Option<u8> {
    body.trim_ascii_start().first().copied()
}

/// How the body of an answer is framed, if that is known.
pub(super) fn framing(headers: &HeaderMap) -> Option<Framing> {
    Framing::of_type(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
}
