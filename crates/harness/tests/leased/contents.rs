//! Contents of files that a mount keeps under a lease: they need no server, and they are never wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, seed};
use harness::{metrics, process, syscall, wait};

const SOON: Duration = Duration::from_secs(60);
/// Bytes of a part, each of which begins with the version of what was written.
const PART: usize = 4096;
const PARTS: usize = 5;

fn stop_all_servers(cluster: &Cluster) -> Vec<i32> {
    let servers = cluster.pids().into_iter().filter(|(name, _)| !name.starts_with("mount"));
    let pids: Vec<i32> = servers.map(|(_, pid)| pid).collect();
    pids.iter().for_each(|&pid| process::stop(pid));
    pids
}

#[test]
fn what_was_read_once_needs_no_server() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    let bytes = Dice::new(seed()).bytes(60 << 10);
    fs::write(&path, &bytes).unwrap();
    let asked = || {
        let count =
            |kind, op: &str| metrics::sum(&cluster, kind, "weft_request_seconds_count", &[&format!("op=\"{op}\"")]);
        let of_names = ["Lookup", "GetAttr", "Open"].map(|op| count("metadata", op));
        (of_names, count("storage", "Read"))
    };
    // The first time says that it was read: of that the shard is told.
    wait::until("it is kept", SOON, || {
        let before = asked();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        (asked() == before).then_some(())
    });
    let stopped = stop_all_servers(&cluster);
    let again = wait::within("what is kept", SOON, move || fs::read(&path).unwrap());
    stopped.iter().for_each(|&pid| process::signal(pid, libc::SIGCONT));
    assert_eq!(again, bytes);
}

/// A file whose versions rise, and what is known of them.
struct Versioned {
    name: String,
    /// Its length in parts.
    parts: usize,
    /// Only one writes at a time.
    writing: Mutex<()>,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Versioned {
    fn new(dir: &Path, index: usize) -> Self {
        let name = format!("f{index}");
        // Some are too large to be kept.
        let parts = if index % 3 == 2 { 40 } else { PARTS };
        fs::write(dir.join(&name), content(0, parts * PART)).unwrap();
        Self { name, parts, writing: Mutex::default(), begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    fn write(&self, mounts: &[PathBuf], dice: &mut Dice) {
        let _alone = self.writing.lock().unwrap();
        let version = self.begun.load(Ordering::SeqCst) + 1;
        self.begun.store(version, Ordering::SeqCst);
        let path = mounts[dice.index(mounts.len())].join(&self.name);
        match dice.roll(4) {
            0 => fs::write(&path, content(version, self.parts * PART)).unwrap(),
            1 => {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len((self.parts * PART) as u64).unwrap();
                file.write_all_at(&content(version, self.parts * PART), 0).unwrap();
            }
            // Its end comes and goes, never below what everybody expects.
            2 => {
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                file.write_all_at(&content(version, (self.parts + 3) * PART), 0).unwrap();
                file.set_len((self.parts * PART + 10) as u64).unwrap();
            }
            _ => {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                for part in 0..self.parts {
                    file.write_all_at(&content(version, PART), (part * PART) as u64).unwrap();
                }
            }
        }
        // As programs that restore files do: times tell nobody that there is something new.
        if dice.roll(4) > 0 {
            let restored = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            File::open(&path).unwrap().set_modified(restored).unwrap();
        }
        self.ended.store(version, Ordering::SeqCst);
    }

    /// Whatever `read` gives was there at some time while it ran.
    fn check(&self, what: &str, read: impl FnOnce(&mut [u8]) -> usize) {
        let mut buffer = vec![0; self.parts * PART];
        let least = self.ended.load(Ordering::SeqCst);
        let len = read(&mut buffer);
        let most = self.begun.load(Ordering::SeqCst);
        // A writer may just have emptied it.
        assert!(len == buffer.len() || most > least, "{}, {what}: {len} bytes", self.name);
        for part in buffer[..len].chunks_exact(PART) {
            let version = u64::from_le_bytes(part[..8].try_into().unwrap());
            // What was cut and not yet written reads as zero.
            let is_cut = version == 0 && most > least;
            assert!((least..=most).contains(&version) || is_cut, "{}, {what}: {version}, {least}..={most}", self.name);
        }
    }
}

fn content(version: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![b'x'; len];
    bytes.chunks_exact_mut(PART).for_each(|part| part[..8].copy_from_slice(&version.to_le_bytes()));
    bytes
}

fn read_fully(mut file: &File, buffer: &mut [u8]) -> usize {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]).unwrap() {
            0 => break,
            count => len += count,
        }
    }
    len
}

