//! Bodies that the gateway has read in part or whole, and may still have to send in full.
//!
//! Nothing that arrived is lost or reordered: what was read is sent first, then the rest as it arrives, then the
//! trailers or the error that ended it.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::upstream::{AnswerBody, Paced, RequestBody};

use super::client::Upload;

/// The body of an answer to a request of this server.
pub(super) type Received = AnswerBody<Paced<Replay>>;

/// The error that ended a body.
pub(super) type BodyError = Box<dyn StdError + Send + Sync>;

/// A body that has been read up to some point.
#[derive(Debug)]
pub(super) struct Replay<R = Upload> {
    /// What has been read and not yet sent.
    read: Bytes,
    rest: Rest<R>,
}

/// What follows the bytes that were read.
#[derive(Debug)]
enum Rest<R> {
    Nothing,
    /// More of the body, which has not been read.
    Open(R),
    Trailers(HeaderMap),
    Broken(BodyError),
}

impl<R: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> Replay<R> {
    /// A body of which nothing has been read.
    pub(super) fn streaming(body: R) -> Self {
        Self { read: Bytes::new(), rest: Rest::Open(body) }
    }

    /// A body that consists of these bytes.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { read: bytes, rest: Rest::Nothing }
    }

    /// Reads `body` to its end, to `limit` bytes or to an error, whichever comes first. A body that declares more
    /// than `limit` is not read at all.
    ///
    /// # Errors
    /// If no more of it arrives within `patience`.
    pub(super) async fn collect(mut body: R, limit: usize, patience: Duration) -> Result<Self, Elapsed> {
        let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if declared.is_some_and(|length| length > limit) {
            return Ok(Self::streaming(body));
        }
        let mut gathered = Gathered::new(declared.unwrap_or(0));
        let rest = loop {
            if body.is_end_stream() {
                break Rest::Nothing;
            }
            match timeout(patience, next_piece(&mut body)).await? {
                Err(rest) => break rest,
                Ok(data) => gathered.push(data),
            }
            if gathered.len() > limit {
                break Rest::Open(body);
            }
        };
        Ok(Self { read: gathered.into_bytes(), rest })
    }

    /// Reads `body` until `enough` accepts what was read, to its end, to `limit` bytes, to an error, or for
    /// `patience`, whichever comes first.
    pub(super) async fn peek(
        mut body: R,
        limit: usize,
        patience: Duration,
        mut enough: impl FnMut(&[u8]) -> bool,
    ) -> Self {
        let deadline = Instant::now() + patience;
        let mut read = BytesMut::new();
        let rest = loop {
            match timeout_at(deadline, next_piece(&mut body)).await {
                Err(_elapsed) => break Rest::Open(body),
                Ok(Err(rest)) => break rest,
                Ok(Ok(data)) => read.extend_from_slice(&data),
            }
            if read.len() > limit || enough(&read) {
                break Rest::Open(body);
            }
        };
        Self { read: read.freeze(), rest }
    }

    /// The bytes, if the whole body has been read.
    pub(super) fn as_whole(&self) -> Option<&Bytes> {
        matches!(self.rest, Rest::Nothing).then_some(&self.read)
    }

    /// Whether part of the body has not been read.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.rest, Rest::Open(_))
    }

    /// What has been read and not yet sent.
    pub(super) fn read(&self) -> &Bytes {
        &self.read
    }

    /// The error that ended the body.
    pub(super) fn broken(&self) -> Option<&BodyError> {
        match &self.rest {
            Rest::Broken(error) => Some(error),
            Rest::Nothing | Rest::Open(_) | Rest::Trailers(_) => None,
        }
    }
}

impl RequestBody for Replay {
    fn copy(&self) -> Option<Self> {
        self.rest.is_over().then(|| Self::whole(self.read.clone()))
    }
}

impl<R: Body> Rest<R> {
    fn is_over(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Open(body) => body.is_end_stream(),
            Self::Trailers(_) | Self::Broken(_) => false,
        }
    }
}

/// The next data of a body; if it has ended instead, how it ended.
async fn next_piece<R: Body<Data = Bytes, Error: Into<BodyError>> + Unpin>(
    body: &mut R,
) -> Result<Bytes, Rest<R>> {
    if body.is_end_stream() {
        return Err(Rest::Nothing);
    }
    match body.frame().await {
        None => Err(Rest::Nothing),
        Some(Err(error)) => Err(Rest::Broken(error.into())),
        Some(Ok(frame)) => {
            frame.into_data().map_err(|frame| frame.into_trailers().map_or(Rest::Nothing, Rest::Trailers))
        }
    }
}

/// The error in the chunked framing of a body; `None` if the body ended because its connection did.
pub(super) fn framing_fault<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e io::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(fault) => Some(fault)
            .filter(|fault| matches!(fault.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData)),
        None => framing_fault(error.source()?),
    }
}

/// Reads and discards `body` to its end, to `limit` bytes or to an error.
pub(super) async fn discard(mut body: Upload, limit: usize) {
    let mut seen = 0;
    while seen <= limit
        && let Some(Ok(frame)) = body.frame().await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}

impl<R: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> Body for Replay<R> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.read)))));
        }
        if let Rest::Open(body) = &mut self.rest {
            return Pin::new(body).poll_frame(cx).map_err(Into::into);
        }
        Poll::Ready(match mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            Rest::Broken(error) => Some(Err(error)),
            Rest::Nothing | Rest::Open(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.rest {
            Rest::Nothing => Some(0),
            Rest::Open(body) => body.size_hint().exact(),
            Rest::Trailers(_) | Rest::Broken(_) => None,
        };
        rest.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(self.read.len() as u64 + rest))
    }
}

/// Joins the pieces of a body with a single copy, or none if there is only one piece.
pub(super) struct Gathered {
    first: Bytes,
    all: BytesMut,
    expected: usize,
}

impl Gathered {
    /// Expects this many bytes in total: as much is reserved at the first copy.
    pub(super) fn new(expected: usize) -> Self {
        Self { first: Bytes::new(), all: BytesMut::new(), expected }
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if !self.first.is_empty() {
            let first = mem::take(&mut self.first);
            self.all.reserve(self.expected.max(first.len() + piece.len()));
            self.all.extend_from_slice(&first);
        }
        self.all.extend_from_slice(&piece);
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    pub(super) fn into_bytes(self) -> Bytes {
        if self.first.is_empty() { self.all.freeze() } else { self.first }
    }
}
