//! The embedded list against the providers' list prices, and names against the list.

use super::*;
use crate::usage::price::Rates;
use crate::usage::rate::{Factor, Rate};

fn usd(text: &str) -> Rate {
    Rate::from_usd_per_million_str(text).unwrap()
}

fn embedded(model: &str, vendor: Option<Vendor>) -> Option<Arc<Price>> {
    Catalogue::embedded().find(model, vendor).map(|priced| {
        assert_eq!(priced.source, Source::Embedded(CATALOGUE_DATE));
        priced.price
    })
}

#[test]
fn every_row_parses() {
    assert_eq!(index().len(), 604);
    assert!(index().is_sorted_by_key(|row| (row.vendor, row.name)));
    for row in index() {
        let price = row.price().unwrap_or_else(|| panic!("{}: {}", row.name, row.text));
        assert!(price.base.input > Rate::default(), "{} is free", row.name);
        assert!(price.above.iter().all(|above| above.gt > 0 && above.rates.input > Rate::default()));
        // A listed write never undercuts the input rate: that would be a read rate in the wrong field.
        assert!(price.base.cache_write_5m.is_none_or(|write| write >= price.base.input), "{}", row.name);
    }
}

#[test]
fn the_catalogue_date_is_that_of_the_list() {
    let list: serde_json::Value = serde_json::from_str(text()).unwrap();
    assert_eq!(list["about"]["date"], CATALOGUE_DATE);
}

/// Model; US dollars per million in, out, read, write, long write; window and most output in tokens.
type ListPrice = (&'static str, [&'static str; 5], [u64; 2]);

#[test]
fn list_prices_of_known_models() {
    let rows: &[ListPrice] = &[
        ("claude-fable-5-2", ["8", "40", "0.20", "10", "16"], [1_000_000, 128_000]),
        ("claude-fable-5-1", ["10", "50", "0.25", "12.5", "20"], [1_000_000, 128_000]),
        ("claude-opus-5-5", ["4", "20", "0.20", "5", "8"], [1_000_000, 128_000]),
        ("claude-opus-5", ["5", "25", "0.50", "6.25", "10"], [1_000_000, 128_000]),
        ("claude-opus-4-5", ["5", "25", "0.50", "6.25", "10"], [200_000, 64_000]),
        ("claude-sonnet-5-5", ["2", "10", "0.10", "2.5", "4"], [1_000_000, 128_000]),
        ("claude-sonnet-4-6", ["3", "15", "0.30", "3.75", "6"], [1_000_000, 128_000]),
        ("claude-haiku-5-5", ["0.10", "0.50", "0.01", "0.125", "0.20"], [1_000_000, 128_000]),
        ("claude-haiku-4-5", ["1", "5", "0.10", "1.25", "2"], [200_000, 64_000]),
        ("gpt-6.1-sol", ["2", "10", "0.10", "2.5", "5"], [922_000, 128_000]),
        ("gpt-6.1-terra", ["1", "5", "0.05", "1.25", "2.5"], [922_000, 128_000]),
        ("gpt-6-luna", ["0.10", "0.50", "0.01", "0.125", "0.25"], [922_000, 128_000]),
        ("gpt-5.6-sol", ["4", "20", "0.40", "5", "10"], [922_000, 128_000]),
        ("gpt-5.5", ["5", "30", "0.50", "", ""], [1_050_000, 128_000]),
        ("gemini-4-argon", ["2", "10", "0.10", "", ""], [1_048_576, 1_048_576]),
        ("gemini-3.1-pro-preview", ["2", "12", "0.20", "", ""], [1_048_576, 65_536]),
        ("gemini-3.8-flash", ["0.75", "3.75", "0.075", "", ""], [1_048_576, 65_536]),
        ("deepseek-v4-pro", ["1.32", "3.96", "0.044", "", ""], [1_000_000, 393_216]),
        ("grok-4.7", ["2", "6", "0.50", "", ""], [500_000, 500_000]),
    ];
    for &(model, [input, output, read, write, long_write], [window, most]) in rows {
        let price = embedded(model, None).unwrap_or_else(|| panic!("{model} is not listed"));
        let optional = |text: &str| (!text.is_empty()).then(|| usd(text));
        assert_eq!((price.base.input, price.base.output), (usd(input), usd(output)), "{model}");
        assert_eq!(price.base.cache_read, optional(read), "{model}");
        assert_eq!(price.base.cache_write_5m, optional(write), "{model}");
        let long = price.base.cache_write_1h.or(price.base.cache_write_12h);
        assert_eq!(long, optional(long_write), "{model}");
        assert_eq!((price.context_window, price.max_output), (Some(window), Some(most)), "{model}");
    }
}

