//! One client connection: HTTP/1.1, or HTTP/2 with prior knowledge.
//!
//! It ends when the client closes it, when it has idled for too long, when its place is needed, or, during a
//! shutdown, with the requests in flight.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Settings;
use super::client::Client;
use super::exchange::Gateway;
use super::handler::{Abandoned, Handler};
use super::socket::Socket;
use super::unreadable;
use super::woken::when_woken;

/// The most header lines accepted in a request. hyper's default is 100.
const MAX_HEADERS: usize = 256;
/// The most bytes of header lines accepted in an HTTP/2 request. HTTP/1 is bounded by hyper's read buffer, about 400
/// KiB.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// The flow-control window of an HTTP/2 connection, in bytes. It is many times what hyper grants one request, so that a
/// request whose body waits does not block others.
const CONNECTION_WINDOW: u32 = 8 << 20;
/// How long an HTTP/2 connection may be silent before it is pinged. A client that does not read cannot answer the ping,
/// so it may pause within an answer for as long as a connection may idle.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The beginning of every HTTP/2 connection, and of no HTTP/1 request.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A connection that has sent only a part of the preface is checked again after this pause.
const PEEK_INTERVAL: Duration = Duration::from_millis(1);
/// How often it is checked at most.
const MAX_PEEKS: usize = 1000;

/// The protocol settings for connections.
pub(super) struct Protocol {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    idle_timeout: Duration,
}

/// The protocol version that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

impl Protocol {
    /// The protocol settings of a worker.
    pub(super) fn new(settings: &Settings) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(settings.idle_timeout)
            .preserve_header_case(true)
            .auto_date_header(false)
            .max_headers(MAX_HEADERS);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_header_list_size(MAX_HEADER_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(settings.idle_timeout);
        Self { http1, http2, idle_timeout: settings.idle_timeout }
    }
}

/// Serves `stream` to its end.
pub(super) async fn serve<G: Gateway>(
    stream: TcpStream,
    client: &Arc<Client>,
    protocol: Arc<Protocol>,
    handler: Arc<Handler<G>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let version = tokio::select! {
        biased;
        version = tokio::time::timeout(protocol.idle_timeout, version(&stream)) => version,
        () = begun(&mut shutdown) => return,
        () = client.wait_for_dismissal() => return,
    };
    let Ok(Ok(version)) = version else { return };
    let reply = unreadable::reply(&handler);
    let stream = Socket::new(stream, Arc::clone(client), version, reply);
    let followed = Arc::clone(client);
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, request) = (followed.begin_request(&handler.stats), followed.follow(request));
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Abandoned>(handler.handle(request).await?.map(|answer| guard.attach(answer))) }
    });
    let idled = async {
        match version {
            // hyper closes idle HTTP/1 connections itself.
            Version::Http1 => std::future::pending().await,
            Version::Http2 => client.wait_until_idle(protocol.idle_timeout).await,
        }
    };
    // It is boxed to be pinned, and polled only when it was woken: otherwise it would be polled with every piece.
    let ending = when_woken(Box::pin(async {
        tokio::select! {
            () = begun(&mut shutdown) => {}
            () = client.wait_for_dismissal() => {}
            () = idled => {}
        }
    }));
    let outcome = match version {
        Version::Http1 => {
            let connection = protocol.http1.serve_connection(stream, service);
            drive(connection, ending, http1::Connection::graceful_shutdown).await
        }
        Version::Http2 => {
            let connection = protocol.http2.serve_connection(stream, service);
            drive(connection, ending, http2::Connection::graceful_shutdown).await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a client connection ended in an error");
    }
}

/// Drives a connection to its end. Once `ending` is done, the connection ends after the requests in progress.
async fn drive<C: Future>(connection: C, ending: impl Future, end: impl FnOnce(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        outcome = connection.as_mut() => return outcome,
        _ = ending => end(connection.as_mut()),
    }
    connection.await
}

/// Recognises the version by the first bytes of a connection, without consuming them.
async fn version(stream: &TcpStream) -> io::Result<Version> {
    let mut first = [0; HTTP_2_PREFACE.len()];
    for _ in 0..MAX_PEEKS {
        let seen = stream.peek(&mut first).await?;
        match &first[..seen] {
            HTTP_2_PREFACE => return Ok(Version::Http2),
            some if !some.is_empty() && HTTP_2_PREFACE.starts_with(some) => {
                tokio::time::sleep(PEEK_INTERVAL).await;
            }
            _ => break,
        }
    }
    Ok(Version::Http1)
}

/// Waits until `shutdown` turns true or its sender is gone.
pub(super) async fn begun(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    drop(shutdown.wait_for(|begun| *begun).await);
}
