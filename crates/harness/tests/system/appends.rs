//! Records that several mounts append to one file: each is there once, whole, and where the file ended, whatever happens to
//! services and to other mounts meanwhile. `WEFT_TEST_KILLS=100` for a run by hand.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, SecondMount};
use harness::dice::{Dice, scale, seed};
use harness::{load, metrics, process, wait};

const SOON: Duration = Duration::from_secs(60);
/// Of a folder whose files lie on several targets after a few records.
const CHUNK: usize = 16 << 10;
/// Before each record: its length with this, who wrote it, and its number there.
const HEAD: usize = 24;

/// A record of `len` bytes.
fn record(writer: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![filling(writer, number); len.max(HEAD)];
    let words = [bytes.len() as u64, writer, number];
    for (at, word) in words.into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn filling(writer: u64, number: u64) -> u8 {
    (writer * 31 + number * 7) as u8 | 1
}

/// Of each writer, the numbers of its records in the order of the file, which has nothing else.
fn records(path: &Path) -> BTreeMap<u64, Vec<u64>> {
    let content = fs::read(path).unwrap();
    assert_eq!(content.len() as u64, fs::metadata(path).unwrap().len());
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut rest = &content[..];
    while !rest.is_empty() {
        let at = content.len() - rest.len();
        assert!(rest.len() >= HEAD, "a torn record at {at}");
        let word = |n: usize| u64::from_le_bytes(rest[8 * n..8 * n + 8].try_into().unwrap());
        let (len, writer, number) = (word(0) as usize, word(1), word(2));
        assert!((HEAD..=rest.len()).contains(&len) && writer < 1000, "no record at {at}: {:?}", &rest[..HEAD]);
        let (record, after) = rest.split_at(len);
        let filling = filling(writer, number);
        let wrong = record[HEAD..].iter().position(|&byte| byte != filling);
        assert_eq!(wrong, None, "record {number} of {writer} at {at}, of {len} bytes");
        found.entry(writer).or_default().push(number);
        rest = after;
    }
    found
}

/// Those of one writer are there in order, each once: all that were acknowledged, and perhaps the one after.
fn assert_all_there(found: &BTreeMap<u64, Vec<u64>>, writer: u64, acknowledged: u64, perhaps_more: bool) {
    let numbers = found.get(&writer).cloned().unwrap_or_default();
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "writer {writer}");
    let more = numbers.len() as u64 - acknowledged.min(numbers.len() as u64);
    assert!(numbers.len() as u64 >= acknowledged && more <= u64::from(perhaps_more), "writer {writer}: {more} more");
}

/// Who appends from one thread to one file.
struct Writer<'a> {
    path: PathBuf,
    number: u64,
    lengths: &'a [usize],
    acknowledged: AtomicU64,
    pause: Duration,
}

impl<'a> Writer<'a> {
    fn new(path: PathBuf, number: u64, lengths: &'a [usize]) -> Self {
        Self { path, number, lengths, acknowledged: AtomicU64::new(0), pause: Duration::ZERO }
    }

