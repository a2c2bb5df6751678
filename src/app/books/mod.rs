//! The thread that completes the records: what a request would have cost untouched, what its prompt is made of.
//!
//! Nothing that a request waits for happens here. A request is handed over when it leaves and its record when
//! it has ended. The queue is bounded in number and in bytes; what does not fit is recorded without the figures
//! that are made here, and a failure in here costs these figures and nothing else.

mod awaited;
mod count;
mod instructions;
mod lacking;
mod measure;
mod sizes;
mod thoughts;
mod untouched;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::budget::Budget;
use super::tally::Tally;
use crate::conversation::{Chain, Conversation};
use crate::ledger::Record;
use crate::planner::{Applied, Splice};
use crate::protocol::{Answer, Protocol};
use crate::store::bodies::Form;
use crate::store::queue::{self, Inlet, Outlet};
use crate::store::{Batch, Bodies, Outage, Store, StoredLacking};
use crate::usage::{Catalogue, Usage, Vendor};

use awaited::{Awaited, Waiting};
use count::Counter;
use instructions::Instructions;
use measure::Measured;
use untouched::Untouched;

/// After this long without a request the tokenizer's memory is given back.
const REST: Duration = Duration::from_secs(60);
/// Bytes of requests that may wait at a time.
const WAITING: usize = 16 << 20;

/// A request as it was read.
pub(super) struct Reading {
    pub(super) protocol: &'static dyn Protocol,
    pub(super) conversation: Conversation,
    /// What it was rewritten to, if it was.
    pub(super) edited: Option<Conversation>,
    /// The decisions and the splice that it was rewritten by; the last so many are new with it.
    pub(super) applied: Arc<[Applied]>,
    pub(super) fresh: usize,
    pub(super) splice: Option<Arc<Splice>>,
    /// The empty history of whoever sends it: providers share no cache between accounts.
    pub(super) root: Chain,
    /// Messages that an earlier request carried.
    pub(super) prior: usize,
    /// What it would have been rewritten to; `None`: it was rewritten, or that is not known.
    pub(super) planned: Option<Planned>,
}

/// The form that an observing gateway would have sent.
pub(super) enum Planned {
    AsItCame,
    Edited(Box<Conversation>),
}

/// What a request is booked as.
pub(super) struct Name {
    /// The record's id.
    pub(super) id: String,
    pub(super) conversation: String,
}

/// Where what is found out about a request is put when that is done.
pub(super) type Slot = Arc<OnceLock<Measured>>;

/// A request that has ended.
pub(super) struct Ended {
    pub(super) record: Box<Record>,
    pub(super) at_ms: i64,
    pub(super) usage: Option<Usage>,
    pub(super) vendor: Option<Vendor>,
    /// Tokens that fit into the model's window, if its provider has said so.
    pub(super) window: Option<u64>,
    /// `None`: the request was not read, and so was sent as it came.
    pub(super) slot: Option<Slot>,
    /// The name of what it goes on from, if that is not in the body.
    pub(super) continues: Option<Box<str>>,
    /// What has that name grows with the request.
    pub(super) grows: bool,
    /// Reasoning blocks at the end that the provider has left out of the prompt, and so of its figures.
    pub(super) unbound: u32,
    /// It was answered before, and the gateway asked again.
    pub(super) asked_again: bool,
}

/// What was told of a request by the answer to a later one.
pub(super) struct Told {
    pub(super) upstream: String,
    /// The id of the answer that the request has begun.
    pub(super) id: String,
    /// The conversation that the request is booked on, if that is known.
    pub(super) conversation: Option<String>,
    /// It has ended.
    pub(super) answer: Answer,
    pub(super) vendor: Option<Vendor>,
}

/// What the thread works with.
pub(super) struct Means {
    pub(super) store: Arc<dyn Store>,
    pub(super) prices: Arc<Catalogue>,
    /// Where bodies are kept, if they are.
    pub(super) bodies: Option<Bodies>,
    /// What is booked is counted.
    pub(super) tally: Arc<Tally>,
    /// Tokens are counted, not only estimated.
    pub(super) counts: bool,
    /// What is booked counts towards it.
    pub(super) budget: Arc<Budget>,
    /// Nothing is changed, and it is told what that would have saved.
    pub(super) observes: bool,
}

enum Job {
    Left { name: Name, reading: Box<Reading>, sent: Option<Bytes>, slot: Slot, held: Held },
    Ended(Box<Ended>),
    Told(Box<Told>),
}

