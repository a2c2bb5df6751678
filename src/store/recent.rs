//! Bounded caches.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::{DefaultHashBuilder, LruCache};

/// A bounded cache. The least recently used entry is removed first.
pub struct Recent<K, V, S = DefaultHashBuilder> {
    held: Mutex<Held<K, V, S>>,
    /// The most that all values together may weigh.
    capacity: u64,
    weigh: fn(&V) -> usize,
}

/// The values, each with its weight when it was inserted.
struct Held<K, V, S> {
    entries: LruCache<K, (V, u64), S>,
    weight: u64,
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> Recent<K, V, S> {
    /// A cache of at most `capacity` values.
    pub fn of_entries(capacity: u64) -> Self {
        Self::of_weight(capacity, |_| 1)
    }

    /// A cache of values that weigh at most `capacity` together.
    pub fn of_weight(capacity: u64, weigh: fn(&V) -> usize) -> Self {
        let entries = LruCache::with_hasher(usize::MAX, S::default());
        Self { held: Mutex::new(Held { entries, weight: 0 }), capacity, weigh }
    }

    fn held(&self) -> MutexGuard<'_, Held<K, V, S>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key, which counts as used now.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// What `read` makes of the value of a key, which counts as used now.
    pub fn read<Q, T>(&self, key: &Q, read: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut held = self.held();
        // Some are nearly always empty, and hashing a name takes longer than this.
        if held.entries.is_empty() {
            return None;
        }
        held.entries.get(key).map(|(value, _)| read(value))
    }

    /// Changes the value of a key, or the default if there is none. It keeps the weight that it was inserted with.
    pub fn update<Q, T>(&self, key: &Q, change: impl FnOnce(&mut V) -> T) -> T
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        V: Default,
    {
        let mut held = self.held();
        if let Some((value, _)) = held.entries.get_mut(key) {
            return change(value);
        }
        let mut value = V::default();
        let changed = change(&mut value);
        let weight = (self.weigh)(&value) as u64;
        held.insert(key.to_owned(), value, weight);
        drop(held);
        while self.evict().is_some() {}
        changed
    }

    /// Inserts a value. A value that alone weighs more than the capacity is not kept; the previous value of the key is
    /// removed all the same.
    pub fn insert(&self, key: K, value: V) {
        let weight = (self.weigh)(&value) as u64;
        if weight > self.capacity {
            self.remove(&key);
            return;
        }
        // Removed values are dropped outside the lock.
        let replaced = self.held().insert(key, value, weight);
        drop(replaced);
        while self.evict().is_some() {}
    }

    /// Removes a value and returns it.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut held = self.held();
        let (value, weight) = held.entries.remove(key)?;
        held.weight -= weight;
        Some(value)
    }

    /// The value of a key. If there is none, `own` is inserted and returned.
    pub fn get_or_insert(&self, key: K, own: V) -> V
    where
        V: Clone,
    {
        let mut held = self.held();
        if let Some((known, _)) = held.entries.get(&key) {
            return known.clone();
        }
        let weight = (self.weigh)(&own) as u64;
        held.insert(key, own.clone(), weight);
        drop(held);
        while self.evict().is_some() {}
        own
    }

    /// Removes and returns the least recently used entry, if the cache is over its capacity.
    fn evict(&self) -> Option<(K, V)> {
        let mut held = self.held();
        if held.weight <= self.capacity {
            return None;
        }
        let (key, (value, weight)) = held.entries.remove_lru()?;
        held.weight -= weight;
        Some((key, value))
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Held<K, V, S> {
    fn insert(&mut self, key: K, value: V, weight: u64) -> Option<V> {
        self.weight += weight;
        let (replaced, weighed) = self.entries.insert(key, (value, weight))?;
        self.weight -= weighed;
        Some(replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of ten letters after some words were inserted, one of which was read in between.
    #[track_caller]
    fn check(words: &[&'static str], expected: &[&str]) {
        let memory: Recent<&str, String> = Recent::of_weight(10, String::len);
        for word in words {
            match word.strip_prefix('?') {
                Some(asked) => drop(memory.get(asked)),
                None => memory.insert(&word[..1], (*word).to_owned()),
            }
        }
        let held: Vec<String> = "abcdefg".split("").filter_map(|key| memory.get(key)).collect();
        assert_eq!(held, expected);
        let weight: usize = held.iter().map(String::len).sum();
        assert_eq!(memory.held().weight, weight as u64);
    }

    #[test]
    fn the_least_recently_used_values_are_evicted_by_weight() {
        check(&[], &[]);
        check(&["aaaa", "bbbb"], &["aaaa", "bbbb"]);
        check(&["aaaa", "bbbb", "cccc"], &["bbbb", "cccc"]);
        check(&["aaaa", "bbbb", "?a", "cccc"], &["aaaa", "cccc"]);
        check(&["a", "b", "c", "dddddddddd"], &["dddddddddd"]);
        // A newer value replaces an older one.
        check(&["aaaa", "aa", "bbbbbb", "cc"], &["aa", "bbbbbb", "cc"]);
        check(&["aa", "aaaaaa", "bbbb", "c"], &["bbbb", "c"]);
        // A value that is too heavy by itself is not kept, and does not displace others.
        check(&["aa", "bb", "bbbbbbbbbbb"], &["aa"]);
    }

    #[test]
    fn values_are_inserted_once_and_removed_once() {
        let memory: Recent<String, u8> = Recent::of_entries(2);
        assert_eq!(memory.get_or_insert("a".to_owned(), 1), 1);
        assert_eq!(memory.get_or_insert("a".to_owned(), 2), 1);
        assert_eq!((memory.remove("a"), memory.remove("a")), (Some(1), None));
        for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
            memory.get_or_insert(key.to_owned(), value);
        }
        assert_eq!(["a", "b", "c"].map(|key| memory.get(key)), [None, Some(2), Some(3)]);
    }

    #[test]
    fn values_are_updated_in_place_or_from_the_default() {
        let memory: Recent<String, u8> = Recent::of_entries(2);
        let add = |key: &str, more: u8| {
            memory.update(key, |value| {
                *value += more;
                *value
            })
        };
        assert_eq!([add("a", 1), add("b", 2), add("a", 10), add("c", 3)], [1, 2, 11, 3]);
        // A value that is updated or read again stays; reading an unknown one does not add it.
        let read = |key: &str| memory.read(key, |value| *value);
        assert_eq!([read("a"), read("b"), read("c")], [Some(11), None, Some(3)]);
    }
}
