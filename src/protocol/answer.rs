//! What a dialect reads from answers, and what it says when the gateway must answer itself.

use crate::usage::Usage;

/// What was learned from one answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The answer's id.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why it ended.
    pub stop: Option<Stop>,
    /// The provider's own figures; `None` when it gave none.
    pub usage: Option<Usage>,
    /// The answer came to its proper end. If not, the output figure is a lower bound.
    pub complete: bool,
    /// The provider has begun, and gives its answer to another request.
    pub pending: bool,
    /// An error inside an answer with a good status, in the provider's words.
    pub error: Option<String>,
    /// All that it says of itself, in small letters: its code and its type besides.
    pub error_words: Option<String>,
    /// Hashes of what the provider has sealed a summary of the history with.
    pub seals: Vec<u128>,
    /// Reasoning blocks that the provider says it dropped.
    pub reasoning_dropped: u32,
    /// Those of them that are the last of the prompt: what stands before the first of them is not what stood there.
    pub reasoning_unbound: u32,
}

/// Why an answer ended. A dialect's description makes it of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub(super) word: String,
    pub(super) cause: Cause,
}

/// What ended an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was as long as it may be.
    Length,
    /// The model's window was full.
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
    /// That of a body with a content type, whatever its case; `None` for one that is not known.
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

/// Reads an answer as it passes by. Never fails: what is not understood is left out.
pub trait AnswerReader: Send {
    /// The next bytes, decoded.
    fn push(&mut self, bytes: &[u8]);
    /// A stream has said that it has come to its proper end: what still follows is figures and end marks.
    fn is_over(&self) -> bool;
    /// The answer has ended or broken off.
    fn finish(&mut self) -> Answer;
}

/// Who is at fault for an error that the gateway reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtFault {
    /// The caller's request.
    Client,
    /// The provider, or the way to it.
    Upstream,
    /// The gateway itself.
    Gateway,
}

impl AtFault {
    /// Its name in sentences.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
        }
    }
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

/// What a provider's refusal of a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The prompt is longer than the model's window; the figures, where the error says them.
    Overflow {
        /// Tokens that fit.
        limit: Option<u64>,
        /// Tokens that came.
        prompt: Option<u64>,
    },
    /// The prompt fits, but not together with the answer that was asked for: a shorter prompt is not what is missing.
    Answer,
    /// The model's chat template does not take these messages, though the server calls it a fault of its own.
    Malformed,
    /// The model has said what its server does not take for an answer, or the provider holds what is not gone on with so:
    /// nothing is wrong with what was asked.
    Unanswered,
    /// Something else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_whatever_their_case() {
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
