//! Bytes at their places in a file, the newest ones where several were put to one place. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use ring::buf::{Buf, Common, Growing, Slice};

/// Each run is a request of its own, and takes memory of its own: as much as so many bytes.
pub(crate) const RUN_WEIGHT: usize = 4 << 10;
/// A long write stays in the buffer that it came in, which is as long as one may be: bytes.
const WHOLE_WEIGHT: usize = 1 << 20;
/// A run of so many bytes is worth being written by itself; one that is shorter may still grow, where several processes fill a
/// file.
const RIPE: usize = 512 << 10;
/// Where such a run is still being added to, its end stays behind a multiple of this.
const ALIGN: u64 = 512 << 10;
/// A run that goes on at its end moves to memory that it will be sent from once it has so many bytes...
const GROWING_MIN: usize = if cfg!(test) { 24 } else { 64 << 10 };
/// ...with room up to the next multiple of this in the file. Both are small in tests, so that few bytes see all of it.
const GROWING_STEP: u64 = if cfg!(test) { 64 } else { 1 << 20 };
/// With so much of a file beside it, bytes, a run does not: each takes room of its thread's that is also needed for others.
const GROWING_BESIDE: usize = 4 << 20;

/// Bytes that follow each other.
#[derive(Debug)]
pub(crate) enum Run {
    /// Of several writes.
    Gathered(Vec<u8>),
    /// Of writes of which each went on where the one before it ended, in memory that they can be sent from.
    Growing(Growing),
    /// Of such writes, to which none is added any more.
    Grown(Common),
    /// Of one long write, as it came.
    Whole(Common),
}

impl Run {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Run::Gathered(bytes) => bytes,
            Run::Growing(bytes) => bytes,
            Run::Grown(bytes) | Run::Whole(bytes) => bytes,
        }
    }

    /// To be sent.
    pub(crate) fn slice(&self, range: Range<usize>) -> Slice {
        match self {
            Run::Grown(bytes) | Run::Whole(bytes) => Slice::from_common(bytes).slice(range),
            Run::Gathered(_) | Run::Growing(_) => {
                let mut data = Buf::shareable(range.len());
                data.copy_from_slice(&self.bytes()[range]);
                data.freeze()
            }
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn measures(&self) -> Measures {
        let (len, is_whole) = (self.len(), matches!(self, Run::Whole(_)));
        let memory = match self {
            Run::Whole(bytes) => bytes.len().max(WHOLE_WEIGHT),
            // Of the room that one has to grow no more is taken up than it has filled.
            Run::Gathered(_) | Run::Growing(_) | Run::Grown(_) => len,
        };
        let ripe = if is_whole || len >= RIPE { len } else { 0 };
        Measures { weight: RUN_WEIGHT + memory, work: RUN_WEIGHT + len, ripe }
    }

    fn ripe(&self) -> usize {
        self.measures().ripe
    }

    fn into_gathered(self) -> Vec<u8> {
        match self {
            Run::Gathered(bytes) => bytes,
            Run::Growing(_) | Run::Grown(_) | Run::Whole(_) => self.bytes().to_vec(),
        }
    }

    /// Splits off what comes after the first `len` bytes.
    fn split_off(&mut self, len: usize) -> Option<Run> {
        match self {
            Run::Gathered(bytes) => Some(Run::Gathered(bytes.split_off(len))),
            Run::Growing(bytes) => {
                let rest = bytes[len..].to_vec();
                bytes.truncate(len);
                Some(Run::Gathered(rest))
            }
            Run::Grown(_) | Run::Whole(_) => None,
        }
    }

    /// Nothing is added to it any more.
    fn sealed(self) -> Self {
        match self {
            Run::Growing(bytes) => Run::Grown(bytes.into_common()),
            other => other,
        }
    }
}

/// See the functions of [`Runs`] of these names. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Measures {
    weight: usize,
    work: usize,
    ripe: usize,
}

impl Measures {
    fn add(&mut self, other: Measures) {
        self.weight += other.weight;
        self.work += other.work;
        self.ripe += other.ripe;
    }

    fn subtract(&mut self, other: Measures) {
        self.weight -= other.weight;
        self.work -= other.work;
        self.ripe -= other.ripe;
    }
}

/// Runs of bytes that do not overlap. Those that were gathered do not touch each other, unless the second one is long.
#[derive(Default, Debug)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, Run>,
    measures: Measures,
    /// Where the last write ended, a short one.
    last_end: u64,
}

impl Runs {
    /// What it takes to keep them: the memory that they are in, and [`RUN_WEIGHT`] for each.
    pub(crate) fn weight(&self) -> usize {
        self.measures.weight
    }

