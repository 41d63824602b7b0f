//! Reading, writing and making durable: striped over the groups, all pieces at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use layout::{Extent, FILE_SIZE_MAX, extents, object_size};
use ring::buf::{Buf, Slice};
use tracing::{error, warn};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, ObjectId};
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::meta;
use wire::v1::storage;

use crate::caller::Caller;
use crate::contents::Content;
use crate::file::{File, Intent};
use crate::own::Own;
use crate::router::{Client, Destination};
use crate::shared::Shared;
use crate::unsynced::Unsynced;

/// What a sync makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// What is needed to read the contents again, as `fdatasync`: of a file that is being written the shard need not
    /// have more on disk than that its objects have to be asked.
    Data,
    /// The contents and all attributes, as `fsync`.
    All,
}

impl Client {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file. The file is open. Where it is not `direct`, more
    /// than that may be asked for: see [`crate::ahead`].
    ///
    /// # Errors
    /// `EBADF` where it is not open here, `EIO` where a lock on it was lost, or what was kept back of it, and those of the
    /// storage.
    pub async fn read(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: u64,
        len: u32,
        direct: bool,
    ) -> Result<Vec<Slice>, Errno> {
        self.shared.look_for_sleep();
        let end = offset.saturating_add(u64::from(len)).min(FILE_SIZE_MAX);
        self.must_have_kept_locks(caller, inode).await?;
        self.must_not_be_lost(inode)?;
        if let Some(content) = self.content(inode) {
            if content.is_ending && self.shared.file_is(inode, |file| file.patience.may_ask(Instant::now())) {
                self.ask_for_lease(inode);
            }
            return self.read_known(caller, inode, &content, offset..end, direct).await;
        }
        if let Some(parts) = self.read_draft(inode, &(offset..end)) {
            return Ok(parts);
        }
        self.end_contents_in_draft(caller, inode).await?;
        let state = self.shared.with_file(inode, |file| (file.layout.clone(), file.size));
        let Some((layout, size_hint)) = state else { return Err(Errno::EBADF) };
        if end <= offset {
            return Ok(Vec::new());
        }
        if let Some(parts) = self.read_inline(caller, inode, offset..end).await? {
            return Ok(parts);
        }
        if !direct && self.shared.file_is(inode, |file| file.goes_without_lease(Instant::now())) {
            self.ask_for_lease(inode);
        }
        let within = match self.look_at_own(inode, offset..end, direct) {
            Own::Known(parts) => return Ok(parts),
            Own::Objects { runs, end } => {
                if let Some(parts) = self.read_own_ahead(caller, inode, runs, offset..end).await? {
                    return Ok(parts);
                }
                Some(end)
            }
            Own::Unknown => {
                self.write_out_to_read(caller, inode, &(offset..end)).await?;
                (end <= size_hint).then_some(end)
            }
        };
        if let Some(within) = within {
            // Where every piece comes back full, the size does not matter.
            let pieces = self.read_pieces(caller, inode, &layout, offset, within).await?;
            if pieces.iter().all(Piece::is_full) {
                return Ok(pieces.into_iter().map(|piece| piece.data).collect());
            }
        }
        self.read_across_end(caller, inode, &layout, offset..end).await
    }

    fn content(&self, inode: InodeId) -> Option<Content> {
        let (contents, board) = (&self.shared.contents, &self.shared.board);
        contents.look(board, inode, Instant::now(), || self.shared.may_keep(inode))
    }

    /// Asks the shard for a lease on a file that is read, and has it when it comes: no reader waits for that.
    fn ask_for_lease(&self, inode: InodeId) {
        self.in_background(async move |client| {
            let caller = Caller::patient(Credentials::default());
            let asked = client.shared.contents.asks(inode);
            match client.ask(&caller, inode).await {
                // Where somebody writes, there is none.
                Ok((_, reply)) if reply.unsettled || reply.draft || reply.cutting => {}
                Ok((ticket, reply)) => {
                    client.shared.learn(asked, client.inode_lease(ticket, &reply), reply.attr, None);
                }
                Err(error) => warn!(%inode, "cannot ask for a lease on what is read: {error}"),
            }
        });
    }

