//! Settings of the management service.

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster::capacity::{Limit, Limits};
use cluster::membership::Rules;
use conf::Fatal;
use conf::units::{Period, Size};
use telemetry::log::LogFormat;

conf::knobs! {
    /// The management service: one per cluster. It keeps the cluster map: which nodes and targets there are, and how
    /// they are.
    pub struct Config for "mgmtd" {
        /// Directory of its own, on a local disk; a few MiB. Losing it means losing the cluster map.
        dir: PathBuf,
        /// Make `dir` and a new cluster where there is none yet. Without it, a missing or empty directory is an error,
        /// since that is what a disk that is not mounted looks like.
        init: bool = "false",
        /// File with the cluster key: 64 hexadecimal digits, readable by its owner alone. The same on all hosts.
        key_file: PathBuf,
        /// Address and port for services, clients and administrators. 0.0.0.0 takes all interfaces.
        listen: SocketAddr = "127.0.0.1:9400",
        /// Address and port for metrics (Prometheus) and the log level, by HTTP. Not protected by the cluster key.
        metrics_listen: Option<SocketAddr>,
        /// A node is offline when it has not been heard of for so long, and probably offline after half of it. Nodes
        /// send five heartbeats in this time.
        offline_after: Period = "10s",
        /// A storage target with less free space is low: new files avoid it. On small disks storage_low_percent counts.
        storage_low: Size = "64GiB",
        /// The limit of storage_low in percent of the target; the smaller limit counts. Also for free inodes.
        storage_low_percent: u8 = "10",
        /// A storage target with less free space is nearly full: new files use it only where nothing else is left.
        storage_emergency: Size = "4GiB",
        storage_emergency_percent: u8 = "2",
        /// The same for metadata targets.
        metadata_low: Size = "16GiB",
        metadata_low_percent: u8 = "10",
        metadata_emergency: Size = "2GiB",
        metadata_emergency_percent: u8 = "2",
        /// What is logged: off, error, warn, info, debug or trace, or levels by crate such as mgmtd=debug,net=trace.
        log_level: String = "info",
        /// text, or json: one object per line.
        log_format: LogFormat = "text",
    }
}

impl Config {
    /// What the state machine goes by.
    ///
    /// # Errors
    /// Where limits contradict each other.
    pub fn rules(&self) -> Result<Rules, Fatal> {
        if self.offline_after.as_ms() < 100 {
            return Err(Fatal::usage("offline_after: must be at least 100ms"));
        }
        let storage = limits(
            "storage",
            (self.storage_low, self.storage_low_percent),
            (self.storage_emergency, self.storage_emergency_percent),
        )?;
        let metadata = limits(
            "metadata",
            (self.metadata_low, self.metadata_low_percent),
            (self.metadata_emergency, self.metadata_emergency_percent),
        )?;
        Ok(Rules { offline_after_ms: self.offline_after.as_ms(), storage, metadata })
    }
}

fn limits(kind: &str, low: (Size, u8), emergency: (Size, u8)) -> Result<Limits, Fatal> {
    if low.1 > 100 || emergency.1 > 100 {
        return Err(Fatal::usage(format!("{kind}_low_percent, {kind}_emergency_percent: must be 0 to 100")));
    }
    if emergency.0 > low.0 || emergency.1 > low.1 {
        return Err(Fatal::usage(format!("{kind}_emergency: must not be above {kind}_low")));
    }
    let limit = |(bytes, percent): (Size, u8)| Limit { bytes: bytes.0, percent };
    Ok(Limits { low: limit(low), emergency: limit(emergency), ..Limits::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: &[(&'static str, &str)]) -> Config {
        let mut flags = conf::Flags::<Config>::default();
        flags.give("dir", "/d");
        flags.give("key_file", "/k");
        for (key, value) in set {
            flags.give(key, value);
        }
        conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }.load().expect("valid")
    }

    #[test]
    fn defaults_are_valid_and_contradictions_are_not() {
        let rules = config(&[]).rules().expect("valid");
        assert_eq!((rules.offline_after_ms, rules.heartbeat_ms()), (10_000, 2_000));
        for bad in [("storage_low", "1GiB"), ("metadata_emergency_percent", "50"), ("storage_low_percent", "101")] {
            assert_eq!(config(&[bad]).rules().unwrap_err().code, 2, "{bad:?}");
        }
        assert!(config(&[("offline_after", "1ms")]).rules().is_err());
    }

    #[test]
    fn the_template_documents_every_key() {
        let text = conf::template::<Config>(&[]);
        for key in ["dir", "init", "key_file", "listen", "offline_after", "log_level", "metadata_emergency_percent"] {
            assert!(text.contains(&format!("\n#{key} =")), "no {key} in\n{text}");
        }
    }
}
