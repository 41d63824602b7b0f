//! Start, run and ordered stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::membership::{Membership, Rules};
use conf::Fatal;
use conf::identity::{Expect, Home, Service, new_uuid};
use kv::rocks::{NOTE_FILE, RocksConfig, RocksKv};
use kv::{Kv, KvError};
use net::ClusterKey;
use telemetry::metrics::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::grpc::ManagementService;
use crate::metrics::MgmtMetrics;
use crate::owner::{Clock, Command, Owner, Published, Pulse, Running};
use crate::store::Store;

/// Name of the store inside the service's directory.
const STORE_DIR: &str = "store";
/// How long open requests may take when it stops.
const STOP_MAX: Duration = Duration::from_secs(2);
/// The port of a process that was killed stays bound for some milliseconds.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// Where it cannot start (exit code 2 where the user must change something) or its store fails.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let log = telemetry::log::init(config.log_format, &config.log_level)
        .map_err(|error| Fatal::usage(format!("log_level: {error}")))?;
    let metrics = Metrics::new("mgmtd");
    net::metrics::install(&metrics);
    let mut server = Server::start(config, &metrics)?;
    let _endpoint = match config.metrics_listen {
        Some(address) => Some(
            telemetry::http::Server::start(address, metrics, log).map_err(|error| cannot_listen(address, &error))?,
        ),
        None => None,
    };
    let runtime = telemetry::runtime::current_thread()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = server.failed() => {}
        }
        anyhow::Ok(())
    })?;
    tracing::info!("stopping");
    server.stop()?;
    Ok(())
}

/// A running management service. [`Server::stop`] ends it in order; dropping it stops it, too.
pub struct Server {
    address: SocketAddr,
    cluster: String,
    /// True: stop.
    stop: watch::Sender<bool>,
    failed: watch::Receiver<bool>,
    front: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
    owner: Option<Running>,
    _home: Home,
}

impl Server {
    /// Opens the directory, restores the cluster or makes a new one, and listens.
    ///
    /// # Errors
    /// One line for each way in which it cannot start; exit code 2 where the user must change something. Nothing has changed.
    pub fn start(config: &Config, metrics: &Metrics) -> Result<Self, Fatal> {
        let rules = config.rules()?;
        let key = ClusterKey::from_file(&config.key_file).map_err(|error| Fatal::usage(error.to_string()))?;
        // The port first: whoever gave a taken one finds an untouched directory.
        let listener = bind(config.listen).map_err(|error| cannot_listen(config.listen, &error))?;
        let expect = Expect {
            dir: &config.dir,
            service: Service::Management,
            cluster: None,
            node_uuid: None,
            target: false,
            init: config.init,
        };
        let mut home = Home::open(&expect)?;
        let clock = Clock::start();
        let (membership, store) = open_store(&mut home, rules, clock)?;
        Self::serve(home, membership, store, clock, listener, key, metrics)
            .map_err(|error| Fatal::failed(format!("the management service cannot start: {error}")))
    }

    fn serve<K: Kv + Send + 'static>(
        home: Home,
        membership: Membership,
        store: Store<K>,
        clock: Clock,
        listener: std::net::TcpListener,
        key: ClusterKey,
        metrics: &Metrics,
    ) -> std::io::Result<Self>
    where
        K::Batch: Send,
    {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (rules, cluster) = (*membership.rules(), membership.map().cluster.clone());
        let metrics = MgmtMetrics::new(metrics);
        let (failed_sender, failed) = watch::channel(false);
        // Fails only when the server is gone, too.
        let ended = move || _ = failed_sender.send(true);
        let (commands, published, owner) = Owner::start(membership, store, clock, metrics.clone(), ended)?;
        let Published { views, history, pulse } = published;
        let node = home.identity().node_uuid.clone();
        let identity =
            net::Identity { key, cluster: cluster.clone(), name: "mgmtd".to_owned(), incarnation: uuid_word(), node };
        let (stop, stopped) = watch::channel(false);
        let service = ManagementService::new(rules, commands, views, history, stopped.clone(), metrics);
        let beats = beats(pulse, clock, Duration::from_millis((rules.heartbeat_ms() / 8).clamp(5, 100)));
        let front = telemetry::runtime::spawn("grpc", move || async move {
            // Behind all that waits: beside the front, as one of its own, it would be asked before that.
            let beats = tokio::spawn(beats);
            let result = front(listener, identity, service, stopped).await;
            beats.abort();
            result
        })?;
        tracing::info!(%address, cluster, dir = %home.dir().display(), "the management service is ready");
        Ok(Self { address, cluster, stop, failed, front: Some(front), owner: Some(owner), _home: home })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// UUID of its cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns when the service has ended by itself; [`Server::stop`] says why.
    async fn failed(&mut self) {
        // An error means that the owner's thread is gone without a word: it has panicked.
        let _ = self.failed.wait_for(|failed| *failed).await;
    }

    /// Answers what is open, ends the subscriptions and closes the store.
    ///
    /// # Errors
    /// Where the store has failed.
    pub fn stop(mut self) -> Result<(), Fatal> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Fatal> {
        self.stop.send_replace(true);
        let broken = |what: &str| Fatal::failed(format!("the management service's {what} has failed"));
        if let Some(front) = self.front.take() {
            let result = front.join().map_err(|_| broken("gRPC thread"))?;
            result.map_err(|error| Fatal::failed(format!("gRPC has failed: {error}")))?;
        }
        if let Some(owner) = self.owner.take() {
            let result = owner.join().map_err(|_| broken("state thread"))?;
            result.map_err(|error| Fatal::failed(error.to_string()))?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the management service did not stop in order");
        }
    }
}

