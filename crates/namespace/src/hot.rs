//! A bounded cache that costs next to nothing to put into: most of what a shard puts there, new files, is never asked
//! for again, so an insertion may not cost more than it can save.
//!
//! It is set-associative, as a CPU's: a key's hash names one set of eight places, whose bookkeeping is one line of
//! memory, and what a full set takes in replaces what that set can do without. (A list through all entries in order of
//! use, with the memory of evicted ones that such caches keep, reaches into five or six far lines for each insertion:
//! that was half of a create.) Within a set, what was used since the hand last passed stays, up to three rounds: so a
//! scan of what is used once does not drive out what is used often.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;

use rustc_hash::FxBuildHasher;

const WAYS: usize = 8;
/// Rounds of the hand that an often used entry outlives without being used.
const USES_MAX: u8 = 3;

/// The cache. Memory grows with what is put in, up to the bound.
pub(crate) struct Hot<K, V> {
    sets: Vec<Set>,
    entries: Vec<(K, V)>,
    /// Entries of removed keys, to be used again.
    free: Vec<u32>,
}

/// Its first `len` places are taken.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Set {
    /// Index of the entry.
    entries: [u32; WAYS],
    /// A part of the hash: another key is rarely compared in full.
    tags: [u16; WAYS],
    uses: [Cell<u8>; WAYS],
    len: u8,
    /// Where the search for a victim begins.
    hand: u8,
}

impl<K: Hash + Eq, V> Hot<K, V> {
    /// At most `capacity` entries, rounded up to whole sets.
    pub(crate) fn new(capacity: usize) -> Self {
        let sets = vec![Set::default(); capacity.div_ceil(WAYS).max(1)];
        let mut entries = Vec::new();
        // Address space alone, so that nothing has to be moved as it fills. Where that is not to be had, it grows.
        let _ = entries.try_reserve_exact(sets.len() * WAYS);
        Self { sets, entries, free: Vec::new() }
    }

    /// Where it looks here and there all over.
    pub(crate) fn memory(&self) -> [Range<*const u8>; 2] {
        let bytes = |range: Range<*const (K, V)>| range.start.cast()..range.end.cast();
        let entries = self.entries.as_ptr();
        let sets = self.sets.as_ptr_range();
        [sets.start.cast()..sets.end.cast(), bytes(entries..entries.wrapping_add(self.entries.capacity()))]
    }

    /// The key's set and tag.
    fn place(&self, key: &K) -> (usize, u16) {
        // The hash has its best bits in the middle: spread them to both ends.
        let hash = FxBuildHasher.hash_one(key);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (u128::from(hash) * self.sets.len() as u128) >> 64;
        (set as usize, (hash >> 8) as u16)
    }

    fn find(&self, key: &K) -> Option<(&Set, usize)> {
        let (set, tag) = self.place(key);
        let set = &self.sets[set];
        let way = self.way(set, tag, key)?;
        Some((set, way))
    }

