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
mod boxed;
mod client;
mod connection;
mod deadline;
mod decode;
mod descriptors;
mod encode;
mod exchange;
mod filtered;
mod guard;
mod handler;
mod headers;
mod listener;
mod preparing;
mod redirect;
mod refusing;
mod relay;
mod room;
mod run_to_end;
mod socket;
mod stats;
mod tap;
mod unreadable;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

pub use self::deadline::Deadline;
pub use self::descriptors::make_room;
pub use self::exchange::{
    End, Exchange, Fault, Filter, Form, Gateway, Inbound, Opening, Party, Prepared, Refusal, Rejection,
    Remedy, Route, Target, Unprepared,
};
pub use self::handler::{OPENING_TIMEOUT, REJECTION_LIMIT};
pub use self::listener::{Drained, Haste, Listener, Running, Server};
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
    /// How long [`Gateway::prepare`] may take before the original goes out; [`Deadline`] says when it may take longer.
    pub rewrite_timeout: Duration,
    /// How long a client's connection may take to deliver its next request head, idling included.
    pub idle_timeout: Duration,
    /// How long requests in flight may go on after a shutdown began.
    pub drain_timeout: Duration,
}

/// The workers of a machine that nobody said a number for: one for each core, up to 4. They wait more than they work.
pub fn usual_workers() -> NonZeroUsize {
    thread::available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MOST_WORKERS))
}

const MOST_WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");
