//! Splices: "these messages are not sent; this text stands for them".
//!
//! A splice is decided once, in an event, stored under the history of exactly the messages up to its end, and holds
//! for every history that goes on from the request it was made for. It never takes the head of a conversation (the
//! first words of the user), the newest words of the user, the step in progress, half of a pair, or reasoning
//! without what it led to; nor what no dialect understands.

use std::sync::Arc;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::Op;

/// The rule of splices whose text only says that messages are gone.
pub const NOTE: &str = "note";
/// The rule of splices whose text says what stood in them.
pub const SUMMARY: &str = "summary";

/// How the text stands in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The model says it.
    Answer,
    /// It is said at the end of the user's first words.
    Appended,
    /// The user says it.
    User,
    /// The user says it, and the model answers so.
    Acknowledged(Arc<str>),
    /// The user asks for it so, and the model says it.
    Asked(Arc<str>),
}

/// What is sent in place of some messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// What the text is: [`NOTE`], [`SUMMARY`].
    pub rule: Box<str>,
    /// The messages that are not sent: ranges `first..end`, ascending, apart. What stands between them is sent.
    pub drops: Box<[(u32, u32)]>,
    /// How the text stands in the history.
    pub layout: Layout,
    /// Where: before this message, or, appended, behind this part's text.
    pub at: PartId,
    /// Which of the part's texts, if it is appended.
    pub leaf: u32,
    /// The text.
    pub text: Arc<str>,
    /// Bytes of the messages, as far as they are read as text.
    pub bytes_before: u64,
    /// Bytes of the text.
    pub bytes_after: u64,
    /// The stored full text of the messages.
    pub output: Option<String>,
}

impl Splice {
    /// The first message that is not sent.
    pub fn first(&self) -> usize {
        self.drops.first().map_or(0, |(first, _)| *first as usize)
    }

    /// The end of what it replaces: nothing behind it is touched.
    pub fn end(&self) -> usize {
        self.drops.last().map_or(0, |(_, end)| *end as usize)
    }

    /// Whether a message is not sent.
    pub fn drops(&self, message: usize) -> bool {
        let at = self.drops.partition_point(|(_, end)| *end as usize <= message);
        self.drops.get(at).is_some_and(|(first, _)| *first as usize <= message)
    }

    /// How many messages are not sent.
    pub fn dropped(&self) -> u32 {
        self.drops.iter().map(|(first, end)| end - first).sum()
    }

    /// How many messages stand for them.
    pub const fn inserted(&self) -> u32 {
        match self.layout {
            Layout::Appended => 0,
            Layout::Answer | Layout::User => 1,
            Layout::Acknowledged(_) | Layout::Asked(_) => 2,
        }
    }

    /// Bytes of the messages that are not sent, as far as they are read as text.
    pub fn read_len(&self, conversation: &Conversation) -> usize {
        let messages = conversation.messages.iter().enumerate();
        messages.filter(|(at, _)| self.drops(*at)).map(|(_, message)| message.read_len()).sum()
    }

    /// Bytes that each request with it carries less.
    pub fn bytes_spared(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }

    /// The first message that is sent otherwise because of it.
    pub fn first_changed(&self) -> usize {
        self.first().min(self.at.message as usize)
    }

    /// Roughly the memory it takes, in bytes.
    pub fn weight(&self) -> usize {
        std::mem::size_of::<Self>() + self.text.len() + self.drops.len() * 8
    }

    /// Whether it can stand in a conversation at all. That it stands for the right messages, only their chain
    /// tells.
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
        let parts: Vec<_> = conversation.parts_of(at).map(|(id, part)| (id, part.leaves.len())).collect();
        parts.into_iter().rev()
    });
    let is_text = |id: PartId| conversation.part(id).is_some_and(|part| part.kind == PartKind::Text);
    parts.find_map(|(id, leaves)| {
        let leaf = leaves.checked_sub(1).filter(|_| is_text(id))?;
        conversation.text(id, leaf)?;
        Some((id, leaf as u32))
    })
}
