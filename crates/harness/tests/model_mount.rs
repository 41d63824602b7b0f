//! Random operations on real mounts and on the reference model: the same results, attributes and contents. Two mounts of
//! the cluster take turns, so what one finished is what the other starts from.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::syscall;
use harness::tree::sum;
use model::{Limits, Model, New};
use types::allocation::Allocation;
use types::attr::{Attr, FileType, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "a name that is somewhat longer"];
const XATTRS: [&str; 3] = ["user.x", "user.y", "user.long-name"];
/// What symbolic links lead to is not there: following one fails.
const NOWHERE: &str = "nowhere";
/// After so many operations the whole trees are compared.
const PICTURE_EVERY: u64 = 100;

/// Renames as a program must that shares directories with other mounts: the kernel cannot look up a directory that it
/// still knows at its old place while the rename has its locks (`__d_unalias` only tries for them), and says `ESTALE`.
/// A look at the names before is all that it needs. The README names this; it ends when leases tell the kernel of moves.
fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    match syscall::rename(from, to, flags) {
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
            // Whether they are there is for the rename to say.
            let _ = (fs::symlink_metadata(from), fs::symlink_metadata(to));
            syscall::rename(from, to, flags)
        }
        done => done,
    }
}

#[derive(Debug)]
enum Operation {
    Create(Vec<String>, u32),
    Write(Vec<String>, u64, Vec<u8>),
    Append(Vec<String>, Vec<u8>),
    Truncate(Vec<String>, u64),
    Read(Vec<String>, u64, usize),
    Allocate(Vec<String>, Allocation, u64, u64),
    Copy { from: Vec<String>, at: u64, to: Vec<String>, to_at: u64, len: usize },
    Mkdir(Vec<String>, u32),
    Symlink(Vec<String>),
    Fifo(Vec<String>, u32),
    Link(Vec<String>, Vec<String>),
    Unlink(Vec<String>),
    Rmdir(Vec<String>),
    Rename(Vec<String>, Vec<String>, u32),
    Chmod(Vec<String>, u32),
    Chown(Vec<String>, u32, u32),
    Times(Vec<String>, i64, i64),
    SetXattr(Vec<String>, &'static str, Vec<u8>, u32),
    RemoveXattr(Vec<String>, &'static str),
}

impl Operation {
    fn random(dice: &mut Dice, known: &[Vec<String>]) -> Self {
        let path = random_path(dice, known);
        let mode = dice.roll(0o1000) as u32 | 0o600;
        match dice.roll(27) {
            0..=2 => Self::Create(path, mode),
            3..=5 => Self::Write(path, dice.roll(60_000), data(dice)),
            6 => Self::Append(path, data(dice)),
            7 => Self::Truncate(path, dice.roll(90_000)),
            8 => Self::Read(path, dice.roll(60_000), dice.index(70_000)),
            9..=11 => Self::Mkdir(path, mode | 0o700),
            12 => Self::Symlink(path),
            13 => Self::Fifo(path, mode),
            14 => Self::Link(path, random_path(dice, known)),
            15 => Self::Unlink(path),
            16 => Self::Rmdir(path),
            17 => Self::Chmod(path, dice.roll(0o10000) as u32 | 0o700),
            18 => Self::Chown(path, dice.roll(5) as u32, dice.roll(5) as u32),
            19 => Self::Times(path, time(dice), time(dice)),
            20 => {
                let (name, len, flags) = (*dice.pick(&XATTRS), dice.index(300), dice.roll(3) as u32);
                Self::SetXattr(path, name, dice.bytes(len), flags)
            }
            21 => Self::RemoveXattr(path, XATTRS[dice.index(XATTRS.len())]),
            22 => Self::Rename(path, random_path(dice, known), 0),
            23 | 24 => {
                let what = *dice.pick(&[
                    Allocation::Reserve { keep_size: false },
                    Allocation::Reserve { keep_size: true },
                    Allocation::Punch,
                    Allocation::Zero { keep_size: false },
                    Allocation::Zero { keep_size: true },
                ]);
                Self::Allocate(path, what, dice.roll(60_000), 1 + dice.roll(60_000))
            }
            25 => {
                let (at, to_at, len) = (dice.roll(40_000), dice.roll(60_000), dice.index(40_000));
                Self::Copy { from: path, at, to: random_path(dice, known), to_at, len }
            }
            _ => Self::Rename(path, random_path(dice, known), 1 + dice.roll(2) as u32),
        }
    }

    /// Through a mount: `Ok` with what was read, or the errno.
    fn on_mount(&self, root: &Path) -> Result<Vec<u8>, i32> {
        let p = |path: &Vec<String>| root.join(path.iter().collect::<PathBuf>());
        let open = |path: &Vec<String>| File::options().write(true).custom_flags(libc::O_NONBLOCK).open(p(path));
        let done: io::Result<()> = match self {
            Self::Create(path, mode) => {
                File::options().write(true).create_new(true).mode(*mode).open(p(path)).map(drop)
            }
            Self::Write(path, offset, data) => open(path).and_then(|file| file.write_all_at(data, *offset)),
            Self::Append(path, data) => File::options()
                .append(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(p(path))
                .and_then(|mut file| io::Write::write_all(&mut file, data)),
            Self::Truncate(path, len) => truncate(&p(path), *len),
            Self::Allocate(path, what, offset, len) => {
                open(path).and_then(|file| syscall::fallocate(&file, what.mode() as i32, *offset, *len))
            }
            Self::Copy { from, at, to, to_at, len } => copy((&p(from), *at), (&p(to), *to_at), *len),
            Self::Read(path, offset, len) => return read(&p(path), *offset, *len).map_err(number),
            Self::Mkdir(path, mode) => fs::DirBuilder::new().mode(*mode).create(p(path)),
            Self::Symlink(path) => symlink(NOWHERE, p(path)),
            Self::Fifo(path, mode) => syscall::mkfifo(&p(path), *mode),
            Self::Link(from, to) => fs::hard_link(p(from), p(to)),
            Self::Unlink(path) => fs::remove_file(p(path)),
            Self::Rmdir(path) => fs::remove_dir(p(path)),
            Self::Rename(from, to, flags) => rename(&p(from), &p(to), *flags),
            Self::Chmod(path, mode) => fs::set_permissions(p(path), Permissions::from_mode(*mode)),
            Self::Chown(path, uid, gid) => std::os::unix::fs::lchown(p(path), Some(*uid), Some(*gid)),
            Self::Times(path, atime, mtime) => syscall::utimens(&p(path), *atime, *mtime),
            Self::SetXattr(path, name, value, flags) => syscall::setxattr(&p(path), name, value, *flags as i32),
            Self::RemoveXattr(path, name) => syscall::removexattr(&p(path), name),
        };
        done.map(|()| Vec::new()).map_err(number)
    }
}

fn number(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| panic!("not the kernel's: {error}"))
}

fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a terminated string that lives through the call.
    if unsafe { libc::truncate(path.as_ptr(), len as i64) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// All of a range, or what there is of it; ranges of one file that overlap, and what are no files, are left alone.
fn copy(from: (&Path, u64), to: (&Path, u64), len: usize) -> io::Result<()> {
    let source = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(from.0)?;
    let source_meta = source.metadata()?;
    if !source_meta.is_file() {
        return Ok(());
    }
    let target = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(to.0)?;
    if source_meta.ino() == target.metadata()?.ino() && overlap(from.1, to.1, len) {
        return Ok(());
    }
    // What a copy within one file appends is not copied again.
    let len = len.min(usize::try_from(source_meta.len().saturating_sub(from.1)).unwrap());
    let mut done = 0;
    while done < len {
        let places = ((&source, from.1 + done as u64), (&target, to.1 + done as u64));
        match syscall::copy_range(places.0, places.1, len - done)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

fn overlap(one: u64, other: u64, len: usize) -> bool {
    one.abs_diff(other) < len as u64
}

fn read(path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        // What reading from others gives is no matter of the file system.
        return Ok(Vec::new());
    }
    let mut content = vec![0; len];
    let mut count = 0;
    while count < len {
        match file.read_at(&mut content[count..], offset + count as u64)? {
            0 => break,
            more => count += more,
        }
    }
    content.truncate(count);
    Ok(content)
}

/// Mostly one that was there a while ago, or a name in it or beside it.
fn random_path(dice: &mut Dice, known: &[Vec<String>]) -> Vec<String> {
    if dice.roll(4) > 0 && !known.is_empty() {
        let mut path = dice.pick(known).clone();
        match dice.roll(3) {
            0 if path.len() < 4 => path.push((*dice.pick(&NAMES)).to_owned()),
            1 => path.last_mut().expect("paths have a name").clone_from(&(*dice.pick(&NAMES)).to_owned()),
            _ => {}
        }
        return path;
    }
    (0..1 + dice.roll(3)).map(|_| (*dice.pick(&NAMES)).to_owned()).collect()
}

fn data(dice: &mut Dice) -> Vec<u8> {
    let len = 1 + dice.index(30_000);
    dice.bytes(len)
}

fn time(dice: &mut Dice) -> i64 {
    dice.roll(4_000_000_000_000_000_000) as i64 - 1_000_000_000_000_000_000
}

/// The model with what the kernel does before a file system is asked: walking a path.
struct Reference {
    model: Model,
    clock: i64,
}

impl Reference {
    fn new() -> Self {
        let root = Credentials::default();
        Self { model: Model::new(Limits::default(), root, Timestamp(0)), clock: 0 }
    }

    /// A directory on the way; a symbolic link on it leads nowhere.
    fn walk(&self, path: &[String]) -> Result<InodeId, Errno> {
        let mut at = InodeId::ROOT;
        for name in path {
            at = self.step(at, name)?;
            match self.model.getattr(at)?.kind {
                FileType::Directory => {}
                FileType::Symlink => return Err(Errno::ENOENT),
                _ => return Err(Errno::ENOTDIR),
            }
        }
        Ok(at)
    }

    fn step(&self, at: InodeId, name: &str) -> Result<InodeId, Errno> {
        self.model.lookup(at, name.as_bytes()).map(|attr| attr.inode)
    }

    fn parent<'a>(&self, path: &'a [String]) -> Result<(InodeId, &'a [u8]), Errno> {
        let (last, folders) = path.split_last().expect("paths have a name");
        Ok((self.walk(folders)?, last.as_bytes()))
    }

    /// What the path names, a symbolic link being itself.
    fn find(&self, path: &[String]) -> Result<Attr, Errno> {
        let (parent, name) = self.parent(path)?;
        self.model.lookup(parent, name)
    }

    /// As [`Self::find`], and a symbolic link is followed: to nowhere.
    fn follow(&self, path: &[String]) -> Result<Attr, Errno> {
        let attr = self.find(path)?;
        if attr.kind == FileType::Symlink { Err(Errno::ENOENT) } else { Ok(attr) }
    }

    /// What open for writing finds. `None`: opened, but writing to it is no matter of the file system.
    fn writable(&self, path: &[String]) -> Result<InodeId, Errno> {
        let attr = self.follow(path)?;
        match attr.kind {
            FileType::Regular => Ok(attr.inode),
            FileType::Directory => Err(Errno::EISDIR),
            // A fifo without a reader.
            _ => Err(Errno::ENXIO),
        }
    }

    fn run(&mut self, operation: &Operation) -> Result<Vec<u8>, Errno> {
        self.clock += 1;
        let now = Timestamp(self.clock);
        let root = Credentials::default();
        match operation {
            Operation::Create(path, mode) => {
                let (parent, name) = self.parent(path)?;
                let new = New::Node { kind: FileType::Regular, mode: *mode, rdev: 0 };
                self.model.create(parent, name, &new, root, now)?;
            }
            Operation::Mkdir(path, mode) => {
                let (parent, name) = self.parent(path)?;
                self.model.create(parent, name, &New::Directory { mode: *mode }, root, now)?;
            }
            Operation::Symlink(path) => {
                let (parent, name) = self.parent(path)?;
                self.model.create(parent, name, &New::Symlink { target: NOWHERE.as_bytes() }, root, now)?;
            }
            Operation::Fifo(path, mode) => {
                let (parent, name) = self.parent(path)?;
                self.model.create(
                    parent,
                    name,
                    &New::Node { kind: FileType::Fifo, mode: *mode, rdev: 0 },
                    root,
                    now,
                )?;
            }
            Operation::Write(path, offset, data) => {
                self.model.write(self.writable(path)?, *offset, data, false, now)?;
            }
            Operation::Append(path, data) => {
                let inode = self.writable(path)?;
                let end = self.model.getattr(inode)?.size;
                self.model.write(inode, end, data, false, now)?;
            }
            Operation::Truncate(path, len) => self.truncate(path, *len, now)?,
            Operation::Allocate(path, what, offset, len) => {
                self.model.allocate(self.writable(path)?, *offset, *len, *what, now)?;
            }
            Operation::Copy { from, at, to, to_at, len } => {
                let source = self.follow(from)?;
                if source.kind != FileType::Regular {
                    return Ok(Vec::new());
                }
                let target = self.writable(to)?;
                if source.inode != target || !overlap(*at, *to_at, *len) {
                    let data = self.model.read(source.inode, *at, *len)?.to_vec();
                    self.model.write(target, *to_at, &data, false, now)?;
                }
            }
            Operation::Read(path, offset, len) => {
                let attr = self.follow(path)?;
                if attr.kind == FileType::Regular {
                    return self.model.read(attr.inode, *offset, *len).map(<[u8]>::to_vec);
                }
            }
            other => self.change_names(other, now)?,
        }
        Ok(Vec::new())
    }

    fn truncate(&mut self, path: &[String], len: u64, now: Timestamp) -> Result<(), Errno> {
        let attr = self.follow(path)?;
        match attr.kind {
            FileType::Regular => {
                let change = SetAttr { size: Some(len), ..SetAttr::default() };
                self.model.setattr(attr.inode, &change, now).map(drop)
            }
            FileType::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn change_names(&mut self, operation: &Operation, now: Timestamp) -> Result<(), Errno> {
        match operation {
            Operation::Link(from, to) => {
                let inode = self.find(from)?;
                let (parent, name) = self.parent(to)?;
                // The kernel looks for the new name before it refuses a directory.
                if self.model.lookup(parent, name).is_ok() {
                    return Err(Errno::EEXIST);
                }
                self.model.link(inode.inode, parent, name, now).map(drop)
            }
            Operation::Unlink(path) => {
                let (parent, name) = self.parent(path)?;
                self.model.unlink(parent, name, now)
            }
            Operation::Rmdir(path) => {
                let (parent, name) = self.parent(path)?;
                self.model.rmdir(parent, name, now)
            }
            Operation::Rename(from, to, flags) => {
                let (source, target) = (self.parent(from)?, self.parent(to)?);
                self.model.rename(source, target, *flags, Credentials::default(), now)
            }
            Operation::Chmod(path, mode) => {
                let inode = self.follow(path)?.inode;
                self.set(inode, SetAttr { mode: Some(*mode), ..SetAttr::default() }, now)
            }
            Operation::Chown(path, uid, gid) => {
                let attr = self.find(path)?;
                // The kernel clears these for everything but directories.
                let kill_suid_sgid = attr.kind != FileType::Directory;
                let change = SetAttr { uid: Some(*uid), gid: Some(*gid), kill_suid_sgid, ..SetAttr::default() };
                self.set(attr.inode, change, now)
            }
            Operation::Times(path, atime, mtime) => {
                let inode = self.find(path)?.inode;
                let at = |time: i64| Some(SetTime::At(Timestamp(time)));
                self.set(inode, SetAttr { atime: at(*atime), mtime: at(*mtime), ..SetAttr::default() }, now)
            }
            Operation::SetXattr(path, name, value, flags) => {
                let inode = self.with_user_xattrs(path, Errno::EPERM)?;
                self.model.setxattr(inode, name.as_bytes(), value, *flags, now)
            }
            Operation::RemoveXattr(path, name) => {
                let inode = self.with_user_xattrs(path, Errno::EPERM)?;
                self.model.removexattr(inode, name.as_bytes(), now)
            }
            other => panic!("{other:?} changes no name"),
        }
    }

    /// The kernel keeps `user.` attributes to files and directories.
    fn with_user_xattrs(&self, path: &[String], otherwise: Errno) -> Result<InodeId, Errno> {
        let attr = self.find(path)?;
        match attr.kind {
            FileType::Regular | FileType::Directory => Ok(attr.inode),
            _ => Err(otherwise),
        }
    }

    fn set(&mut self, inode: InodeId, change: SetAttr, now: Timestamp) -> Result<(), Errno> {
        self.model.setattr(inode, &change, now).map(drop)
    }

    /// Paths of all that is there.
    fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        let mut open = vec![(InodeId::ROOT, Vec::new())];
        while let Some((folder, path)) = open.pop() {
            for entry in self.model.readdir(folder, 0, usize::MAX).unwrap() {
                let mut path: Vec<String> = path.clone();
                path.push(String::from_utf8(entry.name).unwrap());
                if entry.attr.kind == FileType::Directory {
                    open.push((entry.attr.inode, path.clone()));
                }
                paths.push(path);
            }
        }
        paths
    }

    /// One line for each name, as [`picture_of_mount`] has them.
    fn picture(&self) -> BTreeMap<PathBuf, String> {
        let mut lines = BTreeMap::new();
        let mut open = vec![(InodeId::ROOT, PathBuf::new())];
        while let Some((folder, path)) = open.pop() {
            for entry in self.model.readdir(folder, 0, usize::MAX).unwrap() {
                let path = path.join(String::from_utf8(entry.name).unwrap());
                if entry.attr.kind == FileType::Directory {
                    open.push((entry.attr.inode, path.clone()));
                }
                lines.insert(path, self.line(&entry.attr));
            }
        }
        lines
    }

    fn line(&self, attr: &Attr) -> String {
        let content = match attr.kind {
            FileType::Regular => format!("{:x}", sum(self.model.read(attr.inode, 0, usize::MAX).unwrap())),
            FileType::Symlink => String::from_utf8(self.model.readlink(attr.inode).unwrap().to_vec()).unwrap(),
            _ => String::new(),
        };
        let xattrs: Vec<(Vec<u8>, u64)> = self
            .model
            .listxattr(attr.inode)
            .unwrap()
            .into_iter()
            .map(|name| (name.clone(), sum(self.model.getxattr(attr.inode, &name).unwrap())))
            .collect();
        let mode = attr.kind.mode_bits() | attr.mode;
        line(mode, (attr.uid, attr.gid), attr.nlink, attr.size, &content, &xattrs)
    }

    /// Times that were set by name; others are of another clock here.
    fn set_mtimes(&self, path: &Path) -> Option<i64> {
        let names: Vec<String> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        let mtime = self.find(&names).ok()?.mtime.0;
        (!(0..=self.clock).contains(&mtime)).then_some(mtime)
    }
}

fn line(mode: u32, owner: (u32, u32), links: u32, size: u64, content: &str, xattrs: &[(Vec<u8>, u64)]) -> String {
    // A directory's size is nobody's business.
    let size = if mode & libc::S_IFMT == libc::S_IFDIR { 0 } else { size };
    format!("mode {mode:o}, owner {owner:?}, {links} links, {size} bytes, {content}, xattrs {xattrs:?}")
}

fn picture_of_mount(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut lines = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let full = root.join(&path);
            let meta = fs::symlink_metadata(&full).unwrap();
            if meta.is_dir() {
                open.push(path.clone());
            }
            let content = match () {
                () if meta.is_file() => format!("{:x}", sum(&fs::read(&full).unwrap())),
                () if meta.is_symlink() => fs::read_link(&full).unwrap().to_str().unwrap().to_owned(),
                () => String::new(),
            };
            let names = if meta.is_symlink() { Vec::new() } else { syscall::listxattr(&full).unwrap() };
            let value = |name: &Vec<u8>| syscall::getxattr(&full, std::str::from_utf8(name).unwrap()).unwrap();
            let xattrs: Vec<(Vec<u8>, u64)> =
                names.into_iter().map(|name| (name.clone(), sum(&value(&name)))).collect();
            let line = line(meta.mode(), (meta.uid(), meta.gid()), meta.nlink() as u32, meta.len(), &content, &xattrs);
            assert!(lines.insert(path.clone(), line).is_none(), "{} is listed twice", path.display());
        }
    }
    lines
}

fn compare(reference: &Reference, root: &Path, when: &str) {
    let (seen, expected) = (picture_of_mount(root), reference.picture());
    for path in seen.keys().chain(expected.keys()) {
        assert_eq!(seen.get(path), expected.get(path), "{when}: {}", path.display());
        if let Some(mtime) = reference.set_mtimes(path) {
            let meta = fs::symlink_metadata(root.join(path)).unwrap();
            assert_eq!(meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), mtime, "{when}: mtime of {}", path.display());
        }
    }
}

#[test]
fn two_mounts_in_turns_do_what_the_model_does() {
    take_turns(Shape { storage: 2, targets: 2, ..Shape::default() }, scale("WEFT_TEST_OPERATIONS", 4000));
}

#[test]
fn many_shards_do_what_the_model_does() {
    let shape = Shape { metadata: 2, shards: 4, storage: 1, targets: 2 };
    take_turns(shape, scale("WEFT_TEST_OPERATIONS", 4000) / 2);
}

fn take_turns(shape: Shape, operations: u64) {
    let seed = seed();
    let mut cluster = Cluster::of(shape);
    // Other owners, set-user-id bits: root keeps them through a mount that respects them.
    let second = cluster.mount_again(&[]).point;
    fs::create_dir(cluster.path("m")).unwrap();
    cluster.weft(&["entry", "set", "/m", "--chunk-size", "4KiB"]).expect_ok();
    let mounts = [cluster.path("m"), second.join("m")];
    // SAFETY: sets this process's umask; every file that this test makes is to have the mode that it names.
    unsafe { libc::umask(0) };
    let mut dice = Dice::new(seed);
    let mut reference = Reference::new();
    let (mut worked, mut known) = (0, Vec::new());
    for step in 0..operations {
        if step % 10 == 0 {
            known = reference.paths();
        }
        let operation = Operation::random(&mut dice, &known);
        let turn = dice.index(2);
        let expected = reference.run(&operation);
        worked += u64::from(expected.is_ok());
        let expected = expected.map_err(|errno| i32::from(errno.0));
        let got = operation.on_mount(&mounts[turn]);
        assert!(got == expected, "step {step}, mount {turn}, {}", Difference { operation, got, expected });
        if step % PICTURE_EVERY == 0 || step + 1 == operations {
            for root in &mounts {
                compare(&reference, root, &format!("after step {step}"));
            }
        }
    }
    println!("{worked} of {operations} operations succeeded");
    assert!(worked * 5 > operations, "most fail: only {worked} of {operations} succeeded");
    cluster.assert_sound();
}

struct Difference {
    operation: Operation,
    got: Result<Vec<u8>, i32>,
    expected: Result<Vec<u8>, i32>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut operation = format!("{:?}", self.operation);
        operation.truncate(200);
        let brief = |result: &Result<Vec<u8>, i32>| match result {
            Ok(bytes) => format!("{} bytes, sum {:x}", bytes.len(), sum(bytes)),
            Err(errno) => io::Error::from_raw_os_error(*errno).to_string(),
        };
        write!(f, "{operation}: got {}, expected {}", brief(&self.got), brief(&self.expected))
    }
}
