//! Whether a store that has failed will find what opening it again takes: a database that is open serves reads, and one that
//! was closed for a reopening which then fails serves nothing.
//!
//! How much a file system has free does not say so: a quota may leave less to this user, and descriptors are of the process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::KvError;

/// In the database's directory; RocksDB passes over names that are not its own.
const ROOM_FILE: &str = "ROOM";
/// What a database takes at its opening beside the table file: a manifest, options, a log.
const BYTES_BESIDE: u64 = 1 << 20;
/// Files that it opens then, some more than those that are closed before.
const FILES_MAX: usize = 16;

/// What a reopening takes of the disk and of the process. Good on any thread.
#[derive(Debug)]
pub struct Room {
    dir: PathBuf,
    bytes: u64,
}

impl Room {
    /// Of a database in `dir` that has so much in memory.
    pub(super) fn new(dir: &Path, memtable_bytes: u64) -> Self {
        Self { dir: dir.to_path_buf(), bytes: memtable_bytes + BYTES_BESIDE }
    }

    /// Takes all of that, and gives it back. May wait for the disk.
    ///
    /// # Errors
    /// What is not there.
    pub fn try_out(&self) -> Result<(), KvError> {
        self.take().map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => KvError::NoSpace(error.to_string()),
            _ => KvError::Io(error.to_string()),
        })
    }

    fn take(&self) -> io::Result<()> {
        let path = self.dir.join(ROOM_FILE);
        let file = File::options().write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(&path)?;
        let bytes = libc::off_t::try_from(self.bytes).map_err(io::Error::other)?;
        // SAFETY: a live descriptor.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        (0..FILES_MAX).map(|_| file.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
    }
}