#[test]
fn long_context_rates_apply_beyond_their_threshold() {
    for (model, prompt, expected) in [
        ("claude-haiku-5-5", 100_000, None),
        ("claude-haiku-5-5", 100_001, Some(("0.50", "2.50"))),
        ("gpt-6.1-sol", 272_000, None),
        ("gpt-6.1-sol", 272_001, Some(("4", "15"))),
        ("gemini-3.1-pro-preview", 200_000, None),
        ("gemini-3.1-pro-preview", 200_001, Some(("4", "18"))),
        // From the threshold on, inclusive.
        ("grok-4.7", 199_999, None),
        ("grok-4.7", 200_000, Some(("4", "12"))),
        ("claude-opus-5-5", 1_000_000, None),
    ] {
        let price = embedded(model, None).unwrap();
        let rates = price.long_context(prompt).map(|rates| (rates.input, rates.output));
        assert_eq!(rates, expected.map(|(input, output)| (usd(input), usd(output))), "{model} at {prompt}");
    }
}

#[test]
fn modifiers_of_listed_models() {
    let opus = embedded("claude-opus-5-5", None).unwrap();
    assert_eq!(opus.us, Some(Factor::from_thousandths(1100)));
    assert_eq!(opus.fast, Some(Factor::from_thousandths(2000)));
    assert_eq!(opus.web_search.map(crate::usage::Money::usd).as_deref(), Some("0.01"));
    assert_eq!(opus.cache_min, Some(512));
    // The shortest prompt that is kept is the maker's affair.
    for (model, expected) in [("opus-4.5", 4096), ("haiku-4.5", 4096), ("opus-4.7", 2048), ("opus-5", 512)] {
        let name = format!("anthropic/claude-{model}");
        let routed = embedded(&name, Some(Vendor::OpenRouter)).unwrap();
        assert_eq!(routed.cache_min, Some(expected), "{model}");
    }
    let fable = embedded("claude-fable-5-2", None).unwrap();
    assert_eq!((fable.us, fable.fast), (Some(Factor::from_thousandths(1100)), None));
}

/// What is asked to be kept for longer costs more to write.
#[test]
fn write_prices_depend_on_the_requested_ttl() {
    const HOUR: u64 = 60 * 60 * 1000;
    for (model, requested_ttl_ms, expected) in [
        ("claude-sonnet-4-6", None, (0.1, 1.25)),
        ("claude-sonnet-4-6", Some(HOUR), (0.1, 2.0)),
        ("gpt-4o", Some(24 * HOUR), (0.5, 1.0)),
    ] {
        let price = embedded(model, None).unwrap();
        assert_eq!(price.shares(requested_ttl_ms), Some(expected), "{model} {requested_ttl_ms:?}");
    }
}

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
        // A name whose maker the upstream is not.
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

/// What a host that nobody knows asks for open weights is not what the only reseller on the list does.
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
        // The Gemini API's own path, whose price is another.
        ("models/gemini-2.0-flash", None, false),
        ("models/gemini-2.0-flash", Some(Gemini), false),
        // Names that one seller writes so, or that all sell at their maker's price.
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
        // What it keeps to itself, or what its API alone calls so.
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

