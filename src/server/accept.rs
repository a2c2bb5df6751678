//! Accepting connections and distributing them over the workers.
//!
//! One worker accepts. It keeps a connection unless another worker has fewer open, so that a single agent is served
//! by one thread, and many agents by all.

use std::io;
use std::mem;
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::client::Client;
use super::slots::{ConnectionSlot, ConnectionSlots};
use super::stats::Stats;

/// Pause after an error of `accept` that is not about one connection, such as running out of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Where a worker gets its connections from.
pub(super) enum Source {
    /// The listening socket: this worker accepts.
    Acceptor(Acceptor),
    /// A queue that the accepting worker fills.
    Inbox(mpsc::Receiver<Accepted>),
}

/// The listening socket, and the workers that share its connections.
pub(super) struct Acceptor {
    listener: TcpListener,
    slots: ConnectionSlots,
    /// An accepted connection that waits for a slot.
    waiting: Option<TcpStream>,
    /// Whether the last attempt to accept failed, so that the log has reported it already.
    is_failing: bool,
    /// All workers; the accepting one is the first.
    workers: Vec<WorkerHandle>,
    stats: Arc<Stats>,
}

/// A worker, as the accepting worker sees it.
pub(super) struct WorkerHandle {
    /// The number of its open connections.
    open: Arc<AtomicUsize>,
    /// `None` for the accepting worker itself.
    inbox: Option<mpsc::Sender<Accepted>>,
}

/// An accepted connection on its way to the worker that will serve it.
pub(super) struct Accepted {
    stream: StdStream,
    guard: ConnectionGuard,
}

/// Counts a connection for as long as it is open.
pub(super) struct ConnectionGuard {
    open: Arc<AtomicUsize>,
    stats: Arc<Stats>,
    slot: ConnectionSlot,
}

impl Source {
    /// The next connection to serve; `None` when there will be no more. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(TcpStream, ConnectionGuard)> {
        match self {
            Self::Acceptor(acceptor) => Some(acceptor.next().await),
            Self::Inbox(inbox) => loop {
                let Accepted { stream, guard } = inbox.recv().await?;
                match TcpStream::from_std(stream) {
                    Ok(stream) => return Some((stream, guard)),
                    Err(error) => tracing::debug!(%error, "a connection could not be taken over"),
                }
            },
        }
    }
}

impl Acceptor {
    /// Begins to accept. Must be called on the runtime of the worker that accepts.
    pub(super) fn open(
        listener: StdListener,
        workers: Vec<WorkerHandle>,
        max_connections: usize,
        stats: Arc<Stats>,
    ) -> io::Result<Self> {
        let (listener, slots) = (TcpListener::from_std(listener)?, ConnectionSlots::new(max_connections));
        Ok(Self { listener, slots, waiting: None, is_failing: false, workers, stats })
    }

    async fn next(&mut self) -> (TcpStream, ConnectionGuard) {
        loop {
            if self.waiting.is_none() {
                self.waiting = Some(self.accept().await);
            }
            let slot = self.slots.slot().await;
            let stream = self.waiting.take().expect("one was accepted");
            let worker = self.least_busy();
            let guard = ConnectionGuard::new(&worker.open, &self.stats, slot);
            let Some(inbox) = &worker.inbox else { return (stream, guard) };
            let handed_over = stream.into_std().map(|stream| inbox.try_send(Accepted { stream, guard }));
            if !matches!(handed_over, Ok(Ok(()))) {
                tracing::debug!("a connection could not be handed over");
            }
        }
    }

    async fn accept(&mut self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    self.is_failing = false;
                    // A failure costs latency, never correctness.
                    drop(stream.set_nodelay(true));
                    return stream;
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    if is_out_of_files(&error) {
                        self.slots.ask_idle_to_close();
                    }
                    if !mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// The worker with the fewest connections; of several, the accepting one.
    fn least_busy(&self) -> &WorkerHandle {
        self.workers
            .iter()
            .min_by_key(|worker| worker.open.load(Ordering::Relaxed))
            .expect("the accepting worker is one of them")
    }
}

impl WorkerHandle {
    /// The accepting worker.
    pub(super) fn own() -> Self {
        Self { open: Arc::default(), inbox: None }
    }

    /// Another worker, and the source of its connections.
    pub(super) fn other(max_connections: usize) -> (Self, Source) {
        let (sender, receiver) = mpsc::channel(max_connections.max(1));
        (Self { open: Arc::default(), inbox: Some(sender) }, Source::Inbox(receiver))
    }
}

impl ConnectionGuard {
    fn new(open: &Arc<AtomicUsize>, stats: &Arc<Stats>, slot: ConnectionSlot) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        stats.connections.increment();
        stats.open_connections.increment();
        Self { open: Arc::clone(open), stats: Arc::clone(stats), slot }
    }

    /// The client whose connection it is.
    pub(super) fn client(&self) -> &Arc<Client> {
        self.slot.client()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.stats.open_connections.decrement();
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Whether no more files can be open, in the process or in the system.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;

    use super::*;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_accept_failures_are_logged_once() {
        // A datagram that has arrived is not a connection.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = StdListener::from(OwnedFd::from(socket));
        let mut acceptor = Acceptor::open(listener, vec![WorkerHandle::own()], 1, Arc::default()).unwrap();
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _told = tracing::subscriber::set_default(lines);
        assert!(tokio::time::timeout(20 * RETRY_PAUSE, acceptor.next()).await.is_err());
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!((log.lines().count(), log.contains("cannot accept connections")), (1, true), "{log}");
    }
}
