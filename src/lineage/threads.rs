//! Finds the threads that sent a request's history, and chooses the one that continues with it, or begins a new one.

use std::sync::Arc;

use super::memory::{KnownThread, SENDERS_PER_HISTORY, Senders};
use super::{Caller, Lineage, Relation, Sender};
use crate::conversation::{Chain, Conversation, PartId};
use crate::store::{StoreError, Thread};

/// How long a conversation of a client without session ids must be idle, in milliseconds, until the same first words
/// begin a new one: a nightly job uses the same words each time. This is longer than clients retry, and than providers
/// keep a prompt in their cache.
const NEW_RUN_AFTER_MS: i64 = 3_600_000;

/// What is known of a request when its thread is chosen.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) conversation: &'a Conversation,
    /// The number of messages that were sent before.
    pub(super) sent: usize,
    /// The number of messages up to the model's last answer.
    pub(super) answered: usize,
    /// Whether the messages that were sent before were sent in another form than they came.
    pub(super) is_edited: bool,
}

impl Found<'_> {
    /// The part from which on this request omits words that the thread's newest request had at the end of a message;
    /// `None` if it does not continue from that request in this way.
    pub(super) fn left_out(self, known: &KnownThread, chains: &[Chain]) -> Option<PartId> {
        known.last_words.as_ref()?.left_out_of(self.conversation, chains, self.answered)
    }

    /// Whether these messages of a thread that was set aside were accepted in the edited form they were sent in,
    /// because the refused edit came after them. If they were sent as they came, it makes no difference that the thread
    /// was set aside.
    fn was_accepted_in(self, thread: &Thread, chains: &[Chain]) -> bool {
        let is_before = |since| !chains[..=self.sent].contains(&since);
        self.is_edited && thread.observe && thread.refused.is_some_and(is_before)
    }
}

impl Lineage {
    /// The number of messages in the longest prefix that was sent before, alone or within a longer history, and the
    /// threads that sent it; `None` if nothing was. Of many threads, these are the newest, and those of the caller's
    /// session that were in use last. The prefix need not be followed by an answer of the model, which may have failed
    /// or been interrupted.
    pub(super) fn longest_sent(
        &self,
        chains: &[Chain],
        caller: &Caller,
        now_ms: i64,
    ) -> Result<Option<(usize, Vec<String>)>, StoreError> {
        let remembered = self.longest_remembered(chains, now_ms)?;
        let first = match &remembered {
            None => 1,
            // If the list is full, a thread of the session may have been left out: the store is asked for it.
            Some((sent, threads)) if threads.len() >= SENDERS_PER_HISTORY => *sent,
            Some((sent, _)) => sent + 1,
        };
        let asked: Vec<Chain> = chains[first..].iter().rev().copied().collect();
        let session = caller.session.as_deref();
        let stored = if asked.is_empty() { Vec::new() } else { self.store.boundaries(&asked, session)? };
        let sent = match (stored.first(), &remembered) {
            (Some((longest, _)), _) => {
                chains.iter().rposition(|chain| *chain == longest.chain).ok_or(StoreError::Damaged)?
            }
            (None, Some((sent, _))) => *sent,
            (None, None) => return Ok(None),
        };
        let mut threads = Vec::new();
        for (boundary, thread) in stored {
            if let Some(thread) = thread {
                self.catch_up(thread);
            }
            threads.push(boundary.thread);
        }
        for id in remembered.iter().filter(|(at, _)| *at == sent).flat_map(|(_, threads)| threads.iter()) {
            if !threads.contains(id) {
                threads.push(id.clone());
            }
        }
        Ok(Some((sent, threads)))
    }

    /// The number of messages in the longest prefix that is remembered, and the threads that sent it. If the store no
    /// longer keeps what was decided about it, the histories of the request are forgotten, and this is `None`.
    fn longest_remembered(
        &self,
        chains: &[Chain],
        now_ms: i64,
    ) -> Result<Option<(usize, Senders)>, StoreError> {
        let senders = |sent: usize| self.memory.sent.read(&chains[sent], |known| Arc::clone(&known.threads));
        let found = (1..chains.len()).rev().find_map(|sent| Some((sent, senders(sent)?)));
        let Some((sent, threads)) = found else { return Ok(None) };
        if self.are_kept(&threads, now_ms)? {
            return Ok(Some((sent, threads)));
        }
        self.forget(chains);
        Ok(None)
    }

