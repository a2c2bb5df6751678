//! The listening socket, the workers, and their end.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Interval;

use crate::upstream::Clients;

use super::Settings;
use super::accept::{Acceptor, Source, WorkerHandle};
use super::connection::{self, Protocol};
use super::exchange::Gateway;
use super::guard::guard_future;
use super::handler::Handler;
use super::preparing::Offload;
use super::stats::Stats;
use super::tap::{self, Endings};

/// Threads that a worker may use for large bodies, name lookups and the like.
const BLOCKING_THREADS: usize = 16;
/// How long observers may take to process the last endings.
const ENDINGS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the work on large bodies may take to finish.
const OFFLOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a worker pauses after a panic outside of its connections.
const PANIC_PAUSE: Duration = Duration::from_secs(1);
/// How often idle upstream connections are swept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);

/// A listening socket. Connections queue up in it from now on.
#[derive(Debug)]
pub struct Listener {
    socket: StdListener,
    address: SocketAddr,
}

/// A server that is about to start.
#[derive(Debug)]
pub struct Server<G> {
    gateway: Arc<G>,
    settings: Settings,
    stats: Arc<Stats>,
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    workers: Vec<JoinHandle<usize>>,
    haste: Haste,
}

/// Makes a server that is shutting down stop waiting for requests in flight.
#[derive(Clone, Debug)]
pub struct Haste(watch::Sender<bool>);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every request in flight was answered.
    Completely,
    /// This many connections were cut, when the drain time-out passed or earlier on request.
    Cut(usize),
}

/// One thread's share of the server.
struct Worker<G> {
    handler: Arc<Handler<G>>,
    protocol: Arc<Protocol>,
    shutdown: watch::Receiver<bool>,
    haste: watch::Receiver<bool>,
    connections: JoinSet<()>,
}

impl Listener {
    /// Binds `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = StdListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// The address it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl<G: Gateway> Server<G> {
    /// A server for `gateway`.
    pub fn new(gateway: Arc<G>, settings: Settings) -> Self {
        Self { gateway, settings, stats: Arc::default() }
    }

    /// The counters, which keep counting while the server runs.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Starts the workers. They stop accepting when `shutdown` turns true or its sender is dropped.
    pub fn start(self, listener: Listener, shutdown: &watch::Receiver<bool>) -> io::Result<Running> {
        let (haste, hurried) = watch::channel(false);
        let mut handles = vec![WorkerHandle::own()];
        let mut workers = Vec::new();
        for _ in 1..self.settings.workers.get() {
            let (handle, source) = WorkerHandle::other(self.settings.max_connections);
            handles.push(handle);
            workers.push(self.spawn(new_runtime()?, source, [shutdown, &hurried])?);
        }
        let runtime = new_runtime()?;
        let entered = runtime.enter();
        let stats = Arc::clone(&self.stats);
        let acceptor = Acceptor::open(listener.socket, handles, self.settings.max_connections, stats)?;
        drop(entered);
        workers.push(self.spawn(runtime, Source::Acceptor(acceptor), [shutdown, &hurried])?);
        Ok(Running { workers, haste: Haste(haste) })
    }

    fn spawn(
        &self,
        runtime: runtime::Runtime,
        source: Source,
        [shutdown, haste]: [&watch::Receiver<bool>; 2],
    ) -> io::Result<JoinHandle<usize>> {
        let (endings, queue) = Endings::channel();
        let (offload, mut all_done) = Offload::new();
        let handler = Handler {
            gateway: Arc::clone(&self.gateway),
            clients: Clients::new(),
            settings: self.settings.clone(),
            stats: Arc::clone(&self.stats),
            endings,
            offload,
        };
        let worker = Worker {
            handler: Arc::new(handler),
            protocol: Arc::new(Protocol::new(&self.settings)),
            shutdown: shutdown.clone(),
            haste: haste.clone(),
            connections: JoinSet::new(),
        };
        thread::Builder::new().name("plimsoll-serve".to_owned()).spawn(move || {
            let cut = runtime.block_on(async {
                let mut observers = JoinSet::new();
                observers.spawn(tap::tell_all(queue));
                let cut = worker.run(source).await;
                drop(tokio::time::timeout(ENDINGS_TIMEOUT, observers.join_next()).await);
                // That work ends exchanges, whose records must be written before the process ends.
                drop(tokio::time::timeout(OFFLOAD_TIMEOUT, all_done.recv()).await);
                cut
            });
            runtime.shutdown_background();
            cut
        })
    }
}

