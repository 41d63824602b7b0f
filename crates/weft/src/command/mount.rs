//! Mounts a cluster.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use conf::Flags;
use serde::Serialize;

use crate::command::interrupts::{catch_interrupts, lead_session};
use crate::command::{allow_many_descriptors, this_program};
use crate::failure::{EXIT_USAGE, Failure, usage};
use crate::local::runstate::RunState;
use crate::local::{log, mounts, ready};
use crate::locate::Selection;
use crate::output::{Output, Progress};

/// A mount's process that is told to end has ended after so long.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// What is alive, and has its servers, answers in this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// Mount a cluster's file system
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: a local cluster a second time, and one on other hosts
  weft mount /mnt/again --dir .weft
  weft mount /mnt/weft --mgmtd host1:9400 --key-file /etc/weft/cluster.key")]
pub(crate) struct Args {
    /// Where: an empty directory
    mount: Option<PathBuf>,
    /// Directory of a cluster made by `weft up` [env: WEFT_DIR]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Configuration file (`weft config default mount` prints one)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    flags: Flags<mount::config::Config>,
}

#[derive(Serialize)]
struct Mounted {
    mount: PathBuf,
    mgmtd: String,
    pid: u32,
    log: PathBuf,
}

impl Args {
    pub(crate) fn run(mut self, output: Output) -> Result<(), Failure> {
        let dir = self.complete()?;
        let config = conf::load(self.config.as_deref(), &self.flags).map_err(anyhow::Error::new)?;
        if !self.foreground {
            check_mount_point(&config.mountpoint)?;
            return detach(&config, output);
        }
        let point = mounts::resolve(&config.mountpoint);
        let turn = turn_at(&point, *config.start_timeout)?;
        check_mount_point(&point).map_err(|refused| match mounts::of_cluster(&point, &config.mgmtd) {
            // What is asked for is there, and may go: a supervisor tries again.
            Ok(Some(_)) => anyhow!("{refused}").into(),
            Ok(None) | Err(_) => refused,
        })?;
        serve(config, dir, turn)
    }

    /// Fills in what the command line leaves out: the cluster, and what an ordinary user may do. Answers the directory
    /// of a local cluster.
    fn complete(&mut self) -> Result<Option<PathBuf>, Failure> {
        if let Some(mount) = &self.mount {
            let mount = mounts::resolve(mount);
            self.flags.give("mountpoint", path_text(&mount)?);
        }
        // SAFETY: geteuid cannot fail and touches no memory.
        if unsafe { libc::geteuid() } != 0 {
            self.flags.default_to("allow_other", "false");
        }
        if self.config.is_some() && self.dir.is_none() {
            return Ok(None);
        }
        let (mgmtd, key_file) = self.named(&|variable| std::env::var(variable).ok());
        if self.dir.is_none() && mgmtd.is_some() && key_file.is_some() {
            return Ok(None);
        }
        let cluster = Selection { dir: self.dir.clone(), mgmtd, key_file: key_file.map(PathBuf::from) }.find(None)?;
        let key_file = mounts::resolve(&cluster.key_file);
        if self.flags.given("mgmtd").is_none() {
            self.flags.give("mgmtd", &cluster.mgmtd);
        }
        if self.flags.given("key_file").is_none() {
            self.flags.give("key_file", path_text(&key_file)?);
        }
        Ok(cluster.dir.map(|dir| dir.root().to_owned()))
    }

    /// mgmtd and the file with the key, as far as flags or the `environment` say: by the rules of all settings, but for a
    /// directory that is given, which says both and more than the environment.
    fn named(&self, environment: &dyn Fn(&str) -> Option<String>) -> (Option<String>, Option<String>) {
        let word = |key: &str, variable: &str| match self.flags.given(key) {
            Some(values) => values.last().cloned(),
            None if self.dir.is_some() => None,
            None => environment(variable),
        };
        (word("mgmtd", "WEFT_MOUNT_MGMTD"), word("key_file", "WEFT_MOUNT_KEY_FILE"))
    }
}

