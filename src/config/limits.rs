//! `[limits]`: nothing in the gateway grows or waits without one of these.

use std::time::Duration;

use super::section::Section;
use super::size::ByteSize;

/// The bounds on memory, time and concurrency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest request body that is read; a longer one streams through unread.
    pub max_body: ByteSize,
    /// How long a client's connection may be silent before or within a request's head.
    pub idle_timeout: Duration,
    /// The most client connections at a time.
    pub max_connections: usize,
    /// How long a rewrite may take before the original goes instead. What was sent in another form before waits to be sent
    /// so again; to find that out, it is read for ten times as long at most.
    pub rewrite_timeout: Duration,
    /// How long requests in flight may take to finish after a shutdown is asked for.
    pub drain_timeout: Duration,
    /// Memory for indexes of messages seen before; 0: none.
    pub memo: ByteSize,
    /// The most that may wait to be written, decisions and ledger records alike.
    pub queue: usize,
    /// Worker threads; 0: as many as are usual on the machine.
    pub workers: usize,
}

const fn mebibytes(n: usize) -> ByteSize {
    ByteSize::new(n << 20)
}

const fn kibibytes(n: usize) -> ByteSize {
    ByteSize::new(n << 10)
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn read(section: &mut Section<'_, '_>) -> Limits {
    Limits {
        max_body: section.within("max_body", kibibytes(1)..=mebibytes(1024), mebibytes(64)),
        idle_timeout: section.within("idle_timeout", SECOND..=24 * HOUR, HOUR / 4),
        max_connections: section.within("max_connections", 1..=1_000_000, 1024),
        rewrite_timeout: section.within("rewrite_timeout", SECOND / 1000..=60 * SECOND, 2 * SECOND),
        drain_timeout: section.within("drain_timeout", Duration::ZERO..=HOUR, 10 * SECOND),
        memo: section.within("memo", ByteSize::new(0)..=mebibytes(64 << 10), mebibytes(16)),
        queue: section.within("queue", 1..=1_000_000, 16384),
        workers: section.within("workers", 0..=1024, 0),
    }
}
