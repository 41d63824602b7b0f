//! Stops a local cluster.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::Serialize;

use super::umount;
use crate::failure::Failure;
use crate::local::dir::ClusterDir;
use crate::local::state::State;
use crate::local::{mounts, plan};
use crate::locate::Selection;
use crate::output::{Output, Progress};

/// Unmount the file system of a local cluster and stop its services
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft down --dir .weft")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Stop even while programs use the mount: they will get errors
    #[arg(long)]
    force: bool,
    /// Give up waiting after so many seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
}

#[derive(Serialize)]
struct Stopped {
    dir: std::path::PathBuf,
    was_running: bool,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let dir = self.selection.find_dir()?;
        // It says what is unmounted, and which process is killed.
        dir.must_be_own()?;
        let spec = dir.spec()?;
        let was_running = dir.is_running()?;
        // Before anything is stopped, so that what is refused has changed nothing.
        if mounts::of_cluster(&spec.mount, &plan::mgmtd_address(&spec))?.is_some() {
            umount::take_away(&spec.mount, self.force)?;
        }
        if was_running {
            stop_supervisor(&dir, Duration::from_secs(self.timeout))?;
        }
        let stopped = Stopped { dir: dir.root().to_owned(), was_running };
        output.show(&stopped, |stopped| match stopped.was_running {
            true => format!("stopped; the data stays in {}", stopped.dir.display()),
            false => format!("not running: {}", stopped.dir.display()),
        })
    }
}

/// Asks the supervisor to end everything, and waits until it has.
pub(super) fn stop_supervisor(dir: &ClusterDir, limit: Duration) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut asked: Option<OwnedFd> = None;
    let mut progress = Progress::new();
    // Who waits for the end of it starts it again at once: with its lock taken anew it has ended all the same.
    while dir.is_running()? && !ended(asked.as_ref())? {
        let state = State::read(dir)?.filter(|state| state.supervisor > 1);
        let waited = begin.elapsed().as_secs();
        if let Some(state) = state.as_ref().filter(|_| waited > 0) {
            let running: Vec<&str> = state.running().collect();
            progress.update(&format!("stopping, {waited} s: {} still run", running.join(", ")));
        }
        if let Some(state) = state.filter(|_| asked.is_none())
            && let Ok(supervisor) = process_handle(state.supervisor)
        {
            asked = Some(supervisor);
            // SAFETY: kill touches no memory; the lock is held, so the process that wrote its id is alive.
            unsafe { libc::kill(state.supervisor, libc::SIGTERM) };
        }
        if begin.elapsed() > limit {
            let log = dir.log_file("supervisor");
            return Err(anyhow!("still stopping after {} s: see {}", limit.as_secs(), log.display()).into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    // It gives its lock back a moment before it ends, and whoever is told "stopped" expects no process.
    match asked {
        Some(supervisor) if !has_ended(&supervisor, limit.saturating_sub(begin.elapsed()))? => {
            Err(anyhow!("the supervisor has stopped everything, but does not end itself").into())
        }
        _ => Ok(()),
    }
}

fn ended(process: Option<&OwnedFd>) -> io::Result<bool> {
    process.map_or(Ok(false), |process| has_ended(process, Duration::ZERO))
}

/// Names this process for ever, whoever gets its number later.
pub(super) fn process_handle(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; its result is checked before it is owned.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Waits for the end of a process for `limit` at most.
pub(super) fn has_ended(process: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let begin = Instant::now();
    loop {
        let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let left = limit.saturating_sub(begin.elapsed()).as_millis();
        let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer is to one live structure.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left) };
        if ready >= 0 {
            return Ok(ready > 0);
        }
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_endless_wait_is_no_overflow() {
        let mut done = Command::new("true").spawn().expect("it runs");
        let process = process_handle(i32::try_from(done.id()).expect("a process id")).expect("ours");
        assert!(has_ended(&process, Duration::MAX).expect("it can be waited for"));
        done.wait().expect("ours");
    }

    #[test]
    fn a_cluster_that_is_started_again_at_once_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        dir.make_folders().expect("makable");
        // Held by the next supervisor by now.
        let _lock = dir.try_lock().expect("lockable").expect("free");
        let mut old = Command::new("sleep").arg("60").spawn().expect("it runs");
        let supervisor = i32::try_from(old.id()).expect("a process id");
        State { supervisor, ..State::default() }.write(&dir).expect("writable");
        let stopped = stop_supervisor(&dir, Duration::from_secs(20));
        old.kill().expect("ours");
        old.wait().expect("ours");
        stopped.expect("the one that was there has ended");
    }
}
