//! Learns the size of each block of a prompt in the provider's own tokens.
//!
//! The provider bills a whole prompt. If that figure were spread over all blocks by one scale, prose would come out
//! too large and numbers too small, and an event leaves another mixture of the two than it removes. But prompts grow
//! by a few blocks at a time: the difference between the figures for two consecutive prompts is the size of the
//! blocks that are new.
//!
//! For example, a prompt of two blocks, estimated at 6,000 and 4,000 tokens, is billed for 8,000. With nothing known
//! about either, they get 4,800 and 3,200 tokens. The next prompt has one more block, estimated at 8,000 tokens, and
//! is billed for 20,000: the new block has 12,000 tokens, and the others keep their sizes. Its density is 12,000 /
//! 8,000 = 1.5 of the provider's tokens for each estimated token. At that density, a block that was cut from the
//! prompt and estimated at 2,000 tokens has 3,000.
//!
//! Figures come without the tokens of the named prefix, which the provider holds and reads before the body
//! ([`super::named`]). A later figure may correct its size. A block's size that was learned from the figure for a
//! whole prompt is then wrong, too; one that was learned from the difference between two figures is not.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::store::Recent;
use crate::usage::cache_model::{Block, PromptShape};

/// How many blocks are remembered: the most recently used, about a megabyte.
const BLOCKS: u64 = 16 * 1024;
/// How many billed prompts are remembered: the most recently used.
const PROMPTS: u64 = 4096;
/// The plausible densities of new blocks. A figure that implies another density covers more than these blocks.
const PLAUSIBLE_DENSITY: RangeInclusive<f64> = 0.4..=2.5;
/// The plausible ratios of the tokens billed for blocks to those expected. Any other contradicts the known sizes.
const PLAUSIBLE_SCALE: RangeInclusive<f64> = 0.7..=1.4;
/// Fewer tokens than these teach nothing: the overhead around messages is larger.
const NOISE_TOKENS: u64 = 256;
/// How many times smaller the relative error of a known block's size is than that of a new block's.
const KNOWN_PRECISION: f64 = 4.0;
/// The weight of the newest density in the learned one.
const LEARNING_RATE: f64 = 0.5;

/// The sizes of blocks.
pub(super) struct Sizes {
    blocks: Recent<u128, Size>,
    /// The tokens billed for each prompt, late blocks excluded, by the last of its [links](Self::links).
    prompts: Recent<u64, u64>,
    /// The density of new blocks, learned from prompts that added no others.
    density: f64,
    /// The named prefix of the prompt that is being sized.
    prefix: NamedPrefix,
    /// The keys of the blocks of its forms that were not sent.
    unsent: HashSet<u128>,
}

/// What the provider holds under a name in the request and reads before the body. Both fields are 0 if there is none.
#[derive(Clone, Copy, Default)]
struct NamedPrefix {
    /// Combined with the key of each block: a block's size after one prefix says nothing about it after another.
    key: u128,
    tokens: u64,
}

/// The provider's figures for the size of a prompt.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    /// The tokens of the whole prompt, without the named prefix.
    pub(super) billed: u64,
    /// The tokens up to its last mark, if they are known.
    pub(super) marked: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: u64,
    /// Whether the block was part of a billed prompt. The size of any other block is an estimate.
    is_billed: bool,
    /// The size of the named prefix that this size depends on, in tokens; `None` if it depends on none, because the
    /// difference between two figures gave it.
    assumed_prefix: Option<u64>,
}

/// An earlier prompt that a prompt begins with.
#[derive(Clone, Copy)]
struct Base {
    /// How many blocks it has.
    blocks: usize,
    /// The tokens that it was billed for.
    billed: u64,
}

impl Base {
    const NONE: Self = Self { blocks: 0, billed: 0 };
}

