//! Waiting for the end: of the mount, or by a signal.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Signals that ask this process to end (`SIGTERM`, `SIGINT`, `SIGHUP`), taken as events instead.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in this thread and those that it will start: call it first in `main`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block() -> io::Result<Self> {
        // SAFETY: the set is initialised by sigemptyset before use, and lives through the calls.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Does in another thread what may take long, and waits for its end or for a signal, whichever comes first. After a
    /// signal the work is left to itself: the process is expected to end.
    ///
    /// # Errors
    /// Where the thread cannot be made.
    ///
    /// # Panics
    /// Where `work` panics.
    pub fn or_result_of<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Waited<T>> {
        let ended = Ended::new()?;
        let running = ended.running();
        let worker = std::thread::Builder::new().spawn(move || {
            let result = work();
            drop(running);
            result
        })?;
        if let Some(signal) = ended.wait(Some(self)) {
            return Ok(Waited::Signal(signal));
        }
        match worker.join() {
            Ok(result) => Ok(Waited::Done(result)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn take(&self) -> u32 {
        // SAFETY: a zeroed record is valid, and the read writes at most its size.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info));
            info.ssi_signo
        }
    }
}

/// What came first of the end of some work and a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited<T> {
    /// The end of the work, and its result.
    Done(T),
    /// The signal of this number.
    Signal(u32),
}

/// Knows when the last loop of a mount has ended: the write end of a pipe is held by all of them.
#[derive(Debug)]
pub(crate) struct Ended {
    read_end: OwnedFd,
    running: std::sync::Weak<OwnedFd>,
    /// Until the loops have been given theirs.
    first: std::sync::Mutex<Option<Arc<OwnedFd>>>,
}

impl Ended {
    pub(crate) fn new() -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: the array has room for the two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh descriptors that nobody else owns.
        let (read_end, write_end) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        let first = Arc::new(write_end);
        Ok(Self { read_end, running: Arc::downgrade(&first), first: std::sync::Mutex::new(Some(first)) })
    }

    /// To be held for as long as a loop runs.
    pub(crate) fn running(&self) -> Option<Arc<OwnedFd>> {
        self.running.upgrade()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.forget_first();
        self.running.strong_count() == 0
    }

    /// Waits until no loop runs; or until a signal comes, which is its number.
    pub(crate) fn wait(&self, signals: Option<&Signals>) -> Option<u32> {
        self.forget_first();
        let signal_fd: RawFd = signals.map_or(-1, |signals| signals.fd.as_raw_fd());
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(self.read_end.as_raw_fd()), poll(signal_fd)];
        loop {
            // SAFETY: two live records; a negative descriptor is skipped.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
            if fds[0].revents != 0 {
                return None;
            }
            if fds[1].revents != 0 {
                return signals.map(Signals::take);
            }
        }
    }

    fn forget_first(&self) {
        self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_ends_or_a_signal_comes_first() {
        // The signals of a thread of its own: those of the other tests go on as before.
        let thread = std::thread::spawn(|| {
            let signals = Signals::block().expect("blockable");
            assert_eq!(signals.or_result_of(|| 7).expect("a thread"), Waited::Done(7));
            let (release, wait) = mpsc::channel::<()>();
            // SAFETY: both calls take numbers and thread ids, and this thread has the signal blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            let ended = signals.or_result_of(move || wait.recv().is_ok()).expect("a thread");
            assert_eq!(ended, Waited::Signal(libc::SIGTERM as u32));
            drop(release);
        });
        thread.join().expect("no panic");
    }
}
