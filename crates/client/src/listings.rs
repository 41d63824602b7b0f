//! Which directories a keeper of answers (the kernel, for a mount) has listed lately, so that it may go on with what it keeps
//! of their entries. It forgets that when it is told of a recall. What it cannot know is whether a listing was asked for before
//! a change and arrived after it: so only what was listed under a lease that is still held may be kept.
//!
//! Own changes end that as well. The kernel looks for them only where it begins to read what it keeps: a listing that had to
//! ask, since what is kept was not complete yet, goes on with it once another listing has completed it, and would find names
//! there that were removed before it began. What is listed after a change has to go into new pages.
//!
//! When the lease is over, a new listing renews those on the entries with it, in far fewer requests than the entries would
//! need by themselves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;
use types::id::InodeId;
use types::time::AccessTimes;

use crate::lease::{Board, Lease, mix};
use crate::router::Client;

/// Above this, all are forgotten: a megabyte.
const DIRECTORIES_MAX: usize = 1 << 14;

/// Own changes are counted by the hash of their directory, in so many places.
const PLACES: usize = 1024;

pub(crate) struct Listings {
    /// Leases on the attributes of directories, as given when listing them began.
    listed: Mutex<FxHashMap<InodeId, Lease>>,
    /// Own changes that have ended.
    changes: Box<[AtomicU64]>,
}

impl Default for Listings {
    fn default() -> Self {
        Self { listed: Mutex::default(), changes: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Listings {
    fn listed(&self) -> MutexGuard<'_, FxHashMap<InodeId, Lease>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listing of `directory` has begun; `lease`: on its attributes, where one was given with it.
    pub(crate) fn begins(&self, directory: InodeId, lease: Option<Lease>) {
        let mut listed = self.listed();
        match lease {
            Some(lease) => note(&mut listed, directory, lease),
            None => drop(listed.remove(&directory)),
        }
    }

    /// This client has changed what is in `directory`.
    pub(crate) fn changed(&self, directory: InodeId) {
        let mut listed = self.listed();
        listed.remove(&directory);
        self.place(directory).fetch_add(1, Ordering::SeqCst);
    }

    fn place(&self, directory: InodeId) -> &AtomicU64 {
        &self.changes[mix(directory.0) as usize % PLACES]
    }

    /// A number that rises with each own change of `directory`.
    pub(crate) fn changes(&self, directory: InodeId) -> u64 {
        self.place(directory).load(Ordering::SeqCst)
    }

    /// A listing begins with what was asked for before, when the number was `changes`. False where it must not, since the
    /// directory was changed meanwhile, or may have been.
    pub(crate) fn goes_on(&self, board: &Board, directory: InodeId, lease: Lease, changes: u64, now: Instant) -> bool {
        let mut listed = self.listed();
        let is_good = self.changes(directory) == changes && board.holds(lease, now);
        if is_good {
            note(&mut listed, directory, lease);
        }
        is_good
    }

    /// The last listing of `directory` began under a lease that is still held.
    fn is_good(&self, board: &Board, directory: InodeId, now: Instant) -> bool {
        self.listed().get(&directory).is_some_and(|lease| board.holds(*lease, now))
    }
}

fn note(listed: &mut FxHashMap<InodeId, Lease>, directory: InodeId, lease: Lease) {
    if listed.len() >= DIRECTORIES_MAX {
        listed.clear();
    }
    listed.insert(directory, lease);
}

/// What may be kept of the entries of a directory that is being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayKeep {
    Nothing,
    /// What is listed from now on.
    New,
    /// And what was listed before.
    All,
}

impl Client {
    /// For the keeper of answers, who hears of recalls.
    #[must_use]
    pub fn may_keep_listing(&self, directory: InodeId) -> MayKeep {
        let (shared, now) = (&self.shared, Instant::now());
        // Each listing is to be told of.
        if shared.config.directory_rule() == AccessTimes::Strictatime {
            return MayKeep::Nothing;
        }
        // No lease on the directory covers the names in its parts.
        if shared.splits.get(directory).is_some() {
            return MayKeep::Nothing;
        }
        if shared.listings.is_good(&shared.board, directory, now) {
            return MayKeep::All;
        }
        match shared.kept.attr(&shared.board, directory, now) {
            Some(_) => MayKeep::New,
            None => MayKeep::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::lease::Subject;

    use super::*;

    const DIRECTORY: InodeId = InodeId(77);

    fn lease(board: &Board) -> Lease {
        Board::lease(board.ticket(), Subject::inode(DIRECTORY), 10_000)
    }

    #[test]
    fn what_was_listed_is_good_for_as_long_as_the_lease_of_then() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        assert!(!listings.is_good(&board, DIRECTORY, now));
        listings.begins(DIRECTORY, Some(lease(&board)));
        assert!(listings.is_good(&board, DIRECTORY, now));
        assert!(!listings.is_good(&board, InodeId(78), now));
        assert!(!listings.is_good(&board, DIRECTORY, now + Duration::from_secs(11)), "it is over");
        board.note(Subject::inode(DIRECTORY));
        assert!(!listings.is_good(&board, DIRECTORY, now), "it was recalled");
        let renewed = lease(&board);
        assert!(!listings.is_good(&board, DIRECTORY, now), "a new lease says nothing of an old listing");
        listings.begins(DIRECTORY, Some(renewed));
        assert!(listings.is_good(&board, DIRECTORY, now));
        listings.changed(DIRECTORY);
        assert!(!listings.is_good(&board, DIRECTORY, now), "it was changed since");
        listings.begins(DIRECTORY, Some(renewed));
        listings.begins(DIRECTORY, None);
        assert!(!listings.is_good(&board, DIRECTORY, now), "listed again without one");
    }

    #[test]
    fn what_was_asked_for_before_an_own_change_or_a_recall_is_no_listing() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let (before, held) = (listings.changes(DIRECTORY), lease(&board));
        assert!(listings.goes_on(&board, DIRECTORY, held, before, now) && listings.is_good(&board, DIRECTORY, now));
        listings.changed(DIRECTORY);
        assert!(!listings.goes_on(&board, DIRECTORY, held, before, now) && !listings.is_good(&board, DIRECTORY, now));
        let after = listings.changes(DIRECTORY);
        assert!(listings.goes_on(&board, DIRECTORY, held, after, now));
        board.note(Subject::inode(DIRECTORY));
        assert!(!listings.goes_on(&board, DIRECTORY, held, after, now));
        assert!(!listings.goes_on(&board, DIRECTORY, Lease::NONE, after, now));
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (listings, board) = (Listings::default(), Board::new());
        for number in 0..=DIRECTORIES_MAX as u64 {
            listings.begins(InodeId(number), Some(lease(&board)));
        }
        assert!(listings.listed().len() <= DIRECTORIES_MAX);
        assert!(listings.listed().contains_key(&InodeId(DIRECTORIES_MAX as u64)));
        for number in 0..=DIRECTORIES_MAX as u64 {
            let directory = InodeId(number);
            let lease = Board::lease(board.ticket(), Subject::inode(directory), 10_000);
            assert!(listings.goes_on(&board, directory, lease, listings.changes(directory), Instant::now()));
        }
        assert!(listings.listed().len() <= DIRECTORIES_MAX);
    }
}
