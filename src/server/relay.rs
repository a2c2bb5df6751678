//! The body of an answer on its way to the client.
//!
//! Every byte is passed on as soon as it is there, in order and unchanged; an upstream that breaks off, or
//! falls silent for too long, is passed on as a break and never as an end. Watching happens on copies.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body::Replay;
use super::exchange::End;
use super::stats::Stats;
use super::tap::Tap;

/// The body of any answer that the server gives.
pub(super) enum Answer {
    /// Made here.
    Own(Option<Bytes>),
    /// An upstream's.
    Relayed(Box<Relay>),
}

/// An upstream's answer, passed on.
pub(super) struct Relay {
    source: Replay,
    tap: Tap,
    patience: Patience,
    /// What the body will end with, once everything before it was written.
    broken: Option<Broken>,
    stats: Arc<Stats>,
}

/// Why an answer is not whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the upstream broke off")]
    Upstream(#[source] hyper::Error),
    #[error("the upstream sent nothing for {0:?}")]
    Silent(Duration),
}

/// How long the upstream may be silent. The timer is touched only when it fires, not for every byte.
struct Patience {
    limit: Duration,
    last_heard: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Relay {
    pub(super) fn new(source: Replay, mut tap: Tap, idle_timeout: Duration, stats: &Arc<Stats>) -> Self {
        if source.is_end_stream() {
            tap.end(End::Complete);
        }
        Self { source, tap, patience: Patience::new(idle_timeout), broken: None, stats: Arc::clone(stats) }
    }

    fn hand_on(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.patience.heard();
        if let Some(piece) = frame.data_ref() {
            self.tap.handed_on(piece);
        }
        if self.source.is_end_stream() {
            self.tap.end(End::Complete);
        }
        frame
    }

    /// Ends the body with `broken`, after one more turn: what was handed on before is written first.
    fn break_off(&mut self, broken: Broken, cx: &Context<'_>) {
        match &broken {
            Broken::Upstream(_) => self.stats.upstream_breaks.increment(),
            Broken::Silent(_) => self.stats.upstream_stalls.increment(),
        }
        tracing::debug!(error = %broken, "an answer ends early");
        self.tap.end(End::UpstreamBroke);
        self.broken = Some(broken);
        cx.waker().wake_by_ref();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(broken) = self.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        match Pin::new(&mut self.source).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(self.hand_on(frame)))),
            Poll::Ready(None) => {
                self.tap.end(End::Complete);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.break_off(Broken::Upstream(error), cx);
                Poll::Pending
            }
            Poll::Pending => {
                ready!(self.patience.poll_exhausted(cx));
                self.break_off(Broken::Silent(self.patience.limit), cx);
                Poll::Pending
            }
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

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relayed(relay) => {
                relay.poll(cx).map(|frame| frame.map(|frame| frame.map_err(Self::Error::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Relayed(relay) => relay.source.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relayed(relay) => relay.source.size_hint(),
        }
    }
}
