//! The few operations that work on files needs, in two ways: system calls on any file system, and the client core.

pub(crate) mod core;
pub(crate) mod posix;

use std::fmt;
use std::io;
use std::ops::DerefMut;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::work::pattern::Pages;

/// Does `$body` with a store of whichever kind `$place` has; `$direct`: past whatever the client might keep.
macro_rules! in_store {
    ($place:expr, $direct:expr, $store:ident => $body:expr) => {
        match $place {
            $crate::store::Place::Directory(path) => {
                let $store = &mut $crate::store::posix::Posix::open(path, $direct);
                $body
            }
            place => {
                let $store = &mut $crate::store::core::Core::connect(place, $direct)?;
                $body
            }
        }
    };
}
pub(crate) use in_store;

/// As `in_store`, and answers the client core too, if there is one: to end its session is no part of the work.
macro_rules! in_kept_store {
    ($place:expr, $direct:expr, $store:ident => $body:expr) => {
        match $place {
            $crate::store::Place::Directory(path) => {
                let $store = &mut $crate::store::posix::Posix::open(path, $direct);
                $body.map(|done| (done, None))
            }
            place => {
                let mut core = $crate::store::core::Core::connect(place, $direct)?;
                let $store = &mut core;
                $body.map(|done| (done, Some(core)))
            }
        }
    };
}
pub(crate) use in_kept_store;

/// Where the folder of a run is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    Directory(PathBuf),
    Core {
        management: String,
        key_file: PathBuf,
        /// In the root of the namespace.
        folder: String,
        /// See `Way::Core`.
        loopback: bool,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "{}", path.display()),
            Place::Core { management, folder, .. } => write!(f, "/{folder} in the cluster at {management}"),
        }
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_directory: bool,
}

/// Room that is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    /// `None` where none are told: some file systems do not count them.
    pub(crate) inodes: Option<u64>,
}

impl Free {
    pub(crate) fn new(bytes: u64, inodes: u64) -> Self {
        Self { bytes, inodes: (inodes > 0).then_some(inodes) }
    }
}

/// Paths are relative to the folder of the run; the empty one is the folder.
pub(crate) trait Store {
    type File;
    /// Memory that is written from again and again, without being copied by the store.
    type Filling: DerefMut<Target = [u8]>;

    fn make_directory(&mut self, path: &str) -> io::Result<()>;

    /// A file that is not there yet, to be written.
    fn create(&mut self, path: &str) -> io::Result<Self::File>;

    /// A file that may be there, to be written.
    fn open_to_write(&mut self, path: &str) -> io::Result<Self::File>;

    fn open_to_read(&mut self, path: &str) -> io::Result<Self::File>;

    /// All of `bytes`.
    fn write_at(&mut self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// The first `len` bytes of `pages`.
    fn filling(&mut self, pages: Pages, len: usize) -> Self::Filling;

    /// All of `filling`, which comes back to be written from again.
    fn write_filling(&mut self, file: &Self::File, filling: Self::Filling, offset: u64) -> io::Result<Self::Filling>;

    /// Answers how many bytes there were: fewer than there is room for only at the end of the file.
    fn read_at(&mut self, file: &Self::File, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As `read_at`, and shows the bytes to `look` with their places in the file, where they lie: in `into` or
    /// elsewhere, in pieces of whole blocks but for the last one.
    fn read_in_place(
        &mut self,
        file: &Self::File,
        into: &mut [u8],
        offset: u64,
        look: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<usize>;

    fn sync(&mut self, file: &Self::File) -> io::Result<()>;

    /// What was written, and what is needed to find it: not the file's times, where that makes a difference.
    fn sync_data(&mut self, file: &Self::File) -> io::Result<()>;

    fn close(&mut self, file: Self::File) -> io::Result<()>;

    /// Of a regular file. `EINVAL` of anything else.
    fn size(&mut self, path: &str) -> io::Result<u64>;

    fn unlink(&mut self, path: &str) -> io::Result<()>;

    fn remove_directory(&mut self, path: &str) -> io::Result<()>;

    /// Without `.` and `..`.
    fn list(&mut self, path: &str) -> io::Result<Vec<Entry>>;

    /// That an ordinary user may take.
    fn free(&mut self) -> io::Result<Free>;
}

/// Removes a directory with all that is in it. None that is not there.
pub(crate) fn remove_tree<S: Store>(store: &mut S, path: &str) -> Result<()> {
    let entries = match store.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list {path:?}"))?,
    };
    for Entry { name, is_directory } in entries {
        let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
        if is_directory {
            remove_tree(store, &inner)?;
        } else {
            store.unlink(&inner).with_context(|| format!("cannot remove {inner}"))?;
        }
    }
    store.remove_directory(path).with_context(|| format!("cannot remove the directory {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::posix::Posix;
    use super::*;

    #[test]
    fn a_directory_serves_as_a_store_and_goes_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().join("top");
        let store = &mut Posix::open(&top, false);
        for directory in ["", "a", "a/b"] {
            store.make_directory(directory).expect("made");
        }
        let file = store.create("a/b/c").expect("made");
        store.write_at(&file, b"bytes", 3).expect("written");
        store.sync(&file).expect("synced");
        store.close(file).expect("closed");
        let again = store.create("a/b/c").expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let file = store.open_to_read("a/b/c").expect("it is there");
        let mut bytes = [1; 16];
        assert_eq!(store.read_at(&file, &mut bytes, 0).expect("read"), 8);
        assert_eq!(&bytes[..8], b"\0\0\0bytes");
        assert_eq!(store.size("a/b/c").expect("a file"), 8);
        assert!(store.size("a/b").is_err(), "no file");
        assert_eq!(store.list("a").expect("listed"), vec![Entry { name: "b".into(), is_directory: true }]);
        assert!(store.free().expect("told").bytes > 0);
        assert_eq!((Free::new(7, 0).inodes, Free::new(7, 3).inodes), (None, Some(3)), "btrfs counts none");
        let mut filling = store.filling(Pages::noise(4096, 1), 8);
        filling.copy_from_slice(b"replaced");
        let file = store.open_to_write("a/b/c").expect("it is there");
        let filling = store.write_filling(&file, filling, 0).expect("written");
        assert_eq!(&filling[..], b"replaced", "it can be written from again");
        store.close(file).expect("closed");
        let file = store.open_to_read("a/b/c").expect("it is there");
        let mut seen = Vec::new();
        let read = store.read_in_place(&file, &mut bytes, 2, |part, at| {
            seen.push((part.to_vec(), at));
            Ok(())
        });
        assert_eq!((read.expect("read"), seen), (6, vec![(b"placed".to_vec(), 2)]));
        remove_tree(store, "").expect("removed");
        assert!(!top.exists());
        remove_tree(store, "").expect("nothing is there");
    }
}
