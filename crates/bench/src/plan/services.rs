//! What needs clusters or mounts of its own.

use super::{Goal, Scenario, Side, Unit, Yardstick, at, bandwidth, files, rate, spec};
use crate::job::Job;
use crate::runner::{Bench, Which};
use crate::side::shards::{Crowd, Task};
use crate::work::Work;
use crate::work::sequential::Stream;
use crate::work::way::Way;

const MIB: usize = 1 << 20;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours, Side::Dev],
        job: |bench, side| {
            let flags = ["--leases=false", channel(side)];
            let name = if side == Side::Ours { "mnt-uring-bare" } else { "mnt-dev-bare" };
            Ok(at(bench.place_with(Which::Usual, name, &flags)?, Work::Stat { seconds: bench.scale.seconds }, 1))
        },
        rows: &[informing("io_uring stat x1", "stat", Unit::Rate, Side::Dev)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Dev],
        job: |bench, side| {
            let (seconds, bytes) = (bench.scale.seconds, bench.scale.random_bytes / 4);
            by_channel(bench, side, Work::Random { seconds, bytes, way: Way::Direct })
        },
        rows: &[
            informing("io_uring read 4K random x1", "read", Unit::Rate, Side::Dev),
            informing("io_uring write 4K random x1", "write", Unit::Rate, Side::Dev),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Dev],
        job: |bench, side| {
            let work = streaming(bench, Way::Buffered);
            by_channel(bench, side, work)
        },
        rows: &[
            informing("io_uring write 1M x1", "write", Unit::Bandwidth, Side::Dev),
            informing("io_uring read 1M x1", "read", Unit::Bandwidth, Side::Dev),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Unchecked],
        job: |bench, side| {
            let work = streaming(bench, Way::Buffered);
            files(bench, side, work, 1)
        },
        rows: &[
            bandwidth("checked write 1M x1", "write", Side::Unchecked, 0.95),
            bandwidth("checked read 1M x1", "read", Side::Unchecked, 0.95),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Unchecked],
        job: |bench, side| {
            let (seconds, bytes) = (bench.scale.seconds, bench.scale.random_bytes);
            files(bench, side, Work::Random { seconds, bytes, way: Way::Direct }, 16)
        },
        rows: &[
            rate("checked read 4K random x16", "read", Side::Unchecked, 0.95),
            rate("checked write 4K random x16", "write", Side::Unchecked, 0.95),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let second = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates, vec![Task::Create { shard: 0 }, Task::Create { shard: second }])
        },
        rows: &[rate("two shards create", "work", Side::OneShard, 1.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let of = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates / CROSSING, vec![Task::Mkdir { of }])
        },
        rows: &[rate("two shards mkdir", "work", Side::OneShard, 1.0 / 3.0)],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let to = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates / CROSSING, vec![Task::Rename { to }])
        },
        rows: &[rate("two shards rename", "work", Side::OneShard, 1.0 / 3.0)],
    },
];

/// No goal: it says which way is the better one, or how far there is to go.
const fn informing(name: &'static str, phase: &'static str, unit: Unit, side: Side) -> super::Spec {
    spec(name, phase, unit, Yardstick::Side(side, phase), Goal::None)
}

fn channel(side: Side) -> &'static str {
    if side == Side::Ours { "--fuse-channel=uring" } else { "--fuse-channel=dev" }
}

fn by_channel(bench: &mut Bench, side: Side, work: Work) -> anyhow::Result<Job> {
    let name = if side == Side::Ours { "mnt-uring" } else { "mnt-dev" };
    Ok(at(bench.place_with(Which::Usual, name, &[channel(side)])?, work, 1))
}

fn streaming(bench: &Bench, way: Way) -> Work {
    Work::Sequential(Stream { way, ..Stream::buffered(bench.scale.sequential_bytes / 4, MIB) })
}

/// Operations of each thread that are under way.
const IN_FLIGHT: usize = 64;
/// What may take several shards is done so many times less often than creates.
const CROSSING: u64 = 10;

fn crowd(bench: &mut Bench, count: u64, tasks: Vec<Task>) -> anyhow::Result<Job> {
    let run = bench.fresh_name("run");
    let cluster = bench.cluster(Which::TwoShards)?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    let watch = cluster.watch.clone();
    Ok(Job::Shards(Crowd { management, key_file, run, count, in_flight: IN_FLIGHT, tasks, watch }))
}
