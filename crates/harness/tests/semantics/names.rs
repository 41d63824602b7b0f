//! Names, and who sees what when.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use harness::aio::Aio;
use harness::syscall;

use crate::collisions::names_of;
use crate::{Place, bytes, errno, open};

pub(super) fn changes_are_seen_at_once(place: &Place) {
    let (a, b) = place.both("f");
    for round in 0..10 {
        assert!(!b.exists());
        fs::write(&a, format!("round {round}")).unwrap();
        assert_eq!(fs::read_to_string(&b).unwrap(), format!("round {round}"));
        fs::set_permissions(&b, Permissions::from_mode(0o600 + round)).unwrap();
        assert_eq!(fs::metadata(&a).unwrap().mode() & 0o7777, 0o600 + round);
        fs::rename(&b, place.there.join("g")).unwrap();
        assert!(!a.exists() && place.here.join("g").exists());
        fs::remove_file(place.here.join("g")).unwrap();
    }
}

pub(super) fn open_files_see_writes_of_others(place: &Place) {
    let (a, b) = place.both("f");
    let (writer, reader) = (open(&a), open(&b));
    for round in 0..10u64 {
        writer.write_all_at(&[round as u8 + 1; 1000], round * 900).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), round * 900 + 1000);
        let mut seen = [0; 1000];
        reader.read_exact_at(&mut seen, round * 900).unwrap();
        assert_eq!(seen, [round as u8 + 1; 1000]);
        reader.write_all_at(b"!", round * 900).unwrap();
        writer.read_exact_at(&mut seen[..1], round * 900).unwrap();
        assert_eq!(seen[0], b'!');
    }
}

pub(super) fn rename_replaces_atomically(place: &Place) {
    let (a, b) = place.both("target");
    fs::write(&a, "0").unwrap();
    let source = place.here.join("source");
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..100 {
                fs::write(&source, round.to_string()).unwrap();
                fs::rename(&source, &a).unwrap();
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            // Never absent, never half written, never back.
            let now: u32 = match fs::read_to_string(&b) {
                // Replaced twice while it was being opened.
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => continue,
                content => content.unwrap().parse().unwrap(),
            };
            assert!(now >= last);
            last = now;
        }
        writer.join().unwrap();
    });
    assert_eq!(fs::read_to_string(&b).unwrap(), "99");
}

pub(super) fn names_of_one_hash_are_few(place: &Place) {
    // Long ones, so that the kernel asks for them in several pages.
    let names = names_of(0x0123_4567_89ab_cdef, 31, 20);
    let path = |name: &Vec<u8>| place.here.join(OsStr::from_bytes(name));
    let (inside, outside) = names.split_at(15);
    inside.iter().for_each(|name| drop(File::create(path(name)).unwrap()));
    for name in outside {
        assert_eq!(errno(File::create(path(name))), libc::ENOSPC);
        assert_eq!(errno(fs::create_dir(path(name))), libc::ENOSPC);
    }
    for directory in [&place.here, &place.there] {
        let seen: Vec<Vec<u8>> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
        let once: BTreeSet<&Vec<u8>> = seen.iter().collect();
        assert_eq!((seen.len(), once), (15, inside.iter().collect()));
    }
    fs::remove_file(path(&inside[0])).unwrap();
    File::create(path(&outside[0])).unwrap();
}

pub(super) fn exclusive_create(place: &Place) {
    for round in 0..20 {
        let (a, b) = place.both(&format!("f{round}"));
        let make = |path: &Path| File::options().write(true).create_new(true).open(path).is_ok();
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| make(&a));
            let other = make(&b);
            (one.join().unwrap(), other)
        });
        assert!(one != other, "exactly one makes it");
    }
}

pub(super) fn unlinked_files_live_while_open(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, bytes(700_000)).unwrap();
    let mut open = open(&a);
    fs::remove_file(&b).unwrap();
    assert!(!a.exists());
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    let mut seen = Vec::new();
    open.read_to_end(&mut seen).unwrap();
    assert!(seen == bytes(700_000));
    open.write_all(b"more").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 700_004);
}

