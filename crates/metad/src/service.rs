//! Start, run and ordered stop: what can be wrong on this host first, then mgmtd, then the shards.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cluster::event::Registration;
use cluster::map::ServiceKind;
use conf::{Fatal, Reread};
use control::interfaces::{Watched, rails, seen_at};
use control::{Agent, AgentConfig, Update, View};
use net::places::Places;
use net::{ClusterKey, Identity};
use telemetry::metrics::Metrics;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::Config;
use crate::descriptors;
use crate::fail_points;
use crate::seat::{self, Seat};
use crate::shard::{Setup, ShardThread, assigned_shard};

/// Requests of one connection that may wait here: more than any caller has under way, so that its questions whether we live
/// and its fences are read also where all of them wait for somebody else.
const CONNECTION_REQUESTS_MAX: usize = 2048;
/// Between the first view and the registration being known.
const REGISTERED_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the service until SIGTERM or SIGINT. At SIGHUP it takes up the shards that `reread` has more than before.
///
/// # Errors
/// Where it cannot start (exit code 2 where the user must change something), is refused by mgmtd, or its shard fails.
pub fn run(config: Config, reread: Reread<Config>) -> anyhow::Result<()> {
    let log = telemetry::log::init(config.log_format, &config.log_level)
        .map_err(|error| Fatal::usage(format!("log_level: {error}")))?;
    config.validate()?;
    config.take_place()?;
    let fail_points = fail_points::from_environment()?;
    let metrics = Metrics::new("metad");
    net::metrics::install(&metrics);
    let endpoint = match config.metrics_listen {
        Some(address) => Some(
            telemetry::http::Server::start(address, metrics.clone(), log)
                .map_err(|error| Fatal::usage(format!("metrics_listen: cannot listen on {address}: {error}")))?,
        ),
        None => None,
    };
    let endpoint_at = endpoint.as_ref().map(telemetry::http::Server::address);
    let key = ClusterKey::from_file(&config.key_file).map_err(|error| Fatal::usage(error.to_string()))?;
    let runtime = telemetry::runtime::current_thread()?;
    // To open a large store may take long. A SIGHUP waits until that is done, and those that stop end it at once.
    let hangup = telemetry::runtime::hear(&runtime, SignalKind::hangup())?;
    let seats = seat::prepare(&config, &[])?;
    runtime.block_on(async {
        // From here on a signal stops in order.
        let mut signals = Signals::new(hangup)?;
        let (events, inbox) = unbounded_channel();
        let mut server =
            Server::start(config, Start { key, seats, fail_points, metrics, endpoint: endpoint_at, events })?;
        let outcome = server.run(inbox, &mut signals, &reread).await;
        server.stop()?;
        outcome
    })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new(hangup: Signal) -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    /// The service is to stop.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    async fn received(&mut self) -> SignalOrder {
        tokio::select! {
            _ = self.terminate.recv() => SignalOrder::Stop,
            _ = self.interrupt.recv() => SignalOrder::Stop,
            _ = self.hangup.recv() => SignalOrder::Grow,
        }
    }
}

/// What signals say.
enum SignalOrder {
    Stop,
    Grow,
}

/// What can happen to the running service.
enum Event {
    View(View),
    Refused(Fatal),
    /// The place's index.
    ShardEnded(usize),
}

/// What a service is started with, beside its configuration.
struct Start {
    key: ClusterKey,
    /// Opened; nobody listens there yet.
    seats: Vec<Seat>,
    /// The file that says where the service is to crash, in tests.
    fail_points: Option<PathBuf>,
    metrics: Metrics,
    /// Where metrics are served, if they are.
    endpoint: Option<SocketAddr>,
    /// Where the service hears of what happens to it.
    events: UnboundedSender<Event>,
}

struct Server {
    config: Config,
    key: ClusterKey,
    metrics: Metrics,
    incarnation: u64,
    events: UnboundedSender<Event>,
    agent: Agent,
    /// mgmtd's answer has gone into the identities.
    registered: bool,
    seats: Vec<Seat>,
    /// For the connections of all shards.
    places: Places,
    fail_points: Option<PathBuf>,
}

