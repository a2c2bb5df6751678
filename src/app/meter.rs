//! What providers' figures teach: how large a thread's last prompt really was, and how many bytes of a request
//! make a token of a model. Bounded, and lost with the process: what is not known is estimated.

use super::models::Models;
use crate::conversation::{Chain, Hashed};
use crate::store::Recent;
use crate::usage::BytesPerToken;

/// Threads whose last prompt is remembered.
const THREADS: u64 = 4096;

/// Figures of the past.
pub(super) struct Meter {
    prompts: Recent<Chain, (usize, u64), Hashed>,
    ratios: Models<String, BytesPerToken>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { prompts: Recent::of_entries(THREADS), ratios: Models::new() }
    }

    /// Learns from an answer: a request that ended with `head` and had so many messages was billed for a prompt of
    /// `tokens`, of which it held all in so many bytes of text, if it did.
    pub(super) fn learn(
        &self,
        head: Chain,
        (model, messages): (Option<&str>, usize),
        bytes: Option<u64>,
        tokens: u64,
    ) {
        if tokens == 0 {
            return;
        }
        self.prompts.insert(head, (messages, tokens));
        let (Some(model), Some(bytes)) = (model, bytes) else { return };
        self.ratios.learn(model, |ratio| ratio.learn(bytes, tokens));
    }

    /// The messages and tokens of the prompt that ended with `head`.
    pub(super) fn measured(&self, head: Chain) -> Option<(usize, u64)> {
        self.prompts.get(&head)
    }

    /// Bytes of a request to a token.
    pub(super) fn bytes_per_token(&self, model: Option<&str>) -> f64 {
        let known = model.and_then(|model| self.ratios.read(model, |ratio| *ratio));
        known.unwrap_or_default().value()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::MODELS;
    use super::*;

    #[test]
    fn figures_are_remembered_by_model_and_history() {
        let meter = Meter::new();
        let head = Chain::root("x", b"");
        for (model, bytes, tokens, expected) in [
            (None, Some(40_000), 10_000, 4.0),
            (Some("m"), Some(30_000), 10_000, 3.0),
            (Some("m"), Some(40_000), 10_000, 3.2),
            (Some("n"), Some(50_000), 10_000, 5.0),
            // The provider has the rest of the prompt.
            (Some("m"), None, 10_000, 3.2),
            (Some("m"), Some(100), 10, 3.2),
            (Some("m"), Some(100), 0, 3.2),
        ] {
            meter.learn(head, (model, 1), bytes, tokens);
            assert!((meter.bytes_per_token(model) - expected).abs() < 1e-9, "{bytes:?} {tokens}");
        }
        assert_eq!(meter.measured(head), Some((1, 10)));
        assert_eq!(meter.measured(head.then(head.0)), None);
    }

    #[test]
    fn models_are_learned_however_many_there_were() {
        let (meter, head) = (Meter::new(), Chain::root("x", b""));
        for model in 0..=MODELS {
            meter.learn(head, (Some(&model.to_string()), 1), Some(30_000), 10_000);
        }
        for (model, expected) in [(0, 4.0), (1, 3.0), (MODELS, 3.0)] {
            let found = meter.bytes_per_token(Some(&model.to_string()));
            assert!((found - expected).abs() < 1e-9, "{model}: {found}");
        }
    }
}
