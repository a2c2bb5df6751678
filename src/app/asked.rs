//! What is known of a request beside its headers and body.
//!
//! A question for the length of a prompt knows the same of it as the prompt itself: it is treated the same.

use super::route::{self, Purpose};
use crate::planner::Overflow;
use crate::protocol::Protocol;
use crate::server::Inbound;
use crate::strategy::compaction::Compaction;
use crate::usage::Vendor;

/// What is known of a request beside its headers and body.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    /// Whose price it is.
    pub(super) vendor: Option<Vendor>,
    /// The model that its path names.
    pub(super) model: Option<&'a str>,
    /// The name of the server it goes to.
    pub(super) upstream: &'a str,
    /// What its path says that the client does about its history.
    pub(super) compaction: Option<Compaction>,
    /// The provider has said that its prompt is too long.
    pub(super) overflow: Option<Overflow>,
}

impl<'a> Asked<'a> {
    /// What its head and its destination say.
    pub(super) fn of(protocol: &dyn Protocol, inbound: &'a Inbound) -> Self {
        let purpose =
            route::dialect(&inbound.head.method, inbound.head.uri.path()).map(|(_, purpose)| purpose);
        Self {
            vendor: Vendor::of_host(inbound.upstream.base_url().domain()),
            model: protocol.model_of_path(inbound.head.uri.path()),
            upstream: inbound.upstream.name(),
            compaction: (purpose == Some(Purpose::Compact)).then_some(Compaction::Asked),
            overflow: None,
        }
    }
}
