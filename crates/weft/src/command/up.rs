//! A whole cluster on this machine, from nothing or from what is there.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::Admin;
use anyhow::{Context, Result, anyhow, ensure};
use cluster::map::ServiceKind;
use serde::Serialize;

use crate::command::down::stop_supervisor;
use crate::command::interrupts::{catch_interrupts, lead_session};
use crate::command::this_program;
use crate::failure::{Failure, usage};
use crate::local::dir::{ClusterDir, LOOPBACK, Made, Spec, is_trusted, own_uid};
use crate::local::plan;
use crate::local::ready::Missed;
use crate::local::state::{Phase, ProcessState, State};
use crate::local::{configs, grow, log, mounts, ready, supervisor};
use crate::locate::{default_dir, dir_of_environment};
use crate::output::{Output, Table, patiently};

const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// Services end in a few seconds when they are told to.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(15);
/// How long a supervisor that was killed may still look alive, and how often that is looked at.
const DYING: Duration = Duration::from_millis(300);
const DYING_LOOK: Duration = Duration::from_millis(50);

/// Start a cluster on this machine and mount it; the next time, go on with the same data. One that runs is made larger
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: two storage services of four targets each, in the background; then, while it runs, one more and two metadata services
  weft up --dir /data/weft --mount /mnt/weft --storage 2 --detach
  weft up --dir /data/weft --storage 3 --metadata 2
  weft down --dir /data/weft")]
pub(crate) struct Args {
    /// Directory of the cluster: configuration, data, logs [env: WEFT_DIR] [default: .weft]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to mount it [default: ./mnt, or as the last time]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Number of metadata services [default: 1, or as the last time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    metadata: Option<u32>,
    /// Shards of each metadata service: each holds a part of the namespace and has a thread of its own [default: 1, or as
    /// the last time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// Number of storage services [default: 1, or as the last time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    storage: Option<u32>,
    /// Storage targets of each storage service [default: 4, or as the last time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    targets: Option<u32>,
    /// Address of this host at which other hosts reach the cluster [default: 127.0.0.1, for this host alone; or as the last
    /// time]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Return when it is mounted; `weft down` stops it
    #[arg(long)]
    detach: bool,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    timeout: u64,
}

