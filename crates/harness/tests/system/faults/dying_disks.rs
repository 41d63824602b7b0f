//! Disks that turn read-only, fail or vanish while programs write to them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::loop_disk::LoopDisk;
use harness::run::run;
use harness::{mounts, syscall, wait};

use super::{
    SOON, assert_data_is_there, assert_refused, cluster_with_data, config_of, fill, folder_on, service, set, state_of,
};

#[test]
fn a_read_only_disk_is_named_and_harmless() {
    let cluster = cluster_with_data();
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad")] {
        let disk = LoopDisk::under(&cluster.dir().join(name), 128);
        disk.remount("ro");
        let refused = service(kind, &config_of(&cluster, name), &[]);
        assert_refused(&refused, &[name, "Read-only file system"]);
        let refused = cluster.up();
        assert_refused(&refused, &[name, "Read-only file system"]);
        assert!(cluster.pids().is_empty(), "nothing half started stays behind");
        disk.remount("rw");
        set(&config_of(&cluster, name), "reserve", "16MiB");
        cluster.up().expect_ok();
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
        // Back from the small disk.
        let folder = cluster.dir().join(name);
        run(Command::new("cp").arg("-a").arg(&folder).arg(cluster.beside("saved")), SOON).expect_ok();
        drop(disk);
        fs::remove_dir(&folder).unwrap();
        fs::rename(cluster.beside("saved"), &folder).unwrap();
    }
}

#[test]
fn a_cluster_whose_directory_turns_read_only_is_looked_at_and_stopped() {
    let cluster = cluster_with_data();
    let disk = LoopDisk::under(&cluster.dir().join("run"), 32);
    cluster.up().expect_ok();
    disk.abort();
    assert!(File::create(disk.point().join("new")).is_err_and(|error| error.raw_os_error() == Some(libc::EROFS)));
    let status = cluster.weft(&["status"]).expect_ok();
    assert!(status.stdout.contains("storaged-1"), "{status}");
    cluster.down().expect_ok();
    assert_eq!(cluster.running(), Vec::<i32>::new(), "something runs on");
    assert!(!mounts::is_mounted(&cluster.mount_point()));
}

/// Told by an error, not by a refusal: it is tried again and again.
#[test]
fn a_storage_service_whose_only_disk_has_died_is_missed_and_replaced() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    cluster.down().expect_ok();
    let disk = LoopDisk::xfs_under(&cluster.dir().join("storaged-2"), 320);
    set(&config_of(&cluster, "storaged-2"), "reserve", "16MiB");
    cluster.up().expect_ok();
    cluster.down().expect_ok();
    disk.die();
    let up = |words: &[&str]| {
        let ended = cluster.weft(&[&["up", "--detach", "--timeout", "60"][..], words].concat());
        assert_eq!(ended.code, Some(1), "{ended}");
        let said = ["storaged-2 does not start", "Input/output error", "is tried again by itself"];
        assert!(said.iter().all(|words| ended.stdout.contains(words)), "{ended}");
    };
    up(&[]);
    up(&["--storage", "3"]);
    assert!(cluster.pid("storaged-3").is_some());
    let spec = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    assert_eq!(spec.lines().filter(|line| *line == "storage = 3").count(), 2, "the new one is not made:\n{spec}");
    disk.renew();
    wait::until("the old one starts", SOON, || {
        let nodes = cluster.json(&["node", "list"]);
        let is_online = |node: &serde_json::Value| node["alias"] == "storaged-2" && node["state"] == "online";
        nodes.as_array().unwrap().iter().any(is_online).then_some(())
    });
    cluster.down().expect_ok();
}

/// Bytes of each file that is written under load.
const LEN: usize = 100_000;
/// So many files of each writer are on the disk before it breaks.
const BEFORE: usize = 10;

/// Writes files, and syncs each, until there is an error.
struct Writer {
    folder: PathBuf,
    /// Files that were acknowledged, `0..synced`.
    synced: AtomicUsize,
    stop: AtomicBool,
}

impl Writer {
    fn new(folder: &Path, name: &str) -> Self {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        Self { folder, synced: AtomicUsize::new(0), stop: AtomicBool::new(false) }
    }

