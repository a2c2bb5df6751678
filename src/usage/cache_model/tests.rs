//! Prompts sent through the model, against what the providers document.

use proptest::prelude::*;

use super::*;
use crate::usage::Rate;

const MINUTE: u64 = 60_000;
const M5: Option<Ttl> = Some(Ttl::FiveMinutes);
const H1: Option<Ttl> = Some(Ttl::OneHour);

/// Blocks of `(key, tokens, mark)`.
fn prompt(blocks: &[(u128, u64, Option<Ttl>)]) -> PromptShape {
    let block = |&(key, tokens, mark)| Block { key, tokens, mark, bound: 0 };
    PromptShape { blocks: blocks.iter().map(block).collect(), automatic: None, late: vec![] }
}

/// `count` unmarked blocks of 10 tokens with keys from `first` on.
fn run(first: u128, count: u128) -> Vec<(u128, u64, Option<Ttl>)> {
    (first..first + count).map(|key| (key, 10, None)).collect()
}

/// Expected `[read, write_1h, write_5m, uncached]`.
fn check(model: &mut CacheModel, now_ms: u64, shape: &PromptShape, expected: [u64; 4]) {
    let found = model.observe(1, shape, now_ms);
    assert_eq!([found.read, found.write_1h, found.write_5m, found.uncached], expected, "at {now_ms}");
}

fn anthropic() -> CacheModel {
    CacheModel::new(CacheKind::anthropic(1024))
}

#[test]
fn a_growing_conversation_reads_what_it_wrote() {
    let mut model = anthropic();
    check(&mut model, 0, &prompt(&[(1, 2000, M5), (2, 500, M5)]), [0, 0, 2500, 0]);
    let second = prompt(&[(1, 2000, M5), (2, 500, None), (3, 100, None), (4, 400, M5)]);
    check(&mut model, MINUTE, &second, [2500, 0, 500, 0]);
    check(&mut model, MINUTE, &second, [3000, 0, 0, 0]);
    // Unmarked ends are never cached.
    let third = prompt(&[(1, 2000, M5), (2, 500, None), (3, 100, None), (4, 400, None), (5, 70, None)]);
    check(&mut model, MINUTE, &third, [2000, 0, 0, 1070]);
    assert_eq!(model.observe(2, &second, MINUTE).read, 0, "scopes are apart");
}

#[test]
fn without_marks_nothing_is_cached() {
    let shape = prompt(&[(1, 5000, None)]);
    let mut model = anthropic();
    check(&mut model, 0, &shape, [0, 0, 0, 5000]);
    check(&mut model, 0, &shape, [0, 0, 0, 5000]);
    let automatic = PromptShape { automatic: M5, ..shape };
    check(&mut model, 0, &automatic, [0, 0, 5000, 0]);
    check(&mut model, 0, &automatic, [5000, 0, 0, 0]);
    check(&mut model, 0, &PromptShape { automatic: M5, ..PromptShape::default() }, [0, 0, 0, 0]);
}

#[test]
fn mixed_lifetimes_are_billed_by_their_part_of_the_prompt() {
    let mut model = anthropic();
    // A = 0, B = 3000, C = 3500.
    let first = [(1, 2000, H1), (2, 1000, H1), (3, 500, M5), (4, 10, None)];
    check(&mut model, 0, &prompt(&first), [0, 3000, 500, 10]);
    // A = 3000 after ten minutes: the hour's part is left.
    check(&mut model, 10 * MINUTE, &prompt(&first), [3000, 0, 500, 10]);
    // A = 3500, B = 3510 and C before it.
    let grown = [(1, 2000, None), (2, 1000, H1), (3, 500, M5), (4, 10, H1)];
    check(&mut model, 11 * MINUTE, &prompt(&grown), [3500, 10, 0, 0]);
}

#[test]
fn short_prefixes_are_ignored() {
    let mut model = anthropic();
    let short = prompt(&[(1, 1023, M5)]);
    check(&mut model, 0, &short, [0, 0, 0, 1023]);
    check(&mut model, 0, &short, [0, 0, 0, 1023]);
    let enough = prompt(&[(1, 1023, M5), (2, 1, M5)]);
    check(&mut model, 0, &enough, [0, 0, 1024, 0]);
    check(&mut model, 0, &enough, [1024, 0, 0, 0]);
    check(&mut model, 0, &short, [0, 0, 0, 1023]);
}

