//! What made a connection fail, and who is at fault for it.
//!
//! Nobody is blamed on suspicion: if it is unknown who is at fault, the error says so.

use std::error::Error;
use std::{fmt, io};

use rustix::io::Errno;
use rustls::CertificateError;

use super::resolver::LookupError;
use super::tunnel::{ProxyTlsError, Refusal};

/// What this machine reports of itself and of its network, before anything could reach another one.
/// Linux calls an address whose packets are thrown away (a blackhole route) invalid.
const OF_THE_NETWORK: [Errno; 6] =
    [Errno::NETUNREACH, Errno::NETDOWN, Errno::NETRESET, Errno::ACCESS, Errno::PERM, Errno::INVAL];

/// What is also reported if the other machine is off, or if it refused at one address and another address of its name
/// could not be tried: only the last error is known.
const OF_THE_WAY: [Errno; 4] = [Errno::HOSTUNREACH, Errno::HOSTDOWN, Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT];

/// Who is at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The agent.
    Client,
    /// The provider.
    Upstream,
    /// The proxy on the way to the provider.
    Proxy,
    /// The network, with the resolution of names.
    Network,
    /// The provider, or the network or the proxy on the way to it: it is unknown which.
    Way,
    /// What the two ends of an encrypted connection expect of each other: a certificate, trust in it, the same time.
    Tls,
    /// This program.
    Gateway,
}

/// A cause in words, and who is at fault: on a direct way, and on one through a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    words: String,
    direct: Party,
    through_proxy: Party,
}

impl Party {
    /// Its name in sentences.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Proxy => "proxy",
            Self::Network => "network",
            Self::Way => "upstream or the way to it",
            Self::Tls => "TLS setup",
            Self::Gateway => "gateway",
        }
    }
}

impl Cause {
    /// Describes an error, which has no further source.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        let (direct, through_proxy) = suspects(error);
        Self { words: error.to_string(), direct, through_proxy }
    }

    /// The same cause in other words.
    pub(super) fn reworded(self, word: impl FnOnce(&str) -> String) -> Self {
        Self { words: word(&self.words), ..self }
    }

    /// Who is at fault.
    pub(super) const fn at_fault(&self, is_proxied: bool) -> Party {
        if is_proxied { self.through_proxy } else { self.direct }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The I/O error that `error` is or, with HTTP/2, contains.
pub(super) fn as_io<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    error.downcast_ref().or_else(|| error.downcast_ref::<h2::Error>()?.get_io())
}

/// The error of the TLS library that `error` is or contains, in one or two I/O errors or, with HTTP/2, in more.
pub(super) fn as_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    match as_io(error) {
        Some(error) => as_tls(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// Whether the cause is that certificates of this kind are not supported.
pub(super) const fn is_unsupported(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    )
}

/// Whether the cause may be that this machine's clock is wrong.
pub(super) const fn depends_on_clock(error: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// Whether the cause is a certificate that no client would accept from this server.
fn is_invalid_in_itself(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(error) = error else { return false };
    !matches!(error, CertificateError::UnknownIssuer) && !is_unsupported(error) && !depends_on_clock(error)
}

/// Who is at fault on a direct way, and on one through a proxy.
fn suspects(error: &(dyn Error + 'static)) -> (Party, Party) {
    if error.is::<LookupError>() {
        return (Party::Network, Party::Network);
    }
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        let suspect = if refusal.may_be_of_the_upstream() { Party::Way } else { Party::Proxy };
        return (suspect, suspect);
    }
    if let Some(ProxyTlsError(error)) = error.downcast_ref() {
        let suspect = if is_invalid_in_itself(error) { Party::Proxy } else { Party::Tls };
        return (suspect, suspect);
    }
    if let Some(error) = as_tls(error) {
        return if is_invalid_in_itself(error) {
            (Party::Upstream, Party::Way)
        } else {
            (Party::Tls, Party::Tls)
        };
    }
    let Some(error) = as_io(error) else { return (Party::Upstream, Party::Way) };
    let is_one_of = |errnos: &[Errno]| Errno::from_io_error(error).is_some_and(|code| errnos.contains(&code));
    match error.kind() {
        _ if is_one_of(&OF_THE_NETWORK) => (Party::Network, Party::Network),
        _ if is_one_of(&OF_THE_WAY) => (Party::Way, Party::Way),
        // Only who was to be connected to first refuses in this way: a proxy says it in words.
        io::ErrorKind::ConnectionRefused => (Party::Upstream, Party::Proxy),
        _ => (Party::Upstream, Party::Way),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn only_who_is_certain_to_be_at_fault_is_accused() {
        let invalid = |error| io::Error::other(rustls::Error::InvalidCertificate(error));
        let proxy_tls = |error| ProxyTlsError(rustls::Error::InvalidCertificate(error));
        let cases: [(Box<dyn Error>, Party, Party); 18] = [
            (Box::new(LookupError::new("no such name")), Party::Network, Party::Network),
            (Box::new(io::Error::from(Errno::NETUNREACH)), Party::Network, Party::Network),
            (Box::new(io::Error::from(Errno::INVAL)), Party::Network, Party::Network),
            (Box::new(io::Error::from(Errno::HOSTUNREACH)), Party::Way, Party::Way),
            (Box::new(io::Error::from(Errno::ADDRNOTAVAIL)), Party::Way, Party::Way),
            (Box::new(io::Error::from(Errno::CONNREFUSED)), Party::Upstream, Party::Proxy),
            (Box::new(io::Error::from(Errno::CONNRESET)), Party::Upstream, Party::Way),
            (Box::new(io::Error::from(io::ErrorKind::UnexpectedEof)), Party::Upstream, Party::Way),
            (
                Box::new(Refusal::Status(StatusCode::PROXY_AUTHENTICATION_REQUIRED)),
                Party::Proxy,
                Party::Proxy,
            ),
            (Box::new(Refusal::NotHttp), Party::Proxy, Party::Proxy),
            (Box::new(Refusal::Status(StatusCode::SERVICE_UNAVAILABLE)), Party::Way, Party::Way),
            (Box::new(invalid(CertificateError::UnknownIssuer)), Party::Tls, Party::Tls),
            (Box::new(invalid(CertificateError::Revoked)), Party::Upstream, Party::Way),
            (Box::new(invalid(CertificateError::Expired)), Party::Tls, Party::Tls),
            (Box::new(invalid(CertificateError::NotValidYet)), Party::Tls, Party::Tls),
            (Box::new(proxy_tls(CertificateError::UnknownIssuer)), Party::Tls, Party::Tls),
            (Box::new(proxy_tls(CertificateError::NotValidForName)), Party::Proxy, Party::Proxy),
            (
                Box::new(io::Error::other(rustls::Error::AlertReceived(
                    rustls::AlertDescription::HandshakeFailure,
                ))),
                Party::Tls,
                Party::Tls,
            ),
        ];
        for (error, direct, through_proxy) in cases {
            let cause = Cause::of(&*error);
            assert_eq!([cause.at_fault(false), cause.at_fault(true)], [direct, through_proxy], "{error}");
        }
    }
}
