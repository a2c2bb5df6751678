//! Memos of indexed messages, as a gateway has them between requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use moka::sync::Cache;
use plimsoll::conversation::{Hashed, Memo, MessageIndex, Trail};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A fixed seed: the same keys in every run.
const SEED: u64 = 7;

pub(crate) type Map = HashMap<u128, Arc<MessageIndex>, Hashed>;

/// What is known when a request is received.
pub(crate) struct Known {
    messages: Messages,
    trail: Option<Trail>,
}

/// A plain table, or the kind of cache that the gateway itself uses.
enum Messages {
    Table(Map),
    Cache(Cache<u128, Arc<MessageIndex>>),
}

impl Known {
    pub(crate) fn nothing() -> Self {
        Self { messages: Messages::Table(Map::default()), trail: None }
    }

    /// The same knowledge in a cache.
    pub(crate) fn cached(self) -> Self {
        let Messages::Table(table) = self.messages else { return self };
        let cache = Cache::builder()
            .weigher(|_: &u128, index: &Arc<MessageIndex>| index.weight() as u32 + 64)
            .max_capacity(1 << 30)
            .build();
        for (key, index) in table {
            cache.insert(key, index);
        }
        cache.run_pending_tasks();
        Self { messages: Messages::Cache(cache), trail: self.trail }
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        match &self.messages {
            Messages::Table(table) => table.get(&key).cloned(),
            Messages::Cache(cache) => cache.get(&key),
        }
    }
}

/// The memo during one request: what was known, and what this request adds.
pub(crate) struct During<'a> {
    known: &'a Known,
    fresh: RefCell<Map>,
    trail: RefCell<Option<Trail>>,
}

impl<'a> During<'a> {
    pub(crate) fn new(known: &'a Known) -> Self {
        Self { known, fresh: RefCell::default(), trail: RefCell::default() }
    }

    /// What is known afterwards, if nothing was known before.
    pub(crate) fn learned(self) -> Known {
        Known { messages: Messages::Table(self.fresh.into_inner()), trail: self.trail.into_inner() }
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

    fn trail(&self, first: u128) -> Option<Trail> {
        self.known.trail.clone().filter(|trail| trail[0].key == first)
    }

    fn follow(&self, trail: Trail) {
        *self.trail.borrow_mut() = Some(trail);
    }
}