    /// The lease under which `content` was known has been held ever since.
    pub(crate) fn still_knows(&self, inode: InodeId, content: &Content) -> bool {
        self.content(inode).is_some_and(|now| now.number == content.number)
    }

    /// Reads what nobody has changed, as far as a lease tells, when this begins.
    async fn read_known(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        content: &Content,
        range: std::ops::Range<u64>,
        direct: bool,
    ) -> Result<Vec<Slice>, Errno> {
        let (offset, end) = (range.start, range.end.min(content.size));
        if end <= offset {
            return Ok(Vec::new());
        }
        let part = |bytes: &[u8]| vec![Slice::from_vec(bytes[offset as usize..end as usize].to_vec())];
        if !direct && let Some(bytes) = &content.bytes {
            return Ok(part(bytes));
        }
        if let Some(parts) = self.read_inline(caller, inode, offset..end).await? {
            return Ok(parts);
        }
        let is_small = !direct && self.shared.contents.is_small(content.size);
        if !direct
            && !is_small
            && let Some(parts) = self.read_ahead(caller, inode, content, offset..end).await?
        {
            return Ok(parts);
        }
        let layout = self.shared.with_file(inode, |file| file.layout.clone()).ok_or(Errno::EBADF)?;
        let (begin, until) = if is_small { (0, content.size) } else { (offset, end) };
        let pieces = self.read_pieces(caller, inode, &layout, begin, until).await?;
        // A hole, unless the lease has ended: then it may have been cut.
        if !pieces.iter().all(Piece::is_full) && !self.still_knows(inode, content) {
            return self.read_across_end(caller, inode, &layout, offset..end).await;
        }
        let parts = assemble(pieces, begin, content.size);
        if !is_small {
            return Ok(parts);
        }
        let bytes: Arc<[u8]> = joined(&parts).into();
        self.shared.contents.keep(&self.shared.board, inode, content.number, &bytes, Instant::now());
        Ok(part(&bytes))
    }

    /// A read that may meet the end of the file, or a hole: the size is asked first, so that bytes which another client
    /// appends meanwhile are either all seen or not counted. Where an object has less than that, it is asked again: what was
    /// a hole all the time is zeros, and what a truncate has cut meanwhile is read anew.
    async fn read_across_end(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        range: std::ops::Range<u64>,
    ) -> Result<Vec<Slice>, Errno> {
        let mut known = self.size_now(caller, inode).await?;
        loop {
            self.shared.with_file(inode, |file| {
                if !file.completes_exclusive() {
                    file.size = known.size;
                }
            });
            // The size may be that of what was written here since, and is kept back.
            let end = range.end.min(known.size);
            self.write_out_to_read(caller, inode, &(range.start..end)).await?;
            let pieces = self.read_pieces(caller, inode, layout, range.start, end).await?;
            let before = known;
            if !pieces.iter().all(Piece::is_full) {
                known = self.size_now(caller, inode).await?;
            }
            if known.cuts == before.cuts {
                return Ok(assemble(pieces, range.start, before.size));
            }
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
        }
    }

    async fn size_now(&self, caller: &Caller<'_>, inode: InodeId) -> Result<SizeNow, Errno> {
        let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
        let reply = self.after_cuts(caller, reply).await?;
        let cuts = reply.cuts;
        Ok(SizeNow { size: self.attr_of(caller, reply).await?.size, cuts })
    }

    async fn current_size(&self, caller: &Caller<'_>, inode: InodeId) -> Result<u64, Errno> {
        self.getattr(caller, inode).await.map(|known| known.attr.size)
    }

