//! What marking histories has cost a sender, and whether one more write may be lost.
//!
//! A thread's own limit ([`super::gate::MOST_LOSS`]) is a share of what the thread has cost. A sender whose threads end
//! soon after a write would lose that share in each of them, so what all of its threads lose is added up. Once that is
//! as much as three writes cost, no more are made, until not making them has cost as much as making them. Writes of
//! different sizes are counted apart: that small ones are read says nothing about large ones, nor do they make up for
//! them.
//!
//! Amounts are in bytes of plain input, that is in what sending one byte without any cache costs.

use super::gate::Rates;

/// Once so many writes are lost, no more are made: that is with the third, even if it is somewhat smaller than the
/// others. Agents that work side by side make their first writes at the same time, before any is read.
const MOST_WRITES: f64 = 2.5;
/// The number of sizes that are counted apart.
const SIZES: usize = 8;
/// The largest of the smallest size, in bytes.
const SMALLEST: f64 = 1024.0;
/// How much larger the largest of each next size is.
const STEP: f64 = 4.0;

/// What the threads of a sender have lost by marking their histories.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Debt([Owed; SIZES]);

/// What is owed for writes of about one size. No amount is below zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Owed {
    /// What writes have cost beyond plain input, less what reads of them have saved.
    lost: f64,
    /// The same since writes were last allowed again.
    lost_since: f64,
    /// What reads of held writes would have saved, less what these would have cost, since then.
    missed: f64,
    /// Whether anything was read, or would have been.
    is_read: bool,
}

/// A write to the cache that is lost unless something reads it: what the thread's marks have saved does not pay for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Write {
    /// Its bytes.
    pub bytes: f64,
    /// The bytes by which its size is judged.
    pub size: f64,
    /// What may be lost.
    pub extra: f64,
    /// It was not made because of the sender's debt.
    pub is_held: bool,
}

/// What a request does to its sender's debt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Staked {
    /// An earlier write that the request reads, or would have read, and what that saves.
    pub read: Option<(Write, f64)>,
    /// What it writes, or would have written.
    pub written: Option<Write>,
}

impl Write {
    /// The write of so many bytes, of which `extra` may be lost. A thread that would have read what was held back
    /// (`earlier`) goes on, so that what it writes later is judged as that was, unless much has been added.
    pub fn new(bytes: f64, extra: f64, earlier: Option<Self>) -> Self {
        let late = earlier.filter(|earlier| earlier.is_held && bytes <= STEP * earlier.size);
        Self { bytes, size: late.map_or(bytes, |earlier| earlier.size), extra, is_held: false }
    }

    /// What reading it saves a request that reads `read` bytes in all.
    pub fn saves(&self, read: f64, rates: Rates) -> f64 {
        (1.0 - rates.read) * if self.is_held { self.bytes } else { self.bytes.min(read) }
    }

    /// Which of the sizes it has.
    fn class(&self) -> usize {
        let steps = (self.size / SMALLEST).log(STEP).ceil().max(0.0);
        (steps as usize).min(SIZES - 1)
    }
}

impl Debt {
    /// Whether a request that does this should hold back its write.
    pub fn holds(&self, staked: &Staked) -> bool {
        let Some(write) = staked.written else { return false };
        let Self(all) = self.after(&Staked { written: None, ..*staked });
        let own = all[write.class()];
        // A new sender does not lose as much again for each size.
        let unread = || all.iter().filter(|owed| !owed.is_read).map(|owed| owed.lost_since).sum();
        let lost = if own.is_read { own.lost_since } else { unread() };
        lost >= MOST_WRITES * write.extra
    }

    /// The debt after a request.
    #[must_use]
    pub fn after(mut self, staked: &Staked) -> Self {
        if let Some((write, saved)) = staked.read {
            self.0[write.class()].read(write.is_held, saved);
        }
        if let Some(write) = staked.written {
            self.0[write.class()].written(write);
        }
        self
    }
}

impl Owed {
    fn read(&mut self, is_held: bool, saved: f64) {
        self.is_read |= saved > 0.0;
        if !is_held {
            self.lost = (self.lost - saved).max(0.0);
            self.lost_since = (self.lost_since - saved).max(0.0);
            return;
        }
        self.missed += saved;
        if self.missed >= self.lost {
            (self.lost_since, self.missed) = (0.0, 0.0);
        }
    }

