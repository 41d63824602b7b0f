//! Directories of which this client knows so much that it need not ask.
//!
//! Who holds a lease on a directory's attributes hears of each change of its entries by others before it happens, since
//! that changes its times. What the own changes make of it stands in their answers. So, while the lease lasts,
//! - its attributes are answered here (the kernel doubts them after each of its own changes);
//! - a directory that was seen empty has no entries but those that were made here since: any other name is absent.
//!
//! Answers come in on several threads, in any order. Those of one directory bear a rising `order`; the newest counts.
//! An own change whose outcome is not told is noted like a recall (see [`crate::lease`]), so that no answer to what was
//! asked before it is kept. A change that was given up may still happen: then nothing is kept for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use types::attr::Attr;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::v1::meta::Standing;

use crate::lately::Lately;
use crate::lease::{Board, Lease, Subject};
use crate::mutex::lock;
use crate::names::Known;

/// Above these, what was not used lately is dropped: some tens of MiB.
const DIRECTORIES_MAX: usize = 1 << 14;
const NAMES_MAX: usize = 1 << 18;
/// So many names there are at most then: what makes more of them does not look for room each time.
const NAMES_LEFT: usize = NAMES_MAX - NAMES_MAX / 16;
const DOUBTS_MAX: usize = 1024;
/// A request that was given up does not happen later than this: its connection or its number is gone.
pub(crate) const DOUBT: Duration = Duration::from_secs(60);

/// What a mount keeps of directories.
#[derive(Default)]
pub(crate) struct Kept {
    /// Recalls are obeyed: without that there are no leases.
    enabled: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    directories: Lately<InodeId, Directory>,
    /// All names in `directories`.
    names: usize,
    /// In how many ways a directory is about to get a name.
    making: FxHashMap<InodeId, u32>,
    /// Directories in which a change may happen that nobody waits for, until when.
    doubts: FxHashMap<InodeId, Instant>,
    /// Changes begun that may make a name.
    begun: u64,
}

struct Directory {
    attr: Attr,
    lease: Lease,
    order: u64,
    /// Where it is known: names that hold all entries.
    names: Option<FxHashMap<Name, Mark>>,
}

/// One name that is or was about to be there.
#[derive(Default)]
struct Mark {
    /// Changes under way that may make it.
    making: u32,
    /// The last of them, by `Table::begun`.
    last: u64,
}

/// A change that may make a name is under way.
pub(crate) struct Making<'a> {
    kept: &'a Kept,
    place: Option<(InodeId, Name)>,
}

/// A change that takes a name is under way.
pub(crate) struct Taking(Option<u64>);

impl Kept {
    /// From here on recalls are obeyed.
    pub(crate) fn enable(&self) {
        self.enabled.store(true, Ordering::Release);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// The attributes of `directory`, where they are known.
    pub(crate) fn attr(&self, board: &Board, directory: InodeId, now: Instant) -> Option<Known> {
        if !self.is_enabled() {
            return None;
        }
        let mut table = self.table();
        let known = table.directories.get(&directory).filter(|known| board.holds(known.lease, now))?;
        Some(Known { attr: known.attr, lease: known.lease })
    }

    /// Whether it is known that `name` is not in `directory`.
    pub(crate) fn is_absent(&self, board: &Board, directory: InodeId, name: &Name, now: Instant) -> bool {
        self.absent(board, directory, name, now).is_some()
    }

    /// Where it is known that `name` is not in `directory`: the lease on that, under which no other client makes it.
    pub(crate) fn absent(&self, board: &Board, directory: InodeId, name: &Name, now: Instant) -> Option<Lease> {
        if !self.is_enabled() {
            return None;
        }
        let mut table = self.table();
        let known = table.directories.get(&directory)?;
        let is_absent = known.names.as_ref().is_some_and(|names| !names.contains_key(name));
        (is_absent && board.holds(known.lease, now)).then_some(known.lease)
    }

    /// Before a change is sent that may make `name`. Until the end of what is given back.
    pub(crate) fn making(&self, board: &Board, directory: InodeId, name: &Name) -> Making<'_> {
        if !self.is_enabled() {
            return Making { kept: self, place: None };
        }
        let mut table = self.table();
        let table = &mut *table;
        *table.making.entry(directory).or_default() += 1;
        table.begun += 1;
        if let Some(names) = table.directories.get(&directory).and_then(|known| known.names.as_mut()) {
            let before = names.len();
            let mark = names.entry(name.clone()).or_default();
            mark.making += 1;
            mark.last = table.begun;
            table.names += names.len() - before;
        }
        table.make_room(board, directory);
        Making { kept: self, place: Some((directory, name.clone())) }
    }

