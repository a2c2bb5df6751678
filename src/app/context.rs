//! What is known of a request beside its headers and body.
//!
//! A question for the length of a prompt knows the same of it as the prompt itself: it is treated the same.

use std::time::{Duration, Instant};

use super::route::Routes;
use crate::conversation::Carriers;
use crate::planner::Overflow;
use crate::server::Deadline;
use crate::strategy::compaction::Compaction;
use crate::usage::{self, Vendor};

/// What is known of a request beside its headers and body.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestContext<'a> {
    /// Whose price it is.
    pub(super) vendor: Option<Vendor>,
    /// The model that its path or its envelope names.
    pub(super) model: Option<&'a str>,
    /// The parameters of its path.
    pub(super) query: &'a str,
    /// The name of the server it goes to.
    pub(super) upstream: &'a str,
    /// What its path says that the client does about its history.
    pub(super) compaction: Option<Compaction>,
    /// The provider has said that its prompt is too long.
    pub(super) overflow: Option<Overflow>,
    /// When it leaves, whatever has come of it by then; `None`: when it is ready.
    pub(super) until: Option<&'a Deadline>,
}

impl RequestContext<'_> {
    /// The time until it leaves, should nothing hold it.
    pub(super) fn left(&self) -> Duration {
        let left = |until: &Deadline| until.at().saturating_duration_since(Instant::now());
        self.until.map_or(Duration::MAX, left)
    }

    /// What carries marks that are passed on to a model's provider where it goes, in a dialect that has none; `None`: none
    /// are passed on. OpenRouter takes the mark of a text in a result for the result's own; LiteLLM leaves it where it is,
    /// and Claude's provider refuses it there.
    pub(super) fn mark_carriers(&self, routes: &Routes, model: &str) -> Option<Carriers> {
        let passes = match routes.cache_marks(self.upstream) {
            Some(passes) => passes && usage::is_claude(model),
            None => self.vendor.is_some_and(|vendor| vendor.passes_marks(model)),
        };
        let moves = self.vendor == Some(Vendor::OpenRouter);
        passes.then_some(if moves { Carriers::Texts } else { Carriers::TextsAndResults })
    }
}
