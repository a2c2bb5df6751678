//! The parts of messages.
//!
//! A leaf is a string literal in the body that a model reads as text. Spans in a part count from the start of its
//! message.

use super::Digest;
use super::media::{MEDIA, Media};
use super::model::BlockKey;
use crate::json::Span;

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Plain text.
    Text,
    /// The model's call of a tool that the client runs.
    ToolCall,
    /// The client's answer to such a call.
    ToolResult,
    /// Reasoning; never edited.
    Thinking,
    /// Images, documents, audio.
    Media,
    /// Something that the provider ran itself: a call, its result, or both in one. Never edited; call and result are
    /// only dropped together, with their messages. A call names its tool.
    Hosted,
    /// Anything else; never edited, never dropped.
    Opaque,
}

/// How the arguments of a call are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// As a JSON value.
    Value(Span),
    /// As a string literal that contains JSON or free text.
    Encoded(Span),
}

/// A string literal with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// The literal, quotes included.
    pub span: Span,
    /// The slot of the part's list that is removed with the leaf. A leaf without one can only be replaced.
    pub slot: Option<u32>,
    /// Whether its block carries a cache mark, which would be removed with it.
    pub is_marked: bool,
    /// Whether it must stay blank: any word in it would make its result an error.
    pub stays_blank: bool,
}

impl Leaf {
    /// A leaf that is not in a list.
    pub const fn alone(span: Span) -> Self {
        Self { span, slot: None, is_marked: false, stays_blank: false }
    }

    /// A leaf that is an item of its part's list.
    pub const fn in_slot(span: Span, slot: u32) -> Self {
        Self { slot: Some(slot), ..Self::alone(span) }
    }
}

/// The list that contains a result's leaves, if they are blocks of an array. For reasoning: the list or the object that
/// contains it, if its message remains valid without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The array or the object, brackets included.
    pub array: Span,
    /// Its items, or its members from key to value.
    pub items: Box<[Span]>,
}

impl Slots {
    /// The index of the item that contains a span.
    pub fn of(&self, span: Span) -> Option<usize> {
        self.items.iter().position(|item| item.start <= span.start && span.end <= item.end)
    }
}

/// An element of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The value that it was read from.
    pub span: Span,
    /// What it is.
    pub data: PartData,
    /// Bytes by which encodings of images and documents in places that are not examined exceed what each counts as.
    pub encoded: u32,
}

/// What was read from a part of each [`PartKind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartData {
    /// Plain text, which is one literal.
    Text(Leaf),
    /// A call.
    ToolCall(Call),
    /// A result.
    ToolResult(ToolResult),
    /// Reasoning, and the list or the object that contains it, if its message remains valid without it.
    Thinking(Option<Slots>),
    /// Images, documents, audio.
    Media,
    /// Something that the provider ran itself.
    Hosted(Hosted),
    /// Anything else.
    Opaque(Opaque),
}

/// A call of a tool that the client runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The id that pairs it with its result.
    pub id: Option<Box<str>>,
    /// The name of the tool.
    pub tool: Option<Box<str>>,
    /// The arguments.
    pub arguments: Option<Arguments>,
    /// Whether it must be sent as received: there is a signature over it, or something depends on its contents.
    pub is_sealed: bool,
    /// Whether it is made by code which the provider runs.
    pub is_for_code: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// The id that pairs it with its call.
    pub call_id: Option<Box<str>>,
    /// The name of the tool, if the result itself has it.
    pub tool: Option<Box<str>>,
    /// Its texts, in the order of its slots.
    pub leaves: Box<[Leaf]>,
    /// The list that the texts are in.
    pub slots: Option<Slots>,
    /// Its images and documents.
    pub media: Option<Box<Media>>,
    /// A digest of all its contents, whatever their spelling; `None` if it is read by code which the provider runs, and
    /// by no model.
    pub content: Option<Digest>,
    /// Whether the client says that the tool failed.
    pub is_error: bool,
    /// Whether it contains the definitions of tools that a search has found. Later calls depend on it, so it stays,
    /// together with its call.
    pub has_tools: bool,
}

/// A call that the provider ran itself, its result, or both in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosted {
    /// The id that pairs a call with its result; `None` if both are one.
    pub id: Option<Box<str>>,
    /// The name of the tool, which only a call has.
    pub tool: Option<Box<str>>,
}

/// A part of which little is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opaque {
    /// Whether it is a summary made by the provider, which replaces everything before it.
    pub is_summary: bool,
    /// The call that it may be. A result that answers it shows that it is one.
    pub call: Option<Call>,
}

