//! Start, run and ordered stop.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cluster::event::{Registration, Report, TargetRegistration};
use cluster::map::{Rail, ServiceKind};
use conf::identity::Home;
use conf::{Fatal, Reread};
use control::agent::OnUpdate;
use control::interfaces::{Watched, seen_at};
use control::{Agent, AgentConfig, Registered, Update, View};
use net::bench::Asker;
use net::places::{self, Places};
use net::{ClusterKey, Identity, Limits};
use ring::mailbox::Sender;
use telemetry::metrics::Metrics;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::absent::{Absent, Found, Search};
use crate::bench;
use crate::config::Config;
use crate::engine::LaneShare;
use crate::engine::files::{self, Options};
use crate::fault::Fault;
use crate::homes::{Homes, Late};
use crate::lane::{Lane, Order, Setup};
use crate::netbench::NetBench;
use crate::ports::{self, Listeners};
use crate::target::{self, Health, Target};
use crate::watch::{self, Watch};

/// Descriptors beside the cache of open files: sockets, rings, directories.
const DESCRIPTORS_BESIDE: usize = 8192;

/// Of an open file: it may have a second one, past the page cache, and one for its checksums.
const OF_OPEN_FILE: usize = 3;
/// Of a lane: its rings and listeners, and files that it opens in passing.
const OF_LANE: usize = 16;
/// Of the service: its targets' directories, mgmtd, metrics, threads that look after targets.
const OF_SERVICE: usize = 128;

/// Requests and bytes of one connection: more than any caller has under way, so that its questions whether we live and its
/// fences are read also while a disk answers nothing.
const CONNECTION_REQUESTS_MAX: usize = 1024;
const CONNECTION_BYTES_MAX: usize = 128 << 20;

/// Runs the service until SIGTERM or SIGINT. At SIGHUP it takes up the targets that `reread` has more than before.
///
/// # Errors
/// Where it cannot start (exit code 2 where the user must change something), mgmtd refuses it, or a lane fails.
pub fn run(config: Config, reread: Reread<Config>) -> anyhow::Result<()> {
    let log = telemetry::log::init(config.log_format, &config.log_level)
        .map_err(|error| Fatal::usage(format!("log_level: {error}")))?;
    config.validate()?;
    config.take_place()?;
    let metrics = Metrics::new("storaged");
    net::metrics::install(&metrics);
    let endpoint = match config.metrics_listen {
        Some(address) => Some(
            telemetry::http::Server::start(address, metrics.clone(), log)
                .map_err(|error| Fatal::usage(format!("metrics_listen: cannot listen on {address}: {error}")))?,
        ),
        None => None,
    };
    let metrics_address = endpoint.as_ref().map(telemetry::http::Server::address);
    let runtime = telemetry::runtime::current_thread()?;
    // A start that waits for disks or for mgmtd may take long. A SIGHUP waits until it is done, and those that stop end it at
    // once.
    let hangup = telemetry::runtime::hear(&runtime, SignalKind::hangup())?;
    let mut service = Service::start(config, metrics, metrics_address)?;
    let outcome = runtime.block_on(service.until_told(hangup, &reread));
    tracing::info!("stopping");
    let stopped = service.stop();
    outcome?;
    stopped?;
    Ok(())
}

/// A running storage node.
struct Service {
    config: Config,
    /// Of the lanes.
    ports: Vec<u16>,
    lanes: Vec<Lane>,
    targets: Vec<Arc<Target>>,
    net_bench: Arc<NetBench>,
    agent: Agent,
    fault: Fault,
    watch: Watch,
    /// Locked until the lanes have ended.
    homes: Homes,
    absent: Search,
}

