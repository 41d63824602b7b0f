//! Rename: the one operation with many cases, in the order in which Linux checks them.

use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

use crate::entry::check_name;
use crate::{Model, New};

/// Fail with `EEXIST` rather than replace.
pub const RENAME_NOREPLACE: u32 = 1;
/// Let the two names swap what they point to.
pub const RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout where the entry was: a character device with the number 0 and no permissions.
pub const RENAME_WHITEOUT: u32 = 4;

/// One end of a rename.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: InodeId,
    name: &'a [u8],
}

impl Model {
    /// Moves an entry, replacing what is at the target (a file by a non-directory, an empty directory by a directory).
    /// Two names of one inode: nothing happens. `cred`: whose a whiteout is.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`, `EEXIST`; `EPERM` by flags of files; `EINVAL` for unknown flags and for a
    /// directory that would become its own descendant.
    pub fn rename(
        &mut self,
        source: (InodeId, &[u8]),
        target: (InodeId, &[u8]),
        flags: u32,
        cred: Credentials,
        now: Timestamp,
    ) -> Result<(), Errno> {
        if ![0, RENAME_NOREPLACE, RENAME_EXCHANGE].contains(&(flags & !RENAME_WHITEOUT))
            || flags == RENAME_EXCHANGE | RENAME_WHITEOUT
        {
            return Err(Errno::EINVAL);
        }
        let source = Place { parent: source.0, name: source.1 };
        let target = Place { parent: target.0, name: target.1 };
        self.directory(source.parent)?;
        self.directory(target.parent)?;
        let moved = self.lookup(source.parent, source.name)?.inode;
        self.living_directory(target.parent)?;
        check_name(target.name)?;
        let present = self.directory(target.parent)?.get(target.name);
        match (flags & !RENAME_WHITEOUT, present) {
            (RENAME_NOREPLACE, Some(_)) => return Err(Errno::EEXIST),
            (RENAME_EXCHANGE, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.is_directory(moved) && self.is_ancestor(moved, target.parent) {
            return Err(Errno::EINVAL);
        }
        match present {
            Some(other) if self.is_directory(other) && self.is_ancestor(other, source.parent) => {
                Err(if flags == RENAME_EXCHANGE { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            Some(other) if other == moved => Ok(()),
            Some(other) if flags == RENAME_EXCHANGE => {
                self.may_lose(source.parent, moved)?;
                self.may_lose(target.parent, other)?;
                self.exchange(source, moved, target, other, now);
                Ok(())
            }
            Some(other) => {
                self.may_lose(source.parent, moved)?;
                self.may_lose(target.parent, other)?;
                self.check_replace(moved, other)?;
                self.replace(source, moved, target, Some(other), now);
                self.leave_behind(source, flags, cred, now)
            }
            None => {
                self.may_lose(source.parent, moved)?;
                self.may_enter(target.parent)?;
                self.replace(source, moved, target, None, now);
                self.leave_behind(source, flags, cred, now)
            }
        }
    }

    fn leave_behind(&mut self, source: Place<'_>, flags: u32, cred: Credentials, now: Timestamp) -> Result<(), Errno> {
        if flags & RENAME_WHITEOUT == 0 {
            return Ok(());
        }
        let whiteout = New::Node { kind: FileType::CharDevice, mode: 0, rdev: 0 };
        self.create(source.parent, source.name, &whiteout, cred, now).map(drop)
    }

    fn check_replace(&self, moved: InodeId, replaced: InodeId) -> Result<(), Errno> {
        match (self.is_directory(moved), self.is_directory(replaced)) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !self.directory(replaced)?.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn replace(
        &mut self,
        source: Place<'_>,
        moved: InodeId,
        target: Place<'_>,
        replaced: Option<InodeId>,
        now: Timestamp,
    ) {
        self.known_directory(source.parent).remove(source.name);
        self.known_directory(target.parent).set(target.name, moved);
        self.arrive(moved, source.parent, target.parent, now);
        self.touch_directory(source.parent, now);
        self.touch_directory(target.parent, now);
        if let Some(replaced) = replaced {
            if self.is_directory(replaced) {
                self.known(target.parent).nlink -= 1;
            }
            self.drop_link(replaced, now);
        }
    }

    fn exchange(&mut self, source: Place<'_>, moved: InodeId, target: Place<'_>, other: InodeId, now: Timestamp) {
        self.known_directory(source.parent).set(source.name, other);
        self.known_directory(target.parent).set(target.name, moved);
        self.arrive(moved, source.parent, target.parent, now);
        self.arrive(other, target.parent, source.parent, now);
        self.touch_directory(source.parent, now);
        self.touch_directory(target.parent, now);
    }

    /// `inode` now has its entry in `to` rather than in `from`.
    fn arrive(&mut self, inode: InodeId, from: InodeId, to: InodeId, now: Timestamp) {
        let node = self.known(inode);
        node.ctime = now;
        if node.kind == FileType::Directory {
            self.known_directory(inode).parent = to;
            self.known(from).nlink -= 1;
            self.known(to).nlink += 1;
        }
    }
}
