//! A map that is filled first and asked afterwards, in half the memory of a tree.

/// Entries are pushed in any order, then [`Sorted::seal`]ed; only then they are found.
#[derive(Debug)]
pub(super) struct Sorted<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord, V> Sorted<K, V> {
    pub(super) fn push(&mut self, key: K, value: V) {
        self.entries.push((key, value));
    }

    /// Of several entries with one key the last is kept.
    pub(super) fn seal(&mut self) {
        // Stable and fast on runs that are in order, as shards and lanes give them.
        self.entries.sort_by(|a, b| a.0.cmp(&b.0));
        self.entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        self.entries.shrink_to_fit();
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let at = self.entries.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
        Some(&self.entries[at].1)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
impl<K: Ord, V> Sorted<K, V> {
    pub(super) fn remove(&mut self, key: &K) {
        self.entries.retain(|entry| entry.0 != *key);
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.iter_mut().rfind(|entry| entry.0 == *key).map(|entry| &mut entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_pushed_and_the_last_of_equals() {
        let mut map = Sorted::default();
        for (key, value) in [(5, "a"), (3, "b"), (9, "c"), (3, "d"), (3, "e"), (5, "f")] {
            map.push(key, value);
        }
        map.seal();
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&3, &"e"), (&5, &"f"), (&9, &"c")]);
        assert_eq!((map.get(&5), map.get(&4), map.len()), (Some(&"f"), None, 3));
    }
}
