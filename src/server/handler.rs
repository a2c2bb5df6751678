//! The life of one request, top to bottom.
//!
//! The handler routes the request, reads its body if that is of interest, has the gateway prepare it, sends it and
//! passes the answer on. If anything fails on the gateway's side, it sends what the client sent.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::{Extensions, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;

use crate::upstream::{Clients, SendError, Upstream};

use super::Settings;
use super::body::{self, Replay};
use super::boxed::boxed;
use super::client::Upload;
use super::decode::{Coding, DecodedBeginning};
use super::exchange::{
    End, Fault, Filter, Form, Gateway, Inbound, Prepared, Rejection, Remedy, Route, Target, Unprepared,
};
use super::filtered::{self, Filtered};
use super::guard::guard;
use super::headers::{self, Framing};
use super::preparing::{Decoded, Offload};
use super::refusing::describe;
use super::relay::{Answer, Relay};
use super::stats::Stats;
use super::tap::{Endings, Tap};
use super::woken::when_woken;

/// The most bytes of a rejection that are read before it is decided what to do about it.
pub const REJECTION_LIMIT: usize = 256 * 1024;
/// How long a rejection, or the beginning of an answer, may be held back while it is checked.
pub const BEGINNING_TIMEOUT: Duration = Duration::from_secs(2);

/// What a worker needs to serve requests.
pub(super) struct Handler<G> {
    pub(super) gateway: Arc<G>,
    pub(super) clients: Clients<Replay>,
    pub(super) settings: Settings,
    pub(super) stats: Arc<Stats>,
    pub(super) endings: Endings,
    pub(super) offload: Offload,
}

/// The client broke off in the middle of a request. Its connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[error("the client broke off its request")]
pub(super) struct Abandoned;

/// A request whose body was read.
struct Whole<'a> {
    inbound: Inbound,
    /// The body as it came, in its content coding.
    original: Bytes,
    coding: Coding,
    spelling: Extensions,
    target: &'a Target,
}

/// One form in which a request can be sent.
struct Outgoing {
    form: Form,
    framing: Framing,
    body: Replay,
    /// How the client spelled its header names.
    spelling: Extensions,
    /// Whether to ask for an unencoded answer.
    plain_answer: bool,
}

impl<G: Gateway> Handler<G> {
    /// Answers one request.
    pub(super) async fn handle(&self, request: Request<Upload>) -> Result<Response<Answer>, Abandoned> {
        let received_at = Instant::now();
        self.stats.requests.increment();
        let (mut head, body) = request.into_parts();
        let spelling = mem::take(&mut head.extensions);
        let head = Arc::new(head);
        match self.route(&head) {
            Route::Forward(target) => {
                // The future is boxed, because those around it are moved several times.
                let tap = self.follow(&head, &target);
                let outgoing = Outgoing::streamed(Replay::streaming(body), spelling);
                let answer = when_woken(boxed(|| self.forward(&head, &target, outgoing, tap))).await;
                answer.map(|answer| self.rewrite_location(&head, &target, answer))
            }
            Route::Read(target) => {
                let work = boxed(|| self.read(Arc::clone(&head), spelling, body, received_at, &target));
                let answer = when_woken(work).await;
                answer.map(|answer| self.rewrite_location(&head, &target, answer))
            }
            Route::Refuse(fault) => {
                self.discard(body).await;
                Ok(self.refuse(&head, &fault))
            }
        }
    }