    fn path(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn content(number: usize) -> Vec<u8> {
        (0..LEN).map(|at| (at * 31 + number * 7) as u8).collect()
    }

    fn run(&self) -> io::Result<()> {
        while !self.stop.load(Ordering::SeqCst) {
            let number = self.synced();
            let file = File::create(self.path(number))?;
            file.write_all_at(&Self::content(number), 0)?;
            file.sync_all()?;
            self.synced.store(number + 1, Ordering::SeqCst);
            // The disk is small.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn synced(&self) -> usize {
        self.synced.load(Ordering::SeqCst)
    }

    /// Ends its work when dropped, also where the test fails meanwhile.
    fn stop_later(&self) -> Stopping<'_> {
        Stopping(&self.stop)
    }

    fn wait_for(&self, count: usize) {
        wait::until(&format!("{count} files in {}", self.folder.display()), SOON, || {
            (self.synced() >= count).then_some(())
        });
    }

    /// All that was acknowledged is there, and right.
    fn verify(&self) {
        for number in 0..self.synced() {
            let path = self.path(number);
            let content = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(content == Self::content(number), "{} is not as it was acknowledged", path.display());
        }
    }
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// How a disk breaks, and what that looks like.
struct Breakdown {
    disk: fn(&Path) -> LoopDisk,
    happens: fn(&LoopDisk),
    /// What programs may get.
    errors: &'static [i32],
    /// Of the line in the log.
    words: &'static str,
    still_reads: bool,
}

#[test]
fn a_disk_that_turns_read_only_under_load_gives_errors_and_loses_nothing() {
    break_under_load(&Breakdown {
        disk: |place| LoopDisk::under(place, 160),
        happens: LoopDisk::abort,
        errors: &[libc::EROFS, libc::EIO],
        words: "target is read-only",
        still_reads: true,
    });
}

#[test]
fn a_disk_that_fails_under_load_gives_errors_and_loses_nothing() {
    break_under_load(&Breakdown {
        disk: |place| LoopDisk::xfs_under(place, 320),
        happens: LoopDisk::die,
        errors: &[libc::EIO],
        words: "target answers with input/output errors",
        still_reads: false,
    });
}

/// Databases and logs do so: they write over blocks that are there, and sync each.
#[test]
fn a_disk_that_fails_has_what_was_synced_block_by_block() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 64;
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let disk = LoopDisk::xfs_under(&place, 320);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let path = folder_on(&cluster, "sick", &place).join("log");
    fs::write(&path, [0; BLOCK * BLOCKS]).unwrap();
    let content = |number: usize| [number as u8, (number >> 8) as u8].repeat(BLOCK / 2);
    // Of those that were acknowledged.
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        let load = scope.spawn(|| -> io::Result<()> {
            let file = File::options().write(true).open(&path)?;
            loop {
                let number = written.load(Ordering::SeqCst);
                file.write_all_at(&content(number), (number % BLOCKS * BLOCK) as u64)?;
                file.sync_data()?;
                written.store(number + 1, Ordering::SeqCst);
            }
        });
        wait::until("many synced writes", SOON, || (written.load(Ordering::SeqCst) > 10 * BLOCKS).then_some(()));
        disk.die();
        assert_eq!(load.join().unwrap().unwrap_err().raw_os_error(), Some(libc::EIO));
    });
    mend(&cluster, &disk);
    let (seen, written) = (fs::read(&path).unwrap(), written.into_inner());
    // The one that failed may be there or not.
    for number in written - BLOCKS + 1..written {
        let at = number % BLOCKS * BLOCK;
        assert!(seen[at..at + BLOCK] == content(number), "write {number} of {written} is lost");
    }
    cluster.down().expect_ok();
}

