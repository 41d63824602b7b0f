//! Files with their contents in the metadata, on real mounts: they are one with all other files, whatever happens while
//! they grow out of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, seed};
use harness::syscall::{self, Mapping};
use harness::{metrics, process, wait};

const SOON: Duration = Duration::from_secs(60);

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Where the contents of a file are.
fn is_inline(cluster: &Cluster, path: &str) -> bool {
    let info = cluster.json(&["entry", "info", path]);
    let stripes = info["stripes"].as_array().unwrap().len();
    assert_eq!(info["inline_limit"].is_u64(), stripes == 0, "{info}");
    stripes == 0
}

fn storage_services(cluster: &Cluster) -> Vec<i32> {
    let services = cluster.pids().into_iter().filter(|(name, _)| name.starts_with("storaged"));
    services.map(|(_, pid)| pid).collect()
}

#[test]
fn small_files_need_no_storage_service() {
    let cluster = Cluster::start();
    let small = cluster.path("small");
    fs::write(cluster.path("large"), vec![1; 5000]).unwrap();
    let stopped = storage_services(&cluster);
    stopped.iter().for_each(|&pid| process::stop(pid));
    let path = small.clone();
    let used = wait::within("a small file is used", Duration::from_secs(20), move || {
        fs::write(&path, vec![7; 4096]).unwrap();
        let file = both(&path);
        file.write_all_at(b"abc", 100).unwrap();
        file.sync_all().unwrap();
        file.set_len(103).unwrap();
        fs::rename(&path, path.with_extension("moved")).unwrap();
        let read = fs::read(path.with_extension("moved")).unwrap();
        fs::remove_file(path.with_extension("moved")).unwrap();
        fs::write(&path, b"again").unwrap();
        read
    });
    stopped.iter().for_each(|&pid| process::signal(pid, libc::SIGCONT));
    assert_eq!(used, [&[7; 100][..], b"abc"].concat());
    assert!(is_inline(&cluster, "/small") && !is_inline(&cluster, "/large"));
    assert_eq!(fs::metadata(&small).unwrap().blocks(), 1);
    let report = cluster.json(&["fsck"]);
    assert_eq!((report["inline_files"].as_u64(), report["inline_bytes"].as_u64()), (Some(1), Some(5)), "{report}");
    // The whole of it came back.
    cluster.down().expect_ok();
    cluster.up().expect_ok();
    cluster.wait_for_mount();
    assert_eq!(fs::read(&small).unwrap(), b"again");
    cluster.assert_sound();
}

#[test]
fn an_open_brings_the_contents() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]).point;
    let name = |number: usize| format!("f{number}");
    for number in 0..30 {
        fs::write(cluster.path(&name(number)), vec![number as u8; 4000]).unwrap();
    }
    let count =
        |kind: &str, op: &str| metrics::sum(&cluster, kind, "weft_request_seconds_count", &[&format!("op=\"{op}\"")]);
    let counts = || [count("metadata", "Open"), count("metadata", "ReadInline"), count("storage", "Read")];
    let before = counts();
    for number in 0..30 {
        assert_eq!(fs::read(second.join(name(number))).unwrap(), vec![number as u8; 4000]);
    }
    let after = counts();
    assert!((after[0] - before[0]) >= 30.0 && after[1..] == before[1..], "{before:?} {after:?}");
}

/// The length of the mdtest-hard benchmark's files.
const SMALL: usize = 3901;
/// A mount tells of a new file that is open for half a second; who measures it comes somewhat later.
const TOLD_EARLY: Duration = Duration::from_millis(400);
/// So many files are counted at a time.
const FILES: usize = 40;

/// The requests that all services have answered, by operation; those without anybody who waits for them left away.
fn requests(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut counts = metrics::requests(cluster, "metadata");
    for (operation, count) in metrics::requests(cluster, "storage") {
        *counts.entry(operation).or_default() += count;
    }
    // Recalls are answered when there is one, and a close, or that the file was read, by the way: the test below shows that
    // nobody waits for it. Each loop of a mount opens its session when it has something to do for the first time.
    let by_the_way = ["Recalls", "Close", "WasRead", "Renew", "Ping", "SessionOpen"];
    counts.retain(|operation, _| !by_the_way.contains(&operation.as_str()));
    counts
}

