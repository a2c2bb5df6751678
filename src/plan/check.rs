//! The rules that no plan may break.
//!
//! A call and its result stay or go together; the first message of the user, the last one, reasoning and what
//! is not understood are never touched; nothing is named that is not there, and nothing twice.

use crate::conversation::{Conversation, PartId, PartKind, Role};

use super::{LeafEdit, Op, Plan};

/// Why a plan is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A message, part or leaf that does not exist.
    #[error("names what is not there")]
    Missing,
    /// Two operations on one thing, or an edit of what is dropped.
    #[error("conflicting operations")]
    Conflict,
    /// A part that no plan may change.
    #[error("touches a protected part")]
    Protected,
    /// A call would lose its result, or a result its call.
    #[error("separates a call from its result")]
    Pairing,
    /// A leaf without a block of its own cannot be removed.
    #[error("removes what can only be replaced")]
    NotRemovable,
    /// A text that providers refuse.
    #[error("leaves an empty text")]
    EmptyText,
}

/// Checks a plan against the conversation it is for.
///
/// # Errors
/// The first [`Refusal`].
pub fn check(conversation: &Conversation, plan: &Plan) -> Result<(), Refusal> {
    let dropped = dropped(conversation, plan)?;
    let mut edited = Vec::new();
    for op in &plan.ops {
        match op {
            Op::Text { part, leaves } => {
                check_text(conversation, *part, leaves)?;
                if dropped.get(part.message as usize).copied().unwrap_or(false) || edited.contains(part) {
                    return Err(Refusal::Conflict);
                }
                edited.push(*part);
            }
            Op::Insert { before, text, role } => {
                if *before > conversation.messages.len() || *role == Role::Tool {
                    return Err(Refusal::Missing);
                }
                if text.trim().is_empty() {
                    return Err(Refusal::EmptyText);
                }
            }
            Op::Drop { .. } => {}
        }
    }
    if dropped.contains(&true) { check_pairs(conversation, &dropped) } else { Ok(()) }
}

fn dropped(conversation: &Conversation, plan: &Plan) -> Result<Vec<bool>, Refusal> {
    let mut dropped = vec![false; conversation.messages.len()];
    for op in &plan.ops {
        let Op::Drop { first, end } = op else { continue };
        let range = dropped.get_mut(*first..*end).ok_or(Refusal::Missing)?;
        if range.is_empty() || range.contains(&true) {
            return Err(Refusal::Conflict);
        }
        range.fill(true);
    }
    let user = |message: &crate::conversation::Message| message.index.starts_turn();
    let ends = [conversation.messages.iter().position(user), conversation.messages.iter().rposition(user)];
    if ends.into_iter().flatten().any(|message| dropped[message]) {
        return Err(Refusal::Protected);
    }
    let lost = conversation.messages.iter().zip(&dropped).filter(|(_, dropped)| **dropped);
    for (message, _) in lost {
        if message.index.role == Role::System
            || message.index.parts.iter().any(|part| part.kind == PartKind::Opaque)
        {
            return Err(Refusal::Protected);
        }
    }
    Ok(dropped)
}

fn check_text(conversation: &Conversation, id: PartId, leaves: &[(u32, LeafEdit)]) -> Result<(), Refusal> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    if part.kind != PartKind::ToolResult {
        return Err(Refusal::Protected);
    }
    if leaves.is_empty() || leaves.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Refusal::Conflict);
    }
    for (leaf, edit) in leaves {
        let leaf = part.leaves.get(*leaf as usize).ok_or(Refusal::Missing)?;
        match edit {
            LeafEdit::Remove if leaf.slot.is_none() => return Err(Refusal::NotRemovable),
            LeafEdit::Replace(text) if text.is_empty() => return Err(Refusal::EmptyText),
            _ => {}
        }
    }
    Ok(())
}

/// Every surviving result must find its call, and every surviving call that had a result must keep it.
fn check_pairs(conversation: &Conversation, dropped: &[bool]) -> Result<(), Refusal> {
    for (message, _) in conversation.messages.iter().enumerate() {
        for (id, part) in conversation.parts_of(message) {
            if part.kind != PartKind::ToolResult {
                continue;
            }
            if let Some(call) = conversation.call_of(id)
                && dropped[message] != dropped[call.message as usize]
            {
                return Err(Refusal::Pairing);
            }
        }
        // A call whose result has not come yet is part of the step in progress.
        if dropped[message]
            && conversation.parts_of(message).any(|(id, part)| is_open(conversation, id, part.kind))
        {
            return Err(Refusal::Pairing);
        }
    }
    Ok(())
}

fn is_open(conversation: &Conversation, call: PartId, kind: PartKind) -> bool {
    kind == PartKind::ToolCall
        && !(call.message as usize..conversation.messages.len()).any(|message| {
            conversation
                .parts_of(message)
                .any(|(id, part)| part.kind == PartKind::ToolResult && conversation.call_of(id) == Some(call))
        })
}
