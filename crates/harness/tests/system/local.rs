//! What `weft up` and its like do on a machine that they share with others: with other clusters, other users, and with each
//! other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::loop_disk::LoopDisk;
use harness::run::{Code, run, wait};
use harness::{binary, mounts, process, wait as until};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);

fn small() -> Shape {
    Shape { targets: 1, ..Shape::default() }
}

fn spawn(cluster: &Cluster, words: &[&str]) -> Child {
    let mut command = Command::new(binary::weft());
    command.args(words).arg("--dir").arg(cluster.dir()).current_dir(cluster.beside(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    process::default_signals(&mut command);
    command.spawn().unwrap()
}

#[test]
fn another_clusters_mount_is_not_taken_away() {
    let (cluster, other) = (Cluster::of(small()), Cluster::of(small()));
    let point = cluster.mount_point();
    let at = point.to_str().unwrap();
    cluster.weft_alone(&["umount", at]).expect_ok();
    other.weft(&["mount", at]).expect_ok();
    fs::write(other.path("f"), "theirs").unwrap();
    cluster.down().expect_ok();
    assert_eq!(fs::read_to_string(point.join("f")).unwrap(), "theirs");
    other.weft_alone(&["umount", at]).expect_ok();
}

#[test]
fn a_mount_that_waits_for_its_servers_is_no_dead_one() {
    let (cluster, other) = (Cluster::of(small()), Cluster::unborn(small()));
    let metad = cluster.pid("metad-1").unwrap();
    process::stop(metad);
    let refused = other.weft(&["up", "--detach", "--mount", cluster.mount_point().to_str().unwrap()]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is a mount of Weft already"), "{refused}");
    process::signal(metad, libc::SIGCONT);
    assert!(mounts::is_mounted(&cluster.mount_point()));
    fs::write(cluster.path("f"), "x").unwrap();
}

#[test]
fn two_who_start_one_cluster_at_once_have_one() {
    let cluster = Cluster::unborn(small());
    let point = cluster.mount_point();
    let words = ["up", "--detach", "--timeout", "60", "--targets", "1", "--mount", point.to_str().unwrap()];
    let mut both = [spawn(&cluster, &words), spawn(&cluster, &words)];
    for child in &mut both {
        assert_eq!(wait(child, SOON), Some(Code(Some(0))));
    }
    assert_eq!(cluster.pids().len(), 5, "{:?}", cluster.pids());
    fs::write(cluster.path("f"), "x").unwrap();
    cluster.down().expect_ok();
    // Nothing tells of processes that are gone.
    let mut left: Vec<_> =
        fs::read_dir(cluster.dir().join("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["growing", "lock"]);
}

#[test]
fn who_starts_a_cluster_that_is_being_stopped_waits_for_that() {
    let cluster = Cluster::of(small());
    let storage = cluster.pid("storaged-1").unwrap();
    process::stop(storage);
    let mut down = spawn(&cluster, &["down"]);
    let state = cluster.dir().join("run/state.json");
    let is_stopping = || fs::read_to_string(&state).is_ok_and(|state| state.contains("\"stopping\": true"));
    until::until("it is being stopped", SOON, || is_stopping().then_some(()));
    let point = cluster.mount_point();
    let mut up = spawn(&cluster, &["up", "--detach", "--timeout", "60", "--mount", point.to_str().unwrap()]);
    thread::sleep(Duration::from_secs(1));
    assert!(up.try_wait().unwrap().is_none(), "it waits");
    process::signal(storage, libc::SIGCONT);
    assert_eq!(wait(&mut down, SOON), Some(Code(Some(0))));
    assert_eq!(wait(&mut up, SOON), Some(Code(Some(0))));
    fs::write(cluster.path("f"), "x").unwrap();
}

#[test]
fn of_two_who_mount_at_one_place_one_does() {
    let cluster = Cluster::of(small());
    let point = cluster.beside("second");
    fs::create_dir(&point).unwrap();
    // Both get ready while there is nobody who could tell them of the cluster.
    let mgmtd = cluster.pid("mgmtd").unwrap();
    process::stop(mgmtd);
    let mut both = [0; 2].map(|_| spawn(&cluster, &["mount", point.to_str().unwrap()]));
    thread::sleep(Duration::from_millis(500));
    process::signal(mgmtd, libc::SIGCONT);
    let mut codes = both.each_mut().map(|child| wait(child, SOON).unwrap().0);
    codes.sort();
    assert_eq!(codes, [Some(0), Some(1)]);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = format!(" {} ", point.display());
    assert_eq!(table.lines().filter(|line| line.contains(&place)).count(), 1);
    cluster.weft_alone(&["umount", point.to_str().unwrap()]).expect_ok();
}

#[test]
fn a_start_that_is_interrupted_leaves_nothing_that_starts() {
    for delay in (8..=20).chain([80, 320]) {
        let cluster = Cluster::unborn(small());
        let point = cluster.mount_point();
        let mut up = spawn(&cluster, &["up", "--detach", "--mount", point.to_str().unwrap()]);
        thread::sleep(Duration::from_millis(delay));
        process::signal(up.id() as i32, libc::SIGINT);
        let code = wait(&mut up, SOON);
        assert!(code.is_some(), "it does not end");
        // Some were too late.
        if code != Some(Code(Some(0))) {
            thread::sleep(Duration::from_millis(500));
            assert_eq!(cluster.running(), Vec::<i32>::new(), "after {delay} ms");
        }
    }
}

#[test]
fn what_has_not_come_up_is_not_written_down_as_made() {
    let cluster = Cluster::unborn(Shape { storage: 2, targets: 1, ..Shape::default() });
    let point = cluster.mount_point();
    let words = ["up", "--detach", "--storage", "2", "--targets", "1", "--mount", point.to_str().unwrap()];
    let mut up = spawn(&cluster, &words);
    until::until("the second storage service", SOON, || {
        cluster.pid("storaged-2").inspect(|pid| process::signal(*pid, libc::SIGSTOP))
    });
    thread::sleep(Duration::from_secs(3));
    let came_up = fs::exists(cluster.dir().join("storaged-2/target-1/identity.toml")).unwrap();
    assert!(came_up || up.try_wait().unwrap().is_none(), "it is up without the second storage service");
    process::signal(cluster.pid("storaged-2").unwrap(), libc::SIGCONT);
    assert_eq!(wait(&mut up, SOON), Some(Code(Some(0))));
    let targets = cluster.json(&["target", "list"]);
    assert_eq!(targets.as_array().unwrap().iter().filter(|target| target["node_state"] == "online").count(), 3);
}

/// Its services end with it; the mount takes leave of them when they are back.
#[test]
fn a_cluster_whose_supervisor_was_killed_starts_again_at_once() {
    let cluster = Cluster::of(small());
    fs::write(cluster.path("f"), "x").unwrap();
    let mount = cluster.pid("mount").unwrap();
    process::signal(cluster.supervisor().unwrap(), libc::SIGKILL);
    // Without the time for which others keep the ports.
    let took = cluster.up().expect_ok().took;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(fs::read_to_string(cluster.path("f")).unwrap(), "x");
    until::until("the mount from before ends", SOON, || (!process::is_alive(mount)).then_some(()));
}

/// A disk that is not mounted looks like an empty directory.
#[test]
fn what_has_come_up_once_does_not_begin_empty_again() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let (place, disk) = (cluster.dir().join("storaged-1/target-2"), cluster.beside("disk"));
    fs::rename(&place, &disk).unwrap();
    fs::create_dir(&place).unwrap();
    let old = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", old);
    until::until("the other target is served", SOON, || {
        let targets = cluster.json(&["target", "list"]);
        let targets = targets.as_array().unwrap();
        assert_eq!(targets.len(), 3, "one more has begun: {targets:?}");
        targets.iter().any(|target| target["left_out"] == true).then_some(())
    });
    // Nor where the cluster is to have others beside it.
    cluster.down().expect_ok();
    let grown = cluster.weft(&["up", "--detach", "--targets", "3", "--timeout", "5"]);
    assert!(grown.code == Some(1) && grown.stderr.contains("target-2"), "{grown}");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    fs::remove_dir(&place).unwrap();
    fs::rename(&disk, &place).unwrap();
    cluster.weft(&["up", "--detach", "--targets", "3"]).expect_ok();
    assert_eq!(cluster.json(&["target", "list"]).as_array().unwrap().len(), 4);
    cluster.assert_sound();
}

/// Where it can be written no more than the first files of a cluster.
#[test]
fn a_start_on_a_full_disk_leaves_nothing_that_is_in_the_way_of_the_next() {
    let cluster = Cluster::unborn(small());
    let dir = cluster.dir();
    fs::create_dir_all(&dir).unwrap();
    let disk = LoopDisk::under(&dir, 160);
    // As mkfs makes it.
    fs::create_dir_all(dir.join("lost+found")).unwrap();
    let point = cluster.mount_point();
    let words = ["up", "--detach", "--targets", "1", "--timeout", "5", "--mount", point.to_str().unwrap()];
    let up = || cluster.weft(&words);
    for blocks in 1..12 {
        let keep = cluster.dir().join("run");
        fs::create_dir_all(&keep).unwrap();
        fs::write(keep.join("keep"), vec![1; blocks * 4096]).unwrap();
        run(Command::new("sync").arg("-f").arg(&dir), SOON).expect_ok();
        fill(&keep.join("fill"));
        fs::remove_file(keep.join("keep")).unwrap();
        let full = up();
        assert_ne!(full.code, Some(0), "{blocks} blocks: {full}");
        fs::remove_file(keep.join("fill")).unwrap();
        if fs::exists(dir.join("cluster.toml")).unwrap() {
            break;
        }
    }
    up().expect_ok();
    cluster.down().expect_ok();
    drop(disk);
}

/// Takes all room that is left.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    file.sync_all().unwrap();
}

fn assert_closed(path: &Path) {
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!(found.mode() & 0o077, 0, "{}: {:o}", path.display(), found.mode());
    if found.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| assert_closed(&entry.unwrap().path()));
    }
}

#[test]
fn other_users_read_nothing_of_what_services_keep() {
    let cluster = Cluster::of(small());
    fs::write(cluster.path("f"), "secret").unwrap();
    let dirs = ["metad-1", "storaged-1", "mgmtd"].map(|name| cluster.dir().join(name));
    dirs.iter().for_each(|dir| assert_closed(dir));
    // As an administrator has made it.
    cluster.down().expect_ok();
    fs::set_permissions(&dirs[0], fs::Permissions::from_mode(0o755)).unwrap();
    cluster.up().expect_ok();
    assert_closed(&dirs[0]);
    assert_eq!(fs::metadata(cluster.mount_point()).unwrap().mode() & 0o777, 0o755, "the root of the file system");
}

#[test]
fn a_target_that_has_forgotten_a_scrub_is_not_called_sound() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    fs::write(cluster.path("f"), vec![1; 4 << 20]).unwrap();
    let scrub = spawn(&cluster, &["scrub", "--all", "--rate", "512KiB", "--wait", "--json"]);
    let status = || cluster.weft(&["scrub", "--status", "--json"]);
    until::until("the scrub is under way", SOON, || status().stdout.contains("running").then_some(()));
    let old = cluster.kill("storaged-2");
    cluster.wait_for_another("storaged-2", old);
    let ended = scrub.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{report}");
    let states: Vec<&str> =
        report["targets"].as_array().unwrap().iter().map(|target| target["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"finished") && states.contains(&"lost"), "{report}");
    // Afterwards the others know how many were to take part.
    let ended = status();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(ended.code, Some(1), "{report}");
    assert_eq!(report["unaware"][0]["node"], "storaged-2", "{report}");
    // Who was not asked is not missed.
    let one = report["targets"][0]["target"].to_string();
    cluster.weft(&["scrub", "--target", &one, "--rate", "0", "--wait"]).expect_ok();
    let report: Value = serde_json::from_str(&status().expect_ok().stdout).unwrap();
    assert_eq!(report["unaware"][0]["node"], "storaged-2", "{report}");
}

#[test]
fn a_storage_service_that_does_not_start_is_missed_and_goes_when_it_is_deleted() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    let folder = cluster.folder("files");
    cluster.weft_alone(&["entry", "set", folder.to_str().unwrap(), "--stripe-count", "1"]).expect_ok();
    let paths: Vec<_> = (0..16).map(|number| folder.join(number.to_string())).collect();
    paths.iter().for_each(|path| fs::write(path, vec![7; 1 << 20]).unwrap());
    let targets = cluster.json(&["target", "list"]);
    let first = targets.as_array().unwrap().iter().find(|target| target["node_alias"] == "storaged-1").unwrap();
    let is_on_first = |path: &&PathBuf| {
        let info = cluster.json(&["entry", "info", path.to_str().unwrap()]);
        info["stripes"][0]["target"] == first["id"]
    };
    let readable: Vec<&PathBuf> = paths.iter().filter(is_on_first).collect();
    assert!(!readable.is_empty() && readable.len() < paths.len(), "{readable:?}");
    cluster.down().expect_ok();
    // Its only disk has died.
    fs::rename(cluster.dir().join("storaged-2"), cluster.beside("dead")).unwrap();
    let up = |words: &[&str]| cluster.weft(&[&["up", "--detach", "--timeout", "60"][..], words].concat());
    let ended = up(&[]);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.stdout.contains("storaged-2 does not start") && ended.stdout.contains("does not exist"), "{ended}");
    assert!(mounts::is_mounted(&cluster.mount_point()) && cluster.pid("storaged-1").is_some());
    readable.iter().for_each(|path| assert!(fs::read(path).unwrap() == vec![7; 1 << 20], "{}", path.display()));
    assert_eq!(up(&[]).code, Some(1), "also while it runs");

    let refused = up(&["--storage", "1"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("storaged-2 is part of the cluster"), "{refused}");
    fs::remove_dir_all(&folder).unwrap();
    until::until("its node goes", SOON, || {
        let ended = cluster.weft(&["node", "delete", "storaged-2", "--yes"]);
        assert!(ended.code == Some(0) || ended.code == Some(2), "{ended}");
        (ended.code == Some(0)).then_some(())
    });
    up(&["--storage", "1"]).expect_ok();
    until::until("it is given up", SOON, || (!cluster.names().contains(&"storaged-2".to_owned())).then_some(()));
    cluster.assert_sound();
    cluster.down().expect_ok();
    up(&["--storage", "1"]).expect_ok();
}

#[test]
fn who_does_not_answer_hides_nobodys_network() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    cluster.freeze_supervisor();
    cluster.kill("storaged-2");
    let ended = cluster.weft(&["net", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    let rows: Value = serde_json::from_str(&ended.stdout).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["error"].is_string(), row["service"] == "storaged-2", "{rows}");
    }
    assert!(rows.as_array().unwrap().len() >= 4, "{rows}");
    let text = cluster.weft(&["net"]).stdout;
    assert!(text.contains("storaged-2: ") && text.contains("storaged-1"), "{text}");
}

