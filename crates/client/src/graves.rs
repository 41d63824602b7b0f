//! Directories that this client has removed while programs may still be in them, or have them open, and symbolic links,
//! FIFOs, sockets and devices, which the kernel opens without a word. Locally such an inode lives on until the last of them
//! leaves, without a name and without entries; at its shard it is gone. So its attributes are kept here until the keeper of
//! answers says that nobody uses it: then they go, mostly at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use types::attr::{Attr, PERMISSION_BITS, SetAttr, SetTime};
use types::id::InodeId;
use types::time::Timestamp;

/// Above this, all are forgotten: a MiB.
const GRAVES_MAX: usize = 8192;

#[derive(Default)]
pub(crate) struct Graves {
    table: Mutex<FxHashMap<InodeId, Attr>>,
    /// How many the table has, so that who forgets other inodes needs no lock.
    count: AtomicUsize,
}

impl Graves {
    fn table(&self) -> MutexGuard<'_, FxHashMap<InodeId, Attr>> {
        // A panic elsewhere leaves the table whole: each critical section is a single change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was removed: as it is without a name.
    pub(crate) fn dig(&self, attr: Attr) {
        let mut table = self.table();
        if table.len() >= GRAVES_MAX {
            table.clear();
        }
        table.insert(attr.inode, attr);
        self.count.store(table.len(), Ordering::Release);
    }

    /// Nobody uses it any more.
    pub(crate) fn close(&self, inode: InodeId) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut table = self.table();
            table.remove(&inode);
            self.count.store(table.len(), Ordering::Release);
        }
    }

    pub(crate) fn attr(&self, inode: InodeId) -> Option<Attr> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table().get(&inode).copied()
    }

    /// Changes the attributes of what was removed, and says what they are.
    pub(crate) fn change(&self, inode: InodeId, change: &SetAttr, now: Timestamp) -> Option<Attr> {
        let mut table = self.table();
        let attr = table.get_mut(&inode)?;
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        attr.mode = change.mode.map_or(attr.mode, |mode| mode & PERMISSION_BITS);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.atime = change.atime.map_or(attr.atime, time);
        attr.mtime = change.mtime.map_or(attr.mtime, time);
        attr.ctime = now;
        Some(*attr)
    }
}

#[cfg(test)]
mod tests {
    use types::attr::FileType;

    use super::*;
    use crate::test_client;

    fn directory(inode: u64) -> Attr {
        let inode = InodeId(inode);
        Attr { kind: FileType::Directory, mode: 0o755, nlink: 0, ..test_client::reply(inode).attr }
    }

    #[test]
    fn a_removed_directory_keeps_its_attributes_until_nobody_uses_it() {
        let graves = Graves::default();
        assert_eq!(graves.attr(InodeId(7)), None);
        graves.dig(directory(7));
        assert_eq!(graves.attr(InodeId(7)), Some(directory(7)));
        let change = SetAttr { mode: Some(0o40_700), mtime: Some(SetTime::At(Timestamp(3))), ..SetAttr::default() };
        let changed = Attr { mode: 0o700, mtime: Timestamp(3), ctime: Timestamp(9), ..directory(7) };
        assert_eq!(graves.change(InodeId(7), &change, Timestamp(9)), Some(changed));
        assert_eq!((graves.attr(InodeId(7)), graves.attr(InodeId(8))), (Some(changed), None));
        graves.close(InodeId(8));
        graves.close(InodeId(7));
        assert_eq!(graves.attr(InodeId(7)), None);
    }

    #[test]
    fn they_are_bounded() {
        let graves = Graves::default();
        (0..=GRAVES_MAX as u64).for_each(|inode| graves.dig(directory(inode)));
        assert_eq!(graves.table().len(), 1);
    }
}
