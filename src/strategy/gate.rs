//! The gate: whether an event is due, and how deep it may cut.
//!
//! Changing an old part breaks the cached prefix: everything after it must be written to the cache again instead of
//! read. An event happens only for one of the [`Reason`]s. The most common one follows the ski-rental rule, which
//! bounds the loss: whatever the conversation does afterwards, it costs at most twice the best choice in hindsight.

/// How much more than without the gateway a thread may cost, as a share, whichever request turns out to be its last.
/// It bounds events that can wait or be replaced by a cheaper one, and cache marks on the history of a client that sets
/// none. For marks the bound is wide enough to cache all of an agent's second and third request; without it they could
/// cost up to a quarter more.
pub const MOST_LOSS: f64 = 0.15;

/// Why an event is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The prompt would pass the trigger of the model's window.
    Window,
    /// The provider's cache of this thread has expired.
    Cold,
    /// The provider gives no discount on what it reads from its cache, so every token is paid in full every time.
    Uncached,
    /// Resending the stale tokens has cost as much so far as clearing them costs now.
    BreakEven,
    /// The conversation's own budget demands it.
    Budget,
    /// The policy has something to clear, which is reason enough, as it is for agents that edit their own history.
    Eager,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Self] =
        &[Self::Window, Self::Cold, Self::Uncached, Self::BreakEven, Self::Budget, Self::Eager];

    /// Its name in the configuration and in the books.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Cold => "cold",
            Self::Uncached => "uncached",
            Self::BreakEven => "break-even",
            Self::Budget => "budget",
            Self::Eager => "eager",
        }
    }
}

/// Prices of prompt tokens, as shares of the price of plain input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Reading from the provider's cache.
    pub read: f64,
    /// Writing to it; 1 if writing costs no more than plain input.
    pub write: f64,
}

impl Rates {
    /// The usual rates, assumed if the price is unknown.
    pub const USUAL: Self = Self { read: 0.1, write: 1.25 };

    /// Whether reading from the cache is no cheaper than plain input.
    pub fn is_uncached(self) -> bool {
        self.read > 0.95
    }

    /// The extra cost of writing a token again instead of reading it.
    pub fn rewrite(self) -> f64 {
        (self.write - self.read).max(0.0)
    }
}

/// An old part that may be cleared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its index among the history's items.
    pub item: usize,
    /// Bytes saved with each later request.
    pub frees: u32,
    /// What keeping it has cost so far, in bytes of plain input.
    pub rent: f64,
}

/// What a thread has cost, and what it would have cost without events, in bytes of plain input. Assumes a perfect
/// prefix cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Account {
    /// The cost as it was sent.
    pub paid: f64,
    /// The cost without events.
    pub direct: f64,
}

impl Account {
    /// The most that an event may cost if the thread is to cost at most `loss` (a share) more than without events.
    /// This holds whatever follows, because no later request costs more than it would have without events.
    pub fn allowance(&self, loss: f64) -> f64 {
        ((1.0 + loss) * self.direct - self.paid).max(0.0)
    }
}

/// All candidates from one of them on.
struct Suffix {
    /// The index of the first of them.
    from: usize,
    /// The sum of their rents.
    rent: f64,
    /// The bytes that clearing them saves with each later request.
    freed: u64,
    /// What clearing them costs, in bytes of plain input.
    price: f64,
}

/// The suffixes of `candidates`, the shortest first. The price of each is the cost of writing again what follows the
/// cut; `tail` is as in [`break_even`].
fn suffixes(
    candidates: &[Candidate],
    tail: impl Fn(usize) -> u64,
    rates: Rates,
) -> impl Iterator<Item = Suffix> {
    let (mut rent, mut freed) = (0.0, 0_u64);
    candidates.iter().enumerate().rev().map(move |(from, candidate)| {
        rent += candidate.rent;
        freed += u64::from(candidate.frees);
        let price = tail(candidate.item).saturating_sub(freed) as f64 * rates.rewrite();
        Suffix { from, rent, freed, price }
    })
}

/// The index of the first candidate to clear, along with all later ones: of this suffix, the rent exceeds `alpha` times
/// the price of cutting before it by the most. `None` if no suffix has a rent that reaches this product.
///
/// The candidates are in order of position. `tail(item)` returns the bytes from the start of an item to the end of what
/// was sent, as they were sent; bytes that the cut frees need not be written again. `may_go(bytes)` tells whether that
/// many bytes may be freed. No cut costs more than `most`, in bytes of plain input.
pub fn break_even(
    candidates: &[Candidate],
    tail: impl Fn(usize) -> u64,
    may_go: impl Fn(u64) -> bool,
    rates: Rates,
    alpha: f64,
    most: f64,
) -> Option<usize> {
    let gain = |suffix: &Suffix| suffix.rent - alpha * suffix.price;
    let pays = |suffix: &Suffix| {
        let has_rent = gain(suffix) >= 0.0 && candidates[suffix.from].rent > 0.0;
        has_rent && suffix.price <= most && may_go(suffix.freed)
    };
    let paying = suffixes(candidates, tail, rates).filter(pays);
    paying.max_by(|a, b| gain(a).total_cmp(&gain(b))).map(|suffix| suffix.from)
}

/// The index of the first candidate that the next event is expected to clear. The event is expected to clear the suffix
/// whose rent is the largest share of its price, among those that cost little more than `most`.
pub fn nearest(
    candidates: &[Candidate],
    tail: impl Fn(usize) -> u64,
    rates: Rates,
    most: f64,
) -> Option<usize> {
    const TOLERANCE: f64 = 1.1;
    let share = |suffix: &Suffix| suffix.rent / suffix.price.max(1.0);
    let near = suffixes(candidates, tail, rates).filter(|suffix| suffix.price <= most * TOLERANCE);
    near.max_by(|a, b| share(a).total_cmp(&share(b))).map(|suffix| suffix.from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates at the items 0, 10, 20 of a history of 100 bytes an item, 40 items long.
    fn cut(rents: [f64; 3], alpha: f64) -> Option<usize> {
        let candidates: Vec<Candidate> = rents
            .iter()
            .enumerate()
            .map(|(at, rent)| Candidate { item: at * 10, frees: 90, rent: *rent })
            .collect();
        let tail = |item: usize| (40 - item as u64) * 100;
        let rates = Rates { read: 0.1, write: 1.1 };
        break_even(&candidates, tail, |_| true, rates, alpha, 4000.0)
    }

    #[test]
    fn the_cut_is_the_suffix_with_the_largest_gain() {
        // From the last one on: 2,000 bytes after it, less 90. From the first on: 4,000 less 270.
        for (rents, alpha, from) in [
            ([0.0, 0.0, 0.0], 1.0, None),
            ([0.0, 0.0, 1909.0], 1.0, None),
            ([0.0, 0.0, 1910.0], 1.0, Some(2)),
            ([0.0, 911.0, 1910.0], 1.0, Some(1)),
            ([0.0, 909.0, 1910.0], 1.0, Some(2)),
            ([3730.0, 0.0, 0.0], 1.0, Some(0)),
            ([0.0, 0.0, 955.0], 0.5, Some(2)),
        ] {
            assert_eq!(cut(rents, alpha), from, "{rents:?}");
        }
    }

    #[test]
    fn reason_names_are_distinct() {
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