impl Server {
    fn start(config: Config, start: Start) -> anyhow::Result<Self> {
        let Start { key, seats, fail_points, metrics, endpoint, events } = start;
        // Different at each start, and rising as long as the clock does.
        let incarnation = telemetry::clock::now_ns();
        let known = seats.first().context("no shard")?.identity();
        let management = AgentConfig {
            management: config.mgmtd.clone(),
            identity: identity(&key, known, incarnation),
            rails: Some(Watched::new(config.listen.ip(), &config.interfaces, &config.mgmtd).with_metrics(endpoint)),
        };
        let rails = rails(config.listen.ip(), &config.interfaces, &config.mgmtd)?;
        let registration = Registration {
            cluster: known.cluster.clone(),
            uuid: known.node_uuid.clone(),
            kind: ServiceKind::Metadata,
            id: known.node_id,
            alias: config.alias.clone(),
            incarnation,
            metrics: endpoint.map(|endpoint| seen_at(endpoint, &rails).to_string()).unwrap_or_default(),
            rails,
            targets: seats.iter().map(Seat::spec).collect(),
        };
        let reporter = seat::reporter(&seats.iter().collect::<Vec<_>>());
        let agent = Agent::start_node(management, registration, reporter, teller(events.clone()))?;
        let places = Places::new(descriptors::for_connections(seats.iter().map(|seat| seat.open_files)));
        Ok(Self { config, key, metrics, incarnation, events, agent, registered: false, seats, places, fail_points })
    }

    /// Until a signal, or until the service cannot go on.
    async fn run(
        &mut self,
        mut inbox: UnboundedReceiver<Event>,
        signals: &mut Signals,
        reread: &Reread<Config>,
    ) -> anyhow::Result<()> {
        loop {
            let event = tokio::select! {
                order = signals.received() => match order {
                    SignalOrder::Stop => return Ok(()),
                    SignalOrder::Grow => tokio::select! {
                        () = signals.stop() => return Ok(()),
                        grown = self.grow(reread) => {
                            grown?;
                            continue;
                        }
                    },
                },
                event = inbox.recv() => event,
            };
            match event {
                Some(Event::View(view)) => self.take_view(&view)?,
                Some(Event::Refused(fatal)) => return Err(fatal.into()),
                Some(Event::ShardEnded(index)) => return self.shard_ended(index),
                None => return Ok(()),
            }
        }
    }

    /// Takes up the shards that the configuration has by now. What stands in their way is logged and no reason to end:
    /// those that run go on, and the next SIGHUP tries again.
    async fn grow(&mut self, reread: &Reread<Config>) -> anyhow::Result<()> {
        if let Err(error) = self.take_up(reread).await {
            tracing::error!("cannot take up more shards, and goes on with those that run: {error:#}");
        }
        if !self.registered {
            return Ok(());
        }
        let view = self.agent.view();
        self.take_view(&view)
    }

    /// Prepares and registers more places.
    async fn take_up(&mut self, reread: &Reread<Config>) -> anyhow::Result<()> {
        if self.registered {
            // What could not be written down the last time.
            self.learn()?;
        }
        let again = reread()?;
        again.validate()?;
        // Of what else has changed in the file, the next start hears.
        let config = Config { shards: again.shards, init: again.init, ..self.config.clone() };
        if usize::from(config.shards) <= self.seats.len() {
            return Ok(());
        }
        anyhow::ensure!(self.registered, "mgmtd does not know this service yet");
        let seats = seat::prepare(&config, &self.seats)?;
        let all: Vec<&Seat> = self.seats.iter().chain(&seats).collect();
        let specs = seats.iter().map(Seat::spec).collect();
        self.agent.add_targets(specs, seat::reporter(&all)).await?;
        tracing::info!(shards = seats.len(), "takes up more shards");
        // mgmtd counts on them from here on: they stay, whatever else fails.
        self.config = config;
        self.seats.extend(seats);
        self.places.set(descriptors::for_connections(self.seats.iter().map(|seat| seat.open_files)));
        Ok(self.learn()?)
    }