#[test]
fn a_mark_reaches_twenty_blocks() {
    for (appended, intermediate, expected) in [
        (19, None, [2000, 0, 190, 0]),
        (20, None, [0, 0, 2200, 0]),
        (20, Some(10), [2000, 0, 200, 0]),
        (39, Some(19), [2000, 0, 390, 0]),
        (40, Some(20), [0, 0, 2400, 0]),
    ] {
        let mut model = anthropic();
        check(&mut model, 0, &prompt(&[(1, 2000, M5)]), [0, 0, 2000, 0]);
        let mut blocks = vec![(1, 2000, None)];
        blocks.extend(run(100, appended));
        if let Some(at) = intermediate {
            blocks[at].2 = M5;
        }
        blocks.last_mut().unwrap().2 = M5;
        check(&mut model, 0, &prompt(&blocks), expected);
    }
}

#[test]
fn a_miss_falls_back_to_an_earlier_mark() {
    let mut model = anthropic();
    check(&mut model, 0, &prompt(&[(1, 2000, M5), (2, 1000, M5)]), [0, 0, 3000, 0]);
    let mut blocks = vec![(1, 2000, M5), (2, 1000, None)];
    blocks.extend(run(100, 30));
    blocks.last_mut().unwrap().2 = M5;
    check(&mut model, 0, &prompt(&blocks), [2000, 0, 1300, 0]);
}

#[test]
fn only_four_marks_count() {
    let mut model = anthropic();
    let marked: Vec<_> = (1..=6).map(|key| (key, 2000, M5)).collect();
    check(&mut model, 0, &prompt(&marked), [0, 0, 12_000, 0]);
    check(&mut model, 0, &prompt(&marked[..2]), [0, 0, 4000, 0]);
    check(&mut model, 0, &prompt(&marked[..3]), [6000, 0, 0, 0]);
}

#[test]
fn reads_refresh_entries_and_idleness_expires_them() {
    for (mark, ttl) in [(M5, Ttl::FiveMinutes), (H1, Ttl::OneHour)] {
        let mut model = anthropic();
        let shape = prompt(&[(1, 2000, mark)]);
        let read = |model: &mut CacheModel, now| model.observe(1, &shape, now).read;
        let almost = ttl.millis() - 1;
        assert_eq!(read(&mut model, 0), 0);
        assert_eq!(read(&mut model, almost), 2000);
        assert_eq!(read(&mut model, 2 * almost), 2000);
        assert_eq!(read(&mut model, 2 * almost + ttl.millis()), 0);
        // A clock that runs backwards expires nothing.
        assert_eq!(read(&mut model, 0), 2000);
    }
}

#[test]
fn a_rewritten_entry_takes_the_new_lifetime() {
    let mut model = anthropic();
    check(&mut model, 0, &prompt(&[(1, 2000, M5)]), [0, 0, 2000, 0]);
    // Read, not written: the hour is not bought.
    check(&mut model, MINUTE, &prompt(&[(1, 2000, H1)]), [2000, 0, 0, 0]);
    check(&mut model, 7 * MINUTE, &prompt(&[(1, 2000, H1)]), [0, 2000, 0, 0]);
    check(&mut model, 50 * MINUTE, &prompt(&[(1, 2000, M5)]), [2000, 0, 0, 0]);
    // A new mark inside a five-minute read lasts five minutes.
    let mut model = anthropic();
    check(&mut model, 0, &prompt(&[(1, 2000, None), (2, 500, M5)]), [0, 0, 2500, 0]);
    check(&mut model, MINUTE, &prompt(&[(1, 2000, H1), (2, 500, M5)]), [2500, 0, 0, 0]);
    check(&mut model, 2 * MINUTE, &prompt(&[(1, 2000, H1)]), [2000, 0, 0, 0]);
    check(&mut model, 8 * MINUTE, &prompt(&[(1, 2000, H1)]), [0, 2000, 0, 0]);
}

#[test]
fn a_fork_reads_the_shared_prefix() {
    let mut model = anthropic();
    check(&mut model, 0, &prompt(&[(1, 2000, M5), (2, 300, None), (3, 200, M5)]), [0, 0, 2500, 0]);
    let fork = prompt(&[(1, 2000, M5), (2, 300, None), (9, 250, M5)]);
    check(&mut model, 0, &fork, [2000, 0, 550, 0]);
    // Both branches live on.
    check(&mut model, 0, &prompt(&[(1, 2000, M5), (2, 300, None), (3, 200, M5)]), [2500, 0, 0, 0]);
    check(&mut model, 0, &fork, [2550, 0, 0, 0]);
    // A change at the front is a change of everything.
    check(&mut model, 0, &prompt(&[(8, 2000, M5), (2, 300, None), (3, 200, M5)]), [0, 0, 2500, 0]);
}

