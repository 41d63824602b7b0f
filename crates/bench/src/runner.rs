//! Measures the rows, side by side and round by round.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use conf::Fatal;
use hosts::{Host, Hosts};

use crate::Options;
use crate::cpu::{Watch, Who};
use crate::folder::Folder;
use crate::interrupt;
use crate::job::{Job, Measured, Program, Served};
use crate::plan::{Scenario, Side, Spec, scenarios};
use crate::report::{Report, Row, Series};
use crate::side::ceiling;
use crate::side::cluster::Cluster;
use crate::side::shards;
use crate::work::scan::Shape;
use crate::work::way::Way;
use crate::work::{git, pip, tree};

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Of workloads that run for a time.
    pub(crate) seconds: f64,
    pub(crate) creates: u64,
    pub(crate) stats: u64,
    pub(crate) sequential_bytes: u64,
    pub(crate) random_bytes: u64,
    /// That a shard has in its cache.
    pub(crate) inodes: u64,
    /// Of what programs go through: directories, and files in each.
    pub(crate) scan: Shape,
}

impl Scale {
    const FULL: Self = Self {
        seconds: 3.0,
        creates: 300_000,
        stats: 1_000_000,
        sequential_bytes: 4 << 30,
        random_bytes: 2 << 30,
        inodes: 1 << 18,
        scan: Shape { directories: 1_000, files: 100 },
    };
    const QUICK: Self = Self {
        seconds: 1.0,
        creates: 100_000,
        stats: 300_000,
        sequential_bytes: 512 << 20,
        random_bytes: 512 << 20,
        inodes: 1 << 16,
        scan: Shape { directories: 100, files: 100 },
    };
}

/// What the rows need, made when the first one needs it, and gone with this.
pub(crate) struct Bench {
    pub(crate) scale: Scale,
    program: Program,
    weft: PathBuf,
    // Stopped in this order; then the folders under them go.
    ping_server: Option<Served>,
    ceiling: Option<Served>,
    clusters: BTreeMap<Which, Cluster>,
    /// By their number of rails.
    hosts: BTreeMap<usize, Hosts>,
    source_tree: bool,
    repository: bool,
    wheel: Option<PathBuf>,
    names: Cell<u32>,
    memory: Option<Folder>,
    folder: Folder,
}

/// One of the clusters that rows work on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    /// With the defaults of `weft up`.
    Usual,
    /// With what tasks of `side::shards` need in it.
    TwoShards,
    /// With two shards, each on a CPU of its own: those of [`Bench::two_cpus`].
    BoundShards,
    /// With one storage target.
    OneTarget,
    /// That keeps no checksums.
    Unchecked,
    /// All of whose data are in memory.
    Memory,
}

/// What each side measured in one round, by phase.
type Round = BTreeMap<Side, Result<Vec<Measured>, String>>;

/// # Errors
/// As `bench::run`.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let chosen: Vec<&Scenario> =
        scenarios().filter(|scenario| scenario.rows.iter().any(|row| is_wanted(options, row))).collect();
    if chosen.is_empty() {
        return Err(Fatal::usage(format!("no row has {:?} in its name: see --list", options.only)).into());
    }
    let mut report = Report::begin(options);
    if options.list {
        let rows = chosen.iter().flat_map(|scenario| scenario.rows).filter(|row| is_wanted(options, row));
        report.rows = rows.map(|row| Row::new(row, &[], Some("listed only".to_owned()))).collect();
        return Ok(report);
    }
    interrupt::catch()?;
    if let Some(file) = &options.save {
        // Where nothing can be written, that is not found out when all is measured.
        report.save(file)?;
    }
    let mut bench = Bench::new(options)?;
    for scenario in chosen {
        let rounds = bench.rounds(scenario, options);
        interrupt::check()?;
        for spec in scenario.rows.iter().filter(|row| is_wanted(options, row)) {
            report.rows.push(row(spec, &rounds));
        }
        if let Some(file) = &options.save {
            // After each row: what was measured is not lost if the next one never ends.
            report.save(file)?;
        }
    }
    progress("");
    Ok(report)
}

