//! Who may do what, and extended attributes.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use harness::syscall::{self, as_user};

use crate::{Place, bytes, errno, open};

/// Of `<linux/capability.h>`.
const CAP_SYS_ADMIN: u32 = 21;

pub(super) fn permissions_are_checked(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&a, Some(1000), Some(2000)).unwrap();
    as_user(1000, 1, &[], || open(&b));
    as_user(1001, 2000, &[], || {
        File::open(&b).unwrap();
        assert_eq!(errno(File::options().write(true).open(&b)), libc::EACCES);
        assert_eq!(errno(fs::set_permissions(&b, Permissions::from_mode(0o777))), libc::EPERM);
    });
    as_user(1001, 1, &[], || assert_eq!(errno(File::open(&b)), libc::EACCES));
    // A change of the mode counts at once.
    fs::set_permissions(&a, Permissions::from_mode(0o644)).unwrap();
    as_user(1001, 1, &[], || File::open(&b).unwrap());
    fs::set_permissions(&a, Permissions::from_mode(0o000)).unwrap();
    as_user(1001, 1, &[], || assert_eq!(errno(File::open(&b)), libc::EACCES));
    fs::set_permissions(&place.here, Permissions::from_mode(0o700)).unwrap();
    as_user(1001, 1, &[], || assert_eq!(errno(fs::metadata(&b)), libc::EACCES));
}

pub(super) fn former_owners_change_nothing(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    std::os::unix::fs::chown(&a, Some(1000), Some(1000)).unwrap();
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    let file = as_user(1000, 1000, &[], || {
        let file = File::open(&b).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.set_times(times).unwrap();
        file
    });
    std::os::unix::fs::chown(&a, Some(1001), None).unwrap();
    as_user(1000, 1000, &[], || {
        assert_eq!(errno(file.set_permissions(Permissions::from_mode(0o666))), libc::EPERM);
        assert_eq!(errno(file.set_times(times)), libc::EPERM);
        assert_eq!(errno(std::os::unix::fs::fchown(&file, None, Some(1000))), libc::EPERM);
        assert_eq!(errno(syscall::setxattr(&b, ACCESS, &list(7, (7, 1000), 7, 7, 7), 0)), libc::EPERM);
    });
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o600);
}

pub(super) fn supplementary_groups(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    std::os::unix::fs::chown(&a, Some(1000), Some(3000)).unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o060)).unwrap();
    as_user(1001, 1, &[7, 3000, 9], || open(&b));
    as_user(1001, 1, &[7, 9], || assert_eq!(errno(File::open(&b)), libc::EACCES));
    as_user(1000, 1, &[3000, 3001], || {
        std::os::unix::fs::chown(&b, None, Some(3001)).unwrap();
        assert_eq!(errno(std::os::unix::fs::chown(&b, None, Some(3002))), libc::EPERM);
    });
    assert_eq!(fs::metadata(&a).unwrap().gid(), 3001);
}

pub(super) fn setgid_directories(place: &Place) {
    let (a, b) = place.both("d");
    fs::create_dir(&a).unwrap();
    std::os::unix::fs::chown(&a, Some(0), Some(3000)).unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o2777)).unwrap();
    as_user(1000, 1000, &[], || {
        fs::write(b.join("f"), "x").unwrap();
        fs::DirBuilder::new().mode(0o755).create(b.join("e")).unwrap();
        // One who is not in the group cannot make a program that runs with it.
        File::options().write(true).create_new(true).mode(0o2777).open(b.join("g")).unwrap();
    });
    let meta = |name: &str| fs::metadata(a.join(name)).unwrap();
    assert_eq!((meta("f").gid(), meta("f").uid()), (3000, 1000));
    assert_eq!((meta("e").gid(), meta("e").mode() & 0o7777), (3000, 0o2755));
    assert_eq!((meta("g").gid(), meta("g").mode() & 0o2000), (3000, 0));
}

