//! Placeholders for results that are cleared.

use crate::conversation::{Conversation, MEDIA, Part, PartId};
use crate::json::string;
use crate::plan::LeafEdit;
use crate::strategy::clear;

use super::RecallSentence;
use super::decision::{Applied, Cause, Decision, PartKey, Save};

/// Whether a placeholder can replace everything in a result: the result consists of text and of known images and
/// documents, and there is a place for the placeholder.
pub(super) fn can_go(part: &Part) -> bool {
    if place(part).is_none() {
        return false;
    }
    part.media_list().map_or_else(|| super::newborn::all_text(part), |media| !media.blocks.is_empty())
}

/// The leaf that the placeholder replaces: a text or, without one, the first image or document. Images and documents
/// are counted after the texts.
fn place(part: &Part) -> Option<usize> {
    let texts = part.leaves().len();
    let first_media = || part.text_for_media().filter(|_| !part.media().is_empty()).map(|_| texts);
    part.leaves().iter().position(|leaf| !leaf.stays_blank).or_else(first_media)
}

/// The bytes that the images and documents of a result count as, whatever escapes their encodings are written with.
fn media_len(conversation: &Conversation, id: PartId, part: &Part) -> usize {
    let length = |literal: &[u8]| match literal.len() {
        // No spelling of a character is longer than six bytes.
        raw if raw > 6 * MEDIA => MEDIA,
        _ => string::utf16_len(literal).min(MEDIA),
    };
    part.media().iter().map(|block| length(conversation.bytes_of(id.message, block.span))).sum()
}

/// The decision that replaces a result by a placeholder, and the full text to save if the result has text. `None` if
/// the result cannot be cleared, or the placeholder would not be shorter than what is sent now: the text, or the `sent`
/// bytes that a decision has left of it.
pub(super) fn decide(
    conversation: &Conversation,
    id: PartId,
    sent: Option<u64>,
    recall: RecallSentence<'_>,
) -> Option<(Applied, Option<Save>)> {
    let part = conversation.part(id)?;
    // A cache mark would be removed with its block.
    if part.media().iter().any(|block| block.is_marked) {
        return None;
    }
    let content = part.content()?;
    let texts = conversation.texts(id)?;
    let tool = conversation.tool_of(id).unwrap_or("a tool");
    let text_len: usize = texts.iter().map(|text| text.len()).sum();
    let media = media_len(conversation, id, part);
    let save = (text_len > 0).then(|| Save::of(&texts));
    let recall = save.as_ref().map(|save| recall(&save.id));
    let arguments = conversation.call_of(id).and_then(|call| conversation.arguments(call));
    let placeholder = clear::placeholder(&clear::Cleared {
        tool,
        texts: &texts,
        media: part.media().len(),
        is_error: part.is_error(),
        may_run: super::action::may_run(tool, arguments.as_deref().unwrap_or_default()),
        recall: recall.as_deref(),
    });
    let (at, placeholder_len) = (place(part)?, placeholder.len());
    let mut leaves = vec![Some(LeafEdit::Remove); texts.len() + part.media().len()];
    *leaves.get_mut(at)? = Some(LeafEdit::Replace(placeholder.into()));
    let leaves = super::newborn::leaf_edits(leaves, part, &texts);
    let in_media = if at < texts.len() { 0 } else { placeholder_len };
    let after = super::newborn::sent_len(&leaves, &texts) + in_media;
    if after as u64 >= sent.unwrap_or(u64::MAX).min(text_len as u64) + media as u64 {
        return None;
    }
    let decision = Decision {
        cause: Cause::Cleared,
        leaves,
        content,
        key: PartKey::of(part.call_id(), content),
        bytes_before: (text_len + media) as u64,
        bytes_after: after as u64,
        output: save.as_ref().map(|save| save.id.clone()),
    };
    Some((Applied { part: id, decision: decision.into() }, save))
}
