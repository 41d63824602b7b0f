//! Processes that start together.
//!
//! Each is forked, prepares itself, waits at the gate with the others, works, and leaves what it did in shared memory.
//! The time is from the opening of the gate to the last one's end, or, of processes that do different things, to each one's.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cpu::{Watch, Who, of_self_and_children};
use crate::job::Measured;

pub(crate) const PROCESSES_MAX: usize = 64;
/// How often those who wait for each other look: far shorter than any measurement.
const LOOK: Duration = Duration::from_micros(200);
/// How often the one looks who waits for all others. Each look wakes it, on a CPU that is measured.
const SUPERVISE: Duration = Duration::from_millis(2);
/// Preparing writes gigabytes at most; whoever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// What one process did between the gate and its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// Between all processes. All-zero bytes are its beginning.
#[repr(C)]
struct Board {
    ready: AtomicU32,
    open: AtomicU32,
    done: AtomicU32,
    /// Of [`Gate::wear_out`].
    stopped: AtomicU32,
    most: AtomicU64,
    /// Of [`Gate::ticket`].
    tickets: AtomicU64,
    slots: [Slot; PROCESSES_MAX],
}

#[repr(C)]
#[derive(Default)]
struct Slot {
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds of the monotonic clock.
    end: AtomicU64,
    /// Nanoseconds.
    cpu: AtomicU64,
    /// Nanoseconds; 0: nobody has told.
    p99: AtomicU64,
}

/// Where a process waits for the others, and counts from.
pub(crate) struct Gate<'a> {
    board: &'a Board,
    slot: &'a Slot,
    processes: usize,
    cpu_before: f64,
}