    fn written(&mut self, write: Write) {
        if write.is_held {
            self.missed = (self.missed - write.extra).max(0.0);
        } else {
            self.lost += write.extra;
            self.lost_since += write.extra;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of so many KiB at the usual rates.
    fn write(kib: f64, is_held: bool) -> Write {
        Write { is_held, ..Write::new(1024.0 * kib, 256.0 * kib, None) }
    }

    /// What requests do: write so many KiB, hold such a write, read it, or find that they would have read it.
    fn pays(kib: f64) -> Staked {
        Staked { written: Some(write(kib, false)), read: None }
    }

    fn holds(kib: f64) -> Staked {
        Staked { written: Some(write(kib, true)), read: None }
    }

    fn reads(kib: f64) -> Staked {
        Staked { read: Some((write(kib, false), 0.9 * 1024.0 * kib)), written: None }
    }

    fn would_read(kib: f64) -> Staked {
        Staked { read: Some((write(kib, true), 0.9 * 1024.0 * kib)), written: None }
    }

    fn after(requests: &[Staked]) -> Debt {
        requests.iter().fold(Debt::default(), Debt::after)
    }

    /// Requests, and whether the next one holds back a write of 4, of 16 and of 64 KiB.
    #[test]
    fn what_is_lost_is_bounded_for_each_size() {
        let lost = || vec![pays(16.0); 3];
        let read = || vec![reads(4.0), reads(16.0), reads(64.0)];
        for (name, requests, expected) in [
            ("nothing", vec![], [false; 3]),
            ("two writes", vec![pays(16.0); 2], [true, false, false]),
            ("three writes, and nothing was ever read", lost(), [true, true, false]),
            ("three of different sizes", vec![pays(4.0), pays(16.0), pays(64.0)], [true, true, false]),
            ("three writes of one size", [read(), lost()].concat(), [false, true, false]),
            ("others are read", [lost(), vec![reads(4.0), reads(64.0)]].concat(), [false, true, false]),
            ("one is read", [read(), lost(), vec![reads(16.0)]].concat(), [false; 3]),
            (
                "what was read before does not count",
                [vec![reads(16.0); 50], read(), lost()].concat(),
                [false, true, false],
            ),
            (
                "some that were held would have been lost as well",
                [read(), lost(), vec![holds(16.0); 9]].concat(),
                [false, true, false],
            ),
            (
                "one would have been read",
                [read(), lost(), vec![holds(16.0), holds(16.0), would_read(16.0)]].concat(),
                [false; 3],
            ),
        ] {
            let debt = after(&requests);
            let held = [4.0, 16.0, 64.0].map(|kib| debt.holds(&pays(kib)));
            assert_eq!(held, expected, "{name}: {debt:?}");
            assert!(!debt.holds(&Staked::default()), "{name}");
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
            ("lllrr", 45.0),
            ("lllllrr", 20.0),
            ("lllllllllrrr", 20.0),
            ("llr", -30.0),
            ("lr", -479.0),
            ("r", -1500.0),
        ] {
            let (mut debt, mut lost) = (Debt::default(), 0.0);
            for thread in threads.chars().cycle().take(600) {
                let is_held = debt.holds(&pays(16.0));
                debt = debt.after(&if is_held { holds(16.0) } else { pays(16.0) });
                lost += if is_held { 0.0 } else { 1.0 };
                if thread == 'r' {
                    debt = debt.after(&if is_held { would_read(16.0) } else { reads(16.0) });
                    lost -= if is_held { 0.0 } else { 3.6 };
                }
            }
            assert!(lost <= most, "{threads}: {lost}");
        }
    }

    /// A request that reads what was written may write at once.
    #[test]
    fn what_a_request_reads_itself_counts() {
        let debt = after(&[pays(16.0); 3]);
        for (reads, expected) in [(pays(16.0), true), (reads(4.0), true), (reads(16.0), false)] {
            let staked = Staked { read: reads.read, ..pays(16.0) };
            assert_eq!(debt.holds(&staked), expected, "{reads:?}");
        }
    }

    /// The KiB of a held write, the bytes of the one that is made later, and whether that is judged as it was.
    #[test]
    fn late_writes_are_judged_as_they_were() {
        for (held, bytes, expected) in
            [(4.0, 4_096.0, true), (4.0, 5_000.0, true), (4.0, 16_384.0, true), (4.0, 16_385.0, false)]
        {
            let own = Write::new(bytes, 1.0, None);
            let late = Write::new(bytes, 1.0, Some(write(held, true)));
            let class = if expected { write(held, true).class() } else { own.class() };
            assert_eq!(late.class(), class, "{held} {bytes}");
            assert_eq!(Write::new(bytes, 1.0, Some(write(held, false))), own, "{held} {bytes}");
        }
    }

    #[test]
    fn sizes_are_apart() {
        for (bytes, expected) in
            [(0.0, 0), (1.0, 0), (1024.0, 0), (1025.0, 1), (4096.0, 1), (4097.0, 2), (1e6, 5), (1e15, 7)]
        {
            assert_eq!(Write::new(bytes, 1.0, None).class(), expected, "{bytes}");
        }
    }
}
