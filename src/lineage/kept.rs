//! Histories that the provider holds, each found by the id that a request continues from: an answer's, or the
//! history's own.

use super::memory::Known;
use super::{Caller, Lineage, Place, Sender};
use crate::conversation::{Chain, Conversation, Digest};
use crate::store::{Batch, Boundary, StoreError, Thread};

impl Place {
    /// The key of the history in front of the body's own, if it has an id.
    pub(super) fn kept(&self) -> Option<Chain> {
        named(self.root, &self.chains)
    }
}

impl Lineage {
    /// Remembers in which thread the provider gave an answer: a request may continue from it without repeating the
    /// history. Store the result if the provider holds the answer, as any gateway may get that request.
    pub fn answered(&self, root: Chain, thread: &str, answer: &str) -> Boundary {
        let chain = Chain(kept(root, answer));
        self.memory.answered(chain.0, thread.to_owned());
        Boundary { chain, thread: thread.to_owned() }
    }

    /// The same for the provider's seals on a summary of the history, which a client may send in place of the
    /// history.
    pub fn summed_up(&self, root: Chain, thread: &str, seals: &[u128]) -> Vec<Boundary> {
        seals.iter().map(|seal| self.answered(root, thread, &seal_name(*seal))).collect()
    }

    /// Remembers in which thread a history is continued. A provider's conversation has one id for all its requests,
    /// which none of its answers has.
    pub(super) fn continued(&self, place: &Place) {
        if let Some(kept) = place.kept() {
            self.memory.answered(kept.0, place.thread.id.clone());
        }
    }

    /// A new thread, booked with the one that its history summarises if that is known.
    pub(super) fn thread_behind(
        &self,
        conversation: &Conversation,
        sender: &Sender<'_>,
    ) -> Result<Thread, StoreError> {
        let mut parent = None;
        for seal in &conversation.seals {
            parent = parent.or(self.answerer(Chain(kept(sender.root, &seal_name(*seal))), sender.caller)?);
        }
        // What was refused earlier is not in it.
        self.new_thread(parent.map(|parent| Thread { observe: false, refused: None, ..parent }), sender)
    }

    /// The thread in which an answer was given, or that continues under this id, if it is of the same session.
    /// Otherwise a new thread, and what to store of it. `new_id` makes its id; `now_ms` is the current time in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// If the store cannot be read.
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
    /// If the store cannot be read.
    pub fn conversation_of(&self, root: Chain, answer: &str) -> Result<Option<String>, StoreError> {
        let threads = self.answerers(Chain(kept(root, answer)), None)?;
        Ok(newest(threads).map(|thread| thread.conversation))
    }

    /// The thread of the same session in which an answer was given.
    pub(super) fn answerer(&self, answer: Chain, caller: &Caller) -> Result<Option<Thread>, StoreError> {
        let mut threads = self.answerers(answer, caller.session.as_deref())?;
        threads.retain(|thread| thread.session == caller.session);
        Ok(newest(threads))
    }

    /// The threads that continue under one id. What is not remembered may be stored.
    fn answerers(&self, answer: Chain, session: Option<&str>) -> Result<Vec<Thread>, StoreError> {
        if let Some(id) = self.memory.answered_in(answer.0) {
            return Ok(self.known(&id)?.map(|known| known.thread).into_iter().collect());
        }
        let stored = self.store.boundaries(&[answer], session)?.into_iter();
        let known = stored.filter_map(|(boundary, thread)| {
            self.memory.thread(&boundary.thread).map(|known| known.thread).or(thread)
        });
        Ok(known.collect())
    }
}

/// If several threads continue under one id, the newest counts.
fn newest(threads: Vec<Thread>) -> Option<Thread> {
    threads.into_iter().max_by_key(|thread| thread.at_ms)
}

/// The name that stands for a seal. It has a blank in it, which no answer's id has.
fn seal_name(seal: u128) -> String {
    format!("seal {seal:032x}")
}

/// The key of a history that the provider holds.
pub(super) fn kept(root: Chain, name: &str) -> Digest {
    Digest::of(&[b"kept\0", &root.0.0, name.as_bytes()])
}

/// The first of these histories, if the provider holds it under an id.
pub(super) fn named(root: Chain, chains: &[Chain]) -> Option<Chain> {
    let first = *chains.first()?;
    (first != root && first.0 != kept(root, "")).then_some(first)
}
