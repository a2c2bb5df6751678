//! Classifies refusals of any dialect, by the error itself and never by what it may quote.
//!
//! A prompt counts as too long only if a code or sentence certainly means that. In any doubt the refusal counts as
//! something else: a mistake would remove history for nothing.

use std::fmt::Write as _;

use memchr::memmem;
use serde::de::IgnoredAny;

use super::answer::{Answer, Refused};
use super::content::{leading_number, trailing_number};
use super::pruned::Value;
use super::reader;
use super::wording::{Counts, OVERFLOW, OVERFLOW_WITH_500, QUOTES, TEMPLATE, UNANSWERED};
use crate::sse::Framer;

/// The meaning of an error that is the body of a refusal, or that is at the beginning of an answer with status 200.
pub fn refused(status: u16, body: &[u8]) -> Refused {
    let error = match status {
        400 | 422 | 500 => document_error(body),
        200 => beginning_error(body),
        _ => None,
    };
    let Some(error) = error else { return Refused::Other };
    let says = |words: &[&str]| words.iter().any(|words| error.contains(words));
    let known = if status == 500 && !says(OVERFLOW_WITH_500) { Refused::Other } else { overflow(&error) };
    match known {
        Refused::Other if matches!(status, 200 | 500) && says(TEMPLATE) => Refused::Malformed,
        Refused::Other if says(UNANSWERED) => Refused::Unanswered,
        known => known,
    }
}

/// The meaning of an error inside an answer.
pub fn refused_within(answer: &Answer) -> Refused {
    if answer.error.is_none() && answer.error_words.is_none() {
        return Refused::Other;
    }
    let message = answer.error.as_deref().map(own_words).unwrap_or_default();
    overflow(&[&*message, answer.error_words.as_deref().unwrap_or_default()].join("\n"))
}

/// The status that an error inside an answer states, if it does.
pub fn status_within(answer: &Answer) -> Option<u16> {
    let words = answer.error_words.as_deref()?;
    words.lines().find_map(|word| match word {
        "invalid_request_error" | "invalid_argument" => Some(400),
        "rate_limit_error" | "rate_limit_exceeded" => Some(429),
        "overloaded_error" => Some(529),
        _ => word.strip_prefix("code=").unwrap_or(word).parse().ok(),
    })
}

/// Decides by the text of an error, in lower case, whether the prompt is too long.
fn overflow(error: &str) -> Refused {
    let Some(wording) = OVERFLOW.iter().find(|wording| error.contains(wording.says)) else {
        return Refused::Other;
    };
    let number = |before: &[&str]| {
        before
            .iter()
            .find_map(|words| leading_number(error.split_once(words)?.1))
            .filter(|number| *number > 0)
    };
    let limit = number(wording.limit);
    let prompt_alone =
        prompt_parts(error).or_else(|| number(wording.prompt).filter(|_| wording.counts == Counts::Prompt));
    match (prompt_alone, limit) {
        // Such a short prompt is not the reason: shortening it would lose history for nothing.
        (Some(prompt), Some(limit)) if prompt < limit / 2 => Refused::Answer,
        (prompt, limit) => Refused::Overflow { limit, prompt: prompt.or_else(|| number(wording.prompt)) },
    }
}

/// The tokens of the prompt alone, if the error states them apart from those of the answer: `9 tokens (5 in the
/// messages, 4 in the completion)`.
fn prompt_parts(error: &str) -> Option<u64> {
    const OF_PROMPT: [&str; 6] = [
        " in the messages",
        " in the functions",
        " in your prompt",
        " of text input",
        " input tokens",
        " tokens from the input messages",
    ];
    let number = |words: &&str| trailing_number(error.split_once(words)?.0);
    OF_PROMPT.iter().filter_map(number).reduce(u64::saturating_add).filter(|sum| *sum > 0)
}

/// The text of an error that is the whole answer.
fn document_error(body: &[u8]) -> Option<String> {
    error_text(&reader::read(body)?)
}

