//! Contents in the metadata: read, written, truncated, and given up when the file's objects have them.

use kv::Kv;
use types::id::InodeId;

use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::contents;
use crate::schema::inode::{Body, HAS_OBJECTS, Inode, Striping};

impl<K: Kv> Namespace<K> {
    /// All bytes of a file that has them in the metadata.
    ///
    /// # Errors
    /// Where the store fails, or has not what the inode says.
    pub fn contents(&mut self, id: InodeId, inode: &Inode) -> Result<Vec<u8>> {
        if inode.size == 0 {
            return Ok(Vec::new());
        }
        contents::ser_key(&mut self.key, id);
        let bytes = self.cold.get(&self.kv, &self.key)?;
        let bytes = bytes.ok_or_else(|| Damage::new("a file without its contents", &self.key))?;
        contents::deser_value(&self.key, &bytes)?;
        if bytes.len() as u64 != inode.size {
            return Err(Damage::new("contents of another length than their file", &self.key).into());
        }
        Ok(bytes)
    }

    /// Writes `bytes` at `offset` of a file with its contents here. That they fit was checked. What lies between the end
    /// and `offset` becomes zeros.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn write_inline(&mut self, id: InodeId, inode: Inode, offset: usize, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len();
        let is_whole = offset == 0 && end as u64 >= inode.size;
        let mut all = if is_whole { Vec::new() } else { self.contents(id, &inode)? };
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset..end].copy_from_slice(bytes);
        self.drop_capability(id, inode)?;
        let inode = self.existing(id)?;
        let size = all.len() as u64;
        self.put_contents(id, all);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.resize_inline(size);
        inode.mtime = now;
        inode.ctime = now;
        Ok(())
    }

    /// The contents as they are after a truncate to `size`, which is within the limit.
    pub(crate) fn truncated_contents(&mut self, id: InodeId, inode: &Inode, size: u64) -> Result<Vec<u8>> {
        let mut all = if size == 0 { Vec::new() } else { self.contents(id, inode)? };
        all.resize(size as usize, 0);
        Ok(all)
    }

    /// They are copied only once from here on, into the batch.
    pub(crate) fn put_contents(&mut self, id: InodeId, bytes: Vec<u8>) {
        contents::ser_key(&mut self.key, id);
        if bytes.is_empty() {
            self.cold.delete(&self.key);
        } else {
            self.cold.put_owned(&self.key, bytes);
        }
    }

    /// Objects may exist from here on, though the contents are still here.
    pub(crate) fn expect_objects(&mut self, id: InodeId, inode: Inode) {
        if !inode.has(HAS_OBJECTS) {
            self.inodes.modify(id, inode).flags |= HAS_OBJECTS;
        }
    }

    /// The contents are no longer here, if they were: the objects have them, or there were none. The inode as it is then.
    pub(crate) fn leave_metadata(&mut self, id: InodeId, inode: Inode) -> Inode {
        if inode.inline_limit().is_none() {
            return inode;
        }
        if inode.size > 0 {
            self.put_contents(id, Vec::new());
        }
        let inode = self.inodes.modify(id, inode);
        if let Body::File(Striping { inline_limit, .. }) = &mut inode.body {
            *inline_limit = 0;
        }
        *inode
    }
}

impl Inode {
    /// Bytes up to which the contents stay in the metadata, where they are; `None` where they are in objects.
    #[must_use]
    pub fn inline_limit(&self) -> Option<u32> {
        match self.body {
            Body::File(Striping { inline_limit, .. }) if inline_limit > 0 => Some(inline_limit),
            Body::File(_) | Body::Directory { .. } | Body::Other => None,
        }
    }

    /// The size of contents in the metadata, and the space that they count as taking.
    pub(crate) fn resize_inline(&mut self, size: u64) {
        self.size = size;
        self.blocks = size.div_ceil(512);
    }
}
