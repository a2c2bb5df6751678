//! What is written down of a request: collects it while the answer passes, books it at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::books::{Ended, Slot};
use super::budget::Reached;
use super::rewritten::Facts;
use super::state::State;
use super::{Core, clock, secrets};
use crate::ledger::{Bytes, Cost, Edits, Event, Made, Record, Splice, Timing, Window};
use crate::planner::Level;
use crate::protocol::{self, Answer, AnswerReader, Framing, Protocol, Refused};
use crate::server::{End, Exchange, Form, Opening, Remedy};
use crate::strategy::window::{Gauge, Reading};
use crate::summarizer::Job;
use crate::upstream::Upstream;
use crate::usage::{self, Catalogue, Usage, Vendor};

/// The share of the usable window from which on the beginning of an answer is looked at before it goes on.
const NEARLY: f64 = 0.7;
/// The same in tokens of the prompt, where the window is not known.
const LARGE: u64 = 8192;
/// The share of the window from which on an answer that was cut off is taken to have met its end.
const FILLED: f64 = 0.8;
/// The share that prompt and answer must fill together for the answer to be asked for again at once.
const FULL: f64 = 0.97;
/// Bytes of text to a token, where only an estimate is asked for.
const BYTES_PER_TOKEN: u64 = 4;

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
    facts: Box<Facts>,
    slot: Option<Slot>,
    /// What is to be begun when this request is answered.
    job: Option<Box<Job>>,
    start: Start,
    at_ms: i64,
    status: Option<StatusCode>,
    reader: Option<Box<dyn AnswerReader>>,
    head_at: Option<Instant>,
    body_at: Option<Instant>,
    resent: bool,
    /// So was its original, in the beginning of an answer that began well.
    is_refused_whole: bool,
    /// The provider has refused it because its prompt is too long.
    overflow: bool,
}

impl Follow {
    pub(super) fn new(
        core: Arc<Core>,
        protocol: &'static dyn Protocol,
        upstream: Arc<Upstream>,
        facts: Box<Facts>,
        slot: Option<Slot>,
        start: Start,
        job: Option<Box<Job>>,
    ) -> Self {
        Self {
            core,
            protocol,
            vendor: Vendor::of_host(upstream.base_url().domain()),
            upstream,
            facts,
            slot,
            job,
            start,
            at_ms: clock::now_ms(),
            status: None,
            reader: None,
            head_at: None,
            body_at: None,
            resent: false,
            is_refused_whole: false,
            overflow: false,
        }
    }

    fn record(&self, how: &End, answer: &Answer) -> Box<Record> {
        let billed = self.billed(answer);
        let cost = answer.usage.as_ref().and_then(|usage| self.cost(usage, billed.as_deref()));
        let place = self.facts.place.as_ref();
        if let (Some(place), Some(answer)) = (place, &answer.id) {
            self.core.lineage.answered(place, answer);
        }
        let id = self.start.id.clone();
        let conversation = self.facts.conversation(&id);
        self.learn(answer);
        Box::new(Record {
            time: clock::rfc3339(self.at_ms),
            conversation,
            session: self.facts.caller.session.clone(),
            thread: place.map(|place| place.thread.id.clone()),
            parent: place.and_then(|place| place.thread.parent.clone()),
            agent: self.facts.caller.agent.clone(),
            relation: place.map(|place| place.relation.as_str().to_owned()),
            client: self.facts.caller.client.clone(),
            protocol: self.protocol.name().to_owned(),
            upstream: self.upstream.name().to_owned(),
            model_asked: self.facts.model.clone(),
            model: billed,
            messages: self.facts.messages,
            status: self.status.map(|status| status.as_u16()),
            outcome: outcome(how).to_owned(),
            error: error(how, answer).map(|text| self.legible(text)),
            tokens: answer.usage.as_ref().map(Usage::billed_tokens),
            output_is_lower_bound: answer.usage.is_some() && !answer.complete,
            prompt_is_unknown: answer.usage.as_ref().is_some_and(|usage| usage.prompt_is_unknown),
            output_is_unknown: answer.usage.as_ref().is_some_and(|usage| usage.output_is_unknown),
            unpriced_charges: answer.usage.as_ref().map(Usage::unpriced_names).unwrap_or_default(),
            cost,
            bytes: self.bytes(),
            edits: self.edits(answer),
            window: self.facts.level.map(|level| self.window(level, answer)),
            budget: self.start.budget.as_ref().map(Reached::record),
            timing: self.timing(),
            compaction: self.facts.compaction.map(|compaction| compaction.as_str().to_owned()),
            profile: self.facts.tuning.as_ref().and_then(|tuning| tuning.profile.clone()),
            attempt: self.start.attempt.before,
            overflow: self.overflow,
            prefix: self.prefix().map(str::to_owned),
            answer: answer.id.clone(),
            stop: answer.stop.clone(),
            id,
            ..Record::default()
        })
    }

