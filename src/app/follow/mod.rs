//! What is written down of a request: collects it while the answer passes, books it at the end.

mod blame;
mod record;

use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::Core;
use super::books::{Ended, Slot};
use super::budget::Reached;
use super::rewritten::RequestFacts;
use crate::ledger::words::State;
use crate::planner::Fate;
use crate::protocol::{self, Answer, AnswerReader, Cause, Framing, Protocol, Refused, Stop};
use crate::server::{End, Exchange, Form, Opening, Remedy};
use crate::store::Batch;
use crate::summarizer::Job;
use crate::upstream::Upstream;
use crate::usage::{Own, Usage, Vendor};

/// The share of the usable window from which on the beginning of an answer is looked at before it goes on.
const NEARLY: f64 = 0.7;
/// The same in tokens of the prompt, where the window is not known.
const LARGE: u64 = 8192;
/// The share of the window from which on an answer that was cut off is taken to have met its end.
const FILLED: f64 = 0.8;
/// The share that prompt and answer must fill together for the answer to be asked for again at once.
const FULL: f64 = 0.97;

/// What is known when a request leaves.
pub(super) struct Start {
    /// The id of its record.
    pub(super) id: String,
    pub(super) head: Arc<Parts>,
    pub(super) received_at: Instant,
    pub(super) prepared_at: Instant,
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Bytes that it was rewritten to, without what is added to any form of it.
    pub(super) rewritten_to: u64,
    /// The members that are added to it beside its messages, or added to.
    pub(super) added: Vec<&'static str>,
    /// A limit that is reached, or nearly.
    pub(super) budget: Option<Reached>,
    pub(super) attempt: Attempt,
}

/// Which of the attempts at a request it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attempt {
    /// How often it was sent before.
    pub(super) before: u32,
    /// The one before was answered, and so is paid for.
    pub(super) is_paid: bool,
}

/// Follows one exchange.
pub(super) struct Follow {
    core: Arc<Core>,
    protocol: &'static dyn Protocol,
    upstream: Arc<Upstream>,
    /// Who bills it.
    vendor: Option<Vendor>,
    facts: Box<RequestFacts>,
    slot: Option<Slot>,
    /// What is to be begun when this request is answered.
    job: Option<Box<Job>>,
    start: Start,
    at_ms: i64,
    status: Option<StatusCode>,
    reader: Option<Box<dyn AnswerReader>>,
    head_at: Option<Instant>,
    body_at: Option<Instant>,
    /// It has left, or tried to.
    has_left: bool,
    /// It was edited or added to, and refused: its original was sent.
    is_original: bool,
    /// The original was refused too, in the beginning of an answer that began well.
    is_refused_whole: bool,
    /// The provider has refused it because its prompt is too long.
    overflow: bool,
    /// An error within its answer was counted against what was edited.
    is_doubted: bool,
}

impl Follow {
    pub(super) fn new(
        core: Arc<Core>,
        protocol: &'static dyn Protocol,
        upstream: Arc<Upstream>,
        facts: Box<RequestFacts>,
        slot: Option<Slot>,
        start: Start,
        job: Option<Box<Job>>,
    ) -> Self {
        let at_ms = (core.now_ms)();
        Self {
            core,
            protocol,
            vendor: Vendor::of_host(upstream.base_url().domain()),
            upstream,
            facts,
            slot,
            job,
            start,
            at_ms,
            status: None,
            reader: None,
            head_at: None,
            body_at: None,
            has_left: false,
            is_original: false,
            is_refused_whole: false,
            overflow: false,
            is_doubted: false,
        }
    }

    /// It was edited and refused, and its original was sent.
    fn is_unedited(&self) -> bool {
        self.is_original && self.facts.state == State::Edited
    }

    /// Something is added to it beside its messages.
    const fn adds(&self) -> bool {
        !self.start.added.is_empty()
    }

    /// It was refused with what is added to it, and sent without that.
    fn is_bare(&self) -> bool {
        self.is_original && self.adds()
    }

