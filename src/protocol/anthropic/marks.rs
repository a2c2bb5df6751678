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
    for at in memmem::find_iter(body, NAME) {
        let place = at as u32;
        if !(list.start..list.end).contains(&place) {
            marks.frame += 1;
            continue;
        }
        let message = messages.partition_point(|message| message.span.end <= place);
        let Some(found) = messages.get(message).filter(|message| message.span.start <= place) else {
            continue;
        };
        let inside = place - found.span.start;
        let parts = &found.index.parts;
        // A mark of a block within a result counts as the result's own.
        let part = parts.partition_point(|part| part.span.end <= inside).min(parts.len().saturating_sub(1));
        let long = is_long(&body[at..body.len().min(at + NEAR)]);
        marks.parts.push((PartId { message: message as u32, part: part as u32 }, long));
    }
    marks
}

/// Whether the mark that begins here is to last for long. One that cannot be told is taken to be: a mark before
/// it must then last as long, which is never wrong.
fn is_long(near: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'}', near) else { return true };
    let value = &near[..end];
    memchr::memchr(b'\\', value).is_some() || memmem::find(value, br#""1h""#).is_some()
}
