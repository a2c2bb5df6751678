//! Incremental framing of server-sent events.
//!
//! Bytes go in as they arrive, split anywhere; the data of each complete event comes out. It is only used on a copy of
//! a stream: it never blocks, never fails, and drops what is too large instead of growing.
//!
//! Some servers omit the empty line between events. Within a JSON document no object or list begins directly after the
//! end of another, so there an event has ended.

use std::mem;

use memchr::memchr2;

/// The largest event that is kept, in bytes. An OpenAI `response.completed` event repeats the whole answer.
const MAX_EVENT: usize = 16 << 20;

/// The byte order mark that some servers put before a text. It is not part of it.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The most bytes that are looked at to tell whether a body is an event stream.
const MAX_BEGINNING: usize = 4096;

/// What the lines of a stream may begin with.
const FIELDS: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];

/// Whether a body is an event stream, judging by its beginning without white space and byte order mark; `None` if more
/// of it is needed.
fn is_stream(body: &[u8]) -> Option<bool> {
    let body = body.strip_prefix(BOM).unwrap_or(body).trim_ascii_start();
    if FIELDS.iter().any(|field| body.starts_with(field)) {
        return Some(true);
    }
    let is_open = BOM.starts_with(body) || FIELDS.iter().any(|field| field.starts_with(body));
    (!is_open).then_some(false)
}

/// The beginning of a body, kept until it shows whether the body is an event stream.
#[derive(Debug, Default)]
pub(crate) struct Beginning(Vec<u8>);

impl Beginning {
    /// Takes the next bytes. Once that is clear, returns whether the body is an event stream, and all that was kept.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<(bool, Vec<u8>)> {
        self.0.extend_from_slice(bytes);
        let is_long = self.0.len() > MAX_BEGINNING;
        let is_stream = is_stream(&self.0).or_else(|| is_long.then_some(false))?;
        Some((is_stream, mem::take(&mut self.0)))
    }

    /// What is kept so far.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.0
    }
}

/// Collects events from a byte stream.
#[derive(Debug, Default)]
pub struct Framer {
    /// The unfinished line.
    line: Vec<u8>,
    /// The data of the unfinished event, lines joined by a newline.
    data: Vec<u8>,
    /// Whether the unfinished event has a data line.
    pending: bool,
    /// Whether the last line ended with a carriage return: a newline that follows belongs to it.
    after_return: bool,
    /// Whether bytes of the unfinished line were dropped.
    cut_line: bool,
    /// Whether data of the unfinished event was dropped.
    cut_event: bool,
    /// Whether the first line has been read.
    begun: bool,
}

