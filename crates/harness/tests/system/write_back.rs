//! Writes that a mount keeps back: nobody can tell, but by the number of requests, and by what a kill takes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use harness::cluster::{Cluster, SecondMount};
use harness::dice::{Dice, seed};
use harness::{metrics, process, syscall, wait};

/// The default of metad's `lease_term`, and time for everything around it.
const TERM: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(60);
/// Too much for the metadata.
const BEGINNING: usize = 100_000;

fn writes(cluster: &Cluster) -> f64 {
    metrics::sum(cluster, "storage", "weft_request_seconds_count", &["op=\"Write\""])
}

/// A file whose mount keeps back what is written next to one of its objects.
fn keeping(cluster: &Cluster, path: &Path) -> File {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.write_all_at(&vec![b'.'; BEGINNING], 0).unwrap();
    file.write_all_at(b"xxx", 0).unwrap();
    wait::until("writes are kept back", SOON, || {
        let before = writes(cluster);
        (0..50).for_each(|_| file.write_all_at(b"x", 3).unwrap());
        // What was kept back before may go now.
        (writes(cluster) - before < 10.0).then_some(())
    });
    file.sync_data().unwrap();
    file
}

fn two_mounts() -> (Cluster, SecondMount) {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    (cluster, second)
}

fn same_on(second: &SecondMount, path: &Path) -> PathBuf {
    second.point.join(path.file_name().unwrap())
}

#[test]
fn many_small_writes_are_few_requests() {
    let cluster = Cluster::start();
    let folder = cluster.folder("d");
    cluster.wait_for_leases(&folder);
    let path = folder.join("f");
    let before = writes(&cluster);
    let mut file = File::create(&path).unwrap();
    let mut expected = Vec::new();
    for number in 0..2000u32 {
        let record = [number as u8; 1000];
        file.write_all(&record).unwrap();
        expected.extend_from_slice(&record);
        if number % 500 == 3 {
            assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64, "the writer sees its size");
        }
    }
    drop(file);
    let requests = writes(&cluster) - before;
    assert!(requests < 100.0, "{requests} requests for 2000 writes");
    assert!(fs::read(&path).unwrap() == expected);
    cluster.assert_sound();
}

#[test]
fn who_looks_sees_all_that_was_written() {
    let (cluster, second) = two_mounts();
    let mut dice = Dice::new(seed());
    let path = cluster.path("f");
    let there = same_on(&second, &path);
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let mut expected = Vec::new();
    for round in 0..30 {
        // Long enough for what was taken back to be given again.
        if round % 10 == 9 {
            thread::sleep(Duration::from_millis(1200));
        }
        for _ in 0..dice.index(60) + 4 {
            let len = dice.index(3000) + 1;
            let data = dice.bytes(len);
            let offset = if dice.index(3) == 0 { dice.index(expected.len() + 1) } else { expected.len() };
            file.write_all_at(&data, offset as u64).unwrap();
            expected.resize(expected.len().max(offset + data.len()), 0);
            expected[offset..offset + data.len()].copy_from_slice(&data);
        }
        match dice.index(4) {
            0 => assert_eq!(fs::metadata(&there).unwrap().len(), expected.len() as u64, "round {round}"),
            1 => assert!(fs::read(&there).unwrap() == expected, "round {round}: on the other mount"),
            2 => assert!(fs::read(&path).unwrap() == expected, "round {round}: on the same mount"),
            _ => {
                let size = dice.index(expected.len()) + 1;
                file.set_len(size as u64).unwrap();
                expected.truncate(size);
            }
        }
    }
    drop(file);
    assert!(fs::read(&there).unwrap() == expected);
    cluster.assert_sound();
}

/// The other mount opens it while nobody writes it: for that nothing is taken back.
#[test]
fn who_has_it_open_sees_what_later_writers_write() {
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let writer = keeping(&cluster, &path);
    let _reader = File::open(&path).unwrap();
    drop(writer);
    // The settling, which nobody waits for.
    thread::sleep(Duration::from_millis(300));
    let there = File::open(same_on(&second, &path)).unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    for number in 0..20 {
        writer.write_all_at(&[number], 3).unwrap();
        let mut seen = [0xff];
        there.read_exact_at(&mut seen, 3).unwrap();
        assert_eq!(seen, [number], "written before it was read");
    }
    cluster.assert_sound();
}

