//! Operations on names and attributes.

use std::time::Instant;

use types::attr::{Attr, FileType, SetAttr};
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::codec::Bytes;
use wire::op::Call;
use wire::v1::meta::{self, ChangeReply, DirectoryReply, InodeReply};

use crate::behind::Behind;
use crate::caller::Caller;
use crate::contents::Asked;
use crate::file::File;
use crate::given_up::Concerned;
use crate::lease::{Lease, Subject, Ticket};
use crate::parts::{gone, is_split};
use crate::router::{Client, Destination};
use crate::shards::NumberedChange;
use crate::shared::Shared;

/// `RENAME_NOREPLACE`, `RENAME_EXCHANGE` and `RENAME_WHITEOUT` of `<linux/fs.h>`.
const RENAME_FLAGS: u32 = 7;
/// How often a name is looked up whose inode went before its own shard was asked.
pub(crate) const LOOKS_MAX: usize = 16;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The directory that programs know.
    pub(crate) parent: InodeId,
    /// Which part of it has such names: where it is not split, the directory itself.
    pub(crate) part: InodeId,
    pub(crate) name: &'a Name,
}

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
        self.shared.look_for_sleep();
        let subject = Subject::name(parent, &name);
        self.in_part(caller, parent, &name, async |part| self.look_up(caller, part, &name, subject).await).await
    }

    /// Looks up a name in the directory that has it, of which users see it as `subject`.
    async fn look_up(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: &Name,
        subject: Subject,
    ) -> Result<Looked, Errno> {
        if self.shared.kept.is_absent(&self.shared.board, parent, name, Instant::now()) {
            // Nobody takes back a name of which the shard does not know that we believe anything.
            return Ok(Looked::Absent(Lease::NONE));
        }
        let request = meta::Lookup { parent, name: name.clone() };
        for _ in 0..LOOKS_MAX {
            let ticket = self.shared.board.ticket();
            let reply = self.call(caller, Destination::home(parent), &request).await?;
            let Some(found) = reply.found else {
                return Ok(Looked::Absent(Lease::granted(ticket, subject, reply.absent_lease_ms)));
            };
            match self.named(caller, ticket, subject, found).await {
                // It went between the two questions: the name says what is there now.
                Err(Errno::ESTALE) => {}
                named => {
                    let named = named?;
                    self.shared.sightings.note(named.attr);
                    return Ok(Looked::Found(named));
                }
            }
        }
        Err(Errno::ESTALE)
    }

    /// # Errors
    /// `ENOENT` where the inode is gone.
    pub async fn getattr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Known, Errno> {
        self.shared.look_for_sleep();
        match self.getattr_of_living(caller, inode).await {
            Err(Errno::ESTALE) => {
                let Shared { graves, sightings, .. } = &*self.shared;
                let attr = graves.attr(inode).or_else(|| {
                    // When it went nobody tells: since it was seen, at any rate.
                    let attr = Attr { ctime: Shared::wall_clock(), ..sightings.of_gone(inode)? };
                    graves.dig(attr);
                    Some(attr)
                });
                Ok(Known { attr: attr.ok_or(Errno::ESTALE)?, lease: Lease::NONE })
            }
            result => result,
        }
    }

    async fn getattr_of_living(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Known, Errno> {
        if self.shared.splits.get(inode).is_some() {
            return self.known_of_split(caller, inode).await;
        }
        if let Some(known) = self.attr_unasked(inode) {
            return Ok(known);
        }
        let asked = self.shared.contents.asks(inode);
        let (ticket, reply) = self.ask(caller, inode).await?;
        let (ticket, reply) = self.up_to_date(caller, ticket, reply).await?;
        let lease = self.inode_lease(ticket, &reply);
        let is_settled = !reply.unsettled;
        let attr = self.attr_asked_at(caller, reply, Some(ticket.at())).await?;
        if is_settled {
            self.keep_told(asked, lease, attr);
        }
        Ok(self.newest(Known { attr, lease }))
    }

    /// What is known of it here, and good.
    pub(crate) fn attr_unasked(&self, inode: InodeId) -> Option<Known> {
        let kept = self.shared.kept.attr(&self.shared.board, inode, Instant::now());
        kept.or_else(|| self.attr_of_draft(inode)).or_else(|| self.kept_attr(inode))
    }

    /// User and group that it belongs to now. Of a file's contents nothing is asked.
    pub(crate) async fn owners(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(u32, u32), Errno> {
        let attr = match self.attr_unasked(inode) {
            Some(known) => known.attr,
            None => match self.ask(caller, inode).await {
                // It may be remembered.
                Err(Errno::ESTALE) => self.getattr(caller, inode).await?.attr,
                asked => asked?.1.attr,
            },
        };
        Ok((attr.uid, attr.gid))
    }

    /// Keeps what is known of an open file from here on, as the shard has told it: with a read of ours that it was not told of,
    /// the time would later be taken for one that somebody else has set.
    fn keep_told(&self, asked: Asked, lease: Lease, attr: Attr) {
        if let Some(atime) = self.shared.with_file(attr.inode, |file| file.atime) {
            self.shared.learn(asked, lease, Attr { atime, ..attr }, None);
        }
    }

    /// What is kept of an open file. Of one that is not, a read of ours may be missing there.
    fn kept_attr(&self, inode: InodeId) -> Option<Known> {
        let (Shared { contents, board, .. }, now) = (&*self.shared, Instant::now());
        let mut known = contents.attr(board, inode, now, || self.shared.may_keep(inode))?;
        let met = self.shared.file_is(inode, |file| {
            let is_new = !self.shared.may_lack_read(inode, now);
            if is_new {
                file.meets(&mut known.attr, None);
            }
            is_new
        });
        met.then_some(known)
    }

    /// What is kept of a directory, in place of what was just told: an own change of it may have been answered meanwhile,
    /// and then nobody takes back what was told before that.
    fn newest(&self, told: Known) -> Known {
        let attr = &told.attr;
        if attr.kind != FileType::Directory || self.shared.splits.get(attr.inode).is_some() {
            return told;
        }
        self.shared.kept.attr(&self.shared.board, told.attr.inode, Instant::now()).unwrap_or(told)
    }

    pub(crate) async fn ask(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let ticket = self.shared.board.ticket();
        Ok((ticket, self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?))
    }

    /// Asks again where the answer is from before the end of our own write intent or draft, of which we know nothing any
    /// more.
    async fn up_to_date(
        &self,
        caller: &Caller<'_>,
        ticket: Ticket,
        reply: Box<InodeReply>,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let inode = reply.attr.inode;
        let knows_draft = || self.shared.file_is(inode, |file| file.draft.is_some());
        let is_old = reply.unsettled && reply.exclusive && self.shared.with_file(inode, |_| ()).is_none();
        if is_old || (reply.draft && !knows_draft()) {
            return self.ask(caller, inode).await;
        }
        Ok((ticket, reply))
    }

    /// The lease that a reply bears on its inode. What it tells beside attributes is kept.
    pub(crate) fn inode_lease(&self, ticket: Ticket, reply: &InodeReply) -> Lease {
        if is_split(reply) {
            // On its own record: none is on what its parts say.
            let lease = Lease::granted(ticket, Subject::inode(reply.attr.inode), reply.lease_ms);
            self.shared.splits.while_known(reply.attr.inode, || self.learn_under(lease, reply));
            return Lease::NONE;
        }
        if reply.unsettled && !self.knows_size(reply) {
            return Lease::NONE;
        }
        let lease = Lease::granted(ticket, Subject::inode(reply.attr.inode), reply.lease_ms);
        self.learn_under(lease, reply);
        lease
    }

    /// Keeps what an answer says of its inode beside the attributes; of a directory also these.
    fn learn_under(&self, lease: Lease, reply: &InodeReply) {
        if reply.bare && reply.lease_ms > 0 {
            self.shared.bare.learn(reply.attr.inode, lease);
        }
        if let Some(standing) = &reply.standing {
            self.shared.kept.learn(&self.shared.board, reply.attr, standing, lease, Instant::now());
        }
    }

    /// After a change in `directory`: what is known of that now.
    fn came_to(&self, ticket: Ticket, directory: InodeId, told: Option<&DirectoryReply>) {
        self.shared.listings.changed(directory);
        self.learn_of(ticket, directory, told);
    }

    /// This is what a shard says of `directory`, if it says so much of it.
    pub(crate) fn learn_of(&self, ticket: Ticket, directory: InodeId, told: Option<&DirectoryReply>) {
        let (kept, board) = (&self.shared.kept, &self.shared.board);
        match told.filter(|told| told.attr.inode == directory) {
            Some(told) => {
                let lease = Lease::granted(ticket, Subject::inode(directory), told.lease_ms);
                kept.learn(board, told.attr, &told.standing, lease, Instant::now());
            }
            None => kept.forget(board, directory),
        }
    }

    /// What a reply about a name says, with the leases that it bears.
    pub(crate) async fn named(
        &self,
        caller: &Caller<'_>,
        ticket: Ticket,
        name: Subject,
        reply: Box<InodeReply>,
    ) -> Result<Named, Errno> {
        let name_lease = Lease::granted(ticket, name, reply.name_lease_ms);
        let (ticket, reply) = self.at_home(caller, ticket, reply).await?;
        let (ticket, reply) = self.up_to_date(caller, ticket, reply).await?;
        let lease = self.inode_lease(ticket, &reply);
        self.shared.contents.extend(&self.shared.board, reply.attr.inode, lease, Instant::now());
        let Known { attr, lease } =
            self.newest(Known { attr: self.attr_asked_at(caller, reply, Some(ticket.at())).await?, lease });
        Ok(Named { attr, lease, name_lease })
    }

    /// What an inode's own shard says of it where another one was asked, and when it was asked.
    async fn at_home(
        &self,
        caller: &Caller<'_>,
        ticket: Ticket,
        reply: Box<InodeReply>,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        if !reply.elsewhere {
            return Ok((ticket, reply));
        }
        self.ask(caller, reply.attr.inode).await
    }

    /// Sends a change that makes an entry.
    pub(crate) async fn make<C: Call<Reply = Box<InodeReply>> + Clone + 'static>(
        &self,
        caller: &Caller<'_>,
        entry: Entry<'_>,
        numbered: &NumberedChange,
        request: &C,
    ) -> Result<(Named, Box<InodeReply>), Errno> {
        let concerned = || Concerned::entry(entry);
        let (ticket, reply) = self.change_in(caller, entry, numbered, request, concerned).await?;
        let name_lease = Lease::granted(ticket, Subject::name(entry.parent, entry.name), reply.name_lease_ms);
        let (ticket, reply) = self.at_home(caller, ticket, reply).await?;
        // New: its size is known.
        let lease = Lease::granted(ticket, Subject::inode(reply.attr.inode), reply.lease_ms);
        self.learn_under(lease, &reply);
        Ok((Named { attr: reply.attr, lease, name_lease }, reply))
    }

    /// Sends a change that makes an entry; also when it was sent.
    async fn change_in<C: Call<Reply = Box<InodeReply>> + Clone + 'static>(
        &self,
        caller: &Caller<'_>,
        Entry { part, name, .. }: Entry<'_>,
        numbered: &NumberedChange,
        request: &C,
        concerned: impl FnOnce() -> Concerned,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let (kept, board) = (&self.shared.kept, &self.shared.board);
        let _making = kept.making(board, part, name);
        let ticket = board.ticket();
        let result = self.change(caller, Destination::home(part), numbered, request, concerned).await;
        match &result {
            Ok(reply) => self.came_to(ticket, part, reply.parent.as_deref()),
            Err(error) => kept.failed(board, part, *error, Instant::now()),
        }
        result.map(|reply| (ticket, reply))
    }

    /// Sends a change that takes or moves names; `directories` are those that it changes, and `making` so many names it makes
    /// in each.
    async fn take<C: Call<Reply = ChangeReply> + Clone + 'static>(
        &self,
        caller: &Caller<'_>,
        directories: [InodeId; 2],
        numbered: &NumberedChange,
        request: &C,
        names: [&(InodeId, Name); 2],
        (behind, making): (&Behind, u32),
    ) -> Result<(), Errno> {
        let (kept, board) = (&self.shared.kept, &self.shared.board);
        let ticket = board.ticket();
        let concerned = || Concerned::taken(directories, names);
        let changed = self.change(caller, Destination::home(directories[0]), numbered, request, concerned).await;
        self.shared.contents.renamed();
        let reply = match changed {
            Ok(reply) => reply,
            Err(error) => {
                for directory in directories {
                    kept.failed(board, directory, error, Instant::now());
                }
                return Err(error);
            }
        };
        if let Some(removed) = reply.removed {
            self.shared.graves.dig(*removed);
        }
        let others = if reply.told { Some(reply.others) } else { self.behind(behind, directories, making) };
        let Some(others) = others else {
            kept.forget_all(board);
            return Ok(());
        };
        self.came_to(ticket, directories[0], reply.parent.as_deref());
        if directories[1] != directories[0] {
            self.came_to(ticket, directories[1], reply.target.as_deref());
        }
        for other in others {
            kept.forget(board, other);
        }
        Ok(())
    }

    /// Changes attributes; a size truncates the data. What it clears of set-user-id and set-group-id it says itself.
    ///
    /// # Errors
    /// `ENOENT`, `EFBIG`, `EISDIR`, and those of the storage.
    pub async fn setattr(&self, caller: &Caller<'_>, inode: InodeId, change: SetAttr) -> Result<Attr, Errno> {
        if let Some(size) = change.size {
            return self.truncate(caller, inode, size, change).await;
        }
        if change.mtime.is_some() {
            // Times that are set explicitly win over those of earlier writes, also of a settling under way.
            self.wait_while_settling(caller, inode).await?;
        }
        // Neither do reads count that came before.
        self.shared.with_file(inode, |file| file.times_are_set(&change));
        let set = self.set(caller, inode, change).await;
        self.shared.with_file(inode, File::times_are_set_no_more);
        match set {
            Err(Errno::ESTALE) => self.shared.graves.change(inode, &change, Shared::wall_clock()).ok_or(Errno::ESTALE),
            result => result,
        }
    }

    pub(crate) async fn set(&self, caller: &Caller<'_>, inode: InodeId, change: SetAttr) -> Result<Attr, Errno> {
        if let Some(attr) = self.set_draft(caller, inode, &change).await? {
            self.shared.with_file(inode, |file| file.times_were_set(&change));
            return Ok(attr);
        }
        if change.mtime.is_some()
            && let Err(error) = self.write_runs_out(caller, inode).await
        {
            tracing::debug!(%inode, "its times are set before all of it is written: {error}");
        }
        let reply = self.set_at_shard(caller, inode, change, false).await?;
        self.shared.with_file(inode, |file| file.times_were_set(&change));
        self.attr_of(caller, reply).await
    }

    /// What the shard says after the change. `inline`: a size is one of contents in the metadata.
    pub(crate) async fn set_at_shard(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        change: SetAttr,
        inline: bool,
    ) -> Result<Box<InodeReply>, Errno> {
        let numbered = self.shared.begin_change(inode.home());
        let request = meta::Set { exactly: numbered.exactly.clone(), inode, change, inline, given: caller.given() };
        let concerned = || Concerned::inode(inode);
        let result = self.change(caller, Destination::home(inode), &numbered, &request, concerned).await;
        self.shared.contents.forget(inode);
        self.parts_changed(inode);
        if !matches!(&result, Ok(reply) if reply.attr.kind != FileType::Directory) {
            self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        }
        let reply = result?;
        self.shared.with_file(inode, |file| file.told_rights(&reply));
        if reply.attr.kind != FileType::Directory {
            self.shared.record_changed(inode);
        }
        Ok(reply)
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
        let make = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let request = meta::Create {
                exactly: numbered.exactly.clone(),
                parent: part,
                name: name.clone(),
                kind,
                mode,
                rdev,
                cred: caller.cred,
                open: false,
                write_intent: false,
                exclusive: true,
                draft: false,
            };
            self.make(caller, Entry { parent, part, name: &name }, &numbered, &request).await.map(|(named, _)| named)
        };
        self.in_part(caller, parent, &name, make).await
    }

    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `EMLINK`, `ENOSPC`.
    pub async fn mkdir(&self, caller: &Caller<'_>, parent: InodeId, name: Name, mode: u32) -> Result<Named, Errno> {
        let make = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let (exactly, name, cred) = (numbered.exactly.clone(), name.clone(), caller.cred);
            let request = meta::Mkdir { exactly, parent: part, name, mode, cred };
            let entry = Entry { parent, part, name: &request.name };
            self.make(caller, entry, &numbered, &request).await.map(|(named, _)| named)
        };
        self.in_part(caller, parent, &name, make).await
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
        let make = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let (exactly, name, cred) = (numbered.exactly.clone(), name.clone(), caller.cred);
            let request = meta::Symlink { exactly, parent: part, name, target: Bytes(target.to_vec()), cred };
            let entry = Entry { parent, part, name: &request.name };
            self.make(caller, entry, &numbered, &request).await.map(|(named, _)| named)
        };
        self.in_part(caller, parent, &name, make).await
    }

    /// # Errors
    /// `EINVAL` for anything but a symbolic link.
    pub async fn readlink(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Vec<u8>, Errno> {
        let request = meta::Readlink { inode, accesses: self.shared.config.access_times };
        let reply = self.call(caller, Destination::home(inode), &request).await?;
        Ok(reply.target.0)
    }

    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub async fn link(&self, caller: &Caller<'_>, inode: InodeId, parent: InodeId, name: Name) -> Result<Attr, Errno> {
        self.publish(caller, inode).await?;
        let link = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let request = meta::Link { exactly: numbered.exactly.clone(), inode, parent: part, name: name.clone() };
            let entry = Entry { parent, part, name: &name };
            self.change_in(caller, entry, &numbered, &request, || Concerned::entry(entry).and(inode)).await
        };
        let changed = self.in_part(caller, parent, &name, link).await;
        self.shared.contents.forget(inode);
        let (ticket, reply) = changed?;
        let (_, reply) = self.at_home(caller, ticket, reply).await?;
        self.attr_of(caller, reply).await
    }

    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub async fn unlink(&self, caller: &Caller<'_>, parent: InodeId, name: Name) -> Result<(), Errno> {
        let unlink = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let (exactly, given) = (numbered.exactly.clone(), caller.given());
            let request = meta::Unlink { exactly, parent: part, name: name.clone(), given };
            let taking = self.shared.kept.taking(part, &name);
            let there = (parent, name.clone());
            self.take(caller, [part; 2], &numbered, &request, [&there; 2], (&Behind::Files, 0)).await?;
            self.shared.kept.took(part, &name, &taking);
            Ok(())
        };
        self.in_part(caller, parent, &name, unlink).await
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub async fn rmdir(&self, caller: &Caller<'_>, parent: InodeId, name: Name) -> Result<(), Errno> {
        // One that is at home in another shard nobody tells of afterwards.
        let behind = if self.shared.map().shards.len() > 1 {
            self.look_behind(caller, &[&(parent, name.clone())], true).await
        } else {
            Behind::Unknown
        };
        self.rmdir_there(caller, parent, name, &behind).await?;
        if let Some(attr) = behind.attr().filter(|attr| self.shared.graves.attr(attr.inode).is_none()) {
            self.shared.graves.dig(Attr { nlink: 0, ctime: Shared::wall_clock(), ..attr });
        }
        Ok(())
    }

    async fn rmdir_there(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        behind: &Behind,
    ) -> Result<(), Errno> {
        let rmdir = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let (exactly, given) = (numbered.exactly.clone(), caller.given());
            let request = meta::Rmdir { exactly, parent: part, name: name.clone(), given };
            let taking = self.shared.kept.taking(part, &name);
            let there = (parent, name.clone());
            self.take(caller, [part; 2], &numbered, &request, [&there; 2], (behind, 0)).await?;
            self.shared.kept.took(part, &name, &taking);
            Ok(())
        };
        self.in_part(caller, parent, &name, rmdir).await
    }

    /// # Errors
    /// Those of `renameat2(2)`; `EINVAL` for flags that this does not have.
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
        let learn = async |directory| self.learn_parts(caller, directory, false).await.map_err(gone);
        for _ in 0..LOOKS_MAX {
            match self.rename_there(caller, &source, &target, flags).await {
                // One of the directories is split.
                Err(Errno::EREMOTE) => {
                    learn(source.0).await?;
                    learn(target.0).await?;
                }
                result => return result,
            }
        }
        Err(Errno::EIO)
    }

    async fn rename_there(
        &self,
        caller: &Caller<'_>,
        source: &(InodeId, Name),
        target: &(InodeId, Name),
        flags: u32,
    ) -> Result<(), Errno> {
        let part = |(parent, name): &(InodeId, Name)| self.shared.splits.part(*parent, name);
        let (source_parent, target_parent) = (part(source), part(target));
        let behind = if source_parent.home() == target_parent.home() {
            Behind::Unknown
        } else {
            self.look_behind(caller, &[source, target], false).await
        };
        let numbered = self.shared.begin_change(source_parent.home());
        let request = meta::Rename {
            exactly: numbered.exactly.clone(),
            source_parent,
            source_name: source.1.clone(),
            target_parent,
            target_name: target.1.clone(),
            flags,
            cred: caller.cred,
            given: caller.given(),
        };
        // An exchange makes both names, and so does a whiteout. That a move takes the source's away need not be known.
        let (kept, board) = (&self.shared.kept, &self.shared.board);
        let _target = kept.making(board, target_parent, &target.1);
        let _source = kept.making(board, source_parent, &source.1);
        let directories = [source_parent, target_parent];
        self.take(caller, directories, &numbered, &request, [source, target], (&behind, 1)).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use types::attr::SetTime;
    use types::cred::Credentials;
    use types::time::{AccessTimes, Timestamp};
    use wire::v1::meta::TimeChange;

    use super::*;
    use crate::test_client;

    const FILE: InodeId = InodeId(77);

    #[test]
    fn who_looks_while_times_are_set_sees_the_last_write() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let shared = &client.shared;
            shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            shared.with_file(FILE, |file| file.wrote(0, 1, Timestamp(9)));
            let (mtime, seen) = (Some(SetTime::At(Timestamp(3))), || shared.in_file(FILE, |file| file.mtime));
            let mut setting = pin!(client.setattr(&caller, FILE, SetAttr { mtime, ..SetAttr::default() }));
            assert!(poll_fn(|context| Poll::Ready(setting.as_mut().poll(context).is_pending())).await);
            assert_eq!(seen(), Some(Timestamp(9)));
            assert_eq!(setting.await, Err(Errno::EIO), "nobody answers");
            assert_eq!(seen(), Some(Timestamp(9)));
        });
    }

    #[test]
    fn a_read_that_the_shard_was_not_told_of_outlives_looks_at_what_is_kept() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let shared = &client.shared;
            shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(false));
            shared.with_file(FILE, |file| file.accessed(Timestamp(1000), AccessTimes::Strictatime));
            let asked = shared.contents.asks(FILE);
            let lease = Lease::granted(shared.board.ticket(), Subject::inode(FILE), 100_000);
            let attr = client.attr_of(&caller, Box::new(test_client::reply(FILE))).await.expect("it is settled");
            client.keep_told(asked, lease, attr);
            let known = client.getattr(&caller, FILE).await.map(|known| known.attr.atime);
            assert_eq!((attr.atime, known), (Timestamp(1000), Ok(Timestamp(1000))));
            let untold = shared.with_file(FILE, |file| file.read_time());
            assert_eq!(untold, Some(Some(TimeChange { at: Timestamp(1000), before: Timestamp(5) })));
        });
    }
}
