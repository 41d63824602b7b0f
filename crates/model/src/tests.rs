use types::allocation::Allocation;
use types::attr::{FileType, S_ISGID, S_ISUID, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

use crate::*;

const ROOT: InodeId = InodeId::ROOT;
const USER: Credentials = Credentials { uid: 7, gid: 8, umask: 0 };

/// A model whose clock ticks with every change.
struct Fixture {
    fs: Model,
    clock: i64,
}

impl Fixture {
    fn new() -> Self {
        let limits = Limits { file_bytes: 1 << 20, total_bytes: 2 << 20 };
        Self { fs: Model::new(limits, Credentials::default(), Timestamp(0)), clock: 0 }
    }

    fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp(self.clock)
    }

    fn file(&mut self, parent: InodeId, name: &str) -> InodeId {
        let now = self.now();
        let new = New::Node { kind: FileType::Regular, mode: 0o644, rdev: 0 };
        self.fs.create(parent, name.as_bytes(), &new, USER, now).unwrap().inode
    }

    fn dir(&mut self, parent: InodeId, name: &str) -> InodeId {
        let now = self.now();
        self.fs.create(parent, name.as_bytes(), &New::Directory { mode: 0o755 }, USER, now).unwrap().inode
    }

    fn rename(&mut self, from: (InodeId, &str), to: (InodeId, &str), flags: u32) -> Result<(), Errno> {
        let now = self.now();
        self.fs.rename((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), flags, USER, now)
    }

    fn find(&self, parent: InodeId, name: &str) -> Result<InodeId, Errno> {
        self.fs.lookup(parent, name.as_bytes()).map(|attr| attr.inode)
    }

    fn nlink(&self, inode: InodeId) -> u32 {
        self.fs.getattr(inode).unwrap().nlink
    }
}

#[test]
fn a_new_file_has_what_it_was_given() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let attr = f.fs.lookup(ROOT, b"a").unwrap();
    assert_eq!((attr.inode, attr.kind, attr.mode, attr.nlink), (file, FileType::Regular, 0o644, 1));
    assert_eq!((attr.uid, attr.gid, attr.size), (7, 8, 0));
    assert_eq!([attr.atime, attr.mtime, attr.ctime, attr.btime], [Timestamp(1); 4]);
    let root = f.fs.getattr(ROOT).unwrap();
    assert_eq!((root.mtime, root.ctime, root.atime, root.nlink), (Timestamp(1), Timestamp(1), Timestamp(0), 2));
}

#[test]
fn impossible_entries_are_refused() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let new = New::Directory { mode: 0o755 };
    let t = Timestamp(9);
    assert_eq!(f.fs.create(ROOT, b"a", &new, USER, t), Err(Errno::EEXIST));
    assert_eq!(f.fs.create(file, b"b", &new, USER, t), Err(Errno::ENOTDIR));
    assert_eq!(f.fs.create(InodeId(999), b"b", &new, USER, t), Err(Errno::ESTALE));
    assert_eq!(f.fs.create(ROOT, &[b'x'; 256], &new, USER, t), Err(Errno::ENAMETOOLONG));
    assert_eq!(f.fs.create(ROOT, b"..", &new, USER, t), Err(Errno::EINVAL));
    assert_eq!(f.fs.create(ROOT, b"l", &New::Symlink { target: b"" }, USER, t), Err(Errno::ENOENT));
    let node = New::Node { kind: FileType::Directory, mode: 0, rdev: 0 };
    assert_eq!(f.fs.create(ROOT, b"n", &node, USER, t), Err(Errno::EINVAL));
    assert_eq!(f.find(ROOT, "b"), Err(Errno::ENOENT));
    assert_eq!(f.fs.usage().inodes, 2);
}

#[test]
fn directories_count_their_children() {
    let mut f = Fixture::new();
    let a = f.dir(ROOT, "a");
    let b = f.dir(a, "b");
    assert_eq!((f.nlink(ROOT), f.nlink(a), f.nlink(b)), (3, 3, 2));
    assert_eq!(f.fs.rmdir(ROOT, b"a", Timestamp(50)), Err(Errno::ENOTEMPTY));
    f.fs.rmdir(a, b"b", Timestamp(50)).unwrap();
    assert_eq!(f.nlink(a), 2);
    assert_eq!(f.fs.getattr(b), Err(Errno::ESTALE));
    assert_eq!(f.fs.unlink(ROOT, b"a", Timestamp(51)), Err(Errno::EISDIR));
    f.file(ROOT, "f");
    assert_eq!(f.fs.rmdir(ROOT, b"f", Timestamp(51)), Err(Errno::ENOTDIR));
}

