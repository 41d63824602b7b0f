//! One target as one lane serves it: every rule about a request on an object, between the protocol and the engine.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cluster::capacity::Capacity;
use ring::buf::Buf;
use ring::sync::Permit;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;
use wire::codec::Bytes;
use wire::frame::PAYLOAD_MAX;
use wire::v1::storage::{
    Allocate, Copy, List, ListReply, ListedObject, ObjectReply, ObjectStat, PlaceReply, Read, Seek, SeekReply,
    StatReply, Sync, SyncReply, TargetStatReply, Truncate, Write, WriteReply,
};

use crate::engine::copy::Range;
use crate::engine::stamp::{Stamp, coarse_time};
use crate::engine::{Data, Found, LaneShare, ObjectStore, Stored, Written};
use crate::failures::Failures;
use crate::memory::Memory;
use crate::metrics::{Waits, in_queue};
use crate::object_table::{ObjectTable, Running};
use crate::order::Access;
use crate::queue::{AtDisk, Queue};
use crate::scrub::Scrub;
use crate::target::Target;

/// Most objects in one page of a listing.
const LIST_MAX: u32 = 4096;
/// Most objects in one request for attributes.
const STAT_MAX: usize = 4096;

pub(crate) struct Served<S> {
    pub(crate) target: Arc<Target>,
    pub(crate) store: S,
    pub(crate) table: Rc<ObjectTable>,
    pub(crate) failures: Rc<Failures>,
    pub(crate) share: LaneShare,
    pub(crate) queue: Rc<Queue>,
    /// Bounds the memory of the reads in flight.
    pub(crate) read_memory: Memory,
    pub(crate) waits: Waits,
    pub(crate) scrub: Scrub,
}

impl<S: ObjectStore> Served<S> {
    /// Into `room` where there is one, if it is long enough. What is found takes memory until the permit for it is given back.
    pub(crate) async fn read(&self, request: &Read, room: Option<Buf>) -> Result<(ObjectReply, Found, Permit), Errno> {
        self.target.check_present()?;
        if request.length as usize > PAYLOAD_MAX {
            return Err(Errno::EINVAL);
        }
        let end = request.offset.checked_add(u64::from(request.length)).ok_or(Errno::EINVAL)?;
        let memory = in_queue(&self.waits.memory, self.read_memory.acquire(request.length as usize)).await;
        let _turn = self.reading(request.object, Access::read(request.offset, end)).await;
        let version = self.table.version(request.object);
        if self.table.is_buried(request.object) {
            return Ok((ObjectReply { version, size: 0 }, Found::nothing(0), memory));
        }
        let found = self.store.read(request.object, request.offset, request.length, room).await?;
        Ok((ObjectReply { version, size: found.size }, found, memory))
    }

    pub(crate) async fn write(&self, request: &Write, data: Data) -> Result<WriteReply, Errno> {
        self.target.check_present()?;
        if data.bytes.is_empty() {
            // It would change nothing but what is taken for the object's size.
            return Err(Errno::EINVAL);
        }
        let end = request.offset.checked_add(data.bytes.len() as u64).ok_or(Errno::EFBIG)?;
        let _turn = self.changing(request.object, Access::write(request.offset, end)).await;
        self.check_changeable(request.object, request.unchanged_since)?;
        let failures = self.failures.count();
        let stamp = self.stamp(request);
        let mut outcome = self.store.write(request.object, request.offset, data).await;
        if outcome.is_ok()
            && let Some(stamp) = stamp
        {
            outcome = self.store.stamp(request.object, stamp).await.and(outcome);
        }
        // A write that failed may have changed a part.
        let version = self.changed(request.object, failures);
        let Written { size, durable } = outcome?;
        Ok(WriteReply { version, size, durable })
    }

