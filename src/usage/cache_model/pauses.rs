//! How long a provider really keeps prompts without marks, learned from its usage figures.
//!
//! The promise is only a lower bound: prompts may stay cached for hours or days, and nobody says how long. To assume
//! that a cached prompt is gone is expensive; to assume the opposite only forgoes a saving. So a prompt is assumed to
//! be gone only after a pause as long as one after which a prompt was seen to be gone, and longer than all after
//! which one was read.

use super::MIN_READ_SHARE;

/// After this many misses in a row, each after a pause that prompts had survived before, prompts are no longer assumed
/// to survive such pauses.
const MAX_MISSES: u32 = 3;
/// Two pauses count as about as long if they differ by no more than one part in this many.
const TOLERANCE: u64 = 8;

/// A pause between requests, and what was still cached after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Its length, in milliseconds.
    pub ms: u64,
    /// Tokens that should be read if the prompt is still cached.
    pub kept: u64,
    /// Tokens that were read.
    pub read: u64,
}

/// What the pauses have shown about the cache of one model at one provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pauses {
    /// The longest pause that a prompt survived, in milliseconds.
    kept_ms: u64,
    /// The shortest pause, clearly longer than that, that a prompt did not survive.
    gone_ms: Option<u64>,
    /// How many pauses in a row that are not clearly longer than `kept_ms` a prompt did not survive.
    missed: u32,
}

impl Pauses {
    /// Learns from a pause that has ended.
    pub fn ended(&mut self, Pause { ms, kept, read }: Pause) {
        if kept == 0 {
            return;
        }
        if read as f64 >= kept as f64 * MIN_READ_SHARE {
            self.kept_ms = self.kept_ms.max(ms);
            self.gone_ms.take_if(|gone| shortest_alike(*gone) <= ms);
            self.missed = 0;
            return;
        }
        if shortest_alike(ms) <= self.kept_ms {
            self.missed += 1;
            if self.missed < MAX_MISSES {
                return;
            }
            (self.kept_ms, self.missed) = (shortest_alike(ms).saturating_sub(1), 0);
        }
        self.gone_ms = Some(self.gone_ms.map_or(ms, |gone| gone.min(ms)));
    }

    /// Whether a prompt that has been unused for this long is gone.
    pub fn is_gone(&self, ms: u64) -> bool {
        self.gone_ms.is_some_and(|gone| ms >= shortest_alike(gone) && ms > self.kept_ms)
    }
}

/// The shortest pause that counts as about as long as this one, in milliseconds.
const fn shortest_alike(ms: u64) -> u64 {
    ms - ms / TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_lifetimes_are_learned_from_reads_after_pauses() {
        // The minutes of a pause, what was read of a thousand tokens, and from how many minutes on it is gone then.
        type Case = (&'static str, &'static [(u64, u64)], Option<u64>);
        let cases: [Case; 12] = [
            ("nothing is known", &[], None),
            ("kept", &[(70, 900)], None),
            ("gone", &[(70, 100)], Some(62)),
            ("the shortest counts", &[(90, 0), (70, 0), (80, 0)], Some(62)),
            ("kept for longer than it seemed", &[(70, 0), (90, 1000)], None),
            ("kept for so long, and not for longer", &[(70, 1000), (90, 0)], Some(79)),
            ("missed once, after one about as long", &[(70, 1000), (75, 0)], None),
            ("missed once", &[(70, 1000), (65, 0)], None),
            ("not kept for so long any more", &[(70, 1000), (65, 0), (66, 0), (68, 0)], Some(60)),
            ("missed now and then", &[(70, 1000), (65, 0), (66, 0), (65, 900), (68, 0), (66, 0)], None),
            ("gone after what was kept", &[(90, 0), (70, 500)], Some(79)),
            ("gone and kept after the same", &[(70, 0), (70, 600)], None),
        ];
        for (what, told, expected) in cases {
            let mut pauses = Pauses::default();
            for &(minutes, read) in told {
                pauses.ended(Pause { ms: minutes, kept: 1000, read });
                pauses.ended(Pause { ms: minutes, kept: 0, read: 0 });
            }
            assert_eq!((0..200).find(|minutes| pauses.is_gone(*minutes)), expected, "{what}");
        }
    }
}
