//! New files of which a mount keeps back what was done to them: nobody can tell, but by the number of requests, and by what
//! a kill takes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use harness::cluster::{Cluster, SecondMount};
use harness::dice::{Dice, scale, seed};
use harness::{metrics, process, wait};

/// The default of metad's `lease_term`, and time for everything around it.
const TERM: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(60);
/// The longest of a kernel's clock, and as much again.
const TICK: Duration = Duration::from_millis(20);
/// After so long a mount keeps nothing back.
const AGE: Duration = Duration::from_millis(1000);
/// The metadata takes so much, by default, and less than this.
const INLINE: usize = 4096;
const LONG: usize = 100_000;

fn two_mounts() -> (Cluster, SecondMount) {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    (cluster, second)
}

fn same_on(second: &SecondMount, path: &Path) -> PathBuf {
    second.point.join(path.file_name().unwrap())
}

fn new(path: &Path) -> File {
    File::options().create_new(true).read(true).write(true).open(path).unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

type Told = (u32, u32, u32, u64, u64, Option<[(i64, i64); 2]>);

/// What `stat` says of a file. Of one that has been written to objects no times of changes: until it is settled, these tell others
/// a little earlier ones.
fn told(metadata: &fs::Metadata, in_objects: bool) -> Told {
    let times = [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())];
    let times = (!in_objects).then_some(times);
    (metadata.mode(), metadata.uid(), metadata.gid(), metadata.nlink(), metadata.size(), times)
}

/// As tar unpacks a file.
fn unpack(path: &Path, pieces: &[&[u8]]) {
    let file = new(path);
    let mut offset = 0;
    for piece in pieces {
        file.write_all_at(piece, offset).unwrap();
        offset += piece.len() as u64;
    }
    file.set_times(FileTimes::new().set_accessed(at(1_000_000_000)).set_modified(at(1_100_000_000))).unwrap();
    fchown(&file, Some(1234), Some(4321)).unwrap();
    file.set_permissions(Permissions::from_mode(0o640)).unwrap();
}

fn assert_unpacked(path: &Path, content: &[u8]) {
    let metadata = fs::metadata(path).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o640, 1234, 4321));
    assert_eq!((metadata.modified().unwrap(), metadata.len()), (at(1_100_000_000), content.len() as u64));
    assert!(fs::read(path).unwrap() == content);
}

#[test]
fn all_that_is_done_to_a_new_file_is_few_requests() {
    const FILES: u64 = 50;
    let (cluster, second) = two_mounts();
    let kinds = [
        ("short", vec![&[b's'; 700][..], &[b't'; 300]]),
        ("long", vec![&[b'l'; LONG][..]]),
        ("pieces", vec![&[b'p'; 1000][..], &[b'q'; LONG / 2], &[b'r'; LONG / 2]]),
    ];
    for (name, pieces) in kinds {
        let dir = cluster.path(name);
        fs::create_dir(&dir).unwrap();
        let before = [metrics::requests(&cluster, "metadata"), metrics::requests(&cluster, "storage")];
        (0..FILES).for_each(|number| unpack(&dir.join(number.to_string()), &pieces));
        let mut did = BTreeMap::new();
        for (kind, before) in ["metadata", "storage"].iter().zip(before) {
            for (operation, count) in metrics::requests(&cluster, kind) {
                did.insert(operation.clone(), count - before.get(&operation).copied().unwrap_or(0));
            }
        }
        let count = |operation: &str| did.get(operation).copied().unwrap_or(0);
        // A file that took half a second, where the machine is busy, is told before all is done to it.
        let few = count("Set") + count("WriteInline") <= FILES / 5;
        assert!(count("Create") == FILES && few, "{name}: {did:?}");
        let objects = if name == "short" { 0 } else { FILES };
        assert_eq!(count("WriteIntent"), objects, "{name}: {did:?}");
        assert!((objects..=objects + FILES / 5).contains(&count("Write")), "{name}: {did:?}");
        // Only what knows of no object of a lane yet asks for one: threads of the mount times lanes of targets.
        assert!(count("Stat") <= FILES / 2, "{name}: {did:?}");
        // A close may come later, or with what is told at the close.
        assert!(count("Settle") <= 2 * FILES && count("GetAttr") + count("Lookup") <= 2 * FILES, "{name}: {did:?}");
        let content = pieces.concat();
        (0..FILES).for_each(|number| assert_unpacked(&same_on(&second, &dir).join(number.to_string()), &content));
    }
    cluster.assert_sound();
}