/// The text of an error inside an answer with a good status, or at the beginning of one.
fn beginning_error(body: &[u8]) -> Option<String> {
    let error_in = |event: &Value<'_>| if is_error(event) { error_text(event) } else { None };
    if let Some(document) = reader::read(body) {
        return error_in(&document);
    }
    if let Some(items) = items(body) {
        return error_in(&reader::first_item(items)?.0);
    }
    let mut error = None;
    each_event(body, |data| {
        if error.is_none() {
            error = reader::read(data).as_ref().and_then(error_in);
        }
    });
    error
}

/// The document, or the first item if a server wraps it in a list.
fn unwrapped<'v, 'd>(document: &'v Value<'d>) -> &'v Value<'d> {
    document.items().first().unwrap_or(document)
}

/// The member that states an error.
fn error_member<'v, 'd>(document: &'v Value<'d>) -> Option<&'v Value<'d>> {
    let error = document.get("error").or_else(|| document.get("response")?.get("error"));
    error.filter(|error| !error.is_null())
}

/// Whether a value declares itself to be an error; a message alone may be anything.
fn is_error(document: &Value<'_>) -> bool {
    let document = unwrapped(document);
    let says = |key: &str| document.get(key).and_then(Value::as_str) == Some("error");
    error_member(document).is_some() || says("type") || says("object")
}

/// The text of the error in a document, or of a document that is an error, in lower case: its message, code, type and
/// figures, and those of an error that it passes on.
pub(super) fn error_text(document: &Value<'_>) -> Option<String> {
    let document = unwrapped(document);
    let error = error_member(document).or_else(|| {
        // Some servers put the message at the top level.
        document.get("message").filter(|message| message.as_str().is_some()).map(|_| document)
    })?;
    if let Some(message) = error.as_str() {
        return Some(own_words(message));
    }
    let mut words = String::new();
    for key in ["message", "code", "type", "n_ctx", "n_prompt_tokens"] {
        match error.get(key) {
            Some(Value::Text(text)) => words.push_str(&own_words(text)),
            Some(Value::Number(number)) => drop(write!(words, "{key}={number}")),
            _ => continue,
        }
        words.push('\n');
    }
    if let Some(code) = error.get("details").and_then(|details| details.get("error_code")?.as_str()) {
        words.push_str(&own_words(code));
        words.push('\n');
    }
    let passed_on = error.get("metadata").and_then(|metadata| metadata.get("raw")?.as_str());
    if let Some(passed_on) = passed_on.and_then(|raw| document_error(raw.as_bytes())) {
        words.push_str(&passed_on);
    }
    Some(words)
}

/// The server's own words in lower case: the message up to the first quotation of the request or the model.
fn own_words(message: &str) -> String {
    let mut words = message.to_ascii_lowercase();
    let quoted = QUOTES.iter().filter_map(|before| words.find(before)).min();
    words.truncate(quoted.unwrap_or(words.len()));
    words
}

/// Calls `event` with the data of each event, including an incomplete last one.
fn each_event(body: &[u8], mut event: impl FnMut(&[u8])) {
    let mut framer = Framer::default();
    framer.push(body, &mut event);
    framer.finish(&mut event);
}

/// The items of a stream that is written as one long list.
fn items(body: &[u8]) -> Option<&[u8]> {
    body.trim_ascii_start().strip_prefix(b"[")
}

