//! Flags of files: `chattr` and `lsattr`.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use harness::file_flags::{self, APPEND, IMMUTABLE, NOATIME, NODUMP};
use harness::syscall::{self, as_user};
use harness::wait::until;

use crate::{Place, errno, open, stamp, tick};

/// What is done to `d/f`, or in `d`, where there are `d/e`, an empty directory, and `f` beside `d`.
type Act = fn(&Path) -> io::Result<()>;

const FREE: [bool; 2] = [true; 2];
const FIXED: [bool; 2] = [false; 2];
/// Appending permits it.
const GROWS: [bool; 2] = [false, true];

/// Each with what is permitted where `d/f` is immutable, and append only, and where `d` is.
const ACTS: &[(&str, Act, [bool; 2], [bool; 2])] = &[
    ("read", |at| fs::read(at.join("d/f")).map(drop), FREE, FREE),
    ("list", |at| fs::read_dir(at.join("d")).map(drop), FREE, FREE),
    ("chmod", |at| fs::set_permissions(at.join("d/f"), Permissions::from_mode(0o600)), FIXED, FREE),
    ("chown", |at| std::os::unix::fs::chown(at.join("d/f"), Some(7), Some(7)), FIXED, FREE),
    ("touch", |at| syscall::touch(&at.join("d/f")), GROWS, FREE),
    ("utimens", |at| syscall::utimens(&at.join("d/f"), 5, 6), FIXED, FREE),
    ("setxattr", |at| syscall::setxattr(&at.join("d/f"), "user.b", b"x", 0), FIXED, FREE),
    ("removexattr", |at| syscall::removexattr(&at.join("d/f"), "user.a"), FIXED, FREE),
    ("open for writing", |at| File::options().write(true).open(at.join("d/f")).map(drop), FIXED, FREE),
    ("append", |at| append(&at.join("d/f"), false), GROWS, FREE),
    ("open to append and truncate", |at| append(&at.join("d/f"), true), FIXED, FREE),
    ("truncate", |at| syscall::truncate(&at.join("d/f"), 1), FIXED, FREE),
    ("link", |at| fs::hard_link(at.join("d/f"), at.join("g")), FIXED, FREE),
    ("unlink", |at| fs::remove_file(at.join("d/f")), FIXED, FIXED),
    ("rename", |at| fs::rename(at.join("d/f"), at.join("d/g")), FIXED, FIXED),
    ("rename out", |at| fs::rename(at.join("d/f"), at.join("g")), FIXED, FIXED),
    ("replace", |at| fs::rename(at.join("f"), at.join("d/f")), FIXED, FIXED),
    ("exchange", |at| syscall::rename(&at.join("f"), &at.join("d/f"), libc::RENAME_EXCHANGE), FIXED, FIXED),
    ("create", |at| File::create_new(at.join("d/new")).map(drop), FREE, GROWS),
    ("mkdir", |at| fs::create_dir(at.join("d/new")), FREE, GROWS),
    ("mkfifo", |at| syscall::mkfifo(&at.join("d/new"), 0o600), FREE, GROWS),
    ("symlink", |at| symlink("x", at.join("d/new")), FREE, GROWS),
    ("link into", |at| fs::hard_link(at.join("f"), at.join("d/new")), FREE, GROWS),
    ("rename into", |at| fs::rename(at.join("f"), at.join("d/new")), FREE, GROWS),
    ("make without a name", |at| syscall::tmpfile(&at.join("d"), 0o600).map(drop), FREE, GROWS),
    ("rmdir", |at| fs::remove_dir(at.join("d/e")), FREE, FIXED),
    ("remove all", |at| fs::remove_dir_all(at.join("d")), FIXED, FIXED),
    ("chmod of the directory", |at| fs::set_permissions(at.join("d"), Permissions::from_mode(0o700)), FREE, FIXED),
    ("setxattr of the directory", |at| syscall::setxattr(&at.join("d"), "user.b", b"x", 0), FREE, FIXED),
];

fn append(path: &Path, truncates: bool) -> io::Result<()> {
    let flags = if truncates { libc::O_TRUNC } else { 0 };
    File::options().append(true).custom_flags(flags).open(path)?.write_all(b"more")
}

