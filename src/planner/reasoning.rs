//! Reasoning: which blocks an event may leave out, and which it must.
//!
//! The reasoning of finished turns is left out as a whole, from the first block on, and only if that pays. A provider
//! that binds reasoning to its prefix refuses a block that follows a change or a missing block. With such a provider,
//! an event removes all reasoning, that of the present turn too, or is not made. Reasoning of later requests stays.

use std::collections::HashSet;

use crate::conversation::{Conversation, Digest, Part, PartId, PartKind, Role};
use crate::strategy::Item;
use crate::strategy::gate::{Candidate, Reason};
use crate::usage::Binding;

use super::Outcome;
use super::decision::{Applied, Cause, Decision, parts};
use super::event::{Before, Change};

/// If removing reasoning makes an event more expensive than the gate has assumed, the event must save the difference
/// within this many requests.
const MAX_PAYBACK_REQUESTS: f64 = 5.0;

impl Before<'_> {
    /// The change, extended by the removal of all reasoning that is bound to what it changes; `None` if that is not
    /// possible.
    pub(super) fn remove_bound_reasoning(&self, mut change: Change) -> Option<Change> {
        if self.facts.bound != Some(Binding::Refused) {
            return self.remove_reasoning_of_others(change);
        }
        // Reasoning is bound to what was said before it, not to other reasoning.
        let Some(changed) = change.first_said() else { return Some(change) };
        let began = change.first();
        let splice = change.splice.as_ref().or(self.splice);
        let is_sent = |id: &PartId| splice.is_none_or(|splice| !splice.drops(id.message as usize));
        let thoughts: Vec<PartId> = thoughts(self.conversation).filter(is_sent).collect();
        if thoughts.last().is_none_or(|last| *last < changed) {
            return Some(change);
        }
        let mut gone = self.omitted();
        gone.extend(change.decided.iter().map(|applied| applied.part));
        let left: Vec<PartId> = thoughts.into_iter().filter(|id| !gone.contains(id)).collect();
        if !left.iter().all(|id| can_go(self.conversation, *id)) {
            return None;
        }
        change.decided.extend(left.iter().filter_map(|part| omission(self.conversation, *part)));
        self.complete_record(began, &mut change);
        Some(change)
    }

    /// The same for reasoning of another model, which may be asked again later; the present model does not read it.
    /// Reasoning of the turn in progress stays, and prevents changes that the window does not demand.
    fn remove_reasoning_of_others(&self, mut change: Change) -> Option<Change> {
        let Some(changed) = change.first_said().filter(|_| self.bound > 0) else { return Some(change) };
        let began = change.first();
        let mut gone = self.omitted();
        gone.extend(change.decided.iter().map(|applied| applied.part));
        let splice = change.splice.as_ref().or(self.splice);
        let is_sent =
            |id: &PartId| !gone.contains(id) && splice.is_none_or(|s| !s.drops(id.message as usize));
        let thoughts =
            thoughts(self.conversation).filter(|id| (id.message as usize) < self.bound && is_sent(id));
        let thoughts: Vec<PartId> = thoughts.collect();
        if thoughts.last().is_none_or(|last| *last < changed) {
            return Some(change);
        }
        let turn = turn_in_progress(self.conversation);
        let may_go = |id: &&PartId| (id.message as usize) < turn && can_go(self.conversation, **id);
        // No block may stay before one that is removed.
        let removed: Vec<PartId> = thoughts.iter().take_while(may_go).copied().collect();
        if removed.len() < thoughts.len() && change.reason != Reason::Window {
            return None;
        }
        change.decided.extend(removed.into_iter().filter_map(|part| omission(self.conversation, part)));
        let assumed = change.rewritten_bytes;
        self.complete_record(began, &mut change);
        let more = (change.rewritten_bytes - assumed) as f64 * self.rates.rewrite();
        let is_priced = matches!(change.reason, Reason::BreakEven | Reason::Budget);
        let saved = change.freed_bytes as f64 * self.rates.read;
        (!is_priced || more <= MAX_PAYBACK_REQUESTS * saved).then_some(change)
    }

    /// The reasoning of earlier turns that is still sent, as a single candidate for removal. Its rent is what reading
    /// it has cost since those turns were over.
    pub(super) fn old_reasoning(&self) -> Option<Candidate> {
        if !self.facts.reads_reasoning || !self.policy.clear.reasoning {
            return None;
        }
        let history = self.history();
        let places: Vec<usize> = self.past_thoughts().filter_map(|id| history.place(id)).collect();
        let items = || places.iter().map(|at| &history.items()[*at]);
        let rent = |item: &Item| f64::from(item.bytes) * f64::from(history.since_turn(item.turn));
        Some(Candidate {
            item: *places.first()?,
            frees: items().map(|item| item.bytes).sum(),
            rent: items().map(rent).sum::<f64>() * self.rates.read,
        })
    }

    /// The same, if reasoning is bound to nothing and `may` holds for every message with such reasoning.
    pub(super) fn unbound_reasoning(&self, may: impl Fn(usize) -> bool) -> Option<Candidate> {
        let thoughts = self.old_reasoning().filter(|_| self.facts.bound.is_none())?;
        self.past_thoughts().all(|id| may(id.message as usize)).then_some(thoughts)
    }

    /// The decisions that remove the reasoning of earlier turns.
    pub(super) fn omit_old_reasoning(&self) -> impl Iterator<Item = Applied> + '_ {
        self.past_thoughts().filter_map(|part| omission(self.conversation, part))
    }

    /// The reasoning of earlier turns that is still sent, up to the first block that must stay.
    fn past_thoughts(&self) -> impl Iterator<Item = PartId> + '_ {
        let (gone, history) = (self.omitted(), self.history());
        let is_sent = |message: usize| self.splice.is_none_or(|splice| !splice.drops(message));
        let end = self.sent.min(turn_in_progress(self.conversation));
        let is_past = move |id: PartId| (id.message as usize) < end && history.place(id).is_some();
        let sent =
            thoughts(self.conversation).filter(move |id| is_sent(id.message as usize) && !gone.contains(id));
        sent.take_while(move |id| is_past(*id) && can_go(self.conversation, *id))
    }

    /// The blocks of reasoning that decisions leave out.
    fn omitted(&self) -> HashSet<PartId> {
        parts(self.applied, Decision::is_omission)
    }
}

