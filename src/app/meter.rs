//! What providers' figures teach: how large a thread's last prompt really was, and how many bytes of a request
//! make a token of a model. Bounded, and lost with the process: what is not known is estimated.

use std::sync::Arc;

use super::models::Models;
use crate::conversation::{Chain, Hashed};
use crate::store::Recent;
use crate::usage::BytesPerToken;

/// Threads whose last prompt is remembered.
const THREADS: u64 = 4096;

/// Figures of the past.
pub(super) struct Meter {
    /// `None`: the prompt was answered, and nothing was said of it.
    prompts: Recent<Chain, Option<Figure>, Hashed>,
    ratios: Models<String, BytesPerToken>,
}

/// What a provider said of a prompt.
#[derive(Clone)]
struct Figure {
    messages: usize,
    tokens: u64,
    /// The model that was asked.
    model: Option<Arc<str>>,
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
        self.prompts.insert(head, Some(Figure { messages, tokens, model: model.map(Arc::from) }));
        let (Some(model), Some(bytes)) = (model, bytes) else { return };
        self.ratios.learn(model, |ratio| ratio.learn(bytes, tokens));
    }

    /// The messages and tokens of the prompt that ended with `head`.
    pub(super) fn measured(&self, head: Chain) -> Option<(usize, u64)> {
        self.prompts.get(&head).flatten().map(|figure| (figure.messages, figure.tokens))
    }

    /// The request that ended with `head` was answered without a word on its prompt.
    pub(super) fn learn_nothing(&self, head: Chain) {
        self.prompts.get_or_insert(head, None);
    }

    /// Whether that was so: the next answer is not likely to say more.
    pub(super) fn is_untold(&self, head: Chain) -> bool {
        self.prompts.get(&head).is_some_and(|figure| figure.is_none())
    }

    /// Whether that was the prompt of another model: its tokens are others.
    pub(super) fn is_of_another(&self, head: Chain, model: Option<&str>) -> bool {
        self.prompts.get(&head).flatten().is_some_and(|figure| figure.model.as_deref() != model)
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
        let others = [Some("m"), Some("n"), None].map(|model| meter.is_of_another(head, model));
        assert_eq!(others, [false, true, true]);
        assert!(!meter.is_of_another(head.then(head.0), Some("m")), "there is none");
        let untold = head.then(head.0);
        meter.learn_nothing(head);
        assert_eq!([head, untold].map(|head| meter.is_untold(head)), [false, false]);
        meter.learn_nothing(untold);
        assert_eq!((meter.is_untold(untold), meter.measured(untold)), (true, None));
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