/// Those for `work`. Who closes a file waits for no `Settle`: so it is counted when all that is `expected` was answered, and
/// nothing more comes.
fn requests_of(cluster: &Cluster, expected: &BTreeMap<String, u64>, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let begin = Instant::now();
    let at_rest = || {
        wait::until("nobody asks any more", SOON, || {
            let once = requests(cluster);
            thread::sleep(Duration::from_millis(100));
            (requests(cluster) == once).then_some(once)
        })
    };
    let before = at_rest();
    work();
    loop {
        let mut asked = at_rest();
        for (operation, count) in &mut asked {
            *count -= before.get(operation).copied().unwrap_or(0);
        }
        asked.retain(|_, count| *count > 0);
        let is_all = expected.iter().all(|(operation, count)| asked.get(operation) >= Some(count));
        if is_all || begin.elapsed() > SOON {
            return asked;
        }
    }
}

fn times(operations: &[&str]) -> BTreeMap<String, u64> {
    operations.iter().map(|operation| ((*operation).to_owned(), FILES as u64)).collect()
}

#[test]
fn a_small_file_is_made_in_two_requests_and_read_in_one() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]).point;
    let content = |number: usize| vec![number as u8 + 1; SMALL];
    let (expected, mut attempts) = (times(&["Create", "Settle"]), 0);
    let name = wait::until("files are made as fast as they should be", SOON, || {
        attempts += 1;
        let name = format!("d{attempts}");
        let folder = cluster.folder(&name);
        // What a mount looks at once for a while, such as the root, is no part of it. That no other mount looks at the
        // directory is: its mount has to ask about a directory that it cannot keep.
        fs::write(folder.join("first"), content(0)).unwrap();
        let mut longest = Duration::ZERO;
        let made = requests_of(&cluster, &expected, || {
            for number in 0..FILES {
                let begin = Instant::now();
                fs::write(folder.join(number.to_string()), content(number)).unwrap();
                longest = longest.max(begin.elapsed());
            }
        });
        // Of a file that is not closed soon a mount tells more than once.
        assert!(made == expected || longest > TOLD_EARLY, "{made:?}");
        (made == expected).then_some(name)
    });
    // Its name has been looked up, as `ls -l` does: what is left is opening, reading and closing it.
    let there = second.join(&name);
    for entry in fs::read_dir(&there).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().len(), SMALL as u64);
    }
    let expected = times(&["Open"]);
    let read = requests_of(&cluster, &expected, || {
        for number in 0..FILES {
            assert_eq!(fs::read(there.join(number.to_string())).unwrap(), content(number));
        }
    });
    assert_eq!(read, expected);
    assert!((0..FILES).all(|number| is_inline(&cluster, &format!("/{name}/{number}"))));
}

/// With the services stopped, each system call shows whether it waits for one.
#[test]
fn only_the_requests_of_a_small_file_that_count_are_waited_for() {
    const PROMPT: Duration = Duration::from_secs(4);
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]).point;
    let path = cluster.folder("d").join("f");
    let services: Vec<i32> =
        cluster.pids().into_iter().filter(|(name, _)| name.contains("d-1")).map(|(_, pid)| pid).collect();
    assert_eq!(services.len(), 2, "metadata and storage");
    let while_stopped = |what: &str, work: Box<dyn FnOnce() + Send>| {
        services.iter().for_each(|&pid| process::stop(pid));
        wait::within(what, PROMPT, work);
        services.iter().for_each(|&pid| process::signal(pid, libc::SIGCONT));
    };
    let file = Arc::new(File::create(&path).unwrap());
    let writer = Arc::clone(&file);
    while_stopped("a write to a new file", Box::new(move || writer.write_all_at(&[7; SMALL], 0).unwrap()));
    file.sync_all().unwrap();
    let file = Arc::into_inner(file).unwrap();
    while_stopped("close after a write", Box::new(move || syscall::close(file).unwrap()));
    assert_eq!(fs::metadata(second.join("d/f")).unwrap().len(), SMALL as u64);
    let file = File::open(second.join("d/f")).unwrap();
    let read = move || {
        let mut content = vec![0; SMALL + 1];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), SMALL);
        assert_eq!(content[..SMALL], [7; SMALL]);
        syscall::close(file).unwrap();
    };
    while_stopped("read and close", Box::new(read));
}

