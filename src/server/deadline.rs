//! When a request leaves, and who says so last.
//!
//! What is decided about a request holds for all later ones, so it must be sent once it is stored. The gateway says
//! before it stores a decision that the request is to wait for it; if the request has left by then, nothing is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// When a request leaves with what has come of it.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    word: Arc<AtomicU8>,
}

const OPEN: u8 = 0;
const HELD: u8 = 1;
const LEFT: u8 = 2;

impl Deadline {
    /// One that nobody has spoken about yet.
    pub fn new(at: Instant) -> Self {
        Self { at, word: Arc::default() }
    }

    /// When it is.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// From now on the request waits for what comes of it, which must not be long; `false` when it has left.
    pub fn hold(&self) -> bool {
        self.say(HELD)
    }

    /// Whether the request has left.
    pub fn has_left(&self) -> bool {
        self.word.load(Ordering::Acquire) == LEFT
    }

    /// The request leaves; `false` when it is held.
    pub(super) fn leave(&self) -> bool {
        self.say(LEFT)
    }

    fn say(&self, mine: u8) -> bool {
        let said = self.word.compare_exchange(OPEN, mine, Ordering::AcqRel, Ordering::Acquire);
        said.is_ok() || said == Err(mine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stands() {
        let deadline = || Deadline::new(Instant::now());
        let held = deadline();
        assert!(held.hold() && !held.clone().leave() && held.hold() && !held.has_left());
        let left = deadline();
        assert!(!left.has_left() && left.leave() && !left.clone().hold() && left.leave() && left.has_left());
    }
}