    /// A program has read from an open file: its access time may change with that.
    pub fn accessed(&self, inode: InodeId) {
        let rule = self.shared.config.access_times;
        self.shared.with_file(inode, |file| file.accessed(Shared::wall_clock(), rule));
    }

    pub(crate) async fn read_pieces(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        offset: u64,
        end: u64,
    ) -> Result<Vec<Piece>, Errno> {
        let mut pieces = extents(layout, offset, end.saturating_sub(offset));
        // The common small read is one piece: no list, no boxes.
        match (pieces.next(), pieces.clone().next()) {
            (None, _) => Ok(Vec::new()),
            (Some(only), None) if only.len < SPLIT_MIN => {
                self.read_piece(caller, inode, only).await.map(|piece| vec![piece])
            }
            (Some(first), _) => {
                let parts = std::iter::once(first).chain(pieces).flat_map(|extent| self.over_rails(inode, extent));
                let reads = parts.map(|part| self.read_piece(caller, inode, part));
                ring::join_all(reads).await.into_iter().collect()
            }
        }
    }

    async fn read_piece(&self, caller: &Caller<'_>, inode: InodeId, extent: Extent) -> Result<Piece, Errno> {
        let object = ObjectId { inode, stripe: extent.stripe };
        let request = storage::Read { object, offset: extent.object_offset, length: extent.len };
        let answer = self
            .call_payload(caller, Destination::Object(extent.group, object), &request, &[], extent.len as usize)
            .await?;
        if answer.payload.len() > extent.len as usize {
            return Err(Errno::EIO);
        }
        Ok(Piece { extent, data: answer.payload.freeze() })
    }

    /// Writes all of `data` at `offset`. The file is open. Everybody sees it from then on; but where it is not `direct`, it
    /// may be kept here for a while, until then or until [`Client::write_out`].
    ///
    /// # Errors
    /// `EBADF` where it is not open here, `EFBIG`, `EIO` where a lock on it was lost, or what was kept here, `ENOSPC`, and
    /// those of the storage: some of the bytes may have been written then.
    pub async fn write(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: u64,
        data: &Slice,
        direct: bool,
    ) -> Result<(), Errno> {
        if direct {
            self.publish(caller, inode).await?;
        } else if self.write_draft(caller, inode, Some(offset), data).await? {
            return Ok(());
        }
        if self.write_inline(caller, inode, offset, data, false).await? {
            return Ok(());
        }
        let layout = self.ensure_intent(caller, inode).await?;
        let len = data.len() as u64;
        if offset.saturating_add(len) > FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        if !direct && self.keep_back(caller, inode, &layout, offset, data).await? {
            return Ok(());
        }
        self.write_out(caller, inode).await?;
        self.write_through(caller, inode, &layout, offset, data).await
    }

