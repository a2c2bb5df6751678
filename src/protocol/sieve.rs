//! Takes single events out of a stream as it passes by.
//!
//! An event that is not complete is held back until it is; everything else goes on at once and unchanged. It
//! never fails: what is too large or no event at all goes on as it came.

use std::mem;

use memchr::memmem;

use super::Protocol;
use crate::sse::Framer;

/// Bytes of an unfinished event that are held back at most.
const MAX_HELD: usize = 1 << 20;

/// Takes out the events that were only sent because usage was asked for.
#[derive(Debug)]
pub struct Sieve {
    protocol: &'static dyn Protocol,
    /// The beginning of an event whose end has not come.
    held: Vec<u8>,
    /// Bytes of `held` in which no event ends.
    searched: usize,
    /// Something could not be held: from there on everything passes.
    open: bool,
}

impl Sieve {
    /// A sieve for a stream of this dialect.
    pub fn new(protocol: &'static dyn Protocol) -> Self {
        Self { protocol, held: Vec::new(), searched: 0, open: false }
    }

    /// Takes the next bytes, gives those that go on.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.open {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        let mut on = Vec::with_capacity(self.held.len());
        let mut start = 0;
        while let Some(end) = event_end(&self.held, start.max(self.searched)) {
            let event = &self.held[start..end];
            if !self.is_taken_out(event) {
                on.extend_from_slice(event);
            }
            start = end;
            self.searched = end;
        }
        self.held.drain(..start);
        // The end of an event may be cut in two.
        self.searched = self.held.len().saturating_sub(3);
        if self.held.len() > MAX_HELD {
            self.open = true;
            on.append(&mut self.held);
        }
        on
    }

    /// The stream has ended: what was held back goes on.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = mem::take(&mut self.held);
        if self.is_taken_out(&rest) { Vec::new() } else { rest }
    }

    fn is_taken_out(&self, event: &[u8]) -> bool {
        if memmem::find(event, b"\"usage\"").is_none() {
            return false;
        }
        let (mut framer, mut is_taken_out) = (Framer::default(), false);
        let mut judge = |data: &[u8]| is_taken_out = self.protocol.only_states_usage(data);
        framer.push(event, &mut judge);
        framer.finish(&mut judge);
        is_taken_out
    }
}

/// Behind the first empty line at or after `from`.
fn event_end(bytes: &[u8], from: usize) -> Option<usize> {
    let ends = memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at + 1);
    ends.map(|end| (end, &bytes[end..])).find_map(|(end, rest)| match rest {
        [b'\n', ..] => Some(end + 1),
        [b'\r', b'\n', ..] => Some(end + 2),
        _ => None,
    })
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
        let mut sieve = Sieve::new(&OpenAiChat);
        let (mut out, mut rest) = (Vec::new(), stream.as_bytes());
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut % (rest.len() + 1));
            out.extend(sieve.push(piece));
            rest = behind;
        }
        out.extend(sieve.push(rest));
        out.extend(sieve.finish());
        String::from_utf8(out).unwrap()
    }

    proptest! {
        /// However the stream is cut, exactly the events that say nothing but usage are missing.
        #[test]
        fn only_what_was_asked_for_goes(
            events in prop::collection::vec(0_usize..7, 0..9),
            returns in any::<bool>(),
            cuts in prop::collection::vec(0_usize..300, 0..9),
        ) {
            let all = [CHUNK, FILTERED, LAST, USAGE, SPOKEN, ": comment", "data: [DONE]"];
            let end = if returns { "\r\n\r\n" } else { "\n\n" };
            let stream = |usage: bool| -> String {
                let kept = events.iter().map(|at| &all[*at]).filter(|event| usage || **event != USAGE);
                kept.flat_map(|event| [*event, end]).collect()
            };
            prop_assert_eq!(sift(&stream(true), &cuts), stream(false));
        }
    }

    #[test]
    fn what_is_whole_goes_on_at_once_and_the_rest_at_the_end() {
        let mut sieve = Sieve::new(&OpenAiChat);
        let whole = format!("{CHUNK}\n\n");
        assert_eq!(sieve.push(format!("{whole}data: {{").as_bytes()), whole.as_bytes());
        assert_eq!(sieve.push(b"\"x\""), b"");
        assert_eq!(sieve.finish(), b"data: {\"x\"");
        let endless = vec![b'x'; MAX_HELD + 1];
        assert_eq!(Sieve::new(&OpenAiChat).push(&endless), endless);
    }
}
