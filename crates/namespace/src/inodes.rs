//! Inodes in memory: those that the turn changed, and the hot ones.

use std::ops::Range;

use kv::{Batch, Kv};
use rustc_hash::FxHashMap;
use types::id::InodeId;

use crate::error::Result;
use crate::hot::Hot;
use crate::schema::inode::{self, Inode};

/// The shard's view of its inodes: the turn's changes over the cache over the store. However often a turn changes an
/// inode, it is written once.
pub(crate) struct Inodes {
    /// In order of their first change; `None` is removed.
    changed: Vec<(InodeId, Option<Inode>)>,
    index: FxHashMap<InodeId, usize>,
    /// Committed ones only.
    hot: Hot<InodeId, Inode>,
    key: Vec<u8>,
}

impl Inodes {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { changed: Vec::new(), index: FxHashMap::default(), hot: Hot::new(capacity), key: Vec::new() }
    }

    /// See [`Hot::memory`].
    pub(crate) fn memory(&self) -> [Range<*const u8>; 2] {
        self.hot.memory()
    }

    /// Brings near what memory has of these.
    pub(crate) fn approach(&self, ids: &[InodeId]) {
        self.hot.approach_entries(ids, |_| ());
    }

    pub(crate) fn get<K: Kv>(&mut self, kv: &K, id: InodeId) -> Result<Option<Inode>> {
        if let Some(known) = self.peek(id) {
            return Ok(known);
        }
        inode::ser_key(&mut self.key, id);
        let key = &self.key;
        let inode = kv.get(key, |value| value.map(|value| inode::deser_value(key, value)).transpose())??;
        if let Some(inode) = inode {
            self.hot.insert(id, inode);
        }
        Ok(inode)
    }

    /// Without the store: `None` where memory does not know.
    #[expect(clippy::option_option, reason = "not known, known to be absent, known: three answers")]
    pub(crate) fn peek(&self, id: InodeId) -> Option<Option<Inode>> {
        if let Some(&at) = self.index.get(&id) {
            return Some(self.changed[at].1);
        }
        self.hot.get(&id).map(|inode| Some(*inode))
    }

    /// Takes what a caller read from the store by itself.
    pub(crate) fn warm(&mut self, id: InodeId, inode: Inode) {
        self.hot.insert(id, inode);
    }

    /// The inode, to be changed. `inode` is what `get` returned before: it counts where the turn has no change yet.
    pub(crate) fn modify(&mut self, id: InodeId, inode: Inode) -> &mut Inode {
        let at = *self.index.entry(id).or_insert_with(|| {
            self.changed.push((id, None));
            self.changed.len() - 1
        });
        self.changed[at].1.get_or_insert(inode)
    }

    pub(crate) fn remove(&mut self, id: InodeId) {
        match self.index.get(&id) {
            Some(&at) => self.changed[at].1 = None,
            None => {
                self.index.insert(id, self.changed.len());
                self.changed.push((id, None));
            }
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    pub(crate) fn write<B: Batch>(&mut self, batch: &mut B) {
        for (id, inode) in &self.changed {
            inode::ser_key(&mut self.key, *id);
            match inode {
                Some(inode) => batch.put(&self.key, &inode::ser_value(inode)),
                None => batch.delete(&self.key),
            }
        }
    }

    /// What was written is committed.
    pub(crate) fn committed(&mut self) {
        self.hot.approach(self.changed.iter().map(|(id, _)| id));
        for (id, inode) in self.changed.drain(..) {
            match inode {
                Some(inode) => self.hot.insert(id, inode),
                None => self.hot.remove(&id),
            }
        }
        self.index.clear();
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.changed.clear();
        self.index.clear();
        self.hot.clear();
    }
}
