//! Reads the usage and the end of answers.
//!
//! An answer that is not streamed is the response itself. In a stream, some events carry the whole response; the last
//! one has the usage and is the only end mark. The server of `ChatGPT` leaves out the items there, so that only the
//! events of their own have them.
//!
//! If the provider's own tools ran, the figures are a sum over all calls of the model, each of which read the prompt
//! again: see <https://community.openai.com/t/massive-input-token-inflation-50x-with-o3-web-search/1317167>.
//! Which tools a provider runs is not known, but which items do not come from them is.

use memchr::memmem;

use super::dialect::DIALECT;
use crate::protocol::pruned::Value;
use crate::protocol::reader::{self, AnswerVisitor, count, text};
use crate::protocol::{Answer, AnswerReader, Framing, openai, refusal};
use crate::usage::{Charge, OwnPrompt, Partial, Prompt, Reasoning, Tier};

/// The events that end a stream, without the `"response.` that they begin with.
const ENDINGS: &[&[u8]] = &[b"completed\"", b"incomplete\"", b"failed\"", b"done\"", b"cancelled\""];

/// The event with a whole item of a stream, written in the same way.
const ITEM_DONE: &[u8] = b"output_item.done\"";

/// Types of items that one call of the model yields, or that the provider adds before it: what the model writes, and
/// calls that the client answers. With any other the provider itself may have answered a call, and have called the
/// model again.
const OF_ONE_CALL: &[&str] = &[
    "message",
    "reasoning",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
    "program",
    "mcp_list_tools",
    "mcp_approval_request",
];

/// The `object` of a compacted history.
const COMPACTION: &str = "response.compaction";

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Responses::default())
}

#[derive(Default)]
struct Responses {
    answer: Answer,
    usage: Partial,
    /// The charges that items show.
    charges: Vec<Charge>,
    /// Whether the provider's own tools ran.
    has_run_tools: bool,
}

impl Responses {
    /// Reads a response, whole or as an event states it.
    fn response(&mut self, response: &Value<'_>) {
        for (kept, key) in [(&mut self.answer.id, "id"), (&mut self.answer.model, "model")] {
            if let Some(word) = text(response, &[key]) {
                *kept = Some(word);
            }
        }
        let status = text(response, &["status"]);
        match status.as_deref() {
            Some("completed" | "incomplete") => {
                self.answer.complete = true;
                let reason = text(response, &["incomplete_details", "reason"]);
                self.answer.stop = reason.or(status).map(|word| DIALECT.stop(word));
            }
            Some("failed" | "cancelled") => self.answer.stop = status.map(|word| DIALECT.stop(word)),
            // A compacted history has no status: without an error it is complete.
            None if text(response, &["object"]).as_deref() == Some(COMPACTION) => self.answer.complete = true,
            _ => {}
        }
        reader::take_error(&mut self.answer, response);
        let items = response.get("output").map(Value::items).unwrap_or_default();
        if !items.is_empty() {
            self.charges.clear();
        }
        // A compacted history repeats items of the history.
        if text(response, &["object"]).as_deref() != Some(COMPACTION) {
            for item in items {
                self.item(item);
            }
        }
        if let Some(figures) = response.get("usage").filter(|figures| figures.is_object()) {
            self.usage.fold(usage(figures));
            self.usage.tier = text(response, &["service_tier"]).map(|tier| Tier::from_wire(&tier));
            self.usage.web_searches = count(response, &["tool_usage", "web_search", "num_requests"]);
        }
        let changes = response.get("input_transformations").map(Value::items).unwrap_or_default();
        let removed: Vec<&Value<'_>> = changes.iter().filter(|change| is_removed(change)).collect();
        let unbound = removed.iter().filter(|change| is_unbound(change)).count();
        self.answer.reasoning_dropped = self.answer.reasoning_dropped.max(removed.len() as u32);
        self.answer.reasoning_unbound = self.answer.reasoning_unbound.max(unbound as u32);
    }

    /// Reads an item of the output. A stream shows each twice, unless its last event leaves them out.
    fn item(&mut self, item: &Value<'_>) {
        self.charges.extend(charge(item));
        self.has_run_tools |= is_of_own_tool(item);
    }
}