    /// Until `stop`, or for so many records, or until its mount is gone.
    fn run(&self, stop: &AtomicBool, count: u64) {
        let mut dice = Dice::new(seed() + self.number);
        let mut file = File::options().append(true).create(true).open(&self.path).unwrap();
        for number in self.acknowledged.load(Ordering::Relaxed)..count {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let longest = *dice.pick(self.lengths);
            let record = record(self.number, number, dice.index(longest) + 1);
            match file.write(&record) {
                Ok(len) => assert_eq!(len, record.len(), "a short write"),
                Err(error) if load::is_of_a_dead_mount(&error) => return,
                Err(error) => panic!("record {number} of {}: {error}", self.number),
            }
            self.acknowledged.store(number + 1, Ordering::Relaxed);
            thread::sleep(self.pause);
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    fn goes_on(&self) {
        let before = self.acknowledged();
        wait::until("more records", SOON, || (self.acknowledged() > before + 3).then_some(()));
    }
}

/// A cluster and further mounts, with a folder of small chunks.
struct Mounts {
    cluster: Cluster,
    others: Vec<SecondMount>,
}

impl Mounts {
    fn new(others: usize) -> Self {
        let mut cluster = Cluster::start();
        cluster.folder("chunks");
        cluster.weft(&["entry", "set", "/chunks", "--chunk-size", &CHUNK.to_string()]).expect_ok();
        let others = (0..others).map(|_| cluster.mount_again(&[])).collect();
        Self { cluster, others }
    }

    /// And one that does not hear what others wait for.
    fn with_a_deaf_one(mut self) -> Self {
        self.others.push(self.cluster.mount_again(&["--leases=false"]));
        self
    }

    /// The same file on each mount.
    fn paths(&self, name: &str) -> Vec<PathBuf> {
        let others = self.others.iter().map(|other| other.point.join(name));
        std::iter::once(self.cluster.path(name)).chain(others).collect()
    }
}

#[test]
fn records_of_several_mounts_are_whole_and_there_once() {
    let mounts = Mounts::new(1).with_a_deaf_one();
    // The second has chunks of 512 KiB, and records that the kernel cuts into two requests.
    for (name, lengths, count) in [("chunks/f", &[100, 3000, 3 * CHUNK][..], 60), ("f", &[50, 700_000, 1_800_000], 12)]
    {
        let paths = mounts.paths(name);
        let writers: Vec<Writer<'_>> =
            (0..6).map(|number| Writer::new(paths[number as usize % paths.len()].clone(), number, lengths)).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in &writers {
                scope.spawn(|| writer.run(&stop, count));
            }
        });
        for path in &paths {
            let found = records(path);
            writers.iter().for_each(|writer| assert_all_there(&found, writer.number, count, false));
        }
    }
    mounts.cluster.assert_sound();
}

#[test]
fn records_are_whole_and_there_once_though_services_are_killed() {
    let kills = scale("WEFT_TEST_KILLS", 4);
    let mounts = Mounts::new(1);
    let paths = mounts.paths("chunks/f");
    let lengths = [100, 3000, 2 * CHUNK];
    let writers: Vec<Writer<'_>> =
        (0..4).map(|number| Writer::new(paths[number as usize % 2].clone(), number, &lengths)).collect();
    let stop = AtomicBool::new(false);
    let mut dice = Dice::new(seed());
    thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| writer.run(&stop, u64::MAX));
        }
        for kill in 0..kills {
            writers.iter().for_each(Writer::goes_on);
            thread::sleep(Duration::from_millis(dice.roll(200)));
            let name = ["metad-1", "storaged-1"][kill as usize % 2];
            let killed = mounts.cluster.kill(name);
            mounts.cluster.wait_for_another(name, killed);
        }
        writers.iter().for_each(Writer::goes_on);
        stop.store(true, Ordering::Relaxed);
    });
    let found = records(&paths[1]);
    writers.iter().for_each(|writer| assert_all_there(&found, writer.number, writer.acknowledged(), false));
    mounts.cluster.assert_sound();
}

#[test]
fn a_mount_that_is_stopped_or_killed_holds_up_the_others_for_seconds_only() {
    let mounts = Mounts::new(1);
    let paths = mounts.paths("f");
    // Within one chunk of 512 KiB: a killed mount may leave half of a record that crosses a border.
    let writer = |path: usize, number| Writer {
        pause: Duration::from_millis(10),
        ..Writer::new(paths[path].clone(), number, &[60])
    };
    let (ours, theirs) = (writer(0, 1), writer(1, 2));
    let (stop, mount) = (AtomicBool::new(false), mounts.others[0].pid);
    thread::scope(|scope| {
        scope.spawn(|| ours.run(&stop, u64::MAX));
        scope.spawn(|| theirs.run(&stop, u64::MAX));
        for end in [process::stop, process::kill] {
            ours.goes_on();
            theirs.goes_on();
            end(mount);
            let begin = Instant::now();
            ours.goes_on();
            let took = begin.elapsed();
            // Five of them, as it is: not until the shard ends the session, which takes a minute.
            assert!(took < Duration::from_secs(30), "after {took:?}");
            // What it still had to write comes late, and finds the end where it is.
            process::signal(mount, libc::SIGCONT);
        }
        ours.goes_on();
        stop.store(true, Ordering::Relaxed);
    });
    let found = records(&paths[0]);
    assert_all_there(&found, 1, ours.acknowledged(), false);
    assert_all_there(&found, 2, theirs.acknowledged(), true);
    mounts.cluster.assert_sound();
}

