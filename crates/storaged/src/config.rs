//! Settings of the storage service.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use conf::Fatal;
use conf::units::{Period, Size};
use ring::place::Misplaced;
use telemetry::log::LogFormat;

/// Most lanes of one node.
const LANES_MAX: u16 = 64;
/// Most lanes that are made without being asked for.
const LANES_AUTO_MAX: usize = 8;
/// Most requests of one target and lane at the disk.
const QUEUE_DEPTH_MAX: u32 = 1024;

conf::knobs! {
    /// A storage service: keeps the contents of files, as objects on storage targets. A host may run several, such as
    /// one per NUMA zone.
    pub struct Config for "storaged" {
        /// Storage targets: one directory per disk, on any local file system. Losing one means losing the objects on it.
        /// More can be given later (with `init`): at a start, or in the file while it runs and then SIGHUP.
        targets: Vec<PathBuf>,
        /// Make targets where there are none yet. Without it, a missing or empty directory is an error, since that is
        /// what a disk that is not mounted looks like. Where other targets are there, the service starts without it and goes
        /// on looking for it.
        init: bool = "false",
        /// The management service, as host:port.
        mgmtd: String = "127.0.0.1:9400",
        /// File with the cluster key: 64 hexadecimal digits, readable by its owner alone. The same on all hosts.
        key_file: PathBuf,
        /// Name of a new node, for people; unique in the cluster. Without one the management service makes one.
        alias: String = "",
        /// Address to listen on. 0.0.0.0 takes all interfaces that are registered.
        listen: IpAddr = "0.0.0.0",
        /// Port of the first lane; the others take the ones after it. 0: any free ports, the same again at the next start
        /// where they are still free.
        port: u16 = "0",
        /// Interfaces (names, addresses, or networks as in 10.1.0.0/16) under which other hosts reach this one, best
        /// first. None: all that are up, or the loopback interface where mgmtd is `localhost` or on it.
        interfaces: Vec<String>,
        /// Threads that serve; each owns a part of the objects of all targets. 0: one for each of `cpus`; without them, one
        /// per two CPUs of the host or the NUMA zone, at most 8.
        lanes: u16 = "0",
        /// CPUs to bind the lanes to, one for each, in order. None: not bound.
        cpus: Vec<usize>,
        /// NUMA zone of the host to run in: on its CPUs, with its memory while there is some. `cpus`, where they are given,
        /// must be its. Not set: the kernel chooses.
        numa_zone: Option<usize>,
        /// How long a lane looks for new work before it sleeps, where experience shows that it pays and nobody else wants
        /// the CPU; up to four times as long where waits have lately been that short. 0s: it sleeps at once.
        spin: Period = "100us",
        /// Open files to keep over all lanes and targets; opening one costs more than a small read.
        open_files: u32 = "16384",
        /// Space of each target's file system that stays free for others: new data is refused with "no space left".
        reserve: Size = "256MiB",
        /// Writes up to this length are made on the lane's own thread while the disk keeps up; longer ones by the
        /// kernel's workers.
        write_in_place: Size = "1MiB",
        /// Reads and writes from this length on go past the kernel's page cache while memory for it is hard to come by
        /// (the time of writes tells), where the range is not cached and the disk's file system can. 0: never, such as for
        /// targets on rotating disks that are read again and again.
        direct: Size = "256KiB",
        /// Keep a checksum of each 4 KiB of objects on the disk, and verify it at each read: a corrupt block is an error
        /// and never wrong data. What is written while this is off is not verified until `weft scrub` has gone over it.
        /// And send one with what is read.
        checksums: bool = "true",
        /// Reads of one target that are at its disk at once, and as many changes, per lane. 16 times as many requests, of at
        /// most 64MiB, may be taken in all; further ones are told to come back. So a slow disk takes nothing from the
        /// targets beside it.
        queue_depth: u32 = "32",
        /// Memory for the data of reads in flight, per lane. One half is the targets' own, in equal shares; the other half
        /// is for whichever needs more.
        read_memory: Size = "128MiB",
        /// Memory for what is read before a sequential reader asks for it, where reads go past the kernel's page cache
        /// (see `direct`), per lane; shared by the targets as `read_memory` is. It is used while there are such readers.
        /// 0: none.
        read_ahead: Size = "64MiB",
        /// Address and port for metrics (Prometheus) and the log level, by HTTP. Not protected by the cluster key.
        metrics_listen: Option<SocketAddr>,
        /// What is logged: off, error, warn, info, debug or trace, or levels by crate such as storaged=debug,net=trace.
        log_level: String = "info",
        /// text, or json: one object per line.
        log_format: LogFormat = "text",
    }

    /// Join the running cluster whose mgmtd is there, and need no configuration file: as --mgmtd with --init.
    shorthand join "HOST:PORT" for mgmtd, with { init = "true" }, without {};
}