    pub(super) fn route(&self, head: &Parts) -> Route {
        if headers::asks_for_upgrade(head) {
            let message = "upgrades such as WebSocket are not supported here; use plain HTTP requests";
            return Route::Refuse(Fault::client(StatusCode::UPGRADE_REQUIRED, message));
        }
        if head.method == Method::CONNECT {
            return Route::Refuse(Fault::client(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported"));
        }
        guard(&self.stats, || self.gateway.route(head)).unwrap_or_else(|| {
            Route::Refuse(Fault::gateway(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request could not be routed",
            ))
        })
    }

    /// The follower of a request that is streamed through.
    fn follow(&self, head: &Arc<Parts>, target: &Target) -> Tap {
        let follower = guard(&self.stats, || self.gateway.follow(head, target)).flatten();
        Tap::new(follower, &self.endings, &self.stats)
    }

    /// Reads the body, and has the request prepared if possible.
    async fn read(
        &self,
        head: Arc<Parts>,
        spelling: Extensions,
        body: Upload,
        received_at: Instant,
        target: &Target,
    ) -> Result<Response<Answer>, Abandoned> {
        let patience = target.upstream.timeouts().response;
        let Ok(body) = Replay::collect(body, self.settings.max_body, patience).await else {
            return Ok(self.refuse_unfinished(&head, &describe(&SendError::Stalled, target)));
        };
        if let Some(error) = body.broken() {
            let fault = body::framing_fault(&**error).ok_or(Abandoned)?;
            return Ok(self.refuse_unframed(&head, fault));
        }
        if body.is_open() && self.stats.large_bodies.begins() {
            let max_body = self.settings.max_body;
            tracing::warn!(
                max_body,
                "a request body exceeds `limits.max_body`: it is forwarded unread, unrecorded, not counted by budgets, \
                 and without earlier edits"
            );
        }
        let read_at = Instant::now();
        let decoded = self.decode(&head.headers, &body).await;
        let upstream = Arc::clone(&target.upstream);
        let mut inbound = Inbound { head, body: Bytes::new(), upstream, received_at, read_at };
        let Some(Decoded { original, plain, coding }) = decoded else {
            return Box::pin(self.forward_unread(inbound, spelling, body, target)).await;
        };
        drop(body);
        inbound.body = plain;
        let mut prepared = self.prepare(&inbound).await;
        if let Some(refused) = self.take_refusal(&inbound.head, &mut prepared) {
            return Ok(refused);
        }
        self.converse(Whole { inbound, original, coding, spelling, target }, prepared).await
    }

    /// Forwards a request whose body is too long to be read, or could not be decoded. The gateway is told only if the
    /// whole body is there.
    async fn forward_unread(
        &self,
        inbound: Inbound,
        spelling: Extensions,
        body: Replay,
        target: &Target,
    ) -> Result<Response<Answer>, Abandoned> {
        self.stats.unread_bodies.increment();
        let head = Arc::clone(&inbound.head);
        let tap = if body.is_open() {
            Tap::none()
        } else {
            let inbound = Inbound { body: body.read().clone(), ..inbound };
            let mut prepared = self.unprepared(inbound, Unprepared::Undecoded);
            if let Some(refused) = self.take_refusal(&head, &mut prepared) {
                return Ok(refused);
            }
            Tap::new(prepared.exchange, &self.endings, &self.stats)
        };
        self.forward(&head, target, Outgoing::streamed(body, spelling), tap).await
    }

    /// The answer to a request that must not be sent; `None` if it may be sent. Ends the exchange in the first case.
    fn take_refusal(&self, head: &Parts, prepared: &mut Prepared) -> Option<Response<Answer>> {
        let fault = prepared.refusal.take()?;
        Tap::new(prepared.exchange.take(), &self.endings, &self.stats).end(End::Failed(fault.clone()));
        Some(self.refuse(head, &fault))
    }

    /// Sends what was prepared. If that is rejected, sends the original or another form, as the gateway decides.
    async fn converse(
        &self,
        request: Whole<'_>,
        mut prepared: Prepared,
    ) -> Result<Response<Answer>, Abandoned> {
        let (head, target) = (&*request.inbound.head, request.target);
        let mut attempts = 0;
        loop {
            let Prepared { body, exchange, filter, .. } = prepared;
            let is_edited = body.is_some();
            let mut tap = Tap::new(exchange, &self.endings, &self.stats);
            let outgoing = self.outgoing(&request, body, filter.is_some()).await;
            let response = match self.send(head, target, outgoing, &mut tap).await {
                Ok(response) => response,
                Err(error) => return self.fail(head, target, &error, tap),
            };
            let (response, remedy) = self.examine(response, &mut tap, is_edited).await;
            match remedy {
                Remedy::Deliver => return Ok(self.relay(response, target, tap, filter)),
                Remedy::SendOriginal => return Box::pin(self.send_original(&request, response, tap)).await,
                Remedy::Again => {
                    attempts += 1;
                    let Some(next) = Box::pin(self.next_form(&request, &response, attempts)).await else {
                        return Ok(self.relay(response, target, tap, filter));
                    };
                    self.stats.sent_again.increment();
                    let (answer, body) = response.into_parts();
                    tap.end_unforwarded(answer.status, &answer.headers, body.read());
                    prepared = next;
                }
            }
        }
    }

    /// Sends the original in place of an edited request that was rejected, and delivers the answer. If that is a
    /// rejection too, the gateway decides which of the two the client gets.
    async fn send_original(
        &self,
        request: &Whole<'_>,
        rejection: Response<Replay<body::Received>>,
        mut tap: Tap,
    ) -> Result<Response<Answer>, Abandoned> {
        let (head, target) = (&*request.inbound.head, request.target);
        // A rejection that has not been read to its end would hold its connection.
        let rejection = Some(rejection).filter(|rejection| rejection.body().as_whole().is_some());
        self.stats.originals_resent.increment();
        let original = Outgoing::whole(request.original.clone(), false, request.spelling.clone());
        let response = match self.send(head, target, original, &mut tap).await {
            Ok(response) => response,
            Err(error) => return self.fail(head, target, &error, tap),
        };
        let first = rejection.filter(|rejection| is_same_refusal(rejection.status(), response.status()));
        let Some(first) = first else {
            let (response, _) = self.check_beginning(response, &mut tap).await;
            return Ok(self.relay(response, target, tap, None));
        };
        let (second, body) = response.into_parts();
        let body = Replay::peek(body, REJECTION_LIMIT, BEGINNING_TIMEOUT, |_| false).await;
        let reason = self.decode_rejection(&second.headers, body.read());
        let delivered = match tap.rejected_again(second.status, &reason) {
            Form::Edited => first,
            Form::Original => Response::from_parts(second, body),
        };
        Ok(self.relay(delivered, target, tap, None))
    }

    /// The form that leaves: the edited body, encoded like the original, or the original as it came.
    async fn outgoing(&self, request: &Whole<'_>, edited: Option<Bytes>, plain_answer: bool) -> Outgoing {
        let spelling = request.spelling.clone();
        match edited {
            None => Outgoing::whole(request.original.clone(), false, spelling),
            Some(edited) => {
                self.stats.edited.increment();
                let encoded = self.encode(request.coding, &edited).await;
                let (body, is_decoded) = encoded.map_or((edited, true), |encoded| (encoded, false));
                let form = Form::Edited;
                Outgoing { form, plain_answer, ..Outgoing::whole(body, is_decoded, spelling) }
            }
        }
    }

    /// Checks a rejection, or the beginning of an answer that may be one.
    async fn examine(
        &self,
        response: Response<body::Received>,
        tap: &mut Tap,
        is_edited: bool,
    ) -> (Response<Replay<body::Received>>, Remedy) {
        // Some servers report an invalid request as a fault of their own (500).
        let may_be_rejection = match response.status().as_u16() {
            400 | 422 | 500 => true,
            _ => is_edited && response.status().is_client_error(),
        };
        let (response, remedy) = if may_be_rejection && (is_edited || tap.is_live()) {
            let (head, body) = response.into_parts();
            let body = Replay::peek(body, REJECTION_LIMIT, BEGINNING_TIMEOUT, |_| false).await;
            let reason = self.decode_rejection(&head.headers, body.read());
            let remedy = tap.rejected(head.status, &head.headers, &reason);
            (Response::from_parts(head, body), remedy)
        } else {
            self.check_beginning(response, tap).await
        };
        // An unedited request was the original itself.
        let was_original = !is_edited && remedy == Remedy::SendOriginal;
        (response, if was_original { Remedy::Deliver } else { remedy })
    }

    /// Checks the beginning of a successful answer, if that is wanted.
    async fn check_beginning(
        &self,
        response: Response<body::Received>,
        tap: &mut Tap,
    ) -> (Response<Replay<body::Received>>, Remedy) {
        let (head, body) = response.into_parts();
        let is_held = head.status.is_success() && tap.holds(head.status, &head.headers);
        let Some(coding) = Coding::of(&head.headers).filter(|_| is_held) else {
            return (Response::from_parts(head, Replay::streaming(body)), Remedy::Deliver);
        };
        let mut beginning = DecodedBeginning::new(coding, REJECTION_LIMIT);
        let mut remedy = None;
        let body = Replay::peek(body, REJECTION_LIMIT, BEGINNING_TIMEOUT, |read| {
            let decoded = self.decode_beginning(&mut beginning, read);
            remedy = decoded.map_or(Some(Remedy::Deliver), |decoded| tap.check_beginning(decoded));
            remedy.is_some()
        })
        .await;
        if remedy.is_none() && body.as_whole().is_some() {
            let decoded = self.decode_beginning(&mut beginning, body.read());
            remedy = decoded.map(|decoded| tap.check_whole(decoded));
        }
        (Response::from_parts(head, body), remedy.unwrap_or(Remedy::Deliver))
    }

    /// Asks the gateway for another form of the request.
    async fn next_form(
        &self,
        request: &Whole<'_>,
        response: &Response<Replay<body::Received>>,
        attempts: u32,
    ) -> Option<Prepared> {
        let body = self.decode_rejection(response.headers(), response.body().read());
        let rejection = Rejection { status: response.status(), body };
        self.prepare_again(&request.inbound, rejection, attempts).await
    }

    /// Streams a request through.
    async fn forward(
        &self,
        head: &Parts,
        target: &Target,
        outgoing: Outgoing,
        mut tap: Tap,
    ) -> Result<Response<Answer>, Abandoned> {
        match self.send(head, target, outgoing, &mut tap).await {
            Ok(response) => Ok(self.relay(response.map(Replay::streaming), target, tap, None)),
            Err(error) => self.fail(head, target, &error, tap),
        }
    }

    /// The beginning of a rejection, decoded as far as possible.
    fn decode_rejection(&self, headers: &http::HeaderMap, read: &Bytes) -> Bytes {
        match Coding::of(headers) {
            Some(Coding::Identity) | None => read.clone(),
            Some(coding) => {
                let mut beginning = DecodedBeginning::new(coding, REJECTION_LIMIT);
                let decoded = self.decode_beginning(&mut beginning, read);
                decoded.map(Bytes::copy_from_slice).unwrap_or_default()
            }
        }
    }

    fn decode_beginning<'a>(&self, beginning: &'a mut DecodedBeginning, read: &[u8]) -> Option<&'a [u8]> {
        guard(&self.stats, move || beginning.decoded(read)).flatten()
    }

