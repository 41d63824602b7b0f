//! What a change was permitted for, looked at again in its own turn (`types::cred::Conditions`).

use kv::Kv;
use types::attr::S_ISVTX;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::schema::inode::Inode;
use crate::shard::Shard;
use crate::transaction::part::Part;
use crate::view::Exactly;

impl Inode {
    /// `ECANCELED` where it is not as given.
    pub(crate) fn must_be_as_given(&self, exactly: Exactly) -> Result<()> {
        let is_met = exactly.given.are_met(self.uid, self.gid, self.file_flags);
        if is_met { Ok(()) } else { Err(Errno::ECANCELED.into()) }
    }

    /// A sticky directory of somebody else's: `user` takes only names away that lead to what is that user's.
    fn guards_names_from(&self, user: u32) -> bool {
        u32::from(self.mode) & S_ISVTX != 0 && self.uid != user
    }
}

impl<K: Kv> Shard<K> {
    /// `user`, where what `name` leads to has to belong to that user for the name to be taken away.
    pub(crate) fn owner_wanted(&mut self, user: Option<u32>, parent: InodeId, name: &Name) -> Result<Option<u32>> {
        let Some(user) = user else { return Ok(None) };
        let directory = self.namespace.place(parent, name)?.directory;
        Ok(directory.guards_names_from(user).then_some(user))
    }

    /// `ECANCELED` where `user` may not take this name away. An inode of another shard is looked at there, by
    /// [`Self::as_given`].
    pub(crate) fn may_take(&mut self, user: Option<u32>, parent: InodeId, name: &Name) -> Result<()> {
        let Some(user) = self.owner_wanted(user, parent, name)? else { return Ok(()) };
        match self.namespace.place(parent, name)?.edge {
            Some(edge) if !self.is_elsewhere(edge.child) => self.must_belong(edge.child, user),
            _ => Ok(()),
        }
    }

    /// As [`Self::may_take`], as far as it is known before anybody is told to forget the name: with that, a kernel detaches
    /// what is mounted there.
    pub(crate) fn may_take_back(&mut self, user: Option<u32>, parent: InodeId, name: &Name) -> Result<()> {
        if user.is_none() || self.is_elsewhere(parent) {
            return Ok(());
        }
        if self.is_spread() {
            // What is in doubt may be the old record, or not there yet.
            self.may_change_inside(parent, name)?;
            if let Some(child) = self.namespace.child(parent, name)?.filter(|child| !self.is_elsewhere(*child)) {
                self.transactions.locks.may_change(child)?;
            }
        }
        self.may_take(user, parent, name)
    }

    fn must_belong(&mut self, inode: InodeId, user: u32) -> Result<()> {
        let is_others = self.namespace.find(inode)?.is_some_and(|found| found.uid != user);
        if is_others { Err(Errno::ECANCELED.into()) } else { Ok(()) }
    }

    /// A part of a transaction without the user that it is for: whoever locks it in the same turn may do it. Only of what
    /// can be locked: the record of what is in doubt may be the old one, or not there yet.
    pub(crate) fn as_given(&mut self, part: Part) -> Result<Part> {
        let Part::By { user, part } = part else { return Ok(part) };
        match &*part {
            Part::Entry { parent, name, .. } => self.may_take(Some(user), *parent, name)?,
            inner => inner.concerns().map_or(Ok(()), |inode| self.must_belong(inode, user))?,
        }
        Ok(*part)
    }
}
