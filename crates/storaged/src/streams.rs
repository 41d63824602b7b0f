//! Notices sequential writers of one object, so that the disk works behind them.

/// Dirty bytes of a sequential writer after which their write-back is started. Small enough that the last `Sync` finds
/// little to do, large enough for long extents.
const WRITE_BACK_STEP: u64 = 8 << 20;
/// A range of bytes: start and length.
pub(crate) type Range = (u64, u64);

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
