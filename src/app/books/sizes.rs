//! Learns the size of each block of a prompt in the provider's own tokens.
//!
//! With one scale for a whole prompt, prose is taken for larger than it is and numbers for smaller, and an event
//! leaves another mixture than it removes. But prompts grow by a few blocks at a time: the difference between the
//! provider's figures for two consecutive prompts is the size of the blocks that are new.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64;

use crate::store::Recent;
use crate::usage::cache_model::{Block, PromptShape};

/// Blocks and prompts that are remembered, each: the most recently used, about a megabyte of blocks.
const BLOCKS: u64 = 16 * 1024;
const PROMPTS: u64 = 4096;
/// How far the measured size of new blocks may be from their estimate, as a ratio. Beyond that the figure covers more
/// than these blocks.
const NEW: RangeInclusive<f64> = 0.4..=2.5;
/// How far known blocks may be from what is known of them, as a ratio.
const KNOWN: RangeInclusive<f64> = 0.7..=1.4;
/// The fewest tokens that teach anything: the overhead around messages is larger than anything below.
const LEAST: u64 = 256;
/// The weight of the newest correction in the learned one.
const FOLLOW: f64 = 0.5;

/// The sizes of blocks.
pub(super) struct Sizes {
    blocks: Recent<u128, Size>,
    /// The tokens billed for each prompt, by the hash of its blocks.
    prompts: Recent<u64, u64>,
    /// Measured tokens of new blocks to one estimated token.
    correction: f64,
}

#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: u64,
    /// It was part of a billed prompt. The size of any other block is inferred from new blocks beside it.
    is_billed: bool,
}

impl Sizes {
    pub(super) fn new() -> Self {
        let (blocks, prompts) = (Recent::of_entries(BLOCKS), Recent::of_entries(PROMPTS));
        Self { blocks, prompts, correction: 1.0 }
    }

