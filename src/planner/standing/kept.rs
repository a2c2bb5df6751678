//! What the provider's cache holds of a thread thanks to marks, and what those have cost. How much of it is true
//! depends on what becomes of each request.

use super::Fate;
use crate::conversation::PartId;
use crate::strategy::findings::Expected;
use crate::strategy::marks::{self, Entries, Stake, Wager};

/// The cached entries and what they have cost.
#[derive(Debug, Clone, Default)]
pub(in crate::planner) struct Kept {
    /// The entries in the provider's cache, if it needs marks.
    entries: Entries,
    stake: Stake,
    /// When the last request was made that the provider may have read, in milliseconds since 1970; 0: none is known.
    seen_ms: u64,
    /// The same before the last request, until that one's fate is known.
    unread_ms: Option<u64>,
    /// The outcome of the thread's first stake, if this request decided it.
    wager: Option<Wager>,
    /// What the last request should have read from the cache, if anything.
    expected: Option<Expected>,
    /// Entries and stake before the last request, until it is known to have been billed.
    unbilled: Option<(Entries, Stake)>,
    /// The request is the first of its thread, or all before it were refused.
    is_untried: bool,
    /// All requests that have ended so far were refused, of which there was at least one.
    only_refused: bool,
    /// What the thread's earlier requests would have cost untouched, if that is known from another history than its
    /// own.
    before: Option<f64>,
}

impl Kept {
    /// The thread's entries in the provider's cache.
    pub(in crate::planner) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The same, to record what this request changes.
    pub(in crate::planner) fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    /// What marking the history has cost.
    pub(in crate::planner) fn stake(&self) -> &Stake {
        &self.stake
    }

    pub(in crate::planner) fn stake_mut(&mut self) -> &mut Stake {
        &mut self.stake
    }

    pub(in crate::planner) fn set_wager(&mut self, wager: Option<Wager>) {
        self.wager = wager;
    }

    /// Takes the outcome of the thread's first stake, if this request decided it.
    pub(super) fn take_wager(&mut self) -> Option<Wager> {
        self.wager.take()
    }

    /// A request with this prelude begins.
    pub(super) fn begins(&mut self, prelude: u64) {
        self.expected = None;
        self.entries.behind(prelude);
    }

    /// The next request goes to a model with this price for plain input, if known.
    pub(in crate::planner) fn goes_at(&mut self, price: Option<f64>) {
        let mut before = Stake { plain: self.before.unwrap_or(0.0), ..self.stake };
        before.goes_at(price);
        self.before = self.before.map(|_| before.plain);
        self.stake.goes_at(price);
    }

    /// A request of the history that would have cost `plain` untouched was followed by another.
    pub(super) fn was_followed(&mut self, plain: f64) {
        self.stake.plain += plain;
    }

    /// Counts a request that would cost `plain` untouched. A retry is paid again. What came before the thread was
    /// known is unknown.
    pub(super) fn is_made(&mut self, plain: f64, is_first: bool) {
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

    /// Another thread branches off with a request that would cost `plain` untouched: all that is known of the past is
    /// that it was sent. If what the old thread has spent `is_forgotten`, it may be as much as is allowed.
    pub(super) fn branch(&mut self, plain: f64, is_forgotten: bool) {
        let most = if is_forgotten { 0.0 } else { plain };
        self.stake = self.stake.at_most(most + plain);
        if let Some((_, before)) = &mut self.unbilled {
            *before = before.at_most(most);
        }
    }

    /// Settles the last request. If it was not billed, it has cost nothing and left nothing in the cache; if it may
    /// have been, what it may have spent counts.
    pub(super) fn ended(&mut self, fate: Fate) {
        let expected = self.expected.take();
        if let Some(before) = self.unread_ms.take()
            && fate == Fate::Refused
        {
            self.seen_ms = before;
        }
        let missing = |expected: &Expected| match fate {
            Fate::Billed => Some((0.0, 0)),
            Fate::Told { read, written } => Some((expected.missing(read, written), read)),
            Fate::Refused | Fate::Unknown => None,
        };
        if let Some((expected, (missing, read))) =
            expected.and_then(|expected| Some((expected, missing(&expected)?)))
        {
            self.stake.missed(missing, &expected, expected.found(missing, read));
            if self.stake.is_missing() {
                self.entries.missed(self.stake.may_be_kept());
            }
        }
        if let Fate::Told { read, written } = fate {
            self.entries.told(read, written);
        }
        let is_billed = matches!(fate, Fate::Billed | Fate::Told { .. });
        self.only_refused = self.is_untried && fate == Fate::Refused;
        let Some((entries, before)) = self.unbilled.take().filter(|_| !is_billed) else { return };
        let spent = self.stake.spent;
        self.entries = entries;
        self.stake = before;
        if fate == Fate::Unknown {
            self.stake.spent = before.spent.max(spent);
        }
        self.before = self.before.map(|_| before.plain);
    }

    /// Whether the previous request is too old for any of it to be cached. From now on this request is the last,
    /// unless it is refused.
    pub(in crate::planner) fn was_paused(&mut self, now_ms: u64, ttl_ms: u64) -> bool {
        let before = std::mem::replace(&mut self.seen_ms, now_ms);
        self.unread_ms = Some(before);
        before > 0 && !marks::is_there(before, now_ms, ttl_ms)
    }

    /// Sets what should be read from the cache with this request.
    pub(in crate::planner) fn expect(&mut self, expected: Option<Expected>) {
        self.expected = expected;
    }

    /// What should be read from the cache with this request.
    pub(super) fn expected(&self) -> Option<Expected> {
        self.expected
    }

    /// Everything from this part on has changed.
    pub(in crate::planner) fn cut(&mut self, part: PartId) {
        self.entries.cut(part);
        if let Some((entries, _)) = &mut self.unbilled {
            entries.cut(part);
        }
    }

    /// The state for a request that departs from the thread at a part.
    pub(super) fn departed(&self, part: PartId) -> Self {
        let (entries, unbilled) = (self.entries.clone(), self.unbilled.clone());
        let mut departed = Self {
            entries,
            stake: self.stake,
            seen_ms: self.seen_ms,
            unread_ms: self.unread_ms,
            expected: self.expected,
            unbilled,
            before: Some(self.stake.plain),
            ..Self::default()
        };
        departed.cut(part);
        departed
    }

    /// Whether nothing is known but the traces of marks.
    pub(in crate::planner) fn is_departed(&self) -> bool {
        self.before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is refused leaves nothing behind, so that the pause before it is one of whoever tries again.
    #[test]
    fn what_is_refused_ends_no_pause() {
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
                    assert_eq!(kept.was_paused(minute * 60_000, 300_000), expected, "{requests:?}");
                }
                departed = departed.departed(PartId { message: 0, part: 0 });
                kept.ended(fate);
                departed.ended(fate);
            }
        }
    }

    /// What branches off from a thread that was read is not the first of its kind, whatever becomes of it.
    #[test]
    fn what_was_only_refused() {
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
                kept.is_made(1.0, true);
                kept.ended(Billed);
                kept = kept.departed(PartId { message: 1, part: 0 });
                kept.branch(1.0, true);
            }
            for (request, fate) in fates.iter().enumerate() {
                kept.is_made(1.0, !branches && request == 0);
                kept.ended(*fate);
            }
            assert_eq!(kept.was_only_refused(), expected, "{name}");
        }
    }
}
