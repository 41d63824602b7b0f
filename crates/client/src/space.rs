//! The space of files: reserving it, giving it back, and finding data and holes.

use layout::{FILE_SIZE_MAX, file_offset, object_size};
use types::allocation::Allocation;
use types::attr::{SetAttr, SetTime};
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use wire::v1::storage;

use crate::caller::Caller;
use crate::file::File;
use crate::router::{Client, Destination};
use crate::shared::Shared;

/// What one object has of a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    stripe: u32,
    group: GroupId,
    offset: u64,
    len: u64,
}

/// The part of `[start, end)` in each object that has one: a range of a file is one range of each of its objects.
fn shares(layout: &Layout, start: u64, end: u64) -> impl Iterator<Item = Share> + '_ {
    (0u32..).zip(&layout.groups).filter_map(move |(stripe, &group)| {
        let offset = object_size(layout, stripe, start);
        let len = object_size(layout, stripe, end) - offset;
        (len > 0).then_some(Share { stripe, group, offset, len })
    })
}

impl Client {
    /// Changes which space `[offset, offset + len)` takes. The file is open for writing.
    ///
    /// # Errors
    /// `EBADF` where it is not open here, `EFBIG`, `EINVAL` (an empty range), `ENOSPC`, `EOPNOTSUPP` where the targets'
    /// file systems cannot do it; a part may have been done then.
    pub async fn allocate(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: u64,
        len: u64,
        what: Allocation,
    ) -> Result<(), Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|&end| end <= FILE_SIZE_MAX).ok_or(Errno::EFBIG)?;
        let layout = self.ensure_intent(caller, inode).await?;
        self.write_out(caller, inode).await?;
        let (began, _growth) = self.change_begins(inode, if what.keeps_size() { 0 } else { end })?;
        let changes = shares(&layout, offset, end).map(async |share| {
            let object = ObjectId { inode, stripe: share.stripe };
            let (offset, length, mode) = (share.offset, share.len, what.mode());
            let request = storage::Allocate { object, offset, length, mode, unchanged_since: 0 };
            let reply = self.call(caller, Destination::Object(share.group, object), &request).await?;
            self.changed(object, reply.version);
            Ok(reply.size)
        });
        let outcome: Result<Vec<u64>, Errno> = ring::join_all(changes).await.into_iter().collect();
        let sizes = outcome.inspect_err(|_| {
            // A part may be there: what the objects say goes.
            self.shared.with_file(inode, File::lose_exclusivity);
        })?;
        let reached = if what.keeps_size() { 0 } else { end };
        self.shared.with_file(inode, |file| {
            file.respaced(reached, Shared::wall_clock());
            file.change_ended(began);
        });
        // Where no object was there, none tells others the time.
        let is_told = !(what == Allocation::Punch && sizes.iter().all(|&size| size == 0));
        self.tell_of_change(caller, inode, is_told).await
    }

    /// Tells the shard that the file has been changed, where others would not see it by its objects' times (`is_told`), or
    /// might take that for an older one.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub(crate) async fn tell_of_change(&self, caller: &Caller<'_>, inode: InodeId, is_told: bool) -> Result<(), Errno> {
        if is_told && !self.shared.file_is(inode, |file| file.was_changed_otherwise()) {
            return Ok(());
        }
        let modified = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        self.setattr(caller, inode, modified).await.map(drop)
    }

    /// The first byte from `offset` on that is data, or with `hole` that is not: the end of the file is a hole. The file
    /// is open.
    ///
    /// # Errors
    /// `EBADF` where it is not open here, `ENXIO` at or after the end, or where no data follows.
    pub async fn seek(&self, caller: &Caller<'_>, inode: InodeId, offset: u64, hole: bool) -> Result<u64, Errno> {
        let layout = self.shared.with_file(inode, |file| file.layout.clone()).ok_or(Errno::EBADF)?;
        let size = self.getattr(caller, inode).await?.attr.size;
        // After the size is known: it may be that of what is kept back.
        self.write_out_to_read(caller, inode, &(offset..u64::MAX)).await?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        if self.inline_limit(inode) > 0 {
            // There are no holes in the metadata.
            return Ok(if hole { size } else { offset });
        }
        let asked = shares(&layout, offset, size).map(async |share| {
            let object = ObjectId { inode, stripe: share.stripe };
            let request = storage::Seek { object, offset: share.offset, hole };
            let reply = self.call(caller, Destination::Object(share.group, object), &request).await?;
            // An object that ends before its share does has a hole there.
            let found = if hole { Some(reply.offset.unwrap_or(share.offset)) } else { reply.offset };
            Ok(found.map(|found| file_offset(&layout, share.stripe, found)))
        });
        let found: Result<Vec<Option<u64>>, Errno> = ring::join_all(asked).await.into_iter().collect();
        match (found?.into_iter().flatten().min(), hole) {
            (Some(found), false) if found >= size => Err(Errno::ENXIO),
            (Some(found), _) => Ok(found.min(size)),
            (None, true) => Ok(size),
            (None, false) => Err(Errno::ENXIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout { chunk_size: 4096, groups: vec![GroupId(7), GroupId(8), GroupId(9)] }
    }

    #[test]
    fn a_range_is_one_range_of_each_object() {
        let layout = layout();
        let of = |start, end| {
            shares(&layout, start, end).map(|share| (share.stripe, share.offset, share.len)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 100), [(0, 0, 100)]);
        assert_eq!(of(4000, 4200), [(0, 4000, 96), (1, 0, 104)]);
        assert_eq!(of(100, 3 * 4096 + 50), [(0, 100, 4096 - 100 + 50), (1, 0, 4096), (2, 0, 4096)]);
        assert_eq!(of(5 * 4096 + 1, 5 * 4096 + 2), [(2, 4097, 1)]);
        assert_eq!(of(7, 7), []);
        let whole: u64 = shares(&layout, 12_345, FILE_SIZE_MAX).map(|share| share.len).sum();
        assert_eq!(whole, FILE_SIZE_MAX - 12_345);
    }

    #[test]
    fn the_first_byte_of_an_objects_share_is_where_it_is_in_the_file() {
        let layout = layout();
        for start in [0, 1, 4095, 4096, 8191, 12_288, 50_000] {
            let firsts = shares(&layout, start, 1 << 20).map(|share| file_offset(&layout, share.stripe, share.offset));
            assert_eq!(firsts.min(), Some(start));
        }
    }
}
