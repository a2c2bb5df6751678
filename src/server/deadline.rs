//! When a request leaves, and who says so last.
//!
//! What is decided about a request holds for all later ones, so it must be sent once it is stored. The gateway says
//! before it stores a decision that the request is to wait for it; if the request has left by then, nothing is decided.
//! Until it is known whether a request was sent in another form before, it does not leave either: reading takes time, but
//! waits for nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

/// A request is read for so many times as long as it may take, at most.
const READING: u32 = 10;

/// When a request leaves with what has come of it.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    /// When it leaves even if it has not been read.
    last: Instant,
    word: Arc<AtomicU8>,
}

/// It is being read.
const READ: u8 = 0;
/// It is being read, and its time is over.
const LATE: u8 = 1;
const OPEN: u8 = 2;
const HELD: u8 = 3;
const LEFT: u8 = 4;

impl Deadline {
    /// The deadline of a request that is about to be read.
    pub fn new(began: Instant, patience: Duration) -> Self {
        Self { at: began + patience, last: began + patience * READING, word: Arc::default() }
    }

    /// When it is.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// From now on the request waits for what comes of it, which must not be long; `false` when it has left.
    pub fn hold(&self) -> bool {
        self.say(|word| if word == LEFT { LEFT } else { HELD }) == HELD
    }

    /// The request was read, and nothing holds it so far: it leaves in time. `false` when it has left.
    pub fn release(&self) -> bool {
        let turn = |word| match word {
            READ => OPEN,
            LATE => LEFT,
            other => other,
        };
        self.say(turn) != LEFT
    }

    /// The request was read, and it is known whether it was sent in another form before: then it is sent so again, however
    /// long that takes. Whether anything is to be decided about it.
    pub fn found(&self, was_edited: bool) -> bool {
        if !was_edited {
            return self.release();
        }
        self.hold();
        true
    }

    /// Whether the request waits for what comes of it.
    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Acquire) == HELD
    }

    /// Whether the request has left.
    pub fn has_left(&self) -> bool {
        self.word.load(Ordering::Acquire) == LEFT
    }

    /// The time is over: the request leaves, and if it is still being read, as soon as nothing holds it then. Whether it
    /// has left.
    pub(crate) fn leave(&self) -> bool {
        let turn = |word| match word {
            READ => LATE,
            OPEN => LEFT,
            other => other,
        };
        self.say(turn) == LEFT
    }

    /// The request leaves, read or not; `false` when it is held.
    fn give_up(&self) -> bool {
        self.say(|word| if word == HELD { HELD } else { LEFT }) == LEFT
    }

    fn say(&self, turn: impl Fn(u8) -> u8) -> u8 {
        let said = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(turn(word)));
        let (Ok(before) | Err(before)) = said;
        turn(before)
    }

    /// Waits for some work until the request leaves.
    pub(super) async fn by<T>(&self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut work = pin!(work);
        let elapsed = match timeout_at(self.at.into(), &mut work).await {
            Err(elapsed) => elapsed,
            done => return done,
        };
        if self.leave() {
            return Err(elapsed);
        }
        match timeout_at(self.last.into(), &mut work).await {
            Ok(_) if self.has_left() => Err(elapsed),
            Err(_) if self.give_up() => Err(elapsed),
            Err(_) => Ok(work.await),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stands() {
        let deadline = || {
            let deadline = Deadline::new(Instant::now(), Duration::ZERO);
            assert!(deadline.release());
            deadline
        };
        let held = deadline();
        assert!(held.hold() && !held.clone().leave() && held.hold() && !held.has_left() && !held.give_up());
        let left = deadline();
        assert!(!left.has_left() && left.leave() && !left.clone().hold() && left.leave() && left.has_left());
        assert!(!left.release() && left.give_up());
    }

    #[test]
    fn what_is_being_read_leaves_when_it_is_known_to_be_new() {
        let late = || {
            let deadline = Deadline::new(Instant::now(), Duration::ZERO);
            assert!(!deadline.leave() && !deadline.has_left() && !deadline.leave());
            deadline
        };
        let new = late();
        assert!(!new.release() && new.has_left() && !new.hold());
        let known = late();
        assert!(known.hold() && known.release() && !known.leave() && !known.give_up() && !known.has_left());
        let endless = late();
        assert!(endless.give_up() && endless.has_left() && !endless.hold() && !endless.release());
    }

    /// Of a request that may take a second: when it is known to be new or not, when its work ends, and when and how it
    /// leaves then.
    #[test]
    fn when_requests_leave() {
        const NEVER: u64 = 1_000;
        type Word = fn(&Deadline) -> bool;
        let (new, known): (Word, Word) = (Deadline::release, Deadline::hold);
        for (at, word, ends, left, in_time) in [
            (0, new, 0, 0, true),
            (0, new, 3, 1, false),
            (0, known, 3, 3, true),
            (2, new, 2, 2, false),
            (2, known, 2, 2, true),
            (2, known, 30, 30, true),
            (3, new, 3, 3, false),
            // What is no use, and what never ends.
            (NEVER, new, 3, 3, true),
            (NEVER, new, NEVER, 10, false),
            (12, known, 12, 10, false),
        ] {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            let (done, after, has_left) = runtime.unwrap().block_on(async {
                let began = tokio::time::Instant::now();
                let deadline = Deadline::new(began.into_std(), Duration::from_secs(1));
                let until = |seconds| tokio::time::sleep_until(began + Duration::from_secs(seconds));
                let work = async {
                    until(at.min(ends)).await;
                    if at <= ends && at != NEVER {
                        word(&deadline);
                    }
                    until(ends).await;
                };
                (deadline.by(work).await.is_ok(), began.elapsed().as_secs(), deadline.has_left())
            });
            assert_eq!((after, done, has_left), (left, in_time, !in_time), "{at} {ends}");
        }
    }
}
