//! Messages and requests.
//!
//! Spans in a [`MessageIndex`] count from the start of the message, so that one index serves wherever the message is.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Fingerprint;
use super::arguments::MIN_ABRIDGED;
use super::marks::{Hold, Marks, Shows};
use super::part::{Part, PartKind};
use crate::json::scan::Member;
use crate::json::{self, Span};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions in the message list (`system`, `developer`).
    System,
    /// The user, or tool results sent in the user's name.
    User,
    /// The model.
    Assistant,
    /// A message that is a tool result.
    Tool,
}

/// The contents of a message. Positions count from its first byte.
#[derive(Debug, Clone)]
pub struct MessageIndex {
    /// The author.
    pub role: Role,
    /// Its parts in order.
    pub parts: Box<[Part]>,
    /// What it says.
    pub fingerprint: Fingerprint,
    /// Its beginning, before the texts at its end; `None` if it does not end with texts, or is a single text.
    pub stem: Option<Stem>,
    /// Whether it may contain cache marks.
    pub is_marked: bool,
    /// Whether it has contents on which cache entries of the whole prompt may depend.
    pub shows: Shows,
    /// Bytes of it that no tokenizer reads as text: encodings of images and documents.
    pub encoded: usize,
    /// The keys of its parts, computed on first use.
    blocks: OnceLock<Box<[BlockKey]>>,
}

/// The beginning of a message that ends with texts: everything before these, and at least the first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stem {
    /// The number of its parts.
    pub parts: u32,
    /// The fingerprint of a message with these parts alone.
    pub fingerprint: Fingerprint,
}

/// The identity of a part in a provider's prompt cache, and its weight there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockKey {
    /// A hash of the part's contents, without its mark.
    pub key: u128,
    /// Its weight in a prompt, in bytes of ordinary text.
    pub weight: u32,
    /// The cache mark on the part, if any.
    pub mark: Option<Hold>,
}

impl PartialEq for MessageIndex {
    fn eq(&self, other: &Self) -> bool {
        (self.role, &self.parts, self.fingerprint) == (other.role, &other.parts, other.fingerprint)
    }
}

impl Eq for MessageIndex {}

impl MessageIndex {
    /// An index without marks and special contents.
    pub fn new(role: Role, parts: Vec<Part>, fingerprint: Fingerprint) -> Self {
        let encoded = parts.iter().map(|part| part.span.len() - part.read_len()).sum();
        let (shows, blocks) = (Shows::default(), OnceLock::new());
        Self { role, parts: parts.into(), fingerprint, stem: None, is_marked: false, shows, encoded, blocks }
    }

    /// The same, with its beginning before the texts at its end.
    #[must_use]
    pub fn with_stem(self, stem: Option<Stem>) -> Self {
        Self { stem, ..self }
    }

    /// The same, with whether it may contain cache marks.
    #[must_use]
    pub fn marked(self, is_marked: bool) -> Self {
        Self { is_marked, ..self }
    }

    /// The same, with the contents on which cache entries of the whole prompt may depend.
    #[must_use]
    pub fn showing(self, shows: Shows) -> Self {
        Self { shows, ..self }
    }

    /// The keys of its parts, in order. `make` must depend on the message's bytes alone.
    pub fn blocks(&self, make: impl FnOnce() -> Box<[BlockKey]>) -> &[BlockKey] {
        self.blocks.get_or_init(make)
    }

    /// The approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        let parts: usize = self.parts.iter().map(Part::weight).sum();
        std::mem::size_of::<Self>() + parts
    }

    /// Whether it contains tool results.
    pub fn has_results(&self) -> bool {
        self.parts.iter().any(|part| part.kind() == PartKind::ToolResult)
    }

    /// Whether it contains parts that decisions are made about: results, reasoning, and long calls.
    pub fn is_decided_about(&self) -> bool {
        self.parts.iter().any(|part| match part.kind() {
            PartKind::ToolResult | PartKind::Thinking => true,
            PartKind::ToolCall => part.span.len() >= MIN_ABRIDGED,
            _ => false,
        })
    }

    /// Whether it is the user's own message, which starts a turn.
    pub fn starts_turn(&self) -> bool {
        self.role == Role::User && !self.has_results()
    }
}

