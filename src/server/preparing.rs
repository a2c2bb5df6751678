//! Having a request prepared: on the thread that serves its connection or, where that would keep others waiting,
//! beside it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::error::Elapsed;

use super::body::Replay;
use super::boxed::boxed;
use super::deadline::Deadline;
use super::decode::{self, Coding};
use super::encode;
use super::exchange::{Gateway, Inbound, Prepared, Rejection, Unprepared};
use super::guard::{guard, guard_future};
use super::handler::Handler;
use super::run_to_end::RunToEnd;

/// Bytes of a body that take milliseconds to read and shorten when they are seen for the first time.
const LARGE: usize = 1024 * 1024;
/// Bytes that take milliseconds to decode or encode.
const LARGE_CODED: usize = 128 * 1024;

/// Threads beside the one that serves connections.
#[derive(Clone)]
pub(super) struct Beside(AtWork);

/// As long as one is there, something is at work beside.
pub(super) type AtWork = mpsc::Sender<Infallible>;

/// Comes to its end with the work beside.
pub(super) type AllDone = mpsc::Receiver<Infallible>;

impl Beside {
    pub(super) fn new() -> (Self, AllDone) {
        let (at_work, all_done) = mpsc::channel(1);
        (Self(at_work), all_done)
    }

    /// To be kept for as long as the work takes.
    pub(super) fn at_work(&self) -> AtWork {
        self.0.clone()
    }

    /// Does work on another thread.
    fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let at_work = self.at_work();
        spawn_blocking(move || {
            let done = work();
            drop(at_work);
            done
        })
    }

    /// The same for what waits in between. When this is dropped, the work is dropped where it next waits for something.
    /// `None` when the server ends first.
    async fn work<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (wanted, unwanted) = oneshot::channel::<Infallible>();
        let runtime = Handle::current();
        let task = self.compute(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    done = work => Some(done),
                    _ = unwanted => None,
                }
            })
        });
        let done = task.await.ok().flatten();
        drop(wanted);
        done
    }
}

impl<G: Gateway> Handler<G> {
    /// What leaves: at worst the original.
    pub(super) async fn prepare(&self, inbound: &Inbound) -> Prepared {
        let request = inbound.clone();
        let work = |gateway: Arc<G>, until| async move { Some(gateway.prepare(request, until).await) };
        let why = match self.work(inbound.body.len() >= LARGE, work).await {
            Ok(Some(prepared)) => return prepared,
            Ok(None) => Unprepared::Panicked,
            Err(_elapsed) => {
                self.stats.prepare_timeouts.increment();
                Unprepared::TimedOut
            }
        };
        let exchange = guard(&self.stats, || self.gateway.unprepared(inbound.clone(), why)).flatten();
        Prepared { exchange, ..Prepared::untouched() }
    }

    /// The same for a request that was rejected; `None` if there is nothing to send in its place.
    pub(super) async fn prepare_again(
        &self,
        inbound: &Inbound,
        rejection: Rejection,
        attempt: u32,
    ) -> Option<Prepared> {
        let request = inbound.clone();
        let work =
            |gateway: Arc<G>, until| async move { gateway.again(request, rejection, attempt, until).await };
        let prepared = self.work(inbound.body.len() >= LARGE, work).await.ok()??;
        (prepared.body.is_some() && prepared.refusal.is_none()).then_some(prepared)
    }

    /// The whole body as it came and in plain.
    pub(super) async fn decode(&self, coding: Coding, body: &Replay) -> Option<(Bytes, Bytes)> {
        let original = body.as_whole()?.clone();
        let (encoded, limit) = (original.clone(), self.settings.max_decoded);
        let is_large = coding != Coding::Identity && encoded.len() >= LARGE_CODED;
        let plain = self.compute(is_large, move || decode::whole(coding, &encoded, limit)).await?;
        Some((original, plain))
    }

    /// An edited body as the original came; `None`: in plain.
    pub(super) async fn encode(&self, coding: Coding, edited: &Bytes) -> Option<Bytes> {
        let plain = edited.clone();
        let is_large = coding != Coding::Identity && plain.len() >= LARGE_CODED;
        self.compute(is_large, move || encode::whole(coding, &plain)).await
    }

    /// Has the gateway prepare a request in time; `None` if it panics.
    async fn work<F>(
        &self,
        is_large: bool,
        work: impl FnOnce(Arc<G>, Deadline) -> F,
    ) -> Result<Option<Prepared>, Elapsed>
    where
        F: Future<Output = Option<Prepared>> + Send + 'static,
    {
        let until = Deadline::new(Instant::now(), self.settings.rewrite_timeout);
        let work = boxed(|| work(Arc::clone(&self.gateway), until.clone()));
        let work = guard_future(Arc::clone(&self.stats), work);
        if !is_large {
            return until.by(RunToEnd::new(self, until.clone(), boxed(|| work))).await;
        }
        let beside = self.beside.clone();
        let work = boxed(|| async move { beside.work(work).await.flatten() });
        until.by(RunToEnd::new(self, until.clone(), work)).await
    }

    async fn compute<T: Send + 'static>(
        &self,
        is_large: bool,
        work: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if !is_large {
            return guard(&self.stats, work).flatten();
        }
        let stats = Arc::clone(&self.stats);
        self.beside.compute(move || guard(&stats, work).flatten()).await.ok()?
    }
}
