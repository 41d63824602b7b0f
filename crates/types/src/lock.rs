//! Locks on files: the words, and the arithmetic of what one owner holds of one file.

/// The last byte that a lock can reach. A lock that ends here goes to the end of the file, wherever that may come to
/// be.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// The two kinds of locks that Linux has, and one that no program sees. They know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockKind {
    /// `fcntl`: on ranges of bytes, owned by a process or by an open file description.
    Posix = 0,
    /// `flock`: on the whole file, owned by an open file description.
    Flock = 1,
    /// The end of a file, owned by a session: who holds it appends and cuts, alone among all.
    End = 2,
}

impl LockKind {
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Posix),
            1 => Some(Self::Flock),
            2 => Some(Self::End),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockMode {
    /// `F_RDLCK`, `LOCK_SH`: any number of owners at once.
    Shared = 0,
    /// `F_WRLCK`, `LOCK_EX`.
    Exclusive = 1,
}

impl LockMode {
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Shared),
            1 => Some(Self::Exclusive),
            _ => None,
        }
    }

    /// Two owners cannot hold these of the same byte.
    #[must_use]
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// What a request for a lock does where somebody else is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It is refused with `EAGAIN`.
    No,
    /// It waits, for as long as it takes.
    Yes,
    /// It waits, but is refused with `EDEADLK` where that would be for ever.
    UnlessDeadlock,
}

impl Wait {
    /// As a request says it: whether to wait at all (`wait`), and then whether to look for deadlocks (`detect`).
    #[must_use]
    pub fn new(wait: bool, detect: bool) -> Self {
        match (wait, detect) {
            (false, _) => Self::No,
            (true, false) => Self::Yes,
            (true, true) => Self::UnlessDeadlock,
        }
    }

    /// It waits, if need be.
    #[must_use]
    pub fn waits(self) -> bool {
        self != Self::No
    }

    /// It is refused where it would wait for ever.
    #[must_use]
    pub fn detects(self) -> bool {
        self == Self::UnlessDeadlock
    }
}

/// Bytes from `start` to `end`, both included, none above [`OFFSET_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockRange {
    start: u64,
    end: u64,
}

impl LockRange {
    /// The whole file, however long it gets.
    pub const ALL: Self = Self { start: 0, end: OFFSET_MAX };

    /// `None` for what is no range.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start <= end && end <= OFFSET_MAX).then_some(Self { start, end })
    }

    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    #[must_use]
    pub fn end(self) -> u64 {
        self.end
    }

    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// What both have.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// One begins right behind the other.
    fn touches(self, other: Self) -> bool {
        self.start == other.end.saturating_add(1) || other.start == self.end.saturating_add(1)
    }
}

/// A piece of a file that an owner holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub range: LockRange,
    pub mode: LockMode,
    /// The process that asked for it, as its own host counts processes. For people, and for `F_GETLK`.
    pub pid: u32,
}

impl Held {
    /// The two are one piece.
    fn joins(&self, other: &Self) -> bool {
        self.mode == other.mode && self.range.touches(other.range)
    }
}

/// All that one owner holds of one file: in order, without overlaps, and what touches in one mode is one piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldRanges(Vec<Held>);

