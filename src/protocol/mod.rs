//! Wire dialects: one folder each, one trait.
//!
//! A dialect turns body bytes into a [`Conversation`], a [`Plan`] into byte edits, and answers into usage. It never
//! knows why something is edited. Differences that can be stated as data are rows of the table in `dialect`; the
//! trait has methods for those that need code, and the methods that only some dialects need have default
//! implementations that do nothing. What dialects share is in `splice` (plan to edits), `body` (reading the outermost
//! object), `additions` (members that the gateway adds) and `conformance` (the tests that every dialect passes).

mod additions;
pub mod answer;
pub mod ask;
mod blocks;
mod body;
#[cfg(test)]
pub(crate) mod conformance;
mod content;
pub mod dialect;
mod envelope;
mod event_filter;
mod frames;
mod lenient;
mod marked;
mod prelude;
pub mod prompt;
mod pruned;
mod reader;
mod refusal;
mod request_marks;
mod splice;
mod trail;
mod unlisted;
mod valid;
mod weight;
mod wording;

pub mod anthropic;
pub mod gemini;
mod openai;
pub mod openai_chat;
pub mod openai_responses;

use bytes::Bytes;

use crate::conversation::{Carriers, Conversation, Memo, Role};
use crate::json::{Edit, Edits, ScanError};
use crate::plan::{self, Plan};
use dialect::Server;

pub use additions::{Added, Leaving, Wanted, add};
pub use answer::{Answer, AnswerReader, AtFault, Cause, Fault, Framing, Refused, Stop};
pub use ask::{Ask, Asked};
pub use body::{Document, Object, Unread};
pub use dialect::{Dialect, Purpose};
pub use envelope::Envelope;
pub use event_filter::EventFilter;
pub use prelude::Bound;
pub(crate) use prelude::prelude;
pub(crate) use prompt::before_messages;
pub use prompt::{Prompt, Scale, Share, Thought};
pub use refusal::{has_opened, refused, refused_within, status_within};
pub use splice::Lowering;
pub use unlisted::{Unlisted, unlisted};
pub use valid::Invalid;

/// A wire dialect.
///
/// One trait for all of a dialect, so that a new one is one implementation in one folder. Users need different parts
/// of it: reading and editing requests ([`Self::index`], [`Self::lower`], [`Self::valid`]), reading answers
/// ([`Self::answer`]), the books ([`Self::prompt`]), and requests and errors of the gateway's own ([`Self::ask`],
/// [`Self::fault`]).
pub trait Protocol: Send + Sync + std::fmt::Debug {
    /// The dialect's table.
    fn dialect(&self) -> &'static Dialect;

