//! Whether an operation concerns other shards, and whether what it needs is locked. Where there is one shard and no lock,
//! none of this is asked.

use kv::Kv;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, ShardId, TransactionId};
use types::name::Name;

use crate::error::{Error, Result};
use crate::schema::edge::Edge;
use crate::schema::inode::{Body, Role};
use crate::shard::Shard;
use crate::transaction::part::NewDirectory;
use crate::transaction::plan::{Operation, Renaming};
use crate::view::{Exactly, Rename};

impl<K: Kv> Shard<K> {
    /// The cluster's shards, whole, and those whose nodes seem to be there; at each change of the map.
    pub fn set_shards(&mut self, all: Vec<ShardId>, good: Vec<ShardId>) {
        self.namespace.homes = crate::homes::Homes::new(all, good);
    }

    /// The questions of this file have to be asked.
    pub(crate) fn is_spread(&self) -> bool {
        self.namespace.homes.are_several() || !self.transactions.locks.is_empty()
    }

    pub(crate) fn is_elsewhere(&self, inode: InodeId) -> bool {
        inode.home() != self.config.shard
    }

    /// `Blocked` where it cannot be told yet.
    pub(crate) fn may_read(&mut self, inode: InodeId) -> Result<()> {
        let locks = &mut self.transactions.locks;
        if locks.is_empty() { Ok(()) } else { locks.may_read(inode) }
    }

    /// What `name` leads to, if it can be told.
    pub(crate) fn read_name(&mut self, parent: InodeId, name: &Name) -> Result<Option<Edge>> {
        self.transactions.locks.may_read_name(parent, name)?;
        let edge = self.namespace.place(parent, name)?.edge;
        if let Some(edge) = edge.filter(|edge| edge.child.home() == self.config.shard) {
            self.transactions.locks.may_read(edge.child)?;
        }
        Ok(edge)
    }

    /// Before a name that leads to a directory, or comes from elsewhere.
    pub(crate) fn may_change_name(&self, parent: InodeId, name: &Name) -> Result<()> {
        self.transactions.locks.may_change_name(parent, name)
    }

    /// Before a new name of a new file of this shard, or the end of a name.
    pub(crate) fn may_change_inside(&self, parent: InodeId, name: &Name) -> Result<()> {
        self.transactions.locks.may_change_inside(parent, name)
    }

    /// A transaction more can lock names in the directory: nobody waits for those that do.
    pub(crate) fn may_join(&self, directory: InodeId, transaction: TransactionId, in_doubt: bool) -> Result<()> {
        if self.splitting.reserves(directory, self.mono_ms) || self.transactions.dividing.reserves(directory) {
            return Err(Error::Again);
        }
        self.transactions.locks.may_join(directory, transaction, in_doubt)
    }

    /// Goes on where the new directory is to be made in this shard.
    pub(crate) fn cross_mkdir(
        &mut self,
        exactly: Exactly,
        parent: InodeId,
        name: &Name,
        mode: u32,
        cred: Credentials,
    ) -> Result<()> {
        self.may_change_name(parent, name)?;
        let place = self.namespace.vacancy(parent, name)?;
        let Body::Directory { policy, .. } = place.directory.body else {
            return Err(Errno::ENOTDIR.into());
        };
        let home = self.namespace.choose_home(policy.directories);
        if home == self.config.shard {
            return Ok(());
        }
        self.namespace.can_have_subdir(&place.directory)?;
        let body = Body::Directory { entries: 0, policy, role: Role::Whole };
        let new = self.namespace.new_inode(place.home(), FileType::Directory, mode, cred, body)?;
        let new = NewDirectory::of(new).ok_or(Errno::ENOTDIR)?;
        // Where names move on, nobody could tell where to look for that of a directory that was lost.
        let new = NewDirectory { at_once: !self.splitting.has(parent) && !place.directory.is_split(), ..new };
        self.start(exactly, Operation::Mkdir { parent, name: name.clone(), new, home })
    }

