//! Plans: the changes to a request, as data.
//!
//! Operations name messages and parts by their place in the original. [`check()`] refuses plans that break the rules
//! common to all providers; [`model`] defines what a plan means, against which the bytes that a protocol makes of it
//! are verified.

pub mod check;
mod marks;
pub mod model;

use std::borrow::Cow;
use std::sync::Arc;

use crate::conversation::{Conversation, Hold, PartId, Role};

pub use check::{Refusal, check, takes};
pub use model::{Mismatch, verify};

/// What becomes of a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafEdit {
    /// Its text becomes this. An image or a document is replaced by a text block.
    Replace(Arc<str>),
    /// It is removed together with its block; an image or a document by itself.
    Remove,
}

/// The texts of a part as they are sent with these edits to its leaves. A text that cannot be read is empty.
pub fn sent_texts<'a>(
    conversation: &'a Conversation,
    id: PartId,
    edits: &'a [(u32, LeafEdit)],
) -> impl Iterator<Item = Cow<'a, str>> {
    let part = conversation.part(id);
    let (leaves, media) = part.map_or((0, 0), |part| (part.leaves().len(), part.media().len()));
    (0..leaves + media).filter_map(move |leaf| match edits.iter().find(|(at, _)| *at as usize == leaf) {
        Some((_, LeafEdit::Replace(text))) => Some(Cow::Borrowed(&**text)),
        Some((_, LeafEdit::Remove)) => None,
        None => (leaf < leaves).then(|| conversation.text(id, leaf).unwrap_or_default()),
    })
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Changes leaves of a result, or texts in the arguments of a call.
    Text {
        /// The part.
        part: PartId,
        /// The index of each leaf, or of each text in the arguments, and what becomes of it, in ascending order.
        /// Removable images and documents are counted after the leaves.
        leaves: Vec<(u32, LeafEdit)>,
    },
    /// Puts a cache mark at the end of a part.
    Mark {
        /// The part.
        part: PartId,
        /// The time to live to ask for.
        hold: Hold,
    },
    /// Leaves out reasoning. All reasoning before it must be left out too, because none may follow a gap.
    Omit {
        /// The part.
        part: PartId,
    },
    /// Sends the instructions as two consecutive texts.
    Split {
        /// The length of the first, in bytes.
        bytes: u32,
        /// The cache mark on the first, if there is one.
        mark: Option<Hold>,
    },
    /// Puts a cache mark after everything before the messages.
    MarkFrame {
        /// The time to live to ask for.
        hold: Hold,
    },
    /// Drops messages `first..end`.
    Drop {
        /// The first message to drop.
        first: usize,
        /// The first message after them.
        end: usize,
    },
    /// Inserts a message with one text before message `before`, or at the end if that is the number of messages.
    Insert {
        /// The message after it.
        before: usize,
        /// Its role.
        role: Role,
        /// Its text.
        text: Arc<str>,
    },
    /// Appends to one of the user's own texts, which stays word for word.
    Append {
        /// The part.
        part: PartId,
        /// The leaf.
        leaf: u32,
        /// The appended text.
        text: Arc<str>,
    },
}

/// The changes to one request. If there are none, the request leaves as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in no particular order; insertions at the same place keep theirs.
    pub ops: Vec<Op>,
}

impl Plan {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The kinds of changes in it.
    pub fn kinds(&self) -> Kinds {
        self.ops.iter().fold(Kinds::default(), |kinds, op| kinds.with(Kinds::of(op)))
    }
}

/// A set of kinds of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    const TEXT: u8 = 1;
    const MARK: u8 = 1 << 1;
    const OMIT: u8 = 1 << 2;
    const SPLIT: u8 = 1 << 3;
    const DROP: u8 = 1 << 4;
    const INSERT: u8 = 1 << 5;
    const APPEND: u8 = 1 << 6;

    fn of(op: &Op) -> Self {
        Self(match op {
            Op::Text { .. } => Self::TEXT,
            Op::Mark { .. } | Op::MarkFrame { .. } => Self::MARK,
            Op::Omit { .. } => Self::OMIT,
            Op::Split { mark: Some(_), .. } => Self::SPLIT | Self::MARK,
            Op::Split { mark: None, .. } => Self::SPLIT,
            Op::Drop { .. } => Self::DROP,
            Op::Insert { .. } => Self::INSERT,
            Op::Append { .. } => Self::APPEND,
        })
    }

    /// The union of both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The difference of both sets.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether marks for the provider's cache are among them.
    pub fn has_marks(self) -> bool {
        self.0 & Self::MARK != 0
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests;
