//! What Weft costs with nothing to do, and to remember. CPU time per operation is with the rows that measure these.

use anyhow::Context;

use super::{Goal, Scenario, Side, Unit, Yardstick, spec};
use crate::job::Job;
use crate::runner::Which;
use crate::side::idle::Idle;
use crate::side::inodes::Inodes;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        sides: &[Side::Ours],
        job: |bench, _| {
            let seconds = bench.scale.seconds * 3.0;
            let cluster = bench.cluster(Which::Usual)?;
            // What earlier rows have mounted would go on telling the services that it lives.
            cluster.umount_others().context("cannot unmount what earlier rows have mounted")?;
            Ok(Job::Idle(Idle { seconds, watch: cluster.watch.clone() }))
        },
        rows: &[spec("idle cluster", "idle", Unit::Cpus, Yardstick::Fixed(1.0, "one CPU"), Goal::AtMost(0.01))],
    },
    Scenario {
        sides: &[Side::Ours],
        job: |bench, _| Ok(Job::Inodes(Inodes { dir: bench.fresh("inodes"), count: bench.scale.inodes })),
        rows: &[spec("cached inode", "inodes", Unit::Memory, Yardstick::Fixed(200.0, "200 B"), Goal::AtMost(1.0))],
    },
];
