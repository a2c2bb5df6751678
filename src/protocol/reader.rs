//! Reads answers in the way that all dialects have in common: framing, bounded buffering, looking up figures.
//!
//! It works on a copy of bytes that were passed on already, so nothing here fails: what is too large or not understood
//! is ignored.

use std::borrow::Cow;
use std::mem;
use std::ops::RangeInclusive;

use serde_json::Number;

use super::frames::Frames;
use super::pruned::Value;
use super::{Answer, AnswerReader, Framing, lenient, refusal};
use crate::sse::{BOM, Beginning, Framer};
use crate::usage::Money;

/// The largest JSON answer that is read for its usage, in bytes.
const MAX_ANSWER: usize = 32 << 20;

/// What a dialect does with the documents and events in an answer.
pub(crate) trait AnswerVisitor: Send {
    /// Whether an event may hold anything of interest. A cheap check, so that most events need not be parsed.
    fn is_relevant(&self, event: &[u8]) -> bool;
    /// Called for each event that is not relevant, with its unparsed bytes.
    fn skipped(&mut self, _event: &[u8]) {}
    /// Called for each relevant event of a stream.
    fn event(&mut self, event: &Value<'_>);
    /// Called for each event that is not a JSON object, such as an end mark.
    fn literal(&mut self, _literal: &[u8]) {}
    /// Called with the document of an answer that is not a stream, and with its unparsed bytes, which also hold the
    /// model's output.
    fn document(&mut self, document: &Value<'_>, bytes: &[u8]);
    /// Whether a stream has announced its proper end.
    fn is_over(&self) -> bool;
    /// Takes what was learned from the answer.
    fn answer(&mut self) -> Answer;
}

/// Reads an answer for a visitor.
struct Reader<F> {
    form: Form,
    visitor: F,
}

/// The form of an answer, with what was received of it and not yet shown to the visitor.
enum Form {
    /// Declared as a document, or not declared at all. Some servers declare streams in this way too, so the first bytes
    /// decide.
    Unknown(Beginning),
    /// A single document; `None`: it is too large.
    Document(Option<Vec<u8>>),
    /// A stream of events.
    Events(Framer),
    /// A stream of frames.
    Frames(Frames),
}

/// The reader for answers that are framed in this way.
pub(crate) fn reader<F: AnswerVisitor + 'static>(framing: Framing, visitor: F) -> Box<dyn AnswerReader> {
    let form = match framing {
        Framing::Document => Form::Unknown(Beginning::default()),
        Framing::Events => Form::Events(Framer::default()),
        Framing::Frames => Form::Frames(Frames::default()),
    };
    Box::new(Reader { form, visitor })
}

impl<F: AnswerVisitor> Reader<F> {
    /// Reads everything as a stream or as a document from now on, beginning with `head`.
    fn decide(&mut self, is_stream: bool, head: Vec<u8>) {
        if is_stream {
            self.form = Form::Events(Framer::default());
            self.push(&head);
        } else {
            self.form = Form::Document(Some(head).filter(|head| head.len() <= MAX_ANSWER));
        }
    }
}

impl<F: AnswerVisitor> AnswerReader for Reader<F> {
    fn push(&mut self, bytes: &[u8]) {
        let Self { form, visitor } = self;
        match form {
            Form::Unknown(beginning) => {
                if let Some((is_stream, head)) = beginning.push(bytes) {
                    self.decide(is_stream, head);
                }
            }
            Form::Document(document) => match document {
                Some(read) if read.len() + bytes.len() <= MAX_ANSWER => read.extend_from_slice(bytes),
                _ => *document = None,
            },
            Form::Events(framer) => framer.push(bytes, &mut |event| visit(visitor, event)),
            Form::Frames(frames) => frames.push(bytes, &mut |event| visit(visitor, event)),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.form, Form::Events(_) | Form::Frames(_)) && self.visitor.is_over()
    }

