//! Makes a running cluster larger, without a restart of what runs: new services are started by the supervisor, and those
//! that get more shards or targets take them up by themselves.
//!
//! In this order, so that a service which dies meanwhile finds what its configuration names: new directories become targets
//! of the running services, then the configurations name them, then the supervisor hears of it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admin::Admin;
use anyhow::{Result, anyhow};
use cluster::map::{ClusterMap, NodeState, ServiceKind};
use conf::Fatal;
use conf::identity::{self, Expect, Home, IDENTITY_FILE, Identity, Service};
use types::id::{NodeId, TargetId};

use super::dir::{ClusterDir, Spec};
use super::plan::{STORAGE, metadata_names, mgmtd_address, storage_names};
use super::state::State;
use super::{configs, log, ready};
use crate::failure::{Failure, usage};
use crate::output::Progress;

const POLL: Duration = Duration::from_millis(20);
/// The supervisor is told again after this: a service may have been starting, or mgmtd away.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Longest wait for services to say whether they start, where all else is there.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// Longest wait for services that are given up: the supervisor kills them when it has waited a little less.
const GIVING_UP: Duration = Duration::from_secs(11);
/// Lines of a log that are shown.
const TAIL: usize = 5;

/// Grows the cluster that runs in `dir` to `spec` and waits until all of it is part of the cluster.
///
/// # Errors
/// Where a directory cannot be made, a configuration was edited so that it cannot be changed here, a service refuses, or
/// `limit` passes. What runs goes on in each case, and the same may be tried again.
pub(crate) fn grow(dir: &ClusterDir, spec: &Spec, limit: Duration, stop: &AtomicBool) -> Result<State, Failure> {
    let old = dir.spec()?;
    refuse_edited(dir, spec, &old)?;
    let map = match spec.made.targets < spec.targets {
        true => Some(Admin::connect(&mgmtd_address(spec), &dir.key_file())?.view()?.map),
        false => None,
    };
    prepare(dir, spec, map.as_deref())?;
    configs::write(dir, spec)?;
    dir.save_spec(spec)?;
    let state = wait(dir, spec, Occasion::Growth, limit, stop);
    let services = |spec: &Spec| metadata_names(spec).chain(storage_names(spec)).collect::<BTreeSet<String>>();
    let gone: Vec<String> = services(&old).difference(&services(spec)).cloned().collect();
    give_up(dir, (&old, spec), &gone, stop)?;
    let state = state?;
    dir.save_spec(&Spec { made: spec.all_made(), ..spec.clone() })?;
    Ok(state)
}

/// Writes down that all of `spec` has come up, where nobody does that who waits for it: a `weft up` that was ended before, or
/// gave up. Answers whether it is so, and was not written down.
///
/// # Errors
/// Where a configuration cannot be read, or nothing can be written down.
pub(crate) fn note_made(dir: &ClusterDir, spec: &Spec) -> Result<bool, Failure> {
    // Before the turn is taken: a disk that hangs may not keep it from others.
    if wanted(dir, spec)?.iter().any(|wanted| target_of(&wanted.dir).is_none()) {
        return Ok(false);
    }
    let Some(_turn) = dir.try_lock_growing()? else { return Ok(false) };
    // Another one had the turn meanwhile.
    if dir.spec()? != *spec {
        return Ok(false);
    }
    dir.save_spec(&Spec { made: spec.all_made(), ..spec.clone() })?;
    Ok(true)
}

/// Until the supervisor has given these services up, so that it can have them again; what takes longer, as a disk that hangs
/// does, is not waited for.
///
/// # Errors
/// Where one has become a part of the cluster just before: it is as it was in `old`, and to be started again.
fn give_up(dir: &ClusterDir, (old, spec): (&Spec, &Spec), names: &[String], stop: &AtomicBool) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let begin = Instant::now();
    while begin.elapsed() < GIVING_UP && !stop.load(Ordering::Relaxed) && dir.is_running()? {
        let state = State::read(dir)?.unwrap_or_default();
        if !names.iter().any(|name| state.processes.contains_key(name)) {
            break;
        }
        thread::sleep(POLL);
    }
    let map = Admin::connect(&mgmtd_address(spec), &dir.key_file())?.view()?.map;
    for name in names {
        if !is_gone(dir, name, &map)? {
            dir.save_spec(&Spec { storage: old.storage, metadata: old.metadata, ..spec.clone() })?;
            return Err(anyhow!(
                "{name} has joined the cluster just before it was given up: `weft up` starts it again"
            )
            .into());
        }
    }
    Ok(())
}

