//! Reads that are verified, and changes that keep the sums right. `sums` says why it is done in this order.

use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::buf::{Buf, Slice};
use ring::op;
use types::error::Errno;
use types::id::ObjectId;
use wire::frame::crc32c;
use wire::sums::Joined;

use super::failed::{Failed, Reached};
use super::files::{Files, has_size};
use super::keeping::AS_SOURCE;
use super::recompute::recompute;
use super::sidecar::{Change, Sidecar};
use super::source::Verified;
use super::{Data, source, syscall};
use crate::open_files::OpenFile;
use crate::sums::blocks::{self, BLOCK, BLOCK_LEN};
use crate::sums::header::{Owner, place};
use crate::sums::{Entry, Trust, Verdict};

/// More entries are cut off, or written, on a helper thread.
const IN_PLACE_MAX: u64 = 1 << 20;

/// A change under way, of an object whose entries are kept.
pub(super) struct Changing {
    pub(super) sums: Rc<Sidecar>,
    _change: Change,
}

/// A range that the kernel changes as a whole.
pub(super) struct Bulk {
    blocks: Range<u64>,
    /// Those of which a part stays: they were right.
    edges: Vec<u64>,
}

/// Why it was not changed, or not all of it.
pub(super) struct Broken {
    pub(super) errno: Errno,
    pub(super) reached: Reached,
}

impl Files {
    /// Verifies what was read: `buf` has the object's bytes from `offset` on, as far as they go; `size` is what the object
    /// has. What was not read as whole blocks is read again so, and taken from there. The CRC32C of `buf`, if all of it was
    /// verified, and nobody else has its memory.
    pub(super) async fn verify(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        offset: u64,
        size: u64,
        buf: &mut Buf,
    ) -> Result<Option<u32>, Errno> {
        let len = buf.len() as u64;
        let range = blocks::covering(&(offset..offset + len));
        let Some(sums) = file.sums().filter(|sums| sums.is_kept()) else {
            self.count_unverified(range.end - range.start);
            return Ok(None);
        };
        let entries = match sums.entries(range.clone()).await {
            Ok(entries) => entries,
            Err(Errno::EIO) => {
                self.note_unreadable(object);
                self.count_unverified(range.end - range.start);
                return Ok(None);
            }
            Err(errno) => return Err(self.failed(errno, "reading checksums")),
        };
        let (mut outcome, mut joined) = (Ok(()), buf.place().is_none().then(Joined::default));
        for (block, entry) in range.zip(entries) {
            let (inside, part) = blocks::overlap(block, offset, len);
            let whole = inside.start == 0 && (inside.end == BLOCK_LEN || offset + len >= size);
            let sum = whole.then(|| blocks::sum(&buf[part.clone()]));
            // In doubt it is taken as it is, whatever another look would find.
            if let Some(sum) = sum.filter(|sum| *sum == entry.now || sums.trust() == Trust::Doubt) {
                self.judged(object, sums, block, entry, sum)?;
                if let Some(joined) = &mut joined {
                    let is_full = part.len() == BLOCK_LEN;
                    joined.add(if is_full { blocks::crc(sum) } else { crc32c(&buf[part.clone()]) }, part.len());
                }
                continue;
            }
            // In memory that nobody else can write to.
            let seen = self.look(file, block).await?;
            match self.judged(object, sums, block, entry, blocks::sum(&seen)) {
                Ok(()) => {
                    if let Some(joined) = &mut joined {
                        joined.add(crc32c(&seen[inside.clone()]), part.len());
                    }
                    buf[part].copy_from_slice(&seen[inside]);
                }
                Err(errno) => outcome = Err(errno),
            }
        }
        outcome.map(|()| joined.map(Joined::crc))
    }

    /// A whole block, filled up with zeros.
    async fn look(&self, file: &OpenFile, block: u64) -> Result<Buf, Errno> {
        let mut buf = Buf::with_capacity(BLOCK_LEN);
        // Of the last one the file has no more.
        let there = BLOCK.min(file.size.get().saturating_sub(block * BLOCK)) as usize;
        let count = match syscall::read_cached(file.fd(), &mut buf, block * BLOCK) {
            Ok(count) if count >= there => count,
            _ => {
                let (outcome, read) = op::read_at(file.fd(), buf, block * BLOCK).await;
                buf = read;
                outcome.map_err(|error| self.failed(error.into(), "read"))?
            }
        };
        buf[count..].fill(0);
        Ok(buf)
    }

