//! The histories within a request, and where a request may be taken to end.
//!
//! Nothing is looked up: everything is in the request itself.

use crate::conversation::{Chain, Conversation, Digest, Message, PartId, PartKind, Role, Stem};

/// The number of messages at the beginning that are instructions in text, if anything follows them. Clients put the
/// date, the state of a repository or a number of their own there, so histories are identified by what follows.
fn instructions(conversation: &Conversation) -> usize {
    let instructs = |message: &&Message| {
        let index = &message.index;
        index.role == Role::System && index.parts.iter().all(|part| part.kind() == PartKind::Text)
    };
    let count = conversation.messages.iter().take_while(instructs).count();
    if count < conversation.messages.len() { count } else { 0 }
}

/// The texts at the end of a request's last message, after other parts of it: clients put the current state there, and
/// leave it out of the next request or replace it.
#[derive(Clone)]
pub(super) struct LastWords {
    /// The index of the message.
    message: usize,
    /// The history before that message.
    before: Chain,
    /// Digests of the message's parts, as received.
    parts: Box<[Digest]>,
    /// What precedes these texts, at least.
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

    /// The part of a later request from which on they are missing, provided that it continues from everything before
    /// them and that the model has answered that.
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
        let same =
            parts.iter().zip(parts_of(conversation, message)).take_while(|(one, other)| **one == *other);
        let (same, kept) = (same.count(), stem.parts as usize);
        // A client may spell what it keeps in another way without the words: as a string, or without a cache mark.
        let index = &conversation.messages[message].index;
        let says = index.stem.map_or(index.fingerprint, |other| other.fingerprint);
        let stays = same >= kept || says == stem.fingerprint;
        stays.then_some(PartId { message: message as u32, part: same.max(kept) as u32 })
    }
}

/// Digests of a message's parts, as received.
fn parts_of(conversation: &Conversation, message: usize) -> impl Iterator<Item = Digest> {
    let parts = conversation.parts_of(message);
    parts.map(|(id, part)| Digest::of(&[conversation.bytes_of(id.message, part.span)]))
}

/// The number of messages up to the model's last answer; 0 if there is none.
pub(super) fn answered(messages: &[Message]) -> usize {
    let mut messages = messages.iter();
    messages.rposition(|message| message.index.role == Role::Assistant).map_or(0, |last| last + 1)
}

/// Whether a request may be taken to end after a number of messages: not with the model's words, and not within its
/// instructions.
pub(super) fn may_end(conversation: &Conversation) -> impl Fn(usize) -> bool {
    let instructions = instructions(conversation);
    move |count| count > instructions && conversation.messages[count - 1].index.role != Role::Assistant
}

/// The shortest history of at least `least` messages that a request may be taken to end with, or all of it.
pub(super) fn first_end(conversation: &Conversation, least: usize) -> usize {
    let (all, may_end) = (conversation.messages.len(), may_end(conversation));
    (least..=all).find(|count| may_end(*count)).unwrap_or(all)
}

/// The histories longer than the first `sent` messages that a request may be taken to end with.
pub(super) fn ends(conversation: &Conversation, chains: &[Chain], sent: usize) -> Vec<Chain> {
    let (fresh, may_end) = (sent + 1..chains.len(), may_end(conversation));
    fresh.filter(|count| may_end(*count)).map(|count| chains[count]).collect()
}

/// The histories up to each message, the empty one first. Only the number of instructions at the beginning is part of
/// them, because places in a history include those. The first message after the instructions begins the conversation,
/// and identifies the histories within the instructions as well.
pub(super) fn chains(conversation: &Conversation, root: Chain) -> Vec<Chain> {
    let (instructions, history) = conversation.messages.split_at(instructions(conversation));
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
