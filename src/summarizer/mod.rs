//! Summaries written in the background: no request waits for one, and none fails because of one.
//!
//! A job sends a part of a conversation to a model, by calls that the gateway itself makes, and returns a text that can
//! replace that part. Jobs are limited in number, time, size and money, and each thread has at most one at a time. What
//! a job needs from a request, including its credentials, is in memory while the job runs, and is never stored or
//! logged. Whether a summary is sent is decided elsewhere.

mod allowance;
mod calls;
pub mod credentials;
pub mod judge;
mod purse;
mod retry;
mod transport;
mod work;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::{mpsc, watch};

use crate::conversation::{Chain, Conversation, PartId};
use crate::plan::LeafEdit;
use crate::protocol::Protocol;
use crate::store::{Recent, Summary};
use crate::strategy::summary;
use crate::upstream::Upstream;
use crate::usage::{Bill, Catalogue, Money, Usage, Vendor};

pub use allowance::{Allowance, Expected};
use calls::Calls;
use purse::Purse;
use transport::Https;

/// The limits of the jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Jobs at a time.
    pub jobs: usize,
    /// Attempts at each call.
    pub attempts: u32,
    /// How long a job may take.
    pub timeout: Duration,
    /// Calls of one job, retries included. A transcript that needs more is not summarised.
    pub calls: usize,
    /// The limit for an answer in tokens, reasoning included.
    pub max_output: u64,
    /// Money that may be spent within an hour; `None`: no limit.
    pub per_hour: Option<Money>,
    /// How long a thread rests after a job without a result. This doubles with each further job without one.
    pub rest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs: 2,
            attempts: 3,
            timeout: Duration::from_secs(5 * 60),
            calls: 16,
            max_output: 16_000,
            per_hour: Some(Money::from_usd(10)),
            rest: Duration::from_secs(60),
        }
    }
}

/// The destination of a job's calls.
#[derive(Clone)]
pub struct Call {
    /// The server.
    pub upstream: Arc<Upstream>,
    /// The dialect it speaks.
    pub protocol: &'static dyn Protocol,
    /// The model.
    pub model: String,
    /// Path and query of the client's own request, if it went to the same server.
    pub like: Option<String>,
    /// The headers that the server needs from the caller.
    pub headers: HeaderMap,
    /// The model's window in tokens.
    pub window: u64,
}

/// A part of a conversation that is to be summarised.
pub struct Task {
    /// The thread that the summary is for.
    pub thread: String,
    /// The conversation that its calls are booked on.
    pub conversation_id: String,
    /// The chain of the history up to the end of what the summary replaces.
    pub chain: Chain,
    /// The number of messages in that history.
    pub end: usize,
    /// The request that the messages are in.
    pub conversation: Conversation,
    /// The messages that the summary replaces, ascending.
    pub messages: Vec<usize>,
    /// Parts of them that are sent in another form than the client sent.
    pub sent: HashMap<PartId, Vec<(u32, LeafEdit)>>,
    /// The outline of the last summary to continue from, and how many messages of the history it covers; `None`: the
    /// summary is made from the originals.
    pub previous: Option<(String, usize)>,
    /// The number of this summary among those of the thread.
    pub generation: u32,
    /// Bytes that the messages take in the prompt now.
    pub bytes: u64,
    /// Bytes per token of the conversation's model.
    pub bytes_per_token: f64,
    /// How the summary is to be written.
    pub settings: Arc<summary::Settings>,
    /// What the job may cost if it begins before room is needed; `None`: whatever its attempts cost.
    pub allowance: Option<Allowance>,
    /// What the job is expected to cost; `None` if that cannot be told, and it counts as free.
    pub expected: Option<Expected>,
    /// The current time, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A summary to be made.
pub struct Job {
    /// What it is of.
    pub task: Task,
    /// The call that writes it.
    pub call: Call,
    /// Whether the last answer that the thread's jobs were given was of no use. Without an allowance, such an answer is
    /// then not asked for again. [`Summarizer::begin`] finds it out.
    pub is_doubted: bool,
}

/// A call that reached the server, or may have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Called {
    /// The id of the answer, if it has one.
    pub answer: Option<String>,
    /// The model that is billed; `None` if there was no answer.
    pub model: Option<String>,
    /// The HTTP status; `None` if there was no answer.
    pub status: Option<u16>,
    /// Why there was no answer, or no complete one.
    pub lost: Option<Failure>,
    /// Why the answer is of no use.
    pub missed: Option<Failure>,
    /// The provider's usage figures.
    pub usage: Option<Usage>,
    /// What it cost.
    pub bill: Option<Bill>,
    /// What it cost at least, as far as the figures tell.
    pub min_cost: Option<Money>,
    /// How long it took.
    pub took: Duration,
    /// Bytes of the request.
    pub bytes: u64,
}

