//! Names and attributes: the shard alone, through the data plane, and through the mount.

use super::{Goal, Scenario, Side, Unit, Yardstick, at, files, rate, spec};
use crate::job::Job;
use crate::runner::{Bench, Which};
use crate::side::{core, paths, ping, rocks, shard};
use crate::work::{Work, small};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours, Side::Rocks],
        job: shard_alone,
        rows: &[
            rate("shard create", "create", Side::Rocks, 0.70),
            spec("shard lookup", "lookup", Unit::Rate, Yardstick::Fixed(1e6, "1 M/s"), Goal::AtLeast(1.0)),
            spec("shard getattr", "getattr", Unit::Rate, Yardstick::Fixed(1e6, "1 M/s"), Goal::AtLeast(1.0)),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::SingleRocks, Side::Rocks, Side::Net],
        job: data_plane,
        rows: &[
            rate("core create", "create", Side::SingleRocks, 0.60),
            spec("core create vs batches", "create", Unit::Rate, Yardstick::Side(Side::Rocks, "create"), Goal::None),
            spec("core stat", "stat", Unit::Rate, Yardstick::Side(Side::Net, "ping"), Goal::AtLeast(0.80)),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneByOne],
        job: paths,
        rows: &[rate("core path lookup", "resolve", Side::OneByOne, 1.5)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| uncached_stat(bench, side, 1),
        rows: &[rate("mount stat x1", "stat", Side::Fuse, 0.20)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| uncached_stat(bench, side, 8),
        rows: &[rate("mount stat x8", "stat", Side::Fuse, 0.35)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Stat { seconds: bench.scale.seconds }, 1),
        rows: &[rate("leased stat x1", "stat", Side::Local, 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Stat { seconds: bench.scale.seconds }, 8),
        rows: &[rate("leased stat x8", "stat", Side::Local, 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| churn(bench, side, 1),
        rows: &[rate("mount churn x1", "churn", Side::Fuse, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| churn(bench, side, 8),
        rows: &[rate("mount churn x8", "churn", Side::Fuse, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Own],
        job: |bench, side| {
            let work = Work::Churn { seconds: bench.scale.seconds, shared: side == Side::Ours };
            files(bench, side, work, 8)
        },
        rows: &[rate("shared churn x8", "churn", Side::Own, 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Empty],
        job: |bench, side| make_small(bench, side, 1),
        rows: &[rate("make small x1", "make", Side::Empty, 0.70)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Empty],
        job: |bench, side| make_small(bench, side, 8),
        rows: &[rate("make small x8", "make", Side::Empty, 0.70)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| files(bench, side, Work::Read { seconds: bench.scale.seconds }, 1),
        rows: &[rate("read small x1", "read", Side::Local, 0.50)],
    },
];

/// Creates of one commit.
const BATCH: u64 = 64;
const IN_FLIGHT: usize = 64;

/// `synced`: as durable as a metadata service makes them.
fn raw_creates(bench: &mut Bench, batch: u64, synced: bool) -> Job {
    Job::Rocks(rocks::Rocks { dir: bench.fresh("rocks"), count: bench.scale.creates, batch, synced })
}

fn shard_alone(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    if side == Side::Rocks {
        return Ok(raw_creates(bench, BATCH, false));
    }
    let (creates, stats) = (bench.scale.creates, bench.scale.stats);
    Ok(Job::Shard(shard::Alone { dir: bench.fresh("shard"), creates, batch: BATCH, stats }))
}

fn data_plane(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let (creates, stats, in_flight) = (bench.scale.creates, bench.scale.stats, IN_FLIGHT);
    match side {
        Side::Rocks => return Ok(raw_creates(bench, BATCH, true)),
        Side::SingleRocks => return Ok(raw_creates(bench, 1, true)),
        Side::Net => {
            let (servers, watch) = bench.ping_server()?;
            return Ok(Job::Ping(ping::Ping { server: servers[0], count: stats, in_flight, watch }));
        }
        _ => {}
    }
    let dir = bench.fresh_name("core");
    let cluster = bench.cluster(Which::Usual)?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    Ok(Job::Core(core::Core { management, key_file, dir, creates, stats, in_flight, watch: cluster.watch.clone() }))
}

/// Of one shard.
fn paths(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let (count, in_flight, dir) = (bench.scale.stats / paths::DEPTH as u64, IN_FLIGHT, bench.fresh_name("paths"));
    let cluster = bench.cluster(Which::Usual)?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    let (one_by_one, watch) = (side == Side::OneByOne, cluster.watch.clone());
    Ok(Job::Paths(paths::Paths { management, key_file, dir, count, in_flight, one_by_one, watch }))
}

/// Each one asks the servers, whatever a lease would allow.
fn uncached_stat(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let work = Work::Stat { seconds: bench.scale.seconds };
    if side != Side::Ours {
        return files(bench, side, work, processes);
    }
    Ok(at(bench.place_with(Which::Usual, "mnt-without-leases", &["--leases=false"])?, work, processes))
}

fn churn(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let work = Work::Churn { seconds: bench.scale.seconds, shared: false };
    files(bench, side, work, processes)
}

fn make_small(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let bytes = if side == Side::Empty { 0 } else { small::BYTES };
    files(bench, side, Work::Make { seconds: bench.scale.seconds, bytes }, processes)
}
