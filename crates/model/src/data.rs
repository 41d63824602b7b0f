//! Bytes of regular files.

use types::allocation::Allocation;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

use crate::Model;
use crate::inode::Content;

impl Model {
    /// The bytes of `offset .. offset + len` that are there. Does not touch atime.
    ///
    /// # Errors
    /// `EISDIR` of a directory, `EINVAL` of other non-files, `ESTALE`.
    pub fn read(&self, inode: InodeId, offset: u64, len: usize) -> Result<&[u8], Errno> {
        let bytes = match &self.inode(inode)?.content {
            Content::Regular(bytes) => bytes,
            Content::Directory(_) => return Err(Errno::EISDIR),
            Content::Symlink(_) | Content::Special => return Err(Errno::EINVAL),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(len).min(bytes.len());
        Ok(&bytes[start..end])
    }

    /// Writes all of `data`, filling a gap with zeros; nothing happens where `data` is empty. `kill_suid_sgid` as in
    /// `SetAttr`.
    ///
    /// # Errors
    /// As for [`Model::read`]; `EFBIG`, `ENOSPC`.
    pub fn write(
        &mut self,
        inode: InodeId,
        offset: u64,
        data: &[u8],
        kill_suid_sgid: bool,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let old_len = self.file_len(inode)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > old_len {
            self.reserve(old_len, end)?;
        }
        let node = self.known(inode);
        let Content::Regular(bytes) = &mut node.content else { return Err(Errno::EINVAL) };
        let start = offset as usize;
        if bytes.len() < start {
            bytes.resize(start, 0);
        }
        let overlap = data.len().min(bytes.len() - start);
        bytes[start..start + overlap].copy_from_slice(&data[..overlap]);
        bytes.extend_from_slice(&data[overlap..]);
        node.mtime = now;
        node.ctime = now;
        if kill_suid_sgid {
            node.kill_suid_sgid();
        }
        Ok(())
    }

    /// Changes the space of `[offset, offset + len)`, which here is no more than what it does to the bytes.
    ///
    /// # Errors
    /// As for [`Model::read`]; `EINVAL` for an empty range, `EFBIG`, `ENOSPC`.
    pub fn allocate(
        &mut self,
        inode: InodeId,
        offset: u64,
        len: u64,
        what: Allocation,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let old_len = self.file_len(inode)?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if end > old_len && !what.keeps_size() {
            self.resize(inode, end)?;
        }
        let node = self.known(inode);
        if let (Content::Regular(bytes), Allocation::Punch | Allocation::Zero { .. }) = (&mut node.content, what) {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(bytes.len());
            let range = at(offset)..at(end);
            bytes[range].fill(0);
        }
        node.mtime = now;
        node.ctime = now;
        Ok(())
    }

    /// Truncates or extends with zeros.
    pub(crate) fn resize(&mut self, inode: InodeId, size: u64) -> Result<(), Errno> {
        let old_len = self.file_len(inode)?;
        self.reserve(old_len, size)?;
        if let Content::Regular(bytes) = &mut self.known(inode).content {
            bytes.resize(size as usize, 0);
            if size == 0 {
                bytes.shrink_to_fit();
            }
        }
        Ok(())
    }

    fn file_len(&self, inode: InodeId) -> Result<u64, Errno> {
        self.read(inode, 0, usize::MAX).map(|bytes| bytes.len() as u64)
    }

    /// Accounts for a file that is to have `new_len` bytes instead of `old_len`.
    fn reserve(&mut self, old_len: u64, new_len: u64) -> Result<(), Errno> {
        if new_len > self.limits.file_bytes {
            return Err(Errno::EFBIG);
        }
        let total = self.content_bytes - old_len + new_len;
        if new_len > old_len && total > self.limits.total_bytes {
            return Err(Errno::ENOSPC);
        }
        self.content_bytes = total;
        Ok(())
    }
}
