//! Usage and endings of answers.
//!
//! In a stream, `message_start` states the prompt figures and the split of cache writes by lifetime, and every
//! `message_delta` repeats cumulative figures. Server-side compactions are billed beside the top-level figures.

use memchr::memmem;
use serde_json::Value;

use crate::protocol::reader::{self, Fold, count, text};
use crate::protocol::{Answer, AnswerReader, Framing};
use crate::usage::{Extra, Geo, Partial, Reasoning, Speed, Tier, Tokens};

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Messages::default())
}

#[derive(Default)]
struct Messages {
    answer: Answer,
    usage: Partial,
}

impl Messages {
    fn message(&mut self, message: &Value) {
        self.answer.id = text(message, &["id"]);
        self.answer.model = text(message, &["model"]);
        self.end(message);
        self.common(message);
    }

    fn end(&mut self, holder: &Value) {
        if let Some(stop) = text(holder, &["stop_reason"]) {
            self.answer.stop = Some(stop);
        }
    }

    fn common(&mut self, holder: &Value) {
        if let Some(figures) = holder.get("usage") {
            self.usage.fold(usage(figures));
        }
        let changes = holder
            .get("input_transformations")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let dropped =
            changes.iter().filter(|change| text(change, &["type"]).as_deref() == Some("thinking_dropped"));
        self.answer.reasoning_dropped += dropped.count() as u32;
    }
}

impl Fold for Messages {
    fn wants(&self, event: &[u8]) -> bool {
        let head = &event[..event.len().min(48)];
        memmem::find(head, b"content_block_").is_none() && memmem::find(head, b"\"ping\"").is_none()
    }

    fn event(&mut self, event: &Value) {
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                if let Some(message) = event.get("message") {
                    self.message(message);
                }
            }
            Some("message_delta") => {
                if let Some(delta) = event.get("delta") {
                    self.end(delta);
                }
                self.common(event);
            }
            Some("message_stop") => self.answer.complete = true,
            Some("error") => self.answer.error = text(event, &["error", "message"]),
            _ => {}
        }
    }

    fn whole(&mut self, document: &Value) {
        if let Some(error) = text(document, &["error", "message"]) {
            self.answer.error = Some(error);
            return;
        }
        self.message(document);
        self.answer.complete = self.answer.stop.is_some();
    }

    fn answer(&mut self) -> Answer {
        Answer { usage: std::mem::take(&mut self.usage).finish(), ..std::mem::take(&mut self.answer) }
    }
}

fn usage(figures: &Value) -> Partial {
    let iterations = figures.get("iterations").and_then(Value::as_array);
    let last = iterations.and_then(|steps| steps.iter().rev().find(|step| kind(step) == Some("message")));
    let word = |key: &str| figures.get(key).and_then(Value::as_str);
    Partial {
        reasoning: count(figures, &["output_tokens_details", "thinking_tokens"]).map(Reasoning::Inside),
        web_searches: count(figures, &["server_tool_use", "web_search_requests"]),
        last_prompt: last.filter(|step| counts(step).prompt.is_some()).map(|step| tokens(step).prompt()),
        tier: word("service_tier").map(Tier::from_wire),
        speed: word("speed").map(Speed::from_wire),
        geo: word("inference_geo").map(Geo::from_wire),
        extra: iterations.map(|steps| extra(steps)),
        ..counts(figures)
    }
}

/// The figures that the answer as a whole and each of its model calls state alike.
fn counts(holder: &Value) -> Partial {
    Partial {
        cache_write_5m: count(holder, &["cache_creation", "ephemeral_5m_input_tokens"]),
        cache_write_1h: count(holder, &["cache_creation", "ephemeral_1h_input_tokens"]),
        ..Partial::from_disjoint(
            count(holder, &["input_tokens"]),
            count(holder, &["cache_read_input_tokens"]),
            count(holder, &["cache_creation_input_tokens"]),
            count(holder, &["output_tokens"]),
        )
    }
}

fn kind(step: &Value) -> Option<&str> {
    step.get("type").and_then(Value::as_str)
}

/// The calls that are not inside the top-level figures.
fn extra(steps: &[Value]) -> Vec<Extra> {
    let beside = steps.iter().filter(|step| matches!(kind(step), Some("compaction" | "advisor_message")));
    beside.map(|step| Extra { model: text(step, &["model"]), tokens: tokens(step) }).collect()
}

fn tokens(step: &Value) -> Tokens {
    counts(step).finish().map(|usage| usage.tokens).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    fn stream(events: &[&str]) -> Answer {
        let mut reader = reader(Framing::Events);
        for event in events {
            reader.push(format!("event: x\ndata: {event}\n\n").as_bytes());
        }
        reader.finish()
    }

    const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":12,"cache_creation_input_tokens":900,"cache_read_input_tokens":41000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":800},"output_tokens":1,"service_tier":"standard"}}}"#;

    #[test]
    fn figures_of_a_stream_are_folded_not_added() {
        let answer = stream(&[
            START,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\":{\"input_tokens\":7}"}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"input_tokens":12,"cache_creation_input_tokens":900,"cache_read_input_tokens":41000,"output_tokens":310}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let tokens = Tokens {
            input: 12,
            cache_read: 41_000,
            cache_write_5m: 100,
            cache_write_1h: 800,
            output: 310,
            ..Tokens::default()
        };
        assert_eq!(answer.usage, Some(Usage { tokens, ..Usage::default() }));
        assert_eq!((answer.id.as_deref(), answer.model.as_deref()), (Some("msg_1"), Some("claude-x")));
        assert_eq!((answer.stop.as_deref(), answer.complete), (Some("tool_use"), true));
    }

    #[test]
    fn a_broken_stream_keeps_what_was_said() {
        let answer = stream(&[START]);
        assert_eq!(answer.usage.map(|usage| usage.tokens.output), Some(1));
        assert!(!answer.complete);
        let answer = stream(&[
            START,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ]);
        assert_eq!((answer.error.as_deref(), answer.complete), (Some("Overloaded"), false));
    }

    #[test]
    fn calls_beside_the_answer_are_billed_too() {
        let mut reader = reader(Framing::Document);
        reader.push(br#"{"id":"m","model":"c","stop_reason":"end_turn","usage":{"input_tokens":20,"output_tokens":5,"iterations":[{"type":"compaction","input_tokens":900,"output_tokens":80},{"type":"message","input_tokens":12,"cache_read_input_tokens":3,"output_tokens":5},{"type":"advisor_message","model":"big","input_tokens":7,"output_tokens":2}]},"input_transformations":[{"type":"thinking_dropped"},{"type":"thinking_mismatch_allowed"}]}"#);
        let answer = reader.finish();
        let usage = answer.usage.unwrap();
        let call = |input, output| Tokens { input, output, ..Tokens::default() };
        assert_eq!(
            usage.extra,
            [
                Extra { model: None, tokens: call(900, 80) },
                Extra { model: Some("big".into()), tokens: call(7, 2) },
            ]
        );
        assert_eq!((usage.tokens, usage.last_prompt), (call(20, 5), Some(15)));
        assert_eq!((answer.complete, answer.reasoning_dropped), (true, 1));
    }

    #[test]
    fn nonsense_is_left_out() {
        for text in ["", "{", "[]", "null", "{\"usage\":3}", "{\"usage\":{\"input_tokens\":-1}}"] {
            let mut reader = reader(Framing::Document);
            reader.push(text.as_bytes());
            assert_eq!(reader.finish(), Answer::default(), "{text}");
        }
    }
}
