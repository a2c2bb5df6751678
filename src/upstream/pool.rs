//! The connections of one worker to one upstream.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, Uri};
use http_body::Body;
use hyper::client::conn::{TrySendError, http2};
use tokio::time::Instant;

use super::answer::AnswerBody;
use super::connect::{Connected, Connector};
use super::line::Line;
use super::{SendError, Upstream};

/// HTTP/1 connections kept for later; further ones are closed after use.
const MAX_IDLE: usize = 64;

/// Connections to one upstream, kept for the next request.
pub(super) struct Pool<B: Body + 'static> {
    connector: Connector,
    keep_alive: Duration,
    kept: Mutex<Kept<B>>,
}

struct Kept<B: Body + 'static> {
    /// The one used last is at the end.
    idle: Vec<Idle<B>>,
    /// One connection carries all requests if the upstream speaks HTTP/2.
    shared: Option<http2::SendRequest<B>>,
}

struct Idle<B: Body + 'static> {
    line: Box<Line<B>>,
    since: Instant,
}

/// What a request is sent on.
enum Carrier<B: Body + 'static> {
    Line(Box<Line<B>>),
    Shared(http2::SendRequest<B>),
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    pub(super) fn new(upstream: &Upstream) -> Result<Self, SendError> {
        let kept = Kept { idle: Vec::new(), shared: None };
        let keep_alive = upstream.timeouts().keep_alive;
        Ok(Self { connector: Connector::new(upstream)?, keep_alive, kept: Mutex::new(kept) })
    }

    /// Sends `request` and waits for the head of the answer. A request that found its kept connection closed
    /// before any of it was written is sent on another; nothing else is ever sent twice.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<B>,
    ) -> Result<Response<AnswerBody<B>>, SendError> {
        let address = request.uri().clone();
        loop {
            let kept = self.take();
            let is_kept = kept.is_some();
            let carrier = match kept {
                Some(carrier) => carrier,
                None => self.connect(address.clone()).await?,
            };
            let sent = match carrier {
                Carrier::Line(line) => self.send_on_line(line, request, &address).await,
                Carrier::Shared(sender) => self.send_shared(sender, request, &address).await,
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    _ => return Err(SendError::from_sending(&error.into_error())),
                },
            }
        }
    }

    /// Keeps `line`, which is ready for another request.
    pub(super) fn give_back(&self, line: Box<Line<B>>) {
        let mut kept = self.kept();
        if kept.idle.len() < MAX_IDLE {
            kept.idle.push(Idle { line, since: Instant::now() });
        }
    }

    /// Closes what has not been used for long, or was closed by the upstream.
    pub(super) fn sweep(&self) {
        let keep_alive = self.keep_alive;
        let mut kept = self.kept();
        kept.idle.retain_mut(|idle| idle.since.elapsed() < keep_alive && idle.line.rest());
    }

    async fn send_on_line(
        self: &Arc<Self>,
        mut line: Box<Line<B>>,
        mut request: Request<B>,
        address: &Uri,
    ) -> Result<Response<AnswerBody<B>>, TrySendError<Request<B>>> {
        if let Some(path_and_query) = address.path_and_query() {
            *request.uri_mut() = Uri::from(path_and_query.clone());
        }
        let response = line.send(request).await?;
        Ok(response.map(|body| AnswerBody::from_line(body, line, Arc::clone(self))))
    }

    async fn send_shared(
        &self,
        mut sender: http2::SendRequest<B>,
        mut request: Request<B>,
        address: &Uri,
    ) -> Result<Response<AnswerBody<B>>, TrySendError<Request<B>>> {
        *request.uri_mut() = address.clone();
        // It is in the address.
        request.headers_mut().remove(HOST);
        Ok(sender.try_send_request(request).await?.map(AnswerBody::from_task))
    }

    fn take(&self) -> Option<Carrier<B>> {
        let mut kept = self.kept();
        if let Some(sender) = &kept.shared {
            if sender.is_ready() {
                return Some(Carrier::Shared(sender.clone()));
            }
            kept.shared = None;
        }
        while let Some(Idle { mut line, since }) = kept.idle.pop() {
            if since.elapsed() < self.keep_alive && line.rest() {
                return Some(Carrier::Line(line));
            }
        }
        None
    }

    async fn connect(&self, address: Uri) -> Result<Carrier<B>, SendError> {
        Ok(match self.connector.clone().connect(address).await? {
            Connected::Http1(line) => Carrier::Line(line),
            Connected::Http2(sender) => {
                self.kept().shared = Some(sender.clone());
                Carrier::Shared(sender)
            }
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept<B>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