/// The name that is billed and its input rate, where OpenRouter was asked for one and another answers (`""`: none).
fn check_routed(stated: &[(&str, Stated)], [asked, answered]: [&str; 2], expected: (&str, Option<&str>)) {
    let stated = stated.iter().map(|(name, stated)| ((*name).to_owned(), *stated)).collect();
    let (catalogue, router) = (Catalogue::with_overrides(stated).unwrap(), Some(Vendor::OpenRouter));
    let named = Some(answered).filter(|name| !name.is_empty());
    let billed = catalogue.billed_name(Some(asked), named, router).unwrap();
    let price = catalogue.billed(billed, router).map(|priced| priced.price.base.input);
    assert_eq!((billed, price), (expected.0, expected.1.map(usd)), "{asked} {answered}");
}

/// An answer of OpenRouter's says less than what was asked for, or what was asked for says nothing of the answer. A
/// wrong price is worse than none, and one that is too low breaks budgets.
#[test]
fn routed_models_are_billed_by_the_answering_or_requested_name() {
    for (asked, answered, billed, input) in [
        // What is free is free where it answers itself, or nobody says what has answered.
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
fn overrides_take_precedence_over_router_prices() {
    let whole = |input| Stated { input: Some(usd(input)), output: Some(usd("9")), ..Stated::default() };
    let of_a_cache = Stated { cache_read: Some(usd("7")), ..Stated::default() };
    for (stated, asked, answered, billed, input) in [
        (&[("z/air:free", whole("0"))][..], "z/air:free", "z/air", "z/air", None),
        // What is stated of the name that answers, then of the one that was asked for.
        (&[("z/air-260728", whole("7"))], "z/air", "z/air-260728", "z/air-260728", Some("7")),
        (&[("z/air-0728", whole("7"))], "z/air", "z/air-0728", "z/air-0728", Some("7")),
        (&[("z/air-20260728", whole("7"))], "z/air", "z/air-20260728", "z/air-20260728", Some("7")),
        (
            &[("moonshotai/*", whole("7"))],
            "moonshotai/kimi-k2.5",
            "moonshotai/kimi-k2.5-260127",
            "moonshotai/kimi-k2.5-260127",
            Some("7"),
        ),
        (&[("openai/gpt-5", whole("7"))], "openai/gpt-5:nitro", "openai/gpt-5", "openai/gpt-5", Some("7")),
        (
            &[("openai/gpt-5", whole("7"))],
            "openai/gpt-5:online",
            "openai/gpt-5-2025-08-07",
            "openai/gpt-5-2025-08-07",
            Some("7"),
        ),
        (&[("z/air", whole("7")), ("z/air:nitro", whole("8"))], "z/air:nitro", "z/air", "z/air", Some("7")),
        (&[("z/air:nitro", whole("8"))], "z/air:nitro", "z/air-20260728", "z/air:nitro", Some("8")),
        (&[("z/air", whole("8"))], "z/air", "z/air-0728", "z/air", Some("8")),
        (
            &[("anthropic/claude-sonnet-4.5", whole("8"))],
            "anthropic/claude-sonnet-4.5",
            "anthropic/claude-4.5-sonnet-20250929",
            "anthropic/claude-sonnet-4.5",
            Some("8"),
        ),
        (&[("z/air", whole("8"))], "z/air", "z/air-pro", "z/air-pro", None),
        (
            &[("mistralai/mistral-large", whole("8"))],
            "mistralai/mistral-large",
            "mistralai/mistral-large-2512",
            "mistralai/mistral-large-2512",
            Some("0.5"),
        ),
        // A rate alone makes no price of what has none.
        (&[("openai/gpt-5", of_a_cache)], "openai/gpt-5:nitro", "openai/gpt-5", "openai/gpt-5:nitro", None),
        (
            &[("moonshotai/kimi-k2.5", of_a_cache)],
            "moonshotai/kimi-k2.5",
            "moonshotai/kimi-k2.5-0127",
            "moonshotai/kimi-k2.5-0127",
            None,
        ),
    ] {
        check_routed(stated, [asked, answered], (billed, input));
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

#[test]
fn overrides_take_precedence() {
    let stated =
        |input: &str| Stated { input: Some(usd(input)), output: Some(usd("9")), ..Stated::default() };
    let own_window = Stated { context_window: Some(32_000), ..stated("4") };
    let no_input = Stated { input: None, ..stated("5") };
    let catalogue = Catalogue::with_overrides(vec![
        ("claude-opus-5-5".to_owned(), stated("1")),
        ("Claude-*".to_owned(), stated("2")),
        ("local/*".to_owned(), stated("3")),
        ("gpt-4o".to_owned(), own_window),
        ("*-pro".to_owned(), no_input),
    ])
    .unwrap();
    for (model, expected) in [
        ("claude-opus-5-5", Some(("1", Some(1_000_000)))),
        ("anthropic/claude-opus-5-5", Some(("1", Some(1_000_000)))),
        ("claude-opus-5-5-20261001", Some(("1", Some(1_000_000)))),
        ("claude-sonnet-4-5", Some(("2", Some(200_000)))),
        ("claude-of-tomorrow", Some(("2", None))),
        ("local/qwen", Some(("3", None))),
        ("gpt-4o-2024-05-13", Some(("4", Some(32_000)))),
        ("gemini-2.5-pro", Some(("1.25", Some(1_048_576)))),
        // Neither says what its input costs.
        ("qwen-pro", None),
        ("qwen", None),
    ] {
        let found = catalogue.find(model, None).map(|priced| {
            assert_eq!(priced.source, Source::Config);
            (priced.price.base.input, priced.price.context_window)
        });
        assert_eq!(found, expected.map(|(input, window)| (usd(input), window)), "{model}");
    }
    assert_eq!(catalogue.find("gpt-5.5", None).unwrap().source, Source::Embedded(CATALOGUE_DATE));
    assert!(Catalogue::with_overrides(vec![("a[".to_owned(), stated("1"))]).is_err());
}

#[test]
fn rates_not_stated_come_from_the_list() {
    let full = Stated {
        input: Some(usd("1")),
        output: Some(usd("2")),
        cache_read: Some(usd("3")),
        cache_write_5m: Some(usd("4")),
        cache_write_1h: Some(usd("5")),
        context_window: Some(6),
        cache_min: Some(7),
    };
    for row in index() {
        let listed = row.price().unwrap();
        let base = |stated: Stated| stated.over(Some(&listed)).unwrap().base;
        let only = Stated::default();
        let of = listed.base;
        for (stated, expected) in [
            (only, of),
            (Stated { input: full.input, ..only }, Rates { input: usd("1"), ..of }),
            (Stated { output: full.output, ..only }, Rates { output: usd("2"), reasoning: None, ..of }),
            (Stated { cache_read: full.cache_read, ..only }, Rates { cache_read: full.cache_read, ..of }),
            (
                Stated { cache_write_5m: full.cache_write_5m, ..only },
                Rates { cache_write_5m: full.cache_write_5m, ..of },
            ),
            (
                Stated { cache_write_1h: full.cache_write_1h, ..only },
                Rates { cache_write_1h: full.cache_write_1h, ..of },
            ),
        ] {
            assert_eq!(base(stated), expected, "{} {stated:?}", row.name);
        }
        let same = Price { base: of, listed: None, ..full.over(Some(&listed)).unwrap() };
        assert_eq!(
            Price { context_window: listed.context_window, cache_min: listed.cache_min, ..same },
            *listed,
            "{}",
            row.name
        );
    }
    assert_eq!(full.over(None).unwrap().base.cache_write_1h, full.cache_write_1h);
    for lacking in [Stated { input: None, ..full }, Stated { output: None, ..full }] {
        assert_eq!(lacking.over(None), None);
    }
}

#[test]
fn listed_models_are_matched_by_name_or_glob() {
    for (models, expected) in [
        ("claude-opus-5-5", true),
        ("CLAUDE-OPUS-*", true),
        ("claude-opus-5-5-20311001", true),
        ("vertex_ai/claude-*", true),
        ("us.anthropic.claude-*", true),
        ("groq/*", true),
        ("*", true),
        ("claude-opus-5-6", false),
        ("my-*", false),
        ("qwen", false),
        ("", false),
        ("[", false),
    ] {
        assert_eq!(Catalogue::lists(models), expected, "{models}");
    }
}