/// What runs where.
#[derive(Serialize)]
struct Running {
    dir: PathBuf,
    mount: PathBuf,
    mgmtd: String,
    key_file: PathBuf,
    mounted: bool,
    /// It ran before this command.
    already: bool,
    /// It ran, and this command has made it larger.
    grown: bool,
    /// Storage services that do not start, and without which it runs.
    missed: Vec<Missed>,
    state: State,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let named = self.dir.clone().or_else(dir_of_environment);
        let dir = named.map_or_else(default_dir, |dir| Ok(ClusterDir::at(&dir)?))?;
        refuse_foreign(&dir)?;
        // What another one is about to start neither runs nor rests: all is looked at and changed in turn.
        let turn = patiently("waiting for another `weft up` of this cluster", || dir.lock_growing())?;
        let mut spec = self.spec(&dir)?;
        let limit = Duration::from_secs(self.timeout);
        if patiently("waiting for the cluster to stop", || goes_on_running(&dir, limit))? {
            return already_running(&dir, &spec, limit, output);
        }
        wait_for_leftovers(&dir)?;
        check_mount_point(&spec.mount)?;
        if dir.exists() {
            grow::refuse_edited(&dir, &spec, &dir.spec()?)?;
        }
        leave_taken_ports(&dir, &mut spec, output)?;
        tell_of_move(&dir, &spec, output)?;
        make(&dir, &spec)?;
        let interrupted = catch_interrupts()?;
        let mut child = start_supervisor(&dir, self.detach)?;
        let reported = match wait_for_all(&dir, &spec, limit, interrupted) {
            Ok(state) => report(&dir, &spec, state, Effect::Started, output),
            Err(failure) => {
                // Nothing half started stays behind.
                end_supervisor(&dir, &mut child)?;
                return Err(failure);
            }
        };
        drop(turn);
        match reported {
            Ok(()) | Err(Failure::Found) if !self.detach => stay(&dir, &mut child, interrupted, output),
            reported => reported,
        }
    }

    /// Where mgmtd listens: what services and mounts on other hosts are told cannot change.
    fn address(&self, dir: &ClusterDir, old: Option<&Spec>) -> Result<IpAddr, Failure> {
        let old = old.map_or(LOOPBACK, |old| old.address);
        match self.listen {
            None => Ok(old),
            Some(listen) if listen == old => Ok(listen),
            Some(listen) if listen.is_unspecified() => {
                Err(usage!("--listen {listen}: give the address itself at which other hosts reach this one"))
            }
            Some(listen) if old == LOOPBACK => must_be_here(listen).map(|()| listen),
            Some(listen) => Err(usage!(
                "{} is reached at {old} and cannot move to {listen} in this release: leave the flag away",
                dir.root().display()
            )),
        }
    }

    /// What was asked for now, over what was before.
    fn spec(&self, dir: &ClusterDir) -> Result<Spec, Failure> {
        let old = if dir.exists() { Some(dir.spec()?) } else { None };
        let count = |asked: Option<u32>, old: Option<u32>, default: u32, what: &str| match (asked, old) {
            (Some(asked), Some(old)) if asked < old => Err(usage!(
                "{} has {old} {what} and cannot shrink to {asked} in this release: leave the flag away",
                dir.root().display()
            )),
            (asked, old) => Ok(asked.or(old).unwrap_or(default)),
        };
        let mount = match (&self.mount, &old) {
            (Some(mount), _) => mounts::resolve(mount),
            (None, Some(old)) => old.mount.clone(),
            (None, None) => mounts::resolve(Path::new("mnt")),
        };
        let (mgmtd_port, mgmtd_metrics_port) = match &old {
            Some(old) => (old.mgmtd_port, old.mgmtd_metrics_port),
            None => plan::free_ports()?,
        };
        let storage = match (self.storage, &old) {
            (Some(asked), Some(old)) if asked < old.storage => shrunk(dir, old, ServiceKind::Storage, asked)?,
            (asked, old) => count(asked, old.as_ref().map(|old| old.storage), 1, "storage services")?,
        };
        let metadata = match (self.metadata, &old) {
            (Some(asked), Some(old)) if asked < old.metadata && asked >= old.made.metadata => {
                shrunk(dir, old, ServiceKind::Metadata, asked)?
            }
            (asked, old) => count(asked, old.as_ref().map(|old| old.metadata), 1, "metadata services")?,
        };
        let made = old.as_ref().map(|old| old.made).unwrap_or_default();
        Ok(Spec {
            address: self.address(dir, old.as_ref())?,
            mgmtd_port,
            mgmtd_metrics_port,
            made: Made { storage: made.storage.min(storage), ..made },
            metadata,
            shards: count(self.shards, old.as_ref().map(|old| old.shards), 1, "shards per metadata service")?,
            storage,
            targets: count(self.targets, old.as_ref().map(|old| old.targets), 4, "targets per storage service")?,
            mount,
        })
    }
}

/// What is written down of an address stays: one that no interface has would keep the cluster from starting ever again.
fn must_be_here(address: IpAddr) -> Result<(), Failure> {
    let bound = TcpListener::bind((address, 0));
    bound.map(drop).map_err(|error| usage!("--listen {address}: {error}: give an address that `ip address` shows here"))
}

/// Those of the services that the cluster has something of, as it says where it runs; else as far as what they have says, and
/// all where some of them were `made`, and so were part of it.
fn still_there(dir: &ClusterDir, old: &Spec, names: &[String], made: bool) -> Result<Vec<String>> {
    let mut there = Vec::new();
    let view = match dir.is_running()? {
        true => Some(Admin::connect(&plan::mgmtd_address(old), &dir.key_file())?.view()?),
        false => None,
    };
    for name in names {
        let is_gone = match &view {
            Some(view) => grow::is_gone(dir, name, &view.map)?,
            None => !made && grow::never_joined(dir, name)?,
        };
        if !is_gone {
            there.push(name.clone());
        }
    }
    Ok(there)
}

/// So many services of this kind, where the cluster was to have more: those above were deleted, or never were part of
/// it.
fn shrunk(dir: &ClusterDir, old: &Spec, kind: ServiceKind, asked: u32) -> Result<u32, Failure> {
    let (names, made, noun): (Vec<String>, _, _) = match kind {
        ServiceKind::Metadata => (plan::metadata_names(old).collect(), old.made.metadata, "metadata"),
        ServiceKind::Storage => (plan::storage_names(old).collect(), old.made.storage, "storage"),
    };
    let (has, place) = (names.len(), dir.root().display());
    let there = still_there(dir, old, &names[asked as usize..], asked < made)?;
    if there.is_empty() {
        return Ok(asked);
    }
    let then = match (kind, dir.is_running()?) {
        (ServiceKind::Storage, true) => "is part of the cluster; only after `weft node delete` it can go",
        (ServiceKind::Storage, false) => {
            "is part of the cluster, or may be: `weft up` first, as it is, and then with that number"
        }
        (ServiceKind::Metadata, _) => {
            "is part of the cluster, or may be, and cannot go in this release: leave the flag away"
        }
    };
    Err(usage!("{place} has {has} {noun} services and cannot shrink to {asked}: {} {then}", there.join(", ")))
}