pub(super) fn sticky_directories(place: &Place) {
    let (a, b) = place.both("d");
    fs::create_dir(&a).unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o1777)).unwrap();
    as_user(1000, 1000, &[], || fs::write(a.join("f"), "x").unwrap());
    as_user(1001, 1000, &[], || {
        assert_eq!(errno(fs::remove_file(b.join("f"))), libc::EPERM);
        assert_eq!(errno(fs::rename(b.join("f"), b.join("g"))), libc::EPERM);
    });
    as_user(1000, 1000, &[], || fs::remove_file(b.join("f")).unwrap());
    // Of what another mount has given away, its kernel takes the former owner for the owner.
    as_user(1000, 1000, &[], || {
        for name in ["f", "mine"] {
            fs::write(b.join(name), "x").unwrap();
            fs::metadata(b.join(name)).unwrap();
        }
    });
    std::os::unix::fs::chown(a.join("f"), Some(1001), None).unwrap();
    as_user(1000, 1000, &[], || {
        assert_eq!(errno(fs::remove_file(b.join("f"))), libc::EPERM);
        assert_eq!(errno(fs::rename(b.join("f"), b.join("g"))), libc::EPERM);
        assert_eq!(errno(fs::rename(b.join("mine"), b.join("f"))), libc::EPERM);
        fs::rename(b.join("mine"), b.join("g")).unwrap();
    });
}

pub(super) fn writes_clear_setuid(place: &Place) {
    let (source, _) = place.both("source");
    fs::write(&source, "z").unwrap();
    for change in ["write", "truncate", "fallocate", "punch", "copy_file_range", "chown"] {
        let (a, b) = place.both(change);
        fs::write(&a, "x").unwrap();
        std::os::unix::fs::chown(&a, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&a, Permissions::from_mode(0o6777)).unwrap();
        as_user(1000, 1000, &[1001], || match change {
            "write" => open(&a).write_all(b"y").unwrap(),
            "truncate" => open(&a).set_len(0).unwrap(),
            "fallocate" => syscall::fallocate(&open(&a), 0, 0, 10).unwrap(),
            "punch" => {
                syscall::fallocate(&open(&a), libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 1).unwrap()
            }
            "copy_file_range" => {
                let source = File::open(&source).unwrap();
                assert_eq!(syscall::copy_range((&source, 0), (&open(&a), 0), 1).unwrap(), 1);
            }
            _ => std::os::unix::fs::chown(&a, None, Some(1001)).unwrap(),
        });
        // To whoever asks for the mode alone, which the kernel may know, and decides by.
        assert_eq!(syscall::mode(&b).unwrap() & 0o7777, 0o777, "{change}");
        assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o777, "{change}");
    }
}

/// The bits come, perhaps by another mount, while the file is being written here: the next change takes them all the same.
pub(super) fn setuid_beside_a_writer(place: &Place) {
    for (change, len) in [("write", 100_000), ("truncate", 100_000), ("write", 10), ("truncate", 10)] {
        let (a, b) = place.both(&format!("{change}-{len}"));
        fs::write(&a, vec![b'x'; len]).unwrap();
        fs::set_permissions(&a, Permissions::from_mode(0o666)).unwrap();
        let mut file = as_user(1000, 1000, &[], || open(&a));
        as_user(1000, 1000, &[], || file.write_all(b"y").unwrap());
        fs::set_permissions(&b, Permissions::from_mode(0o4755)).unwrap();
        // The other mount is being told.
        thread::sleep(Duration::from_millis(200));
        as_user(1000, 1000, &[], || match change {
            "write" => file.write_all(b"z").unwrap(),
            _ => file.set_len(5).unwrap(),
        });
        assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o755, "{change} of {len}");
    }
}

/// Of a file of user 1000 and group 2000: who changes it.
const CHANGERS: [(&str, u32, u32, &[u32]); 5] = [
    ("its owner, of its group", 1000, 2000, &[3000]),
    ("its owner, of its group besides", 1000, 1001, &[2000, 3000]),
    ("its owner, not of its group", 1000, 1001, &[3000]),
    ("another user, not of its group", 1002, 1001, &[3000]),
    ("another user of its group", 1002, 2000, &[]),
];

/// On a path, or on a file that is opened for it.
const CHANGES: [&str; 12] = [
    "write",
    "append",
    "truncate",
    "open and truncate",
    "fallocate",
    "reserve",
    "punch",
    "zero",
    "copy_file_range",
    "chgrp",
    "chown to the same",
    "chmod",
];

