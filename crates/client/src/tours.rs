//! In which order programs walk through trees of directories, and which they come to next. Pure.
//!
//! `find`, `ls -R` and their like go depth first, and through the directories of one in the order in which they were listed.
//! Who has listed some of them one after the other is expected to come to the next ones, and from one that was expected to
//! those in it: the more of them, the more often that was right. Who passes directories over on his way is not expected in
//! those that lie as deep.
//!
//! Walks do not know of each other, though they may go through the same directories: each has its own place there, and those
//! that begin at different directories learn by themselves.

use rustc_hash::{FxHashMap, FxHashSet};
use types::id::InodeId;

/// After so many of a directory one after the other, the next are expected.
const RUN_MIN: u32 = 3;
/// So many are expected at a time, at first and at most: enough that some are here while others are being asked for, and that a
/// network that is far away is kept busy.
pub(crate) const AHEAD_MIN: usize = 3;
pub(crate) const AHEAD_MAX: usize = 16;
/// So far up it is looked for what comes next. (What was listed before renames may lead round in a circle.)
const DEPTH_MAX: usize = 64;
/// After this many directories of a walk that nothing was to be asked of ahead it is tried again.
const PAUSE: u32 = 64;
/// So many walks at the same time have their places in one directory.
const STEPS_MAX: usize = 4;
/// Above this, all are forgotten: some megabytes.
const DIRECTORIES_MAX: usize = 1 << 16;

#[derive(Default, Debug)]
pub(crate) struct Tours {
    directories: FxHashMap<InodeId, Directory>,
    /// Where directories are in those that have them.
    places: FxHashMap<InodeId, Place>,
    /// All in `children`.
    children: usize,
    /// By the directories where they began, which are all in `directories`.
    walks: FxHashMap<InodeId, Walk>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    parent: InodeId,
    index: usize,
}

#[derive(Debug)]
struct Directory {
    /// Its directories, in the order in which they were listed.
    children: Vec<InodeId>,
    /// So many of these the last listing has told again. The others are from one before.
    listed: usize,
    /// Where walks are in it, the last one at the end.
    steps: Vec<Step>,
    /// The walk that came to it last, by the directory where that began, and how far below that it is.
    walk: InodeId,
    depth: u32,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// The child after the one that was listed last.
    next: usize,
    /// So many were listed one after the other.
    run: u32,
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    /// So many are expected at a time.
    ahead: usize,
    /// In so many directories nothing is expected.
    pause: u32,
    /// A bit for each depth: those in directories there are passed over.
    passes: u64,
}

impl Default for Walk {
    fn default() -> Self {
        Self { ahead: AHEAD_MIN, pause: 0, passes: 0 }
    }
}

impl Walk {
    fn passes_at(&self, depth: u32) -> bool {
        self.passes.checked_shr(depth).is_some_and(|passes| passes & 1 == 1)
    }

    /// What was found out of directories of `depth`.
    fn found_at(&mut self, depth: u32, passes: bool) {
        let bit = 1u64.checked_shl(depth).unwrap_or(0);
        self.passes = if passes { self.passes | bit } else { self.passes & !bit };
    }
}

/// How a walk came to a child.
struct Arrival {
    /// From the one before it.
    follows: bool,
    /// After as many as it takes to be expected.
    expected: bool,
    /// Others were to be listed before it.
    passed_over: bool,
}

impl Directory {
    fn new(walk: InodeId) -> Self {
        Self { children: Vec::new(), listed: 0, steps: Vec::new(), walk, depth: 0 }
    }

    fn step(&mut self, step: Step) {
        if self.steps.len() >= STEPS_MAX {
            self.steps.remove(0);
        }
        self.steps.push(step);
    }

    /// A walk begins with it anew.
    fn begin(&mut self, run: u32) {
        self.listed = 0;
        let count = self.children.len();
        self.steps.retain(|step| step.next > 0 && step.next < count);
        self.step(Step { next: 0, run });
    }

    /// A walk for which `ahead` are expected comes to the child at `index`.
    fn come_to(&mut self, index: usize, ahead: usize) -> Arrival {
        let steps = &mut self.steps;
        if let Some(at) = steps.iter().rposition(|step| step.next == index) {
            let run = steps.remove(at).run + 1;
            self.step(Step { next: index + 1, run });
            return Arrival { follows: true, expected: run >= RUN_MIN, passed_over: false };
        }
        let leaps = |step: &Step| step.run >= RUN_MIN && (step.next..=step.next + ahead).contains(&index);
        let leapt = steps.iter().rposition(leaps).map(|at| steps.remove(at));
        self.step(Step { next: index + 1, run: 1 });
        Arrival { follows: false, expected: false, passed_over: leapt.is_some() }
    }

