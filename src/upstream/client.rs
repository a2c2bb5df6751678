//! Connections to upstreams: one pool per upstream and worker.
//!
//! Sends each request once. The one exception is hyper's own: a request that found its pooled connection
//! closed before any byte of it was written is sent on another.

use std::error::Error as StdError;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::{Id, TlsError, Upstream};

/// Header lines accepted in an answer; hyper's default is 100.
const MAX_HEADERS: usize = 256;
/// Bytes of header lines accepted in an HTTP/2 answer.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// A dead HTTP/2 connection is noticed within about twice this.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The clients of one worker, made as upstreams are first used.
///
/// Must be used from one runtime only: a pooled connection lives on the runtime that opened it.
#[derive(Debug)]
pub struct Clients<B> {
    by_upstream: Mutex<Vec<(Id, PooledClient<B>)>>,
}

type PooledClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// TLS cannot be set up here.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The path is too long to be sent there.
    #[error("the path is too long")]
    Address,
    /// No connection, or no answer, in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection ended before the head of an answer.
    #[error("the connection broke before an answer: {0}")]
    Broken(String),
    /// The body of the request ended in an error.
    #[error("the request ended early")]
    RequestBody,
}

impl<B> Clients<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// No client yet.
    pub fn new() -> Self {
        Self { by_upstream: Mutex::new(Vec::new()) }
    }

    /// Sends `request` and waits for the head of the answer. Dropping the future cancels the request.
    pub async fn send(
        &self,
        upstream: &Upstream,
        request: Request<B>,
    ) -> Result<Response<Incoming>, SendError> {
        let answer = self.client(upstream)?.request(request);
        match tokio::time::timeout(upstream.timeouts().response, answer).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(SendError::from_client(&error)),
            Err(_elapsed) => Err(SendError::TimedOut),
        }
    }

    fn client(&self, upstream: &Upstream) -> Result<PooledClient<B>, TlsError> {
        let mut clients = self.by_upstream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(id, _)| *id == upstream.id) {
            return Ok(client.clone());
        }
        let client = connect_with(upstream)?;
        clients.push((upstream.id, client.clone()));
        Ok(client)
    }
}

impl<B> Default for Clients<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    fn default() -> Self {
        Self::new()
    }
}

fn connect_with<B>(upstream: &Upstream) -> Result<PooledClient<B>, TlsError>
where
    B: Body<Data = Bytes> + Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
    tcp.set_connect_timeout(Some(upstream.timeouts().connect));
    let connector = HttpsConnector::from((tcp, upstream.tls()?));
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(upstream.timeouts().keep_alive)
        .http1_preserve_header_case(true)
        .http1_max_headers(MAX_HEADERS)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_INTERVAL)
        .build(connector))
}

impl SendError {
    fn from_client(error: &Error) -> Self {
        let cause = root_cause(error);
        let timed_out =
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        let is_user = error
            .source()
            .and_then(|source| source.downcast_ref::<hyper::Error>())
            .is_some_and(hyper::Error::is_user);
        match (timed_out, error.is_connect(), is_user) {
            (true, ..) => Self::TimedOut,
            (_, true, _) => Self::Connect(cause.to_string()),
            (.., true) => Self::RequestBody,
            _ => Self::Broken(cause.to_string()),
        }
    }
}

fn root_cause<'e>(error: &'e (dyn StdError + 'static)) -> &'e (dyn StdError + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}
