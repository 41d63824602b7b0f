//! Two mounts of one cluster: what one finished, the other sees at once.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use harness::cluster::Cluster;
use harness::dice::{Dice, seed};
use harness::run::shell;
use harness::syscall;

struct Pair {
    cluster: Cluster,
    second: PathBuf,
}

impl Pair {
    fn new() -> Self {
        let mut cluster = Cluster::start();
        // One over io_uring where the kernel has it, the other over /dev/fuse.
        let second = cluster.mount_again(&["--fuse-channel", "dev"]).point;
        Self { cluster, second }
    }

    /// The same name through both mounts.
    fn both(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.cluster.path(name), self.second.join(name))
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn names_are_seen_at_once() {
    let pair = Pair::new();
    let (a, b) = (pair.cluster.mount_point(), pair.second.clone());
    for round in 0..50 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        // Asked before, so that a cache would know that it is absent.
        assert!(!there.join("f").exists(), "round {round}");
        fs::write(here.join("f"), b"x").unwrap();
        assert!(there.join("f").exists(), "round {round}");
        fs::create_dir(here.join("d")).unwrap();
        assert!(there.join("d").is_dir());
        fs::rename(here.join("f"), here.join("d/g")).unwrap();
        assert!(!there.join("f").exists() && there.join("d/g").exists(), "round {round}");
        let listed: BTreeSet<_> = fs::read_dir(there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(listed, BTreeSet::from(["d".into()]), "round {round}");
        symlink("d/g", here.join("s")).unwrap();
        assert_eq!(fs::read_link(there.join("s")).unwrap(), Path::new("d/g"));
        fs::hard_link(here.join("d/g"), here.join("h")).unwrap();
        assert_eq!(fs::metadata(there.join("d/g")).unwrap().nlink(), 2);
        for name in ["s", "h", "d/g"] {
            fs::remove_file(here.join(name)).unwrap();
            assert_eq!(fs::symlink_metadata(there.join(name)).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
        }
        fs::remove_dir(here.join("d")).unwrap();
        assert!(!there.join("d").exists());
    }
    pair.cluster.assert_sound();
}

#[test]
fn contents_and_sizes_are_seen_at_once_also_of_files_still_open() {
    let pair = Pair::new();
    let (a, b) = pair.both("f");
    let writer = File::options().create_new(true).read(true).write(true).open(&a).unwrap();
    let reader = File::open(&b).unwrap();
    let mut expected = Vec::new();
    let mut dice = Dice::new(seed());
    for _ in 0..40 {
        let longest = *dice.pick(&[100, 10_000, 700_000]);
        let len_now = dice.index(longest) + 1;
        let data = dice.bytes(len_now);
        let offset = dice.index(expected.len() + 2000);
        writer.write_all_at(&data, offset as u64).unwrap();
        expected.resize(expected.len().max(offset + data.len()), 0);
        expected[offset..offset + data.len()].copy_from_slice(&data);
        assert_eq!(len(&b), expected.len() as u64, "by name");
        assert_eq!(reader.metadata().unwrap().len(), expected.len() as u64, "by handle");
        let mut seen = vec![0; expected.len() + 1];
        let count = read_whole(&reader, &mut seen);
        assert!(seen[..count] == expected, "content");
    }
    for size in [300_000, 10, 0, 5_000_000, 123] {
        writer.set_len(size).unwrap();
        assert_eq!(len(&b), size);
        assert_eq!(fs::read(&b).unwrap().len() as u64, size);
    }
    // The other mount has it open too and is not the first to write.
    let other = File::options().read(true).write(true).open(&b).unwrap();
    other.write_all_at(b"other", 200).unwrap();
    assert_eq!((writer.metadata().unwrap().len(), len(&a)), (205, 205));
    writer.write_all_at(b"first", 1000).unwrap();
    assert_eq!((other.metadata().unwrap().len(), len(&b)), (1005, 1005));
    // Neither trusts what it knew of the size before the other wrote.
    for (turn, (ours, theirs)) in [(&writer, &other), (&other, &writer), (&writer, &other)].into_iter().enumerate() {
        ours.write_all_at(b"next", 1005 + 4 * turn as u64).unwrap();
        let mut seen = vec![0; 2000];
        assert_eq!(read_whole(theirs, &mut seen), 1009 + 4 * turn);
        assert!(seen[..1009 + 4 * turn].ends_with(b"next"));
    }
    writer.set_len(1005).unwrap();
    assert_eq!(read_whole(&other, &mut vec![0; 2000]), 1005);
    drop(writer);
    assert_eq!(other.metadata().unwrap().len(), 1005);
    other.set_len(7).unwrap();
    drop(other);
    assert_eq!((len(&a), len(&b)), (7, 7));
    pair.cluster.assert_sound();
}

fn read_whole(file: &File, buffer: &mut [u8]) -> usize {
    let mut count = 0;
    loop {
        match file.read_at(&mut buffer[count..], count as u64).unwrap() {
            0 => return count,
            more => count += more,
        }
    }
}

#[test]
fn attributes_are_seen_at_once() {
    let pair = Pair::new();
    let (a, b) = pair.both("f");
    fs::write(&a, b"abc").unwrap();
    for mode in [0o600, 0o4755, 0o444, 0o644] {
        fs::set_permissions(&a, Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, mode);
    }
    std::os::unix::fs::chown(&b, Some(12), Some(34)).unwrap();
    let meta = fs::metadata(&a).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (12, 34));
    syscall::utimens(&a, 1_000_000_007, -5).unwrap();
    let meta = fs::metadata(&b).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()), (1, 7, -1, 999_999_995));
    for _ in 0..3 {
        // Both know now that there are none.
        for path in [&a, &b] {
            fs::metadata(path).unwrap();
            assert_eq!(syscall::getxattr(path, "user.k").unwrap_err().raw_os_error(), Some(libc::ENODATA));
            assert_eq!(syscall::listxattr(path).unwrap(), Vec::<Vec<u8>>::new());
        }
        syscall::setxattr(&a, "user.k", b"one", 0).unwrap();
        assert_eq!(syscall::getxattr(&a, "user.k").unwrap(), b"one");
        assert_eq!(syscall::getxattr(&b, "user.k").unwrap(), b"one");
        syscall::setxattr(&b, "user.k", b"two", 0).unwrap();
        assert_eq!(syscall::getxattr(&a, "user.k").unwrap(), b"two");
        syscall::removexattr(&a, "user.k").unwrap();
    }
    let before = fs::metadata(&b).unwrap();
    thread::sleep(std::time::Duration::from_millis(15));
    let mut open = File::options().append(true).open(&a).unwrap();
    open.write_all(b"d").unwrap();
    let after = fs::metadata(&b).unwrap();
    assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()), "a write changes mtime");
    assert_eq!(after.len(), 4);
    pair.cluster.assert_sound();
}

