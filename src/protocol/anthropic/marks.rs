//! Where a request marks its prompt for the provider's cache.
//!
//! Found by searching the bytes for the member's name, which no text can contain unescaped. A string of that
//! very name counts as a mark too: then there are fewer free places than there might be, and nothing worse.

use memchr::memmem;

use crate::conversation::{Marks, Message, PartId};
use crate::json::Span;

const NAME: &[u8] = br#""cache_control""#;
/// How far behind the name the time to live is looked for.
const NEAR: usize = 80;

/// The marks of a body whose messages stand in `list`.
pub(super) fn read(body: &[u8], list: Span, messages: &[Message]) -> Marks {
    let mut marks = Marks {
        member: r#""cache_control":{"type":"ephemeral"}"#,
        long_member: r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        ..Marks::default()
    };
    let around = [&body[..list.range().start], &body[list.range().end..]];
    for bytes in around {
        for at in memmem::find_iter(bytes, NAME) {
            marks.frame += 1;
            marks.long |= is_long(near(bytes, at));
        }
    }
    for (message, found) in messages.iter().enumerate().filter(|(_, found)| found.index.is_marked) {
        let (raw, parts) = (found.span.of(body), &found.index.parts);
        for at in memmem::find_iter(raw, NAME) {
            // A mark of a block within a result counts as the result's own.
            let part = parts.partition_point(|part| part.span.range().end <= at);
            let part = part.min(parts.len().saturating_sub(1)) as u32;
            let long = is_long(near(raw, at));
            marks.long |= long;
            marks.parts.push((PartId { message: message as u32, part }, long));
        }
    }
    marks
}

fn near(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + NEAR)]
}

/// Whether marks may stand in a message.
pub(super) fn may_stand_in(message: &[u8]) -> bool {
    memmem::find(message, NAME).is_some()
}

/// Whether the mark that begins here is to last for long. One that cannot be told is taken to be: a mark before
/// it must then last as long, which is never wrong.
fn is_long(near: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'}', near) else { return true };
    let value = &near[..end];
    memchr::memchr(b'\\', value).is_some() || memmem::find(value, br#""1h""#).is_some()
}
