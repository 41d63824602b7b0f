//! Keeps the processes of a local cluster running: starts them, starts a dead one again after a while, stops them in
//! order. The only owner of their state, which it writes down at each change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::dir::{ClusterDir, Spec};
use super::plan::{Mounting, Process, Role, processes};
use super::state::{Phase, ProcessState, State};
use super::{grow, log, mounts};
use crate::command::this_program;
use crate::failure::{EXIT_USAGE, Failure, usage};

/// A process that has not ended so long after it was asked to is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A mount in use is waited for so long before it is taken from sight.
const MOUNT_PATIENCE: Duration = Duration::from_secs(2);
/// A process that ran so long once was configured well.
const PROOF: Duration = Duration::from_secs(2);

struct Supervisor {
    dir: ClusterDir,
    state: RefCell<State>,
    /// When each process was started last.
    started: RefCell<BTreeMap<String, Instant>>,
    /// Of what was given up, those that have not ended yet: they have their directories.
    ending: RefCell<BTreeSet<String>>,
    /// It writes down what has come up.
    noting: RefCell<Option<thread::JoinHandle<()>>>,
}

/// One process under supervision.
struct Kept {
    name: String,
    role: Role,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Runs the cluster in `dir` until this process is told to end (SIGTERM or SIGINT). At SIGHUP it looks whether the cluster
/// is to be larger by now.
///
/// # Errors
/// Where another supervisor has it, or it cannot begin.
pub(crate) fn run(dir: &ClusterDir) -> Result<(), Failure> {
    let spec = dir.spec()?;
    let Some(_lock) = dir.lock()? else {
        return Err(usage!("the cluster in {} is running already", dir.root().display()));
    };
    let supervisor = Rc::new(Supervisor {
        dir: dir.clone(),
        state: RefCell::new(State { supervisor: std::process::id() as i32, ..State::default() }),
        started: RefCell::default(),
        ending: RefCell::default(),
        noting: RefCell::default(),
    });
    let runtime = telemetry::runtime::current_thread().context("cannot start the supervisor")?;
    // Of one that was killed.
    remove_pid_files(dir);
    LocalSet::new().block_on(&runtime, supervisor.supervise(&spec))?;
    // All have ended, and nobody is to look for them.
    remove_pid_files(dir);
    State::remove(dir);
    Ok(())
}

fn remove_pid_files(dir: &ClusterDir) {
    let files = std::fs::read_dir(dir.run("")).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "pid")) {
        // Only a convenience, as they are.
        let _ = std::fs::remove_file(file);
    }
}