/// Why a job has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There was no answer, or an empty one.
    #[error("{0}")]
    Call(String),
    /// The text is not a usable summary.
    #[error("what the model wrote is no summary: {0}")]
    Useless(#[from] summary::Useless),
    /// The answer was cut off, or refused.
    #[error("the answer is not whole")]
    Incomplete,
    /// The transcript is too long for the permitted calls.
    #[error("the history is too long for the summariser")]
    TooLong,
    /// The summary would free too little.
    #[error("the summary is not shorter than what it stands for, or not by enough")]
    NoGain,
    /// It took too long.
    #[error("not done in time")]
    TimedOut,
    /// The hour's money is spent.
    #[error("the money for this hour is spent")]
    Spent,
    /// The gateway has stopped.
    #[error("the gateway was stopped")]
    Stopped,
    /// The client compacts its history itself.
    #[error("the client made a summary of its own")]
    Unwanted,
}

/// How a job ended.
pub struct Done {
    /// The job.
    pub job: Arc<Job>,
    /// The calls that were made.
    pub calls: Vec<Called>,
    /// How many of them were reported before.
    pub reported: usize,
    /// The summary, or why there is none.
    pub outcome: Result<Arc<Summary>, Failure>,
}

/// What is reported of a job.
pub enum Progress<'a> {
    /// One of its calls has ended, and the job has not.
    Called(&'a Job, &'a Called),
    /// It has ended.
    Done(&'a Done),
}

impl Done {
    /// The calls that were not reported before.
    pub fn unreported(&self) -> &[Called] {
        self.calls.get(self.reported..).unwrap_or_default()
    }

    /// Whether the last answer was of no use; `None` if there was no answer.
    fn is_useless(&self) -> Option<bool> {
        let answer = self.calls.iter().rev().find(|call| call.is_answered())?;
        Some(answer.missed.is_some() || matches!(self.outcome, Err(Failure::NoGain)))
    }
}