    /// A provider's words as they may be written down.
    fn legible(&self, text: String) -> String {
        let head = &self.start.head;
        secrets::hidden(text, &head.uri, [&head.headers, self.upstream.headers()])
    }

    /// The name of the model that is billed.
    fn billed(&self, answer: &Answer) -> Option<String> {
        let (asked, answered) = (self.facts.model.as_deref(), answer.model.as_deref());
        Catalogue::billed_name(asked, answered, self.vendor).map(str::to_owned)
    }

    fn window(&self, level: Level, answer: &Answer) -> Window {
        let tuning = self.facts.tuning.as_ref().unwrap_or_else(|| self.core.tunings.file());
        let settings = &tuning.policy.window;
        let reading = level.reading;
        let usage = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        // What the provider has counted is no estimate.
        let sent = usage.zip(level.gauge);
        let sent = sent.map(|(usage, gauge)| Gauge { prompt: usage.context_tokens(), margin: 0, ..gauge });
        let zone = |gauge: Gauge| gauge.zone(settings).as_str().to_owned();
        let until_red = |reading: Reading| level.gauge?.steps_until_red(reading.velocity, settings);
        Window {
            prompt_tokens_estimate: level.prompt_tokens,
            tokens: level.gauge.map(|gauge| gauge.window),
            reserved: level.gauge.map(|gauge| gauge.reserve),
            history_budget_estimate: None,
            zone: level.gauge.map(zone),
            zone_sent: sent.map(zone),
            velocity: reading.map(|reading| reading.velocity.round() as i64),
            steps_until_red: reading.and_then(until_red).map(|steps| steps.floor() as u64),
            spike: reading.is_some_and(|reading| reading.spike),
        }
    }

    /// Teaches the meter how large the prompt really was.
    fn learn(&self, answer: &Answer) {
        let known = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        let (Some(usage), Some(place)) = (known, &self.facts.place) else { return };
        let sent = if self.resent { self.start.received } else { self.start.sent };
        let read = self.facts.encoded.map(|encoded| sent.saturating_sub(encoded));
        let (model, messages) = (self.facts.model.as_deref(), self.facts.messages as usize);
        self.core.windows.fitted(self.upstream.name(), model, usage.context_tokens());
        self.core.meter.learn(place.head(), (model, messages), read, usage.context_tokens());
    }