    /// What an earlier listing had after what this one has told is gone, or comes later: so many.
    fn cut(&mut self) -> usize {
        let listed = self.listed;
        self.steps.retain(|step| step.next <= listed);
        self.children.drain(listed..).len()
    }

    /// Who was in it last has listed all that are in it; `None` where there are none.
    fn was_entered(&self) -> Option<bool> {
        let count = self.children.len();
        (count > 0).then(|| self.steps.last().is_some_and(|step| step.next == count))
    }

    /// At most so many of those from `begin` on, where a walk is there.
    fn expected(&self, begin: usize, most: usize) -> &[InodeId] {
        let is_there = self.steps.iter().any(|step| step.next == begin && step.run >= RUN_MIN);
        let end = self.children.len().min(begin + most);
        if is_there { self.children.get(begin..end).unwrap_or_default() } else { &[] }
    }
}

impl Tours {
    /// A program begins to list `directory`.
    pub(crate) fn begins(&mut self, directory: InodeId) {
        if self.is_full() {
            *self = Self::default();
        }
        let (run, walk, depth) = self.comes_to(directory);
        let known = self.directories.entry(directory).or_insert_with(|| Directory::new(walk));
        (known.walk, known.depth) = (walk, depth);
        known.begin(run);
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

    /// With which run those in `directory` begin, in which walk, and how deep it is in that.
    fn comes_to(&mut self, directory: InodeId) -> (u32, InodeId, u32) {
        let (run, walk) = match self.follow(directory) {
            Ok(found) => return found,
            Err(above) => (0, Walk { pause: above.map_or(0, |above| above.pause), ..Walk::default() }),
        };
        self.walks.entry(directory).or_insert(walk);
        (run, directory, 0)
    }

    /// As [`Self::comes_to`], where the walk was expected there; else the walk above it, if there is one.
    fn follow(&mut self, directory: InodeId) -> Result<(u32, InodeId, u32), Option<Walk>> {
        let Some(Place { parent, index }) = self.place(directory) else { return Err(None) };
        let before = index.checked_sub(1).and_then(|before| self.directories.get(&parent)?.children.get(before));
        let was_entered = before.and_then(|before| self.directories.get(before)?.was_entered());
        let Some(above) = self.directories.get_mut(&parent) else { return Err(None) };
        let (id, depth) = (above.walk, above.depth + 1);
        let Some(walk) = self.walks.get_mut(&id) else { return Err(None) };
        let Arrival { follows, expected, passed_over } = above.come_to(index, walk.ahead);
        if passed_over {
            walk.ahead = AHEAD_MIN;
        }
        if let Some(entered) = was_entered.filter(|_| follows) {
            walk.found_at(depth, !entered);
        }
        if !expected {
            return Err(Some(*walk));
        }
        Ok((if walk.passes_at(depth) { 0 } else { RUN_MIN }, id, depth))
    }

    /// A listing of it tells these directories, after those that it told before; some of these may be among them. `is_end`: it
    /// has no more.
    pub(crate) fn finds(&mut self, directory: InodeId, found: impl IntoIterator<Item = InodeId>, is_end: bool) {
        for child in found {
            let place = self.place(child).filter(|place| place.parent == directory);
            let is_full = self.is_full();
            let Some(known) = self.directories.get_mut(&directory) else { return };
            match place {
                Some(place) => known.listed = known.listed.max(place.index + 1),
                None if is_full => {}
                None => {
                    self.children -= known.cut();
                    self.places.insert(child, Place { parent: directory, index: known.children.len() });
                    known.children.push(child);
                    known.listed += 1;
                    self.children += 1;
                }
            }
        }
        if let Some(known) = self.directories.get_mut(&directory).filter(|_| is_end) {
            self.children -= known.cut();
        }
    }

    /// What is expected to be listed after `directory`, the next first; what was asked for since an earlier question is named
    /// again.
    pub(crate) fn next(&mut self, directory: InodeId) -> Vec<InodeId> {
        if let Some(walk) = self.walk_of(directory).filter(|walk| walk.pause > 0) {
            walk.pause -= 1;
            return Vec::new();
        }
        let mut next = Vec::new();
        let (mut here, mut begin) = (directory, 0);
        for _ in 0..DEPTH_MAX {
            let Some(known) = self.directories.get(&here) else { break };
            let ahead = self.walks.get(&known.walk).map_or(AHEAD_MIN, |walk| walk.ahead);
            next.extend_from_slice(known.expected(begin, ahead.saturating_sub(next.len())));
            match self.place(here).filter(|_| next.len() < AHEAD_MAX) {
                Some(place) => (here, begin) = (place.parent, place.index + 1),
                None => break,
            }
        }
        next
    }

    fn walk_of(&mut self, directory: InodeId) -> Option<&mut Walk> {
        self.walks.get_mut(&self.directories.get(&directory)?.walk)
    }

    /// `directory`, which is being listed, had been asked for ahead not long before: more may be.
    pub(crate) fn was_right(&mut self, directory: InodeId) {
        if let Some(walk) = self.walk_of(directory) {
            walk.ahead = (walk.ahead + 1).min(AHEAD_MAX);
        }
    }

    /// These had been asked for ahead, and nobody came to them in time: their walks are slow, or have gone elsewhere.
    pub(crate) fn were_too_far(&mut self, late: &[InodeId]) {
        let walk = |&directory: &InodeId| Some(self.directories.get(&self.place(directory)?.parent)?.walk);
        // All that have come to their end together are one mistake.
        let walks: FxHashSet<InodeId> = late.iter().filter_map(walk).collect();
        for id in walks {
            if let Some(walk) = self.walks.get_mut(&id) {
                walk.ahead = AHEAD_MIN.max(walk.ahead / 2);
            }
        }
    }

    /// What was asked for ahead of `directory` says nothing of a moment later: the next ones are likely to be alike.
    pub(crate) fn was_in_vain(&mut self, directory: InodeId) {
        let Some(place) = self.place(directory) else { return };
        if let Some(walk) = self.walk_of(place.parent) {
            *walk = Walk { pause: PAUSE, ahead: AHEAD_MIN, ..*walk };
        }
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
        tours.finds(directory, found.iter().copied(), true);
        tours.next(directory)
    }

    #[test]
    fn who_goes_from_one_to_the_next_is_expected_at_those_after() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        assert!(list(&mut tours, ROOT, &all).is_empty());
        for (number, &directory) in all.iter().enumerate() {
            let after = number + 1;
            let expected =
                if number < RUN_MIN as usize - 1 { &[] } else { &all[after.min(20)..20.min(after + AHEAD_MIN)] };
            assert_eq!(list(&mut tours, directory, &[]), expected);
        }
    }

