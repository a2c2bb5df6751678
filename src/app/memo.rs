//! The cache of indexed messages.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use moka::sync::Cache;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::conversation::{Hashed, Memo, MessageIndex, Step, Trail};
use crate::store::Recent;

/// Indexes by a hash of the raw message. The seed is drawn for each process, so that nobody outside can make two
/// messages collide.
pub(super) struct Indexes {
    seed: u64,
    known: Cache<u128, Arc<MessageIndex>, Hashed>,
    /// The indexes of whole lists of messages, by the key of the first one.
    trails: Recent<u128, Trail, Hashed>,
}

impl Indexes {
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

impl Memo for Indexes {
    fn key(&self, dialect: &str, raw: &[u8]) -> u128 {
        let dialect = dialect.bytes().fold(self.seed, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
        xxh3_128_with_seed(raw, dialect)
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
