//! The head of an answer, in words that hyper takes.
//!
//! hyper has no answer that is of HTTP/1.0 and comes in chunks, which other clients read. So what is said of its
//! version is said in another way: that the connection ends with it. And it takes a transfer coding, even one that
//! leaves the body as it is, for a word against the body's length. So a line that names no other is left out.
//!
//! Nothing else is changed, and nothing but a line that has not ended is held back.

use std::borrow::Cow;
use std::io::Error;
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor};

/// Bytes that are read at a time, as many as hyper begins with.
const PIECE: usize = 8192;
/// Bytes of a line; hyper takes no head that is as long.
const MAX_LINE: usize = 512 * 1024;

const BEGINNING: &[u8] = b"HTTP/1.";
const OLD: &[u8] = b"HTTP/1.0 ";
const NEW: &[u8] = b"HTTP/1.1 ";

/// See the module.
#[derive(Default)]
pub(super) struct Head {
    next: Part,
    /// The beginning of a line whose end is still to come.
    line: Vec<u8>,
    /// A line that is left out, unless it goes on in the next one.
    void: Vec<u8>,
    /// What is to be read in place of what came.
    told: Vec<u8>,
}

/// What comes next of an answer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    Status,
    Fields {
        /// Whether another head comes behind this one.
        is_interim: bool,
    },
    /// What is no head.
    #[default]
    Rest,
}

impl Head {
    /// An answer comes next.
    pub(super) fn begin(&mut self) {
        self.next = Part::Status;
    }

    /// Whether what comes next is to be read by way of this.
    pub(super) fn is_open(&self) -> bool {
        self.next != Part::Rest || !self.told.is_empty()
    }

    /// Reads from `stream`, and tells of it what hyper is to know.
    pub(super) fn poll_read<S: Read + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        while self.told.is_empty() {
            let mut piece = [MaybeUninit::uninit(); PIECE];
            let mut piece = ReadBuf::uninit(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(cx, piece.unfilled()))?;
            match piece.filled() {
                [] if self.line.is_empty() => return Poll::Ready(Ok(())),
                [] => self.let_go(),
                filled => self.take(filled),
            }
        }
        let length = buffer.remaining().min(self.told.len());
        buffer.put_slice(&self.told[..length]);
        // Releases the buffer, which would otherwise be kept for as long as the answer takes.
        self.told = self.told.split_off(length);
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, mut came: &[u8]) {
        self.told.reserve(came.len());
        while self.next != Part::Rest
            && let Some(end) = memchr::memchr(b'\n', came)
        {
            let (ending, rest) = came.split_at(end + 1);
            let begun = mem::take(&mut self.line);
            let line =
                if begun.is_empty() { Cow::from(ending) } else { Cow::from([&begun, ending].concat()) };
            self.tell(&line);
            came = rest;
        }
        if self.next == Part::Rest {
            return self.told.extend_from_slice(came);
        }
        self.line.extend_from_slice(came);
        if !self.may_be_of_head() {
            self.let_go();
        }
    }

    /// Whether what has come of a line may become one of a head.
    fn may_be_of_head(&self) -> bool {
        let begins = &self.line[..self.line.len().min(BEGINNING.len())];
        let is_status = BEGINNING.starts_with(begins) || self.line == b"\r";
        self.line.len() <= MAX_LINE && (self.next != Part::Status || is_status)
    }

    /// What has come is no head, or its end never comes.
    fn let_go(&mut self) {
        self.next = Part::Rest;
        self.told.append(&mut mem::take(&mut self.line));
    }

    fn tell(&mut self, line: &[u8]) {
        let is_empty = line.trim_ascii_end().is_empty();
        match self.next {
            Part::Status if is_empty => self.told.extend_from_slice(line),
            Part::Status => {
                self.next = Part::Fields { is_interim: is_interim(line) };
                self.tell_status(line);
            }
            Part::Fields { is_interim } => {
                if is_empty {
                    self.next = if is_interim { Part::Status } else { Part::Rest };
                }
                let void = mem::take(&mut self.void);
                if line.starts_with(b" ") || line.starts_with(b"\t") {
                    self.told.extend(void);
                }
                if is_void(line) {
                    self.void = line.to_vec();
                } else {
                    self.told.extend_from_slice(line);
                }
            }
            Part::Rest => {}
        }
    }

    fn tell_status(&mut self, line: &[u8]) {
        match line.strip_prefix(OLD) {
            None => self.told.extend_from_slice(line),
            Some(status) => {
                self.told.extend_from_slice(NEW);
                self.told.extend_from_slice(status);
                // Also where the answer says `keep-alive`: an old proxy passes that on and closes (RFC 9112, C.2.2).
                self.told.extend_from_slice(b"connection: close\r\n");
            }
        }
    }
}

