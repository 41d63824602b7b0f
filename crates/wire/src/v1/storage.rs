//! Requests to a storage lane and their replies. The group and its generation are in the frame header.

use types::id::{GroupId, ObjectId};
use types::time::Timestamp;

use crate::codec::messages;

messages! {
    /// Bytes `[offset, offset + length)` of the object. The payload has what exists, up to the object's end; holes read
    /// as zeros. An object that does not exist reads as empty.
    Read { object: ObjectId, offset: u64, length: u32 }
    /// Of reads and truncates.
    ObjectReply {
        /// Raised at each change of the object while this service runs, and at each of its starts.
        version: u64,
        /// Bytes.
        size: u64,
    }
    /// The payload goes to `offset`; the object appears if it was not there. Acknowledged when the operating system
    /// has it; on disk after `Sync`.
    Write {
        object: ObjectId,
        offset: u64,
        /// Refused with `ESTALE` where the object has a higher version; 0 = any. It may be one of any object of this lane (see
        /// `ObjectId::lane`): an object that was not changed since then has a lower one.
        unchanged_since: u64,
        /// When the program wrote it, by the client's clock: the object's time of modification, within that before and now.
        /// 0: now.
        at: Timestamp,
        /// The object's time of modification is this at the earliest. 0: there is no bound.
        not_before: Timestamp,
        /// Its sender is going to ask for a `Sync` next. Where it costs less than that, the payload is on disk with the answer.
        durable: bool,
    }
    WriteReply {
        /// As in `ObjectReply`.
        version: u64,
        /// Bytes.
        size: u64,
        /// The payload is on disk, and the object's entry; what was written before need not be.
        durable: bool,
    }
    /// Makes the object exactly `size` bytes long, longer or shorter; makes it exist.
    Truncate { object: ObjectId, size: u64, unchanged_since: u64 }
    /// What the object has is on disk when this is answered.
    Sync {
        object: ObjectId,
        /// Version with which the first of the changes was acknowledged that the caller wants to be there; 0: none.
        since: u64,
    }
    SyncReply {
        /// They may not be: the host has lost its memory since, or the disk had refused something and the service was started
        /// again, and they were not on disk for all that is known.
        lost: bool,
    }
    /// The object is gone, or was not there: both are success. Later writes to it are refused with `ESTALE`.
    Remove { object: ObjectId }
    /// Several objects of this lane at once.
    Stat { objects: Vec<ObjectId> }
    StatReply {
        /// In the order asked.
        objects: Vec<ObjectStat>,
    }
    ObjectStat {
        exists: bool,
        version: u64,
        size: u64,
        /// Units of 512 bytes really allocated.
        blocks: u64,
        /// Of the last change of the data.
        mtime: Timestamp,
    }
    /// The objects of the lane's share of the header's group, in a stable order, from after `after`.
    List { after: Option<ObjectId>, count: u32 }
    ListReply { objects: Vec<ListedObject>, end: bool }
    ListedObject { object: ObjectId, size: u64, blocks: u64 }
    /// Capacity of the group's target.
    TargetStat { group: GroupId }
    TargetStatReply { total_bytes: u64, free_bytes: u64, total_inodes: u64, free_inodes: u64 }
    /// Where an object lies on disk, for people.
    Place { object: ObjectId }
    PlaceReply { path: crate::codec::Bytes, exists: bool }
    /// Changes the space of bytes `[offset, offset + length)`, as `fallocate(2)` does. Makes the object exist, except for
    /// holes. Refused with `EOPNOTSUPP` where the target's file system cannot do it.
    Allocate {
        object: ObjectId,
        offset: u64,
        length: u64,
        /// `FALLOC_FL_*` of `<linux/falloc.h>`: 0, `KEEP_SIZE`, `PUNCH_HOLE | KEEP_SIZE`, `ZERO_RANGE`,
        /// `ZERO_RANGE | KEEP_SIZE`.
        mode: u32,
        unchanged_since: u64,
    }
    /// Makes bytes `[offset, offset + length)` of the object like those of `source` from `source_offset` on, an object of
    /// the same group, whose end is followed by zeros. Holes are copied as holes, and a hole at the end of the range makes
    /// the object no longer than it was: the reply says how long it is.
    Copy {
        object: ObjectId,
        offset: u64,
        source: ObjectId,
        source_offset: u64,
        length: u64,
        unchanged_since: u64,
    }
    /// The first byte at or after `offset` that is data, or that is in a hole. An object's end begins a hole.
    Seek { object: ObjectId, offset: u64, hole: bool }
    SeekReply {
        /// In the object; absent where there is no data any more, or `offset` is not before the object's end.
        offset: Option<u64>,
    }
}

impl Write {
    /// One whose time its host notes, whoever else has changed the object.
    #[must_use]
    pub fn new(object: ObjectId, offset: u64) -> Self {
        Self { object, offset, unchanged_since: 0, at: Timestamp(0), not_before: Timestamp(0), durable: false }
    }
}
