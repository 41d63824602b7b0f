//! Operations that change the namespace, each at most once however often it is asked for.
//!
//! All of them, beside the errors they name: `ENOTCONN` where the session is not open here (the client opens it and
//! repeats), `Again` where the session has too many answers unacknowledged, `EPROTO` where the identity is impossible
//! (sequence 0, or one that the session has the answer to), `ENOSPC`/`EIO` where the store fails, `ECANCELED` where it is not
//! as given with the change.

use kv::Kv;
use types::attr::{Attr, FileType, SetAttr};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::name::Name;
use types::time::Timestamp;
use types::xattr::check_name;

use crate::error::Result;
use crate::leases::Touched;
use crate::ops::remove::Fate;
use crate::ops::set::SIZE_MAX;
use crate::ops::symlink::check_target;
use crate::ops::xattr;
use crate::schema::inode::{Inode, UNSETTLED};
use crate::schema::session::Outcome;
use crate::shard::Shard;
use crate::shard::holds::Told;
use crate::transaction::plan::DirectoryChange;
use crate::view::{
    Changed, Create, Deletion, Drafted, EntryInfo, Exactly, InodeView, PolicyChange, Rename, Settle, Settled,
};

impl<K: Kv> Shard<K> {
    /// # Errors
    /// `ESTALE`; `EPERM` by its flags; with a size `EISDIR`, `EINVAL` (no regular file), `EFBIG`, and `EOPNOTSUPP` where
    /// contents in the metadata would pass their limit, or, with `inline`, where they are not there, or where there are
    /// objects, and the session has no write intent, or not the end although others may have written; `EOPNOTSUPP` for the
    /// mode of a symlink, or flags of what has none.
    pub fn set(&mut self, exactly: Exactly, inode: InodeId, change: &SetAttr, inline: bool) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        self.may_read(inode)?;
        let before = self.namespace.existing(inode)?;
        before.must_be_as_given(exactly)?;
        before.may_be_set(change)?;
        if let Some(size) = change.size {
            self.may_truncate(exactly.session, inode, &before, size, inline)?;
        }
        self.take_back(exactly.session, &[touched(inode, &before)])?;
        self.reform(exactly, inode, &before, DirectoryChange::Set(*change))?;
        let layout = self.layout_if_unsettled(inode, &before)?;
        self.namespace.set(inode, change)?;
        if change.size.is_some() {
            self.holds.cut(exactly.session, inode, false);
        }
        let after = self.namespace.existing(inode)?;
        if change.size.is_some() || change.mtime.is_some() {
            self.holds.mtime_set(exactly.session, inode, after.ctime);
        }
        if change.size.is_some() && after.inline_limit().is_some() {
            self.contents_changed(inode);
        }
        if after.concerns_writers(&before) {
            self.tell_openers(exactly.session, inode);
        }
        self.record(exactly, Outcome::Inode(inode));
        Ok(self.view(exactly.session, inode, &after, layout))
    }

    /// # Errors
    /// `ENOENT` (no such directory, or removed), `ENOTDIR`, `EEXIST`, `EISDIR` (not exclusive, and a directory is
    /// there), `ELOOP` (the same with a symlink), `EINVAL` (kind), `ENOSPC` (no group in the pool).
    pub fn create(&mut self, exactly: Exactly, create: &Create<'_>) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        if self.is_spread() {
            self.may_change_inside(create.parent, create.name)?;
        }
        self.take_back_for_create(exactly.session, create)?;
        let session = exactly.session;
        if create.open {
            self.may_hold(session, None)?;
        }
        let id = self.namespace.create(create)?;
        if self.is_elsewhere(id) {
            // There already: the client goes there.
            return Ok(InodeView::elsewhere(id, FileType::Regular));
        }
        // A new file is in memory, and of one that was there nothing was changed: nothing is left half done here.
        let mut inode = self.namespace.existing(id)?;
        let layout = self.namespace.layout(id, &inode)?;
        if create.open {
            self.hold_open(session, id, &inode);
        }
        let outcome = match (create.open, create.write_intent && inode.kind == FileType::Regular) {
            (true, true) => {
                if inode.inline_limit().is_none() {
                    self.holds.intend(session, id, !inode.has(UNSETTLED), self.namespace.writes_begin_after(&inode));
                    inode = self.namespace.unsettle(id, inode);
                } else if create.draft && create.exclusive {
                    inode = self.begin_draft(session, id, inode);
                }
                Outcome::OpenedToWrite(id)
            }
            (true, false) => Outcome::Opened(id),
            (false, _) => Outcome::Inode(id),
        };
        self.record(exactly, outcome);
        let parent = self.directory_view(session, create.parent);
        let mut view = self.named_view(session, (create.parent, create.name), id, &inode, layout);
        if view.draft && view.lease_ms == 0 {
            // Nobody could take it back.
            self.holds.end_draft(id);
            view.draft = false;
        }
        Ok(InodeView { parent, ..view })
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn mkdir(
        &mut self,
        exactly: Exactly,
        parent: InodeId,
        name: &Name,
        mode: u32,
        cred: Credentials,
    ) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        self.take_back_vacancy(exactly.session, parent, name)?;
        if self.is_spread() {
            self.cross_mkdir(exactly, parent, name, mode, cred)?;
        }
        let id = self.namespace.mkdir(parent, name, mode, cred)?;
        self.record(exactly, Outcome::Inode(id));
        self.made(exactly.session, (parent, name), id)
    }

    /// # Errors
    /// `ENOENT` (also an empty target), `ENAMETOOLONG` (target above 4095 bytes), `EINVAL` (a zero byte in it),
    /// `ENOTDIR`, `EEXIST`.
    pub fn symlink(
        &mut self,
        exactly: Exactly,
        parent: InodeId,
        name: &Name,
        target: &[u8],
        cred: Credentials,
    ) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        check_target(target)?;
        if self.is_spread() {
            self.may_change_inside(parent, name)?;
        }
        self.take_back_vacancy(exactly.session, parent, name)?;
        let id = self.namespace.symlink(parent, name, target, cred)?;
        self.record(exactly, Outcome::Inode(id));
        self.made(exactly.session, (parent, name), id)
    }

    /// # Errors
    /// `EPERM` (a directory), `ENOENT` (unlinked, or no such directory), `ESTALE`, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn link(&mut self, exactly: Exactly, inode: InodeId, parent: InodeId, name: &Name) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        self.take_back_vacancy(exactly.session, parent, name)?;
        self.take_back(exactly.session, &[Touched::inode(inode)])?;
        if self.is_spread() {
            self.cross_link(exactly, inode, parent, name)?;
        }
        let before = self.namespace.existing(inode)?;
        let layout = self.layout_if_unsettled(inode, &before)?;
        self.namespace.link(inode, parent, name)?;
        self.adopted(inode);
        self.record(exactly, Outcome::Inode(inode));
        let after = self.namespace.existing(inode)?;
        let parent = self.directory_view(exactly.session, parent);
        Ok(InodeView { parent, ..self.view(exactly.session, inode, &after, layout) })
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`.
    pub fn unlink(&mut self, exactly: Exactly, parent: InodeId, name: &Name) -> Result<Changed> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat_removal(exactly, outcome);
        }
        self.may_take_back(exactly.given.remover, parent, name)?;
        self.take_back_entry(exactly.session, parent, name)?;
        if self.is_spread() {
            self.cross_remove(exactly, parent, name, false)?;
        }
        self.may_take(exactly.given.remover, parent, name)?;
        let (grace, holds) = (self.grace_until_ms.is_some(), &self.holds);
        let (now, mut without_data) = (self.namespace.now, None);
        let sees = |id: InodeId, inode: &Inode| {
            without_data = (inode.kind != FileType::Regular).then(|| nameless(inode.attr(id), now));
        };
        let fate = self.namespace.unlink_seeing(parent, name, |id| grace || holds.is_open(id), sees)?;
        // After a restart all inodes are kept for a while.
        let removed = without_data.filter(|_| fate != Fate::Lives);
        self.account(fate);
        self.record(exactly, Outcome::Done);
        let parent = self.directory_view(exactly.session, parent);
        Ok(Changed { parent, target: None, others: Some(Vec::new()), removed })
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn rmdir(&mut self, exactly: Exactly, parent: InodeId, name: &Name) -> Result<Changed> {
        if let Some(outcome) = self.begin(exactly)? {
            return repeat_done(outcome).map(|()| Changed::default());
        }
        self.must_be_empty(parent, name)?;
        self.may_take_back(exactly.given.remover, parent, name)?;
        self.take_back_entry(exactly.session, parent, name)?;
        if self.is_spread() {
            self.cross_remove(exactly, parent, name, true)?;
        }
        self.may_take(exactly.given.remover, parent, name)?;
        let others = self.directories_at([(parent, name)]);
        let removed = self.without_name(parent, name);
        let (grace, holds) = (self.grace_until_ms.is_some(), &self.holds);
        let fate = self.namespace.rmdir(parent, name, |id| grace || holds.is_open(id))?;
        self.account(fate);
        self.record(exactly, Outcome::Done);
        let parent = self.directory_view(exactly.session, parent);
        Ok(Changed { parent, target: None, others, removed })
    }

    /// Refuses what cannot be removed before anybody is told to forget its name: with that, a kernel detaches what is mounted
    /// below it. Where the directory is another shard's, or split, only its removal finds out.
    fn must_be_empty(&mut self, parent: InodeId, name: &Name) -> Result<()> {
        if self.is_spread() {
            self.may_change_inside(parent, name)?;
        }
        let place = self.namespace.place(parent, name)?;
        let Some(edge) = place.edge.filter(|edge| !self.is_elsewhere(edge.child)) else { return Ok(()) };
        if self.is_spread() {
            self.transactions.locks.may_change(edge.child)?;
        }
        let (_, inode) = self.namespace.occupant(&place)?;
        place.may_lose(&inode)?;
        if inode.is_dir() && inode.entries() != 0 { Err(Errno::ENOTEMPTY.into()) } else { Ok(()) }
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EEXIST` (NOREPLACE), `ENOTEMPTY`, `EINVAL` (into itself, or flags), `EMLINK`.
    pub fn rename(&mut self, exactly: Exactly, rename: &Rename<'_>) -> Result<Changed> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat_removal(exactly, outcome);
        }
        let (source, target) = ((rename.source_parent, rename.source_name), (rename.target_parent, rename.target_name));
        self.may_take_back(exactly.given.remover, source.0, source.1)?;
        self.may_take_back(exactly.given.remover.filter(|_| rename.replaces()), target.0, target.1)?;
        self.take_back_both(exactly.session, source, target)?;
        if self.is_spread() {
            self.cross_rename(exactly, rename)?;
        }
        self.may_take(exactly.given.remover, source.0, source.1)?;
        if rename.replaces() {
            self.may_take(exactly.given.remover, target.0, target.1)?;
        }
        let others = self.directories_at([source, target]);
        let replaced = self.without_name(target.0, target.1);
        let (grace, holds) = (self.grace_until_ms.is_some(), &self.holds);
        let fate = self.namespace.rename(rename, |id| grace || holds.is_open(id))?;
        self.carry_leases(exactly.session, rename);
        self.account(fate);
        self.record(exactly, Outcome::Done);
        let parent = self.directory_view(exactly.session, source.0);
        let target = if target.0 == source.0 { None } else { self.directory_view(exactly.session, target.0) };
        let removed = replaced.filter(|attr| {
            self.namespace.find(attr.inode).is_ok_and(|found| found.is_none_or(|inode| inode.nlink == 0))
        });
        Ok(Changed { parent, target, others, removed })
    }

    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL` (no regular file), `EBUSY` (too many opens), `EPERM` by its flags.
    pub fn write_intent(&mut self, exactly: Exactly, inode: InodeId, cuts: bool) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            let view = self.repeat(exactly, outcome)?;
            self.holds.cut(exactly.session, inode, cuts);
            return Ok(view);
        }
        self.may_read(inode)?;
        let session = exactly.session;
        if self.holds.drafter(inode) != Some(session) {
            self.take_back(session, &[Touched::inode(inode)])?;
        }
        let before = self.namespace.writable(inode)?;
        // Who cuts does not append. Whether who writes does, its client sees to, which is told of the flags; and who has an
        // intent must be able to end a cut.
        if cuts || !self.holds.intends(session, inode) {
            before.may_be_written(!cuts)?;
        }
        let layout = self.namespace.layout(inode, &before)?;
        self.may_hold(session, Some(inode))?;
        let before = self.grown_out(inode, before)?;
        self.namespace.drop_capability(inode, before)?;
        let before = self.namespace.existing(inode)?;
        self.holds.intend(session, inode, !before.has(UNSETTLED), self.namespace.writes_begin_after(&before));
        self.holds.cut(session, inode, cuts);
        let after = self.namespace.unsettle(inode, before);
        self.record(exactly, Outcome::Intended(inode));
        Ok(self.view(session, inode, &after, layout))
    }

    /// `drafted`: what the session has kept back of its draft.
    ///
    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL` (no regular file), `EFBIG`; with `drafted` `ECANCELED` where it is none, and `EOPNOTSUPP`
    /// with contents that cannot be in the metadata.
    pub fn settle(&mut self, exactly: Exactly, settle: &Settle, drafted: Option<Drafted>) -> Result<Settled> {
        match self.begin(exactly)? {
            Some(Outcome::Settled { settled, intents }) => {
                self.end_again(exactly.session, settle)?;
                return Ok(Settled { settled, intents });
            }
            Some(_) => return Err(Errno::EPROTO.into()),
            None => {}
        }
        if drafted.is_some() {
            // Nobody else was told of it: there is nothing to be taken back, not even from sessions that are yet to come back.
            self.may_publish(exactly.session, settle.inode)?;
        } else {
            self.take_back(exactly.session, &[Touched::inode(settle.inode)])?;
        }
        let inode = self.namespace.writable(settle.inode)?;
        if settle.size > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let inode = match drafted {
            Some(drafted) => self.publish(exactly.session, settle.inode, inode, drafted)?,
            None => inode,
        };
        let settled = self.may_settle(exactly.session, settle, &inode);
        // Set while the writes were under way: a change of the inode that is older than the last of them.
        if settled && settle.mtime.is_some_and(|change| change.at > inode.ctime) {
            self.namespace.drop_capability(settle.inode, inode)?;
        }
        let inode = self.namespace.existing(settle.inode)?;
        if settled && inode.has(UNSETTLED) {
            let last = self.knows_best_after(exactly.session, settle);
            let Told { written_after, overruled, .. } = self.holds.told(exactly.session, settle.inode);
            self.namespace.take_over(settle, inode, last, written_after, overruled);
            let after = self.namespace.existing(settle.inode)?;
            if after.mtime != inode.mtime {
                self.holds.mtime_set(exactly.session, settle.inode, after.mtime);
            }
        }
        if settle.release {
            self.end_intent(exactly.session, settle.inode);
        }
        if !self.namespace.existing(settle.inode)?.has(UNSETTLED) {
            self.holds.settled(settle.inode);
        }
        // Until they have ended theirs, whatever the objects say is refused: the last of them settles it.
        let is_left = !settled && self.holds.others_intend(exactly.session, settle.inode);
        let intents = if is_left { Settled::LEFT_TO_OTHERS } else { self.holds.intents(settle.inode) };
        if let Some(read) = settle.read {
            self.namespace.was_read(settle.inode, read)?;
        }
        if settle.close {
            self.locks.release_file(exactly.session, settle.inode);
            self.release(exactly.session, settle.inode)?;
        }
        self.record(exactly, Outcome::Settled { settled, intents });
        Ok(Settled { settled, intents })
    }

    /// What ended with a settling that happened already. After a restart the session has told of the file what was so until it
    /// hears the answer; and it asks for nothing of the file anew before that.
    fn end_again(&mut self, session: SessionId, settle: &Settle) -> Result<()> {
        if settle.release {
            self.end_intent(session, settle.inode);
            // It may be gone: nobody needs what is remembered of it then.
            if self.namespace.find(settle.inode)?.is_none_or(|inode| !inode.has(UNSETTLED)) {
                self.holds.settled(settle.inode);
            }
        }
        if settle.close {
            self.locks.release_file(session, settle.inode);
            self.release(session, settle.inode)?;
        }
        Ok(())
    }

    fn end_intent(&mut self, session: SessionId, inode: InodeId) {
        self.holds.end_intent(session, inode);
        self.locks.release_end(session, inode);
    }

    /// # Errors
    /// `E2BIG` (value above 64 KiB), `ERANGE` (name), `EOPNOTSUPP` (name space), `EEXIST` (CREATE), `ENODATA`
    /// (REPLACE), `EINVAL` (flags), `EPERM` (user attribute of what is neither file nor directory), `ENOSPC` (names of
    /// the inode above 64 KiB together, or values above 1 MiB), `ESTALE`; of an ACL `EINVAL`, `EACCES`, `EOPNOTSUPP`.
    pub fn set_xattr(&mut self, exactly: Exactly, inode: InodeId, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        if let Some(outcome) = self.begin(exactly)? {
            return repeat_done(outcome);
        }
        self.may_read(inode)?;
        let found = self.namespace.existing(inode)?;
        found.must_be_as_given(exactly)?;
        found.must_be_free()?;
        // What is refused anyway does not wait for others: it may be as long as a message.
        xattr::check(name, value, flags)?;
        self.take_back(exactly.session, &[touched(inode, &found)])?;
        if found.is_dir() {
            let (name, value) = (name.to_vec(), value.to_vec());
            self.reform(exactly, inode, &found, DirectoryChange::SetXattr { name, value, flags })?;
        }
        self.namespace.set_xattr(inode, name, value, flags)?;
        // The permission bits follow a list, and who writes takes a capability.
        if self.namespace.existing(inode)?.concerns_writers(&found) {
            self.tell_openers(exactly.session, inode);
        }
        self.record(exactly, Outcome::Done);
        Ok(())
    }

    /// # Errors
    /// `ENODATA`, `ERANGE`, `EOPNOTSUPP`, `EPERM`, `ESTALE`.
    pub fn remove_xattr(&mut self, exactly: Exactly, inode: InodeId, name: &[u8]) -> Result<()> {
        if let Some(outcome) = self.begin(exactly)? {
            return repeat_done(outcome);
        }
        self.may_read(inode)?;
        let found = self.namespace.existing(inode)?;
        found.must_be_as_given(exactly)?;
        found.must_be_free()?;
        check_name(name)?;
        self.take_back(exactly.session, &[touched(inode, &found)])?;
        self.reform(exactly, inode, &found, DirectoryChange::RemoveXattr(name.to_vec()))?;
        self.namespace.remove_xattr(inode, name)?;
        self.record(exactly, Outcome::Done);
        Ok(())
    }

    /// # Errors
    /// `ENOTDIR`, `EINVAL` (values, or a pool that `set_pools` did not name), `ESTALE`.
    pub fn set_policy(&mut self, exactly: Exactly, inode: InodeId, change: &PolicyChange) -> Result<EntryInfo> {
        match self.begin(exactly)? {
            Some(Outcome::Inode(inode)) => return self.entry_info(exactly.session, inode),
            Some(_) => return Err(Errno::EPROTO.into()),
            None => {}
        }
        self.may_read(inode)?;
        self.take_back(exactly.session, &[Touched::inode(inode)])?;
        let found = self.namespace.existing(inode)?;
        self.reform(exactly, inode, &found, DirectoryChange::Policy(*change))?;
        self.namespace.set_policy(inode, change)?;
        self.record(exactly, Outcome::Inode(inode));
        self.entry_info(exactly.session, inode)
    }

    /// The objects are gone from their storage groups. Not a request of a session; harmless twice.
    pub fn deletions_done(&mut self, done: &[Deletion]) {
        self.namespace.deletions_done(done);
    }

    /// The directories that these names stand for; `None` where that cannot be told.
    fn directories_at<const N: usize>(&mut self, names: [(InodeId, &Name); N]) -> Option<Vec<InodeId>> {
        let mut directories = Vec::new();
        for (parent, name) in names {
            let edge = self.namespace.place(parent, name).ok()?.edge;
            directories.extend(edge.filter(|edge| edge.kind == FileType::Directory).map(|edge| edge.child));
        }
        Some(directories)
    }

    /// What this name stands for, if that is no regular file, as it will be when it is removed; `None` where that cannot be
    /// told.
    fn without_name(&mut self, parent: InodeId, name: &Name) -> Option<Box<Attr>> {
        let edge = self.namespace.place(parent, name).ok()?.edge.filter(|edge| edge.kind != FileType::Regular)?;
        let inode = self.namespace.find(edge.child).ok()??;
        Some(nameless(inode.attr(edge.child), self.namespace.now))
    }

    /// A new inode: in memory, so this does not fail.
    fn made(&mut self, session: SessionId, place: (InodeId, &Name), id: InodeId) -> Result<InodeView> {
        let inode = self.namespace.existing(id)?;
        let mut view = self.named_view(session, place, id, &inode, None);
        if view.lease_ms > 0 && inode.is_dir() {
            view.standing = Some(self.standing(&inode));
        }
        view.parent = self.directory_view(session, place.0);
        Ok(view)
    }

    /// The answer to a change that happened already, with the attributes of now. What it gave the session, the session
    /// has again, if a restart made the shard forget it.
    pub(super) fn repeat(&mut self, exactly: Exactly, outcome: Outcome) -> Result<InodeView> {
        let session = exactly.session;
        let (Outcome::Inode(id) | Outcome::Opened(id) | Outcome::Intended(id) | Outcome::OpenedToWrite(id)) = outcome
        else {
            return Err(Errno::EPROTO.into());
        };
        if self.is_elsewhere(id) {
            let told = self.made_elsewhere(exactly);
            return Ok(told.unwrap_or_else(|| InodeView::elsewhere(id, FileType::Regular)));
        }
        let mut inode = self.namespace.existing(id)?;
        let layout = self.namespace.layout(id, &inode)?;
        if !matches!(outcome, Outcome::Inode(_)) {
            // Who has got it since, after a restart, may have it alone and keep back what it writes.
            self.take_back_unwritten(session, id, &inode)?;
        }
        if matches!(outcome, Outcome::Opened(_) | Outcome::OpenedToWrite(_)) {
            self.hold_open(session, id, &inode);
        }
        if matches!(outcome, Outcome::OpenedToWrite(_)) && self.holds.drafter(id) == Some(session) {
            // The first answer, which made it a draft, has not arrived, and this one bears no lease.
            self.holds.end_draft(id);
        }
        // A file that was made with its contents in the metadata needed no intent; if they have left it since, it does.
        let intends = matches!(outcome, Outcome::Intended(_) | Outcome::OpenedToWrite(_));
        if intends && inode.inline_limit().is_none() {
            if !inode.has(UNSETTLED) {
                self.take_back(session, &[Touched::inode(id)])?;
            }
            // Others may have written since: never exclusive.
            self.holds.intend(session, id, false, self.namespace.writes_begin_after(&inode));
            inode = self.namespace.unsettle(id, inode);
        }
        Ok(self.view(session, id, &inode, layout))
    }

    /// The answer to one that happened already, just now where it took a transaction.
    fn repeat_removal(&mut self, exactly: Exactly, outcome: Outcome) -> Result<Changed> {
        repeat_done(outcome)?;
        Ok(Changed { removed: self.removed_elsewhere(exactly), ..Changed::default() })
    }

    /// The session's figures are right. An inode that is settled needs none: that is no error.
    fn may_settle(&self, session: SessionId, settle: &Settle, inode: &Inode) -> bool {
        if !inode.has(UNSETTLED) {
            return true;
        }
        match settle.gathered {
            None => self.holds.is_exclusive(session, settle.inode),
            // Nobody else could write since the objects were asked.
            Some(intents) => {
                intents == self.holds.intents(settle.inode) && !self.holds.others_intend(session, settle.inode)
            }
        }
    }

    /// After an accepted settle, nobody can write without asking first, so the inode is right until then. In the grace
    /// after a restart somebody may hold an intent who has not said so yet; not where the session was exclusive, for
    /// then the inode was settled when it got its intent.
    fn knows_best_after(&self, session: SessionId, settle: &Settle) -> bool {
        let stays = !settle.release && self.holds.intends(session, settle.inode);
        let unknown = self.grace_until_ms.is_some() && settle.gathered.is_some();
        !stays && !unknown && !self.holds.others_intend(session, settle.inode)
    }
}

fn touched(id: InodeId, inode: &Inode) -> Touched<'static> {
    if inode.is_dir() { Touched::directory(id) } else { Touched::inode(id) }
}

fn repeat_done(outcome: Outcome) -> Result<()> {
    if outcome == Outcome::Done { Ok(()) } else { Err(Errno::EPROTO.into()) }
}

pub(crate) fn nameless(attr: Attr, now: Timestamp) -> Box<Attr> {
    Box::new(Attr { nlink: 0, ctime: now, ..attr })
}
