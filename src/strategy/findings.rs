//! Whether entries that were written to the provider's cache are found there again.
//!
//! A server may bill writes and keep none of them, or each request may reach another one of several caches. The number
//! of tokens that the server reports as read shows this.

use super::gate::Rates;

/// What to expect of the first entry that a thread writes, judging by the sender's other recent threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing speaks against it.
    #[default]
    Fair,
    /// The entries that they wrote were not found again.
    SeldomKept,
    /// Some of the entries that they wrote were found again.
    Kept,
}

/// What requests have found so far of the entries that they should read: those of one thread, or of all threads of a
/// sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many requests in a row have found nothing of their history.
    missing: u32,
    /// For how many more requests nothing new is written because of that.
    rests: u32,
    /// Whether some of a history was found once. If nothing is found now, the request has most likely reached another
    /// one of several caches.
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
        if is_kept && missing < MAX_CACHES {
            return Self { missing, is_kept, ..self };
        }
        let missing = if is_kept { MAX_MISSES } else { missing };
        let is_enough = missing.checked_sub(MAX_MISSES).is_some_and(|more| more % tries == 0);
        let rests = if is_enough { 1 << (missing.min(MAX_COUNTED_MISSES) * 3 / 2 - 1) } else { 0 };
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

    /// Whether some of a history was found once, as far as is known.
    pub fn is_kept(self) -> bool {
        self.is_kept
    }

    /// The findings for a cache from which no request should have read yet.
    pub fn first(outlook: Outlook) -> Self {
        Self { is_kept: outlook == Outlook::Kept, ..Self::default() }
    }
}

/// After this many misses in a row nothing is written for a while, and for longer each time.
const MAX_MISSES: u32 = 2;
/// The same if some of a history was found before: each request may reach one of this many caches, and all of them must
/// be filled.
const MAX_CACHES: u32 = 8;
/// Misses beyond this number no longer make the next rest longer.
const MAX_COUNTED_MISSES: u32 = 6;

/// What a request has found of the entry that it should read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Some of the history, with certainty.
    History,
    /// Most of the bytes, which may be no more than the instructions.
    Most,
    /// Little or nothing.
    Nothing,
}

/// What a request should read from the cache thanks to the gateway's marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The bytes that it should read.
    pub bytes: f64,
    /// Bytes before these that are read thanks to the client's marks.
    pub before: f64,
    /// The tokens of both, if reported.
    pub tokens: Option<u64>,
    /// The fewest tokens that are read if any of the history is, if known.
    pub least: Option<u64>,
    /// The rates that were assumed.
    pub rates: Rates,
}

impl Expected {
    /// How many of the bytes were missing, given the tokens that the provider reported as read and as written. That
    /// some were read does not prove that the history was, because tools and instructions are cached separately.
    pub fn missing(&self, read: u64, written: u64) -> f64 {
        match self.tokens {
            Some(tokens) => {
                let unread = tokens.saturating_sub(read) as f64 / tokens.max(1) as f64;
                ((self.before + self.bytes) * unread).min(self.bytes)
            }
            // Not every provider reports reads, but one that reports writes does.
            None if read == 0 && written > 0 => self.bytes,
            None => 0.0,
        }
    }

    /// Whether most of the bytes were found, if `missing` of them were missing.
    pub(super) fn is_there(&self, missing: f64) -> bool {
        missing <= self.bytes / 2.0
    }

    /// What was found, if `missing` bytes were missing and the provider has reported `read` tokens as read, or 0.
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

    /// Answers showing that some of the history was there (`*`), most of all bytes (`+`) or nothing (`-`), and requests
    /// that leave; and how many more are to rest then.
    #[test]
    fn rests_grow_with_each_fruitless_try() {
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
