//! A slow disk is its own target's trouble: those who use the other targets of the same storage service, and of the same
//! lane, hardly notice; nor is one that hangs in the way of what is removed from other services' disks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, seed};
use harness::io_limit::IoLimit;
use harness::loop_disk::LoopDisk;
use harness::{metrics, wait};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SMALL: usize = 4096;
/// Bytes of each file that is read and written at random places.
const LONG: u64 = 32 * MIB;
/// How long each measurement lasts at least, and how many files it makes: of less the 99th of a hundred is the longest.
const MEASURED: Duration = Duration::from_secs(7);
const FILES: usize = 300;
/// One of so many measurements is to be good: a slow disk would slow them all, and something else on this machine one.
const TRIES: usize = 3;
/// For the slow disk to have more to do than it can.
const PILING_UP: Duration = Duration::from_secs(4);
/// Threads of each kind that load the slow target.
const LOADERS: usize = 6;

/// The tests of this program write to one disk as much as they can, and say how long something takes there: they take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // One that failed has left nothing that the next would meet.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool of this name with the group of the target on this disk, and a directory of the mount whose files go there
/// whole.
fn folder_on(cluster: &Cluster, name: &str, disk: &LoopDisk) -> PathBuf {
    let path = disk.point();
    let targets = cluster.json(&["target", "list"]);
    let of = targets.as_array().unwrap().iter().find(|target| target["path"] == path.to_str().unwrap());
    let group = of.unwrap()["group"].as_u64().unwrap().to_string();
    cluster.weft(&["pool", "create", name]).expect_ok();
    cluster.weft(&["pool", "assign", name, &group]).expect_ok();
    let folder = cluster.folder(name);
    let whole = ["--stripe-count", "1", "--inline-limit", "0", "--pool", name];
    cluster.weft(&[&["entry", "set", folder.to_str().unwrap()], &whole[..]].concat()).expect_ok();
    folder
}

/// Past what mounts keep, so that the storage service is asked each time.
fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// The 99th of a hundred, and the longest.
#[derive(Clone, Copy)]
struct Tail {
    count: usize,
    p99: Duration,
    longest: Duration,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times, p99 {:.1?}, longest {:.1?}", self.count, self.p99, self.longest)
    }
}

fn tail(mut times: Vec<Duration>) -> Tail {
    times.sort_unstable();
    Tail { count: times.len(), p99: times[times.len() * 99 / 100], longest: times[times.len() - 1] }
}

/// What users of the good target see.
struct Seen {
    reads: Tail,
    writes: Tail,
    files: Tail,
}

impl Seen {
    fn is_like(&self, alone: &Self) -> bool {
        let pairs = [(self.reads, alone.reads), (self.writes, alone.writes), (self.files, alone.files)];
        pairs.iter().all(|(own, alone)| own.p99 < alone.p99 * 4 + Duration::from_millis(20))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reads: {}; writes: {}; files made, synced and removed: {}", self.reads, self.writes, self.files)
    }
}

fn timed(times: &mut Vec<Duration>, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    times.push(begun.elapsed());
}

fn measure(folder: &Path, seed: u64) -> Seen {
    let file = open(&folder.join("long"));
    let mut page = vec![7; SMALL];
    let mut dice = Dice::new(seed);
    let (mut reads, mut writes, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < MEASURED || files.len() < FILES {
        for _ in 0..10 {
            let at = dice.roll(LONG / SMALL as u64) * SMALL as u64;
            timed(&mut reads, || file.read_exact_at(&mut page, at).unwrap());
            timed(&mut writes, || file.write_all_at(&page, at).unwrap());
        }
        timed(&mut files, || {
            let path = folder.join(format!("made-{round}"));
            let made = File::create(&path).unwrap();
            made.write_all_at(&page, 0).unwrap();
            made.sync_all().unwrap();
            fs::remove_file(path).unwrap();
        });
        round += 1;
    }
    Seen { reads: tail(reads), writes: tail(writes), files: tail(files) }
}

/// What is on the disk of a target is forgotten by the kernel: reads have to go there.
fn forget_cached(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            forget_cached(&entry.path());
        } else {
            let file = File::open(entry.path()).unwrap();
            file.sync_all().unwrap();
            // SAFETY: no memory is passed.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
}

/// Everything that a disk may be slow in, from many threads, until told to stop.
fn load(folder: &Path, number: usize, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice::new(seed + number as u64);
    let file = open(&folder.join("long"));
    let mut bytes = vec![7; 256 << 10];
    let mut round = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let at = dice.roll(LONG / (256 * KIB)) * 256 * KIB;
        match number % 4 {
            0 => file.write_all_at(&bytes, at).unwrap(),
            1 => file.read_exact_at(&mut bytes[..64 << 10], at).unwrap(),
            2 => {
                file.write_all_at(&bytes[..SMALL], at).unwrap();
                file.sync_data().unwrap();
            }
            _ => {
                let path = folder.join(format!("made-{number}-{round}"));
                let made = File::create(&path).unwrap();
                made.write_all_at(&bytes[..64 << 10], 0).unwrap();
                if dice.roll(2) == 0 {
                    made.sync_all().unwrap();
                }
                made.set_len(1000).unwrap();
                drop(made);
                fs::remove_file(path).unwrap();
            }
        }
        round += 1;
    }
}

/// A storage service, or more, with two targets in all, each on a disk of its own.
fn two_disks(services: u32) -> (Cluster, [LoopDisk; 2]) {
    let targets = 2 / services;
    let cluster = Cluster::of(Shape { storage: services, targets, ..Shape::default() });
    cluster.down().expect_ok();
    let disks = [1, 2].map(|number| LoopDisk::under(&cluster.dir().join(place(number, targets)), 512));
    cluster.up().expect_ok();
    cluster.wait_for_mount();
    (cluster, disks)
}

