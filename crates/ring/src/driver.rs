//! The rings themselves: submissions out, completions in, and the memory in between.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Entry128, EntryMarker};
use io_uring::{IoUring, opcode, types};
use slab::Slab;

use crate::company::Company;
use crate::executor::Config;
use crate::spin::{Lent, Look, Spinner};
use crate::tally::{Counts, Tally};

/// Which ring pair an operation goes through, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Via {
    /// Sockets, timers, devices, wake-ups.
    Main,
    /// On the main ring, and not to be cancelled: commands to devices.
    Command,
    File(FileRing),
}

/// A ring pair for files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileRing {
    Read,
    Write,
}

impl FileRing {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }
}

/// One for each ring pair.
const RINGS: [Via; 3] = [Via::Main, Via::File(FileRing::Read), Via::File(FileRing::Write)];

/// User data of operations that belong to the driver itself; slab keys stay below.
const REMOTE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
const SECONDARY: u64 = u64::MAX - 8;

/// How long a dying ring waits for the kernel to give its buffers back before it leaks them.
const TEARDOWN_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Driver {
    /// Entries of twice the length, since commands to devices need them.
    main: IoUring<Entry128>,
    /// By [`FileRing::index`], as what follows; each made when it is needed first, or at once ([`Config::files`]).
    files: [Option<IoUring>; 2],
    /// A poll of the file ring's descriptor is armed on the main ring.
    file_poll_armed: [bool; 2],
    files_in_flight: [usize; 2],
    entries: u32,
    workers: u32,
    ops: Slab<OpState>,
    remote_fd: RawFd,
    remote_signalled: bool,
    spinner: Spinner,
    tally: Tally,
    company: Option<Arc<Company>>,
}

enum OpState {
    Waiting(Option<Waker>),
    Done(i32),
    /// Its future is gone; what the kernel may still touch lives here until the completion.
    Abandoned(Box<dyn Any>),
    /// Its future is gone, and the kernel cannot be asked to end it: that happens with the device, or the ring. What
    /// the kernel may still touch lives here until then.
    Left(Box<dyn Any>),
}

/// What an operation owns whose result is a new descriptor.
pub(crate) struct GivesDescriptor;

