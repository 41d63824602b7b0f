//! Edges in memory: those that the turn changed, and the hot ones, also names known to be absent.

use std::ops::Range;

use kv::{Batch, Kv};
use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use rustc_hash::{FxBuildHasher, FxHashMap};
use types::id::InodeId;

use crate::complete::Complete;
use crate::error::Result;
use crate::schema::edge::{self, Edge};

type Hot = Cache<Slot, HotEdge, UnitWeighter, FxBuildHasher, DefaultLifecycle<Slot, HotEdge>>;

/// Parent and the name's hash. Names of one hash in one directory are next to impossible but handled: the turn's
/// changes chain them, the cache keeps the last one asked for.
type Slot = (InodeId, u64);

struct HotEdge {
    name: Box<[u8]>,
    edge: Option<Edge>,
}

/// A change of the turn. Its name lies in `Edges::names`, so that a change costs no allocation.
struct Changed {
    slot: Slot,
    name: Range<usize>,
    /// `None` is removed.
    edge: Option<Edge>,
    /// Another change of the same slot.
    next: Option<usize>,
}

/// The shard's view of its edges: the turn's changes over the cache over the store.
pub(crate) struct Edges {
    changed: Vec<Changed>,
    names: Vec<u8>,
    index: FxHashMap<Slot, usize>,
    /// Committed ones only.
    hot: Hot,
    complete: Complete,
    key: Vec<u8>,
}

impl Edges {
    pub(crate) fn new(capacity: usize) -> Self {
        let hot = Cache::with(capacity, capacity as u64, UnitWeighter, FxBuildHasher, DefaultLifecycle::default());
        Self {
            changed: Vec::new(),
            names: Vec::new(),
            index: FxHashMap::default(),
            hot,
            complete: Complete::default(),
            key: Vec::new(),
        }
    }

    pub(crate) fn get<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        if let Some(at) = self.find((parent, hash), name) {
            return Ok(self.changed[at].edge);
        }
        if let Some(hot) = self.hot.get(&(parent, hash))
            && *hot.name == *name
        {
            return Ok(hot.edge);
        }
        if self.complete.excludes(parent, hash) {
            return Ok(None);
        }
        let edge = self.read(kv, parent, hash, name)?;
        self.hot.insert((parent, hash), HotEdge { name: name.into(), edge });
        Ok(edge)
    }

    /// The same where the name is likely to be new: what is not there is not remembered, for it will be there soon.
    pub(crate) fn get_new<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        if let Some(at) = self.find((parent, hash), name) {
            return Ok(self.changed[at].edge);
        }
        if self.complete.excludes(parent, hash) {
            return Ok(None);
        }
        match self.hot.get(&(parent, hash)) {
            Some(hot) if *hot.name == *name => Ok(hot.edge),
            _ => self.read(kv, parent, hash, name),
        }
    }

    fn read<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        edge::ser_key(&mut self.key, parent, hash, name);
        let key = &self.key;
        Ok(kv.get(key, |value| value.map(|value| edge::deser_value(key, value)).transpose())??)
    }

    /// The directory has no entry at this moment.
    pub(crate) fn is_empty(&mut self, directory: InodeId) {
        self.complete.is_empty(directory);
    }

    /// The directory is gone.
    pub(crate) fn forget_directory(&mut self, directory: InodeId) {
        self.complete.forget(directory);
    }

    /// Puts the edge, or removes it.
    pub(crate) fn set(&mut self, parent: InodeId, hash: u64, name: &[u8], edge: Option<Edge>) {
        let slot = (parent, hash);
        if edge.is_some() {
            self.complete.add(parent, hash);
        }
        if let Some(at) = self.find(slot, name) {
            self.changed[at].edge = edge;
            return;
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let next = self.index.insert(slot, self.changed.len());
        self.changed.push(Changed { slot, name: start..self.names.len(), edge, next });
    }

    fn find(&self, slot: Slot, name: &[u8]) -> Option<usize> {
        let mut at = *self.index.get(&slot)?;
        while self.names[self.changed[at].name.clone()] != *name {
            at = self.changed[at].next?;
        }
        Some(at)
    }

    /// The turn's changes in `parent` from `hash` on, in the order of the store.
    pub(crate) fn changes_in(&self, parent: InodeId, hash: u64) -> Vec<(u64, &[u8], Option<Edge>)> {
        let mut changes: Vec<_> = self
            .changed
            .iter()
            .filter(|changed| changed.slot.0 == parent && changed.slot.1 >= hash)
            .map(|changed| (changed.slot.1, &self.names[changed.name.clone()], changed.edge))
            .collect();
        changes.sort_unstable_by_key(|&(hash, name, _)| (hash, name));
        changes
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    pub(crate) fn write<B: Batch>(&mut self, batch: &mut B) {
        for Changed { slot: (parent, hash), name, edge, .. } in &self.changed {
            edge::ser_key(&mut self.key, *parent, *hash, &self.names[name.clone()]);
            match edge {
                Some(edge) => batch.put(&self.key, &edge::ser_value(*edge)),
                None => batch.delete(&self.key),
            }
        }
    }

    /// What was written is committed.
    pub(crate) fn committed(&mut self) {
        for Changed { slot, name, edge, .. } in self.changed.drain(..) {
            self.hot.insert(slot, HotEdge { name: self.names[name].into(), edge });
        }
        self.names.clear();
        self.index.clear();
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.changed.clear();
        self.names.clear();
        self.index.clear();
        self.hot.clear();
        self.complete.clear();
    }
}

#[cfg(test)]
mod tests {
    use kv::memory::MemoryKv;
    use types::attr::FileType;

    use super::*;

    const D: InodeId = InodeId(20);

    fn edge(child: u64) -> Option<Edge> {
        Some(Edge { child: InodeId(child), kind: FileType::Regular })
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let kv = MemoryKv::new();
        let mut edges = Edges::new(16);
        let get = |edges: &mut Edges, name: &[u8]| edges.get(&kv, D, 5, name).expect("reads");
        for (name, child) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            edges.set(D, 5, name, edge(child));
        }
        edges.set(D, 5, b"b", None);
        let look = |edges: &mut Edges| {
            assert_eq!(get(edges, b"a"), edge(1));
            assert_eq!(get(edges, b"b"), None);
            assert_eq!(get(edges, b"c"), edge(3));
            assert_eq!(get(edges, b"d"), None);
        };
        look(&mut edges);
        assert_eq!(edges.changes_in(D, 5).len(), 3);
        let mut batch = kv.batch();
        edges.write(&mut batch);
        kv.commit(&mut batch).expect("commits");
        edges.committed();
        look(&mut edges);
        edges.reset();
        look(&mut edges);
    }

    #[test]
    fn a_failed_turn_is_forgotten_with_what_it_taught() {
        let kv = MemoryKv::new();
        let mut edges = Edges::new(16);
        edges.set(D, 5, b"a", edge(1));
        let mut batch = kv.batch();
        edges.write(&mut batch);
        kv.commit(&mut batch).expect("commits");
        edges.committed();
        // Emptied in a turn that fails: the directory is not empty after all.
        edges.set(D, 5, b"a", None);
        edges.is_empty(D);
        assert_eq!(edges.get_new(&kv, D, 5, b"a"), Ok(None));
        edges.reset();
        assert_eq!(edges.get_new(&kv, D, 5, b"a"), Ok(edge(1)));
    }
}