    /// Writes what a program has changed through a mapping, as far as the file goes: the kernel cuts it at the size that it
    /// knows, and another mount may have truncated the file since.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub async fn write_mapped(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: u64,
        data: &Slice,
    ) -> Result<(), Errno> {
        let size = match self.size_alone(caller, inode).await? {
            Some(size) => size,
            None => self.current_size(caller, inode).await?,
        };
        let rest = size.saturating_sub(offset);
        let len = usize::try_from(rest).map_or(data.len(), |rest| rest.min(data.len()));
        if len == 0 {
            return Ok(());
        }
        self.write(caller, inode, offset, &data.slice(0..len), true).await
    }

    async fn write_through(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        offset: u64,
        data: &Slice,
    ) -> Result<(), Errno> {
        let len = data.len() as u64;
        let (began, _growth) = self.change_begins(inode, offset + len)?;
        let mut pieces = extents(layout, offset, len);
        let result = match (pieces.next(), pieces.clone().next()) {
            (None, _) => return Ok(()),
            (Some(only), None) if only.len < SPLIT_MIN => self.write_piece(caller, inode, only, data.clone()).await,
            (Some(first), _) => {
                let parts = std::iter::once(first).chain(pieces).flat_map(|extent| self.over_rails(inode, extent));
                let writes = parts.map(|extent| {
                    let begin = (extent.file_offset - offset) as usize;
                    self.write_piece(caller, inode, extent, data.slice(begin..begin + extent.len as usize))
                });
                ring::join_all(writes).await.into_iter().collect()
            }
        };
        if result.is_ok() {
            self.shared.with_file(inode, |file| {
                file.end.versions.clear();
                file.wrote(offset, len, Shared::wall_clock());
                file.change_ended(began);
            });
        } else {
            // A part may be there: what the objects say goes.
            self.shared.with_file(inode, File::lose_exclusivity);
        }
        result
    }

    /// A long piece in as many parts as rails lead to its lane, so that one request of a program uses all of them.
    fn over_rails(&self, inode: InodeId, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let width = match extent.len {
            0..SPLIT_MIN => 1,
            _ => self.width(extent.group, ObjectId { inode, stripe: extent.stripe }),
        };
        in_parts(extent, width)
    }

    async fn write_piece(&self, caller: &Caller<'_>, inode: InodeId, extent: Extent, data: Slice) -> Result<(), Errno> {
        let object = ObjectId { inode, stripe: extent.stripe };
        let state = self.shared.with_file(inode, |file| {
            // By the clock of what is set of a draft afterwards.
            let at = if file.draft.is_some() { Shared::wall_clock() } else { Timestamp(0) };
            (at, file.counts_from(), file.expects_sync(extent.stripe))
        });
        let (at, not_before, durable) = state.unwrap_or((Timestamp(0), Timestamp(0), false));
        let offset = extent.object_offset;
        let request = storage::Write { object, offset, unchanged_since: 0, at, not_before, durable };
        let passage = self.shared.landings.passage(extent.group, data.len());
        let answer = self.call_payload(caller, Destination::Object(extent.group, object), &request, &[data], 0).await?;
        passage.has_landed();
        self.saw_version(extent.group, object, answer.message.version);
        self.wrote_through(inode, extent.stripe, &answer.message);
        Ok(())
    }

    /// As [`Self::fsync`], for the open file of this number ([`Self::number_open_file`]): it is told of what was lost while it
    /// was open, also where that was found by a sync through another one.
    ///
    /// # Errors
    /// Those of [`Self::fsync`]; `EIO`.
    pub async fn fsync_open_file(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        number: u64,
        durability: Durability,
    ) -> Result<(), Errno> {
        let synced = self.fsync(caller, inode, durability).await;
        if synced == Err(Errno::EINTR) {
            return synced;
        }
        let tells = self.shared.file_is(inode, |file| file.losses.tells(number));
        if tells { synced.and(Err(Errno::EIO)) } else { synced }
    }

    /// Makes the file durable: its objects, and the shard's record of it.
    ///
    /// # Errors
    /// An error of an earlier write that only the disk noticed, such as `EIO` or `ENOSPC`.
    pub async fn fsync(&self, caller: &Caller<'_>, inode: InodeId, durability: Durability) -> Result<(), Errno> {
        self.shared.with_file(inode, |file| file.sync_habit.syncs());
        let synced = self.sync_all(caller, inode, durability).await;
        // Also what was found by the way: the shard may have restarted over this.
        let is_lost = self.shared.file_is(inode, |file| {
            let is_lost = file.unsynced.take_lost_record();
            if is_lost {
                self.shared.lost(file);
            }
            is_lost
        });
        if is_lost {
            error!(%inode, "what was changed may be lost: a shard's host has lost its memory");
            return synced.and(Err(Errno::EIO));
        }
        synced
    }

    async fn sync_all(&self, caller: &Caller<'_>, inode: InodeId, durability: Durability) -> Result<(), Errno> {
        self.publish_changes(caller, inode).await?;
        self.must_not_be_lost(inode)?;
        if self.fsync_inline(caller, inode).await? {
            return Ok(());
        }
        self.write_out(caller, inode).await?;
        if let Some((layout, unsynced)) =
            self.shared.with_file(inode, |file| (file.layout.clone(), file.unsynced.clone()))
        {
            self.sync_objects(caller, inode, &layout, &unsynced).await?;
        }
        let intent = self.shared.with_file(inode, |file| file.intent);
        match intent {
            Some(Intent::Held { recorded: true, .. }) if durability == Durability::Data => Ok(()),
            Some(Intent::Held { intents, .. }) => {
                self.fsync_inode(caller, inode).await?;
                self.shared.with_file(inode, |file| file.is_recorded(intents));
                Ok(())
            }
            Some(Intent::None) | None => self.fsync_inode(caller, inode).await,
        }
    }

    /// `unsynced`: as it is now.
    async fn sync_objects(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        unsynced: &Unsynced,
    ) -> Result<(), Errno> {
        // What was written and is lost may have been all that its object had.
        let mut stripes: BTreeSet<u32> = unsynced.stripes().collect();
        let intent = self.shared.with_file(inode, |file| file.intent).ok_or(Errno::EBADF)?;
        let alone = self.size_alone(caller, inode).await?;
        let (size, synced) = match alone {
            Some(size) => (size, self.shared.with_file(inode, |file| file.synced_but_for_own()).unwrap_or(0)),
            // Nobody tells us when others have made the file longer than we know.
            None => (self.current_size(caller, inode).await?, 0),
        };
        // What others have written has to be on the disks as well, and what they have cut.
        if size > synced {
            stripes
                .extend(Self::stripes_in_use(layout, size).filter(|&stripe| object_size(layout, stripe, synced) == 0));
        }
        let syncs = stripes.into_iter().map(async |stripe| {
            // A file keeps its stripes; whoever says otherwise is not believed.
            let group = *layout.groups.get(stripe as usize).ok_or(Errno::EIO)?;
            let object = ObjectId { inode, stripe };
            let request = storage::Sync { object, since: unsynced.since(stripe) };
            let reply = self.call(caller, Destination::Object(group, object), &request).await.inspect_err(|errno| {
                // Where the service was only away nothing is lost; here that cannot be told from a disk that has failed.
                if *errno != Errno::EINTR {
                    self.shared.with_file(inode, |file| self.shared.lost(file));
                }
            })?;
            self.shared.with_file(inode, |file| {
                // Else who asked at the same time has noted it.
                if reply.lost && file.unsynced.since(stripe) != 0 {
                    self.shared.lost(file);
                }
                file.unsynced.settled(stripe, unsynced);
            });
            if reply.lost {
                error!(%inode, %object, "what was written may be lost: a storage service's host has lost its memory");
                return Err(Errno::EIO);
            }
            Ok(())
        });
        ring::join_all(syncs).await.into_iter().collect::<Result<(), Errno>>()?;
        if alone.is_some() {
            self.shared.with_file(inode, |file| file.is_synced(size, intent));
        }
        Ok(())
    }

    /// A change of the object was acknowledged.
    pub(crate) fn changed(&self, object: ObjectId, version: u64) {
        self.shared.with_file(object.inode, |file| file.unsynced.changed(object.stripe, version));
    }

    /// Makes the shard's records durable: for a directory, its entries.
    ///
    /// # Errors
    /// `EIO` where the shard's disk failed.
    pub async fn fsync_inode(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        match self.sync_record(caller, inode, false).await {
            // Of a directory that is removed nothing is left to be lost.
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Ok(()),
            result => result,
        }
    }

    /// What the shard has of the inode comes to its disk. `inline`: only where the contents are among it.
    pub(crate) async fn sync_record(&self, caller: &Caller<'_>, inode: InodeId, inline: bool) -> Result<(), Errno> {
        let changes = self.shared.with_file(inode, |file| file.unsynced.record_changes());
        self.call(caller, Destination::home(inode), &meta::Fsync { inode, inline }).await?;
        if let Some(changes) = changes {
            self.shared.with_file(inode, |file| file.unsynced.record_synced(changes));
        }
        Ok(())
    }
}

