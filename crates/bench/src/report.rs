//! The table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::Options;
use crate::cpu::Who;
use crate::job::Measured;
use crate::plan::{Goal, Side, Spec, Unit, Yardstick};
use crate::statistics::{median, range};

/// Everything that was measured. `Display` is the table for people.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub rows: Vec<Row>,
    pub rounds: u32,
    pub quick: bool,
    pub cpus: usize,
    /// Of the last minute, before anything was measured: others use the machine where it is far from 0.
    pub load: Option<f64>,
}

/// One line of the table. Figures are medians.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: &'static str,
    /// `op/s`, `B/s`, or what the name says is measured.
    pub unit: &'static str,
    pub ours: Option<f64>,
    pub yardstick: Option<f64>,
    /// Whose figure the yardstick is.
    pub yardstick_name: String,
    /// Of the two medians.
    pub ratio: Option<f64>,
    /// The least and the greatest of the rounds' own ratios.
    pub ratio_range: Option<(f64, f64)>,
    pub goal: Goal,
    /// Whether the goal is reached; `None` where there is none, or it was not measured.
    pub pass: Option<bool>,
    /// Why there are no figures.
    pub failure: Option<String>,
    /// Microseconds per operation (per MiB, where the unit is bytes), medians.
    pub cpu_us: BTreeMap<Who, f64>,
    pub yardstick_cpu_us: BTreeMap<Who, f64>,
    /// Round by round.
    pub series: Vec<Series>,
}

/// One round of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub ours: f64,
    pub yardstick: f64,
    pub cpu_us: BTreeMap<Who, f64>,
    pub yardstick_cpu_us: BTreeMap<Who, f64>,
}

impl Report {
    /// Whether a row has no figures. Of one that only lists, all of them.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.failure.is_some())
    }
}

impl Series {
    /// # Errors
    /// Why there is no figure of the one or the other.
    pub(crate) fn of_round(
        spec: &Spec,
        round: &BTreeMap<Side, Result<Vec<Measured>, String>>,
    ) -> Result<Series, String> {
        let find = |side: Side, phase: &str| {
            let measured = round.get(&side).ok_or("not measured")?.as_ref().map_err(Clone::clone)?;
            measured.iter().find(|measured| measured.phase == phase).ok_or(format!("{}: no {phase}", side.name()))
        };
        let ours = find(Side::Ours, spec.phase)?;
        let (yardstick, yardstick_cpu_us) = match spec.yardstick {
            Yardstick::Fixed(figure, _) => (figure, BTreeMap::new()),
            Yardstick::Side(side, phase) => {
                let measured = find(side, phase)?;
                (figure(spec, measured)?, cpu_us(spec, measured))
            }
        };
        Ok(Series { ours: figure(spec, ours)?, yardstick, cpu_us: cpu_us(spec, ours), yardstick_cpu_us })
    }
}

/// # Errors
/// Where it was not measured.
fn figure(spec: &Spec, measured: &Measured) -> Result<f64, String> {
    let cpu = |whose: &[Who]| -> f64 { whose.iter().filter_map(|who| measured.cpu_us.get(who)).sum() };
    let operations = measured.operations.max(1) as f64;
    Ok(match spec.unit {
        Unit::Rate => measured.operations as f64 / measured.seconds,
        Unit::Bandwidth => measured.bytes as f64 / measured.seconds,
        Unit::P99 => measured.p99_us.ok_or_else(|| format!("no p99 of {} was measured", measured.phase))?,
        Unit::Cpu => cpu(&[Who::Machine]) / operations,
        Unit::Cpus => cpu(&[Who::Client, Who::Server]) / 1e6 / measured.seconds,
        Unit::Memory => measured.bytes as f64 / operations,
    })
}