impl Service {
    fn start(config: Config, metrics: Metrics, endpoint: Option<std::net::SocketAddr>) -> Result<Self, Fatal> {
        let key = ClusterKey::from_file(&config.key_file).map_err(|error| Fatal::usage(error.to_string()))?;
        let rails = control::interfaces::rails(config.listen, &config.interfaces, &config.mgmtd)?;
        let address = ports::address(config.listen, &rails);
        let lanes = config.lane_count();
        // A given port first: whoever gave a taken one finds untouched directories.
        let given = (config.port != 0).then(|| Listeners::fixed(address, config.port, lanes)).transpose()?;
        let (mut homes, mut absent) = Homes::open(&config)?;
        let listeners = given.map_or_else(|| Listeners::any(address, homes.ports(), lanes), Ok)?;
        let opening = Opening::of(&config);
        let now = telemetry::clock::now();
        let (targets, not_begun) =
            homes.begin(&listeners.ports, now, |home, incarnation| open_target(home, incarnation, opening))?;
        absent.extend(not_begun);
        let targets_max = targets.len() + absent.len();
        let absent = search(absent, &homes, opening);
        target::count_sharers(&targets);
        let identity = identity(&config, key, &homes);
        let news = AgentNews::default();
        let registration = registration(&config, &homes, &rails, &listeners.ports, identity.incarnation, endpoint);
        let agent = Agent::start_node(
            AgentConfig {
                management: config.mgmtd.clone(),
                identity: identity.clone(),
                rails: Some(Watched::new(config.listen, &config.interfaces, &config.mgmtd).with_metrics(endpoint)),
            },
            registration,
            reporter(targets.clone()),
            news.callback(),
        )
        .map_err(|error| cannot_start(&error))?;
        let registered = agent.registered(None)?;
        homes.learn(&registered.cluster, registered.node, &registered.targets)?;
        for (target, &id) in targets.iter().zip(&registered.targets) {
            target.set_id(id);
        }
        let watch = Watch::start(&targets, &metrics);
        let identity = Identity { cluster: registered.cluster.clone(), ..identity };
        let ports = listeners.ports.clone();
        let interfaces = control::interfaces::selectors(&config.interfaces)?;
        let net_bench = Arc::new(NetBench::new(Asker { identity: identity.clone(), interfaces }));
        let fault = news.fault.clone();
        let parts = LaneParts {
            targets: &targets,
            targets_max,
            identity: &identity,
            net_bench: &net_bench,
            metrics: &metrics,
            fault: &fault,
        };
        let lanes = start_lanes(&config, listeners, &parts).map_err(|error| cannot_start(&error))?;
        news.serve(lanes.iter().map(Lane::sender).collect(), &agent.view());
        welcome(&targets);
        tracing::info!(node = %registered.node, alias = registered.alias, ?ports, "the storage service is ready");
        Ok(Self { config, ports, lanes, targets, net_bench, agent, fault, watch, homes, absent })
    }