/// Objects get what was written before only afterwards.
#[test]
fn times_that_are_set_go_over_writes_that_were_kept_back() {
    let (cluster, second) = two_mounts();
    for (name, len) in [("short", 100), ("grown", 20_000), ("long", 3_000_000)] {
        let path = cluster.path(name);
        let there = same_on(&second, &path);
        let file = new(&path);
        for piece in vec![7u8; len].chunks(7000) {
            let offset = file.metadata().unwrap().len();
            file.write_all_at(piece, offset).unwrap();
        }
        file.set_modified(at(1_100_000_000)).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), at(1_100_000_000), "{name}");
        file.sync_all().unwrap();
        // Open for writing yet: the objects are asked.
        let looked = fs::metadata(&there).unwrap();
        assert_eq!((looked.modified().unwrap(), looked.len()), (at(1_100_000_000), len as u64), "{name}");
        let other = File::options().write(true).open(&there).unwrap();
        // Within a tick of the storage host's clock the objects were as new before.
        thread::sleep(TICK);
        other.write_all_at(b"x", 0).unwrap();
        let [here, there] = [file.metadata(), other.metadata()].map(|seen| seen.unwrap().modified().unwrap());
        assert!(here > at(1_200_000_000) && here == there, "{name}");
    }
    cluster.assert_sound();
}

/// The versions that a mount has seen are those of services that ran then.
#[test]
fn new_files_outlive_a_restart_of_their_storage_services() {
    let (cluster, second) = two_mounts();
    let content = vec![b'c'; LONG];
    for round in 0..3 {
        let paths = (0..10).map(|number| cluster.path(&format!("f{round} {number}")));
        let files: Vec<(PathBuf, File)> = paths.map(|path| (path.clone(), new(&path))).collect();
        files.iter().for_each(|(_, file)| file.write_all_at(&content, 0).unwrap());
        if round == 1 {
            let pid = cluster.kill("storaged-1");
            cluster.wait_for_another("storaged-1", pid);
        }
        for (path, file) in files {
            file.sync_all().unwrap();
            assert!(fs::read(same_on(&second, &path)).unwrap() == content);
        }
    }
    cluster.assert_sound();
}