    #[test]
    fn the_more_guesses_were_right_the_more_are_made() {
        let mut tours = Tours::default();
        let all = children(1, 100);
        list(&mut tours, ROOT, &all);
        (0..3).for_each(|number| drop(list(&mut tours, all[number], &[])));
        for (number, &directory) in all.iter().enumerate().take(40).skip(3) {
            tours.begins(directory);
            tours.was_right(directory);
            assert_eq!(tours.next(directory).len(), AHEAD_MAX.min(AHEAD_MIN + number - 2));
        }
        // One is passed over.
        for number in [41, 42] {
            assert!(list(&mut tours, all[number], &[]).is_empty());
        }
        assert_eq!(list(&mut tours, all[43], &[]), all[44..44 + AHEAD_MIN]);
    }

    #[test]
    fn where_nobody_comes_in_time_only_half_as_many_guesses_are_made() {
        let mut tours = Tours::default();
        let (all, others) = (children(1, 100), children(2, 100));
        for (directory, within) in [(ROOT, &all), (InodeId(2), &others)] {
            list(&mut tours, directory, within);
            (0..3).for_each(|number| drop(list(&mut tours, within[number], &[])));
            (0..AHEAD_MAX).for_each(|_| tours.was_right(within[2]));
        }
        for (number, half) in [8, 4, AHEAD_MIN, AHEAD_MIN].into_iter().enumerate() {
            let at = 3 + number;
            tours.were_too_far(&all[at..at + 3]);
            assert_eq!(list(&mut tours, all[at], &[]).len(), half);
        }
        assert_eq!(list(&mut tours, others[3], &[]).len(), AHEAD_MAX, "another walk");
        tours.were_too_far(&[InodeId(77)]);
    }

