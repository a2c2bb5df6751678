//! A client's socket, as hyper reads and writes it. It adds four things to a TCP stream:
//!
//! - Reset: for HTTP/1.0 clients, the end of the connection is the end of an answer without a length. So that a broken
//!   answer does not look complete, the socket is reset unless hyper has shut it down in order.
//! - Departure: a client that closes its sending side while it waits for an answer counts as gone. It might still read,
//!   but it cannot be distinguished from one that has exited, whose request would be answered and paid for. hyper
//!   notices the close unless it has buffered more than the request, such as an empty line after it. So every flush
//!   looks for it.
//! - Lingering: closing a connection while the client still sends would reset it, and the client could lose the answer.
//!   So at shutdown what it sends is read and dropped, until it closes its side or a limit is reached. A client that
//!   has been silent for long is not waited for: hyper may have read the rest of an unwanted request by itself.
//! - Errors: the beginning of a request is kept, so that an error can be worded if hyper cannot parse the request (see
//!   [`super::unreadable`]).

use std::io::{Error, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::client::Client;
use super::connection::Version;
use super::unreadable::{self, KEPT_BYTES, Reply};
use crate::upstream::written_as_one;

/// How long the client may be silent while its connection lingers.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the client may go on sending while its connection lingers.
const LINGER: Duration = Duration::from_secs(30);
/// How many bytes the client may send while its connection lingers.
const LINGER_BYTES: usize = 1 << 30;
/// Bytes per read where a request may begin: the size of hyper's first read.
const BEGINNING_BYTES: usize = 8192;
/// Bytes per read while lingering.
const LINGER_PIECE_BYTES: usize = 16 * 1024;

/// The socket of one client connection.
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    client: Arc<Client>,
    version: Version,
    /// When bytes were last received.
    heard: Instant,
    /// Whether hyper has shut the stream down.
    is_shut_down: bool,
    lingering: Option<Lingering>,
    reply: Reply,
    /// The first [`KEPT_BYTES`] bytes received since the last request.
    beginning: Vec<u8>,
    /// The unwritten rest of an answer that replaces hyper's.
    replacement: Bytes,
}

/// Reads and drops what a client still sends after the shutdown.
struct Lingering {
    until: Instant,
    bytes: usize,
    timer: Pin<Box<Sleep>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, client: Arc<Client>, version: Version, reply: Reply) -> Self {
        let (stream, heard) = (TokioIo::new(stream), Instant::now());
        let (beginning, replacement) = (Vec::new(), Bytes::new());
        Self {
            stream,
            client,
            version,
            heard,
            is_shut_down: false,
            lingering: None,
            reply,
            beginning,
            replacement,
        }
    }

    /// Reads bytes that may begin a request, and keeps the first of them.
    fn poll_beginning(
        &mut self,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        if !self.client.has_begun_request() {
            self.beginning.clear();
        }
        let mut piece = [MaybeUninit::uninit(); BEGINNING_BYTES];
        let length = buffer.remaining().min(BEGINNING_BYTES);
        let mut piece = ReadBuf::uninit(&mut piece[..length]);
        ready!(Pin::new(self.stream.inner_mut()).poll_read(cx, &mut piece))?;
        let room = KEPT_BYTES - self.beginning.len();
        self.beginning.extend_from_slice(&piece.filled()[..room.min(piece.filled().len())]);
        buffer.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }

    /// If `bytes` are a bare error answer of hyper's, writes an answer that says what is wrong instead. `None` if they
    /// are not.
    fn poll_replacement(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<Result<usize, Error>>> {
        if self.replacement.is_empty() {
            let is_hypers = self.version == Version::Http1 && self.client.has_begun_request();
            self.replacement =
                (self.reply)(unreadable::bare_error(bytes).filter(|_| is_hypers)?, &self.beginning);
        }
        while !self.replacement.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.replacement) {
                Poll::Ready(Ok(written)) => self.replacement.advance(written),
                other => return Some(other),
            }
        }
        Some(Poll::Ready(Ok(bytes.len())))
    }

    /// Whether the client has closed its side while it waits for an answer, or the connection is broken. If not, `cx`
    /// is woken when that happens.
    fn has_left(&self, cx: &mut Context<'_>) -> bool {
        if self.version != Version::Http1 || !self.client.is_waiting() {
            return false;
        }
        let mut next = [0];
        let mut next = ReadBuf::new(&mut next);
        matches!(self.stream.inner().poll_peek(cx, &mut next), Poll::Ready(Ok(0) | Err(_)))
    }
}

