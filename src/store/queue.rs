//! A bounded queue in front of one worker thread.
//!
//! Most items can wait: they gather for a moment and are taken all at once, so that a busy gateway wakes the worker at
//! most a hundred times a second, and not with every request. Nor does the first item wake the worker merely to wait
//! for the others: a timer does, once they have gathered. Waking it earlier would take a processor from the request
//! that is just leaving. An urgent item, which somebody waits for, is handed over at once, together with all that were
//! queued before it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// How long items gather.
const GATHER: Duration = Duration::from_millis(10);

/// The producers' side. Dropping it ends the worker's loop once everything is done.
pub struct Inlet<T>(Arc<Queue<T>>);

/// The worker's side. Once it is dropped, for whatever reason, nothing can be queued.
pub struct Outlet<T>(Arc<Queue<T>>);

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// The most items that may be queued.
    room: usize,
}

struct State<T> {
    items: Vec<T>,
    /// Whether to take the items at once: somebody waits for one, or they have gathered long enough.
    urgent: bool,
    /// Whether the worker sleeps, and nothing has been done to wake it.
    idle: bool,
    /// When it became certain that nothing more will be queued.
    closed: Option<Instant>,
}

/// A queue for `room` items.
pub fn queue<T>(room: usize) -> (Inlet<T>, Outlet<T>) {
    let state = State { items: Vec::new(), urgent: false, idle: false, closed: None };
    let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new(), room: room.max(1) });
    (Inlet(Arc::clone(&queue)), Outlet(queue))
}

impl<T: Send + 'static> Inlet<T> {
    /// Queues an item; `urgent` if somebody waits for it. Within a tokio runtime, which must have its timer enabled,
    /// the worker sleeps on while more items gather.
    ///
    /// # Errors
    /// The item itself, if the queue is full or the worker is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends by itself, and if it is cut off it wakes the worker at once"
    )]
    pub fn push(&self, item: T, urgent: bool) -> Result<(), T> {
        let mut state = self.0.lock();
        if state.closed.is_some() || state.items.len() >= self.0.room {
            return Err(item);
        }
        state.items.push(item);
        let (was_urgent, was_idle) = (state.urgent, state.idle);
        state.urgent |= urgent;
        state.idle = false;
        drop(state);
        if was_idle
            && !urgent
            && let Ok(runtime) = Handle::try_current()
        {
            let alarm = Alarm(Arc::clone(&self.0));
            runtime.spawn(async move {
                tokio::time::sleep(GATHER).await;
                drop(alarm);
            });
        } else if was_idle || (urgent && !was_urgent) {
            self.0.changed.notify_one();
        }
        Ok(())
    }
}

impl<T> Inlet<T> {
    /// Whether the worker is gone, so that nothing can be queued.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed.is_some()
    }
}

/// Wakes the worker when it is dropped: after the delay, or when the runtime ends.
struct Alarm<T>(Arc<Queue<T>>);

impl<T> Drop for Alarm<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        // If everything was taken in the meantime, there is no hurry.
        state.urgent |= !state.items.is_empty();
        drop(state);
        self.0.changed.notify_one();
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        self.0.lock().close();
        self.0.changed.notify_one();
    }
}

impl<T> Outlet<T> {
    /// Whether nothing more will be queued.
    pub fn is_closed(&self) -> bool {
        self.closed_for().is_some()
    }

    /// The time since it became certain that nothing more will be queued; `None` if more may be.
    pub fn closed_for(&self) -> Option<Duration> {
        self.0.lock().closed.map(|closed| closed.elapsed())
    }

    /// Moves all queued items into `taken`, which is emptied first. Blocks until there are some. Returns `false` if
    /// there are none and none will come.
    pub fn take(&self, taken: &mut Vec<T>) -> bool {
        taken.clear();
        let mut state = self.0.lock();
        while state.items.is_empty() {
            if state.closed.is_some() {
                return false;
            }
            state.idle = true;
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle = false;
        let may_gather = |state: &mut State<T>| !state.urgent && state.closed.is_none();
        let waited = self.0.changed.wait_timeout_while(state, GATHER, may_gather);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.urgent = false;
        std::mem::swap(&mut state.items, taken);
        true
    }

    /// Waits up to `patience` for an item, or for the end of the queue. Returns whether either came.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut state = self.0.lock();
        state.idle = true;
        let nothing = |state: &mut State<T>| state.items.is_empty() && state.closed.is_none();
        let waited = self.0.changed.wait_timeout_while(state, patience, nothing);
        let (mut state, elapsed) = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle = false;
        !elapsed.timed_out()
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.close();
        let left = std::mem::take(&mut state.items);
        drop(state);
        // Dropping the items notifies whoever waits for one of them.
        drop(left);
    }
}

