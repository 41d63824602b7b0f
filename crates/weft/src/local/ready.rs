//! Waits until a cluster that was started answers through its mount, or says what stands in the way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use conf::file_system;
use serde::Serialize;

use super::dir::{ClusterDir, Spec};
use super::plan::{MGMTD, MOUNT, STORAGE, metadata_names, mgmtd_address, storage_names};
use super::state::{Phase, ProcessState, State};
use super::{grow, log, mounts};
use crate::failure::{Failure, usage};
use crate::output::Progress;

const POLL: Duration = Duration::from_millis(10);
/// The mount is asked again after this, and between two times we look around.
const LOOK: Duration = Duration::from_secs(1);
/// A process that died so often will not come up by waiting longer.
const RESTARTS_MAX: u32 = 5;
/// A storage service that was started so often again, and is down all the same, is done without. Once may be an accident.
const RESTARTS_MISSED: u32 = 2;
/// Lines of the culprit's log that are shown.
const TAIL: usize = 5;

/// # Errors
/// Names the process that failed, how, and the end of its log; or says that the user has `interrupted` the wait.
pub(crate) fn wait(dir: &ClusterDir, spec: &Spec, limit: Duration, interrupted: &AtomicBool) -> Result<State, Failure> {
    let begin = Instant::now();
    let mut progress = Progress::new();
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(anyhow::anyhow!("interrupted before it was mounted").into());
        }
        if !dir.is_running()? && begin.elapsed() > Duration::from_secs(1) {
            let lines = log::tail(&dir.log_file("supervisor"), 0, TAIL);
            return Err(anyhow::anyhow!("the supervisor ended at once: {}", lines.join("\n")).into());
        }
        let state = State::read(dir)?.unwrap_or_default();
        if let Some(failure) = refusal(dir, spec, &state) {
            return Err(failure);
        }
        let (running, all) = (state.running().count(), state.processes.len());
        let waited = begin.elapsed().as_secs();
        if waited > 0 {
            progress
                .update(&format!("waiting for {}: {running} of {all} processes run, {waited} s", spec.mount.display()));
        }
        let left = limit.saturating_sub(begin.elapsed());
        if mounts::of_cluster(&spec.mount, &mgmtd_address(spec))?.is_some()
            && matches!(ask_for(&spec.mount, left.min(LOOK)), Some(Ok(())))
        {
            return Ok(State::read(dir)?.unwrap_or(state));
        }
        if left.is_zero() || is_hopeless(spec, &state) {
            return Err(culprit(dir, spec, &state, begin.elapsed()));
        }
        thread::sleep(POLL);
    }
}

/// A process that will not be started again, and without which there is no cluster.
pub(super) fn refusal(dir: &ClusterDir, spec: &Spec, state: &State) -> Option<Failure> {
    let is_refused = |process: &ProcessState| process.phase == Phase::Refused;
    // One that dies again and again may yet come up.
    let missed = dispensable(spec, state, is_refused);
    let (name, process) = parts(spec, state, is_refused).find(|(name, _)| !missed.contains(name))?;
    Some(usage!("{name} does not start: {}{}", reason(dir, name, process), way_out(dir, spec, name)))
}

/// How to go on without a service that was to be part of the cluster and is not yet, as those after it; nothing of others.
fn way_out(dir: &ClusterDir, spec: &Spec, name: &str) -> String {
    let hint = |names: Vec<String>, made: u32, flag: &str| {
        let at = names.iter().position(|new| new == name).filter(|&at| made > 0 && at >= made as usize)?;
        let is_new = |name: &String| grow::never_joined(dir, name).unwrap_or(false);
        names[at..].iter().all(is_new).then(|| format!("; `weft up {flag} {at}` does without it"))
    };
    let storage = hint(storage_names(spec).collect(), spec.made.storage, "--storage");
    storage.or_else(|| hint(metadata_names(spec).collect(), spec.made.metadata, "--metadata")).unwrap_or_default()
}

/// The processes that have trouble, of those that the cluster is to have: one that has just been taken out of it may still be
/// named.
fn parts<'a>(
    spec: &Spec,
    state: &'a State,
    has_trouble: fn(&ProcessState) -> bool,
) -> impl Iterator<Item = (&'a String, &'a ProcessState)> + use<'a> {
    let services: Vec<String> = storage_names(spec).chain(metadata_names(spec)).collect();
    let is_part = move |name: &String| [MGMTD, MOUNT].contains(&name.as_str()) || services.contains(name);
    state.processes.iter().filter(move |(name, process)| has_trouble(process) && is_part(name))
}

/// It has refused to start, or dies again and again: its disk fails, is full or hangs.
fn is_down(process: &ProcessState) -> bool {
    process.phase == Phase::Refused || process.phase == Phase::Waiting && process.restarts >= RESTARTS_MISSED
}

