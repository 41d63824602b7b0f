//! Before a change: what others were told of it is taken back.

use kv::Kv;
use types::id::{InodeId, SessionId};
use types::name::Name;

use crate::error::{Error, Result};
use crate::leases::{Awaited, Recall, Room, Subject, Touched};
use crate::schema::inode::{Inode, UNSETTLED};
use crate::shard::Shard;
use crate::view::{Create, Rename};

impl<K: Kv> Shard<K> {
    /// What `session` is about to change may not be believed by others any more.
    ///
    /// # Errors
    /// `Recalling` where others hold leases on some of it.
    pub(crate) fn take_back(&mut self, session: SessionId, touched: &[Touched<'_>]) -> Result<()> {
        // What is at home elsewhere is leased there, and taken back before the shard there promises to change it.
        let here = touched.iter().filter(|touched| touched.inode.home() == self.config.shard);
        if !self.leases.may_change(session, here) {
            return Err(Error::Recalling);
        }
        touched
            .iter()
            .filter(|touched| touched.name.is_none())
            .try_for_each(|it| self.end_drafts_of_others(session, it.inode))
    }

    /// Before `session` is told of a file, or opens it: another one that alone writes it, or has just made it, may have kept
    /// back what it was told to write, and its size with it. After a restart, any may that wrote or made it.
    ///
    /// # Errors
    /// `Recalling` where that is so.
    pub(super) fn take_back_unwritten(&mut self, session: SessionId, id: InodeId, inode: &Inode) -> Result<()> {
        if self.may_be_unwritten(session, id, inode) {
            return self.take_back(session, &[Touched::inode(id)]);
        }
        if self.is_on_record(inode) { self.end_drafts_of_others(session, id) } else { Ok(()) }
    }

    pub(super) fn may_be_unwritten(&self, session: SessionId, id: InodeId, inode: &Inode) -> bool {
        // Of one's own draft nobody else was told.
        let may_presume = self.leases.presume() && self.holds.drafter(id) != Some(session);
        let is_others = inode.has(UNSETTLED) && (self.holds.is_others_alone(session, id) || may_presume);
        is_others || self.may_be_draft_of_others(session, id, inode)
    }

    /// A file was just forbidden to be written as before: other sessions that have it open hear of it, whether they hold a
    /// lease or not, and ask before they write again. Nobody waits for that.
    pub(super) fn tell_openers(&mut self, session: SessionId, id: InodeId) {
        for other in self.holds.openers(id).into_iter().filter(|other| *other != session) {
            self.leases.presume_of(other, Subject::inode(id));
        }
        // They are being recalled, if there are any.
        let _ = self.take_back(session, &[Touched::inode(id)]);
    }

    /// A lease on an inode's attributes with the answer at hand: its term in ms, 0 for none. What a transaction has locked
    /// is about to change: its leases were taken back already.
    pub(super) fn lease_inode(&mut self, session: SessionId, inode: InodeId, room: Room) -> u32 {
        let is_about_to_change = self.transactions.locks.covers_inode(inode) || self.transactions.dividing.has(inode);
        if is_about_to_change || self.lies_in_doomed(inode) {
            return 0;
        }
        self.leases.grant_of(session, Subject::inode(inode), room)
    }

    /// It is about to be removed with its directory, which leases that are asked for again and again would put off for ever.
    fn lies_in_doomed(&mut self, inode: InodeId) -> bool {
        if !self.transactions.locks.are_doomed() {
            return false;
        }
        let found = self.namespace.find(inode).ok().flatten();
        found.is_some_and(|found| self.transactions.locks.is_doomed(found.parent))
    }

    /// A lease on a name, on what it stands for or that it is absent: ms, 0 where that is about to change.
    pub(super) fn lease_name(&mut self, session: SessionId, parent: InodeId, name: &Name, room: Room) -> u32 {
        let locks = &self.transactions.locks;
        let is_being_split = self.splitting.has(parent) || self.transactions.dividing.has(parent);
        if is_being_split || locks.covers_name(parent, name) || locks.covers_names(parent) {
            return 0;
        }
        self.leases.grant_of(session, Subject::name(parent, name), room)
    }

    /// Before a name is made. Where it is there, nothing is going to change.
    pub(super) fn take_back_vacancy(&mut self, session: SessionId, parent: InodeId, name: &Name) -> Result<()> {
        if self.leases.are_none() || self.namespace.child(parent, name)?.is_some() {
            return Ok(());
        }
        self.take_back(session, &[Touched::directory(parent), Touched::name(parent, name)])
    }

    /// Before a file is made, or one that is there is opened instead.
    pub(super) fn take_back_for_create(&mut self, session: SessionId, create: &Create<'_>) -> Result<()> {
        if self.leases.are_none() && create.exclusive {
            return Ok(());
        }
        let (parent, name) = (create.parent, create.name);
        match self.namespace.child(parent, name)? {
            None => self.take_back(session, &[Touched::directory(parent), Touched::name(parent, name)]),
            Some(child) if create.write_intent && !create.exclusive => {
                self.take_back(session, &[Touched::inode(child)])
            }
            Some(child) if !create.exclusive && child.home() == self.config.shard => {
                match self.namespace.find(child)? {
                    Some(inode) => self.take_back_unwritten(session, child, &inode),
                    None => Ok(()),
                }
            }
            Some(_) => Ok(()),
        }
    }

    /// Before a name is taken from what it stands for, if it stands for anything.
    pub(super) fn take_back_entry(&mut self, session: SessionId, parent: InodeId, name: &Name) -> Result<()> {
        if self.leases.are_none() {
            return Ok(());
        }
        match self.namespace.child(parent, name)? {
            None => Ok(()),
            Some(child) => self
                .take_back(session, &[Touched::directory(parent), Touched::name(parent, name), Touched::inode(child)]),
        }
    }

    /// Before an entry moves.
    pub(super) fn take_back_both(
        &mut self,
        session: SessionId,
        source: (InodeId, &Name),
        target: (InodeId, &Name),
    ) -> Result<()> {
        if self.leases.are_none() {
            return Ok(());
        }
        let Some(moved) = self.namespace.child(source.0, source.1)? else { return Ok(()) };
        let mut touched = vec![Touched::inode(moved)];
        for (parent, name) in [source, target] {
            touched.extend([Touched::directory(parent), Touched::name(parent, name)]);
        }
        touched.extend(self.namespace.child(target.0, target.1)?.map(Touched::inode));
        self.take_back(session, &touched)
    }

    /// After an entry has moved: what the session believes of its name it believes of the new one.
    pub(super) fn carry_leases(&mut self, session: SessionId, rename: &Rename<'_>) {
        let source = Subject::name(rename.source_parent, rename.source_name);
        let target = Subject::name(rename.target_parent, rename.target_name);
        self.leases.carry(session, source, target);
        if rename.exchanges() {
            self.leases.carry(session, target, source);
        }
    }

    /// After an entry has moved to this name by a transaction of the session, which believes of it what it believed of
    /// the old one.
    pub(crate) fn lease_arrived(&mut self, session: SessionId, parent: InodeId, name: &Name) {
        self.leases.arrived(session, Subject::name(parent, name));
    }

    /// The session hears recalls from now on (it asked for them), or not any more: only who does gets leases.
    pub fn listen(&mut self, session: SessionId, listens: bool) {
        self.leases.listen(session, listens);
        if !listens {
            self.holds.end_cuts(session);
        }
    }

    /// The session believes nothing any more of what these recalls named.
    pub fn acknowledge_recalls(&mut self, session: SessionId, ids: &[u64]) {
        self.leases.acknowledge(session, ids);
    }

    /// Recalls that the session has not acknowledged, the oldest ones first; the others when it has. A name in a part of a
    /// directory is told as one of that.
    pub fn recalls(&mut self, session: SessionId) -> Vec<Recall> {
        let mut recalls = self.leases.unacknowledged(session);
        for recall in recalls.iter_mut().filter(|recall| recall.name.is_some()) {
            // A part that is gone has gone with its directory: whatever is believed of that is of no moment.
            if let Ok(Some(directory)) = self.namespace.find(recall.inode) {
                recall.inode = directory.visible(recall.inode);
            }
        }
        recalls
    }

    /// A session with recalls that it was not told of; each once.
    pub fn next_alert(&mut self) -> Option<SessionId> {
        self.leases.next_alert()
    }

    /// What the request waits for that was just refused with `Recalling`.
    pub fn awaited(&self) -> Awaited {
        self.leases.awaited()
    }

    /// What has ended since the last call: what was refused with `Recalling` and awaits it may be tried again.
    pub fn take_ended_recalls(&mut self) -> Vec<Awaited> {
        self.leases.take_ended()
    }
}
