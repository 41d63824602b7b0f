//! Which directories a keeper of answers (the kernel, for a mount) has listed lately, so that it may go on with what it keeps
//! of their entries. It forgets that when it is told of a recall. What it cannot know is whether a listing was asked for before
//! a change and arrived after it: so only what was listed under a lease that is still held may be kept.
//!
//! Own changes end that as well. The kernel looks for them only where it begins to read what it keeps: a listing that had to
//! ask, since what is kept was not complete yet, goes on with it once another listing has completed it, and would find names
//! there that were removed before it began. What is listed after a change has to go into new pages, which the kernel makes
//! when the directory is opened: a program that begins anew in one that it has open does not make the old ones good.
//!
//! Where a lease has ended by itself, nobody told the keeper of the changes since. The kernel looks whether the directory has
//! the time that it had, when a program begins anew in one that it has open (`rewinddir`): but whoever unpacks an archive there
//! sets it back. So it is told to forget a listing when it is given attributes with another time of change. The kernel
//! believes no answer that was on its way when it was told to forget, and judges by what it knew: it is told of other rights
//! first, and to forget the listing with the next answer.
//!
//! When the lease is over, a new listing renews those on the entries with it, in far fewer requests than the entries would
//! need by themselves.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use types::attr::{Attr, FileType};
use types::id::InodeId;
use types::time::{AccessTimes, Timestamp};
use wire::v1::meta::DirectoryReply;

use crate::few::Few;
use crate::lately::Lately;
use crate::lease::{Board, Lease, Subject, Ticket, mix};
use crate::mutex::lock;
use crate::router::Client;

/// Above this, those that were not used lately are forgotten: a megabyte.
const DIRECTORIES_MAX: usize = 1 << 14;

/// Own changes are counted by the hash of their directory, in so many places.
const PLACES: usize = 1024;

pub(crate) struct Listings {
    listed: Mutex<Lately<InodeId, Noted>>,
    /// Directories of which the keeper may have entries, good or not: to forget these may take long. These are at most the
    /// directories that it knows, which cost it far more memory.
    kept: Few<InodeId, Origin>,
    /// Own changes that have ended.
    changes: Box<[AtomicU64]>,
}

/// From when the entries are that the keeper may have of a directory.
#[derive(Clone, Copy, Default)]
enum Origin {
    /// From a listing that is noted, or there are none.
    #[default]
    Known,
    /// From one that is noted no more: the directory had this time of change then, where that is known.
    Old(Option<Timestamp>),
    /// The same, and the directory has been changed since. The keeper was told of these rights already, and forgets the listing
    /// with the next answer.
    OldRightsTold(Rights),
}

impl Origin {
    /// The keeper is about to hear of the time of change `ctime`, and has to forget before what it has of the directory.
    fn ends(self, ctime: Timestamp) -> bool {
        match self {
            Self::Known => false,
            Self::Old(then) => then != Some(ctime),
            Self::OldRightsTold(_) => true,
        }
    }

    /// What [`Self::ends`] is left to the next answer, since the keeper is to be told of these `rights` first. Nobody knows
    /// which ones it has heard of before.
    fn tells_first(&mut self, ctime: Timestamp, rights: Rights) -> bool {
        let is_told = matches!(self, Self::OldRightsTold(told) if *told == rights);
        let is_first = self.ends(ctime) && !is_told;
        if is_first {
            *self = Self::OldRightsTold(rights);
        }
        is_first
    }
}

#[derive(Clone, Copy)]
struct Noted {
    /// The last one.
    begun: Listed,
    /// The keeper may have entries from before an own change.
    stale: bool,
}

impl Noted {
    /// Nobody told the keeper of the change at `ctime`.
    fn is_old(&self, board: &Board, ctime: Timestamp, now: Instant) -> bool {
        !self.stale && self.begun.ctime != Some(ctime) && !board.holds(self.begun.lease, now)
    }
}

/// When listing a directory began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// On its attributes, where one was given.
    pub(crate) lease: Lease,
    /// Its time of change, where that was told.
    pub(crate) ctime: Option<Timestamp>,
    /// Who may use it, where that was told.
    rights: Option<Rights>,
}

