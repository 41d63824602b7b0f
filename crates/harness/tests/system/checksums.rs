//! Checksums at rest: what is flipped in stored objects is found by the next read and by `weft scrub`, no crash makes
//! anything look corrupt, and objects of a cluster without checksums get theirs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, seed};
use harness::run::LONG;
use harness::{metrics, process, wait};
use serde_json::Value;

const BLOCK: u64 = 4096;
const SOON: Duration = Duration::from_secs(60);

/// All object files below `storaged-*/target-*/NAME`.
fn files_of(cluster: &Cluster, name: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    for node in fs::read_dir(cluster.dir()).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        for target in fs::read_dir(node.path()).into_iter().flatten().flatten() {
            walk(&target.path().join(name), &mut found);
        }
    }
    found.sort();
    found
}

/// The inode and the stripe in an object's name.
fn object_of(path: &Path) -> (u64, u64) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let (inode, stripe) = name.split_once('.').unwrap();
    (u64::from_str_radix(inode, 16).unwrap(), stripe.parse().unwrap())
}

fn flip(object: &Path, dice: &mut Dice) -> u64 {
    let file = OpenOptions::new().read(true).write(true).open(object).unwrap();
    let at = dice.roll(file.metadata().unwrap().len());
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << dice.roll(8)], at).unwrap();
    at
}

fn scrub(cluster: &Cluster) -> (Value, Option<i32>) {
    let ended = cluster.weft(&["scrub", "--all", "--rate", "0", "--wait", "--json"]);
    (serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}")), ended.code)
}

fn number(report: &Value, key: &str) -> u64 {
    report["targets"].as_array().unwrap().iter().map(|target| target[key].as_u64().unwrap()).sum()
}

/// Files of many kinds below `folder`, and what is in them.
fn write_files(folder: &Path, dice: &mut Dice) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (n, len) in [10, 5000, 20_000, 70_001, 300_000, 1 << 20, 5_000_000].into_iter().enumerate() {
        let (path, data) = (folder.join(format!("file-{n}")), dice.bytes(len));
        fs::write(&path, &data).unwrap();
        files.insert(path, data);
    }
    let (path, mut data) = (folder.join("sparse"), vec![0; 3_000_000]);
    let file = File::create(&path).unwrap();
    for at in [0, 1_234_567, 2_900_000] {
        let piece = dice.bytes(10_000);
        file.write_all_at(&piece, at as u64).unwrap();
        data[at..at + piece.len()].copy_from_slice(&piece);
    }
    file.set_len(data.len() as u64).unwrap();
    file.sync_all().unwrap();
    files.insert(path, data);
    files
}

