//! A storage node in this process, without management: for tests and benches of the data path.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use cluster::map::{
    CapacityClass, ClusterMap, Group, Node, NodeState, Rail, ServiceKind, Target as MapTarget, TargetState,
};
use net::bench::Asker;
use net::{ClusterKey, Identity, Limits};
use telemetry::metrics::Metrics;
use types::id::{Epoch, Generation, GroupId, NodeId, TargetId};

use crate::engine::LaneShare;
use crate::engine::files::Options;
use crate::fault::Fault;
use crate::lane::{Lane, Setup};
use crate::netbench::NetBench;
use crate::target::{self, Health, Target};

/// How a local node is made.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Existing directories, one per target.
    pub targets: Vec<PathBuf>,
    pub lanes: usize,
    pub key: ClusterKey,
    /// Higher at each start on the same directories.
    pub incarnation: u64,
    /// Bytes that stay free.
    pub reserve: u64,
    /// Of each target and lane.
    pub open_files_max: usize,
    pub write_in_place_max: usize,
    /// Bytes from which on requests go past the page cache.
    pub direct_min: u64,
    pub checksums: bool,
    /// Reads, and changes, of each target and lane that are at the disk at once.
    pub queue_depth: usize,
    /// CPU of the first lane; the others follow.
    pub cpu: Option<usize>,
}

impl LocalConfig {
    #[must_use]
    pub fn new(targets: Vec<PathBuf>, key: ClusterKey) -> Self {
        Self {
            targets,
            lanes: 1,
            key,
            incarnation: 1,
            reserve: 0,
            open_files_max: 1000,
            write_in_place_max: 1 << 20,
            direct_min: 256 << 10,
            checksums: true,
            queue_depth: 32,
            cpu: None,
        }
    }
}

/// Running lanes on the loopback interface. Group `n` has target `n` alone, counted from 1.
pub struct LocalNode {
    lanes: Vec<Lane>,
    targets: Vec<Arc<Target>>,
    map: ClusterMap,
    metrics: Metrics,
}

impl LocalNode {
    /// # Errors
    /// Where a directory cannot be used or the kernel refuses a thread, ring or socket.
    pub fn start(config: &LocalConfig) -> io::Result<Self> {
        let targets: Vec<Arc<Target>> = (1u32..)
            .zip(&config.targets)
            .map(|(id, path)| {
                let target = Target::new(path.clone(), config.reserve);
                target.set_id(TargetId(id));
                target.begin(config.incarnation).map_err(|fatal| io::Error::other(fatal.message))?;
                Ok(Arc::new(target))
            })
            .collect::<io::Result<_>>()?;
        for target in &targets {
            target.probe(&target.path);
        }
        let listeners = listeners(config.lanes)?;
        let ports: Vec<u16> = listeners.iter().map(|(_, address)| address.port()).collect();
        let map = map(&targets, &ports);
        let asker = Asker { identity: identity(config), interfaces: Arc::default() };
        let net_bench = Arc::new(NetBench::new(asker));
        let metrics = Metrics::new("storaged");
        let start = |(lane, (listener, _)): (usize, (OwnedFd, SocketAddr))| {
            let lane = Lane::start(Setup {
                share: LaneShare { lane, lanes: config.lanes },
                listener,
                targets: targets.clone(),
                targets_max: targets.len(),
                identity: identity(config),
                limits: Limits { payload_sums: config.checksums, ..Limits::default() },
                ring: ring::Config { cpu: config.cpu.map(|first| first + lane), ..ring::Config::default() },
                engine: Options {
                    open_files_max: config.open_files_max * targets.len(),
                    write_in_place_max: config.write_in_place_max,
                    direct_min: config.direct_min,
                    checksums: config.checksums,
                },
                queue_depth: config.queue_depth,
                read_memory_max: 256 << 20,
                read_ahead_max: 64 << 20,
                metrics: metrics.clone(),
                net_bench: Arc::clone(&net_bench),
                fault: Fault::default(),
            })?;
            lane.tell_map(&Arc::new(map.clone()));
            Ok(lane)
        };
        let lanes = listeners.into_iter().enumerate().map(start).collect::<io::Result<_>>()?;
        Ok(Self { lanes, targets, map, metrics })
    }

    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Gives the lanes another map, as the management service would.
    pub fn change_map(&mut self, change: impl FnOnce(&mut ClusterMap)) {
        change(&mut self.map);
        self.map.epoch.0 += 1;
        for lane in &self.lanes {
            lane.tell_map(&Arc::new(self.map.clone()));
        }
    }

    /// Looks at the file systems, as a node does from time to time. True where all targets are good.
    #[must_use]
    pub fn probe(&self) -> bool {
        self.targets.iter().all(|target| {
            target.probe(&target.path);
            target.health() == Health::Good
        })
    }

    /// # Errors
    /// What made a lane end before.
    pub fn stop(self) -> io::Result<()> {
        Lane::stop_all(self.lanes)?;
        target::end_all(self.targets);
        Ok(())
    }
}

fn identity(config: &LocalConfig) -> Identity {
    Identity { incarnation: config.incarnation, ..Identity::new(config.key.clone(), "local storage") }
}

fn listeners(lanes: usize) -> io::Result<Vec<(OwnedFd, SocketAddr)>> {
    (0..lanes).map(|_| ring::op::listen((Ipv4Addr::LOCALHOST, 0).into())).collect()
}

fn map(targets: &[Arc<Target>], ports: &[u16]) -> ClusterMap {
    let mut map = ClusterMap::empty(String::new());
    map.epoch = Epoch(1);
    let node = Node {
        id: NodeId(1),
        uuid: String::new(),
        kind: ServiceKind::Storage,
        alias: "local".into(),
        state: NodeState::Online,
        rails: vec![Rail { interface: "lo".into(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) }],
        metrics: String::new(),
    };
    map.nodes.insert(node.id, node);
    for target in targets {
        let group = GroupId(target.id().0);
        let members = vec![target.id()];
        map.groups.insert(group, Group { id: group, kind: ServiceKind::Storage, generation: Generation(1), members });
        let entry = MapTarget {
            id: target.id(),
            uuid: String::new(),
            node: NodeId(1),
            kind: ServiceKind::Storage,
            state: TargetState::Good,
            class: CapacityClass::Normal,
            ports: ports.to_vec(),
            path: target.path.display().to_string(),
        };
        map.targets.insert(target.id(), entry);
    }
    map
}
