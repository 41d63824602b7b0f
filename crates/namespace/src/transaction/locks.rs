//! What transactions have locked in one shard. In memory; after a restart, that of prepared transactions is built anew.
//!
//! A lock *in doubt* is one of a transaction that another shard decides: it may have been decided already, so nobody may
//! read what was before. What this shard decides itself is not in doubt: until it is decided, what was before is true.

use std::collections::{BTreeMap, BTreeSet};

use types::id::{InodeId, TransactionId};

use crate::error::{Error, Result};
use crate::transaction::part::Part;
use types::name_hash::name_hash;

#[derive(Clone, Copy)]
struct Lock {
    owner: TransactionId,
    in_doubt: bool,
    /// The inode appears or goes: nothing may be made in it.
    dying: bool,
    /// What is made in it waits.
    closed: bool,
}

/// A range of names' hashes in a directory: the names there move to a part of it, or come to it.
struct Range {
    lock: Lock,
    from: u64,
    to: u64,
}

impl Range {
    fn has(&self, name: &[u8]) -> bool {
        (self.from..self.to).contains(&name_hash(name))
    }
}

/// A directory some of whose names are locked.
#[derive(Default)]
struct Pin {
    owners: Vec<(TransactionId, bool)>,
    /// A reader waits until it is free: nobody may join whose lock is in doubt.
    wanted: bool,
    /// Somebody waits who is to change the directory's own name, or its parts: nobody may join.
    closing: bool,
}

impl Pin {
    /// Who has to end before `owner` can lock a name more.
    fn keeps_out(&self, owner: TransactionId, in_doubt: bool) -> Option<TransactionId> {
        let is_in = self.owners.iter().any(|(of, _)| *of == owner);
        let is_shut = (self.wanted && in_doubt) || (self.closing && !is_in);
        self.owners.first().filter(|_| is_shut).map(|(first, _)| *first)
    }
}

/// All locks of one shard.
#[derive(Default)]
pub(crate) struct Locks {
    names: BTreeMap<(InodeId, u64), Lock>,
    inodes: BTreeMap<InodeId, Lock>,
    pins: BTreeMap<InodeId, Pin>,
    /// One of a directory at a time.
    ranges: BTreeMap<InodeId, Range>,
    /// Directories that were made at once, and that their coordinators may yet forget by a power cut, with all that is in them.
    /// So nothing is in them but what was made there and is no directory, and nothing of that is durable.
    unconfirmed: BTreeMap<InodeId, TransactionId>,
    /// Those of them that were forgotten: nothing more is made in them, and nothing leased, until they are gone.
    doomed: BTreeSet<InodeId>,
    token: Option<TransactionId>,
}

impl Locks {
    pub(crate) fn is_empty(&self) -> bool {
        let none_of_inodes = self.inodes.is_empty() && self.ranges.is_empty() && self.unconfirmed.is_empty();
        none_of_inodes && self.names.is_empty() && self.token.is_none()
    }

    /// What is known of the inode can be made durable: it is none, and lies in none, that may yet be forgotten.
    pub(crate) fn may_last(&self, inode: InodeId) -> Result<()> {
        self.unconfirmed.get(&inode).map_or(Ok(()), |owner| Err(Error::Blocked(*owner)))
    }