    /// Whether what was sent before is still a prefix. Only events break it, and an original in place of what
    /// was edited.
    fn prefix(&self) -> Option<&'static str> {
        let place = self.facts.place.as_ref().filter(|place| place.sent > 0)?;
        let event = self.facts.event.is_some() && self.facts.state == State::Edited;
        let was_edited = !place.applied.is_empty() || place.splice.is_some();
        let reverted = self.facts.state == State::Unchanged && self.facts.why.is_some() && was_edited;
        Some(if event || self.resent || reverted { "broken" } else { "kept" })
    }

    /// Whether room could be made, and the request sent again.
    fn recovers(&self) -> bool {
        self.core.recovers() && self.facts.place.as_ref().is_some_and(|place| !place.thread.observe)
    }

    /// Whether the prompt is near the window, or large where the window is not known.
    fn is_nearly_full(&self) -> bool {
        let Some(level) = self.facts.level else { return false };
        match level.gauge {
            Some(gauge) => gauge.utilisation() >= NEARLY,
            None => level.prompt_tokens >= LARGE,
        }
    }

    /// Whether an answer has ended because the window was full: most of it is the prompt, and both together
    /// fill the share `full`.
    fn is_cut_off(&self, answer: &Answer, full: f64) -> bool {
        let stop = answer.stop.as_deref().unwrap_or_default();
        let Some(window) = self.facts.level.and_then(|level| level.gauge).map(|gauge| gauge.window) else {
            return stop == "model_context_window_exceeded";
        };
        let tokens = answer.usage.as_ref().map(|usage| usage.tokens).unwrap_or_default();
        let (input, window) = (tokens.prompt() as f64, window as f64);
        let is_long = input >= window * FILLED && input + tokens.output as f64 >= window * full;
        stop == "model_context_window_exceeded"
            || (is_long && matches!(stop, "length" | "max_tokens" | "max_output_tokens" | "MAX_TOKENS"))
    }

    /// Its prompt was too long.
    fn overflowed(&mut self) {
        self.overflow = true;
        if let Some(place) = &self.facts.place {
            self.core.windows.refuse(place.head(), self.start.rewritten_to);
        }
    }

    fn cost(&self, usage: &Usage, model: Option<&str>) -> Option<Cost> {
        let bill = usage::bill(&self.core.prices, usage, model.unwrap_or_default(), self.vendor)?;
        Some(Cost::of(&bill))
    }

    fn bytes(&self) -> Bytes {
        let spared: u64 = self.facts.applied.iter().map(|applied| applied.decision.bytes_spared()).sum();
        let spared = spared + self.facts.splice.as_ref().map_or(0, |splice| splice.bytes_spared());
        let (saved, would_have_saved) = match self.facts.state {
            State::Edited if !self.resent => (spared, 0),
            State::Observed => (0, spared),
            _ => (0, 0),
        };
        Bytes {
            received: self.start.received,
            sent: if self.resent { self.start.received } else { self.start.sent },
            saved,
            saved_tokens_estimate: saved / BYTES_PER_TOKEN,
            would_have_saved,
        }
    }

    fn edits(&self, answer: &Answer) -> Edits {
        let mut parts: BTreeMap<String, u32> = BTreeMap::new();
        for applied in self.facts.applied.iter() {
            for rule in applied.decision.rules.split('+') {
                *parts.entry(rule.to_owned()).or_default() += 1;
            }
        }
        Edits {
            state: self.facts.state.as_str().to_owned(),
            why: self.facts.why.clone(),
            parts,
            decided: self.facts.fresh as u32,
            made: self.made(),
            event: self.facts.event.as_ref().map(|event| Event {
                reason: event.reason.as_str().to_owned(),
                cleared: event.cleared,
                freed_bytes: event.freed_bytes,
                rewritten_bytes: event.rewritten_bytes,
                first_message: event.first_message,
                rung: event.rung.as_str().to_owned(),
                dropped: event.dropped,
                cut: event.cut,
                reasoning: event.reasoning,
            }),
            splice: self.facts.splice.as_ref().map(|splice| Splice {
                rule: splice.rule.to_string(),
                messages: splice.dropped(),
                first: splice.first() as u32,
                end: splice.end() as u32,
                before: splice.bytes_before,
                after: splice.bytes_after,
                made: self.facts.spliced,
                output: splice.output.clone(),
            }),
            original_resent: self.resent,
            reasoning_dropped: answer.reasoning_dropped,
            recalls: self.facts.recalls,
        }
    }

    /// The decisions that were made with this request. What would have been decided holds for nothing.
    fn made(&self) -> Vec<Made> {
        let first = self.facts.applied.len().saturating_sub(self.facts.fresh);
        let made = self.facts.applied.iter().skip(first).filter(|_| self.facts.state == State::Edited);
        // Reasoning is not to be had again; the event says how much of it went.
        let made = made.filter(|applied| !applied.decision.is_omission() && !applied.decision.is_split());
        made.map(|applied| Made {
            message: applied.part.message,
            part: applied.part.part,
            rules: applied.decision.rules.to_string(),
            before: applied.decision.bytes_before,
            after: applied.decision.bytes_after,
            content: applied.decision.content.to_string(),
            output: applied.decision.output.clone(),
        })
        .collect()
    }

    fn timing(&self) -> Timing {
        let since = |at: Instant| at.saturating_duration_since(self.start.received_at).as_millis() as u64;
        Timing {
            gateway_us: self.start.prepared_at.saturating_duration_since(self.start.received_at).as_micros()
                as u64,
            head_ms: self.head_at.map(since),
            first_byte_ms: self.body_at.map(since),
            total_ms: since(Instant::now()),
        }
    }
}

