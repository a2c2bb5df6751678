//! The seam: what the composition root plugs into the server.
//!
//! The server moves bytes; everything specific (which path belongs to which upstream, what a body means, what
//! an error looks like to the caller) is asked for through [`Gateway`], and what became of an exchange is told
//! to an [`Exchange`]. Neither can break the traffic: a panic, a time-out or silence on this side of the seam
//! sends the original bytes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::deadline::Deadline;
use crate::upstream::Upstream;

/// Decides where requests go and what becomes of their bodies.
pub trait Gateway: Send + Sync + 'static {
    /// Decides where a request goes and whether its body is of interest. A pure look at the head.
    fn route(&self, head: &Parts) -> Route;

    /// Called with the whole decoded body of a request that [`Route::Read`] asked for.
    ///
    /// The worst answer is [`Prepared::untouched`]. Awaited on the thread that serves the connection or, for a large
    /// body, on one beside it. As soon as the request is read, it is to be held ([`Deadline::hold`]) or released
    /// ([`Deadline::release`]). What is not done in time then, or when the client leaves, and has not held the request, is
    /// dropped where it next waits for something. What has held it comes to its end; where the client has left by then,
    /// nothing is sent, and the exchange is told why.
    fn prepare(&self, inbound: Inbound, until: Deadline) -> impl Future<Output = Prepared> + Send;

    /// Called for what [`Route::Forward`] lets through unread: whoever is to follow its answer. A pure look at the head.
    fn follow(&self, _head: &Arc<Parts>, _target: &Target) -> Option<Box<dyn Exchange>> {
        None
    }

    /// Called where nothing came of [`Self::prepare`]: the request leaves as it came. Whoever is to follow it.
    fn unprepared(&self, _inbound: Inbound, _why: Unprepared) -> Option<Box<dyn Exchange>> {
        None
    }

    /// Called when an exchange asks for it ([`Remedy::Again`]): prepares the request anew, after `attempt` others.
    /// What comes is sent in place of the rejected request, with an exchange of its own; `None`, or what is not to be
    /// sent at all: the rejection goes to the client. Awaited as [`Self::prepare`] is.
    fn again(
        &self,
        _inbound: Inbound,
        _rejection: Rejection,
        _attempt: u32,
        _until: Deadline,
    ) -> impl Future<Output = Option<Prepared>> + Send {
        std::future::ready(None)
    }

    /// Words an answer that the gateway must give itself, in the caller's dialect.
    fn refuse(&self, head: &Parts, fault: &Fault) -> Refusal;
}

/// What [`Gateway::route`] decides.
#[derive(Debug)]
pub enum Route {
    /// Stream through untouched.
    Forward(Target),
    /// Collect the body and show it to [`Gateway::prepare`] first.
    Read(Target),
    /// Answer without asking an upstream.
    Refuse(Fault),
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server that answers it.
    pub upstream: Arc<Upstream>,
    /// Path and query below the upstream's base URL, byte for byte what the client sent after the gateway's
    /// own prefix.
    pub path_and_query: PathAndQuery,
}

/// A request whose body was read.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Method, path as received and headers as received.
    pub head: Arc<Parts>,
    /// The body, content-decoded.
    pub body: Bytes,
    /// Where it goes.
    pub upstream: Arc<Upstream>,
    /// When the head had been read.
    pub received_at: Instant,
}

/// What [`Gateway::prepare`] made of a request.
#[derive(Default)]
pub struct Prepared {
    /// The plain body to send; `None` sends the original bytes in their original encoding.
    pub body: Option<Bytes>,
    /// Follows what happens to the request from here on. Where nobody does, an edit that is refused (400, 422) gives way
    /// to the original.
    pub exchange: Option<Box<dyn Exchange>>,
    /// Takes something out of the answer to `body`, if that is an event stream. The upstream is then asked for
    /// an answer without encoding.
    pub filter: Option<Box<dyn Filter>>,
    /// The request is not sent at all: its answer. The exchange is told of it.
    pub refusal: Option<Fault>,
}

/// Why nothing came of [`Gateway::prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprepared {
    /// It took longer than `rewrite_timeout`.
    TimedOut,
    /// It panicked.
    Panicked,
}

/// An answer that is not passed on, if it can be helped.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Its status.
    pub status: StatusCode,
    /// The decoded beginning of its body.
    pub body: Bytes,
}

