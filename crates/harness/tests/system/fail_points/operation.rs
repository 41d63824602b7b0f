//! The operations, each with what it needs, and what is so when it was done.

use std::fs::{self, File};
use std::io::{self, Error, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use harness::syscall;

/// Directory `in-N` is at home in shard N; what is made in it is too, but for directories, which are in the next one.
pub(crate) const SHARDS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Mkdir,
    Rmdir,
    /// A second name, in another shard.
    Link,
    /// One of two names, in another shard than the file.
    Unlink,
    /// A file of the third shard goes over one of the second, which loses its last name.
    Replace,
    /// Both are open.
    ReplaceOpen,
    MoveDirectory,
    /// The other way: the token is another shard's.
    MoveDirectoryBack,
    Exchange,
    /// A directory over one that is not empty: the third shard, which has that, finds it after the second has promised.
    Refused,
}

/// One operation with names of its own.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) number: usize,
    /// Where it is done.
    pub(crate) root: PathBuf,
}

impl Operation {
    /// Of the coordinator, and of a participant.
    pub(crate) fn shards(self) -> (usize, usize) {
        if self == Operation::MoveDirectoryBack { (1, 0) } else { (0, 1) }
    }
}

impl Case {
    fn path(&self, root: &Path, shard: usize, name: &str) -> PathBuf {
        root.join(format!("in-{shard}")).join(format!("{:?}-{}-{name}", self.operation, self.number))
    }

    /// The names that it is about: at the coordinator's shard, and at the participant's.
    fn names(&self, root: &Path) -> (PathBuf, PathBuf) {
        let (here, there) = self.operation.shards();
        (self.path(root, here, "a"), self.path(root, there, "b"))
    }

    /// Makes what has to be there, and opens what has to be open.
    pub(crate) fn prepare(&self) -> io::Result<Vec<File>> {
        let (a, b) = self.names(&self.root);
        match self.operation {
            Operation::Mkdir => {}
            Operation::Rmdir => fs::create_dir(&a)?,
            Operation::Link => fs::write(&b, "content")?,
            Operation::Unlink => {
                fs::write(&b, "content")?;
                fs::hard_link(&b, &a)?;
            }
            Operation::Replace => {
                let elsewhere = self.path(&self.root, 2, "c");
                fs::write(&elsewhere, "content")?;
                fs::rename(&elsewhere, &a)?;
                fs::write(&b, "replaced")?;
            }
            Operation::ReplaceOpen => {
                fs::write(&a, "content")?;
                fs::write(&b, "replaced")?;
                return Ok(vec![File::open(&a)?, File::open(&b)?]);
            }
            Operation::MoveDirectory | Operation::MoveDirectoryBack => {
                fs::create_dir(&a)?;
                fs::write(a.join("inner"), "content")?;
            }
            Operation::Exchange => {
                fs::write(&a, "content")?;
                fs::create_dir(&b)?;
                fs::write(b.join("inner"), "inner")?;
            }
            Operation::Refused => {
                fs::create_dir(&a)?;
                fs::create_dir(&b)?;
                fs::write(b.join("inner"), "inner")?;
            }
        }
        Ok(Vec::new())
    }

    pub(crate) fn act(&self) -> io::Result<()> {
        let (a, b) = self.names(&self.root);
        match self.operation {
            Operation::Mkdir => fs::create_dir(a),
            Operation::Rmdir => fs::remove_dir(a),
            Operation::Link => fs::hard_link(b, a),
            Operation::Unlink => fs::remove_file(a),
            Operation::Replace | Operation::ReplaceOpen | Operation::Refused => fs::rename(a, b),
            Operation::MoveDirectory | Operation::MoveDirectoryBack => fs::rename(a, b),
            Operation::Exchange => syscall::rename(&a, &b, libc::RENAME_EXCHANGE),
        }
    }

    /// No death is an error, or does it twice.
    pub(crate) fn check_told(&self, told: &io::Result<()>, what: &str) {
        let errno = told.as_ref().err().map(|error| error.raw_os_error());
        let expected = (self.operation == Operation::Refused).then_some(Some(libc::ENOTEMPTY));
        assert_eq!(errno, expected, "{what}: {told:?}");
    }

    /// What was told is so at this mount.
    pub(crate) fn check(&self, root: &Path) -> io::Result<()> {
        let (a, b) = self.names(root);
        match self.operation {
            Operation::Mkdir => {
                let names = fs::read_dir(&a)?.count();
                is("names and links", (names, fs::metadata(&a)?.nlink()), (0, 2))
            }
            Operation::Rmdir => is_gone(&a),
            Operation::Link => {
                is("inode", fs::metadata(&a)?.ino(), fs::metadata(&b)?.ino())?;
                is_file(&a, "content", 2)?;
                is_file(&b, "content", 2)
            }
            Operation::Unlink => {
                is_gone(&a)?;
                is_file(&b, "content", 1)
            }
            Operation::Replace | Operation::ReplaceOpen => {
                is_gone(&a)?;
                is_file(&b, "content", 1)
            }
            Operation::MoveDirectory | Operation::MoveDirectoryBack => {
                is_gone(&a)?;
                is_within(&b)?;
                is_file(&b.join("inner"), "content", 1)
            }
            Operation::Exchange => {
                is_within(&a)?;
                is_file(&a.join("inner"), "inner", 1)?;
                is_file(&b, "content", 1)
            }
            Operation::Refused => {
                is_within(&a)?;
                is_within(&b)?;
                is_file(&b.join("inner"), "inner", 1)
            }
        }
    }

    /// What was open goes on, also where it has no name any more.
    pub(crate) fn check_open(&self, open: &[File]) -> io::Result<()> {
        let [moved, replaced] = open else { return Ok(()) };
        let (_, b) = self.names(&self.root);
        is("inode of what was moved", moved.metadata()?.ino(), fs::metadata(b)?.ino())?;
        is("links of what was replaced", replaced.metadata()?.nlink(), 0)?;
        for (mut file, content) in [(moved, "content"), (replaced, "replaced")] {
            let mut found = String::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut found)?;
            is("content of what is open", found, content.to_owned())?;
        }
        Ok(())
    }
}

fn is<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> io::Result<()> {
    if found == expected { Ok(()) } else { Err(Error::other(format!("{what}: {found:?}, not {expected:?}"))) }
}

/// Neither the name leads anywhere, nor does a listing have it.
fn is_gone(path: &Path) -> io::Result<()> {
    is("exists", fs::exists(path)?, false)?;
    is("is listed", lists(path)?, false)
}

fn is_file(path: &Path, content: &str, links: u64) -> io::Result<()> {
    is("is listed", lists(path)?, true)?;
    is("content", fs::read_to_string(path)?, content.to_owned())?;
    is("links", fs::metadata(path)?.nlink(), links)
}

/// A directory whose way up is the one that led to it.
fn is_within(path: &Path) -> io::Result<()> {
    is("is listed", lists(path)?, true)?;
    let (up, parent) = (fs::metadata(path.join(".."))?, fs::metadata(path.parent().unwrap_or(path))?);
    is("parent", up.ino(), parent.ino())?;
    is("links", fs::metadata(path)?.nlink(), 2)
}

fn lists(path: &Path) -> io::Result<bool> {
    let mut found = false;
    for entry in fs::read_dir(path.parent().unwrap_or(path))? {
        found |= Some(entry?.file_name().as_os_str()) == path.file_name();
    }
    Ok(found)
}
