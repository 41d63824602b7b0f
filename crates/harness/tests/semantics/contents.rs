//! Contents, space and times.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use harness::file_flags::{self, IMMUTABLE};
use harness::syscall;
use harness::wait::until;

use crate::{Place, bytes, errno, open, stamp, tick};

pub(super) fn holes_read_as_zeros(place: &Place) {
    let (a, b) = place.both("f");
    let file = open(&a);
    file.write_all_at(b"end", 5_000_000).unwrap();
    file.set_len(9_000_000).unwrap();
    file.set_len(5_000_002).unwrap();
    file.set_len(6_000_000).unwrap();
    let content = fs::read(&b).unwrap();
    assert_eq!(content.len(), 6_000_000);
    assert!(content[..5_000_000].iter().all(|&byte| byte == 0));
    assert_eq!(&content[5_000_000..5_000_003], b"en\0", "what was cut off does not come back");
}

/// Filled chunk by chunk and emptied at once: nobody sees a zero, or a size in between.
pub(super) fn truncates_are_one_moment(place: &Place) {
    const CHUNK: usize = 512 << 10;
    const CHUNKS: usize = 5;
    let (a, b) = place.both("f");
    let (file, other, chunk) = (open(&a), open(&b), vec![7; CHUNK]);
    let fill = || (0..CHUNKS).for_each(|n| file.write_all_at(&chunk, (n * CHUNK) as u64).unwrap());
    fill();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let look = |number: u64| {
            let mut part = vec![0; 128 << 10];
            let mut at = number * 1_000_003;
            while !done.load(Ordering::Relaxed) {
                at = (at + 1_234_567) % (CHUNK * CHUNKS) as u64;
                let read = other.read_at(&mut part, at).unwrap();
                assert!(part[..read].iter().all(|&byte| byte == 7), "zeros in {read} bytes from {at}");
                let len = other.metadata().unwrap().len();
                assert_eq!(len % CHUNK as u64, 0, "a size in between");
            }
        };
        let lookers = [0, 1].map(|number| scope.spawn(move || look(number)));
        for _ in 0..100 {
            file.set_len(0).unwrap();
            fill();
            if lookers.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Written far from the beginning, then nearer to it, then made longer: nobody sees the nearer end, or one on the way.
pub(super) fn sizes_were_those_of_some_moment(place: &Place) {
    const CHUNK: u64 = 512 << 10;
    const SIZES: [u64; 3] = [0, 4 * CHUNK + 100, 9 * CHUNK + 100];
    let (a, b) = place.both("f");
    let (file, other) = (open(&a), open(&b));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let look = || {
            while !done.load(Ordering::Relaxed) {
                let len = other.metadata().unwrap().len();
                assert!(SIZES.contains(&len), "{len} was never the size");
            }
        };
        let lookers = [(); 2].map(|()| scope.spawn(look));
        for _ in 0..150 {
            file.write_all_at(b"far", SIZES[1] - 3).unwrap();
            file.write_all_at(b"nearer", CHUNK + 7).unwrap();
            file.set_len(SIZES[2]).unwrap();
            file.set_len(0).unwrap();
            if lookers.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

pub(super) fn files_grow_out_of_the_metadata(place: &Place) {
    let (a, b) = place.both("f");
    let (file, all) = (open(&a), bytes(10_000));
    let other = open(&b);
    let mut begin = 0;
    for end in [1, 4000, 4096, 4097, 10_000] {
        file.write_all_at(&all[begin..end], begin as u64).unwrap();
        let mut read = vec![0; 10_001];
        let count = other.read_at(&mut read, 0).unwrap();
        assert!(count == end && read[..end] == all[..end], "{end} bytes");
        assert!(fs::read(&b).unwrap() == all[..end], "{end} bytes, opened anew");
        assert_eq!(fs::metadata(&b).unwrap().len(), end as u64);
        begin = end;
    }
    // Each by what makes it grow.
    type Grow = fn(&File);
    let grow: [(&str, Grow); 3] = [
        ("truncate", |file| file.set_len(5000).unwrap()),
        ("append", |file| file.write_all_at(&[7; 5000], 3).unwrap()),
        ("fallocate", |file| syscall::fallocate(file, 0, 10, 100).unwrap()),
    ];
    for (name, grow) in grow {
        let (a, b) = place.both(name);
        let (file, other) = (open(&a), open(&b));
        other.write_all_at(b"abc", 0).unwrap();
        grow(&file);
        other.write_all_at(b"x", 1).unwrap();
        let (mine, theirs) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
        assert!(mine == theirs && mine.starts_with(b"axc") && mine.len() > 100, "{name}");
    }
}

pub(super) fn blocks_are_what_is_allocated(place: &Place) {
    let (a, b) = place.both("f");
    let small = open(&place.here.join("small"));
    small.write_all_at(&bytes(600), 0).unwrap();
    assert_eq!(fs::metadata(place.there.join("small")).unwrap().blocks(), 2);
    let file = open(&a);
    file.write_all_at(&bytes(3 << 20), 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(&b).unwrap().blocks(), (3 << 20) / 512);
    file.set_len(1 << 30).unwrap();
    file.write_all_at(&bytes(4096), 1 << 29).unwrap();
    file.sync_all().unwrap();
    let expected = (3 << 20) / 512 + 8;
    assert_eq!(file.metadata().unwrap().blocks(), expected, "to the writer");
    assert_eq!(fs::metadata(&b).unwrap().blocks(), expected, "to others");
    drop(file);
    assert_eq!(fs::metadata(&b).unwrap().blocks(), expected, "after the close");
}

pub(super) fn fallocate_reserves_punches_and_zeros(place: &Place) {
    let (a, b) = place.both("f");
    let file = open(&a);
    syscall::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 4 << 20).unwrap();
    let meta = fs::metadata(&b).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (0, (4 << 20) / 512));
    syscall::fallocate(&file, 0, 1 << 20, 4 << 20).unwrap();
    let meta = fs::metadata(&b).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (5 << 20, (5 << 20) / 512));
    file.write_all_at(&bytes(5 << 20), 0).unwrap();
    syscall::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 1 << 20, 2 << 20).unwrap();
    syscall::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 4 << 20, 2 << 20).unwrap();
    let mut expected = bytes(6 << 20);
    expected[1 << 20..3 << 20].fill(0);
    expected[4 << 20..].fill(0);
    assert!(fs::read(&b).unwrap() == expected);
    assert_eq!(fs::metadata(&b).unwrap().blocks(), (4 << 20) / 512);
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(errno(syscall::fallocate(&file, mode, 0, 1 << 20)), libc::EOPNOTSUPP);
    }
    // A truncate gives back what was reserved.
    syscall::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 20 << 20).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().blocks(), 0);
    // A hole where nothing was is a change, too.
    let (a, b) = place.both("empty");
    let file = open(&a);
    let before = fs::metadata(&b).unwrap().modified().unwrap();
    syscall::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096).unwrap();
    let modified = fs::metadata(&b).unwrap().modified().unwrap();
    assert!(modified > before, "{modified:?}, {before:?} before");
    assert_eq!(file.metadata().unwrap().modified().unwrap(), modified);
    drop(file);
    assert_eq!(fs::metadata(&b).unwrap().modified().unwrap(), modified);
}

