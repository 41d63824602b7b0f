//! Which cluster a command is about.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, usage};
use crate::local::dir::ClusterDir;
use crate::local::runstate::RunState;
use crate::local::{mounts, plan};

/// How to reach a cluster, and how it was found.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// `host:port` of mgmtd.
    pub(crate) mgmtd: String,
    pub(crate) key_file: PathBuf,
    /// Where it was made by `weft up` on this machine.
    pub(crate) dir: Option<ClusterDir>,
}

/// What the command line says about it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Selection {
    /// Directory of a cluster made by `weft up` [env: WEFT_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Address of the management service [env: WEFT_MGMTD]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub(crate) mgmtd: Option<String>,
    /// File with the cluster key; needed with --mgmtd, and on a mount that another user or session made [env: WEFT_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

const HELP: &str = "say which with --dir DIR, or --mgmtd HOST:PORT --key-file FILE (or WEFT_DIR, or WEFT_MGMTD and \
    WEFT_KEY_FILE), or be on a mount of it";

impl Selection {
    /// The cluster, by the first of: flags; the mount that `path` is on; the environment; the mount that the working
    /// directory is on; a `.weft` there or above.
    ///
    /// # Errors
    /// Where none of these tells.
    pub(crate) fn find(&self, path: Option<&Path>) -> Result<Cluster, Failure> {
        // Whoever gives a key means it, however the cluster is found.
        let key = self.key_file.as_deref();
        if let Some(cluster) = self.named(key)? {
            return Ok(cluster);
        }
        if let Some(mount) = path.map(mounts::containing).transpose()?.flatten() {
            return of_mount(&mount, key);
        }
        if let Some(cluster) = Self::from_environment().named(key)? {
            return Ok(cluster);
        }
        let here = env::current_dir()?;
        if let Some(mount) = mounts::containing(&here)? {
            return of_mount(&mount, key);
        }
        match above(&here) {
            Some(dir) => {
                // Nobody has named it.
                dir.must_be_own()?;
                of_dir(dir, key)
            }
            None => Err(usage!("no cluster found: {HELP}")),
        }
    }

    /// The directory of a local cluster, by the same rules.
    ///
    /// # Errors
    /// Also where they lead to a cluster that was not made on this machine.
    pub(crate) fn find_dir(&self) -> Result<ClusterDir, Failure> {
        let Cluster { mgmtd, dir, .. } = self.find(None)?;
        dir.ok_or_else(|| {
            usage!("the cluster at {mgmtd} was not made by `weft up` on this host: give the --dir of one that was")
        })
    }

    fn from_environment() -> Self {
        let mgmtd = said_by("WEFT_MGMTD").and_then(|mgmtd| mgmtd.into_string().ok());
        Self { dir: dir_of_environment(), mgmtd, key_file: None }
    }

    /// With the `key` of the command line.
    fn named(&self, key: Option<&Path>) -> Result<Option<Cluster>, Failure> {
        match (&self.dir, &self.mgmtd) {
            (Some(_), Some(_)) => Err(usage!("--dir and --mgmtd both name a cluster: give one of them")),
            (Some(dir), None) => of_dir(ClusterDir::at(dir)?, key).map(Some),
            (None, Some(mgmtd)) => {
                let Some(key_file) = key.map(Path::to_owned).or_else(key_of_environment) else {
                    return Err(usage!("--mgmtd needs --key-file FILE too: the cluster key is asked of everyone"));
                };
                Ok(Some(Cluster { mgmtd: mgmtd.clone(), key_file, dir: None }))
            }
            (None, None) => Ok(None),
        }
    }
}

fn key_of_environment() -> Option<PathBuf> {
    said_by("WEFT_KEY_FILE").map(PathBuf::from)
}

/// The directory of a cluster that the environment names.
pub(crate) fn dir_of_environment() -> Option<PathBuf> {
    said_by("WEFT_DIR").map(PathBuf::from)
}

