//! Removes single events from a stream as it passes.
//!
//! An incomplete event is held back until it is complete; everything else is passed on at once and unchanged. The
//! filter never fails: whatever is too large, or is no event, is passed on as it came.

use std::mem;

use memchr::memmem;

use super::Protocol;
use crate::sse::{self, Framer};

/// The most bytes of an unfinished event that are held back.
const MAX_HELD: usize = 1 << 20;
/// The longest sequence that must be seen to recognise the end of an event: both line ends, and `data: {`.
const LONGEST_END: usize = 9;

/// Removes the events that are only sent because usage was asked for.
#[derive(Debug)]
pub struct EventFilter {
    protocol: &'static dyn Protocol,
    /// The beginning of an unfinished event.
    held: Vec<u8>,
    /// Bytes of `held` that contain no end of an event.
    searched: usize,
    /// Whether the event in progress was too large to hold, so that its rest is passed on.
    is_passing: bool,
}

impl EventFilter {
    /// A filter for streams of this dialect.
    pub fn new(protocol: &'static dyn Protocol) -> Self {
        Self { protocol, held: Vec::new(), searched: 0, is_passing: false }
    }

    /// Takes the next bytes and returns those to pass on.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut passed = Vec::with_capacity(self.held.len());
        let mut start = 0;
        while let Some(end) = event_end(&self.held, start.max(self.searched)) {
            let event = &self.held[start..end];
            if mem::take(&mut self.is_passing) || !self.is_removed(event) {
                passed.extend_from_slice(event);
            }
            start = end;
            self.searched = end;
        }
        self.held.drain(..start);
        self.searched = self.held.len().saturating_sub(LONGEST_END - 1);
        if self.is_passing || self.held.len() > MAX_HELD {
            self.is_passing = true;
            passed.extend(self.held.drain(..self.searched));
            self.searched = 0;
        }
        passed
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = mem::take(&mut self.held);
        if !self.is_passing && self.is_removed(&rest) { Vec::new() } else { rest }
    }

    /// Whether an event only states usage, so that it is removed.
    fn is_removed(&self, event: &[u8]) -> bool {
        if memmem::find(event, b"\"usage\"").is_none() {
            return false;
        }
        let mut framer = Framer::default();
        let (mut has_data, mut has_more) = (false, false);
        let mut judge = |data: &[u8]| {
            has_data = true;
            has_more |= !self.protocol.only_states_usage(data);
        };
        framer.push(event, &mut judge);
        framer.finish(&mut judge);
        has_data && !has_more
    }
}

/// The end of the first event that ends at or after `from`: the position after its empty line, or where a server has
/// left that line out. `None` if there is none yet. A final `\r` is no end, since a `\n` may follow that belongs to it,
/// unless lines end with `\r` alone.
fn event_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr2_iter(b'\n', b'\r', &bytes[from..]).find_map(|at| {
        let line = from + at + line_end(&bytes[from + at..])?;
        let next = bytes[line..].strip_prefix(b"data:");
        if next.is_some_and(|next| sse::are_apart(&bytes[..from + at], &next[..next.len().min(2)])) {
            return Some(line);
        }
        let empty = line_end(&bytes[line..])?;
        let is_open = bytes[line..] == *b"\r" && bytes[line - 1] == b'\n';
        (!is_open).then_some(line + empty)
    })
}