impl Gate<'_> {
    /// Everything until here is preparation and not measured. Answers the time of the opening.
    pub(crate) fn pass(&mut self) -> Instant {
        self.board.ready.fetch_add(1, Ordering::AcqRel);
        while self.board.open.load(Ordering::Acquire) == 0 {
            std::thread::sleep(LOOK);
        }
        self.cpu_before = of_self_and_children();
        Instant::now()
    }

    /// This process has stopped after `count` operations of its own accord: waits until all have, and answers the most
    /// that one of them has done. Once per process.
    pub(crate) fn wear_out(&self, count: u64) -> u64 {
        self.board.most.fetch_max(count, Ordering::AcqRel);
        self.board.stopped.fetch_add(1, Ordering::AcqRel);
        while (self.board.stopped.load(Ordering::Acquire) as usize) < self.processes {
            std::thread::sleep(LOOK);
        }
        self.board.most.load(Ordering::Acquire)
    }

    /// What 99 % of this process's operations took at most: the worst of all processes counts.
    pub(crate) fn tell_p99(&self, took: Duration) {
        self.slot.p99.store(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// A number from 0 on that no other process gets.
    pub(crate) fn ticket(&self) -> u64 {
        self.board.tickets.fetch_add(1, Ordering::AcqRel)
    }
}

/// Runs `work` in `processes` processes; `work` gets its number from 0, prepares, passes the gate, and answers what it
/// did after it. Its end is taken when it answers: checks that cost time belong after this function, or are done by
/// `check`, which runs in the same process afterwards.
pub(crate) fn together<S>(
    phase: &str,
    processes: usize,
    watch: &Watch,
    work: impl Fn(usize, &mut Gate<'_>) -> Result<(Tally, S)>,
    check: impl Fn(usize, S) -> Result<()>,
) -> Result<Measured> {
    together_within(PATIENCE, phase, processes, watch, work, check)
}

/// As `together`, of work that may take so long.
pub(crate) fn together_within<S>(
    patience: Duration,
    phase: &str,
    processes: usize,
    watch: &Watch,
    work: impl Fn(usize, &mut Gate<'_>) -> Result<(Tally, S)>,
    check: impl Fn(usize, S) -> Result<()>,
) -> Result<Measured> {
    Ok(run(patience, processes, watch, work, check)?.measured(phase, 0..processes))
}

/// As `together`, of processes that do different things, one for each of `phases`: what each has done counts over its
/// own time. CPU time is that of all in each.
pub(crate) fn each_apart<S>(
    phases: &[&str],
    watch: &Watch,
    work: impl Fn(usize, &mut Gate<'_>) -> Result<(Tally, S)>,
    check: impl Fn(usize, S) -> Result<()>,
) -> Result<Vec<Measured>> {
    let done = run(PATIENCE, phases.len(), watch, work, check)?;
    Ok((0..).zip(phases).map(|(number, phase)| done.measured(phase, number..number + 1)).collect())
}

fn run<S>(
    patience: Duration,
    processes: usize,
    watch: &Watch,
    work: impl Fn(usize, &mut Gate<'_>) -> Result<(Tally, S)>,
    check: impl Fn(usize, S) -> Result<()>,
) -> Result<Done<'static>> {
    ensure!((1..=PROCESSES_MAX).contains(&processes), "1 to {PROCESSES_MAX} processes");
    ensure!(threads() == 1, "a process with threads cannot be forked");
    let board = shared_board()?;
    let mut children = Vec::new();
    for number in 0..processes {
        // SAFETY: this process has one thread, so the child may do whatever its parent may.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", io::Error::last_os_error()),
            0 => live(board, (number, processes), &work, &check),
            pid => children.push(pid),
        }
    }
    let mut family = Family(children);
    wait_for(&board.ready, processes, patience, &mut family).context("while preparing")?;
    let before = watch.read()?;
    let start = monotonic();
    board.open.store(1, Ordering::Release);
    wait_for(&board.done, processes, patience, &mut family)?;
    let mut cpu_us = watch.since(&before)?;
    family.reap()?;
    let app: u64 = board.slots[..processes].iter().map(|slot| slot.cpu.load(Ordering::Acquire)).sum();
    *cpu_us.entry(Who::App).or_default() += app as f64 / 1e3;
    Ok(Done { slots: &board.slots, start, cpu_us })
}

/// What is left when all processes have ended.
struct Done<'a> {
    slots: &'a [Slot],
    /// As [`Slot::end`].
    start: u64,
    /// Of all.
    cpu_us: BTreeMap<Who, f64>,
}

impl Done<'_> {
    /// What some of them did, until the last one's end.
    fn measured(&self, phase: &str, processes: Range<usize>) -> Measured {
        let slots = &self.slots[processes];
        let values = |field: fn(&Slot) -> &AtomicU64| slots.iter().map(move |slot| field(slot).load(Ordering::Acquire));
        let end = values(|slot| &slot.end).max().unwrap_or(self.start);
        let p99 = values(|slot| &slot.p99).max().filter(|&p99| p99 > 0);
        Measured {
            phase: phase.to_owned(),
            operations: values(|slot| &slot.operations).sum(),
            bytes: values(|slot| &slot.bytes).sum(),
            seconds: end.saturating_sub(self.start) as f64 / 1e9,
            cpu_us: self.cpu_us.clone(),
            p99_us: p99.map(|ns| ns as f64 / 1e3),
        }
    }
}

/// The life of a forked process; it never returns to its parent's code.
fn live<S>(
    board: &Board,
    (number, processes): (usize, usize),
    work: impl Fn(usize, &mut Gate<'_>) -> Result<(Tally, S)>,
    check: impl Fn(usize, S) -> Result<()>,
) -> ! {
    // SAFETY: a plain system call: should the parent be killed, this process goes too.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let slot = &board.slots[number];
    let lived = catch_unwind(AssertUnwindSafe(|| -> Result<()> {
        let mut gate = Gate { board, slot, processes, cpu_before: 0.0 };
        let (tally, state) = work(number, &mut gate)?;
        slot.end.store(monotonic(), Ordering::Release);
        let cpu = of_self_and_children() - gate.cpu_before;
        slot.cpu.store((cpu * 1e3) as u64, Ordering::Release);
        slot.operations.store(tally.operations, Ordering::Release);
        slot.bytes.store(tally.bytes, Ordering::Release);
        board.done.fetch_add(1, Ordering::AcqRel);
        check(number, state)
    }));
    let code = match lived {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            let _ = writeln!(io::stderr(), "process {number}: {error:#}");
            1
        }
        Err(_) => 101,
    };
    // SAFETY: ends this process without the parent's clean-up, of which it holds a copy.
    unsafe { libc::_exit(code) }
}

/// Forked and not yet waited for.
struct Family(Vec<i32>);

impl Family {
    /// An error where some process ended and did not do what it should.
    fn look(&mut self) -> Result<()> {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return Ok(());
        }
        self.0.retain(|&child| child != pid);
        ensure!(status == 0, "a process of the workload failed (wait status {status:#x})");
        Ok(())
    }

    fn reap(mut self) -> Result<()> {
        while let Some(&pid) = self.0.last() {
            let mut status = 0;
            // SAFETY: as above.
            ensure!(unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid, "lost a process of the workload");
            self.0.pop();
            ensure!(status == 0, "a process of the workload failed (wait status {status:#x})");
        }
        Ok(())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // SAFETY: plain system calls on children that were not waited for, so their numbers are still theirs.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

fn wait_for(counter: &AtomicU32, count: usize, patience: Duration, family: &mut Family) -> Result<()> {
    let begin = Instant::now();
    while (counter.load(Ordering::Acquire) as usize) < count {
        std::thread::sleep(SUPERVISE);
        family.look()?;
        ensure!(
            begin.elapsed() < patience,
            "the workload hangs: {} of {count} processes got there in {} s",
            counter.load(Ordering::Acquire),
            patience.as_secs()
        );
    }
    Ok(())
}

/// Lives as long as the process: a few kilobytes for each measurement.
fn shared_board() -> Result<&'static Board> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches no other memory.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Board>(), protection, flags, -1, 0) };
    ensure!(place != libc::MAP_FAILED, "cannot map shared memory: {}", io::Error::last_os_error());
    // SAFETY: page-aligned, zeroed, large enough, never unmapped; `Board` is atomics only, so zeros are valid and
    // several processes may write to it.
    Ok(unsafe { &*place.cast::<Board>() })
}

/// Nanoseconds; the same clock in all processes.
fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_later_takes_nothing_from_the_rate_of_the_others() {
        let slot = |operations: u64, bytes: u64, end: u64| Slot {
            operations: operations.into(),
            bytes: bytes.into(),
            end: end.into(),
            ..Slot::default()
        };
        let slots = [slot(300, 0, 4_000_000_000), slot(0, 500, 6_000_000_000)];
        let done = Done { slots: &slots, start: 1_000_000_000, cpu_us: [(Who::App, 7.0)].into() };
        let figures = |measured: Measured| (measured.operations, measured.bytes, measured.seconds);
        assert_eq!(figures(done.measured("reads", 0..1)), (300, 0, 3.0));
        assert_eq!(figures(done.measured("writes", 1..2)), (0, 500, 5.0));
        assert_eq!(figures(done.measured("all", 0..2)), (300, 500, 5.0));
        assert_eq!(done.measured("reads", 0..1).cpu_us, done.cpu_us);
    }
}
