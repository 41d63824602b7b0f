//! The table.

use std::fmt;

use serde::Serialize;

use super::phase::{Group, Phase};
use super::score::{geometric_mean, total};
use super::{Options, SECONDS_OF_LIST};
use crate::job::Measured;
use crate::store::Place;

/// What was measured. `Display` is the table for people.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The folder that was made for it, and is gone.
    pub place: String,
    pub processes: u32,
    /// That the writing phases were to go on.
    pub seconds: u32,
    /// Most bytes of ior-easy, and of ior-hard, that were asked for.
    pub size_bytes: u64,
    /// Most files of each process in mdtest-easy, and in mdtest-hard, that were asked for.
    pub files: u64,
    /// The page cache was to stay between phases.
    pub warm: bool,
    pub phases: Vec<PhaseResult>,
    /// Geometric mean, GiB/s.
    pub bandwidth: f64,
    /// Geometric mean, thousands of operations per second.
    pub metadata: f64,
    /// The root of their product.
    pub score: f64,
    /// Every writing phase went on for as long as the IO500 list wants.
    pub long_enough: bool,
    pub notes: Vec<String>,
}

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseResult {
    pub name: &'static str,
    pub group: Group,
    /// GiB/s or thousands of operations per second, as the group says.
    pub value: f64,
    pub seconds: f64,
    pub operations: u64,
    pub bytes: u64,
}

impl PhaseResult {
    fn unit(&self) -> &'static str {
        match self.group {
            Group::Bandwidth => "GiB/s",
            Group::Metadata | Group::Unscored => "kIOPS",
        }
    }
}

impl Report {
    pub(crate) fn begin(options: &Options, place: &Place) -> Self {
        let Options { processes, seconds, size, files, warm } = *options;
        let warmth = "--warm: the page cache of this host stayed, so reads may come from memory";
        Self {
            place: place.to_string(),
            processes,
            seconds,
            size_bytes: size.0,
            files,
            warm,
            phases: Vec::new(),
            bandwidth: 0.0,
            metadata: 0.0,
            score: 0.0,
            long_enough: seconds >= SECONDS_OF_LIST,
            notes: warm.then(|| warmth.to_owned()).into_iter().collect(),
        }
    }

    /// Said once.
    pub(crate) fn caches_stayed(&mut self, error: &anyhow::Error) {
        let note = format!("the page cache of this host stayed, so reads may come from memory: {error:#}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(crate) fn add(&mut self, phase: Phase, measured: &Measured) {
        let Measured { operations, bytes, seconds, .. } = *measured;
        let value = match phase.group() {
            Group::Bandwidth => bytes as f64 / f64::from(1 << 30) / seconds,
            Group::Metadata | Group::Unscored => operations as f64 / 1e3 / seconds,
        };
        if phase.makes() && seconds < f64::from(self.seconds) {
            self.long_enough = false;
            let (name, wanted) = (phase.name(), self.seconds);
            self.notes.push(format!(
                "{name} ended after {seconds:.1} s of {wanted} s: its bound was reached (--size, --files, or its part of \
                 the free space or inodes)"
            ));
        }
        self.phases.push(PhaseResult { name: phase.name(), group: phase.group(), value, seconds, operations, bytes });
    }

    /// After the last phase.
    pub(crate) fn end(&mut self) {
        let mean = |group| {
            let values: Vec<f64> =
                self.phases.iter().filter(|phase| phase.group == group).map(|phase| phase.value).collect();
            geometric_mean(&values).unwrap_or(0.0)
        };
        (self.bandwidth, self.metadata) = (mean(Group::Bandwidth), mean(Group::Metadata));
        self.score = total(self.bandwidth, self.metadata);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} processes", self.place, self.processes)?;
        for phase in &self.phases {
            let (name, value, unit, seconds) = (phase.name, phase.value, phase.unit(), phase.seconds);
            let unscored = if phase.group == Group::Unscored { "  (not in the score)" } else { "" };
            writeln!(f, "{name:<20} {value:>12.4} {unit:<5}  {seconds:>8.2} s{unscored}")?;
        }
        let Self { bandwidth, metadata, score, .. } = self;
        writeln!(f, "bandwidth {bandwidth:.4} GiB/s, metadata {metadata:.4} kIOPS, score {score:.4}")?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        if !self.long_enough {
            writeln!(f, "note: a result that the IO500 list takes needs {SECONDS_OF_LIST} s for each writing phase")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use conf::units::Size;

    use super::*;
    use crate::io500::Subject;
    use crate::io500::phase::PHASES;

    fn report(seconds: u32) -> Report {
        report_of(Options { processes: 2, seconds, size: Size(1), files: 1, warm: false })
    }

    fn report_of(options: Options) -> Report {
        let place = Subject::Directory("/there".into()).place("x").expect("a place");
        Report::begin(&options, &place)
    }

    fn measured(operations: u64, bytes: u64, seconds: f64) -> Measured {
        Measured { phase: String::new(), operations, bytes, seconds, cpu_us: Default::default(), p99_us: None }
    }

    #[test]
    fn phases_count_in_their_groups_and_the_random_one_in_none() {
        let mut report = report(300);
        for &phase in PHASES {
            report.add(phase, &measured(600_000, 600 << 30, 300.0));
        }
        report.end();
        assert!((report.bandwidth - 2.0).abs() < 1e-9 && (report.metadata - 2.0).abs() < 1e-9);
        assert!((report.score - 2.0).abs() < 1e-9 && report.long_enough);
        let count = |group| report.phases.iter().filter(|phase| phase.group == group).count();
        assert_eq!((count(Group::Bandwidth), count(Group::Metadata), count(Group::Unscored)), (4, 8, 1));
        let text = report.to_string();
        assert!(text.contains("score 2.0000") && !text.contains("note:"), "{text}");
    }

    #[test]
    fn a_warm_result_is_told_from_a_cold_one() {
        let warm = report_of(Options { processes: 2, seconds: 300, size: Size(7), files: 5, warm: true });
        assert!(warm.to_string().contains("note: --warm"), "{warm}");
        let json = serde_json::to_value(&warm).expect("words");
        assert_eq!((&json["warm"], &json["size_bytes"], &json["files"]), (&true.into(), &7.into(), &5.into()));
        assert!(!report(300).to_string().contains("warm"));
    }

    #[test]
    fn what_was_too_short_is_said() {
        let mut short = report(10);
        short.end();
        assert!(short.to_string().contains("needs 300 s"), "{short}");
        let mut bounded = report(300);
        bounded.add(Phase::MdtestEasyWrite, &measured(10, 0, 2.0));
        bounded.add(Phase::MdtestEasyStat, &measured(10, 0, 2.0));
        bounded.end();
        assert!(!bounded.long_enough);
        assert_eq!(bounded.notes.len(), 1, "{:?}", bounded.notes);
    }
}
