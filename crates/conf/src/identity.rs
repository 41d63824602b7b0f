//! A target's directory: locked by the one service that uses it, and marked with whose it is.
//!
//! ```text
//! DIR/lock            flock'ed for as long as the service runs
//! DIR/identity.toml   which service, cluster, node and target the directory belongs to
//! DIR/...             the target's data: the service's business
//! ```
//!
//! Identifiers are made here once, before the service first registers, and never change. The numbers that the cluster
//! gives are added by [`TargetDir::join`]. A directory with data but without identity is refused: it may be half of
//! something, and nothing in it is touched.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use types::id::{NodeId, TargetId};
use uuid::Uuid;

const LOCK_FILE: &str = "lock";
const IDENTITY_FILE: &str = "identity.toml";
const FORMAT: u32 = 1;
const HEADER: &str = "# Whose this directory is. Written by weft; the data beside it is worth nothing without it.\n";

/// Whose a target's directory is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of this file and of the directory around it.
    format: u32,
    /// The service that the directory is for: `metad` or `storaged`.
    pub service: String,
    /// Of the node that made it, and of the target itself: made at the first start.
    pub node_uuid: String,
    pub target_uuid: String,
    /// UUID of the cluster; empty until the first registration.
    #[serde(default)]
    pub cluster: String,
    /// Given by the cluster; 0 until the first registration.
    #[serde(default)]
    pub node: NodeId,
    #[serde(default)]
    pub target: TargetId,
}

