//! What a prompt would have been billed as, had it been sent untouched.
//!
//! The provider reports what it billed for the prompt that was sent. A model of its cache estimates that for both
//! prompts, the one sent and the original. The error of the first estimate corrects the second: if both prompts are
//! the same, the result is the provider's own figure.

use super::cache_model::CacheUse;
use super::tokens::Tokens;

/// Positions of the kinds in the arrays below.
const READ: usize = 0;
const INPUT: usize = 1;
const KINDS: usize = 5;
/// What looks like an event although nobody says it is one leaves at least so many more tokens of the sent prompt
/// unread than of the original. Fewer may come from reads in whole steps.
const EVENT: f64 = 512.0;
/// The share of the expected tokens that must be read for a prompt to count as cached.
const MOST: f64 = 0.5;

/// Prompt tokens by kind: read, uncached, written for five minutes, for an hour, for twelve.
type Split = [f64; KINDS];

/// What the original would have been billed as. `billed` is the provider's figure for the prompt that was sent;
/// `sent` and `original` are the model's estimates for both. Output is the same on both sides, and so are the
/// uncached tokens that the provider has put `beside` the prompt. `is_event`: the sent prompt does not continue what
/// was sent before, although the original may. The sum is always the original's size in the provider's tokens.
pub fn untouched(billed: Tokens, beside: u64, sent: CacheUse, original: CacheUse, is_event: bool) -> Tokens {
    let beside = beside.min(billed.input);
    let asked = Tokens { input: billed.input - beside, ..billed };
    let direct = scaled(asked, sent, original, is_event);
    Tokens { input: direct.input.saturating_add(beside), ..direct }
}

fn scaled(billed: Tokens, sent: CacheUse, original: CacheUse, is_event: bool) -> Tokens {
    let whole = sum(&split_of(sent));
    if sent == original || whole <= 0.0 || billed.prompt() == 0 {
        return billed;
    }
    let scale = billed.prompt() as f64 / whole;
    let real = split(&billed);
    let modelled = split_of(sent).map(|tokens| tokens * scale);
    let direct = split_of(original).map(|tokens| tokens * scale);
    let prompt = sum(&direct);
    if original.is_unmarked && !sent.is_unmarked {
        return tokens(billed, prompt, 0.0, [0.0, prompt, 0.0, 0.0, 0.0]);
    }

    let pool = pool(&modelled);
    let (modelled, direct) = if real[READ] >= modelled[READ] {
        // More was read than the model expected; the same holds for the original. What may have been cached for
        // longer than promised was, in proportion to what was read; an event leaves little of that in the sent
        // prompt.
        let lapsed = [sent, original].map(|said| said.lapsed as f64 * scale);
        let kept = ratio(real[READ] - modelled[READ], lapsed[0]).min(1.0);
        let [modelled, direct] = [(modelled, lapsed[0]), (direct, lapsed[1])].map(|(split, lapsed)| {
            read_more(split, pool, ratio(kept * lapsed, of_pool(&split, pool)).min(1.0))
        });
        let share = ratio(real[READ] - modelled[READ], of_pool(&modelled, pool)).clamp(0.0, 1.0);
        (read_more(modelled, pool, share), read_more(direct, pool, share))
    } else {
        // If most was not cached, most of the original would not have been either, in proportion. But an event leaves
        // little of the sent prompt to be read, so a miss there says the less about the original the more of that
        // would be read. Nor does it say anything if most was cached: then the missing part was overestimated.
        let kept = ratio(real[READ], modelled[READ]);
        let is_event = is_event || unread(&modelled) > unread(&direct) + EVENT;
        let of_direct = if kept >= MOST || is_event {
            let [less, more] = [f64::min, f64::max].map(|of| of(modelled[READ], direct[READ]));
            let likeness = ratio(less, more);
            1.0 - ratio((modelled[READ] - real[READ]) * likeness, direct[READ]).min(1.0)
        } else {
            kept
        };
        (read_less(modelled, kept), read_less(direct, of_direct))
    };
    let read = direct[READ].clamp(0.0, prompt);
    let rest = others(&real, &modelled, &direct).map(|share| share * (prompt - read));
    tokens(billed, prompt, read, rest)
}

