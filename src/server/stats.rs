//! Counters of the server: connections, and requests that failed or were not answered as usual.
//!
//! Plain atomics that any thread may read at any time. Nothing here is on the path of a byte.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since start; `open_connections` and `open_requests` are levels.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: Counter,
    /// Connections open now.
    pub open_connections: Counter,
    /// Requests whose head was read.
    pub requests: Counter,
    /// Requests whose answer has not come to its end.
    pub open_requests: Counter,
    /// Answers that the gateway gave itself.
    pub refusals: Counter,
    /// Bodies of interest that went through unread: too large, or in an encoding that is not understood.
    pub unread_bodies: Counter,
    /// Those of them that were too large.
    pub large_bodies: Counter,
    /// Requests that went out edited.
    pub edited: Counter,
    /// Edited requests that were rejected and whose original was sent.
    pub originals_resent: Counter,
    /// Requests that were rejected, prepared anew and sent again.
    pub sent_again: Counter,
    /// Preparations that took longer than `rewrite_timeout`: the original went out.
    pub prepare_timeouts: Counter,
    /// Panics on the other side of the seam; nothing but the observation or the edit was lost.
    pub panics: Counter,
    /// Answers whose body could not be decoded for the observer.
    pub undecodable: Counter,
    /// Requests that got no answer head from upstream.
    pub upstream_failures: Counter,
    /// Answers that the upstream broke off.
    pub upstream_breaks: Counter,
    /// Answers broken off here because the upstream sent nothing for its idle time-out.
    pub upstream_stalls: Counter,
    /// Connections that did not finish within `drain_timeout`.
    pub cut_connections: Counter,
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its present value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn increment(&self) {
        self.add(1);
    }

    /// Counts one more, and says whether it is the first.
    pub(super) fn begins(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
