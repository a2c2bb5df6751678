//! Splices: "these messages are not sent; this text replaces them".
//!
//! A splice is decided once, in an event, and stored under the history of exactly the messages up to its end. It
//! applies to every history that continues the request it was made for. It never drops the head of a conversation (the
//! first words of the user), the newest words of the user, the step in progress, one half of a call and its result,
//! reasoning without the answer that it led to, or anything that no dialect understands.

use std::sync::Arc;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::Op;

/// The rule of splices whose text only states that messages were dropped.
pub const NOTE: &str = "note";
/// The rule of splices whose text summarises the dropped messages.
pub const SUMMARY: &str = "summary";

/// How the text is placed in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// As an answer of the model.
    Answer,
    /// At the end of the user's first words.
    Appended,
    /// As a message of the user.
    User,
    /// As a message of the user, followed by this answer of the model.
    Acknowledged(Arc<str>),
    /// As an answer of the model to this message of the user.
    Asked(Arc<str>),
}

/// A text that is sent in place of some messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// The kind of text: [`NOTE`] or [`SUMMARY`].
    pub rule: Box<str>,
    /// The dropped messages: disjoint ranges `first..end`, ascending. The messages between them are sent.
    pub drops: Box<[(u32, u32)]>,
    /// How the text is placed.
    pub layout: Layout,
    /// Where the text is placed: before this message or, if appended, after a text of this part.
    pub at: PartId,
    /// The index of that text, if appended.
    pub leaf: u32,
    /// The text.
    pub text: Arc<str>,
    /// Bytes of the dropped messages that are text.
    pub bytes_before: u64,
    /// The id of the saved full text of the messages.
    pub output: Option<String>,
}

impl Splice {
    /// The first message that is dropped.
    pub fn first(&self) -> usize {
        self.drops.first().map_or(0, |(first, _)| *first as usize)
    }

    /// The first message after those that it replaces. Nothing from here on is changed.
    pub fn end(&self) -> usize {
        self.drops.last().map_or(0, |(_, end)| *end as usize)
    }

    /// Whether a message is dropped.
    pub fn drops(&self, message: usize) -> bool {
        let at = self.drops.partition_point(|(_, end)| *end as usize <= message);
        self.drops.get(at).is_some_and(|(first, _)| *first as usize <= message)
    }

    /// How many messages are dropped.
    pub fn dropped(&self) -> u32 {
        self.drops.iter().map(|(first, end)| end - first).sum()
    }

    /// How many messages are inserted.
    pub const fn inserted(&self) -> u32 {
        match self.layout {
            Layout::Appended => 0,
            Layout::Answer | Layout::User => 1,
            Layout::Acknowledged(_) | Layout::Asked(_) => 2,
        }
    }

    /// Bytes of the dropped messages that are text.
    pub fn read_len(&self, conversation: &Conversation) -> usize {
        let messages = conversation.messages.iter().enumerate();
        messages.filter(|(at, _)| self.drops(*at)).map(|(_, message)| message.read_len()).sum()
    }

    /// Bytes of the text.
    pub fn bytes_after(&self) -> u64 {
        self.text.len() as u64
    }

    /// Bytes saved with each request.
    pub fn bytes_spared(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after())
    }

    /// The first message that changes because of it.
    pub fn first_changed(&self) -> usize {
        self.first().min(self.at.message as usize)
    }

    /// Approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        std::mem::size_of::<Self>() + self.text.len() + self.drops.len() * 8
    }

    /// Whether it can be applied to a conversation at all. Only the chain tells whether it replaces the right messages.
    pub(super) fn fits(&self, conversation: &Conversation) -> bool {
        let end = self.end();
        end > 0 && end < conversation.messages.len() && conversation.continues.is_none()
    }

    /// The operations that carry it out.
    pub(super) fn operations(&self) -> Vec<Op> {
        let drop = |(first, end): &(u32, u32)| Op::Drop { first: *first as usize, end: *end as usize };
        let mut ops: Vec<Op> = self.drops.iter().map(drop).collect();
        let before = self.at.message as usize;
        let mut say = |role, text: &Arc<str>| ops.push(Op::Insert { before, role, text: Arc::clone(text) });
        match &self.layout {
            Layout::Answer => say(Role::Assistant, &self.text),
            Layout::User => say(Role::User, &self.text),
            Layout::Acknowledged(answer) => {
                say(Role::User, &self.text);
                say(Role::Assistant, answer);
            }
            Layout::Asked(question) => {
                say(Role::User, question);
                say(Role::Assistant, &self.text);
            }
            Layout::Appended => {
                let text = format!("\n\n{}", self.text).into();
                ops.push(Op::Append { part: self.at, leaf: self.leaf, text });
            }
        }
        ops
    }
}

/// The last text that the user says in the head of a conversation.
pub(super) fn last_text(conversation: &Conversation, head: usize) -> Option<(PartId, u32)> {
    let users = (0..head).rev().filter(|at| conversation.messages[*at].index.starts_turn());
    let mut parts = users.flat_map(|at| {
        let parts: Vec<_> = conversation.parts_of(at).map(|(id, part)| (id, part.leaves().len())).collect();
        parts.into_iter().rev()
    });
    let is_text = |id: PartId| conversation.part(id).is_some_and(|part| part.kind() == PartKind::Text);
    parts.find_map(|(id, leaves)| {
        let leaf = leaves.checked_sub(1).filter(|_| is_text(id))?;
        conversation.text(id, leaf)?;
        Some((id, leaf as u32))
    })
}
