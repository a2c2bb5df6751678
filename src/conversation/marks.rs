//! Cache marks: which prefixes of a request the provider's cache keeps, and what its entries depend on.

use super::model::{Conversation, Message, PartId, Role};
use super::part::{Part, PartData, PartKind, Slots};
use crate::json::Span;

/// How long a mark asks the provider to keep an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The provider's default: some minutes.
    #[default]
    Short,
    /// For an hour.
    Long,
}

/// What can carry a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Carriers {
    /// The block that a part is, or can be turned into.
    #[default]
    Blocks,
    /// A block with text, in a message or as the only text of a result. For servers that pass marks on from where they
    /// read them.
    Texts,
    /// A block with text in a message, or the message that is a result. For servers that pass on the contents of a
    /// result unchanged, where Claude's provider accepts no mark.
    TextsAndResults,
    /// Nothing, because the marked prefix would not be the beginning of the next prompt.
    Nothing,
}

/// The cache marks of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The number of marks outside of the messages.
    pub frame: usize,
    /// Whether a mark before the messages may be one with the short lifetime.
    pub frame_short: bool,
    /// The marks on parts, in order.
    pub parts: Vec<(PartId, Hold)>,
    /// How many of the first `parts` are on instructions that precede all other messages.
    pub leading: usize,
    /// Whether any mark, wherever it is, asks for the long lifetime.
    pub long: bool,
    /// The mark that the provider itself sets at the end of the prompt, if it does.
    pub end: Option<Hold>,
    /// A mark as a member of a block: one with the short lifetime, and one with the long lifetime.
    pub members: [&'static str; 2],
    /// What can carry a mark.
    pub carriers: Carriers,
}

impl Marks {
    /// The most marks that a request may have.
    pub const MOST: usize = 4;

    /// A mark as a member of a block.
    pub fn member(&self, hold: Hold) -> &'static str {
        self.members[hold as usize]
    }

    /// How many more marks a request may have.
    pub fn free(&self) -> usize {
        Self::MOST.saturating_sub(self.frame + self.parts.len())
    }

    /// Whether any mark is before the messages. The mark that the provider sets itself is counted in `frame`, but is at
    /// the end of the prompt.
    pub fn are_before_messages(&self) -> bool {
        self.frame > usize::from(self.end.is_some()) || self.leading > 0
    }

    /// The marks on parts after the instructions.
    pub fn in_history(&self) -> &[(PartId, Hold)] {
        self.parts.get(self.leading..).unwrap_or_default()
    }

    /// Whether any message is cached because of the marks.
    pub fn are_in_history(&self) -> bool {
        self.end.is_some() || !self.in_history().is_empty()
    }

    /// Whether any message is cached for an hour because of the marks. Marks before the messages do not count.
    pub fn are_long_in_history(&self) -> bool {
        self.end == Some(Hold::Long) || self.in_history().iter().any(|(_, hold)| *hold == Hold::Long)
    }
}

/// What precedes the messages of a prompt, as far as the provider's cache is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prelude {
    /// A hash of it and of everything else that the provider's entries of messages depend on. Marks are excluded.
    pub key: u64,
    /// Bytes of it after the last of the client's marks in it, if there are any.
    pub unmarked: usize,
}

/// Contents of a message on which the provider's entries for all other messages may depend: a prompt with them is read
/// with other instructions, or in another way, than a prompt without them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shows {
    /// Images, including those in results.
    pub images: bool,
    /// Documents or search results to be cited.
    pub cited: bool,
}

impl std::ops::BitOr for Shows {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { images: self.images | other.images, cited: self.cited | other.cited }
    }
}

impl Conversation {
    /// Whether the provider caches what the client adds to the history: because of its marks, or because it needs none.
    pub fn is_marked(&self) -> bool {
        self.marks.as_ref().is_none_or(Marks::are_in_history) && self.standing_mark().is_none()
    }