    /// # Errors
    /// `EIO` for a corrupt block.
    fn judged(&self, object: ObjectId, sums: &Sidecar, block: u64, entry: Entry, sum: u32) -> Result<(), Errno> {
        match sums.judge(block, entry, sum) {
            Verdict::Good => Ok(()),
            Verdict::Adopted => {
                self.count_unverified(1);
                if !sums.doubt_told.replace(true) {
                    self.tell_doubt(object, block);
                }
                Ok(())
            }
            Verdict::Corrupt => {
                self.tell_corrupt(object, block, entry, sum);
                Err(Errno::EIO)
            }
        }
    }

    /// To be held while the object is changed; `None` where no entries are kept.
    pub(super) async fn begin_change(&self, object: ObjectId, file: &Rc<OpenFile>) -> Result<Option<Changing>, Errno> {
        let Some(sums) = self.make_sidecar(object, file).await? else { return Ok(None) };
        let was_dirty = sums.is_dirty();
        let mut change = sums.begin_change().await;
        if change.is_err() && sums.distrusts_all() {
            // A sync has failed: who is going over it, or opens it next, has to know as well.
            self.distrust(object, &sums, 0..u64::MAX).await;
        }
        // Beside the header lies what the disk does not give.
        if matches!(change, Err(Errno::EIO)) && self.clear_unreadable(object, &sums, 0..1).await.is_ok() {
            change = sums.begin_change().await;
        }
        let change = change.map_err(|errno| self.refused(errno, "writing checksums"))?;
        if !was_dirty {
            self.sums.note_dirty(object, Instant::now());
        }
        Ok(Some(Changing { sums, _change: change }).filter(|changing| changing.sums.is_kept()))
    }

    /// Writes `data`, and before it its entries. Whether it is on the disk; the entries need not be.
    pub(super) async fn write_summed(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        offset: u64,
        data: Data,
    ) -> Result<bool, Errno> {
        let durable = data.durable;
        let Some(Changing { sums, _change }) = self.begin_change(object, file).await? else {
            return self.put(file, offset, data.bytes, durable).await.map_err(|errno| self.refused(errno, "write"));
        };
        if self.goes_in_parts(file, offset, &data) {
            return self.write_in_parts(object, file, &sums, offset, data).await;
        }
        let put = async |bytes| self.put(file, offset, bytes, durable).await;
        self.change_summed(object, file, &sums, offset, data, put).await
    }

    /// Writes the entries of `data`, then has `put` write it, of which it passes on the answer.
    pub(super) async fn change_summed(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        sums: &Rc<Sidecar>,
        offset: u64,
        data: Data,
        put: impl AsyncFnOnce(Slice) -> Result<bool, Errno>,
    ) -> Result<bool, Errno> {
        let range = blocks::covering(&(offset..offset + data.bytes.len() as u64));
        let (entries, judged) = self.entries_of_write(object, file, sums, offset, &data).await?;
        let bytes = data.bytes.clone();
        let (outcome, errno) = match self.put_entries(object, sums, range.start, &entries).await {
            Ok(()) => {
                let outcome = put(data.bytes).await;
                (outcome, outcome.err())
            }
            Err(errno) => (Err(errno), None),
        };
        if outcome.is_err() {
            let (failed, data) = (Failed { belief: sums.belief(), judged, errno }, file.shared_fd());
            let settle =
                move |sums, bytes: &[u8]| failed.settle_write((data.as_raw_fd(), sums), offset, entries, bytes);
            self.rewrite(object, sums, range, bytes, settle).await;
        }
        outcome.map_err(|errno| self.refused(errno, "write"))
    }

    /// With them the blocks that were found to be right, or taken as they are.
    async fn entries_of_write(
        &self,
        object: ObjectId,
        file: &OpenFile,
        sums: &Sidecar,
        offset: u64,
        Data { bytes: data, sums: known, .. }: &Data,
    ) -> Result<(Vec<Entry>, Vec<u64>), Errno> {
        let (size, bytes) = (file.size.get(), offset..offset + data.len() as u64);
        let range = blocks::covering(&bytes);
        let mut entries = self.entries_to_change(object, sums, range.clone()).await?;
        let mut judged = Vec::new();
        for (block, entry) in range.zip(&mut entries) {
            let (inside, part) = blocks::overlap(block, offset, data.len() as u64);
            let keeps = blocks::keeps(block, &bytes, size);
            if inside.start == 0 && !keeps && !sums.must_look(block, *entry) {
                let piece = known.as_ref().and_then(|sums| sums.piece(part.start));
                let now = piece.map_or_else(|| blocks::sum(&data[part]), blocks::of_crc);
                *entry = Entry { now, before: entry.now };
                continue;
            }
            let mut seen = self.look(file, block).await?;
            let mut before = blocks::sum(&seen);
            if keeps {
                self.judged(object, sums, block, *entry, before)?;
                judged.push(block);
            } else if sums.judge(block, *entry, before) == Verdict::Corrupt {
                // It stays so until it is written over.
                before = entry.now;
            } else {
                judged.push(block);
            }
            seen[inside].copy_from_slice(&data[part]);
            *entry = Entry { now: blocks::sum(&seen), before };
        }
        Ok((entries, judged))
    }