impl Exchange for Follow {
    fn sent(&mut self, form: Form) {
        self.resent |= form == Form::Original && self.facts.state == State::Edited;
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
                if malformed || self.core.welcome.doubts(self.upstream.name(), &self.facts, status) =>
            {
                Remedy::SendOriginal
            }
            Refused::Answer | Refused::Unanswered | Refused::Other => Remedy::Deliver,
        }
    }

    /// A model whose reasoning is bound refuses the original for not being what it was sent before: the first reason is
    /// the client's then, unless its prompt is too long.
    fn rejected_again(&mut self, status: StatusCode, body: &[u8]) -> Form {
        let is_too_long = matches!(protocol::refused(status.as_u16(), body), Refused::Overflow { .. });
        if self.facts.is_bound() && !is_too_long { Form::Edited } else { Form::Original }
    }

    /// Only where the window may be full, other messages follow each other now, or the edited form was refused: nothing is
    /// held back without need.
    fn holds(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let is_doubtful = || self.recovers() && (self.is_nearly_full() || self.facts.spliced);
        status == StatusCode::OK
            && (self.resent || is_doubtful())
            && framing(headers).is_some_and(|framing| framing != Framing::Frames)
    }

    fn opened(&mut self, body: &[u8], whole: bool) -> Opening {
        let first = body.trim_ascii_start().first();
        let is_cut_off = || {
            let mut reader = self.protocol.answer(Framing::Document);
            reader.push(body);
            self.is_cut_off(&reader.finish(), FULL)
        };
        let is_full = match (first, whole) {
            (Some(b'{'), false) => return Opening::Hold,
            (_, false) if !protocol::has_opened(body) => return Opening::Hold,
            (Some(b'{' | b'['), true) => is_cut_off(),
            _ => false,
        };
        if self.resent {
            let mut reader = self.protocol.answer(Framing::Document);
            reader.push(body);
            self.is_refused_whole = reader.finish().error.is_some();
            return Opening::Deliver;
        }
        match protocol::refused(200, body) {
            Refused::Malformed => return Opening::SendOriginal,
            Refused::Overflow { .. } => {}
            _ if is_full => {}
            Refused::Answer | Refused::Unanswered | Refused::Other => return Opening::Deliver,
        }
        self.overflowed();
        Opening::Again
    }

    fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.head_at = Some(Instant::now());
        self.reader = Some(self.protocol.answer(framing(headers).unwrap_or(Framing::Document)));
        let job = self.job.take().filter(|_| status.is_success());
        if let (Some(job), Some(summaries)) = (job, &self.core.summaries) {
            summaries.begin(*job);
        }
        if status.is_success() && !self.is_refused_whole {
            self.core.welcome.answered(self.upstream.name(), &self.facts, self.resent);
        } else if self.resent {
            self.core.welcome.acquit(&self.facts);
        }
        if self.resent
            && status.is_success()
            && !self.is_refused_whole
            && let Some(place) = &self.facts.place
        {
            tracing::warn!(
                thread = place.thread.id,
                "an edited request was refused, its original was not: the thread is left alone from now on"
            );
            self.core.lineage.set_aside(place, self.at_ms);
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
        if !answer.complete {
            // What an answer that broke off put out is a lower bound, whatever is known of it.
            answer.usage = answer.usage.map(Usage::at_least);
        }
        if let Some(place) = self.facts.place.as_ref().filter(|_| self.is_cut_off(&answer, FILLED)) {
            self.core.windows.fill(place.head());
        }
        let record = self.record(&how, &answer);
        let slot = self.slot.take();
        let (vendor, usage) = (self.vendor, answer.usage);
        let asked_again = self.start.attempt.is_paid;
        self.core.books.ended(Ended { record, at_ms: self.at_ms, usage, vendor, slot, asked_again });
    }
}

/// How the body of an answer is framed, if it is one that is known.
fn framing(headers: &HeaderMap) -> Option<Framing> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let says = |name: &str| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    match kind {
        _ if says("text/event-stream") => Some(Framing::Events),
        _ if says("application/json") => Some(Framing::Document),
        _ if says("application/vnd.amazon.eventstream") => Some(Framing::Frames),
        _ => None,
    }
}

fn outcome(how: &End) -> &'static str {
    match how {
        End::Complete => "complete",
        End::UpstreamBroke => "upstream_broke",
        End::ClientGone => "client_gone",
        End::Stopped => "stopped",
        End::Failed(_) => "failed",
    }
}

fn error(how: &End, answer: &Answer) -> Option<String> {
    match how {
        End::Failed(fault) => Some(fault.message.to_string()),
        _ => answer.error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_whatever_their_case() {
        for (kind, expected) in [
            ("text/event-stream", Some(Framing::Events)),
            ("Text/Event-Stream; charset=UTF-8", Some(Framing::Events)),
            ("APPLICATION/JSON", Some(Framing::Document)),
            ("application/vnd.amazon.eventstream", Some(Framing::Frames)),
            ("text/plain", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(framing(&headers), expected, "{kind}");
        }
        assert_eq!(framing(&HeaderMap::new()), None);
    }
}
