//! A request together with the envelope that it came in. Everything else handles the request alone; what leaves is
//! put back into its envelope.

use bytes::Bytes;

use super::context::RequestContext;
use crate::protocol::{Envelope, Protocol, Purpose};
use crate::server::Inbound;
use crate::strategy::compaction::Compaction;
use crate::url;
use crate::usage::Vendor;

/// A request together with the envelope that it came in.
pub(super) struct Enveloped {
    pub(super) protocol: &'static dyn Protocol,
    /// The request; its body is without the envelope.
    pub(super) inbound: Inbound,
    pub(super) purpose: Purpose,
    pub(super) envelope: Option<Envelope>,
    /// The vendor whose prices apply at its upstream.
    pub(super) vendor: Option<Vendor>,
    /// The model named by the path, percent-decoded.
    model: Option<String>,
}

impl Enveloped {
    /// Takes a request out of its envelope, if it has one. If the path names the model, only a request that counts
    /// tokens can have an envelope.
    pub(super) fn open(protocol: &'static dyn Protocol, purpose: Purpose, mut inbound: Inbound) -> Self {
        let named = protocol.model_of_path(inbound.head.uri.path());
        let model = named.map(|named| url::unescaped(named).unwrap_or_else(|| named.to_owned()));
        let may_have_envelope = purpose == Purpose::Count || model.is_none();
        let envelope = if may_have_envelope { protocol.envelope(&inbound.body) } else { None };
        if let Some(envelope) = &envelope {
            inbound.body = envelope.request();
        }
        let vendor = Vendor::of_host(inbound.upstream.base_url().domain());
        Self { protocol, inbound, purpose, envelope, vendor, model }
    }

    /// The context of the request, according to its head, its envelope and its upstream.
    pub(super) fn context(&self) -> RequestContext<'_> {
        RequestContext {
            vendor: self.vendor,
            model: self.model(),
            query: self.inbound.head.uri.query().unwrap_or_default(),
            upstream: self.inbound.upstream.name(),
            compaction: (self.purpose == Purpose::Compact).then_some(Compaction::Asked),
            overflow: None,
            until: None,
        }
    }

    /// The model named by the path or the envelope.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref().or_else(|| self.envelope.as_ref()?.model())
    }

    /// The size of the envelope in bytes.
    pub(super) fn overhead(&self) -> usize {
        self.envelope.as_ref().map_or(0, Envelope::overhead)
    }

    /// Puts a request into this envelope.
    pub(super) fn seal(&self, request: Bytes) -> Bytes {
        match &self.envelope {
            Some(envelope) => envelope.around(&request),
            None => request,
        }
    }
}
