//! A map that forgets what was not used for long, in bounded memory.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Holds at least the `capacity / 2` keys used last and at most `capacity`. Two generations: what is used moves to the
/// young one; when that is full, the old one is forgotten as a whole and the young becomes the old.
pub(crate) struct BoundedMap<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq + Copy, V> BoundedMap<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: FxHashMap::default(), old: FxHashMap::default(), half: (capacity / 2).max(1) }
    }

    /// Sets `key` and returns what was forgotten to make room: empty almost always.
    pub(crate) fn insert(&mut self, key: K, value: V) -> FxHashMap<K, V> {
        self.old.remove(&key);
        let forgotten = if self.young.len() >= self.half && !self.young.contains_key(&key) {
            std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
        } else {
            FxHashMap::default()
        };
        self.young.insert(key, value);
        forgotten
    }

    /// Looks without counting as a use.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_stays_bounded() {
        let mut map = BoundedMap::new(100);
        let mut forgotten = 0;
        for key in 0..1000u32 {
            forgotten += map.insert(key, key).len();
            assert!(map.len() <= 100, "{} entries", map.len());
            for newest in key.saturating_sub(49)..=key {
                assert!(map.contains(&newest), "{newest} is missing after {key}");
            }
        }
        assert_eq!(forgotten + map.len(), 1000);
    }

    #[test]
    fn setting_again_neither_duplicates_nor_forgets() {
        let mut map = BoundedMap::new(4);
        for key in 0..4u32 {
            map.insert(key, 0);
        }
        for round in 0..50 {
            assert!(map.insert(3, round).is_empty());
        }
        assert_eq!(map.remove(&3), Some(49));
        assert!(!map.contains(&3));
    }
}
