//! The membership's records in a key-value store.

use std::ops::ControlFlow;

use kv::{Batch, Kv, KvError, Syncer};

/// Keys begin with a letter: all lie between these.
const FROM: &[u8] = b"";
const TO: &[u8] = &[0x80];

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// Records on disk, used by one thread.
pub(crate) struct Store<K: Kv> {
    kv: K,
    syncer: K::Syncer,
    batch: K::Batch,
}

impl<K: Kv> Store<K> {
    pub(crate) fn new(kv: K) -> Self {
        let (syncer, batch) = (kv.syncer(), kv.batch());
        Self { kv, syncer, batch }
    }

    /// All of them, by key.
    pub(crate) fn records(&self) -> Result<Vec<Record>, KvError> {
        let mut records = Vec::new();
        self.kv.scan(FROM, TO, |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(records)
    }

    /// Adds changes to what the next `save` writes.
    pub(crate) fn add(&mut self, records: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (key, value) in records {
            match value {
                Some(value) => self.batch.put(&key, &value),
                None => self.batch.delete(&key),
            }
        }
    }

    /// All that was added is on disk when this returns; false where there was nothing.
    pub(crate) fn save(&mut self) -> Result<bool, KvError> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        self.kv.commit(&mut self.batch)?;
        self.syncer.sync()?;
        Ok(true)
    }
}
