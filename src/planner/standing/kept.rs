//! What marks hold of a thread in the provider's cache, and what they have cost: what of it holds depends on what becomes
//! of each request.

use super::Fate;
use crate::conversation::PartId;
use crate::strategy::findings::Expected;
use crate::strategy::marks::{self, Entries, Stake, Wager};

/// What is known of that.
#[derive(Debug, Clone, Default)]
pub(in crate::planner) struct Kept {
    /// What the provider's cache holds, where it needs marks.
    entries: Entries,
    stake: Stake,
    /// When its last request was made that the provider may have read, in milliseconds since 1970; 0: none is known.
    seen_ms: u64,
    /// The same as of before the last request, until it is known what has become of that.
    unread_ms: Option<u64>,
    /// What has become of the first stake with this request.
    wager: Option<Wager>,
    /// What was to be read with the last request, if anything.
    expected: Option<Expected>,
    /// Entries and stake as they were before the last request, as long as nobody knows that it was billed.
    unbilled: Option<(Entries, Stake)>,
    /// What the requests before this one would have cost as they came, where that is known from another history than
    /// its own.
    before: Option<f64>,
}

impl Kept {
    /// What the provider's cache holds of the thread.
    pub(in crate::planner) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The same, to note what this request changes.
    pub(in crate::planner) fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    /// What marking its history has cost.
    pub(in crate::planner) fn stake(&self) -> &Stake {
        &self.stake
    }

    pub(in crate::planner) fn stake_mut(&mut self) -> &mut Stake {
        &mut self.stake
    }

    pub(in crate::planner) fn set_wager(&mut self, wager: Option<Wager>) {
        self.wager = wager;
    }

    /// What has become of the thread's first stake with this request; told once.
    pub(super) fn take_wager(&mut self) -> Option<Wager> {
        self.wager.take()
    }

    /// A request begins with this prelude.
    pub(super) fn begins(&mut self, prelude: u64) {
        self.expected = None;
        self.entries.behind(prelude);
    }

    /// The next request goes to a model whose plain input costs so much, if that is known.
    pub(in crate::planner) fn goes_at(&mut self, price: Option<f64>) {
        let mut before = Stake { plain: self.before.unwrap_or(0.0), ..self.stake };
        before.goes_at(price);
        self.before = self.before.map(|_| before.plain);
        self.stake.goes_at(price);
    }

    /// A request of the history, which would have cost so much as it came, was followed by another.
    pub(super) fn was_followed(&mut self, plain: f64) {
        self.stake.plain += plain;
    }

    /// The request is taken in: it would cost so much as it came. One that is made again is paid again. What was before the
    /// thread was known, nobody knows.
    pub(super) fn is_made(&mut self, plain: f64, is_first: bool) {
        let before = if is_first { 0.0 } else { self.stake.plain };
        self.stake.plain = self.before.take().unwrap_or(before);
        self.unbilled = Some((self.entries.clone(), self.stake));
        self.stake.plain += plain;
    }

    /// Another thread goes on from where this one did, with a request that would cost so much as it came: of what was
    /// before, no more is known than that it was sent. Where it `is_forgotten` what that one has spent, it may be as much
    /// as it may.
    pub(super) fn branch(&mut self, plain: f64, is_forgotten: bool) {
        let most = if is_forgotten { 0.0 } else { plain };
        self.stake = self.stake.at_most(most + plain);
        if let Some((_, before)) = &mut self.unbilled {
            *before = before.at_most(most);
        }
    }

    /// This has become of the last request. One that was not billed has cost nothing and left nothing in the provider's
    /// cache; of one that may have been, what it may have spent counts.
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
        let Some((entries, before)) = self.unbilled.take().filter(|_| !is_billed) else { return };
        let spent = self.stake.spent;
        self.entries = entries;
        self.stake = before;
        if fate == Fate::Unknown {
            self.stake.spent = before.spent.max(spent);
        }
        self.before = self.before.map(|_| before.plain);
    }

    /// Whether the request before was made too long ago for anything of it to be kept. This one is the last from now on,
    /// unless it is refused.
    pub(in crate::planner) fn was_paused(&mut self, now_ms: u64, ttl_ms: u64) -> bool {
        let before = std::mem::replace(&mut self.seen_ms, now_ms);
        self.unread_ms = Some(before);
        before > 0 && !marks::is_there(before, now_ms, ttl_ms)
    }

    /// What is to be read with this request.
    pub(in crate::planner) fn expect(&mut self, expected: Option<Expected>) {
        self.expected = expected;
    }

    /// The same, when it is known.
    pub(super) fn expected(&self) -> Option<Expected> {
        self.expected
    }

    /// What stands at a part and behind it has changed.
    pub(in crate::planner) fn cut(&mut self, part: PartId) {
        self.entries.cut(part);
        if let Some((entries, _)) = &mut self.unbilled {
            entries.cut(part);
        }
    }

    /// What a request knows that goes a way of its own from a part on.
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

    /// Whether no more is known than what marks have left.
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
}
