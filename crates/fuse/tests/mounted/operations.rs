//! Ordinary work on a real mount of the model.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuse::model_fs::Caching;

use crate::common::Mounted;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c(from), c(to));
    // SAFETY: two terminated strings that live through the call.
    let result = unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn errno(result: io::Result<impl Sized>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 12) as u8).collect()
}

#[test]
fn files_and_directories() {
    let m = Mounted::model(Caching::Direct);
    fs::write(m.path("a"), "hello").unwrap();
    assert_eq!(fs::read(m.path("a")).unwrap(), b"hello");
    fs::create_dir_all(m.path("x/y/z")).unwrap();
    assert_eq!(fs::metadata(m.path("x")).unwrap().nlink(), 3);
    assert_eq!(fs::remove_dir(m.path("x/y")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    symlink("../a", m.path("x/link")).unwrap();
    assert_eq!(fs::read_link(m.path("x/link")).unwrap(), Path::new("../a"));
    assert_eq!(fs::read(m.path("x/link")).unwrap(), b"hello");
    fs::hard_link(m.path("a"), m.path("b")).unwrap();
    assert_eq!(fs::metadata(m.path("b")).unwrap().nlink(), 2);
    fs::remove_file(m.path("a")).unwrap();
    assert_eq!(fs::metadata(m.path("b")).unwrap().nlink(), 1);
    assert_eq!(File::open(m.path("a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(errno(File::create_new(m.path("b"))), libc::EEXIST);
    assert_eq!(errno(fs::metadata(m.path(&"n".repeat(256)))), libc::ENAMETOOLONG);
    fs::remove_dir_all(m.path("x")).unwrap();
    assert_eq!(fs::read_dir(m.root()).unwrap().count(), 1);
}

#[test]
fn attributes() {
    let m = Mounted::model(Caching::Direct);
    let path = m.path("f");
    fs::write(&path, pattern(10_000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mode(), meta.uid(), meta.gid(), meta.len()), (0o100_751, 12, 34, 10_000), "chown drops setuid");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(
        (fs::metadata(&path).unwrap().mtime(), fs::metadata(&path).unwrap().mtime_nsec()),
        (1_000_000_000, 123_456_789)
    );
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), pattern(3));
    file.set_len(6).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [&pattern(3)[..], &[0; 3]].concat());
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "opened with O_TRUNC");
    let fifo = c(&m.path("fifo"));
    // SAFETY: a terminated string that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    assert!(fs::metadata(m.path("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn rename_with_flags() {
    let m = Mounted::model(Caching::Direct);
    let (a, b) = (m.path("a"), m.path("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    assert_eq!(errno(rename2(&a, &b, libc::RENAME_NOREPLACE)), libc::EEXIST);
    rename2(&a, &b, libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    assert_eq!(errno(rename2(&a, &m.path("c"), libc::RENAME_EXCHANGE)), libc::ENOENT);
    fs::create_dir(m.path("d")).unwrap();
    rename2(&m.path("d"), &a, libc::RENAME_EXCHANGE).unwrap();
    assert!(fs::metadata(&a).unwrap().is_dir());
    assert_eq!(errno(fs::rename(&a, a.join("below"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(&b, &a)), libc::EISDIR);
    fs::rename(&b, m.path("d")).unwrap();
    assert_eq!(fs::read(m.path("d")).unwrap(), b"a");
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let m = Mounted::model(Caching::Direct);
    let mut file = File::options().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(m.path("f")).unwrap();
    let mut buf = [0; 32];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 10);
    assert_eq!(&buf[..10], b"still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn a_big_directory_lists_what_stays_while_others_come_and_go() {
    const STAY: usize = 10_000;
    let m = Mounted::model(Caching::Direct);
    for i in 0..STAY {
        File::create(m.path(&format!("stay-{i}"))).unwrap();
        if i % 4 == 0 {
            File::create(m.path(&format!("go-{i}"))).unwrap();
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut i = 0;
            while !done.load(Ordering::Relaxed) {
                let _ = fs::remove_file(m.path(&format!("go-{}", i * 4 % STAY)));
                File::create(m.path(&format!("come-{i}"))).unwrap();
                fs::rename(m.path(&format!("come-{i}")), m.path(&format!("come-{}", i / 2))).unwrap();
                i += 1;
            }
            i
        });
        for _ in 0..3 {
            let mut seen = BTreeMap::new();
            for entry in fs::read_dir(m.root()).unwrap() {
                let entry = entry.unwrap();
                *seen.entry(entry.file_name().into_string().unwrap()).or_insert(0) += 1;
                // Half of them with attributes, so that the kernel uses both kinds of listing.
                if seen.len() % 2 == 0 {
                    let _ = entry.metadata();
                }
            }
            for i in 0..STAY {
                assert_eq!(seen.get(&format!("stay-{i}")), Some(&1), "stay-{i}");
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(busy.join().unwrap() > 0, "nothing came or went");
    });
}

#[test]
fn large_reads_and_writes_at_odd_places() {
    for caching in [Caching::Direct, Caching::Pages] {
        let m = Mounted::model(caching);
        let data = pattern(9 << 20);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(m.path("f")).unwrap();
        file.write_all_at(&data[..5 << 20], 0).unwrap();
        file.write_all_at(&data[(3 << 20) + 77..], (3 << 20) + 77).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 9 << 20);
        let mut back = vec![0; 9 << 20];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == data, "{caching:?}");
        let mut part = vec![0; (2 << 20) + 1];
        file.read_exact_at(&mut part, 4095).unwrap();
        assert!(part == data[4095..4096 + (2 << 20)], "{caching:?}");
        assert_eq!(file.read_at(&mut part, (9 << 20) - 5).unwrap(), 5);
        assert_eq!(file.read_at(&mut part, 10 << 20).unwrap(), 0);
    }
}

#[test]
fn direct_io() {
    #[repr(align(4096))]
    struct Aligned([u8; 64 << 10]);
    for caching in [Caching::Direct, Caching::Pages] {
        let m = Mounted::model(caching);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
        let file = options.open(m.path("f")).unwrap();
        let mut block = Box::new(Aligned([7; 64 << 10]));
        file.write_all_at(&block.0, 64 << 10).unwrap();
        block.0.fill(1);
        file.read_exact_at(&mut block.0, 32 << 10).unwrap();
        assert!(block.0[..32 << 10].iter().all(|&byte| byte == 0));
        assert!(block.0[32 << 10..].iter().all(|&byte| byte == 7));
    }
}

#[test]
fn mapped_memory() {
    const LEN: usize = 1 << 20;
    for caching in [Caching::Direct, Caching::Pages] {
        let m = Mounted::model(caching);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(m.path("f")).unwrap();
        file.write_all_at(&pattern(LEN), 0).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of an open file of that length, and nobody truncates it.
        let map = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), LEN, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED, "{caching:?}: {}", io::Error::last_os_error());
            std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
        };
        assert!(map == pattern(LEN));
        map[5000..5005].copy_from_slice(b"WRITE");
        // SAFETY: the mapping made above, which nobody uses after.
        unsafe {
            assert_eq!(libc::msync(map.as_mut_ptr().cast(), LEN, libc::MS_SYNC), 0);
            libc::munmap(map.as_mut_ptr().cast(), LEN);
        }
        let mut part = [0; 7];
        file.read_exact_at(&mut part, 4999).unwrap();
        assert_eq!(&part[1..6], b"WRITE", "{caching:?}");
        let _ = (&file).read(&mut part).unwrap();
    }
}

#[test]
fn extended_attributes() {
    let m = Mounted::model(Caching::Direct);
    fs::write(m.path("f"), "").unwrap();
    let path = c(&m.path("f"));
    let name = c"user.colour";
    let mut buf = [0u8; 64];
    // SAFETY: terminated strings and buffers of the stated lengths, which live through the calls.
    unsafe {
        assert_eq!(libc::setxattr(path.as_ptr(), name.as_ptr(), b"blue".as_ptr().cast(), 4, libc::XATTR_CREATE), 0);
        assert_eq!(libc::setxattr(path.as_ptr(), name.as_ptr(), b"red".as_ptr().cast(), 3, libc::XATTR_CREATE), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EEXIST));
        assert_eq!(libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0), 4);
        assert_eq!(libc::getxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), 2), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ERANGE));
        assert_eq!(libc::getxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), 64), 4);
        assert_eq!(&buf[..4], b"blue");
        assert_eq!(libc::listxattr(path.as_ptr(), buf.as_mut_ptr().cast(), 64), 12);
        assert_eq!(&buf[..12], b"user.colour\0");
        assert_eq!(libc::removexattr(path.as_ptr(), name.as_ptr()), 0);
        assert_eq!(libc::getxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), 64), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA));
    }
}

#[test]
fn capacity_is_shown() {
    let m = Mounted::model(Caching::Direct);
    let path = c(m.root());
    // SAFETY: a zeroed record is valid, and the call fills it.
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &raw mut stat), 0);
        stat
    };
    assert_eq!(stat.f_blocks * stat.f_frsize, model::Limits::default().total_bytes);
    assert_eq!(stat.f_namemax, 255);
}

#[test]
fn many_threads_at_once() {
    let m = Mounted::model(Caching::Direct);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let m = &m;
            scope.spawn(move || {
                let dir = m.path(&format!("t{t}"));
                fs::create_dir(&dir).unwrap();
                for i in 0..200 {
                    let path = dir.join(format!("{i}"));
                    fs::write(&path, format!("{t} {i}")).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{t} {i}"));
                    if i % 2 == 0 {
                        fs::remove_file(&path).unwrap();
                    }
                }
                assert_eq!(fs::read_dir(&dir).unwrap().count(), 100);
            });
        }
    });
}
