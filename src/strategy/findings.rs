//! What is to be read of what was written to the provider's cache, and what was there of it.
//!
//! A server may bill what it writes and keep none of it, or one of several caches may be asked: the tokens that it reads tell.

use super::gate::Rates;

/// What is to be expected of what a thread is the first to write, by what has become of the sender's other threads of late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing speaks against it.
    #[default]
    Fair,
    /// They seldom went on.
    SeldomGoesOn,
    /// What they wrote was not there when it was to be read.
    SeldomKept,
    /// Some of what they wrote was there.
    Kept,
}

/// What has become of what was to be read: by a thread, or by all of a sender's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// How often in a row it was not there, and nothing else of the history either.
    missing: u32,
    /// With so many more requests nothing is written for the first time, because of that.
    rests: u32,
    /// Something of a history was there: where it is not, that is most likely another cache of several.
    is_kept: bool,
}

impl Findings {
    /// This was there. Who has rested tries so many times before it rests again.
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

    /// A request leaves; `None`: nothing is to be remembered of it.
    #[must_use]
    pub fn rested(self) -> Option<Self> {
        (self.rests > 0).then(|| Self { rests: self.rests - 1, ..self })
    }

    /// Whether nothing is to be written for the first time.
    pub fn rests(self) -> bool {
        self.rests > 0
    }

    /// Whether something of a history was there, as far as is known.
    pub fn is_kept(self) -> bool {
        self.is_kept
    }

    /// What is known of a cache where nothing was to be read yet.
    pub fn first(outlook: Outlook) -> Self {
        Self { is_kept: outlook == Outlook::Kept, ..Self::default() }
    }
}

/// After so many times in a row that nothing was read, nothing is written for a while, each time for longer.
const MOST_MISSING: u32 = 2;
/// The same where something was read before: so many caches may have to be filled that requests go to by chance.
const MOST_CACHES: u32 = 8;
/// The most times that count for how long that is.
const MOST_RESTS: u32 = 6;

/// What was there of what was to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Some of the history.
    History,
    /// Most of all bytes, which may be no more than instructions.
    Most,
    /// Little or nothing.
    Nothing,
}

/// What is to be read with a request because of the gateway's marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Its bytes.
    pub bytes: f64,
    /// Bytes in front of these that are read because of the client's marks.
    pub before: f64,
    /// The tokens of both, where they were told.
    pub tokens: Option<u64>,
    /// The fewest tokens that are read where anything of the history is, if that is known.
    pub least: Option<u64>,
    /// What it was reckoned by.
    pub rates: Rates,
}

impl Expected {
    /// How many of its bytes were not there, where the provider tells that it has read and written so many tokens. That it
    /// has read something tells nothing: tools and instructions are kept by themselves.
    pub fn missing(&self, read: u64, written: u64) -> f64 {
        match self.tokens {
            Some(tokens) => {
                let unread = tokens.saturating_sub(read) as f64 / tokens.max(1) as f64;
                ((self.before + self.bytes) * unread).min(self.bytes)
            }
            // Not all who read tell of it; who tells what is written does.
            None if read == 0 && written > 0 => self.bytes,
            None => 0.0,
        }
    }

    /// Whether most was there of which so much was not.
    pub(super) fn is_there(&self, missing: f64) -> bool {
        missing <= self.bytes / 2.0
    }

    /// What was there, where so many bytes of it were not, and the provider may have told that it has read so many tokens.
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

    /// Answers that tell that some of the history was there (`*`), most of all bytes (`+`) or nothing (`-`), and requests
    /// that leave; and how many more are to rest then.
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
