//! Each operation's results and refusals, one after the other.

use namespace::shard::Limits;
use namespace::view::{Deletion, PolicyChange, RENAME_EXCHANGE, RENAME_NOREPLACE, ScanRecord};
use types::attr::{FileType, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{GroupId, InodeId, PoolId};
use types::time::Timestamp;

use crate::common::{A, Bed, CRED, ROOT, name, refused};

const GONE: InodeId = InodeId(0xffff);

#[test]
fn root_is_there_from_the_start() {
    let mut bed = Bed::new();
    let root = bed.stat(ROOT).unwrap().attr;
    assert_eq!((root.kind, root.mode, root.nlink, root.size), (FileType::Directory, 0o755, 2, 0));
    assert_eq!(bed.shard.inode_count(), 1);
    let page = bed.shard.readdir(A, ROOT, 0, 10, true).unwrap();
    assert!(page.end && page.entries.is_empty() && page.parent == ROOT);
}

#[test]
fn create_makes_files_with_a_layout() {
    let mut bed = Bed::new();
    let view = bed.create(ROOT, "f").unwrap();
    let layout = view.layout.unwrap();
    assert_eq!((layout.chunk_size, layout.groups.len()), (512 << 10, 4));
    assert_eq!((view.attr.uid, view.attr.gid, view.attr.nlink, view.attr.mode), (1000, 100, 1, 0o644));
    assert_eq!((view.attr.rdev, view.unsettled, view.has_objects), (0, false, false));
    let root = bed.stat(ROOT).unwrap().attr;
    assert_eq!((root.mtime, root.ctime, root.nlink), (Timestamp(bed.now), Timestamp(bed.now), 2));
    bed.turn();
    assert_eq!(bed.lookup(ROOT, "f").unwrap(), view.attr.inode);
    let device = bed.make(ROOT, "d", FileType::CharDevice, false, true).unwrap();
    assert_eq!((device.attr.rdev, device.layout), (9, None));
    assert_eq!(bed.make(ROOT, "p", FileType::Fifo, false, true).unwrap().attr.rdev, 0);
    bed.turn();
}

#[test]
fn create_refuses() {
    let mut bed = Bed::new();
    let file = bed.file(ROOT, "f");
    bed.dir(ROOT, "d");
    bed.symlink(ROOT, "l", b"x").unwrap();
    bed.make(ROOT, "p", FileType::Fifo, false, true).unwrap();
    bed.turn();
    assert_eq!(refused(bed.create(GONE, "x")), Errno::ENOENT);
    assert_eq!(refused(bed.create(file, "x")), Errno::ENOTDIR);
    for taken in ["f", "d", "l", "p"] {
        assert_eq!(refused(bed.create(ROOT, taken)), Errno::EEXIST);
        assert_eq!(refused(bed.mkdir(ROOT, taken)), Errno::EEXIST);
        assert_eq!(refused(bed.symlink(ROOT, taken, b"t")), Errno::EEXIST);
    }
    let lax = |bed: &mut Bed, text| bed.make(ROOT, text, FileType::Regular, true, false);
    assert_eq!(lax(&mut bed, "f").unwrap().attr.inode, file);
    assert_eq!(refused(lax(&mut bed, "d")), Errno::EISDIR);
    assert_eq!(refused(lax(&mut bed, "l")), Errno::ELOOP);
    assert_eq!(refused(lax(&mut bed, "p")), Errno::EEXIST);
    assert_eq!(refused(bed.make(ROOT, "x", FileType::Directory, false, true)), Errno::EINVAL);
    assert_eq!(refused(bed.make(ROOT, "x", FileType::Symlink, false, true)), Errno::EINVAL);
    bed.shard.set_pools(Vec::new());
    assert_eq!(refused(bed.create(ROOT, "x")), Errno::ENOSPC);
    assert!(bed.make(ROOT, "socket", FileType::Socket, false, true).is_ok(), "a socket has no bytes");
    assert_eq!(bed.names(ROOT), ["d", "f", "l", "p", "socket"]);
    bed.turn();
}

#[test]
fn directories_count_their_subdirectories() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let e = bed.dir(d, "e");
    assert_eq!(bed.stat(ROOT).unwrap().attr.nlink, 3);
    assert_eq!(bed.stat(d).unwrap().attr.nlink, 3);
    assert_eq!(bed.stat(e).unwrap().attr.nlink, 2);
    bed.turn();
    assert_eq!(refused(bed.rmdir(ROOT, "d")), Errno::ENOTEMPTY);
    assert_eq!(refused(bed.unlink(ROOT, "d")), Errno::EISDIR);
    assert_eq!(refused(bed.rmdir(ROOT, "x")), Errno::ENOENT);
    bed.file(e, "f");
    assert_eq!(refused(bed.rmdir(e, "f")), Errno::ENOTDIR);
    bed.unlink(e, "f").unwrap();
    bed.rmdir(d, "e").unwrap();
    assert_eq!(bed.stat(d).unwrap().attr.nlink, 2);
    assert_eq!(refused(bed.create(e, "late")), Errno::ENOENT);
    assert_eq!(refused(bed.stat(e)), Errno::ESTALE);
    bed.rmdir(ROOT, "d").unwrap();
    bed.turn();
    assert_eq!(bed.shard.inode_count(), 1);
}