#[test]
fn automatic_caches_read_whole_steps() {
    for (tokens, expected) in [
        (1023, [0, 0, 0, 1023]),
        (1024, [1024, 0, 0, 0]),
        (1151, [1024, 0, 0, 127]),
        (1152, [1152, 0, 0, 0]),
        (5000, [4992, 0, 0, 8]),
    ] {
        let mut model = CacheModel::new(CacheKind::openai(Writes::Free));
        let shape = prompt(&[(1, tokens, None)]);
        check(&mut model, 0, &shape, [0, 0, 0, tokens]);
        check(&mut model, 0, &shape, expected);
    }
    let mut gemini = CacheModel::new(CacheKind::gemini(4096));
    let shape = prompt(&[(1, 4096, None), (2, 3, None)]);
    check(&mut gemini, 0, &shape, [0, 0, 0, 4099]);
    check(&mut gemini, 0, &shape, [4099, 0, 0, 0]);
}

/// A request with changed parameters reads what precedes the first block bound to them; with the old parameters again,
/// it reads all that was written with them. Where writes are not billed, this is not known.
#[test]
fn changed_parameters_miss_the_blocks_bound_to_them() {
    let asked = |blocks: &[(u128, u64, Option<Ttl>)], bound: u64| {
        let mut shape = prompt(blocks);
        shape.blocks[1].bound = bound;
        shape
    };
    let blocks = [(1, 2048, M5), (2, 1024, M5), (3, 1024, M5)];
    let (written, part, read) = ([0, 0, 4096, 0], [2048, 0, 2048, 0], [4096, 0, 0, 0]);
    let billed = CacheKind::openai(Writes::Billed);
    let free = ([0, 0, 0, 4096], read);
    for (kind, (first, other)) in [
        (CacheKind::anthropic(1024), (written, part)),
        (billed, (written, part)),
        (CacheKind::openai(Writes::Free), free),
        (CacheKind::gemini(1024), free),
    ] {
        let mut model = CacheModel::new(kind);
        for (bound, expected) in [(0, first), (7, other), (0, read), (7, read), (8, other)] {
            check(&mut model, 0, &asked(&blocks, bound), expected);
        }
    }
}

/// How much more would be read of a prompt if what it is asked with did not matter.
#[test]
fn blocks_missed_by_changed_parameters_count_as_lapsed() {
    let asked = |blocks: &[(u128, u64, Option<Ttl>)], bound: u64| {
        let mut shape = prompt(blocks);
        shape.blocks[1].bound = bound;
        shape
    };
    let mut model = anthropic();
    let blocks = [(1, 2048, M5), (2, 1024, M5), (3, 1024, None)];
    for (what, bound, read, lapsed) in [
        ("first", 0, 0, 0),
        ("otherwise", 7, 2048, 1024),
        ("otherwise again", 7, 3072, 0),
        ("in another way", 8, 2048, 1024),
    ] {
        let found = model.observe(1, &asked(&blocks, bound), 0);
        assert_eq!((found.read, found.lapsed), (read, lapsed), "{what}");
    }
}

