//! The newest histories and threads, remembered above the store.
//!
//! What was in force for a history when its request left never changes afterwards, whatever another gateway does on the
//! same store. So what is remembered of a history is true until the store removes it. The head of a thread does change:
//! the thread is looked up again if the store knows a longer history.

use std::sync::Arc;

use crate::conversation::{Chain, Hashed};
use crate::planner::{Applied, Debt, Expected, Fate, Findings, Splice, Staked, Standing};
use crate::store::{Recent, Thread};

use super::ends::LastWords;
use super::uses::NotedUses;

/// A thread as its newest request left it.
#[derive(Clone)]
pub(super) struct KnownThread {
    pub(super) thread: Thread,
    /// Shorter histories that its newest request was the first to send, after the model's last answer. The thread
    /// continues from one of them if the client takes its last words out again.
    pub(super) stems: Arc<[Chain]>,
    /// The words that the client may take out of the last message of its newest request.
    pub(super) last_words: Option<Arc<LastWords>>,
    /// The length in messages of the shortest history to which an event of its newest request applies.
    pub(super) event: usize,
}

/// The ids of the threads that have sent a history; of many, the newest [`SENDERS_PER_HISTORY`].
pub(super) type Senders = Arc<[String]>;

/// What is remembered of a history that was sent.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) threads: Senders,
    pub(super) decided: Decided,
}

/// What was in force for a history.
#[derive(Debug, Clone, Default)]
pub(super) struct Decided {
    pub(super) applied: Arc<[Applied]>,
    pub(super) splice: Option<Arc<Splice>>,
}

/// What the plan of a request left for the next one.
#[derive(Clone)]
pub(super) struct LeftStanding {
    /// The history that the request ended with.
    pub(super) head: Chain,
    pub(super) standing: Box<Standing>,
}

/// When the newest request of a history left, in milliseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub(super) at_ms: i64,
    /// When, before it, the last request of its thread left that the provider may have read.
    pub(super) last_read_ms: i64,
}

/// What is known of the cache that an upstream keeps for a sender and a model.
#[derive(Clone, Copy, Default)]
pub(super) struct CacheRecord {
    /// What the sender's threads have lost by marking their histories.
    pub(super) debt: Debt,
    /// What was found of what requests should have read.
    pub(super) findings: Findings,
}

/// Identifies a request. The same history may be sent to several caches at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RequestKey {
    /// The history that the request ends with.
    pub(super) head: Chain,
    /// The cache that it is sent to.
    pub(super) cache: Chain,
}

/// The most entries of the caches of threads and answers.
const THREADS: u64 = 4096;
/// The most entries of a cache of histories that takes a few bytes for each.
const HISTORIES: u64 = 4 * THREADS;
/// The most threads that are remembered to have sent one history; the store knows the others.
pub(super) const SENDERS_PER_HISTORY: usize = 16;
/// The memory that an entry takes besides its decisions, in bytes.
const OVERHEAD: usize = 256;

/// A bounded memory of histories and threads.
pub struct Memory {
    pub(super) sent: Recent<Chain, Sent, Hashed>,
    threads: Recent<String, KnownThread>,
    /// The threads that were set aside, each with the shortest history that was refused, if known. They stay so, even
    /// if a request that found its thread before that updates it afterwards.
    aside: Recent<String, Option<Chain>>,
    /// The thread in which an answer was given.
    pub(super) answers: Recent<Chain, String, Hashed>,
    /// What the last request of a history left. It is handed out once: only one request continues with it.
    pub(super) standings: Recent<Chain, LeftStanding, Hashed>,
    /// What became of the last request of a history; [`Fate::Unknown`] when it is about to leave.
    pub(super) fates: Recent<Chain, Fate, Hashed>,
    pub(super) departures: Recent<Chain, Departure, Hashed>,
    /// When a thread last recorded what it relies on.
    pub(super) noted: NotedUses,
    /// How many messages of a history were sent to a model that binds its reasoning.
    bound: Recent<Chain, usize, Hashed>,
    /// Whether threads, or those that they branched off from, had tools.
    pub(super) had_tools: Recent<String, bool>,
    pub(super) caches: Recent<Chain, CacheRecord, Hashed>,
    /// What requests that have not ended do to a debt.
    staked: Recent<RequestKey, Staked, Hashed>,
    /// What the last request of a history should read from a cache.
    pub(super) expected: Recent<RequestKey, Expected, Hashed>,
}

impl Memory {
    /// A memory of about `bytes` of decisions, and half as much of standings. The standing of a thread that fills a
    /// large window takes some hundred KiB; one that is forgotten is computed anew.
    pub fn new(bytes: u64) -> Self {
        Self {
            sent: Recent::of_weight(bytes, Sent::weight),
            threads: Recent::of_entries(THREADS),
            aside: Recent::of_entries(THREADS),
            answers: Recent::of_entries(THREADS),
            standings: Recent::of_weight(bytes / 2, |left| left.standing.weight() + OVERHEAD),
            fates: Recent::of_entries(THREADS),
            departures: Recent::of_entries(THREADS),
            noted: NotedUses::default(),
            bound: Recent::of_entries(HISTORIES),
            had_tools: Recent::of_entries(THREADS),
            caches: Recent::of_entries(THREADS),
            staked: Recent::of_entries(THREADS),
            expected: Recent::of_entries(THREADS),
        }
    }