#[test]
fn mgmtd_is_asked_where_its_configuration_says() {
    let cluster = Cluster::of(small());
    cluster.down().expect_ok();
    let file = cluster.dir().join("mgmtd.toml");
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find(|line| line.starts_with("metrics_listen")).unwrap();
    fs::write(&file, text.replace(line, &line.replace("127.0.0.1", "127.0.0.9"))).unwrap();
    cluster.up().expect_ok();
    let endpoint = cluster.json(&["log-level", "mgmtd"])["endpoint"].clone();
    assert!(endpoint.as_str().unwrap().starts_with("127.0.0.9:"), "{endpoint}");
    assert_eq!(cluster.json(&["status"])["mgmtd_metrics"], endpoint);
}

#[test]
fn groups_that_are_not_there_keep_others_from_being_moved() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    cluster.weft(&["pool", "create", "fast"]).expect_ok();
    let targets = cluster.json(&["target", "list"]);
    let of_pool = targets.as_array().unwrap().iter().find(|target| target["pool"] == "default").unwrap();
    let refused = cluster.weft(&["pool", "assign", "fast", &of_pool["group"].to_string(), "999"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("no storage group 999"), "{refused}");
    assert_eq!(cluster.json(&["target", "list"]), targets);
}

#[test]
fn the_log_of_a_mount_in_the_background_has_a_bound() {
    let mut cluster = Cluster::of(small());
    let log = cluster.mount_again(&[]).log;
    OpenOptions::new().append(true).open(&log).unwrap().write_all(&vec![b'\n'; 17 << 20]).unwrap();
    let is_small = || (fs::metadata(&log).unwrap().len() < 1 << 20).then_some(());
    until::until("the log is set aside", SOON, is_small);
    fs::remove_file(log.with_extension("log.1")).unwrap();
}
