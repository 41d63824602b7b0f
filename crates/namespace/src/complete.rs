//! Directories that were seen empty: of these, memory knows every name since, so that a name that is not there needs no
//! look into the store. Most names are made in such directories: a new one that is being filled.

use rustc_hash::{FxHashMap, FxHashSet};
use types::id::InodeId;

/// Hashes kept for all directories together, some 16 MiB. More than that, and all is forgotten.
const HASHES_MAX: usize = 1 << 20;

/// For each known directory the hashes of all its names, and perhaps of some that went: never fewer.
#[derive(Default)]
pub(crate) struct Complete {
    directories: FxHashMap<InodeId, FxHashSet<u64>>,
    hashes: usize,
}

impl Complete {
    /// The directory has no entry at this moment. If the turn fails, that may not hold: then `clear`.
    pub(crate) fn is_empty(&mut self, directory: InodeId) {
        if self.directories.len() >= HASHES_MAX {
            self.clear();
        }
        let hashes = self.directories.entry(directory).or_default();
        // Emptied, it would keep the memory of its largest size, which nobody counts.
        self.hashes -= std::mem::take(hashes).len();
    }

    /// The directory got a name of this hash.
    pub(crate) fn add(&mut self, directory: InodeId, hash: u64) {
        if let Some(hashes) = self.directories.get_mut(&directory)
            && hashes.insert(hash)
        {
            self.hashes += 1;
            if self.hashes > HASHES_MAX {
                self.clear();
            }
        }
    }

    /// The directory has no name of this hash.
    pub(crate) fn excludes(&self, directory: InodeId, hash: u64) -> bool {
        self.directories.get(&directory).is_some_and(|hashes| !hashes.contains(&hash))
    }

    /// The directory is gone.
    pub(crate) fn forget(&mut self, directory: InodeId) {
        if let Some(hashes) = self.directories.remove(&directory) {
            self.hashes -= hashes.len();
        }
    }

    /// Forgets everything, and gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: InodeId = InodeId(7);

    #[test]
    fn excludes_only_what_it_must_know() {
        let mut complete = Complete::default();
        assert!(!complete.excludes(D, 1), "never seen");
        complete.add(D, 1);
        complete.is_empty(D);
        assert!(complete.excludes(D, 1));
        complete.add(D, 1);
        assert!(!complete.excludes(D, 1) && complete.excludes(D, 2));
        complete.is_empty(D);
        assert!(complete.excludes(D, 1));
        complete.add(D, 1);
        complete.forget(D);
        assert!(!complete.excludes(D, 2));
        assert_eq!(complete.hashes, 0);
    }

    #[test]
    fn an_emptied_directory_keeps_no_memory() {
        let mut complete = Complete::default();
        complete.is_empty(D);
        for hash in 0..1000 {
            complete.add(D, hash);
        }
        complete.is_empty(D);
        assert_eq!((complete.hashes, complete.directories[&D].capacity()), (0, 0));
    }

    #[test]
    fn is_bounded() {
        let mut complete = Complete::default();
        complete.is_empty(D);
        for hash in 0..=HASHES_MAX as u64 {
            complete.add(D, hash);
        }
        assert!(!complete.excludes(D, u64::MAX) && complete.hashes == 0);
    }
}