/// Waits until all that the configurations name is part of the cluster that has just been started, but for the storage services
/// that are [missed](ready::missed) by the state which it answers.
///
/// # Errors
/// Where a service refuses, or `limit` passes.
pub(crate) fn wait_for_start(
    dir: &ClusterDir,
    spec: &Spec,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<State, Failure> {
    wait(dir, spec, Occasion::Start, limit, stop)
}

/// Waits a moment for the storage services to serve, to refuse or to die again and again, so that whoever is told of a start
/// hears of those that do not start. What takes longer, as a disk that hangs does, is not waited for.
pub(crate) fn settle(dir: &ClusterDir, spec: &Spec, limit: Duration, stop: &AtomicBool) -> Result<State, Failure> {
    let begin = Instant::now();
    // One whose configuration cannot be read refuses at once.
    let targets_of = |name: String| Some((storaged(dir, &name).ok()?.targets, name));
    let storage: Vec<(Vec<PathBuf>, String)> = storage_names(spec).filter_map(targets_of).collect();
    let mut admin = None;
    loop {
        let state = State::read(dir)?.unwrap_or_default();
        if let Some(failure) = ready::refusal(dir, spec, &state) {
            return Err(failure);
        }
        let away = ready::missed(dir, spec, &state);
        let served = served_now(&mut admin, dir, spec);
        let is_served = |dir: &PathBuf| target_of(dir).is_some_and(|target| served.contains(&target));
        let is_settled = |(targets, name): &(Vec<PathBuf>, String)| {
            away.iter().any(|missed| missed.name == *name) || targets.iter().any(is_served)
        };
        if storage.iter().all(is_settled) || begin.elapsed() >= limit.min(SETTLE_MAX) || stop.load(Ordering::Relaxed) {
            return Ok(state);
        }
        thread::sleep(POLL);
    }
}

/// The targets that clients can reach, as far as mgmtd answers.
fn served_now(admin: &mut Option<Admin>, dir: &ClusterDir, spec: &Spec) -> BTreeSet<TargetId> {
    if admin.is_none() {
        *admin = Admin::connect(&mgmtd_address(spec), &dir.key_file()).ok();
    }
    match admin.as_ref().map(Admin::view) {
        Some(Ok(view)) => served(&view.map),
        Some(Err(_)) | None => {
            *admin = None;
            BTreeSet::new()
        }
    }
}

/// Whether the cluster knows nothing of a service, or nothing any more: neither its node nor one of its targets.
///
/// # Errors
/// Where its configuration cannot be read.
pub(crate) fn is_gone(dir: &ClusterDir, name: &str, map: &ClusterMap) -> Result<bool> {
    let dirs = dirs_of(dir, name)?;
    let identities = dirs.iter().filter_map(|dir| identity::read(&dir.join(IDENTITY_FILE)).ok());
    let uuids: BTreeSet<String> = identities.map(|identity| identity.node_uuid).collect();
    // Its name says something only where nothing else does: people give names to other nodes.
    let is_its = |uuid: &String, alias: &str| if uuids.is_empty() { alias == name } else { uuids.contains(uuid) };
    let has_node = map.nodes.values().any(|node| is_its(&node.uuid, &node.alias));
    let mut paths = map.targets.values().map(|target| dir.root().join(&target.path));
    Ok(!has_node && !paths.any(|path| dirs.contains(&path)))
}

/// Where a service has its data.
fn dirs_of(dir: &ClusterDir, name: &str) -> Result<Vec<PathBuf>> {
    if name.starts_with(STORAGE) {
        return Ok(storaged(dir, name)?.targets);
    }
    let config = metad(dir, name)?;
    Ok((1..=config.shards).map(|number| config.shard_dir(number)).collect())
}

/// Whether a service that was to be part of the cluster never was: no directory of its has a number from mgmtd. One that cannot
/// be read may have one.
///
/// # Errors
/// Where its configuration cannot be read.
pub(crate) fn never_joined(dir: &ClusterDir, name: &str) -> Result<bool> {
    let has_joined = |dir: &PathBuf| {
        let file = dir.join(IDENTITY_FILE);
        match identity::read(&file) {
            Ok(identity) => identity.node_id.is_some() || identity.target_id.is_some(),
            Err(_) => file.try_exists().unwrap_or(true),
        }
    };
    Ok(!dirs_of(dir, name)?.iter().any(has_joined))
}

/// What a cluster is waited for after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// Its supervisor knows all, and may not hear signals yet.
    Start,
    Growth,
}

