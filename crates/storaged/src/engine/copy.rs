//! Copying from object to object of one target, without the bytes leaving it.

use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;

use super::checked::{Broken, Changing};
use super::failed::Reached;
use super::files::{Files, READ_ONLY};
use super::{extents, folders, syscall};
use crate::open_files::OpenFile;

/// Bytes that go through memory at once where the kernel does not copy between the two files.
const BUFFER: usize = 256 << 10;

/// A range of one file that is to be like a range of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) source_offset: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Files {
    /// Opens what is copied to, and takes the space that this will need.
    ///
    /// # Errors
    /// `ENOSPC` where it is not there, and then nothing is made; those of reading the source.
    async fn open_for_copy(&self, source: ObjectId, object: ObjectId, range: Range) -> Result<Rc<OpenFile>, Errno> {
        let file = self.open_existing(object).await?;
        let (root, there) = (Arc::clone(&self.root), file.as_ref().map(|file| (file.shared_fd(), file.size.get())));
        let needed = self
            .unblock(move || {
                let there = there.as_ref().map(|(fd, size)| (fd.as_raw_fd(), *size));
                needed(root.as_raw_fd(), source, there, range)
            })
            .await;
        self.target.admit(needed.map_err(|errno| self.failed(errno, "reading what is to be copied"))?)?;
        self.open_or_create(object).await
    }

    /// See [`super::ObjectStore::copy`].
    pub(super) async fn copy_object(&self, source: ObjectId, object: ObjectId, range: Range) -> Result<u64, Errno> {
        let fits = |offset: u64| offset.checked_add(range.len).is_some_and(|end| i64::try_from(end).is_ok());
        if !fits(range.source_offset) || !fits(range.offset) {
            return Err(Errno::EFBIG);
        }
        let file = self.open_for_copy(source, object, range).await?;
        file.durability.changes();
        let changing = self.begin_change(object, &file).await?;
        let bytes = range.offset..range.offset + range.len;
        let bulk = match &changing {
            Some(Changing { sums, .. }) => {
                self.verify_source(source, range.source_offset..range.source_offset + range.len).await?;
                Some((sums, self.begin_bulk(object, &file, sums, &bytes).await?))
            }
            None => None,
        };
        let (root, fd, size) = (Arc::clone(&self.root), file.shared_fd(), file.size.get());
        let (outcome, is_unread) = self
            .unblock(move || {
                let fd = fd.as_raw_fd();
                let mut target = Target { fd, size, copied: range.offset, zeroed: range.offset, is_unread: false };
                // Opened anew and not kept: it may be another lane's, which alone knows when it is removed.
                let outcome = match syscall::open_at(root.as_raw_fd(), &folders::path(source), READ_ONLY) {
                    Ok(source) => copy(source.as_raw_fd(), &mut target, range),
                    Err(Errno::ENOENT) => target.make_hole(range.offset, range.len),
                    Err(errno) => Err(target.unread(errno)),
                };
                let broken = |errno| Broken { errno, reached: target.reached(range.offset) };
                (outcome.map_err(broken), target.is_unread)
            })
            .await;
        if let Some((sums, bulk)) = bulk {
            self.end_bulk(object, &file, sums, bulk, outcome.as_ref().err()).await;
        }
        file.changed(bytes);
        // How far the data went only the file knows; others may have made it longer meanwhile.
        let stored = syscall::stat(file.fd());
        if let Ok((stored, _)) = stored {
            file.size.set(stored.size);
        }
        match outcome.map_err(|broken| broken.errno).and(stored) {
            Ok((stored, _)) => Ok(stored.size),
            Err(errno) if is_unread => Err(self.failed(errno, "reading what is to be copied")),
            Err(errno) => Err(self.refused(errno, "copy")),
        }
    }
}

/// Bytes that a copy needs: holes need none, nor does what has its space already. `target`: where there is one, with its bytes.
/// Blocks.
fn needed(root: RawFd, source: ObjectId, target: Option<(RawFd, u64)>, range: Range) -> Result<u64, Errno> {
    let source = match syscall::open_at(root, &folders::path(source), READ_ONLY) {
        Err(Errno::ENOENT) => return Ok(0),
        outcome => outcome?,
    };
    let end = range.source_offset + range.len;
    let (mut at, mut needed) = (range.source_offset, 0);
    while at < end {
        let data = next(source.as_raw_fd(), at, false, end)?;
        at = if data < end { next(source.as_raw_fd(), data, true, end)? } else { end };
        let there = |at: u64| range.offset + (at - range.source_offset);
        let piece = there(data)..there(at);
        let covered = target.map_or(piece.start, |(fd, size)| {
            extents::covered_until(fd, piece.clone()).unwrap_or(size.clamp(piece.start, piece.end))
        });
        needed += piece.end - covered.min(piece.end);
    }
    Ok(needed)
}