    /// In how many ways `directory` is about to get a name.
    pub(crate) fn makings(&self, directory: InodeId) -> u32 {
        self.table().making.get(&directory).copied().unwrap_or_default()
    }

    /// Before a change is sent that takes `name` away.
    pub(crate) fn taking(&self, directory: InodeId, name: &Name) -> Taking {
        if !self.is_enabled() {
            return Taking(None);
        }
        let mut table = self.table();
        let names = table.directories.get(&directory).and_then(|known| known.names.as_ref());
        let mark = names.and_then(|names| names.get(name)).filter(|mark| mark.making == 0);
        Taking(mark.map(|mark| mark.last))
    }

    /// It is gone, unless something made it again meanwhile.
    pub(crate) fn took(&self, directory: InodeId, name: &Name, taking: &Taking) {
        let Some(last) = taking.0 else { return };
        let mut table = self.table();
        let names = table.directories.get(&directory).and_then(|known| known.names.as_mut());
        let Some(names) = names else { return };
        if names.get(name).is_some_and(|mark| mark.making == 0 && mark.last == last) {
            names.remove(name);
            table.names -= 1;
        }
    }

    /// An answer tells this of `directory`, with a lease on its attributes.
    pub(crate) fn learn(&self, board: &Board, attr: Attr, standing: &Standing, lease: Lease, now: Instant) {
        if !self.is_enabled() {
            return;
        }
        let directory = attr.inode;
        let mut table = self.table();
        let table = &mut *table;
        if table.is_in_doubt(directory, now) || !board.holds(lease, now) {
            table.forget(board, directory);
            return;
        }
        let is_new_start = standing.empty && !table.making.contains_key(&directory);
        let names = match table.directories.get(&directory) {
            Some(known) if known.order >= standing.order => return,
            Some(known) => {
                let names = known.names.take();
                let count = names.as_ref().map_or(0, FxHashMap::len);
                // Nobody else can have changed it meanwhile.
                let stays = board.holds(known.lease, now) && !is_new_start;
                table.names -= if stays { 0 } else { count };
                names.filter(|_| stays)
            }
            None => None,
        };
        let names = if is_new_start { Some(FxHashMap::default()) } else { names };
        table.directories.insert(directory, Directory { attr, lease, order: standing.order, names });
        table.make_room(board, directory);
    }

    /// An own change made something else of `directory` than what is known of it.
    pub(crate) fn forget(&self, board: &Board, directory: InodeId) {
        if self.is_enabled() {
            self.table().forget(board, directory);
        }
    }

    /// An own change made something else of some directory than what is known of it, and it is not known of which.
    pub(crate) fn forget_all(&self, board: &Board) {
        if self.is_enabled() {
            self.table().forget_all(board);
        }
    }

    /// A change in `directory` ended with `error`: without having been done, or nobody knows.
    pub(crate) fn failed(&self, board: &Board, directory: InodeId, error: Errno, now: Instant) {
        if self.is_enabled() && matches!(error, Errno::EINTR | Errno::EIO) {
            self.table().doubt(board, directory, now);
        }
    }

    /// A change of the attributes of `inode`, which may be a directory, has ended like this.
    pub(crate) fn changed<T>(&self, board: &Board, inode: InodeId, result: &Result<T, Errno>, now: Instant) {
        match result {
            Ok(_) => self.forget(board, inode),
            Err(error) => self.failed(board, inode, *error, now),
        }
    }
}