/// Of each operation, or MiB.
fn cpu_us(spec: &Spec, measured: &Measured) -> BTreeMap<Who, f64> {
    let count = match spec.unit {
        Unit::Bandwidth => measured.bytes as f64 / f64::from(1 << 20),
        _ => measured.operations.max(1) as f64,
    };
    measured.cpu_us.iter().map(|(&who, cpu)| (who, cpu / count)).collect()
}

impl Row {
    /// # Panics
    /// Never: figures are missing only together with a reason.
    pub(crate) fn new(spec: &Spec, series: &[Series], failure: Option<String>) -> Self {
        let column = |of: fn(&Series) -> f64| series.iter().map(of).collect::<Vec<_>>();
        let (ours, yardstick) = (median(&column(|round| round.ours)), median(&column(|round| round.yardstick)));
        let ratio = ours.zip(yardstick).map(|(ours, yardstick)| ours / yardstick);
        Self {
            name: spec.name,
            unit: spec.unit.name(),
            ours,
            yardstick,
            yardstick_name: match spec.yardstick {
                Yardstick::Fixed(_, name) => name.to_owned(),
                Yardstick::Side(side, _) => side.name().to_owned(),
            },
            ratio,
            ratio_range: range(&column(|round| round.ours / round.yardstick)),
            goal: spec.goal,
            pass: ratio.and_then(|ratio| spec.goal.is_reached(ratio)),
            failure,
            cpu_us: cpu_medians(series, |round| &round.cpu_us),
            yardstick_cpu_us: cpu_medians(series, |round| &round.yardstick_cpu_us),
            series: series.to_vec(),
        }
    }

    fn cells(&self) -> [String; 10] {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| human(value, self.unit));
        let cpu = |who| self.cpu_us.get(&who).map_or("-".to_owned(), |cpu| format!("{cpu:.1}"));
        let of_yardstick: f64 = self.yardstick_cpu_us.values().sum();
        let yardstick_cpu = if of_yardstick > 0.0 { format!("{of_yardstick:.1}") } else { "-".to_owned() };
        let spread = self.ratio_range.map_or(String::new(), |(least, most)| {
            format!(" ({}..{})", percent(least).trim_end_matches('%'), percent(most).trim_end_matches('%'))
        });
        let verdict = match self.pass {
            Some(true) => "pass",
            Some(false) => "MISS",
            None => "-",
        };
        [
            self.name.to_owned(),
            figure(self.ours),
            format!("{} {}", figure(self.yardstick), self.yardstick_name),
            self.ratio.map_or("-".to_owned(), percent) + &spread,
            match self.goal {
                Goal::AtLeast(least) => format!(">={}", percent(least)),
                Goal::AtMost(most) => format!("<={}", percent(most)),
                Goal::Within(distance) => format!("100+-{}", percent(distance)),
                Goal::None => "-".to_owned(),
            },
            verdict.to_owned(),
            cpu(Who::App),
            cpu(Who::Client),
            cpu(Who::Server),
            yardstick_cpu,
        ]
    }
}

fn cpu_medians(series: &[Series], of: fn(&Series) -> &BTreeMap<Who, f64>) -> BTreeMap<Who, f64> {
    let mut medians = BTreeMap::new();
    for who in [Who::App, Who::Client, Who::Server] {
        let values: Vec<f64> = series.iter().filter_map(|round| of(round).get(&who).copied()).collect();
        if let Some(median) = median(&values) {
            medians.insert(who, median);
        }
    }
    medians
}

fn percent(ratio: f64) -> String {
    if ratio.abs() < 0.0995 { format!("{:.1}%", ratio * 100.0) } else { format!("{:.0}%", ratio * 100.0) }
}

/// `1.25 M/s`, `310 MB/s`.
fn human(value: f64, unit: &str) -> String {
    if unit.starts_with("us") {
        return format!("{value:.0} {unit}");
    }
    let (scaled, prefix) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let digits = match scaled {
        scaled if scaled < 0.1 => 4,
        scaled if scaled < 10.0 => 2,
        scaled => usize::from(scaled < 100.0),
    };
    format!("{scaled:.digits$} {prefix}{}", unit.trim_start_matches("op"))
}