#[test]
fn links_have_a_limit() {
    let limits = Limits { links: 4, ..Limits::default() };
    let mut bed = Bed::with(namespace::shard::Config { limits, ..crate::common::config() });
    let f = bed.file(ROOT, "f");
    for text in ["2", "3", "4"] {
        bed.link(f, ROOT, text).unwrap();
    }
    assert_eq!(refused(bed.link(f, ROOT, "5")), Errno::EMLINK);
    let d = bed.dir(ROOT, "d");
    bed.dir(d, "1");
    bed.dir(d, "2");
    assert_eq!(refused(bed.mkdir(d, "3")), Errno::EMLINK);
    bed.dir(ROOT, "e");
    assert_eq!(refused(bed.rename((ROOT, "e"), (d, "e"), 0)), Errno::EMLINK);
    assert_eq!(refused(bed.rename((ROOT, "e"), (d, "f"), RENAME_NOREPLACE)), Errno::EMLINK);
    bed.rename((ROOT, "e"), (d, "1"), 0).unwrap();
    bed.rename((d, "1"), (d, "one"), 0).unwrap();
    bed.file(d, "file");
    bed.dir(ROOT, "e");
    assert_eq!(refused(bed.rename((ROOT, "e"), (d, "file"), RENAME_EXCHANGE)), Errno::EMLINK);
    assert_eq!(refused(bed.rename((d, "file"), (ROOT, "e"), RENAME_EXCHANGE)), Errno::EMLINK);
    bed.turn();
}

#[test]
fn links_share_an_inode() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let f = bed.file(ROOT, "f");
    bed.turn();
    let view = bed.link(f, d, "g").unwrap();
    assert_eq!((view.attr.nlink, view.attr.ctime), (2, Timestamp(bed.now)));
    assert_eq!(refused(bed.link(d, ROOT, "x")), Errno::EPERM);
    assert_eq!(refused(bed.link(f, d, "g")), Errno::EEXIST);
    assert_eq!(refused(bed.link(f, f, "g")), Errno::ENOTDIR);
    assert_eq!(refused(bed.link(GONE, d, "h")), Errno::ESTALE);
    assert_eq!(refused(bed.link(f, GONE, "h")), Errno::ENOENT);
    bed.turn();
    bed.unlink(ROOT, "f").unwrap();
    let attr = bed.stat(f).unwrap().attr;
    assert_eq!((attr.nlink, attr.ctime), (1, Timestamp(bed.now)));
    assert_eq!(bed.shard.entry_info(A, f).unwrap().parent, None);
    bed.unlink(d, "g").unwrap();
    assert_eq!(refused(bed.unlink(d, "g")), Errno::ENOENT);
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    bed.turn();
}

#[test]
fn symlinks_keep_their_target() {
    let mut bed = Bed::new();
    let long = vec![b'x'; 4095];
    let l = bed.symlink(ROOT, "l", &long).unwrap().attr;
    assert_eq!((l.kind, l.mode, l.size), (FileType::Symlink, 0o777, 4095));
    assert_eq!(bed.shard.readlink(l.inode).unwrap(), long, "before the commit");
    bed.turn();
    assert_eq!(bed.shard.readlink(l.inode).unwrap(), long);
    assert_eq!(refused(bed.symlink(ROOT, "m", b"")), Errno::ENOENT);
    assert_eq!(refused(bed.symlink(ROOT, "m", &[b'x'; 4096])), Errno::ENAMETOOLONG);
    assert_eq!(refused(bed.symlink(ROOT, "m", b"a\0b")), Errno::EINVAL);
    assert_eq!(refused(bed.shard.readlink(ROOT)), Errno::EINVAL);
    assert_eq!(refused(bed.shard.readlink(GONE)), Errno::ESTALE);
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(refused(bed.set(l.inode, mode)), Errno::EOPNOTSUPP);
    bed.unlink(ROOT, "l").unwrap();
    bed.turn();
}

