//! How large the blocks of prompts are in a provider's tokens, by its own figures.
//!
//! At one scale for all of a prompt prose is taken for larger than it is, and numbers for smaller: what an event leaves of
//! a prompt is of another mixture than what it took away. But prompts grow by a few blocks at a time. By how much a
//! figure is larger than that of the prompt that goes on, that large is what is new in it.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64;

use crate::store::Recent;
use crate::usage::cache_model::{Block, PromptShape};

/// Blocks that are known, and prompts: those that were last, a megabyte of the ones.
const BLOCKS: u64 = 16 * 1024;
const PROMPTS: u64 = 4096;
/// How far what is new may be from its estimate, in parts of that. What is further is no figure of it alone.
const NEW: RangeInclusive<f64> = 0.4..=2.5;
/// How far blocks that are known may be from what is known of them.
const KNOWN: RangeInclusive<f64> = 0.7..=1.4;
/// Fewer tokens teach nothing: what is around messages is more than that.
const LEAST: u64 = 256;
/// The share of the newest correction in the learned one.
const FOLLOW: f64 = 0.5;

/// The sizes of blocks.
pub(super) struct Sizes {
    blocks: Recent<u128, Size>,
    /// What prompts were billed for, by the hash of their blocks.
    prompts: Recent<u64, u64>,
    /// Tokens of what was new to an estimated one.
    correction: f64,
}

#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: u64,
    /// It was in a prompt that was billed. Others are as large as what was new beside them makes likely.
    is_billed: bool,
}

impl Sizes {
    pub(super) fn new() -> Self {
        let (blocks, prompts) = (Recent::of_entries(BLOCKS), Recent::of_entries(PROMPTS));
        Self { blocks, prompts, correction: 1.0 }
    }

    /// Sizes the blocks of a prompt that was billed for so many tokens, and of others that were not sent; as they come,
    /// they are estimated. The first then has as many tokens as were billed, but for rounding.
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
            // The figure contradicts what is known: they are of one scale, as far as it tells.
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
        // Nothing but what is new: whatever its estimate is, this is its size.
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

/// The hashes of the first block, the first two, …
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
            // What it was cut from is as dense.
            (
                "cut",
                &[(1, 6000), (2, 4000), (3, 8000), (4, 2000)],
                23_200,
                &[4800, 3200, 12_000, 3200],
                &[(1, 6000), (2, 4000), (3, 8000), (5, 9000)],
                &[4800, 3200, 12_000, 14_400],
            ),
            // What is left behind what is known is about as large as it was, whatever the mixture.
            (
                "an event",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000)],
                11_290,
                &[4800, 3200, 70, 3220],
                &[(1, 6000), (2, 4000), (3, 8000), (5, 9000)],
                &[4800, 3200, 12_000, 14_400],
            ),
            // Something was smaller than it was taken for, and nobody knows which.
            (
                "less than is known",
                &[(1, 6000), (2, 4000), (11, 50), (4, 2000)],
                10_700,
                &[4800, 3200, 57, 2643],
                &[(4, 1)],
                &[2643],
            ),
            // What was taken for that large is as large as it is.
            (
                "sent at last",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000), (5, 9000)],
                29_290,
                &[4800, 3200, 70, 2643, 18_000],
                &[],
                &[],
            ),
            ("little", &[(1, 6000), (2, 4000), (7, 10)], 8090, &[4800, 3200, 90], &[], &[]),
            // Less than what it goes on from: something of that is read no more.
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