/// A target that is to be part of the cluster, and the service that has it.
struct Wanted {
    service: String,
    dir: PathBuf,
}

fn metad(dir: &ClusterDir, name: &str) -> Result<metad::Config> {
    let config: metad::Config = conf::load(Some(&dir.config_file(name)), &conf::Flags::default())?;
    // Services run in the cluster's directory.
    Ok(metad::Config { dir: dir.root().join(&config.dir), ..config })
}

fn storaged(dir: &ClusterDir, name: &str) -> Result<storaged::Config> {
    let config: storaged::Config = conf::load(Some(&dir.config_file(name)), &conf::Flags::default())?;
    let targets = config.targets.iter().map(|target| dir.root().join(target)).collect();
    Ok(storaged::Config { targets, ..config })
}

/// Makes the new directories of services that were there before into targets of theirs: an empty one they would refuse. That
/// is also what the user has added to a configuration: what the `map` of a cluster that runs does not have, else what comes
/// after what was there.
///
/// # Errors
/// Where a directory cannot be made, or nothing says which node it is to belong to, or whether it is a new one.
pub(crate) fn prepare(dir: &ClusterDir, spec: &Spec, map: Option<&ClusterMap>) -> Result<()> {
    let made = spec.made;
    if made.shards < spec.shards {
        for name in metadata_names(spec).take(made.metadata as usize) {
            let config = metad(dir, &name)?;
            let new = (1u16..).skip(made.shards as usize).take_while(|number| u32::from(*number) <= spec.shards);
            let new: Vec<PathBuf> = new.map(|number| config.shard_dir(number)).collect();
            make_targets(Service::Metadata, &[config.dir], &new)?;
        }
    }
    if made.targets < spec.targets {
        for name in storage_names(spec).take(made.storage as usize) {
            let config = storaged(dir, &name)?;
            let new = new_targets(dir, spec, &name, &config.targets, map)?;
            make_targets(Service::Storage, &config.targets, &new)?;
        }
    }
    Ok(())
}

/// What is to become a target of a storage service that has `listed` these. One of them that is not there may as well be on a
/// disk that is away: then it is nothing to be made.
fn new_targets(
    dir: &ClusterDir,
    spec: &Spec,
    name: &str,
    listed: &[PathBuf],
    map: Option<&ClusterMap>,
) -> Result<Vec<PathBuf>> {
    let made = spec.made.targets;
    let ours = |numbers: RangeInclusive<u32>| -> Vec<PathBuf> {
        numbers.map(|number| configs::target_dir(dir, name, number)).collect()
    };
    let before = ours(1..=made);
    if listed == before {
        // It is ours to make longer.
        return Ok(ours(made + 1..=spec.targets));
    }
    let Some(map) = map else {
        let added = listed.iter().skip(made as usize).cloned().collect();
        let is_doubtful = |target: &&PathBuf| !target.join(IDENTITY_FILE).exists() && !before.contains(target);
        return match listed.iter().find(is_doubtful) {
            // Where one was taken out, the places of the others say nothing.
            Some(target) if before.iter().any(|target| !listed.contains(target)) => Err(Fatal::usage(format!(
                "{} is no target yet, or its disk is not mounted: mount it; or where it is new, `weft up` without --targets \
                 first, and then with it, or `init = true` in {} for one start",
                target.display(),
                dir.config_file(name).display()
            ))
            .into()),
            _ => Ok(added),
        };
    };
    let node_uuid = node_of(listed).map(|node| node.node_uuid);
    let is_its = |node: NodeId| {
        let uuid = map.nodes.get(&node).map(|node| &node.uuid);
        node_uuid.is_none() || uuid == node_uuid.as_ref()
    };
    let its = map.targets.values().filter(|target| is_its(target.node));
    let known: BTreeSet<PathBuf> = its.map(|target| dir.root().join(&target.path)).collect();
    Ok(listed.iter().filter(|target| !known.contains(*target)).cloned().collect())
}

