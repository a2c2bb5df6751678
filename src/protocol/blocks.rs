//! The blocks of a prompt: their keys (hashes of their content), sizes and weights.

use xxhash_rust::xxh3::Xxh3;

use super::marked::{hold, is_mark, marks_in};
use super::prompt::{Block, Layout, Share};
use super::weight;
use crate::conversation::{BlockKey, Conversation, Hold, MEDIA, Part, PartData, PartId, PartKind, Role};
use crate::json::Span;
use crate::json::scan::{self, Kind, Value};

/// A block before or after the messages.
pub(super) fn frame_block(bytes: &[u8], value: Value, share: Share, layout: &Layout) -> Block {
    let raw = value.span.of(bytes);
    let new = Content::new(b"F", false);
    let (content, mark) = match lone_text(raw).filter(|_| share == Share::System) {
        Some(literal) => add_text(new, raw, literal, layout),
        None => add_unmarked(new, raw, layout.marks),
    };
    let (key, bytes, weight) = (content.key(), raw.len() as u32, content.bytes as u32);
    Block { key, bytes, weight, counted: None, span: value.span, mark, part: None, share }
}

/// The literal of a block that is a string, or of the text in a block of type `text`.
fn lone_text(raw: &[u8]) -> Option<Span> {
    let root = scan::document(raw).ok()?;
    if root.kind == Kind::String {
        return Some(root.span);
    }
    let members = scan::members_unchecked(raw, root.span).ok()?;
    scan::get(raw, &members, "type").filter(|kind| kind.span.of(raw) == b"\"text\"")?;
    scan::get(raw, &members, "text").filter(|text| text.kind == Kind::String).map(|text| text.span)
}

/// The key, the weight and the cache mark of a part.
pub(super) fn part_key(
    conversation: &Conversation,
    id: PartId,
    role: Role,
    part: &Part,
    layout: &Layout,
) -> BlockKey {
    let raw = conversation.bytes_of(id.message, part.span);
    let uncounted = match part.kind() {
        PartKind::ToolResult => uncounted(part, raw, layout),
        _ => raw.len() - part_len(part, layout),
    };
    // A block with bytes that the model does not read as text is weighed by its length.
    let is_text = uncounted == 0;
    let new = |tag: &[u8]| Content::new(tag, is_text);
    let (content, mark) = match &part.data {
        PartData::Text(leaf) => {
            let literal = leaf.span.relative_to(part.span.start as usize);
            add_text(new(&[b'T', role as u8]), raw, literal, layout)
        }
        PartData::ToolResult(_) => result_content(new, conversation, id, part, layout),
        // An item that becomes a call once its result is seen must have the same key before.
        PartData::Opaque(opaque) if opaque.call.is_some() => {
            add_unmarked(new(&[role as u8, PartKind::ToolCall as u8]), raw, layout.marks)
        }
        _ => add_unmarked(new(&[role as u8, part.kind() as u8]), raw, layout.marks),
    };
    let bytes = match part.kind() {
        PartKind::ToolResult if !layout.marks.is_empty() => content.bytes,
        _ => raw.len(),
    };
    let weight =
        if is_text { content.weight } else { bytes.saturating_sub(uncounted).min(u32::MAX as usize) as u32 };
    BlockKey { key: content.key(), weight, mark }
}

/// Bytes of a result that the model does not read as text, such as encoded media. Cache marks do not count among them,
/// so that the figure is the same with and without marks.
fn uncounted(part: &Part, raw: &[u8], layout: &Layout) -> usize {
    let uncounted = raw.len() - part.read_len();
    if part.is_read_by_code() {
        return uncounted;
    }
    let marks = if uncounted == 0 { Vec::new() } else { marks_in(raw, layout.marks).0 };
    if marks.is_empty() {
        return uncounted;
    }
    let counts = part.beside_texts().map(|item| {
        let item = item.relative_to(part.span.start as usize);
        let is_within = |mark: &&Span| item.start <= mark.start && mark.end <= item.end;
        let mark_bytes: usize = marks.iter().filter(is_within).map(|mark| mark.len()).sum();
        (item.len() - mark_bytes).saturating_sub(MEDIA)
    });
    counts.sum::<usize>() + part.encoded as usize
}

/// The hash, size and weight of a block's content, as far as it was added.
struct Content {
    hash: Xxh3,
    bytes: usize,
    weight: u32,
    is_weighed: bool,
}

impl Content {
    /// Empty content. `tag` distinguishes blocks of different kinds with the same content.
    fn new(tag: &[u8], is_weighed: bool) -> Self {
        let mut hash = Xxh3::new();
        hash.update(tag);
        Self { hash, bytes: 0, weight: 0, is_weighed }
    }

