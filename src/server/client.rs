//! What is known of a client for as long as its connection is open.
//!
//! Learned from its requests, and looked at where the connection ends or has to. Holds nothing up.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::framing_fault;
use super::stats::Stats;

/// See the module.
#[derive(Default)]
pub(super) struct Client {
    is_old: AtomicBool,
    is_sending: AtomicBool,
    rest: Mutex<Rest>,
    asked: Notify,
}

/// Whether anything is under way.
struct Rest {
    requests: usize,
    /// Since when nothing is; `None` also for one that was asked to go.
    since: Option<Instant>,
    /// It was asked to go, and has said nothing since.
    is_dismissed: bool,
}

/// A request that is under way, until it is dropped.
pub(super) struct Visit {
    client: Arc<Client>,
    stats: Arc<Stats>,
}

/// An answer, and the request that it is to.
pub(super) struct Attended<B> {
    answer: B,
    _visit: Visit,
}

/// The body of a request. While there is more of it to come, its client is known to be sending.
pub(super) struct Upload {
    body: Incoming,
    /// `None` where requests share a connection: the end of one is not the end of that.
    client: Option<Arc<Client>>,
}

impl Client {
    /// Whether it speaks HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Relaxed)
    }

    /// Whether some of its last request was not read.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Whether it has sent all of a request, and has not got all of the answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_sending() && self.rest().requests > 0
    }

    /// Whether no request of it is under way.
    pub(super) fn is_resting(&self) -> bool {
        self.rest().requests == 0
    }

    /// Whether something has come from it since its last request, and is none yet.
    pub(super) fn has_begun(&self) -> bool {
        let rest = self.rest();
        rest.requests == 0 && rest.since.is_none()
    }

    /// Since when nothing is under way.
    pub(super) fn resting_since(&self) -> Option<Instant> {
        self.rest().since
    }

    /// Waits until nothing was under way for so long.
    pub(super) async fn rested(&self, time: Duration) {
        loop {
            let since = self.resting_since().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(since + time).await;
            if self.resting_since().is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }

    /// Something has come from it.
    pub(super) fn heard(&self) {
        let mut rest = self.rest();
        rest.since = None;
        rest.is_dismissed = false;
    }

    /// Asks it to go, unless something comes from it first; `false` if something is under way.
    pub(super) fn dismiss(&self) -> bool {
        let mut rest = self.rest();
        rest.is_dismissed = rest.since.take().is_some();
        if rest.is_dismissed {
            self.asked.notify_one();
        }
        rest.is_dismissed
    }

    /// Waits until it has to go. To be looked at after all that has come was read.
    pub(super) async fn dismissed(&self) {
        loop {
            self.asked.notified().await;
            // What has come meanwhile is known after this.
            tokio::task::yield_now().await;
            if self.rest().is_dismissed {
                return;
            }
        }
    }

    /// A request has come.
    pub(super) fn visit(self: &Arc<Self>, stats: &Arc<Stats>) -> Visit {
        self.heard();
        self.rest().requests += 1;
        stats.open_requests.increment();
        Visit { client: Arc::clone(self), stats: Arc::clone(stats) }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows `request`, which is its next one.
    pub(super) fn follow(self: &Arc<Self>, request: Request<Incoming>) -> Request<Upload> {
        let version = request.version();
        let client = (version < Version::HTTP_2).then(|| Arc::clone(self));
        if let Some(client) = &client {
            client.is_old.fetch_or(version == Version::HTTP_10, Ordering::Relaxed);
            client.is_sending.store(!request.body().is_end_stream(), Ordering::Relaxed);
        }
        request.map(|body| Upload { body, client })
    }
}

impl Default for Rest {
    fn default() -> Self {
        Self { requests: 0, since: Some(Instant::now()), is_dismissed: false }
    }
}

impl Visit {
    pub(super) fn attend<B>(self, answer: B) -> Attended<B> {
        Attended { answer, _visit: self }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.stats.open_requests.decrement();
        let mut rest = self.client.rest();
        rest.requests -= 1;
        if rest.requests == 0 {
            rest.since = Some(Instant::now());
        }
    }
}

impl<B: Body + Unpin> Body for Attended<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.answer).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let has_ended = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || self.body.is_end_stream(),
            // Whoever sends chunks that cannot be read goes on.
            Poll::Ready(Some(Err(error))) => framing_fault(error).is_none(),
            Poll::Ready(None) => true,
        };
        if has_ended && let Some(client) = self.client.take() {
            client.is_sending.store(false, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
