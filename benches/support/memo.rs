//! Memories of indexed messages, as a gateway has them between requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use moka::sync::Cache;
use plimsoll::conversation::{Memo, MessageIndex};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A fixed seed: the same keys in every run.
const SEED: u64 = 7;

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}

pub(crate) type Map = HashMap<u128, Arc<MessageIndex>, BuildHasherDefault<Same>>;

/// What is known when a request comes: a plain table, or the kind of cache that the gateway itself has.
pub(crate) enum Known {
    Table(Map),
    Cache(Cache<u128, Arc<MessageIndex>>),
}

impl Known {
    pub(crate) fn nothing() -> Self {
        Self::Table(Map::default())
    }

    /// The same knowledge in a cache.
    pub(crate) fn cached(self) -> Self {
        let Self::Table(table) = self else { return self };
        let cache = Cache::builder()
            .weigher(|_: &u128, index: &Arc<MessageIndex>| index.weight() as u32 + 64)
            .max_capacity(1 << 30)
            .build();
        for (key, index) in table {
            cache.insert(key, index);
        }
        cache.run_pending_tasks();
        Self::Cache(cache)
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        match self {
            Self::Table(table) => table.get(&key).cloned(),
            Self::Cache(cache) => cache.get(&key),
        }
    }
}

/// The memory during one request: what was known, and what this request adds.
pub(crate) struct During<'a> {
    known: &'a Known,
    fresh: RefCell<Map>,
}

impl<'a> During<'a> {
    pub(crate) fn new(known: &'a Known) -> Self {
        Self { known, fresh: RefCell::default() }
    }

    /// What is known afterwards, if nothing was known before.
    pub(crate) fn learned(self) -> Known {
        Known::Table(self.fresh.into_inner())
    }
}

impl Memo for During<'_> {
    fn key(&self, dialect: &str, raw: &[u8]) -> u128 {
        let seed = dialect.bytes().fold(SEED, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
        xxh3_128_with_seed(raw, seed)
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        self.known.get(key).or_else(|| self.fresh.borrow().get(&key).cloned())
    }

    fn put(&self, key: u128, index: &Arc<MessageIndex>) {
        self.fresh.borrow_mut().insert(key, Arc::clone(index));
    }
}
