//! The ends of files. Their holders are clients, not programs: each keeps the end of a file until somebody else waits for it,
//! and is told of that. So this is the one lock that is asked back, and taken away from who does not give it back: what
//! a client then still writes at the end is refused by the storage, since the objects have other versions by then.

use std::collections::{BTreeMap, BTreeSet};

use types::id::{InodeId, SessionId};
use types::lock::{LockKind, LockRange};

use crate::locks::{FileKey, LockOwner, Locks};

/// So long the holder of an end may take to give it back, and after a restart the holders of all ends to say so. In
/// milliseconds.
pub const END_PATIENCE_MS: u64 = 5000;

#[derive(Default)]
pub(super) struct Ends {
    /// Who was not yet told that somebody waits for what it holds.
    untold: BTreeSet<(SessionId, InodeId)>,
    /// Since when somebody waits for the present holder, in milliseconds.
    wanted_since: BTreeMap<InodeId, u64>,
    /// Until then, after a restart, holders may come back.
    grace_until_ms: Option<u64>,
}

impl Ends {
    /// The first time counts.
    pub(super) fn live_from(&mut self, now_ms: u64) {
        self.grace_until_ms.get_or_insert(now_ms.saturating_add(END_PATIENCE_MS));
    }

    /// What was wanted of the last holder is nothing to the next.
    pub(super) fn changes_hands(&mut self, (inode, kind): FileKey) {
        if kind == LockKind::End {
            self.wanted_since.remove(&inode);
        }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.untold.retain(|(of, _)| *of != session);
    }
}

impl Locks {
    /// Whether new locks of this kind wait for their old holders to come back. Who appends does not wait for the dead as
    /// long as programs do that rely on their locks.
    pub(super) fn is_grace_for(&self, kind: LockKind) -> bool {
        let over = kind == LockKind::End && self.ends.grace_until_ms.is_some_and(|until_ms| self.now_ms >= until_ms);
        self.grace && !over
    }

    /// If this is an end that is held and waited for, its holder has to hear of it, once.
    pub(super) fn want_end(&mut self, key: FileKey) {
        let (inode, LockKind::End) = key else { return };
        let wanted = self.files.get(&key).filter(|file| !file.queue.is_empty() && !file.is_free());
        let Some(file) = wanted else {
            self.ends.wanted_since.remove(&inode);
            return;
        };
        if let std::collections::btree_map::Entry::Vacant(since) = self.ends.wanted_since.entry(inode) {
            since.insert(self.now_ms);
            self.ends.untold.extend(file.all().map(|holder| (holder.owner.session, inode)));
        }
    }

    /// Ends that were not given back in time go to who waits for them.
    pub(super) fn take_overdue_ends(&mut self) {
        if self.grace && !self.is_grace_for(LockKind::End) {
            let deferred = std::mem::take(&mut self.deferred);
            let (ends, rest) = deferred.into_iter().partition(|(_, deferred)| deferred.kind() == LockKind::End);
            self.deferred = rest;
            self.go_on(ends);
        }
        let is_overdue = |since_ms: &u64| self.now_ms >= since_ms.saturating_add(END_PATIENCE_MS);
        let overdue = self.ends.wanted_since.iter().filter(|(_, since_ms)| is_overdue(since_ms));
        let overdue: Vec<InodeId> = overdue.map(|(inode, _)| *inode).collect();
        for inode in overdue {
            let key = (inode, LockKind::End);
            let holders = self.files.get(&key).into_iter().flat_map(|file| file.all());
            let holders: Vec<LockOwner> = holders.map(|holder| holder.owner).collect();
            for owner in holders {
                self.clear(key, owner, LockRange::ALL);
            }
            self.promote(key);
        }
    }

    /// Whether the end of the file is the session's: it was not taken away.
    pub fn holds_end(&self, session: SessionId, inode: InodeId) -> bool {
        self.files.get(&(inode, LockKind::End)).is_some_and(|file| file.owners(session).next().is_some())
    }

    /// Of one file, what the session holds of its end.
    pub fn release_end(&mut self, session: SessionId, inode: InodeId) {
        let file = self.files.get(&(inode, LockKind::End));
        let owners: Vec<LockOwner> = file.into_iter().flat_map(|file| file.owners(session)).collect();
        for owner in owners {
            self.unlock(inode, owner, LockRange::ALL);
        }
    }

    /// Sessions that have to be told which ends others wait for.
    pub fn sessions_to_tell(&self) -> BTreeSet<SessionId> {
        self.ends.untold.iter().map(|(session, _)| *session).collect()
    }

    /// The ends that the session has to give back and was not told of; they are taken as told.
    pub fn tell_wanted(&mut self, session: SessionId) -> Vec<InodeId> {
        let of_it = (session, InodeId(0))..=(session, InodeId(u64::MAX));
        let wanted: Vec<InodeId> = self.ends.untold.range(of_it).map(|(_, inode)| *inode).collect();
        for &inode in &wanted {
            self.ends.untold.remove(&(session, inode));
        }
        wanted
    }

    /// What the session was told may not have reached it.
    pub fn tell_again(&mut self, session: SessionId) {
        let Some(of) = self.sessions.get(&session) else { return };
        let wanted = of
            .files
            .iter()
            .filter(|(inode, kind)| *kind == LockKind::End && self.ends.wanted_since.contains_key(inode));
        let wanted: Vec<_> = wanted.map(|(inode, _)| (session, *inode)).collect();
        self.ends.untold.extend(wanted);
    }
}
