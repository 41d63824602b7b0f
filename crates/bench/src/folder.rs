//! The folder of a run, which goes with it unless a file system is still mounted there: whoever removed it would remove what is
//! in that.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use conf::Fatal;
use tempfile::TempDir;

use crate::peers::mounted::ensure_bare;

pub(crate) struct Folder {
    path: PathBuf,
    /// Until it is removed, or left behind.
    made: Option<TempDir>,
}

impl Folder {
    pub(crate) fn new_in(dir: &Path) -> Result<Self> {
        if !dir.is_dir() {
            return Err(Fatal::usage(format!("{} is not a directory: name one with --dir", dir.display())).into());
        }
        let made = tempfile::Builder::new().prefix(".weft-bench-").tempdir_in(dir);
        let made = made.with_context(|| format!("cannot make a folder in {}", dir.display()))?;
        Ok(Self { path: made.path().into(), made: Some(made) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// Where it is left behind.
    pub(crate) fn remove(&mut self) -> Result<()> {
        let Some(made) = self.made.take() else { return Ok(()) };
        let bare = ensure_bare(&self.path);
        let removed = match bare {
            Ok(()) => made.close().map_err(Into::into),
            Err(mounted) => {
                let _ = made.keep();
                Err(mounted)
            }
        };
        removed.with_context(|| format!("{} is left behind", self.path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let _ = writeln!(std::io::stderr(), "{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it_but_not_with_what_is_mounted_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::new_in(dir.path()).expect("made");
        fs::write(folder.path().join("file"), b"ours").expect("written");
        drop(folder);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);

        // SAFETY: a system call without memory that cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            // Nobody else may mount.
            return;
        }
        let folder = Folder::new_in(dir.path()).expect("made");
        let at = folder.path().join("mnt");
        fs::create_dir(&at).expect("made");
        let (kind, path) = (c"tmpfs", CString::new(at.as_os_str().as_bytes()).expect("a path"));
        // SAFETY: the strings live through the call.
        let mounted = unsafe { libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        fs::write(at.join("file"), b"of a cluster that was not stopped").expect("written");
        drop(folder);
        let is_there = at.join("file").exists();
        // SAFETY: as above.
        unsafe { libc::umount(path.as_ptr()) };
        assert!(is_there, "it was removed through the mount");
    }
}
