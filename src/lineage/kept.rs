//! Histories that the provider holds. A request continues from one by an id, without repeating it: the id of an answer,
//! or of the history itself.

use super::memory::KnownThread;
use super::{Caller, Lineage, Place, Relation, Sender};
use crate::conversation::{Chain, Conversation, Digest};
use crate::store::{Batch, Boundary, StoreError, Thread};

impl Place {
    /// The key of the history that the provider holds before the body's own messages; `None` if there is none.
    pub(super) fn held(&self) -> Option<Chain> {
        held_history(self.root, &self.chains)
    }
}

impl Lineage {
    /// Remembers the thread in which the provider gave an answer: a request may continue from the answer without
    /// repeating the history. The caller should store the result if the provider holds the answer, since another
    /// gateway may get that request.
    pub fn answered(&self, root: Chain, thread: &str, answer: &str) -> Boundary {
        let chain = held_key(root, answer);
        self.memory.answers.insert(chain, thread.to_owned());
        Boundary { chain, thread: thread.to_owned() }
    }

    /// Does the same for the provider's seals on a summary of the history. A client may send these in place of the
    /// history.
    pub fn summed_up(&self, root: Chain, thread: &str, seals: &[u128]) -> Vec<Boundary> {
        seals.iter().map(|seal| self.answered(root, thread, &seal_name(*seal))).collect()
    }

    /// Remembers the thread that continues the history which the provider holds for this request. That also covers a
    /// provider's conversation: it has one id for all its requests, which is not the id of an answer.
    pub(super) fn remember_held(&self, place: &Place) {
        if let Some(held) = place.held() {
            self.memory.answers.insert(held, place.thread.id.clone());
        }
    }

    /// The thread of a request of which nothing was sent before, or only what the provider holds.
    pub(super) fn thread_of_unsent(
        &self,
        conversation: &Conversation,
        chains: &[Chain],
        sender: &Sender<'_>,
    ) -> Result<(KnownThread, Relation), StoreError> {
        if let Some(held) = held_history(sender.root, chains)
            && let Some(thread) = self.thread_of_answer(held, sender.caller)?
        {
            return Ok((KnownThread::of(thread), Relation::Continue));
        }
        Ok((KnownThread::of(self.new_thread_by_seal(conversation, sender)?), Relation::New))
    }

    /// A new thread. If the request holds a seal of a known thread, that one becomes its parent.
    fn new_thread_by_seal(
        &self,
        conversation: &Conversation,
        sender: &Sender<'_>,
    ) -> Result<Thread, StoreError> {
        let mut parent = None;
        for seal in &conversation.seals {
            let key = held_key(sender.root, &seal_name(*seal));
            parent = parent.or(self.thread_of_answer(key, sender.caller)?);
        }
        // A refused edit of the parent is not in the summary.
        self.new_thread(parent.map(|parent| Thread { observe: false, refused: None, ..parent }), sender)
    }

    /// The thread in which the answer `name` was given, or that continues the history with this id, if it is of the
    /// same session. Otherwise a new thread, and a batch that stores it. `new_id` makes its id; `now_ms` is the current
    /// time in milliseconds since 1970.
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
        if let Some(thread) = self.thread_of_answer(held_key(root, name), caller)? {
            return Ok((thread, None));
        }
        let thread = self.new_thread(None, &Sender { root, caller, new_id, now_ms })?;
        self.memory.keep_thread(KnownThread::of(thread.clone()));
        let boundaries = vec![self.answered(root, &thread.id, name)];
        let batch = Batch { threads: vec![thread.clone()], boundaries, at_ms: now_ms, ..Batch::default() };
        Ok((thread, Some(batch)))
    }

    /// The conversation in which an answer was given, whichever session asks for it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn conversation_of(&self, root: Chain, answer: &str) -> Result<Option<String>, StoreError> {
        let threads = self.threads_of_answer(held_key(root, answer), None)?;
        Ok(newest(threads).map(|thread| thread.conversation))
    }

    /// The thread of the same session in which an answer was given.
    fn thread_of_answer(&self, answer: Chain, caller: &Caller) -> Result<Option<Thread>, StoreError> {
        let mut threads = self.threads_of_answer(answer, caller.session.as_deref())?;
        threads.retain(|thread| thread.session == caller.session);
        Ok(newest(threads))
    }

    /// The threads that continue from an answer: the one that is remembered, else those in the store.
    fn threads_of_answer(&self, answer: Chain, session: Option<&str>) -> Result<Vec<Thread>, StoreError> {
        if let Some(id) = self.memory.answers.get(&answer) {
            return Ok(self.known(&id)?.map(|known| known.thread).into_iter().collect());
        }
        let stored = self.store.boundaries(&[answer], session)?.into_iter();
        let known = stored.filter_map(|(boundary, thread)| {
            self.memory.thread(&boundary.thread).map(|known| known.thread).or(thread)
        });
        Ok(known.collect())
    }
}

/// The thread that was in use last.
fn newest(threads: Vec<Thread>) -> Option<Thread> {
    threads.into_iter().max_by_key(|thread| thread.at_ms)
}

/// The name under which a seal is kept. It contains a space, which no answer's id does.
fn seal_name(seal: u128) -> String {
    format!("seal {seal:032x}")
}

/// The key of the history that the provider holds under a name.
pub(super) fn held_key(root: Chain, name: &str) -> Chain {
    Chain(Digest::of(&[b"kept\0", &root.0.0, name.as_bytes()]))
}

/// The first of these histories, if it is one that the provider holds under an id.
fn held_history(root: Chain, chains: &[Chain]) -> Option<Chain> {
    let first = *chains.first()?;
    (first != root && first != held_key(root, "")).then_some(first)
}
