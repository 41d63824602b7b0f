//! Records that are rarely touched (attributes, wide layouts, symlink targets, orphans, sessions): the turn's changes
//! over the store, without a cache.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kv::{Batch, Kv, KvError};

/// The turn's changes of cold records by key; `None` is removed.
#[derive(Default)]
pub(crate) struct Cold {
    changed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Cold {
    pub(crate) fn get<K: Kv>(&self, kv: &K, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.changed.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => kv.get(key, |value| value.map(<[u8]>::to_vec)),
        }
    }

    /// The keys in `[from, to)`, in order, and how long their values are. For ranges with few keys: the values, which may be
    /// long, are not copied.
    pub(crate) fn lengths<K: Kv>(&self, kv: &K, from: &[u8], to: &[u8]) -> Result<BTreeMap<Vec<u8>, usize>, KvError> {
        let mut lengths = BTreeMap::new();
        kv.scan(from, to, |key, value| {
            lengths.insert(key.to_vec(), value.len());
            ControlFlow::Continue(())
        })?;
        for (key, changed) in self.changed.range(from.to_vec()..to.to_vec()) {
            match changed {
                Some(value) => lengths.insert(key.clone(), value.len()),
                None => lengths.remove(key),
            };
        }
        Ok(lengths)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.put_owned(key, value.to_vec());
    }

    /// As [`Self::put`], without a copy of the value.
    pub(crate) fn put_owned(&mut self, key: &[u8], value: Vec<u8>) {
        self.changed.insert(key.to_vec(), Some(value));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.changed.insert(key.to_vec(), None);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    pub(crate) fn write<B: Batch>(&self, batch: &mut B) {
        for (key, changed) in &self.changed {
            match changed {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
    }

    /// What was written is committed, or forgotten.
    pub(crate) fn clear(&mut self) {
        self.changed.clear();
    }
}
