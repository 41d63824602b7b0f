//! Settings of a metadata service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use conf::Fatal;
use conf::units::{Period, Size};
use ring::place::Misplaced;

conf::knobs! {
    /// A metadata service: one or several targets, each of which holds one shard of the namespace.
    pub struct Config for "metad" {
        /// The first target's directory: its identity, its lock, and the database.
        dir: PathBuf,
        /// Shards of the namespace to run here, at most 64: each has a thread, a port, and a target of its own. Those after
        /// the first lie below `dir`, in shard-2 and so on. More can be given later (with `init`), not fewer: at a start, or
        /// in the file while it runs and then SIGHUP.
        shards: u16 = "1",
        /// Make the directory into a new target where it is missing or empty. Without it such a directory is refused:
        /// it is what a disk that is not mounted looks like.
        init: bool = "false",
        /// Name of the node for people; unique in the cluster. Empty: mgmtd makes one. Only at the first start.
        alias: String = "",
        /// host:port of mgmtd.
        mgmtd: String,
        /// File with the cluster key.
        key_file: PathBuf,
        /// Address and port to listen at; further shards take the ports after it. Port 0: any free ones; clients learn
        /// them from mgmtd.
        listen: SocketAddr = "0.0.0.0:0",
        /// Interfaces (names, addresses, or networks as in 10.1.0.0/16) that clients reach this service over, and that it
        /// goes out by, best first. None: all that are up; where mgmtd is `localhost` or a loopback address, the loopback
        /// interface.
        interfaces: Vec<String>,
        /// CPU to bind the first shard's thread to; the others take the ones after it. Not set: the kernel chooses.
        cpu: Option<usize>,
        /// NUMA zone of the host to run in: on its CPUs, with its memory while there is some. `cpu`, where it is given, must be
        /// one of its. Not set: the kernel chooses.
        numa_zone: Option<usize>,
        /// How long a shard's thread looks for work before it sleeps, where experience shows that it pays and nobody
        /// else wants the CPU; up to four times as long where waits have lately been that short. 0s: it sleeps at once.
        spin: Period = "100us",
        /// Memory for the database's blocks, indexes and filters, per shard.
        block_cache: Size = "32MiB",
        /// Size of one of the two buffers in which changes gather before they are written to a table file.
        write_buffer: Size = "64MiB",
        /// Files that each shard's database keeps open: opening one costs more than to read from it, and one that is open some
        /// kilobytes of memory. At least 32. 0: a quarter of the files that the process may have open (LimitNOFILE), shared by
        /// all shards, or up to half for 512 of each; at most 4096 for each.
        open_files: u16 = "0",
        /// Inodes and names that are kept in memory, each, per shard.
        hot_entries: usize = "65536",
        /// A client that was not heard of for so long loses its session: what it held open is released, and what it has not got
        /// an answer to is forgotten. At least 2s. Keep it at or above the retry_timeout of all mounts: a change that is tried
        /// again after its session has ended may or may not have been done, nobody knows, and the program gets EIO.
        session_expiry: Period = "60s",
        /// Clients that a shard knows at a time, each until it has left or its session has expired. One more waits, and its
        /// programs get EIO after its retry_timeout; the log says so. Each costs some memory, and more after a restart of the
        /// service.
        sessions_max: usize = "4096",
        /// For how long a client may believe what it was told of a name or a file without asking again. Before something
        /// changes it is taken back from all that were told; one that does not answer delays the change for so long at
        /// most. At most half of session_expiry counts. 0s: clients ask each time.
        lease_term: Period = "10s",
        /// A directory with more entries than this is split over the metadata shards, at most 16, by itself and while it is
        /// used, where there are several. 0: only "weft entry set --split" does that.
        split_above: u64 = "50000",
        /// So is a directory of which more names than this are made, removed or replaced per second, for five seconds on
        /// end. 0: however many.
        split_rate: u64 = "30000",
        /// Changes are on the disk after this time at the latest, also where no application asks for it.
        sync_interval: Period = "100ms",
        /// Free space of the file system below which nothing new can be made. Removing goes on, and needs this.
        reserve: Size = "64MiB",
        /// Where metrics and the log level are served, over HTTP. Port 0: any free one.
        metrics_listen: Option<SocketAddr> = "127.0.0.1:0",
        /// Log level: error, warn, info, debug, trace; also per crate as in "info,metad=debug".
        log_level: String = "info",
        /// Log format: text or json.
        log_format: telemetry::log::LogFormat = "text",
    }

    /// Join the running cluster whose mgmtd is there, and need no configuration file: as --mgmtd with --init. Without --dir the
    /// service makes its directory in the working directory.
    shorthand join "HOST:PORT" for mgmtd, with { init = "true" }, without { dir = "weft-metad" };
}