    fn finish(&mut self) -> Answer {
        let Self { form, visitor } = self;
        match form {
            Form::Unknown(beginning) => {
                let beginning = mem::take(beginning);
                self.decide(false, beginning.kept().to_vec());
                return self.finish();
            }
            Form::Document(document) => read_document(document.as_deref().unwrap_or_default(), visitor),
            Form::Events(framer) => framer.finish(&mut |event| visit(visitor, event)),
            Form::Frames(_) => {}
        }
        visitor.answer()
    }
}

/// Shows the visitor a whole document, or the items of one that is a stream.
fn read_document<F: AnswerVisitor>(bytes: &[u8], visitor: &mut F) {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    if bytes.trim_ascii_start().starts_with(b"[") {
        each_item(bytes, &mut |item| visitor.event(item));
    } else if let Some(document) = read(bytes) {
        visitor.document(&document, bytes);
    }
}

/// Shows an event to the visitor in the form that it needs.
fn visit<F: AnswerVisitor>(visitor: &mut F, event: &[u8]) {
    let event = event.trim_ascii();
    if !event.starts_with(b"{") {
        visitor.literal(event);
    } else if !visitor.is_relevant(event) {
        visitor.skipped(event);
    } else if let Some(event) = read(event) {
        visitor.event(&event);
    }
}

/// Parses a document. A value in it that is not JSON is left out: a server may cut the model's text within a character,
/// or write a number that is none. `None` if the document itself is not JSON.
pub(super) fn read(bytes: &[u8]) -> Option<Value<'_>> {
    // Checking all bytes at once is cheaper than checking each text.
    let read = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    };
    read.ok().or_else(|| lenient::document(bytes))
}

/// Calls `take` with the items of an array that may be cut off: a stream that is written as one document.
fn each_item(array: &[u8], take: &mut dyn FnMut(&Value<'_>)) {
    let mut rest = array.trim_ascii_start();
    while let [b'[' | b',', items @ ..] = rest {
        let Some((item, after)) = first_item(items) else { return };
        take(&item);
        rest = after.trim_ascii_start();
    }
}

/// The first of an array's items, and what follows it; `None` if it is cut off.
pub(super) fn first_item(items: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(items).into_iter();
    match values.next() {
        Some(Ok(item)) => Some((item, &items[values.byte_offset()..])),
        _ => lenient::first(items),
    }
}

/// The largest count (of tokens or anything else) that is believed of one answer. That is thousands of windows; a
/// larger count would drown all others in a sum.
const MAX_COUNT: u64 = 1 << 32;

/// The count at a path of keys, also if it is written as `1e3`, `1000.0` or `"1000"`. `None` if it is missing, null,
/// not a whole number, or too large to be believed.
pub(crate) fn count(value: &Value<'_>, path: &[&str]) -> Option<u64> {
    whole_number(value, path).filter(|number| *number <= MAX_COUNT)
}

/// The whole number at a path of keys; `None` if it is missing, not a whole number, negative, or beyond what a float
/// represents exactly.
fn whole_number(value: &Value<'_>, path: &[&str]) -> Option<u64> {
    const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;
    let number = number(at(value, path)?)?;
    let is_exact = |number: &f64| (0.0..=EXACT as f64).contains(number) && number.fract() == 0.0;
    let float = || number.as_f64().filter(is_exact).map(|number| number as u64);
    number.as_u64().or_else(float).filter(|number| *number <= EXACT)
}

/// A number, also if it is written in quotes.
fn number<'v>(value: &'v Value<'_>) -> Option<Cow<'v, Number>> {
    match value {
        Value::Text(text) => text.trim().parse().ok().map(Cow::Owned),
        other => other.as_number().map(Cow::Borrowed),
    }
}

/// The first non-zero count among several names for the same figure; zero if there are only zeros. Some servers write
/// zeros for the names that they do not use.
pub(crate) fn first_count(value: &Value<'_>, paths: &[&[&str]]) -> Option<u64> {
    let counts = || paths.iter().filter_map(|path| count(value, path));
    counts().find(|tokens| *tokens > 0).or_else(|| counts().next())
}

/// Picodollars in a tick, the unit in which xAI states costs.
const PICODOLLARS_PER_TICK: i128 = 100;

/// The costs that are believed of one request, in picodollars: not negative, and small enough to be booked.
const PLAUSIBLE_COSTS: RangeInclusive<i128> = 0..=i64::MAX as i128;

/// The total cost that the provider states: OpenRouter does so in every dialect, and so do xAI and Perplexity (with its
/// parts). If the caller uses a key of its own (`is_byok`), OpenRouter's `cost` is its fee only, and the cost at the
/// provider behind it is added.
pub(crate) fn stated_cost(figures: &Value<'_>) -> Option<Money> {
    if let Some(ticks) = whole_number(figures, &["cost_in_usd_ticks"]) {
        return Some(Money::from_picodollars(i128::from(ticks) * PICODOLLARS_PER_TICK));
    }
    let usd = |value: &Value<'_>| {
        let cost = Money::from_usd_str(&number(value)?.to_string()).ok();
        cost.filter(|cost| PLAUSIBLE_COSTS.contains(&cost.picodollars()))
    };
    let stated = figures.get("cost")?;
    let cost = usd(stated.get("total_cost").unwrap_or(stated))?;
    if figures.get("is_byok") != Some(&Value::Bool(true)) {
        return Some(cost);
    }
    let inference = figures.get("cost_details")?.get("upstream_inference_cost")?;
    Some(cost + usd(inference)?)
}

