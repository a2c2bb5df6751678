//! Rewrites response heads that hyper's client rejects or misreads, although other clients accept them:
//!
//! - HTTP/1.0 becomes HTTP/1.1 with `Connection: close`. hyper rejects an HTTP/1.0 response with a chunked body.
//! - `Transfer-Encoding: identity` is dropped. hyper takes any transfer coding to override `Content-Length`, and would
//!   read until the connection closes.
//!
//! The first frame of HTTP/2 in place of a head is an error of its own, [`SpeaksHttp2`].
//!
//! Everything else passes unchanged. Only an incomplete line of a head is held back.

use std::borrow::Cow;
use std::io::Error;
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor};

/// Bytes per read: the size of hyper's first read.
const PIECE_BYTES: usize = 8192;
/// The longest line, in bytes. hyper rejects heads of this size.
const MAX_LINE_BYTES: usize = 512 * 1024;

const STATUS_PREFIX: &[u8] = b"HTTP/1.";
const HTTP_1_0: &[u8] = b"HTTP/1.0 ";
const HTTP_1_1: &[u8] = b"HTTP/1.1 ";

/// The server answers a request over HTTP/1 with HTTP/2, so it has not read it.
#[derive(Debug, thiserror::Error)]
#[error("it speaks HTTP/2 where HTTP/1.1 was agreed on")]
pub(super) struct SpeaksHttp2;

/// Rewrites the heads of the responses on one connection.
#[derive(Default)]
pub(super) struct Head {
    next: Part,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// An `identity` line to be dropped, unless the next line continues it (obsolete line folding).
    identity: Vec<u8>,
    /// Bytes for hyper to read.
    output: Vec<u8>,
}

/// The part of a response that comes next.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    Status,
    Fields {
        /// Whether this head is followed by another (1xx).
        is_interim: bool,
    },
    /// Everything after the head, which is passed through.
    #[default]
    Rest,
}

impl Head {
    /// Expects the head of a response next.
    pub(super) fn begin(&mut self) {
        self.next = Part::Status;
    }

    /// Whether hyper must read through [`Self::poll_read`].
    pub(super) fn is_open(&self) -> bool {
        self.next != Part::Rest || !self.output.is_empty()
    }

    /// Reads from `stream` and fills `buffer` with the rewritten bytes.
    pub(super) fn poll_read<S: Read + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        while self.output.is_empty() {
            let mut piece = [MaybeUninit::uninit(); PIECE_BYTES];
            let mut piece = ReadBuf::uninit(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(cx, piece.unfilled()))?;
            match piece.filled() {
                [] if self.line.is_empty() => return Poll::Ready(Ok(())),
                [] => self.pass_through(),
                filled if self.expects_status() && is_settings_frame(filled) => {
                    return Poll::Ready(Err(Error::other(SpeaksHttp2)));
                }
                filled => self.feed(filled),
            }
        }
        let length = buffer.remaining().min(self.output.len());
        buffer.put_slice(&self.output[..length]);
        // Releases the buffer, which would otherwise be kept for as long as the answer takes.
        self.output = self.output.split_off(length);
        Poll::Ready(Ok(()))
    }

    /// Whether nothing of a head has arrived yet.
    fn expects_status(&self) -> bool {
        self.next == Part::Status && self.line.is_empty()
    }

    /// Rewrites the complete lines of a head in the `received` bytes. Keeps an incomplete line, and passes on
    /// everything after the head.
    fn feed(&mut self, mut received: &[u8]) {
        self.output.reserve(received.len());
        while self.next != Part::Rest
            && let Some(end) = memchr::memchr(b'\n', received)
        {
            let (ending, rest) = received.split_at(end + 1);
            let begun = mem::take(&mut self.line);
            let line =
                if begun.is_empty() { Cow::from(ending) } else { Cow::from([&begun, ending].concat()) };
            self.rewrite_line(&line);
            received = rest;
        }
        if self.next == Part::Rest {
            return self.output.extend_from_slice(received);
        }
        self.line.extend_from_slice(received);
        if !self.may_be_of_head() {
            self.pass_through();
        }
    }

    /// Whether the incomplete line may still become a line of a head.
    fn may_be_of_head(&self) -> bool {
        let beginning = &self.line[..self.line.len().min(STATUS_PREFIX.len())];
        let is_status = STATUS_PREFIX.starts_with(beginning) || self.line == b"\r";
        self.line.len() <= MAX_LINE_BYTES && (self.next != Part::Status || is_status)
    }

    /// Passes through the incomplete line and everything after it: the line is not of a head, or too long.
    fn pass_through(&mut self) {
        self.next = Part::Rest;
        self.output.append(&mut mem::take(&mut self.line));
    }

    fn rewrite_line(&mut self, line: &[u8]) {
        let is_empty = line.trim_ascii_end().is_empty();
        match self.next {
            Part::Status if is_empty => self.output.extend_from_slice(line),
            Part::Status => {
                self.next = Part::Fields { is_interim: is_interim(line) };
                self.rewrite_status(line);
            }
            Part::Fields { is_interim } => {
                if is_empty {
                    self.next = if is_interim { Part::Status } else { Part::Rest };
                }
                let identity = mem::take(&mut self.identity);
                if line.starts_with(b" ") || line.starts_with(b"\t") {
                    self.output.extend(identity);
                }
                if is_identity(line) {
                    self.identity = line.to_vec();
                } else {
                    self.output.extend_from_slice(line);
                }
            }
            Part::Rest => {}
        }
    }

    fn rewrite_status(&mut self, line: &[u8]) {
        match line.strip_prefix(HTTP_1_0) {
            None => self.output.extend_from_slice(line),
            Some(status) => {
                self.output.extend_from_slice(HTTP_1_1);
                self.output.extend_from_slice(status);
                // Even if the response says `keep-alive`: old proxies pass that on and close (RFC 9112, C.2.2).
                self.output.extend_from_slice(b"connection: close\r\n");
            }
        }
    }
}

