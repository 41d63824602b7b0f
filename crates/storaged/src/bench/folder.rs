//! The files of benchmarks: `bench/thread-0007` in a target's directory, beside its `objects`. Nothing else there is
//! touched.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Beside the directory of the objects, so that no listing of objects ever comes here.
const NAME: &str = "bench";
const PREFIX: &str = "thread-";

#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// In the directory of a target.
    pub(super) fn of(target: &Path) -> Self {
        Self { path: target.join(NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it where it is not there. A link in its place is refused: what it leads to is not the target's.
    pub(super) fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return outcome,
        }
        if fs::symlink_metadata(&self.path)?.is_dir() { Ok(()) } else { Err(no_directory()) }
    }

    fn file(&self, thread: u32) -> PathBuf {
        self.path.join(format!("{PREFIX}{thread:04}"))
    }

    /// The file of a thread, made where it is not there; `direct`: past the page cache.
    pub(super) fn open(&self, thread: u32, direct: bool) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | if direct { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(self.file(thread))
    }

    /// Whether files here can be read and written past the page cache.
    pub(super) fn is_direct(&self, file_system: &[u8]) -> bool {
        // These take the flag and know nothing but the page cache.
        !matches!(file_system, b"tmpfs" | b"ramfs" | b"overlay") && self.open(0, true).is_ok()
    }

    /// Bytes on disk of a thread's file; 0 where there is none.
    pub(super) fn allocated(&self, thread: u32) -> u64 {
        fs::symlink_metadata(self.file(thread)).map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// Bytes on disk of all of them.
    ///
    /// # Errors
    /// Where nobody can tell which there are.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.threads()?.into_iter().map(|thread| self.allocated(thread)).sum())
    }

    /// Removes the files of threads from `first` on; of all, with the folder itself where nothing else is in it.
    pub(super) fn remove_from(&self, first: u32) -> io::Result<()> {
        for thread in self.threads()?.into_iter().filter(|&thread| thread >= first) {
            fs::remove_file(self.file(thread))?;
        }
        if first == 0 {
            match fs::remove_dir(&self.path) {
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// Whose files are there.
    fn threads(&self) -> io::Result<Vec<u32>> {
        // The files behind a link are somebody else's.
        match fs::symlink_metadata(&self.path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(no_directory()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let mut threads = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let thread: Option<u32> = number.filter(|number| number.len() == 4).and_then(|number| number.parse().ok());
            threads.extend(thread);
        }
        Ok(threads)
    }
}

fn no_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "it is there, and is no directory: move it away")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_is_its_own_is_removed() {
        let target = tempfile::tempdir().expect("a directory");
        let folder = Folder::of(target.path());
        folder.remove_from(0).expect("nothing is there");
        folder.make().expect("made");
        for thread in 0..3 {
            folder.open(thread, false).expect("made").set_len(10).expect("written");
        }
        fs::write(folder.path().join("thread-x"), b"mine").expect("written");
        folder.remove_from(2).expect("removed");
        assert_eq!(folder.threads().expect("readable").len(), 2);
        folder.remove_from(0).expect("removed");
        assert_eq!(fs::read(folder.path().join("thread-x")).expect("still there"), b"mine");
        fs::remove_file(folder.path().join("thread-x")).expect("removed");
        folder.remove_from(0).expect("removed");
        assert!(!folder.path().exists());
    }

    #[test]
    fn links_lead_nowhere() {
        let (target, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        fs::write(other.path().join("thread-0000"), b"theirs").expect("written");
        let folder = Folder::of(target.path());
        symlink(other.path(), folder.path()).expect("linked");
        assert!(folder.make().is_err());
        folder.remove_from(0).expect_err("it is no folder");
        assert!(other.path().join("thread-0000").exists());
        fs::remove_file(folder.path()).expect("removed");
        folder.make().expect("made");
        symlink(other.path().join("thread-0000"), folder.path().join("thread-0000")).expect("linked");
        assert!(folder.open(0, false).is_err());
        folder.remove_from(0).expect("the link is removed");
        assert!(other.path().join("thread-0000").exists());
    }
}
