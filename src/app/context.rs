//! A request as it arrived, out of its envelope, and what is known of it besides its headers and body.
//!
//! A request that only counts a prompt gets the same context as the prompt itself, so that both are treated alike.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;

use super::route::Routes;
use crate::conversation::Carriers;
use crate::planner::Overflow;
use crate::protocol::Protocol;
use crate::server::Deadline;
use crate::strategy::compaction::Compaction;
use crate::usage::{self, Vendor};

/// A request as it arrived, out of its envelope.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) protocol: &'static dyn Protocol,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    pub(super) context: RequestContext<'a>,
}

/// What is known of a request besides its headers and body.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestContext<'a> {
    /// The vendor whose prices apply.
    pub(super) vendor: Option<Vendor>,
    /// The model named by its path or envelope.
    pub(super) model: Option<&'a str>,
    /// The query of its URL.
    pub(super) query: &'a str,
    /// The name of its upstream.
    pub(super) upstream: &'a str,
    /// Set if the path says that the client compacts its history.
    pub(super) compaction: Option<Compaction>,
    /// Set when the provider has refused the prompt as too long.
    pub(super) overflow: Option<Overflow>,
    /// When the request leaves, with whatever is ready by then; `None`: when everything is ready.
    pub(super) until: Option<&'a Deadline>,
}

impl RequestContext<'_> {
    /// The time until it leaves unless it is held; [`Duration::MAX`] if it has no deadline.
    pub(super) fn left(&self) -> Duration {
        let time_left = |until: &Deadline| until.at().saturating_duration_since(Instant::now());
        self.until.map_or(Duration::MAX, time_left)
    }

    /// The parts that may carry cache marks in a dialect without marks of its own, if this upstream passes them on to
    /// the model's provider; `None` if it does not. OpenRouter takes a mark on the text of a result for the result's
    /// own; LiteLLM leaves it in place, where Claude's provider refuses it.
    pub(super) fn mark_carriers(&self, routes: &Routes, model: &str) -> Option<Carriers> {
        let passes = match routes.named(self.upstream).and_then(|served| served.cache_marks) {
            Some(passes) => passes && usage::is_claude(model),
            None => self.vendor.is_some_and(|vendor| vendor.passes_marks(model)),
        };
        let moves = self.vendor == Some(Vendor::OpenRouter);
        passes.then_some(if moves { Carriers::Texts } else { Carriers::TextsAndResults })
    }
}
