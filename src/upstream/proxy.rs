//! Finds the proxy that the environment names for an upstream, with its credentials.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};

use super::{BaseUrl, loop_check};
use crate::url::decoded;

/// The port of a SOCKS proxy that names none.
const SOCKS_PORT: u16 = 1080;

/// A proxy: `http://…`, `https://…` or `socks5://…`, with a user name and a password if the URL has them.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    address: Uri,
    kind: Kind,
}

/// The protocol of a proxy, with the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP, over TLS if the address says `https`: `CONNECT` for `https` upstreams, requests with absolute URLs for
    /// `http` ones. Holds the value of `Proxy-Authorization`.
    Http(Option<HeaderValue>),
    /// SOCKS 5, with names looked up by the proxy. Holds user name and password.
    Socks(Option<(String, String)>),
}

/// Why a text is not the URL of a usable proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Not the address of a server.
    #[error("not the URL of a proxy")]
    NotUrl,
    /// Its scheme is not supported.
    #[error("only proxies of `http://`, `https://`, `socks5://` and `socks5h://` can be used")]
    Scheme,
    /// It is one of the gateway's own listeners, so requests would go in circles.
    #[error("it is the gateway itself")]
    Gateway,
}

/// An environment variable that names an unusable proxy. Its upstreams are then reached without a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` names a proxy that cannot be used, connections are made without one: {cause}")]
pub struct UnusableProxy {
    /// The name of the variable, in upper case.
    pub variable: &'static str,
    /// What is wrong with it.
    pub cause: ProxyError,
}

/// The usual environment variables about proxies.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// `HTTPS_PROXY`: for `https://` upstreams.
    pub https: Option<String>,
    /// `HTTP_PROXY`: for `http://` upstreams.
    pub http: Option<String>,
    /// `ALL_PROXY`: for upstreams whose scheme has no variable set.
    pub all: Option<String>,
    /// `NO_PROXY`: hosts, domains and networks that are reached without a proxy, separated by commas or spaces.
    pub none: Option<String>,
}

impl Proxy {
    /// The proxy that the environment names for an upstream, if any. Upstreams on this machine are reached without one.
    ///
    /// # Errors
    /// If the variable is not the URL of a usable proxy, or names one of the gateway's own `listeners`.
    pub fn from_environment<'v>(
        variables: &'v Variables,
        upstream: &BaseUrl,
        listeners: &[SocketAddr],
    ) -> Result<Option<Self>, UnusableProxy> {
        let https = ("HTTPS_PROXY", &variables.https);
        let of_scheme = if upstream.is_https() { https } else { ("HTTP_PROXY", &variables.http) };
        let set = |(variable, text): (_, &'v Option<String>)| {
            text.as_deref().filter(|text| !text.is_empty()).map(|text| (variable, text))
        };
        let named = [of_scheme, ("ALL_PROXY", &variables.all)].into_iter().find_map(set);
        let excepted = variables.none.as_deref().unwrap_or_default();
        let mut entries = excepted.split(|c: char| c == ',' || c.is_whitespace());
        let mut is_excepted = || upstream.is_local() || entries.any(|entry| covers(entry, upstream));
        let Some((variable, named)) = named.filter(|_| !is_excepted()) else { return Ok(None) };
        let is_own = |proxy: &Self| listeners.iter().any(|listener| proxy.leads_to(*listener));
        let usable = |proxy| if is_own(&proxy) { Err(ProxyError::Gateway) } else { Ok(Some(proxy)) };
        named.parse().and_then(usable).map_err(|cause| UnusableProxy { variable, cause })
    }

    /// Whether connections to it would reach the listener at `address` on this machine. No name is looked up.
    pub fn leads_to(&self, address: SocketAddr) -> bool {
        let Some(authority) = with_default_port(self.address.clone()).into_parts().authority else {
            return false;
        };
        authority.port_u16().is_some_and(|port| loop_check::leads_to(authority.host(), port, address))
    }

    /// Whether connections to the proxy itself are encrypted.
    pub(super) fn is_https(&self) -> bool {
        self.address.scheme() == Some(&Scheme::HTTPS)
    }

    /// Its address and its protocol.
    pub(super) fn parts(&self) -> (&Uri, &Kind) {
        (&self.address, &self.kind)
    }
}

