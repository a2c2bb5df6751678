//! What earlier requests and their answers have taught. It is kept in bounded memory and lost with the process, except
//! for the windows, which are stored.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::acceptance::Acceptance;
use super::meter::Meter;
use super::windows::Windows;
use crate::store::Recent;
use crate::strategy::system::Systems;
use crate::usage::cache_model::Pauses;

/// The most models about which each thing is remembered. Clients choose their names.
pub(super) const MAX_MODELS: u64 = 256;

/// What is known of providers, models and clients.
pub(super) struct Learned {
    /// How large prompts turned out to be.
    pub(super) meter: Meter,
    /// The context windows of models.
    pub(super) windows: Windows,
    /// How long providers really keep prompts.
    pub(super) pauses: PerModel<Pauses>,
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
            pauses: PerModel::new(),
            acceptance: Acceptance::new(),
            systems: Mutex::default(),
        }
    }

    /// What is known of the clients' instructions.
    pub(super) fn systems(&self) -> MutexGuard<'_, Systems> {
        self.systems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of each model at each upstream that serves it. Few upstreams serve the same model, so a list is
/// searched.
pub(super) struct PerModel<V>(Recent<String, Vec<(String, V)>>);

impl<V: Copy + Default> PerModel<V> {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(MAX_MODELS))
    }

    /// What is known of a model at an upstream.
    pub(super) fn get(&self, upstream: &str, model: &str) -> V {
        let here =
            |known: &Vec<(String, V)>| known.iter().find(|(name, _)| name == upstream).map(|known| known.1);
        self.0.read(model, here).flatten().unwrap_or_default()
    }

    /// Changes what is known of a model at an upstream.
    pub(super) fn update<T>(&self, upstream: &str, model: &str, change: impl FnOnce(&mut V) -> T) -> T {
        self.0.update(model, |by_upstream| {
            let known = by_upstream.iter().position(|(name, _)| name == upstream);
            let at = known.unwrap_or_else(|| {
                by_upstream.push((upstream.to_owned(), V::default()));
                by_upstream.len() - 1
            });
            change(&mut by_upstream[at].1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_a_new_model_evicts_the_oldest() {
        let known = PerModel::new();
        for model in 0..=MAX_MODELS {
            known.update("a", &model.to_string(), |value| *value = model + 1);
        }
        known.update("b", "1", |value| *value = 9);
        let found = [("a", 0), ("a", 1), ("b", 1), ("c", 1), ("a", MAX_MODELS)];
        let found = found.map(|(upstream, model)| known.get(upstream, &model.to_string()));
        assert_eq!(found, [0, 2, 9, 0, MAX_MODELS + 1]);
    }
}
