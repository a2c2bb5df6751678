//! What dialects read from answers, and the errors that the gateway itself reports.

use crate::usage::Usage;

/// What was learned from one answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The id that the provider gave the answer.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why the answer ended.
    pub stop: Option<Stop>,
    /// The provider's usage figures; `None` if it reported none.
    pub usage: Option<Usage>,
    /// Whether the answer ended properly. If not, the output figure is a lower bound.
    pub complete: bool,
    /// Whether the provider has only begun, and delivers its answer to a later request.
    pub pending: bool,
    /// An error inside an answer with a good status, in the provider's words.
    pub error: Option<String>,
    /// All text of that error in lower case: message, code and type.
    pub error_words: Option<String>,
    /// Hashes of the seals on the provider's own summaries of the history.
    pub seals: Vec<u128>,
    /// Reasoning blocks that the provider reports to have dropped.
    pub reasoning_dropped: u32,
    /// How many of these were dropped because the text before the first of them has changed. They are the last ones of
    /// the prompt.
    pub reasoning_unbound: u32,
}

/// Why an answer ended: the provider's word for it, and what that means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub(super) word: String,
    pub(super) cause: Cause,
}

/// The cause of an answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It reached the requested limit.
    Length,
    /// It filled the model's window.
    Window,
    /// Something else.
    Other,
}

impl Stop {
    /// The provider's own word.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// What it means.
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

/// How an answer is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Document,
    /// Server-sent events.
    Events,
    /// Amazon's binary event stream.
    Frames,
}

impl Framing {
    /// The framing that a content type denotes, in upper or lower case; `None` if it is not known.
    pub fn of_type(content_type: &str) -> Option<Self> {
        const TYPES: [(&str, Framing); 3] = [
            ("text/event-stream", Framing::Events),
            ("application/json", Framing::Document),
            ("application/vnd.amazon.eventstream", Framing::Frames),
        ];
        let says =
            |name: &str| content_type.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        TYPES.into_iter().find_map(|(name, framing)| says(name).then_some(framing))
    }
}

/// Reads an answer as it passes. It never fails: what is not understood is ignored.
pub trait AnswerReader: Send {
    /// Takes the next bytes, with the content encoding removed.
    fn push(&mut self, bytes: &[u8]);
    /// Whether a stream has announced its proper end: only figures and end marks may follow.
    fn is_over(&self) -> bool;
    /// Ends the reading, whether or not the answer is complete.
    fn finish(&mut self) -> Answer;
}

/// Who is at fault for an error that the gateway reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtFault {
    /// The caller: the request is wrong.
    Client,
    /// The provider, or what is on the way to it.
    Upstream,
    /// The gateway itself.
    Gateway,
}

/// An error of the gateway's own.
#[derive(Debug, Clone, Copy)]
pub struct Fault<'a> {
    /// The HTTP status it goes with.
    pub status: u16,
    /// Who is at fault.
    pub at_fault: AtFault,
    /// What happened, in one sentence.
    pub message: &'a str,
}

/// What a provider's refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The prompt is longer than the model's window, with the figures if the error states them.
    Overflow {
        /// The limit, in tokens.
        limit: Option<u64>,
        /// The size of the prompt, in tokens.
        prompt: Option<u64>,
    },
    /// The prompt fits, but not together with the requested answer: shortening the prompt is not the remedy.
    Answer,
    /// The model's chat template rejects these messages, even if the server reports an error of its own.
    Malformed,
    /// Nothing is wrong with the request: the server cannot parse the model's answer, or the provider holds a history
    /// that cannot be continued this way.
    Unanswered,
    /// Something else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_matched_case_insensitively() {
        for (kind, expected) in [
            ("text/event-stream", Some(Framing::Events)),
            ("Text/Event-Stream; charset=UTF-8", Some(Framing::Events)),
            ("APPLICATION/JSON", Some(Framing::Document)),
            ("application/vnd.amazon.eventstream", Some(Framing::Frames)),
            ("text/plain", None),
            ("", None),
        ] {
            assert_eq!(Framing::of_type(kind), expected, "{kind}");
        }
    }
}