    /// Teaches the meter how large the prompt really was.
    fn learn(&self, answer: &Answer) {
        let known = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        let Some(place) = &self.facts.place else { return };
        let Some(usage) = known else {
            if answer.complete && self.status.is_some_and(|status| status.is_success()) {
                let observed = self.core.shadow.iter().map(|shadow| &shadow.meter);
                observed.chain([&self.core.meter]).for_each(|meter| meter.learn_nothing(place.head()));
            }
            return;
        };
        let sent = if self.is_original { self.start.received } else { self.start.sent };
        let read = text(sent, self.facts.encoded, self.is_unedited() && self.facts.splice.is_some());
        let (model, messages) = (self.facts.model.as_deref(), self.facts.messages as usize);
        let told = usage.own_tokens();
        if let Some(tokens) = told {
            self.core.prompt_fitted(&self.upstream, model, tokens);
        }
        let Some(tokens) = told.or_else(|| self.supposed(usage.asked_tokens())) else { return };
        // What is supposed says nothing of the size of tokens.
        let told = |read: Option<u64>| read.filter(|_| told.is_some());
        self.core.meter.learn(place.head(), (model, messages), told(read), tokens);
        let observed = self.core.shadow.as_ref().zip(self.facts.would).filter(|_| !self.is_unedited());
        let Some((shadow, would)) = observed else { return };
        // What the provider would have said of the form that would have been sent.
        let planned = (sent + would.bytes).saturating_sub(self.start.rewritten_to);
        let planned_read = text(planned, would.encoded, false);
        let (now, then) = read.zip(planned_read).unwrap_or((sent, planned));
        let less = (now as f64 - then as f64) / self.core.meter.bytes_per_token(model);
        let tokens = (tokens as f64 - less).round().max(1.0) as u64;
        shadow.meter.learn(place.head(), (model, messages), told(planned_read), tokens);
    }

    /// What the prompt is taken for where only a sum over several calls is told, which it is no longer than: for what it was
    /// estimated by an earlier figure. `None`: there was none, and it is estimated anew.
    fn supposed(&self, sum: u64) -> Option<u64> {
        let level = self.facts.level?;
        let freed = self.facts.event.as_ref().map_or(0, |event| event.freed_bytes) as f64;
        let freed = freed / self.core.meter.bytes_per_token(self.facts.model.as_deref());
        let estimate = level.prompt_tokens.saturating_sub(freed as u64);
        let is_measured = level.gauge.is_none_or(|gauge| gauge.margin == 0);
        (is_measured || sum <= estimate).then(|| sum.min(estimate))
    }

    /// Tells what has become of it.
    fn tell(&self, how: &End, answer: &Answer) {
        let Some(place) = &self.facts.place else { return };
        // What never was sent is billed as little as what was refused, and as little of it is kept.
        let is_unsent = matches!(how, End::Unsent(_));
        let fate = if is_unsent { Fate::Refused } else { fate(self.status, answer) };
        if let (Fate::Told { read, .. }, false) = (fate, self.is_original) {
            self.core.pause_told(self.upstream.name(), &self.facts, self.at_ms, read);
        }
        // What was not marked tells nothing of what marks would have kept.
        let plain = if let Fate::Told { .. } = fate { Fate::Billed } else { fate };
        self.core.lineage.ended(place, if self.is_unedited() { plain } else { fate });
        if let Some(shadow) = &self.core.shadow {
            shadow.lineage().ended(place, plain);
        }
    }

    /// Whether room could be made, and the request sent again. Where its place is not known it left before that was found,
    /// and may be found now.
    fn recovers(&self) -> bool {
        self.core.recovers() && self.facts.place.as_ref().is_none_or(|place| !place.thread.observe)
    }

    /// Whether the prompt is near the window, or large where the window is not known.
    fn is_nearly_full(&self) -> bool {
        let Some(level) = self.facts.level else { return false };
        match level.gauge {
            Some(gauge) => gauge.utilisation() >= NEARLY,
            None => level.prompt_tokens >= LARGE,
        }
    }

    /// Whether the window has turned out to be smaller than it is taken for, nobody knows by how much.
    fn may_be_less(&self) -> bool {
        self.core.windows.surprises(self.upstream.name(), self.facts.model.as_deref(), self.at_ms)
    }

    /// Whether an answer has ended because the window was full: most of it is the prompt, and both together
    /// fill the share `full`.
    fn is_cut_off(&self, answer: &Answer, full: f64) -> bool {
        match answer.stop.as_ref().map(Stop::cause) {
            Some(Cause::Window) => return true,
            Some(Cause::Length) => {}
            Some(Cause::Other) | None => return false,
        }
        let Some(gauge) = self.facts.level.and_then(|level| level.gauge) else { return false };
        let Some(usage) = &answer.usage else { return false };
        // A sum over several calls says nothing of this.
        let Some(input) = usage.own_tokens().map(|tokens| tokens as f64) else { return false };
        let (output, window) = (usage.tokens.output as f64, gauge.window as f64);
        input >= window * FILLED && input + output >= window * full
    }

