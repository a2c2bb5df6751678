//! The transparent proxy between a raw-socket client and a raw-socket upstream.
//!
//! Both ends are played by the test itself, step by step, so that every byte is compared and nothing depends on time. A
//! wait that would never end fails the test after [`PATIENCE`].

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod answers;
mod breaks;
mod connections;
mod early;
mod gateway;
mod http2;
mod observing;
mod requests;
mod rewriting;
mod shared;
mod streaming;
mod through;
mod tls;
mod wire;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::server::{Drained, Listener, Running, Server, Settings, Stats};
use tokio::sync::watch;

use self::gateway::TestGateway;
use self::wire::{Peer, TestUpstream};

/// How long a step may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running proxy.
struct Proxy {
    address: SocketAddr,
    gateway: Arc<TestGateway>,
    stats: Arc<Stats>,
    shutdown: watch::Sender<bool>,
    running: Option<Running>,
}

impl Proxy {
    fn start(gateway: TestGateway) -> Self {
        Self::with_settings(gateway, settings())
    }

    fn with_settings(gateway: TestGateway, settings: Settings) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let (shutdown, begun) = watch::channel(false);
        let gateway = Arc::new(gateway);
        let server = Server::new(Arc::clone(&gateway), settings);
        let stats = server.stats();
        let running = Some(server.start(listener, &begun).unwrap());
        Self { address, gateway, stats, shutdown, running }
    }

    async fn client(&self) -> Peer {
        Peer::connect(self.address).await
    }

    /// Begins the shutdown and waits for its end, off this thread.
    async fn stop(&mut self) -> Drained {
        self.shutdown.send_replace(true);
        let running = self.running.take().unwrap();
        tokio::task::spawn_blocking(|| running.join()).await.unwrap()
    }
}

/// One worker, a short time for the end, and enough room and time for everything else.
fn settings() -> Settings {
    Settings {
        workers: NonZeroUsize::MIN,
        max_connections: 1024,
        max_body: 64 << 20,
        max_decoded: 128 << 20,
        rewrite_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(15 * 60),
        drain_timeout: Duration::from_millis(1),
    }
}

/// A proxy that streams everything to one upstream, that upstream, and a client.
async fn stage() -> (Proxy, TestUpstream, Peer) {
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
    let client = proxy.client().await;
    (proxy, upstream, client)
}
