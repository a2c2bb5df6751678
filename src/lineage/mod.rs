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
mod relation;
mod threads;
mod uses;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::conversation::{Chain, Conversation, Message, PartId, Role};
use crate::planner::{self, Applied, Decision, Ending, Fate, PartKey, Splice, Standing};
use crate::store::{Batch, Boundary, Store, StoreError, StoredDecision, StoredSplice, Thread};

pub use client::{Caller, caller, principal};
pub use memory::Memory;
pub use outlook::cache;
pub use relation::Relation;
pub use uses::{NOTED_EVERY, NotedUses};

use ends::{LastWords, chains, ends, first_end, may_end};
use kept::held_key;
use memory::{Decided, Departure, KnownThread, LeftStanding};
use threads::Found;

/// How many messages a client may add at the end of a request and omit from the next one, within the same thread.
const MOST_LAST_WORDS: usize = 4;

/// Where a request belongs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The empty history of its sender.
    pub root: Chain,
    /// Identifies the provider's cache for its sender.
    pub cache: Chain,
    /// Its thread, with the head it had before this request.
    pub thread: Thread,
    /// How it relates to it.
    pub relation: Relation,
    /// The number of messages that were sent before.
    pub sent: usize,
    /// The part from which on this request omits words that the previous one had at the end of a message.
    pub left_out: Option<PartId>,
    /// The histories up to each message, the empty one first.
    pub chains: Vec<Chain>,
    /// The number of messages up to the model's last answer; 0 if there is none.
    pub answered: usize,
    /// The length of the shortest history that was first sent with this request and that a request may end with. An
    /// event applies from there on: a request that returns to an earlier point gets what was sent before. It is not the
    /// length of the whole request, since clients omit last words from the next one; except in a retry if it is no
    /// longer known how the request was first sent.
    pub event: usize,
    /// The histories that its thread has not sent before and that a request may end with.
    pub ends: Vec<Chain>,
    /// The decisions that apply to what was sent.
    pub applied: Arc<[Applied]>,
    /// The splice that applies.
    pub splice: Option<Arc<Splice>>,
}

impl Place {
    /// The history of the whole request.
    pub fn head(&self) -> Chain {
        self.chains.last().copied().unwrap_or(self.thread.head)
    }

    /// Its thread, and the one that this branched from.
    pub fn threads(&self) -> impl DoubleEndedIterator<Item = &String> {
        std::iter::once(&self.thread.id).chain(&self.thread.parent)
    }

    /// Whether the messages that were sent before were sent in another form than they came.
    pub fn is_edited(&self) -> bool {
        !self.applied.is_empty() || self.splice.is_some()
    }

    /// What became of the end of the previous request.
    pub fn ending(&self) -> Ending {
        match self.relation {
            Relation::Fork => Ending::Branches,
            Relation::Continue if self.thread.head != self.chains[self.sent] => {
                Ending::LeftOut(self.left_out.unwrap_or_else(|| first_part_behind(self.sent)))
            }
            Relation::New | Relation::Continue | Relation::Retry => Ending::Stands,
        }
    }

    /// The history that this request continues, including what it omits from the end.
    fn goes_on_from(&self) -> Chain {
        if matches!(self.ending(), Ending::LeftOut(_)) { self.thread.head } else { self.chains[self.sent] }
    }

    /// The lengths of the shorter histories from which the thread continues if the client takes its last words out
    /// again: they end after the model's last answer, and an event of this request would apply to them.
    fn stems(&self) -> Range<usize> {
        let end = self.chains.len() - 1;
        self.event.max(self.answered + 1).max(end.saturating_sub(MOST_LAST_WORDS))..end
    }

    /// The shortest history to which this request's decisions about its first `messages` messages apply.
    fn since(&self, messages: usize) -> Chain {
        self.chains[self.event.max(messages)]
    }

    /// The length of the shortest history to which all of an event of this request applies: its splice applies to that
    /// history, and the turns whose reasoning it leaves out are over there.
    fn event_holds_from(
        &self,
        conversation: &Conversation,
        applied: &[Applied],
        splice: Option<&Splice>,
    ) -> usize {
        let spliced = splice.map_or(0, |splice| self.splice_holds_from(conversation, splice));
        let turns_over = match planner::reasoning_is_over_in(conversation, applied) {
            0 => 0,
            messages => first_end(conversation, messages),
        };
        spliced.max(turns_over)
    }