/// Requests of a cache: blocks, when it is sent, when its answer begins, and what is read.
#[test]
fn entries_are_readable_once_their_request_is_answered() {
    type Asked = (&'static str, &'static [u128], u64, u64, u64);
    let marked = |keys: &[u128]| {
        let blocks: Vec<_> = keys.iter().map(|key| (*key, 2048, M5)).collect();
        prompt(&blocks)
    };
    let requests: [Asked; 9] = [
        ("the first", &[1, 2], 0, 9, 0),
        ("at the same moment", &[1, 2], 1, 8, 0),
        ("just before the first answer begins", &[1, 2], 7, 20, 0),
        ("as it begins", &[1, 2], 8, 20, 4096),
        ("grown", &[1, 2, 3], 10, 30, 4096),
        ("at the same moment, grown", &[1, 2, 3], 11, 31, 4096),
        ("branched from what is not answered", &[1, 2, 3, 4], 12, 32, 4096),
        ("the branch when its trunk is answered", &[1, 2, 3, 5], 30, 40, 6144),
        ("all of it", &[1, 2, 3, 4], 50, 51, 8192),
    ];
    for kind in [CacheKind::anthropic(1024), CacheKind::openai(Writes::Free), CacheKind::gemini(1024)] {
        let mut model = CacheModel::new(kind);
        for (what, keys, sent, answered, read) in requests {
            let found = model.observe_in_flight(1, &marked(keys), 0, Flight { sent, answered });
            assert_eq!(found.read, read, "{what} {kind:?}");
        }
    }
    // What has expired is written anew, and readable only then.
    let mut model = anthropic();
    for (minutes, flight, read) in [(0, (0, 1), 0), (9, (5, 9), 0), (9, (6, 9), 0), (9, (9, 10), 4096)] {
        let flight = Flight { sent: flight.0, answered: flight.1 };
        let found = model.observe_in_flight(1, &marked(&[1, 2]), minutes * MINUTE, flight);
        assert_eq!(found.read, read, "{minutes} {flight:?}");
    }
}

/// What may still be cached although nothing promises it, in minutes since its last use.
#[test]
fn lapsed_reads_are_reported_separately() {
    let (whole, short) = ([(1, 1280, M5), (2, 1280, M5), (3, 1280, M5)], [(1, 1280, M5), (9, 1280, M5)]);
    let openai = CacheKind::openai(Writes::Free);
    for (kind, minutes, shape, read, lapsed) in [
        (openai, 9, &whole[..], 3840, 0),
        (openai, 10, &whole, 0, 3840),
        (openai, 59, &whole, 0, 3840),
        (openai, 60, &whole, 0, 3840),
        (openai, 7 * 24 * 60 - 1, &whole, 0, 3840),
        (openai, 7 * 24 * 60, &whole, 0, 0),
        (openai, 10, &short, 0, 1280),
        (CacheKind::gemini(1024), 10, &whole, 0, 3840),
        (CacheKind::openai(Writes::Billed), 30, &whole, 0, 3840),
        (CacheKind::anthropic(1024), 5, &whole, 0, 0),
    ] {
        let mut model = CacheModel::new(kind);
        model.observe(1, &prompt(&whole), 0);
        let found = model.observe(1, &prompt(shape), minutes * MINUTE);
        assert_eq!((found.read, found.lapsed), (read, lapsed), "{kind:?} {minutes} {}", shape.len());
        // It is there again.
        let again = model.observe(1, &prompt(shape), minutes * MINUTE);
        assert_eq!((again.read, again.lapsed), (shape.len() as u64 * 1280, 0), "{kind:?} {minutes}");
    }
}

#[test]
fn automatic_writes_can_be_billed() {
    let mut model = CacheModel::new(CacheKind::openai(Writes::Billed));
    check(&mut model, 0, &prompt(&[(1, 1000, None)]), [0, 0, 0, 1000]);
    check(&mut model, 0, &prompt(&[(1, 2000, None)]), [0, 0, 1920, 80]);
    check(&mut model, 0, &prompt(&[(1, 2000, None), (2, 600, None)]), [1920, 0, 640, 40]);
}

#[test]
fn late_blocks_are_never_cached() {
    for (writes, first, second) in [
        (Writes::Free, [0, 0, 0, 3048], [2048, 0, 0, 2024]),
        (Writes::Billed, [0, 0, 2048, 1000], [2048, 0, 1024, 1000]),
    ] {
        let mut model = CacheModel::new(CacheKind::openai(writes));
        let late = |shape| PromptShape { late: vec![Block::hidden(1000)], ..shape };
        check(&mut model, 0, &late(prompt(&[(1, 2048, None)])), first);
        check(&mut model, 0, &late(prompt(&[(1, 2048, None), (2, 1024, None)])), second);
    }
}

#[test]
fn automatic_caches_grow_fork_rewind_and_expire() {
    let mut model = CacheModel::new(CacheKind::openai(Writes::Free));
    let first = prompt(&[(1, 1280, None), (2, 1280, None)]);
    let grown = prompt(&[(1, 1280, None), (2, 1280, None), (3, 1280, None)]);
    let fork = prompt(&[(1, 1280, None), (4, 1280, None)]);
    check(&mut model, 0, &first, [0, 0, 0, 2560]);
    check(&mut model, MINUTE, &grown, [2560, 0, 0, 1280]);
    check(&mut model, MINUTE, &fork, [1280, 0, 0, 1280]);
    check(&mut model, MINUTE, &fork, [2560, 0, 0, 0]);
    check(&mut model, MINUTE, &first, [2560, 0, 0, 0]);
    check(&mut model, 10 * MINUTE, &grown, [3840, 0, 0, 0]);
    // The fork was last used ten minutes ago; what it shares with the other is warm.
    check(&mut model, 11 * MINUTE, &fork, [1280, 0, 0, 1280]);
    check(&mut model, 22 * MINUTE, &grown, [0, 0, 0, 3840]);
    assert_eq!(model.observe(2, &grown, 22 * MINUTE).read, 0, "scopes are apart");
}

