//! Reads what dialects have in common below the level of a message: texts, the content of tool results, numbers in
//! sentences.

use memchr::memmem;

use crate::conversation::fingerprint::Hasher;
use crate::conversation::{Arguments, Leaf, Media, Part, PartData, PartKind, Role, Slots, Stem, ToolResult};
use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, canonical, string};

use super::Unread;
use super::body::Object;

/// Feeds the text of a literal to `hash`. If the text cannot be decoded, feeds the literal itself.
pub(crate) fn feed_text(raw: &[u8], value: Value, hash: &mut Hasher) {
    let literal = value.span.of(raw);
    match string::decode(literal) {
        Some(text) => canonical::text_piece(&text, &mut |bytes| hash.update(bytes)),
        None => hash.update(literal),
    }
}

/// Feeds any value to `hash`, without its members called `marks`.
pub(crate) fn feed(raw: &[u8], value: Value, marks: &[&str], hash: &mut Hasher) -> Result<(), Unread> {
    Ok(canonical::feed(raw, value, marks, &mut |bytes| hash.update(bytes))?)
}

/// A text part whose only leaf is the literal `text`.
pub(crate) fn text_part(raw: &[u8], text: Value, span: Span, hash: &mut Hasher) -> Part {
    feed_text(raw, text, hash);
    Part::new(PartData::Text(Leaf::alone(text.span)), span)
}

/// The parts of a message, in order, and its stem: the message without the texts at its end. `read` must feed the
/// identity of each part to `hash`, which already has the role.
pub(crate) fn parts_of(
    items: &[Value],
    hash: &mut Hasher,
    mut read: impl FnMut(Value, &mut Hasher) -> Result<Part, Unread>,
) -> Result<(Vec<Part>, Option<Stem>), Unread> {
    let mut parts = Vec::with_capacity(items.len());
    let mut stem = None;
    for item in items {
        let part = read(*item, hash)?;
        let may_be_trailing = part.kind() == PartKind::Text && !parts.is_empty();
        parts.push(part);
        if !may_be_trailing {
            stem = Some((parts.len(), hash.clone()));
        }
    }
    let stem = stem.filter(|(count, _)| *count < parts.len());
    let stem = stem.map(|(count, hash)| Stem { parts: count as u32, fingerprint: hash.finish() });
    Ok((parts, stem))
}

/// The members of a message with one text, as all but one dialect write them. The role of a result is the user's.
pub(crate) fn role_and_content(role: Role, text: &str) -> String {
    let role = match role {
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::User | Role::Tool => "user",
    };
    format!(r#""role":"{role}","content":{}"#, string::encode(text))
}

/// How a dialect writes the blocks of a tool result.
pub(crate) struct Blocks {
    /// The types of text blocks; the first is used for new ones.
    pub(crate) texts: &'static [&'static str],
    /// Returns the encoded data of a block that is an image or a document.
    pub(crate) media: fn(&Object<'_>) -> Option<Value>,
    /// The names of cache marks.
    pub(crate) marks: &'static [&'static str],
}

/// The arguments of a call, which are a string or any other value.
pub(crate) fn arguments(call: &Object<'_>, member: &str) -> Option<Arguments> {
    call.get(member).map(|value| match value.kind {
        Kind::String => Arguments::Encoded(value.span),
        _ => Arguments::Value(value.span),
    })
}

/// Whether a call (or a result that states it) was made by code that the provider runs, not by the model itself.
pub(crate) fn is_of_code(block: &Object<'_>) -> bool {
    let is_direct = |caller: Value| {
        let read = Object::read(block.bytes, caller);
        caller.kind == Kind::Null || read.is_ok_and(|caller| caller.says("type", "direct"))
    };
    block.get("caller").is_some_and(|caller| !is_direct(caller))
}

/// A member of a block, if it is a `data:` URL that does not hold text.
pub(crate) fn data_url(block: &Object<'_>, member: &str) -> Option<Value> {
    let holds = |url: &[u8]| string::begins_with(url, "data:") && !string::begins_with(url, "data:text/");
    block.of_kind(member, Kind::String).filter(|url| holds(url.span.of(block.bytes)))
}

/// An object within a block; `None` if there is none, or if it has duplicate keys.
pub(crate) fn within<'a>(block: &Object<'a>, member: &str) -> Option<Object<'a>> {
    Object::read(block.bytes, block.of_kind(member, Kind::Object)?).ok()
}

/// Fills in the text, media, slots and digest of a tool result from its content, and feeds its identity to `hash`. A
/// string has the same identity as a list with one text block.
pub(crate) fn fill_result(
    result: &mut ToolResult,
    raw: &[u8],
    content: Option<Value>,
    blocks: &Blocks,
    hash: &mut Hasher,
) -> Result<(), Unread> {
    let mut digest = Hasher::default();
    match content {
        Some(value) if value.kind == Kind::String => {
            feed_text(raw, value, &mut digest);
            if !is_encrypted(raw, value) {
                result.leaves = [Leaf::alone(value.span)].into();
            }
        }
        Some(value) if value.kind == Kind::Array => {
            let items = scan::items(raw, value.span)?;
            let (leaves, media) = block_leaves(raw, &items, blocks, &mut digest)?;
            let is_whole = leaves.len() + media.len() == items.len();
            let items: Vec<Span> = items.iter().map(|item| item.span).collect();
            let slots = Slots { array: value.span, items: items.into() };
            let media = Some(media).filter(|media| is_whole && !media.is_empty());
            let text = blocks.texts.first().copied();
            let media = media.map(|blocks| Media { slots: slots.clone(), blocks: blocks.into(), text });
            result.media = media.map(Box::new);
            result.leaves = leaves.into();
            result.slots = Some(slots);
        }
        Some(value) => feed(raw, value, blocks.marks, &mut digest)?,
        None => {}
    }
    seal_result(result, digest, hash);
    Ok(())
}