impl Table {
    fn remove(&mut self, directory: InodeId) {
        if let Some(known) = self.directories.remove(&directory) {
            self.names -= known.names.map_or(0, |names| names.len());
        }
    }

    fn forget(&mut self, board: &Board, directory: InodeId) {
        board.note(Subject::inode(directory));
        self.remove(directory);
    }

    fn forget_all(&mut self, board: &Board) {
        board.note_all();
        self.directories.clear();
        self.names = 0;
    }

    /// Drops what was not used lately, where there is too much. `in_use`: the directory that is at hand.
    fn make_room(&mut self, board: &Board, in_use: InodeId) {
        while self.directories.len() > DIRECTORIES_MAX {
            let making = &self.making;
            let is_in_use = |&it: &InodeId| it == InodeId::ROOT || it == in_use || making.contains_key(&it);
            let Some((directory, known)) = self.directories.evict(|it, _| is_in_use(it)) else { break };
            self.names -= known.names.map_or(0, |names| names.len());
            // What was asked for before an own change and comes late is found out by `order`, which is gone.
            board.note(Subject::inode(directory));
        }
        if self.names > NAMES_MAX {
            self.drop_names();
        }
    }

    /// What is known of the directories stays, but for what is absent there.
    fn drop_names(&mut self) {
        let has_none = |known: &Directory| known.names.as_ref().is_none_or(FxHashMap::is_empty);
        while self.names > NAMES_LEFT {
            let Some(known) = self.directories.pick(|_, known| has_none(known)) else { break };
            self.names -= known.names.take().map_or(0, |names| names.len());
        }
    }

    fn doubt(&mut self, board: &Board, directory: InodeId, now: Instant) {
        self.forget(board, directory);
        // With as many as there may be, all are in doubt: also this one, which finds no place.
        if !self.doubts_are_full(now) {
            self.doubts.insert(directory, now + DOUBT);
        }
    }

    fn is_in_doubt(&mut self, directory: InodeId, now: Instant) -> bool {
        self.doubts.get(&directory).is_some_and(|until| now < *until) || self.doubts_are_full(now)
    }

