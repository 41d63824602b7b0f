//! CPU time of processes, to the nanosecond.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
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
    /// All that this machine does, kernel threads and others' programs among it.
    Machine,
}

/// Processes to be watched while others work.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Watch(pub(crate) Vec<(Who, i32)>);

impl Watch {
    /// The whole machine is watched under this number.
    pub(crate) const MACHINE: (Who, i32) = (Who::Machine, 0);

    /// CPU time of each kind until now, in microseconds.
    ///
    /// # Errors
    /// Where one of them is gone: a service that has crashed uses little, and whoever takes its place is not watched.
    pub(crate) fn read(&self) -> Result<BTreeMap<Who, f64>> {
        let mut sums = BTreeMap::new();
        for &(who, pid) in &self.0 {
            let used = if who == Who::Machine { of_machine() } else { of_process(pid) };
            *sums.entry(who).or_default() += used.with_context(|| format!("process {pid} ({who:?}) is gone"))?;
        }
        Ok(sums)
    }

    /// Without those that are gone.
    pub(crate) fn living(&self) -> Self {
        let is_there = |&(who, pid): &(Who, i32)| who == Who::Machine || of_process(pid).is_ok();
        Self(self.0.iter().copied().filter(is_there).collect())
    }

    /// Waits until they have nothing left to do of what was before, such as to write it down: less than a twentieth of a
    /// CPU in use, or a bound is reached.
    pub(crate) fn settle(&self) {
        self.settle_to(0.0);
    }

    /// As `settle`, of processes that use so many CPUs with nothing to do.
    pub(crate) fn settle_to(&self, idle: f64) {
        const PATIENCE: Duration = Duration::from_secs(20);
        self.settle_within(PATIENCE, idle);
    }

    /// As `settle_to`, for so long at most.
    pub(crate) fn settle_within(&self, patience: Duration, idle: f64) {
        const LOOK: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + patience;
        while self.cpus_in_use(LOOK) >= idle + 0.05 && Instant::now() <= deadline {}
    }

    /// How many CPUs they use with nothing to do, which they have now: the least of several looks, since what they do for
    /// themselves comes in bursts.
    pub(crate) fn idle(&self) -> f64 {
        const LOOK: Duration = Duration::from_millis(500);
        (0..4).map(|_| self.cpus_in_use(LOOK)).fold(f64::INFINITY, f64::min)
    }

    /// From now on for so long. Without those of the whole machine, which others use too, and those that are gone.
    fn cpus_in_use(&self, look: Duration) -> f64 {
        let processes = self.0.iter().filter(|(who, _)| *who != Who::Machine);
        let before: Vec<(i32, f64)> = processes.filter_map(|&(_, pid)| Some((pid, of_process(pid).ok()?))).collect();
        std::thread::sleep(look);
        let used: f64 = before.iter().filter_map(|&(pid, before)| Some(of_process(pid).ok()? - before)).sum();
        used / look.as_micros() as f64
    }

    /// What was used since `before` was read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn since(&self, before: &BTreeMap<Who, f64>) -> Result<BTreeMap<Who, f64>> {
        let mut now = self.read()?;
        for (who, value) in &mut now {
            *value -= before.get(who).copied().unwrap_or(0.0);
        }
        Ok(now)
    }
}

/// Microseconds of all threads of `pid`, those that have ended included; of the kernel's on its behalf those that are
/// its threads (`iou-wrk`), not the kernel's own.
fn of_process(pid: i32) -> io::Result<f64> {
    // As clock_getcpuclockid(3) makes it: the process's scheduler clock.
    read_clock((!pid << 3) | 2)
}

/// Microseconds that the CPUs of this machine have not been idle, in steps of a clock tick (10 ms).
fn of_machine() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    // SAFETY: a system call without memory.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let ticks = busy_ticks(&text).ok_or_else(|| io::Error::other("/proc/stat has no line of all CPUs"))?;
    Ok(ticks as f64 * 1e6 / ticks_per_second)
}

/// Of `/proc/stat`: user, nice, system, irq and softirq of all CPUs. Not idle and iowait; nor what a host took for others
/// (steal), or what guests used, which is in user already.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else { return None };
    Some(user + nice + system + irq + softirq)
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
    fn what_is_idle_or_taken_by_the_host_is_no_work() {
        let stat = "cpu  100 20 30 4000 500 6 7 800 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(163));
        assert_eq!(busy_ticks("cpu 1 2\n"), None);
        assert_eq!(busy_ticks(""), None);
        assert!(of_machine().expect("Linux has it") > 0.0);
    }

    #[test]
    fn work_is_seen() {
        let pid = i32::try_from(std::process::id()).expect("a process id");
        let watch = Watch(vec![(Who::App, pid)]);
        let before = watch.read().expect("it is there");
        // This thread's share, by a clock of its own; other tests run meanwhile.
        let of_thread = || read_clock(libc::CLOCK_THREAD_CPUTIME_ID).expect("always there");
        let (begin, mut reached) = (of_thread(), 0.0);
        while reached < 50_000.0 {
            reached = of_thread() - begin;
        }
        let used = watch.since(&before).expect("it is there")[&Who::App];
        assert!(used >= reached, "{used} us by one clock, {reached} by the other");
        assert!(of_process(5_000_000).is_err(), "beyond the largest process id there can be");
    }

    #[test]
    fn who_is_gone_is_not_taken_for_idle() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep starts");
        let watch = Watch(vec![(Who::Server, i32::try_from(child.id()).expect("a process id"))]);
        let before = watch.read().expect("it is there");
        assert_eq!(watch.living(), watch);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        let error = watch.since(&before).expect_err("it is gone");
        assert!(error.to_string().contains("(Server) is gone"), "{error}");
        assert_eq!(watch.living(), Watch::default());
        watch.settle();
        let idle = crate::side::idle::Idle { seconds: 0.0, watch };
        assert!(idle.run().is_err(), "there is no cluster that could be idle");
    }

    #[test]
    fn those_that_are_never_idle_are_not_waited_for() {
        let mut busy = std::process::Command::new("sh");
        let mut busy = busy.args(["-c", "while :; do :; done"]).spawn().expect("sh starts");
        let watch = Watch(vec![(Who::Server, i32::try_from(busy.id()).expect("a process id")), Watch::MACHINE]);
        let idle = watch.idle();
        assert!(idle > 0.0 && idle < 1.5, "{idle}");
        let begin = Instant::now();
        watch.settle_to(1.5);
        assert!(begin.elapsed() < Duration::from_secs(10), "it cannot use more than one CPU");
        let begin = Instant::now();
        watch.settle_within(Duration::from_millis(300), -1.0);
        let waited = begin.elapsed();
        assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(10), "{waited:?}");
        busy.kill().and_then(|()| busy.wait()).expect("it ends");
    }
}
