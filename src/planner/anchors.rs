//! Where a request is marked for the provider's cache.

use crate::conversation::{Conversation, PartId};
use crate::strategy::marks::{self, Chosen};

use super::{Facts, Outcome, Policy, Standing};

/// The cache marks to add: where a client sets none, the end of the prompt and of the one before; and an anchor
/// in front of the cut that was made, or is to be expected.
pub(super) fn place(
    conversation: &Conversation,
    policy: &Policy,
    facts: &Facts,
    is_marked: bool,
    cut: Option<PartId>,
    outcome: &Outcome,
    standing: &Standing,
) -> Chosen {
    let mut chosen = Chosen::default();
    let gone = |message: usize| outcome.drops(message);
    let entries = standing.entries();
    if !is_marked && policy.marks.marks {
        let end =
            conversation.messages.len().checked_sub(1).and_then(|last| marks::end_of(conversation, last));
        chosen.add(conversation, end, &gone);
        let last = end.and_then(|end| entries.before(end, facts.now_ms, facts.lasts_ms));
        chosen.add(conversation, last, &gone);
    }
    if let Some(cut) = cut.filter(|_| policy.marks.anchors && (is_marked || policy.marks.marks)) {
        let entry = entries.before(cut, facts.now_ms, facts.lasts_ms);
        let fresh = PartId { message: cut.message, part: cut.part.wrapping_sub(1) };
        let before = if cut.part > 0 {
            Some(fresh)
        } else {
            (cut.message as usize).checked_sub(1).and_then(|message| marks::end_of(conversation, message))
        };
        // An event can only fall back to an entry that is there.
        chosen.add(conversation, if outcome.event.is_some() { entry } else { before }, &gone);
    }
    chosen
}