/// Ends what the kernel gave for an operation whose future is gone: a descriptor nobody else would close.
fn discard(result: i32, resources: &dyn Any) {
    if result >= 0 && resources.is::<GivesDescriptor>() {
        // SAFETY: a fresh descriptor from the kernel, whose number nobody was told.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
}

impl Driver {
    pub(crate) fn new(config: &Config, remote_fd: RawFd) -> io::Result<Self> {
        let &Config { entries, spin, workers, ref company, .. } = config;
        let main = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(4).max(1024))
            .build(entries)?;
        limit_workers(&main, workers)?;
        let mut driver = Self {
            main,
            files: [None, None],
            file_poll_armed: [false; 2],
            files_in_flight: [0; 2],
            entries,
            workers,
            ops: Slab::with_capacity(256),
            remote_fd,
            remote_signalled: false,
            spinner: Spinner::new(spin),
            tally: Tally::new(Instant::now()),
            company: company.clone(),
        };
        if config.files {
            driver.files = [Some(file_ring(entries, workers)?), Some(file_ring(entries, workers)?)];
        }
        driver.arm_remote()?;
        Ok(driver)
    }

    fn arm_remote(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.remote_fd), libc::POLLIN as u32).build().user_data(REMOTE);
        push(&mut self.main, poll)
    }

    /// Queues an operation; `entry`'s pointers must stay good until its completion, which [`Op`](crate::op) sees to.
    pub(crate) fn submit(&mut self, via: Via, entry: Entry) -> io::Result<usize> {
        self.start(via, |driver, key| {
            let entry = entry.user_data(key);
            match via {
                Via::Main | Via::Command => push(&mut driver.main, entry),
                Via::File(file) => driver.push_file(file, entry),
            }
        })
    }

    /// As [`Self::submit`], of a command to a device.
    pub(crate) fn submit_command(&mut self, entry: Entry128) -> io::Result<usize> {
        self.start(Via::Command, |driver, key| push(&mut driver.main, entry.user_data(key)))
    }

    fn start(&mut self, via: Via, push: impl FnOnce(&mut Self, u64) -> io::Result<()>) -> io::Result<usize> {
        let key = self.ops.insert(OpState::Waiting(None));
        let pushed = push(self, key as u64 | ring_tag(via));
        if let Err(error) = pushed {
            self.ops.remove(key);
            return Err(error);
        }
        Ok(key)
    }

    /// Hands what the main ring has queued to the kernel now, and looks at nothing that is done.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        submit(&mut self.main)
    }

    fn push_file(&mut self, file: FileRing, entry: Entry) -> io::Result<()> {
        let index = file.index();
        let ring = match &mut self.files[index] {
            Some(ring) => ring,
            slot => slot.insert(file_ring(self.entries, self.workers)?),
        };
        push(ring, entry)?;
        self.files_in_flight[index] += 1;
        Ok(())
    }

    pub(crate) fn poll(&mut self, key: usize, waker: &Waker) -> Poll<i32> {
        let state = self.ops.get_mut(key).expect("an operation's future owns its slot");
        match state {
            OpState::Done(result) => {
                let result = *result;
                self.ops.remove(key);
                Poll::Ready(result)
            }
            OpState::Waiting(slot) => {
                match slot {
                    Some(old) if old.will_wake(waker) => {}
                    Some(_) | None => *slot = Some(waker.clone()),
                }
                Poll::Pending
            }
            OpState::Abandoned(_) | OpState::Left(_) => unreachable!("an abandoned operation has no future to poll it"),
        }
    }

    /// The operation's future is dropped: keep `resources` until the kernel is done, and ask it to hurry.
    pub(crate) fn abandon(&mut self, key: usize, resources: Box<dyn Any>, via: Via) {
        if let Some(&OpState::Done(result)) = self.ops.get(key) {
            self.ops.remove(key);
            return discard(result, &*resources);
        }
        if via == Via::Command {
            self.ops[key] = OpState::Left(resources);
            return;
        }
        self.ops[key] = OpState::Abandoned(resources);
        // Its descriptor may be closed next, and stand for something else by the turn's end: the kernel takes it as it is now.
        // What it does not take yet goes with the next turn.
        let _ = match via {
            Via::Main | Via::Command => submit(&mut self.main),
            Via::File(file) => self.files[file.index()].as_mut().map_or(Ok(()), submit),
        };
        let cancel = opcode::AsyncCancel::new(key as u64 | ring_tag(via)).build().user_data(CANCEL);
        // A cancellation that finds no room is given up: the operation then ends in its own time.
        let _ = match via {
            Via::Main | Via::Command => push(&mut self.main, cancel),
            Via::File(file) => self.files[file.index()].as_mut().map_or(Ok(()), |ring| push(ring, cancel)),
        };
    }

    /// Submits everything and waits for a completion: for ever, or `wait` at most.
    pub(crate) fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        for ring in self.files.iter_mut().flatten() {
            submit(ring)?;
        }
        if self.file_done() || wait.is_some_and(|wait| wait.is_zero()) {
            return submit_and_look(&mut self.main);
        }
        let begun = Instant::now();
        if self.look_before_sleep(begun, wait)? {
            return Ok(());
        }
        let wait = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
        if wait.is_some_and(|wait| wait.is_zero()) {
            return submit_and_look(&mut self.main);
        }
        self.arm_file_polls()?;
        submit_and_wait(&mut self.main, wait)?;
        self.spinner.slept(begun.elapsed());
        Ok(())
    }

    fn file_done(&mut self) -> bool {
        self.files.iter_mut().flatten().any(|ring| !ring.completion().is_empty())
    }

    /// True where the sleep is not needed any more.
    fn look_before_sleep(&mut self, begun: Instant, wait: Option<Duration>) -> io::Result<bool> {
        let company = self.company.clone();
        let stays = |now| company.as_ref().is_some_and(|company| company.stays_awake(now));
        let accompanies = stays(begun) && self.spinner.keeps_company(begun);
        let limit = if accompanies { Some(Duration::ZERO) } else { self.spinner.before_sleep(begun) };
        let Some(limit) = limit else { return Ok(false) };
        let wait_end = wait.map(|wait| begun + wait);
        let end = begun + wait.map_or(limit, |wait| wait.min(limit));
        if !self.main.submission().is_empty() {
            submit_and_look(&mut self.main)?;
        }
        // Asked for when it is needed first: mostly something is found before.
        let mut switches = None;
        let mut lent = Lent::default();
        let mut before = begun;
        let (look, now) = loop {
            if self.main.submission().taskrun() {
                submit_and_look(&mut self.main)?;
            }
            if self.file_done() || !self.main.completion().is_empty() {
                break (Look::Found, before);
            }
            let may_stay = accompanies && stays(before) && wait_end.is_none_or(|end| before < end);
            if before >= end && !may_stay {
                break (Look::InVain, before);
            }
            let known = switches.get_or_insert_with(involuntary_switches);
            // Whoever else can run on this CPU does so here.
            std::thread::yield_now();
            let now = Instant::now();
            let switched = || {
                let count = involuntary_switches();
                std::mem::replace(known, count) != count
            };
            if lent.is_contended(now - before, accompanies, switched) {
                break (Look::Contended, now);
            }
            before = now;
        };
        if accompanies {
            self.spinner.kept_company(look, now - begun, now);
        }
        if !accompanies || look == Look::Found {
            self.spinner.looked(look, now);
        }
        if let Some((counts, lasted)) = self.tally.add(look, now) {
            let Counts { found, in_vain, contended } = counts;
            tracing::debug!(found, in_vain, contended, ?lasted, "looks for completions before sleeps");
        }
        Ok(look == Look::Found)
    }

    /// The main ring sleeps for all three: a file ring's descriptor is readable when it has completions.
    fn arm_file_polls(&mut self) -> io::Result<()> {
        for index in FileRing::ALL.map(FileRing::index) {
            let Some(ring) = &self.files[index] else { continue };
            if self.files_in_flight[index] == 0 || self.file_poll_armed[index] {
                continue;
            }
            let poll = opcode::PollAdd::new(types::Fd(ring.as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(SECONDARY + index as u64);
            push(&mut self.main, poll)?;
            self.file_poll_armed[index] = true;
        }
        Ok(())
    }

    pub(crate) fn take_remote_signal(&mut self) -> bool {
        std::mem::take(&mut self.remote_signalled)
    }

    /// Takes all completions and wakes their tasks, none of them while the driver is borrowed.
    pub(crate) fn complete_all(driver: &RefCell<Driver>) {
        let mut woken = Vec::new();
        let mut finished = Vec::new();
        {
            let driver = &mut *driver.borrow_mut();
            for via in RINGS {
                driver.complete_ring(via, &mut woken, &mut finished);
            }
            if driver.remote_signalled {
                driver.arm_remote().expect("the submission queue has room after submitting");
            }
        }
        // Resources of abandoned operations may own anything, also what uses the driver when dropped.
        drop(finished);
        woken.into_iter().for_each(Waker::wake);
    }

    fn complete_ring(&mut self, via: Via, woken: &mut Vec<Waker>, finished: &mut Vec<Box<dyn Any>>) {
        loop {
            let completion = match via {
                Via::Main | Via::Command => self.main.completion().next(),
                Via::File(file) => self.files[file.index()].as_mut().and_then(|ring| ring.completion().next()),
            };
            let Some(completion) = completion else { return };
            match completion.user_data() {
                REMOTE => self.remote_signalled = true,
                CANCEL => {}
                SECONDARY => self.file_poll_armed[0] = false,
                data if data == SECONDARY + 1 => self.file_poll_armed[1] = false,
                data => {
                    if let Via::File(file) = via {
                        self.files_in_flight[file.index()] -= 1;
                    }
                    self.complete_op((data & KEY_MASK) as usize, completion.result(), woken, finished);
                }
            }
        }
    }

    fn complete_op(&mut self, key: usize, result: i32, woken: &mut Vec<Waker>, finished: &mut Vec<Box<dyn Any>>) {
        let state = self.ops.get_mut(key).expect("the kernel completes what was submitted, once");
        match std::mem::replace(state, OpState::Done(result)) {
            OpState::Waiting(waker) => woken.extend(waker),
            OpState::Done(_) => unreachable!("the kernel completes an operation once"),
            OpState::Abandoned(resources) | OpState::Left(resources) => {
                self.ops.remove(key);
                discard(result, &*resources);
                finished.push(resources);
            }
        }
    }

    fn any_abandoned(&self) -> bool {
        self.ops.iter().any(|(_, state)| matches!(state, OpState::Abandoned(_)))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The kernel may write to abandoned buffers until it says that it is done.
        let end = Instant::now() + TEARDOWN_MAX;
        let (mut woken, mut finished) = (Vec::new(), Vec::new());
        while self.any_abandoned() && Instant::now() < end {
            let _ = self.enter(Some(Duration::from_millis(10)));
            for via in RINGS {
                self.complete_ring(via, &mut woken, &mut finished);
            }
        }
        for (_, state) in std::mem::take(&mut self.ops) {
            if matches!(state, OpState::Abandoned(_) | OpState::Left(_)) {
                std::mem::forget(state);
            }
        }
    }
}

fn file_ring(entries: u32, workers: u32) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_clamp()
        .setup_cqsize(entries.saturating_mul(4).max(1024))
        .build(entries)?;
    limit_workers(&ring, workers)?;
    Ok(ring)
}

