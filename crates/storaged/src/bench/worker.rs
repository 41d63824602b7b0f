//! What one thread of a benchmark does with its file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use net::bench::histogram::Histogram;
use wire::v1::bench::{BLOCK_UNIT, BenchPlan, BenchSync};

use super::folder::Folder;
use super::pattern::{self, Order};

/// Bytes of one write where a file is only filled.
const FILL_BLOCK: usize = 1 << 20;

/// What all threads of a run on one target share.
pub(super) struct Shared {
    pub(super) plan: BenchPlan,
    pub(super) folder: Folder,
    /// Past the page cache.
    pub(super) direct: bool,
    /// Everybody ends after the block under way.
    pub(super) stop: AtomicBool,
    /// Blocks that are done.
    pub(super) blocks: AtomicU64,
    /// Threads that do blocks now: those at their last sync do none.
    pub(super) in_loop: AtomicU32,
    /// Opened when all are prepared.
    pub(super) gate: Gate,
}

/// Where those who are ready wait for the others.
#[derive(Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// What a thread has measured.
pub(super) struct Measured {
    pub(super) latencies: Histogram,
    pub(super) ended: Instant,
}

/// Memory whose address suits direct I/O.
struct Block {
    memory: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Block {
    fn new(len: usize, seed: u64) -> Self {
        let align = BLOCK_UNIT as usize;
        let memory = vec![0; len + align];
        let begin = memory.as_ptr().align_offset(align);
        let mut block = Self { memory, begin, len };
        pattern::fill(block.bytes(), seed);
        block
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.len]
    }
}

/// Prepares the file of `thread`, says so, waits for the others, and works.
pub(super) fn work(shared: &Shared, thread: u32, prepared: impl FnOnce()) -> io::Result<Measured> {
    let file = shared.folder.open(thread, shared.direct)?;
    prepare(shared, thread, &file)?;
    // Before the gate: to fill it is no work of the disk.
    let block = Block::new(shared.plan.block as usize, seed(thread));
    prepared();
    shared.gate.wait();
    measure(shared, thread, &file, block)
}

/// Reads, and writes at random places, want a file that is there as a whole: else holes and new space would be measured.
fn prepare(shared: &Shared, thread: u32, file: &File) -> io::Result<()> {
    let plan = &shared.plan;
    if !plan.read && !plan.random {
        return Ok(());
    }
    let unit = u64::from(BLOCK_UNIT);
    let mut at = file.metadata()?.len() / unit * unit;
    let mut block = Block::new(FILL_BLOCK, seed(thread));
    let filled = at < plan.size;
    while at < plan.size && !shared.stop.load(Ordering::Relaxed) {
        let len = (plan.size - at).min(FILL_BLOCK as u64) as usize;
        let bytes = &mut block.bytes()[..len];
        pattern::stamp(bytes, thread, at);
        file.write_all_at(bytes, at)?;
        at += len as u64;
    }
    if filled {
        file.sync_data()?;
    }
    if plan.read {
        // What an earlier run has left in the page cache is not the disk's.
        forget_cached(file)?;
    }
    Ok(())
}

fn forget_cached(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // SAFETY: the descriptor is open for as long as `file` lives.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn measure(shared: &Shared, thread: u32, file: &File, block: Block) -> io::Result<Measured> {
    let plan = &shared.plan;
    let (latencies, mut ended) = do_blocks(shared, thread, file, block)?;
    if !plan.read && plan.sync == BenchSync::End {
        file.sync_data()?;
        ended = Instant::now();
    }
    Ok(Measured { latencies, ended })
}

/// Counts a thread for as long as this lives.
struct InLoop<'a>(&'a AtomicU32);