pub(crate) const SHARDS_MAX: u16 = 64;
/// Below it, clients that are merely slow would lose their sessions between two heartbeats.
const SESSION_EXPIRY_MIN: Duration = Duration::from_secs(2);
/// With fewer, a database opens a file for each look-up.
pub(crate) const OPEN_FILES_MIN: u16 = 32;

impl Config {
    /// The directory of shard `number`, from 1: the first lies in the node's directory itself, others below it.
    #[must_use]
    pub fn shard_dir(&self, number: u16) -> PathBuf {
        if number == 1 { self.dir.clone() } else { self.dir.join(format!("shard-{number}")) }
    }

    /// # Errors
    /// One line that names the key; exit code 2.
    pub(crate) fn validate(&self) -> Result<(), Fatal> {
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return Err(Fatal::usage(format!("shards: {}: must be 1 to {SHARDS_MAX}", self.shards)));
        }
        if self.session_expiry.0 < SESSION_EXPIRY_MIN {
            let least = SESSION_EXPIRY_MIN.as_secs();
            return Err(Fatal::usage(format!("session_expiry: {}: must be at least {least}s", self.session_expiry)));
        }
        if (1..OPEN_FILES_MIN).contains(&self.open_files) {
            let text = format!("open_files: {}: must be at least {OPEN_FILES_MIN}, or 0", self.open_files);
            return Err(Fatal::usage(text));
        }
        if self.sessions_max == 0 {
            return Err(Fatal::usage("sessions_max: 0: must be at least 1"));
        }
        Ok(())
    }

    /// Moves this thread, and so all that will be started, to where the settings say.
    ///
    /// # Errors
    /// For a CPU or a NUMA zone that this process cannot have; exit code 2.
    pub(crate) fn take_place(&self) -> Result<(), Fatal> {
        let shards = 0..usize::from(self.shards);
        let cpus: Vec<usize> = self.cpu.iter().flat_map(|cpu| shards.clone().map(|n| cpu.saturating_add(n))).collect();
        ring::place::move_to(self.numa_zone, &cpus).map_err(|misplaced| match misplaced {
            Misplaced::Zone(text) => Fatal::usage(format!("numa_zone: {text}")),
            Misplaced::Cpus(text) => Fatal::usage(format!("cpu: for the {} shards: {text}", self.shards)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(key: &'static str, value: &str) -> Option<String> {
        let mut flags = conf::Flags::<Config>::default();
        for (key, value) in [("dir", "/d"), ("mgmtd", "m:1"), ("key_file", "/k"), (key, value)] {
            flags.give(key, value);
        }
        let config = conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }
            .load()
            .expect("it can be read");
        config.validate().err().map(|fatal| {
            assert_eq!(fatal.code, conf::fatal::USAGE);
            fatal.message
        })
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        let durations = [("session_expiry", "0s"), ("session_expiry", "1999ms")];
        let numbers = [("shards", "0"), ("shards", "65"), ("sessions_max", "0"), ("open_files", "31")];
        for (key, value) in durations.into_iter().chain(numbers) {
            let text = refusal(key, value).expect("refused");
            assert!(text.starts_with(&format!("{key}: ")), "{text}");
        }
        for (key, value) in [("shards", "64"), ("session_expiry", "2s"), ("open_files", "0"), ("open_files", "32")] {
            assert_eq!(refusal(key, value), None);
        }
    }
}