    /// What it takes to write them: the bytes that they hold, and [`RUN_WEIGHT`] for each.
    pub(crate) fn work(&self) -> usize {
        self.measures.work
    }

    /// Bytes in runs that are worth being written by themselves.
    pub(crate) fn ripe(&self) -> usize {
        self.measures.ripe
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Some of these bytes are here.
    pub(crate) fn have_some_of(&self, range: &Range<u64>) -> bool {
        let last = self.runs.range(..range.end).next_back();
        last.is_some_and(|(&begin, run)| begin + run.len() as u64 > range.start)
    }

    /// All of these bytes, if one run has them.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<Slice> {
        let (&begin, run) = self.runs.range(..=range.start).next_back()?;
        let has_all = begin + run.len() as u64 >= range.end;
        has_all.then(|| run.slice((range.start - begin) as usize..(range.end - begin) as usize))
    }

    /// In the order of their offsets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs.iter().map(|(&offset, run)| (offset, run))
    }

    fn insert(&mut self, begin: u64, run: Run) {
        self.measures.add(run.measures());
        self.runs.insert(begin, run);
    }

    fn remove(&mut self, begin: u64) -> Option<Run> {
        let run = self.runs.remove(&begin)?;
        self.measures.subtract(run.measures());
        Some(run)
    }

    /// Whether a run that begins at `begin` and one that ends there or later become one.
    fn joins(&self, begin: u64, at: u64) -> bool {
        match self.runs.get(&begin) {
            Some(Run::Gathered(bytes)) => begin + bytes.len() as u64 >= at,
            Some(run) => begin + run.len() as u64 > at,
            None => false,
        }
    }

    /// Puts `data` to `offset`, over what is there.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) {
        let rest = self.put_at_end(offset, data);
        if !rest.is_empty() {
            self.put_anywhere(offset + (data.len() - rest.len()) as u64, rest);
        }
        self.last_end = offset + data.len() as u64;
    }

    /// Puts `data` to the beginning of the file: without copying it where there is nothing else.
    pub(crate) fn put_first(&mut self, data: Vec<u8>) {
        if !self.is_empty() || data.is_empty() {
            return self.put(0, &data);
        }
        self.last_end = data.len() as u64;
        self.insert(0, Run::Gathered(data));
    }

    /// Puts what there is room for into a growing run that has `offset` or ends there; the rest is given back.
    fn put_at_end<'a>(&mut self, offset: u64, data: &'a [u8]) -> &'a [u8] {
        let end = offset + data.len() as u64;
        let next = self.runs.range(offset + 1..).next().map(|(&begin, _)| begin);
        let Some((&begin, run)) = self.runs.range_mut(..=offset).next_back() else { return data };
        let (at, before) = ((offset - begin) as usize, run.measures());
        let Run::Growing(bytes) = run else { return data };
        if at > bytes.len() || next.is_some_and(|next| next < end) {
            return data;
        }
        let (over, behind) = data.split_at(data.len().min(bytes.len() - at));
        bytes[at..at + over.len()].copy_from_slice(over);
        let rest = bytes.fill(behind);
        self.measures.subtract(before);
        self.measures.add(run.measures());
        if rest.is_empty() {
            self.take_in(end);
        }
        rest
    }

    /// A growing run may end at `end`: what was gathered from there on goes on with it.
    fn take_in(&mut self, end: u64) {
        if !matches!(self.runs.get(&end), Some(Run::Gathered(_))) {
            return;
        }
        let follower = self.remove(end).map(Run::into_gathered).unwrap_or_default();
        let rest = self.put_at_end(end, &follower);
        if !rest.is_empty() {
            self.insert(end + (follower.len() - rest.len()) as u64, Run::Gathered(rest.to_vec()));
        }
    }

    fn put_anywhere(&mut self, offset: u64, data: &[u8]) {
        let before = self.runs.range(..=offset).next_back().map(|(&begin, _)| begin);
        let mut begin = before.filter(|&begin| self.joins(begin, offset)).unwrap_or(offset);
        let mut run = self.remove(begin).map(Run::into_gathered).unwrap_or_default();
        // What was long may have had a gathered one before it.
        if let Some((&first, _)) = self.runs.range(..begin).next_back()
            && self.joins(first, begin)
        {
            let front = self.remove(first).map(Run::into_gathered).unwrap_or_default();
            run.splice(..0, front);
            begin = first;
        }
        let (at, was) = ((offset - begin) as usize, run.len());
        let over = (run.len() - at).min(data.len());
        run[at..at + over].copy_from_slice(&data[..over]);
        run.extend_from_slice(&data[over..]);
        let goes_on = run.len() > was && (was > 0 || offset == self.last_end);
        while let Some((&next, follower)) = self.runs.range(offset..).next() {
            let end = begin + run.len() as u64;
            if next > end || next == end && !is_to_follow(follower, run.len()) {
                break;
            }
            let tail = self.remove(next).map(Run::into_gathered).unwrap_or_default();
            run.extend_from_slice(tail.get((end - next) as usize..).unwrap_or_default());
        }
        let is_to_grow = goes_on && run.len() >= GROWING_MIN && self.measures.weight < GROWING_BESIDE;
        let grows = if is_to_grow { growing(begin, &run) } else { None };
        self.insert(begin, grows.unwrap_or(Run::Gathered(run)));
    }

    /// As [`Self::put`], of a long write: without copying it where nothing else is at its place.
    pub(crate) fn put_whole(&mut self, offset: u64, data: Common) {
        self.put_run(offset, Run::Whole(data));
    }

    fn put_run(&mut self, offset: u64, run: Run) {
        let end = offset + run.len() as u64;
        let last = self.runs.range(..end).next_back();
        let overlaps = last.is_some_and(|(&begin, last)| begin + last.len() as u64 > offset);
        if overlaps || run.len() == 0 {
            self.put(offset, run.bytes());
        } else {
            self.insert(offset, run);
        }
    }

    /// Takes out what is worth being written by itself.
    pub(crate) fn take_ripe(&mut self) -> Self {
        let ripe: Vec<u64> = self.runs.iter().filter(|(_, run)| run.ripe() > 0).map(|(&begin, _)| begin).collect();
        let mut taken = Self::default();
        for begin in ripe {
            let Some(mut run) = self.remove(begin) else { continue };
            let end = (begin + run.len() as u64) / ALIGN * ALIGN;
            let len = end.saturating_sub(begin) as usize;
            if len >= RIPE
                && len < run.len()
                && let Some(rest) = run.split_off(len)
            {
                self.insert(end, rest);
            }
            taken.insert(begin, run.sealed());
        }
        taken
    }

    /// Takes out all.
    pub(crate) fn take_all(&mut self) -> Self {
        let mut taken = Self::default();
        self.measures = Measures::default();
        for (begin, run) in std::mem::take(&mut self.runs) {
            taken.insert(begin, run.sealed());
        }
        taken
    }

    /// Takes out what is at `size` or after it.
    pub(crate) fn cut(&mut self, size: u64) -> Self {
        let beyond: Vec<u64> = self.runs.range(size..).map(|(&begin, _)| begin).collect();
        let mut taken = Self::default();
        for begin in beyond {
            if let Some(run) = self.remove(begin) {
                taken.insert(begin, run);
            }
        }
        let Some((&begin, run)) = self.runs.iter().next_back() else { return taken };
        let len = usize::try_from(size - begin).unwrap_or(usize::MAX);
        if len < run.len()
            && let Some(run) = self.remove(begin)
        {
            let (front, back) = run.bytes().split_at(len);
            self.put(begin, front);
            taken.put(size, back);
        }
        taken
    }

    /// Puts all of `newer` over these.
    pub(crate) fn put_all(&mut self, newer: &Runs) {
        for (offset, run) in newer.iter() {
            match run {
                Run::Whole(bytes) => self.put_run(offset, Run::Whole(bytes.clone())),
                Run::Grown(bytes) => self.put_run(offset, Run::Grown(bytes.clone())),
                Run::Gathered(_) | Run::Growing(_) => self.put(offset, run.bytes()),
            }
        }
    }
}

