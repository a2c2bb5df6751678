//! Amazon's binary event streams, as far as Bedrock sends a model's own events in them; see
//! <https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html>.
//!
//! A frame consists of its length and its headers' length (four bytes each, big-endian), a CRC of these, headers, a
//! payload, and a CRC of the whole. A `chunk` holds one event of the dialect in base64. Exceptions and errors become
//! error events, and other frames are ignored. The reader works on a copy of a stream, like [`crate::sse::Framer`], and
//! never fails: after a frame that is broken or too large it ignores the rest, since it cannot tell where the next
//! frame begins.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The largest frame that is read, in bytes.
const MAX_FRAME_BYTES: usize = 16 << 20;
/// Bytes of both lengths and their checksum.
const PRELUDE_BYTES: usize = 12;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// The type of a header value that is a string: two bytes of length, then UTF-8.
const STRING_TYPE: u8 = 7;

/// Collects the events of a byte stream.
#[derive(Debug, Default)]
pub(super) struct Frames {
    unread: Vec<u8>,
    /// Whether it is no longer known where frames begin.
    is_lost: bool,
}

/// The members of a payload that are read: an event, or the message of an exception.
#[derive(Deserialize)]
struct Payload {
    bytes: Option<String>,
    message: Option<String>,
}

impl Frames {
    /// Takes the next bytes and calls `event` with every event they complete.
    pub(super) fn push(&mut self, bytes: &[u8], event: &mut dyn FnMut(&[u8])) {
        if self.is_lost {
            return;
        }
        self.unread.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(prelude) = self.unread.get(at..at + PRELUDE_BYTES) {
            let Some((length, headers)) = lengths(prelude) else {
                self.is_lost = true;
                self.unread = Vec::new();
                return;
            };
            let Some(frame) = self.unread.get(at..at + length) else { break };
            let (headers, payload) = frame[PRELUDE_BYTES..length - CHECKSUM_BYTES].split_at(headers);
            read_frame(headers, payload, event);
            at += length;
        }
        self.unread.drain(..at);
    }
}

/// The lengths of a frame and of its headers; `None` if they are impossible or their checksum is wrong.
fn lengths(prelude: &[u8]) -> Option<(usize, usize)> {
    let number = |at: usize| prelude.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (length, headers) = (number(0)? as usize, number(4)? as usize);
    let mut checksum = flate2::Crc::new();
    checksum.update(prelude.get(..8)?);
    let fits = headers.checked_add(PRELUDE_BYTES + CHECKSUM_BYTES)? <= length && length <= MAX_FRAME_BYTES;
    (fits && checksum.sum() == number(8)?).then_some((length, headers))
}

/// Calls `event` with the event or error that a frame holds, if it holds any.
fn read_frame(headers: &[u8], payload: &[u8], event: &mut dyn FnMut(&[u8])) {
    let Ok(payload) = serde_json::from_slice::<Payload>(payload) else { return };
    match (header(headers, ":message-type"), header(headers, ":event-type"), payload) {
        (Some("event"), Some("chunk"), Payload { bytes: Some(bytes), .. }) => {
            if let Ok(bytes) = STANDARD.decode(bytes) {
                event(&bytes);
            }
        }
        (Some("exception" | "error"), _, Payload { message, .. }) => {
            // In the form of an error event of the dialect's own streams.
            let message = message.or_else(|| header(headers, ":exception-type").map(str::to_owned));
            let error = serde_json::json!({"type": "error", "error": {"message": message}});
            event(error.to_string().as_bytes());
        }
        _ => {}
    }
}

