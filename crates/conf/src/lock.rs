//! One service per directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::fatal::Fatal;

/// Name of the lock file in a locked directory.
pub const LOCK_FILE: &str = "lock";

/// A locked directory: until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of `dir`, which must exist.
    ///
    /// # Errors
    /// Where another process holds it, or the directory cannot be written.
    pub fn take(dir: &Path) -> Result<Self, Fatal> {
        let path = dir.join(LOCK_FILE);
        let cannot = |error| Fatal::usage(format!("{} cannot be used: {}: {error}", dir.display(), path.display()));
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        // The number is for people and other services' messages only: the kernel holds the lock itself.
        file.set_len(0).and_then(|()| file.rewind()).map_err(cannot)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(cannot)?;
        Ok(Self { _file: file })
    }
}

fn in_use(dir: &Path, file: &mut File) -> Fatal {
    let mut holder = String::new();
    let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
    let holder = if known { format!(" (pid {})", holder.trim()) } else { String::new() };
    let dir = dir.display();
    Fatal::usage(format!("another service{holder} uses {dir}: stop it, or give this one a directory of its own"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_is_there_until_the_first_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = DirLock::take(dir.path()).expect("free");
        let refused = DirLock::take(dir.path()).unwrap_err();
        assert_eq!(refused.code, 2);
        assert!(refused.message.contains(&format!("another service (pid {})", std::process::id())), "{refused}");
        drop(first);
        DirLock::take(dir.path()).expect("free again");
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(DirLock::take(&dir.path().join("gone")).is_err());
        assert!(!dir.path().join("gone").exists());
    }
}
