//! Decides which requests may be sent again after a failure.
//!
//! A request costs money. So it is sent again only if the upstream says that it has not processed it, or if it has a
//! safe method and no body.

use std::error::Error;
use std::io;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::Full;

use super::BoxError;
use super::head::SpeaksHttp2;

/// The body of a request, which may have to be sent once more.
pub trait RequestBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Sized + Unpin + 'static {
    /// A copy of the body; `None` if not all of it is at hand. To be called before any of it is sent.
    fn copy(&self) -> Option<Self>;
}

impl RequestBody for Full<Bytes> {
    fn copy(&self) -> Option<Self> {
        Some(self.clone())
    }
}

/// A copy of the request; `None` if not all of its body is at hand.
pub(super) fn copy<B: RequestBody>(request: &Request<B>) -> Option<Box<Request<B>>> {
    let mut copy = Box::new(Request::new(request.body().copy()?));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

/// A copy of a request that may be sent twice without harm, because it has no body and a safe method (RFC 9110, 9.2.1).
/// `None` for any other request.
pub(super) fn copy_if_harmless<B: RequestBody>(request: &Request<B>) -> Option<Box<Request<B>>> {
    let is_harmless = request.method().is_safe() && request.body().is_end_stream();
    is_harmless.then(|| copy(request)).flatten()
}

/// Whether the connection ended before a response, other than by a time-out.
pub(super) fn is_break(error: &hyper::Error) -> bool {
    let is_lost = |cause: &(dyn Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        let io = io.or_else(|| cause.downcast_ref::<h2::Error>().and_then(h2::Error::get_io));
        io.is_some_and(|error| error.kind() != io::ErrorKind::TimedOut)
    };
    error.is_incomplete_message() || error.source().is_some_and(is_lost)
}

/// Whether an HTTP/2 upstream says that it has not processed the request (RFC 9113, 8.7): by a `GOAWAY` with `NO_ERROR`
/// whose last stream is an earlier one, by `REFUSED_STREAM`, or by `HTTP_1_1_REQUIRED`.
pub(super) fn is_refusal(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let is_closing = cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR);
        let refuses = [h2::Reason::REFUSED_STREAM, h2::Reason::HTTP_1_1_REQUIRED].map(Some);
        let is_refused = cause.is_reset() && refuses.contains(&cause.reason());
        cause.is_remote() && (is_closing || is_refused)
    })
}

/// Whether an upstream must be asked with HTTP/2: it speaks that over HTTP/1.1 as well, so that it has not read the
/// request (RFC 9113, 3.4).
pub(super) fn demands_http2(error: &hyper::Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    io.and_then(|error| error.get_ref()?.downcast_ref::<SpeaksHttp2>()).is_some()
}

/// Whether an upstream must be asked with HTTP/1.1: it says so itself, or its HTTP/2 breaks the rules, for instance by
/// header fields that only HTTP/1.1 has. In the second case it may have processed the request.
pub(super) fn demands_http1(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| match cause.reason() {
        Some(h2::Reason::HTTP_1_1_REQUIRED) => cause.is_remote(),
        _ => cause.is_library(),
    })
}
