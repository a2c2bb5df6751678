//! The histories within a request, and those of them with which a request may end.
//!
//! Everything here is computed from the request alone.

use crate::conversation::{Chain, Conversation, Digest, Message, PartId, PartKind, Role, Stem};

/// The number of messages at the beginning that are instructions in text; 0 if nothing follows them. Clients put the
/// date, the state of a repository or a number of their own there, so histories are identified by what follows.
fn count_instructions(conversation: &Conversation) -> usize {
    let instructs = |message: &&Message| {
        let index = &message.index;
        index.role == Role::System && index.parts.iter().all(|part| part.kind() == PartKind::Text)
    };
    let count = conversation.messages.iter().take_while(instructs).count();
    if count < conversation.messages.len() { count } else { 0 }
}

/// The texts at the end of a request's last message, after its other parts. Clients put the current state there, and
/// leave it out of the next request or replace it.
#[derive(Clone)]
pub(super) struct LastWords {
    /// The index of the message.
    message: usize,
    /// The history before that message.
    before: Chain,
    /// Digests of the message's parts, as received.
    parts: Box<[Digest]>,
    /// What the client keeps of the message: the parts before these texts, and at least the first part.
    stem: Stem,
}

impl LastWords {
    /// The last words of a request, if it has any.
    pub(super) fn of(conversation: &Conversation, chains: &[Chain]) -> Option<Self> {
        let message = conversation.messages.len().checked_sub(1)?;
        let index = &conversation.messages[message].index;
        let stem = index.stem.filter(|_| index.role != Role::Assistant)?;
        let parts = parts_of(conversation, message).collect();
        Some(Self { message, before: *chains.get(message)?, parts, stem })
    }

    /// Returns the part of a later request from which on the words are missing. Returns `None` unless the request
    /// continues from everything before the words, and holds an answer of the model after that.
    pub(super) fn left_out_of(
        &self,
        conversation: &Conversation,
        chains: &[Chain],
        answered: usize,
    ) -> Option<PartId> {
        let &Self { message, before, ref parts, stem } = self;
        if answered <= message || chains.get(message) != Some(&before) {
            return None;
        }
        let later_parts = parts_of(conversation, message);
        let equal_parts = parts.iter().zip(later_parts).take_while(|(one, other)| **one == *other).count();
        let stem_parts = stem.parts as usize;
        // Without the words, a client may write what it keeps in another way: as a string, or without a cache mark.
        let index = &conversation.messages[message].index;
        let fingerprint = index.stem.map_or(index.fingerprint, |later| later.fingerprint);
        if equal_parts < stem_parts && fingerprint != stem.fingerprint {
            return None;
        }
        Some(PartId { message: message as u32, part: equal_parts.max(stem_parts) as u32 })
    }
}

/// Digests of a message's parts, as received.
fn parts_of(conversation: &Conversation, message: usize) -> impl Iterator<Item = Digest> {
    let parts = conversation.parts_of(message);
    parts.map(|(id, part)| Digest::of(&[conversation.bytes_of(id.message, part.span)]))
}

/// Tells whether a request may end after a number of messages: not with the model's words, and not within the
/// instructions at the beginning.
pub(super) fn may_end(conversation: &Conversation) -> impl Fn(usize) -> bool {
    let instructions = count_instructions(conversation);
    move |count| count > instructions && conversation.messages[count - 1].index.role != Role::Assistant
}

/// The length of the shortest history of at least `least` messages that a request may end with. If there is none, that
/// of the whole request.
pub(super) fn first_end(conversation: &Conversation, least: usize) -> usize {
    let (all, may_end) = (conversation.messages.len(), may_end(conversation));
    (least..=all).find(|count| may_end(*count)).unwrap_or(all)
}

/// The histories longer than the first `sent` messages that a request may end with.
pub(super) fn ends(conversation: &Conversation, chains: &[Chain], sent: usize) -> Vec<Chain> {
    let may_end = may_end(conversation);
    (sent + 1..chains.len()).filter(|count| may_end(*count)).map(|count| chains[count]).collect()
}

/// The histories up to each message, the empty one first. They depend on the number of instructions at the beginning,
/// since positions in a history count these, but not on their text. The first message after the instructions begins the
/// conversation, and identifies the histories within the instructions as well.
pub(super) fn chains(conversation: &Conversation, root: Chain) -> Vec<Chain> {
    let (instructions, history) = conversation.messages.split_at(count_instructions(conversation));
    let mut chains = Vec::with_capacity(conversation.messages.len() + 1);
    chains.push(root);
    let mut chain = root;
    if let (Some(first), 1..) = (history.first(), instructions.len()) {
        chain = root.then(Digest::of(&[b"instructions\0", &(instructions.len() as u32).to_le_bytes()]));
        let within = |at: u32| Digest::of(&[b"within\0", &at.to_le_bytes(), &first.index.fingerprint.0]);
        chains.extend((0..instructions.len() as u32).map(|at| chain.then(within(at))));
    }
    for message in history {
        chain = chain.then(message.index.fingerprint);
        chains.push(chain);
    }
    chains
}