/// Records the error of a document in `answer`, if it has one.
pub(crate) fn take_error(answer: &mut Answer, document: &Value<'_>) {
    if let Some(error) = error(document) {
        answer.error = Some(error);
        answer.error_words = refusal::error_text(document);
    }
}

/// The message of the error in a document, or all of the error as JSON if it has no message.
pub(crate) fn error(document: &Value<'_>) -> Option<String> {
    let error = document.get("error").filter(|error| !error.is_null())?;
    let message = text(error, &["message"]).or_else(|| error.as_str().map(str::to_owned));
    Some(message.unwrap_or_else(|| error.to_string()))
}

/// The text at a path of keys; `None` if it is missing or empty.
pub(crate) fn text(value: &Value<'_>, path: &[&str]) -> Option<String> {
    at(value, path)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The value at a path of keys.
pub(crate) fn at<'v, 'd>(value: &'v Value<'d>, path: &[&str]) -> Option<&'v Value<'d>> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{self, Framing};
    use crate::usage::Tokens;

    /// Numbers are read however they are written.
    #[test]
    fn counts_and_costs_are_parsed_in_any_notation() {
        for (written, expected) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("1.2e1", Some(12)),
            (r#""12""#, Some(12)),
            (r#"" 12.0 ""#, Some(12)),
            ("0", Some(0)),
            (r#""0""#, Some(0)),
            ("12.5", None),
            ("-12", None),
            (r#""-12""#, None),
            (r#""""#, None),
            (r#""12 tokens""#, None),
            (r#""1,200""#, None),
            ("null", None),
            ("true", None),
            ("[12]", None),
        ] {
            let text = format!(r#"{{"a":{{"b":{written}}}}}"#);
            assert_eq!(count(&read(text.as_bytes()).unwrap(), &["a", "b"]), expected, "{written}");
        }
        for (written, expected) in [
            ("0.0125", Some(12_500_000_000)),
            (r#""0.0125""#, Some(12_500_000_000)),
            (
                r#"{"input_tokens_cost":0.0025,"request_cost":0.005,"total_cost":0.0125}"#,
                Some(12_500_000_000),
            ),
            (r#"{"input_tokens_cost":0.0025}"#, None),
            (r#""free""#, None),
        ] {
            let text = format!(r#"{{"cost":{written}}}"#);
            let cost = stated_cost(&read(text.as_bytes()).unwrap());
            assert_eq!(cost.map(Money::picodollars), expected, "{written}");
        }
    }

    /// In every dialect.
    #[test]
    fn quoted_counts_are_read_in_every_dialect() {
        for (dialect, answer) in [
            (
                "anthropic",
                r#"{"usage":{"input_tokens":"5","cache_read_input_tokens":"7","output_tokens":"3"}}"#,
            ),
            (
                "openai-chat",
                r#"{"usage":{"prompt_tokens":"12","completion_tokens":"3","prompt_tokens_details":{"cached_tokens":"7"}}}"#,
            ),
            (
                "openai-responses",
                r#"{"usage":{"input_tokens":"12","output_tokens":"3","input_tokens_details":{"cached_tokens":"7"}}}"#,
            ),
            (
                "gemini",
                r#"{"usageMetadata":{"promptTokenCount":"12","candidatesTokenCount":"3","cachedContentTokenCount":"7"}}"#,
            ),
        ] {
            let mut reader = protocol::named(dialect).unwrap().answer(Framing::Document);
            reader.push(answer.as_bytes());
            let tokens = reader.finish().usage.map(|usage| usage.tokens);
            let expected = Tokens { input: 5, cache_read: 7, output: 3, ..Tokens::default() };
            assert_eq!(tokens, Some(expected), "{dialect}");
        }
    }

    /// In every dialect, whether the answer is a document, a stream, or a stream that is written as a list.
    #[test]
    fn invalid_values_do_not_hide_usage() {
        const ODD: [&[u8]; 8] = [
            br#""half \ud83d""#,
            b"\"cut \xf0\x9f\"",
            br#""\q""#,
            b"NaN",
            b"-Infinity",
            b"1e999",
            &[b'['; 400],
            br#"[{"a":{"b":["\udc00"]}}]"#,
        ];
        for (dialect, answer) in [
            (
                "anthropic",
                r#"{"type":"message","content":[{"text":ODD}],"x":ODD,"usage":{"input_tokens":5,"output_tokens":3,"x":ODD}}"#,
            ),
            (
                "openai-chat",
                r#"{"x":ODD,"choices":[{"text":ODD,"message":{"reasoning":ODD}}],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#,
            ),
            (
                "openai-responses",
                r#"{"type":"response.completed","response":{"output":[{"input":ODD}],"x":ODD,"usage":{"input_tokens":5,"output_tokens":3}}}"#,
            ),
            (
                "openai-responses",
                r#"{"output":[{"input":ODD}],"x":ODD,"usage":{"input_tokens":5,"output_tokens":3}}"#,
            ),
            (
                "gemini",
                r#"{"candidates":[{"avgLogprobs":ODD,"content":{"parts":[{"text":ODD}]}}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3}}"#,
            ),
        ] {
            for (odd, framing) in
                ODD.iter().flat_map(|odd| [(odd, Framing::Document), (odd, Framing::Events)])
            {
                let closed = if odd.starts_with(b"[[") { &[b']'; 400][..] } else { b"" };
                let parts: Vec<&[u8]> = answer.split("ODD").map(str::as_bytes).collect();
                let answer = parts.join(&[*odd, closed].concat()[..]);
                // Only streams have that event, and only documents are answers of Anthropic as a whole.
                let is_event = memchr::memmem::find(&answer, b"response.completed").is_some();
                let is_document = dialect == "anthropic" || dialect == "openai-responses" && !is_event;
                let written = match framing {
                    Framing::Document if is_event => continue,
                    Framing::Document => answer.clone(),
                    _ if is_document => continue,
                    _ => [b"data: ", &answer[..], b"\n\n"].concat(),
                };
                let mut reader = protocol::named(dialect).unwrap().answer(framing);
                reader.push(&written);
                let tokens = reader.finish().usage.map(|usage| usage.tokens);
                let expected = Tokens { input: 5, output: 3, ..Tokens::default() };
                assert_eq!(tokens, Some(expected), "{dialect} {}", written.escape_ascii());
            }
        }
    }

    #[test]
    fn an_invalid_value_does_not_hide_other_list_items() {
        let list =
            br#"[{"usageMetadata":{"promptTokenCount":4}},{"candidates":[{"text":NaN,"finishReason":"STOP"}],
            "usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3}},{"cut off":NaN"#;
        let mut reader = protocol::named("gemini").unwrap().answer(Framing::Document);
        reader.push(list);
        let tokens = reader.finish().usage.map(|usage| usage.tokens);
        assert_eq!(tokens, Some(Tokens { input: 5, output: 3, ..Tokens::default() }));
    }

    #[test]
    fn impossible_counts_are_ignored() {
        for (written, expected) in [
            ("7", Some(7)),
            ("1e3", Some(1000)),
            ("1000.0", Some(1000)),
            ("4294967296", Some(1 << 32)),
            ("4294967297", None),
            ("4294967297.0", None),
            ("9007199254740991", None),
            ("18446744073709551615", None),
            ("1e19", None),
            ("-1", None),
            ("1.5", None),
            (r#""7""#, Some(7)),
            ("null", None),
        ] {
            let body = format!(r#"{{"usage":{{"n":{written}}}}}"#);
            assert_eq!(count(&read(body.as_bytes()).unwrap(), &["usage", "n"]), expected, "{written}");
        }
    }

    #[test]
    fn negative_and_excessive_stated_costs_are_ignored() {
        for (figures, expected) in [
            (r#"{"cost":0.25}"#, Some("0.25")),
            (r#"{"cost":0}"#, Some("0")),
            (r#"{"cost":-1}"#, None),
            (r#"{"cost":100000000}"#, None),
            (r#"{"cost":"1"}"#, Some("1")),
            (r#"{"cost_in_usd_ticks":2500000000}"#, Some("0.25")),
            (r#"{"cost_in_usd_ticks":52000000000}"#, Some("5.2")),
            (r#"{"cost":0.5,"is_byok":true,"cost_details":{"upstream_inference_cost":1.5}}"#, Some("2")),
            (r#"{"cost":0.5,"is_byok":true,"cost_details":{"upstream_inference_cost":-1.5}}"#, None),
        ] {
            let expected = expected.map(|usd| Money::from_usd_str(usd).unwrap());
            assert_eq!(stated_cost(&read(figures.as_bytes()).unwrap()), expected, "{figures}");
        }
    }

    #[test]
    fn invalid_utf8_in_content_does_not_hide_usage() {
        let figures = br#""stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}"#;
        for (said, expected) in [(&b"\xe2\x9c\x93"[..], Some(3)), (b"\xe2\x9c", Some(3)), (b"\"", None)] {
            let mut reader = protocol::named("anthropic").unwrap().answer(Framing::Document);
            for piece in [br#"{"id":"m","content":[{"text":""#, said, br#""}],"#, figures] {
                reader.push(piece);
            }
            assert_eq!(reader.finish().usage.map(|usage| usage.tokens.input), expected, "{said:?}");
        }
    }
}