/// Pieces of at least so many bytes go over several rails in parts.
const SPLIT_MIN: u32 = 128 << 10;
/// Parts are multiples of this, in bytes.
const PART_UNIT: u32 = 4 << 10;

/// `extent` in at most `count` parts of about the same length.
fn in_parts(extent: Extent, count: usize) -> impl Iterator<Item = Extent> {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    let step = if count == 1 { extent.len } else { extent.len.div_ceil(count).next_multiple_of(PART_UNIT) };
    (0..extent.len.max(1)).step_by(step.max(1) as usize).map(move |at| Extent {
        object_offset: extent.object_offset + u64::from(at),
        file_offset: extent.file_offset + u64::from(at),
        len: (extent.len - at).min(step),
        ..extent
    })
}

/// The size of a file at one moment, and what tells whether there was a truncate since.
#[derive(Clone, Copy)]
struct SizeNow {
    size: u64,
    cuts: u64,
}

/// What one object had for its part of a read.
pub(crate) struct Piece {
    extent: Extent,
    data: Slice,
}

impl Piece {
    pub(crate) fn is_full(&self) -> bool {
        self.data.len() == self.extent.len as usize
    }
}

/// Joins the pieces in order, with zeros where an object ends before the file does, up to `size`.
pub(crate) fn assemble(pieces: Vec<Piece>, offset: u64, size: u64) -> Vec<Slice> {
    let mut out = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces {
        let begin = piece.extent.file_offset;
        assert!(begin >= offset, "pieces come in file order");
        let wanted = u64::from(piece.extent.len).min(size.saturating_sub(begin)) as usize;
        let have = piece.data.len().min(wanted);
        if have > 0 {
            out.push(piece.data.slice(0..have));
        }
        if wanted > have {
            out.push(Buf::zeroed(wanted - have).freeze());
        }
    }
    out
}

