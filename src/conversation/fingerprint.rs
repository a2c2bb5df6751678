//! Identities of messages, histories and texts that survive a restart.
//!
//! A message's fingerprint ignores what clients change without changing the conversation: cache marks, the spelling of
//! JSON, a string instead of one text block, reasoning that the provider drops anyway. A chain identifies a whole
//! history: two chains are equal exactly if all fingerprints up to their message are.

use std::fmt;
use std::hash::BuildHasherDefault;

use sha2::{Digest as _, Sha256};

/// A SHA-256 value truncated to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of the concatenated pieces.
    pub fn of(pieces: &[&[u8]]) -> Self {
        let mut hasher = Hasher::default();
        for piece in pieces {
            hasher.update(piece);
        }
        hasher.finish()
    }

    /// The first eight bytes.
    pub fn half(self) -> u64 {
        u128::from_le_bytes(self.0) as u64
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Builds a [`Digest`] piece by piece.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    pub fn finish(self) -> Digest {
        let full = self.0.finalize();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Digest(short)
    }
}

/// The hasher for tables whose keys are hashes already.
pub type Hashed = BuildHasherDefault<Folded>;

/// Combines the halves of a key.
#[derive(Default)]
pub struct Folded(u64);

impl std::hash::Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for half in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..half.len()].copy_from_slice(half);
            self.0 ^= u64::from_ne_bytes(whole);
        }
    }
}

/// Identifies what a message says, whatever its spelling.
pub type Fingerprint = Digest;

/// Identifies a history: everything up to and including one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chain(pub Digest);

impl Chain {
    /// The empty history of one principal in one dialect. Histories with different roots are never equal.
    pub fn root(dialect: &str, principal: &[u8]) -> Self {
        Self(Digest::of(&[b"plimsoll 1\0", dialect.as_bytes(), b"\0", principal]))
    }

    /// The history with one more message.
    #[must_use]
    pub fn then(self, message: Fingerprint) -> Self {
        Self(Digest::of(&[&self.0.0, &message.0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_differ_by_root_and_order() {
        let (a, b) = (Digest::of(&[b"a"]), Digest::of(&[b"b"]));
        let root = Chain::root("x", b"me");
        let mut all = vec![
            root,
            Chain::root("x", b"you"),
            Chain::root("y", b"me"),
            root.then(a),
            root.then(b),
            root.then(a).then(b),
            root.then(b).then(a),
        ];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7);
        assert_eq!(Digest::of(&[b"ab"]), Digest::of(&[b"a", b"b"]));
        assert_eq!(Digest::of(&[b""]).to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
