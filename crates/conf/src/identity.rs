//! What a directory belongs to: one cluster, one service kind, one node and perhaps one target.
//!
//! A service opens its directory before anything else. A disk that is not mounted, belongs to somebody else, or has lost
//! its identity is refused rather than filled.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use types::id::{NodeId, TargetId};
use uuid::Uuid;

use crate::atomic;
use crate::fatal::{Fatal, Unopened};
use crate::lock::{DirLock, LOCK_FILE};
use crate::place::Place;

/// Name of the identity file.
pub const IDENTITY_FILE: &str = "identity.toml";
/// Version of the file's format that this release writes.
const FORMAT: u32 = 1;
/// Of a service's directory: names and contents of files are in it, whoever may read those in the file system.
const MODE: u32 = 0o700;

/// The service that owns a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    Management,
    Metadata,
    Storage,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Management => "management",
            Self::Metadata => "metadata",
            Self::Storage => "storage",
        })
    }
}

/// What is written in the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub format: u32,
    /// UUID of the cluster; empty until mgmtd has told it.
    #[serde(default)]
    pub cluster: String,
    pub service: Service,
    /// Made at the first start.
    pub node_uuid: String,
    /// Given by mgmtd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Where the directory is a target: made at the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_id: Option<TargetId>,
}

/// What all formats of it have.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// What a service expects of its directory.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'a> {
    pub dir: &'a Path,
    pub service: Service,
    /// `None`: whichever cluster it belongs to.
    pub cluster: Option<&'a str>,
    /// `None`: whichever node it belongs to, or a new one.
    pub node_uuid: Option<&'a str>,
    /// The directory is (also) a target.
    pub target: bool,
    /// A missing or empty directory may become a new one. Give it only where the user asked for a new node or target:
    /// an empty directory is what a disk that is not mounted looks like.
    pub init: bool,
}

/// A directory that is locked and known to be the right one.
#[derive(Debug)]
pub struct Home {
    place: Place,
    identity: Identity,
    _lock: DirLock,
}

impl Home {
    /// Locks the directory, reads its identity, or makes one where `expect.init` allows, and closes it to other users.
    ///
    /// # Errors
    /// One line for each way in which the directory is not what was expected; nothing is changed then.
    pub fn open(expect: &Expect<'_>) -> Result<Self, Unopened> {
        let dir = expect.dir;
        make_missing(expect)?;
        // Before the lock, and all that a service opens there: where another directory takes its name in between, it is told.
        let place = Place::of(dir).map_err(|error| Unopened::Away(cannot_use(dir, &error)))?;
        let path = dir.join(IDENTITY_FILE);
        if !path.try_exists().map_err(|error| Unopened::Away(cannot_use(dir, &error)))? {
            return Self::make(expect, place);
        }
        let lock = DirLock::take(dir)?;
        let identity = understand(&path)?;
        expect.check(&identity).map_err(Unopened::Wrong)?;
        close_to_others(dir).map_err(|error| Unopened::Away(cannot_use(dir, &error)))?;
        Ok(Self { place, identity, _lock: lock })
    }

    /// Of a directory without an identity.
    fn make(expect: &Expect<'_>, place: Place) -> Result<Self, Unopened> {
        let dir = expect.dir;
        refuse_unless_new(expect)?;
        let wrong = |error| Unopened::Wrong(cannot_use(dir, &error));
        let lock = DirLock::take(dir).map_err(|error| Unopened::Wrong(error.into()))?;
        let mut home = Self { place, identity: expect.new_identity(), _lock: lock };
        home.update(|_| {}).map_err(wrong)?;
        close_to_others(dir).map_err(wrong)?;
        Ok(home)
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.place.path()
    }

    /// The directory itself, whatever has its name later.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Changes the identity, on disk before this returns.
    ///
    /// # Errors
    /// Where the file cannot be written, or another directory is in its place; the old one is whole then.
    pub fn update(&mut self, change: impl FnOnce(&mut Identity)) -> io::Result<()> {
        self.place.check()?;
        let mut identity = self.identity.clone();
        change(&mut identity);
        let note = "# Written by Weft. Says what this directory belongs to: do not copy it to another one.\n";
        let text = toml::to_string(&identity).map_err(io::Error::other)?;
        atomic::write(&self.dir().join(IDENTITY_FILE), format!("{note}{text}").as_bytes())?;
        self.identity = identity;
        Ok(())
    }
}

