//! Bills checked against hand-computed sums.

use proptest::prelude::*;

use super::*;
use crate::usage::catalogue::Stated;
use crate::usage::partial::{Partial, Prompt, Reasoning};
use crate::usage::rate::Rate;
use crate::usage::tokens::{Extra, OwnPrompt, Tier};

fn rate(text: &str) -> Rate {
    Rate::from_usd_per_million_str(text).unwrap()
}

/// A price of nothing but an input and an output rate.
fn price_of(input: Rate, output: Rate) -> Price {
    Price { base: Rates { input, output, ..Rates::default() }, ..Price::default() }
}

/// 3 in, 15 out, 0.30 read, 3.75 write.
fn sonnet() -> Price {
    let mut price = price_of(rate("3"), rate("15"));
    price.base.cache_read = Some(rate("0.30"));
    price.base.cache_write_5m = Some(rate("3.75"));
    price
}

fn used(tokens: Tokens) -> Usage {
    Usage { tokens, ..Usage::default() }
}

fn embedded(usage: &Usage, model: &str) -> Option<String> {
    let price = Catalogue::embedded().find(model, None)?.price;
    cost(usage, &price).map(|lines| lines.total().usd())
}

/// A million tokens cost their list price in dollars.
const MILLION: u64 = 1_000_000;

#[test]
fn disjoint_buckets_are_not_billed_twice() {
    let sample = Partial {
        prompt: Some(Prompt::Total(45_231)),
        cache_read: Some(32_451),
        cache_write: Some(12_780),
        output: Some(2_841),
        reasoning: Some(Reasoning::Beside(8_234)),
        ..Partial::default()
    };
    let lines = cost(&sample.finish().unwrap(), &sonnet()).unwrap();
    assert_eq!(lines.input, Money::ZERO);
    assert_eq!(lines.cache_read.usd(), "0.0097353");
    assert_eq!(lines.cache_write.usd(), "0.047925");
    assert_eq!(lines.output.usd(), "0.166125");
    assert_eq!(lines.total().usd(), "0.2237853");
}

#[test]
fn caching_pays_on_the_second_request() {
    let first = used(Tokens { input: 2_000, cache_write_5m: 10_000, ..Tokens::default() });
    let second = used(Tokens { input: 2_000, cache_read: 10_000, ..Tokens::default() });
    let uncached = used(Tokens { input: 12_000, ..Tokens::default() });
    for (usage, total) in [(&first, "0.0435"), (&second, "0.009"), (&uncached, "0.036")] {
        assert_eq!(cost(usage, &sonnet()).unwrap().total().usd(), total);
    }
}

/// Against plain input: a write costs a quarter more of it, a read spares nine tenths.
#[test]
fn cache_savings_may_be_negative() {
    let priced = |tokens| Usage { tokens, ..Usage::default() };
    let written = Tokens { input: 2_000, cache_write_5m: 10_000, output: 9, ..Tokens::default() };
    let read = Tokens { input: 2_000, cache_read: 10_000, output: 9, ..Tokens::default() };
    let both =
        Tokens { cache_read: 10_000, cache_write_5m: 1_000, cache_write_1h: 1_000, ..Tokens::default() };
    let extra = vec![Extra { model: None, tokens: read }];
    for (usage, expected) in [
        (priced(written), "-0.0075"),
        (priced(read), "0.027"),
        // 0.027 - 1000 × 0.75 - 1000 × 3
        (priced(both), "0.02325"),
        (priced(Tokens { input: 2_000, output: 9, ..Tokens::default() }), "0"),
        (Usage { extra, ..priced(written) }, "0.0195"),
    ] {
        let (_, saved) = cost_with(&usage, &sonnet(), |_| None).unwrap();
        assert_eq!(saved.usd(), expected, "{usage:?}");
    }
    // Twice as much for long prompts, as everything is.
    let prices = Catalogue::embedded();
    let long = |cache_read| priced(Tokens { cache_read, ..Tokens::default() });
    for (usage, expected) in [
        (long(100_000), Some("0.009")),
        (long(100_001), Some("0.04500045")),
        (Usage { provider_cost: Some(Money::ZERO), ..long(9) }, None),
    ] {
        let bill = bill(&prices, &usage, "claude-haiku-5-5", None).unwrap();
        assert_eq!(bill.cache_saved.map(Money::usd).as_deref(), expected, "{usage:?}");
    }
}

