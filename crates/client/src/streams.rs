//! Who reads a file on, piece after piece, and how much of it to ask for ahead of them. A file may have several readers at
//! different places, or processes that take turns, each of which reads every so many'th piece: what was asked for one of them
//! is there for all. Decisions alone: what is asked for, and how, is [`crate::ahead`]'s.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::streams::stream::{FARTHEST, Stream, near};

mod stream; // where one reader goes on

/// Streams of one file that are known at a time: those of the threads of a loader, or of the processes on a large host.
const STREAMS_MAX: usize = 128;
/// Where a file has more, they are looked after though nothing is asked for: they take memory.
const FEW: usize = 8;
/// So many of too many are looked at at least for one to give up.
const LOOKED_AT: usize = 8;
/// What is asked for at once is as long as what is read, within these bounds, bytes...
const RUN: Range<u64> = 512 << 10..1 << 20;
/// ...and ends at a multiple of a power of two up to this, so that it meets few chunks.
const ALIGN_MAX: u64 = 512 << 10;
/// What was asked for of one file and not read yet, bytes. Where there is no room for more, who has got ahead reads by
/// itself, and those who come behind catch up.
const KEPT_MAX: u64 = 64 << 20;
/// Whoever has not come after so many reads of the file has gone elsewhere: there is room again. Or after so many rounds, where
/// its readers take longer ones.
const GONE_AFTER: u64 = 64;
const GONE_AFTER_ROUNDS: u64 = 4;
/// What is asked for is worth it where one part in so many of it is read.
const WORTH: u64 = 4;
/// What nobody has come for after so long is given up.
pub(crate) const KEEP: Duration = Duration::from_secs(2);

/// A part of a file, asked for ahead of its readers: `[begin, end)`.
#[derive(Clone, Debug)]
pub(crate) struct Run<T> {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Bytes that were not read yet.
    left: u64,
    /// The read that asked for it, or had some of it, among those of the file.
    used: u64,
    used_at: Instant,
    /// It was worth it, and that has been counted.
    counted: bool,
    pub(crate) what: T,
}

impl<T> Run<T> {
    fn len(&self) -> u64 {
        self.end - self.begin
    }

    fn is_untouched(&self) -> bool {
        self.left == self.len()
    }

    /// Less was read of it than makes up for it.
    fn is_in_vain(&self) -> bool {
        self.len() - self.left < self.len() / WORTH
    }

    /// `from_begin`: the read is that of a stream that comes to its begin. True once: it is worth it. Who comes upon one in its
    /// midst may be one that leaves out much.
    fn counts(&mut self, from_begin: bool) -> bool {
        let is_first = !self.counted && (from_begin || !self.is_in_vain());
        self.counted |= is_first;
        is_first
    }
}

/// Those of one file, and what was asked for ahead of them.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    /// Of the content that is read: what was asked of another one is worth nothing.
    number: u64,
    /// By where they go on.
    streams: Vec<Stream>,
    /// Where it was looked last for one to give up.
    hand: usize,
    /// So many of them are read on.
    read_on: usize,
    /// By where they begin; they do not overlap.
    runs: BTreeMap<u64, Run<T>>,
    /// Sum of their lengths.
    kept: u64,
    reads: u64,
    /// From one read of a stream to its next one, lately at most: reads of the file.
    round: u64,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self { number: 0, streams: Vec::new(), hand: 0, read_on: 0, runs: BTreeMap::new(), kept: 0, reads: 0, round: 0 }
    }
}

