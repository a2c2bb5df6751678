//! A client's socket as hyper uses it.
//!
//! To clients of HTTP/1.0, the end of the connection is the end of an answer without a length. One that ends
//! early must not look like that: their socket is reset unless hyper has ended it in good order.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// See the module.
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    age: Age,
    is_ended: bool,
}

/// Whether the client speaks HTTP/1.0, as its requests tell.
#[derive(Clone, Default)]
pub(super) struct Age(Arc<AtomicBool>);

impl Socket {
    pub(super) fn new(stream: TcpStream, age: Age) -> Self {
        Self { stream: TokioIo::new(stream), age, is_ended: false }
    }
}

impl Age {
    /// Remembers the version of a request.
    pub(super) fn learn(&self, version: http::Version) {
        if version == http::Version::HTTP_10 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_ended && self.age.0.load(Ordering::Relaxed) {
            // A socket that is closed already needs no reset.
            drop(self.stream.inner().set_zero_linger());
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.is_ended = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
