//! Made-up targets for tests.

use types::id::{GroupId, NodeId, TargetId};
use wire::codec::Bytes;
use wire::v1::bench::{BenchLatency, BenchPhase, BenchPlace, BenchPlan, BenchRun, BenchSync};

use super::member::{Answer, Member};
use crate::targets::Place;

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn plan() -> BenchPlan {
    BenchPlan {
        read: false,
        random: false,
        block: MIB as u32,
        size: 1000 * MIB,
        threads: 1,
        duration_ms: 0,
        sync: BenchSync::End,
        buffered: false,
        use_reserve: false,
    }
}

/// A healthy target of its own disk on node 1: 100 MiB/s for ten seconds, on ext4.
pub(super) fn run(target: u32) -> BenchRun {
    let text = |text: String| Bytes(text.into_bytes());
    BenchRun {
        run: 7,
        plan: plan(),
        targets: vec![TargetId(target)],
        phase: BenchPhase::Finished,
        message: text(String::new()),
        direct: true,
        elapsed_us: 10_000_000,
        blocks: 1000,
        latencies: vec![BenchLatency { at_most_ns: 10_000_000, count: 1000 }],
        interval_ms: 100,
        samples: vec![10; 100],
        place: BenchPlace {
            path: text(format!("/data/t{target}")),
            file_system: text("ext4".to_owned()),
            mount_point: text(format!("/data/t{target}")),
            source: text(format!("/dev/sd{target}")),
            device: u64::from(target),
            on_root: false,
            read_only: false,
            total_bytes: 1000 * MIB,
            free_bytes: 900 * MIB,
            reserve_bytes: 16 * MIB,
            total_inodes: 1000,
            free_inodes: 900,
        },
    }
}

pub(super) fn member(target: u32, answer: Answer) -> Member {
    let place = Place {
        target: TargetId(target),
        group: GroupId(target),
        node: NodeId(1),
        alias: "n1".to_owned(),
        pool: "default".to_owned(),
        online: true,
    };
    Member { place, answer }
}

pub(super) fn with(target: u32, change: impl FnOnce(&mut BenchRun)) -> Member {
    let mut run = run(target);
    change(&mut run);
    member(target, Answer::Run(Box::new(run)))
}

/// Targets 1 to `count`, each as `change` makes it.
pub(super) fn members(count: u32, change: impl Fn(u32, &mut BenchRun)) -> Vec<Member> {
    (1..=count).map(|target| with(target, |run| change(target, run))).collect()
}
