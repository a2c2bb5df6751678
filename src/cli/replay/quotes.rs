//! What clearing loses: tool calls that quote lines which only cleared results had, and calls that are repeated.
//!
//! A quote is a line of a certain length (without its line number) in the arguments of a call that also occurs in an
//! earlier tool result. It is lost if no part of what was sent with the request that led to the call contains the line.
//! Each line is hashed once, so the cost of a request grows only with what is new or changed in it.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use serde::Serialize;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::lines::{self, Lines};
use crate::conversation::{Conversation, Part, PartId, PartKind, Role};
use crate::plan::LeafEdit;
use crate::planner::{self, Applied, Decision, Splice};

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Xxh3Default>>;

/// Counts over a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Tool calls.
    pub(super) calls: u64,
    /// Calls that quote a result.
    pub(super) quoting: u64,
    /// Calls that quote something that was not sent.
    #[serde(rename = "lost_quotes")]
    pub(super) lost: u64,
    /// Calls that were repeated while their result was cleared.
    pub(super) recalls: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.quoting += other.quoting;
        self.lost += other.lost;
        self.recalls += other.recalls;
    }
}

/// What was sent with the last request, line by line.
#[derive(Default)]
pub(super) struct Quotes {
    pub(super) counts: Counts,
    messages: usize,
    lines: Map<u64, Holders>,
    parts: Map<PartId, Held>,
    /// Calls whose results were sent cleared.
    cleared: Map<u64, u32>,
    /// Messages that are no longer sent.
    dropped: HashSet<u32>,
    /// The lines of the text that replaces them.
    instead: Lines,
}

/// The number of parts that contain a line.
#[derive(Default, Clone, Copy)]
struct Holders {
    results: u32,
    sent: u32,
}

/// The lines of a part.
struct Held {
    said: Lines,
    /// The decision about it, and the lines that are sent instead.
    edited: Option<(Arc<Decision>, Lines)>,
    /// The call whose result it is.
    call: Option<u64>,
}

impl Quotes {
    /// Adds the next request: judges the calls that the last one led to, then records what is sent now.
    pub(super) fn request(
        &mut self,
        conversation: &Conversation,
        applied: &[Applied],
        splice: Option<&Splice>,
    ) {
        let first = self.messages == 0;
        for at in self.messages..conversation.messages.len() {
            for (id, part) in conversation.parts_of(at) {
                if part.kind() == PartKind::ToolCall {
                    self.call(conversation, id, first);
                }
            }
        }
        for at in self.messages..conversation.messages.len() {
            if conversation.messages[at].index.role != Role::System {
                self.add(conversation, at);
            }
        }
        self.messages = conversation.messages.len();
        for applied in applied {
            self.edit(conversation, applied);
        }
        if let Some(splice) = splice {
            self.splice(conversation, splice);
        }
    }

    /// Records that messages are no longer sent, but a text in their place.
    fn splice(&mut self, conversation: &Conversation, splice: &Splice) {
        let gone = splice.drops.iter().flat_map(|(first, end)| *first..*end);
        let fresh: Vec<u32> = gone.filter(|at| self.dropped.insert(*at)).collect();
        if fresh.is_empty() {
            return;
        }
        for (id, part) in fresh.iter().flat_map(|at| conversation.parts_of(*at as usize)) {
            let said = match self.parts.remove(&id) {
                Some(Held { edited: Some((_, lines)), .. }) => lines,
                Some(held) => held.said,
                None => said(conversation, id, part).unwrap_or_default(),
            };
            for line in said {
                if let Some(holders) = self.lines.get_mut(&line) {
                    holders.sent = holders.sent.saturating_sub(1);
                }
            }
        }
        let now = lines::of_texts(std::iter::once((&*splice.text).into()));
        for line in &now {
            self.lines.entry(*line).or_default().sent += 1;
        }
        for line in std::mem::replace(&mut self.instead, now) {
            if let Some(holders) = self.lines.get_mut(&line) {
                holders.sent = holders.sent.saturating_sub(1);
            }
        }
    }

