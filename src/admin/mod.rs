//! The administrator's listener: the books as a page and as JSON, health, metrics, and the full texts of shortened
//! results.
//!
//! It is on the loopback by default, read-only, and runs on a thread of its own, away from the path of requests.
//! Nothing is loaded or opened before it is needed, and the books are read outside of that thread, so that a large
//! query does not delay `/health`. Texts are not listed: to read one, a visitor must know the digest of its content.
//!
//! There is no login. The address keeps other machines out, and `visitor` keeps out web pages in the user's own
//! browser.

mod api;
mod page;
mod query;
mod routes;
mod visitor;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;

use crate::store::Outputs;
use routes::Router;

/// The maximum number of connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// How long to wait before accepting again after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// What the listener serves.
pub struct Pages {
    /// The full texts.
    pub outputs: Outputs,
    /// The database with the books.
    pub books: PathBuf,
    /// The metrics, in Prometheus' text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Whether a host's name, in lower case, is one that the user has listed as leading here.
    pub is_own_name: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// A socket that listens, but is not served yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds an address; port 0 takes a free one.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// The address it listens at, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped.
    ///
    /// # Errors
    /// If the socket cannot be served at all.
    pub async fn serve(self, pages: Pages) -> io::Result<()> {
        let router = Arc::new(Router::new(pages, self.address));
        let listener = tokio::net::TcpListener::from_std(self.socket)?;
        let mut connections = JoinSet::new();
        loop {
            if connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            let (stream, _) = accept_next(|| listener.accept()).await;
            let router = Arc::clone(&router);
            connections.spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let (head, _) = request.into_parts();
                    let router = Arc::clone(&router);
                    async move { Ok::<_, Infallible>(router.answer(&head).await) }
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
                // A broken connection concerns only the visitor.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    }
}

/// Waits for the next connection. The causes of errors here, such as too many open files, do not go away at once.
async fn accept_next<T, F: Future<Output = io::Result<T>>>(accept: impl Fn() -> F) -> T {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_accepts_are_retried_after_a_pause() {
        let (began, tries) = (tokio::time::Instant::now(), Cell::new(0_u32));
        let accept = || async {
            tries.set(tries.get() + 1);
            if tries.get() > 3 { Ok("a connection") } else { Err(io::Error::other("too many open files")) }
        };
        assert_eq!(accept_next(accept).await, "a connection");
        assert_eq!((tries.get(), began.elapsed()), (4, 3 * PAUSE));
    }
}