#[test]
fn set_group_id_directories_hand_their_group_down() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    bed.set(d, SetAttr { mode: Some(0o2775), gid: Some(7), ..SetAttr::default() }).unwrap();
    let sub = bed.mkdir(d, "sub").unwrap().attr;
    assert_eq!((sub.gid, sub.mode), (7, 0o2755));
    let file = bed.create(d, "file").unwrap().attr;
    assert_eq!((file.gid, file.uid, file.mode), (7, 1000, 0o644));
    assert_eq!(bed.symlink(d, "l", b"x").unwrap().attr.gid, 7);
    bed.turn();
}

#[test]
fn set_changes_what_it_names() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.turn();
    let before = bed.stat(f).unwrap().attr;
    assert_eq!(bed.set(f, SetAttr::default()).unwrap().attr, before, "nothing to do, no new ctime");
    let times = SetAttr { atime: Some(SetTime::At(Timestamp(-5))), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let attr = bed.set(f, times).unwrap().attr;
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (Timestamp(-5), Timestamp(bed.now), Timestamp(bed.now)));
    bed.turn();
    let attr = bed.set(f, SetAttr { size: Some(10), ..SetAttr::default() }).unwrap().attr;
    assert_eq!((attr.size, attr.mtime, attr.btime), (10, Timestamp(bed.now), before.btime));
    let keep = SetAttr { size: Some(0), mtime: Some(SetTime::At(Timestamp(3))), ..SetAttr::default() };
    assert_eq!(bed.set(f, keep).unwrap().attr.mtime, Timestamp(3));
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    assert_eq!(refused(bed.set(f, size(u64::MAX))), Errno::EFBIG);
    assert_eq!(refused(bed.set(ROOT, size(0))), Errno::EISDIR);
    let fifo = bed.make(ROOT, "p", FileType::Fifo, false, true).unwrap().attr.inode;
    assert_eq!(refused(bed.set(fifo, size(0))), Errno::EINVAL);
    assert_eq!(refused(bed.set(GONE, size(0))), Errno::ESTALE);
    bed.turn();
}

#[test]
fn privilege_bits_go_when_told() {
    let cases = [(0o6755, 0o755), (0o6745, 0o2745), (0o4711, 0o711), (0o2711, 0o711), (0o1777, 0o1777)];
    for (before, after) in cases {
        let mut bed = Bed::new();
        let f = bed.file(ROOT, "f");
        bed.set(f, SetAttr { mode: Some(before | 0o100_000), ..SetAttr::default() }).unwrap();
        assert_eq!(bed.stat(f).unwrap().attr.mode, before);
        let chown = SetAttr { uid: Some(5), kill_suid_sgid: true, ..SetAttr::default() };
        let attr = bed.set(f, chown).unwrap().attr;
        assert_eq!((attr.mode, attr.uid), (after, 5));
        bed.set(ROOT, SetAttr { mode: Some(before), ..SetAttr::default() }).unwrap();
        assert_eq!(bed.set(ROOT, chown).unwrap().attr.mode, before, "not of directories");
        bed.turn();
    }
}

#[test]
fn rename_moves_and_replaces() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let f = bed.file(ROOT, "f");
    let g = bed.file(d, "g");
    bed.turn();
    bed.rename((ROOT, "f"), (d, "f"), 0).unwrap();
    assert_eq!(bed.stat(f).unwrap().attr.ctime, Timestamp(bed.now));
    for directory in [ROOT, d] {
        let attr = bed.stat(directory).unwrap().attr;
        assert_eq!((attr.mtime, attr.ctime), (Timestamp(bed.now), Timestamp(bed.now)));
    }
    bed.turn();
    assert_eq!(bed.shard.entry_info(A, f).unwrap().parent, Some(d));
    bed.rename((d, "f"), (d, "g"), 0).unwrap();
    assert_eq!(refused(bed.stat(g)), Errno::ESTALE);
    assert_eq!(bed.lookup(d, "g").unwrap(), f);
    let empty = bed.dir(ROOT, "empty");
    bed.rename((ROOT, "d"), (ROOT, "empty"), 0).unwrap();
    assert_eq!(refused(bed.stat(empty)), Errno::ESTALE);
    assert_eq!(bed.stat(ROOT).unwrap().attr.nlink, 3);
    let sub = bed.dir(ROOT, "sub");
    bed.rename((ROOT, "sub"), (d, "sub"), 0).unwrap();
    assert_eq!(bed.shard.readdir(A, sub, 0, 1, false).unwrap().parent, d);
    assert_eq!((bed.stat(ROOT).unwrap().attr.nlink, bed.stat(d).unwrap().attr.nlink), (3, 3));
    bed.turn();
}

