//! Follows the beginning of an HTTP/2 connection, where it shows whether the server speaks HTTP/2 at all.
//!
//! What ends the encryption may agree on HTTP/2 for a server behind it that does not know it. Such a server answers the
//! preface with an error of HTTP/1, or closes. Until the first bytes have arrived, a write that fails because the peer
//! has closed counts as done: a read then finds that answer, or the end.
//!
//! After the first bytes, everything passes unchanged.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::write_first::is_closed;

/// How every answer of HTTP/1 begins, and no frame of HTTP/2: it would be longer than any may be.
const HTTP_1: &[u8] = b"HTTP/";

/// The server answers the preface of HTTP/2 with HTTP/1, so it has not read any request after it.
#[derive(Debug, thiserror::Error)]
#[error("it speaks HTTP/1 where HTTP/2 was agreed on")]
struct SpeaksHttp1;

/// What a connection has begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing has arrived yet, or too little to tell.
    Nothing,
    /// An answer of HTTP/1.
    Http1,
    /// Something else.
    Http2,
    /// The end, before anything else.
    End,
}

/// Tells what a connection has begun with.
#[derive(Clone, Default)]
pub(super) struct Hearing(Arc<AtomicU8>);

/// A stream whose beginning is followed.
pub(super) struct Opening<S> {
    stream: S,
    /// How many bytes have arrived that may begin an answer of HTTP/1; `None` once it is known what has begun.
    matched: Option<usize>,
    hearing: Hearing,
}

impl Hearing {
    pub(super) fn heard(&self) -> Heard {
        [Heard::Http1, Heard::Http2, Heard::End]
            .into_iter()
            .find(|heard| *heard as u8 == self.0.load(Ordering::Relaxed))
            .unwrap_or(Heard::Nothing)
    }
}

impl<S> Opening<S> {
    pub(super) fn new(stream: S, hearing: Hearing) -> Self {
        Self { stream, matched: Some(0), hearing }
    }

    fn conclude(&mut self, heard: Heard) {
        self.matched = None;
        self.hearing.0.store(heard as u8, Ordering::Relaxed);
    }

    /// The result of a write of `all` bytes. If it failed because the peer has closed, that counts as done at first.
    fn end_write<T>(&self, polled: Poll<Result<T, Error>>, all: T) -> Poll<Result<T, Error>> {
        match polled {
            Poll::Ready(Err(error)) if self.matched.is_some() && is_closed(&error) => Poll::Ready(Ok(all)),
            polled => polled,
        }
    }
}

impl<S: Read + Unpin> Opening<S> {
    /// Reads bytes after the first `matched`, which may begin an answer of HTTP/1, and no more than such a beginning.
    fn poll_beginning(
        &mut self,
        matched: usize,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        let missing = &HTTP_1[matched..];
        let mut piece = [MaybeUninit::uninit(); HTTP_1.len()];
        let mut piece = ReadBuf::uninit(&mut piece[..missing.len().min(buffer.remaining())]);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, piece.unfilled()));
        match (&read, piece.filled()) {
            (Ok(()), []) => self.conclude(Heard::End),
            (Ok(()), filled) if filled == missing => {
                self.conclude(Heard::Http1);
                return Poll::Ready(Err(Error::other(SpeaksHttp1)));
            }
            (Ok(()), filled) if missing.starts_with(filled) => self.matched = Some(matched + filled.len()),
            (Ok(()), _) => self.conclude(Heard::Http2),
            (Err(error), _) if is_closed(error) || error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.conclude(Heard::End);
            }
            (Err(_), _) => {}
        }
        buffer.put_slice(piece.filled());
        Poll::Ready(read)
    }
}

impl<S: Read + Unpin> Read for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        match self.matched {
            Some(matched) => self.poll_beginning(matched, cx, buffer),
            None => Pin::new(&mut self.stream).poll_read(cx, buffer),
        }
    }
}

impl<S: Write + Unpin> Write for Opening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.end_write(polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        let all = || pieces.iter().map(|piece| piece.len()).sum();
        if polled.is_pending() { polled } else { self.end_write(polled, all()) }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.end_write(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// A stream that gives `pieces`, then fails with this kind of error or ends. All its writes fail.
    struct Scripted(Vec<&'static [u8]>, Option<ErrorKind>);

    impl Read for Scripted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<Result<(), Error>> {
            if let Some(piece) = self.0.first_mut() {
                let (now, later) = piece.split_at(piece.len().min(buffer.remaining()));
                buffer.put_slice(now);
                *piece = later;
                self.0.retain(|piece| !piece.is_empty());
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(self.1.map_or(Ok(()), |kind| Err(kind.into())))
        }
    }

    impl Write for Scripted {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, Error>> {
            Poll::Ready(Err(ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Ready(Err(ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn the_beginning_of_a_connection_is_reported() {
        const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        for (pieces, then, expected, passed) in [
            (&[&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]][..], None, Heard::Http1, &b""[..]),
            (&[b"H", b"TT", b"P/1.0 400\r\n"], None, Heard::Http1, b"HTT"),
            (&[SETTINGS], None, Heard::Http2, SETTINGS),
            (&[b"HTTQ/"], None, Heard::Http2, b"HTTQ/"),
            (&[], None, Heard::End, b""),
            (&[b"HT"], None, Heard::End, b"HT"),
            (&[], Some(ErrorKind::ConnectionReset), Heard::End, b""),
            (&[], Some(ErrorKind::UnexpectedEof), Heard::End, b""),
            // Nobody has closed.
            (&[], Some(ErrorKind::TimedOut), Heard::Nothing, b""),
            (&[], Some(ErrorKind::InvalidData), Heard::Nothing, b""),
            // What follows does not matter.
            (
                &[SETTINGS, b"HTTP/"],
                Some(ErrorKind::ConnectionReset),
                Heard::Http2,
                b"\0\0\0\x04\0\0\0\0\0HTTP/",
            ),
        ] {
            let (hearing, cx) = (Hearing::default(), &mut Context::from_waker(std::task::Waker::noop()));
            let mut stream = Opening::new(Scripted(pieces.to_vec(), then), hearing.clone());
            let mut stream = Pin::new(&mut stream);
            assert_eq!(hearing.heard(), Heard::Nothing);
            assert!(matches!(stream.as_mut().poll_write(cx, b"abc"), Poll::Ready(Ok(3))));
            assert!(matches!(stream.as_mut().poll_flush(cx), Poll::Ready(Ok(()))));
            let mut all = [0; 64];
            let mut all = ReadBuf::new(&mut all);
            loop {
                let before = all.filled().len();
                let read = stream.as_mut().poll_read(cx, all.unfilled());
                if !matches!(read, Poll::Ready(Ok(()))) || all.filled().len() == before {
                    break;
                }
            }
            assert_eq!((hearing.heard(), all.filled()), (expected, passed), "{pieces:?} {then:?}");
            let is_done = matches!(stream.as_mut().poll_write(cx, b"abc"), Poll::Ready(Ok(3)));
            assert_eq!(is_done, expected == Heard::Nothing, "{pieces:?} {then:?}");
        }
    }
}
