//! The directory of a cluster on one machine: where everything lies in it, and what `weft up` remembers there.
//!
//! ```text
//! D/cluster.toml   what was asked for: how many services, which port, where to mount
//! D/cluster.key    the cluster key, readable by its owner alone
//! D/NAME.toml      configuration of the service NAME (mgmtd, metad-1, storaged-1, ...); yours to edit
//! D/NAME/          its data
//! D/log/NAME.log   its log; the one before in NAME.log.1
//! D/run/           of the running cluster: lock, state.json, NAME.pid; and growing, the lock of who starts or enlarges it
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, usage};

/// A look at the lock takes less than this, and looks follow each other less closely.
const LOOK: std::time::Duration = std::time::Duration::from_millis(3);
const LOOKS_MAX: u32 = 100;

#[derive(Clone, Debug)]
pub(crate) struct ClusterDir {
    root: PathBuf,
}

/// What the cluster in a directory consists of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Where mgmtd listens: on the loopback interface, the whole cluster is for this host alone.
    pub(crate) address: IpAddr,
    /// Port of mgmtd; those of other services are registered with it. Another one is chosen where it is taken when the
    /// cluster starts.
    pub(crate) mgmtd_port: u16,
    /// Port of mgmtd's metrics, on the loopback interface.
    pub(crate) mgmtd_metrics_port: u16,
    /// Number of metadata services.
    pub(crate) metadata: u32,
    /// Shards of each metadata service.
    pub(crate) shards: u32,
    /// Number of storage services.
    pub(crate) storage: u32,
    /// Storage targets of each storage service.
    pub(crate) targets: u32,
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// What has once come up: its directories exist, so one that is missing is a loss and no beginning.
    pub(crate) made: Made,
}

/// Numbers of services and targets as in [`Spec`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    pub(crate) metadata: u32,
    pub(crate) shards: u32,
    pub(crate) storage: u32,
    pub(crate) targets: u32,
}

/// Of this host alone.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Spec {
    /// What there is when all of it has come up.
    pub(crate) fn all_made(&self) -> Made {
        Made { metadata: self.metadata, shards: self.shards, storage: self.storage, targets: self.targets }
    }
}

/// Held by the supervisor for as long as the cluster runs; the kernel releases it however that ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "holds the lock until it is dropped")] File);

