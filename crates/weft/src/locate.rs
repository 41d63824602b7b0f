//! Which cluster a command is about.

use std::env;
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
    /// File with the cluster key; goes with --mgmtd [env: WEFT_KEY_FILE]
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
        if let Some(cluster) = self.named()? {
            return Ok(cluster);
        }
        if let Some(mount) = path.map(mounts::containing).transpose()?.flatten() {
            return of_mount(&mount);
        }
        if let Some(cluster) = Self::from_environment().named()? {
            return Ok(cluster);
        }
        let here = env::current_dir()?;
        if let Some(mount) = mounts::containing(&here)? {
            return of_mount(&mount);
        }
        match above(&here) {
            Some(dir) => of_dir(dir),
            None => Err(usage!("no cluster found: {HELP}")),
        }
    }

    /// The directory of a local cluster, by the same rules; `./.weft` where nothing else tells.
    pub(crate) fn find_dir(&self) -> Result<ClusterDir, Failure> {
        let named = self.dir.clone().or_else(|| env::var_os("WEFT_DIR").map(PathBuf::from));
        if let Some(dir) = named {
            return Ok(ClusterDir::at(&dir)?);
        }
        match above(&env::current_dir()?) {
            Some(dir) => Ok(dir),
            None => Ok(ClusterDir::at(Path::new(".weft"))?),
        }
    }

    fn from_environment() -> Self {
        Self {
            dir: env::var_os("WEFT_DIR").map(PathBuf::from),
            mgmtd: env::var("WEFT_MGMTD").ok(),
            key_file: env::var_os("WEFT_KEY_FILE").map(PathBuf::from),
        }
    }

    fn named(&self) -> Result<Option<Cluster>, Failure> {
        match (&self.dir, &self.mgmtd, &self.key_file) {
            (Some(_), Some(_), _) => Err(usage!("--dir and --mgmtd both name a cluster: give one of them")),
            (Some(dir), None, _) => of_dir(ClusterDir::at(dir)?).map(Some),
            (None, Some(mgmtd), key_file) => {
                let from_environment = || env::var_os("WEFT_KEY_FILE").map(PathBuf::from);
                let Some(key_file) = key_file.clone().or_else(from_environment) else {
                    return Err(usage!("--mgmtd needs --key-file FILE too: the cluster key is asked of everyone"));
                };
                Ok(Some(Cluster { mgmtd: mgmtd.clone(), key_file, dir: None }))
            }
            (None, None, _) => Ok(None),
        }
    }
}

fn of_dir(dir: ClusterDir) -> Result<Cluster, Failure> {
    let spec = dir.spec()?;
    Ok(Cluster { mgmtd: plan::mgmtd_address(&spec), key_file: dir.key_file(), dir: Some(dir) })
}

fn of_mount(mount: &mounts::Mount) -> Result<Cluster, Failure> {
    let point = mount.point.display();
    let key_of_environment = env::var_os("WEFT_KEY_FILE").map(PathBuf::from);
    match (RunState::read(&mount.point), key_of_environment) {
        (Some(state), _) => {
            let dir = state.dir.as_deref().map(ClusterDir::at).transpose()?;
            Ok(Cluster { mgmtd: state.mgmtd, key_file: state.key_file, dir })
        }
        (None, Some(key_file)) => Ok(Cluster { mgmtd: mount.mgmtd.clone(), key_file, dir: None }),
        (None, None) => Err(usage!(
            "{point} is a mount of the cluster at {}, made by another user: give --key-file FILE",
            mount.mgmtd
        )),
    }
}

/// A `.weft` in `folder` or above it.
fn above(folder: &Path) -> Option<ClusterDir> {
    let dirs = folder.ancestors().filter_map(|folder| ClusterDir::at(&folder.join(".weft")).ok());
    dirs.into_iter().find(ClusterDir::exists)
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
    }

    #[test]
    fn a_directory_names_its_port_and_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        dir.save_spec(&spec(7611)).expect("writable");
        let found = selection(Some(folder.path()), None, None).find(None).expect("it is there");
        assert_eq!((found.mgmtd.as_str(), found.key_file), ("127.0.0.1:7611", dir.key_file()));
    }

    #[test]
    fn a_weft_folder_is_found_from_below() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(&folder.path().join(".weft")).expect("absolute");
        std::fs::create_dir_all(dir.root()).expect("makable");
        assert!(above(&folder.path().join("a/b")).is_none());
        dir.save_spec(&spec(1)).expect("writable");
        assert_eq!(above(&folder.path().join("a/b")).expect("it is above").root(), dir.root());
    }
}
