//! Makes connections to HTTP proxies, and through them, by `CONNECT`.
//!
//! hyper-util can do that too, but does not report the status with which a proxy refuses.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower_service::Service;

use super::BoxError;
use super::cause::as_tls;
use super::client::root_cause;
use super::connect::FirstStream;
use super::resolver::Tcp;

/// The longest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// Makes connections to one proxy, over TLS if its address says `https`.
#[derive(Clone)]
pub(super) struct ToProxy {
    connector: HttpsConnector<Tcp>,
    address: Uri,
}

/// Makes connections through one proxy.
#[derive(Clone)]
pub(super) struct Tunnel {
    proxy: ToProxy,
    /// The value of `Proxy-Authorization`.
    authorization: Option<HeaderValue>,
}

/// Why there is no encrypted connection to a proxy. It is distinguished from TLS with the upstream behind the proxy.
#[derive(Debug, thiserror::Error)]
#[error("no encrypted connection to the proxy itself: {0}")]
pub(super) struct ProxyTlsError(pub(super) rustls::Error);

/// Why a proxy that was reached made no connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("its answer is not one of HTTP")]
    NotHttp,
    #[error("its answer is too long")]
    TooLong,
}

impl Refusal {
    /// Whether the proxy may have refused because it cannot reach the upstream.
    pub(super) fn may_be_of_the_upstream(&self) -> bool {
        matches!(
            self,
            Self::Status(
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            )
        )
    }
}

impl ToProxy {
    /// `tls` is not used for a proxy whose address does not say `https`.
    pub(super) fn new(tcp: Tcp, tls: Arc<ClientConfig>, address: Uri) -> Self {
        Self { connector: HttpsConnector::from((tcp, tls)), address }
    }

    pub(super) fn connect(&mut self) -> impl Future<Output = Result<FirstStream, BoxError>> + use<> {
        let connecting = self.connector.call(self.address.clone());
        async move { connecting.await.map_err(of_proxy) }
    }
}

/// Marks an error of TLS as one of the connection to the proxy.
fn of_proxy(error: BoxError) -> BoxError {
    match as_tls(root_cause(&*error)) {
        Some(tls) => ProxyTlsError(tls.clone()).into(),
        None => error,
    }
}

impl Tunnel {
    pub(super) fn new(proxy: ToProxy, authorization: Option<HeaderValue>) -> Self {
        Self { proxy, authorization }
    }
}

impl Service<Uri> for Tunnel {
    type Response = FirstStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = self.proxy.connect();
        let request = request(&address, self.authorization.as_ref());
        Box::pin(async move {
            let mut stream = TokioIo::new(connecting.await?);
            open(&mut stream, &request).await.map_err(of_proxy)?;
            Ok(stream.into_inner())
        })
    }
}

fn request(address: &Uri, authorization: Option<&HeaderValue>) -> Vec<u8> {
    let (host, port) = (address.host().unwrap_or_default(), address.port_u16().unwrap_or(443));
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(authorization) = authorization {
        request.extend([b"Proxy-Authorization: ", authorization.as_bytes(), b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    request
}

/// Sends the request and waits for the head of the answer. Bytes that were read after the head are dropped: a TLS
/// server sends nothing before its client does.
async fn open(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8]) -> Result<(), BoxError> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut head = Vec::with_capacity(MAX_HEAD_BYTES);
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match status_of(&head)? {
            Some(status) if status.is_success() => return Ok(()),
            Some(status) => return Err(Refusal::Status(status).into()),
            None if head.len() >= MAX_HEAD_BYTES => return Err(Refusal::TooLong.into()),
            None => {}
        }
    }
}

/// The status of an answer; `None` until all of its head is there.
fn status_of(head: &[u8]) -> Result<Option<StatusCode>, Refusal> {
    const HTTP: &[u8] = b"HTTP/1.";
    let begins = head.len().min(HTTP.len());
    if head[..begins] != HTTP[..begins] {
        return Err(Refusal::NotHttp);
    }
    let is_whole = [&b"\n\r\n"[..], b"\n\n"].iter().any(|end| memchr::memmem::find(head, end).is_some());
    if !is_whole {
        return Ok(None);
    }
    // The minor version and a space precede the status.
    match &head[HTTP.len()..] {
        [b'0'..=b'9', b' ', a, b, c, b' ' | b'\r' | b'\n', ..] => {
            StatusCode::from_bytes(&[*a, *b, *c]).map(Some).map_err(|_| Refusal::NotHttp)
        }
        _ => Err(Refusal::NotHttp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_answers_are_parsed_or_refused() {
        for (head, expected) in [
            ("", Ok(None)),
            ("HTT", Ok(None)),
            ("HTTP/1.1 200 OK\r\nvia: x\r\n", Ok(None)),
            ("HTTP/1.1 200 OK\r\n\r\n", Ok(Some(200))),
            ("HTTP/1.0 200 Connection established\r\nvia: x\r\n\r\nmore", Ok(Some(200))),
            ("HTTP/1.1 200\r\n\r\n", Ok(Some(200))),
            ("HTTP/1.1 204 No Content\n\n", Ok(Some(204))),
            ("HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nno", Ok(Some(403))),
            ("HTTP/1.1 2000 OK\r\n\r\n", Err(Refusal::NotHttp)),
            ("HTTP/1.1 099 OK\r\n\r\n", Err(Refusal::NotHttp)),
            ("HTTP/1.1\r\n\r\n", Err(Refusal::NotHttp)),
            ("HTTP/2 200\r\n\r\n", Err(Refusal::NotHttp)),
            ("\u{15}\u{3}\u{1}", Err(Refusal::NotHttp)),
        ] {
            let status = status_of(head.as_bytes()).map(|status| status.map(|status| status.as_u16()));
            assert_eq!(status, expected, "{head:?}");
        }
    }

    #[test]
    fn connect_requests_always_name_the_port() {
        for (address, expected) in [
            ("https://api.test/", "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"),
            ("https://[fd00::7]:81/", "CONNECT [fd00::7]:81 HTTP/1.1\r\nHost: [fd00::7]:81\r\n\r\n"),
        ] {
            assert_eq!(request(&address.parse().unwrap(), None), expected.as_bytes());
        }
    }
}
