//! The entries that marks have made in the provider's cache for a thread, and what they have cost. A planned request
//! updates both as if it were going to be billed; [`Kept::settle`] corrects them once its fate is known.

use super::Fate;
use crate::conversation::PartId;
use crate::strategy::debt::Staked;
use crate::strategy::findings::Expected;
use crate::strategy::marks::{CacheClock, Entries, Stake};

/// The cached entries and what they have cost.
#[derive(Debug, Clone, Default)]
pub(in crate::planner) struct Kept {
    /// The entries in the provider's cache, if it needs marks.
    pub(in crate::planner) entries: Entries,
    /// What marking the history has cost.
    pub(in crate::planner) stake: Stake,
    /// When the last request was made that the provider may have read, in milliseconds since 1970; 0: none is known.
    seen_ms: u64,
    /// The value of `seen_ms` before the last request, until the fate of that request is known.
    seen_before_ms: Option<u64>,
    /// What this request does to its sender's debt.
    pub(in crate::planner) staked: Option<Staked>,
    /// What the last request should have read from the cache, if anything.
    pub(in crate::planner) expected: Option<Expected>,
    /// Entries and stake before the last request, until its fate is known.
    unbilled: Option<(Entries, Stake)>,
    /// The request is the first of its thread, or all before it were refused.
    is_untried: bool,
    /// All requests that have ended so far were refused, of which there was at least one.
    only_refused: bool,
    /// For a thread that has departed from another: what the requests of that one would have cost untouched, until
    /// the first request of the new thread is counted.
    before: Option<f64>,
}

impl Kept {
    /// Prepares for a request with this prelude.
    pub(super) fn begin_request(&mut self, prelude: u64) {
        (self.expected, self.staked) = (None, None);
        self.entries.behind(prelude);
    }

    /// Converts the costs so far to the price of plain input of the model that the next request goes to, if known.
    pub(in crate::planner) fn convert_to_price(&mut self, price: Option<f64>) {
        let mut before = Stake { plain: self.before.unwrap_or(0.0), ..self.stake };
        before.goes_at(price);
        self.before = self.before.map(|_| before.plain);
        self.stake.goes_at(price);
    }

    /// Counts a request that is known from the history alone, and would have cost `plain` untouched.
    pub(super) fn count_followed(&mut self, plain: f64) {
        self.stake.plain += plain;
    }

    /// Counts the present request, which would cost `plain` untouched. A retry is counted again, because it is paid
    /// again. If the request `is_first`, nothing before it counts unless the thread has departed from another.
    pub(super) fn count_request(&mut self, plain: f64, is_first: bool) {
        self.is_untried = is_first || self.only_refused;
        let before = if is_first { 0.0 } else { self.stake.plain };
        self.stake.plain = self.before.take().unwrap_or(before);
        self.unbilled = Some((self.entries.clone(), self.stake));
        self.stake.plain += plain;
    }

    /// Whether all requests of the thread before this one were refused, of which there was at least one.
    pub(in crate::planner) fn was_only_refused(&self) -> bool {
        self.only_refused
    }

    /// Adjusts the stake for another thread that branches off with a request that would cost `plain` untouched. Its
    /// history was sent at least once, which is all that is known of its past. With `is_forgotten`, it is unknown what
    /// the old thread has spent, and the most that it was allowed to spend is assumed.
    pub(super) fn branch(&mut self, plain: f64, is_forgotten: bool) {
        let most = if is_forgotten { 0.0 } else { plain };
        self.stake = self.stake.at_most(most + plain);
        if let Some((_, before)) = &mut self.unbilled {
            *before = before.at_most(most);
        }
    }

    /// Settles the last request. If it was refused, it has cost nothing and left nothing in the cache. If its fate is
    /// unknown, it has left nothing in the cache, but what it may have spent counts.
    pub(super) fn settle(&mut self, fate: Fate) {
        if let Some(before) = self.seen_before_ms.take()
            && fate == Fate::Refused
        {
            self.seen_ms = before;
        }
        self.compare_with_expected(fate);
        if let Fate::Told { read, written } = fate {
            self.entries.told(read, written);
        }
        self.only_refused = self.is_untried && fate == Fate::Refused;
        let is_billed = matches!(fate, Fate::Billed | Fate::Told { .. });
        let Some((entries, before)) = self.unbilled.take().filter(|_| !is_billed) else { return };
        let spent = self.stake.spent;
        self.entries = entries;
        self.stake = before;
        if fate == Fate::Unknown {
            self.stake.spent = before.spent.max(spent);
        }
        self.before = self.before.map(|_| before.plain);
    }

