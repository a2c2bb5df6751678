//! What parts of URLs mean: who may have the name of a host.
//!
//! Looks nothing up, and forbids nothing: what follows is for those to say who ask.

use std::net::IpAddr;

use http::uri::Authority;

/// What a host is called by, and so who may have that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostName {
    /// An address.
    Address,
    /// `localhost` or below it: the machine of who asks.
    Localhost,
    /// One that nobody can register: without a dot, as those of containers, or below `internal`, which is set apart for
    /// private networks, and where containers find the machine that they run on.
    Private,
    /// One that may be anyone's. What is no name counts as such, and what stands behind credentials.
    Public,
}

impl HostName {
    /// What the host of an authority is called by, whatever its port.
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

#[cfg(test)]
mod tests {
    use super::HostName::{Address, Localhost, Private, Public};
    use super::*;

    #[test]
    fn hosts_are_called_by_addresses_and_names() {
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
}
