//! Reads the usage and the end of answers.
//!
//! In a stream, `message_start` states the prompt figures and the split of cache writes by lifetime, and every
//! `message_delta` repeats cumulative figures. Server-side compactions are billed in addition to the top-level figures.
//! If a model declined after it had begun, and the provider went on with another model, the top-level figures are those
//! of the other model, and the output of the first one is billed in addition.
//!
//! If the provider's own tools ran, the figures at the end are a sum over all calls of the model, each of which read
//! the prompt again. Those at the beginning are of the first call. Which tools a provider runs is not known, but which
//! blocks do not come from them is.

use memchr::{memchr, memmem};

use super::dialect::DIALECT;
use super::{edits, summary};
use crate::json::scan::{self, Listing};
use crate::protocol::body::Object;
use crate::protocol::content::within;
use crate::protocol::pruned::Value;
use crate::protocol::reader::{self, AnswerVisitor, count, text};
use crate::protocol::{Answer, AnswerReader, Framing, Stop, refusal};
use crate::usage::{Extra, Geo, OwnPrompt, Partial, Prompt, Reasoning, Speed, Tier, Tokens};

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Messages::default())
}

#[derive(Default)]
struct Messages {
    answer: Answer,
    usage: Partial,
    /// The prompt size in tokens that a stream states at its beginning.
    prompt_at_start: Option<u64>,
    /// Whether the provider's own tools ran.
    has_run_tools: bool,
    /// Whether the content block that began last is a summary of the history.
    is_summary: bool,
}

/// Types of blocks that one call of the model yields: what the model writes, calls that the client answers, and what
/// the provider notes. With any other the provider itself may have answered a call, and have called the model again.
const OF_ONE_CALL: &[&str] =
    &["text", "thinking", "redacted_thinking", "tool_use", summary::KIND, "fallback"];

impl Messages {
    /// Reads the whole message of an answer, or the one at the beginning of a stream.
    fn message(&mut self, message: &Value<'_>) {
        self.answer.id = text(message, &["id"]);
        self.answer.model = text(message, &["model"]);
        self.stop(message);
        self.figures(message);
    }

    fn stop(&mut self, holder: &Value<'_>) {
        if let Some(stop) = text(holder, &["stop_reason"]) {
            self.answer.stop = Some(DIALECT.stop(stop));
        }
    }

    /// Reads what messages and deltas state in the same form: usage, edits of the history, dropped reasoning.
    fn figures(&mut self, holder: &Value<'_>) {
        if let Some(figures) = holder.get("usage") {
            self.usage.fold(usage(figures));
            if let Some(tools) = figures.get("server_tool_use") {
                self.has_run_tools |= tools.names().any(|tool| count(tools, &[tool]) > Some(0));
            }
            // The beginning of a stream names the model that declined.
            if let Some(model) = steps(figures).iter().rev().find_map(fallback) {
                self.answer.model = Some(model.to_owned());
            }
        }
        let edits = holder.get("context_management").and_then(|made| made.get("applied_edits"));
        let mut edits = edits.map(Value::items).unwrap_or_default().iter();
        self.usage.prompt_is_cut |= edits.any(|edit| kind(edit).is_some_and(edits::is_known));
        // After a fallback in mid-stream, the dropped blocks are listed again.
        let changes = holder.get("input_transformations").map(Value::items).unwrap_or_default();
        let dropped = changes.iter().filter(|change| kind(change) == Some("thinking_dropped"));
        self.answer.reasoning_dropped = self.answer.reasoning_dropped.max(dropped.count() as u32);
    }

    /// Reads the content blocks of a whole message: their types, and the seals of summaries if there may be any.
    fn blocks(&mut self, message: &[u8], may_be_sealed: bool) {
        let Ok(Listing { items: Some(content), .. }) = scan::listing(message, "content", &mut |_, _| None)
        else {
            return;
        };
        for block in content.into_iter().filter_map(|item| Object::read(message, item).ok()) {
            self.has_run_tools |= is_of_own_tool(&block);
            if may_be_sealed && block.says("type", summary::KIND) {
                self.answer.seals.extend(summary::seals(&block));
            }
        }
    }
}

