//! What kinds of operations there are for clients and services. A new operation is in none of these lists until
//! somebody thinks of it: `tests/golden/classes.txt` shows that.

use super::Op;

/// What storage services alone answer. A pattern, so that the compiler still finds an operation that no arm of a
/// service's match has.
#[macro_export]
macro_rules! storage_op {
    () => {
        $crate::op::Op::Read
            | $crate::op::Op::Write
            | $crate::op::Op::Truncate
            | $crate::op::Op::Sync
            | $crate::op::Op::Remove
            | $crate::op::Op::Stat
            | $crate::op::Op::List
            | $crate::op::Op::TargetStat
            | $crate::op::Op::Place
            | $crate::op::Op::Allocate
            | $crate::op::Op::Seek
            | $crate::op::Op::Copy
            | $crate::op::Op::BenchStart
            | $crate::op::Op::BenchStatus
            | $crate::op::Op::BenchStop
            | $crate::op::Op::BenchCleanup
            | $crate::op::Op::NetRead
            | $crate::op::Op::NetWrite
            | $crate::op::Op::NetStart
            | $crate::op::Op::NetStatus
            | $crate::op::Op::NetStop
            | $crate::op::Op::ScrubStart
            | $crate::op::Op::ScrubStatus
            | $crate::op::Op::ScrubStop
    };
}

/// What metadata services alone answer. A pattern, so that the compiler still finds an operation that no arm of a
/// service's match has.
#[macro_export]
macro_rules! metadata_op {
    () => {
        $crate::op::Op::SessionOpen
            | $crate::op::Op::SessionClose
            | $crate::op::Op::Recalls
            | $crate::op::Op::Renew
            | $crate::op::Op::Answered
            | $crate::op::Op::Lookup
            | $crate::op::Op::GetAttr
            | $crate::op::Op::Set
            | $crate::op::Op::Create
            | $crate::op::Op::Mkdir
            | $crate::op::Op::Symlink
            | $crate::op::Op::Link
            | $crate::op::Op::Unlink
            | $crate::op::Op::Rmdir
            | $crate::op::Op::Rename
            | $crate::op::Op::Readlink
            | $crate::op::Op::ReadDir
            | $crate::op::Op::Open
            | $crate::op::Op::Close
            | $crate::op::Op::WriteIntent
            | $crate::op::Op::Settle
            | $crate::op::Op::GetXattr
            | $crate::op::Op::SetXattr
            | $crate::op::Op::ListXattr
            | $crate::op::Op::RemoveXattr
            | $crate::op::Op::Fsync
            | $crate::op::Op::StatFs
            | $crate::op::Op::EntryInfo
            | $crate::op::Op::SetPolicy
            | $crate::op::Op::Scan
            | $crate::op::Op::WriteInline
            | $crate::op::Op::ReadInline
            | $crate::op::Op::WasRead
            | $crate::op::Op::TmpFile
            | $crate::op::Op::Parts
            | $crate::op::Op::Split
            | $crate::op::Op::Walk
            | $crate::op::Op::Prepare
            | $crate::op::Op::AskOutcome
            | $crate::op::Op::Climb
            | $crate::op::Op::Transact
            | $crate::op::Op::Lock
            | $crate::op::Op::Unlock
            | $crate::op::Op::GetLock
            | $crate::op::Op::CancelLock
            | $crate::op::Op::LockWaits
    };
}

impl Op {
    /// It changes the bytes or the length of objects, or removes them.
    #[must_use]
    pub fn changes_objects(self) -> bool {
        matches!(self, Op::Write | Op::Truncate | Op::Allocate | Op::Copy | Op::Remove)
    }

    /// It changes contents, attributes or names of files that are there, at a shard or in objects.
    #[must_use]
    pub fn changes_files(self) -> bool {
        let of_shard = matches!(
            self,
            Op::Set
                | Op::Link
                | Op::Unlink
                | Op::Rename
                | Op::SetXattr
                | Op::RemoveXattr
                | Op::Settle
                | Op::Close
                | Op::WasRead
                | Op::WriteInline
        );
        of_shard || self.changes_objects()
    }

    /// It changes names or attributes: done again, it would meet or undo what others did meanwhile.
    #[must_use]
    pub fn is_done_once(self) -> bool {
        matches!(
            self,
            Op::Set
                | Op::Create
                | Op::TmpFile
                | Op::Mkdir
                | Op::Symlink
                | Op::Link
                | Op::Unlink
                | Op::Rmdir
                | Op::Rename
                | Op::SetXattr
                | Op::RemoveXattr
                | Op::WriteInline
        )
    }

    /// It adds records to a shard's store: refused below the reserve of free space. Everything that gives space back,
    /// ends something, or is needed to settle what clients have written goes on.
    #[must_use]
    pub fn grows_metadata(self) -> bool {
        let makes = matches!(self, Op::Create | Op::TmpFile | Op::Mkdir | Op::Symlink | Op::Link);
        makes || matches!(self, Op::WriteInline | Op::SetXattr | Op::SetPolicy | Op::Split)
    }

    /// It writes to a shard's store.
    #[must_use]
    pub fn changes_metadata(self) -> bool {
        let of_session = matches!(self, Op::Close | Op::WasRead | Op::SessionOpen | Op::SessionClose);
        self.is_numbered() || of_session || matches!(self, Op::Prepare | Op::Transact)
    }

    /// It happens once, however often it is asked for: its request begins with an `Exactly`.
    #[must_use]
    pub fn is_numbered(self) -> bool {
        let alters = matches!(self, Op::Rename | Op::Set | Op::WriteIntent | Op::Settle | Op::RemoveXattr);
        self.grows_metadata() || alters || matches!(self, Op::Unlink | Op::Rmdir)
    }

    /// A shard answers it also on a connection without a session: it holds nothing, and changes nothing, or is another
    /// shard's.
    #[must_use]
    pub fn is_open_to_all(self) -> bool {
        matches!(
            self,
            Op::Ping
                | Op::SessionOpen
                | Op::SessionClose
                | Op::Lookup
                | Op::Walk
                | Op::GetAttr
                | Op::Readlink
                | Op::ReadDir
                | Op::GetXattr
                | Op::ListXattr
                | Op::Fsync
                | Op::StatFs
                | Op::EntryInfo
                | Op::Parts
                | Op::Scan
                | Op::Prepare
                | Op::AskOutcome
                | Op::Climb
                | Op::Transact
        )
    }
}
