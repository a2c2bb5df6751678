//! Usage and endings of answers.
//!
//! A stream is made of whole responses, each with the figures so far: the last one holds. Without events the
//! stream is one JSON array of them. Figures that are zero are left out.

use memchr::memmem;
use serde_json::Value;

use crate::protocol::reader::{self, Fold, at, count, text};
use crate::protocol::{Answer, AnswerReader, Framing};
use crate::usage::{Partial, Reasoning, Tier};

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Responses::default())
}

#[derive(Default)]
struct Responses {
    answer: Answer,
    usage: Partial,
    /// The newest event that was not looked into: it has the figures if the stream ends behind it.
    newest: Vec<u8>,
}

impl Responses {
    fn take(&mut self, response: &Value) {
        for (kept, key) in [(&mut self.answer.id, "responseId"), (&mut self.answer.model, "modelVersion")] {
            if let Some(said) = text(response, &[key]) {
                *kept = Some(said);
            }
        }
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            self.answer.error = text(error, &["message"]).or_else(|| Some(error.to_string()));
        }
        let candidates = response.get("candidates").and_then(Value::as_array);
        let first = candidates.and_then(|candidates| candidates.first());
        let stop = first.and_then(|candidate| text(candidate, &["finishReason"]));
        // A prompt that is blocked has no answer at all.
        if let Some(stop) = stop.or_else(|| text(response, &["promptFeedback", "blockReason"])) {
            self.answer.complete = true;
            self.answer.stop = Some(stop);
        }
        if let Some(figures) = response.get("usageMetadata").filter(|figures| figures.is_object()) {
            self.usage.fold(usage(figures));
        }
    }
}

impl Fold for Responses {
    fn wants(&self, event: &[u8]) -> bool {
        let words: [&[u8]; 3] = [b"\"finishReason\"", b"\"blockReason\"", b"\"error\""];
        self.answer.id.is_none() || words.iter().any(|word| memmem::find(event, word).is_some())
    }

    fn pass(&mut self, event: &[u8]) {
        self.newest.clear();
        self.newest.extend_from_slice(event);
    }

    fn event(&mut self, event: &Value) {
        self.newest.clear();
        self.take(event);
    }

    fn whole(&mut self, document: &Value) {
        self.take(document);
    }

    fn answer(&mut self) -> Answer {
        if let Ok(newest) = serde_json::from_slice(&std::mem::take(&mut self.newest)) {
            self.take(&newest);
        }
        let mut usage = std::mem::take(&mut self.usage);
        // A tier without figures is no usage.
        usage.tier = usage.tier.filter(|_| usage.prompt.is_some() || usage.output.is_some());
        Answer { usage: usage.finish(), ..std::mem::take(&mut self.answer) }
    }
}

fn usage(figures: &Value) -> Partial {
    let tier = at(figures, &["trafficType"]).or_else(|| at(figures, &["serviceTier"]));
    Partial {
        tool_prompt: count(figures, &["toolUsePromptTokenCount"]),
        reasoning: count(figures, &["thoughtsTokenCount"]).map(Reasoning::Beside),
        tier: tier.and_then(Value::as_str).map(Tier::from_wire),
        ..Partial::from_inclusive(
            count(figures, &["promptTokenCount"]),
            count(figures, &["cachedContentTokenCount"]),
            None,
            count(figures, &["candidatesTokenCount"]),
        )
    }
}
