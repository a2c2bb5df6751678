//! What a prompt would have been billed as, had it been sent untouched.
//!
//! The provider reports what it billed for the prompt that was sent. A model of its cache estimates that for both
//! prompts, the one sent and the original. The error of the first estimate corrects the second: if both prompts are
//! the same, the result is the provider's own figure.

use super::cache_model::{CacheUse, MIN_READ_SHARE};
use super::tokens::Tokens;

/// Positions of the kinds in a [`Split`].
const READ: usize = 0;
const INPUT: usize = 1;
const WRITES: [usize; 3] = [2, 3, 4];
const KINDS: usize = 5;
/// If the model says that at least this many more tokens are unread of the sent prompt than of the original, an event
/// must have changed it, even if not with this request. A smaller difference may come from reads in whole steps.
const MIN_EVENT_TOKENS: f64 = 512.0;
/// Up to this share of the expected tokens may be read where a cache has missed.
const MAX_MISSED_SHARE: f64 = 0.1;
/// This many tokens are long enough for any cache: no provider asks for more than 6,144.
const CACHEABLE_TOKENS: f64 = 8192.0;

/// Prompt tokens by kind: read, uncached, written for five minutes, for an hour, for twelve.
type Split = [f64; KINDS];

/// Tokens that are billed alike for both prompts, whatever an edit does to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alike {
    /// Uncached tokens that the provider has added to the prompt.
    pub beside: u64,
    /// Tokens before the prompt that the provider reads because they are cached under a name. They are not among
    /// those of a [`CacheUse`].
    pub named: u64,
}

/// What the original would have been billed as. `billed` is the provider's figure for the prompt that was sent;
/// `sent` and `original` are the model's estimates for both. Output is the same on both sides, and so is what is
/// `alike`. `is_event`: the sent prompt does not continue what was sent before, although the original may.
/// `usually_read`: the share of the cached tokens of a prompt that the provider usually reads ([`share_read`]). The sum
/// is always the original's size in the provider's tokens.
pub fn untouched(
    billed: Tokens,
    alike: Alike,
    sent: CacheUse,
    original: CacheUse,
    is_event: bool,
    usually_read: f64,
) -> Tokens {
    let (asked, alike) = without(billed, alike);
    let original = scaled(asked, sent, original, is_event, usually_read);
    Tokens {
        input: original.input.saturating_add(alike.beside),
        cache_read: original.cache_read.saturating_add(alike.named),
        ..original
    }
}

/// The share of the cached tokens of a prompt that the provider has read, if the prompt continues what was sent before,
/// and most of it is cached by the model. `None`: the figures do not show it.
pub fn share_read(billed: Tokens, alike: Alike, sent: CacheUse) -> Option<f64> {
    let (asked, _) = without(billed, alike);
    let split = split_of(sent);
    let expected = split[READ] * ratio(asked.prompt() as f64, sum(&split));
    tells(expected, asked.prompt() as f64).then(|| ratio(asked.cache_read as f64, expected).min(1.0))
}

/// The figure without what is billed alike, and that as far as it is in the figure.
fn without(billed: Tokens, alike: Alike) -> (Tokens, Alike) {
    let (beside, named) = (alike.beside.min(billed.input), alike.named.min(billed.cache_read));
    let asked = Tokens { input: billed.input - beside, cache_read: billed.cache_read - named, ..billed };
    (asked, Alike { beside, named })
}

/// The same as [`untouched`] where nothing is alike.
fn scaled(billed: Tokens, sent: CacheUse, original: CacheUse, is_event: bool, usually_read: f64) -> Tokens {
    let whole = sum(&split_of(sent));
    if sent == original || whole <= 0.0 || billed.prompt() == 0 {
        return billed;
    }
    let scale = billed.prompt() as f64 / whole;
    let real = split(&billed);
    let estimates = Estimates {
        sent: split_of(sent).map(|tokens| tokens * scale),
        original: split_of(original).map(|tokens| tokens * scale),
    };
    let prompt = sum(&estimates.original);
    if original.is_unmarked && !sent.is_unmarked {
        return tokens(billed, prompt, 0.0, [0.0, prompt, 0.0, 0.0, 0.0]);
    }
    let is_event = is_event || unread(&estimates.sent) > unread(&estimates.original) + MIN_EVENT_TOKENS;
    let shows_nothing = is_event && estimates.show_nothing(real[READ]);
    let mut estimates = if real[READ] >= estimates.sent[READ] {
        estimates.with_more_read(real[READ], [sent, original].map(|used| used.lapsed as f64 * scale))
    } else {
        estimates.with_less_read(real[READ], is_event)
    };
    if shows_nothing {
        estimates.original = read_less(estimates.original, usually_read);
    }
    let read = estimates.original[READ].clamp(0.0, prompt);
    let rest = unread_shares(&real, &estimates).map(|share| share * (prompt - read));
    tokens(billed, prompt, read, rest)
}