    fn take_view(&mut self, view: &View) -> anyhow::Result<()> {
        if !self.registered {
            self.learn()?;
        }
        for index in 0..self.seats.len() {
            match &self.seats[index].thread {
                Some(thread) => thread.tell(view.clone()),
                None => self.start_shard(index, view)?,
            }
        }
        Ok(())
    }

    fn start_shard(&mut self, index: usize, view: &View) -> anyhow::Result<()> {
        let seat = &mut self.seats[index];
        // One that could not write down which target it is has to wait for the next SIGHUP.
        let Some(target) = seat.identity().target_id else { return Ok(()) };
        let Some(shard) = assigned_shard(&view.map, target) else {
            tracing::info!(%target, epoch = %view.map.epoch, "standing by: no shard is assigned to this target");
            return Ok(());
        };
        let Some((store, listener)) = seat.idle.take() else { return Ok(()) };
        let (config, home) = (&self.config, &seat.home);
        let setup = Setup {
            store,
            listener,
            identity: identity(&self.key, home.identity(), self.incarnation),
            limits: net::Limits {
                requests: CONNECTION_REQUESTS_MAX,
                interfaces: control::interfaces::selectors(&config.interfaces)?,
                places: self.places.clone(),
                ..net::Limits::default()
            },
            ring: ring::Config {
                cpu: config.cpu.map(|first| first + index),
                spin: config.spin.0,
                ..ring::Config::default()
            },
            place: home.place().clone(),
            target,
            shard,
            session_expiry: config.session_expiry.0,
            // Whoever is not heard of loses its leases before its session.
            lease_term: config.lease_term.0.min(config.session_expiry.0 / 2),
            sync_interval: config.sync_interval.0,
            refusing: Arc::clone(&seat.refusing),
            reserve_bytes: config.reserve.0,
            sharers: Arc::clone(&seat.sharers),
            bounds: namespace::shard::Limits {
                sessions: config.sessions_max,
                cached_inodes: config.hot_entries,
                cached_edges: config.hot_entries,
                split_above: config.split_above,
                split_rate: config.split_rate,
                ..namespace::shard::Limits::default()
            },
            metrics: self.metrics.clone(),
            view: view.clone(),
            fail_points: self.fail_points.clone(),
        };
        let events = self.events.clone();
        let ended = move || drop(events.send(Event::ShardEnded(index)));
        let (cluster, dir) = (home.identity().cluster.clone(), home.dir().display().to_string());
        seat.thread = Some(ShardThread::start(setup, ended)?);
        tracing::info!(%shard, %target, cluster, dir, "the metadata service is ready");
        Ok(())
    }

    /// What mgmtd has given goes into the identities.
    fn learn(&mut self) -> Result<(), Fatal> {
        // mgmtd sends the view with its answer, so the answer is there or about to be.
        let registered = self.agent.registered(Some(REGISTERED_PATIENCE))?;
        if registered.targets.len() != self.seats.len() {
            return Err(Fatal::failed("mgmtd has not registered all targets"));
        }
        for (seat, &target) in self.seats.iter_mut().zip(&registered.targets) {
            seat.learn(&registered.cluster, registered.node, target)?;
        }
        self.registered = true;
        Ok(())
    }

    fn shard_ended(&mut self, index: usize) -> anyhow::Result<()> {
        match self.seats.get_mut(index).and_then(|seat| seat.thread.take()) {
            Some(thread) => thread.join().and_then(|()| anyhow::bail!("a shard's thread has ended")),
            None => Ok(()),
        }
    }

    /// The shards first, while mgmtd still sees the node; the directories' locks last.
    fn stop(mut self) -> anyhow::Result<()> {
        tracing::info!("stopping");
        let threads = self.seats.iter_mut().filter_map(|seat| seat.thread.take()).collect();
        let stopped = ShardThread::stop_all(threads);
        drop(self.agent);
        stopped
    }
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

fn identity(key: &ClusterKey, home: &conf::identity::Identity, incarnation: u64) -> Identity {
    Identity {
        key: key.clone(),
        cluster: home.cluster.clone(),
        name: format!("metad {}", std::process::id()),
        incarnation,
        node: home.node_uuid.clone(),
    }
}