    /// Returns at a signal to stop.
    async fn until_told(&mut self, mut hangup: Signal, reread: &Reread<Config>) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let fault = self.fault.clone();
        let end = async {
            tokio::select! {
                _ = terminate.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
                fatal = fault.told() => Err(fatal.into()),
            }
        };
        tokio::pin!(end);
        loop {
            // Whatever waits for a disk, or for mgmtd, is left where it is told to end.
            tokio::select! {
                ended = &mut end => return ended,
                _ = hangup.recv() => tokio::select! {
                    ended = &mut end => return ended,
                    () = self.grow(reread) => {}
                },
                found = self.absent.next() => tokio::select! {
                    ended = &mut end => return ended,
                    () = self.take_back(found) => {}
                },
                () = self.watch.catch_up() => {}
            }
        }
    }

    /// Takes up the targets that the configuration has by now. What stands in their way is logged and no reason to end:
    /// those that are served stay so, and the next SIGHUP tries again.
    async fn grow(&mut self, reread: &Reread<Config>) {
        // What could not be written down the last time.
        self.write_down();
        match self.register_more(reread).await {
            Ok(Some(more)) => self.serve_more(more),
            Ok(None) => {}
            Err(error) => {
                tracing::error!("cannot take up more targets, and goes on with those that it has: {error:#}");
            }
        }
    }

    /// Serves a target that could not be opened before, or goes on looking for it where that cannot be done yet.
    async fn take_back(&mut self, found: Found) {
        let Found { home, target, mut was } = found;
        match self.register(vec![home], vec![target]).await {
            Ok(more) => self.serve_more(more),
            Err(reason) => {
                was.note(reason);
                self.absent.go_on(was);
            }
        }
    }

    /// Locks and registers what is new. While its disk is waited for, other targets are served, and a stop is heard; what else
    /// is to be taken up waits for it. Dropping it before it is registered leaves all as it was.
    async fn register_more(&self, reread: &Reread<Config>) -> anyhow::Result<Option<More>> {
        let again = reread()?;
        again.validate()?;
        let dirs = self.homes.new_of(&again, |dir| self.absent.has(dir));
        if dirs.is_empty() {
            return Ok(None);
        }
        let (late, opening) = (self.homes.late(), Opening::of(&self.config));
        let (homes, targets) = apart(move || open_new(&late, &dirs, again.init, opening)).await??;
        Ok(Some(self.register(homes, targets).await?))
    }

    async fn register(&self, homes: Vec<Home>, targets: Vec<Arc<Target>>) -> Result<More, Fatal> {
        self.homes.refuse_copies(&homes)?;
        let all: Vec<Arc<Target>> = self.targets.iter().chain(&targets).cloned().collect();
        let specs = homes.iter().map(|home| target_registration(home, &self.ports)).collect();
        let registered = self.agent.add_targets(specs, reporter(all)).await?;
        Ok(More { homes, targets, registered })
    }

    /// From here on the lanes serve these as well.
    fn serve_more(&mut self, more: More) {
        let More { homes, targets, registered } = more;
        for (target, &id) in targets.iter().zip(registered.targets.get(self.targets.len()..).unwrap_or_default()) {
            target.set_id(id);
        }
        self.homes.extend(homes);
        self.write_down();
        self.targets.extend_from_slice(&targets);
        target::count_sharers(&self.targets);
        self.watch.extend(&targets);
        self.lanes.iter().for_each(|lane| targets.iter().for_each(|target| lane.take(target)));
        // Of after that: a lane that has just been told of a newer one, without these, would pass an older one over.
        let view = self.agent.view();
        self.lanes.iter().for_each(|lane| lane.tell_map(&view.map));
        welcome(&targets);
    }

    /// Where that fails, mgmtd will know the targets by their UUIDs all the same.
    fn write_down(&mut self) {
        let written = self
            .agent
            .registered(Some(Duration::ZERO))
            .and_then(|known| self.homes.learn(&known.cluster, known.node, &known.targets));
        if let Err(error) = written {
            tracing::warn!(
                "the identity of a target is not written down yet, which the next SIGHUP tries again: {error}"
            );
        }
    }

    /// Lanes first, while the node still counts as alive; then mgmtd sees it go.
    fn stop(self) -> Result<(), Fatal> {
        self.net_bench.stop(0);
        bench::end_all(self.targets.iter().map(|target| &target.bench));
        let stopped = Lane::stop_all(self.lanes);
        target::end_all(self.targets);
        drop(self.agent);
        stopped.map_err(|error| Fatal::failed(format!("a lane failed: {error}")))
    }
}

/// Targets that a running node has registered, and does not serve yet.
struct More {
    homes: Vec<Home>,
    targets: Vec<Arc<Target>>,
    registered: Registered,
}

/// What the agent has told: the map goes to the lanes as soon as there are any.
#[derive(Default)]
struct AgentNews {
    lanes: Arc<Mutex<Vec<Sender<Order>>>>,
    fault: Fault,
}

impl AgentNews {
    fn callback(&self) -> OnUpdate {
        let (lanes, fault) = (Arc::clone(&self.lanes), self.fault.clone());
        Box::new(move |update| match update {
            Update::View(view) => tell(&lanes.lock().unwrap_or_else(PoisonError::into_inner), &view),
            Update::Refused(fatal) => fault.tell(fatal),
        })
    }

    /// From here on `lanes` hear of every map; an older one after a newer one they pass over.
    fn serve(&self, lanes: Vec<Sender<Order>>, view: &View) {
        let mut known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        *known = lanes;
        tell(&known, view);
    }
}

fn tell(lanes: &[Sender<Order>], view: &View) {
    for lane in lanes {
        lane.send(Order::Map(Arc::clone(&view.map)));
    }
}