    /// Records how much of what the last request should have read was missing from the cache. If the provider has
    /// billed it without giving figures, nothing counts as missing.
    fn compare_with_expected(&mut self, fate: Fate) {
        let Some(expected) = self.expected.take() else { return };
        let (missing, read) = match fate {
            Fate::Billed => (0.0, 0),
            Fate::Told { read, written } => (expected.missing(read, written), read),
            Fate::Refused | Fate::Unknown => return,
        };
        self.stake.missed(missing, &expected, expected.found(missing, read));
        if self.stake.is_missing() {
            self.entries.missed(self.stake.may_be_kept());
        }
    }

    /// Records that a request is made now. Returns whether the one before it is too old for any of it to be still
    /// cached.
    pub(in crate::planner) fn record_time(&mut self, clock: CacheClock) -> bool {
        let before = std::mem::replace(&mut self.seen_ms, clock.now_ms);
        self.seen_before_ms = Some(before);
        before > 0 && !clock.is_there(before)
    }

    /// Removes the entries that end with this part or later, because it has changed.
    pub(in crate::planner) fn cut(&mut self, part: PartId) {
        self.entries.cut(part);
        self.stake.cut(part);
        if let Some((entries, stake)) = &mut self.unbilled {
            entries.cut(part);
            stake.cut(part);
        }
    }

    /// The state for a request that departs from the thread at this part: what remains of the entries, and the cost.
    pub(super) fn departed(&self, part: PartId) -> Self {
        let (entries, unbilled) = (self.entries.clone(), self.unbilled.clone());
        let mut departed = Self {
            entries,
            stake: self.stake,
            seen_ms: self.seen_ms,
            seen_before_ms: self.seen_before_ms,
            expected: self.expected,
            unbilled,
            before: Some(self.stake.plain),
            ..Self::default()
        };
        departed.cut(part);
        departed
    }

    /// Whether the thread has departed from another one and none of its own requests has been counted yet.
    pub(in crate::planner) fn is_departed(&self) -> bool {
        self.before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused request leaves no trace, so whoever tries again still has the pause before it.
    #[test]
    fn refused_requests_do_not_end_a_pause() {
        use Fate::{Billed, Refused, Unknown};
        let uncached = Fate::Told { read: 0, written: 9 };
        for requests in [
            &[
                (1, Billed, false),
                (3, Billed, false),
                (10, Refused, true),
                (11, Billed, true),
                (12, Billed, false),
            ][..],
            &[
                (1, Billed, false),
                (10, Refused, true),
                (11, Refused, true),
                (20, uncached, true),
                (21, Billed, false),
            ],
            &[
                (1, Billed, false),
                (3, Refused, false),
                (5, Refused, false),
                (7, Billed, true),
                (9, Billed, false),
            ],
            &[(1, Billed, false), (10, Unknown, true), (11, Billed, false)],
            &[(1, Refused, false), (10, Billed, false), (19, Billed, true)],
        ] {
            let (mut kept, mut departed) = (Kept::default(), Kept::default());
            for &(minute, fate, expected) in requests {
                for kept in [&mut kept, &mut departed] {
                    let clock = CacheClock { now_ms: minute * 60_000, ttl_ms: 300_000 };
                    assert_eq!(kept.record_time(clock), expected, "{requests:?}");
                }
                departed = departed.departed(PartId { message: 0, part: 0 });
                kept.settle(fate);
                departed.settle(fate);
            }
        }
    }

    /// A branch of a thread that was read is not the first of its kind, whatever becomes of it.
    #[test]
    fn a_thread_counts_as_only_refused_until_something_was_read() {
        use Fate::{Billed, Refused, Unknown};
        for (name, branches, fates, expected) in [
            ("refused", false, &[Refused][..], true),
            ("refused again", false, &[Refused, Refused], true),
            ("then read", false, &[Refused, Billed], false),
            ("read before", false, &[Billed, Refused], false),
            ("perhaps read before", false, &[Unknown, Refused], false),
            ("a branch", true, &[Refused, Refused], false),
        ] {
            let mut kept = Kept::default();
            if branches {
                kept.count_request(1.0, true);
                kept.settle(Billed);
                kept = kept.departed(PartId { message: 1, part: 0 });
                kept.branch(1.0, true);
            }
            for (request, fate) in fates.iter().enumerate() {
                kept.count_request(1.0, !branches && request == 0);
                kept.settle(*fate);
            }
            assert_eq!(kept.was_only_refused(), expected, "{name}");
        }
    }
}
