//! Plans: what shall change in a request, as data.
//!
//! Operations name messages and parts by their place in the original. [`check()`] refuses plans that break
//! the rules every provider has; [`model`] says what a plan means, so that the bytes a protocol makes of it can be
//! compared with it.

pub mod check;
mod marks;
pub mod model;

use std::sync::Arc;

use crate::conversation::{Hold, PartId, Role};

pub use check::{Refusal, check, takes};
pub use model::{Mismatch, verify};

/// What becomes of one leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafEdit {
    /// It says this instead; in place of an image or a document, a block that says this.
    Replace(Arc<str>),
    /// It goes, with the block it stands in, or, if it is an image or a document, by itself.
    Remove,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Gives leaves of a result new text, or texts of a call's arguments. They are in ascending order.
    Text {
        /// The part.
        part: PartId,
        /// Index of the leaf, or of the text among the arguments', and what becomes of it. Images and documents that may
        /// go are counted behind the leaves.
        leaves: Vec<(u32, LeafEdit)>,
    },
    /// Marks the prompt for the provider's cache at the end of a part.
    Mark {
        /// The part.
        part: PartId,
        /// How long it is to last.
        hold: Hold,
    },
    /// Leaves out reasoning. All reasoning before it goes too: what is left must not stand behind a gap.
    Omit {
        /// The part.
        part: PartId,
    },
    /// Sends the instructions as two texts, one behind the other.
    Split {
        /// Bytes of the first.
        bytes: u32,
        /// The mark for the provider's cache behind the first, if there is to be one.
        mark: Option<Hold>,
    },
    /// Marks the prompt for the provider's cache behind all that stands before the messages.
    MarkFrame {
        /// How long it is to last.
        hold: Hold,
    },
    /// Drops messages `first..end`.
    Drop {
        /// First message that goes.
        first: usize,
        /// First message that stays again.
        end: usize,
    },
    /// Inserts a message with one text before message `before` (the count: at the end).
    Insert {
        /// The message it stands before.
        before: usize,
        /// Who says it.
        role: Role,
        /// What is said.
        text: Arc<str>,
    },
    /// Says something more at the end of a text of the user's own; what stood there stays word for word.
    Append {
        /// The part.
        part: PartId,
        /// The leaf.
        leaf: u32,
        /// What is said behind it.
        text: Arc<str>,
    },
}

/// Changes of one request. Empty: the request goes as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in no particular order, except that insertions at one place keep theirs.
    pub ops: Vec<Op>,
}

impl Plan {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// What kinds of changes it has.
    pub fn kinds(&self) -> Kinds {
        self.ops.iter().fold(Kinds::default(), |kinds, op| kinds.with(Kinds::of(op)))
    }
}

/// A set of kinds of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    const MARK: u8 = 1 << 1;

    fn of(op: &Op) -> Self {
        Self(match op {
            Op::Text { .. } => 1,
            Op::Mark { .. } | Op::MarkFrame { .. } => Self::MARK,
            Op::Omit { .. } => 1 << 2,
            Op::Split { .. } => 1 << 3,
            Op::Drop { .. } => 1 << 4,
            Op::Insert { .. } => 1 << 5,
            Op::Append { .. } => 1 << 6,
        })
    }

    /// Those of either.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not among the others.
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
