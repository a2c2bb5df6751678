//! Whether a way leads to the very listener that requests came in by: what is sent there would come round again without
//! end.
//!
//! Told by addresses alone, so that nothing need be added to a request for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpStream;

/// A host, where that is an address or a name of this machine.
pub(super) fn ip(host: &str) -> Option<IpAddr> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.rsplit('.').next().is_some_and(|top| top.eq_ignore_ascii_case("localhost")) {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.parse().ok()
}

/// Whether a host and a port lead to who listens at `listener` on this machine, as far as that can be told without a
/// resolver.
pub(super) fn leads_to(host: &str, port: u16, listener: SocketAddr) -> bool {
    let is_reached = |ip: IpAddr| {
        let is_here = ip.is_loopback() || ip.is_unspecified();
        ip == listener.ip() || (is_here && (listener.ip().is_unspecified() || ip.is_unspecified()))
    };
    port == listener.port() && ip(host).map(|ip| ip.to_canonical()).is_some_and(is_reached)
}

/// Whether a connection has led there, by whatever name it was asked for.
pub(super) fn is_at(connection: &TcpStream, listener: SocketAddr) -> bool {
    let (Ok(from), Ok(to)) = (connection.local_addr(), connection.peer_addr()) else { return false };
    has_led_to(from, to, listener)
}

fn has_led_to(from: SocketAddr, to: SocketAddr, listener: SocketAddr) -> bool {
    let (from, ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    // A connection to an address of the own machine comes from that address; loopback addresses count as one.
    let is_here = ip.is_loopback() || ip == from;
    let is_heard = listener.ip().is_unspecified() && (listener.is_ipv6() || ip.is_ipv4());
    to.port() == listener.port() && (ip == listener.ip().to_canonical() || (is_here && is_heard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_come_round() {
        for (from, to, listener, expected) in [
            ("127.0.0.1:4", "127.0.0.1:90", "127.0.0.1:90", true),
            ("127.0.0.1:4", "127.0.0.1:91", "127.0.0.1:90", false),
            ("127.0.0.1:4", "127.0.0.1:90", "0.0.0.0:90", true),
            ("127.0.0.1:4", "127.0.0.2:90", "0.0.0.0:90", true),
            ("127.0.0.1:4", "127.0.0.2:90", "127.0.0.1:90", false),
            ("10.0.0.1:4", "10.0.0.1:90", "0.0.0.0:90", true),
            ("10.0.0.1:4", "10.0.0.1:90", "10.0.0.1:90", true),
            ("10.0.0.1:4", "10.0.0.1:90", "127.0.0.1:90", false),
            // The same port of another machine, as of a second gateway.
            ("10.0.0.1:4", "10.0.0.2:90", "0.0.0.0:90", false),
            ("10.0.0.1:4", "10.0.0.2:90", "10.0.0.1:90", false),
            ("[::1]:4", "[::1]:90", "[::1]:90", true),
            ("[::1]:4", "[::1]:90", "[::]:90", true),
            ("[::1]:4", "[::1]:90", "0.0.0.0:90", false),
            ("127.0.0.1:4", "127.0.0.1:90", "[::]:90", true),
            ("[::ffff:127.0.0.1]:4", "[::ffff:127.0.0.1]:90", "127.0.0.1:90", true),
            ("[fd00::1]:4", "[fd00::1]:90", "[::]:90", true),
            ("[fd00::1]:4", "[fd00::2]:90", "[::]:90", false),
        ] {
            let [from, to, listener] = [from, to, listener].map(|address| address.parse().unwrap());
            assert_eq!(has_led_to(from, to, listener), expected, "{from} {to} {listener}");
        }
    }
}
