//! What stands for a result that is cleared.

use crate::conversation::{Conversation, Part, PartId};
use crate::plan::LeafEdit;
use crate::shape::Leaf;
use crate::strategy::clear;

use super::Recall;
use super::decision::{self, Applied, Decision, PartKey, Save};

/// Whether a placeholder can stand for all that a result says: it is text, and images and documents that are known; and
/// there is a place for it.
pub(super) fn can_go(part: &Part) -> bool {
    if place(part).is_none() {
        return false;
    }
    let is_text = || part.slots.as_ref().is_none_or(|slots| slots.items.len() == part.leaves.len());
    part.media.as_ref().map_or_else(is_text, |media| !media.blocks.is_empty())
}

/// The leaf that a placeholder stands in.
fn place(part: &Part) -> Option<usize> {
    part.leaves.iter().position(|leaf| !leaf.stays_blank)
}

/// The decision that a result is sent as a placeholder, unless that would be longer than what is sent now: its
/// text, or the `sent` bytes that a decision has left of it.
pub(super) fn decide(
    conversation: &Conversation,
    id: PartId,
    sent: Option<u64>,
    recall: Recall<'_>,
) -> Option<(Applied, Save)> {
    let part = conversation.part(id)?;
    // A mark would go with its block.
    if part.media().iter().any(|block| block.is_marked) {
        return None;
    }
    let content = part.content?;
    let texts = conversation.texts(id)?;
    let tool = conversation.tool_of(id).unwrap_or("a tool");
    let output = decision::output_id(&texts);
    let said: usize = texts.iter().map(|text| text.len()).sum();
    let media = part.media_len();
    let text = clear::placeholder(tool, &texts, part.media().len(), part.is_error, &recall(&output));
    let mut shaped: Vec<Leaf> = texts.iter().map(|_| Leaf::Remove).collect();
    *shaped.get_mut(place(part)?)? = Leaf::Replace(text);
    let mut leaves = super::newborn::leaf_edits(shaped, part, &texts);
    let after = super::newborn::sent(&leaves, &texts);
    if after as u64 >= sent.unwrap_or(u64::MAX).min(said as u64) + media as u64 {
        return None;
    }
    let blocks = texts.len()..texts.len() + part.media().len();
    leaves.extend(blocks.map(|at| (at as u32, LeafEdit::Remove)));
    let decision = Decision {
        rules: decision::CLEAR.into(),
        leaves,
        content,
        key: PartKey::of(part.call_id.as_deref(), content),
        bytes_before: (said + media) as u64,
        bytes_after: after as u64,
        output: Some(output),
    };
    Some((Applied { part: id, decision: decision.into() }, Save::of(&texts)))
}