#[test]
fn long_prompts_pay_more_for_every_token() {
    let tokens = |cache_read| Tokens {
        input: 1_000,
        cache_read,
        cache_write_5m: 1_000,
        output: 1_000,
        ..Tokens::default()
    };
    for (model, cache_read, expected) in [
        // 1000 × 0.10 + 98,000 × 0.01 + 1000 × 0.125 + 1000 × 0.50
        ("claude-haiku-5-5", 98_000, "0.001705"),
        // 1000 × 0.50 + 98,001 × 0.05 + 1000 × 0.625 + 1000 × 2.50
        ("claude-haiku-5-5", 98_001, "0.00852505"),
        ("gpt-6.1-sol", 270_000, "0.0415"),
        ("gpt-6.1-sol", 270_001, "0.0780002"),
    ] {
        assert_eq!(embedded(&used(tokens(cache_read)), model).as_deref(), Some(expected), "{model}");
    }
    // Server-side tools: two calls of 60K each are not one of 120K.
    let summed = Tokens { input: 120_000, ..Tokens::default() };
    let usage = Usage { last_prompt: Some(60_000), ..used(summed) };
    assert_eq!(embedded(&usage, "claude-haiku-5-5").as_deref(), Some("0.012"));
    assert_eq!(embedded(&used(summed), "claude-haiku-5-5").as_deref(), Some("0.06"));
}

/// If server-side tools ran, the tokens are a sum: what counts is the largest of the prompts, not that sum. If no
/// prompt is known, and one of them may have been long, the cost is unknown.
#[test]
fn sums_over_several_calls_are_not_long_prompts() {
    let sum = |input| used(Tokens { input, ..Tokens::default() });
    let largest =
        |last, largest| Usage { last_prompt: Some(last), largest_prompt: Some(largest), ..sum(120_000) };
    let own = |own, tokens| Usage { own, ..sum(tokens) };
    let long = Tokens { input: 100_001, ..Tokens::default() };
    for (model, usage, expected) in [
        ("claude-haiku-5-5", largest(60_000, 60_000), Some("0.012")),
        ("claude-haiku-5-5", largest(9_000, 100_001), Some("0.06")),
        ("claude-haiku-5-5", own(OwnPrompt::Some(60_000), 120_000), Some("0.012")),
        ("claude-haiku-5-5", own(OwnPrompt::Some(100_001), 120_000), Some("0.06")),
        ("claude-haiku-5-5", own(OwnPrompt::Unknown, 100_000), Some("0.01")),
        ("claude-haiku-5-5", own(OwnPrompt::Unknown, 100_001), None),
        // One price for prompts of any length.
        ("claude-opus-5-5", own(OwnPrompt::Unknown, 1_000_000), Some("4")),
        // A call on the side is compared by itself.
        (
            "claude-haiku-5-5",
            Usage { extra: vec![Extra { model: None, tokens: long }], ..own(OwnPrompt::Unknown, 0) },
            Some("0.0500005"),
        ),
    ] {
        assert_eq!(embedded(&usage, model).as_deref(), expected, "{model} {usage:?}");
    }
}

