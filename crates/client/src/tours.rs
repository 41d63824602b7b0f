//! In which order a program walks through a tree of directories, and which it comes to next. Pure.
//!
//! `find`, `ls -R` and their like go depth first, and through the directories of one in the order in which they were listed.
//! Who has listed some of them one after the other is expected to come to the next ones, and from one that was expected to
//! those in it.

use rustc_hash::FxHashMap;
use types::id::InodeId;

/// After so many of a directory one after the other, the next are expected.
const RUN_MIN: u32 = 3;
/// So many are expected at a time: enough that some are here while others are being asked for.
const AHEAD: usize = 3;
/// So far up it is looked for what comes next. (What was listed before renames may lead round in a circle.)
const DEPTH_MAX: usize = 64;
/// After this many directories that nothing was to be asked of ahead it is tried again.
const PAUSE: u32 = 64;
/// Above this, all are forgotten: some megabytes.
const DIRECTORIES_MAX: usize = 1 << 16;

#[derive(Default, Debug)]
pub(crate) struct Tours {
    directories: FxHashMap<InodeId, Directory>,
    /// Where directories are in those that have them.
    places: FxHashMap<InodeId, Place>,
    /// All in `children`.
    children: usize,
    /// So many are still passed over.
    pause: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    parent: InodeId,
    index: usize,
}

#[derive(Default, Debug)]
struct Directory {
    /// Its directories, in the order in which they were listed.
    children: Vec<InodeId>,
    /// The one after that which was listed last.
    next: usize,
    /// So many of them were listed one after the other.
    run: u32,
    /// Those before this one were told to be expected.
    told: usize,
}

impl Directory {
    fn expected(&mut self, most: usize) -> &[InodeId] {
        if self.run < RUN_MIN {
            return &[];
        }
        let end = self.children.len().min(self.next + most);
        let begin = self.told.max(self.next).min(end);
        self.told = self.told.max(end);
        &self.children[begin..end]
    }
}

impl Tours {
    /// A program begins to list `directory`.
    pub(crate) fn begins(&mut self, directory: InodeId) {
        let was_expected = self.comes_to(directory);
        if self.is_full() {
            (self.directories, self.places, self.children) = Default::default();
        }
        let run = if was_expected { RUN_MIN } else { 0 };
        let before = self.directories.insert(directory, Directory { run, ..Directory::default() });
        self.children -= before.map_or(0, |before| before.children.len());
    }

    fn is_full(&self) -> bool {
        // Places stay when their directory is listed anew.
        self.children.max(self.places.len()) + self.directories.len() >= DIRECTORIES_MAX
    }

    fn place(&self, directory: InodeId) -> Option<Place> {
        let place = *self.places.get(&directory)?;
        // It may be from a listing before.
        let is_there = self.directories.get(&place.parent)?.children.get(place.index) == Some(&directory);
        is_there.then_some(place)
    }

    fn comes_to(&mut self, directory: InodeId) -> bool {
        let Some(Place { parent, index }) = self.place(directory) else { return false };
        let Some(parent) = self.directories.get_mut(&parent) else { return false };
        let follows = index == parent.next;
        parent.run = if follows { parent.run + 1 } else { 1 };
        if !follows {
            parent.told = 0;
        }
        parent.next = index + 1;
        follows && parent.run >= RUN_MIN
    }

    /// It has these directories, after those that were told before; some of these may be among them.
    pub(crate) fn finds(&mut self, directory: InodeId, found: impl IntoIterator<Item = InodeId>) {
        for child in found {
            if self.is_full() || self.place(child).is_some_and(|place| place.parent == directory) {
                continue;
            }
            let Some(known) = self.directories.get_mut(&directory) else { return };
            self.places.insert(child, Place { parent: directory, index: known.children.len() });
            known.children.push(child);
            self.children += 1;
        }
    }

    /// What is expected to be listed after `directory`, each once.
    pub(crate) fn next(&mut self, directory: InodeId) -> Vec<InodeId> {
        if self.pause > 0 {
            self.pause -= 1;
            return Vec::new();
        }
        let mut next = Vec::new();
        let mut here = directory;
        for _ in 0..DEPTH_MAX {
            let Some(known) = self.directories.get_mut(&here) else { break };
            next.extend_from_slice(known.expected(AHEAD - next.len()));
            match self.place(here).filter(|_| next.len() < AHEAD) {
                Some(place) => here = place.parent,
                None => break,
            }
        }
        next
    }