/// What a prompt adds to its base.
struct Added {
    /// The tokens that the figures give it; negative if the prompt was billed for less than its base.
    tokens: f64,
    /// The tokens of its known blocks, as they are known.
    known: u64,
    /// The sum of the squares of these blocks' tokens.
    known_squares: f64,
    /// The tokens of its new blocks, as they are estimated.
    new: u64,
    /// Some new blocks exist only in the sent form. If there are known ones as well, an event has put them in the place
    /// of others.
    is_event: bool,
}

/// Factors for the sizes of what a prompt adds to its base.
struct Scales {
    /// For the sizes of known blocks.
    of_known: f64,
    /// For the estimates of new blocks.
    of_new: f64,
}

/// How to estimate the size of a block that was not sent.
#[derive(Clone, Copy)]
struct Estimate {
    density: f64,
    /// See [`Size::assumed_prefix`].
    assumed_prefix: Option<u64>,
}

impl Sizes {
    pub(super) fn new() -> Self {
        let (blocks, prompts) = (Recent::of_entries(BLOCKS), Recent::of_entries(PROMPTS));
        let (prefix, unsent) = (NamedPrefix::default(), HashSet::new());
        Self { blocks, prompts, density: 1.0, prefix, unsent }
    }

    /// Sets the tokens of all blocks, which come with estimates: first in the prompt that was `sent` and billed, then
    /// in forms of it that were not sent. Afterwards the tokens of `sent` add up to what was billed, but for rounding.
    /// `named` is the prefix that the provider reads before the prompt. Sizes that were learned after another prefix
    /// are not used, nor are those that depend on another size of this one.
    pub(super) fn size<'p>(
        &mut self,
        named: Option<Block>,
        sent: &mut PromptShape,
        Figures { billed, marked }: Figures,
        unsent: impl Iterator<Item = &'p mut PromptShape>,
    ) {
        self.prefix = named.map(NamedPrefix::of).unwrap_or_default();
        let mut unsent: Vec<&'p mut PromptShape> = unsent.collect();
        let all = unsent.iter().flat_map(|prompt| prompt.blocks.iter().chain(&prompt.late));
        self.unsent = all.map(|block| block.key).collect();
        let estimated = tokens_of(&sent.blocks).saturating_add(tokens_of(&sent.late));
        let overall_density = billed as f64 / estimated.max(1) as f64;
        let mut density = self.density;
        // First, because this figure leaves out what follows the mark, which may be another state each time.
        if let Some(marked) = marked
            && let Some(mut head) = up_to_mark(sent)
        {
            density = self.size_sent(&mut head, marked, density);
        }
        density = self.size_sent(sent, billed, density);
        // What is remembered of the known blocks that were sent are still their learned sizes.
        if !self.balances(sent, &unsent) {
            for block in sent.blocks.iter_mut().chain(&mut sent.late) {
                if let Some(known) = self.billed(block) {
                    self.put(block, Size { tokens: block.tokens, ..known });
                }
            }
        }
        // The density comes from the newest blocks, so what their size depends on, the estimates depend on too.
        let newest = sent.blocks.last();
        let assumed_prefix =
            newest.map_or(Some(self.prefix.tokens), |newest| self.known(newest)?.assumed_prefix);
        let unseen = Estimate { density, assumed_prefix };
        // A few new blocks among known ones take all the error of the prefix's size, so their density is no measure for
        // blocks whose size has to be learned anew because that of the prefix has changed.
        let outdated = Estimate { density: overall_density, assumed_prefix: Some(self.prefix.tokens) };
        let unsent = unsent.iter_mut();
        for block in unsent.flat_map(|prompt| prompt.blocks.iter_mut().chain(&mut prompt.late)) {
            let size = match self.blocks.get(&self.key(block)) {
                Some(size) if self.holds(&size) => size,
                Some(_) => outdated.size_of(block),
                None => unseen.size_of(block),
            };
            self.put(block, size);
        }
    }

    /// Whether the known blocks that were left out of `sent` can have what the kept ones turn out to be smaller by than
    /// they were learned. Both were learned from the same figures, so the learned sizes are then still right for a
    /// prompt that has all of these blocks, and it grows from one request to the next by its new blocks alone.
    fn balances(&self, sent: &PromptShape, unsent: &[&mut PromptShape]) -> bool {
        let blocks = || sent.blocks.iter().chain(&sent.late);
        let learned = |block: &Block| self.billed(block).map_or(0.0, |size| size.tokens as f64);
        let excess: f64 = blocks().map(|block| learned(block) - block.tokens as f64).sum();
        let kept: HashSet<u128> = blocks().map(|block| block.key).collect();
        let all = unsent.iter().flat_map(|prompt| prompt.blocks.iter().chain(&prompt.late));
        let removed: f64 = all.filter(|block| !kept.contains(&block.key)).map(learned).sum();
        removed > 0.0 && PLAUSIBLE_SCALE.contains(&((removed + excess) / removed))
    }

    /// Sizes a prompt that was billed for `billed` tokens. Returns the likely density of other blocks: what the figure
    /// shows of it, otherwise `likely`.
    fn size_sent(&mut self, prompt: &mut PromptShape, billed: u64, likely: f64) -> f64 {
        let links: Vec<u64> = self.links(&prompt.blocks).collect();
        let density = if let Some(late) = self.size_known_late(&mut prompt.late, billed) {
            self.size_blocks(&mut prompt.blocks, &links, billed - late, likely)
        } else {
            let kept = prompt.blocks.len();
            prompt.blocks.append(&mut prompt.late);
            let density = self.size_blocks(&mut prompt.blocks, &links, billed, likely);
            prompt.late = prompt.blocks.split_off(kept);
            density
        };
        if let Some(link) = links.last() {
            self.prompts.insert(*link, billed.saturating_sub(tokens_of(&prompt.late)));
        }
        density
    }

    /// Gives late blocks the sizes that they had in an earlier billed prompt, and returns their sum. Since the next
    /// prompt ends with the same late blocks, the figures then differ by what is new before them. `None` if one of
    /// them was never billed, or if they would be all that was billed: they are then sized with the other blocks.
    fn size_known_late(&self, late: &mut [Block], billed: u64) -> Option<u64> {
        let known: Vec<u64> =
            late.iter().map(|block| Some(self.billed(block)?.tokens)).collect::<Option<_>>()?;
        let sum = Some(known.iter().sum()).filter(|sum| *sum < billed)?;
        late.iter_mut().zip(&known).for_each(|(block, tokens)| block.tokens = *tokens);
        Some(sum)
    }

    /// Sizes blocks that were billed for `billed` tokens together. The first of these assumptions holds that does not
    /// contradict what is known of the blocks:
    ///
    /// 1. After the longest earlier prompt that the blocks begin with, they have what was billed beyond that prompt.
    /// 2. All of them together have what was billed, the known ones about as much as is known.
    /// 3. All of them are scaled alike, whatever is known.
    ///
    /// `links` are those of the blocks without late ones. Returns a density like [`Self::size_sent`].
    fn size_blocks(&mut self, blocks: &mut [Block], links: &[u64], billed: u64, likely: f64) -> f64 {
        let base = links.iter().enumerate().rev().find_map(|(at, link)| {
            let billed = self.prompts.get(link)?;
            Some(Base { blocks: at + 1, billed })
        });
        let mut bases = base.into_iter().chain([Base::NONE]);
        let density = bases.find_map(|base| self.size_behind(base, blocks, billed, likely));
        density.unwrap_or_else(|| self.size_alike(blocks, billed))
    }

    /// Sizes blocks of which the first make up `base`, billed for `billed` tokens together. Returns a density like
    /// [`Self::size_sent`], or `None`, without having sized any, if the figures contradict what is known of the
    /// blocks.
    fn size_behind(&mut self, base: Base, blocks: &mut [Block], billed: u64, likely: f64) -> Option<f64> {
        let known: Vec<Option<Size>> = blocks.iter().map(|block| self.billed(block)).collect();
        let sized = blocks.iter().zip(known.iter().map(|known| known.map(|size| size.tokens)));
        let before: u64 =
            sized.clone().take(base.blocks).map(|(block, known)| known.unwrap_or(block.tokens)).sum();
        let replaces =
            |(block, known): (&Block, Option<u64>)| known.is_none() && !self.unsent.contains(&block.key);
        let is_event = sized.clone().skip(base.blocks).any(replaces);
        let added = Added::of(billed as f64 - base.billed as f64, sized.skip(base.blocks), is_event);
        let measured = added.density();
        let scales = added.scales(measured, likely)?;
        if let Some(measured) = measured.filter(|_| added.is_all_new()) {
            self.density += LEARNING_RATE * (measured - self.density);
        }
        let base_scale = base.billed as f64 / before.max(1) as f64;
        let assumed_prefix = (base.blocks == 0).then_some(self.prefix.tokens);
        for (at, (block, known)) in blocks.iter_mut().zip(known).enumerate() {
            let scale = match known {
                _ if at < base.blocks => base_scale,
                Some(_) => scales.of_known,
                None => scales.of_new,
            };
            let size = known.unwrap_or(Size { tokens: block.tokens, is_billed: true, assumed_prefix });
            let tokens = scaled(size.tokens, scale);
            match known {
                // What is remembered of it depends on what was left out of the prompt.
                Some(_) => block.tokens = tokens,
                None => self.put(block, Size { tokens, ..size }),
            }
        }
        // New blocks may take the error of known ones: their density then says nothing about other blocks.
        Some(measured.filter(|_| added.is_all_new()).unwrap_or(likely))
    }

    /// Sizes blocks that were billed for `billed` tokens together by one scale, whatever is known of them, and
    /// returns it.
    fn size_alike(&self, blocks: &mut [Block], billed: u64) -> f64 {
        let scale = billed as f64 / tokens_of(blocks).max(1) as f64;
        for block in blocks {
            let tokens = scaled(block.tokens, scale);
            self.put(block, Size { tokens, is_billed: true, assumed_prefix: Some(self.prefix.tokens) });
        }
        scale
    }

    /// The hashes of the first block, of the first two, and so on. They depend on the size of the named prefix too.
    fn links(&self, blocks: &[Block]) -> impl Iterator<Item = u64> {
        blocks.iter().scan(self.prefix.tokens, |link, block| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&u64::to_le_bytes(*link));
            bytes[8..].copy_from_slice(&self.key(block).to_le_bytes());
            *link = xxh3_64(&bytes);
            Some(*link)
        })
    }

    fn key(&self, block: &Block) -> u128 {
        block.key ^ self.prefix.key
    }

    /// The known size of a block, if it holds after the named prefix.
    fn known(&self, block: &Block) -> Option<Size> {
        self.blocks.get(&self.key(block)).filter(|size| self.holds(size))
    }

    /// The same for a block that was part of a billed prompt; `None` for any other.
    fn billed(&self, block: &Block) -> Option<Size> {
        self.known(block).filter(|size| size.is_billed)
    }

    /// Whether the named prefix has the size that this one depends on.
    fn holds(&self, size: &Size) -> bool {
        size.assumed_prefix.is_none_or(|tokens| tokens == self.prefix.tokens)
    }

    /// Sets a block's tokens and remembers its size.
    fn put(&self, block: &mut Block, size: Size) {
        block.tokens = size.tokens;
        self.blocks.insert(self.key(block), size);
    }
}

