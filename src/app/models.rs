//! What answers teach about models. Clients choose the names, so their number is unlimited; the least recently used
//! models are dropped.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;

/// The most models that are remembered.
pub(super) const MODELS: usize = 256;

/// What is known of each model.
pub(super) struct Models<K, V> {
    known: Mutex<LruCache<K, V>>,
}

impl<K: Eq + Hash, V: Default> Models<K, V> {
    pub(super) fn new() -> Self {
        Self { known: Mutex::new(LruCache::new(MODELS)) }
    }

    /// Reads what is known of a model; `None` if nothing is.
    pub(super) fn read<Q, T>(&self, model: &Q, read: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.known().get(model).map(read)
    }

    /// Updates what is known of a model; if nothing is, starts from the default.
    pub(super) fn learn<Q>(&self, model: &Q, learn: impl FnOnce(&mut V))
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut known = self.known();
        if let Some(value) = known.get_mut(model) {
            learn(value);
            return;
        }
        let mut value = V::default();
        learn(&mut value);
        known.insert(model.to_owned(), value);
    }

    fn known(&self) -> MutexGuard<'_, LruCache<K, V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_models_are_evicted() {
        let models: Models<String, usize> = Models::new();
        let read = |model: usize| models.read(&*model.to_string(), |value| *value);
        for model in 0..MODELS {
            models.learn(&*model.to_string(), |value| *value += model);
        }
        // A model that is read or learned again stays; reading an unknown one does not add it.
        assert_eq!((read(0), read(MODELS)), (Some(0), None));
        models.learn("1", |value| *value += 10);
        for model in MODELS..MODELS + 3 {
            models.learn(&*model.to_string(), |value| *value += model);
        }
        let last = MODELS + 2;
        assert_eq!(
            [0, 1, 2, 3, 4, 5, last].map(read),
            [Some(0), Some(11), None, None, None, Some(5), Some(last)]
        );
    }
}
