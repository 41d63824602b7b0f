//! What a mount leaves for commands that find their cluster by it: the key's path, in a file of the user that mounted.
//! The address of mgmtd is in the mount's source; the key's path is not, since every user can read that.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::dir::write_atomically;
use super::log;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) mount: PathBuf,
    /// `host:port`.
    pub(crate) mgmtd: String,
    pub(crate) key_file: PathBuf,
    /// Of the mount's process.
    pub(crate) pid: u32,
    /// Directory of the cluster where `weft up` made it.
    pub(crate) dir: Option<PathBuf>,
    /// Metrics endpoint of the mount's process, or empty.
    #[serde(default)]
    pub(crate) metrics: String,
}

impl RunState {
    pub(crate) fn read(mount: &Path) -> Option<Self> {
        let path = file_of(mount);
        if !parts_of(path.parent()?).all(|part| is_own(part).unwrap_or(false)) {
            return None;
        }
        let bytes = fs::read(path).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn write(&self) -> Result<()> {
        make_folder(&folder())?;
        let path = file_of(&self.mount);
        write_atomically(&path, &serde_json::to_vec_pretty(self).context("cannot write down the mount")?)
    }

    /// Where a mount in the background logs.
    pub(crate) fn log_file(mount: &Path) -> PathBuf {
        file_of(mount).with_extension("log")
    }

    /// Opens that file.
    pub(crate) fn open_log(mount: &Path) -> Result<fs::File> {
        make_folder(&folder())?;
        log::open(&Self::log_file(mount))
    }

    /// After the end of the mount of process `pid`. Where somebody has mounted there again meanwhile, it is theirs, and stays.
    pub(crate) fn remove(mount: &Path, pid: u32) {
        let path = file_of(mount);
        // Looked at aside: between a look and a removal in its place another one could come there.
        let aside = path.with_extension(format!("of-{pid}"));
        if fs::rename(&path, &aside).is_err() {
            // Not there is as good as removed; a leftover is overwritten by the next mount.
            return;
        }
        let state = fs::read(&aside).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        if state.is_some_and(|state| state.pid != pid) {
            // Unless a still newer one is there.
            let _ = fs::hard_link(&aside, &path);
        }
        let _ = fs::remove_file(&aside);
    }
}

/// The path with `/` written as `-`, as systemd names mount units; `-` and `\` in names are doubled by a backslash.
fn file_of(mount: &Path) -> PathBuf {
    let name = mount.to_string_lossy().replace('\\', r"\\").replace('-', r"\-").replace('/', "-");
    folder().join(format!("{}.json", name.trim_start_matches('-')))
}

fn folder() -> PathBuf {
    let uid = own_uid();
    if uid == 0 {
        return PathBuf::from("/run/weft/mounts");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("weft/mounts"),
        None => std::env::temp_dir().join(format!("weft-{uid}/mounts")),
    }
}

/// The folder and the one above it: both have names that others know.
fn parts_of(folder: &Path) -> impl Iterator<Item = &Path> {
    folder.parent().into_iter().chain([folder])
}

/// Makes the folder for this user alone. Where everybody may write, as in /tmp, somebody else may have been first, and
/// choose which of our files we write and what we read.
fn make_folder(folder: &Path) -> Result<()> {
    for part in parts_of(folder) {
        let cannot = || format!("cannot make {}", part.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(part).with_context(cannot)?;
        if !is_own(part).with_context(cannot)? {
            let part = part.display();
            bail!(
                "{part} is not a directory that this user alone can change: remove it, or set XDG_RUNTIME_DIR to one that is"
            );
        }
        fs::set_permissions(part, fs::Permissions::from_mode(0o700)).with_context(cannot)?;
    }
    Ok(())
}

/// Nobody else can change what is in it, or put another one in its place.
fn is_own(folder: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(folder)?;
    Ok(found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0)
}

fn own_uid() -> u32 {
    // SAFETY: geteuid cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_mounted_there_meanwhile_keeps_what_it_wrote() {
        let mount = std::env::temp_dir().join(format!("runstate-test-{}", std::process::id()));
        let state = |pid| {
            let (mgmtd, key_file, metrics) = ("127.0.0.1:1".to_owned(), PathBuf::from("/key"), String::new());
            RunState { mount: mount.clone(), mgmtd, key_file, pid, dir: None, metrics }
        };
        RunState::remove(&mount, 1);
        state(2).write().expect("a file of this user's");
        RunState::remove(&mount, 1);
        assert_eq!(RunState::read(&mount), Some(state(2)));
        RunState::remove(&mount, 2);
        assert_eq!(RunState::read(&mount), None);
        let left = fs::read_dir(folder()).expect("it was made").flatten();
        let name = file_of(&mount).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).count(), 0);
    }

    #[test]
    fn a_folder_that_somebody_else_has_put_there_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let part = |name: &str| place.path().join(name);
        let make = |name: &str| make_folder(&part(name).join("mounts"));
        let mode = |path: PathBuf| fs::metadata(path).expect("it was made").mode() & 0o777;
        make("new").expect("nothing is in its way");
        assert_eq!((mode(part("new")), mode(part("new/mounts"))), (0o700, 0o700));
        // As an earlier release has made it.
        fs::set_permissions(part("new"), fs::Permissions::from_mode(0o755)).expect("ours");
        make("new").expect("only we could write there");
        assert_eq!(mode(part("new")), 0o700);

        std::os::unix::fs::symlink(part("new"), part("link")).expect("linkable");
        fs::create_dir(part("open")).expect("makable");
        fs::set_permissions(part("open"), fs::Permissions::from_mode(0o777)).expect("ours");
        for name in ["link", "open"] {
            let error = make(name).expect_err("others can change it").to_string();
            assert!(error.contains("remove it"), "{error}");
        }
        if own_uid() == 0 {
            fs::create_dir(part("theirs")).expect("makable");
            std::os::unix::fs::chown(part("theirs"), Some(12345), None).expect("root may");
            make("theirs").expect_err("it is another user's");
        }
    }

    #[test]
    fn mount_points_do_not_share_a_file() {
        assert_ne!(file_of(Path::new("/a/b")), file_of(Path::new("/a-b")));
        assert_ne!(file_of(Path::new(r"/a\-b")), file_of(Path::new(r"/a\\/b")));
        assert!(file_of(Path::new("/mnt/x")).ends_with("mnt-x.json"));
    }
}
