//! The seam under a lane: where objects are kept.

use std::path::PathBuf;
use std::time::Instant;

use ring::buf::{Buf, Slice};
use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;
use wire::sums::Sums;

use self::stamp::Stamp;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod bad_sector_tests;
mod checked;
#[cfg(test)]
mod cleaning_tests;
pub(crate) mod copy;
mod entry_cache;
mod extents;
mod failed;
#[cfg(test)]
mod failed_tests;
pub(crate) mod files;
mod folders;
mod in_place;
#[cfg(test)]
mod in_place_tests;
mod keeping;
#[cfg(test)]
mod kill_tests;
#[cfg(test)]
mod kill_work;
mod listing;
#[cfg(test)]
mod listing_tests;
mod look;
mod lost;
#[cfg(test)]
mod lost_tests;
mod opening;
mod past_cache;
#[cfg(test)]
mod past_cache_tests;
mod read_ahead;
mod recompute;
#[cfg(test)]
mod refused_tests;
mod removals;
mod scatter;
mod settle;
pub(crate) mod sidecar;
mod sidecar_file;
mod source;
mod space;
#[cfg(test)]
mod space_tests;
pub(crate) mod stamp;
#[cfg(test)]
mod sums_tests;
mod syscall;
#[cfg(test)]
mod tests;
mod unreadable;

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
    /// Why some of what there is on the way to these objects, or of what they are, could not be read.
    pub(crate) failed: Option<Errno>,
}

/// What a look at a range of an object found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checked {
    /// Of the object, in bytes; 0 where there is none, or nothing can be verified.
    pub(crate) size: u64,
    /// That were looked at.
    pub(crate) bytes: u64,
    /// Where corrupt blocks begin, in bytes.
    pub(crate) corrupt: Vec<u64>,
    /// Blocks without a right checksum, for an innocent reason: they have one now.
    pub(crate) adopted: u64,
    /// They will be believed exactly only after [`ObjectStore::believe`].
    pub(crate) in_doubt: bool,
    /// Checksums could not be written: they stay in doubt.
    pub(crate) unwritten: Option<Errno>,
}

/// What became of checksums whose object was not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Leftover {
    Removed,
    /// It is there.
    Kept,
    /// It should be there: where blocks begin that are lost, as many as are named, and how many there are.
    Lost {
        named: Vec<u64>,
        count: u64,
    },
}

/// What a read finds.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) data: Buf,
    /// CRC32C of the data, where it is known from the blocks'.
    pub(crate) crc: Option<u32>,
    /// Of the object, in bytes.
    pub(crate) size: u64,
}

impl Found {
    pub(crate) fn nothing(size: u64) -> Self {
        Self { data: Buf::with_capacity(0), crc: None, size }
    }
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) bytes: Slice,
    /// Of the bytes, where they are known.
    pub(crate) sums: Option<Sums>,
    /// They are to be on the disk, if that can be had at little more cost.
    pub(crate) durable: bool,
}

impl From<Slice> for Data {
    fn from(bytes: Slice) -> Self {
        Self { bytes, sums: None, durable: false }
    }
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// Bytes of the object.
    pub(crate) size: u64,
    /// What was written is on the disk.
    pub(crate) durable: bool,
}

/// Which objects a lane owns: those whose hash falls to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneShare {
    pub(crate) lane: usize,
    pub(crate) lanes: usize,
}

impl LaneShare {
    pub(crate) fn owns(self, object: ObjectId) -> bool {
        object.lane(self.lanes) == self.lane
    }
}

/// Objects of one target, for one lane. The caller orders what conflicts: no two changes of the same block of 4 KiB, no read
/// of one beside a change, and no truncate or remove beside anything else, are asked for at once. All calls leave the lane's
/// thread free while the disk works.
pub(crate) trait ObjectStore {
    /// The bytes of `[offset, offset + len)` that exist; none where there is no object, unless it is lost. They are at the
    /// beginning of `room` where it is long enough for them.
    async fn read(&self, object: ObjectId, offset: u64, len: u32, room: Option<Buf>) -> Result<Found, Errno>;