/// Some write through any mount, many read through all, anew and through what they have open.
fn readers_see_each_write_that_has_ended(cluster: &mut Cluster, time: Duration) {
    let seconds = [cluster.mount_again(&[]), cluster.mount_again(&[])];
    let mounts = [cluster.mount_point(), seconds[0].point.clone(), seconds[1].point.clone()];
    let files: Arc<Vec<_>> = Arc::new((0..6).map(|index| Versioned::new(&mounts[0], index)).collect());
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = Vec::new();
    for number in 0..6_u64 {
        let (files, stop, reads) = (Arc::clone(&files), Arc::clone(&stop), Arc::clone(&reads));
        let mount = mounts[number as usize % mounts.len()].clone();
        threads.push(thread::spawn(move || {
            let mut dice = Dice::new(seed() + number);
            let mut open: Vec<File> = files.iter().map(|file| File::open(mount.join(&file.name)).unwrap()).collect();
            while !stop.load(Ordering::Relaxed) {
                let index = dice.index(files.len());
                let file = &files[index];
                match dice.roll(5) {
                    0 => file
                        .check("read anew", |buffer| read_fully(&File::open(mount.join(&file.name)).unwrap(), buffer)),
                    1 => open[index] = File::open(mount.join(&file.name)).unwrap(),
                    _ => file.check("read through what is open", |buffer| open[index].read_at(buffer, 0).unwrap()),
                }
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let mut dice = Dice::new(seed());
    let (end, mut writes) = (Instant::now() + time, 0_u64);
    while Instant::now() < end {
        // Often none for so long that leases are given again, which a recall delays by a second.
        if dice.roll(6) == 0 {
            thread::sleep(Duration::from_millis(dice.roll(1800)));
        }
        files[dice.index(files.len())].write(&mounts, &mut dice);
        writes += 1;
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads > writes && writes > 10, "{reads} reads, {writes} writes");
    cluster.assert_sound();
}

#[test]
fn readers_see_each_write() {
    let mut cluster = Cluster::start();
    readers_see_each_write_that_has_ended(&mut cluster, Duration::from_secs(8));
}

#[test]
fn readers_see_each_write_where_terms_end_all_the_time() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("100ms");
    readers_see_each_write_that_has_ended(&mut cluster, Duration::from_secs(8));
}

#[test]
fn readers_see_each_write_through_several_shards() {
    let mut cluster = Cluster::of(Shape { metadata: 2, shards: 4, ..Shape::default() });
    readers_see_each_write_that_has_ended(&mut cluster, Duration::from_secs(8));
}

#[test]
fn a_write_through_the_same_mount_shows_at_once_to_who_had_it_open() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    fs::write(&path, content(0, PARTS * PART)).unwrap();
    let reader = File::open(&path).unwrap();
    let version = |at: u64| {
        let mut bytes = [0; 8];
        reader.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    for round in 1..50 {
        // By now what was written is settled, and what is read from here on is kept.
        thread::sleep(Duration::from_millis(10));
        fs::metadata(&path).unwrap();
        assert_eq!((version(0), version(PART as u64)), (round - 1, round - 1));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        let looks = |expected: u64| round % 2 == 0 || version(PART as u64) == expected;
        assert!(looks(round - 1), "round {round}");
        writer.write_all_at(&content(round, PARTS * PART), 0).unwrap();
        assert!(looks(round), "round {round}");
        drop(writer);
        assert_eq!(version(2 * PART as u64), round);
    }
    let len = || fs::metadata(&path).unwrap().len();
    // By its name, while it is open for reading alone.
    let truncate = |len: u64| OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
    truncate(100);
    let mut bytes = vec![1; 200];
    assert_eq!((reader.read_at(&mut bytes, 0).unwrap(), len()), (100, 100));
    truncate(150);
    assert_eq!((reader.read_at(&mut bytes, 0).unwrap(), len()), (150, 150));
    assert!(bytes[100..150].iter().all(|&byte| byte == 0));
}

/// Reads files through one mount, waits, removes one through that and one through another: both go.
fn read_files_go_when_they_are_removed(cluster: &mut Cluster, wait: Duration) {
    let second = cluster.mount_again(&[]);
    for (index, remover) in [cluster.mount_point(), second.point].into_iter().enumerate() {
        let name = format!("f{index}");
        fs::write(cluster.path(&name), vec![7; 4 << 20]).unwrap();
        for _ in 0..3 {
            assert_eq!(fs::read(cluster.path(&name)).unwrap().len(), 4 << 20);
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(wait);
        fs::remove_file(remover.join(&name)).unwrap();
        let all_gone = || (cluster.json(&["fsck"])["inodes"].as_u64() == Some(1)).then_some(());
        wait::until("nothing is left of it", SOON, all_gone);
    }
    cluster.assert_sound();
}

#[test]
fn a_file_that_was_read_and_removed_frees_its_space() {
    read_files_go_when_they_are_removed(&mut Cluster::start(), Duration::ZERO);
}

/// Nobody is told of a removal who has no lease any more.
#[test]
fn a_file_that_was_read_does_not_stay_open_without_its_lease() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("500ms");
    read_files_go_when_they_are_removed(&mut cluster, Duration::from_secs(1));
}

/// Opens of the mount of which the kernel has told no close, which it does after `close` has returned; those that failed too.
fn not_closed(endpoint: &str) -> f64 {
    let count = |op: &str| metrics::sum_of(endpoint, "weft_fuse_seconds_count", &[&format!("op=\"{op}\"")]);
    let closed = count("release");
    count("open") + count("create") - closed
}

fn wait_for_closes(endpoint: &str, before: f64) {
    wait::until("the kernel has told of each close", SOON, || (not_closed(endpoint) <= before).then_some(()));
}

fn endpoint(cluster: &Cluster, mount: &Path) -> String {
    cluster.json(&["log-level", mount.to_str().unwrap()])["endpoint"].as_str().unwrap().to_owned()
}

/// Makes files, uses each through another mount with `used`, removes it, and looks for it there by its handle.
fn removed_files_are_not_opened_by_their_handles(used: impl Fn(u32, &Path, &Path)) {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let endpoint = endpoint(&cluster, &second.point);
    let mount = File::open(&second.point).unwrap();
    for number in 0..40 {
        let before = not_closed(&endpoint);
        let name = format!("f{number}");
        let (here, there) = (cluster.path(&name), second.point.join(&name));
        used(number, &here, &there);
        // The kernel goes on knowing the inode.
        let _pinned = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&there).unwrap();
        let handle = syscall::name_to_handle(&there).unwrap();
        wait_for_closes(&endpoint, before);
        fs::remove_file(&here).unwrap();
        let error = syscall::open_by_handle(&mount, &handle).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{number}");
    }
    cluster.assert_sound();
}

/// A file that was read stays open at the shard for a while; that keeps it from nobody's removal.
#[test]
fn a_removed_file_is_not_opened_by_its_handle_though_it_was_read_just_now() {
    removed_files_are_not_opened_by_their_handles(|_, here, there| {
        fs::write(here, b"content").unwrap();
        assert_eq!(fs::read(there).unwrap(), b"content");
        // The first close tells the access time. The second one need not be told.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(fs::read(there).unwrap(), b"content");
    });
}

/// Neither is one whose close has yet to be told to the shard, because it was read, or written, just now.
#[test]
fn a_removed_file_is_not_opened_by_its_handle_before_the_shard_hears_of_its_close() {
    removed_files_are_not_opened_by_their_handles(|number, here, there| {
        // Some have objects.
        let content = vec![1; if number.is_multiple_of(3) { 1 << 20 } else { 10 }];
        if number.is_multiple_of(2) {
            fs::write(here, &content).unwrap();
            assert_eq!(fs::read(there).unwrap(), content);
        } else {
            fs::write(there, &content).unwrap();
            OpenOptions::new().append(true).open(there).unwrap().write_all(b"more").unwrap();
        }
    });
}

/// Whether this thread was woken whenever it was to be: else who renews leases may have had no CPU either.
fn sleeps_steadily(time: Duration) -> bool {
    let (begun, mut steady) = (Instant::now(), true);
    while begun.elapsed() < time {
        let slept = Instant::now();
        thread::sleep(Duration::from_millis(50));
        steady &= slept.elapsed() < Duration::from_secs(1);
    }
    steady
}

/// Also where the first read changes its access time, and where nobody reads it for a while.
#[test]
fn what_is_read_now_and_then_is_asked_for_once() {
    // Renewed when half of it is over: so that a machine without time for that for two seconds and more does no harm.
    const TERM: Duration = Duration::from_secs(8);
    let mut cluster = Cluster::start();
    cluster.set_lease_term("8s");
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.path("f"), second.point.join("f"));
    let requests = || {
        let count = |service, op: &str| {
            metrics::sum(&cluster, service, "weft_request_seconds_count", &[&format!("op=\"{op}\"")]) as u64
        };
        [count("metadata", "Open"), count("storage", "Read")]
    };
    let asks_for = |bytes: &[u8]| {
        let before = requests();
        assert!(fs::read(&there).unwrap() == bytes);
        let after = requests();
        [after[0] - before[0], after[1] - before[1]]
    };
    // A mount is given leases from when it listens for their recall.
    fs::write(&here, [0; 20_000]).unwrap();
    wait::until("it is kept", SOON, || (asks_for(&[0; 20_000]) == [0, 0]).then_some(()));
    fs::write(&here, [1; 20_000]).unwrap();
    // For a second after it was taken back there is no lease.
    thread::sleep(Duration::from_secs(3));
    let begun = SystemTime::now();
    assert_eq!(asks_for(&[1; 20_000]), [1, 1]);
    assert_eq!(asks_for(&[1; 20_000]), [0, 0]);
    for attempt in 1.. {
        let steady = sleeps_steadily(2 * TERM);
        let asked = asks_for(&[1; 20_000]);
        if asked == [0, 0] {
            break;
        }
        assert!(!steady && attempt < 5, "it was asked for: {asked:?}");
        wait::until("it is kept again", SOON, || (asks_for(&[1; 20_000]) == [0, 0]).then_some(()));
    }
    let accessed = || fs::metadata(&here).unwrap().accessed().unwrap();
    assert!(accessed() >= begun - Duration::from_millis(20), "the other mount knows of the first read");
    fs::write(&here, [2; 20_000]).unwrap();
    assert!(asks_for(&[2; 20_000])[1] > 0, "it was taken back");
}

/// Small reads of a large file, one after the other, are answered from longer ones; and never with what was.
#[test]
fn who_reads_on_is_read_ahead_of_and_sees_each_change() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.path("f"), second.point.join("f"));
    let mut expected: Vec<u8> = (0..4_000_000u32).map(|at| (at / 4096) as u8 ^ at as u8).collect();
    fs::write(&here, &expected).unwrap();
    // Only who has a lease is read ahead of.
    cluster.wait_until_settled("/f");
    cluster.wait_for_leases(&there);
    let requests = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Read\""]);
    let before = requests();
    let reader = File::open(&there).unwrap();
    let mut piece = [0; 4096];
    for (number, wanted) in expected.chunks(4096).enumerate() {
        reader.read_exact_at(&mut piece[..wanted.len()], number as u64 * 4096).unwrap();
        assert!(piece[..wanted.len()] == *wanted, "piece {number}");
    }
    assert_eq!(reader.read_at(&mut piece, expected.len() as u64).unwrap(), 0);
    let asked = requests() - before;
    assert!(asked < 100.0, "{asked} requests for {} reads", expected.len() / 4096);
    // Each change is seen by the next read, wherever that is.
    let writer = File::options().write(true).open(&here).unwrap();
    for (number, piece) in expected.chunks_mut(4096).take(100).enumerate() {
        if number % 7 == 6 {
            // The lease comes back after a while.
            thread::sleep(Duration::from_millis(if number % 49 == 48 { 1200 } else { 0 }));
            writer.write_all_at(b"changed", number as u64 * 4096 + 10).unwrap();
            piece[10..17].copy_from_slice(b"changed");
        }
        let mut seen = [0; 4096];
        reader.read_exact_at(&mut seen, number as u64 * 4096).unwrap();
        assert!(seen == *piece, "piece {number} after a change");
    }
    drop(writer);
    let mut seen = [0; 4096];
    for number in 0..20 {
        reader.read_exact_at(&mut seen, number * 4096).unwrap();
    }
    fs::write(&here, b"short").unwrap();
    assert_eq!(reader.read_at(&mut seen, 20 * 4096).unwrap(), 0, "what was read ahead is gone");
    assert_eq!(reader.read_at(&mut seen, 0).unwrap(), 5);
}

