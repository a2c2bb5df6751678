//! A byte stream that listens no sooner than it has spoken, and goes on when nobody listens any more.
//!
//! An upstream may answer before it has read a request, and close: a body that is too large, a key that is wrong.
//! What is written then fails, with the answer still waiting to be read. So such a failure is not told where it
//! happens: what is written from there on is dropped, and reading finds the answer, or the same failure.
//!
//! It may even answer whoever connects, as one does that is overloaded. hyper takes an answer that is there before its
//! request for a mistake, so nothing is read before something is written.
//!
//! A connection that was kept may have been closed just now, which the runtime hears of when it next waits. So whoever
//! is about to send something more has the system asked.
//!
//! What is read once a request has begun to be written is the head of its answer, up to its end.

use std::io::{Error, ErrorKind, IoSlice};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::TcpStream;

use super::connect::Made;
use super::head::Head;

/// See the module.
pub(super) struct WriteFirst<S> {
    stream: S,
    /// Writing has failed because the other side has closed.
    is_deaf: bool,
    speech: Speech,
    head: Head,
    cue: Cue,
}

/// What a stream is told by who uses it.
#[derive(Clone, Default)]
pub(super) struct Cue(Arc<Cues>);

#[derive(Default)]
struct Cues {
    /// Nothing is to come now: the stream is looked at before it is believed to be open.
    is_doubted: AtomicBool,
    /// What is written next begins a request.
    is_request_due: AtomicBool,
}

/// A stream that can be looked at without reading from it.
pub(super) trait Socket {
    fn socket(&self) -> BorrowedFd<'_>;
}

/// Whether anything was written.
enum Speech {
    /// Nothing yet; who waits to read.
    Awaited(Option<Waker>),
    Begun,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S, cue: Cue) -> Self {
        Self { stream, is_deaf: false, speech: Speech::Awaited(None), head: Head::default(), cue }
    }

    /// What comes of writing, or of `dropped` where the other side has closed.
    fn written<T>(&mut self, polled: Poll<Result<T, Error>>, dropped: T) -> Poll<Result<T, Error>> {
        match polled {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.is_deaf = true;
                Poll::Ready(Ok(dropped))
            }
            polled => polled,
        }
    }

    fn spoken(&mut self, polled: Poll<Result<usize, Error>>, all: usize) -> Poll<Result<usize, Error>> {
        let polled = self.written(polled, all);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            if self.cue.begins_request() {
                self.head.begin();
            }
            if let Speech::Awaited(Some(reader)) = mem::replace(&mut self.speech, Speech::Begun) {
                reader.wake();
            }
        }
        polled
    }
}

fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

impl Cue {
    /// From here on the stream is looked at wherever it has nothing to read, or no more.
    pub(super) fn doubt(&self, is_doubted: bool) {
        self.0.is_doubted.store(is_doubted, Ordering::Relaxed);
    }

    /// What is written next begins a request.
    pub(super) fn request(&self) {
        self.0.is_request_due.store(true, Ordering::Relaxed);
    }

    fn is_doubted(&self) -> bool {
        self.0.is_doubted.load(Ordering::Relaxed)
    }

    fn begins_request(&self) -> bool {
        self.0.is_request_due.swap(false, Ordering::Relaxed)
    }
}

impl Socket for Made {
    fn socket(&self) -> BorrowedFd<'_> {
        let tcp: &TokioIo<TcpStream> = match self {
            Self::Http(tcp) => tcp,
            Self::Https(tls) => tls.inner().get_ref().0.inner(),
        };
        tcp.inner().as_fd()
    }
}

/// Something has come that the runtime has not heard of: the end, or what nobody has asked for.
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
        if let Speech::Awaited(reader) = &mut self.speech {
            *reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Self { stream, head, cue, .. } = &mut *self;
        let polled = if head.is_open() {
            head.poll_read(stream, cx, buffer)
        } else {
            Pin::new(&mut *stream).poll_read(cx, buffer)
        };
        if polled.is_pending() && cue.is_doubted() && is_readable(stream.socket()) {
            // Nothing read: the end.
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
        if self.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.spoken(polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let all = pieces.iter().map(|piece| piece.len()).sum();
        if self.is_deaf {
            return Poll::Ready(Ok(all));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.spoken(polled, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.written(polled, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes fail in one way, and are counted.
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
    fn what_nobody_hears_is_dropped() {
        for (kind, dropped) in [
            (ErrorKind::BrokenPipe, true),
            (ErrorKind::ConnectionReset, true),
            (ErrorKind::ConnectionAborted, true),
            (ErrorKind::TimedOut, false),
            (ErrorKind::Other, false),
        ] {
            let cx = &mut Context::from_waker(Waker::noop());
            let mut stream = WriteFirst::new(Failing(kind, 0), Cue::default());
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
