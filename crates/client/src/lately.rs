//! Tables that have to drop something: what was not used lately, by a second chance for what was (the CLOCK of Corbató, 1968).

use std::hash::Hash;
use std::mem;

use rustc_hash::FxHashMap;

pub(crate) struct Lately<K, V> {
    places: FxHashMap<K, usize>,
    slots: Vec<Slot<K, V>>,
    /// The slot that is looked at next by who wants to drop one.
    hand: usize,
}

struct Slot<K, V> {
    key: K,
    value: V,
    /// Since the hand was there last.
    used: bool,
}

impl<K, V> Default for Lately<K, V> {
    fn default() -> Self {
        Self { places: FxHashMap::default(), slots: Vec::new(), hand: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> Lately<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// What is there under `key`, which is being used.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.slots.get_mut(*self.places.get(key)?)?;
        slot.used = true;
        Some(&mut slot.value)
    }

    /// In place of what was there under `key`. Something new counts as used when it is got.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(known) = self.get(&key) {
            *known = value;
            return;
        }
        self.places.insert(key, self.slots.len());
        self.slots.push(Slot { key, value, used: false });
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = *self.places.get(key)?;
        Some(self.remove_at(at).1)
    }

    fn remove_at(&mut self, at: usize) -> (K, V) {
        let Slot { key, value, .. } = self.slots.swap_remove(at);
        self.places.remove(&key);
        if let Some(moved) = self.slots.get(at) {
            self.places.insert(moved.key, at);
        }
        (key, value)
    }

    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.slots.clear();
    }

    /// Where one is that was not used lately and is not to be `spared`. The next one after that is looked at next.
    fn find(&mut self, spared: impl Fn(&K, &V) -> bool) -> Option<usize> {
        // All may have been used: the second time round none was.
        for _ in 0..2 * self.slots.len() {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            let slot = &mut self.slots[at];
            if !spared(&slot.key, &slot.value) && !mem::take(&mut slot.used) {
                return Some(at);
            }
        }
        None
    }

    /// One that was not used lately and is not to be `spared`; `None` where all are.
    pub(crate) fn pick(&mut self, spared: impl Fn(&K, &V) -> bool) -> Option<&mut V> {
        let at = self.find(spared)?;
        self.slots.get_mut(at).map(|slot| &mut slot.value)
    }

    /// Takes out one that was not used lately and is not to be `spared`; `None` where all are.
    pub(crate) fn evict(&mut self, spared: impl Fn(&K, &V) -> bool) -> Option<(K, V)> {
        let at = self.find(spared)?;
        Some(self.remove_at(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lately(count: u64) -> Lately<u64, u64> {
        let mut lately = Lately::default();
        (0..count).for_each(|number| lately.insert(number, 10 * number));
        lately
    }

    #[test]
    fn what_is_there_is_found_wherever_it_was_moved() {
        let mut lately = lately(5);
        assert_eq!((lately.remove(&1), lately.remove(&1), lately.remove(&4)), (Some(10), None, Some(40)));
        lately.insert(2, 21);
        assert_eq!([0, 1, 2, 3, 4].map(|key| lately.get(&key).copied()), [Some(0), None, Some(21), Some(30), None]);
        assert_eq!(lately.len(), 3);
        lately.clear();
        assert!(lately.len() == 0 && lately.get(&0).is_none() && lately.evict(|_, _| false).is_none());
    }

    #[test]
    fn what_was_not_used_goes_first() {
        let mut lately = lately(5);
        assert!([0, 1, 3].iter().all(|key| lately.get(key).is_some()));
        let evicted = [5, 6, 7].map(|new| {
            lately.insert(new, 0);
            lately.evict(|&key, _| key == new).map(|(key, _)| key)
        });
        assert_eq!(evicted, [Some(2), Some(4), Some(0)], "and then the first of those that were");
        assert_eq!(lately.len(), 5);
    }

    #[test]
    fn what_is_spared_stays() {
        let mut lately = lately(5);
        assert_eq!(lately.evict(|&key, _| key != 3), Some((3, 30)));
        assert_eq!(lately.evict(|_, _| true), None);
        assert_eq!(lately.pick(|_, &value| value < 40), Some(&mut 40));
        assert_eq!(lately.len(), 4);
    }

    /// The new one stands where the hand has just been.
    #[test]
    fn who_is_always_used_outlives_any_number_of_others() {
        let mut lately = lately(64);
        for number in 64..10_000 {
            lately.get(&7);
            lately.insert(number, 0);
            let (gone, _) = lately.evict(|&key, _| key == number).expect("one of them");
            assert!(gone != 7 && number - gone <= 2 * 64, "{gone} at {number}");
        }
    }
}
