//! Instructions as two texts: what is always the same, marked for the provider's cache, and the rest.
//!
//! Decided with the first request of a conversation or never, stored under its first message, and carried out for as
//! long as the instructions begin so. What the model reads is the same.

use std::sync::Arc;

use crate::conversation::{Conversation, Digest, Marks, PartId};
use crate::plan::Op;

use super::decision::{self, Applied, Decision};
use super::{Outcome, Past, Policy, Stable};

/// Parts with numbers from here on are no parts of a message.
const FRAME: u32 = 1 << 31;

/// Carries out what was decided, or decides. What does not fit any more rests.
pub(super) fn place(conversation: &Conversation, past: &Past<'_>, policy: &Policy, outcome: &mut Outcome) {
    if !outcome.applied.iter().any(|applied| applied.decision.is_split()) {
        decide(conversation, past, policy, outcome);
    }
    let known = outcome.applied.iter().filter(|applied| applied.decision.is_split());
    let fit = known.filter(|applied| fits(conversation, &applied.decision));
    outcome.split = fit.min_by_key(|applied| applied.part).map(|applied| Arc::clone(&applied.decision));
}

/// Whether the instructions still begin as they did.
fn fits(conversation: &Conversation, decision: &Decision) -> bool {
    let text = conversation.instructions();
    let halves = text.as_deref().and_then(|text| text.split_at_checked(decision.bytes_before as usize));
    halves.is_some_and(|(first, rest)| {
        !rest.trim().is_empty() && Digest::of(&[first.as_bytes()]) == decision.content
    })
}

/// Divides the instructions of a conversation that begins, if it is known where, and the client sets no marks.
fn decide(conversation: &Conversation, past: &Past<'_>, policy: &Policy, outcome: &mut Outcome) {
    let unmarked = conversation.marks.as_ref().is_some_and(|marks| marks.free() == Marks::MOST);
    let wanted = policy.marks.split && unmarked && conversation.continues.is_none();
    let (true, 0, Some(stable)) = (wanted, past.sent, past.stable) else { return };
    let text = conversation.instructions();
    let Some(first) = text.as_deref().and_then(|text| text.get(..stable.bytes as usize)) else { return };
    let content = Digest::of(&[first.as_bytes()]);
    let [a, b, c, d, ..] = content.0;
    let decision = Decision {
        rules: decision::SPLIT.into(),
        leaves: Vec::new(),
        content,
        key: None,
        bytes_before: u64::from(stable.bytes),
        bytes_after: u64::from(stable.bytes),
        output: None,
    };
    // Of conversations that begin with the same words, each has its own.
    let part = PartId { message: 0, part: FRAME | u32::from_le_bytes([a, b, c, d]) };
    if fits(conversation, &decision) {
        outcome.applied.push(Applied { part, decision: decision.into() });
        outcome.fresh += 1;
    }
}

/// The mark between the two texts: where one is left, and once the conversation goes on, or the same instructions
/// were sent a moment ago.
pub(super) fn mark(
    conversation: &Conversation,
    (sent, stable): (usize, Option<Stable>),
    policy: &Policy,
    outcome: &mut Outcome,
) {
    let Some(marks) = &conversation.marks else { return };
    let is_read = sent > 0 || stable.is_some_and(|stable| stable.warm);
    let is_free = marks.free() > outcome.marks.parts().len();
    if policy.marks.marks && outcome.split.is_some() && is_read && is_free {
        // Marks that last for long come first.
        outcome.marks.system = Some(marks.frame > 0 || marks.parts.iter().any(|(_, long)| *long));
    }
}

pub(super) fn operation(decision: &Decision, mark: Option<bool>) -> Op {
    Op::Split { bytes: u32::try_from(decision.bytes_before).unwrap_or(u32::MAX), mark }
}
