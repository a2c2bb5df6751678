//! Which thread a request continues, and what was decided in it.
//!
//! A request re-sends its whole history, so every earlier request of its thread is one of its prefixes. The longest
//! prefix that was sent before, alone or within a longer request, says what is old. The client's own session id only
//! labels threads; it is never trusted to mean that two histories are the same.

mod client;
mod ends;
mod kept;
mod memory;
mod outlook;
mod overlaid;
mod relation;
mod threads;
mod uses;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::conversation::{Chain, Conversation, PartId, Role};
use crate::planner::{self, Applied, Decision, Ending, Fate, PartKey, Splice, Standing};
use crate::store::{Batch, Boundary, Store, StoreError, StoredDecision, StoredSplice, Thread};

pub use client::{Caller, caller, principal};
pub use memory::Memory;
pub use outlook::cache;
pub use relation::Relation;
pub use uses::NOTED_EVERY;

use ends::{LastWords, answered, chains, ends, first_end, may_end};
use kept::{kept, named};
use memory::{Decided, Known, Senders};
use threads::Found;

/// Messages that a client may put at the end of a request and take out of the next, for it to be the same thread.
const MOST_LAST_WORDS: usize = 4;

/// Where a request belongs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The empty history of its sender.
    pub root: Chain,
    /// What names the cache that the provider keeps for its sender.
    pub cache: Chain,
    /// Its thread, with the head it had before this request.
    pub thread: Thread,
    /// How it relates to it.
    pub relation: Relation,
    /// The first so many messages were sent before.
    pub sent: usize,
    /// Where words stood in the request that it goes on from, within a message, that it leaves out.
    pub left_out: Option<PartId>,
    /// The histories up to each message, the empty one first.
    pub chains: Vec<Chain>,
    /// The messages up to the model's last answer; 0 if there is none.
    pub answered: usize,
    /// The messages of the shortest history that was not sent before this request was sent first, and that a request
    /// may end with: an event of it holds from there on, and whoever goes back before it is sent what was sent before.
    /// The request's end is not what counts, as clients leave the last words out of the next one; but where it is not
    /// known how it was sent first, that is it.
    pub event: usize,
    /// The histories that its thread has not sent before, as far as a request may end with them.
    pub ends: Vec<Chain>,
    /// The decisions in force for what was sent.
    pub applied: Arc<[Applied]>,
    /// The splice in force.
    pub splice: Option<Arc<Splice>>,
}

impl Place {
    /// The history of the whole request.
    pub fn head(&self) -> Chain {
        self.chains.last().copied().unwrap_or(self.thread.head)
    }

    /// Whether the history was sent in another form than it came.
    pub fn is_edited(&self) -> bool {
        !self.applied.is_empty() || self.splice.is_some()
    }

    /// What has become of the end of the request that this one goes on from.
    pub fn ending(&self) -> Ending {
        match self.relation {
            Relation::Fork => Ending::Branches,
            Relation::Continue if self.thread.head != self.chains[self.sent] => {
                Ending::LeftOut(self.left_out.unwrap_or_else(|| behind(self.sent)))
            }
            Relation::New | Relation::Continue | Relation::Retry => Ending::Stands,
        }
    }

    /// The history of the request that this one goes on from, with what this one has left out of its end.
    fn goes_on_from(&self) -> Chain {
        if matches!(self.ending(), Ending::LeftOut(_)) { self.thread.head } else { self.chains[self.sent] }
    }

    /// How many messages the histories have that an event of this request would hold for, behind the model's last
    /// answer, with more words behind them.
    fn stems(&self) -> Range<usize> {
        let end = self.chains.len() - 1;
        self.event.max(self.answered + 1).max(end.saturating_sub(MOST_LAST_WORDS))..end
    }

    /// The history from which on what this request decides about the first so many messages holds.
    fn since(&self, messages: usize) -> Chain {
        self.chains[self.event.max(messages)]
    }

