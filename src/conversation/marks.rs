//! What a provider's prompt cache keeps of a request, and what that is bound to.

use super::model::{Conversation, Message, Part, PartId, PartKind, Role};
use crate::json::Span;

/// How long a mark asks the provider to keep what is marked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// As long as it does without being asked: for minutes.
    #[default]
    Short,
    /// For long: an hour.
    Long,
}

/// What can carry a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Carriers {
    /// The block that a part is, or becomes.
    #[default]
    Blocks,
    /// A block with text, in a message or as all that a result says: for servers that pass marks on where they read them.
    Texts,
    /// A block with text in a message, and the message that a result is: for servers that leave what stands within a result
    /// as it is, where Claude's provider takes no mark.
    TextsAndResults,
    /// Nothing: what is marked would not begin the next prompt.
    Nothing,
}

/// The cache marks of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// How many stand outside of the messages.
    pub frame: usize,
    /// Whether any of these that stands before the messages may be one that does not last for long.
    pub frame_short: bool,
    /// Those on parts, in order.
    pub parts: Vec<(PartId, Hold)>,
    /// How many of these, the first ones, are on instructions that stand in front of all other messages.
    pub leading: usize,
    /// Whether any of them, wherever it stands, is to last for long.
    pub long: bool,
    /// The mark that the provider itself sets at the end of the prompt, if it does.
    pub end: Option<Hold>,
    /// A mark as a member of a block: one that does not last for long, and one that does.
    pub members: [&'static str; 2],
    /// What can carry one.
    pub carriers: Carriers,
}

impl Marks {
    /// The most that a request may have.
    pub const MOST: usize = 4;

    /// A mark as a member of a block.
    pub fn member(&self, hold: Hold) -> &'static str {
        self.members[hold as usize]
    }

    /// How many more a request may have.
    pub fn free(&self) -> usize {
        Self::MOST.saturating_sub(self.frame + self.parts.len())
    }

    /// Whether any stands before the messages: the one that the provider sets itself counts as outside, and does not.
    pub fn are_before_messages(&self) -> bool {
        self.frame > usize::from(self.end.is_some()) || self.leading > 0
    }

    /// Those on parts behind the instructions.
    pub fn in_history(&self) -> &[(PartId, Hold)] {
        self.parts.get(self.leading..).unwrap_or_default()
    }

    /// Whether any of the messages is kept because of them.
    pub fn are_in_history(&self) -> bool {
        self.end.is_some() || !self.in_history().is_empty()
    }

    /// Whether any of the messages is kept for long because of them: those before the messages say nothing of that.
    pub fn are_long_in_history(&self) -> bool {
        self.end == Some(Hold::Long) || self.in_history().iter().any(|(_, hold)| *hold == Hold::Long)
    }
}

/// What stands before the messages of a prompt, as far as the provider's cache is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prelude {
    /// A hash of it, and of what else a provider's entries of messages are bound to. Marks are no part of it.
    pub key: u64,
    /// Bytes of it behind the last of the client's marks there, if it has any.
    pub unmarked: usize,
}

/// What stands in a message that the provider's entries of all others may be bound to: one that has it is read with
/// other instructions, or in another way, than one that does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shows {
    /// Images, those in results included.
    pub images: bool,
    /// Documents or search results that are to be cited.
    pub cited: bool,
}

impl std::ops::BitOr for Shows {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { images: self.images | other.images, cited: self.cited | other.cited }
    }
}

impl Conversation {
    /// Whether the provider keeps what the client adds to the history: because of its marks, or as it does without any.
    pub fn is_marked(&self) -> bool {
        self.marks.as_ref().is_none_or(Marks::are_in_history) && self.standing_mark().is_none()
    }

    /// How long the provider is asked to keep the end of the prompt, in milliseconds. What is marked behind a client's marks
    /// lasts for minutes, whatever is asked for in front of it.
    pub fn end_ttl_ms(&self) -> Option<u64> {
        let Some(marks) = &self.marks else { return self.requested_ttl_ms };
        let last = marks.end.or_else(|| marks.in_history().last().map(|(_, hold)| *hold));
        self.requested_ttl_ms.filter(|_| self.is_marked() && last == Some(Hold::Long))
    }

