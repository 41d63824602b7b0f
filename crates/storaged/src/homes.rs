//! The directories of a node's targets: locked, known to be the right ones, and what the node keeps in them.
//!
//! A storage node has no directory of its own: what it must remember (who it is, how often it was started, its ports)
//! is in each of its targets, so that any of them may be taken away.

use std::fs;
use std::path::{Path, PathBuf};

use conf::Fatal;
use conf::identity::{self, Expect, Home, IDENTITY_FILE, Service};
use serde::{Deserialize, Serialize};
use types::id::{NodeId, TargetId};

use crate::config::Config;
use crate::record;

/// Name of the file with [`Memory`] in a target's directory.
const MEMORY_FILE: &str = "storaged.toml";

/// What a node remembers from one start to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    /// Rises by one at each start: object versions depend on it.
    incarnation: u64,
    /// Of the lanes at the last start.
    ports: Vec<u16>,
}

impl Memory {
    fn write(&self, home: &Home) -> Result<(), Fatal> {
        record::write(home.dir(), MEMORY_FILE, "Written by Weft at each start.", self)
    }
}

/// The locked directories of all targets, in the order of the configuration.
pub(crate) struct Homes {
    homes: Vec<Home>,
    memory: Memory,
}

impl Homes {
    /// Opens all targets, or none: each must belong to this node, or be new where `config.init` allows.
    ///
    /// # Errors
    /// One line that names the directory and the cure; exit code 2.
    pub(crate) fn open(config: &Config) -> Result<Self, Fatal> {
        let mut node_uuid = known_node(config)?;
        let mut homes = Vec::new();
        for dir in &config.targets {
            let home = Home::open(&Expect {
                dir,
                service: Service::Storage,
                cluster: homes.first().map(cluster).filter(|cluster| !cluster.is_empty()),
                node_uuid: node_uuid.as_deref(),
                target: true,
                init: config.init,
            })?;
            node_uuid.get_or_insert_with(|| home.identity().node_uuid.clone());
            homes.push(home);
        }
        let mut memory = Memory::default();
        for home in &homes {
            let one = read(home.dir())?;
            if one.incarnation > memory.incarnation {
                memory = one;
            }
        }
        Ok(Self { homes, memory })
    }

    /// The targets of `config` that are not among these, opened as targets of the same node and told what it remembers. They
    /// belong to these when they are registered: [`Self::extend`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_more(&self, config: &Config) -> Result<Vec<Home>, Fatal> {
        let is_new = |dir: &&PathBuf| !self.homes.iter().any(|home| home.dir() == dir.as_path());
        let node_uuid = self.homes.first().map(|home| home.identity().node_uuid.as_str());
        let open = |dir: &PathBuf| {
            let cluster = Some(self.cluster()).filter(|cluster| !cluster.is_empty());
            let init = config.init;
            let home = Home::open(&Expect { dir, service: Service::Storage, cluster, node_uuid, target: true, init })?;
            self.memory.write(&home)?;
            Ok(home)
        };
        config.targets.iter().filter(is_new).map(open).collect()
    }

    /// Takes over what [`Self::open_more`] has opened.
    pub(crate) fn extend(&mut self, homes: Vec<Home>) {
        self.homes.extend(homes);
    }

    /// Counts this start, on disk before this returns.
    ///
    /// # Errors
    /// Where a directory cannot be written.
    pub(crate) fn begin(&mut self, ports: &[u16]) -> Result<u64, Fatal> {
        self.memory = Memory { incarnation: self.memory.incarnation + 1, ports: ports.to_vec() };
        self.homes.iter().try_for_each(|home| self.memory.write(home))?;
        Ok(self.memory.incarnation)
    }

    /// Writes down what mgmtd has given.
    ///
    /// # Errors
    /// Where a directory cannot be written.
    pub(crate) fn learn(&mut self, cluster: &str, node: NodeId, targets: &[TargetId]) -> Result<(), Fatal> {
        for (home, &target) in self.homes.iter_mut().zip(targets) {
            let identity = home.identity();
            if identity.cluster == cluster && identity.node_id == Some(node) && identity.target_id == Some(target) {
                continue;
            }
            home.update(|identity| {
                cluster.clone_into(&mut identity.cluster);
                identity.node_id = Some(node);
                identity.target_id = Some(target);
            })
            .map_err(|error| Fatal::unusable(format!("{} cannot be written: {error}", home.dir().display()), &error))?;
        }
        Ok(())
    }

    /// Of this run, once it has begun.
    pub(crate) fn incarnation(&self) -> u64 {
        self.memory.incarnation
    }

    pub(crate) fn ports(&self) -> &[u16] {
        &self.memory.ports
    }

    /// Empty before the first registration.
    pub(crate) fn cluster(&self) -> &str {
        self.homes.iter().map(cluster).find(|cluster| !cluster.is_empty()).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Home> {
        self.homes.iter()
    }
}

