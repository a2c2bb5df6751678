//! Whether what was written to the provider's cache is found there again.
//!
//! A server may bill writes and keep none of them, or requests may reach one of several caches. The tokens that it
//! reports as read tell.

use super::gate::Rates;

/// What to expect of the first entry that a thread writes, judging by the sender's other threads of late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing speaks against it.
    #[default]
    Fair,
    /// Few of the threads went on.
    SeldomGoesOn,
    /// What they wrote was not found again.
    SeldomKept,
    /// Some of what they wrote was found again.
    Kept,
}

/// What was found so far of what should be read: by one thread, or by all of a sender's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// How often in a row it was missing, together with the rest of the history.
    missing: u32,
    /// For how many more requests nothing new is written because of that.
    rests: u32,
    /// Whether something of a history was found: if it is missing now, that is most likely another one of several
    /// caches.
    is_kept: bool,
}

impl Findings {
    /// Records a finding. After a rest, `tries` misses lead to the next rest.
    #[must_use]
    pub fn found(self, found: Found, tries: u32) -> Self {
        let is_kept = self.is_kept || found == Found::History;
        if found != Found::Nothing {
            return Self { missing: 0, rests: 0, is_kept };
        }
        let missing = self.missing.saturating_add(1);
        if is_kept && missing < MOST_CACHES {
            return Self { missing, is_kept, ..self };
        }
        let missing = if is_kept { MOST_MISSING } else { missing };
        let is_enough = missing.checked_sub(MOST_MISSING).is_some_and(|more| more % tries == 0);
        let rests = if is_enough { 1 << (missing.min(MOST_RESTS) * 3 / 2 - 1) } else { 0 };
        Self { missing, rests: rests.max(self.rests), is_kept: false }
    }

    /// Counts a request against the rest; `None` if nothing is left to remember.
    #[must_use]
    pub fn rested(self) -> Option<Self> {
        (self.rests > 0).then(|| Self { rests: self.rests - 1, ..self })
    }

    /// Whether nothing new should be written.
    pub fn rests(self) -> bool {
        self.rests > 0
    }

    /// Whether something of a history was found, as far as is known.
    pub fn is_kept(self) -> bool {
        self.is_kept
    }

    /// The findings of a cache in which nothing should have been read yet.
    pub fn first(outlook: Outlook) -> Self {
        Self { is_kept: outlook == Outlook::Kept, ..Self::default() }
    }
}

/// After this many misses in a row nothing is written for a while, longer each time.
const MOST_MISSING: u32 = 2;
/// The same if something was read before: requests may reach one of this many caches, each of which must be filled.
const MOST_CACHES: u32 = 8;
/// The number of misses that a rest's length grows with, at most.
const MOST_RESTS: u32 = 6;

/// What was found of what should be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Some of the history.
    History,
    /// Most of all bytes, which may be no more than instructions.
    Most,
    /// Little or nothing.
    Nothing,
}

/// What should be read with a request thanks to the gateway's marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Its bytes.
    pub bytes: f64,
    /// Bytes in front of these that are read thanks to the client's marks.
    pub before: f64,
    /// The tokens of both, if reported.
    pub tokens: Option<u64>,
    /// The fewest tokens that are read if anything of the history is, if known.
    pub least: Option<u64>,
    /// The rates that were assumed.
    pub rates: Rates,
}

impl Expected {
    /// How many of the bytes were missing, if the provider reported having read and written so many tokens. That
    /// something was read alone proves nothing: tools and instructions are cached by themselves.
    pub fn missing(&self, read: u64, written: u64) -> f64 {
        match self.tokens {
            Some(tokens) => {
                let unread = tokens.saturating_sub(read) as f64 / tokens.max(1) as f64;
                ((self.before + self.bytes) * unread).min(self.bytes)
            }
            // Not every provider reports reads; one that reports writes does.
            None if read == 0 && written > 0 => self.bytes,
            None => 0.0,
        }
    }

    /// Whether most of it was found, if so much was missing.
    pub(super) fn is_there(&self, missing: f64) -> bool {
        missing <= self.bytes / 2.0
    }

    /// What was found, if so many bytes were missing and the provider may have reported so many tokens as read.
    pub fn found(&self, missing: f64, read: u64) -> Found {
        if self.least.is_some_and(|least| read >= least) {
            Found::History
        } else if self.is_there(missing) {
            Found::Most
        } else {
            Found::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers that tell that some of the history was there (`*`), most of all bytes (`+`) or nothing (`-`), and
    /// requests that leave; and how many more are to rest then.
    #[test]
    fn who_finds_nothing_rests_for_longer_each_time() {
        for (told, tries, expected) in [
            ("", 1, 0),
            ("+", 1, 0),
            ("-", 1, 0),
            ("-+-", 1, 0),
            ("--", 1, 4),
            ("--..", 1, 2),
            ("--..+", 1, 0),
            ("--....-", 1, 8),
            ("--....-........-", 1, 32),
            ("--", 2, 4),
            ("--..-", 2, 2),
            ("--....-", 2, 0),
            ("--....--", 2, 32),
            ("--....+--", 2, 4),
            // Where something was kept there may be several caches.
            ("*-------", 1, 0),
            ("*-+-------", 2, 0),
            ("*--------", 1, 4),
            ("*--------", 2, 4),
            ("*--------....--", 2, 32),
            ("*--------*--", 2, 0),
        ] {
            let mut findings = Findings::default();
            for event in told.bytes() {
                findings = match event {
                    b'.' => findings.rested().unwrap_or(findings),
                    b'*' => findings.found(Found::History, tries),
                    b'+' => findings.found(Found::Most, tries),
                    _ => findings.found(Found::Nothing, tries),
                };
            }
            let rests = std::iter::successors(Some(findings), |findings| findings.rested());
            let rests = rests.take_while(|findings| findings.rests()).count();
            assert_eq!(rests, expected, "{told} {tries}");
        }
    }
}
