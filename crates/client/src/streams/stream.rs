//! One who reads a file on: how its reads are known, and how much it is worth to ask for ahead of it.

use std::ops::Range;
use std::time::Instant;

use crate::streams::KEEP;

/// A stream is read on once its reads have so many points: a read that begins where the last one ends has [`ADJACENT`], and so
/// has the beginning of the file; one that leaves out a little has one.
const POINTS: u32 = 4;
const ADJACENT: u32 = 2;
/// It comes within so many reads of the file after the one before; later it is there by chance, as others read at random
/// places, and takes half of the points.
const LATELY: u64 = 16;
/// A little is so many pieces, bytes at most.
const NEAR_PIECES: u64 = 4;
const NEAR_MAX: u64 = 4 << 20;
/// So many pieces are asked for ahead of a stream at first, within these bounds, bytes; twice as much whenever it comes to what
/// was asked for, and that fast that it comes to all of it before it is given up...
const FIRST_PIECES: u64 = 4;
pub(super) const FIRST: Range<u64> = 128 << 10..1 << 20;
/// ...up to this; and half as much, down to a piece, whenever something is given up of which little was read.
pub(super) const FARTHEST: u64 = 4 << 20;

/// As far from where a stream goes on a read may be, either way.
pub(super) fn near(piece: &Range<u64>) -> u64 {
    (NEAR_PIECES * (piece.end - piece.start)).min(NEAR_MAX)
}

#[derive(Debug)]
pub(super) struct Stream {
    /// Behind all that was read.
    pub(super) next: u64,
    pub(super) points: u32,
    /// How far ahead of `next` to ask.
    pub(super) farthest: u64,
    pub(super) read_at: Instant,
    /// The last of its reads, among those of the file.
    pub(super) read: u64,
    /// Where it was, and when, as it came to something that was asked for.
    came: (u64, Instant),
}

impl Stream {
    pub(super) fn new(piece: &Range<u64>, read: u64, now: Instant) -> Self {
        let farthest = (FIRST_PIECES * (piece.end - piece.start)).clamp(FIRST.start, FIRST.end);
        let points = if piece.start == 0 { ADJACENT } else { 0 };
        Self { next: piece.end, points, farthest, read_at: now, read, came: (piece.start, now) }
    }

    pub(super) fn goes_on(&mut self, piece: &Range<u64>, read: u64, now: Instant) {
        let is_late = read - self.read > LATELY;
        self.points = match piece.start {
            start if start == self.next => self.points.saturating_add(ADJACENT),
            _ if is_late => self.points / 2,
            start => self.points.saturating_add(u32::from(start > self.next)),
        };
        self.next = self.next.max(piece.end);
        self.farthest = self.farthest.max(piece.end - piece.start).min(FARTHEST);
        (self.read, self.read_at) = (read, now);
    }

    /// It has come to what was asked for.
    pub(super) fn comes(&mut self, now: Instant) {
        let (came, at) = std::mem::replace(&mut self.came, (self.next, now));
        let (bytes, twice) = (self.next.saturating_sub(came), 2 * self.farthest);
        let is_in_time =
            u128::from(bytes) * KEEP.as_nanos() >= u128::from(twice) * now.saturating_duration_since(at).as_nanos();
        if is_in_time {
            self.farthest = twice.min(FARTHEST);
        }
    }

    pub(super) fn is_read_on(&self) -> bool {
        self.points >= POINTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Streams;

    #[test]
    fn who_is_near_by_chance_takes_points() {
        let now = Instant::now();
        let mut stream = Stream::new(&(10..20), 1, now);
        let mut goes_on = |piece: Range<u64>, read| {
            stream.goes_on(&piece, read, now);
            stream.points
        };
        assert_eq!(goes_on(20..30, 500), 2, "it follows, however late");
        assert_eq!(goes_on(40..50, 500 + LATELY), 3);
        assert_eq!(goes_on(30..40, 501 + LATELY), 3, "in another order");
        assert_eq!(goes_on(60..70, 502 + 2 * LATELY), 1);
        assert_eq!(goes_on(70..80, 900), 3);
    }

    #[test]
    fn who_jumps_about_in_a_short_file_has_little_asked_for() {
        const LEN: u64 = 128 << 10;
        const SIZE: u64 = 256 << 20;
        const READS: u64 = 4000;
        let (mut streams, now, mut dice, mut asked) = (Streams::default(), Instant::now(), 1_u64, 0);
        for _ in 0..READS {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let begin = (dice >> 33) % (SIZE / LEN) * LEN;
            streams.read(1, begin..begin + LEN, SIZE, now, |range| {
                asked += range.end - range.start;
                Some(())
            });
        }
        assert!(asked < READS * LEN / 20, "{asked} were asked for");
    }
}
