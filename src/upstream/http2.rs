//! An HTTP/2 connection, shared by requests.
//!
//! Takes a new stream only below its bound: the upstream would let further ones wait, in silence, for others to
//! end. All streams together never use up what the connection may receive ahead of its readers, so that one that
//! is not read holds up none of the others.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::client::conn::http2::{Connection, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use super::connect::Made;

/// Streams on one connection, where the upstream allows as many.
const MAX_STREAMS: u32 = 64;
/// Bytes of one answer that are received ahead of its reader.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// The same, for all of them.
pub(super) const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// A connection for several requests at a time.
pub(super) struct Http2Connection<B: Body + 'static> {
    sender: SendRequest<B>,
    connection: Arc<dyn Bounded>,
    state: Arc<State>,
}

/// A connection, seen from beside the task that drives it.
trait Bounded: Send + Sync {
    /// Streams that the upstream allows, if that can be told now.
    fn max_streams(&self) -> Option<usize>;
}

/// `None` once it has ended.
type Driven<B> = Mutex<Option<Connection<Made, B, TokioExecutor>>>;

#[derive(Default)]
struct State {
    streams: AtomicUsize,
    is_retired: AtomicBool,
    /// When a stream was last closed.
    left_at: Mutex<Option<Instant>>,
}

/// Room for one stream.
pub(super) struct Seat<B: Body + 'static> {
    sender: SendRequest<B>,
    stream: Stream,
}

/// Counts a stream for as long as it is open.
pub(super) struct Stream(Arc<State>);

impl<B> Http2Connection<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// Starts a task that drives `connection`, which ends with the last stream once nothing more can be sent.
    pub(super) fn start(
        sender: SendRequest<B>,
        connection: Connection<Made, B, TokioExecutor>,
        executor: &TokioExecutor,
    ) -> Self {
        let driven = Arc::new(Mutex::new(Some(connection)));
        executor.execute(drive(Arc::clone(&driven)));
        Self { sender, connection: driven, state: Arc::default() }
    }

    /// Whether it may be given streams, now or later.
    pub(super) fn is_usable(&self) -> bool {
        self.sender.is_ready() && !self.state.is_retired.load(Ordering::Relaxed)
    }

    /// Room for one more stream, if there is any, and the connection was not without streams for `keep_alive`: what has
    /// become of it in that time may show only when an answer does not come.
    pub(super) fn seat(&self, keep_alive: Duration) -> Option<Seat<B>> {
        let has_room = self.state.streams.load(Ordering::Relaxed) < self.max_streams();
        (has_room && self.is_usable() && !self.has_idled(keep_alive)).then(|| self.take_seat())
    }

    /// The same without asking, for a connection that has no streams yet.
    pub(super) fn take_seat(&self) -> Seat<B> {
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        Seat { sender: self.sender.clone(), stream: Stream(Arc::clone(&self.state)) }
    }

    /// Whether it has been without streams for so long.
    pub(super) fn has_idled(&self, time: Duration) -> bool {
        let left_at = *self.state.left_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.streams.load(Ordering::Relaxed) == 0 && left_at.is_some_and(|left| left.elapsed() >= time)
    }

    fn max_streams(&self) -> usize {
        let ours = MAX_STREAMS as usize;
        let theirs = self.connection.max_streams();
        theirs.map_or(ours, |theirs| theirs.clamp(1, ours))
    }
}

impl<B> Bounded for Driven<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    fn max_streams(&self) -> Option<usize> {
        // Never waited for: if it is being driven just now, the next request will see.
        self.try_lock().ok()?.as_ref().map(Connection::current_max_send_streams)
    }
}

async fn drive<B>(driven: Arc<Driven<B>>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
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

impl<B: Body + 'static> Seat<B> {
    /// What to send with, and what to keep while the stream is open.
    pub(super) fn into_parts(self) -> (SendRequest<B>, Stream) {
        (self.sender, self.stream)
    }
}

impl Stream {
    /// Has its connection take no further streams. Those that are open go on.
    pub(super) fn retire_connection(&self) {
        self.0.is_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.0.left_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
