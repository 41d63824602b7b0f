//! Where a pass over the records begins. They are in the order of inodes, and those that went leave tombstones, which the
//! store goes over at each look: a pass that began with the first inode would go over all that went since the last compaction.

use std::cell::Cell;

use types::id::InodeId;

/// No inode below it has a record.
#[derive(Debug)]
pub(crate) struct Floor(Cell<InodeId>);

impl Default for Floor {
    /// Nothing is known of what there is.
    fn default() -> Self {
        Self(Cell::new(InodeId(0)))
    }
}

impl Floor {
    /// A pass begins, with this inode. From now on it counts what the pass finds, and what is recorded meanwhile.
    pub(super) fn begin_pass(&self) -> InodeId {
        self.0.replace(InodeId(u64::MAX))
    }

    /// There is a record of this inode, or there may be from this inode on.
    pub(crate) fn lower_to(&self, inode: InodeId) {
        self.0.set(self.0.get().min(inode));
    }
}

/// The greatest (inode, stripe) below all of this inode, to begin after; `None` where there is none.
pub(super) fn before(inode: InodeId) -> Option<(InodeId, u32)> {
    inode.0.checked_sub(1).map(|before| (InodeId(before), u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pass_begins_with_the_first_that_may_be_there() {
        let floor = Floor::default();
        assert_eq!((floor.begin_pass(), before(InodeId(0))), (InodeId(0), None));
        floor.lower_to(InodeId(7));
        assert_eq!(floor.begin_pass(), InodeId(7));
        assert_eq!(before(InodeId(7)), Some((InodeId(6), u32::MAX)));
        assert_eq!(floor.begin_pass(), InodeId(u64::MAX), "there was nothing");
    }

    /// Xorshift64 (Marsaglia): repeatable.
    fn below(state: &mut u64, limit: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % limit
    }

    /// Whatever is recorded and removed in whatever order, between passes and in them.
    #[test]
    fn no_record_lies_below() {
        let (floor, mut dice) = (Floor::default(), 1);
        let (mut records, mut found) = (BTreeSet::new(), BTreeSet::new());
        // Where the pass goes on that is under way.
        let mut at: Option<u64> = None;
        for _ in 0..100_000 {
            let inode = below(&mut dice, 40);
            match below(&mut dice, 8) {
                0 | 1 => {
                    records.insert(inode);
                    floor.lower_to(InodeId(inode));
                }
                2 => {
                    records.retain(|record| *record >= inode || !found.contains(record));
                    found.clear();
                }
                _ => {
                    let from = at.unwrap_or_else(|| {
                        let begin = floor.begin_pass().0;
                        assert!(records.first().is_none_or(|first| *first >= begin));
                        begin
                    });
                    let next = records.range(from..).next().copied();
                    if let Some(inode) = next {
                        floor.lower_to(InodeId(inode));
                        found.insert(inode);
                    }
                    at = next.map(|inode| inode + 1);
                }
            }
        }
    }
}