    fn way(&self, set: &Set, tag: u16, key: &K) -> Option<usize> {
        // All tags at once: without branches the compiler compares them as one vector, and nearly always none is equal.
        let equal =
            set.tags.iter().enumerate().fold(0_u32, |equal, (way, &other)| equal | (u32::from(other == tag) << way));
        let mut candidates = equal & ((1 << set.len) - 1);
        while candidates != 0 {
            let way = candidates.trailing_zeros() as usize;
            if self.entries[set.entries[way] as usize].0 == *key {
                return Some(way);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// Brings the sets of these keys near. They lie far apart, and whoever looks at one after the other waits for memory
    /// each time; asked for together, they come together.
    pub(crate) fn approach<'a>(&self, keys: impl Iterator<Item = &'a K>)
    where
        K: 'a,
    {
        std::hint::black_box(keys.map(|key| self.sets[self.place(key).0].len).fold(0, |all, len| all ^ len));
    }

    /// What may be the value of the key, whose set is near: without comparing it, so without waiting for the entry. It is
    /// no use of it either.
    fn likely(&self, key: &K) -> Option<&(K, V)> {
        let (set, tag) = self.place(key);
        let set = &self.sets[set];
        let way = set.tags[..usize::from(set.len)].iter().position(|&other| other == tag)?;
        Some(&self.entries[set.entries[way] as usize])
    }

    /// Brings the entries of these keys near as [`Self::approach`] does their sets, and then looks at what it has of them.
    pub(crate) fn approach_entries<'a>(&self, keys: &'a [K], mut look: impl FnMut(&V)) {
        self.approach(keys.iter());
        let near = |key: &'a K| self.likely(key).is_some_and(|(other, _)| other == key);
        std::hint::black_box(keys.iter().map(near).fold(false, |all, near| all ^ near));
        for key in keys {
            if let Some((other, value)) = self.likely(key)
                && other == key
            {
                look(value);
            }
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (set, way) = self.find(key)?;
        let uses = &set.uses[way];
        uses.set((uses.get() + 1).min(USES_MAX));
        Some(&self.entries[set.entries[way] as usize].1)
    }

    /// Adds the entry, or replaces the one of this key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let (at, tag) = self.place(&key);
        if let Some(way) = self.way(&self.sets[at], tag, &key) {
            let entry = self.sets[at].entries[way];
            self.entries[entry as usize].1 = value;
            return;
        }
        let set = &mut self.sets[at];
        let way = if usize::from(set.len) < WAYS {
            set.len += 1;
            let way = usize::from(set.len) - 1;
            set.entries[way] = match self.free.pop() {
                Some(entry) => {
                    self.entries[entry as usize] = (key, value);
                    entry
                }
                None => {
                    self.entries.push((key, value));
                    self.entries.len() as u32 - 1
                }
            };
            way
        } else {
            let way = set.victim();
            self.entries[set.entries[way] as usize] = (key, value);
            way
        };
        set.tags[way] = tag;
        set.uses[way].set(0);
    }

    /// The entry is asked for no more, but stays in memory until another one takes its place.
    pub(crate) fn remove(&mut self, key: &K) {
        let (at, tag) = self.place(key);
        let Some(way) = self.way(&self.sets[at], tag, key) else { return };
        let set = &mut self.sets[at];
        self.free.push(set.entries[way]);
        set.len -= 1;
        let last = usize::from(set.len);
        set.entries[way] = set.entries[last];
        set.tags[way] = set.tags[last];
        set.uses[way].set(set.uses[last].get());
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.sets.fill(Set::default());
        self.entries.clear();
        self.free.clear();
    }
}

impl Set {
    /// A place of a full set whose entry was not used lately.
    fn victim(&mut self) -> usize {
        loop {
            let way = usize::from(self.hand) % WAYS;
            self.hand = self.hand.wrapping_add(1);
            let uses = &self.uses[way];
            if uses.get() == 0 {
                return way;
            }
            uses.set(uses.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Remove(u64),
        Get(u64),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0u64..60;
        prop_oneof![
            8 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            3 => key.clone().prop_map(Step::Remove),
            8 => key.prop_map(Step::Get),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn what_it_has_is_the_last_value_put_there(capacity in 0usize..100, steps in prop::collection::vec(step(), 0..400)) {
            let mut hot = Hot::new(capacity);
            let mut all = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        hot.insert(key, value);
                        all.insert(key, value);
                        prop_assert_eq!(hot.get(&key), Some(&value));
                    }
                    Step::Remove(key) => {
                        hot.remove(&key);
                        all.remove(&key);
                        prop_assert_eq!(hot.get(&key), None);
                    }
                    Step::Get(key) => {
                        let mut near = Vec::new();
                        hot.approach_entries(&[key, key + 100], |value| near.push(*value));
                        prop_assert_eq!(near.first(), hot.get(&key));
                        prop_assert!(hot.get(&key).is_none_or(|value| all.get(&key) == Some(value)));
                    }
                    Step::Clear => {
                        hot.clear();
                        all.clear();
                    }
                }
                prop_assert!(hot.entries.len() <= capacity.div_ceil(WAYS).max(1) * WAYS);
                let taken: usize = hot.sets.iter().map(|set| usize::from(set.len)).sum();
                prop_assert_eq!(taken + hot.free.len(), hot.entries.len());
            }
        }
    }

    #[test]
    fn keeps_nearly_as_much_as_it_may() {
        let mut hot = Hot::new(8192);
        // Ids made one after the other, and far apart: neither may crowd into few sets.
        for stride in [1u64, 64, 4096, 1 << 48] {
            hot.clear();
            for n in 0..4096 {
                hot.insert(n * stride, n);
            }
            let there = (0..4096).filter(|n| hot.get(&(n * stride)).is_some()).count();
            assert!(there > 3900, "{there} of 4096, stride {stride}");
        }
    }

    #[test]
    fn what_is_used_often_outlives_a_scan() {
        let mut hot = Hot::new(8192);
        for key in 0..1000u64 {
            hot.insert(key, ());
        }
        for _ in 0..3 {
            (0..1000).for_each(|key| assert!(hot.get(&key).is_some()));
        }
        for key in 0..16_384 {
            hot.insert((1 << 40) + key, ());
        }
        let there = (0..1000u64).filter(|key| hot.get(key).is_some()).count();
        assert!(there > 900, "{there} of 1000");
        let newest = (0..1000).filter(|key| hot.get(&((1 << 40) + 16_383 - key)).is_some()).count();
        assert!(newest > 990, "{newest} of 1000");
    }
}
