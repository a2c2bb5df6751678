//! What marking histories has cost a sender, and whether one more write may be lost.
//!
//! For each size of write, the costs of all such writes by the sender's threads are added up, less what reading them
//! has saved. Once as much as three of them is lost, none of that size is made until the reads that unmade ones would
//! have had are worth what has been lost. Sizes are counted apart, because small writes that are read say nothing about
//! large ones, nor do they pay for them.
//!
//! A thread's own limit ([`super::gate::MOST_LOSS`]) is a share of what the thread has cost, so a sender whose threads
//! all end soon after a write would lose that share forever.
//!
//! Amounts are in bytes of plain input, that is in what sending one byte without any cache costs.

use crate::conversation::PartId;

use super::gate::Rates;
use super::marks::CacheClock;

/// Once this many writes are lost, no more are made: that is with the third, even if it is somewhat smaller than the
/// others. As many may be saved up, because agents that work side by side write at the same time, before any reads.
const MOST_WRITES: f64 = 2.5;
/// The number of sizes that are counted apart.
const SIZES: usize = 16;
/// The largest of the smallest size, in bytes.
const SMALLEST: f64 = 1024.0;
/// How much larger the largest of each next size is.
const STEP: f64 = 2.0;
/// How much larger than the first one that was held a later write of a thread may be, to be judged as that one was.
const LATE: f64 = 4.0;

/// Bytes, by the size of the writes that they belong to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares([u32; SIZES]);

/// Writes of a thread that were held back. Had they been made, they would follow each other in the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The bytes of the first.
    first: f64,
    shares: Shares,
    /// The last part of all.
    end: PartId,
    /// When they were last made or would have been read, in milliseconds since 1970.
    at_ms: u64,
    /// The key of the prelude that they follow.
    prelude: u64,
}

/// What a request does to its sender's debt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Staked {
    /// What it reads of earlier writes.
    pub read: Shares,
    /// What it would have read of writes that were held back.
    pub missed: Shares,
    /// What it writes, or would have written.
    pub written: Option<Write>,
    /// The rates that were assumed.
    pub rates: Rates,
}

/// A write to the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Write {
    /// Its bytes; if it is held, only those that are not held already.
    bytes: f64,
    /// Which of the sizes it has.
    size: usize,
    /// It is not made because of the sender's debt.
    pub is_held: bool,
}

/// What the threads of a sender have lost by marking their histories.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Debt([Owed; SIZES]);

/// What is owed for writes of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Owed {
    /// What writes have cost beyond plain input, less what reads of them have saved. Less than zero if more was saved,
    /// of which no more than [`MOST_WRITES`] cost is kept.
    lost: f64,
    /// The same since writes were last allowed again.
    lost_since: f64,
    /// What reads of held writes would have saved, less what these would have cost, since then. Not below zero.
    missed: f64,
    /// Whether anything was read, or would have been.
    is_read: bool,
}

impl Shares {
    /// These and a write.
    #[must_use]
    pub fn with(mut self, write: Write) -> Self {
        let share = &mut self.0[write.size];
        *share = share.saturating_add(write.bytes as u32);
        self
    }

    fn bytes(self) -> f64 {
        self.0.into_iter().map(f64::from).sum()
    }
}

impl Held {
    /// The writes that a thread holds back after this one, which ends with `end`.
    pub fn after(before: Option<Self>, write: Write, end: PartId, prelude: u64, now_ms: u64) -> Self {
        let first = before.map_or(write.bytes, |before| before.first);
        let shares = before.map(|before| before.shares).unwrap_or_default().with(write);
        Self { first, shares, end, at_ms: now_ms, prelude }
    }

    /// The same if a request with this prelude would read them now.
    pub fn read(self, prelude: u64, clock: CacheClock) -> Option<Self> {
        let is_there = self.prelude == prelude && clock.may_be_there(self.at_ms);
        is_there.then_some(Self { at_ms: clock.now_ms, ..self })
    }