    fn add(&mut self, raw: &[u8]) {
        self.hash.update(raw);
        self.bytes += raw.len();
        if self.is_weighed {
            self.weight = self.weight.saturating_add(weight::of(raw));
        }
    }

    fn key(&self) -> u128 {
        self.hash.digest128()
    }
}

/// The block of a part.
pub(super) fn part_block(
    conversation: &Conversation,
    id: PartId,
    role: Role,
    part: &Part,
    known: &BlockKey,
    layout: &Layout,
) -> Block {
    let bytes = part_len(part, layout).min(u32::MAX as usize) as u32;
    let share = match (part.kind(), role) {
        (PartKind::ToolResult, _) => Share::Results,
        (PartKind::Thinking, _) => Share::Reasoning,
        (_, Role::System) => Share::System,
        (_, Role::User) => Share::User,
        (_, Role::Assistant) => Share::Assistant,
        (_, Role::Tool) => Share::Results,
    };
    let span = conversation.absolute(id.message, part.span);
    let BlockKey { key, weight, mark } = *known;
    Block { key, bytes, weight, counted: None, span, mark, part: Some(id), share }
}

/// Adds a text: its literal, and the other members of its block if there are any. Returns the block's cache mark too.
fn add_text(mut content: Content, raw: &[u8], literal: Span, layout: &Layout) -> (Content, Option<Hold>) {
    content.add(literal.of(raw));
    let mark = add_around(raw, literal, &["type", "text"], layout, &mut content);
    (content, mark)
}

/// The content and the cache mark of a result. A single text has the same content as a string and in a list.
fn result_content(
    new: impl Fn(&[u8]) -> Content,
    conversation: &Conversation,
    id: PartId,
    part: &Part,
    layout: &Layout,
) -> (Content, Option<Hold>) {
    let raw = conversation.bytes_of(id.message, part.span);
    let ([leaf], list) = (part.leaves(), part.slots()) else {
        return add_unmarked(new(b"R"), raw, layout.marks);
    };
    let (hole, item) = match list.map(|list| (list.array, &*list.items)) {
        None => (leaf.span, leaf.span),
        Some((array, [item])) => (array, *item),
        Some(_) => return add_unmarked(new(b"R"), raw, layout.marks),
    };
    let literal = leaf.span.relative_to(item.start as usize);
    let tag = [b'T', Role::Tool as u8];
    let (inner, inner_mark) = add_text(new(&tag), conversation.bytes_of(id.message, item), literal, layout);
    let mut content = Content { weight: inner.weight, ..new(b"R") };
    content.hash.update(&inner.key().to_le_bytes());
    let mark = add_around(raw, hole.relative_to(part.span.start as usize), &[], layout, &mut content);
    (content, mark.or(inner_mark))
}

/// Adds the members of a block without those in `skip`, the bytes of `hole` and the cache mark. Returns the mark.
fn add_around(raw: &[u8], hole: Span, skip: &[&str], layout: &Layout, content: &mut Content) -> Option<Hold> {
    let (head, tail) = (raw.get(..hole.start as usize)?, raw.get(hole.end as usize..)?);
    let rest = [head, b"\"\"", tail].concat();
    let members = scan::document(&rest).and_then(|root| scan::members_unchecked(&rest, root.span));
    let mut mark = None;
    for member in members.unwrap_or_default() {
        let name = member.name(&rest);
        if is_mark(name, layout.marks) {
            mark = mark.or_else(|| hold(&rest, member.value));
        } else if !skip.iter().any(|skip| skip.as_bytes() == name) {
            content.add(member.span().of(&rest));
        }
    }
    mark
}

/// Adds a value without its cache marks. Returns the lifetime of the first mark too.
fn add_unmarked(mut content: Content, raw: &[u8], marks: &[&str]) -> (Content, Option<Hold>) {
    let (spans, first) = marks_in(raw, marks);
    let mut from = 0;
    for span in spans {
        content.add(raw.get(from..span.start as usize).unwrap_or_default());
        from = span.end as usize;
    }
    content.add(raw.get(from..).unwrap_or_default());
    (content, first)
}

/// The size of a part in bytes.
fn part_len(part: &Part, layout: &Layout) -> usize {
    match part.kind() {
        // Encrypted reasoning is base64 in an envelope, often together with a summary of it.
        PartKind::Thinking if layout.sealed => part.span.len() * 2 / 5,
        _ => part.read_len(),
    }
}
