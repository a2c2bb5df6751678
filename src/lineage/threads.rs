//! Which of the threads that sent a history goes on with a request, and which thread begins with it.

use super::memory::Known;
use super::{Lineage, Relation, Sender};
use crate::conversation::{Chain, Conversation, PartId};
use crate::store::{StoreError, Thread};

/// How long after anything of a conversation was sent its first words begin another, where no client says what is one: a
/// job that runs every night asks in the same words. Longer than clients go on trying, and than providers keep a prompt.
const RESTS_MS: i64 = 3_600_000;

/// How much of a request is known.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) conversation: &'a Conversation,
    /// The first so many messages were sent before.
    pub(super) sent: usize,
    /// The messages up to the model's last answer.
    pub(super) answered: usize,
    /// Those that were sent went in another form than they came.
    pub(super) is_edited: bool,
}

impl Found<'_> {
    /// Where words stood in a thread's newest request, within a message, that this request leaves out to go on from there.
    pub(super) fn left_out(self, known: &Known, chains: &[Chain]) -> Option<PartId> {
        known.last_words.as_ref()?.left_out_of(self.conversation, chains, self.answered)
    }

    /// Whether a thread that was set aside has had these messages taken in the form that they were sent in: its refused edit
    /// came behind them. Where they went as they came, leaving them alone changes nothing of them.
    fn was_taken_by(self, thread: &Thread, chains: &[Chain]) -> bool {
        let is_before = |since| !chains[..=self.sent].contains(&since);
        self.is_edited && thread.observe && thread.refused.is_some_and(is_before)
    }
}

impl Lineage {
    /// The thread that a request belongs to, of those that sent its first `sent` messages: one of its own session
    /// before any other, and one that ended there before one that went on. What goes on from the middle of a thread, or
    /// in another session, begins one. So do the first words of one that has rested, in a conversation of its own; and what
    /// goes back before the refused edit of one that was set aside: that goes on in the form that was taken.
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
            // That the provider refused an edit of the run before says nothing of this one.
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

    /// A thread that begins with this request: booked with its session, else with the thread it branched from,
    /// else on its own.
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
        // The label may be anyone's: only a history of its own is set aside with its thread.
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
