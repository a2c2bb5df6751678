//! Lowers a plan to byte edits, for all dialects alike: the index holds the positions of literals, blocks and messages.
//!
//! Nothing is decided here. Bytes that no operation of the plan concerns stay as they are.

use std::collections::BTreeMap;

use crate::conversation::{Arguments, Conversation, Hold, Leaf, Part, PartId, PartKind, Role, Slots};
use crate::json::container::{self, Patch};
use crate::json::{Edit, Edits, Span, string};
use crate::plan::{LeafEdit, Op, Plan, Refusal};

/// Why a plan cannot be lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lowering {
    /// The plan breaks a rule.
    #[error("refused plan: {0}")]
    Refused(#[from] Refusal),
    /// The edits overlap.
    #[error("overlapping edits")]
    Overlap,
}

/// Lowers a checked plan. `message` writes an inserted message.
pub(crate) fn lower(
    conversation: &Conversation,
    plan: &Plan,
    message: &dyn Fn(Role, &str) -> String,
) -> Result<Edits, Lowering> {
    let mut edits = Vec::new();
    let mut list = Patch::default();
    let mut omitted: BTreeMap<u32, Vec<PartId>> = BTreeMap::new();
    for op in &plan.ops {
        match op {
            Op::Text { part, leaves } => edit_texts(conversation, *part, leaves, &mut edits)?,
            Op::Append { part, leaf, text } => append(conversation, *part, *leaf, text, &mut edits)?,
            Op::Mark { part, hold } => {
                let at = conversation.mark_place(*part).ok_or(Refusal::Missing)?;
                mark_block(conversation, at, *hold, &mut edits)?;
            }
            Op::Split { bytes, mark } => split(conversation, *bytes, *mark, &mut edits)?,
            Op::MarkFrame { hold } => {
                let at = conversation.frame_end.ok_or(Refusal::Missing)?;
                mark_block(conversation, at, *hold, &mut edits)?;
            }
            Op::Omit { part } => omitted.entry(part.message).or_default().push(*part),
            Op::Drop { first, end } => list.drop.extend(*first..*end),
            Op::Insert { before, role, text } => list.insert.push((*before, message(*role, text))),
        }
    }
    for parts in omitted.values() {
        edits.extend(omit(conversation, parts)?);
    }
    if !list.is_empty() {
        let elements: Vec<Span> = conversation.messages.iter().map(|message| message.span).collect();
        edits.extend(container::edits(conversation.array, &elements, &list));
    }
    Edits::new(edits).map_err(|_| Lowering::Overlap)
}

/// Inserts text before the closing quote of a literal, which otherwise keeps its spelling.
fn append(
    conversation: &Conversation,
    id: PartId,
    leaf: u32,
    text: &str,
    edits: &mut Vec<Edit>,
) -> Result<(), Lowering> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    let leaf = part.leaves().get(leaf as usize).ok_or(Refusal::Missing)?;
    let literal = string::encode(text);
    let inner = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    edits.push(Edit::insert(conversation.absolute(id.message, leaf.span).end - 1, inner.to_owned()));
    Ok(())
}

