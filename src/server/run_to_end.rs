//! Finishes the preparation of a request that is held ([`Deadline::hold`]) even if its client disconnects.
//!
//! Decisions may be stored by then. They apply to all later requests, and other gateways on the same store may have
//! read them already. If they were taken back, gateways would disagree about them. So the preparation runs to its end,
//! and the exchange is recorded as one whose client has gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::deadline::Deadline;
use super::exchange::Prepared;
use super::guard::guard;
use super::handler::Handler;
use super::tap::Tap;

/// The preparation of a request. If it is dropped while the request is held, it goes on in a task of its own, and the
/// resulting exchange is notified that the client has gone.
pub(super) struct RunToEnd<'a, G, F>
where
    F: Future<Output = Option<Prepared>> + Send + 'static,
{
    handler: &'a Handler<G>,
    until: Deadline,
    /// `None` once it is done.
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
    #[expect(clippy::disallowed_methods, reason = "it ends by itself, and the server waits for its token")]
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.until.is_held()) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let Handler { stats, endings, offload, .. } = self.handler;
        let (stats, endings, token) = (Arc::clone(stats), endings.clone(), offload.token());
        runtime.spawn(async move {
            let done = work.await;
            guard(&stats, || {
                let exchange = done.and_then(|prepared| prepared.exchange);
                drop(Tap::new(exchange, &endings, &stats));
            });
            drop(token);
        });
    }
}