/// What the models say of both prompts, in the provider's tokens.
struct Estimates {
    sent: Split,
    original: Split,
}

impl Estimates {
    /// Corrects the estimates if `read` tokens of the sent prompt were read, which are more than the model expected.
    /// The same is assumed of the original. The tokens that come first are those that have `lapsed` in the models,
    /// because the provider may keep prompts for longer than promised: of both prompts, the same share of them is taken
    /// as read. (An event leaves few of them in the sent prompt.) The models did not know that the others were cached.
    fn with_more_read(self, read: f64, lapsed: [f64; 2]) -> Self {
        let pool = pool(&self.sent);
        let [lapsed_of_sent, lapsed_of_original] = lapsed;
        let kept = ratio(read - self.sent[READ], lapsed_of_sent).min(1.0);
        let with_lapsed = |split: Split, lapsed: f64| {
            read_more(split, pool, ratio(kept * lapsed, of_pool(&split, pool)).min(1.0))
        };
        let sent = with_lapsed(self.sent, lapsed_of_sent);
        let original = with_lapsed(self.original, lapsed_of_original);
        let share = ratio(read - sent[READ], of_pool(&sent, pool)).clamp(0.0, 1.0);
        Self { sent: read_more(sent, pool, share), original: read_more(original, pool, share) }
    }

    /// Corrects the estimates if `read` tokens of the sent prompt were read, which are fewer than the model expected.
    /// If most of the sent prompt was not cached, most of the original would not have been either, in proportion.
    ///
    /// But an event leaves little of the sent prompt to be read, so a miss there says the less about the original the
    /// more of the original would be read. And if most was cached, the cache is there, and the missing tokens were
    /// overestimated. In both cases the original is taken to miss as many tokens as the sent prompt, times the ratio of
    /// the smaller of the two expected reads to the larger.
    ///
    /// An event that leaves most of the sent prompt to be read does not explain why next to nothing of it was. There
    /// the cache has missed, as without an event.
    fn with_less_read(self, read: f64, is_event: bool) -> Self {
        let kept = ratio(read, self.sent[READ]);
        let kept_of_original = if kept >= MIN_READ_SHARE || (is_event && !self.is_missed(read)) {
            let [less, more] = [f64::min, f64::max].map(|of| of(self.sent[READ], self.original[READ]));
            let likeness = ratio(less, more);
            1.0 - ratio((self.sent[READ] - read) * likeness, self.original[READ]).min(1.0)
        } else {
            kept
        };
        Self { sent: read_less(self.sent, kept), original: read_less(self.original, kept_of_original) }
    }

    /// Whether next to nothing was read, with `read` tokens, of a prompt that is mostly cached by the model.
    fn is_missed(&self, read: f64) -> bool {
        ratio(read, self.sent[READ]) <= MAX_MISSED_SHARE && tells(self.sent[READ], sum(&self.sent))
    }

    /// Whether the `read` tokens of a prompt do not show if the cache was there: few were read, but few were expected.
    fn show_nothing(&self, read: f64) -> bool {
        let is_little = read <= 0.0 || read < MIN_READ_SHARE * self.sent[READ];
        is_little && !tells(self.sent[READ], sum(&self.sent))
    }
}

/// Whether the `expected` reads of a prompt are large enough for their absence to mean something.
fn tells(expected: f64, prompt: f64) -> bool {
    expected >= CACHEABLE_TOKENS.max(MIN_READ_SHARE * prompt)
}

/// The kinds that become reads if the cache is warm: the written ones, if there are any.
fn pool(split: &Split) -> &'static [usize] {
    if WRITES.iter().any(|kind| split[*kind] > 0.0) { &WRITES } else { &[INPUT] }
}

/// The tokens of these kinds.
fn of_pool(split: &Split, pool: &[usize]) -> f64 {
    pool.iter().map(|kind| split[*kind]).sum()
}

/// Moves a share of the tokens of these kinds to those that are read.
fn read_more(mut split: Split, pool: &[usize], share: f64) -> Split {
    for &kind in pool {
        let moved = split[kind] * share;
        split[kind] -= moved;
        split[READ] += moved;
    }
    split
}

