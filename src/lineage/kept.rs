//! Histories that the provider keeps, each by the name that a request goes on from: an answer's, or its own.

use super::{Caller, Lineage, Place, Sender};
use crate::conversation::{Chain, Conversation, Digest};
use crate::store::{StoreError, Thread};

impl Lineage {
    /// Remembers in which thread the provider gave an answer: a request may go on from it without repeating what
    /// came before.
    pub fn answered(&self, place: &Place, answer: &str) {
        self.memory.answered(kept(place.root, answer), place.thread.id.clone());
    }

    /// Remembers in which thread a history is gone on with. A conversation of the provider's has one name for all its
    /// requests, and none of its answers has that.
    pub(super) fn continued(&self, conversation: &Conversation, place: &Place) {
        if let Some(name) = conversation.continues.as_deref().filter(|name| !name.is_empty()) {
            self.answered(place, name);
        }
    }

    /// The same by what the provider has sealed a summary of the history with: a client may go on with that in place of it.
    pub fn summed_up(&self, place: &Place, seals: &[u128]) {
        for seal in seals {
            self.answered(place, &seal_name(*seal));
        }
    }

    /// A thread that begins with this request: booked with the one that its history sums up, if that is known.
    pub(super) fn thread_behind(
        &self,
        conversation: &Conversation,
        sender: &Sender<'_>,
    ) -> Result<Thread, StoreError> {
        let mut parent = None;
        for seal in &conversation.seals {
            parent = parent.or(self.answerer(kept(sender.root, &seal_name(*seal)), sender.caller)?);
        }
        // What was refused is not in it.
        self.new_thread(parent.map(|parent| Thread { observe: false, refused: None, ..parent }), sender)
    }

    /// The conversation in which an answer was given, or that goes on under this name, if it is of the same session.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn conversation_of(
        &self,
        root: Chain,
        name: &str,
        caller: &Caller,
    ) -> Result<Option<String>, StoreError> {
        Ok(self.answerer(kept(root, name), caller)?.map(|thread| thread.conversation))
    }

    /// The thread of the same session in which an answer was given.
    pub(super) fn answerer(&self, answer: Digest, caller: &Caller) -> Result<Option<Thread>, StoreError> {
        let Some(id) = self.memory.answered_in(answer) else { return Ok(None) };
        let known = self.known(&id)?.map(|known| known.thread);
        Ok(known.filter(|thread| thread.session == caller.session))
    }
}

/// No answer's name has a blank.
fn seal_name(seal: u128) -> String {
    format!("seal {seal:032x}")
}

/// What stands for a history that the provider keeps.
pub(super) fn kept(root: Chain, name: &str) -> Digest {
    Digest::of(&[b"kept\0", &root.0.0, name.as_bytes()])
}
