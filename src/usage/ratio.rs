//! How many bytes of a request make a token of a model: learned from what providers billed.

/// The share of the newest ratio in the learned one.
const FOLLOW: f64 = 0.2;
/// What is assumed before anything is learned.
const USUAL: f64 = 4.0;
/// Ratios outside of this are no text, or not all of it: numbers and other alphabets have two bytes to a token, what is
/// escaped six.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.5..=8.0;
/// Shorter prompts teach nothing: their frame is not in the body.
const LEAST_TOKENS: u64 = 1024;

/// A ratio that follows what is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BytesPerToken(Option<f64>);

impl BytesPerToken {
    /// A request of so many bytes was billed for a prompt of so many tokens.
    pub fn learn(&mut self, bytes: u64, tokens: u64) {
        let ratio = bytes as f64 / tokens as f64;
        if tokens >= LEAST_TOKENS && PLAUSIBLE.contains(&ratio) {
            self.0 = Some(self.0.map_or(ratio, |known| known + FOLLOW * (ratio - known)));
        }
    }

    /// Bytes of a request to a token.
    pub fn value(self) -> f64 {
        self.0.unwrap_or(USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_follow_what_is_plausible() {
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