#[test]
fn rename_refuses() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let sub = bed.dir(d, "sub");
    let deep = bed.dir(sub, "deep");
    let f = bed.file(ROOT, "f");
    bed.file(sub, "f");
    bed.turn();
    type End = (InodeId, &'static str);
    let table: &[(End, End, u32, Errno)] = &[
        ((ROOT, "none"), (ROOT, "x"), 0, Errno::ENOENT),
        ((GONE, "f"), (ROOT, "x"), 0, Errno::ENOENT),
        ((ROOT, "f"), (GONE, "x"), 0, Errno::ENOENT),
        ((ROOT, "f"), (f, "x"), 0, Errno::ENOTDIR),
        ((f, "f"), (ROOT, "x"), 0, Errno::ENOTDIR),
        ((ROOT, "f"), (ROOT, "d"), 0, Errno::EISDIR),
        ((ROOT, "d"), (ROOT, "f"), 0, Errno::ENOTDIR),
        ((sub, "deep"), (ROOT, "d"), 0, Errno::ENOTEMPTY),
        ((sub, "f"), (ROOT, "d"), 0, Errno::ENOTEMPTY),
        ((ROOT, "d"), (d, "x"), 0, Errno::EINVAL),
        ((ROOT, "d"), (deep, "x"), 0, Errno::EINVAL),
        ((ROOT, "d"), (d, "sub"), 0, Errno::EINVAL),
        ((ROOT, "f"), (sub, "f"), RENAME_NOREPLACE, Errno::EEXIST),
        ((ROOT, "f"), (ROOT, "f"), RENAME_NOREPLACE, Errno::EEXIST),
        ((ROOT, "f"), (ROOT, "x"), RENAME_EXCHANGE, Errno::ENOENT),
        ((ROOT, "d"), (sub, "deep"), RENAME_EXCHANGE, Errno::EINVAL),
        ((sub, "deep"), (ROOT, "d"), RENAME_EXCHANGE, Errno::EINVAL),
        ((ROOT, "f"), (ROOT, "x"), 3, Errno::EINVAL),
        ((ROOT, "f"), (ROOT, "x"), 8, Errno::EINVAL),
    ];
    for &(from, to, flags, errno) in table {
        assert_eq!(refused(bed.rename(from, to, flags)), errno, "{from:?} {to:?} {flags}");
    }
    bed.turn();
    assert_eq!((bed.names(ROOT), bed.names(sub)), (vec!["d".into(), "f".into()], vec!["deep".into(), "f".into()]));
}

#[test]
fn rename_of_two_names_of_one_file_does_nothing() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.link(f, ROOT, "g").unwrap();
    bed.turn();
    for flags in [0, RENAME_EXCHANGE] {
        bed.rename((ROOT, "f"), (ROOT, "g"), flags).unwrap();
        bed.rename((ROOT, "f"), (ROOT, "f"), flags).unwrap();
    }
    bed.turn();
    assert_eq!(bed.names(ROOT), ["f", "g"]);
    assert_eq!(bed.stat(f).unwrap().attr.nlink, 2);
}

#[test]
fn rename_exchanges_any_two() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let e = bed.dir(d, "e");
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.rename((ROOT, "f"), (d, "e"), RENAME_EXCHANGE).unwrap();
    assert_eq!((bed.lookup(ROOT, "f").unwrap(), bed.lookup(d, "e").unwrap()), (e, f));
    assert_eq!((bed.stat(ROOT).unwrap().attr.nlink, bed.stat(d).unwrap().attr.nlink), (4, 2));
    assert_eq!(bed.shard.readdir(A, e, 0, 1, false).unwrap().parent, ROOT);
    bed.turn();
    bed.rename((ROOT, "f"), (ROOT, "d"), RENAME_EXCHANGE).unwrap();
    assert_eq!((bed.lookup(ROOT, "f").unwrap(), bed.lookup(ROOT, "d").unwrap()), (d, e));
    bed.turn();
}