/// Who else is about to mount there has that done, or has given up, after `limit`.
fn turn_at(point: &Path, limit: Duration) -> Result<File, Failure> {
    let begin = Instant::now();
    loop {
        match RunState::lock(point)? {
            Some(turn) => return Ok(turn),
            None if begin.elapsed() > limit => {
                return Err(anyhow!("another `weft mount` is about to mount at {}", point.display()).into());
            }
            None => thread::sleep(POLL),
        }
    }
}

fn path_text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| usage!("{} is no valid UTF-8", path.display()))
}

/// What a killed mount left there is no obstacle: mounting takes it away. One that does not answer is alive, and waits for its
/// servers.
fn check_mount_point(point: &Path) -> Result<(), Failure> {
    if mounts::at(point)?.is_some() {
        return match ready::ask_for(point, ANSWER_PATIENCE) {
            Some(Err(error)) if fuse::is_dead(&error) => Ok(()),
            Some(_) | None => Err(usage!("{} is a mount of Weft already", point.display())),
        };
    }
    match fs::read_dir(point).map(|mut entries| entries.next()) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(usage!("{} is not empty, and mounting would hide what is in it", point.display())),
        Err(error) if fuse::is_dead(&error) => Ok(()),
        Err(error) => Err(usage!("cannot mount at {}: {error}", point.display())),
    }
}

/// `turn`: see [`RunState::lock`].
fn serve(config: mount::config::Config, dir: Option<PathBuf>, turn: File) -> Result<(), Failure> {
    let mut state = RunState {
        mount: mounts::resolve(&config.mountpoint),
        mgmtd: config.mgmtd.clone(),
        key_file: mounts::resolve(&config.key_file),
        pid: std::process::id(),
        dir,
        metrics: String::new(),
    };
    let (point, pid) = (state.mount.clone(), state.pid);
    allow_many_descriptors();
    let config = mount::config::Config { mountpoint: point.clone(), ..config };
    let result = mount::run(config, move |mounted| {
        mounted.metrics.clone_into(&mut state.metrics);
        let log_file = RunState::log_file(&state.mount);
        if log::is_written_by_us(&log_file) {
            keep_log_bounded(log_file)?;
            // Where it was started may be on a file system that is to be unmounted before this one.
            std::env::set_current_dir("/").context("cannot leave the working directory")?;
        }
        drop(turn);
        state.write()
    });
    RunState::remove(&point, pid);
    Ok(result?)
}

/// Of a mount in the background, as the supervisor does for its own.
fn keep_log_bounded(file: PathBuf) -> anyhow::Result<()> {
    let keep = move || {
        loop {
            thread::sleep(log::LOOK_EVERY);
            if let Err(error) = log::bound(&file) {
                tracing::warn!("{error:#}");
            }
        }
    };
    thread::Builder::new().name("log".to_owned()).spawn(keep).context("cannot start a thread")?;
    Ok(())
}

/// The same command again, in the background; returns when it has mounted.
fn detach(config: &mount::config::Config, output: Output) -> Result<(), Failure> {
    let point = mounts::resolve(&config.mountpoint);
    let log_file = RunState::log_file(&point);
    let log = RunState::open_log(&point)?;
    let log_from = log.metadata()?.len();
    let mut command = Command::new(this_program());
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(in_foreground(arguments));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    lead_session(&mut command);
    let interrupted = catch_interrupts()?;
    let mut child = command.spawn().context("cannot start the mount's process")?;
    let limit = *config.start_timeout + Duration::from_secs(5);
    let wait = Wait { point: &point, mgmtd: &config.mgmtd, log_file: &log_file, log_from, limit, interrupted };
    wait.until_mounted(&mut child)?;
    let mounted = Mounted { mount: point, mgmtd: config.mgmtd.clone(), pid: child.id(), log: log_file };
    output
        .show(&mounted, |mounted| format!("mounted at {}; its log: {}", mounted.mount.display(), mounted.log.display()))
}

/// The words of `weft mount` for a process that stays. What it says goes to its log, where people look, and from there to
/// whoever waits here: not as JSON.
fn in_foreground(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut said, mut named) = (Vec::new(), false);
    for word in words.by_ref() {
        if word == "--json" {
            continue;
        }
        // After this, all are places.
        let is_end = word == "--";
        let is_name = !named && word == "mount";
        said.push(word);
        if is_name {
            named = true;
            said.push("--foreground".into());
        }
        if is_end {
            break;
        }
    }
    said.extend(words);
    said
}