    /// The entries of blocks that are about to be changed, or gone over. What the disk does not give of them is given up.
    pub(super) async fn entries_to_change(
        &self,
        object: ObjectId,
        sums: &Sidecar,
        range: Range<u64>,
    ) -> Result<Vec<Entry>, Errno> {
        let known = match sums.entries(range.clone()).await {
            Err(Errno::EIO) => match self.clear_unreadable(object, sums, range.clone()).await {
                Ok(()) => sums.entries(range).await,
                Err(errno) => return Err(self.refused(errno, "writing checksums")),
            },
            known => known,
        };
        known.map_err(|errno| self.failed(errno, "reading checksums"))
    }

    /// What the disk does not give of those beside them is given up.
    pub(super) async fn put_entries(
        &self,
        object: ObjectId,
        sums: &Sidecar,
        first: u64,
        entries: &[Entry],
    ) -> Result<(), Errno> {
        let outcome = self.put_once(sums, first, entries).await;
        let blocks = first..first + entries.len() as u64;
        if outcome == Err(Errno::EIO) && self.clear_unreadable(object, sums, blocks).await.is_ok() {
            return self.put_once(sums, first, entries).await;
        }
        outcome
    }

    async fn put_once(&self, sums: &Sidecar, first: u64, entries: &[Entry]) -> Result<(), Errno> {
        let (bytes, at) = (Sidecar::encode(entries), place(first));
        let writing = sums.begin_write();
        let fd = sums.shared_fd();
        let outcome = self.paced(move || syscall::write_at(fd.as_raw_fd(), &bytes, at)).await;
        match outcome {
            Ok(()) => sums.wrote(&writing, first, entries),
            Err(_) => {
                let end = first + entries.len() as u64;
                sums.may_have_written(&writing, first..end, place(end));
            }
        }
        outcome
    }

    /// Makes the entries those of what the blocks hold now.
    pub(super) async fn repair(&self, object: ObjectId, file: &Rc<OpenFile>, sums: &Rc<Sidecar>, range: Range<u64>) {
        let (data, blocks) = (file.shared_fd(), range.clone());
        let recompute = move |sums, _: &[u8]| recompute(data.as_raw_fd(), sums, blocks);
        self.rewrite(object, sums, range, Slice::empty(), recompute).await;
    }

    /// Has `call` write entries of these blocks to the sidecar's file, on a helper thread.
    async fn rewrite(
        &self,
        object: ObjectId,
        sums: &Rc<Sidecar>,
        range: Range<u64>,
        bytes: Slice,
        call: impl FnOnce(RawFd, &[u8]) -> Result<(), Errno> + Send + 'static,
    ) {
        let (entries, end) = (sums.shared_fd(), place(range.end));
        let writing = sums.begin_write();
        let rewrite = move |bytes: &[u8]| (call(entries.as_raw_fd(), bytes), syscall::stat(entries.as_raw_fd()));
        let (outcome, stored) = self.unblock_with(bytes, rewrite).await;
        let reached = stored.map_or(end, |(stored, _)| stored.size.min(end));
        sums.may_have_written(&writing, range.clone(), reached);
        drop(writing);
        if let Err(errno) = outcome {
            tracing::warn!(%object, target = %self.target.id(), %errno, "checksums cannot be written: what was changed is taken as it is");
            self.distrust(object, sums, range).await;
        }
    }

