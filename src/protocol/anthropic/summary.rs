//! The provider's own summaries (`compaction` blocks), which are signed or encrypted. A history that begins with one
//! continues the request that was answered with it.

use xxhash_rust::xxh3::xxh3_128;

use crate::conversation::{Conversation, PartId};
use crate::protocol::body::Object;

/// The type of such a block, and the stop reason of an answer that consists of one.
pub(super) const KIND: &str = "compaction";
/// The members that only the provider can write.
const SEALS: [&str; 2] = ["signature", "encrypted_content"];

/// Hashes of a block's seals: its signature and its encrypted content.
pub(super) fn seals(block: &Object<'_>) -> Vec<u128> {
    let seals = SEALS.into_iter().filter_map(|name| block.text(name)).filter(|seal| !seal.is_empty());
    seals.map(|seal| xxh3_128(seal.as_bytes())).collect()
}

/// The [`seals`] of the summary that a history begins with.
pub(super) fn beginning(conversation: &Conversation) -> Vec<u128> {
    let first = conversation.part(PartId { message: 0, part: 0 }).filter(|part| part.is_summary());
    let block = first.and_then(|part| Object::of(conversation.bytes_of(0, part.span)).ok());
    block.map(|block| seals(&block)).unwrap_or_default()
}
