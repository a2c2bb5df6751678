//! An HTTP/2 connection, shared by requests.
//!
//! A new stream is opened only below the limits of both sides: beyond them it would wait, unnoticed, for others to end.
//! The connection's flow-control window is as large as those of all its streams together, so that a stream that is not
//! read holds up none of the others.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http2::{Connection, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use super::connect::SharedStream;
use super::opening::{Heard, Hearing};
use super::resend::RequestBody;
use super::way::Way;

/// The most streams on one connection; fewer if the upstream allows fewer.
const MAX_STREAMS: u32 = 64;
/// The flow-control window of a stream, in bytes: how much of an answer is received ahead of its reader.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// The flow-control window of a connection, in bytes.
pub(super) const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// A connection for several requests at a time.
pub(super) struct Http2Connection<B: RequestBody> {
    sender: SendRequest<B>,
    connection: Arc<Driven<B>>,
    state: Arc<State>,
}

/// What has been found of an upstream's HTTP/2.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// It has turned out to be unusable.
    is_given_up: AtomicBool,
    /// A request was answered with it.
    has_answered: AtomicBool,
}

/// A connection that a task drives; `None` once it has ended.
type Driven<B> = Mutex<Option<Connection<SharedStream, B, TokioExecutor>>>;

struct State {
    streams: AtomicUsize,
    is_retired: AtomicBool,
    /// When a stream was last closed.
    left_at: Mutex<Option<Instant>>,
    hearing: Hearing,
    way: Mutex<Way>,
}

/// Counts a stream for as long as it is open.
pub(super) struct Stream {
    state: Arc<State>,
    /// Whether an answer has begun.
    is_answered: bool,
}

/// Room for one stream on a connection: the sender for a request, and a guard to keep while the stream is open.
pub(super) type Slot<B> = (SendRequest<B>, Stream);

impl Findings {
    /// Whether HTTP/1.1 alone is offered.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Gives HTTP/2 up from now on. Returns whether this is new.
    pub(super) fn give_up(&self) -> bool {
        !self.is_given_up.swap(true, Ordering::Relaxed)
    }

    /// Offers HTTP/2 again if it was given up.
    pub(super) fn take_up(&self) {
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(super) fn record_answer(&self) {
        if !self.has_answered() {
            self.has_answered.store(true, Ordering::Relaxed);
        }
    }
}

impl<B: RequestBody> Http2Connection<B> {
    /// Starts a task that drives `connection`. The task ends with the last stream, once the connection takes no more.
    pub(super) fn start(
        sender: SendRequest<B>,
        connection: Connection<SharedStream, B, TokioExecutor>,
        hearing: Hearing,
        way: Way,
        executor: &TokioExecutor,
    ) -> Self {
        let driven = Arc::new(Mutex::new(Some(connection)));
        executor.execute(drive(Arc::clone(&driven)));
        let state = State {
            streams: AtomicUsize::default(),
            is_retired: AtomicBool::default(),
            left_at: Mutex::default(),
            hearing,
            way: Mutex::new(way),
        };
        Self { sender, connection: driven, state: Arc::new(state) }
    }

    /// Whether the connection may be given further streams, now or later.
    pub(super) fn is_usable(&self) -> bool {
        self.sender.is_ready() && !self.state.is_retired.load(Ordering::Relaxed)
    }

    /// Room for one more stream. `None` if there is no room, or if the connection has had no streams for `keep_alive`:
    /// it may be dead by then, which might show only when no answer comes. A connection without a way to its other end
    /// takes no further streams.
    pub(super) fn slot(&self, keep_alive: Duration) -> Option<Slot<B>> {
        let has_room = self.state.streams.load(Ordering::Relaxed) < self.max_streams();
        if !has_room || !self.is_usable() || self.has_idled(keep_alive) {
            return None;
        }
        if !self.state.way().is_open() {
            self.state.retire();
            return None;
        }
        Some(self.take_slot())
    }

    /// Room for one more stream on a connection that has no streams yet. Nothing is checked.
    pub(super) fn take_slot(&self) -> Slot<B> {
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        (self.sender.clone(), Stream { state: Arc::clone(&self.state), is_answered: false })
    }

    /// Whether the connection has had no streams for at least `time`.
    pub(super) fn has_idled(&self, time: Duration) -> bool {
        let left_at = *self.state.left_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.streams.load(Ordering::Relaxed) == 0 && left_at.is_some_and(|left| left.elapsed() >= time)
    }

    fn max_streams(&self) -> usize {
        let ours = MAX_STREAMS as usize;
        // This does not wait for the lock: while the connection is being polled, our own limit applies.
        let connection = self.connection.try_lock().ok();
        let theirs = connection.and_then(|connection| Some(connection.as_ref()?.current_max_send_streams()));
        theirs.map_or(ours, |theirs| theirs.clamp(1, ours))
    }
}

/// Polls a connection until it ends.
async fn drive<B: RequestBody>(driven: Arc<Driven<B>>) {
    let ended = poll_fn(|cx| {
        let mut driven = driven.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = driven.as_mut() else { return Poll::Ready(Ok(())) };
        let polled = Pin::new(connection).poll(cx);
        if polled.is_ready() {
            *driven = None;
        }
        polled
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "an upstream connection ended in an error");
    }
}

impl State {
    /// Lets the connection take no further streams.
    fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Lets its connection take no further streams. Open ones go on.
    pub(super) fn retire_connection(&self) {
        self.state.retire();
    }

    /// What its connection has begun with.
    pub(super) fn heard(&self) -> Heard {
        self.state.hearing.heard()
    }

    /// Records that its answer has begun, or ended, just now.
    pub(super) fn record_answer(&mut self) {
        self.is_answered = true;
        self.state.way().record();
    }
}

impl Drop for Stream {
    /// A request that was given up without an answer, while nothing else came either, may be given up because the
    /// connection is dead: the next one is sent on another.
    fn drop(&mut self) {
        if !self.is_answered && self.state.way().is_silent() {
            self.state.retire();
        }
        *self.state.left_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.state.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
