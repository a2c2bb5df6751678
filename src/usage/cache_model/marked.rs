//! A cache that writes entries only where the prompt is marked.
//!
//! From each mark the provider looks back a few blocks for an entry, and reads the longest one that it finds. It then
//! writes an entry at each mark. What the prompt is billed as follows from the ends of three prefixes: what was read,
//! the last one-hour mark, and the last five-minute mark. If these end after 6,000, 8,000 and 9,000 of 10,000 tokens,
//! 6,000 tokens are read, 2,000 are written for an hour and 1,000 for five minutes, and 1,000 are plain input.

use std::collections::HashMap;

use super::chain::Chain;
use super::{CacheUse, Flight, PromptShape, Ttl};

/// How many marks of a prompt count: the last ones. The API refuses more.
const MAX_MARKS: usize = 4;
/// How many blocks, its own included, are tried from each mark backwards.
const LOOKBACK: usize = 20;
/// How many entries are kept.
const MAX_ENTRIES: usize = 16 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Marked {
    min_tokens: u64,
    /// The entries by the hashes of their prefixes.
    entries: HashMap<u64, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// When it was last used, in milliseconds.
    last_ms: u64,
    ttl: Ttl,
    /// When it became readable, on the clock of [`Flight`]: when the answer to the request that wrote it began.
    readable_from: u64,
}

impl Entry {
    fn is_fresh(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) < self.ttl.millis()
    }
}

/// A prefix of a prompt: its number of blocks, and how long its entry is kept, or is to be kept.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    blocks: usize,
    ttl: Ttl,
}

impl Marked {
    pub(super) fn new(min_tokens: u64) -> Self {
        Self { min_tokens, entries: HashMap::new() }
    }

    pub(super) fn observe(
        &mut self,
        chain: &Chain,
        shape: &PromptShape,
        now_ms: u64,
        flight: Flight,
    ) -> CacheUse {
        let marked = self.marked_prefixes(chain, shape);
        let hit = self.longest_entry(chain, &marked, now_ms, flight);
        let read_blocks = hit.map_or(0, |hit| hit.blocks);
        if let Some(hit) = hit {
            self.write_or_refresh(chain, hit, now_ms, flight);
        }
        for &prefix in &marked {
            // What was read is not paid for again, so an entry inside it is kept no longer than what was read.
            let ttl = match hit {
                Some(hit) if prefix.blocks <= hit.blocks => prefix.ttl.min(hit.ttl),
                _ => prefix.ttl,
            };
            self.write_or_refresh(chain, Prefix { ttl, ..prefix }, now_ms, flight);
        }
        self.evict(now_ms);
        let is_unmarked = shape.automatic.is_none() && shape.blocks.iter().all(|block| block.mark.is_none());
        CacheUse { is_unmarked, ..divide(chain, &marked, read_blocks) }
    }

    /// The prefixes up to the marks that count, shortest first.
    fn marked_prefixes(&self, chain: &Chain, shape: &PromptShape) -> Vec<Prefix> {
        let mut marked = Vec::new();
        for (index, block) in shape.blocks.iter().enumerate() {
            marked.extend(block.mark.map(|ttl| Prefix { blocks: index + 1, ttl }));
        }
        marked.extend(shape.automatic.map(|ttl| Prefix { blocks: shape.blocks.len(), ttl }));
        marked.retain(|prefix| prefix.blocks > 0 && chain.tokens_of(prefix.blocks) >= self.min_tokens);
        marked.drain(..marked.len().saturating_sub(MAX_MARKS));
        marked
    }

    /// The longest prefix with an entry within reach of a mark. The marks are tried from the last one on: an entry
    /// that only an earlier mark reaches is shorter than any that a later one reaches.
    fn longest_entry(&self, chain: &Chain, marked: &[Prefix], now_ms: u64, flight: Flight) -> Option<Prefix> {
        marked.iter().rev().find_map(|prefix| {
            let mut within_reach = (1..=prefix.blocks).rev().take(LOOKBACK);
            within_reach.find_map(|blocks| {
                let entry = self.entries.get(&chain.link(blocks)?)?;
                let is_readable = entry.is_fresh(now_ms) && entry.readable_from <= flight.sent;
                is_readable.then_some(Prefix { blocks, ttl: entry.ttl })
            })
        })
    }

    /// Writes the entry of a prefix. If there is one that has not expired, extends its life instead, whatever the time
    /// to live of `prefix`.
    fn write_or_refresh(&mut self, chain: &Chain, prefix: Prefix, now_ms: u64, flight: Flight) {
        let Some(link) = chain.link(prefix.blocks) else { return };
        let new = Entry { last_ms: now_ms, ttl: prefix.ttl, readable_from: flight.answered };
        let entry = self.entries.entry(link).or_insert(new);
        if !entry.is_fresh(now_ms) {
            (entry.ttl, entry.readable_from) = (new.ttl, new.readable_from);
        }
        // Requests need not be observed in the order in which they were sent.
        entry.last_ms = entry.last_ms.max(now_ms);
        entry.readable_from = entry.readable_from.min(new.readable_from);
    }

    /// If there are too many entries, removes the expired ones, then the least recently used ones down to half the
    /// limit.
    fn evict(&mut self, now_ms: u64) {
        if self.entries.len() <= MAX_ENTRIES {
            return;
        }
        self.entries.retain(|_, entry| entry.is_fresh(now_ms));
        let excess = self.entries.len().saturating_sub(MAX_ENTRIES / 2);
        let mut by_age: Vec<(u64, u64)> =
            self.entries.iter().map(|(&link, entry)| (entry.last_ms, link)).collect();
        by_age.sort_unstable();
        for (_, link) in by_age.into_iter().take(excess) {
            self.entries.remove(&link);
        }
    }
}

/// Divides the prompt at the end of what is read and at the last mark of each time to live.
fn divide(chain: &Chain, marked: &[Prefix], read_blocks: usize) -> CacheUse {
    let tokens_up_to_last = |ttl| {
        let blocks = marked.iter().filter(|prefix| prefix.ttl == ttl).map(|prefix| prefix.blocks);
        chain.tokens_of(blocks.max().unwrap_or(0))
    };
    let read = chain.tokens_of(read_blocks);
    let hour = tokens_up_to_last(Ttl::OneHour).max(read);
    let short = tokens_up_to_last(Ttl::FiveMinutes).max(hour);
    let uncached = chain.tokens() - short;
    CacheUse { read, write_1h: hour - read, write_5m: short - hour, uncached, ..CacheUse::default() }
}