/// One thing after the other is done to files that are open, and both mounts agree with what a local file would be.
#[test]
fn who_looks_sees_all_that_was_done() {
    let (cluster, second) = two_mounts();
    let mut dice = Dice::new(seed());
    for round in 0..scale("WEFT_TEST_DRAFTS", 60) {
        let path = cluster.path(&format!("f{round}"));
        let there = same_on(&second, &path);
        let file = new(&path);
        let (mut content, mut mode, mut owner, mut set) = (Vec::new(), 0, None, None);
        let mut in_objects = false;
        for step in 0..dice.index(12) + 1 {
            let context = format!("round {round}, step {step}");
            match dice.roll(14) {
                0..5 => {
                    let longest = *dice.pick(&[10, 2000, 6000, 300_000]);
                    let len = dice.index(longest) + 1;
                    let data = dice.bytes(len);
                    let offset = if dice.roll(3) == 0 { dice.index(content.len() + 100) } else { content.len() };
                    file.write_all_at(&data, offset as u64).unwrap();
                    content.resize(content.len().max(offset + len), 0);
                    content[offset..offset + len].copy_from_slice(&data);
                    set = None;
                }
                5 => {
                    mode = *dice.pick(&[0o600, 0o640, 0o755]);
                    file.set_permissions(Permissions::from_mode(mode)).unwrap();
                }
                6 => {
                    owner = Some(dice.index(1000) as u32);
                    fchown(&file, owner, owner).unwrap();
                }
                7 => {
                    set = Some(at(dice.index(1_000_000_000) as u64));
                    file.set_times(FileTimes::new().set_modified(set.unwrap())).unwrap();
                }
                8 => {
                    let size = dice.index(content.len() + 1);
                    file.set_len(size as u64).unwrap();
                    content.resize(size, 0);
                    set = None;
                }
                9 => assert!(fs::read(&path).unwrap() == content, "{context}: on the same mount"),
                10 => assert!(fs::read(&there).unwrap() == content, "{context}: on the other mount"),
                11 => file.sync_all().unwrap(),
                12 => thread::sleep(Duration::from_millis(dice.roll(600))),
                _ => {
                    let seen = told(&file.metadata().unwrap(), in_objects);
                    assert_eq!(seen, told(&fs::metadata(&there).unwrap(), in_objects), "{context}");
                    assert_eq!(seen, told(&file.metadata().unwrap(), in_objects), "{context}");
                }
            }
            in_objects |= content.len() > INLINE;
            let metadata = file.metadata().unwrap();
            assert_eq!(metadata.len(), content.len() as u64, "{context}");
            assert!(mode == 0 || metadata.mode() & 0o7777 == mode, "{context}: {:o}", metadata.mode());
            assert!(owner.is_none_or(|owner| (metadata.uid(), metadata.gid()) == (owner, owner)), "{context}");
            assert!(set.is_none_or(|set| metadata.modified().unwrap() == set), "{context}");
        }
        let seen = told(&file.metadata().unwrap(), in_objects);
        drop(file);
        assert_eq!(seen, told(&fs::metadata(&there).unwrap(), in_objects), "round {round}");
        assert!(fs::read(&there).unwrap() == content, "round {round}");
    }
    cluster.assert_sound();
}

/// However long it is open: what others do to it shows where it was made.
#[test]
fn who_keeps_a_new_file_open_sees_what_others_do_to_it() {
    let (cluster, second) = two_mounts();
    let files = [0, 3, LONG].map(|len| {
        let path = cluster.path(&format!("f{len}"));
        let file = new(&path);
        file.write_all_at(&vec![b'x'; len], 0).unwrap();
        (path, file)
    });
    for wait in [Duration::ZERO, TERM + Duration::from_secs(1)] {
        thread::sleep(wait);
        let (mode, end) = if wait.is_zero() { (0o600, "y") } else { (0o604, "z") };
        for (path, file) in &files {
            let there = same_on(&second, path);
            fs::set_permissions(&there, Permissions::from_mode(mode)).unwrap();
            let appender = File::options().append(true).open(&there).unwrap();
            std::io::Write::write_all(&mut &appender, end.as_bytes()).unwrap();
            drop(appender);
            let (here, there) = (file.metadata().unwrap(), fs::metadata(&there).unwrap());
            assert_eq!(told(&here, true), told(&there, true), "{path:?}");
            assert_eq!(here.mode() & 0o777, mode, "{path:?}");
            assert!(fs::read(path).unwrap().ends_with(end.as_bytes()), "{path:?}");
        }
    }
    cluster.assert_sound();
}

/// By its name, at once after the close, which is told later.
#[test]
fn what_is_done_to_a_file_that_was_just_closed_stays() {
    let (cluster, second) = two_mounts();
    for number in 0..300 {
        let path = cluster.path(&format!("f{number}"));
        let file = new(&path);
        file.write_all_at(&vec![b'x'; if number % 2 == 0 { 3 } else { LONG }], 0).unwrap();
        drop(file);
        let begin = Instant::now();
        // The close goes out two milliseconds later.
        while begin.elapsed() < Duration::from_micros(20 * number) {
            std::hint::spin_loop();
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755, "{number}");
    }
    for number in 0..300 {
        let there = second.point.join(format!("f{number}"));
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o755, "{number}");
    }
    cluster.assert_sound();
}

