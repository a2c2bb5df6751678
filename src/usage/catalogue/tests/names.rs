//! Names against the list: in all spellings, at resellers and routers, and in answers.

use super::*;

#[test]
fn names_are_resolved_in_all_spellings() {
    use Vendor::{Anthropic, Bedrock, Gemini, Groq, OpenAi, OpenRouter, Vertex};
    for (model, vendor, expected) in [
        ("claude-opus-5-5", None, Some((Anthropic, "claude-opus-5-5"))),
        ("claude-opus-5-5", Some(Anthropic), Some((Anthropic, "claude-opus-5-5"))),
        ("claude-opus-5-5-20261001", None, Some((Anthropic, "claude-opus-5-5"))),
        ("claude-haiku-4-5-20251001", None, Some((Anthropic, "claude-haiku-4-5-20251001"))),
        ("anthropic/claude-opus-5-5", None, Some((Anthropic, "claude-opus-5-5"))),
        ("claude-sonnet-4-6-latest", None, Some((Anthropic, "claude-sonnet-4-6"))),
        // Sellers.
        ("claude-opus-5-5", Some(Vertex), Some((Vertex, "claude-opus-5-5"))),
        ("vertex_ai/claude-haiku-4-5@20251001", None, Some((Vertex, "claude-haiku-4-5@20251001"))),
        ("vertex_ai/claude-opus-5-5@20261001", None, Some((Vertex, "claude-opus-5-5"))),
        ("publishers/anthropic/models/claude-opus-5-5", Some(Vertex), Some((Vertex, "claude-opus-5-5"))),
        ("us.anthropic.claude-opus-5-5", None, Some((Bedrock, "us.anthropic.claude-opus-5-5"))),
        ("us.anthropic.claude-opus-5-5-20261001-v1:0", None, Some((Bedrock, "us.anthropic.claude-opus-5-5"))),
        (
            "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
            None,
            Some((Bedrock, "us.anthropic.claude-haiku-4-5-20251001-v1:0")),
        ),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-opus-5",
            Some(Bedrock),
            Some((Bedrock, "eu.anthropic.claude-opus-5")),
        ),
        // As the path of a URL has them.
        (
            "us.anthropic.claude-haiku-4-5-20251001-v1%3A0",
            Some(Bedrock),
            Some((Bedrock, "us.anthropic.claude-haiku-4-5-20251001-v1:0")),
        ),
        (
            "arn%3aaws%3abedrock%3aus-east-1%3a1%3ainference-profile%2Feu.anthropic.claude-opus-5",
            Some(Bedrock),
            Some((Bedrock, "eu.anthropic.claude-opus-5")),
        ),
        ("anthropic/claude-sonnet-4.6", None, Some((OpenRouter, "anthropic/claude-sonnet-4.6"))),
        ("anthropic/claude-sonnet-4.6", Some(OpenRouter), Some((OpenRouter, "anthropic/claude-sonnet-4.6"))),
        ("openrouter/openai/gpt-4o", None, Some((OpenRouter, "openai/gpt-4o"))),
        // Snapshots, as it names them.
        (
            "anthropic/claude-4.5-sonnet-20250929",
            Some(OpenRouter),
            Some((OpenRouter, "anthropic/claude-sonnet-4.5")),
        ),
        ("anthropic/claude-4-opus-20250522", None, Some((OpenRouter, "anthropic/claude-opus-4"))),
        ("anthropic/claude-fable-5.1-20260831", Some(OpenRouter), Some((Anthropic, "claude-fable-5-1"))),
        ("openrouter/anthropic/claude-5.5-opus-20261001", None, Some((Anthropic, "claude-opus-5-5"))),
        ("anthropic/claude-3.5-sonnet-20241022", None, Some((OpenRouter, "anthropic/claude-3.5-sonnet"))),
        ("deepseek/deepseek-v3.2-20251201", Some(OpenRouter), Some((OpenRouter, "deepseek/deepseek-v3.2"))),
        ("anthropic/claude-opus-5-fast-20260723", Some(OpenRouter), None),
        ("anthropic/claude-opus-5.6", Some(OpenRouter), None),
        ("anthropic/claude-4.5-sonnet", Some(Groq), None),
        ("z-ai/glm-4.6:exacto", Some(OpenRouter), Some((OpenRouter, "z-ai/glm-4.6:exacto"))),
        ("openai/gpt-4o", None, Some((OpenAi, "gpt-4o"))),
        ("openrouter/openai/gpt-6.1-sol", None, Some((OpenAi, "gpt-6.1-sol"))),
        // A name of another maker than the upstream.
        ("gpt-4o", Some(Anthropic), Some((OpenAi, "gpt-4o"))),
        ("gpt-4o-2024-05-13", None, Some((OpenAi, "gpt-4o-2024-05-13"))),
        ("gpt-4o-2031-01-01", None, Some((OpenAi, "gpt-4o"))),
        ("gpt-5.1-chat-latest", None, Some((OpenAi, "gpt-5.1-chat-latest"))),
        ("ft:gpt-4o-2024-08-06:acme::x", None, Some((OpenAi, "ft:gpt-4o-2024-08-06"))),
        ("models/gemini-3.1-pro-preview", None, Some((Gemini, "gemini-3.1-pro-preview"))),
        ("gemini/gemini-3.8-flash", None, Some((Gemini, "gemini-3.8-flash"))),
        ("xai/grok-4.7", None, Some((Vendor::Xai, "grok-4.7"))),
        ("deepseek/deepseek-v4-pro", None, Some((Vendor::DeepSeek, "deepseek-v4-pro"))),
        ("openai/gpt-oss-120b", Some(Groq), Some((Groq, "openai/gpt-oss-120b"))),
        // Two resellers with different prices, nobody says which.
        ("openai/gpt-oss-120b", None, None),
        ("deepseek-v4-pro", Some(Groq), None),
        // Never a similar model.
        ("claude-opus-5-6", None, None),
        ("claude-opus-5-5-turbo", None, None),
        ("claude-opus", None, None),
        ("gpt-4o-mini-realtime", None, None),
        ("ft:gpt-9:acme", None, None),
        ("gpt-4-0314", None, None),
        ("openrouter/openai/gpt-4o:free", None, None),
        ("azure/gpt-4o", None, None),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", None, None),
        ("", None, None),
        ("/", None, None),
    ] {
        let found = find_row(model, vendor).map(|row| (row.vendor, row.name));
        assert_eq!(found, expected, "{model} {vendor:?}");
    }
}

