//! Builds the record of a request.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::budget::Reached;
use super::super::rewritten::InForce;
use super::super::secrets;
use super::super::tuning::Tuning;
use super::lessons::fate;
use super::{Follow, SentForm};
use crate::ledger::record::Word;
use crate::ledger::words::{Outcome, Prefix, State};
use crate::ledger::{BodySizes, Edits, Event, Made, Record, Splice, Timing, Window, when};
use crate::planner::{Fate, Level};
use crate::protocol::Answer;
use crate::server::End;
use crate::strategy::window::{Gauge, Reading};
use crate::usage::{self, BYTES_PER_TOKEN, Bill, Money, Usage};

/// The reason to record for a request that was refused with its additions and sent without them.
const ADDITIONS_REFUSED: &str = "what is added to requests was refused";

/// The maximum length of a provider's text in a record, in characters. Some repeat the prompt in it.
const MAX_SAID: usize = 2_000;

impl Follow {
    /// The record of a request that ended this way.
    pub(super) fn record(&self, how: &End, answer: &Answer) -> Box<Record> {
        let billed = self.billed_model(answer);
        let bill = answer.usage.as_ref().and_then(|usage| self.bill(usage, billed.as_deref()));
        let place = self.facts.place.as_ref();
        let id = self.start.id.clone();
        let conversation = self.facts.conversation(&id);
        // Written in place: the record is large, and would otherwise be built on the stack and moved.
        let mut record = Box::write(
            Box::new_uninit(),
            Record {
                time: when::rfc3339(self.at_ms),
                conversation,
                session: self.facts.caller.session.clone(),
                thread: place.map(|place| place.thread.id.clone()),
                parent: place.and_then(|place| place.thread.parent.clone()),
                agent: self.facts.caller.agent.clone(),
                relation: place.map(|place| place.relation.as_str().into()),
                client: self.facts.caller.client.clone(),
                protocol: self.protocol.name().into(),
                upstream: self.upstream.name().to_owned(),
                model_asked: self.facts.model.clone(),
                model: billed,
                messages: self.facts.messages,
                status: self.status.map(|status| status.as_u16()),
                outcome: self.outcome(how, answer).into(),
                error: error(how, answer).map(|text| self.recorded(text)),
                bytes: self.bytes(how, answer),
                edits: self.edits(answer),
                window: self.facts.level.map(|level| self.window(level, answer)),
                budget: self.start.budget.as_ref().map(Reached::record),
                timing: self.timing(),
                compaction: self.facts.compaction.map(|compaction| compaction.as_str().into()),
                profile: self.facts.tuning.as_ref().and_then(|tuning| tuning.profile.clone()),
                attempt: self.start.attempt.before,
                overflow: self.overflow,
                prefix: self.prefix().map(Into::into),
                answer: answer.id.clone(),
                completion_window: self.facts.completion_window.as_deref().map(str::to_owned),
                stop: answer.stop.as_ref().map(|stop| stop.word().to_owned()),
                id,
                ..Record::default()
            },
        );
        if let Some(usage) = &answer.usage {
            let min_cost = match bill {
                Some(_) => None,
                None => self.min_cost(usage, record.model.as_deref()),
            };
            record.put_usage(usage, bill.as_ref(), min_cost, answer.complete);
        }
        record
    }

    /// A text of the provider as it is recorded: without credentials, and no longer than [`MAX_SAID`].
    pub(super) fn recorded(&self, text: String) -> String {
        let head = &self.start.head;
        shortened(secrets::redact(text, &head.uri, [&head.headers, self.upstream.headers()]))
    }

    /// The name of the model that is billed.
    fn billed_model(&self, answer: &Answer) -> Option<String> {
        let (asked, answered) = (self.facts.model.as_deref(), answer.model.as_deref());
        self.core.prices.billed_name(asked, answered, self.vendor).map(str::to_owned)
    }

    /// The settings that the decisions were made by.
    fn tuning(&self) -> &Tuning {
        self.facts.tuning.as_ref().unwrap_or_else(|| self.core.settings.tunings.file())
    }