/// What others of the same mount see of a file that grows all the time has no gaps, and they need not wait for its end.
#[test]
fn who_reads_beside_the_writer_sees_no_gaps() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    let writer = keeping(&cluster, &path);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let file = File::open(&path).unwrap();
            let mut looks = 0;
            while !stop.load(Ordering::SeqCst) {
                let len = file.metadata().unwrap().len();
                let mut tail = vec![0; 30_000];
                let count = file.read_at(&mut tail, len - 1).unwrap();
                assert!(count > 0 && !tail[..count].contains(&0), "a gap after {len}");
                // SAFETY: a call with numbers alone.
                let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
                assert!(hole >= len as i64, "a hole at {hole} of {len}");
                looks += 1;
            }
            looks
        });
        let (end, mut at) = (Instant::now() + Duration::from_secs(4), BEGINNING as u64);
        while Instant::now() < end && !reader.is_finished() {
            writer.write_all_at(&[b'y'; 700], at).unwrap();
            at += 700;
        }
        stop.store(true, Ordering::SeqCst);
        let looks = reader.join().unwrap();
        assert!(looks > 100, "{looks} looks");
    });
    cluster.assert_sound();
}

#[test]
fn who_has_it_open_sees_each_write_at_once() {
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let file = keeping(&cluster, &path);
    let reader = File::open(same_on(&second, &path)).unwrap();
    for number in 0..200u64 {
        let record = number.to_le_bytes();
        file.write_all_at(&record, number * 8).unwrap();
        let mut seen = [0; 8];
        reader.read_exact_at(&mut seen, number * 8).unwrap();
        assert_eq!(seen, record);
    }
}

#[test]
fn a_killed_mount_loses_no_more_than_was_neither_closed_nor_synced() {
    let (cluster, second) = two_mounts();
    let write = |name: &str, then: fn(&File)| {
        let file = keeping(&cluster, &second.point.join(name));
        for number in 0..100u64 {
            file.write_all_at(&[b'y'; 10], BEGINNING as u64 + number * 10).unwrap();
        }
        then(&file);
        file
    };
    drop(write("closed", |_| ()));
    let synced = write("synced", |file| file.sync_data().unwrap());
    let neither = write("neither", |_| ());
    process::kill(second.pid);
    let begin = Instant::now();
    let content = |name: &str| fs::read(cluster.path(name)).unwrap();
    let mut expected = [b"xxxx".as_slice(), &[b'.'; BEGINNING - 4]].concat();
    expected.extend([b'y'; 1000]);
    assert!(content("closed") == expected);
    assert!(content("synced") == expected);
    let left = content("neither");
    assert!(left.len() >= BEGINNING && expected.starts_with(&left), "{} bytes", left.len());
    assert!(begin.elapsed() < 2 * TERM, "{:?}", begin.elapsed());
    drop((synced, neither));
    cluster.assert_sound();
}