fn place_in(root: &Path) -> Result<PathBuf> {
    let place = root.join("bench");
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    Ok(place)
}

fn is_wanted(options: &Options, row: &Spec) -> bool {
    options.only.is_empty() || options.only.iter().any(|pattern| row.name.contains(pattern.as_str()))
}

/// The row of `spec`, from the rounds of its scenario.
fn row(spec: &Spec, rounds: &[Round]) -> Row {
    let mut pairs = Vec::new();
    for round in rounds {
        match Series::of_round(spec, round) {
            Ok(series) => pairs.push(series),
            Err(reason) => return Row::new(spec, &[], Some(reason)),
        }
    }
    Row::new(spec, &pairs, None)
}

/// Shows on a terminal what is being done; an empty text ends it.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let dir = std::path::absolute(&options.dir)?;
        let program = Program::this()?;
        let weft = match &options.weft {
            Some(weft) => std::path::absolute(weft)?,
            None => std::env::current_exe()?,
        };
        Ok(Self {
            scale: if options.quick { Scale::QUICK } else { Scale::FULL },
            program,
            weft,
            ping_server: None,
            ceiling: None,
            clusters: BTreeMap::new(),
            hosts: BTreeMap::new(),
            source_tree: false,
            repository: false,
            wheel: None,
            names: Cell::new(0),
            memory: None,
            folder: Folder::new_in(&dir)?,
        })
    }

    fn rounds(&mut self, scenario: &Scenario, options: &Options) -> Vec<Round> {
        let mut rounds = Vec::new();
        for number in 1..=options.rounds() {
            let mut round = Round::new();
            // In turns: the first one after the caches were dropped finds less memory at hand than the others.
            let turned = number % 2 == 0;
            let order = |place: usize| if turned { scenario.sides.len() - 1 - place } else { place };
            for side in (0..scenario.sides.len()).map(|place| scenario.sides[order(place)]) {
                progress(&format!(
                    "{}: {}, round {number} of {}",
                    scenario.rows[0].name,
                    side.name(),
                    options.rounds()
                ));
                let measured = (scenario.job)(self, side).and_then(|job| {
                    self.settle();
                    self.program.measure(&job)
                });
                round.insert(side, measured.map_err(|error| format!("{}: {error:#}", side.name())));
            }
            let failed = round.values().any(Result::is_err);
            rounds.push(round);
            if failed {
                break;
            }
        }
        rounds
    }

    /// What earlier rows have left to do, removing and writing back, is no part of the next figure, ours or the yardstick's.
    fn settle(&self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        /// CPUs that a cluster may use with nothing to do.
        const IDLE: f64 = 0.01;
        // SAFETY: a system call without arguments that cannot fail.
        unsafe { libc::sync() };
        let everyone = Watch(self.clusters.values().flat_map(|cluster| cluster.everyone().0).collect());
        if everyone != Watch::default() {
            everyone.settle_within(PATIENCE, IDLE * self.clusters.len() as f64);
        }
    }

    /// A name that nobody has used.
    pub(crate) fn fresh_name(&self, what: &str) -> String {
        self.names.set(self.names.get() + 1);
        format!("{what}-{}", self.names.get())
    }

    /// A path that nobody has used, on the local file system.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        self.folder.path().join(self.fresh_name(what))
    }

    /// Started when the first row needs it.
    pub(crate) fn cluster(&mut self, which: Which) -> Result<&mut Cluster> {
        if !self.clusters.contains_key(&which) {
            let started = self.start(which).with_context(|| format!("cannot start a cluster ({which:?})"))?;
            self.clusters.insert(which, started);
        }
        self.clusters.get_mut(&which).context("no cluster")
    }

    fn start(&mut self, which: Which) -> Result<Cluster> {
        let folder = self.folder.path().to_owned();
        match which {
            Which::Usual => Cluster::start(&self.weft, &folder, &[]),
            Which::OneTarget => Cluster::start(&self.weft, &folder.join("one-target"), &["--targets", "1"]),
            Which::Unchecked => {
                // The mount would go on to make them, and to compare.
                let environment = [("WEFT_STORAGED_CHECKSUMS", "false"), ("WEFT_MOUNT_CHECKSUMS", "false")];
                Cluster::start_with(&self.weft, &folder.join("unchecked"), &[], &environment)
            }
            Which::Memory => {
                let folder = self.in_memory()?;
                Cluster::start(&self.weft, &folder.join("cluster"), &[])
            }
            Which::TwoShards => self.two_shards(&folder.join("two-shards"), &[]),
            Which::BoundShards => {
                let [first, _] = Self::two_cpus()?;
                self.two_shards(&folder.join("bound-shards"), &[("WEFT_METAD_CPU", &first.to_string())])
            }
        }
    }

    fn two_shards(&self, folder: &Path, environment: &[(&str, &str)]) -> Result<Cluster> {
        let started = Cluster::start_with(&self.weft, folder, &["--shards", "2"], environment)?;
        shards::furnish(&started).context("cannot prepare the cluster of two shards")?;
        Ok(started)
    }

    /// Two that this process may use, and that metad binds two shards to when it is given the first.
    pub(crate) fn two_cpus() -> Result<[usize; 2]> {
        let cpus = ring::place::allowed();
        let pair = cpus.windows(2).find(|pair| pair[0] + 1 == pair[1]);
        pair.map(|pair| [pair[0], pair[1]]).context("this needs two CPUs whose numbers follow each other")
    }

    /// A folder on a file system in memory.
    fn in_memory(&mut self) -> Result<PathBuf> {
        const MEMORY: &str = "/dev/shm";
        if self.memory.is_none() {
            self.memory = Some(Folder::new_in(Path::new(MEMORY))?);
        }
        Ok(self.memory.as_ref().context("no folder in memory")?.path().to_owned())
    }

    /// A client and a server with a cluster in memory, joined by rails of one gigabit per second.
    pub(crate) fn hosts(&mut self, rails: usize) -> Result<&Hosts> {
        if !self.hosts.contains_key(&rails) {
            let folder = self.in_memory()?.join(format!("hosts-{rails}"));
            std::fs::create_dir(&folder)?;
            let mut hosts =
                Hosts::lay(&self.weft, &folder, rails, "1gbit").context("cannot lay rails between hosts")?;
            hosts.serve().with_context(|| format!("no cluster on two hosts:\n{}", hosts.logs()))?;
            self.hosts.insert(rails, hosts);
        }
        self.hosts.get(&rails).context("no hosts")
    }

    /// A directory to work in on the client of two hosts with so many rails, and whom to watch.
    pub(crate) fn place_of_hosts(&mut self, rails: usize) -> Result<(PathBuf, Watch)> {
        let hosts = self.hosts(rails)?;
        let kind = |name: &str| if name == "mount" { Who::Client } else { Who::Server };
        let watch = Watch(hosts.processes().map(|(name, pid)| (kind(name), pid)).collect());
        Ok((place_in(&hosts.mount_point())?, watch))
    }

    /// The command line of `weft` at the client.
    pub(crate) fn weft_at_client(&mut self, rails: usize) -> Result<Vec<String>> {
        let command = self.hosts(rails)?.inside(Host::Client, &[]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().map(str::to_owned).context("a path that is no text")).collect()
    }

    pub(crate) fn weft(&self) -> &Path {
        &self.weft
    }

    /// Client cores of this cluster. `loopback`: over TCP.
    pub(crate) fn core(&mut self, which: Which, loopback: bool) -> Result<Way> {
        let cluster = self.cluster(which)?;
        Ok(Way::Core { management: cluster.management.clone(), key_file: cluster.key_file.clone(), loopback })
    }

    /// Addresses of as many lanes as a storage service has, and whom to watch.
    pub(crate) fn ping_server(&mut self) -> Result<(Vec<SocketAddr>, Watch)> {
        if self.ping_server.is_none() {
            self.ping_server = Some(self.program.serve(&Job::PingServer).context("cannot start the network ceiling")?);
        }
        let server = self.ping_server.as_ref().context("no network ceiling")?;
        let addresses = server.said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        Ok((addresses, Watch(vec![(Who::Server, server.pid()?)])))
    }

    fn ceiling(&mut self) -> Result<(PathBuf, Watch)> {
        let at = self.folder.path().join("ceiling");
        if self.ceiling.is_none() {
            std::fs::create_dir_all(&at)?;
            self.ceiling = Some(self.program.serve(&Job::Ceiling(ceiling::Mount { at: at.clone() }))?);
        }
        let served = self.ceiling.as_ref().context("no FUSE ceiling")?;
        Ok((at, Watch(vec![(Who::Client, served.pid()?)])))
    }

    /// The directory of a file system to work in, and whom to watch.
    pub(crate) fn place(&mut self, side: Side) -> Result<(PathBuf, Watch)> {
        match side {
            Side::Ours | Side::Own | Side::Empty | Side::Large => self.place_of(Which::Usual),
            Side::Unchecked => self.place_of(Which::Unchecked),
            Side::Fuse => {
                let (root, watch) = self.ceiling()?;
                Ok((place_in(&root)?, watch))
            }
            Side::Local => Ok((place_in(&self.folder.path().join("local"))?, Watch::default())),
            _ => anyhow::bail!("{} is no file system", side.name()),
        }
    }

    /// A directory to work in on the usual mount of a cluster, and whom to watch.
    pub(crate) fn place_of(&mut self, which: Which) -> Result<(PathBuf, Watch)> {
        let cluster = self.cluster(which)?;
        Ok((place_in(&cluster.mount)?, cluster.watch.clone()))
    }

    /// A directory to work in on another mount of a cluster, with these flags, and whom to watch.
    pub(crate) fn place_with(&mut self, which: Which, name: &'static str, flags: &[&str]) -> Result<(PathBuf, Watch)> {
        let mounted = self.cluster(which)?.mount_with(name, flags);
        let (root, watch) = mounted.with_context(|| format!("cannot mount with {flags:?}"))?;
        Ok((place_in(&root)?, watch))
    }

    /// A directory to work in on a mount of the usual cluster that has seen nothing yet, and whom to watch.
    pub(crate) fn place_cold(&mut self) -> Result<(PathBuf, Watch)> {
        let (root, watch) = self.cluster(Which::Usual)?.mount_cold().context("cannot mount once more")?;
        Ok((place_in(&root)?, watch))
    }

    /// The archive, and the tree that is in it.
    pub(crate) fn source_tree(&mut self) -> Result<(PathBuf, PathBuf)> {
        let dir: &Path = self.folder.path();
        if !self.source_tree {
            tree::make(dir)?;
            self.source_tree = true;
        }
        Ok((dir.join("tree.tar"), dir.join("tree")))
    }

    /// A repository that has that tree, and the tree.
    pub(crate) fn source_repository(&mut self) -> Result<(PathBuf, PathBuf)> {
        let (_, tree) = self.source_tree()?;
        let at = self.folder.path().join("repository.git");
        if !self.repository {
            git::make_repository(&at, &tree).context("cannot make a repository")?;
            self.repository = true;
        }
        Ok((at, tree))
    }

    /// A wheel that has that tree, and the tree.
    pub(crate) fn source_wheel(&mut self) -> Result<(PathBuf, PathBuf)> {
        let (_, tree) = self.source_tree()?;
        if self.wheel.is_none() {
            let made = pip::make_wheel(&self.folder.path().join("wheel"), &tree);
            self.wheel = Some(made.context("cannot make a wheel")?);
        }
        Ok((self.wheel.clone().context("no wheel")?, tree))
    }
}
