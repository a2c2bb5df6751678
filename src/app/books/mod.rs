//! The thread that completes the records: what a request would have cost without the gateway, and what its prompt is
//! made of.
//!
//! No request waits for it. A request is handed over when it leaves, and its record when it has ended. The queue is
//! bounded in number and in bytes; what does not fit is recorded without these figures, and a failure here costs
//! nothing else.

mod awaited;
mod count;
mod counterfactual;
mod instructions;
mod lacking;
mod measure;
mod named;
mod reliability;
mod resumed;
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
use crate::protocol::{Answer, Prompt, Protocol};
use crate::store::bodies::Form;
use crate::store::queue::{self, Inlet, Outlet};
use crate::store::{Batch, Bodies, Outage, Store, StoredLacking};
use crate::usage::{Catalogue, Usage, Vendor};

use awaited::{Awaited, Waiting};
use count::Counter;
use instructions::Instructions;
use measure::Measured;
use untouched::Untouched;

/// The tokenizer is dropped after this long without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many bytes of requests may wait at a time.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// A request as it was read.
pub(super) struct Reading {
    pub(super) protocol: &'static dyn Protocol,
    pub(super) conversation: Conversation,
    /// Its prompt as far as it was read ([`Protocol::prompt_after`]).
    pub(super) frame: Option<Prompt>,
    /// The edited request, if it was edited.
    pub(super) edited: Option<Box<Conversation>>,
    /// The decisions and the splice that were applied; the last `fresh` decisions are new with this request.
    pub(super) applied: Arc<[Applied]>,
    pub(super) fresh: usize,
    pub(super) splice: Option<Arc<Splice>>,
    /// The empty history of its sender: providers share no cache between accounts.
    pub(super) root: Chain,
    /// Messages that an earlier request carried.
    pub(super) prior: usize,
    /// The id of its thread, if that is known.
    pub(super) thread: Option<String>,
    /// The form that an observing gateway would have sent; `None` if the request was edited, or if that is not known.
    pub(super) planned: Option<Planned>,
}

/// The form that an observing gateway would have sent.
pub(super) enum Planned {
    AsItCame,
    Edited(Box<Conversation>),
}

/// The ids under which a request is booked.
pub(super) struct Name {
    /// The record's id.
    pub(super) id: String,
    pub(super) conversation: String,
}

/// Where the measurements of a request are put when they are ready.
pub(super) type Slot = Arc<OnceLock<Measured>>;

/// A request that has ended.
pub(super) struct Ended {
    pub(super) record: Box<Record>,
    pub(super) at_ms: i64,
    pub(super) sent_at: Instant,
    /// When its answer began, if one came.
    pub(super) answered_at: Option<Instant>,
    pub(super) usage: Option<Usage>,
    pub(super) vendor: Option<Vendor>,
    /// The model's window in tokens, if its provider has stated it.
    pub(super) window: Option<u64>,
    /// `None`: the request was not read, and so was sent as it came.
    pub(super) slot: Option<Slot>,
    /// The id of the history that it continues, if the provider holds that history.
    pub(super) continues: Option<Box<str>>,
    /// Whether the history with that id grows with this request.
    pub(super) grows: bool,
    /// Trailing reasoning blocks that the provider left out of the prompt, and so of its usage figures.
    pub(super) unbound: u32,
    /// Whether it was answered before, and the gateway sent it again.
    pub(super) asked_again: bool,
}

/// What the answer to a later request reports about an earlier one.
pub(super) struct Told {
    pub(super) upstream: String,
    /// The id of the answer that the earlier request began.
    pub(super) id: String,
    /// The conversation of the earlier request, if that is known.
    pub(super) conversation: Option<String>,
    /// The complete answer.
    pub(super) answer: Answer,
    pub(super) vendor: Option<Vendor>,
}