/// Whether the status is one that another follows.
fn is_interim(line: &[u8]) -> bool {
    let code = line.get(NEW.len()..).unwrap_or_default();
    code.starts_with(b"1") && !code.starts_with(b"101")
}

/// Whether the line names a transfer coding, but none that does anything.
fn is_void(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let (name, codings) = (line[..colon].trim_ascii_end(), &line[colon + 1..]);
    let mut codings = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    name.eq_ignore_ascii_case(b"transfer-encoding")
        && codings.all(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of what came, however it came.
    fn told(came: &[u8]) -> String {
        let mut all = Vec::new();
        for size in [came.len(), 1, 7] {
            let mut head = Head::default();
            head.begin();
            came.chunks(size).for_each(|piece| head.take(piece));
            all.push(head.told);
        }
        assert!(all.iter().all(|told| *told == all[0]), "{}", came.escape_ascii());
        String::from_utf8(all.swap_remove(0)).unwrap()
    }

    #[test]
    fn only_what_hyper_does_not_take_is_told_in_other_words() {
        for (came, expected) in [
            ("HTTP/1.1 200 OK\r\na: 1\r\n\r\nb", "HTTP/1.1 200 OK\r\na: 1\r\n\r\nb"),
            ("HTTP/1.0 200 OK\r\na: 1\r\n\r\nb", "HTTP/1.1 200 OK\r\nconnection: close\r\na: 1\r\n\r\nb"),
            ("\r\n\nHTTP/1.0 404\n\nb", "\r\n\nHTTP/1.1 404\nconnection: close\r\n\nb"),
            ("HTTP/1.1 103 x\r\n\r\nHTTP/1.0 2", "HTTP/1.1 103 x\r\n\r\n"),
            ("HTTP/1.1 103 x\r\n\r\nHTTP/1.0 2\n", "HTTP/1.1 103 x\r\n\r\nHTTP/1.1 2\nconnection: close\r\n"),
            // What comes behind a head may look like another.
            ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.0 200 OK\n"),
            ("HTTP/1.1 101 x\r\n\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 101 x\r\n\r\nHTTP/1.0 200 OK\n"),
            ("HTTP/1.1 200 OK\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\r\nHTTP/1.0 200 OK\n"),
            ("SSH-2.0-OpenSSH\n", "SSH-2.0-OpenSSH\n"),
            // Bytes that cannot become a head are not held back.
            ("\u{15}\u{3}\u{3}", "\u{15}\u{3}\u{3}"),
            ("\r", ""),
            ("HTTP/1", ""),
            ("HTTP/2", "HTTP/2"),
            // A line may go on in the next.
            ("HTTP/1.1 2\nTransfer-Encoding: identity\na: 1\n\n", "HTTP/1.1 2\na: 1\n\n"),
            (
                "HTTP/1.1 2\nTransfer-Encoding: identity\n , chunked\n\n",
                "HTTP/1.1 2\nTransfer-Encoding: identity\n , chunked\n\n",
            ),
        ] {
            assert_eq!(told(came.as_bytes()), expected);
        }
    }

    #[test]
    fn codings_that_leave_a_body_as_it_is_are_none() {
        for (line, expected) in [
            ("Transfer-Encoding: identity\r\n", true),
            ("transfer-encoding:Identity\n", true),
            ("Transfer-Encoding : identity , identity\r\n", true),
            // It may go on in the next line.
            ("Transfer-Encoding:\r\n", false),
            ("Transfer-Encoding: identity,\r\n", false),
            ("Transfer-Encoding: identity, chunked\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
            ("Transfer-Encoding: gzip\r\n", false),
            ("Content-Encoding: identity\r\n", false),
            ("Transfer-Encoding\r\n", false),
            ("\r\n", false),
        ] {
            assert_eq!(is_void(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_waited_for() {
        let long = [NEW, &vec![b'x'; MAX_LINE]].concat();
        assert_eq!(told(&long).len(), long.len());
    }

    #[test]
    fn what_has_come_of_a_line_is_told_at_the_end() {
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