impl Supervisor {
    async fn supervise(self: Rc<Self>, spec: &Spec) -> Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut kept: Vec<Kept> = processes(&self.dir, spec).into_iter().map(|process| self.keep(process)).collect();
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                // Also the terminal that started us may be gone: no reason to stop.
                _ = hangup.recv() => self.grow(&mut kept),
                () = sleep(log::LOOK_EVERY) => {
                    self.bound_logs(&kept);
                    self.note_made();
                }
            }
        }
        tracing::info!("stopping");
        self.note_stopping();
        stop(kept).await;
        tracing::info!("stopped");
        Ok(())
    }

    fn keep(self: &Rc<Self>, process: Process) -> Kept {
        let (stop, stopped) = watch::channel(false);
        let (name, role) = (process.name.clone(), process.role);
        let task = tokio::task::spawn_local(Rc::clone(self).keep_running(process, stopped));
        Kept { name, role, stop, task }
    }

    /// Starts what the cluster has more by now, stops what was deleted, and tells services that may have more shards or
    /// targets.
    fn grow(self: &Rc<Self>, kept: &mut Vec<Kept>) {
        let spec = match self.dir.spec() {
            Ok(spec) => spec,
            Err(failure) => return tracing::error!("{failure}"),
        };
        let all = processes(&self.dir, &spec);
        let (stay, gone): (Vec<Kept>, Vec<Kept>) =
            std::mem::take(kept).into_iter().partition(|known| all.iter().any(|process| process.name == known.name));
        *kept = stay;
        for kept in gone {
            self.ending.borrow_mut().insert(kept.name.clone());
            tokio::task::spawn_local(Rc::clone(self).give_up(kept));
        }
        if spec.made == spec.all_made() {
            return;
        }
        for process in all {
            if self.ending.borrow().contains(&process.name) {
                // Who wants it says so again.
                continue;
            }
            if kept.iter().all(|known| known.name != process.name) {
                kept.push(self.keep(process));
            } else if matches!(process.role, Role::Metad | Role::Storaged) {
                self.tell_to_grow(&process.name);
            }
        }
    }

    /// What is no part of the cluster any more.
    async fn give_up(self: Rc<Self>, gone: Kept) {
        let name = gone.name.clone();
        stop(vec![gone]).await;
        self.ending.borrow_mut().remove(&name);
        let mut state = self.state.borrow_mut();
        state.processes.remove(&name);
        if let Err(error) = state.write(&self.dir) {
            tracing::error!("{error:#}");
        }
    }

    /// One that has just been started reads its configuration as it is now, and does not hear signals yet.
    fn tell_to_grow(&self, name: &str) {
        let proven = self.started.borrow().get(name).is_some_and(|started| started.elapsed() >= PROOF);
        let state = self.state.borrow();
        let process = state.processes.get(name).filter(|process| proven && process.phase == Phase::Running);
        if let Some(process) = process.filter(|process| process.pid > 1) {
            // SAFETY: kill touches no memory; the pid is our child's, whose end would have been noted.
            unsafe { libc::kill(process.pid, libc::SIGHUP) };
        }
    }

    async fn keep_running(self: Rc<Self>, mut process: Process, mut stop: watch::Receiver<bool>) {
        let mut backoff = Backoff::new();
        let mut proven = false;
        loop {
            let started = Instant::now();
            match self.start(&process) {
                Ok(mut child) => {
                    let ended = tokio::select! {
                        status = child.wait() => Some(status),
                        _ = stop.wait_for(|stop| *stop) => None,
                    };
                    let Some(status) = ended else {
                        end(&process, &mut child).await;
                        self.note(&process.name, |state| (state.phase, state.pid) = (Phase::Stopped, 0));
                        return;
                    };
                    if self.is_final(&process, status, proven) {
                        return;
                    }
                    proven |= started.elapsed() >= PROOF;
                }
                Err(error) => {
                    tracing::error!("{}: cannot be started: {error:#}", process.name);
                    self.note(&process.name, |state| state.last_exit = format!("not started: {error:#}"));
                }
            }
            let wait = backoff.after(started.elapsed());
            tracing::warn!("{}: starting again in {wait:?}", process.name);
            self.note(&process.name, |state| (state.phase, state.pid) = (Phase::Waiting, 0));
            if timeout(wait, stop.wait_for(|stop| *stop)).await.is_ok() {
                self.note(&process.name, |state| state.phase = Phase::Stopped);
                return;
            }
            self.note(&process.name, |state| state.restarts += 1);
            process = self.as_it_is_now(process);
        }
    }

    /// What has come up meanwhile may not begin empty again.
    fn as_it_is_now(&self, process: Process) -> Process {
        let all = self.dir.spec().map(|spec| processes(&self.dir, &spec)).unwrap_or_default();
        all.into_iter().find(|now| now.name == process.name).unwrap_or(process)
    }

    fn start(&self, process: &Process) -> Result<Child> {
        let path = self.dir.log_file(&process.name);
        let log = log::open(&path)?;
        let log_from = log.metadata()?.len();
        let mut command = Command::new(this_program());
        command.args(&process.args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.current_dir(self.dir.root());
        die_with_parent(command.as_std_mut(), libc::SIGTERM);
        let child = command.spawn()?;
        let pid = child.id().unwrap_or(0) as i32;
        tracing::info!("{}: running as process {pid}", process.name);
        // Only a convenience for people and scripts: state.json has it too.
        let _ = std::fs::write(self.pid_file(&process.name), format!("{pid}\n"));
        self.started.borrow_mut().insert(process.name.clone(), Instant::now());
        self.note(&process.name, |state| {
            (state.phase, state.pid, state.log_from) = (Phase::Running, pid, log_from);
        });
        Ok(child)
    }

    /// Whether a process that ended is to stay so; notes how it ended. One that has run well before has no configuration
    /// that is wrong as such: what stands in its way now may go away.
    fn is_final(&self, process: &Process, status: std::io::Result<ExitStatus>, proven: bool) -> bool {
        let (code, text) = match status {
            Ok(status) => (status.code(), describe(status)),
            Err(error) => (None, error.to_string()),
        };
        let phase = match (process.role, code) {
            (_, Some(code)) if code == i32::from(EXIT_USAGE) && !proven => Phase::Refused,
            // Somebody unmounted it: that is their wish.
            (Role::Mount, Some(0)) => Phase::Stopped,
            _ => Phase::Waiting,
        };
        tracing::warn!("{}: ended with {text}: {}", process.name, phase.name());
        self.note(&process.name, |state| {
            (state.phase, state.pid, state.last_exit) = (phase, 0, text);
        });
        phase != Phase::Waiting
    }

    fn note(&self, name: &str, change: impl FnOnce(&mut ProcessState)) {
        let mut state = self.state.borrow_mut();
        let process = state.processes.entry(name.to_owned()).or_insert_with(|| ProcessState {
            phase: Phase::Waiting,
            pid: 0,
            restarts: 0,
            last_exit: String::new(),
            log_from: 0,
        });
        change(process);
        if process.pid == 0 {
            // The number may be somebody else's soon.
            let _ = std::fs::remove_file(self.pid_file(name));
        }
        if let Err(error) = state.write(&self.dir) {
            tracing::error!("{error:#}");
        }
    }

    /// Before the first of them ends: who looks from then on is not to take the rest for a cluster that runs.
    fn note_stopping(&self) {
        let mut state = self.state.borrow_mut();
        state.stopping = true;
        if let Err(error) = state.write(&self.dir) {
            tracing::error!("{error:#}");
        }
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.run(&format!("{name}.pid"))
    }

    /// Whoever starts the cluster or makes it larger writes down what has come up, when it has: where they were ended before,
    /// or have given up, nobody else would, and what is lost later would begin empty again.
    fn note_made(&self) {
        let Ok(spec) = self.dir.spec() else { return };
        let is_at_it = self.noting.borrow().as_ref().is_some_and(|noting| !noting.is_finished());
        if spec.made == spec.all_made() || is_at_it || !self.all_proven(&spec) {
            return;
        }
        let dir = self.dir.clone();
        let note = move || match grow::note_made(&dir, &spec) {
            Ok(true) => tracing::info!("all of the cluster has come up: nothing of it may begin empty again"),
            Ok(false) => {}
            Err(failure) => tracing::warn!("what has come up cannot be written down: {failure}"),
        };
        // Apart: a disk that hangs may not keep this from its signals.
        match thread::Builder::new().name("noting".to_owned()).spawn(note) {
            Ok(noting) => drop(self.noting.replace(Some(noting))),
            Err(error) => tracing::warn!("what has come up cannot be written down: {error}"),
        }
    }

    /// All services run, and have for a while.
    fn all_proven(&self, spec: &Spec) -> bool {
        let (state, started) = (self.state.borrow(), self.started.borrow());
        let is_proven = |process: &Process| {
            let is_running = state.processes.get(&process.name).is_some_and(|known| known.phase == Phase::Running);
            is_running && started.get(&process.name).is_some_and(|started| started.elapsed() >= PROOF)
        };
        processes(&self.dir, spec).iter().filter(|process| process.role != Role::Mount).all(is_proven)
    }

    fn bound_logs(&self, kept: &[Kept]) {
        for name in kept.iter().map(|kept| kept.name.as_str()).chain(["supervisor"]) {
            if let Err(error) = log::bound(&self.dir.log_file(name)) {
                tracing::warn!("{error:#}");
            }
        }
    }
}