/// The number of messages up to the end of the newest answer with bound reasoning, given the length of the request
/// that it answers.
pub(super) fn bound(conversation: &Conversation, asked: usize) -> usize {
    let behind = conversation.messages.iter().skip(asked);
    let answer = behind.take_while(|message| message.index.role == Role::Assistant).count();
    if asked > 0 { asked + answer } else { 0 }
}

/// The first message of the turn in progress, as providers see it. Providers join consecutive messages of the same
/// side, so words of the user right after results continue the turn of those results.
pub fn turn_in_progress(conversation: &Conversation) -> usize {
    let messages = &conversation.messages;
    let is_answer = |at: &usize| messages[*at].index.role == Role::Assistant;
    let mut end = messages.len();
    loop {
        // The messages of the client between two answers, from the newest ones back.
        let begin = (0..end).rev().find(is_answer).map_or(0, |answer| answer + 1);
        let between = &messages[begin..end];
        if !between.iter().any(|message| message.index.has_results())
            && let Some(words) = between.iter().rposition(|message| message.index.starts_turn())
        {
            return begin + words;
        }
        if begin == 0 {
            return 0;
        }
        end = (0..begin).rev().find(|at| !is_answer(at)).map_or(0, |at| at + 1);
    }
}

/// The number of messages after which all turns are over whose reasoning `applied` leaves out; 0 if reasoning of the
/// turn in progress is left out too, as bound reasoning may require.
pub fn over_in(conversation: &Conversation, applied: &[Applied]) -> usize {
    let omissions = applied.iter().filter(|applied| applied.decision.is_omission());
    let Some(last) = omissions.map(|applied| applied.part.message as usize).max() else { return 0 };
    let turn = turn_in_progress(conversation);
    if turn <= last {
        return 0;
    }
    // The first of several consecutive user messages has ended the turn before.
    let earlier = conversation.messages[..turn].iter().rev();
    let consecutive = earlier.take_while(|message| message.index.role != Role::Assistant);
    let first = consecutive.enumerate().filter(|(_, message)| message.index.starts_turn()).last();
    turn + 1 - first.map_or(0, |(back, _)| back + 1)
}

