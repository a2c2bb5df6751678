//! The servers that requests are forwarded to: their addresses, their time-outs, the connections to them.
//!
//! This module knows HTTP and TLS, and nothing of what is said over them. It never adds anything to a request except
//! what its settings name.

mod answer;
mod answer_timeout;
mod base_url;
mod bell;
mod cause;
mod client;
mod connect;
mod head;
mod http1;
mod http2;
mod loop_check;
mod opening;
mod pool;
mod proxy;
mod resend;
mod resolver;
mod route;
mod small_write;
mod tls;
mod tunnel;
mod way;
mod write_first;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;

pub use self::answer::{AnswerBody, AnswerError};
pub use self::answer_timeout::Paced;
pub use self::base_url::{BaseUrl, BaseUrlError};
pub(crate) use self::bell::Bell;
pub use self::cause::{Cause, Party};
pub use self::client::{Clients, SendError, root_cause};
pub use self::proxy::{Proxy, ProxyError, UnusableProxy, Variables};
pub use self::resend::RequestBody;
pub(crate) use self::small_write::written_as_one;
use self::tls::Offer;
pub use self::tls::{TlsError, check_ca_file};

/// An error of any kind.
type BoxError = Box<dyn Error + Send + Sync>;

/// What an [`Upstream`] is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in the configuration.
    pub name: String,
    /// Its address. A path in it is put before the path of every request.
    pub base_url: BaseUrl,
    /// Header fields set on every request, in place of the client's own of the same name.
    pub headers: HeaderMap,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// A PEM file of further certificate authorities, which are trusted in addition to the platform's, also for the
    /// proxy.
    pub ca_file: Option<PathBuf>,
    /// The proxy that all connections to it go through.
    pub proxy: Option<Proxy>,
    /// Whether HTTP/2 is offered to it. It is spoken only over TLS.
    pub http2: bool,
    /// The gateway's own listeners. A connection that leads to one of them is not used.
    pub listeners: Vec<SocketAddr>,
}

/// How long to wait for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection: TCP, proxy and TLS together. It is divided among the addresses of a name.
    pub connect: Duration,
    /// From the last piece of a request to the head of its answer. It is also the limit for the client's next piece.
    pub response: Duration,
    /// For the next byte of an answer's body.
    pub idle: Duration,
    /// How long an idle connection is kept for the next request.
    pub keep_alive: Duration,
}

/// A server that requests are forwarded to.
#[derive(Debug)]
pub struct Upstream {
    id: Id,
    settings: Settings,
    /// Made when the first encrypted connection needs it: reading the platform's roots takes milliseconds.
    tls: OnceLock<Result<Arc<rustls::ClientConfig>, TlsError>>,
    http2: Arc<http2::Findings>,
}

/// Identifies an upstream within the process. Names need not be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64);

impl Upstream {
    /// An upstream. Nothing is connected or read yet.
    pub fn new(settings: Settings) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = Id(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { id, settings, tls: OnceLock::new(), http2: Arc::default() }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its address.
    pub fn base_url(&self) -> &BaseUrl {
        &self.settings.base_url
    }

    /// Header fields that are set on every request.
    pub fn headers(&self) -> &HeaderMap {
        &self.settings.headers
    }

    /// How long to wait for it.
    pub fn timeouts(&self) -> &Timeouts {
        &self.settings.timeouts
    }

    /// Whether it is reached through a proxy.
    pub fn is_proxied(&self) -> bool {
        self.proxy().is_some()
    }

    fn proxy(&self) -> Option<&Proxy> {
        self.settings.proxy.as_ref()
    }

    fn tls(&self, offer: Offer) -> Result<Arc<rustls::ClientConfig>, TlsError> {
        let is_encrypted = self.base_url().is_https() || self.proxy().is_some_and(Proxy::is_https);
        let make = || match (is_encrypted, &self.settings.ca_file) {
            (false, _) => tls::without_roots(),
            (true, None) => tls::with_platform_roots(),
            (true, Some(file)) => tls::with_extra_roots(file),
        };
        Ok(tls::offering(offer, self.tls.get_or_init(make).clone()?))
    }
}

impl Settings {
    /// Settings for an upstream without headers of its own, with the default times and the platform's authorities.
    pub fn new(name: impl Into<String>, base_url: BaseUrl) -> Self {
        Self {
            name: name.into(),
            base_url,
            headers: HeaderMap::new(),
            timeouts: Timeouts::default(),
            ca_file: None,
            proxy: None,
            http2: true,
            listeners: Vec::new(),
        }
    }
}

impl Default for Timeouts {
    /// 10 s to connect, 15 min for the head, 10 min between bytes, 60 s of keep-alive: an answer that is not
    /// streamed may take ten minutes, and a model may think for minutes without a byte.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            response: Duration::from_secs(15 * 60),
            idle: Duration::from_secs(10 * 60),
            keep_alive: Duration::from_secs(60),
        }
    }
}
