//! Streams and meanings folded into records.

use proptest::prelude::*;

use super::*;

/// Figures with a prompt figure that includes cache reads and writes.
fn inclusive(
    prompt: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
) -> Partial {
    Partial { prompt: prompt.map(Prompt::Total), cache_read, cache_write, output, ..Partial::default() }
}

/// Figures with the uncached rest, cache reads and cache writes side by side.
fn disjoint(
    uncached: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
) -> Partial {
    Partial { prompt: uncached.map(Prompt::Uncached), cache_read, cache_write, output, ..Partial::default() }
}

fn check(events: impl IntoIterator<Item = Partial>, expected: Tokens) {
    let mut folded = Partial::default();
    for event in events {
        folded.fold(event);
    }
    assert_eq!(folded.finish().map(|usage| usage.tokens), Some(expected));
}

/// The same response as three providers report it: 904 uncached, 4096 read, 420 out of which 300 reasoning.
#[test]
fn usage_of_three_providers_is_normalised_alike() {
    let expected = Tokens { input: 904, cache_read: 4096, output: 420, reasoning: 300, ..Tokens::default() };
    // {"prompt_tokens":5000,"completion_tokens":420,"prompt_tokens_details":{"cached_tokens":4096},
    //  "completion_tokens_details":{"reasoning_tokens":300}}
    let openai = Partial {
        reasoning: Some(Reasoning::Inside(300)),
        ..inclusive(Some(5000), Some(4096), None, Some(420))
    };
    // {"input_tokens":904,"cache_read_input_tokens":4096,"cache_creation_input_tokens":0,
    //  "output_tokens":420,"output_tokens_details":{"thinking_tokens":300}}
    let anthropic = Partial {
        reasoning: Some(Reasoning::Inside(300)),
        ..disjoint(Some(904), Some(4096), Some(0), Some(420))
    };
    // {"promptTokenCount":4900,"toolUsePromptTokenCount":100,"cachedContentTokenCount":4096,
    //  "candidatesTokenCount":120,"thoughtsTokenCount":300}
    let gemini = Partial {
        tool_prompt: Some(100),
        reasoning: Some(Reasoning::Beside(300)),
        ..inclusive(Some(4900), Some(4096), None, Some(120))
    };
    assert_eq!(gemini.clone().finish().map(|usage| usage.beside_prompt), Some(100));
    let alike = |usage: Usage| Usage { beside_prompt: 0, ..usage };
    let records = [openai, anthropic, gemini].map(|partial| partial.finish().map(alike));
    assert!(records.iter().all(|record| *record == records[0]));
    assert_eq!(records[0].as_ref().map(|usage| usage.tokens), Some(expected));
}

#[test]
fn anthropic_stream_keeps_the_split_of_its_start() {
    let start = Partial {
        cache_write_5m: Some(300),
        cache_write_1h: Some(600),
        tier: Some(Tier::Batch),
        ..disjoint(Some(12), Some(41_000), Some(900), Some(1))
    };
    let delta = disjoint(None, None, Some(900), Some(310));
    let expected = Tokens {
        input: 12,
        cache_read: 41_000,
        cache_write_5m: 300,
        cache_write_1h: 600,
        output: 310,
        ..Tokens::default()
    };
    check([start.clone(), delta.clone()], expected);
    // A total that grew later was for the default time.
    let grown = Partial { cache_write: Some(1000), ..delta.clone() };
    check([start.clone(), grown.clone()], Tokens { cache_write_5m: 400, ..expected });
    let untold = |events: [&Partial; 2]| {
        let mut folded = Partial::default();
        for event in events {
            folded.fold(event.clone());
        }
        folded.finish().map(|usage| usage.cache_write_untold)
    };
    assert_eq!((untold([&start, &delta]), untold([&start, &grown])), (Some(0), Some(100)));
    // Cut off before any delta: what the start said.
    check([start.clone()], Tokens { output: 1, ..expected });
    assert_eq!(start.finish().map(|usage| usage.tier), Some(Tier::Batch));
}

/// If another model takes over within a stream, the last figures apply, and only the first event states lifetimes.
#[test]
fn a_smaller_total_of_writes_reduces_the_split_by_lifetime() {
    for (split, written, expected) in [
        ((0, 90_000), 0, (0, 0)),
        ((90_000, 0), 0, (0, 0)),
        ((0, 90_000), 400, (0, 400)),
        ((90_000, 0), 400, (400, 0)),
        ((30_000, 60_000), 40_000, (30_000, 10_000)),
        ((30_000, 60_000), 90_000, (30_000, 60_000)),
    ] {
        let start = Partial {
            cache_write_5m: Some(split.0),
            cache_write_1h: Some(split.1),
            ..disjoint(Some(12), Some(0), Some(90_000), Some(1))
        };
        let read = 90_000 - written;
        let delta = disjoint(None, Some(read), Some(written), Some(50));
        let (cache_write_5m, cache_write_1h) = expected;
        let cached = Tokens { cache_read: read, cache_write_5m, cache_write_1h, ..Tokens::default() };
        check([start, delta], Tokens { input: 12, output: 50, ..cached });
    }
}

