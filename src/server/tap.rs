//! Calls an [`Exchange`] about what happens on its connection, without letting it disturb the traffic.
//!
//! Bytes are shown to it after they were handed on, from a shared buffer, decoded if necessary. A panic, or bytes that
//! cannot be decoded, ends the observation and nothing else. The last call ([`Exchange::end`]) is made by a task of its
//! own, so that the connection first writes what it has.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

use super::decode::{Coding, Decoder};
use super::exchange::{End, Exchange, Form, Remedy};
use super::guard::guard;
use super::stats::Stats;

/// The most endings that are queued. Further ones are reported at once, while their connection waits.
const MAX_QUEUED_ENDINGS: usize = 256;

/// Follows one request and its answer. If it is dropped before [`Tap::end`], it reports that the client has gone or,
/// once the server cuts connections, that the server has stopped.
pub(super) struct Tap(Option<Box<Live>>);

/// A finished observation. Dropping it makes the last call ([`Exchange::end`]), so that the call is made even if the
/// server stops first.
pub(super) struct PendingEnd(Option<(Box<Live>, End)>);

/// The queue of endings.
#[derive(Clone)]
pub(super) struct Endings(mpsc::Sender<PendingEnd>);

struct Live {
    decoder: Decoder<Watcher>,
    /// The piece handed on last. It is shown with the next call, since it may not have been written yet.
    handed_on: Bytes,
    endings: Endings,
    stats: Arc<Stats>,
}

/// The exchange as a sink for decoded bytes. Empty after a panic.
struct Watcher(Option<Box<dyn Exchange>>);

impl Tap {
    pub(super) fn new(exchange: Option<Box<dyn Exchange>>, endings: &Endings, stats: &Arc<Stats>) -> Self {
        Self(exchange.map(|exchange| {
            Box::new(Live {
                decoder: Decoder::Identity(Watcher(Some(exchange))),
                handed_on: Bytes::new(),
                endings: endings.clone(),
                stats: Arc::clone(stats),
            })
        }))
    }

    /// A tap that follows nothing.
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn sent(&mut self, form: Form) {
        self.call(|live| live.with(|exchange| exchange.sent(form)));
    }

    /// What to do about a rejection. Without a follower, 400 and 422 are blamed on the edits.
    pub(super) fn rejected(&mut self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Remedy {
        let remedy = self.call(|live| live.with(|exchange| exchange.rejected(status, headers, body)));
        remedy.flatten().unwrap_or(match status {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Remedy::SendOriginal,
            _ => Remedy::Deliver,
        })
    }

    /// The form whose refusal goes to the client.
    pub(super) fn rejected_again(&mut self, status: StatusCode, body: &[u8]) -> Form {
        let form = self.call(|live| live.with(|exchange| exchange.rejected_again(status, body)));
        form.flatten().unwrap_or(Form::Original)
    }

    /// Whether there is a follower.
    pub(super) fn is_live(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn holds(&mut self, status: StatusCode, headers: &HeaderMap) -> bool {
        self.call(|live| live.with(|exchange| exchange.holds(status, headers))).flatten().unwrap_or(false)
    }

    /// What to do about an answer that begins like this; `None` asks for more of it.
    pub(super) fn check_beginning(&mut self, body: &[u8]) -> Option<Remedy> {
        self.call(|live| live.with(|exchange| exchange.check_beginning(body)))
            .flatten()
            .unwrap_or(Some(Remedy::Deliver))
    }

    /// What to do about this answer.
    pub(super) fn check_whole(&mut self, body: &[u8]) -> Remedy {
        let remedy = self.call(|live| live.with(|exchange| exchange.check_whole(body)));
        remedy.flatten().unwrap_or(Remedy::Deliver)
    }

    /// Ends the observation of an answer that the gateway has read and does not pass on.
    pub(super) fn end_unforwarded(&mut self, status: StatusCode, headers: &HeaderMap, body: &Bytes) {
        self.call(|live| live.with(|exchange| exchange.discarded()));
        self.response(status, headers);
        self.handed_on(body);
        self.end(End::Complete);
    }

    /// The head of the answer, which declares the encoding of its body.
    pub(super) fn response(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.call(|live| {
            live.with(|exchange| exchange.response(status, headers));
            let coding = Coding::of(headers);
            live.decode_with(|watcher| Decoder::new(coding, watcher));
        });
    }

    /// A piece of the body was handed on to the client.
    pub(super) fn handed_on(&mut self, piece: &Bytes) {
        if self.0.is_some() {
            self.call(|live| {
                live.show();
                live.handed_on = piece.clone();
            });
        }
    }

    /// Whether the answer has announced its end in what was handed on.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.call(|live| {
            live.show();
            live.with(|exchange| exchange.is_over())
        });
        is_over.flatten().unwrap_or(false)
    }

    /// The exchange is over.
    pub(super) fn end(&mut self, how: End) {
        if let Some(live) = self.0.take() {
            let endings = live.endings.clone();
            endings.tell(PendingEnd(Some((live, how))));
        }
    }

    fn call<T>(&mut self, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let live = self.0.as_mut()?;
        let stats = Arc::clone(&live.stats);
        let outcome = guard(&stats, || work(live));
        if outcome.is_none() {
            self.0.take().map(|live| guard(&stats, || drop(live)));
        }
        outcome
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // Connections are cut only at the end of a shutdown, so the count tells whether this one was cut.
        let is_cut = self.0.as_ref().is_some_and(|live| live.stats.cut_connections.value() > 0);
        self.end(if is_cut { End::Stopped } else { End::ClientGone });
    }
}