/// Where the target with this number lies, where each service has so many.
fn place(number: u32, targets: u32) -> String {
    format!("storaged-{}/target-{}", (number - 1) / targets + 1, (number - 1) % targets + 1)
}

fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

#[test]
fn what_is_removed_goes_from_other_disks_than_the_one_that_hangs() {
    let _turn = alone();
    let (cluster, disks) = two_disks(2);
    let (hung, good) = (folder_on(&cluster, "hung", &disks[0]), folder_on(&cluster, "good", &disks[1]));
    let empty = files_below(disks[1].point());
    // More than are removed at a time.
    for (folder, count) in [(&hung, 700), (&good, 20)] {
        (0..count).for_each(|number| fs::write(folder.join(number.to_string()), b"x").unwrap());
    }
    assert!(files_below(disks[1].point()) >= empty + 20);
    disks[0].freeze();
    for folder in [&hung, &good] {
        fs::remove_dir_all(folder).unwrap();
    }
    // Less than after which requests to the one that hangs are given up.
    wait::until("what was removed is gone from the good disk", Duration::from_secs(10), || {
        (files_below(disks[1].point()) <= empty).then_some(())
    });
    disks[0].thaw();
    wait::until("and then from the other one, as the metrics say", Duration::from_secs(45), || {
        (metrics::sum(&cluster, "metadata", "weft_deletions_pending", &[]) == 0.0).then_some(())
    });
    cluster.assert_sound();
    cluster.down().expect_ok();
    drop(disks);
}

/// What is known to hang is the business of helper threads: the lanes go on with other targets.
#[test]
fn a_disk_that_hangs_stops_no_other_target_of_its_service() {
    let _turn = alone();
    let (cluster, disks) = two_disks(1);
    let (hung, good) = (folder_on(&cluster, "hung", &disks[0]), folder_on(&cluster, "good", &disks[1]));
    let files = |folder: &Path| -> Vec<File> {
        let paths = (0..8).map(|number| folder.join(number.to_string()));
        paths.map(|path| File::create_new(&path).map(|_| open(&path)).unwrap()).collect()
    };
    let (stuck, free) = (files(&hung), files(&good));
    let page = vec![7; SMALL];
    for file in stuck.iter().chain(&free) {
        file.write_all_at(&page, 0).unwrap();
    }
    fs::write(hung.join("large"), vec![7; 16 * MIB as usize]).unwrap();
    disks[0].freeze();
    // The first that hangs does so elsewhere, since it takes long on any disk.
    fs::remove_file(hung.join("large")).unwrap();
    thread::sleep(Duration::from_secs(1));
    let longest = thread::scope(|scope| {
        for file in &stuck {
            let page = &page;
            scope.spawn(move || file.write_all_at(page, 0).unwrap());
        }
        thread::sleep(Duration::from_secs(1));
        let mut times = Vec::new();
        for file in &free {
            timed(&mut times, || file.write_all_at(&page, 0).unwrap());
            timed(&mut times, || file.read_exact_at(&mut page.clone(), 0).unwrap());
            // Those would wait with the others, if anything of the service waited for the disk: some 15 s later they fail.
            if times.iter().sum::<Duration>() > Duration::from_secs(5) {
                break;
            }
        }
        disks[0].thaw();
        tail(times).longest
    });
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    drop((stuck, free));
    cluster.assert_sound();
    cluster.down().expect_ok();
    drop(disks);
}

#[test]
fn a_slow_disk_in_one_target_does_not_slow_another() {
    let _turn = alone();
    let (mut cluster, disks) = two_disks(1);
    let slow_disk = disks[0].point();
    let (slow, fast) = (folder_on(&cluster, "slow", &disks[0]), folder_on(&cluster, "fast", &disks[1]));
    for folder in [&slow, &fast] {
        let file = File::create(folder.join("long")).unwrap();
        (0..LONG / MIB).for_each(|n| file.write_all_at(&[5; MIB as usize], n * MIB).unwrap());
        file.sync_all().unwrap();
    }
    forget_cached(slow_disk);
    // The kernel's requests of one mount do not wait for those of another.
    let second = cluster.mount_again(&["--write-back", "0"]);
    let fast = second.point.join(fast.file_name().unwrap());

    let seed = seed();
    let alone = measure(&fast, seed);
    let limit = IoLimit::new();
    limit.slow(slow_disk, MIB, 100);
    limit.hold(cluster.pid("storaged-1").unwrap());
    let stop = AtomicBool::new(false);
    let (is_as_before, queued) = thread::scope(|scope| {
        for number in 0..4 * LOADERS {
            let (slow, stop) = (&slow, &stop);
            scope.spawn(move || load(slow, number, seed, stop));
        }
        thread::sleep(PILING_UP);
        let queued = metrics::sum(&cluster, "storage", "weft_target_queue_depth", &[]);
        let is_as_before = (0..TRIES).any(|_| {
            let beside = measure(&fast, seed);
            eprintln!("alone: {alone}\nbeside a slow disk: {beside}");
            beside.is_like(&alone)
        });
        stop.store(true, Ordering::Relaxed);
        // So that what the threads still wait for comes to its end.
        drop(limit);
        (is_as_before, queued)
    });
    assert!(is_as_before, "slower than alone, see above");
    assert!(queued >= LOADERS as f64, "{queued} requests at most: the disk has hardly anything to do");
    wait::until("all requests are answered", Duration::from_secs(60), || {
        (metrics::sum(&cluster, "storage", "weft_target_queue_depth", &[]) == 0.0).then_some(())
    });
    cluster.assert_sound();
    cluster.down().expect_ok();
    drop(disks);
}
