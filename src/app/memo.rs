//! The cache of indexed messages, which all worker threads share.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use moka::sync::Cache;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::conversation::{Hashed, Memo, MessageIndex, Step, Trail};
use crate::store::Recent;

/// Indexes by a hash of the raw message. The seed is drawn for each process, so that nobody outside can make two
/// messages collide.
pub(super) struct MessageMemo {
    seed: u64,
    /// The indexes of messages, looked up by all threads for each message of a history. Unlike a [`Recent`], moka reads
    /// without a lock.
    known: Cache<u128, Arc<MessageIndex>, Hashed>,
    /// The indexes of whole lists of messages, by the key of the first one.
    trails: Recent<u128, Trail, Hashed>,
}

impl MessageMemo {
    /// A cache of at most about `bytes`, half of them for lists.
    pub(super) fn new(bytes: u64) -> Self {
        let weight =
            |_: &u128, index: &Arc<MessageIndex>| u32::try_from(index.weight() + 64).unwrap_or(u32::MAX);
        let known = Cache::builder().weigher(weight).max_capacity(bytes - bytes / 2);
        Self {
            seed: RandomState::new().hash_one("memo"),
            known: known.build_with_hasher(Hashed::default()),
            trails: Recent::of_weight(bytes / 2, |trail| {
                let weight = |step: &Step| std::mem::size_of::<Step>() + step.index.weight();
                trail.iter().map(weight).sum()
            }),
        }
    }
}

impl Memo for MessageMemo {
    fn key(&self, dialect: &str, raw: &[u8]) -> u128 {
        xxh3_128_with_seed(raw, xxh3_64_with_seed(dialect.as_bytes(), self.seed))
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        self.known.get(&key)
    }

    fn put(&self, key: u128, index: &Arc<MessageIndex>) {
        self.known.insert(key, Arc::clone(index));
    }

    fn trail(&self, first: u128) -> Option<Trail> {
        self.trails.get(&first)
    }

    fn follow(&self, trail: Trail) {
        if let Some(first) = trail.first() {
            self.trails.insert(first.key, trail);
        }
    }
}
