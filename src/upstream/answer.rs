//! The body of an upstream's answer.
//!
//! If the connection serves this request alone (HTTP/1), the body polls it, and returns it to the pool once the answer
//! has been read to its end. If the body is dropped before that, the connection is closed, so that the upstream sees
//! the request cancelled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1::Http1Connection;
use super::http2::Stream;
use super::pool::Pool;
use super::resend::RequestBody;

/// A body that is being received.
pub struct AnswerBody<B: RequestBody> {
    body: Incoming,
    /// The connection or stream that `body` comes from, until it has ended.
    source: Option<Source<B>>,
}

/// Why an answer is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// The upstream closed the stream without ending the answer.
    #[error("the upstream closed the stream before the end of its answer")]
    Unfinished,
}

enum Source<B: RequestBody> {
    /// A connection that is polled here.
    Http1 { connection: Box<Http1Connection<B>>, pool: Arc<Pool<B>> },
    /// A stream of a connection that has a task of its own.
    Http2(Stream),
}

impl<B: RequestBody> AnswerBody<B> {
    /// A body that comes from `connection`, which goes back to `pool` if it can be reused.
    pub(super) fn from_http1(
        body: Incoming,
        connection: Box<Http1Connection<B>>,
        pool: Arc<Pool<B>>,
    ) -> Self {
        let mut answer = Self { body, source: Some(Source::Http1 { connection, pool }) };
        if answer.body.is_end_stream() {
            answer.release();
        }
        answer
    }

    /// A body that is a stream of a shared connection.
    pub(super) fn from_stream(body: Incoming, stream: Stream) -> Self {
        let source = (!body.is_end_stream()).then_some(Source::Http2(stream));
        Self { body, source }
    }

    /// Whether the answer was closed before its end. A stream that is reset with `NO_ERROR` looks like one that has
    /// ended: the code means that the rest of the request is not needed, after a complete answer.
    fn is_unfinished(&self) -> bool {
        matches!(self.source, Some(Source::Http2(_)))
            && !self.body.is_end_stream()
            && self.body.size_hint().exact() != Some(0)
    }

    /// Lets go of the source, because the answer has ended. A connection that can be reused goes back to its pool.
    fn release(&mut self) {
        match self.source.take() {
            Some(Source::Http1 { connection, pool }) => pool.give_back(connection),
            Some(Source::Http2(mut stream)) => stream.record_answer(),
            None => {}
        }
    }
}

impl<B: RequestBody> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let Self { body, source } = &mut *self;
        let frame = match source {
            Some(Source::Http1 { connection, .. }) => connection.poll_frame(body, cx),
            Some(Source::Http2(_)) | None => Pin::new(body).poll_frame(cx),
        };
        match &frame {
            Poll::Ready(None) if self.is_unfinished() => {
                self.source = None;
                return Poll::Ready(Some(Err(AnswerError::Unfinished)));
            }
            Poll::Ready(None) => self.release(),
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() || self.body.is_end_stream() => {
                self.release();
            }
            _ => {}
        }
        frame.map_err(AnswerError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