/// Who opened the file while it was being written has no lease at first, and all leases end: it is asked for another one.
#[test]
fn who_reads_for_long_is_read_ahead_of_again_and_again() {
    const PIECES: u64 = 6000;
    const TERM: Duration = Duration::from_secs(2);
    let mut cluster = Cluster::start();
    cluster.set_lease_term("2s");
    let second = cluster.mount_again(&[]);
    let expected = Dice::new(seed()).bytes(PIECES as usize * 4096);
    fs::write(cluster.path("f"), &expected).unwrap();
    let requests = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Read\""]);
    let writer = File::options().write(true).open(cluster.path("f")).unwrap();
    writer.write_all_at(&expected[..10], 0).unwrap();
    let reader = File::open(second.point.join("f")).unwrap();
    let read = |pieces: Range<u64>| {
        let (before, mut seen) = (requests(), [0; 4096]);
        for number in pieces {
            reader.read_exact_at(&mut seen, number * 4096).unwrap();
            assert!(seen == expected[number as usize * 4096..][..4096], "piece {number}");
        }
        requests() - before
    };
    assert_eq!(read(0..100), 100.0, "there is a writer");
    drop(writer);
    let mut next = 100;
    let mut read_on = || {
        let begin = next;
        next += 50;
        assert!(next <= PIECES, "is not read ahead of");
        read(begin..next)
    };
    wait::until("it is read ahead of", SOON, || (read_on() < 10.0).then_some(()));
    // Who does not read in the last quarter of a lease does not renew it, though it be the machine that has no time for that.
    let (begun, mut last) = (Instant::now(), Instant::now());
    while begun.elapsed() < 2 * TERM {
        let asked = read_on();
        let reads_on = last.elapsed() < TERM / 8;
        assert!(
            asked < 10.0 || !reads_on,
            "{asked} requests for 50 reads, {:?} after the first lease",
            begun.elapsed()
        );
        last = Instant::now();
        thread::sleep(TERM / 20);
    }
}