impl ClusterDir {
    /// The directory at `path`, whether it exists or not.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let root = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.root.join("cluster.key")
    }

    pub(crate) fn spec_file(&self) -> PathBuf {
        self.root.join("cluster.toml")
    }

    pub(crate) fn config_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.toml"))
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        self.root.join("log").join(format!("{name}.log"))
    }

    pub(crate) fn run(&self, file: &str) -> PathBuf {
        self.root.join("run").join(file)
    }

    /// Makes those that are missing: the directory itself, for this user alone, and what is in it beside the services'.
    ///
    /// # Errors
    /// Also where somebody else can have put one there: they would choose the key, and which of our files we write.
    pub(crate) fn make_folders(&self) -> Result<(), Failure> {
        for path in [self.root.clone(), self.root.join("run"), self.root.join("log")] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.with_context(|| format!("cannot make {}", path.display()))?;
            must_be_own(&path)?;
        }
        Ok(())
    }

    /// A cluster was made here before. So it is taken where this user may not look: [`Self::spec`] tells that.
    pub(crate) fn exists(&self) -> bool {
        let is_hidden = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        self.spec_file().try_exists().unwrap_or_else(|error| is_hidden(&error))
    }

    /// This user has put it there, and what a link in its place leads to.
    pub(crate) fn is_of_this_user(&self) -> bool {
        let found = [fs::symlink_metadata(&self.root), fs::metadata(&self.root)];
        found.into_iter().all(|found| found.is_ok_and(|found| found.uid() == own_uid()))
    }

    /// Before what is written there is done to processes and mounts of this user, or its key is used.
    ///
    /// # Errors
    /// Where somebody else can have written it.
    pub(crate) fn must_be_own(&self) -> Result<(), Failure> {
        must_be_own(&self.root)
    }

    /// # Errors
    /// Where there is none, or it cannot be read.
    pub(crate) fn spec(&self) -> Result<Spec, Failure> {
        let path = self.spec_file();
        let text = match fs::read_to_string(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(usage!("no cluster in {}: make one with `weft up --dir {0}`", self.root.display()));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(usage!("{}: {error}: be the user who made that cluster", path.display()));
            }
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        toml::from_str(&text).map_err(|error| usage!("{}: {}", path.display(), error.message()))
    }

    pub(crate) fn save_spec(&self, spec: &Spec) -> Result<()> {
        let text = toml::to_string(spec).context("cannot write down the cluster's shape")?;
        let text = format!("# What `weft up` keeps of this cluster. Grow it with the flags of `weft up`.\n{text}");
        write_durably(&self.spec_file(), text.as_bytes())
    }

    /// `None` where somebody else holds it: the cluster is running.
    pub(crate) fn try_lock(&self) -> Result<Option<Lock>> {
        let path = self.run("lock");
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        lock_by(file.with_context(|| format!("cannot open {}", path.display()))?, &path, File::try_lock)
    }

    /// As [`Self::try_lock`], for the one who is to hold it: others who only look have it for a moment.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        for _ in 0..LOOKS_MAX {
            if let Some(lock) = self.try_lock()? {
                return Ok(Some(lock));
            }
            std::thread::sleep(LOOK);
        }
        self.try_lock()
    }

    /// Waits for its turn to start the cluster, or to make it larger while it runs.
    pub(crate) fn lock_growing(&self) -> Result<Lock, Failure> {
        let (file, path) = self.growing()?;
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Lock(file))
    }

    /// As [`Self::lock_growing`]; `None` where somebody else has the turn.
    pub(crate) fn try_lock_growing(&self) -> Result<Option<Lock>, Failure> {
        let (file, path) = self.growing()?;
        Ok(lock_by(file, &path, File::try_lock)?)
    }

    fn growing(&self) -> Result<(File, PathBuf), Failure> {
        self.make_folders()?;
        let path = self.run("growing");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        Ok((file.with_context(|| format!("cannot open {}", path.display()))?, path))
    }

    /// A supervisor is running here. Who looks shares the lock with others who do, and is not taken for the one who holds it.
    /// A look writes nothing: it has to do where the disk has turned read-only.
    pub(crate) fn is_running(&self) -> Result<bool> {
        let path = self.run("lock");
        match File::open(&path) {
            Ok(file) => Ok(lock_by(file, &path, File::try_lock_shared)?.is_none()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot open {}", path.display())),
        }
    }
}

type TryLock = fn(&File) -> std::result::Result<(), TryLockError>;

fn lock_by(file: File, path: &Path, try_lock: TryLock) -> Result<Option<Lock>> {
    match try_lock(&file) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Nobody else can change what is in it, or put another one in its place.
pub(crate) fn is_own(folder: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(folder)?;
    Ok(found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0)
}

/// A link that this user or root has made may lead to it.
fn must_be_own(folder: &Path) -> Result<(), Failure> {
    let look = || {
        let (link, real) = (fs::symlink_metadata(folder)?, fs::canonicalize(folder)?);
        let owner = fs::symlink_metadata(&real)?.uid();
        if owner != own_uid() {
            return Ok(Some(format!("be its owner, as with `sudo -u '#{owner}' weft ...`")));
        }
        if !is_trusted(&link) {
            return Ok(Some(format!("the link belongs to user {}: give --dir {}", link.uid(), real.display())));
        }
        let is_own = is_own(&real)?;
        Ok((!is_own).then(|| format!("if nobody else may have put anything there, `chmod go-w {}`", folder.display())))
    };
    let advice = look().map_err(|error: io::Error| usage!("{}: {error}", folder.display()))?;
    let Some(advice) = advice else { return Ok(()) };
    Err(usage!(
        "{} is not a directory that this user alone can change: {advice}; or give another one with --dir",
        folder.display()
    ))
}

/// This user has put it there, or root, who may do everything anyway.
pub(crate) fn is_trusted(found: &fs::Metadata) -> bool {
    [0, own_uid()].contains(&found.uid())
}

pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Readers see the old content or the new, never half of it, also where the disk is full or the process is killed.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content, |_| Ok(()))
}

