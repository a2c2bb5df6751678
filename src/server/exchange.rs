//! The seam between the server and the rest: the traits that the composition root implements.
//!
//! The server moves bytes. It asks a [`Gateway`] for everything specific: which path belongs to which upstream, what
//! a body means, what an error looks like to the caller. It tells an [`Exchange`] what became of a request. Neither
//! can break the traffic: on a panic, a time-out or silence on the other side of the seam, the original bytes are
//! sent.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::deadline::Deadline;
pub use crate::upstream::Party;
use crate::upstream::Upstream;

/// Decides where requests go and what becomes of their bodies.
pub trait Gateway: Send + Sync + 'static {
    /// Decides where a request goes and whether its body is of interest. Must depend on the head alone.
    fn route(&self, head: &Parts) -> Route;

    /// Called with the whole decoded body of a request for which [`Self::route`] returned [`Route::Read`].
    ///
    /// The fallback is [`Prepared::untouched`]. Awaited on the thread that serves the connection or, for a large
    /// body, on the blocking pool. As soon as the request has been read, it must be held ([`Deadline::hold`]) or
    /// released ([`Deadline::release`]). A future that has not held its request is dropped at its next await point when
    /// the deadline has passed or the client has left. One that has held it runs to its end; if the client has left by
    /// then, nothing is sent, and the exchange is told why.
    fn prepare(&self, inbound: Inbound, until: Deadline) -> impl Future<Output = Prepared> + Send;

    /// The follower of an answer to a request that is forwarded unread ([`Route::Forward`]), if it should have one.
    /// Must depend on the head alone.
    fn follow(&self, _head: &Arc<Parts>, _target: &Target) -> Option<Box<dyn Exchange>> {
        None
    }

    /// Called if [`Self::prepare`] was not called or gave no result. The request leaves as it came, unless it is
    /// refused: only `exchange` and `refusal` of the result are used.
    fn unprepared(&self, _inbound: Inbound, _why: Unprepared) -> Prepared {
        Prepared::untouched()
    }

    /// Called if an exchange asks for it ([`Remedy::Again`]). Prepares the request anew after it was sent `attempt`
    /// times. The result is sent in place of the rejected request, with an exchange of its own. If there is no result,
    /// or if it holds no body or a refusal, the rejection goes to the client. Awaited like [`Self::prepare`].
    fn again(
        &self,
        _inbound: Inbound,
        _rejection: Rejection,
        _attempt: u32,
        _until: Deadline,
    ) -> impl Future<Output = Option<Prepared>> + Send {
        std::future::ready(None)
    }

    /// The body of an error that the gateway answers with itself, in the caller's dialect.
    fn refuse(&self, head: &Parts, fault: &Fault) -> Refusal;
}

/// The decision of [`Gateway::route`].
#[derive(Debug)]
pub enum Route {
    /// Stream through untouched.
    Forward(Target),
    /// Collect the body and show it to [`Gateway::prepare`] first.
    Read(Target),
    /// Answer without an upstream.
    Refuse(Fault),
}

/// The destination of a request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server that answers it.
    pub upstream: Arc<Upstream>,
    /// Path and query relative to the upstream's base URL, byte for byte as the client sent them after the gateway's
    /// own prefix.
    pub path_and_query: PathAndQuery,
}

/// A request whose body was read.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Method, path and headers as received.
    pub head: Arc<Parts>,
    /// The body, with its content encoding removed.
    pub body: Bytes,
    /// Its destination.
    pub upstream: Arc<Upstream>,
    /// When its head had been read.
    pub received_at: Instant,
    /// When its body had been read.
    pub read_at: Instant,
}

/// The result of [`Gateway::prepare`].
#[derive(Default)]
pub struct Prepared {
    /// The unencoded body to send; `None` sends the original bytes in their original encoding.
    pub body: Option<Bytes>,
    /// The follower of the request from here on. Without one, an edited request that is refused with 400 or 422 is
    /// replaced by its original.
    pub exchange: Option<Box<dyn Exchange>>,
    /// Removes something from a successful answer to `body`, if that is declared as an event stream, or has no length
    /// and begins like one. The upstream is then asked for an unencoded answer.
    pub filter: Option<Box<dyn Filter>>,
    /// An error to answer with instead of sending the request. The exchange is told about it.
    pub refusal: Option<Fault>,
}

/// Why there is no result of [`Gateway::prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprepared {
    /// It took longer than `rewrite_timeout`.
    TimedOut,
    /// It panicked.
    Panicked,
    /// It was not called: the body, which is given as received, could not be decoded, or ends with trailer fields.
    Undecoded,
}

/// An answer that should not be passed on if that can be avoided.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Its status.
    pub status: StatusCode,
    /// The beginning of its body, decoded.
    pub body: Bytes,
}

/// Removes something from an event stream on its way to the client. The exchange sees the whole stream.
///
/// After a panic the rest of the stream passes unfiltered.
pub trait Filter: Send {
    /// Takes the next bytes and returns those to pass on.
    fn pass(&mut self, piece: &Bytes) -> Bytes;