/// By which the keeper of answers judges who may use a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rights {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Rights {
    fn of(attr: &Attr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid }
    }
}

impl Listed {
    /// Nothing was told of the directory.
    pub(crate) const UNTOLD: Self = Self { lease: Lease::NONE, ctime: None, rights: None };

    pub(crate) fn told(ticket: Ticket, told: &DirectoryReply) -> Self {
        let subject = Subject::inode(told.attr.inode);
        let lease = Lease::granted(ticket, subject, told.lease_ms);
        Self { lease, ctime: Some(told.attr.ctime), rights: Some(Rights::of(&told.attr)) }
    }
}

impl Default for Listings {
    fn default() -> Self {
        Self {
            listed: Mutex::default(),
            kept: Few::default(),
            changes: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Listings {
    fn listed(&self) -> MutexGuard<'_, Lately<InodeId, Noted>> {
        lock(&self.listed)
    }

    /// A listing of `directory` has begun.
    pub(crate) fn begins(&self, directory: InodeId, begun: Listed) {
        self.note(&mut self.listed(), directory, begun);
    }

    /// The keeper is about to forget what it has of `directory`.
    pub(crate) fn forgotten(&self, directory: InodeId) {
        let mut listed = self.listed();
        listed.remove(&directory);
        self.kept.look(&directory, |origin| *origin = Origin::Known);
    }

    /// The keeper may have entries of `directory` from now on.
    fn keeps(&self, directory: InodeId) {
        self.kept.change(|kept| *kept.entry(directory).or_default());
    }

    /// The keeper may have entries of it, if it is a directory.
    pub(crate) fn may_be_kept(&self, inode: InodeId) -> bool {
        self.kept.has(&inode)
    }

    /// The keeper uses `inode` no more.
    pub(crate) fn unused(&self, inode: InodeId) {
        self.kept.remove(&inode);
    }

    /// The keeper is about to hear that `directory` has the time of change `ctime`, and has to forget before what it keeps of a
    /// listing: once.
    fn ends(&self, board: &Board, directory: InodeId, ctime: Timestamp, now: Instant) -> bool {
        let mut listed = self.listed();
        match listed.get(&directory) {
            Some(noted) => noted.is_old(board, ctime, now) && listed.remove(&directory).is_some(),
            None => {
                self.kept.look(&directory, |origin| origin.ends(ctime).then(|| mem::take(origin))).flatten().is_some()
            }
        }
    }

    /// The keeper is about to hear of other `rights` than what it may know, and has a listing that [`Self::ends`] with the next
    /// answer. Once.
    fn rights_first(
        &self,
        board: &Board,
        directory: InodeId,
        (ctime, rights): (Timestamp, Rights),
        now: Instant,
    ) -> bool {
        let mut listed = self.listed();
        match listed.get(&directory) {
            Some(noted) => noted.is_old(board, ctime, now) && noted.begun.rights.replace(rights) != Some(rights),
            None => self.kept.look(&directory, |origin| origin.tells_first(ctime, rights)) == Some(true),
        }
    }

    /// This client has changed what is in `directory`.
    pub(crate) fn changed(&self, directory: InodeId) {
        let mut listed = self.listed();
        if let Some(noted) = listed.get(&directory) {
            noted.stale = true;
        }
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
    pub(crate) fn goes_on(&self, board: &Board, directory: InodeId, begun: Listed, changes: u64, now: Instant) -> bool {
        let mut listed = self.listed();
        let is_good = self.changes(directory) == changes && board.holds(begun.lease, now);
        if is_good {
            self.note(&mut listed, directory, begun);
        }
        is_good
    }

    /// The last listing of `directory` began under a lease that is still held, and the keeper has nothing from before a change.
    fn is_good(&self, board: &Board, directory: InodeId, now: Instant) -> bool {
        self.listed().get(&directory).is_some_and(|noted| !noted.stale && board.holds(noted.begun.lease, now))
    }

    /// `directory` is being opened, and the keeper forgets what it has of it.
    fn opened_anew(&self, directory: InodeId) {
        let mut listed = self.listed();
        if listed.get(&directory).is_some_and(|noted| noted.stale) {
            listed.remove(&directory);
        }
        self.kept.look(&directory, |origin| *origin = Origin::Known);
    }

    fn note(&self, listed: &mut Lately<InodeId, Noted>, directory: InodeId, begun: Listed) {
        if let Some(noted) = listed.get(&directory) {
            noted.begun = begun;
            return;
        }
        let stale = self.kept.look(&directory, |origin| !matches!(origin, Origin::Known)) == Some(true);
        listed.insert(directory, Noted { begun, stale });
        while listed.len() > DIRECTORIES_MAX {
            let Some((other, noted)) = listed.evict(|&it, _| it == directory) else { break };
            // Of what is stale it is not the time of the last listing.
            let then = noted.begun.ctime.filter(|_| !noted.stale);
            self.kept.look(&other, |origin| *origin = Origin::Old(then));
        }
    }
}

/// What may be kept of the entries of a directory that is being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayKeep {
    Nothing,
    /// What is listed from now on.
    New,
    /// What was listed before, and what is listed from now on.
    All,
}

impl Client {
    /// For the keeper of answers, who hears of recalls.
    #[must_use]
    pub fn may_keep_listing(&self, directory: InodeId) -> MayKeep {
        let (shared, now) = (&self.shared, Instant::now());
        shared.look_for_sleep();
        // Each listing is to be told of.
        if shared.config.directory_rule() == AccessTimes::Strictatime {
            return MayKeep::Nothing;
        }
        // No lease on the directory covers the names in its parts.
        if shared.splits.get(directory).is_some() {
            return MayKeep::Nothing;
        }
        if shared.listings.is_good(&shared.board, directory, now) {
            shared.listings.keeps(directory);
            return MayKeep::All;
        }
        shared.listings.opened_anew(directory);
        match shared.kept.attr(&shared.board, directory, now) {
            Some(_) => {
                shared.listings.keeps(directory);
                MayKeep::New
            }
            None => MayKeep::Nothing,
        }
    }

    /// The keeper of answers is to be given `attr` as it is, and to ask again at the next look: it would not believe it if it
    /// were told before to forget a listing ([`Self::end_listings`]).
    #[must_use]
    pub fn tells_rights_first(&self, attr: &Attr) -> bool {
        let (shared, is_directory) = (&self.shared, attr.kind == FileType::Directory);
        let told = (attr.ctime, Rights::of(attr));
        is_directory && shared.listings.rights_first(&shared.board, attr.inode, told, Instant::now())
    }

    /// Whether the keeper of answers has to forget what it keeps of a listing before it is given `attr`.
    pub(crate) fn ends_listing(&self, attr: &Attr) -> bool {
        let (shared, is_directory) = (&self.shared, attr.kind == FileType::Directory);
        is_directory && shared.listings.ends(&shared.board, attr.inode, attr.ctime, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shared::Shared;
    use crate::test_client;

    const DIRECTORY: InodeId = InodeId(77);

    fn begun(board: &Board) -> Listed {
        let lease = Lease::granted(board.ticket(), Subject::inode(DIRECTORY), 10_000);
        Listed { lease, ctime: Some(Timestamp::default()), rights: None }
    }

    /// So many others that none from before is noted any more.
    fn list_many(listings: &Listings, board: &Board, first: u64) {
        let many = first..first + 3 * DIRECTORIES_MAX as u64;
        many.for_each(|it| listings.begins(InodeId(it), begun(board)));
    }

    #[test]
    fn what_was_listed_is_good_for_as_long_as_the_lease_of_then() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        assert!(!listings.is_good(&board, DIRECTORY, now));
        listings.begins(DIRECTORY, begun(&board));
        assert!(listings.is_good(&board, DIRECTORY, now));
        assert!(!listings.is_good(&board, InodeId(78), now));
        assert!(!listings.is_good(&board, DIRECTORY, now + Duration::from_secs(11)), "it is over");
        board.note(Subject::inode(DIRECTORY));
        assert!(!listings.is_good(&board, DIRECTORY, now), "it was recalled");
        let renewed = begun(&board);
        assert!(!listings.is_good(&board, DIRECTORY, now), "a new lease says nothing of an old listing");
        listings.begins(DIRECTORY, renewed);
        assert!(listings.is_good(&board, DIRECTORY, now));
        listings.changed(DIRECTORY);
        assert!(!listings.is_good(&board, DIRECTORY, now), "it was changed since");
        listings.begins(DIRECTORY, renewed);
        listings.begins(DIRECTORY, Listed::UNTOLD);
        assert!(!listings.is_good(&board, DIRECTORY, now), "listed again without one");
    }

    /// The kernel goes on with pages from before the change, whatever is listed then.
    #[test]
    fn after_an_own_change_the_directory_has_to_be_opened_anew() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let held = begun(&board);
        listings.begins(DIRECTORY, held);
        listings.changed(DIRECTORY);
        listings.begins(DIRECTORY, held);
        assert!(!listings.is_good(&board, DIRECTORY, now), "by who had it open, from the beginning");
        listings.opened_anew(DIRECTORY);
        assert!(!listings.is_good(&board, DIRECTORY, now), "nothing was listed since");
        listings.begins(DIRECTORY, held);
        assert!(listings.is_good(&board, DIRECTORY, now));
        listings.opened_anew(DIRECTORY);
        assert!(listings.is_good(&board, DIRECTORY, now), "nothing is stale");
    }

    #[test]
    fn what_was_asked_for_before_an_own_change_or_a_recall_is_no_listing() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let (before, held) = (listings.changes(DIRECTORY), begun(&board));
        assert!(listings.goes_on(&board, DIRECTORY, held, before, now) && listings.is_good(&board, DIRECTORY, now));
        listings.changed(DIRECTORY);
        assert!(!listings.goes_on(&board, DIRECTORY, held, before, now) && !listings.is_good(&board, DIRECTORY, now));
        let after = listings.changes(DIRECTORY);
        assert!(listings.goes_on(&board, DIRECTORY, held, after, now));
        board.note(Subject::inode(DIRECTORY));
        assert!(!listings.goes_on(&board, DIRECTORY, held, after, now));
        assert!(!listings.goes_on(&board, DIRECTORY, Listed::UNTOLD, after, now));
    }

    #[test]
    fn what_was_changed_after_the_lease_is_forgotten_once() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let (later, at) = (now + Duration::from_secs(11), Timestamp::default());
        let changed = Timestamp(at.0 + 1);
        listings.begins(DIRECTORY, begun(&board));
        assert!(!listings.ends(&board, DIRECTORY, changed, now), "whoever changes it takes the lease back");
        assert!(!listings.ends(&board, DIRECTORY, at, later), "it is what it was");
        assert!(listings.ends(&board, DIRECTORY, changed, later) && !listings.ends(&board, DIRECTORY, changed, later));
        listings.begins(DIRECTORY, Listed::UNTOLD);
        assert!(listings.ends(&board, DIRECTORY, at, now), "nobody knows");
        listings.begins(DIRECTORY, begun(&board));
        listings.forgotten(DIRECTORY);
        assert!(!listings.ends(&board, DIRECTORY, changed, later));
    }