impl Haste {
    /// Cuts whatever is still in progress once the shutdown has begun.
    pub fn hurry(&self) {
        self.0.send_replace(true);
    }
}

impl Running {
    /// A handle that makes the server stop waiting.
    pub fn haste(&self) -> Haste {
        self.haste.clone()
    }

    /// Waits for the workers to end, which they do after `shutdown` has turned true.
    pub fn join(self) -> Drained {
        let cut = self.workers.into_iter().map(|worker| worker.join().unwrap_or(1)).sum();
        if cut == 0 { Drained::Completely } else { Drained::Cut(cut) }
    }
}

impl<G: Gateway> Worker<G> {
    /// Serves until shutdown, then until everything in flight is answered or the time is up. Returns how many
    /// connections were cut.
    async fn run(mut self, mut source: Source) -> usize {
        let stats = Arc::clone(&self.handler.stats);
        let mut sweeping = tokio::time::interval(SWEEP_INTERVAL);
        go_on(&stats, async || self.work(&mut source, &mut sweeping).await).await;
        drop(source);
        self.drain().await
    }

    /// Serves until shutdown, or until there are no more connections.
    async fn work(&mut self, source: &mut Source, sweeping: &mut Interval) {
        let mut shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = connection::begun(&mut shutdown) => break,
                _ = sweeping.tick() => self.handler.clients.sweep(),
                Some(ended) = self.connections.join_next() => count_panic(&self.handler.stats, &ended),
                next = source.next() => match next {
                    Some((stream, guard)) => self.serve(stream, guard),
                    None => break,
                },
            }
        }
    }

    fn serve(&mut self, stream: tokio::net::TcpStream, guard: super::accept::ConnectionGuard) {
        let (protocol, handler) = (Arc::clone(&self.protocol), Arc::clone(&self.handler));
        let shutdown = self.shutdown.clone();
        self.connections.spawn(async move {
            connection::serve(stream, guard.client(), protocol, handler, shutdown).await;
            drop(guard);
        });
    }

    /// Waits until everything in flight is answered, the time is up, or waiting is cut short. Returns how many
    /// connections were cut.
    async fn drain(mut self) -> usize {
        let all = join_all(&mut self.connections, &self.handler.stats);
        let hurried = async {
            if self.haste.wait_for(|hurried| *hurried).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = all => return 0,
            () = tokio::time::sleep(self.handler.settings.drain_timeout) => {}
            () = hurried => {}
        }
        let cut = self.connections.len();
        self.handler.stats.cut_connections.add(cut as u64);
        self.connections.shutdown().await;
        cut
    }
}

/// Awaits `work`. If it panics, begins it again: without its worker, connections would not be served any more, or not
/// even be accepted.
async fn go_on(stats: &Arc<Stats>, mut work: impl AsyncFnMut()) {
    let mut attempt = async || {
        work().await;
        Some(())
    };
    while guard_future(Arc::clone(stats), attempt()).await.is_none() {
        tracing::error!("a fault of the gateway's own, outside of any connection");
        tokio::time::sleep(PANIC_PAUSE).await;
    }
}

/// Waits until all connections are closed.
async fn join_all(connections: &mut JoinSet<()>, stats: &Stats) {
    while let Some(ended) = connections.join_next().await {
        count_panic(stats, &ended);
    }
}

fn count_panic(stats: &Stats, ended: &Result<(), JoinError>) {
    if ended.is_err() {
        stats.panics.increment();
    }
}

fn new_runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_goes_on_after_a_panic() {
        let (stats, mut times) = (Arc::<Stats>::default(), 0);
        go_on(&stats, async || {
            times += 1;
            tokio::task::yield_now().await;
            assert!(times > 2, "a fault");
        })
        .await;
        assert_eq!((times, stats.panics.value()), (3, 2));
    }

    #[tokio::test]
    async fn panics_during_a_shutdown_are_counted() {
        let (stats, mut connections) = (Stats::default(), JoinSet::new());
        connections.spawn(async {});
        connections.spawn(async { panic!("a fault") });
        join_all(&mut connections, &stats).await;
        assert_eq!(stats.panics.value(), 1);
    }
}