fn change_contents(path: &Path, source: &Path, change: &str) -> io::Result<()> {
    let open = || File::options().write(true).open(path);
    let allocate = |mode| syscall::fallocate(&open()?, mode, 0, 3);
    match change {
        "write" => open()?.write_all(b"y"),
        "append" => File::options().append(true).open(path)?.write_all(b"y"),
        "truncate" => open()?.set_len(3),
        "open and truncate" => File::options().write(true).truncate(true).open(path).map(drop),
        "fallocate" => allocate(0),
        "reserve" => allocate(libc::FALLOC_FL_KEEP_SIZE),
        "punch" => allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
        "zero" => allocate(libc::FALLOC_FL_ZERO_RANGE),
        "copy_file_range" => syscall::copy_range((&File::open(source)?, 0), (&open()?, 0), 1).map(drop),
        "chgrp" => std::os::unix::fs::chown(path, None, Some(3000)),
        "chown to the same" => std::os::unix::fs::chown(path, None, None),
        _ => fs::set_permissions(path, Permissions::from_mode(0o6766)),
    }
}

/// What `change` by that user, or by root, makes of a mode in `directory`: the error and the mode.
fn made_of(directory: &Path, mode: u32, changer: Option<(u32, u32, &[u32])>, change: &str) -> (i32, u32) {
    let (path, source) = (directory.join("changed"), directory.join("source"));
    let _ = fs::remove_file(&path);
    fs::write(&path, "content").unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(2000)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let work = || errno(change_contents(&path, &source, change));
    let errno = match changer {
        Some((uid, gid, groups)) => as_user(uid, gid, groups, work),
        None => work(),
    };
    (errno, syscall::mode(&path).unwrap() & 0o7777)
}