    /// How many messages the shortest history has that an event of this request holds for, all of it: its splice, and what
    /// is left out of turns that are over there.
    fn event_holds_from(
        &self,
        conversation: &Conversation,
        applied: &[Applied],
        splice: Option<&Splice>,
    ) -> usize {
        let spliced = splice.map_or(0, |splice| self.splice_holds_from(conversation, splice));
        let over = match planner::reasoning_is_over_in(conversation, applied) {
            0 => 0,
            messages => first_end(conversation, messages),
        };
        spliced.max(over)
    }

    /// How many messages the shortest history has that this request was the first to send and a splice holds for. What
    /// it takes must be neither in the step in progress nor the newest words of the user, there and in all that goes on
    /// from there.
    fn splice_holds_from(&self, conversation: &Conversation, splice: &Splice) -> usize {
        let (messages, may_end) = (&conversation.messages, may_end(conversation));
        let all = messages.len();
        let first = self.event.max(splice.end()).min(all);
        let mut answered = answered(&messages[..first]);
        let mut newest = messages[..first].iter().rposition(|message| message.index.starts_turn());
        for (count, message) in messages.iter().enumerate().skip(first) {
            if answered >= splice.end()
                && !newest.is_some_and(|newest| splice.drops(newest))
                && may_end(count)
            {
                return count;
            }
            if message.index.role == Role::Assistant {
                answered = count + 1;
            }
            if message.index.starts_turn() {
                newest = Some(count);
            }
        }
        all
    }
}

/// The first part behind so many messages.
const fn behind(messages: usize) -> PartId {
    PartId { message: messages as u32, part: 0 }
}

/// Who sends a request, and when.
struct Sender<'a> {
    /// The empty history of theirs.
    root: Chain,
    /// Where what they write is kept.
    cache: Chain,
    caller: &'a Caller,
    /// Makes an id for a new thread.
    new_id: &'a dyn Fn() -> String,
    now_ms: i64,
}

/// Finds the places of requests.
pub struct Lineage {
    store: Arc<dyn Store>,
    memory: Memory,
}

impl Lineage {
    /// A lineage over a store.
    pub fn new(store: Arc<dyn Store>, memory: Memory) -> Self {
        Self { store, memory }
    }

    /// The place of a request whose sender has this empty history and this [`cache`]. `new_id` makes an id for a new thread;
    /// `now_ms` is the clock's reading.
    ///
    /// # Errors
    /// When the store cannot be read; the request then passes through.
    pub fn place(
        &self,
        conversation: &Conversation,
        (root, cache): (Chain, Chain),
        caller: &Caller,
        new_id: &dyn Fn() -> String,
        now_ms: i64,
    ) -> Result<Place, StoreError> {
        let sender = Sender { root, cache, caller, new_id, now_ms };
        let kept = conversation.continues.as_deref().map(|previous| Chain(kept(root, previous)));
        let chains = chains(conversation, kept.unwrap_or(root));
        match self.longest_sent(&chains, now_ms)? {
            None => self.place_of_unknown(conversation, chains, &sender),
            Some((sent, threads)) => self.place_of_known(conversation, chains, sent, &threads, &sender),
        }
    }

    /// The place of a request of which nothing was sent before, or only what the provider keeps.
    fn place_of_unknown(
        &self,
        conversation: &Conversation,
        chains: Vec<Chain>,
        sender: &Sender<'_>,
    ) -> Result<Place, StoreError> {
        let kept = named(sender.root, &chains);
        let answerer = kept.map(|kept| self.answerer(kept, sender.caller)).transpose()?.flatten();
        let (thread, relation) = match answerer {
            Some(thread) => (thread, Relation::Continue),
            None => (self.thread_behind(conversation, sender)?, Relation::New),
        };
        Ok(Place {
            root: sender.root,
            cache: sender.cache,
            thread,
            relation,
            sent: 0,
            left_out: None,
            answered: answered(&conversation.messages),
            event: first_end(conversation, 1),
            ends: ends(conversation, &chains, 0),
            chains,
            applied: Arc::default(),
            splice: None,
        })
    }

