//! The management service without room on its disk, and on one that turns read-only.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use harness::cluster::Cluster;
use harness::loop_disk::LoopDisk;
use harness::run::Ended;
use harness::{syscall, wait};

use super::{SOON, assert_data_is_there, assert_refused, cluster_with_data, config_of, service};

/// A cluster whose mgmtd has a disk of its own, and that knows a pool by name.
fn cluster_on_disk() -> (Cluster, LoopDisk) {
    let cluster = cluster_with_data();
    let disk = LoopDisk::under(&cluster.dir().join("mgmtd"), 64);
    cluster.up().expect_ok();
    cluster.weft(&["pool", "create", "before"]).expect_ok();
    (cluster, disk)
}

/// Everything that mgmtd has told is there again, and no number is given out twice.
fn assert_nothing_is_lost(cluster: &Cluster, nodes: &str) {
    wait::until("mgmtd answers", SOON, || (cluster.weft(&["pool", "list"]).code == Some(0)).then_some(()));
    assert_eq!(ids(cluster), nodes);
    let before = number(cluster, "before");
    let after = cluster.json(&["pool", "create", "after"])["pool"].as_u64().unwrap();
    assert!(after > before, "{after} after {before}");
    assert_data_is_there(cluster);
}

fn number(cluster: &Cluster, name: &str) -> u64 {
    let pools = cluster.json(&["pool", "list"]);
    let found = pools.as_array().unwrap().iter().find(|pool| pool["name"] == name).unwrap_or_else(|| panic!("{pools}"));
    found["id"].as_u64().unwrap()
}

/// Of all nodes and targets.
fn ids(cluster: &Cluster) -> String {
    let list = |kind: &str| -> Vec<String> {
        let list = cluster.json(&[kind, "list"]);
        list.as_array().unwrap().iter().map(|one| one["id"].to_string()).collect()
    };
    format!("{:?} {:?}", list("node"), list("target"))
}

/// Not the user's mistake, so exit code 1; one line that says who does not answer.
#[track_caller]
fn assert_fails_clearly(ended: &Ended) {
    assert_eq!(ended.code, Some(1), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("weft: ") && lines[0].contains("mgmtd"), "{ended}");
}

/// Files can be read and written: mgmtd is not on that path.
fn assert_files_go_on(cluster: &Cluster) {
    fs::write(cluster.path("meanwhile"), vec![4; 1_000_000]).unwrap();
    assert!(fs::read(cluster.path("meanwhile")).unwrap() == vec![4; 1_000_000]);
    fs::remove_file(cluster.path("meanwhile")).unwrap();
}

/// Takes all that is left.
fn fill_up(disk: &Path) {
    let mut file = File::create(disk.join("foreign")).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    let _ = file.sync_all();
    assert!(syscall::free_bytes(disk).unwrap() < 1 << 20);
}

#[test]
fn a_management_disk_that_turns_read_only_ends_mgmtd_alone() {
    let (cluster, disk) = cluster_on_disk();
    let nodes = ids(&cluster);
    let old = cluster.pid("mgmtd").unwrap();
    disk.abort();
    assert_fails_clearly(&cluster.weft(&["pool", "create", "refused"]));
    let said = wait::until("it says why it ends", SOON, || {
        cluster.log("mgmtd").lines().rfind(|line| line.contains("Read-only file system")).map(str::to_owned)
    });
    assert!(said.contains("mgmtd"), "the place is named: {said}");
    assert_files_go_on(&cluster);
    cluster.freeze_supervisor();
    assert_refused(&service("mgmtd", &config_of(&cluster, "mgmtd"), &[]), &["mgmtd", "Read-only file system"]);
    disk.renew();
    cluster.resume();
    cluster.wait_for_another("mgmtd", old);
    assert_nothing_is_lost(&cluster, &nodes);
    cluster.down().expect_ok();
}

#[test]
fn a_full_management_disk_is_named_and_a_restart_finds_everything() {
    let (cluster, _disk) = cluster_on_disk();
    let nodes = ids(&cluster);
    let place = cluster.dir().join("mgmtd");
    fill_up(&place);
    cluster.freeze_supervisor();
    let old = cluster.kill("mgmtd");
    for _ in 0..2 {
        let failed = service("mgmtd", &config_of(&cluster, "mgmtd"), &[]);
        // Room may be made: who starts it tries again.
        assert_eq!(failed.code, Some(1), "{failed}");
        assert!([place.to_str().unwrap(), "No space left on device"].iter().all(|part| failed.stderr.contains(part)));
    }
    assert_fails_clearly(&cluster.weft(&["pool", "list"]));
    assert_files_go_on(&cluster);
    fs::remove_file(place.join("foreign")).unwrap();
    cluster.resume();
    cluster.wait_for_another("mgmtd", old);
    assert_nothing_is_lost(&cluster, &nodes);
    cluster.down().expect_ok();
    // The same where all is started at once.
    fill_up(&place);
    let failed = cluster.up();
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(["mgmtd", "No space left on device"].iter().all(|part| failed.stderr.contains(part)), "{failed}");
    assert!(cluster.pids().is_empty(), "nothing half started stays behind");
    fs::remove_file(place.join("foreign")).unwrap();
    cluster.up().expect_ok();
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}
