//! Listing directories.

use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::v1::meta;

use crate::caller::Caller;
use crate::lease::Subject;
use crate::names::Named;
use crate::router::{Client, Destination};

/// Most entries of one page on the wire.
pub(crate) const PAGE_MAX: u32 = 4096;

/// A page of a directory.
#[derive(Clone, Debug)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Nothing comes after these.
    pub end: bool,
    /// What `..` is.
    pub parent: InodeId,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Name,
    pub inode: InodeId,
    pub kind: FileType,
    /// To go on after this entry.
    pub cookie: u64,
    /// Where asked for, and where the inode's shard could tell.
    pub named: Option<Named>,
}

impl Client {
    /// The directory that has the entry of `directory`; the root's is itself.
    ///
    /// # Errors
    /// `ESTALE` where the directory is gone.
    pub async fn parent(&self, caller: &Caller<'_>, directory: InodeId) -> Result<InodeId, Errno> {
        let reply = self.call(caller, Destination::home(directory), &meta::EntryInfo { inode: directory }).await?;
        reply.parent.ok_or(Errno::ESTALE)
    }

    /// The entries after `cookie` (0 = from the beginning), at most `count`, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    pub async fn readdir(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        cookie: u64,
        count: u32,
        attributes: bool,
    ) -> Result<Listing, Errno> {
        let is_start = cookie == 0;
        let mut split = self.shared.splits.get(inode);
        if split.is_none() {
            match self.list(caller, (inode, inode), cookie, count, attributes).await {
                Err(Errno::EREMOTE) => {}
                result => return result,
            }
        }
        if split.is_none() {
            split = self.learn_parts(caller, inode, false).await?;
        }
        if is_start {
            // It may have moved.
            split = self.learn_parts(caller, inode, true).await?;
            // It may have another access time now.
            self.shared.kept.forget(&self.shared.board, inode);
        }
        let split = split.ok_or(Errno::EIO)?;
        let mut at = split.at_cookie(cookie);
        loop {
            let mut page = self.list(caller, (inode, split.parts[at]), cookie, count, attributes).await?;
            page.parent = split.parent;
            at += 1;
            let is_last = at == split.parts.len();
            if is_last || !page.entries.is_empty() {
                // Who goes on after the last entry of a part is told by that part that it has no more.
                page.end &= is_last;
                return Ok(page);
            }
        }
    }

    /// A page of the entries of `inode` that are in its part `part`, which may be itself.
    async fn list(
        &self,
        caller: &Caller<'_>,
        (inode, part): (InodeId, InodeId),
        cookie: u64,
        count: u32,
        attributes: bool,
    ) -> Result<Listing, Errno> {
        let request = meta::ReadDir { inode: part, cookie, count: count.clamp(1, PAGE_MAX), attributes };
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(part), &request).await?;
        if cookie == 0 {
            // It has another access time now.
            self.shared.kept.forget(&self.shared.board, part);
        }
        let mut entries = Vec::with_capacity(reply.entries.len());
        for entry in reply.entries {
            let named = match entry.attributes {
                Some(known) => Some(self.named(caller, ticket, Subject::name(inode, &entry.name), known).await?),
                None => None,
            };
            entries.push(Entry { name: entry.name, inode: entry.inode, kind: entry.kind, cookie: entry.cookie, named });
        }
        Ok(Listing { entries, end: reply.end, parent: reply.parent })
    }
}
