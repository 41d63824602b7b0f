//! The seam under a lane: where objects are kept.

use std::path::PathBuf;

use ring::buf::{Buf, Slice};
use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;

pub(crate) mod files;
mod folders;
mod listing;
mod removals;
mod syscall;
#[cfg(test)]
mod tests;

/// What is known of a stored object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    /// Bytes.
    pub(crate) size: u64,
    /// Units of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) mtime: Timestamp,
}

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<(ObjectId, Stored)>,
    /// Nothing follows.
    pub(crate) end: bool,
}

/// Which objects a lane owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) lane: usize,
    pub(crate) lanes: usize,
}

impl Share {
    pub(crate) fn owns(self, object: ObjectId) -> bool {
        object.lane(self.lanes) == self.lane
    }
}

/// Objects of one target, for one lane. The caller orders what conflicts: no two changes of the same bytes, and no
/// truncate or remove beside anything else, are asked for at once. All calls leave the lane's thread free while the
/// disk works.
pub(crate) trait ObjectStore {
    /// The bytes of `[offset, offset + len)` that exist, and the object's size; both empty where there is no object.
    /// They are at the beginning of `room` where it is long enough for them.
    async fn read(&self, object: ObjectId, offset: u64, len: u32, room: Option<Buf>) -> Result<(Buf, u64), Errno>;

    /// Puts `data` at `offset`, making the object where it was not. The object's size after it. After an error any
    /// part may have been written.
    async fn write(&self, object: ObjectId, offset: u64, data: Slice) -> Result<u64, Errno>;

    /// Makes the object exist with exactly `size` bytes.
    async fn truncate(&self, object: ObjectId, size: u64) -> Result<(), Errno>;

    /// In the order asked; `None` for what does not exist.
    async fn stat(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno>;

    /// All that was changed before is on disk. Errors of earlier write-back come out here or have come to
    /// [`crate::failures::Failures`].
    async fn sync(&self, object: ObjectId) -> Result<(), Errno>;

    /// The object is gone, durably; it is no error that it was not there.
    async fn remove(&self, object: ObjectId) -> Result<(), Errno>;

    /// Up to `count` objects of the share after `after`, in a stable order.
    async fn list(&self, after: Option<ObjectId>, count: usize, share: Share) -> Result<Page, Errno>;

    /// Where the object is kept, for people, and whether it is there.
    async fn place(&self, object: ObjectId) -> Result<(PathBuf, bool), Errno>;

    /// Writes everything that is dirty to disk, before a stop.
    async fn sync_all(&self);
}
