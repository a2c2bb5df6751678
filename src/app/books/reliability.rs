//! How much of what a provider's cache should hold the provider really reads.
//!
//! Some providers promise nothing, and miss now and then. After the prefix that a request names they may read nothing
//! at all. A prompt that an event has changed leaves so little to be read that its own figures do not tell.

/// The number of prompts whose mean counts: of more, the older ones count less and less.
const MAX_PROMPTS: f64 = 16.0;

/// The mean share of cached tokens that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reliability {
    share: f64,
    prompts: f64,
}

impl Default for Reliability {
    /// As long as nothing is known, all that is cached is taken to be read.
    fn default() -> Self {
        Self { share: 1.0, prompts: 0.0 }
    }
}

impl Reliability {
    /// Adds the share that was read of one prompt.
    pub(super) fn learn(&mut self, share: f64) {
        self.prompts = (self.prompts + 1.0).min(MAX_PROMPTS);
        self.share += (share - self.share) / self.prompts;
    }

    pub(super) fn share(self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_what_was_read_follows_the_newest_prompts() {
        for (shares, expected) in [
            (vec![], 1.0),
            (vec![0.0], 0.0),
            (vec![1.0, 0.0, 0.5, 0.5], 0.5),
            ([vec![0.0; 100], vec![1.0; 16]].concat(), 0.64),
            ([vec![0.0; 100], vec![1.0; 100]].concat(), 1.0),
        ] {
            let mut known = Reliability::default();
            for share in &shares {
                known.learn(*share);
            }
            assert!((known.share() - expected).abs() < 0.01, "{shares:?}: {}", known.share());
        }
    }
}