    /// Sizes the blocks of a prompt that was billed for `billed` tokens, then those of prompts that were not sent.
    /// All come with estimates. Afterwards the first has as many tokens as were billed, but for rounding.
    pub(super) fn size<'p>(
        &mut self,
        sent: &mut PromptShape,
        billed: u64,
        unsent: impl Iterator<Item = &'p mut PromptShape>,
    ) {
        let late = self.late(&mut sent.late, billed);
        let mut billed = billed.saturating_sub(late.unwrap_or(0));
        let links: Vec<u64> = links(&sent.blocks).collect();
        let kept = sent.blocks.len();
        if late.is_none() {
            sent.blocks.append(&mut sent.late);
        }
        let mut longest = links.iter().enumerate().rev();
        let before = longest.find_map(|(at, link)| Some((at + 1, self.prompts.get(link)?)));
        let goes_on =
            before.and_then(|(blocks, before)| self.sent(sent, blocks, billed as f64 - before as f64));
        let correction = goes_on.or_else(|| self.sent(sent, 0, billed as f64)).unwrap_or_else(|| {
            // The figure contradicts what is known: all blocks are scaled alike.
            let scale = billed as f64 / estimated(&sent.blocks).max(1) as f64;
            self.put(&mut sent.blocks, |_, block| scaled(block.tokens, scale));
            scale
        });
        if late.is_none() {
            sent.late = sent.blocks.split_off(kept);
            billed = billed.saturating_sub(estimated(&sent.late));
        }
        if let Some(link) = links.last() {
            self.prompts.insert(*link, billed);
        }
        for block in unsent.flat_map(|prompt| prompt.blocks.iter_mut().chain(&mut prompt.late)) {
            let own = Size { tokens: scaled(block.tokens, correction), is_billed: false };
            block.tokens = self.blocks.get_or_insert(block.key, own).tokens;
        }
    }

    /// The tokens of what stands behind all that is kept, once a prompt with it was billed: as the next one has the same there,
    /// the figures differ by what is new before it. Where it is new, it is sized with all else that is; so it is where it has
    /// all that was billed.
    fn late(&self, late: &mut [Block], all: u64) -> Option<u64> {
        let billed = |block: &Block| self.blocks.get(&block.key).filter(|size| size.is_billed);
        let known: Vec<u64> = late.iter().map(|block| Some(billed(block)?.tokens)).collect::<Option<_>>()?;
        let tokens = Some(known.iter().sum()).filter(|tokens| *tokens < all)?;
        late.iter_mut().zip(&known).for_each(|(block, tokens)| block.tokens = *tokens);
        Some(tokens)
    }

    /// Sizes a prompt whose blocks behind so many have so many tokens. Says how many of them an estimated one of what is new
    /// is; `None`: what is known of them is far from that.
    fn sent(&mut self, prompt: &mut PromptShape, before: usize, tokens: f64) -> Option<f64> {
        let known = |block: &Block| self.blocks.get(&block.key).filter(|size| size.is_billed);
        let known: Vec<Option<u64>> =
            prompt.blocks.iter().map(|block| known(block).map(|size| size.tokens)).collect();
        let (mut old, mut new) = (0, 0);
        for (block, known) in prompt.blocks.iter().zip(&known).skip(before) {
            match known {
                Some(tokens) => old += tokens,
                None => new += block.tokens,
            }
        }
        // Only new blocks: whatever their estimate is, this is their size.
        let is_alone = old == 0 && new >= LEAST;
        let correction = if is_alone { tokens / new as f64 } else { self.correction };
        let expected = (old as f64 + new as f64 * correction).max(1.0);
        let scale = tokens / expected;
        let is_near = KNOWN.contains(&scale) || (tokens - expected).abs() < LEAST as f64;
        if !NEW.contains(&correction) || !is_near {
            return None;
        }
        if is_alone {
            self.correction += FOLLOW * (correction - self.correction);
        }
        self.put(&mut prompt.blocks, |at, block| {
            let scale = if at < before { 1.0 } else { scale.max(0.0) };
            match known[at] {
                Some(tokens) => scaled(tokens, scale),
                None => scaled(block.tokens, correction * scale),
            }
        });
        Some(correction)
    }

    fn put(&self, blocks: &mut [Block], size: impl Fn(usize, &Block) -> u64) {
        for (at, block) in blocks.iter_mut().enumerate() {
            block.tokens = size(at, block);
            self.blocks.insert(block.key, Size { tokens: block.tokens, is_billed: true });
        }
    }
}

/// The hash of the first block, of the first two, and so on.
fn links(blocks: &[Block]) -> impl Iterator<Item = u64> {
    blocks.iter().scan(0, |link, block| {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&u64::to_le_bytes(*link));
        bytes[8..].copy_from_slice(&block.key.to_le_bytes());
        *link = xxh3_64(&bytes);
        Some(*link)
    })
}

fn estimated(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.tokens).sum()
}