/// Whether an entry of `NO_PROXY` matches an upstream. An entry is `*`, a domain (with all its subdomains), an address
/// or a network, each but `*` with or without a port.
fn covers(entry: &str, upstream: &BaseUrl) -> bool {
    if entry == "*" {
        return true;
    }
    let ported = entry.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (entry, port) = match ported {
        // A bare IPv6 address has colons but no port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (entry, None),
    };
    if port.is_some_and(|port| port != upstream.port()) {
        return false;
    }
    let bare = entry.trim_start_matches('[').trim_end_matches(']');
    let (network, bits) = bare.split_once('/').map_or((bare, None), |(network, bits)| (network, Some(bits)));
    if let Ok(network) = network.parse::<IpAddr>() {
        return upstream.ip().is_some_and(|ip| is_within(ip, network, bits));
    }
    let name = unrooted(entry.trim_start_matches('*').trim_start_matches('.')).to_ascii_lowercase();
    let host = unrooted(upstream.domain()).to_ascii_lowercase();
    let above = host.strip_suffix(&name).filter(|_| !name.is_empty());
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// A domain without the final dot that makes it absolute (`api.test.`).
fn unrooted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether an address is in a network with a prefix of this many bits. Without `bits`, whether the two are equal.
fn is_within(ip: IpAddr, network: IpAddr, bits: Option<&str>) -> bool {
    let (ip, network, length) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (ip.to_bits().into(), network.to_bits().into(), 32),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let bits = bits.map_or(Ok(length), str::parse::<u32>);
    let differs: u128 = ip ^ network;
    bits.is_ok_and(|bits| bits <= length && differs.checked_shr(length - bits).unwrap_or(0) == 0)
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let scheme = scheme.to_ascii_lowercase();
        let is_socks = match &*scheme {
            "http" | "https" => false,
            "socks5" | "socks5h" => true,
            _ => return Err(ProxyError::Scheme),
        };
        let (rest, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // An `@` after it means that the `/`, `?` or `#` is part of a user name or a password, and the text before it
        // must not be shown as a host.
        if path.contains('@') {
            return Err(ProxyError::NotUrl);
        }
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let authority: Authority = host.parse().map_err(|_| ProxyError::NotUrl)?;
        let has_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || (has_port && authority.port_u16().is_none_or(|port| port == 0)) {
            return Err(ProxyError::NotUrl);
        }
        let address = Uri::builder().scheme(&*scheme).authority(authority).path_and_query("/").build();
        let address = address.map_err(|_| ProxyError::NotUrl)?;
        let login = user.map(|user| {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(user), decoded(password))
        });
        if is_socks {
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let login = login.map(|(user, password)| (text(user), text(password)));
            return Ok(Self { address: with_port(address, SOCKS_PORT), kind: Kind::Socks(login) });
        }
        let basic = login.map(|(user, password)| {
            let basic = format!("Basic {}", BASE64_STANDARD.encode([user, password].join(&b':')));
            let mut basic = HeaderValue::from_str(&basic).map_err(|_| ProxyError::NotUrl)?;
            basic.set_sensitive(true);
            Ok(basic)
        });
        Ok(Self { address, kind: Kind::Http(basic.transpose()?) })
    }
}

/// The address with `port` added, if it has no port.
fn with_port(address: Uri, port: u16) -> Uri {
    let without = address.authority().filter(|authority| authority.port().is_none());
    let with = without.and_then(|authority| format!("{}:{port}", authority.host()).parse::<Authority>().ok());
    let Some(with) = with else { return address };
    let mut parts = address.clone().into_parts();
    parts.authority = Some(with);
    Uri::from_parts(parts).unwrap_or(address)
}

/// The address with the default port of its scheme added, if it has no port.
pub(super) fn with_default_port(address: Uri) -> Uri {
    let default = if address.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    with_port(address, default)
}

impl fmt::Debug for Variables {
    /// Names the variables that are set, without their values, which may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = [("HTTPS", &self.https), ("HTTP", &self.http), ("ALL", &self.all), ("NO", &self.none)];
        let set = set.into_iter().filter(|(_, value)| value.is_some());
        f.debug_list().entries(set.map(|(name, _)| name)).finish()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.address.scheme_str(), self.address.authority());
        write!(f, "{}://{}", scheme.unwrap_or_default(), authority.map_or("", Authority::as_str))
    }
}