impl<T> State<T> {
    fn close(&mut self) {
        self.closed.get_or_insert_with(Instant::now);
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_taken_in_order_until_the_inlet_is_dropped() {
        let ((inlet, outlet), mut taken) = (queue(3), vec![9]);
        for (item, urgent) in [(1, false), (2, true), (3, false)] {
            assert_eq!(inlet.push(item, urgent), Ok(()));
        }
        assert_eq!((inlet.push(4, true), inlet.is_closed()), (Err(4), false), "full");
        assert!(outlet.wait(Duration::MAX));
        assert!(outlet.take(&mut taken));
        assert_eq!(taken, [1, 2, 3]);
        assert!(!outlet.wait(Duration::ZERO));
        assert_eq!(inlet.push(5, false), Ok(()));
        drop(inlet);
        assert!(outlet.take(&mut taken));
        assert_eq!(taken, [5]);
        assert!(!outlet.take(&mut taken));
        assert!(taken.is_empty());
    }

    /// What a worker takes at a time, if it slept while everything was queued within a runtime.
    fn taken_in_turns(push: impl FnOnce(&Inlet<u8>)) -> Vec<Vec<u8>> {
        let (inlet, outlet) = queue(9);
        let queue = Arc::clone(&inlet.0);
        let worker = std::thread::spawn(move || {
            let (mut taken, mut turns) = (Vec::new(), Vec::new());
            while outlet.take(&mut taken) {
                turns.push(taken.clone());
            }
            turns
        });
        while !queue.lock().idle {
            std::thread::yield_now();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            push(&inlet);
            let taken = async {
                while !queue.lock().idle {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), taken).await.unwrap();
        });
        // The runtime that was to wake the worker is gone; the end of the inlet wakes it instead.
        drop((runtime, inlet));
        worker.join().unwrap()
    }

    #[test]
    fn a_runtime_wakes_the_worker_when_items_have_gathered() {
        let all = |items: &'static [(u8, bool)]| {
            taken_in_turns(|inlet| {
                for (item, urgent) in items {
                    inlet.push(*item, *urgent).unwrap();
                }
            })
        };
        assert_eq!(all(&[(1, false), (2, false), (3, false)]), [[1, 2, 3]]);
        assert_eq!(all(&[(1, false), (2, true)]), [[1, 2]]);
    }

    #[test]
    fn a_runtime_that_ends_wakes_the_worker() {
        let (inlet, outlet) = queue(9);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut taken = Vec::new();
        inlet.0.lock().idle = true;
        runtime.block_on(async { inlet.push(1, false).unwrap() });
        assert!(!inlet.0.lock().urgent, "nobody was woken");
        drop(runtime);
        assert!(inlet.0.lock().urgent);
        assert!(outlet.take(&mut taken));
        assert_eq!(taken, [1]);
    }

    #[test]
    fn nothing_is_queued_after_the_outlet_is_dropped() {
        let (inlet, outlet) = queue(3);
        let waited_for = Arc::new(());
        inlet.push(Arc::clone(&waited_for), true).unwrap();
        drop(outlet);
        assert_eq!(Arc::strong_count(&waited_for), 1);
        assert!(inlet.push(waited_for, false).is_err() && inlet.is_closed());
    }

    #[test]
    fn a_worker_gets_all_items_in_order_per_sender() {
        const EACH: usize = 500;
        let (inlet, outlet) = queue(usize::MAX);
        let worker = std::thread::spawn(move || {
            let (mut taken, mut all) = (Vec::new(), Vec::new());
            while outlet.take(&mut taken) {
                all.append(&mut taken);
            }
            all
        });
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let inlet = &inlet;
                scope.spawn(move || {
                    (0..EACH).for_each(|at| inlet.push((sender, at), at % 50 == 0).unwrap());
                });
            }
        });
        drop(inlet);
        let all = worker.join().unwrap();
        for sender in 0..4 {
            let own: Vec<usize> = all.iter().filter(|(from, _)| *from == sender).map(|(_, at)| *at).collect();
            assert_eq!(own, (0..EACH).collect::<Vec<_>>(), "{sender}");
        }
    }
}