#[test]
fn xattrs() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.set_xattr(f, b"user.a", b"1", 0).unwrap();
    bed.set_xattr(f, b"trusted.b", b"", 1).unwrap();
    assert_eq!(bed.shard.list_xattr(f).unwrap(), [b"trusted.b".to_vec(), b"user.a".to_vec()]);
    bed.turn();
    assert_eq!(refused(bed.set_xattr(f, b"user.a", b"2", 1)), Errno::EEXIST);
    assert_eq!(refused(bed.set_xattr(f, b"user.c", b"2", 2)), Errno::ENODATA);
    assert_eq!(refused(bed.set_xattr(f, b"user.c", b"2", 4)), Errno::EINVAL);
    assert_eq!(refused(bed.set_xattr(f, b"user.c", &vec![0; 65_537], 0)), Errno::E2BIG);
    bed.set_xattr(f, b"user.c", &vec![1; 65_536], 0).unwrap();
    bed.set_xattr(f, b"user.a", b"2", 2).unwrap();
    assert_eq!(bed.shard.get_xattr(f, b"user.a").unwrap(), b"2");
    assert_eq!(bed.shard.get_xattr(f, b"trusted.b").unwrap(), b"");
    assert_eq!(refused(bed.shard.get_xattr(f, b"user.x")), Errno::ENODATA);
    for (bad, errno) in [
        (&b"system.other"[..], Errno::EOPNOTSUPP),
        (b"other.x", Errno::EOPNOTSUPP),
        (b"user", Errno::EOPNOTSUPP),
        (b"user.", Errno::EINVAL),
        (b"", Errno::ERANGE),
        (&[b'u'; 256], Errno::ERANGE),
    ] {
        assert_eq!(refused(bed.shard.get_xattr(f, bad)), errno);
        assert_eq!(refused(bed.set_xattr(f, bad, b"", 0)), errno);
        assert_eq!(refused(bed.remove_xattr(f, bad)), errno);
    }
    bed.turn();
    for text in [&b"user.a"[..], b"trusted.b", b"user.c"] {
        bed.remove_xattr(f, text).unwrap();
    }
    assert_eq!(refused(bed.remove_xattr(f, b"user.a")), Errno::ENODATA);
    assert_eq!(bed.shard.list_xattr(f).unwrap(), Vec::<Vec<u8>>::new());
    let l = bed.symlink(ROOT, "l", b"x").unwrap().attr.inode;
    assert_eq!(refused(bed.set_xattr(l, b"user.a", b"", 0)), Errno::EPERM);
    bed.set_xattr(l, b"trusted.a", b"", 0).unwrap();
    bed.turn();
    bed.unlink(ROOT, "l").unwrap();
    bed.turn();
}

#[test]
fn xattr_names_fit_in_one_list() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let text = |n: usize| format!("user.{n:0250}").into_bytes();
    for n in 0..256 {
        bed.set_xattr(f, &text(n), b"", 0).unwrap();
    }
    assert_eq!(refused(bed.set_xattr(f, &text(256), b"", 0)), Errno::ENOSPC);
    bed.set_xattr(f, &text(5), b"new", 0).unwrap();
    bed.remove_xattr(f, &text(7)).unwrap();
    bed.set_xattr(f, &text(256), b"", 0).unwrap();
    bed.turn();
    assert_eq!(bed.shard.list_xattr(f).unwrap().len(), 256);
}