impl Framer {
    /// Takes the next bytes and calls `event` with the data of every event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], event: &mut dyn FnMut(&[u8])) {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            if self.line.is_empty() && !self.cut_line {
                self.take_line(&bytes[..end], event);
            } else {
                self.keep(&bytes[..end]);
                self.end_line(event);
            }
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                self.after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.keep(bytes);
    }

    /// Ends the stream. An event without its empty line still counts, because servers forget it.
    pub fn finish(&mut self, event: &mut dyn FnMut(&[u8])) {
        self.end_line(event);
        self.take_line(b"", event);
    }

    /// Ends the unfinished line. If it was dropped, so is its event.
    fn end_line(&mut self, event: &mut dyn FnMut(&[u8])) {
        let line = mem::take(&mut self.line);
        self.cut_event |= mem::take(&mut self.cut_line);
        self.take_line(&line, event);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_EVENT {
            self.line.clear();
            self.cut_line = true;
        } else if !self.cut_line {
            self.line.extend_from_slice(bytes);
        }
    }

    fn take_line(&mut self, line: &[u8], event: &mut dyn FnMut(&[u8])) {
        let is_first = !mem::replace(&mut self.begun, true);
        let line = if is_first { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        if line.is_empty() {
            if !mem::take(&mut self.cut_event) && self.pending {
                event(&self.data);
            }
            self.pending = false;
            self.data.clear();
            return;
        }
        let Some(value) = line.strip_prefix(b"data:") else { return };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if self.pending && are_apart(&self.data, value) {
            self.take_line(b"", event);
        }
        if self.data.len() + value.len() > MAX_EVENT {
            self.cut_event = true;
            self.data.clear();
            return;
        }
        if mem::replace(&mut self.pending, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }
}

/// Whether two lines of data cannot belong to the same JSON document, although they are in the same event.
pub(crate) fn are_apart(before: &[u8], after: &[u8]) -> bool {
    matches!(before.trim_ascii_end(), [.., b'}' | b']'])
        && matches!(after.trim_ascii_start(), [b'{' | b'[', ..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut framer = Framer::default();
        let mut out = Vec::new();
        let mut push = |data: &[u8]| out.push(String::from_utf8_lossy(data).into_owned());
        for chunk in chunks {
            framer.push(chunk, &mut push);
        }
        framer.finish(&mut push);
        out
    }

    #[test]
    fn events_are_framed_with_any_line_ends_and_comments() {
        for (text, expected) in [
            ("data: a\n\ndata:b\n\n", &["a", "b"][..]),
            ("event: x\r\nid: 1\r\ndata: a\r\n\r\n: comment\r\n\r\n", &["a"]),
            ("data: a\rdata: b\r\r", &["a\nb"]),
            ("data: a\ndata:\ndata: b\n\n", &["a\n\nb"]),
            (": keep-alive\n\nretry: 3\n\n", &[]),
            ("data: [DONE]", &["[DONE]"]),
            ("data: 🦀 \\n\n\n", &["🦀 \\n"]),
            ("datax: no\n\n", &[]),
            ("data: {}\ndata: {}\ndata:  [1]\n: c\ndata: [DONE]\n", &["{}", "{}", " [1]", "[DONE]"]),
            ("data: {}\r\nevent: x\r\ndata: {}\r\ndata:\r\ndata: []\r\n\r\n", &["{}", "{}\n", "[]"]),
            ("data: [\ndata: {\ndata: },\ndata: {}\ndata: ]\n\n", &["[\n{\n},\n{}\n]"]),
            ("data: {}\ndata: x\ndata: [\n\n", &["{}\nx\n["]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]),
            ("\u{feff}\ndata: a\n\n", &["a"]),
        ] {
            assert_eq!(events(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn event_streams_are_recognised_by_their_beginning() {
        for (body, expected) in [
            ("", None),
            (" \r\n", None),
            ("\u{feff}", None),
            ("eve", None),
            ("event: x", Some(true)),
            ("data:{}", Some(true)),
            ("\u{feff}data:", Some(true)),
            ("\n: ping", Some(true)),
            ("id: 1", Some(true)),
            ("retry: 1", Some(true)),
            ("{", Some(false)),
            ("\u{feff}[", Some(false)),
            ("database", Some(false)),
            ("<html>", Some(false)),
        ] {
            assert_eq!(is_stream(body.as_bytes()), expected, "{body:?}");
        }
        assert_eq!(is_stream(&BOM[..2]), None);
    }

    #[test]
    fn huge_events_are_dropped() {
        let mut framer = Framer::default();
        let mut seen = Vec::new();
        let chunk = vec![b'x'; 1 << 20];
        framer.push(b"data: ", &mut |_| {});
        for _ in 0..20 {
            framer.push(&chunk, &mut |_| {});
        }
        framer.push(b"\n\ndata: after\n\n", &mut |data| seen.push(data.to_vec()));
        assert_eq!(seen, [b"after".to_vec()]);
    }

    #[test]
    fn an_unfinished_huge_event_is_dropped_at_the_end() {
        let line = format!("data: {}", "x".repeat(MAX_EVENT));
        for text in [format!("data: {{}}\n{line}"), line] {
            assert_eq!(events(&[text.as_bytes()]), [""; 0]);
        }
    }

    proptest! {
        #[test]
        fn events_are_the_same_in_any_chunking(
            text in "\u{feff}?(data: [a-z🦀]{0,5}|event: e|: c|)(\r\n|\n|\r)(data:(x|\\{\\})(\n|\r\n|\r)|\n|\r\n|\r){0,6}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.push(0);
            at.push(bytes.len());
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&chunks), events(&[bytes]));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..10)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            events(&chunks);
        }
    }
}
