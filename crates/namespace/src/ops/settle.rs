//! A file's size between its objects and its inode: the inode's part. Who may say what it is decides `shard`.

use kv::Kv;
use types::id::InodeId;
use types::time::Timestamp;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::ops::set::must_be_file;
use crate::schema::inode::{HAS_OBJECTS, Inode, UNSETTLED};
use crate::view::{Settle, TimeChange};

impl<K: Kv> Namespace<K> {
    /// A regular file, for a write intent or its end.
    ///
    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL`.
    pub fn writable(&mut self, id: InodeId) -> Result<Inode> {
        let inode = self.existing(id)?;
        must_be_file(&inode)?;
        Ok(inode)
    }

    /// From here on the objects know the size. The inode as it is then.
    pub(crate) fn unsettle(&mut self, id: InodeId, inode: Inode) -> Inode {
        if inode.has(HAS_OBJECTS) && inode.has(UNSETTLED) {
            return inode;
        }
        let inode = self.inodes.modify(id, inode);
        inode.flags |= HAS_OBJECTS | UNSETTLED;
        *inode
    }

    /// The inode takes over what the objects are known to hold; `last`: and knows best from here on. `written_after`: as it is
    /// told. `overruled`: the time was set by somebody else while the session wrote.
    pub(crate) fn take_over(
        &mut self,
        settle: &Settle,
        inode: Inode,
        last: bool,
        written_after: Option<Timestamp>,
        overruled: bool,
    ) {
        let inode = self.inodes.modify(settle.inode, inode);
        inode.size = settle.size;
        inode.blocks = settle.blocks;
        // Set by somebody else while the session wrote, also to what it was: that goes over the writes before it.
        let written_after = written_after.unwrap_or(inode.ctime);
        // Who has asked the objects has ended its intent before, and is not known to be overruled since.
        let is_own = settle.gathered.is_none() && !overruled;
        let counts = |change: &TimeChange| (is_own && change.before == inode.mtime) || change.at > written_after;
        if let Some(TimeChange { at: written, .. }) = settle.mtime.filter(counts) {
            inode.mtime = written;
            // A write changes ctime too, but never back.
            inode.ctime = inode.ctime.max(written);
        }
        if last {
            inode.flags &= if settle.untouched { !(UNSETTLED | HAS_OBJECTS) } else { !UNSETTLED };
        }
    }
}
