//! Recognizes who reads an object from one end to the other, and says what to read before they ask for it.

use crate::streams::Range;

/// Readers of one object that are followed at once, at most; the one that was idle longest goes first.
const READERS_MAX: usize = 64;
/// So many are in any case.
const RECENT: usize = 4;
/// Of more, each has this many times of the object what its first step ahead fetches: what is read at random would else be
/// taken for one of them going on, and much of the object fetched.
const STEPS_EACH: u64 = 64;
/// Reads in a row that make a reader sequential.
const RUN_MIN: u32 = 2;
/// Bytes. The first step ahead of a new reader; each further one is twice as long.
const STEP_MIN: u64 = 512 << 10;

/// The readers of one object, as far as their requests tell.
#[derive(Default)]
pub(crate) struct Readers {
    /// The most recent one first.
    known: Vec<Reader>,
}

#[derive(Clone, Copy)]
struct Reader {
    /// Where its next read begins.
    next: u64,
    run: u32,
    /// Bytes before `next` that it has not read.
    skipped: u64,
    /// What lies before this was asked for.
    ahead: u64,
    /// Bytes ahead of it that are wanted, as of its last step.
    window: u64,
}

impl Readers {
    /// Told of a read of an object of `size` bytes; answers what to fetch before it is asked for, at most `window_max`
    /// bytes and none beyond the end. Reads of one reader may arrive a little out of order, since clients keep several in
    /// flight.
    pub(crate) fn on_read(&mut self, offset: u64, len: u64, size: u64, window_max: u64) -> Option<Range> {
        let end = offset.saturating_add(len);
        let slack = len.saturating_mul(2);
        let is_near =
            |reader: &Reader| offset <= reader.next.saturating_add(slack) && end.saturating_add(slack) >= reader.next;
        let near = self.known.iter().enumerate().filter(|(_, reader)| is_near(reader));
        let Some((place, _)) = near.min_by_key(|(_, reader)| reader.next.abs_diff(offset)) else {
            self.known.truncate(followed_max(len, size) - 1);
            self.known.insert(0, Reader::at(end));
            return None;
        };
        self.known[..=place].rotate_right(1);
        self.known[0].on_read(offset, end, size, window_max)
    }
}

/// Readers of an object of `size` bytes that are followed where one more comes, whose reads are of `len` bytes.
fn followed_max(len: u64, size: u64) -> usize {
    let count = size / len.max(STEP_MIN).saturating_mul(STEPS_EACH);
    usize::try_from(count).unwrap_or(READERS_MAX).clamp(RECENT, READERS_MAX)
}

impl Reader {
    fn at(next: u64) -> Self {
        Self { next, run: 1, skipped: 0, ahead: next, window: 0 }
    }