    /// Remembers a thread, and what was in force for the history of its newest request.
    pub(super) fn remember(&self, chain: Chain, known: KnownThread, decided: Decided) {
        self.remember_history(chain, &known.thread.id, decided);
        self.keep_thread(known);
    }

    /// Remembers a thread as it is now.
    pub(super) fn keep_thread(&self, known: KnownThread) {
        if known.thread.observe {
            self.aside.insert(known.thread.id.clone(), known.thread.refused);
        }
        self.threads.insert(known.thread.id.clone(), known);
    }

    /// Remembers that a thread sent a history, and what was in force for it. If several requests with this history left
    /// at the same time, the one that decided most is the one whose decisions are stored, and these are kept.
    pub(super) fn remember_history(&self, chain: Chain, thread: &String, mut decided: Decided) {
        let mut threads = Senders::default();
        if let Some(known) = self.sent.get(&chain) {
            threads = known.threads;
            if known.decided.decides_more_than(&decided) {
                decided = known.decided;
            }
        }
        if !threads.contains(thread) {
            let newest = threads.len().saturating_sub(SENDERS_PER_HISTORY - 1)..;
            threads = threads[newest].iter().chain([thread]).cloned().collect();
        }
        self.sent.insert(chain, Sent { threads, decided });
    }

    pub(super) fn fate(&self, chain: Chain) -> Fate {
        self.fates.get(&chain).unwrap_or(Fate::Unknown)
    }

    /// When the newest request of a thread left that the provider may have read, in milliseconds since 1970. That is
    /// its newest request, unless this is known to have been refused.
    pub(super) fn last_read_ms(&self, thread: &Thread) -> i64 {
        match self.departures.get(&thread.head) {
            Some(left) if left.at_ms == thread.at_ms && self.fate(thread.head) == Fate::Refused => {
                left.last_read_ms
            }
            _ => thread.at_ms,
        }
    }

    /// Counts what a request that leaves may lose. A copy of it that has not ended, which is billed as well, counts as
    /// if it read nothing.
    pub(super) fn stake(&self, request: RequestKey, staked: Option<Staked>) {
        self.settle(request, Debt::unread);
        if let Some(staked) = staked {
            self.caches.update(&request.cache, |known| known.debt = known.debt.left(&staked));
            self.staked.insert(request, staked);
        }
    }

    /// Counts what has become of the stake of a request.
    pub(super) fn settle(&self, request: RequestKey, settled: fn(Debt, &Staked) -> Debt) {
        if let Some(staked) = self.staked.remove(&request) {
            self.caches.update(&request.cache, |known| known.debt = settled(known.debt, &staked));
        }
    }

    /// What `read` makes of what is known of a cache, which is large.
    pub(super) fn of_cache<T: Default>(&self, cache: Chain, read: impl FnOnce(&CacheRecord) -> T) -> T {
        self.caches.read(&cache, read).unwrap_or_default()
    }

    /// Remembers that the first `messages` messages of a history were sent to a model that binds its reasoning. A
    /// smaller number does not replace a greater one.
    pub(super) fn bind(&self, chain: Chain, messages: usize) {
        self.bound.insert(chain, messages.max(self.bound(chain)));
    }

    pub(super) fn bound(&self, chain: Chain) -> usize {
        self.bound.get(&chain).unwrap_or_default()
    }

    pub(super) fn thread(&self, id: &str) -> Option<KnownThread> {
        let mut known = self.threads.get(id)?;
        if let Some(refused) = self.aside.get(id) {
            (known.thread.observe, known.thread.refused) = (true, refused);
        }
        Some(known)
    }
}

impl Sent {
    fn weight(&self) -> usize {
        let texts: usize = self.decided.applied.iter().map(|applied| applied.decision.weight()).sum();
        texts + self.decided.splice.as_ref().map_or(0, |splice| splice.weight()) + OVERHEAD
    }
}

impl KnownThread {
    /// A thread of which no more is known. What is decided anew about its newest request applies from the end of that
    /// request on.
    pub(super) fn of(thread: Thread) -> Self {
        Self { thread, stems: Arc::default(), last_words: None, event: usize::MAX }
    }
}

impl Decided {
    /// What is in force for the first `messages` messages of a history, which must include those that the splice
    /// replaces.
    pub(super) fn within(&self, messages: usize) -> Self {
        let within = |applied: &&Applied| (applied.part.message as usize) < messages;
        Self { applied: self.applied.iter().filter(within).cloned().collect(), splice: self.splice.clone() }
    }

    /// Whether this has the longer splice, or the same one and more decisions.
    fn decides_more_than(&self, other: &Self) -> bool {
        let ends = [self, other].map(|decided| decided.splice.as_ref().map(|splice| splice.end()));
        ends[0] > ends[1] || (ends[0] == ends[1] && self.applied.len() > other.applied.len())
    }
}
