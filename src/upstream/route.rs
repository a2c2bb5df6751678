//! How an upstream is reached: directly, or through a proxy.

use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::SocksV5;
use tower_service::Service;

use super::connect::NewStream;
use super::proxy::{Kind, Proxy, with_default_port};
use super::resolver::Tcp;
use super::tls::Offer;
use super::tunnel::{ToProxy, Tunnel};
use super::{BoxError, TlsError, Upstream};

/// Why a SOCKS proxy did not connect.
type Refusal = <SocksV5<Tcp> as Service<Uri>>::Error;

/// The way to one upstream.
#[derive(Clone)]
pub(super) enum Route {
    Direct(HttpsConnector<Tcp>),
    /// Through an HTTP proxy, which forwards requests with absolute URLs. Each request also carries these header fields
    /// (the credentials for the proxy).
    Forwarded(ToProxy, HeaderMap),
    /// Through an HTTP proxy, by `CONNECT`.
    Tunnelled(HttpsConnector<Tunnel>),
    Socks(HttpsConnector<SocksV5<Tcp>>),
}

impl Route {
    pub(super) fn to(upstream: &Upstream, tcp: Tcp, offer: Offer) -> Result<Self, TlsError> {
        let Some((address, kind)) = upstream.proxy().map(Proxy::parts) else {
            return Ok(Self::Direct(HttpsConnector::from((tcp, upstream.tls(offer)?))));
        };
        // A proxy speaks HTTP/1.1, whatever is offered to the upstream behind it.
        let to_proxy = |tcp| Ok(ToProxy::new(tcp, upstream.tls(Offer::Http1)?, address.clone()));
        Ok(match kind {
            Kind::Http(auth) if !upstream.base_url().is_https() => {
                let headers = auth.iter().map(|auth| (PROXY_AUTHORIZATION, auth.clone()));
                Self::Forwarded(to_proxy(tcp)?, headers.collect())
            }
            Kind::Http(auth) => {
                let tunnel = Tunnel::new(to_proxy(tcp)?, auth.clone());
                Self::Tunnelled(HttpsConnector::from((tunnel, upstream.tls(offer)?)))
            }
            Kind::Socks(auth) => {
                let socks = SocksV5::new(address.clone(), tcp);
                let socks = match auth {
                    Some((user, password)) => socks.with_auth(user.clone(), password.clone()),
                    None => socks,
                };
                Self::Socks(HttpsConnector::from((socks, upstream.tls(offer)?)))
            }
        })
    }

    /// Connects to the scheme and authority of `address`.
    pub(super) async fn connect(&mut self, address: Uri) -> Result<NewStream, BoxError> {
        match self {
            Self::Direct(connector) => connector.call(address).await.map(MaybeHttpsStream::Http),
            Self::Forwarded(proxy, _) => proxy.connect().await.map(MaybeHttpsStream::Http),
            Self::Tunnelled(connector) => connector.call(address).await,
            Self::Socks(connector) => {
                let made = connector.call(with_default_port(address)).await;
                made.map(MaybeHttpsStream::Http).map_err(with_cause)
            }
        }
    }

    /// The header fields that each request carries for a forwarding proxy ([`Self::Forwarded`]); `None` without one.
    pub(super) fn proxy_headers(&self) -> Option<&HeaderMap> {
        match self {
            Self::Forwarded(_, headers) => Some(headers),
            Self::Direct(_) | Self::Tunnelled(_) | Self::Socks(_) => None,
        }
    }
}

/// Unwraps the error of the connection to a SOCKS proxy, which hyper-util does not report as a source of its own error.
fn with_cause(error: BoxError) -> BoxError {
    match error.downcast::<Refusal>().map(|refusal| *refusal) {
        Ok(Refusal::Inner(cause)) => cause.into(),
        Ok(Refusal::Io(cause)) => cause.into(),
        Ok(refusal) => refusal.into(),
        Err(error) => error,
    }
}