pub(super) fn seek_finds_data_and_holes(place: &Place) {
    let (a, b) = place.both("f");
    let file = open(&a);
    // Over several chunks of several objects.
    file.write_all_at(&bytes(1 << 20), 3 << 20).unwrap();
    file.write_all_at(&bytes(4096), 9 << 20).unwrap();
    file.set_len(20 << 20).unwrap();
    let other = File::open(&b).unwrap();
    for look in [&file, &other] {
        assert_eq!(syscall::seek(look, 0, false).unwrap(), 3 << 20);
        assert_eq!(syscall::seek(look, 0, true).unwrap(), 0);
        assert_eq!(syscall::seek(look, (3 << 20) + 5, true).unwrap(), 4 << 20);
        assert_eq!(syscall::seek(look, 4 << 20, false).unwrap(), 9 << 20);
        assert_eq!(syscall::seek(look, 9 << 20, true).unwrap(), (9 << 20) + 4096);
        assert_eq!(errno(syscall::seek(look, 10 << 20, false)), libc::ENXIO);
        assert_eq!(errno(syscall::seek(look, 20 << 20, true)), libc::ENXIO);
    }
    let full = open(&place.here.join("full"));
    full.write_all_at(&bytes(3_000_000), 0).unwrap();
    assert_eq!(syscall::seek(&full, 7, true).unwrap(), 3_000_000, "the end is a hole");
}

