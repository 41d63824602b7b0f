//! What a client process may choose.

use std::sync::Arc;
use std::time::Duration;

use net::pairs::Selector;
use telemetry::metrics::Metrics;
use types::time::AccessTimes;

/// Settings of the client core.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long an operation waits for a server that does not answer before it fails with `EIO`.
    pub retry_timeout: Duration,
    /// For people: host name and mount point.
    pub description: String,
    /// Where retries are counted.
    pub metrics: Option<Metrics>,
    /// Payloads for servers on this host go through memory that both map.
    pub share_memory: bool,
    /// Bytes of small files' contents that are kept in memory under leases, about.
    pub data_cache: usize,
    /// Bytes of writes that are kept back (`unwritten`), at most; 0: each write goes to the servers.
    pub write_back: usize,
    /// Payloads that go over a socket carry a checksum.
    pub checksums: bool,
    /// Services on this host are reached through UNIX sockets.
    pub local_sockets: bool,
    /// Interfaces to go out by, best first; none: all.
    pub interfaces: Arc<[Selector]>,
    /// Which accesses change access times.
    pub access_times: AccessTimes,
    /// Those of directories among them.
    pub directory_access_times: bool,
}

impl Config {
    /// By which rule listings change the access time of a directory.
    pub(crate) fn directory_rule(&self) -> AccessTimes {
        if self.directory_access_times { self.access_times } else { AccessTimes::Noatime }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            retry_timeout: Duration::from_secs(60),
            description: "client".into(),
            metrics: None,
            share_memory: true,
            data_cache: 64 << 20,
            write_back: 64 << 20,
            checksums: true,
            local_sockets: true,
            interfaces: Arc::default(),
            access_times: AccessTimes::default(),
            directory_access_times: true,
        }
    }
}
