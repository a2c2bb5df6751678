//! Room for client connections.
//!
//! When all of it is taken and one more waits, the connection that has rested longest is asked to go. One with a
//! request on it never is: it is waited for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::Client;

/// How long a connection must have rested: one that was just made is about to be used.
const REST: Duration = Duration::from_secs(1);
/// How long to wait for one that was asked to go, before another is.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often connections that rest are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Room {
    places: Arc<Semaphore>,
    taken: Arc<Taken>,
    /// When somebody was asked to go, for whoever waits now.
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

/// A place that is taken, until it is dropped.
pub(super) struct Place {
    client: Arc<Client>,
    number: u64,
    taken: Arc<Taken>,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// For so many connections.
    pub(super) fn new(places: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        Self { places, taken: Arc::default(), asked: None }
    }

    /// A place, as soon as there is one. Nothing is lost if the future is dropped.
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

    /// Asks the client that has rested longest to go, if any has for long enough.
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
    /// Whose place it is.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.clients().all.remove(&self.number);
    }
}
