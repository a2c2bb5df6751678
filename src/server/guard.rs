//! Keeps panics in the gateway's code from reaching the traffic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::stats::Stats;

/// Runs `work`. If it panics, counts that and returns `None`; what `work` was changing must not be used after that.
pub(super) fn guard<T>(stats: &Stats, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    if outcome.is_none() {
        stats.panics.increment();
    }
    outcome
}

/// Awaits `work`. If a poll of it panics, counts that and returns `None`.
pub(super) async fn guard_future<T>(stats: Arc<Stats>, work: impl Future<Output = Option<T>>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| guard(&stats, || work.as_mut().poll(cx)).unwrap_or(Poll::Ready(None))).await
}