impl Lingering {
    /// Lingers for a client that last sent something at `heard` and may send `bytes` more.
    fn new(bytes: usize, heard: Instant) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(heard + SILENCE));
        Self { until: Instant::now() + LINGER, bytes, timer }
    }

    /// Ready when the client has closed its side, or a limit is reached.
    fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut piece = [0; LINGER_PIECE_BYTES];
        loop {
            let mut piece = ReadBuf::new(&mut piece);
            let Poll::Ready(read) = Pin::new(&mut *stream).poll_read(cx, &mut piece) else {
                return self.timer.as_mut().poll(cx);
            };
            let length = piece.filled().len();
            if read.is_err() || length == 0 || length > self.bytes {
                return Poll::Ready(());
            }
            self.bytes -= length;
            self.timer.as_mut().reset(self.until.min(Instant::now() + SILENCE));
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_shut_down && self.client.is_http_1_0() {
            // An error means that the socket is closed already, and needs no reset.
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
        let polled = if self.version == Version::Http1 && self.client.is_between_requests() {
            self.poll_beginning(cx, buffer)
        } else {
            Pin::new(&mut self.stream).poll_read(cx, buffer)
        };
        // The bytes of HTTP/2 need not belong to a request, and it does not lose a request that has begun.
        if polled.is_ready() && self.version == Version::Http1 {
            self.client.record_received();
            self.heard = Instant::now();
        }
        polled
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        if let Some(written) = self.poll_replacement(cx, bytes) {
            return written;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        if let [piece] = pieces
            && let Some(written) = self.poll_replacement(cx, piece)
        {
            return written;
        }
        match written_as_one(pieces, |bytes| Pin::new(&mut self.stream).poll_write(cx, bytes)) {
            Some(written) => written,
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.has_left(cx) {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.is_shut_down = true;
        }
        if self.client.is_sending() {
            let Self { stream, heard, lingering, .. } = &mut *self;
            let lingering = lingering.get_or_insert_with(|| Lingering::new(LINGER_BYTES, *heard));
            ready!(lingering.poll(stream.inner_mut(), cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// How many of the accepted `bytes` are left if a client sends `sent` bytes, goes or stays, and was then silent for
    /// `silence`; and whether it was waited for.
    async fn left(bytes: usize, silence: Duration, sent: usize, goes: bool) -> (usize, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.write_all(&vec![b'x'; sent]).await.unwrap();
        if goes {
            client.shutdown().await.unwrap();
        }
        if sent > 0 || goes {
            stream.readable().await.unwrap();
        }
        let heard = Instant::now();
        tokio::time::advance(silence).await;
        let (begun, mut lingering) = (Instant::now(), Lingering::new(bytes, heard));
        poll_fn(|cx| lingering.poll(&mut stream, cx)).await;
        (lingering.bytes, begun.elapsed() >= SILENCE)
    }

    #[tokio::test(start_paused = true)]
    async fn lingering_ends_at_the_byte_limit_a_close_or_a_silence() {
        let (just_heard, long_silent) = (Duration::ZERO, SILENCE);
        for (bytes, silence, sent, goes, expected) in [
            (100, just_heard, 100, true, (0, false)),
            (100, just_heard, 10, true, (90, false)),
            (100, just_heard, 0, true, (100, false)),
            (100, just_heard, 10, false, (90, true)),
            (100, just_heard, 0, false, (100, true)),
            (100, just_heard, 101, false, (100, false)),
            // Bytes that have arrived are read all the same.
            (100, long_silent, 10, false, (90, true)),
            (100, long_silent, 0, false, (100, false)),
        ] {
            assert_eq!(left(bytes, silence, sent, goes).await, expected, "{silence:?} {sent} {goes}");
        }
    }
}