#[test]
fn the_time_of_the_last_write_stays_when_the_writer_is_done() {
    let (cluster, second) = two_mounts();
    for len in [3, LONG] {
        let path = cluster.path(&format!("f{len}"));
        let writer = new(&path);
        let reader = File::open(&path).unwrap();
        thread::sleep(Duration::from_millis(50));
        writer.write_all_at(&vec![b'x'; len], 0).unwrap();
        let written = writer.metadata().unwrap().modified().unwrap();
        drop(writer);
        wait::until("it is settled", SOON, || {
            let info = cluster.json(&["entry", "info", &format!("/f{len}")]);
            (info["unsettled"] == false).then_some(())
        });
        for _ in 0..2 {
            assert_eq!(reader.metadata().unwrap().modified().unwrap(), written, "{len}");
            assert_eq!(fs::metadata(same_on(&second, &path)).unwrap().modified().unwrap(), written, "{len}");
            reader.set_permissions(Permissions::from_mode(0o604)).unwrap();
        }
    }
    cluster.assert_sound();
}

#[test]
fn names_come_and_go_while_a_file_is_kept_back() {
    let (cluster, second) = two_mounts();
    for long in [false, true] {
        let path = cluster.path("f");
        let file = new(&path);
        file.write_all_at(if long { &[b'x'; LONG] } else { b"abc" }, 0).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        fs::rename(&path, cluster.path("g")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        fs::hard_link(cluster.path("g"), cluster.path("h")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 2);
        assert_eq!(fs::metadata(second.point.join("h")).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(cluster.path("g")).unwrap();
        fs::remove_file(cluster.path("h")).unwrap();

        let file = new(&path);
        file.write_all_at(if long { &[b'x'; LONG] } else { b"abc" }, 0).unwrap();
        let before = file.metadata().unwrap();
        fs::remove_file(&path).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!((before.nlink(), after.nlink()), (1, 0));
        assert!((after.ctime(), after.ctime_nsec()) >= (before.ctime(), before.ctime_nsec()));
        file.write_all_at(b"more", 3).unwrap();
        file.sync_all().unwrap();
        let mut seen = [0; 7];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, if long { b"xxxmore" } else { b"abcmore" });
    }
    cluster.assert_sound();
}

/// What only the shard does to a file finds there what was done to it before.
#[test]
fn whatever_is_not_kept_back_comes_after_what_is() {
    let (cluster, second) = two_mounts();
    let name = |number: usize| format!("f{number}");
    type Act = fn(&File, &Path);
    let acts: [Act; 6] = [
        |file, _| {
            let (name, value) = (c"user.x".as_ptr(), b"1".as_ptr().cast());
            // SAFETY: a string with an end, and a value of the length that is given.
            assert_eq!(unsafe { libc::fsetxattr(file.as_raw_fd(), name, value, 1, 0) }, 0);
        },
        |file, _| file.set_len(2).unwrap(),
        // SAFETY: calls with numbers alone.
        |file, _| assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 5000) }, 0),
        // SAFETY: the same.
        |file, _| assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) }, 3),
        |file, path| {
            let copy = new(&path.with_extension("copy"));
            let mut source = file.try_clone().unwrap();
            assert_eq!(std::io::copy(&mut source, &mut &copy).unwrap(), 3);
        },
        |_, path| {
            let appender = File::options().append(true).open(path).unwrap();
            std::io::Write::write_all(&mut &appender, b"de").unwrap();
        },
    ];
    for (number, act) in acts.iter().enumerate() {
        let path = cluster.path(&name(number));
        let file = new(&path);
        file.write_all_at(b"abc", 0).unwrap();
        file.set_permissions(Permissions::from_mode(0o604)).unwrap();
        act(&file, &path);
        let seen = file.metadata().unwrap();
        let there = fs::metadata(second.point.join(name(number))).unwrap();
        let in_objects = there.len() > INLINE as u64;
        assert_eq!(told(&seen, in_objects), told(&there, in_objects), "{number}");
        assert_eq!(there.mode() & 0o777, 0o604, "{number}");
        assert!(fs::read(second.point.join(name(number))).unwrap().starts_with(b"ab"), "{number}");
    }
    cluster.assert_sound();
}

