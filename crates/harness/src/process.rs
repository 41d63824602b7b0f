//! Signals to processes, and what /proc tells of them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::wait;

/// Sends a signal; nothing happens where the process is gone.
pub fn signal(pid: i32, signal: i32) {
    assert!(pid > 1, "{pid} is nobody's process id");
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Sends a signal to all processes of a group, as a terminal does.
pub fn signal_group(leader: i32, signal: i32) {
    assert!(leader > 1, "{leader} leads no group");
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(-leader, signal) };
}

/// Kills it and waits until it runs no more.
pub fn kill(pid: i32) {
    signal(pid, libc::SIGKILL);
    wait::until(&format!("the end of process {pid}"), Duration::from_secs(10), || (!is_alive(pid)).then_some(()));
}

/// Makes it hang, and waits until all of its threads do: the signal itself takes a while on a busy machine.
pub fn stop(pid: i32) {
    signal(pid, libc::SIGSTOP);
    wait::until(&format!("the halt of process {pid}"), Duration::from_secs(10), || all_stopped(pid).then_some(()));
}

/// Where the tests run in the background of a script, SIGINT is ignored, and children would inherit that.
pub fn default_signals(command: &mut Command) {
    // SAFETY: between fork and exec this makes one system call, which may be made there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
}

fn all_stopped(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default()).all(|stat| {
        // A thread that has ended meanwhile runs no more either.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Whether a signal no longer has its usual effect on it, since it has a handler for it, or a thread that waits for it.
///
/// # Panics
/// Where it is gone.
#[must_use]
pub fn hears(pid: i32, signal: i32) -> bool {
    hears_by(&fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs"), signal)
}

fn hears_by(status: &str, signal: i32) -> bool {
    let has = |set: &str, signal: i32| {
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).is_ok_and(|set| set & (1 << (signal - 1)) != 0)
    };
    // Who starts a thread blocks all signals for a moment, also those that have their usual effect right after.
    let all = has("SigBlk:", libc::SIGPROF);
    has("SigCgt:", signal) || (has("SigBlk:", signal) && !all)
}

/// Until none of its threads has run for some time: it waits for something.
///
/// # Panics
/// Where that is not so soon, or the process ends.
pub fn wait_until_it_waits(pid: i32) {
    const ASLEEP: Duration = Duration::from_millis(300);
    let (mut before, mut since) = (None, Instant::now());
    wait::until(&format!("a wait of process {pid}"), Duration::from_secs(60), || {
        assert!(is_alive(pid), "process {pid} has ended");
        let now = sleeps(pid);
        if now.is_none() || now != before {
            (before, since) = (now, Instant::now());
        }
        (since.elapsed() > ASLEEP).then_some(())
    });
}

/// How often its threads have gone to sleep so far; `None` where one does not sleep.
fn sleeps(pid: i32) -> Option<Vec<u64>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
    let asleep = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let count = value("voluntary_ctxt_switches:")?.parse().ok()?;
        value("State:").filter(|state| state.starts_with(['S', 'D'])).map(|_| count)
    };
    threads.map(asleep).collect()
}

/// It exists and is no zombie.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may hold anything, also blanks and parentheses.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    // While any of its threads is still ending, the process has its files and their locks.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !rest.starts_with(['Z', 'X']) || threads() > 1
}

/// What all threads of a process have used of CPUs since it began; `None` where it is gone.
#[must_use]
pub fn cpu_time(pid: i32) -> Option<Duration> {
    // SAFETY: the pointers are to live values.
    let time = unsafe {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        let found = libc::clock_getcpuclockid(pid, &raw mut clock) == 0;
        (found && libc::clock_gettime(clock, &raw mut time) == 0).then_some(time)
    }?;
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Processes with `path` in an argument.
#[must_use]
pub fn mentioning(path: &Path) -> Vec<i32> {
    let path = path.to_str().expect("test paths are UTF-8");
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = std::process::id() as i32;
    let mentions = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(path))
    };
    pids.filter(|pid| *pid != own).filter(mentions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_waits_and_hears_what_it_is_to_hear() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap : USR1; sleep 60 & wait"]).process_group(0);
        let mut child = command.spawn().expect("a shell");
        let pid = child.id() as i32;
        wait_until_it_waits(pid);
        assert!(hears(pid, libc::SIGUSR1) && !hears(pid, libc::SIGUSR2));
        signal_group(pid, libc::SIGKILL);
        child.wait().expect("it ends");
    }

    #[test]
    fn who_starts_a_thread_hears_nothing_yet() {
        let status =
            |blocked: u64, caught: u64| format!("SigBlk:\t{blocked:016x}\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n");
        let hup = 1 << (libc::SIGHUP - 1);
        assert!(!hears_by(&status(0, 0), libc::SIGHUP));
        assert!(hears_by(&status(0, hup), libc::SIGHUP));
        assert!(hears_by(&status(hup, 0), libc::SIGHUP));
        assert!(!hears_by(&status(0xffff_fffe_7fff_ffff, 0), libc::SIGHUP));
        assert!(hears_by(&status(0xffff_fffe_7fff_ffff, hup), libc::SIGHUP));
    }

    #[test]
    #[should_panic(expected = "has ended")]
    fn who_has_ended_does_not_wait() {
        let mut child = Command::new("true").spawn().expect("a program");
        child.wait().expect("it ends");
        wait_until_it_waits(child.id() as i32);
    }
}
