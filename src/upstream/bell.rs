//! A waker between the parts of a task and the task itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Passes wake-ups on to the task that polls, except those that the task causes itself while it polls.
#[derive(Default)]
pub(crate) struct Bell {
    /// Whether the task is polling.
    muted: AtomicBool,
    /// Whether there was a wake-up since the last poll began.
    rang: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Bell {
    /// Begins a poll by this task: mutes wake-ups, and remembers whom to wake after it. Returns whether there was a
    /// wake-up since the last poll began.
    pub(crate) fn begin(&self, task: &Waker) -> bool {
        self.muted.store(true, Ordering::Relaxed);
        let rang = self.rang.swap(false, Ordering::SeqCst);
        let mut known = self.task();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
        rang
    }

    /// Ends the poll. A task that has got a result polls again by itself. A task that `waits` is woken if there was a
    /// wake-up during the poll, which may have come from elsewhere, for instance from a yield to other tasks.
    pub(crate) fn end(&self, waits: bool) {
        // `muted` is written before `rang` is read, and `wake_by_ref` does the reverse: one of the two sees what the
        // other has written, so no wake-up is lost.
        self.muted.store(false, Ordering::SeqCst);
        if waits && self.rang.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Wakes no task until the next poll.
    pub(crate) fn forget_task(&self) {
        *self.task() = None;
    }

    fn ring(&self) {
        let task = self.task().clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if !self.muted.load(Ordering::SeqCst) {
            self.ring();
        }
    }
}
