//! Brings objects from dirty to clean while nobody changes them, and goes over those of which something is in doubt.

use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::buf::Buf;
use ring::op;
use types::error::Errno;
use types::id::ObjectId;

use super::files::Files;
use super::sidecar::Sidecar;
use super::{Checked, syscall};
use crate::open_files::OpenFile;
use crate::sums::blocks::{self, BLOCK};
use crate::sums::header::place;
use crate::sums::{Entry, Trust, Verdict};

/// Objects that become clean together: all of them stay open for so long. Never more than half of those that may be open.
const BATCH_MAX: usize = 512;

impl Files {
    /// Makes clean what was not changed after `idle_since`. All goes to the disk in one call for the file system.
    pub(super) async fn clean_idle(&self, idle_since: Instant) -> Result<(), Errno> {
        let batch = BATCH_MAX.min(self.open.borrow().capacity() / 2).max(1);
        loop {
            let objects = self.sums.dirty_before(idle_since, batch);
            if objects.is_empty() {
                return Ok(());
            }
            let mut files = Vec::new();
            for object in objects {
                let file = self.open_existing(object).await;
                if file.as_ref().is_err_and(|errno| *errno != Errno::EIO) {
                    // For lack of descriptors, say: later there may be some.
                    self.sums.note_dirty(object, Instant::now());
                    continue;
                }
                let sums = file.as_ref().ok().and_then(|file| file.as_ref()?.sums().cloned());
                // One that is not there any more, or that the disk does not give, is left to whoever needs it.
                let (Ok(Some(file)), Some(sums)) = (file, sums) else {
                    self.sums.forget(object);
                    continue;
                };
                match sums.may_clean(idle_since) {
                    Some(changes) => files.push((object, file, sums, changes)),
                    None if sums.must_clean() => self.sums.note_dirty(object, Instant::now()),
                    None => self.sums.forget(object),
                }
            }
            if files.is_empty() {
                continue;
            }
            let synced = self.sync_file_system().await;
            if let Err(errno) = synced.and(self.distrust_unwritten().await) {
                files.iter().for_each(|(object, ..)| self.sums.note_dirty(*object, Instant::now()));
                return Err(errno);
            }
            for (object, file, sums, changes) in files {
                match sums.clean(changes, file.size.get()).await {
                    Ok(true) => self.sums.forget(object),
                    Ok(false) => self.sums.note_dirty(object, Instant::now()),
                    Err(errno) => return Err(self.refused(errno, "writing checksums")),
                }
            }
        }
    }

    /// After a sync of the file system: where one has failed, what may be missing on the disk of objects that are not clean
    /// is not believed any more. The kernel takes it for written: the next sync would say nothing of it.
    ///
    /// # Errors
    /// Where one has failed since this was called last, which may have been another lane's.
    async fn distrust_unwritten(&self) -> Result<(), Errno> {
        if !self.sums.hears_of_failed_sync(self.target.failed_syncs()) {
            return Ok(());
        }
        // Nobody has heard what the kernel had to say of these.
        self.sums.distrust_closed();
        let open = self.open.borrow().objects();
        for object in open {
            let file = self.open.borrow().get(object);
            let sums = file.as_ref().and_then(|file| file.sums());
            if let Some(sums) = sums.filter(|sums| sums.may_lack_writes())
                && !sums.is_written().await
            {
                self.distrust(object, sums, 0..u64::MAX).await;
            }
        }
        Err(Errno::EIO)
    }