    /// The length of the shortest history first sent with this request to which a splice applies. There and in all
    /// continuations, what the splice drops must be neither in the step in progress nor the newest words of the user.
    fn splice_holds_from(&self, conversation: &Conversation, splice: &Splice) -> usize {
        let (messages, may_end) = (&conversation.messages, may_end(conversation));
        let all = messages.len();
        let first = self.event.max(splice.end()).min(all);
        let is_answer = |message: &Message| message.index.role == Role::Assistant;
        let mut answered = messages[..first].iter().rposition(is_answer).map_or(0, |last| last + 1);
        let mut newest = messages[..first].iter().rposition(|message| message.index.starts_turn());
        for (count, message) in messages.iter().enumerate().skip(first) {
            if answered >= splice.end()
                && !newest.is_some_and(|newest| splice.drops(newest))
                && may_end(count)
            {
                return count;
            }
            if is_answer(message) {
                answered = count + 1;
            }
            if message.index.starts_turn() {
                newest = Some(count);
            }
        }
        all
    }
}

/// The first part after this many messages.
const fn first_part_behind(messages: usize) -> PartId {
    PartId { message: messages as u32, part: 0 }
}

/// The sender of a request, and the time.
struct Sender<'a> {
    /// The sender's empty history.
    root: Chain,
    caller: &'a Caller,
    /// Makes an id for a new thread.
    new_id: &'a dyn Fn() -> String,
    now_ms: i64,
}

/// Finds the place of each request.
pub struct Lineage {
    store: Arc<dyn Store>,
    memory: Memory,
}

impl Lineage {
    /// A lineage over a store.
    pub fn new(store: Arc<dyn Store>, memory: Memory) -> Self {
        Self { store, memory }
    }

    /// The place of a request, given its sender's empty history and [`cache`]. `new_id` makes an id for a new thread;
    /// `now_ms` is the current time in milliseconds since 1970.
    ///
    /// # Errors
    /// If the store cannot be read; the request then passes through.
    pub fn place(
        &self,
        conversation: &Conversation,
        (root, cache): (Chain, Chain),
        caller: &Caller,
        new_id: &dyn Fn() -> String,
        now_ms: i64,
    ) -> Result<Place, StoreError> {
        let sender = Sender { root, caller, new_id, now_ms };
        let held = conversation.continues.as_deref().map(|previous| held_key(root, previous));
        let chains = chains(conversation, held.unwrap_or(root));
        let longest = self.longest_sent(&chains, caller, now_ms)?;
        let sent = longest.as_ref().map_or(0, |(sent, _)| *sent);
        let Decided { applied, splice } = self.decided(conversation, &chains, sent)?;
        let answered = conversation.tail();
        let is_edited = !applied.is_empty() || splice.is_some();
        let found = Found { conversation, sent, answered, is_edited };
        let (known, relation) = match longest {
            Some((_, threads)) => self.thread_of(&threads, &chains, found, &sender)?,
            None => self.thread_of_unsent(conversation, &chains, &sender)?,
        };
        let is_newest_again = relation == Relation::Retry && known.thread.head == chains[sent];
        let event = if is_newest_again { known.event } else { first_end(conversation, sent + 1) };
        // A thread that branches stores the histories that it shares with its parent too: the parent may be removed
        // first.
        let sent_by_thread = if matches!(relation, Relation::New | Relation::Fork) { 0 } else { sent };
        Ok(Place {
            root,
            cache,
            left_out: found.left_out(&known, &chains),
            thread: known.thread,
            relation,
            sent,
            answered,
            event: event.min(chains.len() - 1),
            ends: ends(conversation, &chains, sent_by_thread),
            chains,
            applied,
            splice,
        })
    }

    /// Decisions that were made about these results in other histories. If the store cannot be read there are none, and
    /// the results are decided about anew: nothing was sent in this order before, so no prefix is broken.
    pub fn known_decisions(&self, root: Chain, keys: &[PartKey]) -> Vec<Option<Arc<Decision>>> {
        let stored = self.store.known_decisions(root, keys).unwrap_or_default();
        stored.into_iter().map(|stored| Some(stored?.decision)).collect()
    }

