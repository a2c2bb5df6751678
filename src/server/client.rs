//! The state of a client connection, for as long as it is open.
//!
//! Its socket and its requests update it. It is read when the connection ends, or when one must be closed. Nothing
//! waits for its lock for long.

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
    is_http_1_0: AtomicBool,
    is_sending: AtomicBool,
    activity: Mutex<Activity>,
    close_asked: Notify,
}

/// Whether the connection is idle, and since when.
struct Activity {
    /// Requests in progress.
    requests: usize,
    /// Since when the connection has been idle; `None` if it is not, or was asked to close.
    idle_since: Option<Instant>,
    /// Whether the connection was asked to close, and the client has sent nothing since.
    is_dismissed: bool,
}

/// Counts a request as in progress until this is dropped.
pub(super) struct RequestGuard {
    client: Arc<Client>,
    stats: Arc<Stats>,
}

/// An answer that keeps its request counted as in progress until it is dropped.
pub(super) struct GuardedAnswer<B> {
    answer: B,
    _guard: RequestGuard,
}

/// The body of a request. Its client counts as sending until the body has ended.
pub(super) struct Upload {
    body: Incoming,
    /// `None` for HTTP/2, where requests share the connection: the end of one body says nothing about it.
    client: Option<Arc<Client>>,
}

impl Client {
    /// Whether the client speaks HTTP/1.0.
    pub(super) fn is_http_1_0(&self) -> bool {
        self.is_http_1_0.load(Ordering::Relaxed)
    }

    /// Whether part of the last request has not been read.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Whether the client has sent a complete request and not yet received the complete answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_sending() && self.activity().requests > 0
    }

    /// Whether no request is in progress.
    pub(super) fn is_between_requests(&self) -> bool {
        self.activity().requests == 0
    }

    /// Whether the client has sent something since its last request that is not a whole request head yet.
    pub(super) fn has_begun_request(&self) -> bool {
        let activity = self.activity();
        activity.requests == 0 && activity.idle_since.is_none()
    }

    /// Since when the connection has been idle.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.activity().idle_since
    }

    /// Waits until the connection has been idle for this long.
    pub(super) async fn wait_until_idle(&self, time: Duration) {
        loop {
            let since = self.idle_since().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(since + time).await;
            if self.idle_since().is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }

    /// Records that the client has sent something.
    pub(super) fn record_received(&self) {
        let mut activity = self.activity();
        activity.idle_since = None;
        activity.is_dismissed = false;
    }

    /// Asks the connection to close unless the client sends something first. Returns `false` if it is not idle.
    pub(super) fn ask_to_close(&self) -> bool {
        let mut activity = self.activity();
        activity.is_dismissed = activity.idle_since.take().is_some();
        if activity.is_dismissed {
            self.close_asked.notify_one();
        }
        activity.is_dismissed
    }

    /// Waits until the connection must close. To be polled only after everything that has arrived was read.
    pub(super) async fn wait_for_dismissal(&self) {
        loop {
            self.close_asked.notified().await;
            // Gives the connection a turn to read what has arrived meanwhile.
            tokio::task::yield_now().await;
            if self.activity().is_dismissed {
                return;
            }
        }
    }

    /// Counts a request as in progress.
    pub(super) fn begin_request(self: &Arc<Self>, stats: &Arc<Stats>) -> RequestGuard {
        self.record_received();
        self.activity().requests += 1;
        stats.open_requests.increment();
        RequestGuard { client: Arc::clone(self), stats: Arc::clone(stats) }
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the version of the next request, and follows its body.
    pub(super) fn follow(self: &Arc<Self>, request: Request<Incoming>) -> Request<Upload> {
        let version = request.version();
        let client = (version < Version::HTTP_2).then(|| Arc::clone(self));
        if let Some(client) = &client {
            client.is_http_1_0.fetch_or(version == Version::HTTP_10, Ordering::Relaxed);
            client.is_sending.store(!request.body().is_end_stream(), Ordering::Relaxed);
        }
        request.map(|body| Upload { body, client })
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self { requests: 0, idle_since: Some(Instant::now()), is_dismissed: false }
    }
}

impl RequestGuard {
    pub(super) fn attach<B>(self, answer: B) -> GuardedAnswer<B> {
        GuardedAnswer { answer, _guard: self }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.stats.open_requests.decrement();
        let mut activity = self.client.activity();
        activity.requests -= 1;
        if activity.requests == 0 {
            activity.idle_since = Some(Instant::now());
        }
    }
}

impl<B: Body + Unpin> Body for GuardedAnswer<B> {
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
