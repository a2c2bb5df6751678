//! Slots for client connections.
//!
//! When all slots are taken and another connection waits, the connection that has been idle longest is asked to close,
//! and so it is when no file can be opened for the other one. A connection with a request in progress is never asked
//! to: the new one waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::Client;

/// How long a connection must have been idle to be asked to close. One that was just opened is about to be used.
const MIN_IDLE: Duration = Duration::from_secs(1);
/// How long to wait for a connection that was asked to close before asking another.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a waiting connection looks for an idle one.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The slots for connections. Each connection takes one.
pub(super) struct ConnectionSlots {
    permits: Arc<Semaphore>,
    occupants: Arc<Occupants>,
    /// When a connection was last asked to close for the one that waits now.
    asked_at: Option<Instant>,
}

/// The clients that have taken a slot.
#[derive(Default)]
struct Occupants(Mutex<Clients>);

#[derive(Default)]
struct Clients {
    all: HashMap<u64, Arc<Client>>,
    next: u64,
}

/// A slot, which is taken until this is dropped.
pub(super) struct ConnectionSlot {
    client: Arc<Client>,
    number: u64,
    occupants: Arc<Occupants>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlots {
    /// Makes this many slots, but at least one.
    pub(super) fn new(slots: usize) -> Self {
        let permits = Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
        Self { permits, occupants: Arc::default(), asked_at: None }
    }

    /// Waits for a slot. Cancel safe.
    pub(super) async fn slot(&mut self) -> ConnectionSlot {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                break permit;
            }
            self.ask_idle_to_close();
            let permit = Arc::clone(&self.permits).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(POLL_INTERVAL, permit).await {
                break permit.expect("the semaphore is never closed");
            }
        };
        self.asked_at = None;
        let client = Arc::<Client>::default();
        let number = self.occupants.add(&client);
        ConnectionSlot { client, number, occupants: Arc::clone(&self.occupants), _permit: permit }
    }

    /// Asks an idle connection to close, unless one that was asked before may still do so.
    pub(super) fn ask_idle_to_close(&mut self) {
        let may_ask = self.asked_at.is_none_or(|asked_at| asked_at.elapsed() >= CLOSING_TIMEOUT);
        if may_ask && self.occupants.ask_longest_idle_to_close() {
            self.asked_at = Some(Instant::now());
        }
    }
}

impl Occupants {
    fn add(&self, client: &Arc<Client>) -> u64 {
        let mut clients = self.clients();
        let number = clients.next;
        clients.next += 1;
        clients.all.insert(number, Arc::clone(client));
        number
    }

    /// Asks the client that has been idle longest to close, if it has been idle long enough. Returns whether one was
    /// asked.
    fn ask_longest_idle_to_close(&self) -> bool {
        let clients = self.clients();
        let idle = clients.all.values().filter_map(|client| Some((client.idle_since()?, client)));
        let longest = idle.min_by_key(|(since, _)| *since).filter(|(since, _)| since.elapsed() >= MIN_IDLE);
        longest.is_some_and(|(_, client)| client.ask_to_close())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// The client that has the slot.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.occupants.clients().all.remove(&self.number);
    }
}
