//! The newest histories, remembered above the store.
//!
//! What was in force when a request left never changes afterwards, so what is known of a history is true as long as it
//! is kept, whatever another gateway does on the same store, until the store has done with it. Where a thread stands is
//! not: it is looked up again where the store knows of a longer history.

use std::sync::Arc;

use crate::conversation::{Chain, Digest, Hashed};
use crate::planner::{Applied, Expected, Fate, Findings, Splice, Standing, Wager};
use crate::store::{Recent, Thread};

use super::ends::LastWords;

/// A thread as its newest request left it.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) thread: Thread,
    /// Histories that its newest request was the first to send, behind the model's last answer: it goes on from one
    /// of them, if the client takes its last words out again.
    pub(super) stems: Arc<[Chain]>,
    /// Words that it may take out of its newest request's last message.
    pub(super) last_words: Option<Arc<LastWords>>,
    /// From which history on an event of its newest request holds, in messages.
    pub(super) event: usize,
}

/// The threads that have sent a history, of many the newest [`SENDERS`].
pub(super) type Senders = Arc<[String]>;

#[derive(Clone)]
struct Sent {
    threads: Senders,
    decided: Decided,
}

/// What was in force for a history.
#[derive(Debug, Clone, Default)]
pub(super) struct Decided {
    pub(super) applied: Arc<[Applied]>,
    pub(super) splice: Option<Arc<Splice>>,
}

/// What the plan of a request left, and the history that it ended with.
pub(super) type Left = (Chain, Box<Standing>);

/// Threads that are remembered, and answers that tell one.
const THREADS: u64 = 4096;
/// Histories of which a few bytes are remembered.
const HISTORIES: u64 = 4 * THREADS;
/// Threads that are remembered to have sent one history; the store knows the others.
pub(super) const SENDERS: usize = 16;
/// What an entry takes besides what it decides, in bytes.
const OVERHEAD: usize = 256;

/// A bounded memory of histories and threads.
pub struct Memory {
    sent: Recent<Chain, Sent, Hashed>,
    threads: Recent<String, Known>,
    /// Those that were set aside, and since which history. They stay so, also where a request goes on that had found one
    /// before.
    aside: Recent<String, Option<Chain>>,
    /// Which thread an answer was given in.
    answers: Recent<Digest, String, Hashed>,
    standings: Recent<Chain, Left, Hashed>,
    /// What has become of the last request of a history.
    fates: Recent<Chain, Fate, Hashed>,
    /// When the last request of a history left, and before it the last one of its thread that the provider may have read.
    left: Recent<Chain, (i64, i64), Hashed>,
    /// When threads said what they rely on.
    noted: Recent<String, i64>,
    /// Messages of a history that were sent to a model that binds what it thinks.
    bound: Recent<Chain, usize, Hashed>,
    /// First stakes of a sender's threads that are not won, and made up for by none that is, by cache.
    wagers: Recent<Chain, u32, Hashed>,
    /// What the last request of a history is to read of a cache.
    expected: Recent<Chain, Expected, Hashed>,
    /// What has become of that, by cache.
    findings: Recent<Chain, Findings, Hashed>,
}

impl Memory {
    /// Remembers decisions of about `bytes` in all, and half as much of where threads stand: one that fills a large window
    /// takes some hundred KiB, and one that is forgotten is folded anew.
    pub fn new(bytes: u64) -> Self {
        Self {
            sent: Recent::of_weight(bytes, Sent::weight),
            threads: Recent::of_entries(THREADS),
            aside: Recent::of_entries(THREADS),
            answers: Recent::of_entries(THREADS),
            standings: Recent::of_weight(bytes / 2, |(_, standing)| standing.weight() + OVERHEAD),
            fates: Recent::of_entries(THREADS),
            left: Recent::of_entries(THREADS),
            noted: Recent::of_entries(THREADS),
            bound: Recent::of_entries(HISTORIES),
            wagers: Recent::of_entries(THREADS),
            expected: Recent::of_entries(THREADS),
            findings: Recent::of_entries(THREADS),
        }
    }

    pub(super) fn remember(&self, chain: Chain, known: Known, decided: Decided) {
        self.remember_history(chain, &known.thread.id, decided);
        self.know(known);
    }

    /// A thread as it is now.
    pub(super) fn know(&self, known: Known) {
        if known.thread.observe {
            self.aside.insert(known.thread.id.clone(), known.thread.refused);
        }
        self.threads.insert(known.thread.id.clone(), known);
    }

    /// Of requests of one history that left at the same time, the one that decided most is the one that is stored.
    pub(super) fn remember_history(&self, chain: Chain, thread: &String, mut decided: Decided) {
        let mut threads = Senders::default();
        if let Some(known) = self.sent.get(&chain) {
            threads = known.threads;
            if known.decided.decides_more_than(&decided) {
                decided = known.decided;
            }
        }
        if !threads.contains(thread) {
            let newest = threads.len().saturating_sub(SENDERS - 1)..;
            threads = threads[newest].iter().chain([thread]).cloned().collect();
        }
        self.sent.insert(chain, Sent { threads, decided });
    }

