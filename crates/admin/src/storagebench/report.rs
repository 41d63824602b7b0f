//! The result of a run on all its targets. Pure.

use serde::Serialize;
use types::id::{NodeId, TargetId};
use wire::codec::Bytes;
use wire::v1::bench::{BenchLatency, BenchPhase, BenchPlan, BenchRun, BenchSync};

use super::member::{Answer, Member, seconds};
use super::statistics::{merged, percentile};
use super::verdict::{Suspect, judge};

/// How far a target has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Preparing,
    Running,
    Finished,
    Stopped,
    Failed,
    NoRoom,
    /// Its service was restarted meanwhile.
    Lost,
    /// Another run was begun there since it had ended: what it had measured is gone.
    Replaced,
    NoAnswer,
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Asked {
    /// `read` or `write`.
    pub work: &'static str,
    pub random: bool,
    pub block_bytes: u32,
    /// Of each file.
    pub size_bytes: u64,
    /// And files, on each target.
    pub threads: u32,
    /// 0: until the files were written or read once.
    pub duration_ms: u64,
    /// `never`, `end` or `each`.
    pub fsync: &'static str,
    pub buffered: bool,
}

/// How long single blocks took, in microseconds; each at most 6.25 % too high.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// One target's part.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetResult {
    pub target: TargetId,
    pub node: NodeId,
    pub node_alias: String,
    pub pool: String,
    pub state: State,
    /// Why it failed, where it did.
    pub message: String,
    /// Measured, preparations not counted.
    pub seconds: f64,
    pub bytes: u64,
    /// `None` where nothing was measured.
    pub bytes_per_second: Option<f64>,
    pub iops: Option<f64>,
    /// `None` until its end.
    pub latency: Option<Latency>,
    /// The page cache was gone round.
    pub direct: bool,
    pub file_system: String,
    pub mount_point: String,
    pub source: String,
    pub path: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Bytes in each interval of `interval_ms`, the last one perhaps shorter.
    pub interval_ms: u64,
    pub samples: Vec<u64>,
}

/// One end of the range.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Extreme {
    pub bytes_per_second: f64,
    pub target: TargetId,
    pub node_alias: String,
}

/// Over all targets that measured something.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub targets: usize,
    pub minimum: Extreme,
    pub maximum: Extreme,
    pub average_bytes_per_second: f64,
    /// Sum of the targets' rates.
    pub aggregate_bytes_per_second: f64,
    pub aggregate_iops: f64,
    /// Of all blocks of all targets.
    pub latency: Option<Latency>,
}

/// What `weft bench storage --status` shows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub run: u64,
    pub asked: Asked,
    /// Targets that prepare or measure.
    pub running: usize,
    /// Targets that have ended, in whatever way.
    pub finished: usize,
    pub summary: Option<Summary>,
    pub targets: Vec<TargetResult>,
    /// Empty while it runs, and where all is well.
    pub suspects: Vec<Suspect>,
    pub notes: Vec<String>,
}

impl Report {
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running > 0
    }
}

/// Of the run `number`, whose targets are `members`: each of its own run, or without.
pub(super) fn report(number: u64, plan: &BenchPlan, members: &[Member]) -> Report {
    let running = members.iter().filter(|member| member.is_under_way()).count();
    let verdict = if running == 0 { judge(members) } else { Default::default() };
    Report {
        run: number,
        asked: asked(plan),
        running,
        finished: members.len() - running,
        summary: summary(members),
        targets: members.iter().map(result).collect(),
        suspects: verdict.suspects,
        notes: verdict.notes,
    }
}

fn asked(plan: &BenchPlan) -> Asked {
    Asked {
        work: if plan.read { "read" } else { "write" },
        random: plan.random,
        block_bytes: plan.block,
        size_bytes: plan.size,
        threads: plan.threads,
        duration_ms: plan.duration_ms,
        fsync: match plan.sync {
            BenchSync::Never => "never",
            BenchSync::End => "end",
            BenchSync::Each => "each",
        },
        buffered: plan.buffered,
    }
}

fn summary(members: &[Member]) -> Option<Summary> {
    let measured = members.iter().filter_map(|member| Some((member, member.run()?, member.rate()?)));
    let measured: Vec<(&Member, &BenchRun, f64)> = measured.collect();
    let extreme = |(member, _, rate): &(&Member, &BenchRun, f64)| {
        let (target, node_alias) = (member.place.target, member.place.alias.clone());
        Extreme { bytes_per_second: *rate, target, node_alias }
    };
    let aggregate: f64 = measured.iter().map(|(_, _, rate)| rate).sum();
    Some(Summary {
        targets: measured.len(),
        minimum: measured.iter().min_by(|a, b| a.2.total_cmp(&b.2)).map(extreme)?,
        maximum: measured.iter().max_by(|a, b| a.2.total_cmp(&b.2)).map(extreme)?,
        average_bytes_per_second: aggregate / measured.len() as f64,
        aggregate_bytes_per_second: aggregate,
        aggregate_iops: measured.iter().map(|(_, run, rate)| rate / f64::from(run.plan.block)).sum(),
        latency: latency(&merged(measured.iter().map(|(_, run, _)| run.latencies.as_slice()))),
    })
}