/// Whether a text is encrypted, so that it must stay whole: Moonshot encrypts the results of its own tools.
fn is_encrypted(raw: &[u8], text: Value) -> bool {
    const BEGIN: &[u8] = b"----MOONSHOT ENCRYPTED BEGIN----";
    let literal = text.span.of(raw);
    memmem::find(&literal[..literal.len().min(4 * BEGIN.len())], BEGIN).is_some()
}

/// Sets the digest of a tool result to that of its `content`, and feeds the result's identity to `hash`.
pub(crate) fn seal_result(result: &mut ToolResult, content: Hasher, hash: &mut Hasher) {
    let digest = content.finish();
    hash.update(&[b'R', u8::from(result.is_error)]);
    canonical::text_piece(result.call_id.as_deref().unwrap_or_default(), &mut |bytes| hash.update(bytes));
    hash.update(&digest.0);
    result.content = Some(digest);
}

/// The texts of blocks, and the encoded data of blocks that are media. Feeds the identity of all blocks to `digest`.
fn block_leaves(
    raw: &[u8],
    items: &[Value],
    blocks: &Blocks,
    digest: &mut Hasher,
) -> Result<(Vec<Leaf>, Vec<Leaf>), Unread> {
    let Blocks { texts, media, marks } = blocks;
    let (mut leaves, mut encodings) = (Vec::new(), Vec::new());
    for (slot, item) in items.iter().enumerate() {
        if item.kind != Kind::Object {
            feed(raw, *item, marks, digest)?;
            continue;
        }
        let block = Object::read(raw, *item)?;
        match block.of_kind("text", Kind::String).filter(|_| block.is_one_of(texts)) {
            Some(text) => {
                feed_text(raw, text, digest);
                if is_encrypted(raw, text) {
                    continue;
                }
                let around = [(item.span.start, text.span.start), (text.span.end, item.span.end)];
                let is_marked =
                    around.into_iter().any(|(start, end)| has_mark(raw, Span { start, end }, marks));
                leaves.push(Leaf { is_marked, ..Leaf::in_slot(text.span, slot as u32) });
            }
            None => {
                feed(raw, *item, marks, digest)?;
                if let Some(encoding) = media(&block) {
                    let is_marked = has_mark(raw, item.span, marks);
                    encodings.push(Leaf { is_marked, ..Leaf::in_slot(encoding.span, slot as u32) });
                }
            }
        }
    }
    Ok((leaves, encodings))
}

/// Whether the bytes in a span may contain a cache mark.
fn has_mark(raw: &[u8], here: Span, marks: &[&str]) -> bool {
    marks.iter().any(|name| memmem::find(here.of(raw), name.as_bytes()).is_some())
}

/// The number that a text starts with: `12000`, `12,000`, `12_000` or `12k`.
pub(crate) fn leading_number(text: &str) -> Option<u64> {
    let text = text.trim_start().as_bytes();
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(text);
    // A comma or underscore belongs to the number only before a group of three digits. Otherwise it is punctuation.
    while end > 0 && matches!(text.get(end), Some(b',' | b'_')) && digits(&text[end + 1..]) == 3 {
        end += 4;
    }
    let mut number = text[..end].iter().filter(|byte| byte.is_ascii_digit());
    let number =
        number.try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    let unit = match text.get(end..).unwrap_or_default() {
        [b'k' | b'K', rest @ ..] if !rest.first().is_some_and(u8::is_ascii_alphanumeric) => 1000,
        _ => 1,
    };
    number.filter(|_| end > 0)?.checked_mul(unit)
}

/// The number that a text ends with, in the forms of [`leading_number`].
pub(crate) fn trailing_number(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b',' | b'_' | b'k' | b'K');
    let length = text.bytes().rev().take_while(is_part).count();
    leading_number(text[text.len() - length..].trim_start_matches([',', '_', 'k', 'K']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_from_sentences() {
        for (text, expected) in [
            ("12", Some(12)),
            (" 12000 tokens", Some(12_000)),
            ("12,000 tokens", Some(12_000)),
            ("1,048,576.", Some(1_048_576)),
            ("12_000", Some(12_000)),
            ("12k tokens", Some(12_000)),
            ("128K", Some(128_000)),
            ("12 , 000", Some(12)),
            ("12,34", Some(12)),
            ("12,3456", Some(12)),
            ("12, 345", Some(12)),
            ("12kB", Some(12)),
            ("99999999999999999999", None),
            ("99999999999999999k", None),
            ("", None),
            (",000", None),
            ("k", None),
        ] {
            assert_eq!(leading_number(text), expected, "{text}");
        }
        for (text, expected) in
            [("(9", Some(9)), ("of 12,000", Some(12_000)), ("x 12k", Some(12_000)), ("é", None), ("a,", None)]
        {
            assert_eq!(trailing_number(text), expected, "{text}");
        }
    }
}
