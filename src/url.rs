//! Meaning of parts of URLs: who may own the name of a host, what escapes mean, and which parameters are credentials.
//!
//! Looks nothing up and forbids nothing: conclusions are up to the caller.

use std::net::IpAddr;

use http::uri::Authority;

/// What kind of name a host has, and so who may own it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostName {
    /// An IP address.
    Address,
    /// `localhost` or a name below it: the local machine.
    Localhost,
    /// A name that nobody can register: one without a dot, as containers have, or below `internal`, which is reserved
    /// for private networks and under which containers find their host.
    Private,
    /// A name that may be anyone's. Anything that is not a name counts as one, and so does a host after credentials.
    Public,
}

impl HostName {
    /// The kind of name in an authority, whatever its port.
    pub fn of(authority: &Authority) -> Self {
        let host = authority.host();
        if authority.as_str().contains('@') {
            return Self::Public;
        }
        if let Some(inside) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let (address, _zone) = inside.split_once('%').unwrap_or((inside, ""));
            return if address.parse::<IpAddr>().is_ok() { Self::Address } else { Self::Public };
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        if name.parse::<IpAddr>().is_ok() {
            return Self::Address;
        }
        let top = name.rsplit('.').next().unwrap_or(name);
        if name.is_empty() {
            Self::Public
        } else if top.eq_ignore_ascii_case("localhost") {
            Self::Localhost
        } else if top.len() == name.len() || top.eq_ignore_ascii_case("internal") {
            Self::Private
        } else {
            Self::Public
        }
    }
}

/// The bytes that a part of a URL denotes; an error is a `%` that does not begin an escape.
fn bytes(text: &str) -> impl Iterator<Item = Result<u8, u8>> {
    let mut rest = text.as_bytes().iter();
    std::iter::from_fn(move || {
        let byte = *rest.next()?;
        if byte != b'%' {
            return Some(Ok(byte));
        }
        let digit = |at: usize| char::from(*rest.as_slice().get(at)?).to_digit(16);
        let Some((high, low)) = digit(0).zip(digit(1)) else { return Some(Err(byte)) };
        rest = rest.as_slice()[2..].iter();
        Some(Ok((high << 4 | low) as u8))
    })
}

/// Decodes a part of a URL: `%40` becomes `@`, and a `%` that does not begin an escape stays.
pub fn decoded(text: &str) -> Vec<u8> {
    bytes(text).map(|byte| byte.unwrap_or_else(|percent| percent)).collect()
}

/// The same as text; `None` if a `%` does not begin an escape, or the result is not UTF-8.
pub fn unescaped(text: &str) -> Option<String> {
    String::from_utf8(bytes(text).collect::<Result<_, _>>().ok()?).ok()
}

/// Names of parameters that contain an API key.
const KEYS: [&str; 3] = ["key", "api_key", "api-key"];
/// Names of parameters that contain a token, which is renewed from time to time.
const TOKENS: [&str; 2] = ["access_token", "token"];

/// The values of a query's parameters that are credentials, as written.
pub fn credentials(query: &str) -> impl Iterator<Item = &str> {
    values(query, |name| KEYS.contains(&name) || TOKENS.contains(&name))
}

/// The values of a query's parameters that are API keys, if not empty.
pub fn keys(query: &str) -> impl Iterator<Item = &str> {
    values(query, |name| KEYS.contains(&name)).filter(|key| !key.is_empty())
}

fn values(query: &str, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    let parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.filter(move |(name, _)| is_meant(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::HostName::{Address, Localhost, Private, Public};
    use super::*;

    #[test]
    fn query_credentials_are_recognised_by_name() {
        for (query, all, lasting) in [
            ("", &[][..], &[][..]),
            ("key", &[], &[]),
            ("alt=sse&key=a%20b", &["a%20b"], &["a%20b"]),
            ("monkey=a&access_token=b&api_key=", &["b", ""], &[]),
        ] {
            assert_eq!(credentials(query).collect::<Vec<_>>(), all, "{query}");
            assert_eq!(keys(query).collect::<Vec<_>>(), lasting, "{query}");
        }
    }

    #[test]
    fn host_names_are_classified() {
        for (authority, expected) in [
            ("127.0.0.1", Address),
            ("127.0.0.1:8787", Address),
            ("127.0.0.1.", Address),
            ("192.168.1.5", Address),
            ("[::1]", Address),
            ("[::1]:8787", Address),
            ("[::ffff:127.0.0.1]", Address),
            ("[::FFFF:7f00:1]:8787", Address),
            ("[fe80::1%25eth0]:8787", Address),
            ("localhost", Localhost),
            ("LocalHost:8787", Localhost),
            ("localhost.", Localhost),
            ("app.LOCALHOST.:8787", Localhost),
            ("plimsoll:8787", Private),
            ("PLIMSOLL.", Private),
            ("host.docker.internal:8787", Private),
            ("host.docker.INTERNAL.", Private),
            ("internal.evil.test", Public),
            ("evil.test", Public),
            ("evil.test.:8787", Public),
            ("EVIL.TEST", Public),
            ("notlocalhost.test", Public),
            ("evil.notlocalhost", Public),
            ("localhost.evil.test", Public),
            ("127.0.0.1.evil.test", Public),
            ("127.0.0.1@evil.test", Public),
            ("evil.test@127.0.0.1", Public),
            ("[evil.localhost]", Public),
            ("localhost..", Public),
            (".", Public),
            (":8787", Public),
        ] {
            assert_eq!(HostName::of(&authority.parse().unwrap()), expected, "{authority}");
        }
    }

    #[test]
    fn percent_escapes_are_decoded() {
        for (text, expected, meant) in [
            ("", Some(""), &b""[..]),
            ("a%20b%2Fc", Some("a b/c"), b"a b/c"),
            ("%c3%A4", Some("ä"), b"\xc3\xa4"),
            ("ä", Some("ä"), b"\xc3\xa4"),
            ("%2541", Some("%41"), b"%41"),
            ("a+b", Some("a+b"), b"a+b"),
            ("%", None, b"%"),
            ("%2", None, b"%2"),
            ("%+1", None, b"%+1"),
            ("%zz", None, b"%zz"),
            ("%%41", None, b"%A"),
            ("%ä", None, b"%\xc3\xa4"),
            ("%ff", None, b"\xff"),
        ] {
            assert_eq!((unescaped(text).as_deref(), &*decoded(text)), (expected, meant), "{text}");
        }
    }
}