/// The price of open weights at an unknown host is not the price of the only reseller on the list.
#[test]
fn reseller_prices_are_billed_only_where_certain() {
    use Vendor::{Bedrock, Gemini, Groq, OpenRouter, Vertex};
    for (model, vendor, is_billed) in [
        ("qwen/qwen3.8-27b", None, false),
        ("qwen/qwen3.8-27b", Some(OpenRouter), false),
        ("qwen/qwen3.8-27b", Some(Groq), true),
        ("groq/qwen/qwen3.8-27b", None, true),
        ("openai/gpt-oss-safeguard-20b", None, false),
        ("moonshotai/kimi-k2.5", None, false),
        ("moonshotai/kimi-k2.5", Some(OpenRouter), true),
        ("openrouter/moonshotai/kimi-k2.5", None, true),
        ("deepseek/deepseek-r1-0528", None, false),
        ("gemini-2.0-flash", None, false),
        ("gemini-2.0-flash", Some(Gemini), false),
        ("gemini-2.0-flash", Some(Vertex), true),
        ("publishers/google/models/gemini-2.0-flash", None, true),
        // The Gemini API's own path, which has another price.
        ("models/gemini-2.0-flash", None, false),
        ("models/gemini-2.0-flash", Some(Gemini), false),
        // Names that only one seller uses, or models that all sell at their maker's price.
        ("us.anthropic.claude-opus-5", None, true),
        ("anthropic.claude-opus-5", Some(Bedrock), true),
        ("claude-3-opus@20240229", None, true),
        ("claude-3-5-sonnet-20241022", None, true),
        ("claude-3-haiku-20240307", Some(Vendor::Anthropic), true),
        ("anthropic/claude-sonnet-4.6", None, true),
        ("x-ai/grok-4", None, true),
        ("google/gemini-2.0-flash-001", None, true),
        // Makers' names. What a maker gives away is anyone's to sell, or to run.
        ("claude-opus-5-5", None, true),
        ("gpt-5.5", None, true),
        ("openai/gpt-5.5", None, true),
        ("gemini-3.8-flash", None, true),
        ("deep-research-preview-04-2026", None, true),
        ("grok-4.7", None, true),
        ("deepseek/deepseek-v4-pro", None, false),
        ("deepseek/deepseek-r1", None, false),
        ("deepseek-r1", None, false),
        ("deepseek-coder", None, false),
        ("deepseek-v3.2", None, false),
        ("deepseek-v3.2", Some(Vendor::Anthropic), false),
        ("deepseek-v3.2", Some(Vendor::DeepSeek), true),
        ("deepseek/deepseek-v3.2", Some(Vendor::DeepSeek), true),
        ("deepseek/deepseek-v4-flash", Some(OpenRouter), true),
        ("openrouter/deepseek/deepseek-v4-flash", None, true),
        ("glm-5-2", None, false),
        // Models that it does not publish, or names that only its API uses.
        ("mistral-medium-latest", None, true),
        ("magistral-medium-latest", None, true),
        ("codestral-latest", None, true),
        ("deepseek-chat", None, true),
        ("mistral-small-latest", None, false),
        ("mistral-small-latest", Some(Vendor::Mistral), true),
    ] {
        let catalogue = Catalogue::embedded();
        assert_eq!(catalogue.billed(model, vendor).is_some(), is_billed, "{model} {vendor:?}");
        assert!(catalogue.find(model, vendor).is_some(), "what is not the bill is known: {model} {vendor:?}");
    }
    // Whoever is chosen among those who serve a model takes a price of their own; what nothing is taken for costs
    // nothing.
    for (model, vendor, input, is_known) in [
        ("openai/gpt-5:nitro", Some(OpenRouter), None, true),
        ("moonshotai/kimi-k2.5:floor", Some(OpenRouter), None, true),
        ("openai/gpt-5:online", Some(OpenRouter), None, false),
        ("openai/gpt-5:extended", Some(OpenRouter), None, false),
        ("z-ai/glm-4.6:exacto", Some(OpenRouter), Some("0.45"), true),
        ("openai/gpt-5:free", Some(OpenRouter), Some("0"), false),
        ("openrouter/openai/gpt-5:free", None, Some("0"), false),
        ("openai/gpt-5:free", None, None, false),
        ("openai/gpt-5:free", Some(Groq), None, false),
    ] {
        let catalogue = Catalogue::embedded();
        let billed = catalogue.billed(model, vendor).map(|priced| priced.price.base.input);
        let found = catalogue.in_proportion(model, vendor).is_some();
        assert_eq!((billed, found), (input.map(usd), is_known), "{model} {vendor:?}");
    }
    let stated = |output| Stated { input: Some(usd("1")), output, ..Stated::default() };
    for (stated, expected) in [(stated(None), None), (stated(Some(usd("2"))), Some(usd("1")))] {
        let catalogue = Catalogue::with_overrides(vec![("qwen/*".to_owned(), stated)]).unwrap();
        let found = catalogue.billed("qwen/qwen3.8-27b", None).map(|priced| priced.price.base.input);
        assert_eq!(found, expected, "what is not stated is not the reseller's");
    }
    let read = Stated { cache_read: Some(usd("0.01")), ..Stated::default() };
    let catalogue = Catalogue::with_overrides(vec![("deepseek-*".to_owned(), read)]).unwrap();
    let found = catalogue.billed("deepseek-v4-pro", None).map(|priced| priced.price.base);
    let found = found.map(|base| (base.input, base.cache_read));
    assert_eq!(found, Some((usd("1.32"), Some(usd("0.01")))), "what is not stated is the maker's");
}

