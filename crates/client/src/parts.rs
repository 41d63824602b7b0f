//! Directories that are split: asking the right part for a name, and all parts for what the directory is like.

use std::mem;
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

/// How often a directory is asked for its parts for one operation.
pub(crate) const ATTEMPTS_MAX: usize = 64;
/// How often all parts are asked for their attributes where what they say may not go together. After that it is good enough:
/// a directory in which others make directories all the time is never still, and its link count may be off.
const ROUNDS_MAX: usize = 16;

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
    /// sets any of these changes the directory's record as well, so they belong together if nothing was set there meanwhile.
    pub(crate) async fn attr_of_split(&self, caller: &Caller<'_>, own: Attr) -> Result<Attr, Errno> {
        let inode = own.inode;
        let split = self.split_of(caller, inode).await?;
        let mut rounds = Rounds { own, taken: 0 };
        loop {
            let asked = split.parts.iter().map(async |&part| self.own_attr(caller, part).await);
            let parts: Result<Vec<Attr>, Errno> = ring::join_all(asked).await.into_iter().collect();
            let after = self.own_attr(caller, inode).await?;
            if rounds.suffice(after) {
                return Ok(combined(after, &parts?));
            }
        }
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

    /// The attributes of a split directory, as they are now. No lease is on all of them together.
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
    /// `EIO` where a shard's disk failed, or its host has lost its memory meanwhile.
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
            let syncs = split.parts.iter().map(async |&part| match self.fsync_entries(caller, part).await {
                // It has gone with its directory.
                Err(Errno::ESTALE) => Ok(()),
                result => result,
            });
            ring::join_all(syncs).await.into_iter().collect::<Result<(), Errno>>()?;
        }
        self.fsync_entries(caller, inode).await
    }

    /// Entries that were changed a moment ago may be lost where the shard has lost its memory over this.
    async fn fsync_entries(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let losses = || self.shared.shards.losses(inode.home());
        let before = losses();
        self.fsync_inode(caller, inode).await?;
        if losses() == before { Ok(()) } else { Err(Errno::EIO) }
    }
}

/// Of questions to all parts of a directory, before and after which its own record is looked at.
struct Rounds {
    own: Attr,
    taken: usize,
}

impl Rounds {
    /// What the parts have said goes with this, which the directory's record says after that.
    fn suffice(&mut self, after: Attr) -> bool {
        let before = mem::replace(&mut self.own, after);
        self.taken += 1;
        self.taken >= ROUNDS_MAX || differs_by_names(&before, &after)
    }
}

/// By nothing but what names that come and go there change: while entries move to the parts, others are made in it.
fn differs_by_names(before: &Attr, after: &Attr) -> bool {
    let is_by_names = after.mtime == after.ctime && before.mtime <= after.mtime;
    let Attr { atime, mtime, ctime, .. } = *after;
    Attr { atime, mtime, ctime, ..*before } == *after && (before.mtime == after.mtime || is_by_names)
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

#[cfg(test)]
mod tests {
    use types::time::Timestamp;

    use super::*;

    fn directory() -> Attr {
        let (inode, kind, mtime) = (InodeId(9), FileType::Directory, Timestamp(100));
        let (uid, gid, rdev, size, blocks) = (0, 0, 0, 0, 0);
        Attr {
            inode,
            kind,
            mode: 0o755,
            uid,
            gid,
            nlink: 2,
            rdev,
            size,
            blocks,
            atime: mtime,
            mtime,
            ctime: mtime,
            btime: mtime,
        }
    }

    /// Goes round what `change` does again and again; how many it takes.
    fn rounds(change: impl Fn(&mut Attr)) -> usize {
        let mut rounds = Rounds { own: directory(), taken: 0 };
        let mut now = directory();
        for count in 1..=10 * ROUNDS_MAX {
            change(&mut now);
            if rounds.suffice(now) {
                return count;
            }
        }
        panic!("it is looked at for ever");
    }

    fn name_comes(attr: &mut Attr) {
        attr.mtime.0 += 10;
        attr.ctime = attr.mtime;
    }

    #[test]
    fn one_look_suffices_where_only_names_come_and_go() {
        assert_eq!(rounds(|_| ()), 1);
        assert_eq!(rounds(name_comes), 1);
        assert_eq!(rounds(|attr| attr.atime.0 += 10), 1);
    }

    #[test]
    fn what_is_set_makes_another_look_and_so_do_links() {
        let set = |change: fn(&mut Attr)| {
            let mut after = directory();
            change(&mut after);
            after.ctime.0 += 10;
            let mut rounds = Rounds { own: directory(), taken: 0 };
            (rounds.suffice(after), rounds.suffice(after))
        };
        assert_eq!(set(|attr| attr.mode = 0o700), (false, true));
        assert_eq!(set(|attr| attr.gid = 7), (false, true));
        assert_eq!(set(|attr| attr.mtime = Timestamp(50)), (false, true));
        assert_eq!(set(|attr| attr.mtime = Timestamp(1_000_000)), (false, true));
        assert_eq!(set(|attr| attr.nlink += 1), (false, true));
    }

    #[test]
    fn a_directory_that_is_never_still_is_told_of_all_the_same() {
        let directory_comes = |attr: &mut Attr| {
            name_comes(attr);
            attr.nlink += 1;
        };
        assert_eq!(rounds(directory_comes), ROUNDS_MAX);
    }
}