/// The length of the line end that `bytes` begin with; `None` if they begin with something else.
fn line_end(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\r', b'\n', ..] => Some(2),
        [b'\r' | b'\n', ..] => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::openai_chat::OpenAiChat;

    const CHUNK: &str = r#"data: {"id":"c","choices":[{"delta":{"content":"a"}}],"usage":null}"#;
    const FILTERED: &str = r#"data: {"choices":[],"prompt_filter_results":[],"usage":null}"#;
    const LAST: &str =
        r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#;
    const USAGE: &str = r#"data: {"id":"c", "usage": {"prompt_tokens": 1}, "choices": []}"#;
    const SPOKEN: &str = r#"data: {"choices":[{"delta":{"content":"\"usage\":{},\"choices\":[]"}}]}"#;

    fn sift(stream: &str, cuts: &[usize]) -> String {
        let mut filter = EventFilter::new(&OpenAiChat);
        let (mut out, mut rest) = (Vec::new(), stream.as_bytes());
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut % (rest.len() + 1));
            out.extend(filter.push(piece));
            rest = behind;
        }
        out.extend(filter.push(rest));
        out.extend(filter.finish());
        String::from_utf8(out).unwrap()
    }

    proptest! {
        /// However the stream is cut, exactly the events that say nothing but usage are missing.
        #[test]
        fn exactly_the_usage_only_events_are_filtered(
            events in prop::collection::vec(0_usize..7, 0..9),
            end in 0_usize..6,
            cuts in prop::collection::vec(0_usize..300, 0..9),
        ) {
            let end = ["\n\n", "\r\n\r\n", "\r\r", "\n", "\r\n", "\r"][end];
            let comment = if end.len() == 1 || end == "\r\n" { CHUNK } else { ": comment" };
            let all = [CHUNK, FILTERED, LAST, USAGE, SPOKEN, comment, "data: [DONE]"];
            let stream = |usage: bool| -> String {
                let kept = events.iter().map(|at| &all[*at]).filter(|event| usage || **event != USAGE);
                kept.flat_map(|event| [*event, end]).collect()
            };
            prop_assert_eq!(sift(&stream(true), &cuts), stream(false));
        }
    }

    #[test]
    fn whole_events_pass_at_once_and_the_rest_at_the_end() {
        let mut filter = EventFilter::new(&OpenAiChat);
        let whole = format!("{CHUNK}\n\n");
        assert_eq!(filter.push(format!("{whole}data: {{").as_bytes()), whole.as_bytes());
        assert_eq!(filter.push(b"\"x\""), b"");
        assert_eq!(filter.finish(), b"data: {\"x\"");
    }

    /// Where the empty line is left out, an event ends with the beginning of the next.
    #[test]
    fn usage_events_are_filtered_only_if_nothing_else_is_in_them() {
        for (stream, expected) in [
            (format!("{CHUNK}\n{USAGE}\ndata: [DONE]\n"), format!("{CHUNK}\ndata: [DONE]\n")),
            (format!("{USAGE}\n: comment\n{CHUNK}\n\n"), format!("{USAGE}\n: comment\n{CHUNK}\n\n")),
            (format!("{CHUNK}\n: comment\n{USAGE}\n\n"), format!("{CHUNK}\n: comment\n{USAGE}\n\n")),
            (format!("{USAGE}\n: comment\n\n"), String::new()),
            (format!("data: x\n{USAGE}\n\n"), format!("data: x\n{USAGE}\n\n")),
        ] {
            assert_eq!(sift(&stream, &[]), expected, "{stream}");
        }
        let mut filter = EventFilter::new(&OpenAiChat);
        assert_eq!(
            filter.push(format!("{CHUNK}\n{USAGE}\ndata: {{").as_bytes()),
            format!("{CHUNK}\n").as_bytes()
        );
    }

    #[test]
    fn oversized_events_pass_without_waiting() {
        let large = format!("data: {}\"usage\"\n\n", "x".repeat(MAX_HELD));
        for cuts in [&[][..], &[MAX_HELD + 9, 5], &[MAX_HELD + 14, 1], &[MAX_HELD + 15, 3]] {
            let stream = format!("{large}{USAGE}\n\n{large}{CHUNK}\n\n{USAGE}\n\n");
            assert_eq!(sift(&stream, cuts), format!("{large}{large}{CHUNK}\n\n"), "{cuts:?}");
        }
        let mut filter = EventFilter::new(&OpenAiChat);
        assert!(
            filter.push(large.as_bytes()[..MAX_HELD + LONGEST_END].as_ref()).len() > MAX_HELD,
            "it does not wait"
        );
    }

    #[test]
    fn event_ends_are_found_with_any_line_ends() {
        for (stream, expected) in [
            ("a\n\nb", Some(3)),
            ("a\r\n\r\nb", Some(5)),
            ("a\r\rb", Some(3)),
            ("a\r\r", Some(3)),
            ("a\r\r\nb", Some(4)),
            ("a\n\r\nb", Some(4)),
            ("a\r\n\nb", Some(4)),
            ("a\n\rb", Some(3)),
            ("a\r\n\rb", Some(4)),
            ("a\r\n\r", None),
            ("a\n\r", None),
            ("a\r\nb\nc\rd", None),
            ("{}\ndata: {", Some(3)),
            ("[] \r\ndata:[", Some(5)),
            ("{}\ndata: x", None),
            ("{},\ndata: {", None),
        ] {
            assert_eq!(event_end(stream.as_bytes(), 0), expected, "{stream:?}");
        }
    }
}
