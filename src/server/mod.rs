//! The transparent proxy: accepts, asks the [`Gateway`] what to do, moves the bytes.
//!
//! What is not asked for is streamed through as it comes, unbuffered, byte for byte, whatever its path,
//! method or content type. The server knows HTTP and nothing of what is said over it; it never changes a
//! body itself, never turns a broken answer into a whole one, and never lets an observer touch the stream.
//!
//! Each worker is one thread with its own runtime and its own connections to upstreams, so that a request is
//! served without waking another thread. The life of a request reads top to bottom in `handler.rs`.

mod accept;
mod body;
mod client;
mod connection;
mod decode;
mod descriptors;
mod exchange;
mod filtered;
mod guard;
mod handler;
mod headers;
mod listener;
mod relay;
mod room;
mod socket;
mod stats;
mod tap;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

pub use self::descriptors::make_room;
pub use self::exchange::{
    End, Exchange, Fault, Filter, Form, Gateway, Inbound, Opening, Party, Prepared, Refusal, Rejection,
    Remedy, Route, Target,
};
pub use self::handler::{OPENING_TIMEOUT, REJECTION_LIMIT};
pub use self::listener::{Bound, Drained, Running, Server};
pub use self::stats::{Counter, Stats};

/// Limits and times of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that serve connections.
    pub workers: NonZeroUsize,
    /// Connections open at a time; a further one takes the place of the one that has rested longest, or waits.
    pub max_connections: usize,
    /// Bytes of a request body, as received, that are read for [`Gateway::prepare`]; larger bodies stream
    /// through unread.
    pub max_body: usize,
    /// The same, after content decoding.
    pub max_decoded: usize,
    /// How long [`Gateway::prepare`] may take before the original goes out.
    pub rewrite_timeout: Duration,
    /// How long a client's connection may take to deliver its next request head, idling included.
    pub idle_timeout: Duration,
    /// How long requests in flight may go on after a shutdown began.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    /// A worker per core up to 4, 1024 connections, bodies of 64 MiB (128 MiB decoded), 5 s to rewrite, 15 min
    /// of idling, 30 s to drain.
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            workers: NonZeroUsize::new(cores.min(4)).unwrap_or(NonZeroUsize::MIN),
            max_connections: 1024,
            max_body: 64 << 20,
            max_decoded: 128 << 20,
            rewrite_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(15 * 60),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