/// What of the configuration each target is opened with.
#[derive(Clone, Copy)]
struct Opening {
    /// Bytes that are kept free.
    reserve: u64,
    checksums: bool,
}

impl Opening {
    fn of(config: &Config) -> Self {
        Self { reserve: config.reserve.0, checksums: config.checksums }
    }
}

/// Begins a target for this `incarnation`, and looks whether the lanes will be able to open it.
fn open_target(home: &Home, incarnation: u64, opening: Opening) -> Result<Arc<Target>, Fatal> {
    let target = Target::new(home.dir().to_path_buf(), opening.reserve);
    target.set_place(home.place().clone());
    if let Some(id) = home.identity().target_id {
        target.set_id(id);
    }
    target.begin(incarnation)?;
    files::prepare_folders(&target.path, opening.checksums)
        .map_err(|error| Fatal::unusable(format!("{} cannot be used: {error}", target.path.display()), &error))?;
    target.probe(&watch::identity_file(&target));
    Ok(Arc::new(target))
}

fn open_new(
    late: &Late,
    dirs: &[PathBuf],
    init: bool,
    opening: Opening,
) -> Result<(Vec<Home>, Vec<Arc<Target>>), Fatal> {
    let opened = late.open_all(dirs, init)?;
    let open = |(home, incarnation): &(Home, u64)| open_target(home, *incarnation, opening);
    let targets = opened.iter().map(open).collect::<Result<_, Fatal>>()?;
    Ok((opened.into_iter().map(|(home, _)| home).collect(), targets))
}

/// Runs `call`, which a disk may hold up for ever, in a thread of its own. Who waits no more leaves it behind: what it
/// opens is closed again, or ends with the service.
///
/// # Errors
/// Where a thread cannot be made, or has panicked.
async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, outcome) = oneshot::channel();
    thread::Builder::new().name("grow".into()).spawn(move || {
        // Where nobody listens any more, the locks go with it.
        let _ = sender.send(call());
    })?;
    outcome.await.map_err(|_| io::Error::other("the thread that opens targets has panicked"))
}

fn search(absent: Vec<Absent>, homes: &Homes, opening: Opening) -> Search {
    let late = homes.late();
    let open = move |dir: &Path| {
        // An empty directory in its place is where its disk is to be mounted.
        let (home, incarnation) = late.open(dir, false)?;
        let target = open_target(&home, incarnation, opening)?;
        Ok((home, target))
    };
    Search::start(absent, Arc::new(open))
}

/// With an incarnation of this process, by which mgmtd and clients tell it from others: not the count of starts, from which
/// versions are made, since whoever runs on a copy of the directories has that as well.
fn identity(config: &Config, key: ClusterKey, homes: &Homes) -> Identity {
    Identity {
        key,
        cluster: homes.cluster().to_owned(),
        name: name(config),
        incarnation: telemetry::clock::now_ns(),
        node: homes.node().to_owned(),
    }
}

fn registration(
    config: &Config,
    homes: &Homes,
    rails: &[Rail],
    ports: &[u16],
    incarnation: u64,
    endpoint: Option<std::net::SocketAddr>,
) -> Registration {
    Registration {
        cluster: homes.cluster().to_owned(),
        uuid: homes.node().to_owned(),
        kind: ServiceKind::Storage,
        id: homes.iter().find_map(|home| home.identity().node_id),
        alias: config.alias.clone(),
        incarnation,
        rails: rails.to_vec(),
        metrics: endpoint.map(|address| seen_at(address, rails).to_string()).unwrap_or_default(),
        targets: homes.iter().map(|home| target_registration(home, ports)).collect(),
    }
}

fn target_registration(home: &Home, ports: &[u16]) -> TargetRegistration {
    TargetRegistration {
        uuid: home.identity().target_uuid.clone().unwrap_or_default(),
        id: home.identity().target_id,
        path: home.dir().display().to_string(),
        ports: ports.to_vec(),
        report: Report::default(),
    }
}

/// What the heartbeats say, from what the watching threads have seen: never waits for a disk.
fn reporter(targets: Vec<Arc<Target>>) -> control::node::Reporter {
    Box::new(move || targets.iter().map(|target| report(target, Instant::now())).collect())
}

