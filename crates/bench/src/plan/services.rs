//! What needs clusters of its own.

use super::{Scenario, Side, rate};
use crate::job::Job;
use crate::runner::{Bench, Which};
use crate::side::shards::{Crowd, Task};

pub(super) const SCENARIOS: &[Scenario] = &[
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
