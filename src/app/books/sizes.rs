//! Learns the size of each block of a prompt in the provider's own tokens.
//!
//! With one scale for a whole prompt, prose is taken for larger than it is and numbers for smaller, and an event
//! leaves another mixture than it removes. But prompts grow by a few blocks at a time: the difference between the
//! provider's figures for two consecutive prompts is the size of the blocks that are new.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

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
/// How many times better the size of a known block is known than that of a new one.
const SURER: f64 = 4.0;
/// The weight of the newest correction in the learned one.
const FOLLOW: f64 = 0.5;

/// The sizes of blocks.
pub(super) struct Sizes {
    blocks: Recent<u128, Size>,
    /// The tokens billed for each prompt, by the hash of its blocks.
    prompts: Recent<u64, u64>,
    /// Measured tokens of new blocks to one estimated token.
    correction: f64,
    /// What the provider reads before the prompt in hand because that names it; 0: nothing. The keys of blocks are combined
    /// with this name.
    name: u128,
    /// Its tokens.
    held: u64,
}

/// What a provider's figures say about the size of a prompt.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// All its tokens.
    pub(super) billed: u64,
    /// Those up to its last mark, if that is known.
    pub(super) marked: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: u64,
    /// It was part of a billed prompt. The size of any other block is inferred from new blocks beside it.
    is_billed: bool,
    /// How many tokens the named block had, if the figure for a whole prompt told this size. `None`: the difference between
    /// two figures told it, whatever that block has.
    held: Option<u64>,
}

impl Sizes {
    pub(super) fn new() -> Self {
        let (blocks, prompts) = (Recent::of_entries(BLOCKS), Recent::of_entries(PROMPTS));
        Self { blocks, prompts, correction: 1.0, name: 0, held: 0 }
    }

