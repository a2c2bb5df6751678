//! The connections of one worker to one upstream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::{Request, Response, Uri};
use hyper::client::conn::TrySendError;
use rustix::process::{Resource, getrlimit};

use super::answer::AnswerBody;
use super::connect::{Connected, Connector};
use super::http1::Http1Connection;
use super::http2::{Http2Connection, Slot};
use super::opening::Heard;
use super::resend::{self, RequestBody};
use super::{SendError, Upstream};

/// The most idle HTTP/1 connections that are kept, fewer if the process may have few open files. Further ones are
/// closed after use.
const MAX_IDLE: u64 = 64;
/// How often a request is sent again if the upstream refuses it without processing it.
const MAX_RESENDS: u32 = 2;

/// Connections to one upstream, kept for the next request.
pub(super) struct Pool<B: RequestBody> {
    connector: Connector,
    keep_alive: Duration,
    max_idle: usize,
    kept: Mutex<Kept<B>>,
}

struct Kept<B: RequestBody> {
    /// Idle HTTP/1 connections. The one that was used last is at the end.
    #[expect(clippy::vec_box, reason = "a connection is large, and is in a box while it is used, too")]
    idle: Vec<Box<Http1Connection<B>>>,
    /// HTTP/2 connections. A request takes the first with room, so that later ones become idle and are closed.
    shared: Vec<Http2Connection<B>>,
}

/// The connection, or the room on one, that a request is sent on.
enum Carrier<B: RequestBody> {
    Http1(Box<Http1Connection<B>>),
    Http2(Slot<B>),
}

/// A request that got no answer.
struct Failed<B> {
    error: hyper::Error,
    /// Whether the upstream must be asked with HTTP/1.1.
    lacks_http2: bool,
    /// The request, if it may be sent on another connection.
    again: Option<Again<B>>,
}

/// A request that may be sent again, and why.
enum Again<B> {
    /// None of it was written.
    Unwritten(Box<Request<B>>),
    /// The upstream says, or shows, that it has not processed it.
    Refused(Box<Request<B>>),
}

impl<B: RequestBody> Pool<B> {
    pub(super) fn new(upstream: &Upstream) -> Result<Self, SendError> {
        let kept = Kept { idle: Vec::new(), shared: Vec::new() };
        let keep_alive = upstream.timeouts().keep_alive;
        let max_idle = max_idle(getrlimit(Resource::Nofile).maximum);
        Ok(Self { connector: Connector::new(upstream)?, keep_alive, max_idle, kept: Mutex::new(kept) })
    }