#[test]
fn zeros_after_a_stated_prompt_are_ignored() {
    let total = Some(107);
    let stated = Partial { total, ..inclusive(Some(100), Some(60), None, Some(7)) };
    let zeros = Partial { total: Some(0), ..inclusive(Some(0), Some(0), Some(0), Some(0)) };
    let expected = Tokens { input: 40, cache_read: 60, output: 7, ..Tokens::default() };
    check([stated.clone(), zeros.clone()], expected);
    check([zeros.clone(), stated.clone()], expected);
    check([zeros.clone(), zeros.clone()], Tokens::default());
    check([zeros.clone()], Tokens::default());
    // Other figures stated with them are kept.
    check([stated.clone(), Partial { output: Some(9), ..zeros }], Tokens { output: 9, ..expected });
    // All of the prompt may come from the cache.
    let start = disjoint(Some(40), Some(60), Some(0), Some(1));
    let cached = disjoint(Some(0), Some(100), Some(0), Some(7));
    check([start.clone(), cached], Tokens { cache_read: 100, output: 7, ..Tokens::default() });
    let delta = disjoint(Some(0), None, None, Some(7));
    check([start, delta], expected);
}

#[test]
fn inclusive_streams_subtract_after_folding() {
    let first = inclusive(Some(5000), Some(4096), None, None);
    let last =
        Partial { reasoning: Some(Reasoning::Beside(300)), ..inclusive(Some(5000), None, None, Some(120)) };
    let expected = Tokens { input: 904, cache_read: 4096, output: 420, reasoning: 300, ..Tokens::default() };
    check([first, last], expected);
}

#[test]
fn inconsistent_figures_saturate() {
    let tokens = |partial: Partial| partial.finish().map(|usage| usage.tokens);
    for (partial, expected) in [
        // More cached than there was.
        (
            inclusive(Some(100), Some(150), Some(10), Some(1)),
            Tokens { cache_read: 150, cache_write_5m: 10, output: 1, ..Tokens::default() },
        ),
        // Reasoning that cannot be inside the output.
        (
            Partial { reasoning: Some(Reasoning::Inside(50)), ..inclusive(Some(10), None, None, Some(20)) },
            Tokens { input: 10, output: 70, reasoning: 50, ..Tokens::default() },
        ),
        // Parts beyond the total.
        (
            Partial {
                cache_write_5m: Some(7),
                cache_write_12h: Some(9),
                ..disjoint(None, None, Some(3), None)
            },
            Tokens { cache_write_5m: 7, cache_write_12h: 9, ..Tokens::default() },
        ),
    ] {
        assert_eq!(tokens(partial), Some(expected));
    }
}

#[test]
fn usage_with_nothing_stated_is_unknown() {
    let silent = Partial { tier: Some(Tier::Flex), web_searches: Some(0), ..Partial::default() };
    assert_eq!(silent.finish(), None);
    let zero = disjoint(Some(0), None, None, None);
    assert_eq!(zero.finish(), Some(Usage { output_is_unknown: true, ..Usage::default() }));
    let cost = Partial { provider_cost: Some(Money::ZERO), ..Partial::default() };
    assert!(cost.finish().is_some());
}

#[test]
fn an_unstated_prompt_is_the_rest_of_the_total_or_unknown() {
    let stated = |output, total| Partial { output, total, ..Partial::default() };
    let prompt = |events: &[Partial]| {
        let mut folded = Partial::default();
        for event in events {
            folded.fold(event.clone());
        }
        folded.finish().filter(|usage| !usage.prompt_is_unknown).map(|usage| usage.tokens.prompt())
    };
    let beside = Partial {
        tool_prompt: Some(100),
        reasoning: Some(Reasoning::Beside(300)),
        ..stated(Some(20), Some(1420))
    };
    for (events, expected) in [
        (vec![stated(Some(50), Some(1050))], Some(1000)),
        (vec![stated(Some(50), Some(50))], None),
        (vec![stated(Some(0), Some(0))], Some(0)),
        (vec![stated(Some(50), Some(49))], None),
        (vec![stated(Some(50), None)], None),
        (vec![beside], Some(1100)),
        // Figures of different events are not mixed, unless nothing newer is stated.
        (vec![stated(Some(10), Some(1010)), stated(Some(50), None)], None),
        (vec![stated(Some(10), Some(1010)), stated(Some(50), Some(1050))], Some(1000)),
        (vec![inclusive(Some(7), None, None, None), stated(Some(50), Some(99))], Some(7)),
        (vec![disjoint(None, Some(900), None, Some(5))], None),
    ] {
        assert_eq!(prompt(&events), expected, "{events:?}");
    }
    // Nothing is answered without a prompt.
    let zeros = inclusive(Some(0), Some(0), None, Some(0));
    for (partial, expected) in [
        (zeros.clone(), Some(0)),
        (Partial { output: Some(7), ..zeros.clone() }, None),
        (Partial { output: Some(7), total: Some(7), ..zeros.clone() }, None),
        (Partial { output: Some(7), cache_read: Some(60), ..zeros.clone() }, Some(60)),
        (Partial { output: Some(7), cache_write_1h: Some(60), ..zeros.clone() }, Some(60)),
        (Partial { output: Some(7), tool_prompt: Some(60), ..zeros }, Some(60)),
        (disjoint(Some(0), None, None, Some(7)), None),
        (disjoint(Some(0), Some(60), None, Some(7)), Some(60)),
    ] {
        assert_eq!(prompt(std::slice::from_ref(&partial)), expected, "{partial:?}");
    }
    let rest = Partial {
        reasoning: Some(Reasoning::Beside(300)),
        total: Some(1350),
        ..inclusive(Some(1000), None, None, None)
    };
    check([rest], Tokens { input: 1000, output: 350, reasoning: 300, ..Tokens::default() });
}

