//! One client connection: HTTP/1.1, or HTTP/2 with prior knowledge.
//!
//! Ends when the client closes it, when it idles for too long, or, once a shutdown began, with the requests
//! that are in flight.

use std::pin::pin;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Settings;
use super::exchange::Gateway;
use super::handler::Handler;

/// Header lines accepted in a request; hyper's default is 100.
const MAX_HEADERS: usize = 256;
/// Bytes of header lines accepted in an HTTP/2 request; HTTP/1 is bounded by hyper's read buffer, about 400 KiB.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// How connections are spoken to.
pub(super) type Protocol = auto::Builder<TokioExecutor>;

/// The protocol settings of a worker.
pub(super) fn protocol(settings: &Settings) -> Protocol {
    let mut protocol = auto::Builder::new(TokioExecutor::new());
    protocol
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.idle_timeout)
        .preserve_header_case(true)
        .auto_date_header(false)
        .max_headers(MAX_HEADERS)
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_header_list_size(MAX_HEADER_BYTES);
    protocol
}

/// Serves `stream` to its end.
pub(super) async fn serve<G: Gateway>(
    stream: TcpStream,
    protocol: Arc<Protocol>,
    handler: Arc<Handler<G>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { handler.handle(request).await }
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        outcome = connection.as_mut() => Some(outcome),
        () = begun(&mut shutdown) => None,
    };
    let outcome = match ended {
        Some(outcome) => outcome,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a client connection ended in an error");
    }
}

/// Waits until `shutdown` turns true or its sender is gone.
pub(super) async fn begun(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    drop(shutdown.wait_for(|begun| *begun).await);
}