    /// Their bytes.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Whether all of them are before this part.
    pub fn is_before(&self, part: PartId) -> bool {
        self.end < part
    }
}

impl Write {
    /// The write of `bytes` bytes, `None` if there are none. If a thread goes on that would have read what it `held`,
    /// its late write is judged as the first of the held ones was, unless much has been added.
    pub fn of(bytes: f64, held: Option<&Held>) -> Option<Self> {
        let judged = held.map(|held| held.first).filter(|first| bytes <= LATE * first);
        (bytes > 0.0).then(|| Self { bytes, size: size_of(judged.unwrap_or(bytes)), is_held: false })
    }

    /// The same held back: what it would have added to those that were `held` before.
    #[must_use]
    pub fn held(self, held: Option<&Held>) -> Self {
        let Some(held) = held else { return Self { is_held: true, ..self } };
        let bytes = (self.bytes - held.shares.bytes()).max(0.0);
        Self { bytes, size: size_of(bytes), is_held: true }
    }

    fn cost(self, rates: Rates) -> f64 {
        (rates.write - 1.0).max(0.0) * self.bytes
    }
}

/// The size class of a write of `bytes` bytes.
fn size_of(bytes: f64) -> usize {
    let steps = (bytes / SMALLEST).log(STEP).ceil().max(0.0);
    (steps as usize).min(SIZES - 1)
}

impl Debt {
    /// Whether a request that does this should hold back its write.
    pub fn holds(mut self, staked: &Staked) -> bool {
        let Some(write) = staked.written else { return false };
        self.read(staked);
        let own = self.0[write.size];
        // A new sender does not lose as much again for each size.
        let unread = || self.0.iter().filter(|owed| !owed.is_read).map(|owed| owed.lost_since).sum();
        let lost: f64 = if own.is_read { own.lost_since } else { unread() };
        let cost = write.cost(staked.rates);
        cost > 0.0 && lost >= MOST_WRITES * cost
    }

    /// The debt once a request has left: what it writes may be lost.
    #[must_use]
    pub fn left(mut self, staked: &Staked) -> Self {
        if let Some(write) = staked.written.filter(|write| !write.is_held) {
            self.0[write.size].add(write.cost(staked.rates));
        }
        self
    }

    /// The debt once a request that had left turns out to be refused: it wrote nothing.
    #[must_use]
    pub fn refused(mut self, staked: &Staked) -> Self {
        if let Some(write) = staked.written.filter(|write| !write.is_held) {
            self.0[write.size].add(-write.cost(staked.rates));
        }
        self
    }

    /// The debt once a request that had left has been billed, and what it should have read was not there.
    #[must_use]
    pub fn unread(self, staked: &Staked) -> Self {
        self.billed(&Staked { read: Shares::default(), ..*staked })
    }

    /// The debt once a request that had left has been billed. What it reads counts before what it writes, as when it
    /// was decided whether to write.
    #[must_use]
    pub fn billed(mut self, staked: &Staked) -> Self {
        self = self.refused(staked);
        self.read(staked);
        self = self.left(staked);
        if let Some(write) = staked.written.filter(|write| write.is_held) {
            let owed = &mut self.0[write.size];
            owed.missed = (owed.missed - write.cost(staked.rates)).max(0.0);
        }
        self
    }

    /// Counts what a request reads, or would have read.
    fn read(&mut self, staked: &Staked) {
        let (saving, premium) = (1.0 - staked.rates.read, (staked.rates.write - 1.0).max(0.0));
        for (size, owed) in self.0.iter_mut().enumerate() {
            let (read, missed) = (f64::from(staked.read.0[size]), f64::from(staked.missed.0[size]));
            owed.is_read |= read + missed > 0.0;
            let most_saved = MOST_WRITES * premium * SMALLEST * STEP.powf(size as f64);
            owed.save(saving * read, most_saved);
            owed.miss(saving * missed);
        }
    }
}

impl Owed {
    fn add(&mut self, cost: f64) {
        self.lost += cost;
        self.lost_since += cost;
    }