/// From here on this thread runs on one CPU, if it may.
fn move_to(cpu: usize) {
    // SAFETY: the set is a live local of the length that is told, and zeros are an empty one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// The kernel gives each read to the loop of the CPU that it comes from: what one loop has asked for is there for all of them.
#[test]
fn a_reader_that_moves_from_cpu_to_cpu_reads_nothing_twice() {
    const LEN: usize = 256 << 10;
    const PIECES: usize = 160;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let expected = Dice::new(seed()).bytes(PIECES * LEN);
    fs::write(cluster.path("f"), &expected).unwrap();
    let bytes = || metrics::sum(&cluster, "storage", "weft_read_bytes_total", &[]);
    let requests = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Read\""]);
    let path = second.point.join("f");
    let cpus = thread::available_parallelism().unwrap().get();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = vec![0; LEN];
            // Whoever opens it before its writer is done with it is given no lease.
            wait::until("it is read ahead of", SOON, || {
                let (reader, before, asked) = (File::open(&path).unwrap(), bytes(), requests());
                for (number, piece) in expected.chunks(LEN).enumerate() {
                    if number % 8 == 0 {
                        move_to(number / 8 % cpus);
                    }
                    reader.read_exact_at(&mut seen, (number * LEN) as u64).unwrap();
                    assert!(seen == piece, "piece {number}");
                }
                let read = bytes() - before;
                assert!(read < (expected.len() + (1 << 20)) as f64, "{read} bytes");
                (requests() - asked < 3.0 * PIECES as f64 / 4.0).then_some(())
            });
        });
    });
}