#[test]
fn xattr_values_are_bounded_together() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let text = |n: usize| format!("user.{n}").into_bytes();
    let (value, longer) = (vec![1; (64 << 10) - 1], vec![2; 64 << 10]);
    for n in 0..16 {
        bed.set_xattr(f, &text(n), &value, 0).unwrap();
        bed.turn();
    }
    assert_eq!(refused(bed.set_xattr(f, &text(16), &value, 0)), Errno::ENOSPC);
    bed.set_xattr(f, &text(16), &[3; 16], 0).unwrap();
    assert_eq!(refused(bed.set_xattr(f, &text(17), b"x", 0)), Errno::ENOSPC);
    let entry = |tag: u8| [tag, 0, 6, 0, 255, 255, 255, 255];
    let bits = [&[2, 0, 0, 0][..], &entry(1), &entry(4), &entry(32)].concat();
    bed.set_xattr(f, b"system.posix_acl_access", &bits, 0).expect("it is the mode's, and not kept");
    bed.set_xattr(f, &text(17), b"", 0).unwrap();
    bed.turn();
    assert_eq!(refused(bed.set_xattr(f, &text(3), &longer, 0)), Errno::ENOSPC);
    bed.set_xattr(f, &text(16), &[3; 15], 0).unwrap();
    bed.set_xattr(f, &text(3), &longer, 0).unwrap();
    assert_eq!(refused(bed.set_xattr(f, &text(4), &longer, 0)), Errno::ENOSPC, "by one byte");
    bed.set_xattr(f, &text(4), &value, 0).unwrap();
    bed.remove_xattr(f, &text(3)).unwrap();
    bed.set_xattr(f, &text(4), &longer, 0).unwrap();
    bed.turn();
}

#[test]
fn listings_see_the_turn_and_show_each_entry_once() {
    let mut bed = Bed::new();
    for n in 0..50 {
        bed.file(ROOT, &format!("old{n}"));
    }
    bed.turn();
    for n in 0..50 {
        bed.file(ROOT, &format!("new{n}"));
    }
    for n in 0..25 {
        bed.unlink(ROOT, &format!("old{n}")).unwrap();
    }
    let names = bed.names(ROOT);
    assert_eq!(names.len(), 75);
    bed.turn();
    assert_eq!(bed.names(ROOT), names);
    let page = bed.shard.readdir(A, ROOT, 0, 1000, true).unwrap();
    assert!(page.end);
    for entry in &page.entries {
        let view = entry.attributes.as_ref().unwrap();
        assert_eq!((view.attr.inode, view.attr.kind), (entry.inode, entry.kind));
        assert!(entry.cookie >= 16 && i64::try_from(entry.cookie).is_ok());
    }
    assert!(page.entries.windows(2).all(|pair| pair[0].cookie < pair[1].cookie));
    assert!(bed.shard.readdir(A, ROOT, u64::MAX, 10, false).unwrap().entries.is_empty());
    let file = bed.lookup(ROOT, "old30").unwrap();
    assert_eq!(refused(bed.shard.readdir(A, file, 0, 10, false)), Errno::ENOTDIR);
    assert_eq!(refused(bed.shard.readdir(A, GONE, 0, 10, false)), Errno::ESTALE);
}

/// Names made to have the least and the greatest hashes: anybody can make such.
#[test]
fn cookies_leave_room_for_the_dots_before_them_and_for_the_end_of_off_t() {
    const EDGES: [&str; 6] = [
        "edge0333SarOb.-H",
        "edge09e8QyStu4Sx",
        "edge0a744ru+4WEt",
        "edge0a86KXQxn+c3",
        "edge09d5kjgb_,+B",
        "edge0af0KJee7Auc",
    ];
    let mut bed = Bed::new();
    for name in EDGES {
        bed.file(ROOT, name);
    }
    bed.turn();
    let page = bed.shard.readdir(A, ROOT, 0, 10, false).unwrap();
    assert_eq!(page.entries.len(), EDGES.len());
    assert!(page.entries.iter().all(|entry| entry.cookie >= 16 && entry.cookie <= i64::MAX as u64 - 16));
    for (at, entry) in page.entries.iter().enumerate() {
        let rest = bed.shard.readdir(A, ROOT, entry.cookie, 10, false).unwrap();
        assert_eq!(rest.entries, page.entries[at + 1..]);
    }
}