#[test]
fn a_truncate_of_another_mount_leaves_no_half_record_and_no_hole() {
    let mounts = Mounts::new(2);
    let paths = mounts.paths("chunks/f");
    let lengths = [200, 3 * CHUNK];
    let writers = [Writer::new(paths[0].clone(), 0, &lengths), Writer::new(paths[1].clone(), 1, &lengths)];
    let stop = AtomicBool::new(false);
    fs::write(&paths[0], b"").unwrap();
    thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| writer.run(&stop, u64::MAX));
        }
        let begin = Instant::now();
        let mut cuts = 0;
        while begin.elapsed() < Duration::from_secs(5) {
            // Now of a file that is open, now by its name.
            if cuts % 2 == 0 {
                File::options().write(true).open(&paths[2]).unwrap().set_len(0).unwrap();
            } else {
                File::create(&paths[2]).unwrap();
            }
            cuts += 1;
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(cuts > 10, "hardly any: {cuts}");
    });
    assert!(writers.iter().all(|writer| writer.acknowledged() > 10));
    for (writer, numbers) in records(&paths[0]) {
        let first = numbers[0];
        let expected: Vec<u64> = (first..writers[writer as usize].acknowledged()).collect();
        assert_eq!(numbers, expected, "writer {writer}: what was not cut off");
    }
    mounts.cluster.assert_sound();
}

/// Neither what others write without appending, nor what they cut, escapes who has appended all the time.
#[test]
fn an_append_sees_what_others_have_finished() {
    let mounts = Mounts::new(1);
    let paths = mounts.paths("chunks/f");
    let mut ours = File::options().append(true).create(true).open(&paths[0]).unwrap();
    let mut expected = Vec::new();
    let mut dice = Dice::new(seed());
    for round in 0..60 {
        for _ in 0..=dice.roll(2) {
            let len = *dice.pick(&[1, 50, CHUNK, 2 * CHUNK + 5]);
            let data = dice.bytes(len);
            ours.write_all(&data).unwrap();
            expected.extend(data);
        }
        let theirs = File::options().write(true).open(&paths[1]).unwrap();
        match dice.roll(4) {
            0 => {
                let size = dice.index(expected.len() + 1);
                theirs.set_len(size as u64).unwrap();
                expected.truncate(size);
            }
            1 => {
                let (gap, len) = (dice.index(3 * CHUNK), dice.index(1000) + 1);
                let data = dice.bytes(len);
                theirs.write_all_at(&data, (expected.len() + gap) as u64).unwrap();
                expected.resize(expected.len() + gap, 0);
                expected.extend(data);
            }
            2 => {
                let size = expected.len() + dice.index(3 * CHUNK);
                theirs.set_len(size as u64).unwrap();
                expected.resize(size, 0);
            }
            _ => {}
        }
        let on_time = fs::read(&paths[round % 2]).unwrap();
        assert!(on_time == expected, "round {round}: {} bytes, not {}", on_time.len(), expected.len());
    }
    drop(ours);
    mounts.cluster.assert_sound();
}

