//! A host of storage or metadata that loses its memory, as by a loss of power: whoever has changed something and not synced it
//! by then is told.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::cluster::Cluster;
use harness::{metrics, process, wait};

const SOON: Duration = Duration::from_secs(60);

/// Where the targets of the first storage service note how it ended.
fn records(cluster: &Cluster) -> Vec<PathBuf> {
    let targets = fs::read_dir(cluster.dir().join("storaged-1")).unwrap();
    targets.map(|target| target.unwrap().path().join("written.toml")).filter(|path| path.exists()).collect()
}

/// Kills the storage service; where `memory` is lost, it finds another boot than it knew.
fn kill_storage(cluster: &Cluster, memory: bool) {
    let old = cluster.pid("storaged-1").unwrap();
    cluster.freeze_supervisor();
    process::kill(old);
    let records = records(cluster);
    assert!(!records.is_empty(), "no target has a record");
    for path in records.iter().filter(|_| memory) {
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("epoch")).unwrap();
        fs::write(path, text.replace(line, "epoch = \"another\"")).unwrap();
    }
    cluster.resume();
    cluster.wait_for_another("storaged-1", old);
}

fn lost(outcome: io::Result<()>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(error) if error.raw_os_error() == Some(libc::EIO) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_sync_does_not_vouch_for_what_was_lost() {
    let cluster = Cluster::start();
    let large = vec![7; 3 << 20];
    // What a mount keeps back is not lost: it is written to the service that comes after.
    let through = |name| File::options().create(true).write(true).custom_flags(libc::O_DIRECT).open(cluster.path(name));
    let mut file = through("file").unwrap();
    file.write_all(&large).unwrap();
    kill_storage(&cluster, false);
    assert!(!lost(file.sync_all()), "a killed service loses nothing");

    let mut synced = File::create(cluster.path("synced")).unwrap();
    synced.write_all(&large).unwrap();
    synced.sync_all().unwrap();
    file.write_all(&large).unwrap();
    let [beside, read_only] =
        [true, false].map(|writable| File::options().read(true).write(writable).open(cluster.path("file")).unwrap());
    kill_storage(&cluster, true);
    assert!(lost(file.sync_all()), "what was not synced may be gone");
    let later = File::open(cluster.path("file")).unwrap();
    assert!(!lost(later.sync_all()), "it was opened after that was found");
    for open in [&beside, &read_only] {
        assert!(lost(open.sync_all()), "found by a sync through another descriptor");
        assert!(!lost(open.sync_all()), "each is told once");
    }
    assert!(!lost(synced.sync_all()), "what was synced is there");
    let log = cluster.log("storaged-1") + &cluster.log("mount");
    assert!(log.contains("may not be there") && log.contains("may be lost"), "{log}");

    file.write_all(&large).unwrap();
    assert!(!lost(file.sync_all()), "written anew");
    // A small change, of one object, that is gathered before it is sent.
    let mut file = File::options().write(true).open(cluster.path("file")).unwrap();
    file.write_all(b"small").unwrap();
    file.sync_data().unwrap();
    file.write_all(b"small").unwrap();
    assert!(!lost(file.sync_data()));
}

/// Kills the metadata service and does this to the directory of its database before it is started again.
fn kill_metadata(cluster: &Cluster, harm: impl FnOnce(&Path)) -> i32 {
    let old = cluster.pid("metad-1").unwrap();
    cluster.freeze_supervisor();
    process::kill(old);
    harm(&cluster.dir().join("metad-1/db"));
    cluster.resume();
    old
}

fn restart_metadata(cluster: &Cluster, harm: impl FnOnce(&Path)) {
    let old = kill_metadata(cluster, harm);
    cluster.wait_for_another("metad-1", old);
}

/// Without it nothing is known to be kept.
fn remove_note(db: &Path) {
    fs::remove_file(db.join("SYNCED")).unwrap();
}

/// Contents and attributes of small files are the shard's alone.
#[test]
fn a_sync_does_not_vouch_for_what_a_shard_may_have_lost() {
    let cluster = Cluster::start();
    let make = |name| {
        fs::write(cluster.path(name), name).unwrap();
        wait::until("it is told of", SOON, || {
            let info = cluster.json(&["entry", "info", &format!("/{name}")]);
            (info["draft"] != true && info["unsettled"] == false).then_some(())
        });
        File::open(cluster.path(name)).unwrap()
    };
    let (changed, synced) = (make("changed"), make("synced"));
    synced.sync_all().unwrap();
    restart_metadata(&cluster, |_| ());
    assert!(!lost(changed.sync_all()), "a killed service loses nothing");

    let (changed, beside) = (make("changed"), File::open(cluster.path("changed")).unwrap());
    drop(make("closed"));
    restart_metadata(&cluster, remove_note);
    assert!(lost(changed.sync_all()), "what was not synced may be gone");
    assert!(!lost(changed.sync_all()) && lost(beside.sync_all()) && !lost(beside.sync_all()), "each is told once");
    assert!(lost(File::open(cluster.path("closed")).unwrap().sync_all()));
    assert!(!lost(synced.sync_all()), "what was synced is there");
    assert!(!lost(make("changed").sync_all()), "written anew");
    assert!(cluster.log("mount").contains("has lost its memory"), "{}", cluster.log("mount"));
}

/// Ids would come again, of which storage has objects.
#[test]
fn a_shard_that_misses_what_it_had_synced_does_not_start() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), "kept").unwrap();
    // What the log has at a start goes to tables.
    restart_metadata(&cluster, |_| ());
    let lost = File::create(cluster.path("lost")).unwrap();
    lost.sync_all().unwrap();
    let inode = lost.metadata().unwrap().ino();
    drop(lost);
    kill_metadata(&cluster, |db| {
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        let files = fs::read_dir(db).unwrap().map(|entry| entry.unwrap().path());
        files.filter(is_log).for_each(|log| fs::remove_file(log).unwrap());
    });
    wait::until("it says what it misses", SOON, || {
        let log = cluster.log("metad-1");
        (log.contains("had been synced are not in the log") && log.contains("restore it from a backup")).then_some(())
    });
    // An administrator goes on without it.
    cluster.down().expect_ok();
    remove_note(&cluster.dir().join("metad-1/db"));
    cluster.up().expect_ok();
    assert_eq!(fs::read(cluster.path("kept")).unwrap(), b"kept");
    assert!(!cluster.path("lost").exists());
    let new = File::create(cluster.path("new")).unwrap();
    assert!(new.metadata().unwrap().ino() > inode, "an id does not come again");
}

/// Nobody has synced them, but a disk of the metadata has had them for long: a loss of power takes them no more.
#[test]
fn contents_that_outgrow_the_metadata_are_synced_to_the_objects() {
    let cluster = Cluster::start();
    let path = cluster.path("log");
    fs::write(&path, b"written long ago").unwrap();
    let syncs = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Sync\""]);
    let before = syncs();
    File::options().append(true).open(&path).unwrap().write_all(&vec![b'n'; 1 << 20]).unwrap();
    assert!(syncs() > before);
    assert!(fs::read(&path).unwrap().starts_with(b"written long agonnn"));
}