#[test]
fn an_unstated_output_is_the_rest_of_the_total_or_unknown() {
    let stated = |prompt, output, total| Partial { total, ..inclusive(prompt, None, None, output) };
    for (partial, expected) in [
        (stated(Some(1000), Some(0), None), Some(0)),
        (stated(Some(1000), Some(50), Some(7)), Some(50)),
        (stated(Some(1000), None, Some(1000)), Some(0)),
        (stated(Some(1000), None, Some(1050)), Some(50)),
        (stated(Some(1000), None, Some(999)), None),
        (stated(Some(1000), None, None), None),
        (Partial { reasoning: Some(Reasoning::Beside(3)), ..stated(Some(1000), None, None) }, None),
        (disjoint(Some(1000), Some(9), None, None), None),
        (Partial { total: Some(1009), ..disjoint(Some(1000), Some(9), None, None) }, None),
    ] {
        let usage = partial.clone().finish().unwrap();
        let found = (!usage.output_is_unknown).then_some(usage.tokens.output);
        assert_eq!(found, expected, "{partial:?}");
    }
}

#[test]
fn unpriced_charges_are_kept_once() {
    use Charge::{CodeExecution, Grounding, WebSearch};
    let shown = |unpriced: &[Charge]| Partial {
        unpriced: unpriced.to_vec(),
        ..inclusive(Some(1), None, None, Some(1))
    };
    let searched = Partial { web_searches: Some(2), ..shown(&[WebSearch, CodeExecution]) };
    let stated = Partial { provider_cost: Some(Money::ZERO), ..shown(&[Grounding]) };
    for (events, expected) in [
        (vec![shown(&[])], &[][..]),
        (vec![shown(&[WebSearch]), shown(&[Grounding, WebSearch]), shown(&[])], &[Grounding, WebSearch]),
        (vec![searched], &[CodeExecution]),
        (vec![shown(&[Grounding]), stated], &[]),
    ] {
        let mut folded = Partial::default();
        for event in &events {
            folded.fold(event.clone());
        }
        assert_eq!(folded.finish().unwrap().unpriced, expected, "{events:?}");
    }
}

#[test]
fn newer_lists_replace_older_ones() {
    let call = |output| Extra { model: None, tokens: Tokens { output, ..Tokens::default() } };
    let mut folded = Partial { extra: Some(vec![call(1)]), ..Partial::default() };
    folded.fold(Partial { extra: Some(vec![call(1), call(2)]), ..Partial::default() });
    folded.fold(Partial::default());
    assert_eq!(folded.finish().map(|usage| usage.billed_tokens().output), Some(3));
}

proptest! {
    #[test]
    fn every_prompt_token_is_in_one_bucket(
        uncached in 0..1_u64 << 40,
        read in 0..1_u64 << 40,
        written in 0..1_u64 << 40,
    ) {
        let disjoint = disjoint(Some(uncached), Some(read), Some(written), None);
        let total = uncached + read + written;
        let inclusive = inclusive(Some(total), Some(read), Some(written), None);
        let record = inclusive.finish();
        prop_assert_eq!(&disjoint.finish(), &record);
        prop_assert_eq!(record.map(|usage| usage.tokens.prompt()), Some(total));
    }

    #[test]
    fn arbitrary_figures_have_consistent_usage(counts in any::<[Option<u64>; 6]>(), beside in any::<u64>()) {
        let [prompt, cached, written, output, hour, tool] = counts;
        let partial = Partial {
            cache_write_1h: hour,
            tool_prompt: tool,
            reasoning: Some(Reasoning::Beside(beside)),
            ..inclusive(prompt, cached, written, output)
        };
        let tokens = partial.finish().map(|usage| usage.tokens);
        prop_assert!(tokens.is_some_and(|tokens| tokens.reasoning <= tokens.output));
    }
}