/// A variable that is set to nothing says nothing.
fn said_by(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

fn of_dir(dir: ClusterDir, key: Option<&Path>) -> Result<Cluster, Failure> {
    let spec = dir.spec()?;
    let key_file = key.map_or_else(|| dir.key_file(), Path::to_owned);
    Ok(Cluster { mgmtd: plan::mgmtd_address(&spec), key_file, dir: Some(dir) })
}

fn of_mount(mount: &mounts::Mount, key: Option<&Path>) -> Result<Cluster, Failure> {
    let point = mount.point.display();
    let key = key.map(Path::to_owned);
    // What a mount that was killed has left is of no other one that is there now.
    let state = RunState::read(&mount.point).filter(|state| state.mgmtd == mount.mgmtd);
    match (state, key.clone().or_else(key_of_environment)) {
        (Some(state), _) => {
            let dir = state.dir.as_deref().map(ClusterDir::at).transpose()?;
            Ok(Cluster { mgmtd: state.mgmtd, key_file: key.unwrap_or(state.key_file), dir })
        }
        (None, Some(key_file)) => Ok(Cluster { mgmtd: mount.mgmtd.clone(), key_file, dir: None }),
        (None, None) => Err(usage!(
            "{point} is a mount of the cluster at {}, made by another user or in another session: give --key-file FILE",
            mount.mgmtd
        )),
    }
}

/// Where `weft up` makes or starts a cluster that nobody has named: in the working directory.
///
/// # Errors
/// Where that is in the folder of another one, which may be the one that is meant, or on a mount.
pub(crate) fn default_dir() -> Result<ClusterDir, Failure> {
    let (here, dir) = (env::current_dir()?, ClusterDir::at(Path::new(".weft"))?);
    if dir.exists() {
        return Ok(dir);
    }
    if let Some(mount) = mounts::containing(&here)? {
        return Err(usage!(
            "this directory is on a mount of Weft, at {}: say with --dir where to",
            mount.point.display()
        ));
    }
    match above(&here) {
        Some(other) => Err(usage!(
            "{} is a cluster: say with --dir whether you mean that one, or another one here (--dir .weft)",
            other.root().display()
        )),
        None => Ok(dir),
    }
}

/// A `.weft` in `folder` or above it. One that another user has put there, or that this one may not look into, is somebody
/// else's, and in nobody's way: all may put one into /tmp.
fn above(folder: &Path) -> Option<ClusterDir> {
    let dirs = folder.ancestors().filter_map(|folder| ClusterDir::at(&folder.join(".weft")).ok());
    dirs.into_iter().find(|dir| dir.is_of_this_user() && dir.spec_file().exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::dir::{LOOPBACK, Made, Spec};

    fn spec(mgmtd_port: u16) -> Spec {
        let mount = PathBuf::from("/m");
        let made = Made::default();
        let address = LOOPBACK;
        Spec { address, mgmtd_port, mgmtd_metrics_port: 1, metadata: 1, shards: 1, storage: 1, targets: 4, mount, made }
    }

    fn selection(dir: Option<&Path>, mgmtd: Option<&str>, key: Option<&str>) -> Selection {
        Selection { dir: dir.map(Path::to_owned), mgmtd: mgmtd.map(str::to_owned), key_file: key.map(PathBuf::from) }
    }

    #[test]
    fn words_name_a_cluster_or_say_what_is_missing() {
        let found = selection(None, Some("h:1"), Some("k")).find(None).expect("all is said");
        assert_eq!((found.mgmtd.as_str(), found.key_file.as_path()), ("h:1", Path::new("k")));
        let both = selection(Some(Path::new("d")), Some("h:1"), None).find(None).expect_err("two clusters");
        assert_eq!(both.code(), 2);
        let nothing = selection(Some(Path::new("/nonexistent")), None, None).find(None).expect_err("not there");
        assert!(nothing.to_string().contains("weft up"), "{nothing}");
        let elsewhere = selection(None, Some("h:1"), Some("k")).find_dir().expect_err("of another host");
        assert!(elsewhere.code() == 2 && elsewhere.to_string().contains("h:1"), "{elsewhere}");
    }

    #[test]
    fn a_directory_names_its_port_and_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        dir.save_spec(&spec(7611)).expect("writable");
        let found = selection(Some(folder.path()), None, None).find(None).expect("it is there");
        assert_eq!((found.mgmtd.as_str(), found.key_file), ("127.0.0.1:7611", dir.key_file()));
        let found = selection(Some(folder.path()), None, Some("k")).find(None).expect("it is there");
        assert_eq!(found.key_file, Path::new("k"));
    }

    #[test]
    fn a_key_that_is_given_opens_the_mount_of_another_user() {
        let point = PathBuf::from("/nonexistent/mount");
        let mount = mounts::Mount { point, mgmtd: "h:1".to_owned(), options: String::new() };
        let found = of_mount(&mount, Some(Path::new("k"))).expect("all is said");
        assert_eq!((found.mgmtd.as_str(), found.key_file.as_path()), ("h:1", Path::new("k")));
    }

    #[test]
    fn a_weft_folder_is_found_from_below() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(&folder.path().join(".weft")).expect("absolute");
        std::fs::create_dir_all(dir.root()).expect("makable");
        assert!(above(&folder.path().join("a/b")).is_none());
        dir.save_spec(&spec(1)).expect("writable");
        assert_eq!(above(&folder.path().join("a/b")).expect("it is above").root(), dir.root());
        dir.must_be_own().expect("it is made for this user alone");
    }

    #[test]
    fn a_weft_folder_of_another_user_is_passed_by() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(&folder.path().join(".weft")).expect("absolute");
        std::fs::create_dir_all(dir.root()).expect("makable");
        dir.save_spec(&spec(1)).expect("writable");
        let open = |mode| std::fs::set_permissions(dir.root(), std::os::unix::fs::PermissionsExt::from_mode(mode));
        open(0o777).expect("ours");
        let found = above(folder.path()).expect("it is this user's");
        assert_eq!(found.must_be_own().expect_err("others can write there").code(), 2);
        open(0o755).expect("ours");
        if std::os::unix::fs::chown(dir.root(), Some(12345), None).is_ok() {
            assert!(above(folder.path()).is_none());
        }
    }
}