/// The node that has the first of these targets that can be read.
fn node_of(targets: &[PathBuf]) -> Option<Identity> {
    targets.iter().find_map(|dir| identity::read(&dir.join(IDENTITY_FILE)).ok())
}

/// Makes each of `new` into an empty target of the node that has the target in the first of `known` that can be read.
fn make_targets(service: Service, known: &[PathBuf], new: &[PathBuf]) -> Result<()> {
    let missing: Vec<&PathBuf> = new.iter().filter(|dir| !dir.join(IDENTITY_FILE).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let node = node_of(known).ok_or_else(|| {
        let dirs: Vec<String> = known.iter().map(|dir| dir.display().to_string()).collect();
        anyhow!("none of {} says which node it belongs to: is a disk not mounted?", dirs.join(", "))
    })?;
    for dir in missing {
        let cluster = Some(node.cluster.as_str()).filter(|cluster| !cluster.is_empty());
        let node_uuid = Some(node.node_uuid.as_str());
        // The lock goes at once: the service takes it.
        drop(Home::open(&Expect { dir, service, cluster, node_uuid, target: true, init: true }).map_err(Fatal::from)?);
    }
    Ok(())
}

/// What the user has written into a configuration stays, and may be less than what is asked for now, where that is more than in
/// `old`. Before anything is changed.
///
/// # Errors
/// Says what to write there.
pub(crate) fn refuse_edited(dir: &ClusterDir, spec: &Spec, old: &Spec) -> Result<(), Failure> {
    let check = |name: &str, key: &str, has: usize, asked: u32| {
        if has >= asked as usize {
            return Ok(());
        }
        let file = dir.config_file(name);
        Err(usage!("{} has {key} of your own, {has}: raise it there to {asked}, then try again", file.display()))
    };
    let is_there = |name: &String| dir.config_file(name).exists();
    for name in metadata_names(spec).filter(is_there).filter(|_| old.shards < spec.shards) {
        if configs::grown_shards(dir, spec, &name)?.is_none() {
            check(&name, "shards", metad(dir, &name)?.shards.into(), spec.shards)?;
        }
    }
    for name in storage_names(spec).filter(is_there).filter(|_| old.targets < spec.targets) {
        if configs::grown_targets(dir, spec, &name)?.is_none() {
            check(&name, "targets", storaged(dir, &name)?.targets.len(), spec.targets)?;
        }
    }
    Ok(())
}

/// All targets that the cluster is to have, as the configurations say.
fn wanted(dir: &ClusterDir, spec: &Spec) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for name in metadata_names(spec) {
        let config = metad(dir, &name)?;
        let dirs = (1..=config.shards).map(|number| config.shard_dir(number));
        wanted.extend(dirs.map(|dir| Wanted { service: name.clone(), dir }));
    }
    for name in storage_names(spec) {
        let dirs = storaged(dir, &name)?.targets.into_iter();
        wanted.extend(dirs.map(|dir| Wanted { service: name.clone(), dir }));
    }
    Ok(wanted)
}

fn wait(dir: &ClusterDir, spec: &Spec, after: Occasion, limit: Duration, stop: &AtomicBool) -> Result<State, Failure> {
    let wanted = wanted(dir, spec)?;
    let begin = Instant::now();
    let mut told: Option<Instant> = None;
    let mut admin = None;
    let mut progress = Progress::new();
    loop {
        if after == Occasion::Growth && told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            tell_supervisor(dir)?;
            told = Some(Instant::now());
        }
        let state = State::read(dir)?.unwrap_or_default();
        if let Some(failure) = ready::refusal(dir, spec, &state) {
            return Err(failure);
        }
        let away = ready::missed(dir, spec, &state);
        let served = served_now(&mut admin, dir, spec);
        let missing = |wanted: &&Wanted| {
            let is_away = away.iter().any(|missed| missed.name == wanted.service);
            !is_away && target_of(&wanted.dir).is_none_or(|target| !served.contains(&target))
        };
        let Some(missing) = wanted.iter().find(missing) else { return Ok(state) };
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted(after));
        }
        let waited = begin.elapsed();
        if waited > limit {
            return Err(too_late(dir, missing, after, waited));
        }
        let Wanted { service, dir } = missing;
        progress.waiting(&format!("waiting for {} of {service}", dir.display()), begin);
        thread::sleep(POLL);
    }
}

