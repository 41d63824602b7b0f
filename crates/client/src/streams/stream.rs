//! One who reads a file on: how its reads are known, and how much it is worth to ask for ahead of it.

use std::ops::Range;
use std::time::Instant;

use crate::streams::KEEP;

/// A stream is read on once its reads have so many points: a read that begins where the last one ends has [`ADJACENT`], and so
/// has the beginning of the file; one that leaves out a little has one.
const POINTS: u32 = 4;
const ADJACENT: u32 = 2;
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
        let points = match piece.start {
            start if start == self.next => ADJACENT,
            start if start > self.next => 1,
            _ => 0,
        };
        self.points = self.points.saturating_add(points);
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
