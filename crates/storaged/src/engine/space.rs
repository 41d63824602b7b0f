//! Space inside an object: reserving it, giving it back, and finding where it is.

use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;

use super::checked::Broken;
use super::failed::Reached;
use super::files::Files;
use super::{extents, syscall};
use crate::open_files::OpenFile;

impl Files {
    /// Takes the space that a write to this range will need.
    ///
    /// # Errors
    /// `ENOSPC` where it is not there.
    pub(super) async fn admit_write(&self, file: &OpenFile, range: Range<u64>) -> Result<(), Errno> {
        let inside = range.start..file.size.get().clamp(range.start, range.end);
        let mut needed = inside.end..range.end;
        if self.target.is_short_of(range.end - range.start) {
            // Nothing may be left for holes; what has its space already needs none, also where that is past the end.
            let (fd, all) = (file.shared_fd(), range.clone());
            let covered = self.unblock(move || extents::covered_until(fd.as_raw_fd(), all)).await.unwrap_or(inside.end);
            if covered < inside.end {
                return Err(Errno::ENOSPC);
            }
            needed.start = covered;
        }
        if needed.is_empty() { Ok(()) } else { self.target.admit(needed.end - needed.start) }
    }

    /// See [`super::ObjectStore::allocate`].
    pub(super) async fn change_space(
        &self,
        object: ObjectId,
        offset: u64,
        len: u64,
        what: Allocation,
    ) -> Result<u64, Errno> {
        let end = offset.checked_add(len).filter(|&end| i64::try_from(end).is_ok()).ok_or(Errno::EFBIG)?;
        let file = if what == Allocation::Punch {
            match self.open_existing(object).await? {
                None => return Ok(0),
                Some(file) if file.writable => file,
                // It was opened while the file system took no changes.
                Some(_) => self.open_or_create(object).await?,
            }
        } else {
            let file = self.open_for_data(object, len).await?;
            let (fd, size) = (file.shared_fd(), file.size.get());
            // All of it counts: it may be much, and lie in a hole.
            let covered = self.unblock(move || extents::covered_until(fd.as_raw_fd(), offset..end)).await;
            self.target.admit(end - covered.unwrap_or(size).clamp(offset, end))?;
            file
        };
        file.durability.changes();
        if matches!(what, Allocation::Zero { .. }) {
            // Where there is no space for all of it, ext4 notices only when it has dropped what is cached: then what the disk
            // has comes back.
            self.sync_data(object, &file).await?;
        }
        let changing = self.begin_change(object, &file).await?;
        // What is only reserved holds what it held.
        let sums =
            changing.as_ref().map(|changing| &changing.sums).filter(|_| !matches!(what, Allocation::Reserve { .. }));
        let bulk = match sums {
            Some(sums) => Some((sums, self.begin_bulk(object, &file, sums, &(offset..end)).await?)),
            None => None,
        };
        let (fd, size) = (file.shared_fd(), file.size.get());
        // Freeing many blocks takes long, and so does marking them.
        let outcome = self.unblock(move || change(fd.as_raw_fd(), offset, len, what)).await;
        if let Some((sums, bulk)) = bulk {
            let reached = Reached { copied: offset..offset, zeroed: offset..end };
            let broken = outcome.err().map(|errno| Broken { errno, reached });
            self.end_bulk(object, &file, sums, bulk, broken.as_ref()).await;
        }
        file.changed(offset..end);
        let reached = if what.keeps_size() { size } else { end };
        match outcome {
            Ok(()) => {
                file.size.set(file.size.get().max(reached));
                Ok(file.size.get())
            }
            Err(errno) => {
                if let Ok((stored, _)) = syscall::stat(file.fd()) {
                    file.size.set(stored.size);
                }
                Err(self.refused(errno, "allocate"))
            }
        }
    }

    /// See [`super::ObjectStore::seek`].
    pub(super) async fn find_next(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
        let Some(file) = self.open_existing(object).await? else { return Ok(None) };
        if offset >= file.size.get() {
            return Ok(None);
        }
        let fd = file.shared_fd();
        match self.unblock(move || syscall::seek(fd.as_raw_fd(), offset, hole)).await {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(self.failed(errno, "seek")),
        }
    }
}

/// Blocks. Never makes the file shorter, also where others are making it longer.
fn change(fd: RawFd, offset: u64, len: u64, what: Allocation) -> Result<(), Errno> {
    match (syscall::allocate(fd, what.mode(), offset, len), what) {
        // Of what reaches beyond all that a file can have, there is nothing beyond the end of this one.
        (Err(Errno::EFBIG), Allocation::Punch) => match syscall::stat(fd)?.0.size.saturating_sub(offset) {
            0 => Ok(()),
            there => syscall::allocate(fd, what.mode(), offset, there.min(len)),
        },
        // Not every file system can zero a range in place; those that can make holes come to the same.
        (Err(Errno::EOPNOTSUPP), Allocation::Zero { keep_size }) => {
            syscall::allocate(fd, Allocation::Punch.mode(), offset, len)?;
            syscall::allocate(fd, Allocation::Reserve { keep_size }.mode(), offset, len)
        }
        (outcome, _) => outcome,
    }
}