/// In order, since it may just have mounted: one that is killed leaves a dead mount.
fn end(child: &mut Child) -> io::Result<()> {
    // SAFETY: kill touches no memory; the child has not been waited for, so its number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > END_PATIENCE {
            child.kill()?;
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// For a mount's process to say that it serves.
struct Wait<'a> {
    point: &'a Path,
    mgmtd: &'a str,
    log_file: &'a Path,
    /// Where its words begin in the log.
    log_from: u64,
    limit: Duration,
    /// The user has had enough.
    interrupted: &'a AtomicBool,
}

impl Wait<'_> {
    /// Where it does not come to that, nothing is left behind that mounts later.
    fn until_mounted(&self, child: &mut Child) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut progress = Progress::new();
        let what = format!("waiting for the cluster of mgmtd at {}", self.mgmtd);
        loop {
            progress.waiting(&what, begin);
            if RunState::read(self.point).is_some_and(|state| state.pid == child.id()) {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                return Err(self.failure(status));
            }
            if self.interrupted.load(Ordering::Relaxed) {
                end(child)?;
                return Err(anyhow!("interrupted before it was mounted").into());
            }
            if begin.elapsed() > self.limit {
                end(child)?;
                let (seconds, log) = (self.limit.as_secs(), self.log_file.display());
                return Err(anyhow!("not mounted after {seconds} s: see {log}").into());
            }
            thread::sleep(POLL);
        }
    }

    fn failure(&self, status: ExitStatus) -> Failure {
        let last = log::tail(self.log_file, self.log_from, 1).pop();
        let last = last.unwrap_or_else(|| format!("it ended with {status}"));
        let last = last.strip_prefix("weft: ").unwrap_or(&last).to_owned();
        match status.code() {
            Some(code) if code == i32::from(EXIT_USAGE) => Failure::Usage(last),
            _ => anyhow!(last).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args { mount: None, dir: None, config: None, foreground: false, flags: Flags::default() }
    }

    #[test]
    fn the_environment_names_a_cluster_unless_the_command_line_does() {
        let environment = |variable: &str| match variable {
            "WEFT_MOUNT_MGMTD" => Some("there:1".to_owned()),
            "WEFT_MOUNT_KEY_FILE" => Some("/key".to_owned()),
            _ => None,
        };
        let both = |mgmtd: &str, key_file: &str| (Some(mgmtd.to_owned()), Some(key_file.to_owned()));
        assert_eq!(args().named(&environment), both("there:1", "/key"));
        assert_eq!(args().named(&|_| None), (None, None));
        let mut flags = Flags::default();
        flags.give("mgmtd", "here:1");
        assert_eq!(Args { flags: flags.clone(), ..args() }.named(&environment), both("here:1", "/key"));
        let dir = Some(PathBuf::from("d"));
        assert_eq!(Args { dir: dir.clone(), ..args() }.named(&environment), (None, None));
        flags.give("key_file", "k");
        assert_eq!(Args { dir, flags, ..args() }.named(&environment), both("here:1", "k"));
        // As the help says.
        for (key, variable) in [("mgmtd", "WEFT_MOUNT_MGMTD"), ("key_file", "WEFT_MOUNT_KEY_FILE")] {
            let knobs = <mount::config::Config as conf::Knobs>::KNOBS;
            assert!(knobs.iter().any(|knob| knob.key == key && knob.variable("mount") == variable));
        }
    }

    #[test]
    fn a_mount_in_the_background_is_started_by_words_of_any_kind() {
        let said = |words: &str| {
            let words = in_foreground(words.split(' ').map(OsString::from));
            words.join(std::ffi::OsStr::new(" ")).into_string().expect("UTF-8")
        };
        assert_eq!(said("mount /mnt --json"), "mount --foreground /mnt");
        assert_eq!(said("--json mount mount --dir d"), "mount --foreground mount --dir d");
        assert_eq!(said("mount --json -- --json"), "mount --foreground -- --json");
    }
}
