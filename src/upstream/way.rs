//! Recognises kept connections whose way through the network is gone, before a request is written to them.
//!
//! A machine that changes its network (another WLAN, a VPN that goes up or down) or sleeps is left with connections on
//! which nothing arrives any more. The system notices that only after minutes, and what was written must not be sent
//! twice. A connection that has been heard of within the last few seconds is used without any of these checks.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use tokio::net::TcpStream;
use tokio::time::Instant;

/// How long a connection may be silent until it is checked. HTTP clients give theirs up after about as long.
const SHORT: Duration = Duration::from_secs(4);

/// The way of one connection through the network.
pub(super) struct Way {
    /// The address of this machine that it leaves from, and that of its other end; `None` if they are not known.
    ends: Option<(IpAddr, SocketAddr)>,
    heard: Moment,
}

/// A point in time on two clocks, of which the first stops while the machine sleeps.
#[derive(Clone, Copy)]
struct Moment {
    awake: Instant,
    wall: SystemTime,
}

impl Way {
    /// The way of a connection that was made just now.
    pub(super) fn of(connection: &TcpStream) -> Self {
        let ends = connection.local_addr().and_then(|local| Ok((local.ip(), connection.peer_addr()?)));
        Self { ends: ends.ok(), heard: Moment::now() }
    }

    /// Records that something has come from the other end just now.
    pub(super) fn record(&mut self) {
        self.heard = Moment::now();
    }

    /// How long nothing has come from the other end.
    pub(super) fn silence(&self) -> Duration {
        self.heard.awake.elapsed()
    }

    /// Whether nothing has come from the other end for a while.
    pub(super) fn is_silent(&self) -> bool {
        self.silence() >= SHORT
    }

    /// Whether the connection may still work: the machine has not slept since the other end was last heard of, and a
    /// new connection would leave from the same address. If the connection has been silent, this asks the system.
    pub(super) fn is_open(&mut self) -> bool {
        let silence = self.silence();
        // A clock that was put forward looks the same.
        let has_slept = self.heard.wall.elapsed().unwrap_or_default() > silence + SHORT;
        if has_slept {
            return false;
        }
        if silence >= SHORT {
            if !self.is_routed() {
                return false;
            }
            self.record();
        }
        true
    }

    /// Whether the system would send from the same address today. Nothing is sent to find that out. What cannot be
    /// found out counts as unchanged.
    fn is_routed(&self) -> bool {
        let Some((local, peer)) = self.ends else { return true };
        let any: IpAddr =
            if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let Ok(probe) = UdpSocket::bind((any, 0)) else { return true };
        match probe.connect(peer).and_then(|()| probe.local_addr()) {
            Ok(now) => now.ip() == local,
            Err(error) => !matches!(
                error.kind(),
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable
            ),
        }
    }
}

impl Moment {
    fn now() -> Self {
        Self { awake: Instant::now(), wall: SystemTime::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_way_is_open_while_the_machine_is_awake_and_has_the_same_address() {
        const HERE: &str = "127.0.0.1";
        // An address for documentation, which no machine has.
        const GONE: &str = "192.0.2.1";
        for (local, peer, silent, slept, expected) in [
            (HERE, "127.0.0.1:9", 3, 0, true),
            (HERE, "127.0.0.1:9", 5, 0, true),
            (GONE, "127.0.0.1:9", 3, 0, true),
            (GONE, "127.0.0.1:9", 5, 0, false),
            ("::1", "[::1]:9", 3, 0, true),
            ("fd00::1", "[::1]:9", 5, 0, false),
            (HERE, "127.0.0.1:9", 3, 3, true),
            (HERE, "127.0.0.1:9", 3, 60, false),
            (HERE, "127.0.0.1:9", 30, 60, false),
        ] {
            let ends = Some((local.parse().unwrap(), peer.parse().unwrap()));
            let mut heard = Moment::now();
            heard.wall -= Duration::from_secs(slept);
            tokio::time::advance(Duration::from_secs(silent)).await;
            let mut way = Way { ends, heard };
            assert_eq!(way.is_open(), expected, "{local} {peer} {silent} s, slept {slept} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_that_was_found_open_is_not_checked_again_at_once() {
        let ends = Some((Ipv4Addr::LOCALHOST.into(), (Ipv4Addr::LOCALHOST, 9).into()));
        let mut way = Way { ends, heard: Moment::now() };
        tokio::time::advance(SHORT).await;
        assert!(way.is_silent() && way.is_open() && !way.is_silent());
    }
}