/// Each line is there once and whole: O_APPEND finds the end that the others left.
#[test]
fn appends_from_both_mounts_one_after_another_lose_nothing() {
    let pair = Pair::new();
    let (a, b) = pair.both("log");
    fs::write(&a, b"").unwrap();
    let mut handles = [a.clone(), b].map(|path| File::options().append(true).open(path).unwrap());
    for line in 0..200 {
        handles[line % 2].write_all(format!("line {line}\n").as_bytes()).unwrap();
    }
    let expected: String = (0..200).map(|line| format!("line {line}\n")).collect();
    assert_eq!(fs::read_to_string(&a).unwrap(), expected);
    pair.cluster.assert_sound();
}

#[test]
fn a_file_that_is_open_here_outlives_its_removal_there() {
    let pair = Pair::new();
    let (a, b) = pair.both("f");
    fs::write(&a, vec![7; 600_000]).unwrap();
    let open = File::options().read(true).write(true).open(&a).unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    open.write_all_at(b"more", 600_000).unwrap();
    let mut content = vec![0; 600_100];
    assert_eq!(read_whole(&open, &mut content), 600_004);
    assert!(content[..600_000].iter().all(|&byte| byte == 7) && content[600_000..].starts_with(b"more"));
    // The same name, another file.
    fs::write(&b, b"new").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"new");
    assert_eq!(open.metadata().unwrap().len(), 600_004);
    drop(open);
    pair.cluster.assert_sound();
}

