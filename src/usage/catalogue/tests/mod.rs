//! The embedded list against the providers' list prices, and what overrides it.

mod names;

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
    // The shortest prompt that is cached depends on the maker.
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

/// The name that is billed and its input rate, where OpenRouter was asked for one and another answers (`""`: none).
fn check_routed(stated: &[(&str, Stated)], [asked, answered]: [&str; 2], expected: (&str, Option<&str>)) {
    let stated = stated.iter().map(|(name, stated)| ((*name).to_owned(), *stated)).collect();
    let (catalogue, router) = (Catalogue::with_overrides(stated).unwrap(), Some(Vendor::OpenRouter));
    let named = Some(answered).filter(|name| !name.is_empty());
    let billed = catalogue.billed_name(Some(asked), named, router).unwrap();
    let price = catalogue.billed(billed, router).map(|priced| priced.price.base.input);
    assert_eq!((billed, price), (expected.0, expected.1.map(usd)), "{asked} {answered}");
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
        // A rate alone does not make a price.
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