    /// Drops what a longer history of the same thread replaces. The store still has it.
    pub(super) fn forget(&self, chain: Chain) {
        self.sent.remove(&chain);
    }

    pub(super) fn threads(&self, chain: Chain) -> Option<Senders> {
        self.sent.get(&chain).map(|sent| sent.threads)
    }

    pub(super) fn decided(&self, chain: Chain) -> Option<Decided> {
        self.sent.get(&chain).map(|sent| sent.decided)
    }

    pub(super) fn answered(&self, answer: Digest, thread: String) {
        self.answers.insert(answer, thread);
    }

    pub(super) fn answered_in(&self, answer: Digest) -> Option<String> {
        self.answers.get(&answer)
    }

    pub(super) fn keep_standing(&self, chain: Chain, left: Left) {
        self.standings.insert(chain, left);
    }

    /// Hands out what the last request of a history left. It goes on with the next one only.
    pub(super) fn take_standing(&self, chain: Chain) -> Option<Left> {
        self.standings.remove(&chain)
    }

    /// A request with this history is about to leave; or has ended, and this has become of it.
    pub(super) fn end(&self, chain: Chain, fate: Fate) {
        self.fates.insert(chain, fate);
    }

    pub(super) fn fate(&self, chain: Chain) -> Fate {
        self.fates.get(&chain).unwrap_or(Fate::Unknown)
    }

    /// A request with this history leaves; the one before it that may have been read left then.
    pub(super) fn leave(&self, chain: Chain, at_ms: i64, before_ms: i64) {
        self.left.insert(chain, (at_ms, before_ms));
    }

    /// When the newest request of a thread left that the provider may have read. Where it is not remembered what has become
    /// of the newest of all, that is it.
    pub(super) fn last_read_ms(&self, thread: &Thread) -> i64 {
        let left = self.left.get(&thread.head).filter(|(at_ms, _)| *at_ms == thread.at_ms);
        let refused = left.filter(|_| self.fate(thread.head) == Fate::Refused);
        refused.map_or(thread.at_ms, |(_, before_ms)| before_ms)
    }

    /// What has become of the first stake of a thread of a sender's. A short talk that is gone on with once wins back what
    /// some two others have lost.
    pub(super) fn wager(&self, cache: Chain, wager: Wager) {
        let lost = self.wagers(cache);
        let lost = match wager {
            Wager::Placed => lost.saturating_add(1),
            Wager::Won => lost.saturating_sub(2),
        };
        self.wagers.insert(cache, lost);
    }

    /// What the request of this name is to read.
    pub(super) fn expect(&self, asks: Chain, expected: Expected) {
        self.expected.insert(asks, expected);
    }

    pub(super) fn take_expected(&self, asks: Chain) -> Option<Expected> {
        self.expected.remove(&asks)
    }

    pub(super) fn find(&self, cache: Chain, findings: Findings) {
        self.findings.insert(cache, findings);
    }

    pub(super) fn findings(&self, cache: Chain) -> Findings {
        self.findings.get(&cache).unwrap_or_default()
    }

    /// So many messages of a history were sent to a model that binds what it thinks; once they were, they stay so.
    pub(super) fn bind(&self, chain: Chain, messages: usize) {
        self.bound.insert(chain, messages.max(self.bound(chain)));
    }

    pub(super) fn bound(&self, chain: Chain) -> usize {
        self.bound.get(&chain).unwrap_or_default()
    }

    pub(super) fn wagers(&self, cache: Chain) -> u32 {
        self.wagers.get(&cache).unwrap_or_default()
    }

    pub(super) fn note(&self, thread: &str, now_ms: i64) {
        self.noted.insert(thread.to_owned(), now_ms);
    }

    pub(super) fn noted(&self, thread: &str) -> Option<i64> {
        self.noted.get(thread)
    }

    pub(super) fn thread(&self, id: &str) -> Option<Known> {
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

impl Known {
    /// A thread of which no more is known: what is decided anew about its newest request holds from the end of that on.
    pub(super) fn of(thread: Thread) -> Self {
        Self { thread, stems: Arc::default(), last_words: None, event: usize::MAX }
    }
}

impl Decided {
    /// What is in force for the first so many messages of a history, and more than its splice takes.
    pub(super) fn within(&self, messages: usize) -> Self {
        let within = |applied: &&Applied| (applied.part.message as usize) < messages;
        Self { applied: self.applied.iter().filter(within).cloned().collect(), splice: self.splice.clone() }
    }

    fn decides_more_than(&self, other: &Self) -> bool {
        let ends = [self, other].map(|decided| decided.splice.as_ref().map(|splice| splice.end()));
        ends[0] > ends[1] || (ends[0] == ends[1] && self.applied.len() > other.applied.len())
    }
}
