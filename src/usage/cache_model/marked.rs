//! A cache that writes entries only where the prompt is marked.
//!
//! From each mark the provider looks back a few blocks for an entry; the longest one found is read. With A
//! the end of what was read, B the last one-hour mark and C the last five-minute mark: A is read, B − A
//! written for an hour, C − B for five minutes, and the rest is plain input.

use std::collections::HashMap;

use super::chain::Chain;
use super::{CacheUse, Flight, PromptShape, Ttl};

/// The most marks of a prompt that count; the API refuses more.
const MAX_MARKS: usize = 4;
/// The most entries kept.
const MAX_ENTRIES: usize = 16 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Marked {
    min_tokens: u64,
    lookback: usize,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    last_ms: u64,
    ttl: Ttl,
    /// When it became readable: the answer to the request that wrote it began.
    readable: u64,
}

impl Entry {
    fn is_fresh(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) < self.ttl.millis()
    }
}

/// A mark that counts: how many blocks it covers.
#[derive(Debug, Clone, Copy)]
struct Mark {
    blocks: usize,
    ttl: Ttl,
}

impl Marked {
    pub(super) fn new(min_tokens: u64, lookback: usize) -> Self {
        Self { min_tokens, lookback, entries: HashMap::new() }
    }

    pub(super) fn observe(
        &mut self,
        chain: &Chain,
        shape: &PromptShape,
        now_ms: u64,
        flight: Flight,
    ) -> CacheUse {
        let marks = self.marks(chain, shape);
        let hit = self.longest_entry(chain, &marks, now_ms, flight);
        let read = hit.map_or(0, |hit| hit.blocks);
        if let Some(hit) = hit {
            self.touch(chain, hit, now_ms, flight);
        }
        for &mark in &marks {
            // What was read is not paid for again, so a mark inside it lasts no longer than what was read.
            let ttl =
                hit.filter(|hit| mark.blocks <= hit.blocks).map_or(mark.ttl, |hit| hit.ttl.min(mark.ttl));
            self.touch(chain, Mark { ttl, ..mark }, now_ms, flight);
        }
        self.make_room(now_ms);
        let is_unmarked = shape.automatic.is_none() && shape.blocks.iter().all(|block| block.mark.is_none());
        CacheUse { is_unmarked, ..divide(chain, &marks, read) }
    }

    /// The marks that count, in the order of the prompt.
    fn marks(&self, chain: &Chain, shape: &PromptShape) -> Vec<Mark> {
        let own = shape
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(index, block)| block.mark.map(|ttl| Mark { blocks: index + 1, ttl }));
        let end = shape.automatic.map(|ttl| Mark { blocks: shape.blocks.len(), ttl });
        let long_enough = |mark: &Mark| mark.blocks > 0 && chain.tokens_of(mark.blocks) >= self.min_tokens;
        let mut marks: Vec<Mark> = own.chain(end).filter(long_enough).collect();
        marks.drain(..marks.len().saturating_sub(MAX_MARKS));
        marks
    }

    /// The longest entry within reach of a mark. An entry that an earlier mark reaches lies before every
    /// entry that a later one does, or is reached by both.
    fn longest_entry(&self, chain: &Chain, marks: &[Mark], now_ms: u64, flight: Flight) -> Option<Mark> {
        marks.iter().rev().find_map(|mark| {
            let within_reach = (1..=mark.blocks).rev().take(self.lookback);
            within_reach.into_iter().find_map(|blocks| {
                let entry = self.entries.get(&chain.link(blocks)?)?;
                let is_there = entry.is_fresh(now_ms) && entry.readable <= flight.sent;
                is_there.then_some(Mark { blocks, ttl: entry.ttl })
            })
        })
    }

    /// Writes the entry of a mark, or extends the life of the one there.
    fn touch(&mut self, chain: &Chain, mark: Mark, now_ms: u64, flight: Flight) {
        let Some(link) = chain.link(mark.blocks) else { return };
        let new = Entry { last_ms: now_ms, ttl: mark.ttl, readable: flight.answered };
        let entry = self.entries.entry(link).or_insert(new);
        if !entry.is_fresh(now_ms) {
            (entry.ttl, entry.readable) = (new.ttl, new.readable);
        }
        entry.last_ms = entry.last_ms.max(now_ms);
        entry.readable = entry.readable.min(new.readable);
    }

    /// Over the limit, the expired entries go, then the least recently used ones down to half.
    fn make_room(&mut self, now_ms: u64) {
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

/// Divides the prompt at the end of what is read and at the last mark of each lifetime.
fn divide(chain: &Chain, marks: &[Mark], read_blocks: usize) -> CacheUse {
    let last = |ttl| marks.iter().filter(|mark| mark.ttl == ttl).map(|mark| mark.blocks).max().unwrap_or(0);
    let read = chain.tokens_of(read_blocks);
    let hour = chain.tokens_of(last(Ttl::OneHour)).max(read);
    let short = chain.tokens_of(last(Ttl::FiveMinutes)).max(hour);
    let uncached = chain.tokens() - short;
    CacheUse { read, write_1h: hour - read, write_5m: short - hour, uncached, ..CacheUse::default() }
}
