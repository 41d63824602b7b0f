//! The table: a column for each peer, and each peer's ratio to the local file system of the same run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::kind::Kind;
use super::plan::{Row, Unit};
use crate::Options;
use crate::cpu::Who;
use crate::job::Measured;
use crate::statistics::median;

/// Everything that was measured. `Display` is the table for people.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The columns.
    pub peers: Vec<Participant>,
    pub rows: Vec<Line>,
    /// What went wrong, a line each.
    pub failures: Vec<String>,
    /// Who is left out, and what there is to know beside, a line each.
    pub notes: Vec<String>,
    pub rounds: u32,
    pub quick: bool,
    pub cpus: usize,
    /// Of the last minute, before anything was measured.
    pub load: Option<f64>,
    /// Rows and columns are all there is.
    #[serde(skip)]
    listed_only: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Participant {
    pub kind: Kind,
    /// What the programs of a peer say.
    pub version: String,
}

/// One row. A peer that failed in it has no figure.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    /// `MB/s` (millions of bytes), or what is counted per second.
    pub unit: &'static str,
    pub figures: BTreeMap<Kind, Figure>,
    #[serde(skip)]
    row: Row,
}

/// Medians over the rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    pub value: f64,
    /// To the local file system's; not where that is missing, and not of itself.
    pub ratio: Option<f64>,
    /// Microseconds per operation (of the 1 MiB rows: per MiB). `machine` is all of this machine; the others are what of it
    /// is in the processes of the workload, of the mount and of the servers.
    pub cpu_us: BTreeMap<Who, f64>,
    /// Round by round.
    pub series: Vec<f64>,
}

impl Report {
    pub(crate) fn begin(options: &Options) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Self {
            peers: Vec::new(),
            rows: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
            rounds: options.rounds(),
            quick: options.quick,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load: load.and_then(|load| load.split(' ').next()?.parse().ok()),
            listed_only: options.list,
        }
    }

    /// Whether some peer did not start, or some row is without its figure.
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Line {
    /// From what each peer measured, round by round.
    pub(crate) fn new(row: Row, measured: &BTreeMap<Kind, Vec<Measured>>) -> Self {
        let figures = measured.iter().filter_map(|(&kind, rounds)| Some((kind, Figure::new(row.unit, rounds)?)));
        let mut line = Self { name: row.name, unit: row.unit.name(), figures: figures.collect(), row };
        if let Some(local) = line.figures.get(&Kind::Local).map(|figure| figure.value) {
            let others = line.figures.iter_mut().filter(|(kind, _)| **kind != Kind::Local);
            others.for_each(|(_, figure)| figure.ratio = Some(figure.value / local));
        }
        line
    }
}

impl Figure {
    fn new(unit: Unit, rounds: &[Measured]) -> Option<Self> {
        let value = |measured: &Measured| match unit {
            Unit::Megabytes => measured.bytes as f64 / 1e6 / measured.seconds,
            Unit::Operations | Unit::Entries | Unit::Files => measured.operations as f64 / measured.seconds,
        };
        let series: Vec<f64> = rounds.iter().map(value).collect();
        let cpu = |who: Who| {
            let of_round = |measured: &Measured| Some(measured.cpu_us.get(&who)? / measured.operations.max(1) as f64);
            Some((who, median(&rounds.iter().filter_map(of_round).collect::<Vec<_>>())?))
        };
        let whose = [Who::App, Who::Client, Who::Server, Who::Machine];
        Some(Self { value: median(&series)?, ratio: None, cpu_us: whose.into_iter().filter_map(cpu).collect(), series })
    }
}

impl Figure {
    /// The sum of those that were counted, if any was.
    fn cpu_of(&self, parts: &[Who]) -> Option<f64> {
        let counted: Vec<f64> = parts.iter().filter_map(|who| self.cpu_us.get(who)).copied().collect();
        (!counted.is_empty()).then(|| counted.iter().sum())
    }
}

