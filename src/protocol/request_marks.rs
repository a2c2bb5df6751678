//! Where a request marks its prompt for the provider's cache.
//!
//! Found by searching the bytes for the quoted name of the member, which no text can contain unescaped. A string that
//! consists of that name counts as a mark too: then fewer marks seem to be free than are, which does no harm.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::conversation::{Hold, Marks, Message, PartId};
use crate::json::Span;

/// Built once: building it costs more than a search.
static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""cache_control""#));
const LONG: &[u8] = br#""1h""#;
/// How many bytes are searched for the time to live, from the name on.
const NEAR: usize = 80;

/// The marks of a body whose messages are in `list`. `automatic` is the value of the body's own mark, if it has one:
/// the provider puts that mark behind all others.
pub(super) fn read(body: &[u8], automatic: Option<Span>, list: Span, messages: &[Message]) -> Marks {
    let mut marks = Marks {
        members: [
            r#""cache_control":{"type":"ephemeral"}"#,
            r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        ],
        end: automatic.map(|mark| hold(mark.of(body))),
        ..Marks::default()
    };
    for (start, bytes) in [(0, &body[..list.range().start]), (list.range().end, &body[list.range().end..])] {
        for at in NAME.find_iter(bytes) {
            let mark = near(bytes, at);
            marks.frame += 1;
            marks.long |= hold(mark) == Hold::Long;
            let is_last = automatic.is_some_and(|value| names(body, start + at, value));
            marks.frame_short |= !is_last && may_be_short(mark);
        }
    }
    for (message, found) in messages.iter().enumerate().filter(|(_, found)| found.index.is_marked) {
        let (raw, parts) = (found.span.of(body), &found.index.parts);
        for at in NAME.find_iter(raw) {
            // A mark on a block in a result counts as one on the result, and a mark on a message as one on its last
            // part.
            let part = parts.iter().position(|part| part.span.range().contains(&at));
            let part = part.unwrap_or_else(|| parts.len().saturating_sub(1)) as u32;
            let hold = hold(near(raw, at));
            marks.long |= hold == Hold::Long;
            marks.parts.push((PartId { message: message as u32, part }, hold));
        }
    }
    // The members of a message need not be in the order of its parts.
    marks.parts.sort_by_key(|(part, _)| *part);
    marks
}

fn near(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + NEAR)]
}

/// Whether the name at `at` is that of the member with this value.
fn names(body: &[u8], at: usize, value: Span) -> bool {
    let between = body.get(at + NAME.needle().len()..value.range().start);
    between.is_some_and(|between| between.iter().all(|byte| b": \t\r\n".contains(byte)))
}

/// Whether a message may contain marks.
pub(super) fn may_be_in(message: &[u8]) -> bool {
    NAME.find(message).is_some()
}

/// The lifetime of the mark that begins here. If it is not clear, it counts as long: marks before it must then be long
/// too, which is never wrong.
fn hold(near: &[u8]) -> Hold {
    let Some(end) = memchr::memchr(b'}', near) else { return Hold::Long };
    let value = &near[..end];
    let is_short =
        memchr::memchr(b'\\', value).is_none() && !value.windows(LONG.len()).any(|word| word == LONG);
    if is_short { Hold::Short } else { Hold::Long }
}

/// Whether the mark that begins here may be a short-lived one: marks behind it must then not be long-lived.
fn may_be_short(near: &[u8]) -> bool {
    let value = near[NAME.needle().len()..].trim_ascii_start();
    let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii_start();
    let end = memchr::memchr(b'}', value).unwrap_or(0);
    !value.starts_with(b"null") && !value[..end].windows(LONG.len()).any(|word| word == LONG)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol::Protocol;
    use crate::protocol::anthropic::Anthropic;
    use crate::strategy::marks::Chosen;

    /// Whether a short-lived mark precedes the messages in the prompt, wherever it is in the body.
    #[test]
    fn marks_around_the_messages_are_told_apart() {
        const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
        const SPACED: &str = r#","cache_control" : { "ttl" : "1h" }"#;
        for (tool, automatic, expected) in [
            ("", "", false),
            (SHORT, "", true),
            (SPACED, "", false),
            (r#","cache_control":null"#, "", false),
            (r#","cache_control":{"type":"string"},"ttl":"1h""#, "", true),
            ("", SHORT, false),
            ("", r#","cache_control" : {"type":"ephemeral","ttl":"5m"}"#, false),
            (SHORT, SPACED, true),
            (SPACED, SHORT, false),
        ] {
            let (tools, messages) = (
                format!(r#""tools":[{{"name":"t"{tool}}}]"#),
                r#""messages":[{"role":"user","content":"a"}]"#,
            );
            for body in
                [format!("{{{tools},{messages}{automatic}}}"), format!("{{{messages},{tools}{automatic}}}")]
            {
                let conversation = Anthropic.index(&Bytes::from(body.clone()), &NoMemo).unwrap();
                assert_eq!(conversation.marks.map(|marks| marks.frame_short), Some(expected), "{body}");
            }
        }
    }

    /// A mark that is added before a long-lived one is long-lived too.
    #[test]
    fn marks_that_last_for_long_come_first() {
        const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
        const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;
        for (system, last, automatic, expected) in [
            ("", "", "", Hold::Short),
            ("", SHORT, "", Hold::Short),
            ("", LONG, "", Hold::Long),
            ("", "", SHORT, Hold::Short),
            ("", "", LONG, Hold::Long),
            ("", "", r#","cache_control":null"#, Hold::Short),
            (LONG, "", "", Hold::Short),
            (LONG, SHORT, "", Hold::Short),
            (LONG, LONG, "", Hold::Long),
        ] {
            let body = format!(
                r#"{{"system":[{{"type":"text","text":"s"{system}}}],"messages":[{{"role":"user","content":"a"}},{{"role":"user","content":[{{"type":"text","text":"b"{last}}}]}}]{automatic}}}"#
            );
            let conversation = Anthropic.index(&Bytes::from(body.clone()), &NoMemo).unwrap();
            let (mut chosen, first) = (Chosen::default(), PartId { message: 0, part: 0 });
            chosen.add(&conversation, Some(first), &|_| false);
            assert_eq!(chosen.parts(), [(first, expected)], "{body}");
        }
    }
}
