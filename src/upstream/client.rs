//! Sends requests to upstreams.

use std::error::Error as StdError;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response};
use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerMisbehaved};

use super::answer::AnswerBody;
use super::answer_timeout::{Clock, Paced};
use super::cause::{Cause, Party, as_io, as_tls, depends_on_clock, is_unsupported};
use super::pool::Pool;
use super::proxy::Proxy;
use super::resend::RequestBody;
use super::tunnel::ProxyTlsError;
use super::{Id, TlsError, Upstream};

/// Hint for a certificate whose authority is not trusted here.
const UNKNOWN_ISSUER_HINT: &str = "if whoever has signed that is to be trusted, as a company's own authority, its certificate \
                        belongs in a file that `ca_file` of the upstream names, or the variables `SSL_CERT_FILE` or \
                        `NODE_EXTRA_CA_CERTS`";

/// Hint for a certificate that is not valid at the time which this machine's clock shows.
const TIME_HINT: &str = "or this machine's clock is wrong, by which that was judged";

/// Hint for a server that presents the certificate of an authority (CA) as its own.
const AUTHORITY_HINT: &str = "that certificate is an authority's, which no server may show as its own: have it sign one for the \
                         server, or make one that is none (`openssl req -x509 -addext basicConstraints=critical,CA:FALSE`)";

/// Hint for a certificate that cannot be checked here.
const UNSUPPORTED_HINT: &str = "not supported are certificates with a P-521 or RSA-PSS key, or signed by one, and ECDSA \
                        signatures with SHA-512";

/// Hint for a server that ends the handshake because it has nothing to offer that is supported here.
const NOTHING_IN_COMMON_HINT: &str = "the server takes nothing of what is offered: its certificate may have a P-521 or \
                        RSA-PSS key, which are not supported, or it knows only old versions or ciphers of TLS, or it asks its \
                        clients for a certificate of their own, and the gateway has none";

/// Hint for a server that ends the handshake because of the client's certificate. None is ever sent.
const CLIENT_CERTIFICATE_HINT: &str =
    "what answers there asks its clients for a certificate of their own, and the gateway has none";

/// Hint for a server that does not speak TLS.
const NO_TLS_HINT: &str = "what answers there does not seem to speak TLS: `http://` may be meant";

/// Hint for a server whose HTTP/2 cannot be used.
const HTTP_1_HINT: &str = "its HTTP/2 cannot be used: from now on it is asked with HTTP/1.1, and from the start with \
                           `http2 = false` for the upstream";

/// One worker's connections to all upstreams.
///
/// Must be used on one runtime only: a connection lives on the runtime that opened it.
pub struct Clients<B: RequestBody> {
    pools: Mutex<Vec<(Id, SharedPool<B>)>>,
}

type SharedPool<B> = Arc<Pool<Paced<B>>>;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// TLS cannot be set up on this machine.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The path is too long for the upstream's address.
    #[error("the path is too long")]
    Address,
    /// The upstream did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// No connection could be made in time.
    #[error("no answer in time")]
    Unreached,
    /// No connection could be made in time through this proxy.
    #[error("no answer in time through the proxy {0}")]
    ProxyTimedOut(Box<Proxy>),
    /// The upstream is the gateway itself.
    #[error("this is the gateway itself")]
    Loop,
    /// The proxy is the gateway itself.
    #[error("the proxy {0} is the gateway itself")]
    ProxyLoop(Box<Proxy>),
    /// The limit of open files leaves no room for another connection.
    #[error("too many open files for one more connection")]
    Descriptors,
    /// The connection could not be made.
    #[error("cannot connect: {0}")]
    Connect(Cause),
    /// The connection broke before the head of an answer.
    #[error("the connection broke before an answer: {0}")]
    Broken(Cause),
    /// Like [`Self::Broken`], for a request that was not written or that the upstream reports as not processed.
    #[error("the connection broke before an answer: {0}")]
    Unread(Cause),
    /// The answer has a transfer coding that cannot be expressed in the client's version of HTTP.
    #[error(
        "its answer came with `Transfer-Encoding: {0}`, and the client speaks a version of HTTP that has none"
    )]
    Encoded(String),
    /// The client stopped sending in the middle of the request.
    #[error("nothing more of the request came from the client in time")]
    Stalled,
    /// The body of the request ended in an error.
    #[error("the request ended early")]
    RequestBody,
}

impl<B: RequestBody> Clients<B> {
    /// A client without connections.
    pub fn new() -> Self {
        Self { pools: Mutex::default() }
    }