#[test]
fn memory_is_bounded_by_evicting_the_oldest() {
    for (kind, prompts, blocks) in [
        // Many prompts, and few long ones.
        (CacheKind::openai(Writes::Free), 600, 1),
        (CacheKind::openai(Writes::Free), 70, 2000),
        (CacheKind::anthropic(1024), 20_000, 1),
    ] {
        let mut model = CacheModel::new(kind);
        let shape = |number: u64| {
            let mut blocks = vec![(u128::from(number), 2000, None); blocks];
            blocks.last_mut().unwrap().2 = M5;
            prompt(&blocks)
        };
        for number in 0..prompts {
            model.observe(1, &shape(number), number);
        }
        assert_eq!(model.clone().observe(1, &shape(0), prompts).read, 0);
        assert!(model.observe(1, &shape(prompts - 1), prompts).read > 0);
    }
}

#[test]
fn no_cache_reads_nothing() {
    let mut model = CacheModel::new(CacheKind::None);
    let shape = prompt(&[(1, 5000, M5)]);
    check(&mut model, 0, &shape, [0, 0, 0, 5000]);
    check(&mut model, 0, &shape, [0, 0, 0, 5000]);
    let tokens = CacheUse { read: 1, write_5m: 20, write_1h: 300, uncached: 4000, ..CacheUse::default() }
        .with_output(7);
    assert_eq!((tokens.prompt(), tokens.input, tokens.output), (4321, 4000, 7));
}

/// A server that speaks Anthropic's dialect need not have Anthropic's cache.
#[test]
fn cache_kinds_depend_on_dialect_model_and_price() {
    let price = |read: Option<u64>, written: Option<u64>| {
        let rate = |usd: u64| Rate::from_picodollars(usd);
        let base = Rates {
            input: rate(100),
            cache_read: read.map(rate),
            cache_write_1h: written.map(rate),
            ..Rates::default()
        };
        Some(Price { base, cache_min: Some(512), ..Price::default() })
    };
    let (automatic, marked) = (CacheKind::openai(Writes::Free), CacheKind::anthropic(512));
    for (dialect, model, price, expected) in [
        ("anthropic", "claude-opus-5", price(Some(10), Some(200)), marked),
        ("anthropic", "us.anthropic.Claude-opus-5-v1:0", price(Some(10), None), marked),
        ("anthropic", "deepseek-v4-pro", price(Some(10), None), automatic),
        ("anthropic", "qwen-9", price(Some(10), Some(200)), marked),
        ("anthropic", "nobodys-model", None, CacheKind::anthropic(1024)),
        ("anthropic", "deepseek-v4-pro", price(None, None), CacheKind::None),
        ("openai-chat", "claude-opus-5", price(Some(10), None), automatic),
        ("marks passed on", "anthropic/claude-opus-5", price(Some(10), Some(200)), marked),
        ("marks passed on", "anthropic/claude-opus-5", price(Some(10), None), marked),
        ("gemini", "gemini-3", price(Some(10), None), CacheKind::gemini(512)),
    ] {
        let reads_marks = ["anthropic", "marks passed on"].contains(&dialect);
        let kind = CacheKind::of(dialect, reads_marks, model, price.as_ref());
        assert_eq!(kind, expected, "{dialect} {model}");
    }
}

fn any_kind() -> impl Strategy<Value = CacheKind> {
    prop_oneof![
        Just(CacheKind::None),
        (0..3000_u64).prop_map(|min_tokens| CacheKind::Marked { min_tokens }),
        (0..3000_u64, 0..200_u64, any::<bool>()).prop_map(|(min_tokens, step, billed)| {
            let writes = if billed { Writes::Billed } else { Writes::Free };
            CacheKind::Automatic { min_tokens, step, ttl_ms: 300_000, writes }
        }),
    ]
}