pub(super) fn removed_directories_live_while_used(place: &Place) {
    // The one who removes it and the one who uses it are on the same mount.
    let gone = place.here.join("gone");
    for replaced in [false, true] {
        fs::create_dir(&gone).unwrap();
        fs::set_permissions(&gone, Permissions::from_mode(0o750)).unwrap();
        let open = File::open(&gone).unwrap();
        let before = open.metadata().unwrap();
        if replaced {
            fs::create_dir(place.here.join("other")).unwrap();
            fs::rename(place.here.join("other"), &gone).unwrap();
        } else {
            fs::remove_dir(&gone).unwrap();
        }
        let after = open.metadata().unwrap();
        assert_eq!((after.ino(), after.mode(), after.nlink()), (before.ino(), before.mode(), 0), "{replaced}");
        let changed = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
        assert!(changed(&after) > changed(&before), "{replaced}");
        assert_eq!(changed(&open.metadata().unwrap()), changed(&after), "{replaced}");
        open.set_permissions(Permissions::from_mode(0o700)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o700);
        open.sync_all().unwrap();
        let inside = format!("/proc/self/fd/{}/new", open.as_raw_fd());
        assert_eq!(errno(fs::write(inside, "x")), libc::ENOENT);
        drop(open);
        fs::remove_dir(&gone).unwrap_or_default();
    }
    let script = "mkdir d; cd d; rmdir ../d; test $(stat -c %h .) = 0; test -z \"$(ls -a)\"; ! touch x";
    harness::run::shell(&place.here, script);
    // Also by somebody else than its owner, for whom the kernel asks for an access control list.
    let script =
        "mkdir e; chown 1000 e; cd e; rmdir ../e; stat .; stat .; test -z \"$(ls -a)\"; ls -ld .; cd -P ..; test -d .";
    harness::run::shell(&place.here, script);
}

pub(super) fn nodes_without_a_name_keep_their_attributes(place: &Place) {
    let gone = place.here.join("gone");
    let no_wait =
        |path: &Path| File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    syscall::mkfifo(&gone, 0o640).unwrap();
    let (open, ino) = (no_wait(&gone), fs::metadata(&gone).unwrap().ino());
    fs::hard_link(&gone, place.here.join("left")).unwrap();
    fs::remove_file(&gone).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    fs::remove_file(place.here.join("left")).unwrap();
    assert_eq!((open.metadata().unwrap().nlink(), open.metadata().unwrap().ino()), (0, ino));

    syscall::mkfifo(&gone, 0o640).unwrap();
    let open = no_wait(&gone);
    fs::remove_file(&gone).unwrap();
    let after = open.metadata().unwrap();
    assert_eq!((after.mode(), after.nlink()), (libc::S_IFIFO | 0o640, 0));
    assert_ne!(after.ino(), ino);
    open.set_permissions(Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o600);
    // As scripts do, so that nobody else finds it.
    harness::run::shell(
        &place.here,
        "mkfifo p; exec 3<>p; rm p; echo through >&3; test \"$(head -n 1 <&3)\" = through",
    );
    // Over several shards some of them are at home in another one than what they are removed from.
    for number in 0..8 {
        let [made, moved] = ["made", "moved"].map(|name| place.here.join(format!("{name}-{number}")));
        [&made, &moved].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let gone = moved.join("p");
        syscall::mkfifo(&made.join("p"), 0o640).unwrap();
        fs::rename(made.join("p"), &gone).unwrap();
        let open = no_wait(&gone);
        if number % 2 == 0 {
            fs::remove_file(&gone).unwrap();
        } else {
            fs::write(made.join("f"), "").unwrap();
            fs::rename(made.join("f"), &gone).unwrap();
        }
        let after = open.metadata().unwrap();
        assert_eq!((after.mode(), after.nlink()), (libc::S_IFIFO | 0o640, 0), "{number}");
        open.set_permissions(Permissions::from_mode(0o600)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o600, "{number}");
    }
}

pub(super) fn hard_links_are_one_file(place: &Place) {
    let ((a, b), (c, d)) = (place.both("a"), place.both("dir/c"));
    fs::create_dir(place.here.join("dir")).unwrap();
    fs::write(&a, "one").unwrap();
    fs::hard_link(&a, &c).unwrap();
    fs::write(&d, "other").unwrap();
    assert_eq!(fs::read_to_string(&a).unwrap(), "other");
    let (one, other) = (fs::metadata(&b).unwrap(), fs::metadata(&d).unwrap());
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    fs::remove_file(&b).unwrap();
    assert_eq!(fs::metadata(&c).unwrap().nlink(), 1);
    assert_eq!(errno(fs::hard_link(place.here.join("dir"), place.here.join("x"))), libc::EPERM);
}