/// What the command did to the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It did not run before.
    Started,
    /// It ran already, as it is.
    Unchanged,
    /// It ran with less.
    Grown,
    /// It ran with more services: those were deleted, or never came up.
    Shrunk,
}

/// Until it can be used. What is new has to be there for that: it is written down as made, and may not begin empty again.
fn wait_for_all(dir: &ClusterDir, spec: &Spec, limit: Duration, interrupted: &AtomicBool) -> Result<State, Failure> {
    let begin = Instant::now();
    ready::wait(dir, spec, limit, interrupted)?;
    if spec.made == spec.all_made() {
        return grow::settle(dir, spec, limit.saturating_sub(begin.elapsed()), interrupted);
    }
    let state = grow::wait_for_start(dir, spec, limit.saturating_sub(begin.elapsed()), interrupted)?;
    dir.save_spec(&Spec { made: spec.all_made(), ..spec.clone() })?;
    Ok(state)
}

/// A supervisor that was killed a moment ago has its lock until the kernel has taken it apart, and one that was told to stop
/// has it until all has ended: that is waited for.
fn goes_on_running(dir: &ClusterDir, limit: Duration) -> Result<bool> {
    let begin = Instant::now();
    let mut is_stopping = false;
    while dir.is_running()? {
        // What says so goes a moment before the lock does.
        is_stopping |= State::read(dir)?.is_some_and(|state| state.stopping);
        if begin.elapsed() >= if is_stopping { limit.max(DYING) } else { DYING } {
            ensure!(
                !is_stopping,
                "it is still stopping after {} s: see {}",
                limit.as_secs(),
                dir.log_file("supervisor").display()
            );
            return Ok(true);
        }
        std::thread::sleep(DYING_LOOK);
    }
    Ok(false)
}

/// Nothing that runs is stopped for it, so what takes a start is refused.
fn already_running(dir: &ClusterDir, spec: &Spec, limit: Duration, output: Output) -> Result<(), Failure> {
    let old = dir.spec()?;
    let place = dir.root().display();
    if old.mount != spec.mount {
        return Err(usage!("{place} is running already, mounted at {}: `weft down` first", old.mount.display()));
    }
    if old.address != spec.address {
        return Err(usage!("{place} is running already, reached at {}: `weft down` first", old.address));
    }
    // Else it is to be made larger, or what was never made of it is given up.
    let is_smaller = spec.storage < old.storage || spec.metadata < old.metadata;
    if old.made == spec.all_made() && !is_smaller {
        let state = State::read(dir)?.unwrap_or_default();
        return report(dir, spec, state, Effect::Unchanged, output);
    }
    let state = grow::grow(dir, spec, limit, catch_interrupts()?)?;
    let effect = if is_smaller { Effect::Shrunk } else { Effect::Grown };
    report(dir, spec, state, effect, output)
}

/// A directory of nothing, made where it is missing. What is left of a killed mount is taken away; one that does not answer
/// is alive, and waits for its servers.
fn check_mount_point(mount: &Path) -> Result<(), Failure> {
    if mounts::at(mount)?.is_some() {
        match ready::ask_for(mount, Duration::from_secs(2)) {
            Some(Err(error)) if fuse::is_dead(&error) => {}
            Some(_) | None => {
                return Err(usage!("{} is a mount of Weft already: give another place with --mount", mount.display()));
            }
        }
        let removed = fuse::unmount(mount, true);
        removed.with_context(|| format!("cannot take away the dead mount at {}", mount.display()))?;
    }
    if mount.is_file() {
        return Err(usage!("{} is no directory: give another place with --mount", mount.display()));
    }
    fs::create_dir_all(mount).with_context(|| format!("cannot make {}", mount.display()))?;
    let mut entries = fs::read_dir(mount).with_context(|| format!("cannot list {}", mount.display()))?;
    if entries.next().is_some() {
        return Err(usage!(
            "{} is not empty, and mounting would hide what is in it: give an empty directory with --mount",
            mount.display()
        ));
    }
    Ok(())
}

