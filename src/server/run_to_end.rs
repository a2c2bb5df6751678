//! Work that a request is held for comes to its end, also where its client leaves meanwhile.
//!
//! What is stored by then holds for all later requests, and any gateway on the same store may go by it at once. Taken back
//! because nobody waits for it any more, it would be missing to those that have not read it yet, and to nobody else. So
//! the request counts as one whose client has gone, with all that was decided about it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::deadline::Deadline;
use super::exchange::Prepared;
use super::guard::guard;
use super::handler::Handler;
use super::tap::Tap;

/// Work for a request. Dropped while it holds the request, it goes on by itself, and the exchange that comes of it is told
/// that the client has gone.
pub(super) struct RunToEnd<'a, G, F>
where
    F: Future<Output = Option<Prepared>> + Send + 'static,
{
    handler: &'a Handler<G>,
    until: Deadline,
    /// `None` when it is done.
    work: Option<Pin<Box<F>>>,
}

impl<'a, G, F> RunToEnd<'a, G, F>
where
    F: Future<Output = Option<Prepared>> + Send + 'static,
{
    pub(super) fn new(handler: &'a Handler<G>, until: Deadline, work: Pin<Box<F>>) -> Self {
        Self { handler, until, work: Some(work) }
    }
}

impl<G, F> Future for RunToEnd<'_, G, F>
where
    F: Future<Output = Option<Prepared>> + Send + 'static,
{
    type Output = Option<Prepared>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Prepared>> {
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl<G, F> Drop for RunToEnd<'_, G, F>
where
    F: Future<Output = Option<Prepared>> + Send + 'static,
{
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends by itself, and the server waits for what is at work"
    )]
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.until.is_held()) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let Handler { stats, endings, beside, .. } = self.handler;
        let (stats, endings, at_work) = (Arc::clone(stats), endings.clone(), beside.at_work());
        runtime.spawn(async move {
            let done = work.await;
            guard(&stats, || {
                let exchange = done.and_then(|prepared| prepared.exchange);
                drop(Tap::new(exchange, &endings, &stats));
            });
            drop(at_work);
        });
    }
}