impl<T: Clone> Streams<T> {
    /// `piece`, which is not empty, of the content `number`, of `size` bytes, is being read. Answers the runs that have all of
    /// it, or none. `ask` asks for a range of the file; `None` where there is no room for it.
    pub(crate) fn read(
        &mut self,
        number: u64,
        piece: Range<u64>,
        size: u64,
        now: Instant,
        ask: impl FnMut(Range<u64>) -> Option<T>,
    ) -> Vec<Run<T>> {
        if self.number != number {
            *self = Self { number, ..Self::default() };
        }
        self.reads += 1;
        let (found, comes) = self.take(&piece, now);
        let Some(at) = self.stream_of(&piece, !found.is_empty(), now) else { return found };
        let stream = &mut self.streams[at];
        let was_read_on = stream.is_read_on();
        self.round = (self.round - self.round / 16).max(self.reads - stream.read);
        stream.goes_on(&piece, self.reads, now);
        if comes {
            stream.comes(now);
        }
        let is_read_on = stream.is_read_on();
        self.read_on = self.read_on + usize::from(is_read_on) - usize::from(was_read_on);
        if is_read_on {
            let share = KEPT_MAX / 2 / self.read_on as u64;
            let len = piece.end - piece.start;
            let farthest = stream.farthest.min(share).max(len);
            let begin = stream.next;
            let run = len.clamp(RUN.start, RUN.end).min(farthest);
            self.ask(begin..begin.saturating_add(farthest).min(size), (run, size), now, ask);
        }
        self.put_in_order(at);
        found
    }

    /// The runs that have all of `piece`, which is read of them now; and whether its stream has come to one of them.
    fn take(&mut self, piece: &Range<u64>, now: Instant) -> (Vec<Run<T>>, bool) {
        let Some(first) = self.covering(piece.start) else { return (Vec::new(), false) };
        let goes_on = self.streams.binary_search_by_key(&piece.start, |stream| stream.next).is_ok();
        let (mut found, mut comes, mut at) = (Vec::new(), false, piece.start);
        let mut emptied = Vec::new();
        for run in self.runs.range_mut(first..piece.end).map(|(_, run)| run) {
            if run.begin > at {
                break;
            }
            run.left = run.left.saturating_sub(run.end.min(piece.end) - at);
            comes |= run.counts(goes_on && piece.start <= run.begin);
            (run.used, run.used_at) = (self.reads, now);
            at = run.end;
            found.push(run.clone());
            if run.left == 0 {
                emptied.push(run.begin);
            }
        }
        for begin in emptied {
            self.remove(begin);
        }
        if at >= piece.end { (found, comes) } else { (Vec::new(), comes) }
    }

    /// Where the run begins that has `at`.
    fn covering(&self, at: u64) -> Option<u64> {
        self.runs.range(..=at).next_back().filter(|(_, run)| at < run.end).map(|(&begin, _)| begin)
    }

    /// The one that the read goes on with: of several the nearest, and of those the one that has gone on for longest. `None` of
    /// a new one, and of one that comes behind another.
    fn stream_of(&mut self, piece: &Range<u64>, is_here: bool, now: Instant) -> Option<usize> {
        let nearest = self.nearest(piece, is_here);
        if nearest.is_none() && !is_here {
            self.make_room_for_stream(now);
            let at = self.first_from(piece.end);
            self.streams.insert(at, Stream::new(piece, self.reads, now));
        }
        nearest
    }

    /// That which has just come there; else one that is near, for reads may come in another order; else, where the read finds
    /// what was asked for, one that this was asked for.
    fn nearest(&self, piece: &Range<u64>, is_here: bool) -> Option<usize> {
        let away = |at: usize| self.streams[at].next.abs_diff(piece.start);
        let longest = |below: u64, above: u64, may_have: &dyn Fn(usize) -> bool| {
            let first = self.first_from(piece.start.saturating_sub(below));
            let behind = self.first_from(piece.start.saturating_add(above + 1));
            let some = (first..behind).filter(|&at| may_have(at));
            some.max_by_key(|&at| (self.streams[at].points, Reverse(away(at))))
        };
        let near = near(piece);
        let is_ahead = |at: usize| away(at) <= self.streams[at].farthest;
        longest(0, 0, &|_| true)
            .or_else(|| longest(near, near, &|_| true))
            .or_else(|| is_here.then(|| longest(FARTHEST, 0, &is_ahead))?)
    }

    /// The first stream that goes on at `from` or behind.
    fn first_from(&self, from: u64) -> usize {
        self.streams.partition_point(|stream| stream.next < from)
    }