    /// Sends `request`, whose address is absolute, and waits for the head of the answer. Dropping the future, or the
    /// body of the answer before its end, cancels the request.
    pub fn send(
        &self,
        upstream: &Upstream,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<AnswerBody<Paced<B>>>, SendError>> {
        let (pool, limit, clock) = (self.pool(upstream), upstream.timeouts().response, Clock::start());
        // Boxed, so that the futures that hold it stay small.
        let request = Box::new(request.map(|body| Paced::new(body, clock.clone())));
        async move {
            let pool = pool?;
            let answer = pin!(pool.send(request));
            clock.bound(limit, answer).await
        }
    }

    /// Closes connections that have been idle for long. To be called from time to time.
    pub fn sweep(&self) {
        for (_, pool) in self.pools().iter() {
            pool.sweep();
        }
    }

    fn pool(&self, upstream: &Upstream) -> Result<SharedPool<B>, SendError> {
        let mut pools = self.pools();
        if let Some((_, pool)) = pools.iter().find(|(id, _)| *id == upstream.id) {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Pool::new(upstream)?);
        pools.push((upstream.id, Arc::clone(&pool)));
        Ok(pool)
    }

    fn pools(&self) -> MutexGuard<'_, Vec<(Id, SharedPool<B>)>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: RequestBody> Default for Clients<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl SendError {
    /// Whether it is certain that no upstream has worked on the request.
    pub const fn is_unsent(&self) -> bool {
        match self {
            Self::Tls(_)
            | Self::Address
            | Self::Loop
            | Self::ProxyLoop(_)
            | Self::ProxyTimedOut(_)
            | Self::Unreached
            | Self::Descriptors
            | Self::Connect(_)
            | Self::Unread(_) => true,
            Self::TimedOut | Self::Stalled | Self::Broken(_) | Self::Encoded(_) | Self::RequestBody => false,
        }
    }

    /// Who is at fault, if the upstream is reached through a proxy or not.
    pub const fn at_fault(&self, is_proxied: bool) -> Party {
        match self {
            Self::Tls(_) | Self::Loop | Self::ProxyLoop(_) | Self::Descriptors => Party::Gateway,
            Self::Address | Self::Stalled | Self::RequestBody => Party::Client,
            Self::TimedOut | Self::Unreached | Self::ProxyTimedOut(_) => Party::Way,
            Self::Connect(cause) | Self::Broken(cause) | Self::Unread(cause) => cause.at_fault(is_proxied),
            Self::Encoded(_) => Party::Upstream,
        }
    }

    /// The error as it is reported for a request that no upstream has worked on.
    pub(super) fn unread(self) -> Self {
        match self {
            Self::TimedOut => Self::Unreached,
            Self::Broken(cause) => Self::Unread(cause),
            error => error,
        }
    }

    /// The error to report for a connection that could not be made.
    pub(super) fn from_connecting(error: &(dyn StdError + 'static)) -> Self {
        match root_cause(error) {
            error if is_timeout(error) => Self::Unreached,
            error if is_exhaustion(error) => Self::Descriptors,
            error => Self::Connect(described(error)),
        }
    }

    /// The error as it is reported if the connection was to be made through `proxy`. It is not always known which of
    /// the two is at fault, so the text names the proxy only.
    pub(super) fn through(self, proxy: Option<&Proxy>) -> Self {
        match (self, proxy) {
            (Self::Connect(cause), Some(proxy)) => {
                Self::Connect(cause.reworded(|cause| format!("through the proxy {proxy}: {cause}")))
            }
            (Self::Unreached, Some(proxy)) => Self::ProxyTimedOut(Box::new(proxy.clone())),
            (Self::Loop, Some(proxy)) => Self::ProxyLoop(Box::new(proxy.clone())),
            (error, _) => error,
        }
    }

    /// The error to report for a request that was sent, at least in part, maybe to an upstream that `lacks_http2`.
    pub(super) fn from_sending(error: &hyper::Error, lacks_http2: bool) -> Self {
        let cause = root_cause(error);
        match error.is_user() {
            true => Self::RequestBody,
            // The first is an unanswered ping.
            false if error.is_timeout() || is_timeout(cause) => Self::TimedOut,
            false if lacks_http2 => {
                Self::Broken(Cause::of(cause).reworded(|cause| format!("{cause}; {HTTP_1_HINT}")))
            }
            // With TLS 1.3, a server refuses a client without a certificate only after the handshake.
            false => Self::Broken(described(cause)),
        }
    }
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    as_io(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Whether the process or the system has reached its limit of open files.
fn is_exhaustion(error: &(dyn StdError + 'static)) -> bool {
    let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// Whether the server has refused all versions of HTTP that were offered to it, or chosen another one.
pub(super) fn is_refused_offer(error: &(dyn StdError + 'static)) -> bool {
    const REFUSED: rustls::Error = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    const IGNORED: rustls::Error =
        rustls::Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol);
    as_tls(root_cause(error)).is_some_and(|error| [REFUSED, IGNORED].contains(error))
}

/// The cause, with a hint if there is one for it.
fn described(error: &(dyn StdError + 'static)) -> Cause {
    let cause = Cause::of(error);
    match hint(error) {
        Some(hint) => cause.reworded(|cause| format!("{cause}; {hint}")),
        None => cause,
    }
}

/// A hint for a failed TLS handshake, if there is one for its cause.
fn hint(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let tls = match error.downcast_ref() {
        Some(ProxyTlsError(error)) => error,
        None => as_tls(error)?,
    };
    match tls {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(UNKNOWN_ISSUER_HINT),
        // The verifier has an error of its own for this, which rustls passes on only as `Other`.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            Some(AUTHORITY_HINT)
        }
        rustls::Error::InvalidCertificate(error) if is_unsupported(error) => Some(UNSUPPORTED_HINT),
        rustls::Error::InvalidCertificate(error) if depends_on_clock(error) => Some(TIME_HINT),
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => Some(NOTHING_IN_COMMON_HINT),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        ) => Some(CLIENT_CERTIFICATE_HINT),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(NO_TLS_HINT),
        _ => None,
    }
}

/// The innermost source of an error.
pub fn root_cause<'e>(error: &'e (dyn StdError + 'static)) -> &'e (dyn StdError + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
    use rustls::pki_types::UnixTime;
    use tokio::task::JoinSet;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open a connection")]
    struct Outer(#[source] io::Error);

    #[test]
    fn connection_errors_are_worded_by_their_cause() {
        let tls = |error: rustls::Error| io::Error::other(io::Error::other(error));
        let unsupported = CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: Vec::new(),
            supported_algorithms: Vec::new(),
        };
        let uncertified = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let refused = rustls::Error::AlertReceived(AlertDescription::HandshakeFailure);
        let (now, day) = (UnixTime::since_unix_epoch, Duration::from_secs(86_400));
        let expired = CertificateError::ExpiredContext { time: now(3 * day), not_after: now(2 * day) };
        let early = CertificateError::NotValidYetContext { time: now(day), not_before: now(2 * day) };
        for (cause, expected) in [
            (
                tls(expired.clone().into()),
                &*format!("cannot connect: {}; {TIME_HINT}", rustls::Error::from(expired)),
            ),
            (
                tls(early.clone().into()),
                &format!("cannot connect: {}; {TIME_HINT}", rustls::Error::from(early)),
            ),
            (tls(refused.clone()), &format!("cannot connect: {refused}; {NOTHING_IN_COMMON_HINT}")),
            (tls(uncertified.clone()), &format!("cannot connect: {uncertified}; {CLIENT_CERTIFICATE_HINT}")),
            (
                tls(unsupported.clone().into()),
                &format!("cannot connect: {}; {UNSUPPORTED_HINT}", rustls::Error::from(unsupported)),
            ),
            (io::Error::from(Errno::MFILE), "too many open files for one more connection"),
            (io::Error::from(Errno::NFILE), "too many open files for one more connection"),
            (io::ErrorKind::TimedOut.into(), "no answer in time"),
            (io::Error::other("it is night"), "cannot connect: it is night"),
            (io::ErrorKind::ConnectionRefused.into(), "cannot connect: connection refused"),
        ] {
            assert_eq!(SendError::from_connecting(&Outer(cause)).to_string(), expected);
        }
    }
    /// The upstream is gone, or the network is: nothing reports it.
    #[tokio::test(start_paused = true)]
    async fn an_unanswered_ping_is_a_timeout() {
        let (stream, _silent) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let request = Request::builder().uri("http://api.test/").body(Empty::<Bytes>::new()).unwrap();
        let error = SendError::from_sending(&sender.send_request(request).await.unwrap_err(), false);
        assert!(matches!(error, SendError::TimedOut), "{error:?}");
    }
}
