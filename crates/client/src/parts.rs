//! Directories that are split: asking the right part for a name, and all parts for what the directory is like.

use std::sync::Arc;
use std::time::Instant;

use types::attr::{Attr, FileType};
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::lease::Lease;
use crate::names::Known;
use crate::router::{Client, Destination};
use crate::splits::Split;

/// How often a directory is asked for its parts for one operation, or for itself where it changes all the time.
pub(crate) const ATTEMPTS_MAX: usize = 64;

impl Client {
    /// Asks the directory that has the entry `name` of `parent`: that itself, or one of its parts.
    pub(crate) async fn in_part<R>(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: &Name,
        ask: impl AsyncFn(InodeId) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        for _ in 0..ATTEMPTS_MAX {
            match ask(self.shared.splits.part(parent, name)).await {
                Err(Errno::EREMOTE) => self.learn_parts(caller, parent, false).await.map_err(gone)?,
                result => return result,
            };
        }
        Err(Errno::EIO)
    }

    /// Asks a directory what it is split into; `None` where it is whole. `lists`: it is about to be listed.
    pub(crate) async fn learn_parts(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        lists: bool,
    ) -> Result<Option<Arc<Split>>, Errno> {
        let request = meta::Parts { inode, lists, accesses: self.shared.config.directory_rule() };
        let reply = self.call(caller, Destination::home(inode), &request).await?;
        if reply.parts.is_empty() {
            return Ok(None);
        }
        let split = Split { parts: reply.parts, cursor: reply.cursor, parent: reply.parent };
        // What is kept of the forgotten would be taken for that of whole directories.
        let forget = || self.shared.kept.forget_all(&self.shared.board);
        Ok(Some(self.shared.splits.learn(inode, split, forget)))
    }

    async fn split_of(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Arc<Split>, Errno> {
        match self.shared.splits.get(inode) {
            Some(split) => Ok(split),
            None => self.learn_parts(caller, inode, false).await?.ok_or(Errno::EIO),
        }
    }

    /// The attributes of a split directory, of which its own record says `own`: its times and links are in its parts. Whoever
    /// sets any of these changes the directory's record as well, so they belong together if that has not changed meanwhile.
    pub(crate) async fn attr_of_split(&self, caller: &Caller<'_>, mut own: Attr) -> Result<Attr, Errno> {
        let inode = own.inode;
        let split = self.split_of(caller, inode).await?;
        for _ in 0..ATTEMPTS_MAX {
            let asked = split.parts.iter().map(async |&part| self.own_attr(caller, part).await);
            let parts: Result<Vec<Attr>, Errno> = ring::join_all(asked).await.into_iter().collect();
            let after = self.own_attr(caller, inode).await?;
            if after == own {
                return Ok(combined(own, &parts?));
            }
            own = after;
        }
        Err(Errno::EIO)
    }

    /// What a directory's record says, of a split one or a part its own alone. Kept under its lease.
    pub(crate) async fn own_attr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Attr, Errno> {
        let (kept, board) = (&self.shared.kept, &self.shared.board);
        if let Some(known) = kept.attr(board, inode, Instant::now()) {
            return Ok(known.attr);
        }
        let (ticket, reply) = self.ask(caller, inode).await?;
        self.inode_lease(ticket, &reply);
        Ok(kept.attr(board, inode, Instant::now()).map_or(reply.attr, |known| known.attr))
    }

    /// Of a split directory, as it is now. No lease is on all of that together.
    pub(crate) async fn known_of_split(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Known, Errno> {
        let own = self.own_attr(caller, inode).await?;
        Ok(Known { attr: self.attr_of_split(caller, own).await?, lease: Lease::NONE })
    }

    /// After an own change of a directory's attributes: its parts may have followed, and nobody takes back what we know of
    /// them.
    pub(crate) fn parts_changed(&self, inode: InodeId) {
        if let Some(split) = self.shared.splits.get(inode) {
            for &part in &split.parts {
                self.shared.kept.forget(&self.shared.board, part);
            }
        }
    }

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// `EIO` where a shard's disk failed.
    pub async fn fsync_directory(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let split = match self.shared.splits.get(inode) {
            Some(split) => Some(split),
            None if self.shared.map().shards.len() > 1 => match self.learn_parts(caller, inode, false).await {
                // Whether that may be is for its own shard to say.
                Err(Errno::ESTALE) => None,
                known => known?,
            },
            None => None,
        };
        if let Some(split) = split {
            let syncs = split.parts.iter().map(async |&part| match self.fsync_inode(caller, part).await {
                // It has gone with its directory.
                Err(Errno::ESTALE) => Ok(()),
                result => result,
            });
            ring::join_all(syncs).await.into_iter().collect::<Result<(), Errno>>()?;
        }
        self.fsync_inode(caller, inode).await
    }
}

/// It is a directory whose parts know more.
pub(crate) fn is_split(reply: &InodeReply) -> bool {
    reply.unsettled && reply.attr.kind == FileType::Directory
}

/// Names in a directory that is gone are not there.
pub(crate) fn gone(errno: Errno) -> Errno {
    if errno == Errno::ESTALE { Errno::ENOENT } else { errno }
}

/// Two of a directory's links are its own, and so they are of each part.
fn combined(own: Attr, parts: &[Attr]) -> Attr {
    let mut attr = own;
    for part in parts {
        attr.nlink = attr.nlink.saturating_add(part.nlink.saturating_sub(2));
        attr.mtime = attr.mtime.max(part.mtime);
        attr.ctime = attr.ctime.max(part.ctime);
    }
    attr
}
