//! The place of one shard on this node: its target's directory, port and database, and later its thread.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::event::{Report, TargetRegistration};
use conf::identity::{Expect, Home, IDENTITY_FILE, Identity, Service};
use conf::place::Place;
use conf::{Fatal, page_cache};
use kv::rocks::{NOTE_FILE, RocksConfig, RocksKv, share_threads};
use kv::{Kept, Kv, KvError};
use tracing::warn;
use types::id::{NodeId, TargetId};

use crate::config::{Config, SHARDS_MAX};
use crate::descriptors;
use crate::shard::ShardThread;
use crate::tasks::space::{Found, look, part};

/// Name of the database inside a target's directory.
const STORE_DIR: &str = "db";
/// The port of a process that was killed stays bound for some milliseconds.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// One shard's place.
pub(crate) struct Seat {
    pub(crate) port: u16,
    /// Until the shard's thread takes it.
    pub(crate) idle: Option<(RocksKv, OwnedFd)>,
    pub(crate) thread: Option<ShardThread>,
    /// Files that its store may keep open.
    pub(crate) open_files: u16,
    /// Targets of this service on its file system, as the last reporter has counted them.
    pub(crate) sharers: Arc<AtomicU64>,
    /// The shard takes no changes, as it finds itself.
    pub(crate) refusing: Arc<AtomicBool>,
    /// Unlocked last.
    pub(crate) home: Home,
}

/// The places of this node that the configuration has after those that are `there`, in its order.
///
/// # Errors
/// What stands in the way on this host, before anybody else hears of it.
pub(crate) fn prepare(config: &Config, there: &[Seat]) -> Result<Vec<Seat>, Fatal> {
    let begin = u16::try_from(there.len()).unwrap_or(u16::MAX);
    refuse_fewer(config)?;
    // Of all that there are then. Those that run keep the files that they were given.
    let shards = usize::from(config.shards);
    share_threads(shards).map_err(|error| Fatal::failed(error.to_string()))?;
    let open_files = descriptors::for_store(config.open_files, shards);
    // The ports come before the directories: whoever gave a taken one finds untouched directories.
    let mut sockets = Vec::new();
    for index in begin..config.shards {
        let port = if config.listen.port() == 0 { 0 } else { config.listen.port().saturating_add(index) };
        let address = SocketAddr::new(config.listen.ip(), port);
        sockets.push(listen(address).map_err(|error| cannot_listen(address, &error))?);
    }
    let mut seats: Vec<Seat> = Vec::new();
    for (number, (listener, address)) in (begin + 1..).zip(sockets) {
        let dir = config.shard_dir(number);
        let first = there.first().or(seats.first()).map(|seat| seat.home.identity());
        let home = Home::open(&Expect {
            dir: &dir,
            service: Service::Metadata,
            cluster: first.map(|first| first.cluster.as_str()).filter(|cluster| !cluster.is_empty()),
            node_uuid: first.map(|first| first.node_uuid.as_str()),
            target: true,
            init: config.init,
        })?;
        let store = open_store(config, &home, open_files)?;
        let (port, idle) = (address.port(), Some((store, listener)));
        let (sharers, refusing) = (Arc::new(AtomicU64::new(1)), Arc::default());
        seats.push(Seat { port, idle, thread: None, open_files, sharers, refusing, home });
    }
    Ok(seats)
}

/// Without one of its shards a part of the namespace would be gone, and nobody would say why.
fn refuse_fewer(config: &Config) -> Result<(), Fatal> {
    let is_shard = |number: &u16| {
        let path = config.shard_dir(*number).join(IDENTITY_FILE);
        // One that cannot be read may be a shard's. One that mgmtd has never heard of holds nothing.
        path.exists() && conf::identity::read(&path).map_or(true, |found| found.target_id.is_some())
    };
    let Some(last) = (config.shards.saturating_add(1)..=SHARDS_MAX).rev().find(is_shard) else { return Ok(()) };
    Err(Fatal::usage(format!(
        "shards: {}: but {} is shard {last} of this service, and shards cannot be taken away: give at least {last}",
        config.shards,
        config.shard_dir(last).display()
    )))
}

