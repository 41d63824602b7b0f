//! Tables that mostly have nothing in them: who looks into one with each operation needs no lock to find nothing.

use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use crate::mutex::lock;

pub(crate) struct Few<K, V> {
    /// How many the table has. It is looked at beside a [`Gate`](crate::lease::Gate): all agree on the order of both.
    count: AtomicUsize,
    table: Mutex<FxHashMap<K, V>>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), table: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> Few<K, V> {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Looks at what is there under `key`, if anything is.
    pub(crate) fn look<R>(&self, key: &K, look: impl FnOnce(&mut V) -> R) -> Option<R> {
        if self.count() == 0 {
            return None;
        }
        lock(&self.table).get_mut(key).map(look)
    }

    pub(crate) fn has(&self, key: &K) -> bool {
        self.look(key, |_| ()).is_some()
    }

    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.look(key, |value| value.clone())
    }

    pub(crate) fn remove(&self, key: &K) {
        if self.count() > 0 {
            self.change(|table| table.remove(key));
        }
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut FxHashMap<K, V>) -> R) -> R {
        let mut table = lock(&self.table);
        let result = change(&mut table);
        // Those who look for others are left alone where it stays as it is.
        if self.count() != table.len() {
            self.count.store(table.len(), Ordering::SeqCst);
        }
        result
    }
}

/// What has begun and not ended yet, perhaps several times.
pub(crate) struct Counted<K>(Few<K, u32>);

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self(Few::default())
    }
}

impl<K: Eq + Hash> Counted<K> {
    pub(crate) fn begin(&self, key: K) {
        self.0.change(|table| *table.entry(key).or_default() += 1);
    }

    pub(crate) fn end(&self, key: &K) {
        self.0.change(|table| {
            if let Some(count) = table.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    table.remove(key);
                }
            }
        });
    }

    /// How many different ones there are.
    pub(crate) fn count(&self) -> usize {
        self.0.count()
    }

    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.has(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_table_is_found_and_counted() {
        let few = Few::default();
        assert_eq!((few.get(&1), few.count()), (None, 0));
        few.remove(&1);
        few.change(|table| table.extend([(1, 10), (2, 20)]));
        assert_eq!(few.look(&1, |value| std::mem::replace(value, 11)), Some(10));
        assert_eq!((few.get(&1), few.get(&2), few.get(&3), few.count()), (Some(11), Some(20), None, 2));
        few.remove(&1);
        few.remove(&3);
        assert!(!few.has(&1) && few.has(&2) && few.count() == 1);
        few.change(FxHashMap::clear);
        assert!(!few.has(&2) && few.count() == 0);
    }

    #[test]
    fn what_has_begun_is_there_until_it_has_ended_as_often() {
        let counted = Counted::default();
        counted.begin(1);
        counted.begin(1);
        counted.begin(2);
        counted.end(&1);
        assert!(counted.has(&1) && counted.has(&2) && counted.count() == 2);
        counted.end(&1);
        counted.end(&3);
        assert!(!counted.has(&1) && counted.has(&2) && counted.count() == 1);
    }
}
