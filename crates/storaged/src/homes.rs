//! The directories of a node's targets: locked, known to be the right ones, and what the node keeps in them.
//!
//! A storage node has no directory of its own: what it must remember (who it is, how often it was started, its ports)
//! is in each of its targets, so that any of them may be taken away.

use std::fs;
use std::path::{Path, PathBuf};

use conf::Fatal;
use conf::fatal::Unopened;
use conf::identity::{self, Expect, Home, IDENTITY_FILE, Service};
use serde::{Deserialize, Serialize};
use types::id::{NodeId, TargetId};
use types::time::Timestamp;

use crate::absent::Absent;
use crate::config::Config;
use crate::object_table::incarnation_by_clock;
use crate::record;
use crate::silence::{does_not_answer, silent};

/// Name of the file with [`Memory`] in a target's directory.
const MEMORY_FILE: &str = "storaged.toml";

/// What a node remembers from one start to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    /// Rises at each start: object versions depend on it.
    incarnation: u64,
    /// Of the lanes at the last start.
    ports: Vec<u16>,
}

impl Memory {
    fn write(&self, home: &Home) -> Result<(), Fatal> {
        record::write(home.dir(), MEMORY_FILE, "Written by Weft at each start.", self)
    }
}

/// The locked directories of all targets that could be opened, in the order of the configuration.
pub(crate) struct Homes {
    homes: Vec<Home>,
    memory: Memory,
}

impl Homes {
    /// Opens the targets: each must belong to this node, or be new where `config.init` allows. Of a node that was there before,
    /// those whose disks are away, or hang, are left out as long as there is another one.
    ///
    /// # Errors
    /// One line that names the directory and the cure; exit code 2.
    pub(crate) fn open(config: &Config) -> Result<(Self, Vec<Absent>), Fatal> {
        let silent = ask(&config.targets)?;
        let hangs = |dir: &PathBuf| silent.contains(dir);
        let mut node_uuid = known_node(config.targets.iter().filter(|dir| !hangs(dir)));
        let is_known = node_uuid.is_some();
        if let Some(dir) = silent.first().filter(|_| !is_known) {
            // It may say whose new targets are.
            return Err(does_not_answer(dir));
        }
        let (mut homes, mut absent, mut memory) = (Vec::new(), Vec::new(), Memory::default());
        for dir in &config.targets {
            let expect = Expect {
                dir,
                service: Service::Storage,
                cluster: homes.first().map(cluster).filter(|cluster| !cluster.is_empty()),
                node_uuid: node_uuid.as_deref(),
                target: true,
                init: config.init,
            };
            let opened = if hangs(dir) { Err(Unopened::Away(does_not_answer(dir))) } else { open(&expect) };
            match opened {
                Ok((home, one)) => {
                    node_uuid.get_or_insert_with(|| home.identity().node_uuid.clone());
                    homes.push(home);
                    if one.incarnation > memory.incarnation {
                        memory = one;
                    }
                }
                Err(Unopened::Away(reason)) if is_known => absent.push(Absent::new(dir.clone(), reason)),
                Err(unopened) => return Err(unopened.into()),
            }
        }
        if homes.is_empty() { Err(first_reason(absent)) } else { Ok((Self { homes, memory }, absent)) }
    }

    /// The targets of `config` that are neither among these nor absent.
    pub(crate) fn new_of(&self, config: &Config, is_absent: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let is_new = |dir: &&PathBuf| !self.homes.iter().any(|home| home.dir() == dir.as_path()) && !is_absent(dir);
        config.targets.iter().filter(is_new).cloned().collect()
    }

    /// What opens further targets of this node.
    pub(crate) fn late(&self) -> Late {
        let node_uuid = self.homes.first().map(|home| home.identity().node_uuid.clone());
        Late { cluster: self.cluster().to_owned(), node_uuid, memory: self.memory.clone() }
    }

    /// One that is a copy of another would be taken for it: mgmtd knows them by their UUIDs alone.
    ///
    /// # Errors
    /// Where one of `more` has the UUID of one of these, or of another one of them.
    pub(crate) fn refuse_copies(&self, more: &[Home]) -> Result<(), Fatal> {
        let is_copy = |one: &Home, other: &&Home| one.identity().target_uuid == other.identity().target_uuid;
        for (index, home) in more.iter().enumerate() {
            if let Some(other) = self.homes.iter().chain(&more[..index]).find(|other| is_copy(home, other)) {
                let (dir, other) = (home.dir().display(), other.dir().display());
                return Err(Fatal::usage(format!(
                    "{dir} is a copy of {other}, which is served: take one of them away"
                )));
            }
        }
        Ok(())
    }

