//! Which prices and which cache a recorded conversation is played with.

use std::sync::Arc;

use crate::usage::cache_model::{CacheKind, Writes};
use crate::usage::{Catalogue, Price};

/// The shortest prefix, in tokens, that Anthropic and Gemini cache, where the catalogue does not say.
const CACHE_MIN: u64 = 1024;

/// A price, and the name it was found under.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) price: Arc<Price>,
}

/// The price of a recorded model: of its name, else without a remark in brackets, without a seller's prefix,
/// without its last words. The books never do that; here a figure is an estimate anyway, and says what it is of.
pub(super) fn find(catalogue: &Catalogue, model: &str) -> Option<Found> {
    let bare = model.split(" (").next().unwrap_or(model).trim();
    let own = bare.rsplit('/').next().unwrap_or(bare);
    let shorter = std::iter::successors(Some(own), |name| name.rsplit_once('-').map(|(family, _)| family));
    [model, bare].into_iter().chain(shorter).find_map(|name| {
        let priced = catalogue.find(name, None)?;
        Some(Found { name: name.to_owned(), price: priced.price })
    })
}

/// The cache that a dialect's provider has for a model.
pub(super) fn cache(protocol: &str, model: &str, price: Option<&Price>) -> CacheKind {
    let least = price.and_then(|price| price.cache_min).unwrap_or(CACHE_MIN);
    if protocol == "anthropic" {
        return CacheKind::anthropic(least);
    }
    if protocol == "gemini" || model.contains("gemini") {
        return CacheKind::gemini(least);
    }
    let bills_writes = price.is_some_and(|price| price.base.cache_write_5m.is_some());
    CacheKind::openai(if bills_writes { Writes::Billed } else { Writes::Free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_names_are_found() {
        let catalogue = Catalogue::embedded();
        for (model, expected) in [
            ("claude-opus-4-5-20251101", Some("claude-opus-4-5-20251101")),
            ("google/gemini-3-pro-preview", Some("google/gemini-3-pro-preview")),
            ("gpt-4 (replayed demonstration)", Some("gpt-4")),
            ("gpt-5.3-codex-spark", Some("gpt-5.3-codex")),
            ("somebody/llama-9-large", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(find(&catalogue, model).map(|found| found.name).as_deref(), expected, "{model}");
        }
    }
}