/// Called as jobs proceed, on the summariser's own thread.
pub type Report = Box<dyn Fn(Progress<'_>) + Send + Sync>;

/// The most bytes of summaries that are kept in memory.
const MAX_READY_BYTES: u64 = 16 << 20;
/// The most resting threads that are remembered.
const MAX_RESTING: u64 = 4096;
/// The longest rest, as a multiple of the first.
const MAX_REST_FACTOR: u32 = 64;

/// A job under way, as the handle sees it.
struct Running {
    /// Tells the job whether its result is no longer wanted. The channel closes when the job ends.
    unwanted: watch::Sender<bool>,
    /// The chain of the history that it summarises.
    chain: Chain,
}

/// State shared by the jobs and the handle.
struct Shared {
    limits: Limits,
    purse: Purse,
    report: Report,
    /// The threads that have a job now.
    running: Mutex<HashMap<String, Running>>,
    ready: Recent<String, Arc<Summary>>,
    /// The threads whose last job had no result.
    resting: Recent<String, Rest>,
}

/// How a thread rests after a job without a result.
#[derive(Clone, Copy)]
struct Rest {
    /// How many jobs in a row had no result.
    failures: u32,
    since: tokio::time::Instant,
    /// Whether the last answer that they were given was of no use.
    is_useless: bool,
    /// Whether a job without an allowance need not wait for the end of the rest: the last job had an allowance that is
    /// too small for another one.
    is_waived: bool,
}

/// A job that was accepted.
struct Begun {
    job: Job,
    /// Whether its result is no longer wanted. Dropped when the job ends.
    unwanted: watch::Receiver<bool>,
}

/// The handle. Dropping it abandons the jobs under way.
pub struct Summarizer {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Begun>>,
    thread: Option<JoinHandle<()>>,
}

impl Summarizer {
    /// Starts the thread that does the jobs.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(limits: Limits, prices: Arc<Catalogue>, report: Report) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel(limits.jobs.max(1));
        let shared = Arc::new(Shared::new(limits, prices, report));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("plimsoll-summary".into())
            .spawn(move || runtime.block_on(serve(worker, inbox)))?;
        Ok(Self { shared, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Whether a job for this thread would be accepted now, at least one without an allowance.
    pub fn takes(&self, thread: &str) -> bool {
        self.shared.takes(&self.shared.running(), thread)
    }

    /// Whether this thread rests, so that no job with an allowance would be accepted now.
    pub fn rests(&self, thread: &str) -> bool {
        self.shared.rest_of(thread).is_some()
    }

    /// Begins a job, if it can be accepted now and no other job summarises the same history. Returns whether it was
    /// begun.
    pub fn begin(&self, mut job: Job) -> bool {
        let Some(jobs) = &self.jobs else { return false };
        // The lock is held until the thread is on the list, so that only one of two requests finds the thread free.
        let mut running = self.shared.running();
        let chain = job.task.chain;
        let must_rest = job.task.allowance.is_some() && self.rests(&job.task.thread);
        let is_refused = must_rest || !self.shared.takes(&running, &job.task.thread);
        if is_refused || running.values().any(|other| other.chain == chain) {
            return false;
        }
        job.is_doubted = self.shared.resting.get(&job.task.thread).is_some_and(|rest| rest.is_useless);
        let (thread, (unwanted, told)) = (job.task.thread.clone(), watch::channel(false));
        let sent = jobs.try_send(Begun { job, unwanted: told });
        if sent.is_ok() {
            running.insert(thread, Running { unwanted, chain });
        }
        // A job that was not taken is dropped when nobody waits for it.
        drop(running);
        sent.is_ok()
    }

    /// The summary of a thread that was last made or remembered since the start.
    pub fn ready(&self, thread: &str) -> Option<Arc<Summary>> {
        self.shared.ready.get(thread)
    }

    /// Remembers a summary for a thread. It was made before, for this thread or for another one with the same
    /// beginning.
    pub fn remember(&self, thread: &str, summary: Arc<Summary>) {
        self.shared.ready.insert(thread.to_owned(), summary);
    }

    /// Whether a job for this thread is under way.
    pub fn is_running(&self, thread: &str) -> bool {
        self.shared.running().contains_key(thread)
    }

    /// Keeps the job for this thread from making further calls. The call under way is billed once it is answered.
    pub fn abandon(&self, thread: &str) {
        if let Some(running) = self.shared.running().get(thread) {
            running.unwanted.send_replace(true);
        }
    }

    /// Waits until the job for this thread has ended, but no longer than `max_wait`. Returns at once if there is none.
    pub async fn wait(&self, thread: &str, max_wait: Duration) {
        let job = self.shared.running().get(thread).map(|running| running.unwanted.clone());
        if let Some(job) = job {
            let _ = tokio::time::timeout(max_wait, job.closed()).await;
        }
    }
}

impl Drop for Summarizer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Does the jobs that come in until the handle is dropped.
async fn serve(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Begun>) {
    let https = Arc::new(Https::new());
    let mut under_way = tokio::task::JoinSet::new();
    while let Some(Begun { job, unwanted }) = inbox.recv().await {
        while under_way.try_join_next().is_some() {}
        https.sweep();
        let (shared, https) = (Arc::clone(&shared), Arc::clone(&https));
        under_way.spawn(async move {
            let mut work = UnderWay::new(&shared, job, unwanted);
            let (limits, purse, calls) = (&shared.limits, &shared.purse, &mut work.calls);
            let outcome = work::run(&work.job, &*https, limits, purse, &work.unwanted, calls).await;
            work.end(outcome);
        });
    }
}

/// A job under way. When it is dropped, ended or not, its calls have been reported, and its thread is free for the next
/// job.
struct UnderWay<'a> {
    shared: &'a Shared,
    job: Arc<Job>,
    unwanted: watch::Receiver<bool>,
    calls: Calls<'a>,
    ended: bool,
}

impl<'a> UnderWay<'a> {
    fn new(shared: &'a Shared, job: Job, unwanted: watch::Receiver<bool>) -> Self {
        Self { shared, job: Arc::new(job), unwanted, calls: Calls::new(&shared.report), ended: false }
    }

    fn end(mut self, outcome: Result<Arc<Summary>, Failure>) {
        self.ended = true;
        let done = self.calls.done(Arc::clone(&self.job), outcome);
        self.shared.end(&done);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.calls.record_lost(Failure::Stopped, &self.job, &self.shared.purse);
            let done = self.calls.done(Arc::clone(&self.job), Err(Failure::Stopped));
            (self.shared.report)(Progress::Done(&done));
        }
        self.shared.running().remove(&self.job.task.thread);
    }
}

impl Shared {
    fn new(limits: Limits, prices: Arc<Catalogue>, report: Report) -> Self {
        Self {
            purse: Purse::new(prices, limits.per_hour),
            limits,
            report,
            running: Mutex::default(),
            ready: Recent::of_weight(MAX_READY_BYTES, |summary| summary.weight()),
            resting: Recent::of_entries(MAX_RESTING),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rest of a thread, until it is over.
    fn rest_of(&self, thread: &str) -> Option<Rest> {
        self.resting.get(thread).filter(|Rest { failures, since, .. }| {
            let rest =
                self.limits.rest * 2_u32.saturating_pow(failures.saturating_sub(1)).min(MAX_REST_FACTOR);
            since.elapsed() < rest
        })
    }

    /// Whether a job for this thread, if it has no allowance, may begin while the others run.
    fn takes(&self, running: &HashMap<String, Running>, thread: &str) -> bool {
        self.rest_of(thread).is_none_or(|rest| rest.is_waived)
            && running.len() < self.limits.jobs
            && !running.contains_key(thread)
            && !self.purse.is_exhausted()
    }

    /// Remembers how a job ended, and reports it.
    fn end(&self, done: &Done) {
        let thread = &done.job.task.thread;
        match &done.outcome {
            Ok(summary) => {
                self.resting.remove(thread);
                self.ready.insert(thread.clone(), Arc::clone(summary));
            }
            Err(failure) => {
                let before = self.resting.get(thread);
                let rest = Rest {
                    failures: before.map_or(0, |rest| rest.failures).saturating_add(1),
                    since: tokio::time::Instant::now(),
                    is_useless: done
                        .is_useless()
                        .unwrap_or_else(|| before.is_some_and(|rest| rest.is_useless)),
                    is_waived: !done.job.affords_another_job(&done.calls),
                };
                self.resting.insert(thread.clone(), rest);
                tracing::warn!(thread, model = done.job.call.model, %failure, "a summary could not be made");
            }
        }
        (self.report)(Progress::Done(done));
    }
}

/// The vendor that bills a call, if it is known.
fn vendor(call: &Call) -> Option<Vendor> {
    Vendor::of_host(call.upstream.base_url().domain())
}

#[cfg(test)]
mod tests;
