//! Prices that the configuration states, which override those of the list field by field.
//!
//! Nothing is made up: for a model that the list does not have, the configuration must state both of the rates that
//! every price has.

use std::sync::Arc;

use glob::{MatchOptions, Pattern, PatternError};

use super::names;
use crate::usage::price::{Price, Rates};
use crate::usage::rate::Rate;

/// What is stated of a model's price; `None`: as the list has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stated {
    /// A plain input token.
    pub input: Option<Rate>,
    /// An output token, reasoning included.
    pub output: Option<Rate>,
    /// An input token read from the provider's cache.
    pub cache_read: Option<Rate>,
    /// An input token written to the provider's cache for five minutes.
    pub cache_write_5m: Option<Rate>,
    /// An input token written to the provider's cache for an hour.
    pub cache_write_1h: Option<Rate>,
    /// The most prompt tokens.
    pub context_window: Option<u64>,
    /// The shortest beginning of a prompt that is cached, in tokens.
    pub cache_min: Option<u64>,
}

impl Stated {
    /// The price of a model whose row in the list is `listed`. `None` if a rate that every price has is stated in
    /// neither.
    ///
    /// The list's rates for long prompts and other tiers keep their proportion to the base rates.
    pub(super) fn over(&self, listed: Option<&Price>) -> Option<Price> {
        let (price, rates) = match listed {
            Some(price) => (Price { listed: Some(price.base), ..price.clone() }, price.base),
            None => {
                (Price::default(), Rates { input: self.input?, output: self.output?, ..Rates::default() })
            }
        };
        let base = Rates {
            input: self.input.unwrap_or(rates.input),
            output: self.output.unwrap_or(rates.output),
            cache_read: self.cache_read.or(rates.cache_read),
            cache_write_5m: self.cache_write_5m.or(rates.cache_write_5m),
            cache_write_1h: self.cache_write_1h.or(rates.cache_write_1h),
            reasoning: rates.reasoning.filter(|_| self.output.is_none()),
            ..rates
        };
        let context_window = self.context_window.or(price.context_window);
        let cache_min = self.cache_min.or(price.cache_min);
        Some(Price { base, context_window, cache_min, ..price })
    }
}

/// The models whose prices are stated.
#[derive(Debug, Clone)]
pub(super) struct Override {
    models: Models,
    pub(super) stated: Stated,
}

impl Override {
    pub(super) fn new(models: &str, stated: Stated) -> Result<Self, PatternError> {
        Models::new(models).map(|models| Self { models, stated })
    }

    pub(super) fn matches(&self, model: &str) -> bool {
        self.models.matches(model)
    }

    /// The name of the model that it is for; `None` if it is a glob.
    pub(super) fn name(&self) -> Option<&str> {
        Some(&*self.models.name).filter(|name| !is_glob(name))
    }
}

/// Whether `models` may match more than one name. No name of a model has these characters.
pub(super) fn is_glob(models: &str) -> bool {
    models.contains(['*', '?', '['])
}

/// A name or a glob, whatever the case.
#[derive(Debug, Clone)]
pub(super) struct Models {
    name: Arc<str>,
    pattern: Pattern,
}

impl Models {
    pub(super) fn new(name: &str) -> Result<Self, PatternError> {
        Ok(Self { name: name.into(), pattern: Pattern::new(name)? })
    }

    /// Whether it matches the model's name, with or without its decorations.
    pub(super) fn matches(&self, model: &str) -> bool {
        let name = names::without_path(model);
        let bare = super::split_vendor(name).map_or(name, |(_, rest)| rest);
        self.is(model) || names::forms(name).chain(names::forms(bare)).any(|form| self.is(form))
    }

    fn is(&self, form: &str) -> bool {
        let options = MatchOptions { case_sensitive: false, ..MatchOptions::new() };
        *self.name == *form || self.pattern.matches_with(form, options)
    }
}
