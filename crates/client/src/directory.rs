//! Listing directories.

use std::sync::Arc;

use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::parts::{HASH_END, cookie_before, hash_after};
use types::time::AccessTimes;
use wire::v1::meta::{self, DirectoryReply};

use crate::caller::Caller;
use crate::lease::{Subject, Ticket};
use crate::list_ahead::Page;
use crate::listings::Listed;
use crate::names::Named;
use crate::parts::ATTEMPTS_MAX;
use crate::router::{Client, Destination};
use crate::shared::Shared;
use crate::splits::Split;

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
        self.shared.look_for_sleep();
        // Each listing is to be told of.
        if self.shared.config.directory_rule() == AccessTimes::Strictatime {
            return self.ask_for_page(caller, inode, cookie, count, attributes).await;
        }
        let is_first = cookie == 0;
        if is_first {
            self.begins_listing(inode);
        }
        let before = if is_first && !attributes { self.listed_ahead(caller, inode).await? } else { None };
        let page = match before {
            Some(page) => page,
            None => self.ask_for_page(caller, inode, cookie, count, attributes).await?,
        };
        self.has_listed(inode, &page, (is_first && !attributes).then_some(count));
        Ok(page)
    }

    async fn ask_for_page(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        cookie: u64,
        count: u32,
        attributes: bool,
    ) -> Result<Listing, Errno> {
        let (mut at, mut lists) = (cookie, cookie == 0);
        let mut split = self.shared.splits.get(inode);
        if lists && split.is_some() {
            split = self.relearn_parts(caller, inode, &mut lists).await?;
        }
        // Each goes to another part, or on with names that have moved there meanwhile.
        for _ in 0..4 * ATTEMPTS_MAX {
            let part = split.as_ref().and_then(|split| split.part_at(hash_after(at)));
            let place = part.map_or(inode, |(_, part)| part);
            let mut page = match self.list(caller, (inode, place), at, count, attributes).await {
                Err(Errno::EREMOTE) => {
                    split = self.relearn_parts(caller, inode, &mut lists).await?;
                    continue;
                }
                page => page?,
            };
            let (Some(known), Some((number, _))) = (&split, part) else { return Ok(page) };
            page.parent = known.parent;
            let is_last = number.end() == HASH_END;
            if !page.entries.is_empty() || (page.end && is_last) {
                // Who goes on after the last entry of a part is told by that part that it has no more.
                page.end &= is_last;
                return Ok(page);
            }
            if page.end {
                at = cookie_before(number.end());
                continue;
            }
            // It had all names below the cursor, so what comes next is above.
            at = at.max(cookie_before(known.cursor.max(1)));
            split = self.relearn_parts(caller, inode, &mut lists).await?;
        }
        Err(Errno::EIO)
    }

    /// `lists`: the directory does not know yet that it is listed, and then may have another access time.
    async fn relearn_parts(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        lists: &mut bool,
    ) -> Result<Option<Arc<Split>>, Errno> {
        if *lists && self.shared.splits.get(inode).is_none() {
            // What is new is told when it is on disk, and listings do not wait for that.
            self.learn_parts(caller, inode, false).await?;
        }
        let split = self.learn_parts(caller, inode, *lists).await?;
        if std::mem::take(lists) {
            self.shared.kept.forget(&self.shared.board, inode);
        }
        Ok(split)
    }

    /// The first page of `part` is here, with what is said of that.
    fn begun_to_list(
        &self,
        (inode, part): (InodeId, InodeId),
        ticket: Ticket,
        told: Option<&DirectoryReply>,
        accesses: AccessTimes,
    ) {
        // It may have another access time now.
        if told.is_some() || accesses != AccessTimes::Noatime {
            self.learn_of(ticket, part, told);
        }
        // Of one that is split, no lease is on all entries.
        let told = told.filter(|told| told.attr.inode == inode);
        let begun = told.map_or(Listed::UNTOLD, |told| Listed::told(ticket, told));
        self.shared.listings.begins(inode, begun);
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
        let accesses = self.shared.config.directory_rule();
        let request = meta::ReadDir { inode: part, cookie, count: count.clamp(1, PAGE_MAX), attributes, accesses };
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(part), &request).await?;
        if cookie == 0 {
            self.begun_to_list((inode, part), ticket, reply.directory.as_deref(), accesses);
        }
        self.listing(caller, inode, ticket, reply).await
    }

    /// The names of `inode` from the beginning, which nobody lists yet; `None` where that says nothing of a moment later, or
    /// would change the access time.
    ///
    /// # Errors
    /// Those of the shard.
    pub(crate) async fn list_for_later(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        count: u32,
    ) -> Result<Option<Page>, Errno> {
        let (accesses, rule) = (AccessTimes::Noatime, self.shared.config.directory_rule());
        let request = meta::ReadDir { inode, cookie: 0, count, attributes: false, accesses };
        let (changes, ticket) = (self.shared.listings.changes(inode), self.shared.board.ticket());
        let reply = self.call(caller, Destination::home(inode), &request).await?;
        let Some(told) = reply.directory.as_deref().filter(|told| told.attr.inode == inode) else { return Ok(None) };
        // Also ends the lease, where a change may happen that was given up.
        self.learn_of(ticket, inode, Some(told));
        let attr = &told.attr;
        if rule.access_is_due(attr.atime, attr.mtime.max(attr.ctime), Shared::wall_clock()) {
            return Ok(None);
        }
        let begun = Listed::told(ticket, told);
        let listing = self.listing(caller, inode, ticket, reply).await?;
        Ok(Some(Page { listing, begun, changes }))
    }

    async fn listing(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        ticket: Ticket,
        reply: meta::ReadDirReply,
    ) -> Result<Listing, Errno> {
        let mut entries = Vec::with_capacity(reply.entries.len());
        for entry in reply.entries {
            let named = match entry.attributes {
                Some(known) if !known.unsettled || self.knows_size(&known) => {
                    match self.named(caller, ticket, Subject::name(inode, &entry.name), known).await {
                        // It went meanwhile: that is for who asks for its attributes to find.
                        Err(Errno::ESTALE) => None,
                        named => Some(named?),
                    }
                }
                // Where only its objects know its size, who wants that asks: no name waits for the storage of another.
                _ => None,
            };
            entries.push(Entry { name: entry.name, inode: entry.inode, kind: entry.kind, cookie: entry.cookie, named });
        }
        Ok(Listing { entries, end: reply.end, parent: reply.parent })
    }
}