fn latency(latencies: &[BenchLatency]) -> Option<Latency> {
    let us = |share: f64| percentile(latencies, share).map(|ns| ns as f64 / 1000.0);
    Some(Latency { p50_us: us(0.5)?, p99_us: us(0.99)?, p999_us: us(0.999)?, max_us: us(1.0)? })
}

fn result(member: &Member) -> TargetResult {
    let (state, message) = match &member.answer {
        Answer::Run(run) => (state(run.phase), text(&run.message)),
        Answer::Lost => (State::Lost, "its service was restarted since the run began, or never heard of it".to_owned()),
        Answer::Replaced => (State::Replaced, "measured again meanwhile by another run".to_owned()),
        Answer::Silent(why) => (State::NoAnswer, why.clone()),
    };
    let (run, rate) = (member.run(), member.rate());
    let of_place = |of: fn(&BenchRun) -> &Bytes| run.map(|run| text(of(run))).unwrap_or_default();
    let block = run.map_or(0, |run| u64::from(run.plan.block));
    TargetResult {
        target: member.place.target,
        node: member.place.node,
        node_alias: member.place.alias.clone(),
        pool: member.place.pool.clone(),
        state,
        message,
        seconds: run.map(seconds).unwrap_or_default(),
        bytes: run.map_or(0, |run| run.blocks.saturating_mul(block)),
        bytes_per_second: rate,
        iops: rate.map(|rate| rate / block as f64),
        latency: run.and_then(|run| latency(&run.latencies)),
        direct: run.is_some_and(|run| run.direct),
        file_system: of_place(|run| &run.place.file_system),
        mount_point: of_place(|run| &run.place.mount_point),
        source: of_place(|run| &run.place.source),
        path: of_place(|run| &run.place.path),
        free_bytes: run.map_or(0, |run| run.place.free_bytes),
        total_bytes: run.map_or(0, |run| run.place.total_bytes),
        interval_ms: run.map_or(0, |run| run.interval_ms),
        samples: run
            .map(|run| run.samples.iter().map(|blocks| blocks.saturating_mul(block)).collect())
            .unwrap_or_default(),
    }
}

fn state(phase: BenchPhase) -> State {
    match phase {
        BenchPhase::Preparing => State::Preparing,
        BenchPhase::Running => State::Running,
        BenchPhase::Finished => State::Finished,
        BenchPhase::Stopped => State::Stopped,
        BenchPhase::Failed => State::Failed,
        BenchPhase::NoRoom => State::NoRoom,
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{MIB, member, members, plan};
    use super::*;

    /// Three targets of 100, 200 and 300 MiB/s, and one that does not answer.
    fn targets(phase: BenchPhase) -> Vec<Member> {
        let mut members = members(3, |target, run| {
            (run.phase, run.blocks) = (phase, 1000 * u64::from(target));
        });
        members.push(member(4, Answer::Silent("it is away".to_owned())));
        members
    }

    #[test]
    fn the_range_names_node_and_target() {
        let report = report(7, &plan(), &targets(BenchPhase::Finished));
        assert_eq!((report.running, report.finished), (0, 4));
        let summary = report.summary.expect("measured");
        let mib = |rate: f64| rate / MIB as f64;
        assert_eq!((summary.minimum.target, mib(summary.minimum.bytes_per_second)), (TargetId(1), 100.0));
        assert_eq!((summary.maximum.target, mib(summary.maximum.bytes_per_second)), (TargetId(3), 300.0));
        assert_eq!(summary.minimum.node_alias, "n1");
        assert_eq!((mib(summary.average_bytes_per_second), mib(summary.aggregate_bytes_per_second)), (200.0, 600.0));
        assert_eq!((summary.targets, summary.aggregate_iops), (3, 600.0));
        assert_eq!(summary.latency.map(|latency| latency.p99_us), Some(10_000.0));
        assert_eq!((report.targets[3].state, report.targets[3].bytes_per_second), (State::NoAnswer, None));
        assert_eq!(report.targets[0].samples[0], 10 * MIB);
    }

    #[test]
    fn there_is_no_verdict_before_the_end() {
        let running = report(7, &plan(), &targets(BenchPhase::Running));
        assert_eq!((running.running, running.finished), (3, 1));
        assert!(running.is_running() && running.suspects.is_empty() && running.notes.is_empty());
        assert!(!report(7, &plan(), &targets(BenchPhase::Finished)).suspects.is_empty());
        let preparing = report(
            7,
            &plan(),
            &members(2, |_, run| {
                (run.phase, run.blocks, run.elapsed_us) = (BenchPhase::Preparing, 0, 0);
            }),
        );
        assert_eq!((preparing.running, preparing.summary), (2, None));
    }
}