    /// Takes what the plan of the previous request left for this one.
    pub fn standing(&self, place: &Place) -> Option<Box<Standing>> {
        let from = place.goes_on_from();
        let LeftStanding { head, mut standing } = self.memory.standings.remove(&from)?;
        if let Ending::LeftOut(part) = place.ending() {
            standing = Box::new(standing.departed(part));
        }
        // If a request that branched from here left it, that request is not the one that was answered.
        let is_answered = head == from && place.answered > place.sent;
        standing.ended(match self.memory.fate(head) {
            Fate::Unknown if is_answered => Fate::Billed,
            fate => fate,
        });
        Some(standing)
    }

    /// How many of the history's messages were sent to a model that binds its reasoning; 0 if none are remembered.
    pub fn bound(&self, place: &Place) -> usize {
        self.memory.bound(place.goes_on_from()).min(place.sent)
    }

    /// Remembers how many messages of this request were sent to such a model: all if its own model `binds`, else as
    /// many as before.
    pub fn bind(&self, place: &Place, binds: bool) {
        let messages = if binds { place.chains.len() - 1 } else { self.bound(place) };
        if messages > 0 {
            self.memory.bind(place.head(), messages);
        }
    }

    /// Whether earlier requests of the thread, or of the one that it branched from, had tools. If nothing is remembered
    /// of them, as after a restart, it is assumed.
    pub fn had_tools(&self, place: &Place) -> bool {
        let mut known = place.threads().filter_map(|thread| self.memory.had_tools.get(thread.as_str()));
        match known.next() {
            Some(had_tools) => had_tools || known.any(|had_tools| had_tools),
            None => place.relation != Relation::New,
        }
    }

    /// Remembers whether this request, or one before it, has tools.
    pub fn note_tools(&self, place: &Place, has_tools: bool) {
        let thread = &place.thread.id;
        let known = self.memory.had_tools.get(thread.as_str());
        if known.is_none_or(|had_tools| has_tools && !had_tools) {
            self.memory.had_tools.insert(thread.clone(), has_tools || self.had_tools(place));
        }
    }

    /// Keeps what a plan leaves for the next request, and for the next one that branches at the same point.
    pub fn keep_standing(&self, place: &Place, mut standing: Box<Standing>) {
        let head = place.head();
        let staked = standing.take_staked();
        self.memory.stake(place.request_key(), staked);
        self.expect(place, standing.expected());
        let departed =
            (place.ending() == Ending::Branches).then(|| standing.departed(first_part_behind(place.sent)));
        self.memory.fates.insert(head, Fate::Unknown);
        self.memory.standings.insert(head, LeftStanding { head, standing });
        if let Some(departed) = departed {
            let left = LeftStanding { head, standing: Box::new(departed) };
            self.memory.standings.insert(place.chains[place.sent], left);
        }
    }

    /// What to store for a request that is about to leave with the decisions `applied`, of which the last `fresh` are
    /// new.
    pub fn batch(&self, place: &Place, applied: &[Applied], fresh: usize, now_ms: i64) -> Batch {
        let (root, head) = (place.root, place.head());
        let decisions = applied[applied.len() - fresh..].iter().map(|applied| {
            let message = applied.part.message as usize;
            let chain = place.chains[message + 1];
            // A history that was sent without this decision is sent without it again.
            let since = place.since(message + 1);
            let decision = Arc::clone(&applied.decision);
            StoredDecision { chain, part: applied.part.part, since, root, decision }
        });
        let boundary = |chain: &Chain| Boundary { chain: *chain, thread: place.thread.id.clone() };
        Batch {
            decisions: decisions.collect(),
            threads: vec![Thread { head, at_ms: now_ms, ..place.thread.clone() }],
            boundaries: place.ends.iter().chain([&head]).chain(&place.held()).map(boundary).collect(),
            used: self.due_use(place, now_ms),
            at_ms: now_ms,
            ..Batch::default()
        }
    }

    /// Adds an event, whose decisions are `fresh`, to a batch. Its splice is stored under exactly the history that it
    /// replaces. Its changes to what was sent before apply from the shortest history on to which all of the event
    /// applies.
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

