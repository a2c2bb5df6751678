//! Warns of paths that begin with what looks like a misspelt name of an upstream.
//!
//! Such a beginning may be meant, so nothing is refused: the request goes where its dialect leads. But if it is a slip,
//! a prompt, and its key, reach another provider than the one that they are for.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use http::request::Parts;

use super::route::Routes;
use crate::config::did_you_mean;
use crate::upstream::Upstream;

/// The most path prefixes to report, since clients choose them.
const MAX_TOLD: usize = 64;

/// The path prefixes that were reported.
#[derive(Debug, Default)]
pub(super) struct Slips(Mutex<HashSet<String>>);

impl Slips {
    /// Warns, once for each beginning, if the path of a request for `upstream` seems to be meant for another one.
    pub(super) fn look_for(&self, routes: &Routes, head: &Parts, upstream: &Upstream) {
        let Some((segment, meant)) = routes.misspelt(head) else { return };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_TOLD && told.insert(segment.to_owned()) {
            tracing::warn!(
                begins = format!("/{segment}/"),
                upstream = upstream.name(),
                hint = did_you_mean(&format!("/{meant}/")),
                "the path has an unknown upstream prefix: routed by its protocol instead"
            );
        }
    }
}