pub(super) fn set_id_bits_go_as_on_local_file_systems(place: &Place) {
    let local = tempfile::tempdir().unwrap();
    fs::set_permissions(local.path(), Permissions::from_mode(0o777)).unwrap();
    for directory in [local.path(), &place.here] {
        fs::write(directory.join("source"), "z").unwrap();
    }
    let users = CHANGERS.map(|(who, uid, gid, groups)| (who, Some((uid, gid, groups))));
    let mut others = Vec::new();
    for (who, changer) in users.into_iter().chain([("root", None)]) {
        for mode in [0o6666, 0o6676, 0o2666, 0o4666] {
            for change in CHANGES {
                let (expected, made) =
                    (made_of(local.path(), mode, changer, change), made_of(&place.here, mode, changer, change));
                assert_eq!(syscall::mode(&place.there.join("changed")).unwrap() & 0o7777, made.1);
                // The kernel asks nobody whether it may be done, and nothing is.
                let is_idle = change == "chown to the same" && expected == (libc::EPERM, mode) && made == (0, mode);
                // Not each local file system can do each of them.
                if made != expected && !is_idle && expected.0 != libc::EOPNOTSUPP {
                    let said = |(errno, mode): (i32, u32)| format!("{mode:o} (error {errno})");
                    let (made, expected) = (said(made), said(expected));
                    others.push(format!("{change} of {mode:o} by {who}: {made} rather than {expected}"));
                }
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// `(tag, permissions, id)` each, as Linux keeps them in an attribute.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

const NO_ID: u32 = u32::MAX;

/// Owner, one user, group, mask, others.
fn list(owner: u16, (user, id): (u16, u32), group: u16, mask: u16, other: u16) -> Vec<u8> {
    acl(&[(1, owner, NO_ID), (2, user, id), (4, group, NO_ID), (0x10, mask, NO_ID), (0x20, other, NO_ID)])
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

pub(super) fn acls_permit_and_forbid(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o600)).unwrap();
    let reads = |uid: u32| as_user(uid, 999, &[], || File::open(&b).is_ok());
    let writes = |uid: u32| as_user(uid, 999, &[], || File::options().write(true).open(&b).is_ok());
    assert!(!reads(1000));
    syscall::setxattr(&a, ACCESS, &list(6, (6, 1000), 0, 6, 0), 0).unwrap();
    assert!(reads(1000) && writes(1000) && !reads(1001));
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o777, 0o660, "the mask shows as the group's bits");
    // chmod changes the mask.
    fs::set_permissions(&a, Permissions::from_mode(0o640)).unwrap();
    assert!(reads(1000) && !writes(1000));
    assert_eq!(syscall::getxattr(&b, ACCESS).unwrap(), list(6, (6, 1000), 0, 4, 0));
    // Forbidden by name, though others may.
    syscall::setxattr(&b, ACCESS, &list(6, (0, 1000), 4, 4, 4), 0).unwrap();
    assert!(!reads(1000) && reads(1001));
    syscall::removexattr(&a, ACCESS).unwrap();
    assert!(reads(1000));
    syscall::removexattr(&a, ACCESS).expect("none is there any more, which is what was asked for");
    as_user(1001, 999, &[], || {
        assert_eq!(errno(syscall::setxattr(&b, ACCESS, &list(7, (7, 1), 7, 7, 7), 0)), libc::EPERM)
    });
    assert_eq!(errno(syscall::setxattr(&a, ACCESS, &acl(&[(1, 7, NO_ID)]), 0)), libc::EINVAL);
    lists_of_listed_directories(place);
}

/// The kernel keeps what it has listed: the first who looks after the change is judged by the new list.
fn lists_of_listed_directories(place: &Place) {
    let (a, b) = place.both("listed");
    fs::create_dir(&a).unwrap();
    fs::write(a.join("f"), "x").unwrap();
    let reads = || as_user(1003, 999, &[], || File::open(b.join("f")).is_ok());
    for (by, permitted) in [(&b, false), (&b, true), (&a, false), (&a, true)] {
        assert_eq!(fs::read_dir(&b).unwrap().count(), 1);
        fs::set_permissions(&b, Permissions::from_mode(if permitted { 0o700 } else { 0o755 })).unwrap();
        assert_eq!(fs::read_dir(&b).unwrap().count(), 1);
        assert_eq!(reads(), !permitted);
        let rights = if permitted { 7 } else { 0 };
        let list = acl(&[(1, rights, NO_ID), (4, rights, NO_ID), (0x20, rights, NO_ID)]);
        syscall::setxattr(by, ACCESS, &list, 0).unwrap();
        assert_eq!(reads(), permitted);
    }
}

/// In a thread of its own, which shares its umask with no other: elsewhere files are made at the same time.
fn with_umask<T: Send>(umask: libc::mode_t, work: impl FnOnce() -> T + Send) -> T {
    let apart = || {
        // SAFETY: these concern this thread alone, the second one thanks to the first.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
            libc::umask(umask);
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(apart).join().unwrap())
}

pub(super) fn default_acls_are_inherited(place: &Place) {
    let (a, b) = place.both("d");
    fs::create_dir(&a).unwrap();
    syscall::setxattr(&a, DEFAULT, &list(7, (6, 1000), 5, 7, 0), 0).unwrap();
    // The umask is not asked.
    let (made, below) = with_umask(0o077, || {
        let made = File::options().write(true).create_new(true).mode(0o664).open(b.join("f"));
        (made, fs::create_dir(b.join("e")))
    });
    made.unwrap();
    below.unwrap();
    assert_eq!(fs::metadata(a.join("f")).unwrap().mode() & 0o777, 0o660);
    assert_eq!(syscall::getxattr(&a.join("f"), ACCESS).unwrap(), list(6, (6, 1000), 5, 6, 0));
    as_user(1000, 999, &[], || open(&a.join("f")));
    assert_eq!(syscall::getxattr(&a.join("e"), DEFAULT).unwrap(), list(7, (6, 1000), 5, 7, 0));
    assert_eq!(errno(syscall::setxattr(&a.join("f"), DEFAULT, &list(7, (6, 1000), 5, 7, 0), 0)), libc::EACCES);
}

pub(super) fn extended_attributes(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    let large = bytes(60_000);
    for name in ["user.a", "trusted.a", "security.other"] {
        syscall::setxattr(&a, name, &large, libc::XATTR_CREATE).unwrap();
        assert!(syscall::getxattr(&b, name).unwrap() == large, "{name}");
        assert_eq!(errno(syscall::setxattr(&b, name, b"", libc::XATTR_CREATE)), libc::EEXIST);
    }
    assert_eq!(syscall::listxattr(&b).unwrap().len(), 3);
    let listed = as_user(1000, 1000, &[], || syscall::listxattr(&b).unwrap());
    assert_eq!(listed, [b"security.other".to_vec(), b"user.a".to_vec()], "trusted ones are root's");
    syscall::without_capability(CAP_SYS_ADMIN, || {
        assert_eq!(syscall::listxattr(&b).unwrap().len(), 3, "root without the privilege may act for an overlay");
        assert_eq!(errno(syscall::getxattr(&b, "trusted.a")), libc::ENODATA);
        assert_eq!(errno(syscall::setxattr(&b, "trusted.a", b"", 0)), libc::EPERM);
        assert_eq!(errno(syscall::removexattr(&b, "trusted.a")), libc::EPERM);
    });
    assert_eq!(errno(syscall::removexattr(&a, "user.b")), libc::ENODATA);
    // As long as they can be, and each by one byte longer.
    let (c, d) = place.both("long");
    fs::create_dir(&c).unwrap();
    let (name, value) = (format!("user.{}", "n".repeat(250)), bytes(64 << 10));
    assert_eq!(errno(syscall::setxattr(&c, &name, &[&value[..], b"x"].concat(), 0)), libc::E2BIG);
    assert_eq!(errno(syscall::setxattr(&c, &format!("{name}n"), b"x", 0)), libc::ERANGE);
    syscall::setxattr(&c, &name, &value, libc::XATTR_CREATE).unwrap();
    assert!(syscall::getxattr(&d, &name).unwrap() == value);
    syscall::setxattr(&d, &name, &value[1..], libc::XATTR_REPLACE).unwrap();
    assert!(syscall::getxattr(&c, &name).unwrap() == value[1..]);
    assert_eq!(syscall::listxattr(&d).unwrap(), [name.as_bytes()]);
    syscall::removexattr(&d, &name).unwrap();
    assert_eq!(errno(syscall::getxattr(&c, &name)), libc::ENODATA);
    for n in 0..16 {
        syscall::setxattr(&d, &format!("user.{n}"), &value, 0).unwrap();
    }
    assert_eq!(errno(syscall::setxattr(&c, &name, b"x", 0)), libc::ENOSPC, "1 MiB in all");
    symlink("x", place.here.join("l")).unwrap();
    assert_eq!(errno(syscall::setxattr(&place.here.join("l"), "user.a", b"", 0)), libc::EPERM);
}

pub(super) fn no_label_means_no_labels(place: &Place) {
    let (a, b) = place.both("f");
    fs::write(&a, "x").unwrap();
    for path in [&a, &b] {
        assert_eq!(errno(syscall::getxattr(path, "security.selinux")), libc::EOPNOTSUPP);
    }
    syscall::setxattr(&a, "security.selinux", b"label", 0).unwrap();
    assert_eq!(syscall::getxattr(&b, "security.selinux").unwrap(), b"label");
    syscall::removexattr(&b, "security.selinux").unwrap();
    assert_eq!(errno(syscall::getxattr(&a, "security.selinux")), libc::EOPNOTSUPP);
    assert_eq!(errno(syscall::removexattr(&a, "security.selinux")), libc::ENODATA);
}

pub(super) fn capabilities_end_with_a_write(place: &Place) {
    let (a, b) = place.both("program");
    fs::write(&a, "x").unwrap();
    // CAP_NET_RAW, permitted and effective, in the kernel's second form.
    let mut value = vec![1, 0, 0, 2];
    value.extend_from_slice(&[0, 0x20, 0, 0]);
    value.extend_from_slice(&[0; 12]);
    syscall::setxattr(&a, "security.capability", &value, 0).unwrap();
    assert_eq!(syscall::getxattr(&b, "security.capability").unwrap(), value);
    open(&b).write_all(b"y").unwrap();
    assert_eq!(errno(syscall::getxattr(&a, "security.capability")), libc::ENODATA);
    syscall::setxattr(&a, "security.capability", &value, 0).unwrap();
    std::os::unix::fs::chown(&a, Some(5), None).unwrap();
    assert_eq!(errno(syscall::getxattr(&b, "security.capability")), libc::ENODATA);
}
