//! The transparent proxy: accepts, asks the [`Gateway`] what to do, moves the bytes.
//!
//! What the gateway does not ask to see is streamed through as it arrives, unbuffered, byte for byte, whatever its
//! path, method or content type. The server knows HTTP and nothing about what is said over it, except whether an answer
//! is an event stream. It never changes a body itself, never turns a broken answer into a complete one, and never lets
//! an observer touch the stream.
//!
//! Each worker is one thread with its own runtime and its own connections to upstreams, so that serving a request
//! wakes no other thread. `handler.rs` reads top to bottom like the life of a request.

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
mod run_to_end;
mod slots;
mod socket;
mod stats;
mod tap;
mod unreadable;
mod woken;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

pub use self::deadline::Deadline;
pub use self::descriptors::raise_file_limit;
pub use self::exchange::{
    End, Exchange, Fault, Filter, Form, Gateway, Inbound, Party, Prepared, Refusal, Rejection, Remedy, Route,
    Target, Unprepared,
};
pub use self::handler::{BEGINNING_TIMEOUT, REJECTION_LIMIT};
pub use self::listener::{Drained, Haste, Listener, Running, Server};
pub use self::stats::{Counter, Stats};

/// Limits and time-outs of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that serve connections.
    pub workers: NonZeroUsize,
    /// Connections that may be open at a time. A further one takes the place of the one that has been idle longest,
    /// or waits.
    pub max_connections: usize,
    /// The largest request body, in bytes as received, that is read for [`Gateway::prepare`]. Larger bodies stream
    /// through unread.
    pub max_body: usize,
    /// The largest request body, in bytes after content decoding, that is read for [`Gateway::prepare`].
    pub max_decoded: usize,
    /// How long [`Gateway::prepare`] may take before the original is sent; [`Deadline`] defines when it may take
    /// longer.
    pub rewrite_timeout: Duration,
    /// How long a client's connection may take to deliver its next request head, idle time included.
    pub idle_timeout: Duration,
    /// How long requests in flight may continue after a shutdown has begun.
    pub drain_timeout: Duration,
}

/// The default number of workers: one for each core, but at most 4, since they wait more than they work.
pub fn usual_workers() -> NonZeroUsize {
    thread::available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MAX_DEFAULT_WORKERS))
}

const MAX_DEFAULT_WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");
