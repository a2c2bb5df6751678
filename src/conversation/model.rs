//! Messages, parts and leaves.
//!
//! A leaf is one string literal of the body that a model reads as text. Spans inside a [`MessageIndex`] count
//! from the start of the message, so that one index serves wherever the message stands.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::arguments::LONG;
use super::marks::{Hold, Marks, Shows};
use super::media::{MEDIA, Media};
use super::{Digest, Fingerprint};
use crate::json::scan::Member;
use crate::json::{self, Span};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions inside the message list (`system`, `developer`).
    System,
    /// The user, or tool results sent in the user's name.
    User,
    /// The model.
    Assistant,
    /// A message that is one tool result.
    Tool,
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Plain text.
    Text,
    /// The model's call of a tool that the client runs.
    ToolCall,
    /// The client's answer to such a call.
    ToolResult,
    /// Reasoning: never edited.
    Thinking,
    /// Images, documents, audio.
    Media,
    /// What the provider ran by itself: a call, its result, or both in one. Never edited; call and result go only
    /// together, with their messages. A call says its tool.
    Hosted,
    /// Anything else; never edited, never dropped.
    Opaque,
}

/// How a call's arguments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// As a JSON value.
    Value(Span),
    /// As a string literal that holds JSON or free text.
    Encoded(Span),
}

/// One string literal with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// The literal, quotes included.
    pub span: Span,
    /// Which slot of the part's list goes when the leaf is removed; without one it can only be replaced.
    pub slot: Option<u32>,
    /// Its block carries a cache mark, which would go with it.
    pub is_marked: bool,
    /// It is blank, and stays so: any word in it would make an error of its result.
    pub stays_blank: bool,
}

impl Leaf {
    /// One that stands by itself.
    pub const fn alone(span: Span) -> Self {
        Self { span, slot: None, is_marked: false, stays_blank: false }
    }

    /// One that is an item of its part's list.
    pub const fn in_slot(span: Span, slot: u32) -> Self {
        Self { slot: Some(slot), ..Self::alone(span) }
    }
}

/// The list that a part's leaves stand in, when they are blocks of an array; for reasoning, the list or the object that
/// it stands in itself, when its message goes on without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The array or the object, brackets included.
    pub array: Span,
    /// Its items, or its members from key to value.
    pub items: Box<[Span]>,
}

impl Slots {
    /// The item that something stands in.
    pub fn of(&self, span: Span) -> Option<usize> {
        self.items.iter().position(|item| item.start <= span.start && span.end <= item.end)
    }
}

/// One element of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// The value it was read from.
    pub span: Span,
    /// The id that pairs a call with its result.
    pub call_id: Option<Box<str>>,
    /// The tool's name, where the part itself says it.
    pub tool: Option<Box<str>>,
    /// A call's arguments.
    pub arguments: Option<Arguments>,
    /// Its text, in the order of its slots.
    pub leaves: Box<[Leaf]>,
    /// The array its leaves stand in, or, for reasoning, what it itself stands in.
    pub slots: Option<Slots>,
    /// A result's images and documents.
    pub media: Option<Box<Media>>,
    /// The client says that the tool failed.
    pub is_error: bool,
    /// A call that goes as it came: something is signed over it, or depends on what it says.
    pub is_sealed: bool,
    /// A call that code makes which the provider runs, or what such a call came to: no model reads that.
    pub is_for_code: bool,
    /// A result with tools that were found: what the model calls later is defined by it alone. It stays, with its call.
    pub has_tools: bool,
    /// A summary of the provider's own, in place of all before it.
    pub is_summary: bool,
    /// A digest of all that a tool result says, whatever its spelling; `None` for other kinds, and for what code reads.
    pub content: Option<Digest>,
    /// Bytes by which what encodes images and documents in it, in places that are not looked into, is longer than what each
    /// of these counts for.
    pub encoded: u32,
}

impl Part {
    /// A part of which nothing is known but where it stands.
    pub fn new(kind: PartKind, span: Span) -> Self {
        Self {
            kind,
            span,
            call_id: None,
            tool: None,
            arguments: None,
            leaves: Box::default(),
            slots: None,
            media: None,
            is_error: false,
            is_sealed: false,
            is_for_code: false,
            has_tools: false,
            is_summary: false,
            content: None,
            encoded: 0,
        }
    }
}

/// What was read from one message. Positions count from the message's first byte.
#[derive(Debug, Clone)]
pub struct MessageIndex {
    /// Who speaks.
    pub role: Role,
    /// Its parts in order.
    pub parts: Box<[Part]>,
    /// What it says.
    pub fingerprint: Fingerprint,
    /// Whether cache marks may stand in it.
    pub is_marked: bool,
    /// What stands in it that matters to all of the prompt.
    pub shows: Shows,
    /// Bytes of it that no tokenizer reads as text: what encodes images and documents.
    pub encoded: usize,
    /// Made when it is first asked for.
    blocks: OnceLock<Box<[BlockKey]>>,
}

