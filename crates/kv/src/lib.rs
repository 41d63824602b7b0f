//! The key-value seam under a shard: a narrow trait, an in-memory model that loses what was not synced, RocksDB behind
//! a feature, and the conformance suite that both pass.

pub mod conformance;
pub mod memory;
#[cfg(feature = "rocksdb")]
pub mod rocks;

use std::ops::ControlFlow;
use std::rc::Rc;

use thiserror::Error;

/// A store of ordered byte keys, used by one thread. Reads see all committed batches.
pub trait Kv {
    type Batch: Batch;
    type Syncer: Syncer;

    /// Hands the value of `key`, or `None`, to `read` without copying it.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn get<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KvError>;

    /// Visits the keys in `[from, to)` in order until `visit` breaks.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn scan(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), KvError>;

    /// As [`Kv::scan`], where all keys of the range begin with `from` and the store was told that those belong together: it
    /// may know without a look that there are none.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn scan_group(
        &self,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        self.scan(from, to, visit)
    }

    fn batch(&self) -> Self::Batch;

    /// Applies all of `batch` or nothing, and empties it. Survives a kill of the process when this returns; survives a
    /// power cut after the next sync.
    ///
    /// # Errors
    /// Where the store cannot be written; nothing of the batch is visible then.
    fn commit(&self, batch: &mut Self::Batch) -> Result<(), KvError>;

    /// A handle that another thread can use to sync while this one goes on committing.
    fn syncer(&self) -> Self::Syncer;

    /// What is there of what was committed before the store was opened.
    fn kept(&self) -> Kept {
        Kept::All
    }
}

/// How much of what a store's user had committed before is known to be in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kept {
    /// Also what was durable may be missing: what others were told comes again unless the user takes care.
    Unknown,
    /// What no sync had covered may be missing: the power went, or the file system.
    Synced,
    All,
}

/// Changes to apply together. A later one to the same key wins.
pub trait Batch {
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn delete(&mut self, key: &[u8]);
    /// Number of changes.
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn clear(&mut self);
}

/// Makes committed batches durable.
pub trait Syncer: Send + 'static {
    /// All batches committed before this call are on disk when it returns.
    ///
    /// # Errors
    /// Where the disk refuses.
    fn sync(&self) -> Result<(), KvError>;
}

/// One store behind several handles of one thread: whoever made it keeps one, to look after it beside its user.
impl<K: Kv> Kv for Rc<K> {
    type Batch = K::Batch;
    type Syncer = K::Syncer;

    fn get<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KvError> {
        (**self).get(key, read)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), KvError> {
        (**self).scan(from, to, visit)
    }

    fn scan_group(
        &self,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        (**self).scan_group(from, to, visit)
    }

    fn batch(&self) -> Self::Batch {
        (**self).batch()
    }

    fn commit(&self, batch: &mut Self::Batch) -> Result<(), KvError> {
        (**self).commit(batch)
    }

    fn syncer(&self) -> Self::Syncer {
        (**self).syncer()
    }

    fn kept(&self) -> Kept {
        (**self).kept()
    }
}

/// Why the store failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KvError {
    #[error("no space left on the store's disk: {0}")]
    NoSpace(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("the store's disk failed: {0}")]
    Io(String),
    #[error("the store is in use by another process: {0}")]
    Locked(String),
    #[error("the store has lost what it had committed: {0}")]
    Lost(String),
    #[error("the store may not be used: {0}")]
    Denied(String),
}
