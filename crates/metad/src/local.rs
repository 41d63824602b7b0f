//! A shard in this process, on the loopback interface and without management: for tests and benches of the metadata path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use cluster::capacity::{Capacities, Capacity};
use cluster::map::{CapacityClass, ClusterMap, Group, Node, NodeState, Pool, Rail, ServiceKind, Target, TargetState};
use conf::identity::{Expect, Home, Service};
use control::View;
use kv::rocks::{RocksConfig, RocksKv};
use net::{ClusterKey, Identity, To};
use telemetry::metrics::Metrics;
use types::id::{Epoch, Generation, GroupId, NodeId, PoolId, ShardId, TargetId};

use crate::shard::{Setup, ShardThread};

/// The metadata target and its group in the maps made here. Storage targets have the numbers below, and the same as
/// their groups.
pub const TARGET: TargetId = TargetId(1000);
pub const GROUP: GroupId = GroupId(1000);

/// A storage target on the loopback interface, real or pretended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestTarget {
    pub id: TargetId,
    pub port: u16,
}

/// How a local shard is made.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Made where it is not there.
    pub dir: PathBuf,
    pub key: ClusterKey,
    /// 0: any free port.
    pub port: u16,
    /// Higher at each start on the same directory.
    pub incarnation: u64,
    /// One pool, with a group per target.
    pub storage: Vec<TestTarget>,
    pub session_expiry: Duration,
    pub lease_term: Duration,
    pub sync_interval: Duration,
    pub reserve_bytes: u64,
    pub rocks: RocksConfig,
    pub cpu: Option<usize>,
}

impl LocalConfig {
    #[must_use]
    pub fn new(dir: &Path, key: ClusterKey) -> Self {
        Self {
            dir: dir.to_path_buf(),
            key,
            port: 0,
            incarnation: 1,
            storage: vec![TestTarget { id: TargetId(1), port: 1 }],
            session_expiry: Duration::from_secs(60),
            lease_term: Duration::from_secs(10),
            sync_interval: Duration::from_millis(100),
            reserve_bytes: 0,
            rocks: RocksConfig { grouping: Some(crate::GROUPING), ..RocksConfig::default() },
            cpu: None,
        }
    }
}

/// A running shard 0. Dropping it without stopping leaves its thread running.
pub struct LocalShard {
    thread: ShardThread,
    home: Home,
    address: SocketAddr,
    view: View,
    metrics: Metrics,
    refusing: Arc<AtomicBool>,
}

impl LocalShard {
    /// # Errors
    /// Where the directory or the port cannot be used.
    pub fn start(config: &LocalConfig) -> anyhow::Result<Self> {
        let expect = Expect {
            dir: &config.dir,
            service: Service::Metadata,
            cluster: None,
            node_uuid: None,
            target: true,
            init: true,
        };
        let home = Home::open(&expect)?;
        let store = RocksKv::open(&config.dir.join("db"), &config.rocks)?;
        let (listener, address) =
            ring::op::listen((Ipv4Addr::LOCALHOST, config.port).into()).context("cannot listen")?;
        let view = View::new(map(config, address.port()), Arc::new(capacities(config)));
        let metrics = Metrics::new("metad");
        let refusing = Arc::default();
        let setup = Setup {
            store,
            listener,
            identity: identity(&config.key, config.incarnation),
            limits: net::Limits { requests: 4096, ..net::Limits::default() },
            ring: ring::Config { cpu: config.cpu, ..ring::Config::default() },
            place: home.place().clone(),
            target: TARGET,
            shard: ShardId(0),
            session_expiry: config.session_expiry,
            lease_term: config.lease_term,
            sync_interval: config.sync_interval,
            refusing: Arc::clone(&refusing),
            reserve_bytes: config.reserve_bytes,
            sharers: Arc::new(AtomicU64::new(1)),
            bounds: namespace::shard::Limits::default(),
            metrics: metrics.clone(),
            view: view.clone(),
            fail_points: None,
        };
        let thread = ShardThread::start(setup, || ())?;
        Ok(Self { thread, home, address, view, metrics, refusing })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The target's directory, which stays locked as long as this lives.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.home.dir()
    }

    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        &self.view.map
    }

    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether it took changes when it last looked, as the heartbeats of a node say.
    #[must_use]
    pub fn takes_changes(&self) -> bool {
        !self.refusing.load(Ordering::Relaxed)
    }

    /// Gives the shard another map, as the management service would.
    pub fn change_map(&mut self, change: impl FnOnce(&mut ClusterMap)) {
        let map = Arc::make_mut(&mut self.view.map);
        change(map);
        map.epoch.0 += 1;
        self.thread.tell(self.view.clone());
    }

    /// Whom requests are for.
    #[must_use]
    pub fn to(&self) -> To {
        let generation = self.view.map.groups.get(&GROUP).map_or(Generation(0), |group| group.generation);
        To { group: GROUP, generation, epoch: self.view.map.epoch }
    }

    /// # Errors
    /// What made the shard end before.
    pub fn stop(self) -> anyhow::Result<()> {
        self.thread.stop()
    }

    /// Ends it as a killed process would.
    ///
    /// # Errors
    /// What made the shard end before.
    pub fn kill(self) -> anyhow::Result<()> {
        self.thread.kill()
    }
}

fn identity(key: &ClusterKey, incarnation: u64) -> Identity {
    Identity { incarnation, ..Identity::new(key.clone(), "local shard") }
}

fn map(config: &LocalConfig, port: u16) -> ClusterMap {
    let mut map = storage_map(&config.storage);
    let node = add_node(&mut map, NodeId(1000), ServiceKind::Metadata);
    add_target(&mut map, TestTarget { id: TARGET, port }, node, ServiceKind::Metadata);
    map.shards.insert(ShardId(0), GROUP);
    map
}

/// A map of storage targets on the loopback interface: a node and a group for each, with its number, in the default pool.
#[must_use]
pub fn storage_map(targets: &[TestTarget]) -> ClusterMap {
    let mut map = ClusterMap::empty(String::new());
    map.epoch = Epoch(1);
    for &target in targets {
        let node = add_node(&mut map, NodeId(target.id.0), ServiceKind::Storage);
        add_target(&mut map, target, node, ServiceKind::Storage);
    }
    let groups = map.groups.keys().copied().collect();
    map.pools.insert(PoolId::DEFAULT, Pool { id: PoolId::DEFAULT, name: "default".into(), groups });
    map
}

fn add_node(map: &mut ClusterMap, id: NodeId, kind: ServiceKind) -> NodeId {
    let node = Node {
        id,
        uuid: String::new(),
        kind,
        alias: format!("local {id}"),
        state: NodeState::Online,
        rails: vec![Rail { interface: "lo".into(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) }],
        metrics: String::new(),
    };
    map.nodes.insert(id, node);
    id
}

fn add_target(map: &mut ClusterMap, target: TestTarget, node: NodeId, kind: ServiceKind) {
    let TestTarget { id, port } = target;
    let entry = Target {
        id,
        uuid: String::new(),
        node,
        kind,
        state: TargetState::Good,
        class: CapacityClass::Normal,
        ports: vec![port],
        path: String::new(),
    };
    map.targets.insert(id, entry);
    let group = GroupId(id.0);
    map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
}

fn capacities(config: &LocalConfig) -> Capacities {
    let capacity = Capacity { total_bytes: 1 << 40, free_bytes: 1 << 39, total_inodes: 1 << 30, free_inodes: 1 << 29 };
    config.storage.iter().map(|target| (target.id, capacity)).collect()
}