    /// See [`super::ObjectStore::check`].
    pub(super) async fn check_range(&self, object: ObjectId, offset: u64, len: u64) -> Result<Checked, Errno> {
        let mut checked = Checked::default();
        let Some(file) = self.open_existing(object).await? else { return Ok(checked) };
        let sums = match self.sidecar_to_check(object, &file).await {
            Ok(Some(sums)) => sums,
            Ok(None) => return Ok(checked),
            // There is no room for one, say, which makes nothing corrupt.
            Err(errno) => return Ok(Checked { unwritten: Some(errno), ..checked }),
        };
        checked.size = file.size.get();
        checked.in_doubt = sums.trust() != Trust::Exact;
        let end = (offset + len).min(checked.size);
        if offset >= end {
            return Ok(checked);
        }
        let data = self.read_apart(&file, offset, end - offset).await?;
        checked.bytes = end - offset;
        let range = blocks::covering(&(offset..end));
        let mut entries = match self.entries_to_change(object, &sums, range.clone()).await {
            Ok(entries) => entries,
            // Nor does that.
            Err(errno) => return Ok(Checked { unwritten: Some(errno), ..checked }),
        };
        checked.in_doubt = sums.trust() != Trust::Exact;
        // What the disk has refused is in the page cache still, and is written only if it is put there again.
        let is_rewritten = sums.trust() != Trust::Exact;
        for (block, entry) in range.clone().zip(&mut entries) {
            let (_, part) = blocks::overlap(block, offset, end - offset);
            let mut sum = blocks::sum(&data[part]);
            if sums.judge(block, *entry, sum) == Verdict::Corrupt {
                // Once more, before anybody is alarmed.
                let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(checked.size));
                sum = blocks::sum(&self.read_apart(&file, start, end - start).await?);
            }
            match sums.judge(block, *entry, sum) {
                Verdict::Corrupt => {
                    self.tell_corrupt(object, block, *entry, sum);
                    checked.corrupt.push(block * BLOCK);
                }
                Verdict::Good | Verdict::Adopted if sums.trust() == Trust::Exact => {}
                verdict => {
                    checked.adopted += u64::from(verdict == Verdict::Adopted);
                    *entry = Entry::settled(sum);
                }
            }
        }
        if is_rewritten && sums.is_writable() {
            let wrote = self.put_entries(object, &sums, range.start, &entries).await;
            checked.unwritten = wrote.err().map(|errno| self.refused(errno, "writing checksums"));
        }
        Ok(checked)
    }

    /// See [`super::ObjectStore::next_to_check`].
    pub(super) async fn next_block(&self, object: ObjectId, offset: u64) -> Result<Option<u64>, Errno> {
        let Some(file) = self.open_existing(object).await? else { return Ok(None) };
        let (data, sums) = (file.shared_fd(), file.sums().map(|sums| sums.shared_fd()));
        let next = |fd: &Arc<OwnedFd>, at| match syscall::seek(fd.as_raw_fd(), at, false) {
            Ok(found) => Some(found),
            Err(Errno::ENXIO) => None,
            // It does not tell holes: all is to be looked at.
            Err(_) => Some(at),
        };
        let first = offset / BLOCK;
        let found = self
            .unblock(move || {
                let entry = |sums: &Arc<OwnedFd>| Some((next(sums, place(first))? - place(0)) / Entry::LEN as u64);
                let block = next(&data, offset).map(|found| found / BLOCK);
                block.into_iter().chain(sums.as_ref().and_then(entry)).min()
            })
            .await;
        Ok(found.map(|block| offset.max(block * BLOCK)))
    }

    /// Makes one where there is none: what the object holds is then taken as it is.
    async fn sidecar_to_check(&self, object: ObjectId, file: &Rc<OpenFile>) -> Result<Option<Rc<Sidecar>>, Errno> {
        if !self.sums.is_on() || self.target.health() == crate::target::Health::ReadOnly {
            return Ok(file.sums().filter(|sums| sums.is_kept()).cloned());
        }
        self.make_sidecar(object, file).await
    }

    /// From the disk rather than from the page cache, where that can be. Filled up with zeros where the file is shorter.
    async fn read_apart(&self, file: &OpenFile, offset: u64, len: u64) -> Result<Buf, Errno> {
        let mut buf = Buf::with_whole_pages(len as usize);
        let mut done = 0;
        let way = file.direct().and_then(|way| Some((way, way.readable(&buf, offset, len)?)));
        if let Some((way, rounded)) = way {
            let rest = buf.split_off(rounded);
            let (outcome, read) = op::read_once(way.fd(), buf, offset).await;
            buf = read;
            buf.unsplit(rest).expect("the two parts of one buffer");
            // What it does not give, the usual way does, or tells why not.
            done = outcome.unwrap_or(0).min(len as usize);
        }
        if done < len as usize {
            let (outcome, rest) = op::read_at(file.fd(), buf.split_off(done), offset + done as u64).await;
            buf.unsplit(rest).expect("the two parts of one buffer");
            done += outcome.map_err(|error| self.failed(error.into(), "read"))?;
        }
        buf.truncate(len as usize);
        let done = done.min(buf.len());
        buf[done..].fill(0);
        Ok(buf)
    }

    /// See [`super::ObjectStore::believe`].
    pub(super) async fn believe_sums(&self, object: ObjectId, since: u64) -> Result<(), Errno> {
        let Some(file) = self.open_existing(object).await? else { return Ok(()) };
        let Some(sums) = file.sums() else { return Ok(()) };
        // What cannot be written there was not made right either.
        if sums.trust() == Trust::Exact || !sums.is_writable() {
            return Ok(());
        }
        if !self.sums.may_be_believed(object, since) {
            self.sums.note_doubtful(object);
            return Ok(());
        }
        self.cut_apart(sums, file.size.get()).await.map_err(|errno| self.refused(errno, "writing checksums"))?;
        sums.believe().await.map_err(|errno| self.refused(errno, "writing checksums"))?;
        if !self.sums.may_be_believed(object, since) {
            // The disk has refused something meanwhile.
            self.distrust(object, sums, 0..u64::MAX).await;
            return Ok(());
        }
        self.sums.note_believed(object);
        self.sums.note_dirty(object, Instant::now());
        Ok(())
    }
}