impl AnswerVisitor for Messages {
    fn is_relevant(&self, event: &[u8]) -> bool {
        let head = &event[..event.len().min(48)];
        memmem::find(head, b"content_block_").is_none() && memmem::find(head, b"\"ping\"").is_none()
    }

    /// Reads the types of content blocks, and the seals of a summary: a later request that begins with them continues
    /// this one.
    fn skipped(&mut self, event: &[u8]) {
        let head = &event[..event.len().min(96)];
        let may_be_start = memmem::find(head, b"content_block_start").is_some();
        if !may_be_start && !self.is_summary {
            return;
        }
        let Ok(event) = Object::of(event) else { return };
        let block = within(&event, "content_block");
        if let Some(block) = &block {
            self.is_summary = block.says("type", summary::KIND);
            self.has_run_tools |= is_of_own_tool(block);
        }
        if self.is_summary {
            let blocks = block.into_iter().chain(within(&event, "delta"));
            self.answer.seals.extend(blocks.flat_map(|block| summary::seals(&block)));
        }
    }

    fn event(&mut self, event: &Value<'_>) {
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                if let Some(message) = event.get("message") {
                    self.message(message);
                    let stated = self.usage.clone().finish().filter(|usage| !usage.prompt_is_unknown);
                    self.prompt_at_start =
                        stated.map(|usage| usage.tokens.prompt()).filter(|prompt| *prompt > 0);
                }
            }
            Some("message_delta") => {
                if let Some(delta) = event.get("delta") {
                    self.stop(delta);
                }
                self.figures(event);
            }
            Some("message_stop") => self.answer.complete = true,
            Some("error") => {
                self.answer.error = text(event, &["error", "message"]);
                self.answer.error_words = refusal::error_text(event);
            }
            _ => {}
        }
    }

    fn document(&mut self, document: &Value<'_>, bytes: &[u8]) {
        if let Some(error) = text(document, &["error", "message"]) {
            self.answer.error = Some(error);
            self.answer.error_words = refusal::error_text(document);
            return;
        }
        self.message(document);
        self.answer.complete = self.answer.stop.is_some();
        let stop = self.answer.stop.as_ref().map(Stop::word);
        let may_be_sealed = stop == Some(summary::KIND) || self.usage.prompt_is_cut;
        if may_be_sealed || !has_blocks_of_one_call(bytes, kind(document)) {
            self.blocks(bytes, may_be_sealed);
        }
    }

    fn is_over(&self) -> bool {
        self.answer.complete
    }

    fn answer(&mut self) -> Answer {
        if self.has_run_tools && self.usage.last_prompt.is_none() {
            self.usage.own = Some(self.prompt_at_start.map_or(OwnPrompt::Unknown, OwnPrompt::Some));
        }
        Answer { usage: std::mem::take(&mut self.usage).finish(), ..std::mem::take(&mut self.answer) }
    }
}

/// Whether a content block may come from a tool that the provider ran.
fn is_of_own_tool(block: &Object<'_>) -> bool {
    block.text("type").is_some_and(|kind| !OF_ONE_CALL.contains(&&*kind))
}

/// Whether all content blocks of a message are certainly of [`OF_ONE_CALL`]: nothing in it has another type, apart from
/// the message itself, whose type is given. A cheap check, so that most messages need not be read again for their
/// blocks.
fn has_blocks_of_one_call(message: &[u8], own_kind: Option<&str>) -> bool {
    const KEY: &[u8] = b"\"type\"";
    let mut own_kind = own_kind.map(str::as_bytes);
    memmem::find_iter(message, KEY).all(|at| {
        let value = message[at + KEY.len()..].trim_ascii_start().strip_prefix(b":");
        let literal = value.and_then(|value| value.trim_ascii_start().strip_prefix(b"\""));
        let Some(kind) = literal.and_then(|rest| rest.get(..memchr(b'"', rest)?)) else { return false };
        OF_ONE_CALL.iter().any(|known| known.as_bytes() == kind)
            || own_kind.take_if(|own| *own == kind).is_some()
    })
}