impl AnswerVisitor for Responses {
    fn is_relevant(&self, event: &[u8]) -> bool {
        let ends = |at: usize| {
            let rest = &event[at + b"\"response.".len()..];
            ENDINGS.iter().chain([&ITEM_DONE]).any(|ending| rest.starts_with(ending))
        };
        self.answer.id.is_none()
            || memmem::find_iter(event, b"\"response.").any(ends)
            || memmem::find(event, b"\"error\"").is_some()
    }

    fn event(&mut self, event: &Value<'_>) {
        match event.get("response") {
            Some(response) => self.response(response),
            None => match text(event, &["type"]).as_deref() {
                Some("error") => {
                    self.answer.error = reader::error(event).or_else(|| text(event, &["message"]));
                    self.answer.error_words = refusal::error_text(event);
                }
                Some("response.output_item.done") => {
                    if let Some(item) = event.get("item") {
                        self.item(item);
                    }
                }
                _ => {}
            },
        }
    }

    fn document(&mut self, document: &Value<'_>, _: &[u8]) {
        self.response(document);
        let status = text(document, &["status"]);
        self.answer.pending = matches!(status.as_deref(), Some("queued" | "in_progress"));
    }

    fn is_over(&self) -> bool {
        self.answer.complete
    }

    fn answer(&mut self) -> Answer {
        let searches = self.charges.iter().filter(|charge| **charge == Charge::WebSearch);
        self.usage.searches_shown = Some(searches.count() as u64);
        self.usage.unpriced.append(&mut self.charges);
        if self.has_run_tools {
            self.usage.own = Some(OwnPrompt::Unknown);
        }
        Answer { usage: std::mem::take(&mut self.usage).finish(), ..std::mem::take(&mut self.answer) }
    }
}

/// What the provider charges for separately, if an item shows such an action of its own.
fn charge(item: &Value<'_>) -> Option<Charge> {
    match item.get("type")?.as_str()? {
        "web_search_call" => is_search(item).then_some(Charge::WebSearch),
        "file_search_call" => Some(Charge::FileSearch),
        // A shell that the client runs has no output in an answer.
        "code_interpreter_call" | "shell_call_output" => Some(Charge::CodeExecution),
        "image_generation_call" => Some(Charge::ImageGeneration),
        _ => None,
    }
}

/// Whether an item may come from a tool that the provider ran. Its tool search has the same types of items as a
/// client's. An item without a type is a message.
fn is_of_own_tool(item: &Value<'_>) -> bool {
    match item.get("type").and_then(Value::as_str) {
        Some("tool_search_call" | "tool_search_output") => {
            text(item, &["execution"]).as_deref() == Some("server")
        }
        Some(kind) => !OF_ONE_CALL.contains(&kind),
        None => false,
    }
}

/// Whether a call is a search. Opening a page, or searching in it, is not charged for.
fn is_search(call: &Value<'_>) -> bool {
    let action = text(call, &["action", "type"]);
    !matches!(action.as_deref(), Some("open_page" | "find_in_page"))
}

fn is_removed(change: &Value<'_>) -> bool {
    let says = |key, word| text(change, &[key]).as_deref() == Some(word);
    says("type", "reasoning") && says("action", "removed")
}

/// Whether a reasoning item was dropped because the text before it has changed, which also drops all later ones. Other
/// reasons concern single items only.
fn is_unbound(change: &Value<'_>) -> bool {
    text(change, &["reason"]).is_none_or(|reason| reason == "prefix_mismatch")
}