    /// Sends one form of a request and waits for the head of the answer.
    async fn send(
        &self,
        head: &Parts,
        target: &Target,
        outgoing: Outgoing,
        tap: &mut Tap,
    ) -> Result<Response<body::Received>, SendError> {
        let upstream = &target.upstream;
        let uri = upstream.base_url().join(&target.path_and_query).map_err(|_| SendError::Address)?;
        tap.sent(outgoing.form);
        let since = Instant::now();
        let response = self.clients.send(upstream, outgoing.request(uri, head, upstream)).await?;
        // The query may hold a key.
        tracing::debug!(
            method = %head.method,
            path = target.path_and_query.path(),
            upstream = upstream.name(),
            status = response.status().as_u16(),
            ms = since.elapsed().as_millis() as u64,
            "answered"
        );
        // Only HTTP/1.1 can declare a transfer coding. Other clients would take the encoded bytes for the body.
        let can_be_declared = head.version == Version::HTTP_11 || response.body().is_end_stream();
        let coding = if can_be_declared { None } else { headers::transfer_coding(response.headers()) };
        match coding {
            Some(coding) => Err(SendError::Encoded(coding)),
            None => Ok(response),
        }
    }

    /// The answer for the client, whose body is passed on as it arrives.
    fn relay(
        &self,
        response: Response<Replay<body::Received>>,
        target: &Target,
        mut tap: Tap,
        filter: Option<Box<dyn Filter>>,
    ) -> Response<Answer> {
        let (mut head, body) = response.into_parts();
        head.version = Version::HTTP_11;
        if head.status == StatusCode::NO_CONTENT {
            // A 204 has no body, whatever the server declares, and HTTP/2 clients fail if one is declared (RFC 9110,
            // 8.6).
            head.headers.remove(CONTENT_LENGTH);
        }
        head.headers = headers::to_client(head.headers);
        tap.response(head.status, &head.headers);
        let filter = filter.filter(|_| head.status.is_success());
        let filter = filter.and_then(|filter| Some((filter, filtered::declared(&mut head.headers)?)));
        let relay = Relay::new(body, tap, &target.upstream, &self.stats);
        let answer = match filter {
            None => Answer::from(relay),
            Some((filter, declared)) => Answer::from(Filtered::new(relay, filter, declared, &self.stats)),
        };
        Response::from_parts(head, answer)
    }