    /// The place of a request of which the first `sent` messages were sent before, in one of these threads.
    fn place_of_known(
        &self,
        conversation: &Conversation,
        chains: Vec<Chain>,
        sent: usize,
        threads: &[String],
        sender: &Sender<'_>,
    ) -> Result<Place, StoreError> {
        let Decided { applied, splice } = self.decided(conversation, &chains, sent)?;
        let answered = answered(&conversation.messages);
        let is_edited = !applied.is_empty() || splice.is_some();
        let found = Found { conversation, sent, answered, is_edited };
        let (known, relation) = self.thread_of(threads, &chains, found, sender)?;
        let is_again = relation == Relation::Retry && known.thread.head == chains[sent];
        let event = if is_again { known.event } else { first_end(conversation, sent + 1) };
        // What a thread shares with the one that it branches from is its own when that is gone.
        let own = if matches!(relation, Relation::New | Relation::Fork) { 0 } else { sent };
        Ok(Place {
            root: sender.root,
            cache: sender.cache,
            left_out: found.left_out(&known, &chains),
            thread: known.thread,
            relation,
            sent,
            answered,
            event: event.min(chains.len() - 1),
            ends: ends(conversation, &chains, own),
            chains,
            applied,
            splice,
        })
    }

    /// What was decided about results that stand in an unknown history. Where the store cannot say, they are decided anew:
    /// nothing was sent in this order before, so that no prefix breaks.
    pub fn known_decisions(&self, root: Chain, keys: &[PartKey]) -> Vec<Option<Arc<Decision>>> {
        let stored = self.store.known_decisions(root, keys).unwrap_or_default();
        stored.into_iter().map(|stored| Some(stored?.decision)).collect()
    }

    /// What the plan of the history's last request left for this one.
    pub fn standing(&self, place: &Place) -> Option<Box<Standing>> {
        let from = place.goes_on_from();
        let (head, mut standing) = self.memory.take_standing(from)?;
        if let Ending::LeftOut(part) = place.ending() {
            standing = Box::new(standing.departed(part));
        }
        // What another thread left here is not what was answered.
        let is_answered = head == from && place.answered > place.sent;
        standing.ended(match self.memory.fate(head) {
            Fate::Unknown if is_answered => Fate::Billed,
            fate => fate,
        });
        Some(standing)
    }

    /// How many of the history's messages were sent to a model that binds what it thinks to what stands before it; 0 if none
    /// is remembered.
    pub fn bound(&self, place: &Place) -> usize {
        self.memory.bound(place.goes_on_from()).min(place.sent)
    }

    /// What goes on from here knows the same, and that this request, if it `binds`, is to such a model.
    pub fn bind(&self, place: &Place, binds: bool) {
        let messages = if binds { place.chains.len() - 1 } else { self.bound(place) };
        if messages > 0 {
            self.memory.bind(place.head(), messages);
        }
    }

    /// Keeps what a plan leaves for the next request, and for the next one that branches where this one did.
    pub fn keep_standing(&self, place: &Place, mut standing: Box<Standing>) {
        let head = place.head();
        // Whoever tries again stakes nothing that has not been.
        if let Some(wager) = standing.take_wager().filter(|_| place.relation != Relation::Retry) {
            self.memory.wager(place.cache, wager);
        }
        self.expect(place, standing.expected());
        let departed = (place.ending() == Ending::Branches).then(|| standing.departed(behind(place.sent)));
        self.memory.end(head, Fate::Unknown);
        self.memory.keep_standing(head, (head, standing));
        if let Some(departed) = departed {
            self.memory.keep_standing(place.chains[place.sent], (head, Box::new(departed)));
        }
    }