#[test]
fn models_are_billed_by_the_answering_or_requested_name() {
    use Vendor::Bedrock;
    const PROFILE: &str = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc";
    let (own, claude) = (Some("eu.anthropic.claude-opus-5"), Some("claude-opus-5"));
    for (asked, answered, vendor, expected) in [
        (Some("gpt-4o"), Some("gpt-4o-2024-05-13"), None, Some("gpt-4o-2024-05-13")),
        (Some("gpt-4o"), None, None, Some("gpt-4o")),
        (None, claude, None, claude),
        (own, claude, Some(Bedrock), own),
        (own, claude, None, own),
        (Some(PROFILE), claude, Some(Bedrock), Some(PROFILE)),
        (None, None, None, None),
        // Names of snapshots that others than OpenRouter have.
        (
            Some("moonshotai/kimi-k2.5"),
            Some("moonshotai/kimi-k2.5-260127"),
            None,
            Some("moonshotai/kimi-k2.5-260127"),
        ),
    ] {
        let billed = Catalogue::embedded().billed_name(asked, answered, vendor);
        assert_eq!(billed, expected, "{asked:?} {answered:?}");
    }
}

/// OpenRouter's answer may say less than the requested name, or the requested name nothing about the answer. A wrong
/// price is worse than none, and one that is too low breaks budgets.
#[test]
fn routed_models_are_billed_by_the_answering_or_requested_name() {
    for (asked, answered, billed, input) in [
        // A free model is free if it answers itself, or if the answer names no model.
        ("z/air:free", "z/air:free", "z/air:free", Some("0")),
        ("z/air:free", "z/air-20260728:free", "z/air-20260728:free", Some("0")),
        ("z/air:free", "", "z/air:free", Some("0")),
        ("z/air:free", "z/air", "z/air", None),
        ("z/air:free", "z/air-20260728", "z/air-20260728", None),
        ("z/air:free", "z/air-pro", "z/air-pro", None),
        ("openai/gpt-5:free", "openai/gpt-5", "openai/gpt-5", Some("1.25")),
        (
            "openai/gpt-5-mini:free",
            "openai/gpt-5-mini-2025-08-07",
            "openai/gpt-5-mini-2025-08-07",
            Some("0.25"),
        ),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1-0528", "deepseek/deepseek-r1-0528", Some("0.5")),
        ("z/air:free:online", "z/air:free", "z/air:free:online", None),
        // Other variants have no price, however a snapshot is written.
        ("openai/gpt-5:nitro", "", "openai/gpt-5:nitro", None),
        ("openai/gpt-5:nitro", "openai/gpt-5", "openai/gpt-5:nitro", None),
        ("openai/gpt-5:nitro", "openai/gpt-5-2025-08-07", "openai/gpt-5:nitro", None),
        ("openrouter/openai/gpt-5:nitro", "openai/gpt-5-2025-08-07", "openrouter/openai/gpt-5:nitro", None),
        ("openai/gpt-4.1:floor", "openai/gpt-4.1-2025-04-14", "openai/gpt-4.1:floor", None),
        ("openai/gpt-4.1:online", "openai/gpt-4.1-20250414", "openai/gpt-4.1:online", None),
        ("moonshotai/kimi-k2.5:exacto", "moonshotai/kimi-k2.5-260127", "moonshotai/kimi-k2.5:exacto", None),
        ("moonshotai/kimi-k2.5:nitro", "moonshotai/kimi-k2.5-0127", "moonshotai/kimi-k2.5:nitro", None),
        (
            "mistralai/mistral-large:nitro",
            "mistralai/mistral-large-2512",
            "mistralai/mistral-large:nitro",
            None,
        ),
        (
            "anthropic/claude-sonnet-4.5:nitro",
            "anthropic/claude-4.5-sonnet-20250929",
            "anthropic/claude-sonnet-4.5:nitro",
            None,
        ),
        ("z-ai/glm-4.6:exacto", "z-ai/glm-4.6", "z-ai/glm-4.6:exacto", Some("0.45")),
        ("openai/gpt-4o:nitro", "openai/gpt-5", "openai/gpt-5", Some("1.25")),
        // Six digits and more are a snapshot; four may be another listing.
        (
            "moonshotai/kimi-k2.5",
            "moonshotai/kimi-k2.5-20260127",
            "moonshotai/kimi-k2.5-20260127",
            Some("0.6"),
        ),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-260127", "moonshotai/kimi-k2.5", Some("0.6")),
        (
            "moonshotai/kimi-k2.5",
            "moonshotai/kimi-k2.5-2026-01-27",
            "moonshotai/kimi-k2.5-2026-01-27",
            Some("0.6"),
        ),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127", "moonshotai/kimi-k2.5-0127", None),
        ("mistralai/mistral-large", "mistralai/mistral-large-2411", "mistralai/mistral-large-2411", None),
        (
            "mistralai/mistral-large",
            "mistralai/mistral-large-2512",
            "mistralai/mistral-large-2512",
            Some("0.5"),
        ),
        ("openai/gpt-4o", "openai/gpt-4o-2024-05-13", "openai/gpt-4o-2024-05-13", Some("5")),
        (
            "openrouter/auto",
            "anthropic/claude-4.5-sonnet-20250929",
            "anthropic/claude-4.5-sonnet-20250929",
            Some("3"),
        ),
    ] {
        check_routed(&[], [asked, answered], (billed, input));
    }
}

#[test]
fn aliases_are_recognised() {
    for (model, expected) in [
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", true),
        ("arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fabc", true),
        ("arn:aws:bedrock:us-east-1:1:provisioned-model/abc", true),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-opus-5", false),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-5", false),
        ("claude-opus-5", false),
        ("", false),
    ] {
        assert_eq!(Catalogue::is_alias(model), expected, "{model}");
    }
}

#[test]
fn every_listed_name_is_found_at_its_vendor() {
    for listed in index() {
        let found = find_row(listed.name, Some(listed.vendor)).unwrap();
        assert_eq!((found.vendor, found.name), (listed.vendor, listed.name));
    }
    assert_eq!(Catalogue::rows().count(), index().len());
}