/// What a provider's prompt cache knows a part by, and what it counts for there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockKey {
    /// A hash of what the part says, its mark excluded.
    pub key: u128,
    /// What it weighs in a prompt, in bytes of ordinary text.
    pub weight: u32,
    /// The cache mark that the part carries, if any.
    pub mark: Option<Hold>,
}

impl PartialEq for MessageIndex {
    fn eq(&self, other: &Self) -> bool {
        (self.role, &self.parts, self.fingerprint) == (other.role, &other.parts, other.fingerprint)
    }
}

impl Eq for MessageIndex {}

impl MessageIndex {
    /// What was read.
    pub fn new(role: Role, parts: Vec<Part>, fingerprint: Fingerprint) -> Self {
        let encoded = parts.iter().map(|part| part.span.len() - part.read_len()).sum();
        let (shows, blocks) = (Shows::default(), OnceLock::new());
        Self { role, parts: parts.into(), fingerprint, is_marked: false, shows, encoded, blocks }
    }

    /// The same, with what is known of cache marks in it.
    #[must_use]
    pub fn marked(self, is_marked: bool) -> Self {
        Self { is_marked, ..self }
    }

    /// The same, with what stands in it that matters to all of the prompt.
    #[must_use]
    pub fn showing(self, shows: Shows) -> Self {
        Self { shows, ..self }
    }

    /// The keys of its parts, in order. `make` depends on the message's bytes alone.
    pub fn blocks(&self, make: impl FnOnce() -> Box<[BlockKey]>) -> &[BlockKey] {
        self.blocks.get_or_init(make)
    }

    /// Roughly the memory it takes, in bytes.
    pub fn weight(&self) -> usize {
        let parts: usize = self.parts.iter().map(Part::weight).sum();
        std::mem::size_of::<Self>() + parts
    }

    /// Whether it carries tool results.
    pub fn has_results(&self) -> bool {
        self.parts.iter().any(|part| part.kind == PartKind::ToolResult)
    }

    /// Whether it carries parts that decisions are about: results, reasoning, and calls that say a great deal.
    pub fn is_decided_about(&self) -> bool {
        self.parts.iter().any(|part| match part.kind {
            PartKind::ToolResult | PartKind::Thinking => true,
            PartKind::ToolCall => part.span.len() >= LONG,
            _ => false,
        })
    }

    /// Whether it is a message of the user's own, the start of a turn.
    pub fn starts_turn(&self) -> bool {
        self.role == Role::User && !self.has_results()
    }
}

impl Part {
    /// Its bytes as far as they are read as text. The envelope counts: providers write one around what they read, too.
    pub fn read_len(&self) -> usize {
        match self.kind {
            PartKind::Media => self.span.len().min(MEDIA),
            PartKind::ToolResult if self.is_for_code => 0,
            PartKind::ToolResult => self.result_len() - self.encoded as usize,
            _ => self.span.len() - self.encoded as usize,
        }
    }

    fn weight(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        std::mem::size_of::<Self>()
            + text(&self.call_id)
            + text(&self.tool)
            + std::mem::size_of_val(&*self.leaves)
            + std::mem::size_of::<BlockKey>()
            + self.slots.as_ref().map_or(0, |slots| std::mem::size_of_val(&*slots.items))
            + self.media.as_deref().map_or(0, Media::weight)
    }
}

/// A message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where it stands in the body.
    pub span: Span,
    /// What was read from it.
    pub index: Arc<MessageIndex>,
}

impl Message {
    /// Its bytes as far as they are read as text.
    pub fn read_len(&self) -> usize {
        self.span.len() - self.index.encoded
    }
}

/// A part of a request: the message's place and the part's place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId {
    /// Index of the message.
    pub message: u32,
    /// Index of the part in it.
    pub part: u32,
}

