//! Reads the usage and the end of answers.
//!
//! A stream consists of whole responses, each with the figures so far: the last one counts. A stream without events is
//! one JSON array of responses. Figures that are zero are left out. Proxies written in Python may spell all names in
//! snake case.

use memchr::memmem;

use super::dialect::DIALECT;
use crate::protocol::pruned::Value;
use crate::protocol::reader::{self, AnswerVisitor, count, text};
use crate::protocol::{Answer, AnswerReader, Framing};
use crate::usage::{Charge, Partial, Prompt, Reasoning, Tier};

pub(super) fn reader(framing: Framing) -> Box<dyn AnswerReader> {
    reader::reader(framing, Responses::default())
}

/// The response in a body. Like a request, it may be in an envelope.
fn response_in<'v, 'd>(body: &'v Value<'d>) -> &'v Value<'d> {
    body.get("response").filter(|response| response.is_object()).unwrap_or(body)
}

#[derive(Default)]
struct Responses {
    answer: Answer,
    usage: Partial,
    /// Whether the provider blocked the prompt, so that there is no answer.
    is_blocked: bool,
    /// Whether the names of members are in snake case.
    is_snake_case: bool,
    /// The last two unparsed events with figures, the newest first. The newest one may be cut off.
    newest: [Vec<u8>; 2],
}

impl Responses {
    /// Reads one response.
    fn read(&mut self, event: &Value<'_>) {
        let response = response_in(event);
        for (kept, key) in [(&mut self.answer.id, "responseId"), (&mut self.answer.model, "modelVersion")] {
            if let Some(said) = word(response, key) {
                *kept = Some(said);
            }
        }
        self.is_snake_case |= response.get("response_id").is_some();
        reader::take_error(&mut self.answer, response);
        let candidates = response.get("candidates").map(Value::items).unwrap_or_default();
        let first = candidates.first();
        if candidates.iter().any(is_grounded) {
            self.usage.unpriced.push(Charge::Grounding);
        }
        let stop = first.and_then(|candidate| named(candidate, "finishReason", FINISH_REASONS));
        // A prompt that is blocked has no answer at all.
        let feedback = get(response, "promptFeedback");
        let blocked = feedback.and_then(|feedback| named(feedback, "blockReason", BLOCK_REASONS));
        self.is_blocked |= blocked.is_some() && first.is_none();
        if let Some(stop) = stop.or(blocked) {
            self.answer.complete = true;
            self.answer.stop = Some(DIALECT.stop(stop));
        }
        if let Some(figures) = get(response, "usageMetadata").filter(|figures| figures.is_object()) {
            self.usage.fold(usage(figures));
        }
    }

    /// Reads the newest complete event among the unparsed ones.
    fn read_newest(&mut self) {
        let newest = std::mem::take(&mut self.newest);
        if let Some(newest) = newest.iter().find_map(|event| reader::read(event)) {
            self.read(&newest);
        }
    }
}

impl AnswerVisitor for Responses {
    fn is_relevant(&self, event: &[u8]) -> bool {
        let words: [&[u8]; 4] = if self.is_snake_case {
            [b"\"finish_reason\"", b"\"block_reason\"", b"\"error\"", b"\"grounding_metadata\""]
        } else {
            [b"\"finishReason\"", b"\"blockReason\"", b"\"error\"", b"\"groundingMetadata\""]
        };
        self.answer.id.is_none() || words.iter().any(|word| memmem::find(event, word).is_some())
    }

    fn skipped(&mut self, event: &[u8]) {
        let figures: &[u8] = if self.is_snake_case { b"\"usage_metadata\"" } else { b"\"usageMetadata\"" };
        if memmem::find(event, figures).is_some() {
            self.newest.swap(0, 1);
            self.newest[0].clear();
            self.newest[0].extend_from_slice(event);
        }
    }

    fn event(&mut self, event: &Value<'_>) {
        self.read_newest();
        self.read(event);
    }

    fn document(&mut self, document: &Value<'_>, _: &[u8]) {
        self.read(document);
    }

    fn is_over(&self) -> bool {
        self.answer.complete
    }

    fn answer(&mut self) -> Answer {
        self.read_newest();
        let mut usage = std::mem::take(&mut self.usage);
        if self.is_blocked && usage.prompt.is_some() && usage.total.is_none() {
            usage.output = usage.output.or(Some(0));
        }
        Answer { usage: usage.finish(), ..std::mem::take(&mut self.answer) }
    }
}

