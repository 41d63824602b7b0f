//! CPU time of processes, to the nanosecond.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Whose CPU time it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// The processes that do the work.
    App,
    /// What turns their system calls into requests: the mount.
    Client,
    /// The services.
    Server,
}

/// Processes to be watched while others work.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Watch(pub(crate) Vec<(Who, i32)>);

impl Watch {
    /// CPU time of each kind until now, in microseconds. Processes that are gone count nothing.
    pub(crate) fn read(&self) -> BTreeMap<Who, f64> {
        let mut sums = BTreeMap::new();
        for &(who, pid) in &self.0 {
            *sums.entry(who).or_default() += of_process(pid).unwrap_or(0.0);
        }
        sums
    }

    /// Waits until they have nothing left to do of what was before, such as to write it down: less than a twentieth of a
    /// CPU in use, or a bound is reached.
    pub(crate) fn settle(&self) {
        const LOOK: Duration = Duration::from_millis(100);
        const PATIENCE: Duration = Duration::from_secs(20);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.read();
            std::thread::sleep(LOOK);
            let used: f64 = self.since(&before).values().sum();
            if used * 20.0 < LOOK.as_micros() as f64 || Instant::now() > deadline {
                return;
            }
        }
    }

    /// What was used since `before` was read.
    pub(crate) fn since(&self, before: &BTreeMap<Who, f64>) -> BTreeMap<Who, f64> {
        let mut now = self.read();
        for (who, value) in &mut now {
            *value -= before.get(who).copied().unwrap_or(0.0);
        }
        now
    }
}

/// Microseconds of all threads of `pid`, those that have ended included; of the kernel's on its behalf those that are
/// its threads (`iou-wrk`), not the kernel's own.
pub(crate) fn of_process(pid: i32) -> io::Result<f64> {
    // As clock_getcpuclockid(3) makes it: the process's scheduler clock.
    read_clock((!pid << 3) | 2)
}

/// Microseconds of this process and of the children that it has waited for.
pub(crate) fn of_self_and_children() -> f64 {
    let own = read_clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0.0);
    // SAFETY: an all-zero rusage is valid, and the kernel writes to nothing else.
    let children = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let microseconds = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    own + microseconds(children.ru_utime) + microseconds(children.ru_stime)
}

fn read_clock(clock: libc::clockid_t) -> io::Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let pid = i32::try_from(std::process::id()).expect("a process id");
        let watch = Watch(vec![(Who::App, pid)]);
        let before = watch.read();
        // This thread's share, by a clock of its own; other tests run meanwhile.
        let of_thread = || read_clock(libc::CLOCK_THREAD_CPUTIME_ID).expect("always there");
        let (begin, mut reached) = (of_thread(), 0.0);
        while reached < 50_000.0 {
            reached = of_thread() - begin;
        }
        let used = watch.since(&before)[&Who::App];
        assert!(used >= reached, "{used} us by one clock, {reached} by the other");
        assert!(of_process(5_000_000).is_err(), "beyond the largest process id there can be");
    }
}