    #[test]
    fn other_rights_are_told_before_a_listing_ends() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let later = now + Duration::from_secs(11);
        let (known, shut, at) =
            (Rights { mode: 0o755, uid: 0, gid: 0 }, Rights { mode: 0o700, uid: 0, gid: 0 }, Timestamp(1));
        let first = |rights, when| listings.rights_first(&board, DIRECTORY, (at, rights), when);
        listings.begins(DIRECTORY, Listed { rights: Some(known), ..begun(&board) });
        assert!(!first(shut, now), "whoever changes it takes the lease back");
        assert!(!first(known, later), "they are the same");
        assert!(first(shut, later) && !first(shut, later));
        assert!(listings.ends(&board, DIRECTORY, at, later), "with the next answer");
    }

    /// The shard told of its attributes beside a name, and not by themselves.
    #[test]
    fn what_may_be_kept_is_known_to_be() {
        test_client::run(async |client| {
            let Shared { listings, board, .. } = &*client.shared;
            assert_eq!(client.may_keep_listing(DIRECTORY), MayKeep::Nothing);
            assert!(!listings.may_be_kept(DIRECTORY));
            listings.begins(DIRECTORY, begun(board));
            assert_eq!(client.may_keep_listing(DIRECTORY), MayKeep::All);
            assert!(listings.may_be_kept(DIRECTORY));
            client.unused(DIRECTORY);
            assert!(!listings.may_be_kept(DIRECTORY));
        });
    }

    #[test]
    fn only_directories_that_may_be_kept_are_known_to_be() {
        let listings = Listings::default();
        assert!(!listings.may_be_kept(DIRECTORY));
        listings.keeps(DIRECTORY);
        assert!(listings.may_be_kept(DIRECTORY) && !listings.may_be_kept(InodeId(78)));
        listings.unused(DIRECTORY);
        assert!(!listings.may_be_kept(DIRECTORY));
        let many = || (0..2 * DIRECTORIES_MAX as u64).map(InodeId);
        many().for_each(|directory| listings.keeps(directory));
        assert!(many().all(|directory| listings.may_be_kept(directory)) && !listings.may_be_kept(InodeId(u64::MAX)));
        many().for_each(|directory| listings.unused(directory));
        assert!(!listings.may_be_kept(DIRECTORY) && listings.kept.count() == 0);
    }

    #[test]
    fn of_what_is_not_noted_any_more_the_keeper_forgets_what_it_has() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let others = |first| list_many(&listings, &board, first);
        listings.keeps(DIRECTORY);
        listings.begins(DIRECTORY, begun(&board));
        others(1000);
        assert!(!listings.is_good(&board, DIRECTORY, now));
        // Nobody notes that it was changed.
        listings.changed(DIRECTORY);
        listings.begins(DIRECTORY, begun(&board));
        assert!(!listings.is_good(&board, DIRECTORY, now), "by who had it open, from the beginning");
        listings.opened_anew(DIRECTORY);
        listings.begins(DIRECTORY, begun(&board));
        assert!(listings.is_good(&board, DIRECTORY, now));
        others(1_000_000);
        let ends = |at| listings.ends(&board, DIRECTORY, Timestamp(at), now);
        assert!(!ends(0), "it is what it was");
        assert!(ends(1) && !ends(1), "once");
        // What came to a listing is from before a change, nobody knows which.
        listings.begins(DIRECTORY, begun(&board));
        listings.changed(DIRECTORY);
        others(1000);
        assert!(ends(0));
    }

    #[test]
    fn other_rights_are_told_first_also_where_the_listing_is_noted_no_more() {
        let (listings, board, now) = (Listings::default(), Board::new(), Instant::now());
        let rights = |mode| Rights { mode, uid: 0, gid: 0 };
        let first = |at, mode| listings.rights_first(&board, DIRECTORY, (Timestamp(at), rights(mode)), now);
        let ends = |at| listings.ends(&board, DIRECTORY, Timestamp(at), now);
        listings.keeps(DIRECTORY);
        listings.begins(DIRECTORY, Listed { rights: Some(rights(0o755)), ..begun(&board) });
        list_many(&listings, &board, 1000);
        assert!(!first(0, 0o755) && !ends(0), "nobody has changed it");
        assert!(first(1, 0o700) && !first(1, 0o700));
        assert!(first(2, 0o711) && !first(2, 0o711), "they are others again");
        assert!(ends(2), "with the next answer");
        assert!(!first(3, 0o755) && !ends(3), "there is nothing left to forget");
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (listings, board) = (Listings::default(), Board::new());
        for number in 0..=DIRECTORIES_MAX as u64 {
            listings.begins(InodeId(number), begun(&board));
        }
        assert!(listings.listed().len() <= DIRECTORIES_MAX);
        assert!(listings.listed().get(&InodeId(DIRECTORIES_MAX as u64)).is_some());
        assert!(listings.listed().len() == DIRECTORIES_MAX, "no more are forgotten than have to be");
        for number in 0..=DIRECTORIES_MAX as u64 {
            let directory = InodeId(number);
            let lease = Lease::granted(board.ticket(), Subject::inode(directory), 10_000);
            let begun = Listed { lease, ..Listed::UNTOLD };
            assert!(listings.goes_on(&board, directory, begun, listings.changes(directory), Instant::now()));
        }
        assert!(listings.listed().len() <= DIRECTORIES_MAX);
    }
}