/// What the thread works with.
pub(super) struct Means {
    pub(super) store: Arc<dyn Store>,
    pub(super) prices: Arc<Catalogue>,
    /// Where bodies are kept, if they are.
    pub(super) bodies: Option<Bodies>,
    /// Counts what is booked.
    pub(super) tally: Arc<Tally>,
    /// Whether tokens are counted with a tokenizer, or only estimated.
    pub(super) counts: bool,
    /// Counts what is booked towards the limits.
    pub(super) budget: Arc<Budget>,
    /// Whether the gateway only observes, and reports what editing would have saved.
    pub(super) observes: bool,
}

enum Job {
    Left { name: Name, reading: Box<Reading>, sent: Option<Bytes>, slot: Slot, held: QueueReservation },
    Ended(Box<Ended>),
    Told(Box<Told>),
}

/// A reservation of bytes for a job that waits or is being worked on; released when it is dropped.
struct QueueReservation {
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

impl QueueReservation {
    /// Reserves `bytes` if there is room for them. Also returns how many bytes are then reserved for all jobs.
    fn reserve(bytes: usize, waiting: &Arc<AtomicUsize>) -> Option<(Self, usize)> {
        let all = waiting.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let held = Self { bytes, waiting: Arc::clone(waiting) };
        // Without room, dropping it releases the bytes again.
        (all <= MAX_WAITING_BYTES).then_some((held, all))
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The handle of the thread. Dropping it finishes what is queued.
pub(super) struct Books {
    jobs: Option<Inlet<Job>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
    store: Arc<dyn Store>,
    tally: Arc<Tally>,
    budget: Arc<Budget>,
}

impl Books {
    /// Starts the thread; at most `queue` requests may wait.
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
        let bookkeeper = Bookkeeper { means, counter, untouched, instructions, awaited, bodies };
        let thread = Builder::new().name("plimsoll-books".into()).spawn(move || bookkeeper.run(&inbox))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), waiting, store, tally, budget })
    }

    /// Hands over a request that is leaving; `sent` is the edited body. Returns where its measurements will be; they
    /// never come if too much is waiting already.
    pub(super) fn left(&self, name: Name, reading: Box<Reading>, sent: Option<Bytes>) -> Slot {
        let slot = Slot::default();
        if let Some((held, waiting)) =
            QueueReservation::reserve(weight(&reading, sent.as_ref()), &self.waiting)
        {
            let job = Job::Left { name, reading, sent, slot: Arc::clone(&slot), held };
            // Without room for it, the record will lack what the prompt is made of.
            drop(self.hand_over(job, waiting > MAX_WAITING_BYTES / 4));
        }
        slot
    }

    /// Books a request that has ended. If the queue is full, its record is stored as it is.
    pub(super) fn ended(&self, ended: Ended) {
        self.budget.book(&ended.record, ended.at_ms);
        if let Err(Job::Ended(ended)) = self.hand_over(Job::Ended(Box::new(ended)), false) {
            let lacking = lacking::of_unmeasured(&ended);
            book(&*self.store, &self.tally, *ended, lacking);
        }
    }

    /// Books usage that was reported late, if the record of its request waits for it. If the queue is full, the report
    /// is dropped: the provider gives it again to whoever asks again.
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

/// The bytes of all forms of a request.
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

/// Counts and stores a record. `lacking`: what its request leaves missing from histories that the provider holds.
fn book(store: &dyn Store, tally: &Tally, ended: Ended, lacking: Vec<StoredLacking>) {
    tally.book(&ended.record);
    put(store, tally, ended.record, ended.at_ms, lacking);
}

fn put(store: &dyn Store, tally: &Tally, record: Box<Record>, at_ms: i64, lacking: Vec<StoredLacking>) {
    let ledger = vec![record.into_row(at_ms)];
    tally.stored(store.later(Batch { lacking, ledger, at_ms, ..Batch::default() }));
}

/// The state of the thread that keeps the books.
struct Bookkeeper {
    means: Means,
    counter: Option<Counter>,
    untouched: Untouched,
    instructions: Instructions,
    awaited: Awaited,
    bodies: Outage,
}

