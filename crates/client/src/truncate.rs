//! Truncating: the objects first, under a write intent, then the inode.

use layout::{FILE_SIZE_MAX, last_stripe, object_size};
use types::attr::{Attr, SetAttr};
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use wire::v1::meta;
use wire::v1::storage;

use crate::caller::Caller;
use crate::file::Intent;
use crate::router::{Client, Destination};
use crate::settle::Settling;

impl Client {
    pub(crate) async fn truncate(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Attr, Errno> {
        if size > FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        // A path may be truncated that is not open here: then the write intent is this operation's own.
        let opened_here = self.shared.with_file(inode, |file| file.handles > 0) == Some(true);
        if !opened_here {
            self.open(caller, inode, true).await?;
        }
        let result = self.truncate_open(caller, inode, size, change).await;
        if !opened_here {
            self.close_now(caller, inode, true).await;
        }
        result
    }

    async fn truncate_open(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Attr, Errno> {
        let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
        let had_objects = reply.has_objects;
        let old = self.attr_of(caller, reply).await?;
        if had_objects || size > 0 {
            let layout = self.ensure_intent(caller, inode).await?;
            let uneven = self.shared.with_file(inode, |file| file.uneven) == Some(true);
            let cut = objects_to_cut(&layout, old.size, size, uneven);
            self.truncate_objects(caller, inode, cut).await?;
            self.shared.with_file(inode, |file| file.truncated(size));
        }
        let change = SetAttr { size: Some(size), ..change };
        let attr = self.set(caller, inode, change).await?;
        let writers = self.shared.with_file(inode, |file| file.writers > 0 || file.intent == Intent::None);
        if writers == Some(false) {
            // Opened for reading alone, so that no close of a writer would settle it.
            self.settle(caller, inode, Settling::Release).await?;
        }
        Ok(attr)
    }

    async fn truncate_objects(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        cut: impl Iterator<Item = (u32, GroupId, u64)>,
    ) -> Result<(), Errno> {
        let cuts = cut.map(async |(stripe, group, size)| {
            let object = ObjectId { inode, stripe };
            let request = storage::Truncate { object, size, expected_version: 0 };
            self.call(caller, Destination::Object(group, object), &request).await
        });
        ring::join_all(cuts).await.into_iter().try_for_each(|result| result.map(drop))
    }
}

/// Every object that could reach beyond its share of `size` is cut, and the one with the last byte is made exactly as
/// long as it must be, so that the objects' sizes tell the file's. Where space may be reserved beyond the objects' ends
/// (`uneven`) all are cut, since a truncate gives that back. Stripes with their new lengths in bytes.
fn objects_to_cut(
    layout: &Layout,
    old_size: u64,
    size: u64,
    uneven: bool,
) -> impl Iterator<Item = (u32, GroupId, u64)> + '_ {
    let last = last_stripe(layout, size);
    (0u32..).zip(&layout.groups).filter_map(move |(stripe, &group)| {
        let length = object_size(layout, stripe, size);
        let shrinks = object_size(layout, stripe, old_size) > length;
        (shrinks || uneven || last == Some(stripe)).then_some((stripe, group, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_truncate_cuts() {
        let layout = Layout { chunk_size: 4096, groups: vec![GroupId(1), GroupId(2), GroupId(3)] };
        let cut = |old_size, size, uneven| {
            objects_to_cut(&layout, old_size, size, uneven).map(|(stripe, _, len)| (stripe, len)).collect::<Vec<_>>()
        };
        assert_eq!(cut(10_000, 5000, false), [(1, 904), (2, 0)]);
        assert_eq!(cut(100, 5000, false), [(1, 904)], "longer: the last one alone");
        assert_eq!(cut(100, 0, false), [(0, 0)]);
        assert_eq!(cut(100, 0, true), [(0, 0), (1, 0), (2, 0)], "space may be reserved in each");
    }
}
