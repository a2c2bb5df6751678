//! The state of a client connection, for as long as it is open.
//!
//! Updated by its requests, and consulted when the connection ends or must end. Never holds anything up.

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

/// What is known of a client connection, shared by its socket and its requests.
#[derive(Default)]
pub(super) struct Client {
    is_old: AtomicBool,
    is_sending: AtomicBool,
    rest: Mutex<Rest>,
    asked: Notify,
}

/// Whether the connection is idle.
struct Rest {
    requests: usize,
    /// Since when it has been idle; `None` also for one that was asked to close.
    since: Option<Instant>,
    /// It was asked to close, and has sent nothing since.
    is_dismissed: bool,
}

/// A request in progress, until it is dropped.
pub(super) struct Visit {
    client: Arc<Client>,
    stats: Arc<Stats>,
}

/// An answer, together with the request that it answers.
pub(super) struct Attended<B> {
    answer: B,
    _visit: Visit,
}

/// The body of a request. Its client counts as sending until the body has ended.
pub(super) struct Upload {
    body: Incoming,
    /// `None` if requests share the connection, so that the end of one says nothing about it.
    client: Option<Arc<Client>>,
}

impl Client {
    /// Whether it speaks HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Relaxed)
    }

    /// Whether part of its last request has not been read.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Whether it has sent a complete request, and has not received the complete answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_sending() && self.rest().requests > 0
    }

    /// Whether no request of it is in progress.
    pub(super) fn is_resting(&self) -> bool {
        self.rest().requests == 0
    }

    /// Whether it has sent something since its last request that is not yet a request.
    pub(super) fn has_begun(&self) -> bool {
        let rest = self.rest();
        rest.requests == 0 && rest.since.is_none()
    }

    /// Since when the connection has been idle.
    pub(super) fn resting_since(&self) -> Option<Instant> {
        self.rest().since
    }

    /// Waits until the connection has been idle for this long.
    pub(super) async fn rested(&self, time: Duration) {
        loop {
            let since = self.resting_since().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(since + time).await;
            if self.resting_since().is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }

    /// Records that the client has sent something.
    pub(super) fn heard(&self) {
        let mut rest = self.rest();
        rest.since = None;
        rest.is_dismissed = false;
    }

    /// Asks it to close unless it sends something first; `false` if a request is in progress.
    pub(super) fn dismiss(&self) -> bool {
        let mut rest = self.rest();
        rest.is_dismissed = rest.since.take().is_some();
        if rest.is_dismissed {
            self.asked.notify_one();
        }
        rest.is_dismissed
    }

    /// Waits until the connection must close. Poll it only after everything that has arrived was read.
    pub(super) async fn dismissed(&self) {
        loop {
            self.asked.notified().await;
            // After this, everything that has arrived meanwhile is known.
            tokio::task::yield_now().await;
            if self.rest().is_dismissed {
                return;
            }
        }
    }

    /// Begins a request.
    pub(super) fn visit(self: &Arc<Self>, stats: &Arc<Stats>) -> Visit {
        self.heard();
        self.rest().requests += 1;
        stats.open_requests.increment();
        Visit { client: Arc::clone(self), stats: Arc::clone(stats) }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the body of its next request.
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
            // A client that sends malformed chunks keeps sending.
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
