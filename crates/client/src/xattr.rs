//! Extended attributes.

use std::time::Instant;

use types::error::Errno;
use types::id::InodeId;
use types::xattr::check_name;
use wire::codec::Bytes;
use wire::v1::meta;

use crate::caller::Caller;
use crate::given_up::Concerned;
use crate::router::{Client, Destination};

impl Client {
    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn getxattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if self.is_bare(inode) {
            check_name(name)?;
            return Err(Errno::ENODATA);
        }
        let request = meta::GetXattr { inode, name: Bytes(name.to_vec()) };
        match self.call(caller, Destination::home(inode), &request).await {
            // What it had is not known: above all, no list for the kernel, which asks for one at each path from there.
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Err(check_name(name).err().unwrap_or(Errno::ENODATA)),
            reply => Ok(reply?.value.0),
        }
    }

    /// It was removed here, and may still be used.
    pub(crate) fn is_in_grave(&self, inode: InodeId) -> bool {
        self.shared.graves.attr(inode).is_some()
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
        self.publish(caller, inode).await?;
        let numbered = self.shared.begin_change(inode.home());
        let (name, value) = (Bytes(name.to_vec()), Bytes(value.to_vec()));
        let request = meta::SetXattr { exactly: numbered.exactly.clone(), inode, name, value, flags };
        let concerned = || Concerned::inode(inode);
        let result = self.change(caller, Destination::home(inode), &numbered, &request, concerned).await;
        self.parts_changed(inode);
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        result?;
        self.shared.record_changed(inode);
        Ok(())
    }

    /// It is known to have none. Own changes of them end what is known before they are answered.
    fn is_bare(&self, inode: InodeId) -> bool {
        self.shared.look_for_sleep();
        let (lease, board) = (self.shared.bare.lease(inode), &self.shared.board);
        self.shared.contents.holds(board, lease, Instant::now())
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn listxattr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        if self.is_bare(inode) {
            return Ok(Vec::new());
        }
        match self.call(caller, Destination::home(inode), &meta::ListXattr { inode }).await {
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Ok(Vec::new()),
            reply => Ok(reply?.names.into_iter().map(|name| name.0).collect()),
        }
    }

    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn removexattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<(), Errno> {
        self.publish(caller, inode).await?;
        let numbered = self.shared.begin_change(inode.home());
        let request = meta::RemoveXattr { exactly: numbered.exactly.clone(), inode, name: Bytes(name.to_vec()) };
        let concerned = || Concerned::inode(inode);
        let result = self.change(caller, Destination::home(inode), &numbered, &request, concerned).await;
        self.parts_changed(inode);
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        result?;
        self.shared.record_changed(inode);
        Ok(())
    }
}
