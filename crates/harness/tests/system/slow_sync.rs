//! A metadata node whose disk takes many seconds for each sync, as one does that others write to all they can: what concerns
//! several shards takes as long, but comes to its end, and nothing is done elsewhere that the disk may not come to know.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::own_metad::OwnMetad;
use harness::{preload, wait};

/// Longer than a shard waits for another one's answers that take no sync.
const SYNC: Duration = Duration::from_secs(6);
const SOON: Duration = Duration::from_secs(120);
/// `fdatasync` and `fsync` are slow while the file `SWITCH` is there.
const SLOW_DISK: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
static void wait_long(void) {
    for (int part = 0; part < SECONDS * 100 && access("SWITCH", F_OK) == 0; part++) usleep(10000);
}
int fdatasync(int fd) { wait_long(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { wait_long(); return syscall(SYS_fsync, fd); }
"#;

/// A metadata service of `cluster` on such a disk, each sync of which takes so long at most, and the switch.
fn on_slow_disk(cluster: &Cluster, name: &str, sync: Duration) -> (OwnMetad, PathBuf) {
    let switch = cluster.beside("slow");
    let source = SLOW_DISK.replace("SWITCH", switch.to_str().unwrap());
    let source = source.replace("SECONDS", &sync.as_secs().to_string());
    let library = preload::library(switch.parent().unwrap(), "slow-disk", &source);
    cluster.freeze_supervisor();
    (OwnMetad::replace_with(cluster, name, Some(library)), switch)
}

#[test]
fn a_rename_over_shards_waits_for_a_slow_disk() {
    let cluster = Cluster::of(Shape { metadata: 2, targets: 2, ..Shape::default() });
    let folders = [0, 1].map(|shard| {
        cluster.weft(&["entry", "set", "/", "--placement", &format!("shard:{shard}")]).expect_ok();
        cluster.folder(&format!("in-{shard}"))
    });
    fs::write(folders[0].join("file"), b"contents").unwrap();
    let (metad, switch) = on_slow_disk(&cluster, &cluster.keeper(1), SYNC);
    // Its start, which syncs more than once, is over when this is done.
    fs::write(folders[1].join("other"), b"").unwrap();
    fs::write(&switch, b"").unwrap();
    let begin = Instant::now();
    let (from, to) = (folders[0].join("file"), folders[1].join("file"));
    wait::within("the rename", SOON, move || fs::rename(from, to).unwrap());
    let took = begin.elapsed();
    fs::remove_file(&switch).unwrap();
    assert!(took >= SYNC - Duration::from_secs(1), "the disk was not slow: {took:?}");
    assert_eq!(fs::read(folders[1].join("file")).unwrap(), b"contents");
    drop(metad);
}

/// A power cut takes back what is not on the metadata's disk: a file that was replaced just before has its name again, and must
/// have its contents.
#[test]
fn what_was_replaced_keeps_its_objects_until_the_disk_knows() {
    let cluster = Cluster::start();
    let (metad, switch) = on_slow_disk(&cluster, "metad-1", SOON);
    for name in ["target", "new"] {
        fs::write(cluster.path(name), vec![7; 1 << 20]).unwrap();
        fs::File::open(cluster.path(name)).unwrap().sync_all().unwrap();
    }
    let info = cluster.json(&["entry", "info", cluster.path("target").to_str().unwrap()]);
    let objects = info["stripes"].as_array().unwrap().iter().map(|stripe| stripe["place"].as_str().unwrap());
    let objects: Vec<&Path> = objects.map(Path::new).filter(|object| object.exists()).collect();
    assert!(!objects.is_empty(), "{info}");
    fs::write(&switch, b"").unwrap();
    fs::rename(cluster.path("new"), cluster.path("target")).unwrap();
    // The disk does not come to know it meanwhile.
    thread::sleep(Duration::from_secs(2));
    assert!(objects.iter().all(|object| object.exists()), "they are gone before their file is");
    fs::remove_file(&switch).unwrap();
    wait::until("they go", SOON, || objects.iter().all(|object| !object.exists()).then_some(()));
    drop(metad);
}

/// What stops a service kills one that takes 10 s: it then knows less of what is on its disk.
#[test]
fn shards_of_one_node_stop_at_the_same_time() {
    const SHARDS: u32 = 4;
    let cluster = Cluster::of(Shape { shards: SHARDS, ..Shape::default() });
    let folders = [0, 1, 2, 3].map(|shard| {
        cluster.weft(&["entry", "set", "/", "--placement", &format!("shard:{shard}")]).expect_ok();
        cluster.folder(&format!("in-{shard}"))
    });
    let (mut metad, switch) = on_slow_disk(&cluster, "metad-1", SYNC / 2);
    // Its start is over when these are there.
    folders.iter().for_each(|folder| fs::create_dir(folder.join("before")).unwrap());
    fs::write(&switch, b"").unwrap();
    folders.iter().for_each(|folder| fs::create_dir(folder.join("late")).unwrap());
    let begin = Instant::now();
    metad.terminate();
    wait::until("its end", SOON, || metad.has_ended().then_some(()));
    let took = begin.elapsed();
    fs::remove_file(&switch).unwrap();
    assert!(took >= SYNC / 2 - Duration::from_secs(1), "the disk was not slow: {took:?}");
    assert!(took < Duration::from_secs(9), "one after the other: {took:?}");
    metad.start_again();
    assert!(folders.iter().all(|folder| folder.join("late").exists()));
    drop(metad);
}