pub(super) fn copies_stay_on_the_servers(place: &Place) {
    let (a, b) = place.both("source");
    let source = open(&a);
    let data = bytes(5_000_000);
    source.write_all_at(&data, 0).unwrap();
    source.write_all_at(b"tail", 12 << 20).unwrap();
    let (from, to) = (File::open(&b).unwrap(), open(&place.there.join("target")));
    let (mut done, all) = (0, (12 << 20) + 4);
    loop {
        match syscall::copy_range((&from, done), (&to, done), all + 1000).unwrap() {
            0 => break,
            count => done += count as u64,
        }
    }
    assert_eq!(done, all as u64);
    let (source_content, target) = (fs::read(&a).unwrap(), fs::read(place.here.join("target")).unwrap());
    assert!(source_content == target);
    assert!(fs::metadata(place.here.join("target")).unwrap().blocks() < (6 << 20) / 512, "holes stay holes");
    // Within one file, from anywhere to anywhere.
    assert_eq!(syscall::copy_range((&to, 100), (&to, 7_000_001), 1_234_567).unwrap(), 1_234_567);
    let content = fs::read(place.here.join("target")).unwrap();
    assert!(content[7_000_001..7_000_001 + 1_234_567] == data[100..100 + 1_234_567]);
}

pub(super) fn large_offsets(place: &Place) {
    let (a, b) = place.both("f");
    let file = open(&a);
    let far = 1 << 43;
    file.write_all_at(b"far", far).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().len(), far + 3);
    let mut seen = [0; 3];
    File::open(&b).unwrap().read_exact_at(&mut seen, far).unwrap();
    assert_eq!(&seen, b"far");
    file.set_len(far + 1).unwrap();
    assert_eq!((&file).seek(SeekFrom::End(0)).unwrap(), far + 1);
    assert_eq!(errno(file.set_len((1 << 62) + 1)), libc::EFBIG);
}

pub(super) fn times_have_nanoseconds(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    syscall::utimens(&a, 1_234_567_891_234_567_891, -1_000_000_001).unwrap();
    let (atime, mtime, ctime) = stamp(&b);
    assert_eq!((atime, mtime), (1_234_567_891_234_567_891, -1_000_000_001));
    tick();
    fs::set_permissions(&a, Permissions::from_mode(0o600)).unwrap();
    assert!(stamp(&b).2 > ctime);
    assert_ne!(stamp(&b).2 % 1_000_000, 0, "not whole milliseconds");
}

