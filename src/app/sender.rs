//! Who sent a request, and which of the earlier histories it may continue.

use http::HeaderMap;

use super::{Core, opening};
use crate::conversation::{Chain, Digest};
use crate::lineage::{self, Caller};
use crate::protocol::Protocol;
use crate::url;

/// Who sent a request.
pub(super) struct Sender {
    /// The empty history that all chains of the sender start from.
    pub(super) root: Chain,
    /// A digest of the credential.
    pub(super) principal: Digest,
    pub(super) caller: Caller,
}

impl Core {
    /// The sender of a request whose body names this session and whose URL has this query.
    pub(super) fn sender(
        &self,
        protocol: &dyn Protocol,
        headers: &HeaderMap,
        session: Option<&str>,
        query: &str,
    ) -> Sender {
        let principal = lineage::principal(headers, url::keys(query));
        let root = self.root(protocol, headers, principal);
        Sender { root, principal, caller: lineage::caller(headers, session) }
    }

    /// The empty history of a request's sender: the start of all its chains.
    pub(super) fn root(&self, protocol: &dyn Protocol, headers: &HeaderMap, principal: Digest) -> Chain {
        let mut sender = if self.settings.isolate { principal.0.to_vec() } else { Vec::new() };
        // A conversation that began from a checkpoint is another history, whatever the user says in it.
        let checkpoint = opening::checkpoint_name(headers);
        sender.extend_from_slice(checkpoint.as_deref().unwrap_or_default().as_bytes());
        Chain::root(protocol.name(), &sender)
    }
}