    fn doubts_are_full(&mut self, now: Instant) -> bool {
        if self.doubts.len() >= DOUBTS_MAX {
            self.doubts.retain(|_, until| now < *until);
        }
        self.doubts.len() >= DOUBTS_MAX
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let Some((directory, name)) = &self.place else { return };
        let mut table = self.kept.table();
        if let Some(making) = table.making.get_mut(directory) {
            *making -= 1;
            if *making == 0 {
                table.making.remove(directory);
            }
        }
        let names = table.directories.get(directory).and_then(|known| known.names.as_mut());
        if let Some(mark) = names.and_then(|names| names.get_mut(name)) {
            mark.making = mark.making.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_client;
    use types::attr::FileType;

    const DIR: InodeId = InodeId(7);

    struct Bed {
        board: Board,
        kept: Kept,
        now: Instant,
    }

    fn bed() -> Bed {
        let kept = Kept::default();
        kept.enable();
        Bed { board: Board::new(), kept, now: Instant::now() }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    fn attr(nlink: u32) -> Attr {
        Attr { kind: FileType::Directory, mode: 0o755, nlink, ..test_client::reply(DIR).attr }
    }

    impl Bed {
        fn lease(&self) -> Lease {
            Lease::granted(self.board.ticket(), Subject::inode(DIR), 10_000)
        }

        /// `order` also goes into the attributes, to tell them apart.
        fn learn(&self, order: u64, empty: bool, lease: Lease) {
            self.kept.learn(&self.board, attr(order as u32), &Standing { order, empty }, lease, self.now);
        }

        fn learn_other(&self, inode: u64) {
            let lease = Lease::granted(self.board.ticket(), Subject::inode(InodeId(inode)), 10_000);
            let attr = Attr { inode: InodeId(inode), ..attr(1) };
            self.kept.learn(&self.board, attr, &Standing { order: 1, empty: true }, lease, self.now);
        }

        fn known(&self) -> Option<u32> {
            self.kept.attr(&self.board, DIR, self.now).map(|known| known.attr.nlink)
        }

        fn is_absent(&self, text: &str) -> bool {
            self.kept.is_absent(&self.board, DIR, &name(text), self.now)
        }

        fn making(&self, text: &str) -> Making<'_> {
            self.kept.making(&self.board, DIR, &name(text))
        }

        fn take(&self, text: &str, taking: &Taking) {
            self.kept.took(DIR, &name(text), taking);
        }
    }

    #[test]
    fn the_newest_answer_counts_until_its_lease_ends() {
        let mut bed = bed();
        bed.learn(2, false, bed.lease());
        bed.learn(1, false, bed.lease());
        assert_eq!(bed.known(), Some(2), "it came late");
        let asked_before = bed.lease();
        bed.board.recall([Subject::inode(DIR)].into_iter());
        assert_eq!(bed.known(), None);
        bed.learn(3, false, asked_before);
        assert_eq!(bed.known(), None, "asked before the recall");
        bed.learn(4, false, bed.lease());
        assert_eq!(bed.known(), Some(4));
        bed.now += Duration::from_secs(10);
        assert_eq!(bed.known(), None, "its term is over");
    }

    #[test]
    fn what_an_own_change_made_unknown_is_asked_for_anew() {
        let bed = bed();
        let asked_before = bed.lease();
        bed.learn(1, true, bed.lease());
        bed.kept.forget(&bed.board, DIR);
        bed.learn(2, true, asked_before);
        assert!(bed.known().is_none() && !bed.is_absent("x"));
        bed.learn(3, true, bed.lease());
        assert!(bed.is_absent("x"));
        bed.kept.forget_all(&bed.board);
        assert!(bed.known().is_none() && !bed.is_absent("x"));
    }

    #[test]
    fn in_a_directory_that_was_empty_only_what_was_made_here_is_there() {
        let mut bed = bed();
        bed.learn(1, true, bed.lease());
        let making = bed.making("x");
        assert!(!bed.is_absent("x"), "it may be there already");
        assert!(bed.is_absent("y"));
        bed.learn(2, false, bed.lease());
        drop(making);
        assert!(!bed.is_absent("x") && bed.is_absent("y"));
        // Renewed in time.
        bed.now += Duration::from_secs(9);
        let later = Lease::granted(bed.board.ticket(), Subject::inode(DIR), 100_000);
        bed.learn(3, false, later);
        assert!(!bed.is_absent("x") && bed.is_absent("y"));
        // Somebody else changed something.
        bed.board.recall([Subject::inode(DIR)].into_iter());
        bed.learn(4, false, bed.lease());
        assert!(bed.known().is_some() && !bed.is_absent("y"));
    }

    #[test]
    fn a_name_that_is_on_its_way_keeps_a_directory_from_counting_as_empty() {
        let bed = bed();
        let making = bed.making("x");
        bed.learn(1, true, bed.lease());
        assert!(!bed.is_absent("x") && !bed.is_absent("y"));
        drop(making);
        bed.learn(2, true, bed.lease());
        assert!(bed.is_absent("x"));
    }

    #[test]
    fn a_name_is_gone_unless_it_was_made_again_meanwhile() {
        let bed = bed();
        bed.learn(1, true, bed.lease());
        drop(bed.making("x"));
        let taking = bed.kept.taking(DIR, &name("x"));
        bed.take("x", &taking);
        assert!(bed.is_absent("x"));
        // Made and answered while the removal was under way.
        drop(bed.making("x"));
        let taking = bed.kept.taking(DIR, &name("x"));
        drop(bed.making("x"));
        bed.take("x", &taking);
        assert!(!bed.is_absent("x"));
        // Being made before the removal began, and answered before it.
        let making = bed.making("x");
        let taking = bed.kept.taking(DIR, &name("x"));
        drop(making);
        bed.take("x", &taking);
        assert!(!bed.is_absent("x"));
        // And with a new beginning between.
        let taking = bed.kept.taking(DIR, &name("x"));
        bed.learn(2, true, bed.lease());
        drop(bed.making("x"));
        bed.take("x", &taking);
        assert!(!bed.is_absent("x"));
    }

    #[test]
    fn after_a_change_that_was_given_up_nothing_is_kept_for_a_while() {
        let mut bed = bed();
        bed.learn(1, true, bed.lease());
        bed.kept.failed(&bed.board, DIR, Errno::EEXIST, bed.now);
        assert!(bed.known().is_some(), "a refusal is an answer");
        bed.kept.failed(&bed.board, DIR, Errno::EINTR, bed.now);
        bed.learn(2, true, bed.lease());
        assert!(bed.known().is_none());
        bed.now += DOUBT;
        bed.learn(3, true, Lease::granted(bed.board.ticket(), Subject::inode(DIR), 100_000));
        assert!(bed.known().is_some());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let bed = bed();
        bed.learn(1, true, bed.lease());
        for number in 0..NAMES_MAX + 10 {
            drop(bed.making(&number.to_string()));
        }
        assert!(bed.kept.table().names <= NAMES_MAX && !bed.is_absent("y"));
        assert_eq!(bed.known(), Some(1), "of the directory itself nothing was dropped");
        (0..DIRECTORIES_MAX as u64 + 10).for_each(|inode| bed.learn_other(inode));
        assert!(bed.kept.table().directories.len() <= DIRECTORIES_MAX);
    }

    #[test]
    fn what_was_not_used_lately_is_dropped_and_the_root_is_not() {
        let bed = bed();
        bed.learn_other(InodeId::ROOT.0);
        let making = bed.making("x");
        bed.learn(1, false, bed.lease());
        let first = 1000;
        let others = first..first + 3 * DIRECTORIES_MAX as u64;
        let used = InodeId(first);
        for inode in others.clone() {
            bed.learn_other(inode);
            // Also where its lease is over.
            bed.kept.attr(&bed.board, used, bed.now);
        }
        let mut table = bed.kept.table();
        assert_eq!(table.directories.len(), DIRECTORIES_MAX);
        assert!(table.directories.get(&InodeId::ROOT).is_some() && table.directories.get(&used).is_some());
        assert!(table.directories.get(&DIR).is_some(), "a name is being made there");
        let kept = others.rev().take(DIRECTORIES_MAX / 2).filter(|&it| table.directories.get(&InodeId(it)).is_some());
        assert_eq!(kept.count(), DIRECTORIES_MAX / 2, "the latest");
        drop(table);
        drop(making);
    }

    /// Its `order` would say so, which is known no more.
    #[test]
    fn of_what_was_dropped_no_older_answer_is_believed() {
        let bed = bed();
        let asked_before = bed.lease();
        bed.learn(2, false, bed.lease());
        (1000..1001 + DIRECTORIES_MAX as u64).for_each(|inode| bed.learn_other(inode));
        assert!(bed.kept.table().directories.get(&DIR).is_none());
        bed.learn(1, true, asked_before);
        assert!(bed.known().is_none() && !bed.is_absent("x"));
    }

    #[test]
    fn names_are_dropped_where_none_was_looked_for_lately() {
        let bed = bed();
        let other = InodeId(1000);
        bed.learn_other(other.0);
        for number in 0..NAMES_MAX / 2 {
            drop(bed.kept.making(&bed.board, other, &name(&number.to_string())));
        }
        bed.learn(1, true, bed.lease());
        for number in 0..=NAMES_MAX / 2 {
            drop(bed.making(&number.to_string()));
        }
        assert!(bed.kept.table().names <= NAMES_MAX);
        assert!(bed.is_absent("y") && !bed.kept.is_absent(&bed.board, other, &name("y"), bed.now));
    }

    #[test]
    fn without_recalls_nothing_is_kept() {
        let bed = Bed { kept: Kept::default(), ..bed() };
        bed.learn(1, true, bed.lease());
        assert!(bed.known().is_none() && !bed.is_absent("x"));
    }
}