/// Why a target's directory can't be used. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum DirError {
    #[error("{path}: no such target directory; mount its disk, or set `create = true` to begin an empty target there")]
    Missing { path: PathBuf },
    #[error("{path}: another service is running on this directory; stop it first, or choose another directory")]
    Locked { path: PathBuf },
    #[error(
        "{path}: holds files but no {IDENTITY_FILE}; restore that file from a backup, or choose an empty directory"
    )]
    NoIdentity { path: PathBuf },
    #[error("{path}: {reason}; restore {IDENTITY_FILE} from a backup, or choose an empty directory")]
    Damaged { path: PathBuf, reason: String },
    #[error("{path}: made by a newer release (format {format}, this release knows {FORMAT}); upgrade this service")]
    Newer { path: PathBuf, format: u32 },
    #[error("{path}: belongs to {theirs}, not to {ours}; choose another directory")]
    OtherService { path: PathBuf, ours: String, theirs: String },
    #[error(
        "{path}: belongs to cluster {theirs}, not to {ours}; use that cluster's management service, or another directory"
    )]
    OtherCluster { path: PathBuf, ours: String, theirs: String },
    #[error(
        "{path}: is {what} {theirs} of the cluster, but it was registered as {ours}; is this a copy of a directory?"
    )]
    OtherNumber { path: PathBuf, what: &'static str, ours: u32, theirs: u32 },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// A target's directory in use by this process: locked until this is dropped.
#[derive(Debug)]
pub struct TargetDir {
    path: PathBuf,
    identity: Identity,
    created: bool,
    _lock: File,
}

impl TargetDir {
    /// Locks the directory and reads its identity. With `create`, a directory that is empty or not there gets one, under
    /// the node `node_uuid` (a fresh one where `None`).
    ///
    /// # Errors
    /// Where the directory is missing, in use, somebody else's, damaged or unreadable.
    pub fn open(path: &Path, service: &str, create: bool, node_uuid: Option<&str>) -> Result<Self, DirError> {
        let io = |source| DirError::Io { path: path.to_path_buf(), source };
        if create {
            fs::create_dir_all(path).map_err(io)?;
        } else if !path.is_dir() {
            return Err(DirError::Missing { path: path.to_path_buf() });
        }
        let known = read(path)?;
        if known.is_none() {
            refuse_to_adopt(path, create)?;
        }
        if let Some(known) = &known {
            check_service(path, known, service)?;
        }
        let lock = lock(path)?;
        // Once more under the lock: somebody may have made it between.
        if let Some(identity) = read(path)? {
            check_service(path, &identity, service)?;
            return Ok(Self { path: path.to_path_buf(), identity, created: false, _lock: lock });
        }
        let fresh = || Uuid::new_v4().to_string();
        let identity = Identity {
            format: FORMAT,
            service: service.to_owned(),
            node_uuid: node_uuid.map_or_else(fresh, str::to_owned),
            target_uuid: fresh(),
            cluster: String::new(),
            node: NodeId::default(),
            target: TargetId::default(),
        };
        write(path, &identity).map_err(io)?;
        Ok(Self { path: path.to_path_buf(), identity, created: true, _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// This start made the directory's identity: there is no data yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// Has registered once: its data must be there.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        !self.identity.cluster.is_empty()
    }

    /// Takes in what the cluster said at registration, the first time for good; later it must be the same.
    ///
    /// # Errors
    /// Where the directory belongs to another cluster, is another number of this one, or can't be written.
    pub fn join(&mut self, cluster: &str, node: NodeId, target: TargetId) -> Result<(), DirError> {
        let path = || self.path.clone();
        if !self.has_joined() {
            let joined = Identity { cluster: cluster.to_owned(), node, target, ..self.identity.clone() };
            write(&self.path, &joined).map_err(|source| DirError::Io { path: path(), source })?;
            self.identity = joined;
            return Ok(());
        }
        let known = &self.identity;
        if known.cluster != cluster {
            let (ours, theirs) = (cluster.to_owned(), known.cluster.clone());
            return Err(DirError::OtherCluster { path: path(), ours, theirs });
        }
        if known.node != node {
            return Err(DirError::OtherNumber { path: path(), what: "node", ours: node.0, theirs: known.node.0 });
        }
        if known.target != target {
            let (ours, theirs) = (target.0, known.target.0);
            return Err(DirError::OtherNumber { path: path(), what: "target", ours, theirs });
        }
        Ok(())
    }

    /// The identity is still there and the same: the disk has not been taken away under the running service.
    ///
    /// # Errors
    /// What is wrong with the directory now.
    pub fn verify(&self) -> Result<(), DirError> {
        match read(&self.path)? {
            Some(identity) if identity.target_uuid == self.identity.target_uuid => Ok(()),
            Some(_) => Err(DirError::Damaged {
                path: self.path.clone(),
                reason: format!("{IDENTITY_FILE} is of another target now"),
            }),
            None => Err(DirError::NoIdentity { path: self.path.clone() }),
        }
    }
}

fn lock(path: &Path) -> Result<File, DirError> {
    let io = |source| DirError::Io { path: path.join(LOCK_FILE), source };
    let file = File::options().create(true).truncate(false).write(true).open(path.join(LOCK_FILE)).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirError::Locked { path: path.to_path_buf() }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// A directory without identity may be begun only where nothing else is in it.
fn refuse_to_adopt(path: &Path, create: bool) -> Result<(), DirError> {
    let entries = fs::read_dir(path).map_err(|source| DirError::Io { path: path.to_path_buf(), source })?;
    for entry in entries {
        let entry = entry.map_err(|source| DirError::Io { path: path.to_path_buf(), source })?;
        let name = entry.file_name();
        // What mkfs leaves, and what a first start that was killed leaves.
        if name != "lost+found" && name != LOCK_FILE && name.to_str() != Some(temporary_name().as_str()) {
            return Err(DirError::NoIdentity { path: path.to_path_buf() });
        }
    }
    if create { Ok(()) } else { Err(DirError::Missing { path: path.to_path_buf() }) }
}

fn check_service(path: &Path, identity: &Identity, service: &str) -> Result<(), DirError> {
    if identity.service == service {
        return Ok(());
    }
    let (ours, theirs) = (service.to_owned(), identity.service.clone());
    Err(DirError::OtherService { path: path.to_path_buf(), ours, theirs })
}

fn read(path: &Path) -> Result<Option<Identity>, DirError> {
    let text = match fs::read_to_string(path.join(IDENTITY_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(DirError::Io { path: path.join(IDENTITY_FILE), source }),
    };
    let damaged = |reason: String| DirError::Damaged { path: path.to_path_buf(), reason };
    // The version first, by itself: a newer file may hold anything else.
    let table: toml::Table = toml::from_str(&text).map_err(|error| damaged(first_line(&error)))?;
    match table.get("format").and_then(toml::Value::as_integer).and_then(|format| u32::try_from(format).ok()) {
        Some(FORMAT) => toml::from_str(&text).map(Some).map_err(|error| damaged(first_line(&error))),
        Some(format) => Err(DirError::Newer { path: path.to_path_buf(), format }),
        None => Err(damaged(format!("{IDENTITY_FILE} has no format"))),
    }
}

fn first_line(error: &toml::de::Error) -> String {
    format!("{IDENTITY_FILE}: {}", error.message().lines().next().unwrap_or("not understood"))
}

fn temporary_name() -> String {
    format!("{IDENTITY_FILE}.new")
}

/// Whole or not at all, and on disk when this returns.
fn write(path: &Path, identity: &Identity) -> io::Result<()> {
    let text = toml::to_string(identity).map_err(io::Error::other)?;
    let temporary = path.join(temporary_name());
    let mut file = File::create(&temporary)?;
    file.write_all(HEADER.as_bytes())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path.join(IDENTITY_FILE))?;
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weft-identity-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn an_identity_is_made_once_and_kept() {
        let path = scratch("kept");
        let mut dir = TargetDir::open(&path, "metad", true, None).expect("made");
        assert!(dir.is_new() && !dir.has_joined());
        dir.join("c1", NodeId(3), TargetId(4)).expect("joins");
        let first = dir.identity().clone();
        drop(dir);
        let mut dir = TargetDir::open(&path, "metad", false, None).expect("opens");
        assert_eq!(dir.identity(), &first);
        assert!(!dir.is_new() && dir.has_joined());
        dir.join("c1", NodeId(3), TargetId(4)).expect("joins again");
        dir.verify().expect("is there");
        let _ = fs::remove_dir_all(&path);
        assert!(matches!(dir.verify(), Err(DirError::NoIdentity { .. })));
    }

    #[test]
    fn another_cluster_or_number_is_refused_and_changes_nothing() {
        let path = scratch("other");
        let mut dir = TargetDir::open(&path, "metad", true, None).expect("made");
        dir.join("c1", NodeId(3), TargetId(4)).expect("joins");
        let before = fs::read(path.join(IDENTITY_FILE)).expect("reads");
        assert!(matches!(dir.join("c2", NodeId(3), TargetId(4)), Err(DirError::OtherCluster { .. })));
        assert!(matches!(dir.join("c1", NodeId(5), TargetId(4)), Err(DirError::OtherNumber { what: "node", .. })));
        assert!(matches!(dir.join("c1", NodeId(3), TargetId(5)), Err(DirError::OtherNumber { what: "target", .. })));
        assert_eq!(fs::read(path.join(IDENTITY_FILE)).expect("reads"), before);
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn two_services_on_one_directory_are_refused() {
        let path = scratch("locked");
        let _first = TargetDir::open(&path, "metad", true, None).expect("made");
        assert!(matches!(TargetDir::open(&path, "metad", true, None), Err(DirError::Locked { .. })));
        assert!(matches!(TargetDir::open(&path, "storaged", true, None), Err(DirError::OtherService { .. })));
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn a_directory_that_is_not_there_or_not_empty_is_refused() {
        let path = scratch("missing");
        assert!(matches!(TargetDir::open(&path, "metad", false, None), Err(DirError::Missing { .. })));
        assert!(!path.exists());
        fs::create_dir_all(path.join("lost+found")).expect("makes");
        assert!(
            matches!(TargetDir::open(&path, "metad", false, None), Err(DirError::Missing { .. })),
            "bare mount point"
        );
        fs::create_dir_all(path.join("db")).expect("makes");
        assert!(matches!(TargetDir::open(&path, "metad", true, None), Err(DirError::NoIdentity { .. })));
        assert!(!path.join(LOCK_FILE).exists(), "nothing was written");
        fs::remove_dir(path.join("db")).expect("removes");
        assert!(TargetDir::open(&path, "metad", true, Some("n1")).expect("made").identity().node_uuid == "n1");
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn a_damaged_or_newer_identity_is_refused() {
        let path = scratch("damaged");
        fs::create_dir_all(&path).expect("makes");
        fs::write(path.join(IDENTITY_FILE), "format = 1\nservice = 7\n").expect("writes");
        assert!(matches!(TargetDir::open(&path, "metad", true, None), Err(DirError::Damaged { .. })));
        fs::write(path.join(IDENTITY_FILE), "format = 2\nmore = \"x\"\n").expect("writes");
        assert!(matches!(TargetDir::open(&path, "metad", true, None), Err(DirError::Newer { format: 2, .. })));
        let _ = fs::remove_dir_all(&path);
    }
}
