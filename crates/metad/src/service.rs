//! Start, run and ordered stop: what can be wrong on this host first, then mgmtd, then the shard.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::event::{Registration, Report, TargetRegistration};
use cluster::map::ServiceKind;
use conf::Fatal;
use conf::identity::{Expect, Home, Service};
use control::{Agent, AgentConfig, Registered, Update, View};
use kv::KvError;
use kv::rocks::{RocksConfig, RocksKv};
use net::{ClusterKey, Identity};
use telemetry::metrics::Metrics;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use types::id::TargetId;

use crate::config::Config;
use crate::shard::{Setup, ShardThread, assigned_shard};
use crate::tasks::space::{Found, look};

/// Name of the database inside the target's directory.
pub(crate) const STORE_DIR: &str = "db";
/// Requests of one client that may wait here.
const CONNECTION_REQUESTS_MAX: usize = 1024;
/// The port of a process that was killed stays bound for some milliseconds.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
/// Between the first view and the registration being known.
const REGISTERED_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// Where it cannot start (exit code 2 where the user must change something), is refused by mgmtd, or its shard fails.
pub fn run(config: Config) -> anyhow::Result<()> {
    let log = telemetry::log::init(config.log_format, &config.log_level)
        .map_err(|error| Fatal::usage(format!("log_level: {error}")))?;
    let metrics = Metrics::new("metad");
    net::metrics::install(&metrics);
    let endpoint = match config.metrics_listen {
        Some(address) => Some(
            telemetry::http::Server::start(address, metrics.clone(), log)
                .map_err(|error| cannot_listen(address, &error))?,
        ),
        None => None,
    };
    let seen_at = endpoint.as_ref().map(|endpoint| endpoint.address().to_string()).unwrap_or_default();
    let ground = Ground::prepare(&config)?;
    let runtime = telemetry::runtime::current_thread()?;
    runtime.block_on(async {
        // From here on a signal stops in order.
        let mut signals = Signals::new()?;
        let (events, inbox) = unbounded_channel();
        let mut server = Server::start(config, ground, metrics, &seen_at, events)?;
        let outcome = server.run(inbox, &mut signals).await;
        server.stop()?;
        outcome
    })
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Fatal {
    Fatal::usage(format!("cannot listen at {address}: {error}; is another service running there?"))
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What the service stands on: all that can fail on this host, before anybody else hears of it.
struct Ground {
    key: ClusterKey,
    listener: OwnedFd,
    port: u16,
    home: Home,
    store: RocksKv,
}

impl Ground {
    /// The port comes before the directory: whoever gave a taken one finds an untouched directory.
    fn prepare(config: &Config) -> Result<Self, Fatal> {
        let key = ClusterKey::from_file(&config.key_file).map_err(|error| Fatal::usage(error.to_string()))?;
        let (listener, address) = listen(config.listen).map_err(|error| cannot_listen(config.listen, &error))?;
        let expect = Expect {
            dir: &config.dir,
            service: Service::Metadata,
            cluster: None,
            node_uuid: None,
            target: true,
            init: config.init,
        };
        let home = Home::open(&expect)?;
        let store = open_store(config, &home)?;
        Ok(Self { key, listener, port: address.port(), home, store })
    }
}

fn listen(address: SocketAddr) -> std::io::Result<(OwnedFd, SocketAddr)> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match ring::op::listen(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// A target that has registered once has its data: it is never begun anew.
fn open_store(config: &Config, home: &Home) -> Result<RocksKv, Fatal> {
    let path = config.dir.join(STORE_DIR);
    let known = home.identity().target_id.is_some();
    if known && !path.is_dir() {
        return Err(Fatal::usage(format!(
            "{} is gone, but this target is part of a cluster: restore it, or remove the target from the cluster",
            path.display()
        )));
    }
    let rocks = RocksConfig {
        block_cache_bytes: usize::try_from(config.block_cache.0).unwrap_or(usize::MAX),
        write_buffer_bytes: usize::try_from(config.write_buffer.0).unwrap_or(usize::MAX),
        create: !known,
        ..RocksConfig::default()
    };
    RocksKv::open(&path, &rocks).map_err(|error| store_fatal(&path, &error))
}

fn store_fatal(path: &Path, error: &KvError) -> Fatal {
    let path = path.display();
    match error {
        KvError::Locked(_) => Fatal::usage(format!("{path}: {error}")),
        KvError::Corrupt(_) => Fatal::usage(format!("{path}: {error}; restore it from a backup")),
        KvError::NoSpace(_) => Fatal::failed(format!("{path}: {error}; make room on its disk")),
        KvError::Io(_) => Fatal::failed(format!("{path}: {error}")),
    }
}

/// What can happen to the running service.
enum Event {
    View(View),
    Refused(Fatal),
    ShardEnded,
}

struct Server {
    config: Config,
    key: ClusterKey,
    metrics: Metrics,
    incarnation: u64,
    events: UnboundedSender<Event>,
    agent: Agent,
    /// Until the shard's thread takes it.
    idle: Option<(RocksKv, OwnedFd)>,
    shard: Option<ShardThread>,
    registered: Option<Registered>,
    /// Unlocked last.
    home: Home,
}

impl Server {
    fn start(
        config: Config,
        ground: Ground,
        metrics: Metrics,
        seen_at: &str,
        events: UnboundedSender<Event>,
    ) -> anyhow::Result<Self> {
        let Ground { key, listener, port, home, store } = ground;
        let incarnation = nanoseconds();
        let known = home.identity();
        let management =
            AgentConfig { management: config.mgmtd.clone(), identity: identity(&key, &known.cluster, incarnation) };
        let registration = Registration {
            cluster: known.cluster.clone(),
            uuid: known.node_uuid.clone(),
            kind: ServiceKind::Metadata,
            id: known.node_id,
            alias: config.alias.clone(),
            incarnation,
            rails: control::interfaces::rails(config.listen.ip(), &config.interfaces, &config.mgmtd)?,
            metrics: seen_at.to_owned(),
            targets: vec![TargetRegistration {
                uuid: known.target_uuid.clone().unwrap_or_default(),
                id: known.target_id,
                path: config.dir.display().to_string(),
                ports: vec![port],
                report: Report::default(),
            }],
        };
        let dir = config.dir.clone();
        let empty = known.target_id.is_none();
        let reporter = Box::new(move || vec![report(&dir, empty)]);
        let agent = Agent::start_node(management, registration, reporter, teller(events.clone()))?;
        let idle = Some((store, listener));
        Ok(Self { config, key, metrics, incarnation, events, agent, idle, shard: None, registered: None, home })
    }

    /// Until a signal, or until the service cannot go on.
    async fn run(&mut self, mut inbox: UnboundedReceiver<Event>, signals: &mut Signals) -> anyhow::Result<()> {
        loop {
            let event = tokio::select! {
                () = signals.received() => return Ok(()),
                event = inbox.recv() => event,
            };
            match event {
                Some(Event::View(view)) => self.take_view(view)?,
                Some(Event::Refused(fatal)) => return Err(fatal.into()),
                Some(Event::ShardEnded) => return self.shard_ended(),
                None => return Ok(()),
            }
        }
    }

    fn take_view(&mut self, view: View) -> anyhow::Result<()> {
        let target = self.target()?;
        if let Some(shard) = &self.shard {
            shard.tell(view);
            return Ok(());
        }
        let Some(shard) = assigned_shard(&view.map, target) else {
            tracing::info!(%target, epoch = %view.map.epoch, "standing by: no shard is assigned to this target");
            return Ok(());
        };
        let Some((store, listener)) = self.idle.take() else { return Ok(()) };
        let cluster = &self.home.identity().cluster;
        let config = &self.config;
        let setup = Setup {
            store,
            listener,
            identity: identity(&self.key, cluster, self.incarnation),
            limits: net::Limits { requests: CONNECTION_REQUESTS_MAX, ..net::Limits::default() },
            ring: ring::Config { cpu: config.cpu, spin: config.spin.0, ..ring::Config::default() },
            dir: config.dir.clone(),
            target,
            shard,
            session_expiry: config.session_expiry.0,
            // Whoever is not heard of loses its leases before its session.
            lease_term: config.lease_term.0.min(config.session_expiry.0 / 2),
            sync_interval: config.sync_interval.0,
            reserve_bytes: config.reserve.0,
            bounds: namespace::shard::Limits {
                cached_inodes: config.hot_entries,
                cached_edges: config.hot_entries,
                ..namespace::shard::Limits::default()
            },
            metrics: self.metrics.clone(),
            view,
        };
        let events = self.events.clone();
        let ended = move || drop(events.send(Event::ShardEnded));
        self.shard = Some(ShardThread::start(setup, ended)?);
        tracing::info!(%shard, %target, cluster, dir = %config.dir.display(), "the metadata service is ready");
        Ok(())
    }

    /// This target's number. At the first view it goes into the identity.
    fn target(&mut self) -> Result<TargetId, Fatal> {
        if let Some(registered) = &self.registered {
            return target_of(registered);
        }
        // mgmtd sends the view with its answer, so the answer is there or about to be.
        let registered = self.agent.registered(Some(REGISTERED_PATIENCE))?;
        let target = target_of(&registered)?;
        let known = self.home.identity();
        let changed = known.cluster != registered.cluster
            || known.node_id != Some(registered.node)
            || known.target_id != Some(target);
        if changed && known.target_id.is_some_and(|known| known != target) {
            return Err(Fatal::usage(format!(
                "{} is target {} by its identity, but mgmtd knows it as {target}: is it a copy?",
                self.home.dir().display(),
                known.target_id.unwrap_or_default()
            )));
        }
        if changed {
            let keep = |identity: &mut conf::identity::Identity| {
                identity.cluster.clone_from(&registered.cluster);
                identity.node_id = Some(registered.node);
                identity.target_id = Some(target);
            };
            self.home.update(keep).map_err(|error| {
                Fatal::failed(format!("{}: the identity cannot be written: {error}", self.home.dir().display()))
            })?;
        }
        self.registered = Some(registered);
        Ok(target)
    }

    fn shard_ended(&mut self) -> anyhow::Result<()> {
        match self.shard.take() {
            Some(shard) => shard.join().and_then(|()| anyhow::bail!("the shard's thread has ended")),
            None => Ok(()),
        }
    }

    /// The shard first, while mgmtd still sees the node; the directory's lock last.
    fn stop(mut self) -> anyhow::Result<()> {
        tracing::info!("stopping");
        let outcome = self.shard.take().map_or(Ok(()), ShardThread::stop);
        drop(self.agent);
        outcome
    }
}

fn target_of(registered: &Registered) -> Result<TargetId, Fatal> {
    registered.targets.first().copied().ok_or_else(|| Fatal::failed("mgmtd has registered no target"))
}

fn teller(events: UnboundedSender<Event>) -> control::agent::OnUpdate {
    Box::new(move |update| {
        let event = match update {
            Update::View(view) => Event::View(view),
            Update::Refused(fatal) => Event::Refused(fatal),
        };
        // Nobody listens any more when the service stops.
        let _ = events.send(event);
    })
}

fn report(dir: &Path, empty: bool) -> Report {
    match look(dir) {
        Found::There(capacity) => Report { capacity, failing: false, empty },
        Found::Gone => Report { failing: true, ..Report::default() },
    }
}

fn identity(key: &ClusterKey, cluster: &str, incarnation: u64) -> Identity {
    Identity {
        key: key.clone(),
        cluster: cluster.to_owned(),
        name: format!("metad {}", std::process::id()),
        incarnation,
    }
}

/// Different at each start, and rising as long as the clock does.
fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