    fn call(&mut self, conversation: &Conversation, id: PartId, is_history: bool) {
        self.counts.calls += 1;
        if is_history {
            return;
        }
        let quoted = lines::of_arguments(&conversation.arguments(id).unwrap_or_default());
        let holders = quoted.iter().filter_map(|line| self.lines.get(line));
        let (mut quotes, mut lost) = (false, false);
        for holders in holders.filter(|holders| holders.results > 0) {
            quotes = true;
            lost |= holders.sent == 0;
        }
        self.counts.quoting += u64::from(quotes);
        self.counts.lost += u64::from(lost);
        let again =
            call_key(conversation, id).is_some_and(|key| self.cleared.get(&key).is_some_and(|n| *n > 0));
        self.counts.recalls += u64::from(again);
    }

    fn add(&mut self, conversation: &Conversation, message: usize) {
        for (id, part) in conversation.parts_of(message) {
            let Some(said) = said(conversation, id, part) else { continue };
            let is_result = part.kind() == PartKind::ToolResult;
            for line in &said {
                let holders = self.lines.entry(*line).or_default();
                holders.results += u32::from(is_result);
                holders.sent += 1;
            }
            if is_result || part.kind() == PartKind::ToolCall {
                let call = conversation.call_of(id).filter(|_| is_result);
                let call = call.and_then(|call| call_key(conversation, call));
                self.parts.insert(id, Held { said, edited: None, call });
            }
        }
    }

    /// Records what is sent instead of a part.
    fn edit(&mut self, conversation: &Conversation, applied: &Applied) {
        let Some(held) = self.parts.get_mut(&applied.part) else { return };
        if held.edited.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &applied.decision)) {
            return;
        }
        let sent = sent_lines(conversation, applied);
        let was = held.edited.as_ref().map_or(&held.said, |(_, lines)| lines);
        for line in was {
            if let Some(holders) = self.lines.get_mut(line) {
                holders.sent -= 1;
            }
        }
        for line in &sent {
            self.lines.entry(*line).or_default().sent += 1;
        }
        let was_cleared = held.edited.as_ref().is_some_and(|(known, _)| known.is_clearing());
        if let Some(call) = held.call.filter(|_| applied.decision.is_clearing() && !was_cleared) {
            *self.cleared.entry(call).or_default() += 1;
        }
        held.edited = Some((Arc::clone(&applied.decision), sent));
    }
}

/// The lines of a part, if it has text.
fn said(conversation: &Conversation, id: PartId, part: &Part) -> Option<Lines> {
    match part.kind() {
        PartKind::ToolCall => Some(lines::of_arguments(&conversation.arguments(id).unwrap_or_default())),
        PartKind::Text | PartKind::ToolResult => {
            let texts = (0..part.leaves().len()).filter_map(|leaf| conversation.text(id, leaf));
            Some(lines::of_texts(texts))
        }
        _ => None,
    }
}

fn sent_lines(conversation: &Conversation, applied: &Applied) -> Lines {
    if applied.decision.is_abridgement() {
        let arguments = planner::sent_arguments(conversation, applied);
        return lines::of_arguments(&arguments.unwrap_or_default());
    }
    let leaves = conversation.part(applied.part).map_or(0, |part| part.leaves().len());
    let texts = (0..leaves).filter_map(|leaf| {
        let edit = applied.decision.leaves.iter().find(|(at, _)| *at as usize == leaf);
        match edit {
            Some((_, LeafEdit::Replace(text))) => Some(std::borrow::Cow::Borrowed(&**text)),
            Some((_, LeafEdit::Remove)) => None,
            None => conversation.text(applied.part, leaf),
        }
    });
    lines::of_texts(texts)
}

/// A hash of a call's tool and arguments.
fn call_key(conversation: &Conversation, id: PartId) -> Option<u64> {
    let tool = conversation.part(id)?.tool().unwrap_or_default();
    let arguments = conversation.arguments(id)?;
    Some(xxh3_64(format!("{tool}\0{arguments}").as_bytes()))
}