    /// Remembers a stored thread that another gateway on the same store has continued or set aside. A later time alone
    /// does not say so: the store keeps the latest time, and the clock may have been set back since.
    fn catch_up(&self, stored: Thread) {
        let Some(KnownThread { thread: known, .. }) = self.memory.thread(&stored.id) else { return };
        let differs = (stored.head, stored.observe) != (known.head, known.observe);
        if stored.at_ms > known.at_ms && differs {
            self.memory.keep_thread(KnownThread::of(stored));
        }
    }

    /// Chooses the thread of a request among those that sent its first `sent` messages: preferably one of its own
    /// session, and of these preferably one that ended there. A new thread begins if the request
    ///
    /// - continues from the middle of a thread, or in another session;
    /// - repeats first words after a rest, which also begins a new conversation;
    /// - returns to a point before the refused edit of a thread that was set aside: then it continues in the form that
    ///   was accepted.
    pub(super) fn thread_of(
        &self,
        threads: &[String],
        chains: &[Chain],
        found: Found<'_>,
        sender: &Sender<'_>,
    ) -> Result<(KnownThread, Relation), StoreError> {
        let Found { sent, answered, .. } = found;
        // A thread that the store has removed since its decisions were read is left out.
        let mut candidates = Vec::new();
        for id in threads {
            candidates.extend(self.known(id)?);
        }
        let ends_here = |known: &KnownThread| known.thread.head == chains[sent];
        let may_continue = |known: &KnownThread| {
            ends_here(known) || known.stems.contains(&chains[sent]) || found.left_out(known, chains).is_some()
        };
        candidates.sort_by_key(|known| {
            let same_session = known.thread.session == sender.caller.session;
            (same_session, ends_here(known), may_continue(known), known.thread.at_ms)
        });
        let Some(best) = candidates.pop() else {
            let thread = self.new_thread(None, sender)?;
            return Ok((KnownThread::of(thread), Relation::New));
        };
        let same_session = best.thread.session == sender.caller.session;
        let newest_ms = candidates.iter().map(|known| known.thread.at_ms).fold(best.thread.at_ms, i64::max);
        let is_new_run =
            answered == 0 && best.thread.session.is_none() && sender.now_ms - newest_ms >= NEW_RUN_AFTER_MS;
        let is_retry = same_session && sent + 1 == chains.len();
        let begins_anew = is_retry && is_new_run;
        // That the provider refused an edit in an earlier run says nothing about this one.
        let is_accepted = begins_anew || found.was_accepted_in(&best.thread, chains);
        if is_retry && !is_accepted {
            return Ok((best, Relation::Retry));
        }
        if same_session && !is_accepted && may_continue(&best) {
            return Ok((best, Relation::Continue));
        }
        let mut thread = self.new_thread(Some(best.thread), sender)?;
        if begins_anew {
            thread.conversation.clone_from(&thread.id);
        }
        if is_accepted {
            (thread.observe, thread.refused) = (false, None);
        }
        Ok((KnownThread::of(thread), Relation::Fork))
    }

    /// A new thread, booked with its session, else with the thread it branched from, else on its own.
    pub(super) fn new_thread(
        &self,
        parent: Option<Thread>,
        sender: &Sender<'_>,
    ) -> Result<Thread, StoreError> {
        let session = &sender.caller.session;
        let sibling = match session {
            Some(session) => self.store.session(session)?,
            None => None,
        };
        let id = (sender.new_id)();
        // Only a parent that was found by its history passes on that it was set aside. A session id may be anyone's.
        let aside = parent.as_ref().filter(|parent| parent.observe);
        let (observe, refused) = (aside.is_some(), aside.and_then(|parent| parent.refused));
        let parent = parent.or(sibling);
        let conversation = match (session, &parent) {
            (Some(session), _) => session.clone(),
            (None, Some(parent)) => parent.conversation.clone(),
            (None, None) => id.clone(),
        };
        Ok(Thread {
            id,
            conversation,
            session: session.clone(),
            observe,
            refused,
            parent: parent.map(|parent| parent.id),
            head: sender.root,
            at_ms: sender.now_ms,
        })
    }
}
