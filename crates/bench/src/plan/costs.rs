//! What Weft costs with nothing to do, and to remember. CPU time per operation is with the rows that measure these.

use super::{Goal, Scenario, Side, Unit, Yardstick, spec};
use crate::job::Job;
use crate::runner::Which;
use crate::side::idle::Idle;
use crate::side::inodes::Inodes;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours],
        job: |bench, _| {
            let (seconds, watch) = (bench.scale.seconds * 3.0, bench.cluster(Which::Usual)?.watch.clone());
            Ok(Job::Idle(Idle { seconds, watch }))
        },
        rows: &[spec("idle cluster", "idle", Unit::Cpus, Yardstick::Fixed(1.0, "one CPU"), Goal::AtMost(0.01))],
    },
    Scenario {
        sides: &[Side::Ours],
        job: |bench, _| Ok(Job::Inodes(Inodes { dir: bench.fresh("inodes"), count: bench.scale.inodes })),
        rows: &[spec("cached inode", "inodes", Unit::Memory, Yardstick::Fixed(200.0, "200 B"), Goal::AtMost(1.0))],
    },
];
