//! An answer on its way through a [`Filter`].
//!
//! What the filter lets through is passed on at once. A broken answer stays broken, after all that has arrived of it. A
//! filter that panics is removed, and the rest of the answer passes unfiltered. So does all of an answer that turns out
//! not to be an event stream.

use std::mem;
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
use crate::sse::Beginning;

/// A relayed answer, filtered.
pub(super) struct Filtered {
    relay: Relay,
    filter: Option<Box<dyn Filter>>,
    /// Set until it is clear whether the answer is an event stream.
    doubt: Option<Doubt>,
    /// What follows the last data: trailers or a break.
    last: Option<Result<Frame<Bytes>, Broken>>,
    /// Whether one poll returns `Pending`, so that hyper writes what was handed on before a break.
    yields: bool,
    stats: Arc<Stats>,
}

/// What the head of an answer that may be filtered says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// It is an event stream.
    Events,
    /// Nothing, or something else: some servers declare streams as anything. The first bytes decide.
    Unclear,
}

/// The beginning of an answer of unclear kind.
#[derive(Default)]
struct Doubt {
    beginning: Beginning,
    /// The number of bytes of it that were passed on.
    passed: usize,
}

/// What the head of an answer says of its kind; `None` if it cannot be filtered. Removes the length of an event stream
/// from `headers`, since that will change. Anything else that has a length keeps it, and is not filtered.
pub(super) fn declared(headers: &mut HeaderMap) -> Option<Declared> {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_stream = kind.get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS));
    match Coding::of(headers) {
        Some(Coding::Identity) if is_stream => {
            headers.remove(CONTENT_LENGTH);
            Some(Declared::Events)
        }
        Some(Coding::Identity) | None => (!headers.contains_key(CONTENT_LENGTH)).then_some(Declared::Unclear),
        Some(_) => None,
    }
}

impl Filtered {
    pub(super) fn new(relay: Relay, filter: Box<dyn Filter>, declared: Declared, stats: &Arc<Stats>) -> Self {
        let doubt = (declared == Declared::Unclear).then(Doubt::default);
        Self { relay, filter: Some(filter), doubt, last: None, yields: false, stats: Arc::clone(stats) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if mem::take(&mut self.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(last));
        }
        loop {
            let passed = match ready!(self.relay.poll(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => self.pass(piece),
                Some(Ok(Err(trailers))) => {
                    self.last = Some(Ok(trailers));
                    self.rest()
                }
                Some(Err(broken)) => {
                    self.last = Some(Err(broken));
                    self.rest()
                }
                None => {
                    let rest = self.rest();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
            };
            if !passed.is_empty() {
                self.yields = matches!(self.last, Some(Err(_)));
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
            if let Some(last) = self.last.take() {
                return Poll::Ready(Some(last));
            }
        }
    }

    /// The unfiltered answer.
    pub(super) fn into_relay(self) -> Relay {
        self.relay
    }

    fn pass(&mut self, piece: Bytes) -> Bytes {
        let Some(doubt) = &mut self.doubt else { return self.filter(piece) };
        let Some((is_stream, piece)) = doubt.settle(&piece) else { return doubt.pass_blank() };
        self.doubt = None;
        self.filter.take_if(|_| !is_stream);
        self.filter(piece)
    }

    fn filter(&mut self, piece: Bytes) -> Bytes {
        let Some(filter) = &mut self.filter else { return piece };
        guard(&self.stats, || filter.pass(&piece)).unwrap_or_else(|| {
            self.filter = None;
            piece
        })
    }

    fn rest(&mut self) -> Bytes {
        if let Some(doubt) = self.doubt.take() {
            return doubt.held();
        }
        let Some(mut filter) = self.filter.take() else { return Bytes::new() };
        guard(&self.stats, || filter.rest()).unwrap_or_default()
    }
}

impl Doubt {
    /// Takes the next bytes. Once that is clear, returns whether the answer is an event stream, and what is held back.
    fn settle(&mut self, piece: &Bytes) -> Option<(bool, Bytes)> {
        let (is_stream, all) = self.beginning.push(piece)?;
        Some((is_stream, Bytes::from(all).split_off(self.passed)))
    }

    /// Takes the white space in front, which may be there to keep the connection alive.
    fn pass_blank(&mut self) -> Bytes {
        let held = self.held();
        let blank = held.len() - held.trim_ascii_start().len();
        self.passed += blank;
        held.slice(..blank)
    }

    /// What is held back.
    fn held(&self) -> Bytes {
        Bytes::copy_from_slice(&self.beginning.kept()[self.passed..])
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_ENCODING;

    use super::*;

    #[test]
    fn the_head_tells_whether_an_answer_may_be_filtered() {
        for (kind, coding, with_length, without) in [
            ("text/event-stream", None, Some(Declared::Events), Some(Declared::Events)),
            ("Text/Event-Stream; charset=utf-8", None, Some(Declared::Events), Some(Declared::Events)),
            ("text/event-stream", Some("identity"), Some(Declared::Events), Some(Declared::Events)),
            ("text/event-stream", Some("gzip"), None, None),
            ("text/event-stream", Some("utf8"), None, Some(Declared::Unclear)),
            ("text/event", None, None, Some(Declared::Unclear)),
            ("application/json", None, None, Some(Declared::Unclear)),
            ("application/json", Some("br"), None, None),
            ("", None, None, Some(Declared::Unclear)),
        ] {
            for (length, expected) in [(Some("7"), with_length), (None, without)] {
                let values = [
                    (CONTENT_LENGTH, length),
                    (CONTENT_TYPE, Some(kind).filter(|kind| !kind.is_empty())),
                    (CONTENT_ENCODING, coding),
                ];
                let values = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let mut headers: HeaderMap =
                    values.map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
                assert_eq!(declared(&mut headers), expected, "{kind} {coding:?} {length:?}");
                let keeps_length = length.is_some() && expected != Some(Declared::Events);
                assert_eq!(headers.contains_key(CONTENT_LENGTH), keeps_length, "{kind} {coding:?}");
            }
        }
    }

    /// However the beginning of an answer comes, no byte is lost, and as few as possible wait for the next piece.
    #[test]
    fn an_answer_of_unclear_kind_passes_until_it_is_known() {
        for (pieces, expected) in [
            (&["data: {}"][..], &["+data: {}"][..]),
            (&["da", "ta:x"], &["", "+data:x"]),
            (&["da", "tum"], &["", "-datum"]),
            (&["\r\n", " \n{\"a\":", "1}"], &["\r\n", "-\u{20}\n{\"a\":"]),
            (&["\n", " e", "vent:"], &["\n", " ", "+event:"]),
            (&["\u{feff}", "\n", "id:"], &["", "", "+\u{feff}\nid:"]),
            (&["\u{feff}{"], &["-\u{feff}{"]),
            (&["[1]"], &["-[1]"]),
        ] {
            let mut doubt = Doubt::default();
            let mut seen = Vec::new();
            for piece in pieces {
                match doubt.settle(&Bytes::from(*piece)) {
                    Some((is_stream, held)) => {
                        let sign = if is_stream { '+' } else { '-' };
                        seen.push(format!("{sign}{}", str::from_utf8(&held).unwrap()));
                        break;
                    }
                    None => seen.push(String::from_utf8(doubt.pass_blank().to_vec()).unwrap()),
                }
            }
            assert_eq!(seen, expected, "{pieces:?}");
        }
        let mut doubt = Doubt::default();
        assert!(doubt.settle(&Bytes::from("dat")).is_none());
        assert_eq!((doubt.pass_blank().len(), doubt.held()), (0, Bytes::from("dat")));
    }
}
