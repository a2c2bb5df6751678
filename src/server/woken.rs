//! Polls the work on a request only if there may be something new for it.
//!
//! hyper polls it with every poll of the connection, even if only the connection itself has something to do, such as
//! to read the end of a request. That would be passed on down to the upstream's connection, for nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::upstream::Bell;

/// Awaits `work`, and polls it again only after it was woken.
pub(super) async fn when_woken<T>(mut work: Pin<Box<impl Future<Output = T>>>) -> T {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut has_begun = false;
    std::future::poll_fn(|cx| {
        let was_woken = bell.begin(cx.waker());
        let polled = if was_woken || !has_begun {
            work.as_mut().poll(&mut Context::from_waker(&waker))
        } else {
            Poll::Pending
        };
        has_begun = true;
        bell.end(polled.is_pending());
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::{Notify, Semaphore};
    use tokio::task::JoinSet;

    use super::*;

    /// However often it is polled, and whoever polls it, the work is polled only after it was woken.
    #[tokio::test]
    async fn work_is_polled_when_it_was_woken() {
        let (polls, notify) = (Cell::new(0), Notify::new());
        let mut notified = Box::pin(notify.notified());
        let work = Box::pin(std::future::poll_fn(|cx| {
            polls.set(polls.get() + 1);
            notified.as_mut().poll(cx)
        }));
        let mut woken = pin!(when_woken(work));
        let mut poll = || woken.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && poll().is_pending());
        assert_eq!(polls.get(), 1);
        notify.notify_one();
        assert!(poll().is_ready());
        assert_eq!(polls.get(), 2);
    }

    /// The task is woken by what wakes its work, also while that is polled.
    #[tokio::test]
    async fn the_task_is_woken_by_what_wakes_its_work() {
        let (permits, mut tasks) = (Arc::new(Semaphore::new(0)), JoinSet::new());
        let taken = Arc::clone(&permits);
        tasks.spawn(when_woken(Box::pin(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
                taken.acquire().await.unwrap().forget();
            }
        })));
        for _ in 0..3 {
            tokio::task::yield_now().await;
            permits.add_permits(1);
        }
        tasks.join_next().await.unwrap().unwrap();
    }
}
