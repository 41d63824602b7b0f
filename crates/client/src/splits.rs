//! Directories whose entries are in parts, as far as this client has met them. A directory's parts never change, so what is
//! remembered is true for as long as the directory is there. Where it is being split, only the cursor changes: who asks in the
//! wrong place because of that is told so, and learns it anew.

use std::sync::Arc;

use types::id::InodeId;
use types::name::Name;
use types::name_hash::name_hash;
use types::parts::PartNumber;

use crate::few::Few;

/// Above this, all are forgotten: some MiB.
const SPLITS_MAX: usize = 8192;

/// One directory that is split.
#[derive(Debug)]
pub(crate) struct Split {
    /// In the order of their names' hashes.
    pub(crate) parts: Vec<InodeId>,
    /// Names whose hashes are below this are in the parts, the others in the directory itself. 0: all are in the parts.
    pub(crate) cursor: u64,
    /// The directory's own parent when it was last asked for.
    pub(crate) parent: InodeId,
}

impl Split {
    /// The part that has the names of this hash; `None` where the directory itself has them.
    pub(crate) fn part_at(&self, hash: u64) -> Option<(PartNumber, InodeId)> {
        let number = PartNumber::of_hash(hash, self.parts.len() as u16);
        let has_come = self.cursor == 0 || hash < self.cursor;
        has_come.then(|| (number, self.parts[usize::from(number.index)]))
    }
}

/// Most clients never meet one: these need no lock.
#[derive(Default)]
pub(crate) struct Splits(Few<InodeId, Arc<Split>>);

impl Splits {
    pub(crate) fn get(&self, directory: InodeId) -> Option<Arc<Split>> {
        self.0.get(&directory)
    }

    /// Where the entry `name` of `directory` is to be asked for.
    pub(crate) fn part(&self, directory: InodeId, name: &Name) -> InodeId {
        let split = self.get(directory);
        split.and_then(|split| split.part_at(name_hash(name))).map_or(directory, |(_, part)| part)
    }

    /// A directory is split. Where there are too many, all others are forgotten, and `forget` is called before.
    pub(crate) fn learn(&self, directory: InodeId, split: Split, forget: impl FnOnce()) -> Arc<Split> {
        let split = Arc::new(split);
        self.0.change(|table| {
            if table.len() >= SPLITS_MAX {
                forget();
                table.clear();
            }
            table.insert(directory, Arc::clone(&split));
        });
        split
    }

    /// Does something while it is sure that `directory` is known, if it is.
    pub(crate) fn while_known(&self, directory: InodeId, act: impl FnOnce()) {
        self.0.look(&directory, |_| act());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::name_hash::HASH_MAX;

    fn split(first: u64) -> Split {
        Split { parts: (first..first + 4).map(InodeId).collect(), cursor: 0, parent: InodeId::ROOT }
    }

    #[test]
    fn names_are_asked_for_where_they_are() {
        let splits = Splits::default();
        let name = Name::new(b"Makefile").expect("a name");
        assert_eq!(splits.part(InodeId(7), &name), InodeId(7));
        splits.learn(InodeId(7), split(100), || unreachable!());
        let index = PartNumber::of_name(&name, 4).index;
        assert_eq!(splits.part(InodeId(7), &name), InodeId(100 + u64::from(index)));
        assert_eq!(splits.part(InodeId(8), &name), InodeId(8));
        let at = |hash| split(0).part_at(hash).map(|(number, part)| (number.index, part.0));
        assert_eq!((at(1), at(HASH_MAX)), (Some((0, 0)), Some((3, 3))));
        // Those that have not come yet are in the directory.
        let hash = name_hash(&name);
        splits.learn(InodeId(7), Split { cursor: hash, ..split(100) }, || unreachable!());
        assert_eq!(splits.part(InodeId(7), &name), InodeId(7));
        splits.learn(InodeId(7), Split { cursor: hash + 1, ..split(100) }, || unreachable!());
        assert_eq!(splits.part(InodeId(7), &name), InodeId(100 + u64::from(index)));
    }

    #[test]
    fn they_are_bounded() {
        let (splits, mut forgotten) = (Splits::default(), 0);
        for id in 0..=SPLITS_MAX as u64 {
            splits.learn(InodeId(id), split(100), || forgotten += 1);
        }
        assert_eq!((splits.0.count(), forgotten), (1, 1));
        splits.while_known(InodeId(0), || panic!("forgotten"));
    }
}