/// Whether a status line is that of an interim response, which a final one follows.
fn is_interim(line: &[u8]) -> bool {
    let code = line.get(HTTP_1_1.len()..).unwrap_or_default();
    code.starts_with(b"1") && !code.starts_with(b"101")
}

/// Whether the line is a `Transfer-Encoding` field that names `identity` only.
fn is_identity(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let (name, codings) = (line[..colon].trim_ascii_end(), &line[colon + 1..]);
    let mut codings = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    name.eq_ignore_ascii_case(b"transfer-encoding")
        && codings.all(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

/// Whether these bytes begin as a server begins to speak HTTP/2: with a frame of settings, which acknowledges nothing.
fn is_settings_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0, _, _, 4, 0, 0, 0, 0, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rewritten form of `came`, which must not depend on how the bytes are split into reads.
    fn output(came: &[u8]) -> String {
        let mut all = Vec::new();
        for size in [came.len(), 1, 7] {
            let mut head = Head::default();
            head.begin();
            came.chunks(size).for_each(|piece| head.feed(piece));
            all.push(head.output);
        }
        assert!(all.iter().all(|output| *output == all[0]), "{}", came.escape_ascii());
        String::from_utf8(all.swap_remove(0)).unwrap()
    }

    #[test]
    fn only_heads_that_hyper_rejects_are_rewritten() {
        for (came, expected) in [
            ("HTTP/1.1 200 OK\r\na: 1\r\n\r\nb", "HTTP/1.1 200 OK\r\na: 1\r\n\r\nb"),
            ("HTTP/1.0 200 OK\r\na: 1\r\n\r\nb", "HTTP/1.1 200 OK\r\nconnection: close\r\na: 1\r\n\r\nb"),
            ("\r\n\nHTTP/1.0 404\n\nb", "\r\n\nHTTP/1.1 404\nconnection: close\r\n\nb"),
            ("HTTP/1.1 103 x\r\n\r\nHTTP/1.0 2", "HTTP/1.1 103 x\r\n\r\n"),
            ("HTTP/1.1 103 x\r\n\r\nHTTP/1.0 2\n", "HTTP/1.1 103 x\r\n\r\nHTTP/1.1 2\nconnection: close\r\n"),
            // The bytes after a head may look like another head.
            ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.0 200 OK\n"),
            ("HTTP/1.1 101 x\r\n\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 101 x\r\n\r\nHTTP/1.0 200 OK\n"),
            ("HTTP/1.1 200 OK\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\r\nHTTP/1.0 200 OK\n"),
            ("SSH-2.0-OpenSSH\n", "SSH-2.0-OpenSSH\n"),
            // Bytes that cannot become a head are not held back.
            ("\u{15}\u{3}\u{3}", "\u{15}\u{3}\u{3}"),
            ("\r", ""),
            ("HTTP/1", ""),
            ("HTTP/2", "HTTP/2"),
            // A line may be continued in the next.
            ("HTTP/1.1 2\nTransfer-Encoding: identity\na: 1\n\n", "HTTP/1.1 2\na: 1\n\n"),
            (
                "HTTP/1.1 2\nTransfer-Encoding: identity\n , chunked\n\n",
                "HTTP/1.1 2\nTransfer-Encoding: identity\n , chunked\n\n",
            ),
        ] {
            assert_eq!(output(came.as_bytes()), expected);
        }
    }

    #[test]
    fn only_a_transfer_encoding_of_identity_alone_is_dropped() {
        for (line, expected) in [
            ("Transfer-Encoding: identity\r\n", true),
            ("transfer-encoding:Identity\n", true),
            ("Transfer-Encoding : identity , identity\r\n", true),
            // It may be continued in the next line.
            ("Transfer-Encoding:\r\n", false),
            ("Transfer-Encoding: identity,\r\n", false),
            ("Transfer-Encoding: identity, chunked\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
            ("Transfer-Encoding: gzip\r\n", false),
            ("Content-Encoding: identity\r\n", false),
            ("Transfer-Encoding\r\n", false),
            ("\r\n", false),
        ] {
            assert_eq!(is_identity(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn an_overlong_line_is_passed_on() {
        let long = [HTTP_1_1, &vec![b'x'; MAX_LINE_BYTES]].concat();
        assert_eq!(output(&long).len(), long.len());
    }

    #[test]
    fn an_incomplete_line_is_passed_on_at_the_end() {
        let (mut head, mut stream) = (Head::default(), hyper_util::rt::TokioIo::new(&b"HTTP/1"[..]));
        head.begin();
        let mut buffer = [0; 9];
        let mut buffer = ReadBuf::new(&mut buffer);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..2 {
            let polled = head.poll_read(&mut stream, &mut cx, buffer.unfilled());
            assert!(matches!(polled, Poll::Ready(Ok(()))));
        }
        assert_eq!(buffer.filled(), b"HTTP/1");
        assert!(!head.is_open());
    }
}
