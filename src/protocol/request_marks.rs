//! Finds the cache marks of a request.
//!
//! The bytes are searched for the quoted name of the member, which no text can contain unescaped. A string that
//! consists of that name counts as a mark too. Then fewer marks seem to be free than are, which does no harm.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::body::Object;
use crate::conversation::{Hold, Marks, Message, PartId};
use crate::json::{Kind, Span};

/// The name of the member that is a mark. The finder is built once, since building it costs more than a search.
static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""cache_control""#));
const LONG: &[u8] = br#""1h""#;
/// How many bytes are searched for the lifetime, from the name on.
const MAX_MARK_BYTES: usize = 80;

/// Reads the marks of a body whose messages are in `list`. If the body itself has a mark, the provider puts that after
/// all others.
pub(super) fn read(frame: &Object<'_>, list: Span, messages: &[Message]) -> Marks {
    let body = frame.bytes;
    let automatic = frame.of_kind("cache_control", Kind::Object).map(|mark| mark.span);
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
            let mark = mark_at(bytes, at);
            marks.frame += 1;
            marks.long |= hold(mark) == Hold::Long;
            let is_automatic = automatic.is_some_and(|value| is_name_of(body, start + at, value));
            marks.frame_short |= !is_automatic && may_be_short(mark);
        }
    }
    for (message, found) in messages.iter().enumerate().filter(|(_, found)| found.index.is_marked) {
        let (raw, parts) = (found.span.of(body), &found.index.parts);
        for at in NAME.find_iter(raw) {
            // A mark on a block in a result counts as one on the result, and a mark on a message as one on its last
            // part.
            let part = parts.iter().position(|part| part.span.range().contains(&at));
            let part = part.unwrap_or_else(|| parts.len().saturating_sub(1)) as u32;
            let hold = hold(mark_at(raw, at));
            marks.long |= hold == Hold::Long;
            marks.parts.push((PartId { message: message as u32, part }, hold));
        }
    }
    // The members of a message need not be in the order of its parts.
    marks.parts.sort_by_key(|(part, _)| *part);
    marks
}

/// The bytes of a mark, from its name on, and perhaps of what follows it.
fn mark_at(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + MAX_MARK_BYTES)]
}

/// Whether the name at `at` is that of the member with this value.
fn is_name_of(body: &[u8], at: usize, value: Span) -> bool {
    let between = body.get(at + NAME.needle().len()..value.range().start);
    between.is_some_and(|between| between.iter().all(|byte| b": \t\r\n".contains(byte)))
}

/// Whether a message may contain marks.
pub(super) fn may_be_in(message: &[u8]) -> bool {
    NAME.find(message).is_some()
}

/// The lifetime that the value of a mark asks for. If it is not clear, it counts as long: marks before it must then be
/// long too, which is never wrong.
fn hold(mark: &[u8]) -> Hold {
    let Some(end) = memchr::memchr(b'}', mark) else { return Hold::Long };
    let value = &mark[..end];
    let is_short =
        memchr::memchr(b'\\', value).is_none() && !value.windows(LONG.len()).any(|word| word == LONG);
    if is_short { Hold::Short } else { Hold::Long }
}

/// Whether a mark may be a short-lived one. Marks after it must then not be long-lived.
fn may_be_short(mark: &[u8]) -> bool {
    let value = mark[NAME.needle().len()..].trim_ascii_start();
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
    fn short_marks_before_the_messages_are_recognised() {
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
    fn a_mark_added_before_a_long_one_is_long() {
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