    /// What to store for a request that is about to leave with `applied`, of which the last `fresh` are new.
    pub fn batch(&self, place: &Place, applied: &[Applied], fresh: usize, now_ms: i64) -> Batch {
        let (root, head) = (place.root, place.head());
        let decisions = applied[applied.len() - fresh..].iter().map(|applied| {
            let message = applied.part.message as usize;
            let chain = place.chains[message + 1];
            // What was sent before without it is sent so again by whoever goes back there.
            let since = place.since(message + 1);
            let decision = Arc::clone(&applied.decision);
            StoredDecision { chain, part: applied.part.part, since, root, decision }
        });
        let boundary = |chain: &Chain| Boundary { chain: *chain, thread: place.thread.id.clone() };
        Batch {
            decisions: decisions.collect(),
            threads: vec![Thread { head, at_ms: now_ms, ..place.thread.clone() }],
            boundaries: place.ends.iter().chain([&head]).chain(&place.kept()).map(boundary).collect(),
            used: self.used(place, now_ms),
            at_ms: now_ms,
            ..Batch::default()
        }
    }

    /// Has a batch store what an event does, with `fresh` what it decides: its splice under exactly what that replaces, and
    /// what it changes of what was sent before from where all of it holds.
    pub fn event_in(
        &self,
        batch: &mut Batch,
        conversation: &Conversation,
        place: &Place,
        fresh: &[Applied],
        splice: Option<&Arc<Splice>>,
    ) {
        let from = place.event_holds_from(conversation, fresh, splice.map(|splice| &**splice));
        let Some(since) = place.chains.get(from).copied() else { return };
        let sent = &place.chains[1..=place.sent];
        for stored in &mut batch.decisions {
            let is_event = stored.decision.is_omission() || sent.contains(&stored.chain);
            if is_event && !place.chains[from..].contains(&stored.since) {
                stored.since = since;
            }
        }
        if let Some(splice) = splice
            && let Some(chain) = place.chains.get(splice.end())
        {
            let splice = Arc::clone(splice);
            batch.splices.push(StoredSplice { chain: *chain, since, root: place.root, splice });
        }
    }

    /// Remembers that a request left, with all the decisions and the splice in force.
    pub fn sent(
        &self,
        conversation: &Conversation,
        place: &Place,
        applied: Arc<[Applied]>,
        splice: Option<Arc<Splice>>,
        now_ms: i64,
    ) {
        let thread = Thread { head: place.head(), at_ms: now_ms, ..place.thread.clone() };
        self.continued(place);
        self.memory.leave(place.head(), now_ms, self.last_read_ms(place));
        if place.relation == Relation::Continue {
            self.memory.forget(place.thread.head);
        }
        if self.used(place, now_ms).is_some() {
            self.memory.note(&thread.id, now_ms);
        }
        let from = place.event_holds_from(conversation, &applied, splice.as_deref());
        let decided = Decided { applied, splice };
        let stems: Arc<[Chain]> = place.stems().map(|messages| place.chains[messages]).collect();
        // What is in force before an event holds, the store knows.
        for messages in place.stems().filter(|messages| from <= *messages) {
            self.memory.remember_history(place.chains[messages], &thread.id, decided.within(messages));
        }
        let last_words = LastWords::of(conversation, &place.chains).map(Arc::new);
        self.memory.remember(place.head(), Known { thread, stems, last_words, event: place.event }, decided);
    }

    /// From now on nothing of this thread is edited; `false` when only this gateway knows, until it ends.
    #[must_use]
    pub fn set_aside(&self, place: &Place, now_ms: i64) -> bool {
        let (head, refused) = (place.head(), Some(place.since(0)));
        let thread = Thread { head, at_ms: now_ms, observe: true, refused, ..place.thread.clone() };
        self.memory.know(Known::of(thread.clone()));
        self.store.later(Batch { threads: vec![thread], at_ms: now_ms, ..Batch::default() })
    }

    fn known(&self, id: &str) -> Result<Option<Known>, StoreError> {
        if let Some(known) = self.memory.thread(id) {
            return Ok(Some(known));
        }
        Ok(self.store.thread(id)?.map(Known::of))
    }

