//! The future of a commit, and how its batch is withdrawn.
//!
//! Either whoever commits a batch learns that it is stored, or none of its decisions is: a stored decision that was not
//! sent would make the next request of its thread differ from what the provider has seen. A batch that is withdrawn
//! before the writer claims it is not stored. The decisions of one that is withdrawn later are removed again by the
//! writer.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::CommitError;

/// How long to wait for a commit that has begun: a disk may hang.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

type Outcome = Result<(), CommitError>;

/// A future that completes when a batch is stored or has failed. Dropping it before that withdraws the batch.
#[must_use = "dropping it withdraws the batch"]
pub struct Stored {
    answer: oneshot::Receiver<Outcome>,
    claim: Arc<Claim>,
}

/// The writer's side: it owes an answer. Dropping it reports that the writer has ended.
pub(super) struct Duty {
    answer: oneshot::Sender<Outcome>,
    claim: Arc<Claim>,
}

/// Who was first: the writer to commit, or the other side to give up.
#[derive(Default)]
struct Claim(OnceLock<Claimant>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimant {
    /// The writer: it commits the batch.
    Writer,
    /// The other side: it has withdrawn the batch.
    Waiter,
}

impl Claim {
    /// Records `mine` unless the other was first. Returns whether `mine` counts.
    fn make(&self, mine: Claimant) -> bool {
        *self.0.get_or_init(|| mine) == mine
    }
}

/// The two sides of a promise that a batch will be stored.
pub(super) fn promise() -> (Duty, Stored) {
    let (sender, receiver) = oneshot::channel();
    let claim = Arc::new(Claim::default());
    (Duty { answer: sender, claim: Arc::clone(&claim) }, Stored { answer: receiver, claim })
}

impl Stored {
    /// A promise whose outcome is known already.
    pub fn done(done: Outcome) -> Self {
        let (duty, stored) = promise();
        duty.answer(done);
        stored
    }

    /// Waits for at most `patience`, and for a commit that has begun by then a few seconds longer. Then withdraws the
    /// batch.
    ///
    /// # Errors
    /// [`CommitError::TimedOut`] if the time was up and the batch is withdrawn; any other if it could not be stored.
    pub async fn within(mut self, patience: Duration) -> Outcome {
        match tokio::time::timeout(patience, &mut self).await {
            Ok(done) => done,
            Err(_elapsed) if self.claim.make(Claimant::Waiter) => Err(CommitError::TimedOut),
            // If this is up too, `self` is dropped, and the writer removes the decisions again.
            Err(_elapsed) => {
                tokio::time::timeout(COMMIT_TIMEOUT, self).await.unwrap_or(Err(CommitError::TimedOut))
            }
        }
    }
}

impl Future for Stored {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.answer).poll(cx).map(|answer| answer.unwrap_or(Err(CommitError::Gone)))
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.claim.make(Claimant::Waiter);
    }
}

impl Duty {
    /// Whether the other side has given up.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.claim.0.get() == Some(&Claimant::Waiter)
    }

    /// Claims the right to commit; `false` if the batch was withdrawn before.
    pub(super) fn claim(&self) -> bool {
        self.claim.make(Claimant::Writer)
    }

    /// Reports the outcome. Returns whether anybody received it.
    pub(super) fn answer(self, done: Outcome) -> bool {
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
    fn a_commit_is_either_claimed_or_withdrawn() {
        let (duty, stored) = promise();
        assert!(duty.claim() && duty.claim() && !duty.is_withdrawn());
        drop(stored);
        assert!(!duty.is_withdrawn() && !duty.answer(Ok(())), "too late to leave it out, and nobody hears");
        let (duty, stored) = promise();
        drop(stored);
        assert!(duty.is_withdrawn() && !duty.claim());
    }

    #[test]
    fn a_claimed_commit_is_waited_for_beyond_the_patience() {
        let patience = Duration::from_secs(1);
        for (claimed, takes, expected) in [
            (false, 2 * patience, Err(CommitError::TimedOut)),
            (true, 2 * patience, Ok(())),
            (true, 2 * COMMIT_TIMEOUT, Err(CommitError::TimedOut)),
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
    fn a_commit_fails_if_its_writer_has_ended() {
        let (duty, stored) = promise();
        drop(duty);
        assert!(matches!(run(stored), Err(CommitError::Gone)));
        assert!(matches!(run(Stored::done(Err(CommitError::Raced))), Err(CommitError::Raced)));
    }
}