    /// Whether whatever the provider is asked to keep of the prompt is to last for long.
    pub fn is_kept_long(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| {
            let mut ends = marks.parts.iter().map(|(_, hold)| *hold).chain(marks.end);
            marks.long && !marks.frame_short && ends.all(|hold| hold == Hold::Long)
        })
    }

    /// The last mark of a client, where it stands before the model's last answer: it stays where it is while the history
    /// goes on. An answer that the client has begun itself is none.
    pub fn standing_mark(&self) -> Option<PartId> {
        let marks = self.marks.as_ref().filter(|marks| marks.end.is_none())?;
        let (last, _) = *marks.in_history().last()?;
        let is_answer = |message: &&Message| message.index.role == Role::Assistant;
        let behind = self.messages.get(last.message as usize + 1..)?.iter();
        let mut behind = behind.rev().skip_while(is_answer);
        behind.any(|message| is_answer(&message)).then_some(last)
    }

    /// The last mark of a client on instructions that stand in front of all other messages.
    pub fn leading_mark(&self) -> Option<PartId> {
        let marks = self.marks.as_ref()?;
        marks.parts.get(..marks.leading)?.last().map(|(part, _)| *part)
    }

    /// The last mark of a client on a message that stays where it is.
    pub fn kept_mark(&self) -> Option<PartId> {
        self.standing_mark().or_else(|| self.leading_mark())
    }

    /// Where in the body a mark of a part goes: into this block, or around this text, which becomes one. `None`: such a part
    /// carries none, or the request has no marks.
    pub fn mark_place(&self, id: PartId) -> Option<Span> {
        let part = self.part(id)?;
        let place = match self.marks.as_ref()?.carriers {
            Carriers::Blocks => part.span,
            Carriers::Nothing => return None,
            // An empty text carries none, nor what is no text at all.
            carriers @ (Carriers::Texts | Carriers::TextsAndResults) => {
                let block = self.text_block(id, part)?;
                let is_result = carriers == Carriers::TextsAndResults && part.kind == PartKind::ToolResult;
                let says = self.text(id, 0).is_some_and(|text| !text.trim().is_empty());
                says.then_some(if is_result { part.span } else { block })?
            }
        };
        Some(self.absolute(id.message, place))
    }

    /// The block that the only text of a part is, or becomes. Instructions in one string stay that: to what is bound to them
    /// a list may be something else. So do strings in lists.
    fn text_block(&self, id: PartId, part: &Part) -> Option<Span> {
        let [leaf] = &*part.leaves else { return None };
        let message = &self.messages[id.message as usize];
        let is_content = |text: Span| {
            let before = self.body.get(..self.absolute(id.message, text).start as usize);
            before.is_some_and(|before| before.trim_ascii_end().ends_with(b":"))
        };
        match (part.kind, &part.slots) {
            (PartKind::Text, _) if part.span != leaf.span => Some(part.span),
            (PartKind::Text, _) if message.index.role != Role::System => {
                Some(part.span).filter(|text| is_content(*text))
            }
            (PartKind::ToolResult, None) => Some(leaf.span),
            (PartKind::ToolResult, Some(list)) if list.items.len() == 1 => list.items.first().copied(),
            _ => None,
        }
    }

    /// Bytes at the beginning of the body, its members around the messages among them, that the client's marks have the
    /// provider keep from request to request, whatever else is marked; it begins like this.
    pub fn kept_bytes(&self, prelude: Prelude) -> usize {
        let frame = self.body.len() - self.array.len();
        match (self.kept_mark(), &self.marks) {
            (Some(mark), _) => {
                frame + self.messages[mark.message as usize].span.end as usize - self.array.start as usize
            }
            (None, Some(marks)) if marks.frame > 0 => frame.saturating_sub(prelude.unmarked),
            (None, _) => 0,
        }
    }
}
