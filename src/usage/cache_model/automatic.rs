//! A cache that remembers every prompt and reads the longest common prefix in whole steps.
//!
//! Prefixes are compared block by block, so the read is a lower bound: two prompts may also share the
//! beginning of the first block in which they differ.

use super::chain::Chain;
use super::{CacheUse, Flight, HOUR_MS, Writes};

/// How many prompts are kept. Each request is compared with all of them.
const MAX_TRAILS: usize = 512;
/// How many hashes are kept over all prompts: a mebibyte.
const MAX_LINKS: usize = 128 * 1024;
/// How long prompts may stay cached without marks, in milliseconds. `OpenAI` and Google speak of a day, `DeepSeek` of
/// hours to days.
const LONGEST_MS: u64 = 7 * 24 * HOUR_MS;

#[derive(Debug, Clone)]
pub(super) struct Automatic {
    min_tokens: u64,
    step: u64,
    /// How long prompts are promised to be kept after their last use.
    ttl_ms: u64,
    writes: Writes,
    trails: Vec<Trail>,
    /// Trails that have been unused for longer than is promised, and may be gone by now.
    lapsed: Vec<Trail>,
}

/// A prompt seen before, with the hashes of all its prefixes. No trail is a prefix of another.
#[derive(Debug, Clone)]
struct Trail {
    links: Box<[u64]>,
    /// When it was last used, in milliseconds.
    last_ms: u64,
    /// How much of it became readable, and when.
    readable: Vec<Readable>,
}

/// The beginning of a trail that is readable from some time on.
#[derive(Debug, Clone, Copy)]
struct Readable {
    blocks: usize,
    /// On the clock of [`Flight`].
    from: u64,
}

/// What a prompt has in common with a trail.
#[derive(Clone, Copy)]
struct Common {
    /// The index of the trail.
    trail: usize,
    /// The number of blocks at the beginning of both.
    blocks: usize,
}

impl Automatic {
    pub(super) fn new(min_tokens: u64, step: u64, ttl_ms: u64, writes: Writes) -> Self {
        let step = step.max(1);
        Self { min_tokens, step, ttl_ms, writes, trails: Vec::new(), lapsed: Vec::new() }
    }

    pub(super) fn observe(&mut self, chain: &Chain, now_ms: u64, flight: Flight) -> CacheUse {
        let ttl_ms = self.ttl_ms;
        self.lapsed.extend(self.trails.extract_if(.., |trail| !trail.is_fresh(now_ms, ttl_ms)));
        self.lapsed.retain(|trail| trail.is_fresh(now_ms, LONGEST_MS));
        let read_blocks = most_readable(&self.trails, chain, flight);
        let lapsed_blocks = most_readable(&self.lapsed, chain, flight);
        if chain.tokens() >= self.min_tokens {
            self.lapsed.retain(|trail| !chain.links().starts_with(&trail.links));
            self.remember(chain, now_ms, flight);
        }
        self.divide(chain, read_blocks, lapsed_blocks)
    }

    /// Extends the trail that the prompt continues, refreshes the one that it is part of, or starts one.
    fn remember(&mut self, chain: &Chain, now_ms: u64, flight: Flight) {
        let common = longest_common(&self.trails, chain);
        let links = &chain.links()[..chain.links().len().min(MAX_LINKS)];
        match common.map(|common| (&mut self.trails[common.trail], common.blocks)) {
            Some((trail, blocks)) if blocks == trail.links.len() || blocks == links.len() => {
                trail.record_write(links.len(), flight);
                if links.len() > trail.links.len() {
                    trail.links = links.into();
                }
                trail.last_ms = trail.last_ms.max(now_ms);
            }
            _ => {
                // Blocks shared with another trail are as readable here as they are there.
                let shared = common.map_or(0, |common| {
                    common.blocks.min(self.trails[common.trail].readable_blocks(flight.sent))
                });
                let readable = vec![
                    Readable { blocks: shared, from: 0 },
                    Readable { blocks: links.len(), from: flight.answered },
                ];
                self.trails.push(Trail { links: links.into(), last_ms: now_ms, readable });
            }
        }
        self.evict();
    }

    /// Over a limit, removes the least recently used prompts, all lapsed ones before any other.
    fn evict(&mut self) {
        let all = self.trails.iter().chain(&self.lapsed);
        let mut stored: usize = all.map(|trail| trail.links.len()).sum();
        while stored > MAX_LINKS || self.trails.len() + self.lapsed.len() > MAX_TRAILS {
            let from = if self.lapsed.is_empty() { &mut self.trails } else { &mut self.lapsed };
            let oldest = (0..from.len()).min_by_key(|&index| from[index].last_ms);
            let Some(oldest) = oldest else { return };
            stored -= from.remove(oldest).links.len();
        }
    }

    /// Divides the prompt into what is read, written and plain input.
    fn divide(&self, chain: &Chain, read_blocks: usize, lapsed_blocks: usize) -> CacheUse {
        let whole_steps = |tokens: u64| {
            let tokens = tokens - tokens % self.step;
            if tokens < self.min_tokens { 0 } else { tokens }
        };
        let read = whole_steps(chain.tokens_of(read_blocks));
        let write_5m = match self.writes {
            Writes::Free => 0,
            Writes::Billed => whole_steps(chain.tokens()) - read,
        };
        let lapsed = whole_steps(chain.tokens_of(lapsed_blocks)).saturating_sub(read);
        let uncached = chain.tokens() - read - write_5m;
        CacheUse { read, write_5m, uncached, lapsed, ..CacheUse::default() }
    }
}

/// How many blocks at the beginning of the prompt could be read from a trail when the prompt was sent; 0 if from none.
fn most_readable(trails: &[Trail], chain: &Chain, flight: Flight) -> usize {
    let shared =
        trails.iter().map(|trail| trail.common_blocks(chain).min(trail.readable_blocks(flight.sent)));
    shared.max().unwrap_or(0)
}

/// What the prompt has in common with the trail that it shares the most with; `None` if it shares nothing with any.
fn longest_common(trails: &[Trail], chain: &Chain) -> Option<Common> {
    let shared = trails.iter().enumerate();
    let shared = shared.map(|(index, trail)| Common { trail: index, blocks: trail.common_blocks(chain) });
    shared.max_by_key(|common| common.blocks).filter(|common| common.blocks > 0)
}

impl Trail {
    /// How many blocks at its beginning are those of the prompt.
    fn common_blocks(&self, chain: &Chain) -> usize {
        self.links.iter().zip(chain.links()).take_while(|(a, b)| a == b).count()
    }

    /// How many blocks at its beginning were readable at a time on the clock of [`Flight`].
    fn readable_blocks(&self, at: u64) -> usize {
        let readable = self.readable.iter().filter(|readable| readable.from <= at);
        readable.map(|readable| readable.blocks).max().unwrap_or(0)
    }

    /// Records that a request wrote the first `blocks` blocks.
    fn record_write(&mut self, blocks: usize, flight: Flight) {
        let before = self.readable_blocks(flight.sent);
        if before < blocks {
            self.readable.retain(|readable| readable.blocks > before);
            self.readable.push(Readable { blocks: before, from: 0 });
            self.readable.push(Readable { blocks, from: flight.answered });
        }
    }

    fn is_fresh(&self, now_ms: u64, ttl_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) < ttl_ms
    }
}