/// It has refused to start, or died again and again before it was started just now, and may be no better this time.
fn is_restless(process: &ProcessState) -> bool {
    process.phase == Phase::Refused || process.restarts >= RESTARTS_MISSED
}

/// Something dies again and again that the mount cannot do without.
fn is_hopeless(spec: &Spec, state: &State) -> bool {
    let mut dying = state.processes.iter().filter(|(_, process)| process.restarts >= RESTARTS_MAX);
    dying.any(|(name, _)| made_storage(spec).all(|made| made != *name))
}

/// The storage services that were part of the cluster before.
fn made_storage(spec: &Spec) -> impl Iterator<Item = String> + use<> {
    storage_names(spec).take(spec.made.storage as usize)
}

fn reason(dir: &ClusterDir, name: &str, process: &ProcessState) -> String {
    let lines = log::tail(&dir.log_file(name), process.log_from, 1);
    let reason = lines.first().map_or("it gave no reason", String::as_str);
    reason.strip_prefix("weft: ").unwrap_or(reason).to_owned()
}

/// The storage services that have trouble, of those that were part of the cluster: what the others have is there without them.
/// None where there are no others, or all have.
fn dispensable<'a>(spec: &Spec, state: &'a State, has_trouble: fn(&ProcessState) -> bool) -> Vec<&'a String> {
    let made: Vec<String> = made_storage(spec).collect();
    let names = parts(spec, state, has_trouble).map(|(name, _)| name);
    let troubled: Vec<&String> = names.filter(|name| name.starts_with(STORAGE)).collect();
    if troubled.len() >= spec.storage as usize {
        return Vec::new();
    }
    troubled.into_iter().filter(|name| made.contains(name)).collect()
}

/// A storage service without which the cluster runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Missed {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Those that were part of the cluster and do not start. All of them, where none does: what dies may yet come up.
pub(crate) fn missed(dir: &ClusterDir, spec: &Spec, state: &State) -> Vec<Missed> {
    let told = |name: String| {
        let process = state.processes.get(&name).filter(|process| is_down(process))?;
        Some(Missed { reason: reason(dir, &name, process), name })
    };
    made_storage(spec).filter_map(told).collect()
}

fn culprit(dir: &ClusterDir, spec: &Spec, state: &State, waited: Duration) -> Failure {
    let missed = dispensable(spec, state, is_restless);
    let troubled = |name: &&String| {
        let has_trouble = |process: &ProcessState| process.phase != Phase::Running || process.restarts > 0;
        state.processes.get(*name).is_some_and(has_trouble) && !missed.contains(name)
    };
    // Those that others need come first, and cause their trouble.
    let mut names: Vec<&String> = state.processes.keys().filter(troubled).collect();
    names.sort_by_key(|name| (*name != MGMTD, *name == MOUNT));
    let (name, exit) = match names.first() {
        Some(name) => (name.as_str(), state.processes[*name].last_exit.as_str()),
        None => (MOUNT, ""),
    };
    let from = state.processes.get(name).map_or(0, |process| process.log_from);
    let path = dir.log_file(name);
    let mut lines = log::tail(&path, from, TAIL);
    if lines.is_empty() {
        // It has just been started again: the lines of the start before tell why.
        lines = log::tail(&path, 0, TAIL);
    }
    let how = if exit.is_empty() { "is not ready".to_owned() } else { format!("ended with {exit}") };
    let mount = spec.mount.display();
    Failure::Failed(anyhow::anyhow!(
        "{mount} does not answer after {:.1} s: {name} {how}; the end of {}:\n  {}",
        waited.as_secs_f64(),
        path.display(),
        lines.join("\n  ")
    ))
}

/// Whether the file system is there and its metadata can be asked, or `None` where it does not say within `limit`. Asked from
/// another thread, since a mount whose servers are not there makes its callers wait.
pub(crate) fn ask_for(mount: &Path, limit: Duration) -> Option<io::Result<()>> {
    let (send, receive) = mpsc::channel();
    let mount = mount.to_owned();
    thread::spawn(move || {
        // Nobody may be left to hear it.
        let _ = send.send(ask(&mount));
    });
    receive.recv_timeout(limit).ok()
}

