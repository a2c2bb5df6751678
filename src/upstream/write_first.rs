//! An HTTP/1 client stream that copes with servers that answer early or close:
//!
//! 1. Nothing is read before something was written. An overloaded upstream may answer as soon as a client connects, and
//!    hyper takes an answer before its request for an error.
//! 2. A write that fails because the peer has closed counts as done, and so do all later writes. The upstream may have
//!    answered and closed before it read the whole request (a body too large, a wrong key): a read then finds that
//!    answer, or fails in the same way.
//! 3. Before a kept connection is used again, the socket itself is polled ([`Signals::expect_silence`]), because the
//!    runtime learns that it was closed only when it next waits for events.
//! 4. The end of the stream without TLS's own end (`close_notify`), which many servers omit, is an end like that of a
//!    stream without TLS. hyper reports every answer as broken that says how long it is and has not come to its end; an
//!    answer that ends with the connection is accepted by other clients, too (RFC 9112, 9.8 leaves that open).
//!
//! Once a request is being written, the next bytes to be read are the head of its response, which [`Head`] rewrites.

use std::io::{Error, ErrorKind, IoSlice};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connect::{NewStream, tcp_of};
use super::head::Head;
use super::small_write::written_as_one;

/// A stream that is written to before it is read from, and whose writes succeed even after the peer has closed.
pub(super) struct WriteFirst<S> {
    stream: S,
    /// Whether a write has failed because the peer has closed.
    peer_closed: bool,
    reads: Reads,
    head: Head,
    signals: Signals,
}

/// Tells a stream what its user is about to do.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Flags>);

#[derive(Default)]
struct Flags {
    /// Whether no bytes are due now, so that anything to read is taken for the end of the stream.
    silence_expected: AtomicBool,
    /// Whether the next write begins a request.
    request_due: AtomicBool,
}

/// A stream over a socket that can be polled without reading from it.
pub(super) trait Socket {
    fn socket(&self) -> BorrowedFd<'_>;
}

/// Whether the stream may be read from.
enum Reads {
    /// Not before the first write, which wakes the task that wanted to read.
    Deferred(Option<Waker>),
    Allowed,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S, signals: Signals) -> Self {
        Self { stream, peer_closed: false, reads: Reads::Deferred(None), head: Head::default(), signals }
    }

    /// The result of a write, flush or shutdown. If it failed because the peer has closed, that counts as `done`.
    fn ignore_close<T>(&mut self, polled: Poll<Result<T, Error>>, done: T) -> Poll<Result<T, Error>> {
        match polled {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.peer_closed = true;
                Poll::Ready(Ok(done))
            }
            polled => polled,
        }
    }

    /// The result of a write of `all` bytes, as by [`Self::ignore_close`]. Allows reads once any bytes were written.
    fn end_write(&mut self, polled: Poll<Result<usize, Error>>, all: usize) -> Poll<Result<usize, Error>> {
        let polled = self.ignore_close(polled, all);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            if self.signals.take_request() {
                self.head.begin();
            }
            if let Reads::Deferred(Some(reader)) = mem::replace(&mut self.reads, Reads::Allowed) {
                reader.wake();
            }
        }
        polled
    }
}

/// Whether the peer has closed the connection.
pub(super) fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

impl Signals {
    /// Sets whether bytes that the runtime does not know of yet are reported as the end of the stream.
    pub(super) fn expect_silence(&self, expected: bool) {
        self.0.silence_expected.store(expected, Ordering::Relaxed);
    }

    /// Announces that the next write begins a request.
    pub(super) fn begin_request(&self) {
        self.0.request_due.store(true, Ordering::Relaxed);
    }

    fn expects_silence(&self) -> bool {
        self.0.silence_expected.load(Ordering::Relaxed)
    }

    /// Whether the current write begins a request. Later writes do not.
    fn take_request(&self) -> bool {
        self.0.request_due.swap(false, Ordering::Relaxed)
    }
}

impl Socket for NewStream {
    fn socket(&self) -> BorrowedFd<'_> {
        tcp_of(self).as_fd()
    }
}

/// Whether the socket has bytes to read or has ended, even if the runtime does not know that yet.
fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&now)), Ok(1..))
}

impl<S: Read + Socket + Unpin> Read for WriteFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        if let Reads::Deferred(reader) = &mut self.reads {
            *reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Self { stream, head, signals, .. } = &mut *self;
        let polled = if head.is_open() {
            head.poll_read(stream, cx, buffer)
        } else {
            Pin::new(&mut *stream).poll_read(cx, buffer)
        };
        if matches!(&polled, Poll::Ready(Err(error)) if error.kind() == ErrorKind::UnexpectedEof) {
            return Poll::Ready(Ok(()));
        }
        if polled.is_pending() && signals.expects_silence() && is_readable(stream.socket()) {
            // A read of no bytes is the end.
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

impl<S: Write + Unpin> Write for WriteFirst<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        if self.peer_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.end_write(polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let all = pieces.iter().map(|piece| piece.len()).sum();
        if self.peer_closed {
            return Poll::Ready(Ok(all));
        }
        let polled = match written_as_one(pieces, |bytes| Pin::new(&mut self.stream).poll_write(cx, bytes)) {
            Some(written) => written,
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, pieces),
        };
        self.end_write(polled, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.peer_closed {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.ignore_close(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.peer_closed {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.ignore_close(polled, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose writes fail with this kind of error; counts them.
    struct Failing(ErrorKind, usize);

    impl Write for Failing {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, Error>> {
            self.1 += 1;
            Poll::Ready(Err(self.0.into()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            self.1 += 1;
            Poll::Ready(Err(self.0.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
            self.poll_flush(cx)
        }
    }

    #[test]
    fn writes_after_the_peer_has_closed_are_dropped() {
        for (kind, dropped) in [
            (ErrorKind::BrokenPipe, true),
            (ErrorKind::ConnectionReset, true),
            (ErrorKind::ConnectionAborted, true),
            (ErrorKind::TimedOut, false),
            (ErrorKind::Other, false),
        ] {
            let cx = &mut Context::from_waker(Waker::noop());
            let mut stream = WriteFirst::new(Failing(kind, 0), Signals::default());
            let mut stream = Pin::new(&mut stream);
            let told = |polled: Poll<Result<usize, Error>>| match polled {
                Poll::Ready(told) => told.map_err(|error| error.kind()),
                Poll::Pending => panic!("{kind}"),
            };
            let expected = |bytes| if dropped { Ok(bytes) } else { Err(kind) };
            assert_eq!(told(stream.as_mut().poll_write(cx, b"abc")), expected(3));
            let pieces = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
            assert_eq!(told(stream.as_mut().poll_write_vectored(cx, &pieces)), expected(5));
            assert_eq!(told(stream.as_mut().poll_flush(cx).map_ok(|()| 0)), expected(0));
            assert_eq!(told(stream.as_mut().poll_shutdown(cx).map_ok(|()| 0)), expected(0));
            assert_eq!(stream.stream.1, if dropped { 1 } else { 4 });
        }
    }
}
