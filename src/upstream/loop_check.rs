//! Detects upstreams and proxies that are the gateway's own listener, to which requests would go in circles.
//!
//! Only addresses are compared, so that nothing need be added to a request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpStream;

/// The host as an IP address, if it is one or a name of this machine (`localhost`).
pub(super) fn ip(host: &str) -> Option<IpAddr> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.rsplit('.').next().is_some_and(|top| top.eq_ignore_ascii_case("localhost")) {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.parse().ok()
}

/// Whether connections to this host and port would reach `listener` on this machine. No name is looked up.
pub(super) fn leads_to(host: &str, port: u16, listener: SocketAddr) -> bool {
    let is_reached = |ip: IpAddr| {
        let is_here = ip.is_loopback() || ip.is_unspecified();
        ip == listener.ip() || (is_here && (listener.ip().is_unspecified() || ip.is_unspecified()))
    };
    port == listener.port() && ip(host).map(|ip| ip.to_canonical()).is_some_and(is_reached)
}

/// Whether a connection has reached `listener` on this machine, under whatever name.
pub(super) fn is_at(connection: &TcpStream, listener: SocketAddr) -> bool {
    let (Ok(from), Ok(to)) = (connection.local_addr(), connection.peer_addr()) else { return false };
    has_led_to(from, to, listener)
}

fn has_led_to(from: SocketAddr, to: SocketAddr, listener: SocketAddr) -> bool {
    let (from, ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    // A connection to an address of this machine also comes from that address. All loopback addresses count as one.
    let is_here = ip.is_loopback() || ip == from;
    let is_listened_on = listener.ip().is_unspecified() && (listener.is_ipv6() || ip.is_ipv4());
    to.port() == listener.port() && (ip == listener.ip().to_canonical() || (is_here && is_listened_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_an_own_listener_are_recognised() {
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
