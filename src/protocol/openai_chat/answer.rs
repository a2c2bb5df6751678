//! Reads the usage and the end of answers, of OpenAI and of the servers that speak its dialect.
//!
//! Streams state cumulative usage in an extra chunk, in the last chunk or in every chunk: the last one counts. The
//! `usage` of a chunk has priority over other figures in it; the usage of a choice is that of this choice only.
//! Gateways that translate from other dialects report cache writes under those dialects' names, as a part of the
//! prompt.

use std::collections::BTreeMap;

use memchr::memmem;

use super::dialect::DIALECT;
use crate::protocol::pruned::Value;
use crate::protocol::reader::{self, AnswerVisitor, at, count, text};
use crate::protocol::{Answer, AnswerReader, Framing, openai};
use crate::usage::{self, Charge, OwnPrompt, Partial, Prompt, Reasoning, Tier};

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Completion::default())
}

#[derive(Default)]
struct Completion {
    answer: Answer,
    usage: Partial,
    /// The usage that each choice states, by the choice's number.
    by_choice: BTreeMap<u64, Partial>,
}

impl Completion {
    /// Reads an answer, or a chunk of a stream.
    fn read(&mut self, document: &Value<'_>) {
        if self.answer.id.is_none() {
            self.answer.id = text(document, &["id"]);
        }
        if let Some(model) = text(document, &["model"]) {
            self.answer.model = Some(model);
        }
        reader::take_error(&mut self.answer, document);
        // MiniMax reports errors with the status 200.
        let status = document.get("base_resp");
        if let Some(status) = status.filter(|status| count(status, &["status_code"]) > Some(0)) {
            self.answer.error = text(status, &["status_msg"]).or_else(|| Some(status.to_string()));
            self.answer.error_words =
                (count(status, &["status_code"]) == Some(BAD_PARAMETERS)).then(|| "code=400".to_owned());
        }
        let choices = document.get("choices").map(Value::items).unwrap_or_default();
        // Moonshot states usage inside the last chunk of each choice. Usage at the top level has priority.
        if !document.get("usage").is_some_and(Value::is_object) {
            self.read_usage_of(choices);
        }
        for choice in choices {
            self.usage.unpriced.extend(charges(choice));
            if !executed_tools(choice).is_empty() {
                self.usage.own = Some(OwnPrompt::Unknown);
            }
            if let Some(stop) = text(choice, &["finish_reason"]) {
                self.answer.complete = true;
                self.answer.stop = Some(DIALECT.stop(stop));
            }
        }
        if let Some(tier) = text(document, &["service_tier"]) {
            self.usage.tier = Some(Tier::from_wire(&tier));
        }
        if let Some(figures) = document.get("timings").and_then(usage_of_timings) {
            self.usage.fold(figures);
        }
        for path in [&["x_groq", "usage"][..], &["usage"]] {
            if let Some(figures) = at(document, path).filter(|figures| figures.is_object()) {
                self.usage.fold(usage(figures));
            }
        }
    }

    /// Reads the usage that choices state. Each choice is an answer of its own to the same prompt.
    fn read_usage_of(&mut self, choices: &[Value<'_>]) {
        let mut is_stated = false;
        for choice in choices {
            if let Some(figures) = choice.get("usage").filter(|figures| figures.is_object()) {
                let number = count(choice, &["index"]).unwrap_or(0);
                self.by_choice.entry(number).or_default().fold(usage(figures));
                is_stated = true;
            }
        }
        if is_stated {
            self.usage.fold(sum_of_choices(self.by_choice.values()));
        }
    }
}

/// `MiniMax`'s error code for an invalid request.
const BAD_PARAMETERS: u64 = 2013;

impl AnswerVisitor for Completion {
    fn is_relevant(&self, event: &[u8]) -> bool {
        self.answer.id.is_none()
            || memmem::find_iter(event, b"\"usage\"").any(|at| !is_null(&event[at + 7..]))
            || memmem::find_iter(event, b"\"finish_reason\"").any(|at| !is_null(&event[at + 15..]))
            || [&b"\"error\""[..], b"\"url_citation\"", b"\"executed_tools\""]
                .iter()
                .any(|word| memmem::find(event, word).is_some())
    }

    fn event(&mut self, event: &Value<'_>) {
        self.read(event);
    }

    fn literal(&mut self, word: &[u8]) {
        self.answer.complete |= word.trim_ascii() == b"[DONE]";
    }