impl Report {
    pub(crate) fn begin(options: &Options) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Self {
            rows: Vec::new(),
            rounds: options.rounds(),
            quick: options.quick,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load: load.and_then(|load| load.split(' ').next()?.parse().ok()),
        }
    }

    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "row",
            "ours",
            "yardstick",
            "ratio (range)",
            "goal",
            "",
            "app us",
            "client us",
            "server us",
            "yardstick us",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for line in &lines {
            let cell = |(column, cell): (usize, &String)| match column {
                0 | 2 | 5 => format!("{cell:<0$}", widths[column]),
                _ => format!("{cell:>0$}", widths[column]),
            };
            let cells: Vec<String> = line.iter().enumerate().map(cell).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        for row in self.rows.iter().filter(|row| row.failure.is_some()) {
            writeln!(f, "{}: not measured: {}", row.name, row.failure.as_deref().unwrap_or_default())?;
        }
        let passed = self.rows.iter().filter(|row| row.pass == Some(true)).count();
        let goals = self.rows.iter().filter(|row| row.goal != Goal::None).count();
        write!(f, "{passed} of {goals} goals reached; medians of {} rounds", self.rounds)?;
        writeln!(f, "{}; CPU us per operation, of rows in B/s per MiB", if self.quick { ", short ones" } else { "" })?;
        match self.load {
            Some(load) if load > 0.5 => {
                writeln!(f, "Beware: others were using this machine ({load} of {} CPUs) before it began", self.cpus)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::scenarios;

    fn measured(phase: &str, operations: u64, seconds: f64) -> Vec<Measured> {
        let cpu_us = BTreeMap::from([(Who::Server, operations as f64 * 2.0)]);
        vec![Measured { phase: phase.to_owned(), operations, bytes: 0, seconds, cpu_us, p99_us: None }]
    }

    #[test]
    fn a_row_is_the_ratio_of_medians() {
        let spec = &scenarios().next().expect("a row").rows[0];
        let series: Vec<Series> = [(80, 100), (10, 100), (75, 90)]
            .map(|(ours, yardstick)| {
                let round = BTreeMap::from([
                    (Side::Ours, Ok(measured("create", ours, 1.0))),
                    (Side::Rocks, Ok(measured("create", yardstick, 1.0))),
                ]);
                Series::of_round(spec, &round).expect("both measured")
            })
            .into();
        let row = Row::new(spec, &series, None);
        assert_eq!((row.ours, row.yardstick, row.ratio), (Some(75.0), Some(100.0), Some(0.75)));
        assert_eq!((row.pass, row.cpu_us[&Who::Server]), (Some(true), 2.0));
        assert_eq!(row.ratio_range, Some((0.1, 75.0 / 90.0)));
    }

    #[test]
    fn what_failed_is_said() {
        let spec = &scenarios().next().expect("a row").rows[0];
        let round = BTreeMap::from([(Side::Ours, Err("Weft: no disk".to_owned()))]);
        let failure = Series::of_round(spec, &round).expect_err("it failed");
        let report =
            Report { rows: vec![Row::new(spec, &[], Some(failure))], rounds: 3, quick: true, cpus: 2, load: None };
        let text = report.to_string();
        assert!(text.contains("shard create: not measured: Weft: no disk"), "{text}");
        assert!(text.contains("0 of 1 goals"), "{text}");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(human(1_234_567.0, "op/s"), "1.23 M/s");
        assert_eq!(human(532.4, "op/s"), "532 /s");
        assert_eq!(human(1.5e9, "B/s"), "1.50 GB/s");
        assert_eq!(human(12_345.6, "us CPU"), "12346 us CPU");
        assert_eq!(human(0.0031, "CPUs"), "0.0031 CPUs");
        assert_eq!((percent(0.85), percent(2.0), percent(0.004)), ("85%".into(), "200%".into(), "0.4%".into()));
    }
}