fn interrupted(after: Occasion) -> Failure {
    match after {
        Occasion::Start => anyhow!("interrupted before all of it was there").into(),
        Occasion::Growth => anyhow!("interrupted: what has begun goes on, and `weft up` waits for it again").into(),
    }
}

fn too_late(dir: &ClusterDir, missing: &Wanted, after: Occasion, waited: Duration) -> Failure {
    let path = dir.log_file(&missing.service);
    let rest = if after == Occasion::Growth { "; what ran before goes on" } else { "" };
    Failure::Failed(anyhow!(
        "{} has not taken up {} after {:.1} s{rest}; the end of {}:\n  {}",
        missing.service,
        missing.dir.display(),
        waited.as_secs_f64(),
        path.display(),
        log::tail(&path, 0, TAIL).join("\n  ")
    ))
}

fn target_of(dir: &Path) -> Option<TargetId> {
    identity::read(&dir.join(IDENTITY_FILE)).ok()?.target_id
}

/// The targets that clients can reach, those of metadata with a shard.
fn served(map: &ClusterMap) -> BTreeSet<TargetId> {
    let online = |target: &cluster::map::Target| {
        map.nodes.get(&target.node).is_some_and(|node| node.state == NodeState::Online) && !target.ports.is_empty()
    };
    let has_shard = |target: &cluster::map::Target| {
        let groups = map.shards.values().filter_map(|group| map.groups.get(group));
        target.kind == ServiceKind::Storage || groups.into_iter().any(|group| group.members.contains(&target.id))
    };
    map.targets.values().filter(|target| online(target) && has_shard(target)).map(|target| target.id).collect()
}