/// Splits the literal of the instructions into two text blocks, each of which keeps its spelling. The first gets the
/// mark, if there is one.
fn split(
    conversation: &Conversation,
    bytes: u32,
    mark: Option<Hold>,
    edits: &mut Vec<Edit>,
) -> Result<(), Lowering> {
    let marks = conversation.marks.as_ref().ok_or(Refusal::Missing)?;
    let at = conversation.system.ok_or(Refusal::Missing)?;
    let place = string::offset(at.of(&conversation.body), bytes as usize).ok_or(Refusal::Missing)?;
    let member = mark.map(|hold| format!(",{}", marks.member(hold))).unwrap_or_default();
    edits.push(Edit::insert(at.start, r#"[{"type":"text","text":"#));
    let between = format!(r#""{member}}},{{"type":"text","text":""#);
    edits.push(Edit::insert(at.start + place as u32, between));
    edits.push(Edit::insert(at.end, "}]"));
    Ok(())
}

/// Removes reasoning from a message: from its list of blocks, or from the message object itself.
fn omit(conversation: &Conversation, parts: &[PartId]) -> Result<Vec<Edit>, Lowering> {
    let mut removed = Vec::new();
    for id in parts {
        let part = conversation.part(*id).ok_or(Refusal::Missing)?;
        let slots = part.slots().ok_or(Refusal::Protected)?;
        removed.push((slots, slots.of(part.span).ok_or(Refusal::Missing)?));
    }
    let message = parts.first().ok_or(Refusal::Missing)?.message;
    Ok(remove_items(conversation, message, removed))
}

/// Removes items from the lists or objects of a message, each given with its slot. All removals from one list are made
/// together, because neighbours share a comma.
fn remove_items(conversation: &Conversation, message: u32, removed: Vec<(&Slots, usize)>) -> Vec<Edit> {
    let mut containers: Vec<(&Slots, Vec<usize>)> = Vec::new();
    for (slots, slot) in removed {
        match containers.iter_mut().find(|(known, _)| known.array == slots.array) {
            Some((_, drop)) => drop.push(slot),
            None => containers.push((slots, vec![slot])),
        }
    }
    let at = |span: Span| conversation.absolute(message, span);
    let edits = containers.into_iter().flat_map(|(slots, drop)| {
        let items: Vec<Span> = slots.items.iter().map(|item| at(*item)).collect();
        container::edits(at(slots.array), &items, &Patch { drop, ..Patch::default() })
    });
    edits.collect()
}

/// Adds a mark as the last member of a block. A string becomes a list with one text block.
fn mark_block(
    conversation: &Conversation,
    at: Span,
    hold: Hold,
    edits: &mut Vec<Edit>,
) -> Result<(), Lowering> {
    let marks = conversation.marks.as_ref().ok_or(Refusal::Missing)?;
    let member = marks.member(hold);
    if at.of(&conversation.body).starts_with(b"{") {
        edits.push(Edit::insert(at.end - 1, format!(",{member}")));
    } else {
        edits.push(Edit::insert(at.start, r#"[{"type":"text","text":"#));
        edits.push(Edit::insert(at.end, format!(",{member}}}]")));
    }
    Ok(())
}

/// Edits texts in a call's arguments. Each literal is replaced in place; if the arguments are themselves in a string,
/// that whole string is replaced.
fn edit_arguments(
    conversation: &Conversation,
    id: PartId,
    edits: &[(u32, LeafEdit)],
) -> Result<Vec<Edit>, Lowering> {
    let texts = conversation.argument_texts(id).ok_or(Refusal::Missing)?;
    let mut replaced = Vec::new();
    for (at, edit) in edits {
        let LeafEdit::Replace(text) = edit else { return Err(Refusal::NotRemovable.into()) };
        replaced.push((*at as usize, &**text));
    }
    match conversation.part(id).and_then(Part::arguments).ok_or(Refusal::Missing)? {
        Arguments::Value(span) => {
            let base = conversation.absolute(id.message, span).start as usize;
            let edits = texts.edits(replaced).ok_or(Refusal::Missing)?.into_iter();
            Ok(edits.map(|edit| Edit { at: edit.at.shift(base), ..edit }).collect())
        }
        Arguments::Encoded(span) => {
            let whole = texts.with(replaced).ok_or(Refusal::Missing)?;
            Ok(vec![Edit::replace(conversation.absolute(id.message, span), string::encode(&whole))])
        }
    }
}

/// Replaces or removes texts and media of a part.
fn edit_texts(
    conversation: &Conversation,
    id: PartId,
    leaves: &[(u32, LeafEdit)],
    edits: &mut Vec<Edit>,
) -> Result<(), Lowering> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    if part.kind() == PartKind::ToolCall {
        edits.extend(edit_arguments(conversation, id, leaves)?);
        return Ok(());
    }
    let mut removed = Vec::new();
    for (at, edit) in leaves {
        let (block, slots) = part.block(*at as usize).ok_or(Refusal::Missing)?;
        match edit {
            LeafEdit::Replace(text) => {
                let (span, literal) = match part.leaves().get(*at as usize) {
                    Some(leaf) => (leaf.span, string::encode(text)),
                    None => text_block_for(part, block, text)?,
                };
                edits.push(Edit::replace(conversation.absolute(id.message, span), literal));
            }
            LeafEdit::Remove => {
                let slot = block.slot.ok_or(Refusal::NotRemovable)?;
                removed.push((slots.ok_or(Refusal::NotRemovable)?, slot as usize));
            }
        }
    }
    edits.extend(remove_items(conversation, id.message, removed));
    Ok(())
}

/// The text block that takes the place of an image or a document, and the span that it replaces.
fn text_block_for(part: &Part, media: &Leaf, text: &str) -> Result<(Span, String), Lowering> {
    let kind = part.text_for_media().ok_or(Refusal::NotReplaceable)?;
    let slots = part.media_list().map(|media| &media.slots);
    let slot = media.slot.ok_or(Refusal::Missing)? as usize;
    let span = slots.and_then(|slots| slots.items.get(slot)).ok_or(Refusal::Missing)?;
    Ok((*span, format!(r#"{{"type":"{kind}","text":{}}}"#, string::encode(text))))
}
