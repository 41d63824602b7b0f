//! Access times, by the rule of `relatime`: one that is younger than the last change, and than a day, stays as it is.

use kv::Kv;
use types::id::InodeId;
use types::time::Timestamp;

use crate::error::Result;
use crate::namespace::Namespace;

/// Nanoseconds.
const DAY: i64 = 24 * 3600 * 1_000_000_000;

/// Whether an access at `now` is noted, where the one before was at `atime` and the last change (of data or inode) at
/// `changed`.
#[must_use]
pub fn is_due(atime: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
    atime <= changed || now.0.saturating_sub(atime.0) >= DAY
}

impl<K: Kv> Namespace<K> {
    /// Whether an access to a directory or a symlink, now, is noted. What is gone is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn access_is_due(&mut self, id: InodeId) -> Result<bool> {
        let now = self.now;
        let found = self.find(id)?;
        Ok(found.is_some_and(|inode| is_due(inode.atime, inode.mtime.max(inode.ctime), now)))
    }

    /// A directory was listed or a symlink read, now. What is gone is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn accessed(&mut self, id: InodeId) -> Result<()> {
        let now = self.now;
        if let Some(inode) = self.find(id)? {
            self.inodes.modify(id, inode).atime = now;
        }
        Ok(())
    }

    /// A client read a file at `at`, when it knew `before` as its access time. Where that is no longer so, somebody set
    /// it or read the file meanwhile, which stays.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn was_read(&mut self, id: InodeId, at: Timestamp, before: Timestamp) -> Result<()> {
        if let Some(inode) = self.find(id)?
            && inode.atime == before
        {
            self.inodes.modify(id, inode).atime = at;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_noted_after_a_change_and_once_a_day() {
        let due = |atime, changed, now| is_due(Timestamp(atime), Timestamp(changed), Timestamp(now));
        assert!(due(5, 5, 6) && due(4, 5, 6));
        assert!(!due(6, 5, 7) && !due(6, 5, 6 + DAY - 1));
        assert!(due(6, 5, 6 + DAY));
        assert!(!due(i64::MAX, 5, 7), "set into the future");
    }
}
