//! One measurement, or one server of a yardstick: a process of its own, started anew from this program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cpu::Who;
use crate::interrupt::Measuring;
use crate::io500;
use crate::side::{ceiling, core, idle, inodes, paths, ping, rocks, shard, shards, tool};
use crate::work::Files;

/// What the process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    Files(Files),
    Rocks(rocks::Rocks),
    Shard(shard::Alone),
    Core(core::Core),
    Paths(paths::Paths),
    Shards(shards::Crowd),
    Ping(ping::Ping),
    Raw(ping::Raw),
    NetBench(tool::NetBench),
    StorageBench(tool::StorageBench),
    Fio(tool::Fio),
    Idle(idle::Idle),
    Inodes(inodes::Inodes),
    Io500(io500::Step),
    /// Serves until its input ends.
    Ceiling(ceiling::Mount),
    /// Serves until its input ends.
    PingServer,
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Part of the job that it belongs to.
    pub(crate) phase: String,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// CPU time in all, in microseconds.
    pub(crate) cpu_us: BTreeMap<Who, f64>,
    /// What 99 % of the operations took at most, in microseconds, where somebody has looked.
    pub(crate) p99_us: Option<f64>,
}

impl Job {
    fn run(self) -> Result<Vec<Measured>> {
        match self {
            Job::Files(files) => files.run(),
            Job::Rocks(rocks) => rocks.run(),
            Job::Shard(shard) => shard.run(),
            Job::Core(core) => core.run(),
            Job::Paths(paths) => paths.run(),
            Job::Shards(shards) => shards.run(),
            Job::Ping(ping) => ping.run(),
            Job::Raw(raw) => raw.run(),
            Job::NetBench(bench) => bench.run(),
            Job::StorageBench(bench) => bench.run(),
            Job::Fio(fio) => fio.run(),
            Job::Idle(idle) => idle.run(),
            Job::Inodes(inodes) => inodes.run(),
            Job::Io500(step) => step.run().map(|measured| vec![measured]),
            Job::Ceiling(mount) => mount.serve().map(|()| Vec::new()),
            Job::PingServer => ping::serve().map(|()| Vec::new()),
        }
    }
}

/// Runs `job`, prints what was measured as JSON, and ends the process.
#[expect(clippy::disallowed_methods, reason = "a measurement is a process of its own: there is no table to return")]
pub(crate) fn run_and_exit(job: &str) -> ! {
    let outcome = serde_json::from_str::<Job>(job).context("no such job").and_then(Job::run);
    let code = match outcome.and_then(|measured| Ok(say(&serde_json::to_string(&measured)?)?)) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error:#}");
            1
        }
    };
    std::process::exit(code)
}

/// One line to the process that started this one.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Until the process that started this one closes our input, or is gone.
pub(crate) fn wait_for_end() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
}

/// How to start this program again.
#[derive(Clone, Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    pub(crate) fn this() -> Result<Self> {
        Ok(Self(std::env::current_exe().context("cannot find this program")?))
    }

    /// # Errors
    /// What the job says where it fails.
    pub(crate) fn measure(&self, job: &Job) -> Result<Vec<Measured>> {
        self.measure_within(Duration::MAX, job)
    }

    /// As `measure`, of a job that may hang in a file system that is not ours.
    ///
    /// # Errors
    /// [`Hung`] where the job was killed because it took longer than `patience`; else as above.
    pub(crate) fn measure_within(&self, patience: Duration, job: &Job) -> Result<Vec<Measured>> {
        measured_by(self.command(job)?, patience)
    }

    /// Starts a job that serves, and waits until it says that it does.
    pub(crate) fn serve(&self, job: &Job) -> Result<Served> {
        // A file, since nobody reads a pipe while it serves.
        let mut complaint = tempfile::tempfile()?;
        let mut command = self.command(job)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaint.try_clone()?);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let mut first = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut first)?;
        let served = Served { child, input, said: first.trim().to_owned() };
        if served.said.is_empty() {
            drop(served);
            bail!("{}", end_of(&mut complaint)?);
        }
        Ok(served)
    }

    fn command(&self, job: &Job) -> Result<Command> {
        let mut command = Command::new(&self.0);
        command.arg("bench").arg("--job").arg(serde_json::to_string(job)?);
        // Ctrl-C at a terminal is for this process, which ends the others in order.
        command.process_group(0);
        // SAFETY: prctl is safe between fork and exec. Whatever becomes of us, nothing is left behind.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        Ok(command)
    }
}

