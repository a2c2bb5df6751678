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
    /// Which slot of the part's list is removed with the leaf; a leaf without one can only be replaced.
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

/// The list that a part's leaves are in, if they are blocks of an array; for reasoning, the list or the object that
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
    /// The kind of part.
    pub kind: PartKind,
    /// The value that it was read from.
    pub span: Span,
    /// The id that pairs a call with its result.
    pub call_id: Option<Box<str>>,
    /// The name of the tool, if the part itself has it.
    pub tool: Option<Box<str>>,
    /// The arguments of a call.
    pub arguments: Option<Arguments>,
    /// Its texts, in the order of its slots.
    pub leaves: Box<[Leaf]>,
    /// The array that contains its leaves or, for reasoning, what contains the part itself.
    pub slots: Option<Slots>,
    /// The images and documents of a result.
    pub media: Option<Box<Media>>,
    /// Whether the client says that the tool failed.
    pub is_error: bool,
    /// Whether a call must be sent as received: there is a signature over it, or something depends on its contents.
    pub is_sealed: bool,
    /// Whether it is a call made by code which the provider runs, or the result of one: no model reads that.
    pub is_for_code: bool,
    /// Whether a result contains tool definitions that were found: later calls depend on it alone. It stays, with its
    /// call.
    pub has_tools: bool,
    /// Whether it is a summary made by the provider, which replaces everything before it.
    pub is_summary: bool,
    /// A digest of all contents of a tool result, whatever their spelling; `None` for other kinds, and for what code
    /// reads.
    pub content: Option<Digest>,
    /// Bytes by which the encodings of images and documents in it, in places that are not examined, are longer than
    /// what each counts as.
    pub encoded: u32,
}

impl Part {
    /// A part of which only the kind and the place are known.
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

    /// Bytes of it that are read as text. The envelope counts, because providers put one around what they read, too.
    pub fn read_len(&self) -> usize {
        match self.kind {
            PartKind::Media => self.span.len().min(MEDIA),
            PartKind::ToolResult if self.is_for_code => 0,
            PartKind::ToolResult => self.result_len() - self.encoded as usize,
            _ => self.span.len() - self.encoded as usize,
        }
    }

    /// The approximate memory that it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
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
