//! Who walks through a tree is given names that were asked for ahead, and never others than there are.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::Cluster;
use harness::dice::{Dice, scale, seed};
use harness::{metrics, wait};

const SOON: Duration = Duration::from_secs(20);
/// After so many listings of one thread without a question for attributes it gets names alone.
const TRIED: usize = 8;
/// At most so many are asked for ahead: three at first, and one more each time that was right.
const AHEAD: usize = 16;
/// More than the default of metad's `lease_term`.
const TERM: Duration = Duration::from_secs(11);

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes directories with a file each in `tree`; they are given in the order in which they are listed.
fn plant(tree: &Path, count: usize) -> Vec<String> {
    fs::create_dir(tree).unwrap();
    for number in 0..count {
        let directory = tree.join(format!("d{number}"));
        fs::create_dir(&directory).unwrap();
        File::create(directory.join("file")).unwrap();
    }
    fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn atime(path: &Path) -> (i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn a_walk_asks_for_a_few_directories_ahead_and_for_each_once() {
    let mut cluster = Cluster::start();
    let tree = cluster.path("tree");
    let all = plant(&tree, 60);
    // Their access times are later than all changes from here on.
    thread::sleep(Duration::from_millis(20));
    all.iter().for_each(|name| drop(names(&tree.join(name))));
    let before: Vec<_> = all.iter().map(|name| atime(&tree.join(name))).collect();

    let second = cluster.mount_again(&[]);
    let there = second.point.join("tree");
    let listings = || metrics::requests(&cluster, "metadata").get("ReadDir").copied().unwrap_or(0) as usize;
    let begun = listings();
    assert_eq!(fs::read_dir(&there).unwrap().count(), all.len());
    let root = listings() - begun;
    let read = 30;
    assert!(read > TRIED + AHEAD && all.len() > read + AHEAD);
    for name in &all[..read] {
        assert_eq!(names(&there.join(name)), BTreeSet::from(["file".to_owned()]));
    }
    wait::until("what was asked for ahead", SOON, || (listings() - begun == root + read + AHEAD).then_some(()));
    for name in &all[read..] {
        assert_eq!(names(&there.join(name)), BTreeSet::from(["file".to_owned()]));
    }
    assert_eq!(listings() - begun, root + all.len(), "each once");
    let after: Vec<_> = all.iter().map(|name| atime(&tree.join(name))).collect();
    assert!(before == after, "none was due");
}

#[test]
fn what_is_asked_for_ahead_is_not_taken_for_an_access() {
    let mut cluster = Cluster::start();
    let tree = cluster.path("tree");
    let all = plant(&tree, 40);
    let second = cluster.mount_again(&[]);
    let there = second.point.join("tree");
    fs::read_dir(&there).unwrap().for_each(drop);
    let before: Vec<_> = all.iter().map(|name| atime(&tree.join(name))).collect();
    thread::sleep(Duration::from_millis(20));
    let read = 20;
    all[..read].iter().for_each(|name| drop(names(&there.join(name))));
    thread::sleep(Duration::from_millis(200));
    for (number, name) in all.iter().enumerate() {
        let changed = atime(&tree.join(name)) > before[number];
        assert_eq!(changed, number < read, "{number}: each listing was due, and there were no others");
    }
}

/// After a page that was asked for in vain so many directories pass before another one is.
const PAUSE: usize = 64;

#[test]
fn what_was_changed_after_it_was_asked_for_is_asked_for_again() {
    let mut cluster = Cluster::start();
    let tree = cluster.path("tree");
    let changes: [fn(&Path); 4] = [
        |here| drop(File::create(here.join("made")).unwrap()),
        |here| fs::remove_file(here.join("file")).unwrap(),
        |here| fs::rename(here.join("file"), here.join("renamed")).unwrap(),
        |here| fs::rename(here.join("file"), here.parent().unwrap().join("moved away")).unwrap(),
    ];
    let expected = [&["file", "made"][..], &[], &["renamed"], &[]];
    let between = PAUSE + 2 * TRIED;
    let order = plant(&tree, (2 * changes.len() + 1) * between);
    thread::sleep(Duration::from_millis(20));
    order.iter().for_each(|name| drop(names(&tree.join(name))));
    // Of who made it all nothing has to be taken back: an own change leaves the lease on what was asked for before.
    thread::sleep(TERM);
    let second = cluster.mount_again(&[]);
    let there = second.point.join("tree");
    fs::read_dir(&there).unwrap().for_each(drop);
    let mut made = 0;
    for (place, name) in order.iter().enumerate() {
        if place == 0 || place % between != 0 {
            assert_eq!(names(&there.join(name)), BTreeSet::from(["file".to_owned()]), "{place}");
            continue;
        }
        // It has been asked for, and is here.
        thread::sleep(Duration::from_millis(100));
        let (kind, mount) = (made / 2, if made % 2 == 0 { &there } else { &tree });
        // By another thread: who asks for what it lists is given more than names.
        thread::scope(|scope| scope.spawn(|| changes[kind](&mount.join(name))).join()).unwrap();
        let found = names(&there.join(name));
        assert_eq!(found, expected[kind].iter().map(|&name| name.to_owned()).collect(), "{place}, by {mount:?}");
        made += 1;
    }
    assert_eq!(made, 2 * changes.len());
}

struct Directory {
    path: PathBuf,
    /// Who holds this changes or lists it alone.
    expected: Mutex<BTreeSet<String>>,
}

/// Whoever walks sees at each directory what is there, though it was changed a moment ago, here or elsewhere.
#[test]
fn a_walk_finds_what_was_changed_a_moment_before_it_came() {
    let mut cluster = Cluster::start();
    let tree = cluster.path("tree");
    let order = plant(&tree, 200);
    let second = cluster.mount_again(&[]);
    let mounts = [tree.clone(), second.point.join("tree")];
    let directories: Vec<Directory> = order
        .iter()
        .map(|name| Directory { path: PathBuf::from(name), expected: Mutex::new(BTreeSet::from(["file".to_owned()])) })
        .collect();
    let end = Instant::now() + Duration::from_secs(scale("WEFT_TEST_LIST_AHEAD_SECONDS", 10));
    let seed = seed();
    let at = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            let (directories, at) = (&directories, &at);
            scope.spawn(move || {
                while Instant::now() < end {
                    fs::read_dir(mount).unwrap().for_each(drop);
                    for (place, directory) in directories.iter().enumerate() {
                        at.store(place, Ordering::Relaxed);
                        let expected = directory.expected.lock().unwrap();
                        assert_eq!(names(&mount.join(&directory.path)), *expected, "{:?}", directory.path);
                    }
                }
            });
            scope.spawn(move || {
                let mut dice = Dice::new(seed + number as u64);
                while Instant::now() < end {
                    // Rarely: what was asked for in vain ends asking for a while.
                    thread::sleep(Duration::from_micros(dice.roll(200_000)));
                    // Where a walk comes soon.
                    let place = (at.load(Ordering::Relaxed) + dice.index(AHEAD + 2)) % directories.len();
                    change(&directories[place], mount, &mut dice);
                }
            });
        }
    });
    cluster.assert_sound();
}

fn change(directory: &Directory, mount: &Path, dice: &mut Dice) {
    let mut expected = directory.expected.lock().unwrap();
    let here = mount.join(&directory.path);
    let name = format!("n{}", dice.roll(4));
    if expected.remove(&name) {
        if dice.roll(2) == 0 {
            fs::remove_file(here.join(&name)).unwrap();
        } else {
            let other = format!("{name}-renamed");
            fs::rename(here.join(&name), here.join(&other)).unwrap();
            expected.insert(other);
        }
    } else {
        File::create(here.join(&name)).unwrap();
        expected.insert(name);
    }
}