/// A message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its place in the body.
    pub span: Span,
    /// What was read from it.
    pub index: Arc<MessageIndex>,
}

impl Message {
    /// Bytes of it that are read as text.
    pub fn read_len(&self) -> usize {
        self.span.len() - self.index.encoded
    }
}

/// Identifies a part of a request by the index of its message and its index in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId {
    /// The index of the message.
    pub message: u32,
    /// The index of the part in the message.
    pub part: u32,
}

/// The index of a request body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The body that it was read from.
    pub body: Bytes,
    /// The members of the outermost object.
    pub members: Vec<Member>,
    /// The array of messages, brackets included.
    pub array: Span,
    /// The messages in order.
    pub messages: Vec<Message>,
    /// The requested model, if the body names it.
    pub model: Option<Box<str>>,
    /// The session id in the body, if any.
    pub session: Option<Box<str>>,
    /// Whether the client asks for a stream.
    pub stream: bool,
    /// Whether the body declares tools.
    pub has_tools: bool,
    /// The most tokens that the answer may have, if the body says it.
    pub max_output: Option<u64>,
    /// How long the provider's cache is asked to keep the prompt, in milliseconds; `None`: its default.
    pub requested_ttl_ms: Option<u64>,
    /// What the request continues, if the provider holds the history: the id of an answer, or of the history itself.
    /// The body then contains only what follows.
    pub continues: Option<Box<str>>,
    /// Whether `continues` is the id of the history itself, which names a longer history after this request.
    pub grows: bool,
    /// Whether the provider keeps the history with the answer, so that later requests may continue from its id.
    pub is_kept: bool,
    /// How long the provider may take to answer, in its own word, if the client lets it take longer than usual.
    pub completion_window: Option<Box<str>>,
    /// Hashes of the seals on the provider's own summary, if the history begins with one.
    pub seals: Vec<u128>,
    /// Whether the body contains only the ids of some messages, whose contents the provider has.
    pub refers: bool,
    /// Whether the client asks the provider, in the dialect's own way, to summarise the history.
    pub asks_for_summary: bool,
    /// Whether the client has the provider remove or summarise old parts of the prompt if it is too long.
    pub asks_for_edits: bool,
    /// Whether the client has the provider remove old results from the prompt by itself, so that one in the body may be
    /// out of the model's view.
    pub hides_results: bool,
    /// Whether the client has the provider remove the reasoning of earlier turns from the prompt, or uses no reasoning
    /// at all.
    pub forgets_reasoning: bool,
    /// The literal of the instructions outside of the messages, if they are one text that may be sent as two.
    pub system: Option<Span>,
    /// The end of everything before the messages, if a mark may be put on it: the literal of the instructions, a block
    /// of them, or the definition of a tool.
    pub frame_end: Option<Span>,
    /// The value of the member with instructions that the model reads after the messages. The provider does not cache
    /// them.
    pub late: Option<Span>,
    /// The client's cache marks; `None`: the dialect has no marks, or they are not read.
    pub marks: Option<Marks>,
}

impl Conversation {
    /// The part with this id, if there is one.
    pub fn part(&self, id: PartId) -> Option<&Part> {
        self.messages.get(id.message as usize)?.index.parts.get(id.part as usize)
    }

    /// The first part that the provider reads: the last of its own summaries, if there is one.
    pub fn beginning(&self) -> PartId {
        let all = (0..self.messages.len())
            .rev()
            .filter_map(|at| self.parts_of(at).filter(|(_, part)| part.is_summary()).last());
        all.map(|(id, _)| id).next().unwrap_or(PartId { message: 0, part: 0 })
    }