    /// Ends the stream and returns what was held back.
    fn rest(&mut self) -> Bytes;
}

/// Follows one exchange.
///
/// `data` and `end` are called after the bytes were handed on to the client. Nothing done here can fail the exchange;
/// a panic drops the follower and is counted. Calls are made on the thread that serves the connection, so they should
/// take microseconds.
pub trait Exchange: Send {
    /// The request is about to leave. Called again if the original is sent after a rejection.
    fn sent(&mut self, form: Form);

    /// The request was refused. Called for 400, 422 and 500; for any other 4xx only if the request was edited. `body`
    /// is the decoded beginning of the answer, at most [`super::REJECTION_LIMIT`] bytes.
    fn rejected(&mut self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Remedy;

    /// The original was refused like its edited form before. `body` is the beginning of the answer, as in
    /// [`Self::rejected`]. Returns whose refusal goes to the client.
    fn rejected_again(&mut self, _status: StatusCode, _body: &[u8]) -> Form {
        Form::Original
    }

    /// Whether to check a successful answer before any of it goes to the client, unless its encoding is not understood.
    /// It is held back until
    /// [`Self::check_beginning`] has seen enough or [`Self::check_whole`] has seen all of it, for
    /// [`super::BEGINNING_TIMEOUT`] at most.
    fn holds(&self, _status: StatusCode, _headers: &HeaderMap) -> bool {
        false
    }

    /// Checks the beginning of an answer that is held back. `None` asks for more: the call is repeated when more of the
    /// answer has come. Once the time is up or [`super::REJECTION_LIMIT`] is reached, the answer goes to the client. So
    /// does the answer to an original that was sent after a rejection, whatever is returned.
    fn check_beginning(&mut self, _body: &[u8]) -> Option<Remedy> {
        Some(Remedy::Deliver)
    }

    /// Checks an answer that ended while [`Self::check_beginning`] asked for more. `body` is all of it.
    fn check_whole(&mut self, _body: &[u8]) -> Remedy {
        Remedy::Deliver
    }

    /// The answer does not go to the client, because the request is sent again in another form ([`Remedy::Again`]).
    /// What follows is called as if it did.
    fn discarded(&mut self) {}

    /// The head of the answer that goes to the client.
    fn response(&mut self, status: StatusCode, headers: &HeaderMap);

    /// More of its body, decoded. Never called for an encoding that is not understood.
    fn data(&mut self, decoded: &[u8]);

    /// Whether the answer has announced its end, so that reading the rest of it costs nothing. The rest is then read
    /// even if the client leaves before it arrives.
    fn is_over(&self) -> bool {
        false
    }

    /// The exchange is over. This is always called, and is always the last call, also for a request that is refused in
    /// the end or that is not sent in place of a rejected one. Only a result that comes too late, after the request has
    /// left, is dropped without it.
    fn end(self: Box<Self>, how: End);
}

/// The form in which a request leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the client sent it.
    Original,
    /// As in [`Prepared::body`].
    Edited,
}

/// What to do about a rejection, or about a successful answer that is checked as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The answer goes to the client.
    Deliver,
    /// The original of an edited request is sent, once, and its answer goes to the client. If it is refused in the
    /// same way, [`Exchange::rejected_again`] chooses between the two.
    SendOriginal,
    /// The request is prepared anew ([`Gateway::again`]) and sent again.
    Again,
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer arrived from upstream and was handed on.
    Complete,
    /// The upstream broke off in the middle of its answer.
    UpstreamBroke,
    /// The gateway broke it off in the middle, because the upstream had been silent for this long.
    UpstreamSilent(Duration),
    /// The client went away first.
    ClientGone,
    /// The gateway was shutting down, and could not wait for the end any longer.
    Stopped,
    /// There was no answer, so the gateway gave one of its own.
    Failed(Fault),
    /// Like [`Self::Failed`], for a request that certainly no upstream has worked on.
    Unsent(Fault),
}

/// An error that the gateway answers with itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The status to answer with.
    pub status: StatusCode,
    /// Who is at fault.
    pub at_fault: Party,
    /// One sentence for the caller, without a final period.
    pub message: Cow<'static, str>,
}

/// The body of an answer that the gateway gives itself.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Its content type.
    pub content_type: HeaderValue,
    /// Its bytes.
    pub body: Bytes,
}

impl Prepared {
    /// The request as it came, without a follower.
    pub fn untouched() -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("body", &self.body.as_ref().map(Bytes::len))
            .field("exchange", &self.exchange.is_some())
            .field("filter", &self.filter.is_some())
            .field("refusal", &self.refusal)
            .finish()
    }
}

impl Fault {
    /// A fault of the client.
    pub fn client(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, at_fault: Party::Client, message: message.into() }
    }

    /// A fault of the gateway.
    pub fn gateway(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, at_fault: Party::Gateway, message: message.into() }
    }
}