/// A supervisor that knows nothing of this passes the signal over, and the wait ends with its time.
fn tell_supervisor(dir: &ClusterDir) -> Result<(), Failure> {
    let state = State::read(dir)?.filter(|state| state.supervisor > 1);
    match state {
        Some(state) if dir.is_running()? => {
            // SAFETY: kill touches no memory; the lock is held, so the process that wrote its id is alive.
            unsafe { libc::kill(state.supervisor, libc::SIGHUP) };
            Ok(())
        }
        _ => Err(anyhow!("the cluster in {} has been stopped meanwhile", dir.root().display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::dir::{LOOPBACK, Made};

    fn spec(made: Made, shards: u32, targets: u32) -> Spec {
        let mount = "/m".into();
        let address = LOOPBACK;
        Spec { address, mgmtd_port: 1, mgmtd_metrics_port: 2, metadata: 1, shards, storage: 1, targets, mount, made }
    }

    fn open(service: Service, dir: &Path, init: bool) -> Result<Home, conf::Fatal> {
        Ok(Home::open(&Expect { dir, service, cluster: None, node_uuid: None, target: true, init })?)
    }

    #[test]
    fn new_directories_become_targets_of_the_service_that_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        configs::write(&dir, &spec(made, 1, 1)).expect("writable");
        let (first, shard) = (configs::target_dir(&dir, "storaged-1", 1), dir.data("metad-1"));
        // The services hold their locks.
        let storage = open(Service::Storage, &first, true).expect("new");
        let metadata = open(Service::Metadata, &shard, true).expect("new");

        prepare(&dir, &spec(made, 2, 3), None).expect("there is room");
        for number in [2, 3] {
            let home = open(Service::Storage, &configs::target_dir(&dir, "storaged-1", number), false).expect("made");
            assert_eq!(home.identity().node_uuid, storage.identity().node_uuid);
        }
        let home = open(Service::Metadata, &shard.join("shard-2"), false).expect("made");
        assert_eq!(home.identity().node_uuid, metadata.identity().node_uuid);
        drop(home);
        // Once more, as after a first try that was broken off.
        prepare(&dir, &spec(made, 2, 3), None).expect("all is there");
        configs::write(&dir, &spec(made, 2, 3)).expect("writable");
        // What was there before may be on a disk that is away.
        drop(storage);
        let later = Made { targets: 3, ..made };
        std::fs::remove_dir_all(configs::target_dir(&dir, "storaged-1", 2)).expect("removable");
        prepare(&dir, &spec(later, 1, 4), None).expect("others are there");
        let is_there = |number| configs::target_dir(&dir, "storaged-1", number).exists();
        assert!(!is_there(2) && is_there(4));
        assert_eq!(wanted(&dir, &spec(made, 2, 3)).expect("as asked").len(), 5);
    }

    #[test]
    fn a_configuration_of_the_users_is_theirs_to_raise() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        configs::write(&dir, &spec(made, 1, 1)).expect("writable");
        let path = dir.config_file("storaged-1");
        let text = std::fs::read_to_string(&path).expect("made");
        std::fs::write(&path, text.replace("target-1", "mine")).expect("writable");
        let failure = refuse_edited(&dir, &spec(made, 1, 2), &spec(made, 1, 1)).expect_err("it has one target");
        assert_eq!(failure.code(), 2);
        assert!(
            failure.to_string().contains("storaged-1.toml has targets of your own, 1: raise it there to 2"),
            "{failure}"
        );
        let more = Spec { storage: 2, ..spec(made, 2, 1) };
        refuse_edited(&dir, &more, &spec(made, 1, 1)).expect("of something else there is to be more");
        refuse_edited(&dir, &spec(made, 1, 2), &spec(made, 1, 2)).expect("it was asked for before");
        configs::write(&dir, &more).expect("writable");
        assert_eq!(metad(&dir, "metad-1").expect("readable").shards, 2);
    }

    #[test]
    fn a_service_that_never_got_a_number_has_never_joined() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        configs::write(&dir, &spec(Made::default(), 2, 2)).expect("writable");
        let none = |name: &str| never_joined(&dir, name).expect("readable");
        assert!(none("storaged-1") && none("metad-1"));
        let mut home = open(Service::Storage, &configs::target_dir(&dir, "storaged-1", 2), true).expect("new");
        assert!(none("storaged-1"), "it may have started");
        home.update(|identity| identity.target_id = Some(TargetId(3))).expect("writable");
        let mut home = open(Service::Metadata, &dir.data("metad-1"), true).expect("new");
        home.update(|identity| identity.node_id = Some(NodeId(3))).expect("writable");
        assert!(!none("storaged-1") && !none("metad-1"));
    }

    #[test]
    fn what_has_come_up_is_written_down_where_nobody_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        let spec = spec(made, 1, 2);
        configs::write(&dir, &spec).expect("writable");
        dir.make_folders().expect("makable");
        dir.save_spec(&spec).expect("writable");
        let note = |spec: &Spec| note_made(&dir, spec).expect("readable");
        let storage = [1, 2].map(|number| (Service::Storage, configs::target_dir(&dir, "storaged-1", number)));
        let metadata = (Service::Metadata, dir.data("metad-1"));
        for ((service, place), number) in storage.into_iter().chain([metadata]).zip(1..) {
            assert!(!note(&spec), "{} has no number", place.display());
            let mut home = open(service, &place, true).expect("new");
            assert!(!note(&spec), "it may have started");
            home.update(|identity| identity.target_id = Some(TargetId(number))).expect("writable");
        }
        let turn = dir.lock_growing().expect("free");
        assert!(!note(&spec), "who has the turn waits for it");
        drop(turn);
        assert!(!note(&Spec { mount: "/other".into(), ..spec.clone() }), "it was changed meanwhile");
        assert!(note(&spec));
        let all = Made { targets: 2, ..made };
        assert_eq!(dir.spec().expect("readable"), Spec { made: all, ..spec });
    }

    #[test]
    fn a_service_is_gone_when_the_map_has_nothing_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        configs::write(&dir, &spec(made, 1, 1)).expect("writable");
        let mut map = ClusterMap::empty(String::new());
        assert!(is_gone(&dir, "storaged-1", &map).expect("readable"));
        let (id, kind, uuid, alias) = (NodeId(7), ServiceKind::Storage, "u".to_owned(), "storaged-1".to_owned());
        let (state, metrics) = (NodeState::Offline, String::new());
        map.nodes.insert(id, cluster::map::Node { id, uuid, kind, alias, state, rails: Vec::new(), metrics });
        assert!(!is_gone(&dir, "storaged-1", &map).expect("readable"));
        map.nodes.get_mut(&id).expect("there").alias = "other".to_owned();
        assert!(is_gone(&dir, "storaged-1", &map).expect("readable"));
        let home = open(Service::Storage, &configs::target_dir(&dir, "storaged-1", 1), true).expect("new");
        map.nodes.get_mut(&id).expect("there").uuid.clone_from(&home.identity().node_uuid);
        assert!(!is_gone(&dir, "storaged-1", &map).expect("readable"), "by whatever name");
        map.nodes.get_mut(&id).expect("there").alias = "storaged-1".to_owned();
        map.nodes.get_mut(&id).expect("there").uuid = "another".to_owned();
        assert!(is_gone(&dir, "storaged-1", &map).expect("readable"), "one that was only named so");
    }

    /// As after `weft target delete`, whose directory was taken out of the list.
    #[test]
    fn a_list_that_has_become_shorter_is_read_by_what_the_map_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 3 };
        let place = |number| configs::target_dir(&dir, "storaged-1", number);
        let home = open(Service::Storage, &place(1), true).expect("new");
        let (mine, lost) = (dir.root().join("mine"), place(3));
        let listed = [place(1), lost.clone(), mine.clone(), place(4)];
        let mut map = ClusterMap::empty(String::new());
        let (kind, alias, metrics) = (ServiceKind::Storage, String::new(), String::new());
        let (uuid, id) = (home.identity().node_uuid.clone(), NodeId(7));
        let node = cluster::map::Node { id, uuid, kind, alias, state: NodeState::Online, rails: Vec::new(), metrics };
        map.nodes.insert(id, node);
        for (target, path) in [(1, place(1)), (3, lost.clone())] {
            let (id, uuid, path) = (TargetId(target), String::new(), path.display().to_string());
            let (state, class) = (cluster::map::TargetState::Good, cluster::map::CapacityClass::Normal);
            let target = cluster::map::Target { id, uuid, node: NodeId(7), kind, state, class, ports: vec![1], path };
            map.targets.insert(id, target);
        }
        let new = |map| new_targets(&dir, &spec(made, 1, 4), "storaged-1", &listed, map);
        assert_eq!(new(Some(&map)).expect("the map tells"), [mine.clone(), place(4)]);
        let refused = new(None).expect_err("it may be lost");
        assert_eq!(conf::exit_code(refused.as_ref()), 2);
        let text = refused.to_string();
        assert!(text.contains(&mine.display().to_string()) && text.contains("init = true"), "{text}");
        std::fs::create_dir_all(&mine).expect("makable");
        assert!(!mine.join(IDENTITY_FILE).exists() && !place(4).exists(), "nothing was made");
    }

    #[test]
    fn what_the_user_has_added_to_a_configuration_is_made_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        configs::write(&dir, &spec(made, 1, 1)).expect("writable");
        let first = configs::target_dir(&dir, "storaged-1", 1);
        drop(open(Service::Storage, &first, true).expect("new"));
        let path = dir.config_file("storaged-1");
        let text = std::fs::read_to_string(&path).expect("made");
        let first = first.display().to_string();
        let added = text.replace(&format!("\"{first}\""), &format!("\"{first}\", \"mine\""));
        assert_ne!(added, text);
        std::fs::write(&path, added).expect("writable");
        prepare(&dir, &spec(made, 1, 2), None).expect("there is room");
        drop(open(Service::Storage, &dir.root().join("mine"), false).expect("made"));
    }

    #[test]
    fn a_cluster_whose_disk_is_away_does_not_grow() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let made = Made { metadata: 1, shards: 1, storage: 1, targets: 1 };
        configs::write(&dir, &spec(made, 1, 1)).expect("writable");
        let error = prepare(&dir, &spec(made, 1, 2), None).expect_err("no target is there").to_string();
        assert!(error.contains("is a disk not mounted?"), "{error}");
    }
}