#[test]
fn each_directory_has_its_limit() {
    let cluster = Cluster::start();
    for (name, limit, inside, outside) in
        [("none", "0", 0, 1), ("most", "64KiB", 65_536, 65_537), ("odd", "1000", 1000, 1001)]
    {
        let folder = cluster.folder(name);
        cluster.weft(&["entry", "set", &format!("/{name}"), "--inline-limit", limit]).expect_ok();
        fs::create_dir(folder.join("sub")).unwrap();
        for (file, size) in [("in", inside), ("out", outside)] {
            fs::write(folder.join("sub").join(file), vec![3; size]).unwrap();
            assert_eq!(fs::read(folder.join("sub").join(file)).unwrap(), vec![3; size]);
        }
        let at = |file: &str| is_inline(&cluster, &format!("/{name}/sub/{file}"));
        assert!(at("in") == (limit != "0") && !at("out"), "{name}");
    }
    let refused = cluster.weft(&["entry", "set", "/none", "--inline-limit", "65KiB"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    let shown = cluster.weft(&["entry", "info", "/most"]).expect_ok().stdout;
    assert!(shown.contains("in the metadata up to 64"), "{shown}");
    let shown = cluster.weft(&["entry", "info", "/odd/sub/in"]).expect_ok().stdout;
    assert!(shown.contains("in the metadata"), "{shown}");
    cluster.assert_sound();
}

/// One file on several mounts, and what it must be.
struct Twin {
    /// The same file, through each mount.
    files: Vec<File>,
    paths: Vec<PathBuf>,
    expected: Vec<u8>,
    dice: Dice,
}

impl Twin {
    fn new(mounts: &[PathBuf], name: &str, seed: u64) -> Self {
        let paths: Vec<PathBuf> = mounts.iter().map(|mount| mount.join(name)).collect();
        let files = paths.iter().map(|path| both(path)).collect();
        Self { files, paths, expected: Vec::new(), dice: Dice::new(seed) }
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.expected.resize(self.expected.len().max(end), 0);
        self.expected[offset..end].copy_from_slice(bytes);
    }

    /// One operation through any mount; `reach` is about how far it goes.
    fn step(&mut self, reach: u64) {
        let at = self.dice.index(self.files.len());
        let (offset, length) = (self.dice.roll(reach) as usize, self.dice.roll(reach / 4) as usize + 1);
        match self.dice.roll(14) {
            0 => {
                self.files[at].set_len(offset as u64).unwrap();
                self.expected.resize(offset, 0);
            }
            1 => {
                let bytes = self.dice.bytes(length);
                OpenOptions::new().append(true).open(&self.paths[at]).unwrap().write_all(&bytes).unwrap();
                self.expected.extend_from_slice(&bytes);
            }
            2 => {
                fs::write(&self.paths[at], b"anew").unwrap();
                self.expected = b"anew".to_vec();
            }
            3 => {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                syscall::fallocate(&self.files[at], punch, offset as u64, length as u64).unwrap();
                let len = self.expected.len();
                self.expected[offset.min(len)..(offset + length).min(len)].fill(0);
            }
            // Through one mount alone: what is mapped goes back in whole pages, over what others wrote beside it.
            4 if !self.expected.is_empty() && self.files.len() == 1 => {
                let mut mapped = Mapping::new(&self.files[at], self.expected.len()).unwrap();
                let begin = offset % self.expected.len();
                let end = (begin + length).min(self.expected.len());
                let bytes = self.dice.bytes(end - begin);
                mapped.write(begin, &bytes);
                mapped.sync().unwrap();
                self.put(begin, &bytes);
            }
            5 if !self.expected.is_empty() => {
                let begin = offset % self.expected.len();
                let length = length.min(self.expected.len() - begin);
                let to = self.expected.len();
                // Within one mount. Between two, the kernel copies from its own pages, which may be old (README).
                let file = &self.files[at];
                let count = syscall::copy_range((file, begin as u64), (file, to as u64), length).unwrap();
                let bytes = self.expected[begin..begin + count].to_vec();
                self.put(to, &bytes);
            }
            6 => self.files[at].sync_all().unwrap(),
            7 => self.files[at] = both(&self.paths[at]),
            _ => {
                let bytes = self.dice.bytes(length);
                self.files[at].write_all_at(&bytes, offset as u64).unwrap();
                self.put(offset, &bytes);
            }
        }
    }

    fn check(&mut self) {
        let at = self.dice.index(self.files.len());
        let (len, expected) = (self.files[at].metadata().unwrap().len(), self.expected.len());
        assert_eq!(len, expected as u64, "through mount {at}");
        let mut bytes = vec![0; expected + 10];
        let count = self.files[at].read_at(&mut bytes, 0).unwrap();
        assert!(count == expected && bytes[..count] == self.expected, "through mount {at}");
        if self.dice.roll(3) == 0 {
            assert!(fs::read(&self.paths[at]).unwrap() == self.expected, "opened anew through mount {at}");
        }
    }
}

fn random_steps(cluster: &Cluster, mounts: &[PathBuf], steps: usize) {
    for (name, limit) in [("small", "1KiB"), ("default", "4KiB"), ("most", "64KiB")] {
        fs::create_dir(mounts[0].join(name)).unwrap();
        cluster.weft(&["entry", "set", &format!("/{name}"), "--inline-limit", limit]).expect_ok();
    }
    let seed = seed();
    for round in 0..6 {
        for (folder, reach) in [("small", 1100), ("default", 4400), ("most", 70_000)] {
            let mut twin = Twin::new(mounts, &format!("{folder}/f{round}"), seed + round);
            for number in 0..steps {
                // It begins well within the limit.
                twin.step(if number < steps / 2 { reach / 8 } else { reach });
                twin.check();
            }
        }
    }
    assert!(metrics::sum(cluster, "metadata", "weft_inline_files_grown_total", &[]) > 3.0);
    cluster.assert_sound();
}

#[test]
fn random_operations_through_one_mount() {
    let cluster = Cluster::start();
    random_steps(&cluster, &[cluster.mount_point()], 80);
}

#[test]
fn random_operations_through_two_mounts() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]).point;
    random_steps(&cluster, &[cluster.mount_point(), second], 60);
}

