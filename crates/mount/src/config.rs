//! Settings of a mount.

use std::net::SocketAddr;
use std::path::PathBuf;

use conf::units::{Period, Size};
use types::time::AccessTimes;

conf::knobs! {
    /// The mount: this host's view of the file system, through FUSE.
    pub struct Config for "mount" {
        /// Where to mount. The directory must exist and be empty.
        mountpoint: PathBuf,
        /// host:port of mgmtd.
        mgmtd: String,
        /// File with the cluster key.
        key_file: PathBuf,
        /// How long an operation waits for a server that does not answer before the application gets EIO. Above the
        /// session_expiry of the metadata services they forget which changes they have done: one that may have been gets EIO
        /// then, rather than being done twice.
        retry_timeout: Period = "60s",
        /// How long to wait for the cluster at the start.
        start_timeout: Period = "30s",
        /// How requests come from the kernel: dev, over /dev/fuse; uring, over io_uring on the CPU of the caller (Linux
        /// 6.14; as root the mount switches the kernel's fuse.enable_uring on), which is faster for small requests, and takes
        /// one more copy for large ones; auto, the latter where the kernel offers it.
        fuse_channel: fuse::Channel = "auto",
        /// Threads that serve requests. 0: one per CPU.
        loops: usize = "0",
        /// How long an idle thread looks for work before it sleeps, where experience shows that it pays and nobody else
        /// wants the CPU: up to four times as long where waits have lately been that short. On up to four CPUs it also stays
        /// awake while another one is at work. 0s: it sleeps at once.
        spin: Period = "100us",
        /// Exchange file contents with storage services on this host in memory that both map, rather than over sockets.
        share_memory: bool = "true",
        /// Reach services on this host through UNIX sockets rather than TCP.
        local_sockets: bool = "true",
        /// Send a checksum with file contents that go over the network, which the storage service verifies before it takes
        /// them. What it sends has one of its own, which is always verified.
        checksums: bool = "true",
        /// Interfaces (names, addresses, or networks as in 10.1.0.0/16) to reach services over, best first. None: all that
        /// are up.
        interfaces: Vec<String>,
        /// Other users than the mounting one may enter. Where that is not root, the default is false.
        allow_other: bool = "true",
        /// Nothing can be changed through this mount.
        read_only: bool = "false",
        /// Which reads of files, directories and symlinks change access times: relatime, the first after a change and one a
        /// day; strictatime, each, for one more request at the close of each file that was read; noatime, none.
        access_times: AccessTimes = "relatime",
        /// Listings change the access times of directories, by that rule. Without: those of files alone change.
        directory_access_times: bool = "true",
        /// Set-user-id bits mean something. Only for root.
        allow_suid: bool = "false",
        /// Device nodes mean something. Only for root.
        allow_devices: bool = "false",
        /// Programs that lie there cannot be run.
        noexec: bool = "false",
        /// The kernel keeps names and attributes for as long as the servers guarantee them. Without, it asks each time, and
        /// the mount keeps nothing either: no contents (data_cache), nothing read ahead, no writes kept back (write_back).
        leases: bool = "true",
        /// Memory for the contents of small files (up to 64 KiB) that were read, kept for as long as the servers guarantee
        /// them, and as much again for what is read ahead of longer files. 0: neither.
        data_cache: Size = "256MiB",
        /// Memory for writes that are kept back, to be written together or while the program goes on, for as long as the
        /// servers guarantee that nobody else looks at the file, and at most half a second; fsync and close write them. 0: each
        /// write goes to the servers.
        write_back: Size = "64MiB",
        /// Locks of flock and fcntl hold within this mount only, not across the cluster. Closing a file costs one request
        /// less then.
        local_locks: bool = "false",
        /// Where metrics and the log level are served. Port 0: any free one.
        metrics: SocketAddr = "127.0.0.1:0",
        /// Log level: error, warn, info, debug, trace; also per module as in "info,client=debug".
        log_level: String = "info",
        /// Log format: text or json.
        log_format: telemetry::log::LogFormat = "text",
    }
}

impl Config {
    /// Through a mount that changes nothing, reading does not change times either.
    pub(crate) fn rule_of_accesses(&self) -> AccessTimes {
        if self.read_only { AccessTimes::Noatime } else { self.access_times }
    }
}