#[test]
fn set_group_id_directories_pass_their_group_on() {
    let mut f = Fixture::new();
    let dir = f.dir(ROOT, "d");
    let change = SetAttr { mode: Some(0o755 | S_ISGID), gid: Some(99), ..SetAttr::default() };
    f.fs.setattr(dir, &change, Timestamp(5)).unwrap();
    let sub = f.dir(dir, "sub");
    let file = f.file(dir, "file");
    let (sub, file) = (f.fs.getattr(sub).unwrap(), f.fs.getattr(file).unwrap());
    assert_eq!((sub.gid, sub.mode), (99, 0o755 | S_ISGID));
    assert_eq!((file.gid, file.mode), (99, 0o644));
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    f.fs.open(file).unwrap();
    f.fs.write(file, 0, b"still here", false, Timestamp(10)).unwrap();
    f.fs.unlink(ROOT, b"a", Timestamp(11)).unwrap();
    let attr = f.fs.getattr(file).unwrap();
    assert_eq!((attr.nlink, attr.ctime), (0, Timestamp(11)));
    assert_eq!(f.fs.read(file, 0, 100).unwrap(), b"still here");
    assert_eq!(f.fs.link(file, ROOT, b"b", Timestamp(12)), Err(Errno::ENOENT));
    f.fs.close(file).unwrap();
    assert_eq!(f.fs.getattr(file), Err(Errno::ESTALE));
    assert_eq!(f.fs.usage(), Usage { inodes: 1, content_bytes: 0 });
}

#[test]
fn a_removed_directory_takes_no_entries() {
    let mut f = Fixture::new();
    let dir = f.dir(ROOT, "d");
    f.fs.open(dir).unwrap();
    f.fs.rmdir(ROOT, b"d", Timestamp(9)).unwrap();
    assert_eq!(f.nlink(dir), 0);
    assert_eq!(f.fs.create(dir, b"x", &New::Directory { mode: 0 }, USER, Timestamp(9)), Err(Errno::ENOENT));
    assert_eq!(f.fs.readdir(dir, 0, 10).unwrap(), vec![]);
    f.file(ROOT, "f");
    assert_eq!(f.rename((ROOT, "f"), (dir, "f"), 0), Err(Errno::ENOENT));
    f.fs.close(dir).unwrap();
    assert_eq!(f.fs.close(dir), Err(Errno::ESTALE));
}

#[test]
fn hard_links_share_an_inode() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let dir = f.dir(ROOT, "d");
    let attr = f.fs.link(file, dir, b"b", Timestamp(30)).unwrap();
    assert_eq!((attr.inode, attr.nlink, attr.ctime), (file, 2, Timestamp(30)));
    assert_eq!(f.fs.link(file, ROOT, b"a", Timestamp(31)), Err(Errno::EEXIST));
    assert_eq!(f.fs.link(dir, ROOT, b"c", Timestamp(31)), Err(Errno::EPERM));
    f.fs.unlink(ROOT, b"a", Timestamp(32)).unwrap();
    assert_eq!(f.nlink(file), 1);
    assert_eq!(f.find(dir, "b"), Ok(file));
}