    fn window(&self, level: Level, answer: &Answer) -> Window {
        let settings = &self.tuning().policy.window;
        let reading = level.reading;
        let usage = answer.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        // The provider's own count has no margin of error.
        let sent = usage.and_then(Usage::own_tokens).zip(level.gauge);
        let sent = sent.map(|(prompt, gauge)| Gauge { prompt, margin: 0, ..gauge });
        let zone = |gauge: Gauge| Word::from(gauge.zone(settings).as_str());
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

    /// Whether the prompt extends what was sent before; `None` if nothing was. Only events that change some of that
    /// break the prefix, and originals that continue what was sent in another form.
    fn prefix(&self) -> Option<Prefix> {
        let sent = self.facts.place.as_ref().map(|place| place.sent).filter(|sent| *sent > 0)?;
        let has_dropped_edits = self.has_dropped_edits();
        // To make room, an event may cut what is new, and nothing else.
        let event = self.facts.event.as_ref().filter(|event| (event.first_message as usize) < sent);
        let has_event = event.is_some() && self.facts.state == State::Edited && !has_dropped_edits;
        let could_not_be_edited = self.facts.state == State::Unchanged && self.facts.why.is_some();
        let is_original = could_not_be_edited || has_dropped_edits;
        let is_broken = has_event || (is_original && self.facts.was_edited());
        Some(if is_broken { Prefix::Broken } else { Prefix::Kept })
    }

    fn bill(&self, usage: &Usage, model: Option<&str>) -> Option<Bill> {
        usage::bill(&self.core.prices, usage, model.unwrap_or_default(), self.vendor)
    }

    fn min_cost(&self, usage: &Usage, model: Option<&str>) -> Option<Money> {
        usage::min_cost(&self.core.prices, usage, model.unwrap_or_default(), self.vendor)
    }

    /// Whether an upstream may have worked on the request.
    const fn was_sent(&self, how: &End) -> bool {
        !matches!(self.sent_form, SentForm::Nothing) && !matches!(how, End::Unsent(_))
    }

    fn outcome(&self, how: &End, answer: &Answer) -> Outcome {
        match how {
            End::Complete if answer.pending => Outcome::Pending,
            End::Complete => Outcome::Complete,
            End::UpstreamBroke | End::UpstreamSilent(_) => Outcome::UpstreamBroke,
            End::ClientGone => Outcome::ClientGone,
            End::Stopped => Outcome::Stopped,
            // The upstream may have answered and billed the request although no answer arrived.
            End::Failed(_) if self.was_sent(how) => Outcome::UpstreamBroke,
            End::Failed(_) | End::Unsent(_) => Outcome::Failed,
        }
    }

    fn bytes(&self, how: &End, answer: &Answer) -> BodySizes {
        let is_refused = self.overflow || fate(self.status, answer) == Fate::Refused;
        let is_answered = self.status.is_some() && !is_refused;
        let spares = self.facts.state == State::Edited && !self.has_dropped_edits() && is_answered;
        let saved = if spares { self.facts.spared() } else { 0 };
        // Decisions from before the gateway began to observe are still applied: what they save is not hypothetical.
        let would = self.facts.would.filter(|_| is_answered);
        let would_have_saved = would.map_or(0, |would| would.spared.saturating_sub(saved));
        BodySizes {
            received: self.start.received,
            sent: if self.was_sent(how) { self.sent_bytes() } else { 0 },
            saved,
            saved_tokens_estimate: saved / BYTES_PER_TOKEN,
            would_have_saved,
            would_have_saved_tokens_estimate: would_have_saved / BYTES_PER_TOKEN,
        }
    }

    fn edits(&self, answer: &Answer) -> Edits {
        let InForce { applied, fresh, kinds, splice, spliced, .. } = &self.facts.decided;
        let mut parts: BTreeMap<String, u32> = BTreeMap::new();
        for applied in applied.iter() {
            for rule in applied.decision.cause.to_string().split('+') {
                *parts.entry(rule.to_owned()).or_default() += 1;
            }
        }
        Edits {
            state: self.facts.state.into(),
            why: self
                .facts
                .why
                .clone()
                .or_else(|| self.has_dropped_additions().then(|| ADDITIONS_REFUSED.to_owned()))
                .or_else(|| self.refusal.clone().filter(|_| self.has_dropped_edits())),
            deferred: self.facts.level.filter(|level| level.defers).map(|_| "provider".into()),
            parts,
            decided: *fresh as u32,
            made: self.made(),
            event: self.facts.event.as_ref().map(|event| Event {
                reason: event.reason.as_str().into(),
                cleared: event.cleared,
                freed_bytes: event.freed_bytes,
                rewritten_bytes: event.rewritten_bytes,
                first_message: event.first_message,
                rung: event.rung.as_str().into(),
                dropped: event.dropped,
                cut: event.cut,
                reasoning: event.reasoning,
                abridged: event.abridged,
                preset: self.tuning().preset.as_str().into(),
            }),
            splice: splice.as_ref().map(|splice| Splice {
                rule: splice.rule.to_string(),
                messages: splice.dropped(),
                first: splice.first() as u32,
                end: splice.end() as u32,
                before: splice.bytes_before,
                after: splice.bytes_after(),
                made: *spliced,
                output: splice.output.clone(),
            }),
            marked: self.facts.state == State::Edited && !self.has_dropped_edits() && kinds.has_marks(),
            added: self.added(),
            original_resent: self.has_dropped_edits(),
            reasoning_dropped: answer.reasoning_dropped,
            recalls: self.facts.recalls,
        }
    }

    /// The members that were added or added to in the form that was sent.
    fn added(&self) -> Vec<String> {
        let sent = self.start.added.iter().filter(|_| !self.is_original());
        sent.map(|name| (*name).to_owned()).collect()
    }

    /// The decisions made with this request; none if the gateway only observes.
    fn made(&self) -> Vec<Made> {
        let InForce { applied, fresh, .. } = &self.facts.decided;
        let first = applied.len().saturating_sub(*fresh);
        let made = applied.iter().skip(first).filter(|_| self.facts.state == State::Edited);
        // Omitted reasoning cannot be retrieved; the event records how much there was.
        let made = made.filter(|applied| !applied.decision.is_omission() && !applied.decision.is_split());
        let chain =
            |message: u32| Some(self.facts.place.as_ref()?.chains.get(message as usize + 1)?.0.to_string());
        made.map(|applied| Made {
            message: applied.part.message,
            part: applied.part.part,
            tool: None,
            rules: applied.decision.cause.to_string(),
            before: applied.decision.bytes_before,
            after: applied.decision.bytes_after,
            content: applied.decision.content.to_string(),
            output: applied.decision.output.clone(),
            chain: chain(applied.part.message),
        })
        .collect()
    }

    fn timing(&self) -> Timing {
        let since = |at: Instant| at.saturating_duration_since(self.start.received_at).as_millis() as u64;
        Timing {
            gateway_us: self.start.prepared_at.saturating_duration_since(self.start.read_at).as_micros()
                as u64,
            head_ms: self.head_at.map(since),
            first_byte_ms: self.body_at.map(since),
            total_ms: since(Instant::now()),
        }
    }
}

fn error(how: &End, answer: &Answer) -> Option<String> {
    match how {
        End::Failed(fault) | End::Unsent(fault) => Some(fault.message.to_string()),
        End::UpstreamSilent(limit) => {
            let silent = || format!("the upstream sent nothing for {limit:?} (`idle_timeout`)");
            answer.error.clone().or_else(|| Some(silent()))
        }
        _ => answer.error.clone(),
    }
}

/// A text with the end cut off if it is longer than [`MAX_SAID`].
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_SAID) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_providers_are_shortened_between_characters() {
        for character in ["a", "é", "漢", "🦀"] {
            let whole = character.repeat(MAX_SAID);
            assert_eq!(shortened(whole.clone()), whole);
            assert_eq!(shortened(format!("{whole}{character}")), format!("{whole}…"));
        }
    }
}
