//! The administrator's listener: health, metrics, the full texts of what was cut.
//!
//! Loopback by default, read-only, and on a thread of its own: nothing here is on a request's path. There is no
//! listing of texts: who asks for one knows the digest of its content.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;

use crate::store::Outputs;

/// Connections served at a time.
const MAX_CONNECTIONS: usize = 64;
/// How long nothing is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What the listener shows.
pub struct Pages {
    /// The full texts.
    pub outputs: Outputs,
    /// The metrics, in Prometheus' text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
}

/// A socket that listens, but is not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds an address; port 0 takes a free one.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped.
    ///
    /// # Errors
    /// When the socket cannot be served at all.
    pub async fn serve(self, pages: Arc<Pages>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let mut connections = JoinSet::new();
        loop {
            if connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            let (stream, _) = accepted(|| listener.accept()).await;
            let pages = Arc::clone(&pages);
            connections.spawn(async move {
                let service = service_fn(|request| {
                    let answer = pages.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
                // A broken connection is the visitor's own affair.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    }
}

/// The next connection. What keeps the system from accepting one, such as too many open files, lasts.
async fn accepted<T, F: Future<Output = io::Result<T>>>(accept: impl Fn() -> F) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::debug!(%error, "cannot accept connections");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
            refusal.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let path = request.uri().path();
        match path.strip_prefix("/outputs/") {
            Some(id) => self.output(id),
            None if path == "/health" => page(StatusCode::OK, "application/json", "{\"status\":\"ok\"}\n"),
            None if path == "/metrics" => page(StatusCode::OK, "text/plain; version=0.0.4", (self.metrics)()),
            None => page(
                StatusCode::NOT_FOUND,
                "text/plain",
                "not found; there are /health, /metrics, /outputs/ID\n",
            ),
        }
    }

    fn output(&self, id: &str) -> Response<Full<Bytes>> {
        match self.outputs.read(id) {
            Ok(Some(text)) => page(StatusCode::OK, "text/plain; charset=utf-8", text),
            Ok(None) => page(
                StatusCode::NOT_FOUND,
                "text/plain",
                "no such output; it may have been removed with age\n",
            ),
            Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "the output cannot be read\n"),
        }
    }
}

fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(body.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    page
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_accepted_is_not_asked_for_without_a_pause() {
        let (began, tries) = (tokio::time::Instant::now(), Cell::new(0_u32));
        let accept = || async {
            tries.set(tries.get() + 1);
            if tries.get() > 3 { Ok("a connection") } else { Err(io::Error::other("too many open files")) }
        };
        assert_eq!(accepted(accept).await, "a connection");
        assert_eq!((tries.get(), began.elapsed()), (4, 3 * PAUSE));
    }
}