    #[test]
    fn in_one_that_was_expected_its_own_come_first() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        list(&mut tours, ROOT, &all);
        (0..3).for_each(|number| drop(list(&mut tours, all[number], &[])));
        let within = children(2, 2);
        assert_eq!(list(&mut tours, all[3], &within), [within[0], within[1], all[4]]);
        let deeper = children(3, 1);
        assert_eq!(list(&mut tours, within[0], &deeper), [deeper[0], within[1], all[4]]);
        assert_eq!(list(&mut tours, deeper[0], &[]), [within[1], all[4], all[5]]);
        assert_eq!(list(&mut tours, within[1], &[]), all[4..7]);
        assert_eq!(list(&mut tours, all[4], &[]), all[5..8]);
    }

    /// As `find -maxdepth 2` does.
    #[test]
    fn nobody_is_expected_as_deep_as_directories_are_passed_over() {
        let mut tours = Tours::default();
        let all = children(1, 30);
        list(&mut tours, ROOT, &all);
        for (number, &directory) in (0..).zip(&all[..20]) {
            let within = children(10 + number, 5);
            let next = list(&mut tours, directory, &within);
            assert!(next.iter().all(|directory| !within.contains(directory)), "{number}");
        }
        // Another one enters them.
        for (number, &directory) in (20..).zip(&all[20..26]) {
            let within = children(10 + number, 5);
            let next = list(&mut tours, directory, &within);
            assert_eq!(next.contains(&within[0]), number > 20, "{number}");
            within.iter().for_each(|&directory| drop(list(&mut tours, directory, &[])));
        }
    }

    /// It enters the directories at one depth, and not those below, in all that come after.
    #[test]
    fn what_is_passed_over_is_known_of_a_whole_walk() {
        let mut tours = Tours::default();
        let all = children(1, 10);
        list(&mut tours, ROOT, &all);
        for number in 0..10 {
            let within = children(10 + number, 5);
            list(&mut tours, all[number as usize], &within);
            for (at, &directory) in within.iter().enumerate() {
                let deeper = children(100 + 10 * number + at as u64, 4);
                let next = list(&mut tours, directory, &deeper);
                let is_new = number == 2 && at == 0;
                assert!(is_new || next.iter().all(|directory| !deeper.contains(directory)), "{number} {at}");
            }
        }
    }

    #[test]
    fn walks_at_the_same_time_do_not_harm_each_other() {
        let mut tours = Tours::default();
        let all = children(1, 60);
        list(&mut tours, ROOT, &all);
        (0..30).for_each(|number| drop(list(&mut tours, all[number], &[])));
        // Another one begins at the same directory, and is behind.
        list(&mut tours, ROOT, &all);
        for number in 0..20 {
            assert_eq!(list(&mut tours, all[30 + number], &[]).len(), AHEAD_MIN);
            assert_eq!(list(&mut tours, all[number], &[]).len(), if number < 2 { 0 } else { AHEAD_MIN });
        }
        // And one within another directory, which finds nothing that could be asked for ahead.
        let (other, within) = (InodeId(2), children(2, 60));
        list(&mut tours, other, &within);
        (0..3).for_each(|number| drop(list(&mut tours, within[number], &[])));
        tours.was_in_vain(within[3]);
        assert!(list(&mut tours, within[3], &[]).is_empty());
        assert_eq!(list(&mut tours, all[50], &[]), all[51..51 + AHEAD_MIN]);
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
        tours.was_in_vain(all[3]);
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
        assert_eq!(list(&mut tours, now[2], &[]).len(), AHEAD_MIN);
        // Its last ones have gone.
        list(&mut tours, ROOT, &now[..8]);
        assert_eq!(tours.directories[&ROOT].children, now[..8]);
        assert_eq!(tours.children, 8);
    }

    #[test]
    fn what_is_told_twice_is_there_once() {
        let mut tours = Tours::default();
        let all = children(1, 20);
        tours.begins(ROOT);
        tours.finds(ROOT, all[..10].iter().copied(), false);
        (0..3).for_each(|_| tours.finds(ROOT, all[5..].iter().copied(), true));
        assert_eq!(tours.directories[&ROOT].children, all);
    }

    #[test]
    fn a_circle_has_an_end() {
        let mut tours = Tours::default();
        let (a, b) = (InodeId(1), InodeId(2));
        list(&mut tours, a, &[b]);
        assert!(list(&mut tours, b, &[a]).is_empty());
        let within = children(2, 9);
        tours.finds(b, within.iter().copied(), false);
        let told = within.iter().map(|&directory| list(&mut tours, directory, &[]).len());
        assert_eq!(told.collect::<Vec<_>>(), [0, 0, 3, 3, 3, 3, 2, 1, 0]);
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
        for number in 0..DIRECTORIES_MAX as u64 {
            tours.begins(InodeId(number));
            assert!(tours.walks.len() <= tours.directories.len());
        }
    }
}
