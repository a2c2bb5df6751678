//! Keeps panics on the other side of the seam from reaching the traffic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::stats::Stats;

/// Runs `work`; a panic in it is counted and gives `None`. What `work` was changing must not be used after
/// that.
pub(super) fn guard<T>(stats: &Stats, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    if outcome.is_none() {
        stats.panics.increment();
    }
    outcome
}

/// Awaits `work`, which ends with `None` if a poll of it panics.
pub(super) async fn guard_future<T>(stats: Arc<Stats>, work: impl Future<Output = Option<T>>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| guard(&stats, || work.as_mut().poll(cx)).unwrap_or(Poll::Ready(None))).await
}