/// Whether a part is reasoning.
pub(super) fn is_thought(conversation: &Conversation, id: PartId) -> bool {
    conversation.part(id).is_some_and(|part| part.kind() == PartKind::Thinking)
}

/// Leaves out all reasoning up to the last message from which reasoning was left out before. Blocks are not recognised
/// one by one, because a client may send fewer of them than before, at other positions in their message. From the first
/// block on that cannot be removed in its present form, all reasoning is sent.
pub(super) fn leave_out(conversation: &Conversation, past: &[Applied], outcome: &mut Outcome) {
    let omissions = past.iter().filter(|applied| applied.decision.is_omission());
    let Some(last) = omissions.map(|applied| applied.part.message).max() else { return };
    let known = parts(&outcome.applied, |_| true);
    let until = thoughts(conversation).take_while(|id| id.message <= last);
    let missing: Vec<Applied> = until
        .filter(|id| !known.contains(id) && !outcome.drops(id.message as usize) && can_go(conversation, *id))
        .filter_map(|id| omission(conversation, id))
        .collect();
    outcome.applied.extend(missing);
    let gone = parts(&outcome.applied, Decision::is_omission);
    let is_sent = |id: &PartId| !gone.contains(id) && !outcome.drops(id.message as usize);
    if let Some(first) = thoughts(conversation).find(is_sent) {
        outcome.applied.retain(|applied| !applied.decision.is_omission() || applied.part < first);
    }
}

/// The messages with reasoning that is bound to its prefix and cannot be removed, ascending.
pub(super) fn sealed(conversation: &Conversation, bound: Option<Binding>) -> Vec<usize> {
    if bound != Some(Binding::Refused) {
        return Vec::new();
    }
    let fixed = thoughts(conversation).filter(|id| !can_go(conversation, *id));
    fixed.map(|id| id.message as usize).collect()
}

/// All reasoning of a history.
fn thoughts(conversation: &Conversation) -> impl Iterator<Item = PartId> + '_ {
    let parts = (0..conversation.messages.len()).flat_map(|message| conversation.parts_of(message));
    parts.filter(|(_, part)| part.kind() == PartKind::Thinking).map(|(id, _)| id)
}

/// Whether a reasoning block can be removed, and its message still says something without it.
pub(super) fn can_go(conversation: &Conversation, id: PartId) -> bool {
    let says = |(id, part): (PartId, &Part)| match part.kind() {
        PartKind::Thinking => false,
        PartKind::Text => conversation.says_something(id, 0),
        _ => true,
    };
    conversation.part(id).is_some_and(|part| part.slots().is_some())
        && conversation.parts_of(id.message as usize).any(says)
}

/// The decision that leaves out a reasoning block.
fn omission(conversation: &Conversation, part: PartId) -> Option<Applied> {
    let span = conversation.part(part)?.span;
    let decision = Decision {
        cause: Cause::Omitted,
        leaves: Vec::new(),
        content: Digest::of(&[conversation.bytes_of(part.message, span)]),
        key: None,
        bytes_before: span.len() as u64,
        bytes_after: 0,
        output: None,
    };
    Some(Applied { part, decision: decision.into() })
}