    /// Sizes the blocks of a prompt that was billed for `billed` tokens, then those of prompts that were not sent.
    /// All come with estimates. Afterwards the first has as many tokens as were billed, but for rounding. Sizes that were
    /// learned beside another `named` block do not count, nor do those that depend on another size of it.
    pub(super) fn size<'p>(
        &mut self,
        named: Option<Block>,
        sent: &mut PromptShape,
        Told { billed, marked }: Told,
        unsent: impl Iterator<Item = &'p mut PromptShape>,
    ) {
        (self.name, self.held) =
            named.map_or((0, 0), |named| (xxh3_128(&named.key.to_le_bytes()), named.tokens));
        let overall = billed as f64 / estimated(&sent.blocks).max(1) as f64;
        let mut correction = self.correction;
        let last = sent.blocks.iter().rposition(|block| block.mark.is_some());
        if let Some((last, marked)) = last.zip(marked.filter(|_| sent.automatic.is_none())) {
            let head = sent.blocks[..=last].to_vec();
            let mut head = PromptShape { blocks: head, ..PromptShape::default() };
            correction = self.figure(&mut head, marked, correction);
        }
        correction = self.figure(sent, billed, correction);
        // They are inferred from what is newest; if the figure that told them no longer counts, from all that was sent: the
        // few new blocks beside known ones take all the error of the named block's size.
        let held = sent.blocks.last().map_or(Some(self.held), |newest| self.known(newest)?.held);
        for block in unsent.flat_map(|prompt| prompt.blocks.iter_mut().chain(&mut prompt.late)) {
            let told = self.blocks.get(&self.key(block));
            let (scale, held) = told.map_or((correction, held), |_| (overall, Some(self.held)));
            let own = Size { tokens: scaled(block.tokens, scale), is_billed: false, held };
            let size = told.filter(|told| self.counts(told)).unwrap_or(own);
            self.blocks.insert(self.key(block), size);
            block.tokens = size.tokens;
        }
    }

    /// Sizes the blocks of a prompt that was billed for `billed` tokens. Returns how many of them an estimated one of other
    /// blocks is likely to be: as many as in what the figure adds if all of that is new, otherwise `likely`.
    fn figure(&mut self, sent: &mut PromptShape, billed: u64, likely: f64) -> f64 {
        let late = self.late(&mut sent.late, billed);
        let mut billed = billed.saturating_sub(late.unwrap_or(0));
        let links: Vec<u64> = self.links(&sent.blocks).collect();
        let kept = sent.blocks.len();
        if late.is_none() {
            sent.blocks.append(&mut sent.late);
        }
        let mut longest = links.iter().enumerate().rev();
        let before = longest.find_map(|(at, link)| Some((at + 1, self.prompts.get(link)?)));
        let goes_on = before.and_then(|before| self.sent(sent, before, billed as f64, likely));
        let known = goes_on.or_else(|| self.sent(sent, (0, 0), billed as f64, likely));
        let correction = known.unwrap_or_else(|| {
            // The figure contradicts what is known: all blocks are scaled alike.
            let scale = billed as f64 / estimated(&sent.blocks).max(1) as f64;
            let held = Some(self.held);
            self.put(&mut sent.blocks, |_, block| (scaled(block.tokens, scale), held));
            scale
        });
        if late.is_none() {
            sent.late = sent.blocks.split_off(kept);
            billed = billed.saturating_sub(estimated(&sent.late));
        }
        if let Some(link) = links.last() {
            self.prompts.insert(*link, billed);
        }
        correction
    }

    /// The tokens of what stands behind all that is kept, once a prompt with it was billed: as the next one has the same there,
    /// the figures differ by what is new before it. Where it is new, it is sized with all else that is; so it is where it has
    /// all that was billed.
    fn late(&self, late: &mut [Block], all: u64) -> Option<u64> {
        let known: Vec<u64> =
            late.iter().map(|block| Some(self.billed(block)?.tokens)).collect::<Option<_>>()?;
        let tokens = Some(known.iter().sum()).filter(|tokens| *tokens < all)?;
        late.iter_mut().zip(&known).for_each(|(block, tokens)| block.tokens = *tokens);
        Some(tokens)
    }

    /// Sizes a prompt of `all` tokens whose first so many blocks were billed for so many tokens. Returns how many of them
    /// an estimated one of other blocks is likely to be, which is `likely` unless all that follows is new; `None`: what is
    /// known of the blocks is far from that.
    fn sent(
        &mut self,
        prompt: &mut PromptShape,
        (before, billed): (usize, u64),
        all: f64,
        likely: f64,
    ) -> Option<f64> {
        let known: Vec<Option<Size>> = prompt.blocks.iter().map(|block| self.billed(block)).collect();
        let sized = prompt.blocks.iter().zip(known.iter().map(|known| known.map(|size| size.tokens)));
        let first: u64 = sized.clone().take(before).map(|(block, known)| known.unwrap_or(block.tokens)).sum();
        let (mut old, mut new, mut squares) = (0, 0, 0.0);
        for (block, known) in sized.skip(before) {
            match known {
                Some(tokens) => {
                    old += tokens;
                    squares += (tokens as f64).powi(2);
                }
                None => new += block.tokens,
            }
        }
        let tokens = all - billed as f64;
        // Only new blocks: whatever their estimate is, this is their size. Beside known ones, what is left is theirs if
        // there are enough of them: then they are likelier to be misjudged than all that is known.
        let own = (tokens - old as f64) / new.max(1) as f64;
        let is_likelier = NEW.contains(&own) && new as f64 * SURER >= squares.sqrt();
        let is_told = new >= LEAST && (old == 0 || is_likelier);
        let correction = if is_told { own } else { likely };
        let expected = (old as f64 + new as f64 * correction).max(1.0);
        let scale = tokens / expected;
        let is_near = KNOWN.contains(&scale) || (tokens - expected).abs() < LEAST as f64;
        if !NEW.contains(&correction) || !is_near {
            return None;
        }
        // New blocks take all the error of known ones beside them: that says nothing about other blocks.
        let learned = if old == 0 { correction } else { likely };
        if is_told && old == 0 {
            self.correction += FOLLOW * (correction - self.correction);
        }
        let of_first = billed as f64 / first.max(1) as f64;
        let held = (before == 0).then_some(self.held);
        self.put(&mut prompt.blocks, |at, block| {
            let tokens = known[at].map_or(block.tokens, |size| size.tokens);
            let scale = match known[at] {
                _ if at < before => of_first,
                Some(_) => scale.max(0.0),
                None => correction * scale.max(0.0),
            };
            (scaled(tokens, scale), known[at].map_or(held, |size| size.held))
        });
        Some(learned)
    }

    /// The hash of the first block, of the first two, and so on, behind what is named.
    fn links(&self, blocks: &[Block]) -> impl Iterator<Item = u64> {
        blocks.iter().scan(self.held, |link, block| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&u64::to_le_bytes(*link));
            bytes[8..].copy_from_slice(&self.key(block).to_le_bytes());
            *link = xxh3_64(&bytes);
            Some(*link)
        })
    }

    fn key(&self, block: &Block) -> u128 {
        block.key ^ self.name
    }

    /// What is known of a block, as long as the named one has the size that this depends on.
    fn known(&self, block: &Block) -> Option<Size> {
        self.blocks.get(&self.key(block)).filter(|size| self.counts(size))
    }

    /// Whether a size holds beside what is named.
    fn counts(&self, size: &Size) -> bool {
        size.held.is_none_or(|held| held == self.held)
    }

    fn billed(&self, block: &Block) -> Option<Size> {
        self.known(block).filter(|size| size.is_billed)
    }

    /// `size`: a block's tokens, and what they depend on.
    fn put(&self, blocks: &mut [Block], size: impl Fn(usize, &Block) -> (u64, Option<u64>)) {
        for (at, block) in blocks.iter_mut().enumerate() {
            let (tokens, held) = size(at, block);
            block.tokens = tokens;
            self.blocks.insert(self.key(block), Size { tokens, is_billed: true, held });
        }
    }
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
    use crate::usage::cache_model::Ttl;

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
            // The estimate of a block that was never sent is replaced by its real size. Those before it are together as
            // large again as they were billed.
            (
                "sent at last",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000), (5, 9000)],
                29_290,
                &[5059, 3372, 74, 2785, 18_000],
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
            let told = Told { billed, marked: None };
            sizes.size(None, &mut sent, told, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }

    /// What replaces the end of a prompt is no reason to doubt the rest.
    #[test]
    fn what_is_left_beside_known_blocks_is_of_the_new_ones() {
        let mut sizes = Sizes::new();
        let requests: [(_, Blocks, u64, &[u64]); 3] = [
            ("first", &[(1, 3000), (2, 2000)], 5500, &[3300, 2200]),
            ("another end", &[(1, 3000), (3, 100), (4, 2000)], 6110, &[3300, 134, 2676]),
            ("too little to tell", &[(1, 3000), (5, 300)], 3700, &[3378, 322]),
        ];
        for (what, sent, billed, expected) in requests {
            let mut sent = prompt(sent);
            sizes.size(None, &mut sent, Told { billed, marked: None }, std::iter::empty());
            assert_eq!(tokens(&sent), expected, "{what}");
        }
    }

    /// A note that replaces most of a history is new beside a few known blocks, and need not be as dense as the history.
    #[test]
    fn what_is_new_beside_known_blocks_says_nothing_about_others() {
        let mut sizes = Sizes::new();
        let requests: [(_, Blocks, u64, u64); 3] = [
            ("all is new", &[(1, 1000)], 1000, 50_000),
            ("a dense note beside what is known", &[(2, 2000), (1, 1000)], 4000, 50_000),
            ("all that follows is new", &[(2, 2000), (1, 1000), (3, 4000)], 10_000, 75_000),
        ];
        for (at, (what, sent, billed, expected)) in requests.into_iter().enumerate() {
            let (mut sent, mut original) = (prompt(sent), prompt(&[]));
            original.blocks.push(Block { key: 100 + at as u128, tokens: 50_000, mark: None, bound: 0 });
            let told = Told { billed, marked: None };
            sizes.size(None, &mut sent, told, std::iter::once(&mut original));
            assert_eq!(tokens(&original), [expected], "{what}");
        }
    }

    #[test]
    fn the_last_mark_tells_how_long_the_prompt_is_up_to_it() {
        let mut sizes = Sizes::new();
        let marked = |blocks, last: usize| {
            let mut marked = prompt(blocks);
            marked.blocks[last].mark = Some(Ttl::FiveMinutes);
            marked
        };
        let of_all = |blocks| PromptShape { automatic: Some(Ttl::FiveMinutes), ..marked(blocks, 0) };
        let requests: [(_, _, _, &[u64], (u128, u64), u64); 4] = [
            (
                "a state behind the mark",
                marked(&[(1, 3000), (2, 100), (3, 2000)], 1),
                (6000, 3500),
                &[3387, 113, 2500],
                (7, 1000),
                1250,
            ),
            (
                "nothing new behind it",
                marked(&[(1, 3000), (2, 100), (4, 4000)], 2),
                (9500, 9500),
                &[3387, 113, 6000],
                (8, 1000),
                1500,
            ),
            (
                "another state",
                marked(&[(1, 3000), (2, 100), (5, 1000)], 1),
                (4700, 3500),
                &[3387, 113, 1200],
                (9, 1000),
                1200,
            ),
            ("a mark of the provider's own", of_all(&[(10, 1000)]), (1100, 900), &[1100], (11, 1000), 1100),
        ];
        for (what, mut sent, (billed, marked), expected, unsent, sized) in requests {
            let mut original = prompt(&[]);
            original.blocks.push(Block { key: unsent.0, tokens: unsent.1, mark: None, bound: 0 });
            let told = Told { billed, marked: Some(marked) };
            sizes.size(None, &mut sent, told, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), [sized], "{what}: as it came");
        }
    }

    #[test]
    fn sizes_hold_beside_what_they_were_learned_beside() {
        let mut sizes = Sizes::new();
        let named = |tokens| Some(Block { key: 7, tokens, mark: None, bound: 0 });
        for (what, named, billed, expected) in [
            ("first", None, 6000, 3000),
            ("a name", named(5000), 8000, 4000),
            ("as without one", None, 0, 3000),
            ("as with it", named(5000), 0, 4000),
            ("another size of it", named(4000), 9000, 4500),
        ] {
            let (mut sent, mut unsent) = (prompt(&[]), prompt(&[(1, 2000)]));
            if billed > 0 {
                sent = prompt(&[(1, 2000), (2, 2000)]);
            }
            let told = Told { billed, marked: None };
            sizes.size(named, &mut sent, told, std::iter::once(&mut unsent));
            assert_eq!(tokens(&unsent), [expected], "{what}");
        }
    }

    /// Only what the first figure told depends on the size of what is held under a name.
    #[test]
    fn what_a_difference_told_holds_when_another_size_of_what_is_named_shows() {
        let mut sizes = Sizes::new();
        let requests: [(_, _, Blocks, _, &[u64], Blocks, &[u64]); 6] = [
            ("first", 5000, &[(1, 3000)], 3000, &[3000], &[(1, 3000), (8, 1000)], &[3000, 1000]),
            ("dense", 5000, &[(1, 3000), (2, 2000)], 6000, &[3000, 3000], &[(5, 1000)], &[1500]),
            ("sparse", 5000, &[(1, 3000), (2, 2000), (3, 4000)], 8000, &[3000, 3000, 2000], &[], &[]),
            (
                "another size, where one is cut",
                4500,
                &[(1, 3000), (6, 100), (3, 4000)],
                5600,
                &[3484, 116, 2000],
                &[(2, 2000), (5, 1000), (8, 1000)],
                &[3000, 1500, 789],
            ),
            (
                "grown",
                4500,
                &[(1, 3000), (6, 100), (3, 4000), (7, 1000)],
                6600,
                &[3484, 116, 2000, 1000],
                &[(2, 2000)],
                &[3000],
            ),
            ("the size from before", 5000, &[(1, 3000), (2, 2000)], 6000, &[3000, 3000], &[], &[]),
        ];
        for (what, held, sent, billed, expected, original, sized) in requests {
            let (mut sent, mut original) = (prompt(sent), prompt(original));
            let named = Some(Block { key: 7, tokens: held, mark: None, bound: 0 });
            let told = Told { billed, marked: None };
            sizes.size(named, &mut sent, told, std::iter::once(&mut original));
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
            let told = Told { billed, marked: None };
            sizes.size(None, &mut sent, told, std::iter::once(&mut original));
            let of_late: Vec<u64> = sent.late.iter().map(|block| block.tokens).collect();
            assert_eq!([&*tokens(&sent), &*of_late], expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }
}