/// It is stopped with something kept back, others do not wait for longer than its lease, and what comes late harms nobody.
#[test]
fn who_was_stopped_for_longer_than_its_lease_is_told_and_harms_nobody() {
    let (cluster, second) = two_mounts();
    let path = second.point.join("f");
    let here = cluster.path("f");
    let file = keeping(&cluster, &path);
    // After half a second it would have been written.
    wait::until("a stop right after a write", SOON, || {
        let begin = Instant::now();
        file.write_all_at(b"late", 50).unwrap();
        process::stop(second.pid);
        let is_kept = begin.elapsed() < Duration::from_millis(300);
        if !is_kept {
            process::signal(second.pid, libc::SIGCONT);
        }
        is_kept.then_some(())
    });
    let changed = wait::within("a write on another mount", TERM + SOON, move || {
        let other = File::options().write(true).open(&here).unwrap();
        other.write_all_at(b"newer", 48).unwrap();
        other.sync_all().unwrap();
        here
    });
    process::signal(second.pid, libc::SIGCONT);
    let (told, file) = wait::within("fsync", SOON, move || (file.sync_all(), file));
    assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(file.write_at(b"more", 60).unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(file);
    let content = fs::read(&changed).unwrap();
    assert_eq!(content[..60], [b"xxxx".as_slice(), &[b'.'; 44], b"newer", &[b'.'; 7]].concat());
    // A new open is a new beginning.
    let again = wait::until("the close", SOON, || {
        let again = File::options().write(true).open(&path).unwrap();
        again.write_all_at(b"again", 70).is_ok().then_some(again)
    });
    again.sync_all().unwrap();
    assert_eq!(fs::read(&changed).unwrap()[70..75], *b"again");
}

#[test]
fn what_cannot_be_written_is_told_and_stays_until_it_can() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--retry-timeout", "2s"]);
    let path = second.point.join("f");
    let file = keeping(&cluster, &path);
    let storaged = cluster.pid("storaged-1").unwrap();
    process::stop(storaged);
    file.write_all_at(b"kept", 50).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    // Longer than the lease lasts that is not renewed.
    thread::sleep(TERM + Duration::from_secs(2));
    process::signal(storaged, libc::SIGCONT);
    wait::until("it is written", SOON, || file.sync_all().ok());
    assert_eq!(fs::read(cluster.path("f")).unwrap()[48..56], *b"..kept..");
}

/// All of it was to be cut off, so that nothing was left that could not be written.
#[test]
fn what_a_truncate_that_fails_would_have_cut_off_is_not_forgotten() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--retry-timeout", "2s"]);
    let path = second.point.join("f");
    let file = keeping(&cluster, &path);
    // One that is only stopped would do later what it was sent.
    cluster.freeze_supervisor();
    cluster.kill("storaged-1");
    file.write_all_at(b"kept", 50).unwrap();
    assert_eq!(file.set_len(0).unwrap_err().raw_os_error(), Some(libc::EIO));
    cluster.resume();
    wait::until("it is written", SOON, || file.sync_all().ok());
    assert_eq!(fs::read(cluster.path("f")).unwrap()[48..56], *b"..kept..");
}

/// What a mount cannot give back at once, since it cannot write it, holds up nothing else that it is asked for.
#[test]
fn what_cannot_be_written_holds_up_no_other_files() {
    let (cluster, second) = two_mounts();
    let (path, other) = (cluster.path("f"), cluster.path("other"));
    fs::write(&other, b"x").unwrap();
    let file = keeping(&cluster, &path);
    let storaged = cluster.pid("storaged-1").unwrap();
    process::stop(storaged);
    file.write_all_at(b"y", 4).unwrap();
    let there = same_on(&second, &path);
    let reader = thread::spawn(move || fs::read(there).map(|content| content[4]));
    thread::sleep(Duration::from_millis(300));
    assert!(fs::metadata(&other).is_ok());
    let there = same_on(&second, &other);
    let begin = Instant::now();
    wait::within("a change elsewhere", SOON, move || {
        fs::set_permissions(there, Permissions::from_mode(0o640)).unwrap()
    });
    let took = begin.elapsed();
    process::signal(storaged, libc::SIGCONT);
    // Not until its lease ends.
    assert!(took < TERM - Duration::from_secs(2), "took {took:?}");
    assert_eq!(reader.join().unwrap().unwrap(), b'y');
}

/// The names of a directory need no storage, also where only the objects know how long one of its files is.
#[test]
fn a_listing_waits_for_no_storage() {
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let (here, there) = (keeping(&cluster, &path), File::options().write(true).open(same_on(&second, &path)).unwrap());
    here.write_all_at(b"h", 0).unwrap();
    there.write_all_at(b"t", 1).unwrap();
    let storaged = cluster.pid("storaged-1").unwrap();
    process::stop(storaged);
    let point = second.point.clone();
    let names = move || fs::read_dir(point).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let names = wait::within("a listing", Duration::from_secs(5), names);
    process::signal(storaged, libc::SIGCONT);
    assert_eq!(names, ["f"]);
}

