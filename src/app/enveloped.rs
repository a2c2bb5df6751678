//! A request and what it came in. All that is done to a request is done to it alone; what leaves is in its envelope
//! again.

use bytes::Bytes;

use super::context::RequestContext;
use crate::protocol::{Envelope, Protocol, Purpose};
use crate::server::Inbound;
use crate::strategy::compaction::Compaction;
use crate::url;
use crate::usage::Vendor;

/// A request and what it came in.
pub(super) struct Enveloped {
    /// The request; its body is without the envelope.
    pub(super) inbound: Inbound,
    pub(super) purpose: Purpose,
    pub(super) envelope: Option<Envelope>,
    /// The model that the path names, without escapes.
    model: Option<String>,
}

impl Enveloped {
    /// A request that came alone, or in an envelope: where its path names the model, only a question for its length
    /// may.
    pub(super) fn open(protocol: &dyn Protocol, purpose: Purpose, mut inbound: Inbound) -> Self {
        let named = protocol.model_of_path(inbound.head.uri.path());
        let model = named.map(|named| url::unescaped(named).unwrap_or_else(|| named.to_owned()));
        let may = purpose == Purpose::Count || model.is_none();
        let envelope = if may { protocol.envelope(&inbound.body) } else { None };
        if let Some(envelope) = &envelope {
            inbound.body = envelope.request();
        }
        Self { inbound, purpose, envelope, model }
    }

    /// What its head, its envelope and its destination say.
    pub(super) fn asked(&self) -> RequestContext<'_> {
        let upstream = &self.inbound.upstream;
        RequestContext {
            vendor: Vendor::of_host(upstream.base_url().domain()),
            model: self.model(),
            query: self.inbound.head.uri.query().unwrap_or_default(),
            upstream: upstream.name(),
            compaction: (self.purpose == Purpose::Compact).then_some(Compaction::Asked),
            overflow: None,
            until: None,
        }
    }

    /// The model that the path or the envelope names.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref().or_else(|| self.envelope.as_ref()?.model())
    }

    /// Bytes that its envelope adds to a request.
    pub(super) fn overhead(&self) -> usize {
        self.envelope.as_ref().map_or(0, Envelope::overhead)
    }

    /// Another request in the same envelope.
    pub(super) fn sealed(&self, request: Bytes) -> Bytes {
        match &self.envelope {
            Some(envelope) => envelope.around(&request),
            None => request,
        }
    }
}
