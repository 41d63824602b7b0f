//! Directories that this client has removed while programs may still be in them, or have them open, and symbolic links,
//! FIFOs, sockets and devices, which the kernel opens without a word. Locally such an inode lives on until the last of them
//! leaves, without a name and without entries; at its shard it is gone. So its attributes are kept here until the keeper of
//! answers says that nobody uses it: then they go, mostly at once.

use types::attr::{Attr, PERMISSION_BITS, SetAttr, SetTime};
use types::id::InodeId;
use types::time::Timestamp;

use crate::few::Few;

/// Above this, all are forgotten: a MiB.
const GRAVES_MAX: usize = 8192;

/// Who forgets other inodes needs no lock.
#[derive(Default)]
pub(crate) struct Graves(Few<InodeId, Attr>);

impl Graves {
    /// It was removed: as it is without a name.
    pub(crate) fn dig(&self, attr: Attr) {
        self.0.change(|table| {
            if table.len() >= GRAVES_MAX {
                table.clear();
            }
            table.insert(attr.inode, attr);
        });
    }

    /// Nobody uses it any more.
    pub(crate) fn close(&self, inode: InodeId) {
        self.0.remove(&inode);
    }

    pub(crate) fn attr(&self, inode: InodeId) -> Option<Attr> {
        self.0.get(&inode)
    }

    /// Changes the attributes of what was removed, and says what they are.
    pub(crate) fn change(&self, inode: InodeId, change: &SetAttr, now: Timestamp) -> Option<Attr> {
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        self.0.look(&inode, |attr| {
            attr.mode = change.mode.map_or(attr.mode, |mode| mode & PERMISSION_BITS);
            attr.uid = change.uid.unwrap_or(attr.uid);
            attr.gid = change.gid.unwrap_or(attr.gid);
            attr.atime = change.atime.map_or(attr.atime, time);
            attr.mtime = change.mtime.map_or(attr.mtime, time);
            attr.ctime = now;
            *attr
        })
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
        assert_eq!(graves.0.count(), 1);
    }
}