/// Runs a measurement, which leads a process group of its own. What it has started ends with it.
fn measured_by(mut command: Command, patience: Duration) -> Result<Vec<Measured>> {
    // Files: a pipe is full before long where nobody reads it, and has no end while a program that was left behind holds it.
    let (mut figures, mut complaint) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(figures.try_clone()?).stderr(complaint.try_clone()?);
    let mut child = command.spawn().context("cannot start a measurement")?;
    let hung = {
        let _measuring = Measuring::begin(child.id());
        let watchdog = Watchdog::begin(&child, patience)?;
        wait_for_end_of(&child)?;
        watchdog.end()
    };
    kill_group(&child)?;
    let status = child.wait()?;
    ensure!(!hung, Hung(patience));
    if !status.success() {
        bail!("{} ({status})", end_of(&mut complaint)?);
    }
    figures.rewind()?;
    serde_json::from_reader(figures).context("a measurement printed something else than its figures")
}

/// Until a child has ended. It is not reaped, so that its number, which is that of its group, stays its own.
fn wait_for_end_of(child: &Child) -> io::Result<()> {
    loop {
        // SAFETY: all zeros are a valid `siginfo_t`, which lives through the call.
        let failed = unsafe {
            let mut ended: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &raw mut ended, libc::WEXITED | libc::WNOWAIT) != 0
        };
        match io::Error::last_os_error() {
            _ if !failed => return Ok(()),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Kills a child that has not been reaped, with all of its group.
fn kill_group(child: &Child) -> Result<()> {
    let group = i32::try_from(child.id())?;
    // SAFETY: kill touches no memory; the child is not reaped, so the number of its group is its own.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    Ok(())
}

/// The last of what was said: enough for people, of however much.
fn end_of(complaint: &mut File) -> Result<String> {
    const MOST: u64 = 16 << 10;
    let mut bytes = Vec::new();
    complaint.seek(SeekFrom::Start(complaint.metadata()?.len().saturating_sub(MOST)))?;
    complaint.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// A measurement was killed after so long.
#[derive(Debug)]
pub(crate) struct Hung(Duration);

impl std::error::Error for Hung {}

impl std::fmt::Display for Hung {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it hangs: not done in {} s, and killed", self.0.as_secs())
    }
}

/// Kills a measurement, with the programs that it has started, unless it ends in time.
struct Watchdog {
    done: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    fn begin(child: &Child, patience: Duration) -> Result<Self> {
        let group = i32::try_from(child.id())?;
        let (done, waiting) = mpsc::channel();
        let watch = move || {
            let late = waiting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if late {
                // SAFETY: kill touches no memory; the child is waited for after this thread has ended, so the number of
                // its group is its own.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            late
        };
        Ok(Self { done, thread: std::thread::Builder::new().spawn(watch)? })
    }

    /// Whether it has killed.
    fn end(self) -> bool {
        drop(self.done);
        self.thread.join().unwrap_or(false)
    }
}

/// A job that serves, until this is dropped.
pub(crate) struct Served {
    child: Child,
    input: Option<ChildStdin>,
    /// Its first line.
    pub(crate) said: String,
}

impl Served {
    pub(crate) fn pid(&self) -> Result<i32> {
        let pid = i32::try_from(self.child.id())?;
        ensure!(pid > 0, "no process");
        Ok(pid)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(seconds: &str) -> Child {
        Command::new("sleep").arg(seconds).process_group(0).spawn().expect("sleep starts")
    }

    fn sh(script: &str, patience: Duration) -> Result<Vec<Measured>> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        measured_by(command, patience)
    }

    #[test]
    fn who_complains_much_is_heard_and_what_is_left_running_is_ended() {
        let begin = Instant::now();
        let soon = Duration::from_secs(30);
        assert_eq!(sh("head -c 1000000 /dev/zero >&2; echo '[]'", soon).expect("it ends"), []);
        let error = sh("head -c 1000000 /dev/zero >&2; echo why >&2; exit 3", soon).expect_err("it fails");
        assert!(error.to_string().contains("why (exit status: 3)"), "{error}");
        // A program that holds on to the outputs, whose end nobody has waited for.
        let left = tempfile::NamedTempFile::new().expect("a file");
        let script = format!("sleep 600 & echo $! > {}; echo '[]'", left.path().display());
        assert_eq!(sh(&script, soon).expect("it ends"), []);
        let pid = std::fs::read_to_string(left.path()).expect("written");
        let stat = format!("/proc/{}/stat", pid.trim());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begin.elapsed() < soon, "{stat} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        let error = sh("sleep 600", Duration::from_millis(100)).expect_err("it hangs");
        assert!(error.is::<Hung>() && begin.elapsed() < soon, "{error}");
    }

    #[test]
    fn what_hangs_is_killed_and_what_ends_in_time_is_not() {
        let mut child = sleeping("600");
        let watchdog = Watchdog::begin(&child, Duration::from_millis(50)).expect("a thread");
        let begin = Instant::now();
        while child.try_wait().expect("it is ours").is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(watchdog.end());
        let mut child = sleeping("0");
        let watchdog = Watchdog::begin(&child, Duration::MAX).expect("a thread");
        assert!(child.wait().expect("it is ours").success());
        assert!(!watchdog.end());
    }
}