#[test]
fn random_operations_over_several_shards() {
    let mut cluster = Cluster::of(Shape { metadata: 2, shards: 4, ..Shape::default() });
    let second = cluster.mount_again(&[]).point;
    random_steps(&cluster, &[cluster.mount_point(), second], 30);
}

/// One mount makes files longer than their limit; another one reads them all the time, and sees each part as soon as it
/// is written, and nothing else.
#[test]
fn readers_see_files_grow() {
    const PART: usize = 700;
    const PARTS: usize = 12;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let (written, stop, index) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    let name = |index: usize| format!("f{index}");
    let part = |number: usize| vec![number as u8 + 1; PART];
    let end = Instant::now() + Duration::from_secs(6);
    File::create(cluster.path(&name(0))).unwrap();
    thread::scope(|scope| {
        for mount in [second.point.clone(), cluster.mount_point()] {
            let (written, stop, index) = (&written, &stop, &index);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let file = index.load(Ordering::SeqCst);
                    let least = written.load(Ordering::SeqCst);
                    let bytes = fs::read(mount.join(name(file))).unwrap();
                    if index.load(Ordering::SeqCst) != file {
                        continue;
                    }
                    assert!(bytes.len() >= least * PART, "{} bytes after {least} parts", bytes.len());
                    for (number, chunk) in bytes.chunks(PART).enumerate() {
                        assert!(chunk.iter().all(|&byte| byte == number as u8 + 1), "part {number} of {file}");
                    }
                }
            });
        }
        while Instant::now() < end {
            let current = index.load(Ordering::SeqCst);
            let file = OpenOptions::new().write(true).open(cluster.path(&name(current))).unwrap();
            for number in 0..PARTS {
                file.write_all_at(&part(number), (number * PART) as u64).unwrap();
                written.store(number + 1, Ordering::SeqCst);
            }
            File::create(cluster.path(&name(current + 1))).unwrap();
            written.store(0, Ordering::SeqCst);
            index.store(current + 1, Ordering::SeqCst);
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(index.load(Ordering::SeqCst) > 10, "hardly any file has grown");
    cluster.assert_sound();
}