fn break_under_load(breakdown: &Breakdown) {
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let disk = (breakdown.disk)(&place);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let sick = folder_on(&cluster, "sick", &place);
    let well = folder_on(&cluster, "well", &cluster.dir().join("storaged-1/target-1"));
    let writers = [Writer::new(&sick, "one"), Writer::new(&sick, "two")];
    let other = Writer::new(&well, "other");
    thread::scope(|scope| {
        let load: Vec<_> = writers.iter().map(|writer| scope.spawn(|| writer.run())).collect();
        let others = scope.spawn(|| other.run());
        let stopping = writers.iter().chain([&other]).map(Writer::stop_later).collect::<Vec<_>>();
        writers.iter().chain([&other]).for_each(|writer| writer.wait_for(BEFORE));
        (breakdown.happens)(&disk);
        for writer in load {
            wait::until("each writer to have its error", SOON, || writer.is_finished().then_some(()));
            let error = writer.join().unwrap().unwrap_err();
            assert!(error.raw_os_error().is_some_and(|errno| breakdown.errors.contains(&errno)), "{error}");
        }
        // The other target of the same service goes on.
        other.wait_for(other.synced() + BEFORE);
        wait::until("the target counts as bad", SOON, || (state_of(&cluster, &place) == "bad").then_some(()));
        other.wait_for(other.synced() + BEFORE);
        drop(stopping);
        others.join().unwrap().unwrap();
    });
    assert_is_told(&cluster, &place, breakdown.words);
    if breakdown.still_reads {
        writers.iter().for_each(Writer::verify);
    }
    mend(&cluster, &disk);
    writers.iter().chain([&other]).for_each(Writer::verify);
    // What could not be synced may be anything: whoever was told so makes it anew.
    for writer in &writers {
        drop(fs::remove_file(writer.path(writer.synced())));
    }
    wait::until("the target counts as good", SOON, || (state_of(&cluster, &place) == "good").then_some(()));
    fill(&sick.join("new"), 3).unwrap();
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

/// One line that names the place; and no taking it back while nothing is mended.
fn assert_is_told(cluster: &Cluster, place: &Path, words: &str) {
    let log = cluster.log("storaged-1");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("ERROR") && lines[0].contains(place.to_str().unwrap()), "{}", lines[0]);
    assert!(!log.contains("target is good again"), "{log}");
}

/// What an administrator does: stops the service, mounts the disk anew, starts it.
fn mend(cluster: &Cluster, disk: &LoopDisk) {
    cluster.freeze_supervisor();
    let old = cluster.kill("storaged-1");
    disk.renew();
    cluster.resume();
    cluster.wait_for_another("storaged-1", old);
}