/// Whether a run that begins where one of `len` bytes ends is copied to its end. A long one is not, as long as it is the longer
/// one: who writes a file from its end to its beginning would have all copied again by each write.
fn is_to_follow(follower: &Run, len: usize) -> bool {
    matches!(follower, Run::Gathered(bytes) if bytes.len() < GROWING_MIN.max(len))
}

/// What was gathered so far, with room for what goes on at its end. `None` where there is no such memory.
fn growing(begin: u64, bytes: &[u8]) -> Option<Run> {
    let end = (begin + bytes.len() as u64).next_multiple_of(GROWING_STEP);
    let mut growing = Growing::with_capacity((end - begin) as usize)?;
    growing.fill(bytes);
    Some(Run::Growing(growing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(runs: &Runs) -> Vec<(u64, Vec<u8>)> {
        runs.iter().map(|(offset, run)| (offset, run.bytes().to_vec())).collect()
    }

    /// This thread lends memory that runs can grow in.
    fn with_room_to_grow() -> Runs {
        ring::shared::lend(1 << 20);
        Runs::default()
    }

    fn common(bytes: &[u8]) -> Common {
        Slice::from_vec(bytes.to_vec()).into_common()
    }

    #[test]
    fn what_follows_grows_one_run() {
        let mut runs = Runs::default();
        runs.put(10, b"abc");
        runs.put(13, b"de");
        runs.put(8, b"xy");
        assert_eq!(all(&runs), [(8, b"xyabcde".to_vec())]);
        runs.put(20, b"z");
        assert_eq!((runs.iter().count(), runs.weight()), (2, 8 + 2 * RUN_WEIGHT));
    }

    #[test]
    fn what_comes_first_stays_where_it_is_and_others_go_on_with_it() {
        let (mut runs, first) = (Runs::default(), b"abc".to_vec());
        let address = first.as_ptr().addr();
        runs.put_first(Vec::new());
        assert!(runs.is_empty());
        runs.put_first(first);
        assert_eq!(runs.runs[&0].bytes().as_ptr().addr(), address);
        runs.put(3, b"de");
        runs.put_first(b"xy".to_vec());
        assert_eq!(all(&runs), [(0, b"xycde".to_vec())]);
    }

    #[test]
    fn long_writes_stay_what_they_are_unless_something_is_put_over_them() {
        let mut runs = Runs::default();
        runs.put_whole(10, common(b"0123456789"));
        runs.put_whole(20, common(b"abcdefghij"));
        runs.put(30, b"end");
        runs.put(5, b"begin");
        assert_eq!(runs.iter().count(), 4);
        assert_eq!(runs.ripe(), 20);
        assert!(matches!(runs.runs[&10], Run::Whole(_)));
        runs.put_whole(15, common(b"over"));
        assert_eq!(all(&runs)[0], (5, b"begin01234over9".to_vec()));
        assert_eq!((runs.iter().count(), runs.ripe()), (3, 10));
    }

    #[test]
    fn only_what_is_ripe_goes_and_of_what_still_grows_whole_multiples() {
        let mut runs = Runs::default();
        let ripe = vec![1; RIPE + 1000];
        runs.put(0, &ripe);
        runs.put(4 * ALIGN, &[2; 1000]);
        runs.put_whole(8 * ALIGN, common(&[3; 1000]));
        runs.put(10 * ALIGN - 10, &ripe);
        let taken = runs.take_ripe();
        let places = |runs: &Runs| runs.iter().map(|(at, run)| (at, run.len())).collect::<Vec<_>>();
        assert_eq!(places(&taken), [(0, RIPE), (8 * ALIGN, 1000), (10 * ALIGN - 10, RIPE + 10)]);
        assert_eq!(places(&runs), [(RIPE as u64, 1000), (4 * ALIGN, 1000), (11 * ALIGN, 990)]);
        assert_eq!((runs.ripe(), taken.ripe()), (0, 2 * RIPE + 1010));
    }

    #[test]
    fn what_goes_on_is_sent_from_where_it_was_put() {
        let mut runs = with_room_to_grow();
        runs.put(10, &[1; 20]);
        runs.put(30, &[2; 10]);
        assert!(
            matches!(&runs.runs[&10], Run::Growing(bytes) if bytes.capacity() == 54),
            "up to a multiple in the file"
        );
        let address = runs.runs[&10].bytes().as_ptr().addr();
        runs.put(50, &[4; 10]);
        runs.put(40, &[3; 10]);
        assert_eq!(runs.iter().count(), 1, "what filled the gap has taken in what came behind it");
        runs.put(60, &[5; 10]);
        let pieces = |runs: &Runs| runs.iter().map(|(at, run)| (at, run.len())).collect::<Vec<_>>();
        assert_eq!(pieces(&runs), [(10, 54), (64, 6)], "there is no room for more");
        runs.put(12, &[6; 40]);
        let measures = (runs.weight(), runs.work(), runs.ripe());
        assert_eq!(measures, (2 * RUN_WEIGHT + 60, 2 * RUN_WEIGHT + 60, 0));

        let taken = runs.take_all();
        runs.put(64, &[7; GROWING_MIN]);
        assert!(matches!(runs.runs[&64], Run::Gathered(_)), "it was not written where the last one ended");
        runs.take_all();
        runs.put(64 + GROWING_MIN as u64, &[7; GROWING_MIN]);
        assert!(matches!(runs.runs[&88], Run::Growing(_)), "it was");
        runs.take_all();
        assert!(runs.is_empty() && runs.measures == Measures::default());
        assert_eq!(taken.weight(), 2 * RUN_WEIGHT + 60, "as much as before it was on its way");
        let expected = [vec![1; 2], vec![6; 40], vec![4; 8], vec![5; 4]].concat();
        assert_eq!(all(&taken), [(10, expected), (64, vec![5; 6])]);
        assert_eq!(taken.runs[&10].slice(0..54).as_ptr().addr(), address);
    }

    #[test]
    fn what_is_written_backwards_is_not_copied_by_each_write() {
        let mut runs = with_room_to_grow();
        (0..20 * GROWING_MIN as u64).rev().for_each(|at| runs.put(at, &[at as u8]));
        let bytes: Vec<u8> = runs.iter().flat_map(|(_, run)| run.bytes().to_vec()).collect();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == at as u8) && bytes.len() == 20 * GROWING_MIN);
        let lengths: Vec<usize> = runs.iter().map(|(_, run)| run.len()).collect();
        assert_eq!(lengths, [GROWING_MIN; 20]);
        runs.put(0, &[9; 3 * GROWING_MIN]);
        assert_eq!(runs.iter().count(), 1, "what is longer takes a long one in, and is longer then");
    }

    proptest! {
        #[test]
        fn is_as_bytes_written_one_after_the_other(
            writes in prop::collection::vec(
                (0usize..200, prop::collection::vec(1u8.., 0..40), any::<bool>(), any::<bool>()), 0..30),
            half in 0usize..30,
            is_taken in any::<bool>(),
            cut in prop::option::of(0usize..250),
            read in (0usize..260, 1usize..30),
        ) {
            let mut model = vec![0u8; 300];
            let (mut older, mut newer) = (with_room_to_grow(), Runs::default());
            let mut end = 0;
            for (number, (offset, data, is_whole, goes_on)) in writes.iter().enumerate() {
                let offset = if *goes_on && end < 250 { end } else { *offset };
                end = offset + data.len();
                model[offset..end].copy_from_slice(data);
                let runs = if number < half { &mut older } else { &mut newer };
                if *is_whole { runs.put_whole(offset as u64, common(data)) } else { runs.put(offset as u64, data) }
            }
            older.put_all(&newer);
            if is_taken {
                older = older.take_all();
            }
            if let Some(cut) = cut {
                let whole = all(&older);
                let taken = older.cut(cut as u64);
                let mut both = Runs::default();
                both.put_all(&taken);
                both.put_all(&older);
                let bytes = |runs: &[(u64, Vec<u8>)]| {
                    let each = |(at, run): &(u64, Vec<u8>)| (*at..).zip(run.clone()).collect::<Vec<_>>();
                    runs.iter().flat_map(each).collect::<Vec<_>>()
                };
                prop_assert_eq!(bytes(&all(&both)), bytes(&whole), "nothing is lost");
                prop_assert!(taken.iter().all(|(offset, _)| offset >= cut as u64));
                model.get_mut(cut..).into_iter().for_each(|rest| rest.fill(0));
            }
            let mut seen = vec![0u8; 300];
            let mut last: Option<(u64, bool)> = None;
            for (offset, run) in older.iter() {
                let is_short = matches!(run, Run::Gathered(_)) && run.len() < GROWING_MIN;
                let follows = last.is_none_or(|(end, gathered)| offset > end || offset == end && !(gathered && is_short));
                prop_assert!(follows, "runs that overlap, or should be one");
                last = Some((offset + run.len() as u64, matches!(run, Run::Gathered(_))));
                seen[offset as usize..offset as usize + run.len()].copy_from_slice(run.bytes());
            }
            prop_assert_eq!(&seen, &model);
            let (begin, end) = (read.0, read.0 + read.1);
            let (range, expected) = (begin as u64..end as u64, &model[begin..end]);
            prop_assert_eq!(older.have_some_of(&range), expected.iter().any(|&byte| byte != 0));
            match older.find(&range) {
                Some(found) => prop_assert_eq!(&found[..], expected),
                // Several may have it.
                None => {
                    let ends = |(offset, run): (u64, &Run)| range.contains(&(offset + run.len() as u64));
                    prop_assert!(expected.contains(&0) || older.iter().any(ends));
                }
            }
            let bytes: usize = older.iter().map(|(_, run)| run.len()).sum();
            prop_assert_eq!(bytes, model.iter().filter(|&&byte| byte != 0).count());
            let mut measures = Measures::default();
            older.iter().for_each(|(_, run)| measures.add(run.measures()));
            prop_assert_eq!(older.measures, measures);
        }
    }
}
