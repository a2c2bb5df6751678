//! Remembers messages that were indexed before.

use std::sync::Arc;

use super::MessageIndex;

/// Remembers indexed messages by a hash of their raw bytes. Filled by the shell, bounded there.
pub trait Memo {
    /// The key of a message's raw bytes in one dialect. Keys may change when the process restarts.
    fn key(&self, dialect: &str, raw: &[u8]) -> u128;
    /// The index of the message with this key, if it is remembered.
    fn get(&self, key: u128) -> Option<Arc<MessageIndex>>;
    /// Remembers an index.
    fn put(&self, key: u128, index: &Arc<MessageIndex>);

    /// The newest list that begins with the message of this key, if it is remembered.
    fn trail(&self, _first: u128) -> Option<Trail> {
        None
    }

    /// Remembers a list, which must not be empty.
    fn follow(&self, _trail: Trail) {}
}

/// The messages of a list, in order.
pub type Trail = Arc<[Step]>;

/// A message of a list that was read.
#[derive(Debug, Clone)]
pub struct Step {
    /// The length of its raw bytes, which are an object.
    pub length: u32,
    /// The key of its raw bytes.
    pub key: u128,
    /// Its index.
    pub index: Arc<MessageIndex>,
}

/// A memo that remembers nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemo;

impl Memo for NoMemo {
    fn key(&self, _: &str, _: &[u8]) -> u128 {
        0
    }

    fn get(&self, _: u128) -> Option<Arc<MessageIndex>> {
        None
    }

    fn put(&self, _: u128, _: &Arc<MessageIndex>) {}
}
