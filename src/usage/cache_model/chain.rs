//! Prefixes of a prompt, each identified by one hash.

use xxhash_rust::xxh3::xxh3_64;

use super::Block;

/// The prefixes of a prompt: after each block, a hash of all blocks so far and their tokens.
#[derive(Debug)]
pub(super) struct Chain {
    links: Vec<u64>,
    /// Tokens of the first `n` blocks, `n` from 0 on.
    tokens: Vec<u64>,
}

impl Chain {
    /// The chain of `blocks`. Prompts of different `scope`s share no hash. If `is_bound`, prompts that differ in what a
    /// block is [bound to](Block::bound) share none from that block on.
    pub(super) fn of(scope: u64, blocks: &[Block], is_bound: bool) -> Self {
        let mut links = Vec::with_capacity(blocks.len());
        let mut tokens = Vec::with_capacity(blocks.len() + 1);
        let (mut link, mut sum) = (scope, 0_u64);
        tokens.push(sum);
        for block in blocks {
            let bound = if is_bound { block.bound } else { 0 };
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&link.to_le_bytes());
            bytes[8..].copy_from_slice(&(block.key ^ u128::from(bound)).to_le_bytes());
            link = xxh3_64(&bytes);
            sum = sum.saturating_add(block.tokens);
            links.push(link);
            tokens.push(sum);
        }
        Self { links, tokens }
    }

    /// The hashes of the prefixes of 1, 2, … blocks.
    pub(super) fn links(&self) -> &[u64] {
        &self.links
    }

    /// The hash of the first `blocks` blocks; `None` beyond the prompt, and for no blocks at all.
    pub(super) fn link(&self, blocks: usize) -> Option<u64> {
        self.links.get(blocks.checked_sub(1)?).copied()
    }

    /// The tokens of the first `blocks` blocks.
    pub(super) fn tokens_of(&self, blocks: usize) -> u64 {
        self.tokens.get(blocks).copied().unwrap_or_else(|| self.tokens())
    }

    /// The tokens of the prompt.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens.last().copied().unwrap_or(0)
    }
}