/// This mount knows of one chunk, in one object; the other has made it five, in four.
#[test]
fn fsync_syncs_the_objects_that_the_other_mount_appended_to() {
    const CHUNK: usize = 512 << 10;
    let pair = Pair::new();
    let (a, b) = pair.both("f");
    let ours = File::create(&a).unwrap();
    ours.write_all_at(&[1; CHUNK], 0).unwrap();
    let syncs = || harness::metrics::sum(&pair.cluster, "storage", "weft_request_seconds_count", &["op=\"Sync\""]);
    let before = syncs();
    ours.sync_all().unwrap();
    assert_eq!(syncs() - before, 1.0, "there is one object");
    let theirs = File::options().append(true).open(&b).unwrap();
    (&theirs).write_all(&vec![2; 4 * CHUNK]).unwrap();
    let before = syncs();
    ours.sync_all().unwrap();
    assert_eq!(syncs() - before, 4.0, "all objects of the file, whoever wrote to them");
    pair.cluster.assert_sound();
}

#[test]
fn an_idle_mount_keeps_what_it_has_open() {
    let mut cluster = Cluster::expiring_after(2);
    let second = cluster.mount_again(&[]).point;
    fs::write(second.join("f"), vec![7; 100_000]).unwrap();
    let open = File::open(second.join("f")).unwrap();
    fs::remove_file(cluster.path("f")).unwrap();
    thread::sleep(std::time::Duration::from_secs(6));
    let mut content = vec![0; 100_001];
    assert_eq!(read_whole(&open, &mut content), 100_000);
    assert!(content[..100_000].iter().all(|&byte| byte == 7));
    assert!(!cluster.log("metad-1").contains("its session has ended"), "an idle client is not a dead one");
}

/// A program that is built on one mount runs from the other, and both see the same tree.
#[test]
fn programs_work_together_over_both_mounts() {
    let pair = Pair::new();
    let (a, b) = pair.both(".");
    shell(&a, "mkdir p && printf 'int main(void){return 42;}' > p/m.c");
    shell(&b, "gcc -o p/m p/m.c");
    shell(&a, "set +e; ./p/m; [ $? = 42 ]");
    shell(&b, "printf 'int main(void){return 43;}' > p/m.c && gcc -o p/m p/m.c");
    shell(&a, "set +e; ./p/m; [ $? = 43 ]");
    pair.cluster.assert_sound();
}

#[test]
fn both_mounts_at_once_make_and_remove_in_one_directory() {
    let pair = Pair::new();
    let (a, b) = pair.both("d");
    fs::create_dir(&a).unwrap();
    thread::scope(|scope| {
        for (who, root) in [("a", &a), ("b", &b)] {
            scope.spawn(move || {
                for number in 0..150 {
                    let path = root.join(format!("{who}-{number}"));
                    fs::write(&path, who).unwrap();
                    fs::rename(&path, root.join(format!("{who}-kept-{number}"))).unwrap();
                    if number % 3 == 0 {
                        fs::remove_file(root.join(format!("{who}-kept-{number}"))).unwrap();
                    }
                    // Exactly one of both makes it.
                    let shared = root.join(format!("shared-{number}"));
                    if File::options().create_new(true).write(true).open(&shared).is_ok() {
                        fs::write(root.join(format!("won-{number}-{who}")), b"").unwrap();
                    }
                }
            });
        }
    });
    let seen = names(&a);
    assert_eq!(seen, names(&b));
    assert_eq!(seen.iter().filter(|name| name.contains("kept")).count(), 200);
    assert_eq!(seen.iter().filter(|name| name.starts_with("won")).count(), 150);
    pair.cluster.assert_sound();
}

/// Listings of others are under way all the time, which may be put together from what the kernel keeps of them.
#[test]
fn a_listing_has_nothing_that_was_removed_before_it_began() {
    let pair = Pair::new();
    let (a, b) = pair.both("d");
    fs::create_dir(&a).unwrap();
    thread::scope(|scope| {
        for number in 0..8 {
            let root = if number < 7 { &a } else { &b };
            scope.spawn(move || {
                for round in 0..400 {
                    let name = format!("{number}-{round}");
                    let path = root.join(&name);
                    File::create_new(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                    assert!(!names(root).contains(&name), "{name} is in the listing");
                }
            });
        }
    });
    pair.cluster.assert_sound();
}