#[test]
fn listings_show_what_stays_exactly_once_while_others_come_and_go() {
    let mut bed = Bed::new();
    for n in 0..200 {
        bed.file(ROOT, &format!("stays{n}"));
    }
    let (mut seen, mut cookie, mut step) = (Vec::new(), 0, 0);
    loop {
        let page = bed.shard.readdir(A, ROOT, cookie, 7, false).unwrap();
        seen.extend(page.entries.iter().map(|entry| entry.name.to_string()).filter(|text| text.starts_with("stays")));
        let Some(last) = page.entries.last() else { break };
        cookie = last.cookie;
        for n in 0..5 {
            bed.file(ROOT, &format!("comes{step}.{n}"));
            if step > 0 {
                bed.unlink(ROOT, &format!("comes{}.{n}", step - 1)).unwrap();
            }
        }
        // The entry that the cookie is of goes away too.
        if last.name.to_string().starts_with("comes") {
            let _ = bed.unlink(ROOT, &last.name.to_string());
        }
        if step % 3 == 0 {
            bed.turn();
        }
        step += 1;
        if page.end {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 200);
}

#[test]
fn policies_are_inherited_by_copy() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let exactly = bed.next(A);
    let change = PolicyChange { chunk_size: Some(1 << 20), stripe_count: Some(6), ..PolicyChange::default() };
    let info = bed.shard.set_policy(exactly, d, &change).unwrap();
    assert!(info.policy_is_own && info.policy.chunk_size == 1 << 20 && info.policy.stripe_count == 6);
    let wide = bed.create(d, "wide").unwrap();
    assert_eq!(wide.layout.as_ref().unwrap().groups.len(), 6);
    let sub = bed.dir(d, "sub");
    bed.turn();
    let info = bed.shard.entry_info(A, wide.attr.inode).unwrap();
    assert_eq!((info.inode.layout, info.parent), (wide.layout, Some(d)));
    assert_eq!((info.policy.stripe_count, info.policy_is_own), (6, false));
    let info = bed.shard.entry_info(A, sub).unwrap();
    assert_eq!((info.policy.stripe_count, info.policy_is_own, info.parent), (6, false, Some(d)));
    let exactly = bed.next(A);
    let change = PolicyChange { pool: Some(PoolId(2)), ..PolicyChange::default() };
    bed.shard.set_policy(exactly, sub, &change).unwrap();
    assert_eq!(bed.create(sub, "one").unwrap().layout.unwrap().groups, [GroupId(201)]);
    let wrong = [
        PolicyChange { chunk_size: Some(5000), ..PolicyChange::default() },
        PolicyChange { stripe_count: Some(0), ..PolicyChange::default() },
        PolicyChange { pool: Some(PoolId(9)), ..PolicyChange::default() },
    ];
    for change in wrong {
        let exactly = bed.next(A);
        assert_eq!(refused(bed.shard.set_policy(exactly, d, &change)), Errno::EINVAL);
    }
    let exactly = bed.next(A);
    assert_eq!(refused(bed.shard.set_policy(exactly, wide.attr.inode, &change)), Errno::ENOTDIR);
    bed.write_intent(A, wide.attr.inode).unwrap();
    bed.turn();
    bed.unlink(d, "wide").unwrap();
    bed.turn();
    assert_eq!(bed.shard.deletions(None, 10).unwrap().deletions.len(), 6);
}

#[test]
fn removed_files_leave_their_objects_to_be_removed() {
    let mut bed = Bed::new();
    bed.file(ROOT, "untouched");
    let view = bed.create(ROOT, "f").unwrap();
    let f = view.attr.inode;
    bed.write_intent(A, f).unwrap();
    bed.turn();
    bed.unlink(ROOT, "untouched").unwrap();
    bed.turn();
    assert_eq!(bed.shard.take_buried(), [], "it had no objects");
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!((bed.shard.take_buried(), bed.shard.take_buried()), (vec![f], vec![]));
    let groups = view.layout.unwrap().groups;
    let expected: Vec<_> = (0..4).map(|stripe| Deletion { inode: f, stripe, group: groups[stripe as usize] }).collect();
    assert_eq!(bed.shard.deletions(None, 10).unwrap().deletions, expected);
    assert_eq!(bed.shard.deletions(None, 2).unwrap().deletions, expected[..2]);
    assert_eq!(bed.shard.deletions(Some((f, 1)), 10).unwrap().deletions, expected[2..]);
    bed.shard.deletions_done(&expected[1..]);
    bed.turn();
    assert_eq!(bed.shard.deletions(None, 10).unwrap().deletions, expected[..1]);
}

#[test]
fn scan_pages_through_everything() {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let gone = bed.file(d, "gone");
    bed.write_intent(A, gone).unwrap();
    bed.unlink(d, "gone").unwrap();
    let f = bed.file(d, "f");
    bed.set_xattr(f, b"user.x", b"", 0).unwrap();
    bed.turn();
    let (mut records, mut after) = (Vec::new(), Vec::new());
    loop {
        let page = bed.shard.scan(&after, 2).unwrap();
        assert!(page.records.len() <= 2);
        records.extend(page.records);
        let Some(next) = page.next else { break };
        after = next;
    }
    let count = |wanted: fn(&ScanRecord) -> bool| records.iter().filter(|record| wanted(record)).count();
    assert_eq!(count(|record| matches!(record, ScanRecord::Edge { .. })), 2);
    assert_eq!(count(|record| matches!(record, ScanRecord::Inode { orphan: None, .. })), 3);
    assert_eq!(count(|record| matches!(record, ScanRecord::Deletion(_))), 4);
    assert_eq!(refused(bed.shard.scan(b"S", 2)), Errno::EINVAL);
}