/// The kinds that become reads if the cache is warm: the written ones, if there are any.
fn pool(split: &Split) -> &'static [usize] {
    if split[INPUT + 1..].iter().any(|tokens| *tokens > 0.0) { &[2, 3, 4] } else { &[INPUT] }
}

fn of_pool(split: &Split, pool: &[usize]) -> f64 {
    pool.iter().map(|kind| split[*kind]).sum()
}

fn read_more(mut split: Split, pool: &[usize], share: f64) -> Split {
    for &kind in pool {
        let moved = split[kind] * share;
        split[kind] -= moved;
        split[READ] += moved;
    }
    split
}

fn unread(split: &Split) -> f64 {
    sum(split) - split[READ]
}

/// What is not read is billed like the rest, of which only the proportions matter.
fn read_less(mut split: Split, kept: f64) -> Split {
    split[READ] *= kept;
    split
}

/// The shares of the kinds that are not read: the provider's own, adjusted by how the two prompts differ.
fn others(real: &Split, modelled: &Split, direct: &Split) -> Split {
    let shares = |split: &Split| {
        let all = unread(split);
        (all > 0.5).then(|| {
            let mut shares = split.map(|tokens| tokens / all);
            shares[READ] = 0.0;
            shares
        })
    };
    let [known, said, other] = [shares(real), shares(modelled), shares(direct)];
    let mut mixed = match (known, said, other) {
        (Some(known), Some(said), Some(other)) => {
            std::array::from_fn(|kind| (known[kind] + other[kind] - said[kind]).max(0.0))
        }
        (Some(one), _, None) | (_, _, Some(one)) => one,
        (None, _, None) => [0.0, 1.0, 0.0, 0.0, 0.0],
    };
    let all = sum(&mixed);
    if all > 0.0 {
        mixed = mixed.map(|share| share / all);
    } else {
        mixed[INPUT] = 1.0;
    }
    mixed
}

/// Rounds to whole tokens; the remainder goes to the largest kind.
fn tokens(billed: Tokens, prompt: f64, read: f64, rest: Split) -> Tokens {
    let prompt = prompt.round() as u64;
    let cache_read = (read.round() as u64).min(prompt);
    let mut left = prompt - cache_read;
    let mut whole = [0; KINDS];
    for kind in INPUT..KINDS {
        whole[kind] = (rest[kind].round() as u64).min(left);
        left -= whole[kind];
    }
    let most = (INPUT..KINDS).max_by(|a, b| rest[*a].total_cmp(&rest[*b])).unwrap_or(INPUT);
    whole[most] += left;
    let [_, input, cache_write_5m, cache_write_1h, cache_write_12h] = whole;
    Tokens { input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, ..billed }
}

fn split(tokens: &Tokens) -> Split {
    [
        tokens.cache_read as f64,
        tokens.input as f64,
        tokens.cache_write_5m as f64,
        tokens.cache_write_1h as f64,
        tokens.cache_write_12h as f64,
    ]
}

fn split_of(said: CacheUse) -> Split {
    [said.read as f64, said.uncached as f64, said.write_5m as f64, said.write_1h as f64, 0.0]
}

