//! The rows of the table: what is measured against what, and how good it has to be.

use crate::job::Job;
use crate::runner::Bench;
use crate::side::shards::{Crowd, Task};
use crate::side::{core, ping, rocks, shard};
use crate::work::scan::{Program, Shape};
use crate::work::{Files, Work, small};

/// Figures that are measured together, in turns with what they are compared with.
pub(crate) struct Scenario {
    pub(crate) sides: &'static [Side],
    pub(crate) rows: &'static [Spec],
    pub(crate) job: JobOf,
}

/// What a side of a scenario has to do; the runner knows the sizes.
pub(crate) type JobOf = fn(&mut Bench, Side) -> anyhow::Result<Job>;

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// Weft, whole or in part.
    Ours,
    /// Weft, where each process has a directory of its own.
    Own,
    /// Weft, where files are empty.
    Empty,
    /// Weft, where only one shard has something to do.
    OneShard,
    Rocks,
    Net,
    Fuse,
    Local,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Ours => "Weft",
            Side::Own => "own directories",
            Side::Empty => "empty files",
            Side::OneShard => "one shard",
            Side::Rocks => "RocksDB",
            Side::Net => "network ceiling",
            Side::Fuse => "FUSE ceiling",
            Side::Local => "local file system",
        }
    }
}