/// kill -9 of the services between which contents move.
#[test]
fn growth_survives_kills() {
    let cluster = Cluster::start();
    let (stop, files) = (AtomicBool::new(false), AtomicUsize::new(0));
    let content = |index: usize, len: usize| -> Vec<u8> { (0..len).map(|at| (index * 31 + at / 100) as u8).collect() };
    let length = |index: usize| 3000 + index % 7 * 1500;
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut index = 0;
            while !stop.load(Ordering::SeqCst) {
                let (all, file) =
                    (content(index, length(index)), File::create(cluster.path(&format!("f{index}"))).unwrap());
                let mut at = 0;
                for piece in all.chunks(1500) {
                    file.write_all_at(piece, at).unwrap();
                    at += piece.len() as u64;
                }
                index += 1;
                files.store(index, Ordering::SeqCst);
            }
        });
        let mut dice = Dice::new(seed());
        for round in 0..4 {
            let name = if round % 2 == 0 { "metad-1" } else { "storaged-1" };
            thread::sleep(Duration::from_millis(200 + dice.roll(600)));
            let killed = cluster.kill(name);
            cluster.wait_for_another(name, killed);
            let so_far = files.load(Ordering::SeqCst);
            wait::until("files grow again", SOON, || {
                (load.is_finished() || files.load(Ordering::SeqCst) > so_far + 3).then_some(())
            });
        }
        stop.store(true, Ordering::SeqCst);
    });
    let files = files.load(Ordering::SeqCst);
    assert!(files > 20, "hardly any file was written");
    for index in 0..files {
        assert!(fs::read(cluster.path(&format!("f{index}"))).unwrap() == content(index, length(index)), "file {index}");
    }
    cluster.assert_sound();
}

/// Both mounts append to one file: nothing is lost while it fits into the metadata.
#[test]
fn appends_of_two_mounts_lose_nothing() {
    const LINE: usize = 10;
    const LINES: usize = 150;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let mounts = [cluster.mount_point(), second.point];
    thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(mount.join("log")).unwrap();
                for line in 0..LINES {
                    file.write_all(format!("{number} {line:07}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(cluster.path("log")).unwrap();
    assert_eq!(text.len(), 2 * LINES * LINE);
    for number in ["0", "1"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(number)).collect();
        assert!(lines.len() == LINES && lines.is_sorted(), "of mount {number}");
    }
    assert!(is_inline(&cluster, "/log"));
    cluster.assert_sound();
}

#[test]
fn files_without_a_name_and_removed_ones() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let unnamed = syscall::tmpfile(&cluster.mount_point(), 0o600).unwrap();
    unnamed.write_all_at(b"unnamed", 0).unwrap();
    syscall::name_open_file(&unnamed, &cluster.path("named")).unwrap();
    assert_eq!(fs::read(second.point.join("named")).unwrap(), b"unnamed");
    let removed = both(&cluster.path("removed"));
    removed.write_all_at(b"small", 0).unwrap();
    fs::remove_file(second.point.join("removed")).unwrap();
    removed.write_all_at(b"er", 5).unwrap();
    let mut bytes = [0; 20];
    assert_eq!(removed.read_at(&mut bytes, 0).unwrap(), 7);
    removed.write_all_at(&[9; 5000], 7).unwrap();
    assert_eq!((removed.read_at(&mut bytes, 0).unwrap(), &bytes[..8]), (20, &b"smaller\x09"[..]));
    drop((unnamed, removed));
    fs::write(cluster.path("over"), b"over").unwrap();
    fs::rename(cluster.path("over"), cluster.path("named")).unwrap();
    assert_eq!(fs::read(second.point.join("named")).unwrap(), b"over");
    let left = || {
        let report = cluster.json(&["fsck"]);
        (report["inline_bytes"].as_u64() == Some(4) && report["objects"].as_u64() == Some(0)).then_some(())
    };
    wait::until("nothing else is left", SOON, left);
    cluster.assert_sound();
}