#[test]
fn a_killed_mount_loses_no_more_than_was_neither_closed_nor_old() {
    let (cluster, second) = two_mounts();
    let write = |name: &str, content: &[u8]| {
        let file = new(&second.point.join(name));
        file.write_all_at(content, 0).unwrap();
        file.set_permissions(Permissions::from_mode(0o604)).unwrap();
        file
    };
    let long = [b'x'; LONG];
    let old = [write("old", b"old"), write("old long", &long)];
    // They are old sooner, where the mount has a CPU then.
    thread::sleep(3 * AGE);
    let synced = write("synced", b"synced");
    synced.sync_all().unwrap();
    drop(write("closed", b"closed"));
    drop(write("closed long", &long));
    let neither = write("neither", b"neither");
    process::kill(second.pid);
    let expected = [("old", &b"old"[..]), ("old long", &long), ("synced", b"synced"), ("closed", b"closed")];
    for (name, content) in expected.into_iter().chain([("closed long", &long[..])]) {
        assert!(fs::read(cluster.path(name)).unwrap() == content, "{name}");
        assert_eq!(fs::metadata(cluster.path(name)).unwrap().mode() & 0o777, 0o604, "{name}");
    }
    let left = fs::read(cluster.path("neither")).unwrap();
    assert!(left.is_empty() || left == b"neither", "all or nothing");
    drop((old, synced, neither));
    cluster.assert_sound();
}

#[test]
fn who_was_stopped_for_longer_than_its_lease_is_told_and_harms_nobody() {
    let (cluster, second) = two_mounts();
    let mut attempts = 0;
    // After half a second the shard would have been told of them.
    let files = wait::until("a stop right after the writes", SOON, || {
        attempts += 1;
        let begin = Instant::now();
        let files = [3, LONG].map(|len| {
            let name = format!("f{len}-{attempts}");
            let file = new(&second.point.join(&name));
            file.write_all_at(&vec![b'l'; len], 0).unwrap();
            file.set_permissions(Permissions::from_mode(0o604)).unwrap();
            (name, file)
        });
        process::stop(second.pid);
        let are_kept = begin.elapsed() < Duration::from_millis(300);
        if !are_kept {
            process::signal(second.pid, libc::SIGCONT);
        }
        are_kept.then_some(files)
    });
    let here: Vec<_> = files.iter().map(|(name, _)| cluster.path(name)).collect();
    let here = wait::within("writes on another mount", 2 * TERM + SOON, move || {
        for path in &here {
            let other = File::options().write(true).open(path).unwrap();
            other.write_all_at(b"newer", 1).unwrap();
            other.set_permissions(Permissions::from_mode(0o640)).unwrap();
            other.sync_all().unwrap();
        }
        here
    });
    let before: Vec<_> =
        here.iter().map(|path| (fs::read(path).unwrap(), told(&fs::metadata(path).unwrap(), false))).collect();
    process::signal(second.pid, libc::SIGCONT);
    for (name, file) in files {
        let (told, file) = wait::within("fsync", SOON, move || (file.sync_all(), file));
        assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::EIO), "{name}");
        assert_eq!(file.write_at(b"more", 60).unwrap_err().raw_os_error(), Some(libc::EIO), "{name}");
    }
    thread::sleep(AGE);
    for (path, before) in here.iter().zip(before) {
        assert!(fs::read(path).unwrap() == before.0, "{path:?}");
        assert_eq!(told(&fs::metadata(path).unwrap(), false), before.1, "{path:?}");
    }
    cluster.assert_sound();
}

