//! The membership's records in a key-value store.

use std::ops::ControlFlow;

use cluster::event::Moment;
use cluster::membership::{Membership, Rules};
use conf::Fatal;
use kv::{Batch, Kv, KvError, Syncer};

/// Keys begin with a letter: all lie between these.
const FROM: &[u8] = b"";
const TO: &[u8] = &[0x80];

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

    /// What the records say; `None` where there are none.
    ///
    /// # Errors
    /// Where the store is damaged.
    pub(crate) fn restore(&self, rules: Rules, now: Moment) -> Result<Option<Membership>, Fatal> {
        let mut records = Vec::new();
        let scanned = self.kv.scan(FROM, TO, |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| Fatal::usage(error.to_string()))?;
        Membership::restore(records, rules, now).map_err(|error| Fatal::usage(error.to_string()))
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