/// The header of this name, if it is a string and so are all headers before it.
fn header<'h>(mut headers: &'h [u8], name: &str) -> Option<&'h str> {
    loop {
        let (length, rest) = headers.split_first()?;
        let (found, rest) = rest.split_at_checked(usize::from(*length))?;
        let [STRING_TYPE, high, low, rest @ ..] = rest else { return None };
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        if found == name.as_bytes() {
            return std::str::from_utf8(value).ok();
        }
        headers = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{self, Answer, Framing};

    fn frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
        let mut head = Vec::new();
        for (name, value) in headers {
            head.push(name.len() as u8);
            head.extend_from_slice(name.as_bytes());
            head.push(STRING_TYPE);
            head.extend_from_slice(&(value.len() as u16).to_be_bytes());
            head.extend_from_slice(value.as_bytes());
        }
        let length = PRELUDE_BYTES + head.len() + payload.len() + CHECKSUM_BYTES;
        let mut frame = (length as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&(head.len() as u32).to_be_bytes());
        let sum = |bytes: &[u8]| {
            let mut checksum = flate2::Crc::new();
            checksum.update(bytes);
            checksum.sum().to_be_bytes()
        };
        frame.extend(sum(&frame.clone()));
        frame.extend(head);
        frame.extend_from_slice(payload.as_bytes());
        frame.extend(sum(&frame.clone()));
        frame
    }

    fn chunk(event: &str) -> Vec<u8> {
        let headers =
            [(":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")];
        frame(&headers, &format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, STANDARD.encode(event)))
    }

    fn read(framing: Framing, pieces: &[&[u8]]) -> Answer {
        let mut reader = protocol::named("anthropic").unwrap().answer(framing);
        for piece in pieces {
            reader.push(piece);
        }
        reader.finish()
    }

    const EVENTS: [&str; 4] = [
        r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-opus-4-6","usage":{"input_tokens":9,"cache_read_input_tokens":70,"cache_creation_input_tokens":5,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Well"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":17}}"#,
        r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":17}}"#,
    ];

    /// The answer is the same as that of a text stream, however the frames are split into reads.
    #[test]
    fn frames_yield_the_same_answer_as_events() {
        let text = EVENTS.map(|event| format!("data: {event}\n\n")).concat();
        let frames: Vec<u8> = EVENTS.iter().flat_map(|event| chunk(event)).collect();
        let expected = read(Framing::Events, &[text.as_bytes()]);
        assert!(expected.complete && expected.usage.is_some());
        for size in [1, 7, 64, frames.len()] {
            let pieces: Vec<&[u8]> = frames.chunks(size).collect();
            assert_eq!(read(Framing::Frames, &pieces), expected, "{size}");
        }
        let cut = read(Framing::Frames, &[&frames[..frames.len() - 1]]);
        assert_eq!((cut.complete, cut.usage), (false, expected.usage));
    }

    #[test]
    fn exception_frames_are_errors() {
        let headers = [(":exception-type", "throttlingException"), (":message-type", "exception")];
        for (payload, expected) in [
            (r#"{"message":"Too many"}"#, Some("Too many")),
            ("{}", Some("throttlingException")),
            ("no JSON", None),
        ] {
            let answer = read(Framing::Frames, &[&chunk(EVENTS[0]), &frame(&headers, payload)]);
            assert_eq!(answer.error.as_deref(), expected, "{payload}");
            assert!(answer.usage.is_some() && !answer.complete);
        }
    }

    /// Frames of other kinds are skipped; after a broken frame nothing more is read.
    #[test]
    fn other_frames_are_skipped_and_broken_ones_end_reading() {
        let good = chunk(EVENTS[0]);
        let odd = |at: usize| {
            let mut odd = good.clone();
            odd[at] ^= 0x40;
            odd
        };
        let other = frame(&[(":event-type", "metadata"), (":message-type", "event")], r#"{"usage":{}}"#);
        let bare = frame(&[], r#"{"bytes":"e30="}"#);
        let no_base64 = frame(&[(":event-type", "chunk"), (":message-type", "event")], r#"{"bytes":"%"}"#);
        for (before, expected) in [
            (other, true),
            (bare, true),
            (no_base64, true),
            // Within a header's name.
            (odd(PRELUDE_BYTES + 3), true),
            // A length, and the checksum of the lengths.
            (odd(3), false),
            (odd(5), false),
            (odd(9), false),
            (vec![0; 12], false),
        ] {
            let answer = read(Framing::Frames, &[&before, &good]);
            assert_eq!(answer.usage.is_some(), expected, "{before:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_the_same_in_any_chunking(
            pieces in prop::collection::vec(
                prop_oneof![Just(chunk(EVENTS[0])), Just(chunk(EVENTS[2])), prop::collection::vec(any::<u8>(), 0..40)],
                0..6
            ),
            size in 1_usize..50,
        ) {
            let all = pieces.concat();
            let cut: Vec<&[u8]> = all.chunks(size).collect();
            prop_assert_eq!(read(Framing::Frames, &cut), read(Framing::Frames, &[&all]));
        }
    }
}
