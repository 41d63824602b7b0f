//! The rows of the table: what is measured against what, and how good it has to be.

mod contents;
mod costs;
mod names;
mod programs;
mod services;

use std::path::PathBuf;

use serde::Serialize;

use crate::cpu::Watch;
use crate::job::Job;
use crate::runner::Bench;
use crate::work::{Files, Work};

/// Figures that are measured together, in turns with what they are compared with.
pub(crate) struct Scenario {
    pub(crate) sides: &'static [Side],
    pub(crate) rows: &'static [Spec],
    pub(crate) job: JobOf,
}

/// What a side of a scenario has to do; the runner knows the sizes.
pub(crate) type JobOf = fn(&mut Bench, Side) -> anyhow::Result<Job>;

/// All of them, in the order in which they are measured.
pub(crate) fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    // Those of the services last: their clusters then run beside nothing else that is measured.
    [names::SCENARIOS, programs::SCENARIOS, contents::SCENARIOS, costs::SCENARIOS, services::SCENARIOS]
        .into_iter()
        .flatten()
}

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// Weft, whole or in part.
    Ours,
    /// Weft, where each process has a directory or a file of its own.
    Own,
    /// Weft, where files are empty.
    Empty,
    /// Weft, where only one shard has something to do.
    OneShard,
    /// Weft, with a request for each name.
    OneByOne,
    /// Weft, in pieces of 1 MiB.
    Large,
    /// Weft, without checksums.
    Unchecked,
    /// Weft, through /dev/fuse.
    Dev,
    /// RocksDB alone, with many creates in a batch.
    Rocks,
    /// RocksDB alone, with a batch for each create.
    SingleRocks,
    Net,
    Fuse,
    Local,
    Fio,
    /// What rails carry.
    Rails,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Ours => "Weft",
            Side::Own => "each its own",
            Side::Empty => "empty files",
            Side::OneShard => "one shard",
            Side::OneByOne => "name by name",
            Side::Large => "1 MiB pieces",
            Side::Unchecked => "no checksums",
            Side::Dev => "/dev/fuse",
            Side::Rocks => "RocksDB",
            Side::SingleRocks => "RocksDB, one by one",
            Side::Net => "network ceiling",
            Side::Fuse => "FUSE ceiling",
            Side::Local => "local file system",
            Side::Fio => "fio",
            Side::Rails => "the rails",
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
    pub(crate) goal: Goal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Operations per second.
    Rate,
    /// Bytes per second.
    Bandwidth,
    /// Microseconds that 99 % of the operations took at most.
    P99,
    /// Microseconds of CPU time of the whole machine for each operation.
    Cpu,
    /// CPUs that client and servers use.
    Cpus,
    /// Bytes for each of the things that were counted as operations.
    Memory,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Rate => "op/s",
            Unit::Bandwidth => "B/s",
            Unit::P99 => "us",
            Unit::Cpu => "us CPU",
            Unit::Cpus => "CPUs",
            Unit::Memory => "B",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Yardstick {
    /// A phase that another side measures.
    Side(Side, &'static str),
    /// So much, from elsewhere.
    Fixed(f64, &'static str),
}

/// What the ratio of ours to the yardstick has to be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// So near to 1.
    Within(f64),
    /// The row only informs.
    None,
}

impl Goal {
    /// Whether it is reached; `None` where nothing has to be.
    pub(crate) fn is_reached(self, ratio: f64) -> Option<bool> {
        match self {
            Goal::AtLeast(least) => Some(ratio >= least),
            Goal::AtMost(most) => Some(ratio <= most),
            Goal::Within(distance) => Some((ratio - 1.0).abs() <= distance),
            Goal::None => None,
        }
    }
}

const fn spec(name: &'static str, phase: &'static str, unit: Unit, yardstick: Yardstick, goal: Goal) -> Spec {
    Spec { name, phase, unit, yardstick, goal }
}

/// At least this part of the operations per second that `side` does in the same phase.
const fn rate(name: &'static str, phase: &'static str, side: Side, goal: f64) -> Spec {
    spec(name, phase, Unit::Rate, Yardstick::Side(side, phase), Goal::AtLeast(goal))
}

/// At least this part of its bytes per second.
const fn bandwidth(name: &'static str, phase: &'static str, side: Side, goal: f64) -> Spec {
    spec(name, phase, Unit::Bandwidth, Yardstick::Side(side, phase), Goal::AtLeast(goal))
}

fn files(bench: &mut Bench, side: Side, work: Work, processes: usize) -> anyhow::Result<Job> {
    Ok(at(bench.place(side)?, work, processes))
}

/// CPU time of the whole machine is looked at too.
fn at((place, mut watch): (PathBuf, Watch), work: Work, processes: usize) -> Job {
    watch.0.push(Watch::MACHINE);
    Job::Files(Files { work, place, processes, watch })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::work::random::SYNCED;

    #[test]
    fn every_row_has_its_own_name_and_a_yardstick_that_is_measured() {
        let mut names = BTreeSet::new();
        for scenario in scenarios() {
            assert_eq!(scenario.sides[0], Side::Ours);
            for row in scenario.rows {
                assert!(names.insert(row.name), "{} twice", row.name);
                if let Yardstick::Side(side, _) = row.yardstick {
                    assert!(scenario.sides.contains(&side), "{}: nobody measures {}", row.name, side.name());
                }
            }
        }
        assert_eq!(names.len(), 95);
    }

    #[test]
    fn random_writes_have_goals_only_where_both_sides_are_as_durable() {
        let rows = scenarios().flat_map(|scenario| scenario.rows).filter(|row| row.name.contains("write 4K random"));
        let beside_local = rows.filter(|row| matches!(row.yardstick, Yardstick::Side(Side::Local, _)));
        let (synced, unsynced): (Vec<_>, Vec<_>) = beside_local.partition(|row| row.name.contains("+ fsync"));
        assert!(synced.iter().all(|row| row.phase == SYNCED && row.goal != Goal::None) && synced.len() == 4);
        assert!(unsynced.iter().all(|row| row.phase == "write" && row.goal == Goal::None) && unsynced.len() == 5);
    }

    #[test]
    fn goals_look_in_their_direction() {
        for (goal, ratio, reached) in [
            (Goal::AtLeast(0.5), 0.5, Some(true)),
            (Goal::AtLeast(0.5), 0.49, Some(false)),
            (Goal::AtMost(2.0), 2.0, Some(true)),
            (Goal::AtMost(2.0), 2.1, Some(false)),
            (Goal::Within(0.03), 0.98, Some(true)),
            (Goal::Within(0.03), 1.04, Some(false)),
            (Goal::None, 0.0, None),
        ] {
            assert_eq!(goal.is_reached(ratio), reached, "{goal:?} of {ratio}");
        }
    }
}
