//! What of a file was acknowledged and is not known to be on the disks. Each object's changes have rising versions; so the
//! first and the last of them tell whether a service that has lost its memory had them. A shard that has lost its memory says
//! so, and then all counts as lost that it answered and no fsync has covered. Pure.

use std::collections::BTreeMap;
use std::mem;

use rustc_hash::FxHashMap;
use types::id::{InodeId, ShardId};
use wire::v1::storage::WriteReply;

/// Objects, and files, of one generation of closed files that are remembered: a few MiB at most in both.
const CLOSED_MAX: usize = 1 << 14;

#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced {
    /// Of its objects, by stripe.
    objects: BTreeMap<u32, Span>,
    record: Record,
}

/// What the shard has of the file: its attributes, and the contents of a small one.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Changes that the shard has answered, and how many of them an fsync has covered.
    changes: u64,
    synced: u64,
    /// Some of them are lost, and nobody was told yet.
    lost: bool,
}

/// Versions of the changes of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    first: u64,
    last: u64,
}

impl Unsynced {
    /// A change of the object was acknowledged with this version.
    pub(crate) fn changed(&mut self, stripe: u32, version: u64) {
        let span = self.objects.entry(stripe).or_insert(Span { first: version, last: version });
        (span.first, span.last) = (span.first.min(version), span.last.max(version));
    }

    /// A write of the object was answered.
    pub(crate) fn written(&mut self, stripe: u32, answer: &WriteReply) {
        if !answer.durable {
            self.changed(stripe, answer.version);
        }
    }

    /// The shard has answered a change of the file's record.
    pub(crate) fn record_changed(&mut self) {
        self.record.changes += 1;
    }

    /// For [`Self::record_synced`].
    pub(crate) fn record_changes(&self) -> u64 {
        self.record.changes
    }

    /// So many changes of the record are on the shard's disk.
    pub(crate) fn record_synced(&mut self, changes: u64) {
        self.record.synced = self.record.synced.max(changes);
    }

    /// The shard has lost its memory.
    pub(crate) fn shard_lost(&mut self) {
        let Record { changes, synced, lost } = &mut self.record;
        *lost |= changes > synced;
        *synced = *changes;
    }

    /// True once where something of the record is lost.
    pub(crate) fn take_lost_record(&mut self) -> bool {
        mem::take(&mut self.record.lost)
    }

    fn weight(&self) -> usize {
        1 + self.objects.len()
    }

    fn is_empty(&self) -> bool {
        let Record { changes, synced, lost } = self.record;
        self.objects.is_empty() && changes == synced && !lost
    }

    pub(crate) fn stripes(&self) -> impl Iterator<Item = u32> {
        self.objects.keys().copied()
    }

    /// The first change of the object; 0: none.
    pub(crate) fn since(&self, stripe: u32) -> u64 {
        self.objects.get(&stripe).map_or(0, |span| span.first)
    }

    /// What the object had when this was `then` is on its disk, or known to be lost.
    pub(crate) fn settled(&mut self, stripe: u32, then: &Self) {
        let Some(known) = then.objects.get(&stripe) else { return };
        let Some(span) = self.objects.get_mut(&stripe) else { return };
        // Before the first that was asked for are those whose answers have come since.
        match (span.first < known.first, span.last > known.last) {
            (false, false) => drop(self.objects.remove(&stripe)),
            (false, true) => span.first = span.first.max(known.last + 1),
            (true, false) => span.last = known.first - 1,
            (true, true) => {}
        }
    }
}

/// What of closed files is not known to be on the disks: whoever opens one again, to sync it, is told of what was lost
/// all the same. Those of which only the record was changed are many, as when all files of a tree are given to somebody
/// else: they do not count among the others.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    with_objects: Generations,
    records: Generations,
}

/// Those are remembered that were closed last: when the young are too many, they become the old, and the old are forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: FxHashMap<InodeId, Unsynced>,
    old: FxHashMap<InodeId, Unsynced>,
    /// What the young ones weigh.
    weight: usize,
}

impl Closed {
    pub(crate) fn closed(&mut self, inode: InodeId, unsynced: Unsynced) {
        if !unsynced.objects.is_empty() {
            self.with_objects.put(inode, unsynced);
        } else if !unsynced.is_empty() {
            self.records.put(inode, unsynced);
        }
    }

    /// The shard has answered a change of the record of a file that is not open.
    pub(crate) fn record_changed(&mut self, inode: InodeId) {
        let mut unsynced = self.opened(inode);
        unsynced.record_changed();
        self.closed(inode, unsynced);
    }

    /// A shard has lost its memory: what is remembered of its files.
    pub(crate) fn shard_lost(&mut self, shard: ShardId) {
        for Generations { young, old, .. } in [&mut self.with_objects, &mut self.records] {
            let of_it = young.iter_mut().chain(old).filter(|(inode, _)| inode.home() == shard);
            of_it.for_each(|(_, unsynced)| unsynced.shard_lost());
        }
    }

    pub(crate) fn opened(&mut self, inode: InodeId) -> Unsynced {
        self.with_objects.take(inode).or_else(|| self.records.take(inode)).unwrap_or_default()
    }
}