    /// The longest history that was sent before, by itself or as the beginning of a longer one, and the threads
    /// that sent it. What comes behind it need not be the model's: an answer may have failed or been
    /// interrupted.
    fn longest_sent(&self, chains: &[Chain], now_ms: i64) -> Result<Option<(usize, Senders)>, StoreError> {
        let mut remembered =
            (1..chains.len()).rev().find_map(|sent| Some((sent, self.memory.threads(chains[sent])?)));
        if let Some((_, threads)) = &remembered
            && !self.are_kept(threads, now_ms)?
        {
            self.forget(chains);
            remembered = None;
        }
        let first = remembered.as_ref().map_or(1, |(sent, _)| sent + 1);
        let longer: Vec<Chain> = chains[first..].iter().rev().copied().collect();
        let stored = if longer.is_empty() { Vec::new() } else { self.store.boundaries(&longer)? };
        let Some(longest) = stored.first().map(|row| row.chain) else { return Ok(remembered) };
        let sent = chains.iter().rposition(|chain| *chain == longest).ok_or(StoreError::Damaged)?;
        let threads: Senders = stored.into_iter().map(|row| row.thread).collect();
        for id in threads.iter() {
            self.catch_up(id)?;
        }
        Ok(Some((sent, threads)))
    }

    /// Another gateway on the same store may have gone on with a thread: what it sent last counts.
    fn catch_up(&self, id: &str) -> Result<(), StoreError> {
        let Some(known) = self.memory.thread(id) else { return Ok(()) };
        let stored = self.store.thread(id)?;
        if let Some(newer) = stored.filter(|stored| stored.at_ms > known.thread.at_ms) {
            self.memory.know(Known::of(newer));
        }
        Ok(())
    }

    /// The decisions in force for the first `sent` messages. Of several about one part, the newest that took
    /// effect within this history holds.
    fn decided(
        &self,
        conversation: &Conversation,
        chains: &[Chain],
        sent: usize,
    ) -> Result<Decided, StoreError> {
        if let Some(known) = self.memory.decided(chains[sent]) {
            return Ok(known);
        }
        let places: HashMap<Chain, usize> =
            chains[..=sent].iter().enumerate().map(|(at, chain)| (*chain, at)).collect();
        // What is decided about the instructions is stored with the first message, what a conversation begins with
        // with words of the user's.
        let messages = conversation.messages.iter();
        let head = messages.take_while(|message| message.index.role != Role::Assistant).count();
        let is_decided =
            |at: &usize| *at < head.max(1) || conversation.messages[*at].index.is_decided_about();
        let asked: Vec<Chain> = (0..sent).filter(is_decided).map(|message| chains[message + 1]).collect();
        let mut newest: BTreeMap<PartId, (usize, StoredDecision)> = BTreeMap::new();
        for stored in self.store.decisions(&asked)? {
            let (Some(end), Some(since)) = (places.get(&stored.chain), places.get(&stored.since)) else {
                continue;
            };
            let part = PartId { message: *end as u32 - 1, part: stored.part };
            if newest.get(&part).is_none_or(|(other, _)| other < since) {
                newest.insert(part, (*since, stored));
            }
        }
        let newest = newest.into_iter();
        let applied: Vec<Applied> =
            newest.map(|(part, (_, stored))| Applied { part, decision: stored.decision }).collect();
        Ok(Decided { applied: applied.into(), splice: self.splice(&chains[..=sent], &places)? })
    }

    /// Of the splices that took effect within this history, the one that replaces most of it, the newest of these.
    fn splice(
        &self,
        chains: &[Chain],
        places: &HashMap<Chain, usize>,
    ) -> Result<Option<Arc<Splice>>, StoreError> {
        let stored = self.store.splices(chains)?.into_iter();
        let held = stored.filter_map(|stored| {
            let (end, since) = (*places.get(&stored.chain)?, *places.get(&stored.since)?);
            (end == stored.splice.end()).then_some((end, since, stored.splice))
        });
        Ok(held.max_by_key(|(end, since, _)| (*end, *since)).map(|(.., splice)| splice))
    }
}

#[cfg(test)]
mod tests;
