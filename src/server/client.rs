//! What is known of a client for as long as its connection is open.
//!
//! Learned from its requests, and looked at where the connection ends. Never waits, and holds nothing up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// See the module.
#[derive(Default)]
pub(super) struct Client {
    is_old: AtomicBool,
    is_sending: AtomicBool,
}

/// The body of a request. While there is more of it to come, its client is known to be sending.
pub(super) struct Upload {
    body: Incoming,
    /// `None` where requests share a connection: the end of one is not the end of that.
    client: Option<Arc<Client>>,
}

impl Client {
    /// Whether it speaks HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Relaxed)
    }

    /// Whether some of its last request was not read.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Follows `request`, which is its next one.
    pub(super) fn follow(self: &Arc<Self>, request: Request<Incoming>) -> Request<Upload> {
        let version = request.version();
        let client = (version < Version::HTTP_2).then(|| Arc::clone(self));
        if let Some(client) = &client {
            client.is_old.fetch_or(version == Version::HTTP_10, Ordering::Relaxed);
            client.is_sending.store(!request.body().is_end_stream(), Ordering::Relaxed);
        }
        request.map(|body| Upload { body, client })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let has_ended = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || self.body.is_end_stream(),
            Poll::Ready(Some(Err(_)) | None) => true,
        };
        if has_ended && let Some(client) = self.client.take() {
            client.is_sending.store(false, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