    /// Where its prompt may have been too long and was let go as it is, to be told so, any other failure may mean that too:
    /// of this upstream nothing is waited for any more, or all that the client tries again would end alike.
    fn doubt_waiting(&self, is_answered: bool) {
        let waits = self.facts.level.is_some_and(|level| level.waits);
        if waits && !is_answered && !self.overflow {
            self.core.windows.refuse_unclearly(self.upstream.name());
        }
    }

    /// Its prompt was too long, as an answer says that went on to the client. Where it was taken to be far from the window,
    /// and what fits is not told, the next ones are looked at: it will have room when it is made again.
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
            None if !self.is_nearly_full() => self.core.windows.surprise(self.upstream.name(), model),
            None => {}
        }
    }

    /// Has the thread be found by what a client may go on with in place of its history: by this gateway, and by all on its
    /// store.
    fn name_answer(&self, answer: &Answer) {
        let (Some((root, thread)), Some(id)) = (self.facts.thread(), &answer.id) else { return };
        let lineage = &self.core.lineage;
        let mut boundaries = lineage.summed_up(root, &thread.id, &answer.seals);
        boundaries.extend(Some(lineage.answered(root, &thread.id, id)).filter(|_| self.facts.is_kept));
        if !boundaries.is_empty() {
            let batch = Batch { boundaries, at_ms: self.at_ms, ..Batch::default() };
            self.core.tally.stored(self.core.store.later(batch));
        }
    }

    /// Its prompt was too long.
    fn overflowed(&mut self) {
        self.overflow = true;
        if let Some(place) = &self.facts.place {
            self.core.windows.refuse(place.head(), self.start.rewritten_to);
        }
    }
}

impl Exchange for Follow {
    fn sent(&mut self, form: Form) {
        self.has_left = true;
        self.is_original |= form == Form::Original && (self.facts.state == State::Edited || self.adds());
    }

    /// An edit that the provider refuses must not cost the user a turn, unless the prompt is too long, alone or with
    /// the answer: then the original is even longer.
    fn rejected(&mut self, status: StatusCode, _: &HeaderMap, body: &[u8]) -> Remedy {
        let malformed = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        match protocol::refused(status.as_u16(), body) {
            Refused::Overflow { .. } => {
                self.overflowed();
                if self.recovers() { Remedy::Again } else { Remedy::Deliver }
            }
            Refused::Malformed => Remedy::SendOriginal,
            Refused::Other
                if malformed || self.core.acceptance.doubts(self.upstream.name(), &self.facts, status) =>
            {
                Remedy::SendOriginal
            }
            Refused::Answer | Refused::Unanswered | Refused::Other => Remedy::Deliver,
        }
    }

    /// A model whose reasoning is bound refuses an original that is not what it was sent before: the first reason is the
    /// client's then, unless its prompt is too long.
    fn rejected_again(&mut self, status: StatusCode, body: &[u8]) -> Form {
        let is_too_long = matches!(protocol::refused(status.as_u16(), body), Refused::Overflow { .. });
        if self.facts.is_bound() && !is_too_long { Form::Edited } else { Form::Original }
    }

    /// Only where the window may be full, other messages follow each other now, or the edited form was refused: nothing is
    /// held back without need.
    fn holds(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let is_doubtful =
            || self.recovers() && (self.is_nearly_full() || self.facts.spliced || self.may_be_less());
        status == StatusCode::OK
            && (self.is_original || is_doubtful() || self.core.acceptance.is_in_doubt(&self.facts))
            && framing(headers).is_some_and(|framing| framing != Framing::Frames)
    }

    fn opened(&mut self, body: &[u8], whole: bool) -> Opening {
        let first = body.trim_ascii_start().first();
        if !whole && (first == Some(&b'{') || !protocol::has_opened(body)) {
            return Opening::Hold;
        }
        let read = || {
            let mut reader = self.protocol.answer(Framing::Document);
            reader.push(body);
            reader.finish()
        };
        if self.is_original {
            self.is_refused_whole = read().error.is_some();
            return Opening::Deliver;
        }
        let is_full = || whole && matches!(first, Some(b'{' | b'[')) && self.is_cut_off(&read(), FULL);
        match protocol::refused(200, body) {
            Refused::Malformed => return Opening::SendOriginal,
            Refused::Overflow { .. } => {}
            _ if is_full() => {}
            Refused::Other if self.is_blamed_within(&read()) => return Opening::SendOriginal,
            Refused::Answer | Refused::Unanswered | Refused::Other => return Opening::Deliver,
        }
        self.overflowed();
        Opening::Again
    }

    fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.doubt_waiting(status.is_success());
        self.head_at = Some(Instant::now());
        self.reader = Some(self.protocol.answer(framing(headers).unwrap_or(Framing::Document)));
        let job = self.job.take().filter(|_| status.is_success());
        if let (Some(job), Some(summaries)) = (job, &self.core.summaries) {
            summaries.begin(*job);
        }
        // What is refused in an answer that began well was not taken.
        let is_taken = status.is_success() && !self.is_refused_whole && !self.overflow;
        let is_kept = is_taken && !self.is_original;
        self.core.frame_answered(&self.facts, is_kept);
        // Of what was edited and what was added, the second is no loss: it is blamed first. What was sent is the original
        // all the same, and its thread goes on so.
        let is_blamed = is_taken && self.is_bare() && self.is_refused_for_additions();
        if is_taken && !is_blamed {
            if self.adds() && !self.is_bare() {
                self.core.acceptance.take_additions(self.upstream.name(), &self.facts);
            }
            if self.is_unedited() {
                self.core.acceptance.answered(self.upstream.name(), &self.facts, true);
            }
        } else if self.is_unedited() && !is_taken {
            self.core.acceptance.acquit(&self.facts);
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

    fn end(mut self: Box<Self>, how: End) {
        let mut answer = self.reader.as_mut().map(|reader| reader.finish()).unwrap_or_default();
        answer.usage = answer.usage.map(|usage| usage.at(self.start.head.uri.path()));
        if self.facts.kept_long && !self.is_original {
            answer.usage = answer.usage.map(Usage::kept_for_an_hour);
        }
        if !answer.complete {
            // What an answer that broke off put out is a lower bound, whatever is known of it.
            answer.usage = answer.usage.map(Usage::at_least);
        }
        self.overflowed_within(&answer);
        self.learn_acceptance(&answer);
        self.doubt_waiting(self.status.is_some_and(|status| status.is_success()) && answer.error.is_none());
        self.tell(&how, &answer);
        let usage = answer.usage.as_ref().filter(|_| !self.is_original);
        self.core.frame_told(&self.facts, self.status.is_some(), usage);
        if let Some(place) = self.facts.place.as_ref().filter(|_| self.is_cut_off(&answer, FILLED)) {
            self.core.windows.fill(place.head());
        }
        self.name_answer(&answer);
        let record = self.record(&how, &answer);
        self.learn(&answer);
        let slot = self.slot.take();
        let (vendor, usage) = (self.vendor, answer.usage);
        let (continues, grows) = (self.facts.continues.take(), self.facts.grows);
        let (unbound, asked_again) = (answer.reasoning_unbound, self.start.attempt.is_paid);
        let window = self.core.windows.of(self.upstream.name(), self.facts.model.as_deref(), self.at_ms);
        let at_ms = self.at_ms;
        self.core.books.ended(Ended {
            record,
            at_ms,
            usage,
            vendor,
            window,
            slot,
            continues,
            grows,
            unbound,
            asked_again,
        });
    }
}

/// What has become of a request that was answered so.
fn fate(status: Option<StatusCode>, answer: &Answer) -> Fate {
    let is_refusal = status.is_some_and(|status| !status.is_success()) || answer.error.is_some();
    let Some(usage) = &answer.usage else {
        return if is_refusal { Fate::Refused } else { Fate::Unknown };
    };
    let (read, written) = (usage.tokens.cache_read, usage.tokens.cache_write());
    // Where several calls are summed up, each reads what the one before has written, if anything is kept.
    let is_sum = usage.own != Own::All && read > 0;
    let is_unknown = usage.prompt_is_unknown && read == 0 && written == 0;
    if is_sum || is_unknown { Fate::Billed } else { Fate::Told { read, written } }
}

/// Bytes of text in a prompt of so many: pictures are none. Where what a splice had left out went as well, that was not
/// looked through.
fn text(sent: u64, pictures: Option<u64>, is_unspliced: bool) -> Option<u64> {
    pictures.filter(|_| !is_unspliced).map(|pictures| sent.saturating_sub(pictures))
}

/// How the body of an answer is framed, if it is one that is known.
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