    /// Remembers that a request left, with all decisions and the splice that applied to it.
    pub fn sent(
        &self,
        conversation: &Conversation,
        place: &Place,
        applied: Arc<[Applied]>,
        splice: Option<Arc<Splice>>,
        now_ms: i64,
    ) {
        let thread = Thread { head: place.head(), at_ms: now_ms, ..place.thread.clone() };
        self.remember_held(place);
        let departure = Departure { at_ms: now_ms, last_read_ms: self.last_read_ms(place) };
        self.memory.departures.insert(place.head(), departure);
        if place.relation == Relation::Continue {
            // A longer history replaces it. The store still has it.
            self.memory.sent.remove(&place.thread.head);
        }
        if self.due_use(place, now_ms).is_some() {
            self.memory.noted.note(&thread.id, now_ms);
        }
        let from = place.event_holds_from(conversation, &applied, splice.as_deref());
        let decided = Decided { applied, splice };
        let stems: Arc<[Chain]> = place.stems().map(|messages| place.chains[messages]).collect();
        // What applies to shorter histories than the event is in the store.
        for messages in place.stems().filter(|messages| from <= *messages) {
            self.memory.remember_history(place.chains[messages], &thread.id, decided.within(messages));
        }
        let last_words = LastWords::of(conversation, &place.chains).map(Arc::new);
        self.memory.remember(
            place.head(),
            KnownThread { thread, stems, last_words, event: place.event },
            decided,
        );
    }

    /// Stops all editing of this thread. Returns `false` if that cannot be stored: then only this gateway knows of it,
    /// as long as it runs.
    #[must_use]
    pub fn set_aside(&self, place: &Place, now_ms: i64) -> bool {
        let (head, refused) = (place.head(), Some(place.since(0)));
        let thread = Thread { head, at_ms: now_ms, observe: true, refused, ..place.thread.clone() };
        self.memory.keep_thread(KnownThread::of(thread.clone()));
        self.store.later(Batch { threads: vec![thread], at_ms: now_ms, ..Batch::default() })
    }

    fn known(&self, id: &str) -> Result<Option<KnownThread>, StoreError> {
        if let Some(known) = self.memory.thread(id) {
            return Ok(Some(known));
        }
        Ok(self.store.thread(id)?.map(KnownThread::of))
    }

    /// A place that another lineage has found, with the decisions that are in force by this one's memory and store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn decided_at(&self, conversation: &Conversation, place: &Place) -> Result<Place, StoreError> {
        let Decided { applied, splice } = self.decided(conversation, &place.chains, place.sent)?;
        Ok(Place { applied, splice, ..place.clone() })
    }

    /// The decisions and the splice that apply to the first `sent` messages. Of several decisions about one part, the
    /// newest that took effect within this history applies.
    fn decided(
        &self,
        conversation: &Conversation,
        chains: &[Chain],
        sent: usize,
    ) -> Result<Decided, StoreError> {
        if sent == 0 {
            return Ok(Decided::default());
        }
        if let Some(known) = self.memory.sent.read(&chains[sent], |sent| sent.decided.clone()) {
            return Ok(known);
        }
        let lengths: HashMap<Chain, usize> =
            chains[..=sent].iter().enumerate().map(|(length, chain)| (*chain, length)).collect();
        // Only messages that may have been decided about are looked up. Decisions about instructions are stored with
        // the first message, those about a conversation's opening with a message of the user.
        let messages = conversation.messages.iter();
        let opening = messages.take_while(|message| message.index.role != Role::Assistant).count().max(1);
        let may_be_decided =
            |at: &usize| *at < opening || conversation.messages[*at].index.is_decided_about();
        let asked: Vec<Chain> = (0..sent).filter(may_be_decided).map(|message| chains[message + 1]).collect();
        let mut newest: BTreeMap<PartId, (usize, StoredDecision)> = BTreeMap::new();
        for stored in self.store.decisions(&asked)? {
            let (Some(end), Some(since)) = (lengths.get(&stored.chain), lengths.get(&stored.since)) else {
                // It took effect in another continuation of the message's history.
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
        Ok(Decided { applied: applied.into(), splice: self.splice(&chains[..=sent], &lengths)? })
    }

    /// The splice that applies: of those that took effect within this history, the one that replaces most of it, and of
    /// several such ones the newest.
    fn splice(
        &self,
        chains: &[Chain],
        lengths: &HashMap<Chain, usize>,
    ) -> Result<Option<Arc<Splice>>, StoreError> {
        let stored = self.store.splices(chains)?.into_iter();
        let held = stored.filter_map(|stored| {
            let (end, since) = (*lengths.get(&stored.chain)?, *lengths.get(&stored.since)?);
            (end == stored.splice.end()).then_some((end, since, stored.splice))
        });
        Ok(held.max_by_key(|(end, since, _)| (*end, *since)).map(|(.., splice)| splice))
    }
}

#[cfg(test)]
mod tests;