pub(super) fn names_have_255_bytes(place: &Place) {
    let long = "n".repeat(255);
    let (a, b) = place.both(&long);
    fs::write(&a, "x").unwrap();
    assert!(b.exists());
    assert_eq!(errno(fs::write(place.here.join(long + "n"), "x")), libc::ENAMETOOLONG);
    // Any bytes but / and zero, in whatever order; that they are no valid text is nobody's business.
    let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').chain([b'/' + 1]).collect();
    let backwards: Vec<u8> = all.iter().rev().copied().collect();
    let (forth, back) = (Path::new(OsStr::from_bytes(&all)), Path::new(OsStr::from_bytes(&backwards)));
    assert_eq!((all.len(), backwards.len()), (255, 255));
    fs::write(place.here.join(forth), "any bytes").unwrap();
    let listed = |name: &Path| fs::read_dir(&place.there).unwrap().any(|entry| entry.unwrap().file_name() == name);
    assert!(listed(forth));
    assert_eq!(fs::read_to_string(place.there.join(forth)).unwrap(), "any bytes");
    fs::rename(place.there.join(forth), place.there.join(back)).unwrap();
    assert!(listed(back) && !listed(forth) && !place.here.join(forth).exists());
    fs::hard_link(place.here.join(back), place.here.join(forth)).unwrap();
    symlink(forth, place.here.join("link")).unwrap();
    assert_eq!(fs::read_link(place.there.join("link")).unwrap(), forth);
    assert_eq!(fs::read_to_string(place.there.join("link")).unwrap(), "any bytes");
    fs::remove_file(place.there.join(back)).unwrap();
    fs::create_dir(place.here.join(back)).unwrap();
    fs::write(place.there.join(back).join(back), "below").unwrap();
    assert_eq!(fs::read_to_string(place.here.join(back).join(back)).unwrap(), "below");
    let longer = [&all[..], b"x"].concat();
    assert_eq!(errno(fs::write(place.here.join(OsStr::from_bytes(&longer)), "x")), libc::ENAMETOOLONG);
}

pub(super) fn paths_have_4095_bytes(place: &Place) {
    let root = place.here.to_str().unwrap().len();
    let mut path = place.here.clone();
    let mut left = 4095 - root;
    while left > 260 {
        path.push("d".repeat(200));
        fs::create_dir(&path).unwrap();
        left -= 201;
    }
    let file = path.join("f".repeat(left - 1));
    assert_eq!(file.to_str().unwrap().len(), 4095);
    fs::write(&file, "deep").unwrap();
    // The other mount's own path may be longer, so that only a path from it on fits.
    let below = file.strip_prefix(&place.here).unwrap();
    let there = File::open(&place.there).unwrap();
    assert_eq!(std::io::read_to_string(syscall::open_at(&there, below).unwrap()).unwrap(), "deep");
    let longer = path.join("f".repeat(left));
    assert_eq!(errno(fs::write(longer, "x")), libc::ENAMETOOLONG);
    // The longest one from there on leads into a directory and back, many times.
    let around = format!("{}/../", "d".repeat(200));
    let mut relative = around.repeat(4095 / around.len()).into_bytes();
    relative.resize(4095, b'/');
    let here = File::open(&place.here).unwrap();
    for dir in [&here, &there] {
        let found = syscall::open_at(dir, Path::new(OsStr::from_bytes(&relative))).unwrap();
        assert_eq!(found.metadata().unwrap().ino(), here.metadata().unwrap().ino());
    }
    relative.push(b'/');
    assert_eq!(errno(syscall::open_at(&there, Path::new(OsStr::from_bytes(&relative)))), libc::ENAMETOOLONG);
    // The target of a symlink is as long as a path.
    let target = "t".repeat(4095);
    symlink(&target, place.here.join("l")).unwrap();
    assert_eq!(fs::read_link(place.there.join("l")).unwrap(), Path::new(&target));
}

pub(super) fn every_kind_of_node(place: &Place) {
    let device = libc::makedev(0xabc, 0xdef12);
    for (name, kind, device) in [
        ("fifo", libc::S_IFIFO, 0),
        ("socket", libc::S_IFSOCK, 0),
        ("char", libc::S_IFCHR, device),
        ("block", libc::S_IFBLK, device),
        ("file", libc::S_IFREG, 0),
    ] {
        let (a, b) = place.both(name);
        syscall::mknod(&a, kind | 0o640, device).unwrap();
        let meta = fs::symlink_metadata(&b).unwrap();
        assert_eq!((meta.mode(), meta.rdev()), (kind | 0o640, device), "{name}");
    }
    assert!(fs::symlink_metadata(place.there.join("fifo")).unwrap().file_type().is_fifo());
}

pub(super) fn listings_show_each_entry_once(place: &Place) {
    for number in 0..300 {
        fs::write(place.here.join(format!("kept-{number}")), "").unwrap();
    }
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(&place.there).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if number < 100 {
            // Others come and go meanwhile.
            fs::write(place.here.join(format!("new-{number}")), "").unwrap();
            if number % 2 == 1 {
                fs::remove_file(place.here.join(format!("new-{}", number - 1))).unwrap();
            }
        }
        seen.push(name);
    }
    let kept: Vec<_> = seen.iter().filter(|name| name.starts_with("kept")).collect();
    let distinct: BTreeSet<_> = kept.iter().collect();
    assert_eq!((kept.len(), distinct.len()), (300, 300));
}

