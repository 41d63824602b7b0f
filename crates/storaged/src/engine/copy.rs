//! Copying from object to object of one target, without the bytes leaving it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;

use super::checked::Changing;
use super::files::{Files, READ_ONLY};
use super::{folders, syscall};

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
    /// See [`super::ObjectStore::copy`].
    pub(super) async fn copy_object(&self, source: ObjectId, object: ObjectId, range: Range) -> Result<u64, Errno> {
        let fits = |offset: u64| offset.checked_add(range.len).is_some_and(|end| i64::try_from(end).is_ok());
        if !fits(range.source_offset) || !fits(range.offset) {
            return Err(Errno::EFBIG);
        }
        let file = self.open_or_create(object).await?;
        self.target.admit(range.len)?;
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
        let (root, fd, size) = (Arc::clone(&self.root), file.fd(), file.size.get());
        let outcome = self
            .unblock(move || {
                // Opened anew and not kept: it may be another lane's, which alone knows when it is removed.
                match syscall::open_at(root.as_raw_fd(), &folders::path(source), READ_ONLY) {
                    Ok(source) => copy(source.as_raw_fd(), fd, range, size),
                    Err(Errno::ENOENT) => make_hole(fd, range.offset, range.len, size),
                    Err(errno) => Err(errno),
                }
            })
            .await;
        if let Some((sums, blocks)) = bulk {
            self.end_bulk(object, &file, sums, blocks).await;
        }
        file.changed(bytes);
        // How far the data went only the file knows; others may have made it longer meanwhile.
        let stored = syscall::stat(fd);
        if let Ok((stored, _)) = stored {
            file.size.set(stored.size);
        }
        match outcome.and(stored) {
            Ok((stored, _)) => Ok(stored.size),
            Err(errno) => Err(self.failed(errno, "copy")),
        }
    }
}

/// Data as data, holes as holes. `size`: of the target. Blocks.
fn copy(source: RawFd, target: RawFd, range: Range, size: u64) -> Result<(), Errno> {
    let end = range.source_offset + range.len;
    let there = |at: u64| range.offset + (at - range.source_offset);
    let find = |at: u64, hole: bool| match syscall::seek(source, at, hole) {
        Ok(found) => Ok(found.min(end)),
        Err(Errno::ENXIO) => Ok(end),
        Err(errno) => Err(errno),
    };
    let mut at = range.source_offset;
    while at < end {
        let data = find(at, false)?;
        make_hole(target, there(at), data - at, size)?;
        let hole = if data < end { find(data, true)? } else { end };
        copy_data(source, data, target, there(data), hole - data)?;
        at = hole;
    }
    Ok(())
}

/// Zeros, without space. What lies beyond the target's end is a hole already.
fn make_hole(fd: RawFd, offset: u64, len: u64, size: u64) -> Result<(), Errno> {
    let len = len.min(size.saturating_sub(offset));
    if len == 0 {
        return Ok(());
    }
    match syscall::allocate(fd, Allocation::Punch.mode(), offset, len) {
        Err(Errno::EOPNOTSUPP) => write_zeros(fd, offset, len),
        outcome => outcome,
    }
}

fn write_zeros(fd: RawFd, offset: u64, len: u64) -> Result<(), Errno> {
    let zeros = vec![0; BUFFER.min(usize::try_from(len).unwrap_or(BUFFER))];
    let mut done = 0;
    while done < len {
        let count = zeros.len().min(usize::try_from(len - done).unwrap_or(BUFFER));
        syscall::write_at(fd, &zeros[..count], offset + done)?;
        done += count as u64;
    }
    Ok(())
}

fn copy_data(source: RawFd, from: u64, target: RawFd, to: u64, len: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        match syscall::copy_range(source, from + done, target, to + done, len - done) {
            // Shorter than when it was looked at: what was cut off meanwhile reads as zeros.
            Ok(0) => return write_zeros(target, to + done, len - done),
            Ok(count) => done += count,
            // Some file systems do not copy between files, or not these ranges.
            Err(Errno::EXDEV | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                return copy_bytes(source, from + done, target, to + done, len - done);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn copy_bytes(source: RawFd, from: u64, target: RawFd, to: u64, len: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; BUFFER];
    let mut done = 0;
    while done < len {
        let wanted = BUFFER.min(usize::try_from(len - done).unwrap_or(BUFFER));
        let count = syscall::read_at(source, &mut buffer[..wanted], from + done)?;
        if count == 0 {
            return write_zeros(target, to + done, len - done);
        }
        syscall::write_at(target, &buffer[..count], to + done)?;
        done += count as u64;
    }
    Ok(())
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
        let data: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
        source.write_all_at(&data, 0).expect("written");
        copy_bytes(source.as_raw_fd(), 100, target.as_raw_fd(), 5, 650_000).expect("copied");
        let mut seen = vec![0; 650_000];
        target.read_exact_at(&mut seen, 5).expect("read");
        assert!(seen == data[100..650_100]);
        copy_bytes(source.as_raw_fd(), 699_990, target.as_raw_fd(), 0, 20).expect("copied");
        let mut seen = [1; 20];
        target.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!((&seen[..10], &seen[10..]), (&data[699_990..], &[0; 10][..]), "what is not there reads as zeros");
    }
}