impl Bookkeeper {
    fn run(mut self, inbox: &Outlet<Job>) {
        let mut jobs = Vec::new();
        loop {
            if !inbox.wait(IDLE_TIMEOUT)
                && let Some(counter) = &mut self.counter
            {
                counter.drop_tokenizer();
            }
            // Blocks until there is something to do.
            if !inbox.take(&mut jobs) {
                return;
            }
            for job in jobs.drain(..) {
                self.attempt(job);
            }
        }
    }

    /// Works on one job. Whatever becomes of it, the others are booked.
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
                self.means.store.count_lost(at_ms);
            }
            None => tracing::error!(
                "a request could not be looked at for the books: a fault of the gateway's own"
            ),
        }
    }

    fn work(&mut self, job: Job) {
        match job {
            Job::Left { name, reading, sent, slot, held: _held } => {
                self.measure(&reading, &slot);
                self.untouched.left(&reading);
                self.save_bodies(&name, &reading, sent.as_ref());
            }
            Job::Ended(ended) => self.book(ended),
            Job::Told(told) => self.book_late(&told),
        }
    }

    fn measure(&mut self, reading: &Reading, slot: &Slot) {
        let (counter, known) = (self.counter.as_mut(), &mut self.instructions);
        let measured = catch_unwind(AssertUnwindSafe(|| measure::measure(reading, counter, known)));
        if let Ok(measured) = measured {
            let _ = slot.set(measured);
        }
    }

    fn save_bodies(&mut self, name: &Name, reading: &Reading, sent: Option<&Bytes>) {
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

    /// Completes the record of a request that has ended, as far as possible, and books it.
    fn book(&mut self, mut ended: Box<Ended>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.untouched.complete(&mut ended, &self.means.prices)));
        self.compare_instructions(&mut ended);
        self.awaited.remember(&ended.record, ended.at_ms);
        book(&*self.means.store, &self.means.tally, *ended, self.untouched.take_lacking());
    }

    /// Completes an earlier record with figures that were reported late, and books it in place of the incomplete one.
    fn book_late(&mut self, told: &Told) {
        let Means { prices, store, .. } = &self.means;
        let Some(waiting) = self.awaited.complete(told, prices, &**store) else { return };
        let Waiting { mut record, at_ms, was_booked_here } = waiting;
        self.untouched.complete_late(&mut record, at_ms);
        self.means.budget.book_late(&record, at_ms);
        self.means.tally.book_late(&record, was_booked_here);
        put(&*self.means.store, &self.means.tally, record, at_ms, Vec::new());
    }

    /// Records where a request's instructions differ from those of the thread's last request.
    fn compare_instructions(&mut self, ended: &mut Ended) {
        let measured = ended.slot.as_ref().and_then(|slot| slot.get());
        let key = measured.and_then(|measured| measured.instructions);
        let (Some(now), Some(thread)) = (key, &ended.record.thread) else { return };
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
    fn queued_work_is_bounded_and_released_even_after_a_panic() {
        let waiting: Arc<AtomicUsize> = Arc::default();
        let all = || waiting.load(Ordering::Relaxed);
        let (held, found) = QueueReservation::reserve(MAX_WAITING_BYTES - 1, &waiting).unwrap();
        assert_eq!((found, all()), (MAX_WAITING_BYTES - 1, MAX_WAITING_BYTES - 1));
        assert!(QueueReservation::reserve(2, &waiting).is_none());
        let (other, _) = QueueReservation::reserve(1, &waiting).unwrap();
        assert_eq!(all(), MAX_WAITING_BYTES);
        let worked = catch_unwind(AssertUnwindSafe(move || {
            let _held = held;
            panic!("a fault");
        }));
        assert_eq!((worked.is_err(), all()), (true, 1));
        drop(other);
        assert_eq!(all(), 0);
    }
}
