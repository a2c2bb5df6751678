//! Chooses the thread that continues with a request among those that sent its history, or begins a new one.

use super::memory::Known;
use super::{Lineage, Relation, Sender};
use crate::conversation::{Chain, Conversation, PartId};
use crate::store::{StoreError, Thread};

/// How long after the last sign of a conversation the same first words begin a new one, for clients without session
/// ids: a nightly job asks in the same words each time. Longer than clients retry, and than providers keep a prompt
/// cached.
const RESTS_MS: i64 = 3_600_000;

/// What is known of a request.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) conversation: &'a Conversation,
    /// The number of messages that were sent before.
    pub(super) sent: usize,
    /// The number of messages up to the model's last answer.
    pub(super) answered: usize,
    /// Whether these were sent in another form than they came.
    pub(super) is_edited: bool,
}

impl Found<'_> {
    /// Where a thread's newest request had words, within a message, that this request must have omitted to continue
    /// from there.
    pub(super) fn left_out(self, known: &Known, chains: &[Chain]) -> Option<PartId> {
        known.last_words.as_ref()?.left_out_of(self.conversation, chains, self.answered)
    }

    /// Whether a thread that was set aside had these messages accepted in the form they were sent in, because its
    /// refused edit came after them. If they were sent as they came, leaving them alone changes nothing.
    fn was_taken_by(self, thread: &Thread, chains: &[Chain]) -> bool {
        let is_before = |since| !chains[..=self.sent].contains(&since);
        self.is_edited && thread.observe && thread.refused.is_some_and(is_before)
    }
}

impl Lineage {
    /// The thread of a request, among those that sent its first `sent` messages: preferably one of its own session,
    /// and preferably one that ended there. A request that continues from the middle of a thread, or in another
    /// session, begins a new thread. So do first words after a rest, which also begin a new conversation, and a
    /// request that returns to a point before the refused edit of a thread set aside: it continues in the form that
    /// was accepted.
    pub(super) fn thread_of(
        &self,
        threads: &[String],
        chains: &[Chain],
        found: Found<'_>,
        sender: &Sender<'_>,
    ) -> Result<(Known, Relation), StoreError> {
        let Found { sent, answered, .. } = found;
        let mut candidates = Vec::new();
        for id in threads {
            candidates.extend(self.known(id)?);
        }
        let ends_here = |known: &Known| known.thread.head == chains[sent];
        let goes_on = |known: &Known| {
            ends_here(known) || known.stems.contains(&chains[sent]) || found.left_out(known, chains).is_some()
        };
        candidates.sort_by_key(|known| {
            let same_session = known.thread.session == sender.caller.session;
            (same_session, ends_here(known), goes_on(known), known.thread.at_ms)
        });
        let Some(best) = candidates.pop() else {
            let thread = self.new_thread(None, sender)?;
            return Ok((Known::of(thread), Relation::New));
        };
        let same_session = best.thread.session == sender.caller.session;
        let newest_ms = candidates.iter().map(|known| known.thread.at_ms).fold(best.thread.at_ms, i64::max);
        let is_new_run =
            answered == 0 && best.thread.session.is_none() && sender.now_ms - newest_ms >= RESTS_MS;
        let is_again = same_session && sent + 1 == chains.len();
        if is_again && is_new_run {
            let thread = self.new_thread(Some(best.thread), sender)?;
            // That the provider refused an edit in an earlier run says nothing about this one.
            let conversation = thread.id.clone();
            let thread = Thread { conversation, observe: false, refused: None, ..thread };
            return Ok((Known::of(thread), Relation::Fork));
        }
        if found.was_taken_by(&best.thread, chains) {
            let thread = self.new_thread(Some(best.thread), sender)?;
            let thread = Thread { observe: false, refused: None, ..thread };
            return Ok((Known::of(thread), Relation::Fork));
        }
        if is_again {
            return Ok((best, Relation::Retry));
        }
        if same_session && goes_on(&best) {
            return Ok((best, Relation::Continue));
        }
        let thread = self.new_thread(Some(best.thread), sender)?;
        Ok((Known::of(thread), Relation::Fork))
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
        // A session id may be anyone's: only the thread's own history is set aside with it.
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
