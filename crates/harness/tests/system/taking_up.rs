//! What stands in the way of a new shard or target of a running service keeps it from nothing else: it goes on, takes
//! it up later, and ends when it is told to.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::{process, syscall, wait};

const SOON: Duration = Duration::from_secs(60);

/// An identity of the same node that mgmtd does not know yet.
fn of_another_target(identity: &str) -> String {
    let new = |line: &str| match line.split_once(" = ") {
        Some(("target_id" | "node_id", _)) => None,
        Some(("target_uuid", _)) => Some("target_uuid = \"6f1d0c1e-2d8f-4f3b-9a43-0d9b5f7f3a11\"\n".to_owned()),
        _ => Some(format!("{line}\n")),
    };
    identity.lines().filter_map(new).collect()
}

#[test]
fn a_shard_that_could_not_be_written_down_is_taken_up_at_the_next_sighup() {
    let cluster = Cluster::start();
    let first = cluster.dir().join("metad-1");
    let second = first.join("shard-2");
    // As after a first attempt that mgmtd was not there for; and nothing can be written in its identity's place.
    fs::create_dir(&second).unwrap();
    let identity = fs::read_to_string(first.join("identity.toml")).unwrap();
    fs::write(second.join("identity.toml"), of_another_target(&identity)).unwrap();
    let obstacle = second.join("identity.toml.new");
    fs::create_dir(&obstacle).unwrap();
    let file = cluster.dir().join("metad-1.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\nshards = 1\n", "\nshards = 2\n")).unwrap();

    let pid = cluster.pid("metad-1").unwrap();
    process::signal(pid, libc::SIGHUP);
    wait::until("it says so", SOON, || cluster.log("metad-1").contains("identity cannot be written").then_some(()));
    fs::remove_dir(&obstacle).unwrap();
    process::signal(pid, libc::SIGHUP);
    wait::until("the shard is there", SOON, || cluster.log("metad-1").contains("shard=1 ").then_some(()));
    assert_eq!(cluster.pid("metad-1"), Some(pid), "it goes on");
    let shards: BTreeSet<u64> = (0..40)
        .map(|number| {
            let dir = cluster.folder(&number.to_string());
            cluster.json(&["entry", "info", dir.to_str().unwrap()])["shard"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(shards, [0, 1].into());
    cluster.assert_sound();
}

/// Who opens a pipe waits for its writer, as for a disk that hangs.
#[test]
fn a_storage_service_ends_in_order_though_the_disk_of_a_new_target_hangs() {
    let cluster = Cluster::start();
    let first = cluster.dir().join("storaged-1/target-1");
    let second = cluster.dir().join("storaged-1/new");
    fs::create_dir(&second).unwrap();
    let identity = fs::read_to_string(first.join("identity.toml")).unwrap();
    fs::write(second.join("identity.toml"), of_another_target(&identity)).unwrap();
    syscall::mkfifo(&second.join("storaged.toml"), 0o600).unwrap();
    let file = cluster.dir().join("storaged-1.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\ntargets = ["), "{text}");
    let more = format!("\ntargets = [\"{}\", ", second.display());
    fs::write(&file, text.replace("\ntargets = [", &more)).unwrap();

    let pid = cluster.pid("storaged-1").unwrap();
    process::signal(pid, libc::SIGHUP);
    let hangs = || {
        fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .flatten()
            .any(|task| fs::read_to_string(task.path().join("wchan")).is_ok_and(|place| place == "wait_for_partner"))
    };
    wait::until("it waits for the disk", SOON, || hangs().then_some(()));
    cluster.freeze_supervisor();
    process::signal(pid, libc::SIGTERM);
    wait::until("it ends", SOON, || (!process::is_alive(pid)).then_some(()));
    assert!(cluster.log("storaged-1").contains("stopping"));
    fs::write(&file, text).unwrap();
    cluster.resume();
}
