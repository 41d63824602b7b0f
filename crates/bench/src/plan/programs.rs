//! Programs that people run on trees of files.

use super::{Scenario, Side, at, files, rate};
use crate::job::Job;
use crate::runner::Bench;
use crate::work::Work;
use crate::work::scan::{Program, Shape};

/// The best peers' ratios to the local file system, measured on this kind of machine: files per second of both. Where one is
/// below 0.2 twice as much is wanted, else as much.
const MOOSEFS_UNPACK: f64 = 662.0 / 6_982.0;
const GLUSTERFS_CLONE: f64 = 424.0 / 1_328.0;
const MOOSEFS_REMOVE: f64 = 3_218.0 / 10_341.0;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::Find, bench.scale.scan),
        rows: &[rate("cold find", "scan", Side::Local, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::Usage, bench.scale.scan),
        rows: &[rate("cold du -s", "scan", Side::Local, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| cold_scan(bench, side, Program::List, bench.scale.scan.in_one_directory()),
        rows: &[rate("cold ls -l", "scan", Side::Local, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse, Side::Local],
        job: unpack,
        rows: &[
            rate("unpack", "unpack", Side::Fuse, 0.50),
            rate("unpack vs local", "unpack", Side::Local, 2.0 * MOOSEFS_UNPACK),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse, Side::Local],
        job: |bench, side| {
            let (repository, tree) = bench.source_repository()?;
            files(bench, side, Work::Clone { repository, tree }, 1)
        },
        rows: &[
            rate("git clone", "clone", Side::Fuse, 0.50),
            rate("rm -rf", "remove", Side::Fuse, 0.50),
            rate("git clone vs local", "clone", Side::Local, GLUSTERFS_CLONE),
            rate("rm -rf vs local", "remove", Side::Local, MOOSEFS_REMOVE),
        ],
    },
    Scenario {
        sides: &[Side::Ours, Side::Fuse],
        job: |bench, side| {
            let (wheel, tree) = bench.source_wheel()?;
            files(bench, side, Work::Install { wheel, tree }, 1)
        },
        rows: &[rate("pip install", "install", Side::Fuse, 0.50)],
    },
    Scenario {
        sides: &[Side::Ours, Side::Local],
        job: |bench, side| {
            let (repository, tree) = bench.source_repository()?;
            files(bench, side, Work::LookAgain { seconds: bench.scale.seconds, repository, tree }, 1)
        },
        rows: &[
            rate("leased grep -r", "grep", Side::Local, 0.80),
            rate("leased git status", "status", Side::Local, 0.80),
        ],
    },
];

/// Of what is not in memory: the page cache is dropped, and our client is new.
fn cold_scan(bench: &mut Bench, side: Side, program: Program, shape: Shape) -> anyhow::Result<Job> {
    let (made_at, watch) = bench.place(side)?;
    let place = if side == Side::Ours { bench.place_cold()? } else { (made_at.clone(), watch) };
    Ok(at(place, Work::Scan { program, shape, made_at }, 1))
}

fn unpack(bench: &mut Bench, side: Side) -> anyhow::Result<Job> {
    let (archive, tree) = bench.source_tree()?;
    files(bench, side, Work::Unpack { archive, tree }, 1)
}
