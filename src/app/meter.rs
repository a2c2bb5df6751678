//! Learns from the providers' usage figures: the real size of each thread's last prompt, and how many bytes make a
//! token of each model. Bounded, and lost with the process: what is not known is estimated.

use std::sync::Arc;

use super::models::Models;
use crate::conversation::{Chain, Hashed};
use crate::store::Recent;
use crate::usage::BytesPerToken;

/// Threads whose last prompt is remembered.
const THREADS: u64 = 4096;

/// See the module.
pub(super) struct Meter {
    prompts: Recent<Chain, Said, Hashed>,
    ratios: Models<String, BytesPerToken>,
}

/// What is known of the size of a prompt.
#[derive(Clone, Default)]
pub(super) enum Said {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It was answered without usage; the next answer is not likely to have any.
    Nothing,
    /// The number of its messages, its tokens, and the model that was asked.
    Figure(usize, u64, Option<Arc<str>>),
}

impl Said {
    /// Whether it was answered without usage.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Its messages and tokens.
    pub(super) fn figure(&self) -> Option<(usize, u64)> {
        if let Self::Figure(messages, tokens, _) = self { Some((*messages, *tokens)) } else { None }
    }

    /// Whether the figure is that of another model, whose tokens differ.
    pub(super) fn is_of_another(&self, model: Option<&str>) -> bool {
        matches!(self, Self::Figure(.., asked) if asked.as_deref() != model)
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { prompts: Recent::of_entries(THREADS), ratios: Models::new() }
    }

    /// Learns from the answer to a request whose history ends in `head`: it had so many messages, and was billed for
    /// a prompt of `tokens` tokens. `bytes` are those of its text, if the body held the whole prompt.
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
        self.prompts.insert(head, Said::Figure(messages, tokens, model.map(Arc::from)));
        let (Some(model), Some(bytes)) = (model, bytes) else { return };
        self.ratios.learn(model, |ratio| ratio.learn(bytes, tokens));
    }

    /// What is known of the prompt whose history ends in `head`.
    pub(super) fn said(&self, head: Chain) -> Said {
        self.prompts.get(&head).unwrap_or_default()
    }

    /// Records that the request whose history ends in `head` was answered without usage.
    pub(super) fn learn_nothing(&self, head: Chain) {
        self.prompts.get_or_insert(head, Said::Nothing);
    }

    /// Bytes to a token of this model.
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
        let (said, untold) = (meter.said(head), head.then(head.0));
        assert_eq!(said.figure(), Some((1, 10)));
        assert_eq!(meter.said(untold).figure(), None);
        let others = [Some("m"), Some("n"), None].map(|model| said.is_of_another(model));
        assert_eq!(others, [false, true, true]);
        assert!(!meter.said(untold).is_of_another(Some("m")), "there is none");
        meter.learn_nothing(head);
        assert_eq!([head, untold].map(|head| meter.said(head).is_nothing()), [false, false]);
        meter.learn_nothing(untold);
        let said = meter.said(untold);
        assert_eq!((said.is_nothing(), said.figure()), (true, None));
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
