//! Edges in memory: those that the turn changed, and the hot ones, also names known to be absent.

use std::collections::hash_map::Entry;
use std::ops::{ControlFlow, Range};

use kv::{Batch, Kv};
use rustc_hash::FxHashMap;
use types::id::InodeId;

use crate::complete::Complete;
use crate::error::Result;
use crate::hot::Hot;
use crate::schema::edge::{self, Edge};

/// Parent and the name's hash. Names of one hash in one directory are next to impossible but handled: the turn's
/// changes chain them, the cache keeps the last one asked for.
pub(crate) type Slot = (InodeId, u64);

struct HotEdge {
    name: HotName,
    edge: Option<Edge>,
}

/// Most names are short: these need no memory of their own.
enum HotName {
    Short(u8, [u8; SHORT_MAX]),
    Long(Box<[u8]>),
}

/// Bytes of a short name: with these, it takes no more room than an allocated one with its length and a tag.
const SHORT_MAX: usize = 22;

impl HotName {
    fn new(name: &[u8]) -> Self {
        let mut short = [0; SHORT_MAX];
        match short.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Self::Short(name.len() as u8, short)
            }
            None => Self::Long(name.into()),
        }
    }

    fn is(&self, name: &[u8]) -> bool {
        match self {
            Self::Short(len, short) => short[..usize::from(*len)] == *name,
            Self::Long(long) => **long == *name,
        }
    }
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
    hot: Hot<Slot, HotEdge>,
    complete: Complete,
    key: Vec<u8>,
    /// For `write`.
    order: Vec<(Slot, usize)>,
}

impl Edges {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            changed: Vec::new(),
            names: Vec::new(),
            index: FxHashMap::default(),
            hot: Hot::new(capacity),
            complete: Complete::default(),
            key: Vec::new(),
            order: Vec::new(),
        }
    }

    /// See [`Hot::memory`].
    pub(crate) fn memory(&self) -> [Range<*const u8>; 2] {
        self.hot.memory()
    }

    /// Brings near what memory has of these names, and tells `found` which inodes they stand for.
    pub(crate) fn approach(&self, slots: &[Slot], mut found: impl FnMut(InodeId)) {
        self.hot.approach_entries(slots, |hot| hot.edge.iter().for_each(|edge| found(edge.child)));
    }

    pub(crate) fn get<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        if let Some(at) = self.find((parent, hash), name) {
            return Ok(self.changed[at].edge);
        }
        if let Some(hot) = self.hot.get(&(parent, hash))
            && hot.name.is(name)
        {
            return Ok(hot.edge);
        }
        if self.complete.excludes(parent, hash) {
            return Ok(None);
        }
        let edge = self.read(kv, parent, hash, name)?;
        self.hot.insert((parent, hash), HotEdge { name: HotName::new(name), edge });
        Ok(edge)
    }

    /// As `get`, of a name that is likely to be new: what is not there is not remembered, for it will be there soon.
    pub(crate) fn get_new<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        if let Some(at) = self.find((parent, hash), name) {
            return Ok(self.changed[at].edge);
        }
        if self.complete.excludes(parent, hash) {
            return Ok(None);
        }
        match self.hot.get(&(parent, hash)) {
            Some(hot) if hot.name.is(name) => Ok(hot.edge),
            _ => self.read(kv, parent, hash, name),
        }
    }

    fn read<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, name: &[u8]) -> Result<Option<Edge>> {
        edge::ser_key(&mut self.key, parent, hash, name);
        let key = &self.key;
        Ok(kv.get(key, |value| value.map(|value| edge::deser_value(key, value)).transpose())??)
    }

    /// How many names of this hash the directory has, at least `enough` or all.
    pub(crate) fn count<K: Kv>(&mut self, kv: &K, parent: InodeId, hash: u64, enough: usize) -> Result<usize> {
        if self.complete.excludes(parent, hash) {
            return Ok(0);
        }
        let mut count = 0;
        let mut next = self.index.get(&(parent, hash)).copied();
        while let Some(at) = next {
            count += usize::from(self.changed[at].edge.is_some());
            next = self.changed[at].next;
        }
        let (mut from, mut to) = (Vec::new(), Vec::new());
        edge::ser_start(&mut from, parent, hash);
        edge::ser_start(&mut to, parent, hash + 1);
        kv.scan_group(&from, &to, |key, _| {
            if count >= enough {
                return ControlFlow::Break(());
            }
            let name = key.get(from.len()..).unwrap_or_default();
            count += usize::from(self.find((parent, hash), name).is_none());
            ControlFlow::Continue(())
        })?;
        Ok(count)
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
        let new = self.changed.len();
        let next = match self.index.entry(slot) {
            Entry::Vacant(entry) => {
                entry.insert(new);
                None
            }
            Entry::Occupied(mut entry) => {
                if let Some(at) = find_in_chain(&self.changed, &self.names, *entry.get(), name) {
                    self.changed[at].edge = edge;
                    return;
                }
                Some(entry.insert(new))
            }
        };
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.changed.push(Changed { slot, name: start..self.names.len(), edge, next });
    }

    fn find(&self, slot: Slot, name: &[u8]) -> Option<usize> {
        let first = *self.index.get(&slot)?;
        find_in_chain(&self.changed, &self.names, first, name)
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

    /// In the order of the keys, nearly: the store finds the place of each near that of the one before, which it has just
    /// looked at.
    pub(crate) fn write<B: Batch>(&mut self, batch: &mut B) {
        self.order.clear();
        self.order.extend(self.changed.iter().zip(0..).map(|(changed, at)| (changed.slot, at)));
        self.order.sort_unstable();
        for &(_, at) in &self.order {
            let Changed { slot: (parent, hash), name, edge, .. } = &self.changed[at];
            edge::ser_key(&mut self.key, *parent, *hash, &self.names[name.clone()]);
            match edge {
                Some(edge) => batch.put(&self.key, &edge::ser_value(*edge)),
                None => batch.delete(&self.key),
            }
        }
    }

    /// What was written is committed.
    pub(crate) fn committed(&mut self) {
        self.hot.approach(self.changed.iter().map(|changed| &changed.slot));
        for Changed { slot, name, edge, .. } in self.changed.drain(..) {
            self.hot.insert(slot, HotEdge { name: HotName::new(&self.names[name]), edge });
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

/// The change of `name` among those of one slot, of which `first` is the latest.
fn find_in_chain(changed: &[Changed], names: &[u8], first: usize, name: &[u8]) -> Option<usize> {
    let mut at = first;
    while names[changed[at].name.clone()] != *name {
        at = changed[at].next?;
    }
    Some(at)
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
