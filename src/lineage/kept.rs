//! Histories that the provider keeps, each by the name that a request goes on from: an answer's, or its own.

use super::memory::Known;
use super::{Caller, Lineage, Place, Sender};
use crate::conversation::{Chain, Conversation, Digest};
use crate::store::{Batch, Boundary, StoreError, Thread};

impl Place {
    /// What stands for the history before the body's own, if it has a name.
    pub(super) fn kept(&self) -> Option<Chain> {
        named(self.root, &self.chains)
    }
}

impl Lineage {
    /// Remembers in which thread the provider gave an answer: a request may go on from it without repeating what
    /// came before. What says so is to be stored if the provider keeps the answer, as any gateway may be sent that request.
    pub fn answered(&self, root: Chain, thread: &str, answer: &str) -> Boundary {
        let chain = Chain(kept(root, answer));
        self.memory.answered(chain.0, thread.to_owned());
        Boundary { chain, thread: thread.to_owned() }
    }

    /// The same by what the provider has sealed a summary of the history with: a client may go on with that in place of it.
    pub fn summed_up(&self, root: Chain, thread: &str, seals: &[u128]) -> Vec<Boundary> {
        seals.iter().map(|seal| self.answered(root, thread, &seal_name(*seal))).collect()
    }

    /// Remembers in which thread a history is gone on with. A conversation of the provider's has one name for all its
    /// requests, and none of its answers has that.
    pub(super) fn continued(&self, place: &Place) {
        if let Some(kept) = place.kept() {
            self.memory.answered(kept.0, place.thread.id.clone());
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
            parent = parent.or(self.answerer(Chain(kept(sender.root, &seal_name(*seal))), sender.caller)?);
        }
        // What was refused is not in it.
        self.new_thread(parent.map(|parent| Thread { observe: false, refused: None, ..parent }), sender)
    }

    /// The thread in which an answer was given, or that goes on under this name, if it is of the same session. Else one
    /// begins, and what is to be stored of it. `new_id` makes its id; `now_ms` is the clock's reading.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn thread_of_kept(
        &self,
        root: Chain,
        name: &str,
        caller: &Caller,
        new_id: &dyn Fn() -> String,
        now_ms: i64,
    ) -> Result<(Thread, Option<Batch>), StoreError> {
        if let Some(thread) = self.answerer(Chain(kept(root, name)), caller)? {
            return Ok((thread, None));
        }
        let thread = self.new_thread(None, &Sender { root, cache: root, caller, new_id, now_ms })?;
        self.memory.know(Known::of(thread.clone()));
        let boundaries = vec![self.answered(root, &thread.id, name)];
        let batch = Batch { threads: vec![thread.clone()], boundaries, at_ms: now_ms, ..Batch::default() };
        Ok((thread, Some(batch)))
    }

    /// The conversation in which an answer was given, whatever session asks for it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn conversation_of(&self, root: Chain, answer: &str) -> Result<Option<String>, StoreError> {
        let thread = self.newest_answerer(Chain(kept(root, answer)), |_| true)?;
        Ok(thread.map(|thread| thread.conversation))
    }

    /// The thread of the same session in which an answer was given.
    pub(super) fn answerer(&self, answer: Chain, caller: &Caller) -> Result<Option<Thread>, StoreError> {
        self.newest_answerer(answer, |thread| thread.session == caller.session)
    }

    /// What is not remembered may be stored; of a name that several threads go on under, the newest counts.
    fn newest_answerer(
        &self,
        answer: Chain,
        is_meant: impl Fn(&Thread) -> bool,
    ) -> Result<Option<Thread>, StoreError> {
        let ids = match self.memory.answered_in(answer.0) {
            Some(id) => vec![id],
            None => self.store.boundaries(&[answer])?.into_iter().map(|row| row.thread).collect(),
        };
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.known(&id)?.map(|known| known.thread).filter(&is_meant));
        }
        Ok(found.into_iter().max_by_key(|thread| thread.at_ms))
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

/// The first of these histories, if it is one that the provider keeps. What has no name is nobody's.
pub(super) fn named(root: Chain, chains: &[Chain]) -> Option<Chain> {
    let first = *chains.first()?;
    (first != root && first.0 != kept(root, "")).then_some(first)
}
