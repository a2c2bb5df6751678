//! The histories within a request, and where a request may be taken to end.
//!
//! Nothing here is looked up: what stands in the request says it all.

use crate::conversation::{Chain, Conversation, Message, Role};

/// The messages up to the model's last answer; 0 if there is none.
pub(super) fn answered(messages: &[Message]) -> usize {
    let mut messages = messages.iter();
    messages.rposition(|message| message.index.role == Role::Assistant).map_or(0, |last| last + 1)
}

/// Whether a request may be taken to end with the first so many messages: seldom with the model's words.
pub(super) fn may_end(conversation: &Conversation, count: usize) -> bool {
    conversation.messages[count - 1].index.role != Role::Assistant
}

/// The shortest history of so many messages or more that a request may be taken to end with, or all of it.
pub(super) fn first_end(conversation: &Conversation, least: usize) -> usize {
    let all = conversation.messages.len();
    (least..=all).find(|count| may_end(conversation, *count)).unwrap_or(all)
}

/// The histories behind the first `sent` messages that a request may be taken to end with.
pub(super) fn ends(conversation: &Conversation, chains: &[Chain], sent: usize) -> Vec<Chain> {
    let fresh = sent + 1..chains.len();
    fresh.filter(|count| may_end(conversation, *count)).map(|count| chains[count]).collect()
}

/// The histories up to each message, the empty one first.
pub(super) fn chains(conversation: &Conversation, root: Chain) -> Vec<Chain> {
    let mut chains = Vec::with_capacity(conversation.messages.len() + 1);
    let mut chain = root;
    chains.push(chain);
    for message in &conversation.messages {
        chain = chain.then(message.index.fingerprint);
        chains.push(chain);
    }
    chains
}