#[test]
fn tiers_regions_and_searches_modify_the_cost() {
    let tokens = Tokens { input: MILLION, ..Tokens::default() };
    let hour = Tokens { cache_write_1h: MILLION, ..Tokens::default() };
    let standard = |tokens| used(tokens);
    for (model, usage, expected) in [
        ("claude-opus-5-5", standard(tokens), Some("4")),
        ("claude-opus-5-5", Usage { geo: Geo::Us, ..standard(tokens) }, Some("4.4")),
        ("claude-opus-5-5", Usage { speed: Speed::Fast, ..standard(tokens) }, Some("8")),
        ("claude-opus-5-5", Usage { speed: Speed::Fast, geo: Geo::Us, ..standard(tokens) }, Some("8.8")),
        ("claude-opus-5-5", Usage { tier: Tier::Batch, ..standard(tokens) }, Some("2")),
        // The batch list has no rate for writes of an hour: half, as everything else.
        ("claude-opus-5-5", Usage { tier: Tier::Batch, ..standard(hour) }, Some("4")),
        ("claude-opus-5-5", Usage { tier: Tier::Priority, ..standard(tokens) }, None),
        ("claude-opus-5-5", Usage { tier: Tier::Other, ..standard(tokens) }, None),
        ("claude-sonnet-5-5", Usage { speed: Speed::Fast, ..standard(tokens) }, None),
        ("claude-haiku-4-5", Usage { geo: Geo::Us, ..standard(tokens) }, Some("1")),
        ("claude-haiku-4-5", Usage { geo: Geo::Region, ..standard(tokens) }, Some("1")),
        ("claude-haiku-4-5@20251001", Usage { geo: Geo::Region, ..standard(tokens) }, Some("1.1")),
        ("claude-haiku-4-5@20251001", standard(tokens), Some("1")),
        ("claude-3-haiku@20240307", Usage { geo: Geo::Region, ..standard(tokens) }, Some("0.25")),
        ("claude-opus-5-5", Usage { web_searches: 3, ..Usage::default() }, Some("0.03")),
        ("claude-haiku-4-5-20251001", Usage { web_searches: 3, ..Usage::default() }, Some("0.03")),
        ("claude-fable-5-2", Usage { web_searches: 3, ..Usage::default() }, Some("0.03")),
        ("claude-opus-5-5", Usage { prompt_is_unknown: true, ..standard(Tokens::default()) }, None),
        ("claude-opus-5-5", Usage { output_is_unknown: true, ..standard(tokens) }, None),
        ("grok-4.7", Usage { web_searches: 3, ..Usage::default() }, None),
        ("gpt-5.5", Usage { searches_shown: 2, ..Usage::default() }, Some("0.02")),
        ("gpt-5.5", Usage { web_searches: 1, searches_shown: 2, ..Usage::default() }, Some("0.01")),
        ("gpt-5-codex", Usage { searches_shown: 2, ..Usage::default() }, Some("0")),
        // Long context and tier together: 2 × 2 × 0.5.
        ("gpt-6.1-sol", Usage { tier: Tier::Flex, ..standard(tokens) }, Some("2")),
        ("gpt-6.1-sol", Usage { tier: Tier::Ultrafast, ..standard(tokens) }, Some("24")),
    ] {
        assert_eq!(embedded(&usage, model).as_deref(), expected, "{model} {usage:?}");
    }
}

/// Charges that are shown but not stated have a price, or are named as having none.
#[test]
fn shown_searches_are_billed_or_named_as_unpriced() {
    let unpriced = vec![Charge::WebSearch, Charge::FileSearch];
    let usage = Usage { searches_shown: 2, unpriced, ..Usage::default() };
    for (model, expected) in [
        ("gpt-5.5", &["file_search"][..]),
        ("gpt-5-codex", &["web_search", "file_search"]),
        ("unknown", &["web_search", "file_search"]),
    ] {
        let bill = bill(&Catalogue::embedded(), &usage, model, None);
        assert_eq!(unpriced_names(&usage, bill.as_ref()), expected, "{model}");
    }
}