/// One row.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Of what our job measures.
    pub(crate) phase: &'static str,
    pub(crate) unit: Unit,
    pub(crate) yardstick: Yardstick,
    /// The least ratio of ours to the yardstick.
    pub(crate) goal: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Operations per second.
    Rate,
    /// Bytes per second.
    Bandwidth,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Yardstick {
    /// A phase that another side measures.
    Side(Side, &'static str),
    /// So many per second.
    Fixed(f64),
}

/// JuiceFS's ratio to the local file system in unpacking a source tree, measured on this kind of machine (356 of 6,982
/// files per second), three times of which is wanted.
const UNPACK_GOAL: f64 = 3.0 * 356.0 / 6_982.0;

const fn spec(name: &'static str, phase: &'static str, unit: Unit, yardstick: Yardstick, goal: f64) -> Spec {
    Spec { name, phase, unit, yardstick, goal }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours, Side::Rocks],
        job: shard_alone,
        rows: &[
            spec("shard create", "create", Unit::Rate, Yardstick::Side(Side::Rocks, "create"), 0.70),
            spec("shard lookup", "lookup", Unit::Rate, Yardstick::Fixed(1e6), 1.0),
            spec("shard getattr", "getattr", Unit::Rate, Yardstick::Fixed(1e6), 1.0),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Rocks, Side::Net],
        job: data_plane,
        rows: &[
            spec("core create", "create", Unit::Rate, Yardstick::Side(Side::Rocks, "create"), 0.60),
            spec("core stat", "stat", Unit::Rate, Yardstick::Side(Side::Net, "ping"), 0.80),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| uncached_stat(bench, side, 1),
        rows: &[spec("mount stat x1", "stat", Unit::Rate, Yardstick::Side(Side::Fuse, "stat"), 0.20)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| uncached_stat(bench, side, 8),
        rows: &[spec("mount stat x8", "stat", Unit::Rate, Yardstick::Side(Side::Fuse, "stat"), 0.35)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Stat { seconds: bench.scale.seconds }, 1),
        rows: &[spec("leased stat x1", "stat", Unit::Rate, Yardstick::Side(Side::Local, "stat"), 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Stat { seconds: bench.scale.seconds }, 8),
        rows: &[spec("leased stat x8", "stat", Unit::Rate, Yardstick::Side(Side::Local, "stat"), 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| churn(bench, side, 1),
        rows: &[spec("mount churn x1", "churn", Unit::Rate, Yardstick::Side(Side::Fuse, "churn"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| churn(bench, side, 8),
        rows: &[spec("mount churn x8", "churn", Unit::Rate, Yardstick::Side(Side::Fuse, "churn"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Own],
        job: |bench, side| {
            let work = Work::Churn { seconds: bench.scale.seconds, shared: side == Side::Ours };
            files(bench, side, work, 8)
        },
        rows: &[spec("shared churn x8", "churn", Unit::Rate, Yardstick::Side(Side::Own, "churn"), 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Empty],
        job: |bench, side| make_small(bench, side, 1),
        rows: &[spec("make small x1", "make", Unit::Rate, Yardstick::Side(Side::Empty, "make"), 0.70)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Empty],
        job: |bench, side| make_small(bench, side, 8),
        rows: &[spec("make small x8", "make", Unit::Rate, Yardstick::Side(Side::Empty, "make"), 0.70)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Read { seconds: bench.scale.seconds }, 1),
        rows: &[spec("read small x1", "read", Unit::Rate, Yardstick::Side(Side::Local, "read"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::Find, bench.scale.scan),
        rows: &[spec("cold find", "scan", Unit::Rate, Yardstick::Side(Side::Local, "scan"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::Usage, bench.scale.scan),
        rows: &[spec("cold du -s", "scan", Unit::Rate, Yardstick::Side(Side::Local, "scan"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::List, bench.scale.scan.in_one_directory()),
        rows: &[spec("cold ls -l", "scan", Unit::Rate, Yardstick::Side(Side::Local, "scan"), 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse, Side::Local],
        job: unpack,
        rows: &[
            spec("unpack", "unpack", Unit::Rate, Yardstick::Side(Side::Fuse, "unpack"), 0.25),
            spec("unpack vs local", "unpack", Unit::Rate, Yardstick::Side(Side::Local, "unpack"), UNPACK_GOAL),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| {
            let (repository, tree) = bench.source_repository()?;
            files(bench, side, Work::Clone { repository, tree }, 1)
        },
        rows: &[
            spec("git clone", "clone", Unit::Rate, Yardstick::Side(Side::Fuse, "clone"), 0.50),
            spec("rm -rf", "remove", Unit::Rate, Yardstick::Side(Side::Fuse, "remove"), 0.50),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let (repository, tree) = bench.source_repository()?;
            files(bench, side, Work::LookAgain { seconds: bench.scale.seconds, repository, tree }, 1)
        },
        rows: &[
            spec("leased grep -r", "grep", Unit::Rate, Yardstick::Side(Side::Local, "grep"), 0.80),
            spec("leased git status", "status", Unit::Rate, Yardstick::Side(Side::Local, "status"), 0.80),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = sequential(bench, 1, 1 << 20);
            files(bench, side, work, 1)
        },
        rows: &[
            spec("write 1M x1", "write", Unit::Bandwidth, Yardstick::Side(Side::Local, "write"), 0.80),
            spec("read 1M x1", "read", Unit::Bandwidth, Yardstick::Side(Side::Local, "read"), 0.80),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = sequential(bench, 1, 1 << 20);
            files(bench, side, work, 4)
        },
        rows: &[
            spec("write 1M x4", "write", Unit::Bandwidth, Yardstick::Side(Side::Local, "write"), 0.80),
            spec("read 1M x4", "read", Unit::Bandwidth, Yardstick::Side(Side::Local, "read"), 0.80),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = sequential(bench, 4, 128 << 10);
            files(bench, side, work, 1)
        },
        rows: &[
            spec("write 128K x1", "write", Unit::Bandwidth, Yardstick::Side(Side::Local, "write"), 0.80),
            spec("read 128K x1", "read", Unit::Bandwidth, Yardstick::Side(Side::Local, "read"), 0.80),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = sequential(bench, 16, 4 << 10);
            files(bench, side, work, 1)
        },
        rows: &[
            spec("write 4K x1", "write", Unit::Bandwidth, Yardstick::Side(Side::Local, "write"), 0.50),
            spec("read 4K x1", "read", Unit::Bandwidth, Yardstick::Side(Side::Local, "read"), 0.50),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = Work::Random { seconds: bench.scale.seconds, bytes: bench.scale.random_bytes };
            files(bench, side, work, 16)
        },
        rows: &[
            spec("read 4K random x16", "read", Unit::Rate, Yardstick::Side(Side::Local, "read"), 0.30),
            spec("write 4K random x16", "write", Unit::Rate, Yardstick::Side(Side::Local, "write"), 0.30),
        ],
    },
    // Last: their cluster then runs beside nothing else that is measured.
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let second = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates, vec![Task::Create { shard: 0 }, Task::Create { shard: second }])
        },
        rows: &[spec("two shards create", "work", Unit::Rate, Yardstick::Side(Side::OneShard, "work"), 1.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let of = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates / CROSSING, vec![Task::Mkdir { of }])
        },
        rows: &[spec("two shards mkdir", "work", Unit::Rate, Yardstick::Side(Side::OneShard, "work"), 1.0 / 3.0)],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let to = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates / CROSSING, vec![Task::Rename { to }])
        },
        rows: &[spec("two shards rename", "work", Unit::Rate, Yardstick::Side(Side::OneShard, "work"), 1.0 / 3.0)],
    },
];

/// Creates of one commit.
const BATCH: u64 = 64;
const IN_FLIGHT: usize = 64;
/// What may take several shards is done so many times less often than creates.
const CROSSING: u64 = 10;

/// `synced`: as durable as a metadata service makes them.
fn raw_creates(bench: &mut Bench, synced: bool) -> Job {
    Job::Rocks(rocks::Rocks { dir: bench.fresh("rocks"), count: bench.scale.creates, batch: BATCH, synced })
}

fn shard_alone(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    if side == Side::Rocks {
        return Ok(raw_creates(bench, false));
    }
    let (creates, stats) = (bench.scale.creates, bench.scale.stats);
    Ok(Job::Shard(shard::Alone { dir: bench.fresh("shard"), creates, batch: BATCH, stats }))
}

fn data_plane(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let (creates, stats, in_flight) = (bench.scale.creates, bench.scale.stats, IN_FLIGHT);
    if side == Side::Rocks {
        return Ok(raw_creates(bench, true));
    }
    if side == Side::Net {
        let (server, watch) = bench.ping_server()?;
        return Ok(Job::Ping(ping::Ping { server, count: stats, in_flight, watch }));
    }
    let dir = bench.fresh_name("core");
    let cluster = bench.cluster()?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    Ok(Job::Core(core::Core { management, key_file, dir, creates, stats, in_flight, watch: cluster.watch.clone() }))
}

fn crowd(bench: &mut Bench, count: u64, tasks: Vec<Task>) -> anyhow::Result<Job> {
    let run = bench.fresh_name("run");
    let cluster = bench.two_shards()?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    let watch = cluster.watch.clone();
    Ok(Job::Shards(Crowd { management, key_file, run, count, in_flight: IN_FLIGHT, tasks, watch }))
}

/// A file of a `part` of the bytes of the longest ones.
fn sequential(bench: &Bench, part: u64, step: usize) -> Work {
    Work::Sequential { bytes: bench.scale.sequential_bytes / part, step }
}

fn files(bench: &mut Bench, side: Side, work: Work, processes: usize) -> anyhow::Result<Job> {
    let (place, watch) = bench.place(side)?;
    Ok(Job::Files(Files { work, place, processes, watch }))
}

/// Each one asks the servers, whatever a lease would allow.
fn uncached_stat(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let work = Work::Stat { seconds: bench.scale.seconds };
    if side != Side::Ours {
        return files(bench, side, work, processes);
    }
    let (place, watch) = bench.place_without_leases()?;
    Ok(Job::Files(Files { work, place, processes, watch }))
}

fn churn(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let work = Work::Churn { seconds: bench.scale.seconds, shared: false };
    files(bench, side, work, processes)
}

fn make_small(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let bytes = if side == Side::Empty { 0 } else { small::BYTES };
    files(bench, side, Work::Make { seconds: bench.scale.seconds, bytes }, processes)
}

/// Of what is not in memory: the page cache is dropped, and our client is new.
fn cold_scan(bench: &mut Bench, side: Side, program: Program, shape: Shape) -> anyhow::Result<Job> {
    let (made_at, watch) = bench.place(side)?;
    let (place, watch) = if side == Side::Ours { bench.place_cold()? } else { (made_at.clone(), watch) };
    Ok(Job::Files(Files { work: Work::Scan { program, shape, made_at }, place, processes: 1, watch }))
}

fn unpack(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let (archive, tree) = bench.source_tree()?;
    files(bench, side, Work::Unpack { archive, tree }, 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_its_own_name_and_a_yardstick_that_is_measured() {
        let mut names = BTreeSet::new();
        for scenario in SCENARIOS {
            assert_eq!(scenario.sides[0], Side::Ours);
            for row in scenario.rows {
                assert!(names.insert(row.name), "{} twice", row.name);
                assert!(row.goal > 0.0);
                if let Yardstick::Side(side, _) = row.yardstick {
                    assert!(scenario.sides.contains(&side), "{}: nobody measures {}", row.name, side.name());
                }
            }
        }
        assert_eq!(names.len(), 37);
    }
}