    /// Takes over what was opened later.
    pub(crate) fn extend(&mut self, homes: Vec<Home>) {
        self.homes.extend(homes);
    }

    /// Counts this start, on disk before this returns, and begins each target with `begin`, which is given that count: higher
    /// than any before, and not lower than what the clock says. Those that cannot are left out from here on, unless they are
    /// new.
    ///
    /// # Errors
    /// Where a new target cannot be begun, or none.
    pub(crate) fn begin<T>(
        &mut self,
        ports: &[u16],
        now: Timestamp,
        begin: impl Fn(&Home, u64) -> Result<T, Fatal>,
    ) -> Result<(Vec<T>, Vec<Absent>), Fatal> {
        let incarnation = incarnation_by_clock(now).max(self.memory.incarnation + 1);
        self.memory = Memory { incarnation, ports: ports.to_vec() };
        let (mut begun, mut absent) = (Vec::new(), Vec::new());
        for home in std::mem::take(&mut self.homes) {
            match self.memory.write(&home).and_then(|()| begin(&home, self.memory.incarnation)) {
                Ok(one) => {
                    begun.push(one);
                    self.homes.push(home);
                }
                Err(reason) if home.identity().target_id.is_some() => {
                    absent.push(Absent::new(home.dir().to_owned(), reason));
                }
                Err(reason) => return Err(reason),
            }
        }
        if begun.is_empty() { Err(first_reason(absent)) } else { Ok((begun, absent)) }
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

    pub(crate) fn ports(&self) -> &[u16] {
        &self.memory.ports
    }

    /// Empty before the first registration.
    pub(crate) fn cluster(&self) -> &str {
        self.homes.iter().map(cluster).find(|cluster| !cluster.is_empty()).unwrap_or_default()
    }

    /// UUID of the node; empty where nothing is left of it.
    pub(crate) fn node(&self) -> &str {
        self.homes.first().map(|home| home.identity().node_uuid.as_str()).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Home> {
        self.homes.iter()
    }
}

/// Opens targets of a node that runs. Held by threads of their own: it knows the node as it has begun.
#[derive(Clone)]
pub(crate) struct Late {
    cluster: String,
    node_uuid: Option<String>,
    memory: Memory,
}

impl Late {
    /// Answers also the count of starts that the target has to begin with: higher than any that it had, also where it has
    /// been served when the others were not.
    ///
    /// # Errors
    /// As [`Homes::open`].
    pub(crate) fn open(&self, dir: &Path, init: bool) -> Result<(Home, u64), Fatal> {
        let (home, before) = open(&Expect {
            dir,
            service: Service::Storage,
            cluster: Some(self.cluster.as_str()).filter(|cluster| !cluster.is_empty()),
            node_uuid: self.node_uuid.as_deref(),
            target: true,
            init,
        })?;
        let incarnation = self.memory.incarnation.max(before.incarnation + 1);
        Memory { incarnation, ..self.memory.clone() }.write(&home)?;
        Ok((home, incarnation))
    }

    /// Opens all of these or none. Blocks for as long as their disks do.
    ///
    /// # Errors
    /// As [`Homes::open`].
    pub(crate) fn open_all(&self, dirs: &[PathBuf], init: bool) -> Result<Vec<(Home, u64)>, Fatal> {
        match ask(dirs)?.first() {
            Some(dir) => Err(does_not_answer(dir)),
            None => dirs.iter().map(|dir| self.open(dir, init)).collect(),
        }
    }
}

/// Those of `dirs` whose disks hang.
fn ask(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Fatal> {
    silent(dirs).map_err(|error| Fatal::failed(format!("cannot ask the disks of the targets: {error}")))
}

/// With what it remembers.
fn open(expect: &Expect<'_>) -> Result<(Home, Memory), Unopened> {
    let home = Home::open(expect)?;
    let memory = read(home.dir()).map_err(Unopened::Away)?;
    Ok((home, memory))
}

fn cluster(home: &Home) -> &str {
    &home.identity().cluster
}

/// Of targets of which none could be opened.
fn first_reason(absent: Vec<Absent>) -> Fatal {
    absent.into_iter().next().map_or_else(|| Fatal::usage("there is no target"), |absent| absent.reason)
}

/// The node that the first known directory belongs to; new ones join it.
fn known_node<'a>(dirs: impl Iterator<Item = &'a PathBuf>) -> Option<String> {
    let mut identities = dirs.map(|dir| identity::read(&dir.join(IDENTITY_FILE)));
    identities.find_map(Result::ok).map(|identity| identity.node_uuid)
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
        conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }.load().expect("valid")
    }