fn ask(mount: &Path) -> io::Result<()> {
    file_system::statvfs(mount)?;
    let unlikely: PathBuf = mount.join(format!(".weft-ready-{}", std::process::id()));
    match std::fs::symlink_metadata(unlikely) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::configs;
    use crate::local::dir::{LOOPBACK, Made};

    fn spec(storage: u32, made: u32) -> Spec {
        Spec {
            address: LOOPBACK,
            mgmtd_port: 1,
            mgmtd_metrics_port: 2,
            metadata: 1,
            shards: 1,
            storage,
            targets: 1,
            mount: "/m".into(),
            made: Made { metadata: 1, shards: 1, storage: made, targets: 1 },
        }
    }

    fn state(of: impl Fn(&str) -> (Phase, u32)) -> State {
        let mut state = State::default();
        for name in ["mgmtd", "metad-1", "storaged-1", "storaged-2"] {
            let (phase, restarts) = of(name);
            let process = ProcessState { phase, pid: 0, restarts, last_exit: String::new(), log_from: 0 };
            state.processes.insert(name.to_owned(), process);
        }
        state
    }

    /// Of a cluster with two storage services.
    fn without(refused: &[&str], made: u32) -> (Vec<String>, Option<String>) {
        without_of(2, refused, made)
    }

    fn without_of(storage: u32, refused: &[&str], made: u32) -> (Vec<String>, Option<String>) {
        let phase = |name: &str| if refused.contains(&name) { Phase::Refused } else { Phase::Running };
        told(&spec(storage, made), &state(|name| (phase(name), 0)))
    }

    /// Who is missed, and what stands in the way.
    fn told(spec: &Spec, state: &State) -> (Vec<String>, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        dir.make_folders().expect("writable");
        configs::write(&dir, spec).expect("writable");
        for name in state.processes.keys() {
            std::fs::write(dir.log_file(name), format!("weft: {name} has no disk\n")).expect("writable");
        }
        let missed = missed(&dir, spec, state).into_iter().map(|missed| format!("{}: {}", missed.name, missed.reason));
        (missed.collect(), refusal(&dir, spec, state).map(|failure| failure.to_string()))
    }

    #[test]
    fn a_storage_service_that_was_there_is_missed_where_another_one_starts() {
        assert_eq!(without(&[], 2), (vec![], None));
        assert_eq!(without(&["storaged-1"], 2), (vec!["storaged-1: storaged-1 has no disk".to_owned()], None));
        let fatal = |refused: &[&str], made, name: &str| {
            let (missed, failure) = without(refused, made);
            let is_named =
                failure.is_some_and(|text| text.starts_with(&format!("{name} does not start: {name} has no disk")));
            is_named && (missed.is_empty() || refused.len() > 1)
        };
        assert!(fatal(&["storaged-1", "storaged-2"], 2, "storaged-1"), "none is left");
        assert!(fatal(&["storaged-2"], 1, "storaged-2"), "it is new");
        let new = without(&["storaged-2"], 1).1.expect("it is fatal");
        assert!(new.ends_with("; `weft up --storage 1` does without it"), "{new}");
        assert_eq!(without_of(1, &["storaged-2"], 1), (vec![], None), "it is no part any more");
        assert!(fatal(&["metad-1"], 2, "metad-1") && fatal(&["metad-1", "storaged-2"], 2, "metad-1"));
    }

    #[test]
    fn a_storage_service_that_dies_again_and_again_is_missed_like_one_that_refuses() {
        use Phase::{Refused, Running, Waiting};
        let of = |first: (Phase, u32), second: (Phase, u32)| {
            state(move |name| match name {
                "storaged-1" => first,
                "storaged-2" => second,
                _ => (Running, 0),
            })
        };
        let said = "storaged-2: storaged-2 has no disk".to_owned();
        assert_eq!(told(&spec(2, 2), &of((Running, 0), (Waiting, 2))), (vec![said.clone()], None));
        assert_eq!(told(&spec(2, 2), &of((Running, 9), (Waiting, 2))), (vec![said], None), "that was long ago");
        for (made, state) in [
            (2, of((Running, 0), (Waiting, 1))),
            (2, of((Running, 0), (Running, 9))),
            (1, of((Running, 0), (Waiting, 9))),
        ] {
            assert_eq!(told(&spec(2, made), &state), (vec![], None), "{state:?}");
        }
        let (missed, failure) = told(&spec(2, 2), &of((Waiting, 2), (Waiting, 2)));
        assert!(missed.len() == 2 && failure.is_none(), "both may come up yet: {failure:?}");
        let (missed, failure) = told(&spec(2, 2), &of((Refused, 0), (Waiting, 2)));
        assert!(missed.len() == 2 && failure.is_none(), "one may: {failure:?}");
        // Whether it is just being started again or not.
        for phase in [Waiting, Running] {
            assert!(!is_hopeless(&spec(2, 2), &of((Running, 0), (phase, 9))));
            assert!(is_hopeless(&spec(2, 1), &of((Running, 0), (phase, 9))), "it is new");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let blamed = |made| culprit(&dir, &spec(2, made), &of((Running, 0), (Waiting, 9)), POLL).to_string();
        assert!(blamed(2).contains("mount is not ready") && blamed(1).contains("storaged-2 "), "{}", blamed(2));
        assert!(is_hopeless(&spec(2, 2), &state(|name| (Waiting, if name == "metad-1" { 5 } else { 0 }))));
    }
}