fn report(target: &Target, now: Instant) -> Report {
    let failing = target.health() != Health::Good || target.hangs(now);
    Report { capacity: target.capacity(), failing, empty: target.is_empty() }
}

/// What all lanes of a node have in common, beside the configuration.
struct LaneParts<'a> {
    targets: &'a [Arc<Target>],
    /// Those counted that were absent at the start and are searched for.
    targets_max: usize,
    identity: &'a Identity,
    net_bench: &'a Arc<NetBench>,
    metrics: &'a Metrics,
    fault: &'a Fault,
}

/// A lane for each socket.
///
/// # Errors
/// Where the limit of open descriptors cannot be asked for, or a lane cannot be made.
fn start_lanes(config: &Config, listeners: Listeners, parts: &LaneParts<'_>) -> io::Result<Vec<Lane>> {
    let lanes = listeners.sockets.len();
    let wanted_files = config.open_files as usize;
    let allowed = places::raise_descriptors(OF_OPEN_FILE * wanted_files + DESCRIPTORS_BESIDE)?;
    let open_files = open_files(allowed, wanted_files);
    // What is more is refused: where a socket took the last one, programs would be told of it.
    let places = Places::new(places::for_connections(allowed, own_descriptors(open_files, lanes)));
    let engine = Options {
        open_files_max: open_files / lanes,
        write_in_place_max: usize::try_from(config.write_in_place.0).unwrap_or(usize::MAX),
        direct_min: if config.direct.0 == 0 { u64::MAX } else { config.direct.0 },
        checksums: config.checksums,
    };
    let start = |(lane, listener)| {
        Lane::start(Setup {
            share: LaneShare { lane, lanes },
            listener,
            targets: parts.targets.to_vec(),
            targets_max: parts.targets_max,
            identity: parts.identity.clone(),
            limits: Limits {
                requests: CONNECTION_REQUESTS_MAX,
                bytes: CONNECTION_BYTES_MAX,
                payload_sums: config.checksums,
                places: places.clone(),
                ..Limits::default()
            },
            ring: ring::Config { cpu: config.cpus.get(lane).copied(), spin: *config.spin, ..ring::Config::default() },
            engine,
            queue_depth: config.queue_depth as usize,
            read_memory_max: usize::try_from(config.read_memory.0).unwrap_or(usize::MAX),
            read_ahead_max: usize::try_from(config.read_ahead.0).unwrap_or(usize::MAX),
            metrics: parts.metrics.clone(),
            net_bench: Arc::clone(parts.net_bench),
            fault: parts.fault.clone(),
        })
    };
    listeners.sockets.into_iter().enumerate().map(start).collect()
}

/// How many files the lanes together keep open with the `allowed` descriptors.
fn open_files(allowed: usize, wanted: usize) -> usize {
    wanted.min(allowed.saturating_sub(DESCRIPTORS_BESIDE).max(allowed / 2) / OF_OPEN_FILE)
}

/// Descriptors that a service needs beside those of its connections.
fn own_descriptors(open_files: usize, lanes: usize) -> usize {
    OF_OPEN_FILE * open_files + OF_LANE * lanes + OF_SERVICE
}

fn welcome(targets: &[Arc<Target>]) {
    for target in targets {
        target.bench.clean_leftovers(&target.path);
        tracing::info!(target = %target.id(), path = %target.path.display(), "serves");
    }
}

fn name(config: &Config) -> String {
    if config.alias.is_empty() { "storaged".to_owned() } else { format!("storaged {}", config.alias) }
}

