//! What earlier requests and their answers have taught. It is kept in bounded memory and lost with the process, except
//! for the windows, which are stored.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::acceptance::Acceptance;
use super::meter::Meter;
use super::pauses::Caches;
use super::windows::Windows;
use crate::store::Recent;
use crate::strategy::system::Systems;

/// The most models about which each thing is remembered. Clients choose their names.
pub(super) const MAX_MODELS: u64 = 256;

/// What is known of providers, models and clients.
pub(super) struct Learned {
    /// How large prompts turned out to be.
    pub(super) meter: Meter,
    /// The context windows of models.
    pub(super) windows: Windows,
    /// How long providers really keep prompts, by upstream and model.
    pub(super) caches: Caches,
    /// Which edits and additions upstreams accept.
    pub(super) acceptance: Acceptance,
    /// What is known of the clients' instructions.
    systems: Mutex<Systems>,
}

impl Learned {
    /// Starts with these windows and nothing else.
    pub(super) fn of(windows: Windows) -> Self {
        Self {
            meter: Meter::new(),
            windows,
            caches: Recent::of_entries(MAX_MODELS),
            acceptance: Acceptance::new(),
            systems: Mutex::default(),
        }
    }

    /// What is known of the clients' instructions.
    pub(super) fn systems(&self) -> MutexGuard<'_, Systems> {
        self.systems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