pub(super) fn appends_find_the_end(place: &Place) {
    let (a, b) = place.both("log");
    fs::write(&a, "").unwrap();
    let mut handles = [a.clone(), b].map(|path| File::options().append(true).open(path).unwrap());
    for line in 0..60 {
        handles[line % 2].write_all(format!("line {line}\n").as_bytes()).unwrap();
    }
    let expected: String = (0..60).map(|line| format!("line {line}\n")).collect();
    assert_eq!(fs::read_to_string(&a).unwrap(), expected);
}

pub(super) fn appends_are_whole(place: &Place) {
    let (a, b) = place.both("log");
    fs::write(&a, "").unwrap();
    let count = 30;
    // Each line is of one letter, and of a length of its own.
    let line = |letter: u8, number: usize| [vec![letter; 1 + number * 20_000], b"\n".to_vec()].concat();
    std::thread::scope(|scope| {
        for (letter, path) in [(b'a', &a), (b'b', &b), (b'c', &a), (b'd', &b)] {
            scope.spawn(move || {
                let mut file = File::options().append(true).open(path).unwrap();
                for number in 0..count {
                    let line = line(letter, number);
                    assert_eq!(file.write(&line).unwrap(), line.len());
                }
            });
        }
    });
    let content = fs::read(&b).unwrap();
    let mut lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
    lines.sort_by_key(|line| (line[0], line.len()));
    let expected = (b'a'..=b'd').flat_map(|letter| (0..count).map(move |number| line(letter, number)));
    assert!(lines.into_iter().eq(expected));
    // The parts of one that its program does not wait for the kernel sends all at once. The last is short, and soon read.
    const PART: usize = 1 << 20;
    let long: Vec<u8> = (b'1'..=b'3').flat_map(|part| vec![part; PART]).chain(vec![b'4'; 4096]).collect();
    let (aio, file) = (Aio::new().unwrap(), File::options().append(true).open(&a).unwrap());
    for _ in 0..10 {
        file.set_len(0).unwrap();
        assert_eq!(aio.append(&file, &long).unwrap(), long.len());
        let content = fs::read(&b).unwrap();
        let parts: Vec<u8> = content.chunks(PART).map(|part| part[0]).collect();
        assert!(content == long, "{}", String::from_utf8_lossy(&parts));
    }
}

pub(super) fn files_without_a_name(place: &Place) {
    let mut file = syscall::tmpfile(&place.here, 0o640).unwrap();
    file.write_all(b"quiet").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&place.there).unwrap().count(), 0);
    let (a, b) = place.both("named");
    syscall::name_open_file(&file, &a).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"quiet");
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o640);
    fs::remove_file(&b).unwrap();
    assert_eq!(errno(syscall::name_open_file(&file, &place.here.join("again"))), libc::ENOENT);
}

pub(super) fn file_handles_outlive_memory(place: &Place) {
    let dir = place.here.join("a/b");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("f"), "by handle").unwrap();
    fs::hard_link(dir.join("f"), place.here.join("second")).unwrap();
    let file = syscall::name_to_handle(&dir.join("f")).unwrap();
    let folder = syscall::name_to_handle(&dir).unwrap();
    let forget = || fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    forget();
    let mount = File::open(&place.there).unwrap();
    let text = |file: File| std::io::read_to_string(file);
    assert_eq!(syscall::open_by_handle(&mount, &file).and_then(text).unwrap(), "by handle");
    let found = syscall::open_by_handle(&mount, &folder).unwrap();
    let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
    assert_eq!(path, place.there.join("a/b"));
    drop(found);
    // A handle is of the file, whatever becomes of its names.
    fs::rename(dir.join("f"), place.here.join("third")).unwrap();
    fs::remove_file(place.here.join("second")).unwrap();
    forget();
    assert_eq!(syscall::open_by_handle(&mount, &file).and_then(text).unwrap(), "by handle");
    fs::remove_file(place.here.join("third")).unwrap();
    fs::remove_dir(&dir).unwrap();
    forget();
    // Nor is there any wait for one of another cluster, with a shard that this one does not have.
    let foreign = file.of_nothing();
    let begun = Instant::now();
    for handle in [&file, &folder, &foreign] {
        assert_eq!(errno(syscall::open_by_handle(&mount, handle)), libc::ESTALE);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