/// The tokens that are not read.
fn unread(split: &Split) -> f64 {
    sum(split) - split[READ]
}

/// Keeps a share of the tokens that are read. The others are dropped: of those that are not read, only the proportions
/// matter.
fn read_less(mut split: Split, kept: f64) -> Split {
    split[READ] *= kept;
    split
}

/// The shares of the kinds among the tokens that are not read: the provider's own for the sent prompt, adjusted by how
/// the estimates for the two prompts differ.
fn unread_shares(real: &Split, estimates: &Estimates) -> Split {
    let shares = |split: &Split| {
        let all = unread(split);
        (all > 0.5).then(|| {
            let mut shares = split.map(|tokens| tokens / all);
            shares[READ] = 0.0;
            shares
        })
    };
    let [real, sent, original] = [real, &estimates.sent, &estimates.original].map(shares);
    let mut mixed = match (real, sent, original) {
        (Some(real), Some(sent), Some(original)) => {
            std::array::from_fn(|kind| (real[kind] + original[kind] - sent[kind]).max(0.0))
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

/// The usage with a prompt of `prompt` tokens, of which `read` are read; `rest` splits the others. Rounds to whole
/// tokens, and adds the remainder to the largest of the kinds that are not read.
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

fn split_of(used: CacheUse) -> Split {
    [used.read as f64, used.uncached as f64, used.write_5m as f64, used.write_1h as f64, 0.0]
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

    /// Nothing is read; `lapsed` tokens would be, if the cache were kept for as long as it may be.
    fn lapsed(uncached: u64, lapsed: u64) -> CacheUse {
        CacheUse { uncached, lapsed, ..CacheUse::default() }
    }

    fn billed(cache_read: u64, cache_write_5m: u64, input: u64) -> Tokens {
        Tokens { input, cache_read, cache_write_5m, output: 7, ..Tokens::default() }
    }

    #[test]
    fn unsent_tokens_are_billed_in_proportion_to_sent_ones() {
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
            // The original has less to be read than what was sent.
            (
                "less to read",
                billed(8000, 0, 3000),
                said(10_000, 0, 1000),
                said(5000, 0, 1000),
                billed(4000, 0, 2000),
            ),
            // An event has left little to be read, and that was not read, or was smaller than assumed.
            (
                "smaller after an event",
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
                "unread after an event",
                billed(0, 50_000, 0),
                said(10_000, 40_000, 0),
                said(90_000, 10_000, 0),
                billed(88_889, 11_111, 0),
            ),
            (
                "unread after an event, and both read of",
                billed(0, 50_000, 0),
                said(40_000, 10_000, 0),
                said(30_000, 1000, 0),
                billed(0, 31_000, 0),
            ),
            ("nothing billed", billed(0, 0, 0), said(900, 100, 0), said(1900, 100, 0), billed(0, 0, 0)),
            ("nothing said", billed(1, 2, 3), said(0, 0, 0), said(1900, 100, 0), billed(1, 2, 3)),
        ] {
            assert_eq!(untouched(real, Alike::default(), sent, original, false, 1.0), expected, "{what}");
            let more = |tokens: Tokens| Tokens { input: tokens.input + 40, ..tokens };
            let beside = Alike { beside: 40, ..Alike::default() };
            let found = untouched(more(real), beside, sent, original, false, 1.0);
            assert_eq!(found, more(expected), "{what}, and tools");
        }
    }

    /// It comes with a result that is cut in what was sent, and that would not have been cached either: more would be
    /// unread of the original than the whole prompt that was sent.
    #[test]
    fn cache_misses_after_an_event_say_little_about_the_untouched_prompt() {
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
                "a cache that missed, with most of what was sent in it",
                billed(0, 0, 32_000),
                said(29_000, 0, 3000),
                said(193_500, 0, 10_000),
                billed(0, 0, 203_500),
            ),
            (
                "nearly missed",
                billed(2900, 0, 29_100),
                said(29_000, 0, 3000),
                said(193_500, 0, 10_000),
                billed(19_350, 0, 184_150),
            ),
            (
                "read of, if of less than expected",
                billed(5800, 0, 26_200),
                said(29_000, 0, 3000),
                said(290_000, 0, 10_000),
                billed(287_680, 0, 12_320),
            ),
            (
                "most of what was sent, but too short to be kept",
                billed(0, 0, 5000),
                said(4000, 0, 1000),
                said(40_000, 0, 10_000),
                billed(39_600, 0, 10_400),
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
            assert_eq!(untouched(real, Alike::default(), sent, original, true, 1.0), expected, "{what}");
        }
    }

    /// Few cached tokens are left to be read, or none, and none are read. The rest is as likely to be read as usual.
    #[test]
    fn events_that_leave_nothing_to_read_leave_what_is_usually_read() {
        for (what, real, sent, original, usually_read, expected) in [
            (
                "never read",
                billed(0, 0, 17_000),
                said(0, 0, 17_000),
                said(40_000, 0, 10_000),
                0.0,
                billed(0, 0, 50_000),
            ),
            (
                "usually read",
                billed(0, 0, 17_000),
                said(0, 0, 17_000),
                said(40_000, 0, 10_000),
                0.75,
                billed(30_000, 0, 20_000),
            ),
            (
                "a short head",
                billed(0, 0, 17_000),
                said(4000, 0, 13_000),
                said(40_000, 0, 10_000),
                0.5,
                billed(19_800, 0, 30_200),
            ),
            (
                "a head that is read",
                billed(4000, 0, 13_000),
                said(4000, 0, 13_000),
                said(40_000, 0, 10_000),
                0.5,
                billed(40_000, 0, 10_000),
            ),
            (
                "a long head of which some is read",
                billed(9000, 0, 23_000),
                said(29_000, 0, 3000),
                said(40_000, 0, 10_000),
                0.5,
                billed(25_500, 0, 24_500),
            ),
            (
                "more than expected",
                billed(500, 0, 16_500),
                said(0, 0, 17_000),
                said(40_000, 0, 10_000),
                0.5,
                billed(40_294, 0, 9706),
            ),
            (
                "a cache that missed",
                billed(0, 0, 32_000),
                said(29_000, 0, 3000),
                said(40_000, 0, 10_000),
                0.5,
                billed(0, 0, 50_000),
            ),
        ] {
            let found = untouched(real, Alike::default(), sent, original, true, usually_read);
            assert_eq!(found, expected, "{what}");
        }
    }

    /// A prefix that is cached under a name is read of both prompts, as far as the figure covers it.
    #[test]
    fn named_tokens_are_read_of_both_prompts() {
        for (what, real, named, original, expected) in [
            ("all of it", billed(500, 0, 100), 400, said(900, 0, 100), billed(1300, 0, 100)),
            ("half of it", billed(200, 0, 200), 400, said(100, 0, 300), billed(200, 0, 400)),
        ] {
            let alike = Alike { named, ..Alike::default() };
            assert_eq!(untouched(real, alike, said(100, 0, 100), original, false, 1.0), expected, "{what}");
        }
    }

    #[test]
    fn the_share_that_is_read_shows_where_most_is_cached() {
        for (what, real, alike, sent, expected) in [
            ("all", billed(9000, 0, 1000), Alike::default(), said(9000, 0, 1000), Some(1.0)),
            ("a third", billed(3000, 0, 7000), Alike::default(), said(9000, 0, 1000), Some(1.0 / 3.0)),
            ("more", billed(9900, 0, 100), Alike::default(), said(9000, 0, 1000), Some(1.0)),
            ("a short prompt", billed(0, 0, 5000), Alike::default(), said(4900, 0, 100), None),
            ("the smaller part", billed(0, 0, 50_000), Alike::default(), said(20_000, 0, 30_000), None),
            ("nothing", billed(0, 0, 0), Alike::default(), said(0, 0, 0), None),
            (
                "none after a name",
                billed(40_000, 0, 10_000),
                Alike { named: 40_000, beside: 0 },
                said(9000, 0, 1000),
                Some(0.0),
            ),
        ] {
            assert_eq!(share_read(real, alike, sent), expected, "{what}");
        }
    }

    /// A prompt without marks is read from no cache, however much more than expected was read of the marked prompt that
    /// was sent.
    #[test]
    fn unmarked_untouched_prompts_read_no_cache() {
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
            assert_eq!(untouched(real, Alike::default(), sent, original, false, 1.0), expected, "{what}");
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
        fn untouched_tokens_are_scaled_to_the_providers_count(
            real in any_use(), sent in any_use(), original in any_use(), is_event: bool,
        ) {
            let real = Tokens { reasoning: 3, ..real.with_output(9) };
            let direct = untouched(real, Alike::default(), sent, original, is_event, 1.0);
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