/// None of them reads what follows the piece before, all of them together do.
#[test]
fn processes_that_read_pieces_in_turns_share_what_is_read_ahead() {
    const LEN: usize = 47_008;
    const PIECES: usize = 1200;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let expected = Dice::new(seed()).bytes(PIECES * LEN);
    fs::write(cluster.path("f"), &expected).unwrap();
    let requests = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Read\""]);
    wait::until("few requests", SOON, || {
        let before = requests();
        thread::scope(|scope| {
            for reader in 0..4 {
                let (path, expected) = (second.point.join("f"), &expected);
                scope.spawn(move || {
                    let (file, mut seen) = (File::open(path).unwrap(), vec![0; LEN]);
                    for (number, piece) in expected.chunks(LEN).enumerate().skip(reader).step_by(4) {
                        file.read_exact_at(&mut seen, (number * LEN) as u64).unwrap();
                        assert!(seen == piece, "piece {number}");
                    }
                });
            }
        });
        // Only who has a lease is read ahead of.
        (requests() - before < PIECES as f64 / 3.0).then_some(())
    });
}

/// What follows is asked for before the program comes for it; and never given with what was.
#[test]
fn who_reads_on_in_long_pieces_is_read_ahead_of_and_sees_each_change() {
    const LEN: usize = 400_000;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.path("f"), second.point.join("f"));
    let mut expected: Vec<u8> = (0..40 * LEN as u32).map(|at| (at / 4096) as u8 ^ at as u8).collect();
    fs::write(&here, &expected).unwrap();
    let bytes = || metrics::sum(&cluster, "storage", "weft_read_bytes_total", &[]);
    let mut seen = vec![0; LEN];
    let mut read = |reader: &File, number: usize, expected: &[u8]| {
        reader.read_exact_at(&mut seen, (number * LEN) as u64).unwrap();
        assert!(seen == expected[number * LEN..][..LEN], "piece {number}");
    };
    // Whoever opens it before its writer is done with it is given no lease.
    let reader = wait::until("more is asked for than is read", SOON, || {
        let (reader, before) = (File::open(&there).unwrap(), bytes());
        (0..4).for_each(|number| read(&reader, number, &expected));
        thread::sleep(Duration::from_millis(100));
        (bytes() - before > 6.0 * LEN as f64).then_some(reader)
    });
    for number in 4..38 {
        if number % 8 == 0 {
            // In what was asked for by now.
            let changed = (number + 1) * LEN + 77;
            let writer = File::options().write(true).open(&here).unwrap();
            writer.write_all_at(b"changed", changed as u64).unwrap();
            expected[changed..][..7].copy_from_slice(b"changed");
            drop(writer);
        }
        read(&reader, number, &expected);
        if number % 8 == 1 {
            // The lease comes back after a while.
            thread::sleep(Duration::from_millis(1200));
        }
    }
    // What was cut away while it was kept is gone.
    thread::sleep(Duration::from_millis(1200));
    (30..34).for_each(|number| read(&reader, number, &expected));
    let cut = 34 * LEN + 1000;
    File::options().write(true).open(&here).unwrap().set_len(cut as u64).unwrap();
    let mut rest = vec![0; LEN];
    assert_eq!(reader.read_at(&mut rest, (34 * LEN) as u64).unwrap(), 1000);
    assert!(rest[..1000] == expected[34 * LEN..cut]);
    assert_eq!(reader.read_at(&mut rest, (35 * LEN) as u64).unwrap(), 0);
}