impl fmt::Debug for Proxy {
    /// Without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_urls_are_parsed_or_refused() {
        let basic = |text| Some(HeaderValue::from_static(text));
        let raw = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (text, expected) in [
            ("http://proxy:3128", Ok(("http://proxy:3128", Kind::Http(None)))),
            ("HTTP://proxy:3128/", Ok(("http://proxy:3128", Kind::Http(None)))),
            ("proxy:3128", Ok(("http://proxy:3128", Kind::Http(None)))),
            ("proxy", Ok(("http://proxy", Kind::Http(None)))),
            ("http://me:p%40ss@proxy", Ok(("http://proxy", Kind::Http(basic("Basic bWU6cEBzcw=="))))),
            ("http://me:%E4@proxy", Ok(("http://proxy", Kind::Http(basic("Basic bWU65A=="))))),
            ("http://me:5%+5%4@proxy", Ok(("http://proxy", Kind::Http(basic("Basic bWU6NSUrNSU0"))))),
            ("socks5://proxy", Ok(("socks5://proxy:1080", Kind::Socks(None)))),
            ("socks5h://me:p@[::1]:9", Ok(("socks5h://[::1]:9", Kind::Socks(raw("me", "p"))))),
            ("https://proxy", Ok(("https://proxy", Kind::Http(None)))),
            ("HTTPS://me:p@proxy:8443", Ok(("https://proxy:8443", Kind::Http(basic("Basic bWU6cA=="))))),
            ("socks4://proxy", Err(ProxyError::Scheme)),
            ("ftp://proxy", Err(ProxyError::Scheme)),
            (" http://proxy:3128\r\n", Ok(("http://proxy:3128", Kind::Http(None)))),
            ("http://me:12#34@proxy:3128", Err(ProxyError::NotUrl)),
            ("http://me/you:34@proxy:3128", Err(ProxyError::NotUrl)),
            ("http://me:12?34@proxy:3128", Err(ProxyError::NotUrl)),
            ("http://", Err(ProxyError::NotUrl)),
            ("a b", Err(ProxyError::NotUrl)),
            ("", Err(ProxyError::NotUrl)),
        ] {
            let proxy = text.parse::<Proxy>().map(|proxy| (proxy.to_string(), proxy.kind));
            let expected = expected.map(|(shown, kind)| (shown.to_owned(), kind));
            assert!(proxy == expected, "{text}: {:?}", proxy.map(|(shown, _)| shown));
        }
    }

    #[test]
    fn proxy_passwords_are_not_shown() {
        for text in ["http://me:secret@proxy", "https://me:secret@proxy", "socks5://me:secret@proxy"] {
            let proxy: Proxy = text.parse().unwrap();
            assert!(!format!("{proxy} {proxy:?}").contains("secret"), "{text}");
        }
    }

    #[test]
    fn proxy_variables_are_interpreted_as_usual() {
        let variables = |text: &str| {
            let mut variables = Variables::default();
            for (name, value) in text.split(' ').filter_map(|pair| pair.split_once('=')) {
                let slot = match name {
                    "https" => &mut variables.https,
                    "http" => &mut variables.http,
                    "all" => &mut variables.all,
                    _ => &mut variables.none,
                };
                *slot = Some(value.to_owned());
            }
            variables
        };
        for (environment, upstream, expected) in [
            ("", "https://api.test", Ok(None)),
            ("https=http://a", "https://api.test", Ok(Some("http://a"))),
            ("https=http://a", "http://api.test", Ok(None)),
            ("http=http://a", "http://api.test", Ok(Some("http://a"))),
            ("https=http://a all=http://b", "https://api.test", Ok(Some("http://a"))),
            ("https= all=socks5://b:1", "https://api.test", Ok(Some("socks5://b:1"))),
            ("all=http://b none=other.test,api.test", "https://api.test", Ok(None)),
            ("all=http://b none=.test", "https://api.test", Ok(None)),
            ("all=http://b none=other.test\tapi.test", "https://api.test", Ok(None)),
            ("all=http://b none=other.test,\tapi.test\t,", "https://api.test", Ok(None)),
            ("all=http://b none=api.test", "https://api.test.", Ok(None)),
            ("all=http://b none=.test.:443", "https://api.test", Ok(None)),
            ("all=http://b none=pi.test", "https://api.test", Ok(Some("http://b"))),
            ("all=http://b none=*.TEST", "https://Api.test", Ok(None)),
            ("all=http://b none=api.test:443", "https://api.test", Ok(None)),
            ("all=http://b none=api.test:80", "https://api.test", Ok(Some("http://b"))),
            ("all=http://b none=,.", "https://api.test", Ok(Some("http://b"))),
            ("all=http://b none=10.1.2.3", "http://10.1.2.3:11434", Ok(None)),
            ("all=http://b none=10.1.2.3:11434", "http://10.1.2.3:11434", Ok(None)),
            ("all=http://b none=10.1.2.4", "http://10.1.2.3:11434", Ok(Some("http://b"))),
            ("all=http://b none=11.0.0.0/8", "http://10.1.2.3:11434", Ok(Some("http://b"))),
            ("all=http://b none=10.1.2.4/0", "http://10.1.2.3:11434", Ok(None)),
            ("all=http://b none=10.1.2.3/33", "http://10.1.2.3:11434", Ok(Some("http://b"))),
            ("all=http://b none=fd00::/8", "http://[fd00::7]", Ok(None)),
            ("all=http://b none=[fd00::7]:81", "http://[fd00::7]:81", Ok(None)),
            ("all=http://b none=fd00::8", "http://[fd00::7]", Ok(Some("http://b"))),
            ("all=http://b none=*", "https://api.test", Ok(None)),
            ("all=http://b none=10.0.0.0/8", "http://10.1.2.3:11434", Ok(None)),
            ("all=http://b", "http://10.1.2.3:11434", Ok(Some("http://b"))),
            ("all=http://b", "http://127.0.0.2:11434", Ok(None)),
            ("all=http://b", "http://LOCALHOST:11434", Ok(None)),
            ("all=http://b", "http://localhost.:11434", Ok(None)),
            ("all=http://b", "http://[::1]:11434", Ok(None)),
            ("all=http://b", "http://ollama.localhost:11434", Ok(None)),
            ("all=http://b", "http://localhost.test:11434", Ok(Some("http://b"))),
            ("https=https://a:1", "https://api.test", Ok(Some("https://a:1"))),
            ("all=https://b", "http://api.test", Ok(Some("https://b"))),
            ("all=socks4://b", "https://api.test", Err(("ALL_PROXY", ProxyError::Scheme))),
            ("all=https://localhost", "https://api.test", Err(("ALL_PROXY", ProxyError::Gateway))),
            ("https=a\u{20ac}b all=http://b", "https://api.test", Err(("HTTPS_PROXY", ProxyError::NotUrl))),
            ("http=http://127.0.0.1:87", "http://api.test", Err(("HTTP_PROXY", ProxyError::Gateway))),
            ("https=http://localhost:87", "https://api.test", Err(("HTTPS_PROXY", ProxyError::Gateway))),
            ("all=socks5h://127.0.0.1:87", "https://api.test", Err(("ALL_PROXY", ProxyError::Gateway))),
            ("all=http://localhost", "https://api.test", Err(("ALL_PROXY", ProxyError::Gateway))),
            ("http=http://127.0.0.1:87", "http://127.0.0.1:99", Ok(None)),
            ("http=http://127.0.0.1:88", "http://api.test", Ok(Some("http://127.0.0.1:88"))),
            ("http=http://other.test:87", "http://api.test", Ok(Some("http://other.test:87"))),
            ("all=socks4://b none=api.test", "https://api.test", Ok(None)),
        ] {
            let listeners = ["127.0.0.1:87", "0.0.0.0:80", "0.0.0.0:443"].map(|own| own.parse().unwrap());
            let found =
                Proxy::from_environment(&variables(environment), &upstream.parse().unwrap(), &listeners);
            let found = found.map(|proxy| proxy.map(|proxy| proxy.to_string()));
            let expected = expected.map_err(|(variable, cause)| UnusableProxy { variable, cause });
            assert_eq!(found, expected.map(|shown| shown.map(str::to_owned)), "{environment}: {upstream}");
        }
    }

    #[test]
    fn addresses_get_their_default_port() {
        for (address, expected) in [
            ("http://a/x?y", "http://a:80/x?y"),
            ("https://a/", "https://a:443/"),
            ("http://[::1]/", "http://[::1]:80/"),
            ("http://a:81/", "http://a:81/"),
        ] {
            assert_eq!(with_default_port(address.parse().unwrap()).to_string(), expected);
        }
    }
}