impl Expect<'_> {
    fn new_identity(&self) -> Identity {
        Identity {
            format: FORMAT,
            cluster: self.cluster.unwrap_or_default().to_owned(),
            service: self.service,
            node_uuid: self.node_uuid.map_or_else(new_uuid, str::to_owned),
            node_id: None,
            target_uuid: self.target.then(new_uuid),
            target_id: None,
        }
    }

    fn check(&self, found: &Identity) -> Result<(), Fatal> {
        let dir = self.dir.display();
        let refuse = |text: String| Err(Fatal::usage(text));
        if found.service != self.service {
            return refuse(format!(
                "{dir} belongs to a {} service, not to a {} service: give this one a directory of its own",
                found.service, self.service
            ));
        }
        if let Some(cluster) = self.cluster.filter(|&cluster| !found.cluster.is_empty() && cluster != found.cluster) {
            return refuse(format!("{dir} belongs to cluster {}, not to {cluster}", found.cluster));
        }
        if let Some(node) = self.node_uuid.filter(|&node| node != found.node_uuid) {
            return refuse(format!("{dir} belongs to node {}, not to {node}", found.node_uuid));
        }
        match (self.target, &found.target_uuid) {
            (true, None) => refuse(format!("{dir} is the directory of a {} node, not of a target", found.service)),
            (false, Some(target)) => refuse(format!("{dir} is {} target {target}, not a node's", found.service)),
            _ => Ok(()),
        }
    }
}

/// A random UUID, for a node, target or cluster that is new.
#[must_use]
pub fn new_uuid() -> String {
    Uuid::new_v4().to_string()
}

/// Reads the identity of a directory without locking it: for tools that look at a stopped or running service.
///
/// # Errors
/// Where there is none, or it cannot be understood.
pub fn read(path: &Path) -> Result<Identity, Fatal> {
    Ok(understand(path)?)
}

fn understand(path: &Path) -> Result<Identity, Unopened> {
    let unreadable = |error| Unopened::Away(Fatal::unusable(format!("{}: {error}", path.display()), &error));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    // First of all: a newer one may have what this one does not know.
    if let Ok(Format { format }) = toml::from_str(&text)
        && format > FORMAT
    {
        return Err(Unopened::Wrong(newer(path, format)));
    }
    toml::from_str(&text).map_err(|error| {
        let reason = error.message().to_owned();
        Unopened::Away(Fatal::usage(format!("{} is damaged ({reason}): restore it from a backup", path.display())))
    })
}

fn newer(path: &Path, format: u32) -> Fatal {
    Fatal::usage(format!("{} was written by a newer Weft (format {format}): upgrade this one", path.display()))
}

fn make_missing(expect: &Expect<'_>) -> Result<(), Unopened> {
    let dir = expect.dir;
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Unopened::Wrong(Fatal::usage(format!("{} is no directory", dir.display())))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Unopened::Away(cannot_use(dir, &error))),
        Err(_) if expect.init => {
            let made = fs::DirBuilder::new().recursive(true).mode(MODE).create(dir);
            made.map_err(|error| Unopened::Wrong(cannot_use(dir, &error)))
        }
        Err(_) => Err(Unopened::Away(Fatal::usage(format!(
            "{} does not exist: mount its disk, or start once with --init to make a new one",
            dir.display()
        )))),
    }
}

