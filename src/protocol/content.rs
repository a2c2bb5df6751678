//! What dialects share below the level of a message: text, the content of tool results, numbers in sentences.

use crate::conversation::fingerprint::Hasher;
use crate::conversation::{Leaf, Part, PartKind, Slots};
use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, canonical, string};

use super::Unread;
use super::body::Object;

/// Feeds the text of a literal. Text that cannot be decoded still has an identity: its literal.
pub(crate) fn feed_text(raw: &[u8], value: Value, hash: &mut Hasher) {
    let literal = value.span.of(raw);
    match string::decode(literal) {
        Some(text) => canonical::text_piece(&text, &mut |bytes| hash.update(bytes)),
        None => hash.update(literal),
    }
}

/// Feeds a value, whatever it is, without the marks.
pub(crate) fn feed(raw: &[u8], value: Value, marks: &[&str], hash: &mut Hasher) -> Result<(), Unread> {
    Ok(canonical::feed(raw, value, marks, &mut |bytes| hash.update(bytes))?)
}

/// A text part whose only leaf is the literal `text`.
pub(crate) fn text_part(raw: &[u8], text: Value, span: Span, hash: &mut Hasher) -> Part {
    feed_text(raw, text, hash);
    Part { leaves: [Leaf { span: text.span, slot: None }].into(), ..Part::new(PartKind::Text, span) }
}

/// Fills the text, slots and digest of a tool result from its content, and feeds its identity to `hash`: a
/// string and a list with one text block are the same. `texts` are the types of blocks with text.
pub(crate) fn fill_result(
    part: &mut Part,
    raw: &[u8],
    content: Option<Value>,
    texts: &[&str],
    marks: &[&str],
    hash: &mut Hasher,
) -> Result<(), Unread> {
    let mut digest = Hasher::default();
    match content {
        Some(value) if value.kind == Kind::String => {
            feed_text(raw, value, &mut digest);
            part.leaves = [Leaf { span: value.span, slot: None }].into();
        }
        Some(value) if value.kind == Kind::Array => {
            let items = scan::items(raw, value.span)?;
            part.leaves = block_leaves(raw, &items, texts, marks, &mut digest)?.into();
            let items: Vec<Span> = items.iter().map(|item| item.span).collect();
            part.slots = Some(Slots { array: value.span, items: items.into() });
        }
        Some(value) => feed(raw, value, marks, &mut digest)?,
        None => {}
    }
    seal_result(part, digest, hash);
    Ok(())
}

/// Gives a tool result the digest of what it says, and feeds its identity to `hash`.
pub(crate) fn seal_result(part: &mut Part, said: Hasher, hash: &mut Hasher) {
    let digest = said.finish();
    hash.update(&[b'R', u8::from(part.is_error)]);
    canonical::text_piece(part.call_id.as_deref().unwrap_or_default(), &mut |bytes| hash.update(bytes));
    hash.update(&digest.0);
    part.content = Some(digest);
}

fn block_leaves(
    raw: &[u8],
    items: &[Value],
    texts: &[&str],
    marks: &[&str],
    digest: &mut Hasher,
) -> Result<Vec<Leaf>, Unread> {
    let mut leaves = Vec::new();
    for (slot, item) in items.iter().enumerate() {
        let block = Object::read(raw, *item)?;
        match block.of_kind("text", Kind::String).filter(|_| block.is_one_of(texts)) {
            Some(text) => {
                feed_text(raw, text, digest);
                leaves.push(Leaf { span: text.span, slot: Some(slot as u32) });
            }
            None => feed(raw, *item, marks, digest)?,
        }
    }
    Ok(leaves)
}

/// The number that a text starts with.
pub(crate) fn leading_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}