    /// All of them.
    fn open(config: &Config) -> Homes {
        let (homes, absent) = Homes::open(config).expect("opened");
        assert!(absent.is_empty(), "{absent:?}");
        homes
    }

    fn begin(homes: &mut Homes, ports: &[u16]) -> u64 {
        begin_at(homes, ports, Timestamp(0))
    }

    fn begin_at(homes: &mut Homes, ports: &[u16], now: Timestamp) -> u64 {
        let (begun, absent) = homes.begin(ports, now, |_, incarnation| Ok(incarnation)).expect("written");
        assert!(absent.is_empty() && begun.iter().all(|incarnation| *incarnation == begun[0]));
        begun[0]
    }

    fn more(homes: &Homes, config: &Config) -> Result<Vec<(Home, u64)>, Fatal> {
        homes.late().open_all(&homes.new_of(config, |_| false), config.init)
    }

    fn refusal(config: &Config) -> String {
        Homes::open(config).err().expect("refused").message
    }

    #[test]
    fn a_node_counts_its_starts_and_takes_new_targets_in() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        assert!(refusal(&config(&[&a], false)).contains("does not exist"));
        let mut homes = open(&config(&[&a], true));
        assert_eq!(begin(&mut homes, &[7001, 7002]), 1);
        homes.learn("c1", NodeId(4), &[TargetId(9)]).expect("written");
        let uuid = homes.homes[0].identity().node_uuid.clone();
        assert_eq!(homes.node(), uuid);
        assert!(refusal(&config(&[&a], false)).contains("another service"));
        drop(homes);
        // The new one stands first: it joins the node of the known one.
        let mut homes = open(&config(&[&b, &a], true));
        assert_eq!((homes.ports(), homes.cluster()), (&[7001, 7002][..], "c1"));
        assert!(homes.iter().all(|home| home.identity().node_uuid == uuid));
        assert_eq!(homes.homes[1].identity().target_id, Some(TargetId(9)));
        assert_eq!(begin(&mut homes, &[1]), 2);
        drop(homes);
        assert_eq!(open(&config(&[&b], false)).memory.incarnation, 2);
    }

    #[test]
    fn a_count_that_was_put_back_is_not_used_again() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, put_back) = (root.path().join("a"), root.path().join("a").join(MEMORY_FILE));
        drop(open(&config(&[&a], true)));
        let start = |seconds| begin_at(&mut open(&config(&[&a], false)), &[7001], Timestamp::from_parts(seconds, 0));
        let first = start(1_795_824_000);
        let older = fs::read(&put_back).expect("there");
        assert_eq!(start(1_795_824_001), first + 1);
        assert_eq!(start(0), first + 2, "the clock was set back");
        fs::write(&put_back, older).expect("written");
        assert!(start(1_795_824_600) > first + 2);
    }

    #[test]
    fn a_running_node_takes_new_targets_in() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let mut homes = open(&config(&[&a], true));
        begin(&mut homes, &[7001]);
        homes.learn("c1", NodeId(4), &[TargetId(9)]).expect("written");
        assert!(more(&homes, &config(&[&a], false)).expect("nothing is new").is_empty());
        assert!(more(&homes, &config(&[&a, &b], false)).expect_err("not asked for").message.contains("--init"));
        // Given up, as where mgmtd is away, and tried again.
        drop(more(&homes, &config(&[&a, &b], true)).expect("new"));
        let more = more(&homes, &config(&[&b, &a], true)).expect("known by now");
        assert_eq!(more.len(), 1);
        homes.extend(more.into_iter().map(|(home, _)| home).collect());
        homes.learn("c1", NodeId(4), &[TargetId(9), TargetId(10)]).expect("written");
        drop(homes);
        let homes = open(&config(&[&b], false));
        assert_eq!((homes.memory.incarnation, homes.cluster()), (2, "c1"));
    }

    #[test]
    fn a_disk_that_is_away_takes_no_other_along() {
        let root = tempfile::tempdir().expect("a directory");
        let [a, b, aside] = ["a", "b", "aside"].map(|name| root.path().join(name));
        assert!(refusal(&config(&[&a, &b], false)).contains("does not exist"));
        let mut homes = open(&config(&[&a, &b], true));
        begin(&mut homes, &[7001]);
        homes.learn("c1", NodeId(4), &[TargetId(9), TargetId(10)]).expect("written");
        drop(homes);
        // The one that stands first is away, and comes back when the other has been started twice.
        fs::rename(&a, &aside).expect("renamed");
        for incarnation in [2, 3] {
            let (mut homes, absent) = Homes::open(&config(&[&a, &b], false)).expect("one is there");
            assert_eq!((absent.len(), &absent[0].dir), (1, &a));
            assert!(absent[0].reason.message.contains("mount its disk"));
            assert_eq!((begin(&mut homes, &[7001]), homes.cluster()), (incarnation, "c1"));
        }
        fs::rename(&aside, &a).expect("renamed");
        let (mut homes, absent) = Homes::open(&config(&[&a, &b], false)).expect("both");
        assert!(absent.is_empty());
        // One that cannot begin is left out, and its lock goes.
        let only_b = |home: &Home, _| if home.dir() == b { Ok(()) } else { Err(Fatal::failed("full")) };
        let (begun, absent) = homes.begin(&[7001], Timestamp(0), only_b).expect("one is there");
        assert_eq!((begun.len(), absent.len(), homes.iter().count()), (1, 1, 1));
        let (home, incarnation) = homes.late().open(&a, false).expect("there");
        assert_eq!(home.identity().target_id, Some(TargetId(9)));
        assert_eq!(incarnation, 5, "higher than what it was begun with");
        drop((home, homes));
        // Damaged, it is away as well; none at all is none.
        fs::write(a.join(IDENTITY_FILE), "").expect("written");
        assert_eq!(Homes::open(&config(&[&a, &b], false)).expect("one is there").1.len(), 1);
        fs::write(b.join(MEMORY_FILE), "").expect("written");
        assert!(refusal(&config(&[&a, &b], false)).contains("is damaged"));
    }

    #[test]
    fn a_copy_of_a_target_is_not_taken_for_it() {
        let root = tempfile::tempdir().expect("a directory");
        let [a, b, c] = ["a", "b", "c"].map(|name| root.path().join(name));
        let mut homes = open(&config(&[&a], true));
        begin(&mut homes, &[7001]);
        homes.learn("c1", NodeId(4), &[TargetId(9)]).expect("written");
        let copy = |dir: &Path| {
            fs::create_dir(dir).expect("made");
            fs::copy(a.join(IDENTITY_FILE), dir.join(IDENTITY_FILE)).expect("copied");
        };
        copy(&b);
        let (found, _) = homes.late().open(&b, false).expect("it is this node's");
        assert!(homes.refuse_copies(&[found]).expect_err("a copy").message.contains("is a copy of"));
        copy(&c);
        fs::remove_dir_all(&b).expect("removed");
        let more = more(&homes, &config(&[&a, &b, &c], true)).expect("opened");
        let more: Vec<Home> = more.into_iter().map(|(home, _)| home).collect();
        homes.refuse_copies(&more[..1]).expect("a new one");
        assert!(homes.refuse_copies(&more).expect_err("a copy").message.contains("is a copy of"));
    }

    #[test]
    fn a_new_target_has_to_be_there() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let mut homes = open(&config(&[&a, &b], true));
        let refuse = |home: &Home, _| if home.dir() == a { Ok(()) } else { Err(Fatal::failed("full")) };
        assert_eq!(homes.begin(&[7001], Timestamp(0), refuse).expect_err("it has never been served").message, "full");
    }

    #[test]
    fn directories_of_two_nodes_or_clusters_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        drop(open(&config(&[&a], true)));
        drop(open(&config(&[&b], true)));
        assert!(refusal(&config(&[&a, &b], false)).contains("belongs to node"));
        fs::write(a.join(MEMORY_FILE), "incarnation = -1").expect("written");
        assert!(refusal(&config(&[&a], false)).contains("is damaged"));
    }
}
