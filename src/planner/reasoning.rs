//! Reasoning that is bound to what stands before it: what an event must leave out.
//!
//! A provider that binds reasoning refuses a block behind a change, and one behind a gap among the blocks. So it is
//! all of it that goes, from the first on, or the event is not made. What is thought afterwards stays.

use std::collections::HashSet;

use crate::conversation::{Conversation, Digest, PartId, PartKind};
use crate::usage::Binding;

use super::Outcome;
use super::decision::{self, Applied, Decision};
use super::event::{Before, Change};

impl Before<'_> {
    /// The change with the reasoning left out that is bound to what it changes; `None` where that cannot be.
    pub(super) fn unbound(&self, mut change: Change) -> Option<Change> {
        if self.facts.bound != Some(Binding::Refused) {
            return Some(change);
        }
        let changed = change.first();
        let splice = change.splice.as_ref().or(self.splice);
        let is_sent = |message: usize| splice.is_none_or(|splice| !splice.drops(message));
        let thoughts: Vec<PartId> =
            thoughts(self.conversation).filter(|id| is_sent(id.message as usize)).collect();
        if thoughts.last().is_none_or(|last| *last < changed) {
            return Some(change);
        }
        let gone = self.omitted();
        let left: Vec<PartId> = thoughts.into_iter().filter(|id| !gone.contains(id)).collect();
        if !left.iter().all(|id| can_go(self.conversation, *id)) {
            return None;
        }
        change.decided.extend(left.iter().filter_map(|part| omission(self.conversation, *part)));
        change.event.reasoning = left.len() as u32;
        self.begin_before(changed, &mut change);
        Some(change)
    }

    /// Messages with reasoning that would have to go if anything before it changed, and cannot.
    pub(super) fn sealed(&self) -> Vec<usize> {
        if self.facts.bound != Some(Binding::Refused) {
            return Vec::new();
        }
        let stuck = thoughts(self.conversation).filter(|id| !can_go(self.conversation, *id));
        stuck.map(|id| id.message as usize).collect()
    }

    fn omitted(&self) -> HashSet<PartId> {
        self.applied.iter().filter(|applied| applied.decision.is_omission()).map(|a| a.part).collect()
    }
}

/// Clients may send less of what was thought than they did, and what is left then stands elsewhere in its message:
/// up to where reasoning was left out once, none is sent.
pub(super) fn leave_out(conversation: &Conversation, past: &[Applied], outcome: &mut Outcome) {
    let omissions = past.iter().filter(|applied| applied.decision.is_omission());
    let Some(last) = omissions.map(|applied| applied.part.message).max() else { return };
    let known: HashSet<PartId> = outcome.applied.iter().map(|applied| applied.part).collect();
    let until = thoughts(conversation).take_while(|id| id.message <= last);
    let missing: Vec<Applied> = until
        .filter(|id| !known.contains(id) && !outcome.drops(id.message as usize) && can_go(conversation, *id))
        .filter_map(|id| omission(conversation, id))
        .collect();
    outcome.applied.extend(missing);
}

/// All reasoning of a history.
fn thoughts(conversation: &Conversation) -> impl Iterator<Item = PartId> + '_ {
    let parts = (0..conversation.messages.len()).flat_map(|message| conversation.parts_of(message));
    parts.filter(|(_, part)| part.kind == PartKind::Thinking).map(|(id, _)| id)
}

/// Whether reasoning stands in a list, and its message says something without it.
fn can_go(conversation: &Conversation, id: PartId) -> bool {
    let parts = &conversation.messages[id.message as usize].index.parts;
    conversation.part(id).is_some_and(|part| part.slots.is_some())
        && parts.iter().any(|part| part.kind != PartKind::Thinking)
}

/// The decision that reasoning is left out.
fn omission(conversation: &Conversation, part: PartId) -> Option<Applied> {
    let span = conversation.part(part)?.span;
    let decision = Decision {
        rules: decision::REASONING.into(),
        leaves: Vec::new(),
        content: Digest::of(&[conversation.bytes_of(part.message, span)]),
        key: None,
        bytes_before: span.len() as u64,
        bytes_after: 0,
        output: None,
    };
    Some(Applied { part, decision: decision.into() })
}