/// Every block has at least one token.
fn scaled(tokens: u64, scale: f64) -> u64 {
    (tokens as f64 * scale).round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    type Blocks = &'static [(u128, u64)];
    /// What was sent, what it was billed for, and how large that makes it; the same of what was not sent.
    type Case = (&'static str, Blocks, u64, &'static [u64], Blocks, &'static [u64]);

    /// The same of a prompt with something behind it, and how large that is.
    type Late = (&'static str, PromptShape, u64, [&'static [u64]; 2], Blocks, &'static [u64]);

    /// A prompt of blocks with these keys, estimated at so many tokens.
    fn prompt(blocks: Blocks) -> PromptShape {
        let block = |&(key, tokens)| Block { key, tokens, mark: None, bound: 0 };
        PromptShape { blocks: blocks.iter().map(block).collect(), automatic: None, late: vec![] }
    }

    fn tokens(prompt: &PromptShape) -> Vec<u64> {
        prompt.blocks.iter().map(|block| block.tokens).collect()
    }

    #[test]
    fn blocks_are_as_large_as_figures_say() {
        let mut sizes = Sizes::new();
        let requests: [Case; 11] = [
            ("first", &[(1, 6000), (2, 4000)], 8000, &[4800, 3200], &[(1, 6000)], &[4800]),
            ("grown", &[(1, 6000), (2, 4000), (3, 8000)], 20_000, &[4800, 3200, 12_000], &[], &[]),
            // The whole block has as many tokens per unit as the part of it that is sent.
            (
                "cut",
                &[(1, 6000), (2, 4000), (3, 8000), (4, 2000)],
                23_200,
                &[4800, 3200, 12_000, 3200],
                &[(1, 6000), (2, 4000), (3, 8000), (5, 9000)],
                &[4800, 3200, 12_000, 14_400],
            ),
            // The known blocks behind an event keep about their size, whatever new blocks are among them.
            (
                "an event",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000)],
                11_290,
                &[4800, 3200, 70, 3220],
                &[(1, 6000), (2, 4000), (3, 8000), (5, 9000)],
                &[4800, 3200, 12_000, 14_400],
            ),
            // A known block was estimated too large, and it is unknown which one.
            (
                "less than is known",
                &[(1, 6000), (2, 4000), (11, 50), (4, 2000)],
                10_700,
                &[4800, 3200, 57, 2643],
                &[(4, 1)],
                &[2643],
            ),
            // The estimate of a block that was never sent is replaced by its real size.
            (
                "sent at last",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000), (5, 9000)],
                29_290,
                &[4800, 3200, 70, 2643, 18_000],
                &[],
                &[],
            ),
            ("little", &[(1, 6000), (2, 4000), (7, 10)], 8090, &[4800, 3200, 90], &[], &[]),
            // Less than the request before had: the provider no longer reads some of that.
            (
                "less than before",
                &[(1, 6000), (2, 4000), (7, 10), (8, 300)],
                7800,
                &[4353, 2902, 82, 463],
                &[],
                &[],
            ),
            ("far less", &[(1, 6000), (2, 4000), (7, 10)], 1001, &[600, 400, 1], &[(9, 500)], &[50]),
            ("far more", &[(1, 6000), (2, 4000)], 100_000, &[60_000, 40_000], &[], &[]),
            ("nothing", &[], 500, &[], &[], &[]),
        ];
        for (what, sent, billed, expected, original, sized) in requests {
            let (mut sent, mut original) = (prompt(sent), prompt(original));
            sizes.size(&mut sent, billed, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }

    /// They are no smaller than they are estimated to be beside the rest, and do not make what is cut larger.
    #[test]
    fn what_stands_behind_all_that_is_kept_is_as_large_as_the_rest_makes_likely() {
        let mut sizes = Sizes::new();
        let late = |blocks, late| PromptShape { late: prompt(late).blocks, ..prompt(blocks) };
        let requests: [Late; 4] = [
            ("first", late(&[(1, 3000)], &[(9, 1000)]), 6000, [&[4500], &[1500]], &[(1, 3000)], &[4500]),
            (
                "grown by as much as the figure",
                late(&[(1, 3000), (2, 1000)], &[(9, 1000)]),
                8000,
                [&[4500, 2000], &[1500]],
                &[(1, 3000), (3, 4000)],
                &[4500, 8000],
            ),
            (
                "others",
                late(&[(1, 3000), (2, 1000)], &[(8, 2000)]),
                10_000,
                [&[4500, 2000], &[3500]],
                &[],
                &[],
            ),
            ("smaller than they were", late(&[(4, 1000)], &[(9, 1000)]), 1200, [&[600], &[600]], &[], &[]),
        ];
        for (what, mut sent, billed, expected, original, sized) in requests {
            let mut original = late(original, &[(9, 1000)]);
            sizes.size(&mut sent, billed, std::iter::once(&mut original));
            let of_late: Vec<u64> = sent.late.iter().map(|block| block.tokens).collect();
            assert_eq!([&*tokens(&sent), &*of_late], expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }
}
