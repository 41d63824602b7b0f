//! What one mount may choose.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::metrics::Metrics;
use types::time::AccessTimes;

/// How requests come from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Over io_uring where the kernel offers it, otherwise over `/dev/fuse`.
    #[default]
    Auto,
    /// Over `/dev/fuse`: two system calls a request, and often a wake-up on another CPU; the kernel copies data straight from
    /// and to our buffers.
    Dev,
    /// Over io_uring, on the CPU of the caller, with one more copy of data. Linux 6.14 with `fuse.enable_uring`.
    Uring,
}

impl Channel {
    const NAMES: [(Self, &str); 3] = [(Self::Auto, "auto"), (Self::Dev, "dev"), (Self::Uring, "uring")];
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(channel, _)| channel == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Channel {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(channel, _)| *channel).ok_or_else(|| format!("{text:?} is none of auto, dev and uring"))
    }
}

/// Options of a mount. The defaults are what `weft mount` uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `df` and `mount` show as the device, such as the cluster's name. No commas.
    pub source: String,
    /// Other users than the mounting one may enter.
    pub allow_other: bool,
    pub read_only: bool,
    /// Set-user-id bits mean something. Only for root.
    pub allow_suid: bool,
    /// Device nodes mean something. Only for root.
    pub allow_devices: bool,
    /// Programs that lie there can be run.
    pub allow_programs: bool,
    /// Which accesses change access times. The file system's matter; the mount table shows it, and the kernel asks for a
    /// symlink's target each time where each access counts.
    pub access_times: AccessTimes,
    /// Those of directories among them. Shown as well.
    pub directory_access_times: bool,
    /// How requests come from the kernel.
    pub channel: Channel,
    /// Threads that serve requests; 0: one per CPU that this process may use.
    pub loops: usize,
    /// Bind each of them to a CPU.
    pub pin: bool,
    /// How long an idle loop looks for work before it sleeps, where experience shows that it pays. Zero: never.
    pub spin: Duration,
    /// Requests in flight in one loop, at most; further ones wait in the kernel. `None`: 256, and over io_uring at least 16 in
    /// each of the kernel's queues.
    pub requests_max: Option<usize>,
    /// The kernel obeys access ACLs, which it reads and sets as extended attributes.
    pub posix_acls: bool,
    /// Locks go to the file system. Otherwise the kernel keeps them, and they hold within this mount.
    pub locks: bool,
    /// Unmounting waits this long for files to be closed; then the mount is detached.
    pub busy_wait: Duration,
    /// After detaching, requests in flight get this long; and so does the file system's own shutdown.
    pub drain_wait: Duration,
    /// After the kernel's side of the connection is gone, requests in flight get this long. Nobody waits for their answers any
    /// more, but some have data under way: longer than the file system itself waits for its servers.
    pub orphans_wait: Duration,
    /// Mount through `fusermount3` even as root.
    pub use_helper: bool,
    /// Where the latencies of operations are counted.
    pub metrics: Option<Metrics>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            source: "weft".into(),
            allow_other: true,
            read_only: false,
            allow_suid: false,
            allow_devices: false,
            allow_programs: true,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            channel: Channel::Auto,
            loops: 0,
            pin: true,
            spin: Duration::from_micros(100),
            requests_max: None,
            posix_acls: false,
            locks: false,
            busy_wait: Duration::from_secs(2),
            drain_wait: Duration::from_secs(10),
            orphans_wait: Duration::from_secs(70),
            use_helper: false,
            metrics: None,
        }
    }
}

impl Options {
    /// # Errors
    /// A sentence that names the option.
    pub fn validate(&self) -> Result<(), String> {
        let source = &self.source;
        if source.is_empty() || source.contains([',', '\0', '\\', '\n']) {
            return Err(format!("mount option source is empty or has a forbidden character: {source:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_source_is_refused_by_name() {
        Options::default().validate().expect("the defaults are sound");
        let comma = Options { source: "a,suid".into(), ..Options::default() };
        assert!(comma.validate().expect_err("a comma").contains("source"));
    }
}