    /// The dialect's name, as users write it.
    fn name(&self) -> &'static str {
        self.dialect().name
    }

    /// The member of a body that holds the messages.
    fn list(&self) -> &'static str {
        self.dialect().list
    }

    /// The model that a path names, in dialects whose bodies do not name it.
    fn model_of_path<'p>(&self, _path: &'p str) -> Option<&'p str> {
        None
    }

    /// The envelope around a request, in dialects that have envelopes; `None` if the body is the request itself.
    fn envelope(&self, _body: &Bytes) -> Option<Envelope> {
        None
    }

    /// Reads a request from the outermost values of its body.
    ///
    /// # Errors
    /// [`Unread`] for anything that is not certainly understood; the request then passes through.
    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread>;

    /// Reads a request body.
    ///
    /// # Errors
    /// [`Unread`] for anything that is not certainly understood; the request then passes through.
    fn index(&self, body: &Bytes, memo: &dyn Memo) -> Result<Conversation, Unread> {
        let document = Document::read(body, self.list(), self.name(), memo)?;
        Ok(self.conversation(document, memo)?.with_code_apart())
    }

    /// The prompt size in tokens from which the client asks the provider to remove parts of the prompt itself: `None`
    /// if it does not ask for that, 0 if the size is unknown.
    fn edits_from(&self, _conversation: &Conversation) -> Option<u64> {
        None
    }

    /// Adds the cache marks of a request whose server passes them on to a provider that caches by marks; `carriers`
    /// says where they may be. Dialects that have marks of their own, or none, return the conversation unchanged.
    fn with_marks(&self, conversation: Conversation, _carriers: Carriers) -> Conversation {
        conversation
    }

    /// Reads a request without a list of messages, in dialects in which the provider may hold the whole history.
    fn unlisted(&self, _frame: &Object<'_>) -> Option<Unlisted> {
        None
    }

    /// A message with a single text, as JSON.
    fn message(&self, role: Role, text: &str) -> String {
        format!("{{{}}}", content::role_and_content(role, text))
    }

    /// A reader for the usage and the end of an answer.
    fn answer(&self, framing: Framing) -> Box<dyn AnswerReader>;

    /// The edit that asks for usage, in dialects whose streams report it only on request; `None` if there is nothing to
    /// ask for.
    fn ask_for_usage(&self, _frame: &Object<'_>) -> Option<Edit> {
        None
    }

    /// The edit that adds a key by which requests of one conversation are routed to the same cache; `None` if the
    /// dialect has no such key, or the request has one.
    fn add_cache_key(&self, _frame: &Object<'_>, _key: &str) -> Option<Edit> {
        None
    }

    /// Whether an event of a stream was only sent because of [`Self::ask_for_usage`].
    fn only_states_usage(&self, _event: &[u8]) -> bool {
        false
    }

    /// The JSON body of an error that the gateway itself reports, in the form that clients of this dialect expect.
    fn fault(&self, fault: &Fault<'_>) -> String;

    /// A request of the gateway's own in wire form.
    fn ask(&self, ask: &Ask<'_>) -> Asked;

    /// The text of the answer to a request of [`Self::ask`]; `None` if it is incomplete.
    fn text_of_answer(&self, answer: &[u8]) -> Option<String>;

    /// The request as the provider's prompt cache sees it.
    fn prompt(&self, conversation: &Conversation) -> Prompt {
        self.prompt_after(prompt::frame(conversation, &self.dialect().layout), conversation)
    }

    /// The same, if the `frame` before the messages was read already.
    fn prompt_after(&self, frame: Prompt, conversation: &Conversation) -> Prompt {
        prompt::completed(frame, conversation, &self.dialect().layout)
    }

    /// Checks a history against the provider's rules, as far as they are known.
    ///
    /// # Errors
    /// The first rule that it breaks.
    fn valid(&self, conversation: &Conversation) -> Result<(), Invalid> {
        valid::check(conversation, &self.dialect().rules)
    }

    /// Lowers a plan to byte edits.
    ///
    /// # Errors
    /// [`Lowering`] if the plan breaks a rule or does not fit the conversation.
    fn lower(&self, conversation: &Conversation, plan: &Plan) -> Result<Edits, Lowering> {
        plan::check(conversation, plan)?;
        splice::lower(conversation, plan, &|role, text| self.message(role, text))
    }
}

/// All dialects. A new one needs its folder and an entry here.
pub const ALL: &[&dyn Protocol] =
    &[&anthropic::Anthropic, &openai_chat::OpenAiChat, &openai_responses::OpenAiResponses, &gemini::Gemini];

/// The servers of all dialects in order of their rank, each with the dialects spoken there.
pub fn servers() -> Vec<(&'static Server, Vec<&'static dyn Protocol>)> {
    let mut all: Vec<(&Server, Vec<&dyn Protocol>)> = Vec::new();
    for protocol in ALL {
        for server in protocol.dialect().servers {
            match all.iter_mut().find(|(known, _)| known.name == server.name) {
                Some((_, spoken)) => spoken.push(*protocol),
                None => all.push((server, vec![*protocol])),
            }
        }
    }
    all.sort_by_key(|(server, _)| server.rank);
    all
}

/// The dialect with a name.
pub fn named(name: &str) -> Option<&'static dyn Protocol> {
    ALL.iter().copied().find(|protocol| protocol.name() == name)
}

/// Reads a body in the dialect that its path indicates. Some clients send one dialect to the path of another: if the
/// list of messages has another dialect's name, the body is read in that one.
///
/// # Errors
/// [`Unread`] if no dialect can read it.
pub fn read(
    expected: &'static dyn Protocol,
    body: &Bytes,
    memo: &dyn Memo,
) -> Result<(&'static dyn Protocol, Conversation), Unread> {
    let others = ALL.iter().copied().filter(|other| other.list() != expected.list());
    std::iter::once(expected)
        .chain(others)
        .map(|protocol| Ok((protocol, protocol.index(body, memo)?)))
        .find(|read| !matches!(read, Err(Unread::Shape)))
        .unwrap_or(Err(Unread::Shape))
}

/// The model that a body names, whatever else is in it.
pub fn model_of_body(body: &Bytes) -> Option<Box<str>> {
    Document::outermost(body, "").ok()?.object().name("model")
}

/// The part of a path between its last segment called `before` and the next character `end`. `None` if it is empty or
/// more than one segment.
fn between<'p>(path: &'p str, before: &str, end: char) -> Option<&'p str> {
    let (found, _) = after_segment(path, before)?.split_once(end)?;
    (!found.is_empty() && !found.contains('/')).then_some(found)
}

/// The part of a path after its last segment called `name`. `None` if there is no such segment, or if the path ends
/// with it.
fn after_segment<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let mut end = path.len();
    loop {
        // Segments are short, so a plain search is faster than a vectorised one.
        let start = path.as_bytes()[..end].iter().rposition(|byte| *byte == b'/')?;
        match path.get(end + 1..) {
            Some(after) if path[start + 1..end] == *name => return Some(after),
            _ => end = start,
        }
    }
}