#[test]
fn every_flipped_bit_is_found_by_the_next_read_and_by_a_scrub() {
    let mut cluster = Cluster::of(Shape { storage: 2, targets: 2, ..Shape::default() });
    let mut dice = Dice::new(seed());
    let folder = cluster.folder("some");
    cluster.weft(&["entry", "set", "/some", "--chunk-size", "64KiB"]).expect_ok();
    let files = write_files(&folder, &mut dice);
    let inodes: BTreeMap<u64, PathBuf> =
        files.keys().map(|path| (fs::metadata(path).unwrap().ino(), path.clone())).collect();
    let (report, code) = scrub(&cluster);
    assert_eq!((report["corrupt"].as_u64(), code), (Some(0), Some(0)), "{report}");
    assert_eq!(number(&report, "objects") as usize, files_of(&cluster, "objects").len());
    assert!(number(&report, "bytes") > 9_000_000);

    // A service that is killed and one that is stopped make no difference.
    let killed = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", killed);
    let objects = files_of(&cluster, "objects");
    let mut flipped = BTreeSet::new();
    for object in objects.iter().filter(|object| inodes.contains_key(&object_of(object).0)).step_by(2) {
        let at = flip(object, &mut dice);
        flipped.insert((object_of(object), at / BLOCK * BLOCK));
    }
    assert!(flipped.len() >= 5, "{flipped:?}");
    // Nothing of them is in this one's cache.
    let fresh = cluster.mount_again(&[]);
    for (path, data) in &files {
        let inode = fs::metadata(path).unwrap().ino();
        let is_flipped = flipped.iter().any(|((one, _), _)| *one == inode);
        let here = fresh.point.join(path.strip_prefix(cluster.mount_point()).unwrap());
        match fs::read(&here) {
            Ok(seen) => assert!(!is_flipped && seen == *data, "{}", path.display()),
            Err(error) => assert!(is_flipped && error.raw_os_error() == Some(libc::EIO), "{}: {error}", path.display()),
        }
        // Around the corrupt blocks all is right.
        let file = File::open(&here).unwrap();
        let mut block = vec![0; BLOCK as usize];
        let wrong = (0..data.len()).step_by(BLOCK as usize).filter(|&at| {
            let len = block.len().min(data.len() - at);
            match file.read_exact_at(&mut block[..len], at as u64) {
                Ok(()) => {
                    assert!(block[..len] == data[at..at + len], "{}: wrong bytes at {at}", path.display());
                    false
                }
                Err(_) => true,
            }
        });
        let mine = flipped.iter().filter(|((one, _), _)| *one == inode).count();
        assert!((wrong.count() > 0) == (mine > 0), "{}", path.display());
    }
    let (report, code) = scrub(&cluster);
    assert_eq!(code, Some(1));
    let named: BTreeSet<((u64, u64), u64)> = report["named"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| {
            let inode = u64::from_str_radix(block["inode"].as_str().unwrap(), 16).unwrap();
            let file = block["file"].as_str().unwrap();
            assert_eq!(cluster.path(file.trim_start_matches('/')), inodes[&inode]);
            ((inode, block["stripe"].as_u64().unwrap()), block["offset"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(named, flipped, "{report}");
    assert!(metrics::sum(&cluster, "storage", "weft_corrupt_blocks_total", &[]) >= flipped.len() as f64);
    let logs = cluster.logs();
    let ((inode, stripe), offset) = flipped.first().unwrap();
    assert!(logs.contains(&format!("inode={inode:x} stripe={stripe} target=")), "{logs}");
    assert!(logs.contains(&format!("offset={offset} ")), "{logs}");
    // Written anew, all is well again; the rest of the cluster never minded.
    for (path, data) in &files {
        fs::remove_file(path).unwrap();
        fs::write(path, data).unwrap();
    }
    cluster.assert_sound();
    let left = wait::until("the objects of removed files go", SOON, || {
        let (report, _) = scrub(&cluster);
        (report["corrupt"] == 0).then_some(report)
    });
    assert_eq!(left["corrupt"], 0);
}

#[test]
fn a_cluster_without_checksums_gets_them_by_a_scrub() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let mut dice = Dice::new(seed());
    let files = write_files(&cluster.folder("old"), &mut dice);
    cluster.down().expect_ok();
    // As a release without them leaves it.
    for sums in files_of(&cluster, "sums") {
        fs::remove_file(sums).unwrap();
    }
    // Checksums of what was never made are not left lying about.
    let object = files_of(&cluster, "objects").remove(0);
    let folder = object.parent().unwrap().to_str().unwrap().replace("/objects/", "/sums/");
    fs::create_dir_all(&folder).unwrap();
    fs::write(Path::new(&folder).join(format!("{:016x}.99", object_of(&object).0)), [0; 512]).unwrap();
    cluster.up().expect_ok();
    let same = |when: &str| {
        for (path, data) in &files {
            assert!(fs::read(path).unwrap() == *data, "{when}: {}", path.display());
        }
    };
    same("after the upgrade");
    let (report, code) = scrub(&cluster);
    assert_eq!((code, report["corrupt"].as_u64()), (Some(0), Some(0)), "{report}");
    assert!(number(&report, "adopted") > 1000, "{report}");
    let (report, _) = scrub(&cluster);
    assert_eq!(number(&report, "adopted"), 0, "{report}");
    assert_eq!(files_of(&cluster, "sums").len(), files_of(&cluster, "objects").len());
    let object =
        files_of(&cluster, "objects").into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    flip(&object, &mut dice);
    assert_eq!(scrub(&cluster).1, Some(1));
}

#[test]
fn kills_under_load_make_nothing_look_corrupt() {
    /// Before each kill.
    const CALLS: u64 = 20;
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let folder = cluster.folder("load");
    let kills = harness::dice::scale("WEFT_TEST_KILLS", 6);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|n| {
                let (path, stop, done) = (folder.join(format!("file-{n}")), &stop, &done);
                scope.spawn(move || {
                    let file =
                        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
                    let mut dice = Dice::new(seed() + n);
                    for calls in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let (at, len) = (dice.roll(4 << 20), 1 + dice.roll(60_000));
                        match dice.roll(8) {
                            0 => file.set_len(at),
                            1 => file.sync_data(),
                            2 => file.read_at(&mut vec![0; len as usize], at).map(drop),
                            _ => file.write_all_at(&dice.bytes(len as usize), at),
                        }
                        .unwrap_or_else(|error| panic!("call {calls} on file {n}: {error}"));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut dice = Dice::new(seed());
        for kill in 0..kills {
            // They wait ever longer for a service that is often away. Whoever has failed shows when he is joined.
            let (begun, wanted) = (Instant::now(), (kill + 1) * CALLS);
            let go_on = || begun.elapsed() < LONG && !writers.iter().any(|writer| writer.is_finished());
            while done.load(Ordering::Relaxed) < wanted && go_on() {
                thread::sleep(Duration::from_millis(20));
            }
            thread::sleep(Duration::from_millis(200 + dice.roll(800)));
            let pid = cluster.kill("storaged-1");
            cluster.wait_for_another("storaged-1", pid);
        }
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let calls = done.load(Ordering::Relaxed);
        assert!(calls >= kills * CALLS, "hardly anything was written: {calls} calls");
    });
    let (report, code) = scrub(&cluster);
    assert_eq!((code, report["corrupt"].as_u64()), (Some(0), Some(0)), "{report}");
    assert!(!cluster.logs().contains("is corrupt"), "{}", cluster.logs());
    assert!(process::is_alive(cluster.pid("storaged-1").unwrap()));
}

#[test]
fn a_file_in_a_split_directory_is_named() {
    let cluster = Cluster::of(Shape { shards: 2, targets: 1, ..Shape::default() });
    let folder = cluster.folder("split");
    cluster.weft(&["entry", "set", "/split", "--split", "2"]).expect_ok();
    fs::write(folder.join("f"), vec![1; 100_000]).unwrap();
    let killed = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", killed);
    let objects = files_of(&cluster, "objects");
    assert_eq!(objects.len(), 1);
    flip(&objects[0], &mut Dice::new(seed()));
    let (report, code) = scrub(&cluster);
    assert_eq!((report["named"][0]["file"].as_str(), code), (Some("/split/f"), Some(1)), "{report}");
}