    /// Gives the object `size` bytes.
    pub(super) async fn resize_summed(&self, object: ObjectId, file: &Rc<OpenFile>, size: u64) -> Result<(), Errno> {
        let Some(Changing { sums, _change }) = self.begin_change(object, file).await? else {
            return self.resize(file, size).await.map_err(|errno| self.refused(errno, "truncate"));
        };
        let shrinks = size < file.size.get();
        let edge = (shrinks && !size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        if let Some(block) = edge {
            let entry = self.entry_of_cut(object, file, &sums, block, size).await?;
            if let Err(errno) = self.put_entries(object, &sums, block, &[entry]).await {
                self.repair(object, file, &sums, block..block + 1).await;
                return Err(self.refused(errno, "truncate"));
            }
        }
        let outcome = self.resize(file, size).await;
        if outcome.is_err()
            && let Some(block) = edge
        {
            self.repair(object, file, &sums, block..block + 1).await;
        }
        if shrinks && (outcome.is_ok() || has_size(file, size)) {
            let in_place = file.size.get() - size <= IN_PLACE_MAX * BLOCK && self.pace.is_calm(Instant::now());
            let cut = if in_place { self.pace.timed(|| sums.cut(size)) } else { self.cut_apart(&sums, size).await };
            if cut.is_err() {
                self.distrust(object, &sums, size.div_ceil(BLOCK)..u64::MAX).await;
            }
        }
        outcome.map_err(|errno| self.refused(errno, "truncate"))
    }

    async fn entry_of_cut(
        &self,
        object: ObjectId,
        file: &OpenFile,
        sums: &Sidecar,
        block: u64,
        size: u64,
    ) -> Result<Entry, Errno> {
        let entry = self.entries_to_change(object, sums, block..block + 1).await?[0];
        let mut seen = self.look(file, block).await?;
        let before = blocks::sum(&seen);
        self.judged(object, sums, block, entry, before)?;
        seen[(size - block * BLOCK) as usize..].fill(0);
        Ok(Entry { now: blocks::sum(&seen), before })
    }

    /// What [`Sidecar::cut`] does, on a helper thread.
    pub(super) async fn cut_apart(&self, sums: &Rc<Sidecar>, size: u64) -> Result<(), Errno> {
        let Some(cut) = sums.begin_cut(size) else { return Ok(()) };
        let (fd, end) = (sums.shared_fd(), cut.end);
        self.unblock(move || syscall::truncate(fd.as_raw_fd(), end)).await?;
        cut.done();
        Ok(())
    }

    /// Before the kernel changes a range as a whole; [`Self::end_bulk`] has to follow.
    ///
    /// # Errors
    /// `EIO` where a block of which a part stays is corrupt; those of the sidecar.
    pub(super) async fn begin_bulk(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        sums: &Rc<Sidecar>,
        bytes: &Range<u64>,
    ) -> Result<Bulk, Errno> {
        let (blocks, edges) = (blocks::covering(bytes), blocks::edges(bytes, file.size.get()));
        for &block in &edges {
            let entry = self.entries_to_change(object, sums, block..block + 1).await?[0];
            let seen = self.look(file, block).await?;
            self.judged(object, sums, block, entry, blocks::sum(&seen))?;
        }
        sums.begin_pending(blocks.clone()).await.map_err(|errno| self.refused(errno, "writing checksums"))?;
        Ok(Bulk { blocks, edges })
    }

    /// `broken`: where what was done in between has failed.
    pub(super) async fn end_bulk(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        sums: &Rc<Sidecar>,
        Bulk { blocks, edges }: Bulk,
        broken: Option<&Broken>,
    ) {
        if let Some(Broken { errno, reached }) = broken {
            let failed = Failed { belief: sums.belief(), judged: edges, errno: Some(*errno) };
            let (data, reached) = (file.shared_fd(), reached.clone());
            let settle = move |sums, _: &[u8]| failed.settle_bulk((data.as_raw_fd(), sums), &reached);
            self.rewrite(object, sums, blocks.clone(), Slice::empty(), settle).await;
        } else {
            self.repair(object, file, sums, blocks.clone()).await;
        }
        if let Err(errno) = sums.end_pending(&blocks).await {
            self.refused(errno, "writing checksums");
            self.distrust(object, sums, blocks).await;
        }
    }

    /// Verifies what is about to be copied: its object may be another lane's.
    pub(super) async fn verify_source(&self, source: ObjectId, bytes: Range<u64>) -> Result<(), Errno> {
        let (Some(sums), true) = (self.sums.shared_root(), self.sums.is_on()) else { return Ok(()) };
        // Which objects the lane of the source has in doubt since a sync failed is not known here.
        let is_sure = self.target.failed_syncs() == 0;
        let me = if is_sure { self.sums.me() } else { Owner::STRANGER };
        let root = Arc::clone(&self.root);
        let found = self.unblock(move || source::verify(root.as_raw_fd(), sums.as_raw_fd(), source, bytes, me)).await;
        match found {
            Ok(Verified::Right) => Ok(()),
            Ok(Verified::Unreadable) => {
                self.tell_unreadable(source, AS_SOURCE);
                Ok(())
            }
            Ok(Verified::Corrupt(bad)) => {
                self.tell_corrupt(source, bad.block, bad.entry, bad.sum);
                Err(Errno::EIO)
            }
            Err(errno) => Err(self.failed(errno, "reading what is to be copied")),
        }
    }
}
