//! Follows a request that fetches an answer begun by an earlier request. The usage of that answer may still be missing
//! from the books.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::books::Told;
use super::{Core, follow, route, secrets};
use crate::lineage;
use crate::protocol::{AnswerReader, Framing, Protocol};
use crate::server::{End, Exchange, Form, Remedy, Target};
use crate::upstream::Upstream;
use crate::url;
use crate::usage::{Usage, Vendor};

/// Reads a fetched answer as it passes. This affects nothing but the books.
pub(super) struct LaterAnswer {
    core: Arc<Core>,
    protocol: &'static dyn Protocol,
    upstream: Arc<Upstream>,
    head: Arc<Parts>,
    reader: Option<Box<dyn AnswerReader>>,
}

impl LaterAnswer {
    pub(super) fn new(
        core: Arc<Core>,
        protocol: &'static dyn Protocol,
        head: &Arc<Parts>,
        target: &Target,
    ) -> Self {
        let (upstream, head) = (Arc::clone(&target.upstream), Arc::clone(head));
        Self { core, protocol, upstream, head, reader: None }
    }

    /// The conversation in which the answer was begun, if that is known.
    fn conversation(&self, id: &str) -> Option<String> {
        let headers = &self.head.headers;
        let principal = lineage::principal(headers, url::keys(self.head.uri.query().unwrap_or_default()));
        let root = self.core.root(self.protocol, headers, principal);
        self.core.lineage.conversation_of(root, id).unwrap_or_default()
    }
}

impl Exchange for LaterAnswer {
    fn sent(&mut self, _: Form) {}

    fn rejected(&mut self, _: StatusCode, _: &HeaderMap, _: &[u8]) -> Remedy {
        Remedy::Deliver
    }

    fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        let framing = || follow::framing(headers).unwrap_or(Framing::Document);
        self.reader = status.is_success().then(|| self.protocol.answer(framing()));
    }

    fn is_over(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_over())
    }

    fn data(&mut self, decoded: &[u8]) {
        if let Some(reader) = &mut self.reader {
            reader.push(decoded);
        }
    }

    fn end(mut self: Box<Self>, _: End) {
        let Some(mut answer) = self.reader.take().map(|mut reader| reader.finish()) else { return };
        let Some((_, id)) = route::later_answer(self.head.uri.path()) else { return };
        let conversation = self.conversation(id);
        // There is nothing to book before the answer has ended.
        if answer.stop.is_none() {
            return;
        }
        answer.usage = answer.usage.map(|usage| usage.at(self.head.uri.path()));
        if !answer.complete {
            answer.usage = answer.usage.map(Usage::at_least);
        }
        let legible =
            |text| secrets::redact(text, &self.head.uri, [&self.head.headers, self.upstream.headers()]);
        answer.error = answer.error.map(legible);
        self.core.books.told(Told {
            upstream: self.upstream.name().to_owned(),
            id: id.to_owned(),
            conversation,
            answer,
            vendor: Vendor::of_host(self.upstream.base_url().domain()),
        });
    }
}
