//! Summaries of the provider's own (`compaction` blocks), which it has signed or encrypted: a history that begins with one goes
//! on from the request that was answered with it.

use xxhash_rust::xxh3::xxh3_128;

use crate::conversation::{Conversation, PartId};
use crate::json::scan;
use crate::protocol::body::Object;

/// What such a block is called, and the end of an answer that is nothing else.
pub(super) const KIND: &str = "compaction";
/// What the provider alone can write of it.
const SEALS: [&str; 2] = ["signature", "encrypted_content"];

/// Hashes of what a block is sealed with.
pub(super) fn seals(block: &Object<'_>) -> Vec<u128> {
    let seals = SEALS.into_iter().filter_map(|name| block.text(name)).filter(|seal| !seal.is_empty());
    seals.map(|seal| xxh3_128(seal.as_bytes())).collect()
}

/// The same of the summaries in an answer that is one document.
pub(super) fn sealed(answer: &[u8]) -> Vec<u128> {
    let Ok(answer) = Object::of(answer) else { return Vec::new() };
    let content = answer.get("content").and_then(|list| scan::items(answer.bytes, list.span).ok());
    let blocks = content.into_iter().flatten().filter_map(|item| Object::read(answer.bytes, item).ok());
    blocks.filter(|block| block.says("type", KIND)).flat_map(|block| seals(&block)).collect()
}

/// The same of the summary that a history begins with.
pub(super) fn beginning(conversation: &Conversation) -> Vec<u128> {
    let first = conversation.part(PartId { message: 0, part: 0 }).filter(|part| part.is_summary);
    let block = first.and_then(|part| Object::of(conversation.bytes_of(0, part.span)).ok());
    block.map(|block| seals(&block)).unwrap_or_default()
}
