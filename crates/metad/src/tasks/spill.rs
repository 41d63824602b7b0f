//! Moves the contents of files that grow out of the metadata to their objects. Until the shard has committed that they
//! are there, they are in its store, so a crash of either side loses nothing: the move begins anew.
//!
//! Objects may be there already from a move that did not end, with bytes that the file has lost since: what is not the
//! file's is cut off.

use std::rc::Rc;
use std::time::Duration;

use layout::{extents, object_size};
use namespace::shard::inline::{Grown, Growth};
use ring::buf::Slice;
use ring::sync::{Permit, Semaphore};
use tracing::{error, warn};
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use wire::v1::storage::{Stat, Sync, SyncReply, Truncate, Write};

use crate::tasks::storage::{Failure, Storage};
use crate::turn::Core;

/// Moves under way at a time: each has the contents of a file in memory.
const IN_FLIGHT_MAX: usize = 128;
/// First and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// After so long without success, those who wait may do something else.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Spill {
    core: Rc<Core>,
    storage: Rc<Storage>,
    permits: Rc<Semaphore>,
}

impl Spill {
    pub(crate) fn new(core: Rc<Core>, storage: Rc<Storage>) -> Rc<Self> {
        Rc::new(Self { core, storage, permits: Rc::new(Semaphore::new(IN_FLIGHT_MAX)) })
    }

    /// Moves what the shard wants to have moved.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.core.to_grow.notified().await;
            for inode in self.core.take_growing() {
                let permit = self.permits.acquire(1).await;
                self.start(inode, permit);
            }
        }
    }

    fn start(self: &Rc<Self>, inode: InodeId, permit: Permit) {
        let this = Rc::clone(self);
        ring::spawn(async move {
            let grown = this.grow(inode).await;
            if grown == Grown::Done {
                this.core.metrics.grown.inc();
            }
            this.core.grown(inode, grown);
            drop(permit);
        });
    }

    async fn grow(&self, inode: InodeId) -> Grown {
        let growth = match self.core.growth(inode) {
            Ok(Some(growth)) => growth,
            Ok(None) => return Grown::Again,
            Err(error) => {
                error!(%inode, %error, "the contents of a file that grows cannot be read");
                return Grown::Refused(error.errno());
            }
        };
        if layout::validate(&growth.layout).is_err() {
            error!(%inode, "a file that grows has no possible layout");
            return Grown::Refused(Errno::EIO);
        }
        let (deadline, mut pause) = (ring::now() + PATIENCE, PAUSE_MIN);
        loop {
            match self.store(inode, &growth).await {
                Ok(()) => return Grown::Done,
                Err(Failure::Errno(errno)) => return Grown::Refused(errno),
                Err(reason @ (Failure::Busy | Failure::Missed(_))) if ring::now() >= deadline => {
                    warn!(%inode, %reason, "a file cannot grow out of the metadata");
                    return Grown::Again;
                }
                Err(Failure::Busy | Failure::Missed(_)) => {}
            }
            ring::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Makes the objects what the contents say.
    async fn store(&self, inode: InodeId, growth: &Growth) -> Result<(), Failure> {
        let stores =
            objects(growth).map(|(stripe, group)| self.store_object(ObjectId { inode, stripe }, group, growth));
        ring::join_all(stores).await.into_iter().collect()
    }

    /// What a storage host loses with its memory before it is synced is written once more.
    async fn store_object(&self, object: ObjectId, group: GroupId, growth: &Growth) -> Result<(), Failure> {
        match self.try_to_store(object, group, growth).await? {
            SyncReply { lost: false } => Ok(()),
            SyncReply { lost: true } => Err(Failure::Missed("a storage host has lost its memory".into())),
        }
    }

    async fn try_to_store(&self, object: ObjectId, group: GroupId, growth: &Growth) -> Result<SyncReply, Failure> {
        // Of the first change, if any.
        let mut since = 0;
        let bytes = bytes_of(growth, object.stripe);
        let size = bytes.len() as u64;
        let has = if bytes.is_empty() {
            let reply = self.storage.call(group, object, &Stat { objects: vec![object] }, Vec::new()).await?;
            reply.objects.first().map_or(0, |found| found.size)
        } else {
            let request = Write::new(object, 0);
            let reply = self.storage.call(group, object, &request, vec![Slice::from_vec(bytes)]).await?;
            since = reply.version;
            reply.size
        };
        if has > size {
            let request = Truncate { object, size, unchanged_since: 0 };
            let reply = self.storage.call(group, object, &request, Vec::new()).await?;
            since = if since == 0 { reply.version } else { since };
        }
        if has == 0 {
            return Ok(SyncReply { lost: false });
        }
        // What the store has is on its disk for good, or soon will be; and nobody but us knows of these changes, so that
        // no later sync could tell of their loss.
        self.storage.call(group, object, &Sync { object, since }, Vec::new()).await
    }
}

/// Those that there may be any bytes in: what the file can have within its limit, and what older ones had.
fn objects(growth: &Growth) -> impl Iterator<Item = (u32, GroupId)> + '_ {
    let has = |stripe| growth.older || object_size(&growth.layout, stripe, growth.limit.into()) > 0;
    (0u32..).zip(growth.layout.groups.iter().copied()).filter(move |&(stripe, _)| has(stripe))
}

/// What an object has of the contents: from its beginning on, without holes.
fn bytes_of(growth: &Growth, stripe: u32) -> Vec<u8> {
    let contents = &growth.contents;
    let pieces = extents(&growth.layout, 0, contents.len() as u64).filter(|extent| extent.stripe == stripe);
    let mut bytes = Vec::new();
    for piece in pieces {
        let begin = piece.file_offset as usize;
        bytes.extend_from_slice(&contents[begin..begin + piece.len as usize]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use types::layout::Layout;

    use super::*;

    #[test]
    fn an_object_has_its_chunks_one_after_the_other() {
        let contents: Vec<u8> = (0..20_000_u32).map(|n| (n / 4096) as u8).collect();
        let layout = Layout { chunk_size: 4096, groups: [1, 2].map(GroupId).to_vec() };
        let growth = Growth { layout, limit: 65_536, older: false, contents };
        let (first, second) = (bytes_of(&growth, 0), bytes_of(&growth, 1));
        assert_eq!((first.len(), second.len()), (4096 * 2 + 20_000 - 16_384, 8192));
        assert_eq!([first[0], first[4096], first[8192], second[0], second[4096]], [0, 2, 4, 1, 3]);
    }

    /// A power cut of the shard's host may have brought back contents that had left: the file was written anywhere then.
    #[test]
    fn all_objects_from_before_are_cut() {
        let layout = Layout { chunk_size: 4096, groups: [1, 2, 3].map(GroupId).to_vec() };
        let growth = |older| Growth { layout: layout.clone(), limit: 5000, older, contents: vec![7; 10] };
        let stripes = |older| objects(&growth(older)).map(|(stripe, _)| stripe).collect::<Vec<_>>();
        assert_eq!((stripes(false), stripes(true)), (vec![0, 1], vec![0, 1, 2]));
    }
}