impl Part {
    /// A part in which no encodings were found.
    pub const fn new(data: PartData, span: Span) -> Self {
        Self { span, data, encoded: 0 }
    }

    /// The kind of part.
    pub const fn kind(&self) -> PartKind {
        match &self.data {
            PartData::Text(_) => PartKind::Text,
            PartData::ToolCall(_) => PartKind::ToolCall,
            PartData::ToolResult(_) => PartKind::ToolResult,
            PartData::Thinking(_) => PartKind::Thinking,
            PartData::Media => PartKind::Media,
            PartData::Hosted(_) => PartKind::Hosted,
            PartData::Opaque(_) => PartKind::Opaque,
        }
    }

    /// The call that it is or, if it is opaque, the call that it may be.
    pub const fn call(&self) -> Option<&Call> {
        match &self.data {
            PartData::ToolCall(call) => Some(call),
            PartData::Opaque(opaque) => opaque.call.as_ref(),
            _ => None,
        }
    }

    /// The result that it is.
    pub const fn result(&self) -> Option<&ToolResult> {
        if let PartData::ToolResult(result) = &self.data { Some(result) } else { None }
    }

    /// The id that pairs a call with its result.
    pub fn call_id(&self) -> Option<&str> {
        match &self.data {
            PartData::ToolResult(result) => result.call_id.as_deref(),
            PartData::Hosted(hosted) => hosted.id.as_deref(),
            _ => self.call()?.id.as_deref(),
        }
    }

    /// Gives a call or a result another id.
    pub fn set_call_id(&mut self, id: Box<str>) {
        match &mut self.data {
            PartData::ToolCall(call) => call.id = Some(id),
            PartData::ToolResult(result) => result.call_id = Some(id),
            _ => {}
        }
    }

    /// The name of the tool, if the part itself has it.
    pub fn tool(&self) -> Option<&str> {
        match &self.data {
            PartData::ToolResult(result) => result.tool.as_deref(),
            PartData::Hosted(hosted) => hosted.tool.as_deref(),
            _ => self.call()?.tool.as_deref(),
        }
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> Option<Arguments> {
        self.call()?.arguments
    }

    /// The texts of a text or a result, in the order of its slots.
    pub fn leaves(&self) -> &[Leaf] {
        match &self.data {
            PartData::Text(leaf) => std::slice::from_ref(leaf),
            PartData::ToolResult(result) => &result.leaves,
            _ => &[],
        }
    }

    /// The list that contains a result's texts or, for reasoning, what contains the part itself.
    pub const fn slots(&self) -> Option<&Slots> {
        match &self.data {
            PartData::ToolResult(result) => result.slots.as_ref(),
            PartData::Thinking(slots) => slots.as_ref(),
            _ => None,
        }
    }

    /// The digest of a result's contents; `None` for other kinds, and for what code reads.
    pub fn content(&self) -> Option<Digest> {
        self.result()?.content
    }

    /// Whether it is a result of which the client says that the tool failed.
    pub fn is_error(&self) -> bool {
        self.result().is_some_and(|result| result.is_error)
    }

    /// Whether it is a call that must be sent as received.
    pub fn is_sealed(&self) -> bool {
        self.call().is_some_and(|call| call.is_sealed)
    }

    /// Whether it is a result with tool definitions.
    pub fn has_tools(&self) -> bool {
        self.result().is_some_and(|result| result.has_tools)
    }

    /// Whether it is a summary made by the provider, which replaces everything before it.
    pub const fn is_summary(&self) -> bool {
        matches!(&self.data, PartData::Opaque(opaque) if opaque.is_summary)
    }

    /// Bytes of it that are read as text. The envelope counts, because providers also put one around what they read.
    pub fn read_len(&self) -> usize {
        match &self.data {
            PartData::Media => self.span.len().min(MEDIA),
            PartData::ToolResult(result) if result.is_for_code() => 0,
            PartData::ToolResult(_) => self.result_len() - self.encoded as usize,
            _ => self.span.len() - self.encoded as usize,
        }
    }

    /// The approximate memory that it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        let names = self.call_id().map_or(0, str::len) + self.tool().map_or(0, str::len);
        let texts = self.result().map_or(0, |result| std::mem::size_of_val(&*result.leaves));
        let slots = self.slots().map_or(0, |slots| std::mem::size_of_val(&*slots.items));
        let media = self.media_list().map_or(0, Media::weight);
        std::mem::size_of::<Self>() + names + texts + std::mem::size_of::<BlockKey>() + slots + media
    }
}
