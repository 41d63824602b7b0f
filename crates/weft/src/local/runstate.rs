//! What a mount leaves for commands that find their cluster by it: the key's path, in a file of the user that mounted.
//! The address of mgmtd is in the mount's source; the key's path is not, since every user can read that.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::dir::{is_own, own_uid, write_atomically};
use super::log;

/// Longest name of a mount that is a file's name as it is, in bytes: with an ending, and that of a new one being written, it is
/// at most 255.
const NAME_MAX: usize = 220;
/// So much of a longer one is kept.
const NAME_KEPT: usize = 200;

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
    pub(crate) metrics: String,
}

impl RunState {
    pub(crate) fn read(mount: &Path) -> Option<Self> {
        Self::newest(&folders(), &name_of(mount))
    }

    /// A mount that was killed may have left one in another folder.
    fn newest(folders: &[PathBuf], name: &str) -> Option<Self> {
        let of = |folder: &PathBuf| {
            if !parts_of(folder).all(|part| is_own(part).unwrap_or(false)) {
                return None;
            }
            let path = folder.join(name);
            let state = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Some((path.metadata().ok()?.modified().ok()?, state))
        };
        folders.iter().filter_map(of).max_by_key(|(written, _)| *written).map(|(_, state)| state)
    }

    pub(crate) fn write(&self) -> Result<()> {
        make_folder(&folder())?;
        let path = file_of(&self.mount);
        write_atomically(&path, &serde_json::to_vec_pretty(self).context("cannot write down the mount")?)
    }

    /// Held by who is about to mount there, from before the look at the place until it is done: of two at once each would
    /// see an empty directory, and mount over the other one. `None` where somebody else is.
    pub(crate) fn lock(mount: &Path) -> Result<Option<fs::File>> {
        make_folder(&folder())?;
        let path = file_of(mount).with_extension("lock");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
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

fn file_of(mount: &Path) -> PathBuf {
    folder().join(name_of(mount))
}

/// The path with `/` written as `-`, as systemd names mount units; `-` and `\` in names are doubled by a backslash. Of one that
/// would be too long for a file's name the beginning, and a checksum of the whole.
fn name_of(mount: &Path) -> String {
    let name = mount.to_string_lossy().replace('\\', r"\\").replace('-', r"\-").replace('/', "-");
    let name = name.trim_start_matches('-');
    if name.len() <= NAME_MAX {
        return format!("{name}.json");
    }
    let begin = &name[..name.floor_char_boundary(NAME_KEPT)];
    format!("{begin}-{:016x}.json", fnv1a(mount.as_os_str().as_bytes()))
}

/// The same in every release, so that commands find what a mount of an older one has written.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Where this session's mounts are written down.
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

/// Where those of this user's other sessions may be, too: cron and `su` set no `XDG_RUNTIME_DIR`, which ssh does.
fn folders() -> Vec<PathBuf> {
    let uid = own_uid();
    let mut folders = vec![folder()];
    if uid != 0 {
        folders.push(PathBuf::from(format!("/run/user/{uid}/weft/mounts")));
        folders.push(std::env::temp_dir().join(format!("weft-{uid}/mounts")));
        folders.push(PathBuf::from(format!("/tmp/weft-{uid}/mounts")));
    }
    folders
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

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
        // As this user may have left it.
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
        // The usual hash of the same letters.
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_long_mount_point_has_a_file_of_its_own() {
        let long = |last: &str| {
            let folder = ["\u{20ac}".repeat(60), "-".repeat(150), "x".repeat(99)].join("/");
            std::env::temp_dir().join(format!("runstate-long-{}/{folder}/{last}", std::process::id()))
        };
        assert_ne!(name_of(&long("a")), name_of(&long("b")));
        assert!(name_of(&long("a")).starts_with(&name_of(&std::env::temp_dir().join("runstate"))[..8]));
        let (mgmtd, key_file, metrics) = ("127.0.0.1:1".to_owned(), PathBuf::from("/key"), String::new());
        let state = RunState { mount: long("a"), mgmtd, key_file, pid: u32::MAX, dir: None, metrics };
        state.write().expect("a file of this user's");
        drop(RunState::open_log(&long("a")).expect("its log"));
        fs::remove_file(RunState::log_file(&long("a"))).expect("it was made");
        assert_eq!(RunState::read(&long("a")), Some(state));
        RunState::remove(&long("a"), u32::MAX);
        assert_eq!(RunState::read(&long("a")), None);
    }

    #[test]
    fn the_mount_of_another_session_is_found_where_nobody_else_can_have_put_it() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| place.path().join(name).join("mounts");
        let folders = ["one", "two", "open"].map(folder);
        let put = |name: &str, pid| {
            make_folder(&folder(name)).expect("makable");
            let (mgmtd, key_file, metrics) = ("127.0.0.1:1".to_owned(), PathBuf::from("/key"), String::new());
            let state = RunState { mount: "/m".into(), mgmtd, key_file, pid, dir: None, metrics };
            fs::write(folder(name).join("m.json"), serde_json::to_vec(&state).expect("plain")).expect("writable");
        };
        let age = |name: &str, seconds| {
            let file = fs::File::options().write(true).open(folder(name).join("m.json")).expect("it is there");
            file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(seconds)).expect("ours");
        };
        let found = || RunState::newest(&folders, "m.json").map(|state| state.pid);
        assert_eq!(found(), None);
        put("two", 2);
        assert_eq!(found(), Some(2));
        put("one", 1);
        age("two", 60);
        assert_eq!(found(), Some(1));
        age("one", 120);
        assert_eq!(found(), Some(2));
        put("open", 3);
        assert_eq!(found(), Some(3));
        fs::set_permissions(place.path().join("open"), fs::Permissions::from_mode(0o777)).expect("ours");
        assert_eq!(found(), Some(2), "others can write there");
    }
}
