//! Random operations on a mount of the model and on a tmpfs side by side: the kernel's own file system says whether the
//! model, and the way to it, keep Linux's rules.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use fuse::model_fs::Caching;

use crate::common::Mounted;

const OPERATIONS: usize = 6000;
const TMPFS: &str = "/dev/shm";

/// Small and repeatable: xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % sides
    }

    /// A path of few names, so that operations meet each other.
    fn path(&mut self) -> PathBuf {
        let depth = 1 + self.roll(3);
        (0..depth).map(|_| ["a", "b", "c", "d"][self.roll(4) as usize]).collect()
    }
}

#[derive(Debug)]
enum Operation {
    Create(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Mkdir(PathBuf),
    Symlink(PathBuf),
    Link(PathBuf, PathBuf),
    Unlink(PathBuf),
    Rmdir(PathBuf),
    Rename(PathBuf, PathBuf, u32),
    Chmod(PathBuf, u32),
}

impl Operation {
    fn random(dice: &mut Dice) -> Self {
        let path = dice.path();
        match dice.roll(14) {
            0 | 1 => Self::Create(path),
            2 => Self::Write(path, dice.roll(9000), vec![dice.roll(256) as u8; 1 + dice.roll(5000) as usize]),
            3 => Self::Truncate(path, dice.roll(9000)),
            4 | 5 => Self::Mkdir(path),
            6 => Self::Symlink(path),
            7 => Self::Link(path, dice.path()),
            8 => Self::Unlink(path),
            9 => Self::Rmdir(path),
            10 => Self::Chmod(path, dice.roll(0o10000) as u32 | 0o700),
            11 => Self::Rename(path, dice.path(), libc::RENAME_EXCHANGE),
            12 => Self::Rename(path, dice.path(), libc::RENAME_NOREPLACE),
            _ => Self::Rename(path, dice.path(), 0),
        }
    }

    fn run(&self, root: &Path) -> io::Result<()> {
        match self {
            Self::Create(path) => File::create_new(root.join(path)).map(drop),
            Self::Write(path, offset, data) => {
                File::options().write(true).open(root.join(path))?.write_all_at(data, *offset)
            }
            Self::Truncate(path, len) => File::options().write(true).open(root.join(path))?.set_len(*len),
            Self::Mkdir(path) => fs::create_dir(root.join(path)),
            Self::Symlink(path) => symlink("a/b", root.join(path)),
            Self::Link(from, to) => fs::hard_link(root.join(from), root.join(to)),
            Self::Unlink(path) => fs::remove_file(root.join(path)),
            Self::Rmdir(path) => fs::remove_dir(root.join(path)),
            Self::Chmod(path, mode) => fs::set_permissions(root.join(path), fs::Permissions::from_mode(*mode)),
            Self::Rename(from, to, flags) => rename(&root.join(from), &root.join(to), *flags),
        }
    }
}

fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let c = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
    let (from, to) = (c(from), c(to));
    // SAFETY: two terminated strings that live through the call.
    let result = unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Everything that both trees must agree on, one line per name.
fn picture(root: &Path, below: &Path, lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let meta = fs::symlink_metadata(root.join(&path)).unwrap();
        let what = if meta.is_dir() {
            picture(root, &path, lines);
            "directory".into()
        } else if meta.is_symlink() {
            format!("{:?}", fs::read_link(root.join(&path)).unwrap())
        } else {
            let content = fs::read(root.join(&path)).unwrap();
            let sum = content.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            format!("{} bytes, sum {sum}", content.len())
        };
        lines.insert(format!("{}: mode {:o}, {} links, {what}", path.display(), meta.mode(), meta.nlink()));
    }
}

#[test]
fn a_mount_of_the_model_behaves_as_tmpfs() {
    let tmpfs = tempfile::tempdir_in(TMPFS).unwrap();
    for (seed, caching) in [(1, Caching::Direct), (2, Caching::Pages), (3, Caching::Direct)] {
        let mounted = Mounted::model(caching);
        let mut dice = Dice(seed);
        let (ours, theirs) = (mounted.path(&format!("{seed}")), tmpfs.path().join(format!("{seed}")));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        for step in 0..OPERATIONS / 3 {
            let operation = Operation::random(&mut dice);
            let number = |result: io::Result<()>| result.err().map(|error| error.raw_os_error());
            let (got, expected) = (number(operation.run(&ours)), number(operation.run(&theirs)));
            assert_eq!(got, expected, "seed {seed}, step {step}: {operation:?}");
            if step % 50 == 0 {
                let (mut left, mut right) = (BTreeSet::new(), BTreeSet::new());
                picture(&ours, Path::new(""), &mut left);
                picture(&theirs, Path::new(""), &mut right);
                assert_eq!(left, right, "seed {seed}, after step {step}");
            }
        }
    }
}
