//! The processes of a peer: started in the foreground, heard within bounds, and ended.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::interrupt;

/// How often those who wait look.
const LOOK: Duration = Duration::from_millis(20);
/// What a program gets to end after it was asked to.
const GRACE: Duration = Duration::from_secs(15);
/// Of a log that ends up in a message.
const TAIL_LINES: usize = 4;
/// Servers and mounts keep files open by the ten thousands.
const OPEN_FILES: u64 = 1 << 20;

/// A server or a mount that stays in the foreground. Ended when dropped.
pub(crate) struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command`, whose output goes to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let name = name_of(command);
        let out = File::options().create(true).append(true).open(log);
        let out = out.with_context(|| format!("cannot open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        // Ctrl-C at a terminal is for the bench, which ends the others in order.
        command.process_group(0);
        // SAFETY: these calls are allowed between fork and exec. Whatever becomes of us, the daemon is told to end.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                let limit = libc::rlimit { rlim_cur: OPEN_FILES, rlim_max: OPEN_FILES };
                // Where the system allows fewer, the program gets what it had.
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name, log: log.into() })
    }

    /// Its own number, and those of all processes below it.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let own = i32::try_from(self.child.id()).unwrap_or(0);
        let parents = parents();
        let mut family = vec![own];
        let mut next = 0;
        while let Some(&parent) = family.get(next) {
            family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            next += 1;
        }
        family
    }

    /// Waits until `ready`.
    ///
    /// # Errors
    /// With the end of its log, where the daemon ends before, or it takes longer than `patience`.
    pub(crate) fn wait(&mut self, what: &str, patience: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !ready() {
            interrupt::check()?;
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}) before {what}: {}", self.name, tail(&self.log));
            }
            let late = Instant::now() > deadline;
            ensure!(!late, "{}: not {what} in {} s: {}", self.name, patience.as_secs(), tail(&self.log));
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until something listens at `at`, for `patience` at most.
    ///
    /// # Errors
    /// Where it ends before that, or the time is over.
    pub(crate) fn wait_for_listener(&mut self, at: SocketAddr, patience: Duration) -> Result<()> {
        let what = format!("listening at {at}");
        self.wait(&what, patience, || TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_ok())
    }

    /// Waits until it ends by itself; whether it has.
    pub(crate) fn has_ended_within(&mut self, patience: Duration) -> bool {
        ended_within(&mut self.child, patience).is_some()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            if ended_within(&mut self.child, Duration::ZERO).is_some() {
                break;
            }
            // SAFETY: kill touches no memory; the child has not been waited for, so the number is its own.
            unsafe { libc::kill(pid, signal) };
            ended_within(&mut self.child, GRACE);
        }
        // Those that it has started and left: their group keeps its number, unless it is a new process's already.
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // SAFETY: as above.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}

fn ended_within(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    ended_before(child, patience, || false)
}

/// How the child ended; `None` where it did not within `patience`, or before somebody wanted it to `stop`.
fn ended_before(child: &mut Child, patience: Duration, stop: impl Fn() -> bool) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > deadline || stop() {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The last lines of a log, as one.
fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "it said nothing".into();
    }
    lines[lines.len().saturating_sub(TAIL_LINES)..].join(" | ")
}

/// What `command` prints: a program that ends by itself, within `patience`.
///
/// # Errors
/// With what it says, where it fails.
pub(crate) fn ask(command: &mut Command, patience: Duration) -> Result<String> {
    let name = name_of(command);
    // A file: whatever the program leaves running, nobody waits for the end of a pipe.
    let out = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out.try_clone()?).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let status = ended_before(&mut child, patience, || interrupt::check().is_err());
    if status.is_none() {
        let _ = child.kill();
        // Bounded: a process that hangs in a file system does not end by being killed in every case.
        ended_within(&mut child, GRACE);
    }
    interrupt::check()?;
    let text = read_whole(&out)?;
    let Some(status) = status else { bail!("{name} did not end in {} s: {}", patience.as_secs(), text.trim()) };
    ensure!(status.success(), "{name}: {} ({status})", text.trim());
    Ok(text)
}

fn read_whole(file: &File) -> Result<String> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A port of the address where nobody listens at the moment.
pub(crate) fn free_port(address: std::net::IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((address, 0)).with_context(|| format!("cannot listen at {address}"))?;
    Ok(listener.local_addr()?.port())
}

/// Where a program is: in `PATH`, or where those of administrators lie.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(admin).map(|dir| dir.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// All processes, each with its parent.
fn parents() -> Vec<(i32, i32)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// Of a line of `/proc/PID/stat`: the second field behind the name, which may have anything in it.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Processes of the program `name` that were told of `folder` in an argument.
pub(crate) fn running_in(name: &str, folder: &Path) -> Vec<i32> {
    let told = folder.as_os_str().as_encoded_bytes();
    let is_one = |pid: i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        comm.trim() == name && arguments.windows(told.len()).any(|part| part == told)
    };
    parents().into_iter().map(|(pid, _)| pid).filter(|&pid| is_one(pid)).collect()
}

/// Ends all of [`running_in`].
pub(crate) fn end_running_in(name: &str, folder: &Path) {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let deadline = Instant::now() + GRACE;
        for pid in running_in(name, folder) {
            // SAFETY: kill touches no memory.
            unsafe { libc::kill(pid, signal) };
        }
        while Instant::now() < deadline {
            if running_in(name, folder).is_empty() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        assert_eq!(parent("17 (a) b (c) S 4 17 17 0 -1"), Some(4));
        assert_eq!(parent("17 (cut"), None);
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_one_that_fails_is_heard() {
        let begin = Instant::now();
        let error = ask(Command::new("sleep").arg("60"), Duration::from_millis(100)).expect_err("too long");
        assert!(error.to_string().starts_with("sleep did not end"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(30));
        let error = ask(Command::new("sh").args(["-c", "echo why; exit 3"]), GRACE).expect_err("it failed");
        assert!(error.to_string().contains("sh: why (exit status: 3)"), "{error}");
        assert_eq!(ask(Command::new("echo").arg("yes"), GRACE).expect("it runs"), "yes\n");
    }

    #[test]
    fn a_daemon_ends_with_its_children_and_an_early_end_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("log");
        let mut sh = Command::new("sh");
        let mut daemon = Daemon::start(sh.args(["-c", "sleep 600 & echo up; wait"]), &log).expect("it starts");
        daemon.wait("up", GRACE, || fs::read_to_string(&log).is_ok_and(|text| text.contains("up"))).expect("it is up");
        let family = daemon.pids();
        assert_eq!(family.len(), 2);
        drop(daemon);
        let alive =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let deadline = Instant::now() + GRACE;
        while family.iter().any(alive) {
            assert!(Instant::now() < deadline, "{family:?}");
            std::thread::sleep(LOOK);
        }
        let mut daemon =
            Daemon::start(Command::new("sh").args(["-c", "echo no disk; exit 1"]), &log).expect("it starts");
        let error = daemon.wait("up", GRACE, || false).expect_err("it is gone");
        assert!(
            error.to_string().contains("ended (exit status: 1) before up") && error.to_string().contains("no disk")
        );
    }

    #[test]
    fn programs_are_found_where_they_are() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("weft-no-such-program"), None);
    }
}
