//! Which prices and which cache are used for the replay of a conversation.

use std::sync::Arc;

use crate::usage::cache_model::CacheKind;
use crate::usage::{Catalogue, Price};

/// A price, and the name it was found under.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) price: Arc<Price>,
}

/// The price of a recorded model: by its full name, or else without a remark in parentheses, without a seller's prefix,
/// or without its last words. The books never do this; here figures are estimates anyway, and name the model they are
/// for.
pub(super) fn find(catalogue: &Catalogue, model: &str) -> Option<Found> {
    let bare = model.split(" (").next().unwrap_or(model).trim();
    let own = bare.rsplit('/').next().unwrap_or(bare);
    let shorter = std::iter::successors(Some(own), |name| name.rsplit_once('-').map(|(family, _)| family));
    [model, bare].into_iter().chain(shorter).find_map(|name| {
        let priced = catalogue.find(name, None)?;
        Some(Found { name: name.to_owned(), price: priced.price })
    })
}

/// The cache of a model's provider, as the gateway assumes it. Gemini's models are also recorded in other providers'
/// dialects.
pub(super) fn cache(protocol: &str, model: &str, price: Option<&Price>) -> CacheKind {
    let is_translated = protocol != "anthropic" && model.contains("gemini");
    CacheKind::of(if is_translated { "gemini" } else { protocol }, protocol == "anthropic", model, price)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replayed_cache_kinds_follow_protocol_model_and_price() {
        let catalogue = Catalogue::embedded();
        for (protocol, model, expected) in [
            ("anthropic", "claude-sonnet-4-6", "Marked"),
            ("openai-chat", "gpt-4o", "Automatic"),
            ("openai-chat", "google/gemini-3-pro-preview", "Automatic"),
            // Without a discount there is no cache to speak of, and nothing ever gets cold.
            ("openai-chat", "gpt-4-turbo", "None"),
            ("anthropic", "nobody/knows", "Marked"),
            // Sellers of other makers' models speak that dialect, too.
            ("anthropic", "deepseek-v4-pro", "Automatic"),
        ] {
            let price = find(&catalogue, model).map(|found| found.price);
            let kind = cache(protocol, model, price.as_deref());
            assert!(format!("{kind:?}").starts_with(expected), "{model} {kind:?}");
            let is_same = kind == CacheKind::of(protocol, protocol == "anthropic", model, price.as_deref());
            assert_eq!(is_same, !model.contains("gemini"), "{model} {kind:?}");
        }
    }

    #[test]
    fn prices_are_found_for_recorded_model_names() {
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
