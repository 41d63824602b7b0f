//! One service per directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fatal::{Fatal, Unopened};

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
    pub fn take(dir: &Path) -> Result<Self, Unopened> {
        let path = dir.join(LOCK_FILE);
        let cannot = |error: io::Error| {
            let text = format!("{} cannot be used: {}: {error}", dir.display(), path.display());
            Unopened::Away(Fatal::unusable(text, &error))
        };
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Unopened::Wrong(in_use(dir, &mut file))),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        // The number is for people and other services' messages only: the kernel holds the lock itself. It goes to where the
        // last one was, so that a full disk has room for it.
        let number = format!("{}\n", std::process::id());
        file.write_all_at(number.as_bytes(), 0).and_then(|()| file.set_len(number.len() as u64)).map_err(cannot)?;
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
        let refused = Fatal::from(DirLock::take(dir.path()).unwrap_err());
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
