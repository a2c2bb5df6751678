//! What a dialect is known by before anything of it is read, as rows of a table.
//!
//! Every dialect has its own in its own folder. Whoever asks goes through all of them and names none.

use super::answer::{Cause, Stop};

/// What a dialect is known by.
#[derive(Debug)]
pub struct Dialect {
    /// Its name, as users write it.
    pub name: &'static str,
    /// The member of a body that holds the messages. It tells dialects apart where a path does not.
    pub list: &'static str,
    /// The words for an answer that was cut off, and by what. Any other ends it in some other way.
    pub cuts: &'static [(&'static str, Cause)],
}

impl Dialect {
    /// What a provider's word for the end of an answer means. Servers in front of others pass on the others' words.
    pub(super) fn stop(&self, word: String) -> Stop {
        let others = super::ALL.iter().map(|protocol| protocol.dialect());
        let mut known = std::iter::once(self).chain(others).flat_map(|dialect| dialect.cuts);
        let cause = known.find(|(cut, _)| *cut == word).map_or(Cause::Other, |(_, cause)| *cause);
        Stop { word, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{self, Framing};

    #[test]
    fn words_mean_the_same_in_front_of_others() {
        for (word, expected) in [
            ("max_tokens", Cause::Length),
            ("length", Cause::Length),
            ("max_output_tokens", Cause::Length),
            ("MAX_TOKENS", Cause::Length),
            ("model_context_window_exceeded", Cause::Window),
            ("end_turn", Cause::Other),
            ("stop", Cause::Other),
            ("content_filter", Cause::Other),
            ("Length", Cause::Other),
            ("", Cause::Other),
        ] {
            for protocol in protocol::ALL {
                let stop = protocol.dialect().stop(word.to_owned());
                assert_eq!((stop.word(), stop.cause()), (word, expected), "{}", protocol.name());
            }
        }
    }

    #[test]
    fn answers_say_why_they_ended() {
        for (dialect, framing, answer, expected) in [
            ("anthropic", Framing::Document, r#"{"stop_reason":"max_tokens"}"#, Cause::Length),
            (
                "anthropic",
                Framing::Events,
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"model_context_window_exceeded\"}}\n\n",
                Cause::Window,
            ),
            ("openai-chat", Framing::Document, r#"{"choices":[{"finish_reason":"length"}]}"#, Cause::Length),
            (
                "openai-responses",
                Framing::Document,
                r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
                Cause::Length,
            ),
            ("openai-responses", Framing::Document, r#"{"status":"failed"}"#, Cause::Other),
            ("gemini", Framing::Document, r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#, Cause::Length),
            ("gemini", Framing::Document, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#, Cause::Other),
        ] {
            let mut reader = protocol::named(dialect).unwrap().answer(framing);
            reader.push(answer.as_bytes());
            assert_eq!(reader.finish().stop.map(|stop| stop.cause()), Some(expected), "{answer}");
        }
    }
}
