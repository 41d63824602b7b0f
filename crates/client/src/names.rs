//! Operations on names and attributes.

use types::attr::{Attr, FileType, S_ISGID, S_ISUID, SetAttr};
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::codec::Bytes;
use wire::op::Call;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::lease::{Board, Lease, Subject, Ticket};
use crate::router::{Client, Destination};

/// `RENAME_NOREPLACE` and `RENAME_EXCHANGE` of `<linux/fs.h>`.
const RENAME_FLAGS: u32 = 3;
/// How often a name is looked up whose inode went before its own shard was asked.
const LOOKS_MAX: usize = 16;

/// Attributes, and for how long they may be believed.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub attr: Attr,
    pub lease: Lease,
}

/// What a name stands for, and for how long that may be believed.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub attr: Attr,
    /// On the attributes.
    pub lease: Lease,
    /// On the name.
    pub name_lease: Lease,
}

#[derive(Clone, Copy, Debug)]
pub enum Looked {
    Found(Named),
    Absent(Lease),
}

impl Client {
    /// # Errors
    /// `ENOENT` where the directory is gone, `ENOTDIR`.
    pub async fn lookup(&self, caller: &Caller<'_>, parent: InodeId, name: Name) -> Result<Looked, Errno> {
        let subject = Subject::name(parent, &name);
        let request = meta::Lookup { parent, name };
        for _ in 0..LOOKS_MAX {
            let ticket = self.shared.board.ticket();
            let reply = self.call(caller, Destination::home(parent), &request).await?;
            let Some(found) = reply.found else {
                return Ok(Looked::Absent(Board::lease(ticket, subject, reply.absent_lease_ms)));
            };
            match self.named(caller, ticket, subject, found).await {
                // It went between the two questions: the name says what is there now.
                Err(Errno::ESTALE) => {}
                named => return named.map(Looked::Found),
            }
        }
        Err(Errno::ESTALE)
    }

    /// # Errors
    /// `ENOENT` where the inode is gone.
    pub async fn getattr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Known, Errno> {
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
        let lease = Board::lease(ticket, Subject::inode(inode), reply.lease_ms);
        Ok(Known { attr: self.attr_of(caller, reply).await?, lease })
    }

    /// What a reply about a name says, with the leases that it bears.
    pub(crate) async fn named(
        &self,
        caller: &Caller<'_>,
        ticket: Ticket,
        name: Subject,
        reply: InodeReply,
    ) -> Result<Named, Errno> {
        let name_lease = Board::lease(ticket, name, reply.name_lease_ms);
        let (ticket, reply) = self.at_home(caller, ticket, reply).await?;
        let lease = Board::lease(ticket, Subject::inode(reply.attr.inode), reply.lease_ms);
        Ok(Named { attr: self.attr_of(caller, reply).await?, lease, name_lease })
    }

    /// What an inode's own shard says of it where another one was asked, and when it was asked.
    async fn at_home(
        &self,
        caller: &Caller<'_>,
        ticket: Ticket,
        reply: InodeReply,
    ) -> Result<(Ticket, InodeReply), Errno> {
        if !reply.elsewhere {
            return Ok((ticket, reply));
        }
        let inode = reply.attr.inode;
        let ticket = self.shared.board.ticket();
        Ok((ticket, self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?))
    }

