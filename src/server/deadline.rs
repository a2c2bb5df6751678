//! Decides when a request is sent, whatever has been done with it by then.
//!
//! A decision about a request applies to all later ones, so once it is stored the request must be sent with it. Before
//! it stores a decision, the gateway therefore holds the request; if the request has left by then, nothing is decided.
//! Nor does a request leave before it is known whether an earlier request of its conversation was edited, unless
//! reading it takes extremely long. Reading takes computing time, but waits for nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

/// The longest time to read a request, as a multiple of its time-out.
const READING_FACTOR: u32 = 10;

/// The deadline of one request, shared by all who work on it.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    /// When the request leaves even if it has not been read.
    last: Instant,
    /// A [`Phase`].
    phase: Arc<AtomicU8>,
}

/// How far a request has come. Whoever changes the phase first decides: a held request never leaves by itself, and
/// one that has left is never held.
///
/// | from       | `hold` | `release`  | `leave`   | `give_up` |
/// |------------|--------|------------|-----------|-----------|
/// | `Reading`  | `Held` | `Released` | `Overdue` | `Left`    |
/// | `Overdue`  | `Held` | `Left`     | `Overdue` | `Left`    |
/// | `Released` | `Held` | `Released` | `Left`    | `Left`    |
/// | `Held`     | `Held` | `Held`     | `Held`    | `Held`    |
/// | `Left`     | `Left` | `Left`     | `Left`    | `Left`    |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Being read.
    Reading,
    /// Being read, past the deadline.
    Overdue,
    /// Read; leaves at the deadline.
    Released,
    /// Waits for its decisions, however long they take.
    Held,
    /// Sent, or about to be.
    Left,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Reading, Self::Overdue, Self::Released, Self::Held, Self::Left];

    /// The phase that was stored as `word`. Nothing else is ever stored, so the index is in range.
    fn of(word: u8) -> Self {
        Self::ALL[usize::from(word)]
    }
}

impl Deadline {
    /// The deadline of a request that is about to be read: `timeout` after `began`.
    pub fn new(began: Instant, timeout: Duration) -> Self {
        let phase = Arc::new(AtomicU8::new(Phase::Reading as u8));
        Self { at: began + timeout, last: began + timeout * READING_FACTOR, phase }
    }

    /// When the request leaves if it is not held.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Makes the request wait for its decisions, however long they take. Returns `false` if it has left already.
    pub fn hold(&self) -> bool {
        self.turn(|phase| if phase == Phase::Left { Phase::Left } else { Phase::Held }) == Phase::Held
    }

    /// Marks the request as read and free to leave at the deadline. Returns `false` if it has left already, or leaves
    /// now because the deadline has passed.
    pub fn release(&self) -> bool {
        let next = |phase| match phase {
            Phase::Reading => Phase::Released,
            Phase::Overdue => Phase::Left,
            Phase::Released | Phase::Held | Phase::Left => phase,
        };
        self.turn(next) != Phase::Left
    }

    /// Marks the request as read, and its history as known. One that `must` be edited, because its history was edited
    /// before or begins with a checkpoint, is held; any other is released. Returns whether the request may still be
    /// edited.
    pub fn placed(&self, must: bool) -> bool {
        if must { self.hold() } else { self.release() }
    }

    /// Whether the request waits for its decisions.
    pub(super) fn is_held(&self) -> bool {
        self.phase() == Phase::Held
    }

    /// Whether the request has left.
    pub fn has_left(&self) -> bool {
        self.phase() == Phase::Left
    }

    /// The deadline has passed: the request leaves or, if it is still being read, leaves once it is released. Returns
    /// whether it has left.
    pub(crate) fn leave(&self) -> bool {
        let next = |phase| match phase {
            Phase::Reading => Phase::Overdue,
            Phase::Released => Phase::Left,
            Phase::Overdue | Phase::Held | Phase::Left => phase,
        };
        self.turn(next) == Phase::Left
    }

    /// The request leaves, read or not. Returns `false` if it is held.
    fn give_up(&self) -> bool {
        self.turn(|phase| if phase == Phase::Held { Phase::Held } else { Phase::Left }) == Phase::Left
    }

    fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Acquire))
    }

    /// Replaces the phase by what `next` returns for it, atomically. Returns the new phase.
    fn turn(&self, next: impl Fn(Phase) -> Phase) -> Phase {
        let step = |word| Some(next(Phase::of(word)) as u8);
        let (Ok(before) | Err(before)) = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        next(Phase::of(before))
    }

    /// Awaits the work on a request.
    ///
    /// # Errors
    /// If the request left before the work was done.
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
    fn every_transition_from_every_phase() {
        use Phase::{Held, Left, Overdue, Reading, Released};
        type Move = fn(&Deadline) -> bool;
        let moves: [Move; 4] = [Deadline::hold, Deadline::release, Deadline::leave, Deadline::give_up];
        for (from, to, told) in [
            (Reading, [Held, Released, Overdue, Left], [true, true, false, true]),
            (Overdue, [Held, Left, Overdue, Left], [true, false, false, true]),
            (Released, [Held, Released, Left, Left], [true, true, true, true]),
            (Held, [Held; 4], [true, true, false, false]),
            (Left, [Left; 4], [false, false, true, true]),
        ] {
            for ((turn, to), told) in moves.iter().zip(to).zip(told) {
                let deadline = Deadline::new(Instant::now(), Duration::ZERO);
                deadline.phase.store(from as u8, Ordering::Release);
                assert_eq!((turn(&deadline), deadline.clone().phase()), (told, to), "{from:?}");
                assert_eq!((deadline.is_held(), deadline.has_left()), (to == Held, to == Left));
            }
        }
    }

    /// For a request with a time-out of 1 s. Each row: the second in which it is released or held (its history is new
    /// or known), the second in which its work ends; the second in which it leaves, and whether the work was done in
    /// time.
    #[test]
    fn requests_leave_when_done_or_when_their_time_is_up() {
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
            // Never read; never read nor done; held too late.
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