impl NamedPrefix {
    fn of(block: Block) -> Self {
        Self { key: xxh3_128(&block.key.to_le_bytes()), tokens: block.tokens }
    }
}

impl Added {
    /// Adds up `blocks`, each with its tokens if they are known. The figures give them `tokens` together.
    fn of<'b>(tokens: f64, blocks: impl Iterator<Item = (&'b Block, Option<u64>)>, is_event: bool) -> Self {
        let mut added = Self { tokens, known: 0, known_squares: 0.0, new: 0, is_event };
        for (block, known) in blocks {
            match known {
                Some(tokens) => {
                    added.known += tokens;
                    added.known_squares += (tokens as f64).powi(2);
                }
                None => added.new += block.tokens,
            }
        }
        added
    }

    fn is_all_new(&self) -> bool {
        self.known == 0
    }

    /// The density of the new blocks if the known ones keep their sizes; `None` if the figures do not tell it. If
    /// all blocks are new, the figures are their size, however unlikely the density. Otherwise the density must be
    /// plausible, and the estimates of the new blocks must be likelier to be wrong than the sizes of the known ones.
    fn density(&self) -> Option<f64> {
        let density = (self.tokens - self.known as f64) / self.new.max(1) as f64;
        let is_likely = || {
            // In units of a known block's relative error. Independent errors add up by their squares.
            let (error_of_new, error_of_known) =
                (self.new as f64 * KNOWN_PRECISION, self.known_squares.sqrt());
            PLAUSIBLE_DENSITY.contains(&density) && error_of_new >= error_of_known
        };
        (self.new >= NOISE_TOKENS && (self.is_all_new() || is_likely())).then_some(density)
    }

    /// The factors that make the sizes of all blocks add up to the figures; `None` if these contradict what is known:
    /// they are too far from what was expected, or the density is too unlikely. `measured` is what [`Self::density`]
    /// returns.
    ///
    /// After an event, new blocks are at least as dense as is likely. Estimates count what may not be billed, such as
    /// ids: small blocks are learned too large, and the large ones next to them as much too small. If an event keeps
    /// only the small ones, what the figures lack is theirs, and makes no new block smaller.
    fn scales(&self, measured: Option<f64>, likely: f64) -> Option<Scales> {
        let density = measured.unwrap_or(likely);
        let expected = (self.known as f64 + self.new as f64 * density).max(1.0);
        let scale = self.tokens / expected;
        let is_near =
            PLAUSIBLE_SCALE.contains(&scale) || (self.tokens - expected).abs() < NOISE_TOKENS as f64;
        if !PLAUSIBLE_DENSITY.contains(&density) || !is_near {
            return None;
        }
        if self.is_event && !self.is_all_new() {
            let of_new = density.max(likely);
            let of_known = (self.tokens - self.new as f64 * of_new) / self.known as f64;
            if PLAUSIBLE_DENSITY.contains(&of_new) && PLAUSIBLE_SCALE.contains(&of_known) {
                return Some(Scales { of_known, of_new });
            }
        }
        let scale = scale.max(0.0);
        Some(Scales { of_known: scale, of_new: density * scale })
    }
}

