//! An answer on its way through a [`Filter`].
//!
//! What the filter lets through is passed on at once. A broken answer stays broken. A filter that panics is removed,
//! and the rest of the answer passes unfiltered.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;

use super::decode::Coding;
use super::exchange::Filter;
use super::guard::guard;
use super::relay::{Broken, Relay};
use super::stats::Stats;

/// A relayed answer, filtered.
pub(super) struct Filtered {
    relay: Relay,
    filter: Option<Box<dyn Filter>>,
    /// The trailers, which follow the last data.
    trailers: Option<Frame<Bytes>>,
    stats: Arc<Stats>,
}

/// Whether an answer can be filtered. If so, removes its length from `headers`, since that will change.
pub(super) fn can_be_filtered(headers: &mut HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_stream = kind.get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS));
    let can_be = is_stream && Coding::of(headers) == Some(Coding::Identity);
    if can_be {
        headers.remove(CONTENT_LENGTH);
    }
    can_be
}

impl Filtered {
    pub(super) fn new(relay: Relay, filter: Box<dyn Filter>, stats: &Arc<Stats>) -> Self {
        Self { relay, filter: Some(filter), trailers: None, stats: Arc::clone(stats) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(trailers)));
        }
        loop {
            let frame = match ready!(self.relay.poll(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None => {
                    let rest = self.rest();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
            };
            let passed = match frame.into_data() {
                Ok(piece) => self.pass(piece),
                Err(trailers) => {
                    self.trailers = Some(trailers);
                    self.rest()
                }
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
        }
    }

    /// The unfiltered answer.
    pub(super) fn into_relay(self) -> Relay {
        self.relay
    }

    fn pass(&mut self, piece: Bytes) -> Bytes {
        let Some(filter) = &mut self.filter else { return piece };
        guard(&self.stats, || filter.pass(&piece)).unwrap_or_else(|| {
            self.filter = None;
            piece
        })
    }

    fn rest(&mut self) -> Bytes {
        let Some(mut filter) = self.filter.take() else { return Bytes::new() };
        guard(&self.stats, || filter.rest()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_ENCODING;

    use super::*;

    #[test]
    fn only_unencoded_event_streams_can_be_filtered() {
        for (kind, coding, expected) in [
            ("text/event-stream", None, true),
            ("Text/Event-Stream; charset=utf-8", None, true),
            ("text/event-stream", Some("identity"), true),
            ("text/event-stream", Some("gzip"), false),
            ("text/event", None, false),
            ("application/json", None, false),
        ] {
            let mut headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("7"))]);
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            headers.extend(coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
            assert_eq!(can_be_filtered(&mut headers), expected, "{kind} {coding:?}");
            assert_eq!(headers.contains_key(CONTENT_LENGTH), !expected, "{kind} {coding:?}");
        }
    }
}
