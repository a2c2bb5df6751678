//! An HTTP/1 connection that is polled by the task that uses it.
//!
//! hyper's connection is a future that somebody must poll. A task of its own would cost two task switches for every
//! piece of a response, and pieces that arrive together would be passed on one by one. Here each poll of a response
//! first polls the connection, then looks for the result. Only the first piece of a body, which often comes with the
//! head, is looked for before that, too.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest};

use super::bell::Bell;
use super::connect::Stream;
use super::resend::RequestBody;
use super::way::Way;
use super::write_first::Signals;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// A connection is given up this long before the upstream's own keep-alive time ends.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection, and what is needed to poll it.
pub(super) struct Http1Connection<B: RequestBody> {
    sender: SendRequest<B>,
    /// `None` once it has ended.
    connection: Option<Connection<Stream, B>>,
    bell: Arc<Bell>,
    /// The waker of `bell`. The connection always gets the same waker, so that it need not register a new one.
    waker: Waker,
    signals: Signals,
    /// Whether the head of an answer was handed out, and nothing of its body was asked for yet.
    is_head_new: bool,
    /// How long the upstream keeps an idle connection, if it said so.
    keep_alive: Option<Duration>,
    way: Way,
}

impl<B: RequestBody> Http1Connection<B> {
    pub(super) fn new(
        sender: SendRequest<B>,
        connection: Connection<Stream, B>,
        signals: Signals,
        way: Way,
    ) -> Self {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let connection = Some(connection);
        Self { sender, connection, bell, waker, signals, is_head_new: false, keep_alive: None, way }
    }

    /// Sends `request` and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        self.signals.begin_request();
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = std::future::poll_fn(|cx| self.poll_with(cx, |cx| answer.as_mut().poll(cx))).await;
        self.is_head_new = answered.is_ok();
        answered
    }

    /// Records how long the upstream keeps the connection, if the `headers` of its response say so.
    pub(super) fn record_keep_alive(&mut self, headers: &HeaderMap) {
        self.keep_alive = headers.get(&KEEP_ALIVE).and_then(|value| keep_alive(value.to_str().ok()?));
    }

    /// Whether the connection, which is idle, has been so for less than `limit`, or than the upstream keeps it. Leaves
    /// a margin for the time that a request takes to arrive.
    pub(super) fn may_be_kept(&self, limit: Duration) -> bool {
        let kept = self.keep_alive.map(|kept| kept.saturating_sub(KEEP_ALIVE_MARGIN));
        self.way.silence() < kept.map_or(limit, |kept| limit.min(kept))
    }

    /// The next frame of `body`, which came from this connection.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut look = |cx: &mut Context<'_>| Pin::new(&mut *body).poll_frame(cx);
        if mem::take(&mut self.is_head_new) {
            self.bell.begin(cx.waker());
            let found = look(&mut Context::from_waker(&self.waker));
            self.bell.end(false);
            if found.is_ready() {
                return found;
            }
        }
        self.poll_with(cx, look)
    }

    /// Ends an exchange: an answer has come to its end just now. Returns whether another request can be sent.
    pub(super) fn end_exchange(&mut self) -> bool {
        self.way.record();
        self.park()
    }

    /// Detaches the connection from the task that used it, which is not woken any more, and polls it once. Returns
    /// whether another request can be sent.
    pub(super) fn park(&mut self) -> bool {
        self.bell.forget_task();
        self.drive();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Like [`Self::park`], but also asks the system whether the upstream has closed the connection, and whether there
    /// is still a way to it.
    pub(super) fn check_open(&mut self) -> bool {
        if !self.way.is_open() {
            return false;
        }
        self.signals.expect_silence(true);
        let is_open = self.park();
        // Bytes that arrive from here on are a response.
        self.signals.expect_silence(false);
        is_open
    }

    /// Polls the connection, then calls `look` for a result.
    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.begin(cx.waker());
        self.drive();
        let found = look(&mut Context::from_waker(&self.waker));
        self.bell.end(found.is_pending());
        found
    }

    /// Polls the connection.
    fn drive(&mut self) {
        let cx = &mut Context::from_waker(&self.waker);
        // An error of the connection is reported by the request or the body under way.
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None;
        }
    }
}

/// The `timeout` parameter of a `Keep-Alive` field.
fn keep_alive(value: &str) -> Option<Duration> {
    let (_, seconds) = value
        .split(',')
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().trim_matches('"').parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keep_alive_timeout_is_read() {
        for (value, expected) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 20", Some(20)),
            ("timeout=\"3\", max=1", Some(3)),
            ("max=100", None),
            ("timeout=soon", None),
            ("timeout", None),
            ("", None),
        ] {
            assert_eq!(keep_alive(value), expected.map(Duration::from_secs), "{value}");
        }
    }
}
