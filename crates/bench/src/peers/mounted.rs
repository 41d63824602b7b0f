//! FUSE mounts of peers: made, renewed and taken away within bounds.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

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
    let Ok(path) = CString::new(at.as_os_str().as_bytes()) else { return };
    let deadline = Instant::now() + PATIENCE;
    while is_mounted(at) {
        let flags = if Instant::now() < deadline { 0 } else { libc::MNT_DETACH };
        // SAFETY: the path lives through the call.
        let failed = unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW | flags) } != 0;
        let busy = io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
        if failed && (flags != 0 || !busy) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether something is mounted just there. Asks no file system.
fn is_mounted(at: &Path) -> bool {
    mounts().iter().any(|mount| mount.at == at)
}

/// Refuses as long as anything is mounted in `folder`.
pub(crate) fn ensure_bare(folder: &Path) -> Result<()> {
    let left = mounts().into_iter().find(|mount| mount.at.starts_with(folder));
    ensure!(left.is_none(), "{} is still mounted", left.unwrap_or_default().at.display());
    Ok(())
}

/// Type of the file system that `path` (absolute) is in, such as `ext4`.
pub(crate) fn type_of(path: &Path) -> Option<String> {
    // Of those at one place the last one covers the others.
    mounts()
        .into_iter()
        .filter(|mount| path.starts_with(&mount.at))
        .max_by_key(|mount| mount.at.as_os_str().len())
        .map(|mount| mount.kind)
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Mount {
    at: PathBuf,
    kind: String,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// A line of `/proc/self/mountinfo`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let at = unescape(fields.nth(4)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { at: std::ffi::OsStr::from_bytes(&at).into(), kind: String::from_utf8_lossy(kind).into_owned() })
}

/// Blanks and the like are there as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let escaped =
            after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match escaped {
            Some(digits) => {
                bytes.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_from_its_line() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b rw,noatime master:1 shared:2 - fuse.x /dev/root rw,errors=continue";
        assert_eq!(parse(line), Some(Mount { at: "/mnt/a b".into(), kind: "fuse.x".into() }));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 98:0 /mnt1"), None);
        assert_eq!(unescape(br"a\04"), br"a\04");
    }

    #[test]
    fn the_root_is_mounted_and_a_new_folder_is_bare() {
        assert!(is_mounted(Path::new("/")));
        assert!(type_of(Path::new("/")).is_some());
        let dir = tempfile::tempdir().expect("a folder");
        assert!(ensure_bare(dir.path()).is_ok());
        assert!(ensure_bare(Path::new("/")).is_err());
    }
}
