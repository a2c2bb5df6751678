//! What is known when a request leaves.

use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;

use super::super::books::Slot;
use super::super::budget::Reached;
use super::super::enveloped::Enveloped;
use crate::server::Inbound;
use crate::summarizer::Job;

/// What is known when a request leaves.
pub(in crate::app) struct Start {
    /// The id of its record.
    pub(in crate::app) id: String,
    pub(in crate::app) head: Arc<Parts>,
    pub(in crate::app) received_at: Instant,
    /// When the gateway's own work on it began.
    pub(in crate::app) read_at: Instant,
    pub(in crate::app) prepared_at: Instant,
    /// Bytes that the client sent, with the envelope.
    pub(in crate::app) received: u64,
    /// Bytes that leave, with the envelope and all additions.
    pub(in crate::app) sent: u64,
    /// Bytes of the rewritten body, before members are added and without the envelope.
    pub(in crate::app) rewritten_to: u64,
    /// The members besides the messages that were added or added to.
    pub(in crate::app) added: Vec<&'static str>,
    /// The budget that is reached or nearly reached, if any.
    pub(in crate::app) budget: Option<Reached>,
    pub(in crate::app) attempt: Attempt,
    /// Where its record waits to be completed; `None` if the request was not read.
    pub(in crate::app) slot: Option<Slot>,
    /// The summary to begin once this request is answered.
    pub(in crate::app) job: Option<Box<Job>>,
}

impl Start {
    /// The start of a request that leaves now as it came.
    pub(in crate::app) fn unchanged(id: String, enveloped: &Enveloped) -> Self {
        let Inbound { head, body, received_at, read_at, .. } = &enveloped.inbound;
        let bytes = (body.len() + enveloped.overhead()) as u64;
        Self {
            id,
            head: Arc::clone(head),
            received_at: *received_at,
            read_at: *read_at,
            prepared_at: Instant::now(),
            received: bytes,
            sent: bytes,
            rewritten_to: body.len() as u64,
            added: Vec::new(),
            budget: None,
            attempt: Attempt::default(),
            slot: None,
            job: None,
        }
    }
}

/// Which of the attempts at a request this is.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::app) struct Attempt {
    /// How often it was sent before.
    pub(in crate::app) before: u32,
    /// Whether the attempt before was answered, and therefore paid for.
    pub(in crate::app) is_paid: bool,
}