    /// The stream at `at` has gone on.
    fn put_in_order(&mut self, at: usize) {
        let next = self.streams[at].next;
        let passed = self.streams[at + 1..].partition_point(|stream| stream.next < next);
        self.streams[at..=at + passed].rotate_left(1);
    }

    /// Forgets those of old before there are more than ever, and one of too many.
    fn make_room_for_stream(&mut self, now: Instant) {
        if self.streams.len() >= STREAMS_MAX {
            let dispensable = self.dispensable();
            let stream = self.streams.remove(dispensable);
            self.read_on -= usize::from(stream.is_read_on());
        } else if self.streams.len() == self.streams.capacity() {
            self.forget_old(now);
        }
    }

    /// The oldest of the next few among which one is not read on; of all where each is.
    fn dispensable(&mut self) -> usize {
        let len = self.streams.len();
        let key = |streams: &[Stream], at: usize| (streams[at].is_read_on(), streams[at].read);
        let mut oldest = self.hand % len;
        for looked in 1..len {
            self.hand = (self.hand + 1) % len;
            if key(&self.streams, self.hand) < key(&self.streams, oldest) {
                oldest = self.hand;
            }
            if looked >= LOOKED_AT && !self.streams[oldest].is_read_on() {
                break;
            }
        }
        oldest
    }

    fn forget_old(&mut self, now: Instant) {
        self.streams.retain(|stream| now.saturating_duration_since(stream.read_at) < KEEP);
        self.read_on = self.streams.iter().filter(|stream| stream.is_read_on()).count();
    }

    /// Asks for what is not there of `wanted`, in runs of about the length `run`.
    fn ask(
        &mut self,
        wanted: Range<u64>,
        (run, size): (u64, u64),
        now: Instant,
        mut ask: impl FnMut(Range<u64>) -> Option<T>,
    ) {
        let align = (1 << run.ilog2()).min(ALIGN_MAX);
        let mut begin = wanted.start;
        while begin < wanted.end {
            if let Some(run) = self.covering(begin).and_then(|first| self.runs.get(&first)) {
                begin = run.end;
                continue;
            }
            let next = self.runs.range(begin..).next().map_or(size, |(&next, _)| next);
            let end = begin.saturating_add(run);
            let end = (end / align * align).max(begin + align / 2).min(next);
            let len = end - begin;
            if !self.make_room(len, now) {
                return;
            }
            let Some(what) = ask(begin..end) else { return };
            self.kept += len;
            let (used, used_at) = (self.reads, now);
            self.runs.insert(begin, Run { begin, end, left: len, used, used_at, counted: false, what });
            begin = end;
        }
    }

    fn make_room(&mut self, len: u64, now: Instant) -> bool {
        let gone_after = GONE_AFTER.max(GONE_AFTER_ROUNDS * self.round);
        while self.kept + len > KEPT_MAX {
            let is_left = |run: &&Run<T>| {
                run.is_untouched() && run.used + gone_after < self.reads
                    || now.saturating_duration_since(run.used_at) >= KEEP
            };
            let oldest = self.runs.values().filter(is_left).min_by_key(|run| run.used).map(|run| run.begin);
            match oldest {
                Some(oldest) => self.give_up(oldest),
                None => return false,
            }
        }
        true
    }

    fn remove(&mut self, begin: u64) -> Option<Run<T>> {
        let run = self.runs.remove(&begin)?;
        self.kept -= run.len();
        Some(run)
    }

    /// Nobody has come for it. Who did not come far enough, or went past it, has less asked for.
    fn give_up(&mut self, begin: u64) {
        let Some(run) = self.remove(begin).filter(Run::is_in_vain) else { return };
        let above = self.first_from(run.begin);
        let away = |at: &usize| self.streams[*at].next.abs_diff(run.begin);
        let nearest = (above.saturating_sub(1)..self.streams.len().min(above + 1)).min_by_key(away);
        if let Some(at) = nearest.filter(|at| away(at) <= FARTHEST) {
            // A piece at least is asked for all the same.
            self.streams[at].farthest /= 2;
        }
    }

    pub(crate) fn are_many(&self) -> bool {
        self.streams.len() > FEW
    }