impl Generations {
    fn put(&mut self, inode: InodeId, unsynced: Unsynced) {
        if self.weight >= CLOSED_MAX {
            self.old = mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += unsynced.weight();
        self.weight -= self.young.insert(inode, unsynced).map_or(0, |before| before.weight());
    }

    fn take(&mut self, inode: InodeId) -> Option<Unsynced> {
        let Some(young) = self.young.remove(&inode) else { return self.old.remove(&inode) };
        self.weight -= young.weight();
        Some(young)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_closed_last_are_remembered() {
        let mut closed = Closed::default();
        let changed = |version| {
            let mut unsynced = Unsynced::default();
            unsynced.changed(0, version);
            unsynced
        };
        let all = 5 * CLOSED_MAX as u64;
        for inode in 0..all {
            closed.closed(InodeId(inode), changed(inode + 1));
            closed.closed(InodeId(all + inode), Unsynced::default());
        }
        assert!(closed.with_objects.young.len() + closed.with_objects.old.len() <= CLOSED_MAX + 2);
        for inode in all - CLOSED_MAX as u64 / 2..all {
            assert_eq!(closed.opened(InodeId(inode)).since(0), inode + 1);
            assert_eq!(closed.opened(InodeId(inode)).since(0), 0, "the open file has it now");
        }
        assert_eq!(closed.opened(InodeId(0)).since(0), 0);
    }

    #[test]
    fn wide_files_take_no_more_memory_than_narrow_ones() {
        let mut closed = Closed::default();
        for inode in 0..CLOSED_MAX as u64 {
            let mut unsynced = Unsynced::default();
            (0..256).for_each(|stripe| unsynced.changed(stripe, 1));
            closed.closed(InodeId(inode), unsynced);
        }
        let spans = |files: &FxHashMap<InodeId, Unsynced>| files.values().map(|file| file.objects.len()).sum::<usize>();
        let Generations { young, old, .. } = &closed.with_objects;
        assert!(spans(young) + spans(old) <= 2 * (CLOSED_MAX + 256));
        assert_eq!(closed.opened(InodeId(CLOSED_MAX as u64 - 1)).stripes().count(), 256);
    }

    #[test]
    fn many_files_of_which_only_the_record_was_changed_make_no_other_forgotten() {
        let mut closed = Closed::default();
        let mut unsynced = Unsynced::default();
        unsynced.changed(0, 7);
        closed.closed(InodeId(1), unsynced);
        closed.record_changed(InodeId(1));
        (2..3 * CLOSED_MAX as u64).for_each(|inode| closed.record_changed(InodeId(inode)));
        let opened = closed.opened(InodeId(1));
        assert_eq!((opened.since(0), opened.record_changes()), (7, 1));
    }

    #[test]
    fn a_file_that_is_closed_again_and_again_makes_no_other_forgotten() {
        let mut closed = Closed::default();
        closed.record_changed(InodeId(1));
        for version in 0..3 * CLOSED_MAX as u64 {
            let mut unsynced = closed.opened(InodeId(2));
            unsynced.changed(0, version);
            closed.closed(InodeId(2), unsynced);
            closed.record_changed(InodeId(2));
        }
        assert_eq!(closed.opened(InodeId(1)).record_changes(), 1);
    }

    #[test]
    fn what_a_shard_has_lost_is_told_once_unless_it_was_synced() {
        let mut unsynced = Unsynced::default();
        unsynced.shard_lost();
        assert!(!unsynced.take_lost_record(), "nothing was changed");
        unsynced.record_changed();
        let then = unsynced.record_changes();
        unsynced.record_changed();
        unsynced.record_synced(then);
        assert!(!unsynced.is_empty());
        unsynced.shard_lost();
        assert!(unsynced.take_lost_record() && !unsynced.take_lost_record());
        unsynced.record_changed();
        // A sync that began before that change.
        unsynced.record_synced(then);
        unsynced.shard_lost();
        assert!(unsynced.take_lost_record());
        unsynced.record_changed();
        unsynced.record_synced(unsynced.record_changes());
        unsynced.shard_lost();
        assert!(unsynced.is_empty());
    }

    #[test]
    fn who_opens_a_closed_file_again_hears_of_what_its_shard_has_lost() {
        let mut closed = Closed::default();
        let files = [InodeId::new(ShardId(1), 9), InodeId::new(ShardId(2), 9)];
        for inode in files {
            let mut unsynced = Unsynced::default();
            unsynced.record_changed();
            closed.closed(inode, unsynced);
        }
        closed.shard_lost(ShardId(2));
        assert_eq!(files.map(|inode| closed.opened(inode).take_lost_record()), [false, true]);
    }

    #[test]
    fn changes_count_until_they_are_synced() {
        let mut unsynced = Unsynced::default();
        assert_eq!((unsynced.since(0), unsynced.stripes().count()), (0, 0));
        // Answers come in any order.
        for version in [6, 5, 7] {
            unsynced.changed(0, version);
        }
        unsynced.changed(3, 1);
        assert_eq!((unsynced.since(0), unsynced.since(3), unsynced.since(1)), (5, 1, 0));
        let then = unsynced.clone();
        unsynced.changed(0, 9);
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 8, "the later change is not known to be there");
        unsynced.settled(3, &then);
        unsynced.settled(1, &then);
        assert_eq!(unsynced.stripes().collect::<Vec<_>>(), [0]);
        // Two syncs of the same, one after the other.
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 8);
        unsynced.settled(0, &unsynced.clone());
        assert_eq!(unsynced.since(0), 0);
    }

    #[test]
    fn a_change_whose_answer_came_during_a_sync_that_did_not_ask_for_it_counts() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(0, 6);
        let then = unsynced.clone();
        // By another thread: it was made before, and perhaps by a service that has lost its memory since.
        unsynced.changed(0, 5);
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 5);
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 5);
        let then = unsynced.clone();
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 0);
    }
}