    /// Sends a change that makes `name` in `parent`.
    pub(crate) async fn make<C: Call<Reply = InodeReply>>(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: &Name,
        request: &C,
    ) -> Result<(Named, InodeReply), Errno> {
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(parent), request).await?;
        let name_lease = Board::lease(ticket, Subject::name(parent, name), reply.name_lease_ms);
        let (ticket, reply) = self.at_home(caller, ticket, reply).await?;
        let lease = Board::lease(ticket, Subject::inode(reply.attr.inode), reply.lease_ms);
        Ok((Named { attr: reply.attr, lease, name_lease }, reply))
    }

    /// Changes attributes; a size truncates the data.
    ///
    /// # Errors
    /// `ENOENT`, `EFBIG`, `EISDIR`, and those of the storage.
    pub async fn setattr(&self, caller: &Caller<'_>, inode: InodeId, change: SetAttr) -> Result<Attr, Errno> {
        if let Some(size) = change.size {
            return self.truncate(caller, inode, size, change).await;
        }
        if change.mtime.is_some() {
            // Times that are set explicitly win over those of earlier writes, also of a settling under way.
            self.while_settling(inode).await;
            self.shared.with_file(inode, |file| file.mtime = None);
        }
        if change.atime.is_some() {
            // Neither do reads count that came before.
            self.shared.with_file(inode, |file| file.read_at = None);
        }
        self.set(caller, inode, change).await
    }

    /// Before a write by an unprivileged process: set-user-id and set-group-id go, where the file has them.
    ///
    /// # Errors
    /// As [`Self::setattr`].
    pub async fn kill_suid_sgid(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let may_have = self.shared.with_file(inode, |file| file.mode & (S_ISUID | S_ISGID) != 0);
        if may_have == Some(false) {
            return Ok(());
        }
        let change = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
        self.set(caller, inode, change).await.map(drop)
    }

    pub(crate) async fn set(&self, caller: &Caller<'_>, inode: InodeId, change: SetAttr) -> Result<Attr, Errno> {
        let numbered = self.shared.begin_change(inode.home());
        let request = meta::Set { exactly: numbered.exactly.clone(), inode, change };
        let reply = self.call(caller, Destination::home(inode), &request).await?;
        self.shared.with_file(inode, |file| file.mode = reply.attr.mode);
        self.attr_of(caller, reply).await
    }

    /// Makes a device node, fifo, socket or regular file without opening it.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOSPC`.
    pub async fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        kind: FileType,
        mode: u32,
        rdev: u32,
    ) -> Result<Named, Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let request = meta::Create {
            exactly: numbered.exactly.clone(),
            parent,
            name,
            kind,
            mode,
            rdev,
            cred: caller.cred,
            open: false,
            write_intent: false,
            exclusive: true,
        };
        self.make(caller, parent, &request.name, &request).await.map(|(named, _)| named)
    }

    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `EMLINK`, `ENOSPC`.
    pub async fn mkdir(&self, caller: &Caller<'_>, parent: InodeId, name: Name, mode: u32) -> Result<Named, Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let request = meta::Mkdir { exactly: numbered.exactly.clone(), parent, name, mode, cred: caller.cred };
        self.make(caller, parent, &request.name, &request).await.map(|(named, _)| named)
    }

    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ENOSPC`.
    pub async fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        target: &[u8],
    ) -> Result<Named, Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let target = Bytes(target.to_vec());
        let request = meta::Symlink { exactly: numbered.exactly.clone(), parent, name, target, cred: caller.cred };
        self.make(caller, parent, &request.name, &request).await.map(|(named, _)| named)
    }

    /// # Errors
    /// `EINVAL` for anything but a symbolic link.
    pub async fn readlink(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Vec<u8>, Errno> {
        let reply = self.call(caller, Destination::home(inode), &meta::Readlink { inode }).await?;
        Ok(reply.target.0)
    }

    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub async fn link(&self, caller: &Caller<'_>, inode: InodeId, parent: InodeId, name: Name) -> Result<Attr, Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let request = meta::Link { exactly: numbered.exactly.clone(), inode, parent, name };
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(parent), &request).await?;
        let (_, reply) = self.at_home(caller, ticket, reply).await?;
        self.attr_of(caller, reply).await
    }

    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub async fn unlink(&self, caller: &Caller<'_>, parent: InodeId, name: Name) -> Result<(), Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let request = meta::Unlink { exactly: numbered.exactly.clone(), parent, name };
        self.call(caller, Destination::home(parent), &request).await.map(drop)
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub async fn rmdir(&self, caller: &Caller<'_>, parent: InodeId, name: Name) -> Result<(), Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let request = meta::Rmdir { exactly: numbered.exactly.clone(), parent, name };
        self.call(caller, Destination::home(parent), &request).await.map(drop)
    }

    /// # Errors
    /// Those of `renameat2(2)`; `EINVAL` for flags other than those two.
    pub async fn rename(
        &self,
        caller: &Caller<'_>,
        source: (InodeId, Name),
        target: (InodeId, Name),
        flags: u32,
    ) -> Result<(), Errno> {
        if flags & !RENAME_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let numbered = self.shared.begin_change(source.0.home());
        let request = meta::Rename {
            exactly: numbered.exactly.clone(),
            source_parent: source.0,
            source_name: source.1,
            target_parent: target.0,
            target_name: target.1,
            flags,
        };
        self.call(caller, Destination::home(source.0), &request).await.map(drop)
    }
}
