//! Contents of files, where the disk has its part in it.

use super::{Goal, Scenario, Side, Spec, Unit, Yardstick, bandwidth, files, rate, spec};
use crate::job::Job;
use crate::runner::{Bench, Which};
use crate::work::Work;
use crate::work::random::SYNCED;
use crate::work::sequential::Stream;
use crate::work::way::Way;

const MIB: usize = 1 << 20;
/// A process that works alone on a file has this part of what sixteen have together.
const ALONE: u64 = 4;

/// CPU time of the whole machine in the table of peers on this kind of machine, in microseconds per MiB.
const JUICEFS_WRITE: Yardstick = Yardstick::Fixed(2_380.0, "JuiceFS");
const JUICEFS_READ: Yardstick = Yardstick::Fixed(2_450.0, "JuiceFS");

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| streams(bench, side, MIB, 1),
        rows: &[
            bandwidth("write 1M x1", "write", Side::Local, 0.95),
            bandwidth("read 1M x1", "read", Side::Local, 0.95),
            spec("CPU write 1M x1", "write", Unit::Cpu, JUICEFS_WRITE, Goal::AtMost(1.0)),
            spec("CPU read 1M x1", "read", Unit::Cpu, JUICEFS_READ, Goal::AtMost(1.0)),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| streams(bench, side, MIB, 4),
        rows: &[
            bandwidth("write 1M x4", "write", Side::Local, 0.95),
            bandwidth("read 1M x4", "read", Side::Local, 0.95),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Large],
        job: |bench, side| {
            let step = if side == Side::Ours { 128 << 10 } else { MIB };
            let work = Work::Sequential(Stream::buffered(bench.scale.sequential_bytes / 4, step));
            files(bench, side, work, 1)
        },
        rows: &[
            bandwidth("write 128K x1", "write", Side::Large, 0.85),
            bandwidth("read 128K x1", "read", Side::Large, 0.85),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let work = Work::Sequential(Stream::buffered(bench.scale.sequential_bytes / 16, 4 << 10));
            files(bench, side, work, 1)
        },
        rows: &[
            bandwidth("write 4K x1", "write", Side::Local, 0.50),
            bandwidth("read 4K x1", "read", Side::Local, 0.50),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| random(bench, side, 1),
        rows: &[
            rate("read 4K random x1", "read", Side::Local, 0.40),
            unsynced("write 4K random x1"),
            rate("write 4K random + fsync x1", SYNCED, Side::Local, 0.40),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| random(bench, side, 16),
        rows: &[
            rate("read 4K random x16", "read", Side::Local, 0.40),
            unsynced("write 4K random x16"),
            rate("write 4K random + fsync x16", SYNCED, Side::Local, 0.40),
            spec("CPU read 4K random x16", "read", Unit::Cpu, Yardstick::Side(Side::Local, "read"), Goal::None),
            spec("CPU write 4K random x16", "write", Unit::Cpu, Yardstick::Side(Side::Local, "write"), Goal::None),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| core_random(bench, side, 1),
        rows: &[
            rate("core read 4K random x1", "read", Side::Local, 0.60),
            unsynced("core write 4K random x1"),
            rate("core write 4K random + fsync x1", SYNCED, Side::Local, 0.60),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| core_random(bench, side, 16),
        rows: &[
            rate("core read 4K random x16", "read", Side::Local, 0.60),
            unsynced("core write 4K random x16"),
            rate("core write 4K random + fsync x16", SYNCED, Side::Local, 0.60),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Own],
        job: |bench, side| records(bench, side, MIB),
        rows: &[
            bandwidth("one file write 1M x4", "write", Side::Own, 0.94),
            bandwidth("one file read 1M x4", "read", Side::Own, 0.94),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Own],
        job: |bench, side| records(bench, side, 47_008),
        rows: &[
            bandwidth("one file write 47008 x4", "write", Side::Own, 0.94),
            bandwidth("one file read 47008 x4", "read", Side::Own, 0.94),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let (seconds, bytes) = (bench.scale.seconds, bench.scale.random_bytes / ALONE);
            files(bench, side, Work::Mixed { seconds, bytes, stream: bench.scale.random_bytes / ALONE }, 2)
        },
        rows: &[
            spec(
                "mixed read 4K p99",
                "mixed read",
                Unit::P99,
                Yardstick::Side(Side::Local, "mixed read"),
                Goal::AtMost(2.0),
            ),
            spec("mixed read 4K", "mixed read", Unit::Rate, Yardstick::Side(Side::Local, "mixed read"), Goal::None),
            spec(
                "mixed write 1M",
                "mixed write",
                Unit::Bandwidth,
                Yardstick::Side(Side::Local, "mixed write"),
                Goal::None,
            ),
        ],
    },
];

/// No goal: the local file system hands each of these writes to the disk, a server of ours keeps them in its page cache until
/// somebody syncs.
const fn unsynced(name: &'static str) -> Spec {
    spec(name, "write", Unit::Rate, Yardstick::Side(Side::Local, "write"), Goal::None)
}

fn streams(bench: &mut Bench, side: Side, step: usize, processes: usize) -> anyhow::Result<Job> {
    let work = Work::Sequential(Stream::buffered(bench.scale.sequential_bytes, step));
    files(bench, side, work, processes)
}

fn random(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    random_by(bench, side, Way::Direct, processes)
}

/// Through client cores, without the mount.
fn core_random(bench: &mut Bench, side: Side, processes: usize) -> anyhow::Result<Job> {
    let way = if side == Side::Ours { bench.core(Which::Usual, false)? } else { Way::Direct };
    random_by(bench, side, way, processes)
}

fn random_by(bench: &mut Bench, side: Side, way: Way, processes: usize) -> anyhow::Result<Job> {
    let bytes = bench.scale.random_bytes / if processes == 1 { ALONE } else { 1 };
    files(bench, side, Work::Random { seconds: bench.scale.seconds, bytes, way, synced: true }, processes)
}

/// Of four processes in one file, or in four.
fn records(bench: &mut Bench, side: Side, step: usize) -> anyhow::Result<Job> {
    let stream = Stream::buffered(bench.scale.sequential_bytes / 2, step);
    files(bench, side, Work::Sequential(Stream { shared: side == Side::Ours, ..stream }), 4)
}