pub(super) fn writes_after_other_changes_change_the_time(place: &Place) {
    type Change = fn(&File);
    let changes: [(&str, Change); 2] = [
        ("chmod", |file| file.set_permissions(Permissions::from_mode(0o640)).unwrap()),
        ("times", |file| file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap()),
    ];
    let writes: [(&str, Change); 5] = [
        ("short", |file| file.write_all_at(b"x", 0).unwrap()),
        ("long", |file| file.write_all_at(&bytes(300_000), 0).unwrap()),
        ("append", |file| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().append(true).open(path).unwrap().write_all(b"x").unwrap();
        }),
        ("punch", |file| {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            syscall::fallocate(file, mode, 0, 4096).unwrap();
        }),
        ("copy", |file| assert_eq!(syscall::copy_range((file, 0), (file, 50_000), 1000).unwrap(), 1000)),
    ];
    for (what, change) in changes {
        for (how, write) in writes {
            let (a, b) = place.both(&format!("{what}-{how}"));
            open(&a).write_all_at(&bytes(100_000), 0).unwrap();
            let before = fs::metadata(&b).unwrap().modified().unwrap();
            thread::sleep(Duration::from_millis(20));
            let file = open(&a);
            change(&file);
            write(&file);
            let modified = fs::metadata(&b).unwrap().modified().unwrap();
            assert!(modified > before, "{what}, {how}, open: {modified:?}, {before:?} before");
            drop(file);
            let modified = fs::metadata(&b).unwrap().modified().unwrap();
            assert!(modified > before, "{what}, {how}: {modified:?}, {before:?} before");
        }
    }
}

/// What a mount keeps back for a while is told as of the time at which it was written.
pub(super) fn times_of_writes_stay(place: &Place) {
    for (name, len) in [("short", 10), ("long", 1 << 20)] {
        let (a, b) = place.both(name);
        open(&a).write_all_at(&bytes(100_000), 0).unwrap();
        let file = open(&a);
        file.write_all_at(&bytes(len), 0).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        thread::sleep(Duration::from_millis(100));
        for path in [&b, &a] {
            let seen = fs::metadata(path).unwrap().modified().unwrap();
            let later = seen.duration_since(written).unwrap_or_default();
            assert!(later < Duration::from_millis(50), "{name}: {seen:?}, {written:?} when it was written");
        }
    }
}

pub(super) fn birth_times(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    let born = syscall::born(&b).unwrap();
    tick();
    fs::write(&a, "changed").unwrap();
    fs::rename(&a, place.here.join("g")).unwrap();
    assert_eq!(syscall::born(&place.there.join("g")).unwrap(), born);
    assert!(stamp(&place.there.join("g")).1 > born);
}

pub(super) fn relatime(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "content").unwrap();
    let before = stamp(&b).0;
    tick();
    fs::read(&a).unwrap();
    let first = accessed_after(&b, before);
    tick();
    fs::read(&a).unwrap();
    assert_eq!(stamp(&b).0, first, "no other until the next change");
    tick();
    fs::write(&a, "changed").unwrap();
    tick();
    fs::read(&a).unwrap();
    accessed_after(&b, first);
    // Seen by the reader before it has closed the file.
    tick();
    fs::write(&a, "again").unwrap();
    let (mut open, before) = (File::open(&a).unwrap(), stamp(&a).0);
    tick();
    open.read_exact(&mut [0; 3]).unwrap();
    assert!(stamp(&a).0 > before);
    drop(open);
    accessed_after(&b, before);
    let quiet = File::options().read(true).custom_flags(libc::O_NOATIME).open(&a).unwrap();
    fs::write(&a, "and again").unwrap();
    let before = stamp(&b).0;
    tick();
    quiet.read_at(&mut [0; 3], 0).unwrap();
    drop(quiet);
    assert_eq!(stamp(&b).0, before);
    // Also where that is said, or taken back, after the open.
    for (opened, since) in [(0, libc::O_NOATIME), (libc::O_NOATIME, 0)] {
        let reader = File::options().read(true).custom_flags(opened).open(&a).unwrap();
        syscall::set_open_flags(&reader, since).unwrap();
        tick();
        reader.read_at(&mut [0; 3], 0).unwrap();
        assert_eq!(stamp(&a).0 == before, since == libc::O_NOATIME, "{opened:o}");
    }
    fs::create_dir(place.here.join("d")).unwrap();
    let before = stamp(&place.there.join("d")).0;
    tick();
    assert_eq!(fs::read_dir(place.here.join("d")).unwrap().count(), 0);
    // Directories too.
    accessed_after(&place.there.join("d"), before);
}

