//! Chooses where the next summary cuts a history.

use super::Seen;
use crate::conversation::{self, Conversation, PartKind, Role};
use crate::planner::cuts::cuts;
use crate::planner::{Cut, Splice};
use crate::store::Summary;
use crate::strategy::summary::{Demand, Split, cut, split};
use crate::usage;

/// Where to cut a history.
pub(super) struct Choice {
    pub(super) cut: Cut,
    /// Bytes of the history, as sent now, that the cut removes.
    pub(super) bytes: u64,
}

/// The cut for the next summary of a request's history, given its `newest` summary. `None` if no further summary is
/// needed now, or if none is possible.
pub(super) fn next_cut(seen: Seen<'_>, newest: Option<&Summary>) -> Option<Choice> {
    let Seen { terms, level, .. } = seen;
    let used = seen.splice.map_or(0, Splice::end);
    // A finished summary that is not in use yet will be used first. If it should be in use by now, it cannot be used.
    let is_unusable = terms.must_be_used(level);
    if !is_unusable && newest.is_some_and(|newest| newest.end > used) {
        return None;
    }
    let demand = terms.demand(level);
    // Clearing costs the gateway no call of its own, but does not reduce the number of messages.
    let clearing_suffices = level.clearable_bytes as f64 >= demand.wanted as f64 * seen.bytes_per_token;
    if clearing_suffices && !level.is_crowded(&terms.window) {
        return None;
    }
    let choice = choose(seen, demand)?;
    newest.is_none_or(|newest| newest.end < choice.cut.end).then_some(choice)
}

/// The cut that best meets a demand.
fn choose(seen: Seen<'_>, demand: Demand) -> Option<Choice> {
    let Seen { conversation, terms, splice, bytes_per_token, .. } = seen;
    let bytes = sent_bytes(seen);
    // The splice in use is replaced as well.
    let splice_bytes = splice.map_or(0, Splice::bytes_after);
    let tokens = |bytes: u64| (bytes as f64 / bytes_per_token.max(0.5)) as u64;
    let bound = seen.model.and_then(usage::binding);
    let mut candidates = cuts(conversation, splice, bound, conversation.messages.len());
    let mut before = vec![0_u64; bytes.len() + 1];
    for (at, bytes) in bytes.iter().enumerate() {
        before[at + 1] = before[at] + bytes;
    }
    let freed = |cut: &Cut| splice_bytes + cut.total(&before);
    let place = |cut: &Cut| cut::CutPoint { end: cut.end, is_turn: cut.is_turn, tokens: tokens(freed(cut)) };
    let places: Vec<cut::CutPoint> = candidates.iter().map(place).collect();
    let chosen = if terms.settings.split == Split::Enough {
        let each: Vec<u64> = bytes.iter().copied().map(tokens).collect();
        cut::choose(&places, &each, demand, &terms.settings)
    } else {
        let messages = split_messages(conversation, &bytes, &tokens);
        let first = split::point(&messages, demand.usable, &terms.settings)?;
        cut::before(&places, first, demand, &terms.settings)
    };
    let cut = candidates.swap_remove(chosen?);
    let bytes = freed(&cut);
    Some(Choice { cut, bytes })
}

/// Bytes of each message as it is sent now. Messages that a splice replaces are not sent.
fn sent_bytes(seen: Seen<'_>) -> Vec<u64> {
    let Seen { conversation, applied, splice, .. } = seen;
    let mut bytes: Vec<u64> = conversation.messages.iter().map(|message| message.read_len() as u64).collect();
    for applied in applied {
        let message = &mut bytes[applied.part.message as usize];
        *message = message.saturating_sub(applied.bytes_spared_of(conversation));
    }
    if let Some(splice) = splice {
        for (_, bytes) in bytes.iter_mut().enumerate().filter(|(at, _)| splice.drops(*at)) {
            *bytes = 0;
        }
    }
    bytes
}

/// The messages of a history in the form that [`split`] takes.
fn split_messages(
    conversation: &Conversation,
    bytes: &[u64],
    tokens: &dyn Fn(u64) -> u64,
) -> Vec<split::Message> {
    let message = |(message, bytes): (&conversation::Message, &u64)| {
        let index = &message.index;
        let calls = index.parts.iter().any(|part| part.kind() == PartKind::ToolCall);
        split::Message {
            is_turn: index.starts_turn(),
            is_answer: index.role == Role::Assistant && !calls,
            bytes: *bytes,
            tokens: tokens(*bytes),
        }
    };
    conversation.messages.iter().zip(bytes).map(message).collect()
}