/// Also one that was made otherwise: by an administrator, or as the root of a disk. Whose owner is another user than the
/// service's stays as its owner has it.
fn close_to_others(dir: &Path) -> io::Result<()> {
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    match fs::set_permissions(dir, fs::Permissions::from_mode(MODE)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Without an identity, only an empty directory may become a new one, and only when asked for.
fn refuse_unless_new(expect: &Expect<'_>) -> Result<(), Unopened> {
    let dir = expect.dir;
    if let Some(name) = first_foreign(dir).map_err(|error| Unopened::Away(cannot_use(dir, &error)))? {
        let refusal = Fatal::usage(format!(
            "{} has no {IDENTITY_FILE} but is not empty (it holds {name}): restore that file from a backup, or use an empty directory",
            dir.display()
        ));
        return Err(if expect.init { Unopened::Wrong(refusal) } else { Unopened::Away(refusal) });
    }
    if expect.init {
        return Ok(());
    }
    let dir = dir.display();
    Err(Unopened::Away(Fatal::usage(format!(
        "{dir} is empty: mount its disk, or start once with --init to make a new one"
    ))))
}

/// The first name that is neither ours from an unfinished first start nor made by mkfs.
fn first_foreign(dir: &Path) -> io::Result<Option<String>> {
    let unfinished = atomic::beside(Path::new(IDENTITY_FILE));
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != LOCK_FILE && name != unfinished.as_os_str() && name != "lost+found" {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn cannot_use(dir: &Path, error: &io::Error) -> Fatal {
    Fatal::unusable(format!("{} cannot be used: {error}", dir.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(dir: &Path) -> Expect<'_> {
        Expect { dir, service: Service::Storage, cluster: None, node_uuid: None, target: true, init: false }
    }

    fn refusal(expect: &Expect<'_>) -> String {
        let fatal = Fatal::from(Home::open(expect).unwrap_err());
        assert_eq!(fatal.code, 2);
        fatal.message
    }

    #[test]
    fn a_new_directory_needs_permission_and_keeps_its_identity() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("a/b");
        assert!(refusal(&expect(&dir)).contains("does not exist"));
        assert!(!dir.exists());
        let mut home = Home::open(&Expect { init: true, ..expect(&dir) }).expect("allowed");
        home.update(|identity| {
            identity.cluster = "c1".into();
            identity.node_id = Some(NodeId(3));
        })
        .expect("written");
        let identity = home.identity().clone();
        drop(home);
        let again = Home::open(&Expect { cluster: Some("c1"), ..expect(&dir) }).expect("known");
        assert_eq!(again.identity(), &identity);
        assert!(identity.target_uuid.is_some() && identity.target_uuid.as_ref() != Some(&identity.node_uuid));
    }

    #[test]
    fn a_directory_is_closed_to_other_users() {
        let root = tempfile::tempdir().expect("a directory");
        let (new, old) = (root.path().join("a/new"), root.path().join("old"));
        fs::create_dir(&old).expect("made");
        fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("ours");
        for dir in [&new, &old] {
            drop(Home::open(&Expect { init: true, ..expect(dir) }).expect("allowed"));
            assert_eq!(fs::metadata(dir).expect("there").permissions().mode() & 0o777, 0o700, "{}", dir.display());
        }
    }

    #[test]
    fn an_empty_directory_may_be_an_unmounted_disk() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(refusal(&expect(dir.path())).contains("is empty: mount its disk"));
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0, "it was touched");
    }

    #[test]
    fn what_belongs_to_others_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = Expect { init: true, cluster: Some("c1"), ..expect(dir.path()) };
        drop(Home::open(&new).expect("allowed"));
        let file = dir.path().join(IDENTITY_FILE);
        let before = fs::read_to_string(&file).expect("readable");
        assert!(refusal(&Expect { cluster: Some("c2"), ..new }).contains("belongs to cluster c1, not to c2"));
        let metadata = Expect { service: Service::Metadata, ..new };
        assert!(refusal(&metadata).contains("belongs to a storage service, not to a metadata service"));
        assert!(refusal(&Expect { node_uuid: Some("n2"), ..new }).contains("belongs to node"));
        assert!(refusal(&Expect { target: false, ..new }).contains("not a node's"));
        assert_eq!(fs::read_to_string(&file).expect("readable"), before);
        fs::write(&file, "format = 1\nservice = 'storage'").expect("written");
        assert!(refusal(&new).contains("is damaged"));
        fs::write(&file, before.replace("format = 1", "new_key = 7\nformat = 99")).expect("written");
        assert!(refusal(&new).contains("newer Weft"));
    }

    #[test]
    fn an_identity_that_vanished_is_not_made_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = Expect { init: true, ..expect(dir.path()) };
        drop(Home::open(&new).expect("allowed"));
        fs::write(dir.path().join("objects"), "").expect("written");
        fs::remove_file(dir.path().join(IDENTITY_FILE)).expect("removed");
        assert!(refusal(&new).contains("is not empty (it holds objects)"));
    }

    #[test]
    fn a_disk_that_is_away_is_told_from_a_wrong_one() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("a");
        let is_away = |expect: &Expect<'_>| matches!(Home::open(expect), Err(Unopened::Away(_)));
        assert!(is_away(&expect(&dir)), "not mounted");
        fs::create_dir(&dir).expect("made");
        assert!(is_away(&expect(&dir)), "an empty mount point");
        let home = Home::open(&Expect { init: true, ..expect(&dir) }).expect("allowed");
        assert!(!is_away(&expect(&dir)), "another service has it");
        drop(home);
        assert!(!is_away(&Expect { node_uuid: Some("n2"), ..expect(&dir) }));
        fs::write(dir.join(IDENTITY_FILE), "").expect("written");
        assert!(is_away(&expect(&dir)), "its content is gone");
        fs::rename(dir.join(IDENTITY_FILE), dir.join("other")).expect("renamed");
        assert!(is_away(&expect(&dir)), "what is left of a disk");
        assert!(!is_away(&Expect { init: true, ..expect(&dir) }), "no new one can be made there");
    }

    #[test]
    fn an_unfinished_first_start_is_no_obstacle() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["lock", "identity.toml.new"] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        fs::create_dir(dir.path().join("lost+found")).expect("made");
        Home::open(&Expect { init: true, ..expect(dir.path()) }).expect("as good as empty");
    }

    #[test]
    fn two_services_cannot_share_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = Expect { init: true, ..expect(dir.path()) };
        let _first = Home::open(&new).expect("allowed");
        assert!(refusal(&new).contains("another service (pid "));
    }
}
