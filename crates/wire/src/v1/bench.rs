//! Requests to a storage service about its own benchmark, StorageBench. The header's group names the target; any lane of the
//! target's node answers.

use types::id::TargetId;

use crate::codec::{Bytes, messages, numbered};

/// Blocks, and so sizes and offsets, are multiples of it: what direct I/O wants on every usual disk. In bytes.
pub const BLOCK_UNIT: u32 = 4096;
/// Longest block, in bytes.
pub const BLOCK_MAX: u32 = 64 << 20;
/// Most threads, and so files, on one target.
pub const THREADS_MAX: u32 = 256;
/// Memory for the blocks of all threads on one target, in bytes.
pub const MEMORY_MAX: u64 = 512 << 20;
/// Longest duration, in milliseconds: a week.
pub const DURATION_MAX_MS: u64 = 7 * 24 * 3600 * 1000;

messages! {
    /// Begins a benchmark on the header's target. Answered at once; `BenchStatus` says how it goes.
    BenchStart {
        /// Names the run on all its targets, and rises from run to run: when it was begun, in milliseconds since 1970.
        run: u64,
        plan: BenchPlan,
        /// All targets of the run, so that one which lost it in a restart is missed.
        targets: Vec<TargetId>,
    }
    BenchStarted {
        /// Empty: it has begun. Else a sentence for people that says why it has not.
        refused: Bytes,
    }
    /// What each target does.
    BenchPlan {
        /// Read; otherwise write.
        read: bool,
        /// Blocks at random places of the files; otherwise one after the other.
        random: bool,
        /// Bytes of one read or write; a multiple of 4096.
        block: u32,
        /// Bytes of each file; a multiple of `block`.
        size: u64,
        /// Each has a file of its own.
        threads: u32,
        /// So long, over and over; 0: until as many bytes as the files have were read or written.
        duration_ms: u64,
        /// Of writes.
        sync: BenchSync,
        /// Through the page cache also where the file system can do without.
        buffered: bool,
        /// The space that the target keeps free may be used too.
        use_reserve: bool,
    }
    BenchStatus {}
    BenchStatusReply {
        /// The files of the last runs are being removed.
        cleaning: bool,
        /// Bytes of the files that lie there.
        files: u64,
        /// The last run since the service was started.
        run: Option<BenchRun>,
    }
    BenchRun {
        run: u64,
        plan: BenchPlan,
        targets: Vec<TargetId>,
        phase: BenchPhase,
        /// Why it failed, for people.
        message: Bytes,
        /// The page cache was gone round.
        direct: bool,
        /// The measured time so far, preparations not counted, in microseconds.
        elapsed_us: u64,
        /// Blocks that were read or written in it.
        blocks: u64,
        /// How long each of them took, `at_most_ns` rising.
        latencies: Vec<BenchLatency>,
        /// What each entry of `samples` stands for, in milliseconds.
        interval_ms: u64,
        /// Blocks by interval, the oldest first; the last one may be shorter.
        samples: Vec<u64>,
        place: BenchPlace,
    }
    /// So many blocks took at most so long, and longer than the entry before says.
    BenchLatency { at_most_ns: u64, count: u64 }
    /// Where a target lies, as its run found it before it wrote anything.
    BenchPlace {
        path: Bytes,
        /// Such as `xfs`; empty where the system does not tell.
        file_system: Bytes,
        mount_point: Bytes,
        /// What is mounted there.
        source: Bytes,
        /// Number of the file system's device: targets of one node with the same share a disk.
        device: u64,
        /// On the file system of `/`.
        on_root: bool,
        read_only: bool,
        total_bytes: u64,
        /// The reserve included.
        free_bytes: u64,
        reserve_bytes: u64,
        total_inodes: u64,
        free_inodes: u64,
    }
    /// Ends a run after the blocks that are under way. What was measured stays.
    BenchStop {
        /// Only this one; 0: whichever it is.
        run: u64,
    }
    /// Removes the files of earlier runs. Refused with `EBUSY` while one is under way. Answered before it is done.
    BenchCleanup {}
}

numbered! {
    /// When what was written is forced to the disk.
    BenchSync {
        Never = 0,
        /// At the end of each thread's work, which counts as part of it.
        End = 1,
        /// After each block, as part of its latency.
        Each = 2,
    }
    /// How far a run has come.
    BenchPhase {
        /// Files are made or filled: nothing is measured yet.
        Preparing = 0,
        Running = 1,
        Finished = 2,
        /// By `BenchStop`.
        Stopped = 3,
        Failed = 4,
        /// Nothing was begun, or it was ended, since there is no room for the files above the reserve.
        NoRoom = 5,
    }
}

impl BenchPhase {
    /// It goes on by itself.
    #[must_use]
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Preparing | Self::Running)
    }
}

impl BenchPlan {
    /// # Errors
    /// One sentence about the first thing that cannot be.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |text: String| Err(text);
        if self.block == 0 || !self.block.is_multiple_of(BLOCK_UNIT) || self.block > BLOCK_MAX {
            return refuse(format!("the block size of {} bytes must be a multiple of 4096, at most 64MiB", self.block));
        }
        if self.size == 0 || !self.size.is_multiple_of(u64::from(self.block)) {
            return refuse(format!(
                "the size of {} bytes must be a multiple of the block size {}",
                self.size, self.block
            ));
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return refuse(format!("{} threads: give between 1 and {THREADS_MAX}", self.threads));
        }
        if u64::from(self.block) * u64::from(self.threads) > MEMORY_MAX {
            let (threads, block) = (self.threads, self.block);
            return refuse(format!(
                "{threads} threads of {block} bytes each are over 512MiB: give fewer, or smaller blocks"
            ));
        }
        if self.size.checked_mul(u64::from(self.threads)).is_none() {
            return refuse(format!(
                "{} threads of {} bytes each are more than any disk holds",
                self.threads, self.size
            ));
        }
        if self.duration_ms > DURATION_MAX_MS {
            return refuse("the duration is over a week: give a shorter one".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> BenchPlan {
        BenchPlan {
            read: false,
            random: false,
            block: 512 << 10,
            size: 1 << 30,
            threads: 16,
            duration_ms: 0,
            sync: BenchSync::End,
            buffered: false,
            use_reserve: false,
        }
    }

    #[test]
    fn plans_that_cannot_be_are_refused_with_the_reason() {
        assert_eq!(plan().check(), Ok(()));
        for (wrong, word) in [
            (BenchPlan { block: 0, ..plan() }, "block size"),
            (BenchPlan { block: 1000, ..plan() }, "multiple of 4096"),
            (BenchPlan { block: 128 << 20, size: 128 << 20, ..plan() }, "at most 64MiB"),
            (BenchPlan { size: 0, ..plan() }, "size of 0"),
            (BenchPlan { size: (1 << 30) + 4096, ..plan() }, "multiple of the block size"),
            (BenchPlan { threads: 0, ..plan() }, "between 1 and"),
            (BenchPlan { threads: 1000, ..plan() }, "between 1 and"),
            (BenchPlan { block: 64 << 20, ..plan() }, "over 512MiB"),
            (BenchPlan { size: u64::MAX - (u64::MAX % (512 << 10)), ..plan() }, "than any disk"),
            (BenchPlan { duration_ms: u64::MAX, ..plan() }, "a week"),
        ] {
            let refusal = wrong.check().expect_err("refused");
            assert!(refusal.contains(word), "{refusal}");
        }
    }
}