    /// The answer to a request that got none from its upstream.
    ///
    /// # Errors
    /// [`Abandoned`] if the client broke off.
    fn fail(
        &self,
        head: &Parts,
        target: &Target,
        error: &SendError,
        mut tap: Tap,
    ) -> Result<Response<Answer>, Abandoned> {
        if matches!(error, SendError::RequestBody) {
            return Err(Abandoned);
        }
        self.stats.upstream_failures.increment();
        let fault = describe(error, target);
        let end = if error.is_unsent() { End::Unsent } else { End::Failed };
        tap.end(end(fault.clone()));
        Ok(self.refuse(head, &fault))
    }
}

/// Whether a request and its original were refused in the same way.
fn is_same_refusal(first: StatusCode, second: StatusCode) -> bool {
    let is_of_form = |status| matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
    first.is_client_error() && (first == second || is_of_form(first) && is_of_form(second))
}

impl Outgoing {
    fn request(self, uri: Uri, head: &Parts, upstream: &Upstream) -> Request<Replay> {
        let mut request = Request::new(self.body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::to_upstream(head, upstream, self.framing);
        if self.plain_answer {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        *request.extensions_mut() = self.spelling;
        request
    }

    fn streamed(body: Replay, spelling: Extensions) -> Self {
        let open_ended = !body.is_end_stream() && body.size_hint().exact().is_none();
        Self {
            form: Form::Original,
            framing: Framing::Streamed { open_ended },
            body,
            spelling,
            plain_answer: false,
        }
    }

    fn whole(body: Bytes, is_decoded: bool, spelling: Extensions) -> Self {
        let framing = Framing::Whole { length: body.len(), is_decoded };
        Self { form: Form::Original, framing, body: Replay::whole(body), spelling, plain_answer: false }
    }
}