    pub(crate) fn are_unconfirmed(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// The directory is being removed, with what is in it.
    pub(crate) fn doom(&mut self, directory: InodeId) {
        if self.unconfirmed.contains_key(&directory) {
            self.doomed.insert(directory);
        }
    }

    pub(crate) fn are_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    pub(crate) fn is_doomed(&self, directory: InodeId) -> bool {
        self.doomed.contains(&directory)
    }

    /// The inode is about to change, or names in it.
    pub(crate) fn covers_inode(&self, inode: InodeId) -> bool {
        let is_locked = self.inodes.contains_key(&inode) || self.pins.contains_key(&inode);
        is_locked || self.ranges.contains_key(&inode) || self.is_doomed(inode)
    }

    /// What the name leads to is about to change.
    pub(crate) fn covers_name(&self, parent: InodeId, name: &[u8]) -> bool {
        let is_locked = !self.names.is_empty() && self.names.contains_key(&(parent, name_hash(name)));
        is_locked || self.range_of(parent, name).is_some()
    }

    fn range_of(&self, parent: InodeId, name: &[u8]) -> Option<&Lock> {
        self.ranges.get(&parent).filter(|range| range.has(name)).map(|range| &range.lock)
    }

    /// No name of the directory may be believed.
    pub(crate) fn covers_names(&self, directory: InodeId) -> bool {
        self.is_doomed(directory) || self.inodes.get(&directory).is_some_and(|lock| lock.dying)
    }

    /// An inode's attributes, or a directory's whole list, can be told.
    pub(crate) fn may_read(&mut self, inode: InodeId) -> Result<()> {
        if let Some(lock) = self.inodes.get(&inode).filter(|lock| lock.in_doubt) {
            return Err(Error::Blocked(lock.owner));
        }
        free(self.ranges.get(&inode).map(|range| &range.lock).filter(|lock| lock.in_doubt))?;
        if let Some(pin) = self.pins.get_mut(&inode)
            && let Some((owner, _)) = pin.owners.iter().find(|(_, in_doubt)| *in_doubt)
        {
            pin.wanted = true;
            return Err(Error::Blocked(*owner));
        }
        Ok(())
    }

    pub(crate) fn may_read_name(&self, parent: InodeId, name_of: &[u8]) -> Result<()> {
        let dying = self.inodes.get(&parent).filter(|lock| lock.in_doubt && lock.dying);
        let name = self.names.get(&(parent, name_hash(name_of))).filter(|lock| lock.in_doubt);
        free(dying.or(name).or_else(|| self.range_of(parent, name_of).filter(|lock| lock.in_doubt)))
    }

    /// A name can be made, changed or taken away.
    pub(crate) fn may_change_name(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        self.may_last(parent)?;
        self.may_change_inside(parent, name)
    }

    /// A name can be made, changed or taken away that stays within its directory, and leads to no directory.
    pub(crate) fn may_change_inside(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        if self.is_doomed(parent) {
            self.may_last(parent)?;
        }
        let closed = self.inodes.get(&parent).filter(|lock| lock.dying || lock.closed);
        let name_lock = || self.names.get(&(parent, name_hash(name))).or_else(|| self.range_of(parent, name));
        free(closed.or_else(name_lock))
    }

    /// An inode can get or lose a name. Where names in it are locked, no more of them are until these are free, or a directory
    /// in which others make directories all the time could never be renamed.
    pub(crate) fn may_change(&mut self, inode: InodeId) -> Result<()> {
        self.may_last(inode)?;
        free(self.inodes.get(&inode).or_else(|| self.ranges.get(&inode).map(|range| &range.lock)))?;
        let Some(pin) = self.pins.get_mut(&inode) else { return Ok(()) };
        pin.closing = true;
        pin.owners.first().map_or(Ok(()), |(owner, _)| Err(Error::Blocked(*owner)))
    }

    /// `owner` can lock some name in the directory, as far as that depends on those who wait for the directory itself.
    pub(crate) fn may_join(&self, directory: InodeId, owner: TransactionId, in_doubt: bool) -> Result<()> {
        let first = self.pins.get(&directory).and_then(|pin| pin.keeps_out(owner, in_doubt));
        first.map_or(Ok(()), |first| Err(Error::Blocked(first)))
    }

    /// A directory's attributes can change: no transaction is about to make or remove it, or to give it parts.
    pub(crate) fn may_reform(&self, directory: InodeId) -> Result<()> {
        free(self.inodes.get(&directory).filter(|lock| lock.dying))
    }

    /// A directory's parent can be told: also to a transaction that has locked names in it.
    pub(crate) fn may_climb(&self, directory: InodeId) -> Result<()> {
        free(self.inodes.get(&directory).filter(|lock| lock.in_doubt))
    }

    pub(crate) fn may_take_token(&self) -> Result<()> {
        self.token.map_or(Ok(()), |owner| Err(Error::Blocked(owner)))
    }

    /// `owner` can lock what the part touches.
    pub(crate) fn may_lock(&self, owner: TransactionId, in_doubt: bool, part: &Part) -> Result<()> {
        let foreign = |lock: &&Lock| lock.owner != owner;
        let no_range = |directory: &InodeId| free(self.ranges.get(directory).map(|range| &range.lock).filter(foreign));
        part.concerns().map_or(Ok(()), |inode| self.may_last(inode))?;
        match part {
            Part::Entry { parent, name, .. } => {
                // A change of the directory, decided elsewhere, may say what comes to be in it.
                let closed = self.inodes.get(parent).filter(|lock| lock.dying || (lock.closed && lock.in_doubt));
                free(closed.filter(foreign).or(self.names.get(&(*parent, name_hash(name))).filter(foreign)))?;
                free(self.range_of(*parent, name).filter(foreign))?;
                self.may_join(*parent, owner, in_doubt)
            }
            Part::Link { inode, .. } | Part::Unlink(inode) | Part::Move { inode, .. } => {
                free(self.inodes.get(inode).filter(foreign))
            }
            Part::Hold(inode) => {
                no_range(inode)?;
                free(self.inodes.get(inode).filter(foreign))
            }
            Part::Conform(conformed) => {
                no_range(&conformed.part)?;
                free(self.inodes.get(&conformed.part).filter(foreign))?;
                // What has happened already elsewhere must not come after it here.
                let pins = self.pins.get(&conformed.part).into_iter().flat_map(|pin| &pin.owners);
                let doubted = pins.into_iter().find(|(pin, in_doubt)| *in_doubt && *pin != owner);
                doubted.map_or(Ok(()), |(other, _)| Err(Error::Blocked(*other)))
            }
            Part::Give { directory: inode, moved } | Part::Take { part: inode, moved } => {
                no_range(inode)?;
                free(self.inodes.get(inode).filter(foreign))?;
                let mut names = self.names.range((*inode, moved.from)..(*inode, moved.to)).map(|(_, lock)| lock);
                free(names.find(foreign))
            }
            Part::Rmdir(inode) | Part::Divide { inode, .. } => {
                no_range(inode)?;
                free(self.inodes.get(inode).filter(foreign))?;
                let pinned = self.pins.get(inode).and_then(|pin| pin.owners.iter().find(|(pin, _)| *pin != owner));
                pinned.map_or(Ok(()), |(other, _)| Err(Error::Blocked(*other)))
            }
            // One that is made again has its id.
            Part::Make(new) => free(self.inodes.get(&new.id).filter(foreign)),
            Part::By { part, .. } => self.may_lock(owner, in_doubt, part),
            Part::Token => {
                self.token.filter(|token| *token != owner).map_or(Ok(()), |other| Err(Error::Blocked(other)))
            }
        }
    }

    /// After `may_lock`.
    pub(crate) fn lock(&mut self, owner: TransactionId, in_doubt: bool, part: &Part) {
        let lock = Lock { owner, in_doubt, dying: false, closed: false };
        match part {
            Part::Entry { parent, name, .. } => {
                self.names.insert((*parent, name_hash(name)), lock);
                self.pins.entry(*parent).or_default().owners.push((owner, in_doubt));
            }
            Part::Link { inode, .. } | Part::Unlink(inode) | Part::Move { inode, .. } => {
                self.inodes.entry(*inode).or_insert(lock);
            }
            Part::Hold(inode) => drop(self.inodes.insert(*inode, lock)),
            Part::Conform(conformed) => drop(self.inodes.insert(conformed.part, Lock { closed: true, ..lock })),
            Part::Rmdir(inode) | Part::Divide { inode, .. } => {
                self.inodes.insert(*inode, Lock { dying: true, ..lock });
            }
            Part::Make(new) if part.is_done_at_once() => {
                self.unconfirmed.insert(new.id, owner);
            }
            Part::Make(new) => drop(self.inodes.insert(new.id, Lock { dying: true, ..lock })),
            Part::Give { directory: inode, moved } | Part::Take { part: inode, moved } => {
                self.ranges.insert(*inode, Range { lock, from: moved.from, to: moved.to });
            }
            Part::By { part, .. } => self.lock(owner, in_doubt, part),
            Part::Token => self.token = Some(owner),
        }
    }

    /// Frees all that `owner` has locked by these parts.
    pub(crate) fn unlock(&mut self, owner: TransactionId, part: &Part) {
        match part {
            Part::Entry { parent, name, .. } => {
                self.names.remove(&(*parent, name_hash(name)));
                if let Some(pin) = self.pins.get_mut(parent) {
                    if let Some(at) = pin.owners.iter().position(|(pin, _)| *pin == owner) {
                        pin.owners.swap_remove(at);
                    }
                    // Who waited reads now, before any other request is looked at: nobody is kept out for that any longer.
                    pin.wanted &= pin.owners.iter().any(|(_, in_doubt)| *in_doubt);
                    if pin.owners.is_empty() {
                        self.pins.remove(parent);
                    }
                }
            }
            Part::Link { inode, .. } | Part::Unlink(inode) | Part::Rmdir(inode) | Part::Move { inode, .. } => {
                self.inodes.remove(inode);
            }
            Part::Divide { inode, .. } | Part::Hold(inode) => drop(self.inodes.remove(inode)),
            Part::Conform(conformed) => drop(self.inodes.remove(&conformed.part)),
            Part::Make(new) if part.is_done_at_once() => {
                self.unconfirmed.remove(&new.id);
                self.doomed.remove(&new.id);
            }
            Part::Make(new) => drop(self.inodes.remove(&new.id)),
            Part::Give { directory: inode, .. } | Part::Take { part: inode, .. } => drop(self.ranges.remove(inode)),
            Part::By { part, .. } => self.unlock(owner, part),
            Part::Token => self.token = None,
        }
    }
}

fn free(lock: Option<&Lock>) -> Result<()> {
    lock.map_or(Ok(()), |lock| Err(Error::Blocked(lock.owner)))
}