fn usage(figures: &Value<'_>) -> Partial {
    let detail = |key| count(figures, &["input_tokens_details", key]);
    let kept = |key| count(figures, &["input_tokens_details", "cache_write_tokens_details", key]);
    // Gateways that translate from other dialects use another name.
    let written = reader::first_count(
        figures,
        &[
            &["input_tokens_details", "cache_write_tokens"],
            &["input_tokens_details", "cache_creation_tokens"],
        ],
    );
    Partial {
        prompt: count(figures, &["input_tokens"]).map(Prompt::Total),
        cache_read: detail("cached_tokens"),
        cache_write: written,
        cache_write_5m: kept("ttl_30m_tokens"),
        cache_write_12h: kept("ttl_12h_tokens"),
        output: count(figures, &["output_tokens"]),
        total: count(figures, &["total_tokens"]),
        reasoning: count(figures, &["output_tokens_details", "reasoning_tokens"]).map(Reasoning::Inside),
        provider_cost: reader::stated_cost(figures),
        unpriced: openai::unpriced(figures),
        own: openai::has_run_tools(figures).then_some(OwnPrompt::Unknown),
        audio_input: detail("audio_tokens"),
        media_output: count(figures, &["output_tokens_details", "audio_tokens"]),
        ..Partial::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stop;
    use crate::usage::Tokens;

    const FIGURES: &str = r#"{"input_tokens":5000,"input_tokens_details":{"cached_tokens":4096,"cache_write_tokens":512,"cache_write_tokens_details":{"ttl_30m_tokens":500,"ttl_12h_tokens":12}},"output_tokens":200,"output_tokens_details":{"reasoning_tokens":120},"total_tokens":5200}"#;

    const TOKENS: Tokens = Tokens {
        input: 392,
        cache_read: 4096,
        cache_write_5m: 500,
        cache_write_1h: 0,
        cache_write_12h: 12,
        output: 200,
        reasoning: 120,
    };

    fn answer(framing: Framing, text: &str) -> Answer {
        let mut reader = reader(framing);
        for piece in text.as_bytes().chunks(7) {
            reader.push(piece);
        }
        reader.finish()
    }

    fn response(status: &str, rest: &str) -> String {
        format!(
            r#"{{"id":"resp_1","status":"{status}","model":"gpt-x","error":null,"service_tier":"flex"{rest}}}"#
        )
    }

    fn stream(end: &str, response: &str) -> String {
        let start = r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","model":"gpt-x","error":null,"usage":null}}"#;
        format!(
            "event: response.created\ndata: {start}\n\n\
             data: {{\"type\":\"response.output_text.delta\",\"delta\":\"\\\"response.completed\\\"\"}}\n\n\
             event: {end}\ndata: {{\"response\":{response},\"sequence_number\":9,\"type\":\"{end}\"}}\n\n"
        )
    }

    /// A stream that ends before its answer does has broken off.
    #[test]
    fn unfinished_documents_are_pending_but_not_streams() {
        for (status, pending) in
            [("queued", true), ("in_progress", true), ("completed", false), ("failed", false)]
        {
            let response = response(status, r#","usage":null"#);
            let stream = stream(&format!("response.{status}"), &response);
            for (framing, text, pending) in
                [(Framing::Document, &response, pending), (Framing::Events, &stream, false)]
            {
                let answer = answer(framing, text);
                assert_eq!((answer.pending, answer.usage), (pending, None), "{text}");
            }
        }
    }

    /// Some servers have a type of their own for the last event, and leave out members that are null.
    #[test]
    fn other_final_event_types_are_read() {
        for (end, status, complete) in
            [("response.done", "completed", true), ("response.cancelled", "cancelled", false)]
        {
            let response = format!(r#"{{"id":"resp_1","status":"{status}","usage":{FIGURES}}}"#);
            let answer = answer(Framing::Events, &stream(end, &response));
            assert_eq!(answer.usage.as_ref().map(|usage| usage.tokens), Some(TOKENS), "{end}");
            assert_eq!(
                (answer.stop.as_ref().map(Stop::word), answer.complete),
                (Some(status), complete),
                "{end}"
            );
        }
    }

    /// A completed response with these items, in all forms: as a document, and as streams whose last event alone has
    /// the items, repeats them, or leaves them out.
    fn forms(items: &str, rest: &str) -> [(Framing, String); 4] {
        let whole = response("completed", &format!(r#","output":[{items}]{rest}"#));
        let ends = stream("response.completed", &whole);
        let without = stream("response.completed", &response("completed", &format!(r#","output":[]{rest}"#)));
        let items: Vec<serde_json::Value> = serde_json::from_str(&format!("[{items}]")).unwrap();
        let event = |word: &str, item| {
            format!(
                "data: {{\"type\":\"response.output_item.{word}\",\"output_index\":0,\"item\":{item}}}\n\n"
            )
        };
        let events: String = items.iter().map(|item| event("added", item) + &event("done", item)).collect();
        let (twice, apart) = (events.clone() + &ends, events + &without);
        let streams = [ends, twice, apart].map(|stream| (Framing::Events, stream));
        let [ends, twice, apart] = streams;
        [(Framing::Document, whole), ends, twice, apart]
    }

    /// If the provider's own tools ran, the size of the prompt itself is unknown. They did if an item shows it that is
    /// not known to come from a single call of the model.
    #[test]
    fn sums_over_server_tool_calls_are_not_the_prompt_size() {
        for (output, expected) in [
            ("", Some(5000)),
            (r#"{"type":"message","content":[]}"#, Some(5000)),
            (r#"{"role":"assistant","content":[]}"#, Some(5000)),
            (r#"{"type":"reasoning"},{"type":"compaction"}"#, Some(5000)),
            (r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#, Some(5000)),
            (r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}"#, Some(5000)),
            (r#"{"type":"shell_call","call_id":"c","action":{}},{"type":"local_shell_call"}"#, Some(5000)),
            (r#"{"type":"apply_patch_call"},{"type":"computer_call"}"#, Some(5000)),
            (r#"{"type":"tool_search_output","call_id":"c","execution":"client","tools":[]}"#, Some(5000)),
            (r#"{"type":"mcp_list_tools","tools":[]},{"type":"mcp_approval_request"}"#, Some(5000)),
            (r#"{"type":"web_search_call","id":"w","status":"completed"},{"type":"message"}"#, None),
            (r#"{"type":"reasoning"},{"type":"code_interpreter_call"}"#, None),
            (r#"{"type":"mcp_call","output":"x"}"#, None),
            (r#"{"type":"tool_search_output","call_id":null,"execution":"server","tools":[]}"#, None),
            (r#"{"type":"shell_call","call_id":"c"},{"type":"shell_call_output","call_id":"c"}"#, None),
            (r#"{"type":"function_call","call_id":"c"},{"type":"function_call_output","call_id":"c"}"#, None),
            (r#"{"type":"x_search_call"},{"type":"message"}"#, None),
            (r#"{"type":"openrouter:web_search"}"#, None),
        ] {
            for (framing, text) in forms(output, &format!(r#","usage":{FIGURES}"#)) {
                let usage = answer(framing, &text).usage.unwrap();
                assert_eq!((usage.own_tokens(), usage.tokens), (expected, TOKENS), "{text}");
            }
        }
        let listed = r#"{"type":"function_call_output","output":"x"},{"type":"web_search_call"},{"type":"compaction"}"#;
        let compacted =
            format!(r#"{{"object":"response.compaction","output":[{listed}],"usage":{FIGURES}}}"#);
        let usage = answer(Framing::Document, &compacted).usage.unwrap();
        assert_eq!((usage.own_tokens(), usage.unpriced), (Some(5000), vec![]));
    }

    /// xAI's own tools look like those of the client, but are counted.
    #[test]
    fn counted_server_tools_make_the_figures_a_sum() {
        const CALL: &str =
            r#"{"type":"custom_tool_call","call_id":"c","name":"x_keyword_search","input":"{}"}"#;
        for (counts, expected) in [
            ("", Some(5000)),
            (
                r#","num_server_side_tools_used":0,"server_side_tool_usage_details":{"mcp_calls":0}"#,
                Some(5000),
            ),
            (r#","num_server_side_tools_used":2"#, None),
            (r#","server_side_tool_usage_details":{"web_search_calls":0,"mcp_calls":2}"#, None),
            (r#","server_tool_use_details":{"tool_calls_requested":3,"tool_calls_executed":3}"#, None),
        ] {
            let figures = FIGURES.replacen(r#","total_tokens""#, &format!(r#"{counts},"total_tokens""#), 1);
            for (framing, text) in forms(CALL, &format!(r#","usage":{figures}"#)) {
                let usage = answer(framing, &text).usage.unwrap();
                assert_eq!((usage.own_tokens(), usage.tokens), (expected, TOKENS), "{text}");
            }
        }
    }

    #[test]
    fn final_statuses_are_read() {
        let usage = format!(r#","usage":{FIGURES}"#);
        let cut = format!(r#","incomplete_details":{{"reason":"max_output_tokens"}}{usage}"#);
        for (status, rest, stop, complete) in [
            ("completed", &usage, "completed", true),
            ("incomplete", &cut, "max_output_tokens", true),
            ("failed", &usage, "failed", false),
        ] {
            let response = response(status, rest);
            let stream = stream(&format!("response.{status}"), &response);
            for (framing, text) in [(Framing::Document, &response), (Framing::Events, &stream)] {
                let answer = answer(framing, text);
                assert_eq!(answer.usage.as_ref().map(|usage| usage.tokens), Some(TOKENS), "{text}");
                assert_eq!(answer.usage.map(|usage| usage.tier), Some(Tier::Flex), "{text}");
                assert_eq!(
                    (answer.stop.as_ref().map(Stop::word), answer.complete),
                    (Some(stop), complete),
                    "{text}"
                );
                assert_eq!((answer.id.as_deref(), answer.model.as_deref()), (Some("resp_1"), Some("gpt-x")));
                assert_eq!((answer.error, answer.reasoning_dropped), (None, 0), "{text}");
            }
        }
    }

    #[test]
    fn cache_creation_tokens_are_cache_writes() {
        for details in [
            r#"{"cached_tokens":80,"cache_creation_tokens":5}"#,
            r#"{"cached_tokens":80,"cache_write_tokens":5,"cache_creation_tokens":5}"#,
            r#"{"cached_tokens":80,"cache_write_tokens":0,"cache_creation_tokens":5}"#,
        ] {
            let usage = format!(
                r#","usage":{{"input_tokens":100,"input_tokens_details":{details},"output_tokens":7}}"#
            );
            let tokens = answer(Framing::Document, &response("completed", &usage)).usage.unwrap().tokens;
            let expected =
                Tokens { input: 15, cache_read: 80, cache_write_5m: 5, output: 7, ..Tokens::default() };
            assert_eq!(tokens, expected, "{details}");
        }
    }

    #[test]
    fn the_last_stream_figures_count() {
        let figures = |output| format!(r#","usage":{{"input_tokens":9,"output_tokens":{output}}}"#);
        let ends = |word: &str, rest: &str| stream(&format!("response.{word}"), &response(word, rest));
        let no = "data: {\"type\":\"error\",\"message\":\"no\"}\n\n";
        let whole = ends("completed", &figures(7));
        for (text, output, complete, error) in [
            (ends("completed", &figures(5)) + &whole, 7, true, None),
            (whole.clone() + &ends("completed", &figures(5)), 5, true, None),
            (whole.clone() + "data: [DONE]\n\n", 7, true, None),
            (whole.clone() + &ends("completed", r#","usage":null"#), 7, true, None),
            (whole.trim_end().to_owned(), 7, true, None),
            (ends("failed", &figures(5)), 5, false, None),
            (whole + no, 7, true, Some("no")),
        ] {
            let answer = answer(Framing::Events, &text);
            let tokens = answer.usage.expect("figures").tokens;
            assert_eq!((tokens.prompt(), tokens.output), (9, output), "{text}");
            assert_eq!((answer.complete, answer.error.as_deref()), (complete, error), "{text}");
        }
    }

    #[test]
    fn a_compaction_answer_is_complete() {
        let text = format!(
            r#"{{"id":"resp_1","object":"response.compaction","output":[{{"type":"compaction"}}],"usage":{FIGURES}}}"#
        );
        let answer = answer(Framing::Document, &text);
        assert_eq!(answer.usage.map(|usage| usage.tokens), Some(TOKENS));
        assert_eq!((answer.id.as_deref(), answer.complete), (Some("resp_1"), true));
    }

    #[test]
    fn removed_reasoning_listed_twice_is_counted_once() {
        let rest = r#","input_transformations":[{"type":"reasoning","id":"rs_1","action":"removed","reason":"prefix_mismatch"},{"type":"reasoning","action":"kept"},{"type":"reasoning","id":"rs_3","action":"removed","reason":"model_mismatch"},{"type":"image","action":"removed"}]"#;
        let response = response("completed", rest);
        let both = stream("response.in_progress", &response) + &stream("response.completed", &response);
        for (framing, text) in [(Framing::Events, both), (Framing::Document, response)] {
            let answer = answer(framing, &text);
            assert_eq!((answer.reasoning_dropped, answer.reasoning_unbound), (2, 1), "{text}");
        }
    }

    #[test]
    fn charges_for_server_tools_are_recognised() {
        let item = |kind: &str| format!(r#"{{"type":"{kind}","id":"x"}}"#);
        let acts = |action: &str| format!(r#"web_search_call","action":{{"type":"{action}"}},"of":""#);
        let with = |items: &[&str], more: &str| {
            let items: Vec<String> = items.iter().map(|kind| item(kind)).collect();
            forms(&items.join(","), &format!(r#","usage":{FIGURES}{more}"#))
        };
        let counted = r#","tool_usage":{"web_search":{"num_requests":2}}"#;
        for (forms, searches, expected) in [
            (with(&["message", "reasoning", "mcp_call"], ""), [0, 0], &[][..]),
            (with(&["web_search_call", "message", "web_search_call"], ""), [0, 2], &[Charge::WebSearch]),
            (with(&["web_search_call"], counted), [2, 0], &[]),
            (with(&[&acts("open_page"), &acts("find_in_page")], ""), [0, 0], &[]),
            (with(&[&acts("open_page"), &acts("search")], ""), [0, 1], &[Charge::WebSearch]),
            (
                with(&["image_generation_call", "code_interpreter_call", "file_search_call"], counted),
                [2, 0],
                &[Charge::FileSearch, Charge::CodeExecution, Charge::ImageGeneration],
            ),
            // The shell is the client's, unless the answer has its output.
            (with(&["shell_call"], ""), [0, 0], &[]),
            (with(&["shell_call", "shell_call_output"], ""), [0, 0], &[Charge::CodeExecution]),
        ] {
            for (framing, text) in forms {
                let usage = answer(framing, &text).usage.unwrap();
                let found = [usage.web_searches, usage.searches_shown];
                assert_eq!((found, &*usage.unpriced), (searches, expected), "{text}");
            }
        }
    }

    #[test]
    fn errors_are_read_from_events_and_documents() {
        let failed = response("failed", "").replace(
            "\"error\":null",
            r#""error":{"code":"context_length_exceeded","message":"Your input exceeds …"}"#,
        );
        let event = r#"{"type":"error","code":"server_error","message":"overloaded","param":null}"#;
        let nested = r#"{"type":"error","error":{"type":"server_error","message":"overloaded"}}"#;
        for (framing, text, expected) in [
            (Framing::Events, stream("response.failed", &failed), "Your input exceeds …"),
            (Framing::Events, format!("data: {event}\n\n"), "overloaded"),
            (
                Framing::Events,
                format!("{}data: {nested}\n\n", stream("response.in_progress", &response("queued", ""))),
                "overloaded",
            ),
            (
                Framing::Document,
                r#"{"error":{"message":"no","type":"invalid_request_error"}}"#.to_owned(),
                "no",
            ),
        ] {
            let answer = answer(framing, &text);
            assert_eq!((answer.error.as_deref(), answer.complete), (Some(expected), false), "{text}");
        }
    }

    #[test]
    fn a_truncated_stream_keeps_the_id_of_its_answer() {
        let whole = stream("response.completed", &response("completed", ""));
        let cut = &whole[..whole.find("event: response.completed").unwrap()];
        let answer = answer(Framing::Events, cut);
        assert_eq!((answer.id.as_deref(), answer.complete, answer.usage), (Some("resp_1"), false, None));
    }
}
