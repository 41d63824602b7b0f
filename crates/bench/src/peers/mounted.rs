//! FUSE mounts of peers: made, renewed and taken away within bounds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use conf::file_system::{self, holder};

use super::process::{Daemon, ask};

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

/// A file system at its place, and the process that serves it. Unmounted when dropped.
pub(crate) struct Mounted {
    at: PathBuf,
    pub(crate) daemon: Daemon,
}

impl Mounted {
    /// Starts `command`, which mounts at `at` and stays in the foreground, and waits until the file system answers.
    pub(crate) fn start(command: &mut Command, at: &Path, log: &Path) -> Result<Self> {
        fs::create_dir_all(at).with_context(|| format!("cannot make {}", at.display()))?;
        // From here on, whatever fails, it is unmounted.
        let mut mounted = Self { at: at.into(), daemon: Daemon::start(command, log)? };
        mounted.daemon.wait("mounted", PATIENCE, || is_mounted(at))?;
        // In a process of its own: one that asks a file system which does not answer hangs.
        ask(Command::new("stat").arg(at), PATIENCE).context("the mount does not answer")?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.at);
        // It ends by itself, having written what it kept.
        self.daemon.has_ended_within(PATIENCE);
    }
}

/// Takes away what is mounted at `at`; what is still in use after a while, from the tree at least.
fn unmount(at: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while is_mounted(at) {
        let lazily = Instant::now() >= deadline;
        match fuse::unmount(at, lazily) {
            Err(error) if lazily || error.kind() != io::ErrorKind::ResourceBusy => return,
            Err(_) | Ok(()) => {}
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether something is mounted just there. Asks no file system.
fn is_mounted(at: &Path) -> bool {
    mounts().iter().any(|mount| mount.point == at)
}

/// Refuses as long as anything is mounted in `folder`.
pub(crate) fn ensure_bare(folder: &Path) -> Result<()> {
    match mounts().iter().find(|mount| mount.point.starts_with(folder)) {
        Some(mount) => bail!("{} is still mounted", mount.point.display()),
        None => Ok(()),
    }
}

/// Type of the file system that `path` (absolute) is in, such as `ext4`.
pub(crate) fn type_of(path: &Path) -> Option<String> {
    holder(&mounts(), path).map(|mount| mount.kind.clone())
}

fn mounts() -> Vec<file_system::Mount> {
    file_system::mounts().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted_and_a_new_folder_is_bare() {
        assert!(is_mounted(Path::new("/")));
        assert!(type_of(Path::new("/")).is_some());
        let dir = tempfile::tempdir().expect("a folder");
        assert!(ensure_bare(dir.path()).is_ok());
        assert!(ensure_bare(Path::new("/")).is_err());
    }
}