    /// The parts of a message with their ids.
    pub fn parts_of(&self, message: usize) -> impl Iterator<Item = (PartId, &Part)> {
        let parts = self.messages.get(message).map(|message| &*message.index.parts).unwrap_or_default();
        parts
            .iter()
            .enumerate()
            .map(move |(part, value)| (PartId { message: message as u32, part: part as u32 }, value))
    }

    /// Bytes that no tokenizer reads as text, in the messages that satisfy `is_sent`.
    pub fn encoded(&self, is_sent: impl Fn(usize) -> bool) -> usize {
        let messages = self.messages.iter().enumerate();
        messages.filter(|(at, _)| is_sent(*at)).map(|(_, message)| message.index.encoded).sum()
    }

    /// Bytes outside of the messages that may precede them in the prompt.
    pub fn frame_bytes(&self) -> usize {
        self.body.len() - self.array.len() - self.late_bytes()
    }

    /// Bytes outside of the messages that follow them in the prompt.
    pub fn late_bytes(&self) -> usize {
        self.late.map_or(0, Span::len)
    }

    /// The text of the instructions, if they are one text that may be sent as two.
    pub fn instructions(&self) -> Option<Cow<'_, str>> {
        json::string::decode(self.system?.of(&self.body))
    }

    /// Whether the provider's usage figures are for exactly what is in the body: the provider neither holds more of the
    /// history nor removes any of it.
    pub fn is_whole(&self) -> bool {
        !self.is_held_elsewhere() && !self.asks_for_edits
    }

    /// Whether the provider has some of the history that is not in the body.
    pub fn is_held_elsewhere(&self) -> bool {
        self.continues.is_some() || self.refers
    }

    /// Whether the history has results of tools, none of which is declared any more: the model can call none to read
    /// anything again.
    pub fn lacks_tools(&self) -> bool {
        !self.has_tools && self.messages.iter().any(|message| message.index.has_results())
    }

    /// Whether the history contains reasoning.
    pub fn has_reasoning(&self) -> bool {
        let mut parts = self.messages.iter().flat_map(|message| &*message.index.parts);
        parts.any(|part| part.kind() == PartKind::Thinking)
    }

    /// Converts a span of a message's index to a span of the body.
    pub fn absolute(&self, message: u32, span: Span) -> Span {
        span.shift(self.messages[message as usize].span.start as usize)
    }

    /// The bytes of a span of a message's index.
    pub fn bytes_of(&self, message: u32, span: Span) -> &[u8] {
        self.absolute(message, span).of(&self.body)
    }

    /// The text of a leaf; `None` if its literal is not valid text.
    pub fn text(&self, id: PartId, leaf: usize) -> Option<Cow<'_, str>> {
        json::string::decode(self.literal(id, leaf)?)
    }

    /// The texts of a part's leaves; `None` if one of them cannot be read.
    pub fn texts(&self, id: PartId) -> Option<Vec<Cow<'_, str>>> {
        (0..self.part(id)?.leaves().len()).map(|leaf| self.text(id, leaf)).collect()
    }

    /// The literal of a leaf as written, quotes included.
    pub fn literal(&self, id: PartId, leaf: usize) -> Option<&[u8]> {
        let leaf = self.part(id)?.leaves().get(leaf)?;
        Some(self.bytes_of(id.message, leaf.span))
    }

    /// Whether a leaf has readable text that is not only white space.
    pub fn says_something(&self, id: PartId, leaf: usize) -> bool {
        self.literal(id, leaf).is_some_and(json::string::begins_with_words)
            || self.text(id, leaf).is_some_and(|text| !text.trim().is_empty())
    }

    /// The index of the first message after the model's last one. From there on everything is new with this request,
    /// provided that the history was sent before.
    pub fn tail(&self) -> usize {
        self.messages
            .iter()
            .rposition(|message| message.index.role == Role::Assistant)
            .map_or(0, |last| last + 1)
    }
}