fn any_shape() -> impl Strategy<Value = PromptShape> {
    let mark = prop_oneof![4 => Just(None), 1 => Just(M5), 1 => Just(H1)];
    let block = (0..3_u128, 0..2000_u64, mark.clone());
    (prop::collection::vec(block, 0..40), mark)
        .prop_map(|(blocks, automatic)| PromptShape { automatic, ..prompt(&blocks) })
}

proptest! {
    #[test]
    fn every_token_is_in_one_bucket(
        kind in any_kind(),
        requests in prop::collection::vec((0..2_u64, any_shape(), 0..600_000_u64), 1..12),
    ) {
        let mut model = CacheModel::new(kind);
        let mut now = 0_u64;
        for (scope, shape, pause) in requests {
            now += pause;
            let total: u64 = shape.blocks.iter().map(|block| block.tokens).sum();
            let found = model.observe(scope, &shape, now);
            prop_assert_eq!(found.with_output(0).prompt(), total);
            // At once again, everything written is read.
            let again = model.clone().observe(scope, &shape, now);
            prop_assert!(again.read >= found.read + found.write_5m + found.write_1h);
            prop_assert_eq!((again.write_5m, again.write_1h), (0, 0));
        }
    }

    #[test]
    fn appending_within_reach_never_writes_twice(
        steps in prop::collection::vec(1..20_usize, 1..30),
    ) {
        let mut model = anthropic();
        let mut blocks = vec![(0, 2000, M5)];
        model.observe(1, &prompt(&blocks), 0);
        for step in steps {
            let written: u64 = blocks.iter().map(|block| block.1).sum();
            let first = blocks.len() as u128;
            blocks.last_mut().unwrap().2 = None;
            blocks.extend(run(first, step as u128));
            blocks.last_mut().unwrap().2 = M5;
            let found = model.observe(1, &prompt(&blocks), 0);
            prop_assert_eq!((found.read, found.uncached), (written, 0));
        }
    }

    #[test]
    fn arbitrary_figures_do_not_panic(tokens in prop::collection::vec(any::<u64>(), 0..6), now in any::<u64>()) {
        let marked = CacheKind::anthropic(0);
        for kind in [marked, CacheKind::openai(Writes::Free), CacheKind::openai(Writes::Billed)] {
            let mut model = CacheModel::new(kind);
            let blocks: Vec<_> = tokens.iter().map(|&tokens| (1, tokens, H1)).collect();
            for at in [now, 0, u64::MAX, now] {
                model.observe(u64::MAX, &prompt(&blocks), at);
            }
        }
    }
}

/// In minutes: how long a prompt is kept at least, and before when it is never taken for gone.
#[test]
fn caches_have_a_minimum_lifetime_and_an_assumed_expiry() {
    for (kind, requested, kept, gone) in [
        (CacheKind::anthropic(1024), None, Some(5), Some(5)),
        (CacheKind::anthropic(1024), Some(60), Some(60), Some(60)),
        (CacheKind::openai(Writes::Billed), None, Some(30), Some(30)),
        (CacheKind::openai(Writes::Billed), Some(720), Some(720), Some(720)),
        (CacheKind::openai(Writes::Free), None, Some(10), Some(60)),
        (CacheKind::openai(Writes::Free), Some(1440), Some(1440), Some(1440)),
        (CacheKind::gemini(1024), None, Some(10), Some(60)),
        (CacheKind::None, None, None, None),
    ] {
        const MINUTE: u64 = 60_000;
        let requested = requested.map(|minutes: u64| minutes * MINUTE);
        let found = [kind.ttl_ms(requested), kind.gone_ms(requested)];
        assert_eq!(found.map(|ms| ms.map(|ms| ms / MINUTE)), [kept, gone], "{kind:?} {requested:?}");
    }
}

#[test]
fn the_beginning_of_a_prompt_is_taken_from_what_is_read_first() {
    let used = |read, uncached, lapsed| CacheUse { read, uncached, lapsed, ..CacheUse::default() };
    for (what, whole, expected) in [
        ("read", used(900, 100, 0), used(500, 100, 0)),
        ("unread", used(0, 1000, 0), used(0, 600, 0)),
        ("lapsed", used(0, 1000, 900), used(0, 600, 500)),
        ("read in part", used(100, 900, 900), used(0, 600, 600)),
    ] {
        assert_eq!(whole.behind(400), expected, "{what}");
    }
}
