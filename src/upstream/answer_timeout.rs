//! The time-out for an upstream's answer.
//!
//! The time that the client takes to send its request does not count against the upstream. The clock restarts with each
//! piece of the request, and the time during which the next piece is awaited counts against the client.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::SendError;
use super::resend::RequestBody;

/// The body of a request, which restarts a clock as its pieces are taken.
#[derive(Debug)]
pub struct Paced<B> {
    body: B,
    clock: Clock,
}

/// Measures the time since a piece of the request was last taken, or since the wait for the next one began.
#[derive(Clone, Debug)]
pub(super) struct Clock(Arc<Mutex<Since>>);

/// What the clock measures at present.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    /// Whether the next piece of the request is awaited from the client.
    awaits_client: bool,
    /// Whether any piece of the request was taken.
    has_begun: bool,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, clock: Clock) -> Self {
        Self { body, clock }
    }
}

impl Clock {
    pub(super) fn start() -> Self {
        Self(Arc::new(Mutex::new(Since { at: Instant::now(), awaits_client: false, has_begun: false })))
    }

    /// Awaits `answer`, for as long as the clock allows.
    ///
    /// # Errors
    /// If the clock has run for `limit`: [`SendError::Stalled`] while waiting for the client, [`SendError::TimedOut`]
    /// while waiting for the upstream, and [`SendError::Unreached`] if no connection was made until then.
    pub(super) async fn bound<T>(
        &self,
        limit: Duration,
        mut answer: Pin<&mut impl Future<Output = Result<T, SendError>>>,
    ) -> Result<T, SendError> {
        loop {
            let deadline = self.since().at + limit;
            if let Ok(answer) = tokio::time::timeout_at(deadline, answer.as_mut()).await {
                return answer;
            }
            let Since { at, awaits_client, has_begun } = *self.since();
            if at.elapsed() >= limit {
                return Err(match (awaits_client, has_begun) {
                    (true, _) => SendError::Stalled,
                    (false, true) => SendError::TimedOut,
                    (false, false) => SendError::Unreached,
                });
            }
        }
    }

    /// Restarts the clock: a piece of the request, or its end, was taken.
    fn restart(&self) {
        *self.since() = Since { at: Instant::now(), awaits_client: false, has_begun: true };
    }

    /// Begins to wait for the client: the next piece of the request has not arrived.
    fn wait(&self) {
        let mut since = self.since();
        if !since.awaits_client {
            *since = Since { at: Instant::now(), awaits_client: true, ..*since };
        }
    }

    fn since(&self) -> MutexGuard<'_, Since> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body + Unpin> Body for Paced<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match polled {
            Poll::Ready(_) => self.clock.restart(),
            Poll::Pending => self.clock.wait(),
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

impl<B: RequestBody> RequestBody for Paced<B> {
    fn copy(&self) -> Option<Self> {
        Some(Self::new(self.body.copy()?, self.clock.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Pieces of a request, each of which comes after this many seconds, and the wait for the next.
    struct Slow(VecDeque<u64>, Option<Pin<Box<tokio::time::Sleep>>>);

    impl Body for Slow {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            let Some(comes) = self.0.front().copied() else { return Poll::Ready(None) };
            let sleep =
                self.1.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs(comes))));
            std::task::ready!(sleep.as_mut().poll(cx));
            self.1 = None;
            self.0.pop_front();
            Poll::Ready(Some(Ok(Frame::data("x".into()))))
        }
    }

    /// The error of a request of which each piece takes the client some seconds to send and the upstream some to
    /// accept, and which is answered `thinking` seconds after its end.
    async fn ends(pieces: &[(u64, u64)], thinking: u64) -> Result<(), SendError> {
        let (clock, limit) = (Clock::start(), Duration::from_secs(10));
        let come = pieces.iter().map(|(comes, _)| *comes).collect();
        let mut body = Paced::new(Slow(come, None), clock.clone());
        let answer = async {
            for (_, takes) in pieces {
                let _ = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                tokio::time::sleep(Duration::from_secs(*takes)).await;
            }
            tokio::time::sleep(Duration::from_secs(thinking)).await;
            Ok(())
        };
        clock.bound(limit, std::pin::pin!(answer)).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_timeout_begins_with_the_last_piece_of_the_request() {
        let (upstream, client) =
            ("no answer in time", "nothing more of the request came from the client in time");
        for (pieces, thinking, expected) in [
            (&[][..], 9, None),
            (&[], 11, Some(upstream)),
            (&[(9, 0), (9, 0), (9, 0)], 9, None),
            (&[(0, 9), (0, 9), (0, 9)], 0, None),
            (&[(9, 9), (9, 9)], 0, None),
            (&[(9, 0), (9, 0)], 11, Some(upstream)),
            (&[(0, 11), (0, 0)], 0, Some(upstream)),
            (&[(9, 0), (11, 0)], 0, Some(client)),
        ] {
            let found = ends(pieces, thinking).await.err();
            let is_unsent = found.as_ref().is_some_and(SendError::is_unsent);
            assert_eq!(is_unsent, expected.is_some() && pieces.is_empty(), "{pieces:?} {thinking}");
            let found = found.map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{pieces:?} {thinking}");
        }
    }
}