impl Estimate {
    fn size_of(self, block: &Block) -> Size {
        let tokens = scaled(block.tokens, self.density);
        Size { tokens, is_billed: false, assumed_prefix: self.assumed_prefix }
    }
}

/// The beginning of a prompt up to its last mark, with estimates; `None` if it has no mark, or one that the provider
/// sets itself.
fn up_to_mark(prompt: &PromptShape) -> Option<PromptShape> {
    if prompt.automatic.is_some() {
        return None;
    }
    let last = prompt.blocks.iter().rposition(|block| block.mark.is_some())?;
    Some(PromptShape { blocks: prompt.blocks[..=last].to_vec(), ..PromptShape::default() })
}

fn tokens_of(blocks: &[Block]) -> u64 {
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

    /// The same for a prompt with late blocks, and the sizes of these.
    type Late = (&'static str, PromptShape, u64, [&'static [u64]; 2], Blocks, &'static [u64]);

    /// A prompt of blocks with these keys and estimates.
    fn prompt(blocks: Blocks) -> PromptShape {
        let block = |&(key, tokens)| Block { key, tokens, mark: None, bound: 0 };
        PromptShape { blocks: blocks.iter().map(block).collect(), automatic: None, late: vec![] }
    }

    fn tokens(prompt: &PromptShape) -> Vec<u64> {
        prompt.blocks.iter().map(|block| block.tokens).collect()
    }

    #[test]
    fn block_sizes_are_scaled_to_billed_tokens() {
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
            // The known blocks after an event keep about their size, whatever new blocks are among them.
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
                &[4800, 3200, 70, 2630],
                &[(4, 1)],
                &[2630],
            ),
            // The estimate of a block that was never sent is replaced by its real size. Those before it are together as
            // large again as they were billed.
            (
                "sent at last",
                &[(1, 6000), (2, 4000), (6, 50), (4, 2000), (5, 9000)],
                29_290,
                &[5065, 3376, 74, 2775, 18_000],
                &[],
                &[],
            ),
            ("little", &[(1, 6000), (2, 4000), (7, 10)], 8090, &[4800, 3200, 90], &[], &[]),
            // Less than the request before had: the provider no longer reads some of that.
            (
                "less than before",
                &[(1, 6000), (2, 4000), (7, 10), (8, 300)],
                7800,
                &[4325, 2884, 81, 510],
                &[],
                &[],
            ),
            ("far less", &[(1, 6000), (2, 4000), (7, 10)], 1001, &[600, 400, 1], &[(9, 500)], &[50]),
            ("far more", &[(1, 6000), (2, 4000)], 100_000, &[60_000, 40_000], &[], &[]),
            ("nothing", &[], 500, &[], &[], &[]),
        ];
        for (what, sent, billed, expected, original, sized) in requests {
            let (mut sent, mut original) = (prompt(sent), prompt(original));
            let figures = Figures { billed, marked: None };
            sizes.size(None, &mut sent, figures, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }

    /// A replaced end of a prompt is no reason to doubt the rest.
    #[test]
    fn tokens_beyond_known_blocks_are_assigned_to_new_blocks() {
        let mut sizes = Sizes::new();
        let requests: [(_, Blocks, u64, &[u64]); 3] = [
            ("first", &[(1, 3000), (2, 2000)], 5500, &[3300, 2200]),
            ("another end", &[(1, 3000), (3, 100), (4, 2000)], 6110, &[3300, 134, 2676]),
            ("too little to tell", &[(1, 3000), (5, 300)], 3700, &[3385, 315]),
        ];
        for (what, sent, billed, expected) in requests {
            let mut sent = prompt(sent);
            sizes.size(None, &mut sent, Figures { billed, marked: None }, std::iter::empty());
            assert_eq!(tokens(&sent), expected, "{what}");
        }
    }

    /// The third block was learned too large, and the fourth as much too small. When one of them is left out, the
    /// figure shows that; a prompt that has both still grows by its new blocks alone.
    #[test]
    fn sizes_learned_together_hold_for_a_prompt_that_has_all_of_them() {
        let mut sizes = Sizes::new();
        let requests: [Case; 5] = [
            ("first", &[(1, 4000)], 4000, &[4000], &[(1, 4000)], &[4000]),
            (
                "a call and its result",
                &[(1, 4000), (2, 1000), (3, 4000)],
                9000,
                &[4000, 1000, 4000],
                &[(1, 4000), (2, 1000), (3, 4000)],
                &[4000, 1000, 4000],
            ),
            (
                "an event",
                &[(1, 4000), (2, 1000), (6, 50), (4, 2000)],
                6850,
                &[4000, 800, 50, 2000],
                &[(1, 4000), (2, 1000), (3, 4000), (4, 2000)],
                &[4000, 1000, 4000, 2000],
            ),
            (
                "grown",
                &[(1, 4000), (2, 1000), (6, 50), (4, 2000), (5, 1000)],
                7850,
                &[3887, 972, 49, 1943, 1000],
                &[(1, 4000), (2, 1000), (3, 4000), (4, 2000), (5, 1000)],
                &[4000, 1000, 4000, 2000, 1000],
            ),
            (
                "nothing is left out that could have the rest",
                &[(1, 4000), (2, 1000)],
                4800,
                &[4000, 800],
                &[(1, 4000), (2, 1000)],
                &[4000, 800],
            ),
        ];
        for (what, sent, billed, expected, original, sized) in requests {
            let (mut sent, mut original) = (prompt(sent), prompt(original));
            let figures = Figures { billed, marked: None };
            sizes.size(None, &mut sent, figures, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }

    /// A note that replaces most of a history is new among a few known blocks, and need not be as dense as the history.
    #[test]
    fn a_dense_note_before_known_blocks_does_not_rescale_others() {
        let mut sizes = Sizes::new();
        let requests: [(_, Blocks, u64, u64); 3] = [
            ("all is new", &[(1, 1000)], 1000, 50_000),
            ("a dense note beside what is known", &[(2, 2000), (1, 1000)], 4000, 50_000),
            ("all that follows is new", &[(2, 2000), (1, 1000), (3, 4000)], 10_000, 75_000),
        ];
        for (at, (what, sent, billed, expected)) in requests.into_iter().enumerate() {
            let (mut sent, mut original) = (prompt(sent), prompt(&[]));
            original.blocks.push(Block { key: 100 + at as u128, tokens: 50_000, mark: None, bound: 0 });
            let figures = Figures { billed, marked: None };
            sizes.size(None, &mut sent, figures, std::iter::once(&mut original));
            assert_eq!(tokens(&original), [expected], "{what}");
        }
    }

    #[test]
    fn cache_figures_give_the_prompt_size_up_to_the_last_mark() {
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
            let figures = Figures { billed, marked: Some(marked) };
            sizes.size(None, &mut sent, figures, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), [sized], "{what}: as it came");
        }
    }

    #[test]
    fn block_sizes_are_kept_per_size_of_named_content() {
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
            let figures = Figures { billed, marked: None };
            sizes.size(named, &mut sent, figures, std::iter::once(&mut unsent));
            assert_eq!(tokens(&unsent), [expected], "{what}");
        }
    }

    /// Only sizes from the first figure depend on the size of the named content.
    #[test]
    fn sizes_from_differences_hold_when_named_content_is_resized() {
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
            let figures = Figures { billed, marked: None };
            sizes.size(named, &mut sent, figures, std::iter::once(&mut original));
            assert_eq!(tokens(&sent), expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }

    /// Late blocks are billed with the others, so they do not make them denser.
    #[test]
    fn outdated_sizes_are_estimated_by_all_that_was_billed() {
        let mut sizes = Sizes::new();
        let late = |blocks, late| PromptShape { late: prompt(late).blocks, ..prompt(blocks) };
        for (what, held, blocks, billed, expected) in [
            ("first", 5000, &[(1, 2000), (2, 2000)][..], 8000, 1000),
            ("named content of another size", 4500, &[(1, 2000)], 9000, 1500),
        ] {
            let (mut sent, mut unsent) = (late(blocks, &[(9, 4000)]), prompt(&[(5, 1000)]));
            let named = Some(Block { key: 7, tokens: held, mark: None, bound: 0 });
            sizes.size(named, &mut sent, Figures { billed, marked: None }, std::iter::once(&mut unsent));
            assert_eq!(tokens(&unsent), [expected], "{what}");
        }
    }

    /// Late blocks are no smaller than their estimated share, and do not make what is cut larger.
    #[test]
    fn late_blocks_are_sized_at_least_in_proportion_to_the_rest() {
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
            let figures = Figures { billed, marked: None };
            sizes.size(None, &mut sent, figures, std::iter::once(&mut original));
            let of_late: Vec<u64> = sent.late.iter().map(|block| block.tokens).collect();
            assert_eq!([&*tokens(&sent), &*of_late], expected, "{what}");
            assert_eq!(tokens(&original), sized, "{what}: as it came");
        }
    }
}