/// Whether the beginning of a stream shows how it continues. It does once there is an event other than a greeting.
pub fn has_opened(body: &[u8]) -> bool {
    const GREETINGS: [&[u8]; 4] =
        [b"\"response.created\"", b"\"response.in_progress\"", b"\"response.queued\"", b"\"ping\""];
    if let Some(items) = items(body) {
        let first = serde_json::Deserializer::from_slice(items).into_iter::<IgnoredAny>().next();
        return first.is_some_and(|first| !first.is_err_and(|error| error.is_eof()));
    }
    let whole_lines = memchr::memrchr2(b'\n', b'\r', body).map_or(&body[..0], |end| &body[..end]);
    let mut has_opened = false;
    each_event(whole_lines, |event| {
        let head = &event[..event.len().min(64)];
        has_opened |= !GREETINGS.iter().any(|greeting| memmem::find(head, greeting).is_some());
    });
    has_opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{self, Framing};

    #[test]
    fn a_stream_has_opened_after_its_first_event_beyond_a_greeting() {
        for (body, expected) in [
            ("", false),
            (": keep-alive\n\n", false),
            ("event: ping\ndata: {\"type\": \"ping\"}\n\n", false),
            ("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n", false),
            ("data: {\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.failed\"}", false),
            ("data: {\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.failed\"}\n", true),
            ("event: message_start\r\ndata: {\"type\":\"message_start\"}\r\n", true),
            ("data: {\"choices\":[]}\n\n", true),
            ("data: {\"choices\":[]}\r\r", true),
            ("\u{feff}data: {\"choices\":[]}\n\n", true),
            ("data: {\ndata: \"type\": \"ping\"}\n\n", false),
            ("[", false),
            (" [\n{\"candidates\":[{\"text\":\"}\"", false),
            ("[{\"candidates\":[]}", true),
            ("[{\"candidates\":[]},\r\n{\"cand", true),
            ("[]", true),
            ("[}", true),
        ] {
            assert_eq!(has_opened(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn refusals_are_classified_by_the_error_itself_only() {
        let overflow = |prompt, limit| Refused::Overflow { limit, prompt };
        for (status, body, expected) in [
            (
                400,
                r#"{"error":{"message":"prompt is too long: 12 tokens > 9 x"}}"#,
                overflow(Some(12), Some(9)),
            ),
            (400, r#"[{"error":{"message":"prompt is too long"}}]"#, overflow(None, None)),
            (400, r#"{"error":"Prompt is too long"}"#, overflow(None, None)),
            (400, r#"{"message":"prompt is too long"}"#, overflow(None, None)),
            (422, r#"{"error":{"message":"prompt is too long"}}"#, overflow(None, None)),
            (
                400,
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 12 tokens > 9\"}}"}}}"#,
                overflow(Some(12), Some(9)),
            ),
            (
                400,
                r#"{"error":{"message":"Provider returned error","metadata":{"raw":"prompt is too long"}}}"#,
                Refused::Other,
            ),
            (
                400,
                r#"{"error":{"message":"half \ud83d: prompt is too long: 12 tokens > 9","param":NaN}}"#,
                overflow(Some(12), Some(9)),
            ),
            (
                400,
                r#"{"error":{"message":"raw","metadata":{"raw":"{\"error\":{\"message\":\"\\ud83d prompt is too long\"}}"}}}"#,
                overflow(None, None),
            ),
            (200, "data: {\"error\":{\"message\":\"\\ud83d prompt is too long\"}}\n\n", overflow(None, None)),
            (200, r#"[{"error":{"message":"\ud83d prompt is too long"}}"#, overflow(None, None)),
            (400, r#"{"error":{"message":"bad"},"echo":"prompt is too long"}"#, Refused::Other),
            (400, r#"{"error":null,"echo":"prompt is too long"}"#, Refused::Other),
            (400, "prompt is too long", Refused::Other),
            (413, r#"{"error":{"message":"prompt is too long"}}"#, Refused::Other),
            (429, r#"{"error":{"message":"prompt is too long"}}"#, Refused::Other),
            (500, r#"{"error":{"message":"prompt is too long"}}"#, Refused::Other),
            (200, "data: {\"error\":{\"message\":\"prompt is too long\"}}\n\n", overflow(None, None)),
            (200, "data: {\"error\":\rdata: {\"message\":\"prompt is too long\"}}\r\r", overflow(None, None)),
            (200, "\u{feff}data: {\"error\":{\"message\":\"prompt is too long\"}}", overflow(None, None)),
            (200, "data: {\"delta\":\"prompt is too long\"}\n\n", Refused::Other),
            (200, "data: {\"message\":\"prompt is too long\"}\n\n", Refused::Other),
            (200, "data: {\"type\":\"error\",\"message\":\"prompt is too long\"}\n\n", overflow(None, None)),
            (
                200,
                "data: {\"object\":\"error\",\"message\":\"prompt is too long\"}\n\n",
                overflow(None, None),
            ),
            (200, r#"{"object":"error","message":"prompt is too long"}"#, overflow(None, None)),
            (200, r#"{"error":{"message":"prompt is too long"}}"#, overflow(None, None)),
            (200, r#"{"text":"prompt is too long"}"#, Refused::Other),
            (200, r#"{"message":"prompt is too long"}"#, Refused::Other),
            (200, r#"{"error":null,"message":"prompt is too long"}"#, Refused::Other),
            (
                200,
                "event: error\ndata: {\"error\":{\"message\":\"Error rendering prompt with jinja template\"}}\n\n",
                Refused::Malformed,
            ),
            (400, r#"{"error":{"message":"Error rendering prompt with jinja template"}}"#, Refused::Other),
            (200, r#"[{"error":{"message":"prompt is too long"}}"#, overflow(None, None)),
            (200, r#"[{"error":{"message":"prompt is too long"}"#, Refused::Other),
            (200, r#"[{"text":"prompt is too long"}]"#, Refused::Other),
        ] {
            assert_eq!(refused(status, body.as_bytes()), expected, "{status} {body}");
        }
    }

    /// An error inside an answer is classified like one that refuses a request at once.
    #[test]
    fn errors_within_answers_are_classified_like_refusals() {
        const CODE: &str = r#""code":"context_length_exceeded","message":"No room.""#;
        let overflow = |prompt, limit| Refused::Overflow { limit, prompt };
        let known = overflow(None, None);
        for (dialect, event, expected) in [
            ("openai-responses", format!(r#"{{"type":"error",{CODE},"param":null}}"#), known),
            ("openai-responses", format!(r#"{{"type":"error","error":{{{CODE}}}}}"#), known),
            (
                "openai-responses",
                format!(r#"{{"type":"response.failed","response":{{"status":"failed","error":{{{CODE}}}}}}}"#),
                known,
            ),
            (
                "openai-responses",
                r#"{"type":"error","code":"server_error","message":"context_length_exceeded?"}"#.to_owned(),
                known,
            ),
            ("openai-responses", r#"{"type":"error","code":"server_error","message":"No."}"#.to_owned(), Refused::Other),
            ("openai-chat", format!(r#"{{"error":{{{CODE}}}}}"#), known),
            (
                "openai-chat",
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"no","n_prompt_tokens":4476,"n_ctx":4096}}"#.to_owned(),
                overflow(Some(4476), Some(4096)),
            ),
            (
                "openai-chat",
                r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 12 tokens > 9\"}}"}}}"#.to_owned(),
                overflow(Some(12), Some(9)),
            ),
            ("openai-chat", r#"{"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit"}}"#.to_owned(), known),
            ("anthropic", format!(r#"{{"type":"error","error":{{"type":"x",{CODE}}}}}"#), known),
            ("anthropic", r#"{"type":"error","error":{"type":"context_length_exceeded"}}"#.to_owned(), known),
            ("gemini", format!(r#"{{"error":{{{CODE}}}}}"#), known),
            ("gemini", r#"{"error":{"code":429,"message":"Quota"}}"#.to_owned(), Refused::Other),
        ] {
            let mut reader = protocol::named(dialect).unwrap().answer(Framing::Events);
            reader.push(format!("data: {event}\n\n").as_bytes());
            assert_eq!(refused_within(&reader.finish()), expected, "{dialect} {event}");
        }
        assert_eq!(refused_within(&Answer::default()), Refused::Other);
        for (words, expected) in [
            (Some("provider returned error\ncode=400\n"), Some(400)),
            (Some("no such thing\n422\n"), Some(422)),
            (Some("bad\ninvalid_request_error\n"), Some(400)),
            (Some("busy\noverloaded_error\n"), Some(529)),
            (Some("slow down\nrate_limit_exceeded\n"), Some(429)),
            (Some("it takes 400 of them\n"), None),
            (None, None),
        ] {
            let answer = Answer { error_words: words.map(str::to_owned), ..Answer::default() };
            assert_eq!(status_within(&answer), expected, "{words:?}");
        }
    }

    #[test]
    fn refusals_in_stream_events_are_recognised() {
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model. Please adjust your input and try again."}}}"#;
        let limited = r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"try again in 1.3s"}}}"#;
        for (body, expected) in [
            (
                &*format!("event: response.failed\ndata: {failed}\n\n"),
                Refused::Overflow { limit: None, prompt: None },
            ),
            (&format!("data: {limited}\n\n"), Refused::Other),
            (r#"data: {"type":"response.completed","text":"context_length_exceeded"}"#, Refused::Other),
        ] {
            assert_eq!(refused(200, body.as_bytes()), expected, "{body}");
        }
    }
}