pub(crate) fn joined(parts: &[Slice]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::id::GroupId;

    fn piece(file_offset: u64, len: u32, data: &[u8]) -> Piece {
        let extent = Extent { stripe: 0, group: GroupId(1), object_offset: 0, file_offset, len };
        Piece { extent, data: Buf::from_slice(data).freeze() }
    }

    #[test]
    fn parts_cover_their_piece_in_order() {
        let whole = Extent { stripe: 1, group: GroupId(1), object_offset: 5000, file_offset: 90_000, len: 1_000_001 };
        for count in [0, 1, 2, 3, 4, 7, 100_000] {
            let mut at = 0;
            let parts: Vec<Extent> = in_parts(whole, count).collect();
            assert!(parts.len() <= count.max(1));
            for part in parts {
                assert_eq!((part.stripe, part.group), (whole.stripe, whole.group));
                assert_eq!(part.object_offset - whole.object_offset, at);
                assert_eq!(part.file_offset - whole.file_offset, at);
                at += u64::from(part.len);
            }
            assert_eq!(at, u64::from(whole.len), "{count} parts");
        }
    }

    #[test]
    fn holes_read_as_zeros_and_the_end_cuts() {
        let pieces = || vec![piece(10, 4, b"ab"), piece(14, 4, b""), piece(18, 4, b"wxyz")];
        assert_eq!(joined(&assemble(pieces(), 10, 100)), b"ab\0\0\0\0\0\0wxyz");
        assert_eq!(joined(&assemble(pieces(), 10, 20)), b"ab\0\0\0\0\0\0wx");
        assert_eq!(joined(&assemble(pieces(), 10, 11)), b"a");
        assert_eq!(joined(&assemble(pieces(), 10, 10)), b"");
    }
}
