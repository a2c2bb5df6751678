//! An HTTP/1 connection that is driven by whoever uses it.
//!
//! hyper's connection is a future that somebody must poll. Giving it a task of its own costs two task switches
//! for every piece of an answer, and pieces that arrive together would leave one by one. Here the user of the
//! connection polls it, in the same turn in which it looks for what has come of that.

use std::error::Error as StdError;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest};

use super::connect::Stream;
use super::write_first::Cue;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How much earlier than the upstream a connection is given up.
const MARGIN: Duration = Duration::from_secs(1);

/// A connection, and the means to drive it.
pub(super) struct Http1Connection<B: Body + 'static> {
    sender: SendRequest<B>,
    /// `None` once it has ended.
    connection: Option<Connection<Stream, B>>,
    bell: Arc<Bell>,
    /// `bell` as the connection sees it; the same one every time, so that nothing is registered anew.
    waker: Waker,
    cue: Cue,
    /// How long the upstream says that it keeps it, when nothing is asked.
    kept: Option<Duration>,
}

/// Passes wake-ups on to the task that uses the connection, except those that a turn of that task causes itself.
#[derive(Default)]
struct Bell {
    /// A turn is under way.
    muted: AtomicBool,
    /// It rang during the turn.
    rang: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl<B> Http1Connection<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    pub(super) fn new(sender: SendRequest<B>, connection: Connection<Stream, B>, cue: Cue) -> Self {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        Self { sender, connection: Some(connection), bell, waker, cue, kept: None }
    }

    /// Sends `request` and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        self.cue.request();
        let mut answer = pin!(self.sender.try_send_request(request));
        std::future::poll_fn(|cx| self.turn(cx, |cx| answer.as_mut().poll(cx))).await
    }

    /// Notes how long the upstream keeps the connection, if `headers` of its answer say so.
    pub(super) fn note(&mut self, headers: &HeaderMap) {
        self.kept = headers.get(&KEEP_ALIVE).and_then(|value| kept(value.to_str().ok()?));
    }

    /// How long it may be used again, where that is at most `time`. A request takes a moment to arrive.
    pub(super) fn keeps(&self, time: Duration) -> Duration {
        self.kept.map_or(time, |kept| time.min(kept.saturating_sub(MARGIN)))
    }

    /// The next frame of `body`, which came from this connection.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.turn(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Whether another request can be sent. Wakes nobody from here on.
    pub(super) fn rest(&mut self) -> bool {
        *self.bell.task() = None;
        self.drive();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Whether another request can be sent, as far as the system knows of it now.
    pub(super) fn is_open(&mut self) -> bool {
        self.cue.doubt(true);
        let is_open = self.rest();
        // Bytes that arrive from here on are an answer.
        self.cue.doubt(false);
        is_open
    }

    /// Drives the connection and looks with `look` for what has come of it.
    fn turn<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.begin(cx.waker());
        self.drive();
        let seen = look(&mut Context::from_waker(&self.waker));
        self.bell.end(seen.is_pending());
        seen
    }

    fn drive(&mut self) {
        let cx = &mut Context::from_waker(&self.waker);
        // How it ended is told to the request or the body that was under way.
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None;
        }
    }
}

/// The time that a `keep-alive` header names.
fn kept(value: &str) -> Option<Duration> {
    let (_, seconds) = value
        .split(',')
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().trim_matches('"').parse().ok().map(Duration::from_secs)
}

impl Bell {
    fn begin(&self, task: &Waker) {
        self.muted.store(true, Ordering::Relaxed);
        self.rang.store(false, Ordering::Relaxed);
        let mut known = self.task();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }

    /// Whoever saw something will be back without being called. Whoever waits must hear what rang: it may have
    /// been more than the turn itself, such as a yield to other tasks.
    fn end(&self, waits: bool) {
        // Ordered against `wake_by_ref`: one of the two sees what the other did, so no ring is lost.
        self.muted.store(false, Ordering::SeqCst);
        if waits && self.rang.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        let task = self.task().clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if !self.muted.load(Ordering::SeqCst) {
            self.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_where_they_are_named() {
        for (value, expected) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 20", Some(20)),
            ("timeout=\"3\", max=1", Some(3)),
            ("max=100", None),
            ("timeout=soon", None),
            ("timeout", None),
            ("", None),
        ] {
            assert_eq!(kept(value), expected.map(Duration::from_secs), "{value}");
        }
    }
}