/// Bytes of a job that waits or is worked on; they count until this is dropped, however the job ends.
struct Held {
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

impl Held {
    /// So many bytes more, if they find room; and how many wait then.
    fn of(bytes: usize, waiting: &Arc<AtomicUsize>) -> Option<(Self, usize)> {
        let all = waiting.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let held = Self { bytes, waiting: Arc::clone(waiting) };
        (all <= WAITING).then_some((held, all))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The handle on the thread. Dropping it finishes what is queued.
pub(super) struct Books {
    jobs: Option<Inlet<Job>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
    store: Arc<dyn Store>,
    tally: Arc<Tally>,
    budget: Arc<Budget>,
}

impl Books {
    /// Starts the thread; `queue` bounds the jobs that wait.
    pub(super) fn start(means: Means, queue: usize) -> io::Result<Self> {
        // A request is two jobs.
        let (jobs, inbox) = queue::queue(queue.saturating_mul(2));
        let waiting = Arc::new(AtomicUsize::new(0));
        let (store, tally) = (Arc::clone(&means.store), Arc::clone(&means.tally));
        let budget = Arc::clone(&means.budget);
        let counter = means.counts.then(Counter::default);
        let untouched = Untouched::new(means.observes, Arc::clone(&store));
        let instructions = Instructions::default();
        let bodies = Outage::new("a request's body could not be saved", "bodies of requests are saved again");
        let awaited = Awaited::default();
        let desk = Desk { means, counter, untouched, instructions, awaited, bodies };
        let thread = Builder::new().name("plimsoll-books".into()).spawn(move || desk.run(&inbox))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), waiting, store, tally, budget })
    }

    /// Takes note of a request that leaves; `sent` is what it was rewritten to.
    pub(super) fn left(&self, name: Name, reading: Box<Reading>, sent: Option<Bytes>) -> Slot {
        let slot = Slot::default();
        if let Some((held, waiting)) = Held::of(weight(&reading, sent.as_ref()), &self.waiting) {
            let job = Job::Left { name, reading, sent, slot: Arc::clone(&slot), held };
            // Where there is no room for it, the record will lack what the prompt is made of.
            drop(self.hand_over(job, waiting > WAITING / 4));
        }
        slot
    }

    /// Books a request. What finds no room is recorded as it is.
    pub(super) fn ended(&self, ended: Ended) {
        self.budget.book(&ended.record, ended.at_ms);
        if let Err(Job::Ended(ended)) = self.hand_over(Job::Ended(Box::new(ended)), false) {
            let lacking = lacking::unseen(&ended);
            store(&*self.store, &self.tally, *ended, lacking);
        }
    }

    /// Books what was told of a request that was booked before, if it is one that was waited for. What finds no room is not
    /// booked: whoever asks again is told again.
    pub(super) fn told(&self, told: Told) {
        drop(self.hand_over(Job::Told(Box::new(told)), false));
    }

