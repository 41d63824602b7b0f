//! What needs clusters or mounts of its own.

use super::{Goal, Scenario, Side, Unit, Yardstick, at, bandwidth, files, rate, spec};
use crate::job::Job;
use crate::runner::{Bench, Which};
use crate::side::ping::Raw;
use crate::side::shards::{Crowd, Placed, Task};
use crate::side::tool::{Fio, NetBench, Pattern, StorageBench};
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
            by_channel(bench, side, Work::Random { seconds, bytes, way: Way::Direct, synced: false })
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
            files(bench, side, Work::Random { seconds, bytes, way: Way::Direct, synced: false }, 16)
        },
        rows: &[
            rate("checked read 4K random x16", "read", Side::Unchecked, 0.95),
            rate("checked write 4K random x16", "write", Side::Unchecked, 0.95),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: |bench, side| from_memory(bench, side, true, 1),
        rows: &[
            bandwidth("loopback write 1M x1", "write", Side::Net, 0.60),
            bandwidth("loopback read 1M x1", "read", Side::Net, 0.60),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: |bench, side| from_memory(bench, side, true, 4),
        rows: &[
            bandwidth("loopback write 1M x4", "write", Side::Net, 0.60),
            bandwidth("loopback read 1M x4", "read", Side::Net, 0.60),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: |bench, side| core_from_memory(bench, side, true),
        rows: &[
            bandwidth("core loopback write 1M x1", "write", Side::Net, 0.90),
            bandwidth("core loopback read 1M x1", "read", Side::Net, 0.90),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: |bench, side| from_memory(bench, side, false, 1),
        rows: &[
            informing("shared memory write 1M x1", "write", Unit::Bandwidth, Side::Net),
            informing("shared memory read 1M x1", "read", Unit::Bandwidth, Side::Net),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: |bench, side| core_from_memory(bench, side, false),
        rows: &[
            informing("core shared memory write 1M x1", "write", Unit::Bandwidth, Side::Net),
            informing("core shared memory read 1M x1", "read", Unit::Bandwidth, Side::Net),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Net],
        job: net_bench,
        rows: &[rate("NetBench write 4K", "write", Side::Net, 0.80), rate("NetBench read 4K", "read", Side::Net, 0.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fio],
        job: storage_bench,
        rows: &[
            as_fio("StorageBench write 512K", "write"),
            as_fio("StorageBench read 512K", "read"),
            as_fio("StorageBench read 4K random", "random read"),
            as_fio("StorageBench write 4K random", "random write"),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Rails],
        job: |bench, side| over_rails(bench, side, 1),
        rows: &[
            bandwidth("one rail write 1M", "write", Side::Rails, 0.97),
            bandwidth("one rail read 1M", "read", Side::Rails, 0.97),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Rails],
        job: |bench, side| over_rails(bench, side, 2),
        rows: &[
            bandwidth("two rails write 1M", "write", Side::Rails, 0.97),
            bandwidth("two rails read 1M", "read", Side::Rails, 0.97),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let shards = if side == Side::OneShard { 1 } else { 2 };
            bound(bench, bench.scale.creates / 2, shards)
        },
        rows: &[rate("two shards create", "work", Side::OneShard, 1.80)],
    },
    Scenario {
        sides: &[Side::Ours, Side::OneShard],
        job: |bench, side| {
            let second = u16::from(side == Side::Ours);
            crowd(bench, bench.scale.creates, vec![Task::Create { shard: 0 }, Task::Create { shard: second }])
        },
        rows: &[informing("two shards create, all CPUs", "work", Unit::Rate, Side::OneShard)],
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

/// Both are to say the same.
const fn as_fio(name: &'static str, phase: &'static str) -> super::Spec {
    spec(name, phase, Unit::Bandwidth, Yardstick::Side(Side::Fio, phase), Goal::Within(0.03))
}

fn channel(side: Side) -> &'static str {
    if side == Side::Ours { "--fuse-channel=uring" } else { "--fuse-channel=dev" }
}

fn by_channel(bench: &mut Bench, side: Side, work: Work) -> anyhow::Result<Job> {
    let name = if side == Side::Ours { "mnt-uring" } else { "mnt-dev" };
    Ok(at(bench.place_with(Which::Usual, name, &[channel(side)])?, work, 1))
}

/// Through a mount, past all caches, of a cluster whose disk is memory.
fn from_memory(bench: &mut Bench, side: Side, loopback: bool, processes: u32) -> anyhow::Result<Job> {
    if side == Side::Net {
        return raw(bench, MIB as u32, processes, processes, loopback);
    }
    let place = match loopback {
        true => {
            let flags = ["--local-sockets=false", "--share-memory=false"];
            bench.place_with(Which::Memory, "mnt-loopback", &flags)?
        }
        false => bench.place_of(Which::Memory)?,
    };
    Ok(at(place, over_memory(bench, Way::Direct), processes as usize))
}

/// By one client core.
fn core_from_memory(bench: &mut Bench, side: Side, loopback: bool) -> anyhow::Result<Job> {
    if side == Side::Net {
        return raw(bench, MIB as u32, 1, 1, loopback);
    }
    let way = bench.core(Which::Memory, loopback)?;
    Ok(at(bench.place_of(Which::Memory)?, over_memory(bench, way), 1))
}

fn streaming(bench: &Bench, way: Way) -> Work {
    Work::Sequential(Stream { way, ..Stream::buffered(bench.scale.sequential_bytes / 4, MIB) })
}

/// Large reads and writes, one after the other, on a disk that is memory.
fn over_memory(bench: &Bench, way: Way) -> Work {
    Work::Sequential(Stream { way, kept: true, ..Stream::buffered(bench.scale.sequential_bytes / 4, MIB) })
}

/// The connection layer alone.
fn raw(bench: &mut Bench, block: u32, depth: u32, threads: u32, loopback: bool) -> anyhow::Result<Job> {
    let seconds = bench.scale.seconds;
    let (servers, watch) = bench.ping_server()?;
    Ok(Job::Raw(Raw { servers, block, depth, threads, seconds, loopback, watch }))
}

fn net_bench(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    const BLOCK: u32 = 4 << 10;
    if side == Side::Net {
        return raw(bench, BLOCK, IN_FLIGHT as u32, 1, false);
    }
    let weft = vec![bench.weft().to_str().unwrap_or_default().to_owned()];
    let seconds = whole(bench.scale.seconds);
    let cluster = bench.cluster(Which::Usual)?;
    let (management, key_file, watch) = (cluster.management.clone(), cluster.key_file.clone(), cluster.watch.clone());
    let (block, depth) = (BLOCK, IN_FLIGHT as u32);
    Ok(Job::NetBench(NetBench { weft, management, key_file, block, depth, seconds, watch }))
}

fn storage_bench(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let pattern = Pattern { size: bench.scale.sequential_bytes / 8, seconds: whole(bench.scale.seconds) };
    if side == Side::Fio {
        return Ok(Job::Fio(Fio { dir: bench.fresh("fio"), pattern }));
    }
    let weft = bench.weft().to_owned();
    let cluster = bench.cluster(Which::OneTarget)?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    Ok(Job::StorageBench(StorageBench { weft, management, key_file, pattern }))
}

/// Sixteen requests in flight show what the rails carry.
fn over_rails(bench: &mut Bench, side: Side, rails: usize) -> anyhow::Result<Job> {
    let (place, watch) = bench.place_of_hosts(rails)?;
    if side == Side::Ours {
        let stream = Stream { kept: true, ..Stream::buffered(bench.scale.sequential_bytes / 8, MIB) };
        return Ok(at((place, watch), Work::Sequential(stream), 1));
    }
    let (weft, seconds) = (bench.weft_at_client(rails)?, whole(bench.scale.seconds));
    let (management, key_file) = (hosts::MANAGEMENT.to_owned(), bench.hosts(rails)?.key_file());
    Ok(Job::NetBench(NetBench { weft, management, key_file, block: MIB as u32, depth: 16, seconds, watch }))
}

fn whole(seconds: f64) -> u32 {
    seconds.ceil() as u32
}

/// Operations of each thread that are under way.
const IN_FLIGHT: usize = 64;
/// What may take several shards is done so many times less often than creates.
const CROSSING: u64 = 10;

fn crowd(bench: &mut Bench, count: u64, tasks: Vec<Task>) -> anyhow::Result<Job> {
    let tasks = tasks.into_iter().map(|task| Placed { task, cpu: None }).collect();
    crowd_of(bench, Which::TwoShards, count, tasks)
}

/// `count` creates in each of so many shards, by a client on the shard's own CPU.
fn bound(bench: &mut Bench, count: u64, shards: usize) -> anyhow::Result<Job> {
    let on = |(shard, cpu)| Placed { task: Task::Create { shard }, cpu: Some(cpu) };
    let tasks: Vec<_> = (0..).zip(Bench::two_cpus()?).map(on).take(shards).collect();
    crowd_of(bench, Which::BoundShards, count * shards as u64, tasks)
}

fn crowd_of(bench: &mut Bench, which: Which, count: u64, tasks: Vec<Placed>) -> anyhow::Result<Job> {
    let run = bench.fresh_name("run");
    let cluster = bench.cluster(which)?;
    let (management, key_file) = (cluster.management.clone(), cluster.key_file.clone());
    let watch = cluster.watch.clone();
    Ok(Job::Shards(Crowd { management, key_file, run, count, in_flight: IN_FLIGHT, tasks, watch }))
}