impl Seat {
    pub(crate) fn identity(&self) -> &Identity {
        self.home.identity()
    }

    pub(crate) fn spec(&self) -> TargetRegistration {
        let known = self.home.identity();
        TargetRegistration {
            uuid: known.target_uuid.clone().unwrap_or_default(),
            id: known.target_id,
            path: self.home.dir().display().to_string(),
            ports: vec![self.port],
            report: Report::default(),
        }
    }

    /// Writes down what mgmtd has given.
    ///
    /// # Errors
    /// Where the directory is another target by its own account, or cannot be written.
    pub(crate) fn learn(&mut self, cluster: &str, node: NodeId, target: TargetId) -> Result<(), Fatal> {
        let known = self.home.identity();
        if known.cluster == cluster && known.node_id == Some(node) && known.target_id == Some(target) {
            return Ok(());
        }
        let dir = self.home.dir().display().to_string();
        if let Some(known) = known.target_id.filter(|&known| known != target) {
            return Err(Fatal::usage(format!(
                "{dir} is target {known} by its identity, but mgmtd knows it as {target}: is it a copy?"
            )));
        }
        let keep = |identity: &mut Identity| {
            cluster.clone_into(&mut identity.cluster);
            identity.node_id = Some(node);
            identity.target_id = Some(target);
        };
        self.home.update(keep).map_err(|error| Fatal::failed(format!("{dir}: the identity cannot be written: {error}")))
    }
}

/// What the heartbeats say of the places, in their order.
pub(crate) fn reporter(seats: &[&Seat]) -> control::node::Reporter {
    let device = |dir: &Path| std::fs::metadata(dir).map(|found| found.dev()).ok();
    let devices: Vec<Option<u64>> = seats.iter().map(|seat| device(seat.home.dir())).collect();
    let sharers = |dir: &Path| {
        let own = device(dir);
        devices.iter().filter(|device| **device == own).count().max(1) as u64
    };
    let reported = |seat: &Seat| {
        let sharers = sharers(seat.home.dir());
        seat.sharers.store(sharers, Ordering::Relaxed);
        let (place, refusing) = (seat.home.place().clone(), Arc::clone(&seat.refusing));
        Reported { place, refusing, empty: seat.identity().target_id.is_none(), sharers }
    };
    let all: Vec<Reported> = seats.iter().map(|seat| reported(seat)).collect();
    Box::new(move || all.iter().map(report).collect())
}

/// What is reported of one place.
struct Reported {
    place: Place,
    refusing: Arc<AtomicBool>,
    empty: bool,
    /// How many of this node are on its file system, itself counted.
    sharers: u64,
}

/// One of which nothing can be changed is ill, however its file system looks: others get what is new.
fn report(reported: &Reported) -> Report {
    match look(&reported.place) {
        Found::There(whole) => {
            let failing = reported.refusing.load(Ordering::Relaxed);
            Report { capacity: part(&whole, reported.sharers), failing, empty: reported.empty }
        }
        Found::Gone | Found::Replaced => Report { failing: true, ..Report::default() },
    }
}

pub(crate) fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Fatal {
    Fatal::usage(format!("cannot listen at {address}: {error}; is another service running there?"))
}

