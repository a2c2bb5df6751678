//! The promise that a batch is stored, and taking it back.
//!
//! Either whoever asked for a batch learns that it is stored, or nothing of it is: a decision that is stored and was
//! not sent would make the next request of its thread differ from what the provider has seen. Up to the moment before
//! the commit a batch is withdrawn by not being put in. What is withdrawn while it is being committed is taken out
//! again by the writer.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::StoreError;

/// How long a commit may take that has begun: a disk may hang.
const COMMIT: Duration = Duration::from_secs(5);

type Done = Result<(), StoreError>;

/// The promise that a batch is stored. Dropped before it is kept, it withdraws the batch.
#[must_use = "dropping it withdraws the batch"]
pub struct Stored {
    answer: oneshot::Receiver<Done>,
    claim: Arc<Claim>,
}

/// The writer's side of it. Dropped, it says that the writer has ended.
pub(super) struct Duty {
    answer: oneshot::Sender<Done>,
    claim: Arc<Claim>,
}

/// Whose word counts: the writer's that it commits, or the other side's that it waits no longer. Whoever is first.
#[derive(Default)]
struct Claim(OnceLock<Claimant>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimant {
    /// The writer: it is committed.
    Writer,
    /// The other side: nobody waits for it.
    Waiter,
}

impl Claim {
    /// Puts `mine` if nobody was first; whether it stands then.
    fn make(&self, mine: Claimant) -> bool {
        *self.0.get_or_init(|| mine) == mine
    }
}

/// A promise and the duty to keep it.
pub(super) fn promise() -> (Duty, Stored) {
    let (sender, receiver) = oneshot::channel();
    let claim = Arc::new(Claim::default());
    (Duty { answer: sender, claim: Arc::clone(&claim) }, Stored { answer: receiver, claim })
}

impl Stored {
    /// A promise that was broken at once.
    pub fn refused(error: StoreError) -> Self {
        Self::done(Err(error))
    }

    /// One of which it is known already how it went.
    pub(super) fn done(done: Done) -> Self {
        let (duty, stored) = promise();
        duty.answer(done);
        stored
    }

    /// Waits at most so long; for what is being committed by then, until it is, within reason.
    ///
    /// # Errors
    /// [`StoreError`] when it could not be stored; [`StoreError::TimedOut`] when the time was up, and it is withdrawn.
    pub async fn within(mut self, patience: Duration) -> Done {
        match tokio::time::timeout(patience, &mut self).await {
            Ok(done) => done,
            Err(_elapsed) if self.claim.make(Claimant::Waiter) => Err(StoreError::TimedOut),
            // The writer takes out again what nobody waits for any more.
            Err(_elapsed) => tokio::time::timeout(COMMIT, self).await.unwrap_or(Err(StoreError::TimedOut)),
        }
    }
}

impl Future for Stored {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        Pin::new(&mut self.answer).poll(cx).map(|answer| answer.unwrap_or(Err(StoreError::Gone)))
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.claim.make(Claimant::Waiter);
    }
}

impl Duty {
    /// Whether nobody waits any more.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.claim.0.get() == Some(&Claimant::Waiter)
    }

    /// Takes the right to commit; `false` when it was withdrawn before.
    pub(super) fn claim(&self) -> bool {
        self.claim.make(Claimant::Writer)
    }

    /// Tells how it went; whether anybody heard.
    pub(super) fn answer(self, done: Done) -> bool {
        self.answer.send(done).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(work)
    }

    #[test]
    fn who_is_first_decides() {
        let (duty, stored) = promise();
        assert!(duty.claim() && duty.claim() && !duty.is_withdrawn());
        drop(stored);
        assert!(!duty.is_withdrawn() && !duty.answer(Ok(())), "too late to leave it out, and nobody hears");
        let (duty, stored) = promise();
        drop(stored);
        assert!(duty.is_withdrawn() && !duty.claim());
    }

    #[test]
    fn what_is_being_committed_is_waited_for() {
        let patience = Duration::from_secs(1);
        for (claimed, takes, expected) in [
            (false, 2 * patience, Err(StoreError::TimedOut)),
            (true, 2 * patience, Ok(())),
            (true, 2 * COMMIT, Err(StoreError::TimedOut)),
        ] {
            let (duty, stored) = promise();
            assert!(!claimed || duty.claim());
            let done = run(async {
                let late = async {
                    tokio::time::sleep(takes).await;
                    duty.answer(Ok(()))
                };
                tokio::join!(stored.within(patience), late)
            });
            assert_eq!(format!("{:?}", done.0), format!("{expected:?}"));
            assert_eq!(done.1, expected.is_ok());
        }
    }

    #[test]
    fn a_writer_that_has_ended_stores_nothing() {
        let (duty, stored) = promise();
        drop(duty);
        assert!(matches!(run(stored), Err(StoreError::Gone)));
        assert!(matches!(run(Stored::refused(StoreError::Raced)), Err(StoreError::Raced)));
    }
}
