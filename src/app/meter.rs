//! Learns from the providers' usage figures the real size of each thread's last prompt, and the bytes per token of each
//! model. What is learned is bounded and lost with the process; sizes that are not known are estimated.

use std::sync::Arc;

use super::learned::MAX_MODELS;
use crate::conversation::{Chain, Hashed};
use crate::store::Recent;
use crate::usage::BytesPerToken;

/// The most threads whose last prompts are remembered.
const THREADS: u64 = 4096;

/// The sizes of prompts and of tokens, as far as providers have reported them.
pub(super) struct Meter {
    /// By the prompt's history.
    prompts: Recent<Chain, Report, Hashed>,
    ratios: Recent<String, BytesPerToken>,
}

/// What the answer to a prompt has reported about its size.
#[derive(Clone, Default)]
pub(super) enum Report {
    /// No answer to it is known.
    #[default]
    Unknown,
    /// It was answered without usage, so the next answer is not likely to report any either.
    Nothing,
    /// Its size.
    Size(Figure),
}

/// The size of a prompt.
#[derive(Clone)]
pub(super) struct Figure {
    /// The number of messages in it.
    pub(super) messages: usize,
    pub(super) tokens: u64,
    /// The model that was asked.
    pub(super) model: Option<Arc<str>>,
}

impl Report {
    /// Whether it was answered without usage.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// The size, if it was reported.
    pub(super) fn figure(&self) -> Option<&Figure> {
        if let Self::Size(figure) = self { Some(figure) } else { None }
    }

    /// Whether the size is in tokens of another model, which are of another length.
    pub(super) fn is_of_another(&self, model: Option<&str>) -> bool {
        self.figure().is_some_and(|figure| figure.model.as_deref() != model)
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { prompts: Recent::of_entries(THREADS), ratios: Recent::of_entries(MAX_MODELS) }
    }

    /// Learns the size of the prompt whose history ends in `head`. `bytes` is the size of its text, if the body held
    /// the whole prompt. A size of 0 tokens is ignored.
    pub(super) fn learn(&self, head: Chain, figure: Figure, bytes: Option<u64>) {
        let Figure { tokens, model, .. } = &figure;
        if *tokens == 0 {
            return;
        }
        if let (Some(model), Some(bytes)) = (model, bytes) {
            self.ratios.update(&**model, |ratio| ratio.learn(bytes, *tokens));
        }
        self.prompts.insert(head, Report::Size(figure));
    }

    /// What was reported about the prompt whose history ends in `head`.
    pub(super) fn report(&self, head: Chain) -> Report {
        self.prompts.get(&head).unwrap_or_default()
    }

    /// Records that the request whose history ends in `head` was answered without usage, unless its size is known.
    pub(super) fn learn_nothing(&self, head: Chain) {
        self.prompts.get_or_insert(head, Report::Nothing);
    }

    /// Bytes per token of this model.
    pub(super) fn bytes_per_token(&self, model: Option<&str>) -> f64 {
        let known = model.and_then(|model| self.ratios.get(model));
        known.unwrap_or_default().value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_remembered_by_model_and_history() {
        let meter = Meter::new();
        let head = Chain::root("x", b"");
        let figure =
            |model: Option<&str>, tokens| Figure { messages: 1, tokens, model: model.map(Arc::from) };
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
            meter.learn(head, figure(model, tokens), bytes);
            assert!((meter.bytes_per_token(model) - expected).abs() < 1e-9, "{bytes:?} {tokens}");
        }
        let (report, untold) = (meter.report(head), head.then(head.0));
        assert_eq!(report.figure().map(|figure| (figure.messages, figure.tokens)), Some((1, 10)));
        assert!(meter.report(untold).figure().is_none());
        let others = [Some("m"), Some("n"), None].map(|model| report.is_of_another(model));
        assert_eq!(others, [false, true, true]);
        assert!(!meter.report(untold).is_of_another(Some("m")), "there is none");
        meter.learn_nothing(head);
        assert_eq!([head, untold].map(|head| meter.report(head).is_nothing()), [false, false]);
        meter.learn_nothing(untold);
        let report = meter.report(untold);
        assert!(report.is_nothing() && report.figure().is_none());
    }

    #[test]
    fn learning_a_new_model_evicts_the_oldest() {
        let (meter, head) = (Meter::new(), Chain::root("x", b""));
        for model in 0..=MAX_MODELS {
            let figure = Figure { messages: 1, tokens: 10_000, model: Some(model.to_string().into()) };
            meter.learn(head, figure, Some(30_000));
        }
        for (model, expected) in [(0, 4.0), (1, 3.0), (MAX_MODELS, 3.0)] {
            let found = meter.bytes_per_token(Some(&model.to_string()));
            assert!((found - expected).abs() < 1e-9, "{model}: {found}");
        }
    }
}