/// The mount first, so that it can still write what it holds; mgmtd last, since all others talk to it.
async fn stop(mut kept: Vec<Kept>) {
    for role in [Role::Mount, Role::Storaged, Role::Metad, Role::Mgmtd] {
        let (now, later): (Vec<_>, Vec<_>) = kept.into_iter().partition(|process| process.role == role);
        for process in &now {
            process.stop.send_replace(true);
        }
        for process in now {
            if let Err(error) = process.task.await {
                tracing::error!("{error}");
            }
        }
        kept = later;
    }
}

async fn end(process: &Process, child: &mut Child) {
    if let Some(mount) = &process.mount {
        unmount(mount).await;
        if timeout(MOUNT_PATIENCE, child.wait()).await.is_ok() {
            return;
        }
    }
    let pid = child.id().unwrap_or(0) as i32;
    if pid != 0 {
        // SAFETY: kill touches no memory; the pid is our child's, which has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    if timeout(PATIENCE, child.wait()).await.is_err() {
        tracing::error!("{}: did not end in {PATIENCE:?}: killing it", process.name);
        let _ = child.kill().await;
        if let Some(Mounting { point, mgmtd }) = &process.mount
            && let Ok(Some(_)) = mounts::of_cluster(point, mgmtd)
        {
            let _ = fuse::unmount(point, true);
        }
    }
}

async fn unmount(Mounting { point, mgmtd }: &Mounting) {
    let begin = Instant::now();
    while let Ok(Some(_)) = mounts::of_cluster(point, mgmtd) {
        match fuse::unmount(point, begin.elapsed() > MOUNT_PATIENCE) {
            Ok(()) => return,
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => sleep(Duration::from_millis(100)).await,
            Err(error) => return tracing::error!("cannot unmount {}: {error}", point.display()),
        }
    }
}

/// So that nothing is left running where the supervisor was killed.
pub(crate) fn die_with_parent(command: &mut std::process::Command, signal: i32) {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only prctl and getppid are called, which are safe there.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before.
            if libc::getppid() == parent { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}