fn refuse_foreign(dir: &ClusterDir) -> Result<(), Failure> {
    let root = dir.root();
    if dir.exists() {
        // Of one that this user may not read, the best word is that.
        return dir.spec().map(drop);
    }
    if !root.exists() {
        return Ok(());
    }
    if !root.is_dir() {
        return Err(usage!("{} is no directory: give another one with --dir", root.display()));
    }
    let mut entries = fs::read_dir(root).with_context(|| format!("cannot list {}", root.display()))?;
    if entries.any(|entry| entry.is_ok_and(is_foreign)) {
        return Err(usage!("{} holds something else: give an empty directory with --dir", root.display()));
    }
    Ok(())
}

/// Everything that is not there yet; what is there stays as it is.
fn make(dir: &ClusterDir, spec: &Spec) -> Result<(), Failure> {
    dir.make_folders()?;
    // Who has made it knows it, and with it all data.
    if fs::symlink_metadata(dir.key_file()).is_ok_and(|found| found.uid() != own_uid()) {
        return Err(usage!(
            "{} is another user's: be its owner, or make a cluster elsewhere",
            dir.key_file().display()
        ));
    }
    if !dir.key_file().exists() {
        if dir.exists() {
            return Err(usage!("{} is missing: put it back from a backup", dir.key_file().display()));
        }
        let key = net::ClusterKey::generate().context("cannot make a cluster key")?;
        key.write_file(&dir.key_file()).map_err(anyhow::Error::new)?;
    }
    grow::prepare(dir, spec, None)?;
    configs::write(dir, spec)?;
    Ok(dir.save_spec(spec)?)
}

/// What a first start that was broken off leaves is not foreign, nor what mkfs makes. What somebody else has put there is:
/// it would be taken for ours.
fn is_foreign(entry: fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let is_left = matches!(&*name, "run" | "log" | "cluster.key") || name.ends_with(".toml") || name.ends_with(".new");
    name != "lost+found" && !(is_left && entry.metadata().is_ok_and(|found| is_trusted(&found)))
}

fn start_supervisor(dir: &ClusterDir, detach: bool) -> Result<Child> {
    State::remove(dir);
    let file = log::open(&dir.log_file("supervisor"))?;
    let mut command = Command::new(this_program());
    command.arg("supervise").arg("--dir").arg(dir.root());
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(dir.root());
    if !detach {
        supervisor::die_with_parent(&mut command, libc::SIGTERM);
    }
    lead_session(&mut command);
    command.spawn().context("cannot start the supervisor")
}