/// The index of one request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The body it was read from.
    pub body: Bytes,
    /// The members of the outermost object.
    pub members: Box<[Member]>,
    /// The array of messages, brackets included.
    pub array: Span,
    /// The messages in order.
    pub messages: Vec<Message>,
    /// The model that is asked for, where the body says it.
    pub model: Option<Box<str>>,
    /// A session id that the body carries.
    pub session: Option<Box<str>>,
    /// The client asks for a stream.
    pub stream: bool,
    /// The most tokens that the answer may have, where the body says it.
    pub max_output: Option<u64>,
    /// How long the provider's cache is asked to keep the prompt, in milliseconds; `None`: no longer than by itself.
    pub requested_ttl_ms: Option<u64>,
    /// What the request continues, if the provider keeps the history: an answer's id, or the history's own. What
    /// came before is then not in the body.
    pub continues: Option<Box<str>>,
    /// That is the history's own name: with this request it stands for more than it did.
    pub grows: bool,
    /// The provider keeps the history with the answer: requests may go on from that by its id.
    pub is_kept: bool,
    /// Hashes of what the provider has sealed the summary with that the history begins with, if it does with one of its.
    pub seals: Vec<u128>,
    /// Of some messages the body has no more than a name: the provider has what they say.
    pub refers: bool,
    /// The client asks the provider, with a word of the dialect's own, to sum up the history.
    pub asks_for_summary: bool,
    /// The client has the provider take old parts out of the prompt, or sum them up, where it finds it too long.
    pub asks_for_edits: bool,
    /// The client has the provider take old results out of the prompt by itself: one that stands in the body may be out of
    /// the model's view.
    pub hides_results: bool,
    /// The client has the provider take what the model thought in earlier turns out of the prompt, or does without
    /// reasoning altogether.
    pub forgets_reasoning: bool,
    /// The instructions around the messages, where they are one text that may be sent as two: its literal.
    pub system: Option<Span>,
    /// What all that stands before the messages ends with, where a mark may be put on it: the instructions' literal, or a
    /// block of them, or a tool's definition.
    pub frame_end: Option<Span>,
    /// Instructions around the messages that the model reads behind these, and of which the provider keeps nothing: the
    /// value of their member.
    pub late: Option<Span>,
    /// Where the client marks the prompt for the provider's cache; `None`: the dialect has no marks, or they are not read.
    pub marks: Option<Marks>,
}

impl Conversation {
    /// A part, if there is one with this id.
    pub fn part(&self, id: PartId) -> Option<&Part> {
        self.messages.get(id.message as usize)?.index.parts.get(id.part as usize)
    }

    /// The first part that the provider reads: the last of its own summaries, if there is one.
    pub fn beginning(&self) -> PartId {
        let all = (0..self.messages.len())
            .rev()
            .filter_map(|at| self.parts_of(at).filter(|(_, part)| part.is_summary).last());
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

    /// Bytes of the messages of which this holds that no tokenizer reads as text.
    pub fn encoded(&self, is_sent: impl Fn(usize) -> bool) -> usize {
        let messages = self.messages.iter().enumerate();
        messages.filter(|(at, _)| is_sent(*at)).map(|(_, message)| message.index.encoded).sum()
    }

    /// Bytes around the messages that may stand before them in the prompt.
    pub fn frame_bytes(&self) -> usize {
        self.body.len() - self.array.len() - self.late_bytes()
    }

    /// Bytes around the messages that stand behind them in the prompt.
    pub fn late_bytes(&self) -> usize {
        self.late.map_or(0, Span::len)
    }

    /// The text of the instructions, if they are one that may be sent as two.
    pub fn instructions(&self) -> Option<Cow<'_, str>> {
        json::string::decode(self.system?.of(&self.body))
    }

    /// Whether the provider's figures are of what the body holds: it neither has more of the history, nor takes any out.
    pub fn is_whole(&self) -> bool {
        !self.is_held_elsewhere() && !self.asks_for_edits
    }

    /// Whether the provider has some of the history that is not in the body.
    pub fn is_held_elsewhere(&self) -> bool {
        self.continues.is_some() || self.refers
    }

    /// Whether the history carries reasoning.
    pub fn has_reasoning(&self) -> bool {
        let mut parts = self.messages.iter().flat_map(|message| &*message.index.parts);
        parts.any(|part| part.kind == PartKind::Thinking)
    }

    /// Where a span of a message's index stands in the body.
    pub fn absolute(&self, message: u32, span: Span) -> Span {
        span.shift(self.messages[message as usize].span.start as usize)
    }

    /// The bytes of a span of a message's index.
    pub fn bytes_of(&self, message: u32, span: Span) -> &[u8] {
        self.absolute(message, span).of(&self.body)
    }

    /// The text of a leaf; `None` when its literal holds what is no text.
    pub fn text(&self, id: PartId, leaf: usize) -> Option<Cow<'_, str>> {
        json::string::decode(self.literal(id, leaf)?)
    }

    /// The texts of a part's leaves; `None` when one of them cannot be read.
    pub fn texts(&self, id: PartId) -> Option<Vec<Cow<'_, str>>> {
        (0..self.part(id)?.leaves.len()).map(|leaf| self.text(id, leaf)).collect()
    }

    /// The text of a leaf as it is written, quotes included.
    pub fn literal(&self, id: PartId, leaf: usize) -> Option<&[u8]> {
        let leaf = self.part(id)?.leaves.get(leaf)?;
        Some(self.bytes_of(id.message, leaf.span))
    }

    /// Whether a leaf says something: text that can be read, and not only white space.
    pub fn says_something(&self, id: PartId, leaf: usize) -> bool {
        self.literal(id, leaf).is_some_and(json::string::begins_with_words)
            || self.text(id, leaf).is_some_and(|text| !text.trim().is_empty())
    }

    /// The first message after the last one of the model: what comes with this request for the first time,
    /// if the history was sent before.
    pub fn tail(&self) -> usize {
        self.messages
            .iter()
            .rposition(|message| message.index.role == Role::Assistant)
            .map_or(0, |last| last + 1)
    }
}