#[test]
fn whatever_way_a_file_is_opened_to_append_it_appends() {
    let mounts = Mounts::new(1);
    let paths = mounts.paths("f");
    let mut ours = File::options().append(true).read(true).create(true).open(&paths[0]).unwrap();
    ours.write_all(b"one,").unwrap();
    assert_eq!((ours.stream_position().unwrap(), ours.metadata().unwrap().len()), (4, 4));
    fs::write(paths[1].with_file_name("g"), b"").unwrap();
    File::options().append(true).open(&paths[1]).unwrap().write_all(b"two,").unwrap();
    // An append goes to the end, wherever the program is or wants to be.
    ours.seek(SeekFrom::Start(1)).unwrap();
    ours.write_all(b"three,").unwrap();
    ours.write_all_at(b"four,", 2).unwrap();
    assert_eq!(ours.metadata().unwrap().len(), 19);
    let mut later = File::options().write(true).open(&paths[1]).unwrap();
    // SAFETY: fcntl touches no memory here.
    assert_eq!(unsafe { libc::fcntl(later.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) }, 0);
    later.write_all(b"five,").unwrap();
    // SAFETY: as before.
    assert_eq!(unsafe { libc::fcntl(later.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    later.seek(SeekFrom::Start(0)).unwrap();
    later.write_all(b"ONE").unwrap();
    assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "ONE,two,three,four,five,");
    ours.write_all(b"six").unwrap();
    assert_eq!(ours.metadata().unwrap().len(), 27);
    assert_eq!(ours.stream_position().unwrap(), 27, "the kernel has looked");
    mounts.cluster.assert_sound();
}

/// A record with several chunks in each object: they are written side by side, and must not overtake each other there.
#[test]
fn records_longer_than_a_stripe_leave_no_hole() {
    let mounts = Mounts::new(1);
    let root = mounts.cluster.mount_point();
    let policy = ["entry", "set", "--chunk-size", "4KiB", root.to_str().unwrap()];
    mounts.cluster.weft_alone(&policy).expect_ok();
    let paths = mounts.paths("f");
    let open = |path| File::options().append(true).create(true).open(path).unwrap();
    let mut files: Vec<File> = paths.iter().map(open).collect();
    let (mut dice, mut expected) = (Dice::new(seed()), Vec::new());
    for turn in 0..200 {
        let length = 20_000 + dice.index(60_000);
        let record = dice.bytes(length);
        files[turn % 5 % 2].write_all(&record).unwrap();
        expected.extend_from_slice(&record);
    }
    assert_eq!(files[1].metadata().unwrap().len(), expected.len() as u64);
    assert!(fs::read(&paths[1]).unwrap() == expected, "other bytes than were appended");
}

/// Once it holds the end, a mount asks nobody where that is as long as no other writes the file.
#[test]
fn who_appends_alone_only_writes() {
    let mounts = Mounts::new(1);
    let root = mounts.cluster.mount_point();
    // In the metadata there is no end to hold.
    mounts.cluster.weft_alone(&["entry", "set", "--inline-limit", "0", root.to_str().unwrap()]).expect_ok();
    let paths = mounts.paths("f");
    let requests = |service: &str, op: &str| {
        metrics::sum(&mounts.cluster, service, "weft_request_seconds_count", &[&format!("op=\"{op}\"")]) as u64
    };
    let counts = || ["GetAttr", "Lock", "Unlock"].map(|op| requests("metadata", op));
    let mut ours = File::options().append(true).create(true).open(&paths[0]).unwrap();
    ours.write_all(b"first\n").unwrap();
    let (before, written) = (counts(), requests("storage", "Write"));
    for _ in 0..100 {
        ours.write_all(b"another\n").unwrap();
    }
    assert_eq!((counts(), requests("storage", "Write") - written), (before, 100));
    // Of two who take turns, each learns where the other has left the end.
    let mut theirs = File::options().append(true).open(&paths[1]).unwrap();
    for _ in 0..10 {
        theirs.write_all(b"theirs\n").unwrap();
        ours.write_all(b"ours\n").unwrap();
    }
    assert_eq!(ours.metadata().unwrap().len(), 6 + 100 * 8 + 10 * 12);
    drop((ours, theirs));
    mounts.cluster.assert_sound();
}