/// Nobody else asks meanwhile: nothing is lost, however long the shard was away.
#[test]
fn a_shard_that_is_away_for_longer_than_a_lease_loses_nothing() {
    for restarts in [true, false] {
        let (cluster, second) = two_mounts();
        let metad = cluster.pid("metad-1").unwrap();
        let files: Vec<_> = [3, LONG]
            .map(|len| {
                let file = new(&cluster.path(&format!("f{len}")));
                file.write_all_at(&vec![b'k'; len], 0).unwrap();
                file
            })
            .into();
        process::stop(metad);
        for file in &files {
            let file = file.try_clone().unwrap();
            // It may have been told before: then the shard is needed for the next change.
            thread::spawn(move || file.set_permissions(Permissions::from_mode(0o604)));
        }
        thread::sleep(TERM + Duration::from_secs(3));
        if restarts {
            process::kill(metad);
            cluster.wait_for_another("metad-1", metad);
        } else {
            process::signal(metad, libc::SIGCONT);
        }
        for file in files {
            wait::within("fsync", SOON, move || file.sync_all().unwrap());
        }
        for len in [3, LONG] {
            let there = second.point.join(format!("f{len}"));
            assert!(fs::read(&there).unwrap() == vec![b'k'; len], "{len}");
            wait::until("the mode", SOON, || (fs::metadata(&there).unwrap().mode() & 0o777 == 0o604).then_some(()));
        }
        cluster.assert_sound();
    }
}

/// The shard is killed again and again while files are made: all that was closed is there.
#[test]
fn a_shard_that_is_killed_loses_nothing_of_new_files() {
    let (cluster, second) = two_mounts();
    let end = Instant::now() + Duration::from_secs(scale("WEFT_TEST_DRAFTS_SECONDS", 8));
    let dir = cluster.path("d");
    fs::create_dir(&dir).unwrap();
    let there = same_on(&second, &dir);
    let made = thread::scope(|scope| {
        let makers = [1, 2].map(|maker| {
            let dir = &dir;
            scope.spawn(move || {
                let mut number = 0;
                while Instant::now() < end {
                    let content = vec![maker; 10 + number * 37 % 9000];
                    unpack(&dir.join(format!("{maker}-{number}")), &[&content[..5], &content[5..]]);
                    number += 1;
                }
                number
            })
        });
        let looker = scope.spawn(|| {
            while Instant::now() < end {
                for entry in fs::read_dir(&there).unwrap() {
                    let _ = entry.unwrap().metadata();
                }
            }
        });
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(700));
            let metad = cluster.kill("metad-1");
            cluster.wait_for_another("metad-1", metad);
        }
        looker.join().unwrap();
        makers.map(|maker| maker.join().unwrap())
    });
    for (maker, count) in [1, 2].into_iter().zip(made) {
        assert!(count > 10, "{count} files");
        for number in 0..count {
            assert_unpacked(&there.join(format!("{maker}-{number}")), &vec![maker; 10 + number * 37 % 9000]);
        }
    }
    cluster.assert_sound();
}

#[test]
fn direct_and_synchronous_writes_are_not_kept_back() {
    let (cluster, second) = two_mounts();
    let path = second.point.join("f");
    let file = File::options().create_new(true).write(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    process::kill(second.pid);
    assert_eq!(fs::read(cluster.path("f")).unwrap(), b"synced");
}

#[test]
fn a_mount_may_be_told_to_keep_nothing_back() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--write-back", "0"]);
    let file = new(&second.point.join("f"));
    file.write_all_at(b"abc", 0).unwrap();
    let requests = metrics::requests(&cluster, "metadata");
    assert!(requests.get("WriteInline").is_some_and(|&count| count >= 1), "{requests:?}");
}