/// Applies a plan to a request, reads the result again and compares it with the plan's reference semantics.
///
/// # Errors
/// Why the original must be sent instead.
pub fn apply_verified(
    protocol: &dyn Protocol,
    conversation: &Conversation,
    plan: &Plan,
    memo: &dyn Memo,
) -> Result<Conversation, Unsafe> {
    let edits = protocol.lower(conversation, plan)?;
    let after = match Document::edited(conversation, &edits) {
        Some(document) => protocol.conversation(document?, memo)?.with_code_apart(),
        None => protocol.index(&Bytes::from(edits.apply(&conversation.body)), memo)?,
    };
    let after = match &conversation.marks {
        Some(marks) => protocol.with_marks(after, marks.carriers),
        None => after,
    };
    plan::verify(conversation, plan, &after)?;
    Ok(after)
}

/// Why an edited request must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// The plan could not be lowered to edits.
    #[error(transparent)]
    Lowering(#[from] Lowering),
    /// The result could not be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The result is not what was planned.
    #[error(transparent)]
    Mismatch(#[from] plan::Mismatch),
}

impl From<ScanError> for Unread {
    fn from(error: ScanError) -> Self {
        Self::Json(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::NoMemo;

    #[test]
    fn a_body_with_the_list_of_another_dialect_is_read_as_that_dialect() {
        let input = r#"{"model":"m","input":[{"role":"user","content":"hi"}],"stream_options":{}}"#;
        let contents = r#"{"contents":[{"parts":[{"text":"hi"}]}]}"#;
        let messages = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
        let tool = r#"{"messages":[{"role":"tool","tool_call_id":"c","content":"hi"}]}"#;
        let both = r#"{"input":"hi","messages":[{"role":"user","content":"hi"}]}"#;
        for (said, body, expected) in [
            ("openai-chat", messages, Ok("openai-chat")),
            ("openai-chat", input, Ok("openai-responses")),
            ("openai-chat", both, Ok("openai-chat")),
            ("openai-responses", both, Ok("openai-responses")),
            ("gemini", contents, Ok("gemini")),
            ("anthropic", messages, Ok("anthropic")),
            // The same list, but not the same dialect.
            ("anthropic", tool, Err(Unread::Shape)),
            ("openai-chat", "{}", Err(Unread::Shape)),
            ("openai-chat", r#"{"input":"a","input":"b"}"#, Err(Unread::Json(ScanError::DuplicateKey))),
        ] {
            let read = read(named(said).unwrap(), &Bytes::from(body), &NoMemo);
            assert_eq!(read.map(|(protocol, _)| protocol.name()), expected, "{said} {body}");
        }
    }

    #[test]
    fn the_model_is_read_from_a_path() {
        let names = |protocol: &'static dyn Protocol, cases: &[(&'static str, Option<&str>)]| {
            for (path, expected) in cases {
                assert_eq!(protocol.model_of_path(path), *expected, "{path}");
            }
        };
        names(
            &gemini::Gemini,
            &[
                ("/v1beta/models/gemini-2.5-pro:generateContent", Some("gemini-2.5-pro")),
                (
                    "/gw/v1/projects/p/locations/l/publishers/google/models/m-1:streamGenerateContent",
                    Some("m-1"),
                ),
                ("/v1beta/models/:generateContent", None),
                ("/v1beta/models/m", None),
                ("/v1beta/models", None),
                ("/models/a:x/models/b:y", Some("b")),
                ("/models/a:x/models", Some("a")),
                ("/models/a:x/models/", None),
                ("/xmodels/a:x", None),
                ("models/a:x", None),
            ],
        );
        names(
            &anthropic::Anthropic,
            &[
                ("/v1/projects/p/publishers/anthropic/models/claude-x@1:rawPredict", Some("claude-x@1")),
                ("/model/anthropic.claude-x/invoke", Some("anthropic.claude-x")),
                ("/v1/messages", None),
            ],
        );
        names(&openai_chat::OpenAiChat, &[("/v1/models/m:x", None)]);
    }

    #[test]
    fn the_model_is_read_from_a_body() {
        for (body, expected) in [
            (r#"{"model":"m","prompt":"x"}"#, Some("m")),
            (r#"{"input":["a","b"],"model":"m\u0031"}"#, Some("m1")),
            (r#"{"model":""}"#, None),
            (r#"{"model":7}"#, None),
            (r#"{"model":"a","model":"b"}"#, None),
            (r#"["model"]"#, None),
            ("", None),
        ] {
            assert_eq!(model_of_body(&Bytes::from(body)).as_deref(), expected, "{body}");
        }
    }
}