/// As [`write_atomically`], and after a loss of power too.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content, File::sync_all)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    conf::atomic::sync_dir(folder).with_context(|| format!("cannot sync {}", folder.display()))
}

fn replace(path: &Path, content: &[u8], settle: fn(&File) -> io::Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        // Its name can be guessed: a link there, in a folder that others can write, would lead to another file of ours.
        let options = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).clone();
        let mut file = options.open(&new)?;
        file.write_all(content)?;
        settle(&file)?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new))).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_lock_is_one_processs_and_goes_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("an absolute path");
        assert!(!dir.is_running().expect("readable"));
        dir.make_folders().expect("makable");
        assert!(!dir.is_running().expect("readable"));
        assert!(!dir.run("lock").exists(), "who looks makes nothing");
        let lock = dir.try_lock().expect("lockable").expect("free");
        assert!(dir.is_running().expect("readable"));
        drop(lock);
        let path = dir.run("lock");
        let file = File::open(&path).expect("readable");
        let look = lock_by(file, &path, File::try_lock_shared).expect("lockable").expect("free");
        assert!(!dir.is_running().expect("readable"), "another one who looks is none who runs");
        drop(look);
    }

    #[test]
    fn what_somebody_else_can_have_put_there_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let part = |name: &str| place.path().join(name);
        let make = |name: &str| ClusterDir::at(&part(name)).expect("an absolute path").make_folders();
        let refuse = |name: &str, why: &str, advice: &str| {
            let failure = make(name).expect_err(why);
            assert!(failure.code() == 2 && failure.to_string().contains("alone can change"), "{failure}");
            assert!(failure.to_string().contains(advice), "{failure}");
        };
        let open = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        make("new").expect("nothing is in its way");
        std::os::unix::fs::symlink(part("new"), part("link")).expect("linkable");
        make("link").expect("a link of this user's");
        for inner in ["", "run", "log"] {
            open(part("new").join(inner), 0o775);
            refuse("new", "others can write there", "`chmod go-w ");
            open(part("new").join(inner), 0o755);
            make("new").expect("others can only look");
        }
        if own_uid() == 0 {
            for inner in ["", "run", "log"] {
                std::os::unix::fs::chown(part("new").join(inner), Some(12345), None).expect("root may");
                refuse("new", "it is another user's", "`sudo -u '#12345' weft ...`");
                std::os::unix::fs::chown(part("new").join(inner), Some(0), None).expect("root may");
            }
            std::os::unix::fs::lchown(part("link"), Some(12345), None).expect("root may");
            refuse("link", "another user chooses what it leads to", "give --dir ");
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_and_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        write_durably(&path, b"old").expect("writable");
        let full = |_: &File| Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let error = format!("{:#}", replace(&path, b"new", full).expect_err("full"));
        assert!(error.contains("cannot write") && error.contains("No space left"), "{error}");
        assert_eq!(fs::read(&path).expect("there"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_spec_is_read_back_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("an absolute path");
        assert!(dir.spec().expect_err("nothing there").to_string().contains("weft up --dir"));
        let spec = Spec {
            address: LOOPBACK,
            mgmtd_port: 7,
            mgmtd_metrics_port: 8,
            metadata: 1,
            shards: 1,
            storage: 2,
            targets: 4,
            mount: "/m".into(),
            made: Made::default(),
        };
        dir.save_spec(&spec).expect("writable");
        assert_eq!(dir.spec().expect("readable"), spec);
        fs::write(dir.spec_file(), "mgmtd_port = 7\nsurprise = 1\n").expect("writable");
        let failure = dir.spec().expect_err("an unknown key");
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("cluster.toml"), "{failure}");
    }
}