/// The access time as soon as it is later than `before`: a close is told after it has returned.
fn accessed_after(path: &Path, before: i64) -> i64 {
    until("another access time", Duration::from_secs(60), || Some(stamp(path).0).filter(|&accessed| accessed > before))
}

pub(super) fn set_times_win(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "content").unwrap();
    tick();
    let mut file = open(&a);
    file.read_exact(&mut [0; 3]).unwrap();
    file.write_all(b"more").unwrap();
    syscall::utimens(&b, 5, 6).unwrap();
    assert_eq!((stamp(&a).0, stamp(&a).1), (5, 6));
    drop(file);
    assert_eq!((stamp(&a).0, stamp(&b).1), (5, 6), "also after the close");

    // To what they were, as who puts them back.
    let (a, b) = place.both("g");
    fs::write(&a, bytes(100_000)).unwrap();
    let (atime, mtime, _) = stamp(&b);
    tick();
    let file = open(&a);
    file.write_all_at(b"more", 0).unwrap();
    assert!(stamp(&a).1 > mtime);
    tick();
    syscall::utimens(&b, atime, mtime).unwrap();
    assert_eq!((stamp(&a).1, stamp(&b).1), (mtime, mtime));
    drop(file);
    assert_eq!((stamp(&a).1, stamp(&b).1), (mtime, mtime), "also after the close");
    tick();
    let file = open(&a);
    file.write_all_at(b"again", 0).unwrap();
    drop(file);
    assert!(stamp(&a).1 > mtime && stamp(&b).1 > mtime);
}

pub(super) fn other_changes_leave_the_time_of_the_last_write(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, bytes(1 << 20)).unwrap();
    let before = stamp(&b).1;
    tick();
    let writers = [open(&a), open(&b)];
    for (at, file) in writers.iter().enumerate() {
        file.write_all_at(b"written", 100 * at as u64).unwrap();
        file.sync_all().unwrap();
    }
    let written = now();
    // One mount may take its own clock's time until another looks, who takes the disk's.
    let is_of_write = |path: &Path| (before + 1..=written).contains(&stamp(path).1);
    tick();
    fs::set_permissions(&b, Permissions::from_mode(0o640)).unwrap();
    assert!(is_of_write(&a) && is_of_write(&b), "the mode is no part of the contents");
    let (a, b) = (place.here.join("g"), place.there.join("g"));
    fs::rename(place.here.join("f"), &a).unwrap();
    assert!(is_of_write(&b));
    drop(writers);
    assert!(is_of_write(&a) && is_of_write(&b));
    tick();
    assert!(is_of_write(&a) && is_of_write(&b), "also when the close is over");

    // A change of times that is refused changes none.
    let before = stamp(&b).1;
    tick();
    let file = open(&a);
    file.write_all_at(b"once more", 0).unwrap();
    let written = now();
    let is_of_write = |path: &Path| (before + 1..=written).contains(&stamp(path).1);
    tick();
    file_flags::set(&b, IMMUTABLE).unwrap();
    assert_eq!(errno(syscall::utimens(&a, 5, 6)), libc::EPERM);
    assert!(is_of_write(&a) && is_of_write(&b));
    file_flags::set(&b, 0).unwrap();
    drop(file);
    tick();
    assert!(is_of_write(&a) && is_of_write(&b));
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

pub(super) fn mappings_do_not_make_files_longer(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, bytes(1 << 20)).unwrap();
    let mut mapped = syscall::Mapping::new(&open(&a), 1 << 20).unwrap();
    let other = open(&b);
    other.write_all_at(b"x", 0).unwrap();
    mapped.write(4096, b"changed");
    other.set_len(0).unwrap();
    mapped.sync().unwrap();
    assert_eq!((fs::metadata(&a).unwrap().len(), fs::metadata(&b).unwrap().len()), (0, 0));
}
