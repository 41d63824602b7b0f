//! What kinds of operations there are for clients and services. A new operation is in none of these lists until somebody
//! thinks of it: `tests/golden/classes.txt` shows that.

use super::Op;

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

    /// It adds records to a shard's store: refused below the reserve of free space. Everything that gives space back, ends
    /// something, or is needed to settle what clients have written goes on.
    #[must_use]
    pub fn grows_metadata(self) -> bool {
        let makes = matches!(self, Op::Create | Op::TmpFile | Op::Mkdir | Op::Symlink | Op::Link);
        makes || matches!(self, Op::WriteInline | Op::SetXattr | Op::SetPolicy | Op::Split)
    }

    /// It writes to a shard's store.
    #[must_use]
    pub fn changes_metadata(self) -> bool {
        let of_session = matches!(self, Op::Close | Op::WasRead | Op::SessionOpen | Op::SessionClose);
        self.is_numbered() || of_session || matches!(self, Op::Finish | Op::Prepare | Op::Transact)
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
                | Op::Finish
                | Op::AskOutcome
                | Op::Climb
                | Op::Transact
        )
    }
}