#[test]
fn a_target_that_vanishes_while_it_is_used_is_told_and_comes_back_whole() {
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let disk = LoopDisk::under(&place, 160);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let before = cluster.pids();
    let sick = folder_on(&cluster, "sick", &place);
    let well = folder_on(&cluster, "well", &cluster.dir().join("storaged-1/target-1"));
    let (lost, other) = (Writer::new(&sick, "lost"), Writer::new(&well, "other"));
    thread::scope(|scope| {
        let (load, others) = (scope.spawn(|| lost.run()), scope.spawn(|| other.run()));
        let stopping = [&lost, &other].map(Writer::stop_later);
        [&lost, &other].into_iter().for_each(|writer| writer.wait_for(BEFORE));
        disk.vanish();
        wait::until("the writer to have its error", SOON, || load.is_finished().then_some(()));
        assert_eq!(load.join().unwrap().unwrap_err().raw_os_error(), Some(libc::EIO));
        other.wait_for(other.synced() + BEFORE);
        drop(stopping);
        others.join().unwrap().unwrap();
    });
    // Nothing is taken for a hole, and nothing is made in the place of what was there.
    assert_eq!(fs::read(lost.path(0)).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(fill(&sick.join("new"), 1).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    wait::until("the target counts as bad", SOON, || (state_of(&cluster, &place) == "bad").then_some(()));
    assert_is_told(&cluster, &place, "target's directory vanished: it is not served");
    // Its files can be removed as soon as it is back.
    disk.appear();
    wait::until("it is served again", SOON, || fs::read(lost.path(0)).ok());
    [&lost, &other].into_iter().for_each(Writer::verify);
    wait::until("the target counts as good", SOON, || (state_of(&cluster, &place) == "good").then_some(()));
    fill(&sick.join("new"), 3).unwrap();
    assert_eq!(cluster.pids(), before, "no service had to be started again");
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_node_starts_without_a_disk_that_is_not_mounted_and_takes_it_back() {
    start_without(&Absence {
        disk: |place| LoopDisk::under(place, 160),
        begins: LoopDisk::vanish,
        reason: "is empty: mount its disk",
        ends: LoopDisk::appear,
    });
}

#[test]
fn a_node_starts_without_a_disk_that_has_died_and_takes_it_back() {
    start_without(&Absence {
        disk: |place| LoopDisk::xfs_under(place, 320),
        begins: LoopDisk::die,
        reason: "Input/output error",
        ends: LoopDisk::renew,
    });
}

#[test]
fn a_node_starts_without_a_disk_that_hangs_and_takes_it_back() {
    // Who reads what is there waits for a writer.
    let begins = |disk: &LoopDisk| {
        fs::rename(disk.point().join("identity.toml"), disk.point().join("aside")).unwrap();
        syscall::mkfifo(&disk.point().join("identity.toml"), 0o600).unwrap();
    };
    // All who wait find nothing.
    let ends = |disk: &LoopDisk| {
        let pipe = File::options().read(true).write(true).open(disk.point().join("identity.toml")).unwrap();
        fs::rename(disk.point().join("aside"), disk.point().join("identity.toml")).unwrap();
        drop(pipe);
    };
    start_without(&Absence {
        disk: |place| LoopDisk::under(place, 160),
        begins,
        reason: "did not answer within 15 s: its disk hangs",
        ends,
    });
}

/// Why a target cannot be opened at a start, and how that passes.
struct Absence {
    disk: fn(&Path) -> LoopDisk,
    begins: fn(&LoopDisk),
    reason: &'static str,
    ends: fn(&LoopDisk),
}

fn start_without(absence: &Absence) {
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let disk = (absence.disk)(&place);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let sick = folder_on(&cluster, "sick", &place);
    let well = folder_on(&cluster, "well", &cluster.dir().join("storaged-1/target-1"));
    [&sick, &well].into_iter().for_each(|folder| fill(&folder.join("old"), 2).unwrap());
    fill(&sick.join("changed"), 1).unwrap();
    fs::write(sick.join("small"), [7; 100]).unwrap();
    cluster.freeze_supervisor();
    let old = cluster.kill("storaged-1");
    (absence.begins)(&disk);
    cluster.resume();
    cluster.wait_for_another("storaged-1", old);
    let pids = cluster.pids();

    // The others are served, and new files are made there.
    fill(&well.join("new"), 2).unwrap();
    (0..8).for_each(|number| fill(&cluster.path(&format!("new-{number}")), 1).unwrap());
    // Who needs it is told so at once, and so is who looks.
    let begin = Instant::now();
    let past_the_cache = File::options().read(true).custom_flags(libc::O_DIRECT).open(sick.join("old")).unwrap();
    assert_eq!(past_the_cache.read_at(&mut [0; 4096], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(past_the_cache);
    // One that has objects there, and one whose contents would go there from the metadata.
    for (name, length) in [("changed", 4096), ("small", 65_536)] {
        let changed = File::options().write(true).open(sick.join(name)).unwrap();
        let refused = changed.write_all_at(&vec![8; length], 0).and_then(|()| changed.sync_all());
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EIO), "{name}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(state_of(&cluster, &place), "bad");
    let status = cluster.weft(&["status"]);
    assert!(status.stdout.contains(&format!("cannot open {}", place.display())), "{status}");
    // What is there is counted, and what is away is neither lost nor gone over.
    assert!(syscall::free_bytes(&cluster.mount_point()).unwrap() > 0);
    let ended = cluster.weft(&["scrub", "--all", "--rate", "0", "--wait"]);
    assert!(ended.code != Some(0) && ended.to_string().contains("is not served"), "{ended}");
    let ended = cluster.weft(&["fsck"]);
    let named: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("out-of-reach: ")).collect();
    assert!(named.iter().any(|line| line.contains("/sick/old: ")), "{ended}");
    assert!(!named.iter().any(|line| line.contains("/well/")), "{ended}");
    assert!(ended.code == Some(1) && ended.stdout.contains(&format!("({} on node", place.display())), "{ended}");
    assert_eq!(ended.stdout.lines().filter(|line| line.contains(": /")).count(), named.len(), "nothing else: {ended}");
    let log = cluster.log("storaged-1");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("target cannot be opened")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let words = ["ERROR", place.to_str().unwrap(), absence.reason];
    assert!(words.iter().all(|word| lines[0].contains(word)), "{}", lines[0]);

    (absence.ends)(&disk);
    wait::until("it is served again", SOON, || fill(&sick.join("new"), 3).ok());
    for (folder, mib) in [(&sick, 2), (&well, 2)] {
        assert!(fs::read(folder.join("old")).unwrap() == vec![7; mib << 20]);
    }
    wait::until("the target counts as good", SOON, || (state_of(&cluster, &place) == "good").then_some(()));
    assert_eq!(cluster.pids(), pids, "no service had to be started again");
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}
