//! Copying between files, on the servers where both lie together.

use layout::{Extent, FILE_SIZE_MAX, extents};
use ring::buf::{Buf, Slice};
use types::allocation::Allocation;
use types::error::Errno;
use types::id::{InodeId, ObjectId};
use types::layout::Layout;
use wire::v1::storage;

use crate::caller::Caller;
use crate::file::File;
use crate::router::{Client, Destination};
use crate::shared::Shared;

/// Most bytes of one call: the caller asks again for the rest, and may be interrupted between.
const CALL_MAX: u64 = 64 << 20;
/// Most bytes that come through this client at once.
const PIECE_MAX: u64 = 1 << 20;
/// Pieces on their way at once.
const PIECES_AT_ONCE: usize = 16;

/// Bytes that lie in one object of each file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    source: Extent,
    target: Extent,
}

impl Piece {
    fn is_together(&self) -> bool {
        self.source.group == self.target.group
    }
}

/// Cuts a copy of `len` bytes at the chunk borders of both files.
fn pieces<'a>(
    (source, source_offset): (&'a Layout, u64),
    (target, target_offset): (&'a Layout, u64),
    len: u64,
) -> impl Iterator<Item = Piece> + 'a {
    let mut done = 0;
    std::iter::from_fn(move || {
        let rest = (len - done).min(PIECE_MAX);
        let source = extents(source, source_offset + done, rest).next()?;
        let target = extents(target, target_offset + done, rest).next()?;
        let len = source.len.min(target.len);
        done += u64::from(len);
        Some(Piece { source: Extent { len, ..source }, target: Extent { len, ..target } })
    })
}

impl Client {
    /// Copies up to `len` bytes from one open file to another, or within one, and says how many; 0 at the end of the
    /// source. Ranges do not overlap.
    ///
    /// # Errors
    /// `EBADF` where a file is not open here, `EFBIG`, `ENOSPC`, and those of the storage: some of the bytes may have been
    /// copied then.
    pub async fn copy_range(
        &self,
        caller: &Caller<'_>,
        (source, source_offset): (InodeId, u64),
        (target, target_offset): (InodeId, u64),
        len: u64,
    ) -> Result<u64, Errno> {
        self.must_have_kept_locks(caller, source).await?;
        let from = self.shared.with_file(source, |file| file.layout.clone()).ok_or(Errno::EBADF)?;
        let size = self.getattr(caller, source).await?.attr.size;
        let len = len.min(CALL_MAX).min(size.saturating_sub(source_offset));
        // After the size is known: it may be that of what is kept back.
        self.write_out_to_read(caller, source, &(source_offset..source_offset + len)).await?;
        if len == 0 {
            return Ok(0);
        }
        let end = target_offset.checked_add(len).filter(|&end| end <= FILE_SIZE_MAX).ok_or(Errno::EFBIG)?;
        if let Some(count) = self.copy_inline(caller, (source, source_offset), (target, target_offset), len).await? {
            return Ok(count);
        }
        let to = self.ensure_intent(caller, target).await?;
        self.write_out(caller, target).await?;
        let (began, _growth) = self.change_begins(target, end)?;
        let pieces = pieces((&from, source_offset), (&to, target_offset), len);
        if let Err(errno) = self.copy_pieces(caller, source, target, pieces).await {
            // A part may be there: what the objects say goes.
            self.shared.with_file(target, File::lose_exclusivity);
            return Err(errno);
        }
        // Holes of the source are holes of the target.
        self.shared.with_file(target, |file| {
            file.respaced(end, Shared::wall_clock());
            file.change_ended(began);
        });
        self.tell_of_change(caller, target, true).await?;
        Ok(len)
    }

