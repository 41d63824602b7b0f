//! Extended attributes.

use std::time::Instant;

use types::error::Errno;
use types::id::InodeId;
use wire::codec::Bytes;
use wire::v1::meta;

use crate::caller::Caller;
use crate::lease::Lease;
use crate::router::{Client, Destination};

/// What a program file may do beyond its caller's rights.
const CAPABILITY: &[u8] = b"security.capability";

impl Client {
    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn getxattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name == CAPABILITY && self.is_bare(inode) {
            return Err(Errno::ENODATA);
        }
        let request = meta::GetXattr { inode, name: Bytes(name.to_vec()) };
        Ok(self.call(caller, Destination::home(inode), &request).await?.value.0)
    }

    /// `flags` as in `setxattr(2)`.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as the flags demand, `EOPNOTSUPP` for an unknown name space, `E2BIG`.
    pub async fn setxattr(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let numbered = self.shared.begin_change(inode.home());
        let (name, value) = (Bytes(name.to_vec()), Bytes(value.to_vec()));
        let request = meta::SetXattr { exactly: numbered.exactly.clone(), inode, name, value, flags };
        self.shared.with_file(inode, |file| file.bare = Lease::NONE);
        let result = self.call(caller, Destination::home(inode), &request).await;
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        result.map(drop)
    }

    /// Made here and without capabilities since: nobody else can have given it any. Before the first write to each file,
    /// the kernel asks.
    fn is_bare(&self, inode: InodeId) -> bool {
        let lease = self.shared.with_file(inode, |file| file.bare);
        lease.is_some_and(|lease| self.shared.board.holds(lease, Instant::now()))
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn listxattr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        let reply = self.call(caller, Destination::home(inode), &meta::ListXattr { inode }).await?;
        Ok(reply.names.into_iter().map(|name| name.0).collect())
    }

    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn removexattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<(), Errno> {
        let numbered = self.shared.begin_change(inode.home());
        let request = meta::RemoveXattr { exactly: numbered.exactly.clone(), inode, name: Bytes(name.to_vec()) };
        let result = self.call(caller, Destination::home(inode), &request).await;
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        result.map(drop)
    }
}
