//! What of a file was acknowledged and is not known to be on the disks. Each object's changes have rising versions; so the
//! first and the last of them tell whether a service that has lost its memory had them. Pure.

use std::collections::BTreeMap;
use std::mem;

use rustc_hash::FxHashMap;
use types::id::InodeId;
use wire::v1::storage::WriteReply;

/// Closed files of one generation that are remembered: a few MiB at most in both.
const CLOSED_MAX: usize = 1 << 14;

/// By stripe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(BTreeMap<u32, Span>);

/// Versions of the changes of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    first: u64,
    last: u64,
}

impl Unsynced {
    /// A change of the object was acknowledged with this version.
    pub(crate) fn changed(&mut self, stripe: u32, version: u64) {
        let span = self.0.entry(stripe).or_insert(Span { first: version, last: version });
        (span.first, span.last) = (span.first.min(version), span.last.max(version));
    }

    /// A write of the object was answered.
    pub(crate) fn written(&mut self, stripe: u32, answer: &WriteReply) {
        if !answer.durable {
            self.changed(stripe, answer.version);
        }
    }

    pub(crate) fn stripes(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// The first change of the object; 0: none.
    pub(crate) fn since(&self, stripe: u32) -> u64 {
        self.0.get(&stripe).map_or(0, |span| span.first)
    }

    /// What the object had when this was `then` is on its disk, or known to be lost.
    pub(crate) fn settled(&mut self, stripe: u32, then: &Self) {
        let Some(known) = then.0.get(&stripe) else { return };
        let Some(span) = self.0.get_mut(&stripe) else { return };
        // Before the first that was asked for are those whose answers have come since.
        match (span.first < known.first, span.last > known.last) {
            (false, false) => drop(self.0.remove(&stripe)),
            (false, true) => span.first = span.first.max(known.last + 1),
            (true, false) => span.last = known.first - 1,
            (true, true) => {}
        }
    }
}

/// Of files that are closed: whoever opens one again, to sync it, is told of what was lost all the same. Those are remembered
/// that were closed last: when the young are too many, they become the old, and the old are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    young: FxHashMap<InodeId, Unsynced>,
    old: FxHashMap<InodeId, Unsynced>,
}

impl Closed {
    pub(crate) fn closed(&mut self, inode: InodeId, unsynced: Unsynced) {
        if unsynced.0.is_empty() {
            return;
        }
        if self.young.len() >= CLOSED_MAX {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(inode, unsynced);
    }

    pub(crate) fn opened(&mut self, inode: InodeId) -> Unsynced {
        self.young.remove(&inode).or_else(|| self.old.remove(&inode)).unwrap_or_default()
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
        assert!(closed.young.len() + closed.old.len() <= 2 * CLOSED_MAX);
        for inode in all - CLOSED_MAX as u64..all {
            assert_eq!(closed.opened(InodeId(inode)).since(0), inode + 1);
            assert_eq!(closed.opened(InodeId(inode)).since(0), 0, "the open file has it now");
        }
        assert_eq!(closed.opened(InodeId(0)).since(0), 0);
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