impl HeldRanges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }

    /// The pieces that overlap `range`.
    pub fn within(&self, range: LockRange) -> impl Iterator<Item = &Held> {
        let first = self.0.partition_point(|held| held.range.end < range.start);
        self.0[first..].iter().take_while(move |held| held.range.start <= range.end)
    }

    /// All of `range` is held in a mode that allows what `mode` does.
    #[must_use]
    pub fn covers(&self, range: LockRange, mode: LockMode) -> bool {
        self.whole(range, |held| held.mode >= mode)
    }

    /// All of `range` is held in exactly this mode.
    #[must_use]
    pub fn is(&self, range: LockRange, mode: LockMode) -> bool {
        self.whole(range, |held| held.mode == mode)
    }

    /// The parts of `range` that are not held, or not in a mode that allows what `mode` does.
    #[must_use]
    pub fn missing(&self, range: LockRange, mode: LockMode) -> Vec<LockRange> {
        let mut missing = Vec::new();
        let mut next = Some(range.start);
        for held in self.within(range).filter(|held| held.mode >= mode) {
            let before = next.zip(held.range.start.checked_sub(1)).and_then(|(from, to)| LockRange::new(from, to));
            missing.extend(before);
            next = held.range.end.checked_add(1);
        }
        missing.extend(next.and_then(|from| LockRange::new(from, range.end)));
        missing
    }

    fn whole(&self, range: LockRange, enough: impl Fn(&Held) -> bool) -> bool {
        let mut next = range.start;
        for held in self.within(range) {
            if held.range.start > next || !enough(held) {
                return false;
            }
            if held.range.end >= range.end {
                return true;
            }
            next = held.range.end + 1;
        }
        false
    }

    /// The first piece that another owner's `mode` on `range` could not stand beside.
    #[must_use]
    pub fn conflict(&self, range: LockRange, mode: LockMode) -> Option<&Held> {
        self.within(range).find(|held| held.mode.conflicts(mode))
    }

    /// From here on `range` is held in `mode`, whatever was there.
    pub fn set(&mut self, held: Held) {
        self.clear(held.range);
        let mut held = held;
        let mut at = self.0.partition_point(|other| other.range < held.range);
        if let Some(right) = self.0.get(at).filter(|right| right.joins(&held)) {
            held.range.end = right.range.end;
            self.0.remove(at);
        }
        if let Some(left) = at.checked_sub(1).map(|at| self.0[at]).filter(|left| left.joins(&held)) {
            held.range.start = left.range.start;
            at -= 1;
            self.0.remove(at);
        }
        self.0.insert(at, held);
    }

    /// From here on nothing of `range` is held. False where nothing was.
    pub fn clear(&mut self, range: LockRange) -> bool {
        let first = self.0.partition_point(|held| held.range.end < range.start);
        let count = self.within(range).count();
        if count == 0 {
            return false;
        }
        let (before, after) = (self.0[first], self.0[first + count - 1]);
        let front = range.start.checked_sub(1).and_then(|end| LockRange::new(before.range.start, end));
        let back = LockRange::new(range.end.saturating_add(1), after.range.end);
        let left = front.map(|range| Held { range, ..before });
        let right = back.map(|range| Held { range, ..after });
        self.0.splice(first..first + count, left.into_iter().chain(right));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> LockRange {
        LockRange::new(start, end).expect("a range")
    }

    fn held(start: u64, end: u64, mode: LockMode) -> Held {
        Held { range: range(start, end), mode, pid: 1 }
    }

    fn pieces(ranges: &HeldRanges) -> Vec<(u64, u64, LockMode)> {
        ranges.iter().map(|held| (held.range.start, held.range.end, held.mode)).collect()
    }

    use LockMode::{Exclusive, Shared};

    #[test]
    fn ranges_end_where_offsets_end() {
        assert_eq!(LockRange::new(5, 4), None);
        assert_eq!(LockRange::new(5, OFFSET_MAX + 1), None);
        assert_eq!(LockRange::new(0, OFFSET_MAX), Some(LockRange::ALL));
        assert!(range(0, 4).overlaps(range(4, 9)) && !range(0, 4).overlaps(range(5, 9)));
        assert_eq!(range(0, 6).overlap(range(4, 9)), Some(range(4, 6)));
    }

    #[test]
    fn merges_what_touches_in_one_mode() {
        let mut ranges = HeldRanges::default();
        ranges.set(held(10, 19, Shared));
        ranges.set(held(30, 39, Shared));
        ranges.set(held(20, 29, Shared));
        assert_eq!(pieces(&ranges), [(10, 39, Shared)]);
        ranges.set(held(20, 24, Exclusive));
        assert_eq!(pieces(&ranges), [(10, 19, Shared), (20, 24, Exclusive), (25, 39, Shared)]);
        ranges.set(held(0, 24, Shared));
        assert_eq!(pieces(&ranges), [(0, 39, Shared)]);
        ranges.set(held(0, OFFSET_MAX, Exclusive));
        assert_eq!(pieces(&ranges), [(0, OFFSET_MAX, Exclusive)]);
    }

    #[test]
    fn clearing_the_middle_splits() {
        let mut ranges = HeldRanges::default();
        ranges.set(held(0, OFFSET_MAX, Exclusive));
        assert!(ranges.clear(range(10, 19)));
        assert!(!ranges.clear(range(10, 19)));
        assert_eq!(pieces(&ranges), [(0, 9, Exclusive), (20, OFFSET_MAX, Exclusive)]);
        assert!(ranges.clear(range(0, 9)));
        assert!(ranges.clear(range(25, OFFSET_MAX)));
        assert_eq!(pieces(&ranges), [(20, 24, Exclusive)]);
        assert!(ranges.clear(LockRange::ALL));
        assert!(ranges.is_empty());
    }

    #[test]
    fn covers_only_without_gaps_and_in_a_mode_that_is_enough() {
        let mut ranges = HeldRanges::default();
        ranges.set(held(0, 9, Shared));
        ranges.set(held(10, 19, Exclusive));
        assert!(ranges.covers(range(0, 19), Shared) && ranges.covers(range(12, 15), Exclusive));
        assert!(!ranges.covers(range(0, 19), Exclusive) && !ranges.covers(range(0, 20), Shared));
        ranges.clear(range(5, 5));
        assert!(!ranges.covers(range(0, 19), Shared));
        assert_eq!(ranges.missing(range(0, 30), Shared), [range(5, 5), range(20, 30)]);
        assert_eq!(ranges.missing(range(7, 21), Exclusive), [range(7, 9), range(20, 21)]);
        assert_eq!(ranges.missing(range(10, 19), Exclusive), []);
        assert_eq!(ranges.missing(range(30, OFFSET_MAX), Shared), [range(30, OFFSET_MAX)]);
        assert!(ranges.conflict(range(0, 9), Shared).is_none());
        assert_eq!(ranges.conflict(range(0, 12), Shared).map(|held| held.range), Some(range(10, 19)));
        assert_eq!(ranges.conflict(range(5, 9), Exclusive).map(|held| held.range), Some(range(6, 9)));
    }
}