fn listen(address: SocketAddr) -> std::io::Result<(OwnedFd, SocketAddr)> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match ring::op::listen(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// A target that has registered once has its data: it is never begun anew.
fn open_store(config: &Config, home: &Home, open_files: u16) -> Result<RocksKv, Fatal> {
    let path = home.dir().join(STORE_DIR);
    let known = home.identity().target_id.is_some();
    if known && !path.is_dir() {
        return Err(Fatal::usage(format!(
            "{} is gone, but this target is part of a cluster: restore it, or remove the target from the cluster",
            path.display()
        )));
    }
    let rocks = RocksConfig {
        block_cache_bytes: usize::try_from(config.block_cache.0).unwrap_or(usize::MAX),
        write_buffer_bytes: usize::try_from(config.write_buffer.0).unwrap_or(usize::MAX),
        open_files_max: open_files,
        create: !known,
        grouping: Some(crate::GROUPING),
        page_cache_epoch: page_cache_epoch(home.dir()),
    };
    let store = RocksKv::open(&path, &rocks).map_err(|error| store_fatal(&path, &error))?;
    let path = path.display();
    match store.kept() {
        Kept::All => {}
        Kept::Synced => warn!(%path, "the page cache is another one than before: what was not synced may be lost"),
        Kept::Unknown => warn!(%path, "nothing tells whether what had been synced is there: ids are passed over"),
    }
    Ok(store)
}

/// Of one that cannot be looked at nothing is known to be kept.
fn page_cache_epoch(dir: &Path) -> u64 {
    std::fs::File::open(dir).map_or_else(|_| page_cache::unlike_any(), |dir| page_cache::epoch(dir.as_raw_fd()))
}

fn store_fatal(path: &Path, error: &KvError) -> Fatal {
    let path = path.display();
    match error {
        KvError::Locked(_) | KvError::Denied(_) => Fatal::usage(format!("{path}: {error}")),
        KvError::Corrupt(_) => Fatal::usage(format!("{path}: {error}; restore it from a backup, without {NOTE_FILE}")),
        KvError::NoSpace(_) => Fatal::failed(format!("{path}: {error}; make room on its disk")),
        KvError::Lost(_) => Fatal::usage(format!(
            "{path}: {error}; restore it from a backup, without {NOTE_FILE}, or remove {path}/{NOTE_FILE} to go on without them, \
             and have `weft fsck` name what is missing"
        )),
        KvError::Io(_) => Fatal::failed(format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_shard_that_takes_no_changes_is_reported_as_failing() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(IDENTITY_FILE), "").expect("written");
        let place = Place::of(dir.path()).expect("there");
        let reported = Reported { place, refusing: Arc::default(), empty: true, sharers: 1 };
        assert!(!report(&reported).failing);
        reported.refusing.store(true, Ordering::Relaxed);
        let ill = report(&reported);
        assert!(ill.failing && ill.empty && ill.capacity.total_bytes > 0);
    }

    #[test]
    fn shards_that_the_configuration_leaves_out_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = |shards: &'static str| -> Config {
            let mut flags = conf::Flags::<Config>::default();
            let dir = dir.path().display().to_string();
            for (key, value) in [("dir", &*dir), ("mgmtd", "m:1"), ("key_file", "/k"), ("shards", shards)] {
                flags.give(key, value);
            }
            conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }
                .load()
                .expect("it can be read")
        };
        let put = |number, target: &str| {
            let place = config("1").shard_dir(number);
            fs::create_dir_all(&place).expect("made");
            let text = format!("format = 1\nservice = 'metadata'\nnode_uuid = 'n'\n{target}");
            fs::write(place.join(IDENTITY_FILE), text).expect("written");
        };
        put(1, "target_id = 1");
        put(2, "target_id = 2");
        put(3, "");
        assert!(refuse_fewer(&config("2")).is_ok(), "mgmtd does not know the third");
        let refused = refuse_fewer(&config("1")).expect_err("one would be missing");
        assert_eq!(refused.code, conf::fatal::USAGE);
        assert!(refused.message.starts_with("shards: 1: ") && refused.message.contains("shard-2"), "{refused}");
        put(4, "nonsense");
        assert!(refuse_fewer(&config("2")).is_err(), "the fourth may be one");
        assert!(refuse_fewer(&config("64")).is_ok());
    }
}