    /// What the time of modification has to be after the write, where the host's clock may not have it so.
    fn stamp(&self, request: &Write) -> Option<Stamp> {
        let Write { object, at, not_before, .. } = *request;
        if at != Timestamp(0) {
            return Some(Stamp { at: Some((self.store.last_modified(object), at)), not_before });
        }
        // The kernel notes none before this.
        (not_before > coarse_time()).then_some(Stamp { at: None, not_before })
    }

    pub(crate) async fn truncate(&self, request: &Truncate) -> Result<ObjectReply, Errno> {
        self.target.check_present()?;
        let _turn = self.changing(request.object, Access::Barrier).await;
        self.check_changeable(request.object, request.unchanged_since)?;
        let failures = self.failures.count();
        let outcome = self.store.truncate(request.object, request.size).await;
        let version = self.changed(request.object, failures);
        outcome?;
        Ok(ObjectReply { version, size: request.size })
    }

    pub(crate) async fn allocate(&self, request: &Allocate) -> Result<ObjectReply, Errno> {
        self.target.check_present()?;
        let what = Allocation::from_mode(request.mode)?;
        if request.length == 0 {
            return Err(Errno::EINVAL);
        }
        let end = request.offset.checked_add(request.length).ok_or(Errno::EFBIG)?;
        let _turn = self.changing(request.object, Access::write(request.offset, end)).await;
        self.check_changeable(request.object, request.unchanged_since)?;
        let failures = self.failures.count();
        let outcome = self.store.allocate(request.object, request.offset, request.length, what).await;
        // One that failed may have changed a part.
        let version = self.changed(request.object, failures);
        Ok(ObjectReply { version, size: outcome? })
    }

    /// The order is that of the target alone: what is written to the source meanwhile may or may not be copied.
    pub(crate) async fn copy(&self, request: &Copy) -> Result<ObjectReply, Errno> {
        self.target.check_present()?;
        let &Copy { object, offset, source, source_offset, length, unchanged_since } = request;
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        let _turn = self.changing(object, Access::write(offset, end)).await;
        self.check_changeable(object, unchanged_since)?;
        let failures = self.failures.count();
        let outcome = self.store.copy(source, object, Range { source_offset, offset, len: length }).await;
        // One that failed may have copied a part.
        let version = self.changed(object, failures);
        Ok(ObjectReply { version, size: outcome? })
    }

    pub(crate) async fn seek(&self, request: &Seek) -> Result<SeekReply, Errno> {
        self.target.check_present()?;
        let _turn = self.reading(request.object, Access::PRESENT).await;
        if self.table.is_buried(request.object) {
            return Ok(SeekReply { offset: None });
        }
        Ok(SeekReply { offset: self.store.seek(request.object, request.offset, request.hole).await? })
    }