    /// What was asked for ahead says nothing of a moment later: the next ones are likely to be alike.
    pub(crate) fn was_in_vain(&mut self) {
        self.pause = PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: InodeId = InodeId(1);

    fn children(of: u64, count: u64) -> Vec<InodeId> {
        (0..count).map(|number| InodeId(of * 1000 + number)).collect()
    }

    fn list(tours: &mut Tours, directory: InodeId, found: &[InodeId]) -> Vec<InodeId> {
        tours.begins(directory);
        tours.finds(directory, found.iter().copied());
        tours.next(directory)
    }

    #[test]
    fn who_goes_from_one_to_the_next_is_expected_at_those_after() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        assert!(list(&mut tours, ROOT, &all).is_empty());
        let mut told = Vec::new();
        for (number, &directory) in all.iter().enumerate() {
            told.extend(list(&mut tours, directory, &[]));
            let expected =
                if number < RUN_MIN as usize - 1 { &[] } else { &all[RUN_MIN as usize..20.min(number + 1 + AHEAD)] };
            assert_eq!(told, expected, "each once, and never more than so many before they are listed");
        }
    }

    #[test]
    fn in_one_that_was_expected_its_own_come_first() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        list(&mut tours, ROOT, &all);
        (0..3).for_each(|number| drop(list(&mut tours, all[number], &[])));
        let within = children(2, 2);
        assert_eq!(list(&mut tours, all[3], &within), within, "two of those after it are expected already");
        let deeper = children(3, 1);
        assert_eq!(list(&mut tours, within[0], &deeper), deeper);
        assert_eq!(list(&mut tours, deeper[0], &[]), [all[6]]);
        assert!(list(&mut tours, within[1], &[]).is_empty());
        assert_eq!(list(&mut tours, all[4], &[]), [all[7]]);
    }

    #[test]
    fn nobody_is_expected_who_jumps() {
        let mut tours = Tours::default();
        let all = children(1, 100);
        list(&mut tours, ROOT, &all);
        for number in [5, 3, 50, 51, 7, 9, 10, 20, 0, 99] {
            assert!(list(&mut tours, all[number], &[]).is_empty());
        }
        (30..32).for_each(|number| assert!(list(&mut tours, all[number], &[]).is_empty()));
        assert_eq!(list(&mut tours, all[32], &[]), [all[33], all[34], all[35]]);
    }

    #[test]
    fn what_was_in_vain_is_not_done_again_soon() {
        let mut tours = Tours::default();
        let all = children(1, 200);
        list(&mut tours, ROOT, &all);
        (0..3).for_each(|number| drop(list(&mut tours, all[number], &[])));
        tours.was_in_vain();
        let told = (3..200).map(|number| list(&mut tours, all[number], &[]).len());
        assert_eq!(told.take_while(|&told| told == 0).count(), PAUSE as usize);
    }

    #[test]
    fn a_directory_that_is_listed_anew_is_as_it_is_now() {
        let mut tours = Tours::default();
        let (before, now) = (children(1, 10), children(2, 10));
        list(&mut tours, ROOT, &before);
        (0..5).for_each(|number| drop(list(&mut tours, before[number], &[])));
        assert!(list(&mut tours, ROOT, &now).is_empty());
        assert!(list(&mut tours, before[5], &[]).is_empty(), "it is there no more");
        (0..2).for_each(|number| assert!(list(&mut tours, now[number], &[]).is_empty()));
        assert_eq!(list(&mut tours, now[2], &[]).len(), AHEAD);
    }

    #[test]
    fn what_is_told_twice_is_there_once() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        tours.begins(ROOT);
        tours.finds(ROOT, all[..10].iter().copied());
        (0..3).for_each(|_| tours.finds(ROOT, all[5..].iter().copied()));
        assert_eq!(tours.directories[&ROOT].children, all);
    }

    #[test]
    fn a_circle_has_an_end() {
        let mut tours = Tours::default();
        let (a, b) = (InodeId(1), InodeId(2));
        list(&mut tours, a, &[b]);
        assert!(list(&mut tours, b, &[a]).is_empty());
        let within = children(2, 9);
        tours.finds(b, within.iter().copied());
        let told: Vec<_> = within.iter().flat_map(|&directory| list(&mut tours, directory, &[])).collect();
        assert_eq!(told, within[3..]);
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let mut tours = Tours::default();
        for number in 1..100 {
            list(&mut tours, InodeId(number), &children(number, 1000));
            assert!(tours.places.len() + tours.directories.len() <= DIRECTORIES_MAX + 1);
        }
        list(&mut tours, ROOT, &children(7, 2 * DIRECTORIES_MAX as u64));
        assert!(tours.directories[&ROOT].children.len() <= DIRECTORIES_MAX && tours.children <= DIRECTORIES_MAX);
        (0..3).for_each(|_| drop(list(&mut tours, ROOT, &children(8, 100))));
        assert_eq!(tours.children, tours.directories.values().map(|known| known.children.len()).sum::<usize>());
        for number in 1..200 {
            list(&mut tours, ROOT, &children(number, 1000));
            assert!(tours.places.len() <= DIRECTORIES_MAX, "one directory, of which all are others each time");
        }
    }
}