/// Makes the tree, or makes it whole again.
fn tree(at: &Path) {
    for left in ["g", "d/g", "d/new"].map(|name| at.join(name)) {
        let _ = fs::remove_file(&left).or_else(|_| fs::remove_dir(&left));
    }
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::write(at.join("d/f"), "content").unwrap();
    fs::write(at.join("f"), "other").unwrap();
    syscall::setxattr(&at.join("d/f"), "user.a", b"x", 0).unwrap();
}

/// What `act` through `acts` comes to on a tree in `at`, of which `flagged` has these flags.
fn outcome(at: &Path, acts: &Path, act: Act, flagged: &str, flags: u32) -> i32 {
    tree(at);
    file_flags::set_some(&at.join(flagged), flags).unwrap();
    let outcome = errno(act(acts));
    for name in ["d/f", "d", "f", "g", "d/g", "d/new"] {
        let path = at.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() || meta.is_dir()) {
            file_flags::set_some(&path, 0).unwrap();
        }
    }
    outcome
}

pub(super) fn flags_forbid_as_on_local_file_systems(place: &Place) {
    let local = tempfile::tempdir().unwrap();
    tree(local.path());
    let has_flags = file_flags::set_some(local.path(), NODUMP).is_ok();
    let mut others = Vec::new();
    for &(what, act, of_file, of_directory) in ACTS {
        for (flagged, [immutable, append_only]) in [("d/f", of_file), ("d", of_directory)] {
            for (flags, permits) in [(IMMUTABLE, immutable), (APPEND, append_only), (NODUMP | NOATIME, true)] {
                let expected = if permits { 0 } else { libc::EPERM };
                let mut check = |whose: &str, at: &Path, acts: &Path| {
                    let errno = outcome(at, acts, act, flagged, flags);
                    if errno != expected {
                        others
                            .push(format!("{what}, {flagged} has {flags:#x}, {whose}: {errno} rather than {expected}"));
                    }
                };
                check("set here, done there", &place.here, &place.there);
                if has_flags {
                    check("locally", local.path(), local.path());
                }
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

fn run(program: &str, args: &[&str], path: &Path) -> Output {
    Command::new(program).args(args).arg(path).output().unwrap()
}

fn chattr(change: &str, path: &Path) {
    let ended = run("chattr", &[change], path);
    assert!(ended.status.success(), "chattr {change}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// The letters that `lsattr` shows.
fn lsattr(path: &Path) -> String {
    let ended = run("lsattr", &["-d"], path);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).unwrap();
    text.split_whitespace().next().unwrap().replace('-', "")
}

pub(super) fn flags_are_set_and_told(place: &Place) {
    let (a, b) = place.both("f");
    let (c, d) = place.both("d");
    fs::write(&a, "content").unwrap();
    fs::create_dir(&c).unwrap();
    for (here, there) in [(&a, &b), (&c, &d)] {
        assert_eq!(lsattr(there), "");
        let before = stamp(there);
        tick();
        chattr("+iadA", here);
        assert_eq!(lsattr(there), "iadA");
        assert!(stamp(here).2 > before.2 && stamp(there) == stamp(here), "the time of the last change of the inode");
        assert_eq!(file_flags::get(there).unwrap(), IMMUTABLE | APPEND | NODUMP | NOATIME);
        assert_eq!(file_flags::get_xattr(there).unwrap(), 0xd8);
        chattr("-ia", there);
        assert_eq!(lsattr(here), "dA");
        file_flags::set_xattr(here, 0x18, 0).unwrap();
        assert_eq!(lsattr(there), "ia");
        match file_flags::get_attr(there) {
            Ok(flags) => {
                assert_eq!(flags, 0x18);
                file_flags::set_attr(there, 0x40).unwrap();
            }
            // Before Linux 6.17.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
                chattr("=A", there);
            }
        }
        assert_eq!(lsattr(here), "A");
        // Of what there is not, nothing is taken.
        assert!(!run("chattr", &["+c"], here).status.success());
        assert_eq!(errno(file_flags::set(here, NODUMP | 1)), libc::EOPNOTSUPP);
        assert_eq!(errno(file_flags::set_xattr(here, 0x80, 7)), libc::EOPNOTSUPP);
        assert_eq!(lsattr(there), "A");
    }
    // Other requests are none.
    assert_eq!(errno(file_flags::ask_for_nothing(&a)), libc::ENOTTY);
    // What is made in the directory has some of its flags.
    chattr("=adA", &c);
    fs::write(d.join("f"), "").unwrap();
    fs::create_dir(d.join("e")).unwrap();
    assert_eq!((lsattr(&c.join("f")), lsattr(&c.join("e"))), ("dA".to_owned(), "dA".to_owned()));
    chattr("-a", &c);
    // Without the privilege for it, the owner may set two of them, and others none.
    std::os::unix::fs::chown(&a, Some(1000), Some(1000)).unwrap();
    as_user(1000, 1000, &[], || {
        assert_eq!(errno(file_flags::set(&b, IMMUTABLE)), libc::EPERM);
        assert_eq!(errno(file_flags::set(&b, APPEND)), libc::EPERM);
        file_flags::set(&b, NODUMP).unwrap();
    });
    as_user(1001, 1001, &[], || assert_eq!(errno(file_flags::set(&b, 0)), libc::EPERM));
    assert_eq!(lsattr(&a), "d");
}

pub(super) fn reading_with_noatime_changes_nothing(place: &Place) {
    let (a, b) = place.both("f");
    let (c, d) = place.both("d");
    fs::write(&a, "content").unwrap();
    fs::create_dir(&c).unwrap();
    let read = || {
        tick();
        fs::read(&b).unwrap();
        fs::read_dir(&d).unwrap().count()
    };
    for path in [&a, &c] {
        chattr("+A", path);
    }
    let before = [stamp(&a).0, stamp(&c).0];
    read();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!([stamp(&a).0, stamp(&c).0], before);
    for path in [&a, &c] {
        chattr("-A", path);
    }
    read();
    until("the access times", Duration::from_secs(60), || {
        (stamp(&a).0 > before[0] && stamp(&c).0 > before[1]).then_some(())
    });
}

/// Longer than what lies in the metadata, so that writes go to objects.
const LONG: usize = 100_000;

pub(super) fn open_files_obey_flags(place: &Place) {
    for len in [5, LONG] {
        let (a, b) = place.both(&format!("f{len}"));
        fs::write(&a, vec![b'x'; len]).unwrap();
        let (mut here, mut there) = (open(&a), open(&b));
        let mut appends = File::options().append(true).open(&a).unwrap();
        for file in [&mut here, &mut there, &mut appends] {
            file.write_all(b"y").unwrap();
        }
        let size = fs::metadata(&b).unwrap().len();
        chattr("+a", &a);
        assert_eq!(errno(here.write_all(b"z")), libc::EPERM);
        assert_eq!(errno(here.set_len(1)), libc::EPERM);
        assert_eq!(errno(syscall::fallocate(&here, libc::FALLOC_FL_ZERO_RANGE, 0, 1)), libc::EPERM);
        // Elsewhere that is known a moment later.
        until("the other mount has heard", Duration::from_secs(60), || {
            (errno(there.write_all(b"y")) == libc::EPERM).then_some(())
        });
        assert_eq!(errno(there.set_len(1)), libc::EPERM);
        appends.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(&b).unwrap().len(), size + 4);
        chattr("=i", &a);
        assert_eq!(errno(appends.write_all(b"z")), libc::EPERM);
        assert_eq!(errno(syscall::fallocate(&appends, 0, 0, 1)), libc::EPERM);
        let before = fs::read(&b).unwrap();
        for file in [here, there, appends] {
            drop(file);
        }
        assert!(fs::read(&b).unwrap() == before, "their closes change nothing");
        chattr("-i", &b);
        open(&b).write_all(b"z").unwrap();
        assert_eq!(fs::read(&a).unwrap()[0], b'z');
    }
    // What is made is appended to from the beginning.
    let mut log = File::create(place.here.join("log")).unwrap();
    chattr("+a", &place.there.join("log"));
    assert_eq!(fs::metadata(place.here.join("log")).unwrap().size(), 0);
    until("this mount has heard", Duration::from_secs(60), || {
        (errno(log.write_all(b"y")) == libc::EPERM).then_some(())
    });
    append(&place.there.join("log"), false).unwrap();
    chattr("-a", &place.here.join("log"));
}
