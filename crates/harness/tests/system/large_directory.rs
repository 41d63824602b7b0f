//! One directory of very many entries: made, listed, looked at, renamed and removed; a listing begins at once however many
//! there are, and nothing grows beyond its bounds. `WEFT_TEST_ENTRIES=1000000` for a run by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::scale;
use harness::memory::highest_during;

const MIB: u64 = 1 << 20;
/// Processes that work at the same time.
const WORKERS: u64 = 4;
/// For the first entry of a listing, of however many. A page of one takes some milliseconds.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What a process may have beside what it keeps for each entry that the kernel knows.
const FIXED: u64 = 400 * MIB;
const PER_ENTRY: u64 = 300;

#[test]
fn many_entries_in_one_directory() {
    in_one_directory(&mut Cluster::start());
}

/// The threshold of splitting is passed on the way.
#[test]
fn many_entries_in_a_directory_that_is_split() {
    let mut cluster = Cluster::of(Shape { metadata: 2, shards: 2, ..Shape::default() });
    let threshold = scale("WEFT_TEST_ENTRIES", 8_000) / 4;
    cluster.set_metadata(&[("#split_above = 50000", &format!("split_above = {threshold}"))]);
    in_one_directory(&mut cluster);
}

fn in_one_directory(cluster: &mut Cluster) {
    let count = scale("WEFT_TEST_ENTRIES", 8_000);
    let folder = cluster.folder("large");
    // Its kernel knows nothing of what is made.
    let stranger = cluster.mount_again(&[]);
    let pids = cluster.pids();
    let highest = highest_during(&pids, || {
        timed("create", count, || {
            each(count, |n| drop(File::create_new(folder.join(old(n))).unwrap()));
        });
        begins_at_once(&stranger.point.join("large"));
        timed("list", count, || expect(&folder, count, old));
        timed("stat", count, || {
            each(count, |n| {
                let found = fs::symlink_metadata(folder.join(old(n))).unwrap();
                assert!(found.is_file() && found.nlink() == 1, "{}", old(n));
            });
        });
        timed("rename", count, || {
            each(count, |n| fs::rename(folder.join(old(n)), folder.join(new(n))).unwrap());
        });
        begins_at_once(&folder);
        timed("list", count, || expect(&folder, count, new));
        timed("remove", count, || {
            each(count, |n| fs::remove_file(folder.join(new(n))).unwrap());
        });
        fs::remove_dir(&folder).unwrap();
    });
    for ((name, _), bytes) in pids.iter().zip(&highest) {
        println!("{name}: {} MiB at the highest", bytes / MIB);
        let bound = FIXED + if name.starts_with("mount") { count * PER_ENTRY } else { 0 };
        assert!((1..bound).contains(bytes), "{name} has {} MiB", bytes / MIB);
    }
    assert_eq!(pids, cluster.pids(), "nothing was started again");
    cluster.assert_sound();
}

fn old(n: u64) -> String {
    format!("entry-{n}")
}

fn new(n: u64) -> String {
    format!("renamed-{n}")
}

/// All of them, some at the same time.
fn each(count: u64, act: impl Fn(u64) + Sync) {
    let act = &act;
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || (worker..count).step_by(WORKERS as usize).for_each(act));
        }
    });
}

fn begins_at_once(folder: &Path) {
    let begun = Instant::now();
    let first = fs::read_dir(folder).unwrap().next().unwrap();
    let after = begun.elapsed();
    println!("the first entry after {} us", after.as_micros());
    assert!(first.is_ok() && after < AT_ONCE, "{first:?} after {after:?}");
}

/// Exactly these names, each once.
fn expect(folder: &Path, count: u64, name: fn(u64) -> String) {
    let mut found: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut wanted: Vec<String> = (0..count).map(name).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{} of {count} names; the first that differs: {differs:?}", found.len());
}

fn timed(what: &str, count: u64, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    let seconds = begun.elapsed().as_secs_f64();
    println!("{what}: {seconds:.1} s, {:.0} a second", count as f64 / seconds);
}