    /// Goes on where the inode is in this shard and whole, or there is none.
    pub(crate) fn cross_remove(&mut self, exactly: Exactly, parent: InodeId, name: &Name, rmdir: bool) -> Result<()> {
        self.may_change_inside(parent, name)?;
        let Some(edge) = self.namespace.place(parent, name)?.edge else { return Ok(()) };
        if !self.is_elsewhere(edge.child) && !self.is_split(edge)? {
            return self.transactions.locks.may_change(edge.child);
        }
        let owner = self.owner_wanted(exactly.given.remover, parent, name)?;
        let name = name.clone();
        let operation =
            if rmdir { Operation::Rmdir { parent, name, owner } } else { Operation::Unlink { parent, name, owner } };
        self.start(exactly, operation)
    }

    /// Goes on where the inode is in this shard.
    pub(crate) fn cross_link(&mut self, exactly: Exactly, inode: InodeId, parent: InodeId, name: &Name) -> Result<()> {
        self.may_change_name(parent, name)?;
        if !self.is_elsewhere(inode) {
            self.transactions.locks.may_change(inode)?;
            return self.may_last(inode);
        }
        self.namespace.vacancy(parent, name)?;
        self.start(exactly, Operation::Link { inode, parent, name: name.clone() })
    }

    /// What the name leads to is a directory of this shard that is split.
    fn is_split(&mut self, edge: Edge) -> Result<bool> {
        let is_dir = edge.kind == FileType::Directory && !self.is_elsewhere(edge.child);
        Ok(is_dir && self.namespace.find(edge.child)?.is_some_and(|inode| inode.is_split()))
    }

    /// Goes on where all is in this shard, and no way up from a directory leads through others.
    pub(crate) fn cross_rename(&mut self, exactly: Exactly, rename: &Rename<'_>) -> Result<()> {
        rename.check_flags()?;
        let crosses = rename.source_parent != rename.target_parent;
        let may_change = if crosses { Self::may_change_name } else { Self::may_change_inside };
        may_change(self, rename.source_parent, rename.source_name)?;
        let moved = self.namespace.place(rename.source_parent, rename.source_name)?.edge;
        let is_dir = |edge: Option<Edge>| edge.is_some_and(|edge| edge.kind == FileType::Directory);
        let (mut other, mut local) = (None, !self.is_elsewhere(rename.target_parent));
        if local {
            may_change(self, rename.target_parent, rename.target_name)?;
            other = self.namespace.place(rename.target_parent, rename.target_name)?.edge;
            let at_home = |edge: Option<Edge>| edge.is_none_or(|edge| edge.child.home() == self.config.shard);
            local = at_home(moved) && at_home(other) && !(crosses && (is_dir(moved) || is_dir(other)));
            local = local && !other.map_or(Ok(false), |other| self.is_split(other))?;
        }
        if local || !self.namespace.homes.are_several() {
            for edge in [moved, other].into_iter().flatten() {
                self.transactions.locks.may_change(edge.child)?;
            }
            return Ok(());
        }
        if moved.is_none() {
            return Err(Errno::ENOENT.into());
        }
        let needs_token = crosses && (is_dir(moved) || rename.exchanges());
        if needs_token && self.config.shard == InodeId::ROOT.home() {
            self.transactions.locks.may_take_token()?;
        }
        let remover = exactly.given.remover;
        let mut owners = [self.owner_wanted(remover, rename.source_parent, rename.source_name)?, None];
        // Of a target elsewhere its shard says what it can: whether the directory is sticky is not known here.
        let mut remover = remover.filter(|_| rename.replaces());
        if !self.is_elsewhere(rename.target_parent) {
            owners[1] = self.owner_wanted(remover.take(), rename.target_parent, rename.target_name)?;
        }
        let renaming = Renaming {
            source: (rename.source_parent, rename.source_name.clone()),
            target: (rename.target_parent, rename.target_name.clone()),
            exchanges: rename.exchanges(),
            replaces: rename.replaces(),
            whiteout: rename.whiteout(),
            owners,
            remover,
            needs_token,
        };
        self.start(exactly, Operation::Rename(renaming))
    }
}
