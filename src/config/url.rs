//! The address of an upstream.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// Where an upstream is: scheme, host, port and a path that goes before each request's own.
///
/// Holds no credentials, no query and no fragment, and its path has no trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

/// Why a text is no base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is no URL with a scheme and a host.
    #[error("expected a URL such as \"https://api.example.com\"")]
    Malformed,
    /// Its scheme is not one that is spoken here.
    #[error("expected a URL that begins with https:// or http://")]
    Scheme,
    /// It has a user name or a password in it.
    #[error("a URL with a user name or password is not accepted; credentials belong in `headers`")]
    Credentials,
    /// It has a query or a fragment.
    #[error("a base URL has no query and no fragment")]
    Query,
}

impl BaseUrl {
    /// `https` or `http`.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Host, and port if one is given.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What goes before a request's own path: empty, or `/` and more, without a slash at its end.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for BaseUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text.contains(['?', '#']) {
            return Err(BadUrl::Query);
        }
        // A text with an `@` may hold a password even when it is no URL; such texts are never quoted.
        let malformed = if text.contains('@') { BadUrl::Credentials } else { BadUrl::Malformed };
        let parts = text.parse::<Uri>().map_err(|_| malformed)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(malformed);
        };
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(BadUrl::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(BadUrl::Credentials);
        }
        // The parser lets `host:` and ports above 65535 through.
        let after_host = authority.as_str().strip_prefix(authority.host());
        let port_is_fine = after_host == Some("") || authority.port_u16().is_some_and(|port| port > 0);
        if authority.host().is_empty() || !port_is_fine {
            return Err(BadUrl::Malformed);
        }
        let path = parts.path_and_query.as_ref().map_or("", |path| path.path().trim_end_matches('/'));
        Ok(Self { scheme, authority, path: path.to_owned() })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let cases: &[(&str, Result<&str, BadUrl>)] = &[
            ("https://api.example.com", Ok("https://api.example.com")),
            ("https://api.example.com/", Ok("https://api.example.com")),
            ("HTTP://127.0.0.1:8080/a/b//", Ok("http://127.0.0.1:8080/a/b")),
            ("http://[::1]:9000/x", Ok("http://[::1]:9000/x")),
            ("http://[::1]", Ok("http://[::1]")),
            ("", Err(BadUrl::Malformed)),
            ("api.example.com", Err(BadUrl::Malformed)),
            ("/v1", Err(BadUrl::Malformed)),
            ("https://", Err(BadUrl::Malformed)),
            ("https:///v1", Err(BadUrl::Malformed)),
            ("https://a b", Err(BadUrl::Malformed)),
            ("https://host:", Err(BadUrl::Malformed)),
            ("https://host:0", Err(BadUrl::Malformed)),
            ("https://host:70000", Err(BadUrl::Malformed)),
            ("https://:80", Err(BadUrl::Malformed)),
            ("ftp://host", Err(BadUrl::Scheme)),
            ("https://user:secret@host", Err(BadUrl::Credentials)),
            ("https://user:secret@ho st", Err(BadUrl::Credentials)),
            ("user:secret@host", Err(BadUrl::Credentials)),
            ("https://host/?key=1", Err(BadUrl::Query)),
            ("https://host/#top", Err(BadUrl::Query)),
        ];
        for (text, expected) in cases {
            let actual = text.parse::<BaseUrl>().map(|url| url.to_string());
            assert_eq!(actual, expected.map(str::to_owned), "{text}");
        }
    }
}