    /// The end of what was asked for.
    #[cfg(test)]
    pub(crate) fn reaches(&self) -> u64 {
        self.runs.values().next_back().map_or(0, |run| run.end)
    }

    /// These bytes are others now: what was asked for of them is worth nothing.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        while let Some((&begin, run)) = self.runs.range(..range.end).next_back() {
            if run.end <= range.start {
                return;
            }
            self.remove(begin);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }

    /// Forgets who has not read on for long, and what nobody has come for. False where there is nothing any more.
    pub(crate) fn tidy(&mut self, now: Instant) -> bool {
        self.forget_old(now);
        self.streams.shrink_to_fit();
        let left = self.runs.values().filter(|run| now.saturating_duration_since(run.used_at) >= KEEP);
        let left: Vec<u64> = left.map(|run| run.begin).collect();
        left.into_iter().for_each(|begin| self.give_up(begin));
        !self.streams.is_empty() || !self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::streams::stream::FIRST;

    const MIB: u64 = 1 << 20;

    /// A file of `size` bytes whose readers note what is asked for.
    struct Bed {
        streams: Streams<()>,
        size: u64,
        now: Instant,
        asked: Vec<Range<u64>>,
        room: bool,
        /// So much was kept at a time, at most.
        most: u64,
        tidied: Instant,
    }

    impl Bed {
        fn new(size: u64) -> Self {
            let now = Instant::now();
            Self { streams: Streams::default(), size, now, asked: Vec::new(), room: true, most: 0, tidied: now }
        }

        fn read(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
            let ask = |range| self.room.then(|| self.asked.push(range));
            let runs = self.streams.read(1, offset..(offset + len).min(self.size), self.size, self.now, ask);
            self.most = self.most.max(self.streams.kept);
            runs.iter().map(|run| run.begin..run.end).collect()
        }

        /// Every so often somebody tidies up.
        fn passes(&mut self, time: Duration) {
            self.now += time;
            if self.now - self.tidied >= KEEP {
                self.tidied = self.now;
                self.streams.tidy(self.now);
            }
        }

        /// All that was asked for.
        fn bytes(&self) -> u64 {
            self.asked.iter().map(|range| range.end - range.start).sum()
        }

        fn asked_up_to(&self) -> u64 {
            self.asked.last().map_or(0, |range| range.end)
        }

        fn runs(&self) -> usize {
            self.streams.runs.len()
        }
    }

    #[test]
    fn who_reads_on_finds_more_and_more() {
        let mut bed = Bed::new(100 * MIB);
        let mut asked = Vec::new();
        for at in 0..6 {
            assert_eq!(bed.read(at * MIB, MIB).len(), usize::from(at > 1), "at {at}");
            asked.push(bed.asked_up_to() / MIB);
        }
        assert_eq!(asked, [0, 3, 5, 8, 9, 10]);
        assert!(bed.read(50 * MIB, MIB).is_empty(), "elsewhere");
        assert_eq!(bed.read(6 * MIB, MIB).len(), 1, "who is elsewhere is another one");
    }

    #[test]
    fn short_pieces_are_read_ahead_of_in_long_ones() {
        let mut bed = Bed::new(100 * MIB);
        bed.read(3 * MIB + 4096, 4096);
        bed.read(3 * MIB + 8192, 4096);
        assert_eq!(bed.asked, [], "one may follow by chance");
        bed.read(3 * MIB + 12_288, 4096);
        assert_eq!(bed.asked, [3 * MIB + 16_384..3 * MIB + (128 << 10), 3 * MIB + (128 << 10)..3 * MIB + (256 << 10)]);
        let mut found = 0;
        for at in 4..1000 {
            found += bed.read(3 * MIB + at * 4096, 4096).len();
        }
        assert_eq!(found, 996, "each lies in one run");
        assert!(bed.asked_up_to() <= 3 * MIB + 1000 * 4096 + FARTHEST + RUN.end);
        assert!(bed.asked.len() < 20, "{:?}", bed.asked);
        assert!(bed.asked[2..].windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(bed.asked[4..].iter().all(|range| range.end % ALIGN_MAX == 0), "{:?}", bed.asked);
    }

    #[test]
    fn processes_that_take_turns_are_one_stream() {
        const LEN: u64 = 47_008;
        const PIECES: u64 = 4000;
        let mut bed = Bed::new(PIECES * LEN);
        let mut found = 0;
        let mut done = [0_u64; 4];
        let mut dice = 1_u64;
        // None of them waits for the others, up to a bound.
        while done.iter().sum::<u64>() < PIECES {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let process = (dice >> 60) as usize % 4;
            let least = *done.iter().min().expect("four");
            if done[process] < PIECES / 4 && done[process] < least + 40 {
                found += usize::from(!bed.read((4 * done[process] + process as u64) * LEN, LEN).is_empty());
                done[process] += 1;
            }
        }
        assert!(found > 3800, "{found} of {PIECES} pieces were there");
        assert!(bed.bytes() <= PIECES * LEN, "{} were asked for", bed.bytes());
    }

    #[test]
    fn several_readers_at_their_own_places_are_several_streams() {
        let mut bed = Bed::new(1000 * MIB);
        for at in 0..20 {
            for reader in 0..6 {
                let found = bed.read(reader * 100 * MIB + at * 65_536, 65_536);
                assert_eq!(found.is_empty(), at < 3 - u64::from(reader == 0), "{at} of {reader}");
            }
        }
    }

    #[test]
    fn readers_as_many_as_a_loader_has_do_not_drive_each_other_out() {
        const READERS: u64 = 128;
        const APART: u64 = 4 * MIB;
        let mut bed = Bed::new(READERS * APART);
        let mut missed = 0;
        for at in 0..64 {
            for reader in 0..READERS {
                // They come in no order.
                let reader = reader * 37 % READERS;
                missed += u64::from(bed.read(reader * APART + at * 65_536, 65_536).is_empty());
            }
        }
        assert!(missed <= 3 * READERS, "{missed} pieces were not there");
        assert!(bed.bytes() <= READERS * APART + KEPT_MAX, "{} were asked for", bed.bytes());
        assert!(bed.most <= KEPT_MAX);
    }

    #[test]
    fn who_jumps_about_drives_nobody_out() {
        let mut bed = Bed::new(10_000 * MIB);
        let mut missed = 0;
        for at in 0..64 {
            for reader in 0..20 {
                missed += u64::from(bed.read(reader * 100 * MIB + at * 65_536, 65_536).is_empty());
                for jump in 0..if at < 3 { 0 } else { 20_u64 } {
                    let place = (at * 400 + reader * 20 + jump).wrapping_mul(7919 * 4096) % (7000 * MIB);
                    bed.read(3000 * MIB + place, 4096);
                }
            }
        }
        assert!(missed <= 3 * 20, "{missed} pieces were not there");
    }

    #[test]
    fn a_slow_reader_has_little_asked_for() {
        const STEPS: u64 = 600;
        let mut bed = Bed::new(1000 * MIB);
        for at in 0..STEPS {
            bed.read(100 * MIB + at * 4096, 4096);
            // Others are in a hurry.
            (0..40).for_each(|step| drop(bed.read(500 * MIB + (at * 40 + step) * 4096, 4096)));
            bed.passes(KEEP / 2);
        }
        let slow = bed.asked.iter().filter(|range| range.start < 400 * MIB).map(|range| range.end - range.start);
        let asked: u64 = slow.sum();
        assert!(asked < 2 * STEPS * 4096, "{asked} were asked for, {} read", STEPS * 4096);
        let others = bed.bytes() - asked;
        assert!(others < 3 * STEPS * 40 * 4096, "{others} were asked for by the others");
    }

    #[test]
    fn who_leaves_out_much_has_no_more_and_more_asked_for() {
        let mut bed = Bed::new(1000 * MIB);
        (0..3).for_each(|at| drop(bed.read(at * 4096, 4096)));
        for at in 1..100 {
            bed.read(at * 100_000, 4096);
            assert!(bed.streams.streams.iter().all(|stream| stream.farthest <= 2 * FIRST.start), "at {at}");
        }
        assert!(bed.bytes() <= 100 * 100_000 + RUN.end, "{} were asked for", bed.bytes());
        bed.passes(KEEP);
        let before = bed.bytes();
        (100..200).for_each(|at| drop(bed.read(at * 100_000, 4096)));
        assert_eq!(bed.bytes(), before, "what was asked for was not read");
    }

    #[test]
    fn a_run_counts_once_from_its_begin_or_when_enough_of_it_was_read() {
        let run = |left| Run { begin: 0, end: 100, left, used: 0, used_at: Instant::now(), counted: false, what: () };
        let counts = |left, from_begin| {
            let mut run = run(left);
            (run.counts(from_begin), run.counts(true))
        };
        assert_eq!(counts(99, true), (true, false));
        assert_eq!(counts(76, false), (false, true));
        assert_eq!(counts(75, false), (true, false));
    }

    #[test]
    fn streams_take_memory_as_long_as_they_are_used() {
        let mut bed = Bed::new(1000 * MIB);
        for at in 0..10_000 {
            bed.read(at * 7919 * 4096 % (999 * MIB), 4096);
            bed.now += KEEP / 8;
        }
        assert!(bed.streams.streams.capacity() <= 16, "of a few at a time");
        bed.streams.tidy(bed.now + KEEP);
        assert_eq!(bed.streams.streams.capacity(), 0);
    }

    #[test]
    fn who_jumps_about_gets_nothing_and_leaves_little() {
        let mut bed = Bed::new(1000 * MIB);
        for at in 0..1000_u64 {
            assert!(bed.read(at.wrapping_mul(7919 * 4096) % (999 * MIB), 4096).is_empty());
        }
        assert_eq!((bed.asked.len(), bed.streams.streams.len()), (0, STREAMS_MAX));
    }

    #[test]
    fn what_was_asked_of_another_content_is_worth_nothing() {
        let mut bed = Bed::new(100 * MIB);
        (0..3).for_each(|at| drop(bed.read(at * MIB, MIB)));
        let found = bed.streams.read(2, 3 * MIB..4 * MIB, 100 * MIB, bed.now, |_| Some(()));
        assert!(found.is_empty());
        assert_eq!(bed.runs(), 0);
    }

    #[test]
    fn what_was_asked_for_of_bytes_that_changed_is_asked_for_again() {
        let mut bed = Bed::new(100 * MIB);
        (0..3).for_each(|at| drop(bed.read(at * MIB, MIB)));
        let (begin, asked) = (4 * MIB, bed.asked_up_to());
        assert!(asked > begin);
        bed.streams.forget(&(begin - 1..begin - 1));
        bed.streams.forget(&(begin - 1..begin));
        assert!(bed.read(3 * MIB, MIB).is_empty(), "a byte of it");
        let again: Vec<_> = bed.asked.iter().filter(|range| range.contains(&begin)).collect();
        assert_eq!(again.len(), 1, "what follows is as it was");
        bed.streams.forget(&(begin..100 * MIB));
        assert_eq!((bed.runs(), bed.streams.kept), (0, 0));
        bed.read(4 * MIB, MIB);
        assert_eq!(bed.read(5 * MIB, MIB).len(), 1, "who reads on is read ahead of as before");
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end() {
        let size = 3 * MIB + 77;
        let mut bed = Bed::new(size);
        (0..3).for_each(|at| drop(bed.read(at * MIB, MIB)));
        assert_eq!(bed.asked_up_to(), size);
        assert_eq!(bed.read(3 * MIB, MIB).len(), 1);
    }

    #[test]
    fn pieces_that_touch_several_runs_get_all_of_them() {
        let mut bed = Bed::new(100 * MIB);
        let step = MIB * 3 / 4;
        (0..5).for_each(|at| drop(bed.read(at * step, step)));
        let found = bed.read(5 * step, step + MIB);
        assert!(found.len() > 1 && found[0].start <= 5 * step && found[found.len() - 1].end >= 6 * step + MIB);
        assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn where_there_is_no_room_a_reader_asks_by_itself() {
        let mut bed = Bed::new(100 * MIB);
        (0..3).for_each(|at| drop(bed.read(at * MIB, MIB)));
        bed.room = false;
        assert!((3..10).all(|at| bed.read(at * MIB, MIB).is_empty() == (at >= 5)));
        bed.room = true;
        bed.read(10 * MIB, MIB);
        assert_eq!(bed.read(11 * MIB, MIB).len(), 1);
    }

    #[test]
    fn who_gets_far_ahead_reads_by_itself_until_the_others_come() {
        const LEN: u64 = 65_536;
        let mut bed = Bed::new(4000 * MIB);
        // One reads each second piece.
        let ahead = |bed: &mut Bed, at: u64| !bed.read(2 * at * LEN, LEN).is_empty();
        let found = (0..1000).filter(|&at| ahead(&mut bed, at)).count() as u64;
        assert!(found > 500 && found * 2 * LEN < KEPT_MAX + MIB, "{found} of 1000");
        // The other one finds the rest, and makes room with that.
        let behind = (0..1000).filter(|&at| !bed.read((2 * at + 1) * LEN, LEN).is_empty()).count() as u64;
        assert!(behind > found - 10, "{behind}");
        assert!((1000..1010).any(|at| ahead(&mut bed, at)));
    }

    #[test]
    fn what_was_asked_for_in_vain_gives_way() {
        let mut bed = Bed::new(20_000 * MIB);
        for place in 0..500 {
            // Each place is left after four pieces.
            let found = (0..4).filter(|at| !bed.read(place * 32 * MIB + at * MIB, MIB).is_empty()).count();
            assert_eq!(found, if place == 0 { 2 } else { 1 }, "at {place}");
        }
    }

    #[test]
    fn who_is_gone_is_forgotten_in_time() {
        let mut bed = Bed::new(100 * MIB);
        bed.read(0, 1);
        assert!(bed.streams.tidy(bed.now + KEEP / 2));
        assert!(!bed.streams.tidy(bed.now + KEEP));
    }

    #[test]
    fn what_nobody_comes_for_is_given_up_though_others_read_on() {
        let mut bed = Bed::new(1000 * MIB);
        (0..3).for_each(|at| drop(bed.read(at * MIB, MIB)));
        let left = bed.streams.kept;
        bed.now += KEEP;
        (0..3).for_each(|at| drop(bed.read((500 + at) * MIB, MIB)));
        assert!(left > 0 && bed.streams.kept > left);
        let theirs = bed.streams.kept - left;
        assert!(bed.streams.tidy(bed.now));
        assert_eq!(bed.streams.kept, theirs);
    }

    proptest! {
        /// Whatever is read, what is found has all of it, and what is kept is bounded.
        #[test]
        fn what_is_found_is_whole(
            reads in prop::collection::vec((0u64..30 * MIB, 1u64..2 * MIB, 0u32..4), 1..200),
        ) {
            let mut bed = Bed::new(30 * MIB);
            let mut next = 0;
            for (offset, len, jumps) in reads {
                let begin = if jumps == 0 { offset } else { next };
                let end = (begin + len).min(bed.size);
                if begin >= end {
                    next = 0;
                    continue;
                }
                next = end;
                let found = bed.read(begin, len);
                if let (Some(first), Some(last)) = (found.first(), found.last()) {
                    prop_assert!(first.start <= begin && end <= last.end);
                    prop_assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
                }
                let streams = &bed.streams;
                let kept: u64 = streams.runs.values().map(Run::len).sum();
                prop_assert!(kept == streams.kept && kept <= KEPT_MAX, "{} bytes", kept);
                let (lower, upper) = (streams.runs.values(), streams.runs.values().skip(1));
                prop_assert!(lower.zip(upper).all(|(lower, upper)| lower.end <= upper.begin));
                prop_assert!(streams.streams.is_sorted_by_key(|stream| stream.next));
                prop_assert_eq!(streams.read_on, streams.streams.iter().filter(|stream| stream.is_read_on()).count());
            }
            prop_assert!(bed.asked.iter().all(|range| range.start < range.end && range.end <= bed.size));
        }
    }
}
