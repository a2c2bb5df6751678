//! What marks hold of a thread in the provider's cache, and what they have cost: what of it holds depends on what becomes
//! of each request.

use super::{Fate, Standing};
use crate::conversation::PartId;
use crate::strategy::gate::Rates;
use crate::strategy::marks::{self, Entries, Stake, Wager};

impl Standing {
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
    pub fn take_wager(&mut self) -> Option<Wager> {
        self.wager.take()
    }

    /// Another thread goes on from where this one did: of what was before, no more is known than that it was sent.
    /// Where it `is_forgotten` what that one has spent, it may be as much as it may.
    pub(in crate::planner) fn branch(&mut self, rates: Rates, is_forgotten: bool) {
        let plain = self.plain(rates);
        let most = if is_forgotten { 0.0 } else { plain };
        self.stake = self.stake.at_most(most + plain);
        if let Some((_, before)) = &mut self.unbilled {
            *before = before.at_most(most);
        }
    }

    /// This has become of the last request. One that was not billed has cost nothing and left nothing in the provider's
    /// cache; of one that may have been, what it may have spent counts.
    pub fn ended(&mut self, fate: Fate) {
        let credit = std::mem::take(&mut self.credit);
        if let Some(before) = self.unread_ms.take()
            && fate == Fate::Refused
        {
            self.seen_ms = before;
        }
        match fate {
            Fate::Uncached if credit > 0.0 => {
                let is_kept = self.stake.missed(credit);
                self.entries.missed(is_kept);
            }
            Fate::Billed if credit > 0.0 => self.stake.missing = 0,
            _ => {}
        }
        let is_billed = matches!(fate, Fate::Billed | Fate::Uncached);
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

    /// What reading an entry is to save with this request.
    pub(in crate::planner) fn expect(&mut self, credit: f64) {
        self.credit = credit;
    }

    /// What stands at a part and behind it has changed.
    pub(in crate::planner) fn cut(&mut self, part: PartId) {
        self.entries.cut(part);
        if let Some((entries, _)) = &mut self.unbilled {
            entries.cut(part);
        }
    }

    /// What a request knows that goes a way of its own behind the first so many messages: what the provider's cache
    /// holds of these, and what marks have cost.
    #[must_use]
    pub fn departed(&self, messages: usize) -> Self {
        let (entries, unbilled) = (self.entries.clone(), self.unbilled.clone());
        let mut departed = Self {
            entries,
            stake: self.stake,
            seen_ms: self.seen_ms,
            unread_ms: self.unread_ms,
            unbilled,
            before: Some(self.stake.plain),
            ..Self::default()
        };
        departed.cut(PartId { message: messages as u32, part: 0 });
        departed
    }

    /// Whether no more is known than what marks have left.
    pub(in crate::planner) fn is_departed(&self) -> bool {
        self.before.is_some()
    }
}