impl<'a> InLoop<'a> {
    fn enter(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InLoop<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers also when the last block was done.
fn do_blocks(shared: &Shared, thread: u32, file: &File, mut block: Block) -> io::Result<(Histogram, Instant)> {
    let plan = &shared.plan;
    let _in_loop = InLoop::enter(&shared.in_loop);
    let length = u64::from(plan.block);
    let blocks = plan.size / length;
    let mut order = if plan.random { Order::random(blocks, seed(thread)) } else { Order::sequential(blocks) };
    let mut latencies = Histogram::new();
    let deadline = (plan.duration_ms > 0).then(|| Instant::now() + Duration::from_millis(plan.duration_ms));
    let mut left = if deadline.is_some() { u64::MAX } else { blocks };
    let mut now = Instant::now();
    while left > 0 && !shared.stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| now < deadline) {
        let offset = order.next() * length;
        let begun = if plan.read {
            let begun = Instant::now();
            read(file, block.bytes(), thread, offset)?;
            begun
        } else {
            pattern::stamp(block.bytes(), thread, offset);
            let begun = Instant::now();
            file.write_all_at(block.bytes(), offset)?;
            begun
        };
        if !plan.read && plan.sync == BenchSync::Each {
            file.sync_data()?;
        }
        now = Instant::now();
        latencies.note(now.duration_since(begun));
        shared.blocks.fetch_add(1, Ordering::Relaxed);
        left -= 1;
    }
    Ok((latencies, now))
}

fn read(file: &File, block: &mut [u8], thread: u32, offset: u64) -> io::Result<()> {
    file.read_exact_at(block, offset)?;
    if pattern::is_stamped(block, thread, offset) {
        return Ok(());
    }
    let wrong = format!("thread {thread} read other bytes at {offset} than were written there");
    Err(io::Error::new(io::ErrorKind::InvalidData, wrong))
}

fn seed(thread: u32) -> u64 {
    u64::from(thread) + 1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shared(target: &Path, change: impl FnOnce(&mut BenchPlan)) -> Shared {
        let mut plan = BenchPlan {
            read: false,
            random: false,
            block: 8192,
            size: 1 << 20,
            threads: 1,
            duration_ms: 0,
            sync: BenchSync::End,
            buffered: true,
            use_reserve: false,
        };
        change(&mut plan);
        let folder = Folder::of(target);
        folder.make().expect("made");
        let (stop, blocks, in_loop) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU32::new(0));
        let gate = Gate::default();
        gate.open();
        Shared { plan, folder, direct: false, stop, blocks, in_loop, gate }
    }

    fn done(shared: &Shared) -> u64 {
        work(shared, 3, || {}).expect("it works");
        shared.blocks.load(Ordering::Relaxed)
    }

    #[test]
    fn what_was_written_is_read() {
        let target = tempfile::tempdir().expect("a directory");
        assert_eq!(done(&shared(target.path(), |_| {})), 128);
        let reading = shared(target.path(), |plan| plan.read = true);
        assert_eq!(done(&reading), 128);
        assert_eq!(done(&shared(target.path(), |plan| plan.random = true)), 128);
        assert_eq!(done(&shared(target.path(), |plan| (plan.random, plan.read) = (true, true))), 128);
        // One bit that the disk got wrong.
        let file = reading.folder.open(3, false).expect("there");
        file.write_all_at(&[0xff; 8], 40_960).expect("written");
        let error = work(&reading, 3, || {}).err().expect("found");
        assert!(error.to_string().contains("at 40960"), "{error}");
    }

    #[test]
    fn files_that_are_not_there_are_filled_first() {
        let target = tempfile::tempdir().expect("a directory");
        let reading = shared(target.path(), |plan| plan.read = true);
        // Half of one, with an odd length, is there: a run was killed.
        reading.folder.open(3, false).expect("made").set_len(5000).expect("written");
        let file = reading.folder.open(3, false).expect("there");
        let mut page = vec![0; 4096];
        pattern::stamp(&mut page, 3, 0);
        file.write_all_at(&page, 0).expect("written");
        assert_eq!(done(&reading), 128);
        assert_eq!(file.metadata().expect("there").len(), 1 << 20);
    }

    #[test]
    fn a_duration_goes_round_and_a_stop_ends_it() {
        let target = tempfile::tempdir().expect("a directory");
        let lasting = shared(target.path(), |plan| (plan.size, plan.duration_ms) = (8192, 50));
        let begin = Instant::now();
        assert!(done(&lasting) > 1, "more than the file has");
        assert!(begin.elapsed() >= Duration::from_millis(50));
        let stopped = shared(target.path(), |plan| plan.duration_ms = 3_600_000);
        stopped.stop.store(true, Ordering::Relaxed);
        assert_eq!(done(&stopped), 0);
    }
}