fn cluster(home: &Home) -> &str {
    &home.identity().cluster
}

/// The node that the first known directory belongs to; new ones join it.
fn known_node(config: &Config) -> Result<Option<String>, Fatal> {
    for dir in &config.targets {
        let path = dir.join(IDENTITY_FILE);
        if path.exists() {
            return identity::read(&path).map(|identity| Some(identity.node_uuid));
        }
    }
    Ok(None)
}

fn read(dir: &Path) -> Result<Memory, Fatal> {
    let path = dir.join(MEMORY_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text)
            .map_err(|error| Fatal::usage(format!("{} is damaged: {}", path.display(), error.message()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Memory::default()),
        Err(error) => Err(Fatal::unusable(format!("{}: {error}", path.display()), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(targets: &[&Path], init: bool) -> Config {
        let mut flags = conf::Flags::<Config>::default();
        flags.give("key_file", "/k");
        flags.give("init", if init { "true" } else { "false" });
        for target in targets {
            flags.give("targets", target.to_str().expect("plain path"));
        }
        conf::Sources { file: None, environment: &|_| None, flags: &flags }.load().expect("valid")
    }

    fn refusal(config: &Config) -> String {
        Homes::open(config).err().expect("refused").message
    }

    #[test]
    fn a_node_counts_its_starts_and_takes_new_targets_in() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        assert!(refusal(&config(&[&a], false)).contains("does not exist"));
        let mut homes = Homes::open(&config(&[&a], true)).expect("new");
        assert_eq!(homes.begin(&[7001, 7002]), Ok(1));
        homes.learn("c1", NodeId(4), &[TargetId(9)]).expect("written");
        let uuid = homes.homes[0].identity().node_uuid.clone();
        assert!(refusal(&config(&[&a], false)).contains("another service"));
        drop(homes);
        // The new one stands first: it joins the node of the known one.
        let mut homes = Homes::open(&config(&[&b, &a], true)).expect("known and new");
        assert_eq!((homes.ports(), homes.cluster()), (&[7001, 7002][..], "c1"));
        assert!(homes.iter().all(|home| home.identity().node_uuid == uuid));
        assert_eq!(homes.homes[1].identity().target_id, Some(TargetId(9)));
        assert_eq!(homes.begin(&[1]), Ok(2));
        drop(homes);
        assert_eq!(Homes::open(&config(&[&b], false)).expect("known").memory.incarnation, 2);
    }

    #[test]
    fn a_running_node_takes_new_targets_in() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let mut homes = Homes::open(&config(&[&a], true)).expect("new");
        homes.begin(&[7001]).expect("written");
        homes.learn("c1", NodeId(4), &[TargetId(9)]).expect("written");
        assert!(homes.open_more(&config(&[&a], false)).expect("nothing is new").is_empty());
        assert!(homes.open_more(&config(&[&a, &b], false)).expect_err("not asked for").message.contains("--init"));
        // Given up, as where mgmtd is away, and tried again.
        drop(homes.open_more(&config(&[&a, &b], true)).expect("new"));
        let more = homes.open_more(&config(&[&b, &a], true)).expect("known by now");
        assert_eq!(more.len(), 1);
        homes.extend(more);
        homes.learn("c1", NodeId(4), &[TargetId(9), TargetId(10)]).expect("written");
        drop(homes);
        let homes = Homes::open(&config(&[&b], false)).expect("known");
        assert_eq!((homes.memory.incarnation, homes.cluster()), (1, "c1"));
    }

    #[test]
    fn directories_of_two_nodes_or_clusters_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        drop(Homes::open(&config(&[&a], true)).expect("new"));
        drop(Homes::open(&config(&[&b], true)).expect("new"));
        assert!(refusal(&config(&[&a, &b], false)).contains("belongs to node"));
        fs::write(a.join(MEMORY_FILE), "incarnation = -1").expect("written");
        assert!(refusal(&config(&[&a], false)).contains("is damaged"));
    }
}