#[test]
fn rename_moves_and_replaces() {
    let mut f = Fixture::new();
    let (a, b, dir) = (f.file(ROOT, "a"), f.file(ROOT, "b"), f.dir(ROOT, "d"));
    f.rename((ROOT, "a"), (dir, "a2"), 0).unwrap();
    assert_eq!((f.find(ROOT, "a"), f.find(dir, "a2")), (Err(Errno::ENOENT), Ok(a)));
    assert_eq!(f.fs.getattr(a).unwrap().ctime, Timestamp(f.clock));
    f.rename((ROOT, "b"), (dir, "a2"), 0).unwrap();
    assert_eq!(f.find(dir, "a2"), Ok(b));
    assert_eq!(f.fs.getattr(a), Err(Errno::ESTALE));
    assert_eq!(f.rename((dir, "a2"), (ROOT, "d"), 0), Err(Errno::ENOTEMPTY), "the target holds the source");
    f.file(ROOT, "c");
    assert_eq!(f.rename((ROOT, "c"), (ROOT, "d"), 0), Err(Errno::EISDIR));
    assert_eq!(f.rename((ROOT, "d"), (ROOT, "c"), 0), Err(Errno::ENOTDIR));
    assert_eq!(f.rename((ROOT, "zz"), (ROOT, "c"), 0), Err(Errno::ENOENT));
    assert_eq!(f.rename((ROOT, "c"), (ROOT, "y"), 8), Err(Errno::EINVAL));
    f.rename((ROOT, "c"), (ROOT, "c"), 0).unwrap();
}