/// Stated rates are base rates; the list's other rates keep their proportion to its base rates.
#[test]
fn overridden_rates_scale_tier_and_long_context_rates() {
    let stated = |input: Option<&str>, output: Option<&str>, cache_read: Option<&str>| Stated {
        input: input.map(rate),
        output: output.map(rate),
        cache_read: cache_read.map(rate),
        ..Stated::default()
    };
    let nothing = Stated::default();
    let (input, read) =
        (Tokens { input: MILLION, ..Tokens::default() }, Tokens { cache_read: MILLION, ..Tokens::default() });
    let output = Tokens { output: MILLION, ..Tokens::default() };
    let short = Tokens { input: 100_000, ..Tokens::default() };
    let batch = |tokens| Usage { tier: Tier::Batch, ..used(tokens) };
    for (model, stated, usage, expected) in [
        // Twice the base rates beyond 272,000 tokens: 2.50 and 0.25.
        ("gpt-5.4", nothing, used(input), "5"),
        ("gpt-5.4", nothing, used(read), "0.5"),
        ("gpt-5.4", stated(Some("1"), None, None), used(input), "2"),
        ("gpt-5.4", stated(Some("1"), None, None), used(short), "0.1"),
        ("gpt-5.4", stated(Some("1"), None, None), used(read), "0.5"),
        ("gpt-5.4", stated(None, None, Some("0.1")), used(read), "0.2"),
        ("gpt-5.4", stated(None, None, Some("0.1")), used(input), "5"),
        ("gpt-5.4", stated(Some("0"), None, None), used(input), "0"),
        // Half of the base rates, 3 and 15.
        ("claude-sonnet-4-6", nothing, batch(input), "1.5"),
        ("claude-sonnet-4-6", stated(Some("2"), None, None), batch(input), "1"),
        ("claude-sonnet-4-6", stated(Some("2"), None, None), batch(output), "7.5"),
        ("claude-sonnet-4-6", stated(None, Some("20"), None), batch(output), "10"),
        // A tenth more in the United States.
        ("claude-opus-4-6", stated(Some("1"), None, None), Usage { geo: Geo::Us, ..used(input) }, "1.1"),
        // No rate for batches is listed that could be moved.
        ("of-tomorrow", stated(Some("1"), Some("2"), None), batch(input), ""),
        ("of-tomorrow", stated(Some("1"), Some("2"), None), used(read), "1"),
    ] {
        let catalogue = Catalogue::with_overrides(vec![(model.to_owned(), stated)]).unwrap();
        let price = catalogue.find(model, None).unwrap().price;
        let total = cost(&usage, &price).map(|lines| lines.total().usd());
        assert_eq!(total.unwrap_or_default(), expected, "{model} {stated:?} {usage:?}");
    }
}

proptest! {
    /// An override equal to the list costs what the list says.
    #[test]
    fn overrides_equal_to_the_list_change_nothing(
        at in any::<prop::sample::Index>(),
        [input, cache_read, cache_write_5m, cache_write_1h, output] in prop::array::uniform5(0..2 * MILLION),
        tier in prop::sample::select(&[Tier::Standard, Tier::Batch, Tier::Priority, Tier::Flex, Tier::Ultrafast][..]),
        stated in any::<[bool; 5]>(),
    ) {
        let rows: Vec<_> = Catalogue::rows().collect();
        let (vendor, name, price) = at.get(&rows);
        let base = price.base;
        let [a, b, c, d, e] = stated;
        let stated = Stated {
            input: a.then_some(base.input),
            output: b.then_some(base.output),
            cache_read: base.cache_read.filter(|_| c),
            cache_write_5m: base.cache_write_5m.filter(|_| d),
            cache_write_1h: base.cache_write_1h.filter(|_| e),
            ..Stated::default()
        };
        let catalogue = Catalogue::with_overrides(vec![("*".to_owned(), stated)]).unwrap();
        let tokens = Tokens { input, cache_read, cache_write_5m, cache_write_1h, output, ..Tokens::default() };
        let usage = Usage { tier, ..used(tokens) };
        let lines = |catalogue: &Catalogue| {
            bill(catalogue, &usage, name, Some(*vendor)).map(|bill| bill.lines)
        };
        prop_assert_eq!(lines(&catalogue), lines(&Catalogue::embedded()), "{} {:?}", name, stated);
    }
}