fn sum(split: &Split) -> f64 {
    split.iter().sum()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(read: u64, write_5m: u64, uncached: u64) -> CacheUse {
        CacheUse { read, write_5m, uncached, ..CacheUse::default() }
    }

    /// Nothing is read, so much would be of a cache that is kept for as long as it may be.
    fn lapsed(uncached: u64, lapsed: u64) -> CacheUse {
        CacheUse { uncached, lapsed, ..CacheUse::default() }
    }

    fn billed(cache_read: u64, cache_write_5m: u64, input: u64) -> Tokens {
        Tokens { input, cache_read, cache_write_5m, output: 7, ..Tokens::default() }
    }

    #[test]
    fn what_was_not_sent_is_billed_as_the_rest_is() {
        for (what, real, sent, original, expected) in [
            ("the same", billed(3, 5, 7), said(1, 2, 3), said(1, 2, 3), billed(3, 5, 7)),
            ("as modelled", billed(900, 100, 0), said(900, 100, 0), said(1400, 100, 0), billed(1400, 100, 0)),
            ("an event", billed(100, 400, 5), said(100, 400, 5), said(900, 100, 5), billed(900, 100, 5)),
            (
                "twice the tokens",
                billed(1800, 200, 0),
                said(900, 100, 0),
                said(1400, 100, 0),
                billed(2800, 200, 0),
            ),
            // The provider's cache was warm already, the model's was not.
            ("warm", billed(900, 100, 0), said(0, 1000, 0), said(0, 2000, 0), billed(1800, 200, 0)),
            (
                "warm, no writes",
                billed(900, 0, 100),
                said(0, 0, 1000),
                said(0, 0, 2000),
                billed(1800, 0, 200),
            ),
            // The cache was kept for longer than is promised, and an event has left little of what was there.
            ("kept", billed(100, 0, 400), lapsed(500, 100), lapsed(1000, 950), billed(950, 0, 50)),
            ("half of it", billed(50, 0, 450), lapsed(500, 100), lapsed(1000, 950), billed(475, 0, 525)),
            ("more than that", billed(300, 0, 200), lapsed(500, 100), lapsed(1000, 950), billed(975, 0, 25)),
            ("gone", billed(0, 0, 500), lapsed(500, 100), lapsed(1000, 950), billed(0, 0, 1000)),
            // The entries that were read were written by requests of which only the edited forms had marks there.
            (
                "read of what was sent before",
                billed(7000, 1000, 0),
                CacheUse { lapsed: 4000, ..said(3000, 5000, 0) },
                said(3000, 5000, 0),
                billed(3000, 5000, 0),
            ),
            ("none of it sent", billed(100, 0, 400), lapsed(500, 0), lapsed(1000, 950), billed(200, 0, 800)),
            // The original carries no marks: nothing of it is ever read.
            ("unmarked", billed(900, 100, 0), said(0, 1000, 0), said(0, 0, 2000), billed(0, 0, 2000)),
            // The provider's cache was cold, the model's was not.
            ("cold", billed(0, 1000, 0), said(900, 100, 0), said(1900, 100, 0), billed(0, 2000, 0)),
            (
                "cold, of which much was cut",
                billed(0, 0, 2000),
                said(1900, 0, 100),
                said(9900, 0, 100),
                billed(0, 0, 10_000),
            ),
            // What is compared would have been read of less than what was sent.
            (
                "less to read",
                billed(8000, 0, 3000),
                said(10_000, 0, 1000),
                said(5000, 0, 1000),
                billed(4000, 0, 2000),
            ),
            // An event has left little to be read, and that was not read, or was smaller than it was taken for.
            (
                "smaller behind an event",
                billed(7000, 0, 43_000),
                said(10_000, 0, 40_000),
                said(90_000, 0, 10_000),
                billed(89_667, 0, 10_333),
            ),
            (
                "smaller long after an event",
                billed(7000, 0, 4000),
                said(10_000, 0, 1000),
                said(90_000, 0, 1000),
                billed(89_667, 0, 1333),
            ),
            (
                "gone long after an event",
                billed(1000, 0, 10_000),
                said(10_000, 0, 1000),
                said(90_000, 0, 1000),
                billed(9000, 0, 82_000),
            ),
            (
                "unread behind an event",
                billed(0, 50_000, 0),
                said(10_000, 40_000, 0),
                said(90_000, 10_000, 0),
                billed(88_889, 11_111, 0),
            ),
            (
                "unread behind an event, and both read of",
                billed(0, 50_000, 0),
                said(40_000, 10_000, 0),
                said(30_000, 1000, 0),
                billed(0, 31_000, 0),
            ),
            ("nothing billed", billed(0, 0, 0), said(900, 100, 0), said(1900, 100, 0), billed(0, 0, 0)),
            ("nothing said", billed(1, 2, 3), said(0, 0, 0), said(1900, 100, 0), billed(1, 2, 3)),
        ] {
            assert_eq!(untouched(real, 0, sent, original, false), expected, "{what}");
            let more = |tokens: Tokens| Tokens { input: tokens.input + 40, ..tokens };
            assert_eq!(untouched(more(real), 40, sent, original, false), more(expected), "{what}, and tools");
        }
    }

    /// With it comes a result that is cut in what was sent, and would have been read by nobody before: more would be unread
    /// of the original than there is of what was sent.
    #[test]
    fn what_an_event_leaves_says_little_of_the_original() {
        for (what, real, sent, original, expected) in [
            (
                "a head that is too short to be kept",
                billed(0, 0, 17_000),
                said(4000, 0, 13_000),
                said(25_000, 0, 25_000),
                billed(24_360, 0, 25_640),
            ),
            (
                "written",
                billed(0, 17_000, 0),
                said(4000, 13_000, 0),
                said(25_000, 25_000, 0),
                billed(24_360, 25_640, 0),
            ),
            (
                "as the model says",
                billed(4000, 0, 13_000),
                said(4000, 0, 13_000),
                said(25_000, 0, 25_000),
                billed(25_000, 0, 25_000),
            ),
            (
                "nothing would be left of either",
                billed(0, 0, 17_000),
                said(0, 0, 17_000),
                said(0, 0, 50_000),
                billed(0, 0, 50_000),
            ),
        ] {
            assert_eq!(untouched(real, 0, sent, original, true), expected, "{what}");
        }
    }

    /// What has no mark is read from no cache, however much more was read of what was sent with one than was expected.
    #[test]
    fn what_is_not_marked_is_not_read() {
        let unmarked = |uncached| CacheUse { uncached, is_unmarked: true, ..CacheUse::default() };
        for (what, real, sent, original, expected) in [
            ("read", billed(9000, 0, 1000), said(8000, 0, 2000), unmarked(9500), billed(0, 0, 9500)),
            ("written", billed(0, 9000, 1000), said(0, 8000, 2000), unmarked(9500), billed(0, 0, 9500)),
            // A provider that reads any of this caches prompts without marks.
            (
                "nor was what was sent",
                billed(5000, 0, 5000),
                unmarked(10_000),
                unmarked(20_000),
                billed(10_000, 0, 10_000),
            ),
        ] {
            assert_eq!(untouched(real, 0, sent, original, false), expected, "{what}");
        }
    }

    fn any_use() -> impl Strategy<Value = CacheUse> {
        (0..1_000_000_u64, 0..1_000_000_u64, 0..1_000_000_u64, 0..1_000_000_u64, 0..1_000_000_u64).prop_map(
            |(read, write_5m, write_1h, uncached, lapsed)| CacheUse {
                read,
                write_5m,
                write_1h,
                uncached,
                lapsed,
                is_unmarked: false,
            },
        )
    }

    proptest! {
        #[test]
        fn the_sum_is_the_original_in_the_providers_tokens(
            real in any_use(), sent in any_use(), original in any_use(), is_event: bool,
        ) {
            let real = real.with_output(9, 3);
            let direct = untouched(real, 0, sent, original, is_event);
            let size = |said: CacheUse| (said.read + said.write_5m + said.write_1h + said.uncached) as f64;
            let expected = if size(sent) > 0.0 {
                real.prompt() as f64 * size(original) / size(sent)
            } else {
                real.prompt() as f64
            };
            prop_assert!((direct.prompt() as f64 - expected).abs() <= 1.0 + expected / 1e12);
            prop_assert_eq!((direct.output, direct.reasoning), (9, 3));
        }
    }
}