    fn hand_over(&self, job: Job, urgent: bool) -> Result<(), Job> {
        match &self.jobs {
            Some(jobs) => jobs.push(job, urgent),
            None => Err(job),
        }
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn weight(reading: &Reading, sent: Option<&Bytes>) -> usize {
    let planned = reading.planned.as_ref().and_then(Planned::edited).map_or(0, |edited| edited.body.len());
    reading.conversation.body.len() + sent.map_or(0, Bytes::len) + planned
}

impl Planned {
    fn edited(&self) -> Option<&Conversation> {
        match self {
            Self::AsItCame => None,
            Self::Edited(edited) => Some(edited),
        }
    }
}

fn store(store: &dyn Store, tally: &Tally, ended: Ended, lacking: Vec<StoredLacking>) {
    tally.book(&ended.record);
    put(store, tally, ended.record, ended.at_ms, lacking);
}

/// `lacking`: what is missing from histories with the request.
fn put(store: &dyn Store, tally: &Tally, record: Box<Record>, at_ms: i64, lacking: Vec<StoredLacking>) {
    let ledger = vec![record.into_row(at_ms)];
    tally.stored(store.later(Batch { lacking, ledger, at_ms, ..Batch::default() }));
}

struct Desk {
    means: Means,
    counter: Option<Counter>,
    untouched: Untouched,
    instructions: Instructions,
    awaited: Awaited,
    bodies: Outage,
}

impl Desk {
    fn run(mut self, inbox: &Outlet<Job>) {
        let mut jobs = Vec::new();
        loop {
            if !inbox.wait(REST)
                && let Some(counter) = &mut self.counter
            {
                counter.rest();
            }
            // Until there is something to do, nothing wakes up.
            if !inbox.take(&mut jobs) {
                return;
            }
            for job in jobs.drain(..) {
                self.attempt(job);
            }
        }
    }

    /// Whatever becomes of one request, the others are booked.
    fn attempt(&mut self, job: Job) {
        let ended_ms = match &job {
            Job::Left { .. } | Job::Told(_) => None,
            Job::Ended(ended) => Some(ended.at_ms),
        };
        if catch_unwind(AssertUnwindSafe(|| self.work(job))).is_ok() {
            return;
        }
        match ended_ms {
            Some(at_ms) => {
                tracing::error!("a request could not be booked: a fault of the gateway's own");
                self.means.store.lose(at_ms);
            }
            None => tracing::error!(
                "a request could not be looked at for the books: a fault of the gateway's own"
            ),
        }
    }

    fn work(&mut self, job: Job) {
        match job {
            Job::Left { name, reading, sent, slot, held: _held } => {
                self.left(&reading, &slot);
                self.keep(&name, &reading, sent.as_ref());
            }
            Job::Ended(ended) => self.ended(ended),
            Job::Told(told) => self.told(&told),
        }
    }

    fn left(&mut self, reading: &Reading, slot: &Slot) {
        let (counter, known) = (self.counter.as_mut(), &mut self.instructions);
        let measured = catch_unwind(AssertUnwindSafe(|| measure::measure(reading, counter, known)));
        if let Ok(measured) = measured {
            let _ = slot.set(measured);
        }
    }

    fn keep(&mut self, name: &Name, reading: &Reading, sent: Option<&Bytes>) {
        let Some(bodies) = &self.means.bodies else { return };
        let forms = [(Form::Came, Some(&reading.conversation.body)), (Form::Sent, sent)];
        for (form, body) in forms {
            let saved = body.map_or(Ok(()), |body| bodies.save(&name.conversation, &name.id, form, body));
            match saved {
                Ok(()) => self.bodies.end(Instant::now()),
                Err(error) => self.bodies.begin(&error, Instant::now()),
            }
        }
    }

    fn ended(&mut self, mut ended: Box<Ended>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.untouched.complete(&mut ended, &self.means.prices)));
        self.compare(&mut ended);
        self.awaited.remember(&ended.record, ended.at_ms);
        store(&*self.means.store, &self.means.tally, *ended, self.untouched.lacking());
    }

    /// Counts what was not known of a record, and books the whole of it in its place.
    fn told(&mut self, told: &Told) {
        let Means { prices, store, .. } = &self.means;
        let Some(told) = self.awaited.complete(told, prices, &**store) else { return };
        let Waiting { mut record, at_ms, is_known } = told;
        self.untouched.told(&mut record, at_ms);
        self.means.budget.book(&record, at_ms);
        self.means.tally.book_late(&record, is_known);
        put(&*self.means.store, &self.means.tally, record, at_ms, Vec::new());
    }

    /// Tells where a request's instructions are other than those before it.
    fn compare(&mut self, ended: &mut Ended) {
        let named =
            ended.slot.as_ref().and_then(|slot| slot.get()).and_then(|measured| measured.instructions);
        let (Some(now), Some(thread)) = (named, &ended.record.thread) else { return };
        let change = self.instructions.change(thread, ended.record.parent.as_deref(), now);
        if let (Some(change), Some(prompt)) = (change, &mut ended.record.prompt) {
            (prompt.volatile_at, prompt.volatile_line) = (Some(change.byte), Some(change.line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_however_it_ends() {
        let waiting: Arc<AtomicUsize> = Arc::default();
        let all = || waiting.load(Ordering::Relaxed);
        let (held, found) = Held::of(WAITING - 1, &waiting).unwrap();
        assert_eq!((found, all()), (WAITING - 1, WAITING - 1));
        assert!(Held::of(2, &waiting).is_none());
        let (other, _) = Held::of(1, &waiting).unwrap();
        assert_eq!(all(), WAITING);
        let worked = catch_unwind(AssertUnwindSafe(move || {
            let _held = held;
            panic!("a fault");
        }));
        assert_eq!((worked.is_err(), all()), (true, 1));
        drop(other);
        assert_eq!(all(), 0);
    }
}