fn usage(figures: &Value<'_>) -> Partial {
    let word = |key: &str| figures.get(key).and_then(Value::as_str);
    Partial {
        reasoning: count(figures, &["output_tokens_details", "thinking_tokens"]).map(Reasoning::Inside),
        web_searches: count(figures, &["server_tool_use", "web_search_requests"]),
        last_prompt: own_calls(steps(figures)).last().and_then(prompt),
        largest_prompt: own_calls(steps(figures)).filter_map(prompt).max(),
        tier: word("service_tier").map(Tier::from_wire),
        speed: word("speed").map(Speed::from_wire),
        geo: word("inference_geo").map(Geo::from_wire),
        provider_cost: reader::stated_cost(figures),
        extra: figures.get("iterations").and_then(Value::as_list).map(extra),
        prompt_is_cut: steps(figures).iter().any(|step| kind(step) == Some("compaction")),
        ..with_write_split(counts(figures), steps(figures))
    }
}

/// Fills in how cache writes divide into those for 5 minutes and for 1 hour, from the figures of each call
/// (`iterations`), if `sum` does not state that and the calls add up to it. Later events of a stream state only the
/// total.
fn with_write_split(sum: Partial, steps: &[Value<'_>]) -> Partial {
    let calls: Vec<Partial> = own_calls(steps).map(counts).collect();
    let all = |of: fn(&Partial) -> Option<u64>| calls.iter().filter_map(of).fold(0, u64::saturating_add);
    let (short, long) = (all(|call| call.cache_write_5m), all(|call| call.cache_write_1h));
    let is_stated = sum.cache_write_5m.is_some() || sum.cache_write_1h.is_some();
    if is_stated || sum.cache_write != Some(short.saturating_add(long)) {
        return sum;
    }
    Partial { cache_write_5m: Some(short), cache_write_1h: Some(long), ..sum }
}

/// The figures that the answer as a whole and each of its model calls state in the same form.
fn counts(holder: &Value<'_>) -> Partial {
    Partial {
        prompt: count(holder, &["input_tokens"]).map(Prompt::Uncached),
        cache_read: count(holder, &["cache_read_input_tokens"]),
        cache_write: count(holder, &["cache_creation_input_tokens"]),
        cache_write_5m: count(holder, &["cache_creation", "ephemeral_5m_input_tokens"]),
        cache_write_1h: count(holder, &["cache_creation", "ephemeral_1h_input_tokens"]),
        output: count(holder, &["output_tokens"]),
        ..Partial::default()
    }
}

fn kind<'v>(step: &'v Value<'_>) -> Option<&'v str> {
    step.get("type").and_then(Value::as_str)
}

/// The model calls that an answer consists of, if they are stated.
fn steps<'v>(figures: &'v Value<'v>) -> &'v [Value<'v>] {
    figures.get("iterations").map(Value::items).unwrap_or_default()
}

/// Those of the model calls that the top-level figures are the sum of.
fn own_calls<'v>(steps: &'v [Value<'v>]) -> impl Iterator<Item = &'v Value<'v>> {
    let answering = steps.iter().rev().find_map(fallback);
    steps.iter().filter(move |step| match kind(step) {
        Some("fallback_message") => true,
        Some("message") => {
            let model = step.get("model").and_then(Value::as_str);
            answering.is_none() || model.is_none() || model == answering
        }
        _ => false,
    })
}

/// The prompt tokens of a model call, if they are stated.
fn prompt(call: &Value<'_>) -> Option<u64> {
    counts(call).prompt.is_some().then(|| tokens(call).prompt())
}

/// The model of a call that was made because another model had declined.
fn fallback<'v>(step: &'v Value<'_>) -> Option<&'v str> {
    step.get("model").and_then(Value::as_str).filter(|_| kind(step) == Some("fallback_message"))
}

/// The calls that are billed in addition to the top-level figures.
fn extra(steps: &[Value<'_>]) -> Vec<Extra> {
    let answering = steps.iter().rev().find_map(fallback);
    let is_extra = |step: &&Value<'_>| match kind(step) {
        Some("compaction" | "advisor_message") => true,
        Some("message") => answering.is_some_and(|answering| is_billed_decline(step, answering)),
        _ => false,
    };
    let extra = steps.iter().filter(is_extra);
    extra.map(|step| Extra { model: text(step, &["model"]), tokens: tokens(step) }).collect()
}

/// Whether a call is that of a model that declined, and is billed because it had begun to answer.
fn is_billed_decline(step: &Value<'_>, answering: &str) -> bool {
    let model = step.get("model").and_then(Value::as_str);
    model.is_some_and(|model| model != answering) && count(step, &["output_tokens"]).unwrap_or(0) > 0
}

fn tokens(step: &Value<'_>) -> Tokens {
    counts(step).finish().map(|usage| usage.tokens).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{Money, Usage};

    fn stream(events: &[&str]) -> Answer {
        let mut reader = reader(Framing::Events);
        for event in events {
            reader.push(format!("event: x\ndata: {event}\n\n").as_bytes());
        }
        reader.finish()
    }

    const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":12,"cache_creation_input_tokens":900,"cache_read_input_tokens":41000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":800},"output_tokens":1,"service_tier":"standard"}}}"#;

    #[test]
    fn stream_figures_are_merged_not_summed() {
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
        assert_eq!((answer.stop.as_ref().map(Stop::word), answer.complete), (Some("tool_use"), true));
    }

    /// The prompt size is known if a server states it late, or corrects it, and unknown if it never does.
    #[test]
    fn a_prompt_stated_as_zero_is_unknown_unless_corrected() {
        const NOTHING: &str = r#"{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}"#;
        const PROMPT: &str = r#"{"input_tokens":30,"cache_read_input_tokens":70,"output_tokens":0}"#;
        for (start, end, expected) in [
            (NOTHING, r#"{"input_tokens":30,"cache_read_input_tokens":70,"output_tokens":7}"#, Some(100)),
            (PROMPT, r#"{"input_tokens":0,"output_tokens":7}"#, Some(100)),
            (PROMPT, r#"{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":7}"#, Some(100)),
            (NOTHING, r#"{"output_tokens":7}"#, None),
            (NOTHING, r#"{"input_tokens":0,"output_tokens":7}"#, None),
            (NOTHING, NOTHING, Some(0)),
        ] {
            let answer = stream(&[
                &format!(r#"{{"type":"message_start","message":{{"id":"m","model":"m","usage":{start}}}}}"#),
                &format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{end}}}"#),
                r#"{"type":"message_stop"}"#,
            ]);
            let usage = answer.usage.unwrap();
            let found = (!usage.prompt_is_unknown).then(|| usage.tokens.prompt());
            assert_eq!(found, expected, "{start} {end}");
        }
    }

    /// The size of the prompt itself if the provider's own tools ran: the figures are then sums over several calls.
    #[test]
    fn sums_over_server_tool_calls_are_not_the_prompt_size() {
        const RAN: &str = r#","server_tool_use":{"web_search_requests":5,"web_fetch_requests":0}"#;
        const CODE: &str = r#","server_tool_use":{"web_search_requests":0,"code_execution_requests":1}"#;
        const NONE: &str = r#","server_tool_use":{"web_search_requests":0,"web_fetch_requests":0}"#;
        const CALLS: &str = r#","iterations":[{"type":"message","input_tokens":9,"cache_read_input_tokens":41},{"type":"message","input_tokens":9,"cache_read_input_tokens":81},{"type":"message","input_tokens":9,"cache_read_input_tokens":61}]"#;
        const TOOL: &str = r#","server_tool_use":{"web_search_requests":0,"tool_calls_executed":2}"#;
        let text = r#"{"type":"text","text":"\"type\":\"x\""}"#;
        let thought = r#"{"signature":"s","type":"redacted_thinking"},{"type":"thinking","thinking":""}"#;
        let called = r#"{"type":"tool_use","id":"t","name":"f","input":{"type":"mcp_tool_use"}}"#;
        let noted = r#"{"type":"compaction","content":"so far"},{"type":"fallback"},{"untyped":true}"#;
        let code = r#"{"type":"server_tool_use","id":"s","name":"bash_code_execution","input":{}}"#;
        let result = r#"{"tool_use_id":"s","content":[],"type":"bash_code_execution_tool_result"}"#;
        let server = r#"{"type":"mcp_tool_use","id":"s","name":"e","server_name":"m","input":{}}"#;
        let future = r#"{"type":"from_the_future"}"#;
        let (spaced, escaped) = (r#"{ "type" : "mcp_tool_use" }"#, r#"{"type":"te\u0078t"},{"name":"type"}"#);
        // The message has this type too.
        let alike = r#"{"type":"message"}"#;
        for (served, blocks, streamed, whole) in [
            ("", text, Some(600), Some(600)),
            (NONE, text, Some(600), Some(600)),
            (NONE, thought, Some(600), Some(600)),
            (NONE, called, Some(600), Some(600)),
            (NONE, noted, Some(600), Some(600)),
            (RAN, text, Some(100), None),
            (CODE, text, Some(100), None),
            (TOOL, text, Some(100), None),
            (NONE, code, Some(100), None),
            ("", result, Some(100), None),
            ("", server, Some(100), None),
            ("", future, Some(100), None),
            ("", spaced, Some(100), None),
            ("", escaped, Some(600), Some(600)),
            ("", alike, Some(100), None),
            (&format!("{RAN}{CALLS}"), code, Some(70), Some(70)),
        ] {
            let figures =
                format!(r#"{{"input_tokens":50,"cache_read_input_tokens":550,"output_tokens":7{served}}}"#);
            let mut reader = reader(Framing::Document);
            reader.push(
                format!(
                    r#"{{"id":"m","type":"message","model":"m","content":[{text},{blocks}],"stop_reason":"end_turn","usage":{figures}}}"#
                )
                .as_bytes(),
            );
            let start = |usage: &str| {
                format!(r#"{{"type":"message_start","message":{{"id":"m","model":"m","usage":{usage}}}}}"#)
            };
            let blocks: Vec<serde_json::Value> = serde_json::from_str(&format!("[{text},{blocks}]")).unwrap();
            let block =
                |block| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
            let blocks: Vec<String> = blocks.iter().map(block).collect();
            let end = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{figures}}}"#
            );
            let stream = |usage: &str| {
                let start = start(usage);
                let blocks = blocks.iter().map(String::as_str);
                let events = [&*start].into_iter().chain(blocks).chain([&*end, r#"{"type":"message_stop"}"#]);
                stream(&events.collect::<Vec<_>>()).usage.unwrap()
            };
            let opened = stream(r#"{"input_tokens":40,"cache_read_input_tokens":60,"output_tokens":1}"#);
            assert_eq!(opened.own_tokens(), streamed, "{figures} {blocks:?}");
            // Some servers state nothing at the beginning.
            let silent = stream(r#"{"input_tokens":0,"output_tokens":0}"#);
            assert_eq!(silent.own_tokens(), whole, "{figures} {blocks:?}");
            let usage = reader.finish().usage.unwrap();
            assert_eq!(usage.own_tokens(), whole, "{figures} {blocks:?}");
            assert_eq!(usage.largest_prompt(), if served.contains("iterations") { Some(90) } else { whole });
            // The billed prompt tokens are the sum of all calls.
            assert_eq!([usage, opened, silent].map(|usage| usage.tokens.prompt()), [600; 3], "{figures}");
        }
    }

    #[test]
    fn the_last_stream_figures_count() {
        const END: &str = r#"{"type":"message_stop"}"#;
        const NO: &str = r#"{"type":"error","error":{"type":"api_error","message":"no"}}"#;
        let delta = |usage: &str| {
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#)
        };
        let (less, more) =
            (delta(r#"{"output_tokens":5}"#), delta(r#"{"input_tokens":12,"output_tokens":7}"#));
        for (events, output, complete, error) in [
            (&[&*less, &more, END][..], 7, true, None),
            (&[&more, &less, END], 5, true, None),
            (&[&more, &more, END], 7, true, None),
            (&[&more, END, &less], 5, true, None),
            (&[&more, &delta("null"), END], 7, true, None),
            (&[&more, &delta("{}"), END], 7, true, None),
            (&[&more], 7, false, None),
            (&[&less, NO, &more], 7, false, Some("no")),
            (&[&more, START, &less, END], 5, true, None),
        ] {
            let answer = stream(&[&[START], events].concat());
            let tokens = answer.usage.expect("figures").tokens;
            assert_eq!((tokens.prompt(), tokens.output), (41_912, output), "{events:?}");
            assert_eq!((answer.complete, answer.error.as_deref()), (complete, error), "{events:?}");
        }
    }

    #[test]
    fn a_truncated_stream_keeps_its_figures_and_error() {
        let answer = stream(&[START]);
        assert_eq!(answer.usage.map(|usage| usage.tokens.output), Some(1));
        assert!(!answer.complete);
        let answer = stream(&[
            START,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ]);
        assert_eq!((answer.error.as_deref(), answer.complete), (Some("Overloaded"), false));
    }

    /// A stream may list them again at its end.
    #[test]
    fn dropped_reasoning_listed_twice_is_counted_once() {
        const DROPPED: &str =
            r#""input_transformations":[{"type":"thinking_dropped"},{"type":"thinking_dropped"}]"#;
        let start = format!(r#"{{"type":"message_start","message":{{"id":"m",{DROPPED}}}}}"#);
        let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},{DROPPED}}}"#);
        for events in [&[&*start][..], &[&end], &[&start, &end]] {
            assert_eq!(stream(events).reasoning_dropped, 2, "{events:?}");
        }
    }

    #[test]
    fn calls_beside_the_answer_are_billed_as_extra() {
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

    /// Each call is billed at its model's price. A call that declined without output is not billed.
    #[test]
    fn output_of_a_declining_model_is_billed_at_its_own_price() {
        const STARTS: &str = r#"{"type":"message_start","message":{"id":"m","model":"fable","usage":{"input_tokens":12,"cache_read_input_tokens":3,"output_tokens":1}}}"#;
        const ENDS: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":STATED}"#;
        let call = |input, output| Tokens { input, output, ..Tokens::default() };
        let fable = |output| Extra { model: Some("fable".into()), tokens: call(95, output) };
        let declines = |output: u64| {
            format!(r#"{{"type":"message","model":"fable","input_tokens":95,"output_tokens":{output}}},"#)
        };
        let earlier = r#"{"type":"message","model":"opus","input_tokens":8,"output_tokens":2},"#;
        for (before, expected) in [
            (declines(299), &[fable(299)][..]),
            (declines(0), &[]),
            (declines(4) + earlier, &[fable(4)]),
            (earlier.to_owned(), &[]),
        ] {
            let stated = format!(
                r#"{{"input_tokens":20,"cache_read_input_tokens":0,"output_tokens":5,"iterations":[{before}{{"type":"fallback_message","model":"opus","input_tokens":18,"output_tokens":5}}]}}"#
            );
            let whole = format!(r#"{{"id":"m","model":"opus","stop_reason":"end_turn","usage":{stated}}}"#);
            let mut document = reader(Framing::Document);
            document.push(whole.as_bytes());
            let streamed = stream(&[STARTS, &ENDS.replace("STATED", &stated)]);
            for answer in [document.finish(), streamed] {
                let usage = answer.usage.unwrap();
                assert_eq!((answer.model.as_deref(), usage.tokens), (Some("opus"), call(20, 5)), "{before}");
                assert_eq!((&*usage.extra, usage.last_prompt), (expected, Some(18)), "{before}");
                assert_eq!(usage.largest_prompt, Some(18), "{before}");
            }
        }
    }

    /// The end of a stream reports what the provider has removed from the history itself.
    #[test]
    fn prompts_edited_by_the_provider_are_recognised() {
        for (edits, steps, expected) in [
            ("[]", "[]", false),
            (
                r#"[{"type":"clear_tool_uses_20250919","cleared_tool_uses":8,"cleared_input_tokens":50000}]"#,
                "[]",
                true,
            ),
            (r#"[{"type":"clear_thinking_20251015","cleared_thinking_turns":3}]"#, "[]", false),
            ("null", r#"[{"type":"compaction","input_tokens":9,"output_tokens":1}]"#, true),
        ] {
            let figures = format!(r#"{{"input_tokens":9,"output_tokens":5,"iterations":{steps}}}"#);
            let made = format!(r#""context_management":{{"applied_edits":{edits}}}"#);
            let end = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{figures},{made}}}"#
            );
            let whole =
                format!(r#"{{"id":"m","model":"c","stop_reason":"end_turn","usage":{figures},{made}}}"#);
            let mut document = reader(Framing::Document);
            document.push(whole.as_bytes());
            for answer in [document.finish(), stream(&[START, &end])] {
                assert_eq!(answer.usage.map(|usage| usage.prompt_is_cut), Some(expected), "{end}");
            }
        }
    }

    /// At the end of a stream, the sum of several calls has no lifetimes, but the calls have.
    #[test]
    fn cache_write_lifetimes_are_summed_from_iterations() {
        let call = |kind: &str, model: &str, short: u64, long: u64| {
            let written = short + long;
            format!(
                r#"{{"type":"{kind}"{model},"input_tokens":1,"cache_creation_input_tokens":{written},"output_tokens":5,"cache_creation":{{"ephemeral_5m_input_tokens":{short},"ephemeral_1h_input_tokens":{long}}}}}"#
            )
        };
        let own = |short, long| call("message", "", short, long);
        let (declined, answering) = (r#","model":"fable""#, r#","model":"opus""#);
        for (calls, written, expected, untold) in [
            (vec![own(0, 800), own(0, 600)], 1400, (0, 1400), 0),
            (vec![own(100, 800), own(50, 0)], 950, (150, 800), 0),
            // Calls that do not belong to the answer are not part of the sum.
            (vec![call("compaction", "", 0, 7000), own(100, 800)], 900, (100, 800), 0),
            (
                vec![call("message", declined, 0, 7000), call("fallback_message", answering, 900, 0)],
                900,
                (900, 0),
                0,
            ),
            // Calls that do not add up to the reported figure are ignored.
            (vec![own(0, 600)], 1400, (600, 800), 500),
            (vec![], 1400, (600, 800), 500),
        ] {
            let end = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{"cache_creation_input_tokens":{written},"output_tokens":9,"iterations":[{}]}}}}"#,
                calls.join(",")
            );
            let usage = stream(&[START, &end]).usage.unwrap();
            let found = (usage.tokens.cache_write_5m, usage.tokens.cache_write_1h);
            assert_eq!((found, usage.cache_write_untold), (expected, untold), "{end}");
        }
    }

    #[test]
    fn the_stated_cost_of_a_reseller_is_kept_exactly() {
        const START: &str = r#"{"type":"message_start","message":{"id":"m","model":"glm","usage":{"input_tokens":0,"output_tokens":0}}}"#;
        for (stated, expected) in [
            (r#""cost":0.00012345"#, Some("0.00012345")),
            (
                r#""cost":0.0002,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0045}"#,
                Some("0.0047"),
            ),
            (r#""cost_in_usd_ticks":37756000"#, Some("0.0037756")),
            (r#""cost":null"#, None),
        ] {
            let figures = format!(r#"{{"input_tokens":9,"output_tokens":5,{stated}}}"#);
            let whole = format!(r#"{{"id":"m","model":"glm","stop_reason":"end_turn","usage":{figures}}}"#);
            let end = format!(r#"{{"type":"message_delta","delta":{{}},"usage":{figures}}}"#);
            let mut document = reader(Framing::Document);
            document.push(whole.as_bytes());
            for answer in [document.finish(), stream(&[START, &end])] {
                let expected = expected.map(|usd| Money::from_usd_str(usd).unwrap());
                assert_eq!(answer.usage.unwrap().provider_cost, expected, "{stated}");
            }
        }
    }

    #[test]
    fn unreadable_answers_yield_nothing() {
        for text in ["", "{", "[]", "null", "{\"usage\":3}", "{\"usage\":{\"input_tokens\":-1}}"] {
            let mut reader = reader(Framing::Document);
            reader.push(text.as_bytes());
            assert_eq!(reader.finish(), Answer::default(), "{text}");
        }
    }
}