/// The words of three enumerations in the order of their numbers, from 1 on, as far as Gemini's own service and Vertex
/// agree.
const FINISH_REASONS: &[&str] = &[STOP, "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER"];
const BLOCK_REASONS: &[&str] = &["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"];
const MODALITIES: &[&str] = &["TEXT", "IMAGE", "VIDEO", "AUDIO", "DOCUMENT"];

/// The finish reason of an answer that ended naturally, as a word and as a number.
pub(super) const STOP: &str = "STOP";
pub(super) const STOP_NUMBER: u64 = 1;

/// A member under its name in camel case or in snake case.
fn get<'v, 'd>(holder: &'v Value<'d>, camel: &str) -> Option<&'v Value<'d>> {
    holder.get(camel).or_else(|| holder.get(&snake(camel)))
}

fn snake(camel: &str) -> String {
    let mut name = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        name.extend(letter.is_ascii_uppercase().then_some('_'));
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn word(holder: &Value<'_>, camel: &str) -> Option<String> {
    text(get(holder, camel)?, &[])
}

/// The value of an enumeration, which may be written as a number, from 1 on, if the request asked for that
/// (`$alt=json;enum-encoding=int`); 0 is none. A number without a word here is returned as it is.
fn named(holder: &Value<'_>, camel: &str, words: &[&str]) -> Option<String> {
    let Some(number) = figure(holder, camel) else { return word(holder, camel) };
    let known = words.get(usize::try_from(number.checked_sub(1)?).ok()?);
    Some(known.map_or_else(|| number.to_string(), |known| (*known).to_owned()))
}

fn figure(holder: &Value<'_>, camel: &str) -> Option<u64> {
    count(get(holder, camel)?, &[])
}

/// Whether an answer used a search that is charged for. Searches in the user's own files, and searches without results,
/// are not.
fn is_grounded(candidate: &Value<'_>) -> bool {
    let Some(metadata) = get(candidate, "groundingMetadata") else { return false };
    let list = |key| get(metadata, key).map(Value::items).unwrap_or_default();
    let has_searched = ["webSearchQueries", "imageSearchQueries"]
        .into_iter()
        .any(|key| list(key).iter().any(|query| query.as_str() != Some("")));
    has_searched || list("groundingChunks").iter().any(|chunk| get(chunk, "retrievedContext").is_none())
}

fn usage(figures: &Value<'_>) -> Partial {
    let not_text = |part: &str| part != "TEXT" && part != "MODALITY_UNSPECIFIED";
    let tier = get(figures, "trafficType").or_else(|| get(figures, "serviceTier"));
    Partial {
        prompt: figure(figures, "promptTokenCount").map(Prompt::Total),
        tool_prompt: figure(figures, "toolUsePromptTokenCount"),
        cache_read: figure(figures, "cachedContentTokenCount"),
        output: figure(figures, "candidatesTokenCount"),
        reasoning: figure(figures, "thoughtsTokenCount").map(Reasoning::Beside),
        total: figure(figures, "totalTokenCount"),
        tier: tier.and_then(Value::as_str).map(Tier::from_wire),
        audio_input: modalities(figures, "promptTokensDetails", |part| part == "AUDIO"),
        media_output: modalities(figures, "candidatesTokensDetails", not_text),
        ..Partial::default()
    }
}

/// The tokens of those modalities in a list that `counts` accepts; `None` without a list.
fn modalities(figures: &Value<'_>, list: &str, counts: impl Fn(&str) -> bool) -> Option<u64> {
    let parts = get(figures, list)?.as_list()?.iter();
    let is_counted = |part: &str| counts(part);
    let counted = parts.filter(|part| named(part, "modality", MODALITIES).as_deref().is_some_and(is_counted));
    Some(counted.filter_map(|part| figure(part, "tokenCount")).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stop;

    const FIGURES: &str =
        r#""usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050}"#;

    fn stream(events: &[String]) -> Answer {
        let mut reader = reader(Framing::Events);
        for event in events {
            reader.push(format!("data: {event}\r\n\r\n").as_bytes());
        }
        reader.finish()
    }

    fn event(figures: &str, more: &str) -> String {
        format!(
            r#"{{"responseId":"r","candidates":[{{"content":{{"parts":[{{"text":"x"}}]}}{more}}}]{figures}}}"#
        )
    }

    #[test]
    fn usage_is_read_from_any_event() {
        let first = event(r#","usageMetadata":{"promptTokenCount":1000}"#, "");
        let (stated, silent) = (event(&format!(",{FIGURES}"), ""), event("", ""));
        let end = event("", r#","finishReason":"STOP""#);
        let quoted = event("", r#","note":"\"usageMetadata\"""#);
        for events in [
            vec![&first, &stated, &end],
            vec![&first, &stated, &silent],
            vec![&first, &stated, &quoted],
            vec![&first, &first, &stated],
            vec![&first, &stated, &end, &silent],
            vec![&silent, &silent, &stated, &silent, &end],
        ] {
            let answer = stream(&events.into_iter().cloned().collect::<Vec<_>>());
            let tokens = answer.usage.map(|usage| usage.tokens);
            assert_eq!(tokens.map(|tokens| (tokens.input, tokens.output)), Some((1000, 50)));
        }
    }

    #[test]
    fn the_last_stream_figures_count() {
        const STOP: &str = r#","finishReason":"STOP""#;
        let stated = |output: u64| {
            format!(
                r#","usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":{output},"totalTokenCount":{}}}"#,
                output + 9
            )
        };
        let no = |figures: &str| format!(r#"{{"error":{{"message":"no"}}{figures}}}"#);
        let (less, more) = (event(&stated(5), ""), event(&stated(7), ""));
        for (events, output, complete, error) in [
            (vec![less.clone(), more.clone(), event("", STOP)], 7, true, None),
            (vec![more.clone(), event(&stated(5), STOP)], 5, true, None),
            (vec![event(&stated(5), STOP), more.clone()], 7, true, None),
            (vec![more.clone(), event(r#","usageMetadata":null"#, STOP)], 7, true, None),
            (vec![more.clone(), event(r#","usageMetadata":{}"#, STOP)], 7, true, None),
            (vec![less.clone(), more.clone()], 7, false, None),
            (vec![less.clone(), more[..more.len() - 9].to_owned()], 5, false, None),
            (vec![less.clone(), no("")], 5, false, Some("no")),
            (vec![less.clone(), no(&stated(7))], 7, false, Some("no")),
        ] {
            let answer = stream(&[&[event("", "")], &*events].concat());
            let tokens = answer.usage.expect("figures").tokens;
            assert_eq!((tokens.prompt(), tokens.output), (9, output), "{events:?}");
            assert_eq!((answer.complete, answer.error.as_deref()), (complete, error), "{events:?}");
        }
    }

    /// If the request was in an envelope, so is every event of the answer.
    #[test]
    fn answers_in_an_envelope_are_read() {
        let end = event(&format!(",{FIGURES}"), r#","finishReason":"STOP""#);
        let events = [event("", ""), end];
        let within = |event: &String| format!(r#"{{"response":{event},"traceId":"t"}}"#);
        let expected = stream(&events);
        assert!(expected.complete && expected.usage.is_some());
        assert_eq!(stream(&events.each_ref().map(within)), expected);
        let broken = stream(&[within(&events[0]), r#"{"error":{"message":"no"}}"#.to_owned()]);
        assert_eq!((broken.error.as_deref(), broken.complete), (Some("no"), false));
    }

    /// Proxies written in Python write null for missing members.
    #[test]
    fn snake_case_members_are_read() {
        let camel = [
            event(r#","modelVersion":"m""#, ""),
            event(
                r#","usageMetadata":{"promptTokenCount":1000}"#,
                r#","groundingMetadata":{"webSearchQueries":["x"]}"#,
            ),
            event(
                r#","usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":600,"toolUsePromptTokenCount":5,"candidatesTokenCount":50,"thoughtsTokenCount":30,"totalTokenCount":1085,"trafficType":"ON_DEMAND_FLEX","promptTokensDetails":[{"modality":"AUDIO","tokenCount":4}],"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":3}]}"#,
                "",
            ),
            event("", r#","finishReason":"STOP""#),
        ];
        let names = [
            "responseId",
            "modelVersion",
            "finishReason",
            "groundingMetadata",
            "webSearchQueries",
            "usageMetadata",
            "promptTokenCount",
            "cachedContentTokenCount",
            "toolUsePromptTokenCount",
            "candidatesTokenCount",
            "thoughtsTokenCount",
            "totalTokenCount",
            "trafficType",
            "promptTokensDetails",
            "candidatesTokensDetails",
            "tokenCount",
        ];
        let rewritten = camel.each_ref().map(|event| {
            let event = names.iter().fold(event.clone(), |event, name| {
                event.replace(&format!("\"{name}\""), &format!("\"{}\"", snake(name)))
            });
            event.replacen('{', r#"{"prompt_feedback":null,"#, 1)
        });
        let expected = stream(&camel);
        let usage = expected.usage.clone().unwrap();
        assert_eq!((usage.tokens.prompt(), usage.tokens.output, usage.tokens.cache_read), (1005, 80, 600));
        assert!(expected.complete && usage.unpriced == [Charge::Grounding] && usage.audio_input == 4);
        assert_eq!(
            (stream(&rewritten), expected.model.as_deref()),
            (expected.clone(), Some("m")),
            "{rewritten:?}"
        );
        let blocked = r#"{"response_id":"r","usage_metadata":{"prompt_token_count":10},"prompt_feedback":{"block_reason":"SAFETY"}}"#;
        let blocked = stream(&[blocked.to_owned()]);
        assert_eq!(
            (blocked.stop.as_ref().map(Stop::word), blocked.usage.unwrap().tokens.input),
            (Some("SAFETY"), 10)
        );
    }

    #[test]
    fn omitted_counts_are_inferred_from_the_total() {
        for (figures, prompt, output) in [
            (r#"{"promptTokenCount":10,"totalTokenCount":10}"#, Some(10), Some(0)),
            (r#"{"promptTokenCount":10,"totalTokenCount":17}"#, Some(10), Some(7)),
            (r#"{"promptTokenCount":10,"thoughtsTokenCount":3,"totalTokenCount":17}"#, Some(10), Some(7)),
            (r#"{"candidatesTokenCount":7,"totalTokenCount":7}"#, None, Some(7)),
            (r#"{"promptTokenCount":0,"candidatesTokenCount":7,"totalTokenCount":7}"#, None, Some(7)),
            (r#"{"candidatesTokenCount":7,"totalTokenCount":17}"#, Some(10), Some(7)),
            (r#"{"candidatesTokenCount":7}"#, None, Some(7)),
            (r#"{"promptTokenCount":10}"#, Some(10), None),
            (r#"{"promptTokenCount":10,"thoughtsTokenCount":3}"#, Some(10), None),
            (r#"{"promptTokenCount":10},"promptFeedback":{"blockReason":"SAFETY"}"#, Some(10), Some(0)),
            (r#"{"promptTokenCount":10},"candidates":[{"finishReason":"STOP"}]"#, Some(10), None),
        ] {
            let answer = stream(&[format!(r#"{{"responseId":"r","usageMetadata":{figures}}}"#)]);
            let usage = answer.usage.unwrap();
            let found = (!usage.prompt_is_unknown).then(|| usage.tokens.prompt());
            let said = (!usage.output_is_unknown).then_some(usage.tokens.output);
            assert_eq!((found, said), (prompt, output), "{figures}");
        }
    }

    /// Some servers count reasoning as output too, which the total shows.
    #[test]
    fn reasoning_tokens_are_not_counted_twice() {
        for (said, thought, tools, total, expected) in [
            (50, 400, 0, "1450", (450, 400)),
            (450, 400, 0, "1450", (450, 400)),
            (450, 400, 0, "1850", (850, 400)),
            (450, 400, 300, "1750", (450, 400)),
            (450, 400, 300, "2150", (850, 400)),
            (450, 400, 0, "null", (850, 400)),
            // A total that leaves out the thoughts, of which there are more than other output.
            (50, 400, 0, "1050", (450, 400)),
            (450, 0, 0, "1450", (450, 0)),
        ] {
            let answer = stream(&[format!(
                r#"{{"usageMetadata":{{"promptTokenCount":1000,"toolUsePromptTokenCount":{tools},"candidatesTokenCount":{said},"thoughtsTokenCount":{thought},"totalTokenCount":{total}}}}}"#
            )]);
            let tokens = answer.usage.unwrap().tokens;
            assert_eq!((tokens.output, tokens.reasoning), expected, "{said} {thought} {tools} {total}");
        }
    }

    #[test]
    fn grounding_is_an_unpriced_charge() {
        let end = event(&format!(",{FIGURES}"), r#","finishReason":"STOP""#);
        for (metadata, expected) in [
            ("", &[][..]),
            (r#","groundingMetadata":{}"#, &[]),
            (r#","groundingMetadata":{"webSearchQueries":[]}"#, &[]),
            (r#","groundingMetadata":{"webSearchQueries":["",""]}"#, &[]),
            (r#","groundingMetadata":{"webSearchQueries":["","x"]}"#, &[Charge::Grounding]),
            (r#","groundingMetadata":{"imageSearchQueries":["x"]}"#, &[Charge::Grounding]),
            (r#","groundingMetadata":{"groundingChunks":[{"retrievedContext":{}}]}"#, &[]),
            (r#","groundingMetadata":{"groundingChunks":[{"web":{}}]}"#, &[Charge::Grounding]),
            (r#","groundingMetadata":{"webSearchQueries":["x"]}"#, &[Charge::Grounding]),
        ] {
            let (first, grounded) = (event("", ""), event("", metadata));
            let answer = stream(&[first, grounded.clone(), grounded, end.clone()]);
            assert_eq!(answer.usage.unwrap().unpriced, expected, "{metadata}");
        }
    }

    /// Google's own transport for REST asks for numbers in place of words.
    #[test]
    fn enums_may_be_numbers() {
        for (number, word) in [
            ("0", None),
            ("1", Some("STOP")),
            ("2", Some("MAX_TOKENS")),
            ("3", Some("SAFETY")),
            ("4", Some("RECITATION")),
            ("5", Some("OTHER")),
            ("9", Some("9")),
            (r#""STOP""#, Some("STOP")),
            ("null", None),
            ("-1", None),
        ] {
            let answer = stream(&[event("", ""), event("", &format!(r#","finishReason":{number}"#))]);
            let stop = answer.stop.as_ref().map(Stop::word);
            assert_eq!((stop, answer.complete), (word, word.is_some()), "{number}");
        }
        let figures = |words: [&str; 3]| {
            let [text, audio, image] = words;
            let answer = stream(&[format!(
                r#"{{"usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":5,"promptTokensDetails":[{{"modality":{text},"tokenCount":5}},{{"modality":{audio},"tokenCount":4}}],"candidatesTokensDetails":[{{"modality":{text},"tokenCount":2}},{{"modality":{image},"tokenCount":3}}]}}}}"#
            )]);
            answer.usage.map(|usage| (usage.audio_input, usage.media_output))
        };
        assert_eq!(figures(["1", "4", "2"]), figures([r#""TEXT""#, r#""AUDIO""#, r#""IMAGE""#]));
        assert_eq!(figures(["0", "4", "0"]), Some((4, 0)));
        assert_eq!(figures([r#""TEXT""#, r#""AUDIO""#, r#""MODALITY_UNSPECIFIED""#]), Some((4, 0)));
        let blocked = r#"{"promptFeedback":{"blockReason":4},"usageMetadata":{"promptTokenCount":9}}"#;
        let blocked = stream(&[blocked.to_owned()]);
        assert_eq!(blocked.stop.as_ref().map(Stop::word), Some("PROHIBITED_CONTENT"));
    }

    #[test]
    fn the_service_tier_is_read_from_either_member() {
        for (names, expected) in [
            ("", Tier::Standard),
            (r#","serviceTier":"priority""#, Tier::Priority),
            (r#","trafficType":"ON_DEMAND_FLEX""#, Tier::Flex),
            (r#","serviceTier":"flex","trafficType":"ON_DEMAND""#, Tier::Standard),
        ] {
            let figures =
                format!(r#"{{"usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":5{names}}}}}"#);
            assert_eq!(stream(&[figures]).usage.unwrap().tier, expected, "{names}");
        }
    }

    #[test]
    fn audio_tokens_are_counted_separately() {
        let answer = stream(&[r#"{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5,"promptTokensDetails":[{"modality":"TEXT","tokenCount":5},{"modality":"AUDIO","tokenCount":4}],"candidatesTokensDetails":[{"modality":"TEXT","tokenCount":2},{"modality":"IMAGE","tokenCount":3}]}}"#.to_owned()]);
        let usage = answer.usage.unwrap();
        assert_eq!((usage.audio_input, usage.media_output), (4, 3));
    }
}