/// Where from `at` on the next data or hole of the source is; `end` at the latest.
fn next(source: RawFd, at: u64, hole: bool, end: u64) -> Result<u64, Errno> {
    match syscall::seek(source, at, hole) {
        Ok(found) => Ok(found.min(end)),
        Err(Errno::ENXIO) => Ok(end),
        Err(errno) => Err(errno),
    }
}

/// What is copied to, and how far that has come.
struct Target {
    fd: RawFd,
    /// Bytes that it had.
    size: u64,
    /// All up to here is as it is to be.
    copied: u64,
    /// From there up to here zeros may have come.
    zeroed: u64,
    /// What has failed was reading the other one.
    is_unread: bool,
}

/// Data as data, holes as holes. Blocks.
fn copy(source: RawFd, target: &mut Target, range: Range) -> Result<(), Errno> {
    let end = range.source_offset + range.len;
    let there = |at: u64| range.offset + (at - range.source_offset);
    let mut at = range.source_offset;
    while at < end {
        let data = next(source, at, false, end).map_err(|errno| target.unread(errno))?;
        target.make_hole(there(at), data - at)?;
        let hole = if data < end { next(source, data, true, end).map_err(|errno| target.unread(errno))? } else { end };
        target.copy_data(source, data, there(data), hole - data)?;
        at = hole;
    }
    Ok(())
}

impl Target {
    fn unread(&mut self, errno: Errno) -> Errno {
        self.is_unread = true;
        errno
    }

    /// From where it began.
    fn reached(&self, offset: u64) -> Reached {
        Reached { copied: offset..self.copied, zeroed: self.copied..self.zeroed.max(self.copied) }
    }

    /// Zeros, without space. What lies beyond the target's end is a hole already.
    fn make_hole(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        let inside = len.min(self.size.saturating_sub(offset));
        if inside > 0 {
            self.zeroed = offset + inside;
            match syscall::allocate(self.fd, Allocation::Punch.mode(), offset, inside) {
                Err(Errno::EOPNOTSUPP) => self.write_zeros(offset, inside)?,
                outcome => outcome?,
            }
        }
        self.copied = offset + len;
        Ok(())
    }

    fn write_zeros(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        self.zeroed = offset + len;
        let zeros = vec![0; BUFFER.min(usize::try_from(len).unwrap_or(BUFFER))];
        let mut done = 0;
        while done < len {
            let count = zeros.len().min(usize::try_from(len - done).unwrap_or(BUFFER));
            syscall::write_at(self.fd, &zeros[..count], offset + done)?;
            done += count as u64;
        }
        self.copied = offset + len;
        Ok(())
    }

    fn copy_data(&mut self, source: RawFd, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            match syscall::copy_range(source, from + done, self.fd, to + done, len - done) {
                // Shorter than when it was looked at: what was cut off meanwhile reads as zeros.
                Ok(0) => return self.write_zeros(to + done, len - done),
                Ok(count) => done += count,
                // Some file systems do not copy between files, or not these ranges. Which of the two is ill, none says.
                Err(Errno::EXDEV | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::EIO) => {
                    return self.copy_bytes(source, from + done, to + done, len - done);
                }
                Err(errno) => return Err(errno),
            }
            self.copied = to + done;
        }
        Ok(())
    }

    fn copy_bytes(&mut self, source: RawFd, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER];
        let mut done = 0;
        while done < len {
            let wanted = BUFFER.min(usize::try_from(len - done).unwrap_or(BUFFER));
            let read = syscall::read_at(source, &mut buffer[..wanted], from + done);
            let count = read.map_err(|errno| self.unread(errno))?;
            if count == 0 {
                return self.write_zeros(to + done, len - done);
            }
            let mut piece = &buffer[..count];
            while !piece.is_empty() {
                let count = syscall::write_some(self.fd, piece, to + done)?;
                piece = &piece[count..];
                done += count as u64;
                self.copied = to + done;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn bytes_are_copied_where_the_kernel_does_not() {
        let source = tempfile::tempfile().expect("a file");
        let target = tempfile::tempfile().expect("a file");
        let mut to = Target { fd: target.as_raw_fd(), size: 0, copied: 5, zeroed: 5, is_unread: false };
        let data: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
        source.write_all_at(&data, 0).expect("written");
        to.copy_bytes(source.as_raw_fd(), 100, 5, 650_000).expect("copied");
        assert_eq!(to.reached(5), Reached { copied: 5..650_005, zeroed: 650_005..650_005 });
        let mut seen = vec![0; 650_000];
        target.read_exact_at(&mut seen, 5).expect("read");
        assert!(seen == data[100..650_100]);
        to.copy_bytes(source.as_raw_fd(), 699_990, 0, 20).expect("copied");
        let mut seen = [1; 20];
        target.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!((&seen[..10], &seen[10..]), (&data[699_990..], &[0; 10][..]), "what is not there reads as zeros");
    }
}
