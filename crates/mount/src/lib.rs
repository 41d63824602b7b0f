//! The mount: the FUSE front-end over the client core. It translates, and decides nothing but what a listing
//! tells beside names, and whether it need ask for its end ([`habits`]).

mod adapter;
pub mod config;
mod failed_writes;
mod habits;
mod keeper;
mod process;
mod recalls;
mod sent;
mod who;

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use client::{Client, Cluster};
use conf::Fatal;
use fuse::signals::{Signals, Waited};
use telemetry::metrics::Metrics;
use tracing::info;

use adapter::Adapter;
use config::Config;
use failed_writes::FailedWrites;
use habits::Habits;
use keeper::KernelCache;
use recalls::RecallThread;
use sent::Sent;

/// What others may want to know of a mount that has begun.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// UUID of the cluster.
    pub cluster: String,
    /// `host:port` of the metrics endpoint.
    pub metrics: String,
}

/// Mounts, tells `on_mounted`, and serves until the file system is unmounted or the process gets SIGTERM or SIGINT.
///
/// # Errors
/// What prevents the mount, with the exit code that belongs to it (see [`conf::exit_code`]).
pub fn run(config: Config, on_mounted: impl FnOnce(&Mounted) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // Before any thread exists, so that all of them have the signals blocked.
    let signals = Signals::block().context("cannot block signals")?;
    let log = telemetry::log::init(config.log_format, &config.log_level)
        .map_err(|error| Fatal::usage(format!("log_level: {error}")))?;
    let metrics = Metrics::new("mount");
    net::metrics::install(&metrics);
    let endpoint = telemetry::http::Server::start(config.metrics, metrics.clone(), log)
        .map_err(|error| Fatal::usage(format!("metrics: cannot listen on {}: {error}", config.metrics)))?;
    let client_config = client::config::Config {
        retry_timeout: *config.retry_timeout,
        description: format!("{}:{}", host_name(), config.mountpoint.display()),
        metrics: Some(metrics.clone()),
        share_memory: config.share_memory,
        local_sockets: config.local_sockets,
        checksums: config.checksums,
        interfaces: control::interfaces::usable(&config.interfaces)?,
        data_cache: usize::try_from(config.data_cache.0).unwrap_or(usize::MAX),
        write_back: usize::try_from(config.write_back.0).unwrap_or(usize::MAX),
        access_times: config.rule_of_accesses(),
        directory_access_times: config.directory_access_times,
    };
    let cluster = Cluster {
        management: config.mgmtd.clone(),
        key_file: config.key_file.clone(),
        patience: *config.start_timeout,
    };
    let connected = match signals.or_result_of(move || client::connect(&cluster, client_config)) {
        Ok(Waited::Done(connected)) => connected?,
        Ok(Waited::Signal(signal)) => return Err(ended_early(signal, &config.mgmtd).into()),
        Err(error) => return Err(Fatal::failed(format!("cannot start a thread: {error}")).into()),
    };
    let options = options(&config, metrics);
    let shared = Arc::clone(&connected.shared);
    let (notifier, arrivals) = (Arc::default(), Arc::new(OnceLock::new()));
    let keeper = Arc::new(KernelCache { notifier: Arc::clone(&notifier) });
    let hears_no_close = config.local_locks && config.write_back.0 == 0;
    let (kernel, set_later, habits) = (Arc::clone(&notifier), Arc::clone(&arrivals), Arc::new(Habits::new()));
    let failed_writes = Arc::<FailedWrites>::default();
    let factory = move |index| {
        let client = Client::new(Arc::clone(&shared));
        let (kernel, sent) = (Arc::clone(&kernel), Sent::new(index, Arc::clone(&set_later)));
        let (habits, failed_writes) = (Arc::clone(&habits), Arc::clone(&failed_writes));
        Adapter::new(client, shared.gate(), kernel, sent, habits, failed_writes, hears_no_close)
    };
    let mount = fuse::mount(&config.mountpoint, options, factory).map_err(|error| {
        let text = error.to_string();
        if error.is_passing() { Fatal::failed(text) } else { Fatal::usage(text) }
    })?;
    // Nobody gives this client leases before it listens for recalls.
    let _ = notifier.set(mount.notifier());
    let _ = arrivals.set(mount.arrivals());
    let recalls = if config.leases { Some(RecallThread::start(Arc::clone(&connected.shared), keeper)?) } else { None };
    let mounted = Mounted { cluster: connected.cluster(), metrics: endpoint.address().to_string() };
    let (mountpoint, fuse_channel) = (config.mountpoint.display(), mount.channel());
    info!(%mountpoint, cluster = mounted.cluster, metrics = mounted.metrics, %fuse_channel, "mounted");
    on_mounted(&mounted)?;
    let ended = mount.run_until(&signals);
    drop(recalls);
    ended.map_err(|error| Fatal::failed(error.to_string()))?;
    info!(mountpoint = %config.mountpoint.display(), "unmounted");
    Ok(())
}

/// How much longer than a server is waited for a request may take that nobody waits for any more.
const ORPHANS_WAIT_MORE: Duration = Duration::from_secs(10);

fn options(config: &Config, metrics: Metrics) -> fuse::Options {
    fuse::Options {
        orphans_wait: config.retry_timeout.saturating_add(ORPHANS_WAIT_MORE),
        source: format!("weft@{}", config.mgmtd),
        channel: config.fuse_channel,
        loops: config.loops,
        spin: *config.spin,
        allow_other: config.allow_other,
        read_only: config.read_only,
        allow_suid: config.allow_suid,
        allow_devices: config.allow_devices,
        allow_programs: !config.noexec,
        access_times: config.access_times,
        directory_access_times: config.directory_access_times,
        posix_acls: true,
        locks: !config.local_locks,
        metrics: Some(metrics),
        ..fuse::Options::default()
    }
}

fn ended_early(signal: u32, mgmtd: &str) -> Fatal {
    Fatal::failed(format!("ended by signal {signal} while it waited for the cluster of mgmtd at {mgmtd}"))
}

fn host_name() -> String {
    let mut name = String::new();
    let read = std::fs::File::open("/proc/sys/kernel/hostname").and_then(|mut file| file.read_to_string(&mut name));
    if read.is_err() { "unknown host".into() } else { name.trim_end().to_owned() }
}