#[test]
fn missing_rates_are_derived_from_listed_ones() {
    let bare = price_of(rate("4"), rate("8"));
    let surcharged = Price { base: Rates { cache_write_5m: Some(rate("5")), ..bare.base }, ..bare.clone() };
    let apart = Price { base: Rates { reasoning: Some(rate("1")), ..bare.base }, ..bare.clone() };
    let read = Tokens { cache_read: MILLION, ..Tokens::default() };
    let short = Tokens { cache_write_5m: MILLION, ..Tokens::default() };
    let hour = Tokens { cache_write_1h: MILLION, ..Tokens::default() };
    let half_day = Tokens { cache_write_12h: MILLION, ..Tokens::default() };
    let thought = Tokens { output: 2 * MILLION, reasoning: MILLION, ..Tokens::default() };
    for (price, tokens, expected) in [
        (&bare, read, "4"),
        (&bare, short, "4"),
        (&bare, hour, "4"),
        (&bare, half_day, "4"),
        (&surcharged, short, "5"),
        (&surcharged, hour, "8"),
        (&surcharged, half_day, "10"),
        (&bare, thought, "16"),
        (&apart, thought, "9"),
    ] {
        assert_eq!(cost(&used(tokens), price).unwrap().total().usd(), expected, "{tokens:?}");
    }
}

#[test]
fn audio_is_billed_at_its_own_price_or_unpriced() {
    let input = |input| Tokens { input, ..Tokens::default() };
    let heard = |audio_input, tokens| Usage { audio_input, ..used(tokens) };
    let cached = Tokens { cache_read: 1, ..input(MILLION) };
    for (model, usage, expected) in [
        // 0.6 × 0.30 + 0.4 × 1
        ("gemini-2.5-flash", heard(400_000, input(MILLION)), Some("0.58")),
        ("gemini-2.5-flash", heard(MILLION, input(MILLION)), Some("1")),
        ("gemini-2.5-flash", heard(0, input(MILLION)), Some("0.3")),
        ("gpt-audio", heard(MILLION, input(MILLION)), Some("32")),
        ("gpt-5", heard(1, input(MILLION)), None),
        ("gemini-2.5-flash", heard(1, cached), None),
        ("gemini-2.5-flash", Usage { tier: Tier::Flex, ..heard(1, input(MILLION)) }, None),
        ("gpt-audio", Usage { media_output: 1, ..used(input(MILLION)) }, None),
    ] {
        assert_eq!(embedded(&usage, model).as_deref(), expected, "{model} {usage:?}");
    }
}

#[test]
fn bills_include_extra_calls_and_stated_costs() {
    let own = Tokens { input: MILLION, ..Tokens::default() };
    let extra = |model: Option<&str>| Usage {
        extra: vec![Extra { model: model.map(str::to_owned), tokens: own }],
        ..used(own)
    };
    let stated = Usage { provider_cost: Some(Money::from_usd_str("0.5").unwrap()), ..used(own) };
    for (model, usage, expected) in [
        ("claude-opus-5-5", used(own), Some("4")),
        ("claude-opus-5-5", extra(None), Some("8")),
        ("claude-opus-5-5", extra(Some("claude-sonnet-5-5")), Some("6")),
        ("claude-opus-5-5", extra(Some("unheard-of")), None),
        ("unheard-of", used(own), None),
        ("unheard-of", stated.clone(), Some("0.5")),
        ("claude-opus-5-5", stated, Some("0.5")),
    ] {
        let bill = bill(&Catalogue::embedded(), &usage, model, Some(Vendor::Anthropic));
        assert_eq!(bill.map(|bill| bill.total.usd()).as_deref(), expected, "{model}");
        if let Some(Bill { total, lines: Some(lines), .. }) = bill {
            assert_eq!(lines.total(), total);
        }
    }
}