    fn on_read(&mut self, offset: u64, end: u64, size: u64, window_max: u64) -> Option<Range> {
        let len = end - offset;
        if end <= self.next {
            self.skipped = self.skipped.saturating_sub(len);
            return None;
        }
        self.skipped += offset.saturating_sub(self.next);
        self.next = end;
        self.run = self.run.saturating_add(1);
        if self.skipped > len.saturating_mul(4) {
            // It takes a part only, such as every third piece.
            *self = Self::at(end);
        }
        // What was beyond the end when it was asked for was not fetched.
        self.ahead = self.ahead.min(size).max(self.next);
        let from = self.ahead;
        if self.run < RUN_MIN || window_max < len {
            return None;
        }
        let window = self.window.max(STEP_MIN).max(len).min(window_max);
        if from - self.next >= window / 2 {
            return None;
        }
        let to = self.next.saturating_add(window).min(size);
        if to <= from {
            return None;
        }
        self.window = window.saturating_mul(2);
        self.ahead = to;
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const WINDOW_MAX: u64 = 4 * M;

    /// Readers of an object, and what was fetched for them.
    struct Bed {
        readers: Readers,
        size: u64,
        fetched: Vec<Range>,
    }

    fn bed(size: u64) -> Bed {
        Bed { readers: Readers::default(), size, fetched: Vec::new() }
    }

    impl Bed {
        fn read(&mut self, offset: u64, len: u64) -> Option<Range> {
            let ahead = self.readers.on_read(offset, len, self.size, WINDOW_MAX);
            if let Some((start, len)) = ahead {
                assert!(start + len <= self.size && len <= WINDOW_MAX && len > 0);
                self.fetched.push((start, len));
            }
            ahead
        }

        fn is_fetched(&self, offset: u64, len: u64) -> bool {
            (offset..offset + len)
                .step_by(4096)
                .all(|at| self.fetched.iter().any(|&(start, len)| (start..start + len).contains(&at)))
        }
    }

    #[test]
    fn a_sequential_reader_always_has_its_next_bytes_on_the_way() {
        for (step, size) in
            [(512 * K, 64 * M), (512 * K, 9 * M + 17), (128 * K, 16 * M), (4 * K, 8 * M), (3 * M, 60 * M)]
        {
            let mut bed = bed(size);
            let mut last = 0;
            for n in 0..size.div_ceil(step) {
                let (offset, len) = (n * step, step.min(size - n * step));
                if n >= 2 {
                    assert!(bed.is_fetched(offset, len), "read {n} of {step} is not fetched");
                }
                if let Some((start, len)) = bed.read(offset, len) {
                    assert!(start >= last, "fetched twice");
                    last = start + len;
                }
            }
            assert_eq!(last, size);
        }
    }

    #[test]
    fn the_window_grows_with_the_run() {
        let mut bed = bed(64 * M);
        let steps: Vec<u64> = (0..40).filter_map(|n| bed.read(n * 512 * K, 512 * K)).map(|(_, len)| len).collect();
        assert_eq!(steps[..3], [512 * K, M, 3 * M / 2]);
        assert!(bed.readers.known[0].ahead >= 40 * 512 * K + WINDOW_MAX / 2);
    }

    #[test]
    fn without_room_nothing_is_fetched_and_with_it_all_goes_on() {
        let mut readers = Readers::default();
        for n in 0..8 {
            assert_eq!(readers.on_read(n * 512 * K, 512 * K, 64 * M, 256 * K), None);
        }
        assert_eq!(readers.on_read(4 * M, 512 * K, 64 * M, 512 * K), Some((4 * M + 512 * K, 512 * K)));
    }

    #[test]
    fn a_little_disorder_does_not_end_a_run() {
        let mut bed = bed(64 * M);
        let order = [0, 1, 3, 2, 4, 6, 5, 7, 8, 10, 9, 11, 13, 12, 15, 14, 16];
        let asked = order.iter().filter(|&&n| bed.read(n * 128 * K, 128 * K).is_some()).count();
        assert!(asked >= 1);
        let reader = bed.readers.known[0];
        assert_eq!((bed.readers.known.len(), reader.next, reader.skipped), (1, 17 * 128 * K, 0));
    }

    #[test]
    fn interleaved_readers_are_told_apart() {
        let mut bed = bed(256 * M);
        for n in 0..64 {
            for reader in 0..4 {
                let offset = reader * 64 * M + n * 512 * K;
                assert!(n < 2 || bed.is_fetched(offset, 512 * K), "read {n} of reader {reader}");
                bed.read(offset, 512 * K);
            }
        }
    }

    #[test]
    fn many_readers_of_a_large_object_are_followed_and_more_push_each_other_out() {
        for (count, is_followed) in [(READERS_MAX as u64, true), (READERS_MAX as u64 + 1, false)] {
            let mut bed = bed(128 << 30);
            for n in 0..12 {
                for reader in 0..count {
                    let offset = (reader << 30) + n * 512 * K;
                    assert!(n < 2 || bed.is_fetched(offset, 512 * K) == is_followed, "read {n} of reader {reader}");
                    bed.read(offset, 512 * K);
                }
            }
            assert_eq!(bed.readers.known.len(), READERS_MAX);
            assert!(is_followed || bed.fetched.is_empty());
        }
    }

    #[test]
    fn the_longer_the_reads_of_an_object_the_fewer_readers_are_followed() {
        for (len, size, count) in [
            (512 * K, 256 * M, 8),
            (4 * K, 256 * M, 8),
            (4 * K, 4096 * M, READERS_MAX),
            (4 * M, 256 * M, RECENT),
            (4 * K, 0, RECENT),
            (0, 0, RECENT),
            (u64::MAX, u64::MAX, RECENT),
        ] {
            assert_eq!(followed_max(len, size), count, "reads of {len} of {size}");
        }
    }

    #[test]
    fn random_reads_of_an_object_of_usual_size_fetch_little() {
        for (len, size) in
            [4 * K, 16 * K, 64 * K, M].into_iter().flat_map(|len| [64, 256, 1024].map(|size| (len, size * M)))
        {
            let (mut bed, mut dice, reads) = (bed(size), 12345u64, 4000);
            for _ in 0..reads {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bed.read((dice >> 33) % (size / len) * len, len);
            }
            let fetched: u64 = bed.fetched.iter().map(|(_, len)| len).sum();
            assert!(fetched < reads * len / 2, "{} KiB ahead of {reads} reads of {len} bytes in {size}", fetched / K);
        }
    }

    #[test]
    fn random_reads_fetch_nothing_else() {
        let mut bed = bed(1 << 50);
        let mut position = 12345u64;
        for _ in 0..10_000 {
            position = position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert_eq!(bed.read((position >> 16) & !4095, 4096), None);
        }
    }

    #[test]
    fn strides_fetch_nothing_or_little() {
        for stride in [3, 4, 5, 100] {
            let mut bed = bed(1 << 40);
            let read = (0..1000).map(|n| bed.read(n * stride * 512 * K, 512 * K)).count() as u64;
            let fetched: u64 = bed.fetched.iter().map(|(_, len)| len).sum();
            assert!(fetched <= 2 * read * 512 * K, "{fetched} bytes ahead of {read} reads, one of {stride}");
            assert!(stride < 4 || fetched == 0, "{stride}");
        }
    }

    #[test]
    fn who_reads_backwards_or_the_same_again_gets_nothing() {
        let mut bed = bed(64 * M);
        for n in (0..100).rev() {
            assert_eq!(bed.read(n * 512 * K, 512 * K), None);
        }
        for _ in 0..100 {
            assert_eq!(bed.read(60 * M, 512 * K), None);
        }
    }

    #[test]
    fn the_end_moves() {
        let mut bed = bed(4 * M);
        for n in 0..8 {
            bed.read(n * 512 * K, 512 * K);
        }
        assert!(bed.is_fetched(M, 3 * M));
        // Somebody appends, and the reader follows.
        bed.size = 8 * M;
        assert_eq!(bed.read(4 * M, 512 * K).map(|(start, _)| start), Some(4 * M + 512 * K));
        // Somebody cuts off what was fetched, and writes it anew.
        bed.size = 5 * M;
        assert_eq!(bed.read(4 * M + 512 * K, 512 * K), None);
        bed.size = 64 * M;
        assert_eq!(bed.read(5 * M, 512 * K).map(|(start, _)| start), Some(5 * M + 512 * K));
        assert_eq!(bed.readers.on_read(u64::MAX - 5, 5, u64::MAX, WINDOW_MAX), None);
        assert_eq!(bed.readers.on_read(u64::MAX, 5, u64::MAX, WINDOW_MAX), None);
    }
}