    fn save(&mut self, saved: f64, most: f64) {
        for lost in [&mut self.lost, &mut self.lost_since] {
            *lost = (*lost - saved).max(lost.min(-most));
        }
    }

    fn miss(&mut self, saved: f64) {
        self.missed += saved;
        if saved > 0.0 && self.missed >= self.lost {
            (self.lost_since, self.missed) = (self.lost_since.min(0.0), 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of this many KiB, made or held back.
    fn write(kib: f64, is_held: bool) -> Write {
        Write { is_held, ..Write::of(1024.0 * kib, None).unwrap() }
    }

    /// What requests do: write this many KiB, hold such a write, read it, or find that they would have read it.
    fn writes(kib: f64) -> Staked {
        let (read, missed) = Default::default();
        Staked { read, missed, written: Some(write(kib, false)), rates: Rates::USUAL }
    }

    fn holds(kib: f64) -> Staked {
        Staked { written: Some(write(kib, true)), ..writes(kib) }
    }

    fn reads(kib: f64) -> Staked {
        Staked { read: Shares::default().with(write(kib, false)), written: None, ..writes(kib) }
    }

    fn would_read(kib: f64) -> Staked {
        Staked { read: Shares::default(), missed: reads(kib).read, ..reads(kib) }
    }

    fn after(requests: &[Staked]) -> Debt {
        requests.iter().fold(Debt::default(), |debt, staked| debt.left(staked).billed(staked))
    }

    /// Requests, and whether the next one holds back a write of 4, of 16 and of 64 KiB.
    #[test]
    fn what_is_lost_is_bounded_for_each_size() {
        let lost = |count: usize| vec![writes(16.0); count];
        let read = || vec![reads(4.0), reads(16.0), reads(64.0)];
        for (name, requests, expected) in [
            ("nothing", vec![], [false; 3]),
            ("two writes", lost(2), [true, false, false]),
            ("three writes, and nothing was ever read", lost(3), [true, true, false]),
            ("three of different sizes", vec![writes(4.0), writes(16.0), writes(64.0)], [true, true, false]),
            ("as many as were saved, and three", [read(), lost(5)].concat(), [false, true, false]),
            (
                "no more than that, whatever was saved",
                [vec![reads(16.0); 50], lost(6)].concat(),
                [false, true, false],
            ),
            ("others are read", [lost(3), vec![reads(4.0), reads(64.0)]].concat(), [false, true, false]),
            ("one is read", [read(), lost(6), vec![reads(16.0)]].concat(), [false; 3]),
            (
                "some that were held would have been lost as well",
                [read(), lost(6), vec![holds(16.0); 9]].concat(),
                [false, true, false],
            ),
            (
                "one would have been read",
                [lost(3), vec![holds(16.0), holds(16.0), would_read(16.0)]].concat(),
                [false; 3],
            ),
        ] {
            let debt = after(&requests);
            let held = [4.0, 16.0, 64.0].map(|kib| debt.holds(&writes(kib)));
            assert_eq!(held, expected, "{name}: {debt:?}");
            assert!(!debt.holds(&Staked { written: None, ..writes(1.0) }), "{name}");
            let free = Rates { write: 1.0, ..Rates::USUAL };
            assert!(!debt.holds(&Staked { rates: free, ..writes(16.0) }), "{name}");
        }
    }

    /// Threads that are lost (`l`) or read once (`r`) in turn, and the most that a sender loses by 600 of them, in
    /// writes. Where it pays, writes are made.
    #[test]
    fn what_a_sender_loses_is_bounded() {
        for (threads, most) in [
            ("l", 3.0),
            ("lllr", 12.0),
            ("llllr", 9.0),
            ("lllrr", 20.0),
            ("lllllrr", 20.0),
            ("lllllllllrrr", 20.0),
            ("llr", -30.0),
            ("lr", -470.0),
            ("r", -1500.0),
        ] {
            let (mut debt, mut lost) = (Debt::default(), 0.0);
            for thread in threads.chars().cycle().take(600) {
                let is_held = debt.holds(&writes(16.0));
                let first = if is_held { holds(16.0) } else { writes(16.0) };
                let second = if is_held { would_read(16.0) } else { reads(16.0) };
                debt = debt.left(&first).billed(&first);
                lost += if is_held { 0.0 } else { 1.0 };
                if thread == 'r' {
                    debt = debt.left(&second).billed(&second);
                    lost -= if is_held { 0.0 } else { 3.6 };
                }
            }
            assert!(lost <= most, "{threads}: {lost}");
        }
    }

    /// A request that reads what was written may write at once.
    #[test]
    fn what_a_request_reads_itself_counts() {
        let debt = after(&[writes(16.0); 3]);
        for (reads, expected) in [(writes(16.0), true), (reads(4.0), true), (reads(16.0), false)] {
            assert_eq!(debt.holds(&Staked { read: reads.read, ..writes(16.0) }), expected, "{reads:?}");
        }
    }

    /// Of 200 threads that would at once read what they write, if the server kept anything, few write.
    #[test]
    fn what_would_be_read_does_not_pay_for_losses_again_and_again() {
        let (mut debt, mut written) = (Debt::default(), 0);
        for _ in 0..200 {
            let is_held = debt.holds(&writes(16.0));
            let first = if is_held { holds(16.0) } else { writes(16.0) };
            debt = debt.left(&first).billed(&first);
            written += u32::from(!is_held);
            let late = Staked { missed: reads(16.0).read, ..writes(16.0) };
            if is_held && !debt.holds(&late) {
                debt = debt.left(&late).billed(&late);
                written += 1;
            } else if is_held {
                debt = debt.billed(&would_read(16.0));
            }
        }
        assert!(written < 60, "{written}: {debt:?}");
    }

    /// A refused request has neither written nor read.
    #[test]
    fn refused_requests_leave_no_debt() {
        for before in [vec![], vec![writes(16.0); 2], vec![reads(16.0); 2]] {
            let debt = after(&before);
            for staked in [writes(16.0), holds(16.0), reads(16.0), would_read(16.0)] {
                assert_eq!(debt.left(&staked).refused(&staked), debt, "{before:?} {staked:?}");
            }
        }
    }

    /// A held write follows what was held before; a late write is judged as the first of the held ones was, unless it
    /// is more than four times as large.
    #[test]
    fn late_writes_are_judged_as_the_first_that_was_held() {
        let clock = |now_ms| CacheClock { now_ms, ttl_ms: 300_000 };
        let end = |message| PartId { message, part: 0 };
        let held = Held::after(None, write(4.0, true), end(2), 7, 0);
        let more = Write::of(5.0 * 1024.0, Some(&held)).unwrap().held(Some(&held));
        let held = Held::after(held.read(7, clock(170_000)), more, end(4), 7, 170_000);
        assert_eq!(held.shares(), Shares::default().with(write(4.0, false)).with(write(1.0, false)));
        assert!(held.is_before(end(5)) && !held.is_before(end(4)));
        for (prelude, now_ms, expected) in [(7, 400_000, true), (7, 470_000, false), (8, 171_000, false)] {
            assert_eq!(held.read(prelude, clock(now_ms)).is_some(), expected, "{prelude} {now_ms}");
        }
        for (kib, expected) in [(4.0, 4.0), (6.0, 4.0), (16.0, 4.0), (17.0, 17.0)] {
            let late = Write::of(1024.0 * kib, Some(&held)).unwrap();
            assert_eq!(late.size, write(expected, false).size, "{kib}");
        }
    }

    #[test]
    fn sizes_are_apart() {
        for (bytes, expected) in
            [(0.0, 0), (1.0, 0), (1024.0, 0), (1025.0, 1), (2048.0, 1), (2049.0, 2), (1e6, 10), (1e15, 15)]
        {
            assert_eq!(size_of(bytes), expected, "{bytes}");
        }
    }
}