#[test]
fn ids_are_never_used_twice() {
    let mut bed = Bed::new();
    let mut last = InodeId(0);
    for round in 0..4 {
        for n in 0..3 {
            let id = bed.file(ROOT, &format!("{round}.{n}"));
            assert!(id > last);
            last = id;
        }
        bed.turn();
        // What is lost with an uncommitted turn was told nobody, so its ids may come again.
        bed.file(ROOT, "uncommitted");
        bed.restart();
        bed.shard.session_open(A, b"").unwrap();
    }
}

#[test]
fn foreign_and_damaged_stores_are_refused() {
    use kv::{Batch, Kv};
    use namespace::shard::Shard;
    use types::id::ShardId;

    let bed = Bed::new();
    let other = namespace::shard::Config { shard: ShardId(1), ..crate::common::config() };
    let text = Shard::open(bed.kv.clone(), other, Timestamp(0), 0).err().unwrap().to_string();
    assert!(text.contains("another shard"), "{text}");
    let mut batch = bed.kv.batch();
    batch.put(b"Msuper", &[2, 0, 0, 0, 0, 0]);
    bed.kv.commit(&mut batch).unwrap();
    let text = Shard::open(bed.kv.clone(), crate::common::config(), Timestamp(0), 0).err().unwrap().to_string();
    assert!(text.contains("format that this release does not know"), "{text}");
    batch.delete(b"Msuper");
    bed.kv.commit(&mut batch).unwrap();
    let text = Shard::open(bed.kv.clone(), crate::common::config(), Timestamp(0), 0).err().unwrap().to_string();
    assert!(text.contains("no superblock"), "{text}");
}

#[test]
fn damage_is_an_error_for_those_who_meet_it() {
    use kv::{Batch, Kv};

    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.file(ROOT, "g");
    bed.turn();
    let mut batch = bed.kv.batch();
    let key = [&b"I"[..], &f.0.to_be_bytes()].concat();
    batch.put(&key, b"nonsense");
    bed.kv.commit(&mut batch).unwrap();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    let error = bed.lookup(ROOT, "f").unwrap_err();
    assert_eq!(error.errno(), Errno::EIO);
    assert!(error.to_string().contains("damaged record"), "{error}");
    assert_eq!(bed.unlink(ROOT, "f").unwrap_err().errno(), Errno::EIO);
    let page = bed.shard.readdir(A, ROOT, 0, 10, true).unwrap();
    let known = |name: &str| {
        page.entries.iter().find(|entry| &entry.name[..] == name.as_bytes()).map(|entry| entry.attributes.is_some())
    };
    assert_eq!((known("f"), known("g")), (Some(false), Some(true)), "the others can be listed");
    assert!(bed.lookup(ROOT, "g").is_ok());
    let page = bed.shard.scan(b"", 100).unwrap();
    let damaged =
        |record: &ScanRecord| matches!(record, ScanRecord::Damaged(found) if found.inode == f && found.is_inode);
    let inodes = |record: &ScanRecord| matches!(record, ScanRecord::Inode { .. });
    assert_eq!(page.records.iter().filter(|record| damaged(record)).count(), 1);
    assert_eq!(page.records.iter().filter(|record| inodes(record)).count(), 2, "a check goes over the others");
    assert!(namespace::check::check(&bed.kv, types::id::ShardId(0)).is_err());
    batch.delete(&key);
    bed.kv.commit(&mut batch).unwrap();
    assert!(!namespace::check::check(&bed.kv, types::id::ShardId(0)).unwrap().is_empty());
}

#[test]
fn owner_is_the_caller() {
    let mut bed = Bed::new();
    let exactly = bed.next(A);
    let cred = Credentials { uid: 3, gid: 4, umask: 0 };
    let attr = bed.shard.mkdir(exactly, ROOT, &name("d"), 0o7777, cred).unwrap().attr;
    assert_eq!((attr.uid, attr.gid, attr.mode), (3, 4, 0o7777));
    assert_ne!(cred, CRED);
    bed.turn();
}
