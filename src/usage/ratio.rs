//! The ratio of bytes to tokens of a model, learned from what its provider billed.

/// Bytes of text assumed per token where no tokenizer and no bill has counted them.
pub const BYTES_PER_TOKEN: u64 = 4;
/// The weight of the newest ratio in the moving average.
const LEARNING_RATE: f64 = 0.2;
/// The plausible ratios: numbers and other alphabets have about two bytes per token, escaped text about six. A request
/// with another ratio is not only text, or its body is not the whole prompt.
const PLAUSIBLE_RATIO: std::ops::RangeInclusive<f64> = 1.5..=8.0;
/// The shortest prompt to learn from, in tokens: too much of a shorter one was added by the provider.
const MIN_TOKENS: u64 = 1024;

/// A moving average of the billed ratios; [`BYTES_PER_TOKEN`] before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BytesPerToken(Option<f64>);

impl BytesPerToken {
    /// Records that a request of `bytes` bytes was billed for a prompt of `tokens` tokens.
    pub fn learn(&mut self, bytes: u64, tokens: u64) {
        let ratio = bytes as f64 / tokens as f64;
        if tokens >= MIN_TOKENS && PLAUSIBLE_RATIO.contains(&ratio) {
            self.0 = Some(self.0.map_or(ratio, |known| known + LEARNING_RATE * (ratio - known)));
        }
    }

    /// Bytes per token.
    pub fn value(self) -> f64 {
        self.0.unwrap_or(BYTES_PER_TOKEN as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_learned_only_from_plausible_figures() {
        let mut ratio = BytesPerToken::default();
        for (bytes, tokens, expected) in [
            (100, 10, 4.0),
            (30_000, 10_000, 3.0),
            (40_000, 10_000, 3.2),
            (400_000, 10_000, 3.2),
            (90_000, 10_000, 3.2),
            (14_000, 10_000, 3.2),
            (100, 10, 3.2),
            (100, 0, 3.2),
        ] {
            ratio.learn(bytes, tokens);
            assert!((ratio.value() - expected).abs() < 1e-9, "{bytes} {tokens}");
        }
    }
}