/// Shows that the thread comes to what waits for it.
async fn beats(pulse: Pulse, clock: Clock, every: Duration) {
    let mut beats = tokio::time::interval(every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        pulse.beat(clock.now());
    }
}

async fn front(
    listener: std::net::TcpListener,
    identity: net::Identity,
    service: ManagementService,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the thread has a tokio runtime");
    let incoming = control::server::incoming(listener, identity);
    let mut stopping = stopped.clone();
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .serve_with_incoming_shutdown(control::server::service(service), incoming, async move {
            drop(stopped.wait_for(|stop| *stop).await)
        });
    tokio::select! {
        result = serving => result,
        // Clients that keep a connection open do not keep the service from stopping.
        () = async {
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(STOP_MAX).await;
        } => Ok(()),
    }
}

/// The restored cluster, or a new one where both identity and store are new.
fn open_store(home: &mut Home, rules: Rules, clock: Clock) -> Result<(Membership, Store<RocksKv>), Fatal> {
    let path = home.dir().join(STORE_DIR);
    let known = home.identity().cluster.clone();
    // Looked at before it is opened, since RocksDB makes the directory even where it may not make the database.
    if !known.is_empty() && is_missing_or_empty(&path) {
        return Err(store_lost(&path, &known));
    }
    let config = RocksConfig { create: known.is_empty(), ..RocksConfig::small() };
    let kv = RocksKv::open(&path, &config).map_err(|error| store_error(&path, &error))?;
    let mut store = Store::new(kv);
    let records = store.records().map_err(|error| store_error(&path, &error))?;
    let restored = Membership::restore(records, rules, clock.now()).map_err(|error| Fatal::usage(error.to_string()))?;
    let membership = match restored {
        Some(mut membership) => {
            membership.begin_sessions_at(first_session());
            membership
        }
        None if known.is_empty() => {
            let (membership, effects) = Membership::create(&new_uuid(), rules, clock.now());
            store.add(effects.records);
            store.save().map_err(|error| store_error(&path, &error))?;
            membership
        }
        None => return Err(store_lost(&path, &known)),
    };
    let cluster = &membership.map().cluster;
    if known.is_empty() {
        home.update(|identity| identity.cluster.clone_from(cluster))
            .map_err(|error| Fatal::unusable(format!("{} cannot be written: {error}", home.dir().display()), &error))?;
    } else if known != *cluster {
        let (dir, path) = (home.dir().display(), path.display());
        return Err(Fatal::usage(format!("{dir} belongs to cluster {known}, but {path} holds cluster {cluster}")));
    }
    Ok((membership, store))
}

/// Above the sessions of all earlier starts, also where the store has lost them: by the second, with a million for each.
fn first_session() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1 << 20)
}

fn is_missing_or_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

/// A disk that is full or fails may be better later; all else the user must change.
fn store_error(path: &Path, error: &KvError) -> Fatal {
    let path = path.display();
    match error {
        KvError::Locked(_) | KvError::Corrupt(_) | KvError::Denied(_) => Fatal::usage(format!("{path}: {error}")),
        KvError::NoSpace(_) => Fatal::failed(format!("{path}: {error}; make room on its disk")),
        KvError::Lost(_) => Fatal::usage(format!(
            "{path}: {error}; restore it from a backup, or remove {path}/{NOTE_FILE} to go on without them: services and targets \
             that were registered in them are refused then, and what is on them is out of reach"
        )),
        KvError::Io(_) => Fatal::failed(format!("{path}: {error}")),
    }
}

fn store_lost(path: &Path, cluster: &str) -> Fatal {
    Fatal::usage(format!("{} is gone, which held cluster {cluster}: restore it from a backup", path.display()))
}

fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match std::net::TcpListener::bind(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Fatal {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "is in use: stop the service that has it, or choose another port",
        _ => return Fatal::usage(format!("cannot listen on {address}: {error}")),
    };
    Fatal::usage(format!("{address} {remedy}"))
}

/// A number that no earlier start had.
fn uuid_word() -> u64 {
    let uuid = new_uuid();
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Where handlers send what the owner shall decide.
pub(crate) type Commands = SyncSender<Command>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        let code = |error: fn(String) -> KvError| store_error(Path::new("store"), &error("why".to_owned())).code;
        assert_eq!([KvError::NoSpace, KvError::Io].map(code), [conf::fatal::FAILED; 2]);
        let lasting: [fn(String) -> KvError; 4] = [KvError::Corrupt, KvError::Lost, KvError::Locked, KvError::Denied];
        assert_eq!(lasting.map(code), [conf::fatal::USAGE; 4]);
    }
}
