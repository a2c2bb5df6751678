//! `[limits]`: the bounds that hold for everything in the gateway that grows or waits.

use std::time::Duration;

use super::period::{HOUR, SECOND};
use super::section::Section;
use super::size::ByteSize;

/// The bounds on memory, time and concurrency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The size of the longest request body that is read; longer ones are streamed through unread.
    pub max_body: ByteSize,
    /// How long a client's connection may be silent before or within the head of a request.
    pub idle_timeout: Duration,
    /// The maximum number of client connections at a time.
    pub max_connections: usize,
    /// How long a rewrite may take before the original is sent instead. A request whose history was edited before is
    /// given more time, so that it is sent in that form again; to find out, every request is read for at most ten times
    /// as long.
    pub rewrite_timeout: Duration,
    /// How long requests in flight may take to finish after a shutdown was requested. By default less than the ten
    /// seconds after which Docker kills a container, so that the records of those that are cut are still written.
    pub drain_timeout: Duration,
    /// Memory for indexes of messages seen before; 0 for none.
    pub memo: ByteSize,
    /// The maximum number of entries that wait to be written, decisions and ledger records alike.
    pub queue: usize,
    /// The number of worker threads; 0 for one per core, up to 4.
    pub workers: usize,
}

const fn mebibytes(n: usize) -> ByteSize {
    ByteSize::new(n << 20)
}

const fn kibibytes(n: usize) -> ByteSize {
    ByteSize::new(n << 10)
}

pub(super) fn read(section: &mut Section<'_, '_>) -> Limits {
    Limits {
        max_body: section.within("max_body", kibibytes(1)..=mebibytes(1024), mebibytes(64)),
        idle_timeout: section.within("idle_timeout", SECOND..=24 * HOUR, HOUR / 4),
        max_connections: section.within("max_connections", 1..=1_000_000, 1024),
        rewrite_timeout: section.within("rewrite_timeout", SECOND / 1000..=60 * SECOND, 2 * SECOND),
        drain_timeout: section.within("drain_timeout", Duration::ZERO..=HOUR, 8 * SECOND),
        memo: section.within("memo", ByteSize::new(0)..=mebibytes(64 << 10), mebibytes(16)),
        queue: section.within("queue", 1..=1_000_000, 16384),
        workers: section.within("workers", 0..=1024, 0),
    }
}
