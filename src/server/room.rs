//! Places for client connections.
//!
//! When all places are taken and another connection waits, the one that has been idle longest is asked to close. A
//! connection with a request in progress never is: the new one waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::Client;

/// How long a connection must have been idle: a new one is about to be used.
const REST: Duration = Duration::from_secs(1);
/// How long to wait for a connection that was asked to close before asking another.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often idle connections are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// The places of one worker, of which each connection takes one.
pub(super) struct Room {
    places: Arc<Semaphore>,
    taken: Arc<Taken>,
    /// When a connection was last asked to close for the one that waits now.
    asked: Option<Instant>,
}

/// The clients that have a place.
#[derive(Default)]
struct Taken(Mutex<Clients>);

#[derive(Default)]
struct Clients {
    all: HashMap<u64, Arc<Client>>,
    next: u64,
}

/// A place, taken until it is dropped.
pub(super) struct Place {
    client: Arc<Client>,
    number: u64,
    taken: Arc<Taken>,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// This many places.
    pub(super) fn new(places: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        Self { places, taken: Arc::default(), asked: None }
    }

    /// Waits for a place. Cancel safe.
    pub(super) async fn place(&mut self) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
                break permit;
            }
            if self.asked.is_none_or(|asked| asked.elapsed() >= PATIENCE) && self.taken.dismiss() {
                self.asked = Some(Instant::now());
            }
            if let Ok(permit) = tokio::time::timeout(LOOK, Arc::clone(&self.places).acquire_owned()).await {
                break permit.expect("the semaphore is never closed");
            }
        };
        self.asked = None;
        let client = Arc::<Client>::default();
        let number = self.taken.add(&client);
        Place { client, number, taken: Arc::clone(&self.taken), _permit: permit }
    }
}

impl Taken {
    fn add(&self, client: &Arc<Client>) -> u64 {
        let mut clients = self.clients();
        let number = clients.next;
        clients.next += 1;
        clients.all.insert(number, Arc::clone(client));
        number
    }

    /// Asks the client that has been idle longest to close, if any has for long enough.
    fn dismiss(&self) -> bool {
        let clients = self.clients();
        let resting = clients.all.values().filter_map(|client| Some((client.resting_since()?, client)));
        let longest = resting.min_by_key(|(since, _)| *since).filter(|(since, _)| since.elapsed() >= REST);
        longest.is_some_and(|(_, client)| client.dismiss())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The client that has it.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.clients().all.remove(&self.number);
    }
}