fn cannot_start(error: &io::Error) -> Fatal {
    Fatal::failed(format!("the storage service cannot start: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;

    use types::time::Timestamp;

    use super::*;
    use crate::silence::tests::{LONG, make_pipe};

    #[test]
    fn a_process_over_a_copy_of_the_directories_is_another_one() {
        let root = tempfile::tempdir().expect("a directory");
        let [one, other] = ["one", "other"].map(|name| root.path().join(name));
        let config = |target: &Path| -> Config {
            let mut flags = conf::Flags::<Config>::default();
            for (key, value) in
                [("key_file", "/k"), ("init", "true"), ("targets", target.to_str().expect("plain path"))]
            {
                flags.give(key, value);
            }
            conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }.load().expect("valid")
        };
        let (config, copy) = (config(&one), config(&other));
        drop(Homes::open(&config).expect("made"));
        fs::create_dir(&other).expect("made");
        for file in fs::read_dir(&one).expect("there").map(|file| file.expect("read").path()) {
            fs::copy(&file, other.join(file.file_name().expect("a file"))).expect("copied");
        }
        let registered = |config: &Config| {
            let (mut homes, _) = Homes::open(config).expect("opened");
            let (counts, _) = homes.begin(&[7001], Timestamp(0), |_, count| Ok(count)).expect("begun");
            let identity = identity(config, ClusterKey::from_bytes([7; 32]), &homes);
            (counts, registration(config, &homes, &[], &[7001], identity.incarnation, None))
        };
        let ((count, one), (same, other)) = (registered(&config), registered(&copy));
        assert_eq!((&one.uuid, count), (&other.uuid, same), "a copy");
        assert_ne!(one.incarnation, other.incarnation);
    }

    #[test]
    fn files_and_connections_have_no_more_descriptors_than_there_are() {
        let share = |allowed, lanes| {
            let open_files = open_files(allowed, 16_384);
            (open_files, places::for_connections(allowed, own_descriptors(open_files, lanes)))
        };
        for (allowed, lanes) in [(1024, 1), (1024, 4), (1024, 16), (4096, 8), (1 << 16, 8), (1 << 18, 16)] {
            let (open_files, connections) = share(allowed, lanes);
            assert!(OF_OPEN_FILE * open_files + connections + OF_LANE * lanes <= allowed, "{allowed}, {lanes}");
            assert!(open_files >= 170 && connections >= allowed / 8);
        }
        assert_eq!(share(1 << 18, 8), (16_384, 212_736));
    }

    #[test]
    fn who_is_told_to_end_does_not_wait_for_a_disk_that_hangs() {
        let (thaw, hangs) = std::sync::mpsc::channel::<()>();
        let runtime = telemetry::runtime::current_thread().expect("a runtime");
        let opened = runtime.block_on(async {
            tokio::select! {
                opened = apart(move || hangs.recv()) => Some(opened),
                () = tokio::time::sleep(Duration::from_millis(10)) => None,
            }
        });
        drop(runtime);
        assert!(opened.is_none());
        thaw.send(()).expect("it hangs still");
        let runtime = telemetry::runtime::current_thread().expect("a runtime");
        assert_eq!(runtime.block_on(apart(|| 5)).expect("run"), 5);
    }

    #[test]
    fn an_ill_target_is_reported_as_failing() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = Target::new(dir.path().to_path_buf(), 0);
        target.probe(dir.path());
        let report = || report(&target, Instant::now());
        assert!(!report().failing && report().capacity.total_bytes > 0);
        target.note_error(types::error::Errno::EROFS, "write");
        assert!(report().failing);
    }

    #[test]
    fn a_target_whose_disk_hangs_is_reported_as_failing() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        make_pipe(&pipe);
        // Whoever reads there waits for a writer.
        let open = |access| std::fs::File::options().read(true).custom_flags(access).open(&pipe);
        let reader = open(libc::O_NONBLOCK).expect("nobody is waited for");
        let target = Target::new(dir.path().to_path_buf(), 0);
        let is_failing = |after| report(&target, Instant::now() + after).failing;
        target.look(&pipe);
        assert!(!is_failing(LONG), "it has nothing to do");
        target.pulse.begins(Instant::now());
        thread::sleep(Duration::from_millis(200));
        thread::scope(|scope| {
            let looking = scope.spawn(|| target.look(&pipe));
            while !is_failing(LONG) {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!is_failing(Duration::ZERO) && !looking.is_finished(), "not yet");
            while !looking.is_finished() {
                drop(std::fs::File::options().write(true).open(&pipe));
                thread::sleep(Duration::from_millis(1));
            }
        });
        drop(reader);
        assert!(!is_failing(LONG));
    }
}