/// What the table has below its rows: whose CPU time, in words and as it was counted.
const CPU_LINES: [(&str, &[Who]); 2] =
    [("mount and servers", &[Who::Client, Who::Server]), ("the whole machine", &[Who::Machine])];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listed_only {
            for line in &self.rows {
                writeln!(f, "{}, {}", line.name, line.unit)?;
            }
        } else {
            write_table(f, &self.table())?;
        }
        for participant in self.peers.iter().filter(|participant| !participant.version.is_empty()) {
            writeln!(f, "{}: {}", participant.kind.title(), participant.version)?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        for failure in &self.failures {
            writeln!(f, "FAILED: {failure}")?;
        }
        if self.listed_only {
            return Ok(());
        }
        let rounds = if self.rounds == 1 { "one round".into() } else { format!("medians of {} rounds", self.rounds) };
        let quick = if self.quick { ", short ones" } else { "" };
        writeln!(f, "{rounds}{quick}; percentages: of the local file system in this run")?;
        match self.load {
            Some(load) if load > 0.5 => {
                writeln!(f, "Beware: others were using this machine ({load} of {} CPUs) before it began", self.cpus)
            }
            _ => Ok(()),
        }
    }
}

impl Report {
    /// Cells, line by line; the first of each is its name. Of each peer but the first a figure and a ratio.
    fn table(&self) -> Vec<Vec<String>> {
        let kinds: Vec<Kind> = self.peers.iter().map(|participant| participant.kind).collect();
        let line = |name: String, cell: &dyn Fn(Kind) -> [String; 2]| {
            let cells = kinds.iter().flat_map(|&kind| cell(kind));
            std::iter::once(name).chain(cells).collect::<Vec<_>>()
        };
        let mut lines = vec![line("row".into(), &|kind| [kind.title().into(), String::new()])];
        for row in &self.rows {
            let cell = |kind| match row.figures.get(&kind) {
                Some(figure) => [number(figure.value), figure.ratio.map_or(String::new(), percent)],
                None if kind.cannot(&row.row).is_some() => ["-".into(), String::new()],
                None => ["failed".into(), String::new()],
            };
            lines.push(line(format!("{}, {}", row.name, row.unit), &cell));
        }
        for (whose, parts) in CPU_LINES {
            for row in self.rows.iter().filter(|line| line.row.cpu) {
                let (unit, scale) = if row.unit == Unit::Megabytes.name() { ("ms/MiB", 1e3) } else { ("us/op", 1.0) };
                let cell = |kind| {
                    let used = row.figures.get(&kind).and_then(|figure| figure.cpu_of(parts));
                    [used.map_or("-".into(), |used| number(used / scale)), String::new()]
                };
                lines.push(line(format!("CPU of {whose}: {}, {unit}", row.name), &cell));
            }
        }
        lines
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, lines: &[Vec<String>]) -> fmt::Result {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let mut text = format!("{:<1$}", line[0], widths[0]);
        for (cell, &width) in line.iter().zip(&widths).skip(1).filter(|(_, width)| **width > 0) {
            text += &format!("  {cell:>width$}");
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

/// `1,234,567`, `12.3`, `0.45`.
fn number(value: f64) -> String {
    if value < 9.995 {
        return format!("{value:.2}");
    }
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `53%`, `0.7%`.
fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: Row = Row { name: "create x1", unit: Unit::Operations, cpu: true, direct_writes: false };
    const WRITE: Row = Row { name: "write 1M x1", unit: Unit::Megabytes, cpu: true, direct_writes: false };

    fn measured(operations: u64, bytes: u64, machine_us: f64) -> Measured {
        let cpu_us = BTreeMap::from([(Who::Machine, machine_us), (Who::App, machine_us / 2.0)]);
        Measured { phase: "make".into(), operations, bytes, seconds: 2.0, cpu_us, p99_us: None }
    }

    fn report(rows: Vec<Line>) -> Report {
        let peers = [Kind::Local, Kind::JuiceFs].map(|kind| Participant { kind, version: String::new() }).into();
        let (failures, notes) = (Vec::new(), vec!["MooseFS is left out: no mfsmaster in PATH".into()]);
        Report { peers, rows, failures, notes, rounds: 1, quick: false, cpus: 2, load: None, listed_only: false }
    }

    #[test]
    fn a_figure_is_the_median_and_its_ratio_is_to_the_local_one() {
        let rounds = |values: [u64; 3]| values.map(|value| measured(value, 0, 2.0 * value as f64)).into();
        let line = Line::new(
            CREATE,
            &BTreeMap::from([(Kind::Local, rounds([200, 2_000, 220])), (Kind::JuiceFs, rounds([11, 10, 1]))]),
        );
        let (local, juicefs) = (&line.figures[&Kind::Local], &line.figures[&Kind::JuiceFs]);
        assert_eq!((local.value, local.ratio, local.cpu_us[&Who::Machine]), (110.0, None, 2.0));
        assert_eq!((juicefs.value, juicefs.ratio), (5.0, Some(5.0 / 110.0)));
        assert_eq!(juicefs.series, [5.5, 5.0, 0.5]);
    }

    #[test]
    fn the_table_has_a_column_for_each_and_says_who_failed() {
        let mut write = BTreeMap::from([
            (Kind::Local, vec![measured(2_000, 2_744_000_000, 1.8e6)]),
            (Kind::JuiceFs, vec![measured(2_000, 1_450_000_000, 4.76e6)]),
        ]);
        let counted = write.get_mut(&Kind::JuiceFs).expect("it is there");
        counted[0].cpu_us.extend([(Who::Client, 2.0e6), (Who::Server, 0.5e6)]);
        let create = BTreeMap::from([(Kind::Local, vec![measured(226_722, 0, 1.0)])]);
        let mut report = report(vec![Line::new(WRITE, &write), Line::new(CREATE, &create)]);
        assert!(!report.has_failed());
        report.failures.push("JuiceFS, create x1: no space".into());
        assert!(report.has_failed());
        let text = report.to_string();
        let has = |words: &[&str]| text.lines().any(|line| line.split_ascii_whitespace().eq(words.iter().copied()));
        assert!(has(&["row", "local", "JuiceFS"]), "{text}");
        assert!(has(&["write", "1M", "x1,", "MB/s", "1,372", "725", "53%"]), "{text}");
        assert!(has(&["create", "x1,", "op/s", "113,361", "failed"]), "{text}");
        assert!(has(&["CPU", "of", "mount", "and", "servers:", "write", "1M", "x1,", "ms/MiB", "-", "1.25"]), "{text}");
        assert!(
            has(&["CPU", "of", "the", "whole", "machine:", "write", "1M", "x1,", "ms/MiB", "0.90", "2.38"]),
            "{text}"
        );
        assert!(
            text.contains("FAILED: JuiceFS, create x1: no space") && text.contains("MooseFS is left out"),
            "{text}"
        );
    }

    #[test]
    fn who_takes_no_part_has_not_failed() {
        let row = Row { direct_writes: true, ..CREATE };
        let mut report = report(vec![Line::new(row, &BTreeMap::new())]);
        report.peers.push(Participant { kind: Kind::Passthrough, version: String::new() });
        let text = report.to_string();
        let last = text.lines().find(|line| line.starts_with("create x1, op/s")).expect("a line");
        assert!(last.split_ascii_whitespace().skip(3).eq(["failed", "failed", "-"]), "{text}");
    }

    #[test]
    fn without_the_local_figure_there_is_no_ratio() {
        let line = Line::new(CREATE, &BTreeMap::from([(Kind::Weft, vec![measured(10, 0, 1.0)])]));
        assert_eq!(line.figures[&Kind::Weft].ratio, None);
        assert!(Line::new(CREATE, &BTreeMap::from([(Kind::Weft, Vec::new())])).figures.is_empty());
    }

    #[test]
    fn figures_are_short() {
        let texts = [0.4567, 9.996, 45.67, 99.96, 1_000.0, 1_234_567.8].map(number);
        assert_eq!(texts, ["0.46", "10.0", "45.7", "100", "1,000", "1,234,568"]);
        assert_eq!([0.0066, 0.0996, 0.5349, 3.7].map(percent), ["0.7%", "10%", "53%", "370%"]);
    }
}