    /// How long the provider is asked to keep the end of the prompt, in milliseconds; `None` for its default. What
    /// follows the client's last mark is kept for the default time, whatever the marks before it ask for.
    pub fn end_ttl_ms(&self) -> Option<u64> {
        let Some(marks) = &self.marks else { return self.requested_ttl_ms };
        let last = marks.end.or_else(|| marks.in_history().last().map(|(_, hold)| *hold));
        self.requested_ttl_ms.filter(|_| self.is_marked() && last == Some(Hold::Long))
    }

    /// Whether everything that the provider is asked to keep of the prompt has the long lifetime.
    pub fn is_kept_long(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| {
            let mut ends = marks.parts.iter().map(|(_, hold)| *hold).chain(marks.end);
            marks.long && !marks.frame_short && ends.all(|hold| hold == Hold::Long)
        })
    }

    /// The client's last mark, if it precedes the model's last answer. Such a mark stays where it is while the history
    /// grows. An answer at the end of the messages, which the client itself has begun, does not count.
    pub fn standing_mark(&self) -> Option<PartId> {
        let marks = self.marks.as_ref().filter(|marks| marks.end.is_none())?;
        let (last, _) = *marks.in_history().last()?;
        let is_answer = |message: &&Message| message.index.role == Role::Assistant;
        let behind = self.messages.get(last.message as usize + 1..)?.iter();
        let mut behind = behind.rev().skip_while(is_answer);
        behind.any(|message| is_answer(&message)).then_some(last)
    }

    /// The client's last mark on instructions that precede all other messages.
    pub fn leading_mark(&self) -> Option<PartId> {
        let marks = self.marks.as_ref()?;
        marks.parts.get(..marks.leading)?.last().map(|(part, _)| *part)
    }

    /// The client's last mark on a message, if that mark stays where it is while the history grows.
    pub fn kept_mark(&self) -> Option<PartId> {
        self.standing_mark().or_else(|| self.leading_mark())
    }

    /// Where in the body a part is marked: in this block, or around this text, which becomes a block. `None` if such a
    /// part cannot carry a mark, or the request has no marks.
    pub fn mark_place(&self, id: PartId) -> Option<Span> {
        let part = self.part(id)?;
        let place = match self.marks.as_ref()?.carriers {
            Carriers::Blocks => part.span,
            Carriers::Nothing => return None,
            // Neither an empty text nor a part without text carries a mark.
            carriers @ (Carriers::Texts | Carriers::TextsAndResults) => {
                let block = self.text_block(id, part)?;
                let is_result = carriers == Carriers::TextsAndResults && part.kind() == PartKind::ToolResult;
                let says = self.text(id, 0).is_some_and(|text| !text.trim().is_empty());
                says.then_some(if is_result { part.span } else { block })?
            }
        };
        Some(self.absolute(id.message, place))
    }

    /// The block that the only text of a part is, or can be turned into. Instructions in a string are not turned into a
    /// list, which may mean something else to programs that depend on them; nor are strings that are items of a list.
    fn text_block(&self, id: PartId, part: &Part) -> Option<Span> {
        let message = &self.messages[id.message as usize];
        let is_content = |text: Span| {
            let before = self.body.get(..self.absolute(id.message, text).start as usize);
            before.is_some_and(|before| before.trim_ascii_end().ends_with(b":"))
        };
        match &part.data {
            PartData::Text(leaf) if part.span != leaf.span => Some(part.span),
            PartData::Text(_) if message.index.role != Role::System => {
                Some(part.span).filter(|text| is_content(*text))
            }
            PartData::ToolResult(result) => match (&*result.leaves, &result.slots) {
                ([leaf], None) => Some(leaf.span),
                ([_], Some(Slots { items, .. })) if items.len() == 1 => items.first().copied(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The bytes of the body, members around the messages included, that the client's own marks keep in the provider's
    /// cache from request to request, whatever else is marked. `prelude` is that of the request.
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