/// Takes something out of an event stream on its way to the client. The exchange sees the whole of it.
///
/// After a panic the rest of the stream passes unfiltered.
pub trait Filter: Send {
    /// Takes the next bytes, gives those that go on.
    fn pass(&mut self, piece: &Bytes) -> Bytes;

    /// The stream has come to its end: what was held back.
    fn rest(&mut self) -> Bytes;
}

/// Follows one exchange.
///
/// `data` and `end` see copies after they were handed on to the client. Nothing done here can fail the
/// exchange; a panic drops the follower and is counted. Calls are made on the thread that serves the
/// connection, so they should take microseconds.
pub trait Exchange: Send {
    /// The request is about to leave. Called a second time when the original is sent after a rejection.
    fn sent(&mut self, form: Form);

    /// The request was answered 4xx or 500. `body` is the decoded beginning of that answer, at most
    /// [`super::REJECTION_LIMIT`] bytes of it.
    fn rejected(&mut self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Remedy;

    /// The original was refused as its edited form was before. `body` is the beginning of that answer, as in
    /// [`Self::rejected`]. Says whose refusal goes to the client.
    fn rejected_again(&mut self, _status: StatusCode, _body: &[u8]) -> Form {
        Form::Original
    }

    /// Whether the beginning of a good answer is to be looked at before any of it goes to the client. It is held
    /// back until [`Self::opened`] has seen enough, for [`super::OPENING_TIMEOUT`] at most.
    fn holds(&self, _status: StatusCode, _headers: &HeaderMap) -> bool {
        false
    }

    /// The beginning of such an answer; `whole`: there is no more. Of an answer to the original behind a rejection, it
    /// goes to the client whatever is said.
    fn opened(&mut self, _body: &[u8], _whole: bool) -> Opening {
        Opening::Deliver
    }

    /// The head of the answer that goes to the client.
    fn response(&mut self, status: StatusCode, headers: &HeaderMap);

    /// More of its body, content-decoded. Never called for an encoding that is not understood.
    fn data(&mut self, decoded: &[u8]);

    /// Whether the answer has said that it is over: what still comes of it costs nothing. The rest of it is then read here
    /// where the client leaves before it comes.
    fn is_over(&self) -> bool {
        false
    }

    /// The exchange is over. Always the last call, and always made.
    fn end(self: Box<Self>, how: End);
}

/// Which bytes of a request leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What the client sent.
    Original,
    /// What [`Prepared::body`] holds.
    Edited,
}

/// What to do about a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The rejection goes to the client.
    Deliver,
    /// The original of an edited request is sent, once, and its answer goes to the client. If it is refused in the same
    /// way, [`Exchange::rejected_again`] chooses.
    SendOriginal,
    /// The request is prepared anew ([`Gateway::again`]) and sent again.
    Again,
}

/// What to do about the beginning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Wait for more of it.
    Hold,
    /// The answer goes to the client.
    Deliver,
    /// It is a rejection of an edited request: the original is sent, once.
    SendOriginal,
    /// It is a rejection: the request is prepared anew and sent again.
    Again,
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer arrived from upstream and was handed on.
    Complete,
    /// The upstream broke off in the middle of its answer.
    UpstreamBroke,
    /// The gateway broke it off there, as the upstream sent nothing for so long.
    UpstreamSilent(Duration),
    /// The client went away first.
    ClientGone,
    /// The gateway was told to stop, and could not wait for the end of it any longer.
    Stopped,
    /// There was no answer: the gateway gave one of its own.
    Failed(Fault),
    /// The same, and nobody has worked on the request.
    Unsent(Fault),
}

/// Why the gateway answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The status to answer with.
    pub status: StatusCode,
    /// Who has to change something.
    pub at_fault: Party,
    /// One sentence for the caller, no final period.
    pub message: Cow<'static, str>,
}

/// The parties to an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The agent.
    Client,
    /// The provider.
    Upstream,
    /// This program.
    Gateway,
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
    /// The request as it came, followed by nobody.
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
    /// A fault of the client's making.
    pub fn client(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, at_fault: Party::Client, message: message.into() }
    }

    /// A fault of our own making.
    pub fn gateway(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, at_fault: Party::Gateway, message: message.into() }
    }
}