    async fn copy_pieces(
        &self,
        caller: &Caller<'_>,
        source: InodeId,
        target: InodeId,
        mut pieces: impl Iterator<Item = Piece>,
    ) -> Result<(), Errno> {
        let mut last = None;
        loop {
            let some: Vec<Piece> = pieces.by_ref().take(PIECES_AT_ONCE).collect();
            let Some(&last_piece) = some.last() else { break };
            let copies = some.into_iter().map(|piece| self.copy_piece(caller, source, target, piece));
            let sizes: Result<Vec<u64>, Errno> = ring::join_all(copies).await.into_iter().collect();
            last = sizes?.pop().map(|size| (last_piece.target, size));
        }
        match last {
            // The objects tell the file's size, so the one with the last byte has to have it, also in a hole.
            Some((to, size)) if size < to.object_offset + u64::from(to.len) => {
                let object = ObjectId { inode: target, stripe: to.stripe };
                let offset = to.object_offset + u64::from(to.len) - 1;
                let request = storage::Write::new(object, offset);
                let zero = Buf::zeroed(1).freeze();
                let destination = Destination::Object(to.group, object);
                let reply = self.call_payload(caller, destination, &request, &[zero], 0).await?.message;
                self.changed(object, reply.version);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The size of the target's object after it.
    async fn copy_piece(
        &self,
        caller: &Caller<'_>,
        source: InodeId,
        target: InodeId,
        piece: Piece,
    ) -> Result<u64, Errno> {
        let Piece { source: from, target: to } = piece;
        let (source_object, object) =
            (ObjectId { inode: source, stripe: from.stripe }, ObjectId { inode: target, stripe: to.stripe });
        if piece.is_together() {
            let request = storage::Copy {
                object,
                offset: to.object_offset,
                source: source_object,
                source_offset: from.object_offset,
                length: u64::from(to.len),
                unchanged_since: 0,
            };
            let reply = self.call(caller, Destination::Object(to.group, object), &request).await?;
            self.changed(object, reply.version);
            return Ok(reply.size);
        }
        let request = storage::Read { object: source_object, offset: from.object_offset, length: from.len };
        let destination = Destination::Object(from.group, source_object);
        let data: Slice =
            self.call_payload(caller, destination, &request, &[], request.length as usize).await?.payload.freeze();
        if data.len() > from.len as usize {
            return Err(Errno::EIO);
        }
        if data.iter().all(|&byte| byte == 0) {
            // Of a hole, as far as anyone can tell.
            let (offset, length, mode) = (to.object_offset, u64::from(to.len), Allocation::Punch.mode());
            let request = storage::Allocate { object, offset, length, mode, unchanged_since: 0 };
            match self.call(caller, Destination::Object(to.group, object), &request).await {
                // Not every file system has holes.
                Err(Errno::EOPNOTSUPP) => {}
                outcome => {
                    let reply = outcome?;
                    self.changed(object, reply.version);
                    return Ok(reply.size);
                }
            }
        }
        // Where the object ends before its file does, the rest is a hole.
        let missing = from.len as usize - data.len();
        let mut parts = vec![data];
        if missing > 0 {
            parts.push(Buf::zeroed(missing).freeze());
        }
        let request = storage::Write::new(object, to.object_offset);
        let destination = Destination::Object(to.group, object);
        let reply = self.call_payload(caller, destination, &request, &parts, 0).await?.message;
        self.changed(object, reply.version);
        Ok(reply.size)
    }
}

#[cfg(test)]
mod tests {
    use types::id::GroupId;

    use super::*;

    fn layout(chunk_size: u32, groups: &[u32]) -> Layout {
        Layout { chunk_size, groups: groups.iter().copied().map(GroupId).collect() }
    }

    #[test]
    fn pieces_lie_in_one_chunk_of_each_file_and_cover_all() {
        let (a, b) = (layout(4096, &[1, 2, 3]), layout(8192, &[2, 1]));
        for (source_offset, target_offset, len) in [(0, 0, 50_000), (100, 7000, 30_000), (4095, 8191, 3), (5, 5, 0)] {
            let all: Vec<Piece> = pieces((&a, source_offset), (&b, target_offset), len).collect();
            let mut at = 0;
            for piece in &all {
                assert_eq!(piece.source.len, piece.target.len);
                assert_eq!(
                    (piece.source.file_offset, piece.target.file_offset),
                    (source_offset + at, target_offset + at)
                );
                at += u64::from(piece.source.len);
                let last = |extent: &Extent| extent.file_offset + u64::from(extent.len) - 1;
                assert_eq!(last(&piece.source) / 4096, piece.source.file_offset / 4096);
                assert_eq!(last(&piece.target) / 8192, piece.target.file_offset / 8192);
            }
            assert_eq!(at, len);
        }
        let alike: Vec<Piece> = pieces((&a, 0), (&a, 12_288), 12_288).collect();
        assert!(alike.len() == 3 && alike.iter().all(Piece::is_together));
    }
}