    /// Sends `request` and waits for the head of the answer. It is sent again, and only then,
    ///
    /// - if its kept connection was closed before any of it was written,
    /// - if the upstream refused it without processing it, at most [`MAX_RESENDS`] times, the last on a new connection,
    /// - on a new connection, if it does no harm ([`resend::copy_if_harmless`]) and its kept connection broke.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Box<Request<B>>,
    ) -> Result<Response<AnswerBody<B>>, SendError> {
        let address = request.uri().clone();
        let mut resends_left = MAX_RESENDS;
        let mut kept = self.take();
        loop {
            let is_kept = kept.is_some();
            let harmless = if is_kept { resend::copy_if_harmless(&request) } else { None };
            let carrier = match kept {
                Some(carrier) => carrier,
                None => self.connect(address.clone()).await?,
            };
            let sent = match carrier {
                Carrier::Http1(connection) => self.send_on_http1(connection, request, &address).await,
                Carrier::Http2(slot) => self.send_on_http2(slot, request, &address).await,
            };
            let failed = match sent {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            (request, kept) = match (failed.again, harmless) {
                (Some(Again::Unwritten(unsent)), _) if is_kept => (unsent, self.take()),
                (Some(Again::Refused(unread)), _) if resends_left > 0 => {
                    resends_left -= 1;
                    // All kept connections may be about to close. None does before the first request on it.
                    (unread, if resends_left == 0 { None } else { self.take() })
                }
                (None, Some(harmless)) if resend::is_break(&failed.error) => (harmless, None),
                (again, _) => {
                    let error = SendError::from_sending(&failed.error, failed.lacks_http2);
                    return Err(if again.is_some() { error.unread() } else { error });
                }
            };
        }
    }

    /// Ends the exchange on `connection`, and keeps it if it can take another request.
    pub(super) fn give_back(&self, mut connection: Box<Http1Connection<B>>) {
        let is_open = connection.end_exchange();
        let mut kept = self.kept();
        if is_open && kept.idle.len() < self.max_idle {
            kept.idle.push(connection);
        }
    }

    /// Drops connections that were idle for too long or that the upstream has closed.
    pub(super) fn sweep(&self) {
        let keep_alive = self.keep_alive;
        let mut kept = self.kept();
        kept.idle.retain_mut(|idle| idle.may_be_kept(keep_alive) && idle.park());
        kept.shared.retain(|shared| shared.is_usable() && !shared.has_idled(keep_alive));
    }

    async fn send_on_http1(
        self: &Arc<Self>,
        mut connection: Box<Http1Connection<B>>,
        mut request: Box<Request<B>>,
        address: &Uri,
    ) -> Result<Response<AnswerBody<B>>, Failed<B>> {
        if let Some(proxy_headers) = self.connector.proxy_headers() {
            *request.uri_mut() = address.clone();
            request.headers_mut().extend(proxy_headers.clone());
        } else if let Some(path_and_query) = address.path_and_query() {
            *request.uri_mut() = Uri::from(path_and_query.clone());
        }
        let copy = if self.connector.http2().is_given_up() { resend::copy(&request) } else { None };
        let response = connection.send(*request).await.map_err(|error| {
            let failed = Failed::unless_written(error);
            if !resend::demands_http2(&failed.error) {
                return failed;
            }
            self.connector.http2().take_up();
            Failed { again: copy.map(Again::Refused), ..failed }
        })?;
        connection.record_keep_alive(response.headers());
        Ok(response.map(|body| AnswerBody::from_http1(body, connection, Arc::clone(self))))
    }

    async fn send_on_http2(
        &self,
        (mut sender, mut stream): Slot<B>,
        mut request: Box<Request<B>>,
        address: &Uri,
    ) -> Result<Response<AnswerBody<B>>, Failed<B>> {
        *request.uri_mut() = address.clone();
        let copy = resend::copy(&request);
        // HTTP/2 sends the host as `:authority`, from the address.
        let host = request.headers_mut().remove(HOST);
        let error = match sender.try_send_request(*request).await {
            Ok(response) => {
                stream.record_answer();
                self.connector.http2().record_answer();
                return Ok(response.map(|body| AnswerBody::from_stream(body, stream)));
            }
            Err(error) => error,
        };
        let mut failed = Failed::unless_written(error);
        let heard = stream.heard();
        let http2 = self.connector.http2();
        failed.lacks_http2 = match heard {
            Heard::Http1 => true,
            // Servers that speak HTTP/2 close new connections, too, when they restart or have too many.
            Heard::End if !http2.has_answered() => true,
            _ => resend::demands_http1(&failed.error),
        };
        if failed.lacks_http2 && http2.give_up() {
            let upstream = address.host().unwrap_or_default();
            tracing::warn!(upstream, error = %failed.error, "HTTP/2 cannot be used, so HTTP/1.1 is");
        }
        let is_unwritten = failed.again.is_some();
        if resend::is_refusal(&failed.error) || heard == Heard::Http1 || failed.lacks_http2 && is_unwritten {
            stream.retire_connection();
            failed.again = copy.map(Again::Refused).or(failed.again);
        }
        if let (Some(Again::Unwritten(request)), Some(host)) = (&mut failed.again, host) {
            request.headers_mut().insert(HOST, host);
        }
        Err(failed)
    }

    /// A kept connection that can take a request now.
    fn take(&self) -> Option<Carrier<B>> {
        let mut kept = self.kept();
        kept.shared.retain(|shared| shared.is_usable() && !self.connector.http2().is_given_up());
        if let Some(slot) = kept.shared.iter().find_map(|shared| shared.slot(self.keep_alive)) {
            return Some(Carrier::Http2(slot));
        }
        while let Some(mut connection) = kept.idle.pop() {
            if connection.may_be_kept(self.keep_alive) && connection.check_open() {
                return Some(Carrier::Http1(connection));
            }
        }
        None
    }

    async fn connect(&self, address: Uri) -> Result<Carrier<B>, SendError> {
        // Boxed, because it is seldom needed and much larger than the rest.
        let connecting = Box::pin(self.connector.clone().connect(address));
        Ok(match connecting.await? {
            Connected::Http1(connection) => Carrier::Http1(connection),
            Connected::Http2(shared) => {
                let slot = shared.take_slot();
                self.kept().shared.push(*shared);
                Carrier::Http2(slot)
            }
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept<B>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most idle connections to keep where a process may have `limit` open files. Each worker keeps as many for each
/// upstream, and new connections need room.
fn max_idle(limit: Option<u64>) -> usize {
    limit.map_or(MAX_IDLE, |limit| (limit / 16).clamp(1, MAX_IDLE)) as usize
}

impl<B> Failed<B> {
    /// A request that failed. It may be sent again if none of it was written.
    fn unless_written(mut error: TrySendError<Request<B>>) -> Self {
        let again = error.take_message().map(|request| Again::Unwritten(Box::new(request)));
        Self { error: error.into_error(), lacks_http2: false, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_idle_connections_are_kept_where_few_files_may_be_open() {
        for (limit, expected) in
            [(None, 64), (Some(1 << 20), 64), (Some(1024), 64), (Some(512), 32), (Some(128), 8), (Some(8), 1)]
        {
            assert_eq!(max_idle(limit), expected, "{limit:?}");
        }
    }
}
