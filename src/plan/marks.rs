//! The rules for cache marks, and for instructions that are split into two texts to carry one.

use std::cmp::Ordering;

use crate::conversation::{Carriers, Conversation, Hold, PartId, PartKind};

use super::check::Refusal;
use super::{LeafEdit, Op, Plan};

/// A part can be marked if it is understood, is not reasoning, has a place for a mark, and is not an empty text.
pub(super) fn check_mark(conversation: &Conversation, id: PartId) -> Result<(), Refusal> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    match part.kind() {
        PartKind::Thinking | PartKind::Hosted | PartKind::Opaque => Err(Refusal::Protected),
        PartKind::Text if !conversation.says_something(id, 0) => Err(Refusal::EmptyText),
        _ if conversation.marks.is_some() && conversation.mark_place(id).is_none() => Err(Refusal::Protected),
        _ => Ok(()),
    }
}

/// If the dialect puts marks on texts, a result that is marked must keep all its texts, and none may become empty.
pub(super) fn check_marked_texts(
    conversation: &Conversation,
    plan: &Plan,
    marked: &[(PartId, Hold)],
) -> Result<(), Refusal> {
    if conversation.marks.as_ref().is_none_or(|marks| marks.carriers == Carriers::Blocks) {
        return Ok(());
    }
    let says = |edit: &LeafEdit| matches!(edit, LeafEdit::Replace(text) if !text.trim().is_empty());
    let is_left = plan.ops.iter().all(|op| match op {
        Op::Text { part, leaves } if marked.iter().any(|(id, _)| id == part) => {
            leaves.iter().all(|(_, edit)| says(edit))
        }
        _ => true,
    });
    if is_left { Ok(()) } else { Err(Refusal::EmptyText) }
}

/// Neither of the two texts may be empty.
pub(super) fn check_split(conversation: &Conversation, bytes: u32) -> Result<(), Refusal> {
    let text = conversation.instructions().ok_or(Refusal::Missing)?;
    let (first, second) = text.split_at_checked(bytes as usize).ok_or(Refusal::Missing)?;
    if first.trim().is_empty() || second.trim().is_empty() { Err(Refusal::EmptyText) } else { Ok(()) }
}

/// All marks of a request together: none may be added twice, there may be no more than a request can have, and those
/// with the long lifetime must come first. `split` is the mark on the instructions or after the frame.
pub(super) fn check_marks(
    conversation: &Conversation,
    marked: &[(PartId, Hold)],
    split: Option<Hold>,
) -> Result<(), Refusal> {
    let present = conversation.marks.as_ref().ok_or(Refusal::Missing)?;
    if marked.len() + usize::from(split.is_some()) > present.free() {
        return Err(Refusal::Conflict);
    }
    let is_long = |(_, hold): &(PartId, Hold)| *hold == Hold::Long;
    let ends_long = present.end == Some(Hold::Long);
    let fits_split = match split {
        None => true,
        Some(Hold::Long) => !present.frame_short,
        Some(Hold::Short) => !ends_long && !present.parts.iter().chain(marked).any(is_long),
    };
    let fits_frame = |mark: &(PartId, Hold)| if is_long(mark) { !present.frame_short } else { !ends_long };
    if !fits_split || !marked.iter().all(fits_frame) {
        return Err(Refusal::Conflict);
    }
    // The order of the client's own marks is not checked, because a part may have several, on blocks within it.
    let fits = |at: usize| {
        let (part, hold) = marked[at];
        present.parts.iter().chain(&marked[..at]).all(|(other, other_hold)| match other.cmp(&part) {
            Ordering::Less => *other_hold >= hold,
            Ordering::Equal => false,
            Ordering::Greater => *other_hold <= hold,
        })
    };
    if (0..marked.len()).all(fits) { Ok(()) } else { Err(Refusal::Conflict) }
}