    fn document(&mut self, document: &Value<'_>, _: &[u8]) {
        self.read(document);
        // A list of embeddings is a complete answer, and only its prompt is counted.
        if document.get("data").is_some_and(|data| data.as_list().is_some()) {
            self.answer.complete = true;
            if self.usage.prompt.is_some() || self.usage.total.is_some() {
                self.usage.output.get_or_insert(0);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.answer.complete
    }

    fn answer(&mut self) -> Answer {
        // Google counts its models' reasoning in the total only.
        if self.answer.model.as_deref().is_some_and(usage::is_gemini) {
            self.usage.reason_with_the_rest();
        }
        Answer { usage: std::mem::take(&mut self.usage).finish(), ..std::mem::take(&mut self.answer) }
    }
}

/// Charges for tools that the provider ran, as a choice shows them by cited pages and by Groq's list of tools.
fn charges(choice: &Value<'_>) -> impl Iterator<Item = Charge> + use<> {
    let cites = listed(choice, "annotations")
        .iter()
        .any(|annotation| text(annotation, &["type"]).as_deref() == Some("url_citation"));
    let is_own = |tool: &Value<'_>| !text(tool, &["type"]).is_some_and(|kind| openai::is_mcp(&kind));
    let has_run = executed_tools(choice).iter().any(is_own);
    let shown = [(cites, Charge::WebSearch), (has_run, Charge::ServerTools)];
    shown.into_iter().filter_map(|(is_shown, charge)| is_shown.then_some(charge))
}

/// The tools that Groq ran for a choice. The figures are then a sum over several calls of the model.
fn executed_tools<'v>(choice: &'v Value<'v>) -> &'v [Value<'v>] {
    listed(choice, "executed_tools")
}

/// A list in the message of a choice.
fn listed<'v>(choice: &'v Value<'v>, key: &str) -> &'v [Value<'v>] {
    let message = choice.get("message").or_else(|| choice.get("delta"));
    message.and_then(|message| message.get(key)).map(Value::items).unwrap_or_default()
}

/// Whether a member is null, given the bytes after its name.
fn is_null(rest: &[u8]) -> bool {
    rest.trim_ascii_start()
        .strip_prefix(b":")
        .is_some_and(|value| value.trim_ascii_start().starts_with(b"null"))
}

fn usage(figures: &Value<'_>) -> Partial {
    let first = |paths: &[&[&str]]| reader::first_count(figures, paths);
    let prompt = count(figures, &["prompt_tokens"]).or_else(|| {
        let hit = count(figures, &["prompt_cache_hit_tokens"])?;
        Some(hit.saturating_add(count(figures, &["prompt_cache_miss_tokens"])?))
    });
    // Some servers use the names of other dialects.
    let foreign_prompt = count(figures, &["input_tokens"]).filter(|_| prompt.unwrap_or(0) == 0);
    let output = first(&[&["completion_tokens"], &["output_tokens"]]);
    let cached = first(&[
        &["prompt_tokens_details", "cached_tokens"],
        &["prompt_cache_hit_tokens"],
        &["cached_tokens"],
        &["input_tokens_details", "cached_tokens"],
        &["cache_read_input_tokens"],
    ]);
    let written = first(&[
        &["prompt_tokens_details", "cache_write_tokens"],
        &["prompt_tokens_details", "cache_creation_tokens"],
        &["prompt_tokens_details", "cache_creation_input_tokens"],
        &["cache_creation_input_tokens"],
    ]);
    let reasoning = first(&[
        &["completion_tokens_details", "reasoning_tokens"],
        &["output_tokens_details", "reasoning_tokens"],
    ]);
    let total = count(figures, &["total_tokens"]);
    let prompt = foreign_prompt.or(prompt);
    let is_beside = is_reasoning_beside(prompt, output, reasoning, total);
    // With Anthropic's names, `input_tokens` leaves out what is cached, unless its details count cached tokens.
    let is_rest = foreign_prompt.is_some()
        && first(&[&["cache_read_input_tokens"], &["cache_creation_input_tokens"]]).is_some()
        && count(figures, &["input_tokens_details", "cached_tokens"]).unwrap_or(0) == 0;
    let lasting = |time: &str| {
        first(&[&["prompt_tokens_details", "cache_creation_token_details", time], &["cache_creation", time]])
    };
    Partial {
        prompt: prompt.map(if is_rest { Prompt::Uncached } else { Prompt::Total }),
        cache_read: cached,
        cache_write: written,
        output,
        total,
        cache_write_5m: lasting("ephemeral_5m_input_tokens"),
        cache_write_1h: lasting("ephemeral_1h_input_tokens"),
        // Vertex reports the tier here.
        tier: text(figures, &["extra_properties", "google", "traffic_type"])
            .map(|word| Tier::from_wire(&word)),
        web_searches: count(figures, &["server_tool_use", "web_search_requests"]),
        reasoning: reasoning.map(if is_beside { Reasoning::Beside } else { Reasoning::Inside }),
        provider_cost: reader::stated_cost(figures),
        unpriced: openai::unpriced(figures),
        own: openai::has_run_tools(figures).then_some(OwnPrompt::Unknown),
        audio_input: count(figures, &["prompt_tokens_details", "audio_tokens"]),
        media_output: count(figures, &["completion_tokens_details", "audio_tokens"]),
        ..Partial::default()
    }
}

/// The sum of the figures of choices, each of which states the usage of its own answer.
fn sum_of_choices<'p>(choices: impl Iterator<Item = &'p Partial>) -> Partial {
    choices.cloned().reduce(|one, other| sum(&one, other)).unwrap_or_default()
}

fn sum(one: &Partial, other: Partial) -> Partial {
    let both = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
    let reasoning = match (one.reasoning, other.reasoning) {
        (Some(Reasoning::Inside(one)), Some(Reasoning::Inside(other))) => {
            Some(Reasoning::Inside(one.saturating_add(other)))
        }
        (Some(Reasoning::Inside(one) | Reasoning::Beside(one)), Some(Reasoning::Beside(other)))
        | (Some(Reasoning::Beside(one)), Some(Reasoning::Inside(other))) => {
            Some(Reasoning::Beside(one.saturating_add(other)))
        }
        (one, other) => one.or(other),
    };
    // Each total includes the same prompt, so totals cannot be added.
    let own = one.own.or(other.own);
    Partial { output: both(one.output, other.output), total: None, reasoning, own, ..other }
}

/// The figures in llama.cpp's timings, which its server sends at the end of a stream even if usage was not asked for.
fn usage_of_timings(timings: &Value<'_>) -> Option<Partial> {
    let cached = count(timings, &["cache_n"])?;
    let prompt = count(timings, &["prompt_n"])?.saturating_add(cached);
    Some(Partial {
        prompt: Some(Prompt::Total(prompt)),
        cache_read: Some(cached),
        output: count(timings, &["predicted_n"]),
        ..Partial::default()
    })
}

/// Whether the total shows that the output figure does not include the reasoning tokens. Some servers state them apart.
fn is_reasoning_beside(
    prompt: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    total: Option<u64>,
) -> bool {
    match (prompt, output, reasoning, total) {
        (Some(prompt), Some(output), Some(reasoning), Some(total)) => {
            reasoning > 0 && total == prompt.saturating_add(output).saturating_add(reasoning)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stop;
    use crate::usage::Money;
    use crate::usage::Tokens;

    fn answer(framing: Framing, text: &str) -> Answer {
        let mut reader = reader(framing);
        for byte in text.as_bytes() {
            reader.push(&[*byte]);
        }
        reader.finish()
    }

    fn check(figures: &str, expected: Tokens) {
        let whole =
            format!(r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop"}}],"usage":{figures}}}"#);
        let stream = format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"delta\":{{}},\"finish_reason\":null}}],\"usage\":null}}\n\n\
             : comment\n\ndata: {{\"choices\":[{{\"finish_reason\":\"stop\"}}]}}\n\n\
             data: {{\"choices\":[],\"usage\":{figures}}}\n\ndata: [DONE]\n\n"
        );
        // Servers also declare streams as something else, begin them with a byte order mark, or indent the JSON.
        let marked = format!("\u{feff}{stream}");
        let indented = format!("\r\n{}", stream.replace("data: ", "data:  \t"));
        let by_line = stream.replace("\n\n", "\n");
        let asked =
            [(Framing::Document, whole), (Framing::Events, stream.clone()), (Framing::Document, stream)];
        let odd = [
            (Framing::Events, marked.clone()),
            (Framing::Document, marked),
            (Framing::Document, indented),
            (Framing::Events, by_line),
        ];
        for (framing, text) in asked.into_iter().chain(odd) {
            let answer = answer(framing, &text);
            assert_eq!(answer.usage.map(|usage| usage.tokens), Some(expected), "{text}");
            assert_eq!(
                (answer.complete, answer.stop.as_ref().map(Stop::word), answer.model.as_deref()),
                (true, Some("stop"), Some("m"))
            );
        }
    }

    #[test]
    fn usage_members_of_every_server_are_read() {
        check(
            r#"{"prompt_tokens":1200,"completion_tokens":80,"total_tokens":1280,"prompt_tokens_details":{"cached_tokens":1024,"cache_write_tokens":128},"completion_tokens_details":{"reasoning_tokens":32}}"#,
            Tokens {
                input: 48,
                cache_read: 1024,
                cache_write_5m: 128,
                output: 80,
                reasoning: 32,
                ..Tokens::default()
            },
        );
        check(
            r#"{"prompt_tokens":100,"completion_tokens":7,"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40}"#,
            Tokens { input: 40, cache_read: 60, output: 7, ..Tokens::default() },
        );
        check(
            r#"{"prompt_tokens":100,"completion_tokens":7,"total_tokens":157,"completion_tokens_details":{"reasoning_tokens":50}}"#,
            Tokens { input: 100, output: 57, reasoning: 50, ..Tokens::default() },
        );
        check(
            r#"{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":null,"cached_tokens":30}"#,
            Tokens { input: 70, cache_read: 30, output: 7, ..Tokens::default() },
        );
        check(
            r#"{"prompt_tokens":5000,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4000,"cache_creation_tokens":900,"cache_creation_token_details":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":800}},"cache_creation_input_tokens":900,"cache_read_input_tokens":4000}"#,
            Tokens {
                input: 100,
                cache_read: 4000,
                cache_write_5m: 100,
                cache_write_1h: 800,
                output: 7,
                ..Tokens::default()
            },
        );
        check(
            r#"{"prompt_tokens":5000,"completion_tokens":7,"cache_read_input_tokens":4000,"cache_creation_input_tokens":900}"#,
            Tokens { input: 100, cache_read: 4000, cache_write_5m: 900, output: 7, ..Tokens::default() },
        );
        check(
            r#"{"prompt_tokens":1e2,"completion_tokens":7.0}"#,
            Tokens { input: 100, output: 7, ..Tokens::default() },
        );
    }

    /// Google's own server counts reasoning in the total only.
    #[test]
    fn gemini_reasoning_is_inferred_from_the_total() {
        for (model, figures, expected) in [
            ("gemini-3-flash", r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":103}"#, (94, 93)),
            (
                "google/gemini-3-flash",
                r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}"#,
                (1, 0),
            ),
            ("gemini-3-flash", r#"{"prompt_tokens":9,"completion_tokens":1}"#, (1, 0)),
            (
                "gemini-3-flash",
                r#"{"prompt_tokens":9,"completion_tokens":94,"total_tokens":103,"completion_tokens_details":{"reasoning_tokens":93}}"#,
                (94, 93),
            ),
            // The rest of the total is cached tokens, which are not counted in the prompt.
            (
                "gemini-3-flash",
                r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":103,"prompt_tokens_details":{"cached_tokens":93}}"#,
                (1, 0),
            ),
            // With other models it is unknown what the rest is.
            ("m", r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":103}"#, (1, 0)),
        ] {
            let whole = format!(r#"{{"model":"{model}","choices":[],"usage":{figures}}}"#);
            let tokens = answer(Framing::Document, &whole).usage.unwrap().tokens;
            assert_eq!((tokens.output, tokens.reasoning), expected, "{model} {figures}");
        }
    }

    /// Cache writes are split by lifetime if the details state it.
    #[test]
    fn cache_writes_are_split_by_stated_lifetime() {
        for (details, expected) in [
            ("", [900, 0, 900]),
            (r#","cache_creation":{"ephemeral_1h_input_tokens":800}"#, [100, 800, 100]),
            (r#","cache_creation":{"ephemeral_5m_input_tokens":900}"#, [900, 0, 0]),
            (
                r#","cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":800}"#,
                [100, 800, 0],
            ),
            (
                r#","prompt_tokens_details":{"cache_creation_token_details":{"ephemeral_5m_input_tokens":700}}"#,
                [900, 0, 200],
            ),
        ] {
            let text = format!(
                r#"{{"choices":[{{"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5000,"completion_tokens":7,"cache_creation_input_tokens":900{details}}}}}"#
            );
            let usage = answer(Framing::Document, &text).usage.unwrap();
            let found = [usage.tokens.cache_write_5m, usage.tokens.cache_write_1h, usage.cache_write_untold];
            assert_eq!(found, expected, "{details}");
        }
    }

    /// Names of other dialects have the meaning that they have there, and zeros under names that a server does not use
    /// are ignored.
    #[test]
    fn usage_members_of_other_dialects_are_read() {
        let expected = Tokens { input: 100, output: 7, ..Tokens::default() };
        check(r#"{"input_tokens":100,"output_tokens":7,"total_tokens":107}"#, expected);
        check(
            r#"{"prompt_tokens":100,"completion_tokens":7,"input_tokens":0,"output_tokens":0,"input_tokens_details":null}"#,
            expected,
        );
        check(r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":100,"output_tokens":7}"#, expected);
        check(
            r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":5}}"#,
            Tokens { input: 40, cache_read: 60, output: 7, reasoning: 5, ..Tokens::default() },
        );
        check(
            r#"{"input_tokens":100,"cache_read_input_tokens":60,"cache_creation_input_tokens":30,"output_tokens":7}"#,
            Tokens { cache_read: 60, cache_write_5m: 30, ..expected },
        );
        check(
            r#"{"prompt_tokens":0,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":0},"input_tokens":100,"cache_read_input_tokens":60,"output_tokens":7}"#,
            Tokens { cache_read: 60, ..expected },
        );
        check(
            r#"{"input_tokens":100,"cache_creation_input_tokens":900,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":800},"output_tokens":7}"#,
            Tokens { cache_write_5m: 100, cache_write_1h: 800, ..expected },
        );
        for beside in ["null", "0", "60"] {
            check(
                &format!(
                    r#"{{"input_tokens":100,"input_tokens_details":{{"cached_tokens":60}},"cache_read_input_tokens":{beside},"output_tokens":7}}"#
                ),
                Tokens { input: 40, cache_read: 60, ..expected },
            );
        }
        check(
            r#"{"prompt_tokens":5000,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"cache_read_input_tokens":4000,"cache_creation_input_tokens":900}"#,
            Tokens { input: 100, cache_read: 4000, cache_write_5m: 900, output: 7, ..Tokens::default() },
        );
    }

    #[test]
    fn an_unstated_prompt_size_is_inferred_or_unknown() {
        for (figures, expected) in [
            (r#"{"completion_tokens":7}"#, None),
            (r#"{"prompt_tokens":null,"completion_tokens":7}"#, None),
            (r#"{"prompt_tokens":100.5,"completion_tokens":7}"#, None),
            (r#"{"completion_tokens":7,"total_tokens":6}"#, None),
            (r#"{"completion_tokens":7,"prompt_cache_hit_tokens":60}"#, None),
            (r#"{"completion_tokens":7,"total_tokens":107}"#, Some(100)),
            (
                r#"{"completion_tokens":7,"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40}"#,
                Some(100),
            ),
            (r#"{"prompt_tokens":0,"completion_tokens":7}"#, None),
            (r#"{"prompt_tokens":0,"completion_tokens":7,"total_tokens":7}"#, None),
        ] {
            let whole = format!(r#"{{"id":"c","choices":[],"usage":{figures}}}"#);
            let usage = answer(Framing::Document, &whole).usage.unwrap();
            let found = (!usage.prompt_is_unknown).then(|| usage.tokens.prompt());
            assert_eq!((found, usage.tokens.output), (expected, 7), "{figures}");
        }
    }

    #[test]
    fn audio_tokens_are_counted_separately() {
        let text = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"audio_tokens":4},"completion_tokens_details":{"audio_tokens":3}}}"#;
        let usage = answer(Framing::Document, text).usage.unwrap();
        assert_eq!((usage.audio_input, usage.media_output, usage.tokens.input), (4, 3, 9));
    }

    #[test]
    fn usage_within_a_choice_is_read() {
        let inside =
            r#"{"index":0,"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
        for (chunk, expected) in [
            (format!(r#"{{"choices":[{inside}]}}"#), 9),
            (format!(r#"{{"choices":[{inside}],"usage":{{"prompt_tokens":8,"completion_tokens":5}}}}"#), 8),
        ] {
            let text = format!("data: {{\"id\":\"c\",\"choices\":[]}}\n\ndata: {chunk}\n\ndata: [DONE]\n\n");
            let tokens = answer(Framing::Events, &text).usage.unwrap().tokens;
            assert_eq!((tokens.prompt(), tokens.output), (expected, 5), "{chunk}");
        }
    }

    /// Several answers to one prompt, each with figures of its own.
    #[test]
    fn usage_of_several_choices_is_summed() {
        let choice = |index: u32, output: u32| {
            format!(
                r#"{{"index":{index},"finish_reason":"stop","usage":{{"prompt_tokens":9,"completion_tokens":{output},"total_tokens":{},"completion_tokens_details":{{"reasoning_tokens":2}}}}}}"#,
                9 + output
            )
        };
        let chunk = |choices: &[String]| format!(r#"{{"choices":[{}]}}"#, choices.join(","));
        for (chunks, output, reasoning) in [
            (vec![chunk(&[choice(0, 5)])], 5, 2),
            (vec![chunk(&[choice(0, 5)]), chunk(&[choice(1, 7)])], 12, 4),
            (vec![chunk(&[choice(0, 5), choice(1, 7), choice(2, 7)])], 19, 6),
            // The last figures of each choice count.
            (vec![chunk(&[choice(1, 3)]), chunk(&[choice(0, 5)]), chunk(&[choice(1, 7)])], 12, 4),
            // So do the last figures of all choices together.
            (
                vec![
                    chunk(&[choice(0, 5)]),
                    r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":13}}"#.to_owned(),
                ],
                13,
                2,
            ),
        ] {
            let event = |chunk: &String| format!("data: {chunk}\n\n");
            let text: String = chunks.iter().map(event).collect();
            let tokens = answer(Framing::Events, &text).usage.unwrap().tokens;
            assert_eq!((tokens.prompt(), tokens.output, tokens.reasoning), (9, output, reasoning), "{text}");
        }
    }

    #[test]
    fn errors_in_base_resp_are_read() {
        for (text, expected) in [
            (
                r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
                Some("insufficient balance"),
            ),
            (r#"{"choices":null,"base_resp":{"status_code":1008}}"#, Some(r#"{"status_code":1008}"#)),
            (r#"{"choices":[{"finish_reason":"stop"}],"base_resp":{"status_code":0,"status_msg":""}}"#, None),
        ] {
            assert_eq!(answer(Framing::Document, text).error.as_deref(), expected, "{text}");
        }
    }

    /// Answers to requests with bare texts: completions and embeddings.
    #[test]
    fn completions_and_embeddings_are_read() {
        const LIST: &str = r#""object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],"model":"e""#;
        for (text, expected) in [
            (
                r#"{"id":"c","object":"text_completion","choices":[{"text":"x","index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}"#.to_owned(),
                Some((9, 5)),
            ),
            (
                "data: {\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"text\":\"x\",\"index\":0,\"finish_reason\":null}],\"usage\":null}\n\n\
                 data: {\"id\":\"c\",\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":\"stop\"}]}\n\n\
                 data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n".to_owned(),
                Some((9, 5)),
            ),
            (format!(r#"{{{LIST},"usage":{{"prompt_tokens":9,"total_tokens":9}}}}"#), Some((9, 0))),
            (format!(r#"{{{LIST},"usage":{{"total_tokens":9}}}}"#), Some((9, 0))),
            (format!("{{{LIST}}}"), None),
        ] {
            let answer = answer(Framing::Document, &text);
            let usage = answer.usage.filter(|usage| !usage.prompt_is_unknown && !usage.output_is_unknown);
            let tokens = usage.map(|usage| (usage.tokens.prompt(), usage.tokens.output));
            assert_eq!((tokens, answer.complete), (expected, true), "{text}");
        }
    }

    /// The last figures that are stated are billed, wherever they are stated and even if the stream breaks off.
    #[test]
    fn the_last_stream_figures_count() {
        const STATED: &str =
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}"#;
        const MORE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#;
        const END: &str = r#"{"choices":[{"finish_reason":"stop"}]}"#;
        for (events, output, complete, error) in [
            (&[STATED, STATED, END][..], 5, true, None),
            (&[STATED, MORE, END, "[DONE]"], 7, true, None),
            (&[MORE, END, STATED, "[DONE]"], 5, true, None),
            (&[END, "[DONE]", STATED], 5, true, None),
            (&[MORE, STATED, r#"{"choices":[],"usage":null}"#, "[DONE]"], 5, true, None),
            (&[STATED, r#"{"choices":[],"usage":{}}"#, "[DONE]"], 5, true, None),
            (&[STATED, r#"{"choices":[],"usage":{"completion_tokens":7}}"#], 7, false, None),
            (&[STATED, r#"{"choices":[{"delta":{"content":"x"#], 5, false, None),
            (&[STATED, r#"{"error":{"message":"no"}}"#], 5, false, Some("no")),
            (
                &[r#"{"error":{"message":"no"},"usage":{"prompt_tokens":9,"completion_tokens":5}}"#],
                5,
                false,
                Some("no"),
            ),
        ] {
            let first = r#"{"id":"c","choices":[{"delta":{},"finish_reason":null}],"usage":null}"#;
            let events = std::iter::once(&first).chain(events);
            let text = events.fold(String::new(), |text, event| text + "data: " + event + "\n\n");
            let answer = answer(Framing::Events, &text);
            let tokens = answer.usage.expect("figures").tokens;
            assert_eq!((tokens.prompt(), tokens.output), (9, output), "{text}");
            assert_eq!((answer.complete, answer.error.as_deref()), (complete, error), "{text}");
        }
    }

    #[test]
    fn the_providers_own_cost_is_kept_exactly() {
        for (stated, expected) in [
            (r#""cost":0.00012345"#, Some("0.00012345")),
            (
                r#""cost":0.00012345,"is_byok":false,"cost_details":{"upstream_inference_cost":1}"#,
                Some("0.00012345"),
            ),
            // With the caller's own key, the cost at the provider behind the router is added.
            (
                r#""cost":0.0002,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0045}"#,
                Some("0.0047"),
            ),
            (r#""cost":0,"is_byok":true"#, None),
        ] {
            let body = format!(
                r#"{{"id":"c","choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":1,{stated}}}}}"#
            );
            let cost = answer(Framing::Document, &body).usage.and_then(|usage| usage.provider_cost);
            assert_eq!(cost, expected.map(|usd| Money::from_usd_str(usd).unwrap()), "{stated}");
        }
    }

    #[test]
    fn charges_for_server_tools_are_recognised() {
        const FIGURES: &str = r#""prompt_tokens":9,"completion_tokens":5"#;
        let chunk = |delta: &str, more: &str| {
            format!(r#"data: {{"id":"c","choices":[{{"delta":{delta}}}],"usage":{{{FIGURES}{more}}}}}"#)
        };
        for (text, cost, expected) in [
            (chunk("{}", ""), None, &[][..]),
            (
                chunk(
                    "{}",
                    r#","num_sources_used":0,"server_side_tool_usage_details":{"web_search_calls":0}"#,
                ),
                None,
                &[],
            ),
            (chunk("{}", r#","num_sources_used":3"#), None, &[Charge::WebSearch]),
            (
                chunk("{}", r#","server_side_tool_usage_details":{"web_search_calls":0,"x_search_calls":2}"#),
                None,
                &[Charge::ServerTools],
            ),
            (
                chunk(
                    "{}",
                    r#","num_server_side_tools_used":2,"server_side_tool_usage_details":{"mcp_calls":2}"#,
                ),
                None,
                &[],
            ),
            (chunk("{}", r#","num_server_side_tools_used":2"#), None, &[Charge::ServerTools]),
            (chunk(r#"{"executed_tools":[{"type":"mcp"}]}"#, ""), None, &[]),
            (
                chunk(r#"{"executed_tools":[{"type":"mcp"},{"type":"search"}]}"#, ""),
                None,
                &[Charge::ServerTools],
            ),
            (
                chunk("{}", r#","num_server_side_tools_used":3,"cost_in_usd_ticks":37756000"#),
                Some("0.0037756"),
                &[],
            ),
            (chunk(r#"{"annotations":[]}"#, ""), None, &[]),
            // Searches that are counted have a price.
            (
                chunk(
                    r#"{"annotations":[{"type":"url_citation"}]}"#,
                    r#","server_tool_use":{"web_search_requests":2}"#,
                ),
                None,
                &[],
            ),
            (
                format!(
                    "{}\n\n{}",
                    chunk("{}", ""),
                    r#"data: {"choices":[{"delta":{"annotations":[{"type":"url_citation"}]}}]}"#
                ),
                None,
                &[Charge::WebSearch],
            ),
            (
                format!(r#"{{"choices":[{{"message":{{"executed_tools":[{{}}]}}}}],"usage":{{{FIGURES}}}}}"#),
                None,
                &[Charge::ServerTools],
            ),
        ] {
            let usage = answer(Framing::Document, &format!("{text}\n\n")).usage.unwrap();
            let searches = if text.contains("web_search_requests") { 2 } else { 0 };
            assert_eq!((&*usage.unpriced, usage.web_searches), (expected, searches), "{text}");
            assert_eq!(usage.provider_cost, cost.map(|usd| Money::from_usd_str(usd).unwrap()), "{text}");
        }
    }

    /// If the provider's own tools ran, the figures are a sum over several calls of the model.
    #[test]
    fn sums_over_server_tool_calls_are_not_the_prompt_size() {
        for (message, counts, expected) in [
            (r#"{"content":"x"}"#, "", Some(600)),
            (r#"{"content":"x","executed_tools":[]}"#, r#","num_server_side_tools_used":0"#, Some(600)),
            (r#"{"tool_calls":[{}]}"#, r#","server_tool_use":{"web_search_requests":0}"#, Some(600)),
            (r#"{"content":"x","executed_tools":[{"type":"search"}]}"#, "", None),
            (r#"{"content":"x","executed_tools":[{"type":"mcp"}]}"#, "", None),
            ("{}", r#","num_server_side_tools_used":5"#, None),
            ("{}", r#","server_side_tool_usage":{"web_search":5}"#, None),
            ("{}", r#","server_side_tool_usage_details":{"web_search_calls":0,"mcp_calls":1}"#, None),
            ("{}", r#","server_tool_use":{"web_search_requests":2}"#, None),
            ("{}", r#","server_tool_use_details":{"tool_calls_executed":1}"#, None),
        ] {
            let figures = format!(r#""usage":{{"prompt_tokens":600,"completion_tokens":5{counts}}}"#);
            let choice = |name: &str| format!(r#""choices":[{{"index":0,"{name}":{message}}}]"#);
            let whole = format!(r#"{{"id":"c",{},{figures}}}"#, choice("message"));
            let stream = format!(
                "data: {{\"id\":\"c\",\"choices\":[]}}\n\ndata: {{{}}}\n\ndata: {{\"choices\":[],{figures}}}\n\n",
                choice("delta")
            );
            for (framing, text) in [(Framing::Document, whole), (Framing::Events, stream)] {
                let usage = answer(framing, &text).usage.unwrap();
                assert_eq!((usage.own_tokens(), usage.tokens.prompt()), (expected, 600), "{text}");
            }
        }
    }

    /// Most of a stream is never parsed.
    #[test]
    fn ordinary_events_are_not_parsed() {
        let chunk = |delta: &str, rest: &str| {
            format!(
                r#"{{"id":"c","model":"m","choices":[{{"index":0,"delta":{delta}{rest}}}],"usage":null}}"#
            )
        };
        let open = r#","finish_reason":null"#;
        let mut completion = Completion::default();
        assert!(completion.is_relevant(chunk("{}", open).as_bytes()));
        completion.answer.id = Some("c".to_owned());
        for (event, expected) in [
            (chunk(r#"{"content":"Hello"}"#, open), false),
            (
                chunk(r#"{"content":"\"usage\":{} \"url_citation\" \"error\" \"executed_tools\""}"#, open),
                false,
            ),
            (chunk(r#"{"content":"","annotations":[]}"#, open), false),
            (chunk(r#"{"annotations":[{"type":"url_citation"}]}"#, open), true),
            (chunk("{}", r#","finish_reason":"stop""#), true),
        ] {
            assert_eq!(completion.is_relevant(event.as_bytes()), expected, "{event}");
        }
    }

    /// Some servers write an empty reason into every chunk.
    #[test]
    fn an_empty_finish_reason_is_ignored() {
        let chunk = |reason: &str| {
            format!(
                "data: {{\"id\":\"c\",\"model\":\"\",\"choices\":[{{\"finish_reason\":\"{reason}\"}}]}}\n\n"
            )
        };
        let broken = answer(Framing::Events, &chunk("").repeat(2));
        assert_eq!((broken.complete, broken.stop, broken.model), (false, None, None));
        let whole = answer(Framing::Events, &(chunk("") + &chunk("stop") + &chunk("")));
        assert_eq!((whole.complete, whole.stop.as_ref().map(Stop::word)), (true, Some("stop")));
    }

    #[test]
    fn the_service_tier_is_read_from_the_top_or_from_usage() {
        let traffic = |word: &str| format!(r#","extra_properties":{{"google":{{"traffic_type":"{word}"}}}}"#);
        for (top, figures, expected) in [
            ("", String::new(), Tier::Standard),
            (r#","service_tier":"flex""#, String::new(), Tier::Flex),
            ("", traffic("ON_DEMAND"), Tier::Standard),
            ("", traffic("ON_DEMAND_FLEX"), Tier::Flex),
            ("", traffic("PROVISIONED_THROUGHPUT"), Tier::Other),
        ] {
            let text = format!(
                r#"{{"id":"c"{top},"choices":[{{"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":1{figures}}}}}"#
            );
            let usage = answer(Framing::Document, &text).usage.unwrap();
            assert_eq!(usage.tier, expected, "{text}");
        }
    }

    #[test]
    fn a_stream_without_usage_has_none() {
        let text = "data: {\"id\":\"c\",\"service_tier\":\"default\",\"choices\":[{\"finish_reason\":null}]}\n\ndata: {\"error\":{\"message\":\"no\"}}\n\n";
        let answer = answer(Framing::Events, text);
        assert_eq!((answer.usage, answer.complete, answer.error.as_deref()), (None, false, Some("no")));
    }
}