/// While a file is being written, the shard has to have on disk that its objects are to be asked: once.
#[test]
fn a_sync_of_data_alone_asks_no_shard_again() {
    let cluster = Cluster::start();
    let asked = || {
        let counts = metrics::requests(&cluster, "metadata");
        ["Fsync", "GetAttr"].map(|operation| counts.get(operation).copied().unwrap_or(0))
    };
    let file = File::create(cluster.path("f")).unwrap();
    file.write_all_at(&vec![b'.'; BEGINNING], 0).unwrap();
    file.sync_data().unwrap();
    let before = asked();
    for at in 0..20 {
        file.write_all_at(b"x", at * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let [syncs, questions] = asked();
    assert_eq!(syncs, before[0]);
    assert!(questions - before[1] < 10, "{questions} questions after {before:?}");
    for _ in 0..5 {
        file.sync_all().unwrap();
    }
    assert_eq!(asked()[0], before[0] + 5, "times have to be there as well");
}

/// Requests to objects that a sync of data takes.
fn syncs_of(cluster: &Cluster, file: &File) -> u64 {
    let syncs = || metrics::requests(cluster, "storage").get("Sync").copied().unwrap_or(0);
    let before = syncs();
    file.sync_data().unwrap();
    syncs() - before
}

/// What was on the disks of all objects needs not be brought there again, unless others may have changed it.
#[test]
fn a_sync_asks_the_objects_that_have_changed() {
    const CHUNK: usize = 512 << 10;
    let (cluster, second) = two_mounts();
    let synced = |file: &File| syncs_of(&cluster, file);
    let path = cluster.path("f");
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all_at(&vec![b'.'; 4 * CHUNK], 0).unwrap();
    file.sync_data().unwrap();
    for stripe in 0..4 {
        file.write_all_at(b"x", stripe * CHUNK as u64).unwrap();
        assert_eq!(synced(&file), 1);
    }
    assert_eq!(synced(&file), 0, "nothing has changed");
    let other = File::options().write(true).open(same_on(&second, &path)).unwrap();
    other.write_all_at(b"y", 0).unwrap();
    assert_eq!(synced(&file), 4, "what others have written has to be there too");
    file.write_all_at(b"z", 0).unwrap();
    assert_eq!(synced(&file), 4, "they may have written on");
}

/// What was cut off and is not cut on the disk would come back after a loss of power where the file has grown over it: in a hole.
#[test]
fn a_sync_asks_objects_that_others_have_cut_once_the_file_has_grown_over_them() {
    const CHUNK: u64 = 512 << 10;
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let other = File::create(same_on(&second, &path)).unwrap();
    other.write_all_at(&vec![b'.'; 4 * CHUNK as usize], 0).unwrap();
    other.sync_data().unwrap();
    other.set_len(4096).unwrap();
    drop(other);
    // It is settled some time after its close.
    let file = wait::until("nobody else writes it", SOON, || {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(syncs_of(&cluster, &file), 1, "it is short");
        (syncs_of(&cluster, &file) == 0).then_some(file)
    });
    file.write_all_at(b"x", 4 * CHUNK).unwrap();
    assert_eq!(syncs_of(&cluster, &file), 4, "it has all its objects now");
    file.write_all_at(b"x", CHUNK).unwrap();
    assert_eq!(syncs_of(&cluster, &file), 1, "which are on the disks");
}

/// Whether a program passes its cache by or not, who syncs each write is a request of its own, and no two.
#[test]
fn who_syncs_each_write_asks_once() {
    const BLOCK: usize = 4096;
    const WRITES: u64 = 100;
    let cluster = Cluster::start();
    let path = cluster.path("f");
    fs::write(&path, vec![b'.'; BLOCK * 256]).unwrap();
    for flags in [0, libc::O_DIRECT] {
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        // A disk takes what passes a cache by from aligned memory alone.
        let memory = vec![b'x'; 2 * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let block = &memory[start..start + BLOCK];
        let asked = || {
            let counts = metrics::requests(&cluster, "storage");
            ["Write", "Sync"].map(|operation| counts.get(operation).copied().unwrap_or(0))
        };
        file.sync_all().unwrap();
        let [writes, syncs] = asked();
        for number in 0..WRITES {
            file.write_all_at(block, number * 7 % 256 * BLOCK as u64).unwrap();
            file.sync_data().unwrap();
        }
        let [writes, syncs] = [asked()[0] - writes, asked()[1] - syncs];
        assert_eq!(writes, WRITES, "flags {flags:#o}");
        assert!(syncs < WRITES / 4, "flags {flags:#o}: {syncs} syncs");
        assert_eq!(fs::read(&path).unwrap().len(), BLOCK * 256);
    }
}

#[test]
fn a_mount_may_be_told_to_keep_nothing_back() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--write-back", "0"]);
    let file = File::create(second.point.join("f")).unwrap();
    file.write_all_at(&vec![b'.'; BEGINNING], 0).unwrap();
    let before = writes(&cluster);
    for number in 0..100 {
        file.write_all_at(b"y", number).unwrap();
    }
    assert!(writes(&cluster) - before >= 100.0);
}

/// Long ones stay as they came until they are written, small ones are gathered; whatever overlaps, the newest bytes win.
#[test]
fn long_and_short_writes_over_each_other_are_as_a_local_file() {
    const SIZE: usize = 6 << 20;
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let file = keeping(&cluster, &path);
    let mut expected = vec![0; SIZE];
    file.set_len(SIZE as u64).unwrap();
    expected[..BEGINNING].fill(b'.');
    expected[..4].fill(b'x');
    let mut dice = Dice::new(seed());
    for _ in 0..300 {
        let len = 1 + match dice.roll(3) {
            0 => dice.index(10_000),
            1 => (256 << 10) + dice.index(600_000),
            _ => dice.index(300_000),
        };
        let at = dice.index(SIZE - len);
        match dice.roll(40) {
            0 => assert!(fs::read(same_on(&second, &path)).unwrap() == expected),
            1 => {
                file.set_len(at as u64).unwrap();
                file.set_len(SIZE as u64).unwrap();
                expected[at..].fill(0);
            }
            2 => file.sync_data().unwrap(),
            3 => {
                let mut found = vec![0; len];
                file.read_exact_at(&mut found, at as u64).unwrap();
                assert!(found == expected[at..at + len], "{len} bytes at {at}");
            }
            _ => {
                let data = dice.bytes(len);
                file.write_all_at(&data, at as u64).unwrap();
                expected[at..at + len].copy_from_slice(&data);
            }
        }
    }
    drop(file);
    assert!(fs::read(same_on(&second, &path)).unwrap() == expected);
    cluster.assert_sound();
}

/// A program that writes long pieces goes on before they are at the servers.
#[test]
fn long_writes_are_not_waited_for() {
    const PIECE: usize = 1 << 20;
    let cluster = Cluster::start();
    let path = cluster.path("f");
    let file = keeping(&cluster, &path);
    (0..4).for_each(|number| file.write_all_at(&vec![1; PIECE], number * PIECE as u64).unwrap());
    file.sync_data().unwrap();
    // What is kept back shows while the server stands still.
    let storage = cluster.pid("storaged-1").unwrap();
    process::stop(storage);
    let file = wait::within("a long write without the server", SOON, move || {
        file.write_all_at(&vec![2; PIECE], 0).unwrap();
        file
    });
    process::signal(storage, libc::SIGCONT);
    file.sync_data().unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content[..PIECE].iter().all(|&byte| byte == 2) && content[PIECE..].iter().all(|&byte| byte == 1));
    cluster.assert_sound();
}

/// Who asks for it with each write, or by the flags of the open file, has each write on the disk.
#[test]
fn synchronous_writes_are_not_kept_back() {
    let (cluster, second) = two_mounts();
    let path = second.point.join("f");
    drop(keeping(&cluster, &path));
    let syncs = || metrics::sum(&cluster, "storage", "weft_request_seconds_count", &["op=\"Sync\""]);
    let before = (writes(&cluster), syncs());
    let file = File::options().write(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    for number in 0..20 {
        file.write_all_at(b"synced", 100 * number).unwrap();
    }
    assert!(writes(&cluster) - before.0 >= 20.0 && syncs() - before.1 >= 20.0);
    // Also what is changed without being written.
    let before = syncs();
    let source = File::open(cluster.path("f")).unwrap();
    syscall::copy_range((&source, 0), (&file, 1 << 20), 4096).unwrap();
    assert!(syncs() > before, "a copy");
    let before = syncs();
    syscall::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 1 << 20, 100).unwrap();
    assert!(syncs() > before, "zeros");
    let (before, plain) = (syncs(), File::options().write(true).open(&path).unwrap());
    assert_eq!(syscall::write_synced(&plain, b"synced", 0).unwrap(), 6);
    assert!(syncs() > before, "one write");
    process::kill(second.pid);
    let content = fs::read(cluster.path("f")).unwrap();
    assert!((0..20).all(|number| content[100 * number..][..6] == *b"synced"));
}

/// The lease ends meanwhile, under which what is written is kept back: nothing of it is lost.
#[test]
fn a_shard_that_stands_still_holds_up_no_small_writes() {
    let cluster = Cluster::start();
    cluster.set_lease_term("4s");
    let path = cluster.path("f");
    let file = Arc::new(keeping(&cluster, &path));
    let metad = cluster.pid("metad-1").unwrap();
    // From there on; where it ends.
    let write_for = |seconds, mut at| {
        let file = Arc::clone(&file);
        move || {
            let end = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < end {
                file.write_all_at(&[b'y'; 100], at).unwrap();
                at += 100;
                thread::sleep(Duration::from_millis(5));
            }
            at
        }
    };
    let at = write_for(2, BEGINNING as u64)();
    process::stop(metad);
    // One that needed the shard would wait for as long as that is stopped.
    let at = wait::within("writes without the shard", SOON, write_for(7, at));
    process::signal(metad, libc::SIGCONT);
    let at = write_for(1, at)();
    file.sync_all().unwrap();
    drop(file);
    let content = fs::read(&path).unwrap();
    assert!(content.len() as u64 == at && content[BEGINNING..].iter().all(|&byte| byte == b'y'));
    cluster.assert_sound();
}

#[test]
fn times_that_are_set_win_over_what_was_kept_back_before() {
    let (cluster, second) = two_mounts();
    let path = cluster.path("f");
    let file = keeping(&cluster, &path);
    let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for round in 0..3 {
        file.write_all_at(b"kept", 50).unwrap();
        file.set_modified(set).unwrap();
        assert_eq!(fs::metadata(same_on(&second, &path)).unwrap().modified().unwrap(), set, "round {round}");
        // The lease comes back.
        thread::sleep(Duration::from_millis(1200));
        (0..3).for_each(|at| file.write_all_at(b"x", at).unwrap());
    }
}

/// What `close` could not write does not come later, over what the file was settled as.
#[test]
fn what_close_could_not_write_is_gone_for_good() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--retry-timeout", "2s"]);
    let path = second.point.join("f");
    let storaged = cluster.pid("storaged-1").unwrap();
    // A mount may also write at once, as where its lease is due to be renewed on a busy machine: then this is no such close.
    let (file, reader) = wait::until("a write that is kept back", SOON, || {
        let file = keeping(&cluster, &path);
        // Somebody reads on.
        let reader = File::open(&path).unwrap();
        process::stop(storaged);
        let written = file.write_all_at(&[b'z'; 1000], BEGINNING as u64);
        if written.is_err() {
            process::signal(storaged, libc::SIGCONT);
        }
        written.ok().map(|()| (file, reader))
    });
    // SAFETY: the descriptor is not used any more.
    assert_eq!(unsafe { libc::close(file.into_raw_fd()) }, -1, "it tells");
    process::signal(storaged, libc::SIGCONT);
    let len = || fs::metadata(cluster.path("f")).unwrap().len();
    let settled = wait::until("it is settled", SOON, || {
        let info = cluster.json(&["entry", "info", "/f"]);
        (info["unsettled"] == false).then(len)
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(len(), settled);
    assert_eq!(reader.metadata().unwrap().len(), settled);
    cluster.assert_sound();
}