impl Endings {
    /// A queue of endings: the sending side, and the side for [`tell_all`].
    pub(super) fn channel() -> (Self, mpsc::Receiver<PendingEnd>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_ENDINGS);
        (Self(sender), receiver)
    }

    fn tell(&self, ending: PendingEnd) {
        // One that cannot be queued is dropped here, which reports it.
        drop(self.0.try_send(ending));
    }
}

/// Tells endings until all senders are gone.
pub(super) async fn tell_all(mut endings: mpsc::Receiver<PendingEnd>) {
    while endings.recv().await.is_some() {}
}

impl Drop for PendingEnd {
    fn drop(&mut self) {
        let Some((mut live, how)) = self.0.take() else { return };
        let stats = Arc::clone(&live.stats);
        guard(&stats, move || {
            live.show();
            let exchange = live.decoder.sink().and_then(|watcher| watcher.0.take());
            if let Some(exchange) = exchange {
                exchange.end(how);
            }
        });
    }
}

impl Live {
    fn with<T>(&mut self, call: impl FnOnce(&mut dyn Exchange) -> T) -> Option<T> {
        let exchange = self.decoder.sink()?.0.as_mut()?;
        Some(call(exchange.as_mut()))
    }

    /// Shows the exchange the piece that was last handed on.
    fn show(&mut self) {
        let piece = mem::take(&mut self.handed_on);
        if !piece.is_empty() && self.decoder.feed(&piece).is_err() {
            self.stats.undecodable.increment();
            self.decode_with(Decoder::Blind);
        }
    }

    /// Sets the decoder of the bytes that follow.
    fn decode_with(&mut self, decoder: impl FnOnce(Watcher) -> Decoder<Watcher>) {
        let Some(watcher) = self.decoder.sink() else { return };
        let watcher = Watcher(watcher.0.take());
        self.decoder = decoder(watcher);
    }
}

impl Write for Watcher {
    fn write(&mut self, decoded: &[u8]) -> io::Result<usize> {
        if let Some(mut exchange) = self.0.take() {
            exchange.data(decoded);
            self.0 = Some(exchange);
        }
        Ok(decoded.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Heard(Arc<Mutex<Vec<End>>>);

    impl Exchange for Heard {
        fn sent(&mut self, _: Form) {}

        fn rejected(&mut self, _: StatusCode, _: &HeaderMap, _: &[u8]) -> Remedy {
            Remedy::Deliver
        }

        fn response(&mut self, _: StatusCode, _: &HeaderMap) {}

        fn data(&mut self, _: &[u8]) {}

        fn end(self: Box<Self>, how: End) {
            self.0.lock().unwrap().push(how);
        }
    }

    /// The server may stop before an ending is reported, or before there is one.
    #[test]
    fn every_ending_is_reported_once_even_after_a_shutdown() {
        let (stats, heard) = (Arc::<Stats>::default(), Arc::default());
        let (endings, told) = Endings::channel();
        let tap = || Tap::new(Some(Box::new(Heard(Arc::clone(&heard)))), &endings, &stats);
        let left = tap();
        tap().end(End::Complete);
        assert_eq!(*heard.lock().unwrap(), [], "nobody has told it yet");
        drop(told);
        assert_eq!(*heard.lock().unwrap(), [End::Complete]);
        drop(left);
        assert_eq!(*heard.lock().unwrap(), [End::Complete, End::ClientGone]);
    }
}