/// `IORING_ENTER_GETEVENTS` of the kernel's interface.
const ENTER_GETEVENTS: u32 = 1;
const KEY_MASK: u64 = (1 << 48) - 1;

/// The ring is part of the user data, so that a cancellation finds its operation on its own ring only.
fn ring_tag(via: Via) -> u64 {
    let number: u64 = match via {
        Via::Main => 0,
        Via::File(FileRing::Read) => 1,
        Via::File(FileRing::Write) => 2,
        Via::Command => 3,
    };
    number << 48
}

fn push<E: EntryMarker>(ring: &mut IoUring<E>, entry: impl Into<E>) -> io::Result<()> {
    let entry = entry.into();
    loop {
        // SAFETY: whoever submits keeps what the entry points to alive until its completion (see `op::Op`).
        if unsafe { ring.submission().push(&entry) }.is_ok() {
            return Ok(());
        }
        submit(ring)?;
    }
}

fn submit<E: EntryMarker>(ring: &mut IoUring<E>) -> io::Result<()> {
    // Completions that found no room come when the kernel is entered, and not before.
    let queue = ring.submission();
    if queue.is_empty() && !queue.cq_overflow() {
        return Ok(());
    }
    drop(queue);
    match ring.submit() {
        Ok(_) => Ok(()),
        // Completions have to be taken first; what was not submitted stays queued for the next turn.
        Err(error) if is_passing(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Submits, and lets the kernel post the completions that are due (which it leaves to the ring's own thread).
fn submit_and_look<E: EntryMarker>(ring: &mut IoUring<E>) -> io::Result<()> {
    let pending = ring.submission().len() as u32;
    // SAFETY: no signal mask is passed, so there is no pointer that could be wrong.
    let result = unsafe { ring.submitter().enter::<libc::sigset_t>(pending, 0, ENTER_GETEVENTS, None) };
    passing_is_fine(result)
}

/// Submits, and sleeps until there is a completion.
fn submit_and_wait<E: EntryMarker>(ring: &mut IoUring<E>, wait: Option<Duration>) -> io::Result<()> {
    passing_is_fine(match wait {
        Some(wait) => {
            let limit = types::Timespec::from(wait);
            ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
        }
        None => ring.submit_and_wait(1),
    })
}

fn passing_is_fine(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if is_passing(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// All rings of a thread share their workers: the last word counts.
fn limit_workers<E: EntryMarker>(ring: &IoUring<E>, workers: u32) -> io::Result<()> {
    let mut limits = [workers.max(1); 2];
    ring.submitter().register_iowq_max_workers(&mut limits)
}

/// An event counter that other threads raise to wake the ring.
pub(crate) struct Wakeup {
    fd: OwnedFd,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; its result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn signal(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes from a live local. A full counter (EAGAIN) is as good as a signal.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a live local. EAGAIN means that it is clear already.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// How often this thread has lost its CPU to another one while it could go on.
fn involuntary_switches() -> i64 {
    // SAFETY: all-zero bytes are a valid record, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_for_files_are_there_before_the_first_call_where_that_is_asked_for() {
        let wakeup = Wakeup::new().expect("an event counter");
        for files in [false, true] {
            let config = Config { files, ..Config::default() };
            let driver = Driver::new(&config, wakeup.fd()).expect("a driver");
            assert_eq!(driver.files.each_ref().map(Option::is_some), [files; 2]);
        }
    }
}
