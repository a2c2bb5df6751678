//! Prepares requests: on the thread that serves the connection or, if the body is so large that other connections would
//! have to wait, on the runtime's blocking pool.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::error::Elapsed;

use super::body::Replay;
use super::boxed::boxed;
use super::deadline::Deadline;
use super::decode::{self, Coding};
use super::encode;
use super::exchange::{End, Gateway, Inbound, Prepared, Rejection, Unprepared};
use super::guard::{guard, guard_future};
use super::handler::Handler;
use super::run_to_end::RunToEnd;
use super::tap::Tap;

/// From this size in bytes on, a body that is new to the gateway takes milliseconds to read and shorten.
const LARGE_BODY: usize = 1024 * 1024;
/// From this size in bytes on, a body takes milliseconds to decode or encode.
const LARGE_CODED_BODY: usize = 128 * 1024;

/// Runs work on the runtime's blocking pool. Each piece of work holds a token, so that the server can wait for all of
/// it.
#[derive(Clone)]
pub(super) struct Offload(WorkToken);

/// Held by each piece of work until it is done.
pub(super) type WorkToken = mpsc::Sender<Infallible>;

/// Its `recv` returns `None` once all tokens are dropped, including that of the [`Offload`].
pub(super) type AllDone = mpsc::Receiver<Infallible>;

/// The whole body of a request.
pub(super) struct Decoded {
    /// The body as it came.
    pub(super) original: Bytes,
    /// The body without its content coding.
    pub(super) plain: Bytes,
    pub(super) coding: Coding,
}

impl Offload {
    pub(super) fn new() -> (Self, AllDone) {
        let (token, all_done) = mpsc::channel(1);
        (Self(token), all_done)
    }

    /// A token for work that is started elsewhere.
    pub(super) fn token(&self) -> WorkToken {
        self.0.clone()
    }

    /// Runs `work` on the blocking pool.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let token = self.token();
        spawn_blocking(move || {
            let done = work();
            drop(token);
            done
        })
    }

    /// Awaits `future` on the blocking pool. Returns `None` if the runtime shuts down first. If the caller drops this,
    /// the `future` is dropped at its next await point.
    async fn run_future<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        // Nothing is ever sent: dropping the sender cancels the work.
        let (keep_running, cancelled) = oneshot::channel::<Infallible>();
        let runtime = Handle::current();
        let task = self.run(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    done = future => Some(done),
                    _ = cancelled => None,
                }
            })
        });
        let done = task.await.ok().flatten();
        drop(keep_running);
        done
    }
}

impl<G: Gateway> Handler<G> {
    /// Has the gateway prepare a request. If that panics or takes too long, the request leaves as it came.
    pub(super) async fn prepare(&self, inbound: &Inbound) -> Prepared {
        let request = inbound.clone();
        let make = |gateway: Arc<G>, until| async move { Some(gateway.prepare(request, until).await) };
        let why = match self.in_time(inbound.body.len() >= LARGE_BODY, make).await {
            Ok(Some(prepared)) => return prepared,
            Ok(None) => Unprepared::Panicked,
            Err(_elapsed) => {
                self.stats.prepare_timeouts.increment();
                Unprepared::TimedOut
            }
        };
        self.unprepared(inbound.clone(), why)
    }

    /// What the gateway does about a request that it could not prepare.
    pub(super) fn unprepared(&self, inbound: Inbound, why: Unprepared) -> Prepared {
        let prepared = guard(&self.stats, || self.gateway.unprepared(inbound, why)).unwrap_or_default();
        let Prepared { exchange, refusal, .. } = prepared;
        Prepared { exchange, refusal, ..Prepared::untouched() }
    }

    /// Has the gateway prepare a rejected request anew. `None` if there is nothing to send instead.
    pub(super) async fn prepare_again(
        &self,
        inbound: &Inbound,
        rejection: Rejection,
        attempt: u32,
    ) -> Option<Prepared> {
        let request = inbound.clone();
        let make =
            |gateway: Arc<G>, until| async move { gateway.again(request, rejection, attempt, until).await };
        let mut prepared = self.in_time(inbound.body.len() >= LARGE_BODY, make).await.ok()??;
        if let Some(fault) = prepared.refusal.take() {
            // What was decided about it is stored, and applies to the next request.
            Tap::new(prepared.exchange.take(), &self.endings, &self.stats).end(End::Unsent(fault));
            return None;
        }
        prepared.body.is_some().then_some(prepared)
    }

    /// Decodes the whole body of a request. `None` if it was not read to its end or cannot be decoded.
    pub(super) async fn decode(&self, headers: &HeaderMap, body: &Replay) -> Option<Decoded> {
        let coding = Coding::of(headers)?;
        let original = body.as_whole()?.clone();
        let (encoded, limit) = (original.clone(), self.settings.max_decoded);
        let is_large = coding != Coding::Identity && encoded.len() >= LARGE_CODED_BODY;
        let plain = self.compute(is_large, move || decode::whole(coding, &encoded, limit)).await?;
        Some(Decoded { original, plain, coding })
    }

    /// An edited body in the content coding of the original; `None` if it must be sent unencoded.
    pub(super) async fn encode(&self, coding: Coding, edited: &Bytes) -> Option<Bytes> {
        let plain = edited.clone();
        let is_large = coding != Coding::Identity && plain.len() >= LARGE_CODED_BODY;
        self.compute(is_large, move || encode::whole(coding, &plain)).await
    }

    /// Awaits the future that `make` returns, with a new deadline. `Ok(None)` if it panics.
    ///
    /// # Errors
    /// If the request left before the future was done.
    async fn in_time<F>(
        &self,
        is_large: bool,
        make: impl FnOnce(Arc<G>, Deadline) -> F,
    ) -> Result<Option<Prepared>, Elapsed>
    where
        F: Future<Output = Option<Prepared>> + Send + 'static,
    {
        let until = Deadline::new(Instant::now(), self.settings.rewrite_timeout);
        let future = boxed(|| make(Arc::clone(&self.gateway), until.clone()));
        let future = guard_future(Arc::clone(&self.stats), future);
        if !is_large {
            return until.by(RunToEnd::new(self, until.clone(), boxed(|| future))).await;
        }
        let offload = self.offload.clone();
        let offloaded = boxed(|| async move { offload.run_future(future).await.flatten() });
        until.by(RunToEnd::new(self, until.clone(), offloaded)).await
    }

    /// Runs `work`, on the blocking pool if it `is_large`. `None` if it returns `None` or panics.
    async fn compute<T: Send + 'static>(
        &self,
        is_large: bool,
        work: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if !is_large {
            return guard(&self.stats, work).flatten();
        }
        let stats = Arc::clone(&self.stats);
        self.offload.run(move || guard(&stats, work).flatten()).await.ok()?
    }
}
