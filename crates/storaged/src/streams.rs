//! Notices sequential readers and writers of one object, so that the disk works ahead of them and behind them.

/// Dirty bytes of a sequential writer after which their write-back is started. Small enough that the last `Sync` finds
/// little to do, large enough for long extents.
const WRITE_BACK_STEP: u64 = 8 << 20;
/// Reads in a row before a reader counts as sequential.
const RUN_MIN: u32 = 2;
const WINDOW_MIN: u64 = 1 << 20;
/// Farthest that is read ahead, in bytes.
pub(crate) const WINDOW_MAX: u64 = 4 << 20;

/// A range of bytes: start and length.
pub(crate) type Range = (u64, u64);

/// The read pattern of one object.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadStream {
    next: u64,
    run: u32,
    ahead: u64,
}

impl ReadStream {
    /// Told of a read of an object of `size` bytes; answers what to fetch before it is asked for. Reads of one stream
    /// may arrive a little out of order, since clients keep several in flight.
    pub(crate) fn on_read(&mut self, offset: u64, len: u64, size: u64) -> Option<Range> {
        let end = offset.saturating_add(len);
        let slack = len.saturating_mul(2);
        let near = offset <= self.next.saturating_add(slack) && end.saturating_add(slack) >= self.next;
        if !near {
            *self = Self { next: end, run: 0, ahead: 0 };
            return None;
        }
        self.next = self.next.max(end);
        self.run = self.run.saturating_add(1);
        if self.run < RUN_MIN {
            return None;
        }
        let window = len.saturating_mul(4).clamp(WINDOW_MIN, WINDOW_MAX);
        let from = self.ahead.max(self.next);
        if from - self.next >= window / 2 {
            return None;
        }
        let to = self.next.saturating_add(window).min(size);
        self.ahead = to.max(from);
        (to > from).then(|| (from, to - from))
    }
}

/// The write pattern of one object.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteStream {
    start: u64,
    end: u64,
}

impl WriteStream {
    /// Told of a write that is done; answers what to start writing back.
    pub(crate) fn on_write(&mut self, offset: u64, len: u64) -> Option<Range> {
        let end = offset.saturating_add(len);
        let slack = len.saturating_mul(4);
        let near = offset <= self.end.saturating_add(slack) && end.saturating_add(slack) >= self.end;
        if !near {
            *self = Self { start: offset, end };
            return None;
        }
        self.end = self.end.max(end);
        if self.end - self.start < WRITE_BACK_STEP {
            return None;
        }
        let range = (self.start, self.end - self.start);
        self.start = self.end;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;

    #[test]
    fn a_sequential_reader_always_has_its_next_bytes_on_the_way() {
        let (mut stream, size) = (ReadStream::default(), 64 * M);
        let mut fetched = 0;
        for n in 0..(size / (512 * K)) {
            let offset = n * 512 * K;
            if n >= 2 {
                assert!(fetched >= (offset + 512 * K).min(size), "read {n} is not fetched");
            }
            if let Some((start, len)) = stream.on_read(offset, 512 * K, size) {
                assert!(start >= fetched, "fetched twice");
                fetched = start + len;
                assert!(fetched <= size);
            }
        }
        assert_eq!(fetched, size);
    }

    #[test]
    fn a_little_disorder_does_not_end_a_stream() {
        let mut stream = ReadStream::default();
        let order = [0, 1, 3, 2, 4, 6, 5, 7].map(|n| n * 128 * K);
        let asked = order.iter().filter(|&&offset| stream.on_read(offset, 128 * K, 64 * M).is_some()).count();
        assert!(asked >= 1);
        assert_eq!(stream.next, M);
    }

    #[test]
    fn random_reads_fetch_nothing_else() {
        let mut stream = ReadStream::default();
        let mut position = 12345u64;
        for _ in 0..10_000 {
            position = position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert_eq!(stream.on_read((position >> 30) & !4095, 4096, u64::MAX), None);
        }
    }

    #[test]
    fn write_back_follows_a_sequential_writer_without_gap() {
        let mut stream = WriteStream::default();
        let mut covered = 0;
        for n in 0..256 {
            if let Some((start, len)) = stream.on_write(n * 512 * K, 512 * K) {
                assert_eq!(start, covered);
                covered += len;
            }
        }
        assert_eq!(covered, 128 * M);
    }

    #[test]
    fn random_writes_are_left_to_the_kernel() {
        let mut stream = WriteStream::default();
        for n in 0..10_000u64 {
            assert_eq!(stream.on_write((n * 7919 % 10_007) * 10 * M, 4 * K), None);
        }
    }
}
