//! What stands for a result that is cleared.

use crate::conversation::{Conversation, PartId};
use crate::shape::Leaf;
use crate::strategy::clear;

use super::Recall;
use super::decision::{self, Applied, Decision, PartKey, Save};

/// The decision that a result is sent as a placeholder, unless that would be longer than what is sent now: its
/// text, or the `sent` bytes that a decision has left of it.
pub(super) fn decide(
    conversation: &Conversation,
    id: PartId,
    sent: Option<u64>,
    recall: Recall<'_>,
) -> Option<(Applied, Save)> {
    let part = conversation.part(id)?;
    let content = part.content?;
    let texts = conversation.texts(id)?;
    let tool = conversation.tool_of(id).unwrap_or("a tool");
    let output = decision::output_id(&texts);
    let before: usize = texts.iter().map(|text| text.len()).sum();
    let text = clear::placeholder(tool, &texts, part.is_error, &recall(&output));
    let mut shaped = vec![Leaf::Replace(text)];
    shaped.resize_with(texts.len(), || Leaf::Remove);
    let leaves = super::newborn::leaf_edits(shaped, part, &texts);
    let after = super::newborn::sent(&leaves, &texts);
    if after as u64 >= sent.unwrap_or(u64::MAX).min(before as u64) {
        return None;
    }
    let decision = Decision {
        rules: decision::CLEAR.into(),
        leaves,
        content,
        key: PartKey::of(part.call_id.as_deref(), content),
        bytes_before: before as u64,
        bytes_after: after as u64,
        output: Some(output),
    };
    Some((Applied { part: id, decision: decision.into() }, Save::of(&texts)))
}
