//! The body of an answer on its way to the client.
//!
//! Every byte is passed on as soon as it arrives, in order and unchanged. Pieces that are available at the same time
//! are merged; nothing ever waits for more. If the upstream breaks off, or is silent for too long, the client's answer
//! breaks off too and never looks complete. Observers see copies.

mod answer;
mod rest;

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::body::{BodyError, Gathered, Received, Replay};
use super::exchange::End;
use super::stats::Stats;
use super::tap::Tap;
use crate::upstream::{Upstream, root_cause};

pub(super) use answer::Answer;

/// Pieces that are available at the same time are merged up to about this many bytes.
const MERGED_BYTES: usize = 16 * 1024;
/// The most pieces that are merged. After that, they are written before more is read, and other connections get a turn.
const MERGED_PIECES: usize = 64;

/// The body of an upstream's answer, as it is passed on to the client.
pub(super) struct Relay<B = Received> {
    source: Replay<B>,
    tap: Tap,
    patience: Patience,
    /// What follows the piece that was last handed on.
    next: Next,
    upstream: Arc<Upstream>,
    stats: Arc<Stats>,
}

/// How an answer goes on. Before a variant named `Later`, one poll returns `Pending`, so that hyper first writes what
/// was handed on before.
enum Next {
    /// Whatever the source has next.
    More,
    MoreLater,
    /// A piece that was read, but is too large to be worth merging with the ones before it.
    Piece(Bytes),
    Trailers(HeaderMap),
    Break(Broken),
    BreakLater(Broken),
    End,
}

/// Why an answer is incomplete.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the upstream broke off")]
    Upstream(#[source] BodyError),
    #[error("the upstream sent nothing for {0:?}")]
    Silent(Duration),
}

/// How long the upstream may be silent. The timer is reset only when it fires, not for every piece.
struct Patience {
    limit: Duration,
    last_heard: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> Relay<B> {
    pub(super) fn new(source: Replay<B>, tap: Tap, upstream: &Arc<Upstream>, stats: &Arc<Stats>) -> Self {
        let patience = Patience::new(upstream.timeouts().idle);
        let (upstream, stats) = (Arc::clone(upstream), Arc::clone(stats));
        let mut relay = Self { source, tap, patience, next: Next::More, upstream, stats };
        if relay.source.is_end_stream() {
            relay.tap.end(End::Complete);
            relay.next = Next::End;
        }
        relay
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if matches!(self.next, Next::More) {
            let piece = ready!(self.poll_piece(cx));
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(self.hand_on(piece))));
            }
        }
        match mem::replace(&mut self.next, Next::End) {
            Next::More | Next::MoreLater => {
                self.next = Next::More;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Next::Piece(piece) => {
                self.next = self.after_data();
                Poll::Ready(Some(Ok(self.hand_on(piece))))
            }
            Next::Trailers(trailers) => {
                self.tap.end(End::Complete);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Next::BreakLater(broken) => {
                self.next = Next::Break(broken);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Next::Break(broken) => {
                self.tap.end(match &broken {
                    Broken::Upstream(_) => End::UpstreamBroke,
                    Broken::Silent(limit) => End::UpstreamSilent(*limit),
                });
                Poll::Ready(Some(Err(broken)))
            }
            Next::End => {
                self.tap.end(End::Complete);
                Poll::Ready(None)
            }
        }
    }

    /// The data that is available now, in one piece. It is empty if something other than data comes next. Sets `next`
    /// to what follows it.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let (mut gathered, mut pieces) = (Gathered::new(0), 0);
        while pieces < MERGED_PIECES {
            self.next = match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if gathered.len() > 0 && data.len() > MERGED_BYTES => Next::Piece(data),
                    Ok(data) => {
                        gathered.push(data);
                        self.after_data()
                    }
                    Err(frame) => frame.into_trailers().map_or(Next::End, Next::Trailers),
                },
                Poll::Ready(Some(Err(error))) => self.report_break(Broken::Upstream(error)),
                Poll::Ready(None) => Next::End,
                Poll::Pending if gathered.len() == 0 => {
                    ready!(self.patience.poll_exhausted(cx));
                    self.report_break(Broken::Silent(self.patience.limit))
                }
                Poll::Pending => break,
            };
            pieces += 1;
            if !matches!(self.next, Next::More) || gathered.len() >= MERGED_BYTES {
                break;
            }
        }
        if pieces == MERGED_PIECES && matches!(self.next, Next::More) {
            self.next = Next::MoreLater;
        }
        self.patience.heard();
        Poll::Ready(gathered.into_bytes())
    }

    /// What follows a piece of data.
    fn after_data(&self) -> Next {
        if self.source.is_end_stream() { Next::End } else { Next::More }
    }

    /// Counts and logs that an answer is incomplete. Returns the break that follows what was handed on.
    fn report_break(&self, broken: Broken) -> Next {
        let upstream = self.upstream.name();
        match &broken {
            Broken::Upstream(error) => {
                self.stats.upstream_breaks.increment();
                tracing::warn!(upstream, error = %root_cause(error.as_ref()), "an upstream broke off its answer");
            }
            Broken::Silent(limit) => {
                self.stats.upstream_stalls.increment();
                let idle_timeout = format!("{limit:?}");
                tracing::warn!(
                    upstream,
                    idle_timeout,
                    "an answer is broken off: its upstream sends nothing more"
                );
            }
        }
        Next::BreakLater(broken)
    }

    fn hand_on(&mut self, piece: Bytes) -> Frame<Bytes> {
        self.tap.handed_on(&piece);
        if self.is_complete() {
            self.tap.end(End::Complete);
        }
        Frame::data(piece)
    }

    /// Whether all data was handed on. If the answer declares its length, hyper does not poll again after its last
    /// byte, although the source may report the end only later.
    fn is_complete(&self) -> bool {
        match self.next {
            Next::End => true,
            Next::More | Next::MoreLater | Next::Trailers(_) => self.source.size_hint().exact() == Some(0),
            Next::Piece(_) | Next::Break(_) | Next::BreakLater(_) => false,
        }
    }
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { limit, last_heard: Instant::now(), timer: None }
    }

    fn heard(&mut self) {
        self.last_heard = Instant::now();
    }

    /// Ready once nothing has been heard for the limit.
    fn poll_exhausted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.last_heard + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