    /// An error of data that was acknowledged before comes out once for each connection that asks, unless it wants only what
    /// was changed after that.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) async fn sync(&self, &Sync { object, since }: &Sync, connection: u64) -> Result<SyncReply, Errno> {
        self.target.check_present()?;
        let _turn = self.changing(object, Access::PRESENT).await;
        if self.table.is_buried(object) {
            return Ok(SyncReply { lost: false });
        }
        let begun = Instant::now();
        let synced = self.store.sync(object).await;
        self.waits.sync.observe(begun.elapsed());
        let told = self.failures.tell(object, connection, since);
        // Whoever meets an error that passes asks again, and is told no second time.
        told.and(synced)?;
        let lost = self.target.may_have_lost(since) || self.is_unknown(since);
        if lost {
            let target = self.target.id();
            tracing::error!(%object, %target,
                "what was written may not be there: since then the host has lost its memory, the disk has refused something, or an \
                 older copy was put back");
        }
        Ok(SyncReply { lost })
    }

    pub(crate) async fn remove(&self, object: ObjectId) -> Result<(), Errno> {
        self.target.check_present()?;
        // No place at the disk: most of the time it waits for others to be synced with.
        let _turn = self.turn(object, Access::Barrier).await;
        // Also where the disk refuses: the file is gone from the namespace, so nothing may write to its objects.
        self.table.bury(object);
        self.store.remove(object).await
    }

    pub(crate) async fn stat(&self, objects: &[ObjectId]) -> Result<StatReply, Errno> {
        self.target.check_present()?;
        if objects.len() > STAT_MAX {
            return Err(Errno::E2BIG);
        }
        let _place = self.queue.read().await;
        // From before the look: who writes on if nothing has changed since that version must not have seen less than it has.
        let versions: Vec<u64> = objects.iter().map(|&object| self.table.version(object)).collect();
        let found = self.store.stat_whole(objects).await?;
        let describe = |((&object, version), found): ((&ObjectId, u64), Option<Stored>)| {
            let found = found.filter(|_| !self.table.is_buried(object));
            let Stored { size, blocks, mtime } = found.unwrap_or(Stored { size: 0, blocks: 0, mtime: Timestamp(0) });
            ObjectStat { exists: found.is_some(), version, size, blocks, mtime }
        };
        Ok(StatReply { objects: objects.iter().zip(versions).zip(found).map(describe).collect() })
    }

    pub(crate) async fn list(&self, request: &List) -> Result<ListReply, Errno> {
        self.target.check_present()?;
        let _place = self.queue.read().await;
        let count = request.count.clamp(1, LIST_MAX) as usize;
        let page = self.store.list(request.after, count, self.share).await?;
        // Who asks takes what is not named for not there.
        page.failed.map_or(Ok(()), Err)?;
        let listed =
            |(object, stored): (ObjectId, Stored)| ListedObject { object, size: stored.size, blocks: stored.blocks };
        Ok(ListReply { objects: page.objects.into_iter().map(listed).collect(), end: page.end })
    }

    /// Of one that is away: nothing, and no error. Else a mount could not say how much space the others have.
    pub(crate) fn target_stat(&self) -> TargetStatReply {
        let Capacity { total_bytes, free_bytes, total_inodes, free_inodes } = self.target.capacity();
        TargetStatReply { total_bytes, free_bytes, total_inodes, free_inodes }
    }

    pub(crate) async fn place(&self, object: ObjectId) -> Result<PlaceReply, Errno> {
        self.target.check_present()?;
        let _place = self.queue.read().await;
        let (path, exists) = self.store.place(object).await?;
        Ok(PlaceReply { path: Bytes(path.into_os_string().into_encoded_bytes()), exists })
    }

    /// Waits for what came earlier and conflicts.
    async fn turn(&self, object: ObjectId, access: Access) -> Running {
        in_queue(&self.waits.order, self.table.begin(object, access)).await
    }

    /// Its turn at the object, and then a place at the disk. Who has a place waits for no turn.
    async fn reading(&self, object: ObjectId, access: Access) -> (Running, AtDisk) {
        let turn = self.turn(object, access).await;
        (turn, self.queue.read().await)
    }

    /// Its turn at the object, and then a place at the disk, for who changes something, or sees that it is kept.
    async fn changing(&self, object: ObjectId, access: Access) -> (Running, AtDisk) {
        let turn = self.turn(object, access).await;
        (turn, self.queue.change().await)
    }

    /// Notes a change that began when there were so many failures, and answers its version.
    fn changed(&self, object: ObjectId, failures: u64) -> u64 {
        let version = self.table.changed(object);
        self.failures.changed(object, version, failures);
        version
    }

    /// Whether nobody can have been told this version here: then it is of what became of the target before an older copy of it
    /// was put back, and says nothing.
    fn is_unknown(&self, version: u64) -> bool {
        version > self.table.newest()
    }

    fn check_changeable(&self, object: ObjectId, unchanged_since: u64) -> Result<(), Errno> {
        let changed = unchanged_since != 0 && self.table.version(object) > unchanged_since;
        if changed || self.is_unknown(unchanged_since) || self.table.is_buried(object) {
            Err(Errno::ESTALE)
        } else {
            Ok(())
        }
    }
}