impl Config {
    /// # Errors
    /// For the first setting that cannot be; exit code 2.
    pub fn validate(&self) -> Result<(), Fatal> {
        let refuse = |text: String| Err(Fatal::usage(text));
        if self.targets.is_empty() {
            return refuse("targets: is not set: name at least one directory".into());
        }
        for (index, target) in self.targets.iter().enumerate() {
            if self.targets[..index].contains(target) {
                return refuse(format!("targets: {} is there twice", target.display()));
            }
        }
        if self.lanes > LANES_MAX {
            return refuse(format!("lanes: must be at most {LANES_MAX}"));
        }
        self.validate_cpus()?;
        if self.port != 0 && usize::from(self.port) + self.lane_count() > 65_536 {
            return refuse(format!("port: no room for {} lanes above {}", self.lane_count(), self.port));
        }
        if self.read_memory.0 < wire::frame::PAYLOAD_MAX as u64 {
            return refuse("read_memory: must be at least 8MiB, the longest read".into());
        }
        if !(1..=QUEUE_DEPTH_MAX).contains(&self.queue_depth) {
            return refuse(format!("queue_depth: must be 1 to {QUEUE_DEPTH_MAX}"));
        }
        Ok(())
    }

    fn validate_cpus(&self) -> Result<(), Fatal> {
        let refuse = |text: String| Err(Fatal::usage(text));
        for (index, cpu) in self.cpus.iter().enumerate() {
            if self.cpus[..index].contains(cpu) {
                return refuse(format!("cpus: {cpu} is there twice"));
            }
        }
        let (cpus, lanes) = (self.cpus.len(), self.lane_count());
        if cpus > usize::from(LANES_MAX) {
            return refuse(format!("cpus: there are {cpus}, and at most {LANES_MAX} lanes to bind to them"));
        }
        if cpus != 0 && cpus != lanes {
            return refuse(format!("cpus: there are {cpus} of them for {lanes} lanes: name one for each lane"));
        }
        Ok(())
    }

    /// Moves this thread, and so all that will be started, to where the settings say.
    ///
    /// # Errors
    /// For a CPU or a NUMA zone that this process cannot have; exit code 2.
    pub(crate) fn take_place(&self) -> Result<(), Fatal> {
        ring::place::move_to(self.numa_zone, &self.cpus).map_err(|misplaced| match misplaced {
            Misplaced::Zone(text) => Fatal::usage(format!("numa_zone: {text}")),
            Misplaced::Cpus(text) => Fatal::usage(format!("cpus: {text}")),
        })
    }

    /// How many lanes there will be.
    #[must_use]
    pub fn lane_count(&self) -> usize {
        match self.lanes {
            0 if !self.cpus.is_empty() => self.cpus.len(),
            0 => std::thread::available_parallelism().map_or(1, |cpus| (cpus.get() / 2).clamp(1, LANES_AUTO_MAX)),
            lanes => usize::from(lanes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: &[(&'static str, &str)]) -> Result<(), String> {
        let mut flags = conf::Flags::<Config>::default();
        flags.give("key_file", "/k");
        for (key, value) in set {
            flags.give(key, value);
        }
        let sources = conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags };
        sources.load().expect("well formed").validate().map_err(|fatal| {
            assert_eq!(fatal.code, 2);
            fatal.message
        })
    }

    #[test]
    fn contradictions_are_refused_with_the_key() {
        assert_eq!(config(&[("targets", "/a,/b")]), Ok(()));
        assert_eq!(config(&[("targets", "/a,/b"), ("cpus", "4,0,2")]), Ok(()), "a lane for each");
        let many = (0..65).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
        for (set, key) in [
            (&[][..], "targets"),
            (&[("targets", "/a,/b,/a")], "targets: /a is there twice"),
            (&[("targets", "/a"), ("lanes", "1000")], "lanes"),
            (&[("targets", "/a"), ("lanes", "8"), ("port", "65530")], "port"),
            (&[("targets", "/a"), ("lanes", "2"), ("cpus", "0")], "cpus: there are 1 of them for 2 lanes"),
            (&[("targets", "/a"), ("lanes", "1"), ("cpus", "0,1")], "cpus: there are 2 of them for 1 lanes"),
            (&[("targets", "/a"), ("cpus", "1,0,1")], "cpus: 1 is there twice"),
            (&[("targets", "/a"), ("cpus", &many)], "cpus: there are 65"),
            (&[("targets", "/a"), ("read_memory", "1MiB")], "read_memory"),
            (&[("targets", "/a"), ("queue_depth", "0")], "queue_depth"),
            (&[("targets", "/a"), ("queue_depth", "1025")], "queue_depth"),
        ] {
            let refusal = config(set).unwrap_err();
            assert!(refusal.starts_with(key), "{refusal}");
        }
    }

    #[test]
    fn the_template_documents_every_key() {
        let text = conf::template::<Config>(&[]);
        for key in
            ["targets", "init", "mgmtd", "lanes", "numa_zone", "reserve", "queue_depth", "write_in_place", "log_level"]
        {
            assert!(text.contains(&format!("\n#{key} =")), "no {key} in\n{text}");
        }
    }
}
