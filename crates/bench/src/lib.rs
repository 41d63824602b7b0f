//! `weft bench`: one table of what Weft does, against what this machine can do, measured in the same run.
//!
//! A figure alone says nothing on machines that differ by tens of percent from hour to hour. So each row has a
//! yardstick that is measured in turns with it (ours, yardstick, ours, yardstick, ...), and a goal for the ratio of
//! their medians. `docs/benchmarks.md` says what each row means and how it can mislead.
//!
//! - [`plan`]: the rows, their sides and goals, as data.
//! - [`side`]: who is measured: a cluster, the FUSE ceiling, the network ceiling, RocksDB alone, the shard alone.
//! - [`work`]: what is done: functions over a directory, the same for every file system, run by forked processes that
//!   start together, make real system calls, and check that these did what they should.
//! - [`job`]: each measurement is a process of its own, which prints what it measured.
//! - [`cpu`]: CPU time of processes; [`report`]: the table.
//! - [`peers`]: the same work on other file systems beside ours; a bench of its own.
//! - [`io500`]: the phases of IO500, on any directory or through the client core; a bench of its own.

mod cpu;
mod folder;
mod interrupt;
pub mod io500;
mod job;
mod options;
pub mod peers;
mod plan;
mod report;
mod runner;
mod side;
mod statistics;
mod store;
mod work;

pub use options::Options;
pub use plan::Goal;
pub use report::{Report, Row};

/// Measures, and answers the table. With the hidden `--job` it is one measurement of another such process: it prints
/// the outcome and ends the process.
///
/// # Errors
/// Where there is no place to measure, no row of the wanted name, or a signal came. A row that cannot be measured is no
/// error: the table says why, and [`Report::has_failed`].
pub fn run(options: &Options) -> anyhow::Result<Report> {
    match &options.job {
        Some(job) => job::run_and_exit(job),
        None => runner::run(options),
    }
}
