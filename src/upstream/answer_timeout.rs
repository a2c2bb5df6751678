//! How long an upstream may take to answer, when it takes long to ask.
//!
//! The time that a request takes on its way is not the upstream's: the clock begins anew with each piece of it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::resend::Resend;

/// The body of a request, whose pieces start a clock as they are taken.
#[derive(Debug)]
pub struct Paced<B> {
    body: B,
    clock: Clock,
}

/// Since when nothing was taken of a request.
#[derive(Clone, Debug)]
pub(super) struct Clock(Arc<Mutex<Instant>>);

impl<B> Paced<B> {
    pub(super) fn new(body: B, clock: Clock) -> Self {
        Self { body, clock }
    }
}

impl Clock {
    pub(super) fn start() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// What comes of `answer`, unless it lets the clock run for `limit`.
    pub(super) async fn bound<T>(
        &self,
        limit: Duration,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        loop {
            let left = limit.saturating_sub(self.since().elapsed());
            match tokio::time::timeout(left, answer.as_mut()).await {
                Ok(answer) => return Some(answer),
                Err(_elapsed) if self.since().elapsed() >= limit => return None,
                Err(_elapsed) => {}
            }
        }
    }

    fn restart(&self) {
        *self.since() = Instant::now();
    }

    fn since(&self) -> MutexGuard<'_, Instant> {
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
        if polled.is_ready() {
            self.clock.restart();
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

impl<B: Resend> Resend for Paced<B> {
    fn copy(&self) -> Option<Self> {
        Some(Self::new(self.body.copy()?, self.clock.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an answer comes that is there `thinking` seconds after the last of pieces that are taken at `pieces`.
    async fn is_in_time(pieces: &[u64], thinking: u64) -> bool {
        let (clock, limit) = (Clock::start(), Duration::from_secs(10));
        let answer = async {
            let begun = Instant::now();
            for piece in pieces {
                tokio::time::sleep_until(begun + Duration::from_secs(*piece)).await;
                clock.restart();
            }
            tokio::time::sleep(Duration::from_secs(thinking)).await;
        };
        clock.bound(limit, std::pin::pin!(answer)).await.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_comes_after_the_last_piece_counts() {
        for (pieces, thinking, expected) in [
            (&[][..], 9, true),
            (&[], 11, false),
            (&[9, 18, 27, 36], 9, true),
            (&[9, 18, 27, 36], 11, false),
            (&[9, 20], 0, false),
        ] {
            assert_eq!(is_in_time(pieces, thinking).await, expected, "{pieces:?} {thinking}");
        }
    }
}
