//! The body of any answer that the server gives.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::super::filtered::Filtered;
use super::{Next, Relay, rest};

/// The body of an answer. If the client leaves before its end, the rest may still be read (see [`super::rest`]).
pub(in crate::server) struct Answer(Kind);

enum Kind {
    /// The gateway's own answer; `None` once it was handed on.
    Own(Option<Bytes>),
    /// An upstream's answer.
    Relayed(Box<Relay>),
    /// An upstream's answer, with some events removed.
    Filtered(Box<Filtered>),
}

impl Answer {
    /// An answer of the gateway's own.
    pub(in crate::server) fn own(body: Bytes) -> Self {
        Self(Kind::Own(Some(body)))
    }
}

impl From<Relay> for Answer {
    fn from(relay: Relay) -> Self {
        Self(Kind::Relayed(Box::new(relay)))
    }
}

impl From<Filtered> for Answer {
    fn from(filtered: Filtered) -> Self {
        Self(Kind::Filtered(Box::new(filtered)))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = match &mut self.get_mut().0 {
            Kind::Own(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Relayed(relay) => relay.poll(cx),
            Kind::Filtered(filtered) => filtered.poll(cx),
        };
        polled.map(|frame| frame.map(|frame| frame.map_err(Self::Error::from)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Own(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Relayed(relay) => matches!(relay.next, Next::End),
            Kind::Filtered(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Relayed(relay) => relay.source.size_hint(),
            Kind::Filtered(_) => SizeHint::default(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, Kind::Own(None)) {
            Kind::Own(_) => {}
            Kind::Relayed(relay) => rest::take_over(relay),
            Kind::Filtered(filtered) => rest::take_over(Box::new(filtered.into_relay())),
        }
    }
}