/// Where the supervisor was killed, its processes end by themselves, but not at once: until then they hold their
/// directories, and the mount its place. What that may still have to say it says to the services when they are back.
fn wait_for_leftovers(dir: &ClusterDir) -> Result<(), Failure> {
    let Some(state) = State::read(dir).unwrap_or_default() else { return Ok(()) };
    if !dir.exists() {
        return Ok(());
    }
    let spec = dir.spec()?;
    // A process id may be somebody else's by now: ours names the directory in its arguments.
    let is_ours = |pid: i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).any(|word| Path::new(OsStr::from_bytes(word)).starts_with(dir.root()))
    };
    let is_in_the_way = |name: &str| name != plan::MOUNT || mounts::at(&spec.mount).is_ok_and(|mount| mount.is_some());
    let left = |(name, process): &(&String, &ProcessState)| is_ours(process.pid) && is_in_the_way(name);
    let begin = Instant::now();
    while let Some((name, process)) = state.processes.iter().find(left) {
        if begin.elapsed() > LEFTOVER_PATIENCE {
            let pid = process.pid;
            return Err(
                anyhow!("{name} of an earlier run (process {pid}) does not end: kill it, then try again").into()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Where mgmtd listened until now, nobody will: what runs beside the cluster on this host is not ours to start again.
fn tell_of_move(dir: &ClusterDir, spec: &Spec, output: Output) -> Result<(), Failure> {
    if !dir.exists() || dir.spec()?.address == spec.address {
        return Ok(());
    }
    output.say(&format!(
        "mgmtd listens at {at} from now on. Mount again what was mounted beside this cluster's own, and give services that \
         joined it {at}",
        at = plan::mgmtd_address(spec)
    ))
}

/// A port that we chose and that is somebody else's by now is not worth an error: we choose again, unless other hosts know
/// it. The new one is written down before the files that name it, which follow it at each start.
fn leave_taken_ports(dir: &ClusterDir, spec: &mut Spec, output: Output) -> Result<(), Failure> {
    if !dir.exists() || dir.spec()?.address != LOOPBACK || !configs::may_move(dir, spec) {
        return Ok(());
    }
    let free: [u16; 2] = plan::free_ports()?.into();
    let other_than = |port| if free[0] == port { free[1] } else { free[0] };
    if !plan::is_free(spec.address, spec.mgmtd_port) {
        let port = other_than(spec.mgmtd_metrics_port);
        output.say(&format!(
            "port {} is taken: mgmtd listens on {port} from now on. Mount again what was mounted beside this cluster's own, \
             and give services that joined it {LOOPBACK}:{port}",
            spec.mgmtd_port
        ))?;
        spec.mgmtd_port = port;
    }
    // Nobody but a monitoring system knows it.
    if !plan::is_free(LOOPBACK, spec.mgmtd_metrics_port) {
        spec.mgmtd_metrics_port = other_than(spec.mgmtd_port);
    }
    let Spec { mgmtd_port, mgmtd_metrics_port, .. } = *spec;
    let kept = dir.spec()?;
    if (kept.mgmtd_port, kept.mgmtd_metrics_port) != (mgmtd_port, mgmtd_metrics_port) {
        dir.save_spec(&Spec { mgmtd_port, mgmtd_metrics_port, ..kept })?;
    }
    Ok(())
}

/// Foreground: until Ctrl-C, or until the supervisor ends by itself.
fn stay(dir: &ClusterDir, child: &mut Child, interrupted: &AtomicBool, output: Output) -> Result<(), Failure> {
    output.say("Ctrl-C stops it")?;
    while !interrupted.load(Ordering::Relaxed) {
        if let Some(status) = child.try_wait()? {
            return match status.success() {
                true => Ok(()),
                false => Err(anyhow!("the supervisor ended: see {}", dir.log_file("supervisor").display()).into()),
            };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    output.say("stopping")?;
    end_supervisor(dir, child)
}

/// Also where it has just begun, and those who look for it by its lock do not find it yet.
fn end_supervisor(dir: &ClusterDir, child: &mut Child) -> Result<(), Failure> {
    // SAFETY: kill touches no memory; the child has not been waited for, so its number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    stop_supervisor(dir, STOP_PATIENCE)?;
    child.wait()?;
    Ok(())
}

/// Says what runs. [`Failure::Found`] where a service is missing, which is said too.
fn report(dir: &ClusterDir, spec: &Spec, state: State, effect: Effect, output: Output) -> Result<(), Failure> {
    let running = Running {
        dir: dir.root().to_owned(),
        mount: spec.mount.clone(),
        mounted: mounts::of_cluster(&spec.mount, &plan::mgmtd_address(spec))?.is_some(),
        mgmtd: plan::mgmtd_address(spec),
        key_file: dir.key_file(),
        already: effect != Effect::Started,
        grown: effect == Effect::Grown,
        missed: ready::missed(dir, spec, &state),
        state,
    };
    let is_whole = running.missed.is_empty();
    output.show(&running, |running| {
        let mut table = Table::new(["PROCESS", "PID", "STATE", "LOG"]);
        for (name, process) in &running.state.processes {
            let log = dir.log_file(name).display().to_string();
            table.row([name.clone(), process.pid.to_string(), process.phase.name().to_owned(), log]);
        }
        let mount = running.mount.display();
        let last = match (running.mounted, effect) {
            (true, Effect::Started) => format!("mounted at {mount}"),
            (true, Effect::Unchanged) => format!("running already, mounted at {mount}"),
            (true, Effect::Shrunk) => format!("smaller now, mounted at {mount}"),
            (true, Effect::Grown) => format!("larger now, mounted at {mount}"),
            (false, _) => format!("running, but not mounted: weft mount {mount} --dir {}", running.dir.display()),
        };
        let missed = running.missed.iter().map(|Missed { name, reason }| {
            let is_tried = running.state.processes.get(name).is_some_and(|process| process.phase != Phase::Refused);
            let then = if is_tried { "which is tried again by itself" } else { "then `weft down` and `weft up`" };
            format!(
                "{name} does not start, and files that have bytes there cannot be read: {reason}. Mend that, {then}; where \
                 it is to go for good: `weft node delete`, then a smaller --storage, if it is the last one\n"
            )
        });
        table.render() + &missed.collect::<String>() + &last
    })?;
    if is_whole { Ok(()) } else { Err(Failure::Found) }
}