    /// Puts `data` at `offset`, making the object where it was not. After an error any part may have been written.
    async fn write(&self, object: ObjectId, offset: u64, data: Data) -> Result<Written, Errno>;

    /// Its time of modification, where that is at hand: it was used lately.
    fn last_modified(&self, object: ObjectId) -> Option<Timestamp>;

    /// The object, which was just written, gets the time of modification that it is to have.
    async fn stamp(&self, object: ObjectId, stamp: Stamp) -> Result<(), Errno>;

    /// Makes the object exist with exactly `size` bytes.
    async fn truncate(&self, object: ObjectId, size: u64) -> Result<(), Errno>;

    /// Changes the space of `[offset, offset + len)`. The object's size after it; 0 where there is no object.
    async fn allocate(&self, object: ObjectId, offset: u64, len: u64, what: Allocation) -> Result<u64, Errno>;

    /// Makes a range of `object` like one of `source`, which may be another lane's. The object's size after it: it never
    /// gets shorter, and where the range ends with a hole it does not get longer for that. After an error any part may
    /// have been copied.
    async fn copy(&self, source: ObjectId, object: ObjectId, range: copy::Range) -> Result<u64, Errno>;

    /// The first byte from `offset` on that is data, or (`hole`) that is not; the object's end is a hole. `None` where
    /// there is none such before the end.
    async fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, Errno>;

    /// In the order asked; `None` for what does not exist.
    async fn stat(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno>;

    /// As `stat`, for who goes by it: what is lost, or missing at an object's end, counts as there, since reading it is
    /// an error.
    async fn stat_whole(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno>;

    /// All that was changed before is on disk. Errors of earlier write-back come out here or have come to
    /// [`crate::failures::Failures`].
    async fn sync(&self, object: ObjectId) -> Result<(), Errno>;

    /// The object is gone, durably; it is no error that it was not there.
    async fn remove(&self, object: ObjectId) -> Result<(), Errno>;

    /// Up to `count` objects of the share after `after`, in a stable order.
    async fn list(&self, after: Option<ObjectId>, count: usize, share: LaneShare) -> Result<Page, Errno>;

    /// Where the object is kept, for people, and whether it is there.
    async fn place(&self, object: ObjectId) -> Result<(PathBuf, bool), Errno>;

    /// Verifies a range of whole blocks and changes no data; where checksums are missing or in doubt, they are made.
    async fn check(&self, object: ObjectId, offset: u64, len: u64) -> Result<Checked, Errno>;

    /// Where [`Self::check`] has something to look at next, from `offset` on, the beginning of a block: from there to it are
    /// holes and no checksums. `None` where nothing follows.
    async fn next_to_check(&self, object: ObjectId, offset: u64) -> Result<Option<u64>, Errno>;

    /// For [`Self::believe`], to be asked before anything of an object is gone over.
    fn going_over(&self) -> u64;

    /// All of the object was gone over by [`Self::check`] since [`Self::going_over`] said so: its checksums are right, unless
    /// some could not be written since. Alone on the object.
    async fn believe(&self, object: ObjectId, since: u64) -> Result<(), Errno>;

    /// Up to `count` objects of the share after `after` that have checksums, whether the objects are there or not.
    async fn list_checksums(&self, after: Option<ObjectId>, count: usize, share: LaneShare) -> Result<Page, Errno>;

    /// Removes the checksums of an object that is not there, unless they say that it should be. Alone on the object.
    async fn remove_leftover(&self, object: ObjectId) -> Result<Leftover, Errno>;

    /// Checksums are kept and verified.
    fn keeps_checksums(&self) -> bool;

    /// The next object to go over, since its checksums are in doubt.
    fn doubtful(&self) -> Option<ObjectId>;

    /// Makes the checksums of objects that were not changed after `idle_since` hold over a loss of power.
    async fn clean(&self, idle_since: Instant);

    /// Writes everything that is dirty to disk, before a stop. False where the disk refuses something.
    async fn write_out(&self) -> bool;

    /// That, and makes all checksums hold over a loss of power.
    #[cfg(test)]
    async fn sync_all(&self);
}
