//! The address of an upstream, parsed once.
//!
//! Joining a request's path to it never re-encodes a byte of that path.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use bytes::Bytes;
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

use super::loop_check;

/// `http://host:port/prefix` or `https://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    /// Without a final slash: empty, or `/something`.
    prefix: String,
}

/// Why a text is not a base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Not a URL at all.
    #[error("not a URL")]
    NotUrl,
    /// Neither `http` nor `https`.
    #[error("the URL must start with `http://` or `https://`")]
    Scheme,
    /// User name or password in the URL.
    #[error("a URL with a user name or password is not accepted; credentials belong in `headers`")]
    Credentials,
    /// A query or fragment, which could not be put before a request's path.
    #[error("the URL must not have a query or fragment")]
    Query,
}

impl BaseUrl {
    /// The address of a request: this URL's path, then `path`, byte for byte.
    pub fn join(&self, path: &PathAndQuery) -> Result<Uri, InvalidUri> {
        let path_and_query = if self.prefix.is_empty() || path.as_str() == "*" {
            path.clone()
        } else {
            let joined = [self.prefix.as_str(), path.as_str()].concat();
            PathAndQuery::from_maybe_shared(Bytes::from(joined))?
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        Ok(Uri::from_parts(parts).expect("scheme, authority and path are all there"))
    }

    /// The part of a `Location` that follows this URL, from its `/` on. `None` if the location is not below this URL.
    pub fn below<'l>(&self, location: &'l str) -> Option<&'l str> {
        let scheme = self.scheme.as_str();
        let absolute = location
            .split_at_checked(scheme.len())
            .filter(|(named, _)| named.eq_ignore_ascii_case(scheme))
            .and_then(|(_, rest)| rest.strip_prefix("://"));
        let path = match absolute.or_else(|| location.strip_prefix("//")) {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/')?);
                let default_port = if self.is_https() { ":443" } else { ":80" };
                let authority = authority.strip_suffix(default_port).unwrap_or(authority);
                Some(path).filter(|_| authority.eq_ignore_ascii_case(self.authority.as_str()))?
            }
            None => location,
        };
        let below = path.strip_prefix(&self.prefix)?;
        // `..` could lead out of the prefix again.
        let (plain, _) = below.split_once(['?', '#']).unwrap_or((below, ""));
        let leads_up = plain.split('/').any(|part| matches!(part, "." | ".."));
        Some(below).filter(|below| below.starts_with('/') && !below.starts_with("//") && !leads_up)
    }

    /// The absolute URL on this server of a `Location` that is a mere path; `None` if it is not a path. To be used for
    /// locations that are not [`Self::below`] this URL.
    pub fn beside(&self, location: &str) -> Option<String> {
        let is_path = location.starts_with('/') && !location.starts_with("//");
        is_path.then(|| format!("{}://{}{location}", self.scheme, self.authority))
    }

    /// Whether both URLs have the same scheme, host and port.
    pub fn is_at_server_of(&self, other: &Self) -> bool {
        let is_same_host = self.domain().eq_ignore_ascii_case(other.domain());
        self.scheme == other.scheme && is_same_host && self.port() == other.port()
    }

    /// The path that is put before that of each request, without a final slash.
    pub fn path(&self) -> &str {
        &self.prefix
    }

    /// The value of a request's `host` header.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The host alone, without a port.
    pub fn domain(&self) -> &str {
        self.authority.host()
    }

    /// The port; the scheme's default if the URL names none.
    pub fn port(&self) -> u16 {
        let default = if self.is_https() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }

    /// Whether the host is this machine, as far as the text shows: no name is looked up.
    pub fn is_local(&self) -> bool {
        self.ip().map(|ip| ip.to_canonical()).is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
    }

    /// The host as an IP address, if it is one or a name of this machine (`localhost`).
    pub(super) fn ip(&self) -> Option<IpAddr> {
        loop_check::ip(self.domain())
    }

    /// Whether connections to it would reach the listener at `address` on this machine. No name is looked up.
    pub fn leads_to(&self, address: SocketAddr) -> bool {
        loop_check::leads_to(self.domain(), self.port(), address)
    }

    /// Whether connections to it are encrypted.
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, BaseUrlError> {
        let parts = text.parse::<Uri>().map_err(|_| BaseUrlError::NotUrl)?.into_parts();
        let scheme = parts.scheme.ok_or(BaseUrlError::Scheme)?;
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(BaseUrlError::Scheme),
        };
        let given = parts.authority.ok_or(BaseUrlError::NotUrl)?;
        if given.as_str().contains('@') {
            return Err(BaseUrlError::Credentials);
        }
        // The parser accepts an empty port and port numbers that are out of range.
        let is_bare = given.host().len() == given.as_str().len();
        if !is_bare && given.port_u16().is_none_or(|port| port == 0) {
            return Err(BaseUrlError::NotUrl);
        }
        let authority = if given.port_u16() == Some(default_port) {
            given.host().parse().map_err(|_| BaseUrlError::NotUrl)?
        } else {
            given
        };
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() || text.contains('#') {
            return Err(BaseUrlError::Query);
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| BaseUrlError::NotUrl)?;
        let prefix = path.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, authority, host, prefix })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_lead_to_a_listener_are_recognised() {
        for (url, address, expected) in [
            ("http://127.0.0.1:9000/v1", "127.0.0.1:9000", true),
            ("http://localhost:9000", "127.0.0.1:9000", true),
            ("http://LOCALHOST:9000", "0.0.0.0:9000", true),
            ("http://gateway.localhost.:9000", "127.0.0.1:9000", true),
            ("http://localhost.example:9000", "127.0.0.1:9000", false),
            ("http://[::ffff:127.0.0.1]:9000", "127.0.0.1:9000", true),
            ("http://[::1]:9000", "[::1]:9000", true),
            ("http://0.0.0.0:80", "127.0.0.1:80", true),
            ("http://127.0.0.1", "127.0.0.1:80", true),
            ("http://127.0.0.1:9001", "127.0.0.1:9000", false),
            ("http://10.0.0.1:9000", "127.0.0.1:9000", false),
            ("http://10.0.0.1:9000", "0.0.0.0:9000", false),
            ("https://api.example.com", "0.0.0.0:443", false),
        ] {
            let url: BaseUrl = url.parse().unwrap();
            assert_eq!(url.leads_to(address.parse().unwrap()), expected, "{url} {address}");
        }
    }

    #[test]
    fn base_urls_are_parsed_or_refused() {
        for (text, expected) in [
            ("http://127.0.0.1:9100", Ok(("http://127.0.0.1:9100", "127.0.0.1:9100"))),
            ("http://h:80/", Ok(("http://h", "h"))),
            ("https://api.example.com:443/", Ok(("https://api.example.com", "api.example.com"))),
            ("https://h:80", Ok(("https://h:80", "h:80"))),
            ("https://h/a/b//", Ok(("https://h/a/b", "h"))),
            ("http://[::1]:8080/x", Ok(("http://[::1]:8080/x", "[::1]:8080"))),
            ("http://[::1]:80", Ok(("http://[::1]", "[::1]"))),
            ("ftp://h", Err(BaseUrlError::Scheme)),
            ("h:8080", Err(BaseUrlError::Scheme)),
            ("/path", Err(BaseUrlError::Scheme)),
            ("", Err(BaseUrlError::NotUrl)),
            ("http://", Err(BaseUrlError::NotUrl)),
            ("http://u:p@h", Err(BaseUrlError::Credentials)),
            ("http://h/?a=1", Err(BaseUrlError::Query)),
            ("http://h/#a", Err(BaseUrlError::Query)),
            ("http://h:", Err(BaseUrlError::NotUrl)),
            ("http://h:0", Err(BaseUrlError::NotUrl)),
            ("http://h:70000", Err(BaseUrlError::NotUrl)),
        ] {
            let parsed = text.parse::<BaseUrl>();
            let seen = parsed.as_ref().map(|url| (url.to_string(), url.host().to_str().unwrap()));
            let expected = expected.map(|(url, host): (&str, _)| (url.to_owned(), host));
            assert_eq!(seen, expected.as_ref().map(|(u, h)| (u.clone(), *h)), "{text}");
        }
    }

    #[test]
    fn paths_are_joined_byte_for_byte() {
        for (base, path, expected) in [
            ("http://h", "/v1/messages?beta=true", "http://h/v1/messages?beta=true"),
            ("http://h/gw/a", "/v1//x", "http://h/gw/a/v1//x"),
            ("http://h/gw/", "/%7Euser/%2f?q=%20+&&", "http://h/gw/%7Euser/%2f?q=%20+&&"),
            ("http://h/gw", "/", "http://h/gw/"),
        ] {
            let base: BaseUrl = base.parse().unwrap();
            let joined = base.join(&path.parse().unwrap()).unwrap();
            assert_eq!(joined.to_string(), expected);
        }
    }

    #[test]
    fn a_path_too_long_to_join_is_an_error() {
        let base: BaseUrl = format!("http://h/{}", "p".repeat(2_000)).parse().unwrap();
        let path: PathAndQuery = format!("/{}", "q".repeat(64_000)).parse().unwrap();
        assert!(base.join(&path).is_err());
    }
}