#[test]
fn rename_of_directories_keeps_the_tree_a_tree() {
    let mut f = Fixture::new();
    let (a, b) = (f.dir(ROOT, "a"), f.dir(ROOT, "b"));
    let inner = f.dir(a, "inner");
    assert_eq!(f.rename((ROOT, "a"), (inner, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(f.rename((ROOT, "a"), (a, "x"), 0), Err(Errno::EINVAL));
    f.rename((a, "inner"), (b, "moved"), 0).unwrap();
    assert_eq!((f.nlink(a), f.nlink(b), f.fs.parent(inner)), (2, 3, Ok(b)));
    assert_eq!(f.rename((ROOT, "a"), (ROOT, "b"), 0), Err(Errno::ENOTEMPTY));
    f.rename((b, "moved"), (ROOT, "a"), 0).unwrap();
    assert_eq!((f.nlink(ROOT), f.nlink(b), f.find(ROOT, "a")), (4, 2, Ok(inner)));
    assert_eq!(f.fs.getattr(a), Err(Errno::ESTALE));
}

#[test]
fn rename_flags() {
    let mut f = Fixture::new();
    let (a, dir) = (f.file(ROOT, "a"), f.dir(ROOT, "d"));
    let sub = f.dir(dir, "sub");
    assert_eq!(f.rename((ROOT, "a"), (dir, "sub"), RENAME_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(f.rename((ROOT, "a"), (dir, "zz"), RENAME_EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(f.rename((ROOT, "a"), (dir, "sub"), RENAME_EXCHANGE | RENAME_NOREPLACE), Err(Errno::EINVAL));
    f.rename((ROOT, "a"), (dir, "sub"), RENAME_EXCHANGE).unwrap();
    assert_eq!((f.find(ROOT, "a"), f.find(dir, "sub")), (Ok(sub), Ok(a)));
    assert_eq!((f.nlink(ROOT), f.nlink(dir), f.fs.parent(sub)), (4, 2, Ok(ROOT)));
    assert_eq!(f.rename((dir, "sub"), (ROOT, "d"), RENAME_EXCHANGE), Err(Errno::EINVAL));
    f.rename((dir, "sub"), (ROOT, "new"), RENAME_NOREPLACE).unwrap();
    assert_eq!(f.find(ROOT, "new"), Ok(a));
    assert_eq!(f.rename((ROOT, "new"), (ROOT, "a"), RENAME_WHITEOUT | RENAME_EXCHANGE), Err(Errno::EINVAL));
    f.rename((ROOT, "new"), (dir, "sub"), RENAME_WHITEOUT | RENAME_NOREPLACE).unwrap();
    let whiteout = f.fs.lookup(ROOT, b"new").unwrap();
    assert_eq!((whiteout.kind, whiteout.mode, whiteout.rdev), (FileType::CharDevice, 0, 0));
    assert_eq!(f.find(dir, "sub"), Ok(a));
}

#[test]
fn two_names_of_one_inode_stay_after_a_rename() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    f.fs.link(file, ROOT, b"b", Timestamp(3)).unwrap();
    f.rename((ROOT, "a"), (ROOT, "b"), 0).unwrap();
    assert_eq!((f.find(ROOT, "a"), f.find(ROOT, "b"), f.nlink(file)), (Ok(file), Ok(file), 2));
}

#[test]
fn a_listing_shows_what_stays_exactly_once() {
    let mut f = Fixture::new();
    for i in 0..10 {
        f.file(ROOT, &format!("stay{i}"));
        f.file(ROOT, &format!("go{i}"));
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let page = f.fs.readdir(ROOT, cookie, 3).unwrap();
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        seen.extend(page.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()));
        let step = seen.len() / 3;
        let now = f.now();
        let _ = f.fs.unlink(ROOT, format!("go{step}").as_bytes(), now);
        f.file(ROOT, &format!("new{}", seen.len()));
        let _ = f.rename((ROOT, &format!("go{}", 9 - step)), (ROOT, "stay0"), 0);
        assert!(seen.len() < 100, "the listing ends");
        if step > 8 {
            break;
        }
    }
    for i in 0..10 {
        assert_eq!(seen.iter().filter(|&name| *name == format!("stay{i}")).count(), 1, "stay{i}");
    }
}

#[test]
fn writes_fill_gaps_with_zeros() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    f.fs.write(file, 5, b"hello", false, Timestamp(20)).unwrap();
    f.fs.write(file, 7, b"LLO WORLD", false, Timestamp(21)).unwrap();
    assert_eq!(f.fs.read(file, 0, 100).unwrap(), b"\0\0\0\0\0heLLO WORLD");
    assert_eq!(f.fs.read(file, 14, 1).unwrap(), b"L");
    assert_eq!(f.fs.read(file, 16, 1).unwrap(), b"");
    assert_eq!(f.fs.read(file, u64::MAX, 1).unwrap(), b"");
    let attr = f.fs.getattr(file).unwrap();
    assert_eq!((attr.size, attr.blocks, attr.mtime, attr.ctime), (16, 1, Timestamp(21), Timestamp(21)));
    f.fs.write(file, 1 << 19, b"", false, Timestamp(22)).unwrap();
    assert_eq!(f.fs.getattr(file).unwrap(), attr);
    assert_eq!(f.fs.read(ROOT, 0, 1), Err(Errno::EISDIR));
}

#[test]
fn space_is_zeros_where_it_is_not_data() {
    let mut t = Fixture::new();
    let f = t.file(ROOT, "f");
    let now = t.now();
    t.fs.write(f, 0, b"abcdef", false, now).unwrap();
    t.fs.allocate(f, 1, 2, Allocation::Punch, now).unwrap();
    t.fs.allocate(f, 5, 9, Allocation::Zero { keep_size: true }, now).unwrap();
    assert_eq!(t.fs.read(f, 0, 99).unwrap(), b"a\0\0de\0");
    t.fs.allocate(f, 0, 8, Allocation::Reserve { keep_size: false }, now).unwrap();
    t.fs.allocate(f, 0, 99, Allocation::Reserve { keep_size: true }, now).unwrap();
    assert_eq!(t.fs.read(f, 0, 99).unwrap(), b"a\0\0de\0\0\0");
    assert_eq!(t.fs.allocate(f, 0, 0, Allocation::Punch, now), Err(Errno::EINVAL));
}

#[test]
fn sizes_are_bounded() {
    let mut f = Fixture::new();
    let (a, b) = (f.file(ROOT, "a"), f.file(ROOT, "b"));
    assert_eq!(f.fs.write(a, 1 << 20, b"x", false, Timestamp(1)), Err(Errno::EFBIG));
    assert_eq!(f.fs.write(a, u64::MAX, b"x", false, Timestamp(1)), Err(Errno::EFBIG));
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    f.fs.setattr(a, &size(1 << 20), Timestamp(2)).unwrap();
    f.fs.setattr(b, &size(1 << 20), Timestamp(2)).unwrap();
    let c = f.file(ROOT, "c");
    assert_eq!(f.fs.write(c, 0, b"x", false, Timestamp(3)), Err(Errno::ENOSPC));
    assert_eq!(f.fs.setattr(ROOT, &size(0), Timestamp(3)), Err(Errno::EISDIR));
    f.fs.setattr(a, &size(0), Timestamp(4)).unwrap();
    f.fs.write(c, 0, b"x", false, Timestamp(5)).unwrap();
    assert_eq!(f.fs.usage().content_bytes, (1 << 20) + 1);
}

#[test]
fn set_attributes_touch_the_right_times() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let before = f.fs.getattr(file).unwrap();
    let same = f.fs.setattr(file, &SetAttr::default(), Timestamp(40)).unwrap();
    assert_eq!(same, before);
    let chmod = SetAttr { mode: Some(0o107_777), ..SetAttr::default() };
    let attr = f.fs.setattr(file, &chmod, Timestamp(41)).unwrap();
    assert_eq!((attr.mode, attr.ctime, attr.mtime), (0o7777, Timestamp(41), before.mtime));
    let times = SetAttr { atime: Some(SetTime::At(Timestamp(-5))), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let attr = f.fs.setattr(file, &times, Timestamp(42)).unwrap();
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (Timestamp(-5), Timestamp(42), Timestamp(42)));
    let truncate = SetAttr { size: Some(0), kill_suid_sgid: true, ..SetAttr::default() };
    let attr = f.fs.setattr(file, &truncate, Timestamp(43)).unwrap();
    assert_eq!((attr.mode, attr.mtime, attr.ctime), (0o1777, Timestamp(43), Timestamp(43)));
    let chmod = SetAttr { mode: Some(0o6766), kill_suid_sgid: true, kill_sgid: true, ..SetAttr::default() };
    assert_eq!(f.fs.setattr(file, &chmod, Timestamp(44)).unwrap().mode, 0o766, "by one who is not in the group");
}

#[test]
fn privilege_bits_go_with_a_write() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let chmod = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    f.fs.setattr(file, &chmod(0o644 | S_ISUID | S_ISGID), Timestamp(1)).unwrap();
    f.fs.write(file, 0, b"x", false, Timestamp(2)).unwrap();
    assert_eq!(f.fs.getattr(file).unwrap().mode, 0o644 | S_ISUID | S_ISGID);
    f.fs.write(file, 0, b"x", true, Timestamp(2)).unwrap();
    assert_eq!(f.fs.getattr(file).unwrap().mode, 0o644 | S_ISGID, "no group execution: mandatory locking's bit");
}

#[test]
fn xattrs() {
    let mut f = Fixture::new();
    let file = f.file(ROOT, "a");
    let t = Timestamp(60);
    assert_eq!(f.fs.getxattr(file, b"user.a"), Err(Errno::ENODATA));
    assert_eq!(f.fs.setxattr(file, b"user.a", b"1", XATTR_REPLACE, t), Err(Errno::ENODATA));
    f.fs.setxattr(file, b"user.b", b"2", 0, t).unwrap();
    f.fs.setxattr(file, b"user.a", b"1", XATTR_CREATE, t).unwrap();
    assert_eq!(f.fs.setxattr(file, b"user.a", b"3", XATTR_CREATE, t), Err(Errno::EEXIST));
    assert_eq!(f.fs.setxattr(file, b"user.a", b"3", 4, t), Err(Errno::EINVAL));
    assert_eq!(f.fs.setxattr(file, &[b'u'; 256], b"", 0, t), Err(Errno::ERANGE));
    assert_eq!(f.fs.setxattr(file, b"user.c", &vec![0; (64 << 10) + 1], 0, t), Err(Errno::E2BIG));
    assert_eq!(f.fs.getxattr(file, b"user.a").unwrap(), b"1");
    assert_eq!(f.fs.listxattr(file).unwrap(), vec![b"user.a".to_vec(), b"user.b".to_vec()]);
    assert_eq!(f.fs.getattr(file).unwrap().ctime, t);
    f.fs.removexattr(file, b"user.a", t).unwrap();
    assert_eq!(f.fs.removexattr(file, b"user.a", t), Err(Errno::ENODATA));
}

#[test]
fn symlinks_keep_their_target() {
    let mut f = Fixture::new();
    let attr = f.fs.create(ROOT, b"l", &New::Symlink { target: b"../x" }, USER, Timestamp(2)).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.size, attr.nlink), (FileType::Symlink, 0o777, 4, 1));
    assert_eq!(f.fs.readlink(attr.inode).unwrap(), b"../x");
    assert_eq!(f.fs.readlink(ROOT), Err(Errno::EINVAL));
}