/// Of a call without a bill, the part with a known price counts, at the lowest rate that may apply.
#[test]
fn what_is_known_of_a_cost_is_a_lower_bound() {
    let prompt = |input| used(Tokens { input, ..Tokens::default() });
    let sum = |tokens| Usage { own: OwnPrompt::Unknown, ..used(tokens) };
    let long = Tokens { input: MILLION, output: 1000, ..Tokens::default() };
    let extra = |model: &str, usage: Usage| Usage {
        extra: vec![Extra { model: Some(model.to_owned()), tokens: prompt(MILLION).tokens }],
        ..usage
    };
    for (model, usage, expected) in [
        ("claude-haiku-5-5", sum(prompt(100_001).tokens), Some("0.0100001")),
        ("gpt-5.4", sum(prompt(MILLION).tokens), Some("2.5")),
        ("gpt-5.4", sum(long), Some("2.515")),
        ("gpt-5.4", Usage { tier: Tier::Flex, ..sum(long) }, Some("1.2575")),
        ("gpt-5.4", Usage { prompt_is_unknown: true, ..used(long) }, Some("0.015")),
        // That prompt is a long one.
        ("gpt-5.4", Usage { output_is_unknown: true, ..used(long) }, Some("5")),
        ("gpt-5.4", Usage { web_searches: 3, output_is_unknown: true, ..prompt(MILLION) }, Some("5")),
        ("claude-haiku-5-5", Usage { web_searches: 3, ..sum(prompt(MILLION).tokens) }, Some("0.13")),
        ("claude-opus-5-5", extra("unheard-of", prompt(MILLION)), Some("4")),
        (
            "claude-opus-5-5",
            extra("claude-sonnet-5-5", Usage { output_is_unknown: true, ..prompt(MILLION) }),
            Some("6"),
        ),
        ("gpt-5", Usage { audio_input: 400_000, ..prompt(MILLION) }, Some("0.75")),
        (
            "gpt-audio",
            Usage { media_output: 900, ..used(Tokens { output: 1000, ..Tokens::default() }) },
            Some("0.001"),
        ),
        ("gpt-5.4", Usage { tier: Tier::Other, ..prompt(9) }, None),
        ("unheard-of", prompt(9), None),
    ] {
        let catalogue = Catalogue::embedded();
        let least = min_cost(&catalogue, &usage, model, None);
        assert_eq!(least.map(Money::usd).as_deref(), expected, "{model} {usage:?}");
        assert_eq!(bill(&catalogue, &usage, model, None), None, "{model} {usage:?}");
    }
}

#[test]
fn no_list_price_is_lower_for_long_prompts() {
    for (vendor, name, price) in Catalogue::rows() {
        let mut lengths: Vec<u64> = price.above.iter().map(|above| above.gt + 1).collect();
        lengths.sort_unstable();
        for kind in 0..6 {
            let mut counts = [0; 6];
            counts[kind] = MILLION;
            let [input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, output] = counts;
            let tokens = Tokens {
                input,
                cache_read,
                cache_write_5m,
                cache_write_1h,
                cache_write_12h,
                output,
                reasoning: 0,
            };
            let at = |length: u64| Usage { largest_prompt: Some(length), ..used(tokens) };
            let costs = [0].iter().chain(&lengths).map(|length| cost(&at(*length), &price).unwrap().total());
            assert!(costs.is_sorted(), "{vendor:?} {name} {tokens:?}");
        }
    }
}

#[test]
fn nothing_used_costs_nothing() {
    assert_eq!(embedded(&Usage::default(), "gpt-5.5").as_deref(), Some("0"));
}

proptest! {
    #[test]
    fn cost_is_linear_below_thresholds(counts in any::<[u32; 6]>()) {
        let [input, cache_read, cache_write_5m, cache_write_1h, output, reasoning] = counts.map(u64::from);
        let tokens = Tokens {
            input,
            cache_read,
            cache_write_5m,
            cache_write_1h,
            cache_write_12h: 0,
            output,
            reasoning,
        };
        let total = |tokens| cost(&used(tokens), &sonnet()).unwrap().total();
        prop_assert_eq!(total(tokens + tokens), total(tokens) + total(tokens));
    }

    #[test]
    fn arbitrary_usage_has_a_non_negative_cost(counts in any::<[u64; 7]>(), tier in 0..5_usize) {
        let [input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, output, reasoning] = counts;
        let tokens = Tokens {
            input,
            cache_read,
            cache_write_5m,
            cache_write_1h,
            cache_write_12h,
            output,
            reasoning,
        };
        let tier = [Tier::Standard, Tier::Batch, Tier::Priority, Tier::Flex, Tier::Ultrafast][tier];
        let usage = Usage { tier, geo: Geo::Us, ..used(tokens) };
        let price = Catalogue::embedded().find("gpt-6.1-sol", None).unwrap().price;
        prop_assert!(cost(&usage, &price).unwrap().total() >= Money::ZERO);
    }
}
